/* test_tokenizer.c: ids and text, as the reference library gives them. The small vocabularies
 * beside this file are always there; the real ones are found in PHI_CHECKPOINTS. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "formats/tokenizer.h"

#include "../temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "faults.h"

#define FFFD "\xEF\xBF\xBD"

/* --- Helpers --------------------------------------------------------------------------------- */

/* One of the vocabularies beside this file. */
static struct phi_buf fixture_text(const char *name)
{
    struct phi_buf path = {0}, text = {0};
    struct phi_error err;
    phi_buf_printf(&path, "%s/formats/tokenizer/%s.json", getenv("PHI_TESTS"), name);
    if (phi_file_read(path.data, 1 << 20, &text, &err) != PHI_OK)
        fail_msg("%s", err.text);
    phi_buf_deinit(&path);
    return text;
}

static struct phi_tokenizer *open_fixture(const char *name, struct phi_str config)
{
    struct phi_buf text = fixture_text(name);
    struct phi_tokenizer *t;
    struct phi_error err;
    if (phi_tokenizer_parse(phi_buf_str(&text), config, name, &t, &err) != PHI_OK)
        fail_msg("%s", err.text);
    phi_buf_deinit(&text);
    return t;
}

/* A real vocabulary; NULL, saying so, where PHI_CHECKPOINTS is unset. (The test then passes: cmocka
 * writes a skipped one as "not ok", which Meson counts as failed.) */
static struct phi_tokenizer *open_real(const char *name)
{
    const char *parent = getenv("PHI_CHECKPOINTS");
    struct phi_tokenizer *t;
    struct phi_error err;
    struct phi_buf dir = {0};
    if (!parent || !*parent) {
        print_message("# skipped: PHI_CHECKPOINTS is unset\n");
        return NULL;
    }
    phi_path_join(&dir, parent, name);
    if (phi_tokenizer_open(dir.data, &t, &err) != PHI_OK)
        fail_msg("%s", err.text);
    phi_buf_deinit(&dir);
    return t;
}

static struct phi_ids encode(const struct phi_tokenizer *t, struct phi_str text,
                             struct phi_encode_options options)
{
    struct phi_ids ids = {0};
    struct phi_error err;
    if (phi_tokenizer_encode(t, text, options, &ids, &err) != PHI_OK)
        fail_msg("\"%.*s\": %s", (int)text.n, text.data, err.text);
    return ids;
}

/* "1 22 333" to ids. */
static struct phi_ids parse_ids(const char *list)
{
    struct phi_ids ids = {0};
    char *end;
    for (; *list; list = *end ? end + 1 : end)
        phi_ids_append(&ids, (int32_t)strtol(list, &end, 10));
    return ids;
}

static void assert_ids(const struct phi_ids *ids, const char *expected, const char *what)
{
    struct phi_buf got = {0};
    for (size_t i = 0; i < ids->n; i++)
        phi_buf_printf(&got, "%s%d", i ? " " : "", ids->data[i]);
    if (!phi_str_eq_c(phi_buf_str(&got), expected))
        fail_msg("\"%s\" gives %s, expected %s", what, phi_buf_str(&got).data, expected);
    phi_buf_deinit(&got);
}

static void assert_encodes(const struct phi_tokenizer *t, struct phi_str text,
                           struct phi_encode_options options, const char *expected)
{
    struct phi_ids ids = encode(t, text, options);
    assert_ids(&ids, expected, text.data);
    phi_ids_deinit(&ids);
}

/* Decodes at once and id by id, and compares both with `expected`. */
static void assert_decodes(const struct phi_tokenizer *t, const char *list, bool skip_special,
                           struct phi_str expected)
{
    struct phi_ids ids = parse_ids(list);
    struct phi_buf whole = {0}, pieces = {0}, piece = {0};
    struct phi_decode_stream s;
    assert_int_equal(phi_tokenizer_decode(t, ids.data, ids.n, skip_special, &whole, NULL), PHI_OK);
    phi_decode_stream_init(&s, t, skip_special);
    for (size_t i = 0; i <= ids.n; i++) {
        phi_buf_clear(&piece);
        enum phi_status status = i < ids.n ? phi_decode_stream_push(&s, ids.data[i], &piece, NULL)
                                           : phi_decode_stream_finish(&s, &piece, NULL);
        assert_int_equal(status, PHI_OK);
        assert_true(phi_utf8_valid(phi_buf_str(&piece)));
        phi_buf_append_str(&pieces, phi_buf_str(&piece));
    }
    if (!phi_str_eq(phi_buf_str(&whole), expected))
        fail_msg("%s decodes to \"%s\", expected \"%s\"", list, phi_buf_str(&whole).data,
                 expected.data);
    assert_true(phi_str_eq(phi_buf_str(&pieces), expected));
    phi_decode_stream_deinit(&s);
    phi_buf_deinit(&whole);
    phi_buf_deinit(&pieces);
    phi_buf_deinit(&piece);
    phi_ids_deinit(&ids);
}

/* --- Golden ids ------------------------------------------------------------------------------ */

struct golden {
    const char *vocabulary, *text, *ids;
};

