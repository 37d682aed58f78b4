/* gate.h: who may come in: API keys, client certificates, and what browsers ask first (CORS). */
#ifndef PHI_SERVER_GATE_H
#define PHI_SERVER_GATE_H

#include "server/exchange.h"

/* Whether the request will get past phi_gate_pass; known from its header alone. */
bool phi_gate_is_open(const struct phi_exchange *x);

/* False when the exchange was answered here: a preflight request, or a refusal. */
bool phi_gate_pass(struct phi_exchange *x);

/* The CORS header lines of an answer to a page of another origin. */
void phi_gate_add_headers(struct phi_exchange *x);

#endif
