#include "engine/pool_memory.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda_blas.h"
#include "engine/pool.h"
#include "ops/plan.h"
#include "tensor/dtype.h"

enum { PIECE_BYTES = 1 << 20 };

static bool on_cuda(const struct pool *p) { return p->device->info.kind == DEVICE_CUDA; }

/* --- layout ---------------------------------------------------------------------------------------------------------------------- */

static size_t carve(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += size_round_up(bytes, 64);
    return here;
}

struct layout {
    size_t tokens, positions, row_seq, types, seq_rows, seq_length, kind, skip, inv_freq, bytes;
    size_t rows_bytes, seqs_bytes, freq_bytes;
};

static struct layout layout_of(const struct pool *p, const struct pool_bucket *b)
{
    const struct model_config *c = &p->model->config;
    size_t rows = (size_t)b->rows * 4, seqs = ((size_t)b->seqs + 1) * 4, at = 0;
    size_t freq = rope_by_length(&c->ropes[0]) ? seqs * (size_t)c->ropes[0].rotary_dim / 2 : 0;
    struct layout l = {.rows_bytes = rows, .seqs_bytes = seqs, .freq_bytes = freq};
    l.tokens = carve(&at, rows), l.positions = carve(&at, rows), l.row_seq = carve(&at, rows), l.types = carve(&at, rows);
    l.seq_rows = carve(&at, seqs), l.seq_length = carve(&at, seqs), l.kind = carve(&at, seqs), l.skip = carve(&at, seqs);
    l.inv_freq = carve(&at, freq);
    l.bytes = at;
    return l;
}

static void list_buckets(struct pool *p)
{
    struct pool_memory *m = &p->memory;
    m->max_rows = ROSE_MAX(p->options.step_tokens, p->options.context);
    m->count = 0;
    for (int64_t n = 16; on_cuda(p) && n < m->max_rows && m->count < POOL_BUCKETS - 1; n *= 4) m->bucket[m->count++].rows = (int32_t)n;
    m->bucket[m->count++].rows = m->max_rows;
    for (int i = 0; i < m->count; i++) m->bucket[i].seqs = ROSE_MIN(m->bucket[i].rows, p->options.max_sequences);
}

struct pool_bucket *pool_memory_bucket(struct pool *p, int32_t rows, int32_t seqs)
{
    struct pool_memory *m = &p->memory;
    int i = 0;
    while (i < m->count - 1 && (m->bucket[i].rows < rows || m->bucket[i].seqs < seqs)) i++;
    return &m->bucket[i];
}

/* --- programs -------------------------------------------------------------------------------------------------------------------- */

/* Drafts have no memory yet: any address asks for the same kernels. */
static void *place(struct pool *p, void *memory, const struct program *g) { return g->draft && !memory ? p : memory; }

static enum rose_status record(struct pool *p, const struct pool_bucket *b, struct program *g, struct rose_error *err)
{
    const struct model_config *c = &p->model->config;
    struct pool_memory *m = &p->memory;
    struct layout l = layout_of(p, b);
    char *in = place(p, m->inputs, g);
    struct forward f = {.deterministic = p->options.deterministic};
    f.step = (struct op_step){.max_rows = b->rows, .max_seqs = b->seqs, .max_samples = b->seqs};
    if (on_cuda(p)) {
        int32_t seqs = ROSE_MAX(1, ROSE_MIN(b->rows / 32, b->seqs));
        g->eager = true;
        g->expect = (struct extents){.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = b->rows, [EXTENT_SEQS] = seqs, [EXTENT_SAMPLES] = seqs}};
    }
    f.step.tokens = program_external(g, "tokens", in + l.tokens, l.rows_bytes);
    f.step.positions = program_external(g, "positions", in + l.positions, l.rows_bytes);
    f.step.row_seq = program_external(g, "row_seq", in + l.row_seq, l.rows_bytes);
    f.step.seq_rows = program_external(g, "seq_rows", in + l.seq_rows, l.seqs_bytes);
    f.step.seq_length = program_external(g, "seq_length", in + l.seq_length, l.seqs_bytes);
    if (l.freq_bytes) f.step.seq_inv_freq = program_external(g, "seq_inv_freq", in + l.inv_freq, l.freq_bytes);
    f.types = program_external(g, "types", in + l.types, l.rows_bytes);
    f.pool_kind = program_external(g, "pool_kind", in + l.kind, l.seqs_bytes);
    f.pool_skip = program_external(g, "pool_skip", in + l.skip, l.seqs_bytes);
    f.hidden = program_external(g, "hidden", place(p, m->hidden, g), (size_t)b->rows * (size_t)c->hidden * (on_cuda(p) ? 2 : 4));
    if (forward_pooled_cols(c)) f.pooled = program_external(g, "pooled", place(p, m->pooled, g), (size_t)b->seqs * (size_t)forward_pooled_cols(c) * 4);
    if (forward_token_cols(c)) f.token_values = program_external(g, "token values", place(p, m->token_values, g), (size_t)b->rows * (size_t)forward_token_cols(c) * 4);
    return forward_record(p->model, g, &f, err);
}

