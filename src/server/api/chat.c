/* chat.c: POST /v1/chat/completions: the prompt is a conversation, answers are messages. */
#include "server/api/conversation.h"
#include "server/api/generation.h"
#include "server/api/handlers.h"
#include "formats/json.h"

/* ---------------------------------------------------------------- the prompt */

static enum phi_status check(struct phi_genjob *g, struct phi_refusal *r)
{
    return phi_conversation_check(&g->fields, r);
}

/* null: what generation_config.json says, else what the context leaves. */
static void read_max_tokens(struct phi_genjob *g)
{
    const struct phi_fields *f = &g->fields;
    struct phi_opt_int asked = f->max_tokens;
    g->max_tokens_field = "max_tokens";
    if (f->max_completion_tokens.given) {
        asked = f->max_completion_tokens;
        g->max_tokens_field = "max_completion_tokens";
    }
    if (asked.given)
        g->max_tokens = asked.value;
    else if (g->server->options->has_max_tokens_default)
        g->default_max_tokens = g->server->sampling->max_tokens;
}

/* An answer that goes on with the last message has that one's role; echo then repeats its text. */
static void read_role(struct phi_genjob *g)
{
    const struct phi_fields *f = &g->fields;
    const json_t *last = json_array_get(f->messages, json_array_size(f->messages) - 1);
    const json_t *content = phi_json_field(last, "content");
    struct phi_str last_role = phi_json_str(phi_json_field(last, "role"));
    g->role =
        f->add_generation_prompt ? phi_str_from(g->server->options->response_role) : last_role;
    if (f->echo && json_is_string(content) && phi_str_eq(last_role, g->role))
        g->echo = phi_json_str(content);
}

static enum phi_status read_prompt(struct phi_genjob *g, struct phi_refusal *r)
{
    const struct phi_fields *f = &g->fields;
    PHI_TRY(phi_genjob_set_prompts(g, 1, r));
    struct phi_prompt *p = &g->prompts[0];
    PHI_TRY(phi_conversation_render(g->server, f, &p->text, &p->n_text, r));
    read_role(g);
    return phi_genjob_tokenize(g, p, (struct phi_text){p->text, p->n_text}, r);
}

/* ---------------------------------------------------------------- answers */

static void write_logprobs(struct phi_genjob *g, struct phi_choice *c, struct phi_out *o)
{
    int64_t n_top = g->fields.top_logprobs.given ? g->fields.top_logprobs.value : 0;
    struct phi_scored scored = phi_choice_scored(c);
    if (g->fields.chat_logprobs)
        phi_logprobs_write_content(o, "logprobs", &c->spelling, &scored,
                                   n_top < 0 ? SIZE_MAX : (size_t)n_top, g->tokens_as_ids);
    else
        phi_out_null(o, "logprobs");
}

static void write_token_ids(struct phi_genjob *g, const struct phi_choice *c, struct phi_out *o)
{
    if (g->fields.return_token_ids)
        phi_out_ids(o, "token_ids", c->tokens.data, c->tokens.n);
    else
        phi_out_null(o, "token_ids");
}

static void write_message(struct phi_genjob *g, const struct phi_choice *c, struct phi_out *o)
{
    struct phi_buf content = {0};
    phi_buf_append_str(&content, g->echo);
    phi_buf_append_str(&content, phi_buf_str(&c->text));
    o->buf->failed |= content.failed;
    phi_out_open(o, "message", '{');
    phi_out_text(o, "role", g->role);
    phi_out_text(o, "content", phi_buf_str(&content));
    phi_out_null(o, "refusal");
    phi_out_null(o, "annotations");
    phi_out_null(o, "audio");
    phi_out_null(o, "function_call");
    phi_out_open(o, "tool_calls", '[');
    phi_out_close(o, ']');
    phi_out_null(o, "reasoning");
    phi_out_close(o, '}');
    phi_buf_deinit(&content);
}

/* Of the prompt, beside the choices. */
static void write_prompt(struct phi_genjob *g, struct phi_out *o)
{
    const struct phi_prompt *p = &g->prompts[0];
    struct phi_scored scored = phi_prompt_scored(p);
    if (scored.rows)
        phi_logprobs_write_prompt(o, "prompt_logprobs", g->server->model, &scored);
    else
        phi_out_null(o, "prompt_logprobs");
    if (g->fields.return_token_ids)
        phi_out_ids(o, "prompt_token_ids", p->ids, p->n_ids);
    else
        phi_out_null(o, "prompt_token_ids");
    if (g->fields.return_prompt_text && p->text)
        phi_out_text(o, "prompt_text", (struct phi_str){p->text, p->n_text});
    else
        phi_out_null(o, "prompt_text");
}

