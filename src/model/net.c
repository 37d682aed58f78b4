/* net.c: opening a network, the buffers of its forward pass, and the pass from tokens to logits. The
 * layers themselves are in phi.c and phi3.c. */
#include "base/alloc.h"
#include "base/layout.h"
#include "base/size.h"
#include "model/attention.h"

#include <assert.h>

/* ---------------------------------------------------------------- opening */

/* The dtype of the run: as asked, else as config.json says, else as the file holds its embedding. */
static enum phi_dtype run_dtype(const struct phi_net_options *o)
{
    if (o->dtype != PHI_AUTO)
        return o->dtype;
    if (o->config->dtype != PHI_AUTO)
        return o->config->dtype;
    for (size_t i = 0; o->weights && i < phi_safetensors_n_tensors(o->weights); i++) {
        const struct phi_tensor *t = phi_safetensors_at(o->weights, i);
        if (t->n_dims == 2 && t->dtype == PHI_ST_BF16)
            return PHI_BFLOAT16;
        if (t->n_dims == 2 && t->dtype == PHI_ST_F16)
            return PHI_FLOAT16;
    }
    return PHI_FLOAT32;
}

/* The parts of a layer's input share one row of activations, so they must take the same form; in the
 * parallel block qkv and up do. */
static enum phi_status check_forms(struct phi_net *net, struct phi_error *err)
{
    for (int i = 0; i < net->config.n_layers; i++) {
        const struct phi_layer *l = &net->layers[i];
        const struct phi_linear *linears[] = {&l->qkv, &l->attn_out, &l->up, &l->down};
        bool same = l->mlp_norm.w || l->qkv.parts[0].quant == l->up.parts[0].quant;
        for (size_t j = 0; j < sizeof linears / sizeof linears[0]; j++) {
            for (int part = 0; part < linears[j]->n_parts; part++)
                same &= linears[j]->parts[part].quant == linears[j]->parts[0].quant;
            net->quantized |= linears[j]->parts[0].quant != PHI_UNQUANTIZED;
        }
        if (!same)
            return phi_fail(err, PHI_ERR_UNSUPPORTED,
                            "layer %d: matrices that share their input are quantized differently",
                            i);
    }
    return PHI_OK;
}

enum phi_status phi_net_open(const struct phi_net_options *o, struct phi_net **out,
                             struct phi_error *err)
{
    *out = NULL;
    struct phi_net *net = phi_calloc(1, sizeof *net);
    if (!net)
        return phi_fail_memory(err, "the network", sizeof *net);
    net->config = *o->config;
    net->kernels = o->kernels;
    net->arch = o->config->arch == PHI_ARCH_PHI ? &phi_arch_phi : &phi_arch_phi3;
    net->dtype = run_dtype(o);
    phi_rope_init(o->config, &net->rope);
    phi_weights_init(&net->weights, o, net->dtype);
    net->layers = phi_calloc((size_t)o->config->n_layers, sizeof *net->layers);
    enum phi_status status = PHI_OK;
    if (!net->layers)
        status = phi_fail_memory(err, "the layers", (size_t)o->config->n_layers * sizeof *net->layers);
    if (status == PHI_OK)
        status = net->arch->bind(net, err);
    if (status == PHI_OK)
        status = check_forms(net, err);
    phi_weights_finish(&net->weights);
    if (status != PHI_OK) {
        phi_net_close(net);
        return status;
    }
    for (int i = 0; i < net->config.n_layers; i++) {
        net->layers[i].attn_out.segmented = true;
        net->layers[i].down.segmented = true;
    }
    *out = net;
    return PHI_OK;
}

void phi_net_close(struct phi_net *net)
{
    if (!net)
        return;
    phi_weights_deinit(&net->weights);
    phi_free(net->layers);
    phi_free(net);
}

void phi_net_get_info(const struct phi_net *net, struct phi_net_info *out)
{
    *out = (struct phi_net_info){
        .dtype = net->dtype,
        .quantization = net->layers[0].up.parts[0].quant,
        .file_dtype = net->weights.file_dtype,
        .n_parameters = net->weights.n_parameters,
        .mapped_bytes = net->weights.mapped_bytes,
        .converted_bytes = net->weights.converted_bytes,
    };
}

const struct phi_quantized_matrix *phi_net_quantized(const struct phi_net *net)
{
    return net->weights.first_quantized;
}

size_t phi_kv_block_bytes(const struct phi_net *net, uint32_t block_size, enum phi_dtype dtype)
{
    const struct phi_config *c = &net->config;
    return (size_t)c->n_layers * 2 * (size_t)c->n_kv_heads * block_size * (size_t)c->head_dim *
           phi_dtype_bytes(dtype);
}

