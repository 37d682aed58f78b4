/* batch_run.c: requests through the API of this process, answers out in order; see batch.h. */
#include "cli/batch/batch.h"
#include "base/alloc.h"
#include "base/size.h"
#include "formats/json.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/random.h>

enum { POLL_MS = 200, MIN_WINDOW = 512 };

/* A request between its reading and its writing. */
struct entry {
    size_t number; /* in the input, from 1 */
    json_t *id;    /* custom_id, or NULL */
    bool done;
    int status;
    struct phi_buf answer;  /* the API's body */
    struct phi_buf refusal; /* our own words instead */
};

/* Entries in the order of the input: a ring. */
struct window {
    struct entry *entries; /* [capacity] */
    size_t capacity, first, n, n_in_work;
};

static struct entry *entry_at(struct window *w, size_t i)
{
    return &w->entries[(w->first + i) % w->capacity];
}

static void entry_deinit(struct entry *e)
{
    json_decref(e->id);
    phi_buf_deinit(&e->answer);
    phi_buf_deinit(&e->refusal);
}

/* ---------------------------------------------------------------- in */

static const char *const urls[] = {"/v1/chat/completions", "/v1/completions"};

static const char *find_url(const char *url)
{
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        if (url && strcmp(url, urls[i]) == 0)
            return urls[i];
    return NULL;
}

/* What is wrong with a request, into e->refusal; nothing: it can be asked. */
static void check_request(struct entry *e, const json_t *request)
{
    const char *method = json_string_value(json_object_get(request, "method"));
    const char *url = json_string_value(json_object_get(request, "url"));
    const json_t *body = json_object_get(request, "body");
    if (!json_is_object(request))
        phi_buf_printf(&e->refusal, "request %zu: expected a JSON object", e->number);
    else if (!e->id)
        phi_buf_printf(&e->refusal, "request %zu: custom_id: expected a string", e->number);
    else if (!method || strcmp(method, "POST") != 0)
        phi_buf_printf(&e->refusal, "method: expected \"POST\"");
    else if (!find_url(url))
        phi_buf_printf(&e->refusal, "URL %.200s was used. Supported endpoints: %s, %s",
                       url ? url : "(none)", urls[0], urls[1]);
    else if (!json_is_object(body))
        phi_buf_printf(&e->refusal, "body: expected an object");
    else if (json_is_true(json_object_get(body, "stream")))
        phi_buf_printf(&e->refusal, "Request must not be sent in stream mode");
}

/* Begins the request in b->line, or refuses it. */
static enum phi_status begin(struct batch *b, struct window *w, struct phi_local *local,
                             struct phi_error *err)
{
    char where[64];
    struct phi_error wrong;
    json_t *request = NULL;
    struct entry *e = entry_at(w, w->n++);
    *e = (struct entry){.number = b->n_out + w->n};
    if (b->line.failed)
        return phi_fail_memory(err, "a request", b->line.n);
    snprintf(where, sizeof where, "request %zu", e->number);
    if (phi_json_parse(phi_buf_str(&b->line), where, &request, &wrong) != PHI_OK) {
        phi_buf_append_c(&e->refusal, wrong.text);
    } else {
        json_t *id = json_object_get(request, "custom_id");
        e->id = json_is_string(id) ? json_incref(id) : NULL;
        check_request(e, request);
    }
    enum phi_status status = PHI_OK;
    e->done = e->refusal.n > 0 || e->refusal.failed;
    if (!e->done) {
        struct phi_buf body = {0};
        const char *url = find_url(json_string_value(json_object_get(request, "url")));
        phi_json_dump(json_object_get(request, "body"), JSON_COMPACT, &body);
        status = body.failed ? phi_fail_memory(err, "a request", b->line.n)
                             : phi_local_post(local, url, phi_buf_str(&body), e, err);
        phi_buf_deinit(&body);
        w->n_in_work += status == PHI_OK;
    }
    json_decref(request);
    return status;
}

/* ---------------------------------------------------------------- out */

static void append_random_id(struct phi_buf *out, const char *prefix)
{
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof random, 0) != sizeof random)
        random[0] = (uintptr_t)out; /* only its being unlike others matters */
    phi_buf_printf(out, "\"%s%016" PRIx64 "%016" PRIx64 "\"", prefix, random[0], random[1]);
}

