/* The CPU products of every weight format, on every instruction set of this machine, against a float64
 * reference over decoded weights (and, for block formats, activations quantised as matmul.h states). */
#include <math.h>

#include "base/worker.h"
#include "kernels/cpu/matmul.h"
#include "tensor/extent.h"
#include "weights_random.h"
#include "test.h"

enum { GUARD = 24 };

static bool block_format(enum dtype d)
{
    return d != DTYPE_F32 && d != DTYPE_F16 && d != DTYPE_BF16;
}

/* One int8 plane of x as the integer path sees it, in double; written from the definition in matmul.h. */
static void plane(const float *x, int k, double *out)
{
    for (int b = 0; b < k; b += 32) {
        float most = 0;
        for (int i = b; i < b + 32 && i < k; i++) most = fmaxf(most, fabsf(x[i]));
        float s = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0;
        for (int i = b; i < b + 32 && i < k; i++) out[i] = (double)rintf(x[i] * inverse) * (double)s;
    }
}

/* Two planes: what the first leaves, in float32, is the second's x. */
static void quantized(const float *x, int k, int planes, double *out)
{
    plane(x, k, out);
    if (planes == 1) return;
    float *rest = malloc((size_t)k * sizeof *rest);
    double *second = malloc((size_t)k * sizeof *second);
    for (int i = 0; i < k; i++) rest[i] = x[i] - (float)out[i];
    plane(rest, k, second);
    for (int i = 0; i < k; i++) out[i] += second[i];
    free(rest);
    free(second);
}

struct product {
    enum dtype dtype;
    int n, k, rows;
    float *x, *bias;
    void *source, *packed;
    struct cpu_weight weight;
    double *want, *size; /* [rows, n]: the sum, and the sum of magnitudes */
};

/* want and size of what x is now. */
static void product_reference(struct product *p, int planes)
{
    size_t nn = (size_t)p->n, kk = (size_t)p->k;
    float *w = malloc(nn * kk * sizeof(float));
    double *q = malloc(kk * sizeof(double));
    dtype_decode(p->dtype, p->source, w, nn * kk);
    for (size_t r = 0; r < (size_t)p->rows; r++) {
        for (size_t i = 0; i < kk; i++) q[i] = (double)p->x[r * kk + i];
        if (block_format(p->dtype)) quantized(p->x + r * kk, p->k, planes, q);
        for (size_t o = 0; o < nn; o++) {
            double want = 0, size = 0;
            for (size_t i = 0; i < kk; i++) {
                double v = q[i] * (double)w[o * kk + i];
                want += v, size += fabs(v);
            }
            p->want[r * nn + o] = want, p->size[r * nn + o] = size;
        }
    }
    free(w);
    free(q);
}

static struct product product_make_planes(enum dtype dtype, int n, int k, int rows, int planes)
{
    struct product p = {.dtype = dtype, .n = n, .k = k, .rows = rows};
    size_t nn = (size_t)n, kk = (size_t)k, rr = (size_t)rows;
    p.x = malloc(rr * kk * sizeof(float));
    p.bias = malloc(nn * sizeof(float));
    for (size_t i = 0; i < rr * kk; i++) p.x[i] = random_float() * (i % 97 == 0 ? 8.0f : 1.0f);
    for (size_t i = 0; i < nn; i++) p.bias[i] = random_float();
    p.source = random_weights(dtype, nn, kk);
    CHECK(cpu_weight_init(dtype, n, k, NULL, &p.weight));
    p.packed = aligned_alloc(64, cpu_weight_bytes(&p.weight));
    memset(p.packed, 0xA5, cpu_weight_bytes(&p.weight));
    size_t groups = cpu_weight_groups(&p.weight), half = groups / 2; /* in two pieces, as two workers would */
    cpu_weight_pack(&p.weight, dtype, p.source, p.packed, half, groups);
    cpu_weight_pack(&p.weight, dtype, p.source, p.packed, 0, half);
    p.weight.data = p.packed;
    p.want = malloc(rr * nn * sizeof(double));
    p.size = malloc(rr * nn * sizeof(double));
    product_reference(&p, planes);
    return p;
}

/* As determinism and few rows have it: two planes. */
static struct product product_make(enum dtype dtype, int n, int k, int rows) { return product_make_planes(dtype, n, k, rows, 2); }

