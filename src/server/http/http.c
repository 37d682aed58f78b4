/* http.c: see http.h. In the order of an exchange's life: a connection comes, a request's first line, its
 * header, its body, the answer, the end; then the daemon that does all this. */
#include "server/http/http.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status.h"
#include "server/http/watch.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <inttypes.h>
#include <math.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STREAM_CHUNK_BYTES = 16 * 1024, /* of a streaming answer, handed to the library at once */
    SLOWEST_BYTES_PER_S = 16 * 1024, /* a long answer has this much more time to be taken */
    MAX_PEM_BYTES = 1 << 20,
    CONNECTION_BYTES = 16 * 1024 /* of the library's memory per connection, beyond the header */
};

struct phi_http {
    const struct phi_server_options *options;
    struct phi_server *server;
    struct phi_http_callbacks callbacks;
    struct MHD_Daemon *daemon;
    struct phi_watch *watch;
    atomic_size_t n_active;
    atomic_bool started, quiesced, stopping;
    int listen_fd;
    char last_message[256]; /* of the library, while it starts */
};

struct header_line {
    struct header_line *next;
    char *name, *value; /* in the same allocation */
};

/* What an exchange is to this file. */
struct phi_http_side {
    struct phi_exchange x;
    struct phi_http *http;
    struct MHD_Connection *connection; /* NULL once the exchange is over */
    struct phi_connection *peer;
    double start_s;
    size_t n_dropped; /* bytes of a body that nobody wants */
    bool has_header, keeps_body, is_dispatched, is_streaming, is_complete;
    atomic_bool client_left;
    size_t n_sent; /* of x.stream */
    int http_status;
    struct header_line *header_lines;
    struct MHD_Response *response; /* ready to be queued */

    atomic_int n_references; /* the library's and the engine's */
    pthread_mutex_t lock;
    bool news, suspended;
};

/* ---------------------------------------------------------------- wake and sleep */

static void carry_wake(struct phi_exchange *x)
{
    struct phi_http_side *side = x->side;
    pthread_mutex_lock(&side->lock);
    side->news = true;
    if (side->suspended) {
        side->suspended = false;
        MHD_resume_connection(side->connection);
    }
    pthread_mutex_unlock(&side->lock);
}

static void forget_news(struct phi_http_side *side)
{
    pthread_mutex_lock(&side->lock);
    side->news = false;
    pthread_mutex_unlock(&side->lock);
}

/* Suspends the connection until the job has news. False when it has some already. */
static bool sleep_until_woken(struct phi_http_side *side)
{
    phi_watch_allow(side->http->watch, side->peer, INFINITY);
    pthread_mutex_lock(&side->lock);
    bool sleeps = !side->news;
    if (sleeps) {
        side->suspended = true;
        MHD_suspend_connection(side->connection);
    }
    pthread_mutex_unlock(&side->lock);
    return sleeps;
}

/* ---------------------------------------------------------------- an exchange comes and goes */

static void carry_acquire(struct phi_exchange *x)
{
    atomic_fetch_add(&x->side->n_references, 1);
}

static void carry_release(struct phi_exchange *x)
{
    struct phi_http_side *side = x->side;
    if (atomic_fetch_sub(&side->n_references, 1) != 1)
        return;
    while (side->header_lines) {
        struct header_line *line = side->header_lines;
        side->header_lines = line->next;
        phi_free(line);
    }
    if (side->response)
        MHD_destroy_response(side->response);
    phi_buf_deinit(&x->target);
    phi_buf_deinit(&x->body);
    phi_buf_deinit(&x->stream);
    pthread_mutex_destroy(&side->lock);
    phi_free(side);
}

static struct phi_connection *peer_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static const struct phi_carrier http_carrier; /* below, where all its functions are known */

/* The library's hook for a request's first line. NULL, when out of memory, is answered with 503. */
static void *begin_exchange(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct phi_http *h = cls;
    struct phi_http_side *side = phi_calloc(1, sizeof *side);
    if (!side)
        return NULL;
    pthread_mutex_init(&side->lock, NULL);
    atomic_init(&side->n_references, 1);
    side->http = h;
    side->connection = connection;
    side->peer = peer_of(connection);
    side->start_s = phi_clock_s();
    side->x.side = side;
    side->x.carrier = &http_carrier;
    side->x.server = h->server;
    side->x.peer = side->peer ? phi_connection_peer(side->peer) : "";
    phi_buf_append_c(&side->x.target, uri);
    if (!side->peer || side->x.target.failed) {
        phi_exchange_release(&side->x);
        return NULL;
    }
    phi_watch_await(h->watch, side->peer, h->options->request_timeout_s);
    return side;
}

