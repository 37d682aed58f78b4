/* The HTTP floor by itself, through real sockets: what a client may send and in which pieces, how long it
 * may take, and what happens when it leaves. Handlers are the test's own. */
#include "base/alloc.h"
#include "base/clock.h"
#include "server/gate.h"
#include "server/http/http.h"
#include "server/http/listen.h"
#include "server/state.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_BODY = 100000, HEADER_BYTES = 4096 };

/* ---------------------------------------------------------------- handlers */

/* A job that a thread of its own wakes every millisecond, as an engine would. */
struct test_job {
    struct phi_job job;
    struct phi_exchange *x;
    pthread_t thread;
    atomic_int n_ready; /* pieces that are ready */
    int n_taken, n_all; /* n_all < 0: never ends */
    size_t piece_bytes;
    bool streams;
    atomic_bool cancelled;
};

static atomic_int n_cancelled, n_freed, n_answered, n_ended, n_whole;
static atomic_int answered_us; /* how long it takes to count an answer */

static void *produce(void *arg)
{
    struct test_job *j = arg;
    for (int i = 0; i != j->n_all && !atomic_load(&j->cancelled); i++) {
        usleep(1000);
        atomic_fetch_add(&j->n_ready, 1);
        phi_exchange_wake(j->x);
    }
    phi_exchange_wake(j->x);
    phi_exchange_release(j->x);
    return NULL;
}

static enum phi_job_state pull(struct phi_exchange *x, struct phi_job *job)
{
    struct test_job *j = (struct test_job *)job;
    bool over = atomic_load(&j->cancelled);
    int n_ready = atomic_load(&j->n_ready);
    for (; j->n_taken < n_ready && j->streams; j->n_taken++)
        for (size_t i = 0; i < j->piece_bytes; i++)
            phi_buf_append_char(&x->stream, (char)('a' + j->n_taken % 26));
    over |= n_ready == j->n_all;
    if (over && !j->streams) {
        struct phi_buf body = {0};
        phi_buf_printf(&body, "%d pieces", n_ready);
        phi_exchange_answer(x, 200, "text/plain", &body);
    }
    return over ? PHI_JOB_DONE : PHI_JOB_WAIT;
}

static void cancel(struct phi_job *job)
{
    atomic_fetch_add(&n_cancelled, 1);
    atomic_store(&((struct test_job *)job)->cancelled, true);
}

static void free_job(struct phi_job *job)
{
    struct test_job *j = (struct test_job *)job;
    atomic_store(&j->cancelled, true);
    pthread_join(j->thread, NULL);
    phi_free(j);
    atomic_fetch_add(&n_freed, 1);
}

static void start_job(struct phi_exchange *x, bool streams, int n_pieces, size_t piece_bytes)
{
    struct test_job *j = phi_calloc(1, sizeof *j);
    assert_non_null(j);
    j->job = (struct phi_job){pull, cancel, free_job};
    j->x = x;
    j->n_all = n_pieces;
    j->piece_bytes = piece_bytes;
    j->streams = streams;
    x->job = &j->job;
    phi_exchange_acquire(x);
    if (streams)
        phi_exchange_stream(x);
    assert_int_equal(pthread_create(&j->thread, NULL, produce, j), 0);
}

static void handle(struct phi_exchange *x)
{
    struct phi_buf body = {0};
    if (!phi_gate_pass(x))
        return;
    if (x->body_too_large) {
        phi_buf_append_c(&body, "too large");
        phi_exchange_answer(x, 413, "text/plain", &body);
    } else if (x->header_too_large) {
        phi_buf_append_c(&body, "header too large");
        phi_exchange_answer(x, 431, "text/plain", &body);
    } else if (phi_str_eq_c(x->path, "/later")) {
        start_job(x, false, 20, 0);
    } else if (phi_str_eq_c(x->path, "/hang")) {
        start_job(x, false, -1, 0);
    } else if (phi_str_eq_c(x->path, "/stream")) {
        start_job(x, true, 26, 100);
    } else if (phi_str_eq_c(x->path, "/flood")) {
        start_job(x, true, -1, 100000);
    } else { /* what was understood */
        phi_buf_printf(&body, "%.*s %.*s %zu ", (int)x->method.n, x->method.data, (int)x->path.n,
                       x->path.data, x->body.n);
        phi_buf_append(&body, x->body.data ? x->body.data : "",
                       x->body.n < 20 ? x->body.n : 20);
        phi_exchange_answer(x, 200, "text/plain", &body);
    }
}

