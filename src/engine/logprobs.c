/* logprobs.c: see logprobs.h. */
#include "engine/logprobs.h"
#include "base/size.h"
#include "kernels/elementary.h"

double phi_logsumexp(const struct phi_kernels *kernels, const float *x, float max, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i += PHI_LSE_BLOCK)
        sum += kernels->sum_exp(x + i, max, phi_size_min(PHI_LSE_BLOCK, n - i));
    return (double)max + phi_log(sum);
}

bool phi_logprobs_row(struct phi_sampler *s, const float *logits, int32_t token, size_t k,
                      struct phi_logprob *out)
{
    struct phi_row *row = &s->row;
    if (!phi_row_scan(row, logits))
        return false;
    double lse = phi_logsumexp(s->kernels, logits, row->max, s->vocab_size);
    out[0] = (struct phi_logprob){
        .token = token,
        .rank = phi_row_rank(row, token),
        .logprob = (float)(logits[token] - lse),
    };
    if (k == 0)
        return true;
    size_t n = phi_row_best(row, k);
    phi_logprobs_pad(k - 1, out + 1);
    for (size_t j = 0; j < phi_size_min(n, k); j++) {
        int32_t id = row->found[j].id;
        out[1 + j] = (struct phi_logprob){
            .token = id,
            .rank = (int32_t)j + 1,
            .logprob = (float)(logits[id] - lse),
        };
    }
    return true;
}

void phi_logprobs_pad(size_t k, struct phi_logprob *out)
{
    for (size_t i = 0; i < k + 1; i++)
        out[i] = (struct phi_logprob){.token = -1};
}
