/* Tensor memory and tcgen05 (one block, M = 128), and multimem. Products and scale copies run in order when
 * the commit after them is delivered, at a random moment after its issue. */
#define _GNU_SOURCE
#define ROSE_SIMT
#define ROSE_ARCH 1000
#include "kernels/cuda/common/convert.cuh"
#include "simt_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LANES = 128, COLUMNS = 512 };
#define EPOCH_STORING (EPOCH_IN_FLIGHT - 1) /* by tmem_st, not waited for */

struct tc_op {
    bool copy; /* of scales */
    enum simt_tc kind;
    struct operand a, b;
    uint32_t d, a_tmem, scale_a, scale_b, n, a_byte, b_byte;
    bool a_in_tmem, accumulate, ue8m0;
    enum simt_type ta, tb;
    uint32_t offset; /* of the scales in the window */
    const void *pc;
};

struct tmem {
    uint32_t word[LANES][COLUMNS];
    epoch written[LANES][COLUMNS];
    uint8_t owner[COLUMNS]; /* 0 free, else 1 + allocation's number % 255 */
    uint8_t next;
    struct tc_op *ops;                    /* issued, not run; in order */
    uint32_t count, capacity, run, clock; /* ops run so far, clock of the block's tcgen05 agent */
};

static struct tmem *tmem_of(const void *pc)
{
    struct block *b = simt_grid->current->block;
    if (simt_grid->l.kernel->arch != 1000) simt_fail(SIMT_RESOURCE, pc, "tcgen05 exists on sm_100a only");
    if (!b->tmem) b->tmem = calloc(1, sizeof *b->tmem);
    return b->tmem;
}

void simt_tmem_finish(struct block *b, bool ended)
{
    struct tmem *t = b->tmem;
    if (!t) return;
    int held = 0;
    for (int c = 0; c < COLUMNS; c++) held += t->owner[c] != 0;
    if (ended && held)
        simt_fail(SIMT_RESOURCE, NULL, "block %u ended with %d columns of tensor memory allocated", b->linear,
                  held);
    if (ended && !simt_grid->failed && t->run < t->count)
        simt_fail(SIMT_IN_FLIGHT, NULL, "block %u ended with tcgen05 operations under way", b->linear);
    free(t->ops);
    free(t);
    b->tmem = NULL;
}

/* ---- allocation
 * ---------------------------------------------------------------------------------------------------------
 */
struct alloc_args {
    uint32_t *where, columns, address;
    const void *pc;
};

static void alloc_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    (void)lane, (void)mask;
    struct alloc_args *a = args[0];
    struct tmem *t = tmem_of(a->pc);
    for (uint32_t c = 0; c + a->columns <= COLUMNS; c += a->columns) {
        uint32_t used = 0;
        for (uint32_t i = 0; i < a->columns; i++) used += t->owner[c + i] != 0;
        if (used) continue;
        t->next = t->next == 255 ? 1 : t->next + 1;
        memset(t->owner + c, t->next, a->columns);
        simt_access(a->where, 4, ACCESS_WRITE, a->pc);
        *a->where = c;
        return;
    }
    simt_fail(SIMT_RESOURCE, a->pc, "no %u free columns of tensor memory: this block waits for itself",
              a->columns);
}

void simt_tmem_alloc(uint32_t *where, uint32_t columns)
{
    if (columns < 32 || columns > 512 || (columns & (columns - 1)))
        simt_fail(SIMT_MISUSE, SIMT_PC, "tmem_alloc of %u columns: a power of two, 32 .. 512", columns);
    struct alloc_args a = {where, columns, 0, SIMT_PC};
    simt_warp_op(SIMT_OP_TCGEN05, "waits for its warp at tmem_alloc", ~0u, &a, alloc_all, SIMT_PC);
}

