/* Keys and values into and out of blocks of 16 tokens (kv_layout.h). Each function exists once an instruction
 * set. */
#ifndef ROSE_KERNELS_CPU_KV_H
#define ROSE_KERNELS_CPU_KV_H

#include "kernels/cpu/kv_layout.h"

struct kv_kernels {
    /* One token's key f32 [d] or value f32 [e] into lane t (0..15) of a block. work: d or e uint16. */
    void (*store_k)(enum dtype dtype, uint8_t *block_k, int t, const float *k, int32_t d);
    void (*store_v)(enum dtype dtype, uint8_t *block_v, int t, const float *v, int32_t e);
    /* 16 keys into kt f32 [d][ld], columns 0..15; values t0 <= t < t1 into v f32 [16][ld]. */
    void (*load_k)(enum dtype dtype, const uint8_t *block_k, int32_t d, float *kt, int32_t ld);
    void (*load_v)(enum dtype dtype, const uint8_t *block_v, int32_t e, int t0, int t1, float *v, int32_t ld);
};

extern const struct kv_kernels kv_kernels_portable;
#if defined(__x86_64__)
extern const struct kv_kernels kv_kernels_avx2, kv_kernels_avx512;
#endif

#endif
