/* weights_quant.c: linear layers with integer weights: those that a compressed-tensors checkpoint
 * holds, used where they are mapped, and those made at load from floats.
 *
 *   W8A8   stem.weight I8 [out, in], stem.weight_scale [out, 1] or [1]
 *   W4A16  stem.weight_packed I32 [out, ceil(in / 8)], stem.weight_scale [out, in / group],
 *          stem.weight_shape I64 [2] = out, in */
#include "base/alloc.h"
#include "base/size.h"
#include "model/weights.h"

#include <stdio.h>

enum { MAX_NAME = 256, ROWS_PER_ITEM = 16 };

/* ---------------------------------------------------------------- from the file */

static const struct phi_tensor *find(const struct phi_weights *w, const char *stem,
                                     const char *suffix, char name[MAX_NAME])
{
    snprintf(name, MAX_NAME, "%s.%s", stem, suffix);
    return w->options->weights ? phi_safetensors_find(w->options->weights, phi_str_from(name))
                               : NULL;
}

static enum phi_status fail_tensor(const struct phi_tensor *t, const char *what,
                                   struct phi_error *err)
{
    return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: %s: %s", t->file_name, t->name.data, what);
}

/* Widens the n floats of a tensor into memory that lives as long as the weights. */
static enum phi_status widen(struct phi_weights *w, const struct phi_tensor *t, size_t n,
                             const float **out, struct phi_error *err)
{
    struct phi_matrix row = {.data = t->data, .n_rows = 1, .n_cols = n};
    PHI_TRY(phi_weights_float_dtype(t, &row.dtype, err));
    float *values = phi_weights_add_block(w, n, sizeof *values);
    if (!values)
        return phi_fail_memory(err, t->name.data, n * sizeof *values);
    phi_matrix_row(w->options->kernels, &row, 0, values);
    w->converted_bytes += n * sizeof *values;
    *out = values;
    return PHI_OK;
}

/* [out, 1], [out] or, one scale for all, [1]. */
static enum phi_status row_scales(struct phi_weights *w, const struct phi_tensor *t, size_t n_rows,
                                  const float **out, struct phi_error *err)
{
    size_t n = t->n_dims == 0 ? 1 : t->shape[0];
    bool row = t->n_dims <= 1 || (t->n_dims == 2 && t->shape[1] == 1);
    if (!row || (n != n_rows && n != 1))
        return fail_tensor(t, "not one scale for each row of the weight", err);
    PHI_TRY(widen(w, t, n, out, err));
    if (n == n_rows)
        return PHI_OK;
    float *all = phi_weights_add_block(w, n_rows, sizeof *all);
    if (!all)
        return phi_fail_memory(err, t->name.data, n_rows * sizeof *all);
    for (size_t r = 0; r < n_rows; r++)
        all[r] = **out;
    *out = all;
    return PHI_OK;
}

static enum phi_status bind_w8(struct phi_weights *w, struct phi_matrix *m, const char *stem,
                               struct phi_error *err)
{
    char name[MAX_NAME];
    const struct phi_tensor *t, *scale;
    const float *scales;
    snprintf(name, sizeof name, "%s.weight", stem);
    PHI_TRY(phi_weights_find(w, name, m->n_rows, m->n_cols, &t, err));
    m->data = t->data;
    m->quant = PHI_W8A8;
    w->mapped_bytes += t->n_bytes;
    scale = find(w, stem, "weight_scale", name);
    if (!scale)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: missing from the checkpoint", name);
    PHI_TRY(row_scales(w, scale, m->n_rows, &scales, err));
    m->scales = scales;
    return PHI_OK;
}

/* bfloat16 and float32 scales are used where they are, float16 ones are widened. */
static enum phi_status bind_group_scales(struct phi_weights *w, struct phi_matrix *m,
                                         const struct phi_tensor *t, struct phi_error *err)
{
    const bool grouped = t->n_dims == 2 && t->shape[0] == m->n_rows && t->shape[1] > 0;
    const size_t n_groups = grouped ? t->shape[1] : 0;
    if (!grouped || m->n_cols % n_groups != 0)
        return fail_tensor(t, "not one scale for each group of equal size of each row", err);
    m->group = m->n_cols / n_groups;
    if (n_groups > 1 && m->group % PHI_QUANT_BLOCK != 0)
        return fail_tensor(t, "groups that are not multiples of 32 columns are not supported", err);
    m->scale_dtype = t->dtype == PHI_ST_BF16 ? PHI_BFLOAT16 : PHI_FLOAT32;
    m->scales = t->data;
    if (t->dtype == PHI_ST_BF16 || t->dtype == PHI_ST_F32) {
        w->mapped_bytes += t->n_bytes;
        return PHI_OK;
    }
    const float *scales;
    PHI_TRY(widen(w, t, m->n_rows * n_groups, &scales, err));
    m->scales = scales;
    return PHI_OK;
}

