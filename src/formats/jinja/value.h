/* value.h: the values that a template computes with, and the run that owns them.
 *
 * Values are Python's as far as a template can tell: the same truth, equality, order and errors. A
 * value is a small struct passed by copy; what it points to lives in the arena of the run and goes
 * with it, so nothing is ever freed one by one. Integers have 64 bits: a result beyond that is an
 * error (Python's have no end). Lists and dicts are never changed once a template can see them: the
 * sandbox of the reference forbids it. Only namespaces change, and generators, which are read once.
 *
 * Everything that can fail returns an enum phi_status and has already described the failure in
 * run->err. */
#ifndef PHI_FORMATS_JINJA_VALUE_H
#define PHI_FORMATS_JINJA_VALUE_H

#include "base/arena.h"
#include "base/buf.h"

#include <jansson.h>
#include <stdint.h>

enum phi_jinja_type {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_VIEW, /* dict.keys(), .values(), .items() */
    JINJA_RANGE,
    JINJA_GENERATOR, /* what map, select, ... give: read once, no length */
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_LOOP,
    JINJA_METHOD, /* a function of a value ("a.upper") or a global one (self is none) */
    JINJA_CYCLER,
    JINJA_JOINER,
    JINJA_MISSING /* never seen by a template: an argument that was not given */
};

enum phi_jinja_view_kind { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS };

struct phi_jinja_value {
    enum phi_jinja_type type;
    bool markup; /* a string made by `safe` or `escape`; `+` escapes what is added to it */
    enum phi_jinja_view_kind view;
    union {
        bool b;
        int64_t i;
        double f;
        struct phi_str s;            /* valid UTF-8 */
        struct phi_jinja_list *list; /* list, tuple */
        struct phi_jinja_dict *dict; /* dict, view, namespace */
        struct phi_jinja_range *range;
        struct phi_jinja_generator *generator;
        struct phi_jinja_macro *macro; /* eval.h */
        struct phi_jinja_loop *loop;   /* eval.h */
        struct phi_jinja_method *method;
        struct phi_jinja_cycler *cycler;
        struct phi_jinja_undefined *undefined; /* NULL: without a name */
    };
};

struct phi_jinja_list {
    struct phi_jinja_value *items;
    size_t n, capacity;
    bool is_group; /* a pair of groupby, with the names grouper and list */
};

struct phi_jinja_entry {
    struct phi_jinja_value key, value;
    uint64_t hash;
};

/* Keeps the order of insertion. Above a few entries `slots` is an open-addressing index into
 * entries. */
struct phi_jinja_dict {
    struct phi_jinja_entry *entries;
    size_t n, capacity;
    uint32_t *slots; /* [n_slots], 1 + index of the entry, 0 = free; NULL while small */
    size_t n_slots;  /* a power of two */
};

struct phi_jinja_range {
    int64_t start, stop, step;
    int64_t n;
};

/* The items are computed at once; an error on the way is kept for the moment when a reader gets
 * there, which is when Python's lazy generators would raise it. */
struct phi_jinja_generator {
    struct phi_jinja_value items; /* a list */
    size_t next;
    struct phi_error *failed; /* NULL, or what happens after the last item */
};

struct phi_jinja_undefined {
    struct phi_str message; /* what to say when it is used: "'x' is undefined" */
};

struct phi_jinja_cycler {
    struct phi_jinja_list *items;
    size_t next;
    bool used; /* joiner: the separator is items[0] */
};

struct phi_jinja_builtin;

struct phi_jinja_method {
    const struct phi_jinja_builtin *builtin;
    struct phi_jinja_value self;
};

/* Bounds of one rendering. Generous for real prompts; a template that exceeds one gets an error
 * that names it. */
enum {
    JINJA_MAX_STEPS = 20 * 1000 * 1000, /* about a second of work */
    JINJA_MAX_DEPTH =
        500, /* nested expressions, blocks and calls; about a kilobyte of stack each */
    JINJA_MAX_NESTING = 400, /* of lists and dicts in one value */
    JINJA_MAX_ARENA_BYTES = 96 * 1024 * 1024,
    JINJA_MAX_OUTPUT_BYTES = 16 * 1024 * 1024,
    JINJA_MAX_RANGE = 100000 /* the sandbox's MAX_RANGE */
};

