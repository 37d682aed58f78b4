/* engine.c: creating and destroying an engine, its thread, and the way of requests to it and from
 * it. */
#include "engine/engine.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

#include <assert.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

/* ---------------------------------------------------------------- requests come and go */

static void live_insert(struct phi_engine *e, struct phi_request *r)
{
    r->previous = NULL;
    r->next = e->live;
    if (e->live)
        e->live->previous = r;
    e->live = r;
}

static void live_remove(struct phi_engine *e, struct phi_request *r)
{
    *(r->previous ? &r->previous->next : &e->live) = r->next;
    if (r->next)
        r->next->previous = r->previous;
}

/* Each answer's random numbers: of its own seed, or a stream of the engine's seed that no other
 * request has. Seeded requests all use stream 0. */
static void set_random_keys(struct phi_engine *e, struct phi_request *r)
{
    uint64_t number = ++e->n_requests;
    for (int k = 0; k < r->params.n; k++) {
        struct phi_answer *a = &r->answers[k];
        a->key = r->params.has_seed ? r->params.seed + (uint64_t)k : e->seed;
        a->stream = r->params.has_seed ? 0 : number << 16 | (uint64_t)k;
    }
}

static void begin_request(struct phi_engine *e, struct phi_request *r)
{
    live_insert(e, r);
    if (atomic_load(&r->cancelled)) /* before it was live */
        atomic_store(&e->some_cancelled, true);
    set_random_keys(e, r);
    for (int k = 0; k < r->params.n; k++)
        phi_scheduler_add(&e->scheduler, &r->answers[k].sequence);
    phi_engine_count_present(e);
    atomic_fetch_sub(&e->n_unknown, r->params.n);
}

void phi_engine_count_present(struct phi_engine *e)
{
    phi_counter_set(&e->counters.n_running, e->scheduler.n_running);
    phi_counter_set(&e->counters.n_waiting, e->scheduler.n_waiting);
    phi_counter_set(&e->counters.n_used_blocks, e->pool.n_blocks - e->pool.n_free);
}

void phi_engine_end_answer(struct phi_engine *e, struct phi_answer *a, size_t n_new,
                           const struct phi_ending *ending)
{
    struct phi_request *r = a->request;
    bool last = --r->n_running_answers == 0;
    phi_scheduler_end(&e->scheduler, &a->sequence);
    phi_engine_count_present(e);
    if (last && r->start_s == 0)
        atomic_fetch_sub(&e->n_unstarted, 1);
    phi_answer_publish(a, n_new, ending);
    if (!last)
        return;
    live_remove(e, r);
    r->next = e->ended;
    e->ended = r;
    phi_request_detach(r);
}

static void release_ended(struct phi_engine *e)
{
    while (e->ended) {
        struct phi_request *r = e->ended;
        e->ended = r->next;
        phi_request_unref(r);
    }
}

void phi_engine_end_request(struct phi_engine *e, struct phi_request *r, enum phi_finish finish,
                            enum phi_status status, const char *text)
{
    const struct phi_ending ending = {.finish = finish, .stop_string = -1, .status = status};
    phi_request_set_error(r, text);
    for (int k = 0; k < r->params.n; k++)
        if (r->answers[k].sequence.state != PHI_SEQUENCE_ENDED)
            phi_engine_end_answer(e, &r->answers[k], 0, &ending);
}

static void end_cancelled(struct phi_engine *e)
{
    if (!atomic_exchange(&e->some_cancelled, false))
        return;
    for (struct phi_request *r = e->live, *next; r; r = next) {
        next = r->next;
        if (atomic_load(&r->cancelled))
            phi_engine_end_request(e, r, PHI_FINISH_ABORT, PHI_ERR_CANCELLED, "cancelled");
    }
}

/* ---------------------------------------------------------------- the engine's thread */

/* Waits for something to do and takes what was submitted. False when the engine is to end. */
static bool take_work(struct phi_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->stop && !e->submitted_first && !e->live && !atomic_load(&e->some_cancelled))
        pthread_cond_wait(&e->wake, &e->lock);
    struct phi_request *list = e->submitted_first;
    bool stop = e->stop;
    e->submitted_first = e->submitted_last = NULL;
    atomic_store(&e->cancel_step, stop);
    pthread_mutex_unlock(&e->lock);
    while (list) {
        struct phi_request *r = list;
        list = r->next;
        begin_request(e, r);
    }
    return !stop;
}

