#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* The pipeline of a tokenizer.json: normalizer, pre_tokenizer, post_processor and decoder, each one step or a
 * Sequence. */

static enum rose_status bad(struct rose_error *err, const struct json *at, const char *what)
{
    return status_at(err, ROSE_FORMAT, "tokenizer.json", at ? (int64_t)at->offset : -1, "tokenizer.json: %s",
                     what);
}

static enum rose_status unsupported(struct rose_error *err, const struct json *at, const char *part,
                                    struct str type)
{
    return status_at(err, ROSE_UNSUPPORTED, "tokenizer.json", at ? (int64_t)at->offset : -1,
                     "tokenizer.json: the %s \"%.*s\" is not supported", part, (int)ROSE_MIN(type.n, 60),
                     type.p);
}

static enum rose_status text_member(struct tokenizer *t, const struct json *o, const char *key,
                                    const char *fallback, struct str *out, struct rose_error *err)
{
    const struct json *v = json_get(o, key);
    if (!json_is(v, JSON_STRING) && (v || !fallback))
        return bad(err, v ? v : o, "a step lacks one of its texts");
    *out = tokenizer_copy(t, json_str(v, fallback));
    return out->p ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "no memory for the tokenizer");
}

static enum rose_status char_member(const struct json *o, const char *key, uint32_t fallback, uint32_t *cp,
                                    struct rose_error *err)
{
    const struct json *v = json_get(o, key);
    *cp = fallback;
    if (json_is_null(v) && fallback) return ROSE_OK;
    struct str s = json_str(v, "");
    size_t n = 0;
    if (s.n) *cp = unicode_next((const uint8_t *)s.p, &n);
    return s.n && n == s.n ? ROSE_OK : bad(err, v ? v : o, "one character was expected");
}

/* {"String": …} or {"Regex": …} */
static enum rose_status pattern_member(struct tokenizer *t, const struct json *o, struct pattern *p,
                                       struct rose_error *err)
{
    const struct json *v = json_get(o, "pattern"), *regex = json_get(v, "Regex"),
                      *literal = json_get(v, "String");
    if (json_is(v, JSON_STRING)) literal = v;
    if (json_is(regex, JSON_STRING))
        return pattern_compile(p, regex->string, &t->arena, "tokenizer.json", err);
    if (!json_is(literal, JSON_STRING))
        return bad(err, v ? v : o, "a pattern is neither a String nor a Regex");
    struct str s = tokenizer_copy(t, literal->string);
    if (!s.p) return status_set(err, ROSE_NO_MEMORY, "no memory for the tokenizer");
    pattern_literal(p, s);
    return ROSE_OK;
}

/* Calls read for a step or for each step of (nested) sequences. depth bounds the nesting. */
typedef enum rose_status reader(struct tokenizer *t, const struct json *step, struct str type,
                                struct rose_error *err);
static enum rose_status each(struct tokenizer *t, const struct json *v, const char *list, int depth,
                             reader *read, struct rose_error *err)
{
    if (json_is_null(v)) return ROSE_OK;
    struct str type = json_str(json_get(v, "type"), "");
    if (!str_is(type, "Sequence")) return read(t, v, type, err);
    const struct json *steps = json_get(v, list);
    if (!json_is(steps, JSON_ARRAY) || depth > 8)
        return bad(err, v, "a Sequence has no steps or is nested too deep");
    for (uint32_t i = 0; i < steps->count; i++)
        ROSE_TRY(each(t, json_at(steps, i), list, depth + 1, read, err));
    return ROSE_OK;
}

static enum rose_status too_many(struct rose_error *err)
{
    return status_set(err, ROSE_UNSUPPORTED, "tokenizer.json: a pipeline has more than %d steps",
                      TOKENIZER_MAX_STEPS);
}

