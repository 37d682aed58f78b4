/* flags.c: see flags.h. */
#include "cli/flags.h"

#include <limits.h>
#include <stdio.h>

static const struct cli_name dtype_names[] = {
    {"auto", PHI_AUTO},
    {"float32", PHI_FLOAT32},
    {"bfloat16", PHI_BFLOAT16},
    {"float16", PHI_FLOAT16},
    {"float", PHI_FLOAT32},
    {"half", PHI_FLOAT16},
    {NULL, 0},
};

static const struct cli_name quantization_names[] = {
    {"none", PHI_UNQUANTIZED},
    {"w8a8", PHI_W8A8},
    {"w4a8", PHI_W4A8},
    {"compressed-tensors", PHI_UNQUANTIZED}, /* vLLM's word for what config.json says anyway */
    {"None", PHI_UNQUANTIZED},
    {NULL, 0},
};

static const struct cli_name load_names[] = {
    {"auto", CLI_LOAD_AUTO},
    {"safetensors", CLI_LOAD_AUTO},
    {"dummy", CLI_LOAD_DUMMY},
    {NULL, 0},
};

static const struct cli_name strategy_names[] = {
    {"auto", PHI_LOAD_AUTO},         {"lazy", PHI_LOAD_LAZY},
    {"prefetch", PHI_LOAD_PREFETCH}, {"eager", PHI_LOAD_EAGER},
    {"None", PHI_LOAD_AUTO}, /* as vLLM's default is spelled */
    {NULL, 0},
};

static const struct cli_name generation_names[] = {
    {"auto", CLI_GENERATION_AUTO},
    {"vllm", CLI_GENERATION_VLLM},
    {NULL, 0},
};

static const struct cli_name policy_names[] = {
    {"fcfs", PHI_FCFS},
    {"priority", PHI_PRIORITY},
    {NULL, 0},
};

/* Words for numbers. */
static const struct cli_name auto_length[] = {{"auto", 0}, {NULL, 0}};

/* clang-format off */
#define AT(member) .offset = offsetof(struct cli_common_flags, member)
const struct cli_option_group cli_common_group = {
    "Common",
    (const struct cli_option[]){
        {.name = "tokenizer", .kind = CLI_TEXT, AT(tokenizer), .argument = "DIR",
         .help = "take tokenizer and chat template from another folder"},
        {.name = "chat-template", .kind = CLI_TEXT, AT(chat_template), .argument = "FILE",
         .help = "a chat template instead of the model's: a file, or the template itself"},
        {.name = "verbose", .brief = "v", .kind = CLI_BOOL, AT(verbose),
         .help = "also print what the library has to say about its work"},
        {0},
    },
};
#undef AT

#define AT(member) .offset = offsetof(struct cli_model_flags, member)
const struct cli_option_group cli_model_group = {
    "Model",
    (const struct cli_option[]){
        {.name = "dtype", .kind = CLI_CHOICE, AT(dtype), .argument = "D", .initial = "auto",
         .names = dtype_names,
         .help = "how weights and matrix inputs are held; auto is the file's"},
        {.name = "quantization", .brief = "q", .kind = CLI_CHOICE, AT(quantization),
         .argument = "Q", .initial = "none", .names = quantization_names,
         .help = "make the linear layers' weights integers at load; none is as the file has them"},
        {.name = "quant-group-size", .kind = CLI_INT, AT(quant_group_size), .initial = "0",
         .max = 65536,
         .help = "of w4a8: weights that share a scale, a multiple of 32; 0 takes 128, 64 or 32"},
        {.name = "quantize-lm-head", .kind = CLI_BOOL, AT(quantize_lm_head), .initial = "on",
         .help = "under --quantization the output head is made 8-bit too"},
        {.name = "load-format", .kind = CLI_CHOICE, AT(load_format), .argument = "F",
         .initial = "auto", .names = load_names,
         .help = "where weights come from; dummy makes seeded random ones from config.json alone"},
        {.name = "safetensors-load-strategy", .kind = CLI_CHOICE, AT(load_strategy),
         .argument = "S", .initial = "auto", .names = strategy_names,
         .help = "lazy maps the files; auto also moves them to huge pages in the background, "
                 "prefetch before the start; eager reads them into memory of its own"},
        {.name = "threads", .kind = CLI_INT, AT(threads), .initial = "0", .max = 1024,
         .help = "threads that compute; 0 takes one for each physical core"},
        {.name = "seed", .kind = CLI_INT64, AT(seed), .initial = "0",
         .help = "seed of sampling, and of dummy weights"},
        {0},
    },
};
#undef AT

