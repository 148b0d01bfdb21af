/* Where tokens lie in the text they come from.
 *
 * The encoder does not carry places through normalisation. They are found again: text and tokens' bytes, both without case, accents, compatibility forms and
 * spaces, are the same letters in the same order, but for unknown tokens, whose place is a word of what lies between their
 * neighbours.
 *
 *     text    H é l l o   w ö r l d s          letters, each with the bytes it comes from
 *             h e l l o   w o r l d s
 *     tokens  h e l l o | w o r l d | s        letters, each with its token
 */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

enum { SEARCH = 256 }; /* letters that an unknown token may cover */

/* A byte of a folded letter and the bytes [start, stop) of the letter that it comes from. */
struct folded {
    char *p;
    uint32_t *start, *stop;
    size_t n, cap;
};

static bool push(struct folded *f, char c, size_t start, size_t stop)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 256;
        char *p = realloc(f->p, cap);
        if (p) f->p = p;
        uint32_t *a = realloc(f->start, cap * sizeof *a);
        if (a) f->start = a;
        uint32_t *b = realloc(f->stop, cap * sizeof *b);
        if (b) f->stop = b;
        if (!p || !a || !b) return false;
        f->cap = cap;
    }
    f->p[f->n] = c;
    f->start[f->n] = (uint32_t)start;
    f->stop[f->n++] = (uint32_t)stop;
    return true;
}

static bool is_space(uint32_t cp) { return cp == 0x2581 || (unicode_record(cp) & (UC_SPACE | UC_RUST_SPACE)); }

/* BERT's normaliser and SentencePiece's drop control characters, NUL and U+FFFD; elsewhere they are letters like others. */
static bool drops(const struct tokenizer *t)
{
    for (size_t i = 0; i < t->normalizer_count; i++) {
        const struct normalizer_step *s = &t->normalizer[i];
        if ((s->kind == NORMALIZE_BERT && s->clean) || s->kind == NORMALIZE_NMT || s->kind == NORMALIZE_CHARSMAP) return true;
    }
    return false;
}

/* The letters of s; clean: without those that drops() speaks of. Two buffers that are reused. */
static bool fold(struct str s, bool clean, struct folded *f, struct strbuf *a, struct strbuf *b)
{
    for (size_t at = 0, n; at < s.n; at += n) {
        uint32_t cp;
        n = utf8_decode((struct str){s.p + at, s.n - at}, &cp);
        a->n = b->n = 0;
        if (cp == UTF8_INVALID) strbuf_adds(a, "\xEF\xBF\xBD");
        else unicode_normalize((struct str){s.p + at, n}, UNICODE_NFKD, a);
        unicode_lower(strbuf_str(a), b);
        a->n = 0;
        unicode_normalize(strbuf_str(b), UNICODE_NFKD, a); /* what lower case brought */
        if (a->failed || b->failed) return false;
        struct str rest = strbuf_str(a);
        while (rest.n) {
            size_t k = utf8_decode(rest, &cp);
            bool dropped = clean && ((unicode_record(cp) & UC_OTHER) || cp == 0 || cp == 0xFFFD);
            bool kept = !is_space(cp) && !(unicode_record(cp) & UC_COMBINING) && !dropped;
            for (size_t i = 0; kept && i < k; i++)
                if (!push(f, rest.p[i], at, at + n)) return false;
            rest = (struct str){rest.p + k, rest.n - k};
        }
    }
    return true;
}

/* The bytes of the tokens one after the other; at[i]: where those of token i begin, [n + 1]. */
static bool pieces(const struct tokenizer *t, const uint32_t *ids, size_t n, struct strbuf *out, size_t *at)
{
    for (size_t i = 0; i < n; i++) {
        at[i] = out->n;
        tokenizer_piece(t, ids[i], out);
    }
    at[n] = out->n;
    return !out->failed;
}

static bool same_at(const struct folded *text, size_t at, const struct folded *tokens, size_t from, size_t to)
{
    return to - from <= text->n - at && !memcmp(text->p + at, tokens->p + from, to - from);
}

/* The letters [from, to) of one token, which come at `*at` or, behind a token without a place, later. */
static bool place(const struct folded *text, const struct folded *tokens, size_t from, size_t to, bool search, size_t *at)
{
    size_t last = search ? ROSE_MIN(*at + SEARCH, text->n) : *at;
    for (size_t k = *at; k <= last && k <= text->n; k++)
        if (same_at(text, k, tokens, from, to)) return *at = k, true;
    return false;
}

