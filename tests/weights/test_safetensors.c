#include "expect.h"

#include <sys/stat.h>

TEST(golden_types)
{
    struct weights *w = NULL;
    struct rose_error err;
    struct weights_summary sum;
    CHECK_OK(weights_open("tests/golden/weights/types.safetensors", &w, &err), err);
    if (!w) return;
    CHECK_INT(weights_kind(w), WEIGHTS_SAFETENSORS);
    CHECK_INT(expect_golden(w, "types.safetensors "), 16);
    CHECK_INT(weights_count(w), 16);
    const struct weights_tensor *deep = weights_find(w, "deep");
    CHECK(deep && deep->ndim == 5 && deep->tensor.ndim == 4 && deep->tensor.shape[0] == 2 &&
          deep->tensor.shape[1] == 2 && deep->tensor.shape[3] == 2);
    CHECK(weights_find(w, "scalar")->ndim == 0 && tensor_count(&weights_find(w, "empty")->tensor) == 0);
    CHECK(!weights_config(w) && gguf_count(w) == 0 && !gguf_get(w, "general.name"));
    weights_summary(w, &sum);
    CHECK(sum.files == 1 && sum.tensors == 16 && sum.types == 12 && !strcmp(sum.type[0].type, "F32") &&
          sum.type[0].bytes == 64);
    touch_all(w);
    weights_close(w);
}

TEST(golden_directory)
{
    struct weights *w = NULL;
    struct rose_error err;
    CHECK_OK(weights_open("tests/golden/weights/hf", &w, &err), err);
    if (!w) return;
    CHECK_INT(weights_kind(w), WEIGHTS_HF);
    CHECK_INT(expect_golden(w, "hf/"), 3);
    CHECK_INT(weights_count(w), 3);
    CHECK_INT(json_int(json_get(weights_config(w), "hidden_size"), 0), 2);
    const struct json *eos = json_get(weights_generation_config(w), "eos_token_id");
    CHECK(json_is(eos, JSON_ARRAY) && eos->count == 2);
    weights_close(w);
}

#define ONE "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}"

TEST(small_valid)
{
    struct strbuf b = {0};
    safetensors_file(&b, ONE "    ", 16);
    expect_good(&b, "a.safetensors", 1);
    safetensors_file(&b, ONE, 16);
    expect_good(&b, "unusual.name", 1); /* known by its header */
    safetensors_file(&b, "{}", 0);
    expect_good(&b, "a.safetensors", 0);
    safetensors_file(&b,
                     "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F4\",\"shape\":[4],\"data_"
                     "offsets\":[2,4],\"more\":[{}]},"
                     "\"a\":{\"data_offsets\":[0,2],\"dtype\":\"I8\",\"shape\":[2]},\"c\":{\"dtype\":\"F6_"
                     "E2M3\",\"shape\":[0],\"data_offsets\":[3,3]}}",
                     4);
    expect_good(&b, "a.safetensors", 3);
}

TEST(truncated_and_flipped)
{
    struct strbuf b = {0};
    safetensors_file(&b,
                     "{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[4,12]},\"vv\":{\"dtype\":"
                     "\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                     12);
    expect_survival(&b, "a.safetensors");
    strbuf_free(&b);
}

TEST(bad_header_length)
{
    struct strbuf b = {0};
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8, 1ull << 63, 100, 93};
    for (size_t i = 0; i < ROSE_COUNT(lengths); i++) {
        put_u64(&b, lengths[i]);
        strbuf_adds(&b, ONE);
        put_zeros(&b, 16);
        EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "truncated");
    }
    put_u64(&b, 0);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "the text ends");
    put_u32(&b, 0);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "has 4 bytes");
    put_u64(&b, 100000001);
    struct weights *w;
    struct rose_error err;
    const char *path = build_write("a.safetensors", b.p, b.n);
    CHECK_INT(truncate(path, 200000000), 0);
    CHECK_INT(weights_open(path, &w, &err), ROSE_LIMIT);
    CHECK(strstr(err.message, "the format allows 100000000") != NULL);
    strbuf_free(&b);
}

/* A header around one tensor's description. */
static void described(struct strbuf *b, const char *value, size_t data)
{
    char json[512];
    snprintf(json, sizeof json, "{\"w\":%s}", value);
    safetensors_file(b, json, data);
}

