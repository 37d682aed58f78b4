/* What a request may not ask for, what an engine may not hold, and what happens when memory or
 * numbers fail: each with the text that a user reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "engine/memory_plan.h"
#include "engine_fixture.h"
#include "formats/safetensors.h"

/* ---------------------------------------------------------------- fields */

struct bad_field {
    void (*set)(struct phi_sampling *s);
    const char *text;
};

#define FIELD(name, ...)                                                                           \
    static void name(struct phi_sampling *s)                                                       \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }

static const struct phi_text empty_text = {"", 0}, bad_utf8 = {"a\xff", 2};
static const struct phi_logit_bias bias_high = {256, 1}, bias_low = {-1, 1}, bias_nan = {3, NAN};
static const int32_t outside = 256, inside = 3;

FIELD(temperature_low, s->temperature = -0.1)
FIELD(temperature_nan, s->temperature = NAN)
FIELD(temperature_inf, s->temperature = INFINITY)
FIELD(top_p_0, s->top_p = 0)
FIELD(top_p_high, s->top_p = 1.0000001)
FIELD(top_p_nan, s->top_p = NAN)
FIELD(top_k_low, s->top_k = -2)
FIELD(min_p_low, s->min_p = -0.1)
FIELD(min_p_high, s->min_p = 1.5)
FIELD(repetition_0, s->repetition_penalty = 0)
FIELD(presence_high, s->presence_penalty = 2.1)
FIELD(frequency_low, s->frequency_penalty = -2.5)
FIELD(n_0, s->n = 0)
FIELD(n_high, s->n = 16385)
FIELD(n_greedy, s->n = 2; s->temperature = 0)
FIELD(max_tokens_low, s->max_tokens = -1)
FIELD(min_tokens_low, s->min_tokens = -1)
FIELD(min_tokens_high, s->min_tokens = 17)
FIELD(min_tokens_over_context, s->max_tokens = 0; s->min_tokens = 127)
FIELD(logprobs_low, s->logprobs = -2)
FIELD(prompt_logprobs_high, s->prompt_logprobs = 257)
FIELD(bias_outside, s->logit_bias = &bias_high; s->n_logit_bias = 1)
FIELD(bias_negative, s->logit_bias = &bias_low; s->n_logit_bias = 1)
FIELD(bias_not_a_number, s->logit_bias = &bias_nan; s->n_logit_bias = 1)
FIELD(allowed_outside, s->allowed_token_ids = &outside; s->n_allowed_token_ids = 1)
FIELD(allowed_empty, s->allowed_token_ids = &inside)
FIELD(stop_empty, s->stop = &empty_text; s->n_stop = 1)
FIELD(stop_bytes, s->stop = &bad_utf8; s->n_stop = 1)

static const struct bad_field bad_fields[] = {
    {temperature_low, "temperature must be non-negative, got -0.1."},
    {temperature_nan, "temperature must be non-negative, got nan."},
    {temperature_inf, "temperature must be finite, got inf."},
    {top_p_0, "top_p must be in (0, 1], got 0."},
    {top_p_high, "top_p must be in (0, 1], got 1.0000001."},
    {top_p_nan, "top_p must be in (0, 1], got nan."},
    {top_k_low, "top_k must be 0 (disable), or at least 1, got -2."},
    {min_p_low, "min_p must be in [0, 1], got -0.1."},
    {min_p_high, "min_p must be in [0, 1], got 1.5."},
    {repetition_0, "repetition_penalty must be greater than zero, got 0."},
    {presence_high, "presence_penalty must be in [-2, 2], got 2.1."},
    {frequency_low, "frequency_penalty must be in [-2, 2], got -2.5."},
    {n_0, "n must be at least 1, got 0."},
    {n_high, "n must be at most 16384, got 16385."},
    {n_greedy, "n must be 1 when using greedy sampling, got 2."},
    {max_tokens_low, "max_tokens must be at least 1, got -1."},
    {min_tokens_low, "min_tokens must be greater than or equal to 0, got -1."},
    {min_tokens_high, "min_tokens must be less than or equal to max_tokens=16, got 17."},
    {min_tokens_over_context, "min_tokens must be less than or equal to max_tokens=126, got 127."},
    {logprobs_low, "logprobs must be between 0 and 256, or -1 for none, got -2."},
    {prompt_logprobs_high, "prompt_logprobs must be between 0 and 256, or -1 for none, got 257."},
    {bias_outside, "logit_bias: token id 256 is out of vocabulary (size 256)."},
    {bias_negative, "logit_bias: token id -1 is out of vocabulary (size 256)."},
    {bias_not_a_number, "logit_bias: the bias of token id 3 is not a number."},
    {allowed_outside, "allowed_token_ids: token id 256 is out of vocabulary (size 256)."},
    {allowed_empty, "allowed_token_ids is not None and empty!"},
    {stop_empty, "stop: the checkpoint has no tokenizer.json."},
    {stop_bytes, "stop: the checkpoint has no tokenizer.json."},
};

