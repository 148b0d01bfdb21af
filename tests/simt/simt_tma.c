/* Bulk copies and TMA. A load's data and its mbarrier's bytes arrive at a random moment after the issue; a
 * store reads its shared memory at a random moment, at the latest when its thread waits. */
#include "simt_tensor_map.h"
#include "simt_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAP_MAGIC 0x70616d2d72736f74ull

struct map { /* what the harness puts into a struct tensor_map */
    uint64_t magic;
    unsigned char *base;
    uint64_t stride[4]; /* bytes, of dimensions 1 .. */
    uint32_t dim[5], box[5];
    uint16_t rank, element_bytes, swizzle, reduce;
};

void simt_tensor_map(struct tensor_map *out, const struct simt_tensor *t)
{
    struct map m = {.magic = MAP_MAGIC,
                    .base = t->base,
                    .rank = (uint16_t)t->rank,
                    .element_bytes = (uint16_t)t->element_bytes,
                    .swizzle = (uint16_t)t->swizzle,
                    .reduce = (uint16_t)t->reduce};
    _Static_assert(sizeof m <= sizeof *out, "the map must fit the 128 bytes of a tensor map");
    const char *wrong = NULL;
    uint64_t stride = t->element_bytes;
    for (int i = 0; i < t->rank; i++) {
        m.dim[i] = t->dim[i];
        m.box[i] = t->box[i];
        if (!t->dim[i] || !t->box[i] || t->box[i] > 256)
            wrong = "dimensions are at least 1, box sides 1 .. 256";
        if (i) {
            m.stride[i - 1] = t->stride[i - 1] ? t->stride[i - 1] : stride;
            if (m.stride[i - 1] % 16) wrong = "strides are multiples of 16 bytes";
            stride = m.stride[i - 1];
        }
        stride *= t->dim[i];
    }
    uint32_t inner = t->box[0] * t->element_bytes;
    if (inner % 16) wrong = "a box's inner side is a multiple of 16 bytes";
    if (t->swizzle && inner > t->swizzle) wrong = "a box's inner side is at most the swizzle span";
    if ((uintptr_t)t->base % 16) wrong = "the tensor's base is 16-byte aligned";
    if (t->rank < 1 || t->rank > 5) wrong = "1 to 5 dimensions";
    if (wrong) {
        fprintf(stderr, "simt_tensor_map: %s (as cuTensorMapEncodeTiled demands)\n", wrong);
        exit(1);
    }
    memset(out, 0, sizeof *out);
    memcpy(out, &m, sizeof m);
}

static struct map map_of(const struct tensor_map *t, int rank, const void *pc)
{
    struct map m;
    memcpy(&m, t, sizeof m);
    if (m.magic != MAP_MAGIC) simt_fail(SIMT_MISUSE, pc, "the tensor map was not made by simt_tensor_map");
    if ((uintptr_t)t % 64)
        simt_fail(SIMT_MISALIGNED, pc, "a tensor map is 64-byte aligned: make it the first member");
    if (m.rank != rank)
        simt_fail(SIMT_MISUSE, pc, "a %dd instruction with a map of %u dimensions", rank, m.rank);
    return m;
}

/* One element of the box: where it lies in shared memory, and in global memory (NULL: outside the tensor). */
typedef void box_fn(void *context, uint32_t shared_at, unsigned char *global);

static uint32_t swizzled(const struct map *m, uint32_t at)
{
    uint32_t mask = m->swizzle ? m->swizzle / 16 - 1 : 0;
    return at ^ (at >> 7 & mask) << 4;
}

static uint32_t box_bytes(const struct map *m)
{
    uint32_t n = m->element_bytes;
    for (int i = 0; i < m->rank; i++) n *= m->box[i];
    return n;
}

static void box_walk(const struct map *m, const int32_t c[5], uint32_t shared_at, box_fn *fn, void *context)
{
    uint32_t box[5] = {1, 1, 1, 1, 1}, at = shared_at;
    for (int i = 0; i < m->rank; i++) box[i] = m->box[i];
    uint32_t i[5];
    for (i[4] = 0; i[4] < box[4]; i[4]++)
        for (i[3] = 0; i[3] < box[3]; i[3]++)
            for (i[2] = 0; i[2] < box[2]; i[2]++)
                for (i[1] = 0; i[1] < box[1]; i[1]++)
                    for (i[0] = 0; i[0] < box[0]; i[0]++, at += m->element_bytes) {
                        unsigned char *g = m->base;
                        bool inside = true;
                        for (int d = 0; d < m->rank; d++) {
                            int64_t x = (int64_t)c[d] + i[d];
                            inside = inside && x >= 0 && x < m->dim[d];
                            g += x * (int64_t)(d ? m->stride[d - 1] : m->element_bytes);
                        }
                        fn(context, swizzled(m, at), inside ? g : NULL);
                    }
}

