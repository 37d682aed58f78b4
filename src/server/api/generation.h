/* generation.h: the job behind /v1/completions and /v1/chat/completions: the engine's requests of
 * one HTTP request, and what they have said so far.
 *
 *   prompts  0            1            ...       one engine request each
 *   choices  0 .. n-1     n .. 2n-1    ...       what the client sees: index = prompt * n + k
 *
 * An endpoint (completions.c, chat.c) reads its fields, fills in the prompts and says how
 * an answer is written; generation.c does the rest: it submits, collects, streams and cancels.
 *
 * Threads: all of it belongs to the exchange's HTTP thread, but for cancel. The engine's thread
 * knows only the exchange, which it wakes. */
#ifndef PHI_SERVER_API_GENERATION_H
#define PHI_SERVER_API_GENERATION_H

#include "base/arena.h"
#include "server/api/fields.h"
#include "server/api/logprobs_out.h"
#include "server/state.h"

#include <stdatomic.h>

struct phi_genjob;

struct phi_prompt {
    int32_t *ids; /* owned; phi_mem_free */
    size_t n_ids;
    char *text; /* owned; what echo and return_prompt_text show; NULL where nobody asked */
    size_t n_text;
    bool is_cut;                 /* the text has more than the ids, which were truncated */
    struct phi_request *request; /* NULL before it is submitted */
    bool ended;                  /* its last event has come */
    size_t n_cached;             /* of its tokens, once it has ended */
};

/* One answer. The lists hold what no chunk has told yet when streaming, else everything. */
struct phi_choice {
    struct phi_buf text;
    struct phi_ids tokens;
    struct phi_buf logprobs; /* struct phi_logprob [tokens.n, n_logprobs] */
    size_t n_logprobs;
    size_t n_output; /* tokens in all */
    bool is_begun;   /* streaming: its first chunk was written */
    enum phi_finish finish;
    int32_t stop_token;         /* or -1 */
    struct phi_buf stop_string; /* or empty */
    struct phi_spelling spelling;
};

/* How an endpoint writes its answers. */
struct phi_genjob_form {
    const char *id_prefix;    /* "cmpl-" */
    const char *chunk_object; /* "object" of a chunk */
    /* Refuses fields of its own that contradict each other. */
    enum phi_status (*check)(struct phi_genjob *g, struct phi_refusal *r);
    /* An answer begins with something, token or not. */
    bool (*has_opening)(const struct phi_genjob *g);
    /* Everything, as one JSON object. */
    void (*write_answer)(struct phi_genjob *g, struct phi_out *o);
    /* The events about choice i: the opening if it is not begun, then what is new of it. */
    void (*write_chunks)(struct phi_genjob *g, size_t i, struct phi_buf *out);
};

struct phi_genjob {
    struct phi_job job;
    struct phi_server *server;
    const struct phi_genjob_form *form;
    struct phi_fields fields;
    struct phi_arena arena;
    struct phi_str id;
    int64_t created_s;
    struct phi_sampling sampling; /* lists in the arena */
    int64_t max_tokens;           /* asked for; 0 = what the context leaves */
    int64_t default_max_tokens;   /* bounds what the context leaves; 0 = not */
    const char *max_tokens_field; /* its name in the request */
    bool only_prompt;             /* max_tokens 0 with echo: the one token made is not shown */
    bool include_usage, continuous_usage;
    bool tokens_as_ids;  /* in logprobs */
    struct phi_str role; /* chat: of the answer */
    struct phi_str echo; /* chat: what the answer begins with */
    struct phi_prompt *prompts;
    size_t n_prompts;
    struct phi_choice *choices;
    size_t n_choices;
    size_t n_ended;            /* prompts */
    atomic_size_t n_submitted; /* of them, the first so many; cancel reads it */
    atomic_bool cancelled;
};

/* An endpoint's handler: `run` takes the job from the body to phi_genjob_start, or refuses. */
void phi_genjob_handle(struct phi_exchange *x, const struct phi_genjob_form *form,
                       enum phi_status (*run)(struct phi_genjob *g, struct phi_exchange *x,
                                              struct phi_refusal *r));

/* What both endpoints do with a body, in vLLM's order (sampling_fields.c): reads it by `set`;
 * refuses fields that contradict each other; then an unknown model; then values out of range. Fills
 * in g->id and g->sampling. */
enum phi_status phi_genjob_read(struct phi_genjob *g, struct phi_exchange *x,
                                const struct phi_field_set *set, struct phi_refusal *r);

/* The ids of a prompt's text. A text that is too long by its bytes alone is refused before it takes
 * time; so g->max_tokens comes first. */
enum phi_status phi_genjob_tokenize(struct phi_genjob *g, struct phi_prompt *p,
                                    struct phi_text text, struct phi_refusal *r);

/* n prompts, empty yet, and their choices. */
enum phi_status phi_genjob_set_prompts(struct phi_genjob *g, size_t n, struct phi_refusal *r);

/* Cuts the prompts where truncate_prompt_tokens says so, and checks their lengths. */
enum phi_status phi_genjob_fit(struct phi_genjob *g, struct phi_refusal *r);

/* Submits the prompts and leaves the job with the exchange; or refuses, and none of them runs. */
enum phi_status phi_genjob_start(struct phi_genjob *g, struct phi_exchange *x,
                                 struct phi_refusal *r);

/* ---- for the endpoints' writers */

/* Members that answers and chunks share: id, object, created, model. */
void phi_genjob_write_head(const struct phi_genjob *g, struct phi_out *o, const char *object);
/* "usage" of all that has come so far, or of one choice and its prompt. */
void phi_genjob_write_usage(const struct phi_genjob *g, struct phi_out *o);
void phi_genjob_write_choice_usage(const struct phi_genjob *g, size_t i, struct phi_out *o);
void phi_genjob_write_fingerprint(struct phi_out *o);
/* finish_reason, and stop_reason where the answer has ended or `always`. */
void phi_genjob_write_finish(const struct phi_choice *c, struct phi_out *o, bool always);

/* "stop", "length", ...; NULL while it goes on. */
const char *phi_finish_name(enum phi_finish finish);

/* The scored tokens of a choice, or of a prompt (rows NULL when it was not scored). */
struct phi_scored phi_choice_scored(const struct phi_choice *c);
struct phi_scored phi_prompt_scored(const struct phi_prompt *p);

/* One server-sent event around a JSON object. */
void phi_event_begin(struct phi_out *o, struct phi_buf *out);
void phi_event_end(struct phi_out *o);

#endif
