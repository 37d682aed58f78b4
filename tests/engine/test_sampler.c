/* The sampler against hand-computed rows, a plain reference that sorts everything and computes in
 * double, and the chi-square statistic of many draws. */
#include "base/rng.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct phi_sampler make(size_t vocab_size)
{
    struct phi_sampler s;
    assert_int_equal(phi_sampler_init(&s, &phi_kernels_ref, vocab_size, NULL), PHI_OK);
    return s;
}

/* ---------------------------------------------------------------- hand-computed */

enum { V = 6 };
static const float row[V] = {1.0f, 3.0f, -2.0f, 3.0f, 2.5f, 0.0f};

/* Greedy choice after one processor each. */
static void test_processors(void **state)
{
    (void)state;
    static const int32_t prompt[] = {1, 1, 3}, output[] = {4, 2, 4};
    static const int32_t allowed[] = {2, 5}, ends[] = {1, 3};
    static const struct phi_logit_bias up[] = {{2, 100}}, down[] = {{1, -100}, {3, -100}, {1, -1}};
    static int32_t word[] = {2, 4, 1, 5, 3};
    static uint32_t lengths[] = {3, 2}, one[] = {1};
    static const struct {
        const char *name;
        struct phi_sampling_state state;
        int32_t expected;
    } cases[] = {
        {"plain: the first of equals", {.repetition_penalty = 1}, 1},
        {"allowed ids", {.repetition_penalty = 1, .allowed_ids = allowed, .n_allowed = 2}, 5},
        {"bad word completed by 1",
         {.repetition_penalty = 1,
          .bad_words = {word, lengths, 2},
          .output = output,
          .n_output = 3},
         3},
        {"bad word not begun",
         {.repetition_penalty = 1,
          .bad_words = {word, lengths, 2},
          .output = output,
          .n_output = 2},
         1},
        {"bad word longer than the output",
         {.repetition_penalty = 1, .bad_words = {word, lengths, 2}},
         1},
        {"single-token bad word", {.repetition_penalty = 1, .bad_words = {word + 2, one, 1}}, 3},
        {"min_tokens",
         {.repetition_penalty = 1,
          .end_ids = ends,
          .n_end_ids = 2,
          .min_tokens = 4,
          .output = output,
          .n_output = 3},
         4},
        {"min_tokens reached",
         {.repetition_penalty = 1,
          .end_ids = ends,
          .n_end_ids = 2,
          .min_tokens = 3,
          .output = output,
          .n_output = 3},
         1},
        {"bias up", {.repetition_penalty = 1, .logit_bias = up, .n_logit_bias = 1}, 2},
        {"bias down", {.repetition_penalty = 1, .logit_bias = down, .n_logit_bias = 3}, 4},
        {"a mask beats a bias",
         {.repetition_penalty = 1,
          .logit_bias = up,
          .n_logit_bias = 1,
          .allowed_ids = allowed + 1,
          .n_allowed = 1},
         5},
        /* 1 and 3: 3 / 1.3 = 2.31; 4: 2.5 / 1.3 = 1.92 */
        {"repetition in prompt and output",
         {.repetition_penalty = 1.3,
          .prompt = prompt,
          .n_prompt = 3,
          .output = output,
          .n_output = 3},
         1},
        /* 1 and 3: 2.14; 4 stays 2.5 */
        {"repetition in the prompt",
         {.repetition_penalty = 1.4, .prompt = prompt, .n_prompt = 3},
         4},
        /* 3 / 3.1 = 0.97 < 1 */
        {"a token that was never said",
         {.repetition_penalty = 3.1,
          .prompt = prompt,
          .n_prompt = 3,
          .output = output,
          .n_output = 3},
         0},
        {"frequency counts",
         {.repetition_penalty = 1, .frequency_penalty = -0.3, .output = output, .n_output = 3},
         4},
        {"presence counts once",
         {.repetition_penalty = 1, .presence_penalty = -0.3, .output = output, .n_output = 3},
         1},
        {"the prompt is no output",
         {.repetition_penalty = 1, .presence_penalty = 2, .prompt = prompt, .n_prompt = 3},
         1},
        {"nothing left",
         {.repetition_penalty = 1,
          .allowed_ids = ends,
          .n_allowed = 2,
          .end_ids = ends,
          .n_end_ids = 2,
          .min_tokens = 1},
         -1},
    };
    struct phi_sampler s = make(V);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct phi_sampling_state greedy = cases[i].state, drawn = cases[i].state;
        int32_t token = phi_sampler_sample(&s, row, &greedy);
        if (token != cases[i].expected)
            fail_msg("%s: %d instead of %d", cases[i].name, token, cases[i].expected);
        /* So low a temperature gives the same, or the one that is equal to it. */
        drawn.temperature = 0.001;
        drawn.top_p = 1;
        token = phi_sampler_sample(&s, row, &drawn);
        if (token != cases[i].expected && !(cases[i].expected == 1 && token == 3))
            fail_msg("%s at low temperature: %d", cases[i].name, token);
    }
    phi_sampler_deinit(&s);
}

