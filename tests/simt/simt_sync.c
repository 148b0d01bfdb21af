/* Warp operations, barriers, strong accesses and fences. */
#include "simt_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- warp operations
 * ---------------------------------------------------------------------------------------------- */
void simt_warp_op(int op, const char *what, uint32_t mask, void *args, simt_warp_fn *fn, const void *pc)
{
    struct fiber *f = simt_grid->current;
    struct warp *w = &f->block->warps[f->index / 32];
    struct fiber *lanes = &f->block->fibers[f->index / 32 * 32];
    uint32_t bit = 1u << f->lane;
    if (!(mask & bit)) simt_fail(SIMT_MASK, pc, "lane %u is not in its own mask %08x", f->lane, mask);
    if (mask & ~w->lanes)
        simt_fail(SIMT_DIVERGENT, pc,
                  "mask %08x names lanes that the block's last warp (lanes %08x) does not have", mask,
                  w->lanes);
    if (mask & w->done)
        simt_fail(SIMT_DIVERGENT, pc, "mask %08x names lanes %08x, which have returned", mask,
                  mask & w->done);
    for (uint32_t waiting = w->arrived & mask; waiting; waiting &= waiting - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(waiting);
        struct fiber *o = &lanes[l];
        /* Two lanes that wait for each other must mean the same operation. A lane that waits for this one may
         * be at a later operation than the one this lane is at with others. */
        if (!(o->op_mask & bit)) continue;
        if (o->op_mask != mask)
            simt_fail(SIMT_MASK, pc, "lane %u has mask %08x, lane %u waits with mask %08x", f->lane, mask, l,
                      o->op_mask);
        if (o->op != op)
            simt_fail(SIMT_MASK, pc, "lane %u is here (%s) while lane %u %s", f->lane, what, l, o->waiting);
    }
    f->op = op;
    f->op_mask = mask;
    f->op_args = args;
    w->arrived |= bit;
    bool all_here = (w->arrived & mask) == mask;
    for (uint32_t left = mask; all_here && left; left &= left - 1) {
        const struct fiber *o = &lanes[__builtin_ctz(left)];
        all_here = o->op_mask == mask && o->op == op;
    }
    if (!all_here) {
        simt_block(what, pc);
        return;
    }
    struct fiber *lane[32] = {0};
    void *all[32] = {0};
    for (uint32_t l = 0; l < 32; l++)
        if (mask >> l & 1) lane[l] = &lanes[l], all[l] = lanes[l].op_args;
    fn(lane, all, mask);
    w->arrived &= ~mask;
    for (uint32_t l = 0; l < 32; l++)
        if (lane[l] && lane[l] != f) simt_wake(lane[l]);
    simt_grid->progress++;
}

struct shuffle_args {
    enum simt_shfl mode;
    uint32_t v, b, width, result;
};

static void shuffle_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    struct grid *g = simt_grid;
    for (uint32_t l = 0; l < 32; l++) {
        struct shuffle_args *a = args[l];
        if (!lane[l]) continue;
        uint32_t first = l & ~(a->width - 1), last = first + a->width - 1, src = l;
        if (a->mode == SIMT_SHFL_IDX)
            src = first + (a->b & (a->width - 1));
        else if (a->mode == SIMT_SHFL_XOR)
            src = (l ^ a->b) <= last ? (l ^ a->b) & 31 : l;
        else if (a->mode == SIMT_SHFL_UP)
            src = l >= first + a->b ? l - a->b : l;
        else
            src = l + a->b <= last ? l + a->b : l;
        if (!(mask >> src & 1)) {
            simt_fail(SIMT_MASK, g->current->waiting_pc,
                      "a shuffle reads lane %u, which is not in the mask %08x", src, mask);
            return;
        }
        a->result = ((struct shuffle_args *)args[src])->v;
    }
}

uint32_t simt_shuffle(enum simt_shfl mode, uint32_t mask, uint32_t v, uint32_t b, uint32_t width)
{
    struct shuffle_args a = {mode, v, b, width, 0};
    if (!width || width > 32 || (width & (width - 1)))
        simt_fail(SIMT_MISUSE, SIMT_PC, "a shuffle's width is a power of two up to 32, not %u", width);
    simt_grid->current->waiting_pc = SIMT_PC;
    simt_warp_op(SIMT_OP_SHUFFLE, "waits for its warp at a shuffle", mask, &a, shuffle_all, SIMT_PC);
    return a.result;
}

static void vote_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    uint32_t ballot = 0;
    for (uint32_t l = 0; l < 32; l++)
        if ((mask >> l & 1) && *(uint32_t *)args[l]) ballot |= 1u << l;
    for (uint32_t l = 0; l < 32; l++)
        if (lane[l]) *(uint32_t *)args[l] = ballot;
}
uint32_t simt_vote(uint32_t mask, bool pred)
{
    uint32_t v = pred;
    simt_warp_op(SIMT_OP_VOTE, "waits for its warp at a vote", mask, &v, vote_all, SIMT_PC);
    return v;
}