static void test_bad_fields(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine *e = create_engine(m, NULL);
    const int32_t ids[] = {1, 2};
    for (size_t i = 0; i < sizeof bad_fields / sizeof *bad_fields; i++) {
        struct phi_sampling s;
        struct phi_request *r = NULL;
        struct phi_error err;
        phi_sampling_init(&s);
        bad_fields[i].set(&s);
        assert_int_equal(phi_request_submit(e, ids, 2, &s, NULL, &r, &err), PHI_ERR_INVALID);
        assert_string_equal(err.text, bad_fields[i].text);
        assert_null(r);
    }
    phi_engine_destroy(e);
    phi_model_close(m);
}

static void test_bad_prompts(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine *e = create_engine(m, NULL);
    struct phi_sampling s;
    struct phi_request *r;
    struct phi_error err;
    struct answer *a = malloc(sizeof *a);
    int32_t ids[200] = {0};
    phi_sampling_init(&s);
    assert_int_equal(phi_request_submit(e, ids, 0, &s, NULL, &r, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text, "The prompt cannot be empty.");
    ids[1] = 256;
    assert_int_equal(phi_request_submit(e, ids, 3, &s, NULL, &r, &err), PHI_ERR_INVALID);
    assert_string_equal(err.text,
                        "Token id 256 is out of vocabulary (index 1 of the prompt; size 256).");
    ids[1] = 0;
    assert_int_equal(phi_request_submit(e, ids, 113, &s, NULL, &r, &err), PHI_ERR_TOO_LONG);
    assert_string_equal(
        err.text, "This model's maximum context length is 128 tokens. However, you requested 16 "
                  "output tokens and your prompt contains 113 input tokens, for a total of 129 "
                  "tokens. Please reduce the length of the input prompt or the number of "
                  "requested output tokens.");
    s.max_tokens = 0;
    assert_int_equal(phi_request_submit(e, ids, 128, &s, NULL, &r, &err), PHI_ERR_TOO_LONG);
    s = greedy(15);
    run(e, ids, 113, &s, a); /* exactly full */
    assert_int_equal(a->n_tokens, 15);
    phi_engine_destroy(e);
    phi_model_close(m);
    free(a);
}

/* ---------------------------------------------------------------- memory plan */

static void test_memory_plan(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine_info info;
    struct phi_engine_options base;
    struct phi_error err;
    phi_engine_options_init(&base);
    assert_int_equal(phi_engine_plan(m, &base, &info, &err), PHI_OK);
    assert_int_equal(info.max_model_len, 128);
    assert_int_equal(info.kv_tokens, 64 * 128); /* all sequences at full length */
    assert_int_equal(info.kv_bytes, info.kv_tokens * info.kv_bytes_per_token);
    uint64_t per_block = 32 * info.kv_bytes_per_token;

    static const struct {
        int max_model_len, max_num_seqs, max_num_batched_tokens, block_size;
        const char *text;
    } bad[] = {
        {-1, 64, 512, 32, "max_model_len must be at least 1, got -1."},
        {129, 64, 512, 32,
         "max_model_len (129) is greater than the model's longest context "
         "(max_position_embeddings=128); "
         "give 128 or less."},
        {0, 0, 512, 32, "max_num_seqs must be between 1 and 65536, got 0."},
        {0, 64, 63, 32,
         "max_num_batched_tokens (63) must be greater than or equal to max_num_seqs (64)."},
        {0, 64, 0, 32, "max_num_batched_tokens must be between 1 and 1048576, got 0."},
        {0, 64, 512, 8, "block_size must be a multiple of 16 from 16 to 256, got 8."},
        {0, 64, 512, 24, "block_size must be a multiple of 16 from 16 to 256, got 24."},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct phi_engine_options o = base;
        o.max_model_len = bad[i].max_model_len;
        o.max_num_seqs = bad[i].max_num_seqs;
        o.max_num_batched_tokens = bad[i].max_num_batched_tokens;
        o.block_size = bad[i].block_size;
        assert_int_equal(phi_engine_plan(m, &o, &info, &err), PHI_ERR_INVALID);
        assert_string_equal(err.text, bad[i].text);
    }

    /* Three blocks: 96 tokens by choice, but not the 128 that were asked for. */
    struct phi_engine_options small = base;
    small.kv_bytes = 3 * per_block + per_block / 2;
    assert_int_equal(phi_engine_plan(m, &small, &info, &err), PHI_OK);
    assert_int_equal(info.max_model_len, 96);
    assert_int_equal(info.kv_tokens, 96);
    small.max_model_len = 97;
    assert_int_equal(phi_engine_plan(m, &small, &info, &err), PHI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "max_model_len=97 tokens needs 0.000 GiB"));
    assert_non_null(strstr(err.text, "the longest context that fits is 96 tokens"));
    small.max_model_len = 0;
    small.kv_bytes = per_block - 1;
    assert_int_equal(phi_engine_plan(m, &small, &info, &err), PHI_ERR_MEMORY);
    small.kv_bytes = UINT64_MAX / 2;
    assert_int_equal(phi_engine_plan(m, &small, &info, &err), PHI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "kv_bytes asks for"));

    /* A small machine: a quarter of its memory, or one sequence, or an error. */
    struct phi_memory_plan plan;
    struct phi_memory memory = {.total_bytes = 1ull << 40, .available_bytes = 1ull << 40};
    assert_int_equal(phi_memory_plan_make(m, &base, &memory, &plan, &err), PHI_OK);
    size_t fixed = plan.workspace_bytes + plan.logits_bytes + plan.sampler_bytes;
    memory = (struct phi_memory){.total_bytes = 40 * per_block,
                                 .available_bytes = fixed + 30 * per_block};
    assert_int_equal(phi_memory_plan_make(m, &base, &memory, &plan, &err), PHI_OK);
    assert_int_equal(plan.n_blocks, 10);
    memory.total_bytes = 4 * per_block;
    assert_int_equal(phi_memory_plan_make(m, &base, &memory, &plan, &err), PHI_OK);
    assert_int_equal(plan.n_blocks, 4);
    memory.available_bytes = fixed + 2 * per_block;
    assert_int_equal(phi_memory_plan_make(m, &base, &memory, &plan, &err), PHI_OK);
    assert_int_equal(plan.max_model_len, 64);
    base.max_model_len = 128;
    assert_int_equal(phi_memory_plan_make(m, &base, &memory, &plan, &err), PHI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "the longest context that fits is 64 tokens"));
    phi_model_close(m);
}

