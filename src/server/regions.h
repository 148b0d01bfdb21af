/* System shared memory that KServe's clients registered: inputs are read from it, outputs written to it.
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
    int fd;
};
struct regions {
    struct region **all;
    int count;
    bool off; /* --no-shared-memory */
};

/* key: a POSIX shared memory object ("/name"). */
bool regions_add(struct regions *r, struct str name, struct str key, uint64_t offset, uint64_t bytes, struct api_error *e);
/* n 0: all. An unknown name is nothing to do. */
void regions_remove(struct regions *r, struct str name);
const struct region *regions_find(const struct regions *r, struct str name);
/* [offset, offset + bytes) of the region. */
bool regions_read(const struct regions *r, struct str name, size_t offset, void *to, size_t bytes, struct api_error *e);
bool regions_write(const struct regions *r, struct str name, size_t offset, const void *from, size_t bytes, struct api_error *e);

#endif
