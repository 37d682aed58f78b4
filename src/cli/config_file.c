/* config_file.c: see config_file.h. libyaml reads the file into a tree of nodes; a scalar reaches
 * the option as it is written, so that 16k and 0.90 mean what they mean on the command line. */
#include "cli/config_file.h"
#include "base/file.h"
#include "cli/values.h"
#include "formats/json.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { MAX_FILE_BYTES = 1 << 20, MAX_DEPTH = 32, MAX_JSON_VALUES = 10000 };

struct reader {
    const char *path;
    yaml_document_t document;
    struct cli_args *args;
    void *flags;
    struct cli_args given_before; /* what the command line has set */
    int n_json_values;            /* made so far: aliases of aliases grow without bound */
};

static int fail_at(const struct reader *r, const yaml_node_t *node, const char *name,
                   const char *why)
{
    return cli_usage_error(r->args->command, "%s:%zu: %s %s", r->path, node->start_mark.line + 1,
                           name, why);
}

/* --------------------------------------------------------------- nodes */

static yaml_node_t *node_at(struct reader *r, yaml_node_item_t item)
{
    return yaml_document_get_node(&r->document, item);
}

static const char *scalar_text(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcasecmp(text, *words) == 0)
            return true;
    return false;
}

/* YAML's words for true, false and nothing, where they are not quoted. */
enum word { WORD_OTHER, WORD_TRUE, WORD_FALSE, WORD_NULL };

static enum word word_of(const yaml_node_t *node)
{
    static const char *const trues[] = {"true", "yes", "on", NULL};
    static const char *const falses[] = {"false", "no", "off", NULL};
    static const char *const nulls[] = {"", "~", "null", NULL};
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return WORD_OTHER;
    const char *text = scalar_text(node);
    return is_one_of(text, trues)    ? WORD_TRUE
           : is_one_of(text, falses) ? WORD_FALSE
           : is_one_of(text, nulls)  ? WORD_NULL
                                     : WORD_OTHER;
}

/* --------------------------------------------------------------- YAML as JSON */

static json_t *json_of(struct reader *r, const yaml_node_t *node, int depth);

/* A plain scalar is what JSON would read it as, else a string. */
static json_t *scalar_json(const yaml_node_t *node)
{
    const char *text = scalar_text(node);
    size_t n = node->data.scalar.length;
    switch (word_of(node)) {
    case WORD_TRUE:
        return json_true();
    case WORD_FALSE:
        return json_false();
    case WORD_NULL:
        return json_null();
    case WORD_OTHER:
        break;
    }
    json_t *number = NULL;
    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        number = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    return number ? number : json_stringn(text, n);
}

