#include "kernels/cpu/matmul_inner.h"

#include "base/worker.h"
#include "tensor/extent.h"

/* Up to this many rows every worker prepares the activations for itself: cheaper than a barrier. */
enum { OWN_ROWS = 4 };
/* From this many rows on, a worker that is done helps another with what is left of its share: one that the system, or the other's memory, slowed
 * down then delays the others less. Below, the fixed split costs no atomics. Shares are contiguous: pieces in turns cut the streams of weights,
 * and every cut costs what a prefetch reaches ahead (8 rows of BF16 4.8 -> 4.2 ms, Q8_0 3.5 -> 3.0; docs/facts.md). */
enum { SHARE_FROM = 8 };
/* Pieces of a share, in groups: whole tiles' worth, and about so many of them. */
enum { SHARE_PIECES = 12, SHARE_MOST = 32 };
/* Rows of shares of rows are multiples of this. */
enum { ROW_GRAIN = 2 };
/* Activations that one sweep over the weights reuses: about half of a level-2 cache. */
enum { SWEEP_BYTES = 512 << 10 };
/* Of a worker's share of the weights, what is asked for while activations are prepared. */
enum { FIRST_BYTES = 8192 };
/* Groups that a tile of activations meets while it is in the level-1 cache. */
enum { TOGETHER = 4 };
/* From this many rows a worker on, workers share the rows of a product and not the weights: x and y then stay in their core's
 * cache, nothing is waited for, and a row's arithmetic costs the same. Every worker reads all weights, so the rows must last as
 * long as that takes: bytes of a block (16 x 32 weights) against rows, at 10 GB/s a core. Two workers on cores without a common
 * cache: 32 rows of SmolLM2 in 15 ms instead of 21 (docs/facts.md). Few workers have more of the memory each and take half as many rows. A
 * bf16 panel is decoded once a worker, so it wants more. */
enum { OWN_ROWS_LEAST = 8, OWN_BLOCK_BYTES = 48, OWN_FEW = 4, AMX_OWN_ROWS = 256 };

const struct matmul_kernels *matmul_kernels(void)
{
#if defined(__x86_64__)
    enum cpu_isa isa = cpu_isa();
    if (isa == CPU_ISA_AMX) return &matmul_kernels_amx;
    if (isa == CPU_ISA_AVX512) return &matmul_kernels_avx512;
    if (isa == CPU_ISA_AVX2) return &matmul_kernels_avx2;
#endif
    return &matmul_kernels_portable;
}

/* Work memory: activations of all rows, then for each worker its own rows' activations, scales and output
 * tiles. */
struct layout {
    struct matmul_acts acts;
    /* bytes: the common part; a worker's activations, scales of one weight, everything */
    size_t shared, own_acts, scales, own;
};

static struct layout layout_of(const struct matmul_params *p)
{
    struct layout l = {0};
    for (int i = 0; i < p->parts; i++) {
        matmul_acts_need(&l.acts, &p->part[i].weight);
        l.scales = ROSE_MAX(l.scales, matmul_scale_bytes(&p->part[i].weight));
    }
    /* the bf16 path uses the same memory: whole tiles of 16 rows, 64 bytes a row and block */
    l.shared = size_round_up((size_t)p->max_rows, MATMUL_TILE) * matmul_acts_row(&l.acts);
    l.own_acts = OWN_ROWS * matmul_acts_row(&l.acts);
    l.own = l.own_acts + 2 * (TOGETHER * l.scales + MATMUL_OUT_FLOATS * sizeof(float));
    if (p->amx) l.own = ROSE_MAX(l.own, size_round_up(matmul_amx_scratch(&p->part[0].weight), MATMUL_ALIGN));
    return l;
}

size_t matmul_plan(struct matmul_params *p, int workers)
{
    p->amx = cpu_isa() == CPU_ISA_AMX && !p->deterministic;
    for (int i = 0; i < p->parts; i++) p->amx = p->amx && matmul_amx_takes(&p->part[i].weight);
#if defined(__x86_64__)
    p->rough = !p->deterministic && matmul_bf16_pays();
    for (int i = 0; i < p->parts; i++) p->rough = p->rough && (!matmul_is_float(&p->part[i].weight) || p->part[i].weight.format->kernel >= CPU_BF16);
#endif
    struct layout l = layout_of(p);
    return l.shared + (size_t)workers * l.own + MATMUL_ALIGN;
}

struct run {
    const struct matmul_params *p;
    const struct matmul_kernels *kernels;
    int32_t rows;
    struct matmul_acts acts;
    float *scales[TOGETHER][2], *out[2]; /* this worker's; [1] for the second weight of a gate */
    void *amx_acts, *amx_scratch;
    int32_t from, to; /* rows that this worker multiplies */
};

