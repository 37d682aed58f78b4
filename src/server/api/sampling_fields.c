/* sampling_fields.c: from a request's fields to the engine's sampling parameters, and the checks
 * that concern more than one field (declared in generation.h). */
#include "server/api/generation.h"
#include "server/api/models.h"
#include "formats/json.h"

#include <errno.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- fields against each other */

static enum phi_status check_response_format(const json_t *format, struct phi_refusal *r)
{
    static const char *const later[] = {"json_object", "json_schema", "structural_tag"};
    struct phi_str type = {"", 0};
    if (!format)
        return PHI_OK;
    const json_t *value = phi_json_field(format, "type");
    if (json_is_string(value))
        type = phi_json_str(value);
    if (phi_str_eq_c(type, "text"))
        return PHI_OK;
    if (phi_str_eq_c(type, "json_schema") && !phi_json_field(format, "json_schema"))
        return phi_refuse(r, PHI_REFUSED_SHAPE, "response_format",
                          "When response_format type is 'json_schema', the 'json_schema' field "
                          "must be provided.");
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (phi_str_eq_c(type, later[i]))
            return phi_refuse(r, PHI_REFUSED_VALUE, "response_format",
                              "response_format of type '%s' is not supported by this server yet.",
                              later[i]);
    return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                      "response_format.type: expected 'text', 'json_object', 'json_schema' or "
                      "'structural_tag'");
}

static enum phi_status check_together(const struct phi_fields *f, struct phi_refusal *r)
{
    if (f->stream_options && !f->stream)
        return phi_refuse(r, PHI_REFUSED_SHAPE, "stream_options",
                          "Stream options can only be defined when `stream=True`.");
    if (f->stream && f->prompt_logprobs.given && f->prompt_logprobs.value != 0)
        return phi_refuse(r, PHI_REFUSED_SHAPE, "prompt_logprobs",
                          "`prompt_logprobs` are not available when `stream=True`.");
    if (f->top_logprobs.given && f->top_logprobs.value != 0 && !f->chat_logprobs)
        return phi_refuse(r, PHI_REFUSED_SHAPE, "top_logprobs",
                          "when using `top_logprobs`, `logprobs` must be set to true.");
    if (f->truncation_side.data && !phi_str_eq_c(f->truncation_side, "left") &&
        !phi_str_eq_c(f->truncation_side, "right"))
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "truncation_side: expected 'left' or 'right'");
    return check_response_format(f->response_format, r);
}

/* ---------------------------------------------------------------- lists */

static void *allocate(struct phi_genjob *g, size_t n, size_t size)
{
    return phi_arena_alloc(&g->arena, n + 1, size); /* an empty list is not the same as none */
}

static enum phi_status read_texts(struct phi_genjob *g, const json_t *list,
                                  const struct phi_text **out, size_t *n_out, struct phi_refusal *r)
{
    if (!list)
        return PHI_OK;
    size_t n = json_is_string(list) ? 1 : json_array_size(list);
    struct phi_text *texts = allocate(g, n, sizeof *texts);
    if (!texts)
        return phi_refuse_memory(r);
    for (size_t i = 0; i < n; i++) {
        struct phi_str s = phi_json_str(json_is_string(list) ? list : json_array_get(list, i));
        texts[i] = (struct phi_text){s.data, s.n};
    }
    *out = texts;
    *n_out = n;
    return PHI_OK;
}

static enum phi_status read_ids(struct phi_genjob *g, const char *name, const json_t *list,
                                const int32_t **out, size_t *n_out, struct phi_refusal *r)
{
    if (!list)
        return PHI_OK;
    size_t n = json_array_size(list);
    int32_t *ids = allocate(g, n, sizeof *ids);
    if (!ids)
        return phi_refuse_memory(r);
    for (size_t i = 0; i < n; i++) {
        int64_t id;
        phi_field_integer(json_array_get(list, i), &id);
        if (id < INT32_MIN || id > INT32_MAX)
            return phi_refuse(r, PHI_REFUSED_VALUE, NULL, "%s: token id %lld is out of vocabulary.",
                              name, (long long)id);
        ids[i] = (int32_t)id;
    }
    *out = ids;
    *n_out = n;
    return PHI_OK;
}

static enum phi_status read_bias(struct phi_genjob *g, struct phi_refusal *r)
{
    json_t *object = (json_t *)g->fields.logit_bias; /* jansson's iterators take no const */
    if (!object)
        return PHI_OK;
    size_t n = 0;
    struct phi_logit_bias *bias = allocate(g, json_object_size(object), sizeof *bias);
    if (!bias)
        return phi_refuse_memory(r);
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);
        char *end;
        errno = 0;
        long id = strtol(key, &end, 10);
        if (end == key || *end || errno || id < 0 || id > INT32_MAX)
            return phi_refuse(r, PHI_REFUSED_VALUE, NULL,
                              "logit_bias: '%s' is not a token id of the vocabulary.", key);
        bias[n].token = (int32_t)id;
        bias[n++].bias = (float)json_number_value(json_object_iter_value(it));
    }
    g->sampling.logit_bias = bias;
    g->sampling.n_logit_bias = n;
    return PHI_OK;
}

/* ---------------------------------------------------------------- numbers */

static void set_real(double *to, struct phi_opt_real from)
{
    if (from.given)
        *to = from.value;
}

