/* sampling.c: from sampling flags to struct phi_sampling (declared in flags.h). */
#include "base/alloc.h"
#include "cli/flags.h"
#include "formats/json.h"

#include <math.h>
#include <stdlib.h>

/* Grows the list by one. */
static enum phi_status add_bias(struct cli_sampling *s, int64_t token, double bias,
                                struct phi_error *err)
{
    if (token < 0 || token > INT32_MAX)
        return phi_fail(err, PHI_ERR_INVALID, "--logit-bias: %lld is not a token id",
                        (long long)token);
    size_t n = s->params.n_logit_bias;
    struct phi_logit_bias *grown = phi_realloc(s->biases, n + 1, sizeof *grown);
    if (!grown)
        return phi_fail_memory(err, "--logit-bias", (n + 1) * sizeof *grown);
    s->biases = grown;
    s->biases[n] = (struct phi_logit_bias){(int32_t)token, (float)bias};
    s->params.logit_bias = s->biases;
    s->params.n_logit_bias = n + 1;
    return PHI_OK;
}

/* "123:-5.5" */
static enum phi_status add_bias_pair(struct cli_sampling *s, const char *text,
                                     struct phi_error *err)
{
    char *end;
    long long token = strtoll(text, &end, 10);
    if (end != text && *end == ':') {
        const char *number = end + 1;
        double bias = strtod(number, &end);
        if (end != number && *end == '\0' && isfinite(bias))
            return add_bias(s, token, bias, err);
    }
    return phi_fail(err, PHI_ERR_INVALID,
                    "--logit-bias: expected ID:BIAS or a JSON object, not '%s'", text);
}

/* {"123": -5.5, ...} */
static enum phi_status add_bias_object(struct cli_sampling *s, const char *text,
                                       struct phi_error *err)
{
    json_t *object;
    PHI_TRY(phi_json_parse(phi_str_from(text), "--logit-bias", &object, err));
    enum phi_status status = PHI_OK;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char *end;
        long long token = strtoll(key, &end, 10);
        if (end == key || *end != '\0' || !json_is_number(value))
            status = phi_fail(err, PHI_ERR_INVALID,
                              "--logit-bias: '%s' must be a token id with a number", key);
        else
            status = add_bias(s, token, json_number_value(value), err);
        if (status != PHI_OK)
            break;
    }
    json_decref(object);
    return status;
}

static enum phi_status set_texts(struct cli_sampling *s, const struct cli_sampling_flags *flags,
                                 struct phi_error *err)
{
    size_t n = flags->stop.n + flags->bad_words.n;
    s->texts = phi_calloc(n, sizeof *s->texts);
    if (!s->texts)
        return phi_fail_memory(err, "stop strings", n * sizeof *s->texts);
    for (size_t i = 0; i < n; i++) {
        const char *text =
            i < flags->stop.n ? flags->stop.data[i] : flags->bad_words.data[i - flags->stop.n];
        s->texts[i] = (struct phi_text){text, strlen(text)};
    }
    s->params.stop = s->texts;
    s->params.n_stop = flags->stop.n;
    s->params.bad_words = s->texts + flags->stop.n;
    s->params.n_bad_words = flags->bad_words.n;
    return PHI_OK;
}

/* The parameters that generation_config.json may set are replaced only where they were given. */
static void set_given(struct phi_sampling *p, const struct cli_args *args,
                      const struct cli_sampling_flags *flags)
{
    if (cli_given(args, "max-tokens"))
        p->max_tokens = flags->max_tokens;
    if (cli_given(args, "temperature"))
        p->temperature = flags->temperature;
    if (cli_given(args, "top-p"))
        p->top_p = flags->top_p;
    if (cli_given(args, "top-k"))
        p->top_k = flags->top_k;
    if (cli_given(args, "min-p"))
        p->min_p = flags->min_p;
    if (cli_given(args, "repetition-penalty"))
        p->repetition_penalty = flags->repetition_penalty;
}

enum phi_status cli_sampling_init(struct cli_sampling *s, const struct cli_args *args,
                                  const struct cli_sampling_flags *flags, int64_t seed,
                                  const struct phi_model *model, struct phi_error *err)
{
    *s = (struct cli_sampling){0};
    struct phi_sampling *p = &s->params;
    if (flags->generation_config == CLI_GENERATION_AUTO)
        phi_sampling_init_from_model(p, model);
    else
        phi_sampling_init(p);
    set_given(p, args, flags);
    p->n = flags->n;
    p->min_tokens = flags->min_tokens;
    p->presence_penalty = flags->presence_penalty;
    p->frequency_penalty = flags->frequency_penalty;
    p->has_seed = cli_given(args, "seed");
    p->seed = seed;
    p->stop_token_ids = flags->stop_token_ids.data;
    p->n_stop_token_ids = flags->stop_token_ids.n;
    p->allowed_token_ids = flags->allowed_token_ids.data;
    p->n_allowed_token_ids = flags->allowed_token_ids.n;
    p->include_stop_str_in_output = flags->include_stop;
    p->ignore_eos = flags->ignore_eos;
    p->skip_special_tokens = flags->skip_special_tokens;
    p->logprobs = flags->logprobs;
    p->prompt_logprobs = flags->prompt_logprobs;
    PHI_TRY(set_texts(s, flags, err));
    for (size_t i = 0; i < flags->logit_bias.n; i++) {
        const char *text = flags->logit_bias.data[i];
        PHI_TRY(text[0] == '{' ? add_bias_object(s, text, err) : add_bias_pair(s, text, err));
    }
    return PHI_OK;
}

void cli_sampling_deinit(struct cli_sampling *s)
{
    phi_free(s->texts);
    phi_free(s->biases);
    *s = (struct cli_sampling){0};
}
