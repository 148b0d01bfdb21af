/* The device-code base on a real GPU: every probe of tests/simt runs on the CPU harness and on the GPU, and
 * every buffer must come out the same, bit for bit (approximate functions: within their error, which is
 * printed).
 *
 *     gpu_common [part of a probe's name]      from the repository's root; last line "N passed, N failed"
 *     gpu_common --compile sm_90a              compiles the probes for it, without a GPU
 */
#include <stdlib.h>

#include "device/cuda.h"
#include "jit/jit.h"
#include "probes.h"
#include "simt.h"
#include "test.h"

enum { MAX_BUFFERS = 16, MAX_PROBES = 256 };
struct memory {
    void *address;
    size_t bytes;
    const char *name;
};
struct memories {
    struct memory m[MAX_BUFFERS];
    int n;
};

static struct device *dev_;
static struct rose_error err_;

static void *cpu_buffer(void *context, const char *name, size_t bytes, const void *data)
{
    struct memories *all = context;
    void *p = simt_buffer(name, bytes, data);
    all->m[all->n++] = (struct memory){p, bytes, name};
    return p;
}
static void cpu_map(void *context, struct tensor_map *out, const struct simt_tensor *t)
{
    (void)context;
    simt_tensor_map(out, t);
}
static void *gpu_buffer(void *context, const char *name, size_t bytes, const void *data)
{
    struct memories *all = context;
    void *p = device_alloc(dev_, bytes, DEVICE_MEMORY_LOCAL, &err_);
    if (!p) CHECK_OK(ROSE_NO_MEMORY, err_);
    CHECK_OK(device_copy(dev_, p, data, bytes, &err_), err_);
    CHECK_OK(device_wait(dev_, NULL, &err_), err_); /* data may vanish */
    all->m[all->n++] = (struct memory){p, bytes, name};
    return p;
}
static void gpu_map(void *context, struct tensor_map *out, const struct simt_tensor *t)
{
    (void)context;
    struct layout_tma box = {.rank = t->rank, .swizzle_bytes = (int)t->swizzle};
    int64_t stride = t->element_bytes;
    for (int i = 0; i < t->rank; i++) {
        box.dim[i] = t->dim[i];
        box.box[i] = (int)t->box[i];
        box.copies[i] = 1;
        box.stride_bytes[i] = i && t->stride[i - 1] ? (int64_t)t->stride[i - 1] : stride;
        stride = box.stride_bytes[i] * t->dim[i];
    }
    CHECK_OK(cuda_tensor_map(dev_, &box, (int)t->element_bytes, t->base, out, &err_), err_);
}

static int constants_of(char *text, struct jit_constant out[8])
{
    int n = 0;
    for (char *c = strtok(text, " "); c; c = strtok(NULL, " ")) {
        char *value = strchr(c, '=');
        *value++ = 0;
        out[n++] = JIT_INT(c, atoll(value));
    }
    return n;
}

/* As the harness names it. Before sm_90 half of the probes have no meaning. */
static uint32_t number_of(const char *arch)
{
    return !strcmp(arch, "sm_90a") ? 900 : !strcmp(arch, "sm_100a") ? 1000 : 1200;
}

/* The functions' outputs: [n][20], columns 0-11 approximate. */
static int compare_functions(const struct probe *p, const float *cpu, const float *gpu, size_t n)
{
    static const char *const names[12] = {"exp2_approx", "log2_approx", "rcp_approx", "rsqrt_approx",
                                          "tanh_approx", "exp_approx",  "exp",        "log",
                                          "tanh",        "erf",         "sin",        "cos"};
    double worst[12] = {0};
    int wrong = 0;
    for (size_t i = 0; i < n; i++) {
        size_t c = i % 20;
        if (c >= 12) {
            wrong += memcmp(&cpu[i], &gpu[i], 4) != 0;
            continue;
        }
        double e = fabs((double)cpu[i] - (double)gpu[i]) / (fabs((double)cpu[i]) + 1e-2);
        if (!(e <= p->tolerance) && cpu[i] != gpu[i]) wrong++;
        if (e > worst[c]) worst[c] = e;
    }
    for (int c = 0; c < 12; c++) printf("  %-13s largest relative difference %.2e\n", names[c], worst[c]);
    return wrong;
}

