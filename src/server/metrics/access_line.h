/* access_line.h: the log line of a finished exchange, in uvicorn's form:
 *
 *   127.0.0.1:54321 - "POST /v1/completions HTTP/1.1" 200 OK
 */
#ifndef PHI_SERVER_METRICS_ACCESS_LINE_H
#define PHI_SERVER_METRICS_ACCESS_LINE_H

#include "base/str.h"

/* `peer` comes from the system. method and target come from the client and may hold anything: every
 * byte that could end the line or the quotes, or move a terminal's cursor, is written as %XX, and a
 * long target is cut ("..."), so that the status is always there. `status` 0 (the client left
 * before its answer) is shown as nginx's 499. Cut to `capacity`, of which at least 256 are needed.
 */
void phi_access_line(const char *peer, struct phi_str method, struct phi_str target, int status,
                     char *out, size_t capacity);

#endif
