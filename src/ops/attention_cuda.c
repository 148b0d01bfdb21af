#include "ops/attention_cuda.h"

#include <stddef.h>
#include <string.h>

#include "device/cuda.h"
#include "kernels/params/cascade.h"
#include "kernels/params/kv_layout.h"
#include "ops/value.h"

static enum rose_status check(const struct attention_shape *s, struct rose_error *err)
{
    const struct op_heads *h = &s->heads;
    int32_t multiple = s->own ? 2 : 16;
    if (h->head_dim < multiple || h->head_dim % multiple || h->head_dim > 256)
        return status_set(err, ROSE_UNSUPPORTED,
                          "attention: heads of %d; the CUDA kernels take multiples of %d up to 256 over %s",
                          h->head_dim, multiple, s->own ? "own rows" : "pages");
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
        return status_set(err, ROSE_INVALID, "attention: a relative bias of reach %d over %s",
                          s->relative_reach, s->own ? "own rows" : "pages");
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
    plan_int(p, "PAGE_TOKENS", s->own ? 16 : s->page_tokens);
    plan_int(p, "KV_ELEM", !s->own && s->kv_bytes == 1 ? 1 : 2);
    plan_element(p, s->f16);
}

_Static_assert(ATTENTION_RELATIVE_STRIDE(7) == OP_RELATIVE_STRIDE(7), "one layout");

/* A block has 99 KB of shared memory. */
static bool small_shared(const struct device_info *d) { return plan_arch(d) == 890 || plan_arch(d) == 1200; }

/* Blocks of tiles of rows that an SM holds at once, for which parts of shared files are made. */
enum { CASCADE_WAVES = 2 };

bool attention_cuda_cascades(const struct attention_shape *s)
{
    return !s->own && s->one_row && !s->deterministic && !s->window && s->seqs > 1;
}
/* As many rows as the tiles of two blocks an SM have, and a part more for each sequence. */
int64_t attention_cuda_cascade_entries(const struct op_heads *heads, const struct device_info *d, int64_t seqs)
{
    return seqs + (int64_t)CASCADE_WAVES * d->units * CASCADE_ROWS / heads->heads;
}
size_t attention_cuda_cascade_bytes(const struct op_heads *heads, const struct device_info *d, int64_t seqs)
{
    return (size_t)attention_cuda_cascade_entries(heads, d, seqs) * (size_t)heads->heads * ((size_t)heads->head_dim + 2) * sizeof(float);
}

enum rose_status attention_cuda_plan(const struct attention_shape *s, const struct device_info *d,
                                     struct plan *out, struct rose_error *err)
{
    *out = (struct plan){.kernel = "attention_tile", .rows = s->rows};
    ROSE_TRY(check(s, err));
    int32_t group = s->heads.heads / s->heads.kv_heads, dim = s->heads.head_dim, row = (dim + 15) / 16 * 32 + 16;
    int64_t seqs = s->seqs > 0 ? s->seqs : 1;
    int m = s->cascade                       ? CASCADE_ROWS
            : s->tile                        ? s->tile
            : s->rows <= seqs && group <= 16 ? 16
                                             : 64,
        n = dim > 192   ? 16
            : dim > 128 ? 32
                        : 64;
    if (s->cascade && n > 32 && row * (m + 4 * n) > 99 << 10 && small_shared(d)) n /= 2;
    common(out, s);
    plan_int(out, "M", m);
    plan_int(out, "N", n);
    plan_int(out, "CE", dim % 8 == 0 ? 8 : dim % 4 == 0 ? 4 : 2);
    plan_int(out, "FROM_ROWS", s->from_rows);
    plan_int(out, "CASCADE", s->cascade);
    out->block = (uint32_t)m * 2;
    out->shared_bytes = (uint32_t)(row * (m + 4 * n));
    /* A tile for every m packed rows and one begun by every sequence; blocks take what is beyond in turns. */
    int64_t tiles = s->rows * group / m + seqs;
    out->times = s->heads.kv_heads;
    out->per = (int32_t)(s->rows > tiles ? s->rows / tiles : 1);
    if (s->cascade) out->rows = out->per = 1, out->times = CASCADE_WAVES * d->units; /* a grid that goes through what there is */
    double rows = (double)s->rows;
    out->bytes = 4.0 * rows * dim * (s->heads.heads + s->heads.kv_heads);
    out->ops = 4.0 * rows * s->heads.heads * dim; /* a token in sight; the lengths are the step's */
    plan_stream(out, d, 2.0);
    return ROSE_OK;
}

