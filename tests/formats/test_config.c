/* test_config.c: config.json and generation_config.json: what each key becomes, defaults,
 * precedence, and an error naming the field for everything that is not computed. Ids H.. refer to
 * cases that users of other programs reported. */
#include "formats/config.h"
#include "base/file.h"
#include "base/log.h"

#include "../temp_folder.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "faults.h"

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-10 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

/* A complete small config of each kind; rows below change single keys of it. */
static const char phi_base[] =
    "{\"architectures\": [\"PhiForCausalLM\"], \"model_type\": \"phi\", \"vocab_size\": 96,"
    " \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 2, \"hidden_act\": \"gelu_new\", \"max_position_embeddings\": 128,"
    " \"eos_token_id\": 7}";
static const char phi3_base[] =
    "{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"vocab_size\": 96,"
    " \"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"hidden_act\": \"silu\","
    " \"max_position_embeddings\": 1024, \"original_max_position_embeddings\": 256,"
    " \"eos_token_id\": 7, \"bos_token_id\": 1, \"pad_token_id\": 7}";
static const char msft_base[] =
    "{\"architectures\": [\"PhiForCausalLM\"], \"model_type\": \"phi-msft\", \"vocab_size\": 90,"
    " \"n_embd\": 32, \"n_layer\": 3, \"n_head\": 2, \"n_head_kv\": null, \"n_inner\": null,"
    " \"n_positions\": 256, \"rotary_dim\": 8, \"layer_norm_epsilon\": 2e-5,"
    " \"activation_function\": \"gelu_new\", \"pad_vocab_size_multiple\": 64,"
    " \"torch_dtype\": \"float16\"}";

#define ONES8 "[1, 1, 1, 1, 1, 1, 1, 1]"
#define LONGROPE(extra)                                                                            \
    "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": " ONES8                         \
    ", \"long_factor\": [1, 2, 3, 4, 5, 6, 7, 8.5]" extra "}}"

/* Parses `base` with the keys of `changes` set (JSON text; NULL or "" = none). */
static enum phi_status parse_changed(const char *base, const char *changes, const char *generation,
                                     struct phi_config *out, struct phi_error *err)
{
    json_error_t e;
    json_t *root = json_loads(base, 0, &e);
    json_t *update = json_loads(changes && changes[0] ? changes : "{}", 0, &e);
    assert_non_null(root);
    if (!update)
        fail_msg("the test's own JSON is wrong: %s: %s", changes, e.text);
    assert_int_equal(json_object_update(root, update), 0);
    char *text = json_dumps(root, 0);
    enum phi_status status = phi_config_parse(
        phi_str_from(text), phi_str_from(generation ? generation : ""), "config.json", out, err);
    free(text);
    json_decref(update);
    json_decref(root);
    return status;
}

static void accept(const char *base, const char *changes, const char *generation,
                   struct phi_config *out)
{
    struct phi_error err;
    if (parse_changed(base, changes, generation, out, &err) != PHI_OK)
        fail_msg("%s: %s", changes ? changes : "the base", err.text);
}

/* --- the real files --- */

static void test_shared_checkpoints(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        enum phi_arch arch;
        int hidden, inter, layers, heads, kv, head_dim, rotary, vocab, max_pos, original, window;
        double theta, attention_factor;
        enum phi_rope_type rope;
        bool tied;
        enum phi_dtype dtype;
        int bos, pad, n_stop, stop[3];
    } rows[] = {
        {"phi-1", PHI_ARCH_PHI, 2048, 8192, 24, 32,     32, 64,
         32,      51200,        2048, 2048, 0,  10000,  1,  PHI_ROPE_DEFAULT,
         false,   PHI_FLOAT32,  -1,   -1,   1,  {50256}},
        {"Phi-3.5-mini-instruct",
         PHI_ARCH_PHI3,
         3072,
         8192,
         32,
         32,
         32,
         96,
         96,
         32064,
         131072,
         4096,
         262144,
         10000,
         1.1902380714,
         PHI_ROPE_LONGROPE,
         false,
         PHI_BFLOAT16,
         1,
         32000,
         3,
         {32000, 32001, 32007}},
        {"phi-4", PHI_ARCH_PHI3,
         5120,    17920,
         40,      40,
         10,      128,
         128,     100352,
         16384,   16384,
         0,       250000,
         1,       PHI_ROPE_DEFAULT,
         false,   PHI_BFLOAT16,
         100257,  100349,
         2,       {100257, 100265}},
        {"Phi-4-mini-instruct",
         PHI_ARCH_PHI3,
         3072,
         8192,
         32,
         24,
         8,
         128,
         96,
         200064,
         131072,
         4096,
         262144,
         10000,
         1.1902380714,
         PHI_ROPE_LONGROPE,
         true,
         PHI_BFLOAT16,
         199999,
         199999,
         2,
         {199999, 200020}},
    };
    const char *root = getenv("PHI_CHECKPOINTS");
    if (!root) {
        print_message("# PHI_CHECKPOINTS is not set: the real configs are not tested\n");
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_config c;
        struct phi_error err;
        char dir[1024];
        snprintf(dir, sizeof dir, "%s/%s", root, rows[i].folder);
        if (phi_config_read(dir, &c, &err) != PHI_OK)
            fail_msg("%s", err.text);
        assert_int_equal(c.arch, rows[i].arch);
        assert_int_equal(c.hidden_size, rows[i].hidden);
        assert_int_equal(c.intermediate_size, rows[i].inter);
        assert_int_equal(c.n_layers, rows[i].layers);
        assert_int_equal(c.n_heads, rows[i].heads);
        assert_int_equal(c.n_kv_heads, rows[i].kv);
        assert_int_equal(c.head_dim, rows[i].head_dim);
        assert_int_equal(c.rotary_dim, rows[i].rotary);
        assert_int_equal(c.vocab_size, rows[i].vocab);
        assert_int_equal(c.max_position_embeddings, rows[i].max_pos);
        assert_int_equal(c.original_max_position_embeddings, rows[i].original);
        assert_int_equal(c.sliding_window, rows[i].window);
        assert_near(c.norm_eps, 1e-5);
        assert_near(c.rope_theta, rows[i].theta);
        assert_true(fabs(c.rope_attention_factor - rows[i].attention_factor) < 5e-11);
        assert_int_equal(c.rope_type, rows[i].rope);
        assert_int_equal(c.tie_word_embeddings, rows[i].tied);
        assert_int_equal(c.dtype, rows[i].dtype);
        assert_int_equal(c.bos_token_id, rows[i].bos);
        assert_int_equal(c.pad_token_id, rows[i].pad);
        assert_int_equal(c.n_stop_ids, rows[i].n_stop);
        for (int k = 0; k < c.n_stop_ids; k++) {
            bool found = false;
            for (int j = 0; j < rows[i].n_stop; j++)
                found = found || c.stop_ids[k] == rows[i].stop[j];
            assert_true(found);
        }
    }
}

