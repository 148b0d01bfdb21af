/* Who a thread is, and how the threads of a warp and of a block talk.
 *
 * PTX ISA sections: 10 "Special Registers", 9.7.13 "Parallel Synchronization and Communication Instructions" (bar,
 * bar.warp.sync, vote, match, activemask, redux), 9.7.9.6 "shfl.sync", 9.7.19 "Miscellaneous" (nanosleep, trap).
 *
 * Memory model: block_sync, barrier_sync and warp_sync order the participants' memory accesses (bar and bar.warp.sync
 * are morally strong at block scope). Shuffles, votes and reductions do NOT: an exchange through shared memory inside
 * a warp needs warp_sync. Every lane that a mask names must call the same operation with the same mask. */
#ifndef ROSE_CUDA_THREAD_CUH
#define ROSE_CUDA_THREAD_CUH

#include "kernels/cuda/common/types.cuh"

#define FULL_WARP 0xffffffffu
#define WARP 32

#ifdef ROSE_SIMT
#define ROSE_ID_(name, cuda)                                                                                  \
    DEVICE uint32_t name(void)                                                                               \
    {                                                                                                        \
        return simt_id(SIMT_ID_##name);                                                                            \
    }
#else
#define ROSE_ID_(name, cuda)                                                                                  \
    DEVICE uint32_t name(void)                                                                               \
    {                                                                                                        \
        return cuda;                                                                                         \
    }
#endif
ROSE_ID_(thread_x, threadIdx.x)
ROSE_ID_(thread_y, threadIdx.y)
ROSE_ID_(thread_z, threadIdx.z)
ROSE_ID_(block_x, blockIdx.x)
ROSE_ID_(block_y, blockIdx.y)
ROSE_ID_(block_z, blockIdx.z)
ROSE_ID_(block_dim_x, blockDim.x)
ROSE_ID_(block_dim_y, blockDim.y)
ROSE_ID_(block_dim_z, blockDim.z)
ROSE_ID_(grid_dim_x, gridDim.x)
ROSE_ID_(grid_dim_y, gridDim.y)
ROSE_ID_(grid_dim_z, gridDim.z)

/* Lane in the warp and warp in a block of one dimension (y = z = 1). */
DEVICE uint32_t lane_id(void)
{
    return thread_x() % WARP;
}
DEVICE uint32_t warp_id(void)
{
    return thread_x() / WARP;
}

/* ---- shuffles: shfl.sync, sm_30. `width` (a power of two, at most 32) splits the warp into segments. ------------- */
#ifdef ROSE_SIMT
#define ROSE_SHFL_(mode, mask, v, b, width) simt_shuffle(mode, mask, v, b, width)
#else
/* c operand: bits 0-4 clamp, bits 8-12 segment mask. */
#define ROSE_SHFL_ASM_(ptx, mask, v, b, c)                                                                    \
    uint32_t r;                                                                                              \
    asm volatile("shfl.sync." ptx ".b32 %0, %1, %2, %3, %4;"                                                 \
                 : "=r"(r)                                                                                   \
                 : "r"(v), "r"(b), "r"(c), "r"(mask));                                                       \
    return r
#endif
/* The value of lane src_lane % width of the caller's segment. */
DEVICE uint32_t shuffle_u32(uint32_t mask, uint32_t v, uint32_t src_lane, uint32_t width)
{
#ifdef ROSE_SIMT
    return ROSE_SHFL_(SIMT_SHFL_IDX, mask, v, src_lane, width);
#else
    ROSE_SHFL_ASM_("idx", mask, v, src_lane, ((32 - width) << 8) | 31);
#endif
}
/* The value of lane (lane ^ lane_mask); lane_mask < width. */
DEVICE uint32_t shuffle_xor_u32(uint32_t mask, uint32_t v, uint32_t lane_mask, uint32_t width)
{
#ifdef ROSE_SIMT
    return ROSE_SHFL_(SIMT_SHFL_XOR, mask, v, lane_mask, width);
#else
    ROSE_SHFL_ASM_("bfly", mask, v, lane_mask, ((32 - width) << 8) | 31);
#endif
}
/* The value of lane (lane - delta), the caller's own where that leaves the segment. */
DEVICE uint32_t shuffle_up_u32(uint32_t mask, uint32_t v, uint32_t delta, uint32_t width)
{
#ifdef ROSE_SIMT
    return ROSE_SHFL_(SIMT_SHFL_UP, mask, v, delta, width);
#else
    ROSE_SHFL_ASM_("up", mask, v, delta, (32 - width) << 8);
#endif
}
/* The value of lane (lane + delta), the caller's own where that leaves the segment. */
DEVICE uint32_t shuffle_down_u32(uint32_t mask, uint32_t v, uint32_t delta, uint32_t width)
{
#ifdef ROSE_SIMT
    return ROSE_SHFL_(SIMT_SHFL_DOWN, mask, v, delta, width);
#else
    ROSE_SHFL_ASM_("down", mask, v, delta, ((32 - width) << 8) | 31);
#endif
}
DEVICE float shuffle_f32(uint32_t mask, float v, uint32_t src_lane, uint32_t width)
{
    return f32_from_bits(shuffle_u32(mask, f32_bits(v), src_lane, width));
}
DEVICE float shuffle_xor_f32(uint32_t mask, float v, uint32_t lane_mask, uint32_t width)
{
    return f32_from_bits(shuffle_xor_u32(mask, f32_bits(v), lane_mask, width));
}
DEVICE float shuffle_up_f32(uint32_t mask, float v, uint32_t delta, uint32_t width)
{
    return f32_from_bits(shuffle_up_u32(mask, f32_bits(v), delta, width));
}
DEVICE float shuffle_down_f32(uint32_t mask, float v, uint32_t delta, uint32_t width)
{
    return f32_from_bits(shuffle_down_u32(mask, f32_bits(v), delta, width));
}
DEVICE uint64_t shuffle_xor_u64(uint32_t mask, uint64_t v, uint32_t lane_mask, uint32_t width)
{
    uint32_t lo = shuffle_xor_u32(mask, (uint32_t)v, lane_mask, width);
    uint32_t hi = shuffle_xor_u32(mask, (uint32_t)(v >> 32), lane_mask, width);
    return (uint64_t)hi << 32 | lo;
}

/* ---- votes: vote.sync, match.any.sync (sm_70), activemask, elect.sync (sm_90) ------------------------------------ */
DEVICE uint32_t warp_ballot(uint32_t mask, bool pred)
{
#ifdef ROSE_SIMT
    return simt_vote(mask, pred);
#else
    uint32_t r;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }"
                 : "=r"(r)
                 : "r"((uint32_t)pred), "r"(mask));
    return r;
