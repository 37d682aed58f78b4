/* test_memory.c: alloc, arena, buf and ids: growth, limits, and every allocation failing in turn.
 */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* --- alloc --- */

static void test_alloc_overflow(void **state)
{
    (void)state;
    assert_null(phi_alloc(SIZE_MAX / 2, 3));
    assert_null(phi_calloc(SIZE_MAX / 2, 3));
    char *p = phi_alloc(4, 1);
    assert_null(phi_realloc(p, SIZE_MAX / 2, 3)); /* p stays valid */
    p[3] = 1;
    phi_free(p);
}

static void test_alloc_zero(void **state)
{
    (void)state;
    void *a = phi_alloc(0, 8), *b = phi_calloc(0, 0), *c = phi_alloc_aligned(64, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    phi_free(a);
    phi_free(b);
    phi_free(c);
    phi_free(NULL);
}

static void test_alloc_aligned(void **state)
{
    (void)state;
    for (size_t alignment = 16; alignment <= 4096; alignment *= 2) {
        unsigned char *p = phi_alloc_aligned(alignment, 100);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % alignment, 0);
        for (int i = 0; i < 100; i++)
            assert_int_equal(p[i], 0);
        phi_free(p);
    }
}

static void test_alloc_fail_nth(void **state)
{
    (void)state;
    phi_alloc_fail_nth(3);
    void *a = phi_alloc(1, 1), *b = phi_calloc(1, 1), *c = phi_alloc_aligned(16, 1);
    void *d = phi_alloc(1, 1);
    assert_int_equal(phi_alloc_count(), 4);
    phi_alloc_fail_nth(0);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_non_null(d);
    assert_int_equal(phi_alloc_count(), 0);
    phi_free(a);
    phi_free(b);
    phi_free(d);
}

static void test_alloc_forbid(void **state)
{
    (void)state;
    long before = phi_alloc_violations();
    phi_alloc_forbid(true);
    phi_alloc_forbid(true);
    phi_alloc_forbid(false);
    void *p = phi_alloc(1, 1);
    phi_alloc_forbid(false);
    void *q = phi_alloc(1, 1);
    assert_int_equal(phi_alloc_violations() - before, 1);
    phi_free(p);
    phi_free(q);
}

/* --- arena --- */

static void test_arena_objects(void **state)
{
    (void)state;
    struct phi_arena a = {0};
    unsigned char *objects[300];
    for (size_t i = 0; i < 300; i++) {
        size_t n = 1 + i * 37 % 5000;
        objects[i] = phi_arena_alloc(&a, n, 1);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(objects[i][k], 0);
        memset(objects[i], (int)(i & 0xFF), n);
    }
    for (size_t i = 0; i < 300; i++) /* nobody wrote over a neighbour */
        for (size_t k = 0; k < 1 + i * 37 % 5000; k++)
            assert_int_equal(objects[i][k], i & 0xFF);
    phi_arena_deinit(&a);
    assert_int_equal(a.used_bytes, 0);
    assert_null(a.chunks);
}

static void test_arena_limit(void **state)
{
    (void)state;
    struct phi_arena a = {.limit_bytes = 1000};
    assert_non_null(phi_arena_alloc(&a, 600, 1));
    assert_null(phi_arena_alloc(&a, 600, 1));
    assert_non_null(phi_arena_alloc(&a, 300, 1));
    assert_null(phi_arena_alloc(&a, SIZE_MAX, 1));
    assert_null(phi_arena_alloc(&a, SIZE_MAX / 2, 4));
    phi_arena_deinit(&a);
    assert_int_equal(a.limit_bytes, 1000); /* an emptied arena keeps its bound */
    assert_non_null(phi_arena_alloc(&a, 600, 1));
    phi_arena_deinit(&a);
}

/* Zero-size objects count too, or a template could make them without end. */
static void test_arena_limit_counts_everything(void **state)
{
    (void)state;
    struct phi_arena a = {.limit_bytes = 4096};
    int n = 0;
    while (phi_arena_alloc(&a, 0, 1))
        n++;
    assert_in_range(n, 1, 4096);
    phi_arena_deinit(&a);
}

static void test_arena_dup(void **state)
{
    (void)state;
    struct phi_arena a = {0};
    struct phi_str s = phi_arena_dup(&a, (struct phi_str){"a\0b", 3});
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.data, "a\0b", 4);
    s = phi_arena_dup(&a, (struct phi_str){NULL, 0});
    assert_int_equal(s.n, 0);
    assert_string_equal(s.data, "");
    phi_alloc_fail_nth(1);
    s = phi_arena_dup(&a, (struct phi_str){NULL, 0});
    phi_alloc_fail_nth(0);
    assert_non_null(s.data); /* there was room in the chunk */
    phi_arena_deinit(&a);
    phi_alloc_fail_nth(1);
    s = phi_arena_dup(&a, PHI_STR("abc"));
    phi_alloc_fail_nth(0);
    assert_null(s.data);
    assert_int_equal(s.n, 0);
    phi_arena_deinit(&a);
}

