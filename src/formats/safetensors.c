/* safetensors.c: see safetensors.h. Opening and checking; writing is in safetensors_write.c.
 *
 * Each file becomes a run of entries in one array. A run is first sorted by offset, where holes and
 * overlaps show as neighbours that do not meet; at the end the whole array is sorted by name, which
 * finds duplicates and serves lookups by bisection (a hash table could be flooded by a hostile
 * header, and a model asks for a few hundred names once). */
#include "formats/safetensors.h"
#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/size.h"
#include "formats/json.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_HEADER_BYTES = 100000000, MAX_INDEX_BYTES = 256 << 20, MAX_FILES = 4096 };

struct phi_safetensors {
    struct phi_map *maps; /* [n_files] */
    size_t n_files;
    size_t file_bytes;
    struct phi_tensor *tensors; /* [n], sorted by name once open */
    size_t n;
    size_t capacity;
    struct phi_arena names; /* of tensors and files */
};

/* --- dtypes --- */

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[] = {
    [PHI_ST_BOOL] = {"BOOL", 1},       [PHI_ST_U8] = {"U8", 1},
    [PHI_ST_I8] = {"I8", 1},           [PHI_ST_U16] = {"U16", 2},
    [PHI_ST_I16] = {"I16", 2},         [PHI_ST_U32] = {"U32", 4},
    [PHI_ST_I32] = {"I32", 4},         [PHI_ST_U64] = {"U64", 8},
    [PHI_ST_I64] = {"I64", 8},         [PHI_ST_F16] = {"F16", 2},
    [PHI_ST_BF16] = {"BF16", 2},       [PHI_ST_F32] = {"F32", 4},
    [PHI_ST_F64] = {"F64", 8},         [PHI_ST_F8_E4M3] = {"F8_E4M3", 1},
    [PHI_ST_F8_E5M2] = {"F8_E5M2", 1},
};

/* Part of the format, but nothing here can use them, and some are smaller than a byte. */
static const char *const unsupported_dtypes[] = {
    "F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64",
};

const char *phi_st_dtype_name(enum phi_st_dtype t)
{
    return dtypes[t].name;
}

size_t phi_st_dtype_bytes(enum phi_st_dtype t)
{
    return dtypes[t].n_bytes;
}

/* --- one entry of a header --- */

/* What the checks of one file share. */
struct reader {
    struct phi_safetensors *st;
    const char *file_name; /* lives in st->names */
    const unsigned char *data;
    size_t data_bytes;
};

static enum phi_status fail_tensor(const struct reader *r, const char *tensor, enum phi_status code,
                                   const char *what, struct phi_error *err)
{
    return phi_fail(err, code, "%s: tensor %.200s: %s", r->file_name, tensor, what);
}

static enum phi_status read_dtype(const struct reader *r, const char *tensor, const json_t *entry,
                                  struct phi_tensor *out, struct phi_error *err)
{
    const json_t *v = phi_json_field(entry, "dtype");
    if (!json_is_string(v))
        return fail_tensor(r, tensor, PHI_ERR_FORMAT, "dtype: expected a string", err);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (phi_str_eq_c(phi_json_str(v), dtypes[i].name)) {
            out->dtype = (enum phi_st_dtype)i;
            return PHI_OK;
        }
    for (size_t i = 0; i < sizeof unsupported_dtypes / sizeof *unsupported_dtypes; i++)
        if (phi_str_eq_c(phi_json_str(v), unsupported_dtypes[i]))
            return phi_fail(err, PHI_ERR_UNSUPPORTED,
                            "%s: tensor %.200s: dtype %s is not supported", r->file_name, tensor,
                            unsupported_dtypes[i]);
    return phi_fail(err, PHI_ERR_FORMAT, "%s: tensor %.200s: unknown dtype \"%.32s\"", r->file_name,
                    tensor, json_string_value(v));
}

/* A non-negative integer that fits a size_t. */
static bool get_size(const json_t *v, size_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        (uint64_t)json_integer_value(v) > SIZE_MAX)
        return false;
    *out = (size_t)json_integer_value(v);
    return true;
}

