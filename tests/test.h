/* The tests' only framework: named cases, checks that print what they saw, one summary line a program.
 *
 *     TEST(adds) { CHECK_INT(1 + 1, 2); }
 *     TEST_MAIN(adds, ...)
 *
 * The last line is "N passed, N failed"; scripts/check adds them up. A case fails at its first failed check but goes on.
 *
 *     build/tests/model/test_golden llama    that case alone
 *     build/tests/model/test_golden -v       with what a test has to tell when nothing is wrong (test_verbose_) */
#ifndef ROSE_TESTS_TEST_H
#define ROSE_TESTS_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_failures_; /* failed checks of the running case */
static bool test_verbose_; /* -v */

#define TEST(name) static void test_##name(void)

#define CHECK(cond)                                                                                           \
    do {                                                                                                      \
        if (!(cond)) test_failures_++, fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #cond); \
    } while (0)
#define CHECK_INT(got, want)                                                                                  \
    do {                                                                                                      \
        long long got_ = (long long)(got), want_ = (long long)(want);                                         \
        if (got_ != want_)                                                                                    \
            test_failures_++, fprintf(stderr, "%s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #got, got_, want_); \
    } while (0)
#define CHECK_STR(got, want)                                                                                  \
    do {                                                                                                      \
        const char *got_ = (got), *want_ = (want);                                                            \
        if (!got_ || strcmp(got_, want_))                                                                     \
            test_failures_++, fprintf(stderr, "%s:%d: %s is \"%s\", expected \"%s\"\n", __FILE__, __LINE__, #got, got_ ? got_ : "(null)", want_); \
    } while (0)
/* |got - want| <= tolerance; NaN never passes. */
#define CHECK_NEAR(got, want, tolerance)                                                                      \
    do {                                                                                                      \
        double got_ = (got), want_ = (want), tol_ = (tolerance);                                              \
        if (!(fabs(got_ - want_) <= tol_))                                                                    \
            test_failures_++, fprintf(stderr, "%s:%d: %s is %.9g, expected %.9g within %g\n", __FILE__, __LINE__, #got, got_, want_, tol_); \
    } while (0)
/* A status call that must succeed; prints err.message otherwise. */
#define CHECK_OK(call, err)                                                                                   \
    do {                                                                                                      \
        int status_ = (int)(call);                                                                            \
        if (status_) test_failures_++, fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, (err).message); \
    } while (0)

/* LeakSanitizer's hooks. cublasLtCreate loses 192 bytes of its own when there is no GPU (the stand-in driver's tests): it gives no
 * handle back, so nothing of ours could free them. Nothing is printed about that: the summary stays the last line. */
#define TEST_HOOK_ __attribute__((visibility("default")))
TEST_HOOK_ const char *__lsan_default_suppressions(void);
TEST_HOOK_ const char *__lsan_default_options(void);
TEST_HOOK_ const char *__lsan_default_suppressions(void) { return "leak:libcublasLt.so\n"; }
TEST_HOOK_ const char *__lsan_default_options(void) { return "print_suppressions=0"; }

struct test_case {
    const char *name;
    void (*run)(void);
};

static inline int test_run_all(const struct test_case *cases, size_t n, int argc, char **argv)
{
    int passed = 0, failed = 0;
    const char *only = NULL;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "-v")) test_verbose_ = true;
        else only = argv[i];
    for (size_t i = 0; i < n; i++) {
        if (only && strcmp(only, cases[i].name)) continue;
        test_failures_ = 0;
        cases[i].run();
        if (test_failures_) failed++, printf("FAIL %s\n", cases[i].name);
        else passed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}

/* One entry a case: CASE(name). */
#define CASE(name) {#name, test_##name}
#define TEST_MAIN(...)                                                                                        \
    int main(int argc, char **argv)                                                                           \
    {                                                                                                         \
        static const struct test_case cases[] = {__VA_ARGS__};                                                \
        return test_run_all(cases, sizeof cases / sizeof *cases, argc, argv);                                 \
    }

#endif
