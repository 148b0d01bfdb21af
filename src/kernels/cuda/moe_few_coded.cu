// arch: sm_90a sm_100a sm_120a
/* Experts' products for up to eight tokens with weights as their file has them (moe_coded.cu names the formats): moe_few.cu's two launches, in which
 * each block chooses the experts itself and every touched expert's codes stream once through shared memory by bulk copies.
 *
 *     GATED   unit: of an expert, blocks: a tile of 16 gate and one of 16 up rows; FP8: eight gate and eight up rows. Units go round robin
 *             over the blocks; the warps' sums of a unit are added up by one of them, two units in turn
 *     else    a block has 16 rows of y; unit: an expert. A warp keeps its sums [token][row] over all units
 *
 * A stage is a piece of PIECE chunks of k of a unit (a chunk: 256 of blocks, 128 codes): blocks [MATRICES][PIECE chunks], FP8 [16 rows][128
 * PIECE]. Warp 8 is the producer. Chunks are dealt out to warps 0 to 7 in turn over all units; a warp asks for x of its next chunk, and for
 * the scales of FP8, while it multiplies one. The weights are mma's m16 operand, an expert's tokens the n8 one.
 *
 *     blocks: lane (q, c) of a unit of 32: elements 4c .. 4c + 3 and 16 + 4c .. of weight rows q and q + 8 and of token q
 *     FP8:    lane (q, c) of 64 codes: 16c .. 16c + 15, four instructions
 *
 * Constants: EXPERTS TOP_K N K GATED ACT EXPERT_BIAS MAX_TOKENS FORMAT SCALES PIECE STAGES ACCUMULATE ALPHA; those of moe_router.cuh. */
#include "kernels/params/moe_coded.h"
#define FP8 (FORMAT == MOE_FP8)
#define STEP (FORMAT == MOE_FP8 ? 128 : 256)
#define K_TAIL (K % STEP != 0)
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/matmul_blocks_scales.cuh"

#define WARPS 8
#define CONSUMERS (WARPS * WARP)
#define THREADS (CONSUMERS + WARP)
#define MATRICES (1 + GATED)
#define SETS (FP8 ? 1 : MATRICES) /* of sums: FP8 has both matrices in one */
#define CHUNKS ((K + STEP - 1) / STEP)
#define PIECES ((CHUNKS + PIECE - 1) / PIECE)
#define MATRIX_BYTES (PIECE * CHUNK_BYTES) /* blocks: of one in a stage */
#define STAGE_BYTES (FP8 ? 16 * PIECE * 128 : MATRICES * MATRIX_BYTES)
#define UNIT_ROWS (FP8 ? 8 : 16)                         /* GATED: columns of y */
#define TILES ((N + UNIT_ROWS - 1) / UNIT_ROWS)          /* GATED: units of an expert */
#define MAX_PICKS (MAX_TOKENS * TOP_K)
#define MAX_ACTIVE (MAX_PICKS < EXPERTS ? MAX_PICKS : EXPERTS)
#define UNITS (STEP / 32)
#include "kernels/cuda/moe_lists.cuh"
STATIC_ASSERT(N % 8 == 0 && K % 16 == 0 && MAX_TOKENS <= 8 && MAX_PICKS <= CONSUMERS, "shapes do not fit");

DEVICE uint32_t chunk_k(uint32_t chunk)
{
    return K_TAIL ? min_u32(K - chunk * STEP, STEP) : STEP;
}