static enum phi_status read_shape(const struct reader *r, const char *tensor, const json_t *entry,
                                  struct phi_tensor *out, struct phi_error *err)
{
    const json_t *v = phi_json_field(entry, "shape");
    if (!json_is_array(v))
        return fail_tensor(r, tensor, PHI_ERR_FORMAT, "shape: expected an array", err);
    if (json_array_size(v) > PHI_TENSOR_MAX_DIMS)
        return phi_fail(err, PHI_ERR_UNSUPPORTED,
                        "%s: tensor %.200s: shape has %zu dimensions (at most %d)", r->file_name,
                        tensor, json_array_size(v), PHI_TENSOR_MAX_DIMS);
    out->n_dims = (int)json_array_size(v);
    out->n_bytes = dtypes[out->dtype].n_bytes;
    for (int i = 0; i < out->n_dims; i++) {
        if (!get_size(json_array_get(v, (size_t)i), &out->shape[i]))
            return fail_tensor(r, tensor, PHI_ERR_FORMAT, "shape: expected non-negative integers",
                               err);
        if (!phi_size_mul(out->n_bytes, out->shape[i], &out->n_bytes))
            return fail_tensor(r, tensor, PHI_ERR_FORMAT, "shape: the size overflows", err);
    }
    return PHI_OK;
}

static enum phi_status read_offsets(const struct reader *r, const char *tensor, const json_t *entry,
                                    struct phi_tensor *out, struct phi_error *err)
{
    const json_t *v = phi_json_field(entry, "data_offsets");
    size_t begin, end;
    if (!json_is_array(v) || json_array_size(v) != 2 || !get_size(json_array_get(v, 0), &begin) ||
        !get_size(json_array_get(v, 1), &end))
        return fail_tensor(r, tensor, PHI_ERR_FORMAT,
                           "data_offsets: expected two non-negative integers", err);
    if (begin > end)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: tensor %.200s: data_offsets: begin %zu is after end %zu", r->file_name,
                        tensor, begin, end);
    if (end > r->data_bytes)
        return phi_fail(
            err, PHI_ERR_FORMAT,
            "%s: tensor %.200s: data_offsets: end %zu is beyond the %zu bytes of data (is "
            "the file truncated?)",
            r->file_name, tensor, end, r->data_bytes);
    if (end - begin != out->n_bytes)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: tensor %.200s: shape and dtype need %zu bytes, data_offsets hold %zu",
                        r->file_name, tensor, out->n_bytes, end - begin);
    out->data = r->data + begin;
    return PHI_OK;
}

static enum phi_status append_tensor(struct phi_safetensors *st, const struct phi_tensor *t,
                                     struct phi_error *err)
{
    if (st->n == st->capacity) {
        size_t capacity = st->capacity ? st->capacity * 2 : 256;
        struct phi_tensor *tensors = phi_realloc(st->tensors, capacity, sizeof *tensors);
        if (!tensors)
            return phi_fail_memory(err, "the tensor table", capacity * sizeof *tensors);
        st->tensors = tensors;
        st->capacity = capacity;
    }
    st->tensors[st->n++] = *t;
    return PHI_OK;
}

static enum phi_status read_entry(const struct reader *r, const char *key, const json_t *entry,
                                  struct phi_error *err)
{
    struct phi_tensor t = {.file_name = r->file_name};
    if (!json_is_object(entry))
        return fail_tensor(r, key, PHI_ERR_FORMAT, "expected an object", err);
    PHI_TRY(read_dtype(r, key, entry, &t, err));
    PHI_TRY(read_shape(r, key, entry, &t, err));
    PHI_TRY(read_offsets(r, key, entry, &t, err));
    t.name = phi_arena_dup(&r->st->names, phi_str_from(key));
    if (!t.name.data)
        return phi_fail_memory(err, "a tensor name", strlen(key));
    return append_tensor(r->st, &t, err);
}

static enum phi_status check_metadata(const struct reader *r, const json_t *metadata,
                                      struct phi_error *err)
{
    const char *key;
    json_t *value;
    bool ok = json_is_object(metadata) || json_is_null(metadata);
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) ok = ok && json_is_string(value);
    if (!ok)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: __metadata__: expected an object of strings",
                        r->file_name);
    return PHI_OK;
}

/* --- one file --- */

