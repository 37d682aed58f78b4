/* logprobs.c: see logprobs.h. */
#include "engine/logprobs.h"
#include "base/size.h"
#include "kernels/elementary.h"

double phi_logsumexp(const struct phi_kernels *kernels, const float *x, size_t n)
{
    float max = phi_row_max(x, n);
    double sum = 0;
    for (size_t i = 0; i < n; i += PHI_LSE_BLOCK)
        sum += kernels->sum_exp(x + i, max, phi_size_min(PHI_LSE_BLOCK, n - i));
    return (double)max + phi_log(sum);
}

static int32_t rank_of(const float *x, size_t n, int32_t token)
{
    int32_t rank = 1;
    float value = x[token];
    for (size_t i = 0; i < n; i++)
        rank += x[i] > value;
    for (int32_t i = 0; i < token; i++)
        rank += x[i] == value;
    return rank;
}

void phi_logprobs_row(struct phi_sampler *s, const float *logits, int32_t token, size_t k,
                      struct phi_logprob *out)
{
    double lse = phi_logsumexp(s->kernels, logits, s->vocab_size);
    out[0] = (struct phi_logprob){
        .token = token,
        .rank = rank_of(logits, s->vocab_size, token),
        .logprob = (float)(logits[token] - lse),
    };
    if (k == 0)
        return;
    size_t n = phi_sampler_collect(s, logits, phi_row_max(logits, s->vocab_size), k);
    phi_logprobs_pad(k - 1, out + 1);
    for (size_t j = 0; j < phi_size_min(n, k); j++) {
        int32_t id = s->candidates[j].id;
        out[1 + j] = (struct phi_logprob){
            .token = id,
            .rank = (int32_t)j + 1,
            .logprob = (float)(logits[id] - lse),
        };
    }
}

void phi_logprobs_pad(size_t k, struct phi_logprob *out)
{
    for (size_t i = 0; i < k + 1; i++)
        out[i] = (struct phi_logprob){.token = -1};
}
