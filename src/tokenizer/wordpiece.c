#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* WordPiece: the longest token at the start of the word, then the longest continuation, and so on; a word
 * that does not come out even is unknown as a whole. WordLevel: the word is a token or unknown. */

static uint32_t plain(const struct encoder *e, const char *p, size_t n)
{
    const struct tokenizer *t = e->t;
    bool parse = (e->flags & TOKENIZER_PARSE_SPECIAL) && !e->untrusted_count;
    uint32_t id = vocab_get(&t->vocab, p, n);
    return id != TOKEN_NONE && (t->id_flags[id] & ID_SPECIAL) && id != t->unk && !parse ? TOKEN_NONE : id;
}

static bool unknown(struct encoder *e)
{
    if (e->t->unk == TOKEN_NONE)
        return encoder_fail(
            e, ROSE_INVALID,
            "the text has a word that the vocabulary lacks, and the tokenizer has no unknown token");
    return encoder_emit(e, e->t->unk);
}

bool wordpiece_word(struct encoder *e, struct str w)
{
    const struct tokenizer *t = e->t;
    if (t->model == MODEL_WORDLEVEL) {
        uint32_t id = plain(e, w.p, w.n);
        return id == TOKEN_NONE ? unknown(e) : encoder_emit(e, id);
    }
    if (unicode_count(w) > t->max_chars) return unknown(e);
    size_t before = e->out->n;
    struct strbuf *b = &e->word;
    for (size_t start = 0; start < w.n;) {
        /* The candidate stands in the buffer, behind the prefix; no token is longer than max_token. */
        struct str rest = {w.p + start, ROSE_MIN(w.n - start, t->max_token)};
        while (start + rest.n < w.n && rest.n && ((uint8_t)rest.p[rest.n] & 0xC0) == 0x80) rest.n--;
        b->n = 0;
        struct str mark = start ? t->prefix : t->first_prefix;
        strbuf_add(b, mark.p, mark.n);
        size_t prefix = b->n;
        if (!strbuf_add(b, rest.p, rest.n) && rest.n)
            return encoder_fail(e, ROSE_NO_MEMORY, "no memory for a long word");
        size_t n = rest.n, width;
        uint32_t id = TOKEN_NONE;
        for (; n; n -= width) {
            if ((id = plain(e, b->p, prefix + n)) != TOKEN_NONE) break;
            unicode_last((struct str){rest.p, n}, &width);
        }
        if (id == TOKEN_NONE) {
            e->out->n = before;
            return unknown(e);
        }
        if (!encoder_emit(e, id)) return false;
        start += n;
    }
    return true;
}
