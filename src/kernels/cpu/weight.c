#include "kernels/cpu/weight.h"

#include <string.h>

#include "kernels/cpu/weight_fp8.h"

enum { ROWS = CPU_GROUP, VECTOR = 64 };
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* IQ4_NL's and MXFP4's values + 128 (MXFP4: doubled, the scale is halved). */
static const uint8_t iq4_table[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t mxfp4_table[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                        128, 127, 126, 125, 124, 122, 120, 116};

static const struct cpu_format formats[DTYPE_COUNT] = {
    [DTYPE_F32] = {CPU_F32, CPU_SCALES_NONE, 1, 0, 2048, -1, 32, false, NULL},
    [DTYPE_F16] = {CPU_F16, CPU_SCALES_NONE, 1, 0, 1024, -1, 32, false, NULL},
    [DTYPE_BF16] = {CPU_BF16, CPU_SCALES_NONE, 1, 0, 1024, -1, 32, false, NULL},
    [DTYPE_F8_E4M3] = {CPU_E4M3, CPU_SCALES_F32, 4, 64, 512, -1, 32, false, NULL},
    [DTYPE_Q4_0] = {CPU_K4, CPU_SCALES_D, 1, 32, 256, 3, 32, false, NULL},
    [DTYPE_Q4_1] = {CPU_K4M, CPU_SCALES_DM, 1, 64, 256, -1, 32, true, NULL},
    [DTYPE_Q5_0] = {CPU_K5, CPU_SCALES_D, 1, 32, 320, 4, 32, false, NULL},
    [DTYPE_Q5_1] = {CPU_K5M, CPU_SCALES_DM, 1, 64, 320, -1, 32, true, NULL},
    [DTYPE_Q8_0] = {CPU_K8, CPU_SCALES_D, 1, 32, 512, 7, 32, false, NULL},
    [DTYPE_IQ4_NL] = {CPU_KT, CPU_SCALES_D, 1, 32, 256, 7, 32, false, iq4_table},
    [DTYPE_MXFP4] = {CPU_KT, CPU_SCALES_E8M0, 1, 16, 256, 7, 32, false, mxfp4_table},
    [DTYPE_Q2_K] = {CPU_K2M, CPU_SCALES_K_NIB, 8, 64 + 16 * 16, 128, -1, 16, true, NULL},
    [DTYPE_Q3_K] = {CPU_K3, CPU_SCALES_K_S16, 8, 32 + 16 * 16, 192, 2, 16, false, NULL},
    [DTYPE_Q4_K] = {CPU_K4M, CPU_SCALES_K_SM, 8, 64 + 8 * 32, 256, -1, 32, true, NULL},
    [DTYPE_Q5_K] = {CPU_K5M, CPU_SCALES_K_SM, 8, 64 + 8 * 32, 320, -1, 32, true, NULL},
    [DTYPE_Q6_K] = {CPU_K6, CPU_SCALES_K_S16, 8, 32 + 16 * 16, 384, 5, 16, false, NULL},
    [DTYPE_IQ4_XS] = {CPU_KT, CPU_SCALES_K_S32, 8, 32 + 8 * 16, 256, 7, 32, false, iq4_table},
};

const struct cpu_format cpu_format_k8z = {CPU_K8Z, CPU_SCALES_D, 1, 32, 512, 7, 32, false, NULL};

const struct cpu_format *cpu_format(enum dtype dtype)
{
    return dtype < DTYPE_COUNT && formats[dtype].code_bytes ? &formats[dtype] : NULL;
}

bool cpu_weight_init(enum dtype dtype, int64_t n, int64_t k, const void *data, struct cpu_weight *out)
{
    const struct cpu_format *f = cpu_format(dtype);
    if (!f || n <= 0 || k <= 0 || n > INT32_MAX - 16 || k > INT32_MAX - 32 || k % dtype_info(dtype)->block)
        return false;
    size_t blocks = ((size_t)k + CPU_BLOCK - 1) / CPU_BLOCK;
    size_t scales = size_round_up((blocks + (size_t)f->blocks - 1) / (size_t)f->blocks * (size_t)f->scale_bytes, VECTOR);
    size_t group = scales + blocks * (size_t)f->code_bytes, total;
    if (!size_mul(((size_t)n + ROWS - 1) / ROWS, group, &total) || total > PTRDIFF_MAX) return false;
    *out = (struct cpu_weight){f, data, (int32_t)n, (int32_t)k, group, scales};
    return true;
}

/* ---- quads: four codes of a row, one a byte ---- */

static inline uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline void store32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, 4);
}

