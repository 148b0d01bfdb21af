#include "expect.h"

static struct weights *open_golden(const char *name)
{
    char path[256];
    struct weights *w = NULL;
    struct rose_error err;
    snprintf(path, sizeof path, "tests/golden/weights/%s", name);
    CHECK_OK(weights_open(path, &w, &err), err);
    return w;
}

TEST(golden_tensors)
{
    struct weights *w = open_golden("types.gguf");
    if (!w) return;
    CHECK_INT(weights_kind(w), WEIGHTS_GGUF);
    CHECK_INT(expect_golden(w, "types.gguf "), 21);
    CHECK_INT(weights_count(w), 21);
    CHECK(weights_find(w, "blk.0.tq1_0.weight")->tensor.dtype == DTYPE_NONE);
    CHECK(!weights_find(w, "blk.0.tq1_0.weigh") && !weights_find(w, ""));
    touch_all(w);
    weights_close(w);
}

TEST(golden_metadata)
{
    struct weights *w = open_golden("types.gguf");
    struct rose_error err = {0};
    uint64_t u = 1;
    int64_t i = 0;
    double d = 0;
    bool b = false;
    struct str s;
    if (!w) return;
    static const struct {
        const char *key;
        long long value;
    } integers[] = {{"t.u8", 200},         {"t.i8", -100},         {"t.u16", 60000},       {"t.i16", -30000},
                    {"t.u32", 4000000000}, {"t.i32", -2000000000}, {"t.i64", -(1ll << 62)}};
    for (size_t k = 0; k < ROSE_COUNT(integers); k++) {
        CHECK_OK(gguf_i64(w, integers[k].key, &i, &err), err);
        CHECK_INT(i, integers[k].value);
        CHECK_OK(gguf_f64(w, integers[k].key, &d, &err), err);
        CHECK_NEAR(d, (double)integers[k].value, 0);
    }
    CHECK_OK(gguf_u64(w, "t.u64", &u, &err), err);
    CHECK(u == (1ull << 63) + 5);
    CHECK_INT(gguf_i64(w, "t.u64", &i, &err), ROSE_FORMAT);
    CHECK_INT(gguf_u64(w, "t.i8", &u, &err), ROSE_FORMAT);
    CHECK_OK(gguf_f64(w, "t.f32", &d, &err), err);
    CHECK_NEAR(d, 0.15625, 0);
    CHECK_OK(gguf_f64(w, "t.f64", &d, &err), err);
    CHECK_NEAR(d, 1e300, 0);
    CHECK_OK(gguf_bool(w, "t.true", &b, &err), err);
    CHECK(b);
    CHECK_OK(gguf_bool(w, "t.false", &b, &err), err);
    CHECK(!b);
    CHECK_OK(gguf_str(w, "t.string", &s, &err), err);
    CHECK(str_is(s, "Grüße, 世界"));
    CHECK_OK(gguf_str(w, "t.empty", &s, &err), err);
    CHECK_INT(s.n, 0);
    const struct gguf_value *v = gguf_get(w, "t.u64s");
    CHECK(v && v->type == GGUF_ARRAY && v->item == GGUF_U64 && v->count == 2);
    CHECK(gguf_int(v, 0, &i) && i == 1 && !gguf_int(v, 1, &i) && !gguf_int(v, 2, &i));
    CHECK(gguf_num(v, 1, &d) && d == 18446744073709551616.0);
    CHECK(gguf_int(gguf_get(w, "t.bools"), 2, &i) && i == 1);
    CHECK_INT(gguf_u64(w, "absent", &u, &err), ROSE_NOT_FOUND);
    CHECK(strstr(err.message, "absent") && strstr(err.message, "types.gguf"));
    weights_close(w);
}

