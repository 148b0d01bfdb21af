/* Formatting: the % operator, str.format, strftime_now, and reading numbers from text as Python does.
 * Literal parts of a format and the values inserted keep their trust. */
#define _GNU_SOURCE
#include "tokenizer/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/template_strings.h"

/* What both mini-languages describe. */
struct spec {
    const char *fill; /* one character, n bytes */
    size_t fill_n;
    bool fill_trusted;
    char align; /* < > ^ = or 0: the type's own */
    char sign;  /* + - or blank */
    bool alternate, zero;
    char group;               /* , _ or 0 */
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
};

enum { MAX_PRECISION = 500 };

/* --- numbers to digits --- */

struct digits {
    char text[1100]; /* without sign: prefix, digits, point, exponent */
    size_t n, prefix;
    bool negative;
};

static void integer_digits(int64_t v, const struct spec *spec, struct digits *d)
{
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    unsigned base = spec->type == 'x' || spec->type == 'X' ? 16
                    : spec->type == 'o'                    ? 8
                    : spec->type == 'b'                    ? 2
                                                           : 10;
    char reversed[64];
    size_t n = 0;
    d->n = 0;
    d->negative = v < 0;
    do {
        unsigned digit = (unsigned)(u % base);
        reversed[n++] = (char)(digit < 10 ? '0' + digit : (spec->type == 'X' ? 'A' : 'a') + digit - 10);
        u /= base;
    } while (u);
    if (spec->alternate && base != 10) {
        d->text[d->n++] = '0';
        d->text[d->n++] = spec->type;
    }
    d->prefix = d->n;
    for (int64_t k = (int64_t)n; k < spec->precision; k++) d->text[d->n++] = '0'; /* %.5d */
    while (n) d->text[d->n++] = reversed[--n];
}

/* Without a type: like g, but the point stays, and more numbers get an exponent. */
static void general_digits(double v, int precision, struct digits *d)
{
    char text[64 + MAX_PRECISION];
    if (precision == 0) precision = 1;
    snprintf(text, sizeof text, "%.*e", precision - 1, v);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < precision - 1) {
        d->n = (size_t)snprintf(d->text, sizeof d->text, "%.*g", precision, v);
        if (!memchr(d->text, '.', d->n)) d->n += (size_t)sprintf(d->text + d->n, ".0");
        return;
    }
    if (exponent < -4 || exponent >= precision) {
        d->n = (size_t)snprintf(d->text, sizeof d->text, "%.*g", precision, v);
        return;
    }
    char *e = strchr(text, 'e'), *end = e; /* exponent == precision - 1: an exponent where %g has none */
    while (end > text && end[-1] == '0' && memchr(text, '.', (size_t)(end - text))) end--;
    if (end > text && end[-1] == '.') end--;
    d->n = (size_t)snprintf(d->text, sizeof d->text, "%.*s%s", (int)(end - text), text, e);
}

static void float_digits(double v, const struct spec *spec, struct digits *d)
{
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    char type = spec->type == 'n' ? 'g' : spec->type;
    d->prefix = 0;
    d->negative = signbit(v) && !isnan(v);
    v = fabs(v);
    if (isnan(v) || isinf(v)) {
        bool upper = type == 'E' || type == 'F' || type == 'G';
        d->n = (size_t)sprintf(d->text, "%s", isnan(v) ? upper ? "NAN" : "nan" : upper ? "INF" : "inf");
    } else if (!type && spec->precision < 0) {
        d->n = template_float_repr(v, d->text);
    } else if (!type) {
        general_digits(v, precision, d);
    } else {
        char format[8];
        snprintf(format, sizeof format, "%%%s.*%c", spec->alternate ? "#" : "", type == '%' ? 'f' : type);
        d->n = (size_t)snprintf(d->text, sizeof d->text - 1, format, precision, type == '%' ? v * 100 : v);
    }
    if (type == '%') d->text[d->n++] = '%';
}