static void append_json(struct phi_buf *out, const json_t *value)
{
    if (value)
        phi_json_dump(value, JSON_ENCODE_ANY, out);
    else
        phi_buf_append_c(out, "null");
}

/* The line of an entry that is done. */
static void write_line(const struct entry *e, struct phi_buf *out)
{
    bool refused = e->refusal.n > 0, good = !refused && e->status == 200;
    out->failed = out->failed || e->refusal.failed || e->answer.failed;
    phi_buf_append_c(out, "{\"id\":");
    append_random_id(out, "vllm-");
    phi_buf_append_c(out, ",\"custom_id\":");
    append_json(out, e->id);
    phi_buf_printf(out,
                   ",\"response\":{\"status_code\":%d,\"request_id\":", refused ? 400 : e->status);
    append_random_id(out, "vllm-batch-");
    phi_buf_append_c(out, ",\"body\":");
    phi_buf_append_str(out, good ? phi_buf_str(&e->answer) : PHI_STR("null"));
    phi_buf_append_c(out, "},\"error\":");
    if (refused) {
        json_t *text = json_stringn(e->refusal.data, e->refusal.n);
        append_json(out, text);
        json_decref(text);
    } else {
        phi_buf_append_str(out, good ? PHI_STR("null") : phi_buf_str(&e->answer));
    }
    phi_buf_append_c(out, "}\n");
}

/* Writes the entries at the window's beginning that are done. */
static enum phi_status write_done(struct batch *b, struct window *w, struct phi_error *err)
{
    for (; w->n > 0 && entry_at(w, 0)->done; w->n--, w->first = (w->first + 1) % w->capacity) {
        struct entry *e = entry_at(w, 0);
        struct phi_buf line = {0};
        write_line(e, &line);
        bool failed = line.failed;
        size_t n = line.n;
        bool written = !failed && fwrite(line.data, 1, n, b->out) == n;
        b->n_refused += e->refusal.n > 0 || e->status != 200;
        phi_buf_deinit(&line);
        if (failed)
            return phi_fail_memory(err, "an answer", n);
        if (!written || fflush(b->out) != 0)
            return phi_fail(err, PHI_ERR_IO, "%s: cannot write: %s", b->out_path, strerror(errno));
        b->n_out++;
        entry_deinit(e);
        *e = (struct entry){0};
    }
    return PHI_OK;
}

/* ---------------------------------------------------------------- all of it */

static void take_answer(struct window *w, struct phi_local_answer *answer)
{
    struct entry *e = answer->tag;
    e->status = answer->status;
    e->answer = answer->body;
    e->done = true;
    w->n_in_work--;
}

static enum phi_status run(struct batch *b, struct window *w, struct phi_local *local,
                           size_t n_in_work, struct cli_progress *progress, struct phi_error *err)
{
    struct phi_local_answer answer;
    bool more = true;
    while (cli_interrupts() == 0) {
        while (more && w->n_in_work < n_in_work && w->n < w->capacity) {
            more = batch_read(b, b->in);
            if (more)
                PHI_TRY(begin(b, w, local, err));
        }
        PHI_TRY(write_done(b, w, err));
        cli_progress_show(progress, "requests", b->n_out, b->n_lines);
        if (w->n_in_work == 0 && w->n == 0 && !more)
            break;
        if (phi_local_next(local, &answer, POLL_MS))
            take_answer(w, &answer);
    }
    return PHI_OK;
}

enum phi_status batch_run(struct batch *b, struct phi_local *local, size_t n_in_work,
                          struct phi_error *err)
{
    struct cli_progress progress;
    struct window w = {.capacity = phi_size_max(4 * n_in_work, MIN_WINDOW)};
    w.entries = phi_calloc(w.capacity, sizeof *w.entries);
    if (!w.entries)
        return phi_fail_memory(err, "requests", w.capacity * sizeof *w.entries);
    cli_progress_init(&progress);
    enum phi_status status = run(b, &w, local, n_in_work, &progress, err);
    cli_progress_clear(&progress);
    for (size_t i = 0; i < w.n; i++)
        entry_deinit(entry_at(&w, i));
    phi_free(w.entries);
    return status;
}
