/* config.c: see config.h.
 *
 * One table of dimensions per architecture holds names, defaults and bounds; the checks that
 * involve two fields follow it. The rotary part is in config_rope.c. Defaults are those of
 * PhiConfig and Phi3Config in transformers 5.24. */
#include "formats/config.h"
#include "base/file.h"
#include "base/log.h"
#include "base/size.h"
#include "formats/config_quant.h"
#include "formats/config_rope.h"
#include "formats/json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum { MAX_CONFIG_BYTES = 16 << 20 };

#define SUPPORTED_TYPES "phi, phi-msft and phi3"

/* --- which model is it --- */

/* phi-msft (and mixformer-sequential before it) is the form that phi-1, 1.5 and 2 were first
 * published in: the same model, other key names. */
static bool is_msft(const struct phi_config *c)
{
    return strcmp(c->model_type, "phi-msft") == 0 ||
           strcmp(c->model_type, "mixformer-sequential") == 0;
}

/* Copies a short string of the file into a field of the struct; longer ones are cut, which is fine
 * for names that are only compared with short ones. A NUL inside ends it. */
static void copy_name(char *out, size_t out_bytes, struct phi_str s)
{
    snprintf(out, out_bytes, "%.*s", (int)phi_size_min(s.n, out_bytes), s.n ? s.data : "");
}

static enum phi_status read_architecture(const json_t *root, const char *name,
                                         struct phi_config *out, struct phi_error *err)
{
    const json_t *list = phi_json_field(root, "architectures");
    if (!list)
        return PHI_OK;
    const json_t *first = json_array_get(list, 0);
    if (!json_is_array(list) || (json_array_size(list) > 0 && !json_is_string(first)))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: architectures: expected an array of strings",
                        name);
    if (first)
        copy_name(out->architecture, sizeof out->architecture, phi_json_str(first));
    return PHI_OK;
}

/* A name the architecture must have; absent is fine. */
static enum phi_status require_architecture(const char *name, const struct phi_config *c,
                                            const char *wanted, struct phi_error *err)
{
    if (c->architecture[0] == '\0' || strcmp(c->architecture, wanted) == 0)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_UNSUPPORTED,
                    "%s: architectures: %s with model_type %s is not supported (expected %s)", name,
                    c->architecture, c->model_type, wanted);
}

static enum phi_status refuse_model_type(const char *name, const struct phi_config *c,
                                         struct phi_error *err)
{
    /* Fine-tunes of Phi-3 and Phi-4 are often re-saved under another family's names. */
    if (strcmp(c->model_type, "llama") == 0 || strcmp(c->model_type, "mistral") == 0)
        return phi_fail(
            err, PHI_ERR_UNSUPPORTED,
            "%s: architectures: %s (model_type %s) is not supported; if the weights are "
            "Phi-shaped (a Phi-3 or Phi-4 saved under Llama's names), set model_type to "
            "phi3 and architectures to Phi3ForCausalLM",
            name, c->architecture, c->model_type);
    return phi_fail(err, PHI_ERR_UNSUPPORTED,
                    "%s: model_type: \"%s\" is not supported (supported: " SUPPORTED_TYPES ")",
                    name, c->model_type);
}

static enum phi_status read_identity(const json_t *root, const char *name, struct phi_config *out,
                                     struct phi_error *err)
{
    struct phi_str type = {0};
    PHI_TRY(phi_json_get_str(root, name, "model_type", &type, err));
    PHI_TRY(read_architecture(root, name, out, err));
    if (type.n == 0 && strcmp(out->architecture, "PhiForCausalLM") == 0)
        type = PHI_STR("phi");
    else if (type.n == 0 && strcmp(out->architecture, "Phi3ForCausalLM") == 0)
        type = PHI_STR("phi3");
    else if (type.n == 0)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: model_type: missing", name);
    copy_name(out->model_type, sizeof out->model_type, type);

    if (strcmp(out->model_type, "phi3") == 0) {
        out->arch = PHI_ARCH_PHI3;
        return require_architecture(name, out, "Phi3ForCausalLM", err);
    }
    out->arch = PHI_ARCH_PHI;
    if (strcmp(out->model_type, "mixformer-sequential") == 0)
        return require_architecture(name, out, "MixFormerSequentialForCausalLM", err);
    if (strcmp(out->model_type, "phi") == 0 || is_msft(out))
        return require_architecture(name, out, "PhiForCausalLM", err);
    return refuse_model_type(name, out, err);
}

