/* tcgen05: dense and block-scaled products against a plain one, planted mistakes; multimem. */
#include "simt.h"
#include "simt_codes.h"
#include "test.h"

struct probe_tcgen05_params {
    const uint8_t *a, *b, *scales;
    const uint32_t *regs;
    uint32_t *d;
};
static const struct op {
    int op;
    enum simt_kind kind;
    int scale; /* bytes a word: 1 (32 of k, ue8m0), 2 (32, ue8m0), 4 (16, ue4m3) */
} ops[] = {{0, BF16, 0}, {1, BF16, 0}, {2, E4M3, 0}, {3, S8, 0}, {4, E4M3, 1}, {5, E2M1, 2}, {6, E2M1, 4}, {7, E4M3, 0}, {8, S8, 0}};
enum { N = 48 };

static uint64_t state = 11;
static uint32_t rnd(uint32_t n) { return simt_draw(&state, n); }
static uint32_t code_of(enum simt_kind k, double *value) { return simt_code(k, (int)rnd(9) - 4, value); }

/* Rows of 128 bytes in groups of 8, 16-byte chunks exchanged by the row: TMA's 128-byte swizzle. */
static void place(uint8_t *image, int row, int k, int bits, uint32_t code)
{
    int byte = k * bits / 8;
    uint8_t *p = image + row * 128 + ((byte / 16) ^ (row % 8)) * 16 + byte % 16;
    if (bits == 4)
        *p |= (uint8_t)(code << (4 * (k & 1)));
    else
        memcpy(p, &code, (size_t)bits / 8);
}

static struct simt_report run(const struct op *op, int mistake, uint64_t seed, int *wrong)
{
    int bits = simt_code_bits(op->kind), k = 256 / bits;
    static uint8_t ia[16384], ib[8192], scales[2][512];
    static uint32_t regs[128][8];
    static double a[128][64], b[64][N];
    memset(ia, 0, sizeof ia), memset(ib, 0, sizeof ib), memset(regs, 0, sizeof regs),
        memset(scales, 0, sizeof scales);
    for (int r = 0; r < 128; r++)
        for (int i = 0; i < k; i++) {
            uint32_t code = code_of(op->kind, &a[r][i]);
            place(ia, r, i, bits, code);
            regs[r][i * bits / 32] |= code << (i * bits % 32);
        }
    for (int n = 0; n < N; n++)
        for (int i = 0; i < k; i++) place(ib, n, i, bits, code_of(op->kind, &b[i][n]));
    for (int m = 0; op->scale && m < 2; m++)
        for (int r = 0; r < (m ? N : 128); r++)
            for (int s = 0; s < op->scale; s++) {
                int e = (int)rnd(4) - 1, block = op->scale == 4 ? 16 : 32;
                scales[m][r % 32 * 16 + r / 32 * 4 + s] = (uint8_t)(op->scale == 4 ? (7 + e) << 3 : 127 + e);
                for (int i = s * block; i < (s + 1) * block; i++)
                    if (m)
                        b[i][r] = ldexp(b[i][r], e);
                    else
                        a[r][i] = ldexp(a[r][i], e);
            }
    char constants[100];
    snprintf(constants, sizeof constants, "ROSE_ARCH=1000 OP=%d N=%d MISTAKE=%d", op->op, N, mistake);
    struct probe_tcgen05_params p = {simt_constant("a", sizeof ia, ia), simt_constant("b", sizeof ib, ib),
                                     simt_constant("scales", sizeof scales, scales),
                                     simt_constant("regs", sizeof regs, regs),
                                     simt_buffer("d", 128 * N * 4, NULL)};
    struct simt_report rep =
        simt_launch(&(struct simt_launch){.kernel = simt_kernel("tests/simt/kernels/cuda/probe_tcgen05.cu",
                                                                "probe_tcgen05", constants),
                                          .block = {128},
                                          .shared_bytes = 16384 + 8192 + 1024 + 64,
                                          .seed = seed},
                    &p);
    *wrong = 0;
    for (int r = 0; r < 128 && !rep.fault; r++)
        for (int n = 0; n < N; n++) {
            uint32_t raw = p.d[r * N + n];
            float f;
            double want = 0;
            for (int i = 0; i < k; i++) want += 2 * a[r][i] * b[i][n];
            memcpy(&f, &raw, 4);
            double got = op->kind == S8 ? (double)(int32_t)raw : (double)f;
            if (got != want && !(*wrong)++)
                fprintf(stderr, "op %d row %d column %d: %g, expected %g\n", op->op, r, n, got, want);
        }
    simt_reset();
    return rep;
}

