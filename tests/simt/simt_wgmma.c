/* wgmma: products are computed when the warpgroup waits for their group. Until then the accumulators read as
 * NaN, and the shared operands must stay as they are. */
#include "simt_internal.h"

#include <stdlib.h>
#include <string.h>

struct product {
    int n;
    enum simt_type type;
    bool accumulate, trans_a, trans_b, chained; /* chained: d comes from the product before */
    uint64_t desc_a, desc_b;
    bool registers;
    uint32_t sparse, group;
    uint32_t a[128][4], meta[128];
    void *d[128];
    uint32_t *saved; /* [128][n / 2] */
    const void *pc;
};

struct warpgroup {
    uint32_t arrived, group; /* threads at the current operation; groups committed */
    int op;
    void *args[128];
    struct product *pending[64];
    uint32_t pending_count;
    uint32_t landed_group;
    /* what the last wait put into the accumulators: to see accesses without wgmma_fence */
};

void simt_warpgroups_free(struct block *b)
{
    for (int w = 0; w < SIMT_MAX_THREADS / 128; w++) {
        struct warpgroup *g = b->groups[w];
        for (uint32_t i = 0; g && i < g->pending_count; i++) {
            free(g->pending[i]->saved);
            free(g->pending[i]);
        }
        free(g);
        b->groups[w] = NULL;
    }
}

typedef void group_fn(struct warpgroup *w, struct fiber *threads, const void *pc);

/* Runs fn when all 128 threads of the warpgroup have come to the same operation. */
static void group_op(int op, const char *what, void *args, group_fn *fn, const void *pc)
{
    struct grid *g = simt_grid;
    struct fiber *f = g->current;
    uint32_t index = f->index / 128;
    if (g->l.kernel->arch != 900) simt_fail(SIMT_RESOURCE, pc, "wgmma exists on sm_90a only");
    if (g->threads < 128 * (index + 1))
        simt_fail(SIMT_DIVERGENT, pc, "a warpgroup of fewer than 128 threads");
    if (!f->block->groups[index]) f->block->groups[index] = calloc(1, sizeof(struct warpgroup));
    struct warpgroup *w = f->block->groups[index];
    if (!w->arrived)
        w->op = op;
    else if (w->op != op)
        simt_fail(SIMT_DIVERGENT, pc,
                  "thread %u is here (%s) while others of its warpgroup are at another operation", f->index,
                  what);
    w->args[f->index % 128] = args;
    if (++w->arrived < 128) {
        f->waits_on = w;
        simt_block(what, pc);
        f->waits_on = NULL;
        return;
    }
    w->arrived = 0;
    struct fiber *threads = &f->block->fibers[index * 128];
    fn(w, threads, pc);
    for (uint32_t t = 0; t < 128; t++)
        if (threads[t].waits_on == w) simt_wake(&threads[t]);
    g->progress++;
}

/* ---- shared operands
 * ------------------------------------------------------------------------------------------------------ */
static struct operand operand_of(uint64_t desc, bool trans, enum simt_type type, const void *pc)
{
    static const uint32_t spans[4] = {0, 128, 64, 32};
    struct operand o = {(uint32_t)(desc & 0x3fff) << 4,
                        (uint32_t)(desc >> 16 & 0x3fff) << 4,
                        (uint32_t)(desc >> 32 & 0x3fff) << 4,
                        spans[desc >> 62],
                        trans,
                        simt_type_bits(type)};
    if (desc >> 49 & 7)
        simt_fail(SIMT_MISUSE, pc, "a descriptor with a base offset: align the atoms instead");
    if (trans && o.bits != 16) simt_fail(SIMT_MISUSE, pc, "only 16-bit operands may be MN-major");
    return o;
}

uint32_t simt_operand_at(const struct operand *o, int mn, int k)
{
    uint32_t at, s = o->span, byte = (uint32_t)((o->trans ? mn : k) * o->bits / 8);
    if (!o->trans) {
        if (s)
            at = o->start + (uint32_t)(mn / 8) * o->stride + (uint32_t)(mn % 8) * s + byte;
        else
            at = o->start + (uint32_t)(mn / 8) * o->stride + (uint32_t)(mn % 8) * 16 +
                 byte / 16 * o->leading + byte % 16;
    } else {
        if (s)
            at = o->start + byte % s + byte / s * o->leading + (uint32_t)(k % 8) * s +
                 (uint32_t)(k / 8) * o->stride;
        else
            at = o->start + byte % 16 + byte / 16 * o->stride + (uint32_t)(k % 8) * 16 +
                 (uint32_t)(k / 8) * o->leading;
    }
    uint32_t mask = s ? s / 16 - 1 : 0;
    return (at ^ (at >> 7 & mask) << 4) & (SIMT_SHARED_WINDOW - 1);
}

