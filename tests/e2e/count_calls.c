/* Loaded before the C library (LD_PRELOAD): counts allocations and mutexes taken, and says so at the end. test_token_loop.py compiles it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_long allocations, locks;

void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    allocations++;
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    allocations++;
    return __libc_memalign(align, n);
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    static int (*_Atomic next)(pthread_mutex_t *);
    if (!next) next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    locks++;
    return next(m);
}

__attribute__((destructor)) static void say(void)
{
    fprintf(stderr, "counted: %ld allocations, %ld mutexes\n", allocations, locks);
}
