/* tokenizer_load_added.c: reads "added_tokens". A token has the id that the file declares for it,
 * gaps or not: the weights and the stop ids count on it. */
#include "formats/tokenizer_load.h"
#include "base/log.h"

/* Reads one entry. An empty content is no token, as in the library. */
static enum phi_status read_added(const struct phi_member *m, const json_t *v,
                                  struct phi_added_token *out)
{
    int64_t id = -1;
    *out = (struct phi_added_token){0};
    PHI_TRY(phi_member_string(m, v, "content", &out->content));
    PHI_TRY(phi_json_get_int(v, m->file, "id", 0, PHI_TOKEN_MAX_ID, &id, m->err));
    if (id < 0)
        return phi_member_malformed(m, "id is missing");
    out->id = (int32_t)id;
    PHI_TRY(phi_json_get_bool(v, m->file, "single_word", &out->single_word, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "lstrip", &out->lstrip, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "rstrip", &out->rstrip, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "special", &out->special, m->err));
    out->normalized = !out->special;
    return phi_json_get_bool(v, m->file, "normalized", &out->normalized, m->err);
}

/* The pattern that a token matches, in the trie where it belongs. */
static enum phi_status index_added(const struct phi_member *m, int32_t index, uint32_t *flags)
{
    struct phi_added_token *token = &m->t->added[index];
    struct phi_trie *trie = &m->t->raw_trie;
    token->pattern = token->content;
    if (token->normalized) {
        struct phi_buf form = {0}, other = {0};
        trie = &m->t->normalized_trie;
        phi_text_rules_apply(&m->t->normalizer, token->content, &form, &other);
        token->pattern = form.failed ? (struct phi_str){NULL, 0}
                                     : phi_arena_dup(&m->t->arena, phi_buf_str(&form));
        phi_buf_deinit(&form);
        phi_buf_deinit(&other);
        if (!token->pattern.data)
            return phi_fail_memory(m->err, m->file, token->content.n);
        if (!phi_str_eq(token->pattern, token->content))
            *flags |= PHI_TOKEN_REWRITTEN;
    }
    if (token->pattern.n == 0)
        return phi_member_malformed(m, "the normalizer leaves nothing of a token");
    enum phi_status status = phi_trie_add(trie, token->pattern, index, m->err);
    if (status != PHI_OK)
        return phi_fail_prefix(m->err, status, "%s: %s: \"%.80s\"", m->file, m->name,
                               token->content.data);
    return PHI_OK;
}

/* Enters a token into the vocabulary. A string that the model's vocabulary has keeps the id it has
 * there. `*next_id` is what the reference library would give the next new one: it counts on from
 * the vocabulary's end and ignores what the file says. Returns whether the two differ. */
static enum phi_status enter_added(const struct phi_member *m, struct phi_added_token *token,
                                   uint32_t flags, int32_t *next_id, bool *differs)
{
    struct phi_vocab *vocab = &m->t->vocab;
    int32_t known = phi_vocab_find(vocab, token->content, PHI_TOKEN_MODEL);
    if (known >= 0) {
        *differs = known != token->id;
        token->id = known;
        if (vocab->tokens[known].flags & PHI_TOKEN_ADDED)
            return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: \"%.80s\" is declared twice", m->file,
                            m->name, token->content.data);
        vocab->tokens[known].flags |= flags;
        return PHI_OK;
    }
    *differs = token->id != (*next_id)++;
    enum phi_status status = phi_vocab_add(vocab, token->id, token->content, flags, m->err);
    return status == PHI_OK ? PHI_OK : phi_fail_prefix(m->err, status, "%s: %s", m->file, m->name);
}

enum phi_status phi_tokenizer_load_added(const struct phi_member *m, const json_t *v)
{
    struct phi_tokenizer *t = m->t;
    const json_t *entry;
    size_t i;
    bool warned = false;
    int32_t next_id = (int32_t)t->vocab.n_tokens;
    if (!v)
        return PHI_OK;
    if (!json_is_array(v))
        return phi_member_malformed(m, "expected an array");
    t->added = phi_arena_alloc(&t->arena, json_array_size(v) + 1, sizeof *t->added);
    if (!t->added)
        return phi_fail_memory(m->err, m->name, json_array_size(v) * sizeof *t->added);
    json_array_foreach(v, i, entry)
    {
        struct phi_added_token *token = &t->added[t->n_added];
        bool differs;
        PHI_TRY(read_added(m, entry, token));
        if (token->content.n == 0)
            continue;
        int32_t declared = token->id;
        uint32_t flags = PHI_TOKEN_ADDED | (token->special ? PHI_TOKEN_SPECIAL : 0);
        PHI_TRY(index_added(m, (int32_t)t->n_added, &flags));
        PHI_TRY(enter_added(m, token, flags, &next_id, &differs));
        t->n_added++;
        if (differs && !warned)
            phi_log(
                PHI_LOG_WARNING,
                "%s: added token \"%.80s\" has id %d, where a program that numbers added tokens "
                "itself would use another (declared: %d)",
                m->file, token->content.data, token->id, declared);
        warned |= differs;
    }
    return PHI_OK;
}
