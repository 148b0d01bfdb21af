/* The shapes: those of facts/hardware.md's peers, and the ends of each plan's range. */
#include "gpu_ops.h"

#include <stdio.h>
#include <string.h>

#include "kernels/params/clone.h"
#include "kernels/params/kv_layout.h"
#include "kernels/params/norm_rows.h"
#include "kernels/params/qk_rows.h"
#include "ops/act_cuda.h"
#include "ops/kv_cuda.h"
#include "ops/logprob_cuda.h"
#include "ops/norm_cuda.h"
#include "ops/qk_cuda.h"
#include "ops/quant_cuda.h"
#include "ops/value_cuda.h"

static struct rose_error err_;
#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

/* ---- norms: n = cols, add, bias ---- */

static size_t norm_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m,
                        void *params)
{
    size_t bytes = (size_t)e->rows * (size_t)e->n[0] * 2;
    struct norm_rows_params p = {
        .x_stride = e->n[0], .add_stride = e->n[0], .y_stride = e->n[0], .rows = (uint32_t)e->rows};
    p.x = bench_take(m, bytes);
    p.y = bench_take(m, bytes);
    if (e->n[1]) p.add = bench_take(m, bytes);
    if (e->n[2]) {
        int64_t group = act_cuda_group(e->n[2]);
        p.scale = bench_take(m, (size_t)(e->rows * (group ? e->n[0] / group + 1 : 1)) * 4);
        p.scale_row_stride = group ? e->n[0] / group : 1, p.scale_group_stride = 1;
        p.global = t->inv_freq;
    }
    p.weight = t->weights, p.bias = t->weights;
    memcpy(params, &p, sizeof p);
    return sizeof p;
}

static void norm(const struct device_info *d, bench_add *add, void *context, struct norm_shape s,
                 double bound, bool sweep)
{
    static const char *const names[2][2] = {{"RMSNorm", "RMSNorm + residual"},
                                            {"LayerNorm", "LayerNorm + residual"}};
    struct bench_entry e = {.op = names[s.kind == OP_NORM_LAYER][s.add],
                            .fill = norm_fill,
                            .rows = s.rows,
                            .n = {s.cols, s.add, s.out},
                            .bound_us = bound,
                            .sweep = sweep};
    if (norm_cuda_plan(&s, d, &e.plan, &err_)) return (void)printf("%s\n", err_.message);
    e.set_bytes = ((size_t)s.rows * (size_t)s.cols * 2 + 256) * (2 + s.add) +
                  (s.out ? (size_t)s.rows * (size_t)(s.cols / 16 + 1) * 4 + 256 : 0);
    static const char *const outs[] = {"",
                                       "",
                                       "RMSNorm + residual + e4m3 per token",
                                       "RMSNorm + residual + e4m3 1x128",
                                       "RMSNorm + residual + mxfp8",
                                       "",
                                       "RMSNorm + residual + nvfp4"};
    if (s.out) e.op = outs[s.out];
    snprintf(e.shape, sizeof e.shape, "%lldx%d", (long long)s.rows, s.cols);
    add(context, &e);
}

/* The clone with a residual's streams: what a norm that adds would take if it only moved its bytes. */
static size_t streams_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m, void *params)
{
    const size_t bytes = (size_t)e->rows * 16;
    struct clone_params p = {.x = bench_take(m, bytes), .y = bench_take(m, bytes), .add = bench_take(m, bytes), .vectors = (uint64_t)e->rows};
    (void)t;
    memcpy(params, &p, sizeof p);
    return sizeof p;
}
static void streams(const struct device_info *d, bench_add *add, void *context, int rows, int cols, int threads, int per, bool sweep)
{
    struct bench_entry e = {.op = "clone of a residual's streams", .fill = streams_fill, .rows = (int64_t)rows * cols / 8, .sweep = sweep};
    e.plan = (struct plan){.kernel = "clone", .rows = e.rows, .block = (uint32_t)threads, .times = 1, .per = threads * per, .bytes = (double)e.rows * 64};
    plan_int(&e.plan, "THREADS", threads);
    plan_int(&e.plan, "PER", per);
    plan_int(&e.plan, "ADD", 1);
    plan_stream(&e.plan, d, 0);
    e.set_bytes = 3 * ((size_t)e.rows * 16 + 256);
    snprintf(e.shape, sizeof e.shape, "%dx%d", rows, cols);
    add(context, &e);
}