static void *engine_main(void *arg)
{
    struct phi_engine *e = arg;
    const struct phi_memory_plan *p = &e->memory;
    phi_fp_env_set();
    e->start_status =
        phi_workspace_create(e->model->net, p->max_num_batched_tokens, p->max_logit_rows,
                             e->model->n_threads, &e->workspace, &e->start_error);
    if (e->start_status == PHI_OK && e->bind_threads &&
        !phi_pool_bind(phi_workspace_pool(e->workspace)))
        phi_log(PHI_LOG_WARNING,
                "threads are not bound: there are %d of them for %d cores, or "
                "another engine's are bound",
                e->model->n_threads, phi_n_cores());
    pthread_mutex_lock(&e->lock);
    e->started = true;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (e->start_status != PHI_OK)
        return NULL;
    phi_alloc_forbid(true);
    while (take_work(e)) {
        end_cancelled(e);
        phi_engine_step(e);
        release_ended(e);
    }
    while (e->live)
        phi_engine_end_request(e, e->live, PHI_FINISH_ABORT, PHI_ERR_CANCELLED,
                               "the engine was stopped");
    release_ended(e);
    phi_alloc_forbid(false);
    phi_workspace_destroy(e->workspace);
    return NULL;
}

/* Signals are the program's business, not this thread's. */
static enum phi_status start_thread(struct phi_engine *e, struct phi_error *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&e->thread, NULL, engine_main, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        return phi_fail(err, PHI_ERR_MEMORY, "cannot start the engine's thread");
    pthread_mutex_lock(&e->lock);
    while (!e->started)
        pthread_cond_wait(&e->wake, &e->lock);
    pthread_mutex_unlock(&e->lock);
    if (e->start_status == PHI_OK)
        return PHI_OK;
    pthread_join(e->thread, NULL);
    return phi_fail(err, e->start_status, "%s", e->start_error.text);
}

/* ---------------------------------------------------------------- creating and destroying */

/* Of the prefix cache's hashes, which no result depends on. */
static enum phi_status random_seed(struct phi_prefix_seed *seed, struct phi_error *err)
{
    if (getrandom(seed, sizeof *seed, 0) != sizeof *seed)
        return phi_fail(err, PHI_ERR_IO, "the system gives no random numbers");
    return PHI_OK;
}

/* One for each thread. */
static enum phi_status make_samplers(struct phi_engine *e, struct phi_error *err)
{
    const size_t n = (size_t)e->model->n_threads;
    e->samplers = phi_calloc(n, sizeof *e->samplers);
    if (!e->samplers)
        return phi_fail_memory(err, "the samplers", n * sizeof *e->samplers);
    for (size_t i = 0; i < n; i++)
        PHI_TRY(phi_sampler_init(&e->samplers[i], e->model->kernels,
                                 (size_t)e->model->config.vocab_size, err));
    return PHI_OK;
}

static enum phi_status allocate(struct phi_engine *e, struct phi_error *err)
{
    const struct phi_memory_plan *p = &e->memory;
    const struct phi_config *c = &e->model->config;
    e->kv = (struct phi_kv){
        .data = phi_pages_alloc(p->kv_bytes),
        .dtype = p->kv_dtype,
        .n_blocks = p->n_blocks,
        .block_size = p->block_size,
        .block_bytes = p->block_bytes,
    };
    if (!e->kv.data)
        return phi_fail_memory(err, "the KV cache", p->kv_bytes);
    e->logits = phi_pages_alloc(p->logits_bytes);
    if (!e->logits)
        return phi_fail_memory(err, "logits", p->logits_bytes);
    e->tokens = phi_alloc(p->max_num_batched_tokens, sizeof *e->tokens);
    e->seqs = phi_alloc(p->max_num_seqs, sizeof *e->seqs);
    e->logit_rows = phi_alloc(p->max_logit_rows, sizeof *e->logit_rows);
    e->row_entries = phi_alloc(p->max_logit_rows, sizeof *e->row_entries);
    e->verdicts = phi_alloc(p->max_logit_rows, sizeof *e->verdicts);
    if (!e->tokens || !e->seqs || !e->logit_rows || !e->row_entries || !e->verdicts)
        return phi_fail_memory(err, "the batch", p->max_num_batched_tokens * sizeof *e->tokens);
    struct phi_scheduler_limits limits = {
        .max_num_seqs = p->max_num_seqs,
        .max_num_batched_tokens = p->max_num_batched_tokens,
        .max_logit_rows = p->max_logit_rows,
        .block_size = p->block_size,
        .original_length =
            c->rope_type == PHI_ROPE_LONGROPE ? (size_t)c->original_max_position_embeddings : 0,
        .policy = p->policy,
    };
    PHI_TRY(phi_kvpool_init(&e->pool, p->n_blocks, err));
    struct phi_prefix_cache *cache = p->prefix_caching ? &e->prefix_cache : NULL;
    if (cache) {
        struct phi_prefix_seed seed;
        PHI_TRY(random_seed(&seed, err));
        PHI_TRY(phi_prefix_cache_init(cache, p->n_blocks, p->block_size, &seed, err));
    }
    PHI_TRY(phi_scheduler_init(&e->scheduler, &limits, &e->pool, cache, err));
    return make_samplers(e, err);
}

