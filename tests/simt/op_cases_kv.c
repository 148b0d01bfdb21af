/* Keys and values between rows and pages in every form, against float64: copies bit for bit, bf16 and e4m3 rounded once, int8 with
 * the scale of its largest. Tokens without a slot, and pages' other tokens, stay as they were. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/params/kv_layout.h"
#include "op_cases_internal.h"
#include "ops/kv_cuda.h"

enum { LAYERS = 2, LAYER = 1 }; /* of a page, and the one that the kernel touches */
static const struct kv_case {
    const char *name;
    struct kv_shape s;
    int pad;
} cases[] = {
    {"kv 7 tokens, 3 heads of 96, rows to bf16 pages of 16", {7, 3, 96, 16, KV_ROWS, KV_PAGES_BF16}, 8},
    {"kv 9 tokens, 2 heads of 128, rows to e4m3 pages of 32", {9, 2, 128, 32, KV_ROWS, KV_PAGES_E4M3}, 0},
    {"kv 5 tokens, 3 heads of 64, rows to int8 pages of 16", {5, 3, 64, 16, KV_ROWS, KV_PAGES_INT8}, 8},
    {"kv 6 tokens, 1 head of 320, bf16 pages of 4 to int8", {6, 1, 320, 4, KV_PAGES_BF16, KV_PAGES_INT8}, 0},
    {"kv 7 tokens, 2 heads of 80, int8 pages of 8 to bf16", {7, 2, 80, 8, KV_PAGES_INT8, KV_PAGES_BF16}, 0},
    {"kv 7 tokens, 2 heads of 128, int8 pages of 16 to rows", {7, 2, 128, 16, KV_PAGES_INT8, KV_ROWS}, 16},
    {"kv 7 tokens, 3 heads of 64, e4m3 pages of 16 to rows", {7, 3, 64, 16, KV_PAGES_E4M3, KV_ROWS}, 0},
    {"kv 7 tokens, 3 heads of 40, bf16 pages of 16 copied", {7, 3, 40, 16, KV_PAGES_BF16, KV_PAGES_BF16}, 0},
    {"kv 7 tokens, 3 heads of 64, int8 pages of 16 copied", {7, 3, 64, 16, KV_PAGES_INT8, KV_PAGES_INT8}, 0},
    {"kv 5 tokens, 2 heads of 256, bf16 pages of 16 to e4m3", {5, 2, 256, 16, KV_PAGES_BF16, KV_PAGES_E4M3}, 0},
    {"kv 7 tokens, 3 heads of 96, e4m3 pages of 16 to bf16", {7, 3, 96, 16, KV_PAGES_E4M3, KV_PAGES_BF16}, 0},
    {"kv 7 tokens, 3 heads of 96, e4m3 pages of 16 to int8", {7, 3, 96, 16, KV_PAGES_E4M3, KV_PAGES_INT8}, 0},
    {"kv 7 tokens, 3 heads of 96, int8 pages of 16 to e4m3", {7, 3, 96, 16, KV_PAGES_INT8, KV_PAGES_E4M3}, 0},
    {"kv 7 tokens, 3 heads of 64, bf16 pages of 16 to rows", {7, 3, 64, 16, KV_PAGES_BF16, KV_ROWS}, 8},
};

struct side { /* on the host */
    int form;
    size_t bytes[2]; /* of k and v, or of the pool and nothing */
    char *data[2];
    int64_t *slot, stride, page_bytes, layer_offset;
};

