/* Values as text: str() and repr() as Python prints them, tojson as json.dumps does. */
#include "tokenizer/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

/* The shortest digits that read back equal; fixed notation for exponents -4 to 15. */
size_t template_float_repr(double d, char out[40])
{
    if (isnan(d)) return (size_t)sprintf(out, "nan");
    if (isinf(d)) return (size_t)sprintf(out, d < 0 ? "-inf" : "inf");
    char text[40], digits[24];
    int precision = 0;
    do snprintf(text, sizeof text, "%.*e", precision, d);
    while (strtod(text, NULL) != d && ++precision < 17);
    int n = 0, exponent = atoi(strchr(text, 'e') + 1);
    for (const char *p = text; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    char *p = out;
    if (signbit(d)) *p++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *p++ = digits[0];
        if (n > 1) *p++ = '.';
        memcpy(p, digits + 1, (size_t)n - 1);
        p += n - 1;
        p += sprintf(p, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return (size_t)(p - out);
    }
    if (exponent < 0) {
        p += sprintf(p, "0.%0*d", -exponent - 1, 0);
        if (exponent == -1) p -= 1; /* "%0*d" prints at least one zero */
        memcpy(p, digits, (size_t)n);
        p += n;
    } else {
        for (int i = 0; i <= exponent || i < n; i++) {
            if (i == exponent + 1) *p++ = '.';
            *p++ = i < n ? digits[i] : '0';
        }
        if (n <= exponent + 1) *p++ = '.', *p++ = '0';
    }
    *p = '\0';
    return (size_t)(p - out);
}

static bool add_number(struct eval *e, struct tbuild *b, struct value v)
{
    char text[40];
    size_t n = v.kind == V_INT ? (size_t)sprintf(text, "%lld", (long long)v.integer)
                               : template_float_repr(v.number, text);
    return tbuild_add(e, b, text, n, true);
}

/* A string in quotes: single ones unless it has those and no double ones. */
static bool add_quoted(struct eval *e, struct tbuild *b, const struct tstring *s)
{
    struct str text = {s->p, s->n};
    bool twofold = str_find(text, STR("'"), 0) >= 0 && str_find(text, STR("\""), 0) < 0;
    char quote = twofold ? '"' : '\'';
    if (!tbuild_add(e, b, &quote, 1, true)) return false;
    size_t plain = 0, at = 0;
    while (at < s->n) {
        size_t begin = at;
        uint32_t cp = template_unicode_next(text, &at);
        char escaped[16];
        static const char from[] = "\n\r\t\\", to[] = "nrt\\";
        const char *hit = cp && cp < 128 ? strchr(from, (int)cp) : NULL;
        if (hit)
            sprintf(escaped, "\\%c", to[hit - from]);
        else if (cp == (unsigned char)quote)
            sprintf(escaped, "\\%c", quote);
        else if (template_unicode_printable(cp))
            continue;
        else
            sprintf(escaped, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        if (!tbuild_slice(e, b, s, plain, begin) || !tbuild_text(e, b, escaped)) return false;
        plain = at;
    }
    return tbuild_slice(e, b, s, plain, s->n) && tbuild_add(e, b, &quote, 1, true);
}

static bool add_items(struct eval *e, struct tbuild *b, const struct tlist *list, const char *open,
                      const char *close)
{
    if (!tbuild_text(e, b, open)) return false;
    for (size_t i = 0; i < list->n; i++)
        if ((i && !tbuild_text(e, b, ", ")) || !template_repr_add(e, b, list->items[i])) return false;
    return tbuild_text(e, b, close);
}

static bool add_dict(struct eval *e, struct tbuild *b, const struct tdict *dict)
{
    if (!tbuild_text(e, b, "{")) return false;
    for (size_t i = 0; i < dict->n; i++)
        if ((i && !tbuild_text(e, b, ", ")) || !template_repr_add(e, b, dict->entries[i].key) ||
            !tbuild_text(e, b, ": ") || !template_repr_add(e, b, dict->entries[i].value))
            return false;
    return tbuild_text(e, b, "}");
}

static bool repr_range(struct eval *e, struct tbuild *b, const struct trange *r)
{
    char text[100];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)r->start, (long long)r->stop);
    if (r->step != 1) n += snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)r->step);
    return tbuild_add(e, b, text, (size_t)n, true) && tbuild_text(e, b, ")");
}