static void free_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    (void)lane, (void)mask;
    struct alloc_args *a = args[0];
    struct tmem *t = tmem_of(a->pc);
    uint32_t c = a->address & 0xffff;
    for (uint32_t i = 0; i < a->columns; i++)
        if (c + i >= COLUMNS || !t->owner[c + i] || t->owner[c + i] != t->owner[c]) {
            simt_fail(SIMT_MISUSE, a->pc, "tmem_free of columns %u .. %u, which are no allocation", c,
                      c + a->columns - 1);
            return;
        }
    memset(t->owner + c, 0, a->columns);
}

void simt_tmem_free(uint32_t address, uint32_t columns)
{
    struct alloc_args a = {NULL, columns, address, SIMT_PC};
    simt_warp_op(SIMT_OP_TCGEN05, "waits for its warp at tmem_free", ~0u, &a, free_all, SIMT_PC);
}

/* ---- access checks
 * ----------------------------------------------------------------------------------------------------------
 */
static void tmem_check(struct tmem *t, uint32_t lane, uint32_t column, bool write, const void *pc)
{
    struct fiber *f = simt_grid->current;
    if (lane >= LANES || column >= COLUMNS || !t->owner[column])
        simt_fail(SIMT_BOUNDS, pc, "tensor memory lane %u column %u is not allocated", lane, column);
    epoch e = t->written[lane][column];
    if (e == EPOCH_IN_FLIGHT || e == EPOCH_STORING)
        simt_fail(SIMT_IN_FLIGHT, pc,
                  "tensor memory lane %u column %u: an earlier operation there was not waited for", lane,
                  column);
    if (!vc_covers(f, e))
        simt_fail(SIMT_RACE, pc, "tensor memory lane %u column %u is not ordered after its last write", lane,
                  column);
    if (!write && e == EPOCH_NEVER)
        simt_fail(SIMT_UNWRITTEN, pc, "read of tensor memory lane %u column %u, which nobody has written",
                  lane, column);
}

/* A product or copy may follow an earlier one on the same columns without a wait: they run in order. */
static void tmem_claim(struct tmem *t, uint32_t lane, uint32_t column, bool write, const void *pc)
{
    if (lane < LANES && column < COLUMNS && t->owner[column] && t->written[lane][column] == EPOCH_IN_FLIGHT)
        return;
    tmem_check(t, lane, column, write, pc);
    if (write) t->written[lane][column] = EPOCH_IN_FLIGHT;
}

static struct tc_op *push(struct tmem *t)
{
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? t->capacity * 2 : 16;
        t->ops = realloc(t->ops, t->capacity * sizeof *t->ops);
    }
    struct tc_op *op = &t->ops[t->count++];
    memset(op, 0, sizeof *op);
    return op;
}

static struct operand tc_operand(uint64_t desc, bool trans, enum simt_type type, const void *pc)
{
    static const int spans[8] = {0, -1, 128, -1, 64, -1, 32, -1};
    int span = spans[desc >> 61];
    if (span < 0 || (desc >> 46 & 7) != 1 || (desc >> 49 & 7))
        simt_fail(SIMT_MISUSE, pc, "not a descriptor of tcgen05_desc");
    struct operand o = {(uint32_t)(desc & 0x3fff) << 4,
                        (uint32_t)(desc >> 16 & 0x3fff) << 4,
                        (uint32_t)(desc >> 32 & 0x3fff) << 4,
                        (uint32_t)span,
                        trans,
                        simt_type_bits(type)};
    if (trans && o.bits != 16)
        simt_fail(SIMT_MISUSE, pc, "the harness knows MN-major operands of 16 bits only");
    return o;
}

static enum simt_type format(enum simt_tc kind, uint32_t f, const void *pc)
{
    if (kind == SIMT_TC_F16 && f <= 1) return f ? SIMT_BF16 : SIMT_F16;
    if ((kind == SIMT_TC_F8 || kind == SIMT_TC_MXF8) && f <= 1) return f ? SIMT_E5M2 : SIMT_E4M3;
    if (kind == SIMT_TC_I8 && f == 1) return SIMT_S8;
    if ((kind == SIMT_TC_MXF4 || kind == SIMT_TC_NVF4) && f == 1) return SIMT_E2M1;
    simt_fail(SIMT_MISUSE, pc, "element format %u of this kind is not emulated", f);
    return SIMT_BF16;
}

