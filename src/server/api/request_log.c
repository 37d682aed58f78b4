/* request_log.c: see request_log.h. */
#include "server/api/request_log.h"
#include "base/log.h"

#include <stdio.h>

/* A log line is at most this long, whatever a request holds. */
enum { MAX_TEXT = 400, MAX_IDS = 60 };

static size_t shown_length(const struct phi_genjob *g, size_t n, size_t most)
{
    int limit = g->server->options->max_log_len;
    if (limit >= 0 && (size_t)limit < most)
        most = (size_t)limit;
    return n < most ? n : most;
}

/* "1, 2, 3", cut where it must be. */
static void append_ids(const struct phi_genjob *g, struct phi_buf *line, const int32_t *ids,
                       size_t n)
{
    size_t n_shown = shown_length(g, n, MAX_IDS);
    phi_buf_append_char(line, '[');
    for (size_t i = 0; i < n_shown; i++)
        phi_buf_printf(line, i > 0 ? ", %d" : "%d", (int)ids[i]);
    phi_buf_append_c(line, n_shown < n ? ", ...]" : "]");
}

static void append_text(const struct phi_genjob *g, struct phi_buf *line, struct phi_str text)
{
    struct phi_str shown = {text.data, shown_length(g, text.n, MAX_TEXT)};
    struct phi_out o = {.buf = line};
    while (shown.n < text.n && shown.n > 0 && ((unsigned char)text.data[shown.n] & 0xC0) == 0x80)
        shown.n--; /* not in the middle of a character */
    phi_out_text(&o, NULL, shown);
    if (shown.n < text.n)
        phi_buf_append_c(line, "...");
}

static void append_optional(struct phi_buf *line, const char *name, bool given, long long value)
{
    if (given)
        phi_buf_printf(line, ", %s=%lld", name, value);
    else
        phi_buf_printf(line, ", %s=None", name);
}

/* A line that there was no memory for is not written. */
static void write_line(enum phi_log_level level, struct phi_buf *line)
{
    if (!line->failed && line->data)
        phi_log(level, "%s", line->data);
    phi_buf_deinit(line);
}

void phi_request_log_received(const struct phi_genjob *g, size_t i_prompt,
                              const struct phi_sampling *s)
{
    const struct phi_prompt *p = &g->prompts[i_prompt];
    struct phi_buf line = {0};
    if (!g->server->options->log_requests)
        return;
    phi_buf_printf(&line,
                   "Received request %.*s-%zu: params: SamplingParams(n=%d, presence_penalty=%g, "
                   "frequency_penalty=%g, repetition_penalty=%g, temperature=%g, top_p=%g, "
                   "top_k=%d, min_p=%g",
                   (int)g->id.n, g->id.data, i_prompt, s->n, s->presence_penalty,
                   s->frequency_penalty, s->repetition_penalty, s->temperature, s->top_p, s->top_k,
                   s->min_p);
    append_optional(&line, "seed", s->has_seed, (long long)s->seed);
    append_optional(&line, "max_tokens", s->max_tokens > 0, s->max_tokens);
    append_optional(&line, "min_tokens", true, s->min_tokens);
    append_optional(&line, "logprobs", s->logprobs >= 0, s->logprobs);
    append_optional(&line, "prompt_logprobs", s->prompt_logprobs >= 0, s->prompt_logprobs);
    phi_buf_printf(&line, "), prompt tokens: %zu.", p->n_ids);
    write_line(PHI_LOG_INFO, &line);
    line = (struct phi_buf){0};
    phi_buf_printf(&line, "Request %.*s-%zu: ", (int)g->id.n, g->id.data, i_prompt);
    if (p->text) {
        phi_buf_append_c(&line, "prompt: ");
        append_text(g, &line, (struct phi_str){p->text, p->n_text});
        phi_buf_append_c(&line, ", ");
    }
    phi_buf_append_c(&line, "prompt_token_ids: ");
    append_ids(g, &line, p->ids, p->n_ids);
    write_line(PHI_LOG_DEBUG, &line);
}

void phi_request_log_ended(const struct phi_genjob *g, size_t i_prompt, enum phi_finish finish,
                           const struct phi_request_stats *stats)
{
    if (!g->server->options->log_requests)
        return;
    if (finish == PHI_FINISH_ABORT)
        phi_log(PHI_LOG_INFO, "Aborted request %.*s-%zu.", (int)g->id.n, g->id.data, i_prompt);
    else
        phi_log(PHI_LOG_INFO,
                "Finished request %.*s-%zu: prompt tokens: %zu, output tokens: %zu, first token "
                "after %.3f s, all after %.3f s.",
                (int)g->id.n, g->id.data, i_prompt, stats->n_prompt_tokens, stats->n_output_tokens,
                stats->first_token_s, stats->end_s);
}

void phi_request_log_output(const struct phi_genjob *g, size_t i_choice)
{
    const struct phi_choice *c = &g->choices[i_choice];
    struct phi_buf line = {0};
    if (!g->server->options->log_outputs)
        return;
    phi_buf_printf(&line, "Generated response %.*s%s: choice %zu, output: ", (int)g->id.n,
                   g->id.data, g->fields.stream ? " (streaming delta)" : "", i_choice);
    append_text(g, &line, phi_buf_str(&c->text));
    phi_buf_append_c(&line, ", output_token_ids: ");
    append_ids(g, &line, c->tokens.data, c->tokens.n);
    phi_buf_printf(&line, ", finish_reason: %s",
                   c->finish == PHI_FINISH_NONE ? "None" : phi_finish_name(c->finish));
    write_line(PHI_LOG_INFO, &line);
}
