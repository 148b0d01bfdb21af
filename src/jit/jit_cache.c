#define _GNU_SOURCE
#include "jit/jit_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "jit/jit_elf.h"

enum { MAX_CUBIN = 256 << 20, MAX_TEXT = 16 << 20, STALE_SECONDS = 3600 };

static const char *const file_names[4] = {"key.txt", "source.cu", "kernel.cubin", "log.txt"};
enum { KEY, SOURCE, CUBIN, LOG, FILES };

/* ROOT/nvrtc/arch and, with a name, /prefix+name. */
static bool path_of(char *out, size_t n, const char *root, const struct jit_cache_id *id, const char *prefix,
                    const char *name)
{
    int used = snprintf(out, n, "%s/%s/%s%s%s%s", root, id->nvrtc, id->arch, name ? "/" : "", prefix,
                        name ? name : "");
    return used > 0 && (size_t)used < n;
}

void jit_cache_entry_free(struct jit_cache_entry *e)
{
    free(e->cubin);
    free(e->log);
    *e = (struct jit_cache_entry){0};
}

static void hex_of(struct str content, char out[65])
{
    uint8_t digest[32];
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, content.p, content.n);
    sha256_end(&h, digest);
    sha256_hex(digest, out);
}

/* ---- loading ---- */

static char *read_file(const char *dir, const char *name, size_t limit, size_t *n)
{
    char path[4200];
    struct arena arena;
    struct str text;
    char *copy = NULL;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return NULL;
    arena_init(&arena, 0);
    if (file_read(&arena, path, limit, &text, NULL) == ROSE_OK && (copy = malloc(text.n + 1))) {
        memcpy(copy, text.p, text.n + 1);
        *n = text.n;
    }
    arena_free(&arena);
    return copy;
}

/* Does the checksum file list this content under this name? */
static bool listed(const char *checksum, const char *name, const char *content, size_t n)
{
    char hex[65], line[128];
    hex_of((struct str){content, n}, hex);
    snprintf(line, sizeof line, "%s  %s\n", hex, name);
    return strstr(checksum, line) != NULL;
}

bool jit_cache_load(const char *root, const struct jit_cache_id *id, struct jit_cache_entry *out)
{
    char dir[4096];
    size_t sum_n = 0, key_n = 0;
    *out = (struct jit_cache_entry){0};
    if (!path_of(dir, sizeof dir, root, id, "", id->name)) return false;
    char *sum = read_file(dir, "checksum", 4096, &sum_n),
         *key = sum ? read_file(dir, file_names[KEY], MAX_TEXT, &key_n) : NULL;
    bool good = key && str_eq((struct str){key, key_n}, id->key) && listed(sum, file_names[KEY], key, key_n);
    if (good) {
        out->cubin = read_file(dir, file_names[CUBIN], MAX_CUBIN, &out->cubin_n);
        out->log = read_file(dir, file_names[LOG], MAX_TEXT, &out->log_n);
        good = out->cubin && out->log && listed(sum, file_names[CUBIN], out->cubin, out->cubin_n) &&
               listed(sum, file_names[LOG], out->log, out->log_n) &&
               jit_elf_is_cubin((const uint8_t *)out->cubin, out->cubin_n);
    }
    free(sum);
    free(key);
    if (!good) jit_cache_entry_free(out);
    return good;
}

/* ---- storing ---- */

static enum rose_status os_error(struct rose_error *err, const char *path, const char *doing)
{
    return status_at(err, ROSE_IO, path, -1, "cannot %s %s: %s", doing, path, strerror(errno));
}

static enum rose_status write_file(int dir, const char *where, const char *name, struct str content,
                                   struct rose_error *err)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return os_error(err, where, "write below");
    enum rose_status s = ROSE_OK;
    for (size_t done = 0; done < content.n && s == ROSE_OK;) {
        ssize_t put = write(fd, content.p + done, content.n - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            s = os_error(err, where, "write below");
    }
    if (s == ROSE_OK && fsync(fd) != 0) s = os_error(err, where, "write below");
    if (close(fd) != 0 && s == ROSE_OK) s = os_error(err, where, "write below");
    return s;
}

