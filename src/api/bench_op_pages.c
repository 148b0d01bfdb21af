/* Keys and values between rows and pages, and log-softmax at some tokens: kernels of the library that no op of a step records. */
#include <stddef.h>
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

/* `bytes` of noise as a buffer that a parameter points to. */
static enum rose_status use(struct bench_case *c, struct program_launch *l, const char *name, size_t bytes, enum program_mode access, size_t at, struct rose_error *err)
{
    void *p = bench_op_noise(c, bytes, err);
    if (!p) return ROSE_NO_MEMORY;
    program_use(l, program_external(c->program, name, p, bytes), access, at);
    return ROSE_OK;
}

/* A side of a conversion; `base`: where its struct lies in the parameters. */
static enum rose_status side(struct bench_case *c, struct program_launch *l, const struct kv_shape *s, int form, const void *slots, enum program_mode access, size_t base,
                             struct kv_side *out, struct rose_error *err)
{
    int64_t width = (int64_t)s->kv_heads * s->head_dim, bytes = kv_cuda_layer_bytes(s, form);
    *out = (struct kv_side){.slot = slots, .k_stride = width, .v_stride = width, .page_bytes = bytes};
    if (form != KV_ROWS) return use(c, l, "pages", (size_t)((s->rows + PAGE - 1) / PAGE * bytes), access, base + offsetof(struct kv_side, pool), err);
    ROSE_TRY(use(c, l, "k", (size_t)(s->rows * width) * 2, access, base + offsetof(struct kv_side, k), err));
    return use(c, l, "v", (size_t)(s->rows * width) * 2, access, base + offsetof(struct kv_side, v), err);
}

enum rose_status bench_op_pages(struct bench_case *c, struct rose_error *err)
{
    struct kv_shape s = {.rows = c->value[0], .kv_heads = c->value[1], .head_dim = c->value[2], .page_tokens = PAGE, .from = c->value[3], .to = c->value[4]};
    struct kv_rows_params p = {0};
    struct program_launch l = {.name = "pages", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(only_cuda(c, "pages", err));
    ROSE_TRY(kv_cuda_plan(&s, &c->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, c->program, EXTENT_ROWS, offsetof(struct kv_rows_params, rows), &l, err));
    int64_t *host = malloc((size_t)s.rows * sizeof *host);
    if (!host) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < s.rows; i++) host[i] = i; /* pages that follow each other */
    const void *slots = bench_op_copy(c, host, (size_t)s.rows * sizeof *host, err);
    free(host);
    if (!slots) return ROSE_NO_MEMORY;
    ROSE_TRY(side(c, &l, &s, s.from, slots, PROGRAM_READ, offsetof(struct kv_rows_params, from), &p.from, err));
    ROSE_TRY(side(c, &l, &s, s.to, slots, PROGRAM_WRITE, offsetof(struct kv_rows_params, to), &p.to, err));
    program_add(c->program, &l);
    return ROSE_OK;
}

enum rose_status bench_op_logprob(struct bench_case *c, struct rose_error *err)
{
    struct logprob_shape s = {.rows = c->value[0], .vocabulary = c->value[1], .want = c->value[2], .bf16 = c->value[3]};
    struct logprob_rows_params p = {0};
    struct program_launch l = {.name = "logprob", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    int32_t blocks;
    size_t rows = (size_t)s.rows, each = s.bf16 ? 2 : 4, stride = size_round_up((size_t)s.vocabulary, 16 / each), ints = rows * ((size_t)s.want + 1);
    ROSE_TRY(only_cuda(c, "logprob", err));
    ROSE_TRY(logprob_cuda_plan(&s, &c->device->info, &plan, &blocks, err));
    ROSE_TRY(plan_record(&plan, c->program, EXTENT_ROWS, offsetof(struct logprob_rows_params, rows), &l, err));
    p.logits_stride = (int64_t)stride, p.blocks = (uint32_t)blocks;
    int32_t *host = calloc(ints, sizeof *host); /* the ids, then the counters, which begin and end at zero */
    if (!host) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < rows * (size_t)s.want; i++) host[i] = (int32_t)(i * 7919 % (size_t)s.vocabulary);
    char *at = bench_op_copy(c, host, ints * sizeof *host, err);
    free(host);
    if (!at) return ROSE_NO_MEMORY;
    p.ids = at, p.counters = at + rows * (size_t)s.want * sizeof *host;
    ROSE_TRY(use(c, &l, "logits", rows * stride * each, PROGRAM_READ, offsetof(struct logprob_rows_params, logits), err));
    ROSE_TRY(use(c, &l, "y", rows * (size_t)s.want * 4, PROGRAM_WRITE, offsetof(struct logprob_rows_params, y), err));
    ROSE_TRY(use(c, &l, "part", rows * (size_t)blocks * 8, PROGRAM_UPDATE, offsetof(struct logprob_rows_params, part), err));
    program_add(c->program, &l);
    return ROSE_OK;
}
