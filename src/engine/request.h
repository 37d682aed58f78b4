/* request.h: a request and its answers: everything of it is allocated when it is submitted.
 *
 * Two threads meet here. The engine's thread writes the answers' tokens and publishes them under
 * the lock; the thread that reads the events takes what is new, turns it into text and hands it
 * out. Nobody waits for a slow reader: an answer's tokens lie where they were written, and one
 * event covers all that came since the last. */
#ifndef PHI_ENGINE_REQUEST_H
#define PHI_ENGINE_REQUEST_H

#include "engine/detokenize.h"
#include "engine/params.h"
#include "engine/sequence.h"

#include <pthread.h>
#include <stdatomic.h>

/* How an answer ended; all zero while it goes on. */
struct phi_ending {
    enum phi_finish finish;
    enum phi_token_end by_token; /* the last token is the one that ended it */
    int stop_string;             /* index of the stop string, or -1 */
    enum phi_status status;
};

struct phi_answer {
    struct phi_request *request;
    int index;

    /* The engine's thread. */
    struct phi_sequence sequence;
    struct phi_detokenizer watch; /* finds stop strings; unused when there are none */
    uint64_t key, stream;         /* of the random numbers */
    double last_token_s;          /* 0 = none yet */

    /* Written by the engine's thread; what is below n_output, and the ending, are published under
     * the request's lock. */
    int32_t *output;              /* [max_tokens] */
    struct phi_logprob *logprobs; /* [max_tokens, n_logprobs] or NULL */
    size_t n_output;
    struct phi_ending ending;

    /* Under the lock. */
    bool ready; /* stands in the request's ready ring */

    /* The reading thread. */
    struct phi_detokenizer text;
    size_t n_delivered;
    bool text_failed;
};

struct phi_request {
    struct phi_params params;
    int32_t *prompt;
    size_t n_prompt;
    struct phi_answer *answers; /* [params.n] */
    size_t n_logprobs;          /* entries per token: 0, or 1 + logprobs */

    size_t n_prompt_logprobs;            /* entries per prompt token: 0, or 1 + prompt_logprobs */
    struct phi_logprob *prompt_logprobs; /* [n_prompt, n_prompt_logprobs] */

    /* phi_engine_logits instead of sampling. */
    phi_logits_sink sink;
    phi_trace_sink trace; /* or NULL; set before the request is submitted */
    void *sink_context;   /* of both */

    void (*notify)(void *context, bool ended); /* or NULL */
    void *notify_context;

    /* The engine's thread. */
    struct phi_request *next, *previous; /* among the submitted, then among the live ones */
    int n_running_answers;               /* not ended yet */

    atomic_int n_references; /* the caller's and the engine's */
    atomic_bool cancelled;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct phi_engine *engine; /* NULL once it has let go */
    int *ready;                /* ring [params.n] of answers with news */
    int ready_first, n_ready;
    double submit_s, start_s, first_token_s, end_s; /* 0 = not yet */
    size_t n_cached, n_preemptions;
    char error[1024];                               /* of PHI_FINISH_ERROR */

    /* The reading thread. */
    int n_finish_delivered;
    struct phi_buf text; /* of the last event */
    struct phi_error event_error;
};

/* A request with one reference, the caller's. `sink` NULL: as `s` says; else the logits of all rows
 * go to it. */
enum phi_status phi_request_create(const struct phi_model *m, size_t max_model_len,
                                   size_t block_size, const int32_t *prompt, size_t n_prompt,
                                   const struct phi_sampling *s, phi_logits_sink sink,
                                   void *sink_context, struct phi_request **out,
                                   struct phi_error *err);
void phi_request_acquire(struct phi_request *r);
void phi_request_unref(struct phi_request *r);

/* Copies ids of the sequence's positions begin .. begin + n - 1: of the prompt, then of the answer. */
void phi_answer_read_tokens(const struct phi_sequence *q, size_t begin, size_t n, int32_t *out);

/* The engine's thread: rows of the request are computed. True the first time. */
bool phi_request_start(struct phi_request *r);

/* The engine's thread: one more token is in answer->output (or n_new = 0), and the ending, if it
 * ended. */
void phi_answer_publish(struct phi_answer *answer, size_t n_new, const struct phi_ending *ending);

/* The engine's thread: notes an error's text, before the answers that it ends are published. */
void phi_request_set_error(struct phi_request *r, const char *text);

/* The engine's thread: no answer goes on; the engine will publish nothing more and only give its
 * reference back. */
void phi_request_detach(struct phi_request *r);

/* Waits until the engine has let go. */
void phi_request_wait(struct phi_request *r);

/* From an answer's sequence back to the answer. */
static inline struct phi_answer *phi_answer_of(const struct phi_sequence *q)
{
    return q->owner;
}

#endif
