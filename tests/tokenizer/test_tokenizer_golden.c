/* Every tokenizer of tests/golden/tokenizer against what Hugging Face `tokenizers` made of the hard corpus.
 */
#include "test.h"

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

#define DIR "tests/golden/tokenizer/"
enum { ON, OFF, FULL, SKIP, PAIR, VIEWS };

static struct arena arena;
static struct str *texts;
static size_t text_count;

static uint32_t word(const char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint64_t mix(uint64_t h, uint32_t v)
{
    return (h ^ v) * 0x100000001B3ull;
}
static const uint64_t START = 0xCBF29CE484222325ull;
static uint32_t fold(uint64_t h)
{
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t fold_ids(const struct token_ids *a, const struct token_ids *b)
{
    uint64_t h = START;
    for (size_t i = 0; i < a->n; i++) h = mix(h, a->p[i]);
    for (size_t i = 0; b && i < b->n; i++) h = mix(h, b->p[i]);
    return fold(h);
}

static uint32_t fold_text(const struct strbuf *s)
{
    uint64_t h = START;
    for (size_t i = 0; i < s->n; i++) h = mix(h, (uint8_t)s->p[i]);
    return fold(h);
}

/* The recipes of corpus.bin: a repeated piece, or a run of code points (see make_tokenizer.py). */
static void load_corpus(void)
{
    struct str file;
    struct rose_error err = {0};
    if (texts) return;
    CHECK_OK(file_read(&arena, DIR "corpus.bin", 1 << 24, &file, &err), err);
    if (test_failures_) return;
    text_count = word(file.p);
    texts = ARENA_ARRAY(&arena, struct str, text_count);
    const char *p = file.p + 4;
    for (size_t i = 0; i < text_count; i++) {
        struct strbuf b = {0};
        if (word(p) == 0) {
            uint32_t repeat = word(p + 4), n = word(p + 8);
            for (uint32_t k = 0; k < repeat; k++) strbuf_add(&b, p + 12, n);
            p += 12 + n;
        } else {
            uint32_t first = word(p + 4), count = word(p + 8), step = word(p + 12), pre = word(p + 16),
                     post = word(p + 20);
            for (uint32_t k = 0; k < count; k++) {
                uint32_t cp = first + k * step;
                char bytes[4];
                if ((cp >= 0xD800 && cp < 0xE000) || cp >= 0x110000) continue;
                strbuf_add(&b, p + 24, pre);
                strbuf_add(&b, bytes, utf8_encode(cp, bytes));
                strbuf_add(&b, p + 24 + pre, post);
            }
            p += 24 + pre + post;
        }
        texts[i] = (struct str){arena_strndup(&arena, b.n ? b.p : "", b.n), b.n};
        strbuf_free(&b);
    }
    CHECK(p == file.p + file.n);
}

/* The first n code points of the text as it is after repair. */
static struct str beginning(struct str s, size_t n)
{
    struct strbuf b = {0};
    for (size_t i = 0, w; i < s.n && n; i += w, n--) {
        uint32_t cp;
        w = utf8_decode((struct str){s.p + i, s.n - i}, &cp);
        if (cp == UTF8_INVALID)
            strbuf_adds(&b, "\xEF\xBF\xBD");
        else
            strbuf_add(&b, s.p + i, w);
    }
    struct str copy = {arena_strndup(&arena, b.n ? b.p : "", b.n), b.n};
    strbuf_free(&b);
    return copy;
}

/* A stream fed id by id gives the same text, in whole characters. */
static bool streams_alike(const struct tokenizer *t, const struct token_ids *ids, const struct strbuf *want)
{
    struct token_stream s;
    struct strbuf got = {0};
    struct str part;
    struct rose_error err;
    token_stream_init(&s, t, 0);
    bool good = true;
    for (size_t i = 0; i <= ids->n; i++) {
        enum rose_status status =
            i < ids->n ? token_stream_add(&s, ids->p[i], &part, &err) : token_stream_end(&s, &part, &err);
        good = good && !status && utf8_valid(part);
        strbuf_add(&got, part.p, part.n);
    }
    good = good && str_eq(strbuf_str(&got), strbuf_str(want));
    token_stream_free(&s);
    strbuf_free(&got);
    return good;
}

static void check(const struct tokenizer *t, const char *name, size_t i, const uint32_t *want,
                  struct str other, int *bad)
{
    static const char *const views[] = {"ids", "ids of plain text", "decoded",
                                        "decoded without control tokens", "pair"};
    struct token_ids on = {0}, off = {0}, pair = {0}, types = {0};
    struct strbuf full = {0}, skip = {0};
    struct rose_error err = {0};
    uint32_t got[VIEWS] = {0};
    CHECK_OK(tokenizer_encode(t, texts[i], TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, &on, &err), err);
    bool small = texts[i].n < 8000; /* the long ones only in full */
    if (small) CHECK_OK(tokenizer_encode(t, texts[i], 0, &off, &err), err);
    if (want[FULL] || texts[i].n < 2000) CHECK_OK(tokenizer_decode(t, on.p, on.n, 0, &full, &err), err);
    if (want[SKIP] && small)
        CHECK_OK(tokenizer_decode(t, on.p, on.n, TOKENIZER_SKIP_SPECIAL, &skip, &err), err);
    if (want[PAIR])
        CHECK_OK(tokenizer_encode_pair(t, texts[i], other, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL,
                                       &pair, &types, &err),
                 err);
    got[ON] = fold_ids(&on, NULL), got[OFF] = fold_ids(&off, NULL), got[FULL] = fold_text(&full),
    got[SKIP] = fold_text(&skip);
    got[PAIR] = fold_ids(&pair, &types);
    for (int v = 0; v < VIEWS; v++) {
        bool compared = v == ON || (want[v] && (small || v == FULL));
        if (!compared || got[v] == want[v]) continue;
        CHECK_INT(got[v], want[v]);
        if ((*bad)++ < 5)
            fprintf(stderr, "%s: text %zu (%zu bytes, \"%.40s\"): %s differ\n", name, i, texts[i].n,
                    texts[i].p, views[v]);
    }
    int64_t unk = tokenizer_facts(t)->unk;
    for (size_t k = 0; k < off.n; k++)
        if (tokenizer_is_special(t, off.p[k]) && off.p[k] != unk) CHECK_INT(off.p[k], -1);
    if (texts[i].n < 2000) CHECK(streams_alike(t, &on, &full));
    token_ids_free(&on), token_ids_free(&off), token_ids_free(&pair), token_ids_free(&types);
    strbuf_free(&full), strbuf_free(&skip);
}

static void golden(const char *name)
{
    struct str json, expected;
    struct rose_error err = {0};
    char path[128];
    load_corpus();
    snprintf(path, sizeof path, DIR "%s.json", name);
    CHECK_OK(file_read(&arena, path, 1 << 22, &json, &err), err);
    snprintf(path, sizeof path, DIR "%s.expected", name);
    CHECK_OK(file_read(&arena, path, 1 << 22, &expected, &err), err);
    if (test_failures_) return;
    CHECK_INT(expected.n, text_count * VIEWS * 4);
    struct tokenizer *t;
    struct tokenizer_files files = {.tokenizer_json = json};
    CHECK_OK(tokenizer_from_json(&files, &t, &err), err);
    if (!t || test_failures_) return;
    int bad = 0;
    for (size_t i = 0; i < text_count; i++) {
        uint32_t want[VIEWS];
        memcpy(want, expected.p + i * sizeof want, sizeof want);
        check(t, name, i, want, i ? beginning(texts[i - 1], 200) : STR("x"), &bad);
    }
    tokenizer_free(t);
}

#define GOLDEN(NAME)   \
    TEST(NAME)         \
    {                  \
        golden(#NAME); \
    }
GOLDEN(gpt2)
GOLDEN(roberta)
GOLDEN(smollm)
GOLDEN(llama3)
GOLDEN(qwen2)
GOLDEN(qwen35)
GOLDEN(o200k)
GOLDEN(tekken)
GOLDEN(deepseek3)
GOLDEN(deepseek_coder)
GOLDEN(falcon)
GOLDEN(unknown_regex)
GOLDEN(nfkc_bytes)
GOLDEN(added)
GOLDEN(norm_bytes)
GOLDEN(llama2)
GOLDEN(llama2_first)
GOLDEN(mistral_always)
GOLDEN(gemma)
GOLDEN(t5)
GOLDEN(xlmr)
GOLDEN(unigram_bytes)
GOLDEN(unigram_never)
GOLDEN(bert)
GOLDEN(bert_cased)
GOLDEN(bert_odd)
GOLDEN(wordpiece_plain)
GOLDEN(wordlevel)
GOLDEN(wordlevel_lower)
GOLDEN(clip)
GOLDEN(bpe_prefix)
GOLDEN(bpe_suffix)
GOLDEN(punct_next)
GOLDEN(punct_removed)
GOLDEN(splits)

TEST_MAIN(CASE(gpt2), CASE(roberta), CASE(smollm), CASE(llama3), CASE(qwen2), CASE(qwen35), CASE(o200k),
          CASE(tekken), CASE(deepseek3), CASE(deepseek_coder), CASE(falcon), CASE(unknown_regex),
          CASE(nfkc_bytes), CASE(added), CASE(norm_bytes), CASE(llama2), CASE(llama2_first),
          CASE(mistral_always), CASE(gemma), CASE(t5), CASE(xlmr), CASE(unigram_bytes), CASE(unigram_never),
          CASE(bert), CASE(bert_cased), CASE(bert_odd), CASE(wordpiece_plain), CASE(wordlevel),
          CASE(wordlevel_lower), CASE(clip), CASE(bpe_prefix), CASE(bpe_suffix), CASE(punct_next),
          CASE(punct_removed), CASE(splits))
