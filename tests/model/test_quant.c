/* test_quant.c: networks with integer weights: the same bits however they are run, near what floats
 * answer, and read from compressed-tensors files in all the forms these may have. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "model/weights.h"
#include "net_fixture.h"

enum { N_IDS = 45, MAX_TENSORS = 256 };

static void tokens(int32_t ids[N_IDS], int vocab_size)
{
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 11) % vocab_size;
}

/* A golden checkpoint's shape with columns that can be cut into groups, and random weights. */
static void widen(struct phi_config *c)
{
    c->hidden_size = 192;
    c->intermediate_size = 320; /* three segments of 128, the last one shorter; five are empty */
    c->n_heads = 4;
    c->n_kv_heads = 2;
    c->head_dim = 48;
}

struct quant_case {
    const char *dir;
    enum phi_quantization quantization;
    int group;
    enum phi_dtype dtype;
    uint64_t hash; /* of the logits, on any machine, with any compiler */
};

static const struct quant_case cases[] = {
    {"phi-head64", PHI_W8A8, 0, PHI_FLOAT32, 0x3e9dd4e9fda1cd0e},
    {"phi-head64", PHI_W4A8, 0, PHI_FLOAT32, 0xd14f987f140aab73},
    {"phi-head64", PHI_W4A8, 32, PHI_BFLOAT16, 0xc08acbe71738f234},
    {"phi3-gqa", PHI_W8A8, 0, PHI_BFLOAT16, 0xa228c98837da942a},
    {"phi3-gqa", PHI_W4A8, 32, PHI_FLOAT32, 0xa651f5c7a8b4ccfd},
    {"phi3-gqa", PHI_W4A8, 64, PHI_FLOAT16, 0x33ca39fd2b8d432c},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void open_case(struct net_fixture *f, const struct quant_case *c,
                      const struct phi_kernels *kernels, int n_threads)
{
    struct phi_error err;
    *f = (struct net_fixture){0};
    assert_int_equal(phi_config_read(golden_path(c->dir, ""), &f->config, NULL), PHI_OK);
    widen(&f->config);
    struct phi_net_options o = {.config = &f->config,
                                .dtype = c->dtype,
                                .kernels = kernels,
                                .n_threads = n_threads,
                                .seed = 7,
                                .quantization = c->quantization,
                                .quant_group_size = c->group};
    phi_fp_env_set();
    if (phi_net_open(&o, &f->net, &err) != PHI_OK)
        fail_msg("%s", err.text);
}

static uint64_t case_hash(const struct quant_case *c, const struct phi_kernels *kernels,
                          const struct run_options *run)
{
    struct net_fixture f;
    int32_t ids[N_IDS];
    open_case(&f, c, kernels, run->n_threads ? run->n_threads : 1);
    tokens(ids, f.config.vocab_size);
    float *logits = net_fixture_logits(&f, ids, N_IDS, run);
    uint64_t hash = net_fixture_hash(logits, N_IDS * (size_t)f.config.vocab_size * sizeof *logits);
    free(logits);
    net_fixture_close(&f);
    return hash;
}

static void test_hashes_on_every_instruction_set(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        for (const struct phi_kernels *const *t = phi_kernels_all(); *t; t++) {
            if ((*t)->features & ~phi_cpu_features())
                continue;
            uint64_t hash = case_hash(&cases[i], *t, &(struct run_options){0});
            if (hash != cases[i].hash)
                fail_msg("case %zu, %s: hash 0x%016llx", i, (*t)->name, (unsigned long long)hash);
        }
}

static void test_the_same_bits_however_it_runs(void **state)
{
    static const struct run_options ways[] = {
        {.n_threads = 3},
        {.chunk = 1},
        {.chunk = 2, .n_threads = 2},
        {.chunk = 7, .n_beside = 3},
        {.chunk = 13, .n_beside = 1},
        {.n_beside = 5, .n_threads = 2, .block_size = 32},
    };
    const struct phi_kernels *kernels;
    (void)state;
    assert_int_equal(phi_kernels_select(NULL, &kernels, NULL), PHI_OK);
    for (size_t i = 0; i < N_CASES; i++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
            if (case_hash(&cases[i], kernels, &ways[w]) != cases[i].hash)
                fail_msg("case %zu, way %zu: other bits", i, w);
}

static void test_near_what_floats_answer(void **state)
{
    static const double most[] = {[PHI_W8A8] = 0.03, [PHI_W4A8] = 0.3};
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        struct quant_case plain = cases[i];
        struct net_fixture f[2];
        int32_t ids[N_IDS];
        float *logits[2];
        double difference = 0, largest = 0;
        plain.quantization = PHI_UNQUANTIZED;
        for (int k = 0; k < 2; k++) {
            open_case(&f[k], k ? &plain : &cases[i], &phi_kernels_ref, 1);
            tokens(ids, f[k].config.vocab_size);
            logits[k] = net_fixture_logits(&f[k], ids, N_IDS, &(struct run_options){0});
        }
        for (size_t j = 0; j < N_IDS * (size_t)f[0].config.vocab_size; j++) {
            difference = fmax(difference, fabs((double)logits[0][j] - (double)logits[1][j]));
            largest = fmax(largest, fabs((double)logits[1][j]));
        }
        if (!(difference > 0 && difference < most[cases[i].quantization] * largest))
            fail_msg("case %zu: differs by %g of the largest logit", i, difference / largest);
        for (int k = 0; k < 2; k++) {
            free(logits[k]);
            net_fixture_close(&f[k]);
        }
    }
}

/* ---------------------------------------------------------------- from files */

/* The tensors of a golden checkpoint, of which one layer's weight is replaced by integers. */
struct draft {
    struct phi_safetensors *from;
    struct phi_config config;
    struct phi_tensor tensors[MAX_TENSORS];
    size_t n;
    char data[1 << 16];
    size_t n_data;
    char names[64][96];
    size_t n_names;
};

static void draft_open(struct draft *d)
{
    memset(d, 0, sizeof *d);
    assert_int_equal(phi_config_read(golden_path("phi3-gqa", ""), &d->config, NULL), PHI_OK);
    assert_int_equal(phi_safetensors_open_dir(golden_path("phi3-gqa", ""), &d->from, NULL), PHI_OK);
    d->config.quantized = true;
    for (size_t i = 0; i < phi_safetensors_n_tensors(d->from); i++)
        d->tensors[d->n++] = *phi_safetensors_at(d->from, i);
}

static struct phi_tensor *draft_find(struct draft *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (phi_str_eq_c(d->tensors[i].name, name))
            return &d->tensors[i];
    return NULL;
}

static void *draft_add(struct draft *d, const char *name, enum phi_st_dtype dtype, size_t n_rows,
                       size_t n_cols)
{
    size_t n_bytes = n_rows * n_cols * phi_st_dtype_bytes(dtype);
    void *data = d->data + d->n_data;
    char *kept = d->names[d->n_names++];
    d->n_data += (n_bytes + 7) / 8 * 8;
    assert_true(d->n_data <= sizeof d->data);
    snprintf(kept, sizeof d->names[0], "%s", name);
    d->tensors[d->n++] = (struct phi_tensor){.name = phi_str_from(kept),
                                             .dtype = dtype,
                                             .n_dims = 2,
                                             .shape = {n_rows, n_cols},
                                             .n_bytes = n_bytes,
                                             .data = data};
    return data;
}

static enum phi_status draft_run(struct draft *d, uint64_t *hash, struct phi_error *err)
{
    char path[] = "/tmp/phi-quant-XXXXXX";
    struct net_fixture f = {.config = d->config};
    int fd = mkstemp(path), failed = fd < 0;
    assert_false(failed);
    assert_int_equal(phi_safetensors_write(path, d->tensors, d->n, NULL), PHI_OK);
    assert_int_equal(phi_safetensors_open_file(path, &f.weights, NULL), PHI_OK);
    remove(path);
    phi_fp_env_set();
    struct phi_net_options o = {.config = &f.config,
                                .weights = f.weights,
                                .dtype = PHI_FLOAT32,
                                .kernels = &phi_kernels_ref,
                                .n_threads = 1};
    enum phi_status status = phi_net_open(&o, &f.net, err);
    if (status == PHI_OK) {
        int32_t ids[N_IDS];
        tokens(ids, f.config.vocab_size);
        float *logits = net_fixture_logits(&f, ids, N_IDS, &(struct run_options){0});
        *hash = net_fixture_hash(logits, N_IDS * (size_t)f.config.vocab_size * sizeof *logits);
        free(logits);
    }
    net_fixture_close(&f);
    return status;
}

#define STEM "model.layers.0.self_attn.qkv_proj"

enum form { W8_F32, W8_BF16, W8_F16, W8_TENSOR, W8_FLAT, W4_BF16, W4_F32, W4_F16, W4_ROW, N_FORMS };

/* A scale that all dtypes hold exactly, so that all forms give the same bits. */
static void put_scale(void *to, enum phi_st_dtype dtype, size_t i)
{
    static const uint16_t bf16 = 0x3C00, f16 = 0x2000; /* 2^-7 */
    static const float f32 = 0x1p-7f;
    size_t n = phi_st_dtype_bytes(dtype);
    const void *from = dtype == PHI_ST_F32    ? (const void *)&f32
                       : dtype == PHI_ST_BF16 ? &bf16
                                              : &f16;
    memcpy((char *)to + i * n, from, n);
}

static void replace(struct draft *d, enum form form)
{
    static const enum phi_st_dtype scale_types[] = {PHI_ST_F32, PHI_ST_BF16, PHI_ST_F16,
                                                    PHI_ST_F32, PHI_ST_F32,  PHI_ST_BF16,
                                                    PHI_ST_F32, PHI_ST_F16,  PHI_ST_F32};
    struct phi_tensor *old = draft_find(d, STEM ".weight");
    const size_t n_rows = old->shape[0], n_cols = old->shape[1];
    const bool w4 = form >= W4_BF16;
    *old = d->tensors[--d->n];
    unsigned char *data = w4 ? draft_add(d, STEM ".weight_packed", PHI_ST_I32, n_rows, n_cols / 8)
                             : draft_add(d, STEM ".weight", PHI_ST_I8, n_rows, n_cols);
    for (size_t i = 0; i < n_rows * n_cols / (w4 ? 2 : 1); i++)
        data[i] = (unsigned char)(w4 ? i * 37 % 256 : i * 11 % 15 - 7);
    size_t n_scales = w4 && form != W4_ROW ? n_cols / 32 : 1;
    size_t n_scale_rows = form == W8_TENSOR ? 1 : n_rows;
    void *scales = draft_add(d, STEM ".weight_scale", scale_types[form], n_scale_rows, n_scales);
    if (form == W8_TENSOR || form == W8_FLAT)
        d->tensors[d->n - 1].n_dims = 1;
    for (size_t i = 0; i < n_scale_rows * n_scales; i++)
        put_scale(scales, scale_types[form], i);
    if (w4) {
        int64_t *shape = draft_add(d, STEM ".weight_shape", PHI_ST_I64, 2, 1);
        d->tensors[d->n - 1].n_dims = 1;
        shape[0] = (int64_t)n_rows, shape[1] = (int64_t)n_cols;
    }
}

/* One scale for all gives, in whatever dtype and shape it stands, the same bits. */
static void test_forms_of_scales(void **state)
{
    static struct draft d;
    uint64_t hashes[N_FORMS];
    (void)state;
    for (int form = 0; form < N_FORMS; form++) {
        struct phi_error err;
        draft_open(&d);
        replace(&d, (enum form)form);
        if (draft_run(&d, &hashes[form], &err) != PHI_OK)
            fail_msg("form %d: %s", form, err.text);
        phi_safetensors_close(d.from);
    }
    for (int form = W8_F32; form <= W8_FLAT; form++)
        assert_true(hashes[form] == hashes[W8_F32]);
    for (int form = W4_BF16; form <= W4_F16; form++)
        assert_true(hashes[form] == hashes[W4_BF16]);
    assert_true(hashes[W4_BF16] != hashes[W8_F32]);
}

static void undeclared(struct draft *d)
{
    d->config.quantized = false;
}

static void no_scale(struct draft *d)
{
    struct phi_tensor *t = draft_find(d, STEM ".weight_scale");
    *t = d->tensors[--d->n];
}

static void odd_scales(struct draft *d)
{
    struct phi_tensor *t = draft_find(d, STEM ".weight_scale");
    t->shape[0]--;
    t->n_bytes = t->shape[0] * t->shape[1] * phi_st_dtype_bytes(t->dtype);
}

static void integer_scales(struct draft *d)
{
    draft_find(d, STEM ".weight_scale")->dtype = PHI_ST_I32;
}

static void zero_point(struct draft *d)
{
    draft_add(d, STEM ".weight_zero_point", PHI_ST_I32, 8, 2);
}

static void sorted_columns(struct draft *d)
{
    draft_add(d, STEM ".weight_g_idx", PHI_ST_I32, 64, 1);
}

static void other_shape(struct draft *d)
{
    int64_t *shape = (int64_t *)(uintptr_t)draft_find(d, STEM ".weight_shape")->data;
    shape[1]++;
}

static const struct {
    enum form form;
    void (*spoil)(struct draft *d);
    const char *words;
} spoiled[] = {
    {W8_F32, undeclared, "qkv_proj.weight: integer weights, but config.json has no"},
    {W8_F32, no_scale, "qkv_proj.weight_scale: missing"},
    {W8_F32, odd_scales, "qkv_proj.weight_scale: not one scale for each row"},
    {W8_F32, integer_scales, "dtype I32"},
    {W4_F32, undeclared, "qkv_proj.weight_packed: integer weights"},
    {W4_F32, no_scale, "qkv_proj.weight_scale: missing"},
    {W4_F32, odd_scales, "qkv_proj.weight_scale: not one scale for each group"},
    {W4_F32, integer_scales, "dtype I32"},
    {W4_F32, zero_point, "qkv_proj.weight_zero_point: is not supported"},
    {W4_F32, sorted_columns, "qkv_proj.weight_g_idx: is not supported"},
    {W4_F32, other_shape, "qkv_proj.weight_shape: ["},
};

static void test_spoiled_files_are_refused_by_name(void **state)
{
    static struct draft d;
    (void)state;
    for (size_t i = 0; i < sizeof spoiled / sizeof spoiled[0]; i++) {
        struct phi_error err = {0};
        uint64_t hash;
        draft_open(&d);
        replace(&d, spoiled[i].form);
        spoiled[i].spoil(&d);
        assert_int_not_equal(draft_run(&d, &hash, &err), PHI_OK);
        if (!strstr(err.text, spoiled[i].words))
            fail_msg("case %zu: \"%s\" lacks \"%s\"", i, err.text, spoiled[i].words);
        phi_safetensors_close(d.from);
    }
}

/* ---------------------------------------------------------------- options and faults */

static void test_groups_must_divide_the_columns(void **state)
{
    struct phi_config config;
    struct phi_net *net;
    struct phi_error err;
    (void)state;
    assert_int_equal(phi_config_read(golden_path("phi3-gqa", ""), &config, NULL), PHI_OK);
    widen(&config);
    struct phi_net_options o = {.config = &config,
                                .kernels = &phi_kernels_ref,
                                .n_threads = 1,
                                .dtype = PHI_FLOAT32,
                                .quantization = PHI_W4A8,
                                .quant_group_size = 128};
    assert_int_equal(phi_net_open(&o, &net, &err), PHI_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "192 columns cannot be cut into groups of 128"));
    o.quant_group_size = 0; /* the greatest that all layers take */
    assert_int_equal(phi_net_open(&o, &net, &err), PHI_OK);
    assert_int_equal(phi_net_quantized(net)->matrix.group, 64);
    phi_net_close(net);
}

