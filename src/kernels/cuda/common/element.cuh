/* The 16-bit element of a program's activations, weights and cache: bf16, or f16 with the constant ACT_F16 1. Kernels of a model's step
 * name it, and what converts and multiplies it, by these names, so that one source serves both; sums are float32 either way.
 *
 * Stores to f16 saturate at +-65504 (cvt.satfinite, no instruction more): one value out of half's range stays a large number, where an
 * infinity would make the next norm's row NaN. NaN stays NaN. */
#ifndef ROSE_CUDA_ELEMENT_CUH
#define ROSE_CUDA_ELEMENT_CUH

#include "kernels/cuda/common/convert.cuh"

#ifndef ACT_F16
#define ACT_F16 0
#endif

#if ACT_F16
typedef f16 element;
typedef f16x2 element2;
#define element_to_f32 f16_to_f32
#define f32_to_element f32_to_f16_finite
#define f32_to_element2 f32_to_f16x2_finite
#define element2_lo_f32 f16x2_lo_f32
#define element2_hi_f32 f16x2_hi_f32
#define as_element2 as_f16x2
#define element2_add f16x2_add
#define element2_mul f16x2_mul
#define element2_max f16x2_max
#define e4m3x2_to_element2 e4m3x2_to_f16x2
#define mma_element mma_f16
#define wgmma_element_ss wgmma_f16_ss
#define wgmma_element_rs wgmma_f16_rs
#define wgmma_element_rs_t wgmma_f16_rs_t
#else
typedef bf16 element;
typedef bf16x2 element2;
#define element_to_f32 bf16_to_f32
#define f32_to_element f32_to_bf16
#define f32_to_element2 f32_to_bf16x2
#define element2_lo_f32 bf16x2_lo_f32
#define element2_hi_f32 bf16x2_hi_f32
#define as_element2 as_bf16x2
#define element2_add bf16x2_add
#define element2_mul bf16x2_mul
#define element2_max bf16x2_max
#define e4m3x2_to_element2 e4m3x2_to_bf16x2
#define mma_element mma_bf16
#define wgmma_element_ss wgmma_bf16_ss
#define wgmma_element_rs wgmma_bf16_rs
#define wgmma_element_rs_t wgmma_bf16_rs_t
#endif

#endif
