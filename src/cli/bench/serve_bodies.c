/* serve_bodies.c: what `bench serve` sends: the prompts of its data set as requests; see
 * serve_bench.h. */
#include "cli/bench/serve_bench.h"
#include "base/alloc.h"
#include "formats/json.h"

static json_t *ids_json(const struct phi_ids *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->n && list; i++)
        if (json_array_append_new(list, json_integer(ids->data[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

/* The prompt as text: its own, or what its ids spell. NULL with *err. */
static json_t *text_json(const struct serve_bench *b, const struct bench_prompt *p,
                         struct phi_error *err)
{
    char *text = NULL;
    size_t n = 0;
    json_t *json = NULL;
    if (p->text)
        json = json_stringn(p->text, p->n_text);
    else if (phi_detokenize(b->tokenizer, p->ids.data, p->ids.n, true, &text, &n, err) == PHI_OK)
        json = json_stringn(text, n);
    phi_mem_free(text);
    return json;
}

static bool set_sampling(const struct serve_bench *b, json_t *body)
{
    const struct bench_sampling_flags *s = &b->flags->sampling;
    const struct {
        const char *flag, *field;
        double value;
    } reals[] = {
        {"temperature", "temperature", s->temperature},
        {"top-p", "top_p", s->top_p},
        {"min-p", "min_p", s->min_p},
        {"frequency-penalty", "frequency_penalty", s->frequency_penalty},
        {"presence-penalty", "presence_penalty", s->presence_penalty},
        {"repetition-penalty", "repetition_penalty", s->repetition_penalty},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (cli_given(b->args, reals[i].flag) &&
            !bench_json_set(body, reals[i].field, json_real(reals[i].value)))
            return false;
    return !cli_given(b->args, "top-k") || bench_json_set(body, "top_k", json_integer(s->top_k));
}

static bool set_prompt(const struct serve_bench *b, const struct bench_prompt *p, json_t *body,
                       struct phi_error *err)
{
    if (b->flags->serve.backend == BENCH_COMPLETIONS)
        return bench_json_set(body, "prompt", p->text ? text_json(b, p, err) : ids_json(&p->ids)) &&
               bench_json_set(body, "max_tokens", json_integer(p->output_len));
    json_t *text = text_json(b, p, err);
    return text &&
           bench_json_set(body, "messages",
                          json_pack("[{s:s, s:o}]", "role", "user", "content", text)) &&
           bench_json_set(body, "max_completion_tokens", json_integer(p->output_len));
}

static enum phi_status make_body(const struct serve_bench *b, const struct bench_prompt *p,
                                 struct phi_str *out, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    json_t *body = json_object();
    phi_fail(err, PHI_ERR_MEMORY, "no memory for a request"); /* unless something says better */
    bool good = bench_json_set(body, "model", json_stringn(b->model_id.data, b->model_id.n)) &&
                set_prompt(b, p, body, err) && bench_json_set(body, "stream", json_true()) &&
                bench_json_set(body, "stream_options", json_pack("{s:b}", "include_usage", 1)) &&
                (!f->ignore_eos || bench_json_set(body, "ignore_eos", json_true())) &&
                set_sampling(b, body) &&
                (!f->extra_body || json_object_update(body, f->extra_body) == 0);
    struct phi_buf text = {0};
    if (good)
        phi_json_dump(body, JSON_COMPACT, &text);
    json_decref(body);
    if (!good || text.failed) {
        phi_buf_deinit(&text);
        return err->code;
    }
    *out = phi_buf_str(&text);
    return PHI_OK;
}

enum phi_status serve_bench_make_requests(struct serve_bench *b, struct phi_error *err)
{
    const struct bench_serve_flags *f = &b->flags->serve;
    size_t n = b->dataset.n;
    b->requests = phi_calloc(n, sizeof *b->requests);
    b->answers = phi_calloc(n, sizeof *b->answers);
    if (!b->requests || !b->answers)
        return phi_fail_memory(err, "requests", n * sizeof *b->answers);
    for (size_t i = 0; i < n; i++) {
        PHI_TRY(make_body(b, &b->dataset.data[i], &b->requests[i].body, err));
        b->answers[i].n_prompt = b->dataset.data[i].ids.n;
    }
    bench_load_arrivals(b->requests, n, f->request_rate, f->burstiness, (uint64_t)f->seed);
    return PHI_OK;
}