#define AT(member) .offset = offsetof(struct cli_engine_flags, member)
const struct cli_option_group cli_engine_group = {
    "Engine",
    (const struct cli_option[]){
        {.name = "max-model-len", .kind = CLI_INT, AT(max_model_len), .initial = "auto", .min = -1,
         .max = INT_MAX, .human_size = true, .names = auto_length,
         .help = "tokens of prompt and answer together; auto takes the checkpoint's maximum, or "
                 "the longest that fits in memory"},
        {.name = "max-num-seqs", .kind = CLI_INT, AT(max_num_seqs), .initial = "128", .min = 1,
         .max = INT_MAX, .help = "answers that decode together"},
        {.name = "max-num-batched-tokens", .kind = CLI_INT, AT(max_num_batched_tokens),
         .initial = "512", .min = 1, .max = INT_MAX, .human_size = true,
         .help = "tokens that one step takes from all prompts and answers"},
        {.name = "block-size", .kind = CLI_INT, AT(block_size), .initial = "32", .min = 16,
         .max = 256, .help = "tokens of one block of the KV cache, a multiple of 16"},
        {.name = "kv-cache-dtype", .kind = CLI_CHOICE, AT(kv_dtype), .argument = "D",
         .initial = "auto", .names = dtype_names,
         .help = "how the KV cache is held; auto is --dtype"},
        {.name = "enable-prefix-caching", .kind = CLI_BOOL, AT(enable_prefix_caching),
         .initial = "on",
         .help = "prompts that begin alike, as the turns of a chat do, share what is computed"},
        {.name = "gpu-memory-utilization", .kind = CLI_REAL, AT(memory_utilization),
         .argument = "X", .above_min = true, .max = 1,
         .help = "part of the machine's memory that the program may take in all; the KV cache gets "
                 "what the weights leave of it"},
        {.name = "kv-cache-memory-bytes", .kind = CLI_INT64, AT(kv_bytes), .initial = "0",
         .max = 9e18, .human_size = true,
         .help = "size of the KV cache, over the former; 0 without the former takes what the other "
                 "limits need, at most a quarter of the memory"},
        {.name = "num-gpu-blocks-override", .kind = CLI_INT, AT(n_blocks), .min = 1,
         .max = INT_MAX, .help = "size of the KV cache in blocks, over both"},
        {.name = "scheduling-policy", .kind = CLI_CHOICE, AT(scheduling_policy),
         .argument = "P", .initial = "fcfs", .names = policy_names,
         .help = "who goes first, whoever came first or whoever has the lower priority"},
        {.name = "bind-threads", .kind = CLI_BOOL, AT(bind_threads),
         .help = "keep each computing thread on a core of its own, where there are as many cores"},
        {0},
    },
};
#undef AT