static void set_int(int *to, struct phi_opt_int from)
{
    if (from.given)
        *to = (int)from.value;
}

/* Alternatives of a token: -1 asks for the whole vocabulary; more than the server's limit is too
 * many. */
static enum phi_status set_logprobs(const struct phi_genjob *g, const char *name, int64_t asked,
                                    int *out, struct phi_refusal *r)
{
    struct phi_model_info info;
    phi_model_get_info(g->server->model, &info);
    int64_t most = g->server->options->max_logprobs;
    if (most < 0)
        most = info.vocab_size;
    if (asked < 0)
        asked = info.vocab_size;
    if (asked > most)
        return phi_refuse(r, PHI_REFUSED_VALUE, name,
                          "Requested %s of %lld, which is greater than max allowed: %lld "
                          "(parameter=%s, value=%lld)",
                          name, (long long)asked, (long long)most, name, (long long)asked);
    *out = (int)asked;
    return PHI_OK;
}

/* As in vLLM, echo in completions scores the prompt with the answer. */
static enum phi_status read_logprobs(struct phi_genjob *g, struct phi_refusal *r)
{
    const struct phi_fields *f = &g->fields;
    struct phi_opt_int answer = f->logprobs, prompt = f->prompt_logprobs;
    if (f->chat_logprobs)
        answer = (struct phi_opt_int){true, f->top_logprobs.given ? f->top_logprobs.value : 0};
    if (f->echo && !prompt.given && f->logprobs.given)
        prompt = answer;
    if (answer.given)
        PHI_TRY(set_logprobs(g, "logprobs", answer.value, &g->sampling.logprobs, r));
    if (prompt.given)
        PHI_TRY(set_logprobs(g, "prompt_logprobs", prompt.value, &g->sampling.prompt_logprobs, r));
    return PHI_OK;
}

static enum phi_status read_sampling(struct phi_genjob *g, struct phi_refusal *r)
{
    const struct phi_fields *f = &g->fields;
    struct phi_sampling *s = &g->sampling;
    *s = *g->server->sampling;
    set_real(&s->temperature, f->temperature);
    set_real(&s->top_p, f->top_p);
    set_real(&s->min_p, f->min_p);
    set_real(&s->repetition_penalty, f->repetition_penalty);
    set_real(&s->presence_penalty, f->presence_penalty);
    set_real(&s->frequency_penalty, f->frequency_penalty);
    set_int(&s->top_k, f->top_k);
    set_int(&s->n, f->n);
    set_int(&s->min_tokens, f->min_tokens);
    s->has_seed = f->seed.given;
    s->seed = f->seed.value;
    s->include_stop_str_in_output = f->include_stop_str_in_output;
    s->ignore_eos = f->ignore_eos;
    s->skip_special_tokens = f->skip_special_tokens;
    PHI_TRY(read_texts(g, f->stop, &s->stop, &s->n_stop, r));
    PHI_TRY(read_texts(g, f->bad_words, &s->bad_words, &s->n_bad_words, r));
    PHI_TRY(read_ids(g, "stop_token_ids", f->stop_token_ids, &s->stop_token_ids,
                     &s->n_stop_token_ids, r));
    PHI_TRY(read_ids(g, "allowed_token_ids", f->allowed_token_ids, &s->allowed_token_ids,
                     &s->n_allowed_token_ids, r));
    PHI_TRY(read_bias(g, r));
    return read_logprobs(g, r);
}

/* ---------------------------------------------------------------- all together */

/* The header wins over the field. */
static enum phi_status set_id(struct phi_genjob *g, const struct phi_exchange *x,
                              struct phi_refusal *r)
{
    struct phi_str id = phi_str_from(x->request_id);
    struct phi_str prefix = phi_str_from(g->form->id_prefix);
    if (g->fields.request_id.data && phi_exchange_header(x, "X-Request-Id").n == 0)
        id = g->fields.request_id;
    char *joined = phi_arena_alloc(&g->arena, prefix.n + id.n + 1, 1);
    if (!joined)
        return phi_refuse_memory(r);
    memcpy(joined, prefix.data, prefix.n);
    memcpy(joined + prefix.n, id.data, id.n);
    g->id = (struct phi_str){joined, prefix.n + id.n};
    return PHI_OK;
}

enum phi_status phi_genjob_read(struct phi_genjob *g, struct phi_exchange *x,
                                const struct phi_field_set *set, struct phi_refusal *r)
{
    struct phi_fields *f = &g->fields;
    const struct phi_server_options *o = g->server->options;
    PHI_TRY(phi_fields_parse(x, f, r));
    PHI_TRY(phi_fields_read(f, f->body, set, r));
    PHI_TRY(phi_fields_read(f, f->stream_options, &phi_stream_option_fields, r));
    PHI_TRY(check_together(f, r));
    PHI_TRY(g->form->check(g, r));
    PHI_TRY(phi_model_name_check(g->server, f->model, r));
    PHI_TRY(phi_fields_check(f->body, set, r));
    PHI_TRY(set_id(g, x, r));
    g->include_usage = f->stream && (f->include_usage || o->force_include_usage);
    g->continuous_usage = g->include_usage && f->continuous_usage_stats;
    g->tokens_as_ids = f->return_tokens_as_token_ids || o->return_tokens_as_token_ids;
    return read_sampling(g, r);
}
