/* Packed weights kept for the next start: what was written comes back, what is not exactly that does not. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "model/packed.h"
#include "model/packed_list.h"
#include "test.h"

enum { BYTES = (5 << 20) + 256 };

static char dir[64];
static unsigned char *memory;

static void begin(void)
{
    strcpy(dir, "/var/tmp/rose-packed-XXXXXX"); /* on a disk: nothing is kept on a file system in memory */
    CHECK(mkdtemp(dir) != NULL);
    memory = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) memory[i] = (unsigned char)(i * 7 ^ i >> 9);
}

/* The files below dir/packed; the path of the last one. */
static int files(char *path, size_t n)
{
    char folder[128];
    int count = 0;
    snprintf(folder, sizeof folder, "%s/packed", dir);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') count++, snprintf(path, n, "%s/%.100s", folder, e->d_name);
    if (d) closedir(d);
    return count;
}

static void end(void)
{
    char path[300];
    while (files(path, sizeof path)) unlink(path);
    snprintf(path, sizeof path, "%s/packed", dir);
    rmdir(path);
    rmdir(dir);
    free(memory);
}

static void keep_within(const char *model, const char *key, uint64_t limit)
{
    const char *why = "";
    struct packed_store *s = packed_store_begin(dir, model, str_of(key), memory, BYTES, limit, &why);
    CHECK(s != NULL && !why);
    packed_store_end(s);
}
static void keep(const char *key) { keep_within("model", key, 0); }

static bool there(const char *model, const char *key, size_t bytes)
{
    bool damaged;
    const void *map = packed_map(dir, model, str_of(key), bytes, &damaged);
    bool same = map && !memcmp(map, memory, ROSE_MIN(bytes, (size_t)BYTES));
    CHECK(!map || same);
    packed_unmap(map, str_of(key), bytes);
    return map != NULL;
}

TEST(comes_back)
{
    char path[300];
    struct stat st;
    begin();
    CHECK(!there("model", "key 1\n", BYTES));
    keep("key 1\n");
    CHECK_INT(files(path, sizeof path), 1);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(there("model", "key 1\n", BYTES));
    CHECK(!there("model", "key 2\n", BYTES));
    CHECK(!there("other", "key 1\n", BYTES));
    CHECK(!there("model", "key 1\n", BYTES - 256));
    CHECK(!there("model", "", BYTES));
    keep("key 2\n"); /* another version's file of the model goes */
    CHECK_INT(files(path, sizeof path), 1);
    CHECK(there("model", "key 2\n", BYTES) && !there("model", "key 1\n", BYTES));
    keep(PACKED_PROGRAM "layout 1\n"); /* this one's stay, in two layouts */
    keep(PACKED_PROGRAM "layout 2\n");
    CHECK_INT(files(path, sizeof path), 2);
    CHECK(there("model", PACKED_PROGRAM "layout 1\n", BYTES) && there("model", PACKED_PROGRAM "layout 2\n", BYTES));
    end();
}

TEST(damaged_files_are_not_there)
{
    char path[300];
    begin();
    keep("key\n");
    CHECK_INT(files(path, sizeof path), 1);
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    char byte, other;
    for (off_t at = size - 36; at < size; at++) { /* key and tail */
        if (at >= size - 16 && at < size - 8) continue; /* the checksum: such a file goes, see below */
        CHECK(pread(fd, &byte, 1, at) == 1);
        other = (char)~byte;
        CHECK(pwrite(fd, &other, 1, at) == 1);
        CHECK(!there("model", "key\n", BYTES));
        CHECK(pwrite(fd, &byte, 1, at) == 1);
    }
    CHECK(there("model", "key\n", BYTES));
    CHECK(fchmod(fd, 0620) == 0 && !there("model", "key\n", BYTES)); /* somebody else may write it */
    CHECK(fchmod(fd, 0600) == 0 && there("model", "key\n", BYTES));
    CHECK(ftruncate(fd, size - 1) == 0 && !there("model", "key\n", BYTES));
    CHECK(ftruncate(fd, 0) == 0 && !there("model", "key\n", BYTES));
    close(fd);
    CHECK(unlink(path) == 0 && symlink("/etc/passwd", path) == 0 && !there("model", "key\n", BYTES));
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0 && !there("model", "key\n", BYTES));
    end();
}

