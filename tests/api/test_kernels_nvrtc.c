/* Every .cu file, with the constants that models' plans give it, compiles for each architecture of its "// arch:" line, and nothing
 * spills. Needs NVRTC, no GPU; without NVRTC it fails and says where it looked. */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "../model/golden.h"
#include "jit/jit.h"
#include "ops/moe_coded_cuda.h"
#include "ops/moe_cuda.h"
#include "ops/moe_mlp_cuda.h"
#include "rose.h"
#include "op_cases.h"

enum { FILES = 128, ARCHES = 5 };
static const char *const arches[ARCHES] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
static bool covered[FILES][ARCHES];

static int file_number(struct str kernel)
{
    struct str name, list;
    for (int i = 0; i < FILES && jit_list(i, &name, &list); i++)
        if (str_eq(name, kernel)) return i;
    return -1;
}

static void check_spills(const char *name, const char *arch, long long stack, long long stores, long long loads)
{
    /* The sampler's slow path indexes a small array by a variable: that lies in local memory, and is no spill. */
    if ((stack == 0 || !strncmp(name, "sample.", 7)) && stores == 0 && loads == 0) return;
    test_failures_++;
    fprintf(stderr, "%s for %s: stack %lld, spills %lld + %lld bytes (-1: unknown)\n", name, arch, stack, stores, loads);
}

/* All kernels of an engine of few sequences and short steps. */
static int compile_model(const char *model, int arch, int sequences, int step)
{
    struct rose_error err = {0};
    struct arena a;
    const struct json *root = NULL;
    char *text;
    const int one = 1;
    struct rose_kernels_options o = {.model = model, .arch = arches[arch], .batches = &one, .batches_count = 1, .max_sequences = sequences, .step_tokens = step,
                                     .cache_dir = NVRTC_CACHE};
    CHECK_OK(rose_kernels(NULL, &o, &text, &err), err);
    if (!text) return 0;
    arena_init(&a, 0);
    CHECK_OK(json_parse(&a, model, str_of(text), &root, &err), err);
    const struct json *kernels = json_get(root, "kernels");
    int n = kernels ? (int)kernels->count : 0;
    for (int i = 0; i < n; i++) {
        const struct json *k = &kernels->items[i], *entries = json_get(k, "entries");
        char name[200];
        snprintf(name, sizeof name, STR_FMT, STR_ARG(json_str(json_get(k, "name"), "")));
        int file = file_number(json_str(json_get(k, "kernel"), ""));
        CHECK(file >= 0 && entries && entries->count == 1);
        if (file < 0 || !entries) continue;
        covered[file][arch] = true;
        for (uint32_t e = 0; e < entries->count; e++)
            check_spills(name, arches[arch], json_int(json_get(&entries->items[e], "stack"), -1), json_int(json_get(&entries->items[e], "spill_stores"), -1),
                         json_int(json_get(&entries->items[e], "spill_loads"), -1));
    }
    arena_free(&a);
    rose_free(text);
    return n;
}

TEST(models_kernels_for_every_architecture)
{
    int n = 0;
    mkdir(NVRTC_CACHE, 0777);
    for (int a = 0; a < ARCHES; a++) n += compile_model("bench/models/Qwen3-30B-A3B", a, 8, 512);
    /* sliding windows, soft caps, norms on both sides */
    struct golden g;
    golden_open(&g, "gemma2");
    golden_write_config(&g, NULL);
    n += compile_model(g.dir, 2, 2, 64);
    golden_close(&g);
    printf("  %d kernels\n", n);
}

/* ---- what no model's step has: the cases of the op tests, and a few files by hand ---- */

struct others {
    struct jit *jit;
    const struct jit_kernel *kernel[FILES * ARCHES];
    int count;
};

static void add(struct others *o, const struct plan *plan, int arch)
{
    struct rose_error err = {0};
    int file = file_number(str_of(plan->kernel));
    if (file < 0 || covered[file][arch] || o->count == FILES * ARCHES) return;
    CHECK_OK(plan_request(plan, o->jit, arches[arch], &o->kernel[o->count++], &err), err);
    covered[file][arch] = true;
}

