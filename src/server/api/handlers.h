/* handlers.h: the handlers of the routes (routes.c), by file. */
#ifndef PHI_SERVER_API_HANDLERS_H
#define PHI_SERVER_API_HANDLERS_H

#include "server/exchange.h"

void phi_api_completions(struct phi_exchange *x); /* completions.c */
void phi_api_chat(struct phi_exchange *x);        /* chat.c */
void phi_api_tokenize(struct phi_exchange *x);    /* tokenize.c */
void phi_api_detokenize(struct phi_exchange *x);
void phi_api_models(struct phi_exchange *x); /* models.c */
void phi_api_model(struct phi_exchange *x);
void phi_api_health(struct phi_exchange *x); /* status.c */
void phi_api_version(struct phi_exchange *x);
void phi_api_load(struct phi_exchange *x);
void phi_api_metrics(struct phi_exchange *x);
void phi_api_page(struct phi_exchange *x);    /* page.c */
void phi_api_openapi(struct phi_exchange *x); /* openapi.c */

#endif
