/* Filters on text: cases, escapes, indentation, tojson, URLs. */
#include "tokenizer/template_internal.h"

#include <math.h>
#include <stdio.h>

#include "tokenizer/template_strings.h"

#define FILTER(name) static bool name(struct eval *e, struct call *c, struct value *out)

static bool given(struct value v)
{
    return v.kind != V_MISSING && v.kind != V_NONE;
}

static bool text_of(struct eval *e, struct value v, const struct tstring **out)
{
    struct value text;
    if (!template_str(e, v, &text)) return false;
    *out = text.string;
    return true;
}

static bool change_case(struct eval *e, struct call *c, enum string_case to, struct value *out)
{
    const struct tstring *s;
    return text_of(e, c->self, &s) && template_strings_case(e, s, to, out);
}
FILTER(filter_upper)
{
    return change_case(e, c, CASE_UPPER, out);
}
FILTER(filter_lower)
{
    return change_case(e, c, CASE_LOWER, out);
}
FILTER(filter_capitalize)
{
    return change_case(e, c, CASE_CAPITAL, out);
}

/* The first character in upper case (not in title case), the rest in lower. */
static bool add_title_word(struct eval *e, struct tbuild *b, const struct tstring *s, size_t begin,
                           size_t end)
{
    size_t second = begin;
    struct value first, rest;
    template_unicode_next((struct str){s->p, s->n}, &second);
    return template_string_slice(e, s, begin, second, &first) &&
           template_string_slice(e, s, second, end, &rest) &&
           template_strings_case(e, first.string, CASE_UPPER, &first) &&
           template_strings_case(e, rest.string, CASE_LOWER, &rest) && tbuild_string(e, b, first.string) &&
           tbuild_string(e, b, rest.string);
}

/* Words begin after whitespace, '-', '(', '{', '[' and '<'. */
FILTER(filter_title)
{
    const struct tstring *s;
    struct tbuild b = {0};
    bool begins = true;
    size_t word = 0;
    if (!text_of(e, c->self, &s)) return false;
    for (size_t at = 0; at <= s->n;) {
        size_t begin = at;
        uint32_t cp = at < s->n ? template_unicode_next((struct str){s->p, s->n}, &at) : ' ';
        bool separator =
            begin == s->n || template_unicode_space(cp) || (cp < 128 && cp && strchr("-({[<", (int)cp));
        if (separator && !begins && !add_title_word(e, &b, s, word, begin)) return false;
        if (begin == s->n) break;
        if (separator && !tbuild_slice(e, &b, s, begin, at)) return false;
        if (!separator && begins) word = begin;
        begins = separator;
    }
    return tbuild_end(e, &b, out);
}

FILTER(filter_trim)
{
    const struct tstring *s, *chars = NULL;
    if (given(c->p[0])) {
        if (c->p[0].kind != V_STRING) return template_fail(e, "trim needs a string of characters to remove");
        chars = c->p[0].string;
    }
    return text_of(e, c->self, &s) && template_strings_strip(e, s, chars, true, true, out);
}

FILTER(filter_replace)
{
    const struct tstring *s, *old, *new;
    int64_t count = -1;
    if (given(c->p[2]) && !template_ops_index(e, c->p[2], "the count of replace", &count)) return false;
    return text_of(e, c->self, &s) && text_of(e, c->p[0], &old) && text_of(e, c->p[1], &new) &&
           template_strings_replace(e, s, old, new, count, out);
}

FILTER(filter_string)
{
    return template_str(e, c->self, out);
}

FILTER(filter_pprint)
{
    struct tbuild b = {0};
    return template_repr_add(e, &b, c->self) && tbuild_end(e, &b, out);
}

FILTER(filter_center)
{
    const struct tstring *s;
    struct value blank;
    int64_t width = 80;
    if (c->p[0].kind != V_MISSING && !template_ops_index(e, c->p[0], "the width of center", &width))
        return false;
    return text_of(e, c->self, &s) && template_string_literal(e, " ", &blank) &&
           template_strings_pad(e, s, width, blank.string, 0, out);
}

/* The width as a string: a number of blanks, or the string itself. */
static bool indentation(struct eval *e, struct value v, int64_t usual, struct value *out)
{
    struct tbuild b = {0};
    int64_t width = usual;
    if (v.kind == V_STRING) return *out = v, true;
    if (v.kind != V_MISSING && !template_ops_index(e, v, "an indentation", &width)) return false;
    return tbuild_repeat(e, &b, ' ', width > 0 ? (size_t)width : 0) && tbuild_end(e, &b, out);
}