static int compare_offsets(const void *pa, const void *pb)
{
    const struct phi_tensor *a = pa, *b = pb;
    const unsigned char *x = a->data, *y = b->data;
    if (x != y)
        return x < y ? -1 : 1;
    return (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

/* The tensors [first, st->n) must tile the data: sorted by offset, each begins where the last
 * ended. */
static enum phi_status check_tiling(const struct reader *r, size_t first, struct phi_error *err)
{
    struct phi_tensor *t = r->st->tensors;
    size_t expected = 0;
    if (r->st->n > first)
        qsort(t + first, r->st->n - first, sizeof *t, compare_offsets);
    for (size_t i = first; i < r->st->n; i++) {
        size_t begin = (size_t)((const unsigned char *)t[i].data - r->data);
        if (begin < expected)
            return phi_fail(err, PHI_ERR_FORMAT,
                            "%s: tensor %.200s overlaps tensor %.200s at data byte %zu",
                            r->file_name, t[i].name.data, t[i - 1].name.data, begin);
        if (begin > expected)
            return phi_fail(
                err, PHI_ERR_FORMAT,
                "%s: tensor %.200s: data bytes %zu to %zu before it belong to no tensor",
                r->file_name, t[i].name.data, expected, begin);
        expected += t[i].n_bytes;
    }
    if (expected != r->data_bytes)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: data bytes %zu to %zu at the end belong to no tensor", r->file_name,
                        expected, r->data_bytes);
    return PHI_OK;
}

static enum phi_status read_header(const struct reader *r, struct phi_str header,
                                   struct phi_error *err)
{
    json_t *root = NULL;
    size_t first = r->st->n;
    if (header.n == 0 || header.data[0] != '{')
        return phi_fail(err, PHI_ERR_FORMAT, "%s: the header does not begin with '{'",
                        r->file_name);
    enum phi_status status = phi_json_parse(header, r->file_name, &root, err);
    if (status != PHI_OK)
        return phi_fail_prefix(err, status, "safetensors header");

    const char *key;
    json_t *entry;
    json_object_foreach(root, key, entry)
    {
        status = strcmp(key, "__metadata__") == 0 ? check_metadata(r, entry, err)
                                                  : read_entry(r, key, entry, err);
        if (status != PHI_OK)
            break;
    }
    json_decref(root);
    return status == PHI_OK ? check_tiling(r, first, err) : status;
}

/* Checks `bytes` as a whole file and appends its tensors to *st. */
static enum phi_status read_bytes(struct phi_safetensors *st, const char *file_name,
                                  const unsigned char *bytes, size_t n, struct phi_error *err)
{
    const struct phi_str lfs = PHI_STR("version https://git-lfs");
    uint64_t header_bytes = 0;
    if (phi_str_starts_with((struct phi_str){(const char *)bytes, n}, lfs))
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: is a Git LFS pointer, not weights (fetch the file with git lfs pull)",
                        file_name);
    if (n < 8)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file",
                        file_name, n);
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | bytes[i];
    if (header_bytes > MAX_HEADER_BYTES)
        return phi_fail(
            err, PHI_ERR_FORMAT,
            "%s: header length %llu is over the format's limit of %d: not a safetensors file",
            file_name, (unsigned long long)header_bytes, MAX_HEADER_BYTES);
    if (header_bytes > n - 8)
        return phi_fail(
            err, PHI_ERR_FORMAT,
            "%s: header length %llu is beyond the end of the file (%zu bytes; truncated?)",
            file_name, (unsigned long long)header_bytes, n);
    struct reader r = {st, file_name, bytes + 8 + header_bytes, n - 8 - (size_t)header_bytes};
    return read_header(&r, (struct phi_str){(const char *)bytes + 8, (size_t)header_bytes}, err);
}

static enum phi_status add_file(struct phi_safetensors *st, const char *path, struct phi_error *err)
{
    struct phi_str name = phi_arena_dup(&st->names, phi_str_from(path));
    if (!name.data)
        return phi_fail_memory(err, "a path", strlen(path));
    struct phi_map *maps = phi_realloc(st->maps, st->n_files + 1, sizeof *maps);
    if (!maps)
        return phi_fail_memory(err, "the table of files", (st->n_files + 1) * sizeof *maps);
    st->maps = maps;
    struct phi_map *map = &maps[st->n_files];
    PHI_TRY(phi_map_open(path, map, err));
    st->n_files++;
    st->file_bytes += map->n_bytes;
    return read_bytes(st, name.data, map->data, map->n_bytes, err);
}

/* --- the whole set --- */

