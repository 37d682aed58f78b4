/* cases.c: the prompts that are asked; see align.h. */
#include "cli/align/align.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/size.h"
#include "cli/prompts.h"
#include "formats/json.h"

#include <stdio.h>

enum { MAX_CASES = 4096, MAX_PROMPTS_BYTES = 64 << 20, LONG_DEFAULT = 4096, MARGIN = 8 };

static const char *const short_texts[] = {
    "Once upon a time there was a little girl who",
    "def is_prime(n):\n    \"\"\"Returns whether n is a prime number.\"\"\"\n",
    "The capital of France is Paris. The capital of Italy is",
    "Données, Größe, 数据, данные:",
};

/* As /v1/chat/completions takes them. */
static const char *const short_chats[] = {
    "[{\"role\":\"user\",\"content\":\"Tell me a short story about a fox.\"}]",
    "[{\"role\":\"system\",\"content\":\"You answer in one sentence.\"},"
    "{\"role\":\"user\",\"content\":\"What is 7 + 5?\"}]",
    "[{\"role\":\"user\",\"content\":\"My name is Ada.\"},"
    "{\"role\":\"assistant\",\"content\":\"Hello Ada, how can I help?\"},"
    "{\"role\":\"user\",\"content\":\"What is my name?\"}]",
};

/* Takes over `prompt`; NULL means that memory ran out. */
static enum phi_status add_case(struct align *a, enum align_kind kind, bool is_long, int max_tokens,
                                json_t *prompt, struct phi_error *err)
{
    if (!prompt)
        return phi_fail_memory(err, "a prompt", 0);
    if (a->n_cases == MAX_CASES) {
        json_decref(prompt);
        return phi_fail(err, PHI_ERR_INVALID, "more than %d prompts", MAX_CASES);
    }
    struct align_case *c = &a->cases[a->n_cases++];
    *c = (struct align_case){
        .kind = kind, .is_long = is_long, .max_tokens = max_tokens, .prompt = prompt};
    return align_tokenize(a->m, c, err);
}

static enum phi_status add_own(struct align *a, int max_tokens, bool has_template,
                               struct phi_error *err)
{
    for (size_t i = 0; i < sizeof short_texts / sizeof short_texts[0]; i++)
        PHI_TRY(add_case(a, ALIGN_TEXT, false, max_tokens, json_string(short_texts[i]), err));
    for (size_t i = 0; has_template && i < sizeof short_chats / sizeof short_chats[0]; i++)
        PHI_TRY(
            add_case(a, ALIGN_CHAT, false, max_tokens, json_loads(short_chats[i], 0, NULL), err));
    return PHI_OK;
}

/* ---------------------------------------------------------------- a file of prompts */

struct reading {
    struct align *a;
    const char *path;
    int max_tokens;
};

static enum phi_status read_line(void *context, struct phi_str line, size_t number,
                                 struct phi_error *err)
{
    struct reading *r = context;
    char where[300];
    json_t *value;
    snprintf(where, sizeof where, "%.250s line %zu", r->path, number);
    if (line.n == 0)
        return PHI_OK;
    PHI_TRY(phi_json_parse(line, where, &value, err));
    enum align_kind kind = json_is_string(value)                       ? ALIGN_TEXT
                           : json_is_integer(json_array_get(value, 0)) ? ALIGN_IDS
                                                                       : ALIGN_CHAT;
    if (kind == ALIGN_CHAT && !json_is_object(json_array_get(value, 0))) {
        json_decref(value);
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: expected a JSON string, an array of token ids or one of messages",
                        where);
    }
    enum phi_status status = add_case(r->a, kind, false, r->max_tokens, value, err);
    return status == PHI_OK ? status : phi_fail_prefix(err, status, "%s", where);
}

static enum phi_status add_file(struct align *a, const char *path, int max_tokens,
                                struct phi_error *err)
{
    struct phi_buf text = {0};
    struct reading r = {a, path, max_tokens};
    enum phi_status status = phi_file_read(path, MAX_PROMPTS_BYTES, &text, err);
    if (status == PHI_OK)
        status = cli_lines_each(phi_buf_str(&text), read_line, &r, err);
    phi_buf_deinit(&text);
    if (status == PHI_OK && a->n_cases == 0)
        return phi_fail(err, PHI_ERR_INVALID, "%s: no prompts", path);
    return status;
}

/* ---------------------------------------------------------------- long prompts */

