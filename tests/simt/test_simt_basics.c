/* The harness finds each planted mistake, and a right kernel is clean in every order. */
#include "simt.h"
#include "test.h"

struct basics_params {
    const float *x;
    float *y;
    uint32_t *count;
    uint32_t rows;
};

static struct simt_report run(int mistake, uint64_t seed, float *worst)
{
    enum { N = 300, ROWS = 5, THREADS = 64 };
    char constants[200];
    snprintf(constants, sizeof constants, "ROSE_ARCH=900 N=%d THREADS=%d MISTAKE=%d", N, THREADS, mistake);
    const struct simt_kernel *k = simt_kernel("tests/simt/kernels/cuda/basics.cu", "basics", constants);
    float x[ROWS * N];
    double want[ROWS + 1] = {0};
    for (int i = 0; i < ROWS * N; i++) {
        x[i] = (float)((i * 7919) % 101) / 16.0f;
        want[i / N] += x[i];
        want[ROWS] += x[i];
    }
    uint32_t zero = 0;
    struct basics_params p = {simt_buffer("x", sizeof x, x), simt_buffer("y", (ROWS + 1) * 4, NULL),
                              simt_buffer("count", 4, &zero), ROWS};
    struct simt_report r = simt_launch(
        &(struct simt_launch){
            .kernel = k, .grid = {ROWS}, .block = {THREADS}, .cooperative = true, .seed = seed},
        &p);
    *worst = 0;
    for (int i = 0; i <= ROWS && !r.fault; i++) *worst = fmaxf(*worst, fabsf(p.y[i] - (float)want[i]));
    simt_reset();
    return r;
}

TEST(right_kernel_is_clean)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        float worst;
        struct simt_report r = run(0, seed, &worst);
        CHECK_SIMT_CLEAN(r);
        CHECK_NEAR(worst, 0, 1e-3);
    }
}

TEST(each_mistake_is_found)
{
    static const struct {
        int mistake;
        enum simt_fault want;
    } cases[] = {{1, SIMT_BOUNDS},    {2, SIMT_DIVERGENT}, {3, SIMT_RACE},     {4, SIMT_DIVERGENT},
                 {5, SIMT_BOUNDS},    {6, SIMT_RACE},      {7, SIMT_DEADLOCK}, {8, SIMT_BOUNDS},
                 {9, SIMT_DIVERGENT}, {10, SIMT_MASK},     {11, SIMT_RACE},    {12, SIMT_TRAP},
                 {13, SIMT_DIVERGENT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            float worst;
            struct simt_report r = run(cases[i].mistake, seed, &worst);
            /* A missing barrier shows as a race or, where the reader comes first, as a read of nothing. */
            if (cases[i].mistake == 3 && r.fault == SIMT_UNWRITTEN) continue;
            CHECK_SIMT(r, cases[i].want);
            CHECK(strstr(r.message, cases[i].mistake == 2 || cases[i].mistake == 4 ? "" : "basics.cu:") !=
                  NULL);
        }
}

TEST_MAIN(CASE(right_kernel_is_clean), CASE(each_mistake_is_found))