TEST(products)
{
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            int wrong;
            struct simt_report r = run(&ops[o], 0, seed, &wrong);
            CHECK_SIMT_CLEAN(r);
            CHECK_INT(wrong, 0);
        }
}

TEST(mistakes)
{
    static const enum simt_fault want[] = {SIMT_CLEAN,  SIMT_PROXY,     SIMT_DEADLOCK, SIMT_IN_FLIGHT,
                                           SIMT_MISUSE, SIMT_IN_FLIGHT, SIMT_RESOURCE};
    for (int m = 1; m <= 6; m++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            int wrong;
            struct simt_report r = run(&ops[m == 5 ? 1 : 0], m, seed, &wrong);
            /* Without the wait the product may not have been issued, or its results be there without anybody
             * saying so. */
            if (m == 3 && (r.fault == SIMT_RACE || r.fault == SIMT_UNWRITTEN)) continue;
            CHECK_SIMT(r, want[m]);
        }
}

struct multimem_params {
    const void *sum_of, *add_to;
    void *out;
    uint32_t *flag;
    const void *floats, *store;
    void *float_sums;
};

TEST(multimem)
{
    const struct simt_kernel *k =
        simt_kernel("tests/simt/kernels/cuda/probe_multimem.cu", "probe_multimem", "ROSE_ARCH=900");
    void *x[3], *y[3], *f[3], *floats[3], *stored[3];
    for (int g = 0; g < 3; g++) {
        uint16_t in[256]; /* bf16 whole numbers */
        for (int i = 0; i < 256; i++) {
            float v = (float)((i + g) % 17 - 8);
            uint32_t u;
            memcpy(&u, &v, 4);
            in[i] = (uint16_t)(u >> 16);
        }
        float zero[128] = {0}, some[128];
        uint32_t flag = 0;
        for (int i = 0; i < 128; i++) some[i] = (float)(i * (g + 1)) * 0.25f;
        floats[g] = simt_buffer("floats", sizeof some, some);
        stored[g] = simt_buffer("stored", sizeof some, NULL);
        x[g] = simt_buffer("x", sizeof in, in);
        y[g] = simt_buffer("y", sizeof zero, zero);
        f[g] = simt_buffer("flag", 4, &flag);
    }
    struct multimem_params p = {simt_multimem(x, 3, 512), simt_multimem(y, 3, 512),
                                simt_buffer("out", 512, NULL), simt_multimem(f, 3, 4), simt_multimem(floats, 3, 512), simt_multimem(stored, 3, 512),
                                simt_buffer("float sums", 512, NULL)};
    struct simt_report r = simt_launch(&(struct simt_launch){.kernel = k, .block = {32}, .seed = 1}, &p);
    CHECK_SIMT_CLEAN(r);
    for (int i = 0; i < 256; i++) {
        float want = 0, got;
        for (int g = 0; g < 3; g++) want += (float)((i + g) % 17 - 8);
        uint32_t u = (uint32_t)((const uint16_t *)p.out)[i] << 16;
        memcpy(&got, &u, 4);
        CHECK_NEAR(got, want, 0);
    }
    for (int g = 0; g < 3; g++) {
        for (int i = 0; i < 128; i++) CHECK_NEAR(((float *)y[g])[i], i, 0);
        for (int i = 0; i < 128; i++) CHECK_NEAR(((const float *)p.float_sums)[i], i * 1.5, 0);
        CHECK(!memcmp(stored[g], p.float_sums, 512));
        CHECK_INT(*(uint32_t *)f[g], 32);
    }
    /* An ordinary access to a multicast address is refused. */
    k = simt_kernel("tests/simt/kernels/cuda/probe_multimem.cu", "probe_multimem", "ROSE_ARCH=900 MISTAKE=1");
    r = simt_launch(&(struct simt_launch){.kernel = k, .block = {32}, .seed = 1}, &p);
    CHECK_SIMT(r, SIMT_BOUNDS);
    simt_reset();
}

TEST_MAIN(CASE(products), CASE(mistakes), CASE(multimem))
