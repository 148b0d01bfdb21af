/* The CUDA device, the JIT and the layouts on a real GPU: checks and figures in one run. Needs NVRTC there.
 *
 *     gpu_cuda                  everything below; last line "N passed, N failed"
 *     gpu_cuda --fault [sync]   a kernel that writes to address 16: prints what the user would read, exits 0
 * when it names it */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "device/cuda.h"
#include "jit/jit.h"
#include "test.h"

static char dir_[] = "/tmp/rose-gpu.XXXXXX";
static struct device *dev_;
static struct jit *jit_;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void put(const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/kernels/cuda", dir_);
    CHECK(file_make_dirs(path, NULL) == ROSE_OK);
    snprintf(path, sizeof path, "%s/kernels/cuda/%s.cu", dir_, name);
    CHECK(file_write_atomic(path, str_of(text), NULL) == ROSE_OK);
}

#define ARCHES "// arch: sm_80 sm_89 sm_90a sm_100a sm_120a\n"
static const char *const sources[][2] = {
    {"scale", ARCHES "struct args { const float *x; float *y; int n; };\n"
                     "extern \"C\" __global__ void scale(const __grid_constant__ args p)\n{\n"
                     "    int i = blockIdx.x * 256 + threadIdx.x;\n"
                     "    if (i < p.n) p.y[i] = p.x[i] * FACTOR + 1.0f;\n}\n"},
    {"clone", ARCHES
     "struct args { const uint4 *x; uint4 *y; long long n; };\n"
     "extern \"C\" __global__ void clone(const __grid_constant__ args p)\n{\n"
     "    long long i = (long long)blockIdx.x * 1024 + threadIdx.x;\n"
     "    uint4 v[4];\n"
     "#pragma unroll\n    for (int k = 0; k < 4; k++) if (i + k * 256 < p.n) v[k] = p.x[i + k * 256];\n"
     "#pragma unroll\n    for (int k = 0; k < 4; k++) if (i + k * 256 < p.n) p.y[i + k * 256] = v[k];\n}\n"},
    {"empty", ARCHES "extern \"C\" __global__ void empty() {}\n"},
    /* Waits for its predecessor, then adds one: dependent launches must not overtake. */
    {"chain", ARCHES "struct args { int *x; };\n"
                     "extern \"C\" __global__ void chain(const __grid_constant__ args p)\n{\n"
                     "#if __CUDA_ARCH__ >= 900\n"
                     "    asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"
                     "    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n#endif\n"
                     "    int i = blockIdx.x * 256 + threadIdx.x;\n    p.x[i] = p.x[i] * 3 + 1;\n}\n"},
    {"cluster", "// arch: sm_90a sm_100a sm_120a\nstruct args { unsigned *x; };\n"
                "extern \"C\" __global__ void cluster(const __grid_constant__ args p)\n{\n"
                "    unsigned r, n;\n    asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(r));\n    "
                "asm(\"mov.u32 %0, %%cluster_nctarank;\" : \"=r\"(n));\n"
                "    if (threadIdx.x == 0) p.x[blockIdx.x] = r * 100 + n;\n}\n"},
    {"fault", ARCHES "struct args { int *x; };\nextern \"C\" __global__ void fault(const __grid_constant__ "
                     "args p) { *(volatile int *)16 = *p.x; }\n"},
    /* Shared memory read in a loop of dependent loads: cycles for one access of BYTES at the lanes' offsets.
     */
    {"banks", ARCHES
     "struct args { const int *offset; long long *cycles; int *sink; };\n"
     "extern \"C\" __global__ void banks(const __grid_constant__ args p)\n{\n"
     "    __shared__ __align__(16) int s[8192];\n    for (int i = threadIdx.x; i < 8192; i += 32) s[i] = "
     "0;\n    __syncwarp();\n"
     "    unsigned at = (unsigned)__cvta_generic_to_shared(s) + p.offset[threadIdx.x], r[4] = {0, 0, 0, 0};\n"
     "    long long from = clock64();\n"
     "    for (int i = 0; i < 256; i++) {\n"
     "#if BYTES == 16\n"
     "        asm volatile(\"ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\" : \"=r\"(r[0]), \"=r\"(r[1]), "
     "\"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(at));\n"
     "#elif BYTES == 8\n"
     "        asm volatile(\"ld.shared.v2.b32 {%0,%1}, [%2];\" : \"=r\"(r[0]), \"=r\"(r[1]) : \"r\"(at));\n"
     "#else\n"
     "        asm volatile(\"ld.shared.b32 %0, [%1];\" : \"=r\"(r[0]) : \"r\"(at));\n#endif\n"
     "        at += r[0];\n    }\n"
     "    long long to = clock64();\n    p.sink[threadIdx.x] = at + r[1] + r[2] + r[3];\n    if (threadIdx.x "
     "== 0) *p.cycles = to - from;\n}\n"},
    /* One TMA box to shared memory, then its raw bytes to global memory. */
    {"tma",
     "// arch: sm_90a sm_100a sm_120a\nstruct __align__(64) map { unsigned long long v[16]; };\nstruct args "
     "{ map m; unsigned *out; int x, y; };\n"
     "extern \"C\" __global__ void tma(const __grid_constant__ args p)\n{\n"
     "    __shared__ __align__(1024) unsigned char s[BYTES];\n    __shared__ __align__(8) unsigned long long "
     "bar;\n"
     "    unsigned b = (unsigned)__cvta_generic_to_shared(&bar), d = (unsigned)__cvta_generic_to_shared(s);\n"
     "    if (threadIdx.x == 0) {\n"
     "        asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(b) : \"memory\");\n"
     "        asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n"
     "        asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: \"r\"(b), "
     "\"r\"(BYTES) : \"memory\");\n"
     "        asm "
     "volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
     "{%2, %3}], [%4];\"\n"
     "                     :: \"r\"(d), \"l\"(&p.m), \"r\"(p.x), \"r\"(p.y), \"r\"(b) : \"memory\");\n    "
     "}\n    __syncthreads();\n"
     "    unsigned done = 0;\n    while (!done)\n"
     "        asm volatile(\"{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], 0; selp.u32 "
     "%0, 1, 0, q; }\" : \"=r\"(done) : \"r\"(b) : \"memory\");\n"
     "    for (int i = threadIdx.x; i < BYTES / 4; i += 128) p.out[i] = ((unsigned *)s)[i];\n}\n"},
};

