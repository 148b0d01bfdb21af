/* Checks that the tests of all formats share. */
#ifndef ROSE_TESTS_WEIGHTS_EXPECT_H
#define ROSE_TESTS_WEIGHTS_EXPECT_H

#include "build.h"
#include "touch.h"

/* Opening must fail with the status, and the message must name the file and say text. Frees b. */
#define EXPECT_BAD(b, name, status, text) expect_bad(b, name, status, text, __LINE__)
static inline void expect_bad(struct strbuf *b, const char *name, enum rose_status status, const char *text,
                              int line)
{
    struct weights *w = NULL;
    struct rose_error err = {0};
    const char *path = build_write(name, b->p, b->n);
    enum rose_status got = weights_open(path, &w, &err);
    bool fits = got == status && !w && strstr(err.message, text) && strstr(err.message, name) &&
                strstr(err.file, name);
    if (!fits)
        test_failures_++,
            fprintf(stderr, "line %d: status %s, message \"%s\", file \"%s\"; expected %s with \"%s\"\n",
                    line, rose_status_name(got), err.message, err.file, rose_status_name(status), text);
    weights_close(w);
    strbuf_free(b);
}

/* Opening must succeed, and everything in it must be readable. Frees b. */
static inline void expect_good(struct strbuf *b, const char *name, size_t tensors)
{
    struct weights *w = NULL;
    struct rose_error err = {0};
    CHECK_OK(weights_open(build_write(name, b->p, b->n), &w, &err), err);
    if (w) {
        CHECK_INT(weights_count(w), tensors);
        touch_all(w);
    }
    weights_close(w);
    strbuf_free(b);
}

/* Every prefix must be refused; every flipped bit must either be refused with a sentence or leave a readable
 * file. */
static inline void expect_survival(const struct strbuf *b, const char *name)
{
    struct weights *w;
    struct rose_error err;
    for (size_t n = 0; n < b->n; n++) {
        CHECK(weights_open(build_write(name, b->p, n), &w, &err) != ROSE_OK && strlen(err.message) > 10);
        weights_close(w);
    }
    for (size_t bit = 0; bit < b->n * 8; bit++) {
        b->p[bit / 8] ^= (char)(1 << bit % 8);
        err.message[0] = '\0';
        if (weights_open(build_write(name, b->p, b->n), &w, &err) == ROSE_OK)
            touch_all(w);
        else
            CHECK(strlen(err.message) > 10 && !w);
        weights_close(w);
        b->p[bit / 8] ^= (char)(1 << bit % 8);
    }
}

/* The tensors of a golden checkpoint against tests/golden/weights/expected.txt; returns how many lines named
 * its files. */
static inline int expect_golden(const struct weights *w, const char *prefix)
{
    FILE *f = fopen("tests/golden/weights/expected.txt", "r");
    char line[512], file[128], name[128], type[32], dims[64], head[32];
    unsigned long long offset, bytes;
    int lines = 0;
    CHECK(f != NULL);
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, prefix, strlen(prefix))) continue;
        CHECK_INT(sscanf(line, "%127s %127s %31s %63s %llu %llu %31s", file, name, type, dims, &offset,
                         &bytes, head),
                  7);
        lines++;
        const struct weights_tensor *t = weights_find(w, name);
        CHECK(t != NULL);
        if (!t) continue;
        char path[256], shape[64] = "", hex[20] = "";
        snprintf(path, sizeof path, "tests/golden/weights/%s", file);
        for (int i = 0; i < t->ndim; i++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), i ? ",%lld" : "%lld",
                     (long long)t->shape[i]);
        for (uint64_t i = 0; i < t->bytes && i < 8; i++)
            snprintf(hex + 2 * i, 3, "%02x", ((const uint8_t *)t->tensor.data)[i]);
        CHECK_STR(t->name.p, name);
        CHECK_STR(t->file, path);
        CHECK_STR(t->type, type);
        CHECK_STR(*shape ? shape : "-", dims);
        CHECK_INT(t->offset, offset);
        CHECK_INT(t->bytes, bytes);
        CHECK_STR(*hex ? hex : "-", head);
        if (t->tensor.dtype != DTYPE_NONE) CHECK_STR(dtype_info(t->tensor.dtype)->name, type);
    }
    if (f) fclose(f);
    return lines;
}

#endif
