/* line_reader.c: see line_reader.h. */
#include "cli/line_reader.h"

#include "cli/term.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { MAX_LINE_BYTES = 1 << 26, POLL_MS = 100 };

/* Moves the first n bytes that were read ahead into the line, and drops the line end after them. */
static void take(struct cli_line_reader *r, size_t n, size_t n_line_end)
{
    phi_buf_append(&r->line, r->ahead.data, n);
    phi_buf_remove_front(&r->ahead, n + n_line_end);
}

/* Waits until there is input, or false for Ctrl-C. The signal may reach any thread, at any moment,
 * so a wait that it would have to break could miss it: the counter is looked at instead. */
static bool wait_for_input(int n_interrupts)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (cli_interrupts() <= n_interrupts) {
        int n = poll(&input, 1, POLL_MS);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* a failure shows in the read */
    }
    return false;
}

enum cli_line cli_read_line(struct cli_line_reader *r, int n_interrupts, struct phi_error *err)
{
    phi_buf_clear(&r->line);
    for (;;) {
        const char *newline = r->ahead.n ? memchr(r->ahead.data, '\n', r->ahead.n) : NULL;
        if (newline || (r->ended && r->ahead.n)) {
            take(r, newline ? (size_t)(newline - r->ahead.data) : r->ahead.n, newline != NULL);
            return r->line.failed ? (phi_fail_memory(err, "a line", r->ahead.n), CLI_LINE_FAILED)
                                  : CLI_LINE_READ;
        }
        if (r->ended)
            return CLI_LINE_END;
        if (r->ahead.n > MAX_LINE_BYTES || !phi_buf_reserve(&r->ahead, 4096)) {
            phi_fail_memory(err, "a line of standard input", r->ahead.n);
            return CLI_LINE_FAILED;
        }
        if (!wait_for_input(n_interrupts))
            return CLI_LINE_INTERRUPTED;
        ssize_t n = read(STDIN_FILENO, r->ahead.data + r->ahead.n, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            phi_fail(err, PHI_ERR_IO, "standard input: %s", strerror(errno));
            return CLI_LINE_FAILED;
        }
        r->ended = n == 0;
        r->ahead.n += (size_t)n;
    }
}

void cli_line_reader_deinit(struct cli_line_reader *r)
{
    phi_buf_deinit(&r->line);
    phi_buf_deinit(&r->ahead);
}
