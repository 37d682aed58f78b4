/* tokenizer_load.c: reads the pipeline of tokenizer.json. What is accepted is computed exactly; any
 * other component is PHI_ERR_UNSUPPORTED and named. "truncation" and "padding" are ignored: they
 * are defaults for calls of the library, which its users override. */
#include "formats/tokenizer_impl.h"
#include "formats/tokenizer_scan.h"
#include "base/log.h"
#include "base/utf8.h"

/* A member of the file that is being read. */
struct member {
    struct phi_tokenizer *t;
    const char *file;
    const char *name; /* "normalizer", ... */
    struct phi_error *err;
};

static enum phi_status malformed(const struct member *m, const char *what)
{
    return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: %s", m->file, m->name, what);
}

static enum phi_status unsupported(const struct member *m, const char *what, const char *value)
{
    return phi_fail(m->err, PHI_ERR_UNSUPPORTED, "%s: %s: %s \"%s\" is not supported", m->file,
                    m->name, what, value);
}

/* The "type" of a component, which must be an object. */
static enum phi_status get_type(const struct member *m, const json_t *v, struct phi_str *type)
{
    *type = (struct phi_str){NULL, 0};
    if (!json_is_object(v))
        return malformed(m, "expected an object");
    PHI_TRY(phi_json_get_str(v, m->file, "type", type, m->err));
    return type->data ? PHI_OK : malformed(m, "has no type");
}

/* A string field that must be there, copied into the tokenizer's arena. */
static enum phi_status get_string(const struct member *m, const json_t *v, const char *field,
                                  struct phi_str *out)
{
    struct phi_str s = {NULL, 0};
    if (!json_is_object(v))
        return malformed(m, "expected an object");
    PHI_TRY(phi_json_get_str(v, m->file, field, &s, m->err));
    if (!s.data)
        return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: %s is missing", m->file, m->name, field);
    *out = phi_arena_dup(&m->t->arena, s);
    return out->data ? PHI_OK : phi_fail_memory(m->err, m->file, s.n);
}

/* An array field that must be there. */
static enum phi_status get_array(const struct member *m, const json_t *v, const char *field,
                                 const json_t **out)
{
    *out = phi_json_field(v, field);
    if (json_is_array(*out))
        return PHI_OK;
    return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: %s: expected an array", m->file, m->name,
                    field);
}

/* --- Rules on text ------------------------------------------------------------------------- */

static enum phi_status add_rule(const struct member *m, struct phi_text_rules *rules,
                                struct phi_text_rule rule)
{
    if (rules->n == PHI_MAX_TEXT_RULES)
        return phi_fail(m->err, PHI_ERR_UNSUPPORTED, "%s: %s: more than %d steps", m->file, m->name,
                        PHI_MAX_TEXT_RULES);
    rules->rules[rules->n++] = rule;
    return PHI_OK;
}

static enum phi_status add_replace(const struct member *m, const json_t *v,
                                   struct phi_text_rules *rules)
{
    struct phi_text_rule rule = {0};
    const json_t *pattern = phi_json_field(v, "pattern");
    if (json_is_object(pattern) && phi_json_field(pattern, "Regex"))
        return unsupported(m, "Replace pattern", "Regex");
    PHI_TRY(get_string(m, pattern, "String", &rule.from));
    PHI_TRY(get_string(m, v, "content", &rule.to));
    if (rule.from.n == 0)
        return malformed(m, "Replace: the pattern is empty");
    return add_rule(m, rules, rule);
}

static enum phi_status add_prepend(const struct member *m, const json_t *v,
                                   struct phi_text_rules *rules)
{
    struct phi_text_rule rule = {.prepend = true};
    PHI_TRY(get_string(m, v, "prepend", &rule.to));
    return add_rule(m, rules, rule);
}

