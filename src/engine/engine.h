/* engine.h: what is behind the public struct phi_engine.
 *
 * One thread owns the model's workspace, the KV memory, the scheduler and all sequences. It sleeps
 * while there is nothing to do; else it takes what was submitted, lets cancelled requests go, and
 * makes one step:
 *
 *   plan (scheduler) -> batch -> forward (model) -> logits -> tokens -> publish (request)
 *
 * A step allocates nothing: what it needs is made at creation or when a request is submitted. */
#ifndef PHI_ENGINE_ENGINE_H
#define PHI_ENGINE_ENGINE_H

#include "engine/counters.h"
#include "engine/memory_plan.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

struct phi_engine {
    /* Fixed at creation. */
    struct phi_model *model;
    struct phi_memory_plan memory;
    uint64_t seed;
    int max_waiting; /* 0 = no limit */
    bool bind_threads;
    pthread_t thread;

    /* The engine's thread. */
    struct phi_workspace *workspace;
    struct phi_kv kv;
    struct phi_kvpool pool;
    struct phi_prefix_cache prefix_cache; /* zero when it is off */
    struct phi_scheduler scheduler;
    struct phi_sampler *samplers; /* [model->n_threads] */
    float *logits;              /* [max_logit_rows, vocab_size] */
    int32_t *tokens;            /* [max_num_batched_tokens] */
    struct phi_batch_seq *seqs; /* [max_num_seqs] */
    uint32_t *logit_rows;       /* [max_logit_rows] */
    uint32_t *row_entries;      /* [max_logit_rows] whose entry of the plan each row of logits is */
    int32_t *verdicts;          /* [max_logit_rows] token or PHI_TOKEN_*; of a scored one 0 if fine */
    struct phi_request *live;   /* all requests with answers that go on */
    struct phi_request *ended;  /* let go in this step, but still named by its plan */
    uint64_t n_requests;        /* begun; numbers the random streams of those without a seed */
    bool broke_off_others;      /* by breaking off the last step */
    double step_s;              /* when the forward pass of this step was done */

    /* Any thread. */
    atomic_bool cancel_step;    /* the step under way is not worth finishing */
    atomic_bool some_cancelled; /* look through the live requests */
    _Atomic(struct phi_request *) dominant; /* has most rows of the step; only compared */
    atomic_int n_unstarted; /* requests that wait for their first step */
    atomic_int n_unknown;   /* answers submitted that the engine's thread has not taken yet */
    struct phi_counters counters;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the engine's thread: work; the creating thread: it has started */
    struct phi_request *submitted_first, *submitted_last;
    bool stop, started;
    enum phi_status start_status;
    struct phi_error start_error;
};

/* step.c: plans and carries out one step. */
void phi_engine_step(struct phi_engine *e);

/* engine.c: ends what still runs of a request with this ending and lets go of it. */
void phi_engine_end_request(struct phi_engine *e, struct phi_request *r, enum phi_finish finish,
                            enum phi_status status, const char *text);

/* engine.c: running, waiting and blocks, as the scheduler has them now. */
void phi_engine_count_present(struct phi_engine *e);

/* engine.c: one answer is over; the request too when it was the last. */
void phi_engine_end_answer(struct phi_engine *e, struct phi_answer *a, size_t n_new,
                           const struct phi_ending *ending);

#endif
