/* request_log.h: what --enable-log-requests and --enable-log-outputs write of a request: that it
 * came, with its parameters; its text, at level debug; that it ended; and what it was answered. */
#ifndef PHI_SERVER_API_REQUEST_LOG_H
#define PHI_SERVER_API_REQUEST_LOG_H

#include "server/api/generation.h"

void phi_request_log_received(const struct phi_genjob *g, size_t i_prompt,
                              const struct phi_sampling *s);
void phi_request_log_ended(const struct phi_genjob *g, size_t i_prompt, enum phi_finish finish,
                           const struct phi_request_stats *stats);
/* What choice i holds: all of it, or the next piece when streaming. */
void phi_request_log_output(const struct phi_genjob *g, size_t i_choice);

#endif
