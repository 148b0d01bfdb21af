#include "ops/value_cuda.h"

#include <stddef.h>

#include "ops/matmul_blocks.h"
#include "ops/value.h"
#include "ops/weight_view.h"

enum rose_status value_cuda_plan(const struct value_shape *s, const struct device_info *d, struct plan *out,
                                 struct rose_error *err)
{
    int element = s->f32 && s->op == VALUE_SOFTCAP ? 4 : 2;
    int vec = plan_vector(d, (int64_t)s->cols * element), threads = 16;
    *out = (struct plan){.kernel = "value_rows", .rows = s->rows};
    if (s->cols <= 0 || !vec)
        return status_set(err, ROSE_UNSUPPORTED, "rows of %d columns; the CUDA kernel takes multiples of 8",
                          s->cols);
    int vectors = s->cols * element / vec;
    while (threads < 256 && vectors % (threads * 2) == 0) threads *= 2;
    while (threads < 64 && vectors > 8 * threads) threads *= 2;
    int64_t filled = (int64_t)d->units * d->max_threads_per_unit;
    int per = s->rows * vectors >= filled * 2 && vectors >= threads * 2 ? 2 : 1;
    int pieces = (vectors + threads * per - 1) / (threads * per);
    plan_pieces(out, d, s->rows, s->cols, vec, threads, per, pieces);
    plan_int(out, "OP", s->op);
    plan_f32(out, "SCALE", s->scale != 0 ? s->scale : 1.0f);
    plan_f32(out, "CAP", s->cap);
    plan_int(out, "ACC", s->accumulate);
    plan_int(out, "F32", s->f32);
    plan_element(out, s->f16);
    out->bytes =
        (double)s->rows * (1.0 * element * s->cols * (s->op == VALUE_ADD || s->accumulate ? 3 : 2) + (s->op == VALUE_GATHER     ? 4
                                                                           : s->op == VALUE_ROW_GATE ? 2
                                                                                                     : 0));
    out->ops = (double)s->rows * s->cols * (s->op == VALUE_SOFTCAP ? 20 : 2);
    /* gather: the index comes first; row gate too */
    out->values = true;
    plan_stream(out, d, s->op == VALUE_GATHER ? 0.4 : 0.05);
    return ROSE_OK;
}

/* Rows that the buffer of v has room for. */
static uint32_t rows_of(const struct program *program, const struct op_value *v)
{
    size_t have = program->buffers[v->buffer].bytes / dtype_info(v->dtype)->bytes, head = (size_t)v->offset + (size_t)v->cols;
    return have < head ? 0 : (uint32_t)ROSE_MIN((have - head) / (size_t)v->stride + 1, (size_t)UINT32_MAX);
}

struct value_launch {
    const char *name;
    int layer;
    struct value_shape s;
    const struct op_value *x, *y; /* x NULL: params.x is a weight */
    program_buffer_id index;
    struct value_rows_params p;
};

static enum rose_status add(struct program *program, struct value_launch *v, struct rose_error *err)
{
    const struct op_value *x = v->x, *y = v->y;
    struct program_launch l = {.name = v->name, .layer = v->layer, .params = &v->p, .params_bytes = sizeof v->p};
    struct plan plan;
    v->s.rows = plan_rows(program, y->rows);
    v->s.cols = y->cols;
    v->s.f16 = value_f16(y);
    if (x) ROSE_TRY(value_check_alike(v->name, y, x, err));
    ROSE_TRY(status_wrap(err, value_cuda_plan(&v->s, &program->device->info, &plan, err), "%s", v->name));
    int vec = (int)plan_get(&plan, "VEC_BYTES") / (int)dtype_info(y->dtype)->bytes;
    bool vectors = v->s.op != VALUE_ROW_GATE; /* a gate is one element a row */
    if (y->stride % vec || y->offset % vec || (vectors && (v->p.x_stride % vec || (x && x->offset % vec))))
        return status_set(err, ROSE_UNSUPPORTED,
                          "%s: rows of stride %lld and %d; the CUDA kernel takes multiples of %d", v->name,
                          (long long)v->p.x_stride, y->stride, vec);
    ROSE_TRY(plan_record(&plan, program, y->rows, offsetof(struct value_rows_params, rows), &l, err));
    if (x) value_use(&l, x, PROGRAM_READ, offsetof(struct value_rows_params, x));
    if (v->index) program_use(&l, v->index, PROGRAM_READ, offsetof(struct value_rows_params, index));
    bool update = v->s.op == VALUE_ADD || v->s.op == VALUE_ROW_GATE || v->s.accumulate;
    value_use(&l, y, update ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct value_rows_params, y));
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status value_cuda(struct program *program, const char *name, int layer, int op,
                            const struct op_value *x, const struct op_value *y, program_buffer_id index,
                            float scale, float cap, struct rose_error *err)
{
    struct value_launch v = {
        .name = name,
        .layer = layer,
        .s = {.op = op, .scale = scale, .cap = cap, .f32 = x->dtype == DTYPE_F32},
        .x = x,
        .y = y,
        .index = index,
        .p = {.x_stride = x->stride, .y_stride = y->stride, .x_rows = rows_of(program, x)}};
    return add(program, &v, err);
}

enum rose_status embed_cuda(struct program *program, const struct op_embed *op, struct rose_error *err)
{
    const struct op_weight *t = op->table;
    if (t && t->data && t->layout == WEIGHT_LAYOUT_CUDA_BLOCKS) return matmul_blocks_embed(program, op, err);
    if (!t || t->dtype != op->y.dtype || !t->data)
        return status_set(err, ROSE_INTERNAL, "embed: the table is not packed for CUDA in the type of its rows");
    if (!op->index) return status_set(err, ROSE_INTERNAL, "embed: no index buffer");
    ROSE_TRY(value_check(program, "embed", "y", &op->y, t->k, op->y.rows, err));
    struct value_launch v = {
        .name = "embed",
        .layer = -1,
        .s = {.op = VALUE_GATHER, .scale = op->scale, .accumulate = op->accumulate},
        .y = &op->y,
        .index = op->index,
        .p = {.x = t->data,
              .x_stride = t->k,
              .y_stride = op->y.stride,
              .x_rows = (uint32_t)t->n,
              .index_offset = op->index_offset}};
    return add(program, &v, err);
}
