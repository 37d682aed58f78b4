/* generation_out.c: what both endpoints write alike (declared in generation.h). */
#include "server/api/generation.h"

void phi_event_begin(struct phi_out *o, struct phi_buf *out)
{
    *o = (struct phi_out){.buf = out};
    phi_buf_append_c(out, "data: ");
    phi_out_open(o, NULL, '{');
}

void phi_event_end(struct phi_out *o)
{
    phi_out_close(o, '}');
    phi_buf_append_c(o->buf, "\n\n");
}

void phi_genjob_write_head(const struct phi_genjob *g, struct phi_out *o, const char *object)
{
    phi_out_text(o, "id", g->id);
    phi_out_c(o, "object", object);
    phi_out_int(o, "created", g->created_s);
    phi_out_c(o, "model", phi_server_model_name(g->server));
}

static void write_usage(struct phi_out *o, size_t n_prompt, size_t n_answer, const size_t *n_cached)
{
    phi_out_open(o, "usage", '{');
    phi_out_int(o, "prompt_tokens", (int64_t)n_prompt);
    phi_out_int(o, "total_tokens", (int64_t)(n_prompt + n_answer));
    phi_out_int(o, "completion_tokens", (int64_t)n_answer);
    if (n_cached) {
        phi_out_open(o, "prompt_tokens_details", '{');
        phi_out_int(o, "cached_tokens", (int64_t)*n_cached);
        phi_out_close(o, '}');
    } else {
        phi_out_null(o, "prompt_tokens_details");
    }
    phi_out_close(o, '}');
}

/* A prompt counts once, whatever its n. */
void phi_genjob_write_usage(const struct phi_genjob *g, struct phi_out *o)
{
    size_t n_prompt = 0, n_answer = 0, n_cached = 0;
    for (size_t i = 0; i < g->n_prompts; i++) {
        n_prompt += g->prompts[i].n_ids;
        n_cached += g->prompts[i].n_cached;
    }
    for (size_t i = 0; i < g->n_choices; i++)
        n_answer += g->choices[i].n_output;
    write_usage(o, n_prompt, n_answer,
                g->server->options->prompt_tokens_details ? &n_cached : NULL);
}

void phi_genjob_write_choice_usage(const struct phi_genjob *g, size_t i, struct phi_out *o)
{
    const struct phi_prompt *p = &g->prompts[i / (size_t)g->sampling.n];
    write_usage(o, p->n_ids, g->choices[i].n_output, NULL);
}

void phi_genjob_write_fingerprint(struct phi_out *o)
{
    phi_out_c(o, "system_fingerprint", "phidelity-" PHI_VERSION);
}

const char *phi_finish_name(enum phi_finish finish)
{
    static const char *const names[] = {
        [PHI_FINISH_NONE] = NULL,     [PHI_FINISH_STOP] = "stop",   [PHI_FINISH_LENGTH] = "length",
        [PHI_FINISH_ABORT] = "abort", [PHI_FINISH_ERROR] = "error",
    };
    return names[finish];
}

void phi_genjob_write_finish(const struct phi_choice *c, struct phi_out *o, bool always)
{
    phi_out_c(o, "finish_reason", phi_finish_name(c->finish));
    if (c->finish == PHI_FINISH_NONE && !always)
        return;
    if (c->stop_string.n > 0)
        phi_out_text(o, "stop_reason", phi_buf_str(&c->stop_string));
    else if (c->stop_token >= 0)
        phi_out_int(o, "stop_reason", c->stop_token);
    else
        phi_out_null(o, "stop_reason");
}

struct phi_scored phi_choice_scored(const struct phi_choice *c)
{
    return (struct phi_scored){
        .tokens = c->tokens.data,
        .n = c->n_logprobs > 0 ? c->tokens.n : 0,
        .rows = (const struct phi_logprob *)(const void *)c->logprobs.data,
        .n_logprobs = c->n_logprobs,
    };
}

struct phi_scored phi_prompt_scored(const struct phi_prompt *p)
{
    struct phi_scored scored = {.tokens = p->ids, .n = p->n_ids};
    scored.rows = phi_request_prompt_logprobs(p->request, &scored.n_logprobs);
    if (!scored.rows)
        scored.n = 0;
    return scored;
}
