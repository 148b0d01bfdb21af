/* One small mistake a case: found in every order of threads, and the corrected kernel is clean in every
 * order. */
#include "simt.h"
#include "test.h"

struct faults_params {
    const uint32_t *x;
    uint32_t *y, *flag;
};

static struct simt_report run(int number, int fixed, uint64_t seed)
{
    char constants[80];
    snprintf(constants, sizeof constants, "ROSE_ARCH=900 CASE=%d FIXED=%d", number, fixed);
    uint32_t x[128], zero[4] = {0};
    for (uint32_t i = 0; i < 128; i++) x[i] = i * 3;
    struct faults_params p = {simt_buffer("x", sizeof x, x), simt_buffer("y", sizeof x, NULL),
                              simt_buffer("flag", sizeof zero, zero)};
    struct simt_report r = simt_launch(
        &(struct simt_launch){.kernel = simt_kernel("tests/simt/kernels/cuda/faults.cu", "faults", constants),
                              .grid = {2},
                              .block = {64},
                              .cooperative = true,
                              .dependent = number == 21,
                              .seed = seed},
        &p);
    simt_reset();
    return r;
}

TEST(each_is_found_and_its_correction_is_clean)
{
    /* also: faults that the same mistake shows as in other orders of the threads. */
    enum { UNWRITTEN = 1 << SIMT_UNWRITTEN, IN_FLIGHT = 1 << SIMT_IN_FLIGHT, BOUNDS = 1 << SIMT_BOUNDS };
    static const struct {
        int number;
        enum simt_fault want;
        unsigned also;
    } cases[] = {{1, SIMT_MISALIGNED, 0},
                 {2, SIMT_RACE, UNWRITTEN},
                 {3, SIMT_RACE, 0},
                 {4, SIMT_RACE, 0},
                 {5, SIMT_UNWRITTEN, 0},
                 {6, SIMT_DIVERGENT, 0},
                 {7, SIMT_RACE, 0},
                 {8, SIMT_RACE, 0},
                 {9, SIMT_BOUNDS, 0},
                 {10, SIMT_RESOURCE, 0},
                 {11, SIMT_RACE, 0},
                 {12, SIMT_RACE, 0},
                 {13, SIMT_DIVERGENT, 0},
                 {14, SIMT_MASK, 0},
                 {15, SIMT_DEADLOCK, 0},
                 {16, SIMT_MISUSE, 0},
                 {17, SIMT_RACE, UNWRITTEN | IN_FLIGHT},
                 {18, SIMT_IN_FLIGHT, 0},
                 {19, SIMT_RACE, 0},
                 {20, SIMT_RACE, BOUNDS},
                 {21, SIMT_EARLY, 0},
                 {22, SIMT_DEADLOCK, 0},
                 {23, SIMT_UNWRITTEN, 0},
                 {24, SIMT_BOUNDS, 0},
                 {25, SIMT_PROXY, 0},
                 {26, SIMT_MISALIGNED, 0},
                 {27, SIMT_DIVERGENT, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct simt_report bad = run(cases[i].number, 0, seed), good = run(cases[i].number, 1, seed);
            if (!(cases[i].also >> bad.fault & 1)) CHECK_SIMT(bad, cases[i].want);
            CHECK_SIMT_CLEAN(good);
            if (test_failures_) fprintf(stderr, "case %d\n", cases[i].number);
            if (test_failures_ > 5) return;
            if (seed == 0 && test_verbose_)
                printf("  %d: %s: %s\n", cases[i].number, simt_fault_name(bad.fault), bad.message);
        }
}

TEST(limits_of_a_launch)
{
    const struct simt_kernel *k =
        simt_kernel("tests/simt/kernels/cuda/faults.cu", "faults", "ROSE_ARCH=800 CASE=3 FIXED=1");
    uint32_t zero[4] = {0};
    struct faults_params p = {NULL, NULL, simt_buffer("flag", sizeof zero, zero)};
    struct simt_report r = simt_launch(&(struct simt_launch){.kernel = k, .block = {128}}, &p);
    CHECK_SIMT(r, SIMT_RESOURCE); /* more than the launch bounds */
    r = simt_launch(&(struct simt_launch){.kernel = k, .block = {64}, .shared_bytes = 164 << 10}, &p);
    CHECK_SIMT(r, SIMT_RESOURCE);
    r = simt_launch(&(struct simt_launch){.kernel = k, .grid = {2}, .block = {64}, .cluster = 2}, &p);
    CHECK_SIMT(r, SIMT_RESOURCE); /* no clusters on sm_80 */
    r = simt_launch(&(struct simt_launch){.kernel = k, .grid = {300}, .block = {64}}, &p);
    CHECK_SIMT_CLEAN(r); /* more blocks than are resident */
    CHECK_INT(*p.flag, 300);
    simt_reset();
}

/* 80 and 216 hung on an H200: 65536 registers of the 64512 that 384 threads are launched with. */
TEST(warpgroups_share_the_registers_of_the_launch)
{
    struct registers_params {
        uint32_t *y;
    } p = {simt_buffer("y", 384 * 4, NULL)};
    static const struct {
        const char *constants;
        enum simt_fault want;
    } cases[] = {{"ROSE_ARCH=900 SHRINK=80 GROW=216", SIMT_RESOURCE},
                 {"ROSE_ARCH=900 SHRINK=72 GROW=216", SIMT_CLEAN},
                 {"ROSE_ARCH=900 SHRINK=24 GROW=240", SIMT_CLEAN},
                 {"ROSE_ARCH=900 SHRINK=20 GROW=240", SIMT_MISUSE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct simt_kernel *k = simt_kernel("tests/simt/kernels/cuda/registers.cu", "registers", cases[i].constants);
        struct simt_report r = simt_launch(&(struct simt_launch){.kernel = k, .grid = {1}, .block = {384}}, &p);
        CHECK_SIMT(r, cases[i].want);
    }
    simt_reset();
}

TEST_MAIN(CASE(each_is_found_and_its_correction_is_clean), CASE(limits_of_a_launch),
          CASE(warpgroups_share_the_registers_of_the_launch))
