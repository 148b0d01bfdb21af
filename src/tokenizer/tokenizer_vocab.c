#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* Tokenizers from the arrays of a GGUF file. The file names a model kind and, for byte-level BPE, one of the
 * known pre-tokenizers; the rest of the pipeline follows from these. Token texts stay where they are, in the
 * mapped file. */

#define MARK "\xE2\x96\x81" /* U+2581, SentencePiece's space */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define S_TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CL100K(digits)                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" S_TAIL
#define QWEN35                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| " \
    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" S_TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define O200K                                                         \
    LEAD UPPER "*" LOWER "+" SHORT "|" LEAD UPPER "+" LOWER "*" SHORT \
               "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" S_TAIL
#define TEKKEN \
    LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" S_TAIL
#define DEEPSEEK3                                                                                         \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| " \
    "?[\\p{P}\\p{S}]+[\\r\\n]*|" S_TAIL
#define HAN_KANA "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+"
#define HAN_HANGUL "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+"

enum { DIGITS_FIRST = 1, IGNORE_MERGES = 2, BOS = 4, NFC = 8, FALCON = 16, SEP = 32 };
/* The value of tokenizer.ggml.pre, and the patterns that cut the text one after the other. */
static const struct pre {
    const char *names; /* space-separated */
    const char *patterns[4];
    int flags;
} pres[] = {
    {"default gpt-2 gpt2 mpt olmo jais phi-2 gigachat jina-es jina-de jina-v2-es "
     "jina-v2-de granite-docling modern-bert a.x-4.0 mellum",
     {GPT2},
     0},
    {"roberta-bpe jina-v1-en jina-v2-code", {GPT2}, SEP},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b", {GPT2}, DIGITS_FIRST},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
     {CL100K("\\p{N}{1,3}")},
     IGNORE_MERGES | BOS},
    {"dbrx smaug-bpe chatglm-bpe glm4 cl100k", {CL100K("\\p{N}{1,3}")}, 0},
    {"qwen2 deepseek-r1-qwen hunyuan megrez kormo f2llmv2", {CL100K("\\p{N}")}, NFC},
    {"stablelm2 solar-open", {CL100K("\\p{N}")}, 0},
    {"qwen35", {QWEN35}, NFC},
    {"gpt-4o llama4 o200k", {O200K}, 0},
    {"tekken", {TEKKEN}, IGNORE_MERGES | BOS},
    {"deepseek-v3", {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3}, BOS},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_HANGUL}, DIGITS_FIRST | BOS},
    {"falcon", {GPT2}, FALCON},
};

static enum rose_status no_memory(struct rose_error *err)
{
    return status_set(err, ROSE_NO_MEMORY, "no memory for the tokenizer");
}

static bool names_it(const char *names, struct str name)
{
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, " ");
        if (n == name.n && !memcmp(p, name.p, n)) return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

static struct pretoken_step *add_pre(struct tokenizer *t, struct pretoken_step step)
{
    t->pretokenizer[t->pretokenizer_count] = step;
    return &t->pretokenizer[t->pretokenizer_count++];
}

