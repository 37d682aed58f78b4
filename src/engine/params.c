/* params.c: see params.h. */
#include "engine/params.h"

#include <math.h>

enum { MAX_ANSWERS = 16384 };

void phi_sampling_init(struct phi_sampling *s)
{
    *s = (struct phi_sampling){
        .n = 1,
        .max_tokens = 16,
        .temperature = 1,
        .top_p = 1,
        .repetition_penalty = 1,
        .skip_special_tokens = true,
        .logprobs = -1,
        .prompt_logprobs = -1,
    };
}

void phi_sampling_init_from_model(struct phi_sampling *s, const struct phi_model *m)
{
    phi_sampling_init(s);
    phi_generation_apply(&m->config.generation, s);
}

/* ---------------------------------------------------------------- ranges */

/* Each test is written so that a NaN fails it. */
static enum phi_status check_numbers(const struct phi_sampling *s, struct phi_error *err)
{
    enum phi_status bad = PHI_ERR_INVALID;
    if (!(s->temperature >= 0))
        return phi_fail(err, bad, "temperature must be non-negative, got %g.", s->temperature);
    if (!isfinite(s->temperature))
        return phi_fail(err, bad, "temperature must be finite, got %g.", s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return phi_fail(err, bad, "top_p must be in (0, 1], got %.9g.", s->top_p);
    if (s->top_k < -1)
        return phi_fail(err, bad, "top_k must be 0 (disable), or at least 1, got %d.", s->top_k);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return phi_fail(err, bad, "min_p must be in [0, 1], got %g.", s->min_p);
    if (!(s->repetition_penalty > 0 && isfinite(s->repetition_penalty)))
        return phi_fail(err, bad, "repetition_penalty must be greater than zero, got %g.",
                        s->repetition_penalty);
    if (!(s->presence_penalty >= -2 && s->presence_penalty <= 2))
        return phi_fail(err, bad, "presence_penalty must be in [-2, 2], got %g.",
                        s->presence_penalty);
    if (!(s->frequency_penalty >= -2 && s->frequency_penalty <= 2))
        return phi_fail(err, bad, "frequency_penalty must be in [-2, 2], got %g.",
                        s->frequency_penalty);
    return PHI_OK;
}

static enum phi_status check_counts(const struct phi_sampling *s, int vocab_size,
                                    struct phi_error *err)
{
    enum phi_status bad = PHI_ERR_INVALID;
    if (s->n < 1)
        return phi_fail(err, bad, "n must be at least 1, got %d.", s->n);
    if (s->n > MAX_ANSWERS)
        return phi_fail(err, bad, "n must be at most %d, got %d.", MAX_ANSWERS, s->n);
    if (s->max_tokens < 0)
        return phi_fail(err, bad, "max_tokens must be at least 1, got %d.", s->max_tokens);
    if (s->min_tokens < 0)
        return phi_fail(err, bad, "min_tokens must be greater than or equal to 0, got %d.",
                        s->min_tokens);
    if (s->max_tokens > 0 && s->min_tokens > s->max_tokens)
        return phi_fail(err, bad, "min_tokens must be less than or equal to max_tokens=%d, got %d.",
                        s->max_tokens, s->min_tokens);
    if (s->logprobs < -1 || s->logprobs > vocab_size)
        return phi_fail(err, bad, "logprobs must be between 0 and %d, or -1 for none, got %d.",
                        vocab_size, s->logprobs);
    if (s->prompt_logprobs < -1 || s->prompt_logprobs > vocab_size)
        return phi_fail(err, bad,
                        "prompt_logprobs must be between 0 and %d, or -1 for none, got %d.",
                        vocab_size, s->prompt_logprobs);
    return PHI_OK;
}

static bool in_vocabulary(int32_t id, int vocab_size)
{
    return id >= 0 && id < vocab_size;
}

static enum phi_status check_lists(const struct phi_sampling *s, int vocab_size,
                                   struct phi_error *err)
{
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        if (!in_vocabulary(s->logit_bias[i].token, vocab_size))
            return phi_fail(err, PHI_ERR_INVALID,
                            "logit_bias: token id %d is out of vocabulary (size %d).",
                            s->logit_bias[i].token, vocab_size);
        if (isnan(s->logit_bias[i].bias))
            return phi_fail(err, PHI_ERR_INVALID,
                            "logit_bias: the bias of token id %d is not a number.",
                            s->logit_bias[i].token);
    }
    if (s->allowed_token_ids && s->n_allowed_token_ids == 0)
        return phi_fail(err, PHI_ERR_INVALID, "allowed_token_ids is not None and empty!");
    for (size_t i = 0; i < s->n_allowed_token_ids; i++)
        if (!in_vocabulary(s->allowed_token_ids[i], vocab_size))
            return phi_fail(err, PHI_ERR_INVALID,
                            "allowed_token_ids: token id %d is out of vocabulary (size %d).",
                            s->allowed_token_ids[i], vocab_size);
    return PHI_OK;
}