#endif
}
DEVICE bool warp_any(uint32_t mask, bool pred)
{
    return warp_ballot(mask, pred) != 0;
}
DEVICE bool warp_all(uint32_t mask, bool pred)
{
    return warp_ballot(mask, pred) == mask;
}
/* The lanes of mask whose v equals the caller's. */
DEVICE uint32_t warp_match(uint32_t mask, uint32_t v)
{
#ifdef ROSE_SIMT
    return simt_match(mask, v);
#else
    uint32_t r;
    asm volatile("match.any.sync.b32 %0, %1, %2;" : "=r"(r) : "r"(v), "r"(mask));
    return r;
#endif
}
/* True in exactly one lane of a fully converged warp; the same lane each time. */
DEVICE bool warp_elect(void)
{
#ifdef ROSE_SIMT
    return simt_vote(FULL_WARP, 1) == FULL_WARP && simt_id(SIMT_ID_lane) == 0;
#elif ROSE_ARCH >= 900
    uint32_t r;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(r));
    return r != 0;
#else
    return lane_id() == 0;
#endif
}

/* ---- reductions over a warp ---------------------------------------------------------------------------------------
 * redux.sync (sm_80) on 32-bit integers over the lanes of mask. */
#ifdef ROSE_SIMT
#define ROSE_REDUX_(name, type, ptx, op)                                                                      \
    DEVICE type name(uint32_t mask, type v)                                                                  \
    {                                                                                                        \
        return (type)simt_redux(op, mask, (uint32_t)v);                                                      \
    }