/* The client left, or the server stops. */
static void cancel_job(void *exchange)
{
    struct phi_exchange *x = exchange;
    if (!atomic_load(&x->side->http->stopping))
        atomic_store(&x->side->client_left, true);
    x->job->cancel(x->job);
    phi_exchange_wake(x);
}

/* What is sent after this ends the answer, or nothing more is sent. The work is done: from here on a
 * client that leaves ends nothing, and one that leaves after the last byte has had all of it. */
static void complete_answer(struct phi_http_side *side)
{
    struct phi_http *h = side->http;
    struct phi_exchange *x = &side->x;
    if (side->is_complete)
        return;
    side->is_complete = true;
    if (x->job) {
        phi_watch_attend(h->watch, side->peer, NULL);
        x->job->free(x->job);
        x->job = NULL;
    }
    if (side->http_status > 0)
        h->callbacks.answered(x, side->http_status, phi_clock_s() - side->start_s);
}

static void end_exchange(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode why)
{
    struct phi_http *h = cls;
    struct phi_http_side *side = *con_cls;
    (void)connection;
    *con_cls = NULL;
    if (!side)
        return;
    struct phi_exchange *x = &side->x;
    complete_answer(side);
    if (side->is_dispatched) {
        bool whole =
            why == MHD_REQUEST_TERMINATED_COMPLETED_OK && !atomic_load(&side->client_left);
        h->callbacks.ended(x, side->http_status, whole);
        atomic_fetch_sub(&h->n_active, 1);
    }
    phi_watch_await(h->watch, side->peer, h->options->idle_timeout_s);
    pthread_mutex_lock(&side->lock);
    side->connection = NULL;
    pthread_mutex_unlock(&side->lock);
    phi_exchange_release(x);
}

/* ---------------------------------------------------------------- the request */

static struct phi_str carry_header(const struct phi_exchange *x, const char *name)
{
    const char *value =
        MHD_lookup_connection_value(x->side->connection, MHD_HEADER_KIND, name);
    return value ? phi_str_from(value) : (struct phi_str){"", 0};
}

static void set_request_id(struct phi_exchange *x)
{
    struct phi_str given = phi_exchange_header(x, "X-Request-Id");
    bool usable = given.n > 0 && given.n < sizeof x->request_id;
    for (size_t i = 0; i < given.n && usable; i++)
        usable = given.data[i] > ' ' && given.data[i] < 0x7f && given.data[i] != '"';
    if (usable) {
        memcpy(x->request_id, given.data, given.n + 1);
        return;
    }
    uint64_t random[2] = {0, (uint64_t)(x->side->start_s * 1e9)};
    if (getrandom(random, sizeof random, 0) != sizeof random)
        random[0] = (uintptr_t)x; /* unlike any other that is here now */
    snprintf(x->request_id, sizeof x->request_id, "%016" PRIx64 "%016" PRIx64, random[0],
             random[1]);
}

/* Cuts what a proxy left in front of the path. */
static struct phi_str path_of(const struct phi_server_options *o, const char *url)
{
    struct phi_str path = phi_str_from(url);
    struct phi_str root = phi_str_from(o->root_path ? o->root_path : "");
    if (root.n > 0 && root.data[root.n - 1] == '/')
        root.n--;
    if (root.n > 0 && phi_str_starts_with(path, root) &&
        (path.n == root.n || path.data[root.n] == '/')) {
        path.data += root.n;
        path.n -= root.n;
    }
    return path.n > 0 ? path : PHI_STR("/");
}

/* The declared length, 0 when there is none (chunked). The library has checked its form. */
static uint64_t declared_length(const struct phi_exchange *x)
{
    return strtoull(phi_exchange_header(x, "Content-Length").data, NULL, 10);
}