/* The set of tokens that can come out: draws at many indices. */
static unsigned support(struct phi_sampler *s, const float *x, struct phi_sampling_state state)
{
    static int32_t output[400];
    unsigned seen = 0;
    state.output = output;
    for (state.n_output = 0; state.n_output < 400; state.n_output++)
        seen |= 1u << phi_sampler_sample(s, x, &state);
    return seen;
}

static void test_kept_tokens(void **state)
{
    (void)state;
    /* probabilities 0.4, 0.1, 0.2, 0.2, 0.1 and a masked-like tail */
    float x[V] = {logf(0.4f), logf(0.1f), logf(0.2f), logf(0.2f), logf(0.1f), -40.0f};
    static const struct {
        int top_k;
        double top_p, min_p;
        unsigned expected;
    } cases[] = {
        {0, 1, 0, 037},      {1, 1, 0, 01},     {2, 1, 0, 015},   {3, 1, 0, 015},
        {4, 1, 0, 037},      {6, 1, 0, 037},    {100, 1, 0, 037}, {0, 1e-9, 0, 01},
        {0, 0.39, 0, 01},    {0, 0.41, 0, 05},  {0, 0.59, 0, 05}, {0, 0.61, 0, 015},
        {0, 0.81, 0, 017},   {0, 0.91, 0, 037}, {0, 1, 1, 01},    {0, 1, 0.51, 01},
        {0, 1, 0.49, 015},   {0, 1, 0.24, 037}, {2, 0.49, 0, 01}, {2, 0.51, 0, 05},
        {4, 0.91, 0.4, 015}, {1, 0.5, 1, 01},
    };
    struct phi_sampler s = make(V);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct phi_sampling_state c;
        phi_sampling_state_init(&c);
        c.temperature = 1;
        c.top_k = cases[i].top_k;
        c.top_p = cases[i].top_p;
        c.min_p = cases[i].min_p;
        c.key = 11;
        unsigned seen = support(&s, x, c);
        if (seen != cases[i].expected)
            fail_msg("top_k %d top_p %g min_p %g: %o instead of %o", c.top_k, c.top_p, c.min_p,
                     seen, cases[i].expected);
    }
    phi_sampler_deinit(&s);
}

/* ---------------------------------------------------------------- a plain reference */

static const float *sorted_by;

static int falling(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sorted_by[i] != sorted_by[j])
        return sorted_by[i] < sorted_by[j] ? 1 : -1;
    return i - j;
}

/* Where u must lie for `token` to be drawn, in double, everything sorted: [lo, hi]. False when the
 * token is not kept. */
