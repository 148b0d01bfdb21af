/* QK-norm, rotation and page write, against float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/params/kv_layout.h"
#include "kernels/params/qk_rows.h"
#include "op_cases_internal.h"
#include "ops/qk_cuda.h"

struct qk_case {
    const char *name;
    struct qk_shape s;
};
#define QK(...)                   \
    {                             \
        .eps = 1e-6f, __VA_ARGS__ \
    }
static const struct qk_case cases[] = {
    {"qk 5 rows, 4+2 heads of 128, norm",
     QK(.rows = 5, .heads = 4, .kv_heads = 2, .head_dim = 128, .norm = 4)},
    {"qk 5 rows, 7+3 heads of 64, norm, two heads a thread",
     QK(.rows = 5, .heads = 7, .kv_heads = 3, .head_dim = 64, .norm = 2, .repeat = 2)},
    {"qk 3 rows, 5+1 heads of 96, norm, offset",
     QK(.rows = 3, .heads = 5, .kv_heads = 1, .head_dim = 96, .norm = 4, .offset = 1)},
    {"qk 7 rows, 5+1 heads of 96, norm, half, three threads a head, pages of 16",
     QK(.rows = 7, .heads = 5, .kv_heads = 1, .head_dim = 96, .norm = 4, .rope = OP_ROPE_HALF, .rotary_dim = 96, .write = true, .page_tokens = 16, .threads = 3)},
    {"qk 3 rows, 3+2 heads of 256, norm",
     QK(.rows = 3, .heads = 3, .kv_heads = 2, .head_dim = 256, .norm = 4)},
    {"qk 5 rows, 4+2 heads of 128, norm, half, pages of 16",
     QK(.rows = 5, .heads = 4, .kv_heads = 2, .head_dim = 128, .norm = 4, .rope = OP_ROPE_HALF,
        .rotary_dim = 128, .write = true, .page_tokens = 16)},
    {"qk 6 rows, 5+2 heads of 64, pairs, pages of 32, two heads a thread",
     QK(.rows = 6, .heads = 5, .kv_heads = 2, .head_dim = 64, .rope = OP_ROPE_PAIRS, .rotary_dim = 64,
        .write = true, .page_tokens = 32, .repeat = 2)},
    {"qk 4 rows, 3+1 heads of 256, norm, half of 64, pages of 64",
     QK(.rows = 4, .heads = 3, .kv_heads = 1, .head_dim = 256, .norm = 2, .offset = 1, .rope = OP_ROPE_HALF,
        .rotary_dim = 64, .write = true, .page_tokens = 64)},
    {"qk 5 rows, 4+2 heads of 128, norm, half, e4m3 pages of 32",
     QK(.rows = 5, .heads = 4, .kv_heads = 2, .head_dim = 128, .norm = 4, .rope = OP_ROPE_HALF,
        .rotary_dim = 128, .write = true, .page_tokens = 32, .kv_bytes = 1)},
    {"qk 9 rows, 6+3 heads of 64, norm, half, e4m3 pages of 32",
     QK(.rows = 9, .heads = 6, .kv_heads = 3, .head_dim = 64, .norm = 2, .rope = OP_ROPE_HALF, .rotary_dim = 64, .write = true, .page_tokens = 32, .kv_bytes = 1)},
    {"qk 17 rows, 3+1 heads of 256, norm, pairs, frequencies of sequences, scaled, e4m3 pages of 16",
     QK(.rows = 17, .heads = 3, .kv_heads = 1, .head_dim = 256, .norm = 4, .rope = OP_ROPE_PAIRS, .rotary_dim = 256, .rope_scale = 1.1f, .seq_freq = true, .write = true,
        .page_tokens = 16, .kv_bytes = 1)},
    {"qk 3 rows, 4+4 heads of 96, half of 96, scaled",
     QK(.rows = 3, .heads = 4, .kv_heads = 4, .head_dim = 96, .rope = OP_ROPE_HALF, .rotary_dim = 96,
        .rope_scale = 1.2f)},
    {"qk 3 rows, 4+2 heads of 128, norm behind half of 96",
     QK(.rows = 3, .heads = 4, .kv_heads = 2, .head_dim = 128, .norm = 4, .norm_after_rope = true,
        .rope = OP_ROPE_HALF, .rotary_dim = 96)},
    {"qk 5 rows, 4+2 heads of 16, half of 12, frequencies of sequences, pages of 16",
     QK(.rows = 5, .heads = 4, .kv_heads = 2, .head_dim = 16, .rope = OP_ROPE_HALF, .rotary_dim = 12, .rope_scale = 1.1f,
        .seq_freq = true, .write = true, .page_tokens = 16)},
    {"qk 5 rows, 3+1 heads of 16, half of 12, norm, e4m3 pages of 16",
     QK(.rows = 5, .heads = 3, .kv_heads = 1, .head_dim = 16, .norm = 4, .rope = OP_ROPE_HALF, .rotary_dim = 12,
        .write = true, .page_tokens = 16, .kv_bytes = 1)},
    {"qk 7 rows, 4+2 heads of 128, norm, half, pages of 16, shared angles",
     QK(.rows = 7, .heads = 4, .kv_heads = 2, .head_dim = 128, .norm = 4, .rope = OP_ROPE_HALF, .rotary_dim = 128, .write = true, .page_tokens = 16,
        .share = 1, .block = 64)},
    {"qk 9 rows, 5+1 heads of 64, pairs of 32, two heads a thread, shared angles of sequences",
     QK(.rows = 9, .heads = 5, .kv_heads = 1, .head_dim = 64, .rope = OP_ROPE_PAIRS, .rotary_dim = 32, .seq_freq = true, .repeat = 2, .share = 1)},
    {"qk 5 rows, 3+3 heads of 96, norm behind half of 64, shared angles, e4m3 pages",
     QK(.rows = 5, .heads = 3, .kv_heads = 3, .head_dim = 96, .norm = 2, .norm_after_rope = true, .rope = OP_ROPE_HALF, .rotary_dim = 64, .write = true,
        .page_tokens = 32, .kv_bytes = 1, .share = 1, .block = 128)},
    {"qk f16 5 rows, 4+2 heads of 128, norm, half, pages of 16",
     QK(.rows = 5, .heads = 4, .kv_heads = 2, .head_dim = 128, .norm = 4, .rope = OP_ROPE_HALF, .rotary_dim = 128, .write = true, .page_tokens = 16,
        .f16 = true)},
    {"qk f16 5 rows, 3+3 heads of 96, norm behind half of 64, shared angles, e4m3 pages",
     QK(.rows = 5, .heads = 3, .kv_heads = 3, .head_dim = 96, .norm = 2, .norm_after_rope = true, .rope = OP_ROPE_HALF, .rotary_dim = 64, .write = true,
        .page_tokens = 32, .kv_bytes = 1, .share = 1, .block = 128, .f16 = true)},
    {"qk 7 rows, 3+3 heads of 12, half of 12", QK(.rows = 7, .heads = 3, .kv_heads = 3, .head_dim = 12, .rope = OP_ROPE_HALF, .rotary_dim = 12)},
    {"qk 37 rows, 5+1 heads of 24, pairs of 8, norm, e4m3 pages of 32",
     QK(.rows = 37, .heads = 5, .kv_heads = 1, .head_dim = 24, .norm = 2, .rope = OP_ROPE_PAIRS, .rotary_dim = 8, .write = true,
        .page_tokens = 32, .kv_bytes = 1)},
    {"qk 5 rows, 2+1 heads of 80, pairs of 32, frequencies of sequences",
     QK(.rows = 5, .heads = 2, .kv_heads = 1, .head_dim = 80, .rope = OP_ROPE_PAIRS, .rotary_dim = 32,
        .seq_freq = true)},
};

/* What one head becomes. */
static void head(const struct qk_shape *s, const uint16_t *x, const double *w, const float *freq,
                 int32_t position, double *y)
{
    double sum = 0;
    for (int i = 0; i < s->head_dim; i++) y[i] = (double)op_value(x[i]), sum += y[i] * y[i];
    double r = 1 / sqrt(sum / s->head_dim + (double)s->eps),
           scale = s->rope_scale != 0 ? (double)s->rope_scale : 1;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == (s->norm_after_rope ? 1 : 0))
            for (int i = 0; i < s->head_dim && s->norm; i++) y[i] *= r * ((double)s->offset + w[i]);
        else
            for (int i = 0; i < s->rotary_dim / 2 && s->rope != OP_ROPE_NONE; i++) {
                double angle = (double)((float)position * freq[i]), c = cos(angle) * scale,
                       n = sin(angle) * scale;
                int a = s->rope == OP_ROPE_HALF ? i : 2 * i,
                    b = s->rope == OP_ROPE_HALF ? i + s->rotary_dim / 2 : 2 * i + 1;
                double p = y[a], q = y[b];
                y[a] = p * c - q * n;
                y[b] = q * c + p * n;
            }
    }
}