#define EACH_BYTE(mask) ((mask)*0x01010101u)

/* Quads of one row to (store) and from (fetch) the vectors of a block; p is the row's dword in the block's
 * first vector. */
INLINE void store_low_nibbles(uint8_t *p, const uint32_t q[8])
{
    UNROLL
    for (int j = 0; j < 4; j++)
        store32(p + j * VECTOR, (q[j] & EACH_BYTE(15u)) | (q[j + 4] & EACH_BYTE(15u)) << 4);
}
INLINE void store_pairs(uint8_t *p, const uint32_t q[8], int shift)
{
    UNROLL
    for (int v = 0; v < 2; v++) {
        uint32_t w = 0;
        UNROLL
        for (int t = 0; t < 4; t++) w |= (q[4 * v + t] >> shift & EACH_BYTE(3u)) << (2 * t);
        store32(p + v * VECTOR, w);
    }
}
INLINE void store_bits(uint8_t *p, const uint32_t q[8], int shift)
{
    uint32_t w = 0;
    UNROLL
    for (int j = 0; j < 8; j++) w |= (q[j] >> shift & EACH_BYTE(1u)) << j;
    store32(p, w);
}

INLINE void store_quads(enum cpu_kernel kernel, uint8_t *p, const uint32_t q[8])
{
    switch (kernel) {
    case CPU_K8:
        UNROLL
        for (int j = 0; j < 8; j++) store32(p + j * VECTOR, q[j]);
        break;
    case CPU_K2M: store_pairs(p, q, 0); break;
    case CPU_K3:
        store_pairs(p, q, 0);
        store_bits(p + 2 * VECTOR, q, 2);
        break;
    case CPU_K6:
        store_low_nibbles(p, q);
        store_pairs(p + 4 * VECTOR, q, 4);
        break;
    case CPU_K5:
    case CPU_K5M:
        store_low_nibbles(p, q);
        store_bits(p + 4 * VECTOR, q, 4);
        break;
    default: store_low_nibbles(p, q); break;
    }
}

static void fetch_low_nibbles(const uint8_t *p, uint32_t q[8])
{
    for (int j = 0; j < 4; j++) {
        uint32_t w = load32(p + j * VECTOR);
        q[j] = w & EACH_BYTE(15u);
        q[j + 4] = w >> 4 & EACH_BYTE(15u);
    }
}

static void fetch_quads(const struct cpu_format *f, const uint8_t *p, uint32_t q[8])
{
    switch (f->kernel) {
    case CPU_K8:
        for (int j = 0; j < 8; j++) q[j] = load32(p + j * VECTOR);
        break;
    case CPU_K2M:
    case CPU_K3:
        for (int j = 0; j < 8; j++) {
            q[j] = load32(p + j / 4 * VECTOR) >> (j % 4 * 2) & EACH_BYTE(3u);
            if (f->kernel == CPU_K3) q[j] |= (load32(p + 2 * VECTOR) >> j & EACH_BYTE(1u)) << 2;
        }
        break;
    default:
        fetch_low_nibbles(p, q);
        if (f->kernel == CPU_K6)
            for (int j = 0; j < 8; j++)
                q[j] |= (load32(p + (4 + j / 4) * VECTOR) >> (j % 4 * 2) & EACH_BYTE(3u)) << 4;
        else if (f->kernel == CPU_K5 || f->kernel == CPU_K5M)
            for (int j = 0; j < 8; j++) q[j] |= (load32(p + 4 * VECTOR) >> j & EACH_BYTE(1u)) << 4;
        break;
    }
}

