#include "probes.h"
#include "simt_codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;
static uint32_t rnd(uint32_t n) { return simt_draw(&state, n); }
static uint32_t rnd32(void)
{
    return rnd(65536) << 16 | rnd(65536);
}

/* A random whole number from -4 to 4, so that sums are exact whatever their order. */
static uint32_t code_of(enum simt_kind k)
{
    double value;
    return simt_code(k, (int)rnd(9) - 4, &value);
}
static uint32_t word_of(enum simt_kind k)
{
    uint32_t w = 0;
    for (int i = 0; i < 32; i += simt_code_bits(k)) w |= code_of(k) << i;
    return w;
}
static uint32_t metadata(void) /* two of four, ascending, eight times */
{
    static const uint32_t pairs[6] = {0 | 1 << 2, 0 | 2 << 2, 0 | 3 << 2, 1 | 2 << 2, 1 | 3 << 2, 2 | 3 << 2};
    uint32_t w = 0;
    for (int i = 0; i < 32; i += 4) w |= pairs[rnd(6)] << i;
    return w;
}

/* ---- mma
 * ----------------------------------------------------------------------------------------------------------------
 */
struct mma_params {
    const uint32_t *in;
    uint32_t *out;
};
static const struct {
    enum simt_kind a, b;
    uint32_t arch;
    int scale;
} mma_ops[] = {{BF16, BF16, 0, 0},    {F16, F16, 0, 0},      {S8, S8, 0, 0},        {BF16, BF16, 0, 0},
               {BF16, BF16, 0, 0},    {F16, F16, 0, 0},      {S8, S8, 0, 0},        {E4M3, E4M3, 0, 0},
               {E5M2, E5M2, 0, 0},    {E4M3, E4M3, 0, 0},    {E2M1, E2M1, 1200, 4}, {E2M1, E2M1, 1200, 2},
               {E2M1, E2M1, 1200, 4}, {E2M1, E2M1, 1200, 2}, {E4M3, E5M2, 0, 0},    {E5M2, E4M3, 0, 0},
               {E5M2, E5M2, 0, 0}};
enum { MMA_OPS = sizeof mma_ops / sizeof *mma_ops };

static struct probe mma_probe(int op, const struct probe_io *io, void *params)
{
    struct probe p = {.kernel = "probe_mma",
                      .arch = mma_ops[op].arch,
                      .grid = 1,
                      .block = 32,
                      .params_bytes = sizeof(struct mma_params)};
    snprintf(p.name, sizeof p.name, "mma op %d", op);
    snprintf(p.constants, sizeof p.constants, "OP=%d", op);
    if (!io) return p;
    static uint32_t in[32][20], out[128];
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < 4; i++) in[l][i] = word_of(mma_ops[op].a), in[l][4 + i] = word_of(mma_ops[op].b);
        in[l][8] = metadata();
        for (int s = 0; s < 2; s++) {
            in[l][9 + s] = 0;
            for (int i = 0; i < mma_ops[op].scale; i++)
                in[l][9 + s] |= (mma_ops[op].scale == 4 ? (7 + rnd(3)) << 3 : 127 + rnd(3)) << (8 * i);
        }
        for (int i = 0; i < 4; i++) {
            float f = (float)rnd(100);
            if (op == 2 || op == 6)
                in[l][12 + i] = rnd32();
            else
                memcpy(&in[l][12 + i], &f, 4);
        }
    }
    struct mma_params m = {io->buffer(io->context, "in", sizeof in, in),
                           io->buffer(io->context, "out", sizeof out, out)};
    memcpy(params, &m, sizeof m);
    return p;
}

/* ---- ldmatrix
 * -------------------------------------------------------------------------------------------------------------
 */
static struct probe matrix_probe(const struct probe_io *io, void *params)
{
    struct probe p = {.name = "ldmatrix, stmatrix",
                      .kernel = "probe_matrix",
                      .grid = 1,
                      .block = 32,
                      .shared_bytes = 2304,
                      .params_bytes = sizeof(struct mma_params)};
    if (!io) return p;
    static uint32_t in[128], out[960];
    for (int i = 0; i < 128; i++) in[i] = rnd32();
    struct mma_params m = {io->buffer(io->context, "in", sizeof in, in),
                           io->buffer(io->context, "out", sizeof out, out)};
    memcpy(params, &m, sizeof m);
    return p;
}

/* ---- wgmma
 * ------------------------------------------------------------------------------------------------------------------
 */
