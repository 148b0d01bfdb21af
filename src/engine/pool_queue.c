#include "engine/pool_queue.h"

#include <stdlib.h>

#include "base/hash.h"

void pool_queue_free(struct pool_queue *q)
{
    free(q->heap);
    free(q->groups);
    *q = (struct pool_queue){0};
}

static bool before(const struct pool_order *a, const struct pool_order *b)
{
    if (a->priority != b->priority) return a->priority < b->priority;
    if (a->tag != b->tag) return a->tag < b->tag;
    return a->arrival < b->arrival;
}

static void sift_up(struct pool_queue *q, size_t i)
{
    struct pool_entry e = q->heap[i];
    for (; i && before(&e.order, &q->heap[(i - 1) / 2].order); i = (i - 1) / 2) q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = e;
}

static void sift_down(struct pool_queue *q, size_t i)
{
    struct pool_entry e = q->heap[i];
    for (size_t child; (child = 2 * i + 1) < q->count; i = child) {
        if (child + 1 < q->count && before(&q->heap[child + 1].order, &q->heap[child].order)) child++;
        if (!before(&q->heap[child].order, &e.order)) break;
        q->heap[i] = q->heap[child];
    }
    q->heap[i] = e;
}

static struct pool_group *place(struct pool_group *groups, size_t capacity, uint64_t key)
{
    size_t i = (size_t)hash_mix(key, 0) & (capacity - 1);
    while (groups[i].key && groups[i].key != key) i = (i + 1) & (capacity - 1);
    return &groups[i];
}

/* Groups that have nothing ahead of the virtual time are as good as new ones: they are forgotten when room is needed. */
static bool regroup(struct pool_queue *q)
{
    size_t kept = 0, capacity = 64;
    for (size_t i = 0; i < q->groups_capacity; i++) kept += q->groups[i].key && q->groups[i].next > q->now;
    while (capacity < kept * 4) capacity *= 2;
    struct pool_group *more = calloc(capacity, sizeof *more);
    if (!more) return false;
    for (size_t i = 0; i < q->groups_capacity; i++)
        if (q->groups[i].key && q->groups[i].next > q->now) *place(more, capacity, q->groups[i].key) = q->groups[i];
    free(q->groups);
    q->groups = more;
    q->groups_capacity = capacity;
    q->groups_count = kept;
    return true;
}

static bool tag_of(struct pool_queue *q, uint64_t group, int32_t cost, double *tag)
{
    *tag = q->now;
    if (!group) return true;
    if (q->groups_count * 2 >= q->groups_capacity && !regroup(q)) return false;
    struct pool_group *g = place(q->groups, q->groups_capacity, group);
    if (!g->key) {
        *g = (struct pool_group){group, q->now};
        q->groups_count++;
    }
    if (g->next > *tag) *tag = g->next;
    g->next = *tag + cost;
    return true;
}

bool pool_queue_add(struct pool_queue *q, struct pool_request *request, int32_t priority, uint64_t group, int32_t cost)
{
    if (q->count == q->capacity) {
        size_t capacity = q->capacity ? q->capacity * 2 : 256;
        struct pool_entry *more = realloc(q->heap, capacity * sizeof *more);
        if (!more) return false;
        q->heap = more;
        q->capacity = capacity;
    }
    double tag;
    if (!tag_of(q, group, cost, &tag)) return false;
    q->heap[q->count] = (struct pool_entry){{priority, tag, q->arrivals++}, request};
    sift_up(q, q->count++);
    return true;
}

struct pool_request *pool_queue_first(const struct pool_queue *q) { return q->count ? q->heap[0].request : NULL; }

struct pool_request *pool_queue_take(struct pool_queue *q)
{
    if (!q->count) return NULL;
    struct pool_entry e = q->heap[0];
    if (e.order.tag > q->now) q->now = e.order.tag;
    q->heap[0] = q->heap[--q->count];
    if (q->count) sift_down(q, 0);
    return e.request;
}

void pool_queue_remove(struct pool_queue *q, bool (*pick)(void *, struct pool_request *), void *arg, void (*out)(void *, struct pool_request *))
{
    size_t kept = 0;
    for (size_t i = 0; i < q->count; i++) {
        if (pick(arg, q->heap[i].request)) out(arg, q->heap[i].request);
        else q->heap[kept++] = q->heap[i];
    }
    if (kept == q->count) return;
    q->count = kept;
    for (size_t i = kept / 2; i-- > 0;) sift_down(q, i);
}
