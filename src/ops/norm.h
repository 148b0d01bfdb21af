/* op_norm: RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016), with the forms models use. */
#ifndef ROSE_OPS_NORM_H
#define ROSE_OPS_NORM_H

#include "ops/op.h"

enum op_norm_kind { OP_NORM_RMS, OP_NORM_LAYER };

struct op_norm {
    int layer;
    enum op_norm_kind kind;
    float eps;
    float weight_offset; /* y = x_hat * (weight_offset + weight): 1 for Gemma, else 0 */
    const float *weight; /* f32 [cols], NULL: ones (OLMo) */
    const float *bias;   /* f32 [cols] or NULL */
    struct op_value x;   /* [rows, cols] */
    struct op_value add; /* optional: x += add first, x written back (residual) */
    struct op_value y;   /* [rows, cols]; may be x */
    bool accumulate;     /* y += alpha * norm(x): post-norms into the residual stream */
    float alpha;         /* 0 means 1 */
};
enum rose_status op_norm(struct program *program, const struct op_norm *op, struct rose_error *err);

#endif
