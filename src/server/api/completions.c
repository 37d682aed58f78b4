/* completions.c: POST /v1/completions: prompts are texts or token ids, answers are texts. */
#include "base/alloc.h"
#include "server/api/generation.h"
#include "server/api/handlers.h"

/* ---------------------------------------------------------------- prompts */

static enum phi_status check(struct phi_genjob *g, struct phi_refusal *r)
{
    const json_t *prompt = g->fields.prompt;
    if (json_is_string(prompt) && json_string_length(prompt) == 0)
        return phi_refuse(r, PHI_REFUSED_SHAPE, NULL,
                          "Either prompt or prompt_embeds must be provided and non-empty.");
    return PHI_OK;
}

static enum phi_status read_max_tokens(struct phi_genjob *g, struct phi_refusal *r)
{
    const struct phi_fields *f = &g->fields;
    g->max_tokens = f->max_tokens.given ? f->max_tokens.value : 16;
    g->max_tokens_field = "max_tokens";
    if (g->max_tokens == 0 && !f->echo)
        return phi_refuse(r, PHI_REFUSED_VALUE, "max_tokens",
                          "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)");
    if (g->max_tokens == 0) {
        g->only_prompt = true;
        g->max_tokens = 1;
    }
    return PHI_OK;
}

static enum phi_status read_ids(struct phi_prompt *p, const json_t *list, struct phi_refusal *r)
{
    struct phi_ids ids = {0};
    enum phi_status status = PHI_OK;
    size_t n = json_array_size(list);
    phi_ids_reserve(&ids, n);
    for (size_t i = 0; i < n && status == PHI_OK; i++) {
        int64_t id;
        phi_field_integer(json_array_get(list, i), &id);
        if (id > INT32_MAX)
            status = phi_refuse(r, PHI_REFUSED_VALUE, NULL, "Token id %lld is out of vocabulary",
                                (long long)id);
        phi_ids_append(&ids, (int32_t)id);
    }
    if (status == PHI_OK && ids.failed)
        status = phi_refuse_memory(r);
    p->ids = ids.data;
    p->n_ids = ids.n;
    return status;
}

static enum phi_status read_text(struct phi_genjob *g, struct phi_prompt *p, const json_t *string,
                                 struct phi_refusal *r)
{
    struct phi_text text = {json_string_value(string), json_string_length(string)};
    if (g->fields.echo) {
        p->text = phi_alloc(text.n + 1, 1);
        if (!p->text)
            return phi_refuse_memory(r);
        memcpy(p->text, text.data, text.n + 1);
        p->n_text = text.n;
    }
    return phi_genjob_tokenize(g, p, text, r);
}

static enum phi_status read_prompts(struct phi_genjob *g, struct phi_refusal *r)
{
    const json_t *prompt = g->fields.prompt;
    const json_t *first = json_is_array(prompt) ? json_array_get(prompt, 0) : NULL;
    bool is_list = json_is_string(first) || json_is_array(first);
    if (json_is_array(prompt) && !first)
        return phi_refuse(r, PHI_REFUSED_VALUE, NULL, "You must pass at least one prompt");
    PHI_TRY(phi_genjob_set_prompts(g, is_list ? json_array_size(prompt) : 1, r));
    for (size_t i = 0; i < g->n_prompts; i++) {
        const json_t *one = is_list ? json_array_get(prompt, i) : prompt;
        if (json_is_string(one))
            PHI_TRY(read_text(g, &g->prompts[i], one, r));
        else
            PHI_TRY(read_ids(&g->prompts[i], one, r));
    }
    return PHI_OK;
}

/* Echo shows a text as it was given, and token ids, or what truncation left of a text, as theirs.
 */
static enum phi_status read_echo(struct phi_genjob *g, struct phi_refusal *r)
{
    for (size_t i = 0; i < g->n_prompts && g->fields.echo; i++) {
        struct phi_prompt *p = &g->prompts[i];
        if (p->text && !p->is_cut)
            continue;
        phi_mem_free(p->text);
        enum phi_status status = phi_detokenize(g->server->model, p->ids, p->n_ids, false, &p->text,
                                                &p->n_text, &r->error);
        if (status != PHI_OK)
            return phi_refuse_status(r, NULL);
    }
    return PHI_OK;
}

/* ---------------------------------------------------------------- answers */

static const struct phi_prompt *prompt_of(const struct phi_genjob *g, size_t i_choice)
{
    return &g->prompts[i_choice / (size_t)g->sampling.n];
}

/* Whether the prompt belongs to what is written now. */
static bool shows_prompt(const struct phi_genjob *g, const struct phi_choice *c)
{
    return g->fields.echo && !c->is_begun;
}

