#include "ops/attention.h"

#include <stddef.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/qk.h"
#include "ops/attention_cuda.h"
#include "ops/qk_cuda.h"
#include "ops/value.h"

_Static_assert((int)OP_ROPE_NONE == QK_ROPE_NONE && (int)OP_ROPE_HALF == QK_ROPE_HALF &&
                   (int)OP_ROPE_PAIRS == QK_ROPE_PAIRS,
               "one numbering");

size_t op_cache_token_bytes(enum dtype dtype, const struct op_heads *h)
{
    if (dtype == DTYPE_F8_E4M3) return (size_t)h->kv_heads * ((size_t)h->head_dim + (size_t)h->value_dim); /* CUDA */
    if (!kv_layout_dtype_ok(dtype)) return 0;
    return (size_t)h->kv_heads *
           (kv_layout_vector(dtype, h->head_dim) + kv_layout_vector(dtype, h->value_dim));
}

size_t op_cache_page_bytes(enum dtype dtype, const struct op_heads *h, int32_t page_tokens, int32_t layers)
{
    return op_cache_token_bytes(dtype, h) * (size_t)page_tokens * (size_t)layers;
}

static enum rose_status check_heads(const char *op, const struct op_heads *h, struct rose_error *err)
{
    if (h->heads <= 0 || h->kv_heads <= 0 || h->heads % h->kv_heads)
        return status_set(err, ROSE_INVALID, "%s: %d query heads cannot share %d key-value heads evenly", op,
                          h->heads, h->kv_heads);
    if (h->head_dim < 2 || h->value_dim < 2 || h->head_dim % 2 || h->value_dim % 2 ||
        h->head_dim > KV_MAX_DIM || h->value_dim > KV_MAX_DIM)
        return status_set(err, ROSE_UNSUPPORTED,
                          "%s: head sizes %d and %d; even sizes from 2 to %d are taken", op, h->head_dim,
                          h->value_dim, KV_MAX_DIM);
    return ROSE_OK;
}

/* The cache and the place of the layer in it. */
static enum rose_status check_cache(const struct program *program, const char *op, const struct op_step *step, const struct op_cache *cache,
                                    const struct op_heads *h, int group, int layer, int layers,
                                    struct rose_error *err)
{
    if (!cache || !cache->pool) return status_set(err, ROSE_INVALID, "%s: no cache pool is given", op);
    bool cuda = program->device->info.kind == DEVICE_CUDA;
    if (cuda ? cache->dtype != DTYPE_BF16 && cache->dtype != DTYPE_F16 && cache->dtype != DTYPE_F8_E4M3 : !kv_layout_dtype_ok(cache->dtype))
        return status_set(err, ROSE_UNSUPPORTED, "%s: %s reads no cache of %s; use %s", op, cuda ? "a GPU" : "the CPU", dtype_info(cache->dtype)->name,
                          cuda ? "bf16, f16 or fp8" : "f32, f16, bf16 or q8_0");
    if (cache->page_tokens < KV_BLOCK || cache->page_tokens > KV_MAX_PAGE_TOKENS ||
        cache->page_tokens % KV_BLOCK)
        return status_set(err, ROSE_UNSUPPORTED,
                          "%s: pages of %d tokens; the CPU takes multiples of %d up to %d", op,
                          cache->page_tokens, KV_BLOCK, KV_MAX_PAGE_TOKENS);
    if (group < 0 || group >= step->groups || group >= OP_MAX_GROUPS || layer < 0 || layer >= layers)
        return status_set(err, ROSE_INVALID, "%s: layer %d of %d in cache group %d of %d", op, layer, layers,
                          group, step->groups);
    size_t need = op_cache_page_bytes(cache->dtype, h, cache->page_tokens, layers);
    if (cache->page_bytes < need)
        return status_set(err, ROSE_INVALID,
                          "%s: a page of %d layers takes %zu bytes, the pool's pages have %zu", op, layers,
                          need, cache->page_bytes);
    return ROSE_OK;
}

