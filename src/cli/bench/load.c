/* load.c: see load.h. */
#include "cli/bench/load.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "formats/json.h"

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

enum { MAX_REFUSAL_BYTES = 4096 };

struct transfer {
    CURL *easy;
    struct bench_stream stream;
    struct phi_buf refusal; /* the body of a status other than 200 */
    char why[CURL_ERROR_SIZE];
    double begin_s; /* of all, on the clock */
};

struct load {
    const struct bench_server *server;
    CURLM *multi;
    struct curl_slist *headers;
    char *url;
    struct transfer *transfers; /* [n], of which those under way have a handle */
    const struct bench_request *requests;
    struct bench_answer *answers;
    size_t n, n_begun, n_done;
    double begin_s;
};

static enum phi_status no_memory(struct phi_error *err)
{
    return phi_fail(err, PHI_ERR_MEMORY, "no memory for HTTP requests");
}

/* --------------------------------------------------------------- one request */

/* "base" and "/path" joined with one slash. */
static char *make_url(const char *base, const char *path)
{
    struct phi_buf url = {0};
    struct phi_str b = phi_str_from(base);
    while (b.n > 0 && b.data[b.n - 1] == '/')
        b.n--;
    phi_buf_append_str(&url, b);
    phi_buf_printf(&url, "/%s", path + (path[0] == '/'));
    if (!url.failed)
        return url.data;
    phi_buf_deinit(&url);
    return NULL;
}

static struct curl_slist *make_headers(const struct bench_server *server)
{
    struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
    for (size_t i = 0; i <= server->n_headers && list; i++) {
        /* "Expect:" leaves out a question that would cost long requests a round trip */
        const char *header = i < server->n_headers ? server->headers[i] : "Expect:";
        struct curl_slist *longer = curl_slist_append(list, header);
        if (!longer)
            curl_slist_free_all(list);
        list = longer;
    }
    return list;
}

/* What is the same for every request. No proxy: it would be measured too. */
static CURL *make_handle(const struct bench_server *server, const char *url,
                         struct curl_slist *headers)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        return NULL;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (server->insecure) {
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    return easy;
}

static size_t receive(char *data, size_t size, size_t n, void *context)
{
    struct transfer *t = context;
    long status = 0;
    size_t n_bytes = size * n;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200)
        bench_stream_feed(&t->stream, (struct phi_str){data, n_bytes}, phi_clock_s() - t->begin_s);
    else if (t->refusal.n + n_bytes <= MAX_REFUSAL_BYTES)
        phi_buf_append(&t->refusal, data, n_bytes);
    return n_bytes;
}

static enum phi_status begin(struct load *l, size_t i, struct phi_error *err)
{
    struct transfer *t = &l->transfers[i];
    const struct bench_request *r = &l->requests[i];
    struct bench_answer *a = &l->answers[i];
    t->easy = make_handle(l->server, l->url, l->headers);
    if (!t->easy)
        return no_memory(err);
    t->begin_s = l->begin_s;
    bench_stream_init(&t->stream, a);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.n);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, r->body.data);
    a->start_s = phi_clock_s() - l->begin_s;
    a->queue_s = a->start_s - r->due_s;
    if (curl_multi_add_handle(l->multi, t->easy) != CURLM_OK)
        return no_memory(err);
    l->n_begun++;
    return PHI_OK;
}

/* "status 400: message", with the message of an OpenAI error where the body is one. */
static void refuse(struct bench_answer *a, long status, struct phi_str body)
{
    json_t *json = NULL;
    const json_t *message = NULL;
    struct phi_error err;
    if (phi_json_parse(body, "body", &json, &err) == PHI_OK)
        message = json_object_get(json_object_get(json, "error"), "message");
    if (!json_is_string(message))
        bench_answer_fail(a, "status %ld: %.*s", status, (int)(body.n < 120 ? body.n : 120),
                          body.data);
    else
        bench_answer_fail(a, "status %ld: %s", status, json_string_value(message));
    json_decref(json);
}

static void finish(struct load *l, struct transfer *t, CURLcode result)
{
    struct bench_answer *a = t->stream.answer;
    long status = 0;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 0 && status != 200)
        refuse(a, status, phi_buf_str(&t->refusal));
    else if (result != CURLE_OK)
        bench_answer_fail(a, "%s%s", t->why[0] ? t->why : curl_easy_strerror(result),
                          status == 200 ? ", in the middle of the stream" : "");
    bench_stream_end(&t->stream);
    curl_multi_remove_handle(l->multi, t->easy);
    curl_easy_cleanup(t->easy);
    t->easy = NULL;
    bench_stream_deinit(&t->stream);
    phi_buf_deinit(&t->refusal);
    l->n_done++;
}

