/* test_api_docs.c: the tables of request fields in docs/SERVING.md say what the fields' own table
 * says (server/api/fields.h). A difference prints what the document should have. */
#include "base/file.h"
#include "server/api/fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *kind_name(enum phi_field_kind kind)
{
    switch (kind) {
    case PHI_FIELD_BOOL:
        return "boolean";
    case PHI_FIELD_INT:
        return "integer";
    case PHI_FIELD_REAL:
        return "number";
    case PHI_FIELD_TEXT:
        return "string";
    case PHI_FIELD_TEXTS:
        return "strings";
    case PHI_FIELD_STOP:
        return "string(s)";
    case PHI_FIELD_IDS:
    case PHI_FIELD_TOKENS:
        return "token ids";
    case PHI_FIELD_BIAS:
    case PHI_FIELD_OBJECT:
        return "object";
    case PHI_FIELD_PROMPT:
        return "string(s) or token ids";
    case PHI_FIELD_OBJECTS:
        return "objects";
    case PHI_FIELD_VALUE:
        break;
    }
    return "any";
}

/* | `top_p` | number, in (0, 1] | 1 | what it does | */
static void append_row(struct phi_buf *out, const struct phi_field *f)
{
    const char *must = f->must ? f->must : "";
    const char *absent = f->flags & PHI_FIELD_REQUIRED ? "required" : f->initial ? f->initial : "";
    if (strncmp(must, "be ", 3) == 0)
        must += 3;
    phi_buf_printf(out, "| `%s` | %s%s%s | %s | %s |\n", f->name, kind_name(f->kind),
                   *must ? ", " : "", must, absent, f->help);
}

/* Fields of one endpoint, those that it shares with the other or those that it does not. */
struct block {
    const char *marker;
    const struct phi_field_set *of, *other;
    bool shared;
};

static bool is_in_block(const struct block *b, const struct phi_field *list)
{
    bool shared = false;
    for (size_t i = 0; b->other->lists[i]; i++)
        shared |= b->other->lists[i] == list;
    return shared == b->shared;
}

/* Rows for fields without `flags`, or a list of the names of those that have them. */
static size_t append_fields(struct phi_buf *out, const struct block *b, unsigned flags)
{
    const unsigned idle = PHI_FIELD_LATER | PHI_FIELD_IGNORED;
    size_t n = 0;
    for (size_t i = 0; b->of->lists[i]; i++)
        for (const struct phi_field *f = b->of->lists[i]; f->name; f++) {
            if (!is_in_block(b, b->of->lists[i]) || (f->flags & idle) != flags)
                continue;
            if (!flags)
                append_row(out, f);
            else
                phi_buf_printf(out, "%s`%s`", n ? ", " : "", f->name);
            n++;
        }
    return n;
}

static void expected_block(const struct block *b, struct phi_buf *out)
{
    static const struct {
        unsigned flags;
        const char *before, *after;
    } lists[] = {
        {PHI_FIELD_LATER, "\nNot yet (400): ", ".\n"},
        {PHI_FIELD_IGNORED, "\nAccepted without effect: ", ".\n"},
    };
    phi_buf_append_c(out, "\n| field | type | default | what |\n|---|---|---|---|\n");
    append_fields(out, b, 0);
    for (size_t i = 0; i < 2; i++) {
        struct phi_buf names = {0};
        if (append_fields(&names, b, lists[i].flags) > 0)
            phi_buf_printf(out, "%s%s%s", lists[i].before, names.data, lists[i].after);
        phi_buf_deinit(&names);
    }
}

static void test_fields_documented(void **state)
{
    (void)state;
    const struct block blocks[] = {
        {"fields of both", &phi_completion_fields, &phi_chat_fields, true},
        {"fields of completions", &phi_completion_fields, &phi_chat_fields, false},
        {"fields of chat", &phi_chat_fields, &phi_completion_fields, false},
    };
    struct phi_buf path = {0}, document = {0};
    assert_non_null(getenv("PHI_TESTS"));
    assert_true(phi_path_join(&path, getenv("PHI_TESTS"), "../docs/SERVING.md"));
    assert_int_equal(phi_file_read(path.data, 1 << 20, &document, NULL), PHI_OK);
    int n_wrong = 0;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        struct phi_buf whole = {0};
        phi_buf_printf(&whole, "<!-- %s: begin -->", blocks[i].marker);
        expected_block(&blocks[i], &whole);
        phi_buf_printf(&whole, "<!-- %s: end -->\n", blocks[i].marker);
        assert_true(!whole.failed && whole.n > 200);
        if (!strstr(document.data, whole.data)) {
            printf("# docs/SERVING.md should have:\n%s", whole.data);
            n_wrong++;
        }
        phi_buf_deinit(&whole);
    }
    phi_buf_deinit(&path);
    phi_buf_deinit(&document);
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields_documented)};
    return cmocka_run_group_tests_name("api_docs", tests, NULL, NULL);
}
