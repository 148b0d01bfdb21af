/* Tokenizers from GGUF's arrays. Byte-level ones must agree with the same vocabulary as a tokenizer.json
 * (whose ids come from `tokenizers`), SentencePiece's with what `sentencepiece` itself gives
 * (tests/golden/make_tokenizer_spm.py). */
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

#define DIR "tests/golden/tokenizer/"

static struct arena arena;

static const struct json *read_json(const char *name)
{
    struct str text;
    struct rose_error err = {0};
    const struct json *root = NULL;
    CHECK_OK(file_read(&arena, arena_printf(&arena, DIR "%s.json", name), 1 << 22, &text, &err), err);
    CHECK_OK(json_parse(&arena, name, text, &root, &err), err);
    return root;
}

static struct tokenizer_vocab blank(void)
{
    return (struct tokenizer_vocab){.bos = -1,
                                    .eos = -1,
                                    .eot = -1,
                                    .unk = -1,
                                    .sep = -1,
                                    .pad = -1,
                                    .cls = -1,
                                    .mask = -1,
                                    .add_bos = -1,
                                    .add_eos = -1,
                                    .add_sep = -1,
                                    .add_space_prefix = -1,
                                    .remove_extra_whitespaces = -1};
}

/* The arrays of a byte-level tokenizer.json. */
static struct tokenizer_vocab arrays_of(const struct json *root, const char *pre)
{
    struct tokenizer_vocab v = blank();
    const struct json *vocab = json_path(root, "model.vocab"), *merges = json_path(root, "model.merges"),
                      *added = json_get(root, "added_tokens");
    size_t size = vocab->count;
    for (uint32_t i = 0; i < added->count; i++)
        size = ROSE_MAX(size, (size_t)json_int(json_get(&added->items[i], "id"), 0) + 1);
    struct str *tokens = ARENA_ARRAY(&arena, struct str, size),
               *pairs = ARENA_ARRAY(&arena, struct str, merges->count);
    int32_t *types = ARENA_ARRAY(&arena, int32_t, size);
    for (uint32_t i = 0; i < vocab->count; i++) {
        tokens[vocab->members[i].value.integer] = vocab->members[i].key;
        types[vocab->members[i].value.integer] = TOKEN_NORMAL;
    }
    for (uint32_t i = 0; i < added->count; i++) {
        int64_t id = json_int(json_get(&added->items[i], "id"), 0);
        tokens[id] = json_str(json_get(&added->items[i], "content"), "");
        types[id] =
            json_bool(json_get(&added->items[i], "special"), false) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    }
    for (uint32_t i = 0; i < merges->count; i++) {
        const struct json *m = &merges->items[i];
        char *text =
            arena_printf(&arena, "%.*s %.*s", STR_ARG(m->items[0].string), STR_ARG(m->items[1].string));
        pairs[i] = str_of(text);
    }
    v.model = STR("gpt2"), v.pre = str_of(pre);
    v.tokens = tokens, v.count = size, v.types = types, v.merges = pairs, v.merge_count = merges->count;
    return v;
}

static void same_ids(const struct tokenizer *a, const struct tokenizer *b, struct str text, unsigned flags)
{
    struct token_ids x = {0}, y = {0};
    struct rose_error err = {0};
    CHECK_OK(tokenizer_encode(a, text, flags, &x, &err), err);
    CHECK_OK(tokenizer_encode(b, text, flags, &y, &err), err);
    CHECK_INT(x.n, y.n);
    CHECK(x.n == y.n && (!x.n || !memcmp(x.p, y.p, x.n * sizeof *x.p)));
    token_ids_free(&x), token_ids_free(&y);
}

