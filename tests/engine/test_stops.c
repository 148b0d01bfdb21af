#include "engine/stops.h"
#include "test.h"

/* Feed a text in pieces of n bytes; what is shown, joined, must not depend on n. */
static int feed(const char *text, size_t n, const struct str *strings, size_t count, bool include, char *shown)
{
    struct stops s;
    CHECK(stops_open(&s, strings, count, include));
    int hit = -1;
    *shown = '\0';
    for (size_t i = 0, len = strlen(text); i < len && hit < 0; i += n) {
        struct str show;
        hit = stops_add(&s, (struct str){text + i, n < len - i ? n : len - i}, &show);
        strncat(shown, show.p, show.n);
    }
    if (hit < 0) {
        struct str rest = stops_end(&s);
        strncat(shown, rest.p, rest.n);
    }
    stops_close(&s);
    return hit;
}

TEST(across_pieces)
{
    const struct str two[] = {STR("</end>"), STR("\n\nUser:")};
    for (size_t n = 1; n < 12; n++) {
        char shown[256];
        CHECK_INT(feed("hello</en there\n\nUse it\n\nUser: x", n, two, 2, false, shown), 1);
        CHECK_STR(shown, "hello</en there\n\nUse it");
        CHECK_INT(feed("a</end>b", n, two, 2, true, shown), 0);
        CHECK_STR(shown, "a</end>");
        CHECK_INT(feed("nothing </end", n, two, 2, false, shown), -1);
        CHECK_STR(shown, "nothing </end");
    }
}

TEST(newline_keeps_the_character_before)
{
    const struct str one[] = {STR("\n")};
    char shown[64];
    CHECK_INT(feed("x\xC3\xA9.\nmore", 5, one, 1, false, shown), 0);
    CHECK_STR(shown, "x\xC3\xA9.");
}

TEST(overlapping_starts)
{
    const struct str two[] = {STR("aab"), STR("ab")};
    for (size_t n = 1; n < 8; n++) {
        char shown[64];
        CHECK_INT(feed("xaaab", n, two, 2, false, shown), 0);
        CHECK_STR(shown, "xa");
    }
}

TEST_MAIN(CASE(across_pieces), CASE(newline_keeps_the_character_before), CASE(overlapping_starts))
