/* log.h: the one mutable global of the library: where its log lines go. By default nowhere (the
 * library never prints); the command line installs a sink that writes to stderr. */
#ifndef PHI_BASE_LOG_H
#define PHI_BASE_LOG_H

#include "base/status.h"

enum phi_log_level { PHI_LOG_DEBUG, PHI_LOG_INFO, PHI_LOG_WARNING, PHI_LOG_ERROR };

/* `level` is an enum phi_log_level; an int as in the public header. */
typedef void (*phi_log_sink)(void *context, int level, const char *line);

/* Set before any other thread of the library exists. */
void phi_log_set_sink(phi_log_sink sink, void *context);

/* One line; what it quotes from files or requests cannot break out of it (phi_clean_line). */
void phi_log(enum phi_log_level level, const char *fmt, ...) PHI_PRINTF(2, 3);

#endif