static enum phi_status check_length(const struct phi_sampling *s, size_t n_prompt,
                                    size_t max_model_len, struct phi_error *err)
{
    size_t n_output = s->max_tokens > 0 ? (size_t)s->max_tokens : 1;
    if (n_prompt == 0)
        return phi_fail(err, PHI_ERR_INVALID, "The prompt cannot be empty.");
    if (n_prompt > max_model_len || n_output > max_model_len - n_prompt)
        return phi_fail(
            err, PHI_ERR_TOO_LONG,
            "This model's maximum context length is %zu tokens. However, you requested %zu "
            "output tokens and your prompt contains %zu input tokens, for a total of %zu "
            "tokens. Please reduce the length of the input prompt or the number of "
            "requested output tokens.",
            max_model_len, n_output, n_prompt, n_prompt + n_output);
    if (s->max_tokens == 0 && (size_t)s->min_tokens > max_model_len - n_prompt)
        return phi_fail(err, PHI_ERR_INVALID,
                        "min_tokens must be less than or equal to max_tokens=%zu, got %d.",
                        max_model_len - n_prompt, s->min_tokens);
    return PHI_OK;
}

/* ---------------------------------------------------------------- lists */

static enum phi_status copy_list(struct phi_params *p, const void *data, size_t n, size_t size,
                                 const void **out, struct phi_error *err)
{
    if (n == 0)
        return PHI_OK;
    void *copy = phi_arena_alloc(&p->arena, n, size);
    if (!copy)
        return phi_fail_memory(err, "sampling parameters", n * size);
    memcpy(copy, data, n * size);
    *out = copy;
    return PHI_OK;
}

static enum phi_status copy_lists(struct phi_params *p, const struct phi_sampling *s,
                                  struct phi_error *err)
{
    const void *allowed = NULL;
    struct phi_logit_bias *bias = phi_arena_alloc(&p->arena, s->n_logit_bias, sizeof *bias);
    if (s->n_logit_bias > 0 && !bias)
        return phi_fail_memory(err, "logit_bias", s->n_logit_bias * sizeof *bias);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        float b = s->logit_bias[i].bias;
        bias[i].token = s->logit_bias[i].token;
        bias[i].bias = b > 100 ? 100 : b < -100 ? -100 : b;
    }
    PHI_TRY(
        copy_list(p, s->allowed_token_ids, s->n_allowed_token_ids, sizeof(int32_t), &allowed, err));
    p->state.logit_bias = bias;
    p->state.n_logit_bias = s->n_logit_bias;
    p->state.allowed_ids = allowed;
    p->state.n_allowed = s->n_allowed_token_ids;
    return PHI_OK;
}

/* The ids that end an answer, and those that min_tokens masks: the checkpoint's, which ignore_eos
 * spares only from ending it, and the request's. */
