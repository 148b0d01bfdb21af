/* The ops that rose_bench_op knows: their numbers, and how one call is recorded. */
#include <stdlib.h>
#include <string.h>

#include "api/bench_op.h"
#include "ops/attention.h"
#include "ops/dummy.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/matmul_blocks.h"
#include "ops/matmul_cuda.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/sample.h"

static bool on_cuda(const struct bench_case *c) { return c->device->info.kind == DEVICE_CUDA; }
static int value_bytes(const struct bench_case *c) { return on_cuda(c) ? 2 : 4; }

/* ---- memory ---- */

/* A GPU refuses what it has not; a CPU's memory is given out before it is there, and whoever uses too much is killed. */
static bool fits(const struct bench_case *c, size_t bytes)
{
    size_t used = bytes, most = c->device->info.memory_total / 2;
    for (int i = 0; i < c->memories; i++) used += c->memory[i].bytes;
    return on_cuda(c) || used <= most;
}

static void *take(struct bench_case *c, size_t bytes, struct rose_error *err)
{
    if (!fits(c, bytes)) return status_set(err, ROSE_NO_MEMORY, "a case of more than half of the machine's memory"), NULL;
    if (c->memories == BENCH_OP_MEMORY) return status_set(err, ROSE_LIMIT, "a case of more than %d pieces of memory", BENCH_OP_MEMORY), NULL;
    void *p = device_alloc(c->device, bytes, DEVICE_MEMORY_LOCAL, err);
    if (p) c->memory[c->memories].p = p, c->memory[c->memories++].bytes = bytes;
    return p;
}

/* From host memory, which is read before this returns. */
static enum rose_status put(struct bench_case *c, void *to, const void *from, size_t bytes, struct rose_error *err)
{
    ROSE_TRY(device_copy(c->device, to, from, bytes, err));
    return device_wait(c->device, NULL, err);
}

void *bench_op_copy(struct bench_case *c, const void *from, size_t bytes, struct rose_error *err)
{
    void *p = take(c, bytes, err);
    return p && put(c, p, from, bytes, err) == ROSE_OK ? p : NULL;
}

void *bench_op_noise(struct bench_case *c, size_t bytes, struct rose_error *err)
{
    char *p = take(c, bytes, err);
    for (size_t at = 0; p && at < bytes; at += BENCH_NOISE)
        if (device_copy(c->device, p + at, c->noise, ROSE_MIN(bytes - at, (size_t)BENCH_NOISE), err) != ROSE_OK) return NULL;
    return p && device_wait(c->device, NULL, err) == ROSE_OK ? p : NULL;
}

enum rose_status bench_op_lend(struct bench_case *c, const char *name, size_t bytes, program_buffer_id *buffer, struct rose_error *err)
{
    void *p = bench_op_noise(c, bytes, err);
    if (!p) return ROSE_NO_MEMORY;
    *buffer = program_external(c->program, name, p, bytes);
    return ROSE_OK;
}

enum rose_status bench_op_value(struct bench_case *c, const char *name, enum extent extent, int32_t rows, int32_t cols, struct op_value *out, struct rose_error *err)
{
    program_buffer_id buffer;
    ROSE_TRY(bench_op_lend(c, name, (size_t)rows * (size_t)cols * (size_t)value_bytes(c), &buffer, err));
    *out = (struct op_value){.buffer = buffer, .dtype = on_cuda(c) ? DTYPE_BF16 : DTYPE_F32, .rows = extent, .cols = cols, .stride = cols};
    return ROSE_OK;
}

enum rose_status bench_op_value_f32(struct bench_case *c, const char *name, enum extent extent, int32_t rows, int32_t cols, struct op_value *out, struct rose_error *err)
{
    size_t bytes = (size_t)rows * (size_t)cols * 4;
    void *p = take(c, bytes, err);
    if (!p) return ROSE_NO_MEMORY;
    float *host = c->device->planning ? NULL : malloc(bytes); /* a plan reads no values */
    if (!host && !c->device->planning) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    uint32_t state = 12345;
    for (size_t i = 0; host && i < bytes / 4; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = (float)(state >> 8) * 0x1p-22f - 2.0f;
    }
    enum rose_status s = host ? put(c, p, host, bytes, err) : ROSE_OK;
    free(host);
    ROSE_TRY(s);
    *out = (struct op_value){.buffer = program_external(c->program, name, p, bytes), .dtype = DTYPE_F32, .rows = extent, .cols = cols, .stride = cols};
    return ROSE_OK;
}

