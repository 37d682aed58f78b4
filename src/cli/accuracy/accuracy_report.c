/* accuracy_report.c: what was measured, as a table, as JSON and as a page. */
#include "base/dtype.h"
#include "cli/accuracy/accuracy.h"
#include "cli/json_text.h"
#include "cli/page.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

/* "bfloat16", "bfloat16 with w8a8" */
static const char *held_as(const struct accuracy *a, char out[64])
{
    const char *dtype = phi_dtype_name(a->info.dtype);
    bool is_plain = a->info.quantization == PHI_UNQUANTIZED;
    snprintf(out, 64, "%s%s%s", dtype, is_plain ? "" : " with ",
             is_plain ? "" : phi_quantization_name(a->info.quantization));
    return out;
}

/* ---------------------------------------------------------------- the table */

static void print_sum(struct cli_out *out, const char *name, const struct difference_sum *s)
{
    cli_out_printf(out, "%-6s %9zu %8.2f %8.2f %12.9f %9.2e %9.2e %9.2e %9.2e\n", name, s->n_rows,
                   difference_top1(s), difference_top5(s), s->least_cosine, s->largest_kl,
                   difference_mean_kl(s), s->largest, difference_mean(s));
}

enum { MAX_MISSES_SHOWN = 10 };

/* Positions whose best token is another one: the first few. */
static void print_misses(const struct accuracy *a, struct cli_out *out)
{
    size_t n_shown = 0, n_missed = a->total.n_rows - a->total.n_same_best, row = 0;
    for (size_t p = 0; p < a->reference.n_prompts && n_shown < MAX_MISSES_SHOWN; p++)
        for (size_t i = 0; i < a->reference.prompts[p].ids.n; i++, row++) {
            const struct difference *d = &a->rows[row];
            if (d->want_best == d->got_best || n_shown == MAX_MISSES_SHOWN)
                continue;
            phi_buf_printf(&out->buf,
                           "prompt %zu position %zu: best token %" PRId32 ", the reference has "
                           "%" PRId32 ", which leads there by %.2e\n",
                           p, i, d->got_best, d->want_best, d->margin);
            n_shown++;
        }
    if (n_missed > n_shown)
        phi_buf_printf(&out->buf, "and %zu more\n", n_missed - n_shown);
}

/* A line for each layer: what its parts add, and the stream behind it. */
static void print_layers(const struct locate *l, struct cli_out *out)
{
    phi_buf_printf(&out->buf, "relative difference of each layer's tensors\n%-6s %9s %9s %9s\n",
                   "layer", "attention", "mlp", "sum");
    phi_buf_printf(&out->buf, "%-6s %9s %9s %9.1e\n", "embed", "", "", locate_difference(l, 0));
    for (int i = 0; i < l->n_layers; i++) {
        phi_buf_printf(&out->buf, "%-6d", i);
        for (int part = 1; part <= 3; part++) {
            if (l->stages[3 * i + part].n_rows > 0)
                phi_buf_printf(&out->buf, " %9.1e", locate_difference(l, 3 * i + part));
            else
                phi_buf_printf(&out->buf, " %9s", "-");
        }
        phi_buf_printf(&out->buf, "\n");
    }
    phi_buf_printf(&out->buf, "%-6s %9s %9s %9.1e\n\n", "logits", "", "",
                   locate_difference(l, locate_n_stages(l) - 1));
}

void accuracy_print_table(const struct accuracy *a, struct cli_out *out)
{
    char verdict[256], number[24], held[64];
    const struct reference *r = &a->reference;
    phi_buf_printf(&out->buf, "model      %s, %s\nreference  %s", a->model, held_as(a, held),
                   r->path);
    if (r->about.n > 0)
        phi_buf_printf(&out->buf, ": %.*s", (int)r->about.n, r->about.data);
    phi_buf_printf(&out->buf, "\n\n%-6s %9s %8s %8s %12s %9s %9s %9s %9s\n", "prompt", "positions",
                   "top-1 %", "top-5 %", "min cosine", "max KL", "mean KL", "max diff",
                   "mean diff");
    for (size_t i = 0; i < r->n_prompts; i++) {
        snprintf(number, sizeof number, "%zu", i);
        print_sum(out, number, &a->prompts[i]);
    }
    print_sum(out, "all", &a->total);
    phi_buf_printf(&out->buf, "\n");
    print_misses(a, out);
    if (a->locate)
        print_layers(a->locate, out);
    if (accuracy_where(a, verdict))
        phi_buf_printf(&out->buf, "%s\n", verdict);
    accuracy_verdict(a, verdict);
    phi_buf_printf(&out->buf, "%s: %s\n", accuracy_passes(a) ? "PASS" : "FAIL", verdict);
}

/* ---------------------------------------------------------------- JSON */

static json_t *sum_json(const struct difference_sum *s)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "n_positions",
                     (json_int_t)s->n_rows, "top1_percent", difference_top1(s),
                     "top5_overlap_percent", difference_top5(s), "min_cosine", s->least_cosine,
                     "max_kl", s->largest_kl, "mean_kl", difference_mean_kl(s), "max_difference",
                     s->largest, "mean_difference", difference_mean(s));
}

