/* logprobs.h: log-probabilities of the raw distribution: the logits as the model gave them, before
 * any mask, bias, penalty or temperature. */
#ifndef PHI_ENGINE_LOGPROBS_H
#define PHI_ENGINE_LOGPROBS_H

#include "engine/sampler.h"

/* log of the sum of exp(x) over n finite floats with their maximum; docs/NUMERICS.md 8. */
double phi_logsumexp(const struct phi_kernels *kernels, const float *x, float max, size_t n);

/* Fills out[0] with `token` and out[1..k] with the k most likely tokens (padding beyond the
 * vocabulary: token -1). logits [vocab_size]. Equal logits rank by id. False, and nothing filled, when
 * a logit is NaN or infinite. */
bool phi_logprobs_row(struct phi_sampler *s, const float *logits, int32_t token, size_t k,
                      struct phi_logprob *out);

/* The same when there is nothing to tell: k + 1 entries of padding. */
void phi_logprobs_pad(size_t k, struct phi_logprob *out);

#endif