float *bench_op_vector(struct bench_case *c, int32_t n, struct rose_error *err)
{
    float *host = malloc((size_t)n * 4);
    if (!host) return status_set(err, ROSE_NO_MEMORY, "out of memory"), NULL;
    for (int32_t i = 0; i < n; i++) host[i] = 0.5f + (float)(i % 64) / 64;
    float *p = bench_op_copy(c, host, (size_t)n * 4, err);
    free(host);
    return p;
}

/* Bytes of a weight: where the device wants it, or as it is. */
static size_t weight_bytes(const struct bench_case *c, const struct tensor *t, bool expand)
{
    size_t packed = on_cuda(c) ? matmul_cuda_weight_bytes(t, expand) : op_weight_bytes(c->device, t);
    return packed ? packed : (size_t)tensor_rows(t) * dtype_row_bytes(t->dtype, (size_t)tensor_cols(t));
}

/* Where the device wants it, from rows on the host. */
static enum rose_status place_weight(struct bench_case *c, struct tensor t, char *place, struct op_weight *out, struct rose_error *err)
{
    if (on_cuda(c) || op_weight_bytes(c->device, &t)) return op_weight_pack(c->device, &t, place, out, err);
    memcpy(place, t.data, weight_bytes(c, &t, false));
    t.data = place;
    return op_weight_pack(c->device, &t, NULL, out, err);
}

/* Blocks of random bits: no NaN, small scales. */
static void random_blocks(enum dtype dtype, uint8_t *out, size_t bytes)
{
    size_t block = dtype_info(dtype)->bytes, scale = dtype == DTYPE_Q6_K ? 208 : dtype == DTYPE_Q3_K ? 108 : dtype == DTYPE_Q2_K ? 80 : 0;
    bool one_byte = dtype == DTYPE_MXFP4, two = dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q2_K || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K;
    uint32_t state = 2463534242u;
    for (size_t i = 0; i < bytes; i++) {
        size_t at = i % block;
        state = state * 1664525u + 1013904223u;
        out[i] = (uint8_t)(state >> 24);
        if (one_byte && at == 0) out[i] = (uint8_t)(116 + out[i] % 4);
        else if (!one_byte && (at == scale + 1 || (two && at == scale + 3))) out[i] = (uint8_t)(0x04 | (out[i] & 0x83)); /* a half around 2^-13 */
    }
}

/* Blocks that stay as they are on a GPU: any bits do for their time, and many copies are wanted soon. */
static enum rose_status noise_blocks(struct bench_case *c, const struct tensor *t, char *place, struct op_weight *out, struct rose_error *err)
{
    ROSE_TRY(matmul_cuda_weight(t, false, place, out, err));
    for (size_t at = 0; at < out->bytes; at += BENCH_NOISE) ROSE_TRY(device_copy(c->device, place + at, c->noise, ROSE_MIN(out->bytes - at, (size_t)BENCH_NOISE), err));
    return device_wait(c->device, NULL, err);
}

/* `matrices` of [n, k], one behind the other as a model's experts lie; expand: to bf16 on a GPU, where experts of that format have no
 * kernel. */
static enum rose_status weights(struct bench_case *c, int32_t matrices, int32_t n, int32_t k, bool expand, struct op_weight *out, struct rose_error *err)
{
    struct tensor t = {.dtype = c->weights, .ndim = 2, .shape = {n, k}};
    size_t row = dtype_row_bytes(t.dtype, (size_t)k), each = size_round_up(weight_bytes(c, &t, expand), 256);
    if (!row) return status_set(err, ROSE_INVALID, "k %d is not whole blocks of %s", k, dtype_info(t.dtype)->name);
    char *place = take(c, each * (size_t)matrices, err);
    if (!place) return ROSE_NO_MEMORY;
    for (int32_t i = 0; c->device->planning && i < matrices; i++) ROSE_TRY(matmul_cuda_weight(&t, expand, place + each * (size_t)i, &out[i], err));
    if (c->device->planning) return ROSE_OK;
    bool kept = on_cuda(c) && t.dtype != DTYPE_BF16 && !expand && matmul_blocks_format(t.dtype) >= 0;
    for (int32_t i = 0; kept && i < matrices; i++) ROSE_TRY(noise_blocks(c, &t, place + each * (size_t)i, &out[i], err));
    if (kept) return ROSE_OK;
    void *rows = malloc((size_t)n * row);
    if (!rows) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (t.dtype == DTYPE_BF16) op_dummy_rows(&t, 1, rows);
    else random_blocks(t.dtype, rows, (size_t)n * row);
    t.data = rows;
    enum rose_status s = ROSE_OK;
    for (int32_t i = 0; i < matrices && s == ROSE_OK; i++) s = place_weight(c, t, place + each * (size_t)i, &out[i], err);
    free(rows);
    return s;
}