/* ---- reading the file's blocks; tensor/dtype.c draws them ---- */

INLINE void nibble_quads(const uint8_t *qs, uint32_t q[8])
{
    UNROLL
    for (int j = 0; j < 4; j++) {
        uint32_t w = load32(qs + 4 * j);
        q[j] = w & EACH_BYTE(15u);
        q[j + 4] = w >> 4 & EACH_BYTE(15u);
    }
}

/* Bits 4j…4j+3 of qh become the fifth bits of quad j. */
INLINE void fifth_bits(uint32_t qh, uint32_t q[8])
{
    UNROLL
    for (int j = 0; j < 8; j++) q[j] |= ((qh >> (4 * j) & 15) * 0x00204081u & EACH_BYTE(1u)) << 4;
}

/* Quads of 32-column block g of a file block (g is 0 for formats of 32). */
INLINE void file_quads(enum dtype dtype, const uint8_t *b, int g, uint32_t q[8])
{
    switch (dtype) {
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL: nibble_quads(b + 2, q); return;
    case DTYPE_Q4_1: nibble_quads(b + 4, q); return;
    case DTYPE_MXFP4: nibble_quads(b + 1, q); return;
    case DTYPE_IQ4_XS: nibble_quads(b + 8 + 16 * g, q); return;
    case DTYPE_Q5_0:
        nibble_quads(b + 6, q);
        fifth_bits(load32(b + 2), q);
        return;
    case DTYPE_Q5_1:
        nibble_quads(b + 8, q);
        fifth_bits(load32(b + 4), q);
        return;
    case DTYPE_Q8_0:
        UNROLL
        for (int j = 0; j < 8; j++) q[j] = load32(b + 2 + 4 * j) ^ EACH_BYTE(128u);
        return;
    default: break;
    }
    UNROLL
    for (int j = 0; j < 8; j++) {
        switch (dtype) {
        case DTYPE_Q2_K: q[j] = load32(b + 16 + g / 4 * 32 + 4 * j) >> (g % 4 * 2) & EACH_BYTE(3u); break;
        case DTYPE_Q3_K:
            q[j] = (load32(b + 32 + g / 4 * 32 + 4 * j) >> (g % 4 * 2) & EACH_BYTE(3u)) |
                   (load32(b + 4 * j) >> g & EACH_BYTE(1u)) << 2;
            break;
        case DTYPE_Q4_K: q[j] = load32(b + 16 + g / 2 * 32 + 4 * j) >> (g % 2 * 4) & EACH_BYTE(15u); break;
        case DTYPE_Q5_K:
            q[j] = (load32(b + 48 + g / 2 * 32 + 4 * j) >> (g % 2 * 4) & EACH_BYTE(15u)) |
                   (load32(b + 16 + 4 * j) >> g & EACH_BYTE(1u)) << 4;
            break;
        default: /* DTYPE_Q6_K */
            q[j] = (load32(b + g / 4 * 64 + g % 2 * 32 + 4 * j) >> (g % 4 / 2 * 4) & EACH_BYTE(15u)) |
                   (load32(b + 128 + g / 4 * 32 + 4 * j) >> (g % 4 * 2) & EACH_BYTE(3u)) << 4;
            break;
        }
    }
}