/* From make_fixtures.py --expect, which asks the reference library. */
static const struct golden small[] = {
    {"gpt2", "Hello world", "268 265"},
    {"gpt2", " Hello  world", "269 276 86 262 264"},
    {"gpt2", "<|user|> \n hello<|end|>x", "274 220 198 260 273 87"},
    {"gpt2", "     x", "275 276 87"},
    {"gpt2", "hello\u00a0é日🦙", "259 126 254 270 162 245 98 172 253 99 247"},
    {"gpt2", "don't DON'T", "67 78 77 6 83 220 35 46 45 6 51"},
    {"gpt2", "12345", "272 19 20"},
    {"gpt2", "hello hellohello", "259 260 259"},
    {"gpt2", "", ""},
    {"gpt2", "<|end|", "27 91 68 77 67 91"},
    {"gpt2", "a\r\n\r\nb \t", "64 201 198 201 198 65 220 197"},
    {"gpt2", "hello  <|end|>", "259 276 273"},
    {"gpt2",
     "hellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohel"
     "lohello",
     "259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259"},
    {"gpt2", "lllllllllllllllllllllllllllllllllllllllllllllllll",
     "257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 "
     "257 75"},
    {"gpt2",
     "oellhehlohllleoheloworldlehhhelooorhellehohelloloherldlolehelehooroellhehlohllleoheloworldleh"
     "hhelooorhellehohelloloherldlolehelehoor",
     "78 68 257 256 71 75 78 71 257 75 68 78 256 75 78 86 262 264 75 68 71 71 256 75 78 78 262 258 "
     "68 71 78 259 75 78 256 81 264 75 78 75 68 256 75 68 71 78 262 78 68 257 256 71 75 78 71 257 "
     "75 68 78 256 75 78 86 262 264 75 68 71 71 256 75 78 78 262 258 68 71 78 259 75 78 256 81 264 "
     "75 78 75 68 256 75 68 71 78 262"},
    {"cl100k", "Hello world", "268 265"},
    {"cl100k", " Hello  world", "269 276 86 262 264"},
    {"cl100k", "<|user|> \n hello<|end|>x", "274 259 273 87"},
    {"cl100k", "     x", "275 276 87"},
    {"cl100k", "hello\u00a0é日🦙", "259 126 254 270 162 245 98 172 253 99 247"},
    {"cl100k", "don't DON'T", "67 78 77 6 83 220 35 46 45 6 51"},
    {"cl100k", "12345", "272 19 20"},
    {"cl100k", "hello hellohello", "259 260 259"},
    {"cl100k", "", ""},
    {"cl100k", "<|end|", "27 91 68 77 67 91"},
    {"cl100k", "a\r\n\r\nb \t", "64 201 198 201 198 65 220 197"},
    {"cl100k", "hello  <|end|>", "259 273"},
    {"cl100k",
     "hellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohel"
     "lohello",
     "259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259"},
    {"cl100k", "lllllllllllllllllllllllllllllllllllllllllllllllll",
     "257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 "
     "257 75"},
    {"cl100k",
     "oellhehlohllleoheloworldlehhhelooorhellehohelloloherldlolehelehooroellhehlohllleoheloworldleh"
     "hhelooorhellehohelloloherldlolehelehoor",
     "78 68 257 256 71 75 78 71 257 75 68 78 256 75 78 86 262 264 75 68 71 71 256 75 78 78 262 258 "
     "68 71 78 259 75 78 256 81 264 75 78 75 68 256 75 68 71 78 262 78 68 257 256 71 75 78 71 257 "
     "75 68 78 256 75 78 86 262 264 75 68 71 71 256 75 78 78 262 258 68 71 78 259 75 78 256 81 264 "
     "75 78 75 68 256 75 68 71 78 262"},
    {"o200k", "Hello world", "268 265"},
    {"o200k", " Hello  world", "269 276 86 262 264"},
    {"o200k", "<|user|> \n hello<|end|>x", "274 259 273 87"},
    {"o200k", "     x", "275 276 87"},
    {"o200k", "hello\u00a0é日🦙", "259 126 254 270 162 245 98 172 253 99 247"},
    {"o200k", "don't DON'T", "67 78 77 6 83 220 35 46 45 6 51"},
    {"o200k", "12345", "272 19 20"},
    {"o200k", "hello hellohello", "259 260 259"},
    {"o200k", "", ""},
    {"o200k", "<|end|", "27 91 68 77 67 91"},
    {"o200k", "a\r\n\r\nb \t", "64 201 198 201 198 65 220 197"},
    {"o200k", "hello  <|end|>", "259 276 273"},
    {"o200k",
     "hellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohel"
     "lohello",
     "259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259 259"},
    {"o200k", "lllllllllllllllllllllllllllllllllllllllllllllllll",
     "257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 257 "
     "257 75"},
    {"o200k",
     "oellhehlohllleoheloworldlehhhelooorhellehohelloloherldlolehelehooroellhehlohllleoheloworldleh"
     "hhelooorhellehohelloloherldlolehelehoor",
     "78 68 257 256 71 75 78 71 257 75 68 78 256 75 78 86 262 264 75 68 71 71 256 75 78 78 262 258 "
     "68 71 78 259 75 78 256 81 264 75 78 75 68 256 75 68 71 78 262 78 68 257 256 71 75 78 71 257 "
     "75 68 78 256 75 78 86 262 264 75 68 71 71 256 75 78 78 262 258 68 71 78 259 75 78 256 81 264 "
     "75 78 75 68 256 75 68 71 78 262"},
    {"spm", "Hello world", "1 286 282"},
    {"spm", " Hello  world", "1 272 285 272 264 278 281"},
    {"spm", "<|user|> \n hello<|end|>x", "1 289 277 288 259 268"},
    {"spm", "     x", "1 287 272 268"},
    {"spm", "hello\u00a0é日🦙", "1 277 197 163 271 233 154 168 243 162 169 156"},
    {"spm", "don't DON'T", "1 259 266 263 113 42 119 259 71 82 81 42 87"},
    {"spm", "12345", "1 259 270 53 54 55 56"},
    {"spm", "hello hellohello", "1 277 277 276"},
    {"spm", "", "1"},
    {"spm", "<|end|", "1 259 63 127 261 113 266 127"},
    {"spm", "a\r\n\r\nb \t", "1 259 269 16 13 16 13 101 259 12"},
    {"spm", "hello  <|end|>", "1 277 272 288"},
    {"spm",
     "hellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohellohel"
     "lohello",
     "1 277 276 276 276 276 276 276 276 276 276 276 276 276 276 276 276 276 276 276 276"},
    {"spm", "lllllllllllllllllllllllllllllllllllllllllllllllll",
     "1 259 274 274 274 274 274 274 274 274 274 274 274 274 274 274 274 274 274 274 274 274 274 "
     "274 274 274 262"},
    {"spm",
     "oellhehlohllleoheloworldlehhhelooorhellehohelloloherldlolehelehooroellhehlohllleoheloworldleh"
     "hhelooorhellehohelloloherldlolehelehoor",
     "1 259 263 261 274 273 260 262 263 260 274 262 261 263 273 262 263 264 278 281 262 261 260 "
     "260 273 262 263 263 278 275 261 260 263 276 262 263 273 265 281 262 263 262 261 273 262 261 "
     "260 263 278 263 261 274 273 260 262 263 260 274 262 261 263 273 262 263 264 278 281 262 261 "
     "260 260 273 262 263 263 278 275 261 260 263 276 262 263 273 265 281 262 263 262 261 273 262 "
     "261 260 263 278"},
    {"odd", "a a a", "1 8 8 2"},
    {"odd", "xyz", "1 0 0 0"},
    {"odd", "x a", "1 0 9"},
    {"odd", "ab abc ab", "11 1 9 10 1 11"},
    {"odd", "cab ab", "1 4 11 1 11"},
    {"odd", "ab", "11"},
    {"odd", "\n\n", "7"},
    {"odd", "b \n b", "1 3 7 1 3"},
    {"odd", "f o", "12"},
    {"odd", "a f oa", "9 12 2"},
    {"odd", "aa  a", "9 8 9"},
    {"odd", "ab\n", "11 7"},
};

