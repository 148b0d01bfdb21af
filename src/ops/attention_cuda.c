#include "ops/attention_cuda.h"

#include <stddef.h>

#include "kernels/params/kv_layout.h"
#include "ops/value.h"

static enum rose_status check(const struct attention_shape *s, struct rose_error *err)
{
    const struct op_heads *h = &s->heads;
    if (h->head_dim < 16 || h->head_dim % 16 || h->head_dim > 256)
        return status_set(err, ROSE_UNSUPPORTED,
                          "attention: heads of %d; the CUDA kernels take multiples of 16 up to 256",
                          h->head_dim);
    if (h->value_dim != h->head_dim)
        return status_set(err, ROSE_UNSUPPORTED,
                          "attention: values of %d beside keys of %d; the CUDA kernels take equal sizes",
                          h->value_dim, h->head_dim);
    if (h->heads <= 0 || h->kv_heads <= 0 || h->heads % h->kv_heads)
        return status_set(err, ROSE_INVALID,
                          "attention: %d query heads cannot share %d key-value heads evenly", h->heads,
                          h->kv_heads);
    if (!s->own && s->page_tokens <= 0)
        return status_set(err, ROSE_INVALID, "attention: pages of %d tokens", s->page_tokens);
    if (s->relative && (!s->own || s->relative_reach < 0))
        return status_set(err, ROSE_INVALID, "attention: a relative bias of reach %d over %s", s->relative_reach,
                          s->own ? "own rows" : "pages");
    return ROSE_OK;
}

/* What the kernels of every kind are compiled for. */
static void common(struct plan *p, const struct attention_shape *s)
{
    plan_int(p, "HEADS", s->heads.heads);
    plan_int(p, "KV_HEADS", s->heads.kv_heads);
    plan_int(p, "HD", s->heads.head_dim);
    plan_f32(p, "SCALE", s->scale);
    plan_f32(p, "CAP", s->softcap);
    plan_int(p, "WINDOW", s->window);
    plan_int(p, "SINKS", s->sinks);
    plan_int(p, "ALIBI", s->alibi);
    plan_int(p, "OWN", s->own);
    plan_int(p, "CAUSAL", s->causal || !s->own);
    plan_int(p, "RELATIVE", s->relative ? s->relative_reach + 1 : 0);
    plan_int(p, "PAGE_TOKENS", s->own ? 1 : s->page_tokens);
}

_Static_assert(ATTENTION_RELATIVE_STRIDE(7) == OP_RELATIVE_STRIDE(7), "one layout");

enum rose_status attention_cuda_plan(const struct attention_shape *s, const struct device_info *d,
                                     struct plan *out, struct rose_error *err)
{
    *out = (struct plan){.kernel = "attention_tile", .rows = s->rows};
    ROSE_TRY(check(s, err));
    int32_t group = s->heads.heads / s->heads.kv_heads, dim = s->heads.head_dim, row = dim * 2 + 16;
    int64_t seqs = s->seqs > 0 ? s->seqs : 1;
    int m = s->tile ? s->tile : s->rows <= seqs && group <= 16 ? 16 : 64, n = dim > 192 ? 16 : dim > 128 ? 32 : 64;
    common(out, s);
    plan_int(out, "M", m);
    plan_int(out, "N", n);
    out->block = (uint32_t)m * 2;
    out->shared_bytes = (uint32_t)(row * (m + 4 * n));
    /* A tile for every m packed rows and one begun by every sequence; blocks take what is beyond in turns. */
    int64_t tiles = s->rows * group / m + seqs;
    out->times = s->heads.kv_heads;
    out->per = (int32_t)(s->rows > tiles ? s->rows / tiles : 1);
    double rows = (double)s->rows;
    out->bytes = 4.0 * rows * dim * (s->heads.heads + s->heads.kv_heads);
    out->ops = 4.0 * rows * s->heads.heads * dim; /* a token in sight; the lengths are the step's */
    plan_stream(out, d, 2.0);
    return ROSE_OK;
}

static enum rose_status check_op(const struct op_cache *cache, const struct op_attention *op,
                                 struct rose_error *err)
{
    if (!op->bidirectional && cache->dtype != DTYPE_BF16)
        return status_set(err, ROSE_UNSUPPORTED, "attention: a cache of %s; the CUDA kernels read BF16",
                          dtype_info(cache->dtype)->name);
    const struct op_value *v[] = {&op->q, &op->y, &op->k, &op->v};
    for (int i = 0; i < (op->bidirectional ? 4 : 2); i++)
        if (v[i]->stride % 8 || v[i]->offset % 8)
            return status_set(err, ROSE_UNSUPPORTED,
                              "attention: rows of stride %d and offset %d; the CUDA kernels take multiples of 8",
                              v[i]->stride, v[i]->offset);
    return ROSE_OK;
}

enum rose_status attention_cuda(struct program *program, const struct op_step *step,
                                const struct op_cache *cache, const struct op_attention *op,
                                struct rose_error *err)
{
    const struct op_heads *h = &op->heads;
    ROSE_TRY(check_op(cache, op, err));
    struct attention_shape s = {.rows = plan_rows(program, EXTENT_ROWS),
                                .seqs = plan_rows(program, EXTENT_SEQS),
                                .heads = *h,
                                .scale = op->scale,
                                .softcap = op->softcap,
                                .window = op->window,
                                .sinks = op->sinks != NULL,
                                .alibi = op->alibi_slopes != NULL,
                                .own = op->bidirectional,
                                .causal = op->causal,
                                .relative = op->bidirectional && op->relative,
                                .relative_reach = op->relative_reach,
                                .page_tokens = op->bidirectional ? 0 : cache->page_tokens};
    struct attention_tile_params p = {.sinks = op->sinks,
                                      .alibi = op->alibi_slopes,
                                      .relative = op->relative,
                                      .q_stride = op->q.stride,
                                      .y_stride = op->y.stride,
                                      .k_stride = op->k.stride,
                                      .v_stride = op->v.stride};
    struct program_launch l = {
        .name = "attention", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(attention_cuda_plan(&s, &program->device->info, &plan, err));
    ROSE_TRY(
        plan_record(&plan, program, EXTENT_ROWS, offsetof(struct attention_tile_params, seqs), &l, err));
    l.rows_extent = EXTENT_SEQS;
    value_use(&l, &op->q, PROGRAM_READ, offsetof(struct attention_tile_params, q));
    value_use(&l, &op->y, PROGRAM_WRITE, offsetof(struct attention_tile_params, y));
    program_use(&l, step->seq_rows, PROGRAM_READ, offsetof(struct attention_tile_params, seq_rows));
    if (op->bidirectional) {
        value_use(&l, &op->k, PROGRAM_READ, offsetof(struct attention_tile_params, k));
        value_use(&l, &op->v, PROGRAM_READ, offsetof(struct attention_tile_params, v));
    } else {
        program_use(&l, step->seq_length, PROGRAM_READ, offsetof(struct attention_tile_params, seq_length));
        program_use(&l, step->page_table[op->group], PROGRAM_READ,
                    offsetof(struct attention_tile_params, page_table));
        p.pool = cache->pool;
        p.page_bytes = (int64_t)cache->page_bytes;
        p.layer_offset = op->group_layer *
                         KV_ROWS_LAYER_BYTES(h->kv_heads, cache->page_tokens, h->head_dim, h->value_dim, 2);
        p.table_stride = step->table_stride;
    }
    program_add(program, &l);
    return ROSE_OK;
}