static void *get(const char *kernel, struct jit_constant constant)
{
    const struct jit_kernel *k = NULL;
    void *f = NULL;
    struct rose_error err = {0};
    CHECK_OK(jit_request(jit_, kernel, dev_->info.arch, &constant, constant.name ? 1 : 0, &k, &err), err);
    CHECK_OK(jit_compile_all(jit_, &err), err);
    if (k) CHECK_OK(jit_function(k, dev_, NULL, &f, &err), err);
    return f;
}

static struct program_launch launch(const char *name, void *function, const void *params, uint32_t bytes,
                                    uint32_t threads)
{
    return (struct program_launch){.name = name,
                                   .layer = -1,
                                   .kernel = function,
                                   .params = params,
                                   .params_bytes = bytes,
                                   .block = {threads, 1, 1}};
}

static void *device_bytes(size_t n)
{
    struct rose_error err = {0};
    void *p = device_alloc(dev_, n, DEVICE_MEMORY_LOCAL, &err);
    if (!p) CHECK_OK(ROSE_NO_MEMORY, err);
    return p;
}

static void to_host(void *dst, const void *src, size_t n)
{
    struct rose_error err = {0};
    CHECK_OK(device_copy(dev_, dst, src, n, &err), err);
    CHECK_OK(device_wait(dev_, NULL, &err), err);
}

struct scale_args {
    const float *x;
    float *y;
    int n;
};

