/* kernel_cases.h: every kernel of a table on every shape worth trying, behind one call. The
 * tests run a case on two tables and compare bytes; bench/kernel_bench.c times the same cases.
 *
 * To add a case, add a line to a list in kernel_cases.c. */
#ifndef PHI_TESTS_KERNEL_CASES_H
#define PHI_TESTS_KERNEL_CASES_H

#include "kernels/kernels.h"

#include <stdbool.h>

enum kernel_op {
    OP_MATMUL_F32,
    OP_MATMUL_BF16,
    OP_MATMUL_F16,
    OP_MATMUL_BF16_PAIRS,
    OP_TO_BF16,
    OP_TO_F16,
    OP_FROM_BF16,
    OP_FROM_F16,
    OP_RMS_NORM,
    OP_LAYER_NORM,
    OP_GELU_NEW,
    OP_SILU_MUL,
    OP_SOFTMAX_STEP,
    OP_WEIGHTED_SUM_F32,
    OP_WEIGHTED_SUM_BF16,
    OP_WEIGHTED_SUM_F16,
    OP_ATTENTION_BLOCK,
    OP_TRANSPOSE,
    OP_SUM_EXP,
    OP_QUANTIZE_W8, /* phi_quant_row of either form */
    OP_QUANTIZE_W4,
    OP_MATMUL_W8,
    OP_MATMUL_W4_32, /* by the size of a group */
    OP_MATMUL_W4_64, /* this one with float32 scales */
    OP_MATMUL_W4_128,
    OP_GELU_QUANTIZE_W8,
    OP_GELU_QUANTIZE_W4,
    OP_SILU_MUL_QUANTIZE_W8,
    OP_SILU_MUL_QUANTIZE_W4,
    N_KERNEL_OPS
};

const char *kernel_op_name(enum kernel_op op);
/* Products with integer weights, and products of all kinds. */
bool kernel_op_is_quant_matmul(enum kernel_op op);
bool kernel_op_is_matmul(enum kernel_op op);

/* What the random numbers look like. */
enum kernel_data {
    DATA_PLAIN, /* a few binades around one */
    DATA_WILD,  /* zeros of both signs, denormals, exponents from the least to 2^30 */
    DATA_ZERO,  /* only zeros, of both signs */
};

struct kernel_case {
    enum kernel_op op;
    /* Matrix product: [n_rows, k] weights in strips of PHI_STRIP_ROWS, n_tokens activations.
     * Weighted sum, attention block: n_rows queries, n_tokens keys, k dimensions; where gap is 0,
     * all see all. Transpose: [n_rows, k]. All others: k elements. */
    size_t n_rows, n_tokens, k;
    size_t gap;    /* extra elements between rows, and bytes by which weights are misaligned */
    enum kernel_data data;
    bool in_place; /* the output lies over the first input, where the contract allows it */
    /* Of 4-bit weights, 0 meaning the op's own group and no segments. */
    size_t group, segment;
};

/* Calls visit for each of the op's cases, in a fixed order. */
void kernel_cases_each(enum kernel_op op, void (*visit)(const struct kernel_case *c, void *context),
                       void *context);

/* The same for the cases worth timing; too large to run on the reference. */
void kernel_timed_cases_each(enum kernel_op op,
                             void (*visit)(const struct kernel_case *c, void *context),
                             void *context);

/* What a case has to read or write at least once, and its multiplications and additions (0 where
 * counting them means nothing). */
struct kernel_work {
    double n_bytes, n_flops;
};

struct kernel_work kernel_case_work(const struct kernel_case *c);

/* A case with its inputs made and its output filled with a pattern. Inputs end at a page that
 * cannot be read; what lies between rows, and keys that no query sees, are NaN. */
struct kernel_run;

/* NULL when memory is short. The same seed makes the same inputs on any machine. */
struct kernel_run *kernel_run_create(const struct kernel_case *c, uint64_t seed);
void kernel_run_destroy(struct kernel_run *run);

/* Puts the output, and inputs that were overwritten, back to their first state. */
void kernel_run_reset(struct kernel_run *run);
/* What a table does once for all strips of a product; before its kernel_run_call. */
void kernel_run_prepare(struct kernel_run *run, const struct phi_kernels *table);
/* Weight rows [begin, end) of a matrix product; other kernels do everything whatever the rows. */
void kernel_run_call(struct kernel_run *run, const struct phi_kernels *table, size_t begin,
                     size_t end, void *scratch);
size_t kernel_run_scratch_bytes(const struct kernel_run *run);

/* The output with its surroundings. */
const unsigned char *kernel_run_output(const struct kernel_run *run, size_t *n_bytes);

/* A well mixed 64-bit number from *state, which it advances. */
uint64_t kernel_random(uint64_t *state);

#endif
