#include "base/guard.h"

#ifdef ROSE_GUARD

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* The linker's --wrap: every call of malloc in this program comes here, __real_malloc is the library's. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t bytes);

static _Thread_local int depth;

void guard_enter(void) { depth++; }
void guard_leave(void) { depth--; }

static void check(size_t bytes)
{
    if (depth <= 0) return;
    depth = 0;
    fprintf(stderr, "rose: an allocation of %zu bytes inside the token loop\n", bytes);
    abort();
}

void *__wrap_malloc(size_t bytes)
{
    check(bytes);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t size)
{
    check(count * size);
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    check(bytes);
    return __real_realloc(p, bytes);
}

#else
typedef int guard_is_off; /* a translation unit must not be empty */
#endif
