/* linear.c: y = x W^T + b over the threads. A matrix is cut into strips of up to PHI_STRIP_ROWS
 * rows, the items of one parallel stage; what all strips have in common is worked out before it.
 * Where the order of the sums asks for segments of K, the kernel takes them in one call or is
 * called for each. */
#include "base/size.h"
#include "kernels/ops.h"

#include <assert.h>
#include <string.h>

/* Columns of one segment, in whole units. */
static size_t segment_cols(size_t n_in, size_t unit)
{
    return unit * phi_size_ceil_div(n_in, unit * PHI_N_SEGMENTS);
}

enum {
    FLOAT_UNIT = 16,
    /* Rows up to here: a kernel that can takes all segments of a strip in one call. The strips of
     * longer ones do not stay in the second-level cache as a whole. */
    WHOLE_STRIP_K = 8192,
};

/* The least common multiple of PHI_QUANT_STEP and the group. */
static size_t quant_unit(size_t group)
{
    size_t a = PHI_QUANT_STEP, b = group;
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return PHI_QUANT_STEP / a * group;
}

/* What a kernel needs for one strip, before the sums of segments. */
static size_t strip_bytes(size_t n_in)
{
    size_t bytes = phi_size_max(phi_matmul_scratch_bytes(n_in), phi_quant_scratch_bytes(n_in));
    return (bytes + 63) / 64 * 64;
}

/* The sums of all segments. */
static size_t partial_bytes(bool segmented, size_t n_tokens)
{
    return segmented ? sizeof(float) * PHI_N_SEGMENTS * PHI_STRIP_ROWS * n_tokens : 0;
}

/* Interleaved activations come last, in the scratch of thread 0. */
size_t phi_op_linear_scratch_bytes(size_t n_in, bool segmented, size_t n_tokens)
{
    size_t n_cols = segmented ? PHI_N_SEGMENTS * segment_cols(n_in, FLOAT_UNIT) : n_in;
    return strip_bytes(n_in) + partial_bytes(segmented, n_tokens) +
           phi_interleaved_bytes(phi_size_min(n_tokens, PHI_FEW_TOKENS), n_cols);
}

typedef void (*matmul_fn)(const struct phi_matmul *a);

static matmul_fn pick_matmul(const struct phi_kernels *k, enum phi_dtype w, enum phi_dtype x)
{
    if (x == PHI_BFLOAT16) {
        assert(w == PHI_BFLOAT16);
        return k->matmul_bf16_pairs;
    }
    return w == PHI_FLOAT32 ? k->matmul_f32 : w == PHI_BFLOAT16 ? k->matmul_bf16 : k->matmul_f16;
}

/* What the strips of a part have in common, so that a strip of few tokens, the work of a
 * microsecond, does not begin with divisions. */
struct part {
    const struct phi_matrix *matrix;
    size_t n_strips, row_bytes, scale_bytes;
    matmul_fn matmul;              /* of a float form */
    struct phi_matmul call;        /* all but what tells a strip from others */
    struct phi_quant_matmul quant; /* the same of the integer forms */
};

struct linear {
    struct phi_compute *c;
    const struct phi_linear *w;
    const struct phi_acts *x;
    size_t n_tokens;
    const void *interleaved; /* the rows of x for all strips; NULL = not wanted */
    float *y;
    size_t ld_y;
    size_t segment_cols; /* 0 = not segmented */
    bool joins_segments; /* the kernel does it, not a loop over them here */
    struct part parts[PHI_LINEAR_MAX_PARTS];
};

/* The strips that the segments of K make: [PHI_N_SEGMENTS, n_tokens, PHI_STRIP_ROWS]. */
struct segments {
    float *sums;
    size_t plane; /* elements of one segment */
    size_t n_cols;
};

static struct segments make_segments(void *scratch, size_t n_in, size_t n_tokens, size_t n_cols)
{
    char *behind = (char *)scratch + strip_bytes(n_in);
    return (struct segments){(float *)behind, n_tokens * PHI_STRIP_ROWS, n_cols};
}

/* Here and below, loops over whole strips: a compiler makes vectors of a length that it knows. */
static void copy_strip(float *to, const float *from, size_t n_rows)
{
    if (n_rows == PHI_STRIP_ROWS)
        memcpy(to, from, PHI_STRIP_ROWS * sizeof *to);
    else
        memcpy(to, from, n_rows * sizeof *to);
}

static void add_bias(float *y, size_t ld_y, size_t n_tokens, const float *bias, size_t n_rows)
{
    float b[PHI_STRIP_ROWS] = {0}, sum[PHI_STRIP_ROWS] = {0};
    copy_strip(b, bias, n_rows);
    for (size_t m = 0; m < n_tokens; m++) {
        copy_strip(sum, y + m * ld_y, n_rows);
        for (size_t n = 0; n < PHI_STRIP_ROWS; n++)
            sum[n] += b[n];
        copy_strip(y + m * ld_y, sum, n_rows);
    }
}

