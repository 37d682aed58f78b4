/* serve_log.c: the server's log: one format, one write for each line, from any thread. */
#include "cli/serve.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The sink has no owner to put these into: the log is a thing of the whole process. */
static atomic_int least_level = PHI_LOG_INFO;
static atomic_bool over_bar;

static void write_all(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDERR_FILENO, text, n);
        if (done < 0 && errno != EINTR)
            return;
        if (done > 0) {
            text += done;
            n -= (size_t)done;
        }
    }
}

static void write_line(void *context, int level, const char *line)
{
    static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
    char text[2304], when[32];
    struct tm local;
    (void)context;
    if (level < atomic_load(&least_level))
        return;
    time_t now = time(NULL);
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%m-%d %H:%M:%S", &local);
    int n = snprintf(text, sizeof text, "%s%s %s [serve] %s\n",
                     atomic_load(&over_bar) ? "\r\033[K" : "",
                     names[level >= 0 && level <= 3 ? level : 3], when, line);
    if ((size_t)n >= sizeof text) {
        n = sizeof text - 1;
        text[n - 1] = '\n';
    }
    write_all(text, (size_t)n);
}

void serve_log_init(void)
{
    phi_set_log(write_line, NULL);
}

void serve_log_set_level(enum phi_log_level least)
{
    atomic_store(&least_level, (int)least);
}

void serve_log_over_bar(bool on)
{
    atomic_store(&over_bar, on && isatty(STDERR_FILENO));
}
