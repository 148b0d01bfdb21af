#include "ops/matmul_cuda.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "device/cuda_blas.h"
#include "kernels/params/gemm_wgmma.h"
#include "kernels/params/matmul_blocks.h"
#include "ops/act_cuda.h"
#include "ops/matmul_blocks.h"
#include "ops/matmul_fp8.h"
#include "ops/matmul_plan.h"
#include "ops/norm.h"
#include "ops/value.h"
#include "ops/weight_view.h"

_Static_assert((int)GEMM_PARTS == (int)OP_MATMUL_PARTS, "as many parts");

/* ---- weights ---- */

size_t matmul_cuda_weight_bytes(const struct tensor *source, bool expand)
{
    const struct dtype_info *d = dtype_info(source->dtype);
    int64_t n = tensor_rows(source), k = tensor_cols(source);
    if (!expand && matmul_blocks_bytes(source)) return matmul_blocks_bytes(source);
    if (!expand && matmul_fp8_bytes(source)) return matmul_fp8_bytes(source);
    if (!d->decodes || n <= 0 || k <= 0 || k % 8 || k % d->block || n > INT32_MAX || k > INT32_MAX) return 0;
    return (size_t)n * (size_t)k * 2;
}

size_t matmul_cuda_weight_rows_bytes(const struct op_weight *w, int64_t rows)
{
    if (w->layout != WEIGHT_LAYOUT_CUDA_BLOCKS) return (size_t)rows * (size_t)w->k * (w->layout == WEIGHT_LAYOUT_CUDA_FP8 ? 1 : 2);
    return (size_t)((rows + MATMUL_CUDA_ROWS - 1) / MATMUL_CUDA_ROWS * MATMUL_CUDA_ROWS) * dtype_row_bytes(w->dtype, (size_t)w->k);
}

bool matmul_cuda_weight_rows(const struct op_weight *w, const struct tensor *source, int64_t row, int64_t rows, void *memory)
{
    enum { PIECE = 1024 }; /* whole blocks of every format */
    const float F16_MOST = 65504;
    float f[PIECE];
    uint16_t *out = memory;
    size_t k = (size_t)tensor_cols(source), row_bytes = dtype_row_bytes(source->dtype, k);
    const char *from = (const char *)source->data + (size_t)row * row_bytes;
    if (w->layout == WEIGHT_LAYOUT_CUDA_BLOCKS) {
        matmul_blocks_rows(source, row, rows, memory);
        return true;
    }
    if (source->dtype == DTYPE_F8_E4M3 && !matmul_fp8_good(from, (size_t)rows * row_bytes)) return false;
    if (source->dtype == w->dtype) {
        memcpy(out, from, (size_t)rows * row_bytes);
        return true;
    }
    for (int64_t r = 0; r < rows; r++, from += row_bytes, out += k)
        for (size_t c = 0; c < k; c += PIECE) {
            size_t n = ROSE_MIN(k - c, (size_t)PIECE);
            dtype_decode(source->dtype, from + dtype_row_bytes(source->dtype, c), f, n);
            for (size_t i = 0; i < n && source->scales; i++) f[i] *= tensor_scale(source, row + r, (int64_t)(c + i));
            if (w->dtype == DTYPE_F16)
                for (size_t i = 0; i < n; i++) out[c + i] = f32_to_f16(f[i] > F16_MOST ? F16_MOST : f[i] < -F16_MOST ? -F16_MOST : f[i]);
            else
                for (size_t i = 0; i < n; i++) out[c + i] = f32_to_bf16(f[i]);
        }
    return true;
}

enum rose_status matmul_cuda_weight(const struct tensor *source, bool expand, void *memory, struct op_weight *out, struct rose_error *err)
{
    return matmul_cuda_weight_as(source, expand, DTYPE_BF16, memory, out, err);
}