/* Letters that stand for a word each (the blocks of BERT's basic tokenizer, and what is no letter or digit). */
static bool stands_alone(uint32_t cp)
{
    bool cjk = (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x20000 && cp <= 0x2CEAF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
    return cjk || (unicode_record(cp) & UC_PUNCT);
}

/* The next word of [*at, stop), or an empty place. */
static struct token_span next_word(struct str text, int64_t *at, int64_t stop)
{
    struct token_span w = {*at, *at};
    while (*at < stop) {
        uint32_t cp;
        size_t n = utf8_decode((struct str){text.p + *at, (size_t)(stop - *at)}, &cp);
        bool space = cp != UTF8_INVALID && is_space(cp), alone = cp != UTF8_INVALID && stands_alone(cp);
        if (w.start < w.stop && (space || alone)) break;
        *at += (int64_t)n;
        if (space) w.start = w.stop = *at;
        else w.stop = *at;
        if (alone) break;
    }
    return w;
}

/* Tokens [from, to) have no letters to be found by: they share what is between their neighbours, of which no two get the same. Unknown ones get a word each,
 * the last one what is left; where there is none, the first token gets all, or each a single letter that they may be bytes of. */
static void fill_gap(struct str text, const struct tokenizer *t, const uint32_t *ids, struct token_span *out, size_t from, size_t to, int64_t start, int64_t stop)
{
    int64_t unk = tokenizer_facts(t)->unk, at = start;
    size_t unknown = 0;
    stop = ROSE_MAX(start, stop);
    for (size_t i = from; i < to; i++) unknown += ids[i] == unk;
    bool words = unknown > 0;
    uint32_t cp;
    bool letter = start < stop && utf8_decode((struct str){text.p + start, (size_t)(stop - start)}, &cp) == (size_t)(stop - start);
    for (size_t i = from; i < to; i++) {
        if (ids[i] == unk) {
            out[i] = next_word(text, &at, stop);
            int64_t end = out[i].stop;
            for (unknown--; !unknown && at < stop;) {
                struct token_span more = next_word(text, &at, stop);
                if (more.start < more.stop) end = more.stop;
            }
            out[i].stop = end;
        } else {
            out[i] = (struct token_span){at, words ? at : stop};
            if (!words && !letter) at = stop;
        }
    }
}

/* The place of token i, whose letters are among [from, to) of the tokens' and lie at `at` of the text's. */
static struct token_span span_of(const struct folded *letters, const struct folded *tokens, const size_t *piece, size_t i, size_t from, size_t to, size_t at)
{
    size_t first = from, last = to;
    while (first < to && tokens->stop[first] <= piece[i]) first++;
    while (last > first && tokens->start[last - 1] >= piece[i + 1]) last--;
    if (first == last) return (struct token_span){letters->stop[at + to - from - 1], letters->stop[at + to - from - 1]};
    return (struct token_span){letters->start[at + first - from], letters->stop[at + last - 1 - from]};
}

static void align(struct str text, const struct tokenizer *t, const uint32_t *ids, size_t n, const struct folded *letters, const struct folded *tokens, const size_t *piece,
                  struct token_span *out)
{
    int64_t unk = tokenizer_facts(t)->unk, stop = 0;
    size_t at = 0, from = 0, to = 0, open = 0; /* letters of the text, of the tokens; the first token that has no place yet */
    for (size_t i = 0, next; i < n; i = next, from = to) {
        /* Tokens that are bytes of one letter go together. */
        next = i;
        do {
            next++;
            while (to < tokens->n && tokens->start[to] < piece[next]) to++;
        } while (next < n && to > from && tokens->stop[to - 1] > piece[next]);
        if (from == to || (ids[i] == unk && next == i + 1) || !place(letters, tokens, from, to, open < i, &at)) continue;
        fill_gap(text, t, ids, out, open, i, stop, letters->start[at]);
        for (size_t k = i; k < next; k++) out[k] = span_of(letters, tokens, piece, k, from, to, at);
        at += to - from;
        stop = letters->stop[at - 1];
        open = next;
    }
    fill_gap(text, t, ids, out, open, n, stop, (int64_t)text.n);
}

enum rose_status tokenizer_spans(const struct tokenizer *t, struct str text, const uint32_t *ids, size_t n, struct token_span *out, struct rose_error *err)
{
    struct folded letters = {0}, tokens = {0};
    struct strbuf bytes = {0}, a = {0}, b = {0};
    size_t *piece = malloc((n + 1) * sizeof *piece);
    bool clean = drops(t);
    bool ok = text.n < UINT32_MAX && piece && pieces(t, ids, n, &bytes, piece) && bytes.n < UINT32_MAX && fold(text, clean, &letters, &a, &b) &&
              fold(strbuf_str(&bytes), clean, &tokens, &a, &b);
    if (ok) align(text, t, ids, n, &letters, &tokens, piece, out);
    free(letters.p);
    free(letters.start);
    free(letters.stop);
    free(tokens.p);
    free(tokens.start);
    free(tokens.stop);
    free(piece);
    strbuf_free(&bytes);
    strbuf_free(&a);
    strbuf_free(&b);
    return ok ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
}
