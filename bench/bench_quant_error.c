/* bench_quant_error.c: what integer weights cost in accuracy: for each way to hold the weights, how
 * far its next-token distributions are from float32's, over a text.
 *
 *     bench_quant_error MODEL TEXT [MAX_TOKENS]
 *
 * TEXT is a file of plain text, or of JSON lines with "messages" and "answer". Printed are the mean
 * Kullback-Leibler divergence KL(float32 || scheme) in nats, the share of positions at which both
 * have the same likeliest token, and the perplexity. */
#include "base/alloc.h"
#include "base/file.h"
#include "formats/json.h"
#include "phidelity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 512, MAX_SEQUENCES = 4096, MAX_BYTES = 64 << 20 };

struct scheme {
    const char *name;
    enum phi_dtype dtype;
    enum phi_quantization quantization;
    int group;
    bool keep_lm_head;
};

static const struct scheme schemes[] = {
    {"float32", PHI_FLOAT32, PHI_UNQUANTIZED, 0, true},
    {"bfloat16", PHI_BFLOAT16, PHI_UNQUANTIZED, 0, true},
    {"w8a8, head of floats", PHI_FLOAT32, PHI_W8A8, 0, true},
    {"w8a8", PHI_FLOAT32, PHI_W8A8, 0, false},
    {"w4a8 g128, head of floats", PHI_FLOAT32, PHI_W4A8, 128, true},
    {"w4a8 g128", PHI_FLOAT32, PHI_W4A8, 128, false},
    {"w4a8 g64, head of floats", PHI_FLOAT32, PHI_W4A8, 64, true},
    {"w4a8 g64", PHI_FLOAT32, PHI_W4A8, 64, false},
    {"w4a8 g32, head of floats", PHI_FLOAT32, PHI_W4A8, 32, true},
    {"w4a8 g32", PHI_FLOAT32, PHI_W4A8, 32, false},
};
enum { N_SCHEMES = sizeof schemes / sizeof schemes[0] };

struct sequences {
    int32_t *ids[MAX_SEQUENCES];
    size_t n_ids[MAX_SEQUENCES];
    size_t n, n_tokens, max_tokens;
};

/* The sum over positions of what is printed, and the float32 rows to compare with. */
struct comparison {
    const int32_t *ids;
    size_t n_ids, vocab_size;
    float *reference; /* [n_ids, vocab_size] of log-probabilities */
    bool is_reference;
    double kl, nll;
    size_t n_rows, n_same, n_nll;
};

static _Noreturn void die(const char *text)
{
    fprintf(stderr, "bench_quant_error: %s\n", text);
    exit(1);
}

/* ---------------------------------------------------------------- text */

static void add_sequence(struct sequences *s, int32_t *ids, size_t n)
{
    if (s->n == MAX_SEQUENCES || s->n_tokens >= s->max_tokens || n < 2) {
        phi_mem_free(ids);
        return;
    }
    s->ids[s->n] = ids;
    s->n_ids[s->n++] = n;
    s->n_tokens += n;
}

static void add_text(struct sequences *s, const struct phi_model *m, struct phi_str text)
{
    struct phi_error err;
    int32_t *ids;
    size_t n;
    if (phi_tokenize(m, (struct phi_text){text.data, text.n}, true, &ids, &n, &err) != PHI_OK)
        die(err.text);
    for (size_t i = 0; i < n; i += WINDOW) {
        size_t part = n - i < WINDOW ? n - i : WINDOW;
        int32_t *copy = phi_alloc(part, sizeof *copy);
        if (!copy)
            die("no memory");
        memcpy(copy, ids + i, part * sizeof *copy);
        add_sequence(s, copy, part);
    }
    phi_mem_free(ids);
}

/* The messages and the answer, rendered as a whole conversation. */
static void add_conversation(struct sequences *s, const struct phi_model *m, const json_t *line)
{
    struct phi_error err;
    json_t *messages = json_deep_copy(json_object_get(line, "messages"));
    json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "assistant", "content",
                                              json_object_get(line, "answer")));
    char *dump = json_dumps(messages, 0), *text;
    size_t n_text, n;
    int32_t *ids;
    static const char options[] = "{\"add_generation_prompt\": false}";
    if (!dump)
        die("a line without messages");
    if (phi_render_chat(m, (struct phi_text){dump, strlen(dump)},
                        (struct phi_text){options, sizeof options - 1}, &text, &n_text,
                        &err) != PHI_OK ||
        phi_tokenize(m, (struct phi_text){text, n_text}, false, &ids, &n, &err) != PHI_OK)
        die(err.text);
    add_sequence(s, ids, n);
    phi_mem_free(text);
    phi_free(dump);
    json_decref(messages);
}

