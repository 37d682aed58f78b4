/* dataset.c: the prompts of a benchmark: random ones, and those of a file (declared in bench.h).
 * Everything random is a function of (seed, stream, index), so the same command measures the same
 * prompts on every machine. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "cli/bench/bench.h"
#include "cli/prompts.h"
#include "formats/json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

/* Of what a random number is for. Prompts have streams of their own from STREAM_PROMPTS on. */
enum { STREAM_LENGTHS = 1, STREAM_SHUFFLE = 2, STREAM_PREFIX = 3, STREAM_PROMPTS = 1 << 20 };

/* ShareGPT's turns that vLLM leaves out: too short to tell anything, or too long. */
enum { SHAREGPT_MIN = 4, SHAREGPT_MAX_PROMPT = 1024, SHAREGPT_MAX_TOTAL = 2048 };

enum { MAX_FILE_BYTES = INT_MAX };

static const struct cli_name dataset_names[] = {
    {"random", BENCH_RANDOM},
    {"sharegpt", BENCH_SHAREGPT},
    {"custom", BENCH_CUSTOM},
    {"prefix_repetition", BENCH_PREFIX_REPETITION},
    {NULL, 0},
};

/* clang-format off */
#define AT(member) .offset = offsetof(struct bench_dataset_flags, member)
#define TOKENS .kind = CLI_INT, .max = INT_MAX
const struct cli_option_group bench_dataset_group = {
    "Prompts",
    (const struct cli_option[]){
        {.name = "dataset-name", .kind = CLI_CHOICE, AT(name), .argument = "D",
         .initial = "random", .names = dataset_names, .help = "where prompts come from"},
        {.name = "dataset-path", .kind = CLI_TEXT, AT(path), .argument = "FILE",
         .help = "sharegpt: a JSON list of conversations; custom: lines of JSON with 'prompt' and "
                 "perhaps 'output_tokens'"},
        {.name = "num-prompts", .kind = CLI_INT, AT(n_prompts), .initial = "1000", .min = 1,
         .max = INT_MAX, .help = "requests in all"},
        {.name = "input-len", TOKENS, AT(input_len),
         .help = "tokens of each prompt, for --random-input-len"},
        {.name = "output-len", TOKENS, AT(output_len),
         .help = "tokens of each answer, whatever the prompts are"},
        {.name = "random-input-len", TOKENS, AT(random_input_len), .initial = "1024",
         .help = "tokens of each random prompt"},
        {.name = "random-output-len", TOKENS, AT(random_output_len), .initial = "128",
         .help = "tokens of its answer"},
        {.name = "random-range-ratio", .kind = CLI_REAL, AT(random_range_ratio), .argument = "R",
         .initial = "0", .max = 0.999999,
         .help = "lengths are drawn evenly between (1 - R) and (1 + R) times those"},
        {.name = "random-prefix-len", TOKENS, AT(random_prefix_len), .initial = "0",
         .help = "tokens in front that all random prompts have in common"},
        {.name = "sharegpt-output-len", TOKENS, AT(sharegpt_output_len),
         .help = "tokens of each answer; without it, as many as the file's has"},
        {.name = "custom-output-len", TOKENS, AT(custom_output_len), .initial = "256",
         .help = "tokens of each answer; 0 takes the line's 'output_tokens'"},
        {.name = "prefix-repetition-prefix-len", TOKENS, AT(repetition_prefix_len),
         .initial = "256", .help = "tokens that prompts of one prefix begin with"},
        {.name = "prefix-repetition-suffix-len", TOKENS, AT(repetition_suffix_len),
         .initial = "256", .help = "tokens after it that each prompt has for itself"},
        {.name = "prefix-repetition-num-prefixes", .kind = CLI_INT, AT(repetition_n_prefixes),
         .initial = "10", .min = 1, .max = INT_MAX, .help = "different prefixes"},
        {.name = "prefix-repetition-output-len", TOKENS, AT(repetition_output_len),
         .initial = "128", .help = "tokens of each answer"},
        {.name = "shuffle", .kind = CLI_BOOL, AT(shuffle), .initial = "on",
         .help = "take a file's prompts in an order that --seed decides"},
        {.name = "oversample", .kind = CLI_BOOL, AT(oversample), .initial = "on",
         .help = "begin again when the file has fewer than --num-prompts"},
        {0},
    },
};
#undef TOKENS
#undef AT
/* clang-format on */

