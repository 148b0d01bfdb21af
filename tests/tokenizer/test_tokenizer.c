/* What the golden tests do not see: control tokens in segments, limits, one BOS, facts, streams, threads,
 * refusals. */
#include "test.h"

#include <pthread.h>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

static struct arena arena;

static struct tokenizer *load(const char *name, const char *config)
{
    struct tokenizer_files files = {.config_json = str_of(config)};
    struct tokenizer *t = NULL;
    struct rose_error err = {0};
    CHECK_OK(file_read(&arena, arena_printf(&arena, "tests/golden/tokenizer/%s.json", name), 1 << 22,
                       &files.tokenizer_json, &err),
             err);
    CHECK_OK(tokenizer_from_json(&files, &t, &err), err);
    return t;
}

static int64_t id_of(const struct tokenizer *t, const char *token)
{
    return tokenizer_find(t, str_of(token));
}

static size_t count_of(const struct token_ids *ids, int64_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) n += ids->p[i] == id;
    return n;
}

TEST(segments)
{
    struct tokenizer *t = load("smollm", "");
    struct rose_error err = {0};
    struct token_ids ids = {0}, plain = {0};
    struct strbuf text = {0};
    int64_t start = id_of(t, "<|im_start|>"), end = id_of(t, "<|im_end|>");
    CHECK(start >= 0 && end >= 0);
    /* The user writes a control token, and one whose halves lie on a border; a \xF0… character is cut by a
     * border too. */
    const struct tokenizer_segment parts[] = {{STR("<|im_start|>user\n"), true},
                                              {STR("hi <|im_end|> x<|im_"), false},
                                              {STR("end|>"), true},
                                              {STR("\xF0\x9F"), false},
                                              {STR("\x99\x82"), true},
                                              {STR("<|im_end|>"), true},
                                              {STR("bad \xFF<|im_end|>"), false},
                                              {STR("<|im_end|>"), true}};
    CHECK_OK(tokenizer_encode_segments(t, parts, ROSE_COUNT(parts), TOKENIZER_PARSE_SPECIAL, &ids, &err),
             err);
    CHECK_INT(count_of(&ids, start), 1);
    CHECK_INT(count_of(&ids, end), 2);
    CHECK_INT(ids.p[0], start);
    CHECK_INT(ids.p[ids.n - 1], end);
    CHECK_OK(tokenizer_decode(t, ids.p, ids.n, 0, &text, &err), err);
    CHECK_STR(text.p, "<|im_start|>user\nhi <|im_end|> x<|im_end|>\xF0\x9F\x99\x82<|im_end|>"
                      "bad \xEF\xBF\xBD<|im_end|><|im_end|>");
    /* Words run across borders: the ids are those of the whole text. */
    const struct tokenizer_segment halves[] = {
        {STR("The engi"), true}, {STR("ne reads th"), false}, {STR("e file on"), true}, {STR("ce"), false}};
    ids.n = 0;
    CHECK_OK(tokenizer_encode_segments(t, halves, 4, TOKENIZER_PARSE_SPECIAL, &ids, &err), err);
    CHECK_OK(tokenizer_encode(t, STR("The engine reads the file once"), 0, &plain, &err), err);
    CHECK(ids.n == plain.n && !memcmp(ids.p, plain.p, ids.n * sizeof *ids.p));
    token_ids_free(&ids), token_ids_free(&plain);
    strbuf_free(&text);
    tokenizer_free(t);
}

/* Special tokens that want normalised text are found in trusted ranges alone, also beside plain text. */
TEST(segments_normalized)
{
    struct tokenizer *t = load("added", "");
    struct rose_error err = {0};
    struct token_ids ids = {0};
    int64_t x = id_of(t, "[x]");
    const struct tokenizer_segment parts[] = {
        {STR("a [x] b "), true}, {STR("c [x] d [X] "), false}, {STR("e [x] f"), true}};
    CHECK_OK(tokenizer_encode_segments(t, parts, 3, TOKENIZER_PARSE_SPECIAL, &ids, &err), err);
    CHECK_INT(count_of(&ids, x), 2);
    token_ids_free(&ids);
    tokenizer_free(t);
}

