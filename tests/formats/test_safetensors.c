/* test_safetensors.c: well-formed files and folders, every way in which a file can lie, and
 * writing. Ids H.. refer to cases that users of other programs reported. */
#include "formats/safetensors.h"
#include "base/buf.h"
#include "base/file.h"

#include "../temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "faults.h"

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

/* A file image: the length prefix, the header, then n_data bytes 0, 1, 2, ... */
static void make_file(struct phi_buf *out, struct phi_str header, size_t n_data)
{
    phi_buf_clear(out);
    for (int i = 0; i < 8; i++)
        phi_buf_append_char(out, (char)((uint64_t)header.n >> (8 * i)));
    phi_buf_append_str(out, header);
    for (size_t i = 0; i < n_data; i++)
        phi_buf_append_char(out, (char)i);
}

static void write_file(const char *name, const char *header, size_t n_data)
{
    struct phi_buf b = {0};
    make_file(&b, phi_str_from(header), n_data);
    temp_write(&folder, name, b.data, b.n);
    phi_buf_deinit(&b);
}

static void write_text(const char *name, const char *text)
{
    temp_write(&folder, name, text, strlen(text));
}

#define ENTRY(name, dtype, shape, begin, end)                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"
#define ONE_BYTE(name) "{" ENTRY(name, "U8", "[1]", 0, 1) "}"

/* --- one file --- */

static void test_tensors(void **state)
{
    (void)state;
    struct phi_safetensors *st;
    struct phi_error err;
    write_file(
        "a.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("z.weight", "F32", "[2,3]", 0, 24) "," ENTRY(
            "a", "BF16", "[1,1,1,1,1,1,1,5]", 26,
            36) "," ENTRY("scalar", "F16", "[]", 24, 26) "," ENTRY("empty", "I64", "[4,0]", 36,
                                                                   36) "}   ",
        36);
    if (phi_safetensors_open_file(temp_path(&folder, "a.safetensors"), &st, &err) != PHI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(phi_safetensors_n_tensors(st), 4);
    const char *names[] = {"a", "empty", "scalar", "z.weight"}; /* sorted */
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(phi_safetensors_at(st, i)->name.data, names[i]);
        assert_ptr_equal(phi_safetensors_find(st, phi_str_from(names[i])),
                         phi_safetensors_at(st, i));
    }
    const struct phi_tensor *t = phi_safetensors_find(st, PHI_STR("z.weight"));
    assert_int_equal(t->dtype, PHI_ST_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->n_bytes, 24);
    assert_int_equal(((const unsigned char *)t->data)[5], 5);
    assert_contains(t->file_name, "/a.safetensors");
    t = phi_safetensors_find(st, PHI_STR("scalar"));
    assert_int_equal(t->n_dims, 0);
    assert_int_equal(*(const unsigned char *)t->data, 24);
    t = phi_safetensors_find(st, PHI_STR("a"));
    assert_int_equal(t->n_dims, 8);
    assert_int_equal(t->shape[7], 5);
    t = phi_safetensors_find(st, PHI_STR("empty"));
    assert_int_equal(t->n_bytes, 0);
    assert_null(phi_safetensors_find(st, PHI_STR("")));
    assert_null(phi_safetensors_find(st, PHI_STR("z")));
    assert_null(phi_safetensors_find(st, (struct phi_str){"a\0", 2}));
    struct stat info;
    assert_int_equal(stat(temp_path(&folder, "a.safetensors"), &info), 0);
    assert_int_equal(phi_safetensors_file_bytes(st), info.st_size);
    phi_safetensors_close(st);
    phi_safetensors_close(NULL);
}

static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t n_bytes;
    } rows[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"U16", 2},     {"I16", 2},
                {"U32", 4},  {"I32", 4}, {"U64", 8}, {"I64", 8},     {"F16", 2},
                {"BF16", 2}, {"F32", 4}, {"F64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_buf header = {0}, file = {0};
        struct phi_error err;
        assert_string_equal(phi_st_dtype_name((enum phi_st_dtype)i), rows[i].name);
        assert_int_equal(phi_st_dtype_bytes((enum phi_st_dtype)i), rows[i].n_bytes);
        phi_buf_printf(&header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}",
                       rows[i].name, 3 * rows[i].n_bytes);
        make_file(&file, phi_buf_str(&header), 3 * rows[i].n_bytes);
        if (phi_safetensors_check_bytes(file.data, file.n, &err) != PHI_OK)
            fail_msg("%s", err.text);
        phi_buf_deinit(&header);
        phi_buf_deinit(&file);
    }
}

