/* The lexer: text outside tags becomes data tokens (with the whitespace rules of trim_blocks, lstrip_blocks
 * and the signs - and +), tags become operators, names and literals. One pass, positions by line and column.
 */
#include "tokenizer/template_internal.h"

#include <stdio.h>

#include "base/utf8.h"

struct lexer {
    struct template *t;
    struct rose_error *err;
    const char *p; /* the source */
    size_t n, at;
    size_t marked; /* line and column are those of this offset */
    int line, column;
    bool line_starting; /* the last piece ended a line */
    size_t cap;
};

static enum rose_status fail(struct lexer *x, size_t at, const char *what)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        if (x->p[i] == '\n')
            line++, column = 1;
        else if (((unsigned char)x->p[i] & 0xC0) != 0x80)
            column++;
    }
    return status_at_line(x->err, ROSE_FORMAT, x->t->file, line, column, "chat template: %s", what);
}

static enum rose_status no_memory(struct lexer *x)
{
    return status_set(x->err, ROSE_NO_MEMORY, "out of memory while reading a chat template");
}

/* Positions are asked for in ascending order. */
static void locate(struct lexer *x, size_t at)
{
    for (; x->marked < at; x->marked++) {
        if (x->p[x->marked] == '\n')
            x->line++, x->column = 1;
        else if (((unsigned char)x->p[x->marked] & 0xC0) != 0x80)
            x->column++;
    }
}

static struct token *add(struct lexer *x, enum token_type type, size_t at)
{
    struct template *t = x->t;
    if (t->token_count == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 256;
        struct token *tokens = ARENA_ARRAY(&t->arena, struct token, cap);
        if (!tokens) return NULL;
        if (t->token_count) memcpy(tokens, t->tokens, t->token_count * sizeof *tokens);
        t->tokens = tokens;
        x->cap = cap;
    }
    locate(x, at);
    struct token *token = &t->tokens[t->token_count++];
    *token = (struct token){.type = type, .line = x->line, .column = x->column};
    return token;
}

static bool at_text(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return x->n - at >= n && !memcmp(x->p + at, text, n);
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    while (at < x->n) {
        size_t next = at;
        if (!template_unicode_space(template_unicode_next((struct str){x->p, x->n}, &next))) break;
        at = next;
    }
    return at;
}

/* The end of [begin, end) without whitespace before it. */
static size_t strip_right(const struct lexer *x, size_t begin, size_t end)
{
    while (end > begin) {
        size_t at = end - 1;
        while (at > begin && ((unsigned char)x->p[at] & 0xC0) == 0x80) at--;
        size_t next = at;
        if (!template_unicode_space(template_unicode_next((struct str){x->p, x->n}, &next))) break;
        end = at;
    }
    return end;
}

/* Text up to a tag whose sign is '-', '+' or 0. */
static enum rose_status add_data(struct lexer *x, size_t begin, size_t end, char sign, bool variable)
{
    if (sign == '-') {
        end = strip_right(x, begin, end);
    } else if (sign != '+' && !variable) {
        size_t line = end;
        while (line > begin && x->p[line - 1] != '\n') line--;
        if ((line > begin || x->line_starting) && line < end && strip_right(x, line, end) == line) end = line;
    }
    if (end == begin) return ROSE_OK;
    struct token *token = add(x, T_DATA, begin);
    if (!token) return no_memory(x);
    token->text = (struct str){x->p + begin, end - begin};
    return ROSE_OK;
}

/* After the closing bracket of a tag that ended at x->at: what '-' or trim_blocks take with them. */
static void after_tag(struct lexer *x, char sign, bool block)
{
    size_t end = x->at;
    if (sign == '-')
        x->at = skip_space(x, end);
    else if (sign != '+' && block && end < x->n && x->p[end] == '\n')
        x->at = end + 1;
    x->line_starting = x->at > 0 && x->p[x->at - 1] == '\n';
}

static char sign_at(const struct lexer *x, size_t at)
{
    return at < x->n && (x->p[at] == '-' || x->p[at] == '+') ? x->p[at] : 0;
}

static enum rose_status lex_comment(struct lexer *x, size_t open)
{
    for (size_t at = x->at; at + 1 < x->n; at++) {
        if (x->p[at] != '#' || x->p[at + 1] != '}') continue;
        char sign = at > x->at ? sign_at(x, at - 1) : 0;
        x->at = at + 2;
        after_tag(x, sign, true);
        return ROSE_OK;
    }
    return fail(x, open, "a comment is opened by {# and never closed by #}");
}

