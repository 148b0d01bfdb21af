#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* Normalisers turn the text between control tokens into the text that the model was trained on, a step at a
 * time from one buffer to the other. */

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* Drop the characters whose record has a flag. */
static bool drop(struct str s, uint32_t flag, struct strbuf *out)
{
    bool first = false;
    for (size_t i = 0, n; i < s.n; i += n) {
        uint32_t cp = unicode_next((const uint8_t *)s.p + i, &n);
        if (!(unicode_record(cp) & flag))
            strbuf_add(out, s.p + i, n);
        else if (i == 0)
            first = true;
    }
    return first;
}

/* BertNormalizer's parts. clean: white space becomes a space, control characters go. */
static bool bert_clean(struct str s, struct strbuf *out)
{
    bool first = false;
    for (size_t i = 0, n; i < s.n; i += n) {
        uint32_t cp = unicode_next((const uint8_t *)s.p + i, &n), r = unicode_record(cp);
        if (cp == 0 || cp == 0xFFFD || (r & UC_OTHER))
            first |= i == 0;
        else if (r & UC_RUST_SPACE)
            strbuf_addc(out, ' ');
        else
            strbuf_add(out, s.p + i, n);
    }
    return first;
}

static void bert_chinese(struct str s, struct strbuf *out)
{
    for (size_t i = 0, n; i < s.n; i += n) {
        bool spaced = is_chinese(unicode_next((const uint8_t *)s.p + i, &n));
        if (spaced) strbuf_addc(out, ' ');
        strbuf_add(out, s.p + i, n);
        if (spaced) strbuf_addc(out, ' ');
    }
}

/* The text is in in; the parts swap it between the two buffers. Returns the buffer that holds the result. */
static struct str bert(struct encoder *e, const struct normalizer_step *p, struct str in,
                       struct strbuf **free_buf, struct strbuf **other)
{
    struct strbuf *out = *free_buf, *spare = *other;
#define NEXT()                      \
    do {                            \
        in = strbuf_str(out);       \
        struct strbuf *swap_ = out; \
        out = spare, spare = swap_; \
        out->n = 0;                 \
    } while (0)
    out->n = 0;
    if (p->clean) {
        if (bert_clean(in, out)) e->kept_start = false;
        NEXT();
    }
    if (p->chinese) {
        bert_chinese(in, out);
        NEXT();
    }
    if (p->accents) {
        unicode_normalize(in, UNICODE_NFD, out);
        NEXT();
        drop(in, UC_MARK, out);
        NEXT();
    }
    if (p->lower) {
        unicode_lower(in, out);
        NEXT();
    }
#undef NEXT
    *free_buf = out, *other = spare;
    return in;
}

static struct str strip(struct encoder *e, struct str s, bool left, bool right)
{
    size_t n;
    while (left && s.n && (unicode_record(unicode_next((const uint8_t *)s.p, &n)) & UC_RUST_SPACE))
        s.p += n, s.n -= n, e->kept_start = false;
    while (right && s.n && (unicode_record(unicode_last(s, &n)) & UC_RUST_SPACE)) s.n -= n;
    return s;
}

static bool nmt(struct str s, struct strbuf *out)
{
    bool first = false;
    for (size_t i = 0, n; i < s.n; i += n) {
        uint32_t c = unicode_next((const uint8_t *)s.p + i, &n);
        if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
            first |= i == 0;
        else if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                 c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
            strbuf_addc(out, ' ');
        else
            strbuf_add(out, s.p + i, n);
    }
    return first;
}

static bool replace(struct encoder *e, const struct normalizer_step *p, struct str s, struct strbuf *out)
{
    size_t at = 0, from, to;
    bool failed = false;
    while (at < s.n && pattern_find(&p->pattern, &e->norm_match, s, at, &from, &to, &failed)) {
        strbuf_add(out, s.p + at, from - at);
        strbuf_add(out, p->content.p, p->content.n);
        if (from == 0 && !p->content.n) e->kept_start = false;
        at = to;
    }
    if (failed)
        return encoder_fail(e, ROSE_LIMIT, "the normaliser's regular expression takes too long on this text");
    strbuf_add(out, s.p + at, s.n - at);
    return true;
}

/* SentencePiece's: no spaces at the ends, single ones between. */
static void single_spaces(struct str s, struct strbuf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == ' ' && (!out->n || out->p[out->n - 1] == ' ')) continue;
        strbuf_addc(out, s.p[i]);
    }
    while (out->n && out->p[out->n - 1] == ' ') out->n--;
}

/* --- SentencePiece's compiled rules: a double array over byte strings, values are offsets of NUL-terminated
 * targets -------- */

enum rose_status charsmap_read(struct normalizer_step *step, struct str blob, struct rose_error *err)
{
    uint32_t bytes = 0;
    if (blob.n >= 4)
        bytes = (uint8_t)blob.p[0] | (uint32_t)(uint8_t)blob.p[1] << 8 | (uint32_t)(uint8_t)blob.p[2] << 16 |
                (uint32_t)(uint8_t)blob.p[3] << 24;
    if (blob.n < 4 || bytes % 4 || bytes > blob.n - 4)
        return status_set(err, ROSE_FORMAT, "precompiled_charsmap of %zu bytes says that its table has %u",
                          blob.n, bytes);
    step->trie = (const uint32_t *)(const void *)(blob.p + 4); /* read through memcpy: it may lie anywhere */
    step->trie_size = bytes / 4;
    step->targets = (struct str){blob.p + 4 + bytes, blob.n - 4 - bytes};
    return ROSE_OK;
}