static bool interval_of(const float *logits, size_t n, const struct phi_sampling_state *c,
                        int32_t token, double *lo, double *hi)
{
    int32_t *order = malloc(n * sizeof *order);
    float *x = malloc(n * sizeof *x);
    double *p = malloc(n * sizeof *p), total = 0, before = 0;
    for (size_t i = 0; i < n; i++) {
        order[i] = (int32_t)i;
        x[i] = logits[i] / (float)c->temperature;
    }
    sorted_by = x;
    qsort(order, n, sizeof *order, falling);
    size_t kept = n;
    double max = x[order[0]];
    if (c->min_p > 0)
        for (kept = 1; kept < n && x[order[kept]] >= max + log(c->min_p);)
            kept++;
    bool top = c->top_p < 1 || (c->top_k > 0 && (size_t)c->top_k < n);
    if (c->top_k > 0 && (size_t)c->top_k < kept) {
        size_t k = (size_t)c->top_k;
        while (k < kept && x[order[k]] == x[order[k - 1]])
            k++;
        kept = k;
    }
    for (size_t j = 0; j < kept; j++)
        total += exp(x[order[j]] - max);
    size_t nucleus = 0;
    while (nucleus < kept && (nucleus == 0 || before < c->top_p * total))
        before += exp(x[order[nucleus++]] - max);
    kept = c->top_p < 1 ? nucleus : kept;
    for (size_t i = 0; i < n; i++)
        p[i] = 0;
    for (size_t j = 0; j < kept; j++)
        p[order[j]] = exp(x[order[j]] - max);
    total = 0;
    *lo = *hi = -1;
    for (size_t j = 0; j < n; j++) {
        int32_t id = top ? order[j] : (int32_t)j;
        if (id == token) {
            *lo = total;
            *hi = total + p[id];
        }
        total += p[id];
    }
    bool is_kept = p[token] > 0;
    *lo /= total;
    *hi /= total;
    free(order);
    free(x);
    free(p);
    return is_kept;
}

static void test_against_reference(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 7, 64, 1000, 1024, 1025, 5003};
    uint64_t n_random = 0;
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++) {
        size_t n = sizes[z];
        struct phi_sampler s = make(n);
        float *x = malloc(n * sizeof *x);
        for (int trial = 0; trial < 300; trial++) {
            static const double widths[] = {0.5, 4, 20, 200};
            double width = widths[trial % 4];
            for (size_t i = 0; i < n; i++) {
                x[i] =
                    (float)(width * phi_random_unit(phi_random_u64(99, z, n_random++)) - width / 2);
                if (trial % 3 == 0)
                    x[i] = roundf(x[i] * 2) / 2; /* many equal values */
            }
            struct phi_sampling_state c;
            phi_sampling_state_init(&c);
            c.temperature = (double[]){0.3, 1, 2.5}[trial % 3];
            c.top_k = (int[]){0, 0, 1, 5, 50, 4000}[trial % 6];
            c.top_p = (double[]){1, 0.95, 0.3, 0.999, 1}[trial % 5];
            c.min_p = (double[]){0, 0, 0, 0.1, 0.5, 0.001, 0}[trial % 7];
            c.key = 5;
            c.stream = (uint64_t)trial;
            double u = phi_random_unit(phi_random_u64(c.key, c.stream, 0)), lo, hi;
            int32_t token = phi_sampler_sample(&s, x, &c);
            assert_true(interval_of(x, n, &c, token, &lo, &hi));
            if (u < lo - 1e-5 || u > hi + 1e-5)
                fail_msg("n %zu trial %d: u %.9f is not in [%.9f, %.9f] of token %d", n, trial, u,
                         lo, hi, token);
        }
        free(x);
        phi_sampler_deinit(&s);
    }
}

/* ---------------------------------------------------------------- distribution, seeds */

static void test_chi_square(void **state)
{
    (void)state;
    enum { N = 8, DRAWS = 40000 };
    static const double p[N] = {0.02, 0.3, 0.05, 0.13, 0.2, 0.1, 0.15, 0.05};
    static int32_t output[1];
    struct phi_sampler s = make(N);
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)log(p[i]);
    for (int mode = 0; mode < 3;
         mode++) { /* all ids; top_k off by its size; the top_p path with p ~ 1 */
        int counts[N] = {0};
        for (uint64_t i = 0; i < DRAWS; i++) {
            struct phi_sampling_state c;
            phi_sampling_state_init(&c);
            c.temperature = 1;
            c.top_k = mode == 1 ? N : 0;
            c.top_p = mode == 2 ? 0.999999 : 1;
            c.output = output;
            c.key = mode == 0 ? i : 42; /* over seeds, or over answers of one seed */
            c.stream = mode == 0 ? 0 : i;
            counts[phi_sampler_sample(&s, x, &c)]++;
        }
        double chi2 = 0;
        for (int i = 0; i < N; i++)
            chi2 += (counts[i] - DRAWS * p[i]) * (counts[i] - DRAWS * p[i]) / (DRAWS * p[i]);
        printf("# chi-square with 7 degrees of freedom: %.2f\n", chi2);
        assert_true(chi2 < 24.3 && chi2 > 0.5); /* 24.3: one in a thousand */
    }
    phi_sampler_deinit(&s);
}

