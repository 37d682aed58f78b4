/* test_quantize.c: a quantised model written to a folder and opened again: the same bits, less
 * memory, and refusals that name what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine_fixture.h"
#include "../temp_folder.h"

enum { N_IDS = 24 };

static struct phi_model *open_quantized(const char *path, enum phi_quantization quantization,
                                        int group, bool keep_lm_head)
{
    struct phi_model_options o;
    struct phi_model *m;
    struct phi_error err;
    phi_model_options_init(&o);
    o.path = path, o.quantization = quantization, o.quant_group_size = group;
    o.keep_lm_head = keep_lm_head, o.n_threads = 2;
    if (phi_model_open(&o, &m, &err) != PHI_OK)
        fail_msg("%s", err.text);
    return m;
}

static int hash_rows(void *context, size_t first, size_t n_rows, const float *logits)
{
    uint64_t *h = context;
    (void)first;
    for (size_t i = 0; i < n_rows * (size_t)h[1] * sizeof *logits; i++)
        h[0] = (h[0] ^ ((const unsigned char *)logits)[i]) * 0x100000001B3u;
    return 0;
}

static uint64_t logits_hash(struct phi_model *m)
{
    struct phi_model_info info;
    struct phi_error err;
    int32_t ids[N_IDS];
    phi_model_get_info(m, &info);
    for (int i = 0; i < N_IDS; i++)
        ids[i] = i * 41 + 3;
    uint64_t h[2] = {0xCBF29CE484222325u, (uint64_t)info.vocab_size};
    struct phi_engine *e = create_engine(m, NULL);
    if (phi_engine_logits(e, ids, N_IDS, hash_rows, h, &err) != PHI_OK)
        fail_msg("%s", err.text);
    phi_engine_destroy(e);
    return h[0];
}

static const struct {
    const char *model;
    enum phi_quantization quantization;
    int group;
    bool keep_lm_head;
} cases[] = {
    {"phi-tiny-code", PHI_W8A8, 0, false},  {"phi-tiny-code", PHI_W8A8, 0, true},
    {"phi-tiny-code", PHI_W4A8, 0, false},  {"phi-tiny-code", PHI_W4A8, 32, true},
    {"phi3-tiny-chat", PHI_W8A8, 0, true},  {"phi3-tiny-chat", PHI_W4A8, 0, true},
    {"phi3-tiny-chat", PHI_W4A8, 32, true}, /* a head that is the embedding becomes a matrix */
    {"phi3-tiny-chat", PHI_W8A8, 0, false}, {"phi3-tiny-chat", PHI_W4A8, 0, false},
};

/* Weights of a quantised head that was the embedding. */
static uint64_t untied_weights(const char *model, bool keep_lm_head)
{
    enum { VOCAB = 1280, HIDDEN = 192 };
    return !keep_lm_head && strcmp(model, "phi3-tiny-chat") == 0 ? (uint64_t)VOCAB * HIDDEN : 0;
}

static void test_written_and_read_again_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct temp_folder t;
        struct phi_error err;
        struct phi_model_info made, read;
        temp_folder_open(&t);
        struct phi_model *m = open_quantized(model_dir(cases[i].model), cases[i].quantization,
                                             cases[i].group, cases[i].keep_lm_head);
        uint64_t hash = logits_hash(m);
        phi_model_get_info(m, &made);
        if (phi_model_write_quantized(m, t.path, &err) != PHI_OK)
            fail_msg("case %zu: %s", i, err.text);
        assert_int_equal(phi_model_write_quantized(m, t.path, &err), PHI_ERR_INVALID);
        assert_non_null(strstr(err.text, "exists already"));
        phi_model_close(m);
        m = open_quantized(t.path, PHI_UNQUANTIZED, 0, false);
        phi_model_get_info(m, &read);
        if (logits_hash(m) != hash)
            fail_msg("case %zu: other bits", i);
        assert_int_equal(read.quantization, cases[i].quantization);
        assert_int_equal(read.n_parameters - made.n_parameters,
                         untied_weights(cases[i].model, cases[i].keep_lm_head));
        assert_true(read.converted_bytes < made.converted_bytes / 8); /* mapped */
        assert_int_equal(phi_model_write_quantized(m, t.path, &err), PHI_ERR_INVALID);
        assert_non_null(strstr(err.text, "nothing to write"));
        phi_model_close(m);
        temp_folder_close(&t);
    }
}

