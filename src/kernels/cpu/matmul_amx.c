#if defined(__x86_64__)
#include "kernels/cpu/matmul_amx.h"

#include "kernels/cpu/amx.h"
#include "kernels/cpu/matmul_epilogue.h"
#include "kernels/cpu/matmul_unpack.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL UNPACK_UNROLL

enum {
    TILE_BYTES = MATMUL_AMX_TILE,
    PAIR_OUT = MATMUL_AMX_PAIR_OUT,
    MAX_PAIRS = MATMUL_AMX_PAIRS,
    DECODE_AHEAD = 2, /* blocks between a panel's stores and the tile loads of them */
    PREFETCH_AHEAD =
        4 * TILE_BYTES, /* panels come from the level-2 cache: this far ahead of the tile loads. The rows are multiplied by several pairs of
                           panels one after the other and need none: asking for them too cost 6 % (docs/facts.md) */
    SINK_ROWS = 8       /* of the unit before, stored between two steps of this one */
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
    for (int h = 0; h < 16; h++) { /* along rows: what the prefetcher follows */
        uint8_t *to = (uint8_t *)tile + 64 * h;
        const float *row = x + (size_t)h * stride;
        for (int32_t i = 0; i < k; i += CPU_BLOCK, to += TILE_BYTES) {
            if (h >= height) {
                _mm512_store_si512(to, _mm512_setzero_si512());
                continue;
            }
            uint32_t left = (uint32_t)ROSE_MIN(CPU_BLOCK, k - i), mask = left == 32 ? ~0u : (1u << left) - 1;
            __m512 a = _mm512_maskz_loadu_ps((__mmask16)mask, row + i),
                   b = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), row + i + 16);
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

/* A block of a group's codes to a panel. Scales: float32 as matmul_scales_avx512 leaves them, or (stored) the
 * f16 of the file. */
INLINE void panel_block(const enum cpu_kernel kernel, const int offset, const int code_bytes,
                        const bool stored, const uint8_t *codes, const uint8_t *scales, __m512i table,
                        uint8_t *panel)
{
    const bool min = kernel == CPU_K4M || kernel == CPU_K5M || kernel == CPU_K2M;
    const int halves = kernel == CPU_K2M || kernel == CPU_K3 || kernel == CPU_K6 ? 2 : 1;
    __m512i q[8];
    UNROLL
    for (int v = 0; v < code_bytes; v += 64)
        matmul_ahead(codes + v);
    unpack_quads(kernel, codes, table, q);
    __m512 s[2], m[2];
    UNROLL
    for (int h = 0; h < halves; h++) {
        s[h] = unpack_scale(stored, scales, h);
        m[h] = min ? unpack_scale(stored, scales, halves + h) : _mm512_setzero_ps();
        m[h] = _mm512_fnmadd_ps(s[h], _mm512_set1_ps((float)(256 + offset)), m[h]);
    }
    UNROLL
    for (int j = 0; j < 8; j++) {
        const int h = halves == 2 ? j / 4 : 0;
        _mm512_store_si512(panel + 128 * j, pair(q[j], 0, s[h], m[h]));
        _mm512_store_si512(panel + 128 * j + 64, pair(q[j], 2, s[h], m[h]));
    }
}

typedef void block_decoder(const uint8_t *codes, const uint8_t *scales, __m512i table, uint8_t *panel);
#define DECODER(name, kernel, offset, bytes, stored)                                             \
    static void name(const uint8_t *codes, const uint8_t *scales, __m512i table, uint8_t *panel) \
    {                                                                                            \
        panel_block(kernel, offset, bytes, stored, codes, scales, table, panel);                 \
    }
DECODER(decode_k4, CPU_K4, 8, 256, true)
DECODER(decode_k4m, CPU_K4M, 0, 256, true)
DECODER(decode_k5, CPU_K5, 16, 320, true)
DECODER(decode_k5m, CPU_K5M, 0, 320, true)
DECODER(decode_k8, CPU_K8, 128, 512, true)
DECODER(decode_kt, CPU_KT, 128, 256, true)
DECODER(decode_k4m_f32, CPU_K4M, 0, 256, false)
DECODER(decode_k5m_f32, CPU_K5M, 0, 320, false)
DECODER(decode_kt_f32, CPU_KT, 128, 256, false)
DECODER(decode_k2m_f32, CPU_K2M, 0, 128, false)
DECODER(decode_k3_f32, CPU_K3, 4, 192, false)
DECODER(decode_k6_f32, CPU_K6, 32, 384, false)

/* A group on its way to a panel. */
struct source {
    block_decoder *decode; /* NULL: nothing to decode (any more) */
    const uint8_t *codes, *scales;
    size_t code_bytes, scale_bytes;
    uint8_t *to;
    __m512i table;
    int left; /* blocks */
};

INLINE void source_next(struct source *s)
{
    if (!s->left) return;
    s->decode(s->codes, s->scales, s->table, s->to);
    s->codes += s->code_bytes, s->scales += s->scale_bytes, s->to += TILE_BYTES;
    s->left--;
}

/* Begin a group: its panel will be `panel`, or lies where the weight is. */
static const uint8_t *source_begin(struct source *s, const struct cpu_weight *w, size_t group, float *scales,
                                   uint8_t *panel)
{
    static block_decoder *const from_stored[CPU_KERNELS] = {decode_k4,  decode_k4m, decode_k5,
                                                            decode_k5m, decode_k8,  decode_kt};
    static block_decoder *const from_f32[CPU_KERNELS] = {NULL,           decode_k4m_f32, NULL,
                                                         decode_k5m_f32, NULL,           decode_kt_f32,
                                                         decode_k2m_f32, decode_k3_f32,  decode_k6_f32};
    const struct cpu_format *f = w->format;
    const uint8_t *data = w->data + group * w->group_bytes;
    int blocks = cpu_weight_blocks(w);
    s->left = 0;
    if (f->kernel == CPU_BF16) return data;
    bool stored = unpack_stored(f);
    *s = (struct source){
        .decode = stored ? from_stored[f->kernel] : from_f32[f->kernel],
        .codes = data + w->codes_at,
        .scales = matmul_scales_avx512(f, data, blocks, scales),
        .code_bytes = (size_t)f->code_bytes,
        .scale_bytes = stored ? (size_t)f->scale_bytes : (size_t)cpu_format_scale_floats(f) * sizeof(float),
        .to = panel,
        .table = f->table ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)f->table))
                          : _mm512_setzero_si512(),
        .left = blocks};
    return panel;
}