static void take_header(struct phi_http_side *side, const char *url, const char *method)
{
    const struct phi_server_options *o = side->http->options;
    struct phi_exchange *x = &side->x;
    side->has_header = true;
    x->method = phi_str_from(method);
    x->path = path_of(o, url);
    x->body.limit = o->max_body_bytes;
    size_t n_header =
        MHD_get_connection_info(side->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)
            ->header_size;
    x->header_too_large = n_header > o->max_header_bytes;
    x->body_too_large = declared_length(x) > o->max_body_bytes;
    set_request_id(x);
    side->keeps_body = !x->header_too_large && !x->body_too_large && side->http->callbacks.wants_body(x);
}

/* False to give up on a client that goes on and on with what is not wanted. */
static bool take_body(struct phi_http_side *side, const char *data, size_t n)
{
    struct phi_exchange *x = &side->x;
    if (side->keeps_body && x->body.n + n > x->body.limit) {
        x->body_too_large = true;
        side->keeps_body = false;
        phi_buf_deinit(&x->body);
    }
    if (side->keeps_body) {
        phi_buf_append(&x->body, data, n);
        return true;
    }
    side->n_dropped += n;
    return side->n_dropped <= 2 * side->http->options->max_body_bytes;
}

/* ---------------------------------------------------------------- the answer */

static void carry_add_header(struct phi_exchange *x, const char *name, const char *value)
{
    size_t n_name = strlen(name) + 1, n_value = strlen(value) + 1;
    struct header_line *line = phi_alloc(sizeof *line + n_name + n_value, 1);
    if (!line)
        return; /* the answer is right without it */
    line->name = (char *)(line + 1);
    line->value = line->name + n_name;
    memcpy(line->name, name, n_name);
    memcpy(line->value, value, n_value);
    line->next = x->side->header_lines;
    x->side->header_lines = line;
}

static void add_header_lines(struct phi_http_side *side)
{
    side->http->callbacks.before_answer(&side->x);
    if (atomic_load(&side->http->quiesced))
        phi_exchange_add_header(&side->x, "Connection", "close");
    for (struct header_line *line = side->header_lines; line; line = line->next)
        MHD_add_response_header(side->response, line->name, line->value);
}

static void free_body(void *data)
{
    phi_free(data);
}

static void carry_answer(struct phi_exchange *x, int http_status, const char *content_type,
                         struct phi_buf *body)
{
    static char no_memory[] = "{\"error\":{\"message\":\"out of memory\",\"type\":"
                              "\"InternalServerError\",\"param\":null,\"code\":500}}";
    struct phi_http_side *side = x->side;
    assert(!side->response && !side->is_streaming);
    bool failed = body->failed;
    side->http_status = failed ? 500 : http_status;
    x->n_answer_bytes = failed ? sizeof no_memory - 1 : body->n;
    if (failed || !body->data) {
        phi_buf_deinit(body);
        side->response = MHD_create_response_from_buffer(failed ? sizeof no_memory - 1 : 0,
                                                         no_memory, MHD_RESPMEM_PERSISTENT);
    } else {
        side->response =
            MHD_create_response_from_buffer_with_free_callback(body->n, body->data, free_body);
        if (!side->response)
            phi_free(body->data);
        *body = (struct phi_buf){0};
    }
    if (content_type)
        phi_exchange_add_header(x, "Content-Type", failed ? "application/json" : content_type);
}

static void carry_stream(struct phi_exchange *x)
{
    assert(x->job && !x->side->response);
    x->side->is_streaming = true;
    x->side->http_status = 200;
    phi_exchange_add_header(x, "Content-Type", "text/event-stream; charset=utf-8");
    phi_exchange_add_header(x, "Cache-Control", "no-cache");
    phi_exchange_add_header(x, "X-Accel-Buffering", "no");
}

/* The library's hook for more of a streaming answer: pulls the job until there is something to send,
 * or until it must wait. */
static ssize_t read_stream(void *cls, uint64_t position, char *out, size_t max)
{
    struct phi_http_side *side = cls;
    struct phi_exchange *x = &side->x;
    (void)position;
    while (side->n_sent == x->stream.n) {
        if (x->stream.failed || atomic_load(&side->client_left))
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (side->is_complete)
            return MHD_CONTENT_READER_END_OF_STREAM;
        phi_buf_clear(&x->stream);
        side->n_sent = 0;
        forget_news(side);
        enum phi_job_state state = x->job->pull(x, x->job);
        if (state == PHI_JOB_DONE)
            complete_answer(side);
        if (state == PHI_JOB_WAIT && x->stream.n == 0 && !x->stream.failed &&
            sleep_until_woken(side))
            return 0;
    }
    size_t n = x->stream.n - side->n_sent;
    if (n > max)
        n = max;
    memcpy(out, x->stream.data + side->n_sent, n);
    side->n_sent += n;
    x->n_answer_bytes += n;
    phi_watch_allow(side->http->watch, side->peer, side->http->options->write_timeout_s);
    return (ssize_t)n;
}

