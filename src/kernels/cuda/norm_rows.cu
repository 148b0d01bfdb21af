// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016) of rows of 16-bit elements, read once and kept in registers.
 *
 *     x = element(x + add)                                           ADD (the residual stream, in place)
 *     n = x / sqrt(mean(x^2) + eps)                                  RMS
 *     n = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)          LAYER: two reductions of the same registers
 *     y = OUT([y +] alpha * (n * (offset + weight) + bias))         ACCUMULATE adds the old y; OUT: quant.cuh
 *
 * A block is RPB groups of TPR threads; a group takes REP rows (one, where it is wider than a warp), RPB apart, and loads all
 * of them before the first sum. Thread t of a group holds vectors t, t + TPR, ... of a row.
 *
 * Constants: N VEC_BYTES TPR RPB REP MIN_BLOCKS (an SM's, which bounds the registers); LAYER ADD ACCUMULATE 0/1; WEIGHT BIAS bytes an element, 0: none; EPS OFFSET ALPHA;
 * OUT SCALE_UP TILED; STREAM (vec.cuh). */
#include "kernels/cuda/norm.cuh"

#define VECTORS (N / VEC_BF16)
#define PER ((VECTORS + TPR - 1) / TPR)
#define WARPS (TPR * RPB / 32)
#define GROUP_WARPS (TPR / 32)
/* Weights are loaded beside the row where registers allow it: few rows wait for one round of loads instead of two. */
#define EARLY (PER * REP <= 2)

/* Sums of `n` values over the group, in every one of its threads. part: [n][WARPS]. */
DEVICE void norm_sum(float *v, int n, float *part)
{
#if TPR <= 32
    (void)part;
    UNROLL for (uint32_t m = TPR / 2; m; m /= 2)
        UNROLL for (int r = 0; r < n; r++) v[r] += shuffle_xor_f32(FULL_WARP, v[r], m, TPR);
#else
    (void)n;
    float s = warp_sum_f32(v[0], WARP);
    if (lane_id() == 0) part[warp_id()] = s;
    block_sync();
    const float *mine = part + thread_x() / TPR * GROUP_WARPS;
    s = 0;
#if GROUP_WARPS % 4 == 0
    UNROLL for (int i = 0; i < GROUP_WARPS; i += 4)
    {
        u32x4 q = ld16(mine + i);
        s += (f32_from_bits(q.v[0]) + f32_from_bits(q.v[1])) + (f32_from_bits(q.v[2]) + f32_from_bits(q.v[3]));
    }
#else
    UNROLL for (int i = 0; i < GROUP_WARPS; i++) s += mine[i];
#endif
    v[0] = s;
#endif
}

/* The largest of each of n values over the group. part: [WARPS]. */
DEVICE void norm_max(float *v, int n, float *part)
{
    UNROLL for (int r = 0; r < n; r++) v[r] = warp_max_f32(v[r], TPR < WARP ? TPR : WARP);
#if TPR > 32
    if (lane_id() == 0) part[warp_id()] = v[0];
    block_sync();
    const float *mine = part + thread_x() / TPR * GROUP_WARPS;
    UNROLL for (int i = 0; i < GROUP_WARPS; i++) v[0] = max_f32(v[0], mine[i]);
#else
    (void)part;
#endif
}

KERNEL(norm_rows, struct norm_rows_params, p, TPR *RPB, MIN_BLOCKS)
{
    SHARED(f32x4, part, 3 * ((WARPS + 3) / 4) + 1);
    const uint32_t t = thread_x() % TPR, first = block_x() * (RPB * REP) + thread_x() / TPR;
    float weight[PER][VEC_BF16], bias[PER][VEC_BF16];
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = t + i * TPR;
        UNROLL for (int e = 0; e < VEC_BF16; e++) weight[i][e] = 0, bias[i][e] = 0;
        if (EARLY && c < VECTORS) {
            if (WEIGHT) vec_ld_table(p.weight, c * VEC_BF16, WEIGHT, weight[i]);
            if (BIAS) vec_ld_table(p.bias, c * VEC_BF16, BIAS, bias[i]);
        }
    }
    grid_dependency_launch(); /* the next kernel asks for its weights meanwhile */
    grid_dependency_wait();

    vec x[REP][PER], add[ADD ? REP : 1][PER], old[ACCUMULATE ? REP : 1][PER];
    UNROLL for (int r = 0; r < REP; r++)
        UNROLL for (int i = 0; i < PER; i++)
        {
            uint32_t row = first + r * RPB, c = (t + i * TPR) * VEC_BF16;
            x[r][i] = vec_zero();
            if (ADD) add[r][i] = vec_zero();
            if (row < p.rows && c < N) {
                x[r][i] = vec_ld_once((const element *)p.x + row * p.x_stride + c);
                if (ADD) add[r][i] = vec_ld_nc_once((const element *)p.add + row * p.add_stride + c);
                if (ACCUMULATE) old[r][i] = vec_ld((const element *)p.y + row * p.y_stride + c);
            }
        }
    float global = 0;
    if (OUT == ACT_OUT_E4M3_TENSOR || OUT == ACT_OUT_NVFP4) global = *(const float *)p.global;

    float sum[REP], mean[REP];
    UNROLL for (int r = 0; r < REP; r++)
    {
        sum[r] = 0, mean[r] = 0;
        UNROLL for (int i = 0; i < PER; i++)
        {
            if (ADD) norm_add(&x[r][i], &add[r][i]);
            sum[r] = norm_first(&x[r][i], sum[r]);
        }
    }
    norm_sum(sum, REP, (float *)part);
    if (LAYER) {
        UNROLL for (int r = 0; r < REP; r++)
        {
            mean[r] = sum[r] * (1.0f / N);
            sum[r] = 0;
            UNROLL for (int i = 0; i < PER; i++)
                if (t + i * TPR < VECTORS) sum[r] = norm_second(&x[r][i], mean[r], sum[r]);
        }
        norm_sum(sum, REP, (float *)(part + (WARPS + 3) / 4));
    }

    if (!EARLY)
        UNROLL for (int r = 0; r < REP; r++)
            UNROLL for (int i = 0; i < PER; i++) vec_forget(&x[r][i]);
    float v[TOKEN ? REP : 1][TOKEN ? PER : 1][VEC_BF16], largest[REP];
    UNROLL for (int r = 0; r < REP; r++) largest[r] = 0;
    UNROLL for (int i = 0; i < PER; i++)
    {
        uint32_t c = (t + i * TPR) * VEC_BF16;
        if (!EARLY && c < N) {
            if (WEIGHT) vec_ld_table(p.weight, c, WEIGHT, weight[i]);
            if (BIAS) vec_ld_table(p.bias, c, BIAS, bias[i]);
        }
        UNROLL for (int r = 0; r < REP; r++)
        {
            const uint32_t row = first + r * RPB;
            const bool live = row < p.rows && c < N;
            const float scale = rsqrt_approx(fma_f32(sum[r], 1.0f / N, EPS));
            float *f = v[TOKEN ? r : 0][TOKEN ? i : 0];
            norm_values(&x[r][i], &old[ACCUMULATE ? r : 0][i], weight[i], bias[i], mean[r], scale, f);
            if (ADD && live) vec_st_once((element *)p.x + row * p.x_stride + c, x[r][i]);
            if (TOKEN) {
                if (live) largest[r] = max_f32(largest[r], quant_largest(f));
                continue;
            }
            uint32_t bits = 0;
            float most = GROUP ? quant_largest(f) : 0.0f, factor = OUT == ACT_OUT_BF16 ? 1.0f : quant_scale(most, global, &bits);
            if (live) quant_store((char *)p.y + OUT_BYTES(row * p.y_stride), c, f, factor);
            if (live && GROUP && t % LANES == 0)
                quant_store_scale(p.scale, row, c, p.scale_row_stride, p.scale_group_stride, bits);
        }
    }
    if (!TOKEN) return;
    norm_max(largest, REP, (float *)(part + 2 * ((WARPS + 3) / 4)));
    UNROLL for (int r = 0; r < REP; r++)
    {
        const uint32_t row = first + r * RPB;
        uint32_t bits = 0;
        const float factor = quant_scale(largest[r], global, &bits);
        UNROLL for (int i = 0; i < PER; i++)
        {
            uint32_t c = (t + i * TPR) * VEC_BF16;
            if (row < p.rows && c < N) quant_store((char *)p.y + OUT_BYTES(row * p.y_stride), c, v[TOKEN ? r : 0][TOKEN ? i : 0], factor);
        }
        if (row < p.rows && t == 0) quant_store_scale(p.scale, row, 0, p.scale_row_stride, p.scale_group_stride, bits);
    }
}
