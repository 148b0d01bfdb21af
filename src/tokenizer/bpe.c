#include <stdlib.h>

#include "base/stop.h"
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* Byte pair encoding (Sennrich et al. 2016, https://arxiv.org/abs/1508.07909): a word starts as characters
 * (or bytes), and the adjacent pair of the lowest rank merges, the leftmost of equals, until none is left.
 * Short words look for the best pair in a row of ranks; longer ones keep the candidates in a heap over a
 * linked list, O(n log n). Words met before come from a table of one cache line an entry. */

static const uint64_t masks[9] = {0,
                                  0xFF,
                                  0xFFFF,
                                  0xFFFFFF,
                                  0xFFFFFFFF,
                                  0xFFFFFFFFFF,
                                  0xFFFFFFFFFFFF,
                                  0xFFFFFFFFFFFFFF,
                                  0xFFFFFFFFFFFFFFFF};

static inline void load_key(struct str w, uint64_t key[3])
{
    key[0] = key[1] = key[2] = 0;
    const char *p = w.p;
    size_t n = w.n;
    if (n >= 8) {
        memcpy(&key[0], p, 8);
        if (n >= 16) {
            memcpy(&key[1], p + 8, 8);
            /* the last eight bytes, shifted so that only those from 16 on remain */
            if (n > 16) {
                uint64_t v;
                memcpy(&v, p + n - 8, 8);
                key[2] = n == 24 ? v : v >> (8 * (24 - n));
            }
        } else if (n > 8) {
            uint64_t v;
            memcpy(&v, p + n - 8, 8);
            key[1] = v >> (8 * (16 - n));
        }
        return;
    }
    if (n >= 4) {
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        key[0] = (a | (uint64_t)b << (8 * (n - 4))) & masks[n];
        return;
    }
    key[0] = ((uint8_t)p[0] | (uint64_t)(uint8_t)p[n / 2] << (8 * (n / 2)) |
              (uint64_t)(uint8_t)p[n - 1] << (8 * (n - 1))) &
             masks[n];
}

static inline size_t key_slot(const uint64_t key[3], size_t n)
{
    uint64_t h = (key[0] ^ n) * 0x9E3779B97F4A7C15ull;
    h = (h ^ h >> 32 ^ key[1]) * 0xD6E8FEB86659FD93ull;
    if (key[2]) h = (h ^ h >> 32 ^ key[2]) * 0xA0761D6478BD642Full;
    return (h >> 40) & (WORD_SLOTS - 1);
}

static bool no_memory(struct encoder *e)
{
    return encoder_fail(e, ROSE_NO_MEMORY, "no memory for a long word");
}

static bool grow(void **p, size_t *cap, size_t want, size_t size)
{
    if (want <= *cap) return true;
    size_t more = *cap ? *cap : 64;
    while (more < want) more *= 2;
    void *q = realloc(*p, more * size);
    if (!q) return false;
    *p = q, *cap = more;
    return true;
}

struct builder { /* the symbols of a word under construction */
    struct encoder *e;
    size_t n;
    bool has_unknown; /* an unknown character waits to be fused with the next */
    uint32_t unknown_length;
};

static void put(struct builder *b, uint32_t id, uint32_t length)
{
    b->e->symbols[b->n] = (struct symbol){id, length, (int32_t)b->n - 1, (int32_t)b->n + 1};
    b->n++;
}

static void put_unknown(struct builder *b)
{
    if (b->has_unknown) put(b, b->e->t->unk, b->unknown_length);
    b->has_unknown = false;
}

static void unknown(struct builder *b, struct str s, uint32_t length)
{
    const struct tokenizer *t = b->e->t;
    if (t->byte_fallback) {
        bool all = true;
        for (size_t i = 0; i < s.n && all; i++) all = t->fallback_ids[(uint8_t)s.p[i]] != TOKEN_NONE;
        if (all) { /* an unknown that waits stays behind these bytes, as in the reference */
            for (size_t i = 0; i < s.n; i++) put(b, t->fallback_ids[(uint8_t)s.p[i]], 1);
            return;
        }
    }
    if (t->unk == TOKEN_NONE) return;
    if (b->has_unknown && t->fuse_unk) {
        b->unknown_length += length;
        return;
    }
    put_unknown(b);
    b->has_unknown = true, b->unknown_length = length;
}

/* Fill e->symbols with the word's characters; the count, or SIZE_MAX without memory. */
static size_t split_characters(struct encoder *e, struct str w)
{
    const struct tokenizer *t = e->t;
    /* Suffix and prefix bytes may fall back to byte tokens too. */
    size_t most = w.n * (1 + (t->byte_fallback ? t->prefix.n : 0)) + t->suffix.n + 1;
    if (w.n > INT32_MAX / 2 || most > INT32_MAX - 16) return SIZE_MAX;
    if (!grow((void **)&e->symbols, &e->symbol_cap, most, sizeof *e->symbols)) return SIZE_MAX;
    struct builder b = {.e = e};
    if (t->byte_level) {
        for (size_t i = 0; i < w.n; i++) {
            uint32_t id = t->byte_ids[(uint8_t)w.p[i]];
            if (id != TOKEN_NONE)
                put_unknown(&b), put(&b, id, 1);
            else {
                char letter[4];
                size_t n = utf8_encode(alphabet_of((uint8_t)w.p[i]), letter);
                unknown(&b, (struct str){letter, n}, (uint32_t)n);
            }
        }
        put_unknown(&b);
        return b.n;
    }
    for (size_t i = 0, width; i < w.n; i += width) {
        unicode_next((const uint8_t *)w.p + i, &width);
        struct str s = {w.p + i, width};
        bool first = i == 0, last = i + width == w.n;
        if ((!first && t->prefix.n) || (last && t->suffix.n)) {
            struct strbuf *text = &e->word;
            text->n = 0;
            if (!first) strbuf_add(text, t->prefix.p, t->prefix.n);
            strbuf_add(text, s.p, s.n);
            if (last) strbuf_add(text, t->suffix.p, t->suffix.n);
            if (text->failed) return SIZE_MAX;
            s = strbuf_str(text);
        }
        uint32_t id = vocab_get(&t->vocab, s.p, s.n);
        if (id != TOKEN_NONE || t->by_score)
            put_unknown(&b), put(&b, id, (uint32_t)width);
        else
            unknown(&b, s, (uint32_t)width);
    }
    put_unknown(&b);
    return b.n;
}

/* What two neighbours become. text is where the left one's bytes begin; only score-ordered models look at it.
 */
static inline bool lookup(const struct tokenizer *t, uint32_t left, uint32_t right, const char *text,
                          size_t length, uint32_t *rank, uint32_t *id)
{
    if (t->by_score) {
        uint32_t found = vocab_get(&t->vocab, text, length);
        if (found == TOKEN_NONE || (t->id_flags[found] & (ID_BYTE | ID_ADDED | ID_UNUSED))) return false;
        /* higher scores first: flip the bits of the float so that its order is that of integers, descending
         */
        union {
            float f;
            uint32_t u;
        } v = {(float)t->scores[found]};
        *rank = v.u & 0x80000000u ? v.u : ~v.u & 0x7FFFFFFFu;
        *id = found;
        return true;
    }
    const struct pair_slot *s = pairs_get(&t->pairs, left, right);
    if (!s) return false;
    *rank = s->rank, *id = s->id;
    return true;
}

static void sift_up(struct merge *h, size_t i)
{
    struct merge m = h[i];
    for (size_t up; i && h[up = (i - 1) / 4].order > m.order; i = up) h[i] = h[up];
    h[i] = m;
}

static void sift_down(struct merge *h, size_t n, size_t i)
{
    struct merge m = h[i];
    for (;;) {
        size_t c = 4 * i + 1, least = c, end = c + 4 < n ? c + 4 : n;
        if (c >= n) break;
        for (size_t k = c + 1; k < end; k++)
            if (h[k].order < h[least].order) least = k;
        if (h[least].order >= m.order) break;
        h[i] = h[least];
        i = least;
    }
    h[i] = m;
}

struct merger {
    struct encoder *e;
    const char *text;  /* the word */
    uint32_t *offsets; /* by symbol: where its bytes begin; only for score-ordered models */
    size_t heap;
};

static inline bool try_pair(struct merger *m, int32_t left, uint32_t *rank, uint32_t *id)
{
    struct symbol *s = m->e->symbols;
    const struct symbol *a = &s[left], *b = &s[a->next];
    const char *text = m->offsets ? m->text + m->offsets[left] : NULL;
    return lookup(m->e->t, a->id, b->id, text, (size_t)a->length + b->length, rank, id);
}

static bool push(struct merger *m, int32_t left)
{
    uint32_t rank, id;
    if (!try_pair(m, left, &rank, &id)) return true;
    struct encoder *e = m->e;
    if (!grow((void **)&e->heap, &e->heap_cap, m->heap + 1, sizeof *e->heap)) return false;
    e->heap[m->heap] = (struct merge){(uint64_t)rank << 32 | (uint32_t)left, id};
    sift_up(e->heap, m->heap++);
    return true;
}

/* Merge the n symbols by heap; dead ones get length 0. */
static bool merge_long(struct merger *m, size_t n)
{
    struct encoder *e = m->e;
    struct symbol *s = e->symbols;
    for (size_t i = 0; i + 1 < n; i++)
        if ((stop_asked_at(i) && encoder_stopped(e)) || !push(m, (int32_t)i)) return false;
    for (size_t turn = 0; m->heap; turn++) {
        if (stop_asked_at(turn)) return !encoder_stopped(e);
        struct merge top = e->heap[0];
        e->heap[0] = e->heap[--m->heap];
        if (m->heap) sift_down(e->heap, m->heap, 0);
        int32_t left = (int32_t)(uint32_t)top.order;
        uint32_t rank, id;
        if (!s[left].length || s[left].next < 0) continue;
        if (!try_pair(m, left, &rank, &id) || id != top.id) continue; /* a neighbour changed meanwhile */
        int32_t right = s[left].next;
        s[left].id = id;
        s[left].length += s[right].length;
        s[right].length = 0;
        s[left].next = s[right].next;
        if (s[left].next >= 0) s[s[left].next].prev = left;
        if (s[left].prev >= 0 && !push(m, s[left].prev)) return false;
        if (s[left].next >= 0 && !push(m, left)) return false;
    }
    return true;
}

enum { SHORT_WORD = 32 };

/* Merge few symbols in place: rank[i] is that of the pair (i, i + 1). Returns the new count. */
static size_t merge_short(const struct tokenizer *t, struct symbol *s, size_t n)
{
    uint32_t rank[SHORT_WORD], id[SHORT_WORD], ids[SHORT_WORD];
    for (size_t i = 0; i < n; i++) ids[i] = s[i].id;
    for (size_t i = 0; i + 1 < n; i++)
        if (!lookup(t, ids[i], ids[i + 1], NULL, 0, &rank[i], &id[i])) rank[i] = UINT32_MAX;
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        ids[best] = id[best];
        n--;
        for (size_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (size_t i = best; i + 1 < n; i++) rank[i] = rank[i + 1], id[i] = id[i + 1];
        if (best && !lookup(t, ids[best - 1], ids[best], NULL, 0, &rank[best - 1], &id[best - 1]))
            rank[best - 1] = UINT32_MAX;
        if (best + 1 < n && !lookup(t, ids[best], ids[best + 1], NULL, 0, &rank[best], &id[best]))
            rank[best] = UINT32_MAX;
    }
    for (size_t i = 0; i < n; i++) s[i].id = ids[i];
    return n;
}

/* SentencePiece looks for unknown characters after merging: they become their bytes, or one unknown token a
 * run. */
static bool expand_unknown(struct encoder *e, struct str w, const uint32_t *offsets, size_t n, size_t *count)
{
    const struct tokenizer *t = e->t;
    uint32_t *ids = malloc(w.n * sizeof *ids + 1);
    if (!ids) return false;
    size_t kept = 0;
    bool unknown_before = false;
    for (size_t i = 0; i < n; i++) {
        const struct symbol *s = &e->symbols[i];
        if (!s->length) continue;
        bool known = s->id != TOKEN_NONE, bytes = t->byte_fallback && !known;
        for (uint32_t k = 0; k < s->length && bytes; k++)
            bytes = t->fallback_ids[(uint8_t)w.p[offsets[i] + k]] != TOKEN_NONE;
        if (known) ids[kept++] = s->id;
        for (uint32_t k = 0; k < s->length && bytes; k++)
            ids[kept++] = t->fallback_ids[(uint8_t)w.p[offsets[i] + k]];
        if (!known && !bytes && !unknown_before && t->unk != TOKEN_NONE) ids[kept++] = t->unk;
        unknown_before = !known && !bytes;
    }
    for (size_t i = 0; i < kept; i++) e->symbols[i].id = ids[i];
    free(ids);
    *count = kept;
    return true;
}

/* The symbols after all merges, in e->symbols[0..count). */
static bool merge_word(struct encoder *e, struct str w, size_t *count)
{
    const struct tokenizer *t = e->t;
    size_t n = split_characters(e, w);
    if (n == SIZE_MAX) return no_memory(e);
    if (n <= SHORT_WORD && !t->by_score) {
        *count = n > 1 ? merge_short(t, e->symbols, n) : n;
        return true;
    }
    struct merger m = {.e = e, .text = w.p};
    if (n) e->symbols[n - 1].next = -1;
    if (t->by_score) {
        m.offsets = malloc(n * sizeof *m.offsets + 1);
        if (!m.offsets) return no_memory(e);
        uint32_t at = 0;
        for (size_t i = 0; i < n; i++) m.offsets[i] = at, at += e->symbols[i].length;
    }
    bool ok = merge_long(&m, n);
    size_t kept = 0;
    if (ok && t->by_score) {
        ok = expand_unknown(e, w, m.offsets, n, &kept);
    } else if (ok) {
        for (size_t i = 0; i < n; i++)
            if (e->symbols[i].length) e->symbols[kept++].id = e->symbols[i].id;
    }
    free(m.offsets);
    *count = kept;
    return ok || no_memory(e);
}

static uint32_t whole_word(struct encoder *e, struct str w)
{
    const struct tokenizer *t = e->t;
    if (w.n > t->max_token) return TOKEN_NONE;
    if (t->byte_level) {
        e->word.n = 0;
        alphabet_encode(w, &e->word);
        if (e->word.failed) return TOKEN_NONE;
        w = strbuf_str(&e->word);
    }
    uint32_t id = vocab_get(&t->vocab, w.p, w.n);
    return id != TOKEN_NONE && (t->id_flags[id] & ID_SPECIAL) ? TOKEN_NONE
                                                              : id; /* plain text is no control token */
}

static bool encode_word(struct encoder *e, struct str w, struct word_entry *entry)
{
    const struct tokenizer *t = e->t;
    size_t n = 1;
    uint32_t whole = t->ignore_merges ? whole_word(e, w) : TOKEN_NONE;
    if (whole == TOKEN_NONE) {
        if (!merge_word(e, w, &n)) return false;
        if (!encoder_room(e, n)) return false;
        for (size_t i = 0; i < n; i++) e->out->p[e->out->n + i] = e->symbols[i].id;
    } else {
        if (!encoder_room(e, 1)) return false;
        e->out->p[e->out->n] = whole;
    }
    if (entry && n <= WORD_IDS) {
        load_key(w, entry->key);
        entry->length = (uint8_t)w.n;
        entry->count = (uint8_t)n;
        memcpy(entry->ids, e->out->p + e->out->n, n * sizeof *entry->ids);
    }
    e->out->n += n;
    return true;
}

bool bpe_word(struct encoder *e, struct str w)
{
    if (w.n > WORD_MAX) return encode_word(e, w, NULL);
    uint64_t key[3];
    load_key(w, key);
    struct word_entry *entry = &e->words[key_slot(key, w.n)];
    if (entry->length != w.n || entry->key[0] != key[0] || entry->key[1] != key[1] || entry->key[2] != key[2])
        return encode_word(e, w, entry);
    struct token_ids *out = e->out;
    if (out->cap - out->n < WORD_IDS || out->limit) {
        if (!encoder_room(e, entry->count)) return false;
        memcpy(out->p + out->n, entry->ids, entry->count * sizeof *entry->ids);
    } else {
        memcpy(out->p + out->n, entry->ids, sizeof entry->ids); /* a fixed size is one wide copy */
    }
    out->n += entry->count;
    return true;
}

bool bpe_split_merge(struct str merge, struct str *left, struct str *right)
{
    if (!merge.n) return false;
    const char *space =
        memchr(merge.p + 1, ' ', merge.n - 1); /* a token may begin with a space, never be one */
    if (!space) return false;
    *left = (struct str){merge.p, (size_t)(space - merge.p)};
    *right = (struct str){space + 1, merge.n - left->n - 1};
    return right->n > 0;
}