/* --- dimensions --- */

/* In place of a default: the published phi-msft classes disagree, so the file must say. */
enum { REQUIRED = -1 };

struct dimension {
    const char *field;
    const char *msft_field; /* its name in phi-msft files */
    int64_t max;
    int phi, phi3, msft; /* defaults; 0 is resolved afterwards */
    size_t offset;       /* of an int in struct phi_config */
};

#define AT(member) offsetof(struct phi_config, member)

/* The upper bounds are far above any model and keep every product of two of them, and a KV row,
 * within a size_t; n_heads * head_dim fits an int. */
static const struct dimension dimensions[] = {
    {"vocab_size", "vocab_size", 1 << 24, 51200, 32064, REQUIRED, AT(vocab_size)},
    {"hidden_size", "n_embd", 1 << 18, 2048, 3072, REQUIRED, AT(hidden_size)},
    {"intermediate_size", "n_inner", 1 << 20, 8192, 8192, 0, AT(intermediate_size)},
    {"num_hidden_layers", "n_layer", 4096, 24, 32, REQUIRED, AT(n_layers)},
    {"num_attention_heads", "n_head", 4096, 32, 32, REQUIRED, AT(n_heads)},
    {"num_key_value_heads", "n_head_kv", 4096, 0, 0, 0, AT(n_kv_heads)},
    {"max_position_embeddings", "n_positions", 1 << 26, 2048, 4096, 2048,
     AT(max_position_embeddings)},
    {"head_dim", "head_dim", 512, 0, 0, 0, AT(head_dim)},
};

static enum phi_status read_dimensions(const json_t *root, const char *name, struct phi_config *out,
                                       struct phi_error *err)
{
    const bool msft = is_msft(out);
    for (size_t i = 0; i < sizeof dimensions / sizeof *dimensions; i++) {
        const struct dimension *d = &dimensions[i];
        const char *field = msft ? d->msft_field : d->field;
        int64_t value = msft ? d->msft : out->arch == PHI_ARCH_PHI3 ? d->phi3 : d->phi;
        if (value == REQUIRED && !phi_json_field(root, field))
            return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: missing", name, field);
        PHI_TRY(phi_json_get_int(root, name, field, 1, d->max, &value, err));
        *(int *)((char *)out + d->offset) = (int)value;
    }
    if (out->intermediate_size == 0)
        out->intermediate_size = 4 * out->hidden_size;
    if (out->n_kv_heads == 0)
        out->n_kv_heads = out->n_heads;
    return PHI_OK;
}

/* phi-msft rounds the embedding up and states the rotary dimensions instead of a fraction. */
static enum phi_status read_msft_extras(const json_t *root, const char *name,
                                        struct phi_config *out, struct phi_error *err)
{
    int64_t multiple = 64, rotary_dim = 32;
    PHI_TRY(phi_json_get_int(root, name, "pad_vocab_size_multiple", 1, 1 << 20, &multiple, err));
    PHI_TRY(phi_json_get_int(root, name, "rotary_dim", 2, 512, &rotary_dim, err));
    out->vocab_size = (int)((out->vocab_size + multiple - 1) / multiple * multiple);
    out->rotary_dim = (int)rotary_dim < out->head_dim ? (int)rotary_dim : out->head_dim;
    return PHI_OK;
}

static enum phi_status check_heads(const char *name, struct phi_config *out, struct phi_error *err)
{
    const bool msft = is_msft(out);
    const char *heads = msft ? "n_head" : "num_attention_heads";
    if (out->head_dim == 0) {
        const char *hidden = msft ? "n_embd" : "hidden_size";
        if (out->hidden_size % out->n_heads != 0)
            return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: %d is not a multiple of %s %d", name,
                            hidden, out->hidden_size, heads, out->n_heads);
        out->head_dim = out->hidden_size / out->n_heads;
    }
    if (out->n_heads % out->n_kv_heads != 0)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: %d is not a multiple of %s %d", name, heads,
                        out->n_heads, msft ? "n_head_kv" : "num_key_value_heads", out->n_kv_heads);
    if (out->head_dim % 8 != 0 || out->head_dim > 512)
        return phi_fail(err, PHI_ERR_UNSUPPORTED,
                        "%s: head_dim: %d is not a multiple of 8 up to 512", name, out->head_dim);
    return PHI_OK;
}

/* --- scalars and switches --- */

