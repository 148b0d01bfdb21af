#if defined(__x86_64__)
#include "kernels/cpu/matmul_amx.h"

#include "kernels/cpu/amx.h"
#include "kernels/cpu/matmul_epilogue.h"
#include "kernels/cpu/matmul_unpack.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL UNPACK_UNROLL

/* Blocks of two row tiles that stay in the level-1 cache while the panels stream past them. */
enum {
    STRETCH = 16,
    TILE_BYTES = MATMUL_AMX_TILE,
    PAIR_OUT = MATMUL_AMX_PAIR_OUT,
    MAX_PAIRS = MATMUL_AMX_PAIRS
};

/* ---- operands ---- */

/* bfloat16 in the upper half of each lane, ties to even; NaN stays NaN because the quiet bit is kept apart.
 */
INLINE __m512i round_even(__m512 x)
{
    __m512i u = _mm512_castps_si512(x),
            odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    return _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7FC00000));
}

void matmul_amx_acts(const float *x, size_t stride, int height, int32_t k, void *tile)
{
    uint8_t *to = tile;
    for (int32_t i = 0; i < k; i += CPU_BLOCK) {
        uint32_t left = (uint32_t)ROSE_MIN(CPU_BLOCK, k - i), mask = left == 32 ? ~0u : (1u << left) - 1;
        for (int h = 0; h < 16; h++, to += 64) {
            if (h >= height) {
                _mm512_store_si512(to, _mm512_setzero_si512());
                continue;
            }
            const float *row = x + (size_t)h * stride + i;
            __m512 a = _mm512_maskz_loadu_ps((__mmask16)mask, row),
                   b = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), row + 16);
            _mm256_store_si256((__m256i *)(void *)to,
                               _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_even(a), 16)));
            _mm256_store_si256((__m256i *)(void *)(to + 32),
                               _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_even(b), 16)));
        }
    }
}

/* Byte `byte` of each lane as the float 256 + code: the code's bits go to the mantissa, where the exponent of
 * 256 gives bit 15 the value 1. */
INLINE __m512 code_float(__m512i q, const int byte)
{
    __m512i v = byte == 0   ? _mm512_slli_epi32(q, 15)
                : byte == 1 ? _mm512_slli_epi32(q, 7)
                : byte == 2 ? _mm512_srli_epi32(q, 1)
                            : _mm512_srli_epi32(q, 9);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        v, _mm512_set1_epi32(0x7F8000), _mm512_set1_epi32(0x43800000), 0xEA)); /* v & a | b */
}

INLINE __m512i pair(__m512i q, const int byte, __m512 s, __m512 m)
{
    const __m512i half = _mm512_set1_epi32(0x8000);
    __m512i even = _mm512_add_epi32(_mm512_castps_si512(_mm512_fmadd_ps(s, code_float(q, byte), m)), half);
    __m512i odd = _mm512_add_epi32(_mm512_castps_si512(_mm512_fmadd_ps(s, code_float(q, byte + 1), m)), half);
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(even, 16), odd);
}

INLINE void panel_kernel(const enum cpu_kernel kernel, const int offset, const uint8_t *codes,
                         const int code_bytes, const float *scales, int blocks, __m512i table, uint8_t *panel)
{
    const bool min = kernel == CPU_K4M || kernel == CPU_K5M || kernel == CPU_K2M;
    const int halves = kernel == CPU_K2M || kernel == CPU_K3 || kernel == CPU_K6 ? 2 : 1;
    for (int b = 0; b < blocks; b++, codes += code_bytes, panel += TILE_BYTES) {
        __m512i q[8];
        UNROLL
        for (int v = 0; v < code_bytes; v += 64) _mm_prefetch((const char *)codes + 2048 + v, _MM_HINT_T0);
        unpack_quads(kernel, codes, table, q);
        __m512 s[2], m[2];
        UNROLL
        for (int h = 0; h < halves; h++) {
            s[h] = _mm512_loadu_ps(scales + 16 * h);
            m[h] = min ? _mm512_loadu_ps(scales + 16 * (halves + h)) : _mm512_setzero_ps();
            m[h] = _mm512_fnmadd_ps(s[h], _mm512_set1_ps((float)(256 + offset)), m[h]);
        }
        UNROLL
        for (int j = 0; j < 8; j++) {
            const int h = halves == 2 ? j / 4 : 0;
            _mm512_store_si512(panel + 128 * j, pair(q[j], 0, s[h], m[h]));
            _mm512_store_si512(panel + 128 * j + 64, pair(q[j], 2, s[h], m[h]));
        }
        scales += 16 * halves * (min ? 2 : 1);
    }
}