/* Byte-level BPE: the named patterns, then bytes. */
static enum rose_status set_pre(struct tokenizer *t, const struct tokenizer_vocab *v, int *flags,
                                struct rose_error *err)
{
    struct str name = v->pre.n ? v->pre : STR("default");
    const struct pre *pre = NULL;
    for (size_t i = 0; i < ROSE_COUNT(pres); i++)
        if (names_it(pres[i].names, name)) pre = &pres[i];
    if (!pre)
        return status_set(err, ROSE_UNSUPPORTED,
                          "tokenizer.ggml.pre: the pre-tokenizer \"%.*s\" is not known to this version",
                          (int)ROSE_MIN(name.n, 60), name.p);
    *flags = pre->flags;
    t->byte_level = true;
    t->ignore_merges = pre->flags & IGNORE_MERGES;
    if (pre->flags & NFC)
        t->normalizer[t->normalizer_count++] =
            (struct normalizer_step){.kind = NORMALIZE_FORM, .form = UNICODE_NFC};
    if (pre->flags & DIGITS_FIRST)
        add_pre(t, (struct pretoken_step){
                       .kind = PRETOKEN_CLASS, .flag = UC_NUMERIC, .behavior = SPLIT_ISOLATED});
    if (pre->flags & FALCON) {
        /* Punctuation, bytes, digits, groups of three: these look at the byte alphabet. */
        t->byte_level = false;
        add_pre(t, (struct pretoken_step){
                       .kind = PRETOKEN_CLASS, .flag = UC_PUNCT, .behavior = SPLIT_CONTIGUOUS});
        ROSE_TRY(pattern_compile(
            &add_pre(t, (struct pretoken_step){.kind = PRETOKEN_BYTE_LEVEL, .use_regex = true})->pattern,
            STR(GPT2), &t->arena, "GPT-2", err));
        add_pre(t, (struct pretoken_step){
                       .kind = PRETOKEN_CLASS, .flag = UC_NUMERIC, .behavior = SPLIT_CONTIGUOUS});
        return pattern_compile(&add_pre(t, (struct pretoken_step){.kind = PRETOKEN_SPLIT})->pattern,
                               STR("[0-9][0-9][0-9]"), &t->arena, "Falcon", err);
    }
    for (int i = 0; i < 4 && pre->patterns[i]; i++)
        ROSE_TRY(pattern_compile(&add_pre(t, (struct pretoken_step){.kind = PRETOKEN_SPLIT})->pattern,
                                 str_of(pre->patterns[i]), &t->arena, "pre-tokenizer", err));
    add_pre(t, (struct pretoken_step){.kind = PRETOKEN_BYTE_LEVEL, .last = true});
    return ROSE_OK;
}

static enum rose_status set_tokens(struct tokenizer *t, const struct tokenizer_vocab *v,
                                   struct rose_error *err)
{
    if (!v->count || v->count > 1u << 24)
        return status_set(err, ROSE_FORMAT,
                          "tokenizer.ggml.tokens has %zu entries; 1 to 16,777,216 were expected", v->count);
    t->id_flags = ARENA_ARRAY(&t->arena, uint8_t, v->count + 1);
    if (!t->id_flags || !vocab_init(&t->vocab, &t->arena, v->count, v->count)) return no_memory(err);
    size_t added = 0;
    for (size_t i = 0; i < v->count; i++) {
        struct str s = v->tokens[i];
        int type = v->types ? v->types[i] : TOKEN_NORMAL;
        if (s.n && !utf8_valid(s))
            return status_set(err, ROSE_FORMAT, "tokenizer.ggml.tokens: token %zu is not valid UTF-8", i);
        vocab_put(&t->vocab, s.n ? s : STR(""), (uint32_t)i);
        if (type == TOKEN_BYTE) t->id_flags[i] = ID_BYTE;
        if (type == TOKEN_UNUSED || type == TOKEN_UNKNOWN)
            t->id_flags[i] = ID_UNUSED; /* no text becomes them */
        added += type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED;
    }
    t->added = ARENA_ARRAY(&t->arena, struct added_token, added + 1);
    if (!t->added) return no_memory(err);
    bool marked = str_is(v->model, "llama") || str_is(v->model, "t5");
    for (size_t i = 0; added && i < v->count; i++) {
        int type = v->types[i];
        if ((type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED) || !v->tokens[i].n) continue;
        struct added_token *a = &t->added[t->added_count++];
        *a = (struct added_token){.text = v->tokens[i], .id = (uint32_t)i, .special = type == TOKEN_CONTROL};
        /* SentencePiece looks for user-defined symbols in the text whose spaces are marked already. */
        if (marked && !a->special) a->normalized = true, a->match = a->text;
    }
    return ROSE_OK;
}