static int compare_str(struct phi_str a, struct phi_str b)
{
    int order = memcmp(a.data, b.data, phi_size_min(a.n, b.n));
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

static int compare_names(const void *pa, const void *pb)
{
    const struct phi_tensor *a = pa, *b = pb;
    return compare_str(a->name, b->name);
}

/* Sorts by name; within one file the JSON parser has refused duplicates already. */
static enum phi_status sort_names(struct phi_safetensors *st, struct phi_error *err)
{
    if (st->n > 0)
        qsort(st->tensors, st->n, sizeof *st->tensors, compare_names);
    for (size_t i = 1; i < st->n; i++) {
        const struct phi_tensor *a = &st->tensors[i - 1], *b = &st->tensors[i];
        if (phi_str_eq(a->name, b->name))
            return phi_fail(err, PHI_ERR_FORMAT, "tensor %.200s is in two files: %.300s and %.300s",
                            a->name.data, a->file_name, b->file_name);
    }
    return PHI_OK;
}

const struct phi_tensor *phi_safetensors_find(const struct phi_safetensors *st, struct phi_str name)
{
    struct phi_tensor key = {.name = name};
    return st->n ? bsearch(&key, st->tensors, st->n, sizeof key, compare_names) : NULL;
}

size_t phi_safetensors_n_tensors(const struct phi_safetensors *st)
{
    return st->n;
}

const struct phi_tensor *phi_safetensors_at(const struct phi_safetensors *st, size_t i)
{
    return &st->tensors[i];
}

size_t phi_safetensors_file_bytes(const struct phi_safetensors *st)
{
    return st->file_bytes;
}

const struct phi_map *phi_safetensors_maps(const struct phi_safetensors *st, size_t *n)
{
    *n = st->n_files;
    return st->maps;
}

void phi_safetensors_close(struct phi_safetensors *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->n_files; i++)
        phi_map_close(&st->maps[i]);
    phi_free(st->maps);
    phi_free(st->tensors);
    phi_arena_deinit(&st->names);
    phi_free(st);
}

/* --- a folder --- */

/* What the loading of a sharded folder shares. */
struct index {
    const char *dir;
    const char *path;  /* of the index file */
    const json_t *map; /* tensor name -> file name */
    json_t *shards;    /* set of file names seen so far */
};

/* A shard is a plain file name in the same folder: a checkpoint cannot name files elsewhere. */
static bool is_plain_name(struct phi_str s)
{
    return s.n > 0 && s.n < 256 && !memchr(s.data, '/', s.n) && !memchr(s.data, '\\', s.n) &&
           !memchr(s.data, '\0', s.n) && !phi_str_eq_c(s, ".") && !phi_str_eq_c(s, "..");
}

/* Opens each file that the index names, once. */
static enum phi_status open_shards(struct phi_safetensors *st, struct index *ix,
                                   struct phi_buf *path, struct phi_error *err)
{
    const char *tensor;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)ix->map, tensor, v)
    {
        if (!json_is_string(v) || !is_plain_name(phi_json_str(v)))
            return phi_fail(
                err, PHI_ERR_FORMAT,
                "%s: weight_map: %.200s: expected the name of a file in the same folder", ix->path,
                tensor);
        const char *shard = json_string_value(v);
        if (json_object_get(ix->shards, shard))
            continue;
        if (st->n_files == MAX_FILES)
            return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: more than %d files", ix->path,
                            MAX_FILES);
        if (json_object_set_new(ix->shards, shard, json_true()) != 0 ||
            !phi_path_join(path, ix->dir, shard))
            return phi_fail_memory(err, "the list of shards", strlen(shard));
        if (!phi_file_exists(path->data))
            return phi_fail(err, PHI_ERR_IO,
                            "%s: is missing, but the index lists it (for tensor %.200s)",
                            path->data, tensor);
        PHI_TRY(add_file(st, path->data, err));
    }
    return PHI_OK;
}

/* Every tensor of the index must be in the shard it is listed for. */
static enum phi_status check_index(const struct phi_safetensors *st, const struct index *ix,
                                   struct phi_buf *path, struct phi_error *err)
{
    const char *tensor;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)ix->map, tensor, v)
    {
        const struct phi_tensor *t = phi_safetensors_find(st, phi_str_from(tensor));
        if (!phi_path_join(path, ix->dir, json_string_value(v)))
            return phi_fail_memory(err, "a path", strlen(ix->dir));
        if (!t)
            return phi_fail(err, PHI_ERR_FORMAT,
                            "%s: tensor %.200s is listed in the index but not in the file",
                            path->data, tensor);
        if (strcmp(t->file_name, path->data) != 0)
            return phi_fail(
                err, PHI_ERR_FORMAT,
                "%s: tensor %.200s: the index lists it in this file, but it is in %.300s",
                path->data, tensor, t->file_name);
    }
    return PHI_OK;
}

