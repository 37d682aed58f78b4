/* engine_fixture.h: opens a golden checkpoint and runs requests on it. Shared by the tests of the
 * engine. */
#ifndef PHI_TESTS_ENGINE_FIXTURE_H
#define PHI_TESTS_ENGINE_FIXTURE_H

#include "phidelity.h"

#include <pthread.h>

enum { MAX_OUTPUT = 512 };

/* "$PHI_TESTS/golden/<dir>" into a static buffer. */
const char *golden_dir(const char *dir);

/* "$PHI_MODELS/<name>" into another. */
const char *model_dir(const char *name);

/* `path` is a folder. Fails the test on any error. */
struct phi_model *open_model(const char *path, enum phi_dtype dtype, int n_threads);

/* Engines of the defaults, but 256 KV tokens a sequence at most, unless `o` says other. */
struct phi_engine *create_engine(struct phi_model *m, const struct phi_engine_options *o);

/* Sampling parameters for `max_tokens` greedy tokens that no end of text cuts short. */
struct phi_sampling greedy(int max_tokens);

struct phi_request *submit(struct phi_engine *e, const int32_t *ids, size_t n,
                           const struct phi_sampling *s);

/* What one answer said, all events together. */
struct answer {
    int32_t tokens[MAX_OUTPUT];
    size_t n_tokens;
    char text[8 * MAX_OUTPUT];
    size_t n_text;
    enum phi_finish finish;
    enum phi_status status;
    char error[256];
    int32_t stop_token;
    char stop_string[64];
    struct phi_logprob logprobs[MAX_OUTPUT * 8];
    size_t n_logprobs; /* per token */
    int n_events;
};

/* Reads a request to its end into answers[n]; checks the order of events; releases it. */
void collect(struct phi_request *r, struct answer *answers, int n);

/* An engine whose thread is held in a sink of phi_engine_logits: what is submitted meanwhile has
 * arrived, in this order, when it is let go. */
struct held {
    struct phi_engine *engine;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held, let_go;
};
void hold_engine(struct held *h, struct phi_engine *e);
void let_engine_go(struct held *h);

/* submit and collect, for n = 1. */
void run(struct phi_engine *e, const int32_t *ids, size_t n, const struct phi_sampling *s,
         struct answer *out);

#endif
