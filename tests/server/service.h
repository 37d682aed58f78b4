/* service.h: a server without HTTP: a bundled model, its engine and the options that handlers read.
 */
#ifndef PHI_TESTS_SERVICE_H
#define PHI_TESTS_SERVICE_H

#include "exchange_double.h"

struct service {
    struct phi_server server;
    struct phi_server_options options;
    struct phi_sampling sampling;
    struct phi_model_info model;
    int max_model_len;
};

/* `name` below $PHI_MODELS; served as "m" and "other". `engine` NULL: 256 tokens at most, four
 * answers at once. Fails the test on errors. */
void service_open(struct service *s, const char *name, const struct phi_engine_options *engine);
void service_close(struct service *s);

/* "a.b[1].c" in a value; NULL when it is not there. */
const json_t *at(const json_t *value, const char *path);

/* Each fails the test, naming the path, when the value is another. */
void expect_text(const json_t *value, const char *path, const char *text);
void expect_int(const json_t *value, const char *path, json_int_t i);
void expect_null(const json_t *value, const char *path); /* there, and null */
void expect_absent(const json_t *value, const char *path);
void expect_size(const json_t *value, const char *path, size_t n);

/* The string at the path. */
const char *text_at(const json_t *value, const char *path);

/* Fails unless the reply is an error of this status, type and param (NULL = null). */
void expect_error(const struct reply *r, int status, const char *type, const char *param);

/* The members of `base` with those of `changes` over them; the caller's (free). A member that is
 * "-" in `changes` goes. */
char *with(const char *base, const char *changes);

#endif
