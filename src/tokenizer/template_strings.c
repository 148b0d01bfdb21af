/* Operations on strings that methods and filters share, with Python's meaning. */
#include "tokenizer/template_strings.h"

#include "base/utf8.h"

/* --- case --- */

/* A capital sigma at the end of a word becomes a final one: a cased letter before it, none after it. */
static uint32_t lower_sigma(struct str text, size_t at, size_t next)
{
    bool before = false, after = false;
    for (size_t i = at; i > 0 && !before;) {
        size_t begin = i - 1;
        while (begin && ((unsigned char)text.p[begin] & 0xC0) == 0x80) begin--;
        i = begin;
        uint32_t cp = template_unicode_next(text, &begin);
        if (template_unicode_case_ignorable(cp)) continue;
        before = template_unicode_cased(cp);
        if (!before) break;
    }
    while (before && next < text.n) {
        uint32_t cp = template_unicode_next(text, &next);
        if (template_unicode_case_ignorable(cp)) continue;
        after = template_unicode_cased(cp);
        break;
    }
    return before && !after ? 0x3C2 : 0x3C3;
}

static int to_lower(struct str text, size_t at, size_t next, uint32_t cp, uint32_t out[3])
{
    if (cp != 0x3A3) return template_unicode_to_lower(cp, out);
    out[0] = lower_sigma(text, at, next);
    return 1;
}

bool template_strings_case(struct eval *e, const struct tstring *s, enum string_case to, struct value *out)
{
    struct str text = {s->p, s->n};
    struct tbuild b = {0};
    bool trusted = template_string_all_trusted(s), cased = false;
    for (size_t at = 0; at < s->n;) {
        size_t begin = at;
        uint32_t cp = template_unicode_next(text, &at), cps[3];
        enum string_case one = to;
        if (to == CASE_TITLE) one = cased ? CASE_LOWER : CASE_TITLE;
        if (to == CASE_CAPITAL) one = begin ? CASE_LOWER : CASE_TITLE;
        if (to == CASE_SWAP)
            one = template_unicode_upper(cp)   ? CASE_LOWER
                  : template_unicode_lower(cp) ? CASE_UPPER
                                               : CASE_SWAP;
        int n = 1;
        cps[0] = cp;
        if (one == CASE_UPPER)
            n = template_unicode_to_upper(cp, cps);
        else if (one == CASE_LOWER)
            n = to_lower(text, begin, at, cp, cps);
        else if (one == CASE_TITLE)
            n = template_unicode_to_title(cp, cps);
        else if (one == CASE_FOLD)
            n = template_unicode_to_fold(cp, cps);
        char bytes[12];
        size_t size = 0;
        for (int i = 0; i < n; i++) size += utf8_encode(cps[i], bytes + size);
        if (!tbuild_add(e, &b, bytes, size, trusted)) return false;
        if (to == CASE_TITLE)
            cased = template_unicode_lower(cp) || template_unicode_upper(cp) || template_unicode_title(cp);
    }
    if (!tbuild_end(e, &b, out)) return false;
    out->string->markup = s->markup;
    return true;
}

bool template_strings_is_case(struct str text, bool upper)
{
    bool cased = false;
    for (size_t at = 0; at < text.n;) {
        uint32_t cp = template_unicode_next(text, &at);
        bool is_upper = template_unicode_upper(cp), is_lower = template_unicode_lower(cp);
        if ((upper ? is_lower : is_upper) || template_unicode_title(cp)) return false;
        cased |= upper ? is_upper : is_lower;
    }
    return cased;
}

/* --- cutting --- */

static bool in_chars(const struct tstring *chars, uint32_t cp)
{
    if (!chars) return template_unicode_space(cp);
    for (size_t at = 0; at < chars->n;)
        if (template_unicode_next((struct str){chars->p, chars->n}, &at) == cp) return true;
    return false;
}

