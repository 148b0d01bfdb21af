/* Matrix instructions of a warp: fragments packed from whole matrices by the documented layout, against a
 * plain product; ldmatrix and stmatrix. Values are small, so the results are exact. */
#include "simt.h"
#include "simt_codes.h"
#include "test.h"

struct probe_mma_params {
    const uint32_t *in;
    uint32_t *out;
};

struct op {
    int op, arch;
    const char *name;
    enum simt_kind a, b;
    int sparse, selector; /* 0, 1 */
    int scale;            /* bytes a scale register holds; 0: none */
};
static const struct op ops[] = {
    {0, 800, "mma_bf16", BF16, BF16, 0, 0, 0},
    {1, 800, "mma_f16", F16, F16, 0, 0, 0},
    {2, 800, "mma_s8", S8, S8, 0, 0, 0},
    {3, 900, "mma_sp_bf16/0", BF16, BF16, 1, 0, 0},
    {4, 900, "mma_sp_bf16/1", BF16, BF16, 1, 1, 0},
    {5, 800, "mma_sp_f16", F16, F16, 1, 0, 0},
    {6, 800, "mma_sp_s8", S8, S8, 1, 0, 0},
    {7, 890, "mma_e4m3", E4M3, E4M3, 0, 0, 0},
    {8, 900, "mma_e5m2", E5M2, E5M2, 0, 0, 0},
    {9, 900, "mma_sp_e4m3", E4M3, E4M3, 1, 0, 0},
    {10, 1200, "mma_nvf4", E2M1, E2M1, 0, 0, 4},
    {11, 1200, "mma_mxf4", E2M1, E2M1, 0, 0, 2},
    {12, 1200, "mma_sp_nvf4", E2M1, E2M1, 1, 0, 4},
    {13, 1200, "mma_sp_mxf4", E2M1, E2M1, 1, 0, 2},
    {14, 890, "mma_e4m3_e5m2", E4M3, E5M2, 0, 0, 0},
    {15, 890, "mma_e5m2_e4m3", E5M2, E4M3, 0, 0, 0},
    {16, 900, "mma_sp_e5m2", E5M2, E5M2, 1, 0, 0},
};

static uint64_t state = 7;
static uint32_t rnd(uint32_t n) { return simt_draw(&state, n); }

/* A random code, and its value: of int8 any there is. */
static uint32_t code_of(enum simt_kind k, double *value)
{
    if (k != S8) return simt_code(k, (int)rnd(9) - 4, value);
    *value = (int)rnd(256) - 128;
    return (uint32_t)(int)*value & 0xff;
}

static void put(uint32_t *reg, int bits, int slot, uint32_t code)
{
    *reg |= code << (bits * slot);
}

