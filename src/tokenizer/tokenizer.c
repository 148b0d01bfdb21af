#include "tokenizer/tokenizer.h"

#include <stdlib.h>

#include "base/stop.h"
#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* --- ids
 * -----------------------------------------------------------------------------------------------------------------
 */

void token_ids_free(struct token_ids *ids)
{
    free(ids->p);
    *ids = (struct token_ids){.limit = ids->limit};
}

static bool ids_reserve(struct token_ids *ids, size_t more)
{
    if (ids->cap - ids->n >= more) return true;
    if (more > SIZE_MAX / 16 - ids->n) return false;
    size_t cap = ids->cap ? ids->cap * 2 : 256;
    if (cap < ids->n + more) cap = ids->n + more;
    uint32_t *p = realloc(ids->p, cap * sizeof *p);
    if (!p) return false;
    ids->p = p, ids->cap = cap;
    return true;
}

bool token_ids_add(struct token_ids *ids, uint32_t id)
{
    if ((ids->limit && ids->n >= ids->limit) || !ids_reserve(ids, 1)) return false;
    ids->p[ids->n++] = id;
    return true;
}

/* --- encoding states
 * ------------------------------------------------------------------------------------------------------- */

bool encoder_fail(struct encoder *e, enum rose_status status, const char *message)
{
    if (!e->status) e->status = status_set(e->err, status, "%s", message);
    return false;
}

bool encoder_room(struct encoder *e, size_t n)
{
    struct token_ids *out = e->out;
    if (out->limit && (out->n >= out->limit || n > out->limit - out->n)) {
        if (!e->status)
            e->status = status_set(e->err, ROSE_LIMIT, "the text has more than %zu tokens", out->limit);
        return false;
    }
    /* A little more, so that the word cache may copy a whole entry. */
    if (!ids_reserve(out, n + WORD_IDS))
        return encoder_fail(e, ROSE_NO_MEMORY, "no memory for the token ids");
    return true;
}

struct encoder *encoder_take(const struct tokenizer *t)
{
    struct tokenizer *shared =
        (struct tokenizer *)t; /* the pool is the one thing that changes, under its lock */
    pthread_mutex_lock(&shared->lock);
    struct encoder *e = shared->idle;
    if (e) shared->idle = e->next;
    pthread_mutex_unlock(&shared->lock);
    if (e) return e;
    e = calloc(1, sizeof *e);
    if (!e) return NULL;
    if (t->model == MODEL_BPE) e->words = calloc(WORD_SLOTS, sizeof *e->words);
    if (t->model == MODEL_BPE && !e->words) {
        free(e);
        return NULL;
    }
    e->t = t;
    return e;
}

void encoder_give(const struct tokenizer *t, struct encoder *e)
{
    struct tokenizer *shared = (struct tokenizer *)t;
    e->out = NULL, e->err = NULL, e->untrusted = NULL, e->untrusted_count = 0, e->status = ROSE_OK;
    /* A text of megabytes must not pin its buffers for ever. */
    enum { KEEP = 1 << 20 };
    if (e->symbol_cap > KEEP / sizeof *e->symbols) free(e->symbols), e->symbols = NULL, e->symbol_cap = 0;
    if (e->heap_cap > KEEP / sizeof *e->heap) free(e->heap), e->heap = NULL, e->heap_cap = 0;
    if (e->best_cap > KEEP / sizeof *e->best) free(e->best), e->best = NULL, e->best_cap = 0;
    struct strbuf *bufs[] = {&e->utf8, &e->norm[0], &e->norm[1], &e->word};
    for (size_t i = 0; i < ROSE_COUNT(bufs) + TOKENIZER_MAX_STEPS; i++) {
        struct strbuf *b = i < ROSE_COUNT(bufs) ? bufs[i] : &e->level[i - ROSE_COUNT(bufs)];
        if (b->cap > KEEP) strbuf_free(b);
        b->n = 0, b->failed = false;
    }
    pthread_mutex_lock(&shared->lock);
    e->next = shared->idle;
    shared->idle = e;
    pthread_mutex_unlock(&shared->lock);
}

void encoder_free(struct encoder *e)
{
    free(e->words);
    free(e->symbols);
    free(e->heap);
    free(e->best);
    strbuf_free(&e->utf8);
    strbuf_free(&e->norm[0]);
    strbuf_free(&e->norm[1]);
    strbuf_free(&e->word);
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++) {
        strbuf_free(&e->level[i]);
        pattern_free_match(e->match[i]);
    }
    pattern_free_match(e->norm_match);
    free(e);
}