TEST(bad_descriptions)
{
    static const struct {
        const char *value, *message;
    } cases[] = {
        {"[]", "an object was expected"},
        {"{\"shape\":[2],\"data_offsets\":[0,8]}", "dtype is missing"},
        {"{\"dtype\":\"F32\",\"data_offsets\":[0,8]}", "shape is missing"},
        {"{\"dtype\":\"F32\",\"shape\":[2]}", "data_offsets is missing"},
        {"{\"dtype\":\"F32\",\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,8]}", "given twice"},
        {"{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}",
         "tensor w (header byte 22): unknown dtype"},
        {"{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}", "unknown dtype"},
        {"{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}", "shape is not an array"},
        {"{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}", "not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}", "not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}", "not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[18446744073709551617],\"data_offsets\":[0,8]}", "not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}", "impossible shape"},
        {"{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}", "impossible shape"},
        {"{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}",
         "more than 8 dimensions"},
        {"{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,8]}", "not whole blocks"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}", "not an array of two numbers"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,1e1]}", "not a whole number"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}", "end before they begin"},
        {"{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}",
         "data_offsets hold 8 bytes, but F32 of shape [3] has 12"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}", "tensor w wants 8 bytes"},
        {"{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9223372036854775799,9223372036854775807]}",
         "tensor w wants 8 bytes"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "at the end belong to no tensor"},
        {"{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}", "before tensor w belong to no tensor"},
    };
    struct strbuf b = {0};
    for (size_t i = 0; i < ROSE_COUNT(cases); i++) {
        described(&b, cases[i].value, 8);
        EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, cases[i].message);
    }
}