/* The bulk form: blocks an SM (and so rows ahead), vectors a thread, stores by the copy engine or not. */
static void norm_bulks(const struct device_info *d, bench_add *add, void *context)
{
    static const int cols[] = {2048, 4096, 8192, 16384}, rows[] = {4096, 32768};
    for (int i = 0; i < COUNT(cols) * COUNT(rows) * 3; i++)
        for (int k = 0; k < 12; k++) {
            struct norm_shape s = {.rows = rows[i % 2], .cols = cols[i / 2 % COUNT(cols)], .weight = 2, .eps = 1e-6f, .form = NORM_FORM_BULK};
            int kind = i / 2 / COUNT(cols);
            s.add = kind == 1, s.kind = kind == 2 ? OP_NORM_LAYER : OP_NORM_RMS, s.bias = kind == 2 ? 2 : 0;
            s.resident = 1 + k % 3, s.bulk_store = k / 3 % 2, s.threads = s.cols / 8 / (1 + k / 6);
            if ((int64_t)s.rows * s.cols > (int64_t)32768 * 8192 || s.threads > 1024 || s.rows == 32768)
                continue;
            norm(d, add, context, s, 0, true);
        }
}

/* Forms with results, or rows and results, that leave L2 first. */
static void norm_streams(const struct device_info *d, bench_add *add, void *context)
{
    static const struct {
        int cols, threads, resident;
        enum norm_form form;
    } tried[] = {{2048, 128, 1, NORM_FORM_ROWS},  {2048, 256, 6, NORM_FORM_ROWS},  {2048, 128, 8, NORM_FORM_AHEAD}, {2048, 64, 8, NORM_FORM_AHEAD},
                 {4096, 256, 1, NORM_FORM_ROWS},  {4096, 256, 4, NORM_FORM_ROWS},  {4096, 512, 2, NORM_FORM_ROWS},  {4096, 256, 3, NORM_FORM_AHEAD},
                 {4096, 256, 4, NORM_FORM_AHEAD}, {4096, 128, 4, NORM_FORM_AHEAD}, {8192, 512, 2, NORM_FORM_ROWS},  {8192, 512, 3, NORM_FORM_ROWS},
                 {8192, 256, 4, NORM_FORM_ROWS},  {8192, 512, 2, NORM_FORM_AHEAD}, {8192, 256, 2, NORM_FORM_AHEAD}, {8192, 512, 1, NORM_FORM_AHEAD},
                 {16384, 512, 2, NORM_FORM_ROWS}, {16384, 512, 1, NORM_FORM_AHEAD}, {16384, 1024, 1, NORM_FORM_BULK}};
    for (int i = 0; i < COUNT(tried) * 4; i++)
        for (int k = 0; k < 3; k++) {
            int kind = i / COUNT(tried), t = i % COUNT(tried);
            struct norm_shape s = {.rows = k < 2 ? 4096 : 32768, .cols = tried[t].cols, .weight = 2, .eps = 1e-6f, .form = tried[t].form, .threads = tried[t].threads,
                                   .resident = tried[t].resident, .stream = k ? 3 : 2, .add = kind & 1, .kind = kind & 2 ? OP_NORM_LAYER : OP_NORM_RMS, .bias = kind & 2 ? 2 : 0};
            if (s.rows * s.cols <= (int64_t)32768 * 8192) norm(d, add, context, s, 0, true);
        }
}

