/* here.c: what the engine in this process answers; see align.h. */
#include "cli/align/align.h"
#include "base/alloc.h"
#include "cli/json_text.h"

static struct phi_text text_of(const json_t *string)
{
    return (struct phi_text){json_string_value(string), json_string_length(string)};
}

static enum phi_status take_ids(const json_t *array, size_t vocab_size, struct phi_ids *out,
                                struct phi_error *err)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *id = json_array_get(array, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= (json_int_t)vocab_size)
            return phi_fail(err, PHI_ERR_INVALID, "[%zu] is no id of this model's vocabulary", i);
        phi_ids_append(out, (int32_t)json_integer_value(id));
    }
    return PHI_OK;
}

/* As /v1/chat/completions renders: the template itself puts what the text begins with. */
static enum phi_status tokenize_chat(const struct phi_model *m, const json_t *messages,
                                     int32_t **ids, size_t *n, struct phi_error *err)
{
    char *rendered = NULL;
    size_t n_rendered = 0;
    enum phi_status status = cli_render_chat(m, messages, NULL, &rendered, &n_rendered, err);
    if (status == PHI_OK)
        status = phi_tokenize(m, (struct phi_text){rendered, n_rendered}, false, ids, n, err);
    phi_mem_free(rendered);
    return status;
}

enum phi_status align_tokenize(const struct phi_model *m, struct align_case *c,
                               struct phi_error *err)
{
    struct phi_model_info info;
    int32_t *ids = NULL;
    size_t n = 0;
    phi_model_get_info(m, &info);
    if (c->kind == ALIGN_IDS)
        PHI_TRY(take_ids(c->prompt, (size_t)info.vocab_size, &c->here.prompt, err));
    else if (c->kind == ALIGN_TEXT)
        PHI_TRY(phi_tokenize(m, text_of(c->prompt), true, &ids, &n, err));
    else
        PHI_TRY(tokenize_chat(m, c->prompt, &ids, &n, err));
    phi_ids_append_n(&c->here.prompt, ids, n);
    phi_mem_free(ids);
    return c->here.prompt.failed ? phi_fail_memory(err, "prompt ids", n * sizeof *ids) : PHI_OK;
}

struct align_candidate *align_add_candidates(struct align_answer *answer, size_t row)
{
    enum { WIDTH = 1 + ALIGN_BEST };
    if (row >= answer->n_candidates) {
        size_t n = answer->n_candidates ? 2 * answer->n_candidates : 32;
        struct align_candidate *grown = phi_realloc(answer->candidates, n * WIDTH, sizeof *grown);
        if (!grown)
            return NULL;
        for (size_t i = answer->n_candidates * WIDTH; i < n * WIDTH; i++)
            grown[i].token = -1;
        answer->candidates = grown;
        answer->n_candidates = n;
    }
    return answer->candidates + row * WIDTH;
}

static bool take_event(struct align_answer *answer, const struct phi_event *ev)
{
    for (size_t i = 0; i < ev->n_tokens; i++) {
        struct align_candidate *row = align_add_candidates(answer, answer->ids.n);
        if (!row)
            return false;
        for (size_t j = 0; j < ev->n_logprobs && j < 1 + ALIGN_BEST; j++) {
            const struct phi_logprob *l = &ev->logprobs[i * ev->n_logprobs + j];
            row[j] = (struct align_candidate){l->token, l->logprob};
        }
        phi_ids_append(&answer->ids, ev->tokens[i]);
    }
    return !answer->ids.failed;
}

enum phi_status align_ask_here(struct align *a, struct align_case *c, struct phi_error *err)
{
    struct phi_sampling s;
    struct phi_request *r;
    struct phi_event ev;
    enum phi_status status = PHI_OK;
    phi_sampling_init(&s);
    s.temperature = 0;
    s.max_tokens = c->max_tokens;
    s.logprobs = ALIGN_BEST;
    s.ignore_eos = align_runs_on(a, c);
    PHI_TRY(phi_request_submit(a->e, c->here.prompt.data, c->here.prompt.n, &s, NULL, &r, err));
    while (status == PHI_OK && phi_request_next(r, &ev, -1) > 0) {
        if (ev.status != PHI_OK)
            status = phi_fail(err, ev.status, "%s", ev.error);
        else if (!take_event(&c->here, &ev))
            status = phi_fail_memory(err, "an answer", c->here.ids.n);
    }
    phi_request_release(r);
    return status;
}