static enum rose_status check_scratch(const struct program *program, const char *op, size_t need,
                                      struct rose_error *err)
{
    size_t have = program->device->workers ? workers_scratch(program->device->workers) : need;
    if (have < need)
        return status_set(err, ROSE_LIMIT,
                          "%s needs %zu bytes of scratch a thread and the device was opened with %zu", op,
                          need, have);
    return ROSE_OK;
}

static enum rose_status check_qk(const struct program *program, const struct op_step *step,
                                 const struct op_cache *cache, const struct op_qk *op, struct rose_error *err)
{
    const struct op_heads *h = &op->heads;
    ROSE_TRY(check_heads("qk", h, err));
    if (op->q.buffer)
        ROSE_TRY(value_check(program, "qk", "q", &op->q, h->heads * h->head_dim, EXTENT_ROWS, err));
    if (op->k.buffer)
        ROSE_TRY(value_check(program, "qk", "k", &op->k, h->kv_heads * h->head_dim, EXTENT_ROWS, err));
    if (op->write) {
        ROSE_TRY(check_cache(program, "qk", step, cache, h, op->group, op->group_layer, op->group_layers, err));
        if (!op->k.buffer) return status_set(err, ROSE_INVALID, "qk: keys to be written are missing");
        ROSE_TRY(value_check(program, "qk", "v", &op->v, h->kv_heads * h->value_dim, EXTENT_ROWS, err));
        if (!step->kv_slot[op->group])
            return status_set(err, ROSE_INVALID, "qk: the step has no kv_slot for group %d", op->group);
    }
    if (op->rope != OP_ROPE_NONE) {
        if ((unsigned)op->rope > OP_ROPE_PAIRS)
            return status_set(err, ROSE_INVALID, "qk: unknown rotary kind %d", (int)op->rope);
        if (op->rotary_dim < 2 || op->rotary_dim % 2 || op->rotary_dim > h->head_dim)
            return status_set(err, ROSE_INVALID,
                              "qk: rotary size %d of head size %d: it must be even and not larger",
                              op->rotary_dim, h->head_dim);
        if (!op->seq_freq && !op->inv_freq)
            return status_set(err, ROSE_INVALID, "qk: rotary frequencies are missing");
        if (op->seq_freq && !step->seq_inv_freq)
            return status_set(err, ROSE_INVALID, "qk: the step has no rotary frequencies of its sequences");
        if (!step->positions || (op->seq_freq && !step->row_seq))
            return status_set(err, ROSE_INVALID, "qk: the step has no positions or row_seq");
    }
    return ROSE_OK;
}

