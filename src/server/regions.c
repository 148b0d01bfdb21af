#define _GNU_SOURCE
#include "server/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

static int find(const struct regions *r, struct str name)
{
    for (int i = 0; i < r->count; i++)
        if (str_is(name, r->all[i]->name)) return i;
    return -1;
}

const struct region *regions_find(const struct regions *r, struct str name)
{
    int i = find(r, name);
    return i < 0 ? NULL : r->all[i];
}

/* One component, as shm_open wants it: "/name" or "name". */
static bool good_key(struct str key)
{
    if (key.n && key.p[0] == '/') key = (struct str){key.p + 1, key.n - 1};
    if (!key.n || key.n > REGION_NAME - 1 || str_is(key, ".") || str_is(key, "..")) return false;
    return !memchr(key.p, '/', key.n) && !memchr(key.p, 0, key.n);
}

static bool check(const struct regions *r, struct str name, struct str key, uint64_t offset, uint64_t bytes, struct api_error *e)
{
    int n = (int)ROSE_MIN(name.n, 100);
    if (r->off) return api_error_set(e, 400, "invalid_request_error", NULL, NULL, "shared memory is switched off here (--no-shared-memory)");
    if (!name.n || name.n > REGION_NAME || memchr(name.p, 0, name.n)) return api_error_field(e, "name", "a region's name has 1 to %d bytes", REGION_NAME);
    if (find(r, name) >= 0) return api_error_field(e, "name", "shared memory region '%.*s' already in manager", n, name.p);
    if (!good_key(key)) return api_error_field(e, "key", "region '%.*s': its key must be the name of a POSIX shared memory object, such as /name, without another slash", n, name.p);
    if (!bytes || offset > INT64_MAX || bytes > INT64_MAX - offset) return api_error_field(e, "byte_size", "region '%.*s': offset and byte_size are out of range", n, name.p);
    return r->count < REGIONS_MAX || api_error_set(e, 400, "invalid_request_error", NULL, NULL, "at most %d regions may be registered", REGIONS_MAX);
}

bool regions_add(struct regions *r, struct str name, struct str key, uint64_t offset, uint64_t bytes, struct api_error *e)
{
    struct stat st;
    if (!check(r, name, key, offset, bytes, e)) return false;
    struct region *new = calloc(1, sizeof *new);
    struct region **all = realloc(r->all, (size_t)(r->count + 1) * sizeof *all);
    if (all) r->all = all;
    if (!new || !all) {
        free(new);
        return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    }
    snprintf(new->name, sizeof new->name, "%.*s", STR_ARG(name));
    snprintf(new->key, sizeof new->key, "%s%.*s", key.p[0] == '/' ? "" : "/", STR_ARG(key));
    new->offset = (size_t)offset;
    new->bytes = (size_t)bytes;
    new->fd = shm_open(new->key, O_RDWR | O_CLOEXEC, 0);
    bool there = new->fd >= 0 && !fstat(new->fd, &st) && S_ISREG(st.st_mode);
    if (!there) api_error_field(e, "key", "unable to open shared memory region '%s' with key '%s': %s", new->name, new->key, new->fd < 0 ? strerror(errno) : "it is no shared memory object");
    else if ((uint64_t)st.st_size < offset + bytes)
        api_error_field(e, "byte_size", "region '%s' would end at byte %llu, and '%s' has %lld", new->name, (unsigned long long)(offset + bytes), new->key, (long long)st.st_size);
    if (!there || (uint64_t)st.st_size < offset + bytes) {
        if (new->fd >= 0) close(new->fd);
        free(new);
        return false;
    }
    r->all[r->count++] = new;
    return true;
}

static void drop(struct region *g)
{
    close(g->fd);
    free(g);
}

void regions_remove(struct regions *r, struct str name)
{
    int i = name.n ? find(r, name) : -1;
    if (i >= 0) {
        drop(r->all[i]);
        r->all[i] = r->all[--r->count];
    }
    if (name.n) return;
    for (i = 0; i < r->count; i++) drop(r->all[i]);
    free(r->all);
    r->all = NULL;
    r->count = 0;
}

/* The whole of it, or false. */
static bool move(const struct region *g, size_t offset, void *to, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        off_t at = (off_t)(g->offset + offset + done);
        ssize_t n = to ? pread(g->fd, (char *)to + done, bytes - done, at) : pwrite(g->fd, (const char *)from + done, bytes - done, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static bool copy(const struct regions *r, struct str name, size_t offset, void *to, const void *from, size_t bytes, struct api_error *e)
{
    const struct region *g = regions_find(r, name);
    struct stat st;
    int n = (int)ROSE_MIN(name.n, 100);
    if (!g) return api_error_field(e, NULL, "unable to find shared memory region '%.*s'", n, name.p);
    if (offset > g->bytes || bytes > g->bytes - offset) return api_error_field(e, NULL, "invalid offset + byte size for shared memory region '%s': %zu bytes from %zu, and it has %zu", g->name, bytes, offset, g->bytes);
    /* Writing must not make a shrunken object grow again. */
    if (fstat(g->fd, &st) || (uint64_t)st.st_size < (uint64_t)g->offset + offset + bytes || !move(g, offset, to, from, bytes))
        return api_error_field(e, NULL, "shared memory region '%s' is smaller than it was when it was registered", g->name);
    return true;
}

bool regions_read(const struct regions *r, struct str name, size_t offset, void *to, size_t bytes, struct api_error *e) { return copy(r, name, offset, to, NULL, bytes, e); }

bool regions_write(const struct regions *r, struct str name, size_t offset, const void *from, size_t bytes, struct api_error *e)
{
    return copy(r, name, offset, NULL, from, bytes, e);
}
