/* sparse_linear.pt as torch writes it (tests/golden/make_sparse_pt.py), cut off anywhere, and with other contents than the file says. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "model/head_pt.h"
#include "test.h"

enum { HIDDEN = 32 };

TEST(types)
{
    static const char *const names[] = {"f32", "f16", "bf16"};
    for (int k = 0; k < 3; k++) {
        char path[64];
        float w[HIDDEN], b;
        struct rose_error err = {0};
        snprintf(path, sizeof path, "tests/golden/sparse_linear_%s.pt", names[k]);
        CHECK_OK(head_pt_read(path, HIDDEN, w, &b, &err), err);
        for (int i = 0; i < HIDDEN; i++) CHECK_NEAR(w[i], (i - 11) / 16.0, 0);
        CHECK_NEAR(b, -0.375, 0);
        CHECK_INT(head_pt_read(path, HIDDEN / 2, w, &b, &err), ROSE_FORMAT); /* the size of another type's weight too */
        CHECK_INT(head_pt_read(path, 2 * HIDDEN, w, &b, &err), ROSE_FORMAT);
        CHECK(strstr(err.message, "safetensors"));
    }
}

static enum rose_status read_bytes(const void *p, size_t n)
{
    int fd = memfd_create("pt", 0);
    char path[64];
    float w[HIDDEN], b;
    struct rose_error err = {0};
    CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum rose_status s = head_pt_read(path, HIDDEN, w, &b, &err);
    close(fd);
    return s;
}

TEST(damage)
{
    struct arena a;
    struct str file;
    struct rose_error err;
    arena_init(&a, 0);
    CHECK_OK(file_read(&a, "tests/golden/sparse_linear_f16.pt", 1 << 20, &file, &err), err);
    char *copy = malloc(file.n);
    for (size_t n = 0; n < file.n; n += n < 64 || n + 64 > file.n ? 1 : 37) CHECK(read_bytes(file.p, n) != ROSE_OK);
    for (ptrdiff_t at = 0; (at = str_find(file, STR("HalfStorage"), (size_t)at)) >= 0; at++) {
        memcpy(copy, file.p, file.n);
        memcpy(copy + at, "LongStorage", 11); /* a type that it cannot be */
        CHECK(read_bytes(copy, file.n) != ROSE_OK);
    }
    free(copy);
    arena_free(&a);
}

TEST_MAIN(CASE(types), CASE(damage))
