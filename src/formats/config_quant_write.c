/* config_quant_write.c: quantization_config written, see config_quant.h. */
#include "formats/config_quant.h"

static json_t *int8_group(const char *target)
{
    return json_pack("{s:[s], s:s, s:{s:i, s:s, s:b, s:b, s:s, s:n}, "
                     "s:{s:i, s:s, s:b, s:b, s:s, s:n}, s:n}",
                     "targets", target, "format", "int-quantized", "weights", "num_bits", 8, "type",
                     "int", "symmetric", 1, "dynamic", 0, "strategy", "channel", "group_size",
                     "input_activations", "num_bits", 8, "type", "int", "symmetric", 1, "dynamic",
                     1, "strategy", "token", "group_size", "output_activations");
}

static json_t *int4_group(const char *target, size_t group)
{
    return json_pack("{s:[s], s:s, s:{s:i, s:s, s:b, s:b, s:s, s:I}, s:n, s:n}", "targets", target,
                     "format", "pack-quantized", "weights", "num_bits", 4, "type", "int",
                     "symmetric", 1, "dynamic", 0, "strategy", "group", "group_size",
                     (json_int_t)group, "input_activations", "output_activations");
}

json_t *phi_quantization_config_make(const struct phi_quantization_layout *l)
{
    const bool four = l->layers == PHI_W4A8, mixed = four && l->head_int8;
    const char *format = mixed ? "mixed-precision" : four ? "pack-quantized" : "int-quantized";
    json_t *groups = json_object(), *ignore = json_array();
    json_t *group = four ? int4_group("Linear", l->group) : int8_group("Linear");
    bool failed = json_object_set_new(groups, "group_0", group) != 0;
    if (mixed) /* a name goes before a class */
        failed |= json_object_set_new(groups, "group_1", int8_group(l->head)) != 0;
    if (!l->head_int8)
        failed |= json_array_append_new(ignore, json_string(l->head)) != 0;
    json_t *out =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:n, s:n}", "quant_method", "compressed-tensors",
                  "format", format, "quantization_status", "compressed", "config_groups", groups,
                  "ignore", ignore, "kv_cache_scheme", "global_compression_ratio");
    if (failed) {
        json_decref(out);
        return NULL;
    }
    return out;
}