static void match_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    uint32_t v[32];
    for (uint32_t l = 0; l < 32; l++) v[l] = lane[l] ? *(uint32_t *)args[l] : 0;
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t m = 0;
        for (uint32_t k = 0; k < 32; k++)
            if ((mask >> k & 1) && v[k] == v[l]) m |= 1u << k;
        if (lane[l]) *(uint32_t *)args[l] = m;
    }
}
uint32_t simt_match(uint32_t mask, uint32_t v)
{
    simt_warp_op(SIMT_OP_MATCH, "waits for its warp at a match", mask, &v, match_all, SIMT_PC);
    return v;
}

static float as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static uint32_t as_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static float bf16_float(uint32_t h)
{
    return as_float(h << 16);
}
static uint32_t float_bf16(float f) /* nearest even; NaN quiet */
{
    uint32_t u = as_bits(f);
    if (f != f) return 0x7fff;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* The new value of an atomic or a reduction; 32-bit operations use the low half. */
static uint64_t combine(enum simt_op op, uint64_t old, uint64_t v, uint64_t expected)
{
    uint32_t a = (uint32_t)old, b = (uint32_t)v;
    switch (op) {
    case SIMT_ADD_U32: return a + b;
    case SIMT_MIN_U32: return a < b ? a : b;
    case SIMT_MAX_U32: return a > b ? a : b;
    case SIMT_MIN_S32: return (uint32_t)((int32_t)a < (int32_t)b ? a : b);
    case SIMT_MAX_S32: return (uint32_t)((int32_t)a > (int32_t)b ? a : b);
    case SIMT_AND_B32: return a & b;
    case SIMT_OR_B32: return a | b;
    case SIMT_XOR_B32: return a ^ b;
    case SIMT_EXCH_B32: return b;
    case SIMT_CAS_B32: return a == (uint32_t)expected ? b : a;
    case SIMT_ADD_F32: return as_bits(as_float(a) + as_float(b));
    case SIMT_ADD_BF16X2:
        return float_bf16(bf16_float(a & 0xffff) + bf16_float(b & 0xffff)) |
               float_bf16(bf16_float(a >> 16) + bf16_float(b >> 16)) << 16;
    case SIMT_ADD_F16X2: return a; /* no wrapper uses it */
    case SIMT_ADD_U64: return old + v;
    case SIMT_MAX_U64: return old > v ? old : v;
    case SIMT_EXCH_B64: return v;
    case SIMT_CAS_B64: return old == expected ? v : old;
    }
    return old;
}

struct redux_args {
    enum simt_op op;
    uint32_t v;
};
static void redux_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    uint32_t acc = 0;
    bool first = true;
    for (uint32_t l = 0; l < 32; l++) {
        struct redux_args *a = args[l];
        if (!(mask >> l & 1)) continue;
        acc = first ? a->v : (uint32_t)combine(a->op, acc, a->v, 0);
        first = false;
    }
    for (uint32_t l = 0; l < 32; l++)
        if (lane[l]) ((struct redux_args *)args[l])->v = acc;
}
uint32_t simt_redux(enum simt_op op, uint32_t mask, uint32_t v)
{
    struct redux_args a = {op, v};
    simt_warp_op(SIMT_OP_REDUX, "waits for its warp at a reduction", mask, &a, redux_all, SIMT_PC);
    return a.v;
}

static void sync_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    (void)args, (void)mask;
    struct vc *all = NULL;
    for (uint32_t l = 0; l < 32; l++) {
        if (!lane[l]) continue;
        all = vc_join(all, lane[l]->vc);
        all = vc_with(all, lane[l]->block->linear, lane[l]->index, lane[l]->clock);
        lane[l]->clock++;
    }
    for (uint32_t l = 0; l < 32; l++) {
        if (!lane[l]) continue;
        vc_drop(lane[l]->vc);
        lane[l]->vc = vc_keep(all);
    }
    vc_drop(all);
}
void simt_warp_sync(uint32_t mask)
{
    simt_warp_op(SIMT_OP_SYNC, "waits for its warp at warp_sync", mask, NULL, sync_all, SIMT_PC);
}

/* ---- barriers
 * ----------------------------------------------------------------------------------------------------------
 */
