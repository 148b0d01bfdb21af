/* Methods of strings, lists, dicts, loops and cyclers. Strings keep the trust of their parts where a method
 * only cuts or joins; where it rewrites characters the result is untrusted unless all of the input was
 * trusted. */
#include "tokenizer/template_internal.h"

#include "base/utf8.h"
#include "tokenizer/template_strings.h"

static bool want_string(struct eval *e, struct call *call, int i)
{
    if (call->p[i].kind == V_UNDEFINED) return template_value_undefined_fail(e, call->p[i]);
    return call->p[i].kind == V_STRING ||
           template_fail(e, "%s needs a string, not a value of type '%s'", call->callable->name,
                         template_value_type(call->p[i]));
}

static bool given(struct value v)
{
    return v.kind != V_MISSING && v.kind != V_NONE;
}

/* --- case --- */

static bool m_upper(struct eval *e, struct call *c, struct value *out)
{
    return template_strings_case(e, c->self.string, CASE_UPPER, out);
}
static bool m_lower(struct eval *e, struct call *c, struct value *out)
{
    return template_strings_case(e, c->self.string, CASE_LOWER, out);
}
static bool m_title(struct eval *e, struct call *c, struct value *out)
{
    return template_strings_case(e, c->self.string, CASE_TITLE, out);
}
static bool m_capitalize(struct eval *e, struct call *c, struct value *out)
{
    return template_strings_case(e, c->self.string, CASE_CAPITAL, out);
}
static bool m_casefold(struct eval *e, struct call *c, struct value *out)
{
    return template_strings_case(e, c->self.string, CASE_FOLD, out);
}
static bool m_swapcase(struct eval *e, struct call *c, struct value *out)
{
    return template_strings_case(e, c->self.string, CASE_SWAP, out);
}

/* --- stripping and affixes --- */

static bool strip(struct eval *e, struct call *c, bool left, bool right, struct value *out)
{
    if (given(c->p[0]) && !want_string(e, c, 0)) return false;
    return template_strings_strip(e, c->self.string, given(c->p[0]) ? c->p[0].string : NULL, left, right,
                                  out);
}
static bool m_strip(struct eval *e, struct call *c, struct value *out)
{
    return strip(e, c, true, true, out);
}
static bool m_lstrip(struct eval *e, struct call *c, struct value *out)
{
    return strip(e, c, true, false, out);
}
static bool m_rstrip(struct eval *e, struct call *c, struct value *out)
{
    return strip(e, c, false, true, out);
}

/* Bounds of the characters [start, end) as bytes, by the rules of slices; false in *ok when start lies behind
 * the end. */
static bool window(struct eval *e, struct call *c, int first, size_t *begin, size_t *end, bool *ok)
{
    const struct tstring *s = c->self.string;
    int64_t n = (int64_t)s->chars, from = 0, to = n;
    if (given(c->p[first]) && !template_ops_index(e, c->p[first], "the start", &from)) return false;
    if (given(c->p[first + 1]) && !template_ops_index(e, c->p[first + 1], "the end", &to)) return false;
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to = to < -n ? 0 : to + n;
    *ok = from <= n;
    if (to > n) to = n;
    if (from > to) *ok = false;
    if (from > n) from = n;
    *begin = template_string_offset(s, (size_t)from);
    *end = template_string_offset(s, (size_t)ROSE_MAX(from, to));
    return true;
}

static bool affix(struct eval *e, struct call *c, bool end, struct value *out)
{
    size_t from, to;
    bool ok, hit = false;
    struct tlist one = {.items = &c->p[0], .n = 1}, *list = c->p[0].kind == V_TUPLE ? c->p[0].list : &one;
    if (!window(e, c, 1, &from, &to, &ok)) return false;
    struct str text = {c->self.string->p + from, to - from};
    for (size_t i = 0; i < list->n && !hit; i++) {
        struct value v = list->items[i];
        if (v.kind == V_UNDEFINED || v.kind != V_STRING)
            return template_fail(e, "%s needs a string or a tuple of strings, not '%s'", c->callable->name,
                                 template_value_type(v));
        hit = ok && (end ? str_ends(text, value_str(v)) : str_starts(text, value_str(v)));
        if (!template_charge(e, v.string->n)) return false;
    }
    *out = value_bool(hit);
    return true;
}
static bool m_startswith(struct eval *e, struct call *c, struct value *out)
{
    return affix(e, c, false, out);
}
static bool m_endswith(struct eval *e, struct call *c, struct value *out)
{
    return affix(e, c, true, out);
}