/* Sign, padding and grouping around digits. */
static bool add_digits(struct eval *e, struct tbuild *b, const struct digits *d, const struct spec *spec)
{
    char sign = d->negative ? '-' : spec->sign == '+' || spec->sign == ' ' ? spec->sign : 0;
    size_t whole = d->prefix, groups = 0,
           each = spec->group && strchr("xXob", spec->type) && spec->type ? 4 : 3;
    while (whole < d->n &&
           ((d->text[whole] >= '0' && d->text[whole] <= '9') || (each == 4 && d->text[whole] != '.')))
        whole++;
    size_t count = whole - d->prefix;
    if (spec->group && count) groups = (count - 1) / each;
    size_t length = d->n + groups + (sign != 0);
    size_t pad = spec->width > 0 && (size_t)spec->width > length ? (size_t)spec->width - length : 0;
    char align = spec->align ? spec->align : spec->zero ? '=' : '>';
    size_t zeros = align == '=' ? pad : 0, left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    bool blank = spec->zero && !spec->fill;
    if (zeros && blank && spec->group) { /* grouped zeros: whole groups that reach the width */
        size_t want = (size_t)spec->width - (sign != 0) - (d->n - count);
        size_t all = count;
        while (all + (all - 1) / each < want) all++;
        zeros = 0;
        if (!tbuild_add(e, b, &sign, sign != 0, true) || !tbuild_add(e, b, d->text, d->prefix, true))
            return false;
        for (size_t i = 0; i < all; i++) {
            if (i && (all - i) % each == 0 && !tbuild_add(e, b, &spec->group, 1, true)) return false;
            if (!tbuild_add(e, b, i < all - count ? "0" : &d->text[d->prefix + i - (all - count)], 1, true))
                return false;
        }
        return tbuild_add(e, b, d->text + whole, d->n - whole, true);
    }
    const char *fill = spec->fill ? spec->fill : blank ? "0" : " ";
    size_t fill_n = spec->fill ? spec->fill_n : 1;
    bool trusted = !spec->fill || spec->fill_trusted;
    for (size_t i = 0; i < left; i++)
        if (!tbuild_add(e, b, fill, fill_n, trusted)) return false;
    if (!tbuild_add(e, b, &sign, sign != 0, true) || !tbuild_add(e, b, d->text, d->prefix, true))
        return false;
    for (size_t i = 0; i < zeros; i++)
        if (!tbuild_add(e, b, fill, fill_n, trusted)) return false;
    for (size_t i = d->prefix; i < whole; i++) {
        if (spec->group && i > d->prefix && (whole - i) % each == 0 &&
            !tbuild_add(e, b, &spec->group, 1, true))
            return false;
        if (!tbuild_add(e, b, &d->text[i], 1, true)) return false;
    }
    if (!tbuild_add(e, b, d->text + whole, d->n - whole, true)) return false;
    for (size_t i = left + zeros; i < pad; i++)
        if (!tbuild_add(e, b, fill, fill_n, trusted)) return false;
    return true;
}

static bool add_text(struct eval *e, struct tbuild *b, const struct tstring *s, const struct spec *spec)
{
    size_t chars =
        spec->precision >= 0 && (size_t)spec->precision < s->chars ? (size_t)spec->precision : s->chars;
    size_t pad = spec->width > 0 && (size_t)spec->width > chars ? (size_t)spec->width - chars : 0;
    size_t left = spec->align == '>' ? pad : spec->align == '^' ? pad / 2 : 0;
    const char *fill = spec->fill ? spec->fill : " ";
    size_t fill_n = spec->fill ? spec->fill_n : 1;
    for (size_t i = 0; i <= pad; i++) {
        if (i == left && !tbuild_slice(e, b, s, 0, template_string_offset(s, chars))) return false;
        if (i < pad && !tbuild_add(e, b, fill, fill_n, !spec->fill || spec->fill_trusted)) return false;
    }
    return true;
}

static bool add_char(struct eval *e, struct tbuild *b, struct value v, const struct spec *spec)
{
    char bytes[4];
    struct value text;
    int64_t cp = value_integer(v);
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return template_fail(e, "%%c: no character has this number");
    size_t n = 0;
    if (cp < 0x80)
        bytes[n++] = (char)cp;
    else if (cp < 0x800)
        bytes[n++] = (char)(0xC0 | cp >> 6), bytes[n++] = (char)(0x80 | (cp & 63));
    else if (cp < 0x10000)
        bytes[n++] = (char)(0xE0 | cp >> 12), bytes[n++] = (char)(0x80 | (cp >> 6 & 63)),
        bytes[n++] = (char)(0x80 | (cp & 63));
    else
        bytes[n++] = (char)(0xF0 | cp >> 18), bytes[n++] = (char)(0x80 | (cp >> 12 & 63)),
        bytes[n++] = (char)(0x80 | (cp >> 6 & 63)), bytes[n++] = (char)(0x80 | (cp & 63));
    return template_string_new(e, (struct str){bytes, n}, false, &text) && add_text(e, b, text.string, spec);
}

