/* reference.h: the file of right answers that `check-accuracy` compares with.
 *
 * It is a safetensors file with, for each prompt K = 0, 1, ...
 *
 *   K.input_ids    int32 or int64 [n]
 *   K.logits       float [n, vocab_size]
 *   K.text         uint8: what the ids say, for people; may be missing
 *   K.hidden.I     float [n, hidden_size]: the embeddings (I = 0), then the stream behind each
 * layer K.attention.I, K.mlp.I   float [n, hidden_size]: what the parts of layer I give
 *
 * and `about`, uint8: who made it. Without "K." it holds one prompt, as `phidelity logits` writes
 * it. Floats are F32, F16, BF16 or F64. */
#ifndef PHI_CLI_ACCURACY_REFERENCE_H
#define PHI_CLI_ACCURACY_REFERENCE_H

#include "base/buf.h"
#include "formats/safetensors.h"

struct reference_prompt {
    int number; /* K, or -1 for names without it */
    struct phi_ids ids;
    const struct phi_tensor *logits;
    struct phi_str text; /* may be empty */
};

struct reference {
    const char *path;
    struct phi_safetensors *file;
    struct reference_prompt *prompts;
    size_t n_prompts, n_positions, n_longest;
    struct phi_str about;
    bool has_layers; /* of any prompt */
};

/* Opens and checks: shapes, dtypes, ids within vocab_size. The caller ends with reference_close in
 * every case. */
enum phi_status reference_open(struct reference *r, const char *path, size_t vocab_size,
                               struct phi_error *err);
void reference_close(struct reference *r);

/* A prompt's tensor by its name without "K.", or NULL. */
const struct phi_tensor *reference_find(const struct reference *r, const struct reference_prompt *p,
                                        const char *name);

/* Whether it holds floats [n_rows, n_cols]. */
bool reference_is_matrix(const struct phi_tensor *t, size_t n_rows, size_t n_cols);

/* Row `row` of a float tensor of two dimensions, widened exactly into out[shape[1]]. */
void reference_row(const struct phi_tensor *t, size_t row, double *out);

#endif
