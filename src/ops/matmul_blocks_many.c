/* Products of many rows with weights in a block format: tiles decoded on their way into the matrix instructions. */
#include <math.h>

#include "kernels/params/matmul_blocks.h"
#include "ops/matmul_blocks.h"

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static const struct form { int n, warps; } forms[MATMUL_BLOCKS_FORMS] = {{32, 8}, {64, 8}, {128, 8}, {192, 8}, {256, 8}, {32, 12}, {64, 12}}; /* of matmul_blocks_wgmma */

/* Warp instructions of matmul_blocks_wgmma for a unit of 16 x 32 weights, its share of scales and of a step's barriers among them: SASS. */
static const int instructions[BLOCKS_FORMATS] = {80, 80, 88, 85, 88, 105, 105};

/* Time by matmul_blocks_wgmma, fitted to an H200 (102 times of 7 formats, 17 to 2,048 rows, three shapes; within 11 %: docs/facts.md). A step is 16 weight rows a warp
 * by 64 of k. Its products and decoding, of 8 warps and 256 rows of x PRODUCT_US and decode_us, hide 45 % of the shorter one; 12 warps issue more. Sums that blocks
 * share go through L2 at SUMS_A_US bytes an SM; the blocks of all groups of rows run at once. */
static double wgmma_us(const struct matmul_shape *s, const struct device_info *d, const struct form *f, bool runs)
{
    static const double decode_us[BLOCKS_FORMATS] = {0.411, 0.436, 0.448, 0.359, 0.428, 0.529, 0.551};
    const double PRODUCT_US = 0.6, BESIDE = 0.55, PACE_OF_12 = 1.2, END_US = 0.5, LAUNCH_US = 3, SUMS_A_US = 48e3;
    const double share = f->warps / 8.0, product = share * PRODUCT_US * f->n / 256, decode = share * decode_us[s->blocks_format - 1] / (f->warps == 12 ? PACE_OF_12 : 1);
    const double step = ROSE_MAX(product, decode) + BESIDE * ROSE_MIN(product, decode), sums = f->n * f->warps * 64 / SUMS_A_US;
    const double tiles = matmul_plan_tiles(s, 16 * f->warps / (1 + s->gated)), chunks = (double)ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK), groups = (double)ceil_div(s->rows, f->n);
    const double blocks = floor(d->units / groups); /* of a group, by runs */
    double us = runs ? ceil(tiles * chunks / blocks) * 4 * step + END_US + sums * (2 + ROSE_MIN(blocks / tiles, chunks)) : ceil(tiles * groups / d->units) * (chunks * 4 * step + END_US);
    double bytes = tiles * chunks * f->warps * (double)BLOCKS_CHUNK_BYTES(s->blocks_format - 1), memory = bytes / ((d->bandwidth > 0 ? d->bandwidth : 1e12) * 0.85e-6);
    return LAUNCH_US + ROSE_MAX(us, memory);
}

/* The form that should take the least time, and whether by runs; false: none. */
static bool choose_form(const struct matmul_shape *s, const struct device_info *d, struct form *out, bool *runs, double *us)
{
    enum { MOST_RUN_GROUPS = 8 };
    const int forced = s->tile >= MATMUL_TILE_BLOCKS_FORMS ? s->tile - MATMUL_TILE_BLOCKS_FORMS : -1;
    bool found = false;
    for (int i = 0; i < 2 * MATMUL_BLOCKS_FORMS; i++) {
        const struct form *f = &forms[i / 2];
        if (forced >= 0 ? i != forced : i % 2 && ceil_div(s->rows, f->n) > ROSE_MIN(MOST_RUN_GROUPS, d->units)) continue;
        const double t = wgmma_us(s, d, f, i % 2);
        if (!found || t < *us) *us = t, *out = *f, *runs = i % 2, found = true;
    }
    return found;
}