enum phi_dtype phi_net_kv_dtype(const struct phi_net *net)
{
    return net->dtype;
}

/* ---------------------------------------------------------------- workspace */

/* Rows of n elements, as floats or as int8. */
static struct phi_acts take_acts(struct phi_layout *l, enum phi_dtype dtype, size_t n_rows,
                                 size_t n)
{
    size_t row_bytes = phi_size_max(phi_float_ld(n) * phi_dtype_bytes(dtype), phi_quant_ld(n));
    struct phi_acts acts = {.dtype = dtype, .ld = phi_float_ld(n), .ld_sums = phi_quant_n_sums(n)};
    acts.data = phi_layout_take(l, n_rows, row_bytes);
    acts.sums = phi_layout_take(l, n_rows * acts.ld_sums, sizeof *acts.sums);
    acts.scales = phi_layout_take(l, n_rows, sizeof *acts.scales);
    return acts;
}

/* Cuts the buffers in the order of the map in arch.h. */
static void layout_buffers(struct phi_workspace *ws, const struct phi_net *net, struct phi_layout *l)
{
    const struct phi_config *c = &net->config;
    const size_t t = ws->max_tokens, h = (size_t)c->hidden_size, f = sizeof(float);
    const size_t pairs = (size_t)net->rope.n_pairs, attn = (size_t)(c->n_heads * c->head_dim);
    enum phi_dtype acts = net->dtype == PHI_BFLOAT16 ? PHI_BFLOAT16 : PHI_FLOAT32;
    ws->ld_qkv = net->layers[0].qkv.n_out + PHI_STRIP_ROWS;
    ws->ld_ff = net->layers[0].up.n_out + PHI_STRIP_ROWS;
    ws->x = phi_layout_take(l, t * h, f);
    ws->h = take_acts(l, acts, t, h);
    ws->qkv = phi_layout_take(l, t * ws->ld_qkv, f);
    ws->attn = take_acts(l, acts, t, attn);
    ws->heads = phi_layout_take(l, net->quantized ? t * attn : 0, f);
    ws->y = phi_layout_take(l, t * h, f);
    ws->ff = phi_layout_take(l, t * ws->ld_ff, f);
    ws->act = take_acts(l, acts, t, (size_t)c->intermediate_size);
    ws->y2 = phi_layout_take(l, t * h, f);
    ws->cos = phi_layout_take(l, t * pairs, f);
    ws->sin = phi_layout_take(l, t * pairs, f);
    ws->row_seq = phi_layout_take(l, t, sizeof *ws->row_seq);
    ws->tiles = phi_layout_take(l, t, sizeof *ws->tiles);
    ws->kept = phi_layout_take(l, ws->max_logit_rows, sizeof *ws->kept);
    ws->head_in = take_acts(l, acts, ws->max_logit_rows, h);
}

static size_t buffer_bytes(struct phi_workspace *ws, const struct phi_net *net)
{
    struct phi_layout l = {0};
    layout_buffers(ws, net, &l);
    return l.n_bytes;
}

/* The greatest need of any step for one thread. */
static size_t scratch_bytes(const struct phi_net *net, size_t max_tokens, size_t max_logit_rows)
{
    const struct phi_layer *l = &net->layers[0];
    size_t need = (size_t)net->config.hidden_size * sizeof(float);
    const struct phi_linear *linears[] = {&l->qkv, &l->attn_out, &l->up, &l->down};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        need = phi_size_max(need, phi_op_linear_scratch_bytes(linears[i]->n_in,
                                                              linears[i]->segmented, max_tokens));
    need = phi_size_max(need, phi_op_linear_scratch_bytes(net->head.n_in, false, max_logit_rows));
    return phi_size_max(need, phi_attention_scratch_bytes(&net->config));
}

size_t phi_workspace_bytes(const struct phi_net *net, size_t max_tokens, size_t max_logit_rows,
                           int n_threads)
{
    struct phi_workspace ws = {.max_tokens = max_tokens, .max_logit_rows = max_logit_rows};
    return buffer_bytes(&ws, net) +
           (size_t)n_threads * scratch_bytes(net, max_tokens, max_logit_rows);
}

