#include "ops/matmul_plan.h"

#include "kernels/params/act_rows.h"
#include "ops/matmul_blocks.h"

_Static_assert((int)GEMM_PARTS == (int)OP_MATMUL_PARTS, "as many parts");
_Static_assert((int)OP_ACT_SILU == ACT_SILU && (int)OP_ACT_RELU2 == ACT_RELU2, "one numbering");

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static enum rose_status check(const struct matmul_shape *s, struct rose_error *err)
{
    if (s->parts < 1 || s->parts > GEMM_PARTS || (s->gated && (s->parts != 2 || s->n[0] != s->n[1])))
        return status_set(err, ROSE_INVALID, "a product of %d weights; 1 to %d are possible, a gate has 2 alike", s->parts,
                          GEMM_PARTS);
    for (int i = 0; i < s->parts; i++)
        if (s->n[i] <= 0) return status_set(err, ROSE_INVALID, "a product with a weight of %d rows", s->n[i]);
    if (s->k <= 0 || s->k % 8)
        return status_set(err, ROSE_UNSUPPORTED, "a product over %d elements; CUDA kernels take multiples of 8", s->k);
    if ((unsigned)s->act > OP_ACT_RELU2)
        return status_set(err, ROSE_INVALID, "a product with unknown activation %d", (int)s->act);
    return ROSE_OK;
}

void matmul_plan_epilogue(const struct matmul_shape *s, struct plan *out)
{
    plan_int(out, "ACT", (int64_t)s->act);
    plan_int(out, "GATED", s->gated);
    plan_int(out, "BIAS", s->bias);
    plan_int(out, "ACCUMULATE", s->accumulate);
    plan_int(out, "OUT_F32", s->out_f32);
    plan_int(out, "PAIRS", s->pairs);
    plan_element(out, s->f16);
}

/* Tiles of `columns` of all parts. */
int32_t matmul_plan_tiles(const struct matmul_shape *s, int columns)
{
    int64_t n = 0;
    for (int i = 0; i < (s->gated ? 1 : s->parts); i++) n += ceil_div(s->n[i], columns);
    return (int32_t)n;
}

static double weight_bytes(const struct matmul_shape *s)
{
    double n = 0;
    for (int i = 0; i < s->parts; i++) n += s->n[i];
    return n * s->k * 2;
}

static void cost(const struct matmul_shape *s, struct plan *out)
{
    double results = 0;
    for (int i = 0; i < s->parts; i++) results += s->gated && i ? 0 : s->n[i];
    out->ops = weight_bytes(s) * (double)s->rows;
    out->bytes = weight_bytes(s) + (double)s->rows * (2.0 * s->k + results * (s->out_f32 ? 4 : 2) * (1 + s->accumulate));
}

/* Shared memory that leaves room for a block of the next launch beside this one. */
int64_t matmul_plan_shared(const struct device_info *d)
{
    int arch = plan_arch(d);
    size_t unit = d->shared_per_unit ? d->shared_per_unit : arch == 800 ? 164 << 10 : arch >= 900 && arch < 1200 ? 228 << 10 : 100 << 10;
    return (int64_t)unit / 2 - 1024;
}

/* More than half of an SM's, so that no SM gets two blocks of a launch and another none: with dependent launches blocks are placed
 * while predecessors still hold some SMs, and what then runs twice on one SM takes twice as long. */
uint32_t matmul_plan_alone(const struct device_info *d, uint32_t bytes)
{
    return plan_arch(d) >= 900 ? (uint32_t)ROSE_MAX((int64_t)bytes, matmul_plan_shared(d) + 1024) : bytes;
}

/* ---- gemm_rows ---- */

/* Rows x weight rows, warps along each, steps in flight. */
static const struct tile {
    int bm, bn, wm, wn, stages;
} tiles[] = {{16, 64, 1, 4, 6}, {64, 64, 2, 2, 5}, {64, 128, 2, 4, 4}, {128, 128, 2, 4, 3}};
enum { TILES = sizeof tiles / sizeof *tiles };

int matmul_plan_tile(const struct matmul_shape *s, const struct device_info *d)
{
    if (s->rows <= 16) return 0;
    for (int t = TILES - 1; t > 1; t--) {
        int64_t blocks = ceil_div(s->rows, tiles[t].bm) * matmul_plan_tiles(s, tiles[t].bn / (1 + s->gated));
        if (tiles[t].bm / 2 < s->rows && blocks * 4 >= (int64_t)d->units * 3) return t;
    }
    return 1;
}