static void read_text(struct sequences *s, const struct phi_model *m, const char *path)
{
    struct phi_error err;
    struct phi_buf text = {0};
    if (phi_file_read(path, MAX_BYTES, &text, &err) != PHI_OK)
        die(err.text);
    if (!phi_str_ends_with(phi_str_from(path), PHI_STR(".jsonl"))) {
        add_text(s, m, phi_buf_str(&text));
    } else {
        for (char *at = text.data, *end; *at; at = end + 1) {
            json_t *line;
            end = strchr(at, '\n');
            if (!end)
                break;
            struct phi_str one = {at, (size_t)(end - at)};
            if (phi_json_parse(one, path, &line, &err) != PHI_OK)
                die(err.text);
            add_conversation(s, m, line);
            json_decref(line);
        }
    }
    phi_buf_deinit(&text);
}

/* ---------------------------------------------------------------- comparing */

static size_t likeliest(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static double log_sum_exp(const float *x, size_t n)
{
    double max = x[likeliest(x, n)], sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

static void compare_row(struct comparison *c, size_t row, const float *logits)
{
    float *reference = c->reference + row * c->vocab_size;
    double total = log_sum_exp(logits, c->vocab_size);
    if (row + 1 < c->n_ids) {
        c->nll += total - logits[c->ids[row + 1]];
        c->n_nll++;
    }
    if (c->is_reference)
        for (size_t i = 0; i < c->vocab_size; i++)
            reference[i] = (float)(logits[i] - total);
    for (size_t i = 0; i < c->vocab_size; i++)
        c->kl += exp(reference[i]) * (reference[i] - (logits[i] - total));
    c->n_same += likeliest(reference, c->vocab_size) == likeliest(logits, c->vocab_size);
    c->n_rows++;
}

static int compare_rows(void *context, size_t first, size_t n_rows, const float *logits)
{
    struct comparison *c = context;
    for (size_t r = 0; r < n_rows; r++)
        compare_row(c, first + r, logits + r * c->vocab_size);
    return 0;
}

/* Runs all sequences through the model; `rows` holds the reference's log-probabilities. */
static void run_model(struct phi_model *m, const struct sequences *s, float **rows,
                      struct comparison *c)
{
    struct phi_error err;
    struct phi_engine *engine;
    struct phi_engine_options o;
    phi_engine_options_init(&o);
    o.max_num_seqs = 1;
    if (phi_engine_create(m, &o, &engine, &err) != PHI_OK)
        die(err.text);
    for (size_t i = 0; i < s->n; i++) {
        if (!rows[i])
            rows[i] = phi_alloc(s->n_ids[i] * c->vocab_size, sizeof **rows);
        if (!rows[i])
            die("no memory");
        c->reference = rows[i], c->ids = s->ids[i], c->n_ids = s->n_ids[i];
        if (phi_engine_logits(engine, s->ids[i], s->n_ids[i], compare_rows, c, &err) != PHI_OK)
            die(err.text);
    }
    phi_engine_destroy(engine);
}

int main(int argc, char **argv)
{
    static struct sequences s;
    static float *rows[MAX_SEQUENCES];
    if (argc < 3)
        die("MODEL and TEXT are missing");
    s.max_tokens = argc > 3 ? strtoul(argv[3], NULL, 10) : 20000;
    for (size_t i = 0; i < N_SCHEMES; i++) {
        const struct scheme *scheme = &schemes[i];
        struct phi_model_options o;
        struct phi_model_info info;
        struct phi_model *m;
        struct phi_error err;
        phi_model_options_init(&o);
        o.path = argv[1], o.dtype = scheme->dtype, o.quantization = scheme->quantization;
        o.quant_group_size = scheme->group, o.keep_lm_head = scheme->keep_lm_head;
        enum phi_status status = phi_model_open(&o, &m, &err);
        if (status == PHI_ERR_UNSUPPORTED) {
            printf("%-26s %s\n", scheme->name, err.text);
            continue;
        }
        if (status != PHI_OK)
            die(err.text);
        if (i == 0)
            read_text(&s, m, argv[2]);
        phi_model_get_info(m, &info);
        struct comparison c = {.vocab_size = (size_t)info.vocab_size, .is_reference = i == 0};
        run_model(m, &s, rows, &c);
        double n = (double)c.n_rows;
        printf("%-26s KL %.6f  top-1 %6.2f %%  perplexity %.4f\n", scheme->name, c.kl / n,
               100 * (double)c.n_same / n, exp(c.nll / (double)c.n_nll));
        fflush(stdout);
        phi_model_close(m);
    }
    printf("%zu tokens in %zu sequences of %s\n", s.n_tokens, s.n, argv[2]);
    for (size_t i = 0; i < s.n; i++) {
        phi_mem_free(s.ids[i]);
        phi_free(rows[i]);
    }
    return 0;
}
