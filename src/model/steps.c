/* steps.c: the steps that layers of every architecture are made of (arch.h). */
#include "model/attention.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

bool phi_step_cancelled(const struct phi_pass *p)
{
    return p->batch->cancel && atomic_load_explicit(p->batch->cancel, memory_order_relaxed);
}

void phi_step_probe(const struct phi_pass *p, const char *name, int i, const float *data)
{
    char text[32];
    if (!p->batch->probe || phi_step_cancelled(p))
        return;
    snprintf(text, sizeof text, "%s.%d", name, i);
    p->batch->probe(p->batch->probe_context, text, data, (size_t)p->net->config.hidden_size);
}

struct rows {
    struct phi_pass *p;
    phi_row_fn fn;
};

static void rows_item(void *context, size_t item, int thread)
{
    const struct rows *r = context;
    r->fn(r->p, item, thread);
}

void phi_step_rows(struct phi_pass *p, phi_row_fn fn, size_t n_rows)
{
    struct rows r = {p, fn};
    phi_compute_each(&p->ws->compute, n_rows, rows_item, &r);
}

void phi_norm_row(const struct phi_net *net, const struct phi_norm *norm, float *out, const float *x,
                  size_t n)
{
    float eps = (float)net->config.norm_eps;
    if (norm->b)
        net->kernels->layer_norm(out, x, norm->w, norm->b, eps, n);
    else
        net->kernels->rms_norm(out, x, norm->w, eps, n);
}

void phi_norm_input(struct phi_pass *p, const struct phi_norm *norm, const struct phi_linear *next,
                    size_t row, int thread)
{
    const size_t n = (size_t)p->net->config.hidden_size;
    const struct phi_acts out = phi_acts_for(&p->ws->h, next);
    float *normed = phi_compute_scratch(&p->ws->compute, thread);
    phi_norm_row(p->net, norm, normed, p->ws->x + row * n, n);
    phi_acts_store(p->net->kernels, &out, row, normed, n);
}

/* ---------------------------------------------------------------- residual */

struct residual_step {
    struct phi_pass *p;
    float *a;
    const float *b;
    const struct phi_norm *norm;
    const struct phi_linear *next;
};