static bool repr_inner(struct eval *e, struct tbuild *b, struct value v)
{
    char text[80];
    switch (v.kind) {
    case V_UNDEFINED: return tbuild_text(e, b, "Undefined");
    case V_NONE: return tbuild_text(e, b, "None");
    case V_BOOL: return tbuild_text(e, b, v.boolean ? "True" : "False");
    case V_INT:
    case V_FLOAT: return add_number(e, b, v);
    case V_STRING:
        if (!v.string->markup) return add_quoted(e, b, v.string);
        return tbuild_text(e, b, "Markup(") && add_quoted(e, b, v.string) && tbuild_text(e, b, ")");
    case V_LIST: return add_items(e, b, v.list, "[", "]");
    case V_TUPLE: return add_items(e, b, v.list, "(", v.list->n == 1 ? ",)" : ")");
    case V_VIEW: return tbuild_text(e, b, v.list->view) && add_items(e, b, v.list, "([", "])");
    case V_DICT: return add_dict(e, b, v.dict);
    case V_RANGE: return repr_range(e, b, v.range);
    case V_NAMESPACE:
        return tbuild_text(e, b, "<Namespace ") && add_dict(e, b, v.dict) && tbuild_text(e, b, ">");
    case V_MACRO:
        return tbuild_text(e, b, "<Macro '") && tbuild_add(e, b, v.macro->name.p, v.macro->name.n, true) &&
               tbuild_text(e, b, "'>");
    default:
        snprintf(text, sizeof text, "<%s object>", template_value_type(v));
        return tbuild_text(e, b, text);
    }
}

bool template_repr_add(struct eval *e, struct tbuild *b, struct value v)
{
    if (!template_charge(e, 0) || !template_enter(e)) return false;
    bool ok = repr_inner(e, b, v);
    template_leave(e);
    return ok;
}

bool template_str_add(struct eval *e, struct tbuild *b, struct value v)
{
    if (v.kind == V_STRING) return tbuild_string(e, b, v.string);
    if (v.kind == V_UNDEFINED) return true;
    return template_repr_add(e, b, v);
}

bool template_str(struct eval *e, struct value v, struct value *out)
{
    if (v.kind == V_STRING) return *out = v, true;
    struct tbuild b = {0};
    return template_str_add(e, &b, v) && tbuild_end(e, &b, out);
}

/* --- tojson --- */

static bool json_string(struct eval *e, struct tbuild *b, const struct tstring *s, bool ascii)
{
    struct str text = {s->p, s->n};
    size_t plain = 0, at = 0;
    if (!tbuild_text(e, b, "\"")) return false;
    while (at < s->n) {
        size_t begin = at;
        uint32_t cp = template_unicode_next(text, &at);
        static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
        const char *hit = cp && cp < 128 ? strchr(from, (int)cp) : NULL;
        char escaped[16];
        if (hit)
            sprintf(escaped, "\\%c", to[hit - from]);
        else if (cp >= 0x10000 && ascii)
            sprintf(escaped, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                    0xDC00 + ((cp - 0x10000) & 0x3FF));
        else if (cp < 32 || (ascii && cp >= 127 && cp != 127))
            sprintf(escaped, "\\u%04x", cp);
        else
            continue;
        if (!tbuild_slice(e, b, s, plain, begin) || !tbuild_text(e, b, escaped)) return false;
        plain = at;
    }
    return tbuild_slice(e, b, s, plain, s->n) && tbuild_text(e, b, "\"");
}

static bool json_scalar(struct eval *e, struct tbuild *b, struct value v)
{
    if (v.kind == V_NONE) return tbuild_text(e, b, "null");
    if (v.kind == V_BOOL) return tbuild_text(e, b, v.boolean ? "true" : "false");
    if (v.kind == V_FLOAT && isnan(v.number)) return tbuild_text(e, b, "NaN");
    if (v.kind == V_FLOAT && isinf(v.number))
        return tbuild_text(e, b, v.number < 0 ? "-Infinity" : "Infinity");
    return add_number(e, b, v);
}