static int op_k(const struct tc_op *op)
{
    return 256 / simt_type_bits(op->ta);
}

/* The first column of the scales of `rows` rows, four rows' worth of lanes each: claims them. */
static void claim_scales(struct tmem *t, uint32_t address, uint32_t rows, const void *pc)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t quarter = 0; quarter < 4; quarter++)
            tmem_claim(t, quarter * 32 + r % 32, (address & 0xffff) + r / 32, false, pc);
}

void simt_tcgen05_mma(enum simt_tc kind, uint32_t d, uint64_t desc_a, uint32_t a, bool a_in_tmem,
                      uint64_t desc_b, uint32_t idesc, uint32_t scale_a, uint32_t scale_b, bool accumulate)
{
    const void *pc = SIMT_PC;
    struct grid *g = simt_grid;
    struct block *b = g->current->block;
    struct tmem *t = tmem_of(pc);
    struct tc_op op = {.kind = kind,
                       .d = d,
                       .a_tmem = a,
                       .a_in_tmem = a_in_tmem,
                       .scale_a = scale_a,
                       .scale_b = scale_b,
                       .accumulate = accumulate,
                       .pc = pc};
    bool scaled = kind >= SIMT_TC_MXF8;
    uint32_t m = scaled ? (idesc >> 27 & 3) * 128 : (idesc >> 24 & 31) * 16;
    op.n = (idesc >> 17 & 63) * 8;
    if (m != 128) simt_fail(SIMT_MISUSE, pc, "the harness emulates M = 128, not %u", m);
    if (!op.n || op.n > 256 || op.n % 16) simt_fail(SIMT_MISUSE, pc, "N is 16, 32, .. 256, not %u", op.n);
    if (!scaled && (idesc >> 4 & 3) != (kind == SIMT_TC_I8 ? 2u : 1u))
        simt_fail(SIMT_MISUSE, pc, "D must be float (int32 for i8)");
    op.ta = format(kind, idesc >> 7 & 7, pc);
    op.tb = format(kind, idesc >> 10 & 7, pc);
    op.a_byte = scaled ? idesc >> 29 & 3 : 0;
    op.b_byte = scaled ? idesc >> 4 & 3 : 0;
    op.ue8m0 = idesc >> 23 & 1;
    if (scaled && op.ue8m0 == (kind == SIMT_TC_NVF4))
        simt_fail(SIMT_MISUSE, pc, "the scale type does not belong to this kind");
    int k = op_k(&op);
    op.b = tc_operand(desc_b, idesc >> 16 & 1, op.tb, pc);
    simt_operand_claim(b, &op.b, (int)op.n, k, SIMT_AGENT_TCGEN05(g), t->clock + 1, pc);
    if (a_in_tmem) {
        for (uint32_t l = 0; l < 128; l++)
            for (uint32_t c = 0; c < 8; c++) tmem_claim(t, l, (a & 0xffff) + c, false, pc);
    } else {
        op.a = tc_operand(desc_a, idesc >> 15 & 1, op.ta, pc);
        simt_operand_claim(b, &op.a, 128, k, SIMT_AGENT_TCGEN05(g), t->clock + 1, pc);
    }
    if (scaled) claim_scales(t, scale_a, 128, pc), claim_scales(t, scale_b, op.n, pc);
    for (uint32_t l = 0; l < 128; l++)
        for (uint32_t c = 0; c < op.n; c++) {
            if (accumulate) tmem_claim(t, l, (d & 0xffff) + c, false, pc);
            tmem_claim(t, l, (d & 0xffff) + c, true, pc);
        }
    *push(t) = op;
}

