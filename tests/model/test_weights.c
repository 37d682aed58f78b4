/* test_weights.c: binding a checkpoint's tensors. Each case takes a golden checkpoint, spoils or
 * renames something, and states the error or that the answer stays the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/alloc.h"
#include "net_fixture.h"

enum { MAX_TENSORS = 256, N_IDS = 12 };

/* A checkpoint in the making: tensors of a golden one, to be edited and written to a file. */
struct draft {
    struct phi_safetensors *from;
    struct phi_config config;
    struct phi_tensor tensors[MAX_TENSORS];
    size_t n;
};

static void draft_open(struct draft *d, const char *dir)
{
    *d = (struct draft){0};
    assert_int_equal(phi_config_read(golden_path(dir, ""), &d->config, NULL), PHI_OK);
    assert_int_equal(phi_safetensors_open_dir(golden_path(dir, ""), &d->from, NULL), PHI_OK);
    for (size_t i = 0; i < phi_safetensors_n_tensors(d->from); i++)
        d->tensors[d->n++] = *phi_safetensors_at(d->from, i);
}

static struct phi_tensor *draft_find(struct draft *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++)
        if (phi_str_eq_c(d->tensors[i].name, name))
            return &d->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void draft_remove(struct draft *d, const char *name)
{
    *draft_find(d, name) = d->tensors[--d->n];
}

/* Writes the draft and opens it as a network; on success returns the logits' hash of a fixed prompt
 * and closes it again. */
static enum phi_status draft_run(struct draft *d, uint64_t *hash, struct phi_error *err)
{
    char path[] = "/tmp/phi-weights-XXXXXX";
    struct net_fixture f = {.config = d->config};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(phi_safetensors_write(path, d->tensors, d->n, NULL), PHI_OK);
    assert_int_equal(phi_safetensors_open_file(path, &f.weights, NULL), PHI_OK);
    unlink(path);
    phi_fp_env_set();
    struct phi_net_options o = {.config = &f.config, .weights = f.weights, .dtype = PHI_FLOAT32,
                                .kernels = &phi_kernels_ref, .n_threads = 1};
    enum phi_status status = phi_net_open(&o, &f.net, err);
    if (status == PHI_OK) {
        int32_t ids[N_IDS];
        for (int i = 0; i < N_IDS; i++)
            ids[i] = i * 5 + 1;
        float *logits = net_fixture_logits(&f, ids, N_IDS, &(struct run_options){0});
        *hash = net_fixture_hash(logits, N_IDS * (size_t)f.config.vocab_size * sizeof *logits);
        free(logits);
    }
    net_fixture_close(&f);
    return status;
}

static void draft_close(struct draft *d)
{
    phi_safetensors_close(d->from);
}

/* ---------------------------------------------------------------- errors */

static void remove_norm(struct draft *d)
{
    draft_remove(d, "model.layers.1.input_layernorm.weight");
}

static void remove_qkv(struct draft *d)
{
    draft_remove(d, "model.layers.0.self_attn.qkv_proj.weight");
}

static void remove_bias(struct draft *d)
{
    draft_remove(d, "model.layers.1.mlp.fc2.bias");
}

static void transpose(struct draft *d)
{
    struct phi_tensor *t = draft_find(d, "model.layers.0.mlp.down_proj.weight");
    size_t rows = t->shape[0];
    t->shape[0] = t->shape[1];
    t->shape[1] = rows;
}

static void flatten(struct draft *d)
{
    struct phi_tensor *t = draft_find(d, "model.layers.0.mlp.down_proj.weight");
    t->shape[0] *= t->shape[1];
    t->n_dims = 1;
}

static void retype(struct draft *d)
{
    struct phi_tensor *t = draft_find(d, "model.norm.weight");
    t->dtype = t->dtype == PHI_ST_F32 ? PHI_ST_I32 : PHI_ST_I16;
}

static void untie(struct draft *d)
{
    d->config.tie_word_embeddings = false;
}

static void grow_vocab(struct draft *d)
{
    d->config.vocab_size++;
}

static const struct {
    const char *dir;
    void (*spoil)(struct draft *d);
    const char *words[3]; /* that the error must hold */
} spoiled[] = {
    {"phi3-gqa", remove_norm, {"model.layers.1.input_layernorm.weight", "missing"}},
    {"phi3-gqa", remove_qkv, {"model.layers.0.self_attn.qkv_proj.weight", "missing"}},
    {"phi-head64", remove_bias, {"model.layers.1.mlp.fc2.bias", "missing"}},
    {"phi3-gqa", transpose, {"model.layers.0.mlp.down_proj.weight", "shape", "config.json"}},
    {"phi3-gqa", flatten, {"model.layers.0.mlp.down_proj.weight", "shape"}},
    {"phi3-gqa", retype, {"model.norm.weight", "dtype I32"}},
    {"phi3-gqa", untie, {"lm_head.weight", "tie_word_embeddings"}},
    {"phi3-gqa", grow_vocab, {"model.embed_tokens.weight", "shape"}},
};

