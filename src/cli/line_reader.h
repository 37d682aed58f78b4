/* line_reader.h: lines of standard input, whatever bytes they hold, interruptible by Ctrl-C. */
#ifndef PHI_CLI_LINE_READER_H
#define PHI_CLI_LINE_READER_H

#include "base/buf.h"

struct cli_line_reader {
    struct phi_buf line;  /* the last line, without its line end */
    struct phi_buf ahead; /* read but not handed out yet */
    bool ended;
};

enum cli_line { CLI_LINE_READ, CLI_LINE_END, CLI_LINE_INTERRUPTED, CLI_LINE_FAILED };

/* Waits for the next line. A zeroed reader is ready. CLI_LINE_INTERRUPTED: cli_interrupts() has
 * risen above n_interrupts. */
enum cli_line cli_read_line(struct cli_line_reader *r, int n_interrupts, struct phi_error *err);
void cli_line_reader_deinit(struct cli_line_reader *r);

#endif