/* ---- tiles ---- */

/* A finished unit, out[2 groups][32 rows][16], whose rows go to the sink while the next unit multiplies: the
 * tile unit has its own queue, so that bias, activation and stores cost next to nothing. */
struct pending {
    const struct matmul_amx_job *job;
    const float *out;
    size_t group;
    int32_t row;
    int at, rows;
    bool second; /* the second group exists */
};

static void pending_rows(struct pending *p, int most)
{
    int n = ROSE_MIN(most, p->rows - p->at);
    const float *o = p->out + (size_t)p->at * CPU_GROUP;
    if (p->job->up)
        p->job->sink(p->job->context, p->group, p->row + p->at, n, o, o + PAIR_OUT / 2);
    else {
        p->job->sink(p->job->context, p->group, p->row + p->at, n, o, NULL);
        if (p->second) p->job->sink(p->job->context, p->group + 1, p->row + p->at, n, o + PAIR_OUT / 2, NULL);
    }
    p->at += n;
}

/* Ask for the lines of y that rows [from, from + n) of a unit will be stored to, long before: the stores
 * would else fill the store buffer while each line comes from another cache. (prefetchw: every processor with
 * AMX has it.) */
INLINE void pending_fetch(const struct pending *p, int from, int n)
{
    const struct matmul_amx_job *job = p->job;
    if (!job->y) return;
    const float *y = job->y + (size_t)(p->row + from) * job->y_stride + p->group * CPU_GROUP;
    for (int i = 0; i < n; i++, y += job->y_stride) {
        __asm__ volatile("prefetchw %0" ::"m"(*y));
        if (p->second) __asm__ volatile("prefetchw %0" ::"m"(y[CPU_GROUP]));
    }
}

