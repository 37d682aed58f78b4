/* generate.h: the two halves of `generate`: cmd_generate.c submits requests, answers.c prints what
 * comes back. All prompts decode together in the engine; answers are printed in order, the one
 * whose turn it is as it grows, the others from where they waited. */
#ifndef PHI_CLI_GENERATE_H
#define PHI_CLI_GENERATE_H

#include "cli/flags.h"
#include "cli/prompts.h"

#include <jansson.h>

/* One of a request's n answers. */
struct answer {
    struct phi_buf pending; /* for standard output, until it is this answer's turn */
    struct phi_buf text;    /* all of it; only for --json */
    struct phi_ids ids;     /* the same */
    json_t *logprobs;       /* list of lists; NULL unless asked for */
    size_t n_ids_printed;
    enum phi_finish finish;
    json_t *stop_reason; /* a token id, a stop string or null */
};

/* One prompt's request. */
struct job {
    struct phi_ids prompt;
    struct phi_request *request;
    struct answer *answers; /* [n] */
};

/* How answers are printed. */
struct answer_printer {
    struct cli_out *out;
    bool json, print_ids;
    size_t n_jobs, n_answers; /* per request */
    struct job *job;          /* being followed, number job_index */
    size_t job_index;
    size_t turn; /* the answer being printed */
    bool failed; /* a request ended with an error, which was printed */
};

/* Follows the job to its end, printing its answers. Frees nothing. */
void answers_print(struct answer_printer *p, struct job *job, size_t job_index);

void job_deinit(struct job *job, size_t n_answers);

#endif
