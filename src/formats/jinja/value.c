/* value.c: see value.h. */
#include "formats/jinja/value.h"
#include "base/alloc.h"
#include "base/utf8.h"
#include "formats/jinja/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum phi_status phi_jinja_fail(struct phi_jinja_run *r, enum phi_status code, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return phi_fail(r->err, code, "%s:%d: %s", r->name, r->line, text);
}

enum phi_status phi_jinja_no_memory(struct phi_jinja_run *r)
{
    if (r->arena.limit_bytes && r->arena.used_bytes > r->arena.limit_bytes / 2)
        return phi_jinja_fail(r, PHI_ERR_MEMORY, "the template needs more than its %d MB of memory",
                              JINJA_MAX_ARENA_BYTES / (1024 * 1024));
    return phi_jinja_fail(r, PHI_ERR_MEMORY, "out of memory");
}

enum phi_status phi_jinja_text_too_long(struct phi_jinja_run *r)
{
    return phi_jinja_fail(r, PHI_ERR_MEMORY, "no memory for the text (it may have %d MB)",
                          JINJA_MAX_OUTPUT_BYTES / (1024 * 1024));
}

enum phi_status phi_jinja_charge(struct phi_jinja_run *r, size_t n)
{
    if (n >= (size_t)r->steps_left) {
        r->steps_left = 0;
        return phi_jinja_fail(r, PHI_ERR_TOO_LONG, "the template takes more than %d steps",
                              JINJA_MAX_STEPS);
    }
    r->steps_left -= (int64_t)n;
    return PHI_OK;
}

enum phi_status phi_jinja_str_from_buf(struct phi_jinja_run *r, struct phi_buf *b,
                                       struct phi_jinja_value *out)
{
    if (b->failed) {
        phi_buf_clear(b);
        return phi_jinja_text_too_long(r);
    }
    struct phi_str s = phi_arena_dup(&r->arena, phi_buf_str(b));
    phi_buf_clear(b);
    if (!s.data)
        return phi_jinja_no_memory(r);
    *out = phi_jinja_str(s);
    return phi_jinja_charge(r, s.n / 64);
}

enum phi_status phi_jinja_undefined_make(struct phi_jinja_run *r, struct phi_jinja_value *out,
                                         const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *out = (struct phi_jinja_value){.type = JINJA_UNDEFINED};
    out->undefined = phi_arena_alloc(&r->arena, 1, sizeof *out->undefined);
    if (!out->undefined)
        return phi_jinja_no_memory(r);
    out->undefined->message = phi_arena_dup(&r->arena, phi_str_from(text));
    return out->undefined->message.data ? PHI_OK : phi_jinja_no_memory(r);
}

enum phi_status phi_jinja_undefined_error(struct phi_jinja_run *r, struct phi_jinja_value v)
{
    if (!v.undefined)
        return phi_jinja_error(r, "the value is undefined");
    return phi_jinja_error(r, "%.*s", JINJA_SHOWN(v.undefined->message));
}

/* ---- lists ---- */

enum phi_status phi_jinja_list_make(struct phi_jinja_run *r, enum phi_jinja_type type,
                                    size_t capacity, struct phi_jinja_value *out)
{
    struct phi_jinja_list *list = phi_arena_alloc(&r->arena, 1, sizeof *list);
    if (!list)
        return phi_jinja_no_memory(r);
    if (capacity) {
        list->items = phi_arena_alloc(&r->arena, capacity, sizeof *list->items);
        if (!list->items)
            return phi_jinja_no_memory(r);
        list->capacity = capacity;
    }
    *out = (struct phi_jinja_value){.type = type, .list = list};
    return PHI_OK;
}

enum phi_status phi_jinja_list_append(struct phi_jinja_run *r, struct phi_jinja_list *list,
                                      struct phi_jinja_value v)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 4;
        struct phi_jinja_value *items = phi_arena_alloc(&r->arena, capacity, sizeof *items);
        if (!items)
            return phi_jinja_no_memory(r);
        if (list->n)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = v;
    return PHI_OK;
}