static void product_free(struct product *p)
{
    free(p->x), free(p->bias), free(p->source), free(p->packed), free(p->want), free(p->size);
}

static void run_team(void *arg, struct worker *w)
{
    const void *const *a = arg;
    matmul_run(a[0], a[1], w);
}

/* y [rows, n] (malloc'ed) of the first `rows` rows with a team of `threads`; y and work memory are poisoned
 * and guarded. */
static float *product_run_seqs(const struct product *p, int rows, int threads, bool deterministic, int seqs)
{
    struct workers *team;
    struct rose_error err = {0};
    CHECK_OK(workers_open(threads, 1, false, &team, &err), err);
    int stride = p->n + 3;
    size_t floats = (size_t)rows * (size_t)stride + 2 * GUARD;
    float *y = malloc(floats * sizeof *y), *out = malloc((size_t)rows * (size_t)p->n * sizeof *out);
    memset(y, 0xFF, floats * sizeof *y); /* NaN */
    struct matmul_params params = {.x = p->x,
                                   .parts = 1,
                                   .x_stride = p->k,
                                   .max_rows = rows,
                                   .rows_extent = EXTENT_ROWS,
                                   .alpha = 1,
                                   .deterministic = deterministic};
    params.part[0] = (struct matmul_part){p->weight, y + GUARD, NULL, stride};
    size_t bytes = matmul_plan(&params, threads);
    params.work = malloc(bytes);
    memset(params.work, 0xFF, bytes);
    struct extents e = {{1, rows, seqs, 1}};
    workers_run(team, run_team, (const void *[]){&params, &e});
    workers_close(team);
    uint32_t poison = 0xFFFFFFFFu;
    for (int i = 0; i < GUARD; i++)
        CHECK(!memcmp(&y[i], &poison, 4) && !memcmp(&y[floats - 1 - (size_t)i], &poison, 4));
    for (int r = 0; r < rows; r++) {
        const float *row = y + GUARD + (size_t)r * (size_t)stride;
        for (int i = p->n; i < stride && r + 1 < rows; i++) CHECK(!memcmp(&row[i], &poison, 4));
        memcpy(out + (size_t)r * (size_t)p->n, row, (size_t)p->n * sizeof *out);
    }
    free(params.work);
    free(y);
    return out;
}

static float *product_run(const struct product *p, int rows, int threads, bool deterministic)
{
    return product_run_seqs(p, rows, threads, deterministic, 1);
}

/* Largest error against the reference relative to the sum of magnitudes. */
static double product_error(const struct product *p, const float *y, int rows)
{
    double worst = 0;
    for (size_t i = 0; i < (size_t)rows * (size_t)p->n; i++) {
        double e = fabs((double)y[i] - p->want[i]) / (p->size[i] + 1e-30);
        if (!(e <= worst)) worst = e == e ? e : 1e30;
    }
    return worst;
}

/* The same against the sums of unrounded activations. */
static double product_error_float(const struct product *p, const float *y, int rows)
{
    size_t n = (size_t)p->n, k = (size_t)p->k;
    float *w = malloc(n * k * sizeof(float));
    dtype_decode(p->dtype, p->source, w, n * k);
    double worst = 0;
    for (size_t r = 0; r < (size_t)rows; r += 5)
        for (size_t o = 0; o < n; o++) {
            double want = 0, size = 1e-30;
            for (size_t i = 0; i < k; i++) {
                double v = (double)p->x[r * k + i] * (double)w[o * k + i];
                want += v, size += fabs(v);
            }
            double e = fabs((double)y[r * n + o] - want) / size;
            if (!(e <= worst)) worst = e == e ? e : 1e30;
        }
    free(w);
    return worst;
}

static size_t y_bytes(const struct product *p, int rows)
{
    return (size_t)rows * (size_t)p->n * sizeof(float);
}

/* Shapes: n not whole groups; k one block, odd numbers of blocks, and for plain formats any number. */
static int shape_k(enum dtype d, int which)
{
    static const int plain[3] = {5, 100, 257}, blocks[3] = {32, 96, 352};
    if (dtype_info(d)->block == 256) return 256 * (which + 1);
    return block_format(d) ? blocks[which] : plain[which];
}