/* A share of the memory: the pool gets what process, weights and scratch leave of it. */
static void test_memory_utilization(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_model_info info;
    struct phi_memory_plan plan;
    struct phi_engine_options o;
    struct phi_error err;
    const uint64_t gib = 1ull << 30;
    struct phi_memory memory = {
        .total_bytes = 16 * gib, .available_bytes = 7 * gib, .process_bytes = gib};
    phi_model_get_info(m, &info);
    phi_engine_options_init(&o);
    static const double bad[] = {-0.1, 1.01, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.memory_utilization = bad[i];
        assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_ERR_INVALID);
        assert_non_null(strstr(err.text, "memory_utilization must be in (0, 1]"));
    }
    o.memory_utilization = 0.25;
    assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_OK);
    size_t fixed = plan.workspace_bytes + plan.logits_bytes + plan.sampler_bytes;
    assert_int_equal(plan.n_blocks,
                     (4 * gib - gib - info.weight_bytes - fixed) / plan.block_bytes);
    assert_int_equal(plan.max_model_len, 128);

    /* What the process holds already is not available, but is part of the share. */
    o.memory_utilization = 0.5;
    assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_OK);
    o.memory_utilization = 0.51;
    assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_ERR_MEMORY);
    assert_string_equal(err.text,
                        "memory_utilization=0.51 asks for 8.16 GiB of the 16.00 GiB of memory, but "
                        "only 8.00 GiB are available: lower it to 0.50, or set the size of the KV "
                        "cache itself.");
    o.kv_bytes = 3 * plan.block_bytes; /* wins */
    assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_OK);
    assert_int_equal(plan.n_blocks, 3);

    /* A share that weights and scratch fill, or nearly. */
    o.kv_bytes = 0;
    o.memory_utilization = 0.05;
    assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "the longest context that fits is 0 tokens"));
    o.memory_utilization = 0.0625;
    memory.process_bytes = gib - info.weight_bytes - fixed - 2 * plan.block_bytes;
    assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_OK);
    assert_int_equal(plan.max_model_len, 64);
    o.max_model_len = 100;
    assert_int_equal(phi_memory_plan_make(m, &o, &memory, &plan, &err), PHI_ERR_MEMORY);
    assert_non_null(strstr(err.text, "the longest context that fits is 64 tokens"));
    phi_model_close(m);
}