static void test_errors_name_the_tensor(void **state)
{
    static struct draft d;
    (void)state;
    for (size_t i = 0; i < sizeof spoiled / sizeof spoiled[0]; i++) {
        struct phi_error err = {0};
        uint64_t hash;
        draft_open(&d, spoiled[i].dir);
        spoiled[i].spoil(&d);
        assert_int_not_equal(draft_run(&d, &hash, &err), PHI_OK);
        for (int w = 0; w < 3 && spoiled[i].words[w]; w++)
            if (!strstr(err.text, spoiled[i].words[w]))
                fail_msg("case %zu: \"%s\" lacks \"%s\"", i, err.text, spoiled[i].words[w]);
        draft_close(&d);
    }
}

/* ---------------------------------------------------------------- the same weights, told otherwise */

static uint64_t plain_hash(const char *dir)
{
    static struct draft d;
    struct phi_error err;
    uint64_t hash = 0;
    draft_open(&d, dir);
    if (draft_run(&d, &hash, &err) != PHI_OK)
        fail_msg("%s", err.text);
    draft_close(&d);
    return hash;
}

/* Cuts rows [begin, begin + n) of a matrix out as a tensor of another name. */
static void add_rows(struct draft *d, const struct phi_tensor *from, size_t begin, size_t n,
                     const char *name)
{
    size_t row_bytes = from->n_bytes / from->shape[0];
    struct phi_tensor *t = &d->tensors[d->n++];
    *t = *from;
    t->name = phi_str_from(name);
    t->shape[0] = n;
    t->n_bytes = n * row_bytes;
    t->data = (const char *)from->data + begin * row_bytes;
}

static void test_unfused_names_give_the_same_bits(void **state)
{
    static struct draft d;
    static char names[64][64];
    size_t used = 0;
    struct phi_error err;
    uint64_t hash = 0;
    (void)state;
    draft_open(&d, "phi3-gqa");
    size_t q = (size_t)(d.config.n_heads * d.config.head_dim);
    size_t kv = (size_t)(d.config.n_kv_heads * d.config.head_dim);
    size_t ff = (size_t)d.config.intermediate_size;
    for (int i = 0; i < d.config.n_layers; i++) {
        static const char *const stems[5] = {"self_attn.q_proj", "self_attn.k_proj",
                                             "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"};
        const size_t begins[5] = {0, q, q + kv, 0, ff}, sizes[5] = {q, kv, kv, ff, ff};
        char fused[2][64];
        snprintf(fused[0], sizeof fused[0], "model.layers.%d.self_attn.qkv_proj.weight", i);
        snprintf(fused[1], sizeof fused[1], "model.layers.%d.mlp.gate_up_proj.weight", i);
        const struct phi_tensor from[2] = {*draft_find(&d, fused[0]), *draft_find(&d, fused[1])};
        draft_remove(&d, fused[0]);
        draft_remove(&d, fused[1]);
        for (int part = 0; part < 5; part++, used++) {
            snprintf(names[used], sizeof names[used], "model.layers.%d.%s.weight", i, stems[part]);
            add_rows(&d, &from[part >= 3], begins[part], sizes[part], names[used]);
        }
    }
    if (draft_run(&d, &hash, &err) != PHI_OK)
        fail_msg("%s", err.text);
    draft_close(&d);
    assert_true(hash == plain_hash("phi3-gqa"));
}

static void test_a_head_beside_a_tied_embedding_is_ignored(void **state)
{
    static struct draft d;
    struct phi_error err;
    uint64_t hash = 0;
    (void)state;
    draft_open(&d, "phi3-gqa");
    const struct phi_tensor embed = *draft_find(&d, "model.embed_tokens.weight");
    void *zeros = phi_calloc(embed.n_bytes, 1);
    add_rows(&d, &embed, 0, embed.shape[0], "lm_head.weight");
    d.tensors[d.n - 1].data = zeros;
    if (draft_run(&d, &hash, &err) != PHI_OK)
        fail_msg("%s", err.text);
    phi_free(zeros);
    draft_close(&d);
    assert_true(hash == plain_hash("phi3-gqa"));
}

