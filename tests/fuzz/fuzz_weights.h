/* What fuzz_gguf and fuzz_safetensors do: the input becomes a file in memory that is opened by its path. */
#ifndef ROSE_TESTS_FUZZ_FUZZ_WEIGHTS_H
#define ROSE_TESTS_FUZZ_FUZZ_WEIGHTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../weights/touch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* magic: what the file begins with, whatever the input says; NULL: the input as it is. */
static inline int fuzz_weights(const uint8_t *data, size_t size, const char *magic)
{
    static int fd = -1;
    char path[64];
    struct weights *w = NULL;
    struct rose_error err = {0};
    if (fd < 0) fd = memfd_create("fuzz", 0);
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    if (magic && pwrite(fd, magic, 4, 0) != 4) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (weights_open(path, &w, &err) == ROSE_OK)
        touch_all(w);
    else if (!err.message[0] || w)
        abort();
    weights_close(w);
    return 0;
}

#endif
