/* line_reader.c: see line_reader.h. */
#include "cli/line_reader.h"

#include <errno.h>
#include <unistd.h>

enum { MAX_LINE_BYTES = 1 << 26 };

/* Moves the first n bytes that were read ahead into the line, and drops the line end after them. */
static void take(struct cli_line_reader *r, size_t n, size_t n_line_end)
{
    phi_buf_append(&r->line, r->ahead.data, n);
    phi_buf_remove_front(&r->ahead, n + n_line_end);
}

enum cli_line cli_read_line(struct cli_line_reader *r, struct phi_error *err)
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
        ssize_t n = read(STDIN_FILENO, r->ahead.data + r->ahead.n, 4096);
        if (n < 0 && errno == EINTR)
            return CLI_LINE_INTERRUPTED;
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