/* --- defaults --- */

static void test_phi_defaults(void **state)
{
    (void)state;
    struct phi_config c;
    accept("{\"model_type\": \"phi\"}", NULL, NULL, &c);
    assert_int_equal(c.arch, PHI_ARCH_PHI);
    assert_string_equal(c.model_type, "phi");
    assert_string_equal(c.architecture, "");
    assert_int_equal(c.vocab_size, 51200);
    assert_int_equal(c.hidden_size, 2048);
    assert_int_equal(c.intermediate_size, 8192);
    assert_int_equal(c.n_layers, 24);
    assert_int_equal(c.n_heads, 32);
    assert_int_equal(c.n_kv_heads, 32);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.rotary_dim, 32);
    assert_int_equal(c.max_position_embeddings, 2048);
    assert_int_equal(c.original_max_position_embeddings, 2048);
    assert_near(c.rope_theta, 10000);
    assert_near(c.rope_attention_factor, 1);
    assert_near(c.norm_eps, 1e-5);
    assert_int_equal(c.dtype, PHI_AUTO);
    assert_false(c.tie_word_embeddings || c.attention_bias || c.qk_layernorm);
    assert_int_equal(c.n_stop_ids, 1); /* the class's default: no file says otherwise */
    assert_int_equal(c.stop_ids[0], 2);
    assert_int_equal(c.pad_token_id, -1);
    assert_false(c.generation.has_temperature || c.generation.has_do_sample);
}

static void test_phi3_defaults(void **state)
{
    (void)state;
    struct phi_config c;
    accept("{\"model_type\": \"phi3\"}", NULL, NULL, &c);
    assert_int_equal(c.arch, PHI_ARCH_PHI3);
    assert_int_equal(c.vocab_size, 32064);
    assert_int_equal(c.hidden_size, 3072);
    assert_int_equal(c.intermediate_size, 8192);
    assert_int_equal(c.n_layers, 32);
    assert_int_equal(c.n_heads, 32);
    assert_int_equal(c.n_kv_heads, 32);
    assert_int_equal(c.head_dim, 96);
    assert_int_equal(c.rotary_dim, 96);
    assert_int_equal(c.max_position_embeddings, 4096);
    assert_int_equal(c.original_max_position_embeddings, 4096);
    assert_int_equal(c.sliding_window, 0);
    assert_int_equal(c.bos_token_id, 1);
    assert_int_equal(c.pad_token_id, 32000);
    assert_int_equal(c.n_stop_ids, 1);
    assert_int_equal(c.stop_ids[0], 32000);
}

static void test_architecture_alone(void **state)
{
    (void)state;
    struct phi_config c;
    accept("{\"architectures\": [\"Phi3ForCausalLM\"]}", NULL, NULL, &c);
    assert_int_equal(c.arch, PHI_ARCH_PHI3);
    assert_string_equal(c.model_type, "phi3");
    accept("{\"architectures\": [\"PhiForCausalLM\"], \"model_type\": null}", NULL, NULL, &c);
    assert_int_equal(c.arch, PHI_ARCH_PHI);
    assert_string_equal(c.architecture, "PhiForCausalLM");
}

/* --- the form that phi-1, 1.5 and 2 were first published in --- */

static void test_msft(void **state)
{
    (void)state;
    struct phi_config c;
    accept(msft_base, NULL, NULL, &c);
    assert_int_equal(c.arch, PHI_ARCH_PHI);
    assert_int_equal(c.vocab_size, 128); /* 90 rounded up to 64s */
    assert_int_equal(c.hidden_size, 32);
    assert_int_equal(c.intermediate_size, 128); /* n_inner null: four times n_embd */
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(c.n_heads, 2);
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.rotary_dim, 8);
    assert_int_equal(c.max_position_embeddings, 256);
    assert_near(c.norm_eps, 2e-5);
    assert_int_equal(c.dtype, PHI_FLOAT16);
    assert_int_equal(c.n_stop_ids, 0);

    accept(msft_base, "{\"n_inner\": 80, \"n_head_kv\": 1, \"rotary_dim\": 32}", NULL, &c);
    assert_int_equal(c.intermediate_size, 80);
    assert_int_equal(c.n_kv_heads, 1);
    assert_int_equal(c.rotary_dim, 16); /* at most the head */

    accept(msft_base,
           "{\"model_type\": \"mixformer-sequential\","
           " \"architectures\": [\"MixFormerSequentialForCausalLM\"], \"n_positions\": null}",
           NULL, &c);
    assert_string_equal(c.model_type, "mixformer-sequential");
    assert_int_equal(c.max_position_embeddings, 2048);
}

/* --- single keys --- */