#else
#define ROSE_REDUX_(name, type, ptx, op)                                                                      \
    DEVICE type name(uint32_t mask, type v)                                                                  \
    {                                                                                                        \
        type r;                                                                                              \
        asm volatile("redux.sync." ptx " %0, %1, %2;" : "=r"(r) : "r"(v), "r"(mask));                        \
        return r;                                                                                            \
    }
#endif
ROSE_REDUX_(redux_add_u32, uint32_t, "add.u32", SIMT_ADD_U32)
ROSE_REDUX_(redux_min_u32, uint32_t, "min.u32", SIMT_MIN_U32)
ROSE_REDUX_(redux_max_u32, uint32_t, "max.u32", SIMT_MAX_U32)
ROSE_REDUX_(redux_min_s32, int32_t, "min.s32", SIMT_MIN_S32)
ROSE_REDUX_(redux_max_s32, int32_t, "max.s32", SIMT_MAX_S32)
ROSE_REDUX_(redux_and_b32, uint32_t, "and.b32", SIMT_AND_B32)
ROSE_REDUX_(redux_or_b32, uint32_t, "or.b32", SIMT_OR_B32)
ROSE_REDUX_(redux_xor_b32, uint32_t, "xor.b32", SIMT_XOR_B32)

/* Butterfly reductions over segments of `width` lanes (a constant power of two); every lane gets the result, and the
 * order of additions is the same in every lane. All 32 lanes must call. */
DEVICE float warp_sum_f32(float v, uint32_t width)
{
    UNROLL for (uint32_t m = width / 2; m; m /= 2) v += shuffle_xor_f32(FULL_WARP, v, m, width);
    return v;
}
DEVICE float warp_max_f32(float v, uint32_t width)
{
    UNROLL for (uint32_t m = width / 2; m; m /= 2)
    {
        float o = shuffle_xor_f32(FULL_WARP, v, m, width);
        v = o > v ? o : v;
    }
    return v;
}
DEVICE uint32_t warp_sum_u32(uint32_t v, uint32_t width)
{
    UNROLL for (uint32_t m = width / 2; m; m /= 2) v += shuffle_xor_u32(FULL_WARP, v, m, width);
    return v;
}
/* Inclusive prefix sum over the 32 lanes. */
DEVICE uint32_t warp_scan_u32(uint32_t v)
{
    UNROLL for (uint32_t d = 1; d < WARP; d *= 2)
    {
        uint32_t o = shuffle_up_u32(FULL_WARP, v, d, WARP);
        if (thread_x() % WARP >= d) v += o;
    }
    return v;
}

/* ---- barriers ------------------------------------------------------------------------------------------------------
 * bar.warp.sync: orders memory among the lanes of mask. */
DEVICE void warp_sync(uint32_t mask)
{
#ifdef ROSE_SIMT
    simt_warp_sync(mask);
#else
    asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
#endif
}
/* All threads of the block. No thread may have returned before. */
DEVICE void block_sync(void)
{
#ifdef ROSE_SIMT
    simt_barrier(0, 0, SIMT_BAR_SYNC);
#else
    asm volatile("bar.sync 0;" ::: "memory");
#endif
}
/* Named barrier `id` (1..15) among `threads` threads (a multiple of 32; whole warps): wait for all. */
DEVICE void barrier_sync(uint32_t id, uint32_t threads)
{
#ifdef ROSE_SIMT
    simt_barrier(id, threads, SIMT_BAR_SYNC);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}
/* The producer's half of a named barrier: counts as arrived, does not wait. Its earlier accesses are ordered before
 * those of the threads that barrier_sync on it. */