struct data {
    struct qk_shape s;
    size_t width, all, pool_bytes; /* elements a row and altogether */
    uint16_t *qkv, *got, *pool, *got_pool;
    double *qw, *kw;
    void *q_norm, *k_norm;
    float *freq;
    int32_t *positions, *row_seq;
    int64_t *slots;
    int64_t page_bytes, layer_bytes;
};
enum { LAYERS = 3, LAYER = 1, SEQS = 2 };

static void make(struct data *d)
{
    const struct qk_shape *s = &d->s;
    size_t hd = (size_t)s->head_dim, rows = (size_t)s->rows;
    d->width = (size_t)(s->heads + 2 * s->kv_heads) * hd;
    d->all = rows * d->width;
    d->qkv = malloc(d->all * 2), d->got = malloc(d->all * 2);
    op_fill(d->qkv, d->all, 1.5f, 11);
    d->qw = calloc(hd, 8), d->kw = calloc(hd, 8);
    d->q_norm = op_weights(hd, s->norm, s->offset != 0 ? 0 : 1, 12, d->qw);
    d->k_norm = op_weights(hd, s->norm, s->offset != 0 ? 0 : 1, 13, d->kw);
    size_t half = (size_t)s->rotary_dim / 2;
    d->freq = malloc((SEQS * half + 1) * 4);
    for (size_t q = 0; q < SEQS; q++)
        for (size_t i = 0; i < half; i++)
            d->freq[q * half + i] = powf(10000.0f * (float)(q + 1), -(float)i / (float)half);
    d->positions = malloc(rows * 4), d->row_seq = malloc(rows * 4), d->slots = malloc(rows * 8);
    int64_t pages = s->write ? s->rows / s->page_tokens + 2 : 0;
    for (size_t r = 0; r < rows; r++) {
        d->positions[r] = r % 3 == 0 ? (int32_t)r : (int32_t)(r * 7919 % 131072);
        d->row_seq[r] = (int32_t)(r % SEQS);
        /* every other page backwards, one row not written */
        d->slots[r] = r == 2 ? -1 : s->write ? (int64_t)(rows + 3 - r) : 0;
    }
    int elem = s->kv_bytes == 1 ? 1 : 2;
    d->layer_bytes = KV_ROWS_LAYER_BYTES(s->kv_heads, s->page_tokens, hd, hd, elem);
    d->page_bytes = LAYERS * d->layer_bytes;
    d->pool_bytes = (size_t)(pages * d->page_bytes);
    d->pool = malloc(d->pool_bytes + 2), d->got_pool = malloc(d->pool_bytes + 2);
    memset(d->pool, 0x5a, d->pool_bytes);
}

