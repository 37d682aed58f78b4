/* kernels.h: numbers -> numbers. One const table of single-threaded micro-kernels per instruction
 * set; docs/NUMERICS.md defines every output bit, ref.c is that definition in plain C, and each
 * other table equals it bit for bit. Kernels know nothing of tensors, threads or models: ops.h
 * owns the loops.
 *
 * Shapes are written [rows, columns], row-major; ld_x is the distance between rows in elements. Weight
 * and KV pointers need no alignment; float pointers are 4-byte aligned. Inputs and outputs do not
 * overlap unless said. Call only with the floating-point environment of phi_fp_env_set(). */
#ifndef PHI_KERNELS_KERNELS_H
#define PHI_KERNELS_KERNELS_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PHI_STRIP_ROWS = 16,  /* most weight rows of one matmul call */
    PHI_FEW_TOKENS = 32,  /* up to here memory rather than arithmetic sets a product's speed */
    PHI_KEY_BLOCK = 64,   /* keys of one softmax step (NUMERICS.md 7) */
    PHI_KEY_SPAN = 512,   /* keys of one independent partial softmax */
    PHI_QUERY_STEP = 16,  /* of phi_attention_block's rows */
    PHI_N_SEGMENTS = 8,   /* of a segmented product (NUMERICS.md 3) */
    PHI_LSE_BLOCK = 1024  /* NUMERICS.md 8 */
};

/* y[m, n] = dot(w[n, :], x[m, :]) for n < n_rows, m < n_tokens. */
struct phi_matmul {
    const void *w; /* [n_rows, k] in the kernel's weight type */
    size_t ld_w;
    size_t n_rows;  /* 1..PHI_STRIP_ROWS */
    const void *x;  /* [n_tokens, k] float32, or bfloat16 in the pair form */
    size_t ld_x;
    const void *x_interleaved; /* what the table's interleave_* made of x; NULL when not called */
    size_t n_tokens;           /* >= 1 */
    size_t k;
    /* 0, or, for a table that joins_segments and one token or more than PHI_FEW_TOKENS: K is cut into
     * segments of so many columns (a multiple of 16), whose sums meet in a tree (NUMERICS.md 3). */
    size_t segment_k;
    float *y; /* [n_tokens, n_rows] */
    size_t ld_y;
    /* 64-byte aligned room for phi_matmul_scratch_bytes(k): the strip, widened or interleaved once
     * and used for every row of x. */
    void *scratch;
};

/* The strip in float32, or the eight lanes of its products with PHI_FEW_TOKENS. */
static inline size_t phi_matmul_scratch_bytes(size_t k)
{
    const size_t strip = PHI_STRIP_ROWS * ((k + 15) / 16 * 16);
    const size_t lanes = PHI_STRIP_ROWS * PHI_FEW_TOKENS * 8;
    return (strip > lanes ? strip : lanes) * sizeof(float);
}

static inline size_t phi_interleaved_bytes(size_t n_tokens, size_t k)
{
    return (n_tokens + 1) / 2 * 2 * ((k + 15) / 16 * 16) * sizeof(float);
}

enum {
    PHI_QUANT_MAX_K = 131072, /* columns of a quantised matrix (NUMERICS.md 10) */
    PHI_QUANT_STEP = 128,     /* elements to which a quantised activation row is padded */
    PHI_QUANT_BLOCK = 32      /* elements of one of its partial sums; groups are made of these */
};

/* One activation row of a quantised product. The elements of q are padded with zeros to a multiple
 * of PHI_QUANT_STEP. Kernels that multiply unsigned weights need sums of q to correct for it:
 *   PHI_W8A8: elements in their order; sums[0] = -128 * the sum of the row
 *   PHI_W4A8: in each step of 128 elements the 64 even ones, then the 64 odd ones, as the nibbles of
 *             a weight row lie; sums[b] = -8 * the sum of the elements of block b */
struct phi_quant_row {
    int8_t *q;     /* [phi_quant_padded(n)], 64-byte aligned */
    int32_t *sums; /* [phi_quant_n_sums(n)] */
};

static inline size_t phi_quant_padded(size_t n)
{
    return (n + PHI_QUANT_STEP - 1) / PHI_QUANT_STEP * PHI_QUANT_STEP;
}

static inline size_t phi_quant_n_sums(size_t n)
{
    return phi_quant_padded(n) / PHI_QUANT_BLOCK;
}

