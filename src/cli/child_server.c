/* child_server.c: see child_server.h. */
#include "cli/child_server.h"
#include "base/alloc.h"
#include "cli/flags.h"
#include "cli/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { POLL_MS = 20, ANSWER_TIMEOUT_S = 5, MAX_ARGUMENTS = 2 * CLI_MAX_OPTIONS };

/* ---------------------------------------------------------------- its command line */

struct command_line {
    struct phi_arena texts;
    char *data[MAX_ARGUMENTS + 1]; /* ends with NULL */
    size_t n;
    bool failed;
};

static void add(struct command_line *c, const char *text)
{
    struct phi_str copy = phi_arena_dup(&c->texts, phi_str_from(text));
    if (!copy.data || c->n == MAX_ARGUMENTS)
        c->failed = true;
    else
        c->data[c->n++] = (char *)(uintptr_t)copy.data;
}

static void add_option(struct command_line *c, const struct cli_found *f, void *flags)
{
    struct phi_buf text = {0};
    if (f->option->kind == CLI_BOOL) {
        phi_buf_printf(&text, "--%s%s", *(bool *)cli_value_of(f, flags) ? "" : "no-",
                       f->option->name);
    } else {
        phi_buf_printf(&text, "--%s=", f->option->name);
        cli_format_value(&text, f, flags);
    }
    if (text.failed)
        c->failed = true;
    else
        add(c, text.data);
    phi_buf_deinit(&text);
}

static bool is_shared(const struct cli_found *f)
{
    return (f->group == &cli_model_group || f->group == &cli_engine_group ||
            f->group == &cli_common_group) &&
           strcmp(f->option->name, "max-model-len") != 0;
}

static void make_command_line(struct command_line *c, const struct cli_args *args, void *flags,
                              int port, int max_model_len)
{
    char text[64];
    struct cli_found f;
    add(c, "phidelity");
    add(c, "serve");
    add(c, args->positional[0]);
    add(c, "--host=127.0.0.1");
    snprintf(text, sizeof text, "--port=%d", port);
    add(c, text);
    snprintf(text, sizeof text, "--max-model-len=%d", max_model_len);
    add(c, text);
    for (struct cli_cursor at = {0}; cli_next_option(args->command, &at, &f);)
        if (is_shared(&f) && cli_is_given(args, &f))
            add_option(c, &f, flags);
}

/* The environment without what would set the server's flags: it has those of our command line. Ends
 * with NULL, points into `environ`; NULL: out of memory. */
static char **make_environment(void)
{
    size_t n = 0, n_kept = 0;
    while (environ[n])
        n++;
    char **kept = phi_calloc(n + 1, sizeof *kept);
    for (size_t i = 0; kept && i < n; i++)
        if (strncmp(environ[i], "VLLM_", 5) != 0 && strncmp(environ[i], "PHI_", 4) != 0)
            kept[n_kept++] = environ[i];
    return kept;
}

/* ---------------------------------------------------------------- its start */

/* A port that is free now. Somebody could take it before the child does; the child then says so. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* In the child, between fork and exec: only what is safe there. */
static void become_server(char *const *argv, char *const *environment, int log_fd, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* it does not outlive us, however we end */
    if (getppid() == parent && dup2(log_fd, STDERR_FILENO) >= 0 && dup2(log_fd, STDOUT_FILENO) >= 0)
        execve("/proc/self/exe", argv, environment);
    _exit(127);
}

/* The last line of the log into out[size]. */
static void last_line(FILE *log, char *out, size_t size)
{
    char line[512];
    out[0] = '\0';
    rewind(log);
    while (fgets(line, sizeof line, log)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0])
            snprintf(out, size, "%s", line);
    }
}

static enum phi_status wait_until_open(struct child_server *s, struct phi_error *err)
{
    struct http_client client;
    char line[512];
    enum phi_status status = http_client_init(&client, s->url, NULL, ANSWER_TIMEOUT_S, err);
    while (status == PHI_OK && http_client_get(&client, "/health", NULL) != 200) {
        if (waitpid(s->pid, NULL, WNOHANG) != 0) {
            s->pid = 0;
            last_line(s->log, line, sizeof line);
            status = phi_fail(err, PHI_ERR_IO, "the server did not start: %s",
                              line[0] ? line : "it said nothing");
        }
        usleep(POLL_MS * 1000);
    }
    http_client_deinit(&client);
    return status;
}

enum phi_status child_server_start(struct child_server *s, const struct cli_args *args, void *flags,
                                   int max_model_len, struct phi_error *err)
{
    struct command_line *c = phi_calloc(1, sizeof *c);
    char **environment = make_environment();
    int port = free_port();
    pid_t parent = getpid();
    *s = (struct child_server){.log = tmpfile()};
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", port);
    if (c)
        make_command_line(c, args, flags, port, max_model_len);
    enum phi_status status = PHI_OK;
    if (!c || c->failed || !environment)
        status = phi_fail_memory(err, "a command line", sizeof *c);
    else if (!s->log || port == 0 || (s->pid = fork()) < 0)
        status = phi_fail(err, PHI_ERR_IO, "cannot start a server: %s", strerror(errno));
    else if (s->pid == 0)
        become_server(c->data, environment, fileno(s->log), parent);
    if (s->pid < 0)
        s->pid = 0;
    if (c)
        phi_arena_deinit(&c->texts);
    phi_free(c);
    phi_free(environment);
    return status == PHI_OK ? wait_until_open(s, err) : status;
}

void child_server_stop(struct child_server *s)
{
    if (s->pid > 0) {
        kill(s->pid, SIGTERM);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (s->log)
        fclose(s->log);
}