TEST(one_bos)
{
    struct tokenizer *t =
        load("llama3", "{\"bos_token\":\"<|im_start|>\",\"eos_token\":{\"content\":\"<|im_end|>\"}}");
    struct rose_error err = {0};
    struct token_ids ids = {0};
    const struct tokenizer_facts *f = tokenizer_facts(t);
    CHECK_INT(f->bos, id_of(t, "<|im_start|>"));
    CHECK_INT(f->eos, id_of(t, "<|im_end|>"));
    CHECK(f->add_bos && !f->add_eos);
    unsigned all = TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL;
    CHECK_OK(tokenizer_encode(t, STR("<|im_start|>hi"), all, &ids, &err), err);
    CHECK_INT(count_of(&ids, f->bos), 2); /* as the reference has it */
    ids.n = 0;
    CHECK_OK(tokenizer_encode(t, STR("<|im_start|>hi"), all | TOKENIZER_ONE_BOS, &ids, &err), err);
    CHECK_INT(count_of(&ids, f->bos), 1);
    ids.n = 0;
    CHECK_OK(tokenizer_encode(t, STR("hi"), all | TOKENIZER_ONE_BOS, &ids, &err), err);
    CHECK_INT(count_of(&ids, f->bos), 1);
    CHECK_INT(ids.p[0], f->bos);
    token_ids_free(&ids);
    tokenizer_free(t);
}

TEST(limit)
{
    static const char *const names[] = {"smollm", "llama2", "t5", "bert", "unigram_bytes"};
    for (size_t k = 0; k < ROSE_COUNT(names); k++) {
        struct tokenizer *t = load(names[k], "");
        struct rose_error err = {0};
        struct token_ids all = {0};
        struct str text =
            STR("The engine \xE5\xAD\x97 reads the\n\nfile 123 once, \xF0\x9F\x99\x82 never twice.");
        CHECK_OK(tokenizer_encode(t, text, TOKENIZER_ADD_SPECIAL, &all, &err), err);
        for (size_t limit = 1; limit <= all.n + 1; limit++) {
            struct token_ids some = {.limit = limit};
            enum rose_status status = tokenizer_encode(t, text, TOKENIZER_ADD_SPECIAL, &some, &err);
            CHECK_INT(status, limit < all.n ? ROSE_LIMIT : ROSE_OK);
            CHECK(some.n <= limit);
            token_ids_free(&some);
        }
        token_ids_free(&all);
        tokenizer_free(t);
    }
}

TEST(pieces)
{
    struct tokenizer *t = load("smollm", ""), *l = load("llama2", "");
    struct strbuf b = {0};
    CHECK_INT(tokenizer_facts(t)->vocab_size, 700);
    CHECK_STR(tokenizer_facts(t)->kind, "bpe");
    CHECK(tokenizer_piece(t, (uint32_t)id_of(t, "\xC4\xA0t"), &b)); /* Ġt */
    CHECK_STR(b.p, " t");
    b.n = 0;
    CHECK(tokenizer_piece(t, (uint32_t)id_of(t, "\xC3\xBF"), &b)); /* the letter of byte 0xFF */
    CHECK(b.n == 1 && (uint8_t)b.p[0] == 0xFF);
    b.n = 0;
    CHECK(tokenizer_piece(l, (uint32_t)id_of(l, "<0x0A>"), &b));
    CHECK_STR(b.p, "\n");
    b.n = 0;
    CHECK(tokenizer_piece(l, (uint32_t)id_of(l, "\xE2\x96\x81"), &b));
    CHECK_STR(b.p, " ");
    CHECK(!tokenizer_piece(t, 700, &b));
    CHECK(!tokenizer_token(t, 4000000000u).p);
    CHECK_INT(tokenizer_find(t, STR("no such token")), -1);
    CHECK(tokenizer_is_special(t, (uint32_t)id_of(t, "<|im_end|>")) && !tokenizer_is_special(t, 600) &&
          !tokenizer_is_special(t, 4000000000u));
    CHECK_INT(tokenizer_facts(l)->unk, id_of(l, "<unk>"));
    strbuf_free(&b);
    tokenizer_free(t), tokenizer_free(l);
}

/* Any sequence of ids, however broken: every part shown is whole characters, and together they are the text.
 */
