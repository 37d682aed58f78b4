/* config_quant.c: see config_quant.h. What is accepted stands in tables: a field and the JSON
 * values it may have, as compact JSON text; a missing field is null. */
#include "formats/config_quant.h"
#include "base/log.h"
#include "base/size.h"

#include <stdio.h>

enum { MAX_VALUES = 5, MAX_PATH = 160 };

struct rule {
    const char *field;
    const char *values[MAX_VALUES]; /* ends with NULL */
};

#define ANY_INT                                                                                    \
    {                                                                                              \
        "\"int\"", "null"                                                                          \
    }
#define SYMMETRIC                                                                                  \
    {                                                                                              \
        "true", "null"                                                                             \
    }
/* Columns sorted by activation were brought back in order when the file was written, unless there
 * is an index of groups. */
#define NO_ORDER                                                                                   \
    {                                                                                              \
        "null", "\"weight\"", "\"static\"", "false"                                                \
    }

static const struct rule top_rules[] = {
    {"format", {"\"int-quantized\"", "\"pack-quantized\"", "\"mixed-precision\""}},
    {"quantization_status", {"\"compressed\"", "\"frozen\"", "null"}},
    {"kv_cache_scheme", {"null"}},
    {"sparsity_config", {"null", "{}"}},
    {"transform_config", {"null", "{}"}},
    {"moe_sparsity_config", {"null"}},
    {0},
};

static const struct rule weight8_rules[] = {
    {"type", ANY_INT},
    {"symmetric", SYMMETRIC},
    {"strategy", {"\"channel\"", "\"tensor\""}},
    {"dynamic", {"false", "null"}},
    {"block_structure", {"null"}},
    {"actorder", NO_ORDER},
    {0},
};

static const struct rule weight4_rules[] = {
    {"type", ANY_INT},
    {"symmetric", SYMMETRIC},
    {"strategy", {"\"group\"", "\"channel\""}},
    {"dynamic", {"false", "null"}},
    {"block_structure", {"null"}},
    {"actorder", NO_ORDER},
    {0},
};

static const struct rule activation_rules[] = {
    {"num_bits", {"8", "null"}}, {"type", ANY_INT},     {"symmetric", SYMMETRIC},
    {"strategy", {"\"token\""}}, {"dynamic", {"true"}}, {0},
};

static const struct rule bits_rules[] = {{"num_bits", {"4", "8", "null"}}, {0}};
static const struct rule no_output_rules[] = {{"output_activations", {"null"}}, {0}};
static const struct rule format8_rules[] = {{"format", {"\"int-quantized\""}}, {0}};
static const struct rule format4_rules[] = {{"format", {"\"pack-quantized\""}}, {0}};

static enum phi_status refuse(const struct rule *r, const char *value, const char *path,
                              struct phi_error *err)
{
    char accepted[200] = "";
    size_t n = 0;
    for (int i = 0; i < MAX_VALUES && r->values[i] && n < sizeof accepted; i++)
        n += (size_t)snprintf(accepted + n, sizeof accepted - n, "%s%s", i ? ", " : "",
                              r->values[i]);
    return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s.%s: %.80s is not supported (supported: %s)", path,
                    r->field, value, accepted);
}

static enum phi_status check_rule(const json_t *obj, const struct rule *r, const char *path,
                                  struct phi_error *err)
{
    const json_t *value = json_object_get(obj, r->field);
    struct phi_buf text = {0};
    if (value)
        phi_json_dump(value, JSON_COMPACT | JSON_ENCODE_ANY, &text);
    else
        phi_buf_append_c(&text, "null");
    bool found = false;
    for (int i = 0; i < MAX_VALUES && r->values[i] && !found; i++)
        found = phi_str_eq_c(phi_buf_str(&text), r->values[i]);
    enum phi_status status = text.failed ? phi_fail_memory(err, "a JSON value", text.n)
                             : found     ? PHI_OK
                                         : refuse(r, text.data, path, err);
    phi_buf_deinit(&text);
    return status;
}

