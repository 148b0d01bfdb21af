#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* Pre-tokenization runs depth first: a step cuts its text and hands each piece to the next step at once, the
 * last one to the model. Nothing is collected, so a long text stays in the cache from the first step to the
 * last. */

struct cut { /* the state of one step's cutting: behaviours may hold a piece back to join it with the next */
    struct encoder *e;
    size_t step;
    struct str text;
    enum split_behavior behavior;
    bool at_start;
    bool previous; /* the piece before was a match */
    bool held;     /* [from, to) waits */
    size_t from, to;
};

static bool pass(struct cut *c, size_t from, size_t to)
{
    if (from == to) return true;
    return pretokenizer_run(c->e, c->step + 1, (struct str){c->text.p + from, to - from},
                            c->at_start && from == 0);
}

static bool release(struct cut *c)
{
    if (!c->held) return true;
    c->held = false;
    return pass(c, c->from, c->to);
}

/* The next stretch of the text, a match of the pattern or what lies between two. */
static bool cut_add(struct cut *c, size_t from, size_t to, bool match)
{
    bool join = false;
    switch (c->behavior) {
    case SPLIT_ISOLATED: return pass(c, from, to);
    case SPLIT_REMOVED: return match ? true : pass(c, from, to);
    case SPLIT_CONTIGUOUS: join = match == c->previous; break;
    case SPLIT_WITH_PREVIOUS: join = match && !c->previous; break;
    case SPLIT_WITH_NEXT: join = !match && c->previous; break;
    }
    c->previous = match;
    if (join && c->held) {
        c->to = to;
        return true;
    }
    if (!release(c)) return false;
    c->held = true, c->from = from, c->to = to;
    return true;
}

static bool cut_pattern(struct cut *c, const struct pretoken_step *p)
{
    struct encoder *e = c->e;
    struct str s = c->text;
    bool last_step = c->step + 1 == e->t->pretokenizer_count;
    if (p->pattern.covers && c->behavior == SPLIT_ISOLATED) {
        bool raw =
            last_step ||
            (c->step + 2 == e->t->pretokenizer_count && e->t->pretokenizer[c->step + 1].last &&
             !e->t->pretokenizer[c->step + 1].use_regex && !e->t->pretokenizer[c->step + 1].add_prefix_space);
        for (size_t i = 0, end; i < s.n; i = end) {
            end = p->pattern.scan(&p->pattern, (const uint8_t *)s.p, i, s.n);
            if (raw ? !model_word(e, (struct str){s.p + i, end - i}) : !pass(c, i, end)) return false;
        }
        return true;
    }
    size_t at = 0, from, to;
    bool failed = false;
    while (at < s.n && pattern_find(&p->pattern, &e->match[c->step], s, at, &from, &to, &failed)) {
        if (from > at && !cut_add(c, at, from, p->invert)) return false;
        if (!cut_add(c, from, to, !p->invert)) return false;
        at = to;
    }
    if (failed)
        return encoder_fail(e, ROSE_LIMIT, "the tokenizer's regular expression takes too long on this text");
    if (at < s.n && !cut_add(c, at, s.n, p->invert)) return false;
    return release(c);
}

/* Characters of a class (digits, punctuation, white space) or one delimiter are matches, each for itself. */
static bool cut_class(struct cut *c, const struct pretoken_step *p)
{
    const uint8_t *s = (const uint8_t *)c->text.p;
    size_t n = c->text.n, width, at = 0;
    bool ascii[128];
    for (uint32_t k = 0; k < 128; k++)
        ascii[k] = p->flag ? (unicode_record(k) & p->flag) != 0 : k == p->delimiter;
    for (size_t i = 0; i < n; i += width) {
        if (s[i] < 0x80) {
            width = 1;
            if (!ascii[s[i]]) continue;
        } else {
            uint32_t cp = unicode_next(s + i, &width);
            if (p->flag ? !(unicode_record(cp) & p->flag) : cp != p->delimiter) continue;
        }
        if (i > at && !cut_add(c, at, i, false)) return false;
        if (!cut_add(c, i, i + width, true)) return false;
        at = i + width;
    }
    if (at < n && !cut_add(c, at, n, false)) return false;
    return release(c);
}

