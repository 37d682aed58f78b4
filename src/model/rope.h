/* rope.h: rotary position embedding; docs/NUMERICS.md section 6. */
#ifndef PHI_MODEL_ROPE_H
#define PHI_MODEL_ROPE_H

#include "formats/config.h"

struct phi_rope {
    int n_pairs;            /* rotary_dim / 2 */
    float attention_factor; /* cos and sin are multiplied by it, in both regimes */
    float inv_freq[2][PHI_MAX_ROPE_FACTORS]; /* [0] short or only regime, [1] long regime */
};

void phi_rope_init(const struct phi_config *config, struct phi_rope *out);

/* cos and sin [n_pairs] of one position. */
void phi_rope_angles(const struct phi_rope *rope, bool long_regime, uint32_t position, float *cos_out,
                     float *sin_out);

/* Rotates the first 2 * n_pairs elements of one head's vector in place: element i pairs with
 * i + n_pairs (the half-split form of GPT-NeoX). */
void phi_rope_rotate(float *x, const float *cos_in, const float *sin_in, int n_pairs);

#endif