static void test_no_tensors(void **state)
{
    (void)state;
    struct phi_safetensors *st;
    write_file("none.safetensors", "{\"__metadata__\":null}", 0);
    assert_int_equal(phi_safetensors_open_file(temp_path(&folder, "none.safetensors"), &st, NULL),
                     PHI_OK);
    assert_int_equal(phi_safetensors_n_tensors(st), 0);
    assert_null(phi_safetensors_find(st, PHI_STR("x")));
    phi_safetensors_close(st);
}

/* --- headers that lie --- */

static void test_bad_headers(void **state)
{
    (void)state;
    const enum phi_status format = PHI_ERR_FORMAT, unsupported = PHI_ERR_UNSUPPORTED;
    static const char deep[] = "{\"a\":[[[[[[[[[[]]]]]]]]]]}";
    const struct {
        const char *header;
        size_t n_data;
        enum phi_status status;
        const char *text;
    } rows[] = {
        {"", 0, format, "does not begin with '{'"},
        {" {}", 0, format, "does not begin with '{'"},
        {"[]", 0, format, "does not begin with '{'"},
        {"{", 0, format, "not valid JSON: line 1"},
        {"{}x", 0, format, "not valid JSON: line 1"},
        {"{\"a\xFF\":1}", 0, format, "not valid JSON"},
        {"{\"a\\u0000\":1}", 0, format, "not valid JSON"},
        {"{" ENTRY("a", "U8", "[1]", 0, 1) "," ENTRY("a", "U8", "[1]", 0, 1) "}", 1, format,
         "duplicate"},
        {"{\"a\":null}", 0, format, "tensor a: expected an object"},
        {"{\"a\":7}", 0, format, "tensor a: expected an object"},
        {deep, 0, format, "tensor a: expected an object"},
        {"{\"a\":{}}", 0, format, "tensor a: dtype: expected a string"},
        {"{\"__metadata__\":{\"a\":1}}", 0, format, "__metadata__: expected an object of strings"},
        {"{\"__metadata__\":[]}", 0, format, "__metadata__"},
        {"{\"__metadata__\":\"x\"}", 0, format, "__metadata__"},
        /* dtype */
        {"{" ENTRY("a", "F7", "[1]", 0, 1) "}", 1, format, "tensor a: unknown dtype \"F7\""},
        {"{" ENTRY("a", "f32", "[1]", 0, 4) "}", 4, format, "tensor a: unknown dtype \"f32\""},
        {"{" ENTRY("a", "F4", "[2]", 0, 1) "}", 1, unsupported,
         "tensor a: dtype F4 is not supported"},
        {"{" ENTRY("a", "F8_E8M0", "[1]", 0, 1) "}", 1, unsupported, "dtype F8_E8M0"},
        {"{" ENTRY("a", "C64", "[1]", 0, 8) "}", 8, unsupported, "dtype C64"},
        {"{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, format,
         "tensor a: dtype"},
        /* shape */
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, format,
         "shape: expected an array"},
        {"{" ENTRY("a", "U8", "1", 0, 1) "}", 1, format, "shape: expected an array"},
        {"{" ENTRY("a", "U8", "[-1]", 0, 1) "}", 1, format,
         "shape: expected non-negative integers"},
        {"{" ENTRY("a", "U8", "[1.0]", 0, 1) "}", 1, format,
         "shape: expected non-negative integers"},
        {"{" ENTRY("a", "U8", "[\"1\"]", 0, 1) "}", 1, format, "shape: expected non-negative"},
        {"{" ENTRY("a", "U8", "[18446744073709551617]", 0, 1) "}", 1, format, "not valid JSON"},
        {"{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, unsupported,
         "shape has 9 dimensions (at most 8)"},
        {"{" ENTRY("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, format, "the size overflows"},
        {"{" ENTRY("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0, format,
         "the size overflows"},
        {"{" ENTRY("a", "F64", "[4294967296,4294967296,0]", 0, 0) "}", 0, format,
         "the size overflows"},
        /* offsets */
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, format, "data_offsets: expected two"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, format,
         "expected two"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, format,
         "expected two"},
        {"{" ENTRY("a", "U8", "[1]", -1, 0) "}", 1, format, "expected two non-negative integers"},
        {"{" ENTRY("a", "U8", "[1]", 0, 1.0) "}", 1, format, "expected two non-negative integers"},
        {"{" ENTRY("a", "U8", "[1]", 1, 0) "}", 1, format, "begin 1 is after end 0"},
        {"{" ENTRY("a", "U8", "[4]", 0, 4) "}", 3, format, "end 4 is beyond the 3 bytes of data"},
        {"{" ENTRY("a", "U8", "[1]", 9223372036854775806, 9223372036854775807) "}", 1, format,
         "end 9223372036854775807 is beyond the 1 bytes"},
        {"{" ENTRY("a", "F32", "[5]", 0, 16) "}", 16, format,
         "tensor a: shape and dtype need 20 bytes, data_offsets hold 16"},
        {"{" ENTRY("a", "F32", "[]", 0, 0) "}", 0, format, "need 4 bytes, data_offsets hold 0"},
        /* tiling */
        {"{" ENTRY("a", "U8", "[3]", 0, 3) "," ENTRY("b", "U8", "[3]", 2, 5) "}", 5, format,
         "tensor b overlaps tensor a at data byte 2"},
        {"{" ENTRY("a", "U8", "[3]", 0, 3) "," ENTRY("b", "U8", "[3]", 0, 3) "}", 3, format,
         "overlaps"},
        {"{" ENTRY("b", "U8", "[1]", 3, 4) "," ENTRY("a", "U8", "[2]", 0, 2) "}", 4, format,
         "tensor b: data bytes 2 to 3 before it belong to no tensor"},
        {"{" ENTRY("a", "U8", "[2]", 1, 3) "}", 3, format, "data bytes 0 to 1 before it"},
        {"{" ENTRY("a", "U8", "[2]", 0, 2) "}", 5, format, "data bytes 2 to 5 at the end"},
        {"{}", 1, format, "data bytes 0 to 1 at the end"},
        {"{" ENTRY("a", "U8", "[0]", 1, 1) "," ENTRY("b", "U8", "[2]", 0, 2) "}", 2, format,
         "overlaps"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_buf file = {0};
        struct phi_error err = {0};
        make_file(&file, phi_str_from(rows[i].header), rows[i].n_data);
        enum phi_status status = phi_safetensors_check_bytes(file.data, file.n, &err);
        if (status != rows[i].status)
            fail_msg("%s: status %d, text \"%s\"", rows[i].header, status, err.text);
        assert_contains(err.text, rows[i].text);
        phi_buf_deinit(&file);
    }
}

static void test_header_length_lies(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *text;
    } rows[] = {
        {0, "does not begin with '{'"},
        {1, "not valid JSON"},
        {1000, "header length 1000 is beyond the end of the file"},
        {100000000, "header length 100000000 is beyond the end of the file"},
        {100000001, "header length 100000001 is over the format's limit"},
        {UINT64_MAX - 7, "is over the format's limit"}, /* + 8 would wrap to 0 */
        {UINT64_MAX, "is over the format's limit"},
    };
    struct phi_buf file = {0};
    make_file(&file, PHI_STR(ONE_BYTE("a")), 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_error err;
        for (int k = 0; k < 8; k++)
            file.data[k] = (char)(rows[i].length >> (8 * k));
        assert_int_equal(phi_safetensors_check_bytes(file.data, file.n, &err), PHI_ERR_FORMAT);
        assert_contains(err.text, rows[i].text);
    }
    phi_buf_deinit(&file);
}

/* Every proper prefix of a good file is refused. The copy is of the exact size, for sanitizers. */
static void test_every_truncation(void **state)
{
    (void)state;
    struct phi_buf file = {0};
    make_file(&file,
              PHI_STR("{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "U8", "[3]", 8, 11) "}"),
              11);
    for (size_t n = 0; n <= file.n; n++) {
        struct phi_error err = {0};
        char *copy = malloc(n ? n : 1);
        memcpy(copy, file.data, n);
        enum phi_status status = phi_safetensors_check_bytes(copy, n, &err);
        free(copy);
        assert_int_equal(status, n == file.n ? PHI_OK : PHI_ERR_FORMAT);
        if (n < 8)
            assert_contains(err.text, "bytes are too few for a safetensors file");
        else if (n < file.n)
            assert_contains(err.text, "truncated?");
    }
    phi_buf_deinit(&file);
}

/* --- folders --- */

static enum phi_status open_dir(struct phi_safetensors **out, struct phi_error *err)
{
    err->text[0] = '\0';
    return phi_safetensors_open_dir(folder.path, out, err);
}

static void clear_folder(void)
{
    temp_folder_close(&folder);
    temp_folder_open(&folder);
}

static void assert_refused(enum phi_status status, const char *text)
{
    struct phi_safetensors *st = (struct phi_safetensors *)&st;
    struct phi_error err;
    enum phi_status found = open_dir(&st, &err);
    if (found != status)
        fail_msg("status %d, text \"%s\"", found, err.text);
    assert_null(st);
    assert_contains(err.text, text);
}

static void test_single_file_folder(void **state)
{
    (void)state;
    struct phi_safetensors *st;
    struct phi_error err;
    clear_folder();
    write_file("model.safetensors", ONE_BYTE("single"), 1);
    write_text("model.safetensors.index.json", "not even JSON"); /* the single file goes first */
    assert_int_equal(open_dir(&st, &err), PHI_OK);
    assert_non_null(phi_safetensors_find(st, PHI_STR("single")));
    phi_safetensors_close(st);
}

static void write_shards(void)
{
    clear_folder();
    write_file("model-00001-of-00002.safetensors",
               "{" ENTRY("b", "U8", "[2]", 0, 2) "," ENTRY("d", "U8", "[1]", 2, 3) "}", 3);
    write_file("model-00002-of-00002.safetensors",
               "{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("unlisted", "U8", "[1]", 4, 5) "}", 5);
}

#define S1 "\"model-00001-of-00002.safetensors\""
#define S2 "\"model-00002-of-00002.safetensors\""
#define GOOD_MAP "{\"a\":" S2 ",\"b\":" S1 ",\"d\":" S1 "}"

static void write_index(const char *text)
{
    write_text("model.safetensors.index.json", text);
}

static void test_shards(void **state)
{
    (void)state;
    struct phi_safetensors *st;
    struct phi_error err;
    write_shards();
    /* total_size is a figure for people; a wrong one harms nobody */
    write_index("{\"metadata\":{\"total_size\":12345},\"weight_map\":" GOOD_MAP "}");
    if (open_dir(&st, &err) != PHI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(phi_safetensors_n_tensors(st), 4);
    assert_int_equal(phi_safetensors_find(st, PHI_STR("a"))->n_bytes, 4);
    assert_contains(phi_safetensors_find(st, PHI_STR("a"))->file_name, "model-00002-of");
    assert_contains(phi_safetensors_find(st, PHI_STR("d"))->file_name, "model-00001-of");
    assert_non_null(phi_safetensors_find(st, PHI_STR("unlisted")));
    phi_safetensors_close(st);
}

static void test_bad_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *index;
        enum phi_status status;
        const char *text;
    } rows[] = {
        {"{\"weight_map\":" GOOD_MAP "}}", PHI_ERR_FORMAT, /* H37 */
         "/model.safetensors.index.json: not valid JSON: line 1 column"},
        {"", PHI_ERR_FORMAT, "not valid JSON"},
        {"[]", PHI_ERR_FORMAT, "weight_map: expected an object with tensors"},
        {"{}", PHI_ERR_FORMAT, "weight_map: expected an object with tensors"},
        {"{\"weight_map\":[]}", PHI_ERR_FORMAT, "weight_map: expected an object"},
        {"{\"weight_map\":{}}", PHI_ERR_FORMAT, "weight_map: expected an object with tensors"},
        {"{\"weight_map\":{\"a\":1}}", PHI_ERR_FORMAT,
         "weight_map: a: expected the name of a file"},
        {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", PHI_ERR_FORMAT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", PHI_ERR_FORMAT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"x\\\\y\"}}", PHI_ERR_FORMAT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"..\"}}", PHI_ERR_FORMAT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"\"}}", PHI_ERR_FORMAT, "in the same folder"},
        {"{\"weight_map\":{\"a\":\"x\\u0000y\"}}", PHI_ERR_FORMAT, "in the same folder"},
        {"{\"weight_map\":{\"a\":" S2 ",\"q\":\"model-00003-of-00003.safetensors\"}}", PHI_ERR_IO,
         "/model-00003-of-00003.safetensors: is missing, but the index lists it (for tensor q)"},
        {"{\"weight_map\":{\"a\":" S2 ",\"c\":" S2 "}}", PHI_ERR_FORMAT,
         "model-00002-of-00002.safetensors: tensor c is listed in the index but not in the file"},
        {"{\"weight_map\":{\"a\":" S1 ",\"d\":" S2 "}}", PHI_ERR_FORMAT,
         "model-00001-of-00002.safetensors: tensor a: the index lists it in this file, but it is "
         "in"},
    };
    write_shards();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_index(rows[i].index);
        assert_refused(rows[i].status, rows[i].text);
    }
}

