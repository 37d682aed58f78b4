/* kernel_bench.c: see kernel_bench.h. Each figure is the median of several repeats, and the limits
 * are measured anew for each line, since other load on the machine comes and goes. */
#include "kernel_bench.h"
#include "base/size.h"
#include "base/threads.h"
#include "kernel_cases.h"
#include "kernels/ops.h"
#include "machine_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    const char *filter;
    bool all;
    bool by_strips;            /* matrices now, or what runs on one thread */
    struct phi_limits *limits; /* of one table and number of threads after the other */
    struct phi_compute *compute;
    enum phi_status status;
    struct phi_error *err;
};

struct timing {
    struct bench *b;
    struct kernel_run *run;
    size_t n_rows, item_rows;
};

static void run_item(void *context, size_t item, int thread)
{
    struct timing *t = context;
    size_t begin = item * t->item_rows;
    kernel_run_call(t->run, t->b->compute->kernels, begin, begin + t->item_rows,
                    phi_compute_scratch(t->b->compute, thread));
}

static void run_all(void *context)
{
    struct timing *t = context;
    phi_compute_each(t->b->compute, phi_size_ceil_div(t->n_rows, t->item_rows), run_item, t);
}

/* The arithmetic that the case is made of, in operations a second. */
static double measure_peak(const struct bench *b, const struct kernel_case *c)
{
    if (kernel_op_is_quant_matmul(c->op))
        return phi_limits_measure(b->limits,
                                  c->op == OP_MATMUL_W8 ? PHI_LIMIT_INT8 : PHI_LIMIT_INT4);
    bool dot = c->op == OP_MATMUL_BF16_PAIRS && phi_limits_have_bf16(b->limits);
    return phi_limits_measure(b->limits, dot ? PHI_LIMIT_BF16 : PHI_LIMIT_FMA);
}

static void print_line(const struct bench *b, const struct kernel_case *c, const char *label,
                       double seconds)
{
    struct kernel_work work = kernel_case_work(c);
    int n_threads = phi_pool_n_threads(b->compute->pool);
    double read = phi_limits_measure(b->limits, PHI_LIMIT_READ) / 1e9;
    double gbps = work.n_bytes / seconds / 1e9, gflops = work.n_flops / seconds / 1e9;
    printf("%-48s %d thread%s %10.1f us %6.1f of %5.1f GB/s %4.0f%%", label, n_threads,
           n_threads > 1 ? "s" : " ", seconds * 1e6, gbps, read, 100 * gbps / read);
    if (work.n_flops > 0) {
        double peak = measure_peak(b, c) / 1e9;
        printf(" %6.1f of %5.1f GFLOP/s %4.0f%%", gflops, peak, 100 * gflops / peak);
    }
    printf("\n");
    fflush(stdout);
}

/* Whether a case says more than its neighbours: decoding one and sixteen requests, and a prompt. */
static bool is_telling(const struct kernel_case *c)
{
    if (!kernel_op_is_matmul(c->op))
        return true;
    return c->k == 2048 && (c->n_tokens == 1 || c->n_tokens == 16 || c->n_tokens == 512);
}

static void time_case(const struct kernel_case *c, void *context)
{
    struct bench *b = context;
    bool by_strips = kernel_op_is_matmul(c->op);
    char label[96];
    snprintf(label, sizeof label, "%s %s %zux%zux%zu", b->compute->kernels->name,
             kernel_op_name(c->op), c->n_rows, c->n_tokens, c->k);
    if (b->status != PHI_OK || (b->filter && !strstr(label, b->filter)) ||
        (!b->all && !is_telling(c)) || by_strips != b->by_strips)
        return;
    struct kernel_run *run = kernel_run_create(c, 1);
    if (!run) {
        b->status = phi_fail(b->err, PHI_ERR_MEMORY, "no memory for %s", label);
        return;
    }
    kernel_run_prepare(run, b->compute->kernels);
    struct timing t = {b, run, by_strips ? c->n_rows : 1, PHI_STRIP_ROWS};
    print_line(b, c, label, phi_limits_time(b->limits, run_all, &t));
    kernel_run_destroy(run);
}

static enum phi_status bench_table(struct bench *b, const struct phi_kernels *table, int n_threads)
{
    size_t scratch_bytes = phi_matmul_scratch_bytes(16384); /* more than quantised ones need */
    PHI_TRY(phi_limits_create_for(table, n_threads, scratch_bytes, &b->limits, b->err));
    b->compute = phi_limits_compute(b->limits);
    for (int op = 0; op < N_KERNEL_OPS; op++)
        kernel_timed_cases_each((enum kernel_op)op, time_case, b);
    phi_limits_destroy(b->limits);
    return b->status;
}

/* What is not cut in strips runs on one thread. */
static enum phi_status bench_both(struct bench *b, const struct phi_kernels *table, int n_threads)
{
    const int n_cores = phi_n_cores();
    b->by_strips = true;
    if (n_threads > 0)
        PHI_TRY(bench_table(b, table, n_threads));
    else if (b->all || n_cores == 1)
        PHI_TRY(bench_table(b, table, 1));
    if (n_threads == 0 && n_cores > 1)
        PHI_TRY(bench_table(b, table, n_cores));
    b->by_strips = false;
    return n_threads > 1 ? PHI_OK : bench_table(b, table, 1);
}

enum phi_status phi_bench_kernels(const struct phi_kernel_bench *o, struct phi_error *err)
{
    struct bench b = {.filter = o->filter, .all = o->all || o->filter, .err = err};
    const struct phi_kernels *used;
    bool by_name = o->filter && strncmp(o->filter, "ref", 3) == 0;
    PHI_TRY(phi_kernels_select(getenv("PHI_ISA"), &used, err));
    for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++) {
        bool runs = ((*t)->features & ~phi_cpu_features()) == 0;
        if (b.all ? runs && (by_name || *t != &phi_kernels_ref) : *t == used)
            PHI_TRY(bench_both(&b, *t, o->n_threads));
    }
    return PHI_OK;
}
