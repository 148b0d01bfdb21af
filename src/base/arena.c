#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, FIRST_BLOCK = 4096, LARGEST_STEP = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t size, used; /* bytes of payload */
    _Alignas(ALIGN) unsigned char payload[];
};

void arena_init(struct arena *arena, size_t limit) { *arena = (struct arena){.limit = limit}; }

void arena_free(struct arena *arena)
{
    for (struct arena_block *b = arena->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    arena_init(arena, arena->limit);
}

void arena_reset(struct arena *arena)
{
    struct arena_block *keep = NULL;
    for (struct arena_block *b = arena->head, *next; b; b = next) {
        next = b->next;
        if (!keep || b->size > keep->size) {
            free(keep);
            keep = b;
        } else {
            free(b);
        }
    }
    if (keep) {
        keep->next = NULL;
        keep->used = 0;
    }
    arena->head = keep;
    arena->used = 0;
}

/* Blocks double up to 1 MiB, so that small arenas stay small and large ones call malloc rarely. */
static struct arena_block *grow(struct arena *arena, size_t bytes)
{
    size_t size = arena->head ? arena->head->size * 2 : FIRST_BLOCK;
    if (size > LARGEST_STEP) size = LARGEST_STEP;
    if (size < bytes) size = bytes;
    struct arena_block *b = malloc(sizeof *b + size);
    if (!b) return NULL;
    b->next = arena->head;
    b->size = size;
    b->used = 0;
    return arena->head = b;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (arena->limit && bytes > arena->limit - arena->used) return NULL;
    struct arena_block *b = arena->head;
    if (!b || bytes > b->size - b->used) b = grow(arena, bytes);
    if (!b) return NULL;
    void *p = b->payload + b->used;
    b->used += bytes;
    arena->used += bytes;
    return p;
}

void *arena_zalloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *p = arena_alloc(arena, bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

char *arena_strndup(struct arena *arena, const char *text, size_t n)
{
    char *copy = n < SIZE_MAX ? arena_alloc(arena, n + 1) : NULL;
    if (!copy) return NULL;
    if (n) memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n >= 0 ? arena_alloc(arena, (size_t)n + 1) : NULL;
    if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}