double simt_operand_element(const struct block *b, const struct operand *o, enum simt_type type, int mn,
                            int k)
{
    const unsigned char *p = b->window + simt_operand_at(o, mn, k);
    uint32_t c = p[0];
    if (o->bits == 16) c |= (uint32_t)p[1] << 8;
    if (o->bits == 4) c = k & 1 ? c >> 4 : c & 15;
    return simt_decode(type, c);
}

void simt_operand_claim(struct block *b, const struct operand *o, int mn, int k, uint32_t agent,
                        uint32_t clock, const void *pc)
{
    if (simt_fast) return;
    int chunk = 128 / o->bits; /* 16 bytes stay together under every swizzle */
    for (int i = 0; i < mn; i += o->trans ? chunk : 1)
        for (int j = 0; j < k; j += o->trans ? 1 : chunk)
            simt_async_read(b->window + simt_operand_at(o, i, j), 16, agent, clock, pc);
}

/* ---- issue
 * ---------------------------------------------------------------------------------------------------------------------
 */
struct issue {
    void *d;
    const uint32_t *a;
    int n, accumulate, trans_a, trans_b;
    enum simt_type type;
    uint64_t desc_a, desc_b;
    uint32_t sparse, meta;
};

static int product_k(const struct product *p)
{
    return 256 / simt_type_bits(p->type) * (p->sparse ? 2 : 1);
}

static void issue_all(struct warpgroup *w, struct fiber *threads, const void *pc)
{
    struct issue *const *x = (struct issue *const *)w->args;
    const struct issue *any = x[0];
    struct block *b = threads[0].block;
    uint32_t index = threads[0].index / 128;
    if (any->n % 8 || any->n < 8 || any->n > 256)
        simt_fail(SIMT_MISUSE, pc, "wgmma's N is 8, 16, .. 256, not %d", any->n);
    if (any->type == SIMT_S8 && any->n > 24 && any->n % 16)
        simt_fail(SIMT_MISUSE, pc, "integer wgmma has N 8, 16, 24 and multiples of 16, not %d", any->n);
    if (w->pending_count == 64) simt_fail(SIMT_RESOURCE, pc, "more than 64 wgmma without a wait");
    struct product *p = calloc(1, sizeof *p);
    *p = (struct product){.n = any->n,
                          .type = any->type,
                          .accumulate = any->accumulate,
                          .trans_a = any->trans_a,
                          .trans_b = any->trans_b,
                          .desc_a = any->desc_a,
                          .desc_b = any->desc_b,
                          .registers = any->a != NULL,
                          .sparse = any->sparse,
                          .group = w->group,
                          .pc = pc};
    size_t regs = (size_t)p->n / 2;
    for (uint32_t i = 0; i < w->pending_count; i++) p->chained |= w->pending[i]->d[0] == any->d;
    if (!p->chained) p->saved = malloc(128 * regs * 4);
    for (int t = 0; t < 128; t++) {
        if (x[t]->n != p->n || x[t]->desc_b != p->desc_b || x[t]->desc_a != p->desc_a ||
            !x[t]->accumulate != !any->accumulate)
            simt_fail(SIMT_MISUSE, pc, "threads of the warpgroup disagree about wgmma's operands");
        if (!threads[t].wgmma_fenced && !p->chained)
            simt_fail(SIMT_MISUSE, pc,
                      "thread %u issues wgmma without wgmma_fence since it could touch the registers",
                      threads[t].index);
        p->d[t] = x[t]->d;
        p->meta[t] = x[t]->meta;
        if (x[t]->a) memcpy(p->a[t], x[t]->a, sizeof p->a[t]);
        if (!p->chained) {
            memcpy(p->saved + (size_t)t * regs, x[t]->d, regs * 4);
            memset(x[t]->d, 0xff, regs * 4); /* NaN until the wait */
        }
    }
    w->pending[w->pending_count++] = p;
    uint32_t agent = SIMT_AGENT_WGMMA(simt_grid, index);
    struct operand ob = operand_of(p->desc_b, p->trans_b, p->type, pc);
    simt_operand_claim(b, &ob, p->n, product_k(p), agent, w->group + 1, pc);
    if (!p->registers) {
        struct operand oa = operand_of(p->desc_a, p->trans_a, p->type, pc);
        simt_operand_claim(b, &oa, 64, p->sparse ? product_k(p) / 2 : product_k(p), agent, w->group + 1, pc);
    }
}

