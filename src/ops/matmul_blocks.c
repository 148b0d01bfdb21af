#include "ops/matmul_blocks.h"

#include <stddef.h>

#include "kernels/params/matmul_blocks.h"
#include "ops/value.h"
#include "ops/weight_view.h"

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static const char *const names[BLOCKS_FORMATS] = {"Q4_0", "Q4_1", "Q8_0", "MXFP4", "Q4_K", "Q5_K", "Q6_K"};
/* Warp instructions a chunk that do not depend on the rows, and a unit for each eight rows: counted in the source, see docs/facts.md. */
static const struct {
    int fixed, per_eight;
} instructions[BLOCKS_FORMATS] = {{280, 7}, {240, 12}, {290, 7}, {350, 7}, {250, 12}, {330, 12}, {420, 11}};

static bool has_minima(int format) { return format == BLOCKS_Q4_1 || format == BLOCKS_Q4_K || format == BLOCKS_Q5_K; }

/* ---- few rows ---- */

enum { MOST_GROUP = 64, MOST_SPLITS = 64 };

struct choice {
    int64_t group;
    int warps, depth, splits, per_unit;
    double us;
};

static int eights(int64_t group) { return group <= 8 ? 1 : group <= 16 ? 2 : group <= 32 ? 4 : 8; }

/* As kernels/cuda/matmul_blocks_few.cu divides it. */
static int64_t shared_of(const struct matmul_shape *s, const struct choice *c)
{
    int format = s->blocks_format - 1, nt = eights(c->group), matrices = 1 + s->gated;
    int64_t chunks = ceil_div(ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK), c->splits), units = chunks * BLOCKS_CHUNK;
    int64_t sums = (int64_t)(nt < 4 ? 2 : 1) * c->warps * matrices * nt * 512, ring = BLOCKS_CHUNK * 128 + (int64_t)c->depth * BLOCKS_CHUNK_BYTES(format);
    return sums + 16 + c->warps * matrices * ring + units * c->group * 64 + (has_minima(format) ? units * nt * 32 : 0);
}

/* The time that this choice should take: the slowest of memory, of what the warps keep in flight, and of their instructions; sums that
 * meet between blocks cost 1.3 us a tile (H200). Nothing of this is measured on blocks. */
static double time_of(const struct matmul_shape *s, const struct device_info *d, const struct choice *c)
{
    enum { LATENCY_NS = 800, CLOCKS_A_US = 1700 };
    int format = s->blocks_format - 1, matrices = 1 + s->gated;
    int64_t tiles = matmul_plan_tiles(s, BLOCKS_TILE), chunks = ceil_div(ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK), c->splits);
    int64_t slots = (int64_t)d->units * c->per_unit / c->splits, waves = ceil_div(tiles, slots), groups = ceil_div(s->rows, c->group);
    double chunk = BLOCKS_CHUNK_BYTES(format), bandwidth = (d->bandwidth > 0 ? d->bandwidth : 1e12) * 0.95e-6; /* bytes a us */
    double warps = (double)c->warps * c->per_unit, flight = warps * (c->depth - 1) * matrices * chunk, pace = ROSE_MIN(4.0, warps * 0.5) * 0.75;
    double one = instructions[format].fixed + instructions[format].per_eight * BLOCKS_CHUNK * eights(c->group);
    double rate = ROSE_MIN(bandwidth / d->units, flight / (LATENCY_NS * 1e-3));
    rate = ROSE_MIN(rate, chunk / one * pace * CLOCKS_A_US);
    double bytes = (double)(ceil_div(chunks, c->warps) * c->warps * c->per_unit) * matrices * chunk;
    return (double)groups * (double)waves * (bytes / rate + 0.2 * c->per_unit + (c->splits > 1 ? 1.3 : 0)) + 1.5;
}

/* The best number of warps for a group and splits; what is not 0 in `fixed` is given. False: none fits. */
static bool choose_warps(const struct matmul_shape *s, const struct device_info *d, const struct choice *fixed, int64_t group, int splits, struct choice *best)
{
    static const int warps[] = {16, 12, 8, 7, 6, 5, 4, 3, 2, 1};
    int64_t chunks = ceil_div(ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK), splits), most = (matmul_plan_shared(d) + 1024) * 2 - 1024;
    int most_warps = eights(group) * (1 + s->gated) >= 8 ? 8 : 16; /* with 255 or 128 registers a thread */
    bool found = false;
    for (size_t w = 0; w < ROSE_COUNT(warps); w++) {
        struct choice t = {.group = group, .warps = warps[w], .splits = splits, .per_unit = warps[w] > 8 ? 1 : warps[w] > 4 ? 2 : 4};
        if (fixed->warps ? t.warps != fixed->warps : t.warps > chunks || t.warps > most_warps) continue;
        while (t.per_unit > 1 && t.per_unit * t.warps > most_warps) t.per_unit /= 2;
        for (t.depth = fixed->depth ? fixed->depth : 4; !fixed->depth && t.depth > 2 && shared_of(s, &t) > most;) t.depth--;
        int64_t shared = shared_of(s, &t);
        if (shared > most) continue;
        while (t.per_unit > 1 && (shared + 1024) * t.per_unit > most) t.per_unit /= 2;
        t.us = time_of(s, d, &t);
        if (!found || t.us < best->us) *best = t;
        found = true;
    }
    return found;
}