enum rose_status matmul_cuda_weight_as(const struct tensor *source, bool expand, enum dtype element, void *memory, struct op_weight *out, struct rose_error *err)
{
    size_t bytes = matmul_cuda_weight_bytes(source, expand);
    if (!bytes)
        return status_set(err, ROSE_UNSUPPORTED,
                          "a weight [%lld, %lld] of %s: CUDA products take rows of a multiple of 8 elements of a type that "
                          "can be read as 16-bit floats",
                          (long long)tensor_rows(source), (long long)tensor_cols(source), dtype_info(source->dtype)->name);
    if (!memory || (uintptr_t)memory % 16)
        return status_set(err, ROSE_INTERNAL, "a weight for CUDA needs aligned device memory");
    ROSE_TRY(op_weight_check_scales(source, err));
    if (!expand && matmul_fp8_bytes(source)) {
        *out = matmul_fp8_weight(source, memory);
        return ROSE_OK;
    }
    bool blocks = !expand && matmul_blocks_bytes(source);
    *out = (struct op_weight){.dtype = blocks ? source->dtype : element,
                              .n = (int32_t)tensor_rows(source),
                              .k = (int32_t)tensor_cols(source),
                              .data = memory,
                              .layout = blocks ? WEIGHT_LAYOUT_CUDA_BLOCKS : WEIGHT_LAYOUT_CUDA_ROWS,
                              .bytes = bytes,
                              .bytes_read = (double)bytes};
    return ROSE_OK;
}

enum rose_status matmul_cuda_weight_pack(struct device *device, const struct tensor *source, void *memory, struct op_weight *out,
                                         struct rose_error *err)
{
    enum { STAGING = 32 << 20 };
    ROSE_TRY(matmul_cuda_weight(source, false, memory, out, err));
    if (source->dtype == out->dtype && out->layout == WEIGHT_LAYOUT_CUDA_ROWS) {
        ROSE_TRY(device_copy(device, memory, source->data, out->bytes, err));
        return device_wait(device, NULL, err);
    }
    size_t tile_bytes = matmul_cuda_weight_rows_bytes(out, MATMUL_CUDA_ROWS), piece = ROSE_MAX((size_t)STAGING / tile_bytes, (size_t)1) * MATMUL_CUDA_ROWS;
    piece = ROSE_MIN(piece, (size_t)out->n);
    void *staging = malloc(matmul_cuda_weight_rows_bytes(out, (int64_t)piece));
    if (!staging) return status_set(err, ROSE_NO_MEMORY, "out of memory for %zu rows of a weight", piece);
    enum rose_status s = ROSE_OK;
    for (size_t row = 0; row < (size_t)out->n && s == ROSE_OK; row += piece) {
        int64_t rows = (int64_t)ROSE_MIN(piece, (size_t)out->n - row);
        if (!matmul_cuda_weight_rows(out, source, (int64_t)row, rows, staging)) s = op_weight_nan(source, err);
        if (s == ROSE_OK) s = device_copy(device, (char *)memory + matmul_cuda_weight_rows_bytes(out, (int64_t)row), staging, matmul_cuda_weight_rows_bytes(out, rows), err);
        if (s == ROSE_OK) s = device_wait(device, NULL, err);
    }
    free(staging);
    if (s == ROSE_OK && out->layout == WEIGHT_LAYOUT_CUDA_FP8) s = matmul_fp8_copy_scales(device, source, out, err);
    return s;
}

/* ---- op_matmul ---- */

static enum rose_status check(const struct program *program, const struct op_matmul *op, struct rose_error *err)
{
    if (op->parts_count < 1 || op->parts_count > OP_MATMUL_PARTS || (op->gated && op->parts_count != 2))
        return status_set(err, ROSE_INTERNAL, "%s: %d weights; 1 to %d are possible, a gate has 2", op->name, op->parts_count,
                          OP_MATMUL_PARTS);
    if (op->x.stride % 8 || op->x.offset % 8)
        return status_set(err, ROSE_UNSUPPORTED, "%s: x has stride %d and offset %d; the CUDA kernels take multiples of 8",
                          op->name, op->x.stride, op->x.offset);
    for (int i = 0; i < op->parts_count; i++) {
        const struct op_matmul_part *part = &op->parts[i];
        const struct op_weight *w = part->weight;
        bool blocks = w && w->layout == WEIGHT_LAYOUT_CUDA_BLOCKS && matmul_blocks_format(w->dtype) >= 0;
        bool fp8 = w && w->layout == WEIGHT_LAYOUT_CUDA_FP8 && w->dtype == DTYPE_F8_E4M3 && w->scales;
        if (!w || (!blocks && !fp8 && (w->layout != WEIGHT_LAYOUT_CUDA_ROWS || w->dtype != op->x.dtype)) || !w->data || (uintptr_t)w->data % 16)
            return status_set(err, ROSE_INTERNAL, "%s: weight %d is not packed for CUDA products of %s", op->name, i, dtype_info(op->x.dtype)->name);
        if (fp8 && value_f16(&op->x))
            return status_set(err, ROSE_UNSUPPORTED, "%s: FP8 weights multiply BF16 activations on CUDA, not F16", op->name);
        if (i == 0) ROSE_TRY(value_check(program, op->name, "x", &op->x, w->k, op->x.rows, err));
        if (w->k != op->x.cols || (op->gated && w->n != op->parts[0].weight->n))
            return status_set(err, ROSE_INTERNAL, "%s: weight %d is [%d, %d] and x has %d columns", op->name, i, w->n, w->k,
                              op->x.cols);
        if (op->gated && i == 1) continue;
        if (part->y.dtype == DTYPE_F32)
            ROSE_TRY(value_check_f32(program, op->name, "y", &part->y, w->n, op->x.rows, err));
        else
            ROSE_TRY(value_check(program, op->name, "y", &part->y, w->n, op->x.rows, err));
        ROSE_TRY(value_check_alike(op->name, &op->x, &part->y, err));
        if (part->y.buffer == op->x.buffer && part->y.offset < op->x.offset + op->x.cols &&
            op->x.offset < part->y.offset + part->y.cols)
            return status_set(err, ROSE_INTERNAL, "%s: y %d overlaps x", op->name, i);
    }
    return ROSE_OK;
}