/* One bit of the weights, wherever it is, or a piece that was overwritten: the file goes, and the next one is good. */
TEST(damaged_weights_are_removed)
{
    static const off_t places[] = {0, 0, 1, 4095, (2 << 20) - 1, 2 << 20, BYTES / 2, BYTES - 1};
    char path[300], piece[4096];
    bool damaged;
    begin();
    for (size_t i = 0; i <= ROSE_COUNT(places); i++) {
        keep("key\n");
        CHECK_INT(files(path, sizeof path), 1);
        CHECK(there("model", "key\n", BYTES));
        int fd = open(path, O_RDWR);
        off_t at = i < ROSE_COUNT(places) ? places[i] : 3 << 20;
        if (!i) at = lseek(fd, 0, SEEK_END) - 16; /* the checksum itself */
        size_t n = i < ROSE_COUNT(places) ? 1 : sizeof piece;
        CHECK(pread(fd, piece, n, at) == (ssize_t)n);
        for (size_t k = 0; k < n; k++) piece[k] ^= 1 << (i + k) % 8;
        CHECK(pwrite(fd, piece, n, at) == (ssize_t)n);
        close(fd);
        CHECK(packed_map(dir, "model", STR("key\n"), BYTES, &damaged) == NULL && damaged);
        CHECK_INT(files(path, sizeof path), 0);
        CHECK(packed_map(dir, "model", STR("key\n"), BYTES, &damaged) == NULL && !damaged);
    }
    end();
}

