/* row.h: a row of logits, and its greatest entries without sorting the others. One pass notes the
 * maxima of each block of 1024 entries, one for each of 32 lanes (entry i is in lane i mod 32); who looks
 * for great ones after that knows a bound for them and visits only the blocks that reach it. */
#ifndef PHI_ENGINE_ROW_H
#define PHI_ENGINE_ROW_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PHI_ROW_BLOCK = 1024, PHI_ROW_LANES = 32 };

struct phi_candidate {
    uint32_t key; /* falling entries as rising integers */
    int32_t id;
};

/* Buffers for one row of n entries after the other. */
struct phi_row {
    size_t n;
    const float *x; /* [n] the row scanned last, which holds still as long as it is asked about */
    float max;
    float (*tops)[PHI_ROW_LANES];    /* the maxima of each of its blocks */
    struct phi_candidate *found;     /* [n] by phi_row_best or phi_row_between */
    struct phi_candidate *sort_room; /* [n] */
};

size_t phi_row_bytes(size_t n);
enum phi_status phi_row_init(struct phi_row *row, size_t n, struct phi_error *err);
void phi_row_deinit(struct phi_row *row);

/* False when an entry is NaN or infinite. -INFINITY stands for one that is masked: it is never found
 * below. */
bool phi_row_scan(struct phi_row *row, const float *x);

/* The first entry equal to the maximum. */
int32_t phi_row_argmax(const struct phi_row *row);

/* The place of an entry in falling order, counted from 1; equal ones stand in the order of their ids. */
int32_t phi_row_rank(const struct phi_row *row, int32_t id);

/* Finds the greatest entries in falling order: at least k of them or all, and all that equal the last
 * one wanted. Returns their number. */
size_t phi_row_best(struct phi_row *row, size_t k);

/* The same with the entries whose keys are first..last. */
size_t phi_row_between(struct phi_row *row, uint32_t first, uint32_t last);

/* Whether the block of entries PHI_ROW_BLOCK * b, ... has one that is not less. */
bool phi_row_block_reaches(const struct phi_row *row, size_t b, float least);

/* The key of an entry, which both zeros share, and back. */
static inline uint32_t phi_row_key(float x)
{
    uint32_t bits;
    x = x + 0.0f;
    memcpy(&bits, &x, sizeof bits);
    return bits ^ (((bits >> 31) - 1) & INT32_MAX); /* all bits but the sign, unless it is set */
}

static inline float phi_row_value(uint32_t key)
{
    float x;
    key ^= ((key >> 31) - 1) & INT32_MAX;
    memcpy(&x, &key, sizeof x);
    return x;
}

#endif
