#include "ops/embed.h"

#include <stddef.h>

#include "kernels/cpu/embed.h"
#include "ops/value.h"
#include "ops/value_cuda.h"
#include "ops/weight_view.h"

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
    if (program->device->info.kind == DEVICE_CUDA) return embed_cuda(program, op, err);
    if (!weight_view(op->table, &table))
        return status_set(err, ROSE_INTERNAL, "embed: the table is not packed for the CPU");
    if (!op->index) return status_set(err, ROSE_INTERNAL, "embed: no index buffer");
    ROSE_TRY(value_check(program, "embed", "y", &op->y, table.k, op->y.rows, err));
    struct embed_params p = {.table = table,
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
