#include "server/keys.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"

static void digest(struct str key, uint8_t out[32])
{
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, key.p, key.n);
    sha256_end(&h, out);
}

static enum rose_status read_lines(struct keys *k, struct str text, const char *path, struct rose_error *err)
{
    for (size_t at = 0; at < text.n;) {
        size_t end = at;
        while (end < text.n && text.p[end] != '\n') end++;
        struct str line = {text.p + at, end - at};
        at = end + 1;
        while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == ' ' || line.p[line.n - 1] == '\t')) line.n--;
        if (!line.n || line.p[0] == '#') continue;
        uint8_t(*more)[32] = realloc(k->digests, (k->count + 1) * sizeof *more);
        if (!more) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        k->digests = more;
        digest(line, k->digests[k->count++]);
    }
    return k->count ? ROSE_OK : status_at(err, ROSE_INVALID, path, -1, "--api-keys %s: the file has no key; write one a line", path);
}

enum rose_status keys_read(struct keys *k, const char *path, struct rose_error *err)
{
    struct arena a;
    struct str text;
    *k = (struct keys){0};
    arena_init(&a, 0);
    enum rose_status s = file_read(&a, path, 1 << 20, &text, err);
    if (s == ROSE_OK) s = read_lines(k, text, path, err);
    arena_free(&a);
    return s;
}

void keys_free(struct keys *k)
{
    free(k->digests);
    *k = (struct keys){0};
}

bool keys_match(const struct keys *k, struct str key)
{
    uint8_t given[32];
    unsigned hits = 0;
    digest(key, given);
    for (size_t i = 0; i < k->count; i++) {
        unsigned differ = 0;
        for (int j = 0; j < 32; j++) differ |= (unsigned)(given[j] ^ k->digests[i][j]);
        hits |= (differ - 1) >> 31; /* 1 only when differ is 0 */
    }
    return hits != 0;
}