INLINE void prefetch_tile(const uint8_t *p)
{
    UNROLL
    for (int i = 0; i < TILE_BYTES; i += 64) _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/* out = 2 (1) row tiles x 2 panels over all of k, while panels are decoded and the unit before goes to its
 * sink. */
INLINE void unit(const int tiles, const uint8_t *a0, size_t tile, const uint8_t *b0, const uint8_t *b1,
                 int blocks, struct source source[2], struct pending *before, const struct pending *now,
                 float *out)
{
    const uint8_t *a1 = a0 + tile;
    const bool decoding = source[0].left || source[1].left;
    amx_zero(0);
    amx_zero(2);
    if (tiles == 2) {
        amx_zero(1);
        amx_zero(3);
    }
    for (int i = 0; i < DECODE_AHEAD && decoding; i++) {
        source_next(&source[0]);
        source_next(&source[1]);
    }
    for (int i = 0; i < blocks; i++) {
        amx_load(4, a0, 64);
        amx_load(6, b0, 64);
        amx_dot_bf16(0, 4, 6);
        if (tiles == 2) {
            amx_load(5, a1, 64);
            amx_dot_bf16(1, 5, 6);
        }
        amx_load(7, b1, 64);
        if (!decoding) prefetch_tile(b0 + PREFETCH_AHEAD);
        amx_dot_bf16(2, 4, 7);
        if (!decoding) prefetch_tile(b1 + PREFETCH_AHEAD);
        if (tiles == 2) amx_dot_bf16(3, 5, 7);
        a0 += TILE_BYTES, a1 += TILE_BYTES, b0 += TILE_BYTES, b1 += TILE_BYTES;
        if (decoding) {
            source_next(&source[0]);
            source_next(&source[1]);
        }
        if (before->at < before->rows) pending_rows(before, SINK_ROWS);
        if (i * SINK_ROWS < now->rows)
            pending_fetch(now, i * SINK_ROWS, ROSE_MIN(SINK_ROWS, now->rows - i * SINK_ROWS));
    }
    if (before->at < before->rows) pending_rows(before, before->rows);
    amx_store(0, out, 64);
    amx_store(2, out + PAIR_OUT / 2, 64);
    if (tiles == 2) {
        amx_store(1, out + 256, 64);
        amx_store(3, out + PAIR_OUT / 2 + 256, 64);
    }
}

void matmul_amx_run(const struct matmul_amx_job *job)
{
    int blocks = cpu_weight_blocks(job->weight), most = matmul_amx_pairs(blocks);
    size_t tile = (size_t)blocks * TILE_BYTES, step = job->up ? 1 : 2; /* groups a pair */
    float *out = job->scratch, *scales[2] = {out + 2 * PAIR_OUT, out + 2 * PAIR_OUT + (size_t)blocks * 64};
    uint8_t *panels = (uint8_t *)(scales[1] + (size_t)blocks * 64);
    struct pending before = {.job = job};
    struct source source[2] = {0};
    int turn = 0;
    amx_begin();
    for (size_t group = job->begin; group < job->end; group += step * (size_t)most) {
        const uint8_t *panel[MAX_PAIRS][2];
        int pairs = (int)ROSE_MIN((size_t)most, (job->end - group + step - 1) / step);
        for (int32_t row = 0; row < job->rows; row += MATMUL_AMX_ROWS) {
            const uint8_t *acts = (const uint8_t *)job->acts + (size_t)row / 16 * tile;
            int rows = ROSE_MIN(MATMUL_AMX_ROWS, job->rows - row);
            for (int p = 0; p < pairs; p++, turn = !turn) {
                size_t g = group + step * (size_t)p;
                bool second = !job->up && g + 1 < job->end;
                if (row == 0) { /* the first rows find the panels being decoded */
                    uint8_t *to = panels + (size_t)p * 2 * tile;
                    panel[p][1] = panel[p][0] = source_begin(&source[0], job->weight, g, scales[0], to);
                    if (job->up || second)
                        panel[p][1] = source_begin(&source[1], job->up ? job->up : job->weight,
                                                   g + (second ? 1 : 0), scales[1], to + tile);
                }
                float *to = out + turn * PAIR_OUT;
                struct pending now = {job, to, g, row, 0, rows, second};
                if (rows > 16)
                    unit(2, acts, tile, panel[p][0], panel[p][1], blocks, source, &before, &now, to);
                else
                    unit(1, acts, tile, panel[p][0], panel[p][1], blocks, source, &before, &now, to);
                before = now;
            }
        }
    }
    if (before.at < before.rows) pending_rows(&before, before.rows);
    amx_end();
}

/* ---- int8: the integer path's products of whole tiles, the same bits as vpdpbusd gives ---- */

/* Blocks between a block's codes in memory and the tile load of them, and between its sums' tile store and
 * their scaling: a load does not see a store that the cache has not yet taken, and everything between goes on
 * meanwhile. */
enum { INT_AHEAD = 2, INT_BUFFERS = 2 * INT_AHEAD };

/* The sums of 16 rows of a block (or half block) to sums[16][16]. */
#define INT_STEP(c, a, b, acts, codes, sums) \
    do {                                     \
        amx_load(a, acts, CPU_BLOCK);        \
        amx_load(b, codes, 64);              \
        amx_zero(c);                         \
        amx_dot_s8u8(c, a, b);               \
        amx_store(c, sums, 64);              \
    } while (0)

INLINE void int_kernel(const enum cpu_kernel kernel, const bool stored, const int code_bytes,
                       const uint8_t *codes, const uint8_t *scales, const uint8_t *tile, int blocks,
                       __m512i table, float *out)
{
    const bool min = kernel == CPU_K4M || kernel == CPU_K5M || kernel == CPU_K2M;
    const int halves = kernel == CPU_K2M || kernel == CPU_K3 || kernel == CPU_K6 ? 2 : 1;
    enum { H = MATMUL_TILE };
    _Alignas(64) uint8_t unpacked[INT_BUFFERS][512];
    _Alignas(64) int32_t sums[INT_BUFFERS][2][H * 16]; /* [block][half] */
    _Alignas(64) int32_t starts[CPU_ZERO_POINTS][16];
    __m512 acc[H];
    amx_begin_dot(CPU_BLOCK / halves);
    UNROLL
    for (int h = 0; h < H; h++) acc[h] = _mm512_setzero_ps();
    for (int i = 0; i < blocks + 2 * INT_AHEAD; i++) {
        int b = i;
        if (b < blocks) {
            uint8_t *to = unpacked[b % INT_BUFFERS];
            __m512i q[8];
            UNROLL
            for (int v = 0; v < code_bytes; v += 64)
                matmul_ahead(codes + v);
            unpack_quads(kernel, codes, table, q);
            UNROLL
            for (int j = 0; j < 8; j++) _mm512_store_si512(to + 64 * j, q[j]);
            codes += code_bytes;
        }
        b = i - INT_AHEAD;
        if (b >= 0 && b < blocks) {
            const uint8_t *acts = tile + (size_t)b * H * MATMUL_ACT_BYTES, *from = unpacked[b % INT_BUFFERS];
            INT_STEP(0, 4, 6, acts, from, sums[b % INT_BUFFERS][0]);
            if (halves == 2) INT_STEP(1, 5, 7, acts + 16, from + 256, sums[b % INT_BUFFERS][1]);
        }
        b = i - 2 * INT_AHEAD;
        if (b < 0) continue;
        const uint8_t *done = tile + (size_t)b * H * MATMUL_ACT_BYTES;
        if (kernel == CPU_K8Z) unpack_zero(scales, starts);
        UNROLL
        for (int half = 0; half < halves; half++) {
            const int which = halves == 1 ? 0 : 1 + half;
            __m512 s = unpack_scale(stored, scales, half), m = _mm512_setzero_ps();
            if (min) m = unpack_scale(stored, scales, halves + half);
            UNROLL
            for (int h = 0; h < H; h++) {
                const uint8_t *nsum = done + H * (MATMUL_ACT_NSUM + 4 * which) + 4 * h;
                __m512i sum = _mm512_add_epi32(_mm512_load_si512(&sums[b % INT_BUFFERS][half][16 * h]),
                                               kernel == CPU_K8Z ? unpack_start_zero(nsum, H, starts) : unpack_start(kernel, nsum));
                __m512 ss = _mm512_mul_ps(s, unpack_f32(done + H * MATMUL_ACT_S + 4 * h));
                acc[h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), ss, acc[h]);
                if (min)
                    acc[h] = _mm512_fmadd_ps(m, unpack_f32(done + H * (MATMUL_ACT_SSUM + 4 * which) + 4 * h),
                                             acc[h]);
            }
        }
        scales += kernel == CPU_K8Z ? UNPACK_ZERO_BYTES : (stored ? 32 : 64) * halves * (min ? 2 : 1);
    }
    amx_end();
    UNROLL
    for (int h = 0; h < H; h++) _mm512_storeu_ps(out + 16 * h, acc[h]);
}