/* Names that the evaluator itself sets, as the parser interned them. */
struct phi_jinja_names {
    struct phi_str loop, caller, kwargs, varargs;
};

/* One rendering: its memory, its bounds and where it is. Owned by eval.c. */
struct phi_jinja_run {
    struct phi_arena arena;
    struct phi_buf *out; /* where text goes now: the result, or the buffer of a macro or block */
    const char *odd_type; /* type of the first piece that went there and is no text; NULL = none */
    int odd_line;
    struct phi_error *err;
    const char *name; /* of the template, for errors */
    int line;         /* of the statement or expression being evaluated */
    int depth;
    int64_t steps_left;
    int64_t now_s;                          /* for strftime_now */
    const struct phi_jinja_dict *variables; /* given by the caller: messages, tools, ... */
    struct phi_jinja_value block_text;      /* what the filters of a block are applied to */
    const struct phi_jinja_names *special;
    struct phi_jinja_scope *free_scopes;
    struct phi_jinja_binding *free_bindings;
};

/* Failure with "name:line: " in front. */
enum phi_status phi_jinja_fail(struct phi_jinja_run *r, enum phi_status code, const char *fmt, ...)
    PHI_PRINTF(3, 4);

/* The usual failure of a template: PHI_ERR_INVALID. */
#define phi_jinja_error(r, ...) phi_jinja_fail((r), PHI_ERR_INVALID, __VA_ARGS__)

enum phi_status phi_jinja_no_memory(struct phi_jinja_run *r);
/* A text buffer failed: at its limit, or for want of memory. */
enum phi_status phi_jinja_text_too_long(struct phi_jinja_run *r);

/* Takes n steps from the budget. */
enum phi_status phi_jinja_charge(struct phi_jinja_run *r, size_t n);

/* printf arguments for a string of which at most 100 bytes are shown: "%.*s". */
#define JINJA_SHOWN(str) (int)((str).n < 100 ? (str).n : 100), (str).data

/* --- making values --- */

static inline struct phi_jinja_value phi_jinja_none(void)
{
    return (struct phi_jinja_value){.type = JINJA_NONE};
}

static inline struct phi_jinja_value phi_jinja_bool(bool b)
{
    return (struct phi_jinja_value){.type = JINJA_BOOL, .b = b};
}

static inline struct phi_jinja_value phi_jinja_int(int64_t i)
{
    return (struct phi_jinja_value){.type = JINJA_INT, .i = i};
}

static inline struct phi_jinja_value phi_jinja_float(double f)
{
    return (struct phi_jinja_value){.type = JINJA_FLOAT, .f = f};
}

/* The text is not copied. */
static inline struct phi_jinja_value phi_jinja_str(struct phi_str s)
{
    return (struct phi_jinja_value){.type = JINJA_STR, .s = s};
}

static inline bool phi_jinja_is(struct phi_jinja_value v, enum phi_jinja_type type)
{
    return v.type == type;
}

static inline bool phi_jinja_is_sequence(struct phi_jinja_value v)
{
    return v.type == JINJA_LIST || v.type == JINJA_TUPLE;
}

/* A copy of the buffer's text in the arena; clears the buffer. Fails when the buffer has. */
enum phi_status phi_jinja_str_from_buf(struct phi_jinja_run *r, struct phi_buf *b,
                                       struct phi_jinja_value *out);

/* An undefined value that will fail with this message. */
enum phi_status phi_jinja_undefined_make(struct phi_jinja_run *r, struct phi_jinja_value *out,
                                         const char *fmt, ...) PHI_PRINTF(3, 4);

/* The failure of using it. */
enum phi_status phi_jinja_undefined_error(struct phi_jinja_run *r, struct phi_jinja_value v);