void simt_wgmma(void *d, int n, enum simt_type type, int accumulate, const uint32_t *a, uint64_t desc_a,
                uint64_t desc_b, int trans_a, int trans_b, uint32_t sparse, uint32_t meta)
{
    struct issue x = {d, a, n, accumulate, trans_a, trans_b, type, desc_a, desc_b, sparse, meta};
    group_op(1, "waits for its warpgroup at wgmma", &x, issue_all, SIMT_PC);
}

/* ---- results
 * ----------------------------------------------------------------------------------------------------------------------
 */
static void fill_a(const struct block *b, const struct product *p, double (*a)[SIMT_K_MAX])
{
    int k = product_k(p), held = p->sparse ? k / 2 : k, per = 32 / simt_type_bits(p->type);
    struct operand oa = operand_of(p->desc_a, p->trans_a, p->type, p->pc);
    for (int r = 0; r < 64; r++) {
        double row[SIMT_K_MAX];
        int warp = r / 16, rr = r % 16;
        for (int i = 0; i < held; i++) {
            const uint32_t *regs = p->a[32 * warp + 4 * (rr % 8) + i / per % 4];
            if (p->registers)
                row[i] =
                    simt_decode(p->type, simt_element(&regs[rr / 8 + 2 * (i / (4 * per))], p->type, i % per));
            else
                row[i] = simt_operand_element(b, &oa, p->type, r, i);
        }
        if (!p->sparse) {
            memcpy(a[r], row, sizeof row);
            continue;
        }
        uint8_t nibbles[SIMT_K_MAX / 4];
        for (int g = 0; g < k / 4; g++) {
            int l, shift;
            simt_meta_place(p->type, rr, g, p->sparse - 1, &l, &shift);
            nibbles[g] = p->meta[32 * warp + l] >> shift & 15;
        }
        simt_spread(a[r], row, nibbles, k, p->type, p->pc);
    }
}

/* Where a thread holds D's element [row, column]. */
static void *result_at(const struct product *p, int r, int c)
{
    int t = 32 * (r / 16) + 4 * (r % 8) + c % 8 / 2, e = 4 * (c / 8) + 2 * (r % 16 / 8) + c % 2;
    return (uint32_t *)p->d[t] + e;
}

static void compute_fp8(const struct product *p, double (*a)[SIMT_K_MAX], const double (*b)[256])
{
    static int exponents[SIMT_K_MAX][256];
    int k = product_k(p);
    for (int i = 0; i < k; i++)
        for (int c = 0; c < p->n; c++) exponents[i][c] = simt_fp8_exponent(p->type, b[i][c]);
    for (int r = 0; r < 64; r++) {
        float d[256];
        for (int c = 0; c < p->n; c++) d[c] = p->accumulate ? *(float *)result_at(p, r, c) : 0;
        simt_fp8_row(p->type, a[r], b, exponents, k, p->n, d);
        for (int c = 0; c < p->n; c++) *(float *)result_at(p, r, c) = d[c];
    }
}

static void compute_exact(const struct product *p, double (*a)[SIMT_K_MAX], const double (*b)[256])
{
    double sums[256]; /* of a row: the inner loop is over columns */
    int k = product_k(p);
    for (int r = 0; r < 64; r++) {
        memset(sums, 0, sizeof sums);
        for (int i = 0; i < k; i++)
            for (int c = 0; c < p->n; c++) sums[c] += a[r][i] * b[i][c];
        for (int c = 0; c < p->n; c++) {
            void *at = result_at(p, r, c);
            if (p->type == SIMT_S8)
                *(int32_t *)at = (int32_t)((p->accumulate ? *(uint32_t *)at : 0) + (uint32_t)(int32_t)sums[c]);
            else
                *(float *)at = (float)((p->accumulate ? (double)*(float *)at : 0) + sums[c]);
        }
    }
}