enum phi_status phi_jinja_generator_make(struct phi_jinja_run *r, struct phi_jinja_value items,
                                         struct phi_jinja_value *out)
{
    struct phi_jinja_generator *g = phi_arena_alloc(&r->arena, 1, sizeof *g);
    if (!g)
        return phi_jinja_no_memory(r);
    g->items = items;
    *out = (struct phi_jinja_value){.type = JINJA_GENERATOR, .generator = g};
    return PHI_OK;
}

enum phi_status phi_jinja_pair(struct phi_jinja_run *r, struct phi_jinja_value a,
                               struct phi_jinja_value b, struct phi_jinja_value *out)
{
    PHI_TRY(phi_jinja_list_make(r, JINJA_TUPLE, 2, out));
    out->list->items[0] = a;
    out->list->items[1] = b;
    out->list->n = 2;
    return PHI_OK;
}

/* ---- dicts ---- */

static uint64_t mix(uint64_t h)
{
    h ^= h >> 31;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static uint64_t hash_bytes(struct phi_str s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.data[i]) * UINT64_C(0x100000001b3);
    return mix(h);
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. */
static uint64_t hash_number(double f)
{
    uint64_t bits;
    if (f == 0)
        f = 0; /* -0.0 */
    memcpy(&bits, &f, sizeof bits);
    return mix(bits);
}

static bool hash_value(struct phi_jinja_value v, int depth, uint64_t *out)
{
    switch (v.type) {
    case JINJA_STR:
        *out = hash_bytes(v.s);
        return true;
    case JINJA_BOOL:
        *out = hash_number(v.b);
        return true;
    case JINJA_INT:
        *out = hash_number((double)v.i);
        return true;
    case JINJA_FLOAT:
        *out = hash_number(v.f);
        return true;
    case JINJA_TUPLE: {
        uint64_t h = 7;
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t item;
            if (depth == 0 || !hash_value(v.list->items[i], depth - 1, &item))
                return false;
            h = mix(h * 31 + item);
        }
        *out = h;
        return true;
    }
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_VIEW:
        return false;
    default: /* by identity in Python; what equality says is enough here */
        *out = mix(v.type);
        return true;
    }
}

bool phi_jinja_hashable(struct phi_jinja_value v)
{
    uint64_t h;
    return hash_value(v, JINJA_MAX_NESTING, &h);
}

enum phi_status phi_jinja_dict_make(struct phi_jinja_run *r, enum phi_jinja_type type,
                                    struct phi_jinja_value *out)
{
    *out = (struct phi_jinja_value){.type = type};
    out->dict = phi_arena_alloc(&r->arena, 1, sizeof *out->dict);
    return out->dict ? PHI_OK : phi_jinja_no_memory(r);
}

/* The entry whose key equals `key`; when there is none *found is NULL and *slot is where to put it.
 */
static enum phi_status dict_search(struct phi_jinja_run *r, const struct phi_jinja_dict *d,
                                   uint64_t hash, struct phi_jinja_value key,
                                   struct phi_jinja_entry **found, size_t *slot)
{
    *found = NULL;
    size_t mask = d->n_slots - 1;
    size_t at = d->slots ? hash & mask : 0;
    for (;; at = d->slots ? (at + 1) & mask : at + 1) {
        if (d->slots ? d->slots[at] == 0 : at == d->n)
            break;
        struct phi_jinja_entry *e = &d->entries[d->slots ? d->slots[at] - 1 : at];
        bool same = false;
        if (e->hash == hash)
            PHI_TRY(phi_jinja_equal(r, e->key, key, &same));
        if (same) {
            *found = e;
            break;
        }
    }
    *slot = at;
    return PHI_OK;
}