static uint32_t barrier_come(uint32_t id, uint32_t threads, enum simt_bar how, bool pred, const void *pc)
{
    struct fiber *f = simt_grid->current;
    struct block *b = f->block;
    uint32_t warps = (simt_grid->threads + 31) / 32;
    if (id > 15) simt_fail(SIMT_MISUSE, pc, "barrier %u: there are 16", id);
    if (threads % 32) simt_fail(SIMT_MISUSE, pc, "a barrier of %u threads: must be whole warps", threads);
    uint32_t expected = threads ? threads : simt_grid->threads;
    struct barrier *bar = &b->barriers[id];
    for (uint32_t w = 0; w < warps; w++)
        if (!threads && b->warps[w].done)
            simt_fail(SIMT_DIVERGENT, pc, "block barrier, but threads of warp %u (lanes %08x) have returned",
                      w, b->warps[w].done);
    if (!bar->arrived)
        bar->expected = expected, bar->count = 0;
    else if (bar->expected != expected)
        simt_fail(SIMT_DIVERGENT, pc, "barrier %u with %u threads, others came with %u", id, expected,
                  bar->expected);
    uint32_t word = f->index / 32, bit = 1u << f->lane;
    if (bar->joined[word] & bit)
        simt_fail(SIMT_DIVERGENT, pc, "came to barrier %u twice before it completed", id);
    bar->joined[word] |= bit;
    bar->arrived++;
    bar->count += pred;
    bar->vc = vc_with(vc_join(bar->vc, f->vc), b->linear, f->index, f->clock);
    f->clock++;
    if (how == SIMT_BAR_SYNC) bar->waiting[word] |= bit;
    if (bar->arrived < bar->expected) {
        if (how == SIMT_BAR_ARRIVE) return 0;
        f->op_mask = 0;
        simt_block(id ? "waits at a named barrier" : "waits at the block's barrier", pc);
        return f->op_mask; /* the count, left by the last */
    }
    for (uint32_t w = 0; w < warps; w++)
        if (bar->joined[w] && bar->joined[w] != b->warps[w].lanes)
            simt_fail(SIMT_DIVERGENT, pc, "barrier %u completed with lanes %08x of warp %u only", id,
                      bar->joined[w], w);
    uint32_t count = bar->count;
    struct vc *all = bar->vc;
    uint32_t waiting[SIMT_MAX_THREADS / 32];
    memcpy(waiting, bar->waiting, sizeof waiting);
    memset(bar, 0, sizeof *bar);
    for (uint32_t t = 0; t < simt_grid->threads; t++) {
        if (!(waiting[t / 32] >> (t % 32) & 1)) continue;
        struct fiber *o = &b->fibers[t];
        vc_drop(o->vc);
        o->vc = vc_keep(all);
        o->op_mask = count;
        if (o != f) simt_wake(o);
    }
    vc_drop(all);
    simt_grid->progress++;
    return count;
}

void simt_barrier(uint32_t id, uint32_t threads, enum simt_bar how)
{
    barrier_come(id, threads, how, false, SIMT_PC);
}

uint32_t simt_barrier_count(bool pred)
{
    return barrier_come(0, 0, SIMT_BAR_SYNC, pred, SIMT_PC);
}

void simt_thread_exit(struct fiber *f)
{
    struct block *b = f->block;
    struct warp *w = &b->warps[f->index / 32];
    uint32_t bit = 1u << f->lane;
    for (uint32_t l = 0; l < 32; l++)
        if ((w->arrived >> l & 1) && (b->fibers[f->index / 32 * 32 + l].op_mask & bit))
            simt_fail(SIMT_DIVERGENT, b->fibers[f->index / 32 * 32 + l].waiting_pc,
                      "lane %u returns while lane %u %s with a mask that names it", f->lane, l,
                      b->fibers[f->index / 32 * 32 + l].waiting);
    if (b->barriers[0].arrived && b->barriers[0].expected == simt_grid->threads)
        simt_fail(SIMT_DIVERGENT, NULL, "thread %u returns while others wait at the block's barrier",
                  f->index);
    w->done |= bit;
}

/* ---- strong accesses
 * ---------------------------------------------------------------------------------------------------- */
struct location { /* what an acquire of this address learns */
    const void *address;
    struct vc *vc;
    enum simt_scope scope;
    uint32_t block;
};
static struct location *locations;
static size_t location_count, location_capacity;

static struct location *location_of(const void *p, bool create)
{
    if (create && location_count * 2 >= location_capacity) {
        size_t capacity = location_capacity ? location_capacity * 2 : 256;
        struct location *n = calloc(capacity, sizeof *n);
        for (size_t i = 0; i < location_capacity; i++) {
            if (!locations[i].address) continue;
            size_t h =
                (size_t)((uintptr_t)locations[i].address * 0x9e3779b97f4a7c15ull >> 20) & (capacity - 1);
            while (n[h].address) h = (h + 1) & (capacity - 1);
            n[h] = locations[i];
        }
        free(locations);
        locations = n;
        location_capacity = capacity;
    }
    if (!location_capacity) return NULL;
    size_t h = (size_t)((uintptr_t)p * 0x9e3779b97f4a7c15ull >> 20) & (location_capacity - 1);
    while (locations[h].address && locations[h].address != p) h = (h + 1) & (location_capacity - 1);
    if (locations[h].address) return &locations[h];
    if (!create) return NULL;
    locations[h].address = p;
    location_count++;
    return &locations[h];
}

