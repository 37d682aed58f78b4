/* test_prefix_cache.c: which block is found for which tokens, also when every hash collides, and what
 * the scheduler makes of it. */
#include "engine/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"

enum { SIZE = 4 };

static const struct phi_prefix_seed seed = {1, {2, 3}};
static const struct phi_prefix_salt no_salt;

static void test_find_compares_prefix_and_tokens(void **state)
{
    static const int32_t a[SIZE] = {1, 2, 3, 4}, b[SIZE] = {1, 2, 3, 5}, c[SIZE] = {9, 9, 9, 9};
    struct phi_prefix_parent root = phi_prefix_root(no_salt, false), other = phi_prefix_root(no_salt, true);
    struct phi_prefix_cache cache;
    (void)state;
    assert_int_equal(phi_prefix_cache_init(&cache, 8, SIZE, &seed, NULL), PHI_OK);
    cache.n_buckets = 1; /* every content in one bucket */
    assert_int_equal(phi_prefix_find(&cache, root, a), PHI_NO_BLOCK);
    uint64_t name_a = phi_prefix_insert(&cache, 3, root, a);
    uint64_t name_b = phi_prefix_insert(&cache, 5, root, b);
    uint64_t name_ac = phi_prefix_insert(&cache, 7, phi_prefix_after(name_a), c);
    assert_true(name_a != name_b && name_ac != name_a && name_a != root.name && name_a != other.name);
    assert_int_equal(phi_prefix_find(&cache, root, a), 3);
    assert_int_equal(phi_prefix_find(&cache, root, b), 5);
    assert_int_equal(phi_prefix_find(&cache, phi_prefix_after(name_a), c), 7);
    assert_int_equal(phi_prefix_find(&cache, phi_prefix_after(name_b), c), PHI_NO_BLOCK);
    assert_int_equal(phi_prefix_find(&cache, other, a), PHI_NO_BLOCK);
    /* The same content again: the first block stays the cached one. */
    assert_int_equal(phi_prefix_insert(&cache, 6, root, a), name_a);
    assert_int_equal(phi_prefix_name(&cache, 6), 0);
    /* A content that is forgotten gets a new name, under which its old continuation is not found. */
    phi_prefix_forget(&cache, 3);
    phi_prefix_forget(&cache, 3);
    assert_int_equal(phi_prefix_find(&cache, root, a), PHI_NO_BLOCK);
    assert_int_equal(phi_prefix_find(&cache, root, b), 5);
    uint64_t again = phi_prefix_insert(&cache, 2, root, a);
    assert_true(again != name_a);
    assert_int_equal(phi_prefix_find(&cache, phi_prefix_after(again), c), PHI_NO_BLOCK);
    /* A block that still bears a name under the lost prefix takes the new one. */
    assert_true(phi_prefix_insert(&cache, 7, phi_prefix_after(again), c) != name_ac);
    assert_int_equal(phi_prefix_find(&cache, phi_prefix_after(again), c), 7);
    assert_int_equal(phi_prefix_find(&cache, phi_prefix_after(name_a), c), PHI_NO_BLOCK);
    phi_prefix_cache_deinit(&cache);
}

/* Salts part the roots, in each regime, and only they do. */
static void test_salts(void **state)
{
    static const int32_t tokens[SIZE] = {1, 2, 3, 4};
    static const char *const texts[] = {"", "a", "b", "ab", "a "};
    enum { N = sizeof texts / sizeof texts[0] };
    struct phi_prefix_cache cache;
    (void)state;
    assert_int_equal(phi_prefix_cache_init(&cache, 2 * N, SIZE, &seed, NULL), PHI_OK);
    cache.n_buckets = 1;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < 2 * N; i++) {
            struct phi_prefix_salt salt = phi_prefix_salt(&cache, phi_str_from(texts[i / 2]));
            struct phi_prefix_parent root = phi_prefix_root(salt, i % 2);
            uint32_t found = phi_prefix_find(&cache, root, tokens);
            assert_int_equal(found, pass == 0 ? PHI_NO_BLOCK : i);
            phi_prefix_insert(&cache, i, root, tokens);
        }
    }
    /* Another engine's salts are others. */
    struct phi_prefix_salt before = phi_prefix_salt(&cache, PHI_STR("a")), after;
    cache.seed.salts[1]++;
    after = phi_prefix_salt(&cache, PHI_STR("a"));
    assert_memory_not_equal(&before, &after, sizeof after);
    phi_prefix_cache_deinit(&cache);
}

static void test_failed_allocations(void **state)
{
    struct phi_prefix_cache cache;
    struct phi_error err;
    (void)state;
    for (long n = 1; n <= 3; n++) {
        phi_alloc_fail_nth(n);
        assert_int_equal(phi_prefix_cache_init(&cache, 8, SIZE, &seed, &err), PHI_ERR_MEMORY);
        phi_alloc_fail_nth(0);
    }
}

/* ---------------------------------------------------------------- in the scheduler */

struct fixture {
    struct phi_kvpool pool;
    struct phi_prefix_cache cache;
    struct phi_scheduler scheduler;
    struct phi_sequence q[3];
    uint32_t blocks[3][16];
    int32_t first_token[3]; /* tokens of sequence i are first_token[i], +1, +2, ... */
};