enum phi_status phi_jinja_dict_find(struct phi_jinja_run *r, const struct phi_jinja_dict *d,
                                    struct phi_jinja_value key, struct phi_jinja_value **found)
{
    uint64_t hash;
    size_t slot;
    struct phi_jinja_entry *e;
    *found = NULL;
    if (!hash_value(key, JINJA_MAX_NESTING, &hash))
        return phi_jinja_error(r, "unhashable type: '%s'", phi_jinja_type_name(key));
    PHI_TRY(phi_jinja_charge(r, 1));
    PHI_TRY(dict_search(r, d, hash, key, &e, &slot));
    if (e)
        *found = &e->value;
    return PHI_OK;
}

struct phi_jinja_value *phi_jinja_dict_get(const struct phi_jinja_dict *d, struct phi_str key)
{
    uint64_t hash = hash_bytes(key);
    size_t mask = d->n_slots - 1;
    for (size_t at = d->slots ? hash & mask : 0;; at = d->slots ? (at + 1) & mask : at + 1) {
        if (d->slots ? d->slots[at] == 0 : at == d->n)
            return NULL;
        struct phi_jinja_entry *e = &d->entries[d->slots ? d->slots[at] - 1 : at];
        if (e->hash == hash && e->key.type == JINJA_STR && phi_str_eq(e->key.s, key))
            return &e->value;
    }
}

static enum phi_status dict_grow(struct phi_jinja_run *r, struct phi_jinja_dict *d)
{
    size_t capacity = d->capacity ? d->capacity * 2 : 8;
    struct phi_jinja_entry *entries = phi_arena_alloc(&r->arena, capacity, sizeof *entries);
    if (!entries)
        return phi_jinja_no_memory(r);
    if (d->n)
        memcpy(entries, d->entries, d->n * sizeof *entries);
    d->entries = entries;
    d->capacity = capacity;
    if (capacity <= 8)
        return PHI_OK;
    uint32_t *slots = phi_arena_alloc(&r->arena, capacity * 2, sizeof *slots);
    if (!slots)
        return phi_jinja_no_memory(r);
    d->slots = slots;
    d->n_slots = capacity * 2;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = entries[i].hash & (d->n_slots - 1);
        while (slots[at])
            at = (at + 1) & (d->n_slots - 1);
        slots[at] = (uint32_t)i + 1;
    }
    return PHI_OK;
}

enum phi_status phi_jinja_dict_set(struct phi_jinja_run *r, struct phi_jinja_dict *d,
                                   struct phi_jinja_value key, struct phi_jinja_value value)
{
    uint64_t hash;
    size_t slot;
    struct phi_jinja_entry *e;
    if (!hash_value(key, JINJA_MAX_NESTING, &hash))
        return phi_jinja_error(r, "unhashable type: '%s'", phi_jinja_type_name(key));
    if (d->n == d->capacity)
        PHI_TRY(dict_grow(r, d));
    PHI_TRY(dict_search(r, d, hash, key, &e, &slot));
    if (e) {
        e->value = value;
        return PHI_OK;
    }
    d->entries[d->n] = (struct phi_jinja_entry){key, value, hash};
    d->n++;
    if (d->slots)
        d->slots[slot] = (uint32_t)d->n;
    return PHI_OK;
}

/* ---- JSON ---- */

static enum phi_status json_to_value(struct phi_jinja_run *r, const json_t *json, bool copy,
                                     int depth, struct phi_jinja_value *out);

static enum phi_status json_object_to_value(struct phi_jinja_run *r, const json_t *json, bool copy,
                                            int depth, struct phi_jinja_value *out)
{
    json_t *object = (json_t *)json; /* jansson's iterators take no const */
    PHI_TRY(phi_jinja_dict_make(r, JINJA_DICT, out));
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        struct phi_str key = {json_object_iter_key(it), json_object_iter_key_len(it)};
        struct phi_jinja_value value;
        if (copy && !(key = phi_arena_dup(&r->arena, key)).data)
            return phi_jinja_no_memory(r);
        PHI_TRY(json_to_value(r, json_object_iter_value(it), copy, depth - 1, &value));
        PHI_TRY(phi_jinja_dict_set(r, out->dict, phi_jinja_str(key), value));
    }
    return PHI_OK;
}

