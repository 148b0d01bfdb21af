/* The filter wordwrap: lines of at most width characters, broken at spaces, after hyphens inside words and
 * before dashes, as Python's textwrap module breaks them. */
#include "tokenizer/template_internal.h"

#include "tokenizer/template_strings.h"

/* The characters of a line: code points and byte offsets (one more than characters). */
struct line {
    const struct tstring *s;
    uint32_t *cp;
    size_t *at;
    size_t n;
};
/* Characters [begin, end). */
struct chunk {
    size_t begin, end;
};

static bool is_space(const struct line *x, size_t i)
{
    return x->cp[i] == ' ' || (x->cp[i] >= 9 && x->cp[i] <= 13);
}
static bool is_word(const struct line *x, size_t i)
{
    uint32_t c = x->cp[i];
    return c == '_' || template_unicode_alpha(c) || template_unicode_numeric(c);
}
static bool is_letter(const struct line *x, size_t i)
{
    return i < x->n && is_word(x, i) && !template_unicode_decimal(x->cp[i]);
}
static bool is_word_or_mark(const struct line *x, size_t i)
{
    return is_word(x, i) || (x->cp[i] < 128 && x->cp[i] && strchr("!\"'&.,?", (int)x->cp[i]));
}

/* The end of two or more hyphens at i that a word follows, or 0. */
static size_t dash_end(const struct line *x, size_t i)
{
    size_t end = i;
    while (end < x->n && x->cp[end] == '-') end++;
    return end >= i + 2 && end < x->n && is_word(x, end) ? end : 0;
}

/* May the line break after the hyphen at i? */
static bool hyphen_breaks(const struct line *x, size_t i)
{
    bool before = i >= 2 && is_letter(x, i - 1) &&
                  (is_letter(x, i - 2) || (i >= 3 && x->cp[i - 2] == '-' && is_letter(x, i - 3)));
    return before && is_letter(x, i + 1) &&
           (is_letter(x, i + 2) || (i + 2 < x->n && x->cp[i + 2] == '-' && is_letter(x, i + 3)));
}

static size_t chunk_end(const struct line *x, size_t i, bool hyphens)
{
    size_t end = i + 1;
    if (is_space(x, i)) {
        while (end < x->n && is_space(x, end)) end++;
        return end;
    }
    if (hyphens && i && is_word_or_mark(x, i - 1) && dash_end(x, i)) return dash_end(x, i);
    for (; end < x->n && !is_space(x, end); end++) {
        if (!hyphens) continue;
        if (x->cp[end] == '-' && hyphen_breaks(x, end)) return end + 1;
        if (is_word_or_mark(x, end - 1) && x->cp[end] == '-' && dash_end(x, end)) return end;
    }
    return end;
}

static bool read_line(struct eval *e, const struct tstring *s, struct line *x)
{
    *x = (struct line){.s = s, .n = s->chars};
    x->cp = template_array(e, s->chars, sizeof *x->cp);
    x->at = template_array(e, s->chars + 1, sizeof *x->at);
    if (!x->cp || !x->at || !template_charge(e, s->n * 8)) return false;
    size_t at = 0;
    for (size_t i = 0; i < s->chars; i++) {
        x->at[i] = at;
        x->cp[i] = template_unicode_next((struct str){s->p, s->n}, &at);
    }
    x->at[s->chars] = at;
    return true;
}

static bool blank(const struct line *x, struct chunk c)
{
    for (size_t i = c.begin; i < c.end; i++)
        if (!template_unicode_space(x->cp[i])) return false;
    return true;
}

struct wrapping {
    int64_t width;
    bool break_words, hyphens;
    const struct tstring *newline;
};

/* Where a chunk longer than the room is cut: after a hyphen within the room, if there is one behind other
 * text. */
static size_t long_cut(const struct line *x, struct chunk c, size_t room, bool hyphens)
{
    size_t end = c.begin + room;
    if (hyphens && c.end - c.begin > room) {
        size_t hyphen = end;
        while (hyphen > c.begin && x->cp[hyphen - 1] != '-') hyphen--;
        for (size_t i = c.begin; hyphen > c.begin + 1 && i < hyphen - 1; i++)
            if (x->cp[i] != '-') return hyphen;
    }
    return end;
}

static bool wrap_line(struct eval *e, struct tbuild *b, const struct line *x, const struct wrapping *w)
{
    size_t n = 0, k = 0;
    struct chunk *chunks = template_array(e, x->n, sizeof *chunks);
    bool first = true;
    if (!chunks) return false;
    for (size_t i = 0; i < x->n; i = chunks[n++].end)
        chunks[n] = (struct chunk){i, chunk_end(x, i, w->hyphens)};
    while (k < n) {
        size_t length = 0, begin;
        if (!first && blank(x, chunks[k])) k++;
        begin = k;
        size_t from = k < n ? chunks[k].begin : 0, to = from;
        while (k < n && (int64_t)(length + chunks[k].end - chunks[k].begin) <= w->width) {
            length += chunks[k].end - chunks[k].begin;
            to = chunks[k++].end;
        }
        if (k < n && (int64_t)(chunks[k].end - chunks[k].begin) > w->width) {
            size_t room = w->width < 1 ? 1 : (size_t)w->width - length;
            if (w->break_words) {
                size_t cut = long_cut(x, chunks[k], room, w->hyphens);
                to = cut;
                chunks[k].begin = cut;
                length += 1;
            } else if (k == begin) {
                to = chunks[k++].end;
                length = 1;
            }
        }
        size_t last = k; /* blanks at the end of a line go */
        if (to > from && last > begin && chunks[last - 1].end == to && blank(x, chunks[last - 1]))
            to = chunks[last - 1].begin;
        if (!template_charge(e, 0)) return false;
        if (to == from) continue;
        if (!first && !tbuild_string(e, b, w->newline)) return false;
        if (!tbuild_slice(e, b, x->s, x->at[from], x->at[to])) return false;
        first = false;
    }
    return true;
}

bool template_wrap(struct eval *e, struct call *call, struct value *out)
{
    struct wrapping w = {.width = 79, .break_words = true, .hyphens = true};
    struct value newline = call->p[2];
    struct tlist *lines;
    struct tbuild b = {0};
    if (call->self.kind != V_STRING)
        return template_fail(e, "wordwrap needs a string, not a value of type '%s'",
                             template_value_type(call->self));
    if (call->p[0].kind != V_MISSING && !template_ops_index(e, call->p[0], "the width of wordwrap", &w.width))
        return false;
    if (w.width <= 0) return template_fail(e, "the width of wordwrap must be positive");
    if (call->p[1].kind != V_MISSING) w.break_words = template_value_truth(call->p[1]);
    if (call->p[3].kind != V_MISSING) w.hyphens = template_value_truth(call->p[3]);
    if (newline.kind != V_STRING && !template_string_literal(e, "\n", &newline)) return false;
    w.newline = newline.string;
    if (!template_strings_lines(e, call->self.string, false, &lines)) return false;
    for (size_t i = 0; i < lines->n; i++) {
        struct line x;
        if (i && !tbuild_string(e, &b, w.newline)) return false;
        if (!read_line(e, lines->items[i].string, &x) || !wrap_line(e, &b, &x, &w)) return false;
    }
    return tbuild_end(e, &b, out);
}
