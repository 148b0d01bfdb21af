/* Option tables: parsing, precedence, limits, help and man page; hub names and hashes. */
#define _GNU_SOURCE
#include "base/option.h"

#include "base/hub.h"
#include "base/sha1.h"
#include "test.h"

static struct {
    bool json, pin;
    int64_t threads, bytes;
    double temperature;
    const char *kind, *name;
    struct option_list stop;
} o;

static const struct option table[] = {
    {"json", 'j', OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "an object", &o.json},
    {"pin", 0, OPTION_FLAG, NULL, NULL, NULL, "yes", 0, 0, "bind threads", &o.pin},
    {"threads", 't', OPTION_INT, "ROSE_TEST_THREADS", "N", NULL, "4", 0, 64, "workers", &o.threads},
    {.type = OPTION_GROUP, .help = "More:"},
    {"bytes", 0, OPTION_SIZE, NULL, "SIZE", NULL, "1k", 0, 0, "memory", &o.bytes},
    {"temperature", 0, OPTION_NUMBER, NULL, "X", NULL, "0", 0, 2, "heat", &o.temperature},
    {"kind", 0, OPTION_CHOICE, NULL, NULL, "one|three", "one", 0, 0, "a choice", &o.kind},
    {"name", 0, OPTION_TEXT, NULL, "TEXT", NULL, NULL, 0, 0, "a text that is -- well -- long enough to be wrapped at the width of a narrow terminal", &o.name},
    {"stop", 0, OPTION_LIST, NULL, "TEXT", NULL, NULL, 0, 0, "may be repeated", &o.stop},
};

static const char *rest[2];
static int rest_count;
static bool help;
static struct rose_error err;

#define PARSE(...) parse((char *[]){(char[]){"command"}, __VA_ARGS__, NULL})
static enum rose_status parse(char **argv)
{
    int argc = 0;
    while (argv[argc]) argc++;
    memset(&o, 0, sizeof o);
    memset(&err, 0, sizeof err);
    return option_parse(table, ROSE_COUNT(table), argc, argv, rest, 2, &rest_count, &help, &err);
}
#define W(text) ((char[]){text})

TEST(values)
{
    CHECK_OK(PARSE(W("model"), W("--json"), W("-t"), W("7"), W("--bytes=2M"), W("--temperature"), W("0.5"), W("--kind"), W("three"), W("--stop"), W("a"), W("--stop=b=c"),
                   W("--no-pin"), W("--"), W("--json")), err);
    CHECK(o.json && !o.pin && !help);
    CHECK_INT(o.threads, 7);
    CHECK_INT(o.bytes, 2 << 20);
    CHECK_NEAR(o.temperature, 0.5, 0);
    CHECK_STR(o.kind, "three");
    CHECK_INT(o.stop.count, 2);
    CHECK_STR(o.stop.items[1], "b=c");
    CHECK_INT(rest_count, 2);
    CHECK_STR(rest[0], "model");
    CHECK_STR(rest[1], "--json");
}

TEST(defaults_and_environment)
{
    unsetenv("ROSE_TEST_THREADS");
    CHECK_OK(PARSE(W("-")), err);
    CHECK(o.threads == 4 && o.pin && o.bytes == 1024 && !o.name && rest_count == 1);
    setenv("ROSE_TEST_THREADS", "9", 1);
    CHECK_OK(PARSE(W("x")), err);
    CHECK_INT(o.threads, 9);
    CHECK_OK(PARSE(W("-t3")), err);
    CHECK_INT(o.threads, 3);
    setenv("ROSE_TEST_THREADS", "many", 1);
    CHECK_INT(PARSE(W("x")), ROSE_INVALID);
    CHECK(strstr(err.message, "ROSE_TEST_THREADS") != NULL);
    /* Help is given even then. */
    CHECK_OK(PARSE(W("--help")), err);
    CHECK(help);
    unsetenv("ROSE_TEST_THREADS");
}

TEST(mistakes)
{
    static const struct {
        const char *word, *says;
    } bad[] = {{"--nonsense", "--nonsense"}, {"-x", "-x"},          {"--threads=65", "64"},      {"--threads=-1", "0"},         {"--threads=1.5", "whole"}, {"--threads", "value"},
               {"--kind=two", "one|three"},  {"--json=maybe", "yes"}, {"--temperature=hot", "number"}, {"--temperature=nan", "number"}, {"--bytes=-1", "size"},     {"--bytes=9999999T", "size"},
               {"--no-threads", "unknown"},  {"--no-json=1", "value"}, {"-tj", "whole"},            {"-jx", "-jx"}};
    for (size_t i = 0; i < ROSE_COUNT(bad); i++) {
        char word[64];
        snprintf(word, sizeof word, "%s", bad[i].word);
        CHECK_INT(PARSE(word), ROSE_INVALID);
        if (!strstr(err.message, bad[i].says)) fprintf(stderr, "%s: %s\n", word, err.message);
        CHECK(strstr(err.message, bad[i].says) != NULL);
    }
    CHECK_INT(PARSE(W("a"), W("b"), W("c")), ROSE_INVALID);
    char *many[2 * OPTION_LIST_MAX + 4] = {W("command")};
    for (int i = 0; i <= OPTION_LIST_MAX; i++) many[1 + 2 * i] = W("--stop"), many[2 + 2 * i] = W("x");
    CHECK_INT(parse(many), ROSE_INVALID);
}