/* Activations for all rows: alone when there are few (or they are this worker's own), else together, with a barrier after it. */
static void prepare(const struct run *r, struct worker *w)
{
    const struct matmul_params *p = r->p;
    bool alone = r->rows <= OWN_ROWS || r->to - r->from < r->rows;
    size_t row = (size_t)r->from, end = (size_t)r->to, stride = (size_t)p->x_stride;
    if (!alone) worker_range(w, (size_t)r->rows, MATMUL_TILE, &row, &end);
    while (row < end) {
        int height = matmul_acts_height(&r->acts, (int32_t)(end - row));
        matmul_acts_tile(&r->acts, r->kernels, p->x + row * stride, stride, row, height, p->part[0].weight.k);
        row += (size_t)height;
    }
    if (!alone) worker_barrier(w);
}

/* A weight as the activations' form has it. */
static struct cpu_weight weight_of(const struct run *r, int part)
{
    struct cpu_weight w = r->p->part[part].weight;
    if (r->acts.zero && w.format->kernel == CPU_K8) w.format = &cpu_format_k8z;
    return w;
}

static struct matmul_finish finish_of(const struct matmul_params *p, int part, size_t group)
{
    size_t first = group * CPU_GROUP;
    const float *bias = p->part[part].bias, *up_bias = p->gated ? p->part[1].bias : NULL;
    return (struct matmul_finish){bias ? bias + first : NULL, up_bias ? up_bias + first : NULL, p->activation,
                                  p->accumulate, p->alpha};
}

/* The lines that a tile's results will go to: they come while it is multiplied. Stores to lines that lie in another cache would else hold up the
 * next tile (500 cycles a tile of 16 rows, docs/facts.md). */
static inline void fetch_results(const float *y, size_t stride, int height)
{
    for (int h = 0; h < height && height > 1; h++) __builtin_prefetch(y + (size_t)h * stride, 1, 3);
}

/* Rows [from, to) of groups [group, group + groups), TOGETHER at most. */
static void run_groups(const struct run *r, int part, size_t group, size_t groups, int32_t from, int32_t to)
{
    const struct matmul_params *p = r->p;
    const struct matmul_part *a = &p->part[part];
    const struct cpu_weight weight = weight_of(r, part), up = weight_of(r, p->gated ? 1 : part);
    size_t stride = (size_t)a->y_stride;
    const void *scales[TOGETHER][2];
    for (size_t g = 0; g < groups; g++) {
        scales[g][0] = matmul_scales(r->kernels, &weight, group + g, to - from, r->scales[g][0]);
        scales[g][1] = p->gated ? matmul_scales(r->kernels, &up, group + g, to - from, r->scales[g][1]) : NULL;
    }
    for (int32_t row = from; row < to;) {
        int height = matmul_acts_height(&r->acts, to - row);
        for (size_t g = 0; g < groups; g++) {
            size_t first = (group + g) * CPU_GROUP;
            int cols = (int)ROSE_MIN((size_t)CPU_GROUP, (size_t)a->weight.n - first);
            struct matmul_finish finish = finish_of(p, part, group + g);
            fetch_results(a->y + (size_t)row * stride + first, stride, height);
            matmul_products(&r->acts, r->kernels, &weight, group + g, scales[g][0], (size_t)row, height, r->out[0]);
            if (p->gated) matmul_products(&r->acts, r->kernels, &up, group + g, scales[g][1], (size_t)row, height, r->out[1]);
            r->kernels->finish(&finish, r->out[0], p->gated ? r->out[1] : NULL, height, cols,
                               a->y + (size_t)row * stride + first, stride);
        }
        row += height;
    }
}

/* Parts whose groups are counted as units of work (a gate's two weights go together). */
static int unit_parts(const struct matmul_params *p)
{
    return p->gated ? 1 : p->parts;
}

/* Units of `step` groups; a unit does not cross parts. */
static size_t part_units(const struct matmul_params *p, int part, size_t step)
{
    return (cpu_weight_groups(&p->part[part].weight) + step - 1) / step;
}

/* Run `work` on this worker's share of all units. */
static void share_units(const struct run *r, struct worker *w, size_t step, size_t most,
                        void (*work)(const struct run *r, size_t begin, size_t end))
{
    size_t units = 0, begin, end;
    for (int i = 0; i < unit_parts(r->p); i++) units += part_units(r->p, i, step);
    if (r->rows < SHARE_FROM || w->count == 1) {
        worker_range(w, units, 1, &begin, &end);
        if (begin < end) work(r, begin, end);
        return;
    }
    size_t grain = ROSE_MAX((size_t)1, ROSE_MIN(most, units / ((size_t)w->count * 4)));
    while (worker_next(w, units, grain, &begin, &end)) work(r, begin, end);
}

