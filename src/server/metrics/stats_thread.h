/* stats_thread.h: looks at the engine every few seconds and logs the statistics line. */
#ifndef PHI_SERVER_METRICS_STATS_THREAD_H
#define PHI_SERVER_METRICS_STATS_THREAD_H

#include "phidelity.h"

struct phi_stats_thread;

/* The engine must outlive it. */
enum phi_status phi_stats_thread_start(struct phi_engine *e, double interval_s,
                                       struct phi_stats_thread **out, struct phi_error *err);
void phi_stats_thread_stop(struct phi_stats_thread *t); /* NULL is fine */

#endif
