/* The stand-in driver (tests/simt/driver) under the real CUDA device and the real JIT: order, memory, graphs,
 * planted faults, errors of the compiler; and ops in programs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "device/cuda.h"
#include "jit/jit.h"
#include "test.h"

int gpu_ops_main(int argc, char **argv);
#define main gpu_ops_main
#include "../gpu/gpu_ops.c"
#undef main
#include "../simt/driver/driver.h"

static const char fast[] = SIMT_DRIVER_DIR "/libsimt_fast.so",
                  checked[] = SIMT_DRIVER_DIR "/libsimt_checked.so";

static void *symbol(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return dlsym(handle, name);
}
static void set_seed(const char *library, uint64_t seed, size_t memory)
{
    simt_driver_set_fn *set;
    *(void **)&set = symbol(library, "simt_driver_set");
    set(seed, memory);
}
static struct simt_driver_counts counts(const char *library)
{
    struct simt_driver_counts c;
    simt_driver_counts_fn *get;
    *(void **)&get = symbol(library, "simt_driver_counts");
    get(&c);
    return c;
}

static struct context open_context(const char *library, int index)
{
    struct context c = {0};
    struct rose_error err = {0};
    struct device_options o = {.kind = DEVICE_CUDA, .driver = library, .index = index};
    CHECK_OK(device_open(&o, &c.device, &err), err);
    CHECK_OK(
        jit_open(&(struct jit_options){.nvrtc_path = library, .override_dir = "tests/simt"}, &c.jit, &err),
        err);
    if (c.device) c.device->jit = c.jit;
    return c;
}
static void close_context(struct context *c)
{
    reset(c);
    jit_close(c->jit);
    device_close(c->device);
}

/* ---- order ---- */

/* A copy reads its source when it runs: a buffer that is reused before the wait is seen, in most orders. */
TEST(copies_run_late)
{
    int late = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
        set_seed(fast, seed, 64 << 20);
        struct context c = open_context(fast, 0);
        struct rose_error err = {0};
        uint32_t value = 1, back = 0;
        uint32_t *p = buffer(&c, "p", 4, NULL, false);
        CHECK_OK(device_copy(c.device, p, &value, 4, &err), err);
        value = 2; /* too early */
        read_back(&c, &back, p, 4);
        CHECK(back == 1 || back == 2);
        late += back == 2;
        close_context(&c);
    }
    CHECK(late > 8 && late < 16);
    set_seed(fast, 1, (size_t)1 << 30);
}

TEST(memory_is_poisoned_limited_and_given_back)
{
    set_seed(fast, 1, 64 << 20);
    struct context c = open_context(fast, 0);
    struct rose_error err = {0};
    uint32_t word[4];
    CHECK_INT(c.device->info.memory_total, 64 << 20);
    void *p = device_alloc(c.device, 100, DEVICE_MEMORY_LOCAL, &err);
    CHECK((uintptr_t)p % 256 == 0);
    read_back(&c, word, p, sizeof word);
    CHECK(word[0] == ~0u && word[3] == ~0u);
    CHECK(device_alloc(c.device, 65 << 20, DEVICE_MEMORY_LOCAL, &err) == NULL);
    CHECK(strstr(err.message, "CUDA_ERROR_OUT_OF_MEMORY") != NULL);
    device_free(c.device, p, 100, DEVICE_MEMORY_LOCAL);
    for (int i = 0; i < 40; i++) {
        p = device_alloc(c.device, 48 << 20, DEVICE_MEMORY_LOCAL, &err);
        CHECK(p != NULL);
        device_free(c.device, p, 48 << 20, DEVICE_MEMORY_LOCAL);
    }
    /* A copy beyond an allocation's end is a fault. */
    p = buffer(&c, "p", 100, NULL, false);
    CHECK_INT(device_copy(c.device, p, word, 16, &err), ROSE_OK);
    static char big[300];
    enum rose_status s = device_copy(c.device, p, big, 300, &err);
    if (s == ROSE_OK) s = device_wait(c.device, NULL, &err);
    CHECK_INT(s, ROSE_DEVICE);
    CHECK(strstr(err.message, "write of 300 bytes at device memory+0, which has 100") != NULL);
    close_context(&c);
    set_seed(fast, 1, (size_t)1 << 30);
}

/* ---- faults ---- */

struct faults_params {
    const uint32_t *x;
    uint32_t *y, *flag;
};