/* CUDA: ask for every kernel, then compile all in parallel. */
static enum rose_status draft(struct pool *p, struct rose_error *err)
{
    enum rose_status s = ROSE_OK;
    for (int i = 0; i < p->memory.count && s == ROSE_OK; i++) {
        struct program *g = NULL;
        s = program_open(p->device, &g, err);
        if (s == ROSE_OK) g->draft = true, s = record(p, &p->memory.bucket[i], g, err);
        if (s == ROSE_OK && g->failed) s = status_set(err, ROSE_NO_MEMORY, "out of memory while recording a program");
        program_close(g);
    }
    return s == ROSE_OK ? plan_compile(p->device, err) : s;
}

static enum rose_status open_programs(struct pool *p, struct rose_error *err)
{
    struct pool_memory *m = &p->memory;
    for (int i = 0; i < m->count; i++) {
        struct pool_bucket *b = &m->bucket[i];
        ROSE_TRY(program_open(p->device, &b->program, err));
        ROSE_TRY(record(p, b, b->program, err));
        m->work_bytes = ROSE_MAX(m->work_bytes, program_memory_bytes(b->program));
    }
    if (!on_cuda(p)) return program_finish(m->bucket[0].program, NULL, m->work_bytes = 0, err);
    if (m->work_bytes && !(m->work = device_alloc(p->device, m->work_bytes, DEVICE_MEMORY_LOCAL, err))) return ROSE_NO_MEMORY;
    struct program *forwards[ROSE_COUNT(m->bucket)];
    for (int i = 0; i < m->count; i++) ROSE_TRY(program_finish(forwards[i] = m->bucket[i].program, m->work, m->work_bytes, err));
    ROSE_TRY(model_loaded(p->model, err));
    struct cuda_blas_tuned tuned;
    ROSE_TRY(cuda_blas_tune(p->device, forwards, m->count, CUDA_BLAS_TUNE_S, &tuned, err));
    return device_wait(p->device, NULL, err); /* counters are zero */
}

/* --- memory ---------------------------------------------------------------------------------------------------------------------- */

static void *take(struct pool *p, size_t bytes, enum device_memory kind, struct rose_error *err) { return device_alloc(p->device, bytes, kind, err); }

static enum rose_status take_inputs(struct pool *p, struct rose_error *err)
{
    struct pool_memory *m = &p->memory;
    for (int i = 0; i < m->count; i++) {
        m->bucket[i].bytes = layout_of(p, &m->bucket[i]).bytes;
        m->inputs_bytes = ROSE_MAX(m->inputs_bytes, m->bucket[i].bytes);
    }
    if (!(m->inputs = take(p, m->inputs_bytes, DEVICE_MEMORY_LOCAL, err))) return ROSE_NO_MEMORY;
    m->staging = on_cuda(p) ? take(p, m->inputs_bytes, DEVICE_MEMORY_HOST, err) : m->inputs;
    if (!m->staging) return ROSE_NO_MEMORY;
    for (int i = 0; i < m->count; i++) {
        struct layout l = layout_of(p, &m->bucket[i]);
        char *in = m->staging;
        m->bucket[i].host = (struct pool_inputs){(void *)(in + l.tokens), (void *)(in + l.positions), (void *)(in + l.row_seq), (void *)(in + l.types), (void *)(in + l.seq_rows),
                                                 (void *)(in + l.seq_length), (void *)(in + l.kind), (void *)(in + l.skip), l.freq_bytes ? (void *)(in + l.inv_freq) : NULL};
    }
    return ROSE_OK;
}

static enum rose_status take_outputs(struct pool *p, struct rose_error *err)
{
    const struct model_config *c = &p->model->config;
    struct pool_memory *m = &p->memory;
    m->hidden_bytes = (size_t)m->max_rows * (size_t)c->hidden * (on_cuda(p) ? 2 : 4);
    m->pooled_bytes = (size_t)p->options.max_sequences * (size_t)ROSE_MAX(forward_pooled_cols(c), 1) * 4;
    m->token_bytes = (size_t)m->max_rows * (size_t)ROSE_MAX(forward_token_cols(c), 1) * 4;
    if (!(m->hidden = take(p, m->hidden_bytes, DEVICE_MEMORY_LOCAL, err)) || !(m->pooled = take(p, m->pooled_bytes, DEVICE_MEMORY_LOCAL, err)) ||
        !(m->token_values = take(p, m->token_bytes, DEVICE_MEMORY_LOCAL, err)))
        return ROSE_NO_MEMORY;
    if (!on_cuda(p)) {
        m->hidden_host = m->hidden, m->pooled_host = m->pooled, m->token_host = m->token_values;
        return ROSE_OK;
    }
    m->piece_bytes = ROSE_MAX((size_t)PIECE_BYTES, (size_t)c->hidden * 2);
    if (!(m->pooled_host = take(p, m->pooled_bytes, DEVICE_MEMORY_HOST, err)) || !(m->token_host = take(p, m->token_bytes, DEVICE_MEMORY_HOST, err)) ||
        !(m->hidden_piece = take(p, m->piece_bytes, DEVICE_MEMORY_HOST, err)))
        return ROSE_NO_MEMORY;
    m->hidden_host = malloc((size_t)p->options.context * (size_t)c->hidden * sizeof *m->hidden_host);
    return m->hidden_host ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
}

