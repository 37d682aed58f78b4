/* logprobs_out.h: log probabilities in the three forms that the API has for them. */
#ifndef PHI_SERVER_API_LOGPROBS_OUT_H
#define PHI_SERVER_API_LOGPROBS_OUT_H

#include "server/api/json_out.h"
#include "server/api/spelling.h"

/* Consecutive tokens with their rows, as the engine gives them: in each row the token itself comes
 * first, the likeliest tokens after it; token -1 is padding, and a row of nothing else means that
 * the token has no log probability (the first of a prompt). */
struct phi_scored {
    const int32_t *tokens; /* [n] */
    size_t n;
    const struct phi_logprob *rows; /* [n, n_logprobs] */
    size_t n_logprobs;
};

/* Completions: {"text_offset", "token_logprobs", "tokens", "top_logprobs"} over all parts. as_ids:
 * tokens are shown as "token_id:N". */
void phi_logprobs_write_lists(struct phi_out *o, const char *key, struct phi_spelling *s,
                              const struct phi_scored *parts, size_t n_parts, bool as_ids);

/* Chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}, of the latter n_top each. */
void phi_logprobs_write_content(struct phi_out *o, const char *key, struct phi_spelling *s,
                                const struct phi_scored *scored, size_t n_top, bool as_ids);

/* Of a prompt: [null, {"<id>": {"logprob", "rank", "decoded_token"}}, ...] */
void phi_logprobs_write_prompt(struct phi_out *o, const char *key, const struct phi_model *m,
                               const struct phi_scored *scored);

#endif