/* ---- loads
 * -------------------------------------------------------------------------------------------------------------
 */
struct load {
    bool tensor;
    struct map map;
    int32_t c[5];
    const unsigned char *from;
    uint32_t bytes, offset; /* offset in the window */
    struct block *to;
    struct mbarrier *bar;
    struct vc *issued;
};

struct copy_context {
    unsigned char *window;
    uint32_t element;
};
static void copy_in(void *context, uint32_t at, unsigned char *global)
{
    struct copy_context *x = context;
    if (global)
        memcpy(x->window + at, global, x->element);
    else
        memset(x->window + at, 0, x->element);
}

static void load_complete(void *state)
{
    struct load *l = state;
    if (l->tensor) {
        struct copy_context x = {l->to->window, l->map.element_bytes};
        box_walk(&l->map, l->c, l->offset, copy_in, &x);
    } else
        memcpy(l->to->window + l->offset, l->from, l->bytes);
    uint32_t clock = simt_mbarrier_tick(l->bar);
    simt_async_land(l->to->window + l->offset, l->bytes, simt_mbarrier_block(l->bar),
                    simt_mbarrier_agent(l->bar), clock);
    l->to->copies--;
    simt_mbarrier_complete(l->bar, l->bytes, l->issued);
    vc_drop(l->issued);
    free(l);
}

struct read_context {
    uint32_t element;
    const void *pc;
};
static void check_global(void *context, uint32_t at, unsigned char *global)
{
    struct read_context *x = context;
    (void)at;
    if (global) simt_async_read(global, x->element, 0, 0, x->pc);
}

/* Starts one load into block b, whose shared address corresponds to `shared` of the issuing block. */
static void load_start(const struct load *l, const void *shared, uint64_t *bar, struct block *b,
                       const void *pc)
{
    struct fiber *f = simt_grid->current;
    struct block *mine = simt_shared_owner(shared), *bar_owner = simt_shared_owner(bar);
    if (!mine || !bar_owner)
        simt_fail(SIMT_BOUNDS, pc, "a bulk load goes to shared memory, on an mbarrier in shared memory");
    struct load *n = malloc(sizeof *n);
    *n = *l;
    n->to = b;
    n->offset = (uint32_t)((const unsigned char *)shared - mine->window);
    n->bar = simt_mbarrier_at((uint64_t *)(b->window + ((unsigned char *)bar - bar_owner->window)), true, pc);
    simt_async_write(b->window + n->offset, l->bytes, pc);
    n->issued = vc_keep(f->vc);
    b->copies++;
    simt_async_post(load_complete, n);
}

static void load_all(const struct load *l, void *shared, uint64_t *bar, uint32_t blocks, const void *pc)
{
    struct fiber *f = simt_grid->current;
    struct cluster *c = f->block->cluster;
    if (!blocks) {
        load_start(l, shared, bar, simt_shared_owner(shared) ? simt_shared_owner(shared) : f->block, pc);
        return;
    }
    if (blocks >> c->size)
        simt_fail(SIMT_MISUSE, pc, "multicast mask %#x in a cluster of %u", blocks, c->size);
    for (uint32_t i = 0; i < c->size; i++)
        if (blocks >> i & 1) load_start(l, shared, bar, c->blocks[i], pc);
}

static void check_bulk(const void *shared, const void *other, uint32_t bytes, const void *pc)
{
    if ((uintptr_t)shared % 16 || (uintptr_t)other % 16 || bytes % 16 || !bytes)
        simt_fail(SIMT_MISALIGNED, pc,
                  "a bulk copy of %u bytes: size and both addresses must be multiples of 16", bytes);
}

void simt_bulk_load(void *shared, const void *global, uint32_t bytes, uint64_t *bar, uint32_t blocks)
{
    check_bulk(shared, global, bytes, SIMT_PC);
    simt_async_read(global, bytes, 0, 0, SIMT_PC);
    struct load l = {.from = global, .bytes = bytes};
    load_all(&l, shared, bar, blocks, SIMT_PC);
}

void simt_bulk_copy_cluster(void *to, const void *from, uint32_t bytes, uint64_t *bar)
{
    check_bulk(to, from, bytes, SIMT_PC);
    simt_async_read(from, bytes, 0, 0, SIMT_PC);
    struct load l = {.from = from, .bytes = bytes};
    load_start(&l, to, bar, simt_shared_owner(to), SIMT_PC);
}