TEST(streams)
{
    static const char *const names[] = {"smollm",     "llama2",        "t5",        "bert", "bpe_suffix",
                                        "punct_next", "punct_removed", "wordlevel", "gemma"};
    for (size_t k = 0; k < ROSE_COUNT(names); k++) {
        struct tokenizer *t = load(names[k], "");
        struct token_stream s;
        struct rose_error err = {0};
        uint32_t seed = 12345, size = (uint32_t)tokenizer_facts(t)->vocab_size;
        token_stream_init(&s, t, TOKENIZER_SKIP_SPECIAL);
        for (int round = 0; round < 200; round++) {
            struct strbuf whole = {0}, joined = {0};
            struct str part;
            uint32_t ids[40];
            size_t n = (size_t)round % 40;
            for (size_t i = 0; i < n; i++)
                seed = seed * 1664525 + 1013904223, ids[i] = (seed >> 8) % (round % 3 ? size : 300);
            for (size_t i = 0; i < n; i++) {
                CHECK_OK(token_stream_add(&s, ids[i], &part, &err), err);
                CHECK(utf8_valid(part));
                strbuf_add(&joined, part.p, part.n);
            }
            CHECK_OK(token_stream_end(&s, &part, &err), err);
            CHECK(utf8_valid(part));
            strbuf_add(&joined, part.p, part.n);
            CHECK_OK(tokenizer_decode(t, ids, n, TOKENIZER_SKIP_SPECIAL, &whole, &err), err);
            CHECK(str_eq(strbuf_str(&whole), strbuf_str(&joined)));
            strbuf_free(&whole), strbuf_free(&joined);
        }
        token_stream_free(&s);
        tokenizer_free(t);
    }
}

TEST(korean_stream)
{
    struct tokenizer *t = load("smollm", "");
    struct token_ids ids = {0};
    struct token_stream s;
    struct rose_error err = {0};
    struct str part,
        text = STR(
            "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 \xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 \xE5\xAD\x97");
    struct strbuf joined = {0};
    CHECK_OK(tokenizer_encode(t, text, 0, &ids, &err), err);
    token_stream_init(&s, t, 0);
    for (size_t i = 0; i < ids.n; i++) {
        CHECK_OK(token_stream_add(&s, ids.p[i], &part, &err), err);
        strbuf_add(&joined, part.p, part.n);
        CHECK(str_find(strbuf_str(&joined), STR("\xEF\xBF\xBD"), 0) < 0);
    }
    CHECK(str_eq(strbuf_str(&joined), text)); /* nothing waits for the end */
    /* and half a character at the end becomes U+FFFD, once */
    CHECK_OK(token_stream_add(&s, (uint32_t)id_of(t, "\xC3\xB0"), &part, &err), err);
    CHECK_INT(part.n, 0);
    CHECK_OK(token_stream_end(&s, &part, &err), err);
    CHECK(str_eq(part, STR("\xEF\xBF\xBD")));
    token_stream_free(&s);
    token_ids_free(&ids);
    strbuf_free(&joined);
    tokenizer_free(t);
}

TEST(clean_up)
{
    struct tokenizer *t =
        load("bert_cased",
             "{\"clean_up_tokenization_spaces\":true,\"cls_token\":\"[CLS]\",\"sep_token\":\"[SEP]\"}");
    struct token_ids ids = {0};
    struct strbuf text = {0};
    struct rose_error err = {0};
    CHECK(tokenizer_facts(t)->clean_up && tokenizer_facts(t)->add_bos && tokenizer_facts(t)->add_eos);
    CHECK_OK(tokenizer_encode(t, STR("we are sure , not that , they . it ' s !"), TOKENIZER_ADD_SPECIAL, &ids,
                              &err),
             err);
    CHECK_OK(tokenizer_decode(t, ids.p, ids.n, TOKENIZER_SKIP_SPECIAL | TOKENIZER_CLEAN_UP, &text, &err),
             err);
    CHECK_STR(text.p, "we are sure, not that, they. it's!");
    token_ids_free(&ids);
    strbuf_free(&text);
    tokenizer_free(t);
}

struct worker {
    const struct tokenizer *t;
    struct str text;
    const struct token_ids *want;
    bool same;
};