/* Appends `text` with a rule applied. */
static void apply_rule(const struct phi_text_rule *rule, struct phi_str text, struct phi_buf *out)
{
    if (rule->prepend) {
        if (text.n)
            phi_buf_append_str(out, rule->to);
        phi_buf_append_str(out, text);
        return;
    }
    const char *end = text.data + text.n, *found;
    while (text.n && (found = memmem(text.data, text.n, rule->from.data, rule->from.n))) {
        phi_buf_append(out, text.data, (size_t)(found - text.data));
        phi_buf_append_str(out, rule->to);
        text.data = found + rule->from.n;
        text.n = (size_t)(end - text.data);
    }
    phi_buf_append_str(out, text);
}

void phi_text_rules_apply(const struct phi_text_rules *rules, struct phi_str text,
                          struct phi_buf *out, struct phi_buf *other)
{
    phi_buf_clear(out);
    if (rules->n == 0)
        phi_buf_append_str(out, text);
    for (size_t i = 0; i < rules->n; i++) {
        struct phi_buf from = *out; /* the result so far becomes the input */
        *out = *other;
        *other = from;
        phi_buf_clear(out);
        apply_rule(&rules->rules[i], i == 0 ? text : phi_buf_str(other), out);
        if (other->failed)
            out->failed = true;
    }
}

/* --- Normalizer ------------------------------------------------------------------------------ */

static enum phi_status load_normalizer(const struct member *m, const json_t *v)
{
    struct phi_str type;
    if (!v)
        return PHI_OK;
    PHI_TRY(get_type(m, v, &type));
    if (phi_str_eq_c(type, "Prepend"))
        return add_prepend(m, v, &m->t->normalizer);
    if (phi_str_eq_c(type, "Replace"))
        return add_replace(m, v, &m->t->normalizer);
    if (!phi_str_eq_c(type, "Sequence"))
        return unsupported(m, "type", type.data);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(get_array(m, v, "normalizers", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_normalizer(m, step));
    return PHI_OK;
}

/* --- Pre-tokenizer --------------------------------------------------------------------------- */

/* Splits at a known pattern. Its matches cover every character, so keeping the matches (Removed and
 * inverted) and isolating them are the same. */
static enum phi_status load_split(const struct member *m, const json_t *v)
{
    struct phi_str behavior, regex;
    bool invert = false;
    const json_t *pattern = phi_json_field(v, "pattern");
    if (m->t->split != PHI_SPLIT_NONE || m->t->bpe.byte_level)
        return unsupported(m, "another step before", "Split");
    PHI_TRY(get_string(m, v, "behavior", &behavior));
    PHI_TRY(phi_json_get_bool(v, m->file, "invert", &invert, m->err));
    if (!phi_str_eq_c(behavior, "Isolated") && !(phi_str_eq_c(behavior, "Removed") && invert))
        return unsupported(m, "Split behavior", behavior.data);
    if (json_is_object(pattern) && phi_json_field(pattern, "String"))
        return unsupported(m, "Split pattern", "String");
    PHI_TRY(get_string(m, pattern, "Regex", &regex));
    if (!phi_pretokenize_recognize(regex, &m->t->split))
        return unsupported(m, "Split pattern", regex.data);
    return PHI_OK;
}

static enum phi_status load_byte_level(const struct member *m, const json_t *v)
{
    bool add_prefix_space = false, use_regex = true;
    PHI_TRY(phi_json_get_bool(v, m->file, "add_prefix_space", &add_prefix_space, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "use_regex", &use_regex, m->err));
    if (add_prefix_space)
        return unsupported(m, "ByteLevel with add_prefix_space", "true");
    if (m->t->bpe.byte_level || (use_regex && m->t->split != PHI_SPLIT_NONE))
        return unsupported(m, "another split before", "ByteLevel");
    if (use_regex)
        m->t->split = PHI_SPLIT_GPT2;
    m->t->bpe.byte_level = true;
    return PHI_OK;
}

static enum phi_status load_pre_tokenizer(const struct member *m, const json_t *v)
{
    struct phi_str type;
    if (!v)
        return PHI_OK;
    PHI_TRY(get_type(m, v, &type));
    if (phi_str_eq_c(type, "Split"))
        return load_split(m, v);
    if (phi_str_eq_c(type, "ByteLevel"))
        return load_byte_level(m, v);
    if (!phi_str_eq_c(type, "Sequence"))
        return unsupported(m, "type", type.data);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(get_array(m, v, "pretokenizers", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_pre_tokenizer(m, step));
    return PHI_OK;
}

/* --- Post-processor -------------------------------------------------------------------------- */

/* Appends the ids of a special token of the template. */
static enum phi_status add_template_token(const struct member *m, const json_t *tokens,
                                          const json_t *piece, struct phi_ids *out)
{
    struct phi_str id;
    const json_t *ids, *v;
    size_t i;
    PHI_TRY(get_string(m, piece, "id", &id));
    const json_t *token = json_is_object(tokens) ? phi_json_field(tokens, id.data) : NULL;
    if (!json_is_object(token))
        return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: special_tokens lacks \"%s\"", m->file,
                        m->name, id.data);
    PHI_TRY(get_array(m, token, "ids", &ids));
    json_array_foreach(ids, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) > PHI_TOKEN_MAX_ID)
            return malformed(m, "special_tokens: an id is not a valid integer");
        phi_ids_append(out, (int32_t)json_integer_value(v));
    }
    return out->failed ? phi_fail_memory(m->err, m->file, sizeof(int32_t)) : PHI_OK;
}