/* --- normalizer
 * --------------------------------------------------------------------------------------------------------------
 */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static enum rose_status precompiled(struct tokenizer *t, const struct json *v, struct normalizer_step *p,
                                    struct rose_error *err)
{
    struct str text = json_str(json_get(v, "precompiled_charsmap"), "");
    char *out = arena_alloc(&t->arena, text.n / 4 * 3 + 4);
    if (!out) return status_set(err, ROSE_NO_MEMORY, "no memory for precompiled_charsmap");
    size_t n = 0, bits = 0;
    uint32_t acc = 0;
    for (size_t i = 0; i < text.n && text.p[i] != '='; i++) {
        int d = base64_value(text.p[i]);
        if (d < 0) return bad(err, v, "precompiled_charsmap is no base64");
        acc = acc << 6 | (uint32_t)d;
        if ((bits += 6) >= 8) out[n++] = (char)(acc >> (bits -= 8));
    }
    return charsmap_read(p, (struct str){out, n}, err);
}

static enum rose_status read_normalizer(struct tokenizer *t, const struct json *v, struct str type,
                                        struct rose_error *err)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    if (t->normalizer_count == TOKENIZER_MAX_STEPS) return too_many(err);
    struct normalizer_step *p = &t->normalizer[t->normalizer_count++];
    for (int i = 0; i < 4; i++)
        if (str_is(type, forms[i])) {
            *p = (struct normalizer_step){.kind = NORMALIZE_FORM, .form = i};
            return ROSE_OK;
        }
    if (str_is(type, "Lowercase"))
        p->kind = NORMALIZE_LOWER;
    else if (str_is(type, "StripAccents"))
        p->kind = NORMALIZE_STRIP_ACCENTS;
    else if (str_is(type, "Nmt"))
        p->kind = NORMALIZE_NMT;
    else if (str_is(type, "ByteLevel"))
        p->kind = NORMALIZE_BYTE_LEVEL;
    else if (str_is(type, "Strip")) {
        p->kind = NORMALIZE_STRIP;
        p->left = json_bool(json_get(v, "strip_left"), false),
        p->right = json_bool(json_get(v, "strip_right"), false);
    } else if (str_is(type, "Prepend")) {
        p->kind = NORMALIZE_PREPEND;
        return text_member(t, v, "prepend", NULL, &p->content, err);
    } else if (str_is(type, "Replace")) {
        p->kind = NORMALIZE_REPLACE;
        ROSE_TRY(text_member(t, v, "content", NULL, &p->content, err));
        return pattern_member(t, v, &p->pattern, err);
    } else if (str_is(type, "BertNormalizer")) {
        p->kind = NORMALIZE_BERT;
        p->clean = json_bool(json_get(v, "clean_text"), true),
        p->chinese = json_bool(json_get(v, "handle_chinese_chars"), true);
        p->lower = json_bool(json_get(v, "lowercase"), true);
        p->accents = json_bool(json_get(v, "strip_accents"), p->lower);
    } else if (str_is(type, "Precompiled")) {
        p->kind = NORMALIZE_CHARSMAP;
        return precompiled(t, v, p, err);
    } else {
        return unsupported(err, v, "normalizer", type);
    }
    return ROSE_OK;
}

/* --- pre_tokenizer
 * ------------------------------------------------------------------------------------------------------------
 */

static enum rose_status behavior_member(const struct json *v, enum split_behavior *out,
                                        struct rose_error *err)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    struct str s = json_str(json_get(v, "behavior"), "Isolated");
    for (int i = 0; i < 5; i++)
        if (str_is(s, names[i])) {
            *out = (enum split_behavior)i;
            return ROSE_OK;
        }
    return bad(err, v, "a behavior is none of the five");
}

static enum rose_status metaspace_scheme(const struct json *v, int *out, struct rose_error *err)
{
    struct str s = json_str(json_get(v, "prepend_scheme"), "always");
    *out = str_is(s, "always")  ? PREPEND_ALWAYS
           : str_is(s, "first") ? PREPEND_FIRST
           : str_is(s, "never") ? PREPEND_NEVER
                                : -1;
    const struct json *space = json_get(v, "add_prefix_space");
    if (json_is(space, JSON_FALSE)) *out = PREPEND_NEVER; /* the older member */
    return *out < 0 ? bad(err, v, "prepend_scheme is not always, first or never") : ROSE_OK;
}

static enum rose_status read_metaspace(const struct json *v, struct tokenizer *t, struct pretoken_step *p,
                                       struct rose_error *err)
{
    int scheme;
    ROSE_TRY(metaspace_scheme(v, &scheme, err));
    p->kind = PRETOKEN_METASPACE, p->prepend = scheme, p->split = json_bool(json_get(v, "split"), true);
    return text_member(t, v, "replacement", "\xE2\x96\x81", &p->replacement, err);
}