static uint32_t word(const char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* The texts of corpus.bin that are plain (and short); runs of code points are left to the golden test. */
typedef void each_text(void *context, size_t index, struct str text);
static void each(each_text *call, void *context)
{
    struct str file;
    struct rose_error err = {0};
    CHECK_OK(file_read(&arena, DIR "corpus.bin", 1 << 24, &file, &err), err);
    if (test_failures_) return;
    const char *p = file.p + 4;
    for (uint32_t i = 0, n = word(file.p); i < n; i++) {
        struct strbuf b = {0};
        if (word(p) == 0) {
            for (uint32_t k = 0; k < word(p + 4); k++) strbuf_add(&b, p + 12, word(p + 8));
            p += 12 + word(p + 8);
        } else {
            uint32_t pre = word(p + 16), post = word(p + 20);
            for (uint32_t k = 0; k < word(p + 8); k++) {
                char bytes[4];
                uint32_t cp = word(p + 4) + k * word(p + 12);
                if ((cp >= 0xD800 && cp < 0xE000) || cp >= 0x110000) continue;
                strbuf_add(&b, p + 24, pre);
                strbuf_add(&b, bytes, utf8_encode(cp, bytes));
                strbuf_add(&b, p + 24 + pre, post);
            }
            p += 24 + pre + post;
        }
        call(context, i, strbuf_str(&b));
        strbuf_free(&b);
    }
}

struct two {
    struct tokenizer *json, *gguf;
};

static void compare(void *context, size_t index, struct str text)
{
    struct two *two = context;
    (void)index;
    same_ids(two->json, two->gguf, text, TOKENIZER_PARSE_SPECIAL);
    if (text.n < 1000) same_ids(two->json, two->gguf, text, TOKENIZER_ADD_SPECIAL);
}

static void byte_level(const char *name, const char *pre, int64_t bos)
{
    struct two two = {0};
    struct rose_error err = {0};
    struct str text;
    CHECK_OK(file_read(&arena, arena_printf(&arena, DIR "%s.json", name), 1 << 22, &text, &err), err);
    struct tokenizer_files files = {.tokenizer_json = text};
    CHECK_OK(tokenizer_from_json(&files, &two.json, &err), err);
    struct tokenizer_vocab v = arrays_of(read_json(name), pre);
    v.bos = bos, v.add_bos = bos >= 0;
    CHECK_OK(tokenizer_from_vocab(&v, &two.gguf, &err), err);
    if (two.json && two.gguf) {
        each(compare, &two);
        CHECK_INT(tokenizer_facts(two.gguf)->bos, bos);
        CHECK_STR(tokenizer_facts(two.gguf)->kind, "bpe");
    }
    tokenizer_free(two.json), tokenizer_free(two.gguf);
}

TEST(gpt2)
{
    byte_level("gpt2", "gpt-2", -1);
}
TEST(smollm)
{
    byte_level("smollm", "smollm", -1);
}
TEST(llama3)
{
    byte_level("llama3", "llama-bpe", 1);
}
TEST(qwen2)
{
    byte_level("qwen2", "qwen2", -1);
}
TEST(qwen35)
{
    byte_level("qwen35", "qwen35", -1);
}
TEST(o200k)
{
    byte_level("o200k", "gpt-4o", -1);
}
TEST(tekken)
{
    byte_level("tekken", "tekken", -1);
}
TEST(deepseek3)
{
    byte_level("deepseek3", "deepseek-v3", -1);
}
TEST(falcon)
{
    byte_level("falcon", "falcon", -1);
}

/* --- SentencePiece
 * -------------------------------------------------------------------------------------------------------- */

struct spm {
    const struct tokenizer *t;
    struct str expected;
    int bad;
};

static void compare_spm(void *context, size_t index, struct str text)
{
    struct spm *c = context;
    struct token_ids ids = {0};
    struct strbuf out = {0};
    struct rose_error err = {0};
    CHECK_OK(tokenizer_encode(c->t, text, 0, &ids, &err), err);
    uint64_t h = 0xCBF29CE484222325ull;
    for (size_t i = 0; i < ids.n; i++) h = (h ^ ids.p[i]) * 0x100000001B3ull;
    uint32_t got = (uint32_t)(h ^ h >> 32), want = word(c->expected.p + 8 * index);
    if (got != want && c->bad++ < 5)
        fprintf(stderr, "text %zu, %zu bytes: \"%.60s\"\n", index, text.n, text.p);
    CHECK_INT(got, want);
    token_ids_free(&ids);
    strbuf_free(&out);
}

static void *base64(const char *text, size_t *n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *out = arena_alloc(&arena, strlen(text) + 4);
    uint32_t acc = 0, bits = 0;
    for (*n = 0; *text && *text != '='; text++) {
        acc = acc << 6 | (uint32_t)(strchr(digits, *text) - digits);
        if ((bits += 6) >= 8) out[(*n)++] = (uint8_t)(acc >> (bits -= 8));
    }
    return out;
}

static void sentencepiece(const char *name)
{
    const struct json *root = read_json(name), *tokens = json_get(root, "tokens"),
                      *scores = json_get(root, "scores"), *types = json_get(root, "types");
    struct tokenizer_vocab v = blank();
    struct str *texts = ARENA_ARRAY(&arena, struct str, tokens->count);
    float *values = ARENA_ARRAY(&arena, float, tokens->count);
    int32_t *kinds = ARENA_ARRAY(&arena, int32_t, tokens->count);
    for (uint32_t i = 0; i < tokens->count; i++) {
        texts[i] = tokens->items[i].string, values[i] = (float)scores->items[i].number,
        kinds[i] = (int32_t)types->items[i].integer;
    }
    v.model = json_str(json_get(root, "model"), "");
    v.tokens = texts, v.scores = values, v.types = kinds, v.count = tokens->count;
    v.bos = json_int(json_get(root, "bos"), -1), v.eos = json_int(json_get(root, "eos"), -1),
    v.unk = json_int(json_get(root, "unk"), -1);
    v.add_space_prefix = json_bool(json_get(root, "add_space_prefix"), true);
    v.remove_extra_whitespaces = json_bool(json_get(root, "remove_extra_whitespaces"), false);
    struct str map = json_str(json_get(root, "charsmap"), "");
    v.precompiled_charsmap.p = base64(arena_strndup(&arena, map.p, map.n), &v.precompiled_charsmap.n);
    struct rose_error err = {0};
    struct spm c = {0};
    struct tokenizer *t;
    CHECK_OK(file_read(&arena, arena_printf(&arena, DIR "%s.expected", name), 1 << 22, &c.expected, &err),
             err);
    CHECK_OK(tokenizer_from_vocab(&v, &t, &err), err);
    c.t = t;
    if (t) each(compare_spm, &c);
    tokenizer_free(t);
}

TEST(spm_llama)
{
    sentencepiece("spm_llama");
}
TEST(spm_gemma)
{
    sentencepiece("spm_gemma");
}
TEST(spm_unk)
{
    sentencepiece("spm_unk");
}
TEST(spm_t5)
{
    sentencepiece("spm_t5");
}

TEST(refuses)
{
    struct rose_error err = {0};
    struct tokenizer *t;
    struct str tokens[] = {STR("a"), STR("b"), STR("\xFF")}, merges[] = {STR("a b")};
    struct tokenizer_vocab v = blank();
    v.model = STR("gpt2"), v.tokens = tokens, v.count = 2;
    CHECK_OK(tokenizer_from_vocab(&v, &t, &err), err);
    tokenizer_free(t);
    v.pre = STR("no-such");
    CHECK_INT(tokenizer_from_vocab(&v, &t, &err), ROSE_UNSUPPORTED);
    CHECK(strstr(err.message, "no-such") && !t);
    v.pre = STR(""), v.count = 3;
    CHECK_INT(tokenizer_from_vocab(&v, &t, &err), ROSE_FORMAT);
    v.count = 2, v.merges = merges, v.merge_count = 1; /* "ab" is no token */
    CHECK_INT(tokenizer_from_vocab(&v, &t, &err), ROSE_FORMAT);
    v.merge_count = 0, v.bos = 2;
    CHECK_INT(tokenizer_from_vocab(&v, &t, &err), ROSE_FORMAT);
    v.bos = -1, v.model = STR("rwkv");
    CHECK_INT(tokenizer_from_vocab(&v, &t, &err), ROSE_UNSUPPORTED);
    v.model = STR("llama"); /* without scores */
    CHECK_INT(tokenizer_from_vocab(&v, &t, &err), ROSE_FORMAT);
    v.model = STR("gpt2"), v.count = 0;
    CHECK_INT(tokenizer_from_vocab(&v, &t, &err), ROSE_FORMAT);
}

TEST_MAIN(CASE(gpt2), CASE(smollm), CASE(llama3), CASE(qwen2), CASE(qwen35), CASE(o200k), CASE(tekken),
          CASE(deepseek3), CASE(falcon), CASE(spm_llama), CASE(spm_gemma), CASE(spm_unk), CASE(spm_t5),
          CASE(refuses))