static enum phi_status set_stop_ids(struct phi_params *p, const struct phi_sampling *s,
                                    const struct phi_model *m, struct phi_error *err)
{
    const struct phi_config *c = &m->config;
    size_t n_all = (size_t)c->n_stop_ids + s->n_stop_token_ids + 1, n_stop = 0, n_end = 0;
    int32_t *stop = phi_arena_alloc(&p->arena, n_all, sizeof *stop);
    int32_t *end = phi_arena_alloc(&p->arena, n_all, sizeof *end);
    if (!stop || !end)
        return phi_fail_memory(err, "stop_token_ids", 2 * n_all * sizeof *stop);
    for (size_t i = 0; i < s->n_stop_token_ids; i++) {
        stop[n_stop++] = s->stop_token_ids[i];
        if (in_vocabulary(s->stop_token_ids[i], c->vocab_size))
            end[n_end++] = s->stop_token_ids[i];
    }
    for (int i = 0; i < c->n_stop_ids; i++) {
        if (!s->ignore_eos && c->stop_ids[i] != m->eos_id)
            stop[n_stop++] = c->stop_ids[i];
        if (in_vocabulary(c->stop_ids[i], c->vocab_size))
            end[n_end++] = c->stop_ids[i];
    }
    p->eos_id = s->ignore_eos ? -1 : m->eos_id;
    p->stop_ids = stop;
    p->n_stop_ids = n_stop;
    p->state.end_ids = end;
    p->state.n_end_ids = n_end;
    return PHI_OK;
}

static enum phi_status encode_word(const struct phi_model *m, struct phi_text word, bool with_space,
                                   struct phi_ids *ids, struct phi_error *err)
{
    struct phi_buf text = {0};
    size_t start = 0;
    while (start < word.n &&
           (word.data[start] == ' ' || (word.data[start] >= '\t' && word.data[start] <= '\r')))
        start++;
    if (with_space)
        phi_buf_append_char(&text, ' ');
    phi_buf_append(&text, word.data + start, word.n - start);
    enum phi_status status = text.failed ? phi_fail_memory(err, "bad_words", word.n) : PHI_OK;
    if (status == PHI_OK)
        status = phi_tokenizer_encode(m->tokenizer, phi_buf_str(&text),
                                      (struct phi_encode_options){0}, ids, err);
    if (status == PHI_OK && ids->failed)
        status = phi_fail_memory(err, "bad_words", ids->n * sizeof *ids->data);
    phi_buf_deinit(&text);
    return status;
}

/* The ids of one bad word as they stand after other text: the bare form, and the form after a space
 * where that is another way to write the word with as many tokens. */
static enum phi_status add_bad_word(const struct phi_model *m, struct phi_text word,
                                    struct phi_ids *all, struct phi_ids *lengths,
                                    struct phi_error *err)
{
    struct phi_ids forms[2] = {{0}, {0}};
    enum phi_status status = PHI_OK;
    for (int i = 0; i < 2 && status == PHI_OK; i++)
        status = encode_word(m, word, i == 1, &forms[i], err);
    for (int i = 0; i < 2 && status == PHI_OK; i++) {
        bool new_form = i == 0 || (forms[1].n == forms[0].n && forms[1].n > 0 &&
                                   forms[1].data[0] != forms[0].data[0]);
        if (!new_form || forms[i].n == 0)
            continue;
        for (size_t j = 0; j < forms[i].n; j++)
            if (!in_vocabulary(forms[i].data[j], m->config.vocab_size))
                status = phi_fail(err, PHI_ERR_INVALID,
                                  "bad_words: token id %d is out of vocabulary (size %d).",
                                  forms[i].data[j], m->config.vocab_size);
        phi_ids_append_n(all, forms[i].data, forms[i].n);
        phi_ids_append(lengths, (int32_t)forms[i].n);
    }
    phi_ids_deinit(&forms[0]);
    phi_ids_deinit(&forms[1]);
    if (status == PHI_OK && (all->failed || lengths->failed))
        status = phi_fail_memory(err, "bad_words", all->n * sizeof *all->data);
    return status;
}