#define INT(member) offsetof(struct phi_config, member)

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *base, *changes;
        size_t offset;
        int value;
    } rows[] = {
        {phi_base, "{\"num_key_value_heads\": null}", INT(n_kv_heads), 2},
        {phi_base, "{\"num_key_value_heads\": 1}", INT(n_kv_heads), 1},
        {phi_base, "{\"head_dim\": 24}", INT(head_dim), 24},
        {phi_base, "{\"head_dim\": 24}", INT(rotary_dim), 12},
        {phi_base, "{\"head_dim\": null}", INT(head_dim), 16},
        {phi_base, "{\"partial_rotary_factor\": 1}", INT(rotary_dim), 16},
        {phi_base, "{\"partial_rotary_factor\": null}", INT(rotary_dim), 8},
        {phi_base, "{\"num_attention_heads\": 1, \"head_dim\": 80, \"partial_rotary_factor\": 0.4}",
         INT(rotary_dim), 32}, /* phi-2's: 0.4 is a little more than 2/5 */
        {phi_base, "{\"sliding_window\": 5}", INT(sliding_window), 0}, /* phi has no window */
        {phi_base, "{\"original_max_position_embeddings\": 64}",
         INT(original_max_position_embeddings), 64},
        {phi3_base, "{\"sliding_window\": 47}", INT(sliding_window), 47},
        {phi3_base, "{\"sliding_window\": null}", INT(sliding_window), 0},
        {phi3_base, "{\"partial_rotary_factor\": 0.75}", INT(rotary_dim), 12},
        {phi3_base, "{\"head_dim\": 128, \"partial_rotary_factor\": 0.75}", INT(rotary_dim), 96},
        {phi3_base, "{\"rope_parameters\": {\"partial_rotary_factor\": 0.5}}", INT(rotary_dim), 8},
        {phi3_base, /* inside the dict wins */
         "{\"partial_rotary_factor\": 1, \"rope_parameters\": {\"partial_rotary_factor\": 0.5}}",
         INT(rotary_dim), 8},
        {phi3_base, "{\"original_max_position_embeddings\": null}",
         INT(original_max_position_embeddings), 4096},
        {phi3_base, /* as transformers: the class default counts as a top-level value */
         "{\"original_max_position_embeddings\": null,"
         " \"rope_parameters\": {\"original_max_position_embeddings\": 64}}",
         INT(original_max_position_embeddings), 4096},
        {phi_base, "{\"rope_parameters\": {\"original_max_position_embeddings\": 64}}",
         INT(original_max_position_embeddings), 64},
        {phi_base, /* the top level wins here */
         "{\"original_max_position_embeddings\": 32,"
         " \"rope_parameters\": {\"original_max_position_embeddings\": 64}}",
         INT(original_max_position_embeddings), 32},
        {phi3_base, "{\"bos_token_id\": null}", INT(bos_token_id), -1},
        {phi3_base, "{\"pad_token_id\": null}", INT(pad_token_id), -1},
        {phi3_base, "{\"eos_token_id\": null}", INT(n_stop_ids), 0},
        {phi3_base, "{\"eos_token_id\": -1}", INT(n_stop_ids), 0},
        {phi3_base, "{\"eos_token_id\": []}", INT(n_stop_ids), 0},
        {phi3_base, "{\"eos_token_id\": 96}", INT(n_stop_ids), 0}, /* outside the vocabulary */
        {phi3_base, "{\"eos_token_id\": [5, 6, 5]}", INT(n_stop_ids), 2},
        {phi3_base, "{\"some_future_key\": {\"x\": [1]}}", INT(hidden_size), 64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_config c;
        accept(rows[i].base, rows[i].changes, NULL, &c);
        int value = *(const int *)((const char *)&c + rows[i].offset);
        if (value != rows[i].value)
            fail_msg("%s: found %d, expected %d", rows[i].changes, value, rows[i].value);
    }
}

static void test_switches(void **state)
{
    (void)state;
    struct phi_config c;
    accept(phi_base, "{\"qk_layernorm\": true, \"tie_word_embeddings\": true}", NULL, &c);
    assert_true(c.qk_layernorm && c.tie_word_embeddings && !c.attention_bias);
    accept(phi3_base, "{\"attention_bias\": true, \"mlp_bias\": false}", NULL, &c);
    assert_true(c.attention_bias && !c.qk_layernorm && !c.tie_word_embeddings);
    accept(phi_base, "{\"layer_norm_eps\": 1e-6}", NULL, &c);
    assert_near(c.norm_eps, 1e-6);
    accept(phi3_base, "{\"rms_norm_eps\": 1e-3, \"layer_norm_eps\": 0.5}", NULL, &c);
    assert_near(c.norm_eps, 1e-3);
}

static void test_activations(void **state)
{
    (void)state;
    struct phi_config c;
    accept(phi_base, "{\"hidden_act\": \"gelu_pytorch_tanh\"}", NULL, &c);
    accept(phi_base, "{\"hidden_act\": null}", NULL, &c);
    accept(phi3_base, "{\"hidden_act\": \"swish\"}", NULL, &c);
    accept(msft_base, "{\"activation_function\": \"gelu_pytorch_tanh\", \"hidden_act\": \"relu\"}",
           NULL, &c);
}

static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        const char *changes;
        enum phi_dtype dtype;
    } rows[] = {
        {"{\"torch_dtype\": \"float32\"}", PHI_FLOAT32},
        {"{\"torch_dtype\": \"bfloat16\"}", PHI_BFLOAT16},
        {"{\"dtype\": \"float16\"}", PHI_FLOAT16},
        {"{\"dtype\": \"float16\", \"torch_dtype\": \"bfloat16\"}", PHI_FLOAT16},
        {"{\"dtype\": null, \"torch_dtype\": \"bfloat16\"}", PHI_BFLOAT16},
        {"{\"torch_dtype\": \"torch.bfloat16\"}", PHI_BFLOAT16},
        {"{\"torch_dtype\": null}", PHI_AUTO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_config c;
        accept(phi3_base, rows[i].changes, NULL, &c);
        assert_int_equal(c.dtype, rows[i].dtype);
    }
}

/* --- rotary types --- */

