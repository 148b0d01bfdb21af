/* Packed weights kept for the next start: what was written comes back, what is not exactly that does not. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/packed.h"
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

static void keep(const char *key)
{
    struct packed_store *s = packed_store_begin(dir, "model", str_of(key), memory, BYTES);
    CHECK(s != NULL);
    packed_store_end(s);
}

static bool there(const char *model, const char *key, size_t bytes)
{
    const void *map = packed_map(dir, model, str_of(key), bytes);
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
    keep("key 2\n"); /* the model has changed: one file a model */
    CHECK_INT(files(path, sizeof path), 1);
    CHECK(there("model", "key 2\n", BYTES) && !there("model", "key 1\n", BYTES));
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
    for (off_t at = size - 28; at < size; at++) { /* key and tail */
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

/* The page cache holds pieces in small pages, or not at all: what is mapped is the file all the same, beside a map that is in use. */
TEST(whatever_the_page_cache_holds)
{
    char path[300], byte;
    begin();
    keep("key\n");
    CHECK_INT(files(path, sizeof path), 1);
    int fd = open(path, O_RDONLY);
    for (int step = 4096; step <= 4 << 20; step *= 4) {
        CHECK(fd >= 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
        for (off_t at = step / 2; at < BYTES; at += step) CHECK(pread(fd, &byte, 1, at) == 1 && (unsigned char)byte == memory[at]);
        const void *map = packed_map(dir, "model", STR("key\n"), BYTES);
        CHECK(map && there("model", "key\n", BYTES) && !memcmp(map, memory, BYTES));
        packed_unmap(map, STR("key\n"), BYTES);
    }
    close(fd);
    end();
}

TEST(not_worth_it_or_not_possible)
{
    char path[300];
    begin();
    CHECK(packed_store_begin(dir, "model", STR("key"), memory, 1 << 20) == NULL); /* little to gain */
    CHECK(packed_store_begin(dir, "model", STR(""), memory, BYTES) == NULL);
    CHECK(packed_store_begin("/proc/no/such/place", "model", STR("key"), memory, BYTES) == NULL);
    CHECK(packed_store_begin("/dev/shm", "model", STR("key"), memory, BYTES) == NULL); /* in memory */
    rmdir("/dev/shm/packed");
    packed_store_end(NULL);
    CHECK_INT(files(path, sizeof path), 0);
    end();
}

TEST_MAIN(CASE(comes_back), CASE(damaged_files_are_not_there), CASE(whatever_the_page_cache_holds), CASE(not_worth_it_or_not_possible))
