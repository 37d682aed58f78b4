/* test_log_lines.c: the statistics line and the access line, word for word. */
#include "base/log.h"
#include "server/metrics/access_line.h"
#include "server/metrics/stats_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char logged[4][512];
static int n_logged;

static void keep(void *context, int level, const char *line)
{
    (void)context;
    assert_int_equal(level, PHI_LOG_INFO);
    assert_true(n_logged < 4);
    snprintf(logged[n_logged++], sizeof logged[0], "%s", line);
}

/* Ten seconds in which 512 prompt tokens were computed, 128 found, and 1,024 generated. */
static void test_stats_line(void **state)
{
    (void)state;
    const struct phi_engine_stats before = {.n_prompt_tokens = 1000,
                                            .n_cached_prompt_tokens = 100,
                                            .n_generated_tokens = 50,
                                            .n_preemptions = 2};
    struct phi_engine_stats now = {.n_running = 3,
                                   .n_waiting = 1,
                                   .kv_usage = 0.1254,
                                   .n_prompt_tokens = 1640,
                                   .n_cached_prompt_tokens = 228,
                                   .n_generated_tokens = 1074,
                                   .n_preemptions = 2,
                                   .n_prefix_queries = 1000,
                                   .n_prefix_hits = 405};
    char line[512];
    phi_stats_line(&before, &now, 10, line);
    assert_string_equal(line, "Engine 000: Avg prompt throughput: 51.2 tokens/s, Avg generation "
                              "throughput: 102.4 tokens/s, Running: 3 reqs, Waiting: 1 reqs, GPU "
                              "KV cache usage: 12.5%, Prefix cache hit rate: 40.5%");
    now.n_preemptions = 9;
    phi_stats_line(&before, &now, 2.5, line);
    assert_string_equal(line, "Engine 000: Avg prompt throughput: 204.8 tokens/s, Avg generation "
                              "throughput: 409.6 tokens/s, Running: 3 reqs, Waiting: 1 reqs, "
                              "Preemptions: 7, GPU KV cache usage: 12.5%, Prefix cache hit rate: "
                              "40.5%");
    phi_stats_line(&now, &now, 0, line); /* no time has passed, no token either */
    assert_non_null(strstr(line, "Avg prompt throughput: 0.0 tokens/s"));
}

/* Idle: silent. Busy: a line each time, and one more when it is over. */
static void test_silence(void **state)
{
    (void)state;
    const struct phi_engine_stats idle = {0}, waiting = {.n_waiting = 1},
                                  running = {.n_running = 1},
                                  done = {.n_prompt_tokens = 4, .n_generated_tokens = 2};
    const struct {
        const struct phi_engine_stats *before, *now;
        int n_lines;
    } rows[] = {
        {&idle, &idle, 0},    {&idle, &waiting, 1}, {&waiting, &running, 1},
        {&running, &done, 1}, {&done, &done, 1}, /* the last line: nothing moves any more */
        {&done, &done, 0},    {&done, &done, 0},
    };
    bool active = false;
    phi_log_set_sink(keep, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        n_logged = 0;
        phi_stats_log(rows[i].before, rows[i].now, 10, &active);
        assert_int_equal(n_logged, rows[i].n_lines);
    }
    phi_log_set_sink(NULL, NULL);
}

static void test_access_line(void **state)
{
    (void)state;
    static const struct {
        const char *peer;
        struct phi_str method, target;
        int status;
        const char *line;
    } rows[] = {
        {"127.0.0.1:54321", PHI_STR("POST"), PHI_STR("/v1/completions"), 200,
         "127.0.0.1:54321 - \"POST /v1/completions HTTP/1.1\" 200 OK"},
        {"[::1]:8", PHI_STR("GET"), PHI_STR("/v1/models?a=b&c=%20"), 404,
         "[::1]:8 - \"GET /v1/models?a=b&c=%20 HTTP/1.1\" 404 Not Found"},
        {"unix", PHI_STR("GET"), PHI_STR("/x"), 418, "unix - \"GET /x HTTP/1.1\" 418"},
        {"unix", PHI_STR("GET"), PHI_STR("/x"), 0,
         "unix - \"GET /x HTTP/1.1\" 499 Client Closed Request"},
        /* what would end the line, the quotes or a colour */
        {"p", PHI_STR("GET\r\n"), PHI_STR("/\" 200 OK\r\nINFO: fake\x1b[31m\x7f\\\0"), 404,
         "p - \"GET%0D%0A /%22%20200%20OK%0D%0AINFO:%20fake%1B[31m%7F%5C%00 HTTP/1.1\" 404 "
         "Not Found"},
        {"p", PHI_STR("GET"), PHI_STR("/caf\xC3\xA9\xC2\x9B\xFF"), 200,
         "p - \"GET /caf%C3%A9%C2%9B%FF HTTP/1.1\" 200 OK"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[512];
        phi_access_line(rows[i].peer, rows[i].method, rows[i].target, rows[i].status, line,
                        sizeof line);
        assert_string_equal(line, rows[i].line);
    }
}

/* However long the parts are, the line is whole and its status is there. */
static void test_long_access_line(void **state)
{
    (void)state;
    static char junk[10000];
    static const unsigned char fill[] = {'a', '"', 0, 0xff};
    for (size_t f = 0; f < sizeof fill; f++)
        for (size_t capacity = 256; capacity < 700; capacity++) {
            memset(junk, fill[f], sizeof junk);
            char *line = malloc(capacity); /* its end is watched under ASan */
            assert_non_null(line);
            struct phi_str s = {junk, sizeof junk};
            phi_access_line("127.0.0.1:54321", s, s, 431, line, capacity);
            assert_true(strlen(line) < capacity);
            assert_non_null(strstr(line, "... HTTP/1.1\" 431 Request Header Fields Too Large"));
            for (const char *c = line; *c; c++)
                assert_true(*c >= 0x20 && *c < 0x7f);
            free(line);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats_line),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_access_line),
        cmocka_unit_test(test_long_access_line),
    };
    return cmocka_run_group_tests_name("log_lines", tests, NULL, NULL);
}
