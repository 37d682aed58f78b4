/* sampler.c: see sampler.h. */
#include "engine/sampler.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/size.h"
#include "kernels/elementary.h"

#include <float.h>
#include <string.h>

enum {
    N_BUCKETS = 4096, /* of a nucleus: 8 for each doubling of x */
    BUCKET_KEYS = (UINT32_MAX / N_BUCKETS) + 1,
    NUCLEUS_DEPTH = 12, /* below the maximum; seldom is anything that counts deeper */
};

void phi_sampling_state_init(struct phi_sampling_state *state)
{
    *state = (struct phi_sampling_state){.top_p = 1, .repetition_penalty = 1};
}

size_t phi_sampler_bytes(size_t vocab_size)
{
    size_t weights = phi_size_ceil_div(vocab_size, PHI_KEY_BLOCK) * PHI_KEY_BLOCK;
    return phi_row_bytes(vocab_size) + vocab_size * (sizeof(float) + sizeof(int32_t)) +
           weights * sizeof(float) + N_BUCKETS * sizeof(double);
}

enum phi_status phi_sampler_init(struct phi_sampler *s, const struct phi_kernels *kernels,
                                 size_t vocab_size, struct phi_error *err)
{
    *s = (struct phi_sampler){.kernels = kernels, .vocab_size = vocab_size};
    PHI_TRY(phi_row_init(&s->row, vocab_size, err));
    s->work = phi_alloc(vocab_size, sizeof *s->work);
    s->counts = phi_calloc(vocab_size, sizeof *s->counts);
    s->weights = phi_alloc(phi_size_ceil_div(vocab_size, PHI_KEY_BLOCK),
                           PHI_KEY_BLOCK * sizeof *s->weights);
    s->masses = phi_alloc(N_BUCKETS, sizeof *s->masses);
    if (!s->work || !s->counts || !s->weights || !s->masses) {
        phi_sampler_deinit(s);
        return phi_fail_memory(err, "the sampler", phi_sampler_bytes(vocab_size));
    }
    return PHI_OK;
}