static void before_answer(struct phi_exchange *x)
{
    phi_gate_add_headers(x);
}

static void answered(struct phi_exchange *x, int http_status, double seconds)
{
    (void)x;
    assert_true(http_status > 0 && seconds >= 0);
    usleep((useconds_t)atomic_load(&answered_us));
    atomic_fetch_add(&n_answered, 1);
}

static void ended(struct phi_exchange *x, int http_status, bool whole)
{
    (void)x;
    (void)http_status;
    atomic_fetch_add(&n_whole, whole);
    atomic_fetch_add(&n_ended, 1);
}

/* ---------------------------------------------------------------- server and client */

struct fixture {
    struct phi_server_options options;
    struct phi_server server;
    struct phi_http *http;
    int port;
};

static const char *const keys[] = {"secret-1", "secret-2"};
static const char *const origins[] = {"http://a.example", "http://b.example"};
static const char *const stars[] = {"*"};

static struct fixture *fixture_start(void)
{
    static const struct phi_http_callbacks callbacks = {phi_gate_is_open, handle, before_answer,
                                                        answered, ended};
    struct phi_error err = {0};
    struct fixture *f = phi_calloc(1, sizeof *f);
    int fd;
    f->options = (struct phi_server_options){
        .root_path = "/proxy",
        .allowed_origins = {origins, 2},
        .allowed_methods = {stars, 1},
        .allowed_headers = {stars, 1},
        .max_body_bytes = MAX_BODY,
        .max_header_bytes = HEADER_BYTES,
        .max_connections = 200,
        .idle_timeout_s = 2,
        .request_timeout_s = 1,
        .write_timeout_s = 1,
        .n_threads = 2,
    };
    f->server.options = &f->options;
    assert_int_equal(phi_listen_tcp("127.0.0.1", 0, &fd, &f->port, &err), PHI_OK);
    if (phi_http_start(&f->options, &f->server, &callbacks, fd, &f->http, &err) != PHI_OK)
        fail_msg("%s", err.text);
    atomic_store(&n_cancelled, 0);
    atomic_store(&n_freed, 0);
    atomic_store(&answered_us, 0);
    atomic_store(&n_answered, 0);
    atomic_store(&n_ended, 0);
    atomic_store(&n_whole, 0);
    return f;
}

static void fixture_stop(struct fixture *f)
{
    double deadline_s = phi_clock_s() + 20;
    while (phi_http_n_active(f->http) > 0 && phi_clock_s() < deadline_s) {
        phi_http_cancel_all(f->http);
        usleep(1000);
    }
    assert_int_equal(phi_http_n_active(f->http), 0);
    phi_http_stop(f->http);
    phi_free(f);
}

static int dial(const struct fixture *f)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)f->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    size_t n = strlen(text);
    assert_int_equal(send(fd, text, n, MSG_NOSIGNAL), (ssize_t)n);
}

/* Reads until the server closes, `until` was seen, or time is up; *closed tells which. */
static void hear(int fd, const char *until, double seconds, struct phi_buf *out, bool *closed)
{
    double deadline_s = phi_clock_s() + seconds;
    char piece[4096];
    *closed = false;
    while (phi_clock_s() < deadline_s && !(until && out->data && strstr(out->data, until))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 50) <= 0)
            continue;
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0) {
            *closed = true;
            return;
        }
        phi_buf_append(out, piece, (size_t)n);
    }
}

/* ---------------------------------------------------------------- requests in all forms */