void matmul_plan_in_tiles(const struct matmul_shape *s, const char *kernel, int bm, int bn, int wm, int wn, int stages, struct matmul_plan *m)
{
    enum { RASTER = 8 };
    struct plan *out = &m->plan;
    m->columns = bn / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    *out = (struct plan){.kernel = kernel, .rows = s->rows, .tiles = true, .per = bm, .times = m->tiles, .block = (uint32_t)(32 * wm * wn)};
    plan_int(out, "BM", bm);
    plan_int(out, "BN", bn);
    plan_int(out, "WM", wm);
    plan_int(out, "WN", wn);
    plan_int(out, "STAGES", stages);
    plan_int(out, "RASTER", RASTER);
}

void matmul_plan_gemm(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *m)
{
    enum { BK_BYTES = 128 };
    struct plan *out = &m->plan;
    const struct tile *t = &tiles[s->tile > 0 && s->tile <= TILES ? s->tile - 1 : matmul_plan_tile(s, d)];
    matmul_plan_in_tiles(s, "gemm_rows", t->bm, t->bn, t->wm, t->wn, t->stages, m);
    if (s->blocks_format) plan_int(out, "FORMAT", s->blocks_format - 1);
    matmul_plan_epilogue(s, out);
    out->shared_bytes = (uint32_t)((t->bm + t->bn) * BK_BYTES * t->stages);
    cost(s, out);
    plan_stream(out, d, 1.0);
    double peak = d->units * 3.0e12; /* what mma.sync reaches an SM */
    if (out->ops / peak * 1e6 > out->predicted_us) out->predicted_us = out->ops / peak * 1e6;
}

/* ---- gemm_wgmma ---- */

/* Weight rows a tile, blocks a cluster, stages of (128 + bn) * 128 bytes. */
static const struct wgmma_tile {
    int bn, cluster, stages;
} wgmma_tiles[] = {{256, 2, 4}, {256, 1, 4}, {128, 2, 6}, {128, 1, 6}, {64, 1, 8}, {224, 2, 4}, {224, 1, 4}};
enum { WGMMA_TILES = sizeof wgmma_tiles / sizeof *wgmma_tiles, WGMMA_FIRST = 11, WGMMA_ROWS = 65 };

static bool wgmma_fits(const struct matmul_shape *s, const struct device_info *d)
{
    if (plan_arch(d) != 900 || !s->rows16 || !s->tma || s->deterministic) return false;
    for (int i = 0; i < s->parts; i++)
        if (s->n[i] % 8) return false;
    return true;
}

/* Time in steps of 64 of k of one tile of 256, over all waves. Two blocks that share weights relieve L2, which gives an SM about 62 bytes a ns: 2x14336x4096,
 * 4096 rows, on an H200 that has its clock 1221 us against 1390; at its power limit, where all kernels do 690 to 720 TFLOP/s, 512 / 1024 / 2048 / 8192 rows
 * 170 / 337 / 671 / 2766 us against 171 / 327 / 676 / 2825. Tiles of 224 fill whole waves where 256 do not (2x14336: 128 a row of tiles instead of
 * 112 on 132 SMs); their results leave without a turn through shared memory, so an old y is not for them. */
static int choose_wgmma(const struct matmul_shape *s, const struct device_info *d)
{
    const double step[WGMMA_TILES] = {s->rows < 2048 ? 1.02 : 0.97, 1, 0.53, 0.56, 0.45, s->rows < 2048 ? 0.9 : 0.87, 0.89};
    double best = 1e30;
    int choice = 0;
    for (int t = 0; t < WGMMA_TILES; t++) {
        if (wgmma_tiles[t].bn == 224 && s->accumulate) continue;
        int64_t cluster = wgmma_tiles[t].cluster, count = ceil_div(s->rows, 128 * cluster) * matmul_plan_tiles(s, wgmma_tiles[t].bn / (1 + s->gated));
        double time = (double)ceil_div(count, d->units / cluster) * step[t] * ((double)s->k / 64 + 4);
        if (time < best) best = time, choice = t;
    }
    return choice;
}

