/* Strings: a view that need not end in NUL, and a growing buffer. */
#ifndef ROSE_BASE_STR_H
#define ROSE_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A view of bytes that somebody else owns. */
struct str {
    const char *p;
    size_t n;
};
#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
#define STR_FMT "%.*s"
#define STR_ARG(s) (int)(s).n, (s).p

static inline struct str str_of(const char *text) { return (struct str){text, text ? strlen(text) : 0}; }
static inline bool str_eq(struct str a, struct str b) { return a.n == b.n && (!a.n || !memcmp(a.p, b.p, a.n)); }
static inline bool str_is(struct str a, const char *b) { return str_eq(a, str_of(b)); }
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
/* Offset of the first needle at or after from, or -1. */
ptrdiff_t str_find(struct str s, struct str needle, size_t from);
/* Whole string as a base-10 number; false on anything else or overflow. */
bool str_to_i64(struct str s, int64_t *out);
bool str_to_f64(struct str s, double *out);

/* A growing buffer, always NUL-terminated when p is not NULL. After a failed allocation it stays as it was and
 * `failed` is set, so that a writer checks once at its end. limit 0 = none. */
struct strbuf {
    char *p;
    size_t n, cap, limit;
    bool failed;
};
void strbuf_free(struct strbuf *b);
bool strbuf_reserve(struct strbuf *b, size_t more);
bool strbuf_add(struct strbuf *b, const void *bytes, size_t n);
static inline bool strbuf_adds(struct strbuf *b, const char *text) { return strbuf_add(b, text, strlen(text)); }
static inline bool strbuf_addc(struct strbuf *b, char c) { return strbuf_add(b, &c, 1); }
bool strbuf_printf(struct strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool strbuf_vprintf(struct strbuf *b, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));
/* Bytes that may end up on a terminal or in a log: control characters become '?'. */
bool strbuf_add_printable(struct strbuf *b, struct str s);
static inline struct str strbuf_str(const struct strbuf *b) { return (struct str){b->p ? b->p : "", b->n}; }

#endif