static enum rose_status set_merges(struct tokenizer *t, const struct tokenizer_vocab *v,
                                   struct rose_error *err)
{
    char *joined = malloc(t->max_token + 1);
    enum rose_status status =
        joined && pairs_init(&t->pairs, &t->arena, v->merge_count) ? ROSE_OK : no_memory(err);
    uint32_t guess = 0; /* merges mostly make the tokens in their order */
    for (size_t i = 0; i < v->merge_count && !status; i++) {
        struct str left, right, m = v->merges[i];
        if (!bpe_split_merge(m, &left, &right) || left.n + right.n > t->max_token) {
            status = status_set(err, ROSE_FORMAT,
                                "tokenizer.ggml.merges: merge %zu is not two tokens that make a third", i);
            break;
        }
        memcpy(joined, left.p, left.n);
        memcpy(joined + left.n, right.p, right.n);
        size_t n = left.n + right.n;
        uint32_t l = vocab_get_listed(&t->vocab, left.p, left.n),
                 r = vocab_get_listed(&t->vocab, right.p, right.n), id = guess + 1;
        if (id >= v->count || v->tokens[id].n != n || memcmp(v->tokens[id].p, joined, n))
            id = vocab_get(&t->vocab, joined, n);
        if (l == TOKEN_NONE || r == TOKEN_NONE || id == TOKEN_NONE)
            status = status_set(
                err, ROSE_FORMAT,
                "tokenizer.ggml.merges: merge %zu speaks of a token that tokenizer.ggml.tokens lacks", i);
        else
            pairs_put(&t->pairs, l, r, (uint32_t)i, id);
        guess = id;
    }
    free(joined);
    return status;
}

static enum rose_status set_scores(struct tokenizer *t, const struct tokenizer_vocab *v,
                                   struct rose_error *err)
{
    t->scores = ARENA_ARRAY(&t->arena, double, v->count + 1);
    if (!t->scores) return no_memory(err);
    if (!v->scores)
        return status_set(err, ROSE_FORMAT,
                          "tokenizer.ggml.scores is missing, and the model \"%.*s\" needs it",
                          (int)ROSE_MIN(v->model.n, 40), v->model.p);
    for (size_t i = 0; i < v->count; i++)
        t->scores[i] = v->scores[i] == v->scores[i] ? (double)v->scores[i] : -1e30;
    return ROSE_OK;
}

static void add_norm(struct tokenizer *t, struct normalizer_step step)
{
    t->normalizer[t->normalizer_count++] = step;
}
static void add_decoder(struct tokenizer *t, struct decoder_step step)
{
    t->decoder[t->decoder_count++] = step;
}

/* Spaces as U+2581, with one in front. */
static void mark_spaces(struct tokenizer *t, bool prefix)
{
    if (prefix) add_norm(t, (struct normalizer_step){.kind = NORMALIZE_PREPEND, .content = STR(" ")});
    struct normalizer_step step = {.kind = NORMALIZE_REPLACE, .content = STR(MARK)};
    pattern_literal(&step.pattern, STR(" "));
    add_norm(t, step);
}

static void unmark_spaces(struct tokenizer *t, bool prefix)
{
    struct decoder_step step = {.kind = DECODE_REPLACE, .content = STR(" ")};
    pattern_literal(&step.pattern, STR(MARK));
    add_decoder(t, step);
    add_decoder(t, (struct decoder_step){.kind = DECODE_BYTE_FALLBACK});
    add_decoder(t, (struct decoder_step){.kind = DECODE_FUSE});
    if (prefix) add_decoder(t, (struct decoder_step){.kind = DECODE_STRIP, .cp = ' ', .start = 1});
}

static bool sets(int option, bool usual)
{
    return option < 0 ? usual : option != 0;
}

static enum rose_status check_id(const struct tokenizer_vocab *v, int64_t id, const char *name,
                                 struct rose_error *err)
{
    if (id < (int64_t)v->count) return ROSE_OK;
    return status_set(err, ROSE_FORMAT, "tokenizer.ggml.%s_token_id is %lld, beyond the %zu tokens", name,
                      (long long)id, v->count);
}

