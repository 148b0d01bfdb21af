/* The CUDA device without a GPU: no driver at all, and a driver that only writes down what it is asked
 * (fake_cuda.c). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/cuda.h"
#include "fake_cuda.h"
#include "test.h"

static char driver_[4096];
static const char *(*log_of)(void);
static void (*reset)(void), (*log_clear)(void), (*fail)(const char *, int, int),
    (*break_kernel)(const char *, int), (*attribute)(int, int);
static int (*alive)(void);

static void load_fake(void)
{
    ssize_t n = readlink("/proc/self/exe", driver_, sizeof driver_ - 20);
    driver_[n > 0 ? n : 0] = '\0';
    strcpy(strrchr(driver_, '/') + 1, "fake_cuda.so");
    void *fake = dlopen(driver_, RTLD_NOW | RTLD_LOCAL);
    if (!fake) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&log_of = dlsym(fake, "fake_log");
    *(void **)&log_clear = dlsym(fake, "fake_log_clear");
    *(void **)&reset = dlsym(fake, "fake_reset");
    *(void **)&fail = dlsym(fake, "fake_fail");
    *(void **)&break_kernel = dlsym(fake, "fake_break");
    *(void **)&attribute = dlsym(fake, "fake_attribute");
    *(void **)&alive = dlsym(fake, "fake_alive");
}

static struct device *open_fake(bool debug_sync)
{
    struct device *d = NULL;
    struct rose_error err = {0};
    struct device_options o = {.kind = DEVICE_CUDA, .driver = driver_, .debug_sync = debug_sync};
    CHECK_OK(device_open(&o, &d, &err), err);
    log_clear();
    return d;
}

static struct cuda_function *function(struct device *d, const char *name)
{
    struct cuda_module *m;
    struct cuda_function *f = NULL;
    struct rose_error err = {0};
    CHECK_OK(cuda_module_load(d, "sample.0123", "cubin", &m, &err), err);
    CHECK_OK(cuda_module_function(m, name, &f, &err), err);
    return f;
}

TEST(no_driver)
{
    struct device *d = NULL;
    struct rose_error err = {0};
    struct device_options o = {.kind = DEVICE_CUDA, .driver = "/nonexistent/libcuda.so.1"};
    CHECK_INT(device_open(&o, &d, &err), ROSE_NOT_FOUND);
    CHECK(strstr(err.message, "no NVIDIA driver") && strstr(err.message, "/nonexistent/libcuda.so.1") &&
          strstr(err.message, "--device cpu"));
    CHECK_INT(cuda_device_count("/nonexistent/libcuda.so.1", &err), 0);
    o.driver = "libm.so.6"; /* loads, but is none */
    CHECK_INT(device_open(&o, &d, &err), ROSE_UNSUPPORTED);
    CHECK(strstr(err.message, "cuInit") != NULL);
}

