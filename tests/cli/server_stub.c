/* server_stub.c: the functions of server/server.h for tests of the command line alone: a server
 * that listens to nobody. */
#include "server/server.h"

struct phi_server {
    char unused;
};

static struct phi_server the_server;

void phi_server_options_init(struct phi_server_options *o)
{
    *o = (struct phi_server_options){.port = 8000};
}

enum phi_status phi_server_start(const struct phi_server_options *o, struct phi_server **out,
                                 struct phi_error *err)
{
    (void)o;
    (void)err;
    *out = &the_server;
    return PHI_OK;
}

int phi_server_port(const struct phi_server *s)
{
    (void)s;
    return 8000;
}

enum phi_status phi_server_open(struct phi_server *s, struct phi_model *m, struct phi_engine *e,
                                const struct phi_sampling *sampling, struct phi_error *err)
{
    (void)s;
    (void)m;
    (void)e;
    (void)sampling;
    (void)err;
    return PHI_OK;
}

bool phi_server_drain(struct phi_server *s, double timeout_s)
{
    (void)s;
    (void)timeout_s;
    return true;
}

void phi_server_stop(struct phi_server *s)
{
    (void)s;
}
