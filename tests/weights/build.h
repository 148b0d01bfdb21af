/* Small GGUF and safetensors files, valid or not, for the tests, and a directory to put them in. */
#ifndef ROSE_TESTS_WEIGHTS_BUILD_H
#define ROSE_TESTS_WEIGHTS_BUILD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "test.h"

static char build_dir[64]; /* of this test program */

static inline const char *build_path(const char *name)
{
    static char path[256];
    if (!*build_dir) {
        snprintf(build_dir, sizeof build_dir, "/tmp/rose-test-XXXXXX");
        if (!mkdtemp(build_dir)) perror("mkdtemp"), exit(1);
    }
    snprintf(path, sizeof path, "%s/%s", build_dir, name);
    return path;
}

static inline const char *build_write(const char *name, const void *bytes, size_t n)
{
    const char *path = build_path(name);
    remove(path); /* writing into an old file makes some file systems flush */
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) perror(path), exit(1);
    return path;
}

static inline int build_remove(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}
/* The directory and everything in it goes. */
static inline void build_clean(void)
{
    if (*build_dir) nftw(build_dir, build_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- GGUF ---- */

static inline void put(struct strbuf *b, const void *p, size_t n)
{
    strbuf_add(b, p, n);
}
static inline void put_u8(struct strbuf *b, uint8_t v)
{
    put(b, &v, 1);
}
static inline void put_u32(struct strbuf *b, uint32_t v)
{
    put(b, &v, 4);
}
static inline void put_u64(struct strbuf *b, uint64_t v)
{
    put(b, &v, 8);
}
static inline void put_str(struct strbuf *b, const char *s)
{
    put_u64(b, strlen(s));
    strbuf_adds(b, s);
}
static inline void put_zeros(struct strbuf *b, size_t n)
{
    while (n--) put_u8(b, 0);
}

static inline void gguf_begin(struct strbuf *b, uint32_t version, uint64_t tensors, uint64_t pairs)
{
    strbuf_adds(b, "GGUF");
    put_u32(b, version);
    put_u64(b, tensors);
    put_u64(b, pairs);
}
static inline void gguf_pair(struct strbuf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_u32(b, type);
}
static inline void gguf_pair_u32(struct strbuf *b, const char *key, uint32_t value)
{
    gguf_pair(b, key, 4);
    put_u32(b, value);
}
static inline void gguf_pair_array(struct strbuf *b, const char *key, uint32_t item, uint64_t count)
{
    gguf_pair(b, key, 9);
    put_u32(b, item);
    put_u64(b, count);
}
/* dims innermost first, as in the file */
static inline void gguf_describe(struct strbuf *b, const char *name, uint32_t ndim, const uint64_t *dims,
                                 uint32_t type, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, ndim);
    for (uint32_t i = 0; i < ndim; i++) put_u64(b, dims[i]);
    put_u32(b, type);
    put_u64(b, offset);
}
/* Padding to the alignment, then bytes of data. */
static inline void gguf_data(struct strbuf *b, size_t alignment, size_t bytes)
{
    put_zeros(b, size_round_up(b->n, alignment) - b->n);
    put_zeros(b, bytes);
}

/* ---- safetensors ---- */

static inline void safetensors_file(struct strbuf *b, const char *json, size_t data)
{
    put_str(b, json);
    put_zeros(b, data);
}

#endif
