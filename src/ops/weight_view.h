/* A packed op_weight as the CPU kernels see it. */
#ifndef ROSE_OPS_WEIGHT_VIEW_H
#define ROSE_OPS_WEIGHT_VIEW_H

#include "kernels/cpu/weight.h"
#include "ops/matmul.h"

/* op_weight.layout */
enum {
    WEIGHT_LAYOUT_CPU_GROUPS = 1, /* kernels/cpu/weight.h */
    WEIGHT_LAYOUT_CUDA_ROWS = 2,  /* bf16 or f16 [n, k] in the device's memory, rows dense, 256-byte aligned */
    WEIGHT_LAYOUT_CUDA_BLOCKS = 3, /* a GGUF block format in the order of kernels/params/matmul_blocks.h, 256-byte aligned */
    WEIGHT_LAYOUT_CPU_ROWS = 5, /* rows as in the file, dense (op_table_pack): looked up, never multiplied */
    WEIGHT_LAYOUT_CUDA_FP8 = 4, /* e4m3 [n, k], rows dense, 256-byte aligned; behind them f32 scales (kernels/params/gemm_fp8.h) */
};

/* false: not a weight that op_weight_pack made for the CPU. */
static inline bool weight_view(const struct op_weight *weight, struct cpu_weight *out)
{
    return weight && weight->layout == WEIGHT_LAYOUT_CPU_GROUPS && weight->data &&
           cpu_weight_init(weight->dtype, weight->n, weight->k, weight->data, out);
}

#endif