bool encoder_stopped(struct encoder *e)
{
    return !encoder_fail(e, ROSE_CANCELLED, "tokenising was given up");
}

bool model_word(struct encoder *e, struct str word)
{
    if (stop_asked()) return !encoder_stopped(e);
    switch (e->t->model) {
    case MODEL_BPE: return bpe_word(e, word);
    case MODEL_UNIGRAM: return unigram_word(e, word);
    default: return wordpiece_word(e, word);
    }
}

/* --- encoding
 * --------------------------------------------------------------------------------------------------------------
 */

static bool valid(struct str s)
{
    size_t i = 0;
    for (uint64_t v; i + 8 <= s.n; i += 8) {
        memcpy(&v, s.p + i, 8);
        if (v & 0x8080808080808080ull) break;
    }
    return utf8_valid((struct str){s.p + i, s.n - i});
}

/* Copy a text with U+FFFD for what is invalid, and move the ranges along; a character that a range cuts is in
 * it. */
static struct str repair(struct encoder *e, struct str s, struct range *ranges, size_t count)
{
    struct strbuf *b = &e->utf8;
    size_t from = 0, to = 0; /* the next border of each kind */
    b->n = 0;
    for (size_t i = 0, n; i < s.n; i += n) {
        uint32_t cp;
        n = utf8_decode((struct str){s.p + i, s.n - i}, &cp);
        while (from < count && ranges[from].from < i + n) ranges[from++].from = b->n;
        if (cp == UTF8_INVALID)
            strbuf_adds(b, "\xEF\xBF\xBD");
        else
            strbuf_add(b, s.p + i, n);
        while (to < count && ranges[to].to <= i + n) ranges[to++].to = b->n;
    }
    while (to < count) ranges[to++].to = b->n;
    return strbuf_str(b);
}

/* The template of one text or of a pair, around the encodings of the texts. */
static bool run_template(struct encoder *e, const struct post_piece *pieces, size_t count,
                         const struct str text[2], struct token_ids *types)
{
    const struct tokenizer *t = e->t;
    size_t start = e->out->n;
    for (size_t i = 0; i < count; i++) {
        const struct post_piece *p = &pieces[i];
        size_t before = e->out->n;
        if (p->kind == POST_ID) {
            if ((e->flags & TOKENIZER_ADD_SPECIAL) && !encoder_emit(e, p->id)) return false;
        } else {
            if (!added_run(e, text[p->kind == POST_TEXT_B])) return false;
            bool twice = (e->flags & TOKENIZER_ONE_BOS) && i == 1 && pieces[0].kind == POST_ID &&
                         before == start + 1 && (int64_t)pieces[0].id == t->facts.bos && e->out->n > before &&
                         e->out->p[before] == pieces[0].id;
            if (twice) {
                e->out->n--;
                memmove(e->out->p + start, e->out->p + start + 1, (e->out->n - start) * sizeof *e->out->p);
            }
        }
        for (size_t k = before; types && k < e->out->n; k++)
            if (!token_ids_add(types, t->post.zero_types ? 0 : p->type))
                return encoder_fail(e, ROSE_NO_MEMORY, "no memory for the token types");
    }
    return true;
}

enum { TEXT_MAX = 1 << 28 };

/* Encode one or two texts with the state of one encoding. */
static enum rose_status encode(struct encoder *e, const struct str text[2], bool pair, unsigned flags,
                               struct token_ids *out, struct token_ids *types, struct rose_error *err)
{
    static const struct post_piece bare[] = {{POST_TEXT_A, 0, 0}, {POST_TEXT_B, 0, 1}};
    const struct post *post = &e->t->post;
    e->flags = flags, e->out = out, e->err = err, e->status = ROSE_OK;
    /* The steps of honest tokenizers lengthen a text a few times, NFKD by eleven at most. */
    size_t limit = 64 * ROSE_MAX(text[0].n, text[1].n) + 65536;
    e->norm[0].limit = e->norm[1].limit = e->word.limit = limit;
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++) e->level[i].limit = limit;
    if (!encoder_room(e, 0)) return e->status;
    if (!post->present)
        run_template(e, bare, pair ? 2 : 1, text, types);
    else if (pair)
        run_template(e, post->pair, post->pair_count, text, types);
    else
        run_template(e, post->single, post->single_count, text, types);
    return e->status;
}

