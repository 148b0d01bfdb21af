/* wgmma: operands packed from whole matrices into the documented shared and register layouts, against a plain
 * product. */
#include "simt_codes.h"
#include "simt_internal.h"
#include "test.h"

struct probe_wgmma_params {
    const uint8_t *a, *b;
    const uint32_t *regs;
    uint32_t *d;
    uint32_t a_leading, a_stride, a_span;
    uint32_t b_leading, b_stride, b_span;
    uint32_t accumulate;
};

struct op {
    int op;
    enum simt_kind kind;
    int registers, trans, sparse, selector, chain;
};
static const struct op ops[] = {
    {0, BF16, 0, 0, 0, 0, 0}, {1, BF16, 1, 0, 0, 0, 0},  {2, F16, 0, 0, 0, 0, 0},   {3, BF16, 0, 1, 0, 0, 0},
    {4, BF16, 1, 1, 0, 0, 0}, {5, E4M3, 0, 0, 0, 0, 0},  {6, E5M2, 1, 0, 0, 0, 0},  {7, BF16, 0, 0, 1, 0, 0},
    {8, BF16, 1, 0, 1, 1, 0}, {9, E4M3, 1, 0, 1, 0, 0},  {10, S8, 0, 0, 0, 0, 0},   {11, S8, 1, 0, 0, 0, 0},
    {12, S8, 1, 0, 1, 0, 0},  {13, E4M3, 0, 0, 1, 0, 0}, {14, BF16, 0, 0, 0, 0, 1},
    {15, E4M3, 1, 0, 0, 0, 0}, {16, E5M2, 0, 0, 0, 0, 0}, {17, F16, 1, 0, 0, 0, 0}, {18, F16, 1, 1, 0, 0, 0}, {19, F16, 1, 0, 1, 0, 0},
};
enum { MAX_N = 64, A_BYTES = 8192, B_BYTES = 8192 };

static uint64_t state = 3;
static uint32_t rnd(uint32_t n) { return simt_draw(&state, n); }
static uint32_t code_of(enum simt_kind k, double *value) { return simt_code(k, (int)rnd(9) - 4, value); }

/* Where an element goes in an operand image whose start is 1024-aligned: rows of `span` bytes in groups of 8,
 * the 16-byte chunk index exchanged by the row within the group as TMA does; span 0: 8 x 16-byte cores. */
static uint32_t image_at(int span, int trans, int extent, int mn, int k, int bytes)
{
    int outer = trans ? k : mn,
        inner = (trans ? mn : k) * bytes; /* inner runs along the contiguous dimension */
    if (!span) {
        int cores_outer = (extent + 7) / 8; /* cores along the outer dimension come first */
        return (uint32_t)((inner / 16 * cores_outer + outer / 8) * 128 + outer % 8 * 16 + inner % 16);
    }
    int atoms_outer = (extent + 7) / 8; /* atoms of 8 outer rows x span bytes */
    int chunk = inner % span / 16, row = outer % 8, shift = span == 128 ? 1 : span == 64 ? 2 : 4;
    chunk ^= row / shift;
    return (uint32_t)((inner / span * atoms_outer + outer / 8) * 8 * span + row * span + chunk * 16 +
                      inner % 16);
}

static void leading_stride(int span, int trans, int extent, uint32_t *leading, uint32_t *stride)
{
    uint32_t atoms = (uint32_t)(extent + 7) / 8;
    if (span) { /* K-major: atoms along mn; MN-major: along mn (leading) and along k (stride) */
        *stride = 8 * (uint32_t)span;
        *leading = trans ? atoms * 8 * (uint32_t)span : 16;
    } else if (!trans)
        *leading = atoms * 128, *stride = 128;
    else
        *stride = atoms * 128, *leading = 128;
}

