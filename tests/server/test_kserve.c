/* Tensors, numbers as text, shared memory and the readers of the embedding routes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/floats.h"
#include "server/kserve.h"
#include "server/pooled.h"
#include "test.h"

static struct arena arena;
static struct api_error error;

static const struct json *parse(const char *text)
{
    const struct json *v = NULL;
    arena_free(&arena);
    arena_init(&arena, 0);
    error = (struct api_error){0};
    json_parse(&arena, NULL, str_of(text), &v, NULL);
    return v;
}

/* Whatever the bits, the text reads back as the same float32. */
TEST(floats_read_back)
{
    uint32_t state = 12345;
    struct strbuf b = {0};
    int bad = 0;
    for (int i = 0; i < 300000; i++) {
        union { uint32_t u; float f; } x;
        state = state * 1664525u + 1013904223u;
        x.u = state;
        if (i % 3) x.f = (float)((int32_t)state) / 2147483648.0f * (i % 3 == 1 ? 1.0f : 1000.0f);
        b.n = 0;
        floats_add(&b, x.f);
        if (x.f - x.f != 0) bad += strcmp(b.p, "null") != 0;
        else bad += strtof(b.p, NULL) != x.f || (float)strtod(b.p, NULL) != x.f || strlen(b.p) > 18;
    }
    CHECK_INT(bad, 0);
    static const struct { float x; const char *text; } exact[] = {{0, "0"}, {1, "1"}, {-1, "-1"}, {0.5f, "0.5"}, {0.1f, "0.1"}, {-0.25f, "-0.25"}, {100, "100"}, {1234.5f, "1234.5"}, {0.001f, "0.001"}};
    for (size_t i = 0; i < ROSE_COUNT(exact); i++) {
        b.n = 0;
        floats_add(&b, exact[i].x);
        CHECK_STR(b.p, exact[i].text);
    }
    strbuf_free(&b);
}

TEST(base64_of_floats)
{
    /* RFC 4648: 1.0f is 00 00 80 3f, -2.0f is 00 00 00 c0 */
    static const float x[] = {1, -2, 1};
    static const char *const texts[] = {"", "AACAPw==", "AACAPwAAAMA=", "AACAPwAAAMAAAIA/"};
    for (size_t n = 0; n <= 3; n++) {
        struct strbuf b = {0};
        floats_add_base64(&b, x, n);
        CHECK_STR(b.p, texts[n]);
        strbuf_free(&b);
    }
}

static bool from_json(enum kserve_type type, int64_t n, const char *text, struct kserve_tensor *t)
{
    const struct json *v = parse(text);
    *t = (struct kserve_tensor){STR("t"), type, 1, {n}, (size_t)n, {0}};
    return kserve_from_json(v, t, &arena, &error);
}

TEST(json_to_tensors_and_back)
{
    struct kserve_tensor t;
    struct strbuf b = {0};
    static const struct { enum kserve_type type; const char *text; } same[] = {
        {KSERVE_BOOL, "[true,false]"}, {KSERVE_UINT8, "[0,255]"}, {KSERVE_UINT16, "[0,65535]"}, {KSERVE_UINT32, "[0,4294967295]"}, {KSERVE_UINT64, "[0,9223372036854775807]"}, {KSERVE_UINT64, "[9223372036854775808,18446744073709551615]"},
        {KSERVE_INT8, "[-128,127]"}, {KSERVE_INT16, "[-32768,32767]"}, {KSERVE_INT32, "[-2147483648,2147483647]"}, {KSERVE_INT64, "[-9223372036854775808,9223372036854775807]"},
        {KSERVE_FP32, "[0.5,-3]"}, {KSERVE_FP64, "[0.1,-3]"}, {KSERVE_FP16, "[0.5,-3]"}, {KSERVE_BYTES, "[\"a\",\"\"]"}};
    for (size_t i = 0; i < ROSE_COUNT(same); i++) {
        CHECK(from_json(same[i].type, 2, same[i].text, &t));
        CHECK(kserve_check(&t, &error));
        b.n = 0;
        CHECK(kserve_to_json(&t, &b));
        CHECK_STR(b.p, same[i].text);
    }
    CHECK(from_json(KSERVE_INT32, 4, "[[1,2],[[3],4]]", &t)); /* nested however */
    CHECK(kserve_number(&t, 3) == 4);
    static const struct { enum kserve_type type; const char *text; } bad[] = {
        {KSERVE_BOOL, "[1,0]"}, {KSERVE_UINT8, "[0,256]"}, {KSERVE_UINT8, "[-1,0]"}, {KSERVE_UINT64, "[18446744073709551616,0]"}, {KSERVE_UINT64, "[-1,0]"}, {KSERVE_INT64, "[9223372036854775808,0]"}, {KSERVE_UINT64, "[9223372036854775808.0,0]"}, {KSERVE_INT8, "[128,0]"}, {KSERVE_UINT32, "[4294967296,0]"}, {KSERVE_INT32, "[2147483648,0]"},
        {KSERVE_INT32, "[1.5,0]"}, {KSERVE_INT32, "[\"1\",0]"}, {KSERVE_FP32, "[true,0]"}, {KSERVE_BF16, "[1,2]"}, {KSERVE_BYTES, "[1,2]"}, {KSERVE_INT32, "[1]"}, {KSERVE_INT32, "[1,2,3]"},
        {KSERVE_INT32, "{}"}};
    for (size_t i = 0; i < ROSE_COUNT(bad); i++) {
        CHECK(!from_json(bad[i].type, 2, bad[i].text, &t));
        CHECK_INT(error.status, 400);
    }
    strbuf_free(&b);
}

