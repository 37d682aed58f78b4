/* bind.c: the parts of a layer by the names of their tensors (arch.h): a stem, then ".weight" and
 * ".bias". What a tensor must look like is checked in weights.c and weights_quant.c. */
#include "model/arch.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_STEM = 200 };

static enum phi_status bind_part(struct phi_net *net, struct phi_linear *l, size_t n_rows,
                                 size_t n_cols, bool with_bias, enum phi_quantization quant,
                                 const char *stem, struct phi_error *err)
{
    int i = l->n_parts++;
    l->n_in = n_cols;
    l->n_out += n_rows;
    PHI_TRY(phi_weights_linear(&net->weights, &l->parts[i], n_rows, n_cols, quant, stem, err));
    if (!with_bias)
        return PHI_OK;
    return phi_weights_vector(&net->weights, &l->bias[i], n_rows, err, "%s.bias", stem);
}

enum phi_status phi_bind_part(struct phi_net *net, struct phi_linear *l, size_t n_rows,
                              size_t n_cols, bool with_bias, struct phi_error *err,
                              const char *stem_fmt, ...)
{
    char stem[MAX_STEM];
    va_list ap;
    va_start(ap, stem_fmt);
    vsnprintf(stem, sizeof stem, stem_fmt, ap);
    va_end(ap);
    const enum phi_quantization asked = net->weights.options->quantization;
    PHI_TRY(bind_part(net, l, n_rows, n_cols, with_bias, asked, stem, err));
    enum phi_quantization found = l->parts[l->n_parts - 1].quant;
    if (asked && found != asked)
        return phi_fail(err, PHI_ERR_INVALID, "%s: the checkpoint is quantized as %s, not as %s",
                        stem, phi_quantization_name(found), phi_quantization_name(asked));
    return PHI_OK;
}

bool phi_bind_has_linear(const struct phi_net *net, const char *stem_fmt, int layer)
{
    char stem[MAX_STEM];
    snprintf(stem, sizeof stem, stem_fmt, layer);
    return phi_weights_has(&net->weights, false, "%s.weight", stem) ||
           phi_weights_has(&net->weights, false, "%s.weight_packed", stem);
}

/* 8 bits also beside w4a8: the head's errors reach the logits as they are. */
static enum phi_quantization head_quantization(const struct phi_net *net)
{
    const struct phi_net_options *o = net->weights.options;
    return o->quantization && !o->keep_lm_head ? PHI_W8A8 : PHI_UNQUANTIZED;
}

enum phi_status phi_bind_head(struct phi_net *net, bool with_bias, const char *stem,
                              struct phi_error *err)
{
    return bind_part(net, &net->head, (size_t)net->config.vocab_size,
                     (size_t)net->config.hidden_size, with_bias, head_quantization(net), stem, err);
}

enum phi_status phi_bind_tied_head(struct phi_net *net, const char *stem, struct phi_error *err)
{
    const enum phi_quantization quant = head_quantization(net);
    struct phi_linear *head = &net->head;
    head->parts[head->n_parts++] = net->embed;
    head->n_in = net->embed.n_cols;
    head->n_out = net->embed.n_rows;
    if (!quant)
        return PHI_OK;
    return phi_weights_quantize(&net->weights, &head->parts[0], quant, stem, err);
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
