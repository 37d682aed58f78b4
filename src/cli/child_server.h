/* child_server.h: this same program as a server of its own: `phidelity serve` in a child process,
 * on a free port of the loopback address, with the flags of the command that starts it. */
#ifndef PHI_CLI_CHILD_SERVER_H
#define PHI_CLI_CHILD_SERVER_H

#include "cli/options.h"

#include <stdio.h>
#include <sys/types.h>

struct child_server {
    pid_t pid; /* 0 = none */
    FILE *log; /* what it writes to standard error */
    char url[64];
};

/* Starts it on MODEL with the options of the shared groups (model, engine, common) that were given,
 * and with this context length, and waits until it serves. A server that ends instead is PHI_ERR_IO
 * with its last line. The caller ends with child_server_stop in every case. */
enum phi_status child_server_start(struct child_server *s, const struct cli_args *args, void *flags,
                                   int max_model_len, struct phi_error *err);
void child_server_stop(struct child_server *s);

#endif
