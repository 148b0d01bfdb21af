#include "ops/pool_cuda.h"

#include <stddef.h>

#include "kernels/params/pool_rows.h"
#include "ops/value.h"

enum rose_status pool_cuda_plan(const struct pool_shape *s, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    enum { BLOCK_BYTES = 128, THREADS = 256 }; /* a line of columns; rows in flight */
    int vec = plan_vector(d, (int64_t)s->cols * 2);
    *out = (struct plan){.kernel = "pool_rows", .rows = s->seqs > 0 ? s->seqs : 1, .per = 1, .block = THREADS};
    if (s->cols <= 0 || !vec)
        return status_set(err, ROSE_UNSUPPORTED, "pool: rows of %d columns; the CUDA kernel takes multiples of 8", s->cols);
    int lanes = BLOCK_BYTES / vec;
    out->times = (s->cols * 2 + BLOCK_BYTES - 1) / BLOCK_BYTES;
    plan_int(out, "COLS", s->cols);
    plan_int(out, "VEC_BYTES", vec);
    plan_int(out, "LANES", lanes);
    plan_int(out, "GROUPS", THREADS / lanes);
    plan_int(out, "PIECES", out->times);
    plan_int(out, "OUT_F32", s->out_f32);
    plan_element(out, s->f16);
    double rows = (double)s->rows, seqs = (double)out->rows;
    out->bytes = rows * s->cols * 2 + seqs * (s->cols * (s->out_f32 ? 4.0 : 2.0) + 12);
    out->ops = 2 * rows * s->cols;
    /* Where the rows begin is read first; few blocks read long texts at 60 bytes a ns each. */
    double blocks = seqs * out->times, alone = out->bytes / ((blocks < d->units ? blocks : d->units) * 60e3);
    plan_stream(out, d, 0.6 + (blocks < d->units ? alone : 0));
    return ROSE_OK;
}

enum rose_status pool_cuda(struct program *program, const struct op_pool *op, struct rose_error *err)
{
    bool f32 = op->y.dtype == DTYPE_F32;
    struct pool_shape s = {.rows = plan_rows(program, EXTENT_ROWS), .seqs = plan_rows(program, EXTENT_SEQS), .cols = op->x.cols, .out_f32 = f32, .f16 = value_f16(&op->x)};
    struct pool_rows_params p = {.x_stride = op->x.stride, .y_stride = op->y.stride};
    struct program_launch l = {.name = "pool", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(pool_cuda_plan(&s, &program->device->info, &plan, err));
    int vec = (int)plan_get(&plan, "VEC_BYTES") / 2;
    if (op->x.stride % vec || op->x.offset % vec)
        return status_set(err, ROSE_UNSUPPORTED, "pool: x has stride %d and offset %d; the CUDA kernel takes multiples of %d", op->x.stride, op->x.offset, vec);
    ROSE_TRY(plan_record(&plan, program, EXTENT_SEQS, offsetof(struct pool_rows_params, seqs), &l, err));
    value_use(&l, &op->x, PROGRAM_READ, offsetof(struct pool_rows_params, x));
    value_use(&l, &op->y, PROGRAM_WRITE, offsetof(struct pool_rows_params, y));
    program_use(&l, op->seq_rows, PROGRAM_READ, offsetof(struct pool_rows_params, seq_rows));
    program_use(&l, op->kind, PROGRAM_READ, offsetof(struct pool_rows_params, kind));
    program_use(&l, op->skip, PROGRAM_READ, offsetof(struct pool_rows_params, skip));
    l.cost = (struct program_cost){0};
    l.cost.bytes_per[EXTENT_ROWS] = 2.0 * op->x.cols;
    l.cost.bytes_per[EXTENT_SEQS] = op->x.cols * (f32 ? 4.0 : 2.0) + 12;
    l.cost.ops_per[EXTENT_ROWS] = 2.0 * op->x.cols;
    program_add(program, &l);
    return ROSE_OK;
}
