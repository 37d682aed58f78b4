/* phi.c: PhiForCausalLM (phi-1, phi-1.5, phi-2): the parallel block. One LayerNorm feeds attention
 * and MLP, and both are added to the residual stream together; biases everywhere. Also binds the
 * older phi-msft names, whose q, k and v are one matrix. */
#include "model/arch.h"

static enum phi_status bind_attention(struct phi_net *net, struct phi_layer *l, int i,
                                      struct phi_error *err)
{
    const struct phi_config *c = &net->config;
    size_t h = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t q = (size_t)c->n_heads * d, kv = (size_t)c->n_kv_heads * d;
    if (phi_bind_has_linear(net, "transformer.h.%d.mixer.Wqkv", i)) {
        PHI_TRY(phi_bind_part(net, &l->qkv, q + 2 * kv, h, true, err, "transformer.h.%d.mixer.Wqkv",
                              i));
        return phi_bind_part(net, &l->attn_out, h, q, true, err, "transformer.h.%d.mixer.out_proj", i);
    }
    const char *const attn = "model.layers.%d.self_attn.%s";
    PHI_TRY(phi_bind_part(net, &l->qkv, q, h, true, err, attn, i, "q_proj"));
    PHI_TRY(phi_bind_part(net, &l->qkv, kv, h, true, err, attn, i, "k_proj"));
    PHI_TRY(phi_bind_part(net, &l->qkv, kv, h, true, err, attn, i, "v_proj"));
    if (c->qk_layernorm) {
        PHI_TRY(phi_bind_norm(net, &l->q_norm, d, true, err, attn, i, "q_layernorm"));
        PHI_TRY(phi_bind_norm(net, &l->k_norm, d, true, err, attn, i, "k_layernorm"));
    }
    return phi_bind_part(net, &l->attn_out, h, q, true, err, attn, i, "dense");
}

static enum phi_status bind(struct phi_net *net, struct phi_error *err)
{
    const struct phi_config *c = &net->config;
    size_t h = (size_t)c->hidden_size, ff = (size_t)c->intermediate_size, v = (size_t)c->vocab_size;
    bool msft = phi_weights_has(&net->weights, false, "transformer.embd.wte.weight");
    PHI_TRY(phi_weights_matrix(&net->weights, &net->embed, v, h, err, "%s",
                               msft ? "transformer.embd.wte.weight" : "model.embed_tokens.weight"));
    for (int i = 0; i < c->n_layers; i++) {
        struct phi_layer *l = &net->layers[i];
        const char *const stem = msft ? "transformer.h" : "model.layers";
        PHI_TRY(phi_bind_norm(net, &l->input_norm, h, true, err, "%s.%d.%s", stem, i,
                              msft ? "ln" : "input_layernorm"));
        PHI_TRY(bind_attention(net, l, i, err));
        PHI_TRY(phi_bind_part(net, &l->up, ff, h, true, err, "%s.%d.mlp.fc1", stem, i));
        PHI_TRY(phi_bind_part(net, &l->down, h, ff, true, err, "%s.%d.mlp.fc2", stem, i));
    }
    PHI_TRY(phi_bind_norm(net, &net->final_norm, h, true, err, "%s",
                          msft ? "lm_head.ln" : "model.final_layernorm"));
    const char *const head = msft ? "lm_head.linear" : "lm_head";
    if (!c->tie_word_embeddings)
        return phi_bind_head(net, true, head, err);
    PHI_TRY(phi_bind_tied_head(net, head, err));
    return phi_weights_vector(&net->weights, &net->head.bias[0], v, err, "%s.bias", head);
}

static void gelu_row(struct phi_pass *p, size_t row, int thread)
{
    const struct phi_linear *down = &p->net->layers[p->layer].down;
    const struct phi_acts act = phi_acts_for(&p->ws->act, down);
    float *ff = p->ws->ff + row * p->ws->ld_ff;
    (void)thread;
    phi_acts_store_gelu(p->net->kernels, &act, row, ff, ff, down->n_in);
}

/* x <- (attention(LN(x)) + mlp(LN(x))) + x */
static void layer(struct phi_pass *p, int i)
{
    const struct phi_layer *l = &p->net->layers[i];
    struct phi_workspace *ws = p->ws;
    const struct phi_acts in = phi_acts_for(&ws->h, &l->qkv); /* up takes the same form */
    const struct phi_acts down_in = phi_acts_for(&ws->act, &l->down);
    phi_step_attention(p, i);
    const size_t n = p->batch->n_tokens;
    phi_op_linear(&ws->compute, &l->up, &in, n, ws->ff, ws->ld_ff);
    phi_step_rows(p, gelu_row, n);
    phi_op_linear(&ws->compute, &l->down, &down_in, n, ws->y2, l->down.n_out);
    phi_step_probe(p, "attention", i, ws->y);
    phi_step_probe(p, "mlp", i, ws->y2);
    phi_step_end_layer(p, i, ws->y, ws->y2);
}

const struct phi_arch_ops phi_arch_phi = {"PhiForCausalLM", bind, layer};
