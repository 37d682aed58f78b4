/* process_stats.h: what the system says of this process, for the process_* metrics. */
#ifndef PHI_SERVER_METRICS_PROCESS_STATS_H
#define PHI_SERVER_METRICS_PROCESS_STATS_H

/* What the system does not tell is NAN. */
struct phi_process_stats {
    double resident_bytes, virtual_bytes;
    double cpu_s; /* user and system, of all threads */
    double n_threads;
    double n_open_fds, n_max_fds;
};

void phi_process_stats_get(struct phi_process_stats *out);

/* When the process began, in seconds since 1970. Computed anew from two clocks each time, so ask
 * once and keep the answer. */
double phi_process_start_time_s(void);

#endif
