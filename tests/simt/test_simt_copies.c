/* mbarriers, TMA with swizzle and ragged edges, cp.async, clusters, dependent launch: a right kernel is clean
 * and exact in every order, each planted mistake is found. */
#include "simt.h"
#include "simt_tensor_map.h"
#include "test.h"

struct copies_params {
    struct tensor_map in, out;
    float *sums;
    const float *w;
    uint32_t tiles;
};

enum { BLOCKS = 4, TILES = 3, ROWS = BLOCKS * TILES * 16 - 5, COLS = 28 };

static struct simt_report run(int mistake, uint64_t seed, float *worst)
{
    char constants[100];
    snprintf(constants, sizeof constants, "ROSE_ARCH=900 MISTAKE=%d", mistake);
    const struct simt_kernel *k = simt_kernel("tests/simt/kernels/cuda/copies.cu", "copies", constants);
    static float x[ROWS * COLS];
    float w[64], sums[BLOCKS] = {0};
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)((i * 31) % 257) / 8.0f;
        int tile = i / COLS / 16;
        if (tile % TILES == 0) sums[tile / TILES] += x[i];
    }
    for (int i = 0; i < 64; i++) w[i] = 2.0f;
    struct copies_params p = {.sums = simt_buffer("sums", BLOCKS * 2 * 4, NULL),
                              .w = simt_constant("w", sizeof w, w),
                              .tiles = TILES};
    float *y = simt_buffer("y", sizeof x, NULL);
    struct simt_tensor in = {.base = simt_buffer("x", sizeof x, x),
                             .rank = 2,
                             .element_bytes = 4,
                             .dim = {COLS, ROWS},
                             .box = {32, 16},
                             .swizzle = 128};
    struct simt_tensor out = in;
    out.base = y;
    simt_tensor_map(&p.in, &in);
    simt_tensor_map(&p.out, &out);
    struct simt_report r = simt_launch(&(struct simt_launch){.kernel = k,
                                                             .grid = {BLOCKS},
                                                             .block = {64},
                                                             .cluster = 2,
                                                             .shared_bytes = 8192,
                                                             .dependent = true,
                                                             .seed = seed},
                                       &p);
    *worst = 0;
    for (int i = 0; i < ROWS * COLS && !r.fault; i++) *worst = fmaxf(*worst, fabsf(y[i] - 2 * x[i]));
    for (int b = 0; b < BLOCKS && !r.fault; b++)
        *worst = fmaxf(*worst, fabsf(p.sums[2 * b] - sums[b]) + fabsf(p.sums[2 * b + 1] - sums[b ^ 1]));
    if (!r.fault) CHECK(simt_written(y, NULL));
    simt_reset();
    return r;
}

TEST(right_kernel_is_clean)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        float worst;
        struct simt_report r = run(0, seed, &worst);
        CHECK_SIMT_CLEAN(r);
        CHECK_NEAR(worst, 0, 0);
        if (test_failures_) return;
    }
}

TEST(each_mistake_is_found)
{
    static const struct {
        int mistake;
        enum simt_fault want, or ;
    } cases[] = {{1, SIMT_IN_FLIGHT, SIMT_RACE},     /* the data may have come, but nothing says so */
                 {2, SIMT_DEADLOCK, SIMT_IN_FLIGHT}, /* waits for a phase too early or too late */
                 {3, SIMT_PROXY, SIMT_PROXY},         {4, SIMT_RACE, SIMT_UNWRITTEN},
                 {5, SIMT_IN_FLIGHT, SIMT_IN_FLIGHT}, {6, SIMT_PROXY, SIMT_PROXY},
                 {7, SIMT_RACE, SIMT_UNWRITTEN},      {8, SIMT_DEADLOCK, SIMT_DEADLOCK},
                 {9, SIMT_RACE, SIMT_RACE},           {10, SIMT_IN_FLIGHT, SIMT_IN_FLIGHT},
                 {11, SIMT_EARLY, SIMT_EARLY},        {12, SIMT_BOUNDS, SIMT_CLEAN},
                 {13, SIMT_RACE, SIMT_IN_FLIGHT},     {14, SIMT_UNWRITTEN, SIMT_RACE},
                 {15, SIMT_MISALIGNED, SIMT_MISALIGNED}, {16, SIMT_MISUSE, SIMT_MISUSE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool found = false;
        for (uint64_t seed = 0; seed < 8; seed++) {
            float worst;
            struct simt_report r = run(cases[i].mistake, seed, &worst);
            found |= r.fault == cases[i].want;
            if (r.fault != cases[i].or) CHECK_SIMT(r, cases[i].want);
            if (seed == 0 && test_verbose_)
                printf("  %d: %s: %s\n", cases[i].mistake, simt_fault_name(r.fault), r.message);
        }
        if (!found)
            fprintf(stderr, "mistake %d was never reported as %s\n", cases[i].mistake,
                    simt_fault_name(cases[i].want));
        CHECK(found);
    }
}

TEST_MAIN(CASE(right_kernel_is_clean), CASE(each_mistake_is_found))