/* A group's weights as a panel: decoded to `panel`, or where they lie. */
static const uint8_t *panel_of(const struct cpu_weight *w, size_t group, float *scales, uint8_t *panel)
{
    const struct cpu_format *f = w->format;
    const uint8_t *data = w->data + group * w->group_bytes, *codes = data + w->codes_at;
    int blocks = cpu_weight_blocks(w);
    if (f->kernel == CPU_BF16) return data;
    matmul_expand_avx512(f, data, blocks, scales);
    __m512i table = f->table
                        ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)f->table))
                        : _mm512_setzero_si512();
#define KERNEL(name, offset, bytes) \
    case name: panel_kernel(name, offset, codes, bytes, scales, blocks, table, panel); break
    switch (f->kernel) {
        KERNEL(CPU_K4, 8, 256);
        KERNEL(CPU_K4M, 0, 256);
        KERNEL(CPU_K5, 16, 320);
        KERNEL(CPU_K5M, 0, 320);
        KERNEL(CPU_K8, 128, 512);
        KERNEL(CPU_KT, 128, 256);
        KERNEL(CPU_K2M, 0, 128);
        KERNEL(CPU_K3, 4, 192);
        KERNEL(CPU_K6, 32, 384);
    default: break;
    }
#undef KERNEL
    return panel;
}

/* ---- tiles ---- */

/* out[panel][32 rows][16] (+)= 2 row tiles x 2 panels over `blocks` blocks. */
static void tiles_2x2(const uint8_t *a0, const uint8_t *a1, const uint8_t *b0, const uint8_t *b1, int blocks,
                      bool first, float *out)
{
    float *c[4] = {out, out + 256, out + 512, out + 768}; /* rows 0, rows 1 of panel 0; of panel 1 */
    if (first) {
        amx_zero(0);
        amx_zero(1);
        amx_zero(2);
        amx_zero(3);
    } else {
        amx_load(0, c[0], 64);
        amx_load(1, c[1], 64);
        amx_load(2, c[2], 64);
        amx_load(3, c[3], 64);
    }
    for (int i = 0; i < blocks; i++) {
        amx_load(4, a0, 64);
        amx_load(6, b0, 64);
        amx_load(5, a1, 64);
        amx_load(7, b1, 64);
        amx_dot_bf16(0, 4, 6);
        amx_dot_bf16(1, 5, 6);
        amx_dot_bf16(2, 4, 7);
        amx_dot_bf16(3, 5, 7);
        a0 += TILE_BYTES, a1 += TILE_BYTES, b0 += TILE_BYTES, b1 += TILE_BYTES;
    }
    amx_store(0, c[0], 64);
    amx_store(1, c[1], 64);
    amx_store(2, c[2], 64);
    amx_store(3, c[3], 64);
}

static void tiles_1x2(const uint8_t *a0, const uint8_t *b0, const uint8_t *b1, int blocks, bool first,
                      float *out)
{
    if (first) {
        amx_zero(0);
        amx_zero(2);
    } else {
        amx_load(0, out, 64);
        amx_load(2, out + 512, 64);
    }
    for (int i = 0; i < blocks; i++) {
        amx_load(4, a0, 64);
        amx_load(6, b0, 64);
        amx_load(7, b1, 64);
        amx_dot_bf16(0, 4, 6);
        amx_dot_bf16(2, 4, 7);
        a0 += TILE_BYTES, b0 += TILE_BYTES, b1 += TILE_BYTES;
    }
    amx_store(0, out, 64);
    amx_store(2, out + 512, 64);
}

