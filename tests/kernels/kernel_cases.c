/* kernel_cases.c: the list of cases, their inputs and their calls. See kernel_cases.h. */
#include "kernel_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const op_names[N_KERNEL_OPS] = {
    [OP_MATMUL_F32] = "matmul_f32",
    [OP_MATMUL_BF16] = "matmul_bf16",
    [OP_MATMUL_F16] = "matmul_f16",
    [OP_MATMUL_BF16_PAIRS] = "matmul_bf16_pairs",
    [OP_TO_BF16] = "to_bf16",
    [OP_TO_F16] = "to_f16",
    [OP_FROM_BF16] = "from_bf16",
    [OP_FROM_F16] = "from_f16",
    [OP_RMS_NORM] = "rms_norm",
    [OP_LAYER_NORM] = "layer_norm",
    [OP_GELU_NEW] = "gelu_new",
    [OP_SILU_MUL] = "silu_mul",
    [OP_SOFTMAX_STEP] = "softmax_step",
    [OP_WEIGHTED_SUM_F32] = "weighted_sum_f32",
    [OP_WEIGHTED_SUM_BF16] = "weighted_sum_bf16",
    [OP_WEIGHTED_SUM_F16] = "weighted_sum_f16",
    [OP_ATTENTION_BLOCK] = "attention_block",
    [OP_TRANSPOSE] = "transpose",
    [OP_SUM_EXP] = "sum_exp",
    [OP_QUANTIZE_W8] = "quantize_w8",
    [OP_QUANTIZE_W4] = "quantize_w4",
    [OP_MATMUL_W8] = "matmul_w8",
    [OP_MATMUL_W4_32] = "matmul_w4_32",
    [OP_MATMUL_W4_64] = "matmul_w4_64",
    [OP_MATMUL_W4_128] = "matmul_w4_128",
    [OP_GELU_QUANTIZE_W8] = "gelu_quantize_w8",
    [OP_GELU_QUANTIZE_W4] = "gelu_quantize_w4",
    [OP_SILU_MUL_QUANTIZE_W8] = "silu_mul_quantize_w8",
    [OP_SILU_MUL_QUANTIZE_W4] = "silu_mul_quantize_w4",
};

const char *kernel_op_name(enum kernel_op op)
{
    return op_names[op];
}

bool kernel_op_is_quant_matmul(enum kernel_op op)
{
    return op >= OP_MATMUL_W8 && op <= OP_MATMUL_W4_128;
}

bool kernel_op_is_matmul(enum kernel_op op)
{
    return op <= OP_MATMUL_BF16_PAIRS || kernel_op_is_quant_matmul(op);
}

static bool is_quantize(enum kernel_op op)
{
    return op == OP_QUANTIZE_W8 || op == OP_QUANTIZE_W4 || op >= OP_GELU_QUANTIZE_W8;
}

/* Groups cut k into equal parts: where this size does not, the whole row is one group. */
static size_t group_of(const struct kernel_case *c)
{
    size_t group = c->op == OP_MATMUL_W4_32   ? 32
                   : c->op == OP_MATMUL_W4_64 ? 64
                                              : 128;
    if (c->group)
        return c->group;
    return c->k % group == 0 ? group : c->k;
}

static size_t quant_row_bytes(const struct kernel_case *c)
{
    return c->op == OP_MATMUL_W8 ? c->k : (c->k + 7) / 8 * 4;
}

static bool is_weighted_sum(enum kernel_op op)
{
    return op >= OP_WEIGHTED_SUM_F32 && op <= OP_WEIGHTED_SUM_F16;
}

/* ---------------------------------------------------------------- the list */

typedef void (*visit_fn)(const struct kernel_case *c, void *context);

static void matmul_cases(enum kernel_op op, visit_fn visit, void *context)
{
    static const size_t ks[] = {1,  7,  8,  13, 15,  16,  17,  24,  31,  32,  33,  50,
                                64, 72, 80, 96, 100, 128, 136, 200, 250, 256, 2048};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
        for (size_t rows = 1; rows <= PHI_STRIP_ROWS; rows++) {
            size_t tokens = ks[i] == 2048 ? rows : 1 + (rows * 29 + i * 13) % 70;
            visit(&(struct kernel_case){op, rows, tokens, ks[i], (rows + i) % 4,
                                        rows % 2 ? DATA_WILD : DATA_PLAIN, .in_place = false},
                  context);
        }
    for (size_t tokens = 1; tokens <= 70; tokens++) {
        visit(&(struct kernel_case){op, 16, tokens, 24, 0, DATA_WILD, .in_place = false}, context);
        visit(&(struct kernel_case){op, 11, tokens, 83, 3, DATA_PLAIN, .in_place = false}, context);
    }
    visit(&(struct kernel_case){op, 40, 9, 64, 1, DATA_ZERO, .in_place = false}, context);
    visit(&(struct kernel_case){op, 100, 1, 320, 0, DATA_WILD, .in_place = false}, context);
}

