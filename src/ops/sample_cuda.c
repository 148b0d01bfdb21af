#include "ops/sample_cuda.h"

#include "kernels/params/sample.h"

enum {
    TILE = 512,
    THREADS = 256
};
/* 1024 threads an SM: 64 registers each. */

static int32_t tiles_of(const struct sample_shape *s)
{
    return (s->vocabulary + TILE - 1) / TILE;
}

int64_t sample_cuda_work(const struct sample_shape *s)
{
    int64_t stats = (11 * (int64_t)tiles_of(s) + 3) / 4 * 4;
    return s->modify ? 2 * stats + ((int64_t)s->vocabulary + 3) / 4 * 4 : stats;
}

enum rose_status sample_cuda_plan(const struct sample_shape *s, const struct device_info *d, struct plan *out,
                                  int32_t *blocks, struct rose_error *err)
{
    if (s->vocabulary < 1 || s->vocabulary > 1 << 19 || s->rows < 1)
        return status_set(err, ROSE_UNSUPPORTED,
                          "sample: %lld rows of %d logits; the CUDA kernel takes 1 to 524,288 logits",
                          (long long)s->rows, s->vocabulary);
    /* One row: a tile a warp, nothing waits for a second round of loads. Many: the SMs full four times over,
     * so that the blocks that draw overlap those that read. */
    int32_t threads = s->threads ? s->threads : THREADS, warps = threads / 32, tiles = tiles_of(s), most = (tiles + warps - 1) / warps;
    int64_t want = (4 * (int64_t)d->units * (1024 / threads) + s->rows - 1) / s->rows;
    want = ROSE_MAX(1, ROSE_MIN(most, want));
    int64_t share =
        ((tiles + want - 1) / want + warps - 1) / warps * warps; /* whole rounds of the block's warps */
    *blocks = (int32_t)((tiles + share - 1) / share);
    *out = (struct plan){.kernel = "sample", .rows = s->rows, .times = *blocks, .per = 1};
    plan_int(out, "VOCAB", s->vocabulary);
    plan_int(out, "BF16", s->bf16);
    plan_int(out, "MODIFY", s->modify);
    plan_int(out, "THREADS", threads);
    plan_int(out, "MIN_BLOCKS", 1024 / threads);
    out->block = (uint32_t)threads;
    out->shared_bytes = (uint32_t)SAMPLE_SHARED(s->vocabulary, threads);
    out->bytes = (double)s->rows * ((s->bf16 ? 2.0 : 4.0) * s->vocabulary + 8.0 * 11 * tiles);
    out->ops = 8.0 * (double)s->rows * s->vocabulary;
    /* Reads run at 4.55 of the 4.2 TB/s that plan_stream counts for copies; the row's parameters come first,
     * the last block meets the others (1 us) and draws (3 us). Drawing more than the largest: measured (H200), with an exponential an
     * element where all of the mass matters; bf16 is read faster than it is looked at. */
    static const double draws[] = {0, 2.3, 5.5, 9.6};
    double cells = (double)s->rows * s->vocabulary, weighs = s->draw == SAMPLE_DRAW_TEMPERATURE || s->draw == SAMPLE_DRAW_SHARE ? 0.1 : 0.05;
    plan_stream(out, d, 4.5 - 1.0 * (s->rows == 1) + (s->draw <= SAMPLE_DRAW_SHARE ? draws[s->draw] : 0) + plan_issue_us(d, cells, weighs + (s->bf16 ? 0.15 : 0)));
    return ROSE_OK;
}