static enum phi_status count_tokens(const struct phi_model *m, const struct phi_buf *text,
                                    size_t *n, struct phi_error *err)
{
    int32_t *ids = NULL;
    enum phi_status status =
        phi_tokenize(m, (struct phi_text){text->data, text->n}, true, &ids, n, err);
    phi_mem_free(ids);
    return status;
}

static void append_sentence(struct phi_buf *text, int number)
{
    static const char *const weather[] = {"calm", "rough", "grey", "bright"};
    phi_buf_printf(text, "On day %d the sea was %s, and the ship sailed %d miles to the west. ",
                   number, weather[number % 4], 20 + number * 37 % 83);
}

/* A text of as many sentences as have at most n tokens. */
static enum phi_status long_text(const struct phi_model *m, size_t n, struct phi_buf *text,
                                 struct phi_error *err)
{
    size_t n_tokens = 0, n_before = 0;
    for (int number = 1; n_tokens <= n; number++) {
        n_before = text->n;
        append_sentence(text, number);
        if (text->failed)
            return phi_fail_memory(err, "a long prompt", text->n);
        PHI_TRY(count_tokens(m, text, &n_tokens, err));
    }
    if (n_before == 0)
        return phi_fail(err, PHI_ERR_INVALID, "a long prompt of %zu tokens is too short", n);
    text->n = n_before;
    return PHI_OK;
}

static enum phi_status add_long_of(struct align *a, size_t n, int max_tokens, struct phi_error *err)
{
    struct phi_buf text = {0};
    enum phi_status status = long_text(a->m, n, &text, err);
    if (status == PHI_OK)
        status = add_case(a, ALIGN_TEXT, true, max_tokens, json_stringn(text.data, text.n), err);
    phi_buf_deinit(&text);
    return status;
}

/* With LongRoPE one answer that outgrows the original length on its way, and one that begins beyond
 * it; else one long prompt. */
static enum phi_status add_long(struct align *a, const struct align_plan *plan,
                                const struct phi_model_info *m, struct phi_error *err)
{
    size_t answer = (size_t)plan->long_tokens, max = (size_t)m->max_position_embeddings;
    if (plan->max_model_len > 0)
        max = phi_size_min(max, (size_t)plan->max_model_len);
    size_t original = (size_t)m->original_max_position_embeddings;
    bool crosses = original > 0 && original < max;
    size_t n = plan->long_prompt > 0 ? (size_t)plan->long_prompt
               : crosses             ? original - phi_size_min(original, MARGIN)
                         : phi_size_min(max - phi_size_min(max, answer + MARGIN), LONG_DEFAULT);
    if (n + answer > max)
        return phi_fail(err, PHI_ERR_TOO_LONG,
                        "a prompt of %zu tokens and an answer of %zu exceed the context of %zu", n,
                        answer, max);
    PHI_TRY(add_long_of(a, n, plan->long_tokens, err));
    if (plan->long_prompt == 0 && crosses && original + 4 * 32 + answer <= max)
        return add_long_of(a, original + 4 * 32, plan->long_tokens, err);
    return PHI_OK;
}

/* ---------------------------------------------------------------- all */

enum phi_status align_make_cases(struct align *a, const struct align_plan *plan,
                                 struct phi_error *err)
{
    struct phi_model_info m;
    phi_model_get_info(a->m, &m);
    a->cases = phi_calloc(MAX_CASES, sizeof *a->cases);
    if (!a->cases)
        return phi_fail_memory(err, "prompts", MAX_CASES * sizeof *a->cases);
    if (plan->with_short && plan->prompts)
        PHI_TRY(add_file(a, plan->prompts, plan->short_tokens, err));
    else if (plan->with_short)
        PHI_TRY(add_own(a, plan->short_tokens, m.has_chat_template, err));
    return plan->with_long ? add_long(a, plan, &m, err) : PHI_OK;
}

size_t align_longest(const struct align *a)
{
    size_t longest = 0;
    for (size_t i = 0; i < a->n_cases; i++)
        longest = phi_size_max(longest, a->cases[i].here.prompt.n + (size_t)a->cases[i].max_tokens);
    return longest;
}

static void answer_deinit(struct align_answer *answer)
{
    phi_ids_deinit(&answer->prompt);
    phi_ids_deinit(&answer->ids);
    phi_free(answer->candidates);
}

void align_deinit(struct align *a)
{
    for (size_t i = 0; i < a->n_cases; i++) {
        json_decref(a->cases[i].prompt);
        answer_deinit(&a->cases[i].here);
        answer_deinit(&a->cases[i].there);
    }
    phi_free(a->cases);
}