static void write_answer(struct phi_genjob *g, struct phi_out *o)
{
    phi_out_open(o, NULL, '{');
    phi_genjob_write_head(g, o, "chat.completion");
    phi_out_open(o, "choices", '[');
    for (size_t i = 0; i < g->n_choices; i++) {
        struct phi_choice *c = &g->choices[i];
        phi_out_open(o, NULL, '{');
        phi_out_int(o, "index", (int64_t)i);
        write_message(g, c, o);
        write_logprobs(g, c, o);
        phi_genjob_write_finish(c, o, true);
        write_token_ids(g, c, o);
        phi_out_close(o, '}');
    }
    phi_out_close(o, ']');
    phi_out_null(o, "service_tier");
    phi_genjob_write_fingerprint(o);
    phi_genjob_write_usage(g, o);
    write_prompt(g, o);
    phi_out_null(o, "kv_transfer_params");
    phi_out_close(o, '}');
}

/* ---------------------------------------------------------------- chunks */

static void chunk_begin(struct phi_genjob *g, size_t i, struct phi_buf *out, struct phi_out *o)
{
    phi_event_begin(o, out);
    phi_genjob_write_head(g, o, "chat.completion.chunk");
    phi_out_open(o, "choices", '[');
    phi_out_open(o, NULL, '{');
    phi_out_int(o, "index", (int64_t)i);
    phi_out_open(o, "delta", '{');
}

/* Ends "choices"; more members of the chunk may follow. */
static void choices_end(struct phi_out *o)
{
    phi_out_close(o, '}');
    phi_out_close(o, ']');
}

static void chunk_end(struct phi_genjob *g, size_t i, struct phi_out *o)
{
    if (g->continuous_usage)
        phi_genjob_write_choice_usage(g, i, o);
    phi_event_end(o);
}

/* A chunk that no token belongs to. */
static void write_plain_chunk(struct phi_genjob *g, size_t i, struct phi_buf *out, bool with_role,
                              struct phi_str content)
{
    struct phi_out o;
    chunk_begin(g, i, out, &o);
    if (with_role)
        phi_out_text(&o, "role", g->role);
    phi_out_text(&o, "content", content);
    phi_out_close(&o, '}');
    phi_out_null(&o, "logprobs");
    phi_out_null(&o, "finish_reason");
    choices_end(&o);
    if (with_role && g->fields.return_token_ids)
        phi_out_ids(&o, "prompt_token_ids", g->prompts[0].ids, g->prompts[0].n_ids);
    if (with_role && g->fields.return_prompt_text && g->prompts[0].text)
        phi_out_text(&o, "prompt_text", (struct phi_str){g->prompts[0].text, g->prompts[0].n_text});
    chunk_end(g, i, &o);
}

/* The role goes out with the first token, not before: a client that takes the first event's time
 * then measures what it means to. */
static void write_chunks(struct phi_genjob *g, size_t i, struct phi_buf *out)
{
    struct phi_choice *c = &g->choices[i];
    struct phi_out o;
    if (!c->is_begun) {
        write_plain_chunk(g, i, out, true, PHI_STR(""));
        if (g->echo.n > 0)
            write_plain_chunk(g, i, out, false, g->echo);
    }
    bool tells_tokens = c->tokens.n > 0 && (c->n_logprobs > 0 || g->fields.return_token_ids);
    if (c->text.n == 0 && !tells_tokens && c->finish == PHI_FINISH_NONE)
        return;
    chunk_begin(g, i, out, &o);
    phi_out_text(&o, "content", phi_buf_str(&c->text));
    phi_out_close(&o, '}');
    write_logprobs(g, c, &o);
    phi_genjob_write_finish(c, &o, false);
    write_token_ids(g, c, &o);
    choices_end(&o);
    chunk_end(g, i, &o);
}

static bool has_opening(const struct phi_genjob *g)
{
    (void)g;
    return true;
}

/* ---------------------------------------------------------------- the request */

static const struct phi_genjob_form form = {
    .id_prefix = "chatcmpl-",
    .chunk_object = "chat.completion.chunk",
    .check = check,
    .has_opening = has_opening,
    .write_answer = write_answer,
    .write_chunks = write_chunks,
};

static enum phi_status run(struct phi_genjob *g, struct phi_exchange *x, struct phi_refusal *r)
{
    PHI_TRY(phi_genjob_read(g, x, &phi_chat_fields, r));
    read_max_tokens(g);
    PHI_TRY(read_prompt(g, r));
    PHI_TRY(phi_genjob_fit(g, r));
    return phi_genjob_start(g, x, r);
}

void phi_api_chat(struct phi_exchange *x)
{
    phi_genjob_handle(x, &form, run);
}