static enum phi_status check_shape_tensor(const struct phi_matrix *m, const struct phi_tensor *t,
                                          struct phi_error *err)
{
    int64_t shape[2];
    if (t->dtype != PHI_ST_I64 || t->n_bytes != sizeof shape)
        return fail_tensor(t, "not two 64-bit integers", err);
    memcpy(shape, t->data, sizeof shape);
    if (shape[0] == (int64_t)m->n_rows && shape[1] == (int64_t)m->n_cols)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_FORMAT,
                    "%s: %s: [%lld, %lld], but config.json asks for [%zu, %zu]", t->file_name,
                    t->name.data, (long long)shape[0], (long long)shape[1], m->n_rows, m->n_cols);
}

static enum phi_status bind_w4(struct phi_weights *w, struct phi_matrix *m, const char *stem,
                               struct phi_error *err)
{
    char name[MAX_NAME];
    const struct phi_tensor *t, *other;
    snprintf(name, sizeof name, "%s.weight_packed", stem);
    PHI_TRY(phi_weights_find(w, name, m->n_rows, phi_size_ceil_div(m->n_cols, 8), &t, err));
    if (t->dtype != PHI_ST_I32)
        return fail_tensor(t, "the dtype is not I32", err);
    m->data = t->data;
    m->quant = PHI_W4A8;
    w->mapped_bytes += t->n_bytes;
    if ((other = find(w, stem, "weight_g_idx", name)) ||
        (other = find(w, stem, "weight_zero_point", name)))
        return fail_tensor(other,
                           "is not supported: only symmetric weights in groups of "
                           "neighbours are",
                           err);
    if ((other = find(w, stem, "weight_shape", name)))
        PHI_TRY(check_shape_tensor(m, other, err));
    if (!(other = find(w, stem, "weight_scale", name)))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: missing from the checkpoint", name);
    return bind_group_scales(w, m, other, err);
}

static enum phi_status check_columns(const char *stem, size_t n_cols, struct phi_error *err)
{
    if (n_cols <= PHI_QUANT_MAX_K)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: %zu columns of integers; %d is the most", stem,
                    n_cols, PHI_QUANT_MAX_K);
}

enum phi_status phi_weights_integers(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                     size_t n_cols, const char *stem, bool *found,
                                     struct phi_error *err)
{
    char name[MAX_NAME];
    const struct phi_tensor *plain = find(w, stem, "weight", name);
    const struct phi_tensor *packed = find(w, stem, "weight_packed", name);
    const struct phi_tensor *t = packed ? packed : plain;
    *found = packed || (plain && plain->dtype == PHI_ST_I8);
    if (!*found)
        return PHI_OK;
    if (!w->options->config->quantized)
        return fail_tensor(t, "integer weights, but config.json has no quantization_config", err);
    PHI_TRY(check_columns(stem, n_cols, err));
    *out = (struct phi_matrix){.dtype = w->dtype, .n_rows = n_rows, .n_cols = n_cols};
    w->n_parameters += (uint64_t)n_rows * n_cols;
    return packed ? bind_w4(w, out, stem, err) : bind_w8(w, out, stem, err);
}

/* ---------------------------------------------------------------- from floats */

struct fitting {
    struct phi_compute *compute;
    const struct phi_matrix *from, *to;
    char *data, *scales; /* of to */
};

