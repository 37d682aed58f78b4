/* cost.c: see cost.h. */
#include "cli/bench/cost.h"
#include "base/dtype.h"

/* Weights of one layer's matrices: those that make queries, keys and values, and all. */
static double qkv_weights(const struct phi_config *c)
{
    return (double)c->hidden_size * (c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
}

static double layer_weights(const struct phi_config *c)
{
    double hidden = c->hidden_size;
    int n_mlp = c->arch == PHI_ARCH_PHI3 ? 3 : 2; /* gate, up and down, or fc1 and fc2 */
    return qkv_weights(c) + hidden * c->n_heads * c->head_dim + n_mlp * hidden * c->intermediate_size;
}

/* Bytes of the table of embeddings, of which a step reads but a row for each token. It stays as in
 * the file unless the run's type is narrower. */
static double embedding_bytes(const struct phi_model_info *m)
{
    size_t file = phi_dtype_bytes(m->file_dtype), run = phi_dtype_bytes(m->dtype);
    return (double)m->vocab_size * m->hidden_size * (double)(file < run ? file : run);
}

static enum phi_limit best_arithmetic(const struct phi_model_info *m,
                                      const struct phi_limits *limits)
{
    if (m->quantization != PHI_UNQUANTIZED)
        return m->quantization == PHI_W8A8 ? PHI_LIMIT_INT8 : PHI_LIMIT_INT4;
    return m->dtype == PHI_BFLOAT16 && phi_limits_have_bf16(limits) ? PHI_LIMIT_BF16
                                                                    : PHI_LIMIT_FMA;
}

const char *bench_cost_arithmetic(const struct bench_cost *c)
{
    return c->arithmetic == PHI_LIMIT_INT8   ? "int8"
           : c->arithmetic == PHI_LIMIT_INT4 ? "int4"
           : c->arithmetic == PHI_LIMIT_BF16 ? "bfloat16"
                                             : "float32";
}

enum phi_status bench_cost_init(struct bench_cost *c, const char *folder, bool own_head,
                                const struct phi_model_info *model,
                                const struct phi_engine_info *engine,
                                const struct phi_limits *limits, struct phi_error *err)
{
    struct phi_config config;
    PHI_TRY(phi_config_read(folder, &config, err));
    *c = (struct bench_cost){
        .step_bytes = (double)(model->weight_bytes + model->converted_bytes),
        .kv_bytes_per_token = (double)engine->kv_bytes_per_token,
        .token_flops = 2 * layer_weights(&config) * config.n_layers,
        .pair_flops = 4.0 * config.n_heads * config.head_dim * config.n_layers,
        .last_flops = 2 * (layer_weights(&config) - qkv_weights(&config)),
        .head_flops = 2.0 * config.vocab_size * config.hidden_size,
        .n_layers = config.n_layers,
        .window = config.sliding_window,
        .arithmetic = best_arithmetic(model, limits),
    };
    if (own_head || !config.tie_word_embeddings) /* else the head reads that table */
        c->step_bytes -= embedding_bytes(model);
    return PHI_OK;
}

/* Keys that a query at the end of n tokens looks at. */
static double keys_of(const struct bench_cost *c, int n)
{
    return c->window > 0 && n > c->window ? c->window : n;
}

double bench_cost_decode_bytes(const struct bench_cost *c, int n_answers, int input_len,
                               int output_len)
{
    double keys = 0;
    for (int i = 1; i < output_len; i++) /* the step that makes token i reads i - 1 before it */
        keys += keys_of(c, input_len + i);
    double mean = output_len > 1 ? keys / (output_len - 1) : keys_of(c, input_len);
    return c->step_bytes / n_answers + mean * c->kv_bytes_per_token;
}

/* Pairs of a query of the prompt and a key that it sees. */
static double pairs_of(const struct bench_cost *c, int input_len)
{
    double pairs = 0;
    for (int i = 1; i <= input_len; i++)
        pairs += keys_of(c, i);
    return pairs;
}

double bench_cost_prefill_flops(const struct bench_cost *c, int input_len)
{
    return c->token_flops * input_len + c->pair_flops * pairs_of(c, input_len) + c->head_flops;
}

double bench_cost_skipped_flops(const struct bench_cost *c, int input_len)
{
    double pairs = pairs_of(c, input_len) - keys_of(c, input_len);
    return c->last_flops * (input_len - 1) + c->pair_flops / c->n_layers * pairs;
}
