/* similarity.h: how alike two sequences of token ids are. */
#ifndef PHI_CLI_ALIGN_SIMILARITY_H
#define PHI_CLI_ALIGN_SIMILARITY_H

#include "base/buf.h"

struct similarity {
    size_t n_equal; /* tokens before the first difference */
    double edit;    /* 1 - edit distance / the longer length; Levenshtein 1966 */
    double rouge_l; /* F1 of the longest common subsequence; Lin 2004 */
};

/* Two empty sequences are alike. PHI_ERR_MEMORY. */
enum phi_status similarity_of(const struct phi_ids *a, const struct phi_ids *b,
                              struct similarity *out, struct phi_error *err);

/* The first index at which they differ, or where the shorter ends. */
size_t similarity_prefix(const struct phi_ids *a, const struct phi_ids *b);

#endif
