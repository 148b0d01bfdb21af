/* Texts that wait for a batch: a heap by (priority, tag, arrival), tags by start-time fair queueing over groups. One thread's own. */
#ifndef ROSE_ENGINE_POOL_QUEUE_H
#define ROSE_ENGINE_POOL_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pool_request;

struct pool_order {
    int32_t priority;
    double tag;
    uint64_t arrival;
};

struct pool_queue {
    struct pool_entry {
        struct pool_order order;
        struct pool_request *request;
    } *heap;
    size_t count, capacity;
    struct pool_group {
        uint64_t key; /* 0: free */
        double next;  /* tag of its next text */
    } *groups;
    size_t groups_count, groups_capacity;
    double now; /* virtual time: the tag of the text that started last */
    uint64_t arrivals;
};

void pool_queue_free(struct pool_queue *q);
/* cost: tokens. group 0 takes no turns with itself. False: no memory. */
bool pool_queue_add(struct pool_queue *q, struct pool_request *request, int32_t priority, uint64_t group, int32_t cost);
struct pool_request *pool_queue_first(const struct pool_queue *q); /* NULL: empty */
struct pool_request *pool_queue_take(struct pool_queue *q);
/* Take out all that pick says true of, and give each to it a second time through out. */
void pool_queue_remove(struct pool_queue *q, bool (*pick)(void *arg, struct pool_request *request), void *arg, void (*out)(void *arg, struct pool_request *request));

#endif