void simt_sync_reset(void)
{
    for (size_t i = 0; i < location_capacity; i++) vc_drop(locations[i].vc);
    free(locations);
    locations = NULL;
    location_count = location_capacity = 0;
}

static void learn(struct fiber *f, const void *p, enum simt_order order, enum simt_scope scope)
{
    struct location *s = location_of(p, false);
    if (!s || !s->vc) return;
    if (s->block != f->block->linear && (s->scope == SIMT_SCOPE_cta || scope == SIMT_SCOPE_cta)) return;
    if (order == SIMT_acquire || order == SIMT_acq_rel)
        vc_acquire(f, s->vc);
    else
        f->acquire_vc = vc_join(f->acquire_vc, s->vc);
}

/* What a write of this order publishes: the thread's present, or its present at the last fence, or nothing.
 */
static struct vc *published(struct fiber *f, enum simt_order order, enum simt_scope *scope)
{
    if (order == SIMT_release || order == SIMT_acq_rel) return vc_release(f);
    *scope = f->fence_scope;
    return vc_keep(f->fence_vc);
}

static void strong_check(const void *p, size_t bytes, unsigned access, enum simt_scope scope, const void *pc)
{
    if ((uintptr_t)p % bytes)
        simt_fail(SIMT_MISALIGNED, pc, "strong access of %zu bytes is not aligned to that", bytes);
    simt_access(p, bytes, access | ACCESS_ATOMIC | (scope == SIMT_SCOPE_cta ? ACCESS_CTA : 0), pc);
}

uint64_t simt_ld_strong(const void *p, size_t bytes, enum simt_order order, enum simt_scope scope)
{
    struct fiber *f = simt_grid->current;
    f->waiting_pc = SIMT_PC;
    simt_yield(true);
    strong_check(p, bytes, ACCESS_READ, scope, f->waiting_pc);
    uint64_t v = 0;
    memcpy(&v, p, bytes);
    learn(f, p, order, scope);
    return v;
}

void simt_st_strong(void *p, uint64_t v, size_t bytes, enum simt_order order, enum simt_scope scope)
{
    struct fiber *f = simt_grid->current;
    strong_check(p, bytes, ACCESS_WRITE, scope, SIMT_PC);
    memcpy(p, &v, bytes);
    if (simt_fast) return;
    struct location *s = location_of(p, true);
    vc_drop(s->vc);
    s->scope = scope;
    s->vc = published(f, order, &s->scope);
    s->block = f->block->linear;
}

uint64_t simt_atom(enum simt_op op, void *p, uint64_t v, uint64_t expected, enum simt_order order,
                   enum simt_scope scope)
{
    struct fiber *f = simt_grid->current;
    size_t bytes = op >= SIMT_64_BITS ? 8 : 4;
    f->waiting_pc = SIMT_PC;
    simt_yield(true);
    uint64_t progress = simt_grid->progress, old = 0;
    strong_check(p, bytes, ACCESS_READ, scope, f->waiting_pc); /* unwritten counters */
    strong_check(p, bytes, ACCESS_WRITE, scope, f->waiting_pc);
    memcpy(&old, p, bytes);
    uint64_t now = combine(op, old, v, expected);
    memcpy(p, &now, bytes);
    if (now == old) simt_grid->progress = progress;
    if (simt_fast) return old;
    learn(f, p, order, scope);
    struct location *s = location_of(p, true);
    enum simt_scope published_scope = scope;
    struct vc *mine = published(f, order, &published_scope);
    if (mine) { /* a read-modify-write continues the release sequence it reads from */
        s->scope = s->vc && s->scope < published_scope ? s->scope : published_scope;
        s->vc = vc_join(s->vc, mine);
        s->block = f->block->linear;
        vc_drop(mine);
    }
    return old;
}

void simt_fence(enum simt_order order, enum simt_scope scope)
{
    (void)order;
    struct fiber *f = simt_grid->current;
    if (f->acquire_vc) {
        vc_acquire(f, f->acquire_vc);
        vc_drop(f->acquire_vc);
        f->acquire_vc = NULL;
    }
    vc_drop(f->fence_vc);
    f->fence_vc = vc_release(f);
    f->fence_scope = scope;
}

/* ---- programmatic dependent launch
 * ---------------------------------------------------------------------------------------- */
void simt_grid_wait(void)
{
    struct fiber *f = simt_grid->current;
    f->vc = vc_with(f->vc, f->block->linear, SIMT_AGENT_PDL(simt_grid), 1);
}

void simt_grid_launch(void)
{
    simt_grid->triggered = true;
}
