#include "server/floats.h"

#include <math.h>

static const double power10[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

/* x = digits / 10^places with so many significant digits that it reads back: the quotient of two exact doubles is rounded as a reader of the
 * decimal text rounds it. 0.001 <= x < 10^8. */
static bool find_digits(float x, uint64_t *digits, int *places)
{
    int above = x >= 1 ? (int)log10((double)x) + 1 : 0; /* digits before the point */
    for (int significant = 6; significant <= 9; significant++) {
        int p = significant - above + (x < 0.1f) + (x < 0.01f);
        if (p < 0) continue;
        double scaled = nearbyint((double)x * power10[p]);
        if ((float)(scaled / power10[p]) != x) continue;
        *digits = (uint64_t)scaled;
        *places = p;
        return true;
    }
    return false;
}

static size_t write_fixed(char *to, bool negative, uint64_t digits, int places)
{
    char reversed[32];
    size_t n = 0, at = 0;
    while (places && digits % 10 == 0) digits /= 10, places--;
    for (int i = 0; digits || i <= places; i++, digits /= 10) {
        if (i == places && places) reversed[n++] = '.';
        reversed[n++] = (char)('0' + digits % 10);
    }
    if (negative) to[at++] = '-';
    while (n) to[at++] = reversed[--n];
    return at;
}

void floats_add(struct strbuf *b, float x)
{
    float size = fabsf(x);
    uint64_t digits;
    int places;
    if (!strbuf_reserve(b, 40)) return;
    if (size == 0) strbuf_addc(b, '0');
    else if (!isfinite(x)) strbuf_adds(b, "null");
    else if (size >= 1e-3f && size < 1e8f && find_digits(size, &digits, &places)) {
        b->n += write_fixed(b->p + b->n, x < 0, digits, places);
        b->p[b->n] = '\0';
    } else strbuf_printf(b, "%.9g", (double)x);
}

void floats_add_list(struct strbuf *b, const float *x, size_t n)
{
    strbuf_addc(b, '[');
    for (size_t i = 0; i < n; i++) {
        if (i) strbuf_addc(b, ',');
        floats_add(b, x[i]);
    }
    strbuf_addc(b, ']');
}

void floats_add_base64(struct strbuf *b, const float *x, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)x; /* the machines Rose runs on are little-endian */
    size_t n = count * 4;
    if (!strbuf_reserve(b, (n + 2) / 3 * 4 + 1)) return;
    char *to = b->p + b->n;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0u);
        *to++ = digits[v >> 18];
        *to++ = digits[v >> 12 & 63];
        *to++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *to++ = i + 2 < n ? digits[v & 63] : '=';
    }
    *to = '\0';
    b->n = (size_t)(to - b->p);
}
