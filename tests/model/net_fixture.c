/* net_fixture.c: see net_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/size.h"
#include "net_fixture.h"

const char *golden_path(const char *dir, const char *file)
{
    static char path[1024];
    const char *root = getenv("PHI_TESTS");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/golden/%s/%s", root, dir, file);
    return path;
}

#define CHECK(expr)                                                                                \
    do {                                                                                           \
        if ((expr) != PHI_OK)                                                                      \
            fail_msg("%s", err.text);                                                              \
    } while (0)

void net_fixture_open(struct net_fixture *f, const char *dir, enum phi_dtype dtype,
                      const struct phi_kernels *kernels)
{
    struct phi_error err;
    *f = (struct net_fixture){0};
    CHECK(phi_config_read(golden_path(dir, ""), &f->config, &err));
    CHECK(phi_safetensors_open_dir(golden_path(dir, ""), &f->weights, &err));
    struct phi_net_options o = {.config = &f->config, .weights = f->weights, .dtype = dtype,
                                .kernels = kernels, .n_threads = 1};
    phi_fp_env_set();
    CHECK(phi_net_open(&o, &f->net, &err));
}

void net_fixture_open_dummy(struct net_fixture *f, const char *dir, int max_positions, int window,
                            enum phi_dtype dtype, const struct phi_kernels *kernels)
{
    struct phi_error err;
    *f = (struct net_fixture){0};
    CHECK(phi_config_read(golden_path(dir, ""), &f->config, &err));
    f->config.max_position_embeddings = max_positions;
    f->config.sliding_window = window;
    struct phi_net_options o = {.config = &f->config, .dtype = dtype, .kernels = kernels,
                                .n_threads = 2, .seed = 1};
    phi_fp_env_set();
    CHECK(phi_net_open(&o, &f->net, &err));
}

void net_fixture_close(struct net_fixture *f)
{
    phi_net_close(f->net);
    phi_safetensors_close(f->weights);
}

uint64_t net_fixture_hash(const void *data, size_t n_bytes)
{
    const unsigned char *p = data;
    uint64_t h = 14695981039346656037ull;
    for (size_t i = 0; i < n_bytes; i++)
        h = (h ^ p[i]) * 1099511628211ull;
    return h;
}

/* Blocks in an order that no correct program may depend on: scattered, from the top. */
static void give_blocks(uint32_t *blocks, size_t n, size_t seq, size_t n_seqs, uint32_t n_blocks)
{
    for (size_t i = 0; i < n; i++)
        blocks[i] = n_blocks - 1 - (uint32_t)(i * n_seqs + seq);
}

struct run {
    const struct net_fixture *f;
    const int32_t *ids;
    size_t n;
    const struct run_options *o;
    struct phi_kv kv;
    uint32_t blocks[FIXTURE_MAX_SEQS][FIXTURE_MAX_TOKENS / 16];
    int32_t tokens[FIXTURE_MAX_TOKENS * FIXTURE_MAX_SEQS];
    uint32_t rows[FIXTURE_MAX_TOKENS];
};

/* Sequence s > 0 runs beside: the same length, other tokens. */
static void chunk_forward(struct run *run, struct phi_workspace *ws, size_t begin, size_t n_rows,
                          float *logits)
{
    struct phi_error err;
    const struct phi_config *c = &run->f->config;
    struct phi_batch_seq seqs[FIXTURE_MAX_SEQS];
    size_t n_seqs = run->o->n_beside + 1, own = n_seqs / 2, row = 0, n_wanted = 0;
    const size_t step = run->o->gap + 1, vocab = (size_t)c->vocab_size;
    bool long_regime = c->rope_type == PHI_ROPE_LONGROPE &&
                       run->n > (size_t)c->original_max_position_embeddings;
    for (size_t s = 0; s < n_seqs; s++) {
        seqs[s] = (struct phi_batch_seq){(uint32_t)row, (uint32_t)n_rows, (uint32_t)begin,
                                         run->blocks[s], s == own ? long_regime : !long_regime};
        for (size_t i = 0; i < n_rows; i++, row++) {
            run->tokens[row] = s == own ? run->ids[begin + i]
                                        : (run->ids[begin + i] * 7 + (int32_t)s) % c->vocab_size;
            if (s == own && (begin + i) % step == step - 1)
                run->rows[n_wanted++] = (uint32_t)row;
        }
    }
    struct phi_batch b = {.tokens = run->tokens, .n_tokens = row, .seqs = seqs, .n_seqs = n_seqs,
                          .logit_rows = run->rows, .n_logit_rows = n_wanted, .logits = logits,
                          .probe = run->o->probe, .probe_context = run->o->probe_context};
    CHECK(phi_forward(run->f->net, ws, &run->kv, &b, &err));
    for (size_t i = n_rows; i-- > 0 && step > 1;) { /* each to its position, from the last one on */
        float *to = logits + i * vocab;
        if ((begin + i) % step == step - 1)
            memmove(to, logits + --n_wanted * vocab, vocab * sizeof *to);
        else
            memset(to, 0, vocab * sizeof *to);
    }
}

float *net_fixture_logits(const struct net_fixture *f, const int32_t *ids, size_t n,
                          const struct run_options *o)
{
    static struct run run; /* large */
    struct phi_error err;
    struct phi_workspace *ws;
    size_t vocab = (size_t)f->config.vocab_size, n_seqs = o->n_beside + 1;
    run = (struct run){.f = f, .ids = ids, .n = n, .o = o};
    assert_true(n <= FIXTURE_MAX_TOKENS && n_seqs <= FIXTURE_MAX_SEQS);
    run.kv.block_size = o->block_size ? o->block_size : 16;
    run.kv.dtype = o->kv_dtype ? o->kv_dtype : phi_net_kv_dtype(f->net);
    run.kv.block_bytes = phi_kv_block_bytes(f->net, run.kv.block_size, run.kv.dtype);
    run.kv.n_blocks = (uint32_t)(n_seqs * phi_size_ceil_div(n, 16));
    size_t kv_bytes = run.kv.block_bytes * run.kv.n_blocks;
    run.kv.data = phi_alloc_aligned(64, kv_bytes);
    assert_non_null(run.kv.data);
    memset(run.kv.data, 0xFF, kv_bytes); /* NaN everywhere: what was not written must not be read */
    for (size_t s = 0; s < n_seqs; s++)
        give_blocks(run.blocks[s], phi_size_ceil_div(n, 16), s, n_seqs, run.kv.n_blocks);
    size_t chunk = o->chunk ? o->chunk : n;
    CHECK(phi_workspace_create(f->net, chunk * n_seqs, chunk, o->n_threads ? o->n_threads : 1, &ws,
                               &err));
    float *logits = malloc(n * vocab * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < n; i += chunk)
        chunk_forward(&run, ws, i, phi_size_min(chunk, n - i), logits + i * vocab);
    phi_workspace_destroy(ws);
    phi_free(run.kv.data);
    return logits;
}
