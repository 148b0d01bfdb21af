#include "tokenizer/unicode.h"

#include <stdlib.h>

#include "base/utf8.h"

uint32_t unicode_last(struct str s, size_t *n)
{
    size_t at = s.n - 1;
    while (at > 0 && ((uint8_t)s.p[at] & 0xC0) == 0x80) at--;
    return unicode_next((const uint8_t *)s.p + at, n);
}

size_t unicode_count(struct str s)
{
    size_t count = 0;
    for (size_t i = 0; i < s.n; i++) count += ((uint8_t)s.p[i] & 0xC0) != 0x80;
    return count;
}

bool unicode_is_ascii(struct str s)
{
    uint8_t any = 0;
    for (size_t i = 0; i < s.n; i++) any |= (uint8_t)s.p[i];
    return any < 0x80;
}

static void add(struct strbuf *out, uint32_t cp)
{
    char bytes[4];
    strbuf_add(out, bytes, utf8_encode(cp, bytes));
}

/* The position of cp in a sorted list, or -1. */
static ptrdiff_t find(const uint32_t *keys, uint32_t count, uint32_t cp)
{
    uint32_t lo = 0, hi = count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (keys[mid] < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < count && keys[lo] == cp ? (ptrdiff_t)lo : -1;
}

void unicode_lower(struct str s, struct strbuf *out)
{
    for (size_t i = 0, n; i < s.n; i += n) {
        uint32_t cp = unicode_next((const uint8_t *)s.p + i, &n);
        if (cp < 0x80) {
            strbuf_addc(out, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
            continue;
        }
        ptrdiff_t k = find(unicode_lower_keys, unicode_lower_count, cp);
        if (k < 0)
            strbuf_add(out, s.p + i, n);
        else
            for (uint16_t j = unicode_lower_starts[k]; j < unicode_lower_starts[k + 1]; j++)
                add(out, unicode_lower_to[j]);
    }
}

/* --- normalisation forms
 * --------------------------------------------------------------------------------------------- */

enum {
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11A7,
    S_BASE = 0xAC00,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = 11172
};

static uint8_t combining_class(uint32_t cp)
{
    return cp < 0x300 ? 0 : unicode_ccc_pages[(uint32_t)unicode_ccc_index[cp >> 7] << 7 | (cp & 127)];
}

struct mark {
    uint32_t cp, order; /* order: class << 24 | position, so that sorting is stable */
};
/* One starter and the marks behind it, waiting to be put in order and composed. */
struct run {
    struct strbuf *out;
    struct mark *marks;
    size_t count, cap;
    bool compose, has_starter, failed;
    uint32_t starter;
};

static int by_order(const void *a, const void *b)
{
    uint32_t x = ((const struct mark *)a)->order, y = ((const struct mark *)b)->order;
    return x < y ? -1 : x > y;
}

/* The primary composite of a pair, or 0. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - (T_BASE + 1) < T_COUNT - 1)
        return a + (b - T_BASE);
    uint32_t lo = 0, hi = unicode_compose_count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        const uint32_t *p = unicode_compose + 3 * mid;
        if (p[0] < a || (p[0] == a && p[1] < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    const uint32_t *p = unicode_compose + 3 * lo;
    return lo < unicode_compose_count && p[0] == a && p[1] == b ? p[2] : 0;
}

/* Canonical ordering of the marks. A run of more than 2^24 marks keeps the order of what lies beyond. */
static void run_sort(struct run *r)
{
    bool sorted = true;
    for (size_t i = 1; i < r->count && sorted; i++)
        sorted = r->marks[i - 1].order >> 24 <= r->marks[i].order >> 24;
    if (!sorted) qsort(r->marks, r->count, sizeof *r->marks, by_order);
}

/* Put the marks in order and let the starter take what composes with it. */
static void run_close(struct run *r)
{
    run_sort(r);
    if (!r->compose || !r->has_starter) return;
    size_t kept = 0;
    uint32_t last = 0; /* class of the last mark that stayed: it blocks marks of no higher class */
    for (size_t i = 0; i < r->count; i++) {
        uint32_t class = r->marks[i].order >> 24;
        uint32_t c = kept && last >= class ? 0 : compose(r->starter, r->marks[i].cp);
        if (c)
            r->starter = c;
        else
            r->marks[kept++] = r->marks[i], last = class;
    }
    r->count = kept;
}

static void run_write(struct run *r)
{
    if (r->has_starter) add(r->out, r->starter);
    for (size_t i = 0; i < r->count; i++) add(r->out, r->marks[i].cp);
    r->count = 0;
    r->has_starter = false;
}

static void run_add(struct run *r, uint32_t cp)
{
    uint32_t class = combining_class(cp);
    if (class == 0) {
        run_close(r);
        uint32_t c = r->compose && r->has_starter && r->count == 0 ? compose(r->starter, cp) : 0;
        if (!c) {
            run_write(r);
            c = cp;
        }
        r->starter = c;
        r->has_starter = true;
        return;
    }
    if (r->count == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 32;
        struct mark *more = realloc(r->marks, cap * sizeof *more);
        if (!more) {
            r->failed = true;
            return;
        }
        r->marks = more;
        r->cap = cap;
    }
    uint32_t position = r->count < 0xFFFFFF ? (uint32_t)r->count : 0xFFFFFF;
    r->marks[r->count++] = (struct mark){cp, class << 24 | position};
}

static void decompose(struct run *r, uint32_t cp, bool compatible)
{
    if (cp - S_BASE < S_COUNT) {
        uint32_t s = cp - S_BASE;
        run_add(r, L_BASE + s / (V_COUNT * T_COUNT));
        run_add(r, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT);
        if (s % T_COUNT) run_add(r, T_BASE + s % T_COUNT);
        return;
    }
    ptrdiff_t k;
    if (compatible && (k = find(unicode_compatible_keys, unicode_compatible_count, cp)) >= 0) {
        for (uint16_t j = unicode_compatible_starts[k]; j < unicode_compatible_starts[k + 1]; j++)
            run_add(r, unicode_compatible_to[j]);
        return;
    }
    if ((k = find(unicode_canonical_keys, unicode_canonical_count, cp)) >= 0) {
        for (uint16_t j = unicode_canonical_starts[k]; j < unicode_canonical_starts[k + 1]; j++)
            run_add(r, unicode_canonical_to[j]);
        return;
    }
    run_add(r, cp);
}

void unicode_normalize(struct str s, enum unicode_form form, struct strbuf *out)
{
    struct run r = {.out = out, .compose = form == UNICODE_NFC || form == UNICODE_NFKC};
    bool compatible = form == UNICODE_NFKC || form == UNICODE_NFKD;
    for (size_t i = 0, n; i < s.n; i += n) {
        if ((uint8_t)s.p[i] < 0x80) {
            /* Nothing decomposes in ASCII and no two of its characters compose: copy the run but for its last
             * character. */
            size_t j = i + 1;
            while (j < s.n && (uint8_t)s.p[j] < 0x80) j++;
            run_close(&r);
            run_write(&r);
            strbuf_add(out, s.p + i, j - i - 1);
            r.starter = (uint8_t)s.p[j - 1];
            r.has_starter = true;
            n = j - i;
            continue;
        }
        decompose(&r, unicode_next((const uint8_t *)s.p + i, &n), compatible);
    }
    run_close(&r);
    run_write(&r);
    if (r.failed) out->failed = true;
    free(r.marks);
}

/* --- grapheme clusters
 * ----------------------------------------------------------------------------------------------- */

enum {
    G_OTHER,
    G_CR,
    G_LF,
    G_CONTROL,
    G_EXTEND,
    G_ZWJ,
    G_RI,
    G_PREPEND,
    G_SPACING,
    G_L,
    G_V,
    G_T,
    G_LV,
    G_LVT
};
enum { G_PICTO = 0x10, G_CONSONANT = 0x20, G_LINKER = 0x40, G_INCB_EXTEND = 0x80 };

static uint8_t grapheme_class(uint32_t cp)
{
    return unicode_grapheme_pages[(uint32_t)unicode_grapheme_index[cp >> 7] << 7 | (cp & 127)];
}

size_t unicode_grapheme(struct str s)
{
    size_t n, at = 0;
    uint32_t cp = unicode_next((const uint8_t *)s.p, &n);
    int before = grapheme_class(cp);
    bool picto = before & G_PICTO;                         /* GB11: Extended_Pictographic Extend* seen */
    bool consonant = before & G_CONSONANT, linked = false; /* GB9c: a consonant, and a linker behind it */
    size_t flags = (before & 15) == G_RI;                  /* GB12, GB13 */
    for (at = n; at < s.n; at += n) {
        cp = unicode_next((const uint8_t *)s.p + at, &n);
        int now = grapheme_class(cp), a = before & 15, b = now & 15;
        if (a == G_CR && b == G_LF) return at + n;
        if (a <= G_CONTROL && a != G_OTHER) return at;
        if (b <= G_CONTROL && b != G_OTHER) return at;
        bool join = (a == G_L && (b == G_L || b == G_V || b == G_LV || b == G_LVT)) ||
                    ((a == G_LV || a == G_V) && (b == G_V || b == G_T)) ||
                    ((a == G_LVT || a == G_T) && b == G_T) || b == G_EXTEND || b == G_ZWJ || b == G_SPACING ||
                    a == G_PREPEND || (consonant && linked && (now & G_CONSONANT)) ||
                    (a == G_ZWJ && picto && (now & G_PICTO)) || (a == G_RI && b == G_RI && flags % 2 == 1);
        if (!join) return at;
        if (now & G_PICTO)
            picto = true;
        else if (b != G_EXTEND && b != G_ZWJ)
            picto = false;
        if (now & G_CONSONANT)
            consonant = true, linked = false;
        else if (now & G_LINKER)
            linked = consonant;
        else if (!(now & G_INCB_EXTEND))
            consonant = linked = false;
        flags = b == G_RI ? flags + 1 : 0;
        before = now;
    }
    return at;
}
