/* config_rope.c: see config_rope.h.
 *
 * The parameters sit either at the top level (rope_theta, partial_rotary_factor) or in one object
 * named rope_scaling (older files) or rope_parameters (newer files); inside wins. The one exception
 * is original_max_position_embeddings, where the top level wins. */
#include "formats/config_rope.h"
#include "base/size.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

/* Where a field of the rotary part is looked up. */
struct rope_source {
    const json_t *root;
    const char *name;         /* the file, for errors */
    const json_t *dict;       /* rope_scaling or rope_parameters; NULL when neither is given */
    const char *dict_name;    /* its key */
    char dict_path[256 + 32]; /* "file: key", the prefix of errors inside it */
};

static enum phi_status find_dict(struct rope_source *s, struct phi_error *err)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    s->dict_name = keys[0];
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !s->dict; i++) {
        const json_t *v = phi_json_field(s->root, keys[i]);
        if (!v)
            continue;
        if (!json_is_object(v))
            return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: expected an object or null", s->name,
                            keys[i]);
        if (json_object_size(v) == 0)
            continue; /* {} is as good as absent, as it is in transformers */
        s->dict = v;
        s->dict_name = keys[i];
    }
    snprintf(s->dict_path, sizeof s->dict_path, "%.256s: %s", s->name, s->dict_name);
    return PHI_OK;
}

/* A positive finite number of the dict; *out keeps its value when absent. */
static enum phi_status dict_positive(const struct rope_source *s, const char *field, double *out,
                                     struct phi_error *err)
{
    double value = *out;
    PHI_TRY(phi_json_get_number(s->dict, s->dict_path, field, &value, err));
    if (s->dict && phi_json_field(s->dict, field) && !(value > 0 && isfinite(value)))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: %g is not a positive number", s->dict_path,
                        field, value);
    *out = value;
    return PHI_OK;
}

/* The same from the dict or else from the top level. */
static enum phi_status any_positive(const struct rope_source *s, const char *field, double *out,
                                    struct phi_error *err)
{
    struct rope_source top = {.root = s->root, .name = s->name, .dict = s->root};
    snprintf(top.dict_path, sizeof top.dict_path, "%.256s", s->name);
    PHI_TRY(dict_positive(&top, field, out, err));
    return dict_positive(s, field, out, err);
}

/* The name of the rope type, checked against what this architecture computes. phi3 has always read
 * "su" and "yarn" as longrope (Phi3Config renames them). */
static enum phi_status read_type(const struct rope_source *s, struct phi_config *out,
                                 struct phi_error *err)
{
    struct phi_str type = PHI_STR("default");
    const char *field = s->dict && phi_json_field(s->dict, "rope_type") ? "rope_type" : "type";
    PHI_TRY(phi_json_get_str(s->dict, s->dict_path, field, &type, err));
    if (phi_str_eq_c(type, "default")) {
        out->rope_type = PHI_ROPE_DEFAULT;
        return PHI_OK;
    }
    if (out->arch == PHI_ARCH_PHI3) {
        if (phi_str_eq_c(type, "longrope") || phi_str_eq_c(type, "su") ||
            phi_str_eq_c(type, "yarn")) {
            out->rope_type = PHI_ROPE_LONGROPE;
            return PHI_OK;
        }
    } else if (phi_str_eq_c(type, "linear")) {
        out->rope_type = PHI_ROPE_LINEAR;
        return PHI_OK;
    } else if (phi_str_eq_c(type, "dynamic")) {
        out->rope_type = PHI_ROPE_DYNAMIC;
        return PHI_OK;
    } else if (phi_str_eq_c(type, "yarn")) {
        out->rope_type = PHI_ROPE_YARN;
        return PHI_OK;
    }
    const char *supported =
        out->arch == PHI_ARCH_PHI3 ? "default, longrope" : "default, linear, dynamic, yarn";
    return phi_fail(err, PHI_ERR_UNSUPPORTED,
                    "%s: %s: \"%.*s\" is not supported for model_type %s (supported: %s)",
                    s->dict_path, field, (int)phi_size_min(type.n, 64), type.data, out->model_type,
                    supported);
}

static enum phi_status read_original_length(const struct rope_source *s, struct phi_config *out,
                                            struct phi_error *err)
{
    static const char field[] = "original_max_position_embeddings";
    /* Phi3Config has a default of its own, which counts as a top-level value. */
    int64_t length = out->arch == PHI_ARCH_PHI3 ? 4096 : out->max_position_embeddings;
    if (out->arch != PHI_ARCH_PHI3)
        PHI_TRY(phi_json_get_int(s->dict, s->dict_path, field, 1, INT_MAX, &length, err));
    PHI_TRY(phi_json_get_int(s->root, s->name, field, 1, INT_MAX, &length, err));
    out->original_max_position_embeddings = (int)length;
    return PHI_OK;
}

static enum phi_status read_factor_list(const struct rope_source *s, const char *field,
                                        size_t expected, double *out, struct phi_error *err)
{
    const json_t *list = phi_json_field(s->dict, field);
    if (!list)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: missing (longrope needs %zu factors)",
                        s->dict_path, field, expected);
    if (!json_is_array(list))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: expected an array of numbers", s->dict_path,
                        field);
    if (json_array_size(list) != expected)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: %s: found %zu factors, expected %zu (half of the rotary dimensions)",
                        s->dict_path, field, json_array_size(list), expected);
    for (size_t i = 0; i < expected; i++) {
        const json_t *v = json_array_get(list, i);
        double value = json_number_value(v);
        if (!json_is_number(v) || !(value > 0 && isfinite(value)))
            return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: element %zu is not a positive number",
                            s->dict_path, field, i);
        out[i] = value;
    }
    return PHI_OK;
}

