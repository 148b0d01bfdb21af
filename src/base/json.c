#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

struct parser {
    struct arena *arena;
    const char *file;
    struct str text;
    size_t at;
    int depth;
    struct rose_error *err;
};

static enum rose_status fail(struct parser *p, size_t at, const char *what)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < at && i < p->text.n; i++) {
        column++;
        if (p->text.p[i] == '\n') line++, column = 1;
    }
    status_at_line(p->err, ROSE_FORMAT, p->file, line, column, "JSON, line %d column %d: %s", line, column, what);
    if (p->err) p->err->offset = (int64_t)at;
    return ROSE_FORMAT;
}

static enum rose_status no_memory(struct parser *p)
{
    return status_at(p->err, ROSE_NO_MEMORY, p->file, (int64_t)p->at, "JSON needs more memory than its limit");
}

static void skip_space(struct parser *p)
{
    while (p->at < p->text.n) {
        char c = p->text.p[p->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
        p->at++;
    }
}

static bool hex4(struct parser *p, size_t at, uint32_t *out)
{
    if (at + 4 > p->text.n) return false;
    uint32_t v = 0;
    for (size_t i = at; i < at + 4; i++) {
        char c = p->text.p[i];
        uint32_t d;
        if (c >= '0' && c <= '9') d = (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') d = (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') d = (uint32_t)(c - 'A' + 10);
        else return false;
        v = v << 4 | d;
    }
    *out = v;
    return true;
}

/* \uXXXX at p->at (behind the u), with its low surrogate if there is one; appends UTF-8. */
static enum rose_status parse_unicode(struct parser *p, char *out, size_t *n)
{
    uint32_t cp, low;
    if (!hex4(p, p->at, &cp)) return fail(p, p->at, "\\u wants four hexadecimal digits");
    p->at += 4;
    if (cp >= 0xD800 && cp < 0xDC00 && p->at + 6 <= p->text.n && p->text.p[p->at] == '\\' &&
        p->text.p[p->at + 1] == 'u' && hex4(p, p->at + 2, &low) && low >= 0xDC00 && low < 0xE000) {
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        p->at += 6;
    }
    if (cp >= 0xD800 && cp < 0xE000) cp = 0xFFFD;
    *n += utf8_encode(cp, out + *n);
    return ROSE_OK;
}

static enum rose_status parse_escape(struct parser *p, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    p->at++;
    if (p->at >= p->text.n) return fail(p, p->at, "the text ends inside a string");
    char c = p->text.p[p->at];
    if (c == 'u') {
        p->at++;
        return parse_unicode(p, out, n);
    }
    const char *hit = c ? strchr(from, c) : NULL;
    if (!hit) return fail(p, p->at, "unknown escape in a string");
    out[(*n)++] = to[hit - from];
    p->at++;
    return ROSE_OK;
}

static enum rose_status parse_string(struct parser *p, struct str *out)
{
    size_t start = ++p->at;
    bool plain = true;
    size_t end = start;
    for (;; end++) {
        if (end >= p->text.n) return fail(p, start - 1, "a string has no end");
        unsigned char c = (unsigned char)p->text.p[end];
        if (c == '"') break;
        if (c < 0x20) return fail(p, end, "a control character inside a string must be escaped");
        if (c == '\\') {
            plain = false;
            end++;
        }
    }
    if (plain && utf8_valid((struct str){p->text.p + start, end - start})) {
        *out = (struct str){p->text.p + start, end - start};
        p->at = end + 1;
        return ROSE_OK;
    }
    /* An invalid byte grows to the three bytes of U+FFFD; an escape never grows. */
    char *copy = arena_alloc(p->arena, (end - start) * 3 + 1);
    if (!copy) return no_memory(p);
    size_t n = 0;
    while (p->at < end) {
        if (p->text.p[p->at] == '\\') {
            ROSE_TRY(parse_escape(p, copy, &n));
            continue;
        }
        uint32_t cp;
        p->at += utf8_decode((struct str){p->text.p + p->at, end - p->at}, &cp);
        n += utf8_encode(cp == UTF8_INVALID ? 0xFFFD : cp, copy + n);
    }
    copy[n] = '\0';
    *out = (struct str){copy, n};
    p->at = end + 1;
    return ROSE_OK;
}

static bool is_digit(struct parser *p) { return p->at < p->text.n && p->text.p[p->at] >= '0' && p->text.p[p->at] <= '9'; }

static enum rose_status parse_number(struct parser *p, struct json *out)
{
    size_t start = p->at;
    bool integer = true;
    if (p->text.p[p->at] == '-') p->at++;
    if (!is_digit(p)) return fail(p, start, "a value was expected");
    if (p->text.p[p->at] == '0') p->at++;
    else
        while (is_digit(p)) p->at++;
    if (p->at < p->text.n && p->text.p[p->at] == '.') {
        integer = false;
        p->at++;
        if (!is_digit(p)) return fail(p, p->at, "a digit was expected after the decimal point");
        while (is_digit(p)) p->at++;
    }
    if (p->at < p->text.n && (p->text.p[p->at] | 32) == 'e') {
        integer = false;
        p->at++;
        if (p->at < p->text.n && (p->text.p[p->at] == '+' || p->text.p[p->at] == '-')) p->at++;
        if (!is_digit(p)) return fail(p, p->at, "a digit was expected in the exponent");
        while (is_digit(p)) p->at++;
    }
    struct str digits = {p->text.p + start, p->at - start};
    out->type = JSON_NUMBER;
    if (integer && digits.n <= 15) { /* exact in float64: lists of millions of token ids come by here */
        bool minus = digits.p[0] == '-';
        int64_t n = 0;
        for (size_t k = minus; k < digits.n; k++) n = n * 10 + (digits.p[k] - '0');
        out->is_integer = true;
        out->integer = minus ? -n : n;
        out->number = minus && !n ? -0.0 : (double)out->integer;
        return ROSE_OK;
    }
    char text[512];
    if (digits.n >= sizeof text) return fail(p, start, "a number has more than 511 characters");
    memcpy(text, digits.p, digits.n);
    text[digits.n] = '\0';
    out->number = strtod(text, NULL);
    int64_t i;
    uint64_t wide = 0;
    if (integer && str_to_i64(digits, &i)) {
        out->is_integer = true;
        out->integer = i;
    } else if (integer) {
        bool fits = digits.p[0] != '-';
        for (size_t k = 0; fits && k < digits.n; k++) fits = !__builtin_mul_overflow(wide, (uint64_t)10, &wide) && !__builtin_add_overflow(wide, (uint64_t)(digits.p[k] - '0'), &wide);
        out->is_wide = fits;
        if (fits) out->integer = (int64_t)wide;
    }
    return ROSE_OK;
}

static enum rose_status parse_value(struct parser *p, struct json *out);

/* Elements are gathered in a doubling array inside the arena. */
static void *grow_array(struct parser *p, void *items, uint32_t count, size_t size)
{
    if (count & (count - 1)) return items; /* only at powers of two, and at 0 */
    if (count && count < 4) return items;
    size_t cap = count ? (size_t)count * 2 : 4;
    void *more = arena_alloc(p->arena, cap * size);
    if (more && count) memcpy(more, items, count * size);
    return more;
}

static enum rose_status parse_array(struct parser *p, struct json *out)
{
    out->type = JSON_ARRAY;
    p->at++;
    skip_space(p);
    if (p->at < p->text.n && p->text.p[p->at] == ']') {
        p->at++;
        return ROSE_OK;
    }
    for (;;) {
        out->items = grow_array(p, out->items, out->count, sizeof *out->items);
        if (!out->items) return no_memory(p);
        ROSE_TRY(parse_value(p, &out->items[out->count]));
        out->count++;
        skip_space(p);
        if (p->at >= p->text.n) return fail(p, p->at, "an array has no end");
        char c = p->text.p[p->at++];
        if (c == ']') return ROSE_OK;
        if (c != ',') return fail(p, p->at - 1, "',' or ']' was expected");
    }
}

static enum rose_status parse_object(struct parser *p, struct json *out)
{
    out->type = JSON_OBJECT;
    p->at++;
    skip_space(p);
    if (p->at < p->text.n && p->text.p[p->at] == '}') {
        p->at++;
        return ROSE_OK;
    }
    for (;;) {
        out->members = grow_array(p, out->members, out->count, sizeof *out->members);
        if (!out->members) return no_memory(p);
        struct json_member *m = &out->members[out->count];
        skip_space(p);
        if (p->at >= p->text.n || p->text.p[p->at] != '"') return fail(p, p->at, "a key in quotes was expected");
        ROSE_TRY(parse_string(p, &m->key));
        skip_space(p);
        if (p->at >= p->text.n || p->text.p[p->at] != ':') return fail(p, p->at, "':' was expected");
        p->at++;
        ROSE_TRY(parse_value(p, &m->value));
        out->count++;
        skip_space(p);
        if (p->at >= p->text.n) return fail(p, p->at, "an object has no end");
        char c = p->text.p[p->at++];
        if (c == '}') return ROSE_OK;
        if (c != ',') return fail(p, p->at - 1, "',' or '}' was expected");
    }
}

static bool literal(struct parser *p, const char *word)
{
    struct str rest = {p->text.p + p->at, p->text.n - p->at};
    if (!str_starts(rest, str_of(word))) return false;
    p->at += strlen(word);
    return true;
}

static enum rose_status parse_value(struct parser *p, struct json *out)
{
    skip_space(p);
    *out = (struct json){.offset = p->at};
    if (p->at >= p->text.n) return fail(p, p->at, "the text ends where a value was expected");
    char c = p->text.p[p->at];
    if (c == '{' || c == '[') {
        if (++p->depth > JSON_MAX_DEPTH) return fail(p, p->at, "nested deeper than 200 levels");
        enum rose_status s = c == '{' ? parse_object(p, out) : parse_array(p, out);
        p->depth--;
        return s;
    }
    if (c == '"') {
        out->type = JSON_STRING;
        return parse_string(p, &out->string);
    }
    if (c == 't' && literal(p, "true")) return out->type = JSON_TRUE, ROSE_OK;
    if (c == 'f' && literal(p, "false")) return out->type = JSON_FALSE, ROSE_OK;
    if (c == 'n' && literal(p, "null")) return out->type = JSON_NULL, ROSE_OK;
    return parse_number(p, out);
}

enum rose_status json_parse(struct arena *arena, const char *file, struct str text, const struct json **out,
                            struct rose_error *err)
{
    struct parser p = {.arena = arena, .file = file, .text = text, .err = err};
    if (text.n >= 3 && !memcmp(text.p, "\xEF\xBB\xBF", 3)) p.at = 3;
    struct json *root = ARENA_NEW(arena, struct json);
    if (!root) return no_memory(&p);
    ROSE_TRY(parse_value(&p, root));
    skip_space(&p);
    if (p.at != text.n) return fail(&p, p.at, "text after the end of the value");
    *out = root;
    return ROSE_OK;
}

const struct json_member json_nothing = {.key = {"", 0}};

const struct json *json_get(const struct json *object, const char *key)
{
    if (!json_is(object, JSON_OBJECT)) return NULL;
    struct str k = str_of(key);
    for (uint32_t i = object->count; i-- > 0;)
        if (str_eq(object->members[i].key, k)) return &object->members[i].value;
    return NULL;
}

const struct json *json_path(const struct json *object, const char *path)
{
    char key[128];
    for (const char *dot; object && *path; path = *dot ? dot + 1 : dot) {
        dot = strchr(path, '.');
        if (!dot) dot = path + strlen(path);
        size_t n = (size_t)(dot - path);
        if (n >= sizeof key) return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        object = json_get(object, key);
    }
    return object;
}

struct str json_str(const struct json *v, const char *fallback)
{
    return json_is(v, JSON_STRING) ? v->string : str_of(fallback);
}

int64_t json_int(const struct json *v, int64_t fallback)
{
    if (!json_is(v, JSON_NUMBER)) return fallback;
    if (v->is_integer) return v->integer;
    return v->number == floor(v->number) && fabs(v->number) < 9e15 ? (int64_t)v->number : fallback;
}

double json_num(const struct json *v, double fallback) { return json_is(v, JSON_NUMBER) ? v->number : fallback; }

bool json_bool(const struct json *v, bool fallback)
{
    return json_is(v, JSON_TRUE) ? true : json_is(v, JSON_FALSE) ? false : fallback;
}

const char *json_type_name(enum json_type type)
{
    static const char *const names[] = {"null", "boolean", "boolean", "number", "string", "array", "object"};
    return names[type];
}

void json_add_str(struct strbuf *b, struct str text)
{
    strbuf_addc(b, '"');
    for (size_t i = 0; i < text.n;) {
        size_t start = i;
        while (i < text.n && (unsigned char)text.p[i] >= 0x20 && (unsigned char)text.p[i] < 0x7F &&
               text.p[i] != '"' && text.p[i] != '\\')
            i++;
        strbuf_add(b, text.p + start, i - start);
        if (i >= text.n) break;
        unsigned char c = (unsigned char)text.p[i];
        if (c == '"' || c == '\\') strbuf_printf(b, "\\%c", c), i++;
        else if (c == '\n') strbuf_adds(b, "\\n"), i++;
        else if (c == '\t') strbuf_adds(b, "\\t"), i++;
        else if (c == '\r') strbuf_adds(b, "\\r"), i++;
        else if (c < 0x20 || c == 0x7F) strbuf_printf(b, "\\u%04x", c), i++;
        else {
            uint32_t cp;
            size_t n = utf8_decode((struct str){text.p + i, text.n - i}, &cp);
            if (cp == UTF8_INVALID) strbuf_adds(b, "\xEF\xBF\xBD");
            else strbuf_add(b, text.p + i, n);
            i += n;
        }
    }
    strbuf_addc(b, '"');
}

void json_add_num(struct strbuf *b, double number)
{
    if (!isfinite(number)) {
        strbuf_adds(b, "null");
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number) break;
    }
    strbuf_adds(b, text);
}