static enum phi_status json_to_value(struct phi_jinja_run *r, const json_t *json, bool copy,
                                     int depth, struct phi_jinja_value *out)
{
    if (depth == 0)
        return phi_jinja_fail(r, PHI_ERR_TOO_LONG, "data nested more than %d levels deep",
                              JINJA_MAX_NESTING);
    switch (json_typeof(json)) {
    case JSON_NULL:
        *out = phi_jinja_none();
        return PHI_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = phi_jinja_bool(json_is_true(json));
        return PHI_OK;
    case JSON_INTEGER:
        *out = phi_jinja_int(json_integer_value(json));
        return PHI_OK;
    case JSON_REAL:
        *out = phi_jinja_float(json_real_value(json));
        return PHI_OK;
    case JSON_STRING: {
        struct phi_str s = {json_string_value(json), json_string_length(json)};
        if (copy && !(s = phi_arena_dup(&r->arena, s)).data)
            return phi_jinja_no_memory(r);
        *out = phi_jinja_str(s);
        return PHI_OK;
    }
    case JSON_ARRAY:
        PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, json_array_size(json), out));
        for (size_t i = 0; i < json_array_size(json); i++) {
            struct phi_jinja_value item;
            PHI_TRY(json_to_value(r, json_array_get(json, i), copy, depth - 1, &item));
            out->list->items[out->list->n++] = item;
        }
        return PHI_OK;
    case JSON_OBJECT:
        return json_object_to_value(r, json, copy, depth, out);
    }
    return phi_jinja_error(r, "unknown kind of JSON value");
}

enum phi_status phi_jinja_from_json(struct phi_jinja_run *r, const json_t *json, bool copy,
                                    struct phi_jinja_value *out)
{
    return json_to_value(r, json, copy, JINJA_MAX_NESTING, out);
}

/* ---- truth, equality, order ---- */

bool phi_jinja_truth(struct phi_jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
    case JINJA_MISSING:
        return false;
    case JINJA_BOOL:
        return v.b;
    case JINJA_INT:
        return v.i != 0;
    case JINJA_FLOAT:
        return v.f != 0;
    case JINJA_STR:
        return v.s.n != 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list->n != 0;
    case JINJA_DICT:
    case JINJA_VIEW:
        return v.dict->n != 0;
    case JINJA_RANGE:
        return v.range->n != 0;
    default:
        return true;
    }
}

static bool is_number(struct phi_jinja_value v)
{
    return v.type == JINJA_BOOL || v.type == JINJA_INT || v.type == JINJA_FLOAT;
}

static int64_t as_int(struct phi_jinja_value v)
{
    return v.type == JINJA_BOOL ? v.b : v.i;
}

/* Exact, as in Python: 2**53 + 1 is not the float 2**53. */
static int compare_int_float(int64_t i, double f)
{
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    double whole = floor(f);
    int64_t whole_i = (int64_t)whole;
    if (i != whole_i)
        return i < whole_i ? -1 : 1;
    return f > whole ? -1 : 0;
}