static void weighted_sum_cases(enum kernel_op op, visit_fn visit, void *context)
{
    static const size_t ds[] = {8, 16, 24, 40, 64, 72, 80, 96, 128, 136, 256};
    for (size_t i = 0; i < sizeof ds / sizeof *ds; i++)
        for (size_t rows = 1; rows <= 20; rows++)
            visit(&(struct kernel_case){op, rows, 1 + (rows * 37 + i * 11) % PHI_KEY_BLOCK, ds[i],
                                        (rows + i) % 4, rows % 3 ? DATA_PLAIN : DATA_WILD,
                                        .in_place = false},
                  context);
    visit(&(struct kernel_case){op, 70, PHI_KEY_BLOCK, 80, 0, DATA_ZERO, .in_place = false}, context);
}

/* Whole blocks too, whose rows do without masks. */
static void attention_block_cases(enum kernel_op op, visit_fn visit, void *context)
{
    static const size_t ds[] = {8, 16, 24, 48, 64, 72, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof ds / sizeof *ds; i++)
        for (size_t rows = PHI_QUERY_STEP; rows <= 9 * PHI_QUERY_STEP; rows += PHI_QUERY_STEP)
            for (size_t form = 0; form < 4; form++)
                visit(&(struct kernel_case){op, rows,
                                            form ? 1 + (rows * 37 + i * 11 + form) % PHI_KEY_BLOCK
                                                 : PHI_KEY_BLOCK,
                                            ds[i], form, form == 3 ? DATA_WILD : DATA_PLAIN,
                                            .in_place = false},
                      context);
    visit(&(struct kernel_case){op, 48, PHI_KEY_BLOCK, 80, 1, DATA_ZERO, .in_place = false}, context);
}

static void transpose_cases(enum kernel_op op, visit_fn visit, void *context)
{
    for (size_t rows = 1; rows <= 40; rows++)
        visit(&(struct kernel_case){op, rows, 1, 8 * (1 + rows % 7), rows % 4, DATA_PLAIN, .in_place = false},
              context);
}

static void row_cases(enum kernel_op op, size_t max, visit_fn visit, void *context)
{
    static const size_t ns[] = {1,  2,  7,  8,   9,   15,   16,   17,  31,
                                64, 80, 96, 100, 128, 1000, 1024, 2560};
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
        for (int form = 0; form < 6; form++)
            if (ns[i] <= max)
                visit(&(struct kernel_case){op, 1, 1, ns[i], (size_t)form,
                                            (enum kernel_data)(form % 3), .in_place = form >= 3},
                      context);
}

static void softmax_cases(enum kernel_op op, visit_fn visit, void *context)
{
    for (size_t i = 0; i < 300; i++) /* the visible range is random */
        visit(&(struct kernel_case){op, 1, 1, PHI_KEY_BLOCK, i, i % 10 ? DATA_PLAIN : DATA_ZERO,
                                    .in_place = true},
              context);
}

void kernel_cases_each(enum kernel_op op, visit_fn visit, void *context)
{
    if (kernel_op_is_matmul(op))
        matmul_cases(op, visit, context);
    else if (is_weighted_sum(op))
        weighted_sum_cases(op, visit, context);
    else if (op == OP_ATTENTION_BLOCK)
        attention_block_cases(op, visit, context);
    else if (op == OP_TRANSPOSE)
        transpose_cases(op, visit, context);
    else if (op == OP_SOFTMAX_STEP)
        softmax_cases(op, visit, context);
    else
        row_cases(op, op == OP_SUM_EXP ? PHI_LSE_BLOCK : SIZE_MAX, visit, context);
}

/* Weights of decoding come from memory (more than a last-level cache holds), those of a prompt and
 * the keys of attention from the cache. */
