#include "ops/embed.h"

#include <stddef.h>
#include <string.h>

#include "base/worker.h"
#include "kernels/cpu/embed.h"
#include "ops/value.h"
#include "ops/value_cuda.h"
#include "ops/weight_view.h"

size_t op_table_bytes(const struct device *device, const struct tensor *source)
{
    struct cpu_weight w;
    size_t bytes;
    if (device->info.kind != DEVICE_CPU || source->dtype == DTYPE_F8_E4M3 || !cpu_weight_init(source->dtype, tensor_rows(source), tensor_cols(source), NULL, &w)) return 0;
    return size_mul((size_t)w.n, dtype_row_bytes(source->dtype, (size_t)w.k), &bytes) ? bytes : 0;
}

static struct op_weight table_weight(const struct tensor *source, const void *memory, size_t bytes)
{
    return (struct op_weight){.dtype = source->dtype,
                              .n = (int32_t)tensor_rows(source),
                              .k = (int32_t)tensor_cols(source),
                              .data = memory,
                              .layout = WEIGHT_LAYOUT_CPU_ROWS,
                              .bytes = bytes,
                              .bytes_read = (double)bytes};
}

struct copy_job {
    const char *from;
    char *to;
    size_t bytes;
};

static void copy_part(void *arg, struct worker *w)
{
    enum { PIECE = 4096 };
    const struct copy_job *job = arg;
    size_t begin, end;
    worker_range(w, (job->bytes + PIECE - 1) / PIECE, 1, &begin, &end);
    begin *= PIECE, end = ROSE_MIN(end * PIECE, job->bytes);
    if (begin < end) memcpy(job->to + begin, job->from + begin, end - begin);
}

enum rose_status op_table_pack(struct device *device, const struct tensor *source, void *memory, struct op_weight *out, struct rose_error *err)
{
    struct copy_job job = {source->data, memory, op_table_bytes(device, source)};
    if (!job.bytes || !memory || !source->data) return status_set(err, ROSE_INTERNAL, "a table of %s without rows or memory", dtype_info(source->dtype)->name);
    workers_run(device->workers, copy_part, &job);
    *out = table_weight(source, memory, job.bytes);
    return ROSE_OK;
}

bool op_table_adopt(const struct device *device, const struct tensor *source, const void *memory, size_t sample, struct op_weight *out)
{
    size_t bytes = op_table_bytes(device, source);
    if (!bytes || !memory || !source->data) return false;
    size_t row = bytes / (size_t)tensor_rows(source), at = sample % (size_t)tensor_rows(source) * row;
    if (memcmp((const char *)memory + at, (const char *)source->data + at, row)) return false;
    *out = table_weight(source, memory, bytes);
    return true;
}

/* Rows that the buffer of v has room for. */
static int32_t rows_of(const struct program *program, const struct op_value *v)
{
    size_t floats = program->buffers[v->buffer].bytes / sizeof(float),
           head = (size_t)v->offset + (size_t)v->cols;
    return floats < head ? 0 : (int32_t)ROSE_MIN((floats - head) / (size_t)v->stride + 1, (size_t)INT32_MAX);
}

enum rose_status op_embed(struct program *program, const struct op_embed *op, struct rose_error *err)
{
    struct cpu_weight table;
    bool rows = op->table->layout == WEIGHT_LAYOUT_CPU_ROWS;
    if (program->device->info.kind == DEVICE_CUDA) return embed_cuda(program, op, err);
    if (rows ? !cpu_weight_init(op->table->dtype, op->table->n, op->table->k, op->table->data, &table) : !weight_view(op->table, &table))
        return status_set(err, ROSE_INTERNAL, "embed: the table is not packed for the CPU");
    if (!op->index) return status_set(err, ROSE_INTERNAL, "embed: no index buffer");
    ROSE_TRY(value_check(program, "embed", "y", &op->y, table.k, op->y.rows, err));
    struct embed_params p = {.table = table,
                             .row_bytes = rows ? dtype_row_bytes(op->table->dtype, (size_t)table.k) : 0,
                             .dtype = op->table->dtype,
                             .y_stride = op->y.stride,
                             .rows_extent = (int32_t)op->y.rows,
                             .max_rows = rows_of(program, &op->y),
                             .index_offset = op->index_offset,
                             .scale = op->scale != 0 ? op->scale : 1.0f,
                             .accumulate = op->accumulate};
    struct program_launch l = {
        .name = "embed", .layer = -1, .params = &p, .params_bytes = sizeof p, .cpu = embed_run};
    program_use(&l, op->index, PROGRAM_READ, offsetof(struct embed_params, index));
    value_use(&l, &op->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct embed_params, y));
    if (op->accumulate) {
        size_t bytes = (size_t)workers_count(program->device->workers) * (size_t)table.k * sizeof(float);
        program_use(&l, program_buffer(program, "embed.work", bytes), PROGRAM_WRITE,
                    offsetof(struct embed_params, work));
    }
    l.cost.bytes_per[op->y.rows] =
        op->table->bytes_read / op->table->n + 4.0 * table.k * (1 + op->accumulate);
    l.cost.ops_per[op->y.rows] = 2.0 * table.k;
    program_add(program, &l);
    return ROSE_OK;
}