static enum phi_status open_index(struct phi_safetensors *st, const char *dir,
                                  const char *index_path, struct phi_error *err)
{
    json_t *root = NULL;
    struct phi_buf path = {0};
    struct index ix = {.dir = dir, .path = index_path};
    enum phi_status status = phi_json_parse_file(index_path, MAX_INDEX_BYTES, &root, err);
    if (status == PHI_OK) {
        ix.map = phi_json_field(root, "weight_map");
        ix.shards = json_object();
        if (!json_is_object(ix.map) || json_object_size(ix.map) == 0)
            status = phi_fail(err, PHI_ERR_FORMAT,
                              "%s: weight_map: expected an object with tensors", index_path);
        else if (!ix.shards)
            status = phi_fail_memory(err, "the list of shards", 0);
    }
    if (status == PHI_OK)
        status = open_shards(st, &ix, &path, err);
    if (status == PHI_OK)
        status = sort_names(st, err);
    if (status == PHI_OK)
        status = check_index(st, &ix, &path, err);
    json_decref(ix.shards);
    json_decref(root);
    phi_buf_deinit(&path);
    return status;
}

/* Appends the names of the files in `d` that look like weights, the first few of them. */
static void list_weight_files(DIR *d, struct phi_buf *list)
{
    static const char *const endings[] = {".bin",     ".safetensors", ".index.json", ".gguf",
                                          ".pt",      ".pth",         ".ckpt",       ".h5",
                                          ".msgpack", ".onnx"};
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
            if (phi_str_ends_with(phi_str_from(e->d_name), phi_str_from(endings[i]))) {
                if (n++ < 8)
                    phi_buf_printf(list, "%s%s", n > 1 ? ", " : "", e->d_name);
                break;
            }
    if (n > 8)
        phi_buf_printf(list, " and %d more", n - 8);
    if (n == 0)
        phi_buf_append_c(list, "no weight files");
}

/* There is neither a single file nor an index: say what there is instead. */
static enum phi_status fail_without_weights(const char *dir, struct phi_error *err)
{
    struct phi_buf list = {0};
    DIR *d = opendir(dir);
    if (!d)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot open the folder: %s", dir, strerror(errno));
    list_weight_files(d, &list);
    closedir(d);
    enum phi_status status = PHI_ERR_MEMORY;
    if (list.failed)
        phi_fail_memory(err, "a list of files", list.n);
    else
        status = phi_fail(err, PHI_ERR_IO,
                          "%s: needs model.safetensors or model.safetensors.index.json with its "
                          "shards, found %s (only the safetensors format is read)",
                          dir, list.data);
    phi_buf_deinit(&list);
    return status;
}

/* Also true of a dangling link: it then fails to open, under its own name. */
static bool is_listed(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static enum phi_status open_folder(struct phi_safetensors *st, const char *dir,
                                   struct phi_buf *path, struct phi_error *err)
{
    if (!phi_path_join(path, dir, "model.safetensors"))
        return phi_fail_memory(err, "a path", strlen(dir));
    if (is_listed(path->data)) {
        PHI_TRY(add_file(st, path->data, err));
        return sort_names(st, err);
    }
    if (!phi_path_join(path, dir, "model.safetensors.index.json"))
        return phi_fail_memory(err, "a path", strlen(dir));
    if (is_listed(path->data))
        return open_index(st, dir, path->data, err);
    return fail_without_weights(dir, err);
}

/* --- entry points --- */

static enum phi_status create(struct phi_safetensors **out, struct phi_error *err)
{
    *out = phi_calloc(1, sizeof **out);
    return *out ? PHI_OK : phi_fail_memory(err, "the weights", sizeof **out);
}

/* Hands over *st, or closes it when status is a failure. */
static enum phi_status finish(struct phi_safetensors *st, enum phi_status status,
                              struct phi_safetensors **out)
{
    *out = status == PHI_OK ? st : NULL;
    if (status != PHI_OK)
        phi_safetensors_close(st);
    return status;
}

enum phi_status phi_safetensors_open_dir(const char *dir, struct phi_safetensors **out,
                                         struct phi_error *err)
{
    struct phi_safetensors *st;
    struct phi_buf path = {0};
    *out = NULL;
    PHI_TRY(create(&st, err));
    enum phi_status status = open_folder(st, dir, &path, err);
    phi_buf_deinit(&path);
    return finish(st, status, out);
}

enum phi_status phi_safetensors_open_file(const char *path, struct phi_safetensors **out,
                                          struct phi_error *err)
{
    struct phi_safetensors *st;
    *out = NULL;
    PHI_TRY(create(&st, err));
    enum phi_status status = add_file(st, path, err);
    if (status == PHI_OK)
        status = sort_names(st, err);
    return finish(st, status, out);
}

enum phi_status phi_safetensors_check_bytes(const void *bytes, size_t n, struct phi_error *err)
{
    struct phi_safetensors *st;
    PHI_TRY(create(&st, err));
    enum phi_status status = read_bytes(st, "safetensors", bytes, n, err);
    if (status == PHI_OK)
        status = sort_names(st, err);
    phi_safetensors_close(st);
    return status;
}