static void timed_matmul_cases(enum kernel_op op, visit_fn visit, void *context)
{
    static const size_t shapes[][3] = {
        /* rows, tokens, k */
        {32768, 1, 2048}, {8192, 1, 8192},  {32768, 2, 2048}, {32768, 4, 2048},
        {32768, 8, 2048}, {32768, 16, 2048}, {32768, 32, 2048}, {32768, 64, 2048},
        {512, 64, 2048},  {512, 512, 2048}, {256, 512, 8192},  {512, 512, 256},
        {512, 1, 64},     {512, 4, 128},    {64, 128, 64},     {64, 128, 80},
        {64, 128, 128},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        visit(&(struct kernel_case){op, shapes[i][0], shapes[i][1], shapes[i][2], 0, DATA_PLAIN,
                                    .in_place = false},
              context);
}

static void timed_weighted_sum_cases(enum kernel_op op, visit_fn visit, void *context)
{
    static const size_t shapes[][2] = {/* rows, d */ {1, 64},  {1, 80},  {4, 128}, {8, 64},
                                       {64, 64}, {64, 80}, {64, 96}, {64, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        visit(&(struct kernel_case){op, shapes[i][0], PHI_KEY_BLOCK, shapes[i][1], 0, DATA_PLAIN,
                                    .in_place = false},
              context);
}

static void timed_attention_block_cases(enum kernel_op op, visit_fn visit, void *context)
{
    static const size_t shapes[][2] = {/* rows, d */ {96, 64}, {96, 80}, {96, 96}, {96, 128},
                                       {16, 64}, {32, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        visit(&(struct kernel_case){op, shapes[i][0], PHI_KEY_BLOCK, shapes[i][1], 0, DATA_PLAIN,
                                    .in_place = false},
              context);
}

void kernel_timed_cases_each(enum kernel_op op, visit_fn visit, void *context)
{
    if (kernel_op_is_matmul(op))
        timed_matmul_cases(op, visit, context);
    else if (is_weighted_sum(op))
        timed_weighted_sum_cases(op, visit, context);
    else if (op == OP_ATTENTION_BLOCK)
        timed_attention_block_cases(op, visit, context);
    else if (op == OP_TRANSPOSE)
        visit(&(struct kernel_case){op, 96, 1, 64, 0, DATA_PLAIN, .in_place = false}, context);
    else
        visit(&(struct kernel_case){op, 1, 1, op == OP_SOFTMAX_STEP ? PHI_KEY_BLOCK : PHI_LSE_BLOCK,
                                    0, DATA_PLAIN, .in_place = false},
              context);
}

struct kernel_work kernel_case_work(const struct kernel_case *c)
{
    double rows = (double)c->n_rows, tokens = (double)c->n_tokens, k = (double)c->k;
    double w_bytes = c->op == OP_MATMUL_F32 || c->op == OP_WEIGHTED_SUM_F32 ? 4 : 2;
    double x_bytes = c->op == OP_MATMUL_BF16_PAIRS ? 2 : 4;
    if (kernel_op_is_quant_matmul(c->op)) {
        double scales = c->op == OP_MATMUL_W8 ? 4 : k / (double)group_of(c) * 2;
        return (struct kernel_work){rows * ((double)quant_row_bytes(c) + scales) + tokens * k +
                                        rows * tokens * 4,
                                    2 * rows * tokens * k};
    }
    if (kernel_op_is_matmul(c->op))
        return (struct kernel_work){rows * k * w_bytes + tokens * k * x_bytes + rows * tokens * 4,
                                    2 * rows * tokens * k};
    if (is_weighted_sum(c->op))
        return (struct kernel_work){tokens * k * w_bytes + rows * tokens * 4 + 2 * rows * k * 4,
                                    2 * rows * tokens * k};
    if (c->op == OP_ATTENTION_BLOCK)
        return (struct kernel_work){2 * tokens * k * 4 + 3 * rows * k * 4, 4 * rows * tokens * k};
    return (struct kernel_work){rows * k * 8, 0};
}

/* ---------------------------------------------------------------- random numbers */

uint64_t kernel_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The bits of a finite float32. No product of a few of them overflows. */
static uint32_t random_f32(uint64_t *state, enum kernel_data data)
{
    uint64_t r = kernel_random(state);
    uint32_t sign = (uint32_t)(r & 1) << 31, mantissa = (uint32_t)(r >> 1) & 0x7FFFFF;
    uint32_t choice = (uint32_t)(r >> 24) & 15, spread = (uint32_t)(r >> 32);
    if (data == DATA_ZERO || (data == DATA_WILD && choice == 0))
        return sign;
    if (data == DATA_WILD && choice == 1)
        return sign | mantissa;
    uint32_t exponent = data == DATA_PLAIN ? 121 + spread % 8 : 1 + spread % 156;
    return sign | exponent << 23 | mantissa;
}

static uint16_t random_f16(uint64_t *state, enum kernel_data data)
{
    uint64_t r = kernel_random(state);
    uint16_t sign = (uint16_t)((r & 1) << 15), mantissa = r >> 1 & 1023;
    uint16_t exponent = (uint16_t)(data == DATA_PLAIN ? 12 + (r >> 32) % 4 : (r >> 32) % 31);
    return data == DATA_ZERO ? sign : (uint16_t)(sign | exponent << 10 | mantissa);
}

enum element { F32, BF16, F16, RAW32, RAW16, RAW8 };

static size_t element_bytes(enum element type)
{
    return type == F32 || type == RAW32 ? 4 : type == RAW8 ? 1 : 2;
}

static void fill(void *at, size_t n, enum element type, enum kernel_data data, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = type == F32    ? random_f32(state, data)
                     : type == BF16 ? random_f32(state, data) >> 16
                     : type == F16  ? random_f16(state, data)
                                    : (uint32_t)kernel_random(state);
        uint16_t h = (uint16_t)u;
        if (element_bytes(type) == 4)
            memcpy((char *)at + i * 4, &u, 4);
        else if (element_bytes(type) == 2)
            memcpy((char *)at + i * 2, &h, 2);
        else
            ((unsigned char *)at)[i] = (unsigned char)u;
    }
}

/* ---------------------------------------------------------------- memory */

enum { MAX_REGIONS = 8, SURROUNDINGS = 64, PATTERN = 0xA5 };

struct region {
    unsigned char *map;
    size_t map_bytes;
    unsigned char *data;
};

struct kernel_run {
    struct kernel_case c;
    uint64_t random;
    struct region regions[MAX_REGIONS];
    int n_regions;
    bool failed;
    /* The output, its surroundings, and their first state. */
    unsigned char *output, *first;
    size_t output_bytes;
    /* Inputs. */
    struct phi_matmul matmul;
    void *interleaved; /* room for matmul.x_interleaved */
    float *between;    /* and for what is quantised as it is made */
    struct phi_quant_matmul quant;
    struct phi_weighted_sum sum;
    struct phi_attention_block block;
    struct phi_softmax_step softmax;
    const float *x, *y, *z;
    float max;
};

/* n_bytes that end `slack` bytes before a page that cannot be touched, all bits set: NaN in any
 * type. */
static void *guarded(struct kernel_run *run, size_t n_bytes, size_t slack)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct region *r = &run->regions[run->n_regions];
    size_t body = (n_bytes + slack + page - 1) / page * page;
    r->map_bytes = body + page;
    r->map = mmap(NULL, r->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->map == MAP_FAILED) {
        run->failed = true;
        return NULL;
    }
    run->n_regions++;
    madvise(r->map, body, MADV_HUGEPAGE); /* of large matrices, for the benchmark */
    memset(r->map, 0xFF, body);
    mprotect(r->map + body, page, PROT_NONE);
    r->data = r->map + body - slack - n_bytes;
    return r->data;
}

/* [n_rows, k] of random elements, ld apart. */
static void *matrix(struct kernel_run *run, size_t n_rows, size_t k, size_t ld, enum element type,
                    size_t slack)
{
    size_t bytes = element_bytes(type);
    char *at = guarded(run, ((n_rows - 1) * ld + k) * bytes, slack);
    for (size_t r = 0; at && r < n_rows; r++)
        fill(at + r * ld * bytes, k, type, run->c.data, &run->random);
    return at;
}

/* Room for an output of n_bytes, patterned all around. Ends before a forbidden page too. */
static void *output(struct kernel_run *run, size_t n_bytes)
{
    run->output_bytes = n_bytes + 2 * SURROUNDINGS;
    run->output = guarded(run, run->output_bytes, 0);
    run->first = malloc(run->output_bytes);
    if (!run->output || !run->first) {
        run->failed = true;
        return NULL;
    }
    memset(run->output, PATTERN, run->output_bytes);
    return run->output + SURROUNDINGS;
}

/* ---------------------------------------------------------------- inputs */

static void make_matmul(struct kernel_run *run)
{
    static const enum element types[] = {F32, BF16, F16, BF16};
    const struct kernel_case *c = &run->c;
    enum element x_type = c->op == OP_MATMUL_BF16_PAIRS ? BF16 : F32;
    run->matmul = (struct phi_matmul){
        .ld_w = c->k + c->gap, .n_rows = c->n_rows,     .ld_x = c->k + c->gap,
        .k = c->k,             .n_tokens = c->n_tokens, .ld_y = c->n_rows + c->gap,
    };
    run->matmul.w = matrix(run, c->n_rows, c->k, run->matmul.ld_w, types[c->op], c->gap);
    run->matmul.x = matrix(run, c->n_tokens, c->k, run->matmul.ld_x, x_type, 0);
    run->matmul.y = output(run, c->n_tokens * run->matmul.ld_y * sizeof(float));
    if (c->n_tokens <= PHI_FEW_TOKENS)
        run->interleaved = guarded(run, phi_interleaved_bytes(c->n_tokens, c->k), 0);
}

/* Activations are float32 rows of every kind, made int8 by the reference. */
static void make_quant_matmul(struct kernel_run *run)
{
    const struct kernel_case *c = &run->c;
    struct phi_quant_matmul *a = &run->quant;
    const enum phi_quantization form = c->op == OP_MATMUL_W8 ? PHI_W8A8 : PHI_W4A8;
    const size_t k = c->k, padded = phi_quant_padded(k), n = c->n_tokens;
    *a = (struct phi_quant_matmul){
        .row_bytes = quant_row_bytes(c) + c->gap, .n_rows = c->n_rows, .group = group_of(c),
        .scale_dtype = c->op == OP_MATMUL_W4_64 ? PHI_FLOAT32 : PHI_BFLOAT16,
        .ld_x = padded + 64 * (c->gap + 1), .ld_sums = phi_quant_n_sums(k) + c->gap,
        .k = k, .n_tokens = n, .ld_y = c->n_rows + c->gap,
    };
    const size_t n_groups = k / a->group;
    a->ld_scale = n_groups + c->gap;
    a->w = matrix(run, c->n_rows, quant_row_bytes(c), a->row_bytes, RAW8, c->gap);
    a->w_scale = form == PHI_W8A8
                     ? matrix(run, 1, c->n_rows, c->n_rows, F32, 0)
                     : matrix(run, c->n_rows, n_groups, a->ld_scale,
                              a->scale_dtype == PHI_FLOAT32 ? F32 : BF16, c->gap);
    const float *x = matrix(run, n, k, k, F32, 0);
    int8_t *q = guarded(run, (n - 1) * a->ld_x + padded, 0);
    int32_t *sums = guarded(run, ((n - 1) * a->ld_sums + phi_quant_n_sums(k)) * sizeof *sums, 0);
    float *scales = guarded(run, n * sizeof *scales, 0);
    a->plane = n * a->ld_y + (c->segment ? c->gap : 0);
    a->segment = form == PHI_W4A8 ? c->segment : 0;
    const size_t n_segments = a->segment ? (k + a->segment - 1) / a->segment : 1;
    a->y = output(run, n_segments * a->plane * sizeof(float));
    if (run->failed)
        return;
    for (size_t m = 0; m < n; m++) {
        struct phi_quant_row row = {q + m * a->ld_x, sums + m * a->ld_sums};
        scales[m] = phi_kernels_ref.quantize_row(row, x + m * k, k, form);
    }
    a->x = q, a->x_sums = sums, a->x_scale = c->n_rows % 3 ? scales : NULL;
}

/* The output is q, then sums, then the scale. */
static void make_quantize(struct kernel_run *run)
{
    const struct kernel_case *c = &run->c;
    float *x = matrix(run, 1, c->k, c->k, F32, 0);
    if (c->op >= OP_GELU_QUANTIZE_W8) {
        run->y = matrix(run, 1, c->k, c->k, F32, 0);
        run->between = guarded(run, c->k * sizeof(float), 0);
    }
    output(run, phi_quant_padded(c->k) + phi_quant_n_sums(c->k) * 4 + 64);
    if (c->gap == 5 && x) /* one of the forms of row_cases: not finite */
        x[c->k / 2] = c->k % 2 ? INFINITY : NAN;
    run->x = x;
}

/* The keys that one row sees. */
static void random_range(struct kernel_run *run, size_t *lo, size_t *hi)
{
    uint64_t random = kernel_random(&run->random);
    size_t n = run->c.n_tokens;
    *lo = random % 8 == 0 ? random / 8 % n : random % 8 == 1 ? n / 3 : 0;
    *hi = random / 64 % 8 == 0 ? random / 512 % (n + 1) : n - (random / 64 % 2);
    if (run->c.gap == 0)
        *lo = 0, *hi = n;
}

/* Row r sees keys [lo, hi), causal-like so that many rows share most keys; some see none. What
 * it does not see has p = NaN, and keys that nobody sees stay NaN. */
static void make_weighted_sum(struct kernel_run *run)
{
    static const enum element types[] = {F32, BF16, F16};
    const struct kernel_case *c = &run->c;
    struct phi_weighted_sum *a = &run->sum;
    enum element v_type = types[c->op - OP_WEIGHTED_SUM_F32];
    size_t n_keys = c->n_tokens, n = c->n_rows, bytes = element_bytes(v_type);
    a->n_rows = n, a->d = c->k, a->n_keys = n_keys;
    a->ld_acc = a->d + c->gap, a->ld_p = n_keys + c->gap, a->ld_v = a->d + c->gap;
    float *p = guarded(run, ((n - 1) * a->ld_p + n_keys) * sizeof *p, 0);
    char *v = guarded(run, ((n_keys - 1) * a->ld_v + a->d) * bytes, c->gap);
    int32_t *ends = guarded(run, 2 * n * sizeof *ends, 0);
    a->c = c->gap % 2 ? NULL : matrix(run, 1, n, n, F32, 0);
    a->acc = output(run, n * a->ld_acc * sizeof(float));
    if (run->failed)
        return;
    bool seen[PHI_KEY_BLOCK] = {false};
    for (size_t r = 0; r < n; r++) {
        size_t lo, hi;
        random_range(run, &lo, &hi);
        ends[r] = (int32_t)lo, ends[n + r] = (int32_t)hi;
        for (size_t j = lo; j < hi; j++) {
            fill(p + r * a->ld_p + j, 1, F32, c->data, &run->random);
            seen[j] = true;
        }
        fill(a->acc + r * a->ld_acc, a->d, F32, c->data, &run->random);
    }
    for (size_t j = 0; j < n_keys; j++)
        if (seen[j])
            fill(v + j * a->ld_v * bytes, a->d, v_type, c->data, &run->random);
    a->p = p, a->v = v, a->lo = ends, a->hi = ends + n;
}

/* The output is acc, then m and l. Some rows have seen nothing before. */
static void make_attention_block(struct kernel_run *run)
{
    const struct kernel_case *c = &run->c;
    struct phi_attention_block *a = &run->block;
    const size_t n = c->n_rows, d = c->k;
    *a = (struct phi_attention_block){.ld = n + c->gap, .n_rows = n, .ld_kv = d + c->gap, .d = d,
                                      .scale = 0.125f};
    a->q = matrix(run, d, n, a->ld, F32, 0);
    float *k = guarded(run, ((PHI_KEY_BLOCK - 1) * a->ld_kv + d) * sizeof *k, 0);
    float *v = guarded(run, ((PHI_KEY_BLOCK - 1) * a->ld_kv + d) * sizeof *v, 0);
    int32_t *ends = guarded(run, 2 * n * sizeof *ends, 0);
    float *out = output(run, (d * a->ld + 2 * n) * sizeof *out);
    if (run->failed)
        return;
    a->acc = out, a->m = out + d * a->ld, a->l = a->m + n;
    bool seen[PHI_KEY_BLOCK] = {false};
    for (size_t r = 0; r < n; r++) {
        size_t lo, hi;
        random_range(run, &lo, &hi);
        ends[r] = (int32_t)lo, ends[n + r] = (int32_t)hi;
        for (size_t j = lo; j < hi; j++)
            seen[j] = true;
    }
    for (size_t j = 0; j < PHI_KEY_BLOCK; j++)
        if (seen[j]) {
            fill(k + j * a->ld_kv, d, F32, c->data, &run->random);
            fill(v + j * a->ld_kv, d, F32, c->data, &run->random);
        }
    enum kernel_data sums = c->data == DATA_WILD ? DATA_PLAIN : c->data; /* no denormals */
    for (size_t i = 0; i < d; i++)
        fill(a->acc + i * a->ld, n, F32, sums, &run->random);
    fill(a->m, 2 * n, F32, sums, &run->random);
    for (size_t r = 0; r < n; r += 5)
        a->m[r] = -INFINITY, a->l[r] = 0.0f;
    a->k = k, a->v = v, a->lo = ends, a->hi = ends + n;
}

static void make_transpose(struct kernel_run *run)
{
    const struct kernel_case *c = &run->c;
    run->x = matrix(run, c->n_rows, c->k, c->k + c->gap, F32, 0);
    output(run, c->k * (c->n_rows + c->gap) * sizeof(float));
}

static void make_softmax(struct kernel_run *run)
{
    struct phi_softmax_step *a = &run->softmax;
    uint64_t random = kernel_random(&run->random);
    size_t p = random % PHI_KEY_BLOCK, q = random / 64 % PHI_KEY_BLOCK;
    a->lo = random / 4096 % 2 ? 0 : p < q ? p : q;
    a->hi = random / 8192 % 2 ? PHI_KEY_BLOCK : (p > q ? p : q) + 1;
    a->s = output(run, PHI_KEY_BLOCK * sizeof(float) + 3 * sizeof(float));
    if (run->failed)
        return;
    memset(a->s, 0xFF, PHI_KEY_BLOCK * sizeof(float));
    fill(a->s + a->lo, a->hi - a->lo, F32, run->c.data, &run->random);
    for (size_t j = a->lo; j < a->hi; j++)
        a->s[j] = a->s[j] * 64.0f;
    fill(&a->m, 1, F32, run->c.data, &run->random);
    a->scale = 0.125f, a->l = 1.5f, a->c = 0.0f;
    if (random >> 32 & 1)
        a->m = -1.0f / 0.0f, a->l = 0.0f;
}

/* Kernels on one row: x, and what else they read. */
static void make_row(struct kernel_run *run)
{
    const struct kernel_case *c = &run->c;
    enum kernel_op op = c->op;
    bool to_16 = op == OP_TO_BF16 || op == OP_TO_F16,
         from_16 = op == OP_FROM_BF16 || op == OP_FROM_F16;
    enum element type = to_16 ? RAW32 : from_16 ? RAW16 : F32;
    size_t n = c->k;
    run->x = matrix(run, 1, n, n, type, 0);
    run->y = matrix(run, 1, n, n, F32, 0);
    run->z = matrix(run, 1, n, n, F32, 0);
    float *out = output(run, op == OP_SUM_EXP ? sizeof(float) : n * (to_16 ? 2 : sizeof(float)));
    if (run->failed)
        return;
    run->max = 0.0f;
    for (size_t i = 0; i < n && op == OP_SUM_EXP; i++)
        run->max = run->x[i] > run->max ? run->x[i] : run->max;
    if (c->in_place && !to_16 && !from_16 && op != OP_SUM_EXP) {
        memcpy(out, run->x, n * sizeof *out);
        run->x = out;
    }
}

struct kernel_run *kernel_run_create(const struct kernel_case *c, uint64_t seed)
{
    struct kernel_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->c = *c;
    run->random = seed;
    if (kernel_op_is_quant_matmul(c->op))
        make_quant_matmul(run);
    else if (is_quantize(c->op))
        make_quantize(run);
    else if (kernel_op_is_matmul(c->op))
        make_matmul(run);
    else if (is_weighted_sum(c->op))
        make_weighted_sum(run);
    else if (c->op == OP_ATTENTION_BLOCK)
        make_attention_block(run);
    else if (c->op == OP_TRANSPOSE)
        make_transpose(run);
    else if (c->op == OP_SOFTMAX_STEP)
        make_softmax(run);
    else
        make_row(run);
    if (run->failed) {
        kernel_run_destroy(run);
        return NULL;
    }
    memcpy(run->first, run->output, run->output_bytes);
    return run;
}

void kernel_run_destroy(struct kernel_run *run)
{
    if (!run)
        return;
    for (int i = 0; i < run->n_regions; i++)
        munmap(run->regions[i].map, run->regions[i].map_bytes);
    free(run->first);
    free(run);
}

void kernel_run_reset(struct kernel_run *run)
{
    memcpy(run->output, run->first, run->output_bytes);
}

const unsigned char *kernel_run_output(const struct kernel_run *run, size_t *n_bytes)
{
    *n_bytes = run->output_bytes;
    return run->output;
}

/* ---------------------------------------------------------------- calls */

size_t kernel_run_scratch_bytes(const struct kernel_run *run)
{
    if (kernel_op_is_quant_matmul(run->c.op))
        return phi_quant_scratch_bytes(run->c.k);
    return phi_matmul_scratch_bytes(run->c.k);
}

static void call_matmul(const struct kernel_run *run, const struct phi_kernels *t, size_t begin,
                        size_t end, void *scratch)
{
    void (*const matmul[])(const struct phi_matmul *) = {t->matmul_f32, t->matmul_bf16,
                                                         t->matmul_f16, t->matmul_bf16_pairs};
    size_t w_bytes = run->c.op == OP_MATMUL_F32 ? 4 : 2;
    end = end < run->c.n_rows ? end : run->c.n_rows;
    for (size_t row = begin; row < end; row += PHI_STRIP_ROWS) {
        struct phi_matmul a = run->matmul;
        a.w = (const char *)a.w + row * a.ld_w * w_bytes;
        a.y += row;
        a.n_rows = end - row < PHI_STRIP_ROWS ? end - row : PHI_STRIP_ROWS;
        a.scratch = scratch;
        matmul[run->c.op](&a);
    }
}

void kernel_run_prepare(struct kernel_run *run, const struct phi_kernels *t)
{
    struct phi_matmul *a = &run->matmul;
    a->x_interleaved = NULL;
    if (kernel_op_is_quant_matmul(run->c.op) || !kernel_op_is_matmul(run->c.op) ||
        a->n_tokens < 2 || a->n_tokens > PHI_FEW_TOKENS)
        return;
    phi_interleave_fn interleave =
        run->c.op == OP_MATMUL_BF16_PAIRS ? t->interleave_pairs : t->interleave_f32;
    if (!interleave)
        return;
    interleave(run->interleaved, a->x, a->ld_x, a->n_tokens, a->k);
    a->x_interleaved = run->interleaved;
}

static void call_quant_matmul(const struct kernel_run *run, const struct phi_kernels *t,
                              size_t begin, size_t end, void *scratch)
{
    const bool w8 = run->c.op == OP_MATMUL_W8;
    end = end < run->c.n_rows ? end : run->c.n_rows;
    for (size_t row = begin; row < end; row += PHI_STRIP_ROWS) {
        struct phi_quant_matmul a = run->quant;
        a.w = (const char *)a.w + row * a.row_bytes;
        a.w_scale = (const char *)a.w_scale +
                    row * (w8 ? sizeof(float) : a.ld_scale * phi_dtype_bytes(a.scale_dtype));
        a.y += row;
        a.n_rows = end - row < PHI_STRIP_ROWS ? end - row : PHI_STRIP_ROWS;
        a.scratch = scratch;
        (w8 ? t->matmul_w8 : t->matmul_w4)(&a);
    }
}

/* The row is made in aligned room and copied out, where outputs are compared. */
static void call_quantize(const struct kernel_run *run, const struct phi_kernels *t, void *out)
{
    const enum kernel_op op = run->c.op;
    const enum phi_quantization form = op == OP_QUANTIZE_W8 || op == OP_GELU_QUANTIZE_W8 ||
                                               op == OP_SILU_MUL_QUANTIZE_W8
                                           ? PHI_W8A8
                                           : PHI_W4A8;
    const size_t k = run->c.k;
    const float *x = run->c.in_place && run->between ? memcpy(run->between, run->x, k * sizeof *x)
                                                     : run->x;
    float scale;
    size_t padded = phi_quant_padded(k), n_sums = phi_quant_n_sums(k);
    struct phi_quant_row row = {aligned_alloc(64, padded), malloc(n_sums * sizeof *row.sums)};
    if (op == OP_GELU_QUANTIZE_W8 || op == OP_GELU_QUANTIZE_W4)
        scale = t->gelu_quantize(row, run->between, x, k, form);
    else if (op == OP_SILU_MUL_QUANTIZE_W8 || op == OP_SILU_MUL_QUANTIZE_W4)
        scale = t->silu_mul_quantize(row, run->between, x, run->y, k, form);
    else
        scale = t->quantize_row(row, x, k, form);
    if (scale != scale)
        scale = NAN; /* any is as good as another; 0.0f / 0.0f has another sign with each compiler */
    memcpy(out, row.q, padded);
    memcpy((char *)out + padded, row.sums, n_sums * sizeof *row.sums);
    memcpy((char *)out + padded + n_sums * sizeof *row.sums, &scale, sizeof scale);
    free(row.q);
    free(row.sums);
}

/* The fields that come out go behind the row, where outputs are compared. */
static void call_softmax(const struct kernel_run *run, const struct phi_kernels *t)
{
    struct phi_softmax_step a = run->softmax;
    t->softmax_step(&a);
    memcpy(a.s + PHI_KEY_BLOCK, (const float[]){a.m, a.l, a.c}, 3 * sizeof(float));
}

void kernel_run_call(struct kernel_run *run, const struct phi_kernels *t, size_t begin, size_t end,
                     void *scratch)
{
    void *out = run->output + SURROUNDINGS;
    const float *x = run->x, *y = run->y, *z = run->z;
    size_t n = run->c.k;
    switch (run->c.op) {
    case OP_MATMUL_F32:
    case OP_MATMUL_BF16:
    case OP_MATMUL_F16:
    case OP_MATMUL_BF16_PAIRS:
        call_matmul(run, t, begin, end, scratch);
        break;
    case OP_TO_BF16:
        t->to_bf16(out, x, n);
        break;
    case OP_TO_F16:
        t->to_f16(out, x, n);
        break;
    case OP_FROM_BF16:
        t->from_bf16(out, x, n);
        break;
    case OP_FROM_F16:
        t->from_f16(out, x, n);
        break;
    case OP_RMS_NORM:
        t->rms_norm(out, x, y, 1e-5f, n);
        break;
    case OP_LAYER_NORM:
        t->layer_norm(out, x, y, z, 1e-5f, n);
        break;
    case OP_GELU_NEW:
        t->gelu_new(out, x, n);
        break;
    case OP_SILU_MUL:
        t->silu_mul(out, x, y, n);
        break;
    case OP_SOFTMAX_STEP:
        call_softmax(run, t);
        break;
    case OP_WEIGHTED_SUM_F32:
        t->weighted_sum_f32(&run->sum);
        break;
    case OP_WEIGHTED_SUM_BF16:
        t->weighted_sum_bf16(&run->sum);
        break;
    case OP_WEIGHTED_SUM_F16:
        t->weighted_sum_f16(&run->sum);
        break;
    case OP_ATTENTION_BLOCK:
        t->attention_block(&run->block);
        break;
    case OP_TRANSPOSE:
        t->transpose(out, run->c.n_rows + run->c.gap, x, n + run->c.gap, run->c.n_rows, n);
        break;
    case OP_SUM_EXP:
        *(float *)out = t->sum_exp(x, run->max, n);
        break;
    case OP_QUANTIZE_W8:
    case OP_QUANTIZE_W4:
    case OP_GELU_QUANTIZE_W8:
    case OP_GELU_QUANTIZE_W4:
    case OP_SILU_MUL_QUANTIZE_W8:
    case OP_SILU_MUL_QUANTIZE_W4:
        call_quantize(run, t, out);
        break;
    case OP_MATMUL_W8:
    case OP_MATMUL_W4_32:
    case OP_MATMUL_W4_64:
    case OP_MATMUL_W4_128:
        call_quant_matmul(run, t, begin, end, scratch);
        break;
    case N_KERNEL_OPS:
        break;
    }
}
