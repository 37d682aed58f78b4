/* locate.h: where a model leaves its reference. The way from tokens to logits has stages: the
 * embeddings; of each layer what the attention adds, what the MLP adds, and the stream behind both;
 * the logits. Each is compared with the reference's tensor of the same name, and the first that is
 * too far off holds the error: what comes before it is right, what comes behind it inherits it. */
#ifndef PHI_CLI_ACCURACY_LOCATE_H
#define PHI_CLI_ACCURACY_LOCATE_H

#include "cli/accuracy/reference.h"

/* Sums over rows. The relative difference is the length of the difference by the length of what is
 * wanted. */
struct locate_stage {
    double square_difference, square_wanted;
    size_t n_rows; /* 0 = the reference does not have it */
};

struct locate {
    const struct reference *reference;
    int n_layers;
    double limit;
    struct locate_stage *stages; /* [2 + 3 * n_layers] */
    double *work;                /* [the widest row] */
    struct phi_error err;        /* of the reference; code PHI_OK: none */
};

enum phi_status locate_init(struct locate *l, const struct reference *r, int n_layers,
                            size_t n_widest, double limit, struct phi_error *err);
void locate_deinit(struct locate *l);

/* The rows of one of a prompt's tensors, "hidden.3" or "logits". What the reference does not have
 * is passed over; a tensor of another shape is noted in l->err. */
void locate_take(struct locate *l, const struct reference_prompt *prompt, const char *name,
                 size_t first_row, size_t n_rows, size_t n_cols, const float *data);

int locate_n_stages(const struct locate *l);
double locate_difference(const struct locate *l, int stage); /* relative */
/* "the embeddings", "layer 3, attention", ... in out[48]; returns out. */
const char *locate_name(const struct locate *l, int stage, char *out);

/* The first stage beyond the limit, or -1. */
int locate_first(const struct locate *l);

/* The greatest difference of the stages before `stage`; 0 when there are none. */
double locate_before(const struct locate *l, int stage);

#endif