static enum rose_status planted(const char *library, int number, int fixed, struct rose_error *err)
{
    struct context c = open_context(library, SIMT_DRIVER_SM90);
    uint32_t x[128], zero[4] = {0};
    for (uint32_t i = 0; i < 128; i++) x[i] = i * 3;
    const struct jit_constant constants[] = {JIT_INT("CASE", number), JIT_INT("FIXED", fixed)};
    struct faults_params p = {buffer(&c, "x", sizeof x, x, true),
                              device_alloc(c.device, sizeof x, DEVICE_MEMORY_LOCAL, err),
                              buffer(&c, "flag", sizeof zero, zero, false)};
    const struct jit_kernel *k;
    struct program_launch l = {
        .name = "planted", .params = &p, .params_bytes = sizeof p, .block = {64, 1, 1}, .cooperative = true};
    const uint32_t grid[3] = {2, 1, 1};
    *err = (struct rose_error){0};
    CHECK_OK(jit_request(c.jit, "faults", "sm_90a", constants, 2, &k, err), *err);
    CHECK_OK(jit_compile_all(c.jit, err), *err);
    CHECK_OK(jit_function(k, c.device, "faults", &l.kernel, err), *err);
    enum rose_status s = cuda_launch(c.device, &l, grid, err);
    if (s == ROSE_OK) s = device_wait(c.device, NULL, err);
    if (s != ROSE_OK) { /* the device is lost, and says why again */
        struct rose_error again;
        CHECK(device_copy(c.device, p.flag, zero, 4, &again) == s && !strcmp(again.message, err->message));
    }
    device_free(c.device, p.y, sizeof x, DEVICE_MEMORY_LOCAL);
    close_context(&c);
    return s;
}

TEST(planted_faults_end_in_errors_that_name_the_line)
{
    static const struct {
        const char *library;
        int number;
        const char *says;
    } cases[] = {{fast, 1, "misaligned"},    {fast, 6, "divergent: barrier 1"},
                 {fast, 9, "out of bounds"}, {fast, 15, "deadlock"},
                 {checked, 2, "race"},       {checked, 5, "nobody has written"},
                 {checked, 11, "race"},      {checked, 14, "mask"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rose_error err;
        CHECK_INT(planted(cases[i].library, cases[i].number, 0, &err), ROSE_DEVICE);
        if (!strstr(err.message, cases[i].says) || !strstr(err.message, "faults.cu:") ||
            !strstr(err.message, "kernel in flight: faults."))
            CHECK_STR(err.message, cases[i].says);
        if (i % 4 == 0) CHECK_OK(planted(cases[i].library, cases[i].number, 1, &err), err);
    }
    CHECK(counts(fast).faults >= 4 && counts(checked).faults >= 4);
}

TEST(a_kernel_that_does_not_compile)
{
    struct context c = open_context(fast, 0);
    struct rose_error err = {0};
    const struct jit_constant constants[] = {JIT_INT("CASE", 1), JIT_TEXT("FIXED", "p")};
    const struct jit_kernel *k;
    CHECK_OK(jit_request(c.jit, "faults", "sm_90a", constants, 2, &k, &err), err);
    CHECK_INT(jit_compile_all(c.jit, &err), ROSE_INVALID);
    if (!strstr(err.message, "tests/simt/kernels/cuda/faults.cu:20: error")) /* the file that was read, not the place it stands for */
        CHECK_STR(err.message, "tests/simt/kernels/cuda/faults.cu:20: error");
    close_context(&c);
}

/* ---- ops in programs, graphs ---- */

TEST(programs_run_eagerly_captured_and_replayed)
{
    static const struct {
        const char *library;
        int index;
    } runs[] = {{fast, SIMT_DRIVER_SM90},
                {fast, SIMT_DRIVER_SM80},
                {fast, SIMT_DRIVER_SM100},
                {checked, SIMT_DRIVER_SM90}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct context c = open_context(runs[i].library, runs[i].index);
        uint64_t before = counts(runs[i].library).graph_launches;
        CHECK_INT(program_case(&c), 0);
        CHECK(!c.failed);
        CHECK(counts(runs[i].library).graph_launches >= before + 3);
        close_context(&c);
    }
}

TEST(op_cases_through_the_device)
{
    static const char *const parts[] = {"norm 5x96", "qk 9", "swiglu", "e4m3 1x128"};
    struct context c = open_context(fast, SIMT_DRIVER_SM90);
    int ran = 0;
    for (int i = 0; op_cases_name(i); i++)
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            if (!strstr(op_cases_name(i), parts[k]) || ran == 8) continue;
            struct op_io io = {&c.device->info, buffer, run, read_back, reset, &c, 0, NULL};
            CHECK_INT(op_cases_run(i, &io), 0);
            ran++;
        }
    CHECK(ran >= 2 && !c.failed);
    close_context(&c);
}

TEST_MAIN(CASE(copies_run_late), CASE(memory_is_poisoned_limited_and_given_back),
          CASE(planted_faults_end_in_errors_that_name_the_line), CASE(a_kernel_that_does_not_compile),
          CASE(programs_run_eagerly_captured_and_replayed), CASE(op_cases_through_the_device))
