/* mbarriers, the asynchronous proxy's checks, clusters. */
#include "simt_internal.h"

#include <stdlib.h>
#include <string.h>

struct mbarrier {
    struct block *block;
    uint32_t offset, index; /* in the block's window, among its agents */
    bool live, fenced;      /* fenced: known to the asynchronous proxy */
    uint32_t count, pending, phase;
    int64_t tx;
    uint32_t clock;       /* of the agent that writes with this barrier */
    struct vc *vc, *done; /* of the phase under way, of the last complete one */
    struct fiber *initialiser;
};

/* ---- checks of the asynchronous proxy
 * -------------------------------------------------------------------------------- */
static bool proxy_fenced(epoch e, bool global)
{
    struct grid *g = simt_grid;
    if ((e & EPOCH_HOST) == EPOCH_HOST || e == EPOCH_NEVER || epoch_agent(e) >= g->threads) return true;
    for (uint32_t s = 0; s < g->slots; s++)
        if (g->slot[s].resident && g->slot[s].linear == epoch_block(e))
            return g->slot[s].fibers[epoch_agent(e)].proxy_fence[global] >= epoch_clock(e);
    return true; /* the writing block has ended */
}

static void async_check(const void *p, size_t i, struct cell *c, bool write, bool global, const void *pc)
{
    struct fiber *f = simt_grid->current;
    char name[200], other[400];
    const char *at = (const char *)p + i, *what = write ? "write" : "read";
    if (c->write == EPOCH_IN_FLIGHT) {
        simt_name_address(at, name, sizeof name);
        simt_fail(SIMT_IN_FLIGHT, pc, "asynchronous %s of %s, where another asynchronous write is under way",
                  what, name);
    }
    if (!vc_covers(f, c->write)) {
        simt_name_address(at, name, sizeof name);
        simt_describe_epoch(c->write, c->write_pc, other, sizeof other);
        simt_fail(SIMT_RACE, pc, "asynchronous %s at %s is not ordered after the write by %s", what, name,
                  other);
    }
    if (!proxy_fenced(c->write, global)) {
        simt_name_address(at, name, sizeof name);
        simt_describe_epoch(c->write, c->write_pc, other, sizeof other);
        simt_fail(SIMT_PROXY, pc, "asynchronous %s at %s of what %s wrote, without fence_proxy_async%s there",
                  what, name, other, global ? "_global" : "");
    }
    if (!write && c->write == EPOCH_NEVER && !simt_initialised && !simt_grid->l.allow_unwritten && !simt_lenient) {
        simt_name_address(at, name, sizeof name);
        simt_fail(SIMT_UNWRITTEN, pc, "asynchronous read of %s, which nobody has written", name);
    }
    for (int r = 0; write && r < 2; r++)
        if (!vc_covers(f, c->read[r])) {
            simt_name_address(at, name, sizeof name);
            simt_describe_epoch(c->read[r], c->read_pc[r], other, sizeof other);
            simt_fail(SIMT_RACE, pc, "asynchronous write at %s is not ordered after the read by %s", name,
                      other);
        }
}

void simt_async_read(const void *p, size_t bytes, uint32_t agent, uint32_t clock, const void *pc)
{
    struct grid *g = simt_grid;
    struct cell *cells = simt_cells(p, bytes, ACCESS_READ, pc);
    if (!cells) return;
    bool global = !simt_shared_owner(p);
    epoch e = epoch_make(clock, g->current->block->linear, agent, 0), known = EPOCH_HOST;
    uint32_t pc32 = (uint32_t)((uintptr_t)pc - g->l.kernel->base);
    for (size_t i = 0; i < bytes; i++) {
        struct cell *c = &cells[i];
        if (c->write != known || c->write == EPOCH_NEVER) async_check(p, i, c, false, global, pc);
        known = c->write;
        if (!agent) continue;
        int slot = ((c->read[0] ^ e) & EPOCH_HOST) == 0 || vc_covers(g->current, c->read[0]) ? 0
                   : ((c->read[1] ^ e) & EPOCH_HOST) == 0 || vc_covers(g->current, c->read[1])
                       ? 1
                       : (int)(simt_random() & 1);
        c->read[slot] = e;
        c->read_pc[slot] = pc32;
    }
}

