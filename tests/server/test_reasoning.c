#define _GNU_SOURCE
/* The splitter at <think> tags: whatever the pieces, the parts are the same. */
#include "server/reasoning.h"
#include "server/keys.h"
#include "test.h"

#include <unistd.h>

static void check_split(enum reasoning_state state, const char *text, const char *thoughts, const char *content)
{
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
        struct reasoning r = {.state = state};
        struct strbuf t = {0}, c = {0};
        for (size_t at = 0; at < strlen(text); at += piece) {
            size_t n = strlen(text) - at < piece ? strlen(text) - at : piece;
            reasoning_add(&r, (struct str){text + at, n}, &t, &c);
        }
        reasoning_end(&r, &t, &c);
        CHECK_STR(t.p ? t.p : "", thoughts);
        CHECK_STR(c.p ? c.p : "", content);
        strbuf_free(&t);
        strbuf_free(&c);
    }
}

TEST(splits)
{
    check_split(REASONING_OFF, "<think>a</think>b", "", "<think>a</think>b");
    check_split(REASONING_BEGIN, "<think>a</think>b", "a", "b");
    check_split(REASONING_BEGIN, "\n <think>\na < b </thin </think>\n\nb <think>", "\na < b </thin ", "b <think>");
    check_split(REASONING_BEGIN, "<thin air", "", "<thin air");
    check_split(REASONING_BEGIN, "<thi", "", "<thi");
    check_split(REASONING_BEGIN, "plain", "", "plain");
    check_split(REASONING_THINK, "a</think>b", "a", "b");
    check_split(REASONING_THINK, "a<<</think></think>b", "a<<", "</think>b");
    check_split(REASONING_THINK, "never ends </thin", "never ends </thin", "");
}

TEST(keys)
{
    char path[] = "/tmp/rose_keys_XXXXXX";
    static const char text[] = "# comment\nalpha\r\n\n  \nbeta \n";
    struct keys k;
    struct rose_error err = {0};
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    CHECK_OK(keys_read(&k, path, &err), err);
    CHECK_INT(k.count, 2);
    CHECK(keys_match(&k, STR("alpha")) && keys_match(&k, STR("beta")));
    CHECK(!keys_match(&k, STR("alph")) && !keys_match(&k, STR("")) && !keys_match(&k, STR("# comment")) && !keys_match(&k, STR("beta ")));
    keys_free(&k);
    CHECK(truncate(path, 0) == 0);
    CHECK_INT(keys_read(&k, path, &err), ROSE_INVALID);
    unlink(path);
    close(fd);
}

TEST_MAIN(CASE(splits), CASE(keys))