/* Defaults that generation_config.json can replace say so; the others are vLLM's. */
#define AT(member) .offset = offsetof(struct cli_sampling_flags, member)
const struct cli_option_group cli_sampling_group = {
    "Sampling",
    (const struct cli_option[]){
        {.name = "max-tokens", .kind = CLI_INT, AT(max_tokens), .max = INT_MAX,
         .help = "length of the answer; 0 takes what the context has room for (default: the "
                 "model's, else 16; chat 0)"},
        {.name = "min-tokens", .kind = CLI_INT, AT(min_tokens), .initial = "0", .max = INT_MAX,
         .help = "the answer does not end before this many"},
        {.name = "temperature", .kind = CLI_REAL, AT(temperature), .argument = "X", .max = 1e30,
         .help = "0 takes the likeliest token (default: the model's, else 1)"},
        {.name = "top-p", .kind = CLI_REAL, AT(top_p), .argument = "X", .above_min = true, .max = 1,
         .help = "keep the likeliest tokens that sum to this (default: the model's, else 1)"},
        {.name = "top-k", .kind = CLI_INT, AT(top_k), .min = -1, .max = INT_MAX,
         .help = "keep this many; 0 or -1 keeps all (default: the model's, else 0)"},
        {.name = "min-p", .kind = CLI_REAL, AT(min_p), .argument = "X", .max = 1,
         .help = "drop tokens below this part of the likeliest (default: the model's, else 0)"},
        {.name = "repetition-penalty", .kind = CLI_REAL, AT(repetition_penalty), .argument = "X",
         .above_min = true, .max = 1e30,
         .help = "divides scores of tokens seen in prompt or answer (default: the model's, "
                 "else 1)"},
        {.name = "presence-penalty", .kind = CLI_REAL, AT(presence_penalty), .argument = "X",
         .initial = "0", .min = -2, .max = 2,
         .help = "subtracted from tokens that the answer has"},
        {.name = "frequency-penalty", .kind = CLI_REAL, AT(frequency_penalty), .argument = "X",
         .initial = "0", .min = -2, .max = 2, .help = "the same for each time it has them"},
        {.name = "stop", .kind = CLI_TEXTS, AT(stop), .argument = "TEXT",
         .help = "the answer ends before this text"},
        {.name = "stop-token-ids", .kind = CLI_IDS, AT(stop_token_ids), .argument = "IDS",
         .help = "the answer ends at these ids"},
        {.name = "include-stop-str-in-output", .kind = CLI_BOOL, AT(include_stop),
         .help = "the stop text stays in the answer"},
        {.name = "ignore-eos", .kind = CLI_BOOL, AT(ignore_eos),
         .help = "go on past the model's end of text"},
        {.name = "skip-special-tokens", .kind = CLI_BOOL, AT(skip_special_tokens), .initial = "on",
         .help = "leave control tokens out of the text"},
        {.name = "logit-bias", .kind = CLI_TEXTS, AT(logit_bias), .argument = "ID:BIAS",
         .help = "added to the score of a token; or a JSON object of ids and biases"},
        {.name = "allowed-token-ids", .kind = CLI_IDS, AT(allowed_token_ids), .argument = "IDS",
         .help = "only these ids can be chosen"},
        {.name = "bad-words", .kind = CLI_TEXTS, AT(bad_words), .argument = "TEXT",
         .help = "the answer cannot hold this text's tokens"},
        {.name = "n", .kind = CLI_INT, AT(n), .initial = "1", .min = 1, .max = 16384,
         .help = "answers for each prompt; more than one needs a temperature above 0"},
        {.name = "logprobs", .kind = CLI_INT, AT(logprobs), .argument = "K", .initial = "-1",
         .min = -1, .max = INT_MAX,
         .help = "log probabilities of each token and of the K likeliest; -1 is none; shown by "
                 "--json"},
        {.name = "prompt-logprobs", .kind = CLI_INT, AT(prompt_logprobs), .argument = "K",
         .initial = "-1", .min = -1, .max = INT_MAX, .help = "the same for the prompt's tokens"},
        {.name = "generation-config", .kind = CLI_CHOICE, AT(generation_config), .argument = "C",
         .initial = "auto", .names = generation_names,
         .help = "auto takes defaults from the model's generation_config.json, vllm does not"},
        {0},
    },
};
#undef AT
/* clang-format on */

/* --------------------------------------------------------------- opening */

static void print_log_line(void *context, int level, const char *line)
{
    const struct cli_common_flags *flags = context;
    static const char *const names[] = {"debug", "info", "warning", "error"};
    if (level >= 2 || flags->verbose)
        fprintf(stderr, "phidelity: %s: %s\n", names[level >= 0 && level <= 3 ? level : 3], line);
}