TEST(help_and_man)
{
    struct strbuf b = {0};
    option_help(table, ROSE_COUNT(table), 60, &b);
    CHECK(strstr(b.p, "  -t, --threads N") && strstr(b.p, "(default 4)") && strstr(b.p, "[ROSE_TEST_THREADS]") && strstr(b.p, "\nMore:\n"));
    for (const char *line = b.p; *line;) {
        size_t n = strcspn(line, "\n");
        CHECK(n <= 60);
        line += n + (line[n] == '\n');
    }
    b.n = 0;
    option_man(table, ROSE_COUNT(table), &b);
    CHECK(strstr(b.p, "\\-\\-threads N\n") && strstr(b.p, ".SS More:") && strstr(b.p, "\\-\\- well"));
    strbuf_free(&b);
}

TEST(surroundings)
{
    setenv("HF_HOME", "/somewhere", 1);
    CHECK_STR(option_env("HF_HOME"), "/somewhere");
    setenv("HF_HOME", "", 1);
    CHECK(!option_env("HF_HOME"));
    setenv("ROSE_SECRET", "x", 1);
    CHECK(!option_env("ROSE_SECRET"));
    CHECK(setenv("XDG_CACHE_HOME", "relative/place", 1) == 0 && !option_env("XDG_CACHE_HOME"));
    CHECK(setenv("XDG_CACHE_HOME", "/place", 1) == 0);
    CHECK_STR(option_env("XDG_CACHE_HOME"), "/place");
    CHECK(unsetenv("XDG_CACHE_HOME") == 0);

    /* Every name that src asks for is one that is answered. */
    char name[100];
    int asked = 0;
    FILE *names = popen("grep -rhoE '(option_env|named_directory)\\(\"[A-Z_]+' src | sed 's/.*\"//' | sort -u", "r");
    CHECK(names != NULL);
    while (names && fgets(name, sizeof name, names)) {
        char old[4096];
        name[strcspn(name, "\n")] = '\0';
        const char *was = getenv(name);
        snprintf(old, sizeof old, "%s", was ? was : "");
        setenv(name, "/there", 1);
        if (!option_env(name)) fprintf(stderr, "option_env does not know %s\n", name);
        CHECK(option_env(name) != NULL);
        if (was) setenv(name, old, 1);
        else unsetenv(name);
        asked++;
    }
    CHECK(names && pclose(names) == 0 && asked > 8);
}

TEST(hub_names)
{
    struct str org, name, revision;
    CHECK(hub_name("acme/Tiny-1.5B_x", &org, &name, &revision) && str_is(org, "acme") && str_is(name, "Tiny-1.5B_x") && !revision.n);
    CHECK(hub_name("a/b@refs/pr/1", &org, &name, &revision) && str_is(name, "b") && str_is(revision, "refs/pr/1"));
    static const char *const not_names[] = {"model", "./model", "../a", "a/", "/a", "a/b/c", "~/x", "a/b@", "a/b@../c", "a--b/c", "a/..", "a b/c", "-a/b", ""};
    for (size_t i = 0; i < ROSE_COUNT(not_names); i++) CHECK(!hub_name(not_names[i], &org, &name, &revision));
    CHECK(hub_safe_path(STR("a/b.json")) && hub_safe_path(STR("..a/b..")));
    static const char *const unsafe[] = {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb"};
    for (size_t i = 0; i < ROSE_COUNT(unsafe); i++) CHECK(!hub_safe_path(str_of(unsafe[i])));
    CHECK(hub_is_hash(STR("0123abc")) && !hub_is_hash(STR("0123AB")) && !hub_is_hash(STR("012")) && !hub_is_hash(STR("main123")));
}

static void sha1_is(const char *text, size_t repeat, const char *want)
{
    struct sha1 h;
    uint8_t digest[20];
    char hex[41];
    sha1_init(&h);
    for (size_t i = 0; i < repeat; i++) sha1_add(&h, text, strlen(text));
    sha1_end(&h, digest);
    for (int i = 0; i < 20; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    CHECK_STR(hex, want);
}

/* The examples of FIPS 180, and lengths around the padding's border (from Python's hashlib). */
TEST(sha1_examples)
{
    sha1_is("abc", 1, "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1_is("", 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sha1_is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    sha1_is("a", 1000000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    sha1_is("x", 55, "cef734ba81a024479e09eb5a75b6ddae62e6abf1");
    sha1_is("x", 56, "901305367c259952f4e7af8323f480d59f81335b");
    sha1_is("x", 64, "bb2fa3ee7afb9f54c6dfb5d021f14b1ffe40c163");
}

TEST_MAIN(CASE(values), CASE(defaults_and_environment), CASE(mistakes), CASE(help_and_man), CASE(surroundings), CASE(hub_names), CASE(sha1_examples))
