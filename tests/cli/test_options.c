/* test_options.c: the option parser, over a table that has one option of each kind. */
#include "cli/command_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { COLOUR_RED = 7, COLOUR_BLUE = 9 };

struct values {
    bool shine, quiet;
    int count, colour;
    int64_t bytes;
    double share;
    const char *title;
    struct cli_texts words;
    struct phi_ids ids;
};

struct flags {
    int before; /* so that the group does not lie at offset 0 */
    struct values v;
};

#define AT(member) .offset = offsetof(struct values, member)
static const struct cli_name colours[] = {{"red", COLOUR_RED}, {"blue", COLOUR_BLUE}, {NULL, 0}};
static const struct cli_name autos[] = {{"auto", 0}, {NULL, 0}};
static const struct cli_option_group group = {
    "Things",
    (const struct cli_option[]){
        {.name = "shine", .brief = "s", .kind = CLI_BOOL, AT(shine), .initial = "on"},
        {.name = "quiet-mode", .kind = CLI_BOOL, AT(quiet)},
        {.name = "max-count",
         .kind = CLI_INT,
         AT(count),
         .initial = "5",
         .min = -1,
         .max = 30000,
         .human_size = true,
         .names = autos},
        {.name = "bytes", .kind = CLI_INT64, AT(bytes), .human_size = true},
        {.name = "share", .kind = CLI_REAL, AT(share), .max = 1, .above_min = true},
        {.name = "colour", .kind = CLI_CHOICE, AT(colour), .initial = "red", .names = colours},
        {.name = "title", .brief = "t", .kind = CLI_TEXT, AT(title)},
        {.name = "word", .brief = "w", .kind = CLI_TEXTS, AT(words)},
        {.name = "ids", .kind = CLI_IDS, AT(ids)},
        {0},
    },
};

static const struct cli_command command = {
    .name = "try",
    .options = (const struct cli_option_use[]){{&group, offsetof(struct flags, v)}, {0}},
};

/* Parses a NULL-terminated list of words after the command's name and a model. */
static int parse(struct flags *flags, struct cli_args *args, const char *const *words)
{
    char *argv[16] = {(char *)(uintptr_t) "try", (char *)(uintptr_t) "MODEL"};
    int argc = 2;
    while (words[argc - 2]) {
        argv[argc] = (char *)(uintptr_t)words[argc - 2];
        argc++;
    }
    *flags = (struct flags){0};
    return cli_parse(&command, argc, argv, flags, args);
}

#define PARSE(...) parse(&flags, &args, (const char *const[]){__VA_ARGS__, NULL})

static void test_defaults(void **state)
{
    struct flags flags;
    struct cli_args args;
    (void)state;
    assert_int_equal(parse(&flags, &args, (const char *const[]){NULL}), -1);
    assert_true(flags.v.shine);
    assert_false(flags.v.quiet);
    assert_int_equal(flags.v.count, 5);
    assert_int_equal(flags.v.colour, COLOUR_RED);
    assert_null(flags.v.title);
    assert_int_equal(flags.v.words.n, 0);
    assert_string_equal(args.positional[0], "MODEL");
    assert_false(cli_given(&args, "max-count"));
    cli_options_deinit(&args, &flags);
}

static void test_spellings(void **state)
{
    struct flags flags;
    struct cli_args args;
    (void)state;
    assert_int_equal(PARSE("--max_count=7", "--no-shine", "--quiet_mode", "-t", "--x", "--colour",
                           "blue", "--share", "1"),
                     -1);
    assert_int_equal(flags.v.count, 7);
    assert_false(flags.v.shine);
    assert_true(flags.v.quiet);
    assert_string_equal(flags.v.title, "--x"); /* a value may begin with dashes */
    assert_int_equal(flags.v.colour, COLOUR_BLUE);
    assert_true(flags.v.share == 1);
    assert_true(cli_given(&args, "max-count"));
    assert_false(cli_given(&args, "bytes"));
    assert_int_equal(PARSE("--title=", "--", "-t"), -1);
    assert_string_equal(flags.v.title, "");
    assert_string_equal(args.positional[1], "-t");
    assert_int_equal(PARSE("--max-count", "-1", "--max-count", "auto"), -1);
    assert_int_equal(flags.v.count, 0); /* the last one counts */
    cli_options_deinit(&args, &flags);
}

static void test_lists_add_up(void **state)
{
    struct flags flags;
    struct cli_args args;
    (void)state;
    assert_int_equal(PARSE("-w", "a b", "--ids", "1, 2", "--word", "", "--ids", "[3]", "--ids", ""),
                     -1);
    assert_int_equal(flags.v.words.n, 2);
    assert_string_equal(flags.v.words.data[0], "a b");
    assert_string_equal(flags.v.words.data[1], "");
    assert_int_equal(flags.v.ids.n, 3);
    assert_int_equal(flags.v.ids.data[0], 1);
    assert_int_equal(flags.v.ids.data[2], 3);
    cli_options_deinit(&args, &flags);
}

static void test_human_sizes(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes; /* -1 = refused */
    } cases[] = {
        {"12", 12},
        {"1k", 1000},
        {"1K", 1024},
        {"25.6k", 25600},
        {"25.6K", -1},
        {"2M", 2097152},
        {"3g", 3000000000},
        {"1G", 1073741824},
        {"1T", 1099511627776},
        {"-2k", -2000},
        {"1.0005k", -1},
        {"1kk", -1},
        {"k", -1},
        {"", -1},
        {"nan", -1},
        {"1e3", -1},
        {"1e3k", -1},
        {"9999999T", -1},
        {"0x10", -1},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", -1},
    };
    struct flags flags;
    struct cli_args args;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status = PARSE("--bytes", cases[i].text);
        assert_int_equal(status, cases[i].bytes == -1 ? CLI_USAGE : -1);
        if (status == -1)
            assert_int_equal(flags.v.bytes, cases[i].bytes);
        cli_options_deinit(&args, &flags);
    }
}

static void test_refusals(void **state)
{
    static const char *const cases[][3] = {
        {"--nonsense"},
        {"--max-count"},
        {"--max-count", "x"},
        {"--max-count", "-2"},
        {"--max-count", "30001"},
        {"--max-count", "1.5"},
        {"--share", "0"},
        {"--share", "1.01"},
        {"--share", "nan"},
        {"--share", "1x"},
        {"--colour", "green"},
        {"--shine=yes"},
        {"--no-title"},
        {"-x"},
        {"-tt"},
        {"--ids", "1 -2"},
        {"--ids", "2147483648"},
        {"second", "third"},
    };
    struct flags flags;
    struct cli_args args;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(&flags, &args, cases[i]), CLI_USAGE);
        cli_options_deinit(&args, &flags);
    }
}

static void test_nearest(void **state)
{
    static const char *const names[] = {"temperature", "top-p", "top-k", "max-tokens"};
    (void)state;
    assert_string_equal(cli_nearest("temprature", names, 4), "temperature");
    assert_string_equal(cli_nearest("max-token", names, 4), "max-tokens");
    assert_string_equal(cli_nearest("topk", names, 4), "top-k");
    assert_null(cli_nearest("colour", names, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_lists_add_up), cmocka_unit_test(test_human_sizes),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
