/* x86_segments.h: the tree in which the sums of a product's segments meet (NUMERICS.md 3): as soon
 * as two subtrees of one size are there they become one. Private to the x86 units. */
#ifndef PHI_KERNELS_X86_SEGMENTS_H
#define PHI_KERNELS_X86_SEGMENTS_H

#include "kernels/x86_vec.h"

enum { TREE_ROOT = 3, TREE_LEVELS = TREE_ROOT + 1 }; /* 2^3 = PHI_N_SEGMENTS */

/* Takes in the n sums of segment `segment`, which come in their order; they are used up. n is a
 * multiple of four. levels [TREE_LEVELS, n]: level i holds 2^i segments, level TREE_ROOT all of
 * them at the end. */
PHI_INLINE void tree_add(float *levels, size_t segment, float *sums, const size_t n)
{
    for (; segment & 1; segment >>= 1, levels += n) {
        size_t i = 0;
        for (; i + VEC_FLOATS <= n; i += VEC_FLOATS)
            vec_store(sums + i, vec_add(vec_load(levels + i), vec_load(sums + i)));
        for (; i < n; i += 4)
            _mm_storeu_ps(sums + i, _mm_add_ps(_mm_loadu_ps(levels + i), _mm_loadu_ps(sums + i)));
    }
    memcpy(levels, sums, n * sizeof *sums);
}

/* Columns of segment `segment` and where they begin. */
struct segment {
    size_t begin, n;
};

PHI_INLINE struct segment segment_at(const struct phi_matmul *a, size_t segment)
{
    const size_t begin = segment * a->segment_k < a->k ? segment * a->segment_k : a->k;
    const size_t left = a->k - begin;
    return (struct segment){begin, left < a->segment_k ? left : a->segment_k};
}

#endif
