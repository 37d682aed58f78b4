/* values.c: see values.h. */
#include "cli/values.h"
#include "base/alloc.h"
#include "formats/json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --------------------------------------------------------------- numbers */

/* A lower-case suffix counts in thousands and allows a fraction, an upper-case one in 1024s and
 * does not: vLLM's rule. 0 when `suffix` is none. */
static int64_t suffix_scale(const char *suffix)
{
    static const char letters[] = "kmgt";
    if (suffix[0] == '\0' || suffix[1] != '\0')
        return 0;
    int64_t decimal = 1, binary = 1;
    for (size_t i = 0; letters[i]; i++) {
        decimal *= 1000;
        binary *= 1024;
        if (suffix[0] == letters[i])
            return decimal;
        if (suffix[0] == letters[i] - 'a' + 'A')
            return binary;
    }
    return 0;
}

static bool parse_human_size(const char *text, int64_t *out)
{
    char *end;
    double x = strtod(text, &end);
    int64_t scale = suffix_scale(end);
    bool plain = strspn(text, "+-.0123456789") == (size_t)(end - text); /* not 1e3k, not 0x1k */
    if (end == text || scale == 0 || !plain)
        return false;
    bool fraction = memchr(text, '.', (size_t)(end - text)) != NULL;
    x *= (double)scale;
    if ((fraction && scale % 1000 != 0) || x != floor(x) || fabs(x) > 9e18)
        return false;
    *out = (int64_t)x;
    return true;
}

static bool parse_integer(const struct cli_option *o, const char *text, int64_t *out)
{
    for (const struct cli_name *n = o->names; n && n->name; n++) {
        if (strcmp(n->name, text) == 0) {
            *out = n->value;
            return true;
        }
    }
    char *end;
    errno = 0;
    long long x = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && errno == 0) {
        *out = x;
        return true;
    }
    return o->human_size && parse_human_size(text, out);
}

static bool in_range(const struct cli_option *o, double x, const char *text, char *why)
{
    if (o->min == o->max || (x >= o->min && x <= o->max && !(o->above_min && x == o->min)))
        return true;
    if (o->max >= INT_MAX)
        snprintf(why, CLI_WHY_SIZE, "must be %s %g, not %.60s", o->above_min ? "above" : "at least",
                 o->min, text);
    else
        snprintf(why, CLI_WHY_SIZE, "must be %s %g %s %g, not %.60s",
                 o->above_min ? "above" : "from", o->min, o->above_min ? "and at most" : "to",
                 o->max, text);
    return false;
}

static bool set_integer(const struct cli_option *o, void *value, const char *text, char *why)
{
    int64_t x;
    if (!parse_integer(o, text, &x) || (o->kind == CLI_INT && (x < INT_MIN || x > INT_MAX))) {
        snprintf(why, CLI_WHY_SIZE, "must be an integer%s, not '%.60s'",
                 o->human_size ? " (25000, 25k or 24K)" : "", text);
        return false;
    }
    if (!in_range(o, (double)x, text, why))
        return false;
    if (o->kind == CLI_INT)
        *(int *)value = (int)x;
    else
        *(int64_t *)value = x;
    return true;
}

static bool set_real(const struct cli_option *o, double *value, const char *text, char *why)
{
    for (const struct cli_name *n = o->names; n && n->name; n++) {
        if (strcmp(n->name, text) == 0) {
            *value = n->value;
            return true;
        }
    }
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(x)) {
        snprintf(why, CLI_WHY_SIZE, "must be a number, not '%.60s'", text);
        return false;
    }
    if (!in_range(o, x, text, why))
        return false;
    *value = x;
    return true;
}

/* --------------------------------------------------------------- words and lists */

static bool set_choice(const struct cli_option *o, int *value, const char *text, char *why)
{
    int n = snprintf(why, CLI_WHY_SIZE, "must be one of");
    for (const struct cli_name *c = o->names; c->name; c++) {
        if (strcasecmp(c->name, text) == 0) {
            *value = c->value;
            return true;
        }
        if (n < CLI_WHY_SIZE)
            n += snprintf(why + n, (size_t)(CLI_WHY_SIZE - n), " %s", c->name);
    }
    if (n < CLI_WHY_SIZE)
        snprintf(why + n, (size_t)(CLI_WHY_SIZE - n), ", not '%.60s'", text);
    return false;
}

static bool out_of_memory(char *why)
{
    snprintf(why, CLI_WHY_SIZE, "needs more memory than there is");
    return false;
}

static bool add_text(struct cli_texts *texts, const char *text, char *why)
{
    const char **grown = text ? phi_realloc(texts->data, texts->n + 1, sizeof *grown) : NULL;
    if (!grown)
        return out_of_memory(why);
    texts->data = grown;
    texts->data[texts->n++] = text;
    return true;
}

/* "a, b": blanks around the commas and empty pieces do not count. */
static bool set_commas(struct cli_texts *texts, struct phi_arena *arena, const char *text,
                       char *why)
{
    texts->n = 0;
    while (*text) {
        text += strspn(text, ", ");
        size_t n = strcspn(text, ",");
        struct phi_str piece = {text, n};
        while (piece.n > 0 && piece.data[piece.n - 1] == ' ')
            piece.n--;
        if (piece.n > 0 && !add_text(texts, phi_arena_dup(arena, piece).data, why))
            return false;
        text += n;
    }
    return true;
}

