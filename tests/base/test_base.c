#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/status.h"
#include "base/utf8.h"
#include "test.h"

TEST(sha256_vectors)
{
    struct sha256 h;
    uint8_t d[32];
    char hex[65];
    sha256_init(&h), sha256_add(&h, "abc", 3), sha256_end(&h, d), sha256_hex(d, hex);
    CHECK_STR(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_init(&h);
    for (int i = 0; i < 1000000; i++) sha256_add(&h, "a", 1);
    sha256_end(&h, d), sha256_hex(d, hex);
    CHECK_STR(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(map_many)
{
    struct map m = {0};
    static char keys[5000][8];
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(keys[i], 8, "k%u", i);
        CHECK(map_put(&m, str_of(keys[i]), i));
    }
    uint32_t v;
    for (uint32_t i = 0; i < 5000; i++) CHECK(map_get(&m, str_of(keys[i]), &v) && v == i);
    CHECK(!map_get(&m, str_of("none"), &v));
    CHECK(map_put(&m, str_of("k7"), 99) && map_get(&m, str_of("k7"), &v) && v == 99);
    map_free(&m);
}

TEST(utf8_edges)
{
    CHECK(utf8_valid(str_of("a\xC3\xA9\xF0\x9F\x98\x80")));
    CHECK(!utf8_valid(str_of("\xC0\x80")));
    CHECK(!utf8_valid(str_of("\xED\xA0\x80")));
    CHECK_INT(utf8_complete(str_of("ab\xF0\x9F")), 2);
    CHECK_INT(utf8_complete(str_of("ab\xC3\xA9")), 4);
    CHECK_INT(utf8_complete(str_of("ab\xFF")), 3);
}

TEST(messages_are_plain_text)
{
    struct rose_error e;
    CHECK(status_set(&e, ROSE_INVALID, "%s", "a\x1b\n\xC3\xA9\xFF\xE2\x82 \xC3") == ROSE_INVALID);
    CHECK_STR(e.message, "a?\n\xC3\xA9??? ?");
    CHECK(status_set(&e, ROSE_INVALID, "%*s%s", (int)sizeof e.message - 2, "", "\xC3\xA9") == ROSE_INVALID); /* cut within a character */
    CHECK(utf8_valid(str_of(e.message)) && e.message[sizeof e.message - 2] == '?');
}

TEST(arena_limits)
{
    struct arena a;
    arena_init(&a, 1000);
    CHECK(arena_alloc(&a, 900));
    CHECK(!arena_alloc(&a, 200));
    CHECK(!arena_zalloc(&a, SIZE_MAX / 2, 16));
    arena_free(&a);
    arena_init(&a, 0);
    for (int i = 0; i < 10000; i++) memset(arena_alloc(&a, 100), 1, 100);
    arena_reset(&a);
    CHECK_INT(a.used, 0);
    arena_free(&a);
}

TEST(files)
{
    char dir[] = "/tmp/rose-test-XXXXXX";
    CHECK(mkdtemp(dir));
    struct arena a;
    struct rose_error err;
    arena_init(&a, 0);
    char *path = file_join(&a, dir, "x"), *deep = file_join(&a, dir, "p/q/r");
    const char *pipe = file_join(&a, dir, "pipe");
    struct stat kind;
    char got[8];
    CHECK(mkfifo(pipe, 0600) == 0);
    int ends = open(pipe, O_RDWR | O_CLOEXEC);
    CHECK_OK(file_write_atomic(pipe, STR("hello"), &err), err);
    CHECK(stat(pipe, &kind) == 0 && S_ISFIFO(kind.st_mode) && read(ends, got, sizeof got) == 5);
    close(ends);
    CHECK_OK(file_write_atomic(path, STR("hello"), &err), err);
    struct str s;
    CHECK_OK(file_read(&a, path, 100, &s, &err), err);
    CHECK(str_is(s, "hello"));
    CHECK_INT(file_read(&a, path, 4, &s, &err), ROSE_LIMIT);
    CHECK_INT(file_read(&a, dir, 100, &s, &err), ROSE_INVALID);
    CHECK_INT(file_read(&a, "/nonexistent/rose", 100, &s, &err), ROSE_NOT_FOUND);
    CHECK_OK(file_make_dirs(deep, &err), err);
    CHECK(file_is_dir(deep));
    struct file_map m;
    CHECK_OK(file_map_open(&m, path, &err), err);
    CHECK_INT(m.size, 5);
    file_map_close(&m);
    char *rm = arena_printf(&a, "rm -r %s", dir);
    CHECK(system(rm) == 0);
    arena_free(&a);
}

TEST_MAIN(CASE(sha256_vectors), CASE(map_many), CASE(utf8_edges), CASE(messages_are_plain_text), CASE(arena_limits), CASE(files))