void simt_tmem_copy_scales(uint32_t address, const void *shared)
{
    struct tmem *t = tmem_of(SIMT_PC);
    struct block *b = simt_grid->current->block;
    if ((uintptr_t)shared % 16)
        simt_fail(SIMT_MISALIGNED, SIMT_PC, "scales in shared memory are 16-byte aligned");
    simt_async_read(shared, 512, SIMT_AGENT_TCGEN05(simt_grid), t->clock + 1, SIMT_PC);
    for (uint32_t l = 0; l < 128; l++)
        for (uint32_t c = 0; c < 4; c++) tmem_claim(t, l, (address & 0xffff) + c, true, SIMT_PC);
    struct tc_op *op = push(t);
    *op = (struct tc_op){.copy = true, .d = address, .offset = simt_shared_address(shared), .pc = SIMT_PC};
    (void)b;
}

/* ---- execution
 * ------------------------------------------------------------------------------------------------------------------
 */
static double scale_of(const struct tmem *t, const struct tc_op *op, uint32_t address, uint32_t row, int k,
                       uint32_t first_byte)
{
    int block = op->kind == SIMT_TC_NVF4 ? 16 : 32;
    uint32_t word = t->word[row % 32][(address & 0xffff) + row / 32];
    uint32_t c = word >> (8 * (first_byte + (uint32_t)(k / block))) & 0xff;
    if (!op->ue8m0) return rose_e4m3_decode_(c & 0x7f);
    ue8m0 e = {(uint8_t)c};
    return ue8m0_to_f32(e);
}

static void product(struct block *b, struct tmem *t, const struct tc_op *op)
{
    static double a[128][64], b_rows[64][256], sums[256];
    int k = op_k(op);
    bool scaled = op->kind >= SIMT_TC_MXF8;
    for (int r = 0; r < 128; r++)
        for (int i = 0; i < k; i++) {
            a[r][i] = op->a_in_tmem
                          ? simt_decode(op->ta, simt_element(&t->word[r][op->a_tmem & 0xffff], op->ta, i))
                          : simt_operand_element(b, &op->a, op->ta, r, i);
            if (scaled) a[r][i] *= scale_of(t, op, op->scale_a, (uint32_t)r, i, op->a_byte);
        }
    for (uint32_t n = 0; n < op->n; n++)
        for (int i = 0; i < k; i++) {
            b_rows[i][n] = simt_operand_element(b, &op->b, op->tb, (int)n, i);
            if (scaled) b_rows[i][n] *= scale_of(t, op, op->scale_b, n, i, op->b_byte);
        }
    for (int r = 0; r < 128; r++) {
        memset(sums, 0, sizeof sums);
        for (int i = 0; i < k; i++)
            for (uint32_t n = 0; n < op->n; n++) sums[n] += a[r][i] * b_rows[i][n];
        for (uint32_t n = 0; n < op->n; n++) {
            uint32_t *d = &t->word[r][(op->d & 0xffff) + n];
            double sum = sums[n];
            if (op->kind == SIMT_TC_I8)
                *d = (op->accumulate ? *d : 0) + (uint32_t)(int32_t)sum;
            else
                *d = f32_bits((float)((op->accumulate ? (double)f32_from_bits(*d) : 0) + sum));
        }
    }
}

static void run_one(struct block *b, struct tmem *t, const struct tc_op *op)
{
    epoch e = epoch_make(t->clock, b->linear, SIMT_AGENT_TCGEN05(simt_grid), 0);
    uint32_t c0 = op->d & 0xffff, columns = op->copy ? 4 : op->n;
    if (op->copy)
        for (uint32_t l = 0; l < 128; l++) memcpy(&t->word[l][c0], b->window + op->offset + l % 32 * 16, 16);
    else
        product(b, t, op);
    for (uint32_t l = 0; l < 128; l++)
        for (uint32_t c = 0; c < columns; c++) t->written[l][c0 + c] = e;
}

struct commit {
    struct block *block;
    uint32_t upto;
    struct mbarrier *bar;
    struct vc *vc;
};

static void commit_complete(void *state)
{
    struct commit *c = state;
    struct tmem *t = c->block->tmem;
    if (t) {
        t->clock++;
        while (t->run < c->upto) run_one(c->block, t, &t->ops[t->run++]);
        c->vc = vc_with(c->vc, c->block->linear, SIMT_AGENT_TCGEN05(simt_grid), t->clock);
    }
    simt_mbarrier_arrive_async(c->bar, c->vc);
    c->block->copies--;
    vc_drop(c->vc);
    free(c);
}

