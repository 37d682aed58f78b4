/* weights.h: from tensors in files to matrices and vectors that kernels take. A matrix stays where
 * it is mapped, unless the run's dtype asks for a narrower type; vectors (norms, biases) are widened to
 * float32, since they are small. Without files it makes seeded random ones (--load-format dummy). */
#ifndef PHI_MODEL_WEIGHTS_H
#define PHI_MODEL_WEIGHTS_H

#include "base/arena.h"
#include "formats/safetensors.h"
#include "kernels/ops.h"
#include "model/net.h"

/* Memory of one converted or random matrix. */
struct phi_weights_block {
    struct phi_weights_block *next;
    void *data;
};

struct phi_weights {
    const struct phi_net_options *options; /* valid while binding */
    enum phi_dtype dtype;                  /* of the run, never PHI_AUTO */
    enum phi_dtype file_dtype;             /* of the first matrix bound */
    struct phi_compute compute;            /* created with the first conversion */
    struct phi_arena arena;                /* vectors and block headers */
    struct phi_weights_block *blocks;
    uint64_t n_parameters, mapped_bytes, converted_bytes;
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

/* Binds a vector [n] as float32. */
enum phi_status phi_weights_vector(struct phi_weights *w, const float **out, size_t n,
                                   struct phi_error *err, const char *fmt, ...) PHI_PRINTF(5, 6);

#endif
