/* row.c: see row.h. */
#include "engine/row.h"
#include "base/alloc.h"
#include "base/size.h"

#include <float.h>
#include <math.h>
#include <string.h>

static size_t n_blocks(size_t n)
{
    return phi_size_ceil_div(n, PHI_ROW_BLOCK);
}

size_t phi_row_bytes(size_t n)
{
    return n_blocks(n) * PHI_ROW_LANES * sizeof(float) + 2 * n * sizeof(struct phi_candidate);
}

enum phi_status phi_row_init(struct phi_row *row, size_t n, struct phi_error *err)
{
    *row = (struct phi_row){.n = n};
    row->tops = phi_alloc(n_blocks(n), sizeof *row->tops);
    row->found = phi_alloc(n, sizeof *row->found);
    row->sort_room = phi_alloc(n, sizeof *row->sort_room);
    if (row->tops && row->found && row->sort_room)
        return PHI_OK;
    phi_row_deinit(row);
    return phi_fail_memory(err, "a row of logits", phi_row_bytes(n));
}

void phi_row_deinit(struct phi_row *row)
{
    phi_free(row->tops);
    phi_free(row->found);
    phi_free(row->sort_room);
    *row = (struct phi_row){0};
}

/* ---------------------------------------------------------------- one pass */

/* The lanes' maxima of a block of n, and the sum of x - x, which is 0 for a finite x, else NaN, which no
 * addition removes. The arrays are local, so that they can live in registers. */
static float scan_block(const float *x, size_t n, float out[PHI_ROW_LANES])
{
    float top[PHI_ROW_LANES], odd[PHI_ROW_LANES] = {0};
    size_t i = 0;
    for (int l = 0; l < PHI_ROW_LANES; l++)
        top[l] = -INFINITY;
    for (; i + PHI_ROW_LANES <= n; i += PHI_ROW_LANES)
        for (int l = 0; l < PHI_ROW_LANES; l++) {
            top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
            odd[l] += x[i + l] - x[i + l];
        }
    for (int l = 0; i < n; i++, l++) {
        top[l] = x[i] > top[l] ? x[i] : top[l];
        odd[l] += x[i] - x[i];
    }
    for (int l = 1; l < PHI_ROW_LANES; l++)
        odd[0] += odd[l];
    memcpy(out, top, sizeof top);
    return odd[0];
}

static float top_of(const struct phi_row *row, size_t b)
{
    float top = row->tops[b][0];
    for (int l = 1; l < PHI_ROW_LANES; l++)
        top = row->tops[b][l] > top ? row->tops[b][l] : top;
    return top;
}

bool phi_row_scan(struct phi_row *row, const float *x)
{
    float odd = 0;
    row->x = x;
    row->max = -INFINITY;
    for (size_t b = 0, i = 0; i < row->n; b++, i += PHI_ROW_BLOCK) {
        odd += scan_block(x + i, phi_size_min(PHI_ROW_BLOCK, row->n - i), row->tops[b]);
        row->max = fmaxf(row->max, top_of(row, b));
    }
    return odd == 0;
}

int32_t phi_row_argmax(const struct phi_row *row)
{
    size_t b = 0, i;
    while (b + 1 < n_blocks(row->n) && top_of(row, b) != row->max)
        b++;
    for (i = b * PHI_ROW_BLOCK; i + 1 < row->n && row->x[i] != row->max;)
        i++;
    return (int32_t)i;
}

int32_t phi_row_rank(const struct phi_row *row, int32_t id)
{
    const float value = row->x[id];
    int32_t rank = 1;
    for (size_t b = 0; b < n_blocks(row->n); b++) {
        size_t begin = b * PHI_ROW_BLOCK, end = phi_size_min(begin + PHI_ROW_BLOCK, row->n);
        if (top_of(row, b) < value)
            continue;
        for (size_t i = begin; i < end; i++)
            rank += (row->x[i] > value) | ((row->x[i] == value) & (i < (size_t)id));
    }
    return rank;
}

/* ---------------------------------------------------------------- the greatest */

bool phi_row_block_reaches(const struct phi_row *row, size_t b, float least)
{
    return top_of(row, b) >= least;
}

/* Stable, by key, in passes of eight bits, without those in which all keys are alike. */
static void radix_sort(struct phi_row *row, size_t n)
{
    for (int shift = 0; n > 0 && shift < 32; shift += 8) {
        struct phi_candidate *from = row->found, *to = row->sort_room;
        size_t start[257] = {0};
        for (size_t i = 0; i < n; i++)
            start[(from[i].key >> shift & 255) + 1]++;
        if (start[(from[0].key >> shift & 255) + 1] == n)
            continue;
        for (int d = 0; d < 256; d++)
            start[d + 1] += start[d];
        for (size_t i = 0; i < n; i++)
            to[start[from[i].key >> shift & 255]++] = from[i];
        row->found = to;
        row->sort_room = from;
    }
}

size_t phi_row_between(struct phi_row *row, uint32_t first, uint32_t last)
{
    size_t n = 0;
    for (size_t b = 0; b < n_blocks(row->n); b++) {
        size_t begin = b * PHI_ROW_BLOCK, end = phi_size_min(begin + PHI_ROW_BLOCK, row->n);
        if (!phi_row_block_reaches(row, b, phi_row_value(last)))
            continue;
        for (size_t i = begin; i < end; i++) {
            uint32_t key = phi_row_key(row->x[i]);
            if (key - first <= last - first) /* the only branch, seldom taken */
                row->found[n++] = (struct phi_candidate){key, (int32_t)i};
        }
    }
    radix_sort(row, n);
    return n;
}

/* k entries are not less than the k-th greatest of the lanes' maxima. */
static uint32_t bound_of(struct phi_row *row, size_t k)
{
    const float *tops = row->tops[0];
    size_t n = n_blocks(row->n) * PHI_ROW_LANES;
    if (k > n || n > row->n)
        return UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        row->found[i] = (struct phi_candidate){phi_row_key(tops[i]), 0};
    radix_sort(row, n);
    return row->found[k - 1].key;
}

size_t phi_row_best(struct phi_row *row, size_t k)
{
    uint32_t lowest = phi_row_key(-FLT_MAX), bound = bound_of(row, k);
    return phi_row_between(row, 0, bound < lowest ? bound : lowest);
}
