/* A CPU device, deterministic random numbers, and programs of one launch, for the tests of ops. */
#ifndef ROSE_TESTS_OPS_FIXTURE_H
#define ROSE_TESTS_OPS_FIXTURE_H

#include "device/program.h"
#include "kernels/cpu/isa.h"
#include "ops/op.h"
#include "test.h"

static const char *const fixture_isas[] = {"portable", "avx2", "avx512", "amx"};
static const int fixture_threads[] = {1, 2, 3, 5};

static uint64_t fixture_state = 1;
static inline uint64_t fixture_bits(void)
{
    uint64_t z = fixture_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
/* Uniform in [-1, 1); whole numbers in [lo, hi]. */
static inline float fixture_real(void)
{
    return (float)(int32_t)(fixture_bits() >> 32) / 2147483648.0f;
}
static inline int fixture_int(int lo, int hi)
{
    return lo + (int)(fixture_bits() % (uint64_t)(hi - lo + 1));
}
static inline float *fixture_reals(size_t n, float scale)
{
    float *p = malloc((n ? n : 1) * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = scale * fixture_real();
    return p;
}

/* False (and nothing selected) when this machine lacks the level. */
#if !defined(FIXTURE_ONLY)
#define FIXTURE_ONLY -1 /* or the index of the one level to test */
#endif
static inline bool fixture_isa(int i)
{
    return (FIXTURE_ONLY < 0 || i == FIXTURE_ONLY) && cpu_isa_select(fixture_isas[i], NULL) == ROSE_OK;
}

static inline struct device *fixture_device(int threads)
{
    struct device *d = NULL;
    struct rose_error err = {0};
    struct device_options o = {.kind = DEVICE_CPU, .threads = threads, .scratch_bytes = 4 << 20};
    CHECK_OK(device_open(&o, &d, &err), err);
    return d;
}

static inline struct program *fixture_program(struct device *d)
{
    struct program *p = NULL;
    struct rose_error err = {0};
    CHECK_OK(program_open(d, &p, &err), err);
    return p;
}

/* Finish, run once, close. */
static inline void fixture_run(struct program *p, int rows, int seqs, int samples)
{
    struct rose_error err = {0};
    struct extents e = {{1, rows, seqs, samples}};
    CHECK_OK(program_finish(p, NULL, 0, &err), err);
    CHECK_OK(device_submit(p->device, p, &e, &err), err);
    CHECK_OK(device_wait(p->device, NULL, &err), err);
    program_close(p);
}

static inline struct op_value fixture_value(struct program *p, const char *name, float *x, int rows, int cols,
                                            int stride, int offset)
{
    program_buffer_id b = program_external(p, name, x, (size_t)rows * (size_t)stride * sizeof(float));
    return (struct op_value){b, DTYPE_F32, EXTENT_ROWS, cols, stride, offset};
}

#endif
