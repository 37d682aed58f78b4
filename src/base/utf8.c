/* utf8.c: see utf8.h. */
#include "base/utf8.h"

/* For a lead byte: sequence length (0 = not a lead byte) and the second byte's allowed range. */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        return 2;
    if (c >= 0xE0 && c <= 0xEF) {
        if (c == 0xE0)
            *lo = 0xA0; /* shorter forms are overlong */
        if (c == 0xED)
            *hi = 0x9F; /* surrogates */
        return 3;
    }
    if (c >= 0xF0 && c <= 0xF4) {
        if (c == 0xF0)
            *lo = 0x90;
        if (c == 0xF4)
            *hi = 0x8F; /* beyond U+10FFFF */
        return 4;
    }
    return 0;
}

int phi_utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo, hi;
    int length = lead(p[0], &lo, &hi);
    if (length == 0)
        return -1;
    if (length == 1) {
        *cp = p[0];
        return 1;
    }
    uint32_t value = p[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n)
            return 0;
        if (p[i] < lo || p[i] > hi)
            return -i;
        value = value << 6 | (p[i] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = value;
    return length;
}

int phi_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t phi_utf8_valid_prefix(struct phi_str s)
{
    size_t i = 0;
    while (i < s.n) {
        uint32_t cp;
        int length = phi_utf8_decode(s.data + i, s.n - i, &cp);
        if (length <= 0)
            break;
        i += (size_t)length;
    }
    return i;
}

bool phi_utf8_valid(struct phi_str s)
{
    return phi_utf8_valid_prefix(s) == s.n;
}

void phi_utf8_append_lossy(struct phi_buf *out, struct phi_str s)
{
    while (s.n) {
        size_t n = phi_utf8_valid_prefix(s);
        phi_buf_append(out, s.data, n);
        s.data += n;
        s.n -= n;
        if (s.n == 0)
            break;
        uint32_t cp;
        int length = phi_utf8_decode(s.data, s.n, &cp);
        size_t skip = length == 0 ? s.n : (size_t)-length;
        phi_buf_append_c(out, "\xEF\xBF\xBD");
        s.data += skip;
        s.n -= skip;
    }
}
