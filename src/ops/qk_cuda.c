#include "ops/qk_cuda.h"

static enum rose_status check(const struct qk_shape *s, const struct device_info *d, int *vec,
                              struct rose_error *err)
{
    int32_t rotary = s->rope != OP_ROPE_NONE ? s->rotary_dim : 0;
    /* A thread holds pairs of vectors, and a rotation must stay inside a pair. */
    *vec = plan_arch(d) >= 1000 && s->head_dim % 32 == 0 && rotary % 32 == 0 ? 32 : 16;
    if (s->head_dim <= 0 || s->head_dim % 16 || s->head_dim > 512)
        return status_set(err, ROSE_UNSUPPORTED,
                          "qk: heads of %d; the CUDA kernel takes multiples of 16 up to 512", s->head_dim);
    if (rotary < 0 || rotary % 16 || rotary > s->head_dim)
        return status_set(err, ROSE_UNSUPPORTED,
                          "qk: rotary size %d of heads of %d; the CUDA kernel takes multiples of 16", rotary,
                          s->head_dim);
    if (s->heads < 0 || s->kv_heads < 0 || s->heads + s->kv_heads <= 0)
        return status_set(err, ROSE_INVALID, "qk: %d query and %d key heads", s->heads, s->kv_heads);
    if (s->write && s->page_tokens <= 0)
        return status_set(err, ROSE_INVALID, "qk: pages of %d tokens", s->page_tokens);
    return ROSE_OK;
}

enum rose_status qk_cuda_plan(const struct qk_shape *s, const struct device_info *d, struct plan *out,
                              struct rose_error *err)
{
    int vec;
    *out = (struct plan){.kernel = "qk_rows", .rows = s->rows};
    ROSE_TRY(check(s, d, &vec, err));
    int pairs = s->head_dim * 2 / vec / 2, threads = 1;
    while (threads < 32 && pairs % (threads * 2) == 0) threads *= 2;
    /* Heads a thread: one while the SMs are not full; then two, so that weights and angles are read once for
     * both and four loads are in flight. */
    int64_t all = s->rows * (s->heads + s->kv_heads * (s->write ? 2 : 1)) * threads;
    int repeat = s->repeat ? s->repeat : all >= (int64_t)d->units * d->max_threads_per_unit * 2 ? 2 : 1;
    int chunks = (s->heads + repeat - 1) / repeat + (s->kv_heads + repeat - 1) / repeat * (s->write ? 2 : 1);
    int64_t warps = (s->rows * chunks * threads + 31) / 32;
    int block = 32;
    while (block < 256 && warps * 32 > (int64_t)d->units * block) block *= 2;
    int32_t rotary = s->rope != OP_ROPE_NONE ? s->rotary_dim : 0;
    plan_int(out, "HEADS", s->heads);
    plan_int(out, "KV_HEADS", s->kv_heads);
    plan_int(out, "HD", s->head_dim);
    plan_int(out, "VEC_BYTES", vec);
    plan_int(out, "TPR", threads);
    plan_int(out, "REP", repeat);
    plan_int(out, "THREADS", block);
    plan_int(out, "NORM", s->norm);
    plan_int(out, "NORM_AFTER", s->norm_after_rope);
    plan_f32(out, "EPS", s->eps);
    plan_f32(out, "OFFSET", s->offset);
    plan_int(out, "ROPE", rotary ? (int64_t)s->rope : 0);
    plan_int(out, "ROTARY", rotary);
    plan_f32(out, "ROPE_SCALE", s->rope_scale != 0 ? s->rope_scale : 1.0f);
    plan_int(out, "SEQ_FREQ", s->seq_freq);
    plan_int(out, "WRITE", s->write);
    plan_int(out, "PAGE_TOKENS", s->write ? s->page_tokens : 1);
    out->block = (uint32_t)block;
    out->times = chunks;
    out->per = block / threads;
    double rows = (double)s->rows, heads = s->heads + s->kv_heads * (s->write ? 2.0 : 1.0);
    out->bytes = rows * (heads * s->head_dim * 4 + (rotary ? 4 : 0) + (s->write ? 8 : 0)) +
                 2.0 * s->norm * s->head_dim + 2.0 * rotary;
    out->ops = rows * (s->heads + s->kv_heads) * (3.0 * rotary + (s->norm ? 4.0 * s->head_dim : 0));
    /* Positions are read before the angles are known: a second round of loads. */
    plan_stream(out, d, 0.12 + (rotary ? 0.25 : 0) + (s->write ? 0.1 : 0));
    return ROSE_OK;
}