/* After "{% raw %}": text up to "{% endraw %}". */
static enum rose_status lex_raw(struct lexer *x, size_t open)
{
    size_t begin = x->at;
    for (size_t at = begin; at + 1 < x->n; at++) {
        if (x->p[at] != '{' || x->p[at + 1] != '%') continue;
        char sign = sign_at(x, at + 2);
        size_t end = skip_space(x, at + 2 + (sign != 0));
        if (!at_text(x, end, "endraw")) continue;
        end = skip_space(x, end + 6);
        char close = sign_at(x, end);
        end += close != 0;
        if (!at_text(x, end, "%}")) continue;
        ROSE_TRY(add_data(x, begin, at, sign, false));
        x->at = end + 2;
        after_tag(x, close, true);
        return ROSE_OK;
    }
    return fail(x, open, "a raw block is opened and never closed by {% endraw %}");
}

/* If "{%" at `at` begins "{% raw %}", returns the offset behind it. */
static size_t raw_begin(const struct lexer *x, size_t at)
{
    char sign = sign_at(x, at + 2);
    size_t end = skip_space(x, at + 2 + (sign != 0));
    if (!at_text(x, end, "raw")) return 0;
    end = skip_space(x, end + 3);
    if (at_text(x, end, "-%}")) return skip_space(x, end + 3);
    return at_text(x, end, "%}") ? end + 2 : 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* count hexadecimal digits; false: too few. */
static bool read_hex(const char *p, const char *end, int count, uint32_t *out)
{
    uint32_t v = 0;
    if (end - p < count) return false;
    for (int i = 0; i < count; i++) {
        int digit = hex_value(p[i]);
        if (digit < 0) return false;
        v = v << 4 | (uint32_t)digit;
    }
    *out = v;
    return true;
}

/* \x, \u, \U: *p stands on the letter. A pair of surrogates is one character, a lone one U+FFFD. */
static const char *unescape_hex(const char **p, const char *end, uint32_t *cp)
{
    int digits = **p == 'x' ? 2 : **p == 'u' ? 4 : 8;
    if (!read_hex(*p + 1, end, digits, cp))
        return "a string has a \\x, \\u or \\U escape with too few hex digits";
    *p += 1 + digits;
    uint32_t low;
    if (*cp >= 0xD800 && *cp < 0xDC00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u' &&
        read_hex(*p + 2, end, 4, &low) && low >= 0xDC00 && low < 0xE000) {
        *cp = 0x10000 + ((*cp - 0xD800) << 10) + (low - 0xDC00);
        *p += 6;
    }
    if (*cp >= 0xD800 && *cp < 0xE000) *cp = 0xFFFD;
    return *cp > 0x10FFFF ? "a string has a \\U escape beyond U+10FFFF" : NULL;
}

/* Python's escapes. out has room for the source's length. Returns what is wrong, or NULL. */
static const char *unescape(struct str in, char *out, size_t *n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *p = in.p, *end = in.p + in.n, *hit;
    *n = 0;
    while (p < end) {
        if (*p != '\\' || p + 1 == end) {
            out[(*n)++] = *p++;
            continue;
        }
        p++;
        uint32_t cp = 0;
        if (*p && (hit = strchr(from, *p))) {
            out[(*n)++] = to[hit - from];
            p++;
        } else if (*p == '\n') {
            p++;
        } else if (*p == 'x' || *p == 'u' || *p == 'U') {
            const char *wrong = unescape_hex(&p, end, &cp);
            if (wrong) return wrong;
            *n += utf8_encode(cp, out + *n);
        } else if (*p >= '0' && *p <= '7') {
            for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++)
                cp = cp * 8 + (uint32_t)(*p++ - '0');
            *n += utf8_encode(cp, out + *n);
        } else if (*p == 'N') {
            return "a string has a \\N{...} escape, which is not supported; write \\u and the code point";
        } else {
            out[(*n)++] = '\\';
        }
    }
    return NULL;
}