/* While activations are prepared, the first bytes of this worker's fixed share of the weights come from
 * memory; prefetches in the products go on from there. */
static void fetch_first(const struct run *r, const struct worker *w)
{
    const struct matmul_params *p = r->p;
    size_t units = 0, begin, end;
    for (int i = 0; i < unit_parts(p); i++) units += part_units(p, i, 1);
    worker_range(w, units, 1, &begin, &end);
    for (int i = 0; i < p->parts && begin < end; i++) {
        const struct cpu_weight *weight = &p->part[i].weight;
        size_t groups = cpu_weight_groups(weight);
        if (begin < groups) {
            size_t bytes = ROSE_MIN((size_t)FIRST_BYTES, (groups - begin) * weight->group_bytes);
            for (size_t at = 0; at < bytes; at += 64)
                __builtin_prefetch(weight->data + begin * weight->group_bytes + at);
            if (!p->gated) return;
        } else if (!p->gated)
            begin -= groups, end -= groups;
    }
}

/* A step of one row of block formats, where several streams from memory pay. */
static bool in_streams(const struct run *r)
{
    bool pays = r->rows == 1 && r->kernels->streams && matmul_reaches_far() && !r->acts.zero;
    for (int i = 0; i < r->p->parts; i++) pays = pays && !matmul_is_float(&r->p->part[i].weight);
    return pays;
}

/* The row times MATMUL_STREAMS groups of a part, `apart` groups from each other. */
static void run_streams(const struct run *r, int part, size_t group, size_t apart)
{
    const struct matmul_params *p = r->p;
    const struct matmul_part *a = &p->part[part];
    const int planes = r->acts.fine ? 2 : 1;
    float *out[2][MATMUL_STREAMS];
    for (int which = 0; which < (p->gated ? 2 : 1); which++) {
        const struct cpu_weight *w = &p->part[which ? 1 : part].weight;
        const uint8_t *codes[MATMUL_STREAMS];
        const void *scales[MATMUL_STREAMS];
        for (size_t i = 0; i < MATMUL_STREAMS; i++) {
            const uint8_t *data = w->data + (group + i * apart) * w->group_bytes;
            for (size_t at = 0; at < w->codes_at; at += 64) __builtin_prefetch(data + at + MATMUL_STREAM_NEAR, 0, 3);
            scales[i] = r->kernels->scales(w->format, data, cpu_weight_blocks(w), r->scales[i][which]);
            codes[i] = data + w->codes_at;
            out[which][i] = r->out[which] + i * 2 * CPU_GROUP;
        }
        r->kernels->streams(w->format, codes, scales, r->acts.ints, planes, cpu_weight_blocks(w), out[which]);
        for (size_t i = 0; i < MATMUL_STREAMS && planes == 2; i++)
            for (int c = 0; c < CPU_GROUP; c++) out[which][i][c] += out[which][i][CPU_GROUP + c];
    }
    for (size_t i = 0; i < MATMUL_STREAMS; i++) {
        size_t first = (group + i * apart) * CPU_GROUP;
        struct matmul_finish finish = finish_of(p, part, group + i * apart);
        r->kernels->finish(&finish, out[0][i], p->gated ? out[1][i] : NULL, 1, (int)ROSE_MIN((size_t)CPU_GROUP, (size_t)a->weight.n - first), a->y + first,
                           (size_t)a->y_stride);
    }
}

/* All rows of units [begin, end), one group each, in sweeps over rows whose activations stay in the cache. A
 * single tile takes one group after the other, as they lie in memory. */
static void run_units(const struct run *r, size_t begin, size_t end)
{
    size_t row = (r->acts.fine ? 2 : 1) * r->acts.int_row + r->acts.float_row;
    int32_t sweep = (int32_t)ROSE_MAX((size_t)MATMUL_TILE, SWEEP_BYTES / row / MATMUL_TILE * MATMUL_TILE);
    size_t most = r->to - r->from > matmul_acts_height(&r->acts, r->to - r->from) ? TOGETHER : 1;
    const bool streams = in_streams(r);
    for (int32_t from = r->from; from < r->to; from += sweep) {
        size_t first = 0;
        for (int i = 0; i < unit_parts(r->p); i++) {
            size_t groups = part_units(r->p, i, 1), last = ROSE_MIN(end, first + groups), u = ROSE_MAX(begin, first);
            if (streams && u < last) {
                size_t apart = (last - u) / MATMUL_STREAMS;
                for (size_t at = 0; at < apart; at++) run_streams(r, i, u - first + at, apart);
                u += apart * MATMUL_STREAMS;
            }
            for (; u < last; u += most)
                run_groups(r, i, u - first, ROSE_MIN(most, last - u), from, ROSE_MIN(r->to, from + sweep));
            first += groups;
        }
    }
}