static int compare(const struct probe *p, const struct memory *cpu, const void *gpu)
{
    if (p->tolerance && !strcmp(cpu->name, "out"))
        return compare_functions(p, cpu->address, gpu, cpu->bytes / 4);
    const uint32_t *a = cpu->address, *b = gpu;
    int wrong = 0;
    for (size_t i = 0; i < cpu->bytes / 4; i++)
        if (a[i] != b[i] && wrong++ < 6)
            fprintf(stderr, "%s: %s[%zu] is %08x on the GPU, %08x on the CPU\n", p->name, cpu->name, i, b[i],
                    a[i]);
    return wrong;
}

static bool run(int i, const struct jit_kernel *kernel, uint32_t arch)
{
    static _Alignas(64) unsigned char cpu_params[PROBE_PARAMS_MAX], gpu_params[PROBE_PARAMS_MAX];
    struct memories cpu = {.n = 0}, gpu = {.n = 0};
    test_failures_ = 0;
    struct probe p = probes_get(i, &(struct probe_io){cpu_buffer, cpu_map, &cpu}, cpu_params);
    probes_get(i, &(struct probe_io){gpu_buffer, gpu_map, &gpu}, gpu_params);

    char constants[220], file[120];
    snprintf(constants, sizeof constants, "ROSE_ARCH=%u %s", arch, p.constants);
    snprintf(file, sizeof file, "tests/simt/kernels/cuda/%s.cu", p.kernel);
    struct simt_report r = simt_launch(&(struct simt_launch){.kernel = simt_kernel(file, p.kernel, constants),
                                                             .grid = {p.grid},
                                                             .block = {p.block},
                                                             .cluster = p.cluster,
                                                             .cooperative = p.cooperative,
                                                             .shared_bytes = p.shared_bytes},
                                       cpu_params);
    CHECK_SIMT_CLEAN(r);

    void *function = NULL;
    CHECK_OK(jit_function(kernel, dev_, p.kernel, &function, &err_), err_);
    struct program_launch l = {.name = p.name,
                               .layer = -1,
                               .kernel = function,
                               .params = gpu_params,
                               .params_bytes = (uint32_t)p.params_bytes,
                               .block = {p.block, 1, 1},
                               .cluster = p.cluster,
                               .shared_bytes = (uint32_t)p.shared_bytes,
                               .cooperative = p.cooperative};
    if (function) CHECK_OK(cuda_launch(dev_, &l, (uint32_t[3]){p.grid, 1, 1}, &err_), err_);
    int wrong = 0;
    for (int b = 0; b < gpu.n; b++) {
        void *host = malloc(gpu.m[b].bytes);
        CHECK_OK(device_copy(dev_, host, gpu.m[b].address, gpu.m[b].bytes, &err_), err_);
        CHECK_OK(device_wait(dev_, NULL, &err_), err_);
        if (!test_failures_) wrong += compare(&p, &cpu.m[b], host);
        free(host);
        device_free(dev_, gpu.m[b].address, gpu.m[b].bytes, DEVICE_MEMORY_LOCAL);
    }
    simt_reset();
    if (wrong || test_failures_) printf("FAIL %s: %d words differ\n", p.name, wrong);
    return !wrong && !test_failures_;
}

static int compile_and_run(const char *arch, const char *part)
{
    struct jit *jit = NULL;
    static const struct jit_kernel *kernels[MAX_PROBES];
    int passed = 0, failed = 0, count = probes_count() < MAX_PROBES ? probes_count() : MAX_PROBES;
    if (jit_open(&(struct jit_options){.override_dir = "tests/simt"}, &jit, &err_))
        return printf("%s\n", err_.message), 1;
    for (int i = 0; i < count; i++) {
        struct probe p = probes_get(i, NULL, NULL);
        struct jit_constant constants[8];
        if ((p.arch && p.arch != number_of(arch)) || (part && !strstr(p.name, part))) continue;
        int n = constants_of(p.constants, constants);
        if (jit_request(jit, p.kernel, arch, constants, n, &kernels[i], &err_))
            printf("%s\n", err_.message), failed++;
    }
    if (jit_compile_all(jit, &err_)) printf("%s\n", err_.message), failed++;
    for (int i = 0; i < count && !failed; i++)
        if (kernels[i] && !dev_) passed++;
    for (int i = 0; i < count && dev_; i++) {
        if (!kernels[i]) continue;
        if (run(i, kernels[i], number_of(arch)))
            passed++;
        else
            failed++;
    }
    jit_close(jit);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--compile")) return compile_and_run(argv[2], NULL);
    if (device_open(&(struct device_options){.kind = DEVICE_CUDA}, &dev_, &err_))
        return printf("%s\n", err_.message), 1;
    int rc = compile_and_run(dev_->info.arch, argc > 1 ? argv[1] : NULL);
    device_close(dev_);
    return rc;
}
