/* machine_limits.c: see machine_limits.h. */
#include "machine_limits.h"
#include "base/alloc.h"
#include "kernels/ops.h"
#include "peak.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    READ_BYTES = 256 << 20, /* more than caches hold */
    READ_PIECE = 512 << 10, /* handed out as the strips of a weight matrix are */
    TURNS = 3,              /* of each pattern below */
    MAX_REPEATS = 7
};

/* Which is fastest depends on processor and memory. */
static const struct phi_read_pattern patterns[] = {
    {1, 0}, {1, 1024}, {1, 2048}, {4, 0}, {4, 1024}, {4, 2048}, {8, 1024},
};

struct phi_limits {
    struct phi_compute compute;
    char *bytes;                     /* [READ_BYTES], on huge pages */
    struct phi_read_pattern pattern; /* the fastest of patterns */
    bool processor_time;
    int n_repeats;
    double (*peak)(unsigned features); /* the probe that runs, and the operations of one thread's */
    double work;
    volatile unsigned long long sink;
};

static double now_s(const struct phi_limits *l)
{
    struct timespec t;
    clock_gettime(l->processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Calls are repeated until they fill 20 ms. */
double phi_limits_time(struct phi_limits *l, void (*fn)(void *context), void *context)
{
    double seconds[MAX_REPEATS];
    long n_calls = 1;
    for (;;) {
        double start = now_s(l);
        for (long i = 0; i < n_calls; i++)
            fn(context);
        if (now_s(l) - start > 0.02)
            break;
        n_calls *= 2;
    }
    for (int r = 0; r < l->n_repeats; r++) {
        double start = now_s(l);
        for (long i = 0; i < n_calls; i++)
            fn(context);
        seconds[r] = (now_s(l) - start) / (double)n_calls;
    }
    qsort(seconds, (size_t)l->n_repeats, sizeof *seconds, by_value);
    return seconds[l->n_repeats / 2];
}

/* ---------------------------------------------------------------- probes */

static void peak_item(void *context, size_t item, int thread)
{
    struct phi_limits *l = context;
    (void)thread;
    double work = l->peak(l->compute.kernels->features);
    if (item == 0)
        l->work = work;
}

static void probe_peak(void *context)
{
    struct phi_limits *l = context;
    phi_pool_run(l->compute.pool, (size_t)phi_pool_n_threads(l->compute.pool), peak_item, l);
}

static void read_piece(void *context, size_t item, int thread)
{
    struct phi_limits *l = context;
    (void)thread;
    unsigned long long sum = phi_peak_read(l->bytes + item * READ_PIECE, READ_PIECE, l->pattern);
    if (sum == 1)
        l->sink = sum;
}

static void probe_read(void *context)
{
    struct phi_limits *l = context;
    phi_compute_each(&l->compute, READ_BYTES / READ_PIECE, read_piece, l);
}

/* Each has a few turns, and its best one counts: other load only ever makes it slower. */
static void pick_pattern(struct phi_limits *l)
{
    enum { N = sizeof patterns / sizeof patterns[0] };
    double best = 0;
    struct phi_read_pattern fastest = patterns[0];
    for (int turn = 0; turn < TURNS * N; turn++) {
        l->pattern = patterns[turn % N];
        double start = now_s(l);
        probe_read(l);
        double seconds = now_s(l) - start;
        if (best == 0 || seconds < best) {
            best = seconds;
            fastest = l->pattern;
        }
    }
    l->pattern = fastest;
}

double phi_limits_measure(struct phi_limits *l, enum phi_limit which)
{
    if (which == PHI_LIMIT_READ) {
        pick_pattern(l);
        return READ_BYTES / phi_limits_time(l, probe_read, l);
    }
    l->peak = which == PHI_LIMIT_FMA    ? phi_peak_fma
              : which == PHI_LIMIT_BF16 ? phi_peak_bf16_dot
              : which == PHI_LIMIT_INT8 ? phi_peak_int8_dot
                                        : phi_peak_int4_dot;
    if (l->peak(l->compute.kernels->features) == 0)
        return 0;
    double seconds = phi_limits_time(l, probe_peak, l);
    return phi_pool_n_threads(l->compute.pool) * l->work / seconds;
}

bool phi_limits_have_bf16(const struct phi_limits *l)
{
    return phi_peak_bf16_dot(l->compute.kernels->features) > 0;
}

/* ---------------------------------------------------------------- making one */

struct phi_compute *phi_limits_compute(struct phi_limits *l)
{
    return &l->compute;
}

static enum phi_status create(const struct phi_kernels *table, int n_threads, size_t scratch_bytes,
                              struct phi_limits **out, struct phi_error *err)
{
    struct phi_limits *l = phi_calloc(1, sizeof *l);
    if (!l)
        return phi_fail_memory(err, "limits", sizeof *l);
    *out = l;
    l->bytes = phi_pages_alloc(READ_BYTES);
    if (!l->bytes)
        return phi_fail_memory(err, "the bandwidth probe", READ_BYTES);
    memset(l->bytes, 1, READ_BYTES);
    return phi_compute_init(&l->compute, table, n_threads, scratch_bytes, err);
}

enum phi_status phi_limits_create_for(const struct phi_kernels *table, int n_threads,
                                      size_t scratch_bytes, struct phi_limits **out,
                                      struct phi_error *err)
{
    *out = NULL;
    enum phi_status status = create(table, n_threads, scratch_bytes, out, err);
    if (status != PHI_OK) {
        phi_limits_destroy(*out);
        *out = NULL;
        return status;
    }
    (*out)->n_repeats = MAX_REPEATS;
    (*out)->processor_time = n_threads == 1;
    return PHI_OK;
}

enum phi_status phi_limits_create(int n_threads, struct phi_limits **out, struct phi_error *err)
{
    const struct phi_kernels *table;
    PHI_TRY(phi_kernels_select(getenv("PHI_ISA"), &table, err));
    PHI_TRY(phi_limits_create_for(table, n_threads, 64, out, err));
    (*out)->n_repeats = 3;
    (*out)->processor_time = false;
    return PHI_OK;
}

void phi_limits_destroy(struct phi_limits *l)
{
    if (!l)
        return;
    phi_compute_deinit(&l->compute);
    phi_pages_free(l->bytes, READ_BYTES);
    phi_free(l);
}