/* Of the real vocabularies; many are reported cases of other programs. */
static const struct golden real[] = {
    {"phi-1", "This is an example script .", "1212 318 281 1672 4226 764"},
    {"phi-1", " Hello  world", "18435 50286 6894"},
    {"phi-1", "def f(x):\n    return x\n\n\t\tif x:  y",
     "4299 277 7 87 2599 198 50284 7783 2124 628 50294 361 2124 25 50286 88"},
    {"phi-1", "   leading", "50285 12294"},
    {"phi-1", "1234567 don't I'LL", "10163 2231 3134 836 470 314 6 3069"},
    {"phi-1", "a\u00a0b é ñ 日本語 🦙",
     "64 1849 65 38251 6184 109 10545 245 98 17312 105 45739 252 12520 99 247"},
    {"phi-1", "                                x", "50257 2124"},
    {"phi-1", "\t\t\t\t\t\t\t\t\t\tx", "50287 197 87"},
    {"phi-1", "                                 ", "50257 50286"},
    {"phi-1", "<|endoftext|> a", "50256 257"},
    {"Phi-3.5-mini-instruct",
     "<|system|>\nYou are helpful.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\n",
     "32006 887 526 8444 29889 32007 32010 15043 32007 32001"},
    {"Phi-3.5-mini-instruct", "<|user|> Hi<|end|>", "32010 6324 32007"},
    {"Phi-3.5-mini-instruct", "Hello world", "15043 3186"},
    {"Phi-3.5-mini-instruct", "a  b\n\nc 🦙 日本",
     "263 29871 289 13 13 29883 29871 243 162 169 156 29871 30325 30346"},
    {"Phi-3.5-mini-instruct", "Hello<|end|>", "15043 32007"},
    {"Phi-3.5-mini-instruct", "Say <|end|>\n<|system|>\nobey", "14891 29871 32007 32006 26449"},
    {"Phi-3.5-mini-instruct", "                                ", "462 462 29871"},
    {"Phi-3.5-mini-instruct", "                                 x", "462 462 29871 921"},
    {"Phi-3.5-mini-instruct", "\tHello", "29871 12 10994"},
    {"Phi-3.5-mini-instruct", "This is a test string", "910 338 263 1243 1347"},
    {"Phi-3.5-mini-instruct", "</s>  x", "2 921"},
    {"phi-4", "<|im_start|>user<|im_sep|>Hello world<|im_end|><|im_start|>assistant<|im_sep|>",
     "100264 882 100266 9906 1917 100265 100264 78191 100266"},
    {"phi-4", "Hello <|im_sep|> World", "9906 100266 10343"},
    {"phi-4", "I'LL pay 12345 €  \n\n x", "40 6 4178 2343 220 4513 1774 13281 19124 865"},
    {"phi-4", "x<|im_start>y", "87 27 91 318 5011 83344"},
    {"phi-4", "Hello <|im_end|> World", "9906 100265 10343"},
    {"phi-4", "<|im_start|>system<|im_sep|> hi \n<|im_end|>\n", "100264 9125 100266 6151 100265"},
    {"phi-4", "                                 x", "792 865"},
    {"phi-4", "a'ſ 'ſ", "64 6 129 123 364 129 123"},
    {"Phi-4-mini-instruct", "<|user|>Hello world<|end|><|assistant|>",
     "200021 13225 2375 200020 200019"},
    {"Phi-4-mini-instruct", "<|user|>\n Hello<|end|>", "200021 13225 200020"},
    {"Phi-4-mini-instruct", "HelloWorld don'T 12345\n/path/ñandú 日本語  end",
     "13225 13046 1700 51532 220 7633 2548 198 119244 14 1871 427 1042 17428 40909 220 1268"},
    {"Phi-4-mini-instruct", "a<|end|>", "64 200020"},
    {"Phi-4-mini-instruct", "हिन्दी ไทย é", "1554 71602 840 62720 1212"},
    {"Phi-4-mini-instruct", "ΣΊΣΥΦΟΣ Привет МИР'S ǅemal",
     "10720 138 232 10720 28574 34931 187452 14917 131903 4148 4643 4647 31233 220 131 227 347 "
     "280"},
    {"Phi-4-mini-instruct", "<|tool|>[]<|/tool|> x", "200023 1951 200024 87"},
};

static void check_goldens(const struct golden *rows, size_t n, bool are_real)
{
    const struct phi_encode_options options = {.add_special_tokens = true};
    struct phi_tokenizer *t = NULL;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(rows[i].vocabulary, rows[i - 1].vocabulary) != 0) {
            phi_tokenizer_close(t);
            t = are_real ? open_real(rows[i].vocabulary)
                         : open_fixture(rows[i].vocabulary, (struct phi_str){"", 0});
            if (!t)
                return;
        }
        assert_encodes(t, phi_str_from(rows[i].text), options, rows[i].ids);
    }
    phi_tokenizer_close(t);
}

static void test_small_vocabularies(void **state)
{
    (void)state;
    check_goldens(small, sizeof small / sizeof *small, false);
}

static void test_real_vocabularies(void **state)
{
    (void)state;
    check_goldens(real, sizeof real / sizeof *real, true);
}

/* --- Encoding -------------------------------------------------------------------------------- */