void simt_async_write(void *p, size_t bytes, const void *pc)
{
    struct cell *cells = simt_cells(p, bytes, ACCESS_WRITE, pc);
    if (!cells) return;
    bool global = !simt_shared_owner(p);
    uint32_t pc32 = (uint32_t)((uintptr_t)pc - simt_grid->l.kernel->base);
    for (size_t i = 0; i < bytes; i++) {
        struct cell *c = &cells[i];
        async_check(p, i, c, true, global, pc);
        c->write = EPOCH_IN_FLIGHT;
        c->write_pc = pc32;
        c->read[0] = c->read[1] = 0;
    }
}

void simt_async_land_cells(struct cell *c, size_t bytes, epoch e)
{
    for (size_t i = 0; c && i < bytes; i++)
        if (c[i].write == EPOCH_IN_FLIGHT) c[i].write = e;
}

void simt_async_land(void *p, size_t bytes, struct block *b, uint32_t agent, uint32_t clock)
{
    struct block *owner = simt_shared_owner(p);
    if (simt_fast) return;
    simt_async_land_cells(owner->cells + ((unsigned char *)p - owner->window), bytes,
                          epoch_make(clock, b->linear, agent, 0));
}

void simt_fence_proxy_async(bool global)
{
    struct fiber *f = simt_grid->current;
    f->proxy_fence[0] = f->clock;
    if (global) f->proxy_fence[1] = f->clock;
    f->clock++;
    for (uint32_t i = 0; i < f->block->mbar_count; i++)
        if (f->block->mbars[i].initialiser == f) f->block->mbars[i].fenced = true;
}

void simt_fence_mbarrier_init(void)
{
    struct fiber *f = simt_grid->current;
    for (uint32_t i = 0; i < f->block->mbar_count; i++)
        if (f->block->mbars[i].initialiser == f) f->block->mbars[i].fenced = true;
}

/* ---- mbarriers
 * ---------------------------------------------------------------------------------------------------------
 */
void simt_mbarriers_free(struct block *b)
{
    for (uint32_t i = 0; i < b->mbar_count; i++) {
        vc_drop(b->mbars[i].vc);
        vc_drop(b->mbars[i].done);
    }
    b->mbar_count = 0;
}

static struct mbarrier *find(struct block *b, uint32_t offset)
{
    for (uint32_t i = 0; i < b->mbar_count; i++)
        if (b->mbars[i].offset == offset) return &b->mbars[i];
    return NULL;
}

struct mbarrier *simt_mbarrier_at(uint64_t *bar, bool async, const void *pc)
{
    struct block *b = simt_shared_owner(bar);
    char name[200];
    struct mbarrier *m = b ? find(b, (uint32_t)((unsigned char *)bar - b->window)) : NULL;
    if (!m || !m->live || (async && !m->fenced)) simt_name_address(bar, name, sizeof name);
    if (!b) simt_fail(SIMT_BOUNDS, pc, "an mbarrier at %s, not in shared memory", name);
    if (!m || !m->live) simt_fail(SIMT_UNWRITTEN, pc, "no mbarrier was initialised at %s", name);
    /* That the initialisation is ordered before this use. */
    simt_access(bar, 8, ACCESS_READ | ACCESS_ATOMIC, pc);
    if (async && !m->fenced)
        simt_fail(SIMT_PROXY, pc,
                  "asynchronous copy on the mbarrier at %s, which was initialised without "
                  "fence_mbarrier_init",
                  name);
    return m;
}