DEVICE void barrier_arrive(uint32_t id, uint32_t threads)
{
#ifdef ROSE_SIMT
    simt_barrier(id, threads, SIMT_BAR_ARRIVE);
#else
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}
/* block_sync that also counts the threads whose pred holds; bar.red.popc. */
DEVICE uint32_t block_sync_count(bool pred)
{
#ifdef ROSE_SIMT
    return simt_barrier_count(pred);
#else
    uint32_t r;
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; bar.red.popc.u32 %0, 0, p; }"
                 : "=r"(r)
                 : "r"((uint32_t)pred)
                 : "memory");
    return r;
#endif
}
DEVICE bool block_sync_or(bool pred)
{
    return block_sync_count(pred) != 0;
}

/* ---- time, and the end ---------------------------------------------------------------------------------------------
 * Nanoseconds of a counter that all SMs share (it ticks coarsely: up to a microsecond). */
DEVICE uint64_t global_timer(void)
{
#ifdef ROSE_SIMT
    return simt_global_timer();
#else
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
#endif
}
/* Cycles of the caller's SM. */
DEVICE uint64_t clock_cycles(void)
{
#ifdef ROSE_SIMT
    return simt_global_timer();
#else
    uint64_t t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t));
    return t;
#endif
}
/* Sleeps for about ns nanoseconds (at most 1e6; 0 to twice that). */
DEVICE void nano_sleep(uint32_t ns)
{
#ifdef ROSE_SIMT
    simt_nano_sleep(ns);
#else
    asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory");
#endif
}
/* Ends the grid with an error (the launch fails, the context is lost). */
DEVICE void trap(void)
{
#ifdef ROSE_SIMT
    simt_trap();
#else
    asm volatile("trap;");
#endif
}
DEVICE uint32_t sm_id(void)
{
#ifdef ROSE_SIMT
    return simt_id(SIMT_ID_slot);
#else
    uint32_t r;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(r));
    return r;
#endif
}

/* ---- bit counts (popc, clz, brev, prmt, shf, lop3 are what these compile to) -------------------------------------------- */
DEVICE uint32_t popcount_u32(uint32_t v)
{
#ifdef ROSE_SIMT
    return (uint32_t)__builtin_popcount(v);
#else
    return (uint32_t)__popc((int)v);
#endif
}
/* Leading zeros; 32 for 0. */
DEVICE uint32_t clz_u32(uint32_t v)
{
#ifdef ROSE_SIMT
    return v ? (uint32_t)__builtin_clz(v) : 32;
#else
    return (uint32_t)__clz((int)v);
#endif
}
/* Index of the lowest set bit plus one; 0 for 0. */
DEVICE uint32_t ffs_u32(uint32_t v)
{
#ifdef ROSE_SIMT
    return (uint32_t)__builtin_ffs((int)v);
#else
    return (uint32_t)__ffs((int)v);
#endif
}
/* Four bytes chosen from the eight of b:a by the four selector nibbles (bit 3 of a nibble replicates the sign). */
DEVICE uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t selector)
{
#ifdef ROSE_SIMT
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = selector >> (4 * i) & 0xf;
        uint8_t byte = (uint8_t)(both >> (8 * (s & 7)));
        if (s & 8) byte = (byte & 0x80) ? 0xff : 0;
        r |= (uint32_t)byte << (8 * i);
    }
    return r;
#else
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
#endif
}
/* v turned left by `by` bits, modulo 32 (shf.l.wrap, PTX 9.7.8). */
DEVICE uint32_t rotate_left(uint32_t v, uint32_t by)
{
#ifdef ROSE_SIMT
    return v << (by & 31) | v >> ((0u - by) & 31);
#else
    uint32_t r;
    asm("shf.l.wrap.b32 %0, %1, %1, %2;" : "=r"(r) : "r"(v), "r"(by));
    return r;
#endif
}

#endif