/* Warp 8. */
DEVICE void produce(const struct moe_few_coded_params *p, const struct lists *l, unsigned char *stages, mbarrier *full, mbarrier *empty, uint32_t units,
                    uint32_t first, uint32_t step)
{
    const uint32_t lane = lane_id();
    const uint64_t policy = l2_evict_first();
    uint32_t stage = 0, phase = 1;
    UNROLL_N(1) for (uint32_t unit = first; unit < units; unit += step)
    {
        const uint32_t e = l->expert[GATED ? unit / TILES : unit], tile = GATED ? unit % TILES : block_x();
        UNROLL_N(1) for (uint32_t piece = 0; piece < PIECES; piece++)
        {
            const uint32_t k = piece * (PIECE * STEP), length = min_u32(K - k, PIECE * STEP), bytes = FP8 ? length : length / BLOCKS_UNIT * UNIT_BYTES;
            unsigned char *to = stages + stage * STAGE_BYTES;
            mbarrier_wait(&empty[stage], phase);
            if (lane == 0) mbarrier_arrive_expect(&full[stage], (FP8 ? 16 : MATRICES) * bytes);
            warp_sync(FULL_WARP);
            if (FP8) {
                const uint32_t row = GATED ? tile * 8 + lane % 8 : min_u32(tile * 16 + lane, N - 1);
                const char *w = (const char *)p->f.weight[GATED ? lane / 8 % 2 : 0] + (uint64_t)e * p->f.weight_stride + (uint64_t)row * K + k;
                if (lane < 16) bulk_load(to + lane * (PIECE * 128), w, bytes, &full[stage], policy);
            } else if (lane < MATRICES) {
                const char *w = (const char *)p->f.weight[GATED ? lane : 0] + (uint64_t)e * p->f.weight_stride;
                bulk_load(to + lane * MATRIX_BYTES, blocks_chunk(w, K / BLOCKS_UNIT, tile, piece * PIECE), bytes, &full[stage], policy);
            }
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* What a warp brings for a chunk: x of the expert's tokens, scales of FP8. */
struct operand {
    u32x4 x[FP8 ? 4 : UNITS]; /* blocks: a unit's 16 elements; FP8: 8 codes' elements */
    float scale[2];
};

/* unit i's expert is the i-th of the list; chunk of k. */
DEVICE void operand_load(const struct moe_few_coded_params *p, const struct lists *l, uint32_t unit, uint32_t chunk, struct operand *o)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, i = GATED ? unit / TILES : unit, begin = l->begin[i], length = chunk_k(chunk);
    const bool has = q < l->begin[i + 1] - begin;
    uint32_t at = begin + (has ? q : 0);
    if (GATED) at = l->source[at] / TOP_K;
    const element *x = (const element *)p->f.x + (uint64_t)at * p->f.x_stride + chunk * STEP;
#if FORMAT == MOE_FP8
    UNROLL for (uint32_t h = 0; h < 4; h++)
    {
        const uint32_t k = h / 2 * 64 + c * 16 + h % 2 * 8;
        u32x4 zero = {{0, 0, 0, 0}};
        o->x[h] = zero;
        if (has && k < length) o->x[h] = ld16(x + k);
    }
    UNROLL for (uint32_t m = 0; m < 2; m++)
    {
        const float *s = (const float *)((const char *)p->scale[GATED ? m : 0] + (uint64_t)l->expert[i] * p->f.weight_stride);
        const uint32_t row = GATED ? unit % TILES * 8 + q : min_u32(block_x() * 16 + m * 8 + q, N - 1);
        o->scale[m] = SCALES == FP8_BLOCKS ? s[row / FP8_BLOCK * CHUNKS + chunk] : s[row];
    }
#else
    UNROLL for (uint32_t u = 0; u < UNITS; u++)
    {
        u32x2 lo = {{0, 0}}, hi = {{0, 0}};
        if (has && u * 32 < length) lo = ld8(x + u * 32 + c * 4), hi = ld8(x + u * 32 + 16 + c * 4);
        o->x[u].v[0] = lo.v[0], o->x[u].v[1] = lo.v[1], o->x[u].v[2] = hi.v[0], o->x[u].v[3] = hi.v[1];
    }
#endif
}

/* d += a chunk's products. w: its codes (FP8: of row 0); scales: 1 KB of this warp's. */
DEVICE void multiply(float d[SETS][4], const unsigned char *w, uint32_t length, const struct operand *o, unsigned char *scales)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4;
#if FORMAT == MOE_FP8
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    (void)scales;
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        u32x4 lo = {{0, 0, 0, 0}}, hi = lo;
        const uint32_t k = h * 64 + c * 16;
        if (K_TAIL && h * 64 >= length) break;
        if (!K_TAIL || k < length) lo = ld16(w + q * (PIECE * 128) + k), hi = ld16(w + (q + 8) * (PIECE * 128) + k);
        UNROLL for (uint32_t t = 0; t < 4; t++)
        {
            uint32_t a[2][2];
            fp8_pairs(lo.v[t], a[0]);
            fp8_pairs(hi.v[t], a[1]);
            const uint32_t both[4] = {a[0][0], a[1][0], a[0][1], a[1][1]};
            mma_bf16(part, both, o->x[h * 2 + t / 2].v + t % 2 * 2);
        }
    }
    UNROLL for (uint32_t e = 0; e < 4; e++) d[0][e] = fma_f32(o->scale[e / 2], part[e], d[0][e]);
#else
    const uint32_t units = length / BLOCKS_UNIT, ones[4] = {PAIR_ONE, PAIR_ONE, PAIR_ONE, PAIR_ONE};
    UNROLL for (uint32_t m = 0; m < SETS; m++)
    {
        const unsigned char *chunk = w + m * MATRIX_BYTES;
        warp_sync(FULL_WARP);
        blocks_chunk_scales(chunk, units, scales);
        warp_sync(FULL_WARP);
        UNROLL for (uint32_t u = 0; u < UNITS; u++)
        {
            uint32_t a[2][4];
            float s[4];
            if (K_TAIL && u >= units) break;
            const u32x4 bits = ld16(scales + (u * 8 + q) * 16);
            UNROLL for (int i = 0; i < 4; i++) s[i] = f32_from_bits(bits.v[i]);
            blocks_fragment(chunk, units, u, lane_id(), BLOCKS_MASK, a);
            UNROLL for (int half = 0; half < 1 + HALVES; half++)
            {
                float t[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                mma_element(t, a[half], o->x[u].v + 2 * half);
                if (!HALVES) mma_element(t, a[1], o->x[u].v + 2);
                UNROLL for (int e = 0; e < 4; e++) d[m][e] = fma_f32(s[2 * half + e / 2], t[e], d[m][e]);
            }
            if (MINIMA) {
                float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                UNROLL for (int half = 0; half < 2; half++) mma_element(sum, ones, o->x[u].v + 2 * half);
                UNROLL for (int e = 0; e < 4; e++) d[m][e] = fma_f32(s[2 + e / 2], sum[e], d[m][e]);
            }
        }
    }
#endif
}

#if GATED
/* One warp adds up all warps' sums of a unit, part: [WARPS][SETS][WARP]. Lane (q, c), tokens 2c and 2c + 1: blocks rows q and q + 8 of either
 * matrix, FP8 row q of both. */
DEVICE void finish(const struct moe_few_coded_params *p, const struct lists *l, uint32_t unit, const f32x4 *part)
{
    const uint32_t lane = lane_id(), q = lane / 4, c = lane % 4, i = unit / TILES, begin = l->begin[i], tokens = l->begin[i + 1] - begin;
    float d[SETS][4];
    UNROLL for (uint32_t m = 0; m < SETS; m++)
        UNROLL for (uint32_t e = 0; e < 4; e++) d[m][e] = 0.0f;
    UNROLL for (uint32_t w = 0; w < WARPS; w++)
        UNROLL for (uint32_t m = 0; m < SETS; m++)
        {
            const f32x4 v = part[(w * SETS + m) * WARP + lane];
            UNROLL for (uint32_t e = 0; e < 4; e++) d[m][e] += v.v[e];
        }
    UNROLL for (uint32_t r = 0; r < UNIT_ROWS / 8; r++)
    {
        const uint32_t row = unit % TILES * UNIT_ROWS + r * 8 + q;
        float bias[2] = {0.0f, 0.0f};
        if (N % UNIT_ROWS != 0 && row >= N) continue;
        if (EXPERT_BIAS) {
            UNROLL for (uint32_t m = 0; m < 2; m++) bias[m] = ((const float *)p->f.bias[m])[(uint64_t)l->expert[i] * N + row];
        }
        UNROLL for (uint32_t h = 0; h < 2; h++)
        {
            const uint32_t slot = 2 * c + h;
            const float gate = FP8 ? d[0][h] : d[0][2 * r + h], up = FP8 ? d[0][2 + h] : d[SETS - 1][2 * r + h];
            if (slot < tokens) ((element *)p->f.y)[(uint64_t)(begin + slot) * N + row] = f32_to_element(act_value(ACT, 1.0f, gate + bias[0]) * (up + bias[1]));
        }
    }
}
#else
/* Lane (q, c): rows q (d[0], d[1]) and q + 8 (d[2], d[3]) for tokens 2 c and 2 c + 1; sum: [MAX_TOKENS][16] of this warp. */
DEVICE void finish(const struct moe_few_coded_params *p, const struct lists *l, uint32_t i, float d[4], float *sum)
{
    const uint32_t q = lane_id() / 4, c = lane_id() % 4, begin = l->begin[i], tokens = l->begin[i + 1] - begin;
    if (EXPERT_BIAS && warp_id() == 0) {
        UNROLL for (uint32_t r = 0; r < 2; r++)
        {
            const uint32_t row = block_x() * 16 + q + r * 8;
            const float bias = row < N ? ((const float *)p->f.bias[0])[(uint64_t)l->expert[i] * N + row] : 0.0f;
            d[2 * r] += bias, d[2 * r + 1] += bias;
        }
    }
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const uint32_t slot = 2 * c + h;
        if (slot < tokens) {
            float *to = sum + l->source[begin + slot] / TOP_K * 16 + q, w = l->weight[begin + slot];
            to[0] = fma_f32(w, d[h], to[0]);
            to[8] = fma_f32(w, d[h + 2], to[8]);
        }
    }
    warp_sync(FULL_WARP); /* the next unit's lanes hold other tokens */
}
#endif

