/* tokenizer_load.c: reads the pipeline of tokenizer.json. What is accepted is computed exactly; any
 * other component is PHI_ERR_UNSUPPORTED and named. "truncation" and "padding" are ignored: they
 * are defaults for calls of the library, which its users override. */
#include "formats/tokenizer_load.h"
#include "formats/tokenizer_scan.h"
#include "base/utf8.h"

enum phi_status phi_member_malformed(const struct phi_member *m, const char *what)
{
    return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: %s", m->file, m->name, what);
}

enum phi_status phi_member_unsupported(const struct phi_member *m, const char *what,
                                       const char *value)
{
    return phi_fail(m->err, PHI_ERR_UNSUPPORTED, "%s: %s: %s \"%s\" is not supported", m->file,
                    m->name, what, value);
}

enum phi_status phi_member_type(const struct phi_member *m, const json_t *v, struct phi_str *type)
{
    *type = (struct phi_str){NULL, 0};
    if (!json_is_object(v))
        return phi_member_malformed(m, "expected an object");
    PHI_TRY(phi_json_get_str(v, m->file, "type", type, m->err));
    return type->data ? PHI_OK : phi_member_malformed(m, "has no type");
}

enum phi_status phi_member_string(const struct phi_member *m, const json_t *v, const char *field,
                                  struct phi_str *out)
{
    struct phi_str s = {NULL, 0};
    if (!json_is_object(v))
        return phi_member_malformed(m, "expected an object");
    PHI_TRY(phi_json_get_str(v, m->file, field, &s, m->err));
    if (!s.data)
        return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: %s is missing", m->file, m->name, field);
    *out = phi_arena_dup(&m->t->arena, s);
    return out->data ? PHI_OK : phi_fail_memory(m->err, m->file, s.n);
}

enum phi_status phi_member_array(const struct phi_member *m, const json_t *v, const char *field,
                                 const json_t **out)
{
    *out = phi_json_field(v, field);
    if (json_is_array(*out))
        return PHI_OK;
    return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: %s: expected an array", m->file, m->name,
                    field);
}

/* --- Rules on text ------------------------------------------------------------------------- */

static enum phi_status add_rule(const struct phi_member *m, struct phi_text_rules *rules,
                                struct phi_text_rule rule)
{
    if (rules->n == PHI_MAX_TEXT_RULES)
        return phi_fail(m->err, PHI_ERR_UNSUPPORTED, "%s: %s: more than %d steps", m->file, m->name,
                        PHI_MAX_TEXT_RULES);
    rules->rules[rules->n++] = rule;
    return PHI_OK;
}

static enum phi_status add_replace(const struct phi_member *m, const json_t *v,
                                   struct phi_text_rules *rules)
{
    struct phi_text_rule rule = {0};
    const json_t *pattern = phi_json_field(v, "pattern");
    if (json_is_object(pattern) && phi_json_field(pattern, "Regex"))
        return phi_member_unsupported(m, "Replace pattern", "Regex");
    PHI_TRY(phi_member_string(m, pattern, "String", &rule.from));
    PHI_TRY(phi_member_string(m, v, "content", &rule.to));
    if (rule.from.n == 0)
        return phi_member_malformed(m, "Replace: the pattern is empty");
    return add_rule(m, rules, rule);
}

