#include "server/pbtxt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

struct reader {
    const char *p, *end, *line_start, *file;
    int line, depth, count;
    struct arena *arena;
    struct rose_error *err;
};

static int column_of(const struct reader *r, const char *p) { return (int)(p - r->line_start) + 1; }

/* What stands where something else was expected. */
static enum rose_status expected(struct reader *r, const char *what)
{
    char found[40];
    size_t n = ROSE_MIN((size_t)(r->end - r->p), (size_t)16), shown = 0;
    while (shown < n && r->p[shown] != '\n' && r->p[shown] != '\r') shown++;
    if (r->p == r->end) snprintf(found, sizeof found, "the end of the file");
    else snprintf(found, sizeof found, "'%.*s'", (int)ROSE_MAX(shown, (size_t)1), r->p[0] == '\n' ? " " : r->p);
    return status_at_line(r->err, ROSE_FORMAT, r->file, r->line, column_of(r, r->p), "%s was expected, and %s is there", what, found);
}

static enum rose_status too_much(struct reader *r, const char *what, int most)
{
    return status_at_line(r->err, ROSE_LIMIT, r->file, r->line, column_of(r, r->p), "at most %d %s are taken", most, what);
}

static enum rose_status no_memory(struct reader *r) { return status_set(r->err, ROSE_NO_MEMORY, "out of memory"); }

