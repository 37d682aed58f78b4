/* phi_engine_trace: every tensor of every row, once and in order, the same whole or in chunks and
 * beside another request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine_fixture.h"

enum { N = 40, MAX_TENSORS = 32, MAX_COLS = 512 };

struct tensor {
    char name[32];
    size_t n_rows, n_cols;
    float data[N * MAX_COLS];
};

struct traced {
    struct tensor tensors[MAX_TENSORS];
    size_t n_tensors, vocab_size;
};

static void take(void *context, const char *name, size_t first_row, size_t n_rows, size_t n_cols,
                 const float *data)
{
    struct traced *t = context;
    size_t i = 0;
    while (i < t->n_tensors && strcmp(t->tensors[i].name, name) != 0)
        i++;
    assert_true(i < MAX_TENSORS && n_cols <= MAX_COLS && first_row + n_rows <= N);
    struct tensor *tensor = &t->tensors[i];
    if (i == t->n_tensors) {
        t->n_tensors++;
        snprintf(tensor->name, sizeof tensor->name, "%s", name);
        tensor->n_cols = n_cols;
    }
    assert_int_equal(tensor->n_rows, first_row);
    assert_int_equal(tensor->n_cols, n_cols);
    memcpy(tensor->data + first_row * n_cols, data, n_rows * n_cols * sizeof *data);
    tensor->n_rows += n_rows;
}

static int take_logits(void *context, size_t first_row, size_t n_rows, const float *logits)
{
    struct traced *t = context;
    assert_true(t->n_tensors > 1 && t->tensors[0].n_rows >= first_row + n_rows); /* came before */
    take(context, "logits", first_row, n_rows, t->vocab_size, logits);
    return 0;
}

static const struct tensor *find(const struct traced *t, const char *name)
{
    for (size_t i = 0; i < t->n_tensors; i++)
        if (strcmp(t->tensors[i].name, name) == 0)
            return &t->tensors[i];
    fail_msg("no %s", name);
    return NULL;
}

static void check_same(const struct traced *a, const struct traced *b)
{
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct tensor *x = &a->tensors[i], *y = find(b, x->name);
        assert_int_equal(x->n_rows, N);
        assert_int_equal(y->n_rows, N);
        assert_memory_equal(x->data, y->data, N * x->n_cols * sizeof(float));
    }
}

static void check_names(const struct traced *t, int n_layers)
{
    char name[32];
    assert_int_equal(t->n_tensors, 3 * n_layers + 2);
    assert_int_equal(find(t, "hidden.0")->n_rows, N);
    for (int i = 0; i < n_layers; i++) {
        const float *sums[4];
        static const char *const names[] = {"hidden", "attention", "mlp", "hidden"};
        for (int part = 0; part < 4; part++) {
            snprintf(name, sizeof name, "%s.%d", names[part], i + (part == 3));
            sums[part] = find(t, name)->data;
        }
        for (size_t j = 0; j < N * find(t, name)->n_cols; j++) /* a layer is what its parts add */
            assert_float_equal(sums[0][j] + sums[1][j] + sums[2][j], sums[3][j], 1e-5);
    }
}

static void test_trace(void **state)
{
    (void)state;
    static const char *const folders[] = {"phi-head64", "phi3-gqa"};
    int32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = (i * 7 + 3) % 60;
    for (int f = 0; f < 2; f++) {
        struct phi_model *m = open_model(golden_dir(folders[f]), PHI_FLOAT32, 2);
        struct phi_model_info info;
        struct phi_engine_options o;
        struct traced *whole = calloc(1, sizeof *whole), *chunks = calloc(1, sizeof *chunks);
        phi_model_get_info(m, &info);
        whole->vocab_size = chunks->vocab_size = (size_t)info.vocab_size;
        phi_engine_options_init(&o);
        o.max_model_len = N + 8;
        o.max_num_seqs = 3;
        struct phi_engine *e = create_engine(m, &o);
        o.max_num_batched_tokens = 7;
        struct phi_engine *small = create_engine(m, &o);
        struct phi_sampling s = greedy(8);
        struct phi_request *other = submit(small, ids, 12, &s);
        assert_int_equal(phi_engine_trace(e, ids, N, take_logits, take, whole, NULL), PHI_OK);
        assert_int_equal(phi_engine_trace(small, ids, N, take_logits, take, chunks, NULL), PHI_OK);
        check_names(whole, info.n_layers);
        check_same(whole, chunks);
        phi_request_release(other);
        phi_engine_destroy(e);
        phi_engine_destroy(small);
        phi_model_close(m);
        free(whole);
        free(chunks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