/* y[m, n] = the quantised product of weight row n and activation row m, times x_scale[m].
 *
 * Weights stand as compressed-tensors files hold them. PHI_W8A8: int8, one float32 scale for each
 * row. PHI_W4A8: the element 2i in the low nibble of byte i, 2i + 1 in the high one, each n + 8. */
struct phi_quant_matmul {
    const void *w;    /* [n_rows, k] */
    size_t row_bytes; /* between weight rows */
    size_t n_rows;    /* 1..PHI_STRIP_ROWS */
    const void *w_scale; /* PHI_W8A8: float32 [n_rows]; PHI_W4A8: [n_rows, k / group]; unaligned */
    size_t ld_scale;
    enum phi_dtype scale_dtype; /* PHI_W4A8: float32 or bfloat16 */
    size_t group;               /* PHI_W4A8: a multiple of 32 that divides k, or k itself */
    /* PHI_W4A8: columns of a segment, whole steps and groups, whose products stand `plane` elements
     * apart in y; 0: one segment of all k. */
    size_t segment, plane;
    const int8_t *x; /* [n_tokens, phi_quant_padded(k)], rows and ld_x multiples of 64 bytes */
    size_t ld_x;
    const int32_t *x_sums; /* [n_tokens, phi_quant_n_sums(k)] */
    size_t ld_sums;
    const float *x_scale; /* [n_tokens]; NULL = the product without token scales */
    size_t n_tokens;      /* >= 1 */
    size_t k;             /* <= PHI_QUANT_MAX_K */
    float *y;             /* [n_tokens, n_rows] */
    size_t ld_y;
    void *scratch; /* 64-byte aligned, phi_quant_scratch_bytes(k) */
};

/* A strip as bytes, and its scales as float32, with room for as many groups as a kernel packs at a
 * time behind the last one. */
static inline size_t phi_quant_scratch_bytes(size_t k)
{
    size_t groups = phi_quant_n_sums(k) + 2 * PHI_STRIP_ROWS;
    return PHI_STRIP_ROWS * (phi_quant_padded(k) + groups * sizeof(float));
}

/* One query row against one block of keys; NUMERICS.md 7, steps 2 and 3. */
struct phi_softmax_step {
    float *s;      /* [PHI_KEY_BLOCK] in: dot products; out: p, +0 outside [lo, hi) */
    size_t lo, hi; /* visible keys of the block, lo < hi <= PHI_KEY_BLOCK */
    float scale;
    float m, l;    /* in and out: running maximum and sum */
    float c;       /* out: exp(m_old - m_new) */
};

/* acc[r, d] = acc[r, d] * c[r], then += p[r, j] * v[j, d] in rising j over lo[r] <= j < hi[r]. */
struct phi_weighted_sum {
    float *acc; /* [n_rows, d] */
    size_t ld_acc;
    const float *c; /* [n_rows]; NULL = no rescaling (a later part of the same key block) */
    const float *p; /* [n_rows, >= n_keys] */
    size_t ld_p;
    const int32_t *lo, *hi; /* [n_rows]; 0 <= lo, hi <= n_keys; lo >= hi means nothing to add */
    size_t n_rows;
    const void *v; /* [n_keys, d] in the kernel's KV type */
    size_t ld_v;
    const void *next; /* NULL, or what lies like v and will be read soon, to be fetched meanwhile */
    size_t n_keys;
    size_t d; /* a multiple of 8 */
};

/* Many query rows against one block of keys: NUMERICS.md 7, steps 1 to 4. Queries and sums stand transposed, one
 * column for each row, and keys and values widened. A row with lo >= hi sees nothing and stays as it is. */
struct phi_attention_block {
    const float *q; /* [d, n_rows] */
    float *acc;     /* [d, n_rows] in and out */
    size_t ld;      /* of both */
    float *m, *l;   /* [n_rows] in and out: running maxima and sums */
    const int32_t *lo, *hi; /* [n_rows] visible keys, 0 <= lo, hi <= PHI_KEY_BLOCK */
    size_t n_rows;          /* a multiple of PHI_QUERY_STEP */
    const float *k, *v;     /* [PHI_KEY_BLOCK, d]; what no row sees may hold anything */
    size_t ld_kv;
    size_t d; /* a multiple of 8 */
    float scale;
};

/* Rows of activations in the order in which a table's products take them; see struct phi_kernels. */
typedef void (*phi_interleave_fn)(void *to, const void *x, size_t ld_x, size_t n_tokens, size_t k);

enum {
    PHI_CPU_AVX2 = 1,        /* AVX2, FMA, F16C */
    PHI_CPU_AVX512 = 2,      /* F, BW, DQ, VL */
    PHI_CPU_AVX512_VNNI = 4, /* VPDPBUSD */
    PHI_CPU_AVX512_BF16 = 8, /* VDPBF16PS */
};