static void wgmma(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *m)
{
    enum { RASTER = 8 };
    struct plan *out = &m->plan;
    int i = s->tile >= WGMMA_FIRST && s->tile < WGMMA_FIRST + WGMMA_TILES ? s->tile - WGMMA_FIRST : choose_wgmma(s, d);
    const struct wgmma_tile *t = &wgmma_tiles[i];
    m->columns = t->bn / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    m->box = t->bn / 2, m->box_x = 128;
    int64_t clusters = ROSE_MIN(ceil_div(s->rows, 128 * t->cluster) * m->tiles, d->units / t->cluster);
    /* A persistent grid, however many rows there are. */
    *out = (struct plan){.kernel = "gemm_wgmma", .rows = s->rows, .tiles = true, .per = INT32_MAX, .times = (int32_t)clusters * t->cluster};
    plan_int(out, "BN", t->bn);
    plan_int(out, "STAGES", t->stages);
    plan_int(out, "CLUSTER", t->cluster);
    plan_int(out, "RASTER", RASTER / t->cluster * 2);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    matmul_plan_epilogue(s, out);
    out->block = 384;
    out->cluster = (uint32_t)t->cluster;
    int staged = s->out_f32 || m->columns % 64 ? 0 : 128 * ROSE_MIN(m->columns, 128) * 2; /* results of bf16 on their way out */
    out->shared_bytes = (uint32_t)((128 + t->bn) * 128 * t->stages + staged + 16 * t->stages);
    cost(s, out);
    plan_stream(out, d, 2.0);
    double us = out->ops / (d->units * 5.5e12) * 1e6;
    if (us > out->predicted_us) out->predicted_us = us;
}

/* ---- gemv_wgmma ---- */

/* Warpgroups (64 weight rows each), boxes of 64 of k a stage, KB of shared memory that the ring fills, blocks a cluster (0: runs
 * of units). */
static const struct stream {
    int mg, kb, budget, cluster;
} streams[] = {{1, 2, 112, 0}, {1, 2, 112, 1}, {1, 2, 112, 2}, {1, 2, 112, 4}, {1, 2, 112, 8},
               {2, 1, 112, 0}, {2, 1, 112, 1}, {2, 1, 112, 2}, {1, 2, 208, 0}, {1, 2, 208, 2}};
_Static_assert(sizeof streams / sizeof *streams == MATMUL_PLAN_STREAMS, "as the header says");
enum { STREAMS = MATMUL_PLAN_STREAMS, STREAM_FIRST = 21, STREAM_MOST = 128, STREAM_ROWS = 64 };

/* Clusters of so many blocks that are resident at once: GPCs of 16 or 18 SMs leave some over. */
static int64_t clusters_of(const struct device_info *d, int cluster)
{
    return cluster <= 2 ? d->units / cluster : d->units / 16 * (16 / cluster);
}

static bool stream_fits(const struct matmul_shape *s, const struct device_info *d)
{
    if (plan_arch(d) != 900 || !s->tma || s->deterministic) return false;
    return !s->gated || s->n[0] % 8 == 0;
}

/* Blocks of variant t for a number of tiles. */
static int64_t stream_blocks(const struct device_info *d, const struct stream *t, int64_t tiles_count, int64_t chunks)
{
    if (t->cluster) return ROSE_MIN(clusters_of(d, t->cluster), tiles_count) * t->cluster;
    return ROSE_MIN(d->units, ceil_div(tiles_count * chunks, 2));
}

/* Columns of the accumulators: few kernels serve all numbers of rows. */
static int stream_columns(int64_t rows)
{
    int n = 8;
    while (n < rows && n < STREAM_MOST) n *= 2;
    return n;
}

enum { RUNS, WHOLE, PAIRS, FOURS, RUNS_OF_2 = 5, WIDE_RUNS = 8, WIDE_PAIRS = 9 }; /* streams[] */
enum { WIDE_K = 8192, LARGE_WEIGHTS = 150000000, SMALL_K = 1024 };

/* 16 columns and fewer, the variant that should take the least time in a model of an H200: memory gives 0.91 of its rate, one SM takes 63 bytes a ns, sums that meet in
 * memory cost 0.9 us. Two warpgroups read x half as often; with few columns it pays where the weights are many (58.8 to 55.8 us at 28672x4096). */