void simt_tcgen05_commit(uint64_t *bar)
{
    struct fiber *f = simt_grid->current;
    struct tmem *t = tmem_of(SIMT_PC);
    struct commit *c = malloc(sizeof *c);
    *c = (struct commit){f->block, t->count, simt_mbarrier_at(bar, true, SIMT_PC), vc_release(f)};
    f->block->copies++;
    simt_async_post(commit_complete, c);
}

/* ---- loads and stores
 * -----------------------------------------------------------------------------------------------------------
 */
struct ldst_args {
    uint32_t *r, address;
    int n;
    bool store;
    const void *pc;
};

static void ldst_all(struct fiber *const lane[32], void *const args[32], uint32_t mask)
{
    (void)mask;
    struct ldst_args *any = args[0];
    struct tmem *t = tmem_of(any->pc);
    uint32_t first = any->address >> 16, column = any->address & 0xffff, warp = lane[0]->index / 32;
    if (first != 32 * (warp % 4)) {
        simt_fail(SIMT_MISUSE, any->pc, "warp %u reaches tensor memory lanes from %u, the address says %u",
                  warp, 32 * (warp % 4), first);
        return;
    }
    for (uint32_t l = 0; l < 32; l++) {
        struct ldst_args *a = args[l];
        if (a->address != any->address)
            simt_fail(SIMT_MISUSE, a->pc, "the lanes disagree about the address in tensor memory");
        for (int i = 0; i < a->n; i++) {
            tmem_check(t, first + l, column + (uint32_t)i, a->store, a->pc);
            if (a->store) {
                t->word[first + l][column + (uint32_t)i] = a->r[i];
                t->written[first + l][column + (uint32_t)i] = EPOCH_STORING;
            }
        }
    }
}

static void remember(struct fiber *f, uint32_t *r, uint32_t address, int n, const void *pc)
{
    if (f->tmem_load_count == 16)
        simt_fail(SIMT_RESOURCE, pc, "more than 16 tmem_ld or tmem_st without a wait");
    f->tmem_loads[f->tmem_load_count].r = r;
    f->tmem_loads[f->tmem_load_count].address = address;
    f->tmem_loads[f->tmem_load_count++].n = n;
}

void simt_tmem_ld(uint32_t *r, uint32_t address, int n)
{
    struct ldst_args a = {r, address, n, false, SIMT_PC};
    simt_warp_op(SIMT_OP_TCGEN05, "waits for its warp at tmem_ld", ~0u, &a, ldst_all, SIMT_PC);
    memset(r, 0xff, (size_t)n * 4); /* nothing until tmem_wait_ld */
    remember(simt_grid->current, r, address, n, SIMT_PC);
}

void simt_tmem_st(uint32_t address, const uint32_t *r, int n)
{
    uint32_t copy[32];
    memcpy(copy, r, (size_t)n * 4);
    struct ldst_args a = {copy, address, n, true, SIMT_PC};
    simt_warp_op(SIMT_OP_TCGEN05, "waits for its warp at tmem_st", ~0u, &a, ldst_all, SIMT_PC);
    remember(simt_grid->current, NULL, address, n, SIMT_PC);
}

static void wait_tmem(bool loads)
{
    struct fiber *f = simt_grid->current;
    struct tmem *t = f->block->tmem;
    uint32_t kept = 0, lane = f->index % 128;
    for (uint32_t i = 0; i < f->tmem_load_count; i++) {
        uint32_t column = f->tmem_loads[i].address & 0xffff, *r = f->tmem_loads[i].r;
        if ((r != NULL) != loads) {
            f->tmem_loads[kept++] = f->tmem_loads[i];
            continue;
        }
        for (int k = 0; k < f->tmem_loads[i].n; k++)
            if (r)
                r[k] = t->word[lane][column + (uint32_t)k];
            else
                t->written[lane][column + (uint32_t)k] = epoch_make(f->clock, f->block->linear, f->index, 0);
    }
    f->tmem_load_count = kept;
}