static void norms(const struct device_info *d, bool sweep, bench_add *add, void *context)
{
    static const int cols[] = {2048, 4096, 8192, 16384}, rows[] = {1, 16, 256, 4096, 32768};
    for (int c = 0; c < COUNT(cols); c++)
        for (int r = 0; r < COUNT(rows); r++) {
            struct norm_shape s = {.rows = rows[r], .cols = cols[c], .weight = 2, .eps = 1e-6f};
            if ((int64_t)rows[r] * cols[c] > (int64_t)32768 * 8192) continue;
            norm(d, add, context, s,
                 cols[c] != 4096 ? 0
                 : rows[r] == 1  ? 1.6
                 : rows[r] == 16 ? 1.8
                                 : 0,
                 false);
            s.add = true;
            if (rows[r] == 256) continue;
            norm(d, add, context, s, 0, false);
            for (int residual = 0; residual < 2; residual++)
                norm(d, add, context,
                     (struct norm_shape){.rows = rows[r],
                                         .cols = cols[c],
                                         .weight = 2,
                                         .bias = 2,
                                         .eps = 1e-5f,
                                         .add = residual,
                                         .kind = OP_NORM_LAYER},
                     0, false);
            if (rows[r] >= 4096) streams(d, add, context, rows[r], cols[c], 256, 1, false);
            for (int k = 0; k < 4 && rows[r] >= 4096 && sweep; k++)
                streams(d, add, context, rows[r], cols[c], 128 << k % 2 * 2, 1 + k / 2, true);
        }
    static const int outs[] = {ACT_OUT_E4M3_TOKEN, ACT_OUT_E4M3_128, ACT_OUT_MXFP8, ACT_OUT_NVFP4};
    for (int o = 0; o < COUNT(outs); o++)
        for (int r = 0; r < 2; r++)
            norm(d, add, context,
                 (struct norm_shape){.rows = r ? 4096 : 1,
                                     .cols = 4096,
                                     .weight = 2,
                                     .eps = 1e-6f,
                                     .add = true,
                                     .out = outs[o]},
                 0, false);
    static const int small[] = {32, 512, 8192, 131072, 1048576};
    for (int r = 0; r < COUNT(small); r++)
        norm(d, add, context, (struct norm_shape){.rows = small[r], .cols = 128, .weight = 2, .eps = 1e-6f},
             0, false);
    if (!sweep) return;
    norm_streams(d, add, context);
    norm_bulks(d, add, context);
    for (int c = 0; c < COUNT(cols); c++)
        for (int r = 0; r < COUNT(rows); r++)
            for (int threads = 32; threads <= 1024; threads *= 2) {
                int per = (cols[c] / 8 + threads - 1) / threads;
                if (per > 16 || cols[c] / 8 < threads || (int64_t)rows[r] * cols[c] > (int64_t)32768 * 8192 ||
                    (rows[r] == 32768 && c != 1))
                    continue;
                norm(d, add, context,
                     (struct norm_shape){
                         .rows = rows[r], .cols = cols[c], .weight = 2, .eps = 1e-6f, .threads = threads},
                     0, true);
                for (int k = 0; k < 8 && rows[r] == 4096 && threads >= 128; k++) /* fewer registers, more blocks */
                    norm(d, add, context,
                         (struct norm_shape){.rows = rows[r],
                                             .cols = cols[c],
                                             .weight = 2,
                                             .bias = k & 2 ? 2 : 0,
                                             .eps = 1e-6f,
                                             .threads = threads,
                                             .resident = threads == 1024 ? 2 : (k & 4 ? 1536 : 1024) / threads,
                                             .kind = k & 2 ? OP_NORM_LAYER : OP_NORM_RMS,
                                             .add = k & 1},
                         0, true);
                for (int k = 1; k < 4 && rows[r] >= 4096; k++) /* with a residual, LayerNorm, both */
                    norm(d, add, context,
                         (struct norm_shape){.rows = rows[r],
                                             .cols = cols[c],
                                             .weight = 2,
                                             .bias = k > 1 ? 2 : 0,
                                             .eps = 1e-6f,
                                             .threads = threads,
                                             .kind = k > 1 ? OP_NORM_LAYER : OP_NORM_RMS,
                                             .add = k % 2 == 1},
                         0, true);
            }
    for (int r = 0; r < COUNT(small); r++)
        for (int threads = 4; threads <= 16; threads *= 2)
            for (int repeat = 1; repeat <= 4; repeat *= 2)
                norm(d, add, context,
                     (struct norm_shape){.rows = small[r],
                                         .cols = 128,
                                         .weight = 2,
                                         .eps = 1e-6f,
                                         .threads = threads,
                                         .repeat = repeat},
                     0, true);
}

/* ---- QK: n = heads, kv_heads, head_dim, write (bytes an element of the pages), page_tokens ---- */