/* --- buf --- */

static void test_buf_appends(void **state)
{
    (void)state;
    struct phi_buf b = {0};
    assert_int_equal(phi_buf_str(&b).n, 0);
    assert_string_equal(phi_buf_str(&b).data, "");
    phi_buf_append_c(&b, "ab");
    phi_buf_append_char(&b, 'c');
    phi_buf_append_str(&b, PHI_STR("de"));
    phi_buf_append(&b, NULL, 0);
    phi_buf_printf(&b, "%d-%s", 42, "x");
    assert_string_equal(b.data, "abcde42-x");
    assert_int_equal(b.n, 9);
    phi_buf_remove_front(&b, 3);
    assert_string_equal(b.data, "de42-x");
    phi_buf_remove_front(&b, 6);
    assert_string_equal(b.data, "");
    phi_buf_append_c(&b, "again");
    assert_string_equal(b.data, "again");
    phi_buf_clear(&b);
    assert_int_equal(b.n, 0);
    phi_buf_deinit(&b);
    assert_null(b.data);
}

static void test_buf_grows(void **state)
{
    (void)state;
    struct phi_buf b = {0};
    for (int i = 0; i < 100000; i++)
        phi_buf_append_char(&b, (char)('a' + i % 26));
    assert_int_equal(b.n, 100000);
    assert_int_equal(b.data[b.n], 0);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(b.data[i], 'a' + i % 26);
    phi_buf_printf(&b, "%0*d", 5000, 7); /* longer than any stack buffer */
    assert_int_equal(b.n, 105000);
    assert_int_equal(b.data[b.n - 1], '7');
    phi_buf_deinit(&b);
}

static void test_buf_limit(void **state)
{
    (void)state;
    struct phi_buf b = {.limit = 5};
    phi_buf_append_c(&b, "12345");
    assert_false(b.failed);
    phi_buf_append_char(&b, '6');
    assert_true(b.failed);
    phi_buf_printf(&b, "%d", 7);
    assert_string_equal(b.data, "12345"); /* nothing after the failure */
    phi_buf_clear(&b);
    phi_buf_append_c(&b, "123456");
    assert_true(b.failed);
    assert_int_equal(b.n, 0);
    phi_buf_deinit(&b);
    assert_int_equal(b.limit, 5);
}

static void test_buf_failures(void **state)
{
    (void)state;
    struct phi_buf b = {0};
    assert_false(phi_buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    phi_buf_clear(&b);
    phi_alloc_fail_nth(2);
    for (int i = 0; i < 200; i++)
        phi_buf_append_char(&b, 'x');
    phi_alloc_fail_nth(0);
    assert_true(b.failed);
    assert_int_equal(b.n, 63); /* the first block stays whole */
    assert_int_equal(strlen(b.data), 63);
    phi_buf_deinit(&b);
    assert_false(b.failed);
}

/* --- ids --- */

static void test_ids(void **state)
{
    (void)state;
    struct phi_ids ids = {0};
    for (int32_t i = 0; i < 5000; i++)
        phi_ids_append(&ids, i * 7);
    phi_ids_append_n(&ids, ids.data, 0);
    phi_ids_append_n(&ids, (int32_t[]){-1, INT32_MAX}, 2);
    assert_int_equal(ids.n, 5002);
    for (int32_t i = 0; i < 5000; i++)
        assert_int_equal(ids.data[i], i * 7);
    assert_int_equal(ids.data[5000], -1);
    assert_int_equal(ids.data[5001], INT32_MAX);
    assert_false(ids.failed);
    assert_false(phi_ids_reserve(&ids, SIZE_MAX));
    assert_true(ids.failed);
    phi_ids_append(&ids, 1);
    assert_int_equal(ids.n, 5002);
    phi_ids_deinit(&ids);

    phi_alloc_fail_nth(1);
    phi_ids_append(&ids, 1);
    phi_alloc_fail_nth(0);
    assert_true(ids.failed);
    assert_int_equal(ids.n, 0);
    phi_ids_deinit(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_overflow), cmocka_unit_test(test_alloc_zero),
        cmocka_unit_test(test_alloc_aligned),  cmocka_unit_test(test_alloc_fail_nth),
        cmocka_unit_test(test_alloc_forbid),   cmocka_unit_test(test_arena_objects),
        cmocka_unit_test(test_arena_limit),    cmocka_unit_test(test_arena_limit_counts_everything),
        cmocka_unit_test(test_arena_dup),      cmocka_unit_test(test_buf_appends),
        cmocka_unit_test(test_buf_grows),      cmocka_unit_test(test_buf_limit),
        cmocka_unit_test(test_buf_failures),   cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