static bool check_precision(struct eval *e, const struct spec *spec)
{
    return spec->precision <= MAX_PRECISION ||
           template_fail(e, "a precision of more than %d digits", MAX_PRECISION);
}

/* --- "..." % args --- */

struct percent {
    const struct tstring *format;
    size_t at;
    struct value args;
    struct tlist one;
    const struct tlist *list;
    size_t used;
    bool mapping; /* a key was used */
    struct value arg1;
};

static bool next_arg(struct eval *e, struct percent *p, struct value *out)
{
    if (p->used >= p->list->n) return template_fail(e, "not enough arguments for the format string");
    *out = p->list->items[p->used++];
    return true;
}

static bool read_count(struct eval *e, struct percent *p, int64_t *out)
{
    const struct tstring *f = p->format;
    struct value v;
    if (p->at < f->n && f->p[p->at] == '*') {
        p->at++;
        return next_arg(e, p, &v) && template_ops_index(e, v, "*", out);
    }
    *out = 0;
    while (p->at < f->n && f->p[p->at] >= '0' && f->p[p->at] <= '9') {
        *out = *out * 10 + (f->p[p->at++] - '0');
        if (*out > INT32_MAX) return template_fail(e, "a width or precision is too large");
    }
    return true;
}

/* (key) of %(key)s; parentheses may nest. */
static bool read_key(struct eval *e, struct percent *p)
{
    const struct tstring *f = p->format;
    size_t begin = ++p->at;
    int open = 1;
    struct value key, *found;
    if (p->args.kind != V_DICT) return template_fail(e, "a format with %%(key) needs a dict");
    for (; p->at < f->n && open; p->at++) open += f->p[p->at] == '(' ? 1 : f->p[p->at] == ')' ? -1 : 0;
    if (open) return template_fail(e, "a %%(key) of the format is never closed");
    if (!template_string_slice(e, f, begin, p->at - 1, &key) ||
        !template_dict_get(e, p->args.dict, key, &found))
        return false;
    if (!found)
        return template_fail(e, "the dict has no key '%.*s'", (int)ROSE_MIN(key.string->n, 100),
                             key.string->p);
    p->mapping = true;
    p->one = (struct tlist){.items = &p->arg1, .n = 1};
    p->arg1 = *found;
    p->list = &p->one;
    p->used = 0;
    return true;
}

static bool percent_number(struct eval *e, struct tbuild *b, struct value v, struct spec *spec)
{
    struct digits d;
    char type = spec->type;
    bool integer = strchr("diuoxX", type) != NULL;
    if (v.kind == V_UNDEFINED) return template_value_undefined_fail(e, v);
    if (!value_is_number(v) || (strchr("oxX", type) && v.kind == V_FLOAT))
        return template_fail(e, "%%%c needs a number, not a value of type '%s'", type,
                             template_value_type(v));
    if (!check_precision(e, spec)) return false;
    if (integer) {
        if (v.kind == V_FLOAT) {
            if (!(fabs(v.number) < 9e18))
                return template_fail(e, "%%%c: the number does not fit 64 bits", type);
            v = value_int((int64_t)v.number);
        }
        if (strchr("diu", type)) spec->type = 'd';
        integer_digits(value_integer(v), spec, &d);
    } else {
        float_digits(value_number(v), spec, &d);
    }
    if (spec->align == '<') spec->zero = false;
    return add_digits(e, b, &d, spec);
}

static bool percent_text(struct eval *e, struct tbuild *b, struct value v, struct spec *spec)
{
    struct tbuild text = {0};
    struct value s;
    if (spec->type == 's') {
        if (!template_str(e, v, &s)) return false;
    } else if (!template_repr_add(e, &text, v) || !tbuild_end(e, &text, &s)) {
        return false;
    }
    if (!spec->align) spec->align = '>';
    return add_text(e, b, s.string, spec);
}

