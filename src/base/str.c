#define _GNU_SOURCE
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && (!prefix.n || !memcmp(s.p, prefix.p, prefix.n));
}

bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && (!suffix.n || !memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n));
}

ptrdiff_t str_find(struct str s, struct str needle, size_t from)
{
    if (from > s.n) return -1;
    if (!needle.n) return (ptrdiff_t)from;
    const char *hit = memmem(s.p + from, s.n - from, needle.p, needle.n);
    return hit ? hit - s.p : -1;
}

/* strtoll and strtod want NUL-terminated text without leading space; numbers are short. */
static bool number_text(struct str s, char text[64])
{
    if (s.n == 0 || s.n >= 64 || s.p[0] == ' ' || (s.p[0] >= '\t' && s.p[0] <= '\r')) return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    return strlen(text) == s.n;
}

bool str_to_i64(struct str s, int64_t *out)
{
    char text[64], *end;
    if (!number_text(s, text)) return false;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || *end) return false;
    *out = v;
    return true;
}

bool str_to_f64(struct str s, double *out)
{
    char text[64], *end;
    if (!number_text(s, text)) return false;
    errno = 0;
    double v = strtod(text, &end);
    if (*end) return false;
    *out = v;
    return true;
}

void strbuf_free(struct strbuf *b)
{
    free(b->p);
    *b = (struct strbuf){.limit = b->limit};
}

bool strbuf_reserve(struct strbuf *b, size_t more)
{
    if (b->failed) return false;
    size_t need;
    if (__builtin_add_overflow(b->n, more, &need) || need == SIZE_MAX || (b->limit && need > b->limit)) {
        b->failed = true;
        return false;
    }
    if (need < b->cap) return true;
    size_t cap = b->cap < SIZE_MAX / 2 ? b->cap * 2 : need + 1;
    if (cap < need + 1) cap = need + 1;
    if (cap < 64) cap = 64;
    char *p = realloc(b->p, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

bool strbuf_add(struct strbuf *b, const void *bytes, size_t n)
{
    if (!strbuf_reserve(b, n)) return false;
    if (n) memcpy(b->p + b->n, bytes, n);
    b->n += n;
    b->p[b->n] = '\0';
    return true;
}

bool strbuf_vprintf(struct strbuf *b, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0 || !strbuf_reserve(b, (size_t)n)) return false;
    vsnprintf(b->p + b->n, (size_t)n + 1, fmt, args);
    b->n += (size_t)n;
    return true;
}

bool strbuf_add_printable(struct strbuf *b, struct str s)
{
    size_t at = b->n;
    if (!strbuf_add(b, s.p, s.n)) return false;
    for (; at < b->n; at++)
        if ((unsigned char)b->p[at] < 0x20 || b->p[at] == 0x7f) b->p[at] = '?';
    return true;
}

bool strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    bool ok = strbuf_vprintf(b, fmt, args);
    va_end(args);
    return ok;
}