/* Element e of a token's head: its code's bytes and, for int8, the scale. */
static char *at(const struct kv_shape *s, const struct side *m, int64_t row, int head, int value, float **scale)
{
    if (m->form == KV_ROWS) return m->data[value] + (row * m->stride + head * s->head_dim) * 2;
    int64_t slot = m->slot[row], token = slot % s->page_tokens, bytes = m->form == KV_PAGES_BF16 ? 2 : 1;
    char *layer = m->data[0] + slot / s->page_tokens * m->page_bytes + m->layer_offset;
    if (scale) *scale = (float *)(void *)(layer + KV_ROWS_SCALES(s->kv_heads, s->page_tokens, s->head_dim, s->head_dim) + KV_ROWS_SCALE(value, head, token, s->kv_heads, s->page_tokens));
    return layer + ((int64_t)value * s->kv_heads + head) * s->page_tokens * s->head_dim * bytes + token * s->head_dim * bytes;
}
static double decode(int form, const char *p, int e, float scale)
{
    float v;
    uint16_t two;
    memcpy(&two, p + (form == KV_ROWS || form == KV_PAGES_BF16 ? e * 2 : 0), 2);
    if (form == KV_ROWS || form == KV_PAGES_BF16) return (double)bf16_to_f32(two);
    if (form == KV_PAGES_INT8) return (double)((float)((const int8_t *)p)[e] * scale);
    dtype_decode(DTYPE_F8_E4M3, p + e, &v, 1);
    return (double)v;
}

static struct side make(const struct kv_case *k, int form, uint32_t seed)
{
    const struct kv_shape *s = &k->s;
    struct side m = {.form = form, .stride = (int64_t)s->kv_heads * s->head_dim + k->pad};
    size_t pages = (size_t)(s->rows / s->page_tokens + 3);
    m.layer_offset = LAYER * kv_cuda_layer_bytes(s, form), m.page_bytes = LAYERS * kv_cuda_layer_bytes(s, form);
    m.bytes[0] = form == KV_ROWS ? (size_t)(s->rows * m.stride) * 2 : pages * (size_t)m.page_bytes;
    m.bytes[1] = form == KV_ROWS ? m.bytes[0] : 0;
    m.slot = malloc((size_t)s->rows * 8);
    /* every slot once, in another order on either side; the third token of the destination has none */
    for (int64_t r = 0; r < s->rows; r++) m.slot[r] = seed % 2 ? s->rows - 1 - r + s->page_tokens : r + s->page_tokens / 2;
    if (seed % 2 && s->rows > 2) m.slot[2] = -1;
    for (int i = 0; i < 2; i++) {
        m.data[i] = malloc(m.bytes[i] ? m.bytes[i] : 1);
        for (size_t b = 0; b < m.bytes[i]; b++) m.data[i][b] = (char)op_random(&seed);
    }
    for (int64_t r = 0; r < s->rows; r++) /* numbers where tokens are */
        for (int u = 0; u < 2 * s->kv_heads; u++) {
            if (form != KV_ROWS && m.slot[r] < 0) continue;
            float *scale = NULL;
            char *p = at(s, &m, r, u % s->kv_heads, u / s->kv_heads, &scale);
            if (form == KV_ROWS || form == KV_PAGES_BF16) op_fill((uint16_t *)(void *)p, (size_t)s->head_dim, u % 3 == 2 ? 400.0f : 2.0f, (uint32_t)(r * 64 + u));
            for (int e = 0; e < s->head_dim && form == KV_PAGES_E4M3; e++) p[e] = (char)(p[e] & 0xfe); /* no NaN */
            if (form == KV_PAGES_INT8) *scale = 0.01f * (float)(1 + u);
        }
    return m;
}

/* One head of a token. */
static int check_head(const struct kv_case *k, const char *from, const float *from_scale, int from_form, const char *got, const float *got_scale, int form)
{
    int n = k->s.head_dim, wrong = 0;
    double largest = 1e-10, scale = 1;
    if (form == from_form) return memcmp(from, got, (size_t)n * (form == KV_PAGES_BF16 ? 2 : 1)) != 0 || (form == KV_PAGES_INT8 && *from_scale != *got_scale);
    for (int e = 0; e < n; e++) largest = fmax(largest, fabs(decode(from_form, from, e, from_scale ? *from_scale : 0)));
    if (form == KV_PAGES_INT8) scale = (double)*got_scale, wrong += fabs(scale - largest / 127) > scale * 0x1p-23;
    for (int e = 0; e < n; e++) {
        double want = decode(from_form, from, e, from_scale ? *from_scale : 0), v = decode(form, got, e, got_scale ? *got_scale : 0), half;
        if (form == KV_PAGES_INT8) half = scale * 0.50001;
        else if (form == KV_PAGES_E4M3) want = fmax(fmin(want, 448), -448), half = fmax(fabs(want) * 0x1p-4, 0x1p-10);
        else half = fabs(want) * 0x1p-8;
        if (!(fabs(v - want) <= half) && wrong++ < 5) fprintf(stderr, "%s: element %d is %g, expected %g\n", k->name, e, v, want);
    }
    return wrong;
}

