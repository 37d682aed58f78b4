/* align_report.c: what came out, as a table, as JSON and as a page. */
#include "cli/align/align.h"
#include "cli/json_text.h"
#include "cli/page.h"
#include "formats/json.h"

#include <stdio.h>

static const char *const judge_names[] = {"auto", "exact", "strict", "relaxed"};
static const char *const kind_names[] = {"text", "ids", "chat"};

static void verdict(const struct align *a, char out[256])
{
    size_t n_failed = align_n_failed(a);
    if (n_failed == 0)
        snprintf(out, 256, "all %zu answers agree with the server's", a->n_cases);
    else
        snprintf(out, 256, "%zu of %zu answers do not agree with the server's", n_failed,
                 a->n_cases);
}

/* ---------------------------------------------------------------- the table */

static void print_parting(const struct align *a, size_t i, struct cli_out *out)
{
    struct phi_buf text = {0};
    align_tell_parting(a, &a->cases[i], &text);
    if (text.n > 0) {
        phi_buf_printf(&out->buf, "%zu: ", i);
        phi_buf_append_str(&out->buf, phi_buf_str(&text));
        phi_buf_append_char(&out->buf, '\n');
    }
    phi_buf_deinit(&text);
}

void align_print_table(const struct align *a, struct cli_out *out)
{
    char text[256];
    phi_buf_printf(&out->buf,
                   "model   %s\nserver  %s (%s)\n\n%4s %-5s %-7s %7s %6s %6s %6s %6s %7s  %s\n",
                   a->model, a->client->base.data, a->server_model, "", "kind", "judged", "prompt",
                   "here", "there", "equal", "edit", "rouge-l", "");
    for (size_t i = 0; i < a->n_cases; i++) {
        const struct align_case *c = &a->cases[i];
        phi_buf_printf(&out->buf, "%4zu %-5s %-7s %7zu %6zu %6zu %6zu %6.3f %7.3f  %s\n", i,
                       c->is_long ? "long" : kind_names[c->kind], judge_names[c->judge],
                       c->here.prompt.n, c->here.ids.n, c->there.ids.n, c->alike.n_equal,
                       c->alike.edit, c->alike.rouge_l, c->pass ? "pass" : "FAIL");
    }
    phi_buf_append_char(&out->buf, '\n');
    for (size_t i = 0; i < a->n_cases; i++)
        print_parting(a, i, out);
    verdict(a, text);
    phi_buf_printf(&out->buf, "%s: %s\n", align_passes(a) ? "PASS" : "FAIL", text);
}

/* ---------------------------------------------------------------- JSON */

static json_t *ids_json(const struct phi_ids *ids)
{
    json_t *array = json_array();
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(array, json_integer(ids->data[i]));
    return array;
}

/* What both sides gave to one side's token where the answers part; null where there is none. */
static json_t *candidate_json(const struct align_case *c, const struct align_answer *side)
{
    size_t at = c->alike.n_equal;
    double here, there;
    if (at >= side->ids.n)
        return json_null();
    int32_t token = side->ids.data[at];
    bool has_here = align_logprob(&c->here, at, token, &here);
    bool has_there = align_logprob(&c->there, at, token, &there);
    return json_pack("{s:i, s:o, s:o}", "token", (int)token, "logprob_here",
                     has_here ? json_real(here) : json_null(), "logprob_there",
                     has_there ? json_real(there) : json_null());
}

static json_t *parting_json(const struct align *a, const struct align_case *c)
{
    struct phi_buf text = {0};
    align_tell_parting(a, c, &text);
    json_t *object = json_null();
    if (text.n > 0) {
        json_t *words = json_stringn(text.data, text.n); /* NULL: a part of a character */
        object =
            json_pack("{s:o, s:I, s:b, s:o, s:o}", "text", words ? words : json_null(), "token",
                      (json_int_t)c->alike.n_equal, "same_prompt", c->same_prompt, "here",
                      candidate_json(c, &c->here), "there", candidate_json(c, &c->there));
    }
    phi_buf_deinit(&text);
    return object;
}

static json_t *case_json(const struct align *a, const struct align_case *c)
{
    return json_pack(
        "{s:b, s:s, s:b, s:s, s:O, s:I, s:I, s:f, s:f, s:I, s:o, s:o, s:o, s:o, s:o}", "pass",
        c->pass, "kind", kind_names[c->kind], "long", c->is_long, "judged", judge_names[c->judge],
        "prompt", c->prompt, "n_prompt_tokens", (json_int_t)c->here.prompt.n, "n_equal",
        (json_int_t)c->alike.n_equal, "edit", c->alike.edit, "rouge_l", c->alike.rouge_l,
        "length_difference", (json_int_t)c->there.ids.n - (json_int_t)c->here.ids.n, "prompt_here",
        ids_json(&c->here.prompt), "prompt_there", ids_json(&c->there.prompt), "here",
        ids_json(&c->here.ids), "there", ids_json(&c->there.ids), "parting", parting_json(a, c));
}

