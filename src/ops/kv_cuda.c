#include "ops/kv_cuda.h"

#include <stddef.h>

#include "kernels/params/kv_layout.h"

int64_t kv_cuda_layer_bytes(const struct kv_shape *s, int form)
{
    if (form == KV_PAGES_INT8) return KV_ROWS_INT8_LAYER_BYTES(s->kv_heads, s->page_tokens, s->head_dim, s->head_dim);
    return KV_ROWS_LAYER_BYTES(s->kv_heads, s->page_tokens, s->head_dim, s->head_dim, form == KV_PAGES_E4M3 ? 1 : 2);
}

static bool pages(int form)
{
    return form >= KV_PAGES_BF16 && form <= KV_PAGES_INT8;
}

/* Bytes of one head of a token. */
static double head_bytes(const struct kv_shape *s, int form)
{
    return form == KV_PAGES_E4M3 ? s->head_dim : form == KV_PAGES_INT8 ? s->head_dim + 4 : 2.0 * s->head_dim;
}

enum rose_status kv_cuda_plan(const struct kv_shape *s, const struct device_info *d, struct plan *out, struct rose_error *err)
{
    if (s->rows < 1 || s->kv_heads < 1 || s->kv_heads > 4096 || s->head_dim < 8 || s->head_dim % 8 || s->head_dim > 1024)
        return status_set(err, ROSE_UNSUPPORTED, "kv: %lld tokens of %d heads of %d; the CUDA kernel takes heads of multiples of 8 up to 1024", (long long)s->rows,
                          s->kv_heads, s->head_dim);
    if ((s->from != KV_ROWS && !pages(s->from)) || (s->to != KV_ROWS && !pages(s->to)) || (s->from == KV_ROWS && s->to == KV_ROWS))
        return status_set(err, ROSE_INVALID, "kv: from form %d to form %d", s->from, s->to);
    if (s->page_tokens < 1) return status_set(err, ROSE_INVALID, "kv: pages of %d tokens", s->page_tokens);
    int vectors = s->head_dim / 8, threads = 1;
    while (threads < 32 && threads < vectors) threads *= 2;
    int64_t all = s->rows * 2 * s->kv_heads * threads;
    int block = 32;
    while (block < 256 && all > (int64_t)d->units * block) block *= 2;
    *out = (struct plan){.kernel = "kv_rows", .rows = s->rows, .times = 2 * s->kv_heads, .per = block / threads, .block = (uint32_t)block};
    plan_int(out, "KV_HEADS", s->kv_heads);
    plan_int(out, "HD", s->head_dim);
    plan_int(out, "PAGE_TOKENS", s->page_tokens);
    plan_int(out, "FROM", s->from);
    plan_int(out, "TO", s->to);
    plan_int(out, "TPR", threads);
    plan_int(out, "THREADS", block);
    out->bytes = (double)s->rows * (2.0 * s->kv_heads * (head_bytes(s, s->from) + head_bytes(s, s->to)) + 8.0 * (pages(s->from) + pages(s->to)));
    out->ops = s->from == s->to ? 0 : (double)s->rows * 2 * s->kv_heads * s->head_dim * 3;
    /* The slots come before the rows. Conversions issue more than the memory hides: 32768 tokens of 8 heads of 128 to int8 67 us, from
     * it 64, to e4m3 57 and from it 60, where their bytes take 49 (H200). */
    bool eight = s->from == KV_PAGES_INT8 || s->to == KV_PAGES_INT8, e4m3 = s->from == KV_PAGES_E4M3 || s->to == KV_PAGES_E4M3;
    plan_stream(out, d, (eight ? 0.55 : 0.35) + (s->from == s->to ? 0 : plan_issue_us(d, out->ops / 3, eight ? 0.25 : e4m3 ? 0.14 : 0)));
    return ROSE_OK;
}

/* base: where the side lies in the parameters. */
static enum rose_status use_side(struct program_launch *l, const struct kv_cuda_side *side, int form, enum program_mode mode, size_t base, struct kv_side *out, struct rose_error *err)
{
    *out = (struct kv_side){.k_stride = side->k_stride, .v_stride = side->v_stride, .page_bytes = side->page_bytes, .layer_offset = side->layer_offset};
    bool rows = form == KV_ROWS;
    if (rows ? !side->k || !side->v : !side->pool || !side->slot) return status_set(err, ROSE_INVALID, "kv: form %d lacks its %s", form, rows ? "rows" : "pages or slots");
    if (rows && (side->k_stride % 8 || side->v_stride % 8)) return status_set(err, ROSE_UNSUPPORTED, "kv: rows of stride %lld and %lld are no whole vectors of 8", (long long)side->k_stride, (long long)side->v_stride);
    if (rows) {
        program_use(l, side->k, mode, base + offsetof(struct kv_side, k));
        program_use(l, side->v, mode, base + offsetof(struct kv_side, v));
    } else {
        program_use(l, side->pool, mode == PROGRAM_WRITE ? PROGRAM_UPDATE : mode, base + offsetof(struct kv_side, pool)); /* other tokens stay */
        program_use(l, side->slot, PROGRAM_READ, base + offsetof(struct kv_side, slot));
    }
    return ROSE_OK;
}

enum rose_status kv_cuda(struct program *program, enum extent extent, const struct kv_shape *shape, const struct kv_cuda_side *from, const struct kv_cuda_side *to, struct rose_error *err)
{
    struct kv_rows_params p = {0};
    struct program_launch l = {.name = "pages", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(kv_cuda_plan(shape, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, extent, offsetof(struct kv_rows_params, rows), &l, err));
    ROSE_TRY(use_side(&l, from, shape->from, PROGRAM_READ, offsetof(struct kv_rows_params, from), &p.from, err));
    ROSE_TRY(use_side(&l, to, shape->to, PROGRAM_WRITE, offsetof(struct kv_rows_params, to), &p.to, err));
    program_add(program, &l);
    return ROSE_OK;
}