/* --------------------------------------------------------------- all of them */

static void read_ended(struct load *l)
{
    int n_left;
    for (CURLMsg *m = curl_multi_info_read(l->multi, &n_left); m;
         m = curl_multi_info_read(l->multi, &n_left)) {
        struct transfer *t = NULL;
        CURLcode result = m->data.result;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        finish(l, t, result);
    }
}

/* Milliseconds until there is something to begin; answers interrupt the wait. */
static int wait_ms(const struct load *l, bool may_begin)
{
    if (l->n_begun == l->n || !may_begin)
        return 1000;
    double ms = ceil(1000 * (l->requests[l->n_begun].due_s - (phi_clock_s() - l->begin_s)));
    return ms < 0 ? 0 : ms > 1000 ? 1000 : (int)ms;
}

static enum phi_status drive(struct load *l, size_t max_active,
                             void (*progress)(void *context, size_t n_done), void *context,
                             struct phi_error *err)
{
    l->begin_s = phi_clock_s();
    while (l->n_done < l->n) {
        int n_running;
        while (l->n_begun < l->n && l->n_begun - l->n_done < max_active &&
               l->requests[l->n_begun].due_s <= phi_clock_s() - l->begin_s)
            PHI_TRY(begin(l, l->n_begun, err));
        if (curl_multi_perform(l->multi, &n_running) != CURLM_OK)
            return no_memory(err);
        size_t n_before = l->n_done;
        read_ended(l);
        if (progress)
            progress(context, l->n_done);
        if (l->n_done == n_before && l->n_done < l->n) /* else there may be room for the next */
            curl_multi_poll(l->multi, NULL, 0, wait_ms(l, l->n_begun - l->n_done < max_active),
                            NULL);
    }
    return PHI_OK;
}

/* Every request under way has a socket: as many as the system lets us have. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void deinit(struct load *l)
{
    for (size_t i = 0; i < l->n && l->transfers; i++) {
        struct transfer *t = &l->transfers[i];
        if (!t->easy)
            continue;
        curl_multi_remove_handle(l->multi, t->easy);
        curl_easy_cleanup(t->easy);
        bench_stream_deinit(&t->stream);
        phi_buf_deinit(&t->refusal);
    }
    phi_free(l->transfers);
    if (l->multi)
        curl_multi_cleanup(l->multi);
    curl_slist_free_all(l->headers);
    phi_free(l->url);
}

enum phi_status bench_load_run(const struct bench_server *server,
                               const struct bench_request *requests, size_t n, int max_concurrency,
                               struct bench_answer *answers, double *seconds,
                               void (*progress)(void *context, size_t n_done), void *context,
                               struct phi_error *err)
{
    struct load l = {
        .server = server,
        .multi = curl_multi_init(),
        .headers = make_headers(server),
        .url = make_url(server->base_url, server->endpoint),
        .transfers = phi_calloc(n, sizeof *l.transfers),
        .requests = requests,
        .answers = answers,
        .n = n,
    };
    enum phi_status status = PHI_OK;
    raise_file_limit();
    if (!l.multi || !l.headers || !l.url || !l.transfers)
        status = no_memory(err);
    if (status == PHI_OK)
        status =
            drive(&l, max_concurrency > 0 ? (size_t)max_concurrency : n, progress, context, err);
    *seconds = phi_clock_s() - l.begin_s;
    deinit(&l);
    return status;
}

/* --------------------------------------------------------------- GET */

static size_t collect(char *data, size_t size, size_t n, void *context)
{
    struct phi_buf *out = context;
    phi_buf_append(out, data, size * n);
    return out->failed ? 0 : size * n;
}

enum phi_status bench_load_get(const struct bench_server *server, const char *path,
                               struct phi_buf *out, struct phi_error *err)
{
    char *url = make_url(server->base_url, path), why[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = make_headers(server);
    CURL *easy = url && headers ? make_handle(server, url, headers) : NULL;
    enum phi_status status = PHI_OK;
    long code = 0;
    if (!easy) {
        status = no_memory(err);
    } else {
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, collect);
        curl_easy_setopt(easy, CURLOPT_WRITEDATA, out);
        CURLcode result = curl_easy_perform(easy);
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
        if (result != CURLE_OK)
            status =
                phi_fail(err, PHI_ERR_IO, "%s: %s", url, why[0] ? why : curl_easy_strerror(result));
        else if (code != 200)
            status = phi_fail(err, PHI_ERR_IO, "%s: status %ld", url, code);
        curl_easy_cleanup(easy);
    }
    curl_slist_free_all(headers);
    phi_free(url);
    return status;
}
