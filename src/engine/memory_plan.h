/* memory_plan.h: the arithmetic of what an engine will hold, done before anything is allocated. */
#ifndef PHI_ENGINE_MEMORY_PLAN_H
#define PHI_ENGINE_MEMORY_PLAN_H

#include "engine/model_api.h"

struct phi_memory {
    uint64_t total_bytes;     /* of the machine or the container */
    uint64_t available_bytes; /* without pushing anything else out */
    uint64_t process_bytes;   /* held by this process, beside mapped files */
};

/* From /proc and the container's limit. */
void phi_memory_read(struct phi_memory *out);

struct phi_memory_plan {
    uint32_t max_model_len, max_num_seqs, max_num_batched_tokens, block_size;
    uint32_t max_logit_rows;
    enum phi_dtype kv_dtype;
    bool prefix_caching;
    enum phi_policy policy;
    uint32_t n_blocks;
    size_t block_bytes;
    size_t share_bytes;     /* memory_utilization's, for pool and scratch; 0 = not given */
    size_t kv_bytes;        /* n_blocks * block_bytes */
    size_t workspace_bytes; /* of the forward pass */
    size_t logits_bytes;
    size_t sampler_bytes;
};

/* Resolves the options for this model and this memory. PHI_ERR_INVALID names the option;
 * PHI_ERR_MEMORY says what is needed, what there is, and the longest context that would fit. */
enum phi_status phi_memory_plan_make(const struct phi_model *m, const struct phi_engine_options *o,
                                     const struct phi_memory *memory, struct phi_memory_plan *out,
                                     struct phi_error *err);

#endif