TEST(rows_read_back)
{
    for (int d = 0; d < WEIGHT_DTYPES; d++)
        for (int which = 0; which < 3; which++) {
            int k = shape_k(weight_dtypes[d], which), n = which == 0 ? 1 : 37;
            struct product p = product_make(weight_dtypes[d], n, k, 1);
            float *want = malloc((size_t)n * (size_t)k * 4), *got = malloc((size_t)k * 4);
            dtype_decode(p.dtype, p.source, want, (size_t)n * (size_t)k);
            int wrong = 0;
            for (int r = 0; r < n; r++) {
                cpu_weight_row(&p.weight, r, got);
                for (int i = 0; i < k; i++) wrong += !(got[i] == want[r * k + i]);
            }
            if (wrong) fprintf(stderr, "%s [%d, %d]: ", dtype_info(p.dtype)->name, n, k);
            CHECK_INT(wrong, 0);
            free(want), free(got);
            product_free(&p);
        }
}

/* Every format on every instruction set against the reference, with equal bits where they are promised. */
TEST(formats)
{
    struct rose_error err = {0};
    for (int d = 0; d < WEIGHT_DTYPES; d++)
        for (int which = 0; which < 3; which++) {
            enum { ROWS = 31 }; /* tiles of 16, 8, 4, 2 and 1 */
            struct product p = product_make(weight_dtypes[d], 37, shape_k(weight_dtypes[d], which), ROWS);
            float *first = NULL;
            for (int isa = CPU_ISA_PORTABLE; isa < CPU_ISA_COUNT && cpu_isa_available((enum cpu_isa)isa);
                 isa++) {
                CHECK_OK(cpu_isa_select(cpu_isa_name((enum cpu_isa)isa), &err), err);
                float *y = product_run(&p, ROWS, 1, true);
                double e = product_error(&p, y, ROWS);
                if (!(e < 2e-6))
                    fprintf(stderr, "%s k %d on %s: error %g\n", dtype_info(p.dtype)->name, p.k,
                            cpu_isa_name((enum cpu_isa)isa), e);
                CHECK(e < 2e-6);
                if (first && (block_format(p.dtype) || isa > CPU_ISA_AVX2) &&
                    memcmp(first, y, y_bytes(&p, ROWS))) {
                    fprintf(stderr, "%s k %d on %s: other bits than before\n", dtype_info(p.dtype)->name, p.k,
                            cpu_isa_name((enum cpu_isa)isa));
                    CHECK(!"equal bits");
                }
                if (!first || (isa == CPU_ISA_AVX2 && !block_format(p.dtype))) {
                    free(first);
                    first = y;
                } else
                    free(y);
            }
            free(first);
            product_free(&p);
        }
    cpu_isa_select("auto", &err);
}

/* Batched decode of more rows than memory hides takes one plane; few rows two, whatever is asked for. */
TEST(planes)
{
    struct rose_error err = {0};
    for (int isa = CPU_ISA_PORTABLE; isa <= CPU_ISA_AVX512 && cpu_isa_available((enum cpu_isa)isa); isa++) {
        CHECK_OK(cpu_isa_select(cpu_isa_name((enum cpu_isa)isa), &err), err);
        for (int d = 0; d < WEIGHT_DTYPES; d++) {
            if (!block_format(weight_dtypes[d])) continue;
            for (int rows = 4; rows <= 20; rows += 8) {
                int k = shape_k(weight_dtypes[d], 2);
                struct product p = product_make_planes(weight_dtypes[d], 37, k, rows, rows == 4 ? 2 : 1);
                float *y = product_run_seqs(&p, rows, 2, false, rows), *z = product_run(&p, rows, 2, true);
                CHECK(product_error(&p, y, rows) < 2e-6);
                CHECK((memcmp(y, z, y_bytes(&p, rows)) == 0) == (rows == 4));
                /* two planes are a hundred times nearer to float arithmetic than one */
                CHECK(product_error_float(&p, z, rows) < 0.0006);
                free(y), free(z);
                product_free(&p);
            }
        }
    }
    cpu_isa_select("auto", &err);
}