/* ---------------------------------------------------------------- NaN */

/* A copy of phi3-gqa whose embedding of token `id` holds one NaN; the head, which is tied to it,
 * then gives that token a NaN logit in every row. Untied (phi3-swa), only prompts with the token
 * suffer. */
static void write_nan_checkpoint(const char *dir, const char *source, int32_t id, char *out,
                                 size_t capacity)
{
    char path[2400], command[2600];
    struct phi_safetensors *st;
    struct phi_tensor tensors[64];
    snprintf(out, capacity, "%s/phi-nan-XXXXXX", dir);
    assert_non_null(mkdtemp(out));
    snprintf(path, sizeof path, "%s/model.safetensors", golden_dir(source));
    assert_int_equal(phi_safetensors_open_file(path, &st, NULL), PHI_OK);
    size_t n = phi_safetensors_n_tensors(st);
    assert_true(n <= 64);
    void *copy = NULL;
    for (size_t i = 0; i < n; i++) {
        tensors[i] = *phi_safetensors_at(st, i);
        if (!phi_str_eq_c(tensors[i].name, "model.embed_tokens.weight"))
            continue;
        size_t row_bytes = tensors[i].n_bytes / tensors[i].shape[0];
        copy = malloc(tensors[i].n_bytes);
        memcpy(copy, tensors[i].data, tensors[i].n_bytes);
        memset((char *)copy + (size_t)id * row_bytes, 0xFF, phi_st_dtype_bytes(tensors[i].dtype));
        tensors[i].data = copy;
    }
    assert_non_null(copy);
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    assert_int_equal(phi_safetensors_write(path, tensors, n, NULL), PHI_OK);
    snprintf(command, sizeof command, "cp '%s/config.json' '%s/'", golden_dir(source), out);
    assert_int_equal(system(command), 0);
    phi_safetensors_close(st);
    free(copy);
}