static size_t qk_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m,
                      void *params)
{
    int32_t heads = e->n[0], kv = e->n[1], dim = e->n[2], tokens = e->n[4];
    int32_t write = e->n[3];
    int64_t width = (int64_t)(heads + (write ? 2 : 1) * kv) * dim;
    uint16_t *qkv = bench_take(m, (size_t)(e->rows * width) * 2);
    struct qk_rows_params p = {.q = qkv,
                               .k = qkv + heads * dim,
                               .v = qkv + (heads + kv) * dim,
                               .q_norm = t->weights,
                               .k_norm = t->weights,
                               .inv_freq = t->inv_freq,
                               .positions = t->positions,
                               .kv_slot = t->slots,
                               .q_stride = width,
                               .k_stride = width,
                               .v_stride = width,
                               .rows = (uint32_t)e->rows};
    if (write) {
        p.page_bytes = KV_ROWS_LAYER_BYTES(kv, tokens, dim, dim, write);
        p.pool = bench_take(m, (size_t)((e->rows + tokens - 1) / tokens * p.page_bytes));
    }
    memcpy(params, &p, sizeof p);
    return sizeof p;
}

static void qk(const struct device_info *d, bench_add *add, void *context, struct qk_shape s, double bound,
               bool sweep)
{
    struct bench_entry e = {.op = s.write && s.kv_bytes == 1 ? "QK-norm + RoPE + e4m3 page write"
                                  : s.write  ? "QK-norm + RoPE + page write"
                                  : s.rope ? "QK-norm + RoPE"
                                           : "QK-norm",
                            .fill = qk_fill,
                            .rows = s.rows,
                            .n = {s.heads, s.kv_heads, s.head_dim, !s.write ? 0 : s.kv_bytes == 1 ? 1 : 2, s.page_tokens},
                            .bound_us = bound,
                            .sweep = sweep};
    if (qk_cuda_plan(&s, d, &e.plan, &err_)) return (void)printf("%s\n", err_.message);
    e.set_bytes = (size_t)(s.rows + 64) * (size_t)((s.heads + 4 * s.kv_heads) * s.head_dim) * 2 + 4096;
    snprintf(e.shape, sizeof e.shape, "%lldx(%d+%d)x%d", (long long)s.rows, s.heads, s.kv_heads, s.head_dim);
    add(context, &e);
}

static void qks(const struct device_info *d, bool sweep, bench_add *add, void *context)
{
    static const int rows[] = {1, 16, 256, 4096, 32768}, dims[] = {64, 96, 256};
    for (int r = 0; r < COUNT(rows); r++) {
        struct qk_shape s = {.rows = rows[r],
                             .heads = 32,
                             .kv_heads = 4,
                             .head_dim = 128,
                             .norm = 2,
                             .eps = 1e-6f},
                        rope = s;
        rope.rope = OP_ROPE_HALF, rope.rotary_dim = 128;
        struct qk_shape all = rope;
        all.write = true, all.page_tokens = 16;
        qk(d, add, context, s, rows[r] == 1 ? 1.4 : rows[r] == 16 ? 1.6 : 0, false);
        qk(d, add, context, rope, 0, false);
        qk(d, add, context, all, rows[r] == 1 ? 1.9 : 0, false);
        all.kv_bytes = 1;
        qk(d, add, context, all, 0, false);
        all.kv_bytes = 0;
        for (int repeat = 1; repeat <= 8 && sweep; repeat *= 2)
            for (int block = 32; block <= 512; block *= 2) {
                if ((rows[r] >= 4096 && block < 64) || (repeat == 8 && (block > 128 || rows[r] < 4096))) continue;
                s.repeat = all.repeat = repeat, s.block = all.block = block;
                qk(d, add, context, s, 0, true);
                qk(d, add, context, all, 0, true);
                all.share = 1;
                qk(d, add, context, all, 0, true);
                all.share = 0;
            }
    }
    for (int i = 0; i < 24 && sweep; i++) { /* what leaves L2 first */
        struct qk_shape q = {.rows = i % 2 ? 32768 : 4096, .heads = 32, .kv_heads = 4, .head_dim = 128, .norm = 2, .eps = 1e-6f, .stream = 1 + i / 2 % 3};
        int what = i / 6;
        if (what > 0) q.rope = OP_ROPE_HALF, q.rotary_dim = 128;
        if (what > 1) q.write = true, q.page_tokens = 16;
        if (what > 2) q.repeat = 2, q.block = 128;
        qk(d, add, context, q, 0, true);
    }
    for (int i = 0; i < COUNT(dims); i++)
        qk(d, add, context,
           (struct qk_shape){.rows = 4096,
                             .heads = 4096 / dims[i],
                             .kv_heads = 4,
                             .head_dim = dims[i],
                             .norm = 2,
                             .eps = 1e-6f},
           0, false);
    for (int block = 32; block <= 256 && sweep; block *= 2)
        for (int threads = 2; threads <= 8; threads += threads == 2 ? 4 : 2)
            for (int repeat = 1; repeat <= 2; repeat++)
                qk(d, add, context,
                   (struct qk_shape){.rows = 4096, .heads = 42, .kv_heads = 4, .head_dim = 96, .norm = 2, .eps = 1e-6f, .threads = threads, .block = block, .repeat = repeat}, 0, true);
}

