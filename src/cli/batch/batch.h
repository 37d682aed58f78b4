/* batch.h: a file of requests to a file of answers, as vLLM's run-batch has them.
 *
 *   in   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
 *   out  {"id": "vllm-...", "custom_id": "a", "response": {"status_code": 200, "request_id": "...",
 *         "body": {...}}, "error": null}
 *
 * Lines go out in the order in which they came in, each as soon as those before it are out. So the
 * whole lines of an output that was broken off say how far it had come. */
#ifndef PHI_CLI_BATCH_BATCH_H
#define PHI_CLI_BATCH_BATCH_H

#include "cli/term.h"
#include "server/local.h"

#include <stdio.h>

struct batch {
    const char *in_path, *out_path;
    FILE *in, *out;
    struct phi_buf line; /* the last one read of either file */
    size_t n_lines;      /* requests in the input */
    size_t n_out;        /* answers in the output, those of an earlier run too */
    size_t n_resumed;    /* of these, from an earlier run */
    size_t n_refused;    /* of those of this run, with an error */
};

/* Opens both files and counts the input's lines; with `resume`, keeps what the output has of them,
 * and else empties it. PHI_ERR_INVALID when the output's lines are not answers to the input's first
 * ones. The caller ends with batch_close in every case. */
enum phi_status batch_open(struct batch *b, bool resume, struct phi_error *err);
enum phi_status batch_close(struct batch *b, struct phi_error *err);

/* The next request into b->line, empty lines passed over; false at the end. */
bool batch_read(struct batch *b, FILE *file);

/* Runs the rest, n_in_work requests at a time. Stops early, without an error, on Ctrl-C. */
enum phi_status batch_run(struct batch *b, struct phi_local *local, size_t n_in_work,
                          struct phi_error *err);

#endif