static void test_bad_shards(void **state)
{
    (void)state;
    write_shards();
    write_index("{\"weight_map\":" GOOD_MAP "}");
    write_file("model-00002-of-00002.safetensors",
               "{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[1]", 4, 5) "}", 5);
    assert_refused(PHI_ERR_FORMAT, "tensor b is in two files: ");
    write_file("model-00002-of-00002.safetensors", ONE_BYTE("a"), 0);
    assert_refused(PHI_ERR_FORMAT,
                   "model-00002-of-00002.safetensors: tensor a: data_offsets: end 1");
    write_text("model-00002-of-00002.safetensors", /* H36 */
               "version https://git-lfs.github.com/spec/v1\n"
               "oid sha256:0000000000000000000000000000000000000000000000000000000000000000\n"
               "size 4000000000\n");
    assert_refused(PHI_ERR_FORMAT,
                   "model-00002-of-00002.safetensors: is a Git LFS pointer, not weights");
    write_text("model-00002-of-00002.safetensors", "");
    assert_refused(PHI_ERR_FORMAT, "0 bytes are too few");
    unlink(temp_path(&folder, "model-00002-of-00002.safetensors"));
    assert_int_equal(mkdir(temp_path(&folder, "model-00002-of-00002.safetensors"), 0700), 0);
    assert_refused(PHI_ERR_IO, "model-00002-of-00002.safetensors: is not a regular file");
}

