/* flags.h: the groups of options that several commands share, and how each becomes the public
 * header's structs. Names, defaults and ranges are vLLM's. */
#ifndef PHI_CLI_FLAGS_H
#define PHI_CLI_FLAGS_H

#include "cli/command_line.h"
#include "cli/term.h"

/* Every command: tokenizer, template, messages. */
struct cli_common_flags {
    const char *tokenizer, *chat_template;
    bool verbose;
};
extern const struct cli_option_group cli_common_group;

/* Commands that use the weights. */
struct cli_model_flags {
    int dtype;        /* enum phi_dtype */
    int quantization; /* enum phi_quantization */
    int quant_group_size;
    bool quantize_lm_head;
    int load_format;
    int load_strategy; /* enum phi_load_strategy */
    int threads;
    int64_t seed;
};
enum {
    CLI_LOAD_AUTO,
    CLI_LOAD_DUMMY,
    CLI_LOAD_COUNTED, /* none are made; not an option's value */
};
extern const struct cli_option_group cli_model_group;

/* Commands that run the model. */
struct cli_engine_flags {
    int max_model_len, max_num_seqs, max_num_batched_tokens, block_size, kv_dtype;
    int n_blocks, scheduling_policy;
    int64_t kv_bytes;
    double memory_utilization;
    bool enable_prefix_caching, bind_threads;
};
extern const struct cli_option_group cli_engine_group;

/* Commands that sample. */
struct cli_sampling_flags {
    int n, max_tokens, min_tokens, top_k, logprobs, prompt_logprobs, generation_config;
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    struct cli_texts stop, bad_words, logit_bias;
    struct phi_ids stop_token_ids, allowed_token_ids;
    bool ignore_eos, include_stop, skip_special_tokens;
};
enum { CLI_GENERATION_AUTO, CLI_GENERATION_VLLM };
extern const struct cli_option_group cli_sampling_group;

/* Opens the folder args->positional[0], with a progress bar; the library's warnings go to standard
 * error, with --verbose its other lines too. `model` may be NULL: tokenizer and template only. */
enum phi_status cli_open_model(const struct cli_args *args, const struct cli_common_flags *common,
                               const struct cli_model_flags *model, struct phi_model **out,
                               struct phi_error *err);

/* The same, for a command that has set a log of its own. */
enum phi_status cli_load_model(const struct cli_args *args, const struct cli_common_flags *common,
                               const struct cli_model_flags *model, struct phi_model **out,
                               struct phi_error *err);

/* n_sequences is how many there will be at most (0 = unknown): without --max-num-seqs the engine is
 * made for no more than that, nor for more than a step has tokens. seed as in cli_model_flags. The
 * model (with weights) is needed by --num-gpu-blocks-override alone; NULL leaves that out. */
enum phi_status cli_engine_options(const struct cli_args *args,
                                   const struct cli_engine_flags *flags, int64_t seed,
                                   size_t n_sequences, const struct phi_model *model,
                                   struct phi_engine_options *out, struct phi_error *err);

/* Sampling parameters with the arrays they point into. */
struct cli_sampling {
    struct phi_sampling params;
    struct phi_text *texts;        /* owned: stop strings, then bad words */
    struct phi_logit_bias *biases; /* owned */
};

/* What was not given on the command line comes from the checkpoint's generation_config.json unless
 * --generation-config vllm. An untypable value is PHI_ERR_INVALID. */
enum phi_status cli_sampling_init(struct cli_sampling *s, const struct cli_args *args,
                                  const struct cli_sampling_flags *flags, int64_t seed,
                                  const struct phi_model *model, struct phi_error *err);
void cli_sampling_deinit(struct cli_sampling *s);

#endif