struct loading {
    struct bench_dataset *d;
    const struct bench_dataset_flags *flags;
    uint64_t seed;
    const struct phi_model *model;
    size_t capacity;
};

static enum phi_status add(struct loading *l, struct bench_prompt **out, struct phi_error *err)
{
    struct bench_dataset *d = l->d;
    if (d->n == l->capacity) {
        size_t n = l->capacity ? 2 * l->capacity : 64;
        struct bench_prompt *grown = phi_realloc(d->data, n, sizeof *grown);
        if (!grown)
            return phi_fail_memory(err, "prompts", n * sizeof *grown);
        d->data = grown;
        l->capacity = n;
    }
    *out = &d->data[d->n++];
    **out = (struct bench_prompt){0};
    return PHI_OK;
}

static int or_general(int general, int own)
{
    return general > 0 ? general : own;
}

/* --------------------------------------------------------------- random */

static bool is_stop(const struct phi_model_info *info, int32_t id)
{
    for (int i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id)
            return true;
    return id == info->eos_id || id == info->bos_id;
}

enum phi_status bench_random_ids(const struct phi_model *model, uint64_t seed, uint64_t stream,
                                 size_t n, struct phi_ids *out, struct phi_error *err)
{
    struct phi_model_info info;
    phi_model_get_info(model, &info);
    uint64_t n_ids = (uint64_t)(info.n_token_ids > 0 ? info.n_token_ids : info.vocab_size);
    if (n_ids <= (uint64_t)info.n_stop_ids + 2)
        return phi_fail(err, PHI_ERR_INVALID,
                        "a vocabulary of %d tokens is too small for random prompts", (int)n_ids);
    for (uint64_t i = 0; n > 0; i++) {
        int32_t id = (int32_t)(phi_random_u64(seed, stream, i) % n_ids);
        if (is_stop(&info, id))
            continue;
        phi_ids_append(out, id);
        n--;
    }
    return out->failed ? phi_fail_memory(err, "prompt", n * sizeof *out->data) : PHI_OK;
}

/* A length between (1 - ratio) and (1 + ratio) times `len`; at least 1 unless len is 0. */
static int draw_length(const struct loading *l, int len, uint64_t index)
{
    double ratio = l->flags->random_range_ratio;
    int low = (int)floor(len * (1 - ratio)), high = (int)fmin(ceil(len * (1 + ratio)), INT_MAX);
    if (low < 1 && len > 0)
        low = 1;
    uint64_t span = (uint64_t)(high - low) + 1;
    return low + (int)(phi_random_u64(l->seed, STREAM_LENGTHS, index) % span);
}

static enum phi_status load_random(struct loading *l, struct phi_error *err)
{
    const struct bench_dataset_flags *f = l->flags;
    int input_len = or_general(f->input_len, f->random_input_len);
    int output_len = or_general(f->output_len, f->random_output_len);
    for (int i = 0; i < f->n_prompts; i++) {
        struct bench_prompt *p;
        uint64_t index = (uint64_t)i;
        PHI_TRY(add(l, &p, err));
        PHI_TRY(bench_random_ids(l->model, l->seed, STREAM_PREFIX, (size_t)f->random_prefix_len,
                                 &p->ids, err));
        PHI_TRY(bench_random_ids(l->model, l->seed, STREAM_PROMPTS + index,
                                 (size_t)draw_length(l, input_len, 2 * index), &p->ids, err));
        p->output_len = draw_length(l, output_len, 2 * index + 1);
    }
    return PHI_OK;
}

static enum phi_status load_repetition(struct loading *l, struct phi_error *err)
{
    const struct bench_dataset_flags *f = l->flags;
    for (int i = 0; i < f->n_prompts; i++) {
        struct bench_prompt *p;
        uint64_t index = (uint64_t)i, prefix = index % (uint64_t)f->repetition_n_prefixes;
        PHI_TRY(add(l, &p, err));
        PHI_TRY(bench_random_ids(l->model, l->seed + 1, STREAM_PROMPTS + prefix,
                                 (size_t)f->repetition_prefix_len, &p->ids, err));
        PHI_TRY(bench_random_ids(l->model, l->seed, STREAM_PROMPTS + index,
                                 (size_t)f->repetition_suffix_len, &p->ids, err));
        p->output_len = or_general(f->output_len, f->repetition_output_len);
    }
    return PHI_OK;
}