static bool json_line(struct eval *e, struct tbuild *b, const struct json_style *style, int level)
{
    if (style->indent.kind != V_STRING) return true;
    if (!tbuild_text(e, b, "\n")) return false;
    for (int i = 0; i < level; i++)
        if (!tbuild_string(e, b, style->indent.string)) return false;
    return true;
}

static bool json_list(struct eval *e, struct tbuild *b, const struct tlist *list,
                      const struct json_style *style, int level)
{
    if (!list->n) return tbuild_text(e, b, "[]");
    if (!tbuild_text(e, b, "[")) return false;
    for (size_t i = 0; i < list->n; i++) {
        if (i && !tbuild_string(e, b, style->item_separator.string)) return false;
        if (!json_line(e, b, style, level + 1) || !template_json_add(e, b, list->items[i], style, level + 1))
            return false;
    }
    return json_line(e, b, style, level) && tbuild_text(e, b, "]");
}

static bool json_key(struct eval *e, struct tbuild *b, struct value key, bool ascii)
{
    if (key.kind == V_STRING) return json_string(e, b, key.string, ascii);
    if (key.kind != V_NONE && !value_is_number(key))
        return template_fail(e, "tojson: a key of type '%s' cannot be written as JSON",
                             template_value_type(key));
    return tbuild_text(e, b, "\"") && json_scalar(e, b, key) && tbuild_text(e, b, "\"");
}

static bool sorted_entries(struct eval *e, const struct tdict *dict, struct value *keys, struct value *values)
{
    for (size_t i = 0; i < dict->n; i++) keys[i] = dict->entries[i].key, values[i] = dict->entries[i].value;
    return template_value_sort(e, values, keys, dict->n, false);
}

static bool json_dict(struct eval *e, struct tbuild *b, const struct tdict *dict,
                      const struct json_style *style, int level)
{
    struct value *keys = NULL, *values = NULL;
    if (!dict->n) return tbuild_text(e, b, "{}");
    if (style->sort) {
        keys = template_array(e, dict->n, sizeof *keys);
        values = template_array(e, dict->n, sizeof *values);
        if (!keys || !values || !sorted_entries(e, dict, keys, values)) return false;
    }
    if (!tbuild_text(e, b, "{")) return false;
    for (size_t i = 0; i < dict->n; i++) {
        struct value key = keys ? keys[i] : dict->entries[i].key,
                     value = values ? values[i] : dict->entries[i].value;
        if (i && !tbuild_string(e, b, style->item_separator.string)) return false;
        if (!json_line(e, b, style, level + 1) || !json_key(e, b, key, style->ascii)) return false;
        if (!tbuild_string(e, b, style->key_separator.string) ||
            !template_json_add(e, b, value, style, level + 1))
            return false;
    }
    return json_line(e, b, style, level) && tbuild_text(e, b, "}");
}

bool template_json_add(struct eval *e, struct tbuild *b, struct value v, const struct json_style *style,
                       int level)
{
    if (!template_charge(e, 0)) return false;
    bool ok;
    switch (v.kind) {
    case V_NONE:
    case V_BOOL:
    case V_INT:
    case V_FLOAT: return json_scalar(e, b, v);
    case V_STRING: return json_string(e, b, v.string, style->ascii);
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
        if (!template_enter(e)) return false;
        ok = v.kind == V_DICT ? json_dict(e, b, v.dict, style, level) : json_list(e, b, v.list, style, level);
        template_leave(e);
        return ok;
    case V_UNDEFINED: {
        struct tbuild name = {0};
        if (v.undefined->hint || !template_repr_add(e, &name, v.undefined->name))
            return template_fail(e, "tojson: an undefined value cannot be written as JSON");
        return template_fail(e, "tojson: %.*s is undefined and cannot be written as JSON",
                             (int)ROSE_MIN(name.n, 100), name.p);
    }
    default:
        return template_fail(e, "tojson: a value of type '%s' cannot be written as JSON",
                             template_value_type(v));
    }
}
