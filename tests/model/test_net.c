/* test_net.c: the forward pass against what transformers answers for the golden checkpoints, and
 * against itself: the same bits for every instruction set, thread count, chunking, company and page
 * size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/size.h"
#include "kernels/elementary.h"
#include "net_fixture.h"

static const char *const checkpoints[] = {
    "phi-head64", "phi-qkln",  "phi-linear",    "phi-yarn",   "phi-dynamic",
    "phi3-gqa",   "phi3-swa", "phi3-longrope", "phi3-bias", "phi3-unfused",
};
enum { N_CHECKPOINTS = sizeof checkpoints / sizeof checkpoints[0] };

static const struct phi_kernels *best(void)
{
    const struct phi_kernels *k;
    assert_int_equal(phi_kernels_select(NULL, &k, NULL), PHI_OK);
    return k;
}

/* ---------------------------------------------------------------- goldens */

static struct phi_safetensors *open_golden(const char *dir)
{
    struct phi_safetensors *st;
    struct phi_error err;
    if (phi_safetensors_open_file(golden_path(dir, "golden.safetensors"), &st, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return st;
}

static const struct phi_tensor *golden(const struct phi_safetensors *st, int prompt, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%s", prompt, name);
    return phi_safetensors_find(st, phi_str_from(text));
}

/* Largest |a - b| over the largest |b|. */
static double relative_difference(const float *a, const struct phi_tensor *b)
{
    double difference = 0, largest = 0;
    for (size_t i = 0; i < b->n_bytes / sizeof(float); i++) {
        float value;
        memcpy(&value, (const char *)b->data + i * sizeof value, sizeof value);
        assert_true(isfinite(a[i]));
        difference = fmax(difference, fabs((double)a[i] - (double)value));
        largest = fmax(largest, fabs((double)value));
    }
    return difference / largest;
}

struct golden_probe {
    const struct phi_safetensors *st;
    const char *dir;
    int prompt;
    int n_compared;
};

static void compare_hidden(void *context, const char *name, const float *data, size_t n_cols)
{
    struct golden_probe *g = context;
    const struct phi_tensor *t = golden(g->st, g->prompt, name);
    (void)n_cols;
    if (!t)
        return;
    double d = relative_difference(data, t);
    g->n_compared++;
    if (!(d < 1e-5))
        fail_msg("%s: prompt %d: %s differs by %g of its largest value", g->dir, g->prompt, name, d);
}

static void compare_prompt(const struct net_fixture *f, const struct phi_safetensors *st,
                           const char *dir, int prompt, int *n_hidden)
{
    const struct phi_tensor *ids = golden(st, prompt, "input_ids");
    const struct phi_tensor *want = golden(st, prompt, "logits");
    struct golden_probe g = {st, dir, prompt, 0};
    struct run_options o = {.probe = compare_hidden, .probe_context = &g};
    int32_t tokens[FIXTURE_MAX_TOKENS];
    size_t n = ids->shape[0];
    assert_non_null(want);
    /* Dynamic NTK scaling beyond max_position_embeddings depends on how a prompt is cut: no context gets there. */
    if (n > (size_t)f->config.max_position_embeddings)
        return;
    memcpy(tokens, ids->data, ids->n_bytes);
    float *logits = net_fixture_logits(f, tokens, n, &o);
    double d = relative_difference(logits, want);
    if (!(d < 3e-5))
        fail_msg("%s: prompt %d: logits differ by %g of the largest", dir, prompt, d);
    free(logits);
    *n_hidden += g.n_compared;
}

static void test_goldens(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CHECKPOINTS; i++) {
        struct net_fixture f;
        int n_hidden = 0, prompt = 0;
        net_fixture_open(&f, checkpoints[i], PHI_FLOAT32, best());
        struct phi_safetensors *st = open_golden(checkpoints[i]);
        for (; golden(st, prompt, "input_ids"); prompt++)
            compare_prompt(&f, st, checkpoints[i], prompt, &n_hidden);
        assert_true(prompt >= 3 && n_hidden >= 3);
        phi_safetensors_close(st);
        net_fixture_close(&f);
    }
}

/* ---------------------------------------------------------------- one answer, many ways */

/* The hash of the logits of `tokens(...)` for each checkpoint and dtype, on any machine, with any
 * compiler. A change of docs/NUMERICS.md, and nothing else, changes them. */
static const struct {
    const char *dir;
    enum phi_dtype dtype;
    uint64_t hash;
} golden_hashes[] = {
    {"phi-head64", PHI_FLOAT32, 0xf455da4f848ab92b},
    {"phi-head64", PHI_BFLOAT16, 0x0d563c641033e9d7},
    {"phi-head64", PHI_FLOAT16, 0x2d2624a2bac61ef6},
    {"phi-qkln", PHI_FLOAT32, 0x9c322220ea9ba564},
    {"phi-qkln", PHI_BFLOAT16, 0x38818b81bc679f20},
    {"phi3-gqa", PHI_FLOAT32, 0x191de9406214e1dd},
    {"phi3-gqa", PHI_BFLOAT16, 0x7828e28ec1feb0a8},
    {"phi3-gqa", PHI_FLOAT16, 0xc9bcc0ce43680890},
    {"phi3-swa", PHI_FLOAT32, 0xe91d5d55e1934962},
    {"phi3-swa", PHI_BFLOAT16, 0xa92415b9cbea9a7d},
    {"phi3-longrope", PHI_FLOAT32, 0xbca13d05d8f134d4},
    {"phi3-longrope", PHI_BFLOAT16, 0x1d260e9c591f1e9a},
    {"phi3-bias", PHI_FLOAT32, 0x10c773e8ecf0bbf2},
    {"phi3-bias", PHI_BFLOAT16, 0x13db899307edfbde},
    {"phi3-unfused", PHI_FLOAT32, 0xec6fd549725feef0},
    {"phi3-unfused", PHI_BFLOAT16, 0x0caf5ccebcb0158a},
};
enum { N_HASHES = sizeof golden_hashes / sizeof golden_hashes[0], N_TOKENS = 70 };

static void fill_tokens(int32_t *ids, const struct net_fixture *f)
{
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (i * i * 31 + i * 7 + 3) % f->config.vocab_size;
}

static uint64_t logits_hash(const struct net_fixture *f, const struct run_options *o)
{
    int32_t ids[N_TOKENS];
    size_t n = phi_size_min(N_TOKENS, (size_t)f->config.max_position_embeddings);
    fill_tokens(ids, f);
    float *logits = net_fixture_logits(f, ids, n, o);
    uint64_t h = net_fixture_hash(logits, n * (size_t)f->config.vocab_size * sizeof *logits);
    free(logits);
    return h;
}

static void test_golden_hashes_on_every_isa(void **state)
{
    unsigned have = phi_cpu_features();
    bool bad = false;
    (void)state;
    for (const struct phi_kernels *const *k = phi_kernels_all(); *k; k++) {
        if ((*k)->features & ~have)
            continue;
        for (size_t i = 0; i < N_HASHES; i++) {
            struct net_fixture f;
            struct run_options o = {0};
            net_fixture_open(&f, golden_hashes[i].dir, golden_hashes[i].dtype, *k);
            uint64_t h = logits_hash(&f, &o);
            if (h != golden_hashes[i].hash) {
                print_message("# %s %s %s: 0x%016llx\n", (*k)->name, golden_hashes[i].dir,
                              phi_dtype_name(golden_hashes[i].dtype), (unsigned long long)h);
                bad = true;
            }
            net_fixture_close(&f);
        }
    }
    assert_false(bad);
}

static const struct {
    const char *name;
    struct run_options o;
} ways[] = {
    {"2 threads", {.n_threads = 2}},
    {"3 threads", {.n_threads = 3}},
    {"4 threads, chunks of 7", {.n_threads = 4, .chunk = 7}},
    {"token by token", {.chunk = 1}},
    {"chunks of 7", {.chunk = 7}},
    {"chunks of 64", {.chunk = 64}},
    {"pages of 32", {.block_size = 32}},
    {"pages of 128, chunks of 33", {.block_size = 128, .chunk = 33}},
    {"in a batch of 8", {.n_beside = 7}},
    {"in a batch of 8, chunks of 5, 2 threads", {.n_beside = 7, .chunk = 5, .n_threads = 2}},
};

static void test_bits_do_not_depend_on_the_way(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_HASHES; i++) {
        struct net_fixture f;
        net_fixture_open(&f, golden_hashes[i].dir, golden_hashes[i].dtype, best());
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
            if (logits_hash(&f, &ways[w].o) != golden_hashes[i].hash)
                fail_msg("%s %s: other bits %s", golden_hashes[i].dir,
                         phi_dtype_name(golden_hashes[i].dtype), ways[w].name);
        net_fixture_close(&f);
    }
}