struct wgmma_params {
    const uint8_t *a, *b;
    const uint32_t *regs;
    uint32_t *d;
    uint32_t a_leading, a_stride, a_span, b_leading, b_stride, b_span, accumulate;
};
static const struct {
    enum simt_kind kind;
    int trans, sparse;
} wgmma_ops[] = {{BF16, 0, 0}, {BF16, 0, 0}, {F16, 0, 0},  {BF16, 1, 0}, {BF16, 1, 0},
                 {E4M3, 0, 0}, {E5M2, 0, 0}, {BF16, 0, 1}, {BF16, 0, 1}, {E4M3, 0, 1},
                 {S8, 0, 0},   {S8, 0, 0},   {S8, 0, 1},   {E4M3, 0, 1}, {BF16, 0, 0},
                 {E4M3, 0, 0}, {E5M2, 0, 0}, {F16, 0, 0},  {F16, 1, 0},  {F16, 0, 1}};
enum { WGMMA_OPS = sizeof wgmma_ops / sizeof *wgmma_ops - 5 /* the last five with one span */, SPANS = 4, WGMMA_A = 8192, WGMMA_B = 16384 };

/* Distances of atoms along M or N (`extent` of them) and along K, as the operand image of test_simt_wgmma
 * lays them out. */
static void leading_stride(uint32_t span, int trans, uint32_t extent, uint32_t *leading, uint32_t *stride)
{
    uint32_t atoms = (extent + 7) / 8;
    if (span)
        *stride = 8 * span, *leading = trans ? atoms * 8 * span : 16;
    else if (!trans)
        *leading = atoms * 128, *stride = 128;
    else
        *stride = atoms * 128, *leading = 128;
}

static struct probe wgmma_probe(int op, uint32_t span, uint32_t n, const struct probe_io *io, void *params)
{
    struct probe p = {.kernel = "probe_wgmma",
                      .arch = 900,
                      .grid = 1,
                      .block = 128,
                      .shared_bytes = WGMMA_A + WGMMA_B,
                      .params_bytes = sizeof(struct wgmma_params)};
    snprintf(p.name, sizeof p.name, "wgmma op %d span %u N %u", op, span, n);
    snprintf(p.constants, sizeof p.constants, "OP=%d N=%u A_BYTES=%d B_BYTES=%d", op, n, WGMMA_A, WGMMA_B);
    if (!io) return p;
    static uint32_t a[WGMMA_A / 4], b[WGMMA_B / 4], regs[128][5], d[128 * 128];
    enum simt_kind k = wgmma_ops[op].kind;
    for (int i = 0; i < WGMMA_A / 4; i++) a[i] = word_of(k);
    for (int i = 0; i < WGMMA_B / 4; i++) b[i] = word_of(k);
    for (int t = 0; t < 128; t++) {
        for (int i = 0; i < 4; i++) regs[t][i] = word_of(k);
        regs[t][4] = metadata();
    }
    for (uint32_t i = 0; i < 128 * n / 2; i++) {
        float f = (float)rnd(50);
        if (k == S8)
            d[i] = rnd(1000);
        else
            memcpy(&d[i], &f, 4);
    }
    struct wgmma_params w = {.a = io->buffer(io->context, "a", sizeof a, a),
                             .b = io->buffer(io->context, "b", sizeof b, b),
                             .regs = io->buffer(io->context, "regs", sizeof regs, regs),
                             .d = io->buffer(io->context, "d", 128 * (size_t)n / 2 * 4, d),
                             .a_span = span,
                             .b_span = span,
                             .accumulate = (uint32_t)op % 3 != 0};
    uint32_t held = 256 / (uint32_t)simt_code_bits(k), kk = wgmma_ops[op].sparse ? 2 * held : held;
    leading_stride(span, wgmma_ops[op].trans, wgmma_ops[op].trans ? held : 64, &w.a_leading, &w.a_stride);
    leading_stride(span, wgmma_ops[op].trans, wgmma_ops[op].trans ? kk : n, &w.b_leading, &w.b_stride);
    memcpy(params, &w, sizeof w);
    return p;
}

/* ---- conversions, threads, functions
 * ------------------------------------------------------------------------------------------ */