static void fit_rows(void *context, size_t item, int thread)
{
    const struct fitting *f = context;
    const struct phi_kernels *k = f->compute->kernels;
    float *x = phi_compute_scratch(f->compute, thread);
    const size_t n = f->from->n_cols, row_bytes = phi_matrix_row_bytes(f->to);
    const size_t scale_bytes = phi_matrix_scale_bytes(f->to);
    const size_t end = phi_size_min((item + 1) * ROWS_PER_ITEM, f->from->n_rows);
    for (size_t r = item * ROWS_PER_ITEM; r < end; r++) {
        char *data = f->data + r * row_bytes, *scales = f->scales + r * scale_bytes;
        phi_matrix_row(k, f->from, r, x);
        if (f->to->quant == PHI_W8A8)
            *(float *)scales = k->fit_w8((int8_t *)data, x, n);
        else
            k->fit_w4((uint8_t *)data, (uint16_t *)scales, x, n, f->to->group);
    }
}

/* The group that was asked for, else the greatest of 128, 64 and 32 that divides the columns of all
 * layers: config.json has room for one. */
static enum phi_status pick_group(const struct phi_weights *w, size_t n_cols, const char *stem,
                                  size_t *out, struct phi_error *err)
{
    const struct phi_config *c = w->options->config;
    const size_t heads = (size_t)c->n_heads * (size_t)c->head_dim;
    size_t group = (size_t)w->options->quant_group_size;
    if (group == 0) {
        size_t all = (size_t)c->hidden_size | (size_t)c->intermediate_size | heads;
        group = all % 128 == 0 ? 128 : all % 64 == 0 ? 64 : 32;
    }
    if (n_cols % group != 0)
        return phi_fail(err, PHI_ERR_UNSUPPORTED,
                        "%s: %zu columns cannot be cut into groups of %zu for w4a8", stem, n_cols,
                        group);
    *out = group;
    return PHI_OK;
}

static enum phi_status remember(struct phi_weights *w, const struct phi_matrix *m, const char *stem,
                                struct phi_error *err)
{
    struct phi_quantized_matrix *q = phi_arena_alloc(&w->arena, 1, sizeof *q);
    struct phi_str name = phi_arena_dup(&w->arena, phi_str_from(stem));
    if (!q || !name.data)
        return phi_fail_memory(err, stem, sizeof *q);
    *q = (struct phi_quantized_matrix){NULL, name.data, *m};
    if (w->last_quantized)
        w->last_quantized->next = q;
    else
        w->first_quantized = q;
    w->last_quantized = q;
    return PHI_OK;
}

/* Makes the integers of *to, whose form is set, from m. */
static enum phi_status fit_data(struct phi_weights *w, const struct phi_matrix *m,
                                struct phi_matrix *to, const char *stem, struct phi_error *err)
{
    PHI_TRY(phi_weights_need_threads(w, m->n_cols * sizeof(float), err));
    struct fitting f = {.compute = &w->compute, .from = m, .to = to};
    size_t row_bytes = phi_matrix_row_bytes(to), scale_bytes = phi_matrix_scale_bytes(to);
    to->data = f.data = phi_weights_add_block(w, m->n_rows, row_bytes);
    to->scales = f.scales = f.data ? phi_weights_add_block(w, m->n_rows, scale_bytes) : NULL;
    if (!f.scales)
        return phi_fail_memory(err, stem, m->n_rows * (row_bytes + scale_bytes));
    phi_compute_each(&w->compute, phi_size_ceil_div(m->n_rows, ROWS_PER_ITEM), fit_rows, &f);
    return PHI_OK;
}

enum phi_status phi_weights_quantize(struct phi_weights *w, struct phi_matrix *m,
                                     enum phi_quantization quant, const char *stem,
                                     struct phi_error *err)
{
    struct phi_matrix to = *m;
    to.quant = quant;
    to.scale_dtype = PHI_BFLOAT16;
    PHI_TRY(check_columns(stem, m->n_cols, err));
    if (quant == PHI_W4A8)
        PHI_TRY(pick_group(w, m->n_cols, stem, &to.group, err));
    if (!w->options->count_only)
        PHI_TRY(fit_data(w, m, &to, stem, err));
    w->converted_bytes += m->n_rows * (phi_matrix_row_bytes(&to) + phi_matrix_scale_bytes(&to));
    w->quantized_from_bytes += m->n_rows * phi_matrix_row_bytes(m);
    phi_weights_report(w, "quantizing", w->quantized_from_bytes);
    *m = to;
    return remember(w, m, stem, err);
}