/* ---- activations and quantisers: n = cols, gated, out ---- */

static size_t act_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m,
                       void *params)
{
    size_t cells = (size_t)e->rows * (size_t)e->n[0], group = (size_t)act_cuda_group(e->n[2]);
    struct act_rows_params p = {.global = t->inv_freq,
                                .x_stride = e->n[0],
                                .up_stride = e->n[0],
                                .y_stride = e->n[0],
                                .rows = (uint32_t)e->rows};
    p.x = bench_take(m, cells * 2);
    if (e->n[1]) p.up = bench_take(m, cells * 2);
    p.y = bench_take(m, cells * 2);
    p.scale = bench_take(m, cells / 4 + 4096);
    p.scale_row_stride = group ? e->n[0] / (int64_t)group : 1, p.scale_group_stride = 1;
    memcpy(params, &p, sizeof p);
    return sizeof p;
}

static void act(const struct device_info *d, bench_add *add, void *context, const char *name,
                struct act_shape s, bool sweep)
{
    struct bench_entry e = {
        .op = name, .fill = act_fill, .rows = s.rows, .n = {s.cols, s.gated, s.out}, .sweep = sweep};
    if (act_cuda_plan(&s, d, &e.plan, &err_)) return (void)printf("%s\n", err_.message);
    e.set_bytes =
        (size_t)s.rows * (size_t)s.cols * (s.gated ? 6 : 4) + (size_t)s.rows * (size_t)s.cols / 4 + 8192;
    snprintf(e.shape, sizeof e.shape, "%lldx%d", (long long)s.rows, s.cols);
    add(context, &e);
}

