#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* Decoders as a chain of steps, each fed one token at a time: what a step makes of it goes to the next at
 * once. From a step that joins all tokens on (byte level, Fuse), what flows are fragments of one text; a step
 * that needs all of that text (a Replace of several characters, say) collects it until the end. */

static void push(struct token_stream *s, size_t step, struct str token);
static void push_joined(struct token_stream *s, size_t step, struct str fragment);

static void replace_all(struct str in, struct str what, struct str by, struct strbuf *out)
{
    ptrdiff_t at;
    size_t from = 0;
    while (what.n && (at = str_find(in, what, from)) >= 0) {
        strbuf_add(out, in.p + from, (size_t)at - from);
        strbuf_add(out, by.p, by.n);
        from = (size_t)at + what.n;
    }
    strbuf_add(out, in.p + from, in.n - from);
}

/* The replacements of a list of pairs, one after the other; the text ends in *a. */
static void replace_pairs(struct strbuf *a, struct strbuf *b, const char *const (*pairs)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct str what = str_of(pairs[i][0]);
        if (str_find(strbuf_str(a), what, 0) < 0) continue;
        b->n = 0;
        replace_all(strbuf_str(a), what, str_of(pairs[i][1]), b);
        struct strbuf swap = *a;
        *a = *b, *b = swap;
    }
}

static const char *const wordpiece_pairs[][2] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};
static const char *const clean_up_pairs[][2] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

/* Replacement by a pattern or a literal. */
static void replace_pattern(const struct decoder_step *d, struct str in, struct strbuf *out)
{
    size_t at = 0, from, to;
    bool failed = false;
    void *state = NULL;
    while (at < in.n && pattern_find(&d->pattern, &state, in, at, &from, &to, &failed)) {
        strbuf_add(out, in.p + at, from - at);
        strbuf_add(out, d->content.p, d->content.n);
        at = to;
    }
    strbuf_add(out, in.p + at, in.n - at);
    pattern_free_match(state);
}

static struct str strip(const struct decoder_step *d, struct str s)
{
    size_t n;
    for (size_t i = 0; i < d->start && s.n && unicode_next((const uint8_t *)s.p, &n) == d->cp; i++)
        s.p += n, s.n -= n;
    for (size_t i = 0; i < d->stop && s.n && unicode_last(s, &n) == d->cp; i++) s.n -= n;
    return s;
}

static void metaspace(const struct decoder_step *d, struct str in, bool first, struct strbuf *out)
{
    for (size_t i = 0, n; i < in.n; i += n) {
        if (unicode_next((const uint8_t *)in.p + i, &n) != d->cp)
            strbuf_add(out, in.p + i, n);
        else if (!first || !d->prepend)
            strbuf_addc(out, ' ');
    }
}

/* What a step makes of one token (or of the whole text), into scratch[0]. Not for steps with a state. */
static struct str apply(struct token_stream *s, const struct decoder_step *d, struct str in, bool first,
                        bool last)
{
    struct strbuf *out = &s->scratch[0], *spare = &s->scratch[1];
    out->n = 0;
    switch (d->kind) {
    case DECODE_METASPACE: metaspace(d, in, first, out); break;
    case DECODE_WORDPIECE:
        if (!first && str_starts(in, d->content))
            in.p += d->content.n, in.n -= d->content.n;
        else if (!first)
            strbuf_addc(out, ' ');
        strbuf_add(out, in.p, in.n);
        if (d->cleanup) replace_pairs(out, spare, wordpiece_pairs, ROSE_COUNT(wordpiece_pairs));
        break;
    case DECODE_BPE: replace_all(in, d->content, last ? STR("") : STR(" "), out); break;
    case DECODE_REPLACE: replace_pattern(d, in, out); break;
    case DECODE_STRIP: return strip(d, in);
    case DECODE_CTC:
        replace_all(in, d->content, STR(""), out);
        if (d->cleanup) {
            replace_pairs(out, spare, wordpiece_pairs, ROSE_COUNT(wordpiece_pairs));
            spare->n = 0;
            replace_all(strbuf_str(out), d->other, STR(" "), spare);
            return strbuf_str(spare);
        }
        break;
    case DECODE_BYTE_LEVEL:
        if (!alphabet_decode(in, out)) return in;
        break;
    case DECODE_BYTE_FALLBACK:
    case DECODE_FUSE: return in;
    }
    return strbuf_str(out);
}

