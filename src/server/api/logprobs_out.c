/* logprobs_out.c: see logprobs_out.h. */
#include "server/api/logprobs_out.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>

static const double LOGPROB_FLOOR = -9999; /* JSON has no -infinity; vLLM shows this instead */

static void write_logprob(struct phi_out *o, const char *key, float logprob)
{
    phi_out_real(o, key, logprob > LOGPROB_FLOOR ? (double)logprob : LOGPROB_FLOOR);
}

/* Row i. NULL when it is all padding. */
static const struct phi_logprob *row_of(const struct phi_scored *scored, size_t i)
{
    const struct phi_logprob *row = scored->rows + i * scored->n_logprobs;
    return row[0].token >= 0 ? row : NULL;
}

/* Whether entry j is one of its own: not padding, and not the token itself once more. */
static bool is_alternative(const struct phi_logprob *row, size_t j)
{
    return row[j].token >= 0 && row[j].token != row[0].token;
}

/* ---------------------------------------------------------------- texts of tokens */

/* What one token is shown as. */
struct shown {
    struct phi_spelling *spelling;
    bool as_ids;
    struct phi_buf text, bytes;
    bool failed;
};

static void show(struct shown *s, int32_t id, bool instead)
{
    if (instead)
        phi_spelling_instead(s->spelling, id, &s->text, &s->bytes);
    else
        phi_spelling_take(s->spelling, id, &s->text, &s->bytes);
    s->failed |= s->text.failed;
    if (!s->as_ids)
        return;
    phi_buf_clear(&s->text);
    phi_buf_printf(&s->text, "token_id:%d", (int)id);
    s->failed |= s->text.failed;
}

static void shown_deinit(struct shown *s, struct phi_out *o)
{
    o->buf->failed |= s->failed;
    phi_buf_deinit(&s->text);
    phi_buf_deinit(&s->bytes);
}

/* ---------------------------------------------------------------- keys that are there already */

/* Different tokens may have the same text, and a JSON object has each key once. Open addressing
 * over the texts of one row. */
struct key_set {
    struct phi_buf texts; /* all keys of the row, one after the other */
    struct {
        size_t begin, n;
        bool used;
    } * slots;
    size_t n_slots; /* a power of two, at least twice the keys of a row */
};

static bool key_set_init(struct key_set *k, size_t n_keys)
{
    for (k->n_slots = 4; k->n_slots < 2 * n_keys;)
        k->n_slots *= 2;
    k->slots = phi_alloc(k->n_slots, sizeof *k->slots);
    return k->slots != NULL;
}

static void key_set_clear(struct key_set *k)
{
    phi_buf_clear(&k->texts);
    memset(k->slots, 0, k->n_slots * sizeof *k->slots);
}