/* Half floats against a table from IEEE 754: value, binary16, bfloat16. */
TEST(half_floats)
{
    static const struct { float x; uint16_t half, brain; } rows[] = {
        {0, 0, 0}, {1, 0x3C00, 0x3F80}, {-2, 0xC000, 0xC000}, {65504, 0x7BFF, 0x4780}, {65520, 0x7C00, 0x4780}, {5.9604645e-8f, 0x0001, 0x3380}, {2.9802322e-8f, 0x0000, 0x3300},
        {6.097555e-5f, 0x03FF, 0x3880}, {6.1035156e-5f, 0x0400, 0x3880}, {0.1f, 0x2E66, 0x3DCD}, {1.0009766f, 0x3C01, 0x3F80}, {1.00048828125f, 0x3C00, 0x3F80}, {1.00146484375f, 0x3C02, 0x3F80},
        {INFINITY, 0x7C00, 0x7F80}, {-INFINITY, 0xFC00, 0xFF80}};
    arena_free(&arena);
    arena_init(&arena, 0);
    for (size_t i = 0; i < ROSE_COUNT(rows); i++) {
        struct kserve_tensor t = {STR("t"), KSERVE_FP32, 1, {1}, 1, {(const char *)&rows[i].x, 4}}, u = t;
        uint16_t got;
        CHECK(kserve_convert(&t, KSERVE_FP16, &arena));
        memcpy(&got, t.data.p, 2);
        CHECK_INT(got, rows[i].half);
        CHECK(kserve_convert(&u, KSERVE_BF16, &arena));
        memcpy(&got, u.data.p, 2);
        CHECK_INT(got, rows[i].brain);
    }
    for (uint32_t h = 0; h < 65536; h++) { /* there and back */
        uint16_t half = (uint16_t)h, got;
        struct kserve_tensor t = {STR("t"), KSERVE_FP16, 1, {1}, 1, {(const char *)&half, 2}};
        float f = (float)kserve_number(&t, 0);
        if (f != f) continue;
        t = (struct kserve_tensor){STR("t"), KSERVE_FP32, 1, {1}, 1, {(const char *)&f, 4}};
        CHECK(kserve_convert(&t, KSERVE_FP16, &arena));
        memcpy(&got, t.data.p, 2);
        if (got != half) CHECK_INT(got, half);
        if (h % 4096 == 0) arena_reset(&arena);
    }
}

TEST(bytes_are_checked)
{
    static const struct { size_t n; const char *data; size_t bytes; bool ok; } rows[] = {
        {1, "\2\0\0\0ab", 6, true}, {2, "\0\0\0\0\1\0\0\0x", 9, true}, {0, "", 0, true}, {1, "\2\0\0\0a", 5, false}, {1, "\1\0\0\0ab", 6, false}, {1, "\377\377\377\377ab", 6, false},
        {1, "\1\0\0", 3, false}, {1, "", 0, false}, {0, "a", 1, false}, {2, "\1\0\0\0x", 5, false}};
    for (size_t i = 0; i < ROSE_COUNT(rows); i++) {
        struct kserve_tensor t = {STR("t"), KSERVE_BYTES, 1, {(int64_t)rows[i].n}, rows[i].n, {rows[i].data, rows[i].bytes}};
        CHECK_INT(kserve_check(&t, &error), rows[i].ok);
    }
    size_t n;
    CHECK(kserve_elements((int64_t[]){3, 4}, 2, &n) && n == 12);
    CHECK(kserve_elements((int64_t[]){0, 1 << 20}, 2, &n) && n == 0);
    CHECK(!kserve_elements((int64_t[]){1 << 20, 1 << 20}, 2, &n));
    CHECK(!kserve_elements((int64_t[]){INT64_MAX, 2}, 2, &n));
    CHECK(!kserve_elements((int64_t[]){-1}, 1, &n));
}