/* The descriptor of part `part` (-1: x) at `out`, which need not be aligned. */
static enum rose_status tensor_map(struct device *device, const struct matmul_plan *m, const struct gemm_params *p, int part,
                                   int64_t rows, void *out, struct rose_error *err)
{
    struct layout_tma box;
    struct tensor_map aligned;
    const void *base = matmul_plan_box(m, p, part, rows, &box);
    ROSE_TRY(cuda_tensor_map(device, &box, 2, (void *)(uintptr_t)base, &aligned, err));
    memcpy(out, &aligned, sizeof aligned);
    return ROSE_OK;
}

/* Params of the kernels with TMA in a program: x's address is known when the program is finished. */
struct tma_launch {
    struct gemm_wgmma_params p;
    struct matmul_plan plan; /* from here on behind what the kernel gets */
    int64_t most_rows;
    int panels; /* so many weights lie in a panel, whose address is not known before either */
};
static enum rose_status tma_ready(struct device *device, void *params, struct rose_error *err)
{
    char *at = params; /* an arena does not align to 64 */
    struct tma_launch l;
    memcpy(&l, at, sizeof l);
    for (int i = 0; i < l.panels; i++) ROSE_TRY(tensor_map(device, &l.plan, &l.p.g, i, 0, at + offsetof(struct tma_launch, p.w) + (size_t)i * sizeof l.p.w[0], err));
    return tensor_map(device, &l.plan, &l.p.g, -1, l.most_rows, at + offsetof(struct tma_launch, p.x), err);
}

/* Weights that are decoded to rows of elements just before their product: op_weight.layout PANEL, .data PANEL_AT + where in the buffer. */
enum { WEIGHT_LAYOUT_PANEL = -1, PANEL_AT = 256 };
static bool in_panel(const struct op_weight *w) { return w->layout == WEIGHT_LAYOUT_PANEL; }

/* Declares the pointer to a panel at `param`; the launch then reads no weight before its predecessor, the decoder, has ended. */
static void panel_use(struct program_launch *l, program_buffer_id panel, const struct op_weight *w, size_t param)
{
    program_use(l, panel, PROGRAM_READ, param);
    l->uses[l->uses_count - 1].byte_offset = (uint32_t)((uintptr_t)w->data - PANEL_AT);
    l->dependent = false;
}