/* H38 */
static void test_no_safetensors(void **state)
{
    (void)state;
    struct phi_safetensors *st;
    struct phi_error err;
    clear_folder();
    write_text("config.json", "{}");
    assert_refused(PHI_ERR_IO, "needs model.safetensors or model.safetensors.index.json");
    assert_refused(PHI_ERR_IO, "found no weight files");
    write_text("pytorch_model.bin", "");
    assert_refused(PHI_ERR_IO, "found pytorch_model.bin (only the safetensors format is read)");
    for (char name[] = "part-0.gguf"; name[5] < '9'; name[5]++)
        write_text(name, "");
    assert_refused(PHI_ERR_IO, " and 2 more");
    assert_int_equal(phi_safetensors_open_dir(temp_path(&folder, "gone"), &st, &err), PHI_ERR_IO);
    assert_contains(err.text, "/gone: cannot open the folder: No such file");
    assert_int_equal(phi_safetensors_open_dir(temp_path(&folder, "config.json"), &st, &err),
                     PHI_ERR_IO);
    assert_contains(err.text, "/config.json: cannot open the folder: Not a directory");
}

/* A cache of links whose targets were pruned. */
static void test_dangling_link(void **state)
{
    (void)state;
    clear_folder();
    assert_int_equal(symlink("../blobs/gone", temp_path(&folder, "model.safetensors")), 0);
    assert_refused(PHI_ERR_IO, "/model.safetensors: cannot open: No such file");
}

