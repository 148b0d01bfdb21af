/* Bodies of kv.h's functions; included once an instruction set after elementwise_vec.h. */
#include "kernels/cpu/kv.h"

/* n floats to halves (or bf16) in `out`. */
VEC_INLINE void kv_halves(enum dtype dtype, const float *x, uint16_t *out, int32_t n)
{
    int32_t i = 0;
    if (dtype == DTYPE_BF16) {
#if defined(__AVX512F__)
        for (; i + VL <= n; i += VL) vstore_bf16(out + i, vload(x + i));
#endif
        for (; i < n; i++) out[i] = f32_to_bf16(x[i]);
        return;
    }
    for (; i + VL <= n; i += VL) vstore_f16(out + i, vload(x + i));
    for (; i < n; i++) out[i] = f32_to_f16(x[i]);
}

/* Quantise dims [b, b + n), n <= 32, of one token: q = rint(x / scale), scale = max|x| / 127 rounded to half.
 */
VEC_INLINE uint16_t kv_quantise(const float *x, int32_t n, int8_t *q)
{
    vf most = vset1(0);
    for (int32_t i = 0; i < n; i += VL) most = vmax(vabs(vload_n(x + i, n - i < VL ? n - i : VL)), most);
    uint16_t half = f32_to_f16(vhmax(most) / 127.0f);
    float scale = f16_to_f32(half), inverse = scale > 0 && scale < INFINITY ? 1.0f / scale : 0.0f;
    vf limit = vset1(127.0f), low = vset1(-127.0f);
    for (int32_t i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        float r[VL];
        vstore(r, vround(vmin(vmax(vload_n(x + i, left) * vset1(inverse), low), limit)));
        for (int j = 0; j < left; j++) q[i + j] = (int8_t)r[j];
    }
    return half;
}

static void VEC_NAME(kv_store_k)(enum dtype dtype, uint8_t *block, int t, const float *k, int32_t d)
{
    uint16_t h[KV_MAX_DIM];
    if (dtype == DTYPE_F32) {
        for (int32_t i = 0; i < d; i++) memcpy(block + 4 * ((size_t)i * KV_BLOCK + (size_t)t), k + i, 4);
    } else if (dtype == DTYPE_F16) {
        kv_halves(dtype, k, h, d);
        for (int32_t i = 0; i < d; i++) memcpy(block + 2 * ((size_t)i * KV_BLOCK + (size_t)t), h + i, 2);
    } else if (dtype == DTYPE_BF16) {
        kv_halves(dtype, k, h, d);
        for (int32_t i = 0; i < d; i += 2)
            memcpy(block + 4 * ((size_t)(i / 2) * KV_BLOCK + (size_t)t), h + i, 4);
    } else {
        int8_t q[32];
        for (int32_t b = 0; b < d; b += 32) {
            int32_t n = d - b < 32 ? d - b : 32;
            uint16_t scale = kv_quantise(k + b, n, q);
            for (int32_t i = 0; i < n; i++) block[(size_t)(b + i) * KV_BLOCK + (size_t)t] = (uint8_t)q[i];
            memcpy(block + (size_t)d * KV_BLOCK + 2 * ((size_t)(b / 32) * KV_BLOCK + (size_t)t), &scale, 2);
        }
    }
}

static void VEC_NAME(kv_store_v)(enum dtype dtype, uint8_t *block, int t, const float *v, int32_t e)
{
    uint16_t h[KV_MAX_DIM];
    if (dtype == DTYPE_F32) {
        memcpy(block + 4 * (size_t)t * (size_t)e, v, 4 * (size_t)e);
    } else if (dtype == DTYPE_F16) {
        kv_halves(dtype, v, h, e);
        memcpy(block + 2 * (size_t)t * (size_t)e, h, 2 * (size_t)e);
    } else if (dtype == DTYPE_BF16) {
        kv_halves(dtype, v, h, e);
        for (int32_t i = 0; i < e; i++)
            memcpy(block + 2 * (((size_t)(t / 2) * (size_t)e + (size_t)i) * 2 + (size_t)(t & 1)), h + i, 2);
    } else {
        int32_t groups = (e + 31) / 32;
        for (int32_t b = 0; b < e; b += 32) {
            int32_t n = e - b < 32 ? e - b : 32;
            uint16_t scale = kv_quantise(v + b, n, (int8_t *)block + (size_t)t * (size_t)e + b);
            memcpy(block + (size_t)e * KV_BLOCK + 2 * ((size_t)t * (size_t)groups + (size_t)(b / 32)), &scale,
                   2);
        }
    }
}

