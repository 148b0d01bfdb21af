#include <stdlib.h>

#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* Added tokens are found before the model sees the text: leftmost first, of those the longest. The tokens are
 * kept sorted; a candidate narrows the range of tokens that share its beginning, byte by byte. */

static int by_match(const void *a, const void *b)
{
    const struct added_token *x = *(const struct added_token *const *)a,
                             *y = *(const struct added_token *const *)b;
    size_t n = ROSE_MIN(x->match.n, y->match.n);
    int c = n ? memcmp(x->match.p, y->match.p, n) : 0;
    if (c) return c;
    return x->match.n < y->match.n ? -1 : x->match.n > y->match.n;
}

static void index_set(struct added_set *set)
{
    if (set->count) qsort(set->sorted, set->count, sizeof *set->sorted, by_match);
    uint32_t at = 0;
    int firsts = 0;
    for (int b = 0; b < 256; b++) {
        set->first[b] = at;
        while (at < set->count && (uint8_t)set->sorted[at]->match.p[0] == b) at++;
        if (at > set->first[b]) set->only = (uint8_t)b, firsts++;
    }
    set->first[256] = at;
    set->one_first = firsts == 1;
}

bool added_build(struct tokenizer *t, struct rose_error *err)
{
    struct added_set *sets[3] = {&t->raw, &t->normal, &t->raw_all};
    for (int k = 0; k < 3; k++) {
        sets[k]->sorted = ARENA_ARRAY(&t->arena, const struct added_token *, t->added_count + 1);
        if (!sets[k]->sorted) return status_set(err, ROSE_NO_MEMORY, "no memory for the added tokens"), false;
    }
    for (size_t i = 0; i < t->added_count; i++) {
        const struct added_token *a = &t->added[i];
        if (a->normalized && a->special) t->normal_has_special = true;
        struct added_set *set = a->normalized ? &t->normal : &t->raw;
        if (a->match.n) set->sorted[set->count++] = a;
        if (!a->normalized) t->raw_all.sorted[t->raw_all.count++] = a;
    }
    if (t->normal_has_special)
        for (size_t i = 0; i < t->added_count; i++)
            if (t->added[i].normalized && t->added[i].special) {
                struct added_token *copy = ARENA_NEW(&t->arena, struct added_token);
                if (!copy) return status_set(err, ROSE_NO_MEMORY, "no memory for the added tokens"), false;
                *copy = t->added[i];
                copy->match = copy->text;
                t->raw_all.sorted[t->raw_all.count++] = copy;
            }
    for (int k = 0; k < 3; k++) index_set(sets[k]);
    return true;
}

/* The longest token of the set that text has at position i and that may stand there; NULL for none. */
static const struct added_token *longest_at(const struct encoder *e, const struct added_set *set,
                                            struct str text, size_t i, size_t trusted_to)
{
    uint32_t lo = set->first[(uint8_t)text.p[i]], hi = set->first[(uint8_t)text.p[i] + 1];
    const struct added_token *found = NULL;
    (void)e;
    for (size_t depth = 1; lo < hi; depth++) {
        const struct added_token *a = set->sorted[lo];
        if (a->match.n == depth) {
            if (!a->special || i + depth <= trusted_to) found = a;
            while (lo < hi && set->sorted[lo]->match.n == depth) lo++;
        }
        if (lo == hi || i + depth >= text.n) break;
        uint8_t c = (uint8_t)text.p[i + depth];
        if (hi - lo == 1) { /* only one token left: compare the rest */
            a = set->sorted[lo];
            if (a->match.n <= text.n - i &&
                !memcmp(a->match.p + depth, text.p + i + depth, a->match.n - depth) &&
                (!a->special || i + a->match.n <= trusted_to))
                found = a;
            break;
        }
        uint32_t from = lo, to = hi;
        while (from < to) {
            uint32_t mid = (from + to) / 2;
            if ((uint8_t)set->sorted[mid]->match.p[depth] < c)
                from = mid + 1;
            else
                to = mid;
        }
        lo = from, to = hi;
        while (from < to) {
            uint32_t mid = (from + to) / 2;
            if ((uint8_t)set->sorted[mid]->match.p[depth] <= c)
                from = mid + 1;
            else
                to = mid;
        }
        hi = from;
    }
    return found;
}

