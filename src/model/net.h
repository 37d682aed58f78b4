/* net.h: an opened network (weights bound to an architecture) and its forward pass.
 *
 * struct phi_net is immutable after open and shared; struct phi_workspace holds the buffers and
 * threads of one caller. */
#ifndef PHI_MODEL_NET_H
#define PHI_MODEL_NET_H

#include "base/threads.h"
#include "formats/config.h"
#include "formats/safetensors.h"
#include "kernels/kernels.h"
#include "model/batch.h"

struct phi_net;
struct phi_workspace;

struct phi_net_options {
    const struct phi_config *config;
    const struct phi_safetensors *weights; /* must stay open as long as the net; NULL = dummy weights */
    bool count_only; /* without files: matrices have a shape and no data, as if files held them */
    uint64_t seed;                         /* of the dummy weights */
    enum phi_dtype dtype;                  /* PHI_AUTO = the config's, else the file's */
    enum phi_quantization quantization;    /* of linear layers whose weights are floats */
    bool keep_lm_head;                     /* do not quantise the head, which is made w8a8 */
    int quant_group_size; /* of w4a8; 0 = the greatest of 128, 64, 32 that divides all columns */
    const struct phi_kernels *kernels;
    int n_threads; /* for conversion at load */
    phi_progress_fn progress;
    void *progress_context;
};

/* Binds and checks every tensor: a missing one, or one of wrong shape or dtype, is an error that names
 * it. Weights stay where they are mapped unless the asked dtype makes them narrower. */
enum phi_status phi_net_open(const struct phi_net_options *o, struct phi_net **out,
                             struct phi_error *err);
void phi_net_close(struct phi_net *net); /* NULL is fine */

struct phi_net_info {
    enum phi_dtype dtype;      /* of the run */
    enum phi_quantization quantization; /* of the first layer */
    enum phi_dtype file_dtype; /* of the layers' matrices in the file */
    uint64_t n_parameters;
    uint64_t mapped_bytes;    /* used in place */
    uint64_t converted_bytes; /* held in memory of our own */
};
void phi_net_get_info(const struct phi_net *net, struct phi_net_info *out);

/* The matrices that were quantised at open, in binding order (weights.h); NULL = none. */
const struct phi_quantized_matrix *phi_net_quantized(const struct phi_net *net);

/* Bytes of one KV block. */
size_t phi_kv_block_bytes(const struct phi_net *net, uint32_t block_size, enum phi_dtype dtype);

/* The KV dtype that `auto` means for this net. */
enum phi_dtype phi_net_kv_dtype(const struct phi_net *net);

/* Buffers for batches of at most max_tokens rows, of which at most max_logit_rows with logits. The
 * creating thread is the one that calls phi_forward. */
enum phi_status phi_workspace_create(const struct phi_net *net, size_t max_tokens,
                                     size_t max_logit_rows, int n_threads,
                                     struct phi_workspace **out, struct phi_error *err);
void phi_workspace_destroy(struct phi_workspace *ws); /* NULL is fine */

/* Its threads, which are free between forward passes. */
struct phi_pool *phi_workspace_pool(struct phi_workspace *ws);

/* What phi_workspace_create would allocate. */
size_t phi_workspace_bytes(const struct phi_net *net, size_t max_tokens, size_t max_logit_rows,
                           int n_threads);

/* Computes one batch: writes the rows' keys and values into kv and the asked logits into
 * batch->logits. PHI_ERR_CANCELLED when batch->cancel became true (the rows' KV is then partly
 * written and must be computed again). Allocates nothing. */
enum phi_status phi_forward(const struct phi_net *net, struct phi_workspace *ws,
                            const struct phi_kv *kv, const struct phi_batch *batch,
                            struct phi_error *err);

#endif