static enum phi_status set_bad_words(struct phi_params *p, const struct phi_sampling *s,
                                     const struct phi_model *m, struct phi_error *err)
{
    if (s->n_bad_words > 0 && !m->tokenizer)
        return phi_fail(err, PHI_ERR_INVALID, "bad_words: the checkpoint has no tokenizer.json.");
    struct phi_ids all = {0}, lengths = {0};
    enum phi_status status = PHI_OK;
    for (size_t i = 0; i < s->n_bad_words && status == PHI_OK; i++) {
        if (s->bad_words[i].n == 0)
            status = phi_fail(err, PHI_ERR_INVALID, "bad_words cannot contain an empty string.");
        else
            status = add_bad_word(m, s->bad_words[i], &all, &lengths, err);
    }
    const void *ids = NULL, *n_ids = NULL;
    if (status == PHI_OK)
        status = copy_list(p, all.data, all.n, sizeof *all.data, &ids, err);
    if (status == PHI_OK)
        status = copy_list(p, lengths.data, lengths.n, sizeof *lengths.data, &n_ids, err);
    p->state.bad_words = (struct phi_bad_words){ids, n_ids, lengths.n};
    phi_ids_deinit(&all);
    phi_ids_deinit(&lengths);
    return status;
}

/* ---------------------------------------------------------------- all together */

/* Greedy below 1e-5, where the other ways to narrow a choice mean nothing; no temperature below
 * 0.01. */
static void set_numbers(struct phi_params *p, const struct phi_sampling *s, size_t room)
{
    bool greedy = s->temperature < 1e-5;
    phi_sampling_state_init(&p->state);
    p->n = s->n;
    p->max_tokens = s->max_tokens > 0 ? (size_t)s->max_tokens : room;
    p->has_seed = s->has_seed && s->seed != -1;
    p->seed = (uint64_t)s->seed;
    p->include_stop = s->include_stop_str_in_output;
    p->skip_special = s->skip_special_tokens;
    p->logprobs = s->logprobs;
    p->prompt_logprobs = s->prompt_logprobs;
    p->state.min_tokens = (size_t)s->min_tokens;
    p->state.repetition_penalty = s->repetition_penalty;
    p->state.presence_penalty = s->presence_penalty;
    p->state.frequency_penalty = s->frequency_penalty;
    if (!greedy) {
        p->state.temperature = s->temperature < 0.01 ? 0.01 : s->temperature;
        p->state.top_k = s->top_k < 0 ? 0 : s->top_k;
        p->state.top_p = s->top_p;
        p->state.min_p = s->min_p;
    }
}

static enum phi_status set_all(struct phi_params *p, const struct phi_sampling *s,
                               const struct phi_model *m, size_t room, struct phi_error *err)
{
    set_numbers(p, s, room);
    if (s->n > 1 && p->state.temperature == 0)
        return phi_fail(err, PHI_ERR_INVALID, "n must be 1 when using greedy sampling, got %d.",
                        s->n);
    if (s->n_stop > 0 && !m->tokenizer)
        return phi_fail(err, PHI_ERR_INVALID, "stop: the checkpoint has no tokenizer.json.");
    PHI_TRY(copy_lists(p, s, err));
    PHI_TRY(set_stop_ids(p, s, m, err));
    PHI_TRY(set_bad_words(p, s, m, err));
    return phi_stop_set_init(&p->stops, s->stop, s->n_stop, err);
}

enum phi_status phi_params_init(struct phi_params *p, const struct phi_sampling *s,
                                const struct phi_model *m, size_t n_prompt, size_t max_model_len,
                                struct phi_error *err)
{
    *p = (struct phi_params){0};
    PHI_TRY(check_numbers(s, err));
    PHI_TRY(check_counts(s, m->config.vocab_size, err));
    PHI_TRY(check_lists(s, m->config.vocab_size, err));
    PHI_TRY(check_length(s, n_prompt, max_model_len, err));
    enum phi_status status = set_all(p, s, m, max_model_len - n_prompt, err);
    if (status != PHI_OK)
        phi_params_deinit(p);
    return status;
}

void phi_params_deinit(struct phi_params *p)
{
    phi_stop_set_deinit(&p->stops);
    phi_arena_deinit(&p->arena);
    *p = (struct phi_params){0};
}

enum phi_token_end phi_params_token_end(const struct phi_params *p, int32_t token)
{
    if (token == p->eos_id && token >= 0)
        return PHI_TOKEN_EOS;
    for (size_t i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] == token)
            return PHI_TOKEN_STOP_ID;
    return PHI_TOKEN_GOES_ON;
}
