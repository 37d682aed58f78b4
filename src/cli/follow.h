/* follow.h: from a submitted request to its end: events, Ctrl-C, the closing line. */
#ifndef PHI_CLI_FOLLOW_H
#define PHI_CLI_FOLLOW_H

#include "cli/term.h"

typedef void (*cli_event_fn)(void *context, const struct phi_event *ev);

/* Hands the request's events to `fn` until the last one. Ctrl-C (caught by cli_interrupt_catch)
 * cancels the request, whose last event then comes soon. While the first event is waited for,
 * standard error shows the seconds, if it is a terminal. */
void cli_follow(struct phi_request *request, cli_event_fn fn, void *context);

/* "stop", "length", "abort", "error": vLLM's finish reasons. */
const char *cli_finish_name(enum phi_finish finish);

/* One line on standard error: tokens, speeds, time to first token, finish reason. */
void cli_print_stats(const struct phi_request *request, enum phi_finish finish);

#endif