static int check(const struct kv_case *k, const struct side *from, const struct side *before, const struct side *got)
{
    const struct kv_shape *s = &k->s;
    int wrong = 0;
    for (int64_t r = 0; r < s->rows; r++)
        for (int u = 0; u < 2 * s->kv_heads; u++) {
            float *a = NULL, *b = NULL;
            if (got->form != KV_ROWS && got->slot[r] < 0) continue;
            if (from->form != KV_ROWS && from->slot[r] < 0) continue;
            int head = u % s->kv_heads, value = u / s->kv_heads;
            char *x = at(s, from, r, head, value, &a), *y = at(s, got, r, head, value, &b), *z = at(s, before, r, head, value, NULL);
            wrong += check_head(k, x, from->form == KV_PAGES_INT8 ? a : NULL, from->form, y, got->form == KV_PAGES_INT8 ? b : NULL, got->form);
            memcpy(y, z, (size_t)s->head_dim * (got->form == KV_ROWS || got->form == KV_PAGES_BF16 ? 2 : 1)); /* what is left must be as before */
            if (got->form == KV_PAGES_INT8) {
                float *old;
                at(s, before, r, head, value, &old);
                *b = *old;
            }
        }
    for (int i = 0; i < 2; i++) wrong += memcmp(before->data[i], got->data[i], got->bytes[i]) != 0;
    return wrong;
}

static void give(const struct op_io *io, const struct side *m, int64_t rows, struct kv_side *out, const char *name)
{
    *out = (struct kv_side){.k_stride = m->stride, .v_stride = m->stride, .page_bytes = m->page_bytes, .layer_offset = m->layer_offset};
    if (m->form == KV_ROWS) {
        out->k = io->buffer(io->context, name, m->bytes[0], m->data[0], false);
        out->v = io->buffer(io->context, name, m->bytes[1], m->data[1], false);
    } else {
        out->pool = io->buffer(io->context, name, m->bytes[0], m->data[0], false);
        out->slot = io->buffer(io->context, "slots", (size_t)rows * 8, m->slot, true);
    }
}

int op_cases_kv_run(int i, const struct op_io *io)
{
    struct kv_case k = cases[i];
    struct plan plan;
    struct rose_error err = {0};
    if (io->rows) k.s.rows = io->rows;
    if (kv_cuda_plan(&k.s, io->device, &plan, &err)) return fprintf(stderr, "%s: %s\n", k.name, err.message), 1;
    struct side from = make(&k, k.s.from, 2), to = make(&k, k.s.to, 7), got = make(&k, k.s.to, 7);
    struct kv_rows_params p = {.rows = (uint32_t)k.s.rows};
    give(io, &from, k.s.rows, &p.from, "from");
    give(io, &to, k.s.rows, &p.to, "to");
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    if (k.s.to == KV_ROWS) {
        io->read(io->context, got.data[0], p.to.k, got.bytes[0]);
        io->read(io->context, got.data[1], p.to.v, got.bytes[1]);
    } else {
        io->read(io->context, got.data[0], p.to.pool, got.bytes[0]);
    }
    if (!wrong) wrong = check(&k, &from, &to, &got);
    io->reset(io->context);
    for (int j = 0; j < 2; j++) free(from.data[j]), free(to.data[j]), free(got.data[j]);
    free(from.slot), free(to.slot), free(got.slot);
    return wrong;
}
const char *op_cases_kv_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}
bool op_cases_kv_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct kv_shape s = cases[i].s;
    if (rows) s.rows = rows;
    return kv_cuda_plan(&s, device, out, NULL) == ROSE_OK;
}