/* Fields that would change the computation and are not implemented: they must be false. */
static enum phi_status refuse_switches(const json_t *root, const char *name, struct phi_error *err)
{
    static const char *const fields[] = {"mlp_bias", "lm_head_bias"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        bool value = false;
        PHI_TRY(phi_json_get_bool(root, name, fields[i], &value, err));
        if (value)
            return phi_fail(err, PHI_ERR_UNSUPPORTED,
                            "%s: %s: true is not supported for model_type phi3", name, fields[i]);
    }
    return PHI_OK;
}

static enum phi_status read_activation(const json_t *root, const char *name,
                                       const struct phi_config *c, struct phi_error *err)
{
    const bool phi3 = c->arch == PHI_ARCH_PHI3;
    const char *field = is_msft(c) ? "activation_function" : "hidden_act";
    struct phi_str act = phi3 ? PHI_STR("silu") : PHI_STR("gelu_new");
    PHI_TRY(phi_json_get_str(root, name, field, &act, err));
    /* The second name of each pair is another name for the same formula. */
    bool known = phi3 ? phi_str_eq_c(act, "silu") || phi_str_eq_c(act, "swish")
                      : phi_str_eq_c(act, "gelu_new") || phi_str_eq_c(act, "gelu_pytorch_tanh");
    if (known)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: %s: \"%.*s\" is not supported (supported: %s)",
                    name, field, (int)phi_size_min(act.n, 64), act.data,
                    phi3 ? "silu, swish" : "gelu_new, gelu_pytorch_tanh");
}

static enum phi_status read_dtype(const json_t *root, const char *name, struct phi_config *out,
                                  struct phi_error *err)
{
    const char *field = phi_json_field(root, "dtype") ? "dtype" : "torch_dtype";
    struct phi_str s = PHI_STR("auto");
    char text[32];
    PHI_TRY(phi_json_get_str(root, name, field, &s, err));
    if (phi_str_starts_with(s, PHI_STR("torch.")))
        s = (struct phi_str){s.data + 6, s.n - 6};
    copy_name(text, sizeof text, s);
    if (phi_dtype_parse(text, &out->dtype))
        return PHI_OK;
    return phi_fail(err, PHI_ERR_UNSUPPORTED,
                    "%s: %s: \"%s\" is not supported (supported: float32, bfloat16, float16)", name,
                    field, text);
}

static enum phi_status read_eps(const json_t *root, const char *name, struct phi_config *out,
                                struct phi_error *err)
{
    const char *field = is_msft(out)                 ? "layer_norm_epsilon"
                        : out->arch == PHI_ARCH_PHI3 ? "rms_norm_eps"
                                                     : "layer_norm_eps";
    out->norm_eps = 1e-5;
    PHI_TRY(phi_json_get_number(root, name, field, &out->norm_eps, err));
    if (!(out->norm_eps > 0 && out->norm_eps < 1))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: %g is not between 0 and 1", name, field,
                        out->norm_eps);
    return PHI_OK;
}

static enum phi_status read_scalars(const json_t *root, const char *name, struct phi_config *out,
                                    struct phi_error *err)
{
    PHI_TRY(read_activation(root, name, out, err));
    PHI_TRY(read_eps(root, name, out, err));
    PHI_TRY(read_dtype(root, name, out, err));
    PHI_TRY(phi_json_get_bool(root, name, "tie_word_embeddings", &out->tie_word_embeddings, err));
    if (out->arch == PHI_ARCH_PHI)
        return phi_json_get_bool(root, name, "qk_layernorm", &out->qk_layernorm, err);

    int64_t window = 0;
    PHI_TRY(refuse_switches(root, name, err));
    PHI_TRY(phi_json_get_bool(root, name, "attention_bias", &out->attention_bias, err));
    PHI_TRY(phi_json_get_int(root, name, "sliding_window", 1, INT_MAX, &window, err));
    out->sliding_window = (int)window;
    return PHI_OK;
}

/* --- token ids and generation_config.json --- */

bool phi_config_add_stop_id(struct phi_config *config, int32_t id)
{
    if (id < 0 || id >= config->vocab_size)
        return true; /* never generated, so there is nothing to stop at */
    for (int i = 0; i < config->n_stop_ids; i++)
        if (config->stop_ids[i] == id)
            return true;
    if (config->n_stop_ids == PHI_MAX_STOP_IDS)
        return false;
    config->stop_ids[config->n_stop_ids++] = id;
    return true;
}