static void test_the_head_can_stay_as_it_is(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct phi_config config;
        struct phi_net *net;
        bool found = false;
        assert_int_equal(phi_config_read(golden_path("phi3-gqa", ""), &config, NULL), PHI_OK);
        assert_true(config.tie_word_embeddings);
        struct phi_net_options o = {.config = &config,
                                    .kernels = &phi_kernels_ref,
                                    .n_threads = 1,
                                    .dtype = PHI_FLOAT32,
                                    .quantization = PHI_W8A8,
                                    .keep_lm_head = keep};
        assert_int_equal(phi_net_open(&o, &net, NULL), PHI_OK);
        for (const struct phi_quantized_matrix *q = phi_net_quantized(net); q; q = q->next)
            found |= strcmp(q->stem, "lm_head") == 0;
        assert_int_equal(found, !keep);
        phi_net_close(net);
    }
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct phi_config config;
        struct phi_error err;
        struct phi_net *net;
        assert_int_equal(phi_config_read(golden_path("phi-head64", ""), &config, NULL), PHI_OK);
        widen(&config);
        struct phi_net_options o = {.config = &config,
                                    .kernels = &phi_kernels_ref,
                                    .n_threads = 2,
                                    .dtype = PHI_BFLOAT16,
                                    .quantization = PHI_W4A8};
        phi_alloc_fail_nth(n);
        enum phi_status status = phi_net_open(&o, &net, &err);
        bool reached = phi_alloc_count() >= n;
        phi_alloc_fail_nth(0);
        phi_net_close(net);
        assert_int_equal(status, reached ? PHI_ERR_MEMORY : PHI_OK);
        if (!reached)
            break;
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hashes_on_every_instruction_set),
        cmocka_unit_test(test_the_same_bits_however_it_runs),
        cmocka_unit_test(test_near_what_floats_answer),
        cmocka_unit_test(test_forms_of_scales),
        cmocka_unit_test(test_spoiled_files_are_refused_by_name),
        cmocka_unit_test(test_groups_must_divide_the_columns),
        cmocka_unit_test(test_the_head_can_stay_as_it_is),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
