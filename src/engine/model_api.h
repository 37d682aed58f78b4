/* model_api.h: what is behind the public struct phi_model: the opened parts of one checkpoint
 * folder. Immutable once open; shared by all engines and threads. */
#ifndef PHI_ENGINE_MODEL_API_H
#define PHI_ENGINE_MODEL_API_H

#include "formats/chat_template.h"
#include "formats/tokenizer.h"
#include "model/net.h"

struct phi_model {
    char *path;               /* the folder */
    struct phi_config config; /* stop_ids: the union of tokenizer, config and generation_config */
    bool has_config;          /* false: no_weights, and no config.json that could be read */
    struct phi_tokenizer *tokenizer;         /* NULL: the folder has none; token ids only */
    struct phi_chat_template *chat_template; /* of an empty text when the checkpoint has none */
    bool has_chat_template;
    struct phi_safetensors *weights;         /* NULL: none, dummy or counted ones */
    bool weights_in_memory;                  /* read there by PHI_LOAD_EAGER, not mapped */
    struct phi_huge_thread *huge_thread;     /* of PHI_LOAD_AUTO; NULL: none */
    struct phi_net *net;                     /* NULL: no_weights */
    bool count_only;                         /* the net's matrices have no data */
    const struct phi_kernels *kernels;
    int n_threads;
    int longest_token_bytes; /* of the vocabulary; 0 = none */
    int32_t eos_id; /* primary: the tokenizer's, else the config's first; -1 = none */
};

#endif
