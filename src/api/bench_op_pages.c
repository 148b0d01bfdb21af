/* Keys and values between rows and pages, and log-softmax at some tokens: kernels of the library that no op of a step records. */
#include <stdlib.h>

#include "api/bench_op.h"
#include "ops/kv_cuda.h"
#include "ops/logprob_cuda.h"

enum { PAGE = 32 };

static enum rose_status only_cuda(const struct bench_case *c, const char *op, struct rose_error *err)
{
    if (c->device->info.kind == DEVICE_CUDA) return ROSE_OK;
    return status_set(err, ROSE_UNSUPPORTED, "%s is a kernel of GPUs; a CPU has none", op);
}

static enum rose_status side(struct bench_case *c, const struct kv_shape *s, int form, program_buffer_id slots, struct kv_cuda_side *out, struct rose_error *err)
{
    int64_t width = (int64_t)s->kv_heads * s->head_dim, bytes = kv_cuda_layer_bytes(s, form);
    *out = (struct kv_cuda_side){.slot = slots, .k_stride = width, .v_stride = width, .page_bytes = bytes};
    if (form != KV_ROWS) return bench_op_lend(c, "pages", (size_t)((s->rows + PAGE - 1) / PAGE * bytes), &out->pool, err);
    ROSE_TRY(bench_op_lend(c, "k", (size_t)(s->rows * width) * 2, &out->k, err));
    return bench_op_lend(c, "v", (size_t)(s->rows * width) * 2, &out->v, err);
}

enum rose_status bench_op_pages(struct bench_case *c, struct rose_error *err)
{
    struct kv_shape s = {.rows = c->value[0], .kv_heads = c->value[1], .head_dim = c->value[2], .page_tokens = PAGE, .from = c->value[3], .to = c->value[4]};
    struct kv_cuda_side from, to;
    struct plan plan;
    ROSE_TRY(only_cuda(c, "pages", err));
    ROSE_TRY(kv_cuda_plan(&s, &c->device->info, &plan, err)); /* before memory is taken for what cannot be */
    int64_t *host = malloc((size_t)s.rows * sizeof *host);
    if (!host) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < s.rows; i++) host[i] = i; /* pages that follow each other */
    void *slots = bench_op_copy(c, host, (size_t)s.rows * sizeof *host, err);
    free(host);
    if (!slots) return ROSE_NO_MEMORY;
    program_buffer_id slot = program_external(c->program, "slots", slots, (size_t)s.rows * sizeof *host);
    ROSE_TRY(side(c, &s, s.from, slot, &from, err));
    ROSE_TRY(side(c, &s, s.to, slot, &to, err));
    return kv_cuda(c->program, EXTENT_ROWS, &s, &from, &to, err);
}

enum rose_status bench_op_logprob(struct bench_case *c, struct rose_error *err)
{
    int32_t rows = c->value[0], vocabulary = c->value[1], want = c->value[2];
    bool bf16 = c->value[3];
    size_t ids = (size_t)rows * (size_t)want, each = bf16 ? 2 : 4, stride = size_round_up((size_t)vocabulary, 16 / each);
    struct op_value logits = {.dtype = bf16 ? DTYPE_BF16 : DTYPE_F32, .rows = EXTENT_ROWS, .cols = vocabulary, .stride = (int32_t)stride};
    program_buffer_id y;
    ROSE_TRY(only_cuda(c, "logprob", err));
    int32_t *host = calloc(ids, sizeof *host);
    if (!host) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < ids; i++) host[i] = (int32_t)(i * 7919 % (size_t)vocabulary);
    void *at = bench_op_copy(c, host, ids * sizeof *host, err);
    free(host);
    if (!at) return ROSE_NO_MEMORY;
    ROSE_TRY(bench_op_lend(c, "logits", (size_t)rows * stride * each, &logits.buffer, err));
    ROSE_TRY(bench_op_lend(c, "y", ids * 4, &y, err));
    return logprob_cuda(c->program, &logits, want, program_external(c->program, "ids", at, ids * sizeof *host), y, 0, err);
}