static int choose_few(const struct matmul_shape *s, const struct device_info *d)
{
    double best = 1e30, rate = (d->bandwidth > 0 ? d->bandwidth : 1e12) * 0.91e-6; /* bytes a us */
    int choice = RUNS, mg = s->rows <= 8 && weight_bytes(s) > LARGE_WEIGHTS ? 2 : 1;
    double one = 1e3 / (0.0133 + 0.0003 * stream_columns(s->rows));
    for (int i = 0; i < STREAMS; i++) {
        const struct stream *t = &streams[i];
        if (t->mg != mg || t->budget != 112 || t->cluster > 1) continue;
        int64_t count = matmul_plan_tiles(s, 64 * t->mg / (1 + s->gated)), chunks = ceil_div(s->k, 64 * t->kb), blocks = stream_blocks(d, t, count, chunks);
        /* Whole tiles lose in the last of few rounds, and where an SM alone takes too long. */
        if (t->cluster && (count > blocks ? count / blocks < 16 : weight_bytes(s) > 40e6)) continue;
        double tile = 128.0 * t->mg * s->k, whole = (double)(count / blocks * blocks) * tile, rest = (double)count * tile - whole;
        double us = t->cluster ? whole / ROSE_MIN(rate, (double)blocks * one) + rest / ROSE_MIN(rate, (double)(count % blocks + 1) * one)
                               : 0.9 + (double)count * tile / ROSE_MIN(rate, (double)blocks * one);
        if (us < best) best = us, choice = i;
    }
    return choice;
}

/* 32 columns and more: sums that meet in memory cost 2.5 us with 32 and twice that with 64, in a cluster less, and a ring of 112 KB has too few stages. What an H200
 * took, us, runs / as chosen, 24 to 32 rows: 4096x4096 13.6 / 12.3 in pairs; 4096x14336 33.2 / 31.2 in wide pairs; 28672x4096 61.8 / 58.2 by the wide ring; 1024x2048
 * 6.8 / 5.2 to 5.8, 1024x3072 9.3 / 6.4 to 6.9 in fours; 2048x4096 10.7 / 10.2 in pairs; 4096x1024 6.1 / 4.6, 5120x2048 9.3 / 8.2 in whole tiles. 48 to 64 rows, one ring of
 * two warpgroups / as chosen: 4096x4096 18.7 / 15.0, 1024x3072 17.5 / 11.5, 2048x4096 16.6 / 13.9 in wide pairs; 4096x1024 10.2 / 6.5, 2x3072x1024 10.0 / 6.5 in whole tiles;
 * 5120x2048 12.6 / 10.6 by the wide ring. */
static int choose_wide(const struct matmul_shape *s, const struct device_info *d)
{
    const int64_t tiles = matmul_plan_tiles(s, 64 / (1 + s->gated)), units = d->units;
    const bool more = s->rows > 32;
    if (tiles <= units && (s->k <= SMALL_K || (!more && tiles * 2 > units && weight_bytes(s) <= 40e6))) return WHOLE;
    if (!more && tiles * 8 <= units) return FOURS;
    if (tiles * 2 <= units) return more || s->k > WIDE_K ? WIDE_PAIRS : PAIRS;
    return more && weight_bytes(s) > LARGE_WEIGHTS ? RUNS_OF_2 : WIDE_RUNS;
}

static int choose_stream(const struct matmul_shape *s, const struct device_info *d)
{
    return stream_columns(s->rows) < 32 ? choose_few(s, d) : choose_wide(s, d);
}

static int64_t block_shared(const struct device_info *d) { return d->shared_per_block ? (int64_t)d->shared_per_block : 227 << 10; }

