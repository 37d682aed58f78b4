/* safetensors.h: a checkpoint's tensors, mapped and not copied.
 *
 * Format (https://github.com/huggingface/safetensors): a little-endian u64 header length (at most
 * 100,000,000), a JSON object {name: {dtype, shape, data_offsets}}, then the data. The data must be
 * covered without holes or overlaps. A folder holds model.safetensors, or shards named by
 * model.safetensors.index.json.
 *
 * Everything is checked at open: nothing later reads outside a map. A file that another process
 * truncates while it is mapped raises SIGBUS on the next read: replace weight files by renaming. */
#ifndef PHI_FORMATS_SAFETENSORS_H
#define PHI_FORMATS_SAFETENSORS_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/str.h"

enum { PHI_TENSOR_MAX_DIMS = 8 };

/* The dtypes of the format whose elements are whole bytes. The others (F4, F6_*, F8_E8M0, C64, ...)
 * are refused by name. */
enum phi_st_dtype {
    PHI_ST_BOOL,
    PHI_ST_U8,
    PHI_ST_I8,
    PHI_ST_U16,
    PHI_ST_I16,
    PHI_ST_U32,
    PHI_ST_I32,
    PHI_ST_U64,
    PHI_ST_I64,
    PHI_ST_F16,
    PHI_ST_BF16,
    PHI_ST_F32,
    PHI_ST_F64,
    PHI_ST_F8_E4M3,
    PHI_ST_F8_E5M2
};

const char *phi_st_dtype_name(enum phi_st_dtype t); /* "F32", "BF16", ... as in the file */
size_t phi_st_dtype_bytes(enum phi_st_dtype t);

struct phi_tensor {
    struct phi_str name; /* of an opened set: NUL-terminated */
    enum phi_st_dtype dtype;
    int n_dims;
    size_t shape[PHI_TENSOR_MAX_DIMS];
    size_t n_bytes;
    const void *data;      /* into the map; may be unaligned */
    const char *file_name; /* for errors */
};

struct phi_safetensors;

/* Opens all weight files of a folder: model.safetensors if it exists, else what the index names
 * (every tensor of the shards, also those that the index does not list). Errors name the file and
 * the tensor: a Git LFS pointer, only .bin files present, a missing shard, a name listed in the
 * index but absent from its shard, ... */
enum phi_status phi_safetensors_open_dir(const char *dir, struct phi_safetensors **out,
                                         struct phi_error *err);

/* Opens one file. */
enum phi_status phi_safetensors_open_file(const char *path, struct phi_safetensors **out,
                                          struct phi_error *err);
void phi_safetensors_close(struct phi_safetensors *st); /* NULL is fine; unmaps */

/* NULL when there is no such tensor. The pointer lives until close. Time O(log n_tensors). */
const struct phi_tensor *phi_safetensors_find(const struct phi_safetensors *st,
                                              struct phi_str name);

/* All tensors, sorted by name: 0 <= i < n_tensors. */
size_t phi_safetensors_n_tensors(const struct phi_safetensors *st);
const struct phi_tensor *phi_safetensors_at(const struct phi_safetensors *st, size_t i);
size_t phi_safetensors_file_bytes(const struct phi_safetensors *st); /* sum over all files */

/* The mapped files, for those who look after their pages. */
const struct phi_map *phi_safetensors_maps(const struct phi_safetensors *st, size_t *n);

/* Checks the header in `bytes` as if it were a whole file (for the fuzzer and the tests). */
enum phi_status phi_safetensors_check_bytes(const void *bytes, size_t n, struct phi_error *err);

/* Writes the tensors (name, dtype, shape, n_bytes, data) in the given order. The file appears under
 * `path` only when complete; an error (full disk, duplicate name, size that does not match the
 * shape) leaves what was there before. A path that is a pipe or a device is written in place. */
enum phi_status phi_safetensors_write(const char *path, const struct phi_tensor *tensors, size_t n,
                                      struct phi_error *err);

#endif
