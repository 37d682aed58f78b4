/* stop.c: see stop.h. */
#include "engine/stop.h"
#include "base/alloc.h"
#include "base/utf8.h"

static void fill_failure(struct phi_stop_string *s)
{
    uint32_t k = 0;
    s->failure[0] = 0;
    for (size_t i = 1; i < s->n; i++) {
        while (k > 0 && s->text[i] != s->text[k])
            k = s->failure[k - 1];
        k += s->text[i] == s->text[k];
        s->failure[i] = k;
    }
}

static enum phi_status add_string(struct phi_stop_set *set, struct phi_text text,
                                  struct phi_error *err)
{
    if (text.n == 0)
        return phi_fail(err, PHI_ERR_INVALID, "stop cannot contain an empty string.");
    if (text.n > UINT32_MAX || !phi_utf8_valid((struct phi_str){text.data, text.n}))
        return phi_fail(err, PHI_ERR_INVALID, "stop[%zu] is not valid UTF-8.", set->n_strings);
    struct phi_stop_string *s = &set->strings[set->n_strings++];
    s->n = text.n;
    s->text = phi_alloc(text.n, 1);
    s->failure = phi_alloc(text.n, sizeof *s->failure);
    if (!s->text || !s->failure)
        return phi_fail_memory(err, "a stop string", text.n);
    memcpy(s->text, text.data, text.n);
    fill_failure(s);
    if (s->n > set->longest)
        set->longest = s->n;
    return PHI_OK;
}

enum phi_status phi_stop_set_init(struct phi_stop_set *set, const struct phi_text *strings,
                                  size_t n_strings, struct phi_error *err)
{
    *set = (struct phi_stop_set){0};
    if (n_strings == 0)
        return PHI_OK;
    set->strings = phi_calloc(n_strings, sizeof *set->strings);
    if (!set->strings)
        return phi_fail_memory(err, "the stop strings", n_strings * sizeof *set->strings);
    for (size_t i = 0; i < n_strings; i++) {
        enum phi_status status = add_string(set, strings[i], err);
        if (status != PHI_OK) {
            phi_stop_set_deinit(set);
            return status;
        }
    }
    return PHI_OK;
}

void phi_stop_set_deinit(struct phi_stop_set *set)
{
    for (size_t i = 0; i < set->n_strings; i++) {
        phi_free(set->strings[i].text);
        phi_free(set->strings[i].failure);
    }
    phi_free(set->strings);
    *set = (struct phi_stop_set){0};
}

enum phi_status phi_stop_matcher_init(struct phi_stop_matcher *m, const struct phi_stop_set *set,
                                      bool include, struct phi_error *err)
{
    *m = (struct phi_stop_matcher){.set = set, .include = include};
    m->states = phi_calloc(set->n_strings, sizeof *m->states);
    if (!m->states)
        return phi_fail_memory(err, "stop strings", set->n_strings * sizeof *m->states);
    return PHI_OK;
}

void phi_stop_matcher_deinit(struct phi_stop_matcher *m)
{
    phi_free(m->states);
    phi_buf_deinit(&m->held);
    *m = (struct phi_stop_matcher){0};
}

/* Moves one automaton by one byte; true when the string is complete. */
static bool step(const struct phi_stop_string *s, uint32_t *state, char c)
{
    uint32_t k = *state;
    if (k == s->n)
        k = s->failure[k - 1];
    while (k > 0 && s->text[k] != c)
        k = s->failure[k - 1];
    *state = k + (s->text[k] == c);
    return *state == s->n;
}

/* Follows one byte in every automaton. Returns the longest string that is complete, or -1. */
static int step_all(struct phi_stop_matcher *m, char c)
{
    int best = -1;
    for (size_t i = 0; i < m->set->n_strings; i++) {
        const struct phi_stop_string *s = &m->set->strings[i];
        if (step(s, &m->states[i], c) && (best < 0 || s->n > m->set->strings[best].n))
            best = (int)i;
    }
    return best;
}

/* The length of the text's end that begins some stop string. */
static size_t n_to_hold(const struct phi_stop_matcher *m)
{
    size_t most = 0;
    for (size_t i = 0; i < m->set->n_strings; i++) {
        const struct phi_stop_string *s = &m->set->strings[i];
        size_t n = m->states[i] == s->n ? s->failure[s->n - 1] : m->states[i];
        if (n > most)
            most = n;
    }
    return most;
}

static void release(struct phi_stop_matcher *m, size_t n, struct phi_buf *out)
{
    if (out)
        phi_buf_append(out, m->held.data, n);
    phi_buf_remove_front(&m->held, n);
}

int phi_stop_matcher_push(struct phi_stop_matcher *m, struct phi_str piece, bool armed,
                          struct phi_buf *out)
{
    size_t before = m->held.n;
    if (piece.n == 0)
        return -1;
    phi_buf_append_str(&m->held, piece);
    if (m->held.failed)
        return -1;
    for (size_t i = 0; i < piece.n; i++) {
        int match = step_all(m, piece.data[i]);
        if (match >= 0 && armed) {
            size_t end = before + i + 1;
            release(m, m->include ? end : end - m->set->strings[match].n, out);
            phi_buf_clear(&m->held);
            return match;
        }
    }
    release(m, m->held.n - (m->include ? 0 : n_to_hold(m)), out);
    return -1;
}

void phi_stop_matcher_finish(struct phi_stop_matcher *m, struct phi_buf *out)
{
    release(m, m->held.n, out);
}
