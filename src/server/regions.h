/* Shared memory that KServe's clients registered: inputs are read from it, outputs written to it. System memory, or a GPU's (cuda_shm.h); both
 * share one list of names, as with Triton.
 *
 * Contents are copied by pread and pwrite; nothing of the memory is ever mapped here, so that an owner who shrinks or removes it harms his own
 * request alone, and a region may be unregistered at any time.
 */
#ifndef ROSE_SERVER_REGIONS_H
#define ROSE_SERVER_REGIONS_H

#include "server/fields.h"

enum { REGION_NAME = 255, REGIONS_MAX = 4096 };
struct region {
    char name[REGION_NAME + 1], key[REGION_NAME + 1];
    size_t offset, bytes; /* of the shared memory object; the region is this part of it */
    int fd;                     /* -1: a GPU's memory */
    struct rose_memory *memory; /* a GPU's, and which; NULL: system memory */
    int gpu;
};
struct regions {
    struct region **all;
    int count;
    bool off; /* --no-shared-memory */
};

/* key: a POSIX shared memory object ("/name"). */
bool regions_add(struct regions *r, struct str name, struct str key, uint64_t offset, uint64_t bytes, struct api_error *e);
/* A new entry without a key or memory, not yet in the list: its name is checked. NULL with *e filled. */
struct region *regions_new(const struct regions *r, struct str name, struct api_error *e);
/* Closes and frees one that is not in the list. */
void regions_drop(struct region *g);
/* Into the list, which owns it then; false: freed. */
bool regions_keep(struct regions *r, struct region *g, struct api_error *e);
/* Of system memory, or cuda: of GPUs. n 0: all of them. An unknown name is nothing to do. */
void regions_remove(struct regions *r, struct str name, bool cuda);
const struct region *regions_find(const struct regions *r, struct str name);
/* [offset, offset + bytes) of the region. */
bool regions_read(const struct regions *r, struct str name, size_t offset, void *to, size_t bytes, struct api_error *e);
bool regions_write(const struct regions *r, struct str name, size_t offset, const void *from, size_t bytes, struct api_error *e);

#endif
