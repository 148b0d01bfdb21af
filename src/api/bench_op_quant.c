/* Norms and activations that quantise what they store (ops/quantised_cuda.h). */
#include "api/bench_op.h"

#include "ops/quant_cuda.h"
#include "ops/quantised_cuda.h"

static enum rose_status check(const struct bench_case *c, int32_t out, struct rose_error *err)
{
    if (c->device->info.kind == DEVICE_CUDA) return ROSE_OK;
    return status_set(err, ROSE_UNSUPPORTED, "out=%d: quantised results are a GPU's; the CPU stores float32", out);
}

static enum rose_status memory(struct bench_case *c, int32_t cols, const char *second, int32_t out, struct quantised_rows *m, struct rose_error *err)
{
    size_t bytes = (size_t)c->value[0] * (size_t)cols * 2;
    if (!(m->global = bench_op_vector(c, 1, err))) return ROSE_NO_MEMORY;
    ROSE_TRY(bench_op_lend(c, "x", bytes, &m->x, err));
    if (second) ROSE_TRY(bench_op_lend(c, second, bytes, &m->add, err));
    ROSE_TRY(bench_op_lend(c, "y", bytes, &m->y, err));
    return bench_op_lend(c, "scale", quantised_cuda_scale_bytes(c->value[0], cols, out), &m->scale, err);
}

enum rose_status bench_op_norm_quantised(struct bench_case *c, int32_t cols, bool add, bool layer, int32_t out, struct rose_error *err)
{
    struct norm_shape s = {.rows = c->value[0], .cols = cols, .kind = layer ? OP_NORM_LAYER : OP_NORM_RMS, .weight = 4, .bias = layer ? 4 : 0, .add = add, .eps = 1e-6f, .out = out};
    struct quantised_rows m = {0};
    ROSE_TRY(check(c, out, err));
    if (!(m.weight = bench_op_vector(c, cols, err)) || (layer && !(m.bias = bench_op_vector(c, cols, err)))) return ROSE_NO_MEMORY;
    ROSE_TRY(memory(c, cols, add ? "add" : NULL, out, &m, err));
    return quantised_cuda_norm(c->program, &s, &m, err);
}

enum rose_status bench_op_act_quantised(struct bench_case *c, int32_t cols, bool gated, enum op_activation activation, int32_t out, struct rose_error *err)
{
    struct act_shape s = {.rows = c->value[0], .cols = cols, .act = activation, .gated = gated, .out = out};
    struct quantised_rows m = {0};
    ROSE_TRY(check(c, out, err));
    ROSE_TRY(memory(c, cols, gated ? "up" : NULL, out, &m, err));
    return quantised_cuda_act(c->program, &s, &m, err);
}

/* Rows as they are, quantised. */
enum rose_status bench_op_quantise(struct bench_case *c, struct rose_error *err)
{
    enum { BLOCKS = 8 };
    int32_t rows = c->value[0], cols = c->value[1], out = c->value[2];
    struct op_value x;
    if (out < 1) return status_set(err, ROSE_INVALID, "out=0: nothing is quantised");
    ROSE_TRY(check(c, out, err));
    if (out == BLOCKS) {
        const int64_t across = size_round_up((size_t)(cols + 127) / 128, 4), down = (rows + 127) / 128;
        program_buffer_id y, scale;
        ROSE_TRY(bench_op_value(c, "x", EXTENT_ROWS, rows, cols, &x, err));
        ROSE_TRY(bench_op_lend(c, "y", (size_t)rows * (size_t)cols, &y, err));
        ROSE_TRY(bench_op_lend(c, "scale", (size_t)(across * down) * 4, &scale, err));
        return quant_cuda_blocks(c->program, &x, y, scale, across, err);
    }
    struct act_shape s = {.rows = rows, .cols = cols, .out = out};
    struct quantised_rows m = {0};
    ROSE_TRY(memory(c, cols, NULL, out, &m, err));
    if (out == ACT_OUT_E4M3_TENSOR || out == ACT_OUT_NVFP4) { /* with the tensor's own scale */
        x = (struct op_value){.buffer = m.x, .dtype = DTYPE_BF16, .rows = EXTENT_ROWS, .cols = cols, .stride = cols};
        program_buffer_id global = program_external(c->program, "global", (void *)(uintptr_t)m.global, 4);
        ROSE_TRY(quant_cuda_tensor(c->program, out == ACT_OUT_NVFP4 ? SCALE_TENSOR_NVFP4 : SCALE_TENSOR_E4M3, &x, global, err));
    }
    return quantised_cuda_act(c->program, &s, &m, err);
}