TEST(golden_arrays)
{
    struct weights *w = open_golden("types.gguf");
    struct rose_error err = {0};
    const struct str *s, *again;
    const float *f;
    const int32_t *t;
    size_t n;
    if (!w) return;
    CHECK_OK(gguf_strings(w, "tokenizer.ggml.tokens", &s, &n, &err), err);
    CHECK(n == 5 && str_is(s[0], "<unk>") && s[1].n == 0 && str_is(s[3], "世") &&
          str_eq(s[4], STR("\0nul\0")));
    CHECK_OK(gguf_strings(w, "tokenizer.ggml.tokens", &again, &n, &err), err);
    CHECK(again == s);
    CHECK_OK(gguf_f32s(w, "tokenizer.ggml.scores", &f, &n, &err), err);
    CHECK(n == 5 && f[2] == -2.25f && f[3] == -1e9f && (uintptr_t)f % 4 == 0);
    CHECK_OK(gguf_i32s(w, "tokenizer.ggml.token_type", &t, &n, &err), err);
    CHECK(n == 5 && t[0] == 2 && t[3] == -7 && t[4] == 6);
    CHECK_OK(gguf_i32s(w, "t.u8s", &t, &n, &err), err);
    CHECK(n == 3 && t[2] == 255);
    CHECK_INT(gguf_i32s(w, "t.u64s", &t, &n, &err), ROSE_FORMAT);
    CHECK_INT(gguf_strings(w, "tokenizer.ggml.scores", &s, &n, &err), ROSE_FORMAT);
    CHECK(strstr(err.message, "tokenizer.ggml.scores") && strstr(err.message, "array of f32"));
    CHECK_INT(gguf_f32s(w, "tokenizer.ggml.token_type", &f, &n, &err), ROSE_FORMAT);
    CHECK_INT(gguf_strings(w, "t.string", &s, &n, &err), ROSE_FORMAT);
    weights_close(w);
}

TEST(golden_split)
{
    for (int first = 1; first <= 3; first++) {
        char name[64];
        snprintf(name, sizeof name, "split-%05d-of-00003.gguf", first);
        struct weights *w = open_golden(name);
        struct rose_error err;
        struct str s;
        struct weights_summary sum;
        if (!w) return;
        CHECK_INT(expect_golden(w, "split-"), 5);
        CHECK_INT(weights_count(w), 5);
        CHECK_OK(gguf_str(w, "general.name", &s, &err), err); /* of the first part, whichever was named */
        weights_summary(w, &sum);
        CHECK(sum.files == 3 && sum.tensors == 5 && sum.parameters == 40 && sum.bytes == 160 &&
              sum.types == 1);
        weights_close(w);
    }
}

TEST(split_problems)
{
    struct strbuf b = {0};
    struct weights *w;
    struct rose_error err;
    /* named like a part, but whole */
    gguf_begin(&b, 3, 0, 0);
    expect_good(&b, "x-00002-of-00009.gguf", 0);
    /* a part that is not named like one */
    gguf_begin(&b, 3, 0, 1);
    gguf_pair_u32(&b, "split.count", 3);
    EXPECT_BAD(&b, "y.gguf", ROSE_FORMAT, "is not named NAME-00001-of-00003.gguf");
    /* the others are missing; the error names the first one that is */
    gguf_begin(&b, 3, 0, 2);
    gguf_pair_u32(&b, "split.count", 3);
    gguf_pair_u32(&b, "split.no", 0);
    build_write("z-00001-of-00003.gguf", b.p, b.n);
    CHECK_INT(weights_open(build_path("z-00001-of-00003.gguf"), &w, &err), ROSE_NOT_FOUND);
    CHECK(strstr(err.message, "z-00002-of-00003.gguf is missing") && !w);
    /* the same part twice */
    build_write("z-00002-of-00003.gguf", b.p, b.n);
    CHECK_INT(weights_open(build_path("z-00001-of-00003.gguf"), &w, &err), ROSE_FORMAT);
    CHECK(strstr(err.message, "part 2 of 3 is expected") && !w);
    strbuf_free(&b);
}

/* A whole little file with one Q8_0 matrix of 2 x 32 and one vector, and metadata of several kinds. */
static void valid(struct strbuf *b)
{
    gguf_begin(b, 3, 2, 4);
    gguf_pair(b, "general.architecture", 8);
    put_str(b, "llama");
    gguf_pair_array(b, "tokenizer.ggml.tokens", 8, 2);
    put_str(b, "a");
    put_str(b, "bc");
    gguf_pair(b, "flag", 7);
    put_u8(b, 1);
    gguf_pair_array(b, "scores", 6, 2);
    put_zeros(b, 8);
    gguf_describe(b, "w", 2, (uint64_t[]){32, 2}, 8, 0);
    gguf_describe(b, "norm", 1, (uint64_t[]){8}, 0, 96);
    gguf_data(b, 32, 128);
}