/* A draw is a function of key, stream and index. */
static void test_draws_repeat(void **state)
{
    (void)state;
    enum { N = 500 };
    static int32_t output[64];
    float x[N];
    struct phi_sampler a = make(N), b = make(N);
    int differ_by_seed = 0, differ_by_index = 0;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 7);
    struct phi_sampling_state c;
    phi_sampling_state_init(&c);
    c.temperature = 1;
    c.output = output;
    int32_t first = phi_sampler_sample(&a, x, &c);
    for (c.n_output = 0; c.n_output < 64; c.n_output++) {
        c.key = 1;
        int32_t token = phi_sampler_sample(&a, x, &c);
        assert_int_equal(token, phi_sampler_sample(&b, x, &c));
        differ_by_index += token != first;
        c.key = 2;
        differ_by_seed += token != phi_sampler_sample(&a, x, &c);
    }
    assert_true(differ_by_seed > 50 && differ_by_index > 50);
    phi_sampler_deinit(&a);
    phi_sampler_deinit(&b);
}

/* ---------------------------------------------------------------- log-probabilities */

static void test_logprobs(void **state)
{
    (void)state;
    enum { N = 3000 };
    float *x = malloc(N * sizeof *x);
    struct phi_sampler s = make(N);
    double sum = 0, max = -1e9, total = 0;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(30 * phi_random_unit(phi_random_u64(3, 0, (uint64_t)i)) - 20);
        max = x[i] > max ? x[i] : max;
    }
    for (int i = 0; i < N; i++)
        sum += exp(x[i] - max);
    assert_true(fabs(phi_logsumexp(&phi_kernels_ref, x, (float)max, N) - (max + log(sum))) < 1e-6);
    struct phi_logprob *all = malloc((N + 2) * sizeof *all);
    phi_logprobs_row(&s, x, 17, N + 1, all);
    assert_int_equal(all[0].token, 17);
    for (int j = 1; j <= N; j++) {
        assert_int_equal(all[j].rank, j);
        assert_true(fabs(all[j].logprob - (x[all[j].token] - max - log(sum))) < 1e-5);
        assert_true(j == 1 || x[all[j].token] <= x[all[j - 1].token]);
        if (all[j].token == 17)
            assert_int_equal(all[0].rank, j);
        total += exp(all[j].logprob);
    }
    assert_int_equal(all[N + 1].token, -1);
    assert_true(fabs(total - 1) < 1e-5);
    phi_logprobs_row(&s, x, 5, 0, all);
    assert_int_equal(all[0].token, 5);
    free(all);
    free(x);
    phi_sampler_deinit(&s);
}

/* One undefined logit, wherever it stands, is seen by those who choose and those who tell. */
static void test_undefined(void **state)
{
    (void)state;
    enum { N = 1037 };
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float x[N];
    struct phi_logprob out[1];
    struct phi_sampler s = make(N);
    for (int i = 0; i < N; i++)
        x[i] = (float)-i;
    for (int i = 0; i < 4 * N; i++) {
        struct phi_sampling_state c;
        float old = x[i / 4];
        phi_sampling_state_init(&c);
        c.temperature = i % 2;
        assert_int_not_equal(phi_sampler_sample(&s, x, &c), PHI_TOKEN_UNDEFINED);
        assert_true(phi_logprobs_row(&s, x, 3, 0, out));
        x[i / 4] = bad[i % 4];
        assert_int_equal(phi_sampler_sample(&s, x, &c), PHI_TOKEN_UNDEFINED);
        assert_false(phi_logprobs_row(&s, x, 3, 0, out));
        x[i / 4] = old;
    }
    phi_sampler_deinit(&s);
}

int main(void)
{
    phi_fp_env_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors),
        cmocka_unit_test(test_kept_tokens),
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_draws_repeat),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_undefined),
    };
    return cmocka_run_group_tests_name("engine/sampler", tests, NULL, NULL);
}
