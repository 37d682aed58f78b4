/* fuzz_tokenizer.c: any tokenizer.json, any text, any ids. The first byte of an input says which:
 *
 *   'j'  a tokenizer.json, a NUL byte, a text     opening it fails with a named error, or it works
 *   0-3  a text for one of four small vocabularies: decoding its ids gives the text back
 *   4-7  ids, two bytes each, for one of the four: a stream gives what decoding at once gives
 *
 * The vocabularies are those of tests/formats/tokenizer. */
#include "base/file.h"
#include "base/utf8.h"
#include "formats/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { N_VOCABULARIES = 4 };

static void require(bool law)
{
    if (!law)
        abort();
}

static struct phi_tokenizer *open_vocabulary(int i)
{
    static const char *names[N_VOCABULARIES] = {"gpt2", "cl100k", "o200k", "spm"};
    struct phi_buf path = {0}, text = {0};
    struct phi_tokenizer *t;
    phi_buf_printf(&path, PHI_TESTS_FOLDER "/formats/tokenizer/%s.json", names[i]);
    require(phi_file_read(path.data, 1 << 20, &text, NULL) == PHI_OK);
    require(phi_tokenizer_parse(phi_buf_str(&text), (struct phi_str){"", 0}, names[i], &t, NULL) ==
            PHI_OK);
    phi_buf_deinit(&path);
    phi_buf_deinit(&text);
    return t;
}

/* The vocabularies are opened once and live as long as the process. */
static const struct phi_tokenizer *vocabulary(int i)
{
    static struct phi_tokenizer *opened[N_VOCABULARIES];
    if (!opened[i])
        opened[i] = open_vocabulary(i);
    return opened[i];
}

/* Decodes at once and id by id; both must be equal and valid. Appends the text to *out. */
static void decode_both_ways(const struct phi_tokenizer *t, const struct phi_ids *ids, bool skip,
                             struct phi_buf *out)
{
    struct phi_buf pieces = {0}, piece = {0};
    struct phi_decode_stream s;
    require(phi_tokenizer_decode(t, ids->data, ids->n, skip, out, NULL) == PHI_OK);
    require(phi_utf8_valid(phi_buf_str(out)));
    phi_decode_stream_init(&s, t, skip);
    for (size_t i = 0; i < ids->n; i++) {
        phi_buf_clear(&piece);
        require(phi_decode_stream_push(&s, ids->data[i], &piece, NULL) == PHI_OK);
        require(phi_utf8_valid(phi_buf_str(&piece)));
        phi_buf_append_str(&pieces, phi_buf_str(&piece));
    }
    require(phi_decode_stream_finish(&s, &pieces, NULL) == PHI_OK);
    require(phi_str_eq(phi_buf_str(out), phi_buf_str(&pieces)));
    phi_decode_stream_deinit(&s);
    phi_buf_deinit(&pieces);
    phi_buf_deinit(&piece);
}

/* Encodes any bytes with an opened tokenizer; what it accepts must decode. */
static enum phi_status encode_and_decode(const struct phi_tokenizer *t, struct phi_str text,
                                         bool plain_text, struct phi_buf *out)
{
    struct phi_ids ids = {0};
    struct phi_error err = {0};
    enum phi_status status = phi_tokenizer_encode(
        t, text, (struct phi_encode_options){.plain_text = plain_text}, &ids, &err);
    require(status == PHI_OK || (err.code == status && err.text[0] != '\0'));
    for (size_t i = 0; status == PHI_OK && i < ids.n; i++)
        require(ids.data[i] >= 0 && ids.data[i] < phi_tokenizer_n_ids(t));
    if (status == PHI_OK)
        decode_both_ways(t, &ids, false, out);
    phi_ids_deinit(&ids);
    return status;
}

static void try_file(struct phi_str file, struct phi_str text)
{
    struct phi_tokenizer *t;
    struct phi_error err = {0};
    struct phi_buf out = {0};
    enum phi_status status = phi_tokenizer_parse(file, (struct phi_str){"", 0}, "f.json", &t, &err);
    if (status == PHI_OK) {
        encode_and_decode(t, text, false, &out);
        phi_buf_deinit(&out);
        encode_and_decode(t, text, true, &out);
    } else {
        require(!t && err.code == status && err.text[0] != '\0' && !strchr(err.text, '\n'));
    }
    phi_buf_deinit(&out);
    phi_tokenizer_close(t);
}

/* In plain text no token swallows blanks, so the text comes back whole: but for the mark, which a
 * sentence-piece vocabulary cannot tell from a space. */
static void try_text(int i, struct phi_str text)
{
    struct phi_buf out = {0};
    enum phi_status status = encode_and_decode(vocabulary(i), text, true, &out);
    require((status == PHI_OK) == phi_utf8_valid(text));
    if (status == PHI_OK && !(text.n && memmem(text.data, text.n, "\u2581", 3)))
        require(phi_str_eq(phi_buf_str(&out), text));
    phi_buf_deinit(&out);
    encode_and_decode(vocabulary(i), text, false, &out);
    phi_buf_deinit(&out);
}

static void try_ids(int i, const uint8_t *data, size_t n)
{
    struct phi_ids ids = {0};
    struct phi_buf out = {0};
    for (size_t k = 0; k + 2 <= n; k += 2)
        phi_ids_append(&ids, (data[k] << 8 | data[k + 1]) % 300);
    decode_both_ways(vocabulary(i), &ids, false, &out);
    phi_buf_clear(&out);
    decode_both_ways(vocabulary(i), &ids, true, &out);
    phi_buf_deinit(&out);
    phi_ids_deinit(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    struct phi_str rest = {(const char *)data + 1, n - 1}, text = {"", 0};
    if (data[0] == 'j') {
        const char *nul = rest.n ? memchr(rest.data, 0, rest.n) : NULL;
        if (nul) {
            text = (struct phi_str){nul + 1, rest.n - (size_t)(nul - rest.data) - 1};
            rest.n = (size_t)(nul - rest.data);
        }
        try_file(rest, text);
    } else if (data[0] % 8 < N_VOCABULARIES) {
        try_text(data[0] % 8, rest);
    } else {
        try_ids(data[0] % 8 - N_VOCABULARIES, data + 1, n - 1);
    }
    return 0;
}