static enum phi_status add_stop_value(const json_t *v, const char *name, struct phi_config *out,
                                      struct phi_error *err)
{
    int64_t id = json_integer_value(v);
    if (!json_is_integer(v) || id < -1 || id > INT32_MAX)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: eos_token_id: expected a token id or an array of token ids", name);
    if (id >= out->vocab_size)
        phi_log(PHI_LOG_WARNING, "%s: eos_token_id: %lld is outside the vocabulary of %d; ignored",
                name, (long long)id, out->vocab_size);
    if (!phi_config_add_stop_id(out, (int32_t)id))
        return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: eos_token_id: more than %d stop ids", name,
                        PHI_MAX_STOP_IDS);
    return PHI_OK;
}

/* eos_token_id is an integer or a list; the order carries no meaning. */
static enum phi_status read_stop_ids(const json_t *obj, const char *name, struct phi_config *out,
                                     struct phi_error *err)
{
    const json_t *v = phi_json_field(obj, "eos_token_id");
    if (!v)
        return PHI_OK;
    if (!json_is_array(v))
        return add_stop_value(v, name, out, err);
    for (size_t i = 0; i < json_array_size(v); i++)
        PHI_TRY(add_stop_value(json_array_get(v, i), name, out, err));
    return PHI_OK;
}

static enum phi_status read_token_id(const json_t *obj, const char *name, const char *field,
                                     int *out, struct phi_error *err)
{
    int64_t id = *out;
    PHI_TRY(phi_json_get_int(obj, name, field, -1, INT32_MAX, &id, err));
    *out = (int)id;
    return PHI_OK;
}

/* Ids of config.json. A key that is missing (not null: that means none) has its class's default;
 * for the stop id only while no generation_config.json speaks instead, as in transformers. */
static enum phi_status read_token_ids(const json_t *root, const char *name, bool has_generation,
                                      struct phi_config *out, struct phi_error *err)
{
    const bool phi3 = out->arch == PHI_ARCH_PHI3;
    out->bos_token_id = json_object_get(root, "bos_token_id") || is_msft(out) ? -1 : 1;
    out->pad_token_id = json_object_get(root, "pad_token_id") || !phi3 ? -1 : 32000;
    PHI_TRY(read_token_id(root, name, "bos_token_id", &out->bos_token_id, err));
    PHI_TRY(read_token_id(root, name, "pad_token_id", &out->pad_token_id, err));
    if (!json_object_get(root, "eos_token_id") && !has_generation && !is_msft(out))
        phi_config_add_stop_id(out, phi3 ? 32000 : 2);
    return read_stop_ids(root, name, out, err);
}

static enum phi_status get_bounded(const json_t *obj, const char *name, const char *field,
                                   double lo, double hi, double *out, bool *has,
                                   struct phi_error *err)
{
    if (!phi_json_field(obj, field))
        return PHI_OK;
    *has = true;
    PHI_TRY(phi_json_get_number(obj, name, field, out, err));
    if (!(*out >= lo && *out <= hi))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: %g is not between %g and %g", name, field,
                        *out, lo, hi);
    return PHI_OK;
}

static enum phi_status get_count(const json_t *obj, const char *name, const char *field, int lo,
                                 int *out, bool *has, struct phi_error *err)
{
    int64_t value = 0;
    if (!phi_json_field(obj, field))
        return PHI_OK;
    *has = true;
    PHI_TRY(phi_json_get_int(obj, name, field, lo, INT_MAX, &value, err));
    *out = (int)value;
    return PHI_OK;
}

enum phi_status phi_generation_read(const json_t *g, const char *name, struct phi_generation *out,
                                    struct phi_error *err)
{
    out->has_do_sample = out->has_do_sample || phi_json_field(g, "do_sample") != NULL;
    PHI_TRY(phi_json_get_bool(g, name, "do_sample", &out->do_sample, err));
    PHI_TRY(get_bounded(g, name, "temperature", 0, 1000, &out->temperature, &out->has_temperature,
                        err));
    PHI_TRY(get_bounded(g, name, "top_p", 0, 1, &out->top_p, &out->has_top_p, err));
    PHI_TRY(get_bounded(g, name, "min_p", 0, 1, &out->min_p, &out->has_min_p, err));
    PHI_TRY(get_bounded(g, name, "repetition_penalty", 1e-6, 1e6, &out->repetition_penalty,
                        &out->has_repetition_penalty, err));
    PHI_TRY(get_count(g, name, "top_k", -1, &out->top_k, &out->has_top_k, err));
    return get_count(g, name, "max_new_tokens", 0, &out->max_new_tokens, &out->has_max_new_tokens,
                     err);
}

