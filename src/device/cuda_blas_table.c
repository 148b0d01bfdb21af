#define _GNU_SOURCE
#include "device/cuda_blas_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"

enum { MOST_ROWS = 8192 };
static const char magic[16] = "rose cublaslt 1";

struct header {
    char magic[16];
    uint8_t digest[32]; /* of all that follows */
    uint32_t identity_bytes, rows;
};
_Static_assert(sizeof(struct header) == 56 && sizeof(struct blas_key) == 48 && sizeof(struct blas_measured) == 120, "no padding: files are these bytes");

static void digest_of(const struct header *h, const void *rest, size_t bytes, uint8_t digest[32])
{
    struct sha256 sum;
    sha256_init(&sum);
    sha256_add(&sum, &h->identity_bytes, 8);
    sha256_add(&sum, rest, bytes);
    sha256_end(&sum, digest);
}

/* The rows of a file's text; NULL with *rows 0 when it is not a whole file of this identity. */
static const char *verify(const char *identity, struct str text, uint32_t *rows)
{
    struct header h;
    uint8_t digest[32];
    *rows = 0;
    if (text.n < sizeof h) return NULL;
    memcpy(&h, text.p, sizeof h);
    const char *rest = text.p + sizeof h;
    size_t bytes = text.n - sizeof h;
    if (memcmp(h.magic, magic, sizeof magic) || h.identity_bytes != strlen(identity) || h.rows > MOST_ROWS) return NULL;
    if (bytes != h.identity_bytes + (size_t)h.rows * sizeof(struct blas_measured) || memcmp(rest, identity, h.identity_bytes)) return NULL;
    digest_of(&h, rest, bytes, digest);
    if (memcmp(digest, h.digest, sizeof digest)) return NULL;
    *rows = h.rows;
    return rest + h.identity_bytes;
}

static bool sane(const struct blas_measured *m)
{
    const struct blas_key *k = &m->key;
    return k->n > 0 && k->k > 0 && k->rows > 0 && k->x_stride >= k->k && k->y_stride >= k->n && m->us > 0;
}

/* What the file has beyond the table. */
static void merge(struct cuda_blas_table *t)
{
    struct arena a;
    struct str text;
    uint32_t rows;
    arena_init(&a, 0);
    if (file_read(&a, t->path, sizeof(struct header) + sizeof t->identity + MOST_ROWS * sizeof(struct blas_measured), &text, NULL) == ROSE_OK) {
        const char *at = verify(t->identity, text, &rows);
        bool changed = t->changed;
        for (uint32_t i = 0; i < rows; i++) {
            struct blas_measured m;
            memcpy(&m, at + i * sizeof m, sizeof m);
            if (sane(&m) && !cuda_blas_table_find(t, &m.key) && cuda_blas_table_add(t, &m, NULL) != ROSE_OK) break;
        }
        t->changed = changed;
    }
    arena_free(&a);
}

void cuda_blas_table_open(struct cuda_blas_table *t, const char *cache_dir, const char *identity)
{
    struct sha256 sum;
    uint8_t digest[32];
    char hex[65];
    *t = (struct cuda_blas_table){0};
    snprintf(t->identity, sizeof t->identity, "%s", identity);
    if (!cache_dir) return;
    sha256_init(&sum);
    sha256_add(&sum, t->identity, strlen(t->identity));
    sha256_end(&sum, digest);
    sha256_hex(digest, hex);
    if (asprintf(&t->path, "%s/cublaslt/%.24s", cache_dir, hex) < 0) t->path = NULL;
    if (t->path) merge(t);
}

const struct blas_measured *cuda_blas_table_find(const struct cuda_blas_table *t, const struct blas_key *key)
{
    for (int i = 0; i < t->count; i++)
        if (!memcmp(&t->rows[i].key, key, sizeof *key)) return &t->rows[i];
    return NULL;
}

const struct blas_measured *cuda_blas_table_near(const struct cuda_blas_table *t, const struct blas_key *key)
{
    const struct blas_measured *best = NULL;
    for (int i = 0; i < t->count; i++) {
        struct blas_key other = t->rows[i].key;
        uint64_t rows = other.rows;
        other.rows = key->rows;
        if (memcmp(&other, key, sizeof other) || rows < key->rows || rows > (uint64_t)key->rows * 4 / 3) continue;
        if (!best || rows < best->key.rows) best = &t->rows[i];
    }
    return best;
}

enum rose_status cuda_blas_table_add(struct cuda_blas_table *t, const struct blas_measured *row, struct rose_error *err)
{
    struct blas_measured *there = (struct blas_measured *)(uintptr_t)cuda_blas_table_find(t, &row->key);
    if (!there && t->count == t->capacity) {
        int capacity = t->capacity ? t->capacity * 2 : 64;
        struct blas_measured *more = capacity <= MOST_ROWS ? realloc(t->rows, (size_t)capacity * sizeof *more) : NULL;
        if (!more) return status_set(err, ROSE_NO_MEMORY, "no room for another of %d measured products", t->count);
        t->rows = more, t->capacity = capacity;
    }
    if (!there) there = &t->rows[t->count++];
    *there = *row;
    t->changed = true;
    return ROSE_OK;
}

enum rose_status cuda_blas_table_save(struct cuda_blas_table *t, struct rose_error *err)
{
    if (!t->path || !t->changed) return ROSE_OK;
    merge(t);
    size_t identity = strlen(t->identity), bytes = identity + (size_t)t->count * sizeof *t->rows;
    struct header h = {.identity_bytes = (uint32_t)identity, .rows = (uint32_t)t->count};
    char *text = malloc(sizeof h + bytes), *slash = strrchr(t->path, '/');
    if (!text) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    memcpy(h.magic, magic, sizeof magic);
    memcpy(text + sizeof h, t->identity, identity);
    memcpy(text + sizeof h + identity, t->rows, (size_t)t->count * sizeof *t->rows);
    digest_of(&h, text + sizeof h, bytes, h.digest);
    memcpy(text, &h, sizeof h);
    *slash = '\0';
    enum rose_status s = file_make_dirs(t->path, err);
    *slash = '/';
    if (s == ROSE_OK) s = file_write_atomic(t->path, (struct str){text, sizeof h + bytes}, err);
    if (s == ROSE_OK) t->changed = false;
    free(text);
    return s;
}

void cuda_blas_table_close(struct cuda_blas_table *t)
{
    free(t->path);
    free(t->rows);
    *t = (struct cuda_blas_table){0};
}
