/* config_rope.h: the rotary part of config.json. Internal to the formats floor: config.c calls it
 * once the head shape is known. */
#ifndef PHI_FORMATS_CONFIG_ROPE_H
#define PHI_FORMATS_CONFIG_ROPE_H

#include "formats/config.h"
#include "formats/json.h"

/* Fills rotary_dim, original_max_position_embeddings and every rope field of *out from `root` (the
 * object of config.json). Needs arch, head_dim and max_position_embeddings in *out. The order in
 * which transformers resolves these keys is followed exactly: reference for the rules is
 * modeling_rope_utils.py and configuration_phi3.py of transformers 5.24. */
enum phi_status phi_config_read_rope(const json_t *root, const char *name, struct phi_config *out,
                                     struct phi_error *err);

#endif