static enum rose_status read_pretokenizer(struct tokenizer *t, const struct json *v, struct str type,
                                          struct rose_error *err)
{
    if (t->pretokenizer_count + 2 > TOKENIZER_MAX_STEPS) return too_many(err);
    struct pretoken_step *p = &t->pretokenizer[t->pretokenizer_count++];
    if (str_is(type, "ByteLevel")) {
        static const char gpt2[] =
            "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
        p->kind = PRETOKEN_BYTE_LEVEL;
        p->add_prefix_space = json_bool(json_get(v, "add_prefix_space"), true),
        p->use_regex = json_bool(json_get(v, "use_regex"), true);
        return pattern_compile(&p->pattern, STR(gpt2), &t->arena, "ByteLevel", err);
    }
    if (str_is(type, "Split")) {
        p->kind = PRETOKEN_SPLIT;
        p->invert = json_bool(json_get(v, "invert"), false);
        ROSE_TRY(behavior_member(v, &p->behavior, err));
        return pattern_member(t, v, &p->pattern, err);
    }
    if (str_is(type, "Metaspace")) return read_metaspace(v, t, p, err);
    p->kind = PRETOKEN_CLASS;
    if (str_is(type, "Digits")) {
        p->flag = UC_NUMERIC;
        p->behavior = json_bool(json_get(v, "individual_digits"), false) ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    } else if (str_is(type, "Punctuation")) {
        p->flag = UC_PUNCT;
        return behavior_member(v, &p->behavior, err);
    } else if (str_is(type, "WhitespaceSplit")) {
        p->flag = UC_RUST_SPACE, p->behavior = SPLIT_REMOVED;
    } else if (str_is(type, "BertPreTokenizer")) {
        p->flag = UC_RUST_SPACE, p->behavior = SPLIT_REMOVED;
        t->pretokenizer[t->pretokenizer_count++] =
            (struct pretoken_step){.kind = PRETOKEN_CLASS, .flag = UC_PUNCT, .behavior = SPLIT_ISOLATED};
    } else if (str_is(type, "CharDelimiterSplit")) {
        p->behavior = SPLIT_REMOVED;
        return char_member(v, "delimiter", 0, &p->delimiter, err);
    } else if (str_is(type, "Whitespace")) {
        p->kind = PRETOKEN_WHITESPACE;
    } else if (str_is(type, "FixedLength")) {
        p->kind = PRETOKEN_FIXED;
        int64_t n = json_int(json_get(v, "length"), 5);
        if (n < 1) return bad(err, v, "length must be positive");
        p->length = (size_t)n;
    } else {
        return unsupported(err, v, "pre_tokenizer", type);
    }
    return ROSE_OK;
}

/* Where byte level comes last (but for splits it does not matter to), the words may stay raw bytes. */
static void mark_byte_level(struct tokenizer *t)
{
    size_t levels = 0;
    for (size_t i = 0; i < t->pretokenizer_count; i++)
        levels += t->pretokenizer[i].kind == PRETOKEN_BYTE_LEVEL;
    struct pretoken_step *last = t->pretokenizer_count ? &t->pretokenizer[t->pretokenizer_count - 1] : NULL;
    if (t->model != MODEL_BPE || levels != 1 || last->kind != PRETOKEN_BYTE_LEVEL || t->prefix.n ||
        t->suffix.n)
        return;
    last->last = true;
    t->byte_level = true;
}

/* --- post_processor
 * -----------------------------------------------------------------------------------------------------------
 */

/* ["[SEP]", 102] */
static bool named_id(const struct json *v, uint32_t *id)
{
    const struct json *n = json_is(v, JSON_ARRAY) && v->count == 2 ? json_at(v, 1) : NULL;
    if (json_int(n, -1) < 0 || json_int(n, -1) > INT32_MAX) return false;
    *id = (uint32_t)json_int(n, 0);
    return true;
}