TEST(launch_and_copy)
{
    enum { N = 100003 };
    struct rose_error err = {0};
    float *host = malloc(N * 4);
    void *x = device_bytes(N * 4), *y = device_bytes(N * 4);
    for (int i = 0; i < N; i++) host[i] = (float)i;
    CHECK_OK(device_copy(dev_, x, host, N * 4, &err), err);
    struct scale_args args = {x, y, N};
    struct program_launch l =
        launch("scale", get("scale", JIT_TEXT("FACTOR", "2.5f")), &args, sizeof args, 256);
    CHECK_OK(cuda_launch(dev_, &l, (uint32_t[3]){(N + 255) / 256, 1, 1}, &err), err);
    memset(host, 0, N * 4);
    to_host(host, y, N * 4);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += host[i] != (float)i * 2.5f + 1.0f;
    CHECK_INT(wrong, 0);
    int blocks = 0;
    CHECK_OK(cuda_function_occupancy(l.kernel, 256, 0, &blocks, &err), err);
    CHECK_INT(blocks, dev_->info.max_threads_per_unit / 256);
    device_free(dev_, x, N * 4, DEVICE_MEMORY_LOCAL);
    device_free(dev_, y, N * 4, DEVICE_MEMORY_LOCAL);
    free(host);
}

/* y = 3 y + 1 over and over: only in order is the result right. Eager, captured, and with dependent launches.
 */
TEST(programs)
{
    enum { N = 256 * 64, STEPS = 20 };
    struct rose_error err = {0};
    int *host = malloc(N * 4);
    void *f = get("chain", (struct jit_constant){0});
    for (int dependent = 0; dependent < 2; dependent++) {
        struct program *p = NULL;
        struct args {
            int *x;
        } args = {NULL};
        CHECK_OK(program_open(dev_, &p, &err), err);
        void *memory = device_bytes(N * 4);
        program_buffer_id x = program_external(p, "x", memory, N * 4);
        for (int i = 0; i < STEPS; i++) {
            struct program_launch l = launch("chain", f, &args, sizeof args, 256);
            l.grid[0] = (struct program_dim){EXTENT_ROWS, 1, 256},
            l.grid[1] = l.grid[2] = (struct program_dim){EXTENT_ONE, 1, 0};
            l.dependent = dependent;
            program_use(&l, x, PROGRAM_UPDATE, 0);
            program_add(p, &l);
        }
        CHECK_OK(program_finish(p, NULL, 0, &err), err);
        CHECK_OK(cuda_fill(dev_, memory, 0, N * 4, &err), err);
        struct extents e = {.n = {1, N, 1, 1}};
        uint32_t want = 0;
        for (int run = 0; run < 4; run++) {
            CHECK_OK(device_submit(dev_, p, &e, &err), err);
            for (int i = 0; i < STEPS; i++) want = want * 3 + 1;
        }
        to_host(host, memory, N * 4);
        int wrong = 0;
        for (int i = 0; i < N; i++) wrong += (uint32_t)host[i] != want;
        CHECK_INT(wrong, 0);
        double us = 0;
        CHECK_OK(cuda_bench_program_us(dev_, p, &e, 3, 50, &us, &err), err);
        printf("chain of %d small kernels in a graph, %s: %.2f us a kernel\n", STEPS,
               dependent ? "dependent launches" : "plain edges", us / STEPS);
        program_close(p);
        device_free(dev_, memory, N * 4, DEVICE_MEMORY_LOCAL);
    }
    free(host);
}

TEST(clusters)
{
    struct rose_error err = {0};
    unsigned host[32];
    if (!dev_->info.clusters) return;
    void *memory = device_bytes(sizeof host), *args = memory;
    for (unsigned size = 2; size <= 16; size *= 2) {
        struct program_launch l =
            launch("cluster", get("cluster", (struct jit_constant){0}), &args, sizeof args, 64);
        l.cluster = size;
        CHECK_OK(cuda_launch(dev_, &l, (uint32_t[3]){32, 1, 1}, &err), err);
        to_host(host, memory, sizeof host);
        for (unsigned i = 0; i < 32; i++) CHECK_INT(host[i], i % size * 100 + size);
    }
    device_free(dev_, memory, sizeof host, DEVICE_MEMORY_LOCAL);
}