static void test_unreadable(void **state)
{
    (void)state;
    struct phi_safetensors *st;
    struct phi_error err;
    bool root = geteuid() == 0; /* who may read everything, and so steps down for a moment */
    clear_folder();
    write_file("model.safetensors", ONE_BYTE("a"), 1);
    chmod(temp_path(&folder, "model.safetensors"), 0);
    chmod(folder.path, 0755);
    if (root && seteuid(65534) != 0) {
        print_message("# not tested: cannot become another user\n");
        return;
    }
    enum phi_status status = open_dir(&st, &err);
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(status, PHI_ERR_IO);
    assert_contains(err.text, "/model.safetensors: cannot open: Permission denied");
}

static enum phi_status open_and_close(void *context, struct phi_error *err)
{
    struct phi_safetensors *st;
    enum phi_status status = phi_safetensors_open_dir(context, &st, err);
    phi_safetensors_close(st);
    return status;
}

static void test_open_out_of_memory(void **state)
{
    (void)state;
    write_shards();
    write_index("{\"weight_map\":" GOOD_MAP "}");
    assert_true(for_each_failing_allocation(open_and_close, folder.path) > 30);
    clear_folder();
    write_file("model.safetensors", ONE_BYTE("a"), 1);
    assert_true(for_each_failing_allocation(open_and_close, folder.path) > 10);
}

