/* params.h: a request's sampling parameters, checked, copied and brought into the form that each
 * step uses. Ranges and messages are vLLM's. */
#ifndef PHI_ENGINE_PARAMS_H
#define PHI_ENGINE_PARAMS_H

#include "base/arena.h"
#include "engine/model_api.h"
#include "engine/sampler.h"
#include "engine/stop.h"

struct phi_params {
    int n;             /* answers */
    size_t max_tokens; /* >= 1; never more than the context holds after the prompt */
    bool has_seed;
    uint64_t seed;
    bool include_stop;
    bool skip_special;
    int32_t eos_id;          /* the primary end of text; -1 = none, or ignored */
    const int32_t *stop_ids; /* other ids that end an answer */
    size_t n_stop_ids;
    struct phi_stop_set stops;
    int logprobs, prompt_logprobs;   /* -1 = none */
    struct phi_sampling_state state; /* all but prompt, output and key */
    struct phi_arena arena;          /* holds the lists above */
};

/* PHI_ERR_INVALID names the field, its value and its range; PHI_ERR_TOO_LONG when the prompt and
 * max_tokens exceed max_model_len. */
enum phi_status phi_params_init(struct phi_params *p, const struct phi_sampling *s,
                                const struct phi_model *m, size_t n_prompt, size_t max_model_len,
                                struct phi_error *err);
void phi_params_deinit(struct phi_params *p);

/* Of an answer: is `token` the end, and which? Does not look at max_tokens or text. */
enum phi_token_end { PHI_TOKEN_GOES_ON, PHI_TOKEN_EOS, PHI_TOKEN_STOP_ID };
enum phi_token_end phi_params_token_end(const struct phi_params *p, int32_t token);

#endif
