/* align.h: the same prompts asked of the engine in this process and of a server, greedily, and the
 * two answers compared.
 *
 *   cases.c    which prompts           here.c     what the engine in this process answers
 *   there.c    what the server answers judge.c    whether the two agree
 *   align_report.c   the table, JSON and page */
#ifndef PHI_CLI_ALIGN_ALIGN_H
#define PHI_CLI_ALIGN_ALIGN_H

#include "base/arena.h"
#include "cli/align/similarity.h"
#include "cli/http_client.h"
#include "cli/term.h"

enum { ALIGN_BEST = 20 }; /* candidates of a token that are asked for */

struct align_candidate {
    int32_t token; /* -1 = none */
    double logprob;
};

/* One side's answer. */
struct align_answer {
    struct phi_ids prompt; /* the ids that were read; empty when a server does not tell */
    struct phi_ids ids;
    /* [ids.n, 1 + ALIGN_BEST]: the token itself, then the likeliest; NULL when a server does not
     * tell */
    struct align_candidate *candidates;
    size_t n_candidates; /* allocated rows */
};

enum align_kind { ALIGN_TEXT, ALIGN_IDS, ALIGN_CHAT };
enum align_judge { ALIGN_AUTO, ALIGN_EXACT, ALIGN_STRICT, ALIGN_RELAXED };

struct align_case {
    enum align_kind kind;
    bool is_long;
    int max_tokens;
    json_t *prompt; /* string, array of ids, or array of messages; owned */
    struct align_answer here, there;

    /* The verdict. */
    struct similarity alike;
    enum align_judge judge; /* never ALIGN_AUTO */
    bool same_prompt;       /* as far as the server told */
    bool pass;
};

struct align_limits {
    int window, min_equal;      /* strict: so many of the first `window` tokens, in a row */
    int min_prefix;             /* relaxed: so many first tokens, and ... */
    double min_edit, min_rouge; /* ... one of these over the whole answers */
    int max_length_difference;  /* tokens; -1 = any */
};

struct align {
    const char *model;
    struct phi_model *m;
    struct phi_engine *e;
    struct http_client *client;
    const char *server_model; /* the name that requests carry */
    bool extensions; /* ask in vLLM's own fields too: token ids, and that nothing but temperature
                        acts */
    struct align_limits limits;
    enum align_judge short_judge, long_judge;
    struct align_case *cases;
    size_t n_cases;
};

/* --------------------------------------------------------------- cases.c */

struct align_plan {
    bool with_short, with_long;
    int short_tokens, long_tokens; /* lengths of answers */
    int long_prompt;               /* tokens; 0 = where the model's context changes */
    int max_model_len;             /* tokens of prompt and answer; 0 = the model's */
    const char *prompts;           /* a file instead of our own short prompts; NULL = none */
};

/* Fills a->cases. */
enum phi_status align_make_cases(struct align *a, const struct align_plan *plan,
                                 struct phi_error *err);
void align_deinit(struct align *a); /* cases and answers */

/* The context that prompts and answers need: here.prompt of every case is filled. */
size_t align_longest(const struct align *a);

/* --------------------------------------------------------------- here.c */

/* The ids of the case's prompt into here.prompt. */
enum phi_status align_tokenize(const struct phi_model *m, struct align_case *c,
                               struct phi_error *err);
enum phi_status align_ask_here(struct align *a, struct align_case *c, struct phi_error *err);

/* Room for one more row of candidates, all without a token; NULL: out of memory. */
struct align_candidate *align_add_candidates(struct align_answer *answer, size_t row);

/* Long answers go on past an end of text, so that they do cross; a server must be asked to. */
static inline bool align_runs_on(const struct align *a, const struct align_case *c)
{
    return c->is_long && a->extensions;
}

/* --------------------------------------------------------------- there.c */

enum phi_status align_ask_there(struct align *a, struct align_case *c, struct phi_error *err);

/* --------------------------------------------------------------- judge.c */

enum phi_status align_judge(const struct align *a, struct align_case *c, struct phi_error *err);
bool align_passes(const struct align *a);
size_t align_n_failed(const struct align *a);

/* The logprob that a side gave to a token at a place of its answer; false when it did not tell. */
bool align_logprob(const struct align_answer *answer, size_t place, int32_t token, double *out);

/* Appends where and how the two answers part: both tokens in words and with what each side gave
 * them. Nothing when they are equal. */
void align_tell_parting(const struct align *a, const struct align_case *c, struct phi_buf *out);

/* --------------------------------------------------------------- align_report.c */

void align_print_table(const struct align *a, struct cli_out *out);
void align_print_json(const struct align *a, struct cli_out *out);
enum phi_status align_write_page(const struct align *a, const char *path, struct phi_error *err);

#endif