struct map_params { /* x -> out, n */
    const void *x;
    void *out;
    uint32_t n;
};
static struct probe convert_probe(const struct probe_io *io, void *params)
{
    enum { N = 40000 };
    struct probe p = {.name = "conversions",
                      .kernel = "probe_convert",
                      .grid = (N + 127) / 128,
                      .block = 128,
                      .params_bytes = sizeof(struct map_params)};
    if (!io) return p;
    uint32_t *x = malloc(N * 4), *out = calloc(N, 64);
    for (int i = 0; i < N; i++) {
        /* all exponents that some format reaches, often on or beside a rounding boundary; then anything */
        static const uint32_t low[8] = {0, 0x80000, 0x80001, 0x7ffff, 0x8000, 0x100000, 0x1000, 0xfffff};
        if (i < 8192)
            x[i] = (uint32_t)i << 19 | low[rnd(8)];
        else if (i < 24000)
            x[i] = (rnd(2) << 31) | (100 + rnd(45)) << 23 | rnd(8) << 20 | low[rnd(8)];
        else
            x[i] = rnd32();
    }
    struct map_params m = {io->buffer(io->context, "x", N * 4, x),
                           io->buffer(io->context, "out", N * 64, out), N};
    memcpy(params, &m, sizeof m);
    free(x), free(out);
    return p;
}

static struct probe threads_probe(const struct probe_io *io, void *params)
{
    enum { BLOCKS = 3 };
    struct probe p = {.name = "warps",
                      .kernel = "probe_threads",
                      .grid = BLOCKS,
                      .block = 64,
                      .params_bytes = sizeof(struct mma_params)};
    if (!io) return p;
    static uint32_t x[BLOCKS * 64], out[BLOCKS * 64 * 24];
    for (int i = 0; i < BLOCKS * 64; i++) x[i] = i == 70 ? 0 : i == 75 ? 1 : rnd32();
    struct mma_params m = {io->buffer(io->context, "x", sizeof x, x),
                           io->buffer(io->context, "out", sizeof out, out)};
    memcpy(params, &m, sizeof m);
    return p;
}

static struct probe math_probe(const struct probe_io *io, void *params)
{
    enum { N = 4000 };
    struct probe p = {.name = "functions",
                      .kernel = "probe_math",
                      .grid = (N + 127) / 128,
                      .block = 128,
                      .params_bytes = sizeof(struct map_params),
                      .tolerance = 1e-3};
    if (!io) return p;
    static float x[N], out[N * 20];
    for (int i = 0; i < N; i++)
        x[i] = ((float)rnd(1 << 20) / (1 << 19) - 1.0f) * (i % 3 ? 8.0f : 40.0f) + 1e-3f;
    struct map_params m = {io->buffer(io->context, "x", sizeof x, x),
                           io->buffer(io->context, "out", sizeof out, out), N};
    memcpy(params, &m, sizeof m);
    return p;
}

/* ---- synchronisation
 * ----------------------------------------------------------------------------------------------------------
 */
struct sync_params { /* probe_sync's and probe_access's: x, counters, wide, floats, out */
    void *p[5];
};
static void sync_buffers(const struct probe_io *io, void *params, const size_t bytes[5], const void *const data[5])
{
    static const char *const names[5] = {"x", "counters", "wide", "floats", "out"};
    struct sync_params s;
    for (int i = 0; i < 5; i++) s.p[i] = io->buffer(io->context, names[i], bytes[i], data[i]);
    memcpy(params, &s, sizeof s);
}
static struct probe sync_probe(const struct probe_io *io, void *params)
{
    struct probe p = {.name = "synchronisation",
                      .kernel = "probe_sync",
                      .grid = 4,
                      .block = 128,
                      .cluster = 2,
                      .cooperative = true,
                      .shared_bytes = 4096,
                      .params_bytes = sizeof(struct sync_params)};
    if (!io) return p;
    uint32_t x[256], counters[16] = {0}, out[4 * 64] = {0};
    uint64_t wide[2] = {0};
    float floats[64] = {0};
    for (int i = 0; i < 256; i++) x[i] = rnd32();
    counters[8] = counters[9] = ~0u;
    sync_buffers(io, params, (size_t[]){sizeof x, sizeof counters, sizeof wide, sizeof floats, sizeof out}, (const void *[]){x, counters, wide, floats, out});
    return p;
}