static void stream(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *m)
{
    struct plan *out = &m->plan;
    int i = s->tile >= STREAM_FIRST && s->tile < STREAM_FIRST + STREAMS ? s->tile - STREAM_FIRST : choose_stream(s, d);
    const struct stream *t = &streams[i];
    int n = 2 * stream_columns(s->rows), rows = 64 * t->mg, got, stage, stages;
    do { /* a large cluster's sums leave room for fewer columns */
        n /= 2;
        got = t->cluster > 1 ? (t->cluster - 1) * n * 256 * t->mg : 0, stage = t->kb * (rows + n) * 128;
        stages = (int)(ROSE_MIN((int64_t)t->budget * 1024, block_shared(d)) - 512 - got) / stage;
    } while (stages < 2 && n > 8);
    m->columns = rows / (1 + s->gated);
    m->tiles = matmul_plan_tiles(s, m->columns);
    m->splits = 1;
    m->group = n;
    m->box = rows, m->box_x = n, m->interleaved = s->gated;
    int64_t blocks = stream_blocks(d, t, m->tiles, ceil_div(s->k, 64 * t->kb));
    *out = (struct plan){.kernel = "gemv_wgmma", .rows = s->rows, .tiles = true, .per = n, .times = (int32_t)blocks};
    plan_int(out, "N", n);
    plan_int(out, "MG", t->mg);
    plan_int(out, "KB", t->kb);
    plan_int(out, "STAGES", stages);
    plan_int(out, "CLUSTER", t->cluster);
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    matmul_plan_epilogue(s, out);
    out->block = (uint32_t)(128 * t->mg + 32);
    out->cluster = (uint32_t)(t->cluster > 1 ? t->cluster : 0);
    out->shared_bytes = (uint32_t)(stages * stage + got + stages * 16 + 16 + 8 * t->cluster);
    out->shared_bytes = matmul_plan_alone(d, out->shared_bytes);
    cost(s, out);
    plan_stream(out, d, 0.5);
    if (t->cluster) return;
    m->work_bytes = (size_t)blocks * 2 * (size_t)(n / 2) * (size_t)(128 * t->mg) * 4;
    m->counter_bytes = (size_t)m->tiles * 4;
}

/* ---- gemv_rows ---- */

enum { GEMV_STEP = 64, GEMV_MOST = 64, GEMV_FLIGHT = 64 << 10, GEMV_STEP_BYTES = 2048, GEMV_ROW_BYTES = 128 };

/* x_bytes: of a row of x in a step. */
static int64_t shared_of(int warps, int nt, int64_t chunks, int64_t group, int64_t x_bytes)
{
    return (int64_t)2 * warps * nt * 512 + 16 + ceil_div(chunks, warps) * warps * x_bytes * group;
}

/* Pieces of k: as few as let x fit, more where the tiles leave SMs idle. A merge between blocks costs 1.3 us a tile (H200). */
static int choose_splits(const struct matmul_shape *s, const struct device_info *d, int64_t tiles_count, int warps, int nt, int64_t group,
                         int64_t units, int64_t x_bytes)
{
    int64_t chunks = ceil_div(s->k, GEMV_STEP);
    double best = 1e30, us = weight_bytes(s) / (d->bandwidth > 0 ? d->bandwidth : 1e12) * 1e6;
    int choice = 0;
    for (int splits = 1; splits <= 64 && splits <= chunks && splits <= units; splits++) {
        if (shared_of(warps, nt, ceil_div(chunks, splits), group, x_bytes) > matmul_plan_shared(d)) continue;
        int64_t slots = units / splits, waves = ceil_div(tiles_count, slots);
        double t = us * (double)(waves * slots) / (double)tiles_count * (double)units / (double)(slots * splits);
        if (splits > 1) t += 1.3 * (double)waves;
        if (choice && ceil_div(chunks, splits) < 2 * warps) break; /* two steps a warp at least */
        if (t < best) best = t, choice = splits;
    }
    return choice;
}

/* Warps and steps in flight: few idle places in the last round, as many bytes in flight as the memory wants. */
static void choose_warps(const struct matmul_shape *s, int64_t chunks, int *warps, int *depth)
{
    static const int table[][2] = {{16, 2}, {8, 4}, {4, 8}, {7, 4}, {6, 5}, {5, 6}, {8, 3}, {6, 4}, {5, 4}, {4, 6}, {4, 4}, {4, 3}, {4, 2}, {3, 3}, {2, 2}};
    double best = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int64_t round = table[i][0] * table[i][1], rounds = ceil_div(chunks, round);
        double flight = (double)chunks / (double)rounds * GEMV_STEP_BYTES, score = flight > GEMV_FLIGHT ? GEMV_FLIGHT : flight;
        score *= 1 - 0.004 * (double)i - 0.3 * (1 - (double)chunks / (double)(rounds * round));
        if (score > best) best = score, *warps = table[i][0], *depth = table[i][1];
    }
    if (s->warps) *warps = s->warps;
    if (s->depth) *depth = s->depth;
}