static enum phi_status check(const json_t *obj, const struct rule *rules, const char *path,
                             struct phi_error *err)
{
    for (; rules->field; rules++)
        PHI_TRY(check_rule(obj, rules, path, err));
    return PHI_OK;
}

/* An object below `obj`, and its path. */
static enum phi_status enter(const json_t *obj, const char *field, const char *path,
                             const json_t **out, char out_path[MAX_PATH], struct phi_error *err)
{
    snprintf(out_path, MAX_PATH, "%.100s.%.40s", path, field);
    *out = phi_json_field(obj, field);
    if (*out && !json_is_object(*out))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", out_path);
    return PHI_OK;
}

static enum phi_status check_group(const json_t *q, const json_t *group, const char *path,
                                   bool *w4a16, struct phi_error *err)
{
    char weights_path[MAX_PATH], input_path[MAX_PATH];
    const json_t *weights, *input;
    PHI_TRY(enter(group, "weights", path, &weights, weights_path, err));
    PHI_TRY(enter(group, "input_activations", path, &input, input_path, err));
    if (!weights)
        return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: null is not supported", weights_path);
    PHI_TRY(check(group, no_output_rules, path, err));
    PHI_TRY(check(weights, bits_rules, weights_path, err));
    const json_t *bits = phi_json_field(weights, "num_bits");
    const bool four = json_integer_value(bits) == 4;
    PHI_TRY(check(weights, four ? weight4_rules : weight8_rules, weights_path, err));
    if (input)
        PHI_TRY(check(input, activation_rules, input_path, err));
    else if (!four)
        return phi_fail(err, PHI_ERR_UNSUPPORTED,
                        "%s: null with 8-bit weights is not supported (supported: W8A8 with "
                        "dynamic int8 activations per token)",
                        input_path);
    *w4a16 |= !input;
    const json_t *of = phi_json_field(group, "format") ? group : q;
    return check(of, four ? format4_rules : format8_rules,
                 of == group ? path : "quantization_config", err);
}

static enum phi_status check_groups(const json_t *q, const char *path, bool *w4a16,
                                    struct phi_error *err)
{
    const json_t *groups;
    char groups_path[MAX_PATH];
    PHI_TRY(enter(q, "config_groups", path, &groups, groups_path, err));
    if (!groups || json_object_size(groups) == 0)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: missing or empty", groups_path);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)groups, key, value)
    {
        const json_t *group;
        char group_path[MAX_PATH];
        PHI_TRY(enter(groups, key, groups_path, &group, group_path, err));
        if (!group)
            return phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", group_path);
        PHI_TRY(check_group(q, group, group_path, w4a16, err));
    }
    return PHI_OK;
}

enum phi_status phi_config_read_quantization(const json_t *root, const char *name,
                                             struct phi_config *out, struct phi_error *err)
{
    static const char path[] = "quantization_config";
    const json_t *q = phi_json_field(root, path);
    if (!q)
        return PHI_OK;
    struct phi_str method = PHI_STR("?");
    if (json_is_object(q))
        PHI_TRY(phi_json_get_str(q, name, "quant_method", &method, err));
    if (!phi_str_eq_c(method, "compressed-tensors"))
        return phi_fail(err, PHI_ERR_UNSUPPORTED,
                        "%s: quantization_config: quant_method \"%.*s\" is not supported "
                        "(supported: compressed-tensors, or weights in float32, bfloat16 or "
                        "float16 without quantization_config)",
                        name, (int)phi_size_min(method.n, 64), method.data);
    struct phi_error local;
    bool w4a16 = false;
    enum phi_status status = check(q, top_rules, path, &local);
    if (status == PHI_OK)
        status = check_groups(q, path, &w4a16, &local);
    if (status != PHI_OK)
        return phi_fail(err, status, "%s: %s", name, local.text);
    out->quantized = true;
    if (w4a16)
        phi_log(PHI_LOG_INFO,
                "%s: quantization_config: W4A16 runs as w4a8: activations of the 4-bit layers are "
                "made int8, token by token",
                name);
    return PHI_OK;
}