/* ---- every access; clusters with tensor maps ---- */
static struct probe access_probe(const struct probe_io *io, void *params)
{
    enum { THREADS = 128 };
    struct probe p = {.name = "accesses", .kernel = "probe_access", .grid = 2, .block = 64, .cooperative = true, .params_bytes = sizeof(struct sync_params)};
    if (!io) return p;
    static uint32_t x[THREADS * 8], out[THREADS * 64], counters[4];
    uint64_t wide[4] = {0};
    float floats[2] = {0};
    for (int i = 0; i < THREADS * 8; i++) x[i] = rnd32();
    counters[1] = (uint32_t)-1000;
    sync_buffers(io, params, (size_t[]){sizeof x, sizeof counters, sizeof wide, sizeof floats, sizeof out}, (const void *[]){x, counters, wide, floats, out});
    return p;
}

/* Maps of the tensor `t` (without its base) over two buffers of `bytes`: "in" with data, "out" with zeros. */
static void two_maps(const struct probe_io *io, struct simt_tensor t, const uint32_t *dim, const uint32_t *box, size_t bytes, const void *data, const void *zero, struct tensor_map *in,
                     struct tensor_map *out)
{
    memcpy(t.dim, dim, sizeof t.dim), memcpy(t.box, box, sizeof t.box);
    t.base = io->buffer(io->context, "in", bytes, data);
    io->map(io->context, in, &t);
    t.base = io->buffer(io->context, "out", bytes, zero);
    io->map(io->context, out, &t);
}

struct cluster_params {
    struct tensor_map in, out;
    uint32_t *words, *halves, *own;
    int32_t at[5];
};
static const struct {
    uint32_t dim[5], box[5];
    int32_t at[5];
} cluster_cases[5] = {{{100}, {64}, {40}}, {{20, 19}, {16, 4}, {8, 17}}, {{20, 7, 5}, {8, 4, 3}, {4, 5, 3}}, {{8, 5, 4, 3}, {4, 2, 2, 2}, {4, 4, 1, 2}}, {{8, 3, 3, 4, 2}, {4, 2, 2, 2, 2}, {4, 1, 2, 3, 1}}};

static struct probe cluster_probe(int rank, const struct probe_io *io, void *params)
{
    uint32_t box = 4, whole = 4;
    const int c = rank - 1;
    for (int d = 0; d < rank; d++) box *= cluster_cases[c].box[d], whole *= cluster_cases[c].dim[d];
    struct probe p = {.kernel = "probe_cluster", .arch = 900, .grid = 4, .block = 32, .cluster = 2, .shared_bytes = box + 3 * 128 + 32, .params_bytes = sizeof(struct cluster_params)};
    snprintf(p.name, sizeof p.name, "cluster, tensor map %dd", rank);
    snprintf(p.constants, sizeof p.constants, "RANK=%d BYTES=%u", rank, box);
    if (!io) return p;
    uint32_t *data = calloc(whole / 4 + box + 200, 4), *zero = calloc(whole / 4 + box + 200, 4);
    for (uint32_t k = 0; k < whole / 4; k++) data[k] = rnd32() | 1;
    struct cluster_params q = {0};
    two_maps(io, (struct simt_tensor){.rank = rank, .element_bytes = 4, .reduce = SIMT_REDUCE_ADD_U32}, cluster_cases[c].dim, cluster_cases[c].box, whole, data, zero, &q.in, &q.out);
    q.words = io->buffer(io->context, "words", 4 * (box + 16), zero);
    q.halves = io->buffer(io->context, "halves", 32, zero);
    q.own = io->buffer(io->context, "own", 512, zero);
    memcpy(q.at, cluster_cases[c].at, sizeof q.at);
    memcpy(params, &q, sizeof q);
    free(data), free(zero);
    return p;
}

/* ---- TMA
 * --------------------------------------------------------------------------------------------------------------------------
 */
struct tma_params {
    struct tensor_map in, out;
    uint8_t *image;
    int32_t from[5], to[5];
};
static const struct {
    int rank;
    uint32_t bytes, swizzle, dim[5], box[5];
    int32_t from[5], to[5];
} tma_cases[] = {
    {1, 4, 0, {100}, {64}, {60}, {52}},
    {2, 2, 0, {72, 19}, {32, 8}, {-5, 3}, {48, 14}},
    {2, 2, 32, {72, 19}, {16, 16}, {8, -3}, {8, 9}},
    {2, 2, 64, {72, 19}, {32, 16}, {60, 9}, {8, 1}},
    {2, 2, 128, {72, 19}, {64, 16}, {16, 0}, {0, 5}},
    {2, 1, 128, {144, 19}, {128, 16}, {20, 2}, {16, 5}},
    {3, 4, 128, {20, 7, 5}, {32, 4, 3}, {-8, 2, 3}, {4, 5, 3}},
    {4, 2, 64, {40, 5, 4, 3}, {32, 2, 2, 2}, {10, 4, -1, 2}, {0, 0, 3, 0}},
    {5, 2, 32, {24, 3, 3, 4, 2}, {16, 2, 2, 2, 2}, {4, 1, 2, 3, 0}, {8, 2, 0, 2, 1}},
};
enum { TMA_CASES = sizeof tma_cases / sizeof *tma_cases };