/* An empty list, tuple or generator with room for `capacity`. */
enum phi_status phi_jinja_list_make(struct phi_jinja_run *r, enum phi_jinja_type type,
                                    size_t capacity, struct phi_jinja_value *out);
enum phi_status phi_jinja_list_append(struct phi_jinja_run *r, struct phi_jinja_list *list,
                                      struct phi_jinja_value v);
enum phi_status phi_jinja_generator_make(struct phi_jinja_run *r, struct phi_jinja_value items,
                                         struct phi_jinja_value *out);
enum phi_status phi_jinja_pair(struct phi_jinja_run *r, struct phi_jinja_value a,
                               struct phi_jinja_value b, struct phi_jinja_value *out);

/* An empty dict or namespace. */
enum phi_status phi_jinja_dict_make(struct phi_jinja_run *r, enum phi_jinja_type type,
                                    struct phi_jinja_value *out);

/* *found is NULL when there is none. A key that cannot be hashed is an error. */
enum phi_status phi_jinja_dict_find(struct phi_jinja_run *r, const struct phi_jinja_dict *d,
                                    struct phi_jinja_value key, struct phi_jinja_value **found);
enum phi_status phi_jinja_dict_set(struct phi_jinja_run *r, struct phi_jinja_dict *d,
                                   struct phi_jinja_value key, struct phi_jinja_value value);
/* For string keys, which cannot fail; NULL when there is none. */
struct phi_jinja_value *phi_jinja_dict_get(const struct phi_jinja_dict *d, struct phi_str key);

bool phi_jinja_hashable(struct phi_jinja_value v);

/* JSON to values. Strings are copied when `copy`, else they must outlive the run. */
enum phi_status phi_jinja_from_json(struct phi_jinja_run *r, const json_t *json, bool copy,
                                    struct phi_jinja_value *out);

/* --- using values --- */

bool phi_jinja_truth(struct phi_jinja_value v);

/* Python's ==. It can fail only by nesting. */
enum phi_status phi_jinja_equal(struct phi_jinja_run *r, struct phi_jinja_value a,
                                struct phi_jinja_value b, bool *out);

/* Python's order: *out < 0, 0, > 0; *unordered when a NaN is involved. `op` ("<") is for the error
 * that incomparable types give. */
enum phi_status phi_jinja_compare(struct phi_jinja_run *r, struct phi_jinja_value a,
                                  struct phi_jinja_value b, const char *op, int *out,
                                  bool *unordered);

/* Python's `item in container`. */
enum phi_status phi_jinja_contains(struct phi_jinja_run *r, struct phi_jinja_value container,
                                   struct phi_jinja_value item, bool *out);

/* Python's len(); an error for what has none. */
enum phi_status phi_jinja_length(struct phi_jinja_run *r, struct phi_jinja_value v, int64_t *out);
bool phi_jinja_has_length(struct phi_jinja_value v);

/* "str", "dict", "NoneType", ... */
const char *phi_jinja_type_name(struct phi_jinja_value v);

/* Reads any iterable from its start (a generator: from where it is). */
struct phi_jinja_iter {
    struct phi_jinja_value over;
    size_t i; /* index, or byte for strings */
};

/* An error for what cannot be iterated. */
enum phi_status phi_jinja_iter_init(struct phi_jinja_run *r, struct phi_jinja_value over,
                                    struct phi_jinja_iter *it);
bool phi_jinja_iterable(struct phi_jinja_value v);
/* *done at the end; *out is valid otherwise. */
enum phi_status phi_jinja_iter_next(struct phi_jinja_run *r, struct phi_jinja_iter *it,
                                    struct phi_jinja_value *out, bool *done);

/* list(v) */
enum phi_status phi_jinja_to_list(struct phi_jinja_run *r, struct phi_jinja_value v,
                                  struct phi_jinja_value *out);

/* Stable ascending (or, with reverse, descending) sort of a list's items by keys[i]. */
enum phi_status phi_jinja_sort(struct phi_jinja_run *r, struct phi_jinja_list *items,
                               struct phi_jinja_value *keys, bool reverse);

#endif
