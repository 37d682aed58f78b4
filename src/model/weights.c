/* weights.c: see weights.h. */
#include "model/weights.h"
#include "base/alloc.h"
#include "base/size.h"
#include "kernels/elementary.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_NAME = 256, ROWS_PER_ITEM = 64, DUMMY_CHUNK = 1 << 16 };

void phi_weights_init(struct phi_weights *w, const struct phi_net_options *o, enum phi_dtype dtype)
{
    *w = (struct phi_weights){.options = o, .dtype = dtype};
}

void phi_weights_finish(struct phi_weights *w)
{
    if (w->compute.pool)
        phi_compute_deinit(&w->compute);
    w->options = NULL;
}

void phi_weights_deinit(struct phi_weights *w)
{
    phi_weights_finish(w);
    for (struct phi_weights_block *b = w->blocks; b; b = b->next)
        phi_pages_free(b->data, b->n_bytes);
    phi_arena_deinit(&w->arena);
    *w = (struct phi_weights){0};
}

/* ---------------------------------------------------------------- finding and checking */

bool phi_weights_has(const struct phi_weights *w, bool fallback, const char *fmt, ...)
{
    char name[MAX_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (!w->options->weights)
        return fallback;
    return phi_safetensors_find(w->options->weights, phi_str_from(name)) != NULL;
}

static bool float_dtype(enum phi_st_dtype t, enum phi_dtype *out)
{
    switch (t) {
    case PHI_ST_F32:
        *out = PHI_FLOAT32;
        return true;
    case PHI_ST_F16:
        *out = PHI_FLOAT16;
        return true;
    case PHI_ST_BF16:
        *out = PHI_BFLOAT16;
        return true;
    default:
        return false;
    }
}

static void format_shape(char *out, size_t n, const size_t *shape, int n_dims)
{
    int used = snprintf(out, n, "[");
    for (int i = 0; i < n_dims && used > 0 && (size_t)used < n; i++)
        used += snprintf(out + used, n - (size_t)used, "%s%zu", i ? ", " : "", shape[i]);
    if (used > 0 && (size_t)used < n)
        snprintf(out + used, n - (size_t)used, "]");
}

enum phi_status phi_weights_find(const struct phi_weights *w, const char *name, size_t n_rows,
                                 size_t n_cols, const struct phi_tensor **out,
                                 struct phi_error *err)
{
    const struct phi_tensor *t = phi_safetensors_find(w->options->weights, phi_str_from(name));
    if (!t)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: missing from the checkpoint", name);
    const size_t want[2] = {n_rows, n_cols};
    const size_t *expected = n_rows ? want : want + 1;
    int n_dims = n_rows ? 2 : 1;
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++)
        same = t->shape[i] == expected[i];
    if (!same) {
        char found_text[200], expected_text[64];
        format_shape(found_text, sizeof found_text, t->shape, t->n_dims);
        format_shape(expected_text, sizeof expected_text, expected, n_dims);
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: shape %s, but config.json asks for %s",
                        t->file_name, name, found_text, expected_text);
    }
    *out = t;
    return PHI_OK;
}

enum phi_status phi_weights_float_dtype(const struct phi_tensor *t, enum phi_dtype *out,
                                        struct phi_error *err)
{
    if (float_dtype(t->dtype, out))
        return PHI_OK;
    return phi_fail(err, PHI_ERR_UNSUPPORTED,
                    "%s: %s: dtype %s; F32, F16 and BF16 can be computed with", t->file_name,
                    t->name.data, phi_st_dtype_name(t->dtype));
}

void *phi_weights_add_block(struct phi_weights *w, size_t n, size_t size)
{
    size_t n_bytes;
    if (!phi_size_mul(n, size, &n_bytes))
        return NULL;
    struct phi_weights_block *b = phi_arena_alloc(&w->arena, 1, sizeof *b);
    void *data = b ? phi_pages_alloc(n_bytes) : NULL;
    if (!data)
        return NULL;
    *b = (struct phi_weights_block){w->blocks, data, n_bytes};
    w->blocks = b;
    return data;
}

enum phi_status phi_weights_need_threads(struct phi_weights *w, size_t scratch_bytes,
                                         struct phi_error *err)
{
    if (w->compute.pool && w->compute.scratch_bytes >= scratch_bytes)
        return PHI_OK;
    if (w->compute.pool)
        phi_compute_deinit(&w->compute);
    return phi_compute_init(&w->compute, w->options->kernels, w->options->n_threads, scratch_bytes,
                            err);
}

void phi_weights_report(struct phi_weights *w, const char *stage, uint64_t done_bytes)
{
    const struct phi_net_options *o = w->options;
    uint64_t total = o->weights ? phi_safetensors_file_bytes(o->weights) : 0;
    if (o->progress)
        o->progress(o->progress_context, stage, done_bytes, total);
}