static enum rose_status no_state(struct rose_error *err)
{
    return status_set(err, ROSE_NO_MEMORY, "no memory to tokenise");
}

static bool too_long(struct str s, enum rose_status *status, struct rose_error *err)
{
    if (s.n <= TEXT_MAX) return false;
    *status = status_set(err, ROSE_LIMIT, "a text of %zu bytes is longer than the tokenizer's limit of %d",
                         s.n, TEXT_MAX);
    return true;
}

enum rose_status tokenizer_encode(const struct tokenizer *t, struct str text, unsigned flags,
                                  struct token_ids *out, struct rose_error *err)
{
    enum rose_status status;
    if (too_long(text, &status, err)) return status;
    struct encoder *e = encoder_take(t);
    if (!e) return no_state(err);
    struct str texts[2] = {valid(text) ? text : repair(e, text, NULL, 0), {"", 0}};
    status = e->utf8.failed ? no_state(err) : encode(e, texts, false, flags, out, NULL, err);
    encoder_give(t, e);
    return status;
}

enum rose_status tokenizer_encode_pair(const struct tokenizer *t, struct str a, struct str b, unsigned flags,
                                       struct token_ids *out, struct token_ids *types, struct rose_error *err)
{
    enum rose_status status;
    if (too_long(a, &status, err) || too_long(b, &status, err)) return status;
    struct encoder *e = encoder_take(t);
    if (!e) return no_state(err);
    struct strbuf fixed = {0};
    struct str texts[2] = {a, b};
    if (!valid(a)) {
        struct str good = repair(e, a, NULL, 0);
        strbuf_add(&fixed, good.p, good.n);
        texts[0] = strbuf_str(&fixed);
    }
    if (!valid(b)) texts[1] = repair(e, b, NULL, 0);
    status = e->utf8.failed || fixed.failed ? no_state(err) : encode(e, texts, true, flags, out, types, err);
    strbuf_free(&fixed);
    encoder_give(t, e);
    return status;
}

enum rose_status tokenizer_encode_segments(const struct tokenizer *t,
                                           const struct tokenizer_segment *segments, size_t count,
                                           unsigned flags, struct token_ids *out, struct rose_error *err)
{
    enum rose_status status;
    struct strbuf joined = {.limit = TEXT_MAX};
    struct range *ranges = calloc(count + 1, sizeof *ranges);
    struct encoder *e = encoder_take(t);
    size_t n = 0;
    for (size_t i = 0; ranges && i < count; i++) {
        size_t from = joined.n;
        strbuf_add(&joined, segments[i].text.p, segments[i].text.n);
        if (segments[i].trusted || joined.n == from) continue;
        if (n && ranges[n - 1].to == from)
            ranges[n - 1].to = joined.n;
        else
            ranges[n++] = (struct range){from, joined.n};
    }
    if (!ranges || !e) {
        status = no_state(err);
    } else if (joined.failed) {
        status = status_set(err, ROSE_LIMIT,
                            "a text is longer than the tokenizer's limit of %d bytes, or memory ran out",
                            TEXT_MAX);
    } else {
        struct str texts[2] = {strbuf_str(&joined), {"", 0}};
        if (!valid(texts[0])) texts[0] = repair(e, texts[0], ranges, n);
        e->untrusted = ranges, e->untrusted_count = n;
        status = e->utf8.failed ? no_state(err) : encode(e, texts, false, flags, out, NULL, err);
    }
    if (e) encoder_give(t, e);
    free(ranges);
    strbuf_free(&joined);
    return status;
}

/* --- building and facts
 * ------------------------------------------------------------------------------------------------------ */

