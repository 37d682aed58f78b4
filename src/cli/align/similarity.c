/* similarity.c: see similarity.h. Both measures fill their table row by row, so two rows suffice.
 */
#include "cli/align/similarity.h"
#include "base/alloc.h"
#include "base/size.h"

size_t similarity_prefix(const struct phi_ids *a, const struct phi_ids *b)
{
    size_t n = phi_size_min(a->n, b->n), i = 0;
    while (i < n && a->data[i] == b->data[i])
        i++;
    return i;
}

/* row[j]: edits that turn a's first i tokens into b's first j. */
static size_t edit_distance(const struct phi_ids *a, const struct phi_ids *b, size_t *row)
{
    for (size_t j = 0; j <= b->n; j++)
        row[j] = j;
    for (size_t i = 0; i < a->n; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b->n; j++) {
            size_t replaced = diagonal + (a->data[i] != b->data[j]);
            diagonal = row[j + 1];
            row[j + 1] = phi_size_min(replaced, 1 + phi_size_min(row[j], row[j + 1]));
        }
    }
    return row[b->n];
}

/* row[j]: the longest common subsequence of a's first i tokens and b's first j. */
static size_t common_length(const struct phi_ids *a, const struct phi_ids *b, size_t *row)
{
    for (size_t j = 0; j <= b->n; j++)
        row[j] = 0;
    for (size_t i = 0; i < a->n; i++) {
        size_t diagonal = 0;
        for (size_t j = 0; j < b->n; j++) {
            size_t longer =
                a->data[i] == b->data[j] ? diagonal + 1 : phi_size_max(row[j], row[j + 1]);
            diagonal = row[j + 1];
            row[j + 1] = longer;
        }
    }
    return row[b->n];
}

enum phi_status similarity_of(const struct phi_ids *a, const struct phi_ids *b,
                              struct similarity *out, struct phi_error *err)
{
    size_t longer = phi_size_max(a->n, b->n);
    *out = (struct similarity){.n_equal = similarity_prefix(a, b), .edit = 1, .rouge_l = 1};
    if (longer == 0)
        return PHI_OK;
    size_t *row = phi_alloc(b->n + 1, sizeof *row);
    if (!row)
        return phi_fail_memory(err, "a comparison", (b->n + 1) * sizeof *row);
    out->edit = 1 - (double)edit_distance(a, b, row) / (double)longer;
    out->rouge_l = 2.0 * (double)common_length(a, b, row) / (double)(a->n + b->n);
    phi_free(row);
    return PHI_OK;
}
