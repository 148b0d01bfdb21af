/* A program that checks and measures kernels on one GPU: its device, its counts, its memory. Included once a program. */
#ifndef ROSE_TESTS_GPU_PROGRAM_H
#define ROSE_TESTS_GPU_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "jit/jit.h"

static struct device *dev_;
static struct jit *jit_;
static struct rose_error err_;
static FILE *csv_;
static int passed_, failed_;

static bool ok(enum rose_status s)
{
    if (s != ROSE_OK) printf("%s\n", err_.message), failed_++;
    return s == ROSE_OK;
}
static void *get(size_t bytes)
{
    void *p = device_alloc(dev_, bytes, DEVICE_MEMORY_LOCAL, &err_);
    if (!p) printf("%s\n", err_.message), exit(1);
    return p;
}
static void drop(void *p, size_t bytes)
{
    device_free(dev_, p, bytes, DEVICE_MEMORY_LOCAL);
}
static void copy(void *dst, const void *src, size_t bytes)
{
    ok(device_copy(dev_, dst, src, bytes, &err_));
    ok(device_wait(dev_, NULL, &err_));
}

#endif
