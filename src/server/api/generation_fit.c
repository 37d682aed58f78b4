/* generation_fit.c: prompts and the context's length: what is cut, and what is refused as too long
 * (declared in generation.h). */
#include "server/api/generation.h"

/* Tokens of a text up to this long are counted, and the error says how many there are. */
enum { CHEAP_TEXT_BYTES = 1 << 16 };

/* Tokens that a prompt may have beside the answer. */
static int64_t room_for_prompt(const struct phi_genjob *g, int64_t max_model_len)
{
    int64_t n_answer = g->max_tokens > 0 ? g->max_tokens : 1;
    return max_model_len - n_answer;
}

/* Bytes that are not blanks: of blanks, an added token may swallow any number. */
static size_t count_solid_bytes(struct phi_text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += (unsigned char)text.data[i] > ' ';
    return n;
}

static enum phi_status check_text(const struct phi_genjob *g, struct phi_text text,
                                  struct phi_refusal *r)
{
    struct phi_model_info model;
    struct phi_engine_info engine;
    phi_model_get_info(g->server->model, &model);
    phi_engine_get_info(g->server->engine, &engine);
    int64_t room = room_for_prompt(g, engine.max_model_len);
    if (room < 1 || g->fields.truncate_prompt_tokens.given || model.longest_token_bytes == 0)
        return PHI_OK;
    size_t most = (size_t)room * (size_t)model.longest_token_bytes;
    if (text.n <= CHEAP_TEXT_BYTES || text.n <= most || count_solid_bytes(text) <= most)
        return PHI_OK;
    return phi_refuse(r, PHI_REFUSED_VALUE, "input_text",
                      "This model's maximum context length is %d tokens. However, you requested "
                      "%lld output tokens and your prompt contains %zu bytes (more than %zu bytes, "
                      "which is the upper bound for %lld input tokens). Please reduce the length "
                      "of the input prompt or the number of requested output tokens. "
                      "(parameter=input_text, value=%zu)",
                      engine.max_model_len, (long long)g->max_tokens, text.n, most, (long long)room,
                      text.n);
}

enum phi_status phi_genjob_tokenize(struct phi_genjob *g, struct phi_prompt *p,
                                    struct phi_text text, struct phi_refusal *r)
{
    PHI_TRY(check_text(g, text, r));
    enum phi_status status = phi_tokenize(g->server->model, text, g->fields.add_special_tokens,
                                          &p->ids, &p->n_ids, &r->error);
    return status == PHI_OK ? PHI_OK : phi_refuse_status(r, NULL);
}

static enum phi_status truncate_prompts(struct phi_genjob *g, int64_t max_model_len,
                                        struct phi_refusal *r)
{
    const struct phi_fields *f = &g->fields;
    int64_t room = room_for_prompt(g, max_model_len), limit = f->truncate_prompt_tokens.value;
    struct phi_model_info info;
    if (!f->truncate_prompt_tokens.given)
        return PHI_OK;
    if (limit < 0)
        limit = room;
    if (limit > room)
        return phi_refuse(r, PHI_REFUSED_VALUE, "truncate_prompt_tokens",
                          "truncate_prompt_tokens must not exceed max_model_len - max_tokens = "
                          "%lld, got %lld. (parameter=truncate_prompt_tokens, value=%lld)",
                          (long long)room, (long long)limit, (long long)limit);
    phi_model_get_info(g->server->model, &info);
    bool keeps_end =
        f->truncation_side.data ? phi_str_eq_c(f->truncation_side, "left") : info.truncates_left;
    for (size_t i = 0; i < g->n_prompts; i++) {
        struct phi_prompt *p = &g->prompts[i];
        size_t n = (size_t)limit;
        if (p->n_ids <= n)
            continue;
        if (keeps_end)
            memmove(p->ids, p->ids + p->n_ids - n, n * sizeof *p->ids);
        p->n_ids = n;
        p->is_cut = true;
    }
    return PHI_OK;
}

/* The engine would refuse them, too, but perhaps only when others of the job run. */
static enum phi_status check_ids(const struct phi_prompt *p, int vocab_size, struct phi_refusal *r)
{
    for (size_t i = 0; i < p->n_ids; i++)
        if (p->ids[i] < 0 || p->ids[i] >= vocab_size)
            return phi_refuse(
                r, PHI_REFUSED_VALUE, NULL,
                "Token id %d is out of vocabulary (index %zu of the prompt; size %d).",
                (int)p->ids[i], i, vocab_size);
    return PHI_OK;
}

static enum phi_status check_length(const struct phi_genjob *g, const struct phi_prompt *p,
                                    int64_t max_model_len, struct phi_refusal *r)
{
    long long n = (long long)p->n_ids, limit = (long long)max_model_len;
    long long n_answer = (long long)g->max_tokens;
    if (n == 0)
        return phi_refuse(r, PHI_REFUSED_VALUE, NULL, "The decoder prompt cannot be empty");
    if (n + n_answer > limit)
        return phi_refuse(r, PHI_REFUSED_VALUE, "input_tokens",
                          "This model's maximum context length is %lld tokens. However, you "
                          "requested %lld output tokens and your prompt contains %lld input "
                          "tokens, for a total of %lld tokens. Please reduce the length of the "
                          "input prompt or the number of requested output tokens. "
                          "(parameter=input_tokens, value=%lld)",
                          limit, n_answer, n, n + n_answer, n);
    if (n == limit)
        return phi_refuse(r, PHI_REFUSED_VALUE, NULL,
                          "The decoder prompt (length %lld) plus the number of requested output "
                          "tokens (at least 1) is longer than the maximum model length of %lld.",
                          n, limit);
    return PHI_OK;
}

enum phi_status phi_genjob_fit(struct phi_genjob *g, struct phi_refusal *r)
{
    struct phi_engine_info info;
    struct phi_model_info model;
    phi_model_get_info(g->server->model, &model);
    phi_engine_get_info(g->server->engine, &info);
    if (g->max_tokens > info.max_model_len)
        return phi_refuse(r, PHI_REFUSED_VALUE, g->max_tokens_field,
                          "%s=%lld cannot be greater than max_model_len=%d. Please request fewer "
                          "output tokens. (parameter=%s, value=%lld)",
                          g->max_tokens_field, (long long)g->max_tokens, info.max_model_len,
                          g->max_tokens_field, (long long)g->max_tokens);
    PHI_TRY(truncate_prompts(g, info.max_model_len, r));
    for (size_t i = 0; i < g->n_prompts; i++) {
        PHI_TRY(check_length(g, &g->prompts[i], info.max_model_len, r));
        PHI_TRY(check_ids(&g->prompts[i], model.vocab_size, r));
    }
    return PHI_OK;
}
