#define _GNU_SOURCE
#include "server/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rose.h"

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

void regions_drop(struct region *g)
{
    if (g->fd >= 0) close(g->fd);
    rose_memory_close(g->memory);
    free(g);
}

struct region *regions_new(const struct regions *r, struct str name, struct api_error *e)
{
    struct region *new = NULL;
    int n = (int)ROSE_MIN(name.n, 100);
    if (r->off) api_error_set(e, 400, "invalid_request_error", NULL, NULL, "shared memory is switched off here (--no-shared-memory)");
    else if (!name.n || name.n > REGION_NAME || memchr(name.p, 0, name.n)) api_error_field(e, "name", "a region's name has 1 to %d bytes", REGION_NAME);
    else if (find(r, name) >= 0) api_error_field(e, "name", "shared memory region '%.*s' already in manager", n, name.p);
    else if (r->count >= REGIONS_MAX) api_error_set(e, 400, "invalid_request_error", NULL, NULL, "at most %d regions may be registered", REGIONS_MAX);
    else if (!(new = calloc(1, sizeof *new))) api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    if (!new) return NULL;
    snprintf(new->name, sizeof new->name, "%.*s", STR_ARG(name));
    new->fd = -1;
    return new;
}

bool regions_keep(struct regions *r, struct region *g, struct api_error *e)
{
    struct region **all = realloc(r->all, (size_t)(r->count + 1) * sizeof *all);
    if (!all) {
        regions_drop(g);
        return api_error_set(e, 503, "server_error", "no_memory", NULL, "out of memory");
    }
    r->all = all;
    r->all[r->count++] = g;
    return true;
}

bool regions_add(struct regions *r, struct str name, struct str key, uint64_t offset, uint64_t bytes, struct api_error *e)
{
    struct stat st;
    int n = (int)ROSE_MIN(name.n, 100);
    struct region *new = regions_new(r, name, e);
    if (!new) return false;
    bool good = good_key(key), sized = bytes && offset <= INT64_MAX && bytes <= INT64_MAX - offset;
    if (!good) api_error_field(e, "key", "region '%.*s': its key must be the name of a POSIX shared memory object, such as /name, without another slash", n, name.p);
    else if (!sized) api_error_field(e, "byte_size", "region '%.*s': offset and byte_size are out of range", n, name.p);
    if (!good || !sized) {
        regions_drop(new);
        return false;
    }
    snprintf(new->key, sizeof new->key, "%s%.*s", key.p[0] == '/' ? "" : "/", STR_ARG(key));
    new->offset = (size_t)offset;
    new->bytes = (size_t)bytes;
    new->fd = shm_open(new->key, O_RDWR | O_CLOEXEC, 0);
    bool there = new->fd >= 0 && !fstat(new->fd, &st) && S_ISREG(st.st_mode);
    if (!there) api_error_field(e, "key", "unable to open shared memory region '%s' with key '%s': %s", new->name, new->key, new->fd < 0 ? strerror(errno) : "it is no shared memory object");
    else if ((uint64_t)st.st_size < offset + bytes)
        api_error_field(e, "byte_size", "region '%s' would end at byte %llu, and '%s' has %lld", new->name, (unsigned long long)(offset + bytes), new->key, (long long)st.st_size);
    if (!there || (uint64_t)st.st_size < offset + bytes) {
        regions_drop(new);
        return false;
    }
    return regions_keep(r, new, e);
}

void regions_remove(struct regions *r, struct str name, bool cuda)
{
    int kept = 0;
    for (int i = 0; i < r->count; i++) {
        struct region *g = r->all[i];
        if ((g->memory != NULL) == cuda && (!name.n || str_is(name, g->name))) regions_drop(g);
        else r->all[kept++] = g;
    }
    r->count = kept;
    if (kept) return;
    free(r->all);
    r->all = NULL;
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
    if (g->memory) {
        struct rose_error err = {0};
        enum rose_status s = to ? rose_memory_read(g->memory, offset, to, bytes, &err) : rose_memory_write(g->memory, offset, from, bytes, &err);
        return s == ROSE_OK || api_error_set(e, 500, "server_error", NULL, NULL, "CUDA shared memory region '%s': %.300s", g->name, err.message);
    }
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
