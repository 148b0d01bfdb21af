#include <math.h>
#include <stdlib.h>

#include "base/stop.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* Unigram (Kudo 2018, https://arxiv.org/abs/1804.10959): the segmentation of the highest sum of scores, by
 * Viterbi over the positions. Which tokens begin at a position is asked length by length; a filter over the
 * hashes of all beginnings ends the search early. A character that no token covers counts as unknown at a
 * penalty. */

static const double UNKNOWN_PENALTY = 10.0;
static const uint64_t STEP = 0x9E3779B97F4A7C15ull;

static inline uint64_t extend(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)p[i]) * STEP, h ^= h >> 32;
    return h;
}

bool unigram_prepare(struct tokenizer *t)
{
    size_t total = 0, bits = 1 << 12;
    for (size_t i = 0; i < t->vocab.size; i++) total += unicode_count(t->vocab.tokens[i]);
    while (bits < total * 8 && bits < 1u << 27) bits *= 2;
    t->beginnings = ARENA_ARRAY(&t->arena, uint64_t, bits / 64);
    if (!t->beginnings) return false;
    t->beginnings_mask = (uint32_t)bits - 1;
    t->min_score = INFINITY;
    for (size_t i = 0; i < t->vocab.size; i++) {
        struct str s = t->vocab.tokens[i];
        if (!s.p) continue;
        if (t->scores[i] < t->min_score) t->min_score = t->scores[i];
        uint64_t h = 0;
        for (size_t k = 0, n; k < s.n; k += n) {
            unicode_next((const uint8_t *)s.p + k, &n);
            h = extend(h, s.p + k, n);
            uint32_t bit = (uint32_t)(h >> 16) & t->beginnings_mask;
            t->beginnings[bit / 64] |= 1ull << bit % 64;
        }
    }
    return true;
}

static bool no_unknown(struct encoder *e)
{
    return encoder_fail(
        e, ROSE_INVALID,
        "the text has a word that the vocabulary lacks, and the tokenizer has no unknown token");
}

/* A run of unknown characters: as a token after all, as bytes, or unknown. */
static bool emit_unknown(struct encoder *e, struct str s)
{
    const struct tokenizer *t = e->t;
    uint32_t id = vocab_get(&t->vocab, s.p, s.n);
    uint8_t flags = id == TOKEN_NONE ? ID_UNUSED : t->id_flags[id];
    if (!(flags & ID_UNUSED) && (!(flags & ID_SPECIAL) || id == t->unk)) return encoder_emit(e, id);
    bool bytes = t->byte_fallback;
    for (size_t i = 0; i < s.n && bytes; i++) bytes = t->fallback_ids[(uint8_t)s.p[i]] != TOKEN_NONE;
    if (!bytes) return encoder_emit(e, t->unk);
    for (size_t i = 0; i < s.n; i++)
        if (!encoder_emit(e, t->fallback_ids[(uint8_t)s.p[i]])) return false;
    return true;
}

/* Fill e->best: how each position is best reached. */
static bool forward(struct encoder *e, struct str w)
{
    const struct tokenizer *t = e->t;
    struct best *best = e->best;
    /* Text that is to be plain never becomes a control token; elsewhere these were found before the model. */
    bool open = (e->flags & TOKENIZER_PARSE_SPECIAL) && !e->untrusted_count;
    best[0] = (struct best){0, 0, 0};
    for (size_t i = 1; i <= w.n; i++) best[i].start = TOKEN_NONE;
    for (size_t at = 0, width; at < w.n; at += width) {
        unicode_next((const uint8_t *)w.p + at, &width);
        if (stop_asked_at(at) || (width > 1 && stop_asked())) return !encoder_stopped(e);
        bool single = false;
        uint64_t h = 0;
        for (size_t end = at, n; end < w.n && end - at < t->max_token;) {
            unicode_next((const uint8_t *)w.p + end, &n);
            h = extend(h, w.p + end, n);
            end += n;
            uint32_t bit = (uint32_t)(h >> 16) & t->beginnings_mask;
            if (!(t->beginnings[bit / 64] >> bit % 64 & 1)) break;
            uint32_t id = vocab_get(&t->vocab, w.p + at, end - at);
            if (id == TOKEN_NONE || (t->id_flags[id] & ID_UNUSED)) continue;
            if ((t->id_flags[id] & ID_SPECIAL) && id != t->unk && !open) continue;
            double score = t->scores[id] + best[at].score;
            if (best[end].start == TOKEN_NONE || score > best[end].score)
                best[end] = (struct best){score, (uint32_t)at, id};
            if (end - at == width) single = true;
        }
        if (single) continue;
        double score = t->min_score - UNKNOWN_PENALTY + best[at].score;
        struct best *b = &best[at + width];
        if (b->start != TOKEN_NONE && !(score > b->score)) continue;
        if (t->unk == TOKEN_NONE) return no_unknown(e);
        *b = (struct best){score, (uint32_t)at, t->unk};
    }
    return true;
}

bool unigram_word(struct encoder *e, struct str w)
{
    const struct tokenizer *t = e->t;
    if (w.n + 1 > e->best_cap) {
        size_t cap = ROSE_MAX(w.n + 1, 2 * e->best_cap);
        struct best *more = realloc(e->best, cap * sizeof *more);
        if (!more) return encoder_fail(e, ROSE_NO_MEMORY, "no memory for a long word");
        e->best = more, e->best_cap = cap;
    }
    if (!forward(e, w)) return false;
    /* Turn the chain of best predecessors round: each position then names its successor in `start`. */
    struct best *best = e->best;
    uint32_t next = (uint32_t)w.n;
    for (uint32_t at = next; at;) {
        uint32_t from = best[at].start;
        best[at].start = next; /* where the piece that begins at `at` ends; meaningless at the end */
        next = at, at = from;
    }
    best[0].start = next;
    for (uint32_t at = 0; at < w.n;) {
        uint32_t end = best[at].start;
        if (best[end].id != t->unk || t->unk == TOKEN_NONE) {
            if (!encoder_emit(e, best[end].id)) return false;
            at = end;
            continue;
        }
        uint32_t from = at;
        while (at < w.n && best[best[at].start].id == t->unk) at = best[at].start;
        if (!emit_unknown(e, (struct str){w.p + from, at - from})) return false;
    }
    return true;
}