bool attention_cuda_wgmma_takes(const struct attention_shape *s, const struct device_info *d)
{
    int32_t dim = s->heads.head_dim;
    bool sizes = dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 192 || (dim == 256 && !s->relative);
    return plan_arch(d) == 900 && sizes &&
           (s->own || s->page_tokens % 16 == 0) &&
           (s->own || s->page_tokens <= 64 ? 64 % (s->own ? 16 : s->page_tokens) == 0
                                           : s->page_tokens % 128 == 0);
}

/* Tokens of a tile, whole pages or whole parts of one: as many as shared memory and the registers of scores, weights and results hold without
 * spills. */
static int32_t wgmma_tokens(const struct attention_shape *s)
{
    int32_t dim = s->heads.head_dim;
    bool plain = !s->relative && !s->alibi && s->softcap == 0;
    if (dim <= 128) return s->relative && dim % 64 ? 64 : 128;
    return dim <= 192 && plain && !s->own && s->kv_bytes != 1 && 96 % s->page_tokens == 0 ? 96 : 64;
}

enum rose_status attention_cuda_wgmma_plan(const struct attention_shape *s, const struct device_info *d,
                                           struct plan *out, struct rose_error *err)
{
    *out = (struct plan){.kernel = "attention_wgmma", .rows = 1, .per = 1};
    ROSE_TRY(check(s, err));
    if (!attention_cuda_wgmma_takes(s, d))
        return status_set(
            err, ROSE_UNSUPPORTED,
            "attention: heads of %d on %s, pages of %d tokens; attention_wgmma does not take them",
            s->heads.head_dim, d->arch, s->page_tokens);
    int32_t dim = s->heads.head_dim, m = 128, stages = s->stages ? s->stages : 2, qs = dim > 128 || stages > 2 ? 1 : 2;
    int32_t n = wgmma_tokens(s), row = (dim + 63) / 64 * 128; /* bytes: pieces of 64 elements */
    common(out, s);
    plan_int(out, "M", m);
    plan_int(out, "N", n);
    plan_int(out, "FROM_ROWS", s->from_rows);
    plan_int(out, "STAGES", stages);
    plan_int(out, "QS", qs);
    if (s->ahead) plan_int(out, "AHEAD", s->ahead);
    out->block = 384;
    out->shared_bytes = (uint32_t)(row * (qs * m + stages * 2 * n));
    out->times = s->blocks ? s->blocks : d->units;
    double rows = (double)s->rows;
    out->bytes = 4.0 * rows * dim * (s->heads.heads + s->heads.kv_heads);
    out->ops = 4.0 * rows * s->heads.heads * dim;
    plan_stream(out, d, 4.0);
    return ROSE_OK;
}

bool attention_cuda_wgmma_box(const struct plan *p, struct layout_tma *out)
{
    int64_t dim = plan_get(p, "HD"), tokens = ROSE_MIN(plan_get(p, "PAGE_TOKENS"), plan_get(p, "N"));
    /* As many rows as coordinates reach: the page table says which are there. */
    *out = (struct layout_tma){.rank = 2, .dim = {dim, INT32_MAX}, .stride_bytes = {2, dim * 2}, .box = {64, (int)tokens}, .swizzle_bytes = 128};
    return plan_get(p, "OWN") == 0 && plan_get(p, "KV_ELEM") == 2;
}

enum { SPLIT_MOST_SEQS = 4096 };