enum rose_status op_qk(struct program *program, const struct op_step *step, const struct op_cache *cache,
                       const struct op_qk *op, struct rose_error *err)
{
    ROSE_TRY(check_qk(program, step, cache, op, err));
    if (program->device->info.kind == DEVICE_CUDA) return qk_cuda(program, step, cache, op, err);
    const struct op_heads *h = &op->heads;
    struct qk_params p = {.q_norm = op->q_norm,
                          .k_norm = op->k_norm,
                          .inv_freq = op->inv_freq,
                          .q_stride = op->q.stride,
                          .k_stride = op->k.stride,
                          .v_stride = op->v.stride,
                          .heads = h->heads,
                          .kv_heads = h->kv_heads,
                          .head_dim = h->head_dim,
                          .value_dim = h->value_dim,
                          .norm_full = op->norm_full,
                          .norm_after_rope = op->norm_after_rope,
                          .rope = (int32_t)op->rope,
                          .rotary_dim = op->rope != OP_ROPE_NONE ? op->rotary_dim : 0,
                          .write = op->write,
                          .norm_eps = op->norm_eps,
                          .norm_offset = op->norm_offset,
                          .rope_scale = op->rope_scale != 0 ? op->rope_scale : 1.0f};
    struct program_launch l = {
        .name = "qk", .layer = op->layer, .params = &p, .params_bytes = sizeof p, .cpu = qk_cpu()};
    ROSE_TRY(check_scratch(program, "qk", qk_scratch(&p), err));
    if (op->q.buffer) value_use(&l, &op->q, PROGRAM_UPDATE, offsetof(struct qk_params, q));
    if (op->k.buffer)
        value_use(&l, &op->k, op->write ? PROGRAM_READ : PROGRAM_UPDATE, offsetof(struct qk_params, k));
    if (op->rope != OP_ROPE_NONE)
        program_use(&l, step->positions, PROGRAM_READ, offsetof(struct qk_params, positions));
    if (op->rope != OP_ROPE_NONE && op->seq_freq) {
        program_use(&l, step->seq_inv_freq, PROGRAM_READ, offsetof(struct qk_params, seq_inv_freq));
        program_use(&l, step->row_seq, PROGRAM_READ, offsetof(struct qk_params, row_seq));
    }
    double row = 8.0 * (op->q.buffer ? h->heads * h->head_dim : 0) +
                 (op->k.buffer ? 4.0 * h->kv_heads * h->head_dim : 0);
    if (op->write) {
        value_use(&l, &op->v, PROGRAM_READ, offsetof(struct qk_params, v));
        program_use(&l, step->kv_slot[op->group], PROGRAM_READ, offsetof(struct qk_params, kv_slot));
        p.pool = cache->pool;
        p.page_bytes = (int64_t)cache->page_bytes;
        p.cache_dtype = (int32_t)cache->dtype;
        p.page_tokens = cache->page_tokens;
        p.layer = op->group_layer;
        row += 4.0 * h->kv_heads * h->value_dim + (double)op_cache_token_bytes(cache->dtype, h);
    }
    l.cost.bytes_per[EXTENT_ROWS] = row;
    l.cost.ops_per[EXTENT_ROWS] =
        (double)(h->heads + h->kv_heads) * (3.0 * p.rotary_dim + (op->q_norm ? 4.0 * h->head_dim : 0));
    program_add(program, &l);
    return ROSE_OK;
}

static enum rose_status check_attention(const struct program *program, const struct op_step *step,
                                        const struct op_cache *cache, const struct op_attention *op,
                                        struct rose_error *err)
{
    const struct op_heads *h = &op->heads;
    ROSE_TRY(check_heads("attention", h, err));
    ROSE_TRY(value_check(program, "attention", "q", &op->q, h->heads * h->head_dim, EXTENT_ROWS, err));
    ROSE_TRY(value_check(program, "attention", "y", &op->y, h->heads * h->value_dim, EXTENT_ROWS, err));
    if (!(op->scale > 0))
        return status_set(err, ROSE_INVALID, "attention: scale is %g and must be positive",
                          (double)op->scale);
    if (!(op->softcap >= 0) || op->window < 0)
        return status_set(err, ROSE_INVALID, "attention: soft cap %g and window %d must not be negative",
                          (double)op->softcap, op->window);
    if (!step->seq_rows) return status_set(err, ROSE_INVALID, "attention: the step has no seq_rows");
    if (op->bidirectional) {
        ROSE_TRY(value_check(program, "attention", "k", &op->k, h->kv_heads * h->head_dim, EXTENT_ROWS, err));
        return value_check(program, "attention", "v", &op->v, h->kv_heads * h->value_dim, EXTENT_ROWS, err);
    }
    ROSE_TRY(check_cache(program, "attention", step, cache, h, op->group, op->group_layer, op->group_layers, err));
    if (!step->seq_length || !step->page_table[op->group] || step->table_stride <= 0)
        return status_set(err, ROSE_INVALID,
                          "attention: the step has no lengths or no page table for group %d", op->group);
    return ROSE_OK;
}

