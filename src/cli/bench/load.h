/* load.h: requests sent to a server over HTTP at given times and their streams followed, many at
 * once, by one thread over libcurl. */
#ifndef PHI_CLI_BENCH_LOAD_H
#define PHI_CLI_BENCH_LOAD_H

#include "cli/bench/stream.h"

struct bench_server {
    const char *base_url, *endpoint;
    const char *const *headers; /* "Name: value" */
    size_t n_headers;
    bool insecure; /* certificates are not looked at */
};

struct bench_request {
    struct phi_str body; /* JSON */
    double due_s;        /* since the beginning */
};

/* Sends each request when it is due and fewer than max_concurrency (0 = no limit) are under way, in
 * their order; answers [n] are zeroed by the caller, who ends them with bench_answer_deinit. A
 * request that fails is an answer without success. *seconds is the time until the last answer
 * ended. `progress` (may be NULL) is called now and then. */
enum phi_status bench_load_run(const struct bench_server *server,
                               const struct bench_request *requests, size_t n, int max_concurrency,
                               struct bench_answer *answers, double *seconds,
                               void (*progress)(void *context, size_t n_done), void *context,
                               struct phi_error *err);

/* GET of a path under base_url. PHI_ERR_IO names what went wrong, also with a status other than
 * 200. */
enum phi_status bench_load_get(const struct bench_server *server, const char *path,
                               struct phi_buf *out, struct phi_error *err);

/* When each of n requests is due at `rate` a second (0 = all at once): gaps of a gamma distribution
 * of shape `burstiness`, 1 being a Poisson process, stretched so that the last is due at n / rate,
 * as vLLM does. */
void bench_load_arrivals(struct bench_request *requests, size_t n, double rate, double burstiness,
                         uint64_t seed);

#endif
