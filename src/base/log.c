/* log.c: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static phi_log_sink current_sink;
static void *current_context;

void phi_log_set_sink(phi_log_sink sink, void *context)
{
    current_sink = sink;
    current_context = context;
}

void phi_log(enum phi_log_level level, const char *fmt, ...)
{
    if (!current_sink)
        return;
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    phi_clean_line(line, sizeof line);
    current_sink(current_context, level, line);
}