/* ---------------------------------------------------------------- conversion */

static bool must_convert(enum phi_dtype file, enum phi_dtype run)
{
    return (run == PHI_BFLOAT16 && file != PHI_BFLOAT16) ||
           (run == PHI_FLOAT16 && file == PHI_FLOAT32);
}

struct conversion {
    struct phi_compute *compute;
    const struct phi_matrix *from;
    enum phi_dtype dtype;
    uint16_t *to; /* [n_rows, n_cols] */
};

static void convert_rows(void *context, size_t item, int thread)
{
    const struct conversion *v = context;
    const struct phi_kernels *k = v->compute->kernels;
    float *row = phi_compute_scratch(v->compute, thread);
    size_t n = v->from->n_cols, end = phi_size_min((item + 1) * ROWS_PER_ITEM, v->from->n_rows);
    for (size_t r = item * ROWS_PER_ITEM; r < end; r++) {
        phi_matrix_row(k, v->from, r, row);
        if (v->dtype == PHI_BFLOAT16)
            k->to_bf16(v->to + r * n, row, n);
        else
            k->to_f16(v->to + r * n, row, n);
    }
}

static enum phi_status convert_data(struct phi_weights *w, struct phi_matrix *m, size_t n_elements,
                                    const char *name, struct phi_error *err)
{
    PHI_TRY(phi_weights_need_threads(w, m->n_cols * sizeof(float), err));
    struct conversion v = {&w->compute, m, w->dtype, phi_weights_add_block(w, n_elements, 2)};
    if (!v.to)
        return phi_fail_memory(err, name, n_elements * 2);
    phi_compute_each(&w->compute, phi_size_ceil_div(m->n_rows, ROWS_PER_ITEM), convert_rows, &v);
    m->data = v.to;
    return PHI_OK;
}

static enum phi_status convert(struct phi_weights *w, struct phi_matrix *m, const char *name,
                               struct phi_error *err)
{
    size_t n_elements = m->n_rows * m->n_cols;
    if (!w->options->count_only)
        PHI_TRY(convert_data(w, m, n_elements, name, err));
    m->dtype = w->dtype;
    w->converted_bytes += n_elements * 2;
    phi_weights_report(w, "converting", w->converted_bytes);
    return PHI_OK;
}

/* ---------------------------------------------------------------- dummy weights */

static uint64_t mix(uint64_t x) /* SplitMix64's output function */
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

static uint64_t hash_name(uint64_t seed, const char *name)
{
    uint64_t h = mix(seed + 0x9E3779B97F4A7C15ull);
    for (const char *p = name; *p; p++)
        h = mix(h ^ (unsigned char)*p);
    return h;
}

/* Uniform with the standard deviation 0.02 of Phi's initializer_range. */
static float dummy_value(uint64_t key, size_t i)
{
    int32_t u = (int32_t)(mix(key + i * 0x9E3779B97F4A7C15ull) >> 40) - (1 << 23);
    return (float)u * (0.034641016f / (1 << 23));
}

struct dummy {
    struct phi_compute *compute;
    uint64_t key;
    size_t n;
    enum phi_dtype dtype;
    void *to;
};

static void dummy_chunk(void *context, size_t item, int thread)
{
    const struct dummy *d = context;
    const struct phi_kernels *k = d->compute->kernels;
    float *values = phi_compute_scratch(d->compute, thread);
    size_t begin = item * DUMMY_CHUNK, n = phi_size_min(DUMMY_CHUNK, d->n - begin);
    for (size_t i = 0; i < n; i++)
        values[i] = dummy_value(d->key, begin + i);
    if (d->dtype == PHI_BFLOAT16)
        k->to_bf16((uint16_t *)d->to + begin, values, n);
    else if (d->dtype == PHI_FLOAT16)
        k->to_f16((uint16_t *)d->to + begin, values, n);
    else
        memcpy((float *)d->to + begin, values, n * sizeof *values);
}

static enum phi_status dummy_matrix(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                    size_t n_cols, const char *name, struct phi_error *err)
{
    size_t n, bytes = phi_dtype_bytes(w->dtype);
    if (!phi_size_mul(n_rows, n_cols, &n))
        return phi_fail_memory(err, name, SIZE_MAX);
    PHI_TRY(phi_weights_need_threads(w, DUMMY_CHUNK * sizeof(float), err));
    struct dummy d = {&w->compute, hash_name(w->options->seed, name), n, w->dtype,
                      phi_weights_add_block(w, n, bytes)};
    if (!d.to)
        return phi_fail_memory(err, name, n * bytes);
    phi_compute_each(&w->compute, phi_size_ceil_div(n, DUMMY_CHUNK), dummy_chunk, &d);
    *out = (struct phi_matrix){.data = d.to, .dtype = w->dtype, .n_rows = n_rows, .n_cols = n_cols};
    w->converted_bytes += n * bytes;
    phi_weights_report(w, "filling", w->converted_bytes);
    return PHI_OK;
}