/* ---- norm, act ---- */

static void rows_extents(struct bench_case *c) { c->extents = (struct extents){.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = c->value[0], [EXTENT_SEQS] = c->value[0], [EXTENT_SAMPLES] = c->value[0]}}; }

static enum rose_status record_norm(struct bench_case *c, struct rose_error *err)
{
    int32_t rows = c->value[0], cols = c->value[1];
    bool layer = c->value[3];
    if (c->value[4]) return bench_op_norm_quantised(c, cols, c->value[2], layer, c->value[4], err);
    struct op_norm n = {.layer = -1, .kind = layer ? OP_NORM_LAYER : OP_NORM_RMS, .eps = 1e-6f};
    ROSE_TRY(bench_op_value(c, "x", EXTENT_ROWS, rows, cols, &n.x, err));
    ROSE_TRY(bench_op_value(c, "y", EXTENT_ROWS, rows, cols, &n.y, err));
    if (c->value[2]) ROSE_TRY(bench_op_value(c, "add", EXTENT_ROWS, rows, cols, &n.add, err));
    if (!(n.weight = bench_op_vector(c, cols, err)) || (layer && !(n.bias = bench_op_vector(c, cols, err)))) return ROSE_NO_MEMORY;
    return op_norm(c->program, &n, err);
}

static enum rose_status record_act(struct bench_case *c, struct rose_error *err)
{
    static const enum op_activation kinds[] = {OP_ACT_SILU, OP_ACT_GELU_TANH, OP_ACT_GELU_ERF, OP_ACT_RELU2};
    int32_t rows = c->value[0], cols = c->value[1];
    struct op_act a = {.layer = -1, .activation = kinds[c->value[3] % 4]};
    struct op_value in;
    bool gated = c->value[2];
    if (c->value[4]) return bench_op_act_quantised(c, cols, gated, a.activation, c->value[4], err);
    ROSE_TRY(bench_op_value(c, "x", EXTENT_ROWS, rows, gated ? 2 * cols : cols, &in, err));
    a.gate = op_slice(in, 0, cols);
    if (gated) a.up = op_slice(in, cols, cols);
    ROSE_TRY(bench_op_value(c, "y", EXTENT_ROWS, rows, cols, &a.y, err));
    return op_act(c->program, &a, err);
}

/* What small ops there are: a row of the table for each token, x + y, the cap of logits, a gate for each row. */
static enum rose_status record_value(struct bench_case *c, struct rose_error *err)
{
    int32_t rows = c->value[0], cols = c->value[1];
    struct op_value x = {0}, y;
    if (c->value[2] == 2) {
        ROSE_TRY(bench_op_value_f32(c, "logits", EXTENT_ROWS, rows, cols, &x, err));
        return op_softcap(c->program, &(struct op_softcap){.x = x, .y = x, .cap = 30}, err);
    }
    if (c->value[2] != 0) ROSE_TRY(bench_op_value(c, "x", EXTENT_ROWS, rows, c->value[2] == 3 ? 16 : cols, &x, err));
    ROSE_TRY(bench_op_value(c, "y", EXTENT_ROWS, rows, cols, &y, err));
    if (c->value[2] == 1) return op_add(c->program, &(struct op_add){.layer = -1, .x = x, .y = y}, err);
    if (c->value[2] == 3) return op_row_gate(c->program, &(struct op_row_gate){.layer = -1, .gate = op_slice(x, 0, 1), .y = y}, err);
    struct op_weight *table = ARENA_ARRAY(&c->program->arena, struct op_weight, 1);
    int32_t *host = calloc((size_t)rows, sizeof *host);
    if (!table || !host) return free(host), status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = weights(c, 1, rows, cols, true, table, err);
    for (int32_t i = 0; i < rows; i++) host[i] = (int32_t)((int64_t)i * 7919 % rows);
    void *index = s == ROSE_OK ? bench_op_copy(c, host, (size_t)rows * sizeof *host, err) : NULL;
    free(host);
    if (!index) return s == ROSE_OK ? ROSE_NO_MEMORY : s;
    return op_embed(c->program, &(struct op_embed){.table = table, .index = program_external(c->program, "tokens", index, (size_t)rows * 4), .y = y}, err);
}

