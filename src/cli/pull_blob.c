/* One file of a repository: fetched to blobs/<name>.incomplete, resumed where an earlier try ended, hashed while it comes, checked,
 * renamed, and linked into the snapshot. A lock keeps other processes (Python's client too) from the same blob. */
#define _GNU_SOURCE
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
#include "base/hub.h"
#include "base/sha1.h"
#include "cli/pull.h"

enum { ATTEMPTS = 5 };

struct blob {
    struct pull *p;
    struct pull_file *file;
    int fd;
    int64_t have; /* bytes written and hashed */
    struct sha256 sha256;
    struct sha1 sha1; /* over "blob SIZE\0" and the bytes, as git names blobs */
    bool restarted, too_long;
    int error; /* errno of a failed write */
};

static enum rose_status os_error(const char *path, const char *doing, struct rose_error *err)
{
    return status_at(err, ROSE_IO, path, -1, "cannot %s %s: %s", doing, path, strerror(errno));
}

static void hash_begin(struct blob *b)
{
    char header[40];
    int n = snprintf(header, sizeof header, "blob %lld", (long long)b->file->size);
    sha256_init(&b->sha256);
    sha1_init(&b->sha1);
    sha1_add(&b->sha1, header, (size_t)n + 1);
    b->have = 0;
}

static void hash_add(struct blob *b, const void *bytes, size_t n)
{
    if (strlen(b->file->name) == 64) sha256_add(&b->sha256, bytes, n);
    else sha1_add(&b->sha1, bytes, n);
    b->have += (int64_t)n;
}

/* Hash what an earlier try left; more than the file's size, or what cannot be read, begins anew. */
static void take_up(struct blob *b)
{
    char piece[65536];
    hash_begin(b);
    for (ssize_t n; (n = read(b->fd, piece, sizeof piece)) > 0;) hash_add(b, piece, (size_t)n);
    if (b->have <= b->file->size) return;
    hash_begin(b);
    if (ftruncate(b->fd, 0) != 0 || lseek(b->fd, 0, SEEK_SET) != 0) b->error = errno;
}

static bool take(void *user, long status, const void *bytes, size_t n)
{
    struct blob *b = user;
    const char *p = bytes;
    /* 200 to a request for a part: the server sends it all from the start. */
    if (status == 200 && b->have && !b->restarted) {
        hash_begin(b);
        if (ftruncate(b->fd, 0) != 0 || lseek(b->fd, 0, SEEK_SET) != 0) return b->error = errno, false;
    }
    b->restarted = true;
    if (b->have + (int64_t)n > b->file->size) return b->too_long = true, false;
    for (size_t done = 0; done < n;) {
        ssize_t put = write(b->fd, p + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return b->error = errno, false;
        done += (size_t)put;
    }
    hash_add(b, bytes, n);
    pull_progress(b->p, b->file, b->have);
    return true;
}

static enum rose_status check(struct blob *b, struct rose_error *err)
{
    char got[65] = "";
    uint8_t digest[32];
    if (strlen(b->file->name) == 64) {
        sha256_end(&b->sha256, digest);
        sha256_hex(digest, got);
    } else {
        sha1_end(&b->sha1, digest);
        for (int i = 0; i < 20; i++) snprintf(got + 2 * i, 3, "%02x", digest[i]);
    }
    if (!strcmp(got, b->file->name)) return ROSE_OK;
    return status_set(err, ROSE_FORMAT, STR_FMT " came with the checksum %s and should have %s; it was thrown away, try again", STR_ARG(b->file->path), got, b->file->name);
}

static enum rose_status fetch(struct blob *b, const char *url, struct rose_error *err)
{
    struct http_answer answer;
    for (int attempt = 0;; attempt++) {
        b->restarted = false;
        struct http_request request = {.url = url, .bearer = b->p->token, .from = b->have, .take = take, .user = b};
        enum rose_status s = b->have == b->file->size ? ROSE_OK : http_get(b->p->http, &request, &answer, err);
        if (b->error) return errno = b->error, os_error(b->p->repo_dir, "write to", err);
        if (b->too_long) return status_set(err, ROSE_FORMAT, STR_FMT ": the hub sends more than the %lld bytes it announced", STR_ARG(b->file->path), (long long)b->file->size);
        if (b->have == b->file->size && (s == ROSE_OK || answer.network)) return ROSE_OK;
        bool again = s != ROSE_OK ? answer.network : answer.status >= 500 || answer.status == 429 || answer.status / 100 == 2;
        if (s == ROSE_OK && answer.status / 100 == 2)
            s = status_set(err, ROSE_FORMAT, STR_FMT ": the hub sent %lld of %lld bytes", STR_ARG(b->file->path), (long long)b->have, (long long)b->file->size);
        else if (s == ROSE_OK) s = status_set(err, ROSE_IO, STR_FMT ": the hub answered with HTTP %ld", STR_ARG(b->file->path), answer.status);
        if (!again || attempt + 1 == ATTEMPTS) return s;
        nanosleep(&(struct timespec){.tv_sec = attempt, .tv_nsec = 200 * 1000 * 1000}, NULL);
    }
}

/* A listing without hashes or sizes: the file's own headers tell them. */
static enum rose_status ask_headers(struct pull *p, struct pull_file *f, const char *url, struct rose_error *err)
{
    struct http_answer answer;
    struct http_request request = {.url = url, .bearer = p->token, .head = true};
    ROSE_TRY(http_get(p->http, &request, &answer, err));
    if (answer.status >= 400) return status_set(err, ROSE_IO, STR_FMT ": the hub answered with HTTP %ld", STR_ARG(f->path), answer.status);
    struct str etag = str_of(answer.etag);
    if (!hub_is_hash(etag) || (etag.n != 40 && etag.n != 64)) return status_set(err, ROSE_FORMAT, STR_FMT ": the hub names no checksum", STR_ARG(f->path));
    snprintf(f->name, sizeof f->name, "%s", answer.etag);
    if (f->size < 0) f->size = answer.linked_size >= 0 ? answer.linked_size : answer.status / 100 == 2 ? answer.length : -1;
    if (f->size < 0) return status_set(err, ROSE_FORMAT, STR_FMT ": the hub names no size", STR_ARG(f->path));
    p->total += f->size;
    return ROSE_OK;
}

static enum rose_status fetch_blob(struct pull *p, struct pull_file *f, const char *url, const char *blob, struct rose_error *err)
{
    struct stat st;
    const char *part = arena_printf(&p->arena, "%s.incomplete", blob), *lock = arena_printf(&p->arena, "%s/%s.lock", p->lock_dir, f->name);
    if (!part || !lock) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    int lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (lock_fd < 0) return os_error(lock, "make", err);
    if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
        fprintf(stderr, "rose: another process fetches " STR_FMT "; waiting for it\n", STR_ARG(f->path));
        while (flock(lock_fd, LOCK_EX) != 0 && errno == EINTR) continue;
    }
    enum rose_status s = ROSE_OK;
    if (stat(blob, &st) != 0 || st.st_size != f->size) {
        struct blob b = {.p = p, .file = f, .fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)};
        if (b.fd < 0) s = os_error(part, "write", err);
        if (s == ROSE_OK) {
            take_up(&b);
            s = fetch(&b, url, err);
            bool whole = s == ROSE_OK;
            if (whole) s = check(&b, err);
            if (s == ROSE_OK && fsync(b.fd) != 0) s = os_error(part, "write", err);
            /* A partial file waits for the next try; a wrong one must not. */
            if (s != ROSE_OK && (whole || b.too_long)) unlink(part);
        }
        if (b.fd >= 0) close(b.fd);
        if (s == ROSE_OK && rename(part, blob) != 0) s = os_error(blob, "write", err);
    }
    close(lock_fd);
    return s;
}