static void dot_amx(const struct cpu_format *f, const uint8_t *codes, const void *scales, const void *tile,
                    int height, int blocks, float *out)
{
    if (height < MATMUL_TILE) {
        matmul_dot_avx512(f, codes, scales, tile, height, blocks, out);
        return;
    }
    __m512i table = f->table
                        ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)f->table))
                        : _mm512_setzero_si512();
    const bool stored = unpack_stored(f);
#define KERNEL(name, stored, bytes) int_kernel(name, stored, bytes, codes, scales, tile, blocks, table, out)
    switch (f->kernel) {
    case CPU_K4: KERNEL(CPU_K4, true, 256); break;
    case CPU_K5: KERNEL(CPU_K5, true, 320); break;
    case CPU_K8: KERNEL(CPU_K8, true, 512); break;
    case CPU_K4M:
        if (stored)
            KERNEL(CPU_K4M, true, 256);
        else
            KERNEL(CPU_K4M, false, 256);
        break;
    case CPU_K5M:
        if (stored)
            KERNEL(CPU_K5M, true, 320);
        else
            KERNEL(CPU_K5M, false, 320);
        break;
    case CPU_KT:
        if (stored)
            KERNEL(CPU_KT, true, 256);
        else
            KERNEL(CPU_KT, false, 256);
        break;
    case CPU_K2M: KERNEL(CPU_K2M, false, 128); break;
    case CPU_K3: KERNEL(CPU_K3, false, 192); break;
    case CPU_K6: KERNEL(CPU_K6, false, 384); break;
    case CPU_K8Z: KERNEL(CPU_K8Z, true, 512); break;
    default: break;
    }
#undef KERNEL
}

const struct matmul_kernels matmul_kernels_amx = {matmul_quantize_avx512, matmul_quantize_zero_avx512, matmul_residual_avx512, matmul_scales_avx512,
                                                  dot_amx,                matmul_streams_avx512,  matmul_dot_float_avx512,     matmul_finish_avx512};
#else
typedef int matmul_amx_not_here;
#endif
