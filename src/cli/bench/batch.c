/* batch.c: see batch.h. */
#include "cli/bench/batch.h"
#include "base/alloc.h"
#include "base/clock.h"

struct item {
    struct phi_request *request;
    double submitted_s;
    size_t n_tokens; /* of the events read so far */
    bool ended;
};

struct running {
    struct item *items;
    size_t n;
    double start_s;
};

/* Reads one event, waiting at most timeout_ms. *read tells whether there was one. */
static enum phi_status read_event(struct item *item, int timeout_ms, bool *read,
                                  struct phi_error *err)
{
    struct phi_event ev;
    int result = item->ended ? -1 : phi_request_next(item->request, &ev, timeout_ms);
    *read = result == 1;
    if (!*read)
        return PHI_OK;
    item->n_tokens += ev.n_tokens;
    item->ended = ev.last;
    if (ev.finish == PHI_FINISH_ERROR)
        return phi_fail(err, ev.status, "%s", ev.error);
    return PHI_OK;
}

static enum phi_status submit(struct running *r, struct phi_engine *engine,
                              const struct bench_prompt *prompts,
                              const struct phi_sampling *sampling, struct phi_error *err)
{
    struct phi_sampling s = *sampling;
    r->start_s = phi_clock_s();
    for (size_t i = 0; i < r->n; i++) {
        s.max_tokens = prompts[i].output_len;
        r->items[i].submitted_s = phi_clock_s();
        PHI_TRY(phi_request_submit(engine, prompts[i].ids.data, prompts[i].ids.n, &s, NULL,
                                   &r->items[i].request, err));
    }
    return PHI_OK;
}

/* Until every request has a token, then what the earlier ones have more by then. */
static enum phi_status follow_prefill(struct running *r, struct bench_batch *out, size_t *n_tokens,
                                      struct phi_error *err)
{
    bool read = true;
    for (size_t i = 0; i < r->n; i++)
        while (r->items[i].n_tokens == 0 && !r->items[i].ended)
            PHI_TRY(read_event(&r->items[i], -1, &read, err));
    for (size_t i = 0; i < r->n; i++) {
        struct item *item = &r->items[i];
        struct phi_request_stats stats;
        do
            PHI_TRY(read_event(item, 0, &read, err));
        while (read);
        phi_request_get_stats(item->request, &stats);
        double first_s = item->submitted_s + stats.first_token_s - r->start_s;
        out->prefill_s = first_s > out->prefill_s ? first_s : out->prefill_s;
        *n_tokens += item->n_tokens;
    }
    return PHI_OK;
}

static enum phi_status follow(struct running *r, struct bench_batch *out, struct phi_error *err)
{
    size_t n_early = 0;
    bool read;
    PHI_TRY(follow_prefill(r, out, &n_early, err));
    for (size_t i = 0; i < r->n; i++) {
        struct item *item = &r->items[i];
        struct phi_request_stats stats;
        while (!item->ended)
            PHI_TRY(read_event(item, -1, &read, err));
        phi_request_get_stats(item->request, &stats);
        double end_s = item->submitted_s + stats.end_s - r->start_s;
        out->seconds = end_s > out->seconds ? end_s : out->seconds;
        out->n_prompt_tokens += stats.n_prompt_tokens;
        out->n_output_tokens += stats.n_output_tokens;
    }
    out->n_decoded = out->n_output_tokens - n_early;
    return PHI_OK;
}

enum phi_status bench_batch_run(struct phi_engine *engine, const struct bench_prompt *prompts,
                                size_t n, const struct phi_sampling *sampling,
                                struct bench_batch *out, struct phi_error *err)
{
    *out = (struct bench_batch){0};
    struct running r = {.items = phi_calloc(n, sizeof *r.items), .n = n};
    if (!r.items)
        return phi_fail_memory(err, "requests", n * sizeof *r.items);
    enum phi_status status = submit(&r, engine, prompts, sampling, err);
    if (status == PHI_OK)
        status = follow(&r, out, err);
    for (size_t i = 0; i < n; i++)
        phi_request_release(r.items[i].request);
    phi_free(r.items);
    return status;
}