enum rose_status op_attention(struct program *program, const struct op_step *step,
                              const struct op_cache *cache, const struct op_attention *op,
                              struct rose_error *err)
{
    ROSE_TRY(check_attention(program, step, cache, op, err));
    if (program->device->info.kind == DEVICE_CUDA) return attention_cuda(program, step, cache, op, err);
    if (op->qk) ROSE_TRY(op_qk(program, step, cache, op->qk, err));
    const struct op_heads *h = &op->heads;
    struct attention_params p = {.sinks = op->sinks,
                                 .alibi = op->alibi_slopes,
                                 .q_stride = op->q.stride,
                                 .y_stride = op->y.stride,
                                 .k_stride = op->k.stride,
                                 .v_stride = op->v.stride,
                                 .heads = h->heads,
                                 .kv_heads = h->kv_heads,
                                 .head_dim = h->head_dim,
                                 .value_dim = h->value_dim,
                                 .cache_dtype = (int32_t)(!op->bidirectional ? cache->dtype : op->half ? DTYPE_BF16 : DTYPE_F32),
                                 .window = op->window,
                                 .bidirectional = op->bidirectional,
                                 .causal = op->causal,
                                 .relative = op->bidirectional ? op->relative : NULL,
                                 .relative_reach = op->relative_reach,
                                 .deterministic = op->deterministic,
                                 .scale = op->scale,
                                 .softcap = op->softcap};
    struct program_launch l = {.name = "attention",
                               .layer = op->layer,
                               .params = &p,
                               .params_bytes = sizeof p,
                               .cpu = attention_cpu()};
    ROSE_TRY(check_scratch(program, "attention", attention_scratch(&p), err));
    value_use(&l, &op->q, PROGRAM_READ, offsetof(struct attention_params, q));
    value_use(&l, &op->y, PROGRAM_WRITE, offsetof(struct attention_params, y));
    program_use(&l, step->seq_rows, PROGRAM_READ, offsetof(struct attention_params, seq_rows));
    int64_t longest = op->bidirectional ? step->max_rows : (int64_t)step->table_stride * cache->page_tokens;
    if (op->bidirectional) {
        value_use(&l, &op->k, PROGRAM_READ, offsetof(struct attention_params, k));
        value_use(&l, &op->v, PROGRAM_READ, offsetof(struct attention_params, v));
    } else {
        program_use(&l, step->seq_length, PROGRAM_READ, offsetof(struct attention_params, seq_length));
        program_use(&l, step->page_table[op->group], PROGRAM_READ,
                    offsetof(struct attention_params, page_table));
        p.pool = cache->pool;
        p.page_bytes = (int64_t)cache->page_bytes;
        p.page_tokens = cache->page_tokens;
        p.layer = op->group_layer;
        p.table_stride = step->table_stride;
    }
    p.partial_rows = attention_partial_rows(&p, longest);
    program_buffer_id partial = program_buffer(
        program, "attention partials", (size_t)p.partial_rows * ((size_t)h->value_dim + 2) * sizeof(float));
    program_use(&l, partial, PROGRAM_WRITE, offsetof(struct attention_params, partial));
    /* What the step's extents tell: queries, results and, causal, the keys and values of the step's own rows.
     * Those of earlier tokens come on top: op_cache_token_bytes and 2 heads (head_dim + value_dim) operations
     * a token in sight. */
    double token = op->bidirectional ? 4.0 * h->kv_heads * (h->head_dim + h->value_dim)
                                     : (double)op_cache_token_bytes(cache->dtype, h);
    l.cost.bytes_per[EXTENT_ROWS] = 4.0 * h->heads * (h->head_dim + h->value_dim) + token;
    l.cost.ops_per[EXTENT_ROWS] = 2.0 * h->heads * (h->head_dim + h->value_dim);
    program_add(program, &l);
    return ROSE_OK;
}
