/* Random weights of every format for tests: random codes, scales of a sensible size. */
#ifndef ROSE_TESTS_KERNELS_WEIGHTS_RANDOM_H
#define ROSE_TESTS_KERNELS_WEIGHTS_RANDOM_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/dtype.h"

static uint64_t random_state = 88172645463325252u;
static inline uint32_t random_u32(void) /* xorshift64 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}
static inline float random_float(void)
{
    return (float)random_u32() / 2147483648.0f - 1.0f;
} /* [-1, 1) */

static const enum dtype weight_dtypes[] = {
    DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,   DTYPE_Q5_1,   DTYPE_Q8_0,
    DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};
enum { WEIGHT_DTYPES = sizeof weight_dtypes / sizeof *weight_dtypes };

static inline void put_half(uint8_t *p, float f)
{
    uint16_t h = f32_to_f16(f);
    memcpy(p, &h, 2);
}

/* n rows of k elements, malloc'ed. */
static inline void *random_weights(enum dtype dtype, size_t n, size_t k)
{
    const struct dtype_info *info = dtype_info(dtype);
    size_t blocks = n * k / info->block;
    uint8_t *data = malloc(blocks * info->bytes);
    if (!data) abort();
    for (size_t i = 0; i < blocks; i++) {
        uint8_t *b = data + i * info->bytes;
        if (dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16) {
            float f = random_float();
            uint16_t h = dtype == DTYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
            memcpy(b, dtype == DTYPE_F32 ? (void *)&f : (void *)&h, info->bytes);
            continue;
        }
        for (size_t j = 0; j < info->bytes; j++) b[j] = (uint8_t)random_u32();
        switch (dtype) {
        case DTYPE_Q4_1:
        case DTYPE_Q5_1:
        case DTYPE_Q4_K:
        case DTYPE_Q5_K:
            put_half(b, random_float() * 0.1f);
            put_half(b + 2, random_float() * 0.1f);
            break;
        case DTYPE_Q2_K:
            put_half(b + 80, random_float() * 0.1f);
            put_half(b + 82, random_float() * 0.1f);
            break;
        case DTYPE_Q3_K: put_half(b + 108, random_float() * 0.01f); break;
        case DTYPE_Q6_K: put_half(b + 208, random_float() * 0.01f); break;
        case DTYPE_MXFP4: b[0] = (uint8_t)(120 + random_u32() % 8); break;
        default: put_half(b, random_float() * 0.1f); break;
        }
    }
    return data;
}

#endif
