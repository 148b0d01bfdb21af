/* The plan of the CUDA kernel of activations and quantisers (kernels/cuda/act_rows.cu). */
#ifndef ROSE_OPS_ACT_CUDA_H
#define ROSE_OPS_ACT_CUDA_H

#include "kernels/params/act_rows.h"
#include "ops/elementwise.h"
#include "ops/plan.h"

struct act_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t cols;
    enum op_activation act; /* OP_ACT_NONE: quantise only */
    bool gated, f16; /* f16: rows are f16, else bf16 */
    float clamp, alpha, up_offset; /* gpt-oss: 7, 1.702, 1; clamp 0: none, alpha 0 means 1 */
    int out;                       /* ACT_OUT_* */
    bool scale_up;    /* mxfp8, mxfp4: power of two not below largest / maximum, instead of OCP's floor */
    bool tiled;       /* block scales of one byte in cuBLASLt's 128 x 4 tiles */
    int threads, per; /* measured choices; 0: the plan's own */
    int stream;       /* the same, of plan_once */
    int ahead, vec;   /* the same: blocks an SM of a grid that stays, each with a unit ahead; bytes of a vector (8 bits of 32: stores of 16 bytes) */
};
enum rose_status act_cuda_plan(const struct act_shape *shape, const struct device_info *device,
                               struct plan *out, struct rose_error *err);
/* Elements a scale serves: 128, 32, 16; 0 where a row or the tensor has one. */
int act_cuda_group(int out);
/* Bytes of a row of n results and its scales. */
double act_cuda_row_bytes(int out, int64_t n);

/* op_act on CUDA, its arguments checked. */
enum rose_status act_cuda(struct program *program, const struct op_act *op, struct rose_error *err);

#endif