static uint32_t unit(const struct normalizer_step *p, size_t i)
{
    uint32_t v;
    memcpy(&v, (const char *)p->trie + 4 * i, 4);
    return v;
}

/* A unit of the double array (darts-clone): has_leaf bit 8, label bits 0-7 and 31, offset bits 10-30 shifted
 * by bit 9. */
static uint32_t unit_offset(uint32_t u)
{
    return (u >> 10) << ((u & (1u << 9)) >> 6);
}

/* The replacement of the shortest (or longest) prefix of s that has one, and that prefix's length; false for
 * none. */
static bool charsmap_find(const struct normalizer_step *p, struct str s, bool longest, struct str *to,
                          size_t *length)
{
    bool found = false;
    if (!p->trie_size) return false;
    size_t node = unit_offset(unit(p, 0));
    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        if (!c) break;
        node ^= c;
        if (node >= p->trie_size) break;
        uint32_t u = unit(p, node);
        if ((u & ((1u << 31) | 0xFF)) != c) break;
        node ^= unit_offset(u);
        if (!(u >> 8 & 1)) continue;
        if (node >= p->trie_size) break;
        uint32_t at = unit(p, node) & 0x7FFFFFFF;
        if (at >= p->targets.n) break;
        const char *end = memchr(p->targets.p + at, 0, p->targets.n - at);
        *to = (struct str){p->targets.p + at, end ? (size_t)(end - p->targets.p) - at : p->targets.n - at};
        *length = i + 1;
        found = true;
        if (!longest) break;
    }
    return found;
}

/* SentencePiece's own way: the longest rule at each position, else the character. */
static void charsmap_longest(const struct normalizer_step *p, struct str s, struct strbuf *out)
{
    struct str to;
    for (size_t i = 0, n; i < s.n; i += n) {
        if (charsmap_find(p, (struct str){s.p + i, s.n - i}, true, &to, &n)) {
            strbuf_add(out, to.p, to.n);
            continue;
        }
        unicode_next((const uint8_t *)s.p + i, &n);
        strbuf_add(out, s.p + i, n);
    }
}

/* As `tokenizers` does it: grapheme clusters of less than six bytes by their first rule, else each character.
 */
static void charsmap(const struct normalizer_step *p, struct str s, struct strbuf *out)
{
    struct str to;
    size_t length;
    for (size_t i = 0, n; i < s.n; i += n) {
        if ((uint8_t)s.p[i] >= 0x20 && (uint8_t)s.p[i] < 0x7F && (i + 1 == s.n || (uint8_t)s.p[i + 1] < 0x80))
            n = 1;
        else
            n = unicode_grapheme((struct str){s.p + i, s.n - i});
        struct str g = {s.p + i, n};
        if (n < 6 && charsmap_find(p, g, false, &to, &length)) {
            strbuf_add(out, to.p, to.n);
            continue;
        }
        for (size_t k = 0, w; k < n; k += w) {
            unicode_next((const uint8_t *)g.p + k, &w);
            struct str c = {g.p + k, w};
            if (charsmap_find(p, c, false, &to, &length))
                strbuf_add(out, to.p, to.n);
            else
                strbuf_add(out, c.p, c.n);
        }
    }
}

bool normalizer_run(struct encoder *e, struct str in, struct str *result)
{
    struct strbuf *out = &e->norm[0], *spare = &e->norm[1];
    for (size_t i = 0; i < e->t->normalizer_count && in.n; i++) {
        const struct normalizer_step *p = &e->t->normalizer[i];
        out->n = 0;
        switch (p->kind) {
        case NORMALIZE_FORM:
            if (unicode_is_ascii(in)) continue;
            unicode_normalize(in, (enum unicode_form)p->form, out);
            break;
        case NORMALIZE_LOWER: unicode_lower(in, out); break;
        case NORMALIZE_STRIP_ACCENTS:
            if (unicode_is_ascii(in)) continue;
            if (drop(in, UC_COMBINING, out)) e->kept_start = false;
            break;
        case NORMALIZE_STRIP: in = strip(e, in, p->left, p->right); continue;
        case NORMALIZE_REPLACE:
            if (!replace(e, p, in, out)) return false;
            break;
        case NORMALIZE_PREPEND:
            strbuf_add(out, p->content.p, p->content.n);
            strbuf_add(out, in.p, in.n);
            break;
        case NORMALIZE_BERT: in = bert(e, p, in, &out, &spare); continue;
        case NORMALIZE_NMT:
            if (nmt(in, out)) e->kept_start = false;
            break;
        case NORMALIZE_CHARSMAP:
            if (p->longest)
                charsmap_longest(p, in, out);
            else
                charsmap(p, in, out);
            break;
        case NORMALIZE_BYTE_LEVEL: alphabet_encode(in, out); break;
        case NORMALIZE_SPACES: single_spaces(in, out); break;
        }
        in = strbuf_str(out);
        struct strbuf *swap = out;
        out = spare, spare = swap;
    }
    if (e->norm[0].failed || e->norm[1].failed)
        return encoder_fail(e, ROSE_NO_MEMORY, "no memory for the normalised text");
    *result = in;
    return true;
}