static bool m_removeprefix(struct eval *e, struct call *c, struct value *out)
{
    const struct tstring *s = c->self.string;
    if (!want_string(e, c, 0)) return false;
    bool hit = str_starts(value_str(c->self), value_str(c->p[0]));
    return template_string_slice(e, s, hit ? c->p[0].string->n : 0, s->n, out);
}
static bool m_removesuffix(struct eval *e, struct call *c, struct value *out)
{
    const struct tstring *s = c->self.string;
    if (!want_string(e, c, 0)) return false;
    bool hit = str_ends(value_str(c->self), value_str(c->p[0]));
    return template_string_slice(e, s, 0, s->n - (hit ? c->p[0].string->n : 0), out);
}

/* --- searching --- */

static ptrdiff_t find_last(struct str s, struct str needle)
{
    for (size_t i = s.n + 1; i-- > needle.n;) {
        size_t at = i - needle.n;
        if (!needle.n || !memcmp(s.p + at, needle.p, needle.n)) return (ptrdiff_t)at;
    }
    return -1;
}

static bool search(struct eval *e, struct call *c, bool last, bool must, struct value *out)
{
    size_t from, to;
    bool ok;
    if (!want_string(e, c, 0) || !window(e, c, 1, &from, &to, &ok)) return false;
    struct str text = {c->self.string->p + from, to - from}, needle = value_str(c->p[0]);
    if (!template_charge(e, last && text.n > needle.n ? (text.n - needle.n) * (1 + needle.n / 16) : text.n))
        return false;
    ptrdiff_t at = !ok ? -1 : last ? find_last(text, needle) : str_find(text, needle, 0);
    if (at < 0 && must) return template_fail(e, "%s: the substring is not there", c->callable->name);
    *out = value_int(
        at < 0 ? -1 : (int64_t)template_string_chars((struct str){c->self.string->p, from + (size_t)at}));
    return true;
}
static bool m_find(struct eval *e, struct call *c, struct value *out)
{
    return search(e, c, false, false, out);
}
static bool m_rfind(struct eval *e, struct call *c, struct value *out)
{
    return search(e, c, true, false, out);
}
static bool m_index(struct eval *e, struct call *c, struct value *out)
{
    return search(e, c, false, true, out);
}
static bool m_rindex(struct eval *e, struct call *c, struct value *out)
{
    return search(e, c, true, true, out);
}

static bool m_count(struct eval *e, struct call *c, struct value *out)
{
    size_t from, to;
    bool ok;
    if (!want_string(e, c, 0) || !window(e, c, 1, &from, &to, &ok)) return false;
    struct str text = {c->self.string->p + from, to - from}, needle = value_str(c->p[0]);
    int64_t n = 0;
    if (!template_charge(e, text.n)) return false;
    if (ok && !needle.n) n = (int64_t)template_string_chars(text) + 1;
    for (ptrdiff_t at = 0; ok && needle.n && (at = str_find(text, needle, (size_t)at)) >= 0;
         at += (ptrdiff_t)needle.n)
        n++;
    *out = value_int(n);
    return true;
}

static bool m_replace(struct eval *e, struct call *c, struct value *out)
{
    int64_t count = -1;
    if (!want_string(e, c, 0) || !want_string(e, c, 1)) return false;
    if (c->p[2].kind != V_MISSING && !template_ops_index(e, c->p[2], "the count of replace", &count))
        return false;
    return template_strings_replace(e, c->self.string, c->p[0].string, c->p[1].string, count, out);
}

/* --- splitting and joining --- */