TEST(mma)
{
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        const struct op *op = &ops[o];
        int bits = simt_code_bits(op->a), per = 32 / bits, held = 8 * per, k = op->sparse ? 2 * held : held;
        uint32_t in[32][20] = {{0}};
        static double a[16][128], b[128][8];
        double c[16][8];
        memset(a, 0, sizeof a);
        int unit = op->a == E2M1 ? 2 : 1, groups = k / (4 * unit);
        for (int r = 0; r < 16; r++) {
            int at = 0; /* in the held elements of the row */
            for (int g = 0; g < (op->sparse ? groups : held); g++) {
                int first = op->sparse ? (int)rnd(3) : 0,
                    second = op->sparse ? first + 1 + (int)rnd((uint32_t)(3 - first)) : 0;
                for (int i = 0; i < (op->sparse ? 2 : 1); i++)
                    for (int e = 0; e < (op->sparse ? unit : 1); e++, at++) {
                        double v;
                        uint32_t code = code_of(op->a, &v);
                        int full = op->sparse ? (4 * g + (i ? second : first)) * unit + e : at;
                        a[r][full] = v;
                        /* register r/8 + 2 * (upper half of k), lane 4 * (row % 8) + which quarter */
                        put(&in[4 * (r % 8) + at / per % 4][r / 8 + 2 * (at / (4 * per))], bits, at % per,
                            code);
                    }
                if (!op->sparse) continue;
                uint32_t nibble = (uint32_t)(first | second << 2);
                if (bits == 16)
                    in[4 * (r % 8) + 2 * op->selector + g / 4][8] |= nibble << (16 * (r / 8) + 4 * (g % 4));
                else
                    in[4 * (r % 8) + r / 8 + 2 * (g / 8)][8] |= nibble << (4 * (g % 8));
            }
        }
        for (int i = 0; i < k; i++)
            for (int n = 0; n < 8; n++)
                put(&in[4 * n + i / per % 4][4 + i / (4 * per)], bits, i % per, code_of(op->b, &b[i][n]));
        /* Scales 1, 2, 4, .5: as ue4m3 or ue8m0. */
        for (int r = 0; op->scale && r < 24; r++)
            for (int s = 0; s < op->scale; s++) {
                int e = (int)rnd(4) - 1;
                uint32_t code = op->scale == 4 ? (uint32_t)(7 + e) << 3 : (uint32_t)(127 + e);
                int block = k / op->scale;
                for (int i = s * block; i < (s + 1) * block; i++)
                    if (r < 16)
                        a[r][i] = ldexp(a[r][i], e);
                    else
                        b[i][r - 16] = ldexp(b[i][r - 16], e);
                if (r < 16)
                    in[4 * (r % 8) + r / 8][9] |= code << (8 * s);
                else
                    in[4 * (r - 16)][10] |= code << (8 * s);
            }
        for (int r = 0; r < 16; r++)
            for (int n = 0; n < 8; n++) {
                int lane = 4 * (r % 8) + n / 2, e = n % 2 + 2 * (r / 8);
                int v = (int)rnd(100);
                float f = (float)v;
                c[r][n] = v;
                for (int i = 0; i < k; i++) c[r][n] += a[r][i] * b[i][n];
                if (op->a == S8)
                    in[lane][12 + e] = (uint32_t)v;
                else
                    memcpy(&in[lane][12 + e], &f, 4);
            }
        char constants[60];
        snprintf(constants, sizeof constants, "ROSE_ARCH=%d OP=%d", op->arch, op->op);
        const struct simt_kernel *kernel =
            simt_kernel("tests/simt/kernels/cuda/probe_mma.cu", "probe_mma", constants);
        struct probe_mma_params p = {simt_buffer("in", sizeof in, in), simt_buffer("out", 512, NULL)};
        struct simt_report rep =
            simt_launch(&(struct simt_launch){.kernel = kernel, .block = {32}, .seed = o}, &p);
        CHECK_SIMT_CLEAN(rep);
        for (int r = 0; r < 16 && !rep.fault; r++)
            for (int n = 0; n < 8; n++) {
                uint32_t raw = p.out[4 * (4 * (r % 8) + n / 2) + n % 2 + 2 * (r / 8)];
                float f;
                memcpy(&f, &raw, 4);
                double got = op->a == S8 ? (double)(int32_t)raw : (double)f;
                if (got != c[r][n]) fprintf(stderr, "%s row %d column %d\n", op->name, r, n);
                CHECK_NEAR(got, c[r][n], 0);
            }
        simt_reset();
    }
}

struct probe_matrix_params {
    const uint16_t *in; /* 32 rows of 8 */
    uint32_t *out; /* [4 operations][32 lanes][4], then what stmatrix wrote: 2 times 32 rows of 8 halves, 2 times 16, 2 times 8 */
};

TEST(ldmatrix_stmatrix)
{
    const struct simt_kernel *k =
        simt_kernel("tests/simt/kernels/cuda/probe_matrix.cu", "probe_matrix", "ROSE_ARCH=900");
    uint16_t in[256];
    for (int i = 0; i < 256; i++) in[i] = (uint16_t)(i * 5 + 1);
    struct probe_matrix_params p = {simt_buffer("in", sizeof in, in),
                                    simt_buffer("out", 4 * (512 + 256 + 192), NULL)};
    struct simt_report r =
        simt_launch(&(struct simt_launch){.kernel = k, .block = {32}, .shared_bytes = 2304}, &p);
    CHECK_SIMT_CLEAN(r);
    const uint32_t *o = p.out;
    for (int l = 0; l < 32; l++)
        for (int t = 0; t < 4; t++)
            for (int e = 0; e < 2; e++) {
                int i = l / 4, j = 2 * (l % 4) + e;
                uint16_t plain = in[64 * t + 8 * i + j], trans = in[64 * t + 8 * j + i];
                CHECK_INT(o[l * 4 + t] >> (16 * e) & 0xffff, plain);
                CHECK_INT(o[128 + l * 4 + t] >> (16 * e) & 0xffff, trans);
                if (t < 2) CHECK_INT(o[256 + l * 4 + t] >> (16 * e) & 0xffff, trans);
                if (t < 1) CHECK_INT(o[384 + l * 4] >> (16 * e) & 0xffff, plain);
                if (t < 1) CHECK_INT(o[384 + l * 4 + 1] >> (16 * e) & 0xffff, trans);
                if (t < 2) CHECK_INT(o[384 + l * 4 + 2 + t] >> (16 * e) & 0xffff, plain);
            }
    /* stmatrix of what ldmatrix read gives the rows back, plain and transposed twice. */
    CHECK(!memcmp(o + 512, in, sizeof in));
    CHECK(!memcmp(o + 640, in, sizeof in));
    for (int half = 0; half < 2; half++) CHECK(!memcmp(o + 768 + 64 * half, in, 256) && !memcmp(o + 896 + 32 * half, in, 128));
    simt_reset();
}

TEST_MAIN(CASE(mma), CASE(ldmatrix_stmatrix))