static void test_rope(void **state)
{
    (void)state;
    static const struct {
        const char *base, *changes;
        enum phi_rope_type type;
        double theta, factor, attention_factor;
    } rows[] = {
        {phi_base, "{\"rope_scaling\": null}", PHI_ROPE_DEFAULT, 10000, 0, 1},
        {phi_base, "{\"rope_theta\": 50000}", PHI_ROPE_DEFAULT, 50000, 0, 1}, /* H32 */
        {phi_base, "{\"rope_scaling\": {}, \"rope_theta\": 2e4}", PHI_ROPE_DEFAULT, 2e4, 0, 1},
        {phi_base, "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 3e4}}",
         PHI_ROPE_DEFAULT, 3e4, 0, 1},
        {phi_base, "{\"rope_theta\": 1, \"rope_parameters\": {\"rope_theta\": 3e4}}",
         PHI_ROPE_DEFAULT, 3e4, 0, 1},
        {phi_base, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", PHI_ROPE_LINEAR,
         10000, 4, 1},
        {phi_base, "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}", PHI_ROPE_DYNAMIC,
         10000, 2, 1},
        {phi_base, /* rope_type wins over type, rope_scaling over rope_parameters */
         "{\"rope_scaling\": {\"type\": \"yarn\", \"rope_type\": \"linear\", \"factor\": 4},"
         " \"rope_parameters\": {\"rope_type\": \"default\"}}",
         PHI_ROPE_LINEAR, 10000, 4, 1},
        /* yarn: 0.1 ln(s) + 1, also through mscale, or as given */
        {phi_base, "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}", PHI_ROPE_YARN, 10000,
         4, 1.1386294361119891},
        {phi_base,
         "{\"rope_scaling\": {\"type\": \"yarn\", \"original_max_position_embeddings\": 32}}",
         PHI_ROPE_YARN, 10000, 4, 1.1386294361119891},
        {phi_base, "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 1}}", PHI_ROPE_YARN, 10000,
         1, 1},
        {phi_base,
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"mscale\": 1, "
         "\"mscale_all_dim\": 2}}",
         PHI_ROPE_YARN, 10000, 4, 1.1386294361119891 / 1.2772588722239782},
        {phi_base, "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"mscale\": 3}}",
         PHI_ROPE_YARN, 10000, 4, 1.1386294361119891},
        {phi_base,
         "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.5}}",
         PHI_ROPE_YARN, 10000, 4, 1.5},
        /* longrope: sqrt(1 + ln(s) / ln(original)); H43 */
        {phi3_base, LONGROPE(""), PHI_ROPE_LONGROPE, 10000, 4, 1.1180339887498949},
        {phi3_base, LONGROPE(", \"factor\": 16"), PHI_ROPE_LONGROPE, 10000, 16, 1.2247448713915890},
        {phi3_base, LONGROPE(", \"factor\": 0.5"), PHI_ROPE_LONGROPE, 10000, 0.5, 1},
        {phi3_base, LONGROPE(", \"attention_factor\": 1.25"), PHI_ROPE_LONGROPE, 10000, 4, 1.25},
        {phi3_base, LONGROPE(", \"rope_type\": \"su\""), PHI_ROPE_LONGROPE, 10000, 4,
         1.1180339887498949},
        {phi3_base, LONGROPE(", \"rope_type\": \"yarn\""), PHI_ROPE_LONGROPE, 10000, 4,
         1.1180339887498949},
        {phi3_base, LONGROPE(", \"rope_type\": \"default\""), PHI_ROPE_DEFAULT, 10000, 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_config c;
        accept(rows[i].base, rows[i].changes, NULL, &c);
        assert_int_equal(c.rope_type, rows[i].type);
        assert_near(c.rope_theta, rows[i].theta);
        assert_near(c.rope_factor, rows[i].factor);
        assert_near(c.rope_attention_factor, rows[i].attention_factor);
    }
}

static void test_rope_lists(void **state)
{
    (void)state;
    struct phi_config c;
    accept(phi3_base, LONGROPE(""), NULL, &c);
    for (int i = 0; i < 8; i++) {
        assert_near(c.short_factor[i], 1);
        assert_near(c.long_factor[i], i == 7 ? 8.5 : i + 1);
    }
    accept(phi_base,
           "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 16, "
           "\"beta_slow\": 2,"
           " \"truncate\": false}}",
           NULL, &c);
    assert_near(c.yarn_beta_fast, 16);
    assert_near(c.yarn_beta_slow, 2);
    assert_false(c.yarn_truncate);
    accept(phi_base, "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}}", NULL, &c);
    assert_near(c.yarn_beta_fast, 32);
    assert_near(c.yarn_beta_slow, 1);
    assert_true(c.yarn_truncate);
}

/* H33: the lists belong to the rotated dimensions, not to the head. */
static void test_factor_count(void **state)
{
    (void)state;
    static const char changes[] =
        "{\"hidden_size\": 512, \"num_attention_heads\": 4, \"partial_rotary_factor\": 0.75,"
        " \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [%s], \"long_factor\": "
        "[%s]}}";
    char list48[256] = "1", list64[256] = "1", text[1024];
    for (int i = 1; i < 64; i++)
        strcat(list64, ",1");
    for (int i = 1; i < 48; i++)
        strcat(list48, ",1");
    struct phi_config c;
    struct phi_error err;
    snprintf(text, sizeof text, changes, list48, list48);
    accept(phi3_base, text, NULL, &c);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.rotary_dim, 96);
    snprintf(text, sizeof text, changes, list64, list48);
    assert_int_equal(parse_changed(phi3_base, text, NULL, &c, &err), PHI_ERR_FORMAT);
    assert_contains(err.text,
                    "config.json: rope_scaling: short_factor: found 64 factors, expected 48");
    snprintf(text, sizeof text, changes, list48, list64);
    assert_int_equal(parse_changed(phi3_base, text, NULL, &c, &err), PHI_ERR_FORMAT);
    assert_contains(err.text, "long_factor: found 64 factors, expected 48");
}

/* --- refusals --- */

enum { FORMAT = PHI_ERR_FORMAT, UNSUPPORTED = PHI_ERR_UNSUPPORTED };

/* A quantization_config of compressed-tensors with this format (and more fields) and these groups. */
#define CT(format, groups)                                                                         \
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": " format     \
    ", \"config_groups\": {" groups "}}}"
#define W8 "\"weights\": {\"num_bits\": 8, \"strategy\": \"channel\"}"
#define A8 "\"input_activations\": {\"strategy\": \"token\", \"dynamic\": true}"
#define W4(more)                                                                                   \
    "\"weights\": {\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 64, " more "}"