void simt_tmem_wait_ld(void)
{
    wait_tmem(true);
}

void simt_tmem_wait_st(void)
{
    wait_tmem(false);
}

/* ---- multimem
 * ---------------------------------------------------------------------------------------------------------------------
 */
#define MAX_REPLICAS 8
static struct {
    unsigned char *base;
    size_t bytes;
    unsigned char *replica[MAX_REPLICAS];
    int n;
} groups[16];
static int group_count;

void *simt_multimem(void *const *replicas, int n, size_t bytes)
{
    if (group_count == 16 || n > MAX_REPLICAS) return NULL;
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    groups[group_count].base = p;
    groups[group_count].bytes = bytes;
    groups[group_count].n = n;
    for (int i = 0; i < n; i++) groups[group_count].replica[i] = replicas[i];
    group_count++;
    return p;
}

void simt_multimem_reset(void)
{
    while (group_count) {
        group_count--;
        munmap(groups[group_count].base, groups[group_count].bytes);
    }
}

/* The group of p, and the offset in it. */
static int group_of(const void *p, size_t bytes, size_t *offset, const void *pc)
{
    for (int i = 0; i < group_count; i++)
        if ((const unsigned char *)p >= groups[i].base &&
            (const unsigned char *)p + bytes <= groups[i].base + groups[i].bytes) {
            *offset = (size_t)((const unsigned char *)p - groups[i].base);
            if (*offset % bytes)
                simt_fail(SIMT_MISALIGNED, pc, "multimem access of %zu bytes is not aligned to that", bytes);
            return i;
        }
    simt_fail(SIMT_BOUNDS, pc, "%p is no multicast address", p);
    return 0;
}

void simt_multimem_ld(void *to, const void *p, enum simt_reduce type)
{
    size_t offset;
    int g = group_of(p, 16, &offset, SIMT_PC);
    float sum[8] = {0};
    for (int i = 0; i < groups[g].n; i++) {
        const unsigned char *from = groups[g].replica[i] + offset;
        simt_access(from, 16, ACCESS_READ | ACCESS_ATOMIC, SIMT_PC);
        for (int k = 0; k < (type == SIMT_REDUCE_ADD_F32 ? 4 : 8); k++) {
            float f;
            bf16 h;
            if (type == SIMT_REDUCE_ADD_F32)
                memcpy(&f, from + 4 * k, 4);
            else
                memcpy(&h, from + 2 * k, 2), f = bf16_to_f32(h);
            sum[k] += f;
        }
    }
    if (type == SIMT_REDUCE_ADD_F32) memcpy(to, sum, 16);
    for (int k = 0; type == SIMT_REDUCE_ADD_BF16 && k < 8; k++) {
        bf16 h = f32_to_bf16(sum[k]);
        memcpy((char *)to + 2 * k, &h, 2);
    }
}

void simt_multimem_st(void *p, const void *v, enum simt_reduce how)
{
    size_t offset;
    int g = group_of(p, 16, &offset, SIMT_PC);
    for (int i = 0; i < groups[g].n; i++) {
        unsigned char *to = groups[g].replica[i] + offset;
        if (how) simt_access(to, 16, ACCESS_READ | ACCESS_ATOMIC, SIMT_PC);
        simt_access(to, 16, ACCESS_WRITE | ACCESS_ATOMIC, SIMT_PC);
        if (!how) memcpy(to, v, 16);
        for (int k = 0; how && k < 4; k++) {
            float a, b;
            memcpy(&a, to + 4 * k, 4), memcpy(&b, (const char *)v + 4 * k, 4);
            a += b;
            memcpy(to + 4 * k, &a, 4);
        }
    }
}

void simt_multimem_red_release(uint32_t *p, uint32_t v)
{
    size_t offset;
    int g = group_of(p, 4, &offset, SIMT_PC);
    for (int i = 0; i < groups[g].n; i++)
        simt_atom(SIMT_ADD_U32, groups[g].replica[i] + offset, v, 0, SIMT_release, SIMT_SCOPE_sys);
}
