/* rose_bench_op, between its files. */
#ifndef ROSE_API_BENCH_OP_H
#define ROSE_API_BENCH_OP_H

#include "api/internal.h"
#include "device/program.h"
#include "ops/op.h"

enum { BENCH_OP_NUMBERS = 10, BENCH_OP_MEMORY = 16384 };

/* A number that shapes an op, and the values that are measured without --shape. */
struct bench_number {
    const char *name, *usual; /* "rows", "1,16,128" */
    int32_t most;
};

/* One case of an op: its numbers, its program, its memory. */
struct bench_case {
    struct device *device;
    int32_t value[BENCH_OP_NUMBERS]; /* in the order of the op's numbers */
    struct program *program;
    struct extents extents;
    double more_bytes, more_ops; /* that the launches' costs do not state */
    struct {
        void *p;
        size_t bytes;
    } memory[BENCH_OP_MEMORY];
    int memories;
    enum dtype weights; /* of the matrices of matmul and moe */
    const void *noise; /* 1 MiB of random values of the device's activation type, on the host */
};

struct bench_kind {
    const char *name;
    struct bench_number number[BENCH_OP_NUMBERS];
    void (*extents)(struct bench_case *c);
    /* Record the op once, with memory of its own. */
    enum rose_status (*record)(struct bench_case *c, struct rose_error *err);
};
extern const struct bench_kind bench_kinds[];
extern const size_t bench_kinds_count;

enum { BENCH_NOISE = 1 << 20 };

/* Memory of the case: random values, and a vector of weights about 1. */
void *bench_op_noise(struct bench_case *c, size_t bytes, struct rose_error *err);
float *bench_op_vector(struct bench_case *c, int32_t n, struct rose_error *err);
/* [rows, cols] of random values in the device's activation type, and in float32. */
enum rose_status bench_op_value(struct bench_case *c, const char *name, enum extent extent, int32_t rows, int32_t cols, struct op_value *out, struct rose_error *err);
enum rose_status bench_op_value_f32(struct bench_case *c, const char *name, enum extent extent, int32_t rows, int32_t cols, struct op_value *out, struct rose_error *err);
/* `bytes` of random values as a buffer. */
enum rose_status bench_op_lend(struct bench_case *c, const char *name, size_t bytes, program_buffer_id *buffer, struct rose_error *err);
/* A copy of host memory, which is read before this returns. */
void *bench_op_copy(struct bench_case *c, const void *from, size_t bytes, struct rose_error *err);

/* bench_op_quant.c: norm and act whose results are stored in a narrow format (CUDA; ACT_OUT_* of kernels/params/act_rows.h). */
enum rose_status bench_op_norm_quantised(struct bench_case *c, int32_t cols, bool add, bool layer, int32_t out, struct rose_error *err);
enum rose_status bench_op_act_quantised(struct bench_case *c, int32_t cols, bool gated, enum op_activation activation, int32_t out, struct rose_error *err);

/* The same for rows alone: `out` as above, 1 with the tensor's own scale, 8: e4m3 with a scale for each 128 x 128. */
enum rose_status bench_op_quantise(struct bench_case *c, struct rose_error *err);

/* bench_op_moe.c: tokens to their experts' rows, and back (CUDA). */
enum rose_status bench_op_dispatch(struct bench_case *c, struct rose_error *err);

/* bench_op_pages.c: keys and values between rows and pages; log-softmax at some tokens (CUDA). */
enum rose_status bench_op_pages(struct bench_case *c, struct rose_error *err);
enum rose_status bench_op_logprob(struct bench_case *c, struct rose_error *err);

#endif