/* y = the tree over the segments' sums, times the token's scale where there is one. */
static void join_segments(const struct segments *s, size_t n_rows, size_t n_tokens,
                          const float *x_scale, float *y, size_t ld_y)
{
    const size_t plane = s->plane;
    for (size_t m = 0; m < n_tokens; m++) {
        const float *p = s->sums + m * PHI_STRIP_ROWS, scale = x_scale ? x_scale[m] : 1.0f;
        float sum[PHI_STRIP_ROWS]; /* those beyond n_rows mean nothing */
        for (size_t n = 0; n < PHI_STRIP_ROWS; n++, p++)
            sum[n] = (((p[0] + p[plane]) + (p[2 * plane] + p[3 * plane])) +
                      ((p[4 * plane] + p[5 * plane]) + (p[6 * plane] + p[7 * plane]))) *
                     scale;
        copy_strip(y + m * ld_y, sum, n_rows);
    }
}

/* Empty segments are +0. */
static void segmented_strip(const struct linear *l, const struct part *part,
                            const struct phi_matmul *a)
{
    const struct segments s = make_segments(a->scratch, a->k, a->n_tokens, l->segment_cols);
    const size_t w_bytes = phi_dtype_bytes(part->matrix->dtype);
    const size_t x_bytes = phi_dtype_bytes(l->x->dtype);
    const size_t interleaved_bytes = phi_interleaved_bytes(a->n_tokens, s.n_cols);
    struct phi_matmul one = *a;
    one.ld_y = PHI_STRIP_ROWS;
    for (size_t i = 0; i < PHI_N_SEGMENTS; i++) {
        size_t begin = phi_size_min(i * s.n_cols, a->k);
        one.w = (const char *)a->w + begin * w_bytes;
        one.x = (const char *)a->x + begin * x_bytes;
        if (a->x_interleaved)
            one.x_interleaved = (const char *)a->x_interleaved + i * interleaved_bytes;
        one.k = phi_size_min(s.n_cols, a->k - begin);
        one.y = s.sums + i * s.plane;
        if (one.k)
            part->matmul(&one);
        else
            memset(one.y, 0, s.plane * sizeof(float));
    }
    join_segments(&s, a->n_rows, a->n_tokens, NULL, a->y, a->ld_y);
}

/* Segments that are not there are +0. */
static void segmented_quant_strip(const struct linear *l, const struct phi_quant_matmul *a)
{
    const struct segments s = make_segments(a->scratch, a->k, a->n_tokens, l->segment_cols);
    const size_t n_segments = phi_size_ceil_div(a->k, s.n_cols);
    struct phi_quant_matmul parts = *a;
    parts.segment = s.n_cols;
    parts.plane = s.plane;
    parts.y = s.sums;
    parts.ld_y = PHI_STRIP_ROWS;
    parts.x_scale = NULL;
    l->c->kernels->matmul_w4(&parts);
    memset(s.sums + n_segments * s.plane, 0,
           (PHI_N_SEGMENTS - n_segments) * s.plane * sizeof(float));
    join_segments(&s, a->n_rows, a->n_tokens, a->x_scale, a->y, a->ld_y);
}

static void float_strip(const struct linear *l, const struct part *part, size_t row, float *y,
                        void *scratch)
{
    struct phi_matmul a = part->call;
    a.w = (const char *)part->matrix->data + row * part->row_bytes;
    a.n_rows = phi_size_min(PHI_STRIP_ROWS, part->matrix->n_rows - row);
    a.y = y;
    a.scratch = scratch;
    if (l->segment_cols && !l->joins_segments)
        segmented_strip(l, part, &a);
    else
        part->matmul(&a);
}

static void quant_strip(const struct linear *l, const struct part *part, size_t row, float *y,
                        void *scratch)
{
    struct phi_quant_matmul a = part->quant;
    a.w = (const char *)part->matrix->data + row * part->row_bytes;
    a.n_rows = phi_size_min(PHI_STRIP_ROWS, part->matrix->n_rows - row);
    a.w_scale = (const char *)part->matrix->scales + row * part->scale_bytes;
    a.y = y;
    a.scratch = scratch;
    if (part->matrix->quant == PHI_W8A8) /* exact sums have no order to keep */
        l->c->kernels->matmul_w8(&a);
    else if (l->segment_cols)
        segmented_quant_strip(l, &a);
    else
        l->c->kernels->matmul_w4(&a);
}