/* Rows without logits leave the last layer behind its keys and values. */
static void test_bits_of_some_rows(void **state)
{
    static const struct run_options some[] = {
        {.gap = 1}, {.gap = 2, .chunk = 9, .n_beside = 2}, {.gap = 10, .chunk = 4, .n_threads = 2}};
    (void)state;
    for (size_t i = 0; i < N_HASHES; i++) {
        struct net_fixture f;
        int32_t ids[N_TOKENS];
        net_fixture_open(&f, golden_hashes[i].dir, golden_hashes[i].dtype, best());
        fill_tokens(ids, &f);
        const size_t n = phi_size_min(N_TOKENS, (size_t)f.config.max_position_embeddings);
        const size_t vocab = (size_t)f.config.vocab_size;
        float *all = net_fixture_logits(&f, ids, n, &(struct run_options){0});
        for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
            float *part = net_fixture_logits(&f, ids, n, &some[s]);
            for (size_t row = some[s].gap; row < n; row += some[s].gap + 1)
                assert_memory_equal(all + row * vocab, part + row * vocab, vocab * sizeof *all);
            free(part);
        }
        free(all);
        net_fixture_close(&f);
    }
}

/* A context of several spans (NUMERICS.md 7), on random weights, cut in ways that put the span borders
 * everywhere; with and without a window. */