static bool split(struct eval *e, struct call *c, bool right, struct value *out)
{
    int64_t max = -1;
    if (given(c->p[0]) && !want_string(e, c, 0)) return false;
    if (c->p[1].kind != V_MISSING && !template_ops_index(e, c->p[1], "the number of splits", &max))
        return false;
    if (!given(c->p[0])) return template_strings_split_space(e, c->self.string, max, right, out);
    if (!c->p[0].string->n) return template_fail(e, "a separator cannot be empty");
    return template_strings_split(e, c->self.string, c->p[0].string, max, right, out);
}
static bool m_split(struct eval *e, struct call *c, struct value *out)
{
    return split(e, c, false, out);
}
static bool m_rsplit(struct eval *e, struct call *c, struct value *out)
{
    return split(e, c, true, out);
}

static bool partition(struct eval *e, struct call *c, bool last, struct value *out)
{
    const struct tstring *s = c->self.string;
    if (!want_string(e, c, 0)) return false;
    struct str sep = value_str(c->p[0]);
    if (!sep.n) return template_fail(e, "a separator cannot be empty");
    if (!template_charge(e, last ? s->n * (1 + sep.n / 16) : s->n)) return false;
    ptrdiff_t at = last ? find_last(value_str(c->self), sep) : str_find(value_str(c->self), sep, 0);
    size_t begin = at >= 0 ? (size_t)at : last ? 0 : s->n, end = at >= 0 ? begin + sep.n : begin;
    struct tlist *list = template_list_new(e, 3);
    *out = (struct value){.kind = V_TUPLE, .list = list};
    return list && template_string_slice(e, s, 0, begin, &list->items[0]) &&
           template_string_slice(e, s, begin, end, &list->items[1]) &&
           template_string_slice(e, s, end, s->n, &list->items[2]);
}
static bool m_partition(struct eval *e, struct call *c, struct value *out)
{
    return partition(e, c, false, out);
}
static bool m_rpartition(struct eval *e, struct call *c, struct value *out)
{
    return partition(e, c, true, out);
}

static bool m_splitlines(struct eval *e, struct call *c, struct value *out)
{
    struct tlist *lines;
    if (!template_strings_lines(e, c->self.string, c->p[0].kind != V_MISSING && template_value_truth(c->p[0]),
                                &lines))
        return false;
    *out = (struct value){.kind = V_LIST, .list = lines};
    return true;
}

static bool m_join(struct eval *e, struct call *c, struct value *out)
{
    struct tlist *list;
    struct tbuild b = {0};
    if (!template_value_elements(e, c->p[0], &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].kind != V_STRING)
            return template_fail(e, "join: element %zu is of type '%s', not a string", i,
                                 template_value_type(list->items[i]));
        if ((i && !tbuild_string(e, &b, c->self.string)) || !tbuild_string(e, &b, list->items[i].string))
            return false;
    }
    return tbuild_end(e, &b, out);
}

static bool m_format(struct eval *e, struct call *c, struct value *out)
{
    return template_format_braces(e, c->self.string, &c->args, out);
}

/* --- padding --- */

static bool pad(struct eval *e, struct call *c, int side, struct value *out)
{
    int64_t width;
    struct value fill = c->p[1];
    if (!template_ops_index(e, c->p[0], "a width", &width)) return false;
    if (fill.kind == V_MISSING && !template_string_literal(e, " ", &fill)) return false;
    if (fill.kind != V_STRING || fill.string->chars != 1)
        return template_fail(e, "%s: the fill must be one character", c->callable->name);
    return template_strings_pad(e, c->self.string, width, fill.string, side, out);
}
static bool m_ljust(struct eval *e, struct call *c, struct value *out)
{
    return pad(e, c, -1, out);
}
static bool m_rjust(struct eval *e, struct call *c, struct value *out)
{
    return pad(e, c, 1, out);
}
static bool m_center(struct eval *e, struct call *c, struct value *out)
{
    return pad(e, c, 0, out);
}

static bool m_zfill(struct eval *e, struct call *c, struct value *out)
{
    const struct tstring *s = c->self.string;
    struct tbuild b = {0};
    int64_t width;
    if (!template_ops_index(e, c->p[0], "a width", &width)) return false;
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    return tbuild_slice(e, &b, s, 0, sign) &&
           tbuild_repeat(e, &b, '0', width > (int64_t)s->chars ? (size_t)width - s->chars : 0) &&
           tbuild_slice(e, &b, s, sign, s->n) && tbuild_end(e, &b, out);
}

