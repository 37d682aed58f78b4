/* memory_plan.c: see memory_plan.h. */
#include "engine/memory_plan.h"
#include "base/file.h"
#include "base/size.h"
#include "engine/sampler.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MAX_SEQS = 65536,
    MAX_BATCHED_TOKENS = 1 << 20,
    MORE_LOGIT_ROWS = 31, /* beside one per sequence: a step's share of a prompt's logprobs */
    DEFAULT_KV_FRACTION = 4
};

/* ---------------------------------------------------------------- the machine */

/* a - b, but not below 0. */
static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* One number in a file of the container's control group; UINT64_MAX for "max" or no such file. */
static uint64_t cgroup_bytes(const char *path)
{
    unsigned long long value;
    FILE *f = fopen(path, "re");
    if (!f)
        return UINT64_MAX;
    int n = fscanf(f, "%llu", &value);
    fclose(f);
    return n == 1 ? value : UINT64_MAX;
}

void phi_memory_read(struct phi_memory *out)
{
    out->total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    out->process_bytes = 1024 * phi_file_number("/proc/self/status", "RssAnon:");
    out->available_bytes = 1024 * phi_file_number("/proc/meminfo", "MemAvailable:");
    if (out->available_bytes == 0)
        out->available_bytes = out->total_bytes;
    uint64_t limit = cgroup_bytes("/sys/fs/cgroup/memory.max");
    if (limit >= out->total_bytes)
        return;
    /* Files that were read, weights among them, count as used, but give way. */
    uint64_t used = less(cgroup_bytes("/sys/fs/cgroup/memory.current"),
                         phi_file_number("/sys/fs/cgroup/memory.stat", "inactive_file ") +
                             phi_file_number("/sys/fs/cgroup/memory.stat", "active_file "));
    uint64_t left = less(limit, used);
    out->total_bytes = limit;
    out->available_bytes = left < out->available_bytes ? left : out->available_bytes;
}

/* ---------------------------------------------------------------- options */

void phi_engine_options_init(struct phi_engine_options *o)
{
    *o = (struct phi_engine_options){
        .max_num_seqs = 64,
        .max_num_batched_tokens = 512,
        .block_size = 32,
        .kv_dtype = PHI_AUTO,
        .enable_prefix_caching = true,
    };
}

static enum phi_status check_options(const struct phi_engine_options *o, int max_positions,
                                     struct phi_error *err)
{
    enum phi_status bad = PHI_ERR_INVALID;
    if (o->max_model_len < 0)
        return phi_fail(err, bad, "max_model_len must be at least 1, got %d.", o->max_model_len);
    if (o->max_model_len > max_positions)
        return phi_fail(err, bad,
                        "max_model_len (%d) is greater than the model's longest context "
                        "(max_position_embeddings=%d); give %d or less.",
                        o->max_model_len, max_positions, max_positions);
    if (o->max_num_seqs < 1 || o->max_num_seqs > MAX_SEQS)
        return phi_fail(err, bad, "max_num_seqs must be between 1 and %d, got %d.", MAX_SEQS,
                        o->max_num_seqs);
    if (o->max_num_batched_tokens < 1 || o->max_num_batched_tokens > MAX_BATCHED_TOKENS)
        return phi_fail(err, bad, "max_num_batched_tokens must be between 1 and %d, got %d.",
                        MAX_BATCHED_TOKENS, o->max_num_batched_tokens);
    if (o->max_num_batched_tokens < o->max_num_seqs)
        return phi_fail(
            err, bad,
            "max_num_batched_tokens (%d) must be greater than or equal to max_num_seqs (%d).",
            o->max_num_batched_tokens, o->max_num_seqs);
    if (o->block_size < 16 || o->block_size > 256 || o->block_size % 16 != 0)
        return phi_fail(err, bad, "block_size must be a multiple of 16 from 16 to 256, got %d.",
                        o->block_size);
    if (!(o->memory_utilization >= 0 && o->memory_utilization <= 1))
        return phi_fail(err, bad, "memory_utilization must be in (0, 1], or 0 for none, got %g.",
                        o->memory_utilization);
    if (o->max_waiting < 0)
        return phi_fail(err, bad, "max_waiting must be at least 0, got %d.", o->max_waiting);
    if (o->scheduling_policy != PHI_FCFS && o->scheduling_policy != PHI_PRIORITY)
        return phi_fail(err, bad, "scheduling_policy: %d is no policy.", (int)o->scheduling_policy);
    if (o->kv_dtype < PHI_AUTO || o->kv_dtype > PHI_FLOAT16)
        return phi_fail(err, bad, "kv_dtype: %d is no dtype.", (int)o->kv_dtype);
    return PHI_OK;
}

/* ---------------------------------------------------------------- the plan */

static double gib(uint64_t n_bytes)
{
    return (double)n_bytes / (1024.0 * 1024.0 * 1024.0);
}

/* Bytes for one sequence of n tokens; SIZE_MAX when there is no such number. */
static size_t sequence_bytes(const struct phi_memory_plan *p, size_t n)
{
    size_t n_bytes;
    bool fits = phi_size_mul(phi_size_ceil_div(n, p->block_size), p->block_bytes, &n_bytes);
    return fits ? n_bytes : SIZE_MAX;
}

static enum phi_status fail_too_small(const struct phi_memory_plan *p, size_t n_tokens,
                                      size_t room_bytes, struct phi_error *err)
{
    size_t longest = room_bytes / p->block_bytes * p->block_size;
    return phi_fail(
        err, PHI_ERR_MEMORY,
        "the KV cache of one sequence of max_model_len=%zu tokens needs %.3f GiB, but only "
        "%.3f GiB are there for it; the longest context that fits is %zu tokens: lower "
        "max_model_len, or give the KV cache more memory.",
        n_tokens, gib(sequence_bytes(p, n_tokens)), gib(room_bytes), longest);
}