static enum rose_status read_template(struct tokenizer *t, const struct json *v, const char *key,
                                      struct post_piece **out, size_t *count, struct rose_error *err)
{
    const struct json *list = json_get(v, key), *specials = json_get(v, "special_tokens");
    if (!json_is(list, JSON_ARRAY)) return bad(err, v, "a template is missing");
    size_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        total = 0;
        for (uint32_t i = 0; i < list->count; i++) {
            const struct json *seq = json_get(json_at(list, i), "Sequence"),
                              *tok = json_get(json_at(list, i), "SpecialToken");
            const struct json *item = seq ? seq : tok;
            struct str id = json_str(json_get(item, "id"), "");
            int64_t type = json_int(json_get(item, "type_id"), 0);
            if (!item || type < 0 || type > INT32_MAX)
                return bad(err, json_at(list, i),
                           "a piece of a template is neither a Sequence nor a SpecialToken");
            if (seq) {
                if (pass)
                    (*out)[total] =
                        (struct post_piece){str_is(id, "B") ? POST_TEXT_B : POST_TEXT_A, 0, (uint32_t)type};
                total++;
                continue;
            }
            const struct json *ids = NULL;
            for (uint32_t k = 0; json_is(specials, JSON_OBJECT) && k < specials->count; k++)
                if (str_eq(json_member(specials, k)->key, id)) ids = json_get(&json_member(specials, k)->value, "ids");
            if (!json_is(ids, JSON_ARRAY))
                return bad(err, item, "a template names a special token that special_tokens lacks");
            for (uint32_t k = 0; k < ids->count; k++, total++) {
                int64_t n = json_int(json_at(ids, k), -1);
                if (n < 0 || n > INT32_MAX)
                    return bad(err, json_at(ids, k), "an id in special_tokens is no id");
                if (pass) (*out)[total] = (struct post_piece){POST_ID, (uint32_t)n, (uint32_t)type};
            }
        }
        if (!pass && !(*out = ARENA_ARRAY(&t->arena, struct post_piece, total + 1)))
            return status_set(err, ROSE_NO_MEMORY, "no memory for the template");
    }
    *count = total;
    return ROSE_OK;
}

static enum rose_status read_post(struct tokenizer *t, const struct json *v, struct str type,
                                  struct rose_error *err)
{
    struct post *p = &t->post;
    if (str_is(type, "ByteLevel")) return ROSE_OK; /* only moves offsets */
    if (p->present) return unsupported(err, v, "second post_processor", type);
    bool roberta = str_is(type, "RobertaProcessing");
    p->present = true;
    if (str_is(type, "TemplateProcessing")) {
        ROSE_TRY(read_template(t, v, "single", &p->single, &p->single_count, err));
        return read_template(t, v, "pair", &p->pair, &p->pair_count, err);
    }
    if (!roberta && !str_is(type, "BertProcessing")) return unsupported(err, v, "post_processor", type);
    uint32_t sep, cls;
    if (!named_id(json_get(v, "sep"), &sep) || !named_id(json_get(v, "cls"), &cls))
        return bad(err, v, "sep and cls must be [token, id]");
    const struct post_piece pieces[] = {{POST_ID, cls, 0}, {POST_TEXT_A, 0, 0}, {POST_ID, sep, 0},
                                        {POST_ID, sep, 0}, {POST_TEXT_B, 0, 1}, {POST_ID, sep, 1}};
    p->single = arena_alloc(&t->arena, sizeof pieces);
    p->pair = arena_alloc(&t->arena, sizeof pieces);
    if (!p->single || !p->pair) return status_set(err, ROSE_NO_MEMORY, "no memory for the template");
    memcpy(p->single, pieces, 3 * sizeof *pieces);
    memcpy(p->pair, pieces, 3 * sizeof *pieces);
    memcpy(p->pair + 3, pieces + (roberta ? 3 : 4), (roberta ? 3 : 2) * sizeof *pieces);
    p->single_count = 3, p->pair_count = roberta ? 6 : 5;
    p->zero_types = roberta;
    return ROSE_OK;
}

/* --- decoder
 * --------------------------------------------------------------------------------------------------------------------
 */