static const struct {
    const char *base, *changes;
    int status;
    const char *text;
} refusals[] = {
    /* who it is */
    {"{}", "", FORMAT, "config.json: model_type: missing"},
    {"{}", "{\"architectures\": [\"GPT2LMHeadModel\"]}", FORMAT, "model_type: missing"},
    {phi_base, "{\"model_type\": 3}", FORMAT, "model_type: expected a string, found an integer"},
    {phi_base, "{\"model_type\": \"phi3small\"}", UNSUPPORTED,
     "config.json: model_type: \"phi3small\" is not supported (supported: phi, phi-msft and "
     "phi3)"},
    {phi_base, "{\"model_type\": \"phi4flash\"}", UNSUPPORTED, "\"phi4flash\" is not supported"},
    {phi_base, "{\"model_type\": \"phimoe\"}", UNSUPPORTED, "\"phimoe\" is not supported"},
    {phi_base, "{\"model_type\": \"phi4mm\"}", UNSUPPORTED, "\"phi4mm\" is not supported"},
    {phi_base, "{\"model_type\": \"phi4_multimodal\"}", UNSUPPORTED, "\"phi4_multimodal\""},
    {phi_base, "{\"model_type\": \"phi3_v\"}", UNSUPPORTED, "\"phi3_v\" is not supported"},
    {phi_base, "{\"model_type\": \"gpt2\"}", UNSUPPORTED, "\"gpt2\" is not supported"},
    {phi3_base, "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"]}",
     UNSUPPORTED, "architectures: LlamaForCausalLM (model_type llama)"}, /* H34 */
    {phi3_base, "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"]}",
     UNSUPPORTED, "Phi-shaped"},
    {phi3_base, "{\"architectures\": [\"LlamaForCausalLM\"]}", UNSUPPORTED,
     "architectures: LlamaForCausalLM with model_type phi3 is not supported"},
    {phi3_base, "{\"architectures\": [\"Phi3ForSequenceClassification\"]}", UNSUPPORTED,
     "architectures: Phi3ForSequenceClassification"},
    {phi_base, "{\"architectures\": [\"Phi3ForCausalLM\"]}", UNSUPPORTED,
     "Phi3ForCausalLM with model_type phi is not supported (expected PhiForCausalLM)"},
    {phi_base, "{\"architectures\": \"PhiForCausalLM\"}", FORMAT,
     "architectures: expected an array"},
    {phi_base, "{\"architectures\": [1]}", FORMAT, "architectures: expected an array of strings"},
    /* H41 */
    {phi3_base, "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}", UNSUPPORTED,
     "quantization_config: quant_method \"bitsandbytes\" is not supported"},
    {phi3_base, "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}", UNSUPPORTED,
     "quant_method \"gptq\""},
    {phi3_base, "{\"quantization_config\": {}}", UNSUPPORTED, "quantization_config"},
    {phi3_base, "{\"quantization_config\": [1]}", UNSUPPORTED, "quantization_config"},
    {phi3_base, CT("\"int-quantized\"", ""), FORMAT, "config_groups: missing or empty"},
    {phi3_base, CT("\"float-quantized\"", ""), UNSUPPORTED,
     "quantization_config.format: \"float-quantized\" is not supported (supported: "
     "\"int-quantized\""},
    {phi3_base, CT("\"int-quantized\", \"kv_cache_scheme\": {\"num_bits\": 8}", ""), UNSUPPORTED,
     "kv_cache_scheme: {\"num_bits\":8} is not supported"},
    {phi3_base, CT("\"int-quantized\"", "\"g\": 1"), FORMAT,
     "config_groups.g: expected an object"},
    {phi3_base, CT("\"int-quantized\"", "\"g\": {}"), UNSUPPORTED, "g.weights: null"},
    {phi3_base, CT("\"int-quantized\"", "\"g\": {\"weights\": {\"num_bits\": 3}}"), UNSUPPORTED,
     "g.weights.num_bits: 3 is not supported (supported: 4, 8, null)"},
    {phi3_base, CT("\"int-quantized\"", "\"g\": {" W8 "}"), UNSUPPORTED,
     "g.input_activations: null with 8-bit weights"},
    {phi3_base,
     CT("\"int-quantized\"", "\"g\": {" W8 ", \"input_activations\": {\"strategy\": "
        "\"tensor\", \"dynamic\": false}}"),
     UNSUPPORTED, "g.input_activations.strategy: \"tensor\" is not supported"},
    {phi3_base,
     CT("\"int-quantized\"", "\"g\": {" W8 ", \"input_activations\": {\"strategy\": "
        "\"token\", \"dynamic\": true, \"symmetric\": false}}"),
     UNSUPPORTED, "g.input_activations.symmetric: false"},
    {phi3_base, CT("\"pack-quantized\"", "\"g\": {" W8 ", " A8 "}"), UNSUPPORTED,
     "quantization_config.format: \"pack-quantized\" is not supported"},
    {phi3_base, CT("\"pack-quantized\"", "\"g\": {" W8 ", " A8 ", \"format\": \"dense\"}"),
     UNSUPPORTED, "g.format: \"dense\""},
    {phi3_base, CT("\"pack-quantized\"", "\"g\": {" W4("\"symmetric\": false") "}"), UNSUPPORTED,
     "g.weights.symmetric: false"},
    {phi3_base, CT("\"pack-quantized\"", "\"g\": {" W4("\"actorder\": \"group\"") "}"),
     UNSUPPORTED, "g.weights.actorder: \"group\""},
    {phi3_base, CT("\"pack-quantized\"", "\"g\": {" W4("\"dynamic\": true") "}"), UNSUPPORTED,
     "g.weights.dynamic: true"},
    {phi3_base, CT("\"int-quantized\"", "\"g\": {" W4("\"type\": \"int\"") "}"), UNSUPPORTED,
     "quantization_config.format: \"int-quantized\" is not supported (supported: "
     "\"pack-quantized\")"},
    /* dimensions */
    {phi_base, "{\"hidden_size\": 0}", FORMAT, "hidden_size: 0 is not between 1 and"},
    {phi_base, "{\"hidden_size\": -8}", FORMAT, "hidden_size: -8"},
    {phi_base, "{\"hidden_size\": 1e3}", FORMAT, "hidden_size: expected an integer"},
    {phi_base, "{\"hidden_size\": \"32\"}", FORMAT, "hidden_size: expected an integer"},
    {phi_base, "{\"vocab_size\": 9223372036854775807}", FORMAT, "vocab_size: 9223372036854775807"},
    {phi_base, "{\"num_hidden_layers\": 1000000}", FORMAT, "num_hidden_layers: 1000000"},
    {phi_base, "{\"max_position_embeddings\": 0}", FORMAT, "max_position_embeddings: 0"},
    {phi_base, "{\"num_attention_heads\": 3}", FORMAT,
     "hidden_size: 32 is not a multiple of num_attention_heads 3"},
    {phi3_base, "{\"num_key_value_heads\": 3}", FORMAT,
     "num_attention_heads: 4 is not a multiple of num_key_value_heads 3"},
    {phi3_base, "{\"num_key_value_heads\": 8}", FORMAT, "num_key_value_heads 8"},
    {phi_base, "{\"head_dim\": 12}", UNSUPPORTED, "head_dim: 12 is not a multiple of 8"},
    {phi_base, "{\"hidden_size\": 40}", UNSUPPORTED, "head_dim: 20 is not a multiple of 8"},
    {phi_base, "{\"head_dim\": 520}", FORMAT, "head_dim: 520"},
    {phi_base, "{\"hidden_size\": 2048}", UNSUPPORTED, "head_dim: 1024"},
    {msft_base, "{\"n_embd\": null}", FORMAT, "n_embd: missing"},
    {msft_base, "{\"n_layer\": null}", FORMAT, "n_layer: missing"},
    {msft_base, "{\"n_head\": 3}", FORMAT, "n_embd: 32 is not a multiple of n_head 3"},
    {msft_base, "{\"rotary_dim\": 7}", UNSUPPORTED, "7 rotary dimensions"},
    {msft_base, "{\"activation_function\": \"relu\"}", UNSUPPORTED,
     "activation_function: \"relu\""},
    /* switches and scalars */
    {phi_base, "{\"hidden_act\": \"gelu\"}", UNSUPPORTED, "hidden_act: \"gelu\" is not supported"},
    {phi3_base, "{\"hidden_act\": \"gelu_new\"}", UNSUPPORTED, "hidden_act: \"gelu_new\""},
    {phi3_base, "{\"mlp_bias\": true}", UNSUPPORTED, "mlp_bias: true is not supported"},
    {phi3_base, "{\"lm_head_bias\": true}", UNSUPPORTED, "lm_head_bias: true"},
    {phi3_base, "{\"attention_bias\": 1}", FORMAT, "attention_bias: expected true or false"},
    {phi3_base, "{\"rms_norm_eps\": 0}", FORMAT, "rms_norm_eps: 0 is not between"},
    {phi3_base, "{\"rms_norm_eps\": -1e-5}", FORMAT, "rms_norm_eps"},
    {phi3_base, "{\"sliding_window\": 0}", FORMAT, "sliding_window: 0"},
    {phi3_base, "{\"torch_dtype\": \"float64\"}", UNSUPPORTED, "torch_dtype: \"float64\""},
    {phi3_base, "{\"dtype\": \"float8_e4m3fn\"}", UNSUPPORTED, "dtype: \"float8_e4m3fn\""},
    {phi3_base, "{\"eos_token_id\": \"7\"}", FORMAT, "eos_token_id: expected a token id"},
    {phi3_base, "{\"eos_token_id\": [7, null]}", FORMAT, "eos_token_id"},
    {phi3_base, "{\"eos_token_id\": 4294967296}", FORMAT, "eos_token_id"},
    {phi3_base, "{\"bos_token_id\": [1]}", FORMAT, "bos_token_id: expected an integer"},
    /* rotary */
    {phi_base, "{\"partial_rotary_factor\": 1.5}", FORMAT, "partial_rotary_factor: 1.5"},
    {phi_base, "{\"partial_rotary_factor\": 0}", FORMAT, "partial_rotary_factor: 0"},
    {phi_base, "{\"partial_rotary_factor\": 0.45}", UNSUPPORTED, "gives 7 rotary dimensions"},
    {phi_base, "{\"partial_rotary_factor\": 0.01}", UNSUPPORTED, "gives 0 rotary dimensions"},
    {phi_base, "{\"rope_theta\": 0}", FORMAT, "config.json: rope_theta: 0 is not a positive"},
    {phi_base, "{\"rope_scaling\": \"linear\"}", FORMAT, "rope_scaling: expected an object"},
    {phi_base, "{\"rope_scaling\": {\"type\": \"ntk\"}}", UNSUPPORTED,
     "rope_scaling: type: \"ntk\" is not supported for model_type phi"},
    {phi_base, "{\"rope_scaling\": {\"rope_type\": \"llama3\"}}", UNSUPPORTED,
     "rope_scaling: rope_type: \"llama3\""},
    {phi_base, "{\"rope_parameters\": {\"rope_type\": \"longrope\"}}", UNSUPPORTED,
     "rope_parameters: rope_type: \"longrope\""},
    {phi3_base, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}", UNSUPPORTED,
     "\"linear\" is not supported for model_type phi3 (supported: default, longrope)"},
    {phi_base, "{\"rope_scaling\": {\"type\": \"linear\"}}", FORMAT,
     "rope_scaling: factor: missing"},
    {phi_base, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": -1}}", FORMAT, "factor: -1"},
    {phi_base,
     "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"mscale\": -9,"
     " \"mscale_all_dim\": 1}}",
     FORMAT, "mscale"},
    {phi3_base, "{\"rope_scaling\": {\"type\": \"longrope\", \"long_factor\": " ONES8 "}}", FORMAT,
     "short_factor: missing"},
    {phi3_base,
     "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": 3,"
     " \"long_factor\": " ONES8 "}}",
     FORMAT, "short_factor: expected an array"},
    {phi3_base,
     "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": " ONES8 ","
     " \"long_factor\": [1, 1, 1, 1, 1, 1, 1, 0]}}",
     FORMAT, "long_factor: element 7 is not a positive number"},
    {phi3_base, LONGROPE(", \"attention_factor\": -1"), FORMAT, "attention_factor: -1"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct phi_config c;
        struct phi_error err = {0};
        enum phi_status status =
            parse_changed(refusals[i].base, refusals[i].changes, NULL, &c, &err);
        if (status != refusals[i].status)
            fail_msg("%s: status %d, text \"%s\"", refusals[i].changes, status, err.text);
        assert_int_equal(err.code, status);
        assert_contains(err.text, refusals[i].text);
    }
}