/* ---- steps ---- */

enum { PAGE = 32 };

/* Inputs of a step of `seqs` sequences, `per` rows each, `context` tokens long with them; pages follow each other. */
static enum rose_status step_inputs(struct bench_case *c, int32_t seqs, int32_t per, int32_t context, struct op_step *step, struct rose_error *err)
{
    int32_t rows = seqs * per, blocks = (context + PAGE - 1) / PAGE;
    size_t tables = (size_t)seqs * (size_t)blocks, ints = (size_t)rows * 2 + (size_t)seqs * 2 + 1 + tables;
    char *p = take(c, (size_t)rows * 8 + ints * 4, err);
    if (!p) return ROSE_NO_MEMORY;
    bool planning = c->device->planning; /* nobody reads the values then */
    int64_t *slots = planning ? (int64_t *)(void *)p : malloc((size_t)rows * 8 + ints * 4);
    if (!slots) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    int32_t *positions = (int32_t *)(void *)(slots + rows), *row_seq = positions + rows, *seq_rows = row_seq + rows, *length = seq_rows + seqs + 1, *table = length + seqs;
    for (int32_t s = 0; !planning && s < seqs; s++) {
        seq_rows[s] = s * per;
        length[s] = context;
        for (int32_t b = 0; b < blocks; b++) table[(size_t)s * (size_t)blocks + (size_t)b] = s * blocks + b;
        for (int32_t i = 0; i < per; i++) {
            int32_t p = context - per + i;
            positions[s * per + i] = p;
            row_seq[s * per + i] = s;
            slots[s * per + i] = (int64_t)(s * blocks + p / PAGE) * PAGE + p % PAGE;
        }
    }
    if (!planning) seq_rows[seqs] = rows;
    enum rose_status status = planning ? ROSE_OK : put(c, p, slots, (size_t)rows * 8 + ints * 4, err);
#define AT(array, count) program_external(c->program, #array, p + ((char *)(array) - (char *)slots), (size_t)(count) * sizeof *(array))
    *step = (struct op_step){.groups = 1, .table_stride = blocks, .max_rows = rows, .max_seqs = seqs, .max_samples = seqs};
    step->kv_slot[0] = AT(slots, rows), step->positions = AT(positions, rows), step->row_seq = AT(row_seq, rows), step->seq_rows = AT(seq_rows, seqs + 1);
    step->seq_length = AT(length, seqs), step->page_table[0] = AT(table, tables);
#undef AT
    if (!planning) free(slots);
    return status;
}

static enum rose_status cache(struct bench_case *c, const struct op_heads *heads, int32_t pages, bool fp8, struct op_cache *out, struct rose_error *err)
{
    enum dtype dtype = fp8 ? DTYPE_F8_E4M3 : on_cuda(c) ? DTYPE_BF16 : DTYPE_F16;
    if (fp8 && !on_cuda(c)) return status_set(err, ROSE_UNSUPPORTED, "fp8=1: pages of e4m3 are a GPU's");
    *out = (struct op_cache){.page_bytes = op_cache_page_bytes(dtype, heads, PAGE, 1), .dtype = dtype, .page_tokens = PAGE};
    if (!out->page_bytes) return status_set(err, ROSE_UNSUPPORTED, "a %s cache cannot hold heads of size %d", dtype_info(dtype)->name, heads->head_dim);
    /* The CPU's noise is float32, which is no noise in float16: small values there. */
    out->pool = on_cuda(c) ? bench_op_noise(c, out->page_bytes * (size_t)pages, err) : take(c, out->page_bytes * (size_t)pages, err);
    if (out->pool && !on_cuda(c))
        for (size_t i = 0; i < out->page_bytes * (size_t)pages / 2; i++) ((uint16_t *)out->pool)[i] = (uint16_t)(0x2c00 + (i * 40503 & 0x83ff));
    return out->pool ? ROSE_OK : ROSE_NO_MEMORY;
}

