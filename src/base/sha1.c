#include "base/sha1.h"

#include <string.h>

static uint32_t rotate(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void round_block(struct sha1 *h, const uint8_t *p)
{
    uint32_t w[80], a = h->state[0], b = h->state[1], c = h->state[2], d = h->state[3], e = h->state[4];
    for (int i = 0; i < 16; i++) w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 ? b ^ c ^ d : i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        uint32_t k = i < 20 ? 0x5a827999u : i < 40 ? 0x6ed9eba1u : i < 60 ? 0x8f1bbcdcu : 0xca62c1d6u;
        uint32_t t = rotate(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = t;
    }
    h->state[0] += a;
    h->state[1] += b;
    h->state[2] += c;
    h->state[3] += d;
    h->state[4] += e;
}

void sha1_init(struct sha1 *h)
{
    *h = (struct sha1){.state = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u}};
}

void sha1_add(struct sha1 *h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    while (n) {
        size_t at = h->bytes % 64, take = 64 - at < n ? 64 - at : n;
        memcpy(h->block + at, p, take);
        h->bytes += take;
        p += take;
        n -= take;
        if (h->bytes % 64 == 0) round_block(h, h->block);
    }
}

void sha1_end(struct sha1 *h, uint8_t digest[20])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = h->bytes * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha1_add(h, padding, 1 + (119 - h->bytes % 64) % 64);
    sha1_add(h, length, 8);
    for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}