static void test_nan(void **state)
{
    (void)state;
    char dir[1200], command[1300];
    write_nan_checkpoint("/tmp", "phi3-swa", 50, dir, sizeof dir);
    struct phi_model *m = open_model(dir, PHI_FLOAT32, 1),
                     *sound = open_model(golden_dir("phi3-swa"), PHI_FLOAT32, 1);
    struct phi_engine *e = create_engine(m, NULL), *reference = create_engine(sound, NULL);
    struct answer *a = malloc(3 * sizeof *a), *expected = malloc(sizeof *expected);
    const int32_t good[] = {1, 2, 3, 4, 5}, bad[] = {1, 2, 50, 4, 5};
    struct phi_sampling s = greedy(60), many = greedy(10);
    static const struct phi_logit_bias never = {50, -100};
    s.logit_bias = many.logit_bias = &never;
    s.n_logit_bias = many.n_logit_bias = 1;
    run(reference, good, 5, &s, expected);
    many.n = 3;
    many.temperature = 1;
    struct phi_request *first = submit(e, good, 5, &s), *sick = submit(e, bad, 5, &many);
    collect(sick, a, 3);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(a[k].finish, PHI_FINISH_ERROR);
        assert_int_equal(a[k].status, PHI_ERR_NAN);
        assert_string_equal(a[k].error, "the model produced NaN or infinite logits");
        assert_int_equal(a[k].n_tokens, 0);
    }
    collect(first, a, 1);
    assert_int_equal(a->finish, PHI_FINISH_LENGTH);
    assert_memory_equal(a->tokens, expected->tokens, 60 * sizeof(int32_t));
    struct phi_engine_stats stats;
    phi_engine_get_stats(e, &stats);
    assert_int_equal(stats.n_nan_requests, 1);
    phi_engine_destroy(e);
    phi_engine_destroy(reference);
    phi_model_close(m);
    phi_model_close(sound);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
    free(a);
    free(expected);
}

/* Masks that leave no token end the request, and say so. */
static void test_nothing_allowed(void **state)
{
    (void)state;
    struct phi_model *m = open_model(golden_dir("phi3-gqa"), PHI_FLOAT32, 1);
    struct phi_engine *e = create_engine(m, NULL);
    struct answer *a = malloc(sizeof *a);
    struct phi_sampling s = greedy(4);
    s.min_tokens = 2;
    s.stop_token_ids = s.allowed_token_ids = &inside;
    s.n_stop_token_ids = s.n_allowed_token_ids = 1;
    run(e, &inside, 1, &s, a);
    assert_int_equal(a->finish, PHI_FINISH_ERROR);
    assert_int_equal(a->status, PHI_ERR_INVALID);
    assert_non_null(strstr(a->error, "no token is allowed"));
    phi_engine_destroy(e);
    phi_model_close(m);
    free(a);
}

/* ---------------------------------------------------------------- allocation failures */

/* Fails each allocation in turn until everything succeeds. */
static void test_failing_allocations(void **state)
{
    (void)state;
    struct phi_error err;
    struct answer *a = malloc(2 * sizeof *a);
    const int32_t ids[] = {1, 2, 3};
    int n_failures = 0;
    bool done = false;
    struct phi_model_options mo;
    phi_model_options_init(&mo);
    mo.path = golden_dir("phi3-gqa");
    mo.n_threads = 1;
    for (long nth = 1; !done; nth++) {
        struct phi_model *m = NULL;
        struct phi_engine *e = NULL;
        struct phi_request *r = NULL;
        struct phi_engine_options eo;
        struct phi_sampling s = greedy(5);
        struct phi_logit_bias bias = {5, 1};
        s.n = 2;
        s.temperature = 1;
        s.logprobs = s.prompt_logprobs = 1;
        s.logit_bias = &bias;
        s.n_logit_bias = 1;
        phi_engine_options_init(&eo);
        phi_alloc_fail_nth(nth);
        enum phi_status status = phi_model_open(&mo, &m, &err);
        if (status == PHI_OK)
            status = phi_engine_create(m, &eo, &e, &err);
        if (status == PHI_OK)
            status = phi_request_submit(e, ids, 3, &s, NULL, &r, &err);
        phi_alloc_fail_nth(0);
        done = status == PHI_OK;
        if (done)
            collect(r, a, 2);
        else if (status != PHI_ERR_MEMORY)
            fail_msg("allocation %ld: %s", nth, err.text);
        n_failures += !done;
        phi_engine_destroy(e);
        phi_model_close(m);
    }
    printf("# %d allocations failed one by one\n", n_failures);
    assert_true(n_failures > 40);
    assert_int_equal(a[1].n_tokens, 5);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_fields),      cmocka_unit_test(test_bad_prompts),
        cmocka_unit_test(test_memory_plan),     cmocka_unit_test(test_memory_utilization),
        cmocka_unit_test(test_nan),             cmocka_unit_test(test_nothing_allowed),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests_name("engine/requests", tests, NULL, NULL);
}