/* All tiles on their way into registers before the predecessor has ended, one a block or two or three side by side: narrow weights, of which the tiles of
 * gemv_wgmma leave SMs idle or must be shared, so that sums meet in memory. Tiles a block; 0: they are too many or too long. Side by side up to four rows
 * (Qwen3-0.6B, with the norm inside: 1 row 1,383 -> 1,459 tok/s, 4 rows 5,298 -> 5,371, 8 rows 10,268 -> 10,162). */
enum { ONCE_DEPTH = 4, ONCE_ROWS = 8, ONCE_TEAMS = 3, TEAM_ROWS = 4 };
static int at_once(const struct matmul_shape *s, const struct device_info *d, int *warps)
{
    static const int of_team[ONCE_TEAMS] = {16, 8, 5};
    if (plan_arch(d) != 900 || s->blocks_format || s->deterministic || s->tile || s->rows > ONCE_ROWS) return 0;
    int64_t teams = ceil_div(matmul_plan_tiles(s, s->gated ? 8 : 16), d->units), chunks = ceil_div(s->k, GEMV_STEP);
    if (teams > ONCE_TEAMS || (teams > 1 && s->rows > TEAM_ROWS) || chunks > of_team[teams - 1] * ONCE_DEPTH) return 0;
    *warps = (int)ceil_div(chunks, ceil_div(chunks, of_team[teams - 1]));
    return (int)teams;
}

/* gain * x before it is divided by the row's size leaves the range of f16. Every block normalises all rows: for few elements. */
bool matmul_plan_folds(const struct matmul_shape *s, const struct device_info *d)
{
    enum { MOST_K = 1024 };
    int warps;
    return !s->f16 && s->k <= MOST_K && s->rows <= TEAM_ROWS && at_once(s, d, &warps);
}

bool matmul_plan_few(const struct matmul_shape *s, const struct device_info *d, const char *kernel, int64_t x_bytes, struct matmul_plan *m)
{
    struct plan *out = &m->plan;
    int64_t group = s->rows < 1 ? 1 : s->rows > GEMV_MOST ? GEMV_MOST : s->rows, chunks = ceil_div(s->k, GEMV_STEP);
    int nt = group <= 8 ? 1 : group <= 16 ? 2 : group <= 32 ? 4 : 8, warps = 8, depth = 4, per_unit = s->blocks ? s->blocks : 1;
    m->columns = s->gated ? 8 : 16;
    m->tiles = matmul_plan_tiles(s, m->columns);
    int64_t units = (int64_t)d->units * per_unit;
    choose_warps(s, chunks, &warps, &depth);
    m->splits = s->splits ? s->splits : choose_splits(s, d, m->tiles, warps, nt, group, units, x_bytes);
    if (!m->splits || m->splits > units) return false;
    m->chunks = (int32_t)ceil_div(chunks, m->splits);
    m->splits = (int32_t)ceil_div(chunks, m->chunks);
    choose_warps(s, m->chunks, &warps, &depth);
    const int teams = s->teams ? s->teams : 1;
    int64_t shared = teams * (shared_of(warps, nt, m->chunks, group, x_bytes) + (s->norm ? 32 * warps + 256 * warps * ceil_div(m->chunks, warps) : 0));
    int64_t slots = units / m->splits, tiles = ceil_div(m->tiles, teams);
    if (shared > matmul_plan_shared(d)) return false;
    m->group = (int32_t)group;
    if (slots > tiles) slots = tiles;
    *out = (struct plan){.kernel = kernel, .rows = s->rows, .tiles = true, .per = m->group, .times = (int32_t)slots * m->splits};
    plan_int(out, "NT", nt);
    plan_int(out, "WARPS", warps);
    plan_int(out, "DEPTH", depth);
    if (!strcmp(kernel, "gemv_rows")) plan_int(out, "TEAMS", teams), plan_int(out, "NORM", s->norm);
    if (s->norm) plan_f32(out, "EPS", s->norm_eps), plan_f32(out, "OFFSET", s->norm_offset);
    plan_int(out, "OCCUPANCY", warps * teams > 8 ? per_unit : 2 * per_unit); /* 1024 threads an SM have 64 registers each: too few for sixteen warps */
    plan_int(out, "PARTS", s->gated ? 1 : s->parts);
    plan_int(out, "SPLIT", m->splits > 1);
    plan_int(out, "K_TAIL", s->k % GEMV_STEP != 0);
    matmul_plan_epilogue(s, out);
    out->block = (uint32_t)(32 * warps * teams);
    out->shared_bytes = per_unit == 1 ? matmul_plan_alone(d, (uint32_t)shared) : (uint32_t)shared;
    if (m->splits > 1) {
        m->work_bytes = (size_t)m->tiles * (size_t)m->splits * (size_t)nt * 512;
        m->counter_bytes = (size_t)m->tiles * 4;
    }
    cost(s, out);
    plan_stream(out, d, 1.0);
    return true;
}

