/* The bound on thoughts: which tokens are forced, for every way the text can be cut into tokens. */
#include "engine/thoughts.h"
#include "base/status.h"
#include "test.h"

static int32_t ids[] = {7, 8, 9};
static const struct thoughts closing = {.budget = 3, .open = STR("<think>"), .close = STR("</think>"), .close_ids = ids, .close_count = 3};

static struct thoughts_state after(const struct thoughts *t, const char *const *texts, int n)
{
    struct thoughts_state s;
    thoughts_begin(t, &s);
    for (int i = 0; i < n; i++) thoughts_add(t, &s, str_of(texts[i]), i + 1);
    return s;
}

TEST(forces_the_close_behind_the_budget)
{
    struct thoughts_state s = after(&closing, (const char *[]){"\n<th", "ink>", "a", "b"}, 4);
    CHECK_INT(s.phase, THOUGHTS_IN);
    CHECK_INT(s.begun, 2);
    CHECK_INT(thoughts_force(&closing, &s, 4), -1); /* the third thought is free */
    for (int i = 0; i < 3; i++) CHECK_INT(thoughts_force(&closing, &s, 5 + i), ids[i]);
    CHECK_INT(thoughts_force(&closing, &s, 8), -1);
}

TEST(leaves_alone_what_ends_or_does_not_begin)
{
    struct thoughts_state s = after(&closing, (const char *[]){"<think>", "a<", "</thi", "nk>b"}, 4); /* a broken match, then a whole one over two tokens */
    CHECK_INT(s.phase, THOUGHTS_DONE);
    CHECK_INT(thoughts_force(&closing, &s, 100), -1);
    s = after(&closing, (const char *[]){" ", "<thin", "g>"}, 3);
    CHECK_INT(s.phase, THOUGHTS_DONE);
    s = after(&closing, (const char *[]){"Hello <think>"}, 1);
    CHECK_INT(s.phase, THOUGHTS_DONE);
    struct thoughts none = {0};
    s = after(&none, (const char *[]){"<think>"}, 1);
    CHECK_INT(thoughts_force(&none, &s, 1000), -1);
    CHECK(!thoughts_wait(&none, &s, 1000));
}

TEST(a_prompt_that_has_opened_them)
{
    struct thoughts t = closing;
    t.open = (struct str){"", 0};
    struct thoughts_state s = after(&t, (const char *[]){"a"}, 1);
    CHECK_INT(s.phase, THOUGHTS_IN);
    CHECK_INT(thoughts_force(&t, &s, 2), -1);
    CHECK_INT(thoughts_force(&t, &s, 3), 7);
    CHECK(!thoughts_wait(&t, &s, 2));
    CHECK(thoughts_wait(&t, &s, 3)); /* the token before it may close them */
}

/* Any text, cut anywhere, gives the phase that the whole text gives. */
TEST(cuts_do_not_matter)
{
    static const char alphabet[] = "<</think> \nthinka>";
    uint64_t state = 11;
    for (int round = 0; round < 20000; round++) {
        char text[40];
        int n = 0, begin = round % 2 ? snprintf(text, sizeof text, "<think>") : 0;
        for (n = begin; n < 39; n++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            text[n] = alphabet[(state >> 33) % (sizeof alphabet - 1)];
        }
        struct thoughts_state whole, cut;
        thoughts_begin(&closing, &whole);
        thoughts_begin(&closing, &cut);
        thoughts_add(&closing, &whole, (struct str){text, 39}, 1);
        for (int at = 0, k = 1; at < 39; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            int m = ROSE_MIN(39 - at, (int)((state >> 33) % 4));
            thoughts_add(&closing, &cut, (struct str){text + at, (size_t)m}, k);
            at += m;
        }
        CHECK_INT(cut.phase, whole.phase);
        CHECK_INT(cut.matched, whole.matched);
    }
}

TEST_MAIN(CASE(forces_the_close_behind_the_budget), CASE(leaves_alone_what_ends_or_does_not_begin), CASE(a_prompt_that_has_opened_them), CASE(cuts_do_not_matter))
