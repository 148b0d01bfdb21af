#define _GNU_SOURCE
#include "ops/matmul.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/weight_fp8.h"
#include "ops/matmul_cuda.h"
#include "ops/value.h"
#include "ops/weight_view.h"

_Static_assert((int)MATMUL_SILU == (int)OP_ACT_SILU && (int)MATMUL_RELU2 == (int)OP_ACT_RELU2,
               "one order of activations");
_Static_assert((int)MATMUL_PARTS == (int)OP_MATMUL_PARTS, "as many parts");

/* ---- weights ---- */

static bool packed_form(const struct tensor *source, struct cpu_weight *out)
{
    return cpu_weight_init(source->dtype, tensor_rows(source), tensor_cols(source), NULL, out);
}

enum rose_status op_weight_check_scales(const struct tensor *source, struct rose_error *err)
{
    const struct tensor_scales *s = source->scales;
    if (source->dtype != DTYPE_F8_E4M3) return ROSE_OK;
    if (!s || !s->value) return status_set(err, ROSE_UNSUPPORTED, "an F8_E4M3 weight without scales");
    if (s->block_rows < 1 || s->block_cols < 1 || (s->block_cols % 128 && s->block_cols < tensor_cols(source)) ||
        (source->scales_row + tensor_rows(source) - 1) / s->block_rows >= s->rows || (tensor_cols(source) - 1) / s->block_cols >= s->cols)
        return status_set(err, ROSE_INTERNAL, "%s: scales [%lld, %lld] of blocks of %lld x %lld do not cover it", s->name, (long long)s->rows, (long long)s->cols,
                          (long long)s->block_rows, (long long)s->block_cols);
    return ROSE_OK;
}

enum rose_status op_weight_nan(const struct tensor *source, struct rose_error *err)
{
    return status_set(err, ROSE_FORMAT, "%s holds F8_E4M3 codes that are not numbers (0x7f or 0xff); the file is damaged or was not quantised properly",
                      source->scales ? source->scales->name : "a weight");
}

size_t op_weight_bytes(const struct device *device, const struct tensor *source)
{
    struct cpu_weight w;
    if (device->info.kind == DEVICE_CUDA) return matmul_cuda_weight_bytes(source, false);
    if (!packed_form(source, &w)) return 0;
    return cpu_weight_bytes(&w);
}

struct pack_job {
    struct cpu_weight weight;
    const struct tensor *source;
    void *memory;
    atomic_bool nan;
};

/* False: a code of an F8_E4M3 weight is NaN. */
static bool pack_groups(const struct cpu_weight *w, const struct tensor *source, void *memory, size_t begin, size_t end)
{
    if (source->dtype == DTYPE_F8_E4M3) return weight_fp8_pack(w, source, memory, begin, end);
    cpu_weight_pack(w, source->dtype, source->data, memory, begin, end);
    return true;
}

static void pack_part(void *arg, struct worker *w)
{
    struct pack_job *job = arg;
    size_t begin, end;
    worker_range(w, cpu_weight_groups(&job->weight), 1, &begin, &end);
    if (!pack_groups(&job->weight, job->source, job->memory, begin, end)) atomic_store(&job->nan, true);
}

