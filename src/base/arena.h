/* Arena: bump allocation with one owner and one end of life. Nothing is freed alone. */
#ifndef ROSE_BASE_ARENA_H
#define ROSE_BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *head; /* the block being filled; older ones behind it */
    size_t used, limit;       /* bytes handed out; limit 0 = none */
};

/* An empty arena; limit bounds the bytes it hands out (0: none). Cannot fail. */
void arena_init(struct arena *arena, size_t limit);
/* Gives everything back. The arena is empty and usable again. */
void arena_free(struct arena *arena);
/* Forgets everything but keeps the largest block, so that a steady user stops calling malloc. */
void arena_reset(struct arena *arena);

/* Memory aligned to 16, uninitialised; NULL when the limit or the machine is exhausted. */
void *arena_alloc(struct arena *arena, size_t bytes);
/* count * size bytes, zeroed; NULL also on overflow. */
void *arena_zalloc(struct arena *arena, size_t count, size_t size);
/* A NUL-terminated copy of n bytes. */
char *arena_strndup(struct arena *arena, const char *text, size_t n);
/* A formatted, NUL-terminated string. */
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(arena, type) ((type *)arena_zalloc((arena), 1, sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_zalloc((arena), (count), sizeof(type)))

#endif