/* The page cache holds pieces in small pages, or not at all: what is mapped is the file all the same, beside a map that is in use. */
TEST(whatever_the_page_cache_holds)
{
    char path[300], byte;
    bool damaged;
    begin();
    keep("key\n");
    CHECK_INT(files(path, sizeof path), 1);
    int fd = open(path, O_RDONLY);
    for (int step = 4096; step <= 4 << 20; step *= 4) {
        CHECK(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
        for (off_t at = step / 2; at < BYTES; at += step) CHECK(pread(fd, &byte, 1, at) == 1 && (unsigned char)byte == memory[at]);
        const void *map = packed_map(dir, "model", STR("key\n"), BYTES, &damaged);
        CHECK(map && there("model", "key\n", BYTES) && !memcmp(map, memory, BYTES));
        packed_unmap(map, STR("key\n"), BYTES);
    }
    close(fd);
    end();
}

static void refused(const char *place, struct str key, size_t bytes, uint64_t limit, const char *reason)
{
    const char *why = NULL;
    CHECK(packed_store_begin(place, "model", key, memory, bytes, limit, &why) == NULL);
    CHECK(why && strstr(why, reason));
}

TEST(not_worth_it_or_not_possible)
{
    char path[300];
    begin();
    refused(dir, STR("key"), 1 << 20, 0, "little to pack");
    refused(dir, STR(""), BYTES, 0, "");
    refused("/proc/no/such/place", STR("key"), BYTES, 0, "cannot be written");
    refused("/dev/shm", STR("key"), BYTES, 0, "in memory");
    rmdir("/dev/shm/packed");
    refused(dir, STR("key"), BYTES, BYTES, "more than the cache"); /* by its end */
    packed_store_end(NULL);
    CHECK_INT(files(path, sizeof path), 0);
    end();
}

/* ---- the folder stays within bounds ---- */

/* A model: a file in dir, and its key. */
static void model_make(const char *name, const char *content, char path[128], struct strbuf *key)
{
    snprintf(path, 128, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(content, f) >= 0 && fclose(f) == 0);
    *key = (struct strbuf){0};
    strbuf_adds(key, "rose test\n");
    CHECK(packed_key_line(path, key));
}

static bool listed(const char *model, enum packed_state state)
{
    struct packed_list list;
    struct rose_error err = {0};
    bool found = false;
    CHECK_OK(packed_list_read(dir, &list, &err), err);
    for (size_t i = 0; i < list.count; i++) found = found || (!strcmp(list.files[i].model, model) && list.files[i].state == state);
    packed_list_free(&list);
    return found;
}

/* Writing one removes those whose model is gone or another one now, and no others. */
TEST(useless_files_go)
{
    char path[300], model[3][128];
    struct strbuf key[3];
    begin();
    for (int i = 0; i < 3; i++) {
        model_make(i == 0 ? "a" : i == 1 ? "b" : "c", "weights", model[i], &key[i]);
        keep_within(model[i], key[i].p, 0);
    }
    CHECK_INT(files(path, sizeof path), 3);
    CHECK(listed(model[0], PACKED_CURRENT) && listed(model[1], PACKED_CURRENT) && listed(model[2], PACKED_CURRENT));
    CHECK(unlink(model[0]) == 0);
    FILE *f = fopen(model[1], "a");
    CHECK(f && fputs("more", f) >= 0 && fclose(f) == 0);
    CHECK(listed(model[0], PACKED_GONE) && listed(model[1], PACKED_CHANGED) && listed(model[2], PACKED_CURRENT));
    CHECK(there(model[0], key[0].p, BYTES)); /* looking and mapping remove nothing */
    CHECK_INT(files(path, sizeof path), 3);
    keep("rose other\n");
    CHECK_INT(files(path, sizeof path), 2);
    CHECK(there(model[2], key[2].p, BYTES) && there("model", "rose other\n", BYTES));
    for (int i = 0; i < 3; i++) strbuf_free(&key[i]), unlink(model[i]);
    end();
}

/* Beyond the limit the least recently used ones go; mapping is use. A map outlives its file. */
TEST(least_recently_used_go)
{
    char path[300], model[4] = "m0";
    begin();
    for (int i = 0; i < 3; i++) {
        model[1] = (char)('0' + i);
        keep_within(model, "key\n", 0);
        CHECK_INT(files(path, sizeof path), i + 1);
    }
    struct packed_list list;
    struct rose_error err = {0};
    CHECK_OK(packed_list_read(dir, &list, &err), err);
    CHECK_INT(list.count, 3);
    for (size_t i = 0; i < list.count; i++) { /* used one after the other, long ago */
        struct timespec t[2] = {{1000 + (time_t)i, 0}, {1000 + (time_t)i, 0}};
        snprintf(path, sizeof path, "%s/packed/%s", dir, list.files[i].name);
        CHECK(utimensat(AT_FDCWD, path, t, 0) == 0);
    }
    uint64_t one = list.files[0].bytes;
    packed_list_free(&list);
    bool damaged;
    const void *map = packed_map(dir, "m0", STR("key\n"), BYTES, &damaged); /* m0 was the first: now it is the last */
    CHECK(map != NULL);
    keep_within("m3", "key\n", 3 * one);
    CHECK_INT(files(path, sizeof path), 3);
    CHECK(!there("m1", "key\n", BYTES));
    CHECK(there("m0", "key\n", BYTES) && there("m2", "key\n", BYTES) && there("m3", "key\n", BYTES));
    keep_within("m4", "key\n", one);
    CHECK_INT(files(path, sizeof path), 1);
    CHECK(there("m4", "key\n", BYTES) && !there("m0", "key\n", BYTES));
    CHECK(!memcmp(map, memory, BYTES));
    packed_unmap(map, STR("key\n"), BYTES);
    end();
}

/* What is not ours stays: other names, other ends, links, folders, and what a writer may still be at. */
TEST(others_files_stay)
{
    static const char *const names[] = {"notes.txt", "0123456789abcdef-0123456789abcdef.bin", "0123456789abcdef-0123456789abcdef.bin.aBcDeF", "0123456789ABCDEF-0123456789abcdef.bin",
                                        "0123456789abcdef-0123456789abcdef.binary", "0123456789abcdef-0123456789abcde.bin", "0123456789abcdef-0123456789abcdef.bin.old"};
    char path[300], victim[128], model[128];
    struct strbuf key;
    struct stat st;
    begin();
    model_make("gone", "x", model, &key);
    keep_within(model, key.p, 0);
    CHECK_INT(files(path, sizeof path), 1);
    CHECK(unlink(model) == 0);
    snprintf(victim, sizeof victim, "%s/victim", dir);
    CHECK(rename(path, victim) == 0); /* a packed file of a model that is gone, elsewhere: links to it are not followed */
    snprintf(path, sizeof path, "%s/packed/fedcba9876543210-0123456789abcdef.bin", dir);
    CHECK(symlink(victim, path) == 0);
    for (size_t i = 0; i < ROSE_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/packed/%s", dir, names[i]);
        FILE *f = fopen(path, "w");
        CHECK(f && fputs("not packed weights, and long enough to have an end of 24 bytes", f) >= 0 && fclose(f) == 0);
    }
    snprintf(path, sizeof path, "%s/packed/00000000000000ff-0123456789abcdef.bin", dir);
    CHECK(mkdir(path, 0700) == 0);
    keep_within("other", "key\n", BYTES + 4096);
    CHECK_INT(files(path, sizeof path), (int)ROSE_COUNT(names) + 3);
    CHECK(stat(victim, &st) == 0 && unlink(victim) == 0);
    snprintf(path, sizeof path, "%s/packed/%s", dir, names[2]); /* a writer that was killed two hours ago */
    struct timespec t[2] = {{time(NULL) - 7200, 0}, {time(NULL) - 7200, 0}};
    CHECK(utimensat(AT_FDCWD, path, t, 0) == 0);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0); /* is still at it */
    keep_within("another", "key\n", 2 * BYTES + 8192);
    CHECK(stat(path, &st) == 0);
    CHECK(close(fd) == 0);
    keep_within("another", "key\n", 2 * BYTES + 8192);
    CHECK(stat(path, &st) != 0);
    CHECK_INT(files(path, sizeof path), (int)ROSE_COUNT(names) + 3);
    snprintf(path, sizeof path, "%s/packed/00000000000000ff-0123456789abcdef.bin", dir);
    CHECK(rmdir(path) == 0);
    strbuf_free(&key);
    end();
}