/* Parts [begin, begin + count) in one launch: their y and their weights are of one type. */
static enum rose_status record(struct program *program, const struct op_matmul *op, int begin, int count, program_buffer_id panel, struct rose_error *err)
{
    const struct op_matmul_part *parts = op->parts + begin;
    struct matmul_shape s = {.rows = plan_rows(program, op->x.rows),
                             .k = op->x.cols,
                             .parts = count,
                             .act = op->activation,
                             .gated = op->gated,
                             .accumulate = op->accumulate,
                             .out_f32 = parts[0].y.dtype == DTYPE_F32,
                             .f16 = value_f16(&op->x),
                             .pairs = true,
                             .deterministic = op->deterministic};
    const struct op_value *x = op->norm ? &op->norm->x : &op->x;
    if (op->norm) s.norm = true, s.norm_eps = op->norm->eps, s.norm_offset = op->norm->weight_offset;
    struct gemm_params p = {
        .norm = op->norm ? op->norm->weight : NULL, .x_stride = x->stride, .k = (uint32_t)op->x.cols, .alpha = op->alpha != 0 ? op->alpha : 1.0f};
    struct program_launch l = {.name = op->name, .layer = op->layer};
    s.rows16 = true, s.tma = true;
    if (parts[0].weight->layout == WEIGHT_LAYOUT_CUDA_BLOCKS) s.blocks_format = 1 + matmul_blocks_format(parts[0].weight->dtype), s.tile = op->tile;
    if (op->gated && !s.blocks_format) s.tma = in_panel(parts[0].weight) == in_panel(parts[1].weight) && (const char *)parts[1].weight->data > (const char *)parts[0].weight->data;
    for (int i = 0; i < count; i++) {
        const struct op_value *y = &parts[i].y;
        s.n[i] = parts[i].weight->n;
        s.bias |= parts[i].bias != NULL;
        p.part[i] = (struct gemm_part){
            .w = parts[i].weight->data, .bias = parts[i].bias, .n = parts[i].weight->n, .y_stride = y->stride};
        if (op->gated && i) continue;
        s.pairs &= y->stride % 2 == 0 && y->offset % 2 == 0;
        s.rows16 &= value_aligned16(y);
    }
    struct matmul_plan m;
    ROSE_TRY(matmul_plan_make(&s, &program->device->info, &m, err));
    matmul_plan_params(&m, &p);
    struct tma_launch t = {.p = {.g = p}, .plan = m, .most_rows = value_max_rows(program, &op->x)};
    size_t at = m.box ? offsetof(struct tma_launch, p.g) : 0;
    l.params = m.box ? (const void *)&t : &p, l.params_bytes = m.box ? sizeof t : sizeof p;
    if (m.box) {
        l.ready = tma_ready;
        int maps = m.x_alone ? 0 : m.interleaved ? 1 : count;
        if (panel) t.panels = maps;
        for (int i = 0; i < maps && !panel && !program->draft; i++)
            ROSE_TRY(tensor_map(program->device, &m, &p, i, 0, &t.p.w[i], err));
    }
    ROSE_TRY(plan_record(&m.plan, program, op->x.rows, at + offsetof(struct gemm_params, rows), &l, err));
    l.cost = (struct program_cost){0};
    value_use(&l, x, PROGRAM_READ, at + offsetof(struct gemm_params, x));
    l.cost.bytes_per[op->x.rows] = 2.0 * op->x.cols;
    for (int i = 0; i < count; i++) {
        const struct op_matmul_part *part = &parts[i];
        l.cost.bytes += part->weight->bytes_read;
        l.cost.ops_per[op->x.rows] += 2.0 * part->weight->n * part->weight->k;
        if (in_panel(part->weight))
            panel_use(&l, panel, part->weight, at + offsetof(struct gemm_params, part) + (size_t)i * sizeof(struct gemm_part) + offsetof(struct gemm_part, w));
        if (op->gated && i) continue;
        value_use(&l, &part->y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE,
                  at + offsetof(struct gemm_params, part) + (size_t)i * sizeof(struct gemm_part) + offsetof(struct gemm_part, y));
        l.cost.bytes_per[op->x.rows] += (s.out_f32 ? 4.0 : 2.0) * (1 + op->accumulate) * part->weight->n;
    }
    if (m.work_bytes) {
        size_t groups = (size_t)((value_max_rows(program, &op->x) + m.group - 1) / m.group);
        program_use(&l, program_buffer(program, "matmul.work", groups * m.work_bytes), PROGRAM_WRITE,
                    at + offsetof(struct gemm_params, work));
        program_use(&l, program_counters(program, "matmul.counters", groups * m.counter_bytes), PROGRAM_UPDATE,
                    at + offsetof(struct gemm_params, counters));
    }
    program_add(program, &l);
    return ROSE_OK;
}

/* ---- by the library ---- */

