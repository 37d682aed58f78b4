/* tokenizer_model.c: reads the member "model" of tokenizer.json: vocabulary, merges and flags. */
#include "formats/tokenizer_impl.h"
#include "formats/tokenizer_scan.h"
#include "base/utf8.h"

static enum phi_status read_vocab(struct phi_scan *s, struct phi_vocab *vocab,
                                  struct phi_error *err)
{
    PHI_TRY(phi_scan_expect(s, '{', err));
    if (phi_scan_accept(s, '}'))
        return phi_scan_end(s, err);
    for (bool more = true; more;) {
        struct phi_str token;
        int32_t id;
        PHI_TRY(phi_scan_string(s, &token, err));
        if (!phi_utf8_valid(token))
            return phi_scan_fail(s, err, "a token is not valid UTF-8");
        PHI_TRY(phi_scan_expect(s, ':', err));
        PHI_TRY(phi_scan_integer(s, PHI_TOKEN_MAX_ID, &id, err));
        enum phi_status status = phi_vocab_add(vocab, id, token, PHI_TOKEN_MODEL, err);
        if (status != PHI_OK)
            return phi_fail_prefix(err, status, "%s", s->name);
        PHI_TRY(phi_scan_next(s, '}', &more, err));
    }
    return phi_scan_end(s, err);
}

/* Merge rules as they are read: three ids each (left, right, both). */
struct rules {
    const struct phi_vocab *vocab;
    struct phi_ids ids;
    struct phi_buf joined;
};

static enum phi_status find_part(const struct rules *r, const struct phi_scan *s,
                                 struct phi_str part, int32_t *id, struct phi_error *err)
{
    *id = phi_vocab_find(r->vocab, part, PHI_TOKEN_MODEL);
    if (*id >= 0)
        return PHI_OK;
    return phi_fail(err, PHI_ERR_FORMAT, "%s: rule %zu: \"%.*s\" is not in the vocabulary", s->name,
                    r->ids.n / 3, (int)(part.n < 80 ? part.n : 80), part.data);
}

/* Adds a part to the rule that is being read. */
static enum phi_status add_part(struct rules *r, const struct phi_scan *s, struct phi_str part,
                                struct phi_error *err)
{
    int32_t id;
    PHI_TRY(find_part(r, s, part, &id, err));
    phi_ids_append(&r->ids, id);
    phi_buf_append_str(&r->joined, part);
    return PHI_OK;
}

/* The newer form: ["a", "b"]. */
static enum phi_status read_rule_pair(struct phi_scan *s, struct rules *r, struct phi_error *err)
{
    struct phi_str part;
    PHI_TRY(phi_scan_expect(s, '[', err));
    PHI_TRY(phi_scan_string(s, &part, err));
    PHI_TRY(add_part(r, s, part, err));
    PHI_TRY(phi_scan_expect(s, ',', err));
    PHI_TRY(phi_scan_string(s, &part, err));
    PHI_TRY(add_part(r, s, part, err));
    return phi_scan_expect(s, ']', err);
}

/* The older form: "a b", where neither part can hold a space. A line of version, left from
 * merges.txt, is no rule. */
static enum phi_status read_rule_string(struct phi_scan *s, struct rules *r, bool *is_rule,
                                        struct phi_error *err)
{
    struct phi_str text;
    PHI_TRY(phi_scan_string(s, &text, err));
    *is_rule = !phi_str_starts_with(text, PHI_STR("#version"));
    if (!*is_rule)
        return PHI_OK;
    const char *space = memchr(text.data, ' ', text.n);
    size_t n_left = space ? (size_t)(space - text.data) : 0;
    if (!space || memchr(space + 1, ' ', text.n - n_left - 1))
        return phi_scan_fail(s, err, "expected two tokens with one space between them");
    PHI_TRY(add_part(r, s, (struct phi_str){text.data, n_left}, err));
    return add_part(r, s, (struct phi_str){space + 1, text.n - n_left - 1}, err);
}

static enum phi_status read_rule(struct phi_scan *s, struct rules *r, struct phi_error *err)
{
    bool is_rule = true;
    phi_buf_clear(&r->joined);
    if (phi_scan_accept(s, '[')) {
        s->at--;
        PHI_TRY(read_rule_pair(s, r, err));
    } else {
        PHI_TRY(read_rule_string(s, r, &is_rule, err));
    }
    if (is_rule && !r->joined.failed) {
        int32_t id;
        PHI_TRY(find_part(r, s, phi_buf_str(&r->joined), &id, err));
        phi_ids_append(&r->ids, id);
    }
    if (r->ids.failed || r->joined.failed)
        return phi_fail_memory(err, s->name, r->ids.n * sizeof(int32_t));
    return PHI_OK;
}

