/* models.h: the names that the model is served under. */
#ifndef PHI_SERVER_API_MODELS_H
#define PHI_SERVER_API_MODELS_H

#include "server/api/refusal.h"
#include "server/state.h"

/* Refuses a name that is not served (404). An empty one means the model that there is. */
enum phi_status phi_model_name_check(const struct phi_server *s, struct phi_str name,
                                     struct phi_refusal *r);

#endif