/* Q4_K and Q5_K: six-bit scale and min of group j out of 12 bytes. */
INLINE void k_scale_min(const uint8_t *s, int j, uint8_t *scale, uint8_t *min)
{
    *scale = j < 4 ? s[j] & 63 : (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    *min = j < 4 ? s[j + 4] & 63 : (uint8_t)(s[j + 4] >> 4 | (s[j] >> 6) << 4);
}

/* One row's part of a record of scales: record[…][row]. */
INLINE void pack_scales(enum dtype dtype, const uint8_t *b, uint8_t *record, int row)
{
    uint8_t *f16 = record + 2 * row, *tail = record + 2 * ROWS + row;
    switch (dtype) {
    case DTYPE_MXFP4: record[row] = b[0]; break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        memcpy(f16, b, 2);
        memcpy(f16 + 2 * ROWS, b + 2, 2);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        memcpy(f16, b, 2);
        memcpy(f16 + 2 * ROWS, b + 2, 2);
        for (int j = 0; j < 8; j++)
            k_scale_min(b + 4, j, record + 64 + 32 * j + row, record + 64 + 32 * j + 16 + row);
        break;
    case DTYPE_Q2_K:
        memcpy(f16, b + 80, 2);
        memcpy(f16 + 2 * ROWS, b + 82, 2);
        for (int j = 0; j < 16; j++) record[64 + 16 * j + row] = b[j];
        break;
    case DTYPE_Q3_K:
        memcpy(f16, b + 108, 2);
        for (int j = 0; j < 16; j++) {
            int s = (b[96 + j % 8] >> (j & 8 ? 4 : 0) & 15) | (b[104 + j % 4] >> (j / 4 * 2) & 3) << 4;
            tail[16 * j] = (uint8_t)(s - 32);
        }
        break;
    case DTYPE_Q6_K:
        memcpy(f16, b + 208, 2);
        for (int j = 0; j < 16; j++) tail[16 * j] = b[192 + j];
        break;
    case DTYPE_IQ4_XS: {
        memcpy(f16, b, 2);
        int high = b[2] | b[3] << 8;
        for (int j = 0; j < 8; j++) {
            int s = (b[4 + j / 2] >> (j & 1 ? 4 : 0) & 15) | (high >> (2 * j) & 3) << 4;
            tail[16 * j] = (uint8_t)(s - 32);
        }
        break;
    }
    default: memcpy(f16, b, 2); break; /* Q4_0, Q5_0, Q8_0, IQ4_NL */
    }
}

/* Blocks of 32 in a block of the file. */
INLINE int dtype_blocks(enum dtype dtype)
{
    return dtype == DTYPE_Q2_K || dtype == DTYPE_Q3_K || dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K ||
                   dtype == DTYPE_Q6_K || dtype == DTYPE_IQ4_XS
               ? 8
               : 1;
}

/* Format and kernel are constants where this is inlined. */
INLINE void pack_blocks(const struct cpu_weight *w, enum dtype dtype, enum cpu_kernel kernel,
                        const uint8_t *src, uint8_t *group, int row)
{
    const struct cpu_format *f = w->format;
    size_t bytes = dtype_info(dtype)->bytes;
    uint8_t *codes = group + w->codes_at + 4 * row, *record = group;
    int records = cpu_weight_blocks(w) / f->blocks;
    for (int i = 0; i < records; i++, src += bytes, record += f->scale_bytes) {
        pack_scales(dtype, src, record, row);
        UNROLL
        for (int g = 0; g < dtype_blocks(dtype); g++, codes += f->code_bytes) {
            uint32_t q[8];
            file_quads(dtype, src, g, q);
            store_quads(kernel, codes, q);
        }
    }
}

static void pack_row(const struct cpu_weight *w, enum dtype dtype, const uint8_t *src, uint8_t *group,
                     int row)
{
#define FORMAT(dtype, kernel) \
    case dtype: pack_blocks(w, dtype, kernel, src, group, row); break
    switch (dtype) {
        FORMAT(DTYPE_Q4_0, CPU_K4);
        FORMAT(DTYPE_Q4_1, CPU_K4M);
        FORMAT(DTYPE_Q5_0, CPU_K5);
        FORMAT(DTYPE_Q5_1, CPU_K5M);
        FORMAT(DTYPE_Q8_0, CPU_K8);
        FORMAT(DTYPE_IQ4_NL, CPU_KT);
        FORMAT(DTYPE_MXFP4, CPU_KT);
        FORMAT(DTYPE_Q2_K, CPU_K2M);
        FORMAT(DTYPE_Q3_K, CPU_K3);
        FORMAT(DTYPE_Q4_K, CPU_K4M);
        FORMAT(DTYPE_Q5_K, CPU_K5M);
        FORMAT(DTYPE_Q6_K, CPU_K6);
        FORMAT(DTYPE_IQ4_XS, CPU_KT);
    default: break;
    }
#undef FORMAT
}

static void pack_floats(const struct cpu_weight *w, const uint8_t *src, uint8_t *group, int row)
{
    size_t k = (size_t)w->k;
    switch (w->format->kernel) {
    case CPU_F32:
        for (size_t i = 0; i < k; i++) memcpy(group + (i * ROWS + (size_t)row) * 4, src + 4 * i, 4);
        break;
    case CPU_F16:
        for (size_t i = 0; i < k; i++) memcpy(group + (i * ROWS + (size_t)row) * 2, src + 2 * i, 2);
        break;
    default:
        for (size_t i = 0; i < k / 2; i++) memcpy(group + (i * ROWS + (size_t)row) * 4, src + 4 * i, 4);
        if (k % 2) memcpy(group + (k / 2 * ROWS + (size_t)row) * 4, src + 2 * (k - 1), 2);
        break;
    }
}

void cpu_weight_pack(const struct cpu_weight *w, enum dtype dtype, const void *source, void *data,
                     size_t begin, size_t end)
{
    size_t row_bytes = dtype_row_bytes(dtype, (size_t)w->k);
    bool padded = w->format->kernel >= CPU_KERNELS && w->k % CPU_BLOCK;
    for (size_t g = begin; g < end; g++) {
        uint8_t *group = (uint8_t *)data + g * w->group_bytes;
        int rows = (int)ROSE_MIN((size_t)ROWS, (size_t)w->n - g * ROWS);
        if (rows < ROWS || padded) memset(group, 0, w->group_bytes);
        for (int r = 0; r < rows; r++) {
            const uint8_t *src = (const uint8_t *)source + (g * ROWS + (size_t)r) * row_bytes;
            if (w->format->kernel >= CPU_KERNELS)
                pack_floats(w, src, group, r);
            else
                pack_row(w, dtype, src, group, r);
        }
    }
}

/* ---- reading back ---- */

static inline float half_at(const uint8_t *p, int i)
{
#if defined(__ARM_FP16_FORMAT_IEEE)
    __fp16 h; /* one instruction */
    memcpy(&h, p + 2 * i, 2);
    return (float)h;
#else
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return f16_to_f32(h);
#endif
}

static float half_e8m0(uint8_t e)
{
    uint32_t u = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Scale and min of row `r` for columns 16h…16h+15 of block b. */
static void scale_at(const struct cpu_format *f, const uint8_t *scales, int b, int h, int r, float *s,
                     float *m)
{
    const uint8_t *p = scales + (size_t)(b / f->blocks) * (size_t)f->scale_bytes;
    int g = b % f->blocks;
    *m = 0;
    switch (f->scales) {
    case CPU_SCALES_F32: /* read by weight_fp8.c */
    case CPU_SCALES_NONE: *s = 1; break;
    case CPU_SCALES_D: *s = half_at(p, r); break;
    case CPU_SCALES_DM:
        *s = half_at(p, r);
        *m = half_at(p + 32, r);
        break;
    case CPU_SCALES_E8M0: *s = half_e8m0(p[r]); break;
    case CPU_SCALES_K_SM:
        *s = half_at(p, r) * (float)p[64 + 32 * g + r];
        *m = -(half_at(p + 32, r) * (float)p[64 + 32 * g + 16 + r]);
        break;
    case CPU_SCALES_K_NIB:
        *s = half_at(p, r) * (float)(p[64 + 32 * g + 16 * h + r] & 15);
        *m = -(half_at(p + 32, r) * (float)(p[64 + 32 * g + 16 * h + r] >> 4));
        break;
    case CPU_SCALES_K_S16: *s = half_at(p, r) * (float)(int8_t)p[32 + 32 * g + 16 * h + r]; break;
    case CPU_SCALES_K_S32: *s = half_at(p, r) * (float)(int8_t)p[32 + 16 * g + r]; break;
    }
}

void cpu_weight_expand_scales(const struct cpu_format *f, const uint8_t *src, int blocks, float *dst)
{
    int halves = CPU_BLOCK / f->group, floats = cpu_format_scale_floats(f);
    for (int b = 0; b < blocks; b++, dst += floats)
        for (int h = 0; h < halves; h++)
            for (int r = 0; r < ROWS; r++) {
                float s, m;
                scale_at(f, src, b, h, r, &s, &m);
                dst[16 * h + r] = s;
                if (f->min) dst[16 * (halves + h) + r] = m;
            }
}

void cpu_weight_expand_zero(const uint8_t *src, int blocks, float *dst)
{
    const uint8_t *codes = src + cpu_weight_k8_codes(blocks);
    for (int b = 0; b < blocks; b++, codes += CPU_BLOCK * ROWS, dst += ROWS * (1 + CPU_ZERO_POINTS)) {
        int32_t sums[CPU_ZERO_POINTS][ROWS];
        for (int r = 0; r < ROWS; r++) {
            int32_t sum = -128 * CPU_BLOCK;
            for (int i = 0; i < CPU_BLOCK; i++) sum += codes[i / 4 * VECTOR + 4 * r + i % 4];
            for (int t = 0; t < CPU_ZERO_POINTS; t++) sums[t][r] = t * CPU_ZERO_STEP * sum;
            dst[r] = half_at(src + 32 * b, r);
        }
        memcpy(dst + ROWS, sums, sizeof sums);
    }
}

static void float_row(const struct cpu_weight *w, const uint8_t *group, int r, float *out)
{
    for (int32_t i = 0; i < w->k; i++) {
        size_t at = w->format->kernel == CPU_BF16 ? (size_t)(i / 2 * ROWS + r) * 2 + (size_t)(i % 2)
                                                  : (size_t)i * ROWS + (size_t)r;
        uint16_t h;
        if (w->format->kernel == CPU_F32) {
            memcpy(&out[i], group + 4 * at, 4);
            continue;
        }
        memcpy(&h, group + 2 * at, 2);
        out[i] = w->format->kernel == CPU_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
}

void cpu_weight_row(const struct cpu_weight *w, int32_t row, float *out)
{
    const struct cpu_format *f = w->format;
    const uint8_t *group = w->data + (size_t)(row / ROWS) * w->group_bytes;
    int r = row % ROWS, blocks = cpu_weight_blocks(w);
    if (f->kernel == CPU_E4M3) {
        weight_fp8_row(w, row, out);
        return;
    }
    if (f->kernel >= CPU_KERNELS) {
        float_row(w, group, r, out);
        return;
    }
    int offset = f->offset_shift < 0 ? 0 : 1 << f->offset_shift;
    for (int b = 0; b < blocks; b++, out += CPU_BLOCK) {
        uint32_t q[8];
        fetch_quads(f, group + w->codes_at + (size_t)b * (size_t)f->code_bytes + 4 * r, q);
        for (int h = 0; h < 2; h++) {
            float s, m;
            scale_at(f, group, b, h, r, &s, &m);
            for (int i = 16 * h; i < 16 * h + 16; i++) {
                int code = (int)(q[i / 4] >> (8 * (i % 4)) & 255);
                if (f->table) code = f->table[code];
                out[i] = s * (float)(code - offset) + m;
            }
        }
    }
}