/* Fewer splits and larger groups first: whatever follows a worse one is worse. False: none fits. */
static bool choose(const struct matmul_shape *s, const struct device_info *d, struct choice *c)
{
    static const int groups[] = {0, 32, 16, 8, 4, 2, 1}, splits[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
    const struct choice fixed = *c;
    int64_t all = ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK), rows = ROSE_MIN(ROSE_MAX(s->rows, 1), MOST_GROUP);
    bool found = false;
    for (size_t g = 0; g < ROSE_COUNT(groups); g++) {
        double last = 1e30;
        bool better = false;
        if (groups[g] >= rows) continue;
        for (size_t i = 0; i < ROSE_COUNT(splits); i++) {
            struct choice t;
            int n = fixed.splits ? fixed.splits : splits[i];
            if (n > all || n > d->units || !choose_warps(s, d, &fixed, groups[g] ? groups[g] : rows, n, &t)) continue;
            if (!found || t.us < c->us) *c = t, better = true;
            found = true;
            if (t.us > last || fixed.splits) break;
            last = t.us;
        }
        if (found && !better) break;
    }
    return found;
}

/* ---- few rows through a ring ---- */

enum { RING_ROWS = 64, TILE_RING = 41, RING_BARRIERS = 24, FEW_ROWS = 16 };

/* Codes and x are read once; from there kernels differ. */
void matmul_blocks_cost(const struct matmul_shape *s, const struct device_info *d, struct plan *out)
{
    int format = s->blocks_format - 1;
    double weights = 0, results = 0;
    for (int i = 0; i < s->parts; i++) weights += (double)s->n[i] * s->k, results += s->gated && i ? 0 : s->n[i];
    out->ops = 2 * weights * (double)s->rows;
    out->bytes = weights * BLOCKS_UNIT_BYTES(format) / (BLOCKS_TILE * BLOCKS_UNIT) + (double)s->rows * (2.0 * s->k + results * (s->out_f32 ? 4 : 2) * (1 + s->accumulate));
    plan_stream(out, d, 0.5);
}

/* As kernels/cuda/matmul_blocks_ring.cu divides it: beside a block of the next launch where three stages fit, else as much as there is. */
static int ring_stages(const struct device_info *d, int warps, int64_t stage)
{
    int64_t most = d->shared_per_block ? (int64_t)d->shared_per_block : 227 << 10, fixed = warps * 1024 + 16;
    int beside = (int)((matmul_plan_shared(d) - fixed) / (stage + RING_BARRIERS));
    return beside >= 3 ? beside : (int)ROSE_MIN((most - fixed) / (stage + RING_BARRIERS), 4);
}

/* Fitted to an H200: ns an SM takes for a chunk of 16 rows, with 8 and with 64 columns of x; between them by columns. */
static double ring_us(const struct matmul_shape *s, const struct device_info *d, int n)
{
    static const int few[BLOCKS_FORMATS] = {135, 150, 155, 135, 145, 185, 170}, many[BLOCKS_FORMATS] = {370, 500, 355, 350, 505, 590, 430};
    int format = s->blocks_format - 1;
    double chunks = (double)matmul_plan_tiles(s, BLOCKS_TILE) * (1 + s->gated) * (double)ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK);
    double one = few[format] + (many[format] - few[format]) * (n - 8) / 56.0, bytes = BLOCKS_CHUNK_BYTES(format) / ((d->bandwidth > 0 ? d->bandwidth : 1e12) * 0.9e-9) * d->units;
    return 4.5 + ROSE_MAX(one, bytes) * 1e-3 * chunks / d->units * (double)ceil_div(s->rows, n);
}

