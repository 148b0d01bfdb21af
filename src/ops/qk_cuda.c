#include "ops/qk_cuda.h"

#include <stddef.h>

#include "kernels/params/kv_layout.h"
#include "kernels/params/qk_rows.h"
#include "ops/value.h"

/* The widest vector whose pairs make up a head and its rotation. */
static int vector(const struct device_info *d, int32_t head_dim, int32_t rotary)
{
    int vec = plan_arch(d) >= 1000 ? 32 : 16;
    while (vec > 4 && (head_dim % vec || rotary % vec)) vec /= 2;
    return vec;
}

static enum rose_status check(const struct qk_shape *s, const struct device_info *d, int *vec,
                              struct rose_error *err)
{
    int32_t rotary = s->rope != OP_ROPE_NONE ? s->rotary_dim : 0;
    /* A thread holds pairs of vectors, and a rotation must stay inside a pair. */
    *vec = vector(d, s->head_dim, rotary);
    if (s->head_dim <= 0 || s->head_dim % 4 || s->head_dim > 512)
        return status_set(err, ROSE_UNSUPPORTED,
                          "qk: heads of %d; the CUDA kernel takes multiples of 4 up to 512", s->head_dim);
    if (rotary < 0 || rotary % 4 || rotary > s->head_dim)
        return status_set(err, ROSE_UNSUPPORTED,
                          "qk: rotary size %d of heads of %d; the CUDA kernel takes multiples of 4", rotary,
                          s->head_dim);
    if (s->heads < 0 || s->kv_heads < 0 || s->heads + s->kv_heads <= 0)
        return status_set(err, ROSE_INVALID, "qk: %d query and %d key heads", s->heads, s->kv_heads);
    if (s->write && s->page_tokens <= 0)
        return status_set(err, ROSE_INVALID, "qk: pages of %d tokens", s->page_tokens);
    return ROSE_OK;
}