static struct probe tma_probe(int i, const struct probe_io *io, void *params)
{
    uint32_t box = tma_cases[i].bytes, whole = tma_cases[i].bytes;
    for (int d = 0; d < tma_cases[i].rank; d++) box *= tma_cases[i].box[d], whole *= tma_cases[i].dim[d];
    struct probe p = {.kernel = "probe_tma",
                      .grid = 1,
                      .block = 32,
                      .shared_bytes = box + 16,
                      .params_bytes = sizeof(struct tma_params)};
    snprintf(p.name, sizeof p.name, "tma %dd swizzle %u, %u-byte elements", tma_cases[i].rank,
             tma_cases[i].swizzle, tma_cases[i].bytes);
    snprintf(p.constants, sizeof p.constants, "RANK=%d BYTES=%u", tma_cases[i].rank, box);
    if (!io) return p;
    uint8_t *data = malloc(whole), *zero = calloc(1, box > whole ? box : whole);
    for (uint32_t k = 0; k < whole; k++) data[k] = (uint8_t)rnd(256);
    struct tma_params q = {0};
    two_maps(io, (struct simt_tensor){.rank = tma_cases[i].rank, .element_bytes = tma_cases[i].bytes, .swizzle = tma_cases[i].swizzle}, tma_cases[i].dim, tma_cases[i].box, whole, data, zero,
             &q.in, &q.out);
    q.image = io->buffer(io->context, "image", box, zero);
    memcpy(q.from, tma_cases[i].from, sizeof q.from);
    memcpy(q.to, tma_cases[i].to, sizeof q.to);
    memcpy(params, &q, sizeof q);
    free(data), free(zero);
    return p;
}

/* ---- the list
 * ------------------------------------------------------------------------------------------------------------------------
 */
static const uint32_t spans[SPANS] = {0, 32, 64, 128};
enum { WGMMA_PROBES = WGMMA_OPS * SPANS, WIDE_PROBES = 12, SINGLES = 11 };

int probes_count(void)
{
    return MMA_OPS + WGMMA_PROBES + WIDE_PROBES + TMA_CASES + SINGLES;
}

struct probe probes_get(int i, const struct probe_io *io, void *params)
{
    state = 977 + (uint64_t)i;
    if (i < MMA_OPS) return mma_probe(i, io, params);
    i -= MMA_OPS;
    if (i < WGMMA_PROBES) {
        int op = i / SPANS;
        uint32_t span = spans[i % SPANS];
        /* A sparse product reads 64 bytes of k: the narrower span cannot hold them. */
        if (wgmma_ops[op].sparse && span == 32) span = 128;
        return wgmma_probe(op, span,
                           wgmma_ops[op].trans        ? 64
                           : wgmma_ops[op].kind == S8 ? 48
                                                      : 40,
                           io, params);
    }
    i -= WGMMA_PROBES;
    /* Four of them: columns that fill their last atom in part, as attention_wgmma's values of heads of 80 and 96 do. */
    static const struct { int op; uint32_t span, n; } wide[WIDE_PROBES] = {{0, 64, 8}, {8, 64, 128}, {0, 64, 256}, {4, 128, 192}, {4, 128, 80}, {4, 128, 96}, {3, 64, 80},
                                                                           {15, 128, 40}, {16, 64, 40}, {17, 128, 40}, {18, 128, 64}, {19, 128, 40}};
    if (i < WIDE_PROBES) return wgmma_probe(wide[i].op, wide[i].span, wide[i].n, io, params);
    i -= WIDE_PROBES;
    if (i < TMA_CASES) return tma_probe(i, io, params);
    switch (i - TMA_CASES) {
    case 0: return matrix_probe(io, params);
    case 1: return convert_probe(io, params);
    case 2: return threads_probe(io, params);
    case 3: return math_probe(io, params);
    case 4: return sync_probe(io, params);
    case 5: return access_probe(io, params);
    default: return cluster_probe(i - TMA_CASES - 5, io, params);
    }
}