TEST(timing)
{
    struct rose_error err = {0};
    double us = 0;
    struct program_launch nothing = launch("empty", get("empty", (struct jit_constant){0}), NULL, 0, 32),
                          many[64];
    uint32_t ones[64][3];
    for (int i = 0; i < 64; i++) many[i] = nothing, ones[i][0] = ones[i][1] = ones[i][2] = 1;
    CHECK_OK(cuda_bench_graph_us(dev_, many, (const uint32_t(*)[3])ones, 64, 3, 50, &us, &err), err);
    printf("empty kernel in a graph: %.2f us\n", us);
    for (int i = 0; i < 64; i++) many[i].dependent = true;
    CHECK_OK(cuda_bench_graph_us(dev_, many, (const uint32_t(*)[3])ones, 64, 3, 50, &us, &err), err);
    printf("empty kernel in a graph, dependent launch: %.2f us\n", us);
    CHECK_OK(device_wait(dev_, NULL, &err), err);
    double from = now_ms();
    for (int i = 0; i < 2000; i++) CHECK_OK(cuda_launch(dev_, &nothing, ones[0], &err), err);
    double queued = now_ms();
    CHECK_OK(device_wait(dev_, NULL, &err), err);
    printf("stream launch: host %.2f us, throughput %.2f us\n", (queued - from) * 1e3 / 2000,
           (now_ms() - from) * 1e3 / 2000);
    /* Copies over four pairs of buffers, so that small ones come from L2 only when all four fit. */
    static const size_t sizes[] = {1 << 16, 1 << 20, 1 << 24, 1 << 28, (size_t)1 << 30};
    struct clone_args {
        const void *x;
        void *y;
        int64_t n;
    } args[4];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct program_launch l[4];
        uint32_t grids[4][3];
        for (int i = 0; i < 4; i++) {
            args[i] =
                (struct clone_args){device_bytes(sizes[s]), device_bytes(sizes[s]), (int64_t)(sizes[s] / 16)};
            l[i] = launch("clone", get("clone", (struct jit_constant){0}), &args[i], sizeof args[i], 256);
            grids[i][0] = (uint32_t)((args[i].n + 1023) / 1024), grids[i][1] = grids[i][2] = 1;
        }
        CHECK_OK(cuda_bench_graph_us(dev_, l, (const uint32_t(*)[3])grids, 4, 2, 10, &us, &err), err);
        printf("clone of %7.2f MiB: %9.2f us, %.2f TB/s read + written, %.0f%% of the %.2f TB/s that clock x "
               "bus give\n",
               (double)sizes[s] / 1048576, us, 2.0 * (double)sizes[s] / us * 1e-6,
               2e2 * (double)sizes[s] / us * 1e6 / dev_->info.bandwidth, dev_->info.bandwidth * 1e-12);
        for (int i = 0; i < 4; i++) {
            device_free(dev_, (void *)(uintptr_t)args[i].x, sizes[s], DEVICE_MEMORY_LOCAL);
            device_free(dev_, args[i].y, sizes[s], DEVICE_MEMORY_LOCAL);
        }
    }
    CHECK(us > 0);
}

/* A box as layout_tma_box derives it lands in shared memory as layout_swizzle_apply says. */
TEST(tma_and_swizzle)
{
    enum { ROWS = 96, COLUMNS = 200, BOX_ROWS = 32 };
    struct rose_error err = {0};
    uint16_t *host = malloc(ROWS * COLUMNS * 2), out[BOX_ROWS * 64];
    if (dev_->info.clusters)
        for (int swizzle = 32; swizzle <= 128; swizzle *= 2) {
            int width = swizzle / 2, bits = swizzle == 32 ? 1 : swizzle == 64 ? 2 : 3;
            struct layout tensor;
            struct layout_tma box;
            struct args {
                _Alignas(64) unsigned char map[128];
                void *out;
                int x, y;
            } args = {.x = 64, .y = 40};
            void *x = device_bytes(ROWS * COLUMNS * 2);
            args.out = device_bytes(sizeof out);
            for (int i = 0; i < ROWS * COLUMNS; i++) host[i] = (uint16_t)i;
            CHECK_OK(device_copy(dev_, x, host, ROWS * COLUMNS * 2, &err), err);
            CHECK_OK(layout_flat((int64_t[]){ROWS, COLUMNS}, (int64_t[]){COLUMNS, 1}, 2, &tensor, &err), err);
            CHECK_OK(layout_tma_box(&tensor, 2, (int64_t[]){BOX_ROWS, width}, 2, swizzle, &box, &err), err);
            CHECK_OK(cuda_tensor_map(dev_, &box, 2, x, args.map, &err), err);
            struct program_launch l =
                launch("tma", get("tma", JIT_INT("BYTES", BOX_ROWS * swizzle)), &args, sizeof args, 128);
            CHECK_OK(cuda_launch(dev_, &l, (uint32_t[3]){1, 1, 1}, &err), err);
            to_host(out, args.out, (size_t)(BOX_ROWS * swizzle));
            int wrong = 0;
            for (int r = 0; r < BOX_ROWS; r++)
                for (int c = 0; c < width; c++) {
                    int64_t at = layout_swizzle_apply((struct layout_swizzle){(uint8_t)bits, 4, 3},
                                                      r * swizzle + c * 2);
                    wrong += out[at / 2] != (uint16_t)((40 + r) * COLUMNS + 64 + c);
                }
            CHECK_INT(wrong, 0);
            printf("TMA box of %d x %d bf16 with a %d-byte swizzle is <%d,4,3>: %s\n", BOX_ROWS, width,
                   swizzle, bits, wrong ? "NO" : "yes");
            device_free(dev_, x, ROWS * COLUMNS * 2, DEVICE_MEMORY_LOCAL);
            device_free(dev_, args.out, sizeof out, DEVICE_MEMORY_LOCAL);
        }
    free(host);
}