static int compare_numbers(struct phi_jinja_value a, struct phi_jinja_value b, bool *unordered)
{
    bool a_float = a.type == JINJA_FLOAT, b_float = b.type == JINJA_FLOAT;
    if ((a_float && isnan(a.f)) || (b_float && isnan(b.f))) {
        *unordered = true;
        return 1;
    }
    if (a_float && b_float)
        return (a.f > b.f) - (a.f < b.f);
    if (a_float)
        return -compare_int_float(as_int(b), a.f);
    if (b_float)
        return compare_int_float(as_int(a), b.f);
    return (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
}

static enum phi_status equal(struct phi_jinja_run *r, struct phi_jinja_value a,
                             struct phi_jinja_value b, int depth, bool *out);

static enum phi_status equal_lists(struct phi_jinja_run *r, const struct phi_jinja_list *a,
                                   const struct phi_jinja_list *b, int depth, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        PHI_TRY(equal(r, a->items[i], b->items[i], depth - 1, out));
    return PHI_OK;
}

static enum phi_status equal_dicts(struct phi_jinja_run *r, const struct phi_jinja_dict *a,
                                   const struct phi_jinja_dict *b, int depth, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        struct phi_jinja_value *other;
        PHI_TRY(phi_jinja_dict_find(r, b, a->entries[i].key, &other));
        if (!other)
            *out = false;
        else
            PHI_TRY(equal(r, a->entries[i].value, *other, depth - 1, out));
    }
    return PHI_OK;
}

/* Views: key views are sets, value views are equal only to themselves. */
static enum phi_status equal_views(struct phi_jinja_run *r, struct phi_jinja_value a,
                                   struct phi_jinja_value b, int depth, bool *out)
{
    *out = a.dict == b.dict && a.view == b.view;
    if (*out || a.view == JINJA_VALUES || a.view != b.view)
        return PHI_OK;
    if (a.view == JINJA_ITEMS)
        return equal_dicts(r, a.dict, b.dict, depth, out);
    *out = a.dict->n == b.dict->n;
    for (size_t i = 0; *out && i < a.dict->n; i++) {
        struct phi_jinja_value *other;
        PHI_TRY(phi_jinja_dict_find(r, b.dict, a.dict->entries[i].key, &other));
        *out = other != NULL;
    }
    return PHI_OK;
}

static enum phi_status equal(struct phi_jinja_run *r, struct phi_jinja_value a,
                             struct phi_jinja_value b, int depth, bool *out)
{
    *out = false;
    if (depth == 0)
        return phi_jinja_fail(r, PHI_ERR_TOO_LONG, "values nested more than %d levels deep",
                              JINJA_MAX_NESTING);
    PHI_TRY(phi_jinja_charge(r, 1));
    if (is_number(a) && is_number(b)) {
        bool unordered = false;
        *out = compare_numbers(a, b, &unordered) == 0;
        return PHI_OK;
    }
    if (a.type != b.type)
        return PHI_OK;
    switch (a.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *out = true;
        return PHI_OK;
    case JINJA_STR:
        *out = phi_str_eq(a.s, b.s);
        return phi_jinja_charge(r, a.s.n / 64);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_lists(r, a.list, b.list, depth, out);
    case JINJA_DICT:
        return equal_dicts(r, a.dict, b.dict, depth, out);
    case JINJA_VIEW:
        return equal_views(r, a, b, depth, out);
    case JINJA_RANGE:
        *out = a.range->n == b.range->n &&
               (a.range->n == 0 || (a.range->start == b.range->start &&
                                    (a.range->n == 1 || a.range->step == b.range->step)));
        return PHI_OK;
    case JINJA_METHOD:
        if (a.method->builtin != b.method->builtin)
            return PHI_OK;
        return equal(r, a.method->self, b.method->self, depth - 1, out);
    default: /* by identity; every kind left has its pointer in the union */
        *out = a.list == b.list;
        return PHI_OK;
    }
}

enum phi_status phi_jinja_equal(struct phi_jinja_run *r, struct phi_jinja_value a,
                                struct phi_jinja_value b, bool *out)
{
    return equal(r, a, b, JINJA_MAX_NESTING, out);
}

