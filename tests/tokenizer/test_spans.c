/* Where tokens lie in their text, against Hugging Face `tokenizers` (tests/golden/make_spans.py), and what it has no word for. */
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

static struct arena arena;

static struct tokenizer *load(struct str name)
{
    struct tokenizer_files files = {0};
    struct tokenizer *t = NULL;
    struct rose_error err = {0};
    CHECK_OK(file_read(&arena, arena_printf(&arena, "tests/golden/tokenizer/%.*s.json", STR_ARG(name)), 1 << 22, &files.tokenizer_json, &err), err);
    CHECK_OK(tokenizer_from_json(&files, &t, &err), err);
    return t;
}

/* How many of its tokens lie elsewhere than the reference says. */
static int differ(const struct tokenizer *t, const struct json *row)
{
    struct rose_error err = {0};
    struct token_ids ids = {0};
    struct str text = json_str(json_get(row, "text"), "");
    const struct json *want = json_get(row, "spans"), *want_ids = json_get(row, "ids");
    int wrong = 0;
    CHECK_OK(tokenizer_encode(t, text, 0, &ids, &err), err);
    CHECK_INT(ids.n, want_ids->count);
    struct token_span *got = calloc(ids.n + 1, sizeof *got);
    CHECK_OK(tokenizer_spans(t, text, ids.p, ids.n, got, &err), err);
    for (uint32_t i = 0; i < ids.n; i++) {
        int64_t start = json_int(&want->items[2 * i], 0), stop = json_int(&want->items[2 * i + 1], 0);
        CHECK(got[i].start >= 0 && got[i].start <= got[i].stop && got[i].stop <= (int64_t)text.n);
        CHECK(!i || got[i].start >= got[i - 1].start);
        bool same = start < 0 || (got[i].start == start && got[i].stop == stop);
        wrong += !same;
        if (!same) if (test_verbose_) printf("%.*s: \"%.*s\" token %u (%.*s) at %lld..%lld, tokenizers has %lld..%lld\n", STR_ARG(json_str(json_get(row, "tokenizer"), "")), STR_ARG(text), i,
                            STR_ARG(tokenizer_token(t, ids.p[i])), (long long)got[i].start, (long long)got[i].stop, (long long)start, (long long)stop);
    }
    free(got);
    token_ids_free(&ids);
    return wrong;
}

TEST(as_tokenizers)
{
    struct str text, name = {0};
    const struct json *rows;
    struct rose_error err = {0};
    struct tokenizer *t = NULL;
    int wrong = 0;
    CHECK_OK(file_read(&arena, "tests/golden/spans.json", 1 << 22, &text, &err), err);
    CHECK_OK(json_parse(&arena, NULL, text, &rows, &err), err);
    for (uint32_t i = 0; i < rows->count; i++) {
        struct str next = json_str(json_get(&rows->items[i], "tokenizer"), "");
        if (!str_eq(next, name)) {
            tokenizer_free(t);
            t = load(next);
        }
        name = next;
        wrong += differ(t, &rows->items[i]);
    }
    tokenizer_free(t);
    CHECK_INT(wrong, 0);
}

/* Tokens that have nothing to do with the text, bytes that are no letters: every place is inside of it, none goes back, and together they are hardly longer
 * than the text, so that nobody can ask for more of it than there is. */
TEST(bounds)
{
    struct rose_error err = {0};
    const struct str texts[] = {STR(""), STR(" "), STR("\xFF\xFE a \xF0\x9F"), STR("\xE2\x98\x83 \xE2\x98\x83 a\xE2\x98\x83 b"), STR("one two three four five six seven"), STR("\xE2\x96\x81\xE2\x96\x81")};
    static const char *const names[] = {"bert", "llama2", "gpt2"};
    for (size_t k = 0; k < ROSE_COUNT(names); k++) {
        struct tokenizer *t = load(str_of(names[k]));
        uint32_t size = (uint32_t)tokenizer_facts(t)->vocab_size, state = 1;
        for (size_t i = 0; i < ROSE_COUNT(texts); i++)
            for (size_t n = 0; n < 40; n++) {
                uint32_t ids[40];
                struct token_span got[40];
                int64_t sum = 0, unk = tokenizer_facts(t)->unk;
                for (size_t j = 0; j < n; j++) {
                    state = state * 1664525 + 1013904223;
                    ids[j] = state >> 30 == 0 && unk >= 0 ? (uint32_t)unk : (state >> 8) % size;
                }
                CHECK_OK(tokenizer_spans(t, texts[i], ids, n, got, &err), err);
                for (size_t j = 0; j < n; j++) {
                    CHECK(got[j].start >= 0 && got[j].start <= got[j].stop && got[j].stop <= (int64_t)texts[i].n && (!j || got[j].start >= got[j - 1].start));
                    sum += got[j].stop - got[j].start;
                }
                CHECK(sum <= (int64_t)(2 * texts[i].n + 4 * n));
            }
        tokenizer_free(t);
    }
}

TEST_MAIN(CASE(as_tokenizers), CASE(bounds))