static bool m_expandtabs(struct eval *e, struct call *c, struct value *out)
{
    const struct tstring *s = c->self.string;
    struct tbuild b = {0};
    int64_t width = 8, column = 0;
    if (c->p[0].kind != V_MISSING && !template_ops_index(e, c->p[0], "a tab width", &width)) return false;
    for (size_t at = 0; at < s->n;) {
        size_t begin = at;
        uint32_t cp = template_unicode_next(value_str(c->self), &at);
        if (cp == '\t') {
            int64_t n = width > 0 ? width - column % width : 0;
            if (!tbuild_repeat(e, &b, ' ', (size_t)n)) return false;
            column += n;
            continue;
        }
        if (!tbuild_slice(e, &b, s, begin, at)) return false;
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
    return tbuild_end(e, &b, out);
}

/* --- character tests --- */

static bool all_chars(struct call *c, bool (*test)(uint32_t), bool empty, struct value *out)
{
    struct str text = value_str(c->self);
    bool all = text.n ? true : empty;
    for (size_t at = 0; all && at < text.n;) all = test(template_unicode_next(text, &at));
    *out = value_bool(all);
    return true;
}
static bool alnum(uint32_t cp)
{
    return template_unicode_alpha(cp) || template_unicode_numeric(cp);
}
static bool ascii(uint32_t cp)
{
    return cp < 128;
}
#define CHAR_TEST(name, test, empty)                                                    \
    static bool name(struct eval *e, struct call *c, struct value *out)                 \
    {                                                                                   \
        return template_charge(e, c->self.string->n) && all_chars(c, test, empty, out); \
    }
CHAR_TEST(m_isalpha, template_unicode_alpha, false)
CHAR_TEST(m_isdigit, template_unicode_digit, false)
CHAR_TEST(m_isdecimal, template_unicode_decimal, false)
CHAR_TEST(m_isnumeric, template_unicode_numeric, false)
CHAR_TEST(m_isalnum, alnum, false)
CHAR_TEST(m_isspace, template_unicode_space, false)
CHAR_TEST(m_isprintable, template_unicode_printable, true)
CHAR_TEST(m_isascii, ascii, true)

static bool m_islower(struct eval *e, struct call *c, struct value *out)
{
    *out = value_bool(template_strings_is_case(value_str(c->self), false));
    return template_charge(e, c->self.string->n);
}
static bool m_isupper(struct eval *e, struct call *c, struct value *out)
{
    *out = value_bool(template_strings_is_case(value_str(c->self), true));
    return template_charge(e, c->self.string->n);
}
static bool m_istitle(struct eval *e, struct call *c, struct value *out)
{
    struct str text = value_str(c->self);
    bool cased = false, after = false, ok = true;
    for (size_t at = 0; ok && at < text.n;) {
        uint32_t cp = template_unicode_next(text, &at);
        bool upper = template_unicode_upper(cp) || template_unicode_title(cp),
             lower = template_unicode_lower(cp);
        ok = !(upper && after) && !(lower && !after);
        after = upper || lower;
        cased |= after;
    }
    *out = value_bool(ok && cased);
    return template_charge(e, text.n);
}

/* --- lists, dicts, loops, cyclers --- */

static bool list_index(struct eval *e, struct call *c, struct value *out)
{
    int64_t from = 0, to = (int64_t)c->self.list->n, n = to;
    bool hit = false;
    if (c->p[1].kind != V_MISSING && !template_ops_index(e, c->p[1], "the start", &from)) return false;
    if (c->p[2].kind != V_MISSING && !template_ops_index(e, c->p[2], "the end", &to)) return false;
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to = to < -n ? 0 : to + n;
    for (int64_t i = from; i < ROSE_MIN(to, n); i++) {
        if (!template_charge(e, 0) || !template_value_equal(e, c->self.list->items[i], c->p[0], &hit))
            return false;
        if (hit) return *out = value_int(i), true;
    }
    return template_fail(e, "index: the value is not in the %s", template_value_type(c->self));
}
static bool list_count(struct eval *e, struct call *c, struct value *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self.list->n; i++) {
        bool hit;
        if (!template_charge(e, 0) || !template_value_equal(e, c->self.list->items[i], c->p[0], &hit))
            return false;
        n += hit;
    }
    *out = value_int(n);
    return true;
}
static bool copy(struct eval *e, struct call *c, struct value *out)
{
    (void)e;
    *out = c->self; /* nothing can change it */
    return true;
}