/* Give on the pending bytes that are decided: whole characters, and U+FFFD for what cannot become one. each:
 * one for every invalid byte; otherwise one for a maximal invalid part. */
static void drain(struct token_stream *s, size_t step, bool end, bool each, bool joined)
{
    struct strbuf *b = &s->pending;
    size_t decided = end ? b->n : utf8_complete(strbuf_str(b));
    if (!decided) return;
    struct strbuf *out = &s->scratch[1];
    out->n = 0;
    for (size_t i = 0, n; i < decided; i += n) {
        uint32_t cp;
        n = utf8_decode((struct str){b->p + i, decided - i}, &cp);
        if (cp != UTF8_INVALID) strbuf_add(out, b->p + i, n);
        for (size_t k = 0; cp == UTF8_INVALID && k < (each ? n : 1); k++) strbuf_adds(out, "\xEF\xBF\xBD");
    }
    memmove(b->p, b->p + decided, b->n - decided);
    b->n -= decided;
    if (joined)
        push_joined(s, step + 1, strbuf_str(out));
    else
        push(s, step + 1, strbuf_str(out));
}

static int fallback_byte(struct str t)
{
    if (t.n != 6 || memcmp(t.p, "<0x", 3) || t.p[5] != '>') return -1;
    int v = 0;
    for (int i = 3; i < 5; i++) {
        char c = t.p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* A fragment of the one text that the tokens were joined to. */
static void push_joined(struct token_stream *s, size_t step, struct str f)
{
    const struct tokenizer *t = s->t;
    for (; f.n && step < t->decoder_count; step++) {
        const struct decoder_step *d = &t->decoder[step];
        size_t n;
        if (d->kind == DECODE_FUSE) continue;
        if (d->kind == DECODE_STRIP && !d->stop) {
            while (s->stripped[step] < d->start && f.n) {
                if (unicode_next((const uint8_t *)f.p, &n) != d->cp) {
                    s->stripped[step] = d->start;
                    break;
                }
                f.p += n, f.n -= n, s->stripped[step]++;
            }
            continue;
        }
        s->whole_step = (int)step;
        strbuf_add(&s->whole, f.p, f.n);
        return;
    }
    strbuf_add(&s->ready, f.p, f.n);
}

/* Does a step from here on, before the tokens are joined, write to the scratch buffers? */
static bool uses_scratch(const struct tokenizer *t, size_t step)
{
    for (; step < t->decoder_count; step++) {
        enum decoder_kind k = t->decoder[step].kind;
        if (k == DECODE_FUSE || k == DECODE_BYTE_LEVEL) return false;
        if (k != DECODE_BYTE_FALLBACK) return true;
    }
    return false;
}

static void push(struct token_stream *s, size_t step, struct str token)
{
    const struct tokenizer *t = s->t;
    if (step >= t->decoder_count) {
        strbuf_add(&s->ready, token.p, token.n);
        return;
    }
    const struct decoder_step *d = &t->decoder[step];
    bool first = s->count[step] == 0;
    if (first) s->count[step] = 1;
    switch (d->kind) {
    case DECODE_BYTE_LEVEL:
        if (!alphabet_decode(token, &s->pending)) strbuf_add(&s->pending, token.p, token.n);
        drain(s, step, false, false, true);
        return;
    case DECODE_BYTE_FALLBACK: {
        int byte = fallback_byte(token);
        if (byte >= 0) {
            strbuf_addc(&s->pending, (char)byte);
            drain(s, step, false, true, false);
            return;
        }
        drain(s, step, true, true, false);
        push(s, step + 1, token);
        return;
    }
    case DECODE_FUSE: push_joined(s, step + 1, token); return;
    case DECODE_BPE: /* the last token is treated otherwise: keep one back */
        if (s->has_held) {
            struct strbuf before = s->held;
            s->held = (struct strbuf){0};
            push(s, step + 1, apply(s, d, strbuf_str(&before), false, false));
            before.n = 0;
            s->held = before;
        }
        s->held.n = 0;
        strbuf_add(&s->held, token.p, token.n);
        s->has_held = true;
        return;
    case DECODE_CTC: /* equal neighbours are one */
        if (s->has_held && str_eq(strbuf_str(&s->held), token)) return;
        s->held.n = 0;
        strbuf_add(&s->held, token.p, token.n);
        s->has_held = true;
        break;
    default: break;
    }
    struct str made = apply(s, d, token, first, false);
    if (d->kind == DECODE_CTC && !made.n) return;
    if (step + 1 == t->decoder_count)
        strbuf_add(&s->ready, made.p, made.n);
    else if (!uses_scratch(t, step + 1))
        push(s, step + 1, made);
    else {
        struct strbuf keep = {0};
        if (made.p == s->scratch[0].p)
            keep = s->scratch[0], s->scratch[0] = (struct strbuf){0};
        else if (made.p == s->scratch[1].p)
            keep = s->scratch[1], s->scratch[1] = (struct strbuf){0};
        push(s, step + 1, made);
        if (keep.p) strbuf_free(&s->scratch[0]), s->scratch[0] = keep;
    }
}

/* The end of the tokens, step by step: what waits flows on. */
static void finish(struct token_stream *s)
{
    const struct tokenizer *t = s->t;
    for (size_t step = 0; step < t->decoder_count; step++) {
        const struct decoder_step *d = &t->decoder[step];
        if (d->kind == DECODE_BYTE_LEVEL) drain(s, step, true, false, true);
        if (d->kind == DECODE_BYTE_FALLBACK) drain(s, step, true, true, false);
        if (d->kind == DECODE_BPE && s->has_held) {
            struct strbuf last = s->held;
            s->held = (struct strbuf){0};
            s->has_held = false;
            push(s, step + 1, apply(s, d, strbuf_str(&last), false, true));
            strbuf_free(&last);
        }
    }
    if (s->whole_step < 0) return;
    struct strbuf text = s->whole;
    s->whole = (struct strbuf){0};
    for (size_t step = (size_t)s->whole_step; step < t->decoder_count; step++) {
        struct str made = apply(s, &t->decoder[step], strbuf_str(&text), true, true);
        struct strbuf next = {0};
        strbuf_add(&next, made.p, made.n);
        strbuf_free(&text);
        text = next;
    }
    strbuf_add(&s->ready, text.p, text.n);
    strbuf_free(&text);
}

static struct strbuf *buffer(struct token_stream *s, int i)
{
    struct strbuf *all[] = {&s->ready, &s->pending, &s->scratch[0], &s->scratch[1], &s->held, &s->whole};
    return all[i];
}

void token_stream_init(struct token_stream *s, const struct tokenizer *t, unsigned flags)
{
    *s = (struct token_stream){.t = t, .flags = flags, .whole_step = -1};
    size_t room = 3 * ROSE_MIN(t->max_token, (size_t)4096) + 64;
    for (int i = 0; i < 5; i++) strbuf_reserve(buffer(s, i), room);
}

void token_stream_free(struct token_stream *s)
{
    for (int i = 0; i < 6; i++) strbuf_free(buffer(s, i));
}

static enum rose_status result(struct token_stream *s, struct str *text, struct rose_error *err)
{
    for (int i = 0; i < 6; i++)
        if (buffer(s, i)->failed) return status_set(err, ROSE_NO_MEMORY, "no memory for the decoded text");
    *text = strbuf_str(&s->ready);
    return ROSE_OK;
}

static void feed(struct token_stream *s, uint32_t id)
{
    const struct tokenizer *t = s->t;
    if (id >= t->vocab.size || !t->vocab.tokens[id].p) return;
    if ((s->flags & TOKENIZER_SKIP_SPECIAL) && (t->id_flags[id] & ID_SPECIAL)) return;
    struct str token = t->shown && t->shown[id].p ? t->shown[id] : t->vocab.tokens[id];
    if (!t->has_decoder) { /* tokens with spaces between */
        if (s->count[0]) strbuf_addc(&s->ready, ' ');
        s->count[0] = 1;
    }
    push(s, 0, token);
}

enum rose_status token_stream_add(struct token_stream *s, uint32_t id, struct str *text,
                                  struct rose_error *err)
{
    s->ready.n = 0;
    feed(s, id);
    return result(s, text, err);
}

enum rose_status token_stream_end(struct token_stream *s, struct str *text, struct rose_error *err)
{
    s->ready.n = 0;
    finish(s);
    memset(s->count, 0, sizeof s->count);
    memset(s->stripped, 0, sizeof s->stripped);
    s->has_held = false, s->whole_step = -1;
    s->pending.n = s->held.n = s->whole.n = 0;
    return result(s, text, err);
}

enum rose_status tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count,
                                  unsigned flags, struct strbuf *out, struct rose_error *err)
{
    struct token_stream s;
    token_stream_init(&s, t, flags);
    for (size_t i = 0; i < count; i++) feed(&s, ids[i]);
    finish(&s);
    if (flags & TOKENIZER_CLEAN_UP) {
        s.scratch[0].n = 0;
        replace_pairs(&s.ready, &s.scratch[0], clean_up_pairs, ROSE_COUNT(clean_up_pairs));
    }
    struct str text;
    enum rose_status status = result(&s, &text, err);
    if (!status && !strbuf_add(out, text.p, text.n))
        status = status_set(err, ROSE_NO_MEMORY, "no memory for the decoded text");
    token_stream_free(&s);
    return status;
}

bool tokenizer_piece(const struct tokenizer *t, uint32_t id, struct strbuf *out)
{
    struct str token = tokenizer_token(t, id);
    if (!token.p) return false;
    if (t->id_flags[id] & ID_ADDED) return strbuf_add(out, token.p, token.n) || !token.n;
    bool byte_level = t->byte_level;
    for (size_t i = 0; i < t->decoder_count; i++) {
        const struct decoder_step *d = &t->decoder[i];
        int byte;
        switch (d->kind) {
        case DECODE_BYTE_LEVEL: byte_level = true; break;
        case DECODE_BYTE_FALLBACK:
            if ((byte = fallback_byte(token)) >= 0) return strbuf_addc(out, (char)byte);
            break;
        case DECODE_METASPACE: {
            struct decoder_step inside = *d;
            inside.prepend = false;
            metaspace(&inside, token, false, out);
            return !out->failed;
        }
        case DECODE_WORDPIECE:
            if (str_starts(token, d->content))
                token.p += d->content.n, token.n -= d->content.n;
            else
                strbuf_addc(out, ' ');
            return strbuf_add(out, token.p, token.n) || !token.n;
        case DECODE_BPE: replace_all(token, d->content, STR(" "), out); return !out->failed;
        case DECODE_REPLACE: {
            /* "▁" for a space; byte tokens hold none */
            if (fallback_byte(token) >= 0) break;
            replace_pattern(d, token, out);
            return !out->failed;
        }
        default: break;
        }
    }
    if (byte_level && alphabet_decode(token, out)) return !out->failed;
    return strbuf_add(out, token.p, token.n) || !token.n;
}