/* Bytes order UTF-8 as code points. */
static int compare_str(struct phi_str a, struct phi_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static enum phi_status compare(struct phi_jinja_run *r, struct phi_jinja_value a,
                               struct phi_jinja_value b, const char *op, int depth, int *out,
                               bool *unordered)
{
    *unordered = false;
    *out = 0;
    if (depth == 0)
        return phi_jinja_fail(r, PHI_ERR_TOO_LONG, "values nested more than %d levels deep",
                              JINJA_MAX_NESTING);
    PHI_TRY(phi_jinja_charge(r, 1));
    if (a.type == JINJA_UNDEFINED || b.type == JINJA_UNDEFINED)
        return phi_jinja_undefined_error(r, a.type == JINJA_UNDEFINED ? a : b);
    if (is_number(a) && is_number(b)) {
        *out = compare_numbers(a, b, unordered);
        return PHI_OK;
    }
    if (a.type == JINJA_STR && b.type == JINJA_STR) {
        *out = compare_str(a.s, b.s);
        return phi_jinja_charge(r, (a.s.n < b.s.n ? a.s.n : b.s.n) / 64);
    }
    if (!phi_jinja_is_sequence(a) || a.type != b.type)
        return phi_jinja_error(r, "'%s' not supported between instances of '%s' and '%s'", op,
                               phi_jinja_type_name(a), phi_jinja_type_name(b));
    for (size_t i = 0; i < a.list->n && i < b.list->n; i++) {
        bool same;
        PHI_TRY(equal(r, a.list->items[i], b.list->items[i], depth - 1, &same));
        if (!same)
            return compare(r, a.list->items[i], b.list->items[i], op, depth - 1, out, unordered);
    }
    *out = (a.list->n > b.list->n) - (a.list->n < b.list->n);
    return PHI_OK;
}

enum phi_status phi_jinja_compare(struct phi_jinja_run *r, struct phi_jinja_value a,
                                  struct phi_jinja_value b, const char *op, int *out,
                                  bool *unordered)
{
    return compare(r, a, b, op, JINJA_MAX_NESTING, out, unordered);
}

/* ---- containers ---- */

static enum phi_status range_contains(const struct phi_jinja_range *range,
                                      struct phi_jinja_value item, bool *out)
{
    int64_t i;
    *out = false;
    if (item.type == JINJA_INT || item.type == JINJA_BOOL)
        i = as_int(item);
    else if (item.type == JINJA_FLOAT && item.f == floor(item.f) && fabs(item.f) < 9e18)
        i = (int64_t)item.f;
    else
        return PHI_OK;
    if (range->step > 0 ? i < range->start || i >= range->stop
                        : i > range->start || i <= range->stop)
        return PHI_OK;
    *out = ((__int128)i - range->start) % range->step == 0;
    return PHI_OK;
}

enum phi_status phi_jinja_contains(struct phi_jinja_run *r, struct phi_jinja_value container,
                                   struct phi_jinja_value item, bool *out)
{
    struct phi_jinja_value *found;
    struct phi_jinja_iter it;
    *out = false;
    switch (container.type) {
    case JINJA_STR:
        if (item.type == JINJA_UNDEFINED || item.type != JINJA_STR)
            return phi_jinja_error(r, "'in <string>' requires string as left operand, not %s",
                                   phi_jinja_type_name(item));
        PHI_TRY(phi_jinja_charge(r, container.s.n / 64));
        *out = item.s.n == 0 || memmem(container.s.data, container.s.n, item.s.data, item.s.n);
        return PHI_OK;
    case JINJA_DICT:
        PHI_TRY(phi_jinja_dict_find(r, container.dict, item, &found));
        *out = found != NULL;
        return PHI_OK;
    case JINJA_VIEW:
        if (container.view != JINJA_KEYS)
            break;
        PHI_TRY(phi_jinja_dict_find(r, container.dict, item, &found));
        *out = found != NULL;
        return PHI_OK;
    case JINJA_RANGE:
        return range_contains(container.range, item, out);
    default:
        break;
    }
    if (!phi_jinja_iterable(container))
        return phi_jinja_error(r, "argument of type '%s' is not iterable",
                               phi_jinja_type_name(container));
    PHI_TRY(phi_jinja_iter_init(r, container, &it));
    for (;;) {
        struct phi_jinja_value v;
        bool done;
        PHI_TRY(phi_jinja_iter_next(r, &it, &v, &done));
        if (done)
            return PHI_OK;
        PHI_TRY(phi_jinja_equal(r, v, item, out));
        if (*out)
            return PHI_OK;
    }
}

bool phi_jinja_has_length(struct phi_jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED:
    case JINJA_STR:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_RANGE:
        return true;
    default:
        return false;
    }
}

