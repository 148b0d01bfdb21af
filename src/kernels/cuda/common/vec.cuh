/* The widest vector of an architecture's global memory instructions, chosen by the plan: VEC_BYTES is 16 or 32 (sm_100 and
 * later: one instruction; before, two). Eight or sixteen elements, four or eight f32. Rows that no such vectors divide take 8 or 4
 * bytes (four or two elements). */
#ifndef ROSE_CUDA_VEC_CUH
#define ROSE_CUDA_VEC_CUH

#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/memory.cuh"

#if VEC_BYTES == 32
typedef u32x8 vec;
#define vec_ld ld32
#define vec_ld_nc ld32_nc
#define vec_ld_keep ld32_keep
#define vec_st st32
#define vec_st_stream st32_stream
#elif VEC_BYTES == 16
typedef u32x4 vec;
#define vec_ld ld16
#define vec_ld_nc ld16_nc
#define vec_ld_keep ld16_keep
#define vec_st st16
#define vec_st_stream st16_stream
#elif VEC_BYTES == 8
typedef u32x2 vec;
#define vec_ld ld8
#define vec_ld_nc ld8_nc
#define vec_ld_keep ld8_keep
#define vec_st st8
#define vec_st_stream st8_stream
#elif VEC_BYTES == 4
typedef struct {
    uint32_t v[1];
} vec;
DEVICE vec vec_of_word(uint32_t v)
{
    vec r;
    r.v[0] = v;
    return r;
}
#define vec_ld(p) vec_of_word(ld4(p))
#define vec_ld_nc(p) vec_of_word(ld4_nc(p))
#define vec_ld_keep(p) vec_of_word(ld4_keep(p))
#define vec_st(p, x) st4(p, (x).v[0])
#define vec_st_stream(p, x) st4_stream(p, (x).v[0])
#else
#error "VEC_BYTES is 4, 8, 16 or 32"
#endif

/* Rows that a grid reads and writes once and that are larger than L2: STREAM (0 unless given; 16-byte vectors) bit 0: what it reads, bit 1:
 * what it writes leaves L2 first. */
#ifndef STREAM
#define STREAM 0
#endif
#if STREAM
STATIC_ASSERT(VEC_BYTES == 16 || VEC_BYTES == 32, "policies are for vectors of 16 bytes, or two of them");
#endif
#if STREAM & 1
#if VEC_BYTES == 32
DEVICE vec vec_ld_once(const void *p)
{
    const u32x4 a = ld16_policy(p, l2_evict_first()), b = ld16_policy((const char *)p + 16, l2_evict_first());
    vec r;
    UNROLL for (int i = 0; i < 4; i++) r.v[i] = a.v[i], r.v[4 + i] = b.v[i];
    return r;
}
#else
#define vec_ld_once(p) ld16_policy(p, l2_evict_first())
#endif
#define vec_ld_nc_once vec_ld_once
#else
#define vec_ld_once vec_ld
#define vec_ld_nc_once vec_ld_nc
#endif
#if STREAM & 2
#if VEC_BYTES == 32
DEVICE void vec_st_once(void *p, vec x)
{
    UNROLL for (int h = 0; h < 2; h++)
    {
        const u32x4 half = {{x.v[4 * h], x.v[4 * h + 1], x.v[4 * h + 2], x.v[4 * h + 3]}};
        st16_policy((char *)p + 16 * h, half, l2_evict_first());
    }
}
#else
#define vec_st_once(p, x) st16_policy(p, x, l2_evict_first())
#endif
#define st16_once(p, x) st16_policy(p, x, l2_evict_first())
#define st8_once(p, x) st8_policy(p, x, l2_evict_first())
#define st4_once(p, x) st4_policy(p, x, l2_evict_first())
#else
#define vec_st_once vec_st
#define st16_once st16
#define st8_once st8
#define st4_once st4
#endif

#define VEC_WORDS (VEC_BYTES / 4)
#define VEC_BF16 (VEC_BYTES / 2) /* 16-bit elements a vector */

DEVICE vec vec_zero(void)
{
    vec r;
    UNROLL for (int i = 0; i < VEC_WORDS; i++) r.v[i] = 0;
    return r;
}
/* The same bits, of which the compiler knows nothing more: what was made of them before (floats, twice the registers) is made again
 * instead of kept. */
DEVICE void vec_forget(vec *x)
{
#ifdef ROSE_SIMT
    (void)x;
#else
    UNROLL for (int i = 0; i < VEC_WORDS; i++) asm volatile("" : "+r"(x->v[i]));
#endif
}
/* VEC_BF16 floats of a vector of elements, and back. */
DEVICE void vec_to_f32(const vec *x, float *out)
{
    UNROLL for (int i = 0; i < VEC_WORDS; i++)
    {
        out[2 * i] = element2_lo_f32(as_element2(x->v[i]));
        out[2 * i + 1] = element2_hi_f32(as_element2(x->v[i]));
    }
}
DEVICE vec vec_from_f32(const float *x)
{
    vec r;
    UNROLL for (int i = 0; i < VEC_WORDS; i++) r.v[i] = f32_to_element2(x[2 * i], x[2 * i + 1]).bits;
    return r;
}
/* VEC_BF16 constants that nobody writes, at element `at` (a multiple of VEC_BF16) of a table of f32 (bytes 4) or elements
 * (bytes 2). */
DEVICE void vec_ld_table(const void *table, uint32_t at, int bytes, float *out)
{
    if (bytes == 2) {
        vec w = vec_ld_keep((const char *)table + (size_t)at * 2);
        vec_to_f32(&w, out);
    } else {
        UNROLL for (int h = 0; h < 2; h++)
        {
            vec w = vec_ld_keep((const char *)table + (size_t)at * 4 + h * VEC_BYTES);
            UNROLL for (int i = 0; i < VEC_WORDS; i++) out[h * VEC_WORDS + i] = f32_from_bits(w.v[i]);
        }
    }
}

#endif
