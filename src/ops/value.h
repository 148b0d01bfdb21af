/* What every op does with its op_values: check them, declare them to the program. */
#ifndef ROSE_OPS_VALUE_H
#define ROSE_OPS_VALUE_H

#include "ops/op.h"

static inline enum rose_status value_check_shape(const char *op, const char *name, const struct op_value *v,
                                                 int32_t cols, enum extent rows, struct rose_error *err)
{
    if (v->cols != cols || cols <= 0)
        return status_set(err, ROSE_INVALID, "%s: %s has %d columns, %d are needed", op, name, v->cols, cols);
    if (v->rows != rows || (unsigned)rows >= EXTENT_COUNT)
        return status_set(err, ROSE_INVALID, "%s: %s counts its rows by another extent than the others", op,
                          name);
    if (v->offset < 0 || v->stride < v->cols)
        return status_set(err, ROSE_INVALID, "%s: %s has offset %d, stride %d for %d columns", op, name,
                          v->offset, v->stride, v->cols);
    return ROSE_OK;
}

/* A present value (float32 on the CPU, bfloat16 or float16 on CUDA) of `cols` columns and the given rows; `op` and
 * `name` go into the message. */
static inline enum rose_status value_check(const struct program *program, const char *op, const char *name,
                                           const struct op_value *v, int32_t cols, enum extent rows,
                                           struct rose_error *err)
{
    if (!v->buffer || v->buffer >= program->buffers_count)
        return status_set(err, ROSE_INVALID, "%s: %s is missing", op, name);
    bool cuda = program->device->info.kind == DEVICE_CUDA;
    if (cuda ? v->dtype != DTYPE_BF16 && v->dtype != DTYPE_F16 : v->dtype != DTYPE_F32)
        return status_set(err, ROSE_UNSUPPORTED, "%s: %s is %s; the %s values", op, name,
                          dtype_info(v->dtype)->name,
                          cuda ? "CUDA kernels compute on BF16 and F16" : "CPU computes on F32");
    return value_check_shape(op, name, v, cols, rows, err);
}

/* The same for logits and gates, which are float32 on every device. */
static inline enum rose_status value_check_f32(const struct program *program, const char *op, const char *name,
                                               const struct op_value *v, int32_t cols, enum extent rows,
                                               struct rose_error *err)
{
    if (!v->buffer || v->buffer >= program->buffers_count)
        return status_set(err, ROSE_INVALID, "%s: %s is missing", op, name);
    if (v->dtype != DTYPE_F32)
        return status_set(err, ROSE_UNSUPPORTED, "%s: %s is %s and must be F32", op, name,
                          dtype_info(v->dtype)->name);
    return value_check_shape(op, name, v, cols, rows, err);
}

/* Is the program's element float16? Values that a kernel takes together are of one type: of another one than x is an error. */
static inline bool value_f16(const struct op_value *x) { return x->dtype == DTYPE_F16; }
static inline enum rose_status value_check_alike(const char *op, const struct op_value *x, const struct op_value *y, struct rose_error *err)
{
    if (!y->buffer || y->dtype == x->dtype || y->dtype == DTYPE_F32) return ROSE_OK;
    return status_set(err, ROSE_UNSUPPORTED, "%s: values of %s and %s in one kernel", op, dtype_info(x->dtype)->name, dtype_info(y->dtype)->name);
}

/* Rows that fit the value's buffer: the most that a program can be run with. */
static inline int64_t value_max_rows(const struct program *program, const struct op_value *v)
{
    size_t elements = program->buffers[v->buffer].bytes / dtype_info(v->dtype)->bytes;
    if (v->rows == EXTENT_ONE || elements < (size_t)v->offset + (size_t)v->cols) return 1;
    return (int64_t)((elements - (size_t)v->offset - (size_t)v->cols) / (size_t)v->stride + 1);
}

/* Every row begins at a multiple of 16 bytes from the buffer's start. */
static inline bool value_aligned16(const struct op_value *v)
{
    int64_t element = dtype_info(v->dtype)->bytes;
    return v->stride * element % 16 == 0 && v->offset * element % 16 == 0;
}

/* program_use at the value's first column. */
static inline void value_use(struct program_launch *l, const struct op_value *v, enum program_mode mode,
                             size_t param)
{
    program_use(l, v->buffer, mode, param);
    l->uses[l->uses_count - 1].byte_offset = (uint32_t)v->offset * dtype_info(v->dtype)->bytes;
}

#endif