/* Processes that write, map and remove in one folder at once: what is mapped is whole, and at the end the folder is within the limit. */
TEST(many_processes)
{
    enum { PROCESSES = 5, ROUNDS = 6, LIMIT = 3 * (BYTES + 8192) };
    char path[300];
    pid_t child[PROCESSES];
    begin();
    for (int p = 0; p < PROCESSES; p++)
        if ((child[p] = fork()) == 0) {
            bool good = true;
            for (int r = 0; r < ROUNDS && good; r++) {
                char model[32], other[32];
                snprintf(model, sizeof model, "model %d", (p + r) % 4);
                snprintf(other, sizeof other, "model %d", (p + r + 1) % 4);
                struct packed_store *s = packed_store_begin(dir, model, STR("key\n"), memory, BYTES, LIMIT, &(const char *){NULL});
                bool damaged;
                const void *map = packed_map(dir, other, STR("key\n"), BYTES, &damaged); /* may be there or not */
                packed_store_end(s);
                good = s && !damaged && (!map || !memcmp(map, memory, BYTES));
                packed_unmap(map, STR("key\n"), BYTES);
            }
            _exit(good ? 0 : 1);
        }
    for (int p = 0; p < PROCESSES; p++) {
        int status = -1;
        CHECK(child[p] > 0 && waitpid(child[p], &status, 0) == child[p] && status == 0);
    }
    keep_within("last", "key\n", LIMIT);
    struct packed_list list;
    struct rose_error err = {0};
    CHECK_OK(packed_list_read(dir, &list, &err), err);
    CHECK(list.count >= 1 && list.bytes <= LIMIT && list.count == (size_t)files(path, sizeof path));
    packed_list_free(&list);
    CHECK(there("last", "key\n", BYTES));
    end();
}

TEST_MAIN(CASE(comes_back), CASE(damaged_files_are_not_there), CASE(damaged_weights_are_removed), CASE(whatever_the_page_cache_holds), CASE(not_worth_it_or_not_possible),
          CASE(useless_files_go), CASE(least_recently_used_go), CASE(others_files_stay), CASE(many_processes))