static void show_progress(void *context, const char *stage, uint64_t done, uint64_t total)
{
    cli_progress_show(context, stage, done, total);
}

enum phi_status cli_load_model(const struct cli_args *args, const struct cli_common_flags *common,
                               const struct cli_model_flags *model, struct phi_model **out,
                               struct phi_error *err)
{
    struct phi_model_options o;
    struct cli_progress progress;
    phi_model_options_init(&o);
    cli_progress_init(&progress);
    o.path = args->positional[0];
    o.tokenizer = common->tokenizer;
    o.chat_template = common->chat_template;
    o.no_weights = model == NULL;
    if (model) {
        o.dtype = (enum phi_dtype)model->dtype;
        o.quantization = (enum phi_quantization)model->quantization;
        o.quant_group_size = model->quant_group_size;
        o.keep_lm_head = !model->quantize_lm_head;
        o.dummy_weights = model->load_format == CLI_LOAD_DUMMY;
        o.count_weights = model->load_format == CLI_LOAD_COUNTED;
        o.load_strategy = (enum phi_load_strategy)model->load_strategy;
        o.seed = (uint64_t)model->seed;
        o.n_threads = model->threads;
    }
    o.progress = show_progress;
    o.progress_context = &progress;
    enum phi_status status = phi_model_open(&o, out, err);
    cli_progress_clear(&progress);
    return status;
}

enum phi_status cli_open_model(const struct cli_args *args, const struct cli_common_flags *common,
                               const struct cli_model_flags *model, struct phi_model **out,
                               struct phi_error *err)
{
    phi_set_log(print_log_line, (void *)(uintptr_t)common);
    return cli_load_model(args, common, model, out, err);
}

/* Bytes for so many blocks, from what a token takes. */
static enum phi_status bytes_of_blocks(const struct phi_model *model, int n_blocks,
                                       struct phi_engine_options *o, struct phi_error *err)
{
    struct phi_engine_options measured = *o;
    struct phi_engine_info info;
    measured.max_model_len = 1; /* the size of a token does not depend on it, and one fits */
    measured.kv_bytes = 0;
    measured.memory_utilization = 0;
    PHI_TRY(phi_engine_plan(model, &measured, &info, err));
    o->kv_bytes = info.kv_bytes_per_token * (uint64_t)o->block_size * (uint64_t)n_blocks;
    return PHI_OK;
}

enum phi_status cli_engine_options(const struct cli_args *args,
                                   const struct cli_engine_flags *flags, int64_t seed,
                                   size_t n_sequences, const struct phi_model *model,
                                   struct phi_engine_options *out, struct phi_error *err)
{
    phi_engine_options_init(out);
    out->max_model_len = flags->max_model_len > 0 ? flags->max_model_len : 0;
    out->max_num_seqs = flags->max_num_seqs;
    out->max_num_batched_tokens = flags->max_num_batched_tokens;
    out->block_size = flags->block_size;
    out->kv_bytes = (uint64_t)flags->kv_bytes;
    out->memory_utilization = flags->memory_utilization;
    out->kv_dtype = (enum phi_dtype)flags->kv_dtype;
    out->enable_prefix_caching = flags->enable_prefix_caching;
    out->scheduling_policy = (enum phi_policy)flags->scheduling_policy;
    out->bind_threads = flags->bind_threads;
    out->seed = (uint64_t)seed;
    if (!cli_given(args, "max-num-seqs")) {
        if (n_sequences > 0 && n_sequences < (size_t)out->max_num_seqs)
            out->max_num_seqs = (int)n_sequences;
        if (out->max_num_seqs > out->max_num_batched_tokens)
            out->max_num_seqs = out->max_num_batched_tokens;
    }
    return flags->n_blocks > 0 && model ? bytes_of_blocks(model, flags->n_blocks, out, err)
                                        : PHI_OK;
}