static void test_requests(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    static const struct {
        const char *sent, *answer; /* a part of the answer; NULL: the connection is closed */
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n\r\nGET / 0 "},
        {"GET /a%20b?q=1 HTTP/1.1\r\nHost: x\r\n\r\n", "GET /a b 0 "},
        {"GET /proxy/v HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v 0 "},
        {"GET /proxy HTTP/1.1\r\nHost: x\r\n\r\n", "GET / 0 "},
        {"GET /proxyx HTTP/1.1\r\nHost: x\r\n\r\n", "GET /proxyx 0 "},
        {"GET /old HTTP/1.0\r\n\r\n", "GET /old 0 "},
        {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "POST /p 5 hello"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         "5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n",
         "POST /p 12 hello, world"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "POST /p 0 "},
        {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 100001\r\n\r\n", "413"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
         "HTTP/1.1 4"},
        {"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 4"},
        {"POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "20 pieces"},
        {"BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n", "BREW /pot 0 "},
        {"nonsense\r\n\r\n", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct phi_buf heard = {0};
        bool closed;
        int fd = dial(f);
        say(fd, cases[i].sent);
        hear(fd, cases[i].answer, 5, &heard, &closed);
        bool right = cases[i].answer ? heard.data && strstr(heard.data, cases[i].answer) : closed;
        if (!right)
            fail_msg("case %zu: %s", i, heard.data ? heard.data : "nothing");
        phi_buf_deinit(&heard);
        close(fd);
    }
    fixture_stop(f);
}

static void test_long_header_is_refused(void **state)
{
    struct fixture *f = fixture_start();
    struct phi_buf sent = {0}, heard = {0};
    bool closed;
    (void)state;
    phi_buf_append_c(&sent, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: ");
    const size_t n_start = sent.n;
    static const size_t lengths[] = {HEADER_BYTES - 100, HEADER_BYTES + 1, 5 * HEADER_BYTES, 100000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        sent.n = n_start;
        for (size_t n = n_start; n < lengths[i]; n++)
            phi_buf_append_char(&sent, 'x');
        phi_buf_append_c(&sent, "\r\n\r\n");
        int fd = dial(f);
        send(fd, sent.data, sent.n, MSG_NOSIGNAL);
        hear(fd, "\r\n\r\n", 5, &heard, &closed);
        bool refused = closed || strstr(heard.data, "HTTP/1.1 431");
        if (refused != (i > 0))
            fail_msg("%zu bytes: %s", lengths[i], heard.data ? heard.data : "nothing");
        close(fd);
        phi_buf_clear(&heard);
    }
    phi_buf_deinit(&sent);
    phi_buf_deinit(&heard);
    fixture_stop(f);
}

/* A body without a declared length is cut off too. */
static void test_endless_chunks(void **state)
{
    struct fixture *f = fixture_start();
    struct phi_buf chunk = {0}, heard = {0};
    bool closed;
    (void)state;
    for (int i = 0; i < 1000; i++)
        phi_buf_append_char(&chunk, 'x');
    int fd = dial(f);
    say(fd, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    ssize_t sent = 1;
    for (int i = 0; i < 10000 && sent > 0; i++) {
        sent = send(fd, "3e8\r\n", 5, MSG_NOSIGNAL);
        if (sent > 0)
            sent = send(fd, chunk.data, chunk.n, MSG_NOSIGNAL);
        if (sent > 0)
            sent = send(fd, "\r\n", 2, MSG_NOSIGNAL);
    }
    assert_true(sent < 0); /* long before 10 MB */
    hear(fd, NULL, 2, &heard, &closed);
    assert_true(closed);
    close(fd);
    phi_buf_deinit(&chunk);
    phi_buf_deinit(&heard);
    fixture_stop(f);
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (; text && (text = strstr(text, word)); text++)
        n++;
    return n;
}

static void test_pipelined(void **state)
{
    struct fixture *f = fixture_start();
    struct phi_buf heard = {0};
    bool closed;
    (void)state;
    int fd = dial(f);
    for (int i = 0; i < 20; i++)
        say(fd, i % 2 ? "GET /one HTTP/1.1\r\nHost: x\r\n\r\n"
                      : "POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
    say(fd, "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    hear(fd, NULL, 10, &heard, &closed);
    assert_true(closed);
    assert_int_equal(count(heard.data, "GET /one 0 "), 10);
    assert_int_equal(count(heard.data, "20 pieces"), 10);
    assert_int_equal(count(heard.data, "GET /last 0 "), 1);
    close(fd);
    phi_buf_deinit(&heard);
    fixture_stop(f);
}

/* ---------------------------------------------------------------- streams */

static void test_stream(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    for (int version = 0; version < 2; version++) {
        struct phi_buf heard = {0};
        bool closed;
        char request[128];
        int fd = dial(f);
        snprintf(request, sizeof request,
                 "GET /stream HTTP/1.%d\r\nHost: x\r\nConnection: close\r\n\r\n", version);
        say(fd, request);
        hear(fd, NULL, 10, &heard, &closed);
        assert_true(closed);
        assert_non_null(strstr(heard.data, "text/event-stream"));
        size_t n = 0;
        const char *body = strstr(heard.data, "\r\n\r\n");
        for (const char *c = body; *c; c++)
            n += *c == 'z'; /* the last piece; no chunk length has this letter */
        assert_int_equal(n, 100);
        phi_buf_deinit(&heard);
        close(fd);
    }
    assert_int_equal(atomic_load(&n_cancelled), 0);
    fixture_stop(f);
}

/* ---------------------------------------------------------------- clients that leave or dawdle */

static bool wait_for(const atomic_int *counter, int value, double seconds)
{
    double deadline_s = phi_clock_s() + seconds;
    while (atomic_load(counter) < value && phi_clock_s() < deadline_s)
        usleep(1000);
    return atomic_load(counter) == value;
}

/* However long that takes: who has the last byte of an answer is not told that it is still to come. */
static void test_an_answer_is_counted_before_it_is_there(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    atomic_store(&answered_us, 50000);
    static const struct {
        const char *path, *last_bytes;
    } cases[] = {{"/", "GET / 0 "}, {"/later", "20 pieces"}, {"/stream", "zzz\r\n"}};
    for (int i = 0; i < 3; i++) {
        struct phi_buf heard = {0};
        char request[128];
        bool closed;
        int fd = dial(f);
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", cases[i].path);
        say(fd, request);
        hear(fd, cases[i].last_bytes, 5, &heard, &closed);
        assert_true(heard.data && strstr(heard.data, cases[i].last_bytes));
        assert_int_equal(atomic_load(&n_answered), i + 1);
        assert_int_equal(atomic_load(&n_freed), i);
        phi_buf_deinit(&heard);
        close(fd);
    }
    assert_true(wait_for(&n_ended, 3, 2));
    assert_int_equal(atomic_load(&n_answered), 3);
    fixture_stop(f);
}

static void test_client_leaves(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    static const char *const paths[] = {"/hang", "/flood", "/hang", "/flood"};
    for (int i = 0; i < 4; i++) {
        char request[128];
        int fd = dial(f);
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", paths[i]);
        say(fd, request);
        usleep(30000);
        assert_int_equal(atomic_load(&n_freed), i);
        if (i >= 2) { /* no FIN but RST */
            struct linger hard = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        }
        close(fd);
        if (!wait_for(&n_freed, i + 1, 2))
            fail_msg("%s goes on without its client", paths[i]);
    }
    assert_true(wait_for(&n_ended, 4, 2));
    assert_int_equal(atomic_load(&n_whole), 0);
    assert_int_equal(atomic_load(&n_answered), 2); /* what was begun */
    fixture_stop(f);
}

/* Whether the server closes within `seconds`, while a byte is sent now and then (dribble != NULL). */
static double time_to_close(int fd, const char *dribble, double seconds)
{
    double start_s = phi_clock_s();
    char piece[512];
    while (phi_clock_s() - start_s < seconds) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (dribble && send(fd, dribble, 1, MSG_NOSIGNAL) < 0)
            break;
        if (poll(&p, 1, 50) > 0 && recv(fd, piece, sizeof piece, 0) <= 0)
            break;
    }
    return phi_clock_s() - start_s;
}

static void test_time_limits(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    static const struct {
        const char *name, *first, *dribble;
        double least_s, most_s;
    } cases[] = {
        {"idle", NULL, NULL, 1.5, 4},
        {"a header that never ends", "GET / HTTP/1.1\r\nX: ", "x", 0.7, 3},
        {"a body that never ends", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n",
         "x", 0.7, 3},
        {"a first line that never ends", "GET /", "x", 1.5, 4},
        {"idle after an answer", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", NULL, 1.5, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = dial(f);
        if (cases[i].first)
            say(fd, cases[i].first);
        double seconds = time_to_close(fd, cases[i].dribble, 6);
        if (seconds < cases[i].least_s || seconds > cases[i].most_s)
            fail_msg("%s: closed after %.2f s", cases[i].name, seconds);
        close(fd);
    }
    fixture_stop(f);
}

/* A client that takes nothing of a stream is cut, and its job ends. */
static void test_slow_reader(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    int fd = dial(f);
    say(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(wait_for(&n_freed, 1, 8));
    close(fd);
    fixture_stop(f);
}

/* A job may take longer than any of the limits. */
static void test_work_has_no_limit(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    int fd = dial(f);
    say(fd, "GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(time_to_close(fd, NULL, 3) >= 3);
    assert_int_equal(atomic_load(&n_cancelled), 0);
    close(fd);
    fixture_stop(f);
}

static void test_drain(void **state)
{
    struct fixture *f = fixture_start();
    struct phi_buf heard = {0};
    bool closed;
    (void)state;
    int working = dial(f), idle = dial(f);
    say(working, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    usleep(5000);
    phi_http_quiesce(f->http);
    hear(working, NULL, 5, &heard, &closed);
    assert_true(closed);
    assert_non_null(strstr(heard.data, "20 pieces"));
    assert_non_null(strstr(heard.data, "Connection: close"));
    close(working);
    close(idle);
    phi_buf_deinit(&heard);
    fixture_stop(f);
}

/* ---------------------------------------------------------------- the gate */

static void test_gate(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    f->options.api_keys = (struct phi_strings){keys, 2};
    static const struct {
        const char *head, *answer, *absent; /* parts that the answer must have, must not have */
    } cases[] = {
        {"GET /v1/x HTTP/1.1\r\n", "401", "GET /v1/x"},
        {"GET /v1/x HTTP/1.1\r\n", "{\"error\":\"Unauthorized\"}", NULL},
        {"GET /v1/x HTTP/1.1\r\nAuthorization: Bearer secret-1\r\n", "GET /v1/x", NULL},
        {"GET /v1/x HTTP/1.1\r\nAuthorization: bearer secret-2\r\n", "GET /v1/x", NULL},
        {"GET /v1/x HTTP/1.1\r\nAuthorization: Bearer secret-3\r\n", "401", NULL},
        {"GET /v1/x HTTP/1.1\r\nAuthorization: Bearer secret-11\r\n", "401", NULL},
        {"GET /v1/x HTTP/1.1\r\nAuthorization: Bearer secret-\r\n", "401", NULL},
        {"GET /v1/x HTTP/1.1\r\nAuthorization: Bearer \r\n", "401", NULL},
        {"GET /v1/x HTTP/1.1\r\nAuthorization: secret-1\r\n", "401", NULL},
        {"GET /proxy/v1/x HTTP/1.1\r\n", "401", NULL},
        {"GET /health HTTP/1.1\r\n", "GET /health", "401"},
        {"GET /health HTTP/1.1\r\n", "200", "Access-Control"},
        {"GET /health HTTP/1.1\r\nOrigin: http://a.example\r\n",
         "Access-Control-Allow-Origin: http://a.example", NULL},
        {"GET /health HTTP/1.1\r\nOrigin: http://c.example\r\n", "200", "Access-Control"},
        {"OPTIONS /v1/x HTTP/1.1\r\nOrigin: http://b.example\r\n"
         "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: X-A, X-B\r\n",
         "Access-Control-Allow-Headers: X-A, X-B", "401"},
        {"OPTIONS /v1/x HTTP/1.1\r\nOrigin: http://c.example\r\n"
         "Access-Control-Request-Method: POST\r\n",
         "Disallowed CORS origin", NULL},
        {"POST /v1/x HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n", "100", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct phi_buf heard = {0};
        bool closed;
        int fd = dial(f);
        say(fd, cases[i].head);
        say(fd, "Host: x\r\nConnection: close\r\n\r\n");
        hear(fd, strstr(cases[i].answer, "100") ? "100" : NULL, 5, &heard, &closed);
        if (!heard.data || !strstr(heard.data, cases[i].answer) ||
            (cases[i].absent && strstr(heard.data, cases[i].absent)))
            fail_msg("case %zu: %s", i, heard.data ? heard.data : "nothing");
        phi_buf_deinit(&heard);
        close(fd);
    }
    fixture_stop(f);
}

/* ---------------------------------------------------------------- failing allocations */

/* Whichever allocation of an exchange fails, its client gets an error or a closed connection, and the
 * next one is served. */
static void test_allocations_fail(void **state)
{
    struct fixture *f = fixture_start();
    (void)state;
    for (long n = 1; n < 12; n++) {
        for (int attempt = 0; attempt < 2; attempt++) {
            struct phi_buf heard = {0};
            bool closed;
            int fd = dial(f);
            usleep(2000); /* let the connection be taken in */
            say(fd, "POST /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    "Content-Length: 5\r\n\r\n");
            usleep(2000);
            phi_alloc_fail_nth(attempt == 0 ? n : 0);
            say(fd, "hello");
            struct pollfd p = {.fd = fd, .events = POLLIN};
            poll(&p, 1, 5000);
            phi_alloc_fail_nth(0);
            hear(fd, NULL, 5, &heard, &closed);
            assert_true(closed);
            if (attempt == 1)
                assert_non_null(strstr(heard.data, "POST /p 5 hello"));
            phi_buf_deinit(&heard);
            close(fd);
        }
    }
    fixture_stop(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_long_header_is_refused),
        cmocka_unit_test(test_endless_chunks),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_an_answer_is_counted_before_it_is_there),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_work_has_no_limit),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_allocations_fail),
    };
    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
