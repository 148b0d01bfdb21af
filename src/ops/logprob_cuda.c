#include "ops/logprob_cuda.h"

#include <stddef.h>

#include "ops/value.h"

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

enum rose_status logprob_cuda(struct program *program, const struct op_value *x, int32_t want, program_buffer_id ids, program_buffer_id y, program_buffer_id log_sum,
                              struct rose_error *err)
{
    struct logprob_shape s = {.rows = plan_rows(program, x->rows), .vocabulary = x->cols, .want = want, .bf16 = x->dtype == DTYPE_BF16};
    struct logprob_rows_params p = {.logits_stride = x->stride};
    struct program_launch l = {.name = "logprob", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    int32_t blocks;
    if (program->device->info.kind != DEVICE_CUDA) return status_set(err, ROSE_UNSUPPORTED, "logprob: a kernel of CUDA devices");
    if (s.bf16) ROSE_TRY(value_check(program, "logprob", "logits", x, x->cols, x->rows, err));
    else ROSE_TRY(value_check_f32(program, "logprob", "logits", x, x->cols, x->rows, err));
    if (!value_aligned16(x)) return status_set(err, ROSE_UNSUPPORTED, "logprob: rows of stride %d from %d are no whole 16 bytes", x->stride, x->offset);
    if (!ids || !y) return status_set(err, ROSE_INVALID, "logprob: the tokens or the output are missing");
    ROSE_TRY(logprob_cuda_plan(&s, &program->device->info, &plan, &blocks, err));
    p.blocks = (uint32_t)blocks;
    ROSE_TRY(plan_record(&plan, program, x->rows, offsetof(struct logprob_rows_params, rows), &l, err));
    const size_t rows = (size_t)value_max_rows(program, x);
    value_use(&l, x, PROGRAM_READ, offsetof(struct logprob_rows_params, logits));
    program_use(&l, ids, PROGRAM_READ, offsetof(struct logprob_rows_params, ids));
    program_use(&l, y, PROGRAM_WRITE, offsetof(struct logprob_rows_params, y));
    program_use(&l, log_sum, PROGRAM_WRITE, offsetof(struct logprob_rows_params, log_sum));
    program_use(&l, program_buffer(program, "logprob parts", rows * (size_t)blocks * 8), PROGRAM_WRITE, offsetof(struct logprob_rows_params, part));
    program_use(&l, program_counters(program, "logprob counters", rows * 4), PROGRAM_UPDATE, offsetof(struct logprob_rows_params, counters));
    program_add(program, &l);
    return ROSE_OK;
}