/* All rows times `pairs` pairs of panels. */
static void multiply(const struct matmul_amx_job *job, size_t group, int pairs,
                     const uint8_t *const (*panel)[2], float *out)
{
    int blocks = cpu_weight_blocks(job->weight);
    size_t tile = (size_t)blocks * TILE_BYTES;
    for (int32_t row = 0; row < job->rows; row += MATMUL_AMX_ROWS) {
        const uint8_t *a0 = (const uint8_t *)job->acts + (size_t)row / 16 * tile, *a1 = a0 + tile;
        int rows = ROSE_MIN(MATMUL_AMX_ROWS, job->rows - row);
        for (int b = 0; b < blocks; b += STRETCH) {
            int n = ROSE_MIN(STRETCH, blocks - b);
            size_t at = (size_t)b * TILE_BYTES;
            for (int p = 0; p < pairs; p++) {
                if (rows > 16)
                    tiles_2x2(a0 + at, a1 + at, panel[p][0] + at, panel[p][1] + at, n, b == 0,
                              out + p * PAIR_OUT);
                else
                    tiles_1x2(a0 + at, panel[p][0] + at, panel[p][1] + at, n, b == 0, out + p * PAIR_OUT);
            }
        }
        for (int p = 0; p < pairs; p++) {
            const float *o = out + p * PAIR_OUT;
            if (job->up)
                job->sink(job->context, group + (size_t)p, row, rows, o, o + 512);
            else {
                job->sink(job->context, group + 2 * (size_t)p, row, rows, o, NULL);
                if (group + 2 * (size_t)p + 1 < job->end)
                    job->sink(job->context, group + 2 * (size_t)p + 1, row, rows, o + 512, NULL);
            }
        }
    }
}

void matmul_amx_run(const struct matmul_amx_job *job)
{
    int blocks = cpu_weight_blocks(job->weight), most = matmul_amx_pairs(blocks);
    size_t panel_bytes = (size_t)blocks * TILE_BYTES, step = job->up ? 1 : 2; /* groups a pair */
    float *out = job->scratch, *scales = out + (size_t)most * PAIR_OUT;
    uint8_t *panels = (uint8_t *)(scales + (size_t)blocks * 64);
    amx_begin();
    for (size_t group = job->begin; group < job->end; group += step * (size_t)most) {
        const uint8_t *panel[MAX_PAIRS][2];
        int pairs = 0;
        for (size_t g = group; g < job->end && pairs < most; g += step, pairs++) {
            uint8_t *to = panels + (size_t)pairs * 2 * panel_bytes;
            panel[pairs][0] = panel_of(job->weight, g, scales, to);
            if (job->up)
                panel[pairs][1] = panel_of(job->up, g, scales, to + panel_bytes);
            else
                panel[pairs][1] = g + 1 < job->end ? panel_of(job->weight, g + 1, scales, to + panel_bytes)
                                                   : panel[pairs][0];
        }
        multiply(job, group, pairs, (const uint8_t *const(*)[2])panel, out);
    }
    amx_end();
}

/* ---- int8: the integer path's products of whole tiles, the same bits as vpdpbusd gives ---- */

/* One step: the sums of 16 rows of a block (or half block) into sums[16][16]. The two sets of tiles take
 * turns, so that a step's product runs while the sums of the step before are scaled. */
#define INT_STEP(c, a, b, acts, codes, sums) \
    do {                                     \
        amx_load(a, acts, CPU_BLOCK);        \
        amx_load(b, codes, 64);              \
        amx_zero(c);                         \
        amx_dot_s8u8(c, a, b);               \
        amx_store(c, sums, 64);              \
    } while (0)