/* From so many rows on the library's tiles beat own kernels (H200, tok/s at 64 sequences with it from 65 / 33 rows on: Qwen3-0.6B 27,190 / 41,760, Llama-3.1-8B
 * 11,120 / 11,870, Qwen3-30B 3,770 / 3,970; from 17 on 1 to 4 % less at 20 to 32), but for a gated pair on Hopper, which own kernels multiply without a pass for its
 * activation: gemm_wgmma (2x14336x4096, 128 / 1024 / 4096 rows: 66.5 / 310 / 1221 us, by the library and act_rows 68 / 326 / 1373) and, up to OWN_ROWS, the ring
 * where the weights are more than L2 holds (64 rows 65 us, by the library 63 and act_rows; 2x3072x1024 10.1 and 5.8). */
enum { BLAS_ROWS = 33, OWN_ROWS = 64 };

/* The library multiplies; it knows nothing of biases in float32, and an activation is a kernel of its own behind it. Its results in f16 do not
 * saturate: those are own kernels' (on Hopper as fast, docs/facts.md). */
static bool blas_fits(const struct program *program, const struct op_matmul *op)
{
    int64_t rows = plan_rows(program, op->x.rows);
    /* How many samples a step of prompts has differs from step to step: the library would look for an algorithm, and load it, each time. */
    if (op->x.rows == EXTENT_SAMPLES && program->expect.n[EXTENT_SAMPLES] != program->expect.n[EXTENT_ROWS]) return false;
    if (!program->device->blas || op->deterministic || value_f16(&op->x) || rows < BLAS_ROWS || !value_aligned16(&op->x)) return false;
    const struct device_info *d = &program->device->info;
    bool own = op->gated && plan_arch(d) == 900 && (rows > OWN_ROWS || (double)op->parts[0].weight->n * op->x.cols * 4 > (double)d->l2_bytes);
    if (own && value_aligned16(&op->parts[0].y) && op->parts[0].weight->n % 8 == 0 &&
        (const char *)op->parts[1].weight->data > (const char *)op->parts[0].weight->data)
        return false;
    if ((op->activation || op->gated) && (op->accumulate || (op->alpha != 0 && op->alpha != 1) || (op->parts_count > 1 && !op->gated)))
        return false;
    for (int i = 0; i < op->parts_count; i++) {
        const struct op_value *y = &op->parts[i].y;
        if (op->parts[i].bias || op->parts[i].weight->n % 8) return false;
        if (op->gated && i) continue;
        if (!value_aligned16(y) || ((op->activation || op->gated) && y->dtype != DTYPE_BF16)) return false;
    }
    return true;
}

static void blas_record(struct program *program, const struct op_matmul *op, const struct op_weight *w, int32_t n, const struct op_value *y, program_buffer_id panel)
{
    struct cuda_blas_params p = {.blas = program->device->blas,
                                 .w = w->data,
                                 .x_stride = op->x.stride,
                                 .y_stride = y->stride,
                                 .n = n,
                                 .k = op->x.cols,
                                 .alpha = op->alpha != 0 ? op->alpha : 1.0f,
                                 .beta = op->accumulate ? 1.0f : 0.0f,
                                 .out_f32 = y->dtype == DTYPE_F32};
    struct program_launch l = {.name = op->name,
                               .layer = op->layer,
                               .params = &p,
                               .params_bytes = sizeof p,
                               .host = cuda_blas_run,
                               .rows_param = (uint16_t)(1 + offsetof(struct cuda_blas_params, rows)),
                               .rows_extent = op->x.rows};
    if (in_panel(w)) panel_use(&l, panel, w, offsetof(struct cuda_blas_params, w));
    value_use(&l, &op->x, PROGRAM_READ, offsetof(struct cuda_blas_params, x));
    value_use(&l, y, op->accumulate ? PROGRAM_UPDATE : PROGRAM_WRITE, offsetof(struct cuda_blas_params, y));
    program_use(&l, program_buffer(program, "matmul.workspace", CUDA_BLAS_WORKSPACE), PROGRAM_WRITE,
                offsetof(struct cuda_blas_params, workspace));
    l.cost.bytes = 2.0 * n * op->x.cols;
    l.cost.bytes_per[op->x.rows] = 2.0 * op->x.cols + (double)n * dtype_info(y->dtype)->bytes * (1 + op->accumulate);
    l.cost.ops_per[op->x.rows] = 2.0 * n * op->x.cols;
    program_add(program, &l);
}