static void test_options(void **state)
{
    (void)state;
    struct phi_tokenizer *t = open_fixture("spm", (struct phi_str){"", 0});
    const struct phi_encode_options none = {0}, plain = {.plain_text = true};
    assert_encodes(t, PHI_STR("Hello"), none, "286");
    assert_encodes(t, PHI_STR("<|user|>"), none, "289");
    /* Neither the special tokens nor </s>, which is not special, are recognised in plain text. */
    assert_encodes(t, PHI_STR("<|user|></s>"), plain,
                   "259 63 127 120 118 261 265 127 65 63 50 118 65");
    phi_tokenizer_close(t);

    t = open_fixture("gpt2", (struct phi_str){"", 0});
    assert_encodes(t, PHI_STR("    x"), plain, "275 220 87"); /* blanks are no control tokens */
    phi_tokenizer_close(t);
}

static void test_text_with_nul(void **state)
{
    (void)state;
    struct phi_tokenizer *t = open_fixture("gpt2", (struct phi_str){"", 0});
    assert_encodes(t, PHI_STR("a\0b"), (struct phi_encode_options){0}, "64 188 65");
    assert_decodes(t, "64 188 65", false, PHI_STR("a\0b"));
    phi_tokenizer_close(t);
}

static void test_invalid_text(void **state)
{
    (void)state;
    struct phi_tokenizer *t = open_fixture("gpt2", (struct phi_str){"", 0});
    struct phi_ids ids = {0};
    struct phi_error err;
    const struct phi_encode_options none = {0};
    assert_int_equal(phi_tokenizer_encode(t, PHI_STR("ab\xFFz"), none, &ids, &err),
                     PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "byte 2"));
    assert_int_equal(ids.n, 0);
    phi_ids_deinit(&ids);
    phi_tokenizer_close(t);
}

/* A word of a million letters, for which every vocabulary needs its heap. */
static double seconds_to_encode(const struct phi_tokenizer *t, const char *unit, size_t n)
{
    struct phi_buf text = {0};
    for (size_t i = 0; i < n; i++)
        phi_buf_append_c(&text, unit);
    double start = phi_clock_s();
    struct phi_ids ids = encode(t, phi_buf_str(&text), (struct phi_encode_options){0});
    double seconds = phi_clock_s() - start;
    struct phi_buf back = {0};
    assert_int_equal(phi_tokenizer_decode(t, ids.data, ids.n, false, &back, NULL), PHI_OK);
    assert_true(phi_str_eq(phi_buf_str(&back), phi_buf_str(&text)));
    phi_ids_deinit(&ids);
    phi_buf_deinit(&text);
    phi_buf_deinit(&back);
    return seconds;
}

static void test_long_words(void **state)
{
    (void)state;
    static const char *names[] = {"o200k", "spm"};
    static const char *units[] = {"l", "\xC3\xA9"};
    for (size_t i = 0; i < 2; i++) {
        struct phi_tokenizer *t = open_fixture(names[i], (struct phi_str){"", 0});
        for (size_t u = 0; u < 2; u++) {
            double half = seconds_to_encode(t, units[u], 500000);
            double full = seconds_to_encode(t, units[u], 1000000);
            print_message("# %s: a million \"%s\" take %.0f ms, %.2f times half of them\n",
                          names[i], units[u], full * 1e3, full / half);
        }
        phi_tokenizer_close(t);
    }
}

/* --- Decoding -------------------------------------------------------------------------------- */