/* Entries are flat directories of regular files. */
static void remove_entry(const char *path)
{
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' || (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")))
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

static void sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

static enum rose_status write_entry(const char *temp, const struct str contents[FILES],
                                    struct rose_error *err)
{
    struct strbuf sums = {0};
    char hex[65];
    int dir = open(temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return os_error(err, temp, "open");
    enum rose_status s = ROSE_OK;
    for (int i = 0; i < FILES && s == ROSE_OK; i++) {
        s = write_file(dir, temp, file_names[i], contents[i], err);
        hex_of(contents[i], hex);
        strbuf_printf(&sums, "%s  %s\n", hex, file_names[i]);
    }
    if (s == ROSE_OK && sums.failed) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK) s = write_file(dir, temp, "checksum", strbuf_str(&sums), err);
    if (s == ROSE_OK && fsync(dir) != 0) s = os_error(err, temp, "write");
    strbuf_free(&sums);
    close(dir);
    return s;
}

/* rename of a directory replaces nothing that has files: a bad entry is moved aside first. */
static enum rose_status publish(const char *temp, const char *final, const char *root,
                                const struct jit_cache_id *id, struct rose_error *err)
{
    struct jit_cache_entry there;
    for (int attempt = 0; attempt < 3; attempt++) {
        if (rename(temp, final) == 0) return ROSE_OK;
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) return os_error(err, final, "publish");
        if (jit_cache_load(root, id, &there)) {
            jit_cache_entry_free(&there);
            remove_entry(temp);
            return ROSE_OK;
        }
        char aside[4300];
        snprintf(aside, sizeof aside, "%s.bad", temp);
        if (rename(final, aside) == 0) {
            remove_entry(aside);
            unlink(aside); /* when it was a file */
        }
    }
    return status_at(err, ROSE_IO, final, -1, "cannot replace the bad cache entry %s", final);
}

enum rose_status jit_cache_store(const char *root, const struct jit_cache_id *id, struct str source,
                                 const struct jit_cache_entry *entry, struct rose_error *err)
{
    char dir[4096], temp[4200], final[4096];
    const struct str contents[FILES] = {
        id->key, source, {entry->cubin, entry->cubin_n}, {entry->log, entry->log_n}};
    if (!path_of(dir, sizeof dir, root, id, "", NULL) ||
        !path_of(final, sizeof final, root, id, "", id->name))
        return status_set(err, ROSE_INVALID, "the cache path %.200s… is too long", root);
    ROSE_TRY(file_make_dirs(dir, err));
    snprintf(temp, sizeof temp, "%s/.tmp.XXXXXX", dir);
    if (!mkdtemp(temp)) return os_error(err, dir, "write below");
    /* mkdtemp makes it private; the published entry may be read by everybody who may read the cache. */
    enum rose_status s =
        chmod(temp, 0755) == 0 ? write_entry(temp, contents, err) : os_error(err, temp, "open");
    if (s == ROSE_OK) s = publish(temp, final, root, id, err);
    if (s != ROSE_OK)
        remove_entry(temp);
    else
        sync_dir(dir);
    return s;
}

/* ---- locks ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Holding the lock means nothing if its file was removed by the holder before us: somebody else may then lock
 * a new one. */
static bool still_there(int fd, const char *path)
{
    struct stat held, named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

void jit_cache_lock(const char *root, const struct jit_cache_id *id, double timeout_s,
                    bool (*done)(void *arg), void *arg, int *fd)
{
    char dir[4096], path[4096];
    double end = now_s() + timeout_s;
    *fd = -1;
    if (!path_of(dir, sizeof dir, root, id, "", NULL) ||
        !path_of(path, sizeof path, root, id, ".lock.", id->name))
        return;
    if (file_make_dirs(dir, NULL) != ROSE_OK) return;
    for (long wait_ns = 1000000;;) {
        int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (f < 0) return;
        if (flock(f, LOCK_EX | LOCK_NB) == 0) {
            if (still_there(f, path)) {
                *fd = f;
                return;
            }
            close(f);
            continue;
        }
        int why = errno;
        close(f);
        if (why != EWOULDBLOCK && why != EINTR) return;
        if (now_s() > end || (done && done(arg))) return;
        nanosleep(&(struct timespec){0, wait_ns}, NULL);
        if (wait_ns < 20000000) wait_ns *= 2;
    }
}

void jit_cache_unlock(const char *root, const struct jit_cache_id *id, int fd)
{
    char path[4096];
    if (fd < 0) return;
    if (path_of(path, sizeof path, root, id, ".lock.", id->name)) unlink(path);
    close(fd);
}

/* ---- housekeeping ---- */

void jit_cache_sweep(const char *root, const struct jit_cache_id *id)
{
    char dir[4096], path[4400];
    if (!path_of(dir, sizeof dir, root, id, "", NULL)) return;
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (strncmp(e->d_name, ".tmp.", 5) ||
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path)
            continue;
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && time(NULL) - st.st_mtime > STALE_SECONDS)
            remove_entry(path);
    }
    closedir(d);
}

static int descending(const void *a, const void *b)
{
    return -strcmp(*(char *const *)a, *(char *const *)b);
}

int jit_cache_compilers(const char *root, char **names, int max)
{
    int n = 0;
    DIR *d = opendir(root);
    if (!d) return 0;
    for (struct dirent *e; n < max && (e = readdir(d));)
        if (!strncmp(e->d_name, "nvrtc", 5) && strlen(e->d_name) < 48 && (names[n] = strdup(e->d_name))) n++;
    closedir(d);
    qsort(names, (size_t)n, sizeof *names, descending);
    return n;
}