/* One plane with zero points, in double; written from the definition in matmul_zero.h. */
static void plane_zero(const float *x, int k, double *out)
{
    for (int b = 0; b < k; b += 32) {
        float high = x[b], low = -x[b];
        for (int i = b; i < b + 32; i++) high = fmaxf(high, x[i]), low = fmaxf(low, -x[i]);
        float most = fmaxf(high, low), least = fminf(high, low);
        int z = least < 0.1623f * most ? 96 : least < 0.396f * most ? 64 : least < 0.748f * most ? 32 : 0;
        float s = fmaxf(most * (1.0f / (float)(127 + z)), least * (1.0f / (float)(127 - z)));
        if (most < 0x1p-100f) s = 0;
        if (low > high) s = -s;
        for (int i = b; i < b + 32; i++) {
            double q = s != 0 ? (double)rintf(fmaf(x[i], 1.0f / s, (float)-z)) : 0;
            CHECK(fabs(q) <= 127);
            out[i] = s != 0 ? (q + z) * (double)s : 0;
            CHECK(fabs(out[i] - (double)x[i]) <= 0.5001 * fabs((double)s) + (s == 0 ? 0x1p-100 : 0));
            CHECK(fabs((double)s) <= (double)most / 126.9);
        }
    }
}

/* Blocks to one side, with one column far away, of both sides, small, zero. */
static float lopsided(int row, int column)
{
    int block = (row + column / 32) % 7;
    float v = random_float();
    switch (block) {
    case 0: return v > 0 ? v : 0.17f * v;
    case 1: return column % 32 == 11 ? 17 + v : v;
    case 2: return column % 32 == 3 ? -9 + v : v;
    case 3: return -1.5f + 0.3f * v;
    case 4: return 1e-33f * v;
    case 5: return 5 + 0 * v;
    default: return v;
    }
}

/* Weights of 8 bits and rows in one plane that are no decoded batch: zero points, the same bits everywhere and with any team. */
TEST(zero_points)
{
    struct rose_error err = {0};
    uint64_t state = random_state; /* the cases behind this one keep their numbers */
    static const struct {
        int k, rows, seqs;
    } shapes[] = {{32, 18, 5}, {352, 18, 9}, {96, 7, 3}, {352, 140, 1}, {96, 260, 260}};
    for (size_t i = 0; i < ROSE_COUNT(shapes); i++) {
        int rows = shapes[i].rows, k = shapes[i].k;
        struct product p = product_make(DTYPE_Q8_0, 37, k, rows);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < k; c++) p.x[r * k + c] = lopsided(r, c);
        double *q = malloc((size_t)k * sizeof *q);
        float *w = malloc((size_t)p.n * (size_t)k * sizeof *w), *first = NULL;
        dtype_decode(DTYPE_Q8_0, p.source, w, (size_t)p.n * (size_t)k);
        for (int r = 0; r < rows; r++) {
            plane_zero(p.x + (size_t)r * (size_t)k, k, q);
            for (int o = 0; o < p.n; o++) {
                double want = 0, size = 0;
                for (int c = 0; c < k; c++) want += q[c] * (double)w[o * k + c], size += fabs(q[c] * (double)w[o * k + c]);
                p.want[r * p.n + o] = want, p.size[r * p.n + o] = size;
            }
        }
        for (int isa = CPU_ISA_PORTABLE; isa < CPU_ISA_COUNT && cpu_isa_available((enum cpu_isa)isa); isa++) {
            if (isa == CPU_ISA_AMX && rows >= 20) continue; /* bfloat16 there */
            CHECK_OK(cpu_isa_select(cpu_isa_name((enum cpu_isa)isa), &err), err);
            float *y = product_run_seqs(&p, rows, 1, false, shapes[i].seqs), *z = product_run_seqs(&p, rows, 3, false, shapes[i].seqs);
            CHECK(product_error(&p, y, rows) < 2e-6);
            CHECK(!memcmp(y, z, y_bytes(&p, rows)));
            if (first) CHECK(!memcmp(y, first, y_bytes(&p, rows)));
            free(z);
            if (first) free(y);
            else first = y;
        }
        free(first), free(q), free(w);
        product_free(&p);
    }
    random_state = state;
    cpu_isa_select("auto", &err);
}

/* Many rows, bf16 allowed: on AMX weights and activations are rounded to bfloat16, each by at most 2^-9 of
 * its size, and of BF16 weights the activations also where there is AVX512-BF16 alone. Elsewhere nothing changes. */