static void skip_space(struct reader *r)
{
    for (; r->p < r->end; r->p++) {
        if (*r->p == '#')
            while (r->p < r->end && *r->p != '\n') r->p++;
        if (r->p == r->end) return;
        if (*r->p == '\n') r->line++, r->line_start = r->p + 1;
        else if (*r->p != ' ' && (*r->p < '\t' || *r->p > '\r')) return;
    }
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->p == r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool more(const struct reader *r, bool (*is)(char)) { return r->p < r->end && is(*r->p); }
static bool is_word(char c) { return is_letter(c) || is_digit(c); }

/* --- values ------------------------------------------------------------------------------------------------------------------------- */

static int digit_of(char c)
{
    if (is_digit(c)) return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

/* Digits of that base, least to most of them. False: too few. */
static bool escape_number(struct reader *r, int base, int least, int most, uint32_t *out)
{
    int n = 0;
    for (*out = 0; n < most && r->p < r->end && digit_of(*r->p) < base; n++) *out = *out * (uint32_t)base + (uint32_t)digit_of(*r->p++);
    return n >= least;
}

/* Behind a backslash. */
static enum rose_status read_escape(struct reader *r, struct strbuf *b)
{
    static const char from[] = "abfnrtv?\\'\"", to[] = "\a\b\f\n\r\t\v?\\'\"";
    char c = r->p < r->end ? *r->p : '\0', utf8[4];
    const char *simple = c ? strchr(from, c) : NULL;
    uint32_t v = 0;
    if (simple) {
        r->p++;
        return strbuf_addc(b, to[simple - from]) ? ROSE_OK : no_memory(r);
    }
    if (c >= '0' && c <= '7') {
        escape_number(r, 8, 1, 3, &v);
        if (v > 255) return expected(r, "an octal escape of at most \\377");
        return strbuf_addc(b, (char)v) ? ROSE_OK : no_memory(r);
    }
    if (c != 'x' && c != 'X' && c != 'u' && c != 'U') return expected(r, "an escape (n, t, \\, a quote, x and digits, ...)");
    r->p++;
    bool hex = c == 'x' || c == 'X';
    int digits = hex ? 2 : c == 'u' ? 4 : 8;
    if (!escape_number(r, 16, hex ? 1 : digits, digits, &v)) return expected(r, "a hexadecimal digit of an escape");
    if (hex) return strbuf_addc(b, (char)v) ? ROSE_OK : no_memory(r);
    if (v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) return expected(r, "an escape that is a Unicode character");
    return strbuf_add(b, utf8, utf8_encode(v, utf8)) ? ROSE_OK : no_memory(r);
}

/* One quoted piece; the quote is next. */
static enum rose_status read_piece(struct reader *r, struct strbuf *b)
{
    char quote = *r->p++;
    for (;;) {
        if (r->p == r->end || *r->p == '\n' || *r->p == '\0') return expected(r, "the end of a text in quotes on the same line");
        char c = *r->p++;
        if (c == quote) return ROSE_OK;
        if (c == '\\') ROSE_TRY(read_escape(r, b));
        else if (!strbuf_addc(b, c)) return no_memory(r);
    }
}

static enum rose_status read_string(struct reader *r, struct pbtxt_field *f)
{
    struct strbuf b = {0};
    enum rose_status s = ROSE_OK;
    while (s == ROSE_OK && r->p < r->end && (*r->p == '"' || *r->p == '\'')) {
        s = read_piece(r, &b);
        skip_space(r);
    }
    char *copy = s == ROSE_OK ? arena_strndup(r->arena, b.p ? b.p : "", b.n) : NULL;
    f->kind = PBTXT_STRING;
    f->value = (struct str){copy, b.n};
    strbuf_free(&b);
    return s != ROSE_OK || copy ? s : no_memory(r);
}

/* A number, or with a sign inf or nan. */
static enum rose_status read_number(struct reader *r, struct pbtxt_field *f, bool negative)
{
    const char *from = r->p;
    f->kind = PBTXT_NUMBER;
    if (r->p + 1 < r->end && *r->p == '0' && (r->p[1] == 'x' || r->p[1] == 'X')) {
        for (r->p += 2; r->p < r->end && digit_of(*r->p) < 16;) r->p++;
        if (r->p == from + 2) return expected(r, "a hexadecimal digit");
    } else {
        while (more(r, is_digit)) r->p++;
        if (r->p < r->end && *r->p == '.') r->p++;
        while (more(r, is_digit)) r->p++;
        if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
            r->p++;
            if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
            if (!more(r, is_digit)) return expected(r, "a digit of an exponent");
            while (more(r, is_digit)) r->p++;
        }
        if (r->p < r->end && (*r->p == 'f' || *r->p == 'F')) r->p++;
    }
    if (more(r, is_word)) return expected(r, "the end of a number");
    f->value = (struct str){arena_printf(r->arena, "%s%.*s", negative ? "-" : "", (int)(r->p - from), from), 0};
    f->value.n = f->value.p ? strlen(f->value.p) : 0;
    return f->value.p ? ROSE_OK : no_memory(r);
}

static enum rose_status read_scalar(struct reader *r, struct pbtxt_field *f)
{
    bool negative = false;
    if (r->p < r->end && (*r->p == '"' || *r->p == '\'')) return read_string(r, f);
    if (r->p < r->end && *r->p == '-') {
        r->p++;
        negative = true;
        skip_space(r);
    }
    if (r->p < r->end && (is_digit(*r->p) || (*r->p == '.' && r->p + 1 < r->end && is_digit(r->p[1])))) return read_number(r, f, negative);
    const char *from = r->p;
    if (!more(r, is_letter)) return expected(r, negative ? "a number" : "a value (a text in quotes, a number, a name, or { ... })");
    while (more(r, is_word)) r->p++;
    f->kind = PBTXT_NAME;
    f->value = (struct str){from, (size_t)(r->p - from)};
    if (!negative) return ROSE_OK;
    f->value = (struct str){arena_printf(r->arena, "-%.*s", STR_ARG(f->value)), f->value.n + 1};
    return f->value.p ? ROSE_OK : no_memory(r);
}

/* --- fields ------------------------------------------------------------------------------------------------------------------------- */

static enum rose_status read_fields(struct reader *r, char until, struct pbtxt_field **out);

static enum rose_status read_value(struct reader *r, struct pbtxt_field *f, bool colon)
{
    skip_space(r);
    f->at_line = r->line;
    f->at_column = column_of(r, r->p);
    char open = r->p < r->end ? *r->p : '\0';
    if (open != '{' && open != '<') return colon ? read_scalar(r, f) : expected(r, "':' or '{'");
    if (r->depth == PBTXT_DEPTH) return too_much(r, "messages within each other", PBTXT_DEPTH);
    r->p++;
    r->depth++;
    f->kind = PBTXT_MESSAGE;
    ROSE_TRY(read_fields(r, open == '{' ? '}' : '>', &f->fields));
    r->depth--;
    return ROSE_OK;
}

static enum rose_status add_field(struct reader *r, const struct pbtxt_field *from, bool listed, bool colon, struct pbtxt_field ***tail)
{
    if (++r->count > PBTXT_FIELDS) return too_much(r, "fields and values", PBTXT_FIELDS);
    struct pbtxt_field *f = ARENA_NEW(r->arena, struct pbtxt_field);
    if (!f) return no_memory(r);
    *f = *from;
    f->listed = listed;
    **tail = f;
    *tail = &f->next;
    return read_value(r, f, colon);
}

/* A field, or the several that a list is. */
static enum rose_status read_field(struct reader *r, struct pbtxt_field ***tail)
{
    struct pbtxt_field f = {.line = r->line, .column = column_of(r, r->p)};
    const char *from = r->p;
    if (!more(r, is_letter)) return expected(r, "a field's name");
    while (more(r, is_word)) r->p++;
    f.name = (struct str){from, (size_t)(r->p - from)};
    bool colon = take(r, ':');
    if (!take(r, '[')) return add_field(r, &f, false, colon, tail);
    if (take(r, ']')) return ROSE_OK;
    do ROSE_TRY(add_field(r, &f, true, colon, tail));
    while (take(r, ','));
    return take(r, ']') ? ROSE_OK : expected(r, "',' or ']'");
}

/* until '\0': to the end of the text. */
static enum rose_status read_fields(struct reader *r, char until, struct pbtxt_field **out)
{
    struct pbtxt_field **tail = out;
    *out = NULL;
    for (;;) {
        skip_space(r);
        if (!until && r->p == r->end) return ROSE_OK;
        if (until && take(r, until)) return ROSE_OK;
        if (r->p == r->end) return expected(r, until == '}' ? "a field's name or '}'" : "a field's name or '>'");
        ROSE_TRY(read_field(r, &tail));
        if (!take(r, ',')) take(r, ';');
    }
}

enum rose_status pbtxt_read(struct str text, const char *file, struct arena *arena, struct pbtxt_field **out, struct rose_error *err)
{
    struct reader r = {.p = text.p, .end = text.p + text.n, .line_start = text.p, .file = file, .line = 1, .arena = arena, .err = err};
    *out = NULL;
    if (text.n > PBTXT_BYTES) return status_at_line(err, ROSE_LIMIT, file, 1, 1, "the text has %zu bytes; at most %d are taken", text.n, PBTXT_BYTES);
    return read_fields(&r, '\0', out);
}

/* --- what was read ------------------------------------------------------------------------------------------------------------------ */

const struct pbtxt_field *pbtxt_get(const struct pbtxt_field *fields, const char *name)
{
    while (fields && !str_is(fields->name, name)) fields = fields->next;
    return fields;
}

bool pbtxt_integer(const struct pbtxt_field *f, int64_t *out)
{
    struct str v = f->value;
    bool negative = v.n && v.p[0] == '-';
    uint64_t n = 0;
    if (f->kind != PBTXT_NUMBER) return false;
    if (negative) v.p++, v.n--;
    bool hex = v.n > 2 && (v.p[1] == 'x' || v.p[1] == 'X');
    int base = hex ? 16 : v.n > 1 && v.p[0] == '0' ? 8 : 10;
    for (size_t i = hex ? 2 : 0; i < v.n; i++) {
        int d = digit_of(v.p[i]);
        if (d >= base || __builtin_mul_overflow(n, (uint64_t)base, &n) || __builtin_add_overflow(n, (uint64_t)d, &n)) return false;
    }
    if (n > (uint64_t)INT64_MAX + negative) return false;
    *out = negative ? (int64_t)(0 - n) : (int64_t)n;
    return true;
}

bool pbtxt_bool(const struct pbtxt_field *f, bool *out)
{
    static const char *const yes[] = {"true", "True", "t"}, *const no[] = {"false", "False", "f"};
    int64_t n;
    for (size_t i = 0; f->kind == PBTXT_NAME && i < 3; i++)
        if (str_is(f->value, yes[i]) || str_is(f->value, no[i])) return *out = str_is(f->value, yes[i]), true;
    if (!pbtxt_integer(f, &n) || n < 0 || n > 1) return false;
    *out = n == 1;
    return true;
}

enum rose_status pbtxt_wrong(const struct pbtxt_field *f, const char *file, struct rose_error *err, enum rose_status status, const char *fmt, ...)
{
    char text[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return status_at_line(err, status, file, f->at_line, f->at_column, "%s", text);
}
