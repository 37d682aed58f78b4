/* siphash.h: SipHash-2-4 with 128 bits of output, after Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF" (2012) and its 128-bit variant: a hash of short texts that nobody can aim
 * without the key. */
#ifndef PHI_BASE_SIPHASH_H
#define PHI_BASE_SIPHASH_H

#include "base/str.h"

#include <stdint.h>

static inline uint64_t phi_sip_rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline void phi_sip_rounds(uint64_t v[4], int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = phi_sip_rotate(v[1], 13) ^ v[0];
        v[3] = phi_sip_rotate(v[3], 16) ^ v[2];
        v[0] = phi_sip_rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = phi_sip_rotate(v[1], 17) ^ v[2];
        v[3] = phi_sip_rotate(v[3], 21) ^ v[0];
        v[2] = phi_sip_rotate(v[2], 32);
    }
}

/* n <= 8 bytes as a number, the first one lowest. */
static inline uint64_t phi_sip_word(const char *data, size_t n)
{
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)(unsigned char)data[i] << 8 * i;
    return word;
}

static inline void phi_siphash128(const uint64_t key[2], struct phi_str s, uint64_t out[2])
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull ^ 0xee,
                     key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull};
    for (size_t i = 0; i <= s.n; i += 8) {
        uint64_t word = s.n - i >= 8 ? phi_sip_word(s.data + i, 8)
                                     : phi_sip_word(s.data + i, s.n - i) | (uint64_t)s.n << 56;
        v[3] ^= word;
        phi_sip_rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xee;
    phi_sip_rounds(v, 4);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    phi_sip_rounds(v, 4);
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
