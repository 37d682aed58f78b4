/* tokenizer_vocab.h: token strings by id, and ids by string. Strings lie one after another in one
 * buffer; an open-addressing hash table of ids finds them. */
#ifndef PHI_FORMATS_TOKENIZER_VOCAB_H
#define PHI_FORMATS_TOKENIZER_VOCAB_H

#include "base/buf.h"

/* Ids are indices of arrays, so a hostile file must not declare one in the billions. */
enum { PHI_TOKEN_MAX_ID = (1 << 20) - 1 };

enum {
    PHI_TOKEN_MODEL = 1,    /* in model.vocab: BPE may produce it */
    PHI_TOKEN_ADDED = 2,    /* in added_tokens */
    PHI_TOKEN_SPECIAL = 4,  /* an added token marked special */
    PHI_TOKEN_REWRITTEN = 8 /* an added token that decodes to its normalized form */
};

struct phi_token {
    uint32_t offset; /* into strings */
    uint32_t n;      /* bytes */
    uint32_t hash;
    uint32_t flags; /* 0: there is no such token */
};

/* A zeroed struct is an empty vocabulary. */
struct phi_vocab {
    struct phi_buf strings;
    struct phi_token *tokens; /* [n_ids] */
    uint32_t n_ids;           /* 1 + the greatest id */
    uint32_t capacity;
    int32_t *slots; /* [n_slots], a power of two; -1 = free */
    size_t n_slots;
    size_t n_tokens;
};

void phi_vocab_deinit(struct phi_vocab *v);

/* Adds a token, 0 <= id <= PHI_TOKEN_MAX_ID. PHI_ERR_FORMAT, naming both, when the id or the string
 * is taken. */
enum phi_status phi_vocab_add(struct phi_vocab *v, int32_t id, struct phi_str string,
                              uint32_t flags, struct phi_error *err);

/* The id of a string whose token has a flag of `flags`; -1 when there is none. */
int32_t phi_vocab_find(const struct phi_vocab *v, struct phi_str string, uint32_t flags);

/* NULL when no token has this id. */
static inline const struct phi_token *phi_vocab_at(const struct phi_vocab *v, int32_t id)
{
    if (id < 0 || (uint32_t)id >= v->n_ids || v->tokens[id].flags == 0)
        return NULL;
    return &v->tokens[id];
}

static inline struct phi_str phi_vocab_string(const struct phi_vocab *v, const struct phi_token *t)
{
    return (struct phi_str){v->strings.data + t->offset, t->n};
}

#endif
