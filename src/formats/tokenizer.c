/* tokenizer.c: opening and closing a tokenizer, and what tokenizer_config.json adds to it. */
#include "formats/tokenizer.h"
#include "formats/tokenizer_impl.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

enum { MAX_CONFIG_BYTES = 64 << 20 };

/* --- tokenizer_config.json and special_tokens_map.json --------------------------------------- */

/* A special token's field: a string, an object with `content`, or absent. What is already in *out
 * stays. */
static enum phi_status read_special(struct phi_tokenizer *t, const json_t *config, const char *name,
                                    const char *field, struct phi_str *out, struct phi_error *err)
{
    struct phi_str s = {NULL, 0};
    const json_t *v = phi_json_field(config, field);
    if (!v || out->data)
        return PHI_OK;
    if (json_is_object(v))
        PHI_TRY(phi_json_get_str(v, name, "content", &s, err));
    else
        PHI_TRY(phi_json_get_str(config, name, field, &s, err));
    if (!s.data)
        return PHI_OK;
    *out = phi_arena_dup(&t->arena, s);
    return out->data ? PHI_OK : phi_fail_memory(err, name, s.n);
}

/* tokenizer.json decides about the BOS; where the flag that older programs read says something
 * else, the user should know. */
static enum phi_status check_add_bos(const struct phi_tokenizer *t, const json_t *config,
                                     const char *name, struct phi_error *err)
{
    int32_t bos = phi_tokenizer_bos_id(t);
    bool adds = false;
    for (size_t i = 0; i < t->prefix.n; i++)
        adds |= t->prefix.data[i] == bos;
    bool flag = adds;
    PHI_TRY(phi_json_get_bool(config, name, "add_bos_token", &flag, err));
    if (flag != adds)
        phi_log(
            PHI_LOG_WARNING,
            "%s: add_bos_token is %s, but tokenizer.json %s a BOS token; tokenizer.json decides",
            name, flag ? "true" : "false", adds ? "adds" : "does not add");
    return PHI_OK;
}

static enum phi_status read_config(struct phi_tokenizer *t, const json_t *config, const char *name,
                                   struct phi_error *err)
{
    struct phi_str side = PHI_STR("right");
    if (!json_is_object(config))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", name);
    PHI_TRY(read_special(t, config, name, "bos_token", &t->bos, err));
    PHI_TRY(read_special(t, config, name, "eos_token", &t->eos, err));
    PHI_TRY(phi_json_get_str(config, name, "truncation_side", &side, err));
    t->truncates_left = phi_str_eq_c(side, "left");
    return check_add_bos(t, config, name, err);
}

/* The older file has the same fields for special tokens and nothing else. */
static enum phi_status read_special_map(struct phi_tokenizer *t, const json_t *map,
                                        const char *name, struct phi_error *err)
{
    if (!json_is_object(map))
        return phi_fail(err, PHI_ERR_FORMAT, "%s: expected an object", name);
    PHI_TRY(read_special(t, map, name, "bos_token", &t->bos, err));
    return read_special(t, map, name, "eos_token", &t->eos, err);
}

typedef enum phi_status (*read_json_fn)(struct phi_tokenizer *t, const json_t *v, const char *name,
                                        struct phi_error *err);

/* Reads dir/file, which may be missing. */
static enum phi_status read_optional(struct phi_tokenizer *t, const char *dir, const char *file,
                                     read_json_fn read, struct phi_error *err)
{
    struct phi_buf path = {0};
    json_t *root = NULL;
    enum phi_status status = PHI_OK;
    if (!phi_path_join(&path, dir, file)) {
        status = phi_fail_memory(err, file, strlen(dir) + strlen(file));
    } else if (phi_file_exists(path.data)) {
        status = phi_json_parse_file(path.data, MAX_CONFIG_BYTES, &root, err);
        if (status == PHI_OK)
            status = read(t, root, path.data, err);
    }
    json_decref(root);
    phi_buf_deinit(&path);
    return status;
}

/* --- Opening -----------------------------------------------------------------------------------
 */