static bool percent_one(struct eval *e, struct percent *p, struct tbuild *b)
{
    const struct tstring *f = p->format;
    struct spec spec = {.precision = -1};
    struct value v;
    if (p->at < f->n && f->p[p->at] == '(' && !read_key(e, p)) return false;
    for (; p->at < f->n && f->p[p->at] && strchr("#0- +", f->p[p->at]); p->at++) {
        char c = f->p[p->at];
        if (c == '#')
            spec.alternate = true;
        else if (c == '0')
            spec.zero = true;
        else if (c == '-')
            spec.align = '<';
        else if (c == '+' || !spec.sign)
            spec.sign = c;
    }
    if (!read_count(e, p, &spec.width)) return false;
    if (spec.width < 0) spec.width = -spec.width, spec.align = '<';
    if (p->at < f->n && f->p[p->at] == '.') {
        p->at++;
        if (!read_count(e, p, &spec.precision)) return false;
        if (spec.precision < 0) spec.precision = 0;
    }
    if (p->at < f->n && strchr("hlL", f->p[p->at]) && f->p[p->at]) p->at++;
    if (p->at == f->n) return template_fail(e, "the format string ends inside a conversion");
    spec.type = f->p[p->at++];
    if (spec.type == '%') return tbuild_text(e, b, "%");
    if (!strchr("diuoxXeEfFgGcrsa", spec.type) || !spec.type)
        return template_fail(e, "the format string has an unknown conversion '%%%c'",
                             spec.type >= ' ' ? spec.type : '?');
    if (!next_arg(e, p, &v)) return false;
    if (strchr("rsa", spec.type)) return percent_text(e, b, v, &spec);
    if (spec.type != 'c') return percent_number(e, b, v, &spec);
    if (!spec.align) spec.align = '>';
    spec.precision = -1;
    if (v.kind == V_STRING && v.string->chars == 1) return add_text(e, b, v.string, &spec);
    if (!value_is_integral(v)) return template_fail(e, "%%c needs a character or an integer");
    return add_char(e, b, v, &spec);
}

bool template_format_percent(struct eval *e, const struct tstring *format, struct value args,
                             struct value *out)
{
    struct percent p = {.format = format, .args = args, .one = {.items = &args, .n = 1}};
    struct tbuild b = {0};
    p.list = args.kind == V_TUPLE ? args.list : &p.one;
    while (p.at < format->n) {
        const char *next = memchr(format->p + p.at, '%', format->n - p.at);
        size_t end = next ? (size_t)(next - format->p) : format->n;
        if (!tbuild_slice(e, &b, format, p.at, end)) return false;
        p.at = end + (next != NULL);
        if (next && (!template_charge(e, 0) || !percent_one(e, &p, &b))) return false;
    }
    bool container =
        args.kind == V_DICT || args.kind == V_LIST || args.kind == V_RANGE || args.kind == V_UNDEFINED;
    if (!p.mapping && p.used < p.list->n && !container)
        return template_fail(e, "the format string uses fewer arguments than given");
    return tbuild_end(e, &b, out);
}

/* --- "...".format(...) --- */