static bool by_ring(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *m)
{
    int format = s->blocks_format - 1, n = 8;
    struct plan *out = &m->plan;
    while (n < s->rows && n < RING_ROWS) n *= 2;
    int warps = n > 32 ? 8 : 12; /* with the producer 168 and 128 registers a thread */
    if (s->tile == TILE_RING || s->tile == TILE_RING + 1) warps = s->tile == TILE_RING ? 8 : 12;
    const bool minima = has_minima(format), another = minima && n <= 16 && format != BLOCKS_Q5_K, sums = another || (minima && n > 16); /* a warp more, and sums of x */
    int64_t stage = ceil_div(n * 512 + warps * BLOCKS_CHUNK_BYTES(format) + (sums ? n * 32 : 0), 1024) * 1024, chunks = ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK);
    int stages = ring_stages(d, warps, stage);
    if (stages < 2) return false;
    m->columns = 16 * warps / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    m->group = n;
    m->box = 64, m->box_x = n, m->x_alone = true;
    int64_t blocks = ROSE_MIN(d->units, m->tiles * chunks);
    *out = (struct plan){.kernel = "matmul_blocks_ring", .rows = s->rows, .tiles = true, .per = n, .times = (int32_t)blocks};
    plan_int(out, "FORMAT", format);
    plan_int(out, "N", n);
    plan_int(out, "WARPS", warps);
    plan_int(out, "STAGES", stages);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    plan_int(out, "K_TAIL", s->k % (BLOCKS_UNIT * BLOCKS_CHUNK) != 0);
    matmul_plan_epilogue(s, out);
    out->block = (uint32_t)(32 * warps + 32 + 32 * another);
    out->shared_bytes = matmul_plan_alone(d, (uint32_t)(stages * (stage + RING_BARRIERS) + warps * 1024 + 16));
    m->work_bytes = (size_t)blocks * 2 * (size_t)(n / 2) * (size_t)(32 * warps) * 4;
    m->counter_bytes = (size_t)m->tiles * 4;
    matmul_blocks_cost(s, d, out);
    out->predicted_us = ring_us(s, d, n);
    return true;
}

enum rose_status matmul_blocks_plan(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *m, struct rose_error *err)
{
    int format = s->blocks_format - 1;
    struct choice c = {.warps = s->warps, .depth = s->depth, .splits = s->splits};
    if (format < 0 || format >= BLOCKS_FORMATS) return status_set(err, ROSE_INTERNAL, "a product with weights in an unknown block format");
    if (s->k % (BLOCKS_SUPER(format) ? 256 : BLOCKS_UNIT))
        return status_set(err, ROSE_INVALID, "a product over %d elements of %s; its blocks have %d", s->k, names[format], BLOCKS_SUPER(format) ? 256 : BLOCKS_UNIT);
    bool free = !s->warps && !s->depth && !s->splits && s->tile != TILE_RING + 2;
    if (s->tile >= MATMUL_TILE_BLOCKS_WGMMA)
        return matmul_blocks_wgmma_plan(s, d, m) ? ROSE_OK : status_set(err, ROSE_UNSUPPORTED, "products of weights in blocks by wgmma need Hopper, x for TMA and a tile that there is");
    if (s->tile && s->tile < TILE_RING) return matmul_blocks_gemm_plan(s, d, m), ROSE_OK;
    /* One row of a long k of the smallest blocks is faster without (4096x14336, Q4_0: 16.8 and 18.4 us; MXFP4: 15.6). */
    bool other = !s->tile && s->rows <= 4 && s->k >= 8192 && (format == BLOCKS_Q4_0 || format == BLOCKS_MXFP4);
    if (plan_arch(d) == 900 && s->tma && !s->deterministic && free && !other && by_ring(s, d, m)) {
        struct matmul_plan many = {0};
        if (!s->tile && s->rows > FEW_ROWS && matmul_blocks_wgmma_plan(s, d, &many) && many.plan.predicted_us < m->plan.predicted_us) *m = many;
        return ROSE_OK;
    }
    if (s->deterministic) { /* sums in the order that one row has */
        struct matmul_shape one = *s;
        struct choice first = c;
        one.rows = 1;
        if (choose(&one, d, &first)) c.warps = first.warps, c.splits = first.splits;
    }
    if (!choose(s, d, &c)) return status_set(err, ROSE_UNSUPPORTED, "a product over %d elements does not fit the GPU's shared memory", s->k);
    int nt = eights(c.group);
    int64_t all = ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK);
    m->columns = BLOCKS_TILE;
    m->tiles = matmul_plan_tiles(s, BLOCKS_TILE);
    m->chunks = (int32_t)ceil_div(all, c.splits);
    m->splits = (int32_t)ceil_div(all, m->chunks);
    m->group = (int32_t)c.group;
    int64_t slots = ROSE_MIN((int64_t)d->units * c.per_unit / m->splits, m->tiles);
    struct plan *out = &m->plan;
    *out = (struct plan){.kernel = "matmul_blocks_few", .rows = s->rows, .tiles = true, .per = m->group, .times = (int32_t)slots * m->splits};
    plan_int(out, "FORMAT", format);
    plan_int(out, "NT", nt);
    plan_int(out, "WARPS", c.warps);
    plan_int(out, "DEPTH", c.depth);
    plan_int(out, "OCCUPANCY", c.per_unit);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    plan_int(out, "SPLIT", m->splits > 1);
    plan_int(out, "K_TAIL", s->k % (BLOCKS_UNIT * BLOCKS_CHUNK) != 0);
    matmul_plan_epilogue(s, out);
    out->block = (uint32_t)(32 * c.warps);
    uint32_t shared = (uint32_t)shared_of(s, &c);
    out->shared_bytes = c.per_unit == 1 ? matmul_plan_alone(d, shared) : shared;
    if (m->splits > 1) {
        m->work_bytes = (size_t)m->tiles * (size_t)m->splits * (size_t)nt * 512 * (size_t)(1 + s->gated);
        m->counter_bytes = (size_t)m->tiles * 4;
    }
    matmul_blocks_cost(s, d, out);
    out->predicted_us = 2 * c.us; /* an H200 takes twice what the slowest resource alone would */
    struct matmul_plan many = {0};
    if (!free || s->tile || s->deterministic || s->rows <= FEW_ROWS || plan_arch(d) == 900) return ROSE_OK;
    matmul_blocks_gemm_plan(s, d, &many);
    if (many.plan.predicted_us < out->predicted_us) *m = many;
    return ROSE_OK;
}

