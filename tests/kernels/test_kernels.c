/* test_kernels.c: every table that this processor can run equals the reference, bit for bit, on
 * every case of kernel_cases.c; and the reference equals the committed hash, on every machine.
 *
 * PHI_TEST_SEED=n tries other random inputs (the seed is printed), PHI_TEST_FILTER='avx2 *'
 * other tests. */
#include "base/alloc.h"
#include "kernel_cases.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GOLDEN_SEED = 1 };
/* FNV-1a over all outputs of ref with GOLDEN_SEED. It changes only with docs/NUMERICS.md (a new
 * output bit) or with the list of cases; `test_kernels` prints the hash it found. */
static const uint64_t golden_hash = 0x82E2537FD652460A;

static uint64_t seed = GOLDEN_SEED;

/* ---------------------------------------------------------------- a table against the reference */

struct pairing {
    const struct phi_kernels *table;
    enum kernel_op op;
    uint64_t random;
    int n_cases;
};

static void run_case(struct kernel_run *run, const struct phi_kernels *table, bool prepared)
{
    void *scratch = phi_alloc_aligned(64, kernel_run_scratch_bytes(run));
    assert_non_null(scratch);
    memset(scratch, 0xFF, kernel_run_scratch_bytes(run));
    if (prepared)
        kernel_run_prepare(run, table);
    kernel_run_call(run, table, 0, SIZE_MAX, scratch);
    phi_free(scratch);
}

static void compare_case(const struct kernel_case *c, void *context)
{
    struct pairing *p = context;
    struct kernel_run *run = kernel_run_create(c, kernel_random(&p->random));
    assert_non_null(run);
    size_t n_bytes;
    const unsigned char *output = kernel_run_output(run, &n_bytes);
    run_case(run, &phi_kernels_ref, false);
    unsigned char *expected = malloc(n_bytes);
    assert_non_null(expected);
    memcpy(expected, output, n_bytes);
    /* Attention's products are those without what is done once for all strips. */
    for (int prepared = 0; prepared < (kernel_op_is_matmul(c->op) ? 2 : 1); prepared++) {
        kernel_run_reset(run);
        run_case(run, p->table, prepared);
        for (size_t i = 0; i < n_bytes; i++)
            if (output[i] != expected[i])
                fail_msg("%s %s: n_rows %zu n_tokens %zu k %zu gap %zu data %d in_place %d "
                         "prepared %d, seed %" PRIu64 ": byte %zu of %zu is %02x and not %02x",
                         p->table->name, kernel_op_name(c->op), c->n_rows, c->n_tokens, c->k,
                         c->gap, (int)c->data, c->in_place, prepared, seed, i, n_bytes, output[i],
                         expected[i]);
    }
    free(expected);
    kernel_run_destroy(run);
    p->n_cases++;
}

/* Rows so long that tables take them in parts, and more tokens than have room at a time. Beside the
 * golden hash, which they would make slow. */
