/* tokenizer_driver.c: lets the oracle test drive the tokenizer in bulk. It opens the folder given
 * as its argument, then answers records from standard input until that ends. All numbers are u32 in
 * the machine's order.
 *
 *   request  op, flags, n, then n bytes (op 'e') or n ids (ops 'd' and 's')
 *   answer   status (0 or the negated code), n, then n ids (op 'e') or n bytes (ops 'd' and 's')
 *
 * 'e' encodes (flag 1: add special tokens, 2: plain text), 'd' decodes (flag 1: skip special
 * tokens), 's' decodes one id at a time and fails when a piece cuts a character. */
#include "base/alloc.h"
#include "base/utf8.h"
#include "formats/tokenizer.h"

#include <stdio.h>

struct request {
    uint32_t op, flags, n;
};

static bool answer(enum phi_status status, const void *data, size_t n, size_t size)
{
    uint32_t head[2] = {(uint32_t)-status, status == PHI_OK ? (uint32_t)n : 0};
    return fwrite(head, sizeof head, 1, stdout) == 1 &&
           fwrite(data, size, head[1], stdout) == head[1];
}

static bool encode(const struct phi_tokenizer *t, const struct request *r, const char *text)
{
    struct phi_ids ids = {0};
    struct phi_encode_options options = {r->flags & 1, r->flags & 2};
    struct phi_str s = {text, r->n};
    enum phi_status status = phi_tokenizer_encode(t, s, options, &ids, NULL);
    bool ok = answer(status, ids.data ? ids.data : (int32_t *)"", ids.n, sizeof *ids.data);
    phi_ids_deinit(&ids);
    return ok;
}

static bool decode(const struct phi_tokenizer *t, const struct request *r, const int32_t *ids)
{
    struct phi_buf text = {0};
    enum phi_status status = phi_tokenizer_decode(t, ids, r->n, r->flags & 1, &text, NULL);
    struct phi_str s = phi_buf_str(&text);
    bool ok = answer(status, s.data, s.n, 1);
    phi_buf_deinit(&text);
    return ok;
}

static bool stream(const struct phi_tokenizer *t, const struct request *r, const int32_t *ids)
{
    struct phi_buf text = {0}, piece = {0};
    struct phi_decode_stream s;
    enum phi_status status = PHI_OK;
    phi_decode_stream_init(&s, t, r->flags & 1);
    for (size_t i = 0; i <= r->n && status == PHI_OK; i++) {
        phi_buf_clear(&piece);
        status = i < r->n ? phi_decode_stream_push(&s, ids[i], &piece, NULL)
                          : phi_decode_stream_finish(&s, &piece, NULL);
        if (!phi_utf8_valid(phi_buf_str(&piece)))
            status = PHI_ERR_INTERNAL;
        phi_buf_append_str(&text, phi_buf_str(&piece));
    }
    struct phi_str whole = phi_buf_str(&text);
    bool ok = answer(status, whole.data, whole.n, 1);
    phi_decode_stream_deinit(&s);
    phi_buf_deinit(&text);
    phi_buf_deinit(&piece);
    return ok;
}

static bool serve(const struct phi_tokenizer *t)
{
    struct request r;
    bool ok = true;
    while (ok && fread(&r, sizeof r, 1, stdin) == 1) {
        size_t size = r.op == 'e' ? 1 : sizeof(int32_t);
        void *body = phi_alloc(r.n, size);
        ok = body && fread(body, size, r.n, stdin) == r.n;
        if (ok)
            ok = r.op == 'e'   ? encode(t, &r, body)
                 : r.op == 'd' ? decode(t, &r, body)
                               : stream(t, &r, body);
        phi_free(body);
    }
    return ok && fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    struct phi_tokenizer *t;
    struct phi_error err;
    if (argc != 2) {
        fprintf(stderr, "usage: tokenizer_driver FOLDER\n");
        return 2;
    }
    if (phi_tokenizer_open(argv[1], &t, &err) != PHI_OK) {
        fprintf(stderr, "tokenizer_driver: %s\n", err.text);
        return 1;
    }
    bool ok = serve(t);
    phi_tokenizer_close(t);
    return ok ? 0 : 1;
}
