/* sampler.c: see sampler.h. */
#include "engine/sampler.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/size.h"
#include "kernels/elementary.h"

#include <assert.h>
#include <float.h>
#include <string.h>

void phi_sampling_state_init(struct phi_sampling_state *state)
{
    *state = (struct phi_sampling_state){.top_p = 1, .repetition_penalty = 1};
}

size_t phi_sampler_bytes(size_t vocab_size)
{
    return vocab_size * (sizeof(float) + sizeof(int32_t) + 2 * sizeof(struct phi_candidate));
}

enum phi_status phi_sampler_init(struct phi_sampler *s, const struct phi_kernels *kernels,
                                 size_t vocab_size, struct phi_error *err)
{
    *s = (struct phi_sampler){.kernels = kernels, .vocab_size = vocab_size};
    s->work = phi_alloc(vocab_size, sizeof *s->work);
    s->counts = phi_calloc(vocab_size, sizeof *s->counts);
    s->candidates = phi_alloc(2 * vocab_size, sizeof *s->candidates);
    if (!s->work || !s->counts || !s->candidates) {
        phi_sampler_deinit(s);
        return phi_fail_memory(err, "the sampler", phi_sampler_bytes(vocab_size));
    }
    return PHI_OK;
}

void phi_sampler_deinit(struct phi_sampler *s)
{
    phi_free(s->work);
    phi_free(s->counts);
    phi_free(s->candidates);
    *s = (struct phi_sampler){0};
}

/* ---------------------------------------------------------------- one pass over a row */

