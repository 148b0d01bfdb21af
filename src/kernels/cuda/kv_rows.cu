// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* Keys and values of tokens from rows or pages to rows or pages (params/kv_rows.h): the write of pages apart from qk_rows, copies
 * between pages (a shared page's first tokens), and conversions between bf16, e4m3 and int8. A token's head is a unit: TPR lanes with
 * a vector of 8 elements each, PER of them; int8's scale comes from a shuffle inside the group. Where both sides have the same form
 * codes and scales are copied bit for bit.
 *
 * Constants: KV_HEADS, HD (a multiple of 8), PAGE_TOKENS, FROM, TO (KV_*), TPR (a power of two up to 32), THREADS. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/cuda/common/convert.cuh"
#include "kernels/params/kv_layout.h"
#include "kernels/params/kv_rows.h"

#define VECTORS (HD / 8)
#define PER ((VECTORS + TPR - 1) / TPR)
#define GROUPS (THREADS / TPR)
#define ELEM(form) ((form) == KV_PAGES_BF16 || (form) == KV_ROWS ? 2 : 1)
#define SAME (FROM == TO && FROM != KV_ROWS)

/* Where a unit's elements lie, and for int8 its scale; NULL: this token is left out. */
DEVICE char *kv_at(const struct kv_side *s, int form, uint32_t row, uint32_t head, uint32_t value, float **scale)
{
    if (form == KV_ROWS) return (char *)(value ? s->v : s->k) + (row * (value ? s->v_stride : s->k_stride) + head * HD) * 2;
    const int64_t slot = ((const int64_t *)s->slot)[row];
    if (slot < 0) return NULL;
    char *layer = (char *)s->pool + slot / PAGE_TOKENS * s->page_bytes + s->layer_offset;
    if (form == KV_PAGES_INT8)
        *scale = (float *)(void *)(layer + KV_ROWS_SCALES(KV_HEADS, PAGE_TOKENS, HD, HD) + KV_ROWS_SCALE(value, head, slot % PAGE_TOKENS, KV_HEADS, PAGE_TOKENS));
    return layer + (value ? KV_ROWS_VALUES(KV_HEADS, PAGE_TOKENS, HD, ELEM(form)) : 0) + KV_ROWS_TOKEN(head, slot % PAGE_TOKENS, PAGE_TOKENS, HD, ELEM(form));
}

/* A vector's bits: four words of bf16 or two of codes. */
DEVICE u32x4 kv_load(const char *at, uint32_t v)
{
    u32x4 r = {{0, 0, 0, 0}};
    if (ELEM(FROM) == 2) return ld16(at + v * 16);
    u32x2 codes = ld8(at + v * 8);
    r.v[0] = codes.v[0], r.v[1] = codes.v[1];
    return r;
}
DEVICE void kv_decode(u32x4 x, float scale, float *f)
{
    UNROLL for (int i = 0; i < 4; i++)
    {
        if (ELEM(FROM) == 2) {
            f[2 * i] = bf16x2_lo_f32(as_bf16x2(x.v[i])), f[2 * i + 1] = bf16x2_hi_f32(as_bf16x2(x.v[i]));
        } else if (FROM == KV_PAGES_E4M3) {
            f32x2 two = e4m3x2_to_f32x2((uint16_t)(x.v[i / 2] >> (i % 2 * 16)));
            f[2 * i] = two.v[0], f[2 * i + 1] = two.v[1];
        } else {
            f[2 * i] = (float)(int32_t)(int8_t)(x.v[i / 2] >> (i % 2 * 16)) * scale;
            f[2 * i + 1] = (float)(int32_t)(int8_t)(x.v[i / 2] >> (i % 2 * 16 + 8)) * scale;
        }
    }
}
DEVICE u32x4 kv_encode(const float *f, float factor)
{
    u32x4 r = {{0, 0, 0, 0}};
    UNROLL for (int i = 0; i < 4; i++)
    {
        if (ELEM(TO) == 2)
            r.v[i] = f32_to_bf16x2(f[2 * i], f[2 * i + 1]).bits;
        else if (TO == KV_PAGES_E4M3)
            r.v[i / 2] |= (uint32_t)f32_to_e4m3x2(f[2 * i], f[2 * i + 1]) << (i % 2 * 16);
        else
            r.v[i / 2] |= (((uint32_t)f32_to_s8(f[2 * i] * factor) & 255) | ((uint32_t)f32_to_s8(f[2 * i + 1] * factor) & 255) << 8) << (i % 2 * 16);
    }
    return r;
}

KERNEL(kv_rows, struct kv_rows_params, p, THREADS, 1)
{
    const uint32_t t = thread_x() % TPR, unit = block_x() * GROUPS + thread_x() / TPR;
    const uint32_t row = unit / (2 * KV_HEADS), head = unit % KV_HEADS, value = unit / KV_HEADS % 2;
    grid_dependency_launch();
    grid_dependency_wait();
    char *from = NULL, *to = NULL;
    float *from_scale = NULL, *to_scale = NULL, scale = 1, factor = 1, largest = 0;
    if (row < p.rows) {
        from = kv_at(&p.from, FROM, row, head, value, &from_scale);
        to = kv_at(&p.to, TO, row, head, value, &to_scale);
    }
    const bool live = from && to;
    u32x4 x[PER];
    float f[PER][8];
    if (live && FROM == KV_PAGES_INT8) scale = *from_scale;
    UNROLL for (int i = 0; i < PER; i++)
    {
        u32x4 zero = {{0, 0, 0, 0}};
        x[i] = live && t + i * TPR < VECTORS ? kv_load(from, t + i * TPR) : zero;
    }
    UNROLL for (int i = 0; i < PER; i++)
    {
        kv_decode(x[i], scale, f[i]);
        UNROLL for (int e = 0; e < 8; e++) largest = max_f32(largest, abs_f32(f[i][e]));
    }
    if (TO == KV_PAGES_INT8 && !SAME) {
        scale = div_f32(max_f32(warp_max_f32(largest, TPR), 1e-10f), 127.0f);
        factor = rcp_f32(scale);
    }
    if (!live) return;
    UNROLL for (int i = 0; i < PER; i++)
    {
        const uint32_t v = t + i * TPR;
        if (v >= VECTORS) continue;
        const u32x4 y = SAME ? x[i] : kv_encode(f[i], factor);
        if (ELEM(TO) == 2) {
            st16(to + v * 16, y);
        } else {
            u32x2 codes = {{y.v[0], y.v[1]}};
            st8(to + v * 8, codes);
        }
    }
    if (TO == KV_PAGES_INT8 && t == 0) *to_scale = scale;
}
