/* Strings that know which of their bytes came from the template. Spans partition a string:
 *
 *     <|im_start|>user\nHi <|im_end|>          spans: {13 trusted} {27 untrusted}
 *     |- trusted -|------ untrusted ---|
 *
 * A string of one trust has no spans. Concatenation appends in place where it can, so that building a text
 * piece by piece in a loop is linear. */
#include "tokenizer/template_internal.h"

#include "base/utf8.h"

size_t template_string_chars(struct str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) n += ((unsigned char)text.p[i] & 0xC0) != 0x80;
    return n;
}

static struct tstring *string_alloc(struct eval *e, struct tstring s, struct value *out)
{
    struct tstring *copy = TEMPLATE_NEW(e, struct tstring);
    if (!copy) return NULL;
    *copy = s;
    *out = value_string(copy);
    return copy;
}

bool template_string_new(struct eval *e, struct str text, bool trusted, struct value *out)
{
    return string_alloc(e,
                        (struct tstring){.p = text.n ? text.p : "",
                                         .n = text.n,
                                         .chars = template_string_chars(text),
                                         .trusted = trusted},
                        out) != NULL;
}

bool template_string_literal(struct eval *e, const char *text, struct value *out)
{
    return template_string_new(e, str_of(text), true, out);
}

bool template_string_all_trusted(const struct tstring *s)
{
    if (!s->span_count) return s->trusted || !s->n;
    for (size_t i = 0; i < s->span_count; i++)
        if (!s->spans[i].trusted) return false;
    return true;
}

size_t template_string_offset(const struct tstring *s, size_t chars)
{
    if (s->chars == s->n) return ROSE_MIN(chars, s->n);
    if (chars >= s->chars) return s->n;
    size_t at = 0;
    while (chars) {
        at++;
        if (at == s->n || ((unsigned char)s->p[at] & 0xC0) != 0x80) chars--;
    }
    return at;
}

/* The first span that ends behind offset. */
static size_t span_at(const struct tstring *s, size_t offset)
{
    size_t lo = 0, hi = s->span_count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->spans[mid].end > offset)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

bool template_string_slice(struct eval *e, const struct tstring *s, size_t begin, size_t end,
                           struct value *out)
{
    if (end < begin) end = begin;
    struct str text = {s->p + begin, end - begin};
    if (!template_charge(e, s->chars == s->n ? 0 : text.n)) return false;
    struct tstring part = {.p = text.p,
                           .n = text.n,
                           .chars = s->chars == s->n ? text.n : template_string_chars(text),
                           .trusted = s->trusted,
                           .markup = s->markup};
    if (s->span_count && text.n) {
        size_t first = span_at(s, begin), last = span_at(s, end - 1);
        if (first == last) {
            part.trusted = s->spans[first].trusted;
        } else {
            struct tspan *spans = template_array(e, last - first + 1, sizeof *spans);
            if (!spans) return false;
            for (size_t i = first; i <= last; i++)
                spans[i - first] =
                    (struct tspan){ROSE_MIN(s->spans[i].end, end) - begin, s->spans[i].trusted};
            part.spans = spans;
            part.span_count = last - first + 1;
        }
    }
    return string_alloc(e, part, out) != NULL;
}

/* Makes room for more bytes behind a, in place if a ends where its buffer does. */
static struct tgrow *grow_for(struct eval *e, const struct tstring *a, size_t more)
{
    struct tgrow *g = a->grow;
    if (g && a->p == g->p && a->n == g->used && g->cap - g->used >= more) return g;
    size_t need, cap;
    if (!size_add(a->n, more, &need) || !size_mul(need, need > 256 ? 2 : 1, &cap))
        return template_fail_memory(e), NULL;
    if (!(g = TEMPLATE_NEW(e, struct tgrow)) || !(g->p = template_alloc(e, cap))) return NULL;
    if (!template_charge(e, a->n)) return NULL;
    if (a->n) memcpy(g->p, a->p, a->n);
    g->used = a->n;
    g->cap = cap;
    return g;
}

static struct tspan span_of(const struct tstring *s, size_t i)
{
    return s->span_count ? s->spans[i] : (struct tspan){s->n, s->trusted};
}

