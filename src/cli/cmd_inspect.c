/* cmd_inspect.c: phidelity inspect: what a checkpoint is and what running it would take. */
#include "base/dtype.h"
#include "cli/flags.h"
#include "cli/json_text.h"

#include <inttypes.h>
#include <jansson.h>

struct own_flags {
    bool json;
};

struct flags {
    struct own_flags own;
    struct cli_model_flags model;
    struct cli_engine_flags engine;
    struct cli_common_flags common;
};

/* clang-format off */
static const struct cli_option_group own_group = {
    "Output",
    (const struct cli_option[]){
        {.name = "json", .kind = CLI_BOOL, .offset = offsetof(struct own_flags, json),
         .help = "print one JSON object"},
        {0},
    },
};
/* clang-format on */

static int run(int argc, char **argv);

const struct cli_command cli_inspect = {
    .name = "inspect",
    .arguments = "MODEL [options]",
    .summary = "describes a checkpoint: architecture, memory plan, stop ids, instruction set",
    .details =
        "With --load-format dummy the folder needs no weights: what they take is counted from "
        "config.json.",
    .options =
        (const struct cli_option_use[]){
            {&own_group, offsetof(struct flags, own)},
            {&cli_model_group, offsetof(struct flags, model)},
            {&cli_engine_group, offsetof(struct flags, engine)},
            {&cli_common_group, offsetof(struct flags, common)},
            {0},
        },
    .run = run,
};

/* "2.6 GiB" */
static const char *human_bytes(uint64_t n, char out[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)n;
    int unit = 0;
    for (; x >= 1024 && unit < 4; unit++)
        x /= 1024;
    snprintf(out, 32, unit ? "%.1f %s" : "%.0f %s", x, units[unit]);
    return out;
}

static void print_line(struct cli_out *out, const char *name, const char *fmt, ...)
    PHI_PRINTF(3, 4);
