/* term.h: the program's three contacts with its terminal: checked standard output, a progress bar
 * on standard error, and Ctrl-C. */
#ifndef PHI_CLI_TERM_H
#define PHI_CLI_TERM_H

#include "base/buf.h"

#include <stdint.h>

/* Standard output. Writes are collected and leave with a flush; the first failed write (a full
 * disk) is remembered and reported once, at the end. A closed pipe ends the program silently, as
 * SIGPIPE does for every Unix tool. */
struct cli_out {
    struct phi_buf buf;
    int error; /* errno of the first failed write */
};

void cli_out_init(struct cli_out *out);
void cli_out_write(struct cli_out *out,
                   struct phi_str s); /* flushes by itself when much has come together */
void cli_out_printf(struct cli_out *out, const char *fmt, ...) PHI_PRINTF(2, 3);
void cli_out_flush(struct cli_out *out);
void cli_out_out_of_memory(struct cli_out *out); /* a piece could not even be made */

/* Flushes and frees. Returns `status`, or CLI_FAILED after an error line when a write has failed.
 */
int cli_out_finish(struct cli_out *out, int status);

/* A bar on standard error: only on a terminal, and only once the work has taken a second. */
struct cli_progress {
    bool enabled, shown;
    double start_s, drawn_s;
};

void cli_progress_init(struct cli_progress *p);
/* total 0: an amount of work that is not known; the elapsed time is shown instead of a bar. */
void cli_progress_show(struct cli_progress *p, const char *stage, uint64_t done, uint64_t total);
void cli_progress_clear(struct cli_progress *p); /* takes the bar away; it may come again */

/* From the call on, Ctrl-C is counted instead of ending the program. With `once`, a second Ctrl-C
 * ends the program as usual. */
void cli_interrupt_catch(bool once);
int cli_interrupts(void);
void cli_interrupts_clear(void);

#endif