/* Experts as their file has them: no config in bench/models is of those. Shapes and formats of tests/simt/test_moe_coded_cuda, which has all of them. */
static void add_experts(struct others *o, const struct device_info *device, int arch)
{
    struct moe_cuda_shape route = {.tokens = 1, .experts = 128, .top_k = 8, .hidden = 2048, .normalize = true};
    struct moe_mlp_shape s = {.tokens = 1, .max_tokens = 1, .experts = 128, .top_k = 8, .hidden = 2048, .ffn = 768, .activation = OP_ACT_SILU, .up_format = 1 + MOE_FP8, .down_format = 1 + MOE_FP8};
    struct rose_error err = {0};
    struct plan plan;
    CHECK_OK(moe_panel_plan(&(struct moe_panel_shape){.format = BLOCKS_Q4_0, .n = 768, .k = 2048, .experts = 32}, device, &plan, &err), err);
    add(o, &plan, arch);
    CHECK_OK(moe_coded_plan(&s, false, device, &plan, &err), err);
    add(o, &plan, arch);
    if (arch < 2) return; /* the others are Hopper's and later */
    s.route = &route;
    CHECK_OK(moe_mlp_cuda_plan(&s, false, device, &plan, &err), err);
    add(o, &plan, arch);
    if (arch > 2) return;
    s.route = NULL, s.tokens = s.max_tokens = 256, s.tile = 64;
    CHECK_OK(moe_fp8_plan(&s, false, device, &plan, &err), err);
    add(o, &plan, arch);
    s.up_format = s.down_format = 1 + BLOCKS_Q4_0;
    CHECK_OK(moe_blocks_wgmma_plan(&s, false, device, &plan, &err), err);
    add(o, &plan, arch);
}

static void add_planned(struct others *o, int arch)
{
    struct device *device;
    struct rose_error err = {0};
    struct plan plan;
    CHECK_OK(device_planning_open(arches[arch], &device, &err), err);
    for (int i = 0; op_cases_name(i); i++)
        if (op_cases_plan(i, &device->info, 0, &plan)) add(o, &plan, arch);
    static const int32_t tokens[] = {8, 128, 1024};
    for (size_t i = 0; i < 3; i++) {
        struct moe_cuda_dispatch d;
        struct moe_cuda_shape shape = {.tokens = tokens[i], .experts = 128, .top_k = 8, .hidden = 2048, .normalize = true};
        CHECK_OK(moe_cuda_plan_dispatch(&shape, &device->info, &d, &err), err);
        for (int k = 0; k < d.launches; k++) add(o, &d.launch[k], arch);
        shape.few = 1;
        CHECK_OK(moe_cuda_plan_dispatch(&shape, &device->info, &d, &err), err);
        for (int k = 0; k < d.launches; k++) add(o, &d.launch[k], arch);
    }
    add_experts(o, &device->info, arch);
    plan = (struct plan){.kernel = "clone"};
    plan_int(&plan, "THREADS", 256), plan_int(&plan, "PER", 4), plan_int(&plan, "ADD", 1);
    add(o, &plan, arch);
    plan = (struct plan){.kernel = "dummy"};
    plan_int(&plan, "THREADS", 256);
    add(o, &plan, arch);
    plan = (struct plan){.kernel = "grid_barrier"};
    plan_int(&plan, "THREADS", 256), plan_int(&plan, "ROUNDS", 8);
    add(o, &plan, arch);
    device_close(device);
}

TEST(the_other_files)
{
    static struct others o;
    struct rose_error err = {0};
    struct str name, list;
    CHECK_OK(jit_open(&(struct jit_options){.cache_dir = NVRTC_CACHE}, &o.jit, &err), err);
    for (int a = 0; a < ARCHES; a++) add_planned(&o, a);
    CHECK_OK(jit_compile_all(o.jit, &err), err);
    for (int i = 0; i < o.count; i++) {
        struct jit_info info = jit_info(o.kernel[i]);
        CHECK_INT(info.entries_count, 1);
        if (info.entries_count) check_spills(info.name, info.arch, info.entries[0].stack_bytes, info.entries[0].spill_stores, info.entries[0].spill_loads);
    }
    printf("  %d kernels\n", o.count);
    jit_close(o.jit);
    for (int i = 0; i < FILES && jit_list(i, &name, &list); i++)
        for (int a = 0; a < ARCHES; a++) {
            char text[200];
            snprintf(text, sizeof text, STR_FMT, STR_ARG(list));
            if (covered[i][a] == (strstr(text, arches[a]) != NULL)) continue;
            test_failures_++;
            fprintf(stderr, "src/kernels/cuda/" STR_FMT ".cu for %s: %s\n", STR_ARG(name), arches[a],
                    covered[i][a] ? "compiled, but its \"// arch:\" line does not name it" : "no model, no op case and no entry of this test compiles it: add one");
        }
}

TEST_MAIN(CASE(models_kernels_for_every_architecture), CASE(the_other_files))
