#include "base/utf8.h"

/* Bytes a lead byte announces, 0 if it cannot lead, and the range of the second byte. */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80, *hi = 0xBF;
    if (c < 0x80) return 1;
    if (c < 0xC2) return 0;
    if (c < 0xE0) return 2;
    if (c < 0xF0) {
        if (c == 0xE0) *lo = 0xA0;
        if (c == 0xED) *hi = 0x9F;
        return 3;
    }
    if (c < 0xF5) {
        if (c == 0xF0) *lo = 0x90;
        if (c == 0xF4) *hi = 0x8F;
        return 4;
    }
    return 0;
}

size_t utf8_decode(struct str s, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s.p;
    unsigned char lo, hi;
    int n = lead(p[0], &lo, &hi);
    if (n == 1) return *cp = p[0], 1;
    *cp = UTF8_INVALID;
    if (n == 0) return 1;
    uint32_t v = p[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) {
        if ((size_t)i >= s.n || p[i] < lo || p[i] > hi) return (size_t)i;
        v = v << 6 | (p[i] & 0x3F);
        lo = 0x80, hi = 0xBF;
    }
    *cp = v;
    return (size_t)n;
}

size_t utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) return out[0] = (char)cp, 1;
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 63));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 63));
        out[2] = (char)(0x80 | (cp & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 63));
    out[2] = (char)(0x80 | (cp >> 6 & 63));
    out[3] = (char)(0x80 | (cp & 63));
    return 4;
}

bool utf8_valid(struct str s)
{
    for (size_t i = 0; i < s.n;) {
        if ((unsigned char)s.p[i] < 0x80) {
            i++;
            continue;
        }
        uint32_t cp;
        i += utf8_decode((struct str){s.p + i, s.n - i}, &cp);
        if (cp == UTF8_INVALID) return false;
    }
    return true;
}

size_t utf8_complete(struct str s)
{
    unsigned char lo, hi;
    for (size_t back = 1; back <= 3 && back <= s.n; back++) {
        unsigned char c = (unsigned char)s.p[s.n - back];
        if ((c & 0xC0) == 0x80) continue;
        int n = lead(c, &lo, &hi);
        if (n <= (int)back) return s.n; /* whole, or not a lead byte at all */
        uint32_t cp;
        size_t used = utf8_decode((struct str){s.p + s.n - back, back}, &cp);
        return used == back ? s.n - back : s.n; /* a valid beginning waits; rubbish does not */
    }
    return s.n;
}