/* x - x is 0 for a finite x, else NaN, which no addition removes. */
bool phi_logits_finite(const float *logits, size_t n)
{
    float lane[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += logits[i + l] - logits[i + l];
    for (; i < n; i++)
        lane[0] += logits[i] - logits[i];
    for (int l = 1; l < 8; l++)
        lane[0] += lane[l];
    return lane[0] == 0;
}

float phi_row_max(const float *x, size_t n)
{
    float lane[8];
    size_t i = 0;
    for (int l = 0; l < 8; l++)
        lane[l] = -INFINITY;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (int l = 1; l < 8; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

int32_t phi_row_argmax(const float *x, size_t n)
{
    float max = phi_row_max(x, n);
    size_t i = 0;
    while (i < n - 1 && x[i] != max)
        i++;
    return (int32_t)i;
}

/* ---------------------------------------------------------------- processors */

static bool has_penalties(const struct phi_sampling_state *state)
{
    return state->repetition_penalty != 1 || state->frequency_penalty != 0 ||
           state->presence_penalty != 0;
}

static bool is_plain(const struct phi_sampling_state *state)
{
    return state->n_allowed == 0 && state->bad_words.n_words == 0 && state->n_logit_bias == 0 &&
           state->n_output >= state->min_tokens && !has_penalties(state);
}

static void keep_allowed(float *x, const float *logits, size_t n,
                         const struct phi_sampling_state *state)
{
    for (size_t i = 0; i < n; i++)
        x[i] = -INFINITY;
    for (size_t i = 0; i < state->n_allowed; i++)
        x[state->allowed_ids[i]] = logits[state->allowed_ids[i]];
}

/* A word is complete when its last id follows the others at the end of the output. */
static void mask_bad_words(float *x, const struct phi_sampling_state *state)
{
    const int32_t *word = state->bad_words.ids;
    for (size_t w = 0; w < state->bad_words.n_words; w++) {
        size_t n = state->bad_words.lengths[w], n_before = n - 1;
        if (n_before <= state->n_output &&
            (n_before == 0 || memcmp(word, state->output + state->n_output - n_before,
                                     n_before * sizeof *word) == 0))
            x[word[n_before]] = -INFINITY;
        word += n;
    }
}

/* Penalties of one token that occurs `count` times in the output (0: only in the prompt). */
static float penalised(float x, int32_t count, const struct phi_sampling_state *state)
{
    float repetition = (float)state->repetition_penalty;
    x = x > 0 ? x / repetition : x * repetition;
    if (count > 0) {
        x = x - (float)count * (float)state->frequency_penalty;
        x = x - (float)state->presence_penalty;
    }
    return x;
}

enum { IN_PROMPT_ONLY = -1 };

/* Each distinct token once: the first pass counts, the second applies and sets the counts back to
 * 0. */
static void apply_penalties(float *x, int32_t *counts, const struct phi_sampling_state *state)
{
    for (size_t i = 0; i < state->n_output; i++)
        counts[state->output[i]]++;
    for (size_t i = 0; i < state->n_prompt; i++)
        if (counts[state->prompt[i]] == 0)
            counts[state->prompt[i]] = IN_PROMPT_ONLY;
    for (size_t i = 0; i < state->n_prompt + state->n_output; i++) {
        int32_t id = i < state->n_prompt ? state->prompt[i] : state->output[i - state->n_prompt];
        if (counts[id] == 0)
            continue;
        x[id] = penalised(x[id], counts[id] == IN_PROMPT_ONLY ? 0 : counts[id], state);
        counts[id] = 0;
    }
}

static void process(struct phi_sampler *s, const float *logits,
                    const struct phi_sampling_state *state)
{
    float *x = s->work;
    if (state->n_allowed > 0)
        keep_allowed(x, logits, s->vocab_size, state);
    else
        memcpy(x, logits, s->vocab_size * sizeof *x);
    mask_bad_words(x, state);
    if (state->n_output < state->min_tokens)
        for (size_t i = 0; i < state->n_end_ids; i++)
            x[state->end_ids[i]] = -INFINITY;
    for (size_t i = 0; i < state->n_logit_bias; i++)
        x[state->logit_bias[i].token] += state->logit_bias[i].bias;
    if (has_penalties(state))
        apply_penalties(x, s->counts, state);
}

/* ---------------------------------------------------------------- the best candidates */

/* Rising integers for falling floats; both zeros are equal. */
static uint32_t candidate_key(float x)
{
    uint32_t bits = phi_f32_bits(x + 0.0f);
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

/* Stable, by key, in four passes of eight bits; the result stands in `list` again. */
static void radix_sort(struct phi_candidate *list, struct phi_candidate *room, size_t n)
{
    for (int shift = 0; shift < 32; shift += 8) {
        size_t start[257] = {0};
        for (size_t i = 0; i < n; i++)
            start[(list[i].key >> shift & 255) + 1]++;
        for (int d = 0; d < 256; d++)
            start[d + 1] += start[d];
        for (size_t i = 0; i < n; i++)
            room[start[list[i].key >> shift & 255]++] = list[i];
        struct phi_candidate *swap = list;
        list = room;
        room = swap;
    }
}

size_t phi_sampler_collect(struct phi_sampler *s, const float *x, float max, size_t n_wanted)
{
    size_t n = 0;
    for (float distance = 3;; distance *= 2) {
        bool all = distance > 2000;
        float least = all ? -FLT_MAX : max - distance;
        n = 0;
        for (size_t i = 0; i < s->vocab_size; i++)
            if (x[i] >= least)
                s->candidates[n++] = (struct phi_candidate){candidate_key(x[i]), (int32_t)i};
        if (n >= n_wanted || all)
            break;
    }
    radix_sort(s->candidates, s->candidates + s->vocab_size, n);
    return n;
}

/* ---------------------------------------------------------------- the draw */

/* exp(x - max); nothing for a masked token. */
static double weight(float x, float max)
{
    return x == -INFINITY ? 0 : phi_expf(x - max);
}

static double total_weight(const struct phi_sampler *s, float max)
{
    double total = 0;
    for (size_t i = 0; i < s->vocab_size; i += PHI_LSE_BLOCK)
        total +=
            s->kernels->sum_exp(s->work + i, max, phi_size_min(PHI_LSE_BLOCK, s->vocab_size - i));
    return total;
}

/* Over all ids. The block that holds the target is found by the blocks' sums, the id by weights. */
static int32_t draw_from_all(const struct phi_sampler *s, float max, double u)
{
    double target = u * total_weight(s, max);
    size_t begin = 0, n = 0;
    for (;; begin += n) {
        n = phi_size_min(PHI_LSE_BLOCK, s->vocab_size - begin);
        double sum = s->kernels->sum_exp(s->work + begin, max, n);
        if (sum > target || begin + n == s->vocab_size)
            break;
        target -= sum;
    }
    int32_t last = -1;
    for (size_t i = begin; i < begin + n; i++) {
        double w = weight(s->work[i], max);
        if (w == 0)
            continue;
        last = (int32_t)i; /* also the answer when rounding leaves a rest */
        target -= w;
        if (target < 0)
            break;
    }
    return last >= 0 ? last : phi_row_argmax(s->work, s->vocab_size);
}

/* The first n of the candidates that top_k keeps. */
static size_t n_in_top_k(const struct phi_sampler *s, size_t n, size_t k)
{
    if (k >= n)
        return n;
    while (k < n && s->candidates[k].key == s->candidates[k - 1].key)
        k++;
    return k;
}

/* How many of the first n candidates stand before the mass `limit` is reached, at least one; *mass
 * is theirs. */
static size_t n_in_nucleus(const struct phi_sampler *s, size_t n, float max, double limit,
                           double *mass)
{
    size_t n_kept = 0;
    *mass = 0;
    while (n_kept < n && (n_kept == 0 || *mass < limit))
        *mass += weight(s->work[s->candidates[n_kept++].id], max);
    return n_kept;
}

/* Leaves the tokens that top_k and top_p keep in front of the candidates. */
static size_t keep_top(struct phi_sampler *s, float max, const struct phi_sampling_state *state,
                       double *mass)
{
    size_t k = state->top_k > 0 ? (size_t)state->top_k : s->vocab_size;
    if (k < s->vocab_size) {
        size_t n = n_in_top_k(s, phi_sampler_collect(s, s->work, max, k), k);
        n_in_nucleus(s, n, max, INFINITY, mass);
        return state->top_p < 1 ? n_in_nucleus(s, n, max, state->top_p * *mass, mass) : n;
    }
    double limit = state->top_p * total_weight(s, max);
    for (size_t n_wanted = 1;;) {
        size_t n = phi_sampler_collect(s, s->work, max, n_wanted);
        size_t n_kept = n_in_nucleus(s, n, max, limit, mass);
        if (*mass >= limit || n < n_wanted)
            return n_kept;
        n_wanted = n + 1;
    }
}

static int32_t draw_from_top(struct phi_sampler *s, float max,
                             const struct phi_sampling_state *state, double u)
{
    double mass;
    size_t n = keep_top(s, max, state, &mass), j = 0;
    for (double target = u * mass; j + 1 < n; j++) {
        target -= weight(s->work[s->candidates[j].id], max);
        if (target < 0)
            break;
    }
    return s->candidates[j].id;
}

static int32_t draw(struct phi_sampler *s, const struct phi_sampling_state *state)
{
    float *x = s->work, temperature = (float)state->temperature;
    for (size_t i = 0; i < s->vocab_size; i++)
        x[i] = x[i] / temperature;
    float max = phi_row_max(x, s->vocab_size);
    if (max == INFINITY) /* a penalty or temperature close to 0 carried it over the edge */
        return phi_row_argmax(x, s->vocab_size);
    if (state->min_p >= DBL_MIN) {
        float least = (float)((double)max + phi_log(state->min_p));
        for (size_t i = 0; i < s->vocab_size; i++)
            if (x[i] < least)
                x[i] = -INFINITY;
    }
    double u = phi_random_unit(phi_random_u64(state->key, state->stream, state->n_output));
    if (state->top_p < 1 || (state->top_k > 0 && (size_t)state->top_k < s->vocab_size))
        return draw_from_top(s, max, state, u);
    return draw_from_all(s, max, u);
}

int32_t phi_sampler_sample(struct phi_sampler *s, const float *logits,
                           const struct phi_sampling_state *state)
{
    bool greedy = state->temperature == 0;
    if (greedy && is_plain(state))
        return phi_row_argmax(logits, s->vocab_size);
    process(s, logits, state);
    if (phi_row_max(s->work, s->vocab_size) == -INFINITY)
        return -1;
    return greedy ? phi_row_argmax(s->work, s->vocab_size) : draw(s, state);
}
