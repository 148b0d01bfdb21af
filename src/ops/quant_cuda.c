#include "ops/quant_cuda.h"

#include <stddef.h>

#include "ops/value.h"

enum rose_status quant_cuda_blocks_plan(int64_t rows, int64_t cols, const struct device_info *device, struct plan *out, struct rose_error *err)
{
    enum { SIDE = 128, THREADS = 512 };
    if (rows < 1 || cols < 8 || cols % 8 || rows > INT32_MAX || cols > INT32_MAX)
        return status_set(err, ROSE_UNSUPPORTED, "quantise: weights [%lld, %lld]; the CUDA kernel takes rows of multiples of 8", (long long)rows, (long long)cols);
    int64_t across = (cols + SIDE - 1) / SIDE;
    if (across * ((rows + SIDE - 1) / SIDE) > INT32_MAX) return status_set(err, ROSE_UNSUPPORTED, "quantise: more than %d blocks", INT32_MAX);
    *out = (struct plan){.kernel = "quant_blocks", .rows = rows, .times = (int32_t)across, .per = SIDE, .tiles = true, .block = THREADS};
    plan_int(out, "SIDE", SIDE);
    plan_int(out, "THREADS", THREADS);
    out->bytes = (double)rows * (double)cols * 3 + 4.0 * (double)across * (double)((rows + SIDE - 1) / SIDE);
    out->ops = (double)rows * (double)cols * 4;
    plan_once(out, device, 16, 0);
    plan_stream(out, device, 0.3);
    return ROSE_OK;
}

enum rose_status quant_cuda_tensor_plan(const struct scale_tensor_shape *s, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    enum { THREADS = 256, DEEP = 4, RESIDENT = 4 }; /* blocks an SM: their loads in flight fill it, and few meet in memory */
    int vec = plan_vector(d, (int64_t)s->cols * 2);
    if (s->rows < 1 || s->cols < 8 || !vec || s->rows > UINT32_MAX / (s->cols * 2 / vec))
        return status_set(err, ROSE_UNSUPPORTED, "scale: a tensor [%lld, %d]; the CUDA kernel takes rows of multiples of 8, less than 64 GiB", (long long)s->rows, s->cols);
    if (s->kind != SCALE_TENSOR_E4M3 && s->kind != SCALE_TENSOR_NVFP4) return status_set(err, ROSE_INVALID, "scale: unknown kind %d", s->kind);
    int64_t rounds = (s->rows * (s->cols * 2 / vec) + THREADS * DEEP - 1) / (THREADS * DEEP);
    *out = (struct plan){.kernel = "scale_tensor", .rows = s->rows, .block = THREADS};
    out->times = (int32_t)ROSE_MIN((int64_t)d->units * RESIDENT, rounds);
    out->per = INT32_MAX, out->tiles = true;
    plan_int(out, "N", s->cols);
    plan_int(out, "VEC_BYTES", vec);
    plan_int(out, "THREADS", THREADS);
    plan_int(out, "DEEP", DEEP);
    plan_int(out, "KIND", s->kind);
    plan_element(out, s->f16);
    out->bytes = (double)s->rows * s->cols * 2 + 4;
    out->ops = (double)s->rows * s->cols;
    /* The reduction, then what the last block waits for: its count, the largest (not measured). */
    plan_stream(out, d, 1.2);
    return ROSE_OK;
}

static enum rose_status check_rows(const struct program *program, const struct op_value *x, struct rose_error *err)
{
    if (program->device->info.kind != DEVICE_CUDA) return status_set(err, ROSE_UNSUPPORTED, "quantise: a kernel of CUDA devices");
    ROSE_TRY(value_check(program, "quantise", "x", x, x->cols, x->rows, err));
    return value_aligned16(x) ? ROSE_OK : status_set(err, ROSE_UNSUPPORTED, "quantise: rows of stride %d from %d are no whole 16 bytes", x->stride, x->offset);
}

enum rose_status quant_cuda_blocks(struct program *program, const struct op_value *x, program_buffer_id y, program_buffer_id scale, int64_t scale_stride, struct rose_error *err)
{
    struct quant_blocks_params p = {.x_stride = x->stride, .scale_stride = scale_stride, .cols = (uint32_t)x->cols};
    struct program_launch l = {.name = "quantise blocks", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(check_rows(program, x, err));
    if (value_f16(x)) return status_set(err, ROSE_UNSUPPORTED, "quantise: blocks of 128 x 128 are made of BF16");
    if (scale_stride < (x->cols + 127) / 128) return status_set(err, ROSE_INVALID, "quantise: scales of %d columns do not fit %lld", x->cols, (long long)scale_stride);
    ROSE_TRY(quant_cuda_blocks_plan(plan_rows(program, x->rows), x->cols, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, x->rows, offsetof(struct quant_blocks_params, rows), &l, err));
    value_use(&l, x, PROGRAM_READ, offsetof(struct quant_blocks_params, x));
    program_use(&l, y, PROGRAM_WRITE, offsetof(struct quant_blocks_params, y));
    program_use(&l, scale, PROGRAM_WRITE, offsetof(struct quant_blocks_params, scale));
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status quant_cuda_tensor(struct program *program, int kind, const struct op_value *x, program_buffer_id scale, struct rose_error *err)
{
    struct scale_tensor_shape s = {.rows = plan_rows(program, x->rows), .cols = x->cols, .kind = kind, .f16 = value_f16(x)};
    struct scale_tensor_params p = {.x_stride = x->stride};
    struct program_launch l = {.name = "scale", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(check_rows(program, x, err));
    ROSE_TRY(quant_cuda_tensor_plan(&s, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, x->rows, offsetof(struct scale_tensor_params, rows), &l, err));
    value_use(&l, x, PROGRAM_READ, offsetof(struct scale_tensor_params, x));
    program_use(&l, scale, PROGRAM_WRITE, offsetof(struct scale_tensor_params, scale));
    program_use(&l, program_counters(program, "scale of a tensor", 8), PROGRAM_UPDATE, offsetof(struct scale_tensor_params, work));
    program_add(program, &l);
    return ROSE_OK;
}