static enum rose_status lex_string(struct lexer *x)
{
    size_t begin = x->at, at = begin + 1;
    while (at < x->n && x->p[at] != x->p[begin]) at += x->p[at] == '\\' ? 2 : 1;
    if (at >= x->n) return fail(x, begin, "a string is never closed by its quote");
    struct token *token = add(x, T_STRING, begin);
    char *text = arena_alloc(&x->t->arena, at - begin);
    if (!token || !text) return no_memory(x);
    token->text.p = text;
    const char *wrong = unescape((struct str){x->p + begin + 1, at - begin - 1}, text, &token->text.n);
    if (wrong) return fail(x, begin, wrong);
    x->at = at + 1;
    return ROSE_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them, from `at`; returns the end. */
static size_t digits(const struct lexer *x, size_t at)
{
    while (at < x->n && (is_digit(x->p[at]) || (x->p[at] == '_' && at + 1 < x->n && is_digit(x->p[at + 1]))))
        at++;
    return at;
}

/* 0x, 0o and 0b numbers; 0 when the text is none. */
static size_t prefixed(const struct lexer *x, int *base)
{
    if (x->p[x->at] != '0' || x->at + 2 >= x->n) return 0;
    char letter = x->p[x->at + 1] | 0x20;
    *base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    size_t at = x->at + 2, end = at;
    while (*base && at < x->n) {
        size_t d = at + (x->p[at] == '_');
        if (d >= x->n || hex_value(x->p[d]) < 0 || hex_value(x->p[d]) >= *base) break;
        end = at = d + 1;
    }
    return end > x->at + 2 ? end : 0;
}

static enum rose_status lex_number(struct lexer *x)
{
    int base = 10;
    size_t begin = x->at, end = prefixed(x, &base);
    bool is_float = false;
    if (!end) {
        base = 10;
        end = digits(x, begin);
        bool after_dot = begin > 0 && x->p[begin - 1] == '.';
        if (!after_dot) {
            size_t point = end;
            if (point + 1 < x->n && x->p[point] == '.' && is_digit(x->p[point + 1])) {
                is_float = true;
                end = digits(x, point + 1);
            }
            size_t e = end;
            if (e < x->n && (x->p[e] | 0x20) == 'e') {
                e += 1 + (e + 1 < x->n && (x->p[e + 1] == '+' || x->p[e + 1] == '-'));
                if (e < x->n && is_digit(x->p[e])) is_float = true, end = digits(x, e);
            }
        }
        if (!is_float && x->p[begin] == '0') { /* 0, 00, 0_0; other digits begin a new number */
            end = begin + 1;
            while (end < x->n &&
                   (x->p[end] == '0' || (x->p[end] == '_' && end + 1 < x->n && x->p[end + 1] == '0')))
                end++;
        }
    }
    struct token *token = add(x, is_float ? T_FLOAT : T_INTEGER, begin);
    if (!token) return no_memory(x);
    token->text = (struct str){x->p + begin, end - begin};
    bool overflow = false;
    if (is_float) {
        if (!template_read_float(token->text, &token->number))
            return fail(x, begin, "a number cannot be read");
    } else if (!template_read_int(token->text, base, &token->integer, &overflow)) {
        return fail(x, begin, overflow ? "an integer does not fit 64 bits" : "a number cannot be read");
    }
    x->at = end;
    return ROSE_OK;
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           (unsigned char)c >= 0x80;
}

static const struct {
    char text[3];
    enum token_type type;
} operators[] = {
    {"//", T_FLOORDIV}, {"**", T_POW},   {"==", T_EQ},    {"!=", T_NE},    {">=", T_GE},
    {"<=", T_LE},       {"+", T_ADD},    {"-", T_SUB},    {"*", T_MUL},    {"/", T_DIV},
    {"%", T_MOD},       {"~", T_TILDE},  {"(", T_LPAREN}, {")", T_RPAREN}, {"[", T_LBRACKET},
    {"]", T_RBRACKET},  {"{", T_LBRACE}, {"}", T_RBRACE}, {">", T_GT},     {"<", T_LT},
    {"=", T_ASSIGN},    {".", T_DOT},    {":", T_COLON},  {"|", T_PIPE},   {",", T_COMMA},
    {";", T_SEMICOLON},
};

/* Brackets open in the tag, innermost last. */
struct brackets {
    char stack[TEMPLATE_MAX_NESTING];
    int n;
};

static enum rose_status lex_operator(struct lexer *x, struct brackets *open)
{
    for (size_t i = 0; i < ROSE_COUNT(operators); i++) {
        if (!at_text(x, x->at, operators[i].text)) continue;
        char c = x->p[x->at];
        if (c == '(' || c == '[' || c == '{') {
            if (open->n == TEMPLATE_MAX_NESTING) return fail(x, x->at, "brackets are nested too deep");
            open->stack[open->n++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            char what[64];
            if (!open->n)
                snprintf(what, sizeof what, "unexpected '%c'", c);
            else
                snprintf(what, sizeof what, "unexpected '%c', expected '%c'", c, open->stack[open->n - 1]);
            if (!open->n || open->stack[--open->n] != c) return fail(x, x->at, what);
        }
        if (!add(x, operators[i].type, x->at)) return no_memory(x);
        x->at += strlen(operators[i].text);
        return ROSE_OK;
    }
    return fail(x, x->at, "a character has no meaning inside a tag");
}

/* The inside of {{ }} or {% %}, up to and with its end. */
static enum rose_status lex_tag(struct lexer *x, bool block, size_t opened)
{
    const char *close = block ? "%}" : "}}";
    struct brackets open = {.n = 0};
    for (;;) {
        size_t at = skip_space(x, x->at);
        x->at = at;
        if (at >= x->n)
            return fail(x, opened,
                        block ? "a tag is opened by {% and never closed by %}"
                              : "a tag is opened by {{ and never closed by }}");
        char sign = sign_at(x, at);
        if (sign == '+' && !block) sign = 0;
        if (!open.n && at_text(x, at + (sign != 0), close)) {
            if (!add(x, block ? T_BLOCK_END : T_VARIABLE_END, at)) return no_memory(x);
            x->at = at + 2 + (sign != 0);
            after_tag(x, sign, block);
            return ROSE_OK;
        }
        if (is_digit(x->p[at])) {
            ROSE_TRY(lex_number(x));
        } else if (is_name_byte(x->p[at])) {
            size_t end = at;
            while (end < x->n && is_name_byte(x->p[end])) end++;
            struct token *token = add(x, T_NAME, at);
            if (!token) return no_memory(x);
            token->text = (struct str){x->p + at, end - at};
            x->at = end;
        } else if (x->p[at] == '\'' || x->p[at] == '"') {
            ROSE_TRY(lex_string(x));
        } else {
            ROSE_TRY(lex_operator(x, &open));
        }
    }
}

enum rose_status template_lex(struct template *t, struct rose_error *err)
{
    struct lexer lexer = {.t = t,
                          .err = err,
                          .p = t->source.p,
                          .n = t->source.n,
                          .line = 1,
                          .column = 1,
                          .line_starting = true},
                 *x = &lexer;
    while (x->at < x->n) {
        size_t begin = x->at, at = begin;
        while (at < x->n &&
               !(x->p[at] == '{' && at + 1 < x->n && strchr("{%#", x->p[at + 1]) && x->p[at + 1]))
            at++;
        if (at >= x->n) {
            ROSE_TRY(add_data(x, begin, x->n, '+', true));
            x->at = x->n;
            break;
        }
        char kind = x->p[at + 1];
        char sign = sign_at(x, at + 2);
        size_t raw = kind == '%' ? raw_begin(x, at) : 0;
        ROSE_TRY(add_data(x, begin, at, sign, kind == '{'));
        x->at = raw ? raw : at + 2 + (sign != 0);
        x->line_starting = x->p[x->at - 1] == '\n';
        if (raw)
            ROSE_TRY(lex_raw(x, at));
        else if (kind == '#')
            ROSE_TRY(lex_comment(x, at));
        else {
            if (!add(x, kind == '%' ? T_BLOCK_BEGIN : T_VARIABLE_BEGIN, at)) return no_memory(x);
            ROSE_TRY(lex_tag(x, kind == '%', at));
        }
    }
    return add(x, T_EOF, x->n) ? ROSE_OK : no_memory(x);
}

const char *template_token_describe(const struct token *token, char buf[64])
{
    static const char *const names[] = {
        [T_EOF] = "end of template", [T_DATA] = "text",          [T_VARIABLE_BEGIN] = "'{{'",
        [T_VARIABLE_END] = "'}}'",   [T_BLOCK_BEGIN] = "'{%'",   [T_BLOCK_END] = "'%}'",
        [T_STRING] = "a string",     [T_INTEGER] = "an integer", [T_FLOAT] = "a number",
    };
    if (token->type == T_NAME) {
        snprintf(buf, 64, "'%.*s'", (int)ROSE_MIN(token->text.n, 50), token->text.p);
        return buf;
    }
    if (token->type < T_NAME || token->type == T_STRING || token->type == T_INTEGER || token->type == T_FLOAT)
        return names[token->type];
    for (size_t i = 0; i < ROSE_COUNT(operators); i++)
        if (operators[i].type == token->type) snprintf(buf, 64, "'%.2s'", operators[i].text);
    return buf;
}