static void compute(const struct block *b, struct product *p)
{
    static double a[64][SIMT_K_MAX], b_rows[SIMT_K_MAX][256];
    int k = product_k(p);
    size_t regs = (size_t)p->n / 2;
    struct operand ob = operand_of(p->desc_b, p->trans_b, p->type, p->pc);
    fill_a(b, p, a);
    for (int t = 0; p->saved && t < 128; t++) memcpy(p->d[t], p->saved + (size_t)t * regs, regs * 4);
    for (int c = 0; c < p->n; c++)
        for (int i = 0; i < k; i++) b_rows[i][c] = simt_operand_element(b, &ob, p->type, c, i);
    if (p->type == SIMT_E4M3 || p->type == SIMT_E5M2) compute_fp8(p, a, b_rows);
    else compute_exact(p, a, b_rows);
}

static void fence_all(struct warpgroup *w, struct fiber *threads, const void *pc)
{
    (void)w, (void)pc;
    for (int t = 0; t < 128; t++) threads[t].wgmma_fenced = true;
}
void simt_wgmma_fence(void)
{
    group_op(2, "waits for its warpgroup at wgmma_fence", NULL, fence_all, SIMT_PC);
}

static void commit_all(struct warpgroup *w, struct fiber *threads, const void *pc)
{
    (void)threads, (void)pc;
    w->group++;
}
void simt_wgmma_commit(void)
{
    group_op(3, "waits for its warpgroup at wgmma_commit", NULL, commit_all, SIMT_PC);
}

static void wait_all(struct warpgroup *w, struct fiber *threads, const void *pc)
{
    uint32_t pending = *(uint32_t *)w->args[0], kept = 0, last = 0;
    (void)pc;
    for (uint32_t i = 0; i < w->pending_count; i++) {
        struct product *p = w->pending[i];
        if (!(p->group < w->group && w->group - p->group > pending)) {
            w->pending[kept++] = p;
            continue;
        }
        compute(threads[0].block, p);
        last = p->group + 1;
        free(p->saved);
        free(p);
    }
    /* A product that continued one of those is now the first of its chain: its input is in the registers,
     * which stay out of reach until its own wait. */
    for (uint32_t i = 0; i < kept; i++) {
        struct product *p = w->pending[i];
        bool earlier = false;
        for (uint32_t j = 0; j < i; j++) earlier |= w->pending[j]->d[0] == p->d[0];
        if (!p->chained || earlier || p->saved) continue;
        size_t regs = (size_t)p->n / 2;
        p->saved = malloc(128 * regs * 4);
        for (int t = 0; t < 128; t++) {
            memcpy(p->saved + (size_t)t * regs, p->d[t], regs * 4);
            memset(p->d[t], 0xff, regs * 4);
        }
    }
    w->pending_count = kept;
    for (int t = 0; t < 128; t++) {
        threads[t].wgmma_fenced = false;
        if (last)
            threads[t].vc = vc_with(threads[t].vc, threads[t].block->linear,
                                    SIMT_AGENT_WGMMA(simt_grid, threads[t].index / 128), last);
    }
}
void simt_wgmma_wait(uint32_t pending)
{
    group_op(4, "waits for its warpgroup at wgmma_wait", &pending, wait_all, SIMT_PC);
}

void simt_setmaxnreg(uint32_t n)
{
    if (n % 8 || n < 24 || n > 256)
        simt_fail(SIMT_MISUSE, SIMT_PC, "setmaxnreg %u: a multiple of 8, 24 .. 256", n);
    if (simt_grid->l.kernel->arch < 900) simt_fail(SIMT_RESOURCE, SIMT_PC, "setmaxnreg needs sm_90a");
    /* A block owns what it was launched with, at most 65536 / threads registers a thread in steps of 8; a warpgroup
     * that asks for more than the others leave waits for ever. One that has not asked may still shrink to 24. */
    struct fiber *f = simt_grid->current;
    uint32_t threads = simt_grid->threads, launched = 65536 / threads / 8 * 8, asked = 0;
    f->block->registers[f->index / 128] = (uint16_t)n;
    for (uint32_t first = 0; first < threads; first += 128) {
        uint32_t group = threads - first < 128 ? threads - first : 128, own = f->block->registers[first / 128];
        asked += group * (own ? own : 24);
    }
    if (launched > 255) launched = 255 / 8 * 8;
    if (asked > launched * threads)
        simt_fail(SIMT_RESOURCE, SIMT_PC,
                  "setmaxnreg: the warpgroups ask for %u registers and %u threads are launched with at most %u each, %u in all",
                  asked, threads, launched, launched * threads);
}