static enum rose_status read_decoder(struct tokenizer *t, const struct json *v, struct str type,
                                     struct rose_error *err)
{
    if (t->decoder_count == TOKENIZER_MAX_STEPS) return too_many(err);
    struct decoder_step *d = &t->decoder[t->decoder_count++];
    if (str_is(type, "ByteLevel"))
        d->kind = DECODE_BYTE_LEVEL;
    else if (str_is(type, "ByteFallback"))
        d->kind = DECODE_BYTE_FALLBACK;
    else if (str_is(type, "Fuse"))
        d->kind = DECODE_FUSE;
    else if (str_is(type, "Metaspace")) {
        int scheme;
        d->kind = DECODE_METASPACE;
        ROSE_TRY(metaspace_scheme(v, &scheme, err));
        d->prepend = scheme != PREPEND_NEVER;
        return char_member(v, "replacement", 0x2581, &d->cp, err);
    } else if (str_is(type, "WordPiece")) {
        d->kind = DECODE_WORDPIECE;
        d->cleanup = json_bool(json_get(v, "cleanup"), true);
        return text_member(t, v, "prefix", "##", &d->content, err);
    } else if (str_is(type, "BPEDecoder")) {
        d->kind = DECODE_BPE;
        return text_member(t, v, "suffix", "</w>", &d->content, err);
    } else if (str_is(type, "Strip")) {
        d->kind = DECODE_STRIP;
        int64_t start = json_int(json_get(v, "start"), 0), stop = json_int(json_get(v, "stop"), 0);
        if (start < 0 || stop < 0) return bad(err, v, "start and stop must not be negative");
        d->start = (size_t)start, d->stop = (size_t)stop;
        return char_member(v, "content", ' ', &d->cp, err);
    } else if (str_is(type, "Replace")) {
        d->kind = DECODE_REPLACE;
        ROSE_TRY(text_member(t, v, "content", NULL, &d->content, err));
        return pattern_member(t, v, &d->pattern, err);
    } else if (str_is(type, "CTC")) {
        d->kind = DECODE_CTC;
        d->cleanup = json_bool(json_get(v, "cleanup"), true);
        ROSE_TRY(text_member(t, v, "pad_token", "<pad>", &d->content, err));
        return text_member(t, v, "word_delimiter_token", "|", &d->other, err);
    } else {
        return unsupported(err, v, "decoder", type);
    }
    return ROSE_OK;
}

static enum rose_status lower_first(struct tokenizer *t, struct rose_error *err)
{
    for (size_t i = 0; i < t->normalizer_count; i++)
        if (t->normalizer[i].kind == NORMALIZE_LOWER || (t->normalizer[i].kind == NORMALIZE_BERT && t->normalizer[i].lower)) return ROSE_OK;
    if (t->normalizer_count == TOKENIZER_MAX_STEPS) return too_many(err);
    memmove(t->normalizer + 1, t->normalizer, t->normalizer_count++ * sizeof *t->normalizer);
    t->normalizer[0] = (struct normalizer_step){.kind = NORMALIZE_LOWER};
    return ROSE_OK;
}

enum rose_status tokenizer_json_steps(struct tokenizer *t, const struct json *root, bool lower_case, struct rose_error *err)
{
    t->normalizer = ARENA_ARRAY(&t->arena, struct normalizer_step, TOKENIZER_MAX_STEPS);
    t->pretokenizer = ARENA_ARRAY(&t->arena, struct pretoken_step, TOKENIZER_MAX_STEPS);
    t->decoder = ARENA_ARRAY(&t->arena, struct decoder_step, TOKENIZER_MAX_STEPS);
    if (!t->normalizer || !t->pretokenizer || !t->decoder)
        return status_set(err, ROSE_NO_MEMORY, "no memory for the tokenizer");
    const struct json *decoder = json_get(root, "decoder");
    ROSE_TRY(each(t, json_get(root, "normalizer"), "normalizers", 0, read_normalizer, err));
    if (lower_case) ROSE_TRY(lower_first(t, err));
    ROSE_TRY(each(t, json_get(root, "pre_tokenizer"), "pretokenizers", 0, read_pretokenizer, err));
    ROSE_TRY(each(t, json_get(root, "post_processor"), "processors", 0, read_post, err));
    ROSE_TRY(each(t, decoder, "decoders", 0, read_decoder, err));
    t->has_decoder = !json_is_null(decoder);
    mark_byte_level(t);
    return ROSE_OK;
}