enum rose_status matmul_plan_make(const struct matmul_shape *s, const struct device_info *d, struct matmul_plan *out,
                                  struct rose_error *err)
{
    *out = (struct matmul_plan){0};
    ROSE_TRY(check(s, err));
    if (s->norm && !matmul_plan_folds(s, d))
        return status_set(err, ROSE_UNSUPPORTED, "a product of %lld rows over %d elements that normalises them itself", (long long)s->rows, s->k);
    if (s->blocks_format) return matmul_blocks_plan(s, d, out, err);
    struct matmul_shape once = *s;
    if (!s->warps && !s->depth && !s->blocks && !s->splits && (once.teams = at_once(s, d, &once.warps))) {
        once.depth = (int)ceil_div(ceil_div(s->k, GEMV_STEP), once.warps), once.splits = 1;
        if (matmul_plan_few(&once, d, "gemv_rows", GEMV_ROW_BYTES, out)) return ROSE_OK;
        *out = (struct matmul_plan){0};
    }
    if (stream_fits(s, d) && (s->tile ? s->tile >= STREAM_FIRST : s->rows <= STREAM_ROWS && !s->warps && !s->depth && !s->blocks && !s->splits)) {
        stream(s, d, out);
        return ROSE_OK;
    }
    bool few = s->rows <= 16 && !s->deterministic && !s->tile;
    if (s->warps || s->depth || s->blocks || s->splits) few = true;
    if (few && matmul_plan_few(s, d, "gemv_rows", GEMV_ROW_BYTES, out)) return ROSE_OK;
    *out = (struct matmul_plan){0};
    if (wgmma_fits(s, d) && (s->tile ? s->tile >= WGMMA_FIRST && s->tile < STREAM_FIRST : s->rows >= WGMMA_ROWS))
        wgmma(s, d, out);
    else
        matmul_plan_gemm(s, d, out);
    return ROSE_OK;
}

const void *matmul_plan_box(const struct matmul_plan *m, const struct gemm_params *p, int part, int64_t rows, struct layout_tma *out)
{
    int64_t k = (int64_t)p->k;
    *out = (struct layout_tma){.rank = 2, .copies = {1, 1, 1, 1}, .swizzle_bytes = 128};
    out->dim[0] = k, out->stride_bytes[0] = 2, out->box[0] = 64;
    if (part < 0) {
        out->dim[1] = rows, out->stride_bytes[1] = p->x_stride * 2, out->box[1] = m->box_x;
        return p->x;
    }
    const char *w = p->part[part].w;
    out->dim[1] = p->part[part].n, out->stride_bytes[1] = k * 2, out->box[1] = m->box;
    if (m->interleaved) { /* 8 rows, gate or up, eights of rows */
        out->rank = 4;
        out->dim[1] = 8, out->box[1] = 8;
        out->dim[2] = 2, out->stride_bytes[2] = (const char *)p->part[1].w - (const char *)p->part[0].w, out->box[2] = 2;
        out->dim[3] = p->part[0].n / 8, out->stride_bytes[3] = k * 16, out->box[3] = m->box / 16;
    }
    return w;
}

void matmul_plan_params(const struct matmul_plan *m, struct gemm_params *p)
{
    int32_t tile = 0;
    for (int i = 0; i < GEMM_PARTS; i++) {
        p->part[i].tile = tile;
        tile += (p->part[i].n + m->columns - 1) / m->columns;
    }
    p->tiles = (uint32_t)m->tiles;
    p->splits = (uint32_t)m->splits;
    p->chunks = (uint32_t)m->chunks;
    p->group = (uint32_t)m->group;
    p->blocks = (uint32_t)m->plan.times;
}
