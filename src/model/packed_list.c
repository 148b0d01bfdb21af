#define _GNU_SOURCE
#include "model/packed_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "model/packed.h"

enum { MOST = 1 << 16, SHARE = 10, HEX = 16 };
/* A writer locks its file when it has made it, and holds the lock; where there are no locks time tells. */
enum { LOCKED_AFTER = 60, LEFT_AFTER = 3600 };

bool packed_key_line(const char *path, struct strbuf *out)
{
    struct stat st;
    if (stat(path, &st) != 0) return false;
    strbuf_printf(out, "%lld %lld.%09ld %llu %s\n", (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (unsigned long long)st.st_ino, path);
    return !out->failed;
}

/* "<16 hexadecimal digits>-<16>.bin", with a dot and six letters behind it while it is being written. */
static bool name_is_ours(const char *name, bool *temp)
{
    for (int i = 0; i < 2 * HEX + 1; i++)
        if (i == HEX ? name[i] != '-' : !strchr("0123456789abcdef", name[i]) || !name[i]) return false;
    const char *rest = name + 2 * HEX + 1;
    if (strncmp(rest, ".bin", 4)) return false;
    rest += 4;
    *temp = *rest == '.';
    return !*rest || (*temp && strlen(rest) == 7);
}

/* The path in a line "size time inode path" of a key; NULL: no such line. */
static char *line_path(struct str line)
{
    size_t at = 0;
    for (int spaces = 0; at < line.n && spaces < 3; at++) spaces += line.p[at] == ' ';
    return at < line.n ? strndup(line.p + at, line.n - at) : NULL;
}

/* Are the files that a key names as they were? *model: the first of them, owned. */
static enum packed_state key_state(struct str key, char **model)
{
    enum packed_state state = PACKED_CURRENT;
    const char *end = key.p + key.n, *line = memchr(key.p, '\n', key.n);
    if (strncmp(key.p, "rose ", ROSE_MIN(key.n, (size_t)5)) || !line || line + 1 == end || end[-1] != '\n') return PACKED_UNKNOWN;
    for (line++; line < end && state == PACKED_CURRENT;) {
        const char *next = memchr(line, '\n', (size_t)(end - line)) + 1; /* the key ends with one */
        struct strbuf now = {0};
        char *path = line_path((struct str){line, (size_t)(next - 1 - line)});
        if (!path || *path != '/') state = PACKED_UNKNOWN;
        else if (!packed_key_line(path, &now)) state = errno == ENOENT || errno == ENOTDIR ? PACKED_GONE : PACKED_UNKNOWN;
        else if (now.n != (size_t)(next - line) || memcmp(now.p, line, now.n)) state = PACKED_CHANGED;
        strbuf_free(&now);
        if (path && !*model) *model = path;
        else free(path);
        line = next;
    }
    return state;
}

/* Has its writer left this file? */
static bool is_left(int fd, const struct stat *st)
{
    long long age = (long long)time(NULL) - (long long)st->st_mtim.tv_sec;
    return age >= LOCKED_AFTER && (flock(fd, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && age >= LEFT_AFTER));
}

/* One entry of the folder; false: not ours. */
static bool look_at(int folder, const char *name, struct packed_file *out)
{
    struct stat st;
    bool temp, ours = false;
    *out = (struct packed_file){.state = PACKED_UNKNOWN};
    if (!name_is_ours(name, &temp)) return false;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) {
        struct str key = {0};
        memcpy(out->name, name, strlen(name) + 1); /* 37 or 44 characters */
        out->bytes = (uint64_t)st.st_size;
        out->inode = (uint64_t)st.st_ino;
        out->used = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        if (temp) {
            out->state = PACKED_LEFT;
            ours = is_left(fd, &st);
        } else if ((ours = packed_read_key(fd, &key))) {
            out->state = key_state(key, &out->model);
            out->foreign = key.n < strlen(PACKED_PROGRAM) || memcmp(key.p, PACKED_PROGRAM, strlen(PACKED_PROGRAM));
            free((char *)(uintptr_t)key.p);
        }
    }
    close(fd);
    if (ours && !out->model) out->model = strdup("");
    return ours && out->model;
}

static int by_use(const void *a, const void *b)
{
    const struct packed_file *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used) : strcmp(x->name, y->name);
}

static int open_folder(const char *dir)
{
    struct strbuf path = {0};
    strbuf_printf(&path, "%s/packed", dir);
    int fd = path.p && !path.failed ? open(path.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int why = path.failed ? ENOMEM : errno;
    strbuf_free(&path);
    errno = why;
    return fd;
}

enum rose_status packed_list_read(const char *dir, struct packed_list *out, struct rose_error *err)
{
    *out = (struct packed_list){0};
    int fd = open_folder(dir);
    if (fd < 0 && errno == ENOENT) return ROSE_OK;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int why = errno;
        if (fd >= 0) close(fd);
        return status_set(err, ROSE_IO, "%.200s/packed: %s", dir, strerror(why));
    }
    size_t room = 0;
    struct packed_file file;
    for (struct dirent *e; out->count < MOST && (e = readdir(d));) {
        if (!look_at(dirfd(d), e->d_name, &file)) {
            free(file.model);
            continue;
        }
        if (out->count == room) {
            struct packed_file *more = realloc(out->files, (room = room ? 2 * room : 16) * sizeof *more);
            if (!more) {
                free(file.model);
                closedir(d);
                return status_set(err, ROSE_NO_MEMORY, "no memory for a list of the packed weights in %.200s/packed", dir);
            }
            out->files = more;
        }
        out->files[out->count++] = file;
        out->bytes += file.bytes;
    }
    closedir(d);
    if (out->count) qsort(out->files, out->count, sizeof *out->files, by_use);
    return ROSE_OK;
}

void packed_list_free(struct packed_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->files[i].model);
    free(list->files);
    *list = (struct packed_list){0};
}

bool packed_list_remove(const char *dir, const struct packed_file *file)
{
    struct stat st;
    int folder = open_folder(dir);
    bool same = folder >= 0 && fstatat(folder, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_ino == file->inode &&
                (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec == file->used;
    bool removed = same && unlinkat(folder, file->name, 0) == 0;
    if (folder >= 0) close(folder);
    return removed;
}

uint64_t packed_list_limit(const char *dir, uint64_t asked)
{
    struct statvfs fs;
    if (asked) return asked;
    return statvfs(dir, &fs) == 0 ? (uint64_t)fs.f_blocks * (uint64_t)fs.f_frsize / SHARE : 0;
}

void packed_list_trim(const char *dir, uint64_t limit, const char *keep)
{
    struct packed_list list;
    struct rose_error ignored;
    if (packed_list_read(dir, &list, &ignored) != ROSE_OK) {
        packed_list_free(&list);
        return;
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < list.count; i++) {
            struct packed_file *f = &list.files[i];
            bool useless = f->state == PACKED_CHANGED || f->state == PACKED_GONE || f->state == PACKED_LEFT || (f->foreign && !strncmp(f->name, keep, HEX + 1));
            if (!f->bytes || !strcmp(f->name, keep) || (pass ? list.bytes <= limit : !useless)) continue;
            packed_list_remove(dir, f); /* one that another process has removed or used just now is no longer counted either */
            list.bytes -= f->bytes, f->bytes = 0;
        }
    packed_list_free(&list);
}