TEST(small_valid)
{
    struct strbuf b = {0};
    valid(&b);
    expect_good(&b, "a.gguf", 2);
    gguf_begin(&b, 2, 1, 1); /* version 2, another alignment, a scalar */
    gguf_pair_u32(&b, "general.alignment", 128);
    gguf_describe(&b, "s", 0, NULL, 0, 128);
    gguf_data(&b, 128, 132);
    expect_good(&b, "a.gguf", 1);
    gguf_begin(&b, 3, 0, 0);
    expect_good(&b, "a.gguf", 0);
}

TEST(truncated_and_flipped)
{
    struct strbuf b = {0};
    valid(&b);
    expect_survival(&b, "a.gguf");
    strbuf_free(&b);
}

TEST(bad_header)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "GGUX");
    put_zeros(&b, 60);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "neither a GGUF nor a safetensors");
    put_zeros(&b, 0);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "neither a GGUF nor a safetensors");
    gguf_begin(&b, 1, 0, 0);
    EXPECT_BAD(&b, "a.gguf", ROSE_UNSUPPORTED, "version 1");
    gguf_begin(&b, 0x03000000, 0, 0);
    EXPECT_BAD(&b, "a.gguf", ROSE_UNSUPPORTED, "big-endian");
    gguf_begin(&b, 3, UINT64_MAX, 0);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "tensors");
    gguf_begin(&b, 3, 0, 1ull << 63);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "metadata pairs");
    gguf_begin(&b, 3, 1000, 0);
    put_zeros(&b, 1000);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "1000 tensors, more than the file has room for");
}

TEST(bad_metadata)
{
    struct strbuf b = {0};
    gguf_begin(&b, 3, 0, 1);
    gguf_pair_u32(&b, "", 1);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "key at byte 24 is empty");
    gguf_begin(&b, 3, 0, 1);
    gguf_pair_u32(&b, "a\033[31m", 1);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "control characters");
    gguf_begin(&b, 3, 0, 1);
    gguf_pair_u32(&b, "\xC3(", 1);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "UTF-8");
    gguf_begin(&b, 3, 0, 2);
    gguf_pair_u32(&b, "twice", 1);
    gguf_pair_u32(&b, "twice", 1);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "value of twice at byte");
    gguf_begin(&b, 3, 0, 1);
    gguf_pair_u32(&b, "k", 13);
    b.p[33] = 13;
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "value of k at byte 37 has an unknown type");
    gguf_begin(&b, 3, 0, 1);
    gguf_pair(&b, "flag", 7);
    put_u8(&b, 2);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "neither true nor false");
    gguf_begin(&b, 3, 0, 1);
    put_u64(&b, 1ull << 62); /* a key's length */
    put_zeros(&b, 20);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "in the middle of a metadata key");
}

TEST(bad_arrays)
{
    struct strbuf b = {0};
    static const uint64_t counts[] = {1ull << 63, UINT64_MAX, 1ull << 61, 1000};
    for (uint32_t item = 0; item < 13; item++)
        for (size_t i = 0; i < ROSE_COUNT(counts); i++) {
            gguf_begin(&b, 3, 0, 1);
            gguf_pair_array(&b, "list", item, counts[i]);
            put_zeros(&b, 64);
            EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT,
                       item == 9 ? "array of arrays" : "than the file has room for");
        }
    gguf_begin(&b, 3, 0, 1);
    gguf_pair_array(&b, "list", 99, 1);
    put_zeros(&b, 64);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "array of an unknown type");
    gguf_begin(&b, 3, 0, 1);
    gguf_pair_array(&b, "list", 8, 3);
    put_str(&b, "one");
    put_u64(&b, UINT64_MAX - 3);
    put_zeros(&b, 64);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "in the middle of list");
}

/* One tensor described as given behind 0 pairs, with `data` bytes. */
static void one(struct strbuf *b, const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                uint64_t offset, size_t data)
{
    gguf_begin(b, 3, 1, 0);
    gguf_describe(b, name, ndim, dims, type, offset);
    gguf_data(b, 32, data);
}