static enum phi_status list_and_fail(void *context, struct phi_error *err)
{
    struct phi_safetensors *st;
    enum phi_status status = phi_safetensors_open_dir(context, &st, err);
    return status == PHI_ERR_IO ? PHI_OK : status; /* the error that is wanted here */
}

static void test_listing_out_of_memory(void **state)
{
    (void)state;
    clear_folder();
    write_text("pytorch_model.bin", "");
    assert_true(for_each_failing_allocation(list_and_fail, folder.path) > 1);
}

/* --- writing --- */

static const unsigned char sample_data[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void fill_sample(struct phi_tensor tensors[3])
{
    tensors[0] = (struct phi_tensor){.name = PHI_STR("logits"),
                                     .dtype = PHI_ST_F32,
                                     .n_dims = 2,
                                     .shape = {2, 3},
                                     .n_bytes = 24,
                                     .data = sample_data};
    tensors[1] = (struct phi_tensor){.name = PHI_STR("a \"quoted\" \xC3\xA9"),
                                     .dtype = PHI_ST_I8,
                                     .n_dims = 1,
                                     .shape = {3},
                                     .n_bytes = 3,
                                     .data = sample_data};
    tensors[2] = (struct phi_tensor){.name = PHI_STR("empty"),
                                     .dtype = PHI_ST_I64,
                                     .n_dims = 2,
                                     .shape = {0, 7},
                                     .n_bytes = 0,
                                     .data = NULL};
}

/* More than is written at a time, and across those parts. */
static void test_write_large(void **state)
{
    (void)state;
    enum { N = 9 << 20 };
    struct phi_safetensors *st;
    struct phi_error err;
    unsigned char *data = malloc(N);
    assert_non_null(data);
    for (size_t i = 0; i < N; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
    struct phi_tensor t[3];
    const struct phi_str names[] = {PHI_STR("a"), PHI_STR("b"), PHI_STR("c")};
    static const size_t sizes[] = {N, 5, N - 77};
    for (int i = 0; i < 3; i++)
        t[i] = (struct phi_tensor){.name = names[i], .dtype = PHI_ST_U8, .n_dims = 1,
                                   .shape = {sizes[i]}, .n_bytes = sizes[i], .data = data + i};
    t[0].data = data;
    t[2].data = data + 77;
    clear_folder();
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "out"), t, 3, &err), PHI_OK);
    assert_int_equal(phi_safetensors_open_file(temp_path(&folder, "out"), &st, &err), PHI_OK);
    for (int i = 0; i < 3; i++) {
        const struct phi_tensor *found = phi_safetensors_find(st, names[i]);
        assert_non_null(found);
        assert_int_equal(found->n_bytes, sizes[i]);
        assert_memory_equal(found->data, t[i].data, sizes[i]);
    }
    phi_safetensors_close(st);
    free(data);
}