void simt_tma_load(void *shared, const struct tensor_map *map, int rank, const int32_t c[5], uint64_t *bar,
                   uint32_t blocks)
{
    struct load l = {.tensor = true, .map = map_of(map, rank, SIMT_PC)};
    memcpy(l.c, c, sizeof l.c);
    l.bytes = box_bytes(&l.map);
    if ((uintptr_t)shared % 128)
        simt_fail(SIMT_MISALIGNED, SIMT_PC, "a TMA box in shared memory is 128-byte aligned");
    struct read_context x = {l.map.element_bytes, SIMT_PC};
    if (!simt_fast) box_walk(&l.map, l.c, 0, check_global, &x);
    load_all(&l, shared, bar, blocks, SIMT_PC);
}

struct remote_store {
    unsigned char v[16], *to;
    uint32_t bytes;
    struct mbarrier *bar;
    struct vc *issued;
};
static void remote_store_complete(void *state)
{
    struct remote_store *s = state;
    memcpy(s->to, s->v, s->bytes);
    uint32_t clock = simt_mbarrier_tick(s->bar);
    simt_async_land(s->to, s->bytes, simt_mbarrier_block(s->bar), simt_mbarrier_agent(s->bar), clock);
    simt_shared_owner(s->to)->copies--;
    simt_mbarrier_complete(s->bar, s->bytes, s->issued);
    vc_drop(s->issued);
    free(s);
}

void simt_st_async(void *p, const void *v, uint32_t bytes, uint64_t *bar)
{
    struct remote_store *s = calloc(1, sizeof *s);
    if ((uintptr_t)p % bytes)
        simt_fail(SIMT_MISALIGNED, SIMT_PC, "st.async of %u bytes is aligned to that", bytes);
    s->bar = simt_mbarrier_at(bar, true, SIMT_PC);
    simt_async_write(p, bytes, SIMT_PC);
    memcpy(s->v, v, bytes);
    s->to = p;
    s->bytes = bytes;
    s->issued = vc_release(simt_grid->current);
    simt_shared_owner(p)->copies++;
    simt_async_post(remote_store_complete, s);
}

/* ---- stores
 * ----------------------------------------------------------------------------------------------------------------
 */
struct store {
    bool tensor, done;
    enum simt_reduce reduce;
    struct map map;
    int32_t c[5];
    unsigned char *to;
    struct block *from;
    uint32_t bytes, offset;
    int refs; /* the thread's list, the queue */
};
struct bulk_op {
    struct store *store;
    uint32_t group;
    bool read; /* its shared memory has been waited for */
};

static float bf16_get(const void *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static void bf16_put(void *p, float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t h = f != f ? 0x7fff : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    memcpy(p, &h, 2);
}

static void put(unsigned char *to, const unsigned char *from, uint32_t bytes, enum simt_reduce reduce)
{
    if (reduce == SIMT_REDUCE_NONE) memcpy(to, from, bytes);
    for (uint32_t i = 0; reduce == SIMT_REDUCE_ADD_F32 && i < bytes; i += 4) {
        float a, b;
        memcpy(&a, to + i, 4), memcpy(&b, from + i, 4);
        a += b;
        memcpy(to + i, &a, 4);
    }
    for (uint32_t i = 0; reduce == SIMT_REDUCE_ADD_BF16 && i < bytes; i += 2)
        bf16_put(to + i, bf16_get(to + i) + bf16_get(from + i));
    for (uint32_t i = 0; reduce == SIMT_REDUCE_ADD_U32 && i < bytes; i += 4) {
        uint32_t a, b;
        memcpy(&a, to + i, 4), memcpy(&b, from + i, 4);
        a += b;
        memcpy(to + i, &a, 4);
    }
}

static void copy_out(void *context, uint32_t at, unsigned char *global)
{
    struct store *s = context;
    if (global) put(global, s->from->window + at, s->map.element_bytes, s->reduce);
}

static void store_complete(void *state)
{
    struct store *s = state;
    if (!s->done) {
        if (s->tensor)
            box_walk(&s->map, s->c, s->offset, copy_out, s);
        else
            put(s->to, s->from->window + s->offset, s->bytes, s->reduce);
        s->done = true;
    }
    if (--s->refs == 0) free(s);
}

static void claim_global(void *context, uint32_t at, unsigned char *global)
{
    struct read_context *x = context;
    (void)at;
    if (global) simt_async_write(global, x->element, x->pc);
}
static void claim_reduce(void *context, uint32_t at, unsigned char *global)
{
    struct read_context *x = context;
    (void)at;
    if (global) simt_access(global, x->element, ACCESS_READ | ACCESS_ATOMIC, x->pc);
    if (global) simt_access(global, x->element, ACCESS_WRITE | ACCESS_ATOMIC, x->pc);
}

static void store_start(struct store *s, const void *shared, const void *pc)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    s->from = simt_shared_owner(shared);
    if (s->from != f->block) simt_fail(SIMT_BOUNDS, pc, "a bulk store reads the block's own shared memory");
    s->offset = (uint32_t)((const unsigned char *)shared - s->from->window);
    simt_async_read(shared, s->bytes, SIMT_AGENT_ASYNC(g, f->index), f->bulk_group + 1, pc);
    struct read_context x = {s->tensor ? s->map.element_bytes : s->bytes, pc};
    box_fn *claim = s->reduce ? claim_reduce : claim_global;
    if (s->tensor && !simt_fast)
        box_walk(&s->map, s->c, s->offset, claim, &x);
    else if (!s->tensor)
        claim(&x, 0, s->to);
    if (f->bulk_count == f->bulk_capacity) {
        f->bulk_capacity = f->bulk_capacity ? f->bulk_capacity * 2 : 8;
        f->bulk = realloc(f->bulk, f->bulk_capacity * sizeof *f->bulk);
    }
    struct store *n = malloc(sizeof *n);
    *n = *s;
    n->refs = 2;
    f->bulk[f->bulk_count++] = (struct bulk_op){n, f->bulk_group, false};
    simt_async_post(store_complete, n);
}