enum rose_status qk_cuda_plan(const struct qk_shape *s, const struct device_info *d, struct plan *out,
                              struct rose_error *err)
{
    int vec;
    *out = (struct plan){.kernel = "qk_rows", .rows = s->rows};
    ROSE_TRY(check(s, d, &vec, err));
    int pairs = s->head_dim * 2 / vec / 2, threads = 1;
    while (threads < 32 && pairs % (threads * 2) == 0) threads *= 2;
    /* Pairs that no power of two divides: a pair a thread, as many groups as a warp has room for (heads of 96: +10 % over a clone, with
     * eight threads of which two are idle +20, with three pairs a thread +25). */
    if (pairs / threads > 2 && pairs < 32) threads = pairs;
    if (s->threads) threads = s->threads;
    /* Heads a thread: one, unless there are rotations for more threads than the SMs hold twice over. */
    int64_t all = s->rows * (s->heads + s->kv_heads * (s->write ? 2 : 1)) * threads;
    bool many = all >= (int64_t)d->units * d->max_threads_per_unit * 2, turn = s->rope != OP_ROPE_NONE;
    /* With a rotation four where there are as many: the angles cost more than a head (4096 rows of 32 + 4 heads with pages: 22.7 us in
     * blocks of 64, 26.1 with two heads in blocks of 256; 32768 rows 163 and 189). */
    bool four = s->heads >= 4 && (s->kv_heads >= 4 || !s->kv_heads);
    /* More than L2 holds, rows and results leave it first: 32768 rows 150 us (+3 % over a clone, was +9), with pages 169 of two heads in
     * blocks of 128 (+5 %, was +12). */
    bool once = plan_arch(d) >= 900 && d->l2_bytes > 0 && s->rows * (s->heads + s->kv_heads * (s->write ? 2.0 : 1.0)) * s->head_dim * 4 > 0.75 * (double)d->l2_bytes;
    int repeat = s->repeat ? s->repeat : !many || !turn ? 1 : four && !(once && s->write) ? 4 : 2;
    int chunks = (s->heads + repeat - 1) / repeat + (s->kv_heads + repeat - 1) / repeat * (s->write ? 2 : 1);
    int64_t warps = (s->rows * chunks + 32 / threads - 1) / (32 / threads);
    int block = 32;
    while (block < 256 && warps * 32 > (int64_t)d->units * block) block *= 2;
    if (many && turn && repeat == 4) block = 64;
    if (many && turn && repeat == 2 && once && s->write) block = 128;
    if (s->block) block = s->block;
    int32_t rotary = s->rope != OP_ROPE_NONE ? s->rotary_dim : 0;
    plan_int(out, "HEADS", s->heads);
    plan_int(out, "KV_HEADS", s->kv_heads);
    plan_int(out, "HD", s->head_dim);
    plan_int(out, "VEC_BYTES", vec);
    plan_int(out, "TPR", threads);
    plan_int(out, "REP", repeat);
    plan_int(out, "THREADS", block);
    plan_int(out, "NORM", s->norm);
    plan_int(out, "NORM_AFTER", s->norm_after_rope);
    plan_f32(out, "EPS", s->eps);
    plan_f32(out, "OFFSET", s->offset);
    plan_int(out, "ROPE", rotary ? (int64_t)s->rope : 0);
    plan_int(out, "ROTARY", rotary);
    plan_f32(out, "ROPE_SCALE", s->rope_scale != 0 ? s->rope_scale : 1.0f);
    plan_int(out, "SEQ_FREQ", s->seq_freq);
    plan_int(out, "WRITE", s->write);
    plan_int(out, "PAGE_TOKENS", s->write ? s->page_tokens : 1);
    plan_int(out, "KV_ELEM", s->kv_bytes == 1 ? 1 : 2);
    plan_int(out, "SHARE", rotary && s->share > 0);
    plan_element(out, s->f16);
    out->block = (uint32_t)block;
    out->times = chunks;
    out->per = block / 32 * (32 / threads);
    double rows = (double)s->rows, heads = s->heads + s->kv_heads * (s->write ? 2.0 : 1.0);
    /* Read and written as they are, but for what goes into pages of e4m3. */
    double narrow = s->write && s->kv_bytes == 1 ? 2.0 * s->kv_heads : 0;
    out->bytes = rows * ((heads * 4 - narrow) * s->head_dim + (rotary ? 4 : 0) + (s->write ? 8 : 0)) +
                 2.0 * s->norm * s->head_dim + 2.0 * rotary;
    plan_once(out, d, vec, s->stream ? s->stream : turn ? 0 : -1);
    out->ops = rows * (s->heads + s->kv_heads) * (3.0 * rotary + (s->norm ? 4.0 * s->head_dim : 0));
    /* Positions are read before the angles are known: a second round of loads. */
    out->values = true;
    plan_stream(out, d, 0.12 + (rotary ? 0.25 : 0) + (s->write ? 0.1 : 0));
    return ROSE_OK;
}

/* align: elements of a vector. */
static enum rose_status check_op(const struct op_cache *cache, const struct op_qk *op, int32_t align, struct rose_error *err)
{
    bool q = op->q.buffer != 0, k = op->k.buffer != 0;
    enum dtype element = q ? op->q.dtype : op->k.dtype;
    if (op->write && cache->dtype != element && cache->dtype != DTYPE_F8_E4M3)
        return status_set(err, ROSE_UNSUPPORTED, "qk: a cache of %s; the CUDA kernel writes F8_E4M3 and what rows are in: %s",
                          dtype_info(cache->dtype)->name, dtype_info(element)->name);
    if (q) ROSE_TRY(value_check_alike("qk", &op->q, &op->k, err));
    if (op->write && op->heads.value_dim != op->heads.head_dim)
        return status_set(err, ROSE_UNSUPPORTED,
                          "qk: values of %d beside keys of %d; the CUDA kernel takes equal sizes",
                          op->heads.value_dim, op->heads.head_dim);
    if (q && k && !op->q_norm != !op->k_norm)
        return status_set(err, ROSE_UNSUPPORTED,
                          "qk: the CUDA kernel normalises queries and keys, or neither");
    if (op->norm_full && op->norm_after_rope)
        return status_set(err, ROSE_UNSUPPORTED, "qk: a norm over whole rows behind the rotation");
    const struct op_value *v[] = {&op->q, &op->k, &op->v};
    for (int i = 0; i < 3; i++)
        if (v[i]->buffer && (v[i]->stride % align || v[i]->offset % align))
            return status_set(err, ROSE_UNSUPPORTED,
                              "qk: rows of stride %d and offset %d; the CUDA kernel takes multiples of %d here",
                              v[i]->stride, v[i]->offset, align);
    return ROSE_OK;
}