static void write_text(struct phi_genjob *g, size_t i, struct phi_out *o)
{
    struct phi_choice *c = &g->choices[i];
    const struct phi_prompt *p = prompt_of(g, i);
    if (!shows_prompt(g, c)) {
        phi_out_text(o, "text", phi_buf_str(&c->text));
        return;
    }
    struct phi_buf joined = {0};
    phi_buf_append(&joined, p->text, p->n_text);
    phi_buf_append_str(&joined, phi_buf_str(&c->text));
    o->buf->failed |= joined.failed;
    phi_out_text(o, "text", phi_buf_str(&joined));
    phi_buf_deinit(&joined);
}

static void write_logprobs(struct phi_genjob *g, size_t i, struct phi_out *o)
{
    struct phi_choice *c = &g->choices[i];
    struct phi_scored parts[2];
    size_t n_parts = 0;
    if (!g->fields.logprobs.given) {
        phi_out_null(o, "logprobs");
        return;
    }
    if (shows_prompt(g, c))
        parts[n_parts++] = phi_prompt_scored(prompt_of(g, i));
    parts[n_parts++] = phi_choice_scored(c);
    phi_logprobs_write_lists(o, "logprobs", &c->spelling, parts, n_parts, g->tokens_as_ids);
}

static void write_token_ids(struct phi_genjob *g, size_t i, struct phi_out *o)
{
    const struct phi_choice *c = &g->choices[i];
    if (!g->fields.return_token_ids) {
        phi_out_null(o, "token_ids");
        phi_out_null(o, "prompt_token_ids");
        return;
    }
    phi_out_ids(o, "token_ids", c->tokens.data, c->tokens.n);
    if (c->is_begun)
        phi_out_null(o, "prompt_token_ids");
    else
        phi_out_ids(o, "prompt_token_ids", prompt_of(g, i)->ids, prompt_of(g, i)->n_ids);
}

static void write_choice(struct phi_genjob *g, size_t i, struct phi_out *o)
{
    phi_out_open(o, NULL, '{');
    phi_out_int(o, "index", (int64_t)i);
    write_text(g, i, o);
    write_logprobs(g, i, o);
    phi_genjob_write_finish(&g->choices[i], o, true);
    write_token_ids(g, i, o);
    if (!g->fields.stream) {
        struct phi_scored scored = phi_prompt_scored(prompt_of(g, i));
        if (scored.rows)
            phi_logprobs_write_prompt(o, "prompt_logprobs", g->server->model, &scored);
        else
            phi_out_null(o, "prompt_logprobs");
    }
    phi_out_close(o, '}');
}

static void write_answer(struct phi_genjob *g, struct phi_out *o)
{
    phi_out_open(o, NULL, '{');
    phi_genjob_write_head(g, o, "text_completion");
    phi_out_open(o, "choices", '[');
    for (size_t i = 0; i < g->n_choices; i++)
        write_choice(g, i, o);
    phi_out_close(o, ']');
    phi_out_null(o, "service_tier");
    phi_genjob_write_fingerprint(o);
    phi_genjob_write_usage(g, o);
    phi_out_null(o, "kv_transfer_params");
    phi_out_close(o, '}');
}

static void write_chunks(struct phi_genjob *g, size_t i, struct phi_buf *out)
{
    struct phi_out o;
    phi_event_begin(&o, out);
    phi_genjob_write_head(g, &o, "text_completion");
    phi_out_open(&o, "choices", '[');
    write_choice(g, i, &o);
    phi_out_close(&o, ']');
    if (g->continuous_usage)
        phi_genjob_write_choice_usage(g, i, &o);
    phi_event_end(&o);
}

static bool has_opening(const struct phi_genjob *g)
{
    return g->fields.echo;
}

/* ---------------------------------------------------------------- the request */

static const struct phi_genjob_form form = {
    .id_prefix = "cmpl-",
    .chunk_object = "text_completion",
    .check = check,
    .has_opening = has_opening,
    .write_answer = write_answer,
    .write_chunks = write_chunks,
};

static enum phi_status run(struct phi_genjob *g, struct phi_exchange *x, struct phi_refusal *r)
{
    PHI_TRY(phi_genjob_read(g, x, &phi_completion_fields, r));
    PHI_TRY(read_max_tokens(g, r));
    PHI_TRY(read_prompts(g, r));
    PHI_TRY(phi_genjob_fit(g, r));
    PHI_TRY(read_echo(g, r));
    return phi_genjob_start(g, x, r);
}

void phi_api_completions(struct phi_exchange *x)
{
    phi_genjob_handle(x, &form, run);
}