static json_t *row_json(const struct difference *d)
{
    return json_pack("{s:b, s:i, s:i, s:f, s:i, s:f, s:f, s:f, s:f}", "top1",
                     d->want_best == d->got_best, "best", (int)d->got_best, "reference_best",
                     (int)d->want_best, "reference_margin", d->margin, "top5_overlap", d->n_common,
                     "cosine", d->cosine, "kl", d->kl, "max_difference", d->largest,
                     "mean_difference", d->mean);
}

static json_t *prompts_json(const struct accuracy *a)
{
    json_t *prompts = json_array();
    const struct difference *row = a->rows;
    for (size_t p = 0; p < a->reference.n_prompts; p++) {
        const struct reference_prompt *prompt = &a->reference.prompts[p];
        json_t *object = sum_json(&a->prompts[p]), *positions = json_array();
        for (size_t i = 0; i < prompt->ids.n; i++)
            json_array_append_new(positions, row_json(row++));
        if (prompt->text.n > 0) /* left out when it is not UTF-8 */
            json_object_set_new(object, "text", json_stringn(prompt->text.data, prompt->text.n));
        json_object_set_new(object, "positions", positions);
        json_array_append_new(prompts, object);
    }
    return prompts;
}

static json_t *locate_json(const struct accuracy *a)
{
    char name[48];
    const struct locate *l = a->locate;
    if (!l)
        return json_null();
    int first = locate_first(l);
    json_t *stages = json_array();
    for (int i = 0; i < locate_n_stages(l); i++)
        if (l->stages[i].n_rows > 0)
            json_array_append_new(stages, json_pack("{s:s, s:f}", "stage", locate_name(l, i, name),
                                                    "difference", locate_difference(l, i)));
    return json_pack("{s:f, s:o, s:o}", "limit", l->limit, "first",
                     first < 0 ? json_null() : json_string(locate_name(l, first, name)), "stages",
                     stages);
}

