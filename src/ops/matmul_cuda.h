/* Matrix products on CUDA: which kernel a shape gets, and op_matmul's launches. */
#ifndef ROSE_OPS_MATMUL_CUDA_H
#define ROSE_OPS_MATMUL_CUDA_H

#include "kernels/params/gemm.h"
#include "ops/matmul.h"
#include "ops/plan.h"

struct matmul_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t k;
    int parts;
    int32_t n[GEMM_PARTS]; /* out-features of each */
    enum op_activation act;
    bool gated; /* two parts of equal n: one result */
    bool bias, accumulate;
    bool out_f32;     /* y is F32, else BF16 */
    bool pairs;       /* two neighbours of y may be stored at once: even offsets and strides */
    bool deterministic;
    int tile; /* a measured choice: 1 + index into the table of tiles; 0: the plan's own */
};
enum rose_status matmul_cuda_plan(const struct matmul_shape *shape, const struct device_info *device, struct plan *out,
                                  struct rose_error *err);
/* Fills tiles, splits and each part's first tile for a plan; part[].n is there. */
void matmul_cuda_params(const struct plan *plan, struct gemm_params *params);

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
