#include "ops/logprob_cuda.h"

enum { THREADS = 256, DEEP = 4, RESIDENT = 6 /* blocks an SM that keep the memory busy */ };

enum rose_status logprob_cuda_plan(const struct logprob_shape *s, const struct device_info *d, struct plan *out, int32_t *blocks, struct rose_error *err)
{
    if (s->vocabulary < 1 || s->vocabulary > 1 << 28 || s->rows < 1 || s->want < 1 || s->want > 4096)
        return status_set(err, ROSE_UNSUPPORTED, "logprob: %d tokens of %lld rows of %d logits", s->want, (long long)s->rows, s->vocabulary);
    /* One row: a round of loads a thread. Many: whole rows, until the SMs are full. */
    int32_t vectors = (s->vocabulary + (s->bf16 ? 7 : 3)) / (s->bf16 ? 8 : 4), most = (vectors + THREADS * DEEP - 1) / (THREADS * DEEP);
    int64_t want = ((int64_t)d->units * RESIDENT + s->rows - 1) / s->rows;
    *blocks = (int32_t)ROSE_MAX(1, ROSE_MIN(most, want));
    *out = (struct plan){.kernel = "logprob_rows", .rows = s->rows, .times = *blocks, .per = 1, .block = THREADS};
    plan_int(out, "VOCAB", s->vocabulary);
    plan_int(out, "BF16", s->bf16);
    plan_int(out, "WANT", s->want);
    plan_int(out, "THREADS", THREADS);
    out->bytes = (double)s->rows * ((s->bf16 ? 2.0 : 4.0) * s->vocabulary + 8.0 * *blocks + 8.0 * s->want);
    out->ops = 4.0 * (double)s->rows * s->vocabulary;
    /* Two reductions, the last block meets the others, then the ids and their logits; an exponential an element: 256 rows of 152k take
     * 45.7 us of f32 and 29.3 of bf16, whose bytes take 35 and 18 (H200). */
    plan_stream(out, d, 2.4 + (s->rows > 1 ? 0.5 : 0) + plan_issue_us(d, (double)s->rows * s->vocabulary, 0.16));
    return ROSE_OK;
}
