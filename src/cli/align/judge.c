/* judge.c: whether two answers agree, and where they part; see align.h. */
#include "cli/align/align.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdlib.h>

static bool agrees(const struct align_case *c, const struct align_limits *l)
{
    size_t longer = phi_size_max(c->here.ids.n, c->there.ids.n);
    size_t distance = longer - phi_size_min(c->here.ids.n, c->there.ids.n);
    if (!c->same_prompt ||
        (l->max_length_difference >= 0 && distance > (size_t)l->max_length_difference))
        return false;
    switch (c->judge) {
    case ALIGN_STRICT: {
        size_t window = phi_size_min((size_t)l->window, longer);
        return phi_size_min(c->alike.n_equal, window) >= phi_size_min((size_t)l->min_equal, window);
    }
    case ALIGN_RELAXED:
        return c->alike.n_equal >= phi_size_min((size_t)l->min_prefix, longer) &&
               (c->alike.edit >= l->min_edit || c->alike.rouge_l >= l->min_rouge);
    default:
        return distance == 0 && c->alike.n_equal == longer;
    }
}

enum phi_status align_judge(const struct align *a, struct align_case *c, struct phi_error *err)
{
    const struct phi_ids *here = &c->here.prompt, *there = &c->there.prompt;
    PHI_TRY(similarity_of(&c->here.ids, &c->there.ids, &c->alike, err));
    c->judge = c->is_long ? a->long_judge : a->short_judge;
    c->same_prompt =
        there->n == 0 || (there->n == here->n && similarity_prefix(here, there) == here->n);
    c->pass = agrees(c, &a->limits);
    return PHI_OK;
}

size_t align_n_failed(const struct align *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_cases; i++)
        n += !a->cases[i].pass;
    return n;
}

bool align_passes(const struct align *a)
{
    return align_n_failed(a) == 0;
}

/* ---------------------------------------------------------------- words */

bool align_logprob(const struct align_answer *answer, size_t place, int32_t token, double *out)
{
    if (place >= answer->ids.n || place >= answer->n_candidates)
        return false;
    const struct align_candidate *row = answer->candidates + place * (1 + ALIGN_BEST);
    for (int i = 0; i <= ALIGN_BEST; i++)
        if (row[i].token == token) {
            *out = row[i].logprob;
            return true;
        }
    return false;
}

/* 17 "word" */
static void tell_token(const struct align *a, int32_t token, struct phi_buf *out)
{
    char *spelled = NULL;
    size_t n = 0;
    phi_buf_printf(out, "%" PRId32, token);
    if (phi_detokenize(a->m, &token, 1, false, &spelled, &n, NULL) == PHI_OK) {
        phi_buf_append_c(out, " \"");
        for (size_t i = 0; i < n; i++) {
            if (spelled[i] == '\n')
                phi_buf_append_c(out, "\\n");
            else if ((unsigned char)spelled[i] >= 32 && spelled[i] != 127)
                phi_buf_append_char(out, spelled[i]);
        }
        phi_buf_append_char(out, '"');
    }
    phi_mem_free(spelled);
}

static void tell_logprob(const struct align_answer *answer, size_t place, int32_t token,
                         struct phi_buf *out)
{
    double logprob;
    if (align_logprob(answer, place, token, &logprob))
        phi_buf_printf(out, "%.4f", logprob);
    else
        phi_buf_append_c(out,
                         answer->candidates && place < answer->ids.n ? "beyond the best" : "?");
}

static void tell_side(const struct align *a, const struct align_case *c, const char *name,
                      const struct align_answer *side, size_t place, struct phi_buf *out)
{
    phi_buf_printf(out, "%s ", name);
    if (place >= side->ids.n) {
        phi_buf_append_c(out, "it has ended");
        return;
    }
    int32_t token = side->ids.data[place];
    tell_token(a, token, out);
    phi_buf_append_c(out, " (logprob here ");
    tell_logprob(&c->here, place, token, out);
    phi_buf_append_c(out, ", there ");
    tell_logprob(&c->there, place, token, out);
    phi_buf_append_char(out, ')');
}

static void tell_prompts(const struct align *a, const struct align_case *c, struct phi_buf *out)
{
    const struct phi_ids *here = &c->here.prompt, *there = &c->there.prompt;
    size_t at = similarity_prefix(here, there);
    phi_buf_printf(out,
                   "the server read another prompt (another template or tokenizer): %zu tokens "
                   "here, %zu there; token %zu is ",
                   here->n, there->n, at);
    if (at < here->n)
        tell_token(a, here->data[at], out);
    else
        phi_buf_append_c(out, "none");
    phi_buf_append_c(out, " here, there ");
    if (at < there->n)
        tell_token(a, there->data[at], out);
    else
        phi_buf_append_c(out, "none");
}

void align_tell_parting(const struct align *a, const struct align_case *c, struct phi_buf *out)
{
    size_t at = c->alike.n_equal;
    bool parts = at < c->here.ids.n || at < c->there.ids.n;
    if (!c->same_prompt)
        tell_prompts(a, c, out);
    if (!parts)
        return;
    phi_buf_printf(out, "%sthe answers part at token %zu: ", c->same_prompt ? "" : "; ", at);
    tell_side(a, c, "here", &c->here, at, out);
    phi_buf_append_c(out, "; ");
    tell_side(a, c, "there", &c->there, at, out);
}