/* snapshots/<commit>/a/b -> ../../../blobs/<name>: relative, so that the cache may be moved. */
static enum rose_status link_blob(struct pull *p, const struct pull_file *f, const char *blob, struct rose_error *err)
{
    const char *link = arena_printf(&p->arena, "%s/snapshots/%s/" STR_FMT, p->repo_dir, p->commit, STR_ARG(f->path));
    struct strbuf target = {0};
    for (size_t i = 0; i < f->path.n; i++)
        if (f->path.p[i] == '/') strbuf_adds(&target, "../");
    strbuf_printf(&target, "../../blobs/%s", f->name);
    char now[1200];
    enum rose_status s = link && !target.failed ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
    ssize_t n = s == ROSE_OK ? readlink(link, now, sizeof now) : -1;
    if (s == ROSE_OK && !(n == (ssize_t)target.n && !memcmp(now, target.p, target.n))) {
        const char *dir = arena_strndup(&p->arena, link, (size_t)(strrchr(link, '/') - link)), *temp = arena_printf(&p->arena, "%s.%d.tmp", link, (int)getpid());
        s = dir && temp ? file_make_dirs(dir, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
        /* File systems without symbolic links get a second name for the same file. */
        if (s == ROSE_OK && symlink(target.p, temp) != 0 && linkat(AT_FDCWD, blob, AT_FDCWD, temp, 0) != 0) s = os_error(temp, "make", err);
        if (s == ROSE_OK && rename(temp, link) != 0) {
            s = os_error(link, "make", err);
            unlink(temp);
        }
    }
    strbuf_free(&target);
    return s;
}

enum rose_status pull_blob(struct pull *p, struct pull_file *f, struct rose_error *err)
{
    struct stat st;
    const char *prefix = arena_printf(&p->arena, "/" STR_FMT "/" STR_FMT "/resolve/%s/", STR_ARG(p->org), STR_ARG(p->name), p->commit);
    const char *url = prefix ? pull_url(p, prefix, f->path, true) : NULL;
    if (!url) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (!f->name[0] || f->size < 0) ROSE_TRY(ask_headers(p, f, url, err));
    const char *blob = arena_printf(&p->arena, "%s/blobs/%s", p->repo_dir, f->name);
    if (!blob) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (stat(blob, &st) != 0 || st.st_size != f->size) ROSE_TRY(fetch_blob(p, f, url, blob, err));
    p->done += f->size;
    pull_progress(p, f, 0);
    return link_blob(p, f, blob, err);
}
