/* there.c: what a server answers; see align.h. With vLLM's fields a server tells the ids that it
 * read and wrote and the ids of candidates; without, its text goes through this model's tokenizer.
 */
#include "cli/align/align.h"
#include "formats/json.h"

#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- the question */

static json_t *request_of(const struct align *a, const struct align_case *c)
{
    bool is_chat = c->kind == ALIGN_CHAT;
    json_t *body = json_pack("{s:s, s:O, s:i, s:i, s:i}", "model", a->server_model,
                             is_chat ? "messages" : "prompt", c->prompt, "max_tokens",
                             c->max_tokens, "temperature", 0, "top_p", 1);
    int bad = 0;
    if (a->extensions) {
        if (is_chat)
            bad |= json_object_set_new(body, "logprobs", json_true()) |
                   json_object_set_new(body, "top_logprobs", json_integer(ALIGN_BEST));
        else
            bad |= json_object_set_new(body, "logprobs", json_integer(ALIGN_BEST));
        bad |= json_object_set_new(body, "return_token_ids", json_true()) |
               json_object_set_new(body, "return_tokens_as_token_ids", json_true()) |
               json_object_set_new(body, "repetition_penalty", json_integer(1)) |
               json_object_set_new(body, "top_k", json_integer(0)) |
               json_object_set_new(body, "min_p", json_integer(0)) |
               json_object_set_new(body, "ignore_eos", json_boolean(align_runs_on(a, c)));
    }
    if (bad) {
        json_decref(body);
        return NULL;
    }
    return body;
}

/* ---------------------------------------------------------------- the answer */

static void take_ids(const json_t *array, struct phi_ids *out)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        phi_ids_append(out, (int32_t)json_integer_value(json_array_get(array, i)));
}

/* "token_id:17" */
static int32_t token_of(const char *text)
{
    static const char prefix[] = "token_id:";
    if (!text || strncmp(text, prefix, sizeof prefix - 1) != 0)
        return -1;
    return (int32_t)strtol(text + sizeof prefix - 1, NULL, 10);
}

/* {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{...}, ...]} */
static bool take_completion_logprobs(const json_t *logprobs, struct align_answer *answer)
{
    const json_t *tokens = json_object_get(logprobs, "tokens");
    const json_t *values = json_object_get(logprobs, "token_logprobs");
    const json_t *best = json_object_get(logprobs, "top_logprobs");
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        struct align_candidate *row = align_add_candidates(answer, i);
        const char *name;
        json_t *value;
        int n = 1;
        if (!row)
            return false;
        row[0] = (struct align_candidate){token_of(json_string_value(json_array_get(tokens, i))),
                                          json_number_value(json_array_get(values, i))};
        json_object_foreach(json_array_get(best, i), name, value)
        {
            if (n <= ALIGN_BEST)
                row[n++] = (struct align_candidate){token_of(name), json_number_value(value)};
        }
    }
    return true;
}

/* [{"token": ..., "logprob": ..., "top_logprobs": [{"token": ..., "logprob": ...}, ...]}, ...] */
static bool take_chat_logprobs(const json_t *content, struct align_answer *answer)
{
    for (size_t i = 0; i < json_array_size(content); i++) {
        struct align_candidate *row = align_add_candidates(answer, i);
        const json_t *token = json_array_get(content, i);
        const json_t *best = json_object_get(token, "top_logprobs");
        if (!row)
            return false;
        for (size_t j = 0; j <= ALIGN_BEST && j <= json_array_size(best); j++) {
            const json_t *one = j == 0 ? token : json_array_get(best, j - 1);
            row[j] =
                (struct align_candidate){token_of(json_string_value(json_object_get(one, "token"))),
                                         json_number_value(json_object_get(one, "logprob"))};
        }
    }
    return true;
}

/* An answer without ids: its text through our tokenizer. */
static enum phi_status take_text(const struct phi_model *m, const json_t *text, struct phi_ids *out,
                                 struct phi_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (!json_is_string(text))
        return phi_fail(err, PHI_ERR_FORMAT, "the server's answer has no text");
    struct phi_text t = {json_string_value(text), json_string_length(text)};
    PHI_TRY(phi_tokenize(m, t, false, &ids, &n, err));
    phi_ids_append_n(out, ids, n);
    phi_mem_free(ids);
    return PHI_OK;
}

/* What came out here, as such a server would tell it: to text and back. */
static enum phi_status retokenize_here(const struct phi_model *m, struct align_answer *here,
                                       struct phi_error *err)
{
    char *text = NULL;
    size_t n = 0;
    PHI_TRY(phi_detokenize(m, here->ids.data, here->ids.n, true, &text, &n, err));
    json_t *value = json_stringn(text, n);
    phi_mem_free(text);
    here->ids.n = 0;
    enum phi_status status = value ? take_text(m, value, &here->ids, err)
                                   : phi_fail(err, PHI_ERR_FORMAT, "an answer is not UTF-8");
    json_decref(value);
    return status;
}

static enum phi_status take_answer(const struct align *a, struct align_case *c, const json_t *body,
                                   struct phi_error *err)
{
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
    const json_t *ids = json_object_get(choice, "token_ids");
    const json_t *logprobs = json_object_get(choice, "logprobs");
    bool is_chat = c->kind == ALIGN_CHAT;
    struct align_answer *there = &c->there;
    if (!choice)
        return phi_fail(err, PHI_ERR_FORMAT, "the server's answer has no choices");
    take_ids(json_object_get(is_chat ? body : choice, "prompt_token_ids"), &there->prompt);
    if (json_is_array(ids)) {
        take_ids(ids, &there->ids);
    } else {
        PHI_TRY(take_text(a->m,
                          is_chat ? json_object_get(json_object_get(choice, "message"), "content")
                                  : json_object_get(choice, "text"),
                          &there->ids, err));
        PHI_TRY(retokenize_here(a->m, &c->here, err));
    }
    bool ok =
        !a->extensions || (is_chat ? take_chat_logprobs(json_object_get(logprobs, "content"), there)
                                   : take_completion_logprobs(logprobs, there));
    if (!ok || there->ids.failed || there->prompt.failed)
        return phi_fail_memory(err, "a server's answer", there->ids.n);
    return PHI_OK;
}

enum phi_status align_ask_there(struct align *a, struct align_case *c, struct phi_error *err)
{
    json_t *question = request_of(a, c), *answer = NULL;
    if (!question)
        return phi_fail_memory(err, "a request", 0);
    enum phi_status status = http_client_post(
        a->client, c->kind == ALIGN_CHAT ? "/v1/chat/completions" : "/v1/completions", question,
        &answer, err);
    json_decref(question);
    if (status == PHI_OK)
        status = take_answer(a, c, answer, err);
    json_decref(answer);
    return status;
}