static enum rose_status record_qk(struct bench_case *c, struct rose_error *err)
{
    int32_t rows = c->value[0], h = c->value[1], kv = c->value[2], dim = c->value[3];
    struct op_qk q = {.layer = 0, .heads = {h, kv, dim, dim}, .norm_eps = 1e-6f, .group_layers = 1, .write = true, .rope = (enum op_rope_kind)c->value[5], .rotary_dim = dim};
    struct op_step step;
    struct op_cache pages;
    struct op_value row;
    ROSE_TRY(step_inputs(c, rows, 1, 64, &step, err));
    ROSE_TRY(cache(c, &q.heads, rows * 2, c->value[6], &pages, err));
    ROSE_TRY(bench_op_value(c, "qkv", EXTENT_ROWS, rows, (h + 2 * kv) * dim, &row, err));
    q.q = op_slice(row, 0, h * dim), q.k = op_slice(row, h * dim, kv * dim), q.v = op_slice(row, (h + kv) * dim, kv * dim);
    if (!(q.inv_freq = bench_op_vector(c, dim / 2, err))) return ROSE_NO_MEMORY;
    if (c->value[4] && (!(q.q_norm = bench_op_vector(c, dim, err)) || !(q.k_norm = bench_op_vector(c, dim, err)))) return ROSE_NO_MEMORY;
    return op_qk(c->program, &step, &pages, &q, err);
}

static void attention_extents(struct bench_case *c)
{
    int32_t seqs = c->value[0], per = ROSE_MIN(c->value[1], c->value[2]), context = c->value[2];
    c->value[1] = per;
    c->extents = (struct extents){.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = seqs * per, [EXTENT_SEQS] = seqs, [EXTENT_SAMPLES] = seqs}};
    struct op_heads heads = {c->value[3], c->value[4], c->value[5], c->value[5]};
    /* The keys and values of every sequence, once; the products of each row with what it sees. */
    c->more_bytes = (double)seqs * context * (double)op_cache_token_bytes(c->value[6] ? DTYPE_F8_E4M3 : on_cuda(c) ? DTYPE_BF16 : DTYPE_F16, &heads);
    c->more_ops = 4.0 * seqs * per * (context - (per - 1) / 2.0) * heads.heads * heads.head_dim;
}

static enum rose_status record_attention(struct bench_case *c, struct rose_error *err)
{
    int32_t seqs = c->value[0], per = c->value[1], context = c->value[2], h = c->value[3], dim = c->value[5];
    struct op_attention a = {.layer = 0, .heads = {h, c->value[4], dim, dim}, .scale = 0.1f, .group_layers = 1};
    struct op_step step;
    struct op_cache pages;
    ROSE_TRY(bench_op_value(c, "q", EXTENT_ROWS, seqs * per, h * dim, &a.q, err)); /* the largest first: what is too large is refused before anything is filled */
    ROSE_TRY(bench_op_value(c, "y", EXTENT_ROWS, seqs * per, h * dim, &a.y, err));
    ROSE_TRY(step_inputs(c, seqs, per, context, &step, err));
    ROSE_TRY(cache(c, &a.heads, seqs * ((context + PAGE - 1) / PAGE), c->value[6], &pages, err));
    return op_attention(c->program, &step, &pages, &a, err);
}

/* ---- products, mixtures, sampling ---- */

static enum rose_status record_matmul(struct bench_case *c, struct rose_error *err)
{
    int32_t rows = c->value[0], n = c->value[1], k = c->value[2];
    struct op_weight *w = ARENA_ARRAY(&c->program->arena, struct op_weight, 1);
    struct op_matmul m = {.name = "matmul", .layer = -1, .parts_count = 1, .parts = {{.weight = w}}};
    if (!w) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    ROSE_TRY(weights(c, 1, n, k, false, w, err));
    ROSE_TRY(bench_op_value(c, "x", EXTENT_ROWS, rows, k, &m.x, err));
    ROSE_TRY(bench_op_value(c, "y", EXTENT_ROWS, rows, n, &m.parts[0].y, err));
    return op_matmul(c->program, &m, err);
}

