/* batch.c: see batch.h. */
#include "cli/bench/batch.h"
#include "base/alloc.h"
#include "base/clock.h"

#include <math.h>

struct item {
    struct phi_request *request;
    double submitted_s;
    bool ended;
    struct phi_request_stats stats; /* once it has ended */
};

struct running {
    struct item *items;
    size_t n;
    double start_s;
};

static enum phi_status read_event(struct item *item, struct phi_error *err)
{
    struct phi_event ev;
    phi_request_next(item->request, &ev, -1);
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

static double from_start(const struct running *r, const struct item *item, double seconds)
{
    return item->submitted_s + seconds - r->start_s;
}

/* By the engine's own times: how soon this thread reads an event does not count. */
static void add_times(const struct running *r, struct bench_batch *out)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct item *item = &r->items[i];
        out->prefill_s = fmax(out->prefill_s, from_start(r, item, item->stats.first_token_s));
        out->seconds = fmax(out->seconds, from_start(r, item, item->stats.end_s));
        out->n_prompt_tokens += item->stats.n_prompt_tokens;
        out->n_output_tokens += item->stats.n_output_tokens;
    }
    /* A request's later tokens come evenly: those before prefill_s are a share of them. */
    for (size_t i = 0; i < r->n; i++) {
        const struct phi_request_stats *s = &r->items[i].stats;
        double decoding_s = s->end_s - s->first_token_s;
        double after_s = from_start(r, &r->items[i], s->end_s) - out->prefill_s;
        if (decoding_s > 0 && after_s > 0)
            out->n_decoded += (double)(s->n_output_tokens - 1) * fmin(after_s / decoding_s, 1);
    }
}

static enum phi_status follow(struct running *r, struct bench_batch *out, struct phi_error *err)
{
    for (size_t i = 0; i < r->n; i++) {
        struct item *item = &r->items[i];
        while (!item->ended)
            PHI_TRY(read_event(item, err));
        phi_request_get_stats(item->request, &item->stats);
    }
    add_times(r, out);
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
