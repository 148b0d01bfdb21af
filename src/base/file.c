#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Under AddressSanitizer the rest of a map's last page is poisoned, so that reading past the file's end is found. */
#if defined(__SANITIZE_ADDRESS__)
#define FILE_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FILE_POISON 1
#endif
#endif
#ifdef FILE_POISON
#include <sanitizer/asan_interface.h>
static void guard_tail(const struct file_map *map, bool on)
{
    size_t whole = size_round_up(map->size, (size_t)sysconf(_SC_PAGESIZE));
    if (on) ASAN_POISON_MEMORY_REGION(map->data + map->size, whole - map->size);
    else ASAN_UNPOISON_MEMORY_REGION(map->data, whole);
}
#else
static void guard_tail(const struct file_map *map, bool on) { (void)map, (void)on; }
#endif

static enum rose_status os_error(struct rose_error *err, const char *path, const char *doing)
{
    enum rose_status s = errno == ENOENT ? ROSE_NOT_FOUND : errno == ENOMEM ? ROSE_NO_MEMORY : ROSE_IO;
    return status_at(err, s, path, -1, "cannot %s %s: %s", doing, path, strerror(errno));
}

/* Opens a regular file; a directory or a device would hang or surprise a reader. */
static enum rose_status open_regular(const char *path, int *fd, size_t *size, struct rose_error *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return os_error(err, path, "open");
    if (fstat(*fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(*fd);
        return status_at(err, ROSE_INVALID, path, -1, "%s is not a regular file", path);
    }
    *size = (size_t)st.st_size;
    return ROSE_OK;
}

enum rose_status file_map_open(struct file_map *map, const char *path, struct rose_error *err)
{
    int fd;
    *map = (struct file_map){0};
    ROSE_TRY(open_regular(path, &fd, &map->size, err));
    if (map->size) {
        void *p = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            enum rose_status s = errno == ENOMEM ? status_at(err, ROSE_NO_MEMORY, path, -1, "cannot map %s: its %.1f GB are more than this process may address; raise that limit (ulimit -v)",
                                                             path, (double)map->size / 1e9)
                                                 : os_error(err, path, "map");
            close(fd);
            return s;
        }
        map->data = p;
        guard_tail(map, true);
    }
    close(fd);
    map->path = strdup(path);
    if (!map->path) {
        file_map_close(map);
        return status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    return ROSE_OK;
}

void file_map_close(struct file_map *map)
{
    if (map->data) guard_tail(map, false);
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    free(map->path);
    *map = (struct file_map){0};
}

void file_map_release(const struct file_map *map, size_t offset, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = size_round_up(offset, page), to = (offset + n) / page * page;
    if (map->data && to > from) madvise((void *)(uintptr_t)(map->data + from), to - from, MADV_DONTNEED);
}

enum rose_status file_read(struct arena *arena, const char *path, size_t limit, struct str *out, struct rose_error *err)
{
    int fd;
    size_t size, n = 0;
    ROSE_TRY(open_regular(path, &fd, &size, err));
    if (size > limit) {
        close(fd);
        return status_at(err, ROSE_LIMIT, path, -1, "%s has %zu bytes; at most %zu are read", path, size, limit);
    }
    char *p = arena_alloc(arena, size + 1);
    if (!p) {
        close(fd);
        return status_at(err, ROSE_NO_MEMORY, path, -1, "no memory to read %s (%zu bytes)", path, size);
    }
    while (n < size) {
        ssize_t got = read(fd, p + n, size - n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            enum rose_status s = os_error(err, path, "read");
            close(fd);
            return s;
        }
        if (got == 0) break;
        n += (size_t)got;
    }
    close(fd);
    p[n] = '\0';
    *out = (struct str){p, n};
    return ROSE_OK;
}

static enum rose_status put_all(int fd, const char *path, struct str content, struct rose_error *err)
{
    for (size_t done = 0; done < content.n;) {
        ssize_t put = write(fd, content.p + done, content.n - done);
        if (put >= 0) done += (size_t)put;
        else if (errno != EINTR) return os_error(err, path, "write");
    }
    return ROSE_OK;
}

enum rose_status file_write_atomic(const char *path, struct str content, struct rose_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) { /* a pipe or a device is written to, never replaced */
        int device = open(path, O_WRONLY | O_CLOEXEC);
        if (device < 0) return os_error(err, path, "write");
        enum rose_status written = put_all(device, path, content, err);
        close(device);
        return written;
    }
    size_t n = strlen(path);
    char *temp = malloc(n + 16);
    if (!temp) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    snprintf(temp, n + 16, "%s.XXXXXX", path);
    enum rose_status s;
    int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0) {
        s = os_error(err, path, "write");
        free(temp);
        return s;
    }
    s = put_all(fd, path, content, err);
    if (s == ROSE_OK && (fchmod(fd, 0644) != 0 || fsync(fd) != 0)) s = os_error(err, path, "write");
    if (close(fd) != 0 && s == ROSE_OK) s = os_error(err, path, "write");
    if (s == ROSE_OK && rename(temp, path) != 0) s = os_error(err, path, "write");
    if (s != ROSE_OK) unlink(temp);
    free(temp);
    return s;
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

bool file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum rose_status file_make_dirs(const char *path, struct rose_error *err)
{
    char *copy = strdup(path);
    if (!copy) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = ROSE_OK;
    for (char *slash = copy + (*copy == '/');; slash++) {
        if (*slash && *slash != '/') continue;
        char keep = *slash;
        *slash = '\0';
        if (*copy && mkdir(copy, 0755) != 0 && (errno != EEXIST || !file_is_dir(copy))) s = os_error(err, copy, "make directory");
        *slash = keep;
        if (!keep || s != ROSE_OK) break;
    }
    free(copy);
    return s;
}

char *file_join(struct arena *arena, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return arena_printf(arena, n && dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}