TEST(bad_headers)
{
    struct strbuf b = {0};
    safetensors_file(&b, "[]", 0);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "not a JSON object");
    safetensors_file(&b, "{\"w\":", 0);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "the header: JSON, line 1");
    safetensors_file(&b, ONE "x", 16);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "the header: JSON, line 1");
    safetensors_file(&b, "{\"__metadata__\":{},\"__metadata__\":{}}", 0);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "__metadata__ is given twice");
    safetensors_file(&b, "{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "is empty");
    safetensors_file(&b, "{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "control characters");
    safetensors_file(&b,
                     "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"w\":{\"dtype\":"
                     "\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                     8);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "two tensors are called w");
    safetensors_file(&b,
                     "{\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"w\":{\"dtype\":"
                     "\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
                     6);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "tensors v and w share bytes from");
    safetensors_file(&b,
                     "{\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"w\":{\"dtype\":"
                     "\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                     4);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "share bytes from");
    safetensors_file(&b,
                     "{\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"w\":{\"dtype\":"
                     "\"F32\",\"shape\":[1],\"data_offsets\":[6,10]}}",
                     10);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "before tensor w belong to no tensor");
    for (int i = 0; i < 300; i++) strbuf_adds(&b, "["); /* deep nesting inside the header */
    char deep[400];
    snprintf(deep, sizeof deep, "{\"w\":%s", b.p);
    b.n = 0;
    safetensors_file(&b, deep, 0);
    EXPECT_BAD(&b, "a.safetensors", ROSE_FORMAT, "nested deeper");
}

/* A header of nothing but small values must not make a hundred times its size in memory. */
TEST(hostile_header_is_bounded)
{
    struct strbuf b = {0};
    size_t n = 4 << 20;
    put_u64(&b, n + 8);
    strbuf_adds(&b, "{\"a\":[0");
    for (size_t i = 0; i < n / 2; i++) strbuf_adds(&b, ",0");
    strbuf_adds(&b, "]");
    struct weights *w;
    struct rose_error err;
    CHECK_INT(weights_open(build_write("a.safetensors", b.p, b.n), &w, &err), ROSE_NO_MEMORY);
    CHECK(strstr(err.message, "a.safetensors") != NULL);
    strbuf_free(&b);
}

/* ---- directories ---- */

static void in_dir(const char *file, const char *text)
{
    char name[128];
    mkdir(build_path("m"), 0755);
    snprintf(name, sizeof name, "m/%s", file);
    if (text)
        build_write(name, text, strlen(text));
    else
        unlink(build_path(name));
}

static void shard(const char *file, const char *json, size_t data)
{
    struct strbuf b = {0};
    char name[128];
    snprintf(name, sizeof name, "m/%s", file);
    safetensors_file(&b, json, data);
    build_write(name, b.p, b.n);
    strbuf_free(&b);
}

static void dir_fails(enum rose_status status, const char *text)
{
    struct weights *w = NULL;
    struct rose_error err = {0};
    CHECK_INT(weights_open(build_path("m"), &w, &err), status);
    CHECK(!w);
    if (!strstr(err.message, text)) CHECK_STR(err.message, text);
    weights_close(w);
}

#define INDEX "model.safetensors.index.json"

TEST(directories)
{
    struct weights *w = NULL;
    struct rose_error err;
    CHECK_INT(weights_open(build_path("nowhere"), &w, &err), ROSE_NOT_FOUND);
    in_dir("x", "");
    dir_fails(ROSE_NOT_FOUND, "neither model.safetensors nor");
    in_dir("pytorch_model.bin", "x");
    dir_fails(ROSE_UNSUPPORTED, "pickled");
    in_dir("q.gguf", "x");
    dir_fails(ROSE_NOT_FOUND, "/m/q.gguf");
    shard("model.safetensors", ONE, 16);
    dir_fails(ROSE_NOT_FOUND, "no config.json");
    in_dir("config.json", "{");
    dir_fails(ROSE_FORMAT, "config.json: JSON, line 1");
    in_dir("config.json", "[]");
    dir_fails(ROSE_FORMAT, "an object was expected, found: array");
    in_dir("config.json", "{\"a\":1}");
    in_dir("generation_config.json", "nul");
    dir_fails(ROSE_FORMAT, "generation_config.json");
    in_dir("generation_config.json", NULL);
    CHECK_OK(weights_open(build_path("m"), &w, &err), err);
    CHECK(w && weights_count(w) == 1 && weights_config(w) && !weights_generation_config(w));
    weights_close(w);
    in_dir("model.safetensors", NULL);
}

TEST(sharded_directories)
{
    struct weights *w = NULL;
    struct rose_error err;
    in_dir("config.json", "{}");
    in_dir(INDEX, "{}");
    dir_fails(ROSE_FORMAT, "no weight_map");
    in_dir(INDEX, "{\"weight_map\":{\"w\":7}}");
    dir_fails(ROSE_FORMAT, "not a string");
    static const char *const paths[] = {"../m/s1.safetensors", "/etc/passwd", "", ".hidden",
                                        "a\\u0000b",           "a/b"};
    for (size_t i = 0; i < ROSE_COUNT(paths); i++) {
        char index[128];
        snprintf(index, sizeof index, "{\"weight_map\":{\"w\":\"%s\"}}", paths[i]);
        in_dir(INDEX, index);
        dir_fails(ROSE_FORMAT, "not a plain name");
    }
    in_dir(INDEX, "{\"weight_map\":{\"w\":\"s1.safetensors\",\"v\":\"s2.safetensors\"}}");
    dir_fails(ROSE_NOT_FOUND, "s1.safetensors is missing");
    shard("s1.safetensors", ONE, 16);
    shard("s2.safetensors", ONE, 16);
    dir_fails(ROSE_FORMAT, "tensor w is in both");
    shard("s2.safetensors", "{}", 0);
    dir_fails(ROSE_FORMAT, "tensor v is not in s2.safetensors");
    in_dir(INDEX, "{\"weight_map\":{\"w\":\"s1.safetensors\",\"x\\u001b[2J\":\"s1.safetensors\"}}");
    dir_fails(ROSE_FORMAT, "tensor ? is not in s1.safetensors");
    in_dir(INDEX, "{\"weight_map\":{\"w\":\"s1.safetensors\",\"w\":\"s2.safetensors\"}}");
    dir_fails(ROSE_FORMAT, "tensor w is not in s2.safetensors");
    shard("s2.safetensors", "{\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    in_dir(INDEX, "{\"weight_map\":{\"w\":\"s1.safetensors\",\"v\":\"s2.safetensors\"}}");
    CHECK_OK(weights_open(build_path("m"), &w, &err), err);
    CHECK(w && weights_count(w) == 2);
    if (w) touch_all(w);
    weights_close(w);
    in_dir(INDEX, "{\"weight_map\":{\"w\":\"s2.safetensors\",\"v\":\"s1.safetensors\"}}"); /* exchanged */
    dir_fails(ROSE_FORMAT, "where weight_map puts it");
}

TEST(cleanup)
{
    build_clean();
}

TEST_MAIN(CASE(golden_types), CASE(golden_directory), CASE(small_valid), CASE(truncated_and_flipped),
          CASE(bad_header_length), CASE(bad_descriptions), CASE(bad_headers), CASE(hostile_header_is_bounded),
          CASE(directories), CASE(sharded_directories), CASE(cleanup))