struct phi_kernels {
    const char *name;  /* "ref", "avx2", "avx512", "avx512_vnni", "avx512_bf16" */
    unsigned features; /* PHI_CPU_* that the table's code needs */

    /* Element form: float32 activations against float32, bfloat16, float16 weights. */
    void (*matmul_f32)(const struct phi_matmul *a);
    void (*matmul_bf16)(const struct phi_matmul *a);
    void (*matmul_f16)(const struct phi_matmul *a);
    /* Pair form: bfloat16 activations and weights. */
    void (*matmul_bf16_pairs)(const struct phi_matmul *a);
    bool joins_segments; /* the products above take segment_k */
    /* NULL, or: rows of activations, float32 or bfloat16 in the pair form, in the order in which the
     * products take them when there are 2 to PHI_FEW_TOKENS; once for all strips of a matrix. `to`
     * is 64-byte aligned and has phi_interleaved_bytes(n_tokens, k). */
    phi_interleave_fn interleave_f32, interleave_pairs;

    /* Integer weights; NUMERICS.md 10. quantize_row fills `row` and returns the token scale. The other
     * two are gelu_new or silu_mul into y, and quantize_row of y, in one. */
    float (*quantize_row)(struct phi_quant_row row, const float *x, size_t n,
                          enum phi_quantization form);
    float (*gelu_quantize)(struct phi_quant_row row, float *y, const float *x, size_t n,
                           enum phi_quantization form);
    float (*silu_mul_quantize)(struct phi_quant_row row, float *y, const float *gate, const float *up,
                               size_t n, enum phi_quantization form);
    void (*matmul_w8)(const struct phi_quant_matmul *a);
    void (*matmul_w4)(const struct phi_quant_matmul *a);
    /* Choosing integers for one row of n weights: int8 q [n] and its scale; or nibbles
     * [ceil(n / 8) * 4 bytes] and bfloat16 scales [n / group], where group divides n. */
    float (*fit_w8)(int8_t *q, const float *x, size_t n);
    void (*fit_w4)(uint8_t *nibbles, uint16_t *scales, const float *x, size_t n, size_t group);

    /* y[n] = x[n] in another type. */
    void (*to_bf16)(uint16_t *y, const float *x, size_t n);
    void (*to_f16)(uint16_t *y, const float *x, size_t n);
    void (*from_bf16)(float *y, const void *x, size_t n);
    void (*from_f16)(float *y, const void *x, size_t n);

    /* One row of n elements; NUMERICS.md 5. y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, float eps, size_t n);
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b, float eps, size_t n);

    /* Elementwise; NUMERICS.md 4. y may be x, or gate, or up. */
    void (*gelu_new)(float *y, const float *x, size_t n);
    void (*silu_mul)(float *y, const float *gate, const float *up, size_t n);

    /* Attention: by rows for few of them, by blocks for many. */
    void (*softmax_step)(struct phi_softmax_step *a);
    void (*weighted_sum_f32)(const struct phi_weighted_sum *a);
    void (*weighted_sum_bf16)(const struct phi_weighted_sum *a);
    void (*weighted_sum_f16)(const struct phi_weighted_sum *a);
    void (*attention_block)(const struct phi_attention_block *a);
    /* y [n, m] = x [m, n] turned; n is a multiple of 8. */
    void (*transpose)(float *y, size_t ld_y, const float *x, size_t ld_x, size_t m, size_t n);

    /* Sum of exp(x[i] - max) over n <= PHI_LSE_BLOCK elements; NUMERICS.md 8. */
    float (*sum_exp)(const float *x, float max, size_t n);
};

extern const struct phi_kernels phi_kernels_ref;

/* The best table that this CPU and its operating system support. `force` (NULL = none; the
 * environment variable PHI_ISA when the caller passes its value) names one; PHI_ERR_INVALID when it is unknown,
 * PHI_ERR_UNSUPPORTED when the CPU lacks it. */
enum phi_status phi_kernels_select(const char *force, const struct phi_kernels **out,
                                   struct phi_error *err);

/* All tables compiled into this program, best last, also those the CPU lacks. NULL-terminated. */
const struct phi_kernels *const *phi_kernels_all(void);

/* The PHI_CPU_* features of this machine. */
unsigned phi_cpu_features(void);

/* Denormals are zero, rounding to nearest: for every thread that computes. */
void phi_fp_env_set(void);

#endif