enum phi_status phi_workspace_create(const struct phi_net *net, size_t max_tokens,
                                     size_t max_logit_rows, int n_threads,
                                     struct phi_workspace **out, struct phi_error *err)
{
    *out = NULL;
    struct phi_workspace *ws = phi_calloc(1, sizeof *ws);
    if (!ws)
        return phi_fail_memory(err, "the workspace", sizeof *ws);
    ws->max_tokens = max_tokens;
    ws->max_logit_rows = max_logit_rows;
    ws->memory_bytes = buffer_bytes(ws, net);
    ws->memory = phi_pages_alloc(ws->memory_bytes);
    enum phi_status status =
        ws->memory ? phi_compute_init(&ws->compute, net->kernels, n_threads,
                                      scratch_bytes(net, max_tokens, max_logit_rows), err)
                   : phi_fail_memory(err, "the activations", ws->memory_bytes);
    if (status != PHI_OK) {
        phi_workspace_destroy(ws);
        return status;
    }
    struct phi_layout l = {.base = ws->memory};
    layout_buffers(ws, net, &l);
    *out = ws;
    return PHI_OK;
}

void phi_workspace_destroy(struct phi_workspace *ws)
{
    if (!ws)
        return;
    phi_compute_deinit(&ws->compute);
    phi_pages_free(ws->memory, ws->memory_bytes);
    phi_free(ws);
}

struct phi_pool *phi_workspace_pool(struct phi_workspace *ws)
{
    return ws->compute.pool;
}

/* ---------------------------------------------------------------- the forward pass */

/* A token's embedding, its rotary angles, and the first layer's input. */
static void embed_row(struct phi_pass *p, size_t row, int thread)
{
    const struct phi_net *net = p->net;
    struct phi_workspace *ws = p->ws;
    const struct phi_batch_seq *seq = &p->batch->seqs[ws->row_seq[row]];
    uint32_t position = seq->first_position + (uint32_t)(row - seq->first_row);
    size_t h = (size_t)net->config.hidden_size, pairs = (size_t)net->rope.n_pairs;
    phi_matrix_row(net->kernels, &net->embed, (size_t)p->batch->tokens[row], ws->x + row * h);
    phi_rope_angles(&net->rope, seq->long_regime, position, ws->cos + row * pairs,
                    ws->sin + row * pairs);
    phi_norm_input(p, &net->layers[0].input_norm, &net->layers[0].qkv, row, thread);
}

static void head_row(struct phi_pass *p, size_t i, int thread)
{
    const struct phi_net *net = p->net;
    size_t h = (size_t)net->config.hidden_size;
    float *x = p->ws->x + i * h;
    (void)thread;
    phi_norm_row(net, &net->final_norm, x, x, h);
    const struct phi_acts in = phi_acts_for(&p->ws->head_in, &net->head);
    phi_acts_store(net->kernels, &in, i, x, h);
}

/* The pool skips the items of all stages once the batch is cancelled. */
static void run_layers(struct phi_pass *p)
{
    const struct phi_net *net = p->net;
    const struct phi_batch *batch = p->batch;
    struct phi_workspace *ws = p->ws;
    phi_step_rows(p, embed_row, batch->n_tokens);
    phi_step_probe(p, "hidden", 0, ws->x);
    for (int i = 0; i < net->config.n_layers && !phi_step_cancelled(p); i++) {
        p->layer = i;
        net->arch->layer(p, i);
        phi_step_probe(p, "hidden", i + 1, ws->x);
    }
    if (batch->probe)
        phi_step_keep_logit_rows(p);
    phi_step_rows(p, head_row, batch->n_logit_rows);
    const struct phi_acts in = phi_acts_for(&ws->head_in, &net->head);
    phi_op_linear(&ws->compute, &net->head, &in, batch->n_logit_rows, batch->logits,
                  net->head.n_out);
}

enum phi_status phi_forward(const struct phi_net *net, struct phi_workspace *ws,
                            const struct phi_kv *kv, const struct phi_batch *batch,
                            struct phi_error *err)
{
    struct phi_pass p = {.net = net, .ws = ws, .kv = kv, .batch = batch};
    assert(batch->n_tokens <= ws->max_tokens && batch->n_logit_rows <= ws->max_logit_rows);
    assert(kv->block_size % PHI_STRIP_ROWS == 0);
    for (uint32_t s = 0; s < batch->n_seqs; s++)
        for (uint32_t r = 0; r < batch->seqs[s].n_rows; r++)
            ws->row_seq[batch->seqs[s].first_row + r] = s;
    phi_attention_plan(&p);
    phi_pool_set_cancel(ws->compute.pool, batch->cancel);
    run_layers(&p);
    phi_pool_set_cancel(ws->compute.pool, NULL);
    return phi_step_cancelled(&p) ? phi_fail(err, PHI_ERR_CANCELLED, "cancelled") : PHI_OK;
}