/* Large pages: fewer faults while packing, fewer misses of the address cache while streaming. Only a hint. */
static void want_large_pages(void *memory, size_t bytes)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    enum { LARGE = 2 << 20, PAGE = 4096 };
    uintptr_t begin = (uintptr_t)memory / PAGE * PAGE;
    if (bytes >= LARGE) madvise((void *)begin, (uintptr_t)memory + bytes - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

static struct op_weight packed_weight(enum dtype dtype, const struct cpu_weight *w, const void *memory)
{
    return (struct op_weight){.dtype = dtype,
                              .n = w->n,
                              .k = w->k,
                              .data = memory,
                              .layout = WEIGHT_LAYOUT_CPU_GROUPS,
                              .bytes = cpu_weight_bytes(w),
                              .bytes_read = (double)cpu_weight_bytes(w)};
}

enum rose_status op_weight_pack(struct device *device, const struct tensor *source, void *memory,
                                struct op_weight *out, struct rose_error *err)
{
    struct pack_job job = {.source = source, .memory = memory};
    if (device->info.kind == DEVICE_CUDA) return matmul_cuda_weight_pack(device, source, memory, out, err);
    if (!packed_form(source, &job.weight)) {
        if (!cpu_format(source->dtype))
            return status_set(
                err, ROSE_UNSUPPORTED,
                "the CPU has no matrix product for %s weights; use F32, F16, BF16 or a GGUF block format",
                dtype_info(source->dtype)->name);
        return status_set(err, ROSE_INVALID, "a weight [%lld, %lld] of %s does not fit the CPU's layout",
                          (long long)tensor_rows(source), (long long)tensor_cols(source),
                          dtype_info(source->dtype)->name);
    }
    if (!memory) return status_set(err, ROSE_INTERNAL, "a packed weight needs memory");
    ROSE_TRY(op_weight_check_scales(source, err));
    want_large_pages(memory, cpu_weight_bytes(&job.weight));
    workers_run(device->workers, pack_part, &job);
    if (atomic_load(&job.nan)) return op_weight_nan(source, err);
    *out = packed_weight(source->dtype, &job.weight, memory);
    return ROSE_OK;
}

bool op_weight_adopt(const struct device *device, const struct tensor *source, const void *memory, size_t sample, struct op_weight *out)
{
    struct cpu_weight w, part;
    if (device->info.kind != DEVICE_CPU || !memory || !source->data || !packed_form(source, &w) || op_weight_check_scales(source, NULL) != ROSE_OK) return false;
    size_t group = sample % cpu_weight_groups(&w), first = group * CPU_GROUP, rows = ROSE_MIN((size_t)CPU_GROUP, (size_t)w.n - first);
    if (!cpu_weight_init(source->dtype, (int64_t)rows, w.k, NULL, &part) || part.group_bytes != w.group_bytes) return false;
    void *again = calloc(1, w.group_bytes); /* padding is zero, as in fresh memory */
    if (!again) return false;
    struct tensor some = *source;
    some.data = (const uint8_t *)source->data + first * dtype_row_bytes(source->dtype, (size_t)w.k);
    some.scales_row += (int64_t)first;
    bool same = pack_groups(&part, &some, again, 0, 1) && !memcmp(again, (const uint8_t *)memory + group * w.group_bytes, w.group_bytes);
    free(again);
    if (same) *out = packed_weight(source->dtype, &w, memory);
    return same;
}

void op_weight_row(const struct op_weight *weight, int32_t row, float *out)
{
    struct cpu_weight w;
    if (weight_view(weight, &w) && row >= 0 && row < w.n) cpu_weight_row(&w, row, out);
}

/* ---- check ---- */

static bool columns_overlap(const struct op_value *a, const struct op_value *b)
{
    return a->buffer == b->buffer && a->offset < b->offset + b->cols && b->offset < a->offset + a->cols;
}

static enum rose_status check(const struct program *program, const struct op_matmul *op,
                              struct rose_error *err)
{
    if (op->parts_count < 1 || op->parts_count > OP_MATMUL_PARTS || (op->gated && op->parts_count != 2))
        return status_set(err, ROSE_INTERNAL, "%s: %d weights; 1 to %d are possible, a gate has 2", op->name,
                          op->parts_count, OP_MATMUL_PARTS);
    for (int i = 0; i < op->parts_count; i++) {
        const struct op_matmul_part *part = &op->parts[i];
        struct cpu_weight w;
        if (!weight_view(part->weight, &w))
            return status_set(err, ROSE_INTERNAL, "%s: weight %d is not packed for the CPU", op->name, i);
        if (i == 0) ROSE_TRY(value_check(program, op->name, "x", &op->x, w.k, op->x.rows, err));
        if (w.k != op->x.cols || (op->gated && w.n != op->parts[0].weight->n))
            return status_set(err, ROSE_INTERNAL, "%s: weight %d is [%d, %d] and x has %d columns", op->name,
                              i, w.n, w.k, op->x.cols);
        if (op->gated && i == 1) continue;
        ROSE_TRY(value_check(program, op->name, "y", &part->y, w.n, op->x.rows, err));
        if (columns_overlap(&part->y, &op->x))
            return status_set(err, ROSE_INTERNAL, "%s: y %d overlaps x", op->name, i);
    }
    return ROSE_OK;
}

/* ---- plan and launch ---- */

/* Rows that fit the value's buffer. */
static int32_t max_rows(const struct program *program, const struct op_value *v)
{
    size_t floats = program->buffers[v->buffer].bytes / sizeof(float),
           head = (size_t)v->offset + (size_t)v->cols;
    if (floats < head) return 0;
    size_t rows = (floats - head) / (size_t)v->stride + 1;
    return v->rows == EXTENT_ONE ? 1 : (int32_t)ROSE_MIN(rows, (size_t)INT32_MAX);
}

enum rose_status op_matmul(struct program *program, const struct op_matmul *op, struct rose_error *err)
{
    if (program->device->info.kind == DEVICE_CUDA) return matmul_cuda(program, op, err);
    ROSE_TRY(check(program, op, err));
    if (op->norm) ROSE_TRY(op_norm(program, op->norm, err));
    struct matmul_params p = {.parts = op->parts_count,
                              .x_stride = op->x.stride,
                              .max_rows = max_rows(program, &op->x),
                              .rows_extent = (int32_t)op->x.rows,
                              .activation = (enum matmul_activation)op->activation,
                              .alpha = op->alpha != 0 ? op->alpha : 1.0f,
                              .gated = op->gated,
                              .accumulate = op->accumulate,
                              .deterministic = op->deterministic};
    struct program_launch l = {
        .name = op->name, .layer = op->layer, .params = &p, .params_bytes = sizeof p, .cpu = matmul_run};
    value_use(&l, &op->x, PROGRAM_READ, offsetof(struct matmul_params, x));
    l.cost.bytes_per[op->x.rows] += 4.0 * op->x.cols;
    for (int i = 0; i < op->parts_count; i++) {
        const struct op_matmul_part *part = &op->parts[i];
        weight_view(part->weight, &p.part[i].weight);
        p.part[i].bias = part->bias;
        l.cost.bytes += part->weight->bytes_read;
        l.cost.ops_per[op->x.rows] += 2.0 * part->weight->n * part->weight->k;
        if (op->gated && i == 1) continue;
        p.part[i].y_stride = part->y.stride;
        value_use(&l, &part->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE,
                  offsetof(struct matmul_params, part) + (size_t)i * sizeof(struct matmul_part) +
                      offsetof(struct matmul_part, y));
        l.cost.bytes_per[op->x.rows] += (op->accumulate ? 8.0 : 4.0) * part->weight->n;
    }
    program_buffer_id work =
        program_buffer(program, "matmul.work", matmul_plan(&p, workers_count(program->device->workers)));
    program_use(&l, work, PROGRAM_WRITE, offsetof(struct matmul_params, work));
    program_add(program, &l);
    return ROSE_OK;
}
