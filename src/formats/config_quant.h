/* config_quant.h: quantization_config of config.json, read and written. */
#ifndef PHI_FORMATS_CONFIG_QUANT_H
#define PHI_FORMATS_CONFIG_QUANT_H

#include "formats/config.h"
#include "formats/json.h"

/* Sets out->quantized when the checkpoint has integer weights of the two kinds that are computed:
 * compressed-tensors W8A8 (int-quantized: symmetric int8 weights per row, dynamic int8 activations
 * per token) and W4A16 (pack-quantized: symmetric 4-bit weights in groups). Everything else in
 * quantization_config is PHI_ERR_UNSUPPORTED naming field and value. Which layers are quantised is
 * seen from their tensors. Reference: quant_config.py and quant_args.py of compressed-tensors 0.20.
 */
enum phi_status phi_config_read_quantization(const json_t *root, const char *name,
                                             struct phi_config *out, struct phi_error *err);

/* How a checkpoint that we write is quantised. */
struct phi_quantization_layout {
    enum phi_quantization layers;
    size_t group;     /* of PHI_W4A8 */
    const char *head; /* name of the output head's module */
    bool head_int8;   /* the head has int8 weights; else it has floats */
};

/* The quantization_config of such a checkpoint, as compressed-tensors and vLLM read it. 4-bit
 * weights are declared W4A16, which is what those run. The caller owns it; NULL when out of memory.
 */
json_t *phi_quantization_config_make(const struct phi_quantization_layout *layout);

#endif
