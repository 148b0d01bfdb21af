/* cp.async of single threads, and the queue of operations that complete on their own. */
#include "simt_internal.h"

#include <stdlib.h>
#include <string.h>

void simt_async_post(void (*complete)(void *), void *state)
{
    struct grid *g = simt_grid;
    if (g->async_count == g->async_capacity) {
        g->async_capacity = g->async_capacity ? g->async_capacity * 2 : 64;
        g->async = realloc(g->async, g->async_capacity * sizeof *g->async);
    }
    g->async[g->async_count++] = (struct async_op){complete, state};
}

bool simt_async_deliver(void)
{
    struct grid *g = simt_grid;
    if (!g->async_count) return false;
    uint32_t i = (uint32_t)(simt_random() % g->async_count);
    struct async_op op = g->async[i];
    g->async[i] = g->async[--g->async_count];
    g->progress++;
    op.complete(op.state);
    return true;
}

void simt_async_finish(void)
{
    while (simt_async_deliver()) {
    }
}

/* ---- cp.async: the data arrives when the issuing thread waits, not earlier
 * ------------------------------------------- */
struct cp_async {
    unsigned char *to;
    const unsigned char *from;
    uint32_t bytes, src_bytes, group, pc;
};

void simt_cp_async(void *shared, const void *global, uint32_t bytes, uint32_t src_bytes)
{
    struct fiber *f = simt_grid->current;
    if (!simt_shared_owner(shared)) simt_fail(SIMT_BOUNDS, SIMT_PC, "cp.async to memory that is not shared");
    if ((uintptr_t)shared % bytes || (uintptr_t)global % bytes)
        simt_fail(SIMT_MISALIGNED, SIMT_PC, "cp.async of %u bytes needs both addresses aligned to that",
                  bytes);
    if (src_bytes > bytes)
        simt_fail(SIMT_MISUSE, SIMT_PC, "cp.async reads %u bytes for %u", src_bytes, bytes);
    if (src_bytes) simt_access(global, src_bytes, ACCESS_READ, SIMT_PC);
    simt_access(shared, bytes, ACCESS_WRITE, SIMT_PC);
    struct cell *c = simt_cells(shared, bytes, ACCESS_WRITE, SIMT_PC);
    for (uint32_t i = 0; c && i < bytes; i++) c[i].write = EPOCH_IN_FLIGHT;
    if (f->cp_count == f->cp_capacity) {
        f->cp_capacity = f->cp_capacity ? f->cp_capacity * 2 : 16;
        f->cp = realloc(f->cp, f->cp_capacity * sizeof *f->cp);
    }
    f->cp[f->cp_count++] =
        (struct cp_async){shared,    global,      bytes,
                          src_bytes, f->cp_group, (uint32_t)((uintptr_t)SIMT_PC - simt_grid->l.kernel->base)};
}

void simt_cp_async_commit(void)
{
    simt_grid->current->cp_group++;
}

static void land(struct fiber *f, struct cp_async *op)
{
    memset(op->to, 0, op->bytes);
    if (op->src_bytes) memcpy(op->to, op->from, op->src_bytes);
    if (simt_fast) return;
    struct cell *c = f->block->cells + (op->to - f->block->window);
    for (uint32_t i = 0; i < op->bytes; i++) {
        c[i].write = epoch_make(f->clock, f->block->linear, f->index, 0);
        c[i].write_pc = op->pc;
    }
}

void simt_cp_async_wait(uint32_t pending)
{
    struct fiber *f = simt_grid->current;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->cp_count; i++) {
        struct cp_async *op = &f->cp[i];
        /* Groups [0, cp_group) are committed; all but the youngest `pending` of them must be complete. */
        bool due = pending == ~0u || (op->group < f->cp_group && f->cp_group - op->group > pending);
        if (due)
            land(f, op);
        else
            f->cp[kept++] = *op;
    }
    f->cp_count = kept;
    if (pending == ~0u) f->cp_group++;
    simt_grid->progress++;
}

void simt_fiber_free(struct fiber *f)
{
    vc_drop(f->vc);
    vc_drop(f->fence_vc);
    vc_drop(f->acquire_vc);
    free(f->cp);
    f->vc = f->fence_vc = f->acquire_vc = NULL;
    f->cp = NULL;
}

/* ---- cp.async on an mbarrier: arrives once this thread's copies so far have landed
 * ------------------------------------- */
struct cp_arrival {
    struct fiber *f;
    struct mbarrier *bar;
    uint32_t count; /* copies, oldest first, that must land */
};

static void cp_arrival_complete(void *state)
{
    struct cp_arrival *a = state;
    struct fiber *f = a->f;
    uint32_t n = a->count < f->cp_count ? a->count : f->cp_count;
    for (uint32_t i = 0; i < n; i++) land(f, &f->cp[i]);
    for (uint32_t i = n; i < f->cp_count; i++) f->cp[i - n] = f->cp[i];
    f->cp_count -= n;
    struct vc *v = vc_release(f);
    simt_mbarrier_arrive_async(a->bar, v);
    vc_drop(v);
    f->block->copies--;
    free(a);
}

void simt_cp_async_mbarrier_arrive(uint64_t *bar)
{
    struct fiber *f = simt_grid->current;
    struct cp_arrival *a = malloc(sizeof *a);
    *a = (struct cp_arrival){f, simt_mbarrier_at(bar, false, SIMT_PC), f->cp_count};
    f->block->copies++;
    simt_async_post(cp_arrival_complete, a);
}
