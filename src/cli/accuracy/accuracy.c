/* accuracy.c: runs the reference's prompts and judges what comes out; see accuracy.h. */
#include "cli/accuracy/accuracy.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

/* A prompt on its way through the engine; `want` and `got` are rows of the vocabulary's size. */
struct run {
    struct accuracy *a;
    const struct reference_prompt *prompt;
    struct difference *rows;
    double *want, *got;
    size_t n_done; /* positions of earlier prompts */
    struct cli_progress progress;
    bool reference_is_bad;
};

static bool are_finite(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static int take_rows(void *context, size_t first_row, size_t n_rows, const float *logits)
{
    struct run *r = context;
    size_t n = r->prompt->logits->shape[1];
    for (size_t row = first_row; row < first_row + n_rows; row++, logits += n) {
        reference_row(r->prompt->logits, row, r->want);
        if (!are_finite(r->want, n)) {
            r->reference_is_bad = true;
            return 1;
        }
        for (size_t i = 0; i < n; i++)
            r->got[i] = logits[i];
        difference_of(r->want, r->got, n, &r->rows[row]);
        if (r->a->locate)
            locate_take(r->a->locate, r->prompt, "logits", row, 1, n, logits);
    }
    cli_progress_show(&r->progress, "comparing", r->n_done + first_row + n_rows,
                      r->a->reference.n_positions);
    return 0;
}

static void take_layer(void *context, const char *name, size_t first_row, size_t n_rows,
                       size_t n_cols, const float *data)
{
    struct run *r = context;
    locate_take(r->a->locate, r->prompt, name, first_row, n_rows, n_cols, data);
}

static enum phi_status run_prompt(struct run *r, struct phi_engine *engine,
                                  struct difference_sum *sum, struct phi_error *err)
{
    const struct phi_ids *ids = &r->prompt->ids;
    struct locate *locate = r->a->locate;
    enum phi_status status =
        phi_engine_trace(engine, ids->data, ids->n, take_rows, locate ? take_layer : NULL, r, err);
    if (r->reference_is_bad)
        return phi_fail(err, PHI_ERR_INVALID, "%s: %s holds NaN or infinite numbers",
                        r->a->reference.path, r->prompt->logits->name.data);
    PHI_TRY(status);
    if (locate && locate->err.code != PHI_OK)
        return phi_fail(err, locate->err.code, "%s", locate->err.text);
    for (size_t i = 0; i < ids->n; i++)
        difference_add(sum, &r->rows[i]);
    return PHI_OK;
}

static enum phi_status run_all(struct run *r, struct phi_engine *engine, struct phi_error *err)
{
    struct accuracy *a = r->a;
    for (size_t i = 0; i < a->reference.n_prompts; i++) {
        r->prompt = &a->reference.prompts[i];
        r->rows = a->rows + r->n_done;
        PHI_TRY(run_prompt(r, engine, &a->prompts[i], err));
        difference_merge(&a->total, &a->prompts[i]);
        r->n_done += r->prompt->ids.n;
    }
    return PHI_OK;
}

enum phi_status accuracy_measure(struct accuracy *a, struct phi_engine *engine,
                                 struct phi_error *err)
{
    size_t n = (size_t)a->info.vocab_size;
    struct run r = {.a = a};
    a->rows = phi_calloc(a->reference.n_positions, sizeof *a->rows);
    a->prompts = phi_calloc(a->reference.n_prompts, sizeof *a->prompts);
    double *work = phi_alloc(2 * n, sizeof *work);
    if (!a->rows || !a->prompts || !work) {
        phi_free(work);
        return phi_fail_memory(err, "the comparison", a->reference.n_positions * sizeof *a->rows);
    }
    r.want = work;
    r.got = work + n;
    cli_progress_init(&r.progress);
    enum phi_status status = run_all(&r, engine, err);
    cli_progress_clear(&r.progress);
    phi_free(work);
    return status;
}

void accuracy_deinit(struct accuracy *a)
{
    phi_free(a->rows);
    phi_free(a->prompts);
    reference_close(&a->reference);
}

bool accuracy_passes(const struct accuracy *a)
{
    return difference_top1(&a->total) >= a->limits.top1 &&
           a->total.least_cosine >= a->limits.cosine && a->total.largest_kl <= a->limits.kl &&
           (!a->locate || locate_first(a->locate) < 0);
}

bool accuracy_where(const struct accuracy *a, char out[256])
{
    char name[48];
    int stage = a->locate ? locate_first(a->locate) : -1;
    if (stage < 0)
        return false;
    snprintf(out, 256,
             "leaves the reference in %s: relative difference %.1e (at most %g), before it %.1e",
             locate_name(a->locate, stage, name), locate_difference(a->locate, stage),
             a->locate->limit, locate_before(a->locate, stage));
    return true;
}

void accuracy_verdict(const struct accuracy *a, char out[256])
{
    const struct difference_sum *t = &a->total;
    snprintf(
        out, 256,
        "top-1 %.2f %% (at least %g %%), lowest cosine %.8f (at least %g), highest KL %.2e (at "
        "most %g)",
        difference_top1(t), a->limits.top1, t->least_cosine, a->limits.cosine, t->largest_kl,
        a->limits.kl);
}
