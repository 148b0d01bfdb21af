/* The plan of the CUDA norm kernel (kernels/cuda/norm_rows.cu). */
#ifndef ROSE_OPS_NORM_CUDA_H
#define ROSE_OPS_NORM_CUDA_H

#include "ops/act_cuda.h"
#include "ops/norm.h"
#include "ops/plan.h"

/* Rows straight into registers (norm_rows), through shared memory by bulk copies (norm_bulk: many rows, sm_90 and later), or into
 * registers a row ahead (norm_ahead: many rows); where one cannot be, the first. */
enum norm_form { NORM_FORM_AUTO, NORM_FORM_ROWS, NORM_FORM_BULK, NORM_FORM_AHEAD };

struct norm_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t cols;
    enum op_norm_kind kind;
    int weight, bias; /* bytes an element (4: f32, 2: as the rows), 0: none */
    bool add, accumulate, f16; /* f16: rows are f16, else bf16 */
    float eps, offset, alpha; /* alpha 0 means 1 */
    int out;                  /* ACT_OUT_*: what y is stored as */
    bool scale_up, tiled;     /* as struct act_shape */
    int threads, repeat,
        block; /* measured choices: threads a row, rows a thread, threads a block; 0: the plan's own */
    enum norm_form form;
    int stages, resident; /* rows ahead (NORM_FORM_BULK), blocks an SM; 0: the plan's own */
    bool bulk_store;
    int stream; /* measured choice, of plan_once */
};
enum rose_status norm_cuda_plan(const struct norm_shape *shape, const struct device_info *device,
                                struct plan *out, struct rose_error *err);

/* op_norm on CUDA, its arguments checked. */
enum rose_status norm_cuda(struct program *program, const struct op_norm *op, struct rose_error *err);

#endif