/* YaRN's magnitude (arXiv:2309.00071, equation 22, generalised by mscale). */
static double yarn_magnitude(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static enum phi_status read_yarn(const struct rope_source *s, struct phi_config *out,
                                 struct phi_error *err)
{
    double mscale = 0, mscale_all_dim = 0;
    out->yarn_beta_fast = 32;
    out->yarn_beta_slow = 1;
    out->yarn_truncate = true;
    PHI_TRY(dict_positive(s, "beta_fast", &out->yarn_beta_fast, err));
    PHI_TRY(dict_positive(s, "beta_slow", &out->yarn_beta_slow, err));
    PHI_TRY(phi_json_get_bool(s->dict, s->dict_path, "truncate", &out->yarn_truncate, err));
    PHI_TRY(phi_json_get_number(s->dict, s->dict_path, "mscale", &mscale, err));
    PHI_TRY(phi_json_get_number(s->dict, s->dict_path, "mscale_all_dim", &mscale_all_dim, err));
    double magnitude = yarn_magnitude(out->rope_factor, 1);
    if (mscale != 0 && mscale_all_dim != 0)
        magnitude = yarn_magnitude(out->rope_factor, mscale) /
                    yarn_magnitude(out->rope_factor, mscale_all_dim);
    if (!(magnitude > 0 && isfinite(magnitude)))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: mscale: gives the magnitude %g", s->dict_path,
                        magnitude);
    out->rope_attention_factor = magnitude;
    return PHI_OK;
}

static enum phi_status read_longrope(const struct rope_source *s, struct phi_config *out,
                                     struct phi_error *err)
{
    size_t n = (size_t)out->rotary_dim / 2;
    double original = out->original_max_position_embeddings;
    if (n > PHI_MAX_ROPE_FACTORS)
        return phi_fail(err, PHI_ERR_UNSUPPORTED,
                        "%s: longrope over %d rotary dimensions (at most %d)", s->dict_path,
                        out->rotary_dim, 2 * PHI_MAX_ROPE_FACTORS);
    PHI_TRY(read_factor_list(s, "short_factor", n, out->short_factor, err));
    PHI_TRY(read_factor_list(s, "long_factor", n, out->long_factor, err));
    if (out->rope_factor > 1 && original <= 1)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: original_max_position_embeddings: %d is too small for longrope",
                        s->name, out->original_max_position_embeddings);
    if (out->rope_factor > 1)
        out->rope_attention_factor = sqrt(1 + log(out->rope_factor) / log(original));
    return PHI_OK;
}

/* What the type needs beside theta: the factor, the lists, the resolved magnitude of cos and sin.
 */
static enum phi_status read_scaling(const struct rope_source *s, struct phi_config *out,
                                    struct phi_error *err)
{
    out->rope_attention_factor = 1;
    if (out->rope_type == PHI_ROPE_DEFAULT)
        return PHI_OK;
    if (out->rope_type == PHI_ROPE_YARN || out->rope_type == PHI_ROPE_LONGROPE)
        out->rope_factor =
            (double)out->max_position_embeddings / out->original_max_position_embeddings;
    PHI_TRY(dict_positive(s, "factor", &out->rope_factor, err));
    switch (out->rope_type) {
    case PHI_ROPE_YARN:
        PHI_TRY(read_yarn(s, out, err));
        break;
    case PHI_ROPE_LONGROPE:
        PHI_TRY(read_longrope(s, out, err));
        break;
    default:
        if (out->rope_factor == 0)
            return phi_fail(err, PHI_ERR_FORMAT, "%s: factor: missing", s->dict_path);
        return PHI_OK; /* linear, dynamic: no magnitude */
    }
    return dict_positive(s, "attention_factor", &out->rope_attention_factor, err);
}

enum phi_status phi_config_read_rope(const json_t *root, const char *name, struct phi_config *out,
                                     struct phi_error *err)
{
    struct rope_source s = {.root = root, .name = name};
    PHI_TRY(find_dict(&s, err));
    PHI_TRY(read_type(&s, out, err));

    out->rope_theta = 10000;
    PHI_TRY(any_positive(&s, "rope_theta", &out->rope_theta, err));
    double partial = out->arch == PHI_ARCH_PHI ? 0.5 : 1;
    PHI_TRY(any_positive(&s, "partial_rotary_factor", &partial, err));
    if (out->rotary_dim == 0) { /* phi-msft states it outright */
        if (partial > 1)
            return phi_fail(err, PHI_ERR_FORMAT, "%s: partial_rotary_factor: %g is greater than 1",
                            name, partial);
        out->rotary_dim = (int)(out->head_dim * partial);
    }
    if (out->rotary_dim < 2 || out->rotary_dim % 2 != 0 || out->rotary_dim > out->head_dim)
        return phi_fail(
            err, PHI_ERR_UNSUPPORTED,
            "%s: partial_rotary_factor: gives %d rotary dimensions of head_dim %d; an even "
            "number from 2 to head_dim is needed",
            name, out->rotary_dim, out->head_dim);

    PHI_TRY(read_original_length(&s, out, err));
    return read_scaling(&s, out, err);
}