static void test_long_context(void **state)
{
    static int32_t ids[FIXTURE_MAX_TOKENS];
    static const struct run_options cuts[] = {
        {.chunk = 193, .block_size = 64, .n_threads = 2},
        {.chunk = 1, .block_size = 32, .n_threads = 3}, /* with threads to spare for single spans */
        {.chunk = 4, .n_beside = 1, .n_threads = 7},
    };
    (void)state;
    for (int window = 0; window <= 600; window += 600) {
        struct net_fixture f;
        net_fixture_open_dummy(&f, "phi3-gqa", 2048, window, PHI_BFLOAT16, best());
        for (int i = 0; i < FIXTURE_MAX_TOKENS; i++)
            ids[i] = (i * i * 31 + i * 7 + 3) % f.config.vocab_size;
        size_t n_bytes = (size_t)f.config.vocab_size * FIXTURE_MAX_TOKENS * sizeof(float);
        float *whole = net_fixture_logits(&f, ids, FIXTURE_MAX_TOKENS, &(struct run_options){0});
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
            float *cut = net_fixture_logits(&f, ids, FIXTURE_MAX_TOKENS, &cuts[i]);
            assert_memory_equal(whole, cut, n_bytes);
            free(cut);
        }
        free(whole);
        net_fixture_close(&f);
    }
}

/* ---------------------------------------------------------------- giving up */

/* The reference kernels, which count products of strips and cancel the pass at one of them. */
static struct {
    atomic_bool cancel;
    atomic_int n_products, cancel_at;
} breaking;

static void breaking_matmul(const struct phi_matmul *a)
{
    if (atomic_fetch_add(&breaking.n_products, 1) == breaking.cancel_at)
        atomic_store(&breaking.cancel, true);
    phi_kernels_ref.matmul_f32(a);
}

static int n_products_until(const struct net_fixture *f, struct phi_workspace *ws,
                          const struct phi_kv *kv, int cancel_at, enum phi_status expected)
{
    enum { N = 24 };
    static const uint32_t blocks[N / 16 + 1] = {0, 1}, row = N - 1;
    int32_t ids[N];
    struct phi_error err;
    for (int i = 0; i < N; i++)
        ids[i] = i;
    float *logits = malloc((size_t)f->config.vocab_size * sizeof *logits);
    const struct phi_batch_seq seq = {.n_rows = N, .blocks = blocks};
    const struct phi_batch b = {.tokens = ids, .n_tokens = N, .seqs = &seq, .n_seqs = 1,
                                .logit_rows = &row, .n_logit_rows = 1, .logits = logits,
                                .cancel = &breaking.cancel};
    atomic_store(&breaking.cancel, false);
    atomic_store(&breaking.n_products, 0);
    atomic_store(&breaking.cancel_at, cancel_at);
    assert_int_equal(phi_forward(f->net, ws, kv, &b, &err), expected);
    free(logits);
    return atomic_load(&breaking.n_products);
}

/* In the middle of whichever stage: each thread ends the strip that it is in, which may be one of
 * several segments, and begins no other. */
static void test_cancelled_within_a_stage(void **state)
{
    (void)state;
    struct phi_kernels kernels = phi_kernels_ref;
    kernels.matmul_f32 = breaking_matmul;
    struct net_fixture f;
    net_fixture_open(&f, "phi3-gqa", PHI_FLOAT32, &kernels);
    struct phi_kv kv = {.dtype = PHI_FLOAT32, .n_blocks = 2, .block_size = 16,
                        .block_bytes = phi_kv_block_bytes(f.net, 16, PHI_FLOAT32)};
    kv.data = phi_alloc_aligned(64, kv.n_blocks * kv.block_bytes);
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct phi_workspace *ws;
        assert_int_equal(phi_workspace_create(f.net, 24, 1, n_threads, &ws, NULL), PHI_OK);
        int n_all = n_products_until(&f, ws, &kv, -1, PHI_OK);
        assert_true(n_all > 100);
        for (int at = 0; at < n_all; at++)
            assert_in_range(n_products_until(&f, ws, &kv, at, PHI_ERR_CANCELLED), at + 1,
                            at + n_threads * PHI_N_SEGMENTS);
        assert_int_equal(n_products_until(&f, ws, &kv, -1, PHI_OK), n_all);
        phi_workspace_destroy(ws);
    }
    phi_free(kv.data);
    net_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_golden_hashes_on_every_isa),
        cmocka_unit_test(test_bits_do_not_depend_on_the_way),
        cmocka_unit_test(test_bits_of_some_rows),
        cmocka_unit_test(test_long_context),
        cmocka_unit_test(test_cancelled_within_a_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