/* "single": special tokens, the sequence A once, special tokens. */
static enum phi_status load_template(const struct member *m, const json_t *v, bool *has_template)
{
    const json_t *pieces, *piece;
    size_t i;
    bool seen_sequence = false;
    if (*has_template)
        return unsupported(m, "a second", "TemplateProcessing");
    *has_template = true;
    PHI_TRY(get_array(m, v, "single", &pieces));
    json_array_foreach(pieces, i, piece)
    {
        const json_t *special = phi_json_field(piece, "SpecialToken");
        if (special) {
            PHI_TRY(add_template_token(m, phi_json_field(v, "special_tokens"), special,
                                       seen_sequence ? &m->t->suffix : &m->t->prefix));
        } else if (phi_json_field(piece, "Sequence") && !seen_sequence) {
            seen_sequence = true;
        } else {
            return unsupported(m, "the form of", "single");
        }
    }
    return seen_sequence ? PHI_OK : unsupported(m, "the form of", "single");
}

/* ByteLevel here only moves offsets. */
static enum phi_status load_post_processor(const struct member *m, const json_t *v,
                                           bool *has_template)
{
    struct phi_str type;
    if (!v)
        return PHI_OK;
    PHI_TRY(get_type(m, v, &type));
    if (phi_str_eq_c(type, "ByteLevel"))
        return PHI_OK;
    if (phi_str_eq_c(type, "TemplateProcessing"))
        return load_template(m, v, has_template);
    if (!phi_str_eq_c(type, "Sequence"))
        return unsupported(m, "type", type.data);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(get_array(m, v, "processors", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_post_processor(m, step, has_template));
    return PHI_OK;
}

/* --- Decoder --------------------------------------------------------------------------------- */

/* The order in which the steps of a decoder may come. */
enum decoder_stage { AT_REPLACE, AT_BYTE_FALLBACK, AT_FUSE, AT_STRIP, AT_END };

static enum phi_status load_strip(const struct member *m, const json_t *v)
{
    struct phi_token_decoder *d = &m->t->decoder;
    int64_t start = 0, stop = 0;
    uint32_t cp;
    PHI_TRY(get_string(m, v, "content", &d->strip_char));
    PHI_TRY(phi_json_get_int(v, m->file, "start", 0, INT32_MAX, &start, m->err));
    PHI_TRY(phi_json_get_int(v, m->file, "stop", 0, INT32_MAX, &stop, m->err));
    struct phi_str c = d->strip_char;
    if (c.n == 0 || phi_utf8_decode(c.data, c.n, &cp) != (int)c.n)
        return malformed(m, "Strip: content: expected one character");
    if (stop)
        return unsupported(m, "Strip at the", "stop");
    d->strip_start = (size_t)start;
    return PHI_OK;
}

static enum phi_status load_decoder_step(const struct member *m, const json_t *v,
                                         struct phi_str type, enum decoder_stage *stage)
{
    static const struct {
        const char *type;
        enum decoder_stage first, last, then; /* allowed from `first` to `last`; leads to `then` */
    } steps[] = {
        {"ByteLevel", AT_REPLACE, AT_REPLACE, AT_END},
        {"Replace", AT_REPLACE, AT_REPLACE, AT_REPLACE},
        {"ByteFallback", AT_REPLACE, AT_REPLACE, AT_FUSE},
        {"Fuse", AT_REPLACE, AT_FUSE, AT_STRIP},
        {"Strip", AT_STRIP, AT_STRIP, AT_END},
    };
    struct phi_token_decoder *d = &m->t->decoder;
    size_t i = 0;
    while (i < sizeof steps / sizeof steps[0] && !phi_str_eq_c(type, steps[i].type))
        i++;
    if (i == sizeof steps / sizeof steps[0])
        return unsupported(m, "type", type.data);
    bool starts = phi_str_eq_c(type, "ByteLevel");
    if (*stage < steps[i].first || *stage > steps[i].last || (starts && d->replace.n))
        return unsupported(m, "at this place, the step", type.data);
    *stage = steps[i].then;
    d->byte_level |= starts;
    d->byte_fallback |= phi_str_eq_c(type, "ByteFallback");
    if (phi_str_eq_c(type, "Replace"))
        return add_replace(m, v, &d->replace);
    return phi_str_eq_c(type, "Strip") ? load_strip(m, v) : PHI_OK;
}

static enum phi_status load_decoder(const struct member *m, const json_t *v,
                                    enum decoder_stage *stage)
{
    struct phi_str type;
    if (!v)
        return unsupported(m, "the value", "null");
    PHI_TRY(get_type(m, v, &type));
    if (!phi_str_eq_c(type, "Sequence"))
        return load_decoder_step(m, v, type, stage);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(get_array(m, v, "decoders", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_decoder(m, step, stage));
    return PHI_OK;
}

/* --- Added tokens ---------------------------------------------------------------------------- */

/* Reads one entry. An empty content is no token, as in the library. */
static enum phi_status read_added(const struct member *m, const json_t *v,
                                  struct phi_added_token *out)
{
    int64_t id = -1;
    *out = (struct phi_added_token){0};
    PHI_TRY(get_string(m, v, "content", &out->content));
    PHI_TRY(phi_json_get_int(v, m->file, "id", 0, PHI_TOKEN_MAX_ID, &id, m->err));
    if (id < 0)
        return malformed(m, "id is missing");
    out->id = (int32_t)id;
    PHI_TRY(phi_json_get_bool(v, m->file, "single_word", &out->single_word, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "lstrip", &out->lstrip, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "rstrip", &out->rstrip, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "special", &out->special, m->err));
    out->normalized = !out->special;
    return phi_json_get_bool(v, m->file, "normalized", &out->normalized, m->err);
}

/* The pattern that a token matches, in the trie where it belongs. */
static enum phi_status index_added(const struct member *m, int32_t index, uint32_t *flags)
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
        return malformed(m, "the normalizer leaves nothing of a token");
    enum phi_status status = phi_trie_add(trie, token->pattern, index, m->err);
    if (status != PHI_OK)
        return phi_fail_prefix(m->err, status, "%s: %s: \"%.80s\"", m->file, m->name,
                               token->content.data);
    return PHI_OK;
}

/* Enters a token into the vocabulary. A string that the model's vocabulary has keeps the id it has
 * there. `*next_id` is what the reference library would give the next new one: it counts on from
 * the vocabulary's end and ignores what the file says. Returns whether the two differ. */
static enum phi_status enter_added(const struct member *m, struct phi_added_token *token,
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

static enum phi_status load_added(const struct member *m, const json_t *v)
{
    struct phi_tokenizer *t = m->t;
    const json_t *entry;
    size_t i;
    bool warned = false;
    int32_t next_id = (int32_t)t->vocab.n_tokens;
    if (!v)
        return PHI_OK;
    if (!json_is_array(v))
        return malformed(m, "expected an array");
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
            phi_log(PHI_LOG_WARNING,
                    "%s: added token \"%.80s\" is declared with id %d and has id %d here; other "
                    "programs may number it by counting on from the vocabulary's end",
                    m->file, token->content.data, declared, token->id);
        warned |= differs;
    }
    return PHI_OK;
}

/* --- The whole ------------------------------------------------------------------------------- */

/* Where no merge joins a mark (SentencePiece's "▁", which stands for a space) to something else on
 * its left, the text before a mark and the text from it on never meet, and can be encoded as two
 * words. */
static void find_mark(struct phi_tokenizer *t)
{
    struct phi_str mark = {NULL, 0};
    uint32_t cp;
    for (size_t i = 0; i < t->normalizer.n; i++)
        if (!t->normalizer.rules[i].prepend)
            mark = t->normalizer.rules[i].to;
    if (mark.n == 0 || phi_utf8_decode(mark.data, mark.n, &cp) != (int)mark.n ||
        t->split != PHI_SPLIT_NONE || t->bpe.byte_level || t->bpe.ignore_merges ||
        phi_vocab_find(&t->vocab, mark, PHI_TOKEN_MODEL) < 0)
        return;
    for (size_t i = 0; i < t->bpe.n_slots; i++) {
        const struct phi_merge *rule = &t->bpe.merges[i];
        if (rule->rank == UINT32_MAX)
            continue;
        struct phi_str s = phi_vocab_string(&t->vocab, &t->vocab.tokens[rule->id]);
        while (phi_str_starts_with(s, mark))
            s = (struct phi_str){s.data + mark.n, s.n - mark.n};
        if (s.n && memmem(s.data, s.n, mark.data, mark.n))
            return;
    }
    t->mark = mark;
}

static enum phi_status load_pipeline(struct phi_tokenizer *t, const struct phi_tokenizer_json *json,
                                     const char *name, struct phi_error *err)
{
    const json_t *root = json->root;
    bool has_template = false;
    enum decoder_stage stage = AT_REPLACE;
    if (!json_is_object(root))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", name);
    struct member m = {t, name, "normalizer", err};
    PHI_TRY(load_normalizer(&m, phi_json_field(root, m.name)));
    m.name = "pre_tokenizer";
    PHI_TRY(load_pre_tokenizer(&m, phi_json_field(root, m.name)));
    m.name = "post_processor";
    PHI_TRY(load_post_processor(&m, phi_json_field(root, m.name), &has_template));
    m.name = "decoder";
    PHI_TRY(load_decoder(&m, phi_json_field(root, m.name), &stage));
    PHI_TRY(phi_tokenizer_load_model(t, phi_json_field(root, "model"), json->vocab, json->merges,
                                     name, err));
    m.name = "added_tokens";
    PHI_TRY(load_added(&m, phi_json_field(root, m.name)));
    phi_bpe_index(&t->bpe);
    find_mark(t);
    return PHI_OK;
}

enum phi_status phi_tokenizer_load(struct phi_tokenizer *t, struct phi_str text, const char *name,
                                   struct phi_error *err)
{
    struct phi_tokenizer_json json;
    PHI_TRY(phi_tokenizer_json_open(text, name, &json, err));
    enum phi_status status = load_pipeline(t, &json, name, err);
    phi_tokenizer_json_close(&json);
    return status;
}