static void VEC_NAME(kv_load_k)(enum dtype dtype, const uint8_t *block, int32_t d, float *kt, int32_t ld)
{
    if (dtype == DTYPE_F32) {
        for (int32_t i = 0; i < d; i++)
            memcpy(kt + (size_t)i * (size_t)ld, block + (size_t)i * KV_BLOCK * 4, KV_BLOCK * 4);
    } else if (dtype == DTYPE_F16) {
        const uint16_t *h = (const uint16_t *)(const void *)block;
        for (int32_t i = 0; i < d; i++) VEC_UNROLL
        for (int c = 0; c < KV_BLOCK; c += VL)
            vstore(kt + (size_t)i * (size_t)ld + c, vload_f16(h + (size_t)i * KV_BLOCK + c));
    } else if (dtype == DTYPE_BF16) {
        const uint16_t *h = (const uint16_t *)(const void *)block;
        for (int32_t i = 0; i < d; i += 2) VEC_UNROLL
        for (int c = 0; c < KV_BLOCK; c += VL) {
            vf even, odd;
            vload_bf16_pairs(h + (size_t)i * KV_BLOCK + 2 * c, &even, &odd);
            vstore(kt + (size_t)i * (size_t)ld + c, even);
            vstore(kt + (size_t)(i + 1) * (size_t)ld + c, odd);
        }
    } else {
        const uint16_t *scale = (const uint16_t *)(const void *)(block + (size_t)d * KV_BLOCK);
        for (int c = 0; c < KV_BLOCK; c += VL) {
            vf s = vset1(0);
            for (int32_t i = 0; i < d; i++) {
                if (i % 32 == 0) s = vload_f16(scale + (size_t)(i / 32) * KV_BLOCK + c);
                vstore(kt + (size_t)i * (size_t)ld + c,
                       s * vload_i8((const int8_t *)block + (size_t)i * KV_BLOCK + c));
            }
        }
    }
}

/* Lanes past e in the last vector are computed one by one: the block ends there. */
static void VEC_NAME(kv_load_v)(enum dtype dtype, const uint8_t *block, int32_t e, int t0, int t1, float *v,
                                int32_t ld)
{
    int32_t whole = e / VL * VL;
    for (int t = t0; t < t1; t++) {
        float *row = v + (size_t)t * (size_t)ld;
        if (dtype == DTYPE_F32) {
            memcpy(row, block + (size_t)t * (size_t)e * 4, (size_t)e * 4);
        } else if (dtype == DTYPE_F16) {
            const uint16_t *h = (const uint16_t *)(const void *)block + (size_t)t * (size_t)e;
            for (int32_t i = 0; i < whole; i += VL) vstore(row + i, vload_f16(h + i));
            for (int32_t i = whole; i < e; i++) row[i] = f16_to_f32(h[i]);
        } else if (dtype == DTYPE_BF16) {
            const uint16_t *h = (const uint16_t *)(const void *)block + (size_t)(t / 2) * (size_t)e * 2;
            for (int32_t i = 0; i < whole; i += VL) {
                vf even, odd;
                vload_bf16_pairs(h + 2 * i, &even, &odd);
                vstore(row + i, t & 1 ? odd : even);
            }
            for (int32_t i = whole; i < e; i++) row[i] = bf16_to_f32(h[2 * i + (t & 1)]);
        } else {
            int32_t groups = (e + 31) / 32;
            const int8_t *q = (const int8_t *)block + (size_t)t * (size_t)e;
            const uint16_t *scale =
                (const uint16_t *)(const void *)(block + (size_t)e * KV_BLOCK) + (size_t)t * (size_t)groups;
            for (int32_t b = 0; b < e; b += 32) {
                float s = f16_to_f32(scale[b / 32]);
                int32_t i = b, end = b + 32 < e ? b + 32 : e;
                for (; i + VL <= end; i += VL) vstore(row + i, vset1(s) * vload_i8(q + i));
                for (; i < end; i++) row[i] = s * q[i];
            }
        }
    }
}

const struct kv_kernels VEC_NAME(kv_kernels) = {VEC_NAME(kv_store_k), VEC_NAME(kv_store_v),
                                                VEC_NAME(kv_load_k), VEC_NAME(kv_load_v)};