INLINE void int_kernel(const enum cpu_kernel kernel, const int code_bytes, const uint8_t *codes,
                       const float *scales, const uint8_t *tile, int blocks, __m512i table, float *out)
{
    const bool min = kernel == CPU_K4M || kernel == CPU_K5M || kernel == CPU_K2M;
    const int halves = kernel == CPU_K2M || kernel == CPU_K3 || kernel == CPU_K6 ? 2 : 1;
    enum { H = MATMUL_TILE };
    _Alignas(64) uint8_t unpacked[2][512];
    _Alignas(64) int32_t sums[2][2][H * 16]; /* [block % 2][half] */
    __m512 acc[H];
    amx_begin_dot(CPU_BLOCK / halves);
    UNROLL
    for (int h = 0; h < H; h++) acc[h] = _mm512_setzero_ps();
    for (int b = 0; b <= blocks; b++) {
        const int now = b & 1;
        if (b < blocks) {
            __m512i q[8];
            unpack_quads(kernel, codes, table, q);
            UNROLL
            for (int j = 0; j < 8; j++) _mm512_store_si512(unpacked[now] + 64 * j, q[j]);
            INT_STEP(0, 4, 6, tile, unpacked[now], sums[now][0]);
            if (halves == 2) INT_STEP(1, 5, 7, tile + 16, unpacked[now] + 256, sums[now][1]);
            codes += code_bytes;
            tile += H * MATMUL_ACT_BYTES;
        }
        if (b == 0) continue;
        const uint8_t *done = tile - H * MATMUL_ACT_BYTES * (b < blocks ? 2 : 1); /* the block before */
        UNROLL
        for (int half = 0; half < halves; half++) {
            const int which = halves == 1 ? 0 : 1 + half;
            __m512 s = _mm512_loadu_ps(scales + 16 * half), m = _mm512_setzero_ps();
            if (min) m = _mm512_loadu_ps(scales + 16 * (halves + half));
            UNROLL
            for (int h = 0; h < H; h++) {
                __m512i sum =
                    _mm512_add_epi32(_mm512_load_si512(&sums[!now][half][16 * h]),
                                     unpack_start(kernel, done + H * (MATMUL_ACT_NSUM + 4 * which) + 4 * h));
                __m512 ss = _mm512_mul_ps(s, unpack_f32(done + H * MATMUL_ACT_S + 4 * h));
                acc[h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), ss, acc[h]);
                if (min)
                    acc[h] = _mm512_fmadd_ps(m, unpack_f32(done + H * (MATMUL_ACT_SSUM + 4 * which) + 4 * h),
                                             acc[h]);
            }
        }
        scales += 16 * halves * (min ? 2 : 1);
    }
    amx_end();
    UNROLL
    for (int h = 0; h < H; h++) _mm512_storeu_ps(out + 16 * h, acc[h]);
}

static void dot_amx(const struct cpu_format *f, const uint8_t *codes, const float *scales, const void *tile,
                    int height, int blocks, float *out)
{
    if (height < MATMUL_TILE) {
        matmul_dot_avx512(f, codes, scales, tile, height, blocks, out);
        return;
    }
    __m512i table = f->table
                        ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)f->table))
                        : _mm512_setzero_si512();
#define KERNEL(name, bytes) \
    case name: int_kernel(name, bytes, codes, scales, tile, blocks, table, out); break
    switch (f->kernel) {
        KERNEL(CPU_K4, 256);
        KERNEL(CPU_K4M, 256);
        KERNEL(CPU_K5, 320);
        KERNEL(CPU_K5M, 320);
        KERNEL(CPU_K8, 512);
        KERNEL(CPU_KT, 256);
        KERNEL(CPU_K2M, 128);
        KERNEL(CPU_K3, 192);
        KERNEL(CPU_K6, 384);
    default: break;
    }
#undef KERNEL
}

const struct matmul_kernels matmul_kernels_amx = {matmul_quantize_avx512, matmul_residual_avx512, matmul_expand_avx512, dot_amx,
                                                  matmul_dot_float_avx512, matmul_finish_avx512};
#else
typedef int matmul_amx_not_here;
#endif