enum rose_status attention_cuda_split_plan(const struct attention_shape *s, const struct device_info *d,
                                           struct plan *out, struct rose_error *err)
{
    *out = (struct plan){.kernel = "attention_split", .rows = 1, .per = 1};
    ROSE_TRY(check(s, err));
    int32_t dim = s->heads.head_dim, elem = s->kv_bytes == 1 ? 1 : 2, page = s->page_tokens;
    /* Many sequences of any lengths: eight warps (64 skewed files, heads of 128: 129.3 -> 125.3 us, 135.2 -> 130.6; 256 short ones of four key-value
     * heads lose 3 %). */
    int64_t files = s->seqs * s->heads.kv_heads;
    bool many = dim == 128 && elem == 2 && page >= 16 && page <= 128 && s->one_row && !s->qk && !s->deterministic && files >= 3 * (int64_t)d->units && files < 6 * (int64_t)d->units;
    int32_t warps = s->warps    ? s->warps
                    : dim > 128 ? 2
                    : many      ? 8
                                : 4,
            tile = warps * (elem == 1 && warps <= 4 ? 32 : 16);
    int32_t group = s->heads.heads / s->heads.kv_heads, rows_most = s->one_row && group < 16 ? group : 16;
    if (s->own || (page > tile ? page % tile : tile % page) || page < 2)
        return status_set(err, ROSE_UNSUPPORTED, "attention: pages of %d tokens; tiles have %d", page, tile);
    if (s->max_seqs > SPLIT_MOST_SEQS)
        return status_set(err, ROSE_LIMIT, "attention: %d sequences in a step; at most %d", s->max_seqs,
                          SPLIT_MOST_SEQS);
    int64_t stage = 2 * tile * (dim * elem + 16) + 16 * (dim * 2 + 16),
            lists = (s->cascade ? 16 : 12) * ((int64_t)s->max_seqs + 1);
    /* One block an SM, which keeps all of its shared memory in flight. */
    int64_t room = (plan_arch(d) == 800                           ? 163
                    : small_shared(d)                             ? 99
                                                                  : 227) *
                   1024;
    int stages = s->stages ? s->stages : (int)((room - 2048 - lists) / stage);
    /* Query fragments leave the registers to wide results where there is room for them. */
    int64_t copies = warps * 32 * dim;
    bool q_shared = dim > 192 && room - 2048 - lists - copies >= 2 * stage;
    if (q_shared && !s->stages) stages = (int)((room - 2048 - lists - copies) / stage);
    /* With little work a block sees few tiles, and what follows finds room beside it. */
    int64_t items = (s->seqs > 0 ? s->seqs : 1) * s->heads.kv_heads * ((group + 15) / 16);
    if (!s->stages && stages > 3 && items <= d->units) stages = 3;
    if (stages > 16) stages = 16;
    if (stages < 1) stages = 1;
    /* Loading warps share the rows of a page: how many rows 32 lanes move at once decides how many can. */
    int32_t chunks = dim * elem / 16, turn = chunks > 16  ? 1
                                             : chunks > 8 ? 2
                                             : chunks > 4 ? 4
                                             : chunks > 2 ? 8
                                                          : 16;
    int32_t span = page < tile ? page : tile, loaders = s->loaders ? s->loaders : 4;
    while (loaders > 1 && span % (turn * loaders)) loaders /= 2;
    common(out, s);
    plan_int(out, "TILE", tile);
    plan_int(out, "WARPS", warps);
    plan_int(out, "CASCADE", s->cascade);
    plan_int(out, "LOADERS", loaders);
    plan_int(out, "ROWS", rows_most);
    plan_int(out, "STAGES", stages);
    plan_int(out, "LEAST", s->least ? s->least : 4);
    plan_int(out, "WHOLE", s->deterministic);
    plan_int(out, "TO_ROWS", s->to_rows);
    plan_int(out, "Q_SHARED", q_shared);
    plan_int(out, "QK", s->qk);
    if (s->qk) {
        plan_int(out, "QK_NORM", s->qk_norm != 0);
        plan_f32(out, "EPS", s->qk_eps);
        plan_f32(out, "OFFSET", s->qk_offset);
        plan_int(out, "QK_ROPE", s->qk_rope);
        plan_f32(out, "ROPE_SCALE", s->rope_scale != 0 ? s->rope_scale : 1.0f);
    }
    out->block = (uint32_t)(warps + loaders) * 32;
    out->shared_bytes = (uint32_t)(stages * stage + (q_shared ? copies : 0) + lists);
    int64_t least = s->least ? s->least : 4, cuts = (s->max_tokens + tile * least - 1) / (tile * least);
    out->times = s->blocks ? s->blocks : d->units;
    if (!s->blocks && s->max_tokens > 0 && s->one_row && items * cuts < out->times)
        out->times = (int32_t)(items * cuts);
    double rows = (double)s->rows;
    out->bytes = 4.0 * rows * dim * (s->heads.heads + s->heads.kv_heads);
    out->ops = 4.0 * rows * s->heads.heads * dim;
    plan_stream(out, d, 2.0);
    return ROSE_OK;
}