/* How many bytes the pool may have at most. */
static size_t room_for_kv(const struct phi_memory_plan *p, const struct phi_engine_options *o,
                          const struct phi_memory *memory)
{
    uint64_t fixed = p->workspace_bytes + p->logits_bytes + p->sampler_bytes;
    uint64_t room = less(memory->available_bytes, fixed);
    if (o->kv_bytes > 0 && o->kv_bytes < room)
        room = o->kv_bytes;
    if (p->share_bytes > 0)
        room = phi_size_min(room, less(p->share_bytes, fixed));
    return room > SIZE_MAX ? SIZE_MAX : (size_t)room;
}

/* What memory_utilization leaves beside the weights, mapped or not, and the rest of the process. A
 * share that is not there is refused now, not when the pool has filled. */
static enum phi_status plan_share(struct phi_memory_plan *p, const struct phi_model *m,
                                  const struct phi_engine_options *o,
                                  const struct phi_memory *memory, struct phi_error *err)
{
    struct phi_net_info net;
    if (o->memory_utilization == 0 || o->kv_bytes > 0)
        return PHI_OK;
    phi_net_get_info(m->net, &net);
    double total = (double)memory->total_bytes, wanted = o->memory_utilization * total;
    double there = (double)memory->available_bytes + (double)memory->process_bytes;
    if (wanted > there)
        return phi_fail(err, PHI_ERR_MEMORY,
                        "memory_utilization=%g asks for %.2f GiB of the %.2f GiB of memory, but "
                        "only %.2f GiB are available: lower it to %.2f, or set the size of the KV "
                        "cache itself.",
                        o->memory_utilization, gib((uint64_t)wanted), gib(memory->total_bytes),
                        gib((uint64_t)there), floor(there / total * 100) / 100);
    uint64_t held = memory->process_bytes + (m->weights_in_memory ? 0 : net.mapped_bytes);
    p->share_bytes = (size_t)phi_size_max(less((uint64_t)wanted, held), 1);
    return PHI_OK;
}

/* Of the room, what max_num_seqs sequences of the longest context need, at most a quarter of the
 * machine's memory, at least one sequence. */
static size_t default_kv_bytes(const struct phi_memory_plan *p, size_t one, size_t room,
                               const struct phi_memory *memory)
{
    size_t all, most = (size_t)(memory->total_bytes / DEFAULT_KV_FRACTION);
    if (!phi_size_mul(one, p->max_num_seqs, &all))
        all = SIZE_MAX;
    size_t wanted = phi_size_min(all, phi_size_max(most, one));
    return phi_size_min(wanted, room);
}

static enum phi_status plan_kv(struct phi_memory_plan *p, const struct phi_engine_options *o,
                               int max_positions, const struct phi_memory *memory,
                               struct phi_error *err)
{
    size_t length = (size_t)(o->max_model_len > 0 ? o->max_model_len : max_positions);
    size_t room = room_for_kv(p, o, memory), one = sequence_bytes(p, length);
    if (o->kv_bytes > room)
        return phi_fail(err, PHI_ERR_MEMORY,
                        "kv_bytes asks for %.3f GiB, but only %.3f GiB are available.",
                        gib(o->kv_bytes), gib(room));
    if (one > room && (o->max_model_len > 0 || room < p->block_bytes))
        return fail_too_small(p, length, room, err);
    bool all = o->kv_bytes > 0 || p->share_bytes > 0;
    size_t kv_bytes = all ? room : default_kv_bytes(p, one, room, memory);
    size_t n_blocks = phi_size_min(kv_bytes / p->block_bytes, INT32_MAX / p->block_size);
    p->n_blocks = (uint32_t)n_blocks;
    p->kv_bytes = n_blocks * p->block_bytes;
    p->max_model_len = (uint32_t)phi_size_min(length, n_blocks * p->block_size);
    return PHI_OK;
}

enum phi_status phi_memory_plan_make(const struct phi_model *m, const struct phi_engine_options *o,
                                     const struct phi_memory *memory, struct phi_memory_plan *out,
                                     struct phi_error *err)
{
    if (!m->net)
        return phi_fail(err, PHI_ERR_INVALID, "the model was opened without weights");
    const struct phi_config *c = &m->config;
    PHI_TRY(check_options(o, c->max_position_embeddings, err));
    struct phi_memory_plan p = {
        .max_num_seqs = (uint32_t)o->max_num_seqs,
        .max_num_batched_tokens = (uint32_t)o->max_num_batched_tokens,
        .block_size = (uint32_t)o->block_size,
        .kv_dtype = o->kv_dtype == PHI_AUTO ? phi_net_kv_dtype(m->net) : o->kv_dtype,
        .prefix_caching = o->enable_prefix_caching,
        .policy = o->scheduling_policy,
    };
    size_t rows = phi_size_min(p.max_num_seqs + MORE_LOGIT_ROWS, p.max_num_batched_tokens);
    p.max_logit_rows = (uint32_t)rows;
    p.block_bytes = phi_kv_block_bytes(m->net, p.block_size, p.kv_dtype);
    p.workspace_bytes = phi_workspace_bytes(m->net, p.max_num_batched_tokens, rows, m->n_threads);
    p.logits_bytes = rows * (size_t)c->vocab_size * sizeof(float);
    p.sampler_bytes = (size_t)m->n_threads * phi_sampler_bytes((size_t)c->vocab_size);
    PHI_TRY(plan_share(&p, m, o, memory, err));
    PHI_TRY(plan_kv(&p, o, c->max_position_embeddings, memory, err));
    *out = p;
    return PHI_OK;
}