enum rose_status pool_memory_open(struct pool *p, struct rose_error *err)
{
    list_buckets(p);
    if (on_cuda(p)) ROSE_TRY(draft(p, err));
    ROSE_TRY(take_inputs(p, err));
    ROSE_TRY(take_outputs(p, err));
    return open_programs(p, err);
}

void pool_memory_close(struct pool *p)
{
    struct pool_memory *m = &p->memory;
    for (int i = 0; i < m->count; i++) program_close(m->bucket[i].program);
    if (on_cuda(p)) {
        device_free(p->device, m->staging, m->inputs_bytes, DEVICE_MEMORY_HOST);
        device_free(p->device, m->pooled_host, m->pooled_bytes, DEVICE_MEMORY_HOST);
        device_free(p->device, m->token_host, m->token_bytes, DEVICE_MEMORY_HOST);
        device_free(p->device, m->hidden_piece, m->piece_bytes, DEVICE_MEMORY_HOST);
        device_free(p->device, m->work, m->work_bytes, DEVICE_MEMORY_LOCAL);
        free(m->hidden_host);
    }
    device_free(p->device, m->inputs, m->inputs_bytes, DEVICE_MEMORY_LOCAL);
    device_free(p->device, m->hidden, m->hidden_bytes, DEVICE_MEMORY_LOCAL);
    device_free(p->device, m->pooled, m->pooled_bytes, DEVICE_MEMORY_LOCAL);
    device_free(p->device, m->token_values, m->token_bytes, DEVICE_MEMORY_LOCAL);
    *m = (struct pool_memory){0};
}

size_t pool_memory_bytes(const struct pool *p)
{
    const struct pool_memory *m = &p->memory;
    size_t bytes = m->inputs_bytes + m->hidden_bytes + m->pooled_bytes + m->token_bytes + m->work_bytes;
    return bytes + (on_cuda(p) ? 0 : m->bucket[0].program->memory_bytes);
}

/* --- a batch --------------------------------------------------------------------------------------------------------------------- */

enum rose_status pool_memory_run(struct pool *p, struct pool_bucket *b, int32_t rows, int32_t seqs, bool values, struct rose_error *err)
{
    const struct model_config *c = &p->model->config;
    struct pool_memory *m = &p->memory;
    struct device_event done = {0};
    struct extents extents = {{1, rows, seqs, seqs}};
    size_t pooled = (size_t)seqs * (size_t)forward_pooled_cols(c) * 4, token = values ? (size_t)rows * (size_t)forward_token_cols(c) * 4 : 0;
    if (on_cuda(p)) ROSE_TRY(device_copy(p->device, m->inputs, m->staging, b->bytes, err));
    ROSE_TRY(device_submit(p->device, b->program, &extents, err));
    if (on_cuda(p) && pooled) ROSE_TRY(device_copy(p->device, m->pooled_host, m->pooled, pooled, err));
    if (on_cuda(p) && token) ROSE_TRY(device_copy(p->device, m->token_host, m->token_values, token, err));
    if (on_cuda(p)) return device_wait(p->device, NULL, err);
    ROSE_TRY(device_record(p->device, &done, err));
    return device_wait(p->device, &done, err);
}

enum rose_status pool_memory_hidden(struct pool *p, int32_t row, int32_t count, float **out, struct rose_error *err)
{
    struct pool_memory *m = &p->memory;
    size_t cols = (size_t)p->model->config.hidden, most = m->piece_bytes / (cols * 2);
    *out = m->hidden_host + (on_cuda(p) ? 0 : (size_t)row * cols);
    for (size_t at = 0; on_cuda(p) && at < (size_t)count; at += most) {
        size_t n = ROSE_MIN(most, (size_t)count - at);
        ROSE_TRY(device_copy(p->device, m->hidden_piece, (const uint16_t *)m->hidden + ((size_t)row + at) * cols, n * cols * 2, err));
        ROSE_TRY(device_wait(p->device, NULL, err));
        for (size_t i = 0; i < n * cols; i++) m->hidden_host[at * cols + i] = (p->model->element == DTYPE_F16 ? f16_to_f32 : bf16_to_f32)(((const uint16_t *)m->hidden_piece)[i]);
    }
    return ROSE_OK;
}
