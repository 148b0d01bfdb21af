/* QK-norm, rotary embedding, cache write, row by row; included once an instruction set.
 * cos and sin of a row's angles are computed once and serve all its heads. */
#include "kernels/cpu/kv.h"
#include "kernels/cpu/qk.h"

/* cos and sin of n angles position * inv_freq, rounded to float32 before the turn as the reference
 * implementations do. x = j pi/2 + r with pi/2 in three parts; each product is exact inside a fused
 * multiply-add for |j| < 2^22. */
VEC_INLINE void VEC_NAME(qk_sincos)(vf x, vf *sine, vf *cosine)
{
    vf j = vround(x * vset1(0.636619772f));
    vf r = vfma(j, vset1(-1.57079637050628662109375f), x);
    r = vfma(j, vset1(4.37113882867379e-8f), r);
    r = vfma(j, vset1(1.71512449944288e-15f), r);
    vf r2 = r * r;
    vf s = vset1(1.0f / 362880);
    s = vfma(s, r2, vset1(-1.0f / 5040));
    s = vfma(s, r2, vset1(1.0f / 120));
    s = vfma(s, r2, vset1(-1.0f / 6));
    s = vfma(s * r2, r, r);
    vf c = vset1(-1.0f / 3628800);
    c = vfma(c, r2, vset1(1.0f / 40320));
    c = vfma(c, r2, vset1(-1.0f / 720));
    c = vfma(c, r2, vset1(1.0f / 24));
    c = vfma(c, r2, vset1(-0.5f));
    c = vfma(c, r2, vset1(1.0f));
    /* quadrant = j mod 4 in {0, 1, 2, 3} */
    vf quadrant = j - vset1(4.0f) * vround((j - vset1(1.5f)) * vset1(0.25f));
    vm odd = vlt(vabs(vabs(quadrant - vset1(2.0f)) - vset1(1.0f)), vset1(0.5f)); /* 1 or 3 */
    vf zero = vset1(0);
    vf a = vsel(odd, c, s), b = vsel(odd, s, c);
    *sine = vsel(vlt(vset1(1.5f), quadrant), zero - a, a);
    *cosine = vsel(vlt(vabs(quadrant - vset1(1.5f)), vset1(1.0f)), zero - b, b);
}

#if defined(__AVX2__)
enum { VEC_NAME(FAST_ANGLES) = 1 };
#else
enum { VEC_NAME(FAST_ANGLES) = 0 }; /* the reduction needs fused multiply-adds */
#endif

/* Tables for the row: HALF: cos[n], sin[n]. PAIRS: cos and sin twice each, sin with signs -, +. */
static void VEC_NAME(qk_angles)(const struct qk_params *p, float position, const float *inv_freq, float *c,
                                float *s)
{
    int32_t n = p->rotary_dim / 2;
    float top = 0;
    for (int32_t i = 0; i < n; i++) top = inv_freq[i] > top ? inv_freq[i] : top;
    if (VEC_NAME(FAST_ANGLES) && position * top < 6.0e6f && position >= 0) {
        for (int32_t i = 0; i < n; i += VL) {
            int left = n - i < VL ? n - i : VL;
            vf sine, cosine;
            VEC_NAME(qk_sincos)(vset1(position) * vload_n(inv_freq + i, left), &sine, &cosine);
            vstore_n(c + i, cosine * vset1(p->rope_scale), left);
            vstore_n(s + i, sine * vset1(p->rope_scale), left);
        }
    } else {
        for (int32_t i = 0; i < n; i++) {
            float angle = position * inv_freq[i];
            c[i] = cosf(angle) * p->rope_scale;
            s[i] = sinf(angle) * p->rope_scale;
        }
    }
    if (p->rope != QK_ROPE_PAIRS) return;
    for (int32_t i = n - 1; i >= 0; i--) { /* in place, from the end */
        c[2 * i] = c[2 * i + 1] = c[i];
        float v = s[i];
        s[2 * i] = -v;
        s[2 * i + 1] = v;
    }
}

static void VEC_NAME(qk_turn)(const struct qk_params *p, float *x, const float *c, const float *s)
{
    int32_t n = p->rotary_dim;
    if (p->rope == QK_ROPE_PAIRS) {
        for (int32_t i = 0; i < n; i += VL) {
            int left = n - i < VL ? n - i : VL; /* even: a pair is never cut */
            vf v = vload_n(x + i, left);
            vstore_n(x + i, vfma(v, vload_n(c + i, left), vswap(v) * vload_n(s + i, left)), left);
        }
        return;
    }
    int32_t h = n / 2;
    for (int32_t i = 0; i < h; i += VL) {
        int left = h - i < VL ? h - i : VL;
        vf a = vload_n(x + i, left), b = vload_n(x + h + i, left), co = vload_n(c + i, left),
           si = vload_n(s + i, left);
        vstore_n(x + i, vfma(a, co, (vset1(0) - b) * si), left);
        vstore_n(x + h + i, vfma(b, co, a * si), left);
    }
}

