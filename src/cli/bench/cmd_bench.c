/* cmd_bench.c: phidelity bench: finds the benchmark and runs it; and the file of results. */
#include "cli/bench/bench.h"
#include "formats/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct cli_command *const benches[] = {
    &cli_bench_latency, &cli_bench_throughput, &cli_bench_serve,
    &cli_bench_startup, &cli_bench_kernels,
};
enum { N_BENCHES = sizeof benches / sizeof benches[0] };

static int run(int argc, char **argv);

const struct cli_command cli_bench = {
    .name = "bench",
    .arguments = "WHAT [options]",
    .summary = "measures speed: latency, throughput, serve, startup or kernels",
    .details = "  latency       one batch of prompts from start to end, and its parts against this "
               "machine's limits\n"
               "  throughput    many prompts at once\n"
               "  serve         a server's answers under load, over HTTP; any server with OpenAI's "
               "API\n"
               "  startup       from the start of the program to the first token\n"
               "  kernels       each kernel against this machine's limits\n"
               "\n"
               "phidelity bench WHAT --help describes one and its options.",
    .options = (const struct cli_option_use[]){{0}},
    .without_model = true,
    .run = run,
};

static const struct cli_command *find(const char *name)
{
    for (size_t i = 0; i < N_BENCHES; i++)
        if (strcmp(benches[i]->name + strlen("bench "), name) == 0)
            return benches[i];
    return NULL;
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return cli_usage_error(&cli_bench, "what to measure is missing");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cli_print_help(&cli_bench);
    const struct cli_command *bench = find(argv[1]);
    if (!bench)
        return cli_usage_error(&cli_bench, "unknown benchmark '%s'", argv[1]);
    return bench->run(argc - 1, argv + 1);
}

/* clang-format off */
#define AT(member) .offset = offsetof(struct bench_shared_flags, member)
const struct cli_option_group bench_shared_group = {
    "Model and results",
    (const struct cli_option[]){
        {.name = "model", .kind = CLI_TEXT, AT(model), .argument = "MODEL",
         .help = "the checkpoint folder, when it is not the first argument"},
        {.name = "output-json", .kind = CLI_TEXT, AT(output_json), .argument = "FILE",
         .help = "write the results there"},
        {0},
    },
};
#undef AT
/* clang-format on */

enum phi_status bench_save_json(json_t *object, const char *path, bool append,
                                struct phi_error *err)
{
    struct phi_buf text = {0};
    if (object)
        phi_json_dump(object, append ? 0 : JSON_INDENT(4), &text);
    phi_buf_append_char(&text, '\n');
    bool complete = object && !text.failed;
    json_decref(object);
    if (!complete) {
        phi_buf_deinit(&text);
        return phi_fail(err, PHI_ERR_MEMORY, "%s: no memory for the results", path);
    }
    FILE *file = fopen(path, append ? "a" : "w");
    bool written = file && fwrite(text.data, 1, text.n, file) == text.n;
    if (file && fclose(file) != 0)
        written = false;
    int reason = errno;
    phi_buf_deinit(&text);
    return written ? PHI_OK : phi_fail(err, PHI_ERR_IO, "%s: %s", path, strerror(reason));
}