/* The code of the exact value, or of its neighbour where float32 arithmetic may round the other way. */
static int check_e4m3(const char *name, uint8_t got, double want)
{
    float near[2] = {(float)(want * (1 - 3e-6) - 1e-6), (float)(want * (1 + 3e-6) + 1e-6)};
    uint8_t code[2];
    dtype_encode(DTYPE_F8_E4M3, near, code, 2, NULL);
    if (got == code[0] || got == code[1]) return 0;
    return fprintf(stderr, "%s: code %02x, expected %02x for %.9g\n", name, got, code[0], want), 1;
}

/* Writes to d->pool what must be there; pages elsewhere stay 0x5a. The rounded results are checked against
 * exact ones first. */
static int check(struct data *d, const char *name)
{
    const struct qk_shape *s = &d->s;
    int elem = s->kv_bytes == 1 ? 1 : 2;
    size_t hd = (size_t)s->head_dim;
    double *y = malloc(hd * 8);
    int wrong = 0;
    for (size_t r = 0; r < (size_t)s->rows; r++)
        for (size_t h = 0; h < (size_t)(s->heads + 2 * s->kv_heads); h++) {
            bool query = h < (size_t)s->heads, value = h >= (size_t)(s->heads + s->kv_heads);
            size_t at = r * d->width + h * hd;
            const uint16_t *got = d->got + at;
            char *page = NULL;
            if (s->write && !query) {
                for (size_t i = 0; i < hd; i++)
                    wrong += d->got[at + i] != d->qkv[at + i]; /* only the pages change */
                if (d->slots[r] < 0) continue;
                size_t kv_head = h - (size_t)s->heads - (value ? (size_t)s->kv_heads : 0);
                int64_t offset =
                    d->slots[r] / s->page_tokens * d->page_bytes + LAYER * d->layer_bytes +
                    (value ? KV_ROWS_VALUES(s->kv_heads, s->page_tokens, s->head_dim, elem) : 0) +
                    KV_ROWS_TOKEN(kv_head, d->slots[r] % s->page_tokens, s->page_tokens, s->head_dim, elem);
                page = (char *)d->pool + offset;
                got = (const void *)((const char *)d->got_pool + offset);
            }
            if (page && elem == 1) {
                const float *freq =
                    d->freq + (s->seq_freq ? (size_t)d->row_seq[r] * (size_t)(s->rotary_dim / 2) : 0);
                head(s, d->qkv + at, d->kw, freq, d->positions[r], y);
                for (size_t i = 0; i < hd; i++) wrong += check_e4m3(name, ((const uint8_t *)got)[i], value ? (double)op_value(d->qkv[at + i]) : y[i]);
            } else if (value) {
                for (size_t i = 0; i < hd; i++) wrong += got[i] != d->qkv[at + i];
            } else {
                const float *freq =
                    d->freq + (s->seq_freq ? (size_t)d->row_seq[r] * (size_t)(s->rotary_dim / 2) : 0);
                head(s, d->qkv + at, query ? d->qw : d->kw, freq, d->positions[r], y);
                for (size_t i = 0; i < hd; i++) wrong += op_check(name, at + i, got[i], y[i], 2e-5);
            }
            if (page) memcpy(page, got, hd * (size_t)elem);
        }
    if (d->pool_bytes) wrong += memcmp(d->pool, d->got_pool, d->pool_bytes) != 0;
    free(y);
    return wrong;
}