/* RMSNorm of n values in place. */
static void VEC_NAME(qk_norm)(const struct qk_params *p, float *x, const float *weight, int32_t n)
{
    vf acc = vset1(0);
    for (int32_t i = 0; i < n; i += VL) {
        vf v = vload_n(x + i, n - i < VL ? n - i : VL);
        acc = vfma(v, v, acc);
    }
    vf inv = vset1(1.0f / sqrtf(vsum(acc) / (float)n + p->norm_eps));
    for (int32_t i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        vstore_n(x + i, vload_n(x + i, left) * inv * (vload_n(weight + i, left) + vset1(p->norm_offset)),
                 left);
    }
}

static void VEC_NAME(qk_heads)(const struct qk_params *p, float *x, const float *weight, int32_t heads,
                               const float *c, const float *s)
{
    int32_t d = p->head_dim;
    for (int step = 0; step < 2; step++) {
        if ((step == 0) == !p->norm_after_rope) {
            if (weight && p->norm_full) VEC_NAME(qk_norm)(p, x, weight, heads * d);
            for (int32_t h = 0; weight && !p->norm_full && h < heads; h++)
                VEC_NAME(qk_norm)(p, x + h * d, weight, d);
        } else if (p->rope != QK_ROPE_NONE) {
            for (int32_t h = 0; h < heads; h++) VEC_NAME(qk_turn)(p, x + h * d, c, s);
        }
    }
}

static void VEC_NAME(qk_row)(const struct qk_params *p, const struct kv_layout *l, int64_t r, float *work)
{
    float *c = work, *s = work + p->rotary_dim, *k_work = s + p->rotary_dim;
    if (p->rope != QK_ROPE_NONE) {
        const float *freq = p->inv_freq;
        if (p->seq_inv_freq)
            freq = (const float *)p->seq_inv_freq +
                   (int64_t)((const int32_t *)p->row_seq)[r] * (p->rotary_dim / 2);
        VEC_NAME(qk_angles)(p, (float)((const int32_t *)p->positions)[r], freq, c, s);
    }
    if (p->q) VEC_NAME(qk_heads)(p, (float *)p->q + r * p->q_stride, p->q_norm, p->heads, c, s);
    if (!p->k) return;
    float *k = (float *)p->k + r * p->k_stride;
    if (p->write) {
        memcpy(k_work, k, (size_t)p->kv_heads * (size_t)p->head_dim * sizeof(float));
        k = k_work;
    }
    VEC_NAME(qk_heads)(p, k, p->k_norm, p->kv_heads, c, s);
    if (!p->write) return;
    int64_t slot = ((const int64_t *)p->kv_slot)[r];
    if (slot < 0) return;
    int64_t page = slot / p->page_tokens;
    int32_t offset = (int32_t)(slot % p->page_tokens);
    for (int32_t h = 0; h < p->kv_heads; h++) {
        uint8_t *block = (uint8_t *)p->pool + kv_layout_at(l, page, h, offset);
        VEC_NAME(kv_kernels).store_k(l->dtype, block, offset % KV_BLOCK, k + h * p->head_dim, p->head_dim);
        VEC_NAME(kv_kernels)
            .store_v(l->dtype, block + l->value_offset, offset % KV_BLOCK,
                     (const float *)p->v + r * p->v_stride + h * p->value_dim, p->value_dim);
    }
}

/* Whole blocks of 16 rows a worker when there are many, so that two workers rarely write one cache line. */
void VEC_NAME(qk_rows)(const void *params, const struct extents *extents, struct worker *w)
{
    const struct qk_params *p = params;
    struct kv_layout l = {0};
    if (p->write)
        l = kv_layout_make((enum dtype)p->cache_dtype, p->page_tokens, (size_t)p->page_bytes, p->layer,
                           p->kv_heads, p->head_dim, p->value_dim);
    size_t rows = (size_t)extents->n[EXTENT_ROWS], begin, end;
    worker_range(w, rows, rows >= 64 * (size_t)w->count ? KV_BLOCK : 1, &begin, &end);
    for (size_t r = begin; r < end; r++) VEC_NAME(qk_row)(p, &l, (int64_t)r, w->scratch);
}