static enum phi_status add_prepend(const struct phi_member *m, const json_t *v,
                                   struct phi_text_rules *rules)
{
    struct phi_text_rule rule = {.prepend = true};
    PHI_TRY(phi_member_string(m, v, "prepend", &rule.to));
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

static enum phi_status load_normalizer(const struct phi_member *m, const json_t *v)
{
    struct phi_str type;
    if (!v)
        return PHI_OK;
    PHI_TRY(phi_member_type(m, v, &type));
    if (phi_str_eq_c(type, "Prepend"))
        return add_prepend(m, v, &m->t->normalizer);
    if (phi_str_eq_c(type, "Replace"))
        return add_replace(m, v, &m->t->normalizer);
    if (!phi_str_eq_c(type, "Sequence"))
        return phi_member_unsupported(m, "type", type.data);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(phi_member_array(m, v, "normalizers", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_normalizer(m, step));
    return PHI_OK;
}

/* --- Pre-tokenizer --------------------------------------------------------------------------- */

/* Splits at a known pattern. Its matches cover every character, so keeping the matches (Removed and
 * inverted) and isolating them are the same. */
static enum phi_status load_split(const struct phi_member *m, const json_t *v)
{
    struct phi_str behavior, regex;
    bool invert = false;
    const json_t *pattern = phi_json_field(v, "pattern");
    if (m->t->split != PHI_SPLIT_NONE || m->t->bpe.byte_level)
        return phi_member_unsupported(m, "another step before", "Split");
    PHI_TRY(phi_member_string(m, v, "behavior", &behavior));
    PHI_TRY(phi_json_get_bool(v, m->file, "invert", &invert, m->err));
    if (!phi_str_eq_c(behavior, "Isolated") && !(phi_str_eq_c(behavior, "Removed") && invert))
        return phi_member_unsupported(m, "Split behavior", behavior.data);
    if (json_is_object(pattern) && phi_json_field(pattern, "String"))
        return phi_member_unsupported(m, "Split pattern", "String");
    PHI_TRY(phi_member_string(m, pattern, "Regex", &regex));
    if (!phi_pretokenize_recognize(regex, &m->t->split))
        return phi_member_unsupported(m, "Split pattern", regex.data);
    return PHI_OK;
}

static enum phi_status load_byte_level(const struct phi_member *m, const json_t *v)
{
    bool add_prefix_space = false, use_regex = true;
    PHI_TRY(phi_json_get_bool(v, m->file, "add_prefix_space", &add_prefix_space, m->err));
    PHI_TRY(phi_json_get_bool(v, m->file, "use_regex", &use_regex, m->err));
    if (add_prefix_space)
        return phi_member_unsupported(m, "ByteLevel with add_prefix_space", "true");
    if (m->t->bpe.byte_level || (use_regex && m->t->split != PHI_SPLIT_NONE))
        return phi_member_unsupported(m, "another split before", "ByteLevel");
    if (use_regex)
        m->t->split = PHI_SPLIT_GPT2;
    m->t->bpe.byte_level = true;
    return PHI_OK;
}

static enum phi_status load_pre_tokenizer(const struct phi_member *m, const json_t *v)
{
    struct phi_str type;
    if (!v)
        return PHI_OK;
    PHI_TRY(phi_member_type(m, v, &type));
    if (phi_str_eq_c(type, "Split"))
        return load_split(m, v);
    if (phi_str_eq_c(type, "ByteLevel"))
        return load_byte_level(m, v);
    if (!phi_str_eq_c(type, "Sequence"))
        return phi_member_unsupported(m, "type", type.data);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(phi_member_array(m, v, "pretokenizers", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_pre_tokenizer(m, step));
    return PHI_OK;
}

/* --- Post-processor -------------------------------------------------------------------------- */

/* Appends the ids of a special token of the template. */
static enum phi_status add_template_token(const struct phi_member *m, const json_t *tokens,
                                          const json_t *piece, struct phi_ids *out)
{
    struct phi_str id;
    const json_t *ids, *v;
    size_t i;
    PHI_TRY(phi_member_string(m, piece, "id", &id));
    const json_t *token = json_is_object(tokens) ? phi_json_field(tokens, id.data) : NULL;
    if (!json_is_object(token))
        return phi_fail(m->err, PHI_ERR_FORMAT, "%s: %s: special_tokens lacks \"%s\"", m->file,
                        m->name, id.data);
    PHI_TRY(phi_member_array(m, token, "ids", &ids));
    json_array_foreach(ids, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) > PHI_TOKEN_MAX_ID)
            return phi_member_malformed(m, "special_tokens: an id is not a valid integer");
        phi_ids_append(out, (int32_t)json_integer_value(v));
    }
    return out->failed ? phi_fail_memory(m->err, m->file, sizeof(int32_t)) : PHI_OK;
}

/* "single": special tokens, the sequence A once, special tokens. */
static enum phi_status load_template(const struct phi_member *m, const json_t *v,
                                     bool *has_template)
{
    const json_t *pieces, *piece;
    size_t i;
    bool seen_sequence = false;
    if (*has_template)
        return phi_member_unsupported(m, "a second", "TemplateProcessing");
    *has_template = true;
    PHI_TRY(phi_member_array(m, v, "single", &pieces));
    json_array_foreach(pieces, i, piece)
    {
        const json_t *special = phi_json_field(piece, "SpecialToken");
        if (special) {
            PHI_TRY(add_template_token(m, phi_json_field(v, "special_tokens"), special,
                                       seen_sequence ? &m->t->suffix : &m->t->prefix));
        } else if (phi_json_field(piece, "Sequence") && !seen_sequence) {
            seen_sequence = true;
        } else {
            return phi_member_unsupported(m, "the form of", "single");
        }
    }
    return seen_sequence ? PHI_OK : phi_member_unsupported(m, "the form of", "single");
}

/* ByteLevel here only moves offsets. */
static enum phi_status load_post_processor(const struct phi_member *m, const json_t *v,
                                           bool *has_template)
{
    struct phi_str type;
    if (!v)
        return PHI_OK;
    PHI_TRY(phi_member_type(m, v, &type));
    if (phi_str_eq_c(type, "ByteLevel"))
        return PHI_OK;
    if (phi_str_eq_c(type, "TemplateProcessing"))
        return load_template(m, v, has_template);
    if (!phi_str_eq_c(type, "Sequence"))
        return phi_member_unsupported(m, "type", type.data);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(phi_member_array(m, v, "processors", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_post_processor(m, step, has_template));
    return PHI_OK;
}

/* --- Decoder --------------------------------------------------------------------------------- */

/* The order in which the steps of a decoder may come. */
enum decoder_stage { AT_REPLACE, AT_BYTE_FALLBACK, AT_FUSE, AT_STRIP, AT_END };

static enum phi_status load_strip(const struct phi_member *m, const json_t *v)
{
    struct phi_token_decoder *d = &m->t->decoder;
    int64_t start = 0, stop = 0;
    uint32_t cp;
    PHI_TRY(phi_member_string(m, v, "content", &d->strip_char));
    PHI_TRY(phi_json_get_int(v, m->file, "start", 0, INT32_MAX, &start, m->err));
    PHI_TRY(phi_json_get_int(v, m->file, "stop", 0, INT32_MAX, &stop, m->err));
    struct phi_str c = d->strip_char;
    if (c.n == 0 || phi_utf8_decode(c.data, c.n, &cp) != (int)c.n)
        return phi_member_malformed(m, "Strip: content: expected one character");
    if (stop)
        return phi_member_unsupported(m, "Strip at the", "stop");
    d->strip_start = (size_t)start;
    return PHI_OK;
}

static enum phi_status load_decoder_step(const struct phi_member *m, const json_t *v,
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
        return phi_member_unsupported(m, "type", type.data);
    bool starts = phi_str_eq_c(type, "ByteLevel");
    if (*stage < steps[i].first || *stage > steps[i].last || (starts && d->replace.n))
        return phi_member_unsupported(m, "at this place, the step", type.data);
    *stage = steps[i].then;
    d->byte_level |= starts;
    d->byte_fallback |= phi_str_eq_c(type, "ByteFallback");
    if (phi_str_eq_c(type, "Replace"))
        return add_replace(m, v, &d->replace);
    return phi_str_eq_c(type, "Strip") ? load_strip(m, v) : PHI_OK;
}

static enum phi_status load_decoder(const struct phi_member *m, const json_t *v,
                                    enum decoder_stage *stage)
{
    struct phi_str type;
    if (!v)
        return phi_member_unsupported(m, "the value", "null");
    PHI_TRY(phi_member_type(m, v, &type));
    if (!phi_str_eq_c(type, "Sequence"))
        return load_decoder_step(m, v, type, stage);
    const json_t *steps, *step;
    size_t i;
    PHI_TRY(phi_member_array(m, v, "decoders", &steps));
    json_array_foreach(steps, i, step) PHI_TRY(load_decoder(m, step, stage));
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
    struct phi_member m = {t, name, "normalizer", err};
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
    PHI_TRY(phi_tokenizer_load_added(&m, phi_json_field(root, m.name)));
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