bool template_string_concat(struct eval *e, const struct tstring *a, const struct tstring *b,
                            struct value *out)
{
    if (!template_charge(e, b->n)) return false;
    if (!b->n) return string_alloc(e, *a, out) != NULL;
    if (!a->n) return string_alloc(e, *b, out) != NULL;
    struct tgrow *g = grow_for(e, a, b->n);
    if (!g) return false;
    memcpy(g->p + g->used, b->p, b->n);
    g->used += b->n;
    struct tstring sum = {.p = g->p,
                          .n = g->used,
                          .chars = a->chars + b->chars,
                          .trusted = a->trusted,
                          .grow = g,
                          .markup = a->markup || b->markup};
    size_t na = a->span_count ? a->span_count : 1, nb = b->span_count ? b->span_count : 1;
    if (na > 1 || nb > 1 || a->trusted != b->trusted) {
        struct tspan *spans = template_array(e, na + nb, sizeof *spans);
        if (!spans || !template_charge(e, (na + nb) * sizeof *spans)) return false;
        size_t n = 0;
        for (size_t i = 0; i < na + nb; i++) {
            struct tspan span = i < na ? span_of(a, i) : span_of(b, i - na);
            if (i >= na) span.end += a->n;
            if (n && spans[n - 1].trusted == span.trusted)
                spans[n - 1].end = span.end;
            else
                spans[n++] = span;
        }
        sum.spans = spans;
        sum.span_count = n > 1 ? n : 0;
        sum.trusted = spans[0].trusted;
    }
    return string_alloc(e, sum, out) != NULL;
}

static bool reserve(struct eval *e, struct tbuild *b, size_t more)
{
    size_t need;
    if (!size_add(b->n, more, &need)) return template_fail_memory(e);
    if (need <= b->cap) return true;
    size_t cap = ROSE_MAX(need, ROSE_MAX(b->cap * 2, 64));
    char *p = template_alloc(e, cap);
    if (!p) return false;
    if (b->n) memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = cap;
    return true;
}

static bool add_span(struct eval *e, struct tbuild *b, size_t end, bool trusted)
{
    if (b->span_count && b->spans[b->span_count - 1].trusted == trusted) {
        b->spans[b->span_count - 1].end = end;
        return true;
    }
    if (b->span_count == b->span_cap) {
        size_t cap = b->span_cap ? b->span_cap * 2 : 4;
        struct tspan *spans = template_array(e, cap, sizeof *spans);
        if (!spans) return false;
        if (b->span_count) memcpy(spans, b->spans, b->span_count * sizeof *spans);
        b->spans = spans;
        b->span_cap = cap;
    }
    b->spans[b->span_count++] = (struct tspan){end, trusted};
    return true;
}

bool tbuild_add(struct eval *e, struct tbuild *b, const void *bytes, size_t n, bool trusted)
{
    if (!n) return true;
    if (!template_charge(e, n) || !reserve(e, b, n) || !add_span(e, b, b->n + n, trusted)) return false;
    memcpy(b->p + b->n, bytes, n);
    b->n += n;
    return true;
}

bool tbuild_slice(struct eval *e, struct tbuild *b, const struct tstring *s, size_t begin, size_t end)
{
    if (!s->span_count) return tbuild_add(e, b, s->p + begin, end - begin, s->trusted);
    for (size_t i = span_at(s, begin); begin < end; i++) {
        size_t stop = ROSE_MIN(end, s->spans[i].end);
        if (!tbuild_add(e, b, s->p + begin, stop - begin, s->spans[i].trusted)) return false;
        begin = stop;
    }
    return true;
}

bool tbuild_repeat(struct eval *e, struct tbuild *b, char c, size_t n)
{
    if (!n) return true;
    if (!template_charge(e, n) || !reserve(e, b, n) || !add_span(e, b, b->n + n, true)) return false;
    memset(b->p + b->n, c, n);
    b->n += n;
    return true;
}

bool tbuild_end(struct eval *e, struct tbuild *b, struct value *out)
{
    struct tstring s = {.p = b->n ? b->p : "",
                        .n = b->n,
                        .chars = template_string_chars((struct str){b->p, b->n}),
                        .trusted = !b->span_count || b->spans[0].trusted};
    if (b->span_count > 1) s.spans = b->spans, s.span_count = b->span_count;
    return string_alloc(e, s, out) != NULL;
}