static enum phi_status create(struct phi_tokenizer **out, struct phi_error *err)
{
    *out = phi_calloc(1, sizeof **out);
    if (!*out)
        return phi_fail_memory(err, "a tokenizer", sizeof **out);
    phi_trie_init(&(*out)->raw_trie);
    phi_trie_init(&(*out)->normalized_trie);
    return PHI_OK;
}

void phi_tokenizer_close(struct phi_tokenizer *t)
{
    if (!t)
        return;
    phi_arena_deinit(&t->arena);
    phi_vocab_deinit(&t->vocab);
    phi_bpe_deinit(&t->bpe);
    phi_trie_deinit(&t->raw_trie);
    phi_trie_deinit(&t->normalized_trie);
    phi_ids_deinit(&t->prefix);
    phi_ids_deinit(&t->suffix);
    phi_free(t);
}

static enum phi_status load_file(struct phi_tokenizer *t, const char *dir, struct phi_error *err)
{
    struct phi_buf path = {0};
    struct phi_map map = {0};
    enum phi_status status;
    if (!phi_path_join(&path, dir, "tokenizer.json"))
        status = phi_fail_memory(err, "a path", strlen(dir));
    else
        status = phi_map_open(path.data, &map, err);
    if (status == PHI_OK) {
        struct phi_str text = {map.data ? (const char *)map.data : "", map.n_bytes};
        status = phi_tokenizer_load(t, text, path.data, err);
    }
    phi_map_close(&map);
    phi_buf_deinit(&path);
    return status;
}

enum phi_status phi_tokenizer_open(const char *dir, struct phi_tokenizer **out,
                                   struct phi_error *err)
{
    PHI_TRY(create(out, err));
    enum phi_status status = load_file(*out, dir, err);
    if (status == PHI_OK)
        status = read_optional(*out, dir, "tokenizer_config.json", read_config, err);
    if (status == PHI_OK)
        status = read_optional(*out, dir, "special_tokens_map.json", read_special_map, err);
    if (status != PHI_OK) {
        phi_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

enum phi_status phi_tokenizer_parse(struct phi_str tokenizer_json, struct phi_str config_json,
                                    const char *name, struct phi_tokenizer **out,
                                    struct phi_error *err)
{
    json_t *config = NULL;
    PHI_TRY(create(out, err));
    enum phi_status status = phi_tokenizer_load(*out, tokenizer_json, name, err);
    if (status == PHI_OK && config_json.n)
        status = phi_json_parse(config_json, name, &config, err);
    if (status == PHI_OK && config)
        status = read_config(*out, config, name, err);
    json_decref(config);
    if (status != PHI_OK) {
        phi_tokenizer_close(*out);
        *out = NULL;
    }
    return status;
}

/* --- Questions ---------------------------------------------------------------------------------
 */

int32_t phi_tokenizer_n_ids(const struct phi_tokenizer *t)
{
    return (int32_t)t->vocab.n_ids;
}

int32_t phi_tokenizer_find(const struct phi_tokenizer *t, struct phi_str token)
{
    return phi_vocab_find(&t->vocab, token, PHI_TOKEN_MODEL | PHI_TOKEN_ADDED);
}

struct phi_str phi_tokenizer_spelling(const struct phi_tokenizer *t, int32_t id)
{
    const struct phi_token *token = phi_vocab_at(&t->vocab, id);
    return token ? phi_vocab_string(&t->vocab, token) : PHI_STR("");
}

bool phi_tokenizer_is_special(const struct phi_tokenizer *t, int32_t id)
{
    const struct phi_token *token = phi_vocab_at(&t->vocab, id);
    return token && token->flags & PHI_TOKEN_SPECIAL;
}

struct phi_str phi_tokenizer_bos(const struct phi_tokenizer *t)
{
    return t->bos;
}

struct phi_str phi_tokenizer_eos(const struct phi_tokenizer *t)
{
    return t->eos;
}

int32_t phi_tokenizer_bos_id(const struct phi_tokenizer *t)
{
    return t->bos.data ? phi_tokenizer_find(t, t->bos) : -1;
}

int32_t phi_tokenizer_eos_id(const struct phi_tokenizer *t)
{
    return t->eos.data ? phi_tokenizer_find(t, t->eos) : -1;
}

bool phi_tokenizer_truncates_left(const struct phi_tokenizer *t)
{
    return t->truncates_left;
}