/* As the library writes them, unknown and empty fields included. */
static void test_quantized(void **state)
{
    static const char *const taken[] = {
        CT("\"int-quantized\", \"ignore\": [\"lm_head\"], \"kv_cache_scheme\": null, "
           "\"sparsity_config\": {}, \"version\": \"0.12.0\", \"quantization_status\": \"compressed\"",
           "\"group_0\": {\"targets\": [\"Linear\"], " W8 ", " A8 ", \"output_activations\": null, "
           "\"format\": null}"),
        CT("\"pack-quantized\", \"quantization_status\": \"frozen\"",
           "\"group_0\": {\"input_activations\": null, " W4("\"observer\": \"mse\"") "}"),
        CT("\"pack-quantized\"", "\"W4A8\": {" A8 ", " W4("\"actorder\": \"weight\"") "}"),
        CT("\"mixed-precision\"",
           "\"a\": {" W4("\"type\": \"int\"") ", \"format\": \"pack-quantized\"}, "
           "\"b\": {" W8 ", " A8 ", \"format\": \"int-quantized\"}"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct phi_config c;
        accept(phi3_base, taken[i], NULL, &c);
        assert_true(c.quantized);
    }
    struct phi_config c;
    accept(phi3_base, "{\"quantization_config\": null}", NULL, &c);
    assert_false(c.quantized);
}

static void test_not_a_config(void **state)
{
    (void)state;
    static const struct {
        const char *config, *generation, *text;
    } rows[] = {
        {"", "", "config.json: not valid JSON"},
        {"[]", "", "config.json: expected an object"},
        {"{} }", "", "config.json: not valid JSON: line 1 column 4"},
        {phi_base, "[]", "generation_config.json: expected an object"},
        {phi_base, "{", "generation_config.json: not valid JSON"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_config c;
        struct phi_error err;
        assert_int_equal(phi_config_parse(phi_str_from(rows[i].config),
                                          phi_str_from(rows[i].generation), "config.json", &c,
                                          &err),
                         PHI_ERR_FORMAT);
        assert_contains(err.text, rows[i].text);
    }
}

/* --- generation_config.json --- */

/* H39: the type and the order of eos_token_id do not matter; without the file the config counts. */
static void test_stop_ids(void **state)
{
    (void)state;
    static const struct {
        const char *config_eos, *generation;
        int n, ids[4];
    } rows[] = {
        {"7", "{\"eos_token_id\": [9, 8, 7]}", 3, {7, 8, 9}},
        {"7", "{\"eos_token_id\": [7, 8, 9]}", 3, {7, 8, 9}},
        {"7", "{\"eos_token_id\": 9}", 2, {7, 9}},
        {"7", "{\"eos_token_id\": null}", 1, {7}},
        {"7", "{}", 1, {7}},
        {"7", NULL, 1, {7}},
        {"[7, 8]", NULL, 2, {7, 8}},
        {"null", "{\"eos_token_id\": 9}", 1, {9}},
        {"null", NULL, 0, {0}},
        {"0", NULL, 1, {0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_config c;
        char changes[64];
        snprintf(changes, sizeof changes, "{\"eos_token_id\": %s}", rows[i].config_eos);
        accept(phi3_base, changes, rows[i].generation, &c);
        assert_int_equal(c.n_stop_ids, rows[i].n);
        for (int k = 0; k < rows[i].n; k++) {
            bool found = false;
            for (int j = 0; j < c.n_stop_ids; j++)
                found = found || c.stop_ids[j] == rows[i].ids[k];
            assert_true(found);
        }
    }
}

/* The class's default stop id is for checkpoints that say nothing at all. */
static void test_default_stop_id(void **state)
{
    (void)state;
    static const char silent[] = "{\"model_type\": \"phi3\"}";
    struct phi_config c;
    accept(silent, NULL, "{\"temperature\": 1}", &c);
    assert_int_equal(c.n_stop_ids, 0);
    accept(silent, NULL, "{\"eos_token_id\": 32007}", &c);
    assert_int_equal(c.n_stop_ids, 1);
    assert_int_equal(c.stop_ids[0], 32007);
}

static void test_add_stop_id(void **state)
{
    (void)state;
    struct phi_config c;
    accept(phi3_base, "{\"vocab_size\": 1000}", NULL, &c);
    assert_true(phi_config_add_stop_id(&c, 7));
    assert_int_equal(c.n_stop_ids, 1);
    assert_true(phi_config_add_stop_id(&c, -1));
    assert_true(phi_config_add_stop_id(&c, 1000));
    assert_int_equal(c.n_stop_ids, 1);
    for (int32_t id = 100; c.n_stop_ids < PHI_MAX_STOP_IDS; id++)
        assert_true(phi_config_add_stop_id(&c, id));
    assert_false(phi_config_add_stop_id(&c, 999));
    assert_true(phi_config_add_stop_id(&c, 100)); /* is there already */
}

static void test_generation_defaults(void **state)
{
    (void)state;
    struct phi_config c;
    accept(phi3_base, NULL,
           "{\"do_sample\": true, \"temperature\": 0.8, \"top_p\": 0.95, \"top_k\": 50, \"min_p\": "
           "0.1,"
           " \"repetition_penalty\": 1.1, \"max_new_tokens\": 64, \"pad_token_id\": 3}",
           &c);
    assert_true(c.generation.has_do_sample && c.generation.do_sample);
    assert_true(c.generation.has_temperature && c.generation.has_top_p && c.generation.has_top_k);
    assert_true(c.generation.has_min_p && c.generation.has_repetition_penalty);
    assert_near(c.generation.temperature, 0.8);
    assert_near(c.generation.top_p, 0.95);
    assert_int_equal(c.generation.top_k, 50);
    assert_near(c.generation.min_p, 0.1);
    assert_near(c.generation.repetition_penalty, 1.1);
    assert_true(c.generation.has_max_new_tokens);
    assert_int_equal(c.generation.max_new_tokens, 64);
    assert_int_equal(c.pad_token_id, 3);
    assert_int_equal(c.bos_token_id, 1);

    accept(phi3_base, NULL,
           "{\"temperature\": 0, \"top_k\": 0, \"do_sample\": false, \"top_p\": null}", &c);
    assert_true(c.generation.has_temperature && c.generation.temperature == 0); /* 0 is a value */
    assert_true(c.generation.has_top_k && c.generation.top_k == 0);
    assert_true(c.generation.has_do_sample && !c.generation.do_sample);
    assert_false(c.generation.has_top_p); /* null is not */
}

static void test_generation_refused(void **state)
{
    (void)state;
    static const struct {
        const char *generation, *text;
    } rows[] = {
        {"{\"temperature\": -1}", "generation_config.json: temperature: -1 is not between 0 and"},
        {"{\"temperature\": \"hot\"}", "temperature: expected a number"},
        {"{\"top_p\": 1.5}", "top_p: 1.5"},
        {"{\"min_p\": -0.1}", "min_p: -0.1"},
        {"{\"top_k\": -2}", "top_k: -2"},
        {"{\"top_k\": 2.5}", "top_k: expected an integer"},
        {"{\"repetition_penalty\": 0}", "repetition_penalty: 0"},
        {"{\"max_new_tokens\": -1}", "max_new_tokens: -1"},
        {"{\"do_sample\": 1}", "do_sample: expected true or false"},
        {"{\"eos_token_id\": {}}", "generation_config.json: eos_token_id"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_config c;
        struct phi_error err;
        assert_int_equal(parse_changed(phi3_base, NULL, rows[i].generation, &c, &err),
                         PHI_ERR_FORMAT);
        assert_contains(err.text, rows[i].text);
    }
    char many[1024] = "{\"eos_token_id\": [0";
    for (int i = 1; i <= PHI_MAX_STOP_IDS; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ",%d", i);
    strcat(many, "]}");
    struct phi_config c;
    struct phi_error err;
    assert_int_equal(parse_changed(phi3_base, NULL, many, &c, &err), PHI_ERR_UNSUPPORTED);
    assert_contains(err.text, "eos_token_id: more than 64");
}

/* --- files --- */

static void test_files(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct phi_config c;
    struct phi_error err;
    temp_folder_open(&folder);
    assert_int_equal(phi_config_read(folder.path, &c, &err), PHI_ERR_IO);
    assert_contains(err.text, "/config.json: cannot open: No such file");
    temp_write(&folder, "config.json", phi3_base, strlen(phi3_base));
    assert_int_equal(phi_config_read(folder.path, &c, &err), PHI_OK);
    assert_int_equal(c.n_stop_ids, 1);
    temp_write(&folder, "generation_config.json", "", 0);
    assert_int_equal(phi_config_read(folder.path, &c, &err), PHI_ERR_FORMAT);
    assert_contains(err.text, "/generation_config.json: is empty");
    temp_write(&folder, "generation_config.json", "{\"eos_token_id\": \"x\"}", 21);
    assert_int_equal(phi_config_read(folder.path, &c, &err), PHI_ERR_FORMAT);
    assert_contains(err.text, "/generation_config.json: eos_token_id");
    temp_write(&folder, "generation_config.json", "{\"eos_token_id\": [5]}", 21);
    assert_int_equal(phi_config_read(folder.path, &c, &err), PHI_OK);
    assert_int_equal(c.n_stop_ids, 2);
    temp_write(&folder, "config.json", "{\"model_type\": \"phi3small\"}", 27);
    assert_int_equal(phi_config_read(folder.path, &c, &err), PHI_ERR_UNSUPPORTED);
    assert_contains(err.text, "/config.json: model_type: \"phi3small\"");
    temp_folder_close(&folder);
}

static enum phi_status read_folder(void *context, struct phi_error *err)
{
    struct phi_config c;
    return phi_config_read(context, &c, err);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct temp_folder folder;
    temp_folder_open(&folder);
    temp_write(&folder, "config.json", phi3_base, strlen(phi3_base));
    temp_write(&folder, "generation_config.json", "{\"eos_token_id\": [5]}", 21);
    assert_true(for_each_failing_allocation(read_folder, folder.path) > 20);
    temp_folder_close(&folder);
}

static char warning[1024];

static void keep_warning(void *context, int level, const char *line)
{
    (void)context;
    assert_int_equal(level, PHI_LOG_WARNING);
    snprintf(warning, sizeof warning, "%s", line);
}

static void test_stop_id_outside_vocabulary(void **state)
{
    (void)state;
    struct phi_config c;
    phi_log_set_sink(keep_warning, NULL);
    accept(phi3_base, NULL, "{\"eos_token_id\": [96, 95]}", &c);
    phi_log_set_sink(NULL, NULL);
    assert_int_equal(c.n_stop_ids, 2);
    assert_contains(warning, "generation_config.json: eos_token_id: 96 is outside the vocabulary");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_checkpoints),
        cmocka_unit_test(test_phi_defaults),
        cmocka_unit_test(test_phi3_defaults),
        cmocka_unit_test(test_architecture_alone),
        cmocka_unit_test(test_msft),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_rope_lists),
        cmocka_unit_test(test_factor_count),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_quantized),
        cmocka_unit_test(test_not_a_config),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_default_stop_id),
        cmocka_unit_test(test_add_stop_id),
        cmocka_unit_test(test_generation_defaults),
        cmocka_unit_test(test_generation_refused),
        cmocka_unit_test(test_stop_id_outside_vocabulary),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