static enum MHD_Result queue_answer(struct phi_http_side *side)
{
    struct phi_http *h = side->http;
    if (side->is_streaming)
        side->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_CHUNK_BYTES,
                                                           read_stream, side, NULL);
    if (!side->response)
        return MHD_NO; /* out of memory: the connection is closed */
    add_header_lines(side);
    double timeout_s = h->options->write_timeout_s;
    timeout_s += (double)side->x.n_answer_bytes / SLOWEST_BYTES_PER_S;
    phi_watch_allow(h->watch, side->peer, timeout_s);
    enum MHD_Result result =
        MHD_queue_response(side->connection, (unsigned)side->http_status, side->response);
    MHD_destroy_response(side->response);
    side->response = NULL;
    return result;
}

/* Goes on until there is an answer, or the job has to wait. */
static enum MHD_Result advance(struct phi_http_side *side)
{
    struct phi_exchange *x = &side->x;
    while (!side->response && !side->is_streaming) {
        forget_news(side);
        if (atomic_load(&side->client_left))
            return MHD_NO; /* nobody is there to be answered */
        if (!x->job || x->job->pull(x, x->job) == PHI_JOB_DONE)
            break;
        if (sleep_until_woken(side))
            return MHD_YES;
    }
    if (!side->is_streaming)
        complete_answer(side);
    return queue_answer(side);
}

static void dispatch(struct phi_http_side *side)
{
    struct phi_http *h = side->http;
    struct phi_exchange *x = &side->x;
    side->is_dispatched = true;
    atomic_fetch_add(&h->n_active, 1);
    phi_watch_allow(h->watch, side->peer, INFINITY);
    h->callbacks.handle(x);
    if (x->job)
        phi_watch_attend(h->watch, side->peer, x);
}

static enum MHD_Result refuse_for_memory(struct MHD_Connection *connection)
{
    static char text[] = "{\"error\":{\"message\":\"out of memory\",\"type\":"
                         "\"ServiceUnavailable\",\"param\":null,\"code\":503}}";
    struct MHD_Response *response =
        MHD_create_response_from_buffer(sizeof text - 1, text, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    enum MHD_Result result = MHD_queue_response(connection, 503, response);
    MHD_destroy_response(response);
    return result;
}

/* The library calls this once for the header, for each piece of the body, for its end, and again
 * after each wake until an answer is queued. */
static enum MHD_Result access_handler(void *cls, struct MHD_Connection *connection,
                                      const char *url, const char *method, const char *version,
                                      const char *data, size_t *n_data, void **con_cls)
{
    struct phi_http_side *side = *con_cls;
    (void)cls;
    (void)version;
    if (!side)
        return refuse_for_memory(connection);
    if (!side->has_header) {
        take_header(side, url, method);
        /* What is known to be too long is answered before it comes. */
        if (!side->x.body_too_large)
            return MHD_YES;
    } else if (*n_data > 0) {
        bool goes_on = take_body(side, data, *n_data);
        *n_data = 0;
        return goes_on ? MHD_YES : MHD_NO;
    }
    if (!side->is_dispatched)
        dispatch(side);
    return advance(side);
}

/* ---------------------------------------------------------------- connections */

static void format_peer(const struct sockaddr *a, char *out, size_t capacity)
{
    char text[INET6_ADDRSTRLEN] = "";
    int port = 0;
    if (a && a->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
        port = ntohs(four->sin_port);
    } else if (a && a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a;
        port = ntohs(six->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
            inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, text, sizeof text);
        else
            inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
    }
    if (text[0])
        snprintf(out, capacity, strchr(text, ':') ? "[%s]:%d" : "%s:%d", text, port);
    else
        snprintf(out, capacity, "unix");
}

static void connection_changed(void *cls, struct MHD_Connection *connection, void **socket_context,
                               enum MHD_ConnectionNotificationCode what)
{
    struct phi_http *h = cls;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*socket_context)
            phi_watch_remove(h->watch, *socket_context);
        *socket_context = NULL;
        return;
    }
    char peer[64];
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    format_peer(address ? address->client_addr : NULL, peer, sizeof peer);
    *socket_context = phi_watch_add(h->watch, fd, peer, h->options->idle_timeout_s);
    if (!*socket_context)
        shutdown(fd, SHUT_RDWR); /* nobody would look after it */
}

