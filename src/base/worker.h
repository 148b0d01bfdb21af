/* Workers: a fixed team of threads, pinned, that run one function together and meet at spin barriers.
 *
 * The caller of workers_run is worker 0; the others spin for a while and then sleep between runs, so that an idle
 * process uses no CPU. Nothing here allocates or locks while a run is under way.
 */
#ifndef ROSE_BASE_WORKER_H
#define ROSE_BASE_WORKER_H

#include <stdatomic.h>

#include "base/status.h"

struct workers; /* the team */

/* What one thread of a running team sees. */
struct worker {
    int index, count;     /* 0 <= index < count */
    struct workers *team; /* shared by all */
    void *scratch;        /* this worker's own memory, 64-byte aligned; contents undefined between entries */
    size_t scratch_bytes;
};

/* count threads in all (the caller included); 0: one per core this process may use. scratch_bytes each, reserved but
 * touched only when used. pin: bind thread i to the i-th allowed core. */
enum rose_status workers_open(int count, size_t scratch_bytes, bool pin, struct workers **out, struct rose_error *err);
void workers_close(struct workers *team);
int workers_count(const struct workers *team);
/* Scratch bytes of each worker. */
size_t workers_scratch(const struct workers *team);
/* Cores this process may use: affinity mask and cgroup quota. */
int workers_cores(void);

/* Run fn(arg, worker) on every worker and return when all have returned. One run at a time: callers from several threads take turns. */
void workers_run(struct workers *team, void (*fn)(void *arg, struct worker *w), void *arg);

/* All workers wait for each other. What was written before is visible to all after. */
void worker_barrier(struct worker *w);

/* Static split of [0, total) into pieces of whole grains: the same piece for the same (index, count) always.
 * Empty pieces give begin == end. */
void worker_range(const struct worker *w, size_t total, size_t grain, size_t *begin, size_t *end);

/* Dynamic split: the next piece of at most grain items, false when none is left. A worker_barrier must lie between two
 * uses (the program executor has one after every entry); each use covers its own total. */
bool worker_next(struct worker *w, size_t total, size_t grain, size_t *begin, size_t *end);

/* Shares that others may help with: each worker has [0, total) of its own, takes pieces of it in order, and when it is done with them those that are
 * left of others' (but the last two). worker_open: this worker's share may be taken from (what its work needs is in memory). worker_take: the next piece of the share of
 * worker `of`, false when it is not open or nothing is left. A worker_barrier must lie between two uses. */
void worker_open(struct worker *w);
bool worker_take(struct worker *w, int of, size_t total, size_t grain, size_t *begin, size_t *end);

#endif