/* OLMo 2: the norm goes over all heads of a row. */
static enum rose_status norm_rows(struct program *program, const struct op_qk *op, const struct op_value *v,
                                  const float *weight, struct rose_error *err)
{
    if (!v->buffer || !weight) return ROSE_OK;
    struct op_norm norm = {.layer = op->layer,
                           .kind = OP_NORM_RMS,
                           .eps = op->norm_eps,
                           .weight_offset = op->norm_offset,
                           .weight = weight,
                           .x = *v,
                           .y = *v};
    return op_norm(program, &norm, err);
}

enum rose_status qk_cuda(struct program *program, const struct op_step *step, const struct op_cache *cache,
                         const struct op_qk *op, struct rose_error *err)
{
    const struct op_heads *h = &op->heads;
    bool q = op->q.buffer != 0, k = op->k.buffer != 0, rope = op->rope != OP_ROPE_NONE;
    bool norm = !op->norm_full && ((q && op->q_norm) || (k && op->k_norm));
    ROSE_TRY(check_op(cache, op, vector(&program->device->info, h->head_dim, rope ? op->rotary_dim : 0) / 2, err));
    if (op->norm_full) {
        ROSE_TRY(norm_rows(program, op, &op->q, op->q_norm, err));
        ROSE_TRY(norm_rows(program, op, &op->k, op->k_norm, err));
        if (!rope && !op->write) return ROSE_OK;
    }
    struct qk_shape s = {.rows = plan_rows(program, EXTENT_ROWS),
                         .heads = q ? h->heads : 0,
                         .kv_heads = k ? h->kv_heads : 0,
                         .head_dim = h->head_dim,
                         .norm = norm ? 4 : 0,
                         .norm_after_rope = op->norm_after_rope,
                         .eps = op->norm_eps,
                         .offset = op->norm_offset,
                         .rope = op->rope,
                         .rotary_dim = op->rotary_dim,
                         .rope_scale = op->rope_scale,
                         .seq_freq = rope && op->seq_freq,
                         .write = op->write,
                         .f16 = value_f16(q ? &op->q : &op->k),
                         .page_tokens = op->write ? cache->page_tokens : 0,
                         .kv_bytes = op->write ? dtype_info(cache->dtype)->bytes : 0};
    struct qk_rows_params p = {.q_norm = op->q_norm,
                               .k_norm = op->k_norm,
                               .inv_freq = op->inv_freq,
                               .q_stride = op->q.stride,
                               .k_stride = op->k.stride,
                               .v_stride = op->v.stride};
    struct program_launch l = {.name = "qk", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(qk_cuda_plan(&s, &program->device->info, &plan, err));
    ROSE_TRY(plan_record(&plan, program, EXTENT_ROWS, offsetof(struct qk_rows_params, rows), &l, err));
    if (q) value_use(&l, &op->q, PROGRAM_UPDATE, offsetof(struct qk_rows_params, q));
    if (k)
        value_use(&l, &op->k, op->write ? PROGRAM_READ : PROGRAM_UPDATE, offsetof(struct qk_rows_params, k));
    if (rope) program_use(&l, step->positions, PROGRAM_READ, offsetof(struct qk_rows_params, positions));
    if (s.seq_freq) {
        program_use(&l, step->seq_inv_freq, PROGRAM_READ, offsetof(struct qk_rows_params, inv_freq));
        program_use(&l, step->row_seq, PROGRAM_READ, offsetof(struct qk_rows_params, row_seq));
    }
    if (op->write) {
        value_use(&l, &op->v, PROGRAM_READ, offsetof(struct qk_rows_params, v));
        program_use(&l, step->kv_slot[op->group], PROGRAM_READ, offsetof(struct qk_rows_params, kv_slot));
        p.pool = cache->pool;
        p.page_bytes = (int64_t)cache->page_bytes;
        p.layer_offset = op->group_layer *
                         KV_ROWS_LAYER_BYTES(h->kv_heads, cache->page_tokens, h->head_dim, h->value_dim,
                                             dtype_info(cache->dtype)->bytes);
    }
    program_add(program, &l);
    return ROSE_OK;
}