FILTER(filter_indent)
{
    struct value indent, text = c->self, newline;
    struct tlist *lines;
    struct tbuild b = {0};
    bool blank = c->p[2].kind != V_MISSING && template_value_truth(c->p[2]);
    if (text.kind == V_UNDEFINED) return template_value_undefined_fail(e, text);
    if (text.kind != V_STRING)
        return template_fail(e, "indent needs a string, not a value of type '%s'", template_value_type(text));
    if (!indentation(e, c->p[0], 4, &indent) || !template_string_literal(e, "\n", &newline)) return false;
    if (!template_string_concat(e, text.string, newline.string, &text)) return false;
    if (!template_strings_lines(e, text.string, false, &lines)) return false;
    if (c->p[1].kind != V_MISSING && template_value_truth(c->p[1]) && !tbuild_string(e, &b, indent.string))
        return false;
    for (size_t i = 0; i < lines->n; i++) {
        if (i && !tbuild_text(e, &b, "\n")) return false;
        if (i && (blank || lines->items[i].string->n) && !tbuild_string(e, &b, indent.string)) return false;
        if (!tbuild_string(e, &b, lines->items[i].string)) return false;
    }
    return tbuild_end(e, &b, out);
}

FILTER(filter_truncate)
{
    const struct tstring *s, *end;
    struct value tail, head;
    int64_t length = 255, leeway = 5, have;
    if (c->p[0].kind != V_MISSING && !template_ops_index(e, c->p[0], "the length of truncate", &length))
        return false;
    if (given(c->p[3]) && !template_ops_index(e, c->p[3], "the leeway of truncate", &leeway)) return false;
    if (c->p[2].kind == V_MISSING ? !template_string_literal(e, "...", &tail)
                                  : (tail = c->p[2], tail.kind != V_STRING))
        return template_fail(e, "the end of truncate must be a string");
    end = tail.string;
    if (length < (int64_t)end->chars || leeway < 0)
        return template_fail(
            e, "truncate needs a length of at least that of its end (%zu) and no negative leeway",
            end->chars);
    *out = c->self;
    if (!template_value_length(e, c->self, &have)) return false;
    if (have <= length || have - length <= leeway) return true;
    if (c->self.kind != V_STRING)
        return template_fail(e, "truncate needs a string, not a value of type '%s'",
                             template_value_type(c->self));
    s = c->self.string;
    size_t cut = template_string_offset(s, (size_t)length - end->chars);
    if (c->p[1].kind == V_MISSING || !template_value_truth(c->p[1])) {
        size_t word = cut;
        while (word && s->p[word - 1] != ' ') word--;
        if (word) cut = word - 1;
    }
    return template_string_slice(e, s, 0, cut, &head) && template_string_concat(e, head.string, end, out);
}

FILTER(filter_wordcount)
{
    const struct tstring *s;
    int64_t n = 0;
    bool inside = false;
    if (!text_of(e, c->self, &s) || !template_charge(e, s->n)) return false;
    for (size_t at = 0; at < s->n;) {
        uint32_t cp = template_unicode_next((struct str){s->p, s->n}, &at);
        bool word = cp == '_' || template_unicode_alpha(cp) || template_unicode_numeric(cp);
        n += word && !inside;
        inside = word;
    }
    *out = value_int(n);
    return true;
}

FILTER(filter_format)
{
    const struct tstring *s;
    struct value args;
    if (c->args.npos && c->args.nkw)
        return template_fail(e, "format takes positional or keyword arguments, not both");
    if (!text_of(e, c->self, &s)) return false;
    if (!c->args.nkw) {
        if (!template_list_value(e, V_TUPLE, c->args.pos, c->args.npos, &args)) return false;
    } else {
        args = (struct value){.kind = V_DICT, .dict = template_dict_new(e, c->args.nkw)};
        if (!args.dict) return false;
        for (size_t i = 0; i < c->args.nkw; i++) {
            struct value key;
            if (!template_string_new(e, c->args.kw[i].name, true, &key) ||
                !template_dict_set(e, args.dict, key, c->args.kw[i].value))
                return false;
        }
    }
    return template_format_percent(e, s, args, out);
}

/* --- HTML --- */

