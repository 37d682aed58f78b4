/* locate.c: see locate.h. */
#include "cli/accuracy/locate.h"
#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOCATE_NAME_SIZE = 48 };

static const char *const parts[] = {"attention", "mlp", "hidden"};

enum phi_status locate_init(struct locate *l, const struct reference *r, int n_layers,
                            size_t n_widest, double limit, struct phi_error *err)
{
    size_t n = 2 + 3 * (size_t)n_layers;
    *l = (struct locate){.reference = r, .n_layers = n_layers, .limit = limit};
    l->stages = phi_calloc(n, sizeof *l->stages);
    l->work = phi_alloc(n_widest, sizeof *l->work);
    if (!l->stages || !l->work)
        return phi_fail_memory(err, "the layers' differences", n_widest * sizeof *l->work);
    return PHI_OK;
}

void locate_deinit(struct locate *l)
{
    phi_free(l->stages);
    phi_free(l->work);
}

int locate_n_stages(const struct locate *l)
{
    return 2 + 3 * l->n_layers;
}

/* "attention.0" -> 1, "mlp.0" -> 2, "hidden.1" -> 3, "attention.1" -> 4, ...; -1 = no stage. */
static int stage_of(const struct locate *l, const char *name)
{
    if (strcmp(name, "logits") == 0)
        return locate_n_stages(l) - 1;
    const char *dot = strchr(name, '.');
    int i = dot ? (int)strtol(dot + 1, NULL, 10) : -1;
    for (int part = 0; dot && part < 3; part++)
        if (strncmp(name, parts[part], (size_t)(dot - name)) == 0)
            return part == 2 ? 3 * i : 3 * i + 1 + part;
    return -1;
}

const char *locate_name(const struct locate *l, int stage, char *out)
{
    static const char *const said[] = {"attention", "MLP", "sum"};
    if (stage == 0)
        snprintf(out, LOCATE_NAME_SIZE, "the embeddings");
    else if (stage == locate_n_stages(l) - 1)
        snprintf(out, LOCATE_NAME_SIZE, "the logits (last norm and head)");
    else
        snprintf(out, LOCATE_NAME_SIZE, "layer %d, %s", (stage - 1) / 3, said[(stage - 1) % 3]);
    return out;
}

static void add_row(struct locate_stage *s, const double *want, const float *got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double d = got[i] - want[i];
        s->square_difference += d * d;
        s->square_wanted += want[i] * want[i];
    }
    s->n_rows++;
}

void locate_take(struct locate *l, const struct reference_prompt *prompt, const char *name,
                 size_t first_row, size_t n_rows, size_t n_cols, const float *data)
{
    const struct phi_tensor *t = reference_find(l->reference, prompt, name);
    int stage = stage_of(l, name);
    if (!t || stage < 0 || stage >= locate_n_stages(l))
        return;
    if (!reference_is_matrix(t, prompt->ids.n, n_cols)) {
        phi_fail(&l->err, PHI_ERR_FORMAT, "%s: %s: expected floats [%zu, %zu]", l->reference->path,
                 t->name.data, prompt->ids.n, n_cols);
        return;
    }
    for (size_t i = 0; i < n_rows; i++) {
        reference_row(t, first_row + i, l->work);
        add_row(&l->stages[stage], l->work, data + i * n_cols, n_cols);
    }
}

double locate_difference(const struct locate *l, int stage)
{
    const struct locate_stage *s = &l->stages[stage];
    if (s->square_wanted > 0)
        return sqrt(s->square_difference / s->square_wanted);
    return s->square_difference > 0 ? (double)INFINITY : 0;
}

int locate_first(const struct locate *l)
{
    for (int i = 0; i < locate_n_stages(l); i++)
        if (l->stages[i].n_rows > 0 && !(locate_difference(l, i) <= l->limit))
            return i;
    return -1;
}

double locate_before(const struct locate *l, int stage)
{
    double largest = 0;
    for (int i = 0; i < stage; i++)
        largest = fmax(largest, locate_difference(l, i));
    return largest;
}