TEST(classification)
{
    static const float x[] = {0.25f, 0.5f, -1, 2, 0, 1};
    static const char *const labels[] = {"a", "b", "c"};
    struct kserve_tensor t = {STR("t"), KSERVE_FP32, 2, {2, 3}, 6, {(const char *)x, sizeof x}};
    struct strbuf b = {0};
    arena_free(&arena);
    arena_init(&arena, 0);
    CHECK(kserve_classify(&t, 2, labels, 3, &arena));
    CHECK(kserve_check(&t, &error));
    kserve_to_json(&t, &b);
    CHECK_STR(b.p, "[\"0.500000:1:b\",\"0.250000:0:a\",\"2.000000:0:a\",\"1.000000:2:c\"]");
    CHECK_INT(t.shape[1], 2);
    strbuf_free(&b);
}

TEST(regions_hold_what_they_say)
{
    struct regions r = {0};
    char key[64], text[16] = {0};
    snprintf(key, sizeof key, "/rose_test_%d", (int)getpid());
    int fd = shm_open(key, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 64) == 0);
    CHECK(pwrite(fd, "0123456789", 10, 8) == 10);
    CHECK(regions_add(&r, STR("a/b"), str_of(key), 8, 32, &error));
    CHECK(!regions_add(&r, STR("a/b"), str_of(key), 0, 1, &error));
    CHECK(!regions_add(&r, STR("c"), str_of(key), 40, 32, &error));
    CHECK(!regions_add(&r, STR("c"), str_of(key), UINT64_MAX, 2, &error));
    CHECK(!regions_add(&r, STR("c"), STR("/../x"), 0, 2, &error));
    CHECK(!regions_add(&r, STR("c"), STR("/no_such_rose_object"), 0, 2, &error));
    CHECK(regions_read(&r, STR("a/b"), 2, text, 4, &error));
    CHECK_STR(text, "2345");
    CHECK(!regions_read(&r, STR("a/b"), 30, text, 4, &error));
    CHECK(!regions_read(&r, STR("a/b"), SIZE_MAX, text, 4, &error));
    CHECK(regions_write(&r, STR("a/b"), 0, "XY", 2, &error));
    CHECK(pread(fd, text, 3, 8) == 3 && !strncmp(text, "XY2", 3));
    CHECK(ftruncate(fd, 9) == 0);
    CHECK(!regions_read(&r, STR("a/b"), 0, text, 2, &error));
    CHECK(!regions_write(&r, STR("a/b"), 0, "XY", 2, &error));
    struct stat_size { off_t n; } size = {lseek(fd, 0, SEEK_END)};
    CHECK_INT(size.n, 9); /* it has not grown again */
    regions_remove(&r, STR("a/b"), true);
    CHECK(regions_find(&r, STR("a/b")) != NULL); /* it is no GPU's */
    regions_remove(&r, STR("a/b"), false);
    CHECK(!regions_find(&r, STR("a/b")));
    regions_remove(&r, (struct str){0}, false);
    close(fd);
    shm_unlink(key);
}

static bool read_pooled(enum pooled_route route, const char *text, struct pooled_request *r)
{
    const struct json *v = parse(text);
    r->truncate = false;
    return v && pooled_read(route, v, &arena, r, &error);
}