static void acts(const struct device_info *d, bool sweep, bench_add *add, void *context)
{
    static const char *const quantise[] = {
        "",         "to e4m3 per tensor", "to e4m3 per token", "to e4m3 1x128",
        "to mxfp8", "to mxfp4",           "to nvfp4",          "to int8 per token"};
    static const int rows[] = {1, 16, 256, 4096};
    for (int r = 0; r < COUNT(rows); r++) {
        act(d, add, context, "SwiGLU",
            (struct act_shape){.rows = rows[r], .cols = 12288, .act = OP_ACT_SILU, .gated = true}, false);
        act(d, add, context, "SwiGLU + e4m3 1x128",
            (struct act_shape){
                .rows = rows[r], .cols = 12288, .act = OP_ACT_SILU, .gated = true, .out = ACT_OUT_E4M3_128},
            false);
        if (rows[r] == 16 || rows[r] == 256) continue;
        act(d, add, context, "GeGLU tanh",
            (struct act_shape){.rows = rows[r], .cols = 12288, .act = OP_ACT_GELU_TANH, .gated = true},
            false);
        act(d, add, context, "gpt-oss SwiGLU",
            (struct act_shape){.rows = rows[r],
                               .cols = 2880,
                               .act = OP_ACT_SILU,
                               .gated = true,
                               .clamp = 7,
                               .alpha = 1.702f,
                               .up_offset = 1},
            false);
        act(d, add, context, "gpt-oss SwiGLU + mxfp8",
            (struct act_shape){.rows = rows[r], .cols = 2880, .act = OP_ACT_SILU, .gated = true, .clamp = 7, .alpha = 1.702f, .up_offset = 1, .out = ACT_OUT_MXFP8, .tiled = true}, false);
        act(d, add, context, "GELU erf",
            (struct act_shape){.rows = rows[r], .cols = 4096, .act = OP_ACT_GELU_ERF}, false);
        act(d, add, context, "ReLU squared",
            (struct act_shape){.rows = rows[r], .cols = 16384, .act = OP_ACT_RELU2}, false);
        for (int out = 1; out < COUNT(quantise); out++)
            act(d, add, context, quantise[out],
                (struct act_shape){.rows = rows[r], .cols = 4096, .out = out, .tiled = out == ACT_OUT_MXFP8},
                false);
    }
    if (!sweep) return;
    for (int out = ACT_OUT_E4M3_TOKEN; out < COUNT(quantise); out++) /* a unit ahead; vectors of 32 bytes; what leaves L2 first */
        for (int i = 0; i < 12; i++) {
            static const struct {
                int ahead, vec, threads, per, stream;
            } v[] = {{0, 32, 64, 4, 0}, {0, 32, 128, 2, 0}, {0, 32, 256, 1, 0}, {0, 32, 128, 2, -1}, {4, 0, 128, 4, 0}, {8, 0, 128, 4, 0},
                     {4, 0, 256, 2, 0}, {8, 0, 256, 2, 0},  {4, 0, 128, 4, -1}, {4, 32, 128, 2, 0}, {0, 0, 128, 4, -1}, {0, 0, 128, 4, 2}};
            act(d, add, context, quantise[out],
                (struct act_shape){.rows = 4096, .cols = 4096, .out = out, .tiled = out == ACT_OUT_MXFP8, .ahead = v[i].ahead, .vec = v[i].vec, .threads = v[i].threads, .per = v[i].per, .stream = v[i].stream}, true);
        }
    for (int stream = 1; stream <= 3; stream++) {
        act(d, add, context, "SwiGLU", (struct act_shape){.rows = 4096, .cols = 12288, .act = OP_ACT_SILU, .gated = true, .stream = stream}, true);
        act(d, add, context, "GELU erf", (struct act_shape){.rows = 4096, .cols = 4096, .act = OP_ACT_GELU_ERF, .stream = stream}, true);
        act(d, add, context, "gpt-oss SwiGLU",
            (struct act_shape){.rows = 4096, .cols = 2880, .act = OP_ACT_SILU, .gated = true, .clamp = 7, .alpha = 1.702f, .up_offset = 1, .stream = stream}, true);
        for (int out = 1; out < COUNT(quantise); out++)
            act(d, add, context, quantise[out], (struct act_shape){.rows = 4096, .cols = 4096, .out = out, .tiled = out == ACT_OUT_MXFP8, .stream = stream}, true);
    }
    for (int threads = 64; threads <= 512; threads *= 2) {
        if (threads <= 256)
            for (int per = 1; per <= 4; per *= 2) {
                act(d, add, context, "GELU erf",
                    (struct act_shape){.rows = 4096, .cols = 4096, .act = OP_ACT_GELU_ERF, .threads = threads, .per = per}, true);
                act(d, add, context, "SwiGLU",
                    (struct act_shape){.rows = 4096,
                                       .cols = 12288,
                                       .act = OP_ACT_SILU,
                                       .gated = true,
                                       .threads = threads,
                                       .per = per},
                    true);
            }
    }
    for (int threads = 32; threads <= 512; threads *= 2)
        for (int per = 1; per <= 8; per *= 2)
            for (int out = ACT_OUT_E4M3_TOKEN; out < COUNT(quantise); out++) {
                const struct act_shape s = {.rows = 4096, .cols = 4096, .out = out, .tiled = out == ACT_OUT_MXFP8, .threads = threads, .per = per};
                bool row = out == ACT_OUT_E4M3_TOKEN || out == ACT_OUT_INT8_TOKEN;
                if (!row || threads * per == 512) act(d, add, context, quantise[out], s, true);
            }
}

/* ---- quantisers beyond rows: the scale of a tensor (n = cols), weights by 128 x 128 (n = cols, blocks across) ---- */

