/* buf.c: see buf.h. */
#include "base/buf.h"
#include "base/alloc.h"
#include "base/size.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void phi_buf_deinit(struct phi_buf *b)
{
    phi_free(b->data);
    *b = (struct phi_buf){.limit = b->limit};
}

void phi_buf_clear(struct phi_buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

bool phi_buf_reserve(struct phi_buf *b, size_t n_more)
{
    size_t need;
    if (b->failed)
        return false;
    if (!phi_size_add(b->n, n_more, &need) || (b->limit && need > b->limit) || need == SIZE_MAX) {
        b->failed = true;
        return false;
    }
    if (need + 1 <= b->capacity)
        return true;
    size_t capacity = b->capacity < 64 ? 64 : b->capacity;
    while (capacity < need + 1)
        capacity = capacity > SIZE_MAX / 2 ? need + 1 : capacity * 2;
    char *data = phi_realloc(b->data, capacity, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void phi_buf_append(struct phi_buf *b, const void *data, size_t n)
{
    if (!phi_buf_reserve(b, n))
        return;
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
    b->data[b->n] = '\0';
}

void phi_buf_append_str(struct phi_buf *b, struct phi_str s)
{
    phi_buf_append(b, s.data, s.n);
}

void phi_buf_append_c(struct phi_buf *b, const char *c_string)
{
    phi_buf_append(b, c_string, strlen(c_string));
}

void phi_buf_append_char(struct phi_buf *b, char c)
{
    phi_buf_append(b, &c, 1);
}

void phi_buf_printf(struct phi_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    if (!phi_buf_reserve(b, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(b->data + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

void phi_buf_remove_front(struct phi_buf *b, size_t n)
{
    assert(n <= b->n);
    if (n == 0)
        return;
    memmove(b->data, b->data + n, b->n - n + 1);
    b->n -= n;
}

void phi_ids_deinit(struct phi_ids *ids)
{
    phi_free(ids->data);
    *ids = (struct phi_ids){0};
}

bool phi_ids_reserve(struct phi_ids *ids, size_t n_more)
{
    size_t need;
    if (ids->failed)
        return false;
    if (!phi_size_add(ids->n, n_more, &need)) {
        ids->failed = true;
        return false;
    }
    if (need <= ids->capacity)
        return true;
    size_t capacity = phi_size_max(ids->capacity * 2, phi_size_max(need, 16));
    int32_t *data = phi_realloc(ids->data, capacity, sizeof *data);
    if (!data) {
        ids->failed = true;
        return false;
    }
    ids->data = data;
    ids->capacity = capacity;
    return true;
}

void phi_ids_append(struct phi_ids *ids, int32_t id)
{
    if (phi_ids_reserve(ids, 1))
        ids->data[ids->n++] = id;
}

void phi_ids_append_n(struct phi_ids *ids, const int32_t *data, size_t n)
{
    if (n == 0 || !phi_ids_reserve(ids, n))
        return;
    memcpy(ids->data + ids->n, data, n * sizeof *data);
    ids->n += n;
}