TEST(properties)
{
    reset();
    struct rose_error err = {0};
    struct device *d = open_fake(false);
    CHECK_STR(d->info.name, "Fake 0");
    CHECK_STR(d->info.arch, "sm_90a");
    CHECK_INT(d->info.units, 132);
    CHECK_INT(d->info.shared_per_block, 232448);
    CHECK(d->info.cooperative && d->info.clusters && d->info.dependent_launch);
    CHECK_NEAR(d->info.bandwidth, 4.917e12, 1e9);
    device_close(d);
    CHECK_INT(alive(), 0);
    static const struct {
        int major, minor;
        const char *arch;
    } known[] = {{8, 0, "sm_80"},    {8, 6, "sm_80"},    {8, 9, "sm_89"},
                 {10, 0, "sm_100a"}, {12, 0, "sm_120a"}, {12, 1, "sm_121a"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        attribute(75, known[i].major), attribute(76, known[i].minor);
        d = open_fake(false);
        CHECK_STR(d->info.arch, known[i].arch);
        device_close(d);
    }
    attribute(75, 7);
    struct device_options o = {.kind = DEVICE_CUDA, .driver = driver_};
    CHECK_INT(device_open(&o, &d, &err), ROSE_UNSUPPORTED);
    o.index = 2;
    CHECK_INT(device_open(&o, &d, &err), ROSE_NOT_FOUND);
    CHECK(strstr(err.message, "no GPU 2") != NULL);
    CHECK_INT(cuda_device_count(driver_, &err), 2);
    /* Each call of opening fails once: an error, nothing left behind. */
    static const char *const calls[] = {"cuInit",
                                        "cuDeviceGetCount",
                                        "cuDeviceGet",
                                        "cuDeviceGetAttribute",
                                        "cuDevicePrimaryCtxRetain",
                                        "cuCtxSetCurrent",
                                        "cuMemGetInfo_v2",
                                        "cuStreamCreate"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        reset();
        fail(calls[i], 1, 1);
        o.index = 0;
        CHECK_INT(device_open(&o, &d, &err), ROSE_DEVICE);
        CHECK(strstr(err.message, "CUDA_ERROR_INVALID_VALUE (1), invalid argument") != NULL);
        CHECK_INT(alive(), 0);
    }
}

TEST(memory_and_events)
{
    reset();
    struct rose_error err = {0};
    struct device *d = open_fake(false);
    char host[64] = "abc";
    char *a = device_alloc(d, 64, DEVICE_MEMORY_LOCAL, &err),
         *b = device_alloc(d, 64, DEVICE_MEMORY_HOST, &err);
    struct device_event early = {0}, event = {0};
    CHECK_OK(device_wait(d, &early, &err), err);
    CHECK_OK(device_copy(d, a, host, 64, &err), err);
    CHECK_OK(cuda_fill(d, b, 7, 64, &err), err);
    CHECK_OK(device_record(d, &event, &err), err);
    CHECK_OK(device_record(d, &event, &err), err); /* again: the same handle */
    CHECK_OK(device_wait(d, &event, &err), err);
    CHECK_OK(device_wait(d, NULL, &err), err);
    CHECK(a[1] == 'b' && b[63] == 7);
    CHECK_STR(log_of(), "alloc host_alloc:3 copy:64 fill:64 record record event_sync sync ");
    CHECK(device_alloc(d, (size_t)1 << 31, DEVICE_MEMORY_LOCAL, &err) == NULL);
    CHECK(strstr(err.message, "cuMemAlloc of 2147483648 bytes on Fake 0") &&
          strstr(err.message, "CUDA_ERROR_OUT_OF_MEMORY"));
    device_free(d, a, 64, DEVICE_MEMORY_LOCAL);
    device_free(d, b, 64, DEVICE_MEMORY_HOST);
    device_close(d);
    CHECK_INT(alive(), 0);
}

TEST(launches)
{
    reset();
    struct rose_error err = {0};
    struct device *d = open_fake(false);
    struct cuda_function *add = function(d, "add");
    CHECK(function(d, "add") == add); /* one module, one function */
    CHECK_STR(cuda_function_info(add).name, "sample.0123:add");
    CHECK_INT(cuda_function_info(add).registers, 40);
    int params = 42, blocks = 0;
    CHECK_OK(cuda_function_occupancy(add, 256, 0, &blocks, &err), err);
    CHECK_INT(blocks, 8);
    struct program_launch l = {
        .name = "op", .params = &params, .params_bytes = 4, .kernel = add, .block = {64, 1, 1}};
    log_clear();
    CHECK_OK(cuda_launch(d, &l, (uint32_t[3]){4, 1, 1}, &err), err);
    CHECK_OK(cuda_launch(d, &l, (uint32_t[3]){4, 0, 1}, &err), err); /* nothing to do */
    l.cooperative = l.dependent = true, l.cluster = 2, l.shared_bytes = 100 << 10;
    CHECK_OK(cuda_launch(d, &l, (uint32_t[3]){4, 2, 1}, &err), err);
    CHECK_OK(cuda_launch(d, &l, (uint32_t[3]){4, 2, 1}, &err), err); /* the limit is raised once */
    CHECK_STR(
        log_of(),
        "launch:add[4,1,1]x[64,1,1]+0=42 set:8=102400 launch:add[4,2,1]x[64,1,1]+102400=42:coop:cluster2:pdl "
        "launch:add[4,2,1]x[64,1,1]+102400=42:coop:cluster2:pdl ");
    CHECK_INT(cuda_launch(d, &l, (uint32_t[3]){3, 1, 1}, &err), ROSE_INVALID);
    CHECK(strstr(err.message, "no multiple of the cluster") != NULL);
    l.shared_bytes = 230 << 10;
    CHECK_INT(cuda_launch(d, &l, (uint32_t[3]){4, 1, 1}, &err), ROSE_INVALID);
    CHECK(strstr(err.message, "sample.0123:add wants 236544 bytes of shared memory") != NULL);
    l.shared_bytes = 0, l.block[0] = 513;
    CHECK_INT(cuda_launch(d, &l, (uint32_t[3]){4, 1, 1}, &err), ROSE_INVALID);
    l.block[0] = 64, l.cluster = 16;
    log_clear();
    CHECK_OK(cuda_launch(d, &l, (uint32_t[3]){16, 1, 1}, &err), err);
    CHECK(!strncmp(log_of(), "set:14=1 ", 9));
    l.kernel = NULL;
    CHECK_INT(cuda_launch(d, &l, (uint32_t[3]){4, 1, 1}, &err), ROSE_UNSUPPORTED);
    struct cuda_module *m;
    CHECK_INT(cuda_module_load(d, "other", "no cubin", &m, &err), ROSE_DEVICE);
    CHECK(strstr(err.message, "cuModuleLoadData of other for sm_90a") != NULL);
    CHECK_OK(cuda_module_load(d, "other", "cubin", &m, &err), err);
    struct cuda_function *f;
    CHECK_INT(cuda_module_function(m, "none", &f, &err), ROSE_DEVICE);
    cuda_module_unload(m);
    device_close(d);
    CHECK_INT(alive(), 0);
}

static struct program *sample_program(struct device *d, int *params)
{
    struct program *p = NULL;
    struct rose_error err = {0};
    static const char *const names[] = {"norm", "matmul", "add"};
    CHECK_OK(program_open(d, &p, &err), err);
    for (int i = 0; i < 3; i++) {
        struct program_launch l = {.name = names[i],
                                   .layer = -1,
                                   .params = &params[i],
                                   .params_bytes = 4,
                                   .kernel = function(d, names[i]),
                                   .block = {128, 1, 1}};
        l.grid[0] = (struct program_dim){EXTENT_ROWS, 1, i == 1 ? 16 : 0};
        l.grid[1] = (struct program_dim){EXTENT_ONE, 1, 0};
        l.grid[2] = (struct program_dim){EXTENT_ONE, 1, 0};
        program_add(p, &l);
    }
    CHECK_OK(program_finish(p, NULL, 0, &err), err);
    return p;
}

static struct extents rows(int n)
{
    return (struct extents){.n = {1, n, 1, 1}};
}

TEST(programs_and_graphs)
{
    reset();
    struct rose_error err = {0};
    struct device *d = open_fake(false);
    int params[3] = {1, 2, 3};
    struct program *p = sample_program(d, params);
    struct extents e = rows(33);
    log_clear();
    CHECK_OK(device_submit(d, p, &e, &err), err); /* the first time: launches */
    CHECK_STR(log_of(), "launch:norm[33,1,1]x[128,1,1]+0=1 launch:matmul[3,1,1]x[128,1,1]+0=2 "
                        "launch:add[33,1,1]x[128,1,1]+0=3 ");
    log_clear();
    CHECK_OK(device_submit(d, p, &e, &err), err); /* the second: a graph */
    CHECK_OK(device_submit(d, p, &e, &err), err); /* from then on the same */
    CHECK_STR(log_of(), "node:norm[33,1,1]x[128,1,1]+0=1 node:matmul[3,1,1]x[128,1,1]+0=2 "
                        "node:add[33,1,1]x[128,1,1]+0=3 instantiate:3 graph:3 graph:3 ");
    log_clear();
    e = rows(0);
    CHECK_OK(device_submit(d, p, &e, &err), err);
    CHECK_STR(log_of(), "");
    /* More extents than graphs are kept: the oldest is updated in place. */
    for (int n = 1; n <= 40; n++) {
        e = rows(n);
        CHECK_OK(device_submit(d, p, &e, &err), err);
        CHECK_OK(device_submit(d, p, &e, &err), err);
    }
    CHECK(strstr(log_of(), "update:3 graph:3 ") != NULL);
    /* A capture that fails leaves the stream usable. */
    e = rows(100);
    CHECK_OK(device_submit(d, p, &e, &err), err);
    fail("cuLaunchKernelEx", 2, 1);
    CHECK_INT(device_submit(d, p, &e, &err), ROSE_DEVICE);
    CHECK(strstr(err.message,
                 "cuLaunchKernelEx of matmul (sample.0123:matmul), grid 7 x 1 x 1, block 128 x 1 x 1") !=
          NULL);
    log_clear();
    CHECK_OK(device_submit(d, p, &e, &err), err);
    CHECK(strstr(log_of(), "graph:3 ") != NULL);
    fail("cuGraphInstantiateWithFlags", 1, 2);
    double us = 0;
    CHECK_INT(cuda_bench_program_us(d, p, &e, 1, 4, &us, &err), ROSE_NO_MEMORY);
    CHECK_OK(cuda_bench_program_us(d, p, &e, 1, 4, &us, &err), err);
    CHECK_NEAR(us, 2000, 1e-6); /* 8 ms over 4 replays */
    struct program_launch launches[2] = {p->entries[0].launch, p->entries[0].launch};
    const uint32_t grids[2][3] = {{1, 1, 1}, {2, 1, 1}};
    CHECK_OK(cuda_bench_graph_us(d, launches, grids, 2, 1, 4, &us, &err), err);
    CHECK_NEAR(us, 1000, 1e-6);
    program_close(p);
    device_close(d);
    CHECK_INT(alive(), 0);
}

TEST(sticky_errors)
{
    for (int mode = 0; mode < 3; mode++) {
        reset();
        struct rose_error err = {0}, again = {0};
        struct device *d = open_fake(mode == 1);
        int params[3] = {1, 2, 3};
        struct program *p = sample_program(d, params);
        struct extents e = rows(8);
        struct device_event event = {0};
        char *memory = device_alloc(d, 16, DEVICE_MEMORY_LOCAL, &err);
        CHECK_OK(device_submit(d, p, &e, &err), err);
        CHECK_OK(device_wait(d, NULL, &err), err);
        break_kernel("matmul", 700);
        if (mode == 0) { /* found at the wait: any of those in flight */
            CHECK_OK(cuda_launch(d, &p->entries[1].launch, (uint32_t[3]){1, 1, 1}, &err), err);
            CHECK_OK(cuda_launch(d, &p->entries[2].launch, (uint32_t[3]){1, 1, 1}, &err), err);
            CHECK_OK(device_record(d, &event, &err), err);
            CHECK_INT(device_wait(d, &event, &err), ROSE_DEVICE);
            CHECK(strstr(err.message, "sample.0123:matmul, sample.0123:add; one of these: --debug-sync") !=
                  NULL);
            CHECK(strstr(err.message, "norm") == NULL); /* it had landed */
        } else if (mode == 1) {                         /* debug_sync: exactly the one, at its launch */
            CHECK_INT(device_submit(d, p, &e, &err), ROSE_DEVICE);
            CHECK(strstr(err.message, "kernel in flight: sample.0123:matmul;") != NULL);
        } else { /* in a graph */
            CHECK_OK(device_submit(d, p, &e, &err), err);
            CHECK_INT(device_wait(d, NULL, &err), ROSE_DEVICE);
            CHECK(strstr(err.message, "sample.0123:norm, sample.0123:matmul, sample.0123:add; one") != NULL);
        }
        CHECK(strstr(err.message, "Fake 0 is lost") &&
              strstr(err.message, "CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access"));
        /* Everything afterwards says the same. */
        CHECK_INT(device_submit(d, p, &e, &again), ROSE_DEVICE);
        CHECK_STR(again.message, err.message);
        CHECK(device_alloc(d, 1, DEVICE_MEMORY_LOCAL, &again) == NULL);
        CHECK_INT(device_copy(d, memory, "x", 1, &again), ROSE_DEVICE);
        CHECK_INT(device_wait(d, NULL, &again), ROSE_DEVICE);
        CHECK_STR(again.message, err.message);
        device_free(d, memory, 16, DEVICE_MEMORY_LOCAL);
        program_close(p);
        device_close(d); /* does not hang or crash */
    }
}

TEST(peers_and_maps)
{
    reset();
    struct rose_error err = {0};
    struct device *d = open_fake(false), *o = NULL;
    struct device_options second = {.kind = DEVICE_CUDA, .driver = driver_, .index = 1};
    CHECK_OK(device_open(&second, &o, &err), err);
    log_clear();
    CHECK_OK(cuda_peer_enable(d, o, &err), err);
    fail("cuCtxEnablePeerAccess", 1, 704);
    CHECK_OK(cuda_peer_enable(o, d, &err), err); /* already enabled is fine */
    CHECK_INT(cuda_peer_enable(d, d, &err), ROSE_UNSUPPORTED);
    CHECK_OK(cuda_after(d, o, &err), err);
    CHECK_STR(log_of(), "peer:1001 record after ");
    struct cuda_ipc handle;
    void *memory = NULL;
    CHECK_OK(cuda_ipc_export(d, (void *)0x1234560, &handle, &err), err);
    CHECK_OK(cuda_ipc_open(o, &handle, &memory, &err), err);
    CHECK(memory == (void *)0x1234560);
    cuda_ipc_close(o, memory);
    struct layout tensor;
    struct layout_tma box;
    _Alignas(64) unsigned char map[128];
    CHECK_OK(layout_parse(STR("(4096,7168):(7168,1)"), &tensor, &err), err);
    CHECK_OK(layout_tma_box(&tensor, 2, (int64_t[]){128, 64}, 2, 128, &box, &err), err);
    log_clear();
    CHECK_OK(cuda_tensor_map(d, &box, 2, (void *)0x10000, map, &err), err);
    CHECK_STR(log_of(), "map:1:2:7168,4096:14336:64,128:3 ");
    CHECK_INT(cuda_tensor_map(d, &box, 2, (void *)0x10008, map, &err), ROSE_INVALID);
    device_close(o);
    device_close(d);
}

/* Entries aside become a second branch of the graph: it forks before the first of them and joins before the one that waits. Launch by launch they
 * run in order. Their buffers share memory with nobody's that may run meanwhile. */
TEST(branches)
{
    struct rose_error err = {0};
    struct program *p = NULL;
    reset();
    struct device *d = open_fake(false);
    struct cuda_function *f = function(d, "add");
    CHECK_OK(program_open(d, &p, &err), err);
    program_buffer_id b[5];
    static const char *const names[] = {"before", "aside", "aside too", "beside", "joins"};
    for (int i = 0; i < 5; i++) b[i] = program_buffer(p, names[i], 1000);
    for (int i = 0; i < 5; i++) {
        void *pointers[2] = {NULL, NULL};
        struct program_launch l = {.name = names[i], .params = pointers, .params_bytes = sizeof pointers, .kernel = f, .grid = {{EXTENT_ONE, 1, 1}, {EXTENT_ONE, 1, 1}, {EXTENT_ONE, 1, 1}},
                                   .block = {64, 1, 1}, .dependent = true};
        program_side(p, i == 1 || i == 2);
        if (i == 4) program_join(p);
        program_use(&l, b[i], PROGRAM_WRITE, 0);
        program_use(&l, b[i == 0 ? 0 : i == 4 ? 3 : 0], PROGRAM_UPDATE, 8);
        program_add(p, &l);
    }
    p->eager = true;
    CHECK_OK(program_finish(p, NULL, 0, &err), err);
    CHECK(program_address(p, b[1]) != program_address(p, b[2]) && program_address(p, b[1]) != program_address(p, b[3]) && program_address(p, b[2]) != program_address(p, b[3]));
    const struct extents one = {.n = {[EXTENT_ONE] = 1}};
    log_clear();
    CHECK_OK(device_submit(d, p, &one, &err), err);
    CHECK(!strstr(log_of(), "after"));
    log_clear();
    CHECK_OK(device_prepare(d, p, &one, &err), err);
    /* What a kernel waits for whole is no dependent launch (pdl). */
    static const char *const order[] = {"node:", ":pdl ", "record after ", "node:", " node:", ":pdl ", "node:", ":pdl ", "record after ", "node:", " instantiate:5"};
    const char *at = log_of();
    for (size_t i = 0; i < ROSE_COUNT(order) && at; i++)
        if ((at = strstr(at, order[i]))) at += strlen(order[i]);
    int pdl = 0, nodes = 0;
    for (const char *c = log_of(); (c = strstr(c, ":pdl ")); c++) pdl++;
    for (const char *c = log_of(); (c = strstr(c, "node:")); c++) nodes++;
    CHECK(at != NULL);
    CHECK_INT(nodes, 5);
    CHECK_INT(pdl, 3);
    program_close(p);
    device_close(d);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(no_driver),           CASE(properties),    CASE(memory_and_events), CASE(launches),
        CASE(programs_and_graphs), CASE(sticky_errors), CASE(peers_and_maps), CASE(branches)};
    load_fake();
    int failed = test_run_all(cases, sizeof cases / sizeof *cases, argc, argv);
    reset();
    return failed;
}
