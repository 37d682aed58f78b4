/* stream.h: one streamed answer of an OpenAI-compatible server, as its bytes come: server-sent
 * events to times, text and counts.
 *
 * A chunk with text counts as a token, as it does in vLLM's client; what a chunk with several
 * tokens really holds is told by the usage at the end. Chunks without text (a chat's role, the
 * finish reason) do not count. */
#ifndef PHI_CLI_BENCH_STREAM_H
#define PHI_CLI_BENCH_STREAM_H

#include "base/buf.h"
#include "cli/bench/numbers.h"

struct bench_answer {
    /* Seconds. start_s and queue_s are the sender's business: when it was sent, since the
     * beginning, and how long it was kept back before. */
    double start_s, queue_s;
    double ttft_s, latency_s;  /* from start_s to the first and to the last chunk */
    struct bench_numbers gaps; /* between chunks with text */
    size_t n_prompt, n_output; /* from the usage; where there is none, 0 and the chunks */
    struct phi_buf text;
    bool success;
    char error[256]; /* one line; why it failed */
};

void bench_answer_deinit(struct bench_answer *a);

/* Counts it as failed; the first reason stays. */
void bench_answer_fail(struct bench_answer *a, const char *fmt, ...) PHI_PRINTF(2, 3);

/* Reads the stream of one answer. */
struct bench_stream {
    struct bench_answer *answer; /* where it goes */
    struct phi_buf line;         /* an unfinished line */
    size_t n_chunks;
    double last_s;
    bool finished, done; /* a finish reason came; [DONE] came */
};

void bench_stream_init(struct bench_stream *s, struct bench_answer *answer);
void bench_stream_deinit(struct bench_stream *s);

/* Bytes that came at now_s, since the same beginning as start_s. */
void bench_stream_feed(struct bench_stream *s, struct phi_str bytes, double now_s);

/* The connection ended in order. Decides about success: a stream that broke off before its finish
 * reason and before [DONE] has failed. */
void bench_stream_end(struct bench_stream *s);

#endif