static void *work(void *p)
{
    struct worker *w = p;
    w->same = true;
    for (int i = 0; i < 20; i++) {
        struct token_ids ids = {0};
        if (tokenizer_encode(w->t, w->text, 0, &ids, NULL) || ids.n != w->want->n ||
            memcmp(ids.p, w->want->p, ids.n * sizeof *ids.p))
            w->same = false;
        token_ids_free(&ids);
    }
    return NULL;
}

TEST(threads)
{
    struct tokenizer *t = load("smollm", "");
    struct token_ids want = {0};
    struct rose_error err = {0};
    struct str text;
    CHECK_OK(file_read(&arena, "tests/golden/tokenizer/gpt2.json", 1 << 20, &text, &err), err);
    CHECK_OK(tokenizer_encode(t, text, 0, &want, &err), err);
    struct worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){t, text, &want, false};
        CHECK_INT(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(workers[i].same);
    }
    token_ids_free(&want);
    tokenizer_free(t);
}

TEST(refuses)
{
    static const struct {
        const char *json, *says;
        enum rose_status status;
    } bad[] = {
        {"", "JSON", ROSE_FORMAT},
        {"[]", "no object", ROSE_FORMAT},
        {"{}", "model", ROSE_FORMAT},
        {"{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}", "Magic", ROSE_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges", ROSE_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}}", "far beyond",
         ROSE_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "whole number", ROSE_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "lacks", ROSE_FORMAT},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}", "two tokens", ROSE_FORMAT},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":7}}", "unk_id", ROSE_FORMAT},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"normalizer\":{\"type\":\"Nope\"}}",
         "Nope", ROSE_UNSUPPORTED},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"pre_tokenizer\":{\"type\":\"Nope\"}}",
         "Nope", ROSE_UNSUPPORTED},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"decoder\":{\"type\":\"Nope\"}}", "Nope",
         ROSE_UNSUPPORTED},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"Nope\"}}",
         "Nope", ROSE_UNSUPPORTED},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"pre_tokenizer\":{\"type\":\"Split\","
         "\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}}",
         "regular expression", ROSE_UNSUPPORTED},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}},\"normalizer\":{\"type\":\"Precompiled\","
         "\"precompiled_charsmap\":\"////\"}}",
         "charsmap", ROSE_FORMAT},
    };
    for (size_t i = 0; i < ROSE_COUNT(bad); i++) {
        struct tokenizer_files files = {.tokenizer_json = str_of(bad[i].json)};
        struct tokenizer *t;
        struct rose_error err = {0};
        CHECK_INT(tokenizer_from_json(&files, &t, &err), bad[i].status);
        CHECK(!t && strstr(err.message, bad[i].says));
        if (!strstr(err.message, bad[i].says)) fprintf(stderr, "case %zu says \"%s\"\n", i, err.message);
    }
    for (int which = 0; which < 2; which++) {
        struct tokenizer_files files = {.tokenizer_json = STR("{}")};
        struct tokenizer *t;
        struct rose_error err = {0};
        *(which ? &files.special_tokens_map : &files.config_json) = STR("[]");
        CHECK_INT(tokenizer_from_json(&files, &t, &err), ROSE_FORMAT);
        CHECK_STR(err.message, which ? "special_tokens_map.json: the file is no object" : "tokenizer_config.json: the file is no object");
    }
}

/* A word that the vocabulary lacks, without an unknown token, is an error and not a silent gap. */
TEST(no_unknown)
{
    struct tokenizer_files files = {.tokenizer_json =
                                        STR("{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}")};
    struct tokenizer *t;
    struct token_ids ids = {0};
    struct rose_error err = {0};
    CHECK_OK(tokenizer_from_json(&files, &t, &err), err);
    CHECK_OK(tokenizer_encode(t, STR("a"), 0, &ids, &err), err);
    CHECK_INT(tokenizer_encode(t, STR("b"), 0, &ids, &err), ROSE_INVALID);
    token_ids_free(&ids);
    tokenizer_free(t);
}

TEST_MAIN(CASE(segments), CASE(segments_normalized), CASE(one_bos), CASE(limit), CASE(pieces), CASE(streams),
          CASE(korean_stream), CASE(clean_up), CASE(threads), CASE(refuses), CASE(no_unknown))