/* --------------------------------------------------------------- files */

static enum phi_status count_tokens(const struct loading *l, struct phi_str text,
                                    struct phi_ids *out, struct phi_error *err)
{
    struct cli_prompt prompt = {.where = l->flags->path, .text = text};
    return cli_prompt_ids(l->model, &prompt, false, out, err);
}

static enum phi_status add_text(struct loading *l, struct phi_str text, struct bench_prompt **out,
                                struct phi_error *err)
{
    PHI_TRY(add(l, out, err));
    struct bench_prompt *p = *out;
    p->text = phi_alloc(text.n + 1, 1);
    if (!p->text)
        return phi_fail_memory(err, "prompt", text.n + 1);
    memcpy(p->text, text.data, text.n);
    p->text[text.n] = '\0';
    p->n_text = text.n;
    return l->model ? count_tokens(l, text, &p->ids, err) : PHI_OK;
}

static void drop_last(struct loading *l)
{
    struct bench_prompt *p = &l->d->data[--l->d->n];
    phi_ids_deinit(&p->ids);
    phi_free(p->text);
}

static struct phi_str turn_text(const json_t *conversation, size_t i)
{
    const json_t *turns = json_object_get(conversation, "conversations");
    const json_t *value = json_object_get(json_array_get(turns, i), "value");
    return json_is_string(value) ? phi_json_str(value) : (struct phi_str){"", 0};
}

/* A conversation's first question, as long an answer as its first answer. */
static enum phi_status add_conversation(struct loading *l, const json_t *conversation,
                                        struct phi_error *err)
{
    struct phi_str question = turn_text(conversation, 0), answer = turn_text(conversation, 1);
    struct bench_prompt *p;
    struct phi_ids answer_ids = {0};
    if (question.n == 0 || answer.n == 0)
        return PHI_OK;
    PHI_TRY(add_text(l, question, &p, err));
    enum phi_status status = count_tokens(l, answer, &answer_ids, err);
    size_t n_answer = answer_ids.n;
    phi_ids_deinit(&answer_ids);
    PHI_TRY(status);
    int given = or_general(l->flags->output_len, l->flags->sharegpt_output_len);
    size_t n_output = given > 0 ? (size_t)given : n_answer;
    p->output_len = (int)n_output;
    bool too_short = p->ids.n < SHAREGPT_MIN || (given == 0 && n_output < SHAREGPT_MIN);
    if (too_short || p->ids.n > SHAREGPT_MAX_PROMPT || p->ids.n + n_output > SHAREGPT_MAX_TOTAL)
        drop_last(l);
    return PHI_OK;
}

