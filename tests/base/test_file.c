/* test_file.c: whole files, read and mapped; what is not a plain readable file is a named error. */
#include "base/file.h"
#include "base/alloc.h"

#include "../temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

static struct temp_folder folder;

static int open_folder(void **state)
{
    (void)state;
    temp_folder_open(&folder);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    temp_folder_close(&folder);
    return 0;
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static void test_read(void **state)
{
    (void)state;
    size_t n = 200001; /* more than one read */
    char *data = malloc(n);
    for (size_t i = 0; i < n; i++)
        data[i] = (char)(i * 31);
    temp_write(&folder, "big", data, n);
    struct phi_buf out = {0};
    assert_int_equal(phi_file_read(temp_path(&folder, "big"), n, &out, NULL), PHI_OK);
    assert_int_equal(out.n, n);
    assert_memory_equal(out.data, data, n);
    assert_int_equal(out.data[n], 0);
    free(data);

    struct phi_error err;
    phi_buf_clear(&out);
    assert_int_equal(phi_file_read(temp_path(&folder, "big"), n - 1, &out, &err), PHI_ERR_TOO_LONG);
    assert_contains(err.text, "big: larger than the limit of 200000 bytes");
    phi_buf_deinit(&out);
}

static void test_read_empty(void **state)
{
    (void)state;
    struct phi_buf out = {0};
    temp_write(&folder, "empty", "", 0);
    assert_int_equal(phi_file_read(temp_path(&folder, "empty"), 10, &out, NULL), PHI_OK);
    assert_int_equal(out.n, 0);
    assert_string_equal(out.data, "");
    phi_buf_deinit(&out);
}

/* Device files are read as streams; the limit holds for endless ones. */
static void test_read_stream(void **state)
{
    (void)state;
    struct phi_buf out = {0};
    struct phi_error err;
    assert_int_equal(phi_file_read("/dev/null", 10, &out, &err), PHI_OK);
    assert_int_equal(phi_file_read("/dev/zero", 1000, &out, &err), PHI_ERR_TOO_LONG);
    phi_buf_deinit(&out);
}

static void test_read_standard_input(void **state)
{
    (void)state;
    struct phi_buf out = {0};
    temp_write(&folder, "input", "from stdin", 10);
    assert_non_null(freopen(temp_path(&folder, "input"), "rb", stdin));
    assert_int_equal(phi_file_read("-", 10, &out, NULL), PHI_OK);
    assert_string_equal(out.data, "from stdin");
    phi_buf_deinit(&out);
}

static void test_errors(void **state)
{
    (void)state;
    struct phi_buf out = {0};
    struct phi_map map;
    struct phi_error err;
    const char *missing = temp_path(&folder, "missing");
    assert_int_equal(phi_file_read(missing, 10, &out, &err), PHI_ERR_IO);
    assert_contains(err.text, "missing: cannot open: No such file");
    assert_int_equal(phi_map_open(missing, &map, &err), PHI_ERR_IO);
    assert_contains(err.text, "missing: cannot open: No such file");
    assert_int_equal(phi_file_read(folder.path, 10, &out, &err), PHI_ERR_IO);
    assert_contains(err.text, "is a folder");
    assert_int_equal(phi_map_open(folder.path, &map, &err), PHI_ERR_IO);
    assert_contains(err.text, "is not a regular file");
    assert_int_equal(phi_map_open("/dev/zero", &map, &err), PHI_ERR_IO);
    assert_contains(err.text, "is not a regular file");
    assert_null(map.data);
    phi_buf_deinit(&out);
}

static void test_unreadable(void **state)
{
    (void)state;
    struct phi_map map;
    struct phi_error err;
    bool root = geteuid() == 0; /* who may read everything, and so steps down for a moment */
    temp_write(&folder, "secret", "x", 1);
    chmod(temp_path(&folder, "secret"), 0);
    if (root && seteuid(65534) != 0) {
        print_message("# not tested: cannot become another user\n");
        return;
    }
    enum phi_status status = phi_map_open(temp_path(&folder, "secret"), &map, &err);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(status, PHI_ERR_IO);
    assert_contains(err.text, "secret: cannot open: Permission denied");
}

/* Mapping a named pipe must not wait for a writer. */
static void test_map_pipe(void **state)
{
    (void)state;
    struct phi_map map;
    struct phi_error err;
    assert_int_equal(mkfifo(temp_path(&folder, "pipe"), 0600), 0);
    assert_int_equal(phi_map_open(temp_path(&folder, "pipe"), &map, &err), PHI_ERR_IO);
    assert_contains(err.text, "is not a regular file");
}

static void test_map(void **state)
{
    (void)state;
    struct phi_map map;
    temp_write(&folder, "mapped", "content", 7);
    assert_int_equal(phi_map_open(temp_path(&folder, "mapped"), &map, NULL), PHI_OK);
    assert_int_equal(map.n_bytes, 7);
    assert_memory_equal(map.data, "content", 7);
    assert_int_equal((uintptr_t)map.data % 4096, 0);
    phi_map_close(&map);
    assert_null(map.data);
    phi_map_close(&map); /* closing twice is harmless */

    temp_write(&folder, "empty", "", 0);
    assert_int_equal(phi_map_open(temp_path(&folder, "empty"), &map, NULL), PHI_OK);
    assert_null(map.data);
    assert_int_equal(map.n_bytes, 0);
    phi_map_close(&map);
}

static void test_exists(void **state)
{
    (void)state;
    temp_write(&folder, "here", "", 0);
    assert_true(phi_file_exists(temp_path(&folder, "here")));
    assert_false(phi_file_is_dir(temp_path(&folder, "here")));
    assert_true(phi_file_is_dir(folder.path));
    assert_false(phi_file_exists(temp_path(&folder, "gone")));
    assert_false(phi_file_is_dir(temp_path(&folder, "gone")));
}

static void test_join(void **state)
{
    (void)state;
    static const struct {
        const char *dir, *name, *path;
    } rows[] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}, {".", "b", "./b"}};
    struct phi_buf path = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(phi_path_join(&path, rows[i].dir, rows[i].name));
        assert_string_equal(path.data, rows[i].path);
    }
    phi_buf_deinit(&path);
    phi_alloc_fail_nth(1);
    assert_false(phi_path_join(&path, "a", "b"));
    phi_alloc_fail_nth(0);
    phi_buf_deinit(&path);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct phi_error err;
    struct phi_buf out = {0};
    temp_write(&folder, "file", "x", 1);
    phi_alloc_fail_nth(1);
    assert_int_equal(phi_file_read(temp_path(&folder, "file"), 10, &out, &err), PHI_ERR_MEMORY);
    phi_alloc_fail_nth(0);
    phi_buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),          cmocka_unit_test(test_read_empty),
        cmocka_unit_test(test_read_stream),   cmocka_unit_test(test_read_standard_input),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_map_pipe),      cmocka_unit_test(test_map),
        cmocka_unit_test(test_exists),        cmocka_unit_test(test_join),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
