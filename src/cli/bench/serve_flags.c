/* serve_flags.c: see serve_flags.h. */
#include "cli/bench/serve_flags.h"

#include <limits.h>

static const struct cli_name backend_names[] = {
    {"openai", BENCH_COMPLETIONS},
    {"openai-chat", BENCH_CHAT},
    {"vllm", BENCH_COMPLETIONS},
    {NULL, 0},
};

/* Words for numbers. */
static const struct cli_name endless[] = {{"inf", 0}, {NULL, 0}};

/* clang-format off */
#define AT(member) .offset = offsetof(struct bench_serve_flags, member)
const struct cli_option_group bench_serve_group = {
    "Requests",
    (const struct cli_option[]){
        {.name = "backend", .kind = CLI_CHOICE, AT(backend), .argument = "B",
         .initial = "openai", .names = backend_names,
         .help = "completions, or chats of one message"},
        {.name = "base-url", .kind = CLI_TEXT, AT(base_url), .argument = "URL",
         .help = "where the server is, instead of --host and --port"},
        {.name = "host", .kind = CLI_TEXT, AT(host), .argument = "HOST", .initial = "127.0.0.1",
         .help = "name or address"},
        {.name = "port", .kind = CLI_INT, AT(port), .initial = "8000", .min = 1, .max = 65535,
         .help = "TCP port"},
        {.name = "endpoint", .kind = CLI_TEXT, AT(endpoint), .argument = "PATH",
         .help = "path of the requests (default /v1/completions or /v1/chat/completions)"},
        {.name = "model", .kind = CLI_TEXT, AT(model), .argument = "NAME",
         .help = "the model's name at the server; without it, the first of /v1/models"},
        {.name = "served-model-name", .kind = CLI_TEXT, AT(served_model_name), .argument = "NAME",
         .help = "the name to send, where --model is a folder that has another at the server"},
        {.name = "tokenizer", .kind = CLI_TEXT, AT(tokenizer), .argument = "DIR",
         .help = "a checkpoint folder for the vocabulary of random prompts and for counting; "
                 "without it, the model's where that is a folder here"},
        {.name = "header", .kind = CLI_WORDS, AT(headers), .argument = "KEY=VALUE...",
         .secret = true, .help = "headers of every request"},
        {.name = "insecure", .kind = CLI_BOOL, AT(insecure),
         .help = "with https, take any certificate"},
        {.name = "request-rate", .kind = CLI_REAL, AT(request_rate), .argument = "R",
         .initial = "inf", .above_min = true, .max = 1e9, .names = endless,
         .help = "requests a second; inf sends all at the start"},
        {.name = "burstiness", .kind = CLI_REAL, AT(burstiness), .argument = "X", .initial = "1",
         .above_min = true, .max = 1e9,
         .help = "with a rate: 1 is a Poisson process, less comes in bursts, more is more even"},
        {.name = "max-concurrency", .kind = CLI_INT, AT(max_concurrency), .min = 1,
         .max = INT_MAX, .help = "most requests under way; later ones wait here"},
        {.name = "num-warmups", .kind = CLI_INT, AT(n_warmups), .initial = "0", .max = INT_MAX,
         .help = "requests before the measured ones, copies of the first"},
        {.name = "ready-check-timeout-sec", .kind = CLI_INT, AT(ready_timeout_s),
         .initial = "0", .max = INT_MAX, .help = "wait so long for the server to answer"},
        {.name = "seed", .kind = CLI_INT64, AT(seed), .initial = "0",
         .help = "of random prompts, their order and their times"},
        {.name = "ignore-eos", .kind = CLI_BOOL, AT(ignore_eos),
         .help = "answers go on past the end of text to their full length"},
        {.name = "extra-body", .kind = CLI_JSON, AT(extra_body), .argument = "JSON",
         .help = "fields that every request has besides"},
        {.name = "disable-tqdm", .kind = CLI_BOOL, AT(no_progress), .help = "no progress bar"},
        {0},
    },
};
#undef AT

#define AT(member) .offset = offsetof(struct bench_result_flags, member)
const struct cli_option_group bench_result_group = {
    "Results",
    (const struct cli_option[]){
        {.name = "percentile-metrics", .kind = CLI_COMMAS, AT(percentile_metrics),
         .argument = "LIST", .initial = "ttft,tpot,itl",
         .help = "what is reported, of ttft, tpot, itl and e2el"},
        {.name = "metric-percentiles", .kind = CLI_COMMAS, AT(percentiles), .argument = "LIST",
         .initial = "99", .help = "which percentiles of it"},
        {.name = "goodput", .kind = CLI_WORDS, AT(goodput), .argument = "KEY:MS...",
         .help = "also count the requests a second within these limits, as 'ttft:200 tpot:50'; "
                 "keys are ttft, tpot and e2el"},
        {.name = "save-result", .kind = CLI_BOOL, AT(save), .help = "write the results to a file"},
        {.name = "save-detailed", .kind = CLI_BOOL, AT(detailed),
         .help = "with what every request had"},
        {.name = "append-result", .kind = CLI_BOOL, AT(append),
         .help = "add a line to the file of results"},
        {.name = "result-dir", .kind = CLI_TEXT, AT(folder), .argument = "DIR",
         .help = "the file's folder"},
        {.name = "result-filename", .kind = CLI_TEXT, AT(file_name), .argument = "FILE",
         .help = "its name (default: LABEL-RATEqps[-concurrencyN]-MODEL-TIME.json)"},
        {.name = "label", .kind = CLI_TEXT, AT(label), .argument = "TEXT",
         .help = "a word for these results (default: the backend)"},
        {.name = "metadata", .kind = CLI_WORDS, AT(metadata), .argument = "KEY=VALUE...",
         .help = "more keys for the file"},
        {0},
    },
};
#undef AT

#define AT(member) .offset = offsetof(struct bench_sampling_flags, member)
const struct cli_option_group bench_sampling_group = {
    "Sampling (sent where given)",
    (const struct cli_option[]){
        {.name = "temperature", .kind = CLI_REAL, AT(temperature), .argument = "X", .max = 1e30,
         .help = "0 takes the likeliest token"},
        {.name = "top-p", .kind = CLI_REAL, AT(top_p), .argument = "X", .above_min = true,
         .max = 1, .help = "keep the likeliest tokens that sum to this"},
        {.name = "top-k", .kind = CLI_INT, AT(top_k), .min = -1, .max = INT_MAX,
         .help = "keep this many"},
        {.name = "min-p", .kind = CLI_REAL, AT(min_p), .argument = "X", .max = 1,
         .help = "drop tokens below this part of the likeliest"},
        {.name = "frequency-penalty", .kind = CLI_REAL, AT(frequency_penalty), .argument = "X",
         .min = -2, .max = 2, .help = "as in the API"},
        {.name = "presence-penalty", .kind = CLI_REAL, AT(presence_penalty), .argument = "X",
         .min = -2, .max = 2, .help = "as in the API"},
        {.name = "repetition-penalty", .kind = CLI_REAL, AT(repetition_penalty), .argument = "X",
         .above_min = true, .max = 1e30, .help = "as in the API"},
        {0},
    },
};
#undef AT
/* clang-format on */