/* Begin of the character that ends at end. */
static size_t char_before(const struct tstring *s, size_t end)
{
    end--;
    while (end && ((unsigned char)s->p[end] & 0xC0) == 0x80) end--;
    return end;
}

bool template_strings_strip(struct eval *e, const struct tstring *s, const struct tstring *chars, bool left,
                            bool right, struct value *out)
{
    struct str text = {s->p, s->n};
    size_t begin = 0, end = s->n;
    while (left && begin < end) {
        size_t next = begin;
        if (!template_charge(e, chars ? chars->n : 0)) return false;
        if (!in_chars(chars, template_unicode_next(text, &next))) break;
        begin = next;
    }
    while (right && end > begin) {
        size_t at = char_before(s, end), next = at;
        if (!template_charge(e, chars ? chars->n : 0)) return false;
        if (!in_chars(chars, template_unicode_next(text, &next))) break;
        end = at;
    }
    return template_string_slice(e, s, begin, end, out);
}

bool template_strings_replace(struct eval *e, const struct tstring *s, const struct tstring *old,
                              const struct tstring *new, int64_t count, struct value *out)
{
    struct str text = {s->p, s->n}, needle = {old->p, old->n};
    struct tbuild b = {0};
    size_t at = 0;
    if (!template_charge(e, s->n)) return false;
    if (!needle.n) { /* between all characters, and at both ends */
        for (bool first = true; count; first = false, count -= count > 0) {
            if (!first) {
                if (at == s->n) break;
                size_t begin = at;
                template_unicode_next(text, &at);
                if (!tbuild_slice(e, &b, s, begin, at)) return false;
            }
            if (!tbuild_string(e, &b, new)) return false;
        }
    }
    for (; needle.n && count; count -= count > 0) {
        ptrdiff_t hit = str_find(text, needle, at);
        if (hit < 0) break;
        if (!tbuild_slice(e, &b, s, at, (size_t)hit) || !tbuild_string(e, &b, new)) return false;
        at = (size_t)hit + needle.n;
    }
    if (!tbuild_slice(e, &b, s, at, s->n) || !tbuild_end(e, &b, out)) return false;
    out->string->markup = s->markup;
    return true;
}

/* A growing list of parts. */
struct parts {
    struct value *items;
    size_t n, cap;
};

static bool add_part(struct eval *e, struct parts *parts, const struct tstring *s, size_t begin, size_t end)
{
    if (parts->n == parts->cap) {
        size_t cap = parts->cap ? parts->cap * 2 : 8;
        struct value *items = template_array(e, cap, sizeof *items);
        if (!items) return false;
        if (parts->n) memcpy(items, parts->items, parts->n * sizeof *items);
        parts->items = items;
        parts->cap = cap;
    }
    return template_charge(e, 0) && template_string_slice(e, s, begin, end, &parts->items[parts->n++]);
}

static void reverse(struct parts *parts)
{
    for (size_t i = 0; i < parts->n / 2; i++) {
        struct value swap = parts->items[i];
        parts->items[i] = parts->items[parts->n - 1 - i];
        parts->items[parts->n - 1 - i] = swap;
    }
}

bool template_strings_split(struct eval *e, const struct tstring *s, const struct tstring *sep, int64_t max,
                            bool right, struct value *out)
{
    struct str text = {s->p, s->n}, needle = {sep->p, sep->n};
    struct parts parts = {0};
    if (!template_charge(e, right && s->n ? s->n * (1 + sep->n / 16) : s->n)) return false;
    if (!right) {
        size_t at = 0;
        for (ptrdiff_t hit; max && (hit = str_find(text, needle, at)) >= 0; max -= max > 0) {
            if (!add_part(e, &parts, s, at, (size_t)hit)) return false;
            at = (size_t)hit + needle.n;
        }
        if (!add_part(e, &parts, s, at, s->n)) return false;
    } else {
        size_t end = s->n;
        for (size_t i = s->n; max && i >= needle.n;) {
            if (memcmp(s->p + i - needle.n, needle.p, needle.n)) {
                i--;
                continue;
            }
            if (!add_part(e, &parts, s, i, end)) return false;
            i = end = i - needle.n;
            max -= max > 0;
        }
        if (!add_part(e, &parts, s, 0, end)) return false;
        reverse(&parts);
    }
    return template_list_value(e, V_LIST, parts.items, parts.n, out);
}