void simt_mbarrier_init(uint64_t *bar, uint32_t count)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    struct block *b = simt_shared_owner(bar);
    if (!b || b != f->block)
        simt_fail(SIMT_BOUNDS, SIMT_PC, "an mbarrier must be in the block's shared memory");
    if ((uintptr_t)bar % 8) simt_fail(SIMT_MISALIGNED, SIMT_PC, "an mbarrier is 8-byte aligned");
    if (!count || count >= 1u << 20)
        simt_fail(SIMT_MISUSE, SIMT_PC, "an mbarrier's count is 1 .. 2^20 - 1, not %u", count);
    simt_access(bar, 8, ACCESS_WRITE, SIMT_PC);
    uint32_t offset = (uint32_t)((unsigned char *)bar - b->window);
    struct mbarrier *m = find(b, offset);
    if (m && m->live)
        simt_fail(SIMT_MISUSE, SIMT_PC, "the mbarrier is initialised twice without mbarrier_invalidate");
    if (!m) {
        if (b->mbar_count == SIMT_MBARS)
            simt_fail(SIMT_RESOURCE, SIMT_PC, "the harness has %d mbarriers a block", SIMT_MBARS);
        if (!b->mbars) b->mbars = calloc(SIMT_MBARS, sizeof *b->mbars);
        m = &b->mbars[b->mbar_count];
        memset(m, 0, sizeof *m);
        m->index = b->mbar_count++;
    }
    m->block = b;
    m->offset = offset;
    m->live = true;
    m->fenced = false;
    m->count = m->pending = count;
    m->phase = 0;
    m->tx = 0;
    m->initialiser = f;
}

void simt_mbarrier_invalidate(uint64_t *bar)
{
    simt_mbarrier_at(bar, false, SIMT_PC)->live = false;
    simt_access(bar, 8, ACCESS_WRITE, SIMT_PC);
}

static void settle(struct mbarrier *m)
{
    if (m->pending || m->tx) return;
    m->phase++;
    m->pending = m->count;
    vc_drop(m->done);
    m->done = m->vc;
    m->vc = NULL;
    simt_grid->progress++;
    for (uint32_t t = 0; t < simt_grid->threads; t++)
        if (m->block->fibers[t].waits_on == m) simt_wake(&m->block->fibers[t]);
}

static void expect(struct mbarrier *m, uint32_t bytes, const void *pc)
{
    m->tx += bytes;
    if (m->tx >= 1 << 20)
        simt_fail(SIMT_MISUSE, pc, "an mbarrier expects %lld bytes, more than 2^20 - 1", (long long)m->tx);
}

void simt_mbarrier_arrive(uint64_t *bar, uint32_t expect_bytes, bool remote)
{
    struct fiber *f = simt_grid->current;
    struct mbarrier *m = simt_mbarrier_at(bar, false, SIMT_PC);
    if (!remote && m->block != f->block)
        simt_fail(SIMT_MISUSE, SIMT_PC, "arrival at another block's mbarrier: use mbarrier_arrive_cluster");
    expect(m, expect_bytes, SIMT_PC);
    struct vc *v = vc_release(f);
    m->vc = vc_join(m->vc, v);
    vc_drop(v);
    m->pending--;
    settle(m);
}

void simt_mbarrier_arrive_async(struct mbarrier *m, const struct vc *v)
{
    m->vc = vc_join(m->vc, v);
    m->pending--;
    settle(m);
}

void simt_mbarrier_expect(uint64_t *bar, uint32_t bytes)
{
    expect(simt_mbarrier_at(bar, false, SIMT_PC), bytes, SIMT_PC);
}

uint32_t simt_mbarrier_tick(struct mbarrier *m)
{
    return ++m->clock;
}

struct block *simt_mbarrier_block(struct mbarrier *m)
{
    return m->block;
}

uint32_t simt_mbarrier_agent(struct mbarrier *m)
{
    return SIMT_AGENT_MBAR(simt_grid, m->index);
}

