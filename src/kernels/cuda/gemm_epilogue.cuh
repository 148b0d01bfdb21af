/* What follows a product before it is stored:
 *
 *     y = [y +] alpha * act(v + bias) [* (up + up_bias)]
 *
 * Constants: ACT (ACT_* of act_rows.h), GATED (part 0 is the gate, part 1 the up matrix, y that of part 0), BIAS 0/1,
 * ACCUMULATE 0/1, OUT_F32 0/1 (else elements), PAIRS 0/1: y may be read and written two neighbours at a time. */
#ifndef ROSE_CUDA_GEMM_EPILOGUE_CUH
#define ROSE_CUDA_GEMM_EPILOGUE_CUH

#include "kernels/cuda/act.cuh"
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/gemm.h"

DEVICE float gemm_bias(const struct gemm_part *part, uint32_t col)
{
    return part->bias ? ((const float *)part->bias)[col] : 0.0f;
}
/* The finished value of column col, without the old y. up: only where GATED. */
DEVICE float gemm_finish(const struct gemm_params *p, const struct gemm_part *part, uint32_t col, float v, float up)
{
    if (BIAS) v += gemm_bias(part, col);
    v = act_value(ACT, 1.0f, v);
    if (GATED) v *= BIAS ? up + gemm_bias(&p->part[1], col) : up;
    return v * p->alpha;
}
/* The old y, and the new one. */
DEVICE float gemm_old(const struct gemm_part *part, uint32_t row, uint32_t col)
{
    const size_t at = (size_t)row * (size_t)part->y_stride + col;
    return OUT_F32 ? ((const float *)part->y)[at] : element_to_f32(((const element *)part->y)[at]);
}
DEVICE void gemm_put(const struct gemm_part *part, uint32_t row, uint32_t col, float v)
{
    const size_t at = (size_t)row * (size_t)part->y_stride + col;
    if (OUT_F32)
        ((float *)part->y)[at] = v;
    else
        ((element *)part->y)[at] = f32_to_element(v);
}
DEVICE void gemm_store(const struct gemm_part *part, uint32_t row, uint32_t col, float v)
{
    gemm_put(part, row, col, ACCUMULATE ? gemm_old(part, row, col) + v : v);
}
/* Columns col and col + 1 (col even) of a row; what lies at or beyond part->n is not stored. */
DEVICE void gemm_store_pair(const struct gemm_params *p, const struct gemm_part *part, uint32_t row, uint32_t col, float v0, float v1,
                            float up0, float up1)
{
    if (col >= (uint32_t)part->n) return;
    const bool both = col + 1 < (uint32_t)part->n;
    v0 = gemm_finish(p, part, col, v0, up0);
    if (both) v1 = gemm_finish(p, part, col + 1, v1, up1);
    if (!PAIRS || !both) {
        gemm_store(part, row, col, v0);
        if (both) gemm_store(part, row, col + 1, v1);
        return;
    }
    const size_t at = (size_t)row * (size_t)part->y_stride + col;
    if (OUT_F32) {
        float *y = (float *)part->y + at;
        if (ACCUMULATE) {
            u32x2 old = ld8(y);
            v0 += f32_from_bits(old.v[0]), v1 += f32_from_bits(old.v[1]);
        }
        u32x2 out = {{f32_bits(v0), f32_bits(v1)}};
        st8(y, out);
    } else {
        element *y = (element *)part->y + at;
        if (ACCUMULATE) {
            element2 old = as_element2(ld4(y));
            v0 += element2_lo_f32(old), v1 += element2_hi_f32(old);
        }
        st4(y, f32_to_element2(v0, v1).bits);
    }
}

/* Counts a split of k whose sums stand in work: true in all threads of the block that is the last of a tile's, which then sees those
 * of the others. All threads call. last: shared. */
DEVICE bool gemm_last_split(const struct gemm_params *p, uint32_t counter, uint32_t *last)
{
    block_sync();
    if (thread_x() == 0) {
        uint32_t *count = (uint32_t *)p->counters + counter;
        uint32_t before = atom_add_u32(acq_rel, gpu, count, 1);
        if (before + 1 == p->splits) st_u32(relaxed, gpu, count, 0); /* for the next launch */
        *last = before + 1 == p->splits;
    }
    block_sync();
    return *last != 0;
}

#endif
