/* op_matmul: y = x W^T (+ bias), for weights of any stored format; one pass over x for several weights side by side. */
#ifndef ROSE_OPS_MATMUL_H
#define ROSE_OPS_MATMUL_H

#include "ops/norm.h"
#include "ops/op.h"

/* A weight as the device wants it, made once at load. n out-features, k in-features. */
struct op_weight {
    enum dtype dtype;
    int32_t n, k;
    const void *data;  /* packed or as in the file: layout tells */
    int32_t layout;    /* the device's own code, 0: rows as in the file */
    size_t bytes;
    double bytes_read; /* bytes a product reads, for the cost */
    const float *scales; /* CUDA, F8_E4M3: in device memory */
    int scales_kind;     /* FP8_CHANNELS, FP8_BLOCKS (kernels/params/gemm_fp8.h) */
};

/* Bytes op_weight_pack needs for this tensor [n, k] on this device; 0: used in place from the file. */
size_t op_weight_bytes(const struct device *device, const struct tensor *source);
/* Pack (or bind in place when memory is NULL and op_weight_bytes said 0). May use the device's workers. */
enum rose_status op_weight_pack(struct device *device, const struct tensor *source, void *memory, struct op_weight *out, struct rose_error *err);
/* The same where memory holds what an earlier op_weight_pack wrote for this tensor (CPU): nothing is packed but one group of 16 rows,
 * which `sample` picks, to compare. False: memory holds something else, or not a form that is packed. */
bool op_weight_adopt(const struct device *device, const struct tensor *source, const void *memory, size_t sample, struct op_weight *out);
/* Weights of F8_E4M3: do the scales cover it? And the error where a code is NaN. */
enum rose_status op_weight_check_scales(const struct tensor *source, struct rose_error *err);
enum rose_status op_weight_nan(const struct tensor *source, struct rose_error *err);
/* Row r of a packed weight as float32 [k]: used by the embedding gather of tied weights and by tests. */
void op_weight_row(const struct op_weight *weight, int32_t row, float *out);

enum op_activation { OP_ACT_NONE, OP_ACT_SILU, OP_ACT_GELU_TANH, OP_ACT_GELU_ERF, OP_ACT_RELU, OP_ACT_RELU2 };

enum { OP_MATMUL_PARTS = 4 };

struct op_matmul_part {
    const struct op_weight *weight;
    const float *bias;   /* f32 [n], host order, NULL: none */
    struct op_value y;   /* [rows, n] */
};

struct op_matmul {
    const char *name;    /* static, for traces */
    int layer;
    struct op_value x;   /* [rows, k] */
    int parts_count;
    struct op_matmul_part parts[OP_MATMUL_PARTS];
    enum op_activation activation;
    bool gated;          /* exactly two parts, gate and up, equal n: y of part 0 = activation(gate) * up */
    bool accumulate;     /* y += alpha * (...), the residual stream */
    float alpha;         /* multiplies the result (bias included); 0 means 1 */
    bool deterministic;  /* the same bits for a row whatever the number of rows */
    /* NULL: none. Else x is what this norm makes, which nobody else reads: its y is x, and it is recorded here, as a launch or inside the
     * product. */
    const struct op_norm *norm;
    int tile; /* FP8 weights and blocks on CUDA, a measured choice (matmul_fp8.h, matmul_plan.h); 0: the plan's own */
};
enum rose_status op_matmul(struct program *program, const struct op_matmul *op, struct rose_error *err);

#endif