bool cli_parse_ids(struct phi_str text, struct phi_ids *out, size_t *bad)
{
    size_t i = 0;
    while (i < text.n) {
        char c = text.data[i];
        if (c == ' ' || c == ',' || c == '\t' || c == '\n' || c == '\r' || c == '[' || c == ']') {
            i++;
            continue;
        }
        int64_t id = 0;
        size_t start = i;
        for (; i < text.n && text.data[i] >= '0' && text.data[i] <= '9' && id <= INT32_MAX; i++)
            id = id * 10 + (text.data[i] - '0');
        if (i == start || id > INT32_MAX) {
            *bad = start;
            return false;
        }
        phi_ids_append(out, (int32_t)id);
    }
    return true;
}

static bool add_ids(struct phi_ids *ids, const char *text, char *why)
{
    size_t bad = 0;
    if (!cli_parse_ids(phi_str_from(text), ids, &bad)) {
        snprintf(why, CLI_WHY_SIZE, "must be token ids (\"1 2 3\"), not '%.60s'", text + bad);
        return false;
    }
    return ids->failed ? out_of_memory(why) : true;
}

/* --------------------------------------------------------------- JSON */

static bool parse_json(const char *text, json_t **out, char *why)
{
    struct phi_error err;
    if (phi_json_parse(phi_str_from(text), "its value", out, &err) == PHI_OK)
        return true;
    snprintf(why, CLI_WHY_SIZE, "must be JSON; %.400s", err.text);
    return false;
}

static bool set_json_list(struct cli_texts *texts, struct phi_arena *arena, const char *text,
                          char *why)
{
    json_t *list;
    bool good = true;
    if (!parse_json(text, &list, why))
        return false;
    texts->n = 0;
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        const json_t *item = json_array_get(list, i);
        good = json_is_string(item) && strlen(json_string_value(item)) == json_string_length(item);
        if (good && !add_text(texts, phi_arena_dup(arena, phi_json_str(item)).data, why)) {
            json_decref(list);
            return false;
        }
    }
    if (!json_is_array(list) || !good)
        snprintf(why, CLI_WHY_SIZE, "must be a JSON list of strings ([\"a\", \"b\"]), not '%.60s'",
                 text);
    good = good && json_is_array(list);
    json_decref(list);
    return good;
}

static bool set_json(json_t **value, const char *text, char *why)
{
    json_t *object;
    if (!parse_json(text, &object, why))
        return false;
    if (!json_is_object(object)) {
        snprintf(why, CLI_WHY_SIZE, "must be a JSON object ({\"a\": 1}), not '%.60s'", text);
        json_decref(object);
        return false;
    }
    json_decref(*value);
    *value = object;
    return true;
}

/* The object that is member `key` of *object, made where there is none; NULL when out of memory. */
static json_t *descend(json_t *object, const char *key, size_t n_key)
{
    json_t *child = json_object_getn(object, key, n_key);
    if (json_is_object(child))
        return child;
    child = json_object();
    return json_object_setn_new(object, key, n_key, child) == 0 ? child : NULL;
}

bool cli_value_set_member(json_t **value, const char *path, const char *text, char *why)
{
    json_t *leaf;
    struct phi_error err;
    enum phi_status status = phi_json_parse(phi_str_from(text), "", &leaf, &err);
    if (status == PHI_ERR_MEMORY)
        return out_of_memory(why);
    if (status != PHI_OK)
        leaf = json_string(text);
    if (!*value)
        *value = json_object();
    json_t *object = *value;
    for (size_t n = strcspn(path, "."); object && path[n]; n = strcspn(path, ".")) {
        object = descend(object, path, n);
        path += n + 1;
    }
    if (json_object_set_new(object, path, leaf) != 0)
        return out_of_memory(why);
    return true;
}

/* --------------------------------------------------------------- all of them */

bool cli_value_set(const struct cli_option *o, void *value, struct phi_arena *texts,
                   const char *text, char *why)
{
    switch (o->kind) {
    case CLI_INT:
    case CLI_INT64:
        return set_integer(o, value, text, why);
    case CLI_REAL:
        return set_real(o, value, text, why);
    case CLI_TEXT:
        *(const char **)value = text;
        return true;
    case CLI_TEXTS:
    case CLI_WORDS:
        return add_text(value, text, why);
    case CLI_COMMAS:
        return set_commas(value, texts, text, why);
    case CLI_JSON_LIST:
        return set_json_list(value, texts, text, why);
    case CLI_JSON:
        return set_json(value, text, why);
    case CLI_IDS:
        return add_ids(value, text, why);
    case CLI_CHOICE:
        return set_choice(o, value, text, why);
    case CLI_BOOL:
        *(bool *)value = strcmp(text, "true") == 0;
        if (*(bool *)value || strcmp(text, "false") == 0)
            return true;
        snprintf(why, CLI_WHY_SIZE, "must be true or false, not '%.60s'", text);
    }
    return false;
}

void cli_value_restart(const struct cli_option *o, void *value)
{
    if (o->kind == CLI_TEXTS || o->kind == CLI_WORDS)
        ((struct cli_texts *)value)->n = 0;
    else if (o->kind == CLI_IDS)
        ((struct phi_ids *)value)->n = 0;
}

void cli_value_deinit(const struct cli_option *o, void *value)
{
    switch (o->kind) {
    case CLI_TEXTS:
    case CLI_WORDS:
    case CLI_COMMAS:
    case CLI_JSON_LIST:
        phi_free(((struct cli_texts *)value)->data);
        break;
    case CLI_JSON:
        json_decref(*(json_t **)value);
        break;
    case CLI_IDS:
        phi_ids_deinit(value);
        break;
    default:
        break;
    }
}