static struct fixture f;

static void read_tokens(const struct phi_sequence *q, size_t begin, size_t n, int32_t *out)
{
    for (size_t p = begin; p < begin + n; p++)
        *out++ = f.first_token[q - f.q] + (int32_t)p;
}

static void set_up(uint32_t n_blocks, size_t original_length)
{
    struct phi_scheduler_limits limits = {.max_num_seqs = 3, .max_num_batched_tokens = 64, .max_logit_rows = 3,
                                          .block_size = SIZE, .original_length = original_length};
    memset(&f, 0, sizeof f);
    assert_int_equal(phi_kvpool_init(&f.pool, n_blocks, NULL), PHI_OK);
    assert_int_equal(phi_prefix_cache_init(&f.cache, n_blocks, SIZE, &seed, NULL), PHI_OK);
    assert_int_equal(phi_scheduler_init(&f.scheduler, &limits, &f.pool, &f.cache, NULL), PHI_OK);
    for (int i = 0; i < 3; i++) {
        f.q[i].blocks = f.blocks[i];
        f.q[i].read_tokens = read_tokens;
    }
}

static void tear_down(void)
{
    phi_scheduler_deinit(&f.scheduler);
    phi_prefix_cache_deinit(&f.cache);
    phi_kvpool_deinit(&f.pool);
}

/* Adds sequence i and makes one step; returns the rows that it computes. */
static uint32_t step_with(int i, size_t n_prompt)
{
    uint32_t n_rows = 0;
    f.q[i].n_prompt = f.q[i].n_tokens = n_prompt;
    phi_scheduler_add(&f.scheduler, &f.q[i]);
    const struct phi_plan *plan = phi_scheduler_plan(&f.scheduler);
    for (uint32_t e = 0; e < plan->n_entries; e++)
        if (plan->entries[e].sequence == &f.q[i])
            n_rows = plan->entries[e].n_rows;
    phi_scheduler_commit(&f.scheduler);
    return n_rows;
}

static void end(int i)
{
    phi_scheduler_end(&f.scheduler, &f.q[i]);
    f.q[i].state = PHI_SEQUENCE_NEW;
    f.q[i].n_computed = 0;
}

static const struct {
    size_t first, second; /* prompt lengths; the same tokens as far as both go */
    uint32_t n_rows;      /* that the second one computes */
    bool copies;
} cases[] = {
    {12, 12, 1, true},   /* all blocks are known: the last one is copied for its last token */
    {12, 13, 1, false},  /* one token beyond the known blocks */
    {12, 16, 4, false},
    {12, 11, 3, false},  /* the third block is not full in the second prompt */
    {3, 3, 3, false},    /* nothing was ever full */
    {12, 4, 1, true},
    {12, 1, 1, false},
};

static void test_second_prompt_computes_what_is_new(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int while_running = 0; while_running < 2; while_running++) {
            set_up(16, 0);
            assert_int_equal(step_with(0, cases[i].first), cases[i].first);
            if (!while_running)
                end(0);
            else
                f.q[0].n_tokens++; /* it goes on */
            assert_int_equal(step_with(1, cases[i].second), cases[i].n_rows);
            bool copied = false;
            for (uint32_t e = 0; e < f.scheduler.plan.n_entries; e++)
                copied |= f.scheduler.plan.entries[e].copy_from != PHI_NO_BLOCK;
            assert_int_equal(copied, cases[i].copies);
            assert_int_equal(f.scheduler.n_found, cases[i].second - cases[i].n_rows);
            tear_down();
        }
    }
}

static void test_other_tokens_and_regimes_share_nothing(void **state)
{
    (void)state;
    set_up(16, 0);
    step_with(0, 12);
    f.first_token[1] = 1;
    assert_int_equal(step_with(1, 12), 12);
    tear_down();
    set_up(16, 10);
    step_with(0, 8); /* short factors */
    end(0);
    assert_int_equal(step_with(1, 12), 12); /* long ones */
    end(1);
    assert_int_equal(step_with(2, 16), 4); /* long ones, known */
    tear_down();
}

static void test_least_recently_used_goes_first(void **state)
{
    (void)state;
    set_up(6, 0);
    step_with(0, 8); /* two blocks */
    end(0);
    f.first_token[1] = 100;
    step_with(1, 8); /* two more */
    end(1);
    f.first_token[2] = 200;
    step_with(2, 12); /* three: the two that were never used, and the older prompt's last one */
    end(2);
    assert_int_equal(step_with(0, 8), 4); /* in the place of the second prompt's last one */
    end(0);
    assert_int_equal(step_with(1, 8), 4);
    tear_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_compares_prefix_and_tokens),
        cmocka_unit_test(test_salts),
        cmocka_unit_test(test_failed_allocations),
        cmocka_unit_test(test_second_prompt_computes_what_is_new),
        cmocka_unit_test(test_other_tokens_and_regimes_share_nothing),
        cmocka_unit_test(test_least_recently_used_goes_first),
    };
    return cmocka_run_group_tests_name("engine/prefix_cache", tests, NULL, NULL);
}