bool template_escape_add(struct eval *e, struct tbuild *b, struct value v)
{
    static const struct {
        char c;
        const char *text;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    const struct tstring *s;
    if (!text_of(e, v, &s)) return false;
    size_t plain = 0;
    for (size_t i = 0; i < s->n; i++) {
        for (size_t k = 0; k < ROSE_COUNT(entities); k++) {
            if (s->p[i] != entities[k].c) continue;
            if (!tbuild_slice(e, b, s, plain, i) || !tbuild_text(e, b, entities[k].text)) return false;
            plain = i + 1;
        }
    }
    return template_charge(e, s->n) && tbuild_slice(e, b, s, plain, s->n);
}

FILTER(filter_forceescape)
{
    struct tbuild b = {0};
    if (!template_escape_add(e, &b, c->self) || !tbuild_end(e, &b, out)) return false;
    return out->string->markup = true;
}

FILTER(filter_escape)
{
    if (c->self.kind == V_STRING && c->self.string->markup) return *out = c->self, true;
    return filter_forceescape(e, c, out);
}

FILTER(filter_safe)
{
    const struct tstring *s;
    if (!text_of(e, c->self, &s) || !template_string_slice(e, s, 0, s->n, out)) return false;
    return out->string->markup = true;
}

FILTER(filter_xmlattr)
{
    struct tbuild b = {0};
    bool space = c->p[0].kind == V_MISSING || template_value_truth(c->p[0]), any = false;
    if (c->self.kind != V_DICT)
        return template_fail(e, "xmlattr needs a dict, not a value of type '%s'",
                             template_value_type(c->self));
    for (size_t i = 0; i < c->self.dict->n; i++) {
        struct value key = c->self.dict->entries[i].key, value = c->self.dict->entries[i].value;
        if (value.kind == V_NONE || value.kind == V_UNDEFINED) continue;
        if (key.kind != V_STRING) return template_fail(e, "xmlattr needs string keys");
        for (size_t k = 0; k < key.string->n; k++)
            if (strchr(" \t\n\r\f\v/>=", key.string->p[k]) && key.string->p[k])
                return template_fail(e, "an attribute's name contains a character that cannot stand there");
        if ((any || space) && !tbuild_text(e, &b, " ")) return false;
        any = true;
        if (!template_escape_add(e, &b, key) || !tbuild_text(e, &b, "=\"") ||
            !template_escape_add(e, &b, value) || !tbuild_text(e, &b, "\""))
            return false;
    }
    return tbuild_end(e, &b, out);
}

/* Without <!-- comments --> and <tags>, whitespace collapsed, the usual entities resolved. */
FILTER(filter_striptags)
{
    static const struct {
        const char *text, *to;
    } entities[] = {{"&amp;", "&"},  {"&lt;", "<"},    {"&gt;", ">"},
                    {"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}};
    const struct tstring *s;
    struct tbuild b = {0};
    struct value v, words, blank;
    if (!text_of(e, c->self, &s)) return false;
    struct str text = {s->p, s->n};
    for (size_t at = 0; at < s->n;) { /* comments */
        ptrdiff_t open = str_find(text, STR("<!--"), at),
                  close = open < 0 ? -1 : str_find(text, STR("-->"), (size_t)open);
        size_t end = close < 0 ? s->n : (size_t)open;
        if (!tbuild_slice(e, &b, s, at, end)) return false;
        at = close < 0 ? s->n : (size_t)close + 3;
    }
    if (!tbuild_end(e, &b, &v)) return false;
    b = (struct tbuild){0};
    s = v.string;
    text = value_str(v);
    for (size_t at = 0; at < s->n;) { /* tags */
        ptrdiff_t open = str_find(text, STR("<"), at),
                  close = open < 0 ? -1 : str_find(text, STR(">"), (size_t)open);
        size_t end = close < 0 ? s->n : (size_t)open;
        if (!tbuild_slice(e, &b, s, at, end)) return false;
        at = close < 0 ? s->n : (size_t)close + 1;
    }
    if (!tbuild_end(e, &b, &v) || !template_string_literal(e, " ", &blank)) return false;
    if (!template_strings_split_space(e, v.string, -1, false, &words)) return false;
    b = (struct tbuild){0};
    for (size_t i = 0; i < words.list->n; i++) {
        const struct tstring *word = words.list->items[i].string;
        if (i && !tbuild_text(e, &b, " ")) return false;
        for (size_t at = 0; at < word->n;) {
            size_t k = 0;
            struct str rest = {word->p + at, word->n - at};
            while (k < ROSE_COUNT(entities) && !str_starts(rest, str_of(entities[k].text))) k++;
            if (k < ROSE_COUNT(entities)) {
                if (!tbuild_add(e, &b, entities[k].to, 1, false)) return false;
                at += strlen(entities[k].text);
            } else {
                if (!tbuild_slice(e, &b, word, at, at + 1)) return false;
                at++;
            }
        }
    }
    return tbuild_end(e, &b, out);
}

/* --- URLs, sizes, JSON --- */

static bool quote(struct eval *e, struct tbuild *b, struct value v, bool query)
{
    const struct tstring *s;
    if (!text_of(e, v, &s)) return false;
    for (size_t i = 0; i < s->n; i++) {
        char ch = s->p[i], hex[4];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
                     (ch && strchr("_.-~", ch)) || (ch == '/' && !query);
        if (plain ? !tbuild_slice(e, b, s, i, i + 1)
            : query && ch == ' '
                ? !tbuild_text(e, b, "+")
                : (snprintf(hex, sizeof hex, "%%%02X", (unsigned char)ch), !tbuild_text(e, b, hex)))
            return false;
    }
    return true;
}

FILTER(filter_urlencode)
{
    struct tbuild b = {0};
    struct tlist *pairs, *pair;
    struct value v = c->self;
    if (v.kind == V_STRING || !template_value_is_iterable(v))
        return quote(e, &b, v, false) && tbuild_end(e, &b, out);
    struct args none = {0};
    if (v.kind == V_DICT && !template_call_bound(e, template_method(v, STR("items")), v, &none, &v))
        return false;
    if (!template_value_elements(e, v, &pairs)) return false;
    for (size_t i = 0; i < pairs->n; i++) {
        if (!template_value_elements(e, pairs->items[i], &pair)) return false;
        if (pair->n != 2)
            return template_fail(e, "urlencode needs pairs, but an element has %zu values", pair->n);
        if ((i && !tbuild_text(e, &b, "&")) || !quote(e, &b, pair->items[0], true) ||
            !tbuild_text(e, &b, "=") || !quote(e, &b, pair->items[1], true))
            return false;
    }
    return tbuild_end(e, &b, out);
}

FILTER(filter_filesizeformat)
{
    static const char *const binary_units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    static const char *const decimal_units[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    bool binary = c->p[0].kind != V_MISSING && template_value_truth(c->p[0]);
    double bytes, base = binary ? 1024 : 1000, unit = base;
    char text[400];
    struct tbuild b = {0};
    if (value_is_number(c->self))
        bytes = value_number(c->self);
    else if (c->self.kind != V_STRING || !template_read_float(value_str(c->self), &bytes))
        return template_fail(e, "filesizeformat needs a number");
    if (isnan(bytes)) return template_fail(e, "filesizeformat needs a number");
    if (bytes == 1)
        snprintf(text, sizeof text, "1 Byte");
    else if (bytes < base) {
        if (bytes < -9e18) return template_fail(e, "filesizeformat needs a larger number");
        snprintf(text, sizeof text, "%lld Bytes", (long long)bytes);
    } else {
        int i = 0;
        for (unit *= base; bytes >= unit && i < 7; i++) unit *= base;
        snprintf(text, sizeof text, "%.1f %s", base * bytes / unit,
                 binary ? binary_units[i] : decimal_units[i]);
    }
    return tbuild_text(e, &b, text) && tbuild_end(e, &b, out);
}

/* json.dumps(value, ensure_ascii, indent, separators, sort_keys) */
FILTER(filter_tojson)
{
    struct json_style style = {.indent = value_of(V_MISSING)};
    struct tbuild b = {0};
    if (given(c->p[1]) && !indentation(e, c->p[1], 0, &style.indent)) return false;
    if (!template_string_literal(e, given(c->p[1]) ? "," : ", ", &style.item_separator) ||
        !template_string_literal(e, ": ", &style.key_separator))
        return false;
    if (given(c->p[2])) {
        struct tlist *pair;
        if (!template_value_elements(e, c->p[2], &pair)) return false;
        if (pair->n != 2 || pair->items[0].kind != V_STRING || pair->items[1].kind != V_STRING)
            return template_fail(e, "tojson: separators must be two strings");
        style.item_separator = pair->items[0];
        style.key_separator = pair->items[1];
    }
    style.ascii = c->p[0].kind != V_MISSING && template_value_truth(c->p[0]);
    style.sort = c->p[3].kind != V_MISSING && template_value_truth(c->p[3]);
    return template_json_add(e, &b, c->self, &style, 0) && tbuild_end(e, &b, out);
}

const struct callable *template_text_filter(struct str name)
{
    static const struct callable table[] = {
        {"capitalize", filter_capitalize, "", 0},
        {"center", filter_center, "width", 0},
        {"e", filter_escape, "", 0},
        {"escape", filter_escape, "", 0},
        {"filesizeformat", filter_filesizeformat, "binary", 0},
        {"forceescape", filter_forceescape, "", 0},
        {"format", filter_format, NULL, 0},
        {"indent", filter_indent, "width first blank", 0},
        {"lower", filter_lower, "", 0},
        {"pprint", filter_pprint, "", 0},
        {"replace", filter_replace, "old new count", 2},
        {"safe", filter_safe, "", 0},
        {"string", filter_string, "", 0},
        {"striptags", filter_striptags, "", 0},
        {"title", filter_title, "", 0},
        {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
        {"trim", filter_trim, "chars", 0},
        {"truncate", filter_truncate, "length killwords end leeway", 0},
        {"upper", filter_upper, "", 0},
        {"urlencode", filter_urlencode, "", 0},
        {"wordcount", filter_wordcount, "", 0},
        {"wordwrap", template_wrap, "width break_long_words wrapstring break_on_hyphens", 0},
        {"xmlattr", filter_xmlattr, "autospace", 0},
    };
    return template_callable_find(table, ROSE_COUNT(table), name);
}