void simt_bulk_store(void *global, const void *shared, uint32_t bytes, enum simt_reduce reduce)
{
    check_bulk(shared, global, bytes, SIMT_PC);
    struct store s = {.to = global, .bytes = bytes, .reduce = reduce};
    store_start(&s, shared, SIMT_PC);
}

void simt_tma_store(const struct tensor_map *map, int rank, const int32_t c[5], const void *shared, bool add)
{
    struct store s = {.tensor = true, .map = map_of(map, rank, SIMT_PC)};
    memcpy(s.c, c, sizeof s.c);
    s.bytes = box_bytes(&s.map);
    s.reduce = add ? (enum simt_reduce)s.map.reduce : SIMT_REDUCE_NONE;
    if (add && !s.reduce) simt_fail(SIMT_MISUSE, SIMT_PC, "the tensor map names no element type to add");
    if ((uintptr_t)shared % 128)
        simt_fail(SIMT_MISALIGNED, SIMT_PC, "a TMA box in shared memory is 128-byte aligned");
    /* Measured on an H200: what lies behind the tensor's end is dropped, but these trap (illegal instruction). */
    for (int i = 0; i < rank; i++)
        if (c[i] < 0)
            simt_fail(SIMT_MISUSE, SIMT_PC, "a TMA store at coordinate %d of dimension %d: stores begin inside", c[i], i);
    if ((int64_t)c[0] * s.map.element_bytes % 16)
        simt_fail(SIMT_MISALIGNED, SIMT_PC, "a TMA store begins %lld bytes into a row: a multiple of 16 is needed",
                  (long long)c[0] * s.map.element_bytes);
    store_start(&s, shared, SIMT_PC);
}

void simt_bulk_commit(void)
{
    simt_grid->current->bulk_group++;
}

static void land_global(void *context, uint32_t at, unsigned char *global)
{
    struct store *s = context;
    struct fiber *f = simt_grid->current;
    (void)at;
    if (!global) return;
    uint32_t n = s->tensor ? s->map.element_bytes : s->bytes;
    simt_async_land_cells(simt_cells(global, n, ACCESS_WRITE, NULL), n,
                          epoch_make(f->clock, f->block->linear, f->index, 0));
}

void simt_bulk_wait(uint32_t pending, bool read_only)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->bulk_count; i++) {
        struct bulk_op *op = &f->bulk[i];
        struct store *s = op->store;
        bool due = op->group < f->bulk_group && f->bulk_group - op->group > pending;
        if (due && !s->done) {
            s->refs++;
            store_complete(s);
        }
        if (due) {
            op->read = true;
            f->vc = vc_with(f->vc, f->block->linear, SIMT_AGENT_ASYNC(g, f->index), op->group + 1);
        }
        if (!due || read_only) {
            f->bulk[kept++] = *op;
            continue;
        }
        if (!s->reduce && s->tensor && !simt_fast)
            box_walk(&s->map, s->c, s->offset, land_global, s);
        else if (!s->reduce && !s->tensor)
            land_global(s, 0, s->to);
        if (--s->refs == 0) free(s);
    }
    f->bulk_count = kept;
    g->progress++;
}

void simt_bulk_thread_exit(struct fiber *f)
{
    for (uint32_t i = 0; i < f->bulk_count; i++) {
        if (!f->bulk[i].read)
            simt_fail(SIMT_IN_FLIGHT, NULL,
                      "thread %u returns while its bulk store may still read shared memory: "
                      "bulk_commit and bulk_wait_read(0) are missing",
                      f->index);
        if (--f->bulk[i].store->refs == 0) free(f->bulk[i].store);
    }
    free(f->bulk);
    f->bulk = NULL;
    f->bulk_count = f->bulk_capacity = 0;
}