static bool space_at(const struct tstring *s, size_t at, size_t *next)
{
    *next = at;
    return template_unicode_space(template_unicode_next((struct str){s->p, s->n}, next));
}

static bool split_space_left(struct eval *e, const struct tstring *s, int64_t max, struct parts *parts)
{
    size_t at = 0, next;
    for (;;) {
        while (at < s->n && space_at(s, at, &next)) at = next;
        if (at == s->n) return true;
        size_t begin = at;
        if (!max) return add_part(e, parts, s, begin, s->n);
        while (at < s->n && !space_at(s, at, &next)) at = next;
        if (!add_part(e, parts, s, begin, at)) return false;
        max -= max > 0;
    }
}

static bool split_space_right(struct eval *e, const struct tstring *s, int64_t max, struct parts *parts)
{
    size_t end = s->n, next;
    for (;;) {
        while (end && space_at(s, char_before(s, end), &next)) end = char_before(s, end);
        if (!end) break;
        if (!max) {
            if (!add_part(e, parts, s, 0, end)) return false;
            break;
        }
        size_t at = end;
        while (at && !space_at(s, char_before(s, at), &next)) at = char_before(s, at);
        if (!add_part(e, parts, s, at, end)) return false;
        end = at;
        max -= max > 0;
    }
    reverse(parts);
    return true;
}

bool template_strings_split_space(struct eval *e, const struct tstring *s, int64_t max, bool right,
                                  struct value *out)
{
    struct parts parts = {0};
    if (!template_charge(e, s->n * 4)) return false;
    if (!(right ? split_space_right(e, s, max, &parts) : split_space_left(e, s, max, &parts))) return false;
    return template_list_value(e, V_LIST, parts.items, parts.n, out);
}

static bool line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool template_strings_lines(struct eval *e, const struct tstring *s, bool keep_ends, struct tlist **out)
{
    struct str text = {s->p, s->n};
    struct parts parts = {0};
    struct value list;
    size_t begin = 0;
    if (!template_charge(e, s->n)) return false;
    for (size_t at = 0; at < s->n;) {
        size_t end = at;
        uint32_t cp = template_unicode_next(text, &at);
        if (!line_end(cp)) continue;
        if (cp == '\r' && at < s->n && s->p[at] == '\n') at++;
        if (!add_part(e, &parts, s, begin, keep_ends ? at : end)) return false;
        begin = at;
    }
    if (begin < s->n && !add_part(e, &parts, s, begin, s->n)) return false;
    if (!template_list_value(e, V_LIST, parts.items, parts.n, &list)) return false;
    *out = list.list;
    return true;
}

static bool fill_with(struct eval *e, struct tbuild *b, const struct tstring *fill, size_t n)
{
    if (fill->n == 1 && template_string_all_trusted(fill)) return tbuild_repeat(e, b, fill->p[0], n);
    for (size_t i = 0; i < n; i++)
        if (!tbuild_string(e, b, fill)) return false;
    return true;
}

bool template_strings_pad(struct eval *e, const struct tstring *s, int64_t width, const struct tstring *fill,
                          int side, struct value *out)
{
    struct tbuild b = {0};
    size_t total = width > (int64_t)s->chars ? (size_t)width - s->chars : 0, left = side < 0 ? 0 : total;
    if (side == 0) left = total / 2 + (total & (size_t)width & 1); /* as CPython rounds */
    return fill_with(e, &b, fill, left) && tbuild_string(e, &b, s) && fill_with(e, &b, fill, total - left) &&
           tbuild_end(e, &b, out);
}