static bool dict_get(struct eval *e, struct call *c, struct value *out)
{
    struct value *found;
    if (!template_dict_get(e, c->self.dict, c->p[0], &found)) return false;
    *out = found ? *found : c->p[1].kind == V_MISSING ? value_of(V_NONE) : c->p[1];
    return true;
}
static bool dict_view(struct eval *e, struct call *c, int what, const char *name, struct value *out)
{
    const struct tdict *dict = c->self.dict;
    struct tlist *list = template_list_new(e, dict->n);
    if (!list) return false;
    list->view = name;
    for (size_t i = 0; i < dict->n; i++) {
        if (what < 2) {
            list->items[i] = what ? dict->entries[i].value : dict->entries[i].key;
            continue;
        }
        struct tlist *pair = template_list_new(e, 2);
        if (!pair) return false;
        pair->items[0] = dict->entries[i].key;
        pair->items[1] = dict->entries[i].value;
        list->items[i] = (struct value){.kind = V_TUPLE, .list = pair};
    }
    *out = (struct value){.kind = V_VIEW, .list = list};
    return true;
}
static bool dict_keys(struct eval *e, struct call *c, struct value *out)
{
    return dict_view(e, c, 0, "dict_keys", out);
}
static bool dict_values(struct eval *e, struct call *c, struct value *out)
{
    return dict_view(e, c, 1, "dict_values", out);
}
static bool dict_items(struct eval *e, struct call *c, struct value *out)
{
    return dict_view(e, c, 2, "dict_items", out);
}

static bool loop_cycle(struct eval *e, struct call *c, struct value *out)
{
    if (!c->args.npos || c->args.nkw)
        return template_fail(e, "loop.cycle needs at least one value, and no keywords");
    *out = c->args.pos[(size_t)c->self.loop->index0 % c->args.npos];
    return true;
}
static bool loop_changed(struct eval *e, struct call *c, struct value *out)
{
    struct tloop *loop = c->self.loop;
    struct value now;
    bool same = false;
    if (c->args.nkw) return template_fail(e, "loop.changed takes no keywords");
    if (!template_list_value(e, V_TUPLE, c->args.pos, c->args.npos, &now)) return false;
    if (loop->changed.kind == V_TUPLE && !template_value_equal(e, loop->changed, now, &same)) return false;
    if (!same) loop->changed = now;
    *out = value_bool(!same);
    return true;
}
static bool cycler_next(struct eval *e, struct call *c, struct value *out)
{
    (void)e;
    struct tcycler *cycler = c->self.cycler;
    *out = cycler->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->n;
    return true;
}
static bool cycler_reset(struct eval *e, struct call *c, struct value *out)
{
    (void)e;
    c->self.cycler->at = 0;
    *out = value_of(V_NONE);
    return true;
}
static bool float_is_integer(struct eval *e, struct call *c, struct value *out)
{
    (void)e;
    double d = c->self.number;
    *out = value_bool(d - d == 0 && d == __builtin_floor(d));
    return true;
}