static void compare_long_rows(struct pairing *p)
{
    static const struct kernel_case cases[] = {
        {.n_rows = 16, .n_tokens = 70, .k = 1100, .data = DATA_PLAIN},
        {.n_rows = 11, .n_tokens = 131, .k = 1031, .gap = 1, .data = DATA_WILD},
        {.n_rows = 5, .n_tokens = 200, .k = 2048, .gap = 3, .data = DATA_PLAIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_case c = cases[i];
        c.op = p->op;
        compare_case(&c, p);
    }
}

/* Groups and segments of 4-bit weights that the ops' own lists do without. */
static void compare_segments(struct pairing *p)
{
    static const struct kernel_case cases[] = {
        {.n_rows = 16, .n_tokens = 1, .k = 2048, .segment = 256},
        {.n_rows = 37, .n_tokens = 2, .k = 1920, .segment = 384, .gap = 2, .data = DATA_WILD},
        {.n_rows = 16, .n_tokens = 17, .k = 1280, .segment = 512, .gap = 1},
        {.n_rows = 16, .n_tokens = 9, .k = 4096},
        {.n_rows = 19, .n_tokens = 4, .k = 4096, .segment = 1024, .data = DATA_WILD},
        {.n_rows = 16, .n_tokens = 3, .k = 1760},
        {.n_rows = 16, .n_tokens = 5, .k = 1024, .data = DATA_WILD},
        {.n_rows = 16, .n_tokens = 6, .k = 4096, .gap = 1},
        {.n_rows = 9, .n_tokens = 7, .k = 1152, .segment = 384},
        {.n_rows = 16, .n_tokens = 1, .k = 4608, .group = 96, .segment = 768},
        {.n_rows = 7, .n_tokens = 2, .k = 2560, .group = 320, .segment = 640, .data = DATA_WILD},
        {.n_rows = 16, .n_tokens = 1, .k = 8192, .group = 256},
        {.n_rows = 3, .n_tokens = 2, .k = 9600, .group = 960, .gap = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernel_case c = cases[i];
        c.op = p->op;
        compare_case(&c, p);
    }
}

static void equals_reference(void **state)
{
    struct pairing p = *(const struct pairing *)*state;
    if (p.table->features & ~phi_cpu_features()) {
        print_message("# %s: this processor lacks it\n", p.table->name);
        return; /* not skip(): older cmocka reports that as a failure in TAP */
    }
    p.random = seed;
    kernel_cases_each(p.op, compare_case, &p);
    if (kernel_op_is_matmul(p.op))
        compare_long_rows(&p);
    if (kernel_op_is_quant_matmul(p.op) && p.op != OP_MATMUL_W8)
        compare_segments(&p);
    assert_true(p.n_cases > 0);
}

/* ---------------------------------------------------------------- the golden hash */

struct hashing {
    uint64_t random, hash;
};

static void hash_case(const struct kernel_case *c, void *context)
{
    struct hashing *h = context;
    struct kernel_run *run = kernel_run_create(c, kernel_random(&h->random));
    assert_non_null(run);
    run_case(run, &phi_kernels_ref, false);
    size_t n_bytes;
    const unsigned char *output = kernel_run_output(run, &n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        h->hash = (h->hash ^ output[i]) * 0x100000001B3u;
    kernel_run_destroy(run);
}

static void reference_has_golden_hash(void **state)
{
    (void)state;
    struct hashing h = {GOLDEN_SEED, 0xCBF29CE484222325u};
    for (int op = 0; op < N_KERNEL_OPS; op++)
        kernel_cases_each((enum kernel_op)op, hash_case, &h);
    print_message("# hash of the reference's outputs: 0x%016" PRIX64 "\n", h.hash);
    assert_true(h.hash == golden_hash);
}

/* ---------------------------------------------------------------- bfloat16 pairs in depth */

/* All exponents, also those that overflow: here NaNs may differ from one another in their bits. */
static void pairs_over_all_exponents(void **state)
{
    const struct phi_kernels *table = *state;
    if (table->features & ~phi_cpu_features())
        return; /* not skip(): older cmocka reports that as a failure in TAP */
    enum { N = 16, K = 32, ROUNDS = 4000 };
    static uint16_t w[N * K], x[N * K];
    float want[N * N], got[N * N];
    uint64_t random = seed;
    void *scratch = phi_alloc_aligned(64, phi_matmul_scratch_bytes(K));
    assert_non_null(scratch);
    for (int round = 0; round < ROUNDS; round++) {
        /* Few bits of mantissa make ties and cancellation frequent. */
        uint16_t keep = round % 3 ? 0xFFFF : 0xFFE0, least = round % 2 ? 0 : 40 << 7;
        for (size_t i = 0; i < N * K; i++) {
            w[i] = (uint16_t)(kernel_random(&random) % (255 << 7)) & keep;
            x[i] = (uint16_t)(least + kernel_random(&random) % (100 << 7)) & keep;
            w[i] |= (uint16_t)(kernel_random(&random) & 0x8000);
        }
        struct phi_matmul a = {.w = w, .ld_w = K, .n_rows = N, .x = x, .ld_x = K, .n_tokens = N,
                               .k = K, .y = want, .ld_y = N, .scratch = scratch};
        phi_kernels_ref.matmul_bf16_pairs(&a);
        a.y = got;
        table->matmul_bf16_pairs(&a);
        for (size_t i = 0; i < N * N; i++)
            if (memcmp(&want[i], &got[i], sizeof *got) != 0 &&
                (want[i] == want[i] || got[i] == got[i]))
                fail_msg("%s: round %d, seed %" PRIu64 ": %a is not %a", table->name, round, seed,
                         (double)got[i], (double)want[i]);
    }
    phi_free(scratch);
}

/* ---------------------------------------------------------------- segments */

enum { SEGMENT_ROWS = 13, SEGMENT_TOKENS = PHI_FEW_TOKENS + 9, SEGMENT_MAX_K = 4500 };

/* The reference's dot products of each segment, joined here. */
static void join_by_reference(const struct phi_matmul *whole, float *want)
{
    enum { N_SUMS = SEGMENT_TOKENS * SEGMENT_ROWS };
    static float parts[PHI_N_SEGMENTS][N_SUMS];
    memset(parts, 0, sizeof parts);
    for (size_t s = 0, begin = 0; begin < whole->k; s++, begin += whole->segment_k) {
        struct phi_matmul part = *whole;
        part.w = (const float *)whole->w + begin;
        part.x = (const float *)whole->x + begin;
        part.k = whole->k - begin < whole->segment_k ? whole->k - begin : whole->segment_k;
        part.segment_k = 0;
        part.y = parts[s];
        phi_kernels_ref.matmul_f32(&part);
    }
    for (size_t i = 0; i < N_SUMS; i++)
        want[i] = ((parts[0][i] + parts[1][i]) + (parts[2][i] + parts[3][i])) +
                  ((parts[4][i] + parts[5][i]) + (parts[6][i] + parts[7][i]));
}

/* A table that joins segments by itself. */
static void joined_segments(void **state)
{
    static const size_t lengths[] = {16, 100, 128, 129, 256, 393, 400, SEGMENT_MAX_K};
    static const size_t n_tokens[] = {1, PHI_FEW_TOKENS + 1, SEGMENT_TOKENS};
    static float w[SEGMENT_ROWS * SEGMENT_MAX_K], x[SEGMENT_TOKENS * SEGMENT_MAX_K];
    static float want[SEGMENT_TOKENS * SEGMENT_ROWS], got[SEGMENT_TOKENS * SEGMENT_ROWS];
    const struct phi_kernels *table = *state;
    uint64_t random = seed;
    if (table->features & ~phi_cpu_features())
        return;
    void *scratch = phi_alloc_aligned(64, phi_matmul_scratch_bytes(SEGMENT_MAX_K));
    assert_non_null(scratch);
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        w[i] = (float)(kernel_random(&random) % 4001) * 1e-3f - 2.0f;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(kernel_random(&random) % 4001) * 1e-3f - 2.0f;
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
        for (size_t t = 0; t < sizeof n_tokens / sizeof n_tokens[0]; t++) {
            const size_t k = lengths[l], n = n_tokens[t];
            struct phi_matmul a = {.w = w, .ld_w = SEGMENT_MAX_K, .n_rows = SEGMENT_ROWS, .x = x,
                                   .ld_x = SEGMENT_MAX_K, .n_tokens = n, .k = k,
                                   .segment_k = (k + 127) / 128 * 16, .y = got,
                                   .ld_y = SEGMENT_ROWS, .scratch = scratch};
            join_by_reference(&a, want);
            table->matmul_f32(&a);
            for (size_t i = 0; i < n * SEGMENT_ROWS; i++)
                if (memcmp(&want[i], &got[i], sizeof *want) != 0)
                    fail_msg("%s: %zu tokens, k %zu, seed %" PRIu64 ": %a is not %a", table->name, n,
                             k, seed, (double)got[i], (double)want[i]);
        }
    phi_free(scratch);
}

/* ---------------------------------------------------------------- main */

static int tell_seed(void **state)
{
    (void)state;
    print_message("# PHI_TEST_SEED=%" PRIu64 "\n", seed);
    return 0;
}

int main(void)
{
    enum { MAX_TESTS = 1 + 8 * (N_KERNEL_OPS + 2), MAX_NAME = 64 };
    static struct CMUnitTest tests[MAX_TESTS];
    static struct pairing pairings[MAX_TESTS];
    static char names[MAX_TESTS][MAX_NAME];
    size_t n = 0;

    phi_fp_env_set();
    if (getenv("PHI_TEST_SEED"))
        seed = strtoull(getenv("PHI_TEST_SEED"), NULL, 0);
    if (getenv("PHI_TEST_FILTER"))
        cmocka_set_test_filter(getenv("PHI_TEST_FILTER"));

    tests[n++] = (struct CMUnitTest){"reference has golden hash", reference_has_golden_hash, NULL,
                                     NULL, NULL};
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++) {
        if (*t == &phi_kernels_ref)
            continue;
        for (int op = 0; op < N_KERNEL_OPS; op++, n++) {
            pairings[n] = (struct pairing){.table = *t, .op = (enum kernel_op)op};
            snprintf(names[n], MAX_NAME, "%s %s", (*t)->name, kernel_op_name((enum kernel_op)op));
            tests[n] = (struct CMUnitTest){names[n], equals_reference, NULL, NULL, &pairings[n]};
        }
        snprintf(names[n], MAX_NAME, "%s pairs over all exponents", (*t)->name);
        tests[n] = (struct CMUnitTest){names[n], pairs_over_all_exponents, NULL, NULL, (void *)*t};
        n++;
        if ((*t)->joins_segments) {
            snprintf(names[n], MAX_NAME, "%s joined segments", (*t)->name);
            tests[n] = (struct CMUnitTest){names[n], joined_segments, NULL, NULL, (void *)*t};
            n++;
        }
    }
    return _cmocka_run_group_tests("kernels", tests, n, tell_seed, NULL);
}
