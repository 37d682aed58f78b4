/* stream.c: see stream.h. */
#include "cli/bench/stream.h"
#include "formats/json.h"

#include <stdarg.h>
#include <stdio.h>

void bench_answer_deinit(struct bench_answer *a)
{
    bench_numbers_deinit(&a->gaps);
    phi_buf_deinit(&a->text);
}

void bench_answer_fail(struct bench_answer *a, const char *fmt, ...)
{
    va_list ap;
    if (a->error[0])
        return;
    va_start(ap, fmt);
    vsnprintf(a->error, sizeof a->error, fmt, ap);
    va_end(ap);
    phi_clean_line(a->error, sizeof a->error);
}

void bench_stream_init(struct bench_stream *s, struct bench_answer *answer)
{
    *s = (struct bench_stream){.answer = answer};
}

void bench_stream_deinit(struct bench_stream *s)
{
    phi_buf_deinit(&s->line);
}

/* A completion's text, or what a chat's delta adds. */
static struct phi_str chunk_text(const json_t *choice)
{
    const json_t *text = json_object_get(choice, "text");
    const json_t *delta = json_object_get(choice, "delta");
    static const char *const names[] = {"content", "reasoning_content", "reasoning"};
    for (size_t i = 0; i < 3 && !json_is_string(text); i++)
        text = json_object_get(delta, names[i]);
    return json_is_string(text) ? phi_json_str(text) : (struct phi_str){"", 0};
}

static void take_choice(struct bench_stream *s, const json_t *choice, double now_s)
{
    struct bench_answer *a = s->answer;
    struct phi_str text = chunk_text(choice);
    if (json_is_string(json_object_get(choice, "finish_reason")))
        s->finished = true;
    a->latency_s = now_s - a->start_s;
    if (text.n == 0)
        return;
    if (s->n_chunks++ == 0)
        a->ttft_s = now_s - a->start_s;
    else
        bench_numbers_append(&a->gaps, now_s - s->last_s);
    s->last_s = now_s;
    phi_buf_append_str(&a->text, text);
}

static void take_usage(struct bench_answer *a, const json_t *usage)
{
    json_int_t n_prompt = json_integer_value(json_object_get(usage, "prompt_tokens"));
    json_int_t n_output = json_integer_value(json_object_get(usage, "completion_tokens"));
    if (n_prompt > 0)
        a->n_prompt = (size_t)n_prompt;
    if (n_output > 0)
        a->n_output = (size_t)n_output;
}

static void take_error(struct bench_answer *a, const json_t *error)
{
    const json_t *message = json_object_get(error, "message");
    bench_answer_fail(a, "error in the stream: %s",
                      json_is_string(message) ? json_string_value(message) : "without a message");
}

static void take_line(struct bench_stream *s, struct phi_str line, double now_s)
{
    struct phi_str head = PHI_STR("data:");
    json_t *chunk;
    struct phi_error err;
    if (!phi_str_starts_with(line, head))
        return;
    line.data += head.n;
    line.n -= head.n;
    while (line.n > 0 && line.data[0] == ' ')
        line.data++, line.n--;
    if (phi_str_eq_c(line, "[DONE]")) {
        s->done = true;
    } else if (phi_json_parse(line, "chunk", &chunk, &err) != PHI_OK) {
        bench_answer_fail(s->answer, "%s", err.text);
    } else {
        const json_t *choices = json_object_get(chunk, "choices");
        for (size_t i = 0; i < json_array_size(choices); i++)
            take_choice(s, json_array_get(choices, i), now_s);
        if (json_is_object(json_object_get(chunk, "usage")))
            take_usage(s->answer, json_object_get(chunk, "usage"));
        if (json_is_object(json_object_get(chunk, "error")))
            take_error(s->answer, json_object_get(chunk, "error"));
        json_decref(chunk);
    }
}

void bench_stream_feed(struct bench_stream *s, struct phi_str bytes, double now_s)
{
    phi_buf_append_str(&s->line, bytes);
    size_t begin = 0;
    for (size_t i = s->line.n - (s->line.failed ? 0 : bytes.n); i < s->line.n; i++) {
        if (s->line.data[i] != '\n')
            continue;
        size_t end = i > begin && s->line.data[i - 1] == '\r' ? i - 1 : i;
        take_line(s, (struct phi_str){s->line.data + begin, end - begin}, now_s);
        begin = i + 1;
    }
    phi_buf_remove_front(&s->line, begin);
}

void bench_stream_end(struct bench_stream *s)
{
    struct bench_answer *a = s->answer;
    if (s->line.failed || a->text.failed || a->gaps.failed)
        bench_answer_fail(a, "no memory for the answer");
    if (!s->done && !s->finished)
        bench_answer_fail(a, "the stream broke off after %zu chunks", s->n_chunks);
    if (a->n_output == 0)
        a->n_output = s->n_chunks;
    if (s->n_chunks == 0)
        a->ttft_s = a->latency_s; /* no text at all: the end is all that was seen */
    a->success = a->error[0] == '\0';
}