static size_t count_units(const struct matmul_params *p)
{
    size_t units = 0;
    for (int i = 0; i < unit_parts(p); i++) units += part_units(p, i, 1);
    return units;
}

/* Groups of a piece of a share of `units` groups. */
static size_t share_grain(size_t units)
{
    size_t grain = units / SHARE_PIECES / TOGETHER * TOGETHER;
    return ROSE_MIN(ROSE_MAX(grain, (size_t)TOGETHER), (size_t)SHARE_MOST);
}

/* This worker's share, then what is left of others': shares are of weights, or (rows) of rows, which then meet all weights. More than a tile of another's
 * rows costs more to fetch than the help is worth (48 and 64 rows of two workers: 4 to 7 % slower with it, 16 and 32 rows 4 to 13 % faster). */
static void help_units(struct run *r, struct worker *w, bool rows)
{
    const size_t units = count_units(r->p);
    worker_open(w);
    for (int i = 0; i < w->count; i++) {
        struct worker of = *w;
        size_t begin = 0, end = units, from = (size_t)r->from, to = (size_t)r->to, b, e;
        of.index = (w->index + i) % w->count;
        if (rows) worker_range(&of, (size_t)r->rows, ROW_GRAIN, &from, &to);
        else worker_range(&of, units, 1, &begin, &end);
        r->from = (int32_t)from, r->to = (int32_t)to;
        while (from < to && worker_take(w, of.index, end - begin, share_grain(end - begin), &b, &e)) run_units(r, begin + b, begin + e);
    }
}

#if defined(__x86_64__)
struct amx_part {
    const struct run *r;
    int part;
    int32_t first_row;
};

static void amx_finish(void *context, size_t group, int32_t row, int rows, const float *out, const float *up)
{
    const struct amx_part *a = context;
    struct matmul_finish finish = finish_of(a->r->p, a->part, group);
    const struct matmul_part *part = &a->r->p->part[a->part];
    size_t first = group * CPU_GROUP, stride = (size_t)part->y_stride;
    int cols = (int)ROSE_MIN((size_t)CPU_GROUP, (size_t)part->weight.n - first);
    a->r->kernels->finish(&finish, out, up, rows, cols,
                          part->y + (size_t)(a->first_row + row) * stride + first, stride);
}

static size_t amx_row_bytes(const struct matmul_params *p)
{
    return (size_t)cpu_weight_blocks(&p->part[0].weight) * MATMUL_AMX_ROW_BYTES;
}

/* Units of two groups of one weight, or of one group of gate and up. */
static void run_units_amx(const struct run *r, size_t begin, size_t end)
{
    const struct matmul_params *p = r->p;
    size_t step = p->gated ? 1 : 2, first = 0;
    for (int i = 0; i < unit_parts(p); i++) {
        const struct cpu_weight *weight = &p->part[i].weight;
        size_t here = part_units(p, i, step), b = ROSE_MAX(begin, first), e = ROSE_MIN(end, first + here);
        struct amx_part context = {r, i, r->from};
        if (b < e)
            matmul_amx_run(&(struct matmul_amx_job){
                weight, p->gated ? &p->part[1].weight : NULL, (b - first) * step,
                ROSE_MIN((e - first) * step, cpu_weight_groups(weight)),
                (const uint8_t *)r->amx_acts + (size_t)r->from * amx_row_bytes(p),
                r->to - r->from, r->amx_scratch, amx_finish, &context,
                p->part[i].y + (size_t)r->from * (size_t)p->part[i].y_stride,
                (size_t)p->part[i].y_stride});
        first += here;
    }
}

/* Activations of rows [from, to), whole tiles. */
static void prepare_amx(const struct run *r, size_t from, size_t to)
{
    const struct matmul_params *p = r->p;
    size_t stride = (size_t)p->x_stride;
    for (size_t row = from; row < to; row += MATMUL_TILE)
        matmul_amx_acts(p->x + row * stride, stride, (int)ROSE_MIN((size_t)MATMUL_TILE, to - row),
                        p->part[0].weight.k, (uint8_t *)r->amx_acts + row * amx_row_bytes(p));
}

