/* rope.c: see rope.h. The frequencies follow the float32 steps of transformers'
 * modeling_rope_utils, with base^e rounded from double; that agrees with the library to the last bit
 * in all but a few entries, where its own pow is one unit off. */
#include "model/rope.h"
#include "kernels/elementary.h"

/* base^(2i/r), e and the result rounded to float32. */
static float power(double base, int i, int rotary_dim)
{
    float e = (float)(2 * i) / (float)rotary_dim;
    return (float)phi_pow(base, (double)e);
}

/* YaRN (arXiv 2309.00071): interpolated below `low`, untouched above `high`, a ramp between. */
static void yarn(const struct phi_config *c, float *inv_freq)
{
    const int r = c->rotary_dim;
    const double two_pi = 6.283185307179586, base = c->rope_theta;
    double factor = c->rope_factor > 0 ? c->rope_factor
                                       : (double)c->max_position_embeddings /
                                             c->original_max_position_embeddings;
    double per_log = r / (2 * phi_log(base)), orig = c->original_max_position_embeddings;
    double low = per_log * phi_log(orig / (c->yarn_beta_fast * two_pi));
    double high = per_log * phi_log(orig / (c->yarn_beta_slow * two_pi));
    if (c->yarn_truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low < 0 ? 0 : low;
    high = high > r - 1 ? r - 1 : high;
    if (low == high)
        high += 0.001;
    for (int i = 0; i < r / 2; i++) {
        float p = power(base, i, r);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1.0f - ramp;
        inv_freq[i] = 1.0f / ((float)factor * p) * (1.0f - keep) + 1.0f / p * keep;
    }
}

void phi_rope_init(const struct phi_config *config, struct phi_rope *out)
{
    const int r = config->rotary_dim;
    *out = (struct phi_rope){.n_pairs = r / 2,
                             .attention_factor = (float)config->rope_attention_factor};
    for (int i = 0; i < r / 2; i++) {
        float p = power(config->rope_theta, i, r);
        float only = 1.0f / p;
        if (config->rope_type == PHI_ROPE_LINEAR)
            only = only / (float)config->rope_factor;
        bool longrope = config->rope_type == PHI_ROPE_LONGROPE;
        out->inv_freq[0][i] = longrope ? 1.0f / ((float)config->short_factor[i] * p) : only;
        out->inv_freq[1][i] = longrope ? 1.0f / ((float)config->long_factor[i] * p) : only;
    }
    if (config->rope_type == PHI_ROPE_YARN) {
        yarn(config, out->inv_freq[0]);
        memcpy(out->inv_freq[1], out->inv_freq[0], sizeof out->inv_freq[0]);
    }
}

void phi_rope_angles(const struct phi_rope *rope, bool long_regime, uint32_t position, float *cos_out,
                     float *sin_out)
{
    for (int i = 0; i < rope->n_pairs; i++) {
        float angle = (float)position * rope->inv_freq[long_regime][i];
        double s, c;
        phi_sincos(angle, &s, &c);
        cos_out[i] = (float)c * rope->attention_factor;
        sin_out[i] = (float)s * rope->attention_factor;
    }
}

/* n pairs; a compiler makes vectors of a loop whose length it knows. */
static inline void rotate(float *restrict x, float *restrict y, const float *restrict cos_in,
                          const float *restrict sin_in, int n)
{
    for (int i = 0; i < n; i++) {
        float a = x[i], b = y[i];
        x[i] = a * cos_in[i] - b * sin_in[i];
        y[i] = b * cos_in[i] + a * sin_in[i];
    }
}

void phi_rope_rotate(float *x, const float *cos_in, const float *sin_in, int n_pairs)
{
    enum { LANES = 16 };
    float *y = x + n_pairs;
    int i = 0;
    for (; i + LANES <= n_pairs; i += LANES)
        rotate(x + i, y + i, cos_in + i, sin_in + i, LANES);
    rotate(x + i, y + i, cos_in + i, sin_in + i, n_pairs - i);
}