static bool spec_number(const char *p, size_t n, size_t *at, int64_t *out)
{
    *out = 0;
    while (*at < n && p[*at] >= '0' && p[*at] <= '9') {
        *out = *out * 10 + (p[(*at)++] - '0');
        if (*out > INT32_MAX) return false;
    }
    return true;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool parse_spec(struct eval *e, const struct tstring *s, struct spec *spec)
{
    size_t at = 0, next = 0;
    *spec = (struct spec){.precision = -1};
    if (s->n) template_unicode_next((struct str){s->p, s->n}, &next);
    if (next && next < s->n && strchr("<>^=", s->p[next]) && s->p[next]) {
        spec->fill = s->p;
        spec->fill_n = next;
        spec->fill_trusted = template_string_all_trusted(s);
        spec->align = s->p[next];
        at = next + 1;
    } else if (s->n && strchr("<>^=", s->p[0]) && s->p[0]) {
        spec->align = s->p[at++];
    }
    if (at < s->n && strchr("+- ", s->p[at]) && s->p[at]) spec->sign = s->p[at++];
    if (at < s->n && s->p[at] == '#') spec->alternate = true, at++;
    if (at < s->n && s->p[at] == '0') spec->zero = true, at++;
    if (!spec_number(s->p, s->n, &at, &spec->width)) return template_fail(e, "a format's width is too large");
    if (at < s->n && (s->p[at] == ',' || s->p[at] == '_')) spec->group = s->p[at++];
    if (at < s->n && s->p[at] == '.') {
        size_t begin = ++at;
        if (!spec_number(s->p, s->n, &at, &spec->precision))
            return template_fail(e, "a format's precision is too large");
        if (at == begin) return template_fail(e, "a format's precision is missing");
    }
    if (at < s->n) spec->type = s->p[at++];
    if (at != s->n)
        return template_fail(e, "'%.*s' is not a format specification", (int)ROSE_MIN(s->n, 40), s->p);
    return true;
}

static bool unknown_type(struct eval *e, char type, struct value v)
{
    return template_fail(e, "the format type '%c' is unknown for a value of type '%s'",
                         type > ' ' && type < 127 ? type : '?', template_value_type(v));
}

static bool format_number(struct eval *e, struct tbuild *b, struct value v, struct spec *spec)
{
    struct digits d;
    if (!check_precision(e, spec)) return false;
    if (spec->type == 'c' && v.kind != V_FLOAT) {
        if (!spec->align) spec->align = '>';
        return add_char(e, b, v, spec);
    }
    if (v.kind != V_FLOAT && (!spec->type || strchr("bdoxXn", spec->type))) {
        if (spec->precision >= 0) return template_fail(e, "an integer's format cannot have a precision");
        if (spec->type == 'n') spec->type = 'd';
        integer_digits(value_integer(v), spec, &d);
    } else {
        if (spec->type && !strchr("eEfFgGn%", spec->type)) return unknown_type(e, spec->type, v);
        float_digits(value_number(v), spec, &d);
    }
    return add_digits(e, b, &d, spec);
}

static bool format_value(struct eval *e, struct tbuild *b, struct value v, const struct tstring *text)
{
    struct spec spec;
    if (!text->n) return template_str_add(e, b, v);
    if (!parse_spec(e, text, &spec)) return false;
    if (value_is_number(v)) return format_number(e, b, v, &spec);
    if (v.kind != V_STRING)
        return template_fail(e, "a value of type '%s' cannot have a format specification",
                             template_value_type(v));
    if (spec.type && spec.type != 's') return unknown_type(e, spec.type, v);
    if (spec.sign || spec.group || spec.alternate || spec.align == '=')
        return template_fail(e, "a string's format has an option for numbers");
    if (spec.zero && !spec.fill) spec.fill = "0", spec.fill_n = 1, spec.fill_trusted = true;
    return add_text(e, b, v.string, &spec);
}

struct braces {
    struct args *args;
    int64_t next; /* number of the next {} */
    bool automatic, manual;
};

static bool field_value(struct eval *e, struct braces *x, const struct tstring *f, size_t begin, size_t end,
                        struct value *out)
{
    struct str name = {f->p + begin, end - begin};
    int64_t index;
    bool number = name.n > 0;
    for (size_t i = 0; i < name.n; i++) number &= name.p[i] >= '0' && name.p[i] <= '9';
    if (!name.n || number) {
        if (name.n && !str_to_i64(name, &index)) return template_fail(e, "a field's number is too large");
        if (!name.n)
            x->automatic = true, index = x->next++;
        else
            x->manual = true;
        if (x->automatic && x->manual)
            return template_fail(e, "numbered and unnumbered fields cannot be mixed");
        if ((size_t)index >= x->args->npos)
            return template_fail(e, "format has no argument number %lld", (long long)index);
        *out = x->args->pos[index];
        return true;
    }
    for (size_t i = 0; i < x->args->nkw; i++)
        if (str_eq(x->args->kw[i].name, name)) return *out = x->args->kw[i].value, true;
    return template_fail(e, "format has no argument named '%.*s'", (int)ROSE_MIN(name.n, 100), name.p);
}

/* name.attr[item]... */
static bool field_path(struct eval *e, struct braces *x, const struct tstring *f, size_t begin, size_t end,
                       struct value *out)
{
    size_t at = begin;
    while (at < end && f->p[at] != '.' && f->p[at] != '[') at++;
    if (!field_value(e, x, f, begin, at, out)) return false;
    while (at < end) {
        bool item = f->p[at] == '[';
        if (!item && f->p[at] != '.') return template_fail(e, "a field needs '.' or '[' behind ']'");
        size_t from = ++at;
        struct value key;
        while (at < end && (item ? f->p[at] != ']' : f->p[at] != '.' && f->p[at] != '[')) at++;
        if (at == from || (item && at == end))
            return template_fail(e, "a field of the format string is malformed");
        int64_t index;
        if (!template_string_slice(e, f, from, at, &key)) return false;
        if (item && str_to_i64(value_str(key), &index) && key.string->p[0] != '-' && key.string->p[0] != '+')
            key = value_int(index);
        if (!(item ? template_ops_getitem(e, *out, key, out) : template_ops_getattr(e, *out, key, out)))
            return false;
        at += item;
    }
    return true;
}

static bool format_run(struct eval *e, struct braces *x, const struct tstring *f, int depth,
                       struct tbuild *b);

/* name!conversion:spec of the field [begin, end) */
static bool format_field(struct eval *e, struct braces *x, const struct tstring *f, size_t begin, size_t end,
                         int depth, struct tbuild *b)
{
    size_t name_end = begin, brackets = 0;
    while (name_end < end && (brackets || (f->p[name_end] != ':' && f->p[name_end] != '!'))) {
        brackets = f->p[name_end] == '[' ? 1 : f->p[name_end] == ']' ? 0 : brackets;
        name_end++;
    }
    size_t at = name_end;
    struct value v, spec;
    struct tbuild text = {0};
    if (!field_path(e, x, f, begin, name_end, &v)) return false;
    if (at < end && f->p[at] == '!') {
        char conversion = at + 1 < end ? f->p[at + 1] : 0;
        if (at + 2 < end && f->p[at + 2] != ':') return template_fail(e, "expected ':' after a conversion");
        if (conversion == 's') {
            if (!template_str(e, v, &v)) return false;
        } else if (conversion == 'r' || conversion == 'a') {
            if (!template_repr_add(e, &text, v) || !tbuild_end(e, &text, &v)) return false;
        } else {
            return template_fail(e, "a field has an unknown conversion");
        }
        at += 2;
    }
    if (at < end) at++; /* ':' */
    text = (struct tbuild){0};
    if (!template_string_slice(e, f, at, end, &spec)) return false;
    if (memchr(spec.string->p, '{', spec.string->n) || memchr(spec.string->p, '}', spec.string->n)) {
        if (!format_run(e, x, spec.string, depth - 1, &text) || !tbuild_end(e, &text, &spec)) return false;
    }
    return format_value(e, b, v, spec.string);
}

static bool format_run(struct eval *e, struct braces *x, const struct tstring *f, int depth, struct tbuild *b)
{
    if (depth < 0) return template_fail(e, "fields of a format string are nested too deep");
    for (size_t at = 0; at < f->n;) {
        size_t end = at;
        while (end < f->n && f->p[end] != '{' && f->p[end] != '}') end++;
        if (!tbuild_slice(e, b, f, at, end)) return false;
        if (end == f->n) break;
        at = end + 1;
        if (at < f->n && f->p[at] == f->p[end]) {
            if (!tbuild_slice(e, b, f, at, at + 1)) return false;
            at++;
            continue;
        }
        if (f->p[end] == '}') return template_fail(e, "a single '}' in a format string");
        int open = 1;
        size_t begin = at;
        for (; at < f->n && open; at++) open += f->p[at] == '{' ? 1 : f->p[at] == '}' ? -1 : 0;
        if (open) return template_fail(e, "a '{' of a format string is never closed");
        if (!template_charge(e, 0) || !format_field(e, x, f, begin, at - 1, depth, b)) return false;
    }
    return true;
}

bool template_format_braces(struct eval *e, const struct tstring *format, struct args *args,
                            struct value *out)
{
    struct braces x = {.args = args};
    struct tbuild b = {0};
    return format_run(e, &x, format, 2, &b) && tbuild_end(e, &b, out);
}