/* ---- rows as 16-bit elements ---- */

enum rose_status matmul_blocks_rows_plan(const struct matmul_blocks_rows_shape *s, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    enum { THREADS = 256 };
    int64_t units = s->k / BLOCKS_UNIT, per = s->gather ? 4 : 32; /* threads a unit */
    if (s->format < 0 || s->format >= BLOCKS_FORMATS || s->k <= 0 || s->k % (BLOCKS_SUPER(s->format) ? 256 : BLOCKS_UNIT))
        return status_set(err, ROSE_INVALID, "rows of %d elements are not whole blocks", s->k);
    int64_t times = per * units, rows = s->gather ? THREADS : BLOCKS_TILE; /* blocks of so many rows, in lowest terms */
    if (!s->gather) times = ceil_div(times, THREADS);
    while (s->gather && times % 2 == 0 && rows % 2 == 0) times /= 2, rows /= 2;
    *out = (struct plan){.kernel = "matmul_blocks_rows", .rows = s->rows, .block = THREADS, .tiles = !s->gather, .times = (int32_t)times, .per = (int32_t)rows};
    plan_int(out, "FORMAT", s->format);
    plan_int(out, "K", s->k);
    plan_int(out, "THREADS", THREADS);
    plan_int(out, "GATHER", s->gather);
    plan_int(out, "ACC", s->accumulate);
    plan_element(out, s->f16);
    out->bytes = (double)s->rows * s->k * (BLOCKS_UNIT_BYTES(s->format) / (double)(BLOCKS_TILE * BLOCKS_UNIT) * (s->gather ? 2 : 1) + 2 * (1 + s->accumulate));
    out->ops = (double)s->rows * s->k * 4;
    plan_stream(out, d, s->gather ? 0.4 : 0.1);
    return ROSE_OK;
}

enum rose_status matmul_blocks_embed(struct program *program, const struct op_embed *op, struct rose_error *err)
{
    const struct op_weight *t = op->table;
    if (!op->index) return status_set(err, ROSE_INTERNAL, "embed: no index buffer");
    ROSE_TRY(value_check(program, "embed", "y", &op->y, t->k, op->y.rows, err));
    if (op->y.stride % 4 || op->y.offset % 4)
        return status_set(err, ROSE_UNSUPPORTED, "embed: rows of stride %d at %d; the CUDA kernel takes multiples of 4", op->y.stride, op->y.offset);
    struct matmul_blocks_rows_shape s = {.rows = plan_rows(program, op->y.rows), .k = t->k, .format = matmul_blocks_format(t->dtype), .gather = true, .accumulate = op->accumulate, .f16 = value_f16(&op->y)};
    struct matmul_blocks_rows_params p = {
        .w = t->data, .y_stride = op->y.stride, .w_rows = (uint32_t)t->n, .index_offset = op->index_offset, .scale = op->scale != 0 ? op->scale : 1.0f};
    struct program_launch l = {.name = "embed", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(matmul_blocks_rows_plan(&s, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, op->y.rows, offsetof(struct matmul_blocks_rows_params, rows), &l, err));
    program_use(&l, op->index, PROGRAM_READ, offsetof(struct matmul_blocks_rows_params, index));
    value_use(&l, &op->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct matmul_blocks_rows_params, y));
    program_add(program, &l);
    return ROSE_OK;
}