/* Warps 0 to 7. work: GATED f32x4 [2][WARPS][SETS][WARP], else float [WARPS][MAX_TOKENS][16], zero. */
DEVICE void consume(const struct moe_few_coded_params *p, const struct lists *l, const unsigned char *stages, mbarrier *full, mbarrier *empty, void *work,
                    unsigned char *scales, uint32_t units, uint32_t first, uint32_t step)
{
    const uint32_t lane = lane_id(), warp = warp_id();
    uint32_t stage = 0, phase = 0, turn = 0, item = warp; /* chunks of all this block's units in turn: this warp's next one */
    struct operand next;
    if (first + item / CHUNKS * step < units) operand_load(p, l, first + item / CHUNKS * step, item % CHUNKS, &next);
    UNROLL_N(1) for (uint32_t unit = first; unit < units; unit += step, turn++)
    {
        float d[SETS][4];
        UNROLL for (uint32_t m = 0; m < SETS; m++)
            UNROLL for (uint32_t e = 0; e < 4; e++) d[m][e] = 0.0f;
        UNROLL_N(1) for (uint32_t piece = 0; piece < PIECES; piece++)
        {
            const uint32_t from = turn * CHUNKS + piece * PIECE, to = turn * CHUNKS + min_u32((piece + 1) * PIECE, CHUNKS);
            mbarrier_wait(&full[stage], phase);
            UNROLL_N(1) for (; item < to; item += WARPS)
            {
                const struct operand o = next;
                const uint32_t further = item + WARPS, other = first + further / CHUNKS * step;
                if (other < units) operand_load(p, l, other, further % CHUNKS, &next);
                multiply(d, stages + stage * STAGE_BYTES + (item - from) * (FP8 ? 128 : CHUNK_BYTES), chunk_k(item - turn * CHUNKS), &o, scales);
            }
            warp_sync(FULL_WARP);
            if (lane == 0) mbarrier_arrive(&empty[stage]);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
#if GATED
        f32x4 *part = (f32x4 *)work + turn % 2 * (WARPS * SETS * WARP);
        UNROLL for (uint32_t m = 0; m < SETS; m++)
        {
            f32x4 v = {{d[m][0], d[m][1], d[m][2], d[m][3]}};
            part[(warp * SETS + m) * WARP + lane] = v;
        }
        barrier_sync(1, CONSUMERS);
        if (turn % WARPS == warp) finish(p, l, unit, part);
#else
        finish(p, l, unit, d[0], (float *)work + warp * (MAX_TOKENS * 16));
#endif
    }
}

KERNEL(moe_few_coded, struct moe_few_coded_params, p, THREADS, 1)
{
    SHARED(mbarrier, full, STAGES);
    SHARED(mbarrier, empty, STAGES);
    SHARED(f32x4, part, GATED ? 2 * WARPS * SETS * WARP : WARPS * MAX_TOKENS * 4);
    SHARED2(f32x4, scales, WARPS, FP8 ? 1 : 64);
    LISTS_SHARED(lists);
    unsigned char *stages = dynamic_shared();
    float *sum = (float *)part;
    if (thread_x() == 0) {
        for (uint32_t i = 0; i < STAGES; i++) mbarrier_init(&full[i], 1), mbarrier_init(&empty[i], WARPS);
        fence_mbarrier_init();
    }
    if (!GATED)
        for (uint32_t i = thread_x(); i < WARPS * MAX_TOKENS * 16; i += THREADS) sum[i] = 0.0f;
    block_sync();
    if (GATED) {
        grid_dependency_wait();
        grid_dependency_launch();
    }
    LISTS_CHOOSE(&p.f, lists);
    const uint32_t units = lists.n * (GATED ? TILES : 1), first = GATED ? block_x() : 0, step = GATED ? grid_dim_x() : 1;
    if (warp_id() == WARPS) {
        produce(&p, &lists, stages, full, empty, units, first, step);
        if (GATED) return;
    } else {
        if (!GATED) {
            grid_dependency_wait();
            grid_dependency_launch();
        }
        consume(&p, &lists, stages, full, empty, part, (unsigned char *)scales[warp_id()], units, first, step);
    }
#if !GATED
    block_sync();
    if (warp_id() == WARPS) return; /* it did not wait: y may not be complete for it */
    few_total(&p.f, sum);
#endif
}
