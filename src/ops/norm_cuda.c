#include "ops/norm_cuda.h"

/* Threads a row. Few rows: a vector a thread, so that one round of loads serves all (T = 1 waits for memory,
 * then for the sum). Many rows: up to four vectors a thread, fewer threads in the barrier and more bytes in
 * flight for each. */
static int threads_of(const struct norm_shape *s, const struct device_info *d, int vectors)
{
    enum { MOST = 8 }; /* vectors a thread: 32 registers of packed bf16 (64 with the residual) */
    int threads = 1;
    while (threads < vectors && threads < 1024) threads *= 2;
    if (threads <= 8) return threads;
    /* The rows fill every SM's threads several times: give each thread more. */
    int64_t filled = (int64_t)d->units * d->max_threads_per_unit;
    int want = s->rows * threads >= filled * 2 ? 4 : s->rows * threads >= filled ? 2 : 1;
    while (want > 1 && threads > 8) threads /= 2, want /= 2;
    while ((vectors + threads - 1) / threads > MOST) threads *= 2;
    return threads;
}

/* Bytes that few rows of idle lanes waste are nothing; a row that leaves more than a quarter of the lanes
 * idle takes fewer threads with more vectors, where that divides it better (cols 96: 4 threads of 3 vectors).
 */
static int fit_threads(int threads, int vectors)
{
    int best = threads, best_idle = (vectors + threads - 1) / threads * threads - vectors;
    for (int t = threads / 2; t >= 2 && t >= threads / 4 && threads <= 32; t /= 2) {
        int idle = (vectors + t - 1) / t * t - vectors;
        if (idle * 4 < best_idle * 3 && best_idle * 4 > vectors) best = t, best_idle = idle;
    }
    return best;
}

enum rose_status norm_cuda_plan(const struct norm_shape *s, const struct device_info *d, struct plan *out,
                                struct rose_error *err)
{
    *out = (struct plan){.kernel = "norm_rows", .rows = s->rows, .times = 1};
    int vec = plan_vector(d, (int64_t)s->cols * 2);
    if (s->cols <= 0 || !vec)
        return status_set(err, ROSE_UNSUPPORTED,
                          "norm: rows of %d columns; the CUDA kernel takes multiples of 8", s->cols);
    int vectors = s->cols * 2 / vec,
        threads = s->threads ? s->threads : fit_threads(threads_of(s, d, vectors), vectors);
    if ((vectors + threads - 1) / threads > 16)
        return status_set(err, ROSE_UNSUPPORTED, "norm: rows of %d columns; the CUDA kernel takes at most %d",
                          s->cols, 16 * 1024 * vec / 2);
    /* Sub-warp rows share a warp; blocks grow only when there are more warps than SMs. */
    int64_t warps = (s->rows * threads + 31) / 32;
    int block = threads < 32 ? 32 : threads;
    while (block < 256 && warps * 32 > (int64_t)d->units * block) block *= 2;
    if (block < threads) block = threads;
    int repeat = s->repeat;
    if (!repeat) { /* narrow rows: two loads in flight a thread once the SMs are full */
        int per = (vectors + threads - 1) / threads;
        repeat =
            threads <= 32 && per == 1 && s->rows * threads >= (int64_t)d->units * d->max_threads_per_unit * 4
                ? 2
                : 1;
    }
    if (threads > 32) repeat = 1;
    int per_block = block / threads;
    plan_int(out, "N", s->cols);
    plan_int(out, "VEC_BYTES", vec);
    plan_int(out, "TPR", threads);
    plan_int(out, "RPB", per_block);
    plan_int(out, "REP", repeat);
    plan_int(out, "LAYER", s->kind == OP_NORM_LAYER);
    plan_int(out, "ADD", s->add);
    plan_int(out, "ACCUMULATE", s->accumulate);
    plan_int(out, "WEIGHT", s->weight);
    plan_int(out, "BIAS", s->bias);
    plan_f32(out, "EPS", s->eps);
    plan_f32(out, "OFFSET", s->offset);
    plan_f32(out, "ALPHA", s->alpha != 0 ? s->alpha : 1.0f);
    out->block = (uint32_t)block;
    out->per = per_block * repeat;
    out->bytes = 2.0 * s->cols * (double)s->rows * (2 + 2 * s->add + s->accumulate) +
                 (double)s->cols * (s->weight + s->bias);
    out->ops = (s->kind == OP_NORM_RMS ? 4.0 : 6.0) * s->cols * (double)s->rows;
    plan_stream(out, d, (threads > 32 ? 0.25 : 0.12) * (s->kind == OP_NORM_LAYER ? 2 : 1));
    return ROSE_OK;
}