static size_t tensor_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m, void *params)
{
    struct scale_tensor_params p = {.work = t->counters, .x_stride = e->n[0], .rows = (uint32_t)e->rows};
    p.x = bench_take(m, (size_t)e->rows * (size_t)e->n[0] * 2);
    p.scale = bench_take(m, 4);
    memcpy(params, &p, sizeof p);
    return sizeof p;
}
static size_t blocks_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m, void *params)
{
    const size_t cells = (size_t)e->rows * (size_t)e->n[0];
    struct quant_blocks_params p = {.x_stride = e->n[0], .scale_stride = e->n[1], .rows = (uint32_t)e->rows, .cols = (uint32_t)e->n[0]};
    (void)t;
    p.x = bench_take(m, cells * 2);
    p.y = bench_take(m, cells);
    p.scale = bench_take(m, (size_t)((e->rows + 127) / 128 * e->n[1]) * 4);
    memcpy(params, &p, sizeof p);
    return sizeof p;
}
static void quants(const struct device_info *d, bench_add *add, void *context)
{
    static const struct {
        int rows, cols;
    } shapes[] = {{1, 4096}, {16, 4096}, {4096, 4096}, {4096, 14336}};
    for (int i = 0; i < COUNT(shapes) * 3; i++) {
        const int rows = shapes[i / 3].rows, cols = shapes[i / 3].cols, what = i % 3;
        struct bench_entry e = {.op = what == 2 ? "to e4m3 128x128" : what ? "scale of a tensor for nvfp4" : "scale of a tensor for e4m3", .fill = what == 2 ? blocks_fill : tensor_fill,
                                .rows = rows, .n = {cols, (cols + 511) / 512 * 4}, .set_bytes = (size_t)rows * (size_t)cols * 3 + (size_t)(rows / 128 + 1) * (size_t)(cols / 128 + 4) * 4 + 1024};
        struct scale_tensor_shape s = {.rows = rows, .cols = cols, .kind = what};
        if (what == 2 ? quant_cuda_blocks_plan(rows, cols, d, &e.plan, &err_) : quant_cuda_tensor_plan(&s, d, &e.plan, &err_)) return (void)printf("%s\n", err_.message);
        snprintf(e.shape, sizeof e.shape, "%dx%d", rows, cols);
        add(context, &e);
    }
}

/* ---- small ops: n = cols, op ---- */

static size_t value_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m,
                         void *params)
{
    size_t bytes = (size_t)e->rows * (size_t)e->n[0] * 2;
    struct value_rows_params p = {.index = t->positions,
                                  .x_stride = e->n[0],
                                  .y_stride = e->n[0],
                                  .rows = (uint32_t)e->rows,
                                  .x_rows = (uint32_t)e->rows};
    p.x = bench_take(m, bytes);
    p.y = bench_take(m, bytes);
    memcpy(params, &p, sizeof p);
    return sizeof p;
}

static void values(const struct device_info *d, bench_add *add, void *context)
{
    static const struct {
        const char *name;
        struct value_shape s;
    } shapes[] = {{"embedding gather", {.rows = 1, .cols = 4096, .op = VALUE_GATHER}},
                  {"embedding gather", {.rows = 4096, .cols = 4096, .op = VALUE_GATHER}},
                  {"soft cap", {.rows = 1, .cols = 262144, .op = VALUE_SOFTCAP, .cap = 30}},
                  {"soft cap", {.rows = 256, .cols = 262144, .op = VALUE_SOFTCAP, .cap = 30}},
                  {"add", {.rows = 1, .cols = 4096, .op = VALUE_ADD}},
                  {"add", {.rows = 4096, .cols = 4096, .op = VALUE_ADD}},
                  {"row gate", {.rows = 1, .cols = 2048, .op = VALUE_ROW_GATE}},
                  {"row gate", {.rows = 4096, .cols = 2048, .op = VALUE_ROW_GATE}}};
    for (int i = 0; i < COUNT(shapes); i++) {
        const struct value_shape *s = &shapes[i].s;
        struct bench_entry e = {.op = shapes[i].name,
                                .fill = value_fill,
                                .rows = s->rows,
                                .n = {s->cols, s->op},
                                .set_bytes = (size_t)s->rows * (size_t)s->cols * 4 + 512};
        if (value_cuda_plan(s, d, &e.plan, &err_)) return (void)printf("%s\n", err_.message);
        snprintf(e.shape, sizeof e.shape, "%lldx%d", (long long)s->rows, s->cols);
        add(context, &e);
    }
}

/* ---- keys and values between rows and pages: n = heads, dim, page_tokens, from, to ---- */