static void test_write(void **state)
{
    (void)state;
    struct phi_tensor tensors[3];
    struct phi_safetensors *st;
    struct phi_error err;
    struct phi_buf bytes = {0};
    fill_sample(tensors);
    clear_folder();
    if (phi_safetensors_write(temp_path(&folder, "out"), tensors, 3, &err) != PHI_OK)
        fail_msg("%s", err.text);
    assert_int_equal(phi_file_read(temp_path(&folder, "out"), 10000, &bytes, NULL), PHI_OK);
    assert_int_equal((bytes.n - 27) % 8, 0); /* the data begins aligned */
    assert_int_equal((unsigned char)bytes.data[0], bytes.n - 27 - 8);
    phi_buf_deinit(&bytes);
    assert_int_equal(phi_safetensors_open_file(temp_path(&folder, "out"), &st, &err), PHI_OK);
    assert_int_equal(phi_safetensors_n_tensors(st), 3);
    for (int i = 0; i < 3; i++) {
        const struct phi_tensor *t = phi_safetensors_find(st, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_int_equal(t->n_dims, tensors[i].n_dims);
        assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
        assert_int_equal(t->n_bytes, tensors[i].n_bytes);
        if (t->n_bytes)
            assert_memory_equal(t->data, tensors[i].data, t->n_bytes);
    }
    phi_safetensors_close(st);
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "out"), NULL, 0, &err), PHI_OK);
    assert_int_equal(phi_safetensors_open_file(temp_path(&folder, "out"), &st, &err), PHI_OK);
    assert_int_equal(phi_safetensors_n_tensors(st), 0); /* it replaced the file */
    phi_safetensors_close(st);
}

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(folder.path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void test_write_errors(void **state)
{
    (void)state;
    struct phi_tensor t[3];
    struct phi_error err;
    clear_folder();
    write_text("out", "precious");
    fill_sample(t);
    t[1].name = t[0].name;
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "out"), t, 2, &err), PHI_ERR_INVALID);
    assert_contains(err.text, "/out: tensor logits is given twice");
    fill_sample(t);
    t[0].n_bytes = 23;
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "out"), t, 1, &err), PHI_ERR_INVALID);
    assert_contains(err.text, "n_bytes does not match shape and dtype");
    fill_sample(t);
    t[0].shape[0] = SIZE_MAX;
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "out"), t, 1, &err), PHI_ERR_INVALID);
    fill_sample(t);
    t[0].name = (struct phi_str){"a\0b", 3};
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "out"), t, 1, &err), PHI_ERR_INVALID);
    fill_sample(t);
    t[0].name = PHI_STR("\xFF");
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "out"), t, 1, &err), PHI_ERR_INVALID);
    fill_sample(t);
    assert_int_equal(phi_safetensors_write(temp_path(&folder, "no/such"), t, 1, &err), PHI_ERR_IO);
    assert_contains(err.text, "/no/such: cannot create: No such file");
    assert_int_equal(phi_safetensors_write(folder.path, t, 1, &err), PHI_ERR_IO);
    assert_contains(err.text, "Is a directory");

    struct phi_buf bytes = {0};
    assert_int_equal(phi_file_read(temp_path(&folder, "out"), 100, &bytes, NULL), PHI_OK);
    assert_string_equal(bytes.data, "precious"); /* nothing was touched */
    assert_int_equal(count_files(), 1);
    phi_buf_deinit(&bytes);
}

static void test_write_full_disk(void **state)
{
    (void)state;
    struct phi_tensor t[3];
    struct phi_error err;
    fill_sample(t);
    if (!phi_file_exists("/dev/full")) {
        print_message("# not tested: there is no /dev/full\n");
        return;
    }
    assert_int_equal(phi_safetensors_write("/dev/full", t, 3, &err), PHI_ERR_IO);
    assert_contains(err.text, "/dev/full: cannot write: No space left on device");
    assert_true(phi_file_exists("/dev/full"));
    assert_int_equal(phi_safetensors_write("/dev/null", t, 3, &err), PHI_OK);
}

static enum phi_status write_sample(void *context, struct phi_error *err)
{
    struct phi_tensor t[3];
    fill_sample(t);
    return phi_safetensors_write(context, t, 3, err);
}

static void test_write_out_of_memory(void **state)
{
    (void)state;
    char path[512];
    clear_folder();
    write_file("model.safetensors", ONE_BYTE("a"), 1);
    assert_int_equal(open_and_close(folder.path, NULL), PHI_OK); /* routes jansson's allocations */
    snprintf(path, sizeof path, "%s", temp_path(&folder, "out"));
    assert_true(for_each_failing_allocation(write_sample, path) > 10);
    assert_int_equal(count_files(), 2); /* no temporary file stays behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_header_length_lies),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_single_file_folder),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_bad_indexes),
        cmocka_unit_test(test_bad_shards),
        cmocka_unit_test(test_no_safetensors),
        cmocka_unit_test(test_dangling_link),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_open_out_of_memory),
        cmocka_unit_test(test_listing_out_of_memory),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_write_large),
        cmocka_unit_test(test_write_errors),
        cmocka_unit_test(test_write_full_disk),
        cmocka_unit_test(test_write_out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