/* A block turns the queries of each of its items anew. Measured (docs/facts.md): 1 to 2 % of a step of one sequence, 0.5 to 2 % of eight; from
 * 16 on it costs more than the launch. */
bool attention_cuda_split_qk(const struct attention_shape *s, const struct device_info *d, const struct op_qk *op)
{
    enum { MOST_SEQS = 8 };
    int32_t dim = s->heads.head_dim, group = s->heads.heads / s->heads.kv_heads;
    if (plan_arch(d) < 900 || s->own || s->deterministic || !s->one_row || s->kv_bytes == 1 || group > 16 || dim % 16 || dim > 192) return false; /* heads of 256 spill */
    if (!op->write || op->norm_full || op->norm_after_rope || op->seq_freq || !op->q_norm != !op->k_norm) return false;
    if (op->rope != OP_ROPE_NONE && (op->rope != OP_ROPE_HALF || op->rotary_dim != dim)) return false;
    return s->seqs <= MOST_SEQS && s->seqs * s->heads.kv_heads * 2 <= d->units;
}

size_t attention_cuda_partial_bytes(const struct plan *p)
{
    return (size_t)p->times * 2 * ATTENTION_PARTIAL((size_t)plan_get(p, "HD")) * sizeof(float);
}

static enum rose_status check_op(const struct op_cache *cache, const struct op_attention *op,
                                 struct rose_error *err)
{
    if (!op->bidirectional && cache->dtype != op->q.dtype && cache->dtype != DTYPE_F8_E4M3)
        return status_set(err, ROSE_UNSUPPORTED,
                          "attention: a cache of %s; the CUDA kernels read F8_E4M3 and what queries are in: %s",
                          dtype_info(cache->dtype)->name, dtype_info(op->q.dtype)->name);
    ROSE_TRY(value_check_alike("attention", &op->q, &op->y, err));
    const struct op_value *v[] = {&op->q, &op->y, &op->k, &op->v};
    for (int i = 0; i < (op->bidirectional ? 4 : 2); i++)
        if (v[i]->stride % 8 || v[i]->offset % 8)
            return status_set(
                err, ROSE_UNSUPPORTED,
                "attention: rows of stride %d and offset %d; the CUDA kernels take multiples of 8",
                v[i]->stride, v[i]->offset);
    return ROSE_OK;
}

/* What the launches of a step that shares files share beside the step's arrays. */
static void use_cascade(const struct op_step *step, program_buffer_id left, bool split, struct program_launch *l)
{
    program_use(l, left, split ? PROGRAM_READ : PROGRAM_WRITE, offsetof(struct attention_tile_params, cascade));
    if (split) {
        program_use(l, step->cascade_seqs, PROGRAM_READ, offsetof(struct attention_tile_params, cascade_seqs));
        return;
    }
    program_use(l, step->cascade_groups, PROGRAM_READ, offsetof(struct attention_tile_params, groups));
    program_use(l, step->cascade_members, PROGRAM_READ, offsetof(struct attention_tile_params, members));
}

