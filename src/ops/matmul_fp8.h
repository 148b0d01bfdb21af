/* Products with weights of F8_E4M3 and scales on CUDA (kernels/params/gemm_fp8.h): plans, weights, op_matmul's launches. */
#ifndef ROSE_OPS_MATMUL_FP8_H
#define ROSE_OPS_MATMUL_FP8_H

#include "kernels/params/gemm_fp8.h"
#include "ops/matmul_plan.h"
#include "ops/value.h"

/* Which kernel: few rows read weights once (gemv_fp8_ring, gemv_fp8) or in tiles, activations stay bf16; many rows, and on Hopper more than 16,
 * quantise them and multiply codes, where there are instructions for it and the caller does not ask for determinism. */
struct matmul_fp8_shape {
    /* tma: x as e4m3 and weights. tile: 0, or 1 + index into gemm_fp8's tiles, 11: gemm_fp8_wgmma, 12 + index into its variants, 31:
     * gemv_fp8_ring (odd: 64, even: 128 weight rows; from 33 on x is e4m3). */
    struct matmul_shape s;
    int scales;            /* FP8_CHANNELS, FP8_BLOCKS */
    bool can_quantise;     /* x may become e4m3 (FP8_BLOCKS: k is whole blocks) */
    bool quantised;        /* measured choice: as if there were many rows */
    bool ring;             /* x's rows are 16-byte aligned, of a gated pair the up matrix lies behind the gate */
};

struct matmul_fp8_plan {
    struct matmul_plan m;
    bool a8; /* x is e4m3, with scales */
};

enum rose_status matmul_fp8_plan(const struct matmul_fp8_shape *shape, const struct device_info *device, struct matmul_fp8_plan *out, struct rose_error *err);
/* As matmul_plan_box, of codes in units of two bytes. x_stride in elements of x. */
const void *matmul_fp8_box(const struct matmul_fp8_plan *plan, const struct gemm_params *params, int part, int64_t rows, struct layout_tma *out);

/* Bytes on the device, codes [n, k] and behind them the scales; 0: the kernels do not read this shape, or its scales are of other blocks. */
size_t matmul_fp8_bytes(const struct tensor *source);
/* Describes a weight at `memory`, as matmul_cuda_weight. */
struct op_weight matmul_fp8_weight(const struct tensor *source, void *memory);
/* Its scales as the device has them, floats: matmul_fp8_scales_count of them, at w->scales. */
size_t matmul_fp8_scales_count(const struct tensor *source);
void matmul_fp8_scales(const struct tensor *source, float *out);
/* Puts them there, and waits. */
enum rose_status matmul_fp8_copy_scales(struct device *device, const struct tensor *source, const struct op_weight *weight, struct rose_error *err);
/* Rows of e4m3 in buffers of a program: codes [rows, cols], their scales (floats) so far from a row, and from 128 columns, to the next. */
struct fp8_rows {
    program_buffer_id codes, scales;
    int64_t row_stride, group_stride;
};
/* Records x's quantising into them; out: ACT_OUT_E4M3_128 or ACT_OUT_E4M3_TOKEN. */
enum rose_status matmul_fp8_quantise(struct program *program, const struct op_value *x, int layer, int out, const struct fp8_rows *to, struct rose_error *err);
/* None of n codes is NaN. */
bool matmul_fp8_good(const void *codes, size_t n);

/* Parts [begin, begin + count) of an op, all of this layout and of one kind of scales. */
enum rose_status matmul_fp8_record(struct program *program, const struct op_matmul *op, int begin, int count, struct rose_error *err);

#endif