/* \w+|[^\w\s]+ and nothing else */
static bool cut_whitespace(struct cut *c)
{
    const uint8_t *s = (const uint8_t *)c->text.p;
    size_t n = c->text.n, width, from = 0;
    int before = 0; /* 0 space, 1 word, 2 other */
    for (size_t i = 0; i <= n; i += width) {
        int now = 0;
        if (i < n) {
            uint32_t r = unicode_record(unicode_next(s + i, &width));
            now = r & UC_WORD ? 1 : r & UC_RUST_SPACE ? 0 : 2;
        } else {
            width = 1;
        }
        if (now == before && i < n) continue;
        if (before && !pass(c, from, i)) return false;
        from = i, before = now;
    }
    return true;
}

static bool cut_fixed(struct cut *c, size_t length)
{
    size_t width, from = 0, count = 0;
    for (size_t i = 0; i < c->text.n; i += width) {
        unicode_next((const uint8_t *)c->text.p + i, &width);
        if (++count < length && i + width < c->text.n) continue;
        if (!pass(c, from, i + width)) return false;
        from = i + width, count = 0;
    }
    return true;
}

static bool no_memory(struct encoder *e)
{
    return encoder_fail(e, ROSE_NO_MEMORY, "no memory for the text to be tokenised");
}

static bool byte_level(struct cut *c, const struct pretoken_step *p)
{
    static const struct pattern gpt2_unset = {0};
    struct encoder *e = c->e;
    struct strbuf *b = &e->level[c->step];
    if (p->add_prefix_space && c->text.p[0] != ' ') {
        b->n = 0;
        strbuf_addc(b, ' ');
        if (!strbuf_add(b, c->text.p, c->text.n)) return no_memory(e);
        c->text = strbuf_str(b);
    }
    if (p->last) { /* the words stay raw bytes */
        struct pretoken_step split = {.kind = PRETOKEN_SPLIT,
                                      .pattern = p->use_regex ? p->pattern : gpt2_unset};
        if (!p->use_regex) return pass(c, 0, c->text.n);
        return cut_pattern(c, &split);
    }
    /* Rare: other steps look at the mapped text. */
    const struct pattern *g = &p->pattern;
    size_t step = c->step;
    struct strbuf word = {0};
    bool ok = true;
    for (size_t i = 0, end; ok && i < c->text.n; i = end) {
        end = p->use_regex ? g->scan(g, (const uint8_t *)c->text.p, i, c->text.n) : c->text.n;
        word.n = 0;
        alphabet_encode((struct str){c->text.p + i, end - i}, &word);
        ok = word.failed ? no_memory(e)
                         : pretokenizer_run(e, step + 1, strbuf_str(&word), c->at_start && i == 0);
    }
    strbuf_free(&word);
    return ok;
}

static bool metaspace(struct cut *c, const struct pretoken_step *p)
{
    struct encoder *e = c->e;
    struct strbuf *b = &e->level[c->step];
    struct str s = c->text, mark = p->replacement;
    b->n = 0;
    if (s.p[0] != ' ' && !str_starts(s, mark) &&
        (p->prepend == PREPEND_ALWAYS || (p->prepend == PREPEND_FIRST && c->at_start)))
        strbuf_add(b, mark.p, mark.n);
    for (size_t i = 0, from = 0; i <= s.n; i++) {
        if (i < s.n && s.p[i] != ' ') continue;
        strbuf_add(b, s.p + from, i - from);
        if (i < s.n) strbuf_add(b, mark.p, mark.n);
        from = i + 1;
    }
    if (b->failed) return no_memory(e);
    c->text = strbuf_str(b);
    if (!p->split) return pass(c, 0, c->text.n);
    struct pretoken_step split = {.kind = PRETOKEN_SPLIT};
    pattern_literal(&split.pattern, mark);
    c->behavior = SPLIT_WITH_NEXT;
    return cut_pattern(c, &split);
}

bool pretokenizer_run(struct encoder *e, size_t step, struct str text, bool at_start)
{
    if (!text.n) return true;
    if (step >= e->t->pretokenizer_count) return model_word(e, text);
    const struct pretoken_step *p = &e->t->pretokenizer[step];
    struct cut c = {.e = e, .step = step, .text = text, .behavior = p->behavior, .at_start = at_start};
    switch (p->kind) {
    case PRETOKEN_SPLIT: return cut_pattern(&c, p);
    case PRETOKEN_CLASS: return cut_class(&c, p);
    case PRETOKEN_BYTE_LEVEL: return byte_level(&c, p);
    case PRETOKEN_METASPACE: return metaspace(&c, p);
    case PRETOKEN_WHITESPACE: return cut_whitespace(&c);
    case PRETOKEN_FIXED: return cut_fixed(&c, p->length);
    }
    return true;
}