static struct simt_report run(const struct op *op, int N, int span, int accumulate, int mistake,
                              uint64_t seed, int *wrong)
{
    int bits = op->kind == BF16 || op->kind == F16 ? 16 : 8, per = 32 / bits, held = 8 * per,
        k = op->sparse ? 2 * held : held;
    static uint8_t ia[A_BYTES], ib[B_BYTES];
    static uint32_t regs[128][5], d[128 * MAX_N / 2];
    static double a[64][64], b[64][MAX_N], c[64][MAX_N];
    memset(ia, 0, sizeof ia), memset(ib, 0, sizeof ib), memset(regs, 0, sizeof regs), memset(a, 0, sizeof a);
    for (int r = 0; r < 64; r++) {
        int at = 0, w = r / 16, q = r % 16;
        for (int g = 0; g < (op->sparse ? k / 4 : held); g++) {
            int first = op->sparse ? (int)rnd(3) : 0,
                second = op->sparse ? first + 1 + (int)rnd((uint32_t)(3 - first)) : 0;
            for (int i = 0; i < (op->sparse ? 2 : 1); i++, at++) {
                double v;
                uint32_t code = code_of(op->kind, &v);
                a[r][op->sparse ? 4 * g + (i ? second : first) : at] = v;
                memcpy(ia + image_at(span, op->trans, op->trans ? held : 64, r, at, bits / 8), &code,
                       (size_t)bits / 8);
                regs[32 * w + 4 * (q % 8) + at / per % 4][q / 8 + 2 * (at / (4 * per))] |=
                    code << (bits * (at % per));
            }
            uint32_t nibble = (uint32_t)(first | second << 2);
            if (op->sparse && bits == 16)
                regs[32 * w + 4 * (q % 8) + 2 * op->selector + g / 4][4] |= nibble
                                                                            << (16 * (q / 8) + 4 * (g % 4));
            else if (op->sparse)
                regs[32 * w + 4 * (q % 8) + q / 8 + 2 * (g / 8)][4] |= nibble << (4 * (g % 8));
        }
    }
    for (int i = 0; i < k; i++)
        for (int n = 0; n < N; n++) {
            uint32_t code = code_of(op->kind, &b[i][n]);
            memcpy(ib + image_at(span, op->trans, op->trans ? k : N, n, i, bits / 8), &code,
                   (size_t)bits / 8);
        }
    for (int r = 0; r < 64; r++)
        for (int n = 0; n < N; n++) {
            int thread = 32 * (r / 16) + 4 * (r % 8) + n % 8 / 2, e = 4 * (n / 8) + 2 * (r % 16 / 8) + n % 2,
                v = (int)rnd(50);
            float f = (float)v;
            c[r][n] = accumulate ? v : 0;
            for (int i = 0; i < k; i++) c[r][n] += (op->chain ? 2 : 1) * a[r][i] * b[i][n];
            if (op->kind == S8)
                d[thread * N / 2 + e] = (uint32_t)v;
            else
                memcpy(&d[thread * N / 2 + e], &f, 4);
        }
    char constants[120];
    snprintf(constants, sizeof constants, "ROSE_ARCH=900 OP=%d N=%d A_BYTES=%d B_BYTES=%d MISTAKE=%d", op->op,
             N, A_BYTES, B_BYTES, mistake);
    struct probe_wgmma_params p = {.a = simt_constant("a", sizeof ia, ia),
                                   .b = simt_constant("b", sizeof ib, ib),
                                   .regs = simt_constant("regs", sizeof regs, regs),
                                   .d = simt_buffer("d", (size_t)(128 * N / 2 * 4), d),
                                   .a_span = (uint32_t)span,
                                   .b_span = (uint32_t)span,
                                   .accumulate = (uint32_t)accumulate};
    leading_stride(span, op->trans, op->trans ? held : 64, &p.a_leading, &p.a_stride);
    leading_stride(span, op->trans, op->trans ? k : N, &p.b_leading, &p.b_stride);
    struct simt_report rep =
        simt_launch(&(struct simt_launch){.kernel = simt_kernel("tests/simt/kernels/cuda/probe_wgmma.cu",
                                                                "probe_wgmma", constants),
                                          .block = {128},
                                          .shared_bytes = A_BYTES + B_BYTES,
                                          .seed = seed},
                    &p);
    *wrong = 0;
    for (int r = 0; r < 64 && !rep.fault; r++)
        for (int n = 0; n < N; n++) {
            uint32_t raw = p.d[(32 * (r / 16) + 4 * (r % 8) + n % 8 / 2) * N / 2 + 4 * (n / 8) +
                               2 * (r % 16 / 8) + n % 2];
            float f;
            memcpy(&f, &raw, 4);
            double got = op->kind == S8 ? (double)(int32_t)raw : (double)f;
            if (got != c[r][n] && !(*wrong)++ && !mistake)
                fprintf(stderr, "op %d span %d row %d column %d: %g, expected %g\n", op->op, span, r, n, got,
                        c[r][n]);
        }
    simt_reset();
    return rep;
}