static void kv_side(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m, int form, struct kv_side *out)
{
    struct kv_shape s = {.kv_heads = e->n[0], .head_dim = e->n[1], .page_tokens = e->n[2]};
    int64_t width = (int64_t)s.kv_heads * s.head_dim, bytes = kv_cuda_layer_bytes(&s, form);
    *out = (struct kv_side){.slot = t->slots, .k_stride = width, .v_stride = width, .page_bytes = bytes};
    if (form == KV_ROWS) {
        out->k = bench_take(m, (size_t)(e->rows * width) * 2);
        out->v = bench_take(m, (size_t)(e->rows * width) * 2);
    } else {
        out->pool = bench_take(m, (size_t)((e->rows + s.page_tokens - 1) / s.page_tokens * bytes));
    }
}
static size_t kv_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m, void *params)
{
    struct kv_rows_params p = {.rows = (uint32_t)e->rows};
    kv_side(e, t, m, e->n[3], &p.from);
    kv_side(e, t, m, e->n[4], &p.to);
    memcpy(params, &p, sizeof p);
    return sizeof p;
}
static void kvs(const struct device_info *d, bench_add *add, void *context)
{
    static const struct {
        const char *name;
        int from, to;
    } kinds[] = {{"pages: write bf16", KV_ROWS, KV_PAGES_BF16},      {"pages: write e4m3", KV_ROWS, KV_PAGES_E4M3},  {"pages: write int8", KV_ROWS, KV_PAGES_INT8},
                 {"pages: copy bf16", KV_PAGES_BF16, KV_PAGES_BF16}, {"pages: bf16 to int8", KV_PAGES_BF16, KV_PAGES_INT8}, {"pages: int8 to bf16", KV_PAGES_INT8, KV_PAGES_BF16},
                 {"pages: e4m3 to rows", KV_PAGES_E4M3, KV_ROWS}};
    for (int i = 0; i < COUNT(kinds) * 2; i++) {
        struct kv_shape s = {.rows = i % 2 ? 32768 : 1, .kv_heads = 8, .head_dim = 128, .page_tokens = 32, .from = kinds[i / 2].from, .to = kinds[i / 2].to};
        struct bench_entry e = {.op = kinds[i / 2].name, .fill = kv_fill, .rows = s.rows, .n = {s.kv_heads, s.head_dim, s.page_tokens, s.from, s.to},
                                .set_bytes = (size_t)(s.rows + 32) * (size_t)(s.kv_heads * s.head_dim) * 8 + (size_t)(s.rows + 32) * (size_t)s.kv_heads * 16 + 4096};
        if (kv_cuda_plan(&s, d, &e.plan, &err_)) return (void)printf("%s\n", err_.message);
        snprintf(e.shape, sizeof e.shape, "%lldx2x%dx%d", (long long)s.rows, s.kv_heads, s.head_dim);
        add(context, &e);
    }
}

/* ---- log-softmax at some tokens: n = vocabulary, want, bf16, blocks ---- */

static size_t logprob_fill(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m, void *params)
{
    size_t rows = (size_t)e->rows, want = (size_t)e->n[1];
    struct logprob_rows_params p = {.ids = t->positions, .counters = t->counters, .logits_stride = e->n[0], .rows = (uint32_t)e->rows, .blocks = (uint32_t)e->n[3]};
    p.logits = bench_take(m, rows * (size_t)e->n[0] * (e->n[2] ? 2 : 4));
    p.y = bench_take(m, rows * want * 4);
    p.part = bench_take(m, rows * (size_t)e->n[3] * 8);
    memcpy(params, &p, sizeof p);
    return sizeof p;
}
static void logprobs(const struct device_info *d, bench_add *add, void *context)
{
    static const int rows[] = {1, 16, 256};
    for (int i = 0; i < COUNT(rows) * 2; i++) {
        struct logprob_shape s = {.rows = rows[i / 2], .vocabulary = 151936, .want = 1, .bf16 = i % 2};
        struct bench_entry e = {.op = i % 2 ? "log-softmax gather bf16" : "log-softmax gather f32", .fill = logprob_fill, .rows = s.rows, .n = {s.vocabulary, s.want, s.bf16}};
        if (logprob_cuda_plan(&s, d, &e.plan, &e.n[3], &err_)) return (void)printf("%s\n", err_.message);
        e.set_bytes = (size_t)s.rows * ((size_t)s.vocabulary * (s.bf16 ? 2 : 4) + 1024 + (size_t)e.n[3] * 8) + 4096;
        snprintf(e.shape, sizeof e.shape, "%lldx%d", (long long)s.rows, s.vocabulary);
        add(context, &e);
    }
}

void bench_table(const struct device_info *d, bool sweep, bench_add *add, void *context)
{
    norms(d, sweep, add, context);
    qks(d, sweep, add, context);
    acts(d, sweep, add, context);
    quants(d, add, context);
    values(d, add, context);
    kvs(d, add, context);
    logprobs(d, add, context);
}
