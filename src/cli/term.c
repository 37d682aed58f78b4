/* term.c: see term.h. */
#include "cli/term.h"
#include "base/clock.h"
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* --------------------------------------------------------------- standard output */

enum { OUT_FLUSH_BYTES = 1 << 16 };

void cli_out_init(struct cli_out *out)
{
    *out = (struct cli_out){0};
}

void cli_out_flush(struct cli_out *out)
{
    size_t done = 0;
    while (done < out->buf.n && !out->error) {
        ssize_t n = write(STDOUT_FILENO, out->buf.data + done, out->buf.n - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR)
            out->error = errno;
    }
    if (out->buf.failed && !out->error)
        out->error = ENOMEM;
    phi_buf_clear(&out->buf);
}

void cli_out_write(struct cli_out *out, struct phi_str s)
{
    phi_buf_append_str(&out->buf, s);
    if (out->buf.n >= OUT_FLUSH_BYTES || out->buf.failed)
        cli_out_flush(out);
}

void cli_out_printf(struct cli_out *out, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0)
        cli_out_write(
            out, (struct phi_str){text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1});
}

void cli_out_out_of_memory(struct cli_out *out)
{
    if (!out->error)
        out->error = ENOMEM;
}

int cli_out_finish(struct cli_out *out, int status)
{
    struct phi_error err;
    cli_out_flush(out);
    phi_buf_deinit(&out->buf);
    if (!out->error)
        return status;
    phi_fail(&err, PHI_ERR_IO, "cannot write to standard output: %s", strerror(out->error));
    return cli_fail(&err);
}

/* --------------------------------------------------------------- progress */

enum { BAR_WIDTH = 40 };

void cli_progress_init(struct cli_progress *p)
{
    *p = (struct cli_progress){.enabled = isatty(STDERR_FILENO) != 0, .start_s = phi_clock_s()};
}

void cli_progress_show(struct cli_progress *p, const char *stage, uint64_t done, uint64_t total)
{
    double now_s = phi_clock_s();
    if (!p->enabled || now_s - p->start_s < 1 || now_s - p->drawn_s < 0.1)
        return;
    p->drawn_s = now_s;
    p->shown = true;
    if (total == 0) {
        fprintf(stderr, "\r\033[K%s: %.0f s", stage, now_s - p->start_s);
        return;
    }
    double part = done < total ? (double)done / (double)total : 1;
    char bar[BAR_WIDTH + 1];
    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < part * BAR_WIDTH ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K%s [%s] %3.0f %%", stage, bar, part * 100);
}

void cli_progress_clear(struct cli_progress *p)
{
    if (p->shown)
        fprintf(stderr, "\r\033[K");
    p->shown = false;
    p->start_s = phi_clock_s();
}

/* --------------------------------------------------------------- Ctrl-C */

/* A signal handler can reach nothing but a global; it may run on any of the program's threads. */
static atomic_int interrupts;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    atomic_fetch_add(&interrupts, 1);
}

void cli_interrupt_catch(bool once)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    action.sa_flags = once ? (int)(SA_RESETHAND | SA_RESTART) : SA_RESTART;
    sigaction(SIGINT, &action, NULL);
}

int cli_interrupts(void)
{
    return atomic_load(&interrupts);
}

void cli_interrupts_clear(void)
{
    atomic_store(&interrupts, 0);
}
