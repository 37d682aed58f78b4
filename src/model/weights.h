/* weights.h: from tensors in files to matrices and vectors that kernels take. A matrix stays where
 * it is mapped, unless the run's dtype asks for a narrower type; vectors (norms, biases) are widened to
 * float32, since they are small. Without files it makes seeded random ones (--load-format dummy). */
#ifndef PHI_MODEL_WEIGHTS_H
#define PHI_MODEL_WEIGHTS_H

#include "base/arena.h"
#include "formats/safetensors.h"
#include "kernels/ops.h"
#include "model/net.h"

/* Memory of one converted, quantised or random matrix. */
struct phi_weights_block {
    struct phi_weights_block *next;
    void *data;
    size_t n_bytes;
};

/* A matrix that was quantised here, by the stem of its tensor's name; in binding order. */
struct phi_quantized_matrix {
    const struct phi_quantized_matrix *next;
    const char *stem;
    struct phi_matrix matrix;
};

struct phi_weights {
    const struct phi_net_options *options; /* valid while binding */
    enum phi_dtype dtype;                  /* of the run, never PHI_AUTO */
    enum phi_dtype file_dtype;             /* of the first matrix bound */
    struct phi_compute compute;            /* created with the first conversion */
    struct phi_arena arena;                /* vectors and block headers */
    struct phi_weights_block *blocks;
    struct phi_quantized_matrix *first_quantized, *last_quantized;
    uint64_t n_parameters, mapped_bytes, converted_bytes;
    uint64_t quantized_from_bytes; /* of the matrices of floats that were quantised, for the bar */
};

void phi_weights_init(struct phi_weights *w, const struct phi_net_options *o, enum phi_dtype dtype);
/* Ends the binding phase: stops the conversion threads. The memory stays until deinit. */
void phi_weights_finish(struct phi_weights *w);
void phi_weights_deinit(struct phi_weights *w);

/* True when the checkpoint has a tensor of that name. `fallback` is the answer for dummy weights. */
bool phi_weights_has(const struct phi_weights *w, bool fallback, const char *fmt, ...)
    PHI_PRINTF(3, 4);

/* Binds "name" of shape [n_rows, n_cols]. */
enum phi_status phi_weights_matrix(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                   size_t n_cols, struct phi_error *err, const char *fmt, ...)
    PHI_PRINTF(6, 7);

/* Binds the weight of a linear layer, "stem.weight": integers where the checkpoint holds those
 * (weights_quant.c), else as phi_weights_matrix, and then, unless `quant` is PHI_UNQUANTIZED, made
 * into integers. */
enum phi_status phi_weights_linear(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                   size_t n_cols, enum phi_quantization quant, const char *stem,
                                   struct phi_error *err);

/* Makes *m, a matrix of floats, one of integers in memory of its own. `stem` names it. */
enum phi_status phi_weights_quantize(struct phi_weights *w, struct phi_matrix *m,
                                     enum phi_quantization quant, const char *stem,
                                     struct phi_error *err);

/* What the two files share. */

/* Binds the integers that the checkpoint holds under this stem; *found is false when it has none. */
enum phi_status phi_weights_integers(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                     size_t n_cols, const char *stem, bool *found,
                                     struct phi_error *err);

/* Finds a tensor and checks its shape. n_rows 0: a vector [n_cols]. */
enum phi_status phi_weights_find(const struct phi_weights *w, const char *name, size_t n_rows,
                                 size_t n_cols, const struct phi_tensor **out,
                                 struct phi_error *err);
/* float32, float16 or bfloat16; other dtypes are an error. */
enum phi_status phi_weights_float_dtype(const struct phi_tensor *t, enum phi_dtype *out,
                                        struct phi_error *err);
/* Room that lives as long as the weights; NULL when out of memory. */
void *phi_weights_add_block(struct phi_weights *w, size_t n, size_t size);
/* Threads with at least scratch_bytes each. */
enum phi_status phi_weights_need_threads(struct phi_weights *w, size_t scratch_bytes,
                                         struct phi_error *err);
void phi_weights_report(struct phi_weights *w, const char *stage, uint64_t done_bytes);

/* Binds a vector [n] as float32. */
enum phi_status phi_weights_vector(struct phi_weights *w, const float **out, size_t n,
                                   struct phi_error *err, const char *fmt, ...) PHI_PRINTF(5, 6);

#endif