void json_add_value(struct strbuf *b, const struct json *v)
{
    switch (v->type) {
    case JSON_NULL: strbuf_adds(b, "null"); break;
    case JSON_FALSE: strbuf_adds(b, "false"); break;
    case JSON_TRUE: strbuf_adds(b, "true"); break;
    case JSON_STRING: json_add_str(b, v->string); break;
    case JSON_NUMBER:
        if (v->is_integer) strbuf_printf(b, "%lld", (long long)v->integer);
        else if (v->is_wide) strbuf_printf(b, "%llu", (unsigned long long)v->integer);
        else json_add_num(b, v->number);
        break;
    case JSON_ARRAY:
        strbuf_addc(b, '[');
        for (uint32_t i = 0; i < v->count; i++) {
            if (i) strbuf_addc(b, ',');
            json_add_value(b, &v->items[i]);
        }
        strbuf_addc(b, ']');
        break;
    case JSON_OBJECT:
        strbuf_addc(b, '{');
        for (uint32_t i = 0; i < v->count; i++) {
            if (i) strbuf_addc(b, ',');
            json_add_str(b, v->members[i].key);
            strbuf_addc(b, ':');
            json_add_value(b, &v->members[i].value);
        }
        strbuf_addc(b, '}');
        break;
    }
}
