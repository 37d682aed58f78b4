/* bench_kernels.c: how close each kernel comes to this machine's limits. Times the cases of
 * tests/kernels/kernel_cases.c that are marked for it, on every table that the processor runs,
 * and prints each one's share of the read bandwidth and of the arithmetic peak, both measured
 * in the same run.
 *
 *     bench_kernels [FILTER [N_THREADS]]     FILTER: part of a line, such as "avx2 matmul_f32 512x"
 *
 * Each figure is the median of several repeats, and the limits are measured anew for each line,
 * since other load on the machine comes and goes. On one thread processor time is counted,
 * which it disturbs less; on several, wall-clock time. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/threads.h"
#include "kernel_cases.h"
#include "kernels/ops.h"
#include "peak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_REPEATS = 7, READ_BYTES = 256 << 20 };

/* What is timed: fn(context) once is `work` bytes or operations. */
typedef void (*work_fn)(void *context);

static double now_s(int n_threads)
{
    struct timespec t;
    clock_gettime(n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of one call; calls are repeated until they fill 20 ms. */
static double median_s(int n_threads, work_fn fn, void *context)
{
    double seconds[N_REPEATS];
    long n_calls = 1;
    for (;;) {
        double start = now_s(n_threads);
        for (long i = 0; i < n_calls; i++)
            fn(context);
        if (now_s(n_threads) - start > 0.02)
            break;
        n_calls *= 2;
    }
    for (int r = 0; r < N_REPEATS; r++) {
        double start = now_s(n_threads);
        for (long i = 0; i < n_calls; i++)
            fn(context);
        seconds[r] = (now_s(n_threads) - start) / (double)n_calls;
    }
    qsort(seconds, N_REPEATS, sizeof *seconds, by_value);
    return seconds[N_REPEATS / 2];
}

/* ---------------------------------------------------------------- limits */

struct limits {
    double read_gbps, fma_gflops, dot_gflops, int8_gflops;
};

struct probe {
    struct phi_compute *c;
    unsigned features;
    const char *bytes;
    double work; /* of one thread's call */
    volatile unsigned long long sink;
};

static void fma_thread(void *context, int thread, int n_threads)
{
    struct probe *p = context;
    (void)thread, (void)n_threads;
    double work = phi_peak_fma(p->features);
    if (thread == 0)
        p->work = work;
}

static void dot_thread(void *context, int thread, int n_threads)
{
    struct probe *p = context;
    (void)n_threads;
    double work = phi_peak_bf16_dot(p->features);
    if (thread == 0)
        p->work = work;
}

static void int8_thread(void *context, int thread, int n_threads)
{
    struct probe *p = context;
    (void)n_threads;
    double work = phi_peak_int8_dot(p->features);
    if (thread == 0)
        p->work = work;
}

/* Pieces as large as the strips of a weight matrix, handed out in the same way. */
enum { READ_PIECE = 128 << 10 };

static void read_piece(void *context, size_t item, int thread)
{
    struct probe *p = context;
    (void)thread;
    unsigned long long sum = phi_peak_read(p->bytes + item * READ_PIECE, READ_PIECE);
    if (sum == 1)
        p->sink = sum;
}

static void probe_fma(void *context)
{
    struct probe *p = context;
    phi_pool_run(p->c->pool, fma_thread, p);
}

static void probe_dot(void *context)
{
    struct probe *p = context;
    phi_pool_run(p->c->pool, dot_thread, p);
}

static void probe_int8(void *context)
{
    struct probe *p = context;
    phi_pool_run(p->c->pool, int8_thread, p);
}

static void probe_read(void *context)
{
    struct probe *p = context;
    phi_compute_each(p->c, READ_BYTES / READ_PIECE, read_piece, p);
}

static struct limits measure_limits(struct phi_compute *c, unsigned features, const char *bytes)
{
    struct probe p = {.c = c, .features = features, .bytes = bytes};
    int n = phi_pool_n_threads(c->pool);
    struct limits l;
    l.read_gbps = READ_BYTES / median_s(n, probe_read, &p) / 1e9;
    double seconds = median_s(n, probe_fma, &p);
    l.fma_gflops = n * p.work / seconds / 1e9;
    seconds = median_s(n, probe_dot, &p);
    l.dot_gflops = n * p.work / seconds / 1e9;
    seconds = median_s(n, probe_int8, &p);
    l.int8_gflops = n * p.work / seconds / 1e9;
    return l;
}

/* ---------------------------------------------------------------- cases */

struct bench {
    const char *filter;
    const char *bytes; /* [READ_BYTES] */
    struct phi_compute compute;
    struct limits limits;
};

struct timing {
    struct bench *b;
    struct kernel_run *run;
    size_t n_rows;
};

static void run_strip(void *context, size_t item, int thread)
{
    struct timing *t = context;
    size_t begin = item * PHI_STRIP_ROWS;
    kernel_run_call(t->run, t->b->compute.kernels, begin, begin + PHI_STRIP_ROWS,
                    phi_compute_scratch(&t->b->compute, thread));
}

static void run_all(void *context)
{
    struct timing *t = context;
    phi_compute_each(&t->b->compute, (t->n_rows + PHI_STRIP_ROWS - 1) / PHI_STRIP_ROWS, run_strip,
                     t);
}

static void print_line(const struct bench *b, const struct kernel_case *c, const char *label,
                       double seconds)
{
    struct kernel_work work = kernel_case_work(c);
    double gbps = work.n_bytes / seconds / 1e9, gflops = work.n_flops / seconds / 1e9;
    bool dot = c->op == OP_MATMUL_BF16_PAIRS && b->limits.dot_gflops > 0;
    double peak = kernel_op_is_quant_matmul(c->op) ? b->limits.int8_gflops
                  : dot                            ? b->limits.dot_gflops
                                                   : b->limits.fma_gflops;
    printf("%-48s %d thread%s %10.1f us %6.1f of %5.1f GB/s %4.0f%%", label,
           phi_pool_n_threads(b->compute.pool), phi_pool_n_threads(b->compute.pool) > 1 ? "s" : " ",
           seconds * 1e6, gbps, b->limits.read_gbps, 100 * gbps / b->limits.read_gbps);
    if (work.n_flops > 0)
        printf(" %6.1f of %5.1f GFLOP/s %4.0f%%", gflops, peak, 100 * gflops / peak);
    printf("\n");
    fflush(stdout);
}

static void time_case(const struct kernel_case *c, void *context)
{
    struct bench *b = context;
    bool by_strips = kernel_op_is_matmul(c->op);
    int n_threads = phi_pool_n_threads(b->compute.pool);
    char label[96];
    snprintf(label, sizeof label, "%s %s %zux%zux%zu", b->compute.kernels->name,
             kernel_op_name(c->op), c->n_rows, c->n_tokens, c->k);
    if ((b->filter && !strstr(label, b->filter)) || (!by_strips && n_threads > 1))
        return; /* what is not cut in strips runs on one thread */
    struct kernel_run *run = kernel_run_create(c, 1);
    if (!run) {
        fprintf(stderr, "bench_kernels: no memory for %s\n", label);
        return;
    }
    b->limits = measure_limits(&b->compute, b->compute.kernels->features, b->bytes);
    struct timing t = {b, run, by_strips ? c->n_rows : 1};
    print_line(b, c, label, median_s(n_threads, run_all, &t));
    kernel_run_destroy(run);
}

static bool bench_table(struct bench *b, const struct phi_kernels *table, int n_threads)
{
    struct phi_error err;
    size_t scratch_bytes = phi_matmul_scratch_bytes(16384); /* more than quantised ones need */
    if (phi_compute_init(&b->compute, table, n_threads, scratch_bytes, &err) != PHI_OK) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        return false;
    }
    for (int op = 0; op < N_KERNEL_OPS; op++)
        kernel_timed_cases_each((enum kernel_op)op, time_case, b);
    phi_compute_deinit(&b->compute);
    return true;
}

int main(int argc, char **argv)
{
    struct bench b = {.filter = argc > 1 ? argv[1] : NULL};
    int only = argc > 2 ? atoi(argv[2]) : 0, n_cores = phi_n_cores();
    char *bytes = phi_alloc_aligned(4096, READ_BYTES);
    if (!bytes) {
        fprintf(stderr, "bench_kernels: no memory\n");
        return 1;
    }
    memset(bytes, 1, READ_BYTES);
    b.bytes = bytes;
    bool ok = true, by_name = b.filter && strncmp(b.filter, "ref", 3) == 0;
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t && ok; t++) {
        if ((*t)->features & ~phi_cpu_features() || (*t == &phi_kernels_ref && !by_name))
            continue; /* the reference is not made for speed: only when named */
        ok = bench_table(&b, *t, only ? only : 1);
        if (ok && !only && n_cores > 1)
            ok = bench_table(&b, *t, n_cores);
    }
    phi_free(bytes);
    return ok ? 0 : 1;
}
