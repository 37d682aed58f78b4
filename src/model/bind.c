/* bind.c: the parts of a layer by the names of their tensors (arch.h): a stem, then ".weight" and
 * ".bias". What a tensor must look like is checked in weights.c. */
#include "model/arch.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_STEM = 200 };

enum phi_status phi_bind_part(struct phi_net *net, struct phi_linear *l, size_t n_rows, size_t n_cols,
                              bool with_bias, struct phi_error *err, const char *stem_fmt, ...)
{
    char stem[MAX_STEM];
    va_list ap;
    va_start(ap, stem_fmt);
    vsnprintf(stem, sizeof stem, stem_fmt, ap);
    va_end(ap);
    int i = l->n_parts++;
    l->n_in = n_cols;
    l->n_out += n_rows;
    PHI_TRY(phi_weights_matrix(&net->weights, &l->parts[i], n_rows, n_cols, err, "%s.weight", stem));
    if (!with_bias)
        return PHI_OK;
    return phi_weights_vector(&net->weights, &l->bias[i], n_rows, err, "%s.bias", stem);
}

enum phi_status phi_bind_norm(struct phi_net *net, struct phi_norm *norm, size_t n, bool with_bias,
                              struct phi_error *err, const char *stem_fmt, ...)
{
    char stem[MAX_STEM];
    va_list ap;
    va_start(ap, stem_fmt);
    vsnprintf(stem, sizeof stem, stem_fmt, ap);
    va_end(ap);
    PHI_TRY(phi_weights_vector(&net->weights, &norm->w, n, err, "%s.weight", stem));
    if (!with_bias)
        return PHI_OK;
    return phi_weights_vector(&net->weights, &norm->b, n, err, "%s.bias", stem);
}
