/* Element and block formats: what a weight, an activation or a cache entry is stored as, with its codec. */
#ifndef ROSE_TENSOR_DTYPE_H
#define ROSE_TENSOR_DTYPE_H

#include "base/status.h"

enum dtype {
    DTYPE_NONE,
    DTYPE_F64,
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_F8_E4M3,
    DTYPE_F8_E5M2,
    DTYPE_BOOL,
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_U16,
    DTYPE_I16,
    DTYPE_U32,
    DTYPE_I32,
    DTYPE_U64,
    DTYPE_I64,
    /* Block formats of GGUF: `block` elements along the row share scales. */
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_Q8_0,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,
    DTYPE_MXFP4,
    DTYPE_COUNT
};

struct dtype_info {
    const char *name; /* "F32", "Q4_K" */
    uint16_t block;   /* elements a block */
    uint16_t bytes;   /* bytes a block */
    bool decodes;     /* dtype_decode understands it (numbers that can be weights) */
};
const struct dtype_info *dtype_info(enum dtype dtype);

/* Bytes of a row of n elements; 0 when n is not whole blocks or the product overflows. */
size_t dtype_row_bytes(enum dtype dtype, size_t n);

/* n elements (whole blocks) to float32: exactly the value the format defines. The plain reference; fast ones are in kernels/cpu. */
void dtype_decode(enum dtype dtype, const void *src, float *dst, size_t n);
/* float32 to F32, F16, BF16, F8_*, Q8_0, Q4_0, Q4_1, MXFP4 (round to nearest even); ROSE_UNSUPPORTED for the others. F8_* saturate;
 * MXFP4 refuses NaN and infinity (ROSE_INVALID). */
enum rose_status dtype_encode(enum dtype dtype, const float *src, void *dst, size_t n, struct rose_error *err);

/* Single elements (bit patterns), round to nearest even; NaN stays NaN. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
static inline float bf16_to_f32(uint16_t h)
{
    union { uint32_t u; float f; } v = {(uint32_t)h << 16};
    return v.f;
}
static inline uint16_t f32_to_bf16(float f)
{
    union { float f; uint32_t u; } v = {f};
    if ((v.u & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(v.u >> 16 | 64);
    return (uint16_t)((v.u + 0x7FFF + (v.u >> 16 & 1)) >> 16);
}

#endif
