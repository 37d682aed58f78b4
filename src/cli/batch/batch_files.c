/* batch_files.c: the two files of a batch; see batch.h. */
#include "cli/batch/batch.h"
#include "formats/json.h"

#include <errno.h>
#include <unistd.h>

/* ---------------------------------------------------------------- lines */

/* False at the end of the file. *whole: the line has its line end. */
static bool read_line(FILE *file, struct phi_buf *line, bool *whole)
{
    int c;
    phi_buf_clear(line);
    while ((c = getc_unlocked(file)) != EOF && c != '\n')
        phi_buf_append_char(line, (char)c);
    *whole = c == '\n';
    return *whole || line->n > 0;
}

static bool is_blank(const struct phi_buf *line)
{
    for (size_t i = 0; i < line->n; i++)
        if (!strchr(" \t\r", line->data[i]))
            return false;
    return true;
}

bool batch_read(struct batch *b, FILE *file)
{
    bool whole;
    while (read_line(file, &b->line, &whole))
        if (!is_blank(&b->line))
            return true;
    return false;
}

/* The line's custom_id, or NULL; the caller's. */
static json_t *custom_id_of(const struct phi_buf *line)
{
    json_error_t ignored;
    json_t *object = json_loadb(line->data ? line->data : "", line->n, JSON_ALLOW_NUL, &ignored);
    json_t *id = json_incref(json_object_get(object, "custom_id"));
    json_decref(object);
    return json_is_string(id) ? id : (json_decref(id), NULL);
}

/* ---------------------------------------------------------------- going on */

static bool same_id(const json_t *a, const json_t *b)
{
    return a && b ? json_equal(a, b) : a == b;
}

/* Steps over the output's whole lines and as many requests, whose custom_ids must be the same, and
 * cuts off a line that was broken. */
static enum phi_status skip_done(struct batch *b, struct phi_error *err)
{
    bool whole;
    long end = 0;
    while (read_line(b->out, &b->line, &whole) && whole) {
        json_t *answered = custom_id_of(&b->line);
        json_t *asked = batch_read(b, b->in) ? custom_id_of(&b->line) : NULL;
        bool same = b->n_out < b->n_lines && same_id(answered, asked);
        json_decref(answered);
        json_decref(asked);
        if (!same)
            return phi_fail(err, PHI_ERR_INVALID,
                            "%s: line %zu answers another request than %s has there: not an "
                            "earlier run of this batch",
                            b->out_path, b->n_out + 1, b->in_path);
        b->n_out++;
        end = ftell(b->out);
    }
    b->n_resumed = b->n_out;
    if (end < 0 || fseek(b->out, end, SEEK_SET) != 0 || ftruncate(fileno(b->out), end) != 0)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot go on: %s", b->out_path, strerror(errno));
    return PHI_OK;
}

enum phi_status batch_open(struct batch *b, bool resume, struct phi_error *err)
{
    b->in = fopen(b->in_path, "rb");
    if (!b->in)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot open: %s", b->in_path, strerror(errno));
    while (batch_read(b, b->in))
        b->n_lines++;
    if (ferror(b->in) || fseek(b->in, 0, SEEK_SET) != 0)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot read: %s", b->in_path, strerror(errno));
    b->out = resume ? fopen(b->out_path, "r+b") : NULL;
    bool goes_on = b->out != NULL;
    if (!b->out && (!resume || errno == ENOENT))
        b->out = fopen(b->out_path, "wb");
    if (!b->out)
        return phi_fail(err, PHI_ERR_IO, "%s: cannot open: %s", b->out_path, strerror(errno));
    return goes_on ? skip_done(b, err) : PHI_OK;
}

enum phi_status batch_close(struct batch *b, struct phi_error *err)
{
    bool ok = true;
    if (b->in)
        fclose(b->in);
    if (b->out)
        ok = fclose(b->out) == 0;
    phi_buf_deinit(&b->line);
    return ok ? PHI_OK
              : phi_fail(err, PHI_ERR_IO, "%s: cannot write: %s", b->out_path, strerror(errno));
}