/* One launch of a plan; split: of attention_split; left: what a shared file's launch leaves to it, 0: none. */
static enum rose_status record(struct program *program, const struct op_step *step,
                               const struct op_cache *cache, const struct op_attention *op,
                               const struct plan *plan, bool split, program_buffer_id left, struct rose_error *err)
{
    const struct op_heads *h = &op->heads;
    const bool wgmma = !strcmp(plan->kernel, "attention_wgmma");
    struct attention_wgmma_params with = {.a = {.sinks = op->sinks,
                                                .alibi = op->alibi_slopes,
                                                .relative = op->relative,
                                                .q_stride = op->q.stride,
                                                .y_stride = op->y.stride,
                                                .k_stride = op->k.stride,
                                                .v_stride = op->v.stride}};
    struct attention_tile_params *p = &with.a;
    const struct op_qk *qk = plan_get(plan, "QK") ? op->qk : NULL;
    if (qk) p->q_norm = qk->q_norm, p->k_norm = qk->k_norm, p->inv_freq = qk->inv_freq, p->k_stride = qk->k.stride, p->v_stride = qk->v.stride;
    if (left) p->cascade_entries = attention_cuda_cascade_entries(h, &program->device->info, step->max_seqs);
    struct layout_tma box;
    const size_t at = wgmma ? offsetof(struct attention_wgmma_params, a) : 0;
    struct program_launch l = {.name = "attention",
                               .layer = op->layer,
                               .params = wgmma ? (const void *)&with : p,
                               .params_bytes = wgmma ? sizeof with : sizeof *p};
    ROSE_TRY(plan_record(plan, program, EXTENT_ROWS, at + offsetof(struct attention_tile_params, seqs), &l, err));
    if (wgmma && attention_cuda_wgmma_box(plan, &box) && !program->draft)
        ROSE_TRY(cuda_tensor_map(program->device, &box, 2, cache->pool, &with.pages, err));
    l.rows_extent = EXTENT_SEQS;
    if (plan->rows == 1 && plan->per == 1) l.grid[0] = (struct program_dim){EXTENT_ONE, plan->times, 0};
    if (split) {
        size_t bytes = attention_cuda_partial_bytes(plan);
        program_buffer_id partial = program_buffer(program, "attention partials", bytes);
        program_buffer_id counters = program_counters(program, "attention counters", (size_t)plan->times * 4);
        program_use(&l, partial, PROGRAM_WRITE, at + offsetof(struct attention_tile_params, partial));
        program_use(&l, counters, PROGRAM_UPDATE, at + offsetof(struct attention_tile_params, counters));
    } else if (wgmma) {
        program_use(&l, program_counters(program, "attention items", 8), PROGRAM_UPDATE, at + offsetof(struct attention_tile_params, counters));
    }
    /* What the step's extents tell; keys and values of earlier tokens come on top. */
    memset(&l.cost, 0, sizeof l.cost);
    double width = h->head_dim + h->value_dim;
    l.cost.bytes_per[EXTENT_ROWS] = 2.0 * width * (h->heads + h->kv_heads);
    l.cost.ops_per[EXTENT_ROWS] = 2.0 * width * h->heads;
    value_use(&l, &op->q, PROGRAM_READ, at + offsetof(struct attention_tile_params, q));
    if (left) use_cascade(step, left, split, &l);
    if (!left || split) value_use(&l, &op->y, PROGRAM_WRITE, at + offsetof(struct attention_tile_params, y));
    program_use(&l, step->seq_rows, PROGRAM_READ, at + offsetof(struct attention_tile_params, seq_rows));
    if (op->bidirectional || qk) {
        value_use(&l, qk ? &qk->k : &op->k, PROGRAM_READ, at + offsetof(struct attention_tile_params, k));
        value_use(&l, qk ? &qk->v : &op->v, PROGRAM_READ, at + offsetof(struct attention_tile_params, v));
    }
    if (qk) program_use(&l, step->kv_slot[op->group], PROGRAM_READ, at + offsetof(struct attention_tile_params, kv_slot));
    if (!op->bidirectional) {
        program_use(&l, step->seq_length, PROGRAM_READ, at + offsetof(struct attention_tile_params, seq_length));
        program_use(&l, step->page_table[op->group], PROGRAM_READ,
                    at + offsetof(struct attention_tile_params, page_table));
        p->pool = p->pages = cache->pool;
        p->page_bytes = (int64_t)cache->page_bytes;
        p->layer_offset = op->group_layer * KV_ROWS_LAYER_BYTES(h->kv_heads, cache->page_tokens, h->head_dim,
                                                               h->value_dim, dtype_info(cache->dtype)->bytes);
        p->table_stride = step->table_stride;
    }
    program_add(program, &l);
    return ROSE_OK;
}