static void test_asking_for_another_scheme_is_refused(void **state)
{
    struct temp_folder t;
    struct phi_error err;
    struct phi_model_options o;
    (void)state;
    temp_folder_open(&t);
    struct phi_model *m = open_quantized(model_dir("phi-tiny-code"), PHI_W8A8, 0, true);
    assert_int_equal(phi_model_write_quantized(m, t.path, &err), PHI_OK);
    phi_model_close(m);
    phi_model_options_init(&o);
    o.path = t.path, o.quantization = PHI_W4A8;
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "quantized as w8a8, not as w4a8"));
    /* The same scheme is fine, and then quantises what the file left: the head. */
    m = open_quantized(t.path, PHI_W8A8, 0, false);
    struct phi_model *all = open_quantized(model_dir("phi-tiny-code"), PHI_W8A8, 0, false);
    assert_true(logits_hash(m) == logits_hash(all));
    /* But its layers are not known to be of one kind and group. */
    assert_int_equal(phi_model_write_quantized(m, t.path, &err), PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "quantized already"));
    phi_model_close(all);
    phi_model_close(m);
    o.path = model_dir("phi-tiny-code"), o.quant_group_size = 48;
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "quant_group_size"));
    temp_folder_close(&t);
}

static void test_every_failed_allocation_is_reported(void **state)
{
    struct phi_model *m = open_quantized(model_dir("phi3-tiny-chat"), PHI_W4A8, 0, false);
    (void)state;
    for (long n = 1;; n++) {
        struct temp_folder t;
        struct phi_error err;
        temp_folder_open(&t);
        phi_alloc_fail_nth(n);
        enum phi_status status = phi_model_write_quantized(m, t.path, &err);
        bool reached = phi_alloc_count() >= n;
        phi_alloc_fail_nth(0);
        temp_folder_close(&t);
        if (status != (reached ? PHI_ERR_MEMORY : PHI_OK))
            fail_msg("allocation %ld: status %d", n, (int)status);
        if (!reached)
            break;
        assert_true(n < 20000);
    }
    phi_model_close(m);
}

/* A shape is enough for a plan, and for nothing else. */
static void test_counted_weights(void **state)
{
    (void)state;
    struct phi_model_options o;
    struct phi_engine_options eo;
    struct phi_engine_info counted, real;
    struct phi_model *m;
    struct phi_engine *e;
    struct phi_error err;
    phi_model_options_init(&o);
    phi_engine_options_init(&eo);
    eo.kv_bytes = 1 << 22;
    o.path = model_dir("phi3-tiny-chat"), o.quantization = PHI_W8A8, o.n_threads = 2;
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_OK);
    assert_int_equal(phi_engine_plan(m, &eo, &real, &err), PHI_OK);
    phi_model_close(m);
    o.count_weights = true;
    assert_int_equal(phi_model_open(&o, &m, &err), PHI_OK);
    assert_int_equal(phi_engine_plan(m, &eo, &counted, &err), PHI_OK);
    assert_true(counted.kv_bytes == real.kv_bytes && counted.scratch_bytes == real.scratch_bytes);
    assert_int_equal(counted.max_model_len, real.max_model_len);
    assert_int_equal(phi_engine_create(m, &eo, &e, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text, "the model's weights were only counted");
    assert_int_equal(phi_model_write_quantized(m, "/nowhere", &err), PHI_ERR_INVALID);
    phi_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read_again_gives_the_same_bits),
        cmocka_unit_test(test_asking_for_another_scheme_is_refused),
        cmocka_unit_test(test_counted_weights),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