bool matmul_blocks_wgmma_plan(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *m)
{
    enum { BARRIER = 16, MOST_STAGES = 8, MOST_SLOTS = 4 };
    const int format = s->blocks_format - 1;
    struct form f;
    bool runs;
    double us = 0;
    if (plan_arch(d) != 900 || !s->tma || s->deterministic || !choose_form(s, d, &f, &runs, &us)) return false;
    /* Shared memory: four steps of x at least, two chunks at least, then as evenly as there is room for. */
    const int most = (int)ROSE_MIN(d->shared_per_block ? d->shared_per_block : 227 << 10, (size_t)1 << 20), chunk = f.warps * BLOCKS_CHUNK_BYTES(format), step = f.n * 128;
    const int rest = f.warps * (2048 + 512) + 16, room = most - rest - 4 * (step + BARRIER) - 2 * (chunk + BARRIER);
    if (room < 0) return false;
    const int slots = 2 + (int)ROSE_MIN(room / 2 / (chunk + BARRIER), MOST_SLOTS - 2), stages = 4 + (int)ROSE_MIN((room - (slots - 2) * (chunk + BARRIER)) / (step + BARRIER), MOST_STAGES - 4);
    const int64_t chunks = ceil_div(s->k, BLOCKS_UNIT * BLOCKS_CHUNK);
    struct plan *out = &m->plan;
    m->columns = 16 * f.warps / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1, m->group = f.n;
    m->box = 64, m->box_x = f.n, m->x_alone = true;
    bool staged = s->rows16 && !s->out_f32;
    for (int i = 0; i < s->parts; i++) staged &= s->n[i] % 8 == 0;
    const int64_t groups = ceil_div(s->rows, f.n), blocks = runs ? ROSE_MIN(ROSE_MAX(d->units / groups, 1), m->tiles * chunks) : ROSE_MIN(d->units, m->tiles * groups);
    *out = (struct plan){.kernel = "matmul_blocks_wgmma", .rows = s->rows, .tiles = true, .per = runs ? f.n : INT32_MAX, .times = (int32_t)blocks};
    plan_int(out, "FORMAT", format);
    plan_int(out, "N", f.n);
    plan_int(out, "WARPS", f.warps);
    plan_int(out, "STAGES", stages);
    plan_int(out, "W_STAGES", slots);
    plan_int(out, "CLUSTER", !runs);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    plan_int(out, "K_TAIL", s->k % (BLOCKS_UNIT * BLOCKS_CHUNK) != 0);
    plan_int(out, "STAGED", staged);
    matmul_plan_epilogue(s, out);
    out->block = (uint32_t)(32 * f.warps + 128);
    out->shared_bytes = matmul_plan_alone(d, (uint32_t)(stages * (step + BARRIER) + slots * (chunk + BARRIER) + rest));
    if (runs) {
        m->work_bytes = (size_t)blocks * 2 * (size_t)(f.n / 2) * (size_t)(32 * f.warps) * 4;
        m->counter_bytes = (size_t)m->tiles * 4;
    }
    matmul_blocks_cost(s, d, out);
    out->predicted_us = us;
    return true;
}

/* Products at the rate of mma.sync and, one behind the other, decoding, which each tile of rows does anew. Nothing of it is measured. */
void matmul_blocks_gemm_plan(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *m)
{
    const double PRODUCTS = 2.5e6, CLOCKS_A_US = 1700, SCHEDULERS = 4, LAUNCH_US = 4.5, STORES = 20; /* of an SM: operations a us; instructions at one in two clocks */
    matmul_plan_gemm(s, d, m);
    matmul_blocks_cost(s, d, &m->plan);
    const double tile = (double)plan_get(&m->plan, "BM"), tiles = (double)ceil_div(s->rows, (int64_t)tile), blocks = tiles * m->tiles;
    const double units = ceil(blocks / d->units) / blocks * d->units * tiles * matmul_plan_tiles(s, BLOCKS_TILE) * (1 + s->gated) * s->k / BLOCKS_UNIT; /* with idle SMs */
    const double us = units * ((instructions[s->blocks_format - 1] + STORES) / (SCHEDULERS / 2 * CLOCKS_A_US) + 2.0 * BLOCKS_TILE * BLOCKS_UNIT * tile / PRODUCTS) / d->units;
    m->plan.predicted_us = LAUNCH_US + ROSE_MAX(us, m->plan.limit_us);
}