static bool stands_alone(const struct str text, size_t from, size_t to)
{
    size_t n;
    if (from > 0 && (unicode_record(unicode_last((struct str){text.p, from}, &n)) & UC_WORD)) return false;
    return to == text.n || !(unicode_record(unicode_next((const uint8_t *)text.p + to, &n)) & UC_WORD);
}

static size_t skip_space(struct str text, size_t at)
{
    size_t n;
    while (at < text.n && (unicode_record(unicode_next((const uint8_t *)text.p + at, &n)) & UC_RUST_SPACE))
        at += n;
    return at;
}

static size_t skip_space_back(struct str text, size_t at, size_t from)
{
    size_t n;
    while (at > from && (unicode_record(unicode_last((struct str){text.p, at}, &n)) & UC_RUST_SPACE)) at -= n;
    return at;
}

typedef bool between(struct encoder *e, struct str piece, size_t offset);

/* How far the trusted stretch that holds position i reaches; i itself when i is not trusted. */
static size_t trusted_end(const struct encoder *e, size_t *next, size_t i, size_t n)
{
    while (*next < e->untrusted_count && e->untrusted[*next].to <= i) (*next)++;
    if (*next == e->untrusted_count) return n;
    return e->untrusted[*next].from <= i ? i : e->untrusted[*next].from;
}

/* Cut text at the tokens of a set: emit their ids, hand what lies between to rest. ranges: the text is the
 * one that the untrusted ranges speak of. */
static bool cut(struct encoder *e, const struct added_set *set, struct str text, bool ranges, between *rest)
{
    size_t done = 0, range = 0;
    bool parse = e->flags & TOKENIZER_PARSE_SPECIAL;
    for (size_t i = 0; set->count && i < text.n;) {
        if (set->one_first) {
            const char *at = memchr(text.p + i, set->only, text.n - i);
            if (!at) break;
            i = (size_t)(at - text.p);
        } else if (set->first[(uint8_t)text.p[i]] == set->first[(uint8_t)text.p[i] + 1]) {
            i++;
            continue;
        }
        size_t trusted = ranges && e->untrusted_count ? trusted_end(e, &range, i, text.n) : text.n;
        const struct added_token *a = longest_at(e, set, text, i, trusted);
        if (!a) {
            i++;
            continue;
        }
        size_t from = i, to = i + a->match.n;
        i = to;
        if (a->special && !parse) continue;
        if (a->single_word && !stands_alone(text, from, to)) continue;
        /* A match may begin before `done`, when the one before took the spaces it consists of. */
        if (a->lstrip && from > done) from = skip_space_back(text, from, done);
        if (a->rstrip) to = skip_space(text, ROSE_MAX(to, done));
        if (done < from && !rest(e, (struct str){text.p + done, from - done}, done)) return false;
        if (!encoder_emit(e, a->id)) return false;
        done = to;
    }
    return done >= text.n || rest(e, (struct str){text.p + done, text.n - done}, done);
}

static bool after_normal_start(struct encoder *e, struct str piece, size_t offset)
{
    return pretokenizer_run(e, 0, piece, offset == 0 && e->kept_start);
}

static bool after_raw(struct encoder *e, struct str piece, size_t offset)
{
    struct str text = piece;
    e->kept_start = true;
    if (e->t->normalizer_count && !normalizer_run(e, piece, &text)) return false;
    if (offset) e->kept_start = false;
    if (!e->t->normal.count) return pretokenizer_run(e, 0, text, e->kept_start);
    /* In texts of mixed trust the special ones were found in the raw text, where the trust is known. */
    unsigned flags = e->flags;
    if (e->untrusted_count) e->flags &= ~(unsigned)TOKENIZER_PARSE_SPECIAL;
    bool ok = cut(e, &e->t->normal, text, false, after_normal_start);
    e->flags = flags;
    return ok;
}

bool added_run(struct encoder *e, struct str text)
{
    const struct tokenizer *t = e->t;
    return cut(e, e->untrusted_count && t->normal_has_special ? &t->raw_all : &t->raw, text, true, after_raw);
}
