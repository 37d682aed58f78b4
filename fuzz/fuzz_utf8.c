/* fuzz_utf8.c: laws of base/utf8.h that hold for any bytes. */
#include "base/utf8.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool law)
{
    if (!law)
        abort();
}

/* Walks s as a decoder would; returns the number of replacements a lossy decoder makes. */
static size_t walk(struct phi_str s)
{
    size_t n_replaced = 0;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp = 0;
        int length = phi_utf8_decode(s.data + i, s.n - i, &cp);
        if (length > 0) {
            char back[4];
            require(phi_utf8_encode(cp, back) == length);
            require(memcmp(back, s.data + i, (size_t)length) == 0);
            require(cp <= 0x10FFFF && !(cp >= 0xD800 && cp <= 0xDFFF));
            i += (size_t)length;
            continue;
        }
        require(length >= -3);
        require(length != 0 || s.n - i < 4); /* incomplete only at the very end */
        n_replaced++;
        i += length == 0 ? s.n - i : (size_t)-length;
    }
    return n_replaced;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct phi_str s = {(const char *)data, n};
    struct phi_buf lossy = {0};
    size_t n_valid = phi_utf8_valid_prefix(s);
    size_t n_replaced = walk(s);

    require(n_valid <= n);
    require(phi_utf8_valid(s) == (n_valid == n) && phi_utf8_valid(s) == (n_replaced == 0));
    require(phi_utf8_valid((struct phi_str){s.data, n_valid}));

    phi_utf8_append_lossy(&lossy, s);
    require(!lossy.failed && phi_utf8_valid(phi_buf_str(&lossy)));
    require(n_replaced > 0 || phi_str_eq(phi_buf_str(&lossy), s));
    phi_buf_deinit(&lossy);
    return 0;
}