/* False when it is there already. */
static bool key_set_add(struct key_set *k, struct phi_str text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    if (k->texts.failed)
        return true;
    for (size_t i = 0; i < text.n; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * 1099511628211u;
    for (uint64_t at = hash;; at++) {
        size_t slot = (size_t)at & (k->n_slots - 1);
        if (!k->slots[slot].used) {
            k->slots[slot].used = true;
            k->slots[slot].begin = k->texts.n;
            k->slots[slot].n = text.n;
            phi_buf_append_str(&k->texts, text);
            return true;
        }
        struct phi_str there = {k->texts.data + k->slots[slot].begin, k->slots[slot].n};
        if (phi_str_eq(there, text))
            return false;
    }
}

/* ---------------------------------------------------------------- completions */

/* {"text": logprob, ...} of one row; s->text is the token's own. */
static void write_top(struct phi_out *o, const struct phi_logprob *row, size_t n, struct shown *s,
                      struct key_set *keys)
{
    key_set_clear(keys);
    phi_out_open(o, NULL, '{');
    for (size_t j = 0; j < n; j++) {
        if (j > 0 && !is_alternative(row, j))
            continue;
        if (j > 0)
            show(s, row[j].token, true);
        if (!key_set_add(keys, phi_buf_str(&s->text)))
            continue;
        phi_out_key(o, phi_buf_str(&s->text));
        write_logprob(o, NULL, row[j].logprob);
    }
    phi_out_close(o, '}');
    s->failed |= keys->texts.failed;
}

static void write_token(struct phi_out out[4], const struct phi_scored *part, size_t i,
                        struct shown *s, struct key_set *keys)
{
    const struct phi_logprob *row = row_of(part, i);
    phi_out_int(&out[0], NULL, (int64_t)s->spelling->n_characters);
    show(s, part->tokens[i], false);
    phi_out_text(&out[2], NULL, phi_buf_str(&s->text));
    if (row) {
        write_logprob(&out[1], NULL, row[0].logprob);
        write_top(&out[3], row, part->n_logprobs, s, keys);
    } else {
        phi_out_null(&out[1], NULL);
        phi_out_null(&out[3], NULL);
    }
}

void phi_logprobs_write_lists(struct phi_out *o, const char *key, struct phi_spelling *s,
                              const struct phi_scored *parts, size_t n_parts, bool as_ids)
{
    static const char *const names[4] = {"text_offset", "token_logprobs", "tokens", "top_logprobs"};
    struct phi_buf lists[4] = {{0}};
    struct phi_out out[4];
    struct shown shown = {.spelling = s, .as_ids = as_ids};
    struct key_set keys = {0};
    size_t n_keys = 0;
    for (int i = 0; i < 4; i++)
        out[i] = (struct phi_out){.buf = &lists[i]};
    for (size_t p = 0; p < n_parts; p++)
        n_keys = parts[p].n_logprobs > n_keys ? parts[p].n_logprobs : n_keys;
    shown.failed = !key_set_init(&keys, n_keys);
    for (size_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < parts[p].n && !shown.failed; i++)
            write_token(out, &parts[p], i, &shown, &keys);
    phi_out_open(o, key, '{');
    for (int i = 0; i < 4; i++) {
        phi_out_open(o, names[i], '[');
        phi_buf_append_str(o->buf, phi_buf_str(&lists[i]));
        phi_out_close(o, ']');
        shown.failed |= lists[i].failed;
        phi_buf_deinit(&lists[i]);
    }
    phi_out_close(o, '}');
    phi_buf_deinit(&keys.texts);
    phi_free(keys.slots);
    shown_deinit(&shown, o);
}

/* ---------------------------------------------------------------- chat */

/* The members that an entry and its alternatives share. */
static void write_entry(struct phi_out *o, const struct shown *s, float logprob)
{
    phi_out_text(o, "token", phi_buf_str(&s->text));
    write_logprob(o, "logprob", logprob);
    phi_out_open(o, "bytes", '[');
    for (size_t i = 0; i < s->bytes.n; i++)
        phi_out_int(o, NULL, (unsigned char)s->bytes.data[i]);
    phi_out_close(o, ']');
}

static void write_content(struct phi_out *o, const struct phi_scored *scored, size_t i,
                          size_t n_top, struct shown *s)
{
    const struct phi_logprob *row = scored->rows + i * scored->n_logprobs;
    phi_out_open(o, NULL, '{');
    show(s, scored->tokens[i], false);
    write_entry(o, s, row[0].logprob);
    phi_out_open(o, "top_logprobs", '[');
    for (size_t j = 0; j < scored->n_logprobs && n_top > 0; j++) {
        if (j > 0 && !is_alternative(row, j))
            continue;
        if (j > 0)
            show(s, row[j].token, true);
        phi_out_open(o, NULL, '{');
        write_entry(o, s, row[j].logprob);
        phi_out_close(o, '}');
        n_top--;
    }
    phi_out_close(o, ']');
    phi_out_close(o, '}');
}

void phi_logprobs_write_content(struct phi_out *o, const char *key, struct phi_spelling *s,
                                const struct phi_scored *scored, size_t n_top, bool as_ids)
{
    struct shown shown = {.spelling = s, .as_ids = as_ids};
    phi_out_open(o, key, '{');
    phi_out_open(o, "content", '[');
    for (size_t i = 0; i < scored->n && !shown.failed; i++)
        write_content(o, scored, i, n_top, &shown);
    phi_out_close(o, ']');
    phi_out_close(o, '}');
    shown_deinit(&shown, o);
}

/* ---------------------------------------------------------------- prompts */

static void write_prompt_row(struct phi_out *o, const struct phi_logprob *row, size_t n,
                             struct shown *s)
{
    phi_out_open(o, NULL, '{');
    for (size_t j = 0; j < n; j++) {
        char id[16];
        if (j > 0 && !is_alternative(row, j))
            continue;
        if (j > 0)
            show(s, row[j].token, true);
        snprintf(id, sizeof id, "%d", (int)row[j].token);
        phi_out_open(o, id, '{');
        write_logprob(o, "logprob", row[j].logprob);
        phi_out_int(o, "rank", row[j].rank);
        phi_out_text(o, "decoded_token", phi_buf_str(&s->text));
        phi_out_close(o, '}');
    }
    phi_out_close(o, '}');
}

void phi_logprobs_write_prompt(struct phi_out *o, const char *key, const struct phi_model *m,
                               const struct phi_scored *scored)
{
    struct phi_spelling spelling = {.model = m};
    struct shown shown = {.spelling = &spelling};
    phi_out_open(o, key, '[');
    for (size_t i = 0; i < scored->n && !shown.failed; i++) {
        const struct phi_logprob *row = row_of(scored, i);
        show(&shown, scored->tokens[i], false);
        if (row)
            write_prompt_row(o, row, scored->n_logprobs, &shown);
        else
            phi_out_null(o, NULL);
    }
    phi_out_close(o, ']');
    shown_deinit(&shown, o);
    phi_spelling_deinit(&spelling);
}