/* order[0 .. n) = 0 .. n-1, shuffled (Fisher, Yates). */
static size_t *make_order(const struct loading *l, size_t n)
{
    size_t *order = phi_alloc(n ? n : 1, sizeof *order);
    for (size_t i = 0; i < n && order; i++)
        order[i] = i;
    for (size_t i = n; i > 1 && order && l->flags->shuffle; i--) {
        size_t j = (size_t)(phi_random_u64(l->seed, STREAM_SHUFFLE, i) % i), swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    return order;
}

static enum phi_status load_sharegpt(struct loading *l, struct phi_error *err)
{
    json_t *list;
    if (!l->model)
        return phi_fail(err, PHI_ERR_INVALID,
                        "--dataset-name sharegpt needs --tokenizer DIR to count tokens");
    PHI_TRY(phi_json_parse_file(l->flags->path, MAX_FILE_BYTES, &list, err));
    size_t n = json_array_size(list), *order = make_order(l, n);
    enum phi_status status = order ? PHI_OK : phi_fail_memory(err, "order", n * sizeof *order);
    for (size_t i = 0; i < n && status == PHI_OK && l->d->n < (size_t)l->flags->n_prompts; i++)
        status = add_conversation(l, json_array_get(list, order[i]), err);
    phi_free(order);
    json_decref(list);
    return status;
}

static enum phi_status add_line(void *context, struct phi_str line, size_t number,
                                struct phi_error *err)
{
    struct loading *l = context;
    struct bench_prompt *p;
    struct phi_str prompt = {NULL, 0};
    int64_t n_output = 0;
    json_t *object;
    char name[512];
    if (line.n == 0)
        return PHI_OK;
    snprintf(name, sizeof name, "%s: line %zu", l->flags->path, number);
    PHI_TRY(phi_json_parse(line, name, &object, err));
    enum phi_status status = phi_json_get_str(object, name, "prompt", &prompt, err);
    if (status == PHI_OK)
        status = phi_json_get_int(object, name, "output_tokens", 1, INT_MAX, &n_output, err);
    int given = or_general(l->flags->output_len, l->flags->custom_output_len);
    if (status == PHI_OK && !prompt.data)
        status = phi_fail(err, PHI_ERR_FORMAT, "%s: 'prompt' is missing", name);
    else if (status == PHI_OK && given == 0 && n_output == 0)
        status = phi_fail(err, PHI_ERR_FORMAT, "%s: 'output_tokens' is missing", name);
    if (status == PHI_OK)
        status = add_text(l, prompt, &p, err);
    if (status == PHI_OK)
        p->output_len = given > 0 ? given : (int)n_output;
    json_decref(object);
    return status;
}

/* The prompts in an order of make_order, the first n_prompts of them. */
static enum phi_status shuffle(struct loading *l, struct phi_error *err)
{
    struct bench_dataset *d = l->d;
    size_t *order = make_order(l, d->n);
    struct bench_prompt *shuffled = phi_alloc(d->n ? d->n : 1, sizeof *shuffled);
    enum phi_status status = PHI_OK;
    if (!order || !shuffled) {
        status = phi_fail_memory(err, "prompts", d->n * sizeof *shuffled);
        phi_free(shuffled);
    } else {
        for (size_t i = 0; i < d->n; i++)
            shuffled[i] = d->data[order[i]];
        phi_free(d->data);
        d->data = shuffled;
        l->capacity = d->n;
        while (d->n > (size_t)l->flags->n_prompts)
            drop_last(l);
    }
    phi_free(order);
    return status;
}

static enum phi_status load_custom(struct loading *l, struct phi_error *err)
{
    struct phi_buf text = {0};
    enum phi_status status = phi_file_read(l->flags->path, MAX_FILE_BYTES, &text, err);
    if (status == PHI_OK)
        status = cli_lines_each(phi_buf_str(&text), add_line, l, err);
    if (status == PHI_OK)
        status = shuffle(l, err);
    phi_buf_deinit(&text);
    return status;
}

/* The file's prompts from the beginning again, until there are enough. */
static enum phi_status oversample(struct loading *l, struct phi_error *err)
{
    size_t n_file = l->d->n;
    for (size_t i = 0; l->d->n < (size_t)l->flags->n_prompts; i++) {
        struct bench_prompt *p;
        size_t from = i % n_file;
        const struct bench_prompt *original = &l->d->data[from];
        PHI_TRY(add_text(l, (struct phi_str){original->text, original->n_text}, &p, err));
        p->output_len = l->d->data[from].output_len;
    }
    return PHI_OK;
}

static enum phi_status load_file(struct loading *l, struct phi_error *err)
{
    if (!l->flags->path)
        return phi_fail(err, PHI_ERR_INVALID, "--dataset-path FILE is missing");
    PHI_TRY(l->flags->name == BENCH_SHAREGPT ? load_sharegpt(l, err) : load_custom(l, err));
    if (l->d->n == 0)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: no usable prompt", l->flags->path);
    return l->flags->oversample ? oversample(l, err) : PHI_OK;
}

/* --------------------------------------------------------------- all */

enum phi_status bench_dataset_load(struct bench_dataset *d, const struct bench_dataset_flags *flags,
                                   uint64_t seed, const struct phi_model *model,
                                   struct phi_error *err)
{
    *d = (struct bench_dataset){0};
    struct loading l = {.d = d, .flags = flags, .seed = seed, .model = model};
    if (flags->name == BENCH_SHAREGPT || flags->name == BENCH_CUSTOM)
        return load_file(&l, err);
    if (!model)
        return phi_fail(err, PHI_ERR_INVALID,
                        "random prompts need --tokenizer DIR, a checkpoint folder, for the "
                        "vocabulary");
    return flags->name == BENCH_RANDOM ? load_random(&l, err) : load_repetition(&l, err);
}

void bench_dataset_deinit(struct bench_dataset *d)
{
    for (size_t i = 0; i < d->n; i++) {
        phi_ids_deinit(&d->data[i].ids);
        phi_free(d->data[i].text);
    }
    phi_free(d->data);
    *d = (struct bench_dataset){0};
}