static bool behind(const struct op_weight *a, const struct op_weight *b)
{
    return (const char *)a->data + a->bytes == (const char *)b->data;
}

/* Weights that lie one behind the other with results side by side are one product. */
static enum rose_status blas_matmul(struct program *program, const struct op_matmul *op, program_buffer_id panel, struct rose_error *err)
{
    const struct op_matmul_part *p = op->parts;
    struct op_value both = p[0].y;
    struct op_act act = {.layer = op->layer, .activation = op->activation, .gate = both, .y = p[0].y};
    if (op->gated) {
        int32_t n = p[0].weight->n;
        both = (struct op_value){.dtype = DTYPE_BF16, .rows = op->x.rows, .cols = 2 * n, .stride = 2 * n};
        both.buffer = program_buffer(program, "matmul.gated", (size_t)value_max_rows(program, &op->x) * (size_t)n * 4);
        act.gate = op_slice(both, 0, n), act.up = op_slice(both, n, n);
        if (behind(p[0].weight, p[1].weight)) {
            blas_record(program, op, p[0].weight, 2 * n, &both, panel);
        } else {
            blas_record(program, op, p[0].weight, n, &act.gate, panel);
            blas_record(program, op, p[1].weight, n, &act.up, panel);
        }
        return act_cuda(program, &act, err);
    }
    for (int begin = 0, end; begin < op->parts_count; begin = end) {
        struct op_value y = p[begin].y;
        for (end = begin + 1; end < op->parts_count; end++) {
            const struct op_value *next = &p[end].y;
            if (!behind(p[end - 1].weight, p[end].weight) || next->buffer != y.buffer || next->dtype != y.dtype ||
                next->stride != y.stride || next->offset != y.offset + y.cols)
                break;
            y.cols += next->cols;
        }
        blas_record(program, op, p[begin].weight, y.cols, &y, panel);
    }
    return op->activation ? act_cuda(program, &act, err) : ROSE_OK;
}

/* ---- recorded ---- */

static bool is_blocks(const struct op_weight *w) { return w->layout == WEIGHT_LAYOUT_CUDA_BLOCKS; }

/* Parts that are elements, in memory or in a panel. */
static enum rose_status plain(struct program *program, const struct op_matmul *op, program_buffer_id panel, struct rose_error *err)
{
    if (blas_fits(program, op)) return blas_matmul(program, op, panel, err);
    for (int begin = 0, end; begin < op->parts_count; begin = end) {
        for (end = begin + 1; end < op->parts_count; end++)
            if (!op->gated && op->parts[end].y.dtype != op->parts[begin].y.dtype) break;
        ROSE_TRY(record(program, op, begin, end - begin, panel, err));
    }
    return ROSE_OK;
}

/* Rows [begin, begin + rows) of a weight in blocks, as elements at `at` in the panel. */
static enum rose_status decode_panel(struct program *program, const struct op_matmul *op, const struct op_weight *w, int32_t begin, int32_t rows, program_buffer_id panel,
                                     size_t at, struct rose_error *err)
{
    struct matmul_blocks_rows_shape s = {.rows = rows, .k = w->k, .format = matmul_blocks_format(w->dtype), .f16 = value_f16(&op->x)};
    struct matmul_blocks_rows_params p = {
        .w = (const char *)w->data + matmul_cuda_weight_rows_bytes(w, begin), .y_stride = w->k, .rows = (uint32_t)rows, .w_rows = (uint32_t)rows, .scale = 1};
    struct program_launch l = {.name = "decode", .layer = op->layer, .params = &p, .params_bytes = sizeof p};
    struct plan plan;
    ROSE_TRY(matmul_blocks_rows_plan(&s, &program->device->info, &plan, err));
    plan.times = (int32_t)plan_grid(&plan, rows), plan.per = INT32_MAX; /* its rows are those of the weight, not the step's */
    ROSE_TRY(plan_record(&plan, program, EXTENT_ONE, offsetof(struct matmul_blocks_rows_params, index_offset), &l, err));
    l.rows_param = 0;
    l.cost = (struct program_cost){.bytes = plan.bytes, .ops = plan.ops};
    program_use(&l, panel, PROGRAM_WRITE, offsetof(struct matmul_blocks_rows_params, y));
    l.uses[l.uses_count - 1].byte_offset = (uint32_t)at;
    program_add(program, &l);
    return ROSE_OK;
}

