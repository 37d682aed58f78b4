/* quantize.c: writing a quantised model as a checkpoint folder (phi_model_write_quantized). The
 * integers were made when the model was opened; here they take the places of the weights they came
 * from. config.json is written last: a folder without it is not taken for a checkpoint. */
#include "base/alloc.h"
#include "base/file.h"
#include "engine/model_api.h"
#include "formats/config_quant.h"
#include "formats/safetensors.h"
#include "model/weights.h"

#include <errno.h>
#include <sys/stat.h>

enum { MAX_FILE_BYTES = 256 << 20, PARTS = 3 /* tensors that a weight becomes, at most */ };

/* What is taken over as it is, where it exists. */
static const char *const copied_files[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

struct writing {
    const struct phi_model *m;
    struct phi_arena arena; /* names and shapes */
    struct phi_tensor *tensors;
    size_t n;
    const struct phi_quantized_matrix *head; /* the output head; NULL: it stays as it is */
    size_t group;
};

/* ---------------------------------------------------------------- tensors */

static enum phi_status add(struct writing *w, const char *stem, const char *suffix,
                           enum phi_st_dtype dtype, size_t n_rows, size_t n_cols, const void *data,
                           struct phi_error *err)
{
    struct phi_buf name = {0};
    phi_buf_printf(&name, "%s.%s", stem, suffix);
    struct phi_str kept = {0};
    if (!name.failed)
        kept = phi_arena_dup(&w->arena, phi_buf_str(&name));
    phi_buf_deinit(&name);
    if (!kept.data)
        return phi_fail_memory(err, "a tensor's name", strlen(stem));
    w->tensors[w->n++] = (struct phi_tensor){
        .name = kept,
        .dtype = dtype,
        .n_dims = n_cols ? 2 : 1,
        .shape = {n_rows, n_cols},
        .n_bytes = n_rows * (n_cols ? n_cols : 1) * phi_st_dtype_bytes(dtype),
        .data = data,
    };
    return PHI_OK;
}

static enum phi_status add_w8(struct writing *w, const struct phi_quantized_matrix *q,
                              struct phi_error *err)
{
    const struct phi_matrix *m = &q->matrix;
    PHI_TRY(add(w, q->stem, "weight", PHI_ST_I8, m->n_rows, m->n_cols, m->data, err));
    return add(w, q->stem, "weight_scale", PHI_ST_F32, m->n_rows, 1, m->scales, err);
}

static enum phi_status add_w4(struct writing *w, const struct phi_quantized_matrix *q,
                              struct phi_error *err)
{
    const struct phi_matrix *m = &q->matrix;
    int64_t *shape = phi_arena_alloc(&w->arena, 2, sizeof *shape);
    if (!shape)
        return phi_fail_memory(err, "a shape", 2 * sizeof *shape);
    shape[0] = (int64_t)m->n_rows;
    shape[1] = (int64_t)m->n_cols;
    w->group = m->group;
    PHI_TRY(add(w, q->stem, "weight_packed", PHI_ST_I32, m->n_rows, phi_matrix_row_bytes(m) / 4,
                m->data, err));
    PHI_TRY(add(w, q->stem, "weight_scale", PHI_ST_BF16, m->n_rows, m->n_cols / m->group, m->scales,
                err));
    return add(w, q->stem, "weight_shape", PHI_ST_I64, 2, 0, shape, err);
}

static const struct phi_quantized_matrix *find_quantized(const struct phi_model *m,
                                                         struct phi_str name)
{
    const struct phi_quantized_matrix *q = phi_net_quantized(m->net);
    for (; q; q = q->next) {
        size_t n = strlen(q->stem);
        struct phi_str stem = {q->stem, n};
        if (phi_str_starts_with(name, stem) &&
            phi_str_eq_c((struct phi_str){name.data + n, name.n - n}, ".weight"))
            return q;
    }
    return NULL;
}

static const struct phi_quantized_matrix *quantized_head(const struct phi_model *m)
{
    const struct phi_quantized_matrix *q = phi_net_quantized(m->net);
    while (q && !phi_str_starts_with(phi_str_from(q->stem), PHI_STR("lm_head")))
        q = q->next;
    return q;
}

/* The head first, which may be a copy of the embedding that the file has no tensor for, then the
 * others in the file's order. */
static enum phi_status collect(struct writing *w, struct phi_error *err)
{
    const struct phi_safetensors *st = w->m->weights;
    const size_t n = phi_safetensors_n_tensors(st), most = (n + 1) * PARTS;
    w->tensors = phi_calloc(most, sizeof *w->tensors);
    if (!w->tensors)
        return phi_fail_memory(err, "a list of tensors", most * sizeof *w->tensors);
    w->head = quantized_head(w->m);
    if (w->head)
        PHI_TRY(add_w8(w, w->head, err));
    for (size_t i = 0; i < n; i++) {
        const struct phi_tensor *t = phi_safetensors_at(st, i);
        const struct phi_quantized_matrix *q = find_quantized(w->m, t->name);
        if (!q)
            w->tensors[w->n++] = *t;
        else if (q != w->head)
            PHI_TRY(q->matrix.quant == PHI_W8A8 ? add_w8(w, q, err) : add_w4(w, q, err));
    }
    return PHI_OK;
}

/* ---------------------------------------------------------------- files */

static enum phi_status copy_file(const char *from_dir, const char *to_dir, const char *name,
                                 struct phi_buf *path, struct phi_buf *text, struct phi_error *err)
{
    phi_buf_clear(text);
    if (!phi_path_join(path, from_dir, name))
        return phi_fail_memory(err, "a path", strlen(from_dir));
    if (!phi_file_exists(path->data))
        return PHI_OK;
    PHI_TRY(phi_file_read(path->data, MAX_FILE_BYTES, text, err));
    if (!phi_path_join(path, to_dir, name))
        return phi_fail_memory(err, "a path", strlen(to_dir));
    return phi_file_write(path->data, phi_buf_str(text), err);
}

/* The head's module, whether it has integers or floats. */
static const char *head_name(const struct writing *w)
{
    if (w->head)
        return w->head->stem;
    return phi_safetensors_find(w->m->weights, PHI_STR("lm_head.linear.weight")) ? "lm_head.linear"
                                                                                 : "lm_head";
}

/* A quantised head is no longer the embedding. */
static enum phi_status set_quantization(const struct writing *w, json_t *config,
                                        struct phi_buf *text, struct phi_error *err)
{
    const struct phi_quantization_layout layout = {
        .layers = phi_net_quantized(w->m->net)->matrix.quant,
        .group = w->group,
        .head = head_name(w),
        .head_int8 = w->head != NULL,
    };
    json_t *q = phi_quantization_config_make(&layout);
    const bool unties = w->head && w->m->config.tie_word_embeddings;
    if (!q || json_object_set_new(config, "quantization_config", q) != 0 ||
        (unties && json_object_set_new(config, "tie_word_embeddings", json_false()) != 0))
        return phi_fail_memory(err, "config.json", 0);
    phi_buf_clear(text);
    phi_json_dump(config, JSON_INDENT(2), text);
    phi_buf_append_char(text, '\n');
    return text->failed ? phi_fail_memory(err, "config.json", text->n) : PHI_OK;
}

static enum phi_status write_config(const struct writing *w, const char *to_dir,
                                    struct phi_buf *path, struct phi_buf *text,
                                    struct phi_error *err)
{
    json_t *config;
    if (!phi_path_join(path, w->m->path, "config.json"))
        return phi_fail_memory(err, "a path", strlen(w->m->path));
    PHI_TRY(phi_json_parse_file(path->data, MAX_FILE_BYTES, &config, err));
    enum phi_status status = set_quantization(w, config, text, err);
    json_decref(config);
    if (status != PHI_OK)
        return status;
    if (!phi_path_join(path, to_dir, "config.json"))
        return phi_fail_memory(err, "a path", strlen(to_dir));
    return phi_file_write(path->data, phi_buf_str(text), err);
}

static enum phi_status make_folder(const char *dir, struct phi_buf *path, struct phi_error *err)
{
    static const char *const taken[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot create: %s", dir, strerror(errno));
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        if (!phi_path_join(path, dir, taken[i]))
            return phi_fail_memory(err, "a path", strlen(dir));
        if (phi_file_exists(path->data))
            return phi_fail(err, PHI_ERR_INVALID, "%s: exists already", path->data);
    }
    return PHI_OK;
}

static enum phi_status write_folder(struct writing *w, const char *dir, struct phi_buf *path,
                                    struct phi_buf *text, struct phi_error *err)
{
    PHI_TRY(make_folder(dir, path, err));
    PHI_TRY(collect(w, err));
    for (size_t i = 0; i < sizeof copied_files / sizeof copied_files[0]; i++)
        PHI_TRY(copy_file(w->m->path, dir, copied_files[i], path, text, err));
    if (!phi_path_join(path, dir, "model.safetensors"))
        return phi_fail_memory(err, "a path", strlen(dir));
    PHI_TRY(phi_safetensors_write(path->data, w->tensors, w->n, err));
    return write_config(w, dir, path, text, err);
}

enum phi_status phi_model_write_quantized(const struct phi_model *m, const char *out_dir,
                                          struct phi_error *err)
{
    if (!m->net || !m->weights || !phi_net_quantized(m->net))
        return phi_fail(err, PHI_ERR_INVALID,
                        "nothing to write: no weights were quantized when the model was opened");
    if (m->config.quantized)
        return phi_fail(err, PHI_ERR_INVALID,
                        "%s: its layers are quantized already; a quantized head is written with "
                        "them, from the checkpoint of float weights",
                        m->path);
    struct writing w = {.m = m};
    struct phi_buf path = {0}, text = {0};
    enum phi_status status = write_folder(&w, out_dir, &path, &text, err);
    phi_buf_deinit(&path);
    phi_buf_deinit(&text);
    phi_arena_deinit(&w.arena);
    phi_free(w.tensors);
    return status;
}