void phi_generation_apply(const struct phi_generation *g, struct phi_sampling *s)
{
    if (g->has_temperature)
        s->temperature = g->temperature;
    if (g->has_top_p)
        s->top_p = g->top_p;
    if (g->has_top_k)
        s->top_k = g->top_k;
    if (g->has_min_p)
        s->min_p = g->min_p;
    if (g->has_repetition_penalty)
        s->repetition_penalty = g->repetition_penalty;
    if (g->has_max_new_tokens)
        s->max_tokens = g->max_new_tokens;
}

static enum phi_status read_generation(const json_t *g, const char *name, struct phi_config *out,
                                       struct phi_error *err)
{
    PHI_TRY(read_stop_ids(g, name, out, err));
    PHI_TRY(read_token_id(g, name, "bos_token_id", &out->bos_token_id, err));
    PHI_TRY(read_token_id(g, name, "pad_token_id", &out->pad_token_id, err));
    return phi_generation_read(g, name, &out->generation, err);
}

/* --- entry points --- */

static enum phi_status read_model(const json_t *root, const char *name, bool has_generation,
                                  struct phi_config *out, struct phi_error *err)
{
    if (!json_is_object(root))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", name);
    PHI_TRY(read_identity(root, name, out, err));
    PHI_TRY(phi_config_read_quantization(root, name, out, err));
    PHI_TRY(read_dimensions(root, name, out, err));
    PHI_TRY(check_heads(name, out, err));
    if (is_msft(out))
        PHI_TRY(read_msft_extras(root, name, out, err));
    PHI_TRY(phi_config_read_rope(root, name, out, err));
    PHI_TRY(read_scalars(root, name, out, err));
    return read_token_ids(root, name, has_generation, out, err);
}

static enum phi_status parse(struct phi_str config, const char *name, struct phi_str generation,
                             const char *generation_name, struct phi_config *out,
                             struct phi_error *err)
{
    json_t *root = NULL, *g = NULL;
    *out = (struct phi_config){.bos_token_id = -1, .pad_token_id = -1};
    enum phi_status status = phi_json_parse(config, name, &root, err);
    if (status == PHI_OK && generation.n > 0)
        status = phi_json_parse(generation, generation_name, &g, err);
    if (status == PHI_OK && g && !json_is_object(g))
        status = phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", generation_name);
    if (status == PHI_OK)
        status = read_model(root, name, g != NULL, out, err);
    if (status == PHI_OK && g)
        status = read_generation(g, generation_name, out, err);
    json_decref(g);
    json_decref(root);
    return status;
}

enum phi_status phi_config_parse(struct phi_str config, struct phi_str generation, const char *name,
                                 struct phi_config *out, struct phi_error *err)
{
    return parse(config, name, generation, "generation_config.json", out, err);
}

/* Reads both files into the buffers and parses them; the caller frees the buffers. */
static enum phi_status read_files(const char *dir, struct phi_buf path[2], struct phi_buf text[2],
                                  struct phi_config *out, struct phi_error *err)
{
    if (!phi_path_join(&path[0], dir, "config.json") ||
        !phi_path_join(&path[1], dir, "generation_config.json"))
        return phi_fail_memory(err, "a path", strlen(dir));
    PHI_TRY(phi_file_read(path[0].data, MAX_CONFIG_BYTES, &text[0], err));
    if (phi_file_exists(path[1].data)) {
        PHI_TRY(phi_file_read(path[1].data, MAX_CONFIG_BYTES, &text[1], err));
        if (text[1].n == 0)
            return phi_fail(err, PHI_ERR_FORMAT, "%s: is empty", path[1].data);
    }
    return parse(phi_buf_str(&text[0]), path[0].data, phi_buf_str(&text[1]), path[1].data, out,
                 err);
}

enum phi_status phi_config_read(const char *dir, struct phi_config *out, struct phi_error *err)
{
    struct phi_buf path[2] = {{0}}, text[2] = {{0}};
    enum phi_status status = read_files(dir, path, text, out, err);
    for (int i = 0; i < 2; i++) {
        phi_buf_deinit(&path[i]);
        phi_buf_deinit(&text[i]);
    }
    return status;
}