void simt_mbarrier_complete(struct mbarrier *m, uint32_t bytes, const struct vc *issued)
{
    m->vc = vc_join(m->vc, issued);
    if (!m->vc) m->vc = vc_new(m->block->linear);
    m->vc = vc_with(m->vc, m->block->linear, SIMT_AGENT_MBAR(simt_grid, m->index), m->clock);
    m->tx -= bytes;
    if (m->tx <= -(1 << 20))
        simt_fail(SIMT_MISUSE, NULL,
                  "copies of more than 2^20 - 1 bytes arrive at an mbarrier that does not expect them");
    settle(m);
}

bool simt_mbarrier_test(uint64_t *bar, uint32_t parity)
{
    struct fiber *f = simt_grid->current;
    f->waiting_pc = SIMT_PC;
    simt_yield(true);
    struct mbarrier *m = simt_mbarrier_at(bar, false, f->waiting_pc);
    if ((m->phase & 1) == (parity & 1)) return false;
    vc_acquire(f, m->done);
    return true;
}

void simt_mbarrier_wait(uint64_t *bar, uint32_t parity)
{
    struct fiber *f = simt_grid->current;
    const void *pc = SIMT_PC;
    struct mbarrier *m = simt_mbarrier_at(bar, false, pc);
    if (m->block != f->block)
        simt_fail(SIMT_MISUSE, pc, "waiting on another block's mbarrier is not possible");
    while ((m->phase & 1) == (parity & 1)) {
        f->waits_on = m;
        simt_block(parity & 1 ? "waits at an mbarrier for parity 1" : "waits at an mbarrier for parity 0",
                   pc);
        f->waits_on = NULL;
    }
    vc_acquire(f, m->done);
}

/* ---- clusters
 * ----------------------------------------------------------------------------------------------------------------
 */
void *simt_cluster_map(const void *p, uint32_t rank)
{
    struct fiber *f = simt_grid->current;
    struct block *b = simt_shared_owner(p);
    if (!b || b->cluster != f->block->cluster)
        simt_fail(SIMT_BOUNDS, SIMT_PC, "cluster_map of memory that is not shared");
    if (rank >= b->cluster->size)
        simt_fail(SIMT_BOUNDS, SIMT_PC, "block %u of a cluster of %u", rank, b->cluster->size);
    return b->cluster->blocks[rank]->window + ((const unsigned char *)p - b->window);
}

void simt_cluster_arrive(void)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    struct cluster *c = f->block->cluster;
    if (f->cluster_ticket) simt_fail(SIMT_DIVERGENT, SIMT_PC, "cluster_arrive twice without cluster_wait");
    for (uint32_t i = 0; i < c->size; i++)
        for (uint32_t w = 0; w * 32 < g->threads; w++)
            if (c->blocks[i]->warps[w].done)
                simt_fail(SIMT_DIVERGENT, SIMT_PC, "cluster barrier, but threads of block %u have returned",
                          c->blocks[i]->linear);
    f->cluster_ticket = c->generation + 1;
    c->vc = vc_with(vc_join(c->vc, f->vc), f->block->linear, f->index, f->clock);
    f->clock++;
    if (++c->arrived < c->size * g->threads) return;
    c->arrived = 0;
    c->generation++;
    vc_drop(c->done);
    c->done = c->vc;
    c->vc = NULL;
    for (uint32_t i = 0; i < c->size; i++)
        for (uint32_t t = 0; t < g->threads; t++)
            if (c->blocks[i]->fibers[t].waits_on == c) simt_wake(&c->blocks[i]->fibers[t]);
    g->progress++;
}

void simt_cluster_wait(void)
{
    struct fiber *f = simt_grid->current;
    struct cluster *c = f->block->cluster;
    if (!f->cluster_ticket) simt_fail(SIMT_DIVERGENT, SIMT_PC, "cluster_wait without cluster_arrive");
    while (c->generation < f->cluster_ticket) {
        f->waits_on = c;
        simt_block("waits at the cluster's barrier", SIMT_PC);
        f->waits_on = NULL;
    }
    f->cluster_ticket = 0;
    vc_acquire(f, c->done);
}