static void test_decode_byte_level(void **state)
{
    (void)state;
    struct phi_tokenizer *t = open_fixture("gpt2", (struct phi_str){"", 0});
    static const struct {
        const char *ids;
        bool skip_special;
        struct phi_str text;
    } rows[] = {
        {"", false, {"", 0}},
        {"269", false, PHI_STR(" Hello")}, /* byte-level text keeps its first space */
        {"268 265 273", false, PHI_STR("Hello world<|end|>")},
        {"268 265 273", true, PHI_STR("Hello world")},
        {"268 275 264", true, PHI_STR("Hello   ld")},
        {"268 9999 -1 265", true, PHI_STR("Hello world")}, /* ids without a token */
        {"172 253 99 247", false, PHI_STR("\xF0\x9F\xA6\x99")},
        {"172 253 99 273 247", true, PHI_STR("\xF0\x9F\xA6\x99")}, /* skipped within a character */
        {"172 253 99", false, PHI_STR(FFFD)},
        {"172 253 64", false, PHI_STR(FFFD "a")},
        {"253 172 172", false, PHI_STR(FFFD FFFD FFFD)},
        {"172 253 273 99 247", false, PHI_STR(FFFD "<|end|>" FFFD FFFD)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_decodes(t, rows[i].ids, rows[i].skip_special, rows[i].text);
    phi_tokenizer_close(t);
}

static void test_decode_sentence_piece(void **state)
{
    (void)state;
    struct phi_tokenizer *t = open_fixture("spm", (struct phi_str){"", 0});
    static const struct {
        const char *ids;
        bool skip_special;
        struct phi_str text;
    } rows[] = {
        {"286 282", false, PHI_STR("Hello world")}, /* the first space goes */
        {"1 286 282", true, PHI_STR("Hello world")},
        {"1 286 282", false, PHI_STR("<s> Hello world")},
        {"259 259 269", false, PHI_STR(" a")}, /* one space, not all */
        {"272 269", false, PHI_STR(" a")},
        {"259", false, {"", 0}},
        {"269 290 9999 270", true, PHI_STR("a1")},
        {"243 162 169 156", false, PHI_STR("\xF0\x9F\xA6\x99")},
        {"243 162 169", false, PHI_STR(FFFD FFFD FFFD)},
        {"269 68 243 269", false, PHI_STR("a" FFFD FFFD "a")}, /* all of a run, or none */
        {"68 69 70", false, PHI_STR("ABC")},
        {"35 68", false, PHI_STR("A")}, /* a byte that is a space counts as one */
        {"243 162 288 169 156", true, PHI_STR("\xF0\x9F\xA6\x99")},
        {"243 162 288 169 156", false, PHI_STR(FFFD FFFD "<|end|>" FFFD FFFD)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_decodes(t, rows[i].ids, rows[i].skip_special, rows[i].text);
    phi_tokenizer_close(t);
}

/* An added token that is normalized decodes to its normalized form, and since that is no special
 * token's content, it is never left out. */
static void test_decode_rewritten(void **state)
{
    (void)state;
    struct phi_tokenizer *t = open_fixture("odd", (struct phi_str){"", 0});
    assert_int_equal(phi_tokenizer_find(t, PHI_STR("f o")), 12);
    assert_decodes(t, "12", true, PHI_STR("f o"));
    assert_decodes(t, "2 12 2", true, PHI_STR("a f oa"));
    assert_decodes(t, "0 11 7", true, PHI_STR("<unk>ab\n"));
    phi_tokenizer_close(t);
}

static void test_decode_real(void **state)
{
    (void)state;
    static const struct {
        const char *vocabulary, *ids, *text;
    } rows[] = {
        {"phi-1", "23105", " hi"},
        {"phi-1", "64 51199 65", "ab"},
        {"phi-4", "15960", " hi"},
        {"Phi-3.5-mini-instruct", "910 338 263 1243 1347", "This is a test string"},
        {"Phi-3.5-mini-instruct", "29871 8236 921", " leading x"},
        {"Phi-3.5-mini-instruct", "15043 32063 3186", "Hello world"},
        {"Phi-4-mini-instruct", "200021 13225 200023", "Hello<|tool|>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_tokenizer *t = open_real(rows[i].vocabulary);
        if (!t)
            return;
        assert_decodes(t, rows[i].ids, true, phi_str_from(rows[i].text));
        phi_tokenizer_close(t);
    }
}

/* What a stream emits with each id: whole characters as soon as they are certain. */
static void test_stream_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *vocabulary, *ids;
        const char *pieces[6]; /* the last one from finish */
    } rows[] = {
        {"gpt2", "269 172 253 99 247", {" Hello", "", "", "", "\xF0\x9F\xA6\x99", ""}},
        {"gpt2", "172 64 253 172", {"", FFFD "a", FFFD, "", FFFD}},
        {"spm", "272 286 243 162", {" ", " Hello", "", "", FFFD FFFD}},
        {"spm", "243 243 243 269", {"", FFFD FFFD, FFFD, "a", ""}},
        {"spm", "68 69 269", {"", "", "ABa", ""}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_tokenizer *t = open_fixture(rows[i].vocabulary, (struct phi_str){"", 0});
        struct phi_ids ids = parse_ids(rows[i].ids);
        struct phi_decode_stream s;
        struct phi_buf piece = {0};
        phi_decode_stream_init(&s, t, true);
        for (size_t k = 0; k <= ids.n; k++) {
            phi_buf_clear(&piece);
            if (k < ids.n)
                assert_int_equal(phi_decode_stream_push(&s, ids.data[k], &piece, NULL), PHI_OK);
            else
                assert_int_equal(phi_decode_stream_finish(&s, &piece, NULL), PHI_OK);
            assert_string_equal(phi_buf_str(&piece).data, rows[i].pieces[k]);
        }
        phi_decode_stream_deinit(&s);
        phi_buf_deinit(&piece);
        phi_ids_deinit(&ids);
        phi_tokenizer_close(t);
    }
}

/* A byte run that never becomes text: emitted as it comes, in memory that does not grow. */
static void test_endless_broken_run(void **state)
{
    (void)state;
    struct phi_tokenizer *t = open_fixture("spm", (struct phi_str){"", 0});
    struct phi_decode_stream s;
    struct phi_buf out = {0};
    phi_decode_stream_init(&s, t, false);
    for (int i = 0; i < 30000; i++)
        assert_int_equal(phi_decode_stream_push(&s, 243, &out, NULL), PHI_OK);
    assert_int_equal(out.n, 30000 * 3);
    assert_true(s.pending.capacity <= 64);
    assert_int_equal(phi_decode_stream_finish(&s, &out, NULL), PHI_OK);
    assert_int_equal(out.n, 30000 * 3);
    phi_decode_stream_deinit(&s);
    phi_buf_deinit(&out);
    phi_tokenizer_close(t);
}

static void test_token_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *vocabulary;
        int32_t id;
        struct phi_str bytes;
    } rows[] = {
        {"gpt2", 269, PHI_STR(" Hello")}, {"gpt2", 172, PHI_STR("\xF0")},
        {"gpt2", 275, PHI_STR("   ")},    {"gpt2", 273, PHI_STR("<|end|>")},
        {"gpt2", 9999, {"", 0}},          {"spm", 286, PHI_STR(" Hello")},
        {"spm", 13, PHI_STR("\n")},       {"spm", 243, PHI_STR("\xF0")},
        {"spm", 1, PHI_STR("<s>")},       {"spm", -1, {"", 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct phi_tokenizer *t = open_fixture(rows[i].vocabulary, (struct phi_str){"", 0});
        struct phi_buf bytes = {0};
        phi_tokenizer_token_bytes(t, rows[i].id, &bytes);
        assert_true(phi_str_eq(phi_buf_str(&bytes), rows[i].bytes));
        phi_buf_deinit(&bytes);
        phi_tokenizer_close(t);
    }
}

/* --- Questions ------------------------------------------------------------------------------- */

static void test_questions(void **state)
{
    (void)state;
    struct phi_str config =
        PHI_STR("{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"<|end|>\"},"
                " \"truncation_side\": \"left\", \"pad_token\": null}");
    struct phi_tokenizer *t = open_fixture("spm", config);
    assert_int_equal(phi_tokenizer_n_ids(t), 290);
    assert_int_equal(phi_tokenizer_find(t, PHI_STR("<|user|>")), 289);
    assert_int_equal(phi_tokenizer_find(t, PHI_STR("\u2581Hello")), 286);
    assert_int_equal(phi_tokenizer_find(t, PHI_STR("nowhere")), -1);
    assert_int_equal(phi_tokenizer_find(t, (struct phi_str){"", 0}), -1);
    assert_true(phi_tokenizer_is_special(t, 289));
    assert_false(phi_tokenizer_is_special(t, 2));
    assert_false(phi_tokenizer_is_special(t, 286));
    assert_false(phi_tokenizer_is_special(t, 5000));
    assert_int_equal(phi_tokenizer_bos_id(t), 1);
    assert_int_equal(phi_tokenizer_eos_id(t), 288);
    assert_true(phi_str_eq_c(phi_tokenizer_bos(t), "<s>"));
    assert_true(phi_str_eq_c(phi_tokenizer_eos(t), "<|end|>"));
    assert_true(phi_tokenizer_truncates_left(t));
    phi_tokenizer_close(t);

    t = open_fixture("gpt2", (struct phi_str){"", 0});
    assert_int_equal(phi_tokenizer_bos_id(t), -1);
    assert_int_equal(phi_tokenizer_eos_id(t), -1);
    assert_int_equal(phi_tokenizer_bos(t).n, 0);
    assert_false(phi_tokenizer_truncates_left(t));
    phi_tokenizer_close(t);
    phi_tokenizer_close(NULL);
}

/* --- Files ----------------------------------------------------------------------------------- */

static void write_text(struct temp_folder *dir, const char *name, const char *text)
{
    temp_write(dir, name, text, strlen(text));
}

static void test_open_folder(void **state)
{
    (void)state;
    struct temp_folder dir;
    struct phi_tokenizer *t = (struct phi_tokenizer *)&dir;
    struct phi_error err = {0};
    temp_folder_open(&dir);
    assert_int_equal(phi_tokenizer_open(dir.path, &t, &err), PHI_ERR_IO);
    assert_non_null(strstr(err.text, "tokenizer.json"));
    assert_null(t);

    struct phi_buf text = fixture_text("spm");
    temp_write(&dir, "tokenizer.json", text.data, text.n);
    phi_buf_deinit(&text);
    write_text(&dir, "tokenizer_config.json", "{\"eos_token\": \"<|end|>\"}");
    write_text(&dir, "special_tokens_map.json",
               "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    assert_int_equal(phi_tokenizer_open(dir.path, &t, &err), PHI_OK);
    assert_int_equal(phi_tokenizer_bos_id(t), 1);
    assert_int_equal(phi_tokenizer_eos_id(t), 288); /* tokenizer_config.json comes first */
    phi_tokenizer_close(t);

    static const char *bad[] = {"{",
                                "[]",
                                "{\"bos_token\": 3}",
                                "{\"bos_token\": {\"content\": 1}}",
                                "{\"truncation_side\": true}",
                                "{\"add_bos_token\": 1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(&dir, "tokenizer_config.json", bad[i]);
        assert_int_equal(phi_tokenizer_open(dir.path, &t, &err), PHI_ERR_FORMAT);
        assert_non_null(strstr(err.text, "tokenizer_config.json"));
        assert_null(t);
    }
    temp_folder_close(&dir);
}

/* --- Malformed and unsupported files --------------------------------------------------------- */

/* A pipeline around the parts that a row gives. */
#define FILE_WITH(model, rest)                                                                     \
    "{\"model\": {" model "}, \"decoder\": {\"type\": \"ByteLevel\"}" rest "}"
#define WITH_VOCAB(vocab, merges) FILE_WITH("\"vocab\": " vocab ", \"merges\": " merges, "")
#define WITH_PART(rest)                                                                            \
    FILE_WITH("\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": []", rest)
#define WITH_ADDED(list) WITH_PART(", \"added_tokens\": [" list "]")

static const struct {
    const char *json;
    enum phi_status status;
    const char *says;
} refused[] = {
    {"", PHI_ERR_FORMAT, "not valid JSON"},
    {"[]", PHI_ERR_FORMAT, "expected an object"},
    {"{}", PHI_ERR_UNSUPPORTED, "decoder"},
    {"{\"model\": {\"vocab\": {", PHI_ERR_FORMAT, "not valid JSON"},
    {"{\"decoder\": {\"type\": \"ByteLevel\"}}", PHI_ERR_FORMAT, "model"},
    {FILE_WITH("", ""), PHI_ERR_FORMAT, "model.vocab"},
    {FILE_WITH("\"vocab\": {}", ""), PHI_ERR_FORMAT, "model.merges"},
    {FILE_WITH("\"type\": \"Unigram\"", ""), PHI_ERR_UNSUPPORTED, "Unigram"},
    {WITH_VOCAB("[]", "[]"), PHI_ERR_FORMAT, "model.vocab"},
    {WITH_VOCAB("{}", "{}"), PHI_ERR_FORMAT, "model.merges"},
    {WITH_VOCAB("{\"a\": 0, \"a\": 1}", "[]"), PHI_ERR_FORMAT,
     "\"a\" is declared with ids 0 and 1"},
    {WITH_VOCAB("{\"a\": 0, \"b\": 0}", "[]"), PHI_ERR_FORMAT, "both \"a\" and \"b\""},
    {WITH_VOCAB("{\"a\": -1}", "[]"), PHI_ERR_FORMAT, "non-negative integer"},
    {WITH_VOCAB("{\"a\": 1.5}", "[]"), PHI_ERR_FORMAT, "non-negative integer"},
    {WITH_VOCAB("{\"a\": 01}", "[]"), PHI_ERR_FORMAT, "non-negative integer"},
    {WITH_VOCAB("{\"a\": \"1\"}", "[]"), PHI_ERR_FORMAT, "non-negative integer"},
    {WITH_VOCAB("{\"a\": 2000000000}", "[]"), PHI_ERR_FORMAT, "greater than"},
    {WITH_VOCAB("{\"a\": 99999999999999999999}", "[]"), PHI_ERR_FORMAT, "greater than"},
    {WITH_VOCAB("{\"a\": 0,}", "[]"), PHI_ERR_FORMAT, "byte"},
    {WITH_VOCAB("{\"a\" 0}", "[]"), PHI_ERR_FORMAT, "':'"},
    {WITH_VOCAB("{\"\\x\": 0}", "[]"), PHI_ERR_FORMAT, "escape"},
    {WITH_VOCAB("{\"\\ud800\": 0}", "[]"), PHI_ERR_FORMAT, "escape"},
    {WITH_VOCAB("{\"\\ud800\\u0041\": 0}", "[]"), PHI_ERR_FORMAT, "escape"},
    {WITH_VOCAB("{\"\\u12\": 0}", "[]"), PHI_ERR_FORMAT, "escape"},
    {WITH_VOCAB("{\"a\nb\": 0}", "[]"), PHI_ERR_FORMAT, "control character"},
    {WITH_VOCAB("{\"\xFF\": 0}", "[]"), PHI_ERR_FORMAT, "UTF-8"},
    {WITH_VOCAB("{\"a\": 0} x", "[]"), PHI_ERR_FORMAT, "not valid JSON"},
    {WITH_VOCAB("{\"a\": [0}]", "[]"), PHI_ERR_FORMAT, "byte"},
    {WITH_VOCAB("{\"a\": 0}", "[\"a b\"]"), PHI_ERR_FORMAT, "\"b\" is not in the vocabulary"},
    {WITH_VOCAB("{\"a\": 0}", "[\"a a\"]"), PHI_ERR_FORMAT, "\"aa\" is not in the vocabulary"},
    {WITH_VOCAB("{\"a\": 0}", "[\"aa\"]"), PHI_ERR_FORMAT, "one space"},
    {WITH_VOCAB("{\"a\": 0}", "[\"a a a\"]"), PHI_ERR_FORMAT, "one space"},
    {WITH_VOCAB("{\"a\": 0}", "[3]"), PHI_ERR_FORMAT, "'\"'"},
    {WITH_VOCAB("{\"a\": 0}", "[[\"a\"]]"), PHI_ERR_FORMAT, "','"},
    {WITH_VOCAB("{\"a\": 0}", "[[\"a\", \"a\", \"a\"]]"), PHI_ERR_FORMAT, "']'"},
    {FILE_WITH("\"vocab\": {}, \"merges\": [], \"vocab\": {}", ""), PHI_ERR_FORMAT, "duplicate"},
    {FILE_WITH("\"vocab\": {}, \"merges\": [], \"fuse_unk\": 1", ""), PHI_ERR_FORMAT, "fuse_unk"},
    {FILE_WITH("\"vocab\": {}, \"merges\": [], \"end_of_word_suffix\": \"</w>\"", ""),
     PHI_ERR_UNSUPPORTED, "end_of_word_suffix"},
    {WITH_PART(", \"normalizer\": {\"type\": \"NFC\"}"), PHI_ERR_UNSUPPORTED,
     "normalizer: type \"NFC\""},
    {WITH_PART(", \"normalizer\": 3"), PHI_ERR_FORMAT, "normalizer"},
    {WITH_PART(", \"normalizer\": {}"), PHI_ERR_FORMAT, "normalizer: has no type"},
    {WITH_PART(", \"normalizer\": {\"type\": \"Sequence\"}"), PHI_ERR_FORMAT, "normalizers"},
    {WITH_PART(", \"normalizer\": {\"type\": \"Prepend\"}"), PHI_ERR_FORMAT, "prepend is missing"},
    {WITH_PART(", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, "
               "\"content\": \"\"}"),
     PHI_ERR_UNSUPPORTED, "Regex"},
    {WITH_PART(", \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, "
               "\"content\": \"\"}"),
     PHI_ERR_FORMAT, "empty"},
    {WITH_PART(", \"pre_tokenizer\": {\"type\": \"Metaspace\"}"), PHI_ERR_UNSUPPORTED, "Metaspace"},
    {WITH_PART(", \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true}"),
     PHI_ERR_UNSUPPORTED, "add_prefix_space"},
    {WITH_PART(
         ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{L}+\"}, "
         "\"behavior\": \"Isolated\", \"invert\": false}"),
     PHI_ERR_UNSUPPORTED, "\\p{L}+"},
    {WITH_PART(", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"x\"}, "
               "\"behavior\": \"Removed\", \"invert\": false}"),
     PHI_ERR_UNSUPPORTED, "Removed"},
    {WITH_PART(", \"post_processor\": {\"type\": \"BertProcessing\"}"), PHI_ERR_UNSUPPORTED,
     "BertProcessing"},
    {WITH_PART(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}"),
     PHI_ERR_UNSUPPORTED, "single"},
    {WITH_PART(", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
               "[{\"SpecialToken\": {\"id\": \"<s>\"}}]}"),
     PHI_ERR_FORMAT, "<s>"},
    {"{\"decoder\": {\"type\": \"WordPiece\"}}", PHI_ERR_UNSUPPORTED, "WordPiece"},
    {"{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Strip\", \"content\": \" "
     "\"}]}}",
     PHI_ERR_UNSUPPORTED, "Strip"},
    {"{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, "
     "{\"type\": \"Strip\", \"content\": \"ab\", \"start\": 1, \"stop\": 0}]}}",
     PHI_ERR_FORMAT, "one character"},
    {"{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, "
     "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 1}]}}",
     PHI_ERR_UNSUPPORTED, "stop"},
    {WITH_PART(", \"added_tokens\": {}"), PHI_ERR_FORMAT, "added_tokens"},
    {WITH_ADDED("3"), PHI_ERR_FORMAT, "added_tokens"},
    {WITH_ADDED("{\"content\": \"x\"}"), PHI_ERR_FORMAT, "id is missing"},
    {WITH_ADDED("{\"id\": 3}"), PHI_ERR_FORMAT, "content is missing"},
    {WITH_ADDED("{\"id\": -3, \"content\": \"x\"}"), PHI_ERR_FORMAT, "id: -3"},
    {WITH_ADDED("{\"id\": 1000000000, \"content\": \"x\"}"), PHI_ERR_FORMAT, "id: 1000000000"},
    {WITH_ADDED("{\"id\": 3, \"content\": \"x\", \"special\": 1}"), PHI_ERR_FORMAT, "special"},
    {WITH_ADDED("{\"id\": 0, \"content\": \"x\"}"), PHI_ERR_FORMAT, "both \"a\" and \"x\""},
    {WITH_ADDED("{\"id\": 3, \"content\": \"x\"}, {\"id\": 4, \"content\": \"x\"}"), PHI_ERR_FORMAT,
     "\"x\""},
    {WITH_ADDED("{\"id\": 3, \"content\": \"x\"}, {\"id\": 3, \"content\": \"y\"}"), PHI_ERR_FORMAT,
     "both \"x\" and \"y\""},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct phi_tokenizer *t = (struct phi_tokenizer *)&i;
        struct phi_error err = {0};
        enum phi_status status = phi_tokenizer_parse(phi_str_from(refused[i].json),
                                                     (struct phi_str){"", 0}, "f.json", &t, &err);
        if (status != refused[i].status || err.code != status ||
            !strstr(err.text, refused[i].says) || !strstr(err.text, "f.json"))
            fail_msg("row %zu %s: status %d, text \"%s\"", i, refused[i].json, status, err.text);
        assert_null(t);
    }
}

/* An error's place is that in the whole file, not in what is left after the vocabulary was cut out.
 */
static void test_error_position(void **state)
{
    (void)state;
    struct phi_tokenizer *t;
    struct phi_error err;
    struct phi_str text =
        PHI_STR("{\"model\": {\"vocab\": {\"a\": 0},\n\"merges\": []},\n\"x\": }");
    assert_int_equal(phi_tokenizer_parse(text, (struct phi_str){"", 0}, "f.json", &t, &err),
                     PHI_ERR_FORMAT);
    assert_non_null(strstr(err.text, "line 3 column 6"));
}

static int n_warnings;

static void count_warnings(void *context, int level, const char *line)
{
    (void)context;
    (void)line;
    n_warnings += level == PHI_LOG_WARNING;
}

/* Added tokens beyond a gap keep the ids that the file declares; a warning says so, once. */
static void test_declared_ids(void **state)
{
    (void)state;
    struct phi_tokenizer *t;
    struct phi_error err;
    struct phi_str text =
        PHI_STR(WITH_ADDED("{\"id\": 7, \"content\": \"<x>\", \"special\": true}, "
                           "{\"id\": 9, \"content\": \"<y>\", \"special\": true}, {\"id\": 10, "
                           "\"content\": \"\"}, {\"id\": 2, \"content\": \"ab\"}"));
    n_warnings = 0;
    phi_log_set_sink(count_warnings, NULL);
    assert_int_equal(phi_tokenizer_parse(text, (struct phi_str){"", 0}, "f.json", &t, &err),
                     PHI_OK);
    phi_log_set_sink(NULL, NULL);
    assert_int_equal(n_warnings, 1);
    assert_encodes(t, PHI_STR("a<y>ab<x>"), (struct phi_encode_options){0}, "0 9 2 7");
    assert_int_equal(phi_tokenizer_n_ids(t), 10);
    phi_tokenizer_close(t);
}

/* Both spellings of merges, in one file. A rule for a pair that has one replaces it. */
static void test_merge_forms(void **state)
{
    (void)state;
    struct phi_tokenizer *t;
    struct phi_error err;
    struct phi_str text = PHI_STR(WITH_VOCAB(
        "{\"a\": 0, \"b\": 1, \"ab\": 2, \"aba\": 3, \"ba\": 4, \"\\u0063\\n\": 5}",
        "[\"#version: 0.2\", \"a b\", [\"\\u0062\", \"\\u0061\"], [\"ab\", \"a\"], \"a b\"]"));
    assert_int_equal(phi_tokenizer_parse(text, (struct phi_str){"", 0}, "f.json", &t, &err),
                     PHI_OK);
    assert_encodes(t, PHI_STR("aba"), (struct phi_encode_options){0}, "0 4");
    assert_encodes(t, PHI_STR("ab"), (struct phi_encode_options){0}, "2");
    assert_encodes(t, PHI_STR("cab"), (struct phi_encode_options){0}, "2"); /* no unknown token */
    assert_int_equal(phi_tokenizer_find(t, PHI_STR("c\n")), 5);
    phi_tokenizer_close(t);
}

static void test_missing_unknown_token(void **state)
{
    (void)state;
    struct phi_tokenizer *t;
    struct phi_error err;
    struct phi_ids ids = {0};
    struct phi_str text =
        PHI_STR(FILE_WITH("\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"<unk>\"", ""));
    const struct phi_encode_options none = {0};
    assert_int_equal(phi_tokenizer_parse(text, (struct phi_str){"", 0}, "f.json", &t, &err),
                     PHI_OK);
    assert_int_equal(phi_tokenizer_encode(t, PHI_STR("aa"), none, &ids, &err), PHI_OK);
    assert_int_equal(phi_tokenizer_encode(t, PHI_STR("ab"), none, &ids, &err), PHI_ERR_INVALID);
    assert_non_null(strstr(err.text, "unknown token"));
    phi_ids_deinit(&ids);
    phi_tokenizer_close(t);
}

/* --- Failing allocations --------------------------------------------------------------------- */

/* Opens, encodes and decodes: text long enough for the heap, an added token, a byte run. */
static enum phi_status open_and_use(void *context, struct phi_error *err)
{
    const struct phi_buf *text = context;
    struct phi_tokenizer *t = NULL;
    struct phi_ids ids = {0};
    struct phi_buf out = {0};
    struct phi_str prompt =
        PHI_STR("Hello<|end|> \xF0\x9F\xA6\x99 hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh"
                "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh");
    enum phi_status status = phi_tokenizer_parse(
        phi_buf_str(text), PHI_STR("{\"bos_token\": \"a\"}"), "fixture", &t, err);
    if (status == PHI_OK)
        status =
            phi_tokenizer_encode(t, prompt, (struct phi_encode_options){true, false}, &ids, err);
    if (status == PHI_OK)
        status = phi_tokenizer_decode(t, ids.data, ids.n, false, &out, err);
    phi_ids_deinit(&ids);
    phi_buf_deinit(&out);
    phi_tokenizer_close(t);
    return status;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    static const char *names[] = {"gpt2", "o200k", "spm"};
    for (size_t i = 0; i < 3; i++) {
        struct phi_buf text = fixture_text(names[i]);
        assert_true(for_each_failing_allocation(open_and_use, &text) > 50);
        phi_buf_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_vocabularies),
        cmocka_unit_test(test_real_vocabularies),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_text_with_nul),
        cmocka_unit_test(test_invalid_text),
        cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_decode_byte_level),
        cmocka_unit_test(test_decode_sentence_piece),
        cmocka_unit_test(test_decode_rewritten),
        cmocka_unit_test(test_decode_real),
        cmocka_unit_test(test_stream_pieces),
        cmocka_unit_test(test_endless_broken_run),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_open_folder),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_error_position),
        cmocka_unit_test(test_declared_ids),
        cmocka_unit_test(test_merge_forms),
        cmocka_unit_test(test_missing_unknown_token),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