static enum rose_status record_moe(struct bench_case *c, struct rose_error *err)
{
    int32_t rows = c->value[0], hidden = c->value[1], inner = c->value[2], experts = c->value[3], top = c->value[4];
    struct op_weight *w = ARENA_ARRAY(&c->program->arena, struct op_weight, (size_t)experts * 3);
    if (!w) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    const bool expand = matmul_blocks_format(c->weights) < 0;
    if (top > experts) return status_set(err, ROSE_INVALID, "%d of %d experts", top, experts);
    ROSE_TRY(weights(c, experts, inner, hidden, expand, w, err));
    ROSE_TRY(weights(c, experts, inner, hidden, expand, w + experts, err));
    ROSE_TRY(weights(c, experts, hidden, inner, expand, w + 2 * experts, err));
    size_t choices = (size_t)rows * (size_t)top * 4;
    struct op_moe_route r = {.layer = 0, .experts = experts, .top_k = top, .score = OP_MOE_SOFTMAX, .normalize = true};
    r.ids = program_buffer(c->program, "ids", choices), r.weights = program_buffer(c->program, "weights", choices);
    ROSE_TRY(bench_op_value_f32(c, "router", EXTENT_ROWS, rows, experts, &r.logits, err));
    /* The choice is recorded with the products, as a model's is: they say how it pads, or make it themselves. */
    struct op_moe_mlp m = {.layer = 0, .route = &r, .experts = experts, .top_k = top, .gate = w, .up = w + experts, .down = w + 2 * experts, .activation = OP_ACT_SILU,
                           .ids = r.ids, .weights = r.weights};
    ROSE_TRY(bench_op_value(c, "x", EXTENT_ROWS, rows, hidden, &m.x, err));
    ROSE_TRY(bench_op_value(c, "y", EXTENT_ROWS, rows, hidden, &m.y, err));
    return op_moe_mlp(c->program, &m, err);
}

/* A mask that leaves every other token, and a history for the penalties. */
static enum rose_status sample_changes(struct bench_case *c, struct op_sample *s, int32_t rows, int32_t vocabulary, struct rose_error *err)
{
    enum { HISTORY = 1024 };
    const size_t words = ((size_t)vocabulary + 31) / 32, history = (size_t)rows * HISTORY, ints = words + history + 2 * (size_t)rows;
    int32_t *host = malloc(ints * 4);
    if (!host) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < words; i++) host[i] = 0x55555555;
    for (size_t i = 0; i < history; i++) host[words + i] = (int32_t)(i * 7919 % (size_t)vocabulary);
    for (size_t i = 0; i < 2 * (size_t)rows; i++) host[words + history + i] = i < (size_t)rows ? HISTORY : HISTORY / 2; /* lengths, then prompts */
    char *p = bench_op_copy(c, host, ints * 4, err);
    free(host);
    if (!p) return ROSE_NO_MEMORY;
    s->slots = rows, s->history_stride = HISTORY, s->masks = 1;
    s->mask = program_external(c->program, "mask", p, words * 4);
    s->history = program_external(c->program, "history", p + words * 4, history * 4);
    s->history_length = program_external(c->program, "lengths", p + (words + history) * 4, (size_t)rows * 4);
    s->prompt_length = program_external(c->program, "prompts", p + (words + history + (size_t)rows) * 4, (size_t)rows * 4);
    return ROSE_OK;
}

