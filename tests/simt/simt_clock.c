/* Vector clocks: two levels (block, agent), shared by reference and copied when they change. */
#include "simt_internal.h"

#include <stdlib.h>
#include <string.h>

static struct leaf *leaf_keep(struct leaf *l)
{
    if (l) l->refs++;
    return l;
}
static void leaf_drop(struct leaf *l)
{
    if (l && --l->refs == 0) free(l);
}
static struct leaf *leaf_mutable(struct leaf *l) /* consumes l */
{
    size_t bytes = sizeof *l + simt_grid->agents * sizeof *l->clock;
    if (l && l->refs == 1) return l;
    struct leaf *n = l ? malloc(bytes) : calloc(1, bytes);
    if (l) memcpy(n, l, bytes), leaf_drop(l);
    n->refs = 1;
    return n;
}
static struct leaf *leaf_join(struct leaf *a, struct leaf *b) /* consumes a */
{
    if (!b || a == b) return a;
    if (!a) return leaf_keep(b);
    a = leaf_mutable(a);
    for (uint32_t i = 0; i < simt_grid->agents; i++)
        if (a->clock[i] < b->clock[i]) a->clock[i] = b->clock[i];
    return a;
}

static void others_drop(struct vc_others *o)
{
    if (!o || --o->refs) return;
    for (uint32_t i = 0; i < simt_grid->blocks; i++) leaf_drop(o->leaf[i]);
    free(o);
}
static struct vc_others *others_mutable(struct vc_others *o) /* consumes o */
{
    if (o && o->refs == 1) return o;
    struct vc_others *n = calloc(1, sizeof *n + simt_grid->blocks * sizeof *n->leaf);
    n->refs = 1;
    if (o) {
        for (uint32_t i = 0; i < simt_grid->blocks; i++) n->leaf[i] = leaf_keep(o->leaf[i]);
        others_drop(o);
    }
    return n;
}

struct vc *vc_new(uint32_t block)
{
    if (simt_fast) return NULL;
    struct vc *v = calloc(1, sizeof *v);
    v->refs = 1;
    v->block = block;
    return v;
}
struct vc *vc_keep(struct vc *v)
{
    if (v) v->refs++;
    return v;
}
void vc_drop(struct vc *v)
{
    if (!v || --v->refs) return;
    leaf_drop(v->own);
    others_drop(v->others);
    free(v);
}
static struct vc *vc_mutable(struct vc *v) /* consumes v */
{
    if (v->refs == 1) return v;
    struct vc *n = vc_new(v->block);
    n->own = leaf_keep(v->own);
    n->others = v->others;
    if (n->others) n->others->refs++;
    vc_drop(v);
    return n;
}
static struct leaf *vc_leaf(const struct vc *v, uint32_t block)
{
    return v->block == block ? v->own : v->others ? v->others->leaf[block] : NULL;
}
static void vc_set_leaf(struct vc *v, uint32_t block,
                        struct leaf *l) /* v mutable; consumes l and the old one */
{
    if (v->block == block)
        v->own = l;
    else {
        v->others = others_mutable(v->others);
        v->others->leaf[block] = l;
    }
}

struct vc *vc_with(struct vc *v, uint32_t block, uint32_t agent, uint32_t clock)
{
    if (simt_fast) return NULL;
    v = vc_mutable(v);
    if (v->block != block) v->others = others_mutable(v->others);
    struct leaf *l = leaf_mutable(vc_leaf(v, block));
    if (l->clock[agent] < clock) l->clock[agent] = clock;
    vc_set_leaf(v, block, l);
    return v;
}

struct vc *vc_join(struct vc *a, const struct vc *b)
{
    if (simt_fast || !b || a == b) return a;
    if (!a) {
        struct vc *n = vc_new(b->block);
        n->own = leaf_keep(b->own);
        n->others = b->others;
        if (n->others) n->others->refs++;
        return n;
    }
    a = vc_mutable(a);
    a->own = leaf_join(a->own, vc_leaf(b, a->block));
    if (b->block != a->block && b->own) {
        a->others = others_mutable(a->others);
        a->others->leaf[b->block] = leaf_join(a->others->leaf[b->block], b->own);
    }
    if (b->others && b->others != a->others) {
        a->others = others_mutable(a->others);
        for (uint32_t i = 0; i < simt_grid->blocks; i++)
            if (i != a->block) a->others->leaf[i] = leaf_join(a->others->leaf[i], b->others->leaf[i]);
    }
    return a;
}

bool vc_covers(const struct fiber *f, epoch e)
{
    if (simt_fast || (e & EPOCH_HOST) == EPOCH_HOST || e == EPOCH_NEVER) return true;
    uint32_t block = epoch_block(e), agent = epoch_agent(e);
    if (block == f->block->linear && agent == f->index) return true;
    const struct leaf *l = vc_leaf(f->vc, block);
    return l && l->clock[agent] >= epoch_clock(e);
}

struct vc *vc_release(struct fiber *f)
{
    struct vc *v = vc_with(vc_keep(f->vc), f->block->linear, f->index, f->clock);
    f->clock++;
    return v;
}

void vc_acquire(struct fiber *f, const struct vc *v)
{
    if (v) f->vc = vc_join(f->vc, v);
}
