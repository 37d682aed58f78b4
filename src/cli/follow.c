/* follow.c: see follow.h. */
#include "cli/follow.h"

#include <stdio.h>

enum { POLL_MS = 50 }; /* how soon Ctrl-C is noticed */

void cli_follow(struct phi_request *request, cli_event_fn fn, void *context)
{
    struct cli_progress progress;
    struct phi_event ev;
    bool cancelled = false;
    int got;
    cli_progress_init(&progress);
    while ((got = phi_request_next(request, &ev, POLL_MS)) >= 0) {
        if (got) {
            cli_progress_clear(&progress);
            progress.enabled = false;
            fn(context, &ev);
        } else {
            cli_progress_show(&progress, "reading the prompt", 0, 0);
        }
        if (cli_interrupts() && !cancelled) {
            phi_request_cancel(request);
            cancelled = true;
        }
    }
    cli_progress_clear(&progress);
}

const char *cli_finish_name(enum phi_finish finish)
{
    switch (finish) {
    case PHI_FINISH_STOP:
        return "stop";
    case PHI_FINISH_LENGTH:
        return "length";
    case PHI_FINISH_ABORT:
        return "abort";
    case PHI_FINISH_ERROR:
        return "error";
    case PHI_FINISH_NONE:
        break;
    }
    return "none";
}

static double per_second(size_t n, double s)
{
    return s > 0 ? (double)n / s : 0;
}

void cli_print_stats(const struct phi_request *request, enum phi_finish finish)
{
    struct phi_request_stats t;
    phi_request_get_stats(request, &t);
    double prompt_s = t.first_token_s - t.queue_s;
    double output_s = t.end_s - t.first_token_s;
    size_t n_decoded =
        t.n_output_tokens ? t.n_output_tokens - 1 : 0; /* the first comes with the prompt */
    fprintf(stderr,
            "phidelity: %zu prompt tokens, %.1f/s; %zu output tokens, %.1f/s; first token after "
            "%.3f s; "
            "finish: %s\n",
            t.n_prompt_tokens, per_second(t.n_prompt_tokens, prompt_s), t.n_output_tokens,
            per_second(n_decoded, output_s), t.first_token_s, cli_finish_name(finish));
}