TEST(texts_of_every_shape)
{
    struct pooled_request r;
    CHECK(read_pooled(POOLED_EMBEDDINGS, "{\"input\":\"a\",\"encoding_format\":\"base64\",\"dimensions\":8}", &r));
    CHECK(r.first_count == 1 && str_is(r.first[0].text, "a") && r.base64 && r.dimensions == 8);
    CHECK(read_pooled(POOLED_EMBEDDINGS, "{\"input\":[\"a\",\"b\"],\"truncate_prompt_tokens\":-1}", &r));
    CHECK(r.first_count == 2 && r.truncate && r.truncate_tokens == -1);
    CHECK(read_pooled(POOLED_EMBEDDINGS, "{\"input\":[1,2,3]}", &r));
    CHECK(r.first_count == 1 && r.first[0].tokens_count == 3 && r.first[0].tokens[2] == 3);
    CHECK(read_pooled(POOLED_EMBEDDINGS, "{\"input\":[[1],[2,3],\"c\"]}", &r));
    CHECK(r.first_count == 3 && r.first[1].tokens_count == 2 && str_is(r.first[2].text, "c"));
    CHECK(read_pooled(POOLED_TEI_PREDICT, "{\"inputs\":\"a\"}", &r) && r.single && r.first_count == 1 && !r.first[0].pair.p);
    CHECK(read_pooled(POOLED_TEI_PREDICT, "{\"inputs\":[\"a\",\"b\"]}", &r) && r.single && str_is(r.first[0].pair, "b"));
    CHECK(read_pooled(POOLED_TEI_PREDICT, "{\"inputs\":[[\"a\"],[\"b\",\"c\"]]}", &r) && !r.single && r.first_count == 2 && str_is(r.first[1].pair, "c"));
    CHECK(read_pooled(POOLED_RERANK, "{\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"b\"}],\"top_n\":1,\"return_documents\":false}", &r));
    CHECK(r.first_count == 1 && r.second_count == 2 && str_is(r.second[1].text, "b") && r.top_n == 1 && r.return_documents == 0);
    CHECK(read_pooled(POOLED_TEI_SIMILARITY, "{\"inputs\":{\"source_sentence\":\"a\",\"sentences\":[\"b\",\"c\"]},\"parameters\":{\"truncate\":true,\"truncation_direction\":\"Left\"}}", &r));
    CHECK(r.second_count == 2 && r.truncate && r.left);
    CHECK(read_pooled(POOLED_SCORE, "{\"text_1\":[\"a\",\"b\"],\"text_2\":\"c\"}", &r) && r.first_count == 2 && r.second_count == 1);
}

/* As TEI does on its routes: what it does not know is left out, by name, and what it knows is read; elsewhere it is an error. */
TEST(unknown_fields_of_tei_are_left_out)
{
    struct pooled_request r;
    CHECK(read_pooled(POOLED_TEI_EMBED, "{\"inputs\":\"a\",\"x\":[1],\"normalize\":false,\"parameters\":{\"top_k\":2},\"options\":null}", &r));
    CHECK(r.first_count == 1 && r.normalize == 0);
    CHECK_STR(r.unknown, "x, parameters, options");
    CHECK(read_pooled(POOLED_TEI_SIMILARITY, "{\"inputs\":{\"source_sentence\":\"a\",\"sentences\":[\"b\"],\"y\":1},\"parameters\":{\"z\":2,\"truncate\":true}}", &r) && r.truncate);
    CHECK_STR(r.unknown, "inputs.y, parameters.z");
    CHECK(read_pooled(POOLED_TEI_RERANK, "{\"query\":\"a\",\"texts\":[\"b\"],\"top_n\":1}", &r) && read_pooled(POOLED_TEI_PREDICT, "{\"inputs\":\"a\",\"top_n\":1}", &r));
    CHECK(!read_pooled(POOLED_RERANK, "{\"query\":\"a\",\"documents\":[\"b\"],\"texts\":1}", &r) && !strcmp(error.param, "texts"));
    CHECK(!read_pooled(POOLED_TEI_EMBED, "{\"inputs\":\"a\",\"normalize\":3}", &r) && !strcmp(error.param, "normalize"));
    struct strbuf b = {0}; /* many, and long ones: the list has an end */
    strbuf_adds(&b, "{\"inputs\":\"a\"");
    for (int i = 0; i < 100; i++) strbuf_printf(&b, ",\"%0100d\":1", i);
    strbuf_addc(&b, '}');
    CHECK(read_pooled(POOLED_TEI_EMBED, b.p, &r) && strlen(r.unknown) == sizeof r.unknown - 1);
    strbuf_free(&b);
}

