/* tokenizer_vocab.c: see tokenizer_vocab.h. */
#include "formats/tokenizer_vocab.h"
#include "base/alloc.h"
#include "base/size.h"

void phi_vocab_deinit(struct phi_vocab *v)
{
    phi_buf_deinit(&v->strings);
    phi_free(v->tokens);
    phi_free(v->slots);
    *v = (struct phi_vocab){0};
}

/* Eight bytes a step, multiplied by an odd constant and folded. */
static uint32_t hash_of(struct phi_str s)
{
    const uint64_t k = 0x9E3779B97F4A7C15u;
    uint64_t h = s.n * k, word;
    size_t i = 0;
    for (; i + 8 <= s.n; i += 8) {
        memcpy(&word, s.data + i, 8);
        h = (h ^ word) * k;
        h ^= h >> 32;
    }
    word = 0;
    if (i < s.n)
        memcpy(&word, s.data + i, s.n - i);
    h = (h ^ word) * k;
    return (uint32_t)(h ^ h >> 32);
}

static bool grow_slots(struct phi_vocab *v)
{
    size_t n = v->n_slots ? v->n_slots * 2 : 1024;
    int32_t *slots = phi_alloc(n, sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0xFF, n * sizeof *slots);
    for (uint32_t id = 0; id < v->n_ids; id++) {
        if (v->tokens[id].flags == 0)
            continue;
        size_t slot = v->tokens[id].hash & (n - 1);
        while (slots[slot] >= 0)
            slot = (slot + 1) & (n - 1);
        slots[slot] = (int32_t)id;
    }
    phi_free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    return true;
}

/* Makes tokens[id] exist. */
static bool grow_tokens(struct phi_vocab *v, uint32_t id)
{
    if (id >= v->capacity) {
        size_t capacity = phi_size_max((size_t)v->capacity * 2, phi_size_max((size_t)id + 1, 1024));
        struct phi_token *tokens = phi_realloc(v->tokens, capacity, sizeof *tokens);
        if (!tokens)
            return false;
        v->tokens = tokens;
        v->capacity = (uint32_t)capacity;
    }
    if (id >= v->n_ids) {
        memset(v->tokens + v->n_ids, 0, (id + 1 - v->n_ids) * sizeof *v->tokens);
        v->n_ids = id + 1;
    }
    return true;
}

/* The slot that holds `string`, or the free one where it would go. */
static size_t find_slot(const struct phi_vocab *v, struct phi_str string, uint32_t hash)
{
    size_t slot = hash & (v->n_slots - 1);
    for (; v->slots[slot] >= 0; slot = (slot + 1) & (v->n_slots - 1)) {
        const struct phi_token *t = &v->tokens[v->slots[slot]];
        if (t->hash == hash && phi_str_eq(phi_vocab_string(v, t), string))
            break;
    }
    return slot;
}

/* How much of a token an error shows: at most 80 bytes, whole characters. */
static int shown(struct phi_str s)
{
    size_t n = phi_size_min(s.n, 80);
    while (n > 0 && n < s.n && ((unsigned char)s.data[n] & 0xC0) == 0x80)
        n--;
    return (int)n;
}

enum phi_status phi_vocab_add(struct phi_vocab *v, int32_t id, struct phi_str string,
                              uint32_t flags, struct phi_error *err)
{
    const struct phi_token *taken = phi_vocab_at(v, id);
    if (taken) {
        struct phi_str other = phi_vocab_string(v, taken);
        return phi_fail(err, PHI_ERR_FORMAT, "id %d is declared for both \"%.*s\" and \"%.*s\"", id,
                        shown(other), other.data, shown(string), string.data);
    }
    if ((v->n_tokens + 1) * 2 > v->n_slots && !grow_slots(v))
        return phi_fail_memory(err, "the vocabulary's index", v->n_slots * 2 * sizeof *v->slots);
    uint32_t hash = hash_of(string);
    size_t slot = find_slot(v, string, hash);
    if (v->slots[slot] >= 0)
        return phi_fail(err, PHI_ERR_FORMAT, "token \"%.*s\" is declared with ids %d and %d",
                        shown(string), string.data, v->slots[slot], id);
    size_t offset = v->strings.n;
    if (offset > UINT32_MAX - string.n)
        return phi_fail(err, PHI_ERR_TOO_LONG, "the tokens take more than 4 GiB");
    phi_buf_append_str(&v->strings, string);
    if (v->strings.failed || !grow_tokens(v, (uint32_t)id))
        return phi_fail_memory(err, "the vocabulary", string.n + sizeof *v->tokens);
    v->tokens[id] = (struct phi_token){(uint32_t)offset, (uint32_t)string.n, hash, flags};
    v->slots[slot] = id;
    v->n_tokens++;
    return PHI_OK;
}

int32_t phi_vocab_find(const struct phi_vocab *v, struct phi_str string, uint32_t flags)
{
    if (v->n_slots == 0)
        return -1;
    int32_t id = v->slots[find_slot(v, string, hash_of(string))];
    return id >= 0 && v->tokens[id].flags & flags ? id : -1;
}