TEST(bad_tensors)
{
    struct strbuf b = {0};
    static const uint64_t two[5] = {32, 2, 1, 1, 1};
    one(&b, "", 1, two, 0, 0, 128);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "tensor name at byte 24 is empty");
    one(&b, "w\n", 1, two, 0, 0, 128);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "control characters");
    one(&b, "w", 5, two, 0, 0, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "w at byte 24 has 5 dimensions");
    one(&b, "w", 2, two, 42, 0, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "unknown type 42");
    one(&b, "w", 2, two, 4, 0, 512); /* withdrawn long ago */
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "unknown type 4");
    one(&b, "w", 2, (uint64_t[]){48, 2}, 8, 0, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "Q8_0 of shape [2, 48], which is not whole blocks of 32");
    one(&b, "w", 2, (uint64_t[]){1ull << 33, 1ull << 33}, 0, 0, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "impossible shape");
    one(&b, "w", 1, (uint64_t[]){UINT64_MAX}, 24, 0, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "impossible shape");
    one(&b, "w", 4, (uint64_t[]){1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}, 0, 0, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "impossible shape");
    one(&b, "w", 1, two, 0, 16, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "not a multiple of the alignment 32");
    one(&b, "w", 1, two, 0, 512, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "tensor w wants 128 bytes at");
    one(&b, "w", 1, two, 0, 1ull << 63, 512);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "past the file's end");
    one(&b, "w", 1, two, 0, 0, 127);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "truncated");
}

TEST(bad_pairs_of_tensors)
{
    struct strbuf b = {0};
    gguf_begin(&b, 3, 2, 0);
    gguf_describe(&b, "w", 1, (uint64_t[]){32}, 0, 0);
    gguf_describe(&b, "w", 1, (uint64_t[]){32}, 0, 128);
    gguf_data(&b, 32, 256);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "two tensors are called w");
    gguf_begin(&b, 3, 2, 0);
    gguf_describe(&b, "v", 1, (uint64_t[]){32}, 0, 96);
    gguf_describe(&b, "w", 1, (uint64_t[]){32}, 0, 0);
    gguf_data(&b, 32, 256);
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "tensors w and v share bytes from");
    static const uint32_t alignments[] = {0, 24, 3};
    for (size_t i = 0; i < ROSE_COUNT(alignments); i++) {
        gguf_begin(&b, 3, 0, 1);
        gguf_pair_u32(&b, "general.alignment", alignments[i]);
        EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "general.alignment at byte");
    }
    gguf_begin(&b, 3, 0, 1);
    gguf_pair(&b, "general.alignment", 8);
    put_str(&b, "32");
    EXPECT_BAD(&b, "a.gguf", ROSE_FORMAT, "general.alignment at byte");
}

/* Pages of mapped files in this process's memory. */
static long resident_pages(void)
{
    long size = 0, resident = 0, shared = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld %ld", &size, &resident, &shared) != 3) shared = -1;
    if (f) fclose(f);
    return shared;
}

TEST(release_gives_memory_back)
{
    struct strbuf b = {0};
    struct weights *w = NULL;
    struct rose_error err;
    size_t bytes = 8 << 20;
    gguf_begin(&b, 3, 1, 0);
    gguf_describe(&b, "w", 1, (uint64_t[]){bytes / 4}, 0, 0);
    gguf_data(&b, 32, 0);
    size_t data = b.n;
    strbuf_reserve(&b, bytes);
    for (size_t i = 0; i < bytes; i++) put_u8(&b, (uint8_t)(i % 251));
    CHECK_OK(weights_open(build_write("big.gguf", b.p, b.n), &w, &err), err);
    if (!w) return;
    const struct weights_tensor *t = weights_tensor(w, 0);
    uint64_t sum = touch_bytes(t->tensor.data, bytes);
    long read = resident_pages();
    weights_release(w, t);
    long released = resident_pages();
    CHECK(read - released > 1800); /* 2,048 pages of 4 KiB */
    CHECK(touch_bytes(t->tensor.data, bytes) == sum && !memcmp(t->tensor.data, b.p + data, bytes));
    weights_close(w);
    strbuf_free(&b);
}

TEST(cleanup)
{
    build_clean();
}

TEST_MAIN(CASE(golden_tensors), CASE(golden_metadata), CASE(golden_arrays), CASE(golden_split),
          CASE(split_problems), CASE(small_valid), CASE(truncated_and_flipped), CASE(bad_header),
          CASE(bad_metadata), CASE(bad_arrays), CASE(bad_tensors), CASE(bad_pairs_of_tensors),
          CASE(release_gives_memory_back), CASE(cleanup))