static const struct callable string_methods[] = {
    {"capitalize", m_capitalize, "", 0},
    {"casefold", m_casefold, "", 0},
    {"center", m_center, "width fillchar", 1},
    {"count", m_count, "sub start end", 1},
    {"endswith", m_endswith, "suffix start end", 1},
    {"expandtabs", m_expandtabs, "tabsize", 0},
    {"find", m_find, "sub start end", 1},
    {"format", m_format, NULL, 0},
    {"index", m_index, "sub start end", 1},
    {"isalnum", m_isalnum, "", 0},
    {"isalpha", m_isalpha, "", 0},
    {"isascii", m_isascii, "", 0},
    {"isdecimal", m_isdecimal, "", 0},
    {"isdigit", m_isdigit, "", 0},
    {"islower", m_islower, "", 0},
    {"isnumeric", m_isnumeric, "", 0},
    {"isprintable", m_isprintable, "", 0},
    {"isspace", m_isspace, "", 0},
    {"istitle", m_istitle, "", 0},
    {"isupper", m_isupper, "", 0},
    {"join", m_join, "iterable", 1},
    {"ljust", m_ljust, "width fillchar", 1},
    {"lower", m_lower, "", 0},
    {"lstrip", m_lstrip, "chars", 0},
    {"partition", m_partition, "sep", 1},
    {"removeprefix", m_removeprefix, "prefix", 1},
    {"removesuffix", m_removesuffix, "suffix", 1},
    {"replace", m_replace, "old new count", 2},
    {"rfind", m_rfind, "sub start end", 1},
    {"rindex", m_rindex, "sub start end", 1},
    {"rjust", m_rjust, "width fillchar", 1},
    {"rpartition", m_rpartition, "sep", 1},
    {"rsplit", m_rsplit, "sep maxsplit", 0},
    {"rstrip", m_rstrip, "chars", 0},
    {"split", m_split, "sep maxsplit", 0},
    {"splitlines", m_splitlines, "keepends", 0},
    {"startswith", m_startswith, "prefix start end", 1},
    {"strip", m_strip, "chars", 0},
    {"swapcase", m_swapcase, "", 0},
    {"title", m_title, "", 0},
    {"upper", m_upper, "", 0},
    {"zfill", m_zfill, "width", 1},
};
static const struct callable list_methods[] = {
    {"index", list_index, "value start stop", 1}, {"count", list_count, "value", 1}, {"copy", copy, "", 0}};
static const struct callable dict_methods[] = {{"get", dict_get, "key default", 1},
                                               {"keys", dict_keys, "", 0},
                                               {"values", dict_values, "", 0},
                                               {"items", dict_items, "", 0},
                                               {"copy", copy, "", 0}};
static const struct callable loop_methods[] = {{"cycle", loop_cycle, NULL, 0},
                                               {"changed", loop_changed, NULL, 0}};
static const struct callable cycler_methods[] = {{"next", cycler_next, "", 0},
                                                 {"reset", cycler_reset, "", 0}};
static const struct callable float_methods[] = {{"is_integer", float_is_integer, "", 0}};

const struct callable *template_method(struct value self, struct str name)
{
    switch (self.kind) {
    case V_STRING: return template_callable_find(string_methods, ROSE_COUNT(string_methods), name);
    case V_LIST: return template_callable_find(list_methods, ROSE_COUNT(list_methods), name);
    case V_TUPLE:
    case V_RANGE: return self.kind == V_RANGE ? NULL : template_callable_find(list_methods, 2, name);
    case V_DICT: return template_callable_find(dict_methods, ROSE_COUNT(dict_methods), name);
    case V_LOOP: return template_callable_find(loop_methods, ROSE_COUNT(loop_methods), name);
    case V_CYCLER: return template_callable_find(cycler_methods, ROSE_COUNT(cycler_methods), name);
    case V_FLOAT: return template_callable_find(float_methods, ROSE_COUNT(float_methods), name);
    default: return NULL;
    }
}

bool template_method_mutates(struct value self, struct str name)
{
    static const char *const list_names[] = {"append", "clear", "pop",    "reverse",
                                             "insert", "sort",  "extend", "remove"};
    static const char *const dict_names[] = {"clear", "pop", "popitem", "setdefault", "update"};
    const char *const *names = self.kind == V_LIST ? list_names : dict_names;
    size_t n = self.kind == V_LIST   ? ROSE_COUNT(list_names)
               : self.kind == V_DICT ? ROSE_COUNT(dict_names)
                                     : 0;
    for (size_t i = 0; i < n; i++)
        if (str_is(name, names[i])) return true;
    return false;
}
