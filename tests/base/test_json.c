#include "base/json.h"
#include "test.h"

static struct arena arena;
static struct rose_error err;

static const struct json *parse(const char *text)
{
    const struct json *v = NULL;
    return json_parse(&arena, NULL, str_of(text), &v, &err) == ROSE_OK ? v : NULL;
}

TEST(values)
{
    const struct json *v = parse("{\"a\": [1, -2.5e3, true, null, \"x\\u00e9\\ud83d\\ude00\\n\"], \"a2\":{\"b\":7}}");
    CHECK(v);
    const struct json *a = json_get(v, "a");
    CHECK_INT(a->count, 5);
    CHECK_INT(json_int(&a->items[0], -1), 1);
    CHECK_NEAR(json_num(&a->items[1], 0), -2500, 0);
    CHECK(json_bool(&a->items[2], false));
    CHECK(json_is_null(&a->items[3]));
    CHECK(str_is(a->items[4].string, "x\xC3\xA9\xF0\x9F\x98\x80\n"));
    CHECK_INT(json_int(json_path(v, "a2.b"), 0), 7);
    struct strbuf b = {0};
    json_add_value(&b, v);
    CHECK_STR(b.p, "{\"a\":[1,-2500,true,null,\"x\xC3\xA9\xF0\x9F\x98\x80\\n\"],\"a2\":{\"b\":7}}");
    strbuf_free(&b);
    arena_free(&arena);
}

/* Whole numbers of 64 bits, with and without a sign. */
TEST(wide_numbers)
{
    static const struct { const char *text; bool integer, wide; uint64_t bits; } rows[] = {
        {"9223372036854775807", true, false, INT64_MAX}, {"9223372036854775808", false, true, (uint64_t)1 << 63}, {"18446744073709551615", false, true, UINT64_MAX},
        {"18446744073709551616", false, false, 0}, {"-9223372036854775808", true, false, (uint64_t)1 << 63}, {"-9223372036854775809", false, false, 0}, {"9223372036854775808.0", false, false, 0},
        {"1e19", false, false, 0}, {"99999999999999999999999999", false, false, 0}};
    for (size_t i = 0; i < ROSE_COUNT(rows); i++) {
        const struct json *v = parse(rows[i].text);
        CHECK(v && v->is_integer == rows[i].integer && v->is_wide == rows[i].wide);
        if (v && (v->is_integer || v->is_wide)) {
            struct strbuf b = {0};
            CHECK((uint64_t)v->integer == rows[i].bits);
            json_add_value(&b, v);
            CHECK_STR(b.p, rows[i].text);
            strbuf_free(&b);
        }
        if (v && v->is_wide) CHECK_INT(json_int(v, -7), -7); /* it fits no int64_t */
        arena_free(&arena);
    }
}

TEST(long_array)
{
    struct strbuf b = {0};
    strbuf_addc(&b, '[');
    for (int i = 0; i < 1000; i++) strbuf_printf(&b, "%s%d", i ? "," : "", i);
    strbuf_addc(&b, ']');
    const struct json *v = parse(b.p);
    CHECK(v && v->count == 1000);
    for (uint32_t i = 0; v && i < v->count; i++) CHECK_INT(v->items[i].integer, i);
    strbuf_free(&b);
    arena_free(&arena);
}

TEST(rejects)
{
    static const char *const bad[] = {"", "{", "[1,]", "{\"a\":1,}", "01", "1.", "+1", "nul", "\"\\x\"", "\"a\nb\"", "[1] 2", "{a:1}", "\"abc", "1e", "-", "\"\\u12\""};
    for (size_t i = 0; i < ROSE_COUNT(bad); i++) {
        if (parse(bad[i])) fprintf(stderr, "accepted: %s\n", bad[i]);
        CHECK(!parse(bad[i]));
    }
    char deep[20001];
    memset(deep, '[', 20000);
    deep[20000] = 0;
    CHECK(!parse(deep));
    CHECK(strstr(err.message, "deeper"));
    CHECK(!parse("{\n \"a\": x}"));
    CHECK_INT(err.line, 2);
    CHECK_INT(err.column, 7);
    arena_free(&arena);
}

TEST(invalid_utf8)
{
    const struct json *v = parse("\"a\xFF\xE2\x82z\"");
    CHECK(v && str_is(v->string, "a\xEF\xBF\xBD\xEF\xBF\xBDz"));
    arena_free(&arena);
}

/* Whatever the kind, looking for elements and members is safe. */
TEST(looking_into_every_kind)
{
    static const char *const texts[] = {"null", "true", "7", "1e300", "\"text\"", "[]", "[1]", "{}", "{\"a\":2}"};
    for (size_t i = 0; i < ROSE_COUNT(texts); i++) {
        struct arena a;
        const struct json *v;
        struct rose_error err = {0};
        arena_init(&a, 0);
        CHECK_OK(json_parse(&a, NULL, str_of(texts[i]), &v, &err), err);
        CHECK_INT(json_int(json_at(v, 0), -1), i == 6 ? 1 : -1);
        CHECK_INT(json_int(&json_member(v, 0)->value, -1), i == 8 ? 2 : -1);
        CHECK_INT(json_member(v, 0)->key.n, i == 8 ? 1 : 0);
        CHECK(json_is_null(json_at(v, 1)) && json_is_null(&json_member(v, 1)->value) && json_is_null(json_at(v, SIZE_MAX)));
        arena_free(&a);
    }
    CHECK(json_is_null(json_at(NULL, 0)) && !json_member(NULL, 0)->key.n);
}

TEST_MAIN(CASE(looking_into_every_kind), CASE(values), CASE(wide_numbers), CASE(long_array), CASE(rejects), CASE(invalid_utf8))