enum phi_status phi_jinja_length(struct phi_jinja_run *r, struct phi_jinja_value v, int64_t *out)
{
    *out = 0;
    switch (v.type) {
    case JINJA_UNDEFINED:
        return PHI_OK;
    case JINJA_STR:
        *out = (int64_t)phi_jinja_n_chars(v.s);
        return phi_jinja_charge(r, v.s.n / 64);
    case JINJA_LIST:
    case JINJA_TUPLE:
        *out = (int64_t)v.list->n;
        return PHI_OK;
    case JINJA_DICT:
    case JINJA_VIEW:
        *out = (int64_t)v.dict->n;
        return PHI_OK;
    case JINJA_RANGE:
        *out = v.range->n;
        return PHI_OK;
    default:
        return phi_jinja_error(r, "object of type '%s' has no len()", phi_jinja_type_name(v));
    }
}

const char *phi_jinja_type_name(struct phi_jinja_value v)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "Undefined", [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",           [JINJA_INT] = "int",
        [JINJA_FLOAT] = "float",         [JINJA_STR] = "str",
        [JINJA_LIST] = "list",           [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",           [JINJA_VIEW] = "dict view",
        [JINJA_RANGE] = "range",         [JINJA_GENERATOR] = "generator",
        [JINJA_NAMESPACE] = "Namespace", [JINJA_MACRO] = "Macro",
        [JINJA_LOOP] = "LoopContext",    [JINJA_METHOD] = "builtin_function_or_method",
        [JINJA_CYCLER] = "Cycler",       [JINJA_JOINER] = "Joiner",
        [JINJA_MISSING] = "missing",
    };
    if (v.type == JINJA_VIEW)
        return views[v.view];
    return v.type == JINJA_STR && v.markup ? "Markup" : names[v.type];
}

bool phi_jinja_iterable(struct phi_jinja_value v)
{
    return v.type == JINJA_GENERATOR || phi_jinja_has_length(v);
}

enum phi_status phi_jinja_iter_init(struct phi_jinja_run *r, struct phi_jinja_value over,
                                    struct phi_jinja_iter *it)
{
    *it = (struct phi_jinja_iter){.over = over};
    if (!phi_jinja_iterable(over))
        return phi_jinja_error(r, "'%s' object is not iterable", phi_jinja_type_name(over));
    return PHI_OK;
}

static enum phi_status generator_next(struct phi_jinja_run *r, struct phi_jinja_generator *g,
                                      struct phi_jinja_value *out, bool *done)
{
    *done = g->next >= g->items.list->n;
    if (!*done) {
        *out = g->items.list->items[g->next++];
        return PHI_OK;
    }
    struct phi_error *failed = g->failed;
    g->failed = NULL;
    if (!failed)
        return PHI_OK;
    if (r->err)
        *r->err = *failed;
    return failed->code;
}

