/* Matrix products on CUDA: weights, and op_matmul's launches. */
#ifndef ROSE_OPS_MATMUL_CUDA_H
#define ROSE_OPS_MATMUL_CUDA_H

#include "ops/matmul.h"

/* op_matmul on CUDA. */
enum rose_status matmul_cuda(struct program *program, const struct op_matmul *op, struct rose_error *err);

/* Weights: bytes on the device; 0 where the format cannot be read. Block formats that the kernels know (matmul_blocks.h) stay as they are,
 * all others become 16-bit [n, k]; expand: these too, for kernels that read nothing else. */
size_t matmul_cuda_weight_bytes(const struct tensor *source, bool expand);
/* Describes a weight whose rows somebody has put (or will put) into device memory. element: what rows that are no blocks and no FP8 are in,
 * BF16 (and without it) or F16, which saturates. */
enum rose_status matmul_cuda_weight_as(const struct tensor *source, bool expand, enum dtype element, void *memory, struct op_weight *out, struct rose_error *err);
enum rose_status matmul_cuda_weight(const struct tensor *source, bool expand, void *memory, struct op_weight *out, struct rose_error *err);
/* What is uploaded: rows [row, row + rows) of a matrix in that weight's form in host memory, and their bytes. row is a multiple of
 * MATMUL_CUDA_ROWS, and rows too unless they are the last. Any thread. */
enum { MATMUL_CUDA_ROWS = 16 };
size_t matmul_cuda_weight_rows_bytes(const struct op_weight *weight, int64_t rows);
/* False: a code of F8_E4M3 is NaN. */
bool matmul_cuda_weight_rows(const struct op_weight *weight, const struct tensor *source, int64_t row, int64_t rows, void *out);
/* Converts where needed, copies and waits. */
enum rose_status matmul_cuda_weight_pack(struct device *device, const struct tensor *source, void *memory, struct op_weight *out,
                                         struct rose_error *err);

#endif