/* The bank model against the clock: what one more cycle of the model costs. */
TEST(bank_model)
{
    static const struct {
        const char *lanes; /* lane -> 4-byte words */
        int bytes;
    } cases[] = {{"32:1", 4},         {"32:0", 4},  {"32:2", 4},   {"32:4", 4},          {"32:32", 4},
                 {"(8,4):(1,32)", 4}, {"32:2", 8},  {"32:4", 8},   {"32:32", 8},         {"(16,2):(2,0)", 8},
                 {"32:4", 16},        {"32:8", 16}, {"32:32", 16}, {"(8,4):(32,4)", 16}, {"(8,4):(4,0)", 16}};
    struct rose_error err = {0};
    long long cycles = 0, base[17] = {0};
    int offsets[32];
    struct args {
        void *offset, *cycles, *sink;
    } args = {device_bytes(128), device_bytes(8), device_bytes(128)};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout l;
        int64_t at[32];
        CHECK_OK(layout_parse(str_of(cases[i].lanes), &l, &err), err);
        for (int k = 0; k < 32; k++) at[k] = layout_index(&l, k) * 4, offsets[k] = (int)at[k];
        int model = layout_bank_cycles(at, 32, cases[i].bytes);
        CHECK_OK(device_copy(dev_, args.offset, offsets, sizeof offsets, &err), err);
        struct program_launch run =
            launch("banks", get("banks", JIT_INT("BYTES", cases[i].bytes)), &args, sizeof args, 32);
        for (int k = 0; k < 2; k++) CHECK_OK(cuda_launch(dev_, &run, (uint32_t[3]){1, 1, 1}, &err), err);
        to_host(&cycles, args.cycles, 8);
        double each = (double)cycles / 256;
        if (!base[cases[i].bytes]) base[cases[i].bytes] = (long long)(each + 0.5) - model;
        printf("lanes %-13s x %2d bytes: model %2d cycles, measured %5.1f (latency + %.1f)\n", cases[i].lanes,
               cases[i].bytes, model, each, each - (double)base[cases[i].bytes]);
    }
    device_free(dev_, args.offset, 128, DEVICE_MEMORY_LOCAL);
    device_free(dev_, args.cycles, 8, DEVICE_MEMORY_LOCAL);
    device_free(dev_, args.sink, 128, DEVICE_MEMORY_LOCAL);
}

static double compile_some(const char *cache, int threads, int first, int n)
{
    struct rose_error err = {0};
    struct jit *jit = NULL;
    const struct jit_kernel *k;
    double from = now_ms();
    CHECK_OK(jit_open(&(struct jit_options){.override_dir = dir_, .cache_dir = cache, .threads = threads},
                      &jit, &err),
             err);
    for (int i = 0; i < n; i++)
        CHECK_OK(jit_request(jit, "clone", dev_->info.arch, (struct jit_constant[]){JIT_INT("X", first + i)},
                             1, &k, &err),
                 err);
    CHECK_OK(jit_compile_all(jit, &err), err);
    double ms = now_ms() - from;
    jit_close(jit);
    return ms;
}

