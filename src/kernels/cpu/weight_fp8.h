/* F8_E4M3 weights for the CPU products: one byte a weight, decoded in the product.
 *
 * A group of 16 rows (weight.h) is
 *
 *     scales f32[ceil(k / 128)][16], padded to 64 bytes | codes u8[k padded to 32][16]
 *
 * The products take 128 columns at a time: codes become float32 (exact), are multiplied with the float32 activations, and the sum is
 * multiplied with the columns' scale. Activations are not rounded, which is more exact than FP8 products that quantise them too. */
#ifndef ROSE_KERNELS_CPU_WEIGHT_FP8_H
#define ROSE_KERNELS_CPU_WEIGHT_FP8_H

#include "kernels/cpu/matmul.h"
#include "tensor/tensor.h"

enum { FP8_PIECE = 128, FP8_PIECE_BLOCKS = FP8_PIECE / CPU_BLOCK };

/* Pack groups [begin, end) of source (F8_E4M3 with scales) to data, the whole weight's memory. False: a code is NaN. */
bool weight_fp8_pack(const struct cpu_weight *w, const struct tensor *source, void *data, size_t begin, size_t end);
/* Row r as float32 [k]: code times scale, rounded once. */
void weight_fp8_row(const struct cpu_weight *w, int32_t row, float *out);
/* Is a code among n NaN (0x7f, 0xff)? */
bool weight_fp8_has_nan(const uint8_t *codes, size_t n);

/* out[height][16] = a float tile (matmul.h) times group `group`. rough: the tile is of bfloat16 pairs (matmul_bf16.c). */
void matmul_fp8(const struct matmul_kernels *kernels, const struct cpu_weight *w, size_t group, const uint8_t *tile, int height, bool rough, float *out);

/* A piece's codes [columns][16] (columns a multiple of 32) as float32 [columns][16]. */
typedef void fp8_panel_fn(const uint8_t *codes, int columns, void *panel);
void matmul_fp8_panel_portable(const uint8_t *codes, int columns, void *panel);
#if defined(__x86_64__)
void matmul_fp8_panel_avx2(const uint8_t *codes, int columns, void *panel);
void matmul_fp8_panel_avx512(const uint8_t *codes, int columns, void *panel);
/* As bfloat16 [columns / 2][16][2]. */
void matmul_fp8_pairs_avx512(const uint8_t *codes, int columns, void *panel);
#endif

#endif