static json_t *sequence_json(struct reader *r, const yaml_node_t *node, int depth)
{
    json_t *list = json_array();
    const yaml_node_item_t *item = node->data.sequence.items.start;
    for (; list && item < node->data.sequence.items.top; item++) {
        if (json_array_append_new(list, json_of(r, node_at(r, *item), depth)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *mapping_json(struct reader *r, const yaml_node_t *node, int depth)
{
    json_t *object = json_object();
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; object && pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = node_at(r, pair->key);
        json_t *value =
            key->type == YAML_SCALAR_NODE ? json_of(r, node_at(r, pair->value), depth) : NULL;
        if (json_object_set_new(object, value ? scalar_text(key) : "", value) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

/* NULL when it is not UTF-8, nested too deep (an alias can hold itself), too much or out of memory. */
static json_t *json_of(struct reader *r, const yaml_node_t *node, int depth)
{
    if (depth == MAX_DEPTH || ++r->n_json_values > MAX_JSON_VALUES)
        return NULL;
    if (node->type == YAML_MAPPING_NODE)
        return mapping_json(r, node, depth + 1);
    return node->type == YAML_SEQUENCE_NODE ? sequence_json(r, node, depth + 1) : scalar_json(node);
}

/* --------------------------------------------------------------- values */

/* Sets the option from one text that outlives the document. */
static int set_text(struct reader *r, const struct cli_found *f, const yaml_node_t *node,
                    struct phi_str text)
{
    char why[CLI_WHY_SIZE];
    const char *kept = phi_arena_dup(&r->args->texts, text).data;
    if (!kept)
        return fail_at(r, node, f->option->name, "needs more memory than there is");
    if (strlen(kept) != text.n)
        return fail_at(r, node, f->option->name, "must not hold a NUL character");
    if (!cli_set_option(f, r->args, r->flags, kept, why))
        return fail_at(r, node, f->option->name, why);
    return -1;
}

static int set_json(struct reader *r, const struct cli_found *f, const yaml_node_t *node)
{
    struct phi_buf text = {0};
    json_t *json = json_of(r, node, 0);
    if (json)
        phi_json_dump(json, JSON_COMPACT, &text);
    int status = json && !text.failed
                     ? set_text(r, f, node, phi_buf_str(&text))
                     : fail_at(r, node, f->option->name, "cannot be read as JSON");
    json_decref(json);
    phi_buf_deinit(&text);
    return status;
}

static int set_scalar(struct reader *r, const struct cli_found *f, const yaml_node_t *node)
{
    enum word word = word_of(node);
    struct phi_str text = {scalar_text(node), node->data.scalar.length};
    if (f->option->kind == CLI_BOOL && word == WORD_TRUE)
        text = PHI_STR("true");
    else if (f->option->kind == CLI_BOOL && word == WORD_FALSE)
        text = PHI_STR("false");
    return set_text(r, f, node, text);
}

static int set_value(struct reader *r, const struct cli_found *f, const yaml_node_t *node)
{
    enum cli_kind kind = f->option->kind;
    int status = -1;
    if (node->type == YAML_SCALAR_NODE)
        return set_scalar(r, f, node);
    if (kind == CLI_JSON || kind == CLI_JSON_LIST)
        return set_json(r, f, node);
    if (node->type != YAML_SEQUENCE_NODE || (kind != CLI_TEXTS && kind != CLI_WORDS))
        return fail_at(r, node, f->option->name, "takes one value here");
    const yaml_node_item_t *item = node->data.sequence.items.start;
    for (; status < 0 && item < node->data.sequence.items.top; item++) {
        const yaml_node_t *child = node_at(r, *item);
        if (child->type != YAML_SCALAR_NODE)
            return fail_at(r, child, f->option->name, "takes a list of plain values");
        status = set_scalar(r, f, child);
    }
    return status;
}

/* --------------------------------------------------------------- the file */

static int set_pair(struct reader *r, const yaml_node_t *key, const yaml_node_t *value)
{
    struct cli_found f;
    char why[CLI_WHY_SIZE];
    if (key->type != YAML_SCALAR_NODE)
        return fail_at(r, key, "a key", "must be the name of an option");
    const char *name = scalar_text(key);
    if (!cli_find_option(r->args->command, name, &f) || strcmp(f.option->name, "config") == 0) {
        const char *nearest = cli_nearest_option(r->args->command, name);
        snprintf(why, sizeof why, nearest ? "'%.60s' (did you mean %s?)" : "'%.60s'", name,
                 nearest);
        return fail_at(r, key, "unknown option", why);
    }
    if (cli_is_given(&r->given_before, &f) || word_of(value) == WORD_NULL)
        return -1;
    if (cli_is_given(r->args, &f))
        return fail_at(r, key, f.option->name, "is there twice");
    return set_value(r, &f, value);
}

static int set_all(struct reader *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(&r->document);
    if (!root || word_of(root) == WORD_NULL)
        return -1; /* an empty file */
    if (root->type != YAML_MAPPING_NODE)
        return fail_at(r, root, "the file", "must hold lines of 'option: value'");
    int status = -1;
    const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
    for (; status < 0 && pair < root->data.mapping.pairs.top; pair++)
        status = set_pair(r, node_at(r, pair->key), node_at(r, pair->value));
    return status;
}

static int parse(struct reader *r, struct phi_str text)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return cli_usage_error(r->args->command, "%s: out of memory", r->path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.data, text.n);
    int status;
    if (yaml_parser_load(&parser, &r->document)) {
        status = set_all(r);
        yaml_document_delete(&r->document);
    } else {
        status = cli_usage_error(r->args->command, "%s:%zu: not valid YAML: %s", r->path,
                                 parser.problem_mark.line + 1,
                                 parser.problem ? parser.problem : "unreadable");
    }
    yaml_parser_delete(&parser);
    return status;
}

int cli_config_read(const char *path, struct cli_args *args, void *flags)
{
    struct phi_buf text = {0};
    struct phi_error err;
    struct reader r = {.path = path, .args = args, .flags = flags, .given_before = *args};
    int status;
    if (phi_file_read(path, MAX_FILE_BYTES, &text, &err) == PHI_OK)
        status = parse(&r, phi_buf_str(&text));
    else
        status = cli_usage_error(args->command, "--config: %s", err.text);
    phi_buf_deinit(&text);
    return status;
}