TEST(compile_times)
{
    char cache[200];
    snprintf(cache, sizeof cache, "%s/cache", dir_);
    compile_some(NULL, 1, 0, 1); /* the library is loaded */
    printf("compile 1 small kernel: %.1f ms\n", compile_some(NULL, 1, 1, 1));
    for (int threads = 1; threads <= 16; threads *= 2)
        printf("compile 32 small kernels on %2d threads: %.0f ms\n", threads,
               compile_some(NULL, threads, 100, 32));
    printf("cold cache, 32 kernels on all cores: %.0f ms\n", compile_some(cache, 0, 1000, 32));
    printf("warm cache, 32 kernels: %.1f ms\n", compile_some(cache, 0, 1000, 32));
}

static int fault_main(bool sync)
{
    struct rose_error err = {0};
    struct device_options o = {.kind = DEVICE_CUDA, .debug_sync = sync};
    if (device_open(&o, &dev_, &err)) return printf("%s\n", err.message), 1;
    void *memory = device_bytes(16), *args = memory;
    struct program_launch bad =
        launch("fault", get("fault", (struct jit_constant){0}), &args, sizeof args, 32);
    struct program_launch good = launch("empty", get("empty", (struct jit_constant){0}), NULL, 0, 32);
    int s = cuda_launch(dev_, &good, (uint32_t[3]){1, 1, 1}, &err);
    if (!s) s = cuda_launch(dev_, &bad, (uint32_t[3]){1, 1, 1}, &err);
    if (!s) s = cuda_launch(dev_, &good, (uint32_t[3]){1, 1, 1}, &err);
    if (!s) s = device_wait(dev_, NULL, &err);
    printf("%s\n", err.message);
    bool named = s && strstr(err.message, "fault") != NULL && (!sync || !strstr(err.message, "one of these"));
    jit_close(jit_);
    device_close(dev_);
    return !named;
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {CASE(launch_and_copy), CASE(programs),        CASE(clusters),
                                             CASE(timing),          CASE(tma_and_swizzle), CASE(bank_model),
                                             CASE(compile_times)};
    struct rose_error err = {0};
    if (!mkdtemp(dir_)) return 1;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) put(sources[i][0], sources[i][1]);
    if (jit_open(&(struct jit_options){.override_dir = dir_}, &jit_, &err))
        return printf("%s\n", err.message), 1;
    if (argc > 1 && !strcmp(argv[1], "--fault")) return fault_main(argc > 2);
    if (argc > 1 && !strcmp(argv[1], "--compile")) { /* without a GPU: do the sources compile? */
        struct device fake = {.info = {.kind = DEVICE_CPU}};
        const struct jit_kernel *k;
        snprintf(fake.info.arch, sizeof fake.info.arch, "%s", argc > 2 ? argv[2] : "sm_90a");
        for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
            struct jit_constant c[] = {JIT_TEXT("FACTOR", "2.5f"), JIT_INT("BYTES", 16)};
            CHECK_OK(jit_request(jit_, sources[i][0], fake.info.arch, c, 2, &k, &err), err);
        }
        CHECK_OK(jit_compile_all(jit_, &err), err);
        return test_failures_ != 0;
    }
    if (device_open(&(struct device_options){.kind = DEVICE_CUDA}, &dev_, &err))
        return printf("%s\n", err.message), 1;
    const struct device_info *d = &dev_->info;
    printf("%s: %s, %d SMs, %zu MiB L2, %zu + %zu KiB shared, %.1f GiB free of %.1f, %.2f TB/s\n", d->name,
           d->arch, d->units, d->l2_bytes >> 20, d->shared_per_block >> 10, d->shared_per_unit >> 10,
           (double)d->memory_free / 1073741824, (double)d->memory_total / 1073741824, d->bandwidth * 1e-12);
    int failed = test_run_all(cases, sizeof cases / sizeof *cases, argc, argv);
    jit_close(jit_);
    device_close(dev_);
    return failed;
}
