/* Matrix products on CUDA: weights, and op_matmul's launches. */
#ifndef ROSE_OPS_MATMUL_CUDA_H
#define ROSE_OPS_MATMUL_CUDA_H

#include "ops/matmul.h"

/* op_matmul on CUDA. */
enum rose_status matmul_cuda(struct program *program, const struct op_matmul *op, struct rose_error *err);

/* Weights: bytes of [n, k] in bf16; 0 where the format cannot be converted. */
size_t matmul_cuda_weight_bytes(const struct tensor *source);
/* Rows [row, row + rows) of a matrix as bf16 in host memory [rows, k]: what is uploaded. Any thread. */
void matmul_cuda_weight_rows(const struct tensor *source, int64_t row, int64_t rows, uint16_t *out);
/* Describes a weight whose rows somebody has put (or will put) into device memory. */
enum rose_status matmul_cuda_weight(const struct tensor *source, void *memory, struct op_weight *out, struct rose_error *err);
/* Converts where needed, copies and waits. */
enum rose_status matmul_cuda_weight_pack(struct device *device, const struct tensor *source, void *memory, struct op_weight *out,
                                         struct rose_error *err);

#endif
