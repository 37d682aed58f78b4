/* http_client.h: asks a server a question and waits for the whole answer. One client keeps one
 * connection alive; it is used by one thread at a time. */
#ifndef PHI_CLI_HTTP_CLIENT_H
#define PHI_CLI_HTTP_CLIENT_H

#include "base/buf.h"

#include <jansson.h>

struct http_client {
    void *curl;          /* libcurl's handle */
    void *headers;       /* its list of header lines */
    struct phi_buf base; /* "http://host:port", without a '/' at its end, and without "/v1" */
    struct phi_buf body; /* of the last answer */
    int timeout_s;
};

/* `url` with or without "/v1" and slashes behind; `api_key` may be NULL. */
enum phi_status http_client_init(struct http_client *c, const char *url, const char *api_key,
                                 int timeout_s, struct phi_error *err);
void http_client_deinit(struct http_client *c);

/* The status of the answer to GET path, whose body is in c->body; 0 when there was none. */
int http_client_get(struct http_client *c, const char *path, struct phi_error *err);

/* POSTs the JSON value to path and parses the answer into *out, the caller's. Another status than
 * 200 is PHI_ERR_IO with what the server said. */
enum phi_status http_client_post(struct http_client *c, const char *path, const json_t *body,
                                 json_t **out, struct phi_error *err);

#endif
