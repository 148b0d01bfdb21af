/* Norms and activations that quantise what they store (ops/quantised_cuda.h). */
#include "api/bench_op.h"

#include "ops/quantised_cuda.h"

static enum rose_status check(const struct bench_case *c, int32_t out, struct rose_error *err)
{
    if (c->device->info.kind == DEVICE_CUDA) return ROSE_OK;
    return status_set(err, ROSE_UNSUPPORTED, "out=%d: quantised results are a GPU's; the CPU stores float32", out);
}

/* `bytes` of the case's memory as a buffer. */
static enum rose_status lend(struct bench_case *c, const char *name, size_t bytes, program_buffer_id *buffer, struct rose_error *err)
{
    void *p = bench_op_noise(c, bytes, err);
    if (!p) return ROSE_NO_MEMORY;
    *buffer = program_external(c->program, name, p, bytes);
    return ROSE_OK;
}

static enum rose_status memory(struct bench_case *c, int32_t cols, const char *second, int32_t out, struct quantised_rows *m, struct rose_error *err)
{
    size_t bytes = (size_t)c->value[0] * (size_t)cols * 2;
    if (!(m->global = bench_op_vector(c, 1, err))) return ROSE_NO_MEMORY;
    ROSE_TRY(lend(c, "x", bytes, &m->x, err));
    if (second) ROSE_TRY(lend(c, second, bytes, &m->add, err));
    ROSE_TRY(lend(c, "y", bytes, &m->y, err));
    return lend(c, "scale", quantised_cuda_scale_bytes(c->value[0], cols, out), &m->scale, err);
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
