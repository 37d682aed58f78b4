/* spelling.c: see spelling.h. */
#include "server/api/spelling.h"
#include "base/utf8.h"

void phi_spelling_deinit(struct phi_spelling *s)
{
    phi_buf_deinit(&s->before);
    phi_buf_deinit(&s->pending);
}

static bool append_token(const struct phi_spelling *s, int32_t id, struct phi_buf *to)
{
    char *data;
    size_t n;
    if (phi_token_bytes(s->model, id, &data, &n, NULL) != PHI_OK)
        return false;
    phi_buf_append(to, data, n);
    phi_mem_free(data);
    return true;
}

/* Bytes of `from` that are decided, as text; what may still become a character stays. */
static void move_decided(struct phi_buf *from, struct phi_buf *text, size_t *n_characters)
{
    size_t at = 0;
    while (at < from->n) {
        uint32_t character;
        int n = phi_utf8_decode(from->data + at, from->n - at, &character);
        if (n == 0)
            break;
        if (n > 0)
            phi_buf_append(text, from->data + at, (size_t)n);
        else
            phi_buf_append_c(text, "\xEF\xBF\xBD");
        at += (size_t)(n > 0 ? n : -n);
        ++*n_characters;
    }
    phi_buf_remove_front(from, at);
}

static void set_bytes(const struct phi_buf *joined, size_t n_before, struct phi_buf *bytes)
{
    if (!bytes)
        return;
    phi_buf_clear(bytes);
    phi_buf_append(bytes, joined->data + n_before, joined->n - n_before);
}

void phi_spelling_take(struct phi_spelling *s, int32_t id, struct phi_buf *text,
                       struct phi_buf *bytes)
{
    phi_buf_clear(text);
    phi_buf_clear(&s->before);
    phi_buf_append_str(&s->before, phi_buf_str(&s->pending));
    bool ok = append_token(s, id, &s->pending) && !s->pending.failed && !s->before.failed;
    if (ok) {
        set_bytes(&s->pending, s->before.n, bytes);
        move_decided(&s->pending, text, &s->n_characters);
    }
    text->failed |= !ok || (bytes && bytes->failed);
}

void phi_spelling_instead(struct phi_spelling *s, int32_t id, struct phi_buf *text,
                          struct phi_buf *bytes)
{
    struct phi_buf joined = {0};
    phi_buf_clear(text);
    phi_buf_append_str(&joined, phi_buf_str(&s->before));
    bool ok = append_token(s, id, &joined) && !joined.failed;
    if (ok) {
        set_bytes(&joined, s->before.n, bytes);
        phi_utf8_append_lossy(text, phi_buf_str(&joined));
    }
    phi_buf_deinit(&joined);
    text->failed |= !ok || (bytes && bytes->failed);
}