static bool carry_has_trusted_certificate(const struct phi_exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->side->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    unsigned n = 0, verdict = GNUTLS_CERT_INVALID;
    return info && gnutls_certificate_get_peers(info->tls_session, &n) && n > 0 &&
           gnutls_certificate_verify_peers2(info->tls_session, &verdict) == 0 && verdict == 0;
}

static const struct phi_carrier http_carrier = {
    .header = carry_header,
    .answer = carry_answer,
    .add_header = carry_add_header,
    .has_trusted_certificate = carry_has_trusted_certificate,
    .stream = carry_stream,
    .wake = carry_wake,
    .acquire = carry_acquire,
    .release = carry_release,
};

/* ---------------------------------------------------------------- the daemon */

static void log_of_library(void *cls, const char *fmt, va_list arguments)
{
    struct phi_http *h = cls;
    char text[sizeof h->last_message];
    vsnprintf(text, sizeof text, fmt, arguments);
    size_t n = strcspn(text, "\r\n");
    text[n] = '\0';
    phi_log(PHI_LOG_DEBUG, "http: %s", text);
    if (!atomic_load(&h->started))
        memcpy(h->last_message, text, sizeof text);
}

/* The PEM files, in memory as the library wants them. */
struct tls_files {
    struct phi_buf key, certificate, trust;
};

static enum phi_status read_tls_files(const struct phi_server_options *o, struct tls_files *f,
                                      struct phi_error *err)
{
    const char *const paths[] = {o->ssl_keyfile, o->ssl_certfile, o->ssl_ca_certs};
    struct phi_buf *const texts[] = {&f->key, &f->certificate, &f->trust};
    if (!o->ssl_keyfile != !o->ssl_certfile)
        return phi_fail(err, PHI_ERR_INVALID, "TLS needs both --ssl-keyfile and --ssl-certfile");
    if (!o->ssl_keyfile && (o->ssl_ca_certs || o->ssl_require_client))
        return phi_fail(err, PHI_ERR_INVALID,
                        "--ssl-ca-certs and --ssl-cert-reqs need --ssl-keyfile and --ssl-certfile");
    if (o->ssl_require_client && !o->ssl_ca_certs)
        return phi_fail(err, PHI_ERR_INVALID, "--ssl-cert-reqs needs --ssl-ca-certs");
    for (size_t i = 0; i < 3; i++) {
        if (paths[i])
            PHI_TRY(phi_file_read(paths[i], MAX_PEM_BYTES, texts[i], err));
        phi_buf_append_char(texts[i], '\0');
        if (texts[i]->failed)
            return phi_fail_memory(err, "TLS files", texts[i]->n);
    }
    return PHI_OK;
}