static void engine_free(struct phi_engine *e)
{
    phi_pages_free(e->kv.data, e->memory.kv_bytes);
    phi_pages_free(e->logits, e->memory.logits_bytes);
    phi_free(e->tokens);
    phi_free(e->seqs);
    phi_free(e->logit_rows);
    phi_free(e->row_entries);
    phi_free(e->verdicts);
    for (int i = 0; e->samplers && i < e->model->n_threads; i++)
        phi_sampler_deinit(&e->samplers[i]);
    phi_free(e->samplers);
    phi_scheduler_deinit(&e->scheduler);
    phi_prefix_cache_deinit(&e->prefix_cache);
    phi_kvpool_deinit(&e->pool);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    phi_free(e);
}

enum phi_status phi_engine_create(struct phi_model *m, const struct phi_engine_options *o,
                                  struct phi_engine **out, struct phi_error *err)
{
    *out = NULL;
    struct phi_memory memory;
    struct phi_memory_plan plan;
    if (m->count_only)
        return phi_fail(err, PHI_ERR_INVALID, "the model's weights were only counted");
    phi_memory_read(&memory);
    PHI_TRY(phi_memory_plan_make(m, o, &memory, &plan, err));
    struct phi_engine *e = phi_calloc(1, sizeof *e);
    if (!e)
        return phi_fail_memory(err, "the engine", sizeof *e);
    e->model = m;
    e->memory = plan;
    e->seed = o->seed;
    e->max_waiting = o->max_waiting;
    e->bind_threads = o->bind_threads;
    phi_counters_init(&e->counters);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    enum phi_status status = allocate(e, err);
    if (status == PHI_OK)
        status = start_thread(e, err);
    if (status != PHI_OK) {
        engine_free(e);
        return status;
    }
    *out = e;
    return PHI_OK;
}

void phi_engine_destroy(struct phi_engine *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    atomic_store(&e->cancel_step, true);
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    engine_free(e);
}

/* ---------------------------------------------------------------- facts */

static void describe(const struct phi_memory_plan *p, struct phi_engine_info *out)
{
    *out = (struct phi_engine_info){
        .max_model_len = (int)p->max_model_len,
        .max_num_seqs = (int)p->max_num_seqs,
        .max_num_batched_tokens = (int)p->max_num_batched_tokens,
        .block_size = (int)p->block_size,
        .kv_dtype = p->kv_dtype,
        .kv_bytes = p->kv_bytes,
        .kv_tokens = (uint64_t)p->n_blocks * p->block_size,
        .kv_bytes_per_token = p->block_bytes / p->block_size,
        .scratch_bytes = p->workspace_bytes + p->logits_bytes + p->sampler_bytes,
    };
}

enum phi_status phi_engine_plan(const struct phi_model *m, const struct phi_engine_options *o,
                                struct phi_engine_info *out, struct phi_error *err)
{
    struct phi_memory memory;
    struct phi_memory_plan plan;
    phi_memory_read(&memory);
    PHI_TRY(phi_memory_plan_make(m, o, &memory, &plan, err));
    describe(&plan, out);
    return PHI_OK;
}

void phi_engine_get_info(const struct phi_engine *e, struct phi_engine_info *out)
{
    describe(&e->memory, out);
}

void phi_engine_get_stats(const struct phi_engine *e, struct phi_engine_stats *out)
{
    phi_counters_read(&e->counters, e->memory.n_blocks, (uint64_t)atomic_load(&e->n_unknown), out);
}

