/* One text on its way through the pool engine. */
#ifndef ROSE_ENGINE_POOL_REQUEST_H
#define ROSE_ENGINE_POOL_REQUEST_H

#include "engine/pool.h"

struct pool_request {
    struct pool_request *next; /* intake list */
    uint64_t id, user, group;
    int32_t priority, count;
    struct pool_wish wish;
    double submitted_s, started_s, deadline_s; /* deadline 0: none */
    int32_t *types;                            /* NULL: all zero */
    int32_t tokens[];                          /* [count], then the types */
};

#endif
