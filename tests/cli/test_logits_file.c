/* test_logits_file.c: the safetensors writer, read back by the program's own reader. */
#include "cli/logits_file.h"
#include "formats/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_TOKENS = 3, VOCAB = 5 };

static const int32_t ids[N_TOKENS] = {7, 0, 2147483647};
static char path[] = "/tmp/phi-logits-XXXXXX";

static int make_path(void **state)
{
    int fd = mkstemp(path);
    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void test_round_trip(void **state)
{
    float logits[N_TOKENS][VOCAB];
    struct logits_file f;
    struct phi_error err;
    (void)state;
    for (int i = 0; i < N_TOKENS * VOCAB; i++)
        logits[i / VOCAB][i % VOCAB] = (float)i - 7.25f;
    assert_int_equal(logits_file_open(&f, path, ids, N_TOKENS, VOCAB, &err), PHI_OK);
    assert_true(logits_file_append(&f, logits[0], 1));
    assert_true(logits_file_append(&f, logits[1], 2));
    assert_int_equal(logits_file_close(&f, &err), PHI_OK);

    struct phi_safetensors *st;
    assert_int_equal(phi_safetensors_open_file(path, &st, &err), PHI_OK);
    const struct phi_tensor *t = phi_safetensors_find(st, PHI_STR("logits"));
    assert_non_null(t);
    assert_int_equal(t->dtype, PHI_ST_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], N_TOKENS);
    assert_int_equal(t->shape[1], VOCAB);
    assert_memory_equal(t->data, logits, sizeof logits);
    t = phi_safetensors_find(st, PHI_STR("input_ids"));
    assert_non_null(t);
    assert_int_equal(t->dtype, PHI_ST_I64);
    assert_int_equal(t->shape[0], N_TOKENS);
    assert_int_equal((uintptr_t)t->data % 8, 0);
    for (int i = 0; i < N_TOKENS; i++) {
        int64_t id;
        memcpy(&id, (const char *)t->data + 8 * i, sizeof id);
        assert_int_equal(id, ids[i]);
    }
    phi_safetensors_close(st);
}

static void test_missing_rows_leave_no_file(void **state)
{
    float row[VOCAB] = {0};
    struct logits_file f;
    struct phi_error err;
    (void)state;
    assert_int_equal(logits_file_open(&f, path, ids, N_TOKENS, VOCAB, &err), PHI_OK);
    assert_true(logits_file_append(&f, row, 1));
    assert_int_equal(logits_file_close(&f, &err), PHI_ERR_INTERNAL);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_full_disk(void **state)
{
    static float rows[N_TOKENS * 100000]; /* more than any buffer */
    struct logits_file f;
    struct phi_error err;
    (void)state;
    if (access("/dev/full", W_OK) != 0)
        return; /* not skip(): older cmocka reports that as a failure in TAP */
    assert_int_equal(logits_file_open(&f, "/dev/full", ids, N_TOKENS, 100000, &err), PHI_OK);
    logits_file_append(&f, rows, N_TOKENS);
    assert_int_equal(logits_file_close(&f, &err), PHI_ERR_IO);
    assert_non_null(strstr(err.text, "/dev/full"));
    assert_int_equal(access("/dev/full", F_OK), 0); /* a device is left alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_missing_rows_leave_no_file),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