const char *op_cases_qk_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}

bool op_cases_qk_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct qk_shape s = cases[i].s;
    if (rows) s.rows = rows;
    return qk_cuda_plan(&s, device, out, NULL) == ROSE_OK;
}

int op_cases_qk_run(int i, const struct op_io *io)
{
    struct data d = {.s = cases[i].s};
    struct rose_error err = {0};
    op_f16 = d.s.f16;
    struct plan plan;
    if (io->rows) d.s.rows = io->rows;
    if (qk_cuda_plan(&d.s, io->device, &plan, &err))
        return fprintf(stderr, "%s: %s\n", cases[i].name, err.message), 1;
    make(&d);
    const struct qk_shape *s = &d.s;
    size_t hd = (size_t)s->head_dim, rows = (size_t)s->rows;
    uint16_t *qkv = io->buffer(io->context, "qkv", d.all * 2, d.qkv, false);
    struct qk_rows_params p = {.q = qkv,
                               .k = qkv + (size_t)s->heads * hd,
                               .v = qkv + (size_t)(s->heads + s->kv_heads) * hd,
                               .q_stride = (int64_t)d.width,
                               .k_stride = (int64_t)d.width,
                               .v_stride = (int64_t)d.width,
                               .page_bytes = d.page_bytes,
                               .layer_offset = LAYER * d.layer_bytes,
                               .rows = (uint32_t)rows};
    if (s->norm) {
        p.q_norm = io->buffer(io->context, "q_norm", hd * (size_t)s->norm, d.q_norm, true);
        p.k_norm = io->buffer(io->context, "k_norm", hd * (size_t)s->norm, d.k_norm, true);
    }
    if (s->rope != OP_ROPE_NONE) {
        p.inv_freq = io->buffer(io->context, "inv_freq",
                                (size_t)(s->rotary_dim / 2) * 4 * (s->seq_freq ? SEQS : 1), d.freq, true);
        p.positions = io->buffer(io->context, "positions", rows * 4, d.positions, false);
    }
    if (s->seq_freq) p.row_seq = io->buffer(io->context, "row_seq", rows * 4, d.row_seq, false);
    if (s->write) {
        p.kv_slot = io->buffer(io->context, "kv_slot", rows * 8, d.slots, false);
        p.pool = io->buffer(io->context, "pool", d.pool_bytes, d.pool, false);
    }
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, d.got, qkv, d.all * 2);
    if (s->write) io->read(io->context, d.got_pool, p.pool, d.pool_bytes);
    if (!wrong) wrong = check(&d, cases[i].name);
    io->reset(io->context);
    free(d.qkv), free(d.got), free(d.pool), free(d.got_pool), free(d.qw), free(d.kw), free(d.q_norm),
        free(d.k_norm), free(d.freq);
    free(d.positions), free(d.row_seq), free(d.slots);
    return wrong;
}