/* Many rows: panels of the weights become elements in scratch memory, and the products of those follow, panel by panel. Parts [begin, begin + count),
 * side by side where they fit one panel, as the two of a gated pair always do. */
static enum rose_status by_panels(struct program *program, const struct op_matmul *op, int begin, int count, struct rose_error *err)
{
    enum { PANEL_BYTES = 256 << 20, WHOLE = 256 }; /* a multiple of every tile's columns */
    size_t row_bytes = (size_t)op->x.cols * 2, most = PANEL_BYTES / row_bytes / (size_t)count / WHOLE * WHOLE;
    int32_t n = 0, step = (int32_t)ROSE_MIN(ROSE_MAX(most, (size_t)WHOLE), (size_t)INT32_MAX / 2);
    for (int i = begin; i < begin + count; i++) n = ROSE_MAX(n, op->parts[i].weight->n);
    if (!op->gated && count > 1 && n > step) {
        for (int i = begin; i < begin + count; i++) ROSE_TRY(by_panels(program, op, i, 1, err));
        return ROSE_OK;
    }
    size_t each = size_round_up((size_t)ROSE_MIN(step, n) * row_bytes, 256);
    for (int32_t at = 0; at < n; at += step) {
        struct op_matmul part = *op;
        struct op_weight weights[OP_MATMUL_PARTS];
        program_buffer_id panel = program_buffer(program, "matmul.panel", each * (size_t)count);
        part.parts_count = count;
        for (int i = 0; i < count; i++) {
            struct op_matmul_part *p = &part.parts[i];
            const struct op_weight *w = op->parts[begin + i].weight;
            int32_t rows = ROSE_MIN(step, w->n - at);
            *p = op->parts[begin + i];
            weights[i] = (struct op_weight){.dtype = op->x.dtype, .n = rows, .k = w->k, .layout = WEIGHT_LAYOUT_PANEL, .bytes = (size_t)rows * row_bytes, .bytes_read = (double)rows * (double)row_bytes};
            weights[i].data = (const void *)(PANEL_AT + (uintptr_t)i * each);
            if (is_blocks(w)) {
                ROSE_TRY(decode_panel(program, op, w, at, rows, panel, (size_t)i * each, err));
            } else {
                weights[i].layout = WEIGHT_LAYOUT_CUDA_ROWS;
                weights[i].data = (const char *)w->data + (size_t)at * row_bytes;
            }
            p->weight = &weights[i];
            if (p->bias) p->bias += at;
            if (!op->gated || i == 0) p->y = op_slice(p->y, at, rows);
        }
        ROSE_TRY(plain(program, &part, panel, err));
    }
    return ROSE_OK;
}

/* Is reading the blocks themselves predicted to be faster than decoding them first? */
static bool blocks_inside(const struct program *program, const struct op_matmul *op, int begin, int count)
{
    const struct device_info *d = &program->device->info;
    struct matmul_shape s = {.rows = plan_rows(program, op->x.rows), .k = op->x.cols, .parts = count, .gated = op->gated, .act = op->activation, .tma = true};
    struct matmul_plan m;
    enum { FEW = 16 };
    if (op->tile == MATMUL_TILE_BLOCKS_PANELS) return false;
    if (op->deterministic || s.rows <= FEW || op->tile) return true;
    double weights = 0, bandwidth = d->bandwidth > 0 ? d->bandwidth : 1e12;
    s.blocks_format = 1 + matmul_blocks_format(op->parts[begin].weight->dtype);
    for (int i = 0; i < count; i++) s.n[i] = op->parts[begin + i].weight->n, weights += (double)s.n[i] * s.k;
    if (matmul_plan_make(&s, d, &m, NULL) != ROSE_OK) return false;
    /* Decoded: written and read again; products reach 5.7 (wgmma, cuBLASLt) or 2.5 (mma.sync) TFLOP/s an SM. */
    double product = weights * (double)s.rows * 2 / (d->units * (plan_arch(d) == 900 ? 5.7e12 : 2.5e12));
    double decoded = 4.5e-6 + weights * 2.6 / (0.8 * bandwidth) + ROSE_MAX(product, weights * 2 / (0.8 * bandwidth));
    /* At 1,024 rows of 14336x4096 both took the same where panels were predicted 8 % behind (an H200, cuBLASLt). */
    return m.plan.predicted_us * 1e-6 <= 0.92 * decoded;
}