/* ---------------------------------------------------------------- the way in */

/* Counts a request as waiting for its first step, unless there are too many. */
static enum phi_status take_place(struct phi_engine *e, struct phi_error *err)
{
    int n = atomic_fetch_add(&e->n_unstarted, 1);
    if (e->max_waiting == 0 || n < e->max_waiting)
        return PHI_OK;
    atomic_fetch_sub(&e->n_unstarted, 1);
    return phi_fail(err, PHI_ERR_BUSY,
                    "The engine is busy: %d requests wait for their first step, and no more may "
                    "wait. Try again later.",
                    e->max_waiting);
}

/* Hands a request to the engine's thread, which holds a reference until all its answers ended. */
static void submit(struct phi_engine *e, struct phi_request *r)
{
    phi_request_acquire(r);
    r->engine = e;
    atomic_fetch_add(&e->n_unknown, r->params.n);
    pthread_mutex_lock(&e->lock);
    r->next = NULL;
    *(e->submitted_last ? &e->submitted_last->next : &e->submitted_first) = r;
    e->submitted_last = r;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

static void set_options(const struct phi_engine *e, struct phi_request *r,
                        const struct phi_request_options *o)
{
    struct phi_str salt = {o->cache_salt.data, o->cache_salt.n};
    r->notify = o->notify;
    r->notify_context = o->notify_context;
    for (int k = 0; k < r->params.n; k++) {
        r->answers[k].sequence.priority = o->priority;
        r->answers[k].sequence.salt = phi_prefix_salt(&e->prefix_cache, salt);
    }
}

enum phi_status phi_request_submit(struct phi_engine *e, const int32_t *prompt_ids, size_t n_prompt,
                                   const struct phi_sampling *s,
                                   const struct phi_request_options *o, struct phi_request **out,
                                   struct phi_error *err)
{
    *out = NULL;
    PHI_TRY(take_place(e, err));
    enum phi_status status =
        phi_request_create(e->model, e->memory.max_model_len, e->memory.block_size, prompt_ids,
                           n_prompt, s, NULL, NULL, out, err);
    if (status != PHI_OK) {
        atomic_fetch_sub(&e->n_unstarted, 1);
        return status;
    }
    if (o)
        set_options(e, *out, o);
    submit(e, *out);
    return PHI_OK;
}

enum phi_status phi_engine_trace(struct phi_engine *e, const int32_t *ids, size_t n_ids,
                                 phi_logits_sink sink, phi_trace_sink trace, void *context,
                                 struct phi_error *err)
{
    struct phi_sampling s;
    struct phi_request *r;
    size_t max = e->memory.max_model_len;
    phi_sampling_init(&s);
    s.max_tokens = 1; /* none is sampled, but the sequence has room for it */
    if (n_ids > max)
        return phi_fail(err, PHI_ERR_TOO_LONG, "%zu tokens exceed the context of %zu tokens", n_ids,
                        max);
    PHI_TRY(phi_request_create(e->model, max + 1, e->memory.block_size, ids, n_ids, &s, sink,
                               context, &r, err));
    r->trace = trace;
    atomic_fetch_add(&e->n_unstarted, 1);
    submit(e, r);
    phi_request_wait(r);
    const struct phi_ending *ending = &r->answers[0].ending;
    enum phi_status status = ending->status;
    if (status != PHI_OK)
        status = phi_fail(err, status, "%s", r->error);
    phi_request_release(r);
    return status;
}

enum phi_status phi_engine_logits(struct phi_engine *e, const int32_t *ids, size_t n_ids,
                                  phi_logits_sink sink, void *context, struct phi_error *err)
{
    return phi_engine_trace(e, ids, n_ids, sink, NULL, context, err);
}

/* The request's lock keeps the engine from being let go while it is told. A step that is mostly
 * this request's is broken off: the others' few rows are computed again. */
void phi_request_cancel(struct phi_request *r)
{
    pthread_mutex_lock(&r->lock);
    struct phi_engine *e = r->engine;
    atomic_store(&r->cancelled, true);
    if (e) {
        atomic_store(&e->some_cancelled, true);
        if (atomic_load(&e->dominant) == r)
            atomic_store(&e->cancel_step, true);
        pthread_mutex_lock(&e->lock);
        pthread_cond_broadcast(&e->wake);
        pthread_mutex_unlock(&e->lock);
    }
    pthread_mutex_unlock(&r->lock);
}
