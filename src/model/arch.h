/* arch.h: the inside of the model floor: what a network consists of, the state of one forward pass,
 * and what an architecture implements (bind its tensors, compute one layer). */
#ifndef PHI_MODEL_ARCH_H
#define PHI_MODEL_ARCH_H

#include "kernels/ops.h"
#include "model/net.h"
#include "model/rope.h"
#include "model/weights.h"

struct phi_norm {
    const float *w; /* NULL = no such norm */
    const float *b; /* LayerNorm; NULL = RMSNorm */
};

struct phi_layer {
    struct phi_norm input_norm;
    struct phi_linear qkv; /* [heads | kv heads | kv heads] * head_dim rows */
    struct phi_norm q_norm, k_norm; /* over each head; absent in most checkpoints */
    struct phi_linear attn_out;
    struct phi_norm mlp_norm; /* absent in the parallel block */
    struct phi_linear up;     /* fc1, or gate and up side by side */
    struct phi_linear down;
};

struct phi_net {
    struct phi_config config;
    enum phi_dtype dtype; /* of the run */
    const struct phi_kernels *kernels;
    const struct phi_arch_ops *arch;
    struct phi_weights weights;
    struct phi_rope rope;
    struct phi_matrix embed;  /* [vocab_size, hidden_size] */
    struct phi_layer *layers; /* [n_layers] */
    struct phi_norm final_norm;
    struct phi_linear head;
    bool quantized; /* some linear layer has integer weights */
};

/* A run of rows of one sequence whose queries are computed together. */
struct phi_attn_tile {
    uint32_t seq;
    uint32_t first_row, n_rows; /* in the batch */
    uint32_t first_slot, n_spans; /* attention.c: where its spans' sums go; n_spans 0 = not cut */
};

/* One caller's buffers, all cut from one block of memory in this order. T = max_tokens, H = hidden
 * size. The acts are rooms that phi_acts_for() puts into the form that a linear layer takes. */
struct phi_workspace {
    struct phi_compute compute;
    size_t max_tokens, max_logit_rows;
    char *memory;
    size_t memory_bytes;
    /* A strip more than the elements: strips of rows that are pages apart would share a few sets of the
     * cache. */
    size_t ld_qkv, ld_ff;

    float *x;             /* [T, H] residual stream */
    struct phi_acts h;    /* [T, H] a norm's output */
    float *qkv;           /* [T, ld_qkv] (heads + 2 kv heads) * head_dim elements */
    struct phi_acts attn; /* [T, heads * head_dim] */
    float *heads;         /* the same before it is made int8; only if net->quantized */
    float *y;             /* [T, H] output of the attention branch, or of the current projection */
    float *ff;            /* [T, ld_ff] up.n_out elements */
    struct phi_acts act;  /* [T, intermediate] */
    float *y2;            /* [T, H] output of the MLP beside y (parallel block) */
    float *cos, *sin;     /* [T, rotary_dim / 2] */
    uint32_t *row_seq;    /* [T] sequence of each row */
    struct phi_attn_tile *tiles; /* [T] */
    struct phi_batch_seq *kept;  /* [max_logit_rows] of the rows whose logits are wanted */
    struct phi_acts head_in;     /* [max_logit_rows, H] */
};

/* The state of one forward pass; all functions below run on the workspace's owner. */
struct phi_pass {
    const struct phi_net *net;
    struct phi_workspace *ws;
    const struct phi_kv *kv;
    const struct phi_batch *batch; /* the caller's, and from some point on `kept` */
    struct phi_batch kept;
    size_t n_tiles, n_parts; /* attention: into how many a tile's spans are cut */
    int layer;
};

struct phi_arch_ops {
    const char *name;
    enum phi_status (*bind)(struct phi_net *net, struct phi_error *err);
    /* ws->x [n_tokens, H] -> ws->x, through layer i. ws->h holds the layer's normed input before and
     * that of the next layer, where there is one, after it. phi_step_attention may leave fewer rows. */
    void (*layer)(struct phi_pass *p, int i);
};

extern const struct phi_arch_ops phi_arch_phi;  /* phi.c: 1, 1.5, 2 */
extern const struct phi_arch_ops phi_arch_phi3; /* phi3.c: 3, 3.5, 4, 4-mini */

/* Steps that layers are made of (steps.c). */

/* ws->x += a + b, in the order (a + b) + x, where b may be NULL and a is used up; then, when `norm` is
 * not NULL, ws->h = norm(ws->x), in the form that `next` takes. One pass over the rows. */
void phi_step_residual(struct phi_pass *p, float *a, const float *b, const struct phi_norm *norm,
                       const struct phi_linear *next);
/* The same with the norm that the layer behind layer i begins with. */
void phi_step_end_layer(struct phi_pass *p, int i, float *a, const float *b);
/* ws->h -> ws->qkv -> (head norms, rotary, KV write, attention) -> ws->attn -> ws->y. Behind the last
 * layer's KV write only the rows whose logits are wanted go on (unless a probe looks at all): whoever
 * calls reads p->batch->n_tokens afterwards. */
void phi_step_attention(struct phi_pass *p, int layer);
/* Goes on with the rows of logit_rows alone: row i of ws->x, ws->h and the queries in ws->qkv is then
 * logit row i, and p->batch says so. */
void phi_step_keep_logit_rows(struct phi_pass *p);
/* The pass is given up; what has been computed may have gaps. */
bool phi_step_cancelled(const struct phi_pass *p);
/* Shows a tensor [n_tokens, H] to the batch's probe, where there is one, as "name.i". */
void phi_step_probe(const struct phi_pass *p, const char *name, int i, const float *data);
/* Applies fn to every row of the batch, in parallel. */
typedef void (*phi_row_fn)(struct phi_pass *p, size_t row, int thread);
void phi_step_rows(struct phi_pass *p, phi_row_fn fn, size_t n_rows);

/* One row: norm into out, float32 [n]. */
void phi_norm_row(const struct phi_net *net, const struct phi_norm *norm, float *out, const float *x,
                  size_t n);
/* One row of ws->x: norm into ws->h, in the form that `next` takes. */
void phi_norm_input(struct phi_pass *p, const struct phi_norm *norm, const struct phi_linear *next,
                    size_t row, int thread);

/* Binding by tensor name (bind.c). */

/* Fills one part of a linear: matrix and, with_bias, its bias, by tensor name stem. */
enum phi_status phi_bind_part(struct phi_net *net, struct phi_linear *l, size_t n_rows, size_t n_cols,
                              bool with_bias, struct phi_error *err, const char *stem_fmt, ...)
    PHI_PRINTF(7, 8);
/* True when the checkpoint has the weight of this linear layer, of floats or integers. */
bool phi_bind_has_linear(const struct phi_net *net, const char *stem_fmt, int layer);
/* The output head: one of its own under `stem`, or the embedding (without bias), whose quantised copy
 * is remembered under that stem. */
enum phi_status phi_bind_head(struct phi_net *net, bool with_bias, const char *stem,
                              struct phi_error *err);
enum phi_status phi_bind_tied_head(struct phi_net *net, const char *stem, struct phi_error *err);
/* "stem.weight" and, for a LayerNorm, "stem.bias". */
enum phi_status phi_bind_norm(struct phi_net *net, struct phi_norm *norm, size_t n, bool with_bias,
                              struct phi_error *err, const char *stem_fmt, ...) PHI_PRINTF(6, 7);

#endif