TEST(many_rows)
{
    struct rose_error err = {0};
    enum { ROWS = 75 };
    for (int isa = CPU_ISA_AVX512; isa < CPU_ISA_COUNT && cpu_isa_available((enum cpu_isa)isa); isa++) {
        CHECK_OK(cpu_isa_select(cpu_isa_name((enum cpu_isa)isa), &err), err);
        for (int d = 0; d < WEIGHT_DTYPES; d++)
            for (int which = 0; which < 3; which++) {
                enum dtype t = weight_dtypes[d];
                struct product p = product_make(t, which == 1 ? 16 : 83, shape_k(t, which) * 2, ROWS);
                float *y = product_run(&p, ROWS, 1, false), *z = product_run(&p, ROWS, 3, false),
                      *exact = product_run(&p, ROWS, 2, true);
                CHECK(!memcmp(y, z, y_bytes(&p, ROWS)));
                bool bf16 = isa == CPU_ISA_AMX && t != DTYPE_F32 && t != DTYPE_F16;
#if defined(__x86_64__)
                if (isa == CPU_ISA_AVX512 && t == DTYPE_BF16) bf16 = __builtin_cpu_supports("avx512bf16") && !cpu_isa_available(CPU_ISA_AMX);
#endif
                CHECK(bf16 == (memcmp(y, exact, y_bytes(&p, ROWS)) != 0));
                double e = product_error_float(&p, y, ROWS);
                /* two planes of int8: half a step of max|x| / 127 / 254 in each, x up to 8 where most are below 1 */
                bool good = e < (bf16 ? 0x1p-8 + 0x1p-16 : block_format(t) ? 0.0006 : 2e-6);
                if (!good)
                    fprintf(stderr, "%s k %d on %s: error %g\n", dtype_info(t)->name, p.k,
                            cpu_isa_name((enum cpu_isa)isa), e);
                CHECK(good);
                if (bf16 && t == DTYPE_BF16) { /* it is the product of activations rounded to nearest even, as exact as any other */
                    for (size_t i = 0; i < (size_t)p.rows * (size_t)p.k; i++) {
                        uint16_t half;
                        CHECK_OK(dtype_encode(DTYPE_BF16, &p.x[i], &half, 1, &err), err);
                        dtype_decode(DTYPE_BF16, &half, &p.x[i], 1);
                    }
                    product_reference(&p, 1);
                    CHECK(product_error(&p, y, ROWS) < 2e-6);
                    free(z);
                    z = product_run(&p, ROWS, 2, false);
                    CHECK(!memcmp(y, z, y_bytes(&p, ROWS)));
                }
                free(y), free(z), free(exact);
                product_free(&p);
            }
    }
    cpu_isa_select("auto", &err);
}

/* So many rows that workers share them and not the weights: the same bits as one worker's, all rows written. */
TEST(rows_shared)
{
    struct rose_error err = {0};
    enum { ROWS = 3 * 256 + 5 };
    for (int isa = CPU_ISA_AVX512; isa < CPU_ISA_COUNT && cpu_isa_available((enum cpu_isa)isa); isa++) {
        CHECK_OK(cpu_isa_select(cpu_isa_name((enum cpu_isa)isa), &err), err);
        struct product p = product_make(DTYPE_Q4_1, 83, 96, ROWS);
        float *one = product_run(&p, ROWS, 1, false);
        CHECK(product_error_float(&p, one, ROWS) < 0x1p-6); /* many_rows has the bounds; here, that nothing is missing */
        for (int threads = 2; threads <= 4; threads++) {
            float *y = product_run(&p, ROWS, threads, false);
            CHECK(!memcmp(one, y, y_bytes(&p, ROWS)));
            free(y);
        }
        free(one);
        product_free(&p);
    }
    cpu_isa_select("auto", &err);
}