struct tokenizer *tokenizer_new(size_t memory)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    if (pthread_mutex_init(&t->lock, NULL)) {
        free(t);
        return NULL;
    }
    arena_init(&t->arena, memory);
    t->unk = TOKEN_NONE;
    struct tokenizer_facts *f = &t->facts;
    f->bos = f->eos = f->eot = f->unk = f->pad = f->sep = f->cls = f->mask = -1;
    return t;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t) return;
    for (struct encoder *e = t->idle, *next; e; e = next) {
        next = e->next;
        encoder_free(e);
    }
    for (size_t i = 0; i < t->normalizer_count; i++) pattern_free(&t->normalizer[i].pattern);
    for (size_t i = 0; i < t->pretokenizer_count; i++) pattern_free(&t->pretokenizer[i].pattern);
    for (size_t i = 0; i < t->decoder_count; i++) pattern_free(&t->decoder[i].pattern);
    pthread_mutex_destroy(&t->lock);
    arena_free(&t->arena);
    free(t);
}

struct str tokenizer_copy(struct tokenizer *t, struct str s)
{
    char *p = arena_strndup(&t->arena, s.p, s.n);
    return (struct str){p, p ? s.n : 0};
}

/* Normalise the added tokens that want it: the text is matched against this form. */
static enum rose_status normalize_added(struct tokenizer *t, struct rose_error *err)
{
    struct encoder *e = NULL;
    enum rose_status status = ROSE_OK;
    for (size_t i = 0; i < t->added_count && !status; i++) {
        struct added_token *a = &t->added[i];
        if (a->match.p) continue;
        a->match = a->text;
        if (!a->normalized || !t->normalizer_count) continue;
        if (!e && !(e = encoder_take(t))) return no_state(err);
        struct token_ids none = {0};
        e->out = &none, e->err = err, e->status = ROSE_OK;
        e->norm[0].limit = e->norm[1].limit = 64 * a->text.n + 65536;
        struct str form;
        if (!normalizer_run(e, a->text, &form))
            status = e->status;
        else
            a->match = tokenizer_copy(t, form);
        if (!status && !a->match.p) status = no_state(err);
        if (status || str_eq(a->match, a->text)) continue;
        if (!t->shown && !(t->shown = ARENA_ARRAY(&t->arena, struct str, t->vocab.size + 1)))
            status = no_state(err);
        else
            t->shown[a->id] = a->match;
    }
    if (e) encoder_give(t, e);
    return status;
}

enum rose_status tokenizer_finish(struct tokenizer *t, struct rose_error *err)
{
    static const char *const kinds[] = {"bpe", "unigram", "wordpiece", "wordlevel"};
    t->facts.kind = kinds[t->model];
    t->facts.unk = t->unk == TOKEN_NONE ? -1 : (int64_t)t->unk;
    for (int b = 0; b < 256; b++) {
        char text[8];
        uint32_t cp = alphabet_of((uint8_t)b);
        t->byte_ids[b] = vocab_get(&t->vocab, text, utf8_encode(cp, text));
        static const char hex[] = "0123456789ABCDEF";
        char name[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'};
        t->fallback_ids[b] = vocab_get(&t->vocab, name, 6);
    }
    for (size_t i = 0; i < t->added_count; i++) {
        const struct added_token *a = &t->added[i];
        t->vocab.tokens[a->id] = a->text;
        t->id_flags[a->id] |= ID_ADDED | (a->special ? ID_SPECIAL : 0);
    }
    while (t->vocab.size && !t->vocab.tokens[t->vocab.size - 1].p) t->vocab.size--;
    t->facts.vocab_size = t->vocab.size;
    for (size_t i = 0; i < t->vocab.size; i++)
        if (t->vocab.tokens[i].n > t->max_token) t->max_token = t->vocab.tokens[i].n;
    if (t->model == MODEL_UNIGRAM && !unigram_prepare(t)) return no_state(err);
    ROSE_TRY(normalize_added(t, err));
    return added_build(t, err) ? ROSE_OK : ROSE_NO_MEMORY;
}

const struct tokenizer_facts *tokenizer_facts(const struct tokenizer *t)
{
    return &t->facts;
}

struct str tokenizer_token(const struct tokenizer *t, uint32_t id)
{
    return id < t->vocab.size ? t->vocab.tokens[id] : (struct str){0};
}

int64_t tokenizer_find(const struct tokenizer *t, struct str token)
{
    if (!token.p) return -1;
    for (size_t i = 0; i < t->added_count; i++)
        if (str_eq(t->added[i].text, token)) return t->added[i].id;
    uint32_t id = vocab_get(&t->vocab, token.p, token.n);
    return id == TOKEN_NONE ? -1 : (int64_t)id;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return id < t->vocab.size && (t->id_flags[id] & ID_SPECIAL);
}