/* Item = one strip of up to 16 weight rows, counted through all parts. */
static void linear_strip(void *context, size_t item, int thread)
{
    const struct linear *l = context;
    const struct part *part = l->parts;
    float *y = l->y;
    for (; item >= part->n_strips; part++) {
        item -= part->n_strips;
        y += part->matrix->n_rows;
    }
    const size_t row = item * PHI_STRIP_ROWS;
    const float *bias = l->w->bias[part - l->parts];
    y += row;
    (part->matrix->quant ? quant_strip : float_strip)(l, part, row, y,
                                                      phi_compute_scratch(l->c, thread));
    if (bias)
        add_bias(y, l->ld_y, l->n_tokens, bias + row,
                 phi_size_min(PHI_STRIP_ROWS, part->matrix->n_rows - row));
}

/* The activations in the table's own order where it has one for so few; each segment by itself. */
static const void *interleave(const struct linear *l)
{
    const struct phi_linear *w = l->w;
    const struct phi_kernels *k = l->c->kernels;
    const bool pairs = l->x->dtype == PHI_BFLOAT16;
    const phi_interleave_fn fn = pairs ? k->interleave_pairs : k->interleave_f32;
    const size_t n = l->n_tokens;
    if (!fn || l->x->quant || n < 2 || n > PHI_FEW_TOKENS)
        return NULL;
    char *to = (char *)phi_compute_scratch(l->c, 0) + strip_bytes(w->n_in) +
               partial_bytes(w->segmented, n);
    const size_t n_cols = l->segment_cols ? l->segment_cols : w->n_in;
    const size_t part_bytes = phi_interleaved_bytes(n, n_cols);
    for (size_t begin = 0, i = 0; begin < w->n_in; begin += n_cols, i++) {
        const char *x = (const char *)l->x->data + begin * phi_dtype_bytes(l->x->dtype);
        fn(to + i * part_bytes, x, l->x->ld, n, phi_size_min(n_cols, w->n_in - begin));
    }
    return to;
}

static struct part plan_part(const struct linear *l, const struct phi_matrix *m)
{
    struct part part = {
        .matrix = m,
        .n_strips = phi_size_ceil_div(m->n_rows, PHI_STRIP_ROWS),
        .row_bytes = phi_matrix_row_bytes(m),
        .scale_bytes = phi_matrix_scale_bytes(m),
    };
    assert(l->x->quant == m->quant);
    if (!m->quant) {
        part.matmul = pick_matmul(l->c->kernels, m->dtype, l->x->dtype);
        part.call = (struct phi_matmul){
            .ld_w = m->n_cols,
            .x = l->x->data,
            .ld_x = l->x->ld,
            .x_interleaved = l->interleaved,
            .n_tokens = l->n_tokens,
            .k = l->w->n_in,
            .ld_y = l->ld_y,
            .segment_k = l->joins_segments ? l->segment_cols : 0,
        };
        return part;
    }
    part.quant = (struct phi_quant_matmul){
        .row_bytes = part.row_bytes,
        .ld_scale = m->group ? m->n_cols / m->group : 1,
        .scale_dtype = m->scale_dtype,
        .group = m->group,
        .x = l->x->data,
        .ld_x = l->x->ld,
        .x_sums = l->x->sums,
        .ld_sums = l->x->ld_sums,
        .x_scale = l->x->scales,
        .n_tokens = l->n_tokens,
        .k = l->w->n_in,
        .ld_y = l->ld_y,
    };
    return part;
}

/* Columns of a segment of K; 0 where the order of the sums asks for none. */
static size_t plan_segments(const struct phi_linear *w)
{
    const struct phi_matrix *m = &w->parts[0];
    if (!w->segmented || m->quant == PHI_W8A8)
        return 0;
    return segment_cols(w->n_in, m->quant ? quant_unit(m->group) : FLOAT_UNIT);
}

void phi_op_linear(struct phi_compute *c, const struct phi_linear *w, const struct phi_acts *x,
                   size_t n_tokens, float *y, size_t ld_y)
{
    struct linear l = {.c = c,
                       .w = w,
                       .x = x,
                       .n_tokens = n_tokens,
                       .y = y,
                       .ld_y = ld_y,
                       .segment_cols = plan_segments(w)};
    size_t n_strips = 0;
    if (n_tokens == 0)
        return;
    assert(phi_op_linear_scratch_bytes(w->n_in, w->segmented, n_tokens) <= c->scratch_bytes);
    l.joins_segments = c->kernels->joins_segments &&
                       (n_tokens == 1 || (n_tokens > PHI_FEW_TOKENS && w->n_in <= WHOLE_STRIP_K));
    l.interleaved = interleave(&l);
    for (int i = 0; i < w->n_parts; i++) {
        l.parts[i] = plan_part(&l, &w->parts[i]);
        n_strips += l.parts[i].n_strips;
    }
    phi_compute_each(c, n_strips, linear_strip, &l);
}