void phi_sampler_deinit(struct phi_sampler *s)
{
    phi_row_deinit(&s->row);
    phi_free(s->work);
    phi_free(s->counts);
    phi_free(s->weights);
    phi_free(s->masses);
    *s = (struct phi_sampler){0};
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

/* ---------------------------------------------------------------- weights */

/* w[i] = exp(w[i] - max), in whole steps of PHI_KEY_BLOCK: the softmax step of attention with a scale
 * of 1 and a maximum that is known. */
static void exponentials(const struct phi_kernels *kernels, float *w, size_t n, float max)
{
    for (size_t i = 0; i < n; i += PHI_KEY_BLOCK) {
        struct phi_softmax_step step = {
            .s = w + i, .hi = phi_size_min(PHI_KEY_BLOCK, n - i), .scale = 1, .m = max};
        kernels->softmax_step(&step);
    }
}

/* s->weights of the first n candidates. */
static void weigh_found(struct phi_sampler *s, size_t n)
{
    for (size_t j = 0; j < n; j++)
        s->weights[j] = s->row.x[s->row.found[j].id];
    exponentials(s->kernels, s->weights, n, s->row.max);
}

static double total_weight(const struct phi_sampler *s)
{
    double total = 0;
    for (size_t i = 0; i < s->vocab_size; i += PHI_LSE_BLOCK)
        total += s->kernels->sum_exp(s->row.x + i, s->row.max,
                                     phi_size_min(PHI_LSE_BLOCK, s->vocab_size - i));
    return total;
}

/* ---------------------------------------------------------------- the draw */

/* Over all ids. The block that holds the target is found by the blocks' sums, the id by weights. */
static int32_t draw_from_all(struct phi_sampler *s, double u)
{
    const float *x = s->row.x, max = s->row.max;
    double target = u * total_weight(s);
    size_t begin = 0, n = 0;
    for (;; begin += n) {
        n = phi_size_min(PHI_LSE_BLOCK, s->vocab_size - begin);
        double sum = s->kernels->sum_exp(x + begin, max, n);
        if (sum > target || begin + n == s->vocab_size)
            break;
        target -= sum;
    }
    memcpy(s->weights, x + begin, n * sizeof *x);
    exponentials(s->kernels, s->weights, n, max);
    int32_t last = -1;
    for (size_t i = 0; i < n && (last < 0 || target >= 0); i++) {
        if (x[begin + i] == -INFINITY)
            continue;
        last = (int32_t)(begin + i); /* also the answer when rounding leaves a rest */
        target -= s->weights[i];
    }
    return last >= 0 ? last : phi_row_argmax(&s->row);
}

/* Of the first n candidates, whose weights add up to the mass, one that `target` < mass falls on. */
static int32_t draw_from_found(const struct phi_sampler *s, size_t n, double target)
{
    size_t j = 0;
    for (; j + 1 < n; j++) {
        target -= s->weights[j];
        if (target < 0)
            break;
    }
    return s->row.found[j].id;
}

/* How many of the first n candidates stand before `limit` is reached, at least one; their weights
 * are added to *mass. */
static size_t n_in_nucleus(const struct phi_sampler *s, size_t n, double limit, double *mass)
{
    size_t n_kept = 0;
    while (n_kept < n && (n_kept == 0 || *mass < limit))
        *mass += s->weights[n_kept++];
    return n_kept;
}

static int32_t draw_from_top_k(struct phi_sampler *s, const struct phi_sampling_state *state, double u)
{
    const struct phi_candidate *found;
    size_t k = (size_t)state->top_k, n = phi_row_best(&s->row, k);
    double mass = 0;
    for (found = s->row.found; k < n && found[k].key == found[k - 1].key;)
        k++;
    n = phi_size_min(n, k);
    weigh_found(s, n);
    n_in_nucleus(s, n, INFINITY, &mass);
    if (state->top_p < 1) {
        double limit = state->top_p * mass;
        mass = 0;
        n = n_in_nucleus(s, n, limit, &mass);
    }
    return draw_from_found(s, n, u * mass);
}

/* ---------------------------------------------------------------- the draw by top_p alone */

/* Adds up the weights of the buckets of all x >= least. Returns the mass of all. */
static double fill_buckets(struct phi_sampler *s, float least)
{
    const struct phi_row *row = &s->row;
    float w[PHI_ROW_BLOCK];
    double total = 0;
    memset(s->masses, 0, N_BUCKETS * sizeof *s->masses);
    for (size_t i = 0; i < row->n; i += PHI_ROW_BLOCK) {
        const float *x = row->x + i;
        size_t n = phi_size_min(PHI_ROW_BLOCK, row->n - i);
        if (!phi_row_block_reaches(row, i / PHI_ROW_BLOCK, least))
            continue;
        memcpy(w, x, n * sizeof *w);
        exponentials(s->kernels, w, n, row->max);
        for (size_t j = 0; j < n; j++)
            if (x[j] >= least)
                s->masses[phi_row_key(x[j]) / BUCKET_KEYS] += w[j];
    }
    for (size_t b = 0; b < N_BUCKETS; b++)
        total += s->masses[b];
    return total;
}

/* The candidates of one bucket, and their weights. */
static size_t open_bucket(struct phi_sampler *s, size_t b)
{
    const uint32_t first = (uint32_t)b * BUCKET_KEYS;
    size_t n = phi_row_between(&s->row, first, first + (BUCKET_KEYS - 1));
    weigh_found(s, n);
    return n;
}

/* The nucleus consists of whole buckets and the leading candidates of one more. */
static int32_t draw_from_top_p(struct phi_sampler *s, double top_p, double u)
{
    const double limit = top_p * total_weight(s), *masses = s->masses;
    double mass = 0;
    size_t b, last = 0;
    if (fill_buckets(s, s->row.max - NUCLEUS_DEPTH) < limit)
        fill_buckets(s, -FLT_MAX);
    for (b = 0; b < N_BUCKETS; b++)
        if (masses[b] > 0) {
            last = b;
            if (mass + masses[b] >= limit)
                break;
            mass += masses[b];
        }
    if (b == N_BUCKETS) /* rounding */
        mass -= masses[last];
    size_t n = n_in_nucleus(s, open_bucket(s, last), limit, &mass);
    double target = u * mass;
    for (b = 0; b < last && target >= masses[b]; b++)
        target -= masses[b];
    if (b < last)
        n = open_bucket(s, b);
    return draw_from_found(s, n, target);
}

/* ---------------------------------------------------------------- */

/* x = from / divisor; both may be the same. As in row.c, in lanes of which a compiler makes vectors. */
static void divide(float *x, const float *from, size_t n, float divisor)
{
    size_t i = 0;
    for (; i + PHI_ROW_LANES <= n; i += PHI_ROW_LANES) {
        float lane[PHI_ROW_LANES];
        memcpy(lane, from + i, sizeof lane);
        for (int l = 0; l < PHI_ROW_LANES; l++)
            lane[l] = lane[l] / divisor;
        memcpy(x + i, lane, sizeof lane);
    }
    for (; i < n; i++)
        x[i] = from[i] / divisor;
}

static void mask_below(float *x, size_t n, float least)
{
    size_t i = 0;
    for (; i + PHI_ROW_LANES <= n; i += PHI_ROW_LANES)
        for (int l = 0; l < PHI_ROW_LANES; l++)
            x[i + l] = x[i + l] < least ? -INFINITY : x[i + l];
    for (; i < n; i++)
        x[i] = x[i] < least ? -INFINITY : x[i];
}

static int32_t draw(struct phi_sampler *s, const float *logits,
                    const struct phi_sampling_state *state)
{
    float *x = s->work;
    divide(x, logits, s->vocab_size, (float)state->temperature);
    phi_row_scan(&s->row, x);
    if (s->row.max == INFINITY) /* a penalty or temperature close to 0 carried it over the edge */
        return phi_row_argmax(&s->row);
    if (state->min_p >= DBL_MIN) {
        float least = (float)((double)s->row.max + phi_log(state->min_p));
        mask_below(x, s->vocab_size, least);
    }
    double u = phi_random_unit(phi_random_u64(state->key, state->stream, state->n_output));
    if (state->top_k > 0 && (size_t)state->top_k < s->vocab_size)
        return draw_from_top_k(s, state, u);
    return state->top_p < 1 ? draw_from_top_p(s, state->top_p, u) : draw_from_all(s, u);
}

int32_t phi_sampler_sample(struct phi_sampler *s, const float *logits,
                           const struct phi_sampling_state *state)
{
    if (!phi_row_scan(&s->row, logits))
        return PHI_TOKEN_UNDEFINED;
    if (!is_plain(state)) {
        process(s, logits, state);
        logits = s->work;
        phi_row_scan(&s->row, logits);
        if (s->row.max == -INFINITY)
            return PHI_TOKEN_NONE;
    }
    return state->temperature == 0 ? phi_row_argmax(&s->row) : draw(s, logits, state);
}
