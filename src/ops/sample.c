#include "ops/sample.h"

#include <stddef.h>

#include "kernels/cpu/sample.h"
#include "ops/sample_cuda.h"
#include "ops/value.h"

size_t op_sample_scratch(int32_t vocabulary)
{
    return sample_scratch(vocabulary);
}

static enum rose_status check(const struct program *program, const struct op_sample *op,
                              struct rose_error *err)
{
    int32_t v = op->logits.cols;
    ROSE_TRY(value_check_f32(program, "sample", "logits", &op->logits, v, EXTENT_SAMPLES, err));
    if (!op->rows || !op->output)
        return status_set(err, ROSE_INVALID, "sample: the rows' parameters or the output are missing");
    if (op->max_samples <= 0)
        return status_set(err, ROSE_INVALID, "sample: max_samples is %d", op->max_samples);
    if (op->history &&
        (!op->history_length || !op->prompt_length || op->slots <= 0 || op->history_stride <= 0))
        return status_set(err, ROSE_INVALID, "sample: a history needs its lengths, slots and stride");
    size_t have = program->device->workers ? workers_scratch(program->device->workers) : sample_scratch(v);
    if (have < sample_scratch(v))
        return status_set(err, ROSE_LIMIT,
                          "sample: a vocabulary of %d needs %zu bytes of scratch a thread and the device was "
                          "opened with %zu",
                          v, sample_scratch(v), have);
    return ROSE_OK;
}

/* The CUDA kernel's geometry, and the counters its blocks meet at. */
static enum rose_status on_cuda(struct program *program, const struct op_sample *op, struct sample_params *p,
                                struct program_launch *l, struct rose_error *err)
{
    struct sample_shape shape = {.rows = plan_rows(program, EXTENT_SAMPLES),
                                 .vocabulary = op->logits.cols,
                                 .modify = op->edits || op->mask || op->history};
    struct plan plan;
    if (op->logits.stride % 4 || op->logits.offset % 4)
        return status_set(err, ROSE_UNSUPPORTED, "sample: rows of stride %d and offset %d; the CUDA kernel takes multiples of 4",
                          op->logits.stride, op->logits.offset);
    ROSE_TRY(sample_cuda_plan(&shape, &program->device->info, &plan, &p->blocks, err));
    p->work_stride = sample_cuda_work(&shape);
    ROSE_TRY(plan_record(&plan, program, EXTENT_SAMPLES, offsetof(struct sample_params, rows_count), l, err));
    program_buffer_id counters = program_counters(program, "sample counters", (size_t)op->max_samples * 4);
    program_use(l, counters, PROGRAM_UPDATE, offsetof(struct sample_params, counters));
    return ROSE_OK;
}

enum rose_status op_sample(struct program *program, const struct op_sample *op, struct rose_error *err)
{
    ROSE_TRY(check(program, op, err));
    int32_t v = op->logits.cols;
    struct sample_params p = {.logits_stride = op->logits.stride,
                              .mask_stride = (v + 31) / 32,
                              .history_stride = op->history_stride,
                              .work_stride = sample_work(v),
                              .vocabulary = v,
                              .slots = op->slots,
                              .edits_max = op->edits_max,
                              .masks = op->masks};
    struct program_launch l = {
        .name = "sample", .layer = -1, .params = &p, .params_bytes = sizeof p, .cpu = sample_cpu};
    if (program->device->info.kind == DEVICE_CUDA) ROSE_TRY(on_cuda(program, op, &p, &l, err));
    value_use(&l, &op->logits, PROGRAM_UPDATE, offsetof(struct sample_params, logits));
    program_use(&l, op->rows, PROGRAM_READ, offsetof(struct sample_params, rows));
    program_use(&l, op->edits, PROGRAM_READ, offsetof(struct sample_params, edits));
    program_use(&l, op->mask, PROGRAM_READ, offsetof(struct sample_params, mask));
    program_use(&l, op->history, PROGRAM_UPDATE, offsetof(struct sample_params, history));
    program_use(&l, op->history_length, PROGRAM_UPDATE, offsetof(struct sample_params, history_length));
    program_use(&l, op->prompt_length, PROGRAM_READ, offsetof(struct sample_params, prompt_length));
    program_use(&l, op->output, PROGRAM_WRITE, offsetof(struct sample_params, output));
    program_use(&l, op->feed, PROGRAM_UPDATE, offsetof(struct sample_params, feed));
    program_buffer_id work = program_buffer(program, "sample work",
                                            (size_t)op->max_samples * (size_t)p.work_stride * sizeof(float));
    program_use(&l, work, PROGRAM_WRITE, offsetof(struct sample_params, work));
    l.cost.bytes_per[EXTENT_SAMPLES] = 4.0 * v;
    l.cost.ops_per[EXTENT_SAMPLES] = 1.0 * v;
    program_add(program, &l);
    return ROSE_OK;
}