void align_print_json(const struct align *a, struct cli_out *out)
{
    json_t *cases = json_array();
    for (size_t i = 0; i < a->n_cases; i++)
        json_array_append_new(cases, case_json(a, &a->cases[i]));
    json_t *object =
        json_pack("{s:b, s:s, s:s, s:s, s:o}", "pass", align_passes(a), "model", a->model, "server",
                  a->client->base.data, "server_model", a->server_model, "answers", cases);
    cli_out_json(out, object, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
}

/* ---------------------------------------------------------------- the page */

enum { MAX_PROMPT_SHOWN = 300 };

static void append_cut(struct phi_str text, struct phi_buf *out)
{
    bool cut = text.n > MAX_PROMPT_SHOWN;
    if (cut)
        text.n = MAX_PROMPT_SHOWN;
    while (cut && text.n > 0 && ((unsigned char)text.data[text.n] & 0xc0) == 0x80)
        text.n--; /* not inside a character */
    page_text(out, text);
    phi_buf_append_c(out, cut ? " ..." : "");
}

static struct phi_str string_of(const json_t *json)
{
    return (struct phi_str){json_string_value(json), json_string_length(json)};
}

/* A text as it is, the messages of a chat with their roles, anything else as JSON. */
static void append_prompt(const struct align_case *c, struct phi_buf *out)
{
    size_t i;
    const json_t *message;
    if (json_is_string(c->prompt)) {
        append_cut(string_of(c->prompt), out);
        return;
    }
    if (c->kind != ALIGN_CHAT) {
        struct phi_buf text = {0};
        phi_json_dump(c->prompt, JSON_COMPACT, &text);
        append_cut(phi_buf_str(&text), out);
        out->failed = out->failed || text.failed;
        phi_buf_deinit(&text);
        return;
    }
    json_array_foreach(c->prompt, i, message)
    {
        phi_buf_append_c(out, i > 0 ? "<br><span class=\"note\">" : "<span class=\"note\">");
        page_text(out, string_of(json_object_get(message, "role")));
        phi_buf_append_c(out, "</span> ");
        append_cut(string_of(json_object_get(message, "content")), out);
    }
}

/* An answer's text, and what follows the parting marked. */
static void append_answer(const struct align *a, const struct align_case *c,
                          const struct align_answer *side, struct phi_buf *out)
{
    size_t at = c->alike.n_equal < side->ids.n ? c->alike.n_equal : side->ids.n;
    for (int part = 0; part < 2; part++) {
        char *text = NULL;
        size_t n = 0, first = part == 0 ? 0 : at, end = part == 0 ? at : side->ids.n;
        if (end > first && phi_detokenize(a->m, side->ids.data + first, end - first, false, &text,
                                          &n, NULL) == PHI_OK) {
            phi_buf_append_c(out, part == 1 ? "<mark>" : "");
            page_text(out, (struct phi_str){text, n});
            phi_buf_append_c(out, part == 1 ? "</mark>" : "");
        }
        phi_mem_free(text);
    }
}

static void append_row(const char *name, struct phi_buf *out)
{
    phi_buf_printf(out, "<tr><th class=\"text\">%s</th><td class=\"text\">", name);
}

/* One line to open: those that do not agree are open. Equal answers are told once. */
static void append_case(const struct align *a, size_t i, struct phi_buf *out)
{
    const struct align_case *c = &a->cases[i];
    bool same = c->alike.n_equal == c->here.ids.n && c->here.ids.n == c->there.ids.n;
    struct phi_buf parting = {0};
    phi_buf_printf(out, "<details%s><summary><span class=\"%s\">%s</span> %zu: %s, judged %s: ",
                   c->pass ? "" : " open", c->pass ? "good" : "bad", c->pass ? "pass" : "FAIL", i,
                   c->is_long ? "long" : kind_names[c->kind], judge_names[c->judge]);
    if (same)
        phi_buf_printf(out, "all %zu tokens equal", c->here.ids.n);
    else
        phi_buf_printf(out, "%zu tokens here, %zu there, the first %zu equal", c->here.ids.n,
                       c->there.ids.n, c->alike.n_equal);
    phi_buf_append_c(out, "</summary>\n<div class=\"wide\"><table>\n");
    append_row("prompt", out);
    append_prompt(c, out);
    phi_buf_append_c(out, "</td></tr>\n");
    append_row(same ? "both" : "here", out);
    append_answer(a, c, &c->here, out);
    if (!same) {
        phi_buf_append_c(out, "</td></tr>\n");
        append_row("there", out);
        append_answer(a, c, &c->there, out);
    }
    phi_buf_printf(out, "</td></tr>\n</table></div>\n<p>");
    align_tell_parting(a, c, &parting);
    page_text(out, phi_buf_str(&parting));
    phi_buf_printf(out, "%s%zu prompt tokens; edit %.3f, ROUGE-L %.3f.</p></details>\n",
                   parting.n > 0 ? "<br>" : "", c->here.prompt.n, c->alike.edit, c->alike.rouge_l);
    phi_buf_deinit(&parting);
}

enum phi_status align_write_page(const struct align *a, const char *path, struct phi_error *err)
{
    char text[256];
    struct phi_buf page = {0};
    verdict(a, text);
    page_begin(&page, "Answers here and of a server", align_passes(a), text);
    phi_buf_append_c(&page, "<p>Model: ");
    page_text(&page, phi_str_from(a->model));
    phi_buf_append_c(&page, "<br>Server: ");
    page_text(&page, phi_buf_str(&a->client->base));
    phi_buf_append_c(&page, " (");
    page_text(&page, phi_str_from(a->server_model));
    phi_buf_append_c(&page, ")</p>\n");
    for (size_t i = 0; i < a->n_cases; i++)
        append_case(a, i, &page);
    page_end(&page);
    enum phi_status status = page_write(path, &page, err);
    phi_buf_deinit(&page);
    return status;
}
