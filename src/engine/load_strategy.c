/* load_strategy.c: see load_strategy.h. */
#include "engine/load_strategy.h"
#include "base/huge_files.h"
#include "engine/memory_plan.h"
#include "formats/safetensors.h"

enum {
    DELAY_MS = 300,         /* a first answer is not held up */
    WORTH_BYTES = 32 << 20, /* less than this is in the processor's caches anyway */
};

struct loading {
    const struct phi_model_options *o;
    uint64_t done, total;
};

static void show_prefetch(void *context, uint64_t done, uint64_t total)
{
    const struct loading *l = context;
    if (l->o->progress)
        l->o->progress(l->o->progress_context, "prefetching", done, total);
}

static void prefetch(const struct phi_model *m, struct loading *l)
{
    struct phi_huge_files f = {.read_all = true, .progress = show_prefetch, .context = l};
    f.maps = phi_safetensors_maps(m->weights, &f.n_maps);
    phi_huge_files_make(&f);
}

static void show_read(void *context, uint64_t n_bytes)
{
    struct loading *l = context;
    l->done += n_bytes;
    if (l->o->progress)
        l->o->progress(l->o->progress_context, "reading", l->done, l->total);
}

static enum phi_status read_in(struct phi_model *m, struct loading *l, struct phi_error *err)
{
    struct phi_memory memory;
    size_t n;
    const struct phi_map *maps = phi_safetensors_maps(m->weights, &n);
    phi_memory_read(&memory);
    if (l->total > memory.available_bytes)
        return phi_fail(err, PHI_ERR_MEMORY,
                        "%s: weights of %.2f GiB cannot be read into memory, where %.2f GiB are "
                        "available; any other load strategy leaves them in their files.",
                        m->path, (double)l->total / (1 << 30),
                        (double)memory.available_bytes / (1 << 30));
    for (size_t i = 0; i < n; i++)
        PHI_TRY(phi_map_read_in(&maps[i], m->path, show_read, l, err));
    m->weights_in_memory = true;
    return PHI_OK;
}

enum phi_status phi_load_before(struct phi_model *m, const struct phi_model_options *o,
                                struct phi_error *err)
{
    struct loading l = {.o = o, .total = phi_safetensors_file_bytes(m->weights)};
    switch (o->load_strategy) {
    case PHI_LOAD_AUTO:
    case PHI_LOAD_LAZY:
        return PHI_OK;
    case PHI_LOAD_PREFETCH:
        prefetch(m, &l);
        return PHI_OK;
    case PHI_LOAD_EAGER:
        return read_in(m, &l, err);
    }
    return phi_fail(err, PHI_ERR_INVALID, "load_strategy: %d is no strategy.",
                    (int)o->load_strategy);
}

struct phi_huge_thread *phi_load_behind(const struct phi_model *m, enum phi_load_strategy s)
{
    struct phi_net_info net;
    size_t n;
    if (s != PHI_LOAD_AUTO || !m->weights)
        return NULL;
    const struct phi_map *maps = phi_safetensors_maps(m->weights, &n);
    phi_net_get_info(m->net, &net);
    bool used = net.mapped_bytes > phi_safetensors_file_bytes(m->weights) / 2;
    if (!used || net.mapped_bytes < WORTH_BYTES)
        return NULL;
    return phi_huge_thread_start(maps, n, DELAY_MS);
}
