/* config.h: config.json and generation_config.json of a Phi checkpoint, as one plain struct.
 *
 * Accepts model types phi, phi-msft (the renamed form with n_embd, n_layer, ... keys) and phi3,
 * with old keys (rope_theta, rope_scaling, torch_dtype, "su") and new ones (rope_parameters,
 * dtype). Anything this program does not compute is PHI_ERR_UNSUPPORTED naming the field and the
 * value: an accepted config is computed exactly. */
#ifndef PHI_FORMATS_CONFIG_H
#define PHI_FORMATS_CONFIG_H

#include "base/dtype.h"
#include "base/str.h"

#include <jansson.h>

enum phi_arch { PHI_ARCH_PHI, PHI_ARCH_PHI3 };

enum phi_rope_type {
    PHI_ROPE_DEFAULT,
    PHI_ROPE_LINEAR,  /* phi only */
    PHI_ROPE_DYNAMIC, /* phi only; as default up to max_position_embeddings, where contexts end */
    PHI_ROPE_YARN,    /* phi only */
    PHI_ROPE_LONGROPE /* phi3 only; also written "su" or "yarn" there */
};

enum { PHI_MAX_STOP_IDS = 64, PHI_MAX_ROPE_FACTORS = 256 };

/* Defaults for sampling from generation_config.json; `has_x` false where the file is silent. */
struct phi_generation {
    bool has_do_sample, has_temperature, has_top_k, has_top_p, has_min_p, has_repetition_penalty,
        has_max_new_tokens;
    bool do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    int top_k, max_new_tokens;
};

struct phi_config {
    enum phi_arch arch;
    char model_type[32];
    char architecture[64]; /* architectures[0], "" when absent */

    int hidden_size;
    int intermediate_size;
    int n_layers;
    int n_heads;
    int n_kv_heads;
    int head_dim;
    int rotary_dim; /* int(head_dim * partial_rotary_factor) */
    int vocab_size; /* embedding rows */
    int max_position_embeddings;
    int original_max_position_embeddings; /* phi3: 4096, phi: the maximum, where not given */
    int sliding_window;                   /* 0 = none */
    double norm_eps;
    bool tie_word_embeddings;
    bool attention_bias;  /* phi3: biases on qkv_proj and o_proj */
    bool qk_layernorm;    /* phi */
    bool quantized;       /* linear layers have integer weights (compressed-tensors) */
    enum phi_dtype dtype; /* torch_dtype / dtype; PHI_AUTO when absent */

    enum phi_rope_type rope_type;
    double rope_theta;
    double rope_factor;           /* of all but default; resolved (maximum / original length) */
    double rope_attention_factor; /* cos and sin are multiplied by this; resolved, 1 where unused */
    double yarn_beta_fast, yarn_beta_slow;
    bool yarn_truncate;
    double short_factor[PHI_MAX_ROPE_FACTORS]; /* longrope: [rotary_dim / 2] */
    double long_factor[PHI_MAX_ROPE_FACTORS];

    int bos_token_id; /* -1 = none */
    int pad_token_id; /* -1 = none */
    int n_stop_ids;   /* union of config.json and generation_config.json; each < vocab_size, once */
    int32_t stop_ids[PHI_MAX_STOP_IDS];

    struct phi_generation generation;
};

/* Reads dir/config.json and, where present, dir/generation_config.json. */
enum phi_status phi_config_read(const char *dir, struct phi_config *out, struct phi_error *err);

/* The same from texts (generation may be empty: n = 0). `name` is used in errors. */
enum phi_status phi_config_parse(struct phi_str config, struct phi_str generation, const char *name,
                                 struct phi_config *out, struct phi_error *err);

/* The sampling fields of an object in the form of generation_config.json: what it says replaces what
 * *out says, what it leaves out stays. `name` is used in errors. */
enum phi_status phi_generation_read(const json_t *object, const char *name,
                                    struct phi_generation *out, struct phi_error *err);

/* Puts them over the parameters in *s; do_sample is not looked at, as in vLLM. */
void phi_generation_apply(const struct phi_generation *g, struct phi_sampling *s);

/* Adds an id to the stop set (the tokenizer's eos) unless it is there. An id outside the vocabulary
 * can never be generated and is left out. False when full. */
bool phi_config_add_stop_id(struct phi_config *config, int32_t id);

#endif
