/* reference.c: see reference.h. */
#include "cli/accuracy/reference.h"
#include "base/alloc.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

/* ---------------------------------------------------------------- numbers of a file */

static uint64_t load_bits(const void *data, size_t index, size_t n_bytes)
{
    const unsigned char *bytes = (const unsigned char *)data + index * n_bytes;
    uint64_t bits = 0;
    for (size_t i = 0; i < n_bytes; i++)
        bits |= (uint64_t)bytes[i] << 8 * i;
    return bits;
}

static double float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double half_of(uint32_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    if (exponent == 31)
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static bool is_float(enum phi_st_dtype t)
{
    return t == PHI_ST_F32 || t == PHI_ST_F16 || t == PHI_ST_BF16 || t == PHI_ST_F64;
}

bool reference_is_matrix(const struct phi_tensor *t, size_t n_rows, size_t n_cols)
{
    return is_float(t->dtype) && t->n_dims == 2 && t->shape[0] == n_rows && t->shape[1] == n_cols;
}

void reference_row(const struct phi_tensor *t, size_t row, double *out)
{
    size_t n = t->shape[1], size = phi_st_dtype_bytes(t->dtype);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = load_bits(t->data, row * n + i, size);
        switch (t->dtype) {
        case PHI_ST_F64:
            out[i] = double_of(bits);
            break;
        case PHI_ST_F16:
            out[i] = half_of((uint32_t)bits);
            break;
        case PHI_ST_BF16:
            out[i] = float_of((uint32_t)bits << 16);
            break;
        default:
            out[i] = float_of((uint32_t)bits);
        }
    }
}

/* ---------------------------------------------------------------- tensors by name */

const struct phi_tensor *reference_find(const struct reference *r, const struct reference_prompt *p,
                                        const char *name)
{
    char full[96];
    if (p->number < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "%d.%s", p->number, name);
    return phi_safetensors_find(r->file, phi_str_from(full));
}

static struct phi_str text_of(const struct phi_tensor *t)
{
    if (!t || t->dtype != PHI_ST_U8)
        return (struct phi_str){"", 0};
    return (struct phi_str){t->data, t->n_bytes};
}

static enum phi_status fail_tensor(const struct reference *r, const struct phi_tensor *t,
                                   const char *expected, struct phi_error *err)
{
    return phi_fail(err, PHI_ERR_FORMAT, "%s: %s: expected %s", r->path, t->name.data, expected);
}

static enum phi_status read_ids(const struct reference *r, const struct phi_tensor *t,
                                size_t vocab_size, struct phi_ids *out, struct phi_error *err)
{
    if ((t->dtype != PHI_ST_I32 && t->dtype != PHI_ST_I64) || t->n_dims != 1 || t->shape[0] == 0)
        return fail_tensor(r, t, "int32 or int64 [n]", err);
    size_t size = phi_st_dtype_bytes(t->dtype);
    for (size_t i = 0; i < t->shape[0]; i++) {
        uint64_t id = load_bits(t->data, i, size);
        if (id >= vocab_size)
            return phi_fail(err, PHI_ERR_INVALID,
                            "%s: %s[%zu] is no id of this model's vocabulary of %zu", r->path,
                            t->name.data, i, vocab_size);
        phi_ids_append(out, (int32_t)id);
    }
    return out->failed ? phi_fail_memory(err, "prompt ids", t->n_bytes) : PHI_OK;
}

static enum phi_status read_prompt(struct reference *r, struct reference_prompt *p,
                                   size_t vocab_size, struct phi_error *err)
{
    const struct phi_tensor *ids = reference_find(r, p, "input_ids");
    PHI_TRY(read_ids(r, ids, vocab_size, &p->ids, err));
    p->logits = reference_find(r, p, "logits");
    if (!p->logits)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: %s is there, but no logits of it", r->path,
                        ids->name.data);
    if (!is_float(p->logits->dtype) || p->logits->n_dims != 2 || p->logits->shape[0] != p->ids.n)
        return fail_tensor(r, p->logits, "floats, one row for each id", err);
    if (p->logits->shape[1] != vocab_size)
        return phi_fail(err, PHI_ERR_INVALID,
                        "%s: %s has %zu columns, this model's vocabulary is %zu: a reference of "
                        "another model",
                        r->path, p->logits->name.data, p->logits->shape[1], vocab_size);
    p->text = text_of(reference_find(r, p, "text"));
    r->has_layers = r->has_layers || reference_find(r, p, "hidden.0");
    r->n_positions += p->ids.n;
    r->n_longest = p->ids.n > r->n_longest ? p->ids.n : r->n_longest;
    return PHI_OK;
}

/* How many prompts there are: 0, 1, ... without a gap, or one without a number. */
static size_t count_prompts(const struct reference *r, int *first)
{
    struct reference_prompt p = {.number = -1};
    *first = -1;
    if (reference_find(r, &p, "input_ids"))
        return 1;
    *first = 0;
    while (p.number = p.number + 1, p.number < INT_MAX && reference_find(r, &p, "input_ids"))
        ;
    return (size_t)p.number;
}

enum phi_status reference_open(struct reference *r, const char *path, size_t vocab_size,
                               struct phi_error *err)
{
    int first;
    *r = (struct reference){.path = path};
    PHI_TRY(phi_safetensors_open_file(path, &r->file, err));
    size_t n = count_prompts(r, &first);
    if (n == 0)
        return phi_fail(err, PHI_ERR_FORMAT,
                        "%s: neither input_ids nor 0.input_ids is in it: not a reference", path);
    r->prompts = phi_calloc(n, sizeof *r->prompts);
    if (!r->prompts)
        return phi_fail_memory(err, "prompts", n * sizeof *r->prompts);
    r->about = text_of(phi_safetensors_find(r->file, PHI_STR("about")));
    for (r->n_prompts = 0; r->n_prompts < n;) {
        struct reference_prompt *p = &r->prompts[r->n_prompts];
        p->number = first < 0 ? -1 : (int)r->n_prompts;
        r->n_prompts++;
        PHI_TRY(read_prompt(r, p, vocab_size, err));
    }
    return PHI_OK;
}

void reference_close(struct reference *r)
{
    for (size_t i = 0; i < r->n_prompts; i++)
        phi_ids_deinit(&r->prompts[i].ids);
    phi_free(r->prompts);
    phi_safetensors_close(r->file);
}