/* x = a + x, in lengths that a compiler makes vectors of. */
static void add(float *restrict x, const float *restrict a, size_t n)
{
    enum { LANES = 16 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            x[i + l] = a[i + l] + x[i + l];
    for (; i < n; i++)
        x[i] = a[i] + x[i];
}

static void residual_item(void *context, size_t row, int thread)
{
    const struct residual_step *s = context;
    const size_t n = (size_t)s->p->net->config.hidden_size;
    if (s->b)
        add(s->a + row * n, s->b + row * n, n);
    add(s->p->ws->x + row * n, s->a + row * n, n);
    if (s->norm)
        phi_norm_input(s->p, s->norm, s->next, row, thread);
}

void phi_step_residual(struct phi_pass *p, float *a, const float *b, const struct phi_norm *norm,
                       const struct phi_linear *next)
{
    struct residual_step s = {p, a, b, norm, next};
    phi_compute_each(&p->ws->compute, p->batch->n_tokens, residual_item, &s);
}

void phi_step_end_layer(struct phi_pass *p, int i, float *a, const float *b)
{
    const struct phi_layer *next = i + 1 < p->net->config.n_layers ? &p->net->layers[i + 1] : NULL;
    phi_step_residual(p, a, b, next ? &next->input_norm : NULL, next ? &next->qkv : NULL);
}

/* ---------------------------------------------------------------- rows that go on */

static void keep_row(struct phi_pass *p, size_t to, size_t from)
{
    struct phi_workspace *ws = p->ws;
    const struct phi_layer *l = &p->net->layers[p->layer];
    const struct phi_acts h = phi_acts_for(&ws->h, &l->qkv);
    const size_t n = (size_t)p->net->config.hidden_size;
    if (to == from)
        return;
    memmove(ws->x + to * n, ws->x + from * n, n * sizeof *ws->x);
    memmove(ws->qkv + to * ws->ld_qkv, ws->qkv + from * ws->ld_qkv, l->attn_out.n_in * sizeof *ws->qkv);
    phi_acts_move(&h, to, from);
}

/* Consecutive rows of a sequence stay together. */
void phi_step_keep_logit_rows(struct phi_pass *p)
{
    const struct phi_batch *all = p->batch;
    struct phi_batch_seq *kept = p->ws->kept;
    size_t n_seqs = 0;
    for (uint32_t i = 0; i < all->n_logit_rows; i++) {
        const uint32_t row = all->logit_rows[i];
        const struct phi_batch_seq *seq = &all->seqs[p->ws->row_seq[row]];
        const bool follows = i > 0 && all->logit_rows[i - 1] + 1 == row && row > seq->first_row;
        assert(i == 0 || all->logit_rows[i - 1] < row);
        keep_row(p, i, row);
        if (!follows)
            kept[n_seqs++] = (struct phi_batch_seq){
                .first_row = i, .first_position = seq->first_position + (row - seq->first_row),
                .blocks = seq->blocks, .long_regime = seq->long_regime};
        kept[n_seqs - 1].n_rows++;
    }
    p->kept = *all;
    p->kept.n_tokens = all->n_logit_rows;
    p->kept.seqs = kept;
    p->kept.n_seqs = n_seqs;
    p->batch = &p->kept;
    phi_attention_plan(p);
}

/* ---------------------------------------------------------------- attention */

/* One row of qkv: head norms, rotation of queries and keys, KV write. */
static void qkv_row(struct phi_pass *p, size_t row, int thread)
{
    const struct phi_net *net = p->net;
    const struct phi_config *c = &net->config;
    const struct phi_layer *layer = &net->layers[p->layer];
    struct phi_workspace *ws = p->ws;
    size_t d = (size_t)c->head_dim, pairs = (size_t)net->rope.n_pairs;
    float *head = ws->qkv + row * ws->ld_qkv;
    (void)thread;
    for (int h = 0; h < c->n_heads + c->n_kv_heads; h++, head += d) {
        const struct phi_norm *norm = h < c->n_heads ? &layer->q_norm : &layer->k_norm;
        if (norm->w)
            phi_norm_row(net, norm, head, head, d);
        phi_rope_rotate(head, ws->cos + row * pairs, ws->sin + row * pairs, (int)pairs);
    }
    phi_attention_store(p, p->layer, row);
}

static void heads_row(struct phi_pass *p, size_t row, int thread)
{
    const struct phi_linear *l = &p->net->layers[p->layer].attn_out;
    const struct phi_acts attn = phi_acts_for(&p->ws->attn, l);
    (void)thread;
    phi_acts_store(p->net->kernels, &attn, row, p->ws->heads + row * l->n_in, l->n_in);
}

/* A row of int8 has one scale, and a token's heads are the work of several threads, so they meet as
 * floats first. */
static void attend(struct phi_pass *p, int layer, const struct phi_acts *attn)
{
    const size_t n_in = p->net->layers[layer].attn_out.n_in;
    if (!attn->quant) {
        phi_attention_run(p, layer, attn);
        return;
    }
    const struct phi_acts heads = {.data = p->ws->heads, .dtype = PHI_FLOAT32, .ld = n_in};
    phi_attention_run(p, layer, &heads);
    phi_step_rows(p, heads_row, p->batch->n_tokens);
}

void phi_step_attention(struct phi_pass *p, int layer)
{
    const struct phi_layer *l = &p->net->layers[layer];
    struct phi_workspace *ws = p->ws;
    const struct phi_acts in = phi_acts_for(&ws->h, &l->qkv);
    const struct phi_acts attn = phi_acts_for(&ws->attn, &l->attn_out);
    phi_op_linear(&ws->compute, &l->qkv, &in, p->batch->n_tokens, ws->qkv, ws->ld_qkv);
    phi_step_rows(p, qkv_row, p->batch->n_tokens);
    if (layer + 1 == p->net->config.n_layers && !p->batch->probe)
        phi_step_keep_logit_rows(p);
    attend(p, layer, &attn);
    phi_op_linear(&ws->compute, &l->attn_out, &attn, p->batch->n_tokens, ws->y, l->attn_out.n_out);
}
