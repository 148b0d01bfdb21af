// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Shuffles, votes, reductions, bit operations of two warps a block: x[blocks * 64] -> out[blocks * 64][24]. */
#include "kernels/cuda/common/rose.cuh"

struct probe_threads_params {
    const uint32_t *x;
    uint32_t *out;
};

KERNEL(probe_threads, struct probe_threads_params, p, 64, 1)
{
    uint32_t i = block_x() * 64 + thread_x(), lane = lane_id(), u = p.x[i];
    uint32_t *o = p.out + (size_t)i * 24;
    o[0] = shuffle_u32(FULL_WARP, u, lane * 7 + 3, 32);
    o[1] = shuffle_u32(FULL_WARP, u, lane + 5, 8);
    o[2] = shuffle_xor_u32(FULL_WARP, u, 9, 32);
    o[3] = shuffle_up_u32(FULL_WARP, u, 3, 16);
    o[4] = shuffle_down_u32(FULL_WARP, u, 3, 16);
    o[5] = (uint32_t)(shuffle_xor_u64(FULL_WARP, (uint64_t)u << 20, 4, 32) >> 10);
    o[6] = warp_ballot(FULL_WARP, u & 1);
    o[7] = (uint32_t)warp_any(FULL_WARP, (u & 0xff) == 0) | (uint32_t)warp_all(FULL_WARP, u != 1) << 1;
    o[8] = warp_match(FULL_WARP, u & 3);
    o[9] = redux_add_u32(FULL_WARP, u);
    o[10] = redux_min_u32(FULL_WARP, u) ^ redux_max_u32(FULL_WARP, u);
    o[11] = (uint32_t)redux_min_s32(FULL_WARP, (int32_t)u) ^ (uint32_t)redux_max_s32(FULL_WARP, (int32_t)u);
    o[12] = redux_and_b32(FULL_WARP, u | 0xfff) ^ redux_or_b32(FULL_WARP, u & 0xffff) ^ redux_xor_b32(FULL_WARP, u);
    o[13] = f32_bits(warp_sum_f32((float)(u & 0xff), 32));
    o[14] = f32_bits(warp_max_f32((float)(u & 0xffff), 8));
    o[15] = warp_sum_u32(u, 16);
    o[16] = warp_scan_u32(u & 0xff);
    o[17] = popcount_u32(u) | clz_u32(u) << 8 | ffs_u32(u) << 16;
    o[18] = byte_permute(u, ~u, 0x7530 ^ (u & 0x7777)) ^ byte_permute(u, ~u, 0xba98) ^ rotate_left(u, u);
    o[19] = block_sync_count(u & 2) + (uint32_t)block_sync_or(u == 12345) * 1000;
    o[20] = warp_elect() ? 1 : 0;
    o[21] = thread_x() | block_x() << 8 | block_dim_x() << 16 | grid_dim_x() << 24;
    o[22] = 0;
    if (lane < 16) o[22] = shuffle_xor_u32(0xffff, u, 5, 16); /* half a warp on its own */
    warp_sync(FULL_WARP);
    o[23] = grid_blocks() * 100 + block_rank();
}
