/* Map from byte strings to 32-bit values: open addressing, keys are views that somebody else owns. */
#ifndef ROSE_BASE_MAP_H
#define ROSE_BASE_MAP_H

#include "base/str.h"

struct map_slot {
    struct str key; /* p == NULL: empty */
    uint32_t hash, value;
};
struct map {
    struct map_slot *slots;
    size_t cap, count; /* cap is a power of two or 0 */
};

/* Room for n keys without growing; false when memory runs out. */
bool map_reserve(struct map *m, size_t n);
/* Insert or overwrite; false when memory runs out. key.p must not be NULL and must outlive the map. */
bool map_put(struct map *m, struct str key, uint32_t value);
bool map_get(const struct map *m, struct str key, uint32_t *value);
void map_free(struct map *m);

#endif