enum phi_status phi_jinja_iter_next(struct phi_jinja_run *r, struct phi_jinja_iter *it,
                                    struct phi_jinja_value *out, bool *done)
{
    const struct phi_jinja_value *v = &it->over;
    PHI_TRY(phi_jinja_charge(r, 1));
    *done = false;
    switch (v->type) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        *done = it->i >= v->list->n;
        if (!*done)
            *out = v->list->items[it->i++];
        return PHI_OK;
    case JINJA_STR: {
        *done = it->i >= v->s.n;
        if (*done)
            return PHI_OK;
        size_t n = phi_jinja_char_bytes(v->s.data[it->i]);
        *out = phi_jinja_str((struct phi_str){v->s.data + it->i, n});
        it->i += n;
        return PHI_OK;
    }
    case JINJA_DICT:
    case JINJA_VIEW: {
        *done = it->i >= v->dict->n;
        if (*done)
            return PHI_OK;
        const struct phi_jinja_entry *e = &v->dict->entries[it->i++];
        if (v->type == JINJA_VIEW && v->view == JINJA_ITEMS)
            return phi_jinja_pair(r, e->key, e->value, out);
        *out = v->type == JINJA_VIEW && v->view == JINJA_VALUES ? e->value : e->key;
        return PHI_OK;
    }
    case JINJA_RANGE:
        *done = it->i >= (size_t)v->range->n;
        if (!*done)
            *out = phi_jinja_int(v->range->start + (int64_t)it->i++ * v->range->step);
        return PHI_OK;
    case JINJA_GENERATOR:
        return generator_next(r, v->generator, out, done);
    default: /* undefined */
        *done = true;
        return PHI_OK;
    }
}

enum phi_status phi_jinja_to_list(struct phi_jinja_run *r, struct phi_jinja_value v,
                                  struct phi_jinja_value *out)
{
    struct phi_jinja_iter it;
    PHI_TRY(phi_jinja_iter_init(r, v, &it));
    PHI_TRY(phi_jinja_list_make(r, JINJA_LIST, 0, out));
    for (;;) {
        struct phi_jinja_value item;
        bool done;
        PHI_TRY(phi_jinja_iter_next(r, &it, &item, &done));
        if (done)
            return PHI_OK;
        PHI_TRY(phi_jinja_list_append(r, out->list, item));
    }
}

/* Merge sort from below: stable, and only `<` is asked, as Python's sort does. */
static enum phi_status merge(struct phi_jinja_run *r, const struct phi_jinja_value *keys,
                             const size_t *from, size_t *to, size_t begin, size_t middle,
                             size_t end, bool reverse)
{
    size_t a = begin, b = middle;
    for (size_t i = begin; i < end; i++) {
        bool take_b = a == middle;
        if (a < middle && b < end) {
            int order;
            bool unordered;
            const struct phi_jinja_value *x = &keys[from[b]], *y = &keys[from[a]];
            PHI_TRY(phi_jinja_compare(r, *x, *y, "<", &order, &unordered));
            take_b = !unordered && (reverse ? order > 0 : order < 0);
        }
        to[i] = take_b ? from[b++] : from[a++];
    }
    return PHI_OK;
}

enum phi_status phi_jinja_sort(struct phi_jinja_run *r, struct phi_jinja_list *items,
                               struct phi_jinja_value *keys, bool reverse)
{
    size_t n = items->n;
    size_t *from = phi_arena_alloc(&r->arena, n, sizeof *from);
    size_t *to = phi_arena_alloc(&r->arena, n, sizeof *to);
    struct phi_jinja_value *sorted = phi_arena_alloc(&r->arena, n, sizeof *sorted);
    if (!from || !to || !sorted)
        return phi_jinja_no_memory(r);
    for (size_t i = 0; i < n; i++)
        from[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t middle = begin + width < n ? begin + width : n;
            size_t end = begin + 2 * width < n ? begin + 2 * width : n;
            PHI_TRY(merge(r, keys, from, to, begin, middle, end, reverse));
        }
        size_t *swap = from;
        from = to;
        to = swap;
    }
    for (size_t i = 0; i < n; i++)
        sorted[i] = items->items[from[i]];
    items->items = sorted;
    items->capacity = n;
    return PHI_OK;
}