static enum rose_status set_ids(struct tokenizer *t, const struct tokenizer_vocab *v, struct rose_error *err)
{
    struct tokenizer_facts *f = &t->facts;
    const struct {
        int64_t from, *to;
        const char *name;
    } ids[] = {{v->bos, &f->bos, "bos"},     {v->eos, &f->eos, "eos"},       {v->eot, &f->eot, "eot"},
               {v->unk, &f->unk, "unknown"}, {v->sep, &f->sep, "seperator"}, {v->pad, &f->pad, "padding"},
               {v->cls, &f->cls, "cls"},     {v->mask, &f->mask, "mask"}};
    for (size_t i = 0; i < ROSE_COUNT(ids); i++) {
        ROSE_TRY(check_id(v, ids[i].from, ids[i].name, err));
        *ids[i].to = ids[i].from < 0 ? -1 : ids[i].from;
    }
    /* Few files name the token that ends a turn. */
    static const char *const turns[] = {"<|eot_id|>", "<|im_end|>",      "<end_of_turn>",
                                        "<|end|>",    "<|end_of_turn|>", "<|eot|>"};
    for (size_t i = 0; i < ROSE_COUNT(turns) && f->eot < 0; i++) {
        uint32_t id = vocab_get(&t->vocab, turns[i], strlen(turns[i]));
        if (id != TOKEN_NONE && v->types && v->types[id] == TOKEN_CONTROL) f->eot = id;
    }
    return ROSE_OK;
}

/* [BOS] A [EOS], and for a pair [BOS] A [EOS] [SEP] B [EOS]; Llama and Gemma, which have no SEP, begin B as A. */
static enum rose_status set_post(struct tokenizer *t, bool bos, bool eos, bool sep, bool bert, struct rose_error *err)
{
    struct tokenizer_facts *f = &t->facts;
    int64_t first = bert && f->cls >= 0 ? f->cls : f->bos, last = bert && f->sep >= 0 ? f->sep : f->eos;
    f->add_bos = bos = bos && first >= 0;
    f->add_eos = eos = eos && last >= 0;
    struct post *p = &t->post;
    p->single = ARENA_ARRAY(&t->arena, struct post_piece, 3);
    p->pair = ARENA_ARRAY(&t->arena, struct post_piece, 6);
    if (!p->single || !p->pair) return no_memory(err);
    struct post_piece head = {POST_ID, (uint32_t)first, 0}, tail = {POST_ID, (uint32_t)last, 0};
    p->present = true;
    if (bos) p->single[p->single_count++] = p->pair[p->pair_count++] = head;
    p->single[p->single_count++] = p->pair[p->pair_count++] = (struct post_piece){POST_TEXT_A, 0, 0};
    if (eos) p->single[p->single_count++] = p->pair[p->pair_count++] = tail;
    uint32_t second = bert ? 1 : 0;
    head.type = tail.type = second;
    if (sep && f->sep >= 0) p->pair[p->pair_count++] = (struct post_piece){POST_ID, (uint32_t)f->sep, second};
    else if (bos && !bert && (t->by_score || !eos)) p->pair[p->pair_count++] = head;
    p->pair[p->pair_count++] = (struct post_piece){POST_TEXT_B, 0, second};
    if (eos) p->pair[p->pair_count++] = tail;
    return ROSE_OK;
}

