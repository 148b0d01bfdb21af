/* Weights in GGUF block formats on CUDA: kept as they are in memory (kernels/params/matmul_blocks.h), read by kernels of their own. */
#ifndef ROSE_OPS_MATMUL_BLOCKS_H
#define ROSE_OPS_MATMUL_BLOCKS_H

#include "ops/embed.h"
#include "ops/matmul_plan.h"

/* BLOCKS_* of a format that the kernels read, -1 for every other type. */
int matmul_blocks_format(enum dtype dtype);

/* Bytes of [n, k] on the device: those of the file, rows filled up to a multiple of 16. 0: the kernels do not read this type or shape. */
size_t matmul_blocks_bytes(const struct tensor *source);
size_t matmul_blocks_tile_bytes(const struct tensor *source); /* of 16 rows */
/* Rows [row, row + rows) in the device's order: row is a multiple of 16, and rows too unless they are the last. Any thread. */
void matmul_blocks_rows(const struct tensor *source, int64_t row, int64_t rows, void *out);

/* Products of few rows: matmul_plan_make's branch for shapes with `blocks`. */
enum rose_status matmul_blocks_plan(const struct matmul_shape *shape, const struct device_info *device, struct matmul_plan *out, struct rose_error *err);

/* Of many rows, by wgmma (kernels/cuda/matmul_blocks_wgmma.cu); false where it does not run: no Hopper, x not for TMA, deterministic. */
bool matmul_blocks_wgmma_plan(const struct matmul_shape *shape, const struct device_info *device, struct matmul_plan *out);
/* Of many rows, by mma.sync (kernels/cuda/gemm_rows.cu). */
void matmul_blocks_gemm_plan(const struct matmul_shape *shape, const struct device_info *device, struct matmul_plan *out);
/* What reading the codes and x once costs. */
void matmul_blocks_cost(const struct matmul_shape *shape, const struct device_info *device, struct plan *out);

struct matmul_blocks_rows_shape {
    int64_t rows; /* to plan for */
    int32_t k;
    int format; /* BLOCKS_* */
    bool gather, accumulate, f16; /* f16: y is f16, else bf16 */
};
enum rose_status matmul_blocks_rows_plan(const struct matmul_blocks_rows_shape *shape, const struct device_info *device, struct plan *out,
                                         struct rose_error *err);

/* op_embed with a table in a block format. */
enum rose_status matmul_blocks_embed(struct program *program, const struct op_embed *op, struct rose_error *err);

#endif