enum rose_status attention_cuda(struct program *program, const struct op_step *step,
                                const struct op_cache *cache, const struct op_attention *op,
                                struct rose_error *err)
{
    const struct device_info *d = &program->device->info;
    struct plan plan;
    ROSE_TRY(check_op(cache, op, err));
    struct attention_shape s = {.rows = plan_rows(program, EXTENT_ROWS),
                                .seqs = plan_rows(program, EXTENT_SEQS),
                                .heads = op->heads,
                                .scale = op->scale,
                                .softcap = op->softcap,
                                .window = op->window,
                                .sinks = op->sinks != NULL,
                                .alibi = op->alibi_slopes != NULL,
                                .own = op->bidirectional,
                                .f16 = value_f16(&op->q),
                                .causal = op->causal,
                                .relative = op->bidirectional && op->relative,
                                .relative_reach = op->relative_reach,
                                .page_tokens = op->bidirectional ? 0 : cache->page_tokens,
                                .kv_bytes = op->bidirectional ? 0 : dtype_info(cache->dtype)->bytes,
                                .deterministic = op->deterministic,
                                .max_seqs = step->max_seqs,
                                .max_tokens =
                                    op->bidirectional ? 0 : (int64_t)step->table_stride * cache->page_tokens};
    /* One row a sequence, or rows whose result must not depend on the rest of the step. */
    s.one_row = s.rows <= s.seqs; /* the program of a decoding step: one row a sequence, always */
    bool fits = !s.own && attention_cuda_split_plan(&s, d, &plan, err) == ROSE_OK;
    const bool cascade = fits && step->cascade_groups && attention_cuda_cascades(&s);
    if (op->qk && fits && !cascade && attention_cuda_split_qk(&s, d, op->qk)) {
        s.qk = true, s.qk_rope = op->qk->rope != OP_ROPE_NONE, s.qk_norm = op->qk->q_norm ? 4 : 0;
        s.qk_eps = op->qk->norm_eps, s.qk_offset = op->qk->norm_offset, s.rope_scale = op->qk->rope_scale;
        ROSE_TRY(attention_cuda_split_plan(&s, d, &plan, err));
        return record(program, step, cache, op, &plan, true, 0, err);
    }
    if (op->qk) ROSE_TRY(op_qk(program, step, cache, op->qk, err));
    if (cascade) { /* what sequences share for all of them, then the rest of each */
        program_buffer_id left = program_buffer(program, "attention cascade", attention_cuda_cascade_bytes(&s.heads, d, step->max_seqs));
        s.cascade = true;
        ROSE_TRY(attention_cuda_plan(&s, d, &plan, err));
        ROSE_TRY(record(program, step, cache, op, &plan, false, left, err));
        ROSE_TRY(attention_cuda_split_plan(&s, d, &plan, err));
        return record(program, step, cache, op, &plan, true, left, err);
    }
    if (s.deterministic && !s.own && !fits) return attention_cuda_split_plan(&s, d, &plan, err);
    if (fits && (s.rows <= s.seqs || s.deterministic))
        return record(program, step, cache, op, &plan, true, 0, err);
    if (fits && s.seqs > 1) { /* decoding sequences and chunks in one step: each to its own kernel */
        int32_t few = 16 / (s.heads.heads / s.heads.kv_heads);
        s.to_rows = few < 1 ? 1 : few > 8 ? 8 : few;
        s.from_rows = s.to_rows + 1, s.one_row = s.to_rows == 1;
        ROSE_TRY(attention_cuda_split_plan(&s, d, &plan, err));
        ROSE_TRY(record(program, step, cache, op, &plan, true, 0, err));
    }
    if (attention_cuda_wgmma_takes(&s, d))
        ROSE_TRY(attention_cuda_wgmma_plan(&s, d, &plan, err));
    else
        ROSE_TRY(attention_cuda_plan(&s, d, &plan, err));
    return record(program, step, cache, op, &plan, false, 0, err);
}
