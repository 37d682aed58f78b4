/* accuracy.h: a model's logits against a reference's: measured, judged, reported. */
#ifndef PHI_CLI_ACCURACY_ACCURACY_H
#define PHI_CLI_ACCURACY_ACCURACY_H

#include "cli/accuracy/difference.h"
#include "cli/accuracy/locate.h"
#include "cli/accuracy/reference.h"
#include "cli/term.h"

struct accuracy_limits {
    double top1;   /* per cent of the positions, at least */
    double cosine; /* of every position, at least */
    double kl;     /* of every position, at most */
};

struct accuracy {
    const char *model; /* the folder, for the reports */
    struct phi_model_info info;
    struct reference reference;
    struct accuracy_limits limits;
    struct difference *rows;        /* [reference.n_positions], prompt after prompt */
    struct difference_sum *prompts; /* [reference.n_prompts] */
    struct difference_sum total;
    struct locate *locate; /* NULL: layers are not compared */
};

/* Runs every prompt of the opened reference, through `locate` too where it is set. The caller ends
 * with accuracy_deinit in every case. */
enum phi_status accuracy_measure(struct accuracy *a, struct phi_engine *engine,
                                 struct phi_error *err);
void accuracy_deinit(struct accuracy *a);

bool accuracy_passes(const struct accuracy *a);

/* The first stage that leaves the reference, in words; false when none does or none was looked at.
 */
bool accuracy_where(const struct accuracy *a, char out[256]);

/* "top-1 98.2 % of at least 99 %, ..." */
void accuracy_verdict(const struct accuracy *a, char out[256]);

void accuracy_print_table(const struct accuracy *a, struct cli_out *out);
void accuracy_print_json(const struct accuracy *a, struct cli_out *out);
enum phi_status accuracy_write_page(const struct accuracy *a, const char *path,
                                    struct phi_error *err);

#endif
