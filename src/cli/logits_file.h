/* logits_file.h: a safetensors file written row by row, so that a matrix of logits never has to be
 * in memory as a whole. Layout (https://huggingface.co/docs/safetensors): the header's length as 8
 * bytes little-endian, the header (JSON, padded with spaces to a multiple of 8), then the tensors:
 * `input_ids`, int64 [n_tokens], and `logits`, float32 [n_tokens, vocab_size]. */
#ifndef PHI_CLI_LOGITS_FILE_H
#define PHI_CLI_LOGITS_FILE_H

#include "base/status.h"

#include <stdio.h>

struct logits_file {
    FILE *file;
    const char *path;
    size_t n_tokens, vocab_size;
    size_t n_rows;        /* written so far */
    bool is_regular_file; /* else a device or a pipe, which a failure must not remove */
};

/* Creates the file and writes everything before the logits. */
enum phi_status logits_file_open(struct logits_file *f, const char *path, const int32_t *ids,
                                 size_t n_tokens, size_t vocab_size, struct phi_error *err);

/* Appends n_rows rows of logits, float32 [n_rows, vocab_size]. False when the disk refuses. */
bool logits_file_append(struct logits_file *f, const float *logits, size_t n_rows);

/* Closes the file; without all its rows, or after a failed write, it is removed and an error. */
enum phi_status logits_file_close(struct logits_file *f, struct phi_error *err);

#endif