/* The older phi-2 layout: other names, and q, k, v in one matrix. */
static void test_phi_msft_names_give_the_same_bits(void **state)
{
    static const char *const renamed[][2] = {
        {"input_layernorm", "ln"},
        {"self_attn.dense", "mixer.out_proj"},
        {"mlp.fc1", "mlp.fc1"},
        {"mlp.fc2", "mlp.fc2"},
    };
    static const char *const kinds[] = {"weight", "bias"};
    static struct draft d;
    static char names[MAX_TENSORS][64];
    static char *joined[16];
    size_t used = 0, n_joined = 0;
    struct phi_error err;
    uint64_t hash = 0;
    (void)state;
    draft_open(&d, "phi-head64");
    for (int i = 0; i < d.config.n_layers; i++) {
        for (int kind = 0; kind < 2; kind++) {
            static const char *const parts[3] = {"q_proj", "k_proj", "v_proj"};
            struct phi_tensor whole = {0};
            char *data = joined[n_joined++] = malloc(1 << 20), *at = data, old[64];
            for (int p = 0; p < 3; p++) {
                snprintf(old, sizeof old, "model.layers.%d.self_attn.%s.%s", i, parts[p], kinds[kind]);
                struct phi_tensor part = *draft_find(&d, old);
                memcpy(at, part.data, part.n_bytes);
                at += part.n_bytes;
                part.shape[0] += whole.shape[0];
                whole = part;
                draft_remove(&d, old);
            }
            snprintf(names[used], sizeof names[used], "transformer.h.%d.mixer.Wqkv.%s", i, kinds[kind]);
            whole.name = phi_str_from(names[used++]);
            whole.data = data;
            whole.n_bytes = (size_t)(at - data);
            d.tensors[d.n++] = whole;
            for (size_t r = 0; r < sizeof renamed / sizeof renamed[0]; r++, used++) {
                snprintf(old, sizeof old, "model.layers.%d.%s.%s", i, renamed[r][0], kinds[kind]);
                snprintf(names[used], sizeof names[used], "transformer.h.%d.%s.%s", i, renamed[r][1],
                         kinds[kind]);
                draft_find(&d, old)->name = phi_str_from(names[used]);
            }
        }
    }
    draft_find(&d, "model.embed_tokens.weight")->name = PHI_STR("transformer.embd.wte.weight");
    draft_find(&d, "model.final_layernorm.weight")->name = PHI_STR("lm_head.ln.weight");
    draft_find(&d, "model.final_layernorm.bias")->name = PHI_STR("lm_head.ln.bias");
    draft_find(&d, "lm_head.weight")->name = PHI_STR("lm_head.linear.weight");
    draft_find(&d, "lm_head.bias")->name = PHI_STR("lm_head.linear.bias");
    if (draft_run(&d, &hash, &err) != PHI_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < n_joined; i++)
        free(joined[i]);
    draft_close(&d);
    assert_true(hash == plain_hash("phi-head64"));
}

/* ---------------------------------------------------------------- dtypes and faults */

static void test_info_counts_what_is_mapped_and_converted(void **state)
{
    struct net_fixture f;
    struct phi_net_info as_is, narrow;
    (void)state;
    net_fixture_open(&f, "phi3-gqa", PHI_FLOAT32, &phi_kernels_ref);
    phi_net_get_info(f.net, &as_is);
    net_fixture_close(&f);
    net_fixture_open(&f, "phi3-gqa", PHI_BFLOAT16, &phi_kernels_ref);
    phi_net_get_info(f.net, &narrow);
    net_fixture_close(&f);
    assert_int_equal(as_is.file_dtype, PHI_FLOAT32);
    assert_int_equal(as_is.converted_bytes, 0);
    assert_int_equal(narrow.mapped_bytes, 0);
    assert_int_equal(narrow.converted_bytes * 2, as_is.mapped_bytes);
    assert_int_equal(narrow.n_parameters, as_is.n_parameters);
}

static void test_every_failed_allocation_is_reported(void **state)
{
    struct phi_config config;
    struct phi_safetensors *st;
    (void)state;
    assert_int_equal(phi_config_read(golden_path("phi3-gqa", ""), &config, NULL), PHI_OK);
    assert_int_equal(phi_safetensors_open_dir(golden_path("phi3-gqa", ""), &st, NULL), PHI_OK);
    struct phi_net_options o = {.config = &config, .weights = st, .dtype = PHI_FLOAT16,
                                .kernels = &phi_kernels_ref, .n_threads = 2};
    for (long n = 1;; n++) {
        struct phi_error err;
        struct phi_net *net;
        struct phi_workspace *ws = NULL;
        phi_alloc_fail_nth(n);
        enum phi_status status = phi_net_open(&o, &net, &err);
        if (status == PHI_OK)
            status = phi_workspace_create(net, 8, 8, 2, &ws, &err);
        bool reached = phi_alloc_count() >= n;
        phi_alloc_fail_nth(0);
        phi_workspace_destroy(ws);
        phi_net_close(net);
        assert_int_equal(status, reached ? PHI_ERR_MEMORY : PHI_OK);
        if (!reached)
            break;
        assert_true(n < 1000);
    }
    phi_safetensors_close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_name_the_tensor),
        cmocka_unit_test(test_unfused_names_give_the_same_bits),
        cmocka_unit_test(test_a_head_beside_a_tied_embedding_is_ignored),
        cmocka_unit_test(test_phi_msft_names_give_the_same_bits),
        cmocka_unit_test(test_info_counts_what_is_mapped_and_converted),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