/* Many rows a worker: each keeps to its own rows, whose activations and results then stay in its cache;
 * nothing is waited for, and decoding the weights once a worker costs less than that. Fewer rows: each worker
 * has its own weights. */
static void run_amx(struct run *r, struct worker *w)
{
    const struct matmul_params *p = r->p;
    size_t step = p->gated ? 1 : 2, from, to, units = 0;
    if (w->count > 1 && (size_t)r->rows >= (size_t)AMX_OWN_ROWS * (size_t)w->count) {
        worker_range(w, (size_t)r->rows, MATMUL_AMX_ROWS, &from, &to);
        prepare_amx(r, from, to);
        r->from = (int32_t)from, r->to = (int32_t)to;
        for (int i = 0; i < unit_parts(p); i++) units += part_units(p, i, step);
        run_units_amx(r, 0, units);
        return;
    }
    worker_range(w, (size_t)r->rows, MATMUL_TILE, &from, &to);
    prepare_amx(r, from, to);
    worker_barrier(w);
    share_units(r, w, step, MATMUL_AMX_PAIRS, run_units_amx);
}
#endif

/* Do this worker's rows last as long as reading all weights takes? Then *from, *to are its share of the rows. */
static bool own_rows(const struct run *r, const struct worker *w, int32_t *from, int32_t *to)
{
    const struct cpu_format *f = r->p->part[0].weight.format;
    size_t begin, end, least = ROSE_MAX((size_t)OWN_ROWS_LEAST, (size_t)f->code_bytes / OWN_BLOCK_BYTES);
    /* Where memory is far, reading all weights in every core takes longer: steps of 8 rows on a Xeon 3 to 18 % (docs/facts.md). */
    if (matmul_reaches_far() && r->rows < MATMUL_TILE) return false;
    if (w->count <= OWN_FEW) least /= 2;
    if (w->count == 1 || (size_t)r->rows < least * (size_t)w->count) return false;
    worker_range(w, (size_t)r->rows, ROW_GRAIN, &begin, &end);
    *from = (int32_t)begin, *to = (int32_t)end;
    return true;
}

void matmul_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct matmul_params *p = params;
    struct layout l = layout_of(p);
    struct run r = {.p = p,
                    .kernels = matmul_kernels(),
                    .rows = ROSE_MIN(extents->n[p->rows_extent], p->max_rows),
                    .acts = l.acts};
    if (r.rows <= 0) return;
    r.to = r.rows;
    uint8_t *work = (uint8_t *)(((uintptr_t)p->work + MATMUL_ALIGN - 1) / MATMUL_ALIGN * MATMUL_ALIGN);
    uint8_t *own = work + l.shared + (size_t)w->index * l.own, *rest = own + l.own_acts;
#if defined(__x86_64__)
    if (p->amx && matmul_amx_pays(&p->part[0].weight, r.rows)) {
        r.amx_acts = work;
        r.amx_scratch = own;
        run_amx(&r, w);
        return;
    }
#endif
    r.acts.rough = p->rough && r.rows >= MATMUL_ROUGH_ROWS;
    r.acts.fine = matmul_fine(p->deterministic, r.rows, extents->n[EXTENT_SEQS]);
    r.acts.zero = !r.acts.fine && matmul_zero(r.rows, extents->n[EXTENT_SEQS]);
    for (int i = 0; i < p->parts; i++) r.acts.zero = r.acts.zero && (matmul_is_float(&p->part[i].weight) || p->part[i].weight.format->kernel == CPU_K8);
    if (r.rows <= OWN_ROWS)
        matmul_acts_place(&r.acts, own, OWN_ROWS);
    else
        matmul_acts_place(&r.acts, work, (size_t)p->max_rows);
    for (int i = 0; i < 2 * TOGETHER; i++)
        r.scales[i / 2][i % 2] = (float *)(void *)(rest + (size_t)i * l.scales);
    for (int i = 0; i < 2; i++)
        r.out[i] = (float *)(void *)(rest + 2 * TOGETHER * l.scales) + i * MATMUL_OUT_FLOATS;
    if (own_rows(&r, w, &r.from, &r.to)) {
        prepare(&r, w);
        if (r.rows <= MATMUL_TILE * w->count) help_units(&r, w, true);
        else if (r.from < r.to) run_units(&r, 0, count_units(p));
        return;
    }
    if (r.rows < SHARE_FROM) fetch_first(&r, w);
    prepare(&r, w);
    if (r.rows < SHARE_FROM || w->count == 1) share_units(&r, w, 1, 1, run_units);
    else help_units(&r, w, false);
}