/* Whether key and certificate can be read and belong together: the library would only say "no". */
static enum phi_status check_tls_files(const struct phi_server_options *o, struct tls_files *f,
                                       struct phi_error *err)
{
    gnutls_certificate_credentials_t credentials;
    gnutls_datum_t key = {(unsigned char *)f->key.data, (unsigned)f->key.n - 1};
    gnutls_datum_t certificate = {(unsigned char *)f->certificate.data,
                                  (unsigned)f->certificate.n - 1};
    gnutls_datum_t trust = {(unsigned char *)f->trust.data, (unsigned)f->trust.n - 1};
    if (gnutls_certificate_allocate_credentials(&credentials) != 0)
        return phi_fail_memory(err, "TLS credentials", 0);
    int result = gnutls_certificate_set_x509_key_mem2(credentials, &certificate, &key,
                                                      GNUTLS_X509_FMT_PEM, NULL, 0);
    int n_trusted = 1;
    if (result >= 0 && o->ssl_ca_certs)
        n_trusted =
            gnutls_certificate_set_x509_trust_mem(credentials, &trust, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(credentials);
    if (result < 0)
        return phi_fail(err, PHI_ERR_FORMAT, "%s with %s: not a key and its certificate in PEM: %s",
                        o->ssl_certfile, o->ssl_keyfile, gnutls_strerror(result));
    if (n_trusted <= 0)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: no certificate in PEM", o->ssl_ca_certs);
    return PHI_OK;
}

static enum phi_status start_daemon(struct phi_http *h, const struct tls_files *tls, int listen_fd,
                                    struct phi_error *err)
{
    const struct phi_server_options *o = h->options;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    struct MHD_OptionItem options[16], *next = options;
#define OPTION(name, number, pointer)                                                              \
    *next++ = (struct MHD_OptionItem){MHD_OPTION_##name, (intptr_t)(number), (void *)(pointer)}
    OPTION(LISTEN_SOCKET, listen_fd, NULL);
    OPTION(URI_LOG_CALLBACK, begin_exchange, h);
    OPTION(NOTIFY_COMPLETED, end_exchange, h);
    OPTION(NOTIFY_CONNECTION, connection_changed, h);
    OPTION(CONNECTION_LIMIT, o->max_connections, NULL);
    OPTION(CONNECTION_MEMORY_LIMIT, o->max_header_bytes + CONNECTION_BYTES, NULL);
    OPTION(SIGPIPE_HANDLED_BY_APP, 1, NULL);
    OPTION(STRICT_FOR_CLIENT, 1, NULL); /* a request without Host is refused */
    if (o->n_threads > 1)
        OPTION(THREAD_POOL_SIZE, o->n_threads, NULL);
    if (o->ssl_keyfile) {
        flags |= MHD_USE_TLS;
        OPTION(HTTPS_MEM_KEY, 0, tls->key.data);
        OPTION(HTTPS_MEM_CERT, 0, tls->certificate.data);
    }
    if (o->ssl_ca_certs)
        OPTION(HTTPS_MEM_TRUST, 0, tls->trust.data);
    OPTION(END, 0, NULL);
#undef OPTION
    h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, access_handler, h, MHD_OPTION_EXTERNAL_LOGGER,
                                 log_of_library, h, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    atomic_store(&h->started, true);
    if (h->daemon)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_IO, "cannot start the HTTP server: %s",
                    h->last_message[0] ? h->last_message : "the library does not say why");
}

enum phi_status phi_http_start(const struct phi_server_options *o, struct phi_server *server,
                               const struct phi_http_callbacks *callbacks, int listen_fd,
                               struct phi_http **out, struct phi_error *err)
{
    struct tls_files tls = {{0}, {0}, {0}};
    struct phi_http *h = phi_calloc(1, sizeof *h);
    *out = NULL;
    enum phi_status status = h ? PHI_OK : phi_fail_memory(err, "the HTTP server", sizeof *h);
    if (status == PHI_OK) {
        h->options = o;
        h->server = server;
        h->listen_fd = listen_fd;
        h->callbacks = *callbacks;
        status = read_tls_files(o, &tls, err);
    }
    if (status == PHI_OK && o->ssl_keyfile)
        status = check_tls_files(o, &tls, err);
    if (status == PHI_OK)
        status = phi_watch_create(cancel_job, &h->watch, err);
    if (status == PHI_OK)
        status = start_daemon(h, &tls, listen_fd, err);
    phi_buf_deinit(&tls.key);
    phi_buf_deinit(&tls.certificate);
    phi_buf_deinit(&tls.trust);
    if (status == PHI_OK) {
        *out = h;
        return PHI_OK;
    }
    close(listen_fd);
    if (h)
        phi_watch_destroy(h->watch);
    phi_free(h);
    return status;
}

size_t phi_http_n_active(const struct phi_http *h)
{
    return atomic_load(&h->n_active);
}

void phi_http_quiesce(struct phi_http *h)
{
    if (atomic_exchange(&h->quiesced, true))
        return;
    /* The library's threads let go of the socket in their own time, so it is closed at the end; but
     * no client shall wait in its queue till then. */
    MHD_quiesce_daemon(h->daemon);
    shutdown(h->listen_fd, SHUT_RD);
}

void phi_http_cancel_all(struct phi_http *h)
{
    atomic_store(&h->stopping, true);
    phi_watch_cancel_all(h->watch);
}

void phi_http_stop(struct phi_http *h)
{
    phi_http_quiesce(h);
    MHD_stop_daemon(h->daemon);
    close(h->listen_fd);
    phi_watch_destroy(h->watch);
    phi_free(h);
}