static enum phi_status read_rules(struct phi_scan *s, struct rules *r, struct phi_error *err)
{
    PHI_TRY(phi_scan_expect(s, '[', err));
    if (phi_scan_accept(s, ']'))
        return phi_scan_end(s, err);
    for (bool more = true; more;) {
        PHI_TRY(read_rule(s, r, err));
        PHI_TRY(phi_scan_next(s, ']', &more, err));
    }
    return phi_scan_end(s, err);
}

static enum phi_status load_vocab(struct phi_tokenizer *t, struct phi_str text, const char *name,
                                  struct phi_error *err)
{
    struct phi_scan s;
    phi_scan_init(&s, text, "model.vocab");
    enum phi_status status = read_vocab(&s, &t->vocab, err);
    phi_scan_deinit(&s);
    return status == PHI_OK ? PHI_OK : phi_fail_prefix(err, status, "%s", name);
}

static enum phi_status load_merges(struct phi_tokenizer *t, struct phi_str text, const char *name,
                                   struct phi_error *err)
{
    struct phi_scan s;
    struct rules r = {.vocab = &t->vocab};
    phi_scan_init(&s, text, "model.merges");
    enum phi_status status = read_rules(&s, &r, err);
    size_t n = r.ids.n / 3;
    if (status == PHI_OK)
        status = phi_bpe_init(&t->bpe, &t->vocab, n, err);
    for (size_t i = 0; status == PHI_OK && i < n; i++) {
        const int32_t *rule = r.ids.data + 3 * i;
        phi_bpe_add_merge(&t->bpe, rule[0], rule[1], (uint32_t)i, rule[2]);
    }
    phi_scan_deinit(&s);
    phi_ids_deinit(&r.ids);
    phi_buf_deinit(&r.joined);
    return status == PHI_OK ? PHI_OK : phi_fail_prefix(err, status, "%s", name);
}

/* A prefix or suffix that marks where in a word a token stands: no Phi vocabulary has them. */
static enum phi_status refuse_affix(const json_t *model, const char *field, const char *name,
                                    struct phi_error *err)
{
    struct phi_str affix = {"", 0};
    PHI_TRY(phi_json_get_str(model, name, field, &affix, err));
    if (affix.n)
        return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: model.%s \"%s\" is not supported", name,
                        field, affix.data);
    return PHI_OK;
}

/* Dropout is for training; here it is ignored, as the library does at its value null. */
static enum phi_status load_flags(struct phi_tokenizer *t, const json_t *model, const char *name,
                                  struct phi_error *err)
{
    struct phi_bpe *bpe = &t->bpe;
    struct phi_str unk = {NULL, 0};
    PHI_TRY(phi_json_get_bool(model, name, "byte_fallback", &bpe->byte_fallback, err));
    PHI_TRY(phi_json_get_bool(model, name, "fuse_unk", &bpe->fuse_unk, err));
    PHI_TRY(phi_json_get_bool(model, name, "ignore_merges", &bpe->ignore_merges, err));
    PHI_TRY(phi_json_get_str(model, name, "unk_token", &unk, err));
    PHI_TRY(refuse_affix(model, "continuing_subword_prefix", name, err));
    PHI_TRY(refuse_affix(model, "end_of_word_suffix", name, err));
    bpe->has_unk = unk.data != NULL;
    bpe->unk_id = bpe->has_unk ? phi_vocab_find(&t->vocab, unk, PHI_TOKEN_MODEL) : -1;
    return PHI_OK;
}

enum phi_status phi_tokenizer_load_model(struct phi_tokenizer *t, const json_t *model,
                                         struct phi_str vocab, struct phi_str merges,
                                         const char *name, struct phi_error *err)
{
    struct phi_str type = PHI_STR("BPE"); /* old files leave it out */
    if (!json_is_object(model))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: model: expected an object", name);
    PHI_TRY(phi_json_get_str(model, name, "type", &type, err));
    if (!phi_str_eq_c(type, "BPE"))
        return phi_fail(err, PHI_ERR_UNSUPPORTED, "%s: model.type \"%s\" is not supported", name,
                        type.data);
    if (!vocab.data)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: model.vocab: expected an object", name);
    if (!merges.data)
        return phi_fail(err, PHI_ERR_FORMAT, "%s: model.merges: expected an array", name);
    PHI_TRY(load_vocab(t, vocab, name, err));
    PHI_TRY(load_merges(t, merges, name, err));
    return load_flags(t, model, name, err);
}