TEST(products)
{
    static const int spans[] = {0, 32, 64, 128};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int s = 0; s < 4; s++) {
            /* MN-major: the columns are the contiguous extent and must fill swizzle rows. */
            int n = ops[o].trans ? 64 : ops[o].kind == S8 ? 48 : 40;
            int bytes = ops[o].sparse ? 64 : 32; /* of k */
            if (!ops[o].trans && spans[s] && spans[s] < bytes) continue;
            if (ops[o].op > 14 && spans[s] != 128) continue; /* the same operands as others' */
            int wrong;
            struct simt_report r = run(&ops[o], n, spans[s], (int)(o + (size_t)s) % 2, 0, o, &wrong);
            CHECK_SIMT_CLEAN(r);
            CHECK_INT(wrong, 0);
        }
}

TEST(mistakes)
{
    static const enum simt_fault want[] = {SIMT_CLEAN, SIMT_PROXY, SIMT_RACE, SIMT_MISUSE,
                                           SIMT_RACE,  SIMT_CLEAN, SIMT_CLEAN};
    for (int m = 0; m <= 6; m++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            int wrong;
            struct simt_report r = run(&ops[0], 40, 128, 1, m, seed, &wrong);
            if (m == 2 && r.fault == SIMT_UNWRITTEN) continue; /* the operand was not there yet */
            CHECK_SIMT(r, want[m]);
            /* Results taken before the wait are NaN; 5 takes one and is overwritten by the right one later.
             */
            CHECK((m == 6) == (wrong > 0) || r.fault);
        }
}

/* Sums by hand: a term's bits below the largest one's 13th are lost, and a result keeps 13 bits, both towards zero. That this is what the GPU does
 * was seen in op_cases_fp8's values on an H200: equal bit by bit. */
static float fp8_sum(int k, const double *a, const double *weights, float d)
{
    static double b[SIMT_K_MAX][256];
    static int exponents[SIMT_K_MAX][256];
    for (int i = 0; i < k; i++) b[i][0] = weights[i], exponents[i][0] = simt_fp8_exponent(SIMT_E4M3, weights[i]);
    simt_fp8_row(SIMT_E4M3, a, b, exponents, k, 1, &d);
    return d;
}

TEST(fp8_sums)
{
    CHECK(fp8_sum(2, (double[]){256, 1}, (double[]){256, 7}, 0) == 65536); /* 2^16 keeps multiples of 8 */
    CHECK(fp8_sum(2, (double[]){256, 1}, (double[]){256, 9}, 0) == 65544);
    CHECK(fp8_sum(2, (double[]){256, -1}, (double[]){256, 9}, 0) == 65528);
    CHECK(fp8_sum(3, (double[]){256, 256, 1}, (double[]){256, 256, 8}, 0) == 131072); /* it fits before the sum, not after it */
    CHECK(fp8_sum(1, (double[]){1}, (double[]){1}, 16384) == 16384); /* the sum so far counts too: multiples of 2 */
    CHECK(fp8_sum(1, (double[]){1}, (double[]){1}, 8192) == 8193);
    CHECK(fp8_sum(2, (double[]){0, 0.001953125}, (double[]){448, 1}, 0) == 0.001953125f); /* nothing beside the least subnormal */
    CHECK(fp8_sum(2, (double[]){0, 0}, (double[]){1, 2}, 0) == 0);
}

TEST_MAIN(CASE(products), CASE(fp8_sums), CASE(mistakes))
