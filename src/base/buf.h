/* buf.h: a growing byte buffer. It remembers a failed allocation (`failed`), so a series of appends
 * is checked once at its end; after a failure further appends do nothing. `limit` bounds growth
 * (0 = none): reaching it counts as a failure, which is how templates and decoders stay bounded. */
#ifndef PHI_BASE_BUF_H
#define PHI_BASE_BUF_H

#include "base/status.h"
#include "base/str.h"

struct phi_buf {
    char *data; /* owned; data[n] is always '\0' once anything was appended */
    size_t n;
    size_t capacity;
    size_t limit; /* greatest n allowed, 0 = no limit */
    bool failed;
};

/* A zeroed struct is a valid empty buffer. */
void phi_buf_deinit(struct phi_buf *b);
void phi_buf_clear(struct phi_buf *b); /* n = 0, keeps the memory; `failed` is reset */
bool phi_buf_reserve(struct phi_buf *b, size_t n_more);
void phi_buf_append(struct phi_buf *b, const void *data, size_t n);
void phi_buf_append_str(struct phi_buf *b, struct phi_str s);
void phi_buf_append_c(struct phi_buf *b, const char *c_string);
void phi_buf_append_char(struct phi_buf *b, char c);
void phi_buf_printf(struct phi_buf *b, const char *fmt, ...) PHI_PRINTF(2, 3);
void phi_buf_remove_front(struct phi_buf *b, size_t n);

static inline struct phi_str phi_buf_str(const struct phi_buf *b)
{
    return (struct phi_str){b->data ? b->data : "", b->n};
}

/* The same idea for int32 token ids. */
struct phi_ids {
    int32_t *data; /* owned */
    size_t n;
    size_t capacity;
    bool failed;
};

void phi_ids_deinit(struct phi_ids *ids);
bool phi_ids_reserve(struct phi_ids *ids, size_t n_more);
void phi_ids_append(struct phi_ids *ids, int32_t id);
void phi_ids_append_n(struct phi_ids *ids, const int32_t *data, size_t n);

#endif