static void dummy_vector(const struct phi_weights *w, float *out, size_t n, const char *name)
{
    struct phi_str s = phi_str_from(name);
    bool scale = phi_str_ends_with(s, PHI_STR("norm.weight"));
    uint64_t key = hash_name(w->options->seed, name);
    for (size_t i = 0; i < n; i++)
        out[i] = (scale ? 1.0f : 0.0f) + dummy_value(key, i);
}

/* ---------------------------------------------------------------- binding */

/* Whether matrices are random ones, and held in memory. */
static bool is_dummy(const struct phi_weights *w)
{
    return !w->options->weights && !w->options->count_only;
}

/* As a file would have it that is in config.json's dtype. */
static void count_matrix(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                         size_t n_cols)
{
    enum phi_dtype dtype = w->options->config->dtype;
    w->file_dtype = dtype == PHI_AUTO ? w->dtype : dtype;
    *out = (struct phi_matrix){.dtype = w->file_dtype, .n_rows = n_rows, .n_cols = n_cols};
}

/* As it is mapped, random, or only counted. */
static enum phi_status bind_matrix(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                   size_t n_cols, const char *name, struct phi_error *err)
{
    w->n_parameters += (uint64_t)n_rows * n_cols;
    if (w->options->count_only) {
        count_matrix(w, out, n_rows, n_cols);
        return PHI_OK;
    }
    if (is_dummy(w)) {
        w->file_dtype = w->dtype;
        return dummy_matrix(w, out, n_rows, n_cols, name, err);
    }
    const struct phi_tensor *t;
    enum phi_dtype dtype;
    PHI_TRY(phi_weights_find(w, name, n_rows, n_cols, &t, err));
    PHI_TRY(phi_weights_float_dtype(t, &dtype, err));
    if (w->file_dtype == PHI_AUTO)
        w->file_dtype = dtype;
    *out = (struct phi_matrix){.data = t->data, .dtype = dtype, .n_rows = n_rows, .n_cols = n_cols};
    return PHI_OK;
}

static enum phi_status narrow(struct phi_weights *w, struct phi_matrix *m, const char *name,
                              struct phi_error *err)
{
    if (is_dummy(w))
        return PHI_OK;
    if (must_convert(m->dtype, w->dtype))
        return convert(w, m, name, err);
    w->mapped_bytes += m->n_rows * phi_matrix_row_bytes(m);
    return PHI_OK;
}

enum phi_status phi_weights_matrix(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                   size_t n_cols, struct phi_error *err, const char *fmt, ...)
{
    char name[MAX_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    PHI_TRY(bind_matrix(w, out, n_rows, n_cols, name, err));
    return narrow(w, out, name, err);
}

/* Random values are only needed until they are quantised. */
static void drop_dummy(struct phi_weights *w, struct phi_weights_block *block)
{
    if (!is_dummy(w))
        return;
    phi_pages_free(block->data, block->n_bytes);
    block->data = NULL;
    w->converted_bytes -= block->n_bytes;
}

enum phi_status phi_weights_linear(struct phi_weights *w, struct phi_matrix *out, size_t n_rows,
                                   size_t n_cols, enum phi_quantization quant, const char *stem,
                                   struct phi_error *err)
{
    char name[MAX_NAME];
    bool found = false;
    PHI_TRY(phi_weights_integers(w, out, n_rows, n_cols, stem, &found, err));
    if (found)
        return PHI_OK;
    snprintf(name, sizeof name, "%s.weight", stem);
    PHI_TRY(bind_matrix(w, out, n_rows, n_cols, name, err));
    if (!quant)
        return narrow(w, out, name, err);
    struct phi_weights_block *floats = w->blocks;
    PHI_TRY(phi_weights_quantize(w, out, quant, stem, err));
    drop_dummy(w, floats);
    return PHI_OK;
}

enum phi_status phi_weights_vector(struct phi_weights *w, const float **out, size_t n,
                                   struct phi_error *err, const char *fmt, ...)
{
    char name[MAX_NAME];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    w->n_parameters += n;
    float *values = phi_arena_alloc(&w->arena, n, sizeof *values);
    if (!values)
        return phi_fail_memory(err, name, n * sizeof *values);
    *out = values;
    if (!w->options->weights) {
        dummy_vector(w, values, n, name);
        return PHI_OK;
    }
    const struct phi_tensor *t;
    struct phi_matrix row = {.n_rows = 1, .n_cols = n};
    PHI_TRY(phi_weights_find(w, name, 0, n, &t, err));
    PHI_TRY(phi_weights_float_dtype(t, &row.dtype, err));
    row.data = t->data;
    phi_matrix_row(w->options->kernels, &row, 0, values);
    return PHI_OK;
}
