/* process_stats.c: see process_stats.h. Everything comes from /proc/self, as in prometheus_client.
 */
#include "server/metrics/process_stats.h"
#include "base/file.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Numbers of /proc/self/stat by their place in proc(5), which counts from 1. */
enum { N_THREADS = 20, START_TICKS = 22, VIRTUAL_BYTES = 23, RESIDENT_PAGES = 24 };

/* Fields of /proc/self/stat in place: the name, in parentheses, may hold anything, so they are
 * counted from the last parenthesis on. All are NAN when the file cannot be read. */
static void read_stat(double field[RESIDENT_PAGES + 1])
{
    for (int i = 0; i <= RESIDENT_PAGES; i++)
        field[i] = NAN;
    struct phi_buf text = {0};
    const char *p = NULL;
    if (phi_file_read("/proc/self/stat", 8192, &text, NULL) == PHI_OK && text.n)
        p = strrchr(text.data, ')');
    for (int i = 3; p && i <= RESIDENT_PAGES; i++) {
        p = strchr(p + 1, ' ');
        if (p)
            field[i] = strtod(p + 1, NULL);
    }
    phi_buf_deinit(&text);
}

static double count_open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return NAN;
    double n = -3; /* ".", ".." and the descriptor of `dir` */
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

void phi_process_stats_get(struct phi_process_stats *out)
{
    double field[RESIDENT_PAGES + 1];
    read_stat(field);
    struct rusage usage;
    struct rlimit limit;
    bool has_usage = getrusage(RUSAGE_SELF, &usage) == 0;
    bool has_limit = getrlimit(RLIMIT_NOFILE, &limit) == 0;
    *out = (struct phi_process_stats){
        .resident_bytes = field[RESIDENT_PAGES] * (double)sysconf(_SC_PAGESIZE),
        .virtual_bytes = field[VIRTUAL_BYTES],
        .n_threads = field[N_THREADS],
        .n_open_fds = count_open_fds(),
        .cpu_s = !has_usage ? NAN
                            : (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                                  (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6,
        .n_max_fds = !has_limit                        ? NAN
                     : limit.rlim_cur == RLIM_INFINITY ? INFINITY
                                                       : (double)limit.rlim_cur,
    };
}

double phi_process_start_time_s(void)
{
    double field[RESIDENT_PAGES + 1];
    read_stat(field);
    struct timespec now, up;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &up);
    double age_s = (double)up.tv_sec + (double)up.tv_nsec * 1e-9 -
                   field[START_TICKS] / (double)sysconf(_SC_CLK_TCK);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - age_s;
}
