/* What a checkpoint's files are, in 64 digits: their names, sizes and contents (of large ones pieces from all over), not where or how old they are. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/internal.h"
#include "base/file.h"
#include "base/hash.h"

enum { MOST_FILES = 4096, WHOLE = 4 << 20, PIECE = 4096, PIECES = 256, EDGE = 64 << 10 };

struct names {
    struct arena *arena;
    const char *name[MOST_FILES]; /* below the checkpoint's folder */
    size_t count;
};

static bool is_read(struct str name)
{
    static const char *const ends[] = {".json", ".safetensors", ".gguf", ".jinja", ".txt", ".model"};
    for (size_t i = 0; i < ROSE_COUNT(ends); i++)
        if (str_ends(name, str_of(ends[i]))) return name.p[0] != '.';
    return false;
}

/* Files of root/under, and of the folders in root: a pooling's or a dense layer's. */
static void list(struct names *n, const char *root, const char *under)
{
    DIR *d = opendir(*under ? file_join(n->arena, root, under) : root);
    for (struct dirent *e; d && (e = readdir(d)) && n->count < MOST_FILES;) {
        const char *name = *under ? file_join(n->arena, under, e->d_name) : arena_strndup(n->arena, e->d_name, strlen(e->d_name));
        if (!name || e->d_name[0] == '.') continue;
        const char *path = file_join(n->arena, root, name);
        if (!path) continue;
        if (file_is_dir(path)) {
            if (!*under) list(n, root, name);
        } else if (is_read(str_of(e->d_name))) {
            n->name[n->count++] = name;
        }
    }
    if (d) closedir(d);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static enum rose_status add_file(struct sha256 *h, const char *path, struct rose_error *err)
{
    struct file_map map;
    ROSE_TRY(file_map_open(&map, path, err));
    uint64_t size = map.size;
    sha256_add(h, &size, sizeof size);
    if (map.size <= WHOLE) {
        sha256_add(h, map.data, map.size);
    } else {
        sha256_add(h, map.data, EDGE);
        for (size_t i = 1; i < PIECES; i++) sha256_add(h, map.data + map.size / PIECES * i, PIECE);
        sha256_add(h, map.data + map.size - EDGE, EDGE);
    }
    file_map_close(&map);
    return ROSE_OK;
}

/* A GGUF file, or all of its parts: NAME-00001-of-00003.gguf. */
static void list_parts(struct names *n, const char *path, const char **root)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    ptrdiff_t of = str_find(str_of(file), STR("-of-"), 0);
    *root = slash ? arena_strndup(n->arena, path, (size_t)(slash - path) + 1) : ".";
    DIR *d = of > 5 && *root ? opendir(*root) : NULL;
    for (struct dirent *e; d && (e = readdir(d)) && n->count < MOST_FILES;)
        if (!strncmp(e->d_name, file, (size_t)of - 5) && strlen(e->d_name) == strlen(file) && !strcmp(e->d_name + of, file + of))
            n->name[n->count++] = arena_strndup(n->arena, e->d_name, strlen(e->d_name));
    if (d) closedir(d);
    if (!n->count) n->name[n->count++] = file;
}

enum rose_status rose_fingerprint(const char *model, char out[65], struct rose_error *err)
{
    struct arena a;
    const char *path, *root;
    struct sha256 h;
    uint8_t digest[32];
    arena_init(&a, 64 << 20);
    struct names *n = calloc(1, sizeof *n);
    enum rose_status s = n ? hub_resolve(&a, model, &path, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
    sha256_init(&h);
    if (s == ROSE_OK) {
        n->arena = &a;
        bool folder = file_is_dir(path);
        if (folder) list(n, root = path, "");
        else list_parts(n, path, &root);
        qsort(n->name, n->count, sizeof *n->name, by_name);
        for (size_t i = 0; s == ROSE_OK && i < n->count; i++) {
            if (folder) sha256_add(&h, n->name[i], strlen(n->name[i]) + 1);
            const char *file = root && n->name[i] ? file_join(&a, root, n->name[i]) : NULL;
            s = file ? add_file(&h, file, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
        }
    }
    sha256_end(&h, digest);
    sha256_hex(digest, out);
    free(n);
    arena_free(&a);
    return s;
}