/* A row's bits depend neither on the number of rows nor on that of threads. */
TEST(rows_and_threads)
{
    static const enum dtype some[] = {DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_BF16};
    static const int threads[] = {1, 2, 3, 5};
    struct rose_error err = {0};
    for (int isa = CPU_ISA_PORTABLE; isa < CPU_ISA_COUNT && cpu_isa_available((enum cpu_isa)isa); isa++) {
        CHECK_OK(cpu_isa_select(cpu_isa_name((enum cpu_isa)isa), &err), err);
        for (int d = 0; d < 3; d++) {
            enum { ROWS = 67 };
            struct product p = product_make(some[d], 83, 256, ROWS);
            float *all = product_run(&p, ROWS, 1, true);
            for (int rows = 1; rows <= ROWS; rows += rows < 20 ? 1 : 7) {
                float *y = product_run(&p, rows, threads[rows % 4], true);
                CHECK(!memcmp(all, y, y_bytes(&p, rows)));
                free(y);
            }
            for (int t = 0; t < 4; t++) {
                float *y = product_run(&p, ROWS, threads[t], false), *z = product_run(&p, ROWS, 1, false);
                CHECK(!memcmp(z, y, y_bytes(&p, ROWS)));
                free(y), free(z);
            }
            free(all);
            product_free(&p);
        }
    }
    cpu_isa_select("auto", &err);
}

/* Zeros, tiny numbers, infinities and NaN do not crash; the last two make their own row NaN or infinite and
 * no other. */
TEST(odd_activations)
{
    struct rose_error err = {0};
    for (int isa = CPU_ISA_PORTABLE; isa < CPU_ISA_COUNT && cpu_isa_available((enum cpu_isa)isa); isa++) {
        CHECK_OK(cpu_isa_select(cpu_isa_name((enum cpu_isa)isa), &err), err);
        struct product p = product_make(DTYPE_Q4_0, 16, 64, 6);
        for (int i = 0; i < 64; i++)
            p.x[i] = 0, p.x[64 + i] = 1e-44f, p.x[128 + i] = i == 3 ? INFINITY : 1,
            p.x[192 + i] = i == 40 ? NAN : 1;
        float *y = product_run(&p, 6, 1, true);
        for (int i = 0; i < 16; i++) {
            CHECK_NEAR(y[i], 0, 0);
            CHECK_NEAR(y[16 + i], 0, 0);
            CHECK(!isfinite(y[32 + i]));
            CHECK(isnan(y[48 + i]));
            CHECK_NEAR(y[64 + i], p.want[64 + i], 1e-5 * p.size[64 + i]);
        }
        free(y);
        product_free(&p);
        struct product q = product_make(DTYPE_Q8_0, 16, 64, 6); /* with zero points */
        for (int i = 0; i < 64; i++)
            q.x[i] = 0, q.x[64 + i] = -1e-44f, q.x[128 + i] = i == 3 ? INFINITY : 1, q.x[192 + i] = i == 40 ? NAN : 1, q.x[256 + i] = i == 5 ? -3e38f : 1;
        y = product_run_seqs(&q, 6, 1, false, 3);
        for (int i = 0; i < 16; i++) {
            CHECK_NEAR(y[i], 0, 0);
            CHECK_NEAR(y[16 + i], 0, 0);
            CHECK(!isfinite(y[32 + i]));
            CHECK(isnan(y[48 + i]));
            CHECK_NEAR(y[80 + i], q.want[80 + i], 0.02 * q.size[80 + i]);
        }
        free(y);
        product_free(&q);
    }
    cpu_isa_select("auto", &err);
}

TEST(refused)
{
#ifdef ROSE_TEST_AMX
    CHECK(cpu_isa_available(CPU_ISA_AMX) == cpu_isa_available(CPU_ISA_AVX512)); /* tiles are emulated */
#endif
    struct cpu_weight w;
    CHECK(!cpu_weight_init(DTYPE_I32, 16, 32, NULL, &w));
    CHECK(!cpu_weight_init(DTYPE_Q4_1, 16, 33, NULL, &w));
    CHECK(!cpu_weight_init(DTYPE_Q4_K, 16, 128, NULL, &w));
    CHECK(!cpu_weight_init(DTYPE_F32, 0, 32, NULL, &w));
    CHECK(!cpu_weight_init(DTYPE_F32, 16, (int64_t)1 << 40, NULL, &w));
    struct rose_error err = {0};
    CHECK_INT(cpu_isa_select("sse9", &err), ROSE_INVALID);
}

TEST_MAIN(CASE(rows_read_back), CASE(formats), CASE(planes), CASE(zero_points), CASE(many_rows), CASE(rows_shared), CASE(rows_and_threads), CASE(odd_activations),
          CASE(refused))
