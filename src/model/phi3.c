/* phi3.c: Phi3ForCausalLM (Phi-3, 3.5, 4, 4-mini): RMSNorm, attention, RMSNorm, SwiGLU; fused qkv
 * and gate_up (or their parts under Llama's names), no biases unless attention_bias says so. */
#include "base/log.h"
#include "model/arch.h"

static enum phi_status bind_attention(struct phi_net *net, struct phi_layer *l, int i,
                                      struct phi_error *err)
{
    const struct phi_config *c = &net->config;
    size_t h = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t q = (size_t)c->n_heads * d, kv = (size_t)c->n_kv_heads * d;
    bool bias = c->attention_bias;
    const char *const attn = "model.layers.%d.self_attn.%s";
    if (phi_bind_has_linear(net, "model.layers.%d.self_attn.q_proj", i)) {
        PHI_TRY(phi_bind_part(net, &l->qkv, q, h, bias, err, attn, i, "q_proj"));
        PHI_TRY(phi_bind_part(net, &l->qkv, kv, h, bias, err, attn, i, "k_proj"));
        PHI_TRY(phi_bind_part(net, &l->qkv, kv, h, bias, err, attn, i, "v_proj"));
    } else {
        PHI_TRY(phi_bind_part(net, &l->qkv, q + 2 * kv, h, bias, err, attn, i, "qkv_proj"));
    }
    return phi_bind_part(net, &l->attn_out, h, q, bias, err, attn, i, "o_proj");
}

static enum phi_status bind_mlp(struct phi_net *net, struct phi_layer *l, int i, struct phi_error *err)
{
    size_t h = (size_t)net->config.hidden_size, ff = (size_t)net->config.intermediate_size;
    const char *const mlp = "model.layers.%d.mlp.%s";
    if (phi_bind_has_linear(net, "model.layers.%d.mlp.gate_proj", i)) {
        PHI_TRY(phi_bind_part(net, &l->up, ff, h, false, err, mlp, i, "gate_proj"));
        PHI_TRY(phi_bind_part(net, &l->up, ff, h, false, err, mlp, i, "up_proj"));
    } else {
        PHI_TRY(phi_bind_part(net, &l->up, 2 * ff, h, false, err, mlp, i, "gate_up_proj"));
    }
    return phi_bind_part(net, &l->down, h, ff, false, err, mlp, i, "down_proj");
}

static enum phi_status bind_head(struct phi_net *net, struct phi_error *err)
{
    bool has_head = phi_weights_has(&net->weights, true, "lm_head.weight") ||
                    phi_weights_has(&net->weights, true, "lm_head.weight_packed");
    if (!net->config.tie_word_embeddings) {
        if (!has_head)
            return phi_fail(err, PHI_ERR_FORMAT,
                            "lm_head.weight: missing, and config.json's tie_word_embeddings is false");
        return phi_bind_head(net, false, "lm_head", err);
    }
    if (has_head && net->weights.options->weights)
        phi_log(PHI_LOG_WARNING, "lm_head.weight is ignored: tie_word_embeddings is true, so the "
                                 "embedding serves as the head");
    return phi_bind_tied_head(net, "lm_head", err);
}

static enum phi_status bind(struct phi_net *net, struct phi_error *err)
{
    const struct phi_config *c = &net->config;
    size_t h = (size_t)c->hidden_size;
    PHI_TRY(phi_weights_matrix(&net->weights, &net->embed, (size_t)c->vocab_size, h, err,
                               "model.embed_tokens.weight"));
    for (int i = 0; i < c->n_layers; i++) {
        struct phi_layer *l = &net->layers[i];
        PHI_TRY(phi_bind_norm(net, &l->input_norm, h, false, err, "model.layers.%d.input_layernorm",
                              i));
        PHI_TRY(bind_attention(net, l, i, err));
        PHI_TRY(phi_bind_norm(net, &l->mlp_norm, h, false, err,
                              "model.layers.%d.post_attention_layernorm", i));
        PHI_TRY(bind_mlp(net, l, i, err));
    }
    PHI_TRY(phi_bind_norm(net, &net->final_norm, h, false, err, "model.norm"));
    return bind_head(net, err);
}

/* up * silu(gate), where gate stands before up in the row. */
static void swiglu_row(struct phi_pass *p, size_t row, int thread)
{
    const struct phi_linear *down = &p->net->layers[p->layer].down;
    const struct phi_acts act = phi_acts_for(&p->ws->act, down);
    float *gate = p->ws->ff + row * p->ws->ld_ff;
    (void)thread;
    phi_acts_store_silu_mul(p->net->kernels, &act, row, gate, gate, gate + down->n_in, down->n_in);
}

/* x <- x + attention(RMS(x)); x <- x + mlp(RMS(x)) */
static void layer(struct phi_pass *p, int i)
{
    const struct phi_layer *l = &p->net->layers[i];
    struct phi_workspace *ws = p->ws;
    const struct phi_acts up_in = phi_acts_for(&ws->h, &l->up);
    const struct phi_acts down_in = phi_acts_for(&ws->act, &l->down);
    phi_step_attention(p, i);
    const size_t n = p->batch->n_tokens;
    phi_step_probe(p, "attention", i, ws->y);
    phi_step_residual(p, ws->y, NULL, &l->mlp_norm, &l->up);
    phi_op_linear(&ws->compute, &l->up, &up_in, n, ws->ff, ws->ld_ff);
    phi_step_rows(p, swiglu_row, n);
    phi_op_linear(&ws->compute, &l->down, &down_in, n, ws->y, l->down.n_out);
    phi_step_probe(p, "mlp", i, ws->y);
    phi_step_end_layer(p, i, ws->y, NULL);
}

const struct phi_arch_ops phi_arch_phi3 = {"Phi3ForCausalLM", bind, layer};