/* Neighbours of one kind in a launch; what is not FP8 goes its own way. */
static enum rose_status with_fp8(struct program *program, const struct op_matmul *op, struct rose_error *err)
{
    const struct op_matmul_part *p = op->parts;
    for (int begin = 0, end; begin < op->parts_count; begin = end) {
        for (end = begin + 1; end < op->parts_count; end++) {
            bool alike = p[end].weight->layout == p[begin].weight->layout && p[end].weight->scales_kind == p[begin].weight->scales_kind;
            if (op->gated && !alike) return status_set(err, ROSE_UNSUPPORTED, "%s: a gate and its factor with weights of different types are not supported", op->name);
            if (!alike || (!op->gated && p[end].y.dtype != p[begin].y.dtype)) break;
        }
        if (p[begin].weight->layout == WEIGHT_LAYOUT_CUDA_FP8) {
            ROSE_TRY(matmul_fp8_record(program, op, begin, end - begin, err));
            continue;
        }
        struct op_matmul other = *op;
        other.parts_count = end - begin;
        memmove(other.parts, other.parts + begin, (size_t)(end - begin) * sizeof other.parts[0]);
        ROSE_TRY(matmul_cuda(program, &other, err));
    }
    return ROSE_OK;
}

/* May the product normalise its rows itself? One launch, whose results do not lie where its rows do. */
static bool folds(const struct program *program, const struct op_matmul *op)
{
    const struct op_norm *n = op->norm;
    struct matmul_shape s = {.rows = plan_rows(program, op->x.rows), .k = op->x.cols, .parts = op->parts_count, .gated = op->gated, .deterministic = op->deterministic, .f16 = value_f16(&op->x), .tma = true};
    if (n->kind != OP_NORM_RMS || !n->weight || n->bias || n->add.buffer || n->accumulate || (n->alpha != 0 && n->alpha != 1)) return false;
    if ((uintptr_t)n->weight % 16 || n->x.stride % 8 || n->x.offset % 8) return false;
    for (int i = 0; i < op->parts_count; i++) {
        const struct op_matmul_part *part = &op->parts[i];
        if (part->weight->layout != WEIGHT_LAYOUT_CUDA_ROWS || part->y.buffer == n->x.buffer || part->y.dtype != op->parts[0].y.dtype) return false;
        s.n[i] = part->weight->n;
    }
    if (op->gated && (const char *)op->parts[1].weight->data < (const char *)op->parts[0].weight->data) return false;
    return matmul_plan_folds(&s, &program->device->info);
}

enum rose_status matmul_cuda(struct program *program, const struct op_matmul *op, struct rose_error *err)
{
    ROSE_TRY(check(program, op, err));
    struct op_matmul plainly = *op;
    if (op->norm) {
        ROSE_TRY(value_check(program, op->name, "the norm's x", &op->norm->x, op->x.cols, op->x.rows, err));
        if (folds(program, op)) return record(program, op, 0, op->parts_count, 0, err);
        ROSE_TRY(op_norm(program, op->norm, err));
        plainly.norm = NULL;
        op = &plainly;
    }
    bool any = false, fp8 = false;
    for (int i = 0; i < op->parts_count; i++) any |= is_blocks(op->parts[i].weight), fp8 |= op->parts[i].weight->layout == WEIGHT_LAYOUT_CUDA_FP8;
    if (fp8) return with_fp8(program, op, err);
    if (!any) return plain(program, op, 0, err);
    if (op->gated) {
        bool alike = op->parts[0].weight->dtype == op->parts[1].weight->dtype;
        if (alike && blocks_inside(program, op, 0, 2)) return record(program, op, 0, 2, 0, err);
        return by_panels(program, op, 0, 2, err);
    }
    for (int begin = 0, end; begin < op->parts_count; begin = end) {
        const struct op_matmul_part *p = op->parts;
        for (end = begin + 1; end < op->parts_count; end++)
            if (p[end].y.dtype != p[begin].y.dtype || p[end].weight->dtype != p[begin].weight->dtype) break;
        if (!is_blocks(p[begin].weight) || blocks_inside(program, op, begin, end - begin)) ROSE_TRY(record(program, op, begin, end - begin, 0, err));
        else ROSE_TRY(by_panels(program, op, begin, end - begin, err));
    }
    return ROSE_OK;
}