static enum rose_status read_vocab(struct tokenizer *t, const struct tokenizer_vocab *v,
                                   struct rose_error *err)
{
    bool bpe = str_is(v->model, "gpt2"), spm = str_is(v->model, "llama"), unigram = str_is(v->model, "t5"),
         bert = str_is(v->model, "bert");
    int flags = 0;
    if (!bpe && !spm && !unigram && !bert)
        return status_set(err, ROSE_UNSUPPORTED, "tokenizer.ggml.model: the kind \"%.*s\" is not supported",
                          (int)ROSE_MIN(v->model.n, 60), v->model.p);
    t->normalizer = ARENA_ARRAY(&t->arena, struct normalizer_step, 8);
    t->pretokenizer = ARENA_ARRAY(&t->arena, struct pretoken_step, 8);
    t->decoder = ARENA_ARRAY(&t->arena, struct decoder_step, 8);
    if (!t->normalizer || !t->pretokenizer || !t->decoder) return no_memory(err);
    t->has_decoder = true;
    ROSE_TRY(set_tokens(t, v, err));
    ROSE_TRY(set_ids(t, v, err));
    for (size_t i = 0; i < v->count; i++) t->max_token = ROSE_MAX(t->max_token, v->tokens[i].n);
    if (bpe) {
        t->model = MODEL_BPE;
        ROSE_TRY(set_pre(t, v, &flags, err));
        ROSE_TRY(set_merges(t, v, err));
        add_decoder(t, (struct decoder_step){.kind = DECODE_BYTE_LEVEL});
        return set_post(t, sets(v->add_bos, flags & (BOS | SEP)), sets(v->add_eos, flags & SEP), sets(v->add_sep, flags & SEP), false, err);
    }
    if (v->unk >= 0) t->unk = (uint32_t)v->unk;
    if (bert) {
        t->model = MODEL_WORDPIECE;
        t->max_chars = 100;
        t->first_prefix = STR(MARK);
        add_norm(t,
                 (struct normalizer_step){
                     .kind = NORMALIZE_BERT, .clean = true, .chinese = true, .accents = true, .lower = true});
        add_pre(t, (struct pretoken_step){
                       .kind = PRETOKEN_CLASS, .flag = UC_RUST_SPACE, .behavior = SPLIT_REMOVED});
        add_pre(t,
                (struct pretoken_step){.kind = PRETOKEN_CLASS, .flag = UC_PUNCT, .behavior = SPLIT_ISOLATED});
        add_decoder(t, (struct decoder_step){.kind = DECODE_METASPACE, .cp = 0x2581, .prepend = true});
        return set_post(t, sets(v->add_bos, true), sets(v->add_eos, true), false, true, err);
    }
    bool prefix = sets(v->add_space_prefix, true);
    t->model = unigram ? MODEL_UNIGRAM : MODEL_BPE;
    t->by_score = spm, t->fuse_unk = true;
    for (size_t i = 0; i < v->count && !t->byte_fallback; i++) t->byte_fallback = t->id_flags[i] & ID_BYTE;
    ROSE_TRY(set_scores(t, v, err));
    if (v->precompiled_charsmap.n) {
        struct normalizer_step step = {.kind = NORMALIZE_CHARSMAP, .longest = true};
        ROSE_TRY(charsmap_read(&step, v->precompiled_charsmap, err));
        add_norm(t, step);
    }
    if (sets(v->remove_extra_whitespaces, false))
        add_norm(t, (struct normalizer_step){.kind = NORMALIZE_SPACES});
    mark_spaces(t, prefix);
    unmark_spaces(t, prefix);
    return set_post(t, sets(v->add_bos, spm), sets(v->add_eos, unigram), sets(v->add_sep, unigram), false, err);
}

enum rose_status tokenizer_from_vocab(const struct tokenizer_vocab *v, struct tokenizer **out,
                                      struct rose_error *err)
{
    *out = NULL;
    struct tokenizer *t =
        tokenizer_new(((size_t)64 << 20) + 256 * (ROSE_MIN(v->count, (size_t)1 << 30) +
                                                  ROSE_MIN(v->merge_count, (size_t)1 << 30)));
    if (!t) return no_memory(err);
    enum rose_status status = read_vocab(t, v, err);
    int64_t unk = t->facts.unk;
    if (!status) status = tokenizer_finish(t, err);
    if (t->facts.unk < 0) t->facts.unk = unk;
    if (status)
        tokenizer_free(t);
    else
        *out = t;
    return status;
}