static enum rose_status record_sample(struct bench_case *c, struct rose_error *err)
{
    int32_t rows = c->value[0], vocabulary = c->value[1];
    struct op_sample s = {.max_samples = rows};
    size_t bytes = (size_t)rows * sizeof(struct sample_row);
    struct sample_row *host = calloc((size_t)rows, sizeof *host);
    if (!host) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int32_t i = 0; i < rows; i++) {
        host[i] = (struct sample_row)SAMPLE_ROW_GREEDY;
        host[i].seed = (uint64_t)i;
        host[i].temperature = (float)c->value[2] / 100;
        host[i].top_k = c->value[3];
        host[i].top_p = (float)c->value[4] / 100;
        host[i].min_p = (float)c->value[5] / 100;
        if (c->value[6]) host[i].slot = i, host[i].mask_row = 0, host[i].repetition = 1.1f, host[i].presence = 0.1f;
    }
    void *p = bench_op_copy(c, host, bytes, err), *out = p ? take(c, (size_t)rows * sizeof(struct sample_output), err) : NULL;
    free(host);
    if (!out) return ROSE_NO_MEMORY;
    s.rows = program_external(c->program, "rows", p, bytes);
    s.output = program_external(c->program, "output", out, (size_t)rows * sizeof(struct sample_output));
    if (c->value[6]) ROSE_TRY(sample_changes(c, &s, rows, vocabulary, err));
    ROSE_TRY(bench_op_value_f32(c, "logits", EXTENT_SAMPLES, rows, vocabulary, &s.logits, err));
    return op_sample(c->program, &s, err);
}

#define ROWS {"rows", "1,16,128,1024,4096", 1 << 18}
#define OUT {"out", "0", 7} /* what results are stored as: 0 bf16 (f32 on the CPU), or ACT_OUT_* */
const struct bench_kind bench_kinds[] = {
    {"norm", {ROWS, {"cols", "4096", 1 << 16}, {"residual", "1", 1}, {"layer", "0", 1}, OUT}, rows_extents, record_norm},
    {"qk", {ROWS, {"heads", "32", 256}, {"kv_heads", "8", 256}, {"dim", "128", 256}, {"norm", "1", 1}, {"rope", "1", OP_ROPE_PAIRS}, {"fp8", "0", 1}}, rows_extents, record_qk}, /* fp8: pages of e4m3 */
    {"act", {ROWS, {"cols", "8192", 1 << 17}, {"gated", "1", 1}, {"kind", "0", 3}, OUT}, rows_extents, record_act},
    {"quantise", {ROWS, {"cols", "4096", 1 << 17}, {"out", "1,2,3,4,5,6,7,8", 8}}, rows_extents, bench_op_quantise},
    {"value", {ROWS, {"cols", "4096", 1 << 20}, {"kind", "0", 3}}, rows_extents, record_value}, /* gather, add, soft cap, row gate */
    {"sample", {{"rows", "1,16,64,256", 4096}, {"vocabulary", "151936", 1 << 20}, {"temperature", "0", 1000}, {"top_k", "0", 1 << 20}, {"top_p", "100", 100}, {"min_p", "0", 100}, {"changed", "0", 1}}, rows_extents, record_sample}, /* changed: penalties and a mask */
    {"moe", {{"rows", "1,16,128,1024", 1 << 16}, {"hidden", "2048", 1 << 15}, {"inner", "768", 1 << 15}, {"experts", "128", 512}, {"top_k", "8", 32}}, rows_extents, record_moe},
    {"dispatch", {{"rows", "1,16,128,1024,8192", 1 << 16}, {"hidden", "2048", 1 << 15}, {"experts", "128", 1024}, {"top_k", "8", 32}, {"out", "0", 7}, {"combine", "1", 1}}, rows_extents, bench_op_dispatch},
    {"pages", {ROWS, {"kv_heads", "8", 4096}, {"dim", "128", 1024}, {"from", "0", 3}, {"to", "1,2,3", 3}}, rows_extents, bench_op_pages}, /* KV_ROWS, KV_PAGES_* */
    {"logprob", {{"rows", "1,16,256", 4096}, {"vocabulary", "151936", 1 << 20}, {"want", "1", 4096}, {"bf16", "0", 1}}, rows_extents, bench_op_logprob},
    {"matmul", {{"rows", "1,8,64,512,4096", 1 << 17}, {"n", "4096", 1 << 20}, {"k", "4096", 1 << 17}}, rows_extents, record_matmul},
    {"attention", {{"sequences", "1,16,128", 4096}, {"queries", "1", 1 << 17}, {"context", "1024,8192", 1 << 20}, {"heads", "32", 256}, {"kv_heads", "8", 256}, {"dim", "128", 256}, {"fp8", "0", 1}},
     attention_extents, record_attention},
};
const size_t bench_kinds_count = ROSE_COUNT(bench_kinds);