void accuracy_print_json(const struct accuracy *a, struct cli_out *out)
{
    json_t *object = json_pack(
        "{s:b, s:s, s:s, s:s, s:s, s:{s:f, s:f, s:f}, s:o, s:o, s:o}", "pass", accuracy_passes(a),
        "model", a->model, "dtype", phi_dtype_name(a->info.dtype), "quantization",
        phi_quantization_name(a->info.quantization), "reference", a->reference.path, "limits",
        "top1_percent", a->limits.top1, "cosine", a->limits.cosine, "kl", a->limits.kl, "total",
        sum_json(&a->total), "locate", locate_json(a), "prompts", prompts_json(a));
    cli_out_json(out, object, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
}

/* ---------------------------------------------------------------- the page */

/* Which prompt a row of the plot belongs to. */
struct place {
    size_t prompt, position;
};

static struct place place_of(const struct accuracy *a, size_t row)
{
    struct place at = {0, row};
    while (at.position >= a->reference.prompts[at.prompt].ids.n)
        at.position -= a->reference.prompts[at.prompt++].ids.n;
    return at;
}

static double kl_at(const void *context, size_t i)
{
    return ((const struct accuracy *)context)->rows[i].kl;
}

static double largest_at(const void *context, size_t i)
{
    return ((const struct accuracy *)context)->rows[i].largest;
}

static bool is_missed(const void *context, size_t i)
{
    const struct accuracy *a = context;
    const struct difference *d = &a->rows[i];
    return d->want_best != d->got_best || d->kl > a->limits.kl || d->cosine < a->limits.cosine;
}

static bool starts_prompt(const void *context, size_t i, struct phi_buf *name)
{
    struct place at = place_of(context, i);
    phi_buf_printf(name, "prompt %zu", at.prompt);
    return at.position == 0;
}

static void tell_row(const void *context, size_t i, struct phi_buf *out)
{
    const struct accuracy *a = context;
    const struct difference *d = &a->rows[i];
    struct place at = place_of(a, i);
    phi_buf_printf(out,
                   "prompt %zu, position %zu, token %" PRId32 "\nKL %.2e, cosine %.9f\nlargest "
                   "difference %.2e, mean %.2e\nbest token %" PRId32 ", reference %" PRId32
                   "\n%d of the best five in common",
                   at.prompt, at.position, a->reference.prompts[at.prompt].ids.data[at.position],
                   d->kl, d->cosine, d->largest, d->mean, d->got_best, d->want_best, d->n_common);
}

static void append_sum_row(struct phi_buf *out, const char *name, struct phi_str text,
                           const struct difference_sum *s, const struct accuracy_limits *limits)
{
    static const char *const marks[] = {"", " class=\"bad\""};
    phi_buf_printf(out, "<tr><td>%s</td><td class=\"text\">", name);
    page_text(out, text);
    phi_buf_printf(out,
                   "</td><td>%zu</td><td%s>%.2f</td><td>%.2f</td><td%s>%.8f</td><td%s>%.2e</td>"
                   "<td>%.2e</td><td>%.2e</td><td>%.2e</td></tr>\n",
                   s->n_rows, marks[difference_top1(s) < limits->top1], difference_top1(s),
                   difference_top5(s), marks[s->least_cosine < limits->cosine], s->least_cosine,
                   marks[s->largest_kl > limits->kl], s->largest_kl, difference_mean_kl(s),
                   s->largest, difference_mean(s));
}

static void append_table(const struct accuracy *a, struct phi_buf *out)
{
    char number[24];
    phi_buf_append_c(out,
                     "<h2>Each prompt</h2>\n<div class=\"wide\"><table>\n<tr><th></th><th "
                     "class=\"text\">prompt</th>"
                     "<th>positions</th><th>top-1 %</th><th>top-5 %</th><th>min cosine</th>"
                     "<th>max KL</th><th>mean KL</th><th>max diff</th><th>mean diff</th></tr>\n");
    for (size_t i = 0; i < a->reference.n_prompts; i++) {
        snprintf(number, sizeof number, "%zu", i);
        append_sum_row(out, number, a->reference.prompts[i].text, &a->prompts[i], &a->limits);
    }
    append_sum_row(out, "", PHI_STR("all"), &a->total, &a->limits);
    phi_buf_append_c(out,
                     "</table></div>\n<p class=\"note\">Top-1: positions whose best token is the "
                     "reference's. Top-5: how many of the five best are the reference's. KL: "
                     "of the two distributions, in nats. Diff: of the logits.</p>\n");
}

static void append_source(const struct accuracy *a, struct phi_buf *out)
{
    char held[64];
    phi_buf_append_c(out, "<p>");
    page_text(out, phi_str_from(a->model));
    phi_buf_printf(out, ": %s, %d layers, run as %s, kernels for %s.<br>Reference: ",
                   a->info.architecture, a->info.n_layers, held_as(a, held), a->info.isa);
    page_text(out, phi_str_from(a->reference.path));
    phi_buf_append_c(out, a->reference.about.n > 0 ? ": " : "");
    page_text(out, a->reference.about);
    phi_buf_append_c(out, ".</p>\n");
}

static double layer_at(const void *context, size_t i)
{
    return locate_difference(context, (int)i);
}

static bool is_beyond(const void *context, size_t i)
{
    const struct locate *l = context;
    return locate_difference(l, (int)i) > l->limit;
}

static bool starts_layer(const void *context, size_t i, struct phi_buf *name)
{
    const struct locate *l = context;
    if (i > 0 && (int)i < locate_n_stages(l) - 1)
        phi_buf_printf(name, "%zu", (i - 1) / 3);
    else
        phi_buf_append_c(name, i == 0 ? "embed" : "logits");
    return i == 0 || i % 3 == 1;
}

static void tell_layer(const void *context, size_t i, struct phi_buf *out)
{
    char name[48];
    phi_buf_printf(out, "%s\nrelative difference %.2e", locate_name(context, (int)i, name),
                   locate_difference(context, (int)i));
}

static void append_layers(const struct accuracy *a, struct phi_buf *out)
{
    char where[256];
    if (!a->locate)
        return;
    struct page_plot plot = {
        .title = "Relative difference of what each layer gives",
        .note = "Attention, MLP and sum of each layer, between the embeddings and the logits. "
                "Dashed: the limit.",
        .n = (size_t)locate_n_stages(a->locate),
        .context = a->locate,
        .value = layer_at,
        .is_bad = is_beyond,
        .tell = tell_layer,
        .starts_group = starts_layer,
        .limit = a->locate->limit,
    };
    page_append_plot(out, &plot);
    if (accuracy_where(a, where))
        phi_buf_printf(out, "<p>It <mark>%s</mark>.</p>\n", where);
    else
        phi_buf_append_c(out, "<p>No layer leaves the reference.</p>\n");
}

enum phi_status accuracy_write_page(const struct accuracy *a, const char *path,
                                    struct phi_error *err)
{
    char verdict[256];
    struct phi_buf page = {0};
    struct page_plot plot = {
        .title = "KL divergence at each position",
        .note = "A bar for each position of the prompts. Red: another best token, or a limit is "
                "missed. Dashed: the limit. The pointer over a bar tells more.",
        .n = a->reference.n_positions,
        .context = (void *)(uintptr_t)a,
        .value = kl_at,
        .is_bad = is_missed,
        .tell = tell_row,
        .starts_group = starts_prompt,
        .limit = a->limits.kl,
    };
    accuracy_verdict(a, verdict);
    page_begin(&page, "Accuracy against a reference", accuracy_passes(a), verdict);
    append_source(a, &page);
    append_table(a, &page);
    page_append_plot(&page, &plot);
    plot.title = "Largest difference of a logit at each position";
    plot.note = "Bars as above.";
    plot.value = largest_at;
    plot.limit = 0;
    page_append_plot(&page, &plot);
    append_layers(a, &page);
    page_end(&page);
    enum phi_status status = page_write(path, &page, err);
    phi_buf_deinit(&page);
    return status;
}