static void print_line(struct cli_out *out, const char *name, const char *fmt, ...)
{
    char value[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    cli_out_printf(out, "%-18s", name);
    cli_out_write(out, phi_str_from(value));
    cli_out_write(out, PHI_STR("\n"));
}

static void print_model(struct cli_out *out, const struct phi_model_info *m)
{
    char a[32], b[32];
    print_line(out, "architecture", "%s", m->architecture);
    print_line(out, "parameters", "%" PRIu64, m->n_parameters);
    print_line(out, "layers", "%d of width %d", m->n_layers, m->hidden_size);
    print_line(out, "heads", "%d, %d for keys and values, of size %d (%d rotated)", m->n_heads,
               m->n_kv_heads, m->head_dim, m->rotary_dim);
    if (m->n_token_ids)
        print_line(out, "vocabulary", "%d rows, %d with a token", m->vocab_size, m->n_token_ids);
    else
        print_line(out, "vocabulary", "%d rows, no tokenizer", m->vocab_size);
    print_line(out, "context", "%d tokens", m->max_position_embeddings);
    print_line(out, "rope", "%s, theta %g", m->rope_type, m->rope_theta);
    if (m->original_max_position_embeddings != m->max_position_embeddings)
        print_line(out, "rope regimes", "short up to %d tokens, long beyond",
                   m->original_max_position_embeddings);
    if (m->sliding_window)
        print_line(out, "sliding window", "%d tokens", m->sliding_window);
    print_line(out, "dtype", "%s (file: %s)", phi_dtype_name(m->dtype),
               phi_dtype_name(m->file_dtype));
    static const char *const schemes[] = {"none", "w8a8", "w4a8"};
    if (m->quantization)
        print_line(out, "quantization", "%s", schemes[m->quantization]);
    print_line(out, "weights", "%s mapped, %s converted", human_bytes(m->weight_bytes, a),
               human_bytes(m->converted_bytes, b));
}

static void print_tokens(struct cli_out *out, const struct phi_model_info *m)
{
    cli_out_printf(out, "%-18s", "stop ids");
    for (int i = 0; i < m->n_stop_ids; i++)
        cli_out_printf(out, i ? " %d" : "%d", (int)m->stop_ids[i]);
    cli_out_write(out, m->n_stop_ids ? PHI_STR("\n") : PHI_STR("none\n"));
    print_line(out, "chat template", "%s", m->has_chat_template ? "yes" : "no");
}

static void print_plan(struct cli_out *out, const struct phi_engine_info *e)
{
    char a[32], b[32];
    print_line(out, "max model len", "%d tokens", e->max_model_len);
    print_line(out, "KV cache", "%s of %s for %" PRIu64 " tokens (%" PRIu64 " bytes a token)",
               human_bytes(e->kv_bytes, a), phi_dtype_name(e->kv_dtype), e->kv_tokens,
               e->kv_bytes_per_token);
    print_line(out, "scratch", "%s for %d tokens a step", human_bytes(e->scratch_bytes, b),
               e->max_num_batched_tokens);
    print_line(out, "answers together", "%d", e->max_num_seqs);
}

static void print_text(struct cli_out *out, const struct phi_model_info *m,
                       const struct phi_engine_info *e)
{
    print_model(out, m);
    print_tokens(out, m);
    print_plan(out, e);
    print_line(out, "instruction set", "%s", m->isa);
    print_line(out, "threads", "%d", m->n_threads);
}

static json_t *model_json(const struct phi_model_info *m)
{
    json_t *stop_ids = json_array();
    for (int i = 0; i < m->n_stop_ids; i++)
        json_array_append_new(stop_ids, json_integer(m->stop_ids[i]));
    return json_pack(
        "{s:s, s:I, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
        "s:s, "
        "s:f, s:o, s:i, s:i, s:b, s:s, s:i}",
        "architecture", m->architecture, "parameters", (json_int_t)m->n_parameters, "dtype",
        phi_dtype_name(m->dtype), "file_dtype", phi_dtype_name(m->file_dtype), "weight_bytes",
        (json_int_t)m->weight_bytes, "converted_bytes", (json_int_t)m->converted_bytes, "layers",
        m->n_layers, "hidden_size", m->hidden_size, "heads", m->n_heads, "kv_heads", m->n_kv_heads,
        "head_dim", m->head_dim, "rotary_dim", m->rotary_dim, "vocab_size", m->vocab_size,
        "token_ids", m->n_token_ids, "max_position_embeddings", m->max_position_embeddings,
        "original_max_position_embeddings", m->original_max_position_embeddings, "sliding_window",
        m->sliding_window, "rope_type", m->rope_type, "rope_theta", m->rope_theta, "stop_ids",
        stop_ids, "bos_id", (int)m->bos_id, "eos_id", (int)m->eos_id, "chat_template",
        (int)m->has_chat_template, "isa", m->isa, "threads", m->n_threads);
}

static json_t *plan_json(const struct phi_engine_info *e)
{
    return json_pack(
        "{s:i, s:i, s:i, s:i, s:s, s:I, s:I, s:I, s:I}", "max_model_len", e->max_model_len,
        "max_num_seqs", e->max_num_seqs, "max_num_batched_tokens", e->max_num_batched_tokens,
        "block_size", e->block_size, "kv_dtype", phi_dtype_name(e->kv_dtype), "kv_bytes",
        (json_int_t)e->kv_bytes, "kv_tokens", (json_int_t)e->kv_tokens, "kv_bytes_per_token",
        (json_int_t)e->kv_bytes_per_token, "scratch_bytes", (json_int_t)e->scratch_bytes);
}

static void print_json(struct cli_out *out, const struct phi_model_info *m,
                       const struct phi_engine_info *e)
{
    json_t *all = model_json(m);
    if (all && json_object_set_new(all, "plan", plan_json(e)) != 0) {
        json_decref(all);
        all = NULL;
    }
    cli_out_json(out, all, JSON_INDENT(2));
}

static enum phi_status inspect(const struct cli_args *args, const struct flags *flags,
                               struct phi_model **model, struct cli_out *out, struct phi_error *err)
{
    struct phi_model_info m;
    struct phi_engine_info e;
    struct phi_engine_options o;
    struct cli_model_flags how = flags->model;
    if (how.load_format == CLI_LOAD_DUMMY)
        how.load_format = CLI_LOAD_COUNTED;
    PHI_TRY(cli_open_model(args, &flags->common, &how, model, err));
    PHI_TRY(cli_engine_options(args, &flags->engine, flags->model.seed, 0, *model, &o, err));
    PHI_TRY(phi_engine_plan(*model, &o, &e, err));
    phi_model_get_info(*model, &m);
    (flags->own.json ? print_json : print_text)(out, &m, &e);
    return PHI_OK;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct cli_args args;
    struct phi_model *model = NULL;
    struct cli_out out;
    struct phi_error err;
    int code = cli_parse(&cli_inspect, argc, argv, &flags, &args);
    if (code < 0 && args.n_positional == 2)
        code = cli_usage_error(&cli_inspect, "unexpected argument '%s'", args.positional[1]);
    if (code < 0) {
        cli_out_init(&out);
        enum phi_status status = inspect(&args, &flags, &model, &out, &err);
        code = cli_out_finish(&out, status == PHI_OK ? CLI_OK : cli_fail(&err));
    }
    phi_model_close(model);
    cli_options_deinit(&args, &flags);
    return code;
}