/* TEI's names, labels and buckets: a request that took 20 us lies above its first bucket of 15 us. */
TEST(counters_of_tei)
{
    struct te_metrics m = {0};
    struct strbuf b = {0};
    struct api_error e = {0};
    te_metrics_write(&m, 3, &b);
    CHECK_INT(b.n, 0);
    m.requests[0] = 2;
    m.requests[1] = 1;
    m.success[1] = 1;
    te_metrics_times(&m, 20e-6, 1e-6, 0, 1e3);
    te_metrics_tokens(&m, 1);
    te_metrics_tokens(&m, 5);
    te_metrics_tokens(&m, 1 << 19);
    static const struct { int status; const char *code; } errors[] = {{400, "invalid_value"}, {400, "context_length_exceeded"}, {429, "busy"}, {413, "too_large"}, {400, "unsupported_model"}, {500, NULL}};
    for (size_t i = 0; i < ROSE_COUNT(errors); i++) {
        api_error_set(&e, errors[i].status, "t", errors[i].code, NULL, "x");
        te_metrics_failed(&m, &e);
    }
    te_metrics_write(&m, 3, &b);
    static const char *const lines[] = {"te_request_count{method=\"single\"} 2\n", "te_request_count{method=\"batch\"} 1\n", "te_request_success{method=\"batch\"} 1\n", "te_request_failure{err=\"validation\"} 1\n",
                                        "te_request_failure{err=\"tokenization\"} 1\n", "te_request_failure{err=\"overloaded\"} 1\n", "te_request_failure{err=\"batch_size\"} 1\n", "te_request_failure{err=\"model_type\"} 1\n",
                                        "te_request_failure{err=\"inference\"} 1\n", "te_request_duration_bucket{le=\"1.5e-05\"} 0\n", "te_request_duration_bucket{le=\"2.25e-05\"} 1\n", "te_request_duration_count 1\n",
                                        "te_request_inference_duration_bucket{le=\"+Inf\"} 1\n", "te_request_input_length_bucket{le=\"1\"} 1\n",
                                        "te_request_input_length_bucket{le=\"4\"} 1\n", "te_request_input_length_bucket{le=\"8\"} 2\n", "te_request_input_length_bucket{le=\"524288\"} 3\n", "te_queue_size 3\n"};
    for (size_t i = 0; i < ROSE_COUNT(lines); i++)
        if (!strstr(b.p, lines[i])) CHECK_STR(lines[i], "a line of the metrics");
    CHECK(!strstr(b.p, "te_request_success{method=\"single\"}"));
    strbuf_free(&b);
}

TEST(wrong_texts_are_named)
{
    static const struct { enum pooled_route route; const char *body, *param; } rows[] = {
        {POOLED_EMBEDDINGS, "{}", "input"}, {POOLED_EMBEDDINGS, "{\"input\":[]}", "input"}, {POOLED_EMBEDDINGS, "{\"input\":[\"a\",1]}", "input[1]"}, {POOLED_EMBEDDINGS, "{\"input\":[[]]}", "input[0]"},
        {POOLED_EMBEDDINGS, "{\"input\":\"a\",\"x\":1}", "x"}, {POOLED_EMBEDDINGS, "{\"input\":\"a\",\"encoding_format\":\"x\"}", "encoding_format"}, {POOLED_EMBEDDINGS, "{\"input\":[-1]}", "input"},
        {POOLED_RERANK, "{\"documents\":[\"a\"]}", "query"}, {POOLED_RERANK, "{\"query\":\"a\"}", "documents"}, {POOLED_RERANK, "{\"query\":\"a\",\"documents\":[[1]]}", "documents[0]"},
        {POOLED_RERANK, "{\"query\":[\"a\"],\"documents\":[\"b\"]}", "query"}, {POOLED_SCORE, "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"a\",\"b\",\"c\"]}", "text_1"},
        {POOLED_SCORE, "{\"queries\":\"a\",\"text_1\":\"a\",\"text_2\":\"b\"}", "queries"}, {POOLED_SCORE, "{\"queries\":\"a\",\"text_2\":\"b\",\"documents\":\"b\"}", "documents"},
        {POOLED_TEI_PREDICT, "{\"inputs\":[[\"a\",\"b\",\"c\"]]}", "inputs"}, {POOLED_TEI_EMBED, "{\"inputs\":\"a\",\"truncation_direction\":\"Up\"}", "truncation_direction"},
        {POOLED_TEI_SIMILARITY, "{\"inputs\":{\"sentences\":[\"b\"]}}", "inputs.source_sentence"}};
    for (size_t i = 0; i < ROSE_COUNT(rows); i++) {
        struct pooled_request r;
        CHECK(!read_pooled(rows[i].route, rows[i].body, &r));
        CHECK_STR(error.param, rows[i].param);
        CHECK_INT(error.status, 400);
    }
}

TEST_MAIN(CASE(floats_read_back), CASE(base64_of_floats), CASE(json_to_tensors_and_back), CASE(half_floats), CASE(bytes_are_checked), CASE(classification),
          CASE(regions_hold_what_they_say), CASE(texts_of_every_shape), CASE(unknown_fields_of_tei_are_left_out), CASE(counters_of_tei), CASE(wrong_texts_are_named))
