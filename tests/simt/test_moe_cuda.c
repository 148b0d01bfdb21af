/* The CUDA MoE kernels on the CPU harness, as the plans give them, against float64: each form of the
 * dispatch, every kind of score, groups, bias, padding, ragged tails, NaN. And: they compile for every
 * architecture. */
#include "../gpu/moe_reference.h"
#include "kernels/params/grid_barrier.h"
#include "ops/act_cuda.h"
#include "simt.h"
#include "test.h"

static struct rose_error err;

static struct device_info device_of(const char *arch, int units)
{
    struct device_info d = {.kind = DEVICE_CUDA,
                            .units = units,
                            .l2_bytes = 50 << 20,
                            .bandwidth = 4.8e12,
                            .max_threads_per_unit = 2048,
                            .cooperative = true};
    snprintf(d.arch, sizeof d.arch, "%s", arch);
    return d;
}

static struct simt_report launch(const struct plan *p, const struct device_info *d, const void *params,
                                 uint64_t seed)
{
    char defines[600], file[100];
    CHECK(plan_defines(p, d, defines, sizeof defines));
    snprintf(file, sizeof file, "src/kernels/cuda/%s.cu", p->kernel);
    return simt_launch(&(struct simt_launch){.kernel = simt_kernel(file, p->kernel, defines),
                                             .grid = {plan_grid(p, p->rows)},
                                             .block = {p->block},
                                             .cluster = p->cluster,
                                             .cooperative = p->cooperative,
                                             .seed = seed},
                       params);
}

static void *written(const char *name, size_t bytes, const void *from)
{
    return simt_buffer(name, bytes, from);
}

static void run(const struct moe_cuda_shape *s, const struct device_info *d, enum moe_cuda_form form,
                uint64_t seed)
{
    struct moe_cuda_dispatch plan;
    struct plan combine;
    int32_t slices;
    CHECK_OK(moe_cuda_plan_dispatch(s, d, &plan, &err), err);
    CHECK_OK(moe_cuda_plan_combine(s, d, &combine, &slices, &err), err);
    CHECK_INT(plan.form, form);
    size_t t = (size_t)s->tokens, k = (size_t)s->top_k, n = (size_t)s->experts, h = (size_t)s->hidden;
    size_t stride = n + 3, x_stride = h + 8, places = (size_t)moe_cuda_rows(s);
    float *logits = malloc(t * stride * 4), *bias = malloc(n * 4);
    uint16_t *x = malloc(t * x_stride * 2), *results = malloc(places * h * 2);
    uint64_t r = seed * 77 + 5;
    for (size_t i = 0; i < t * stride; i++) logits[i] = moe_random_f32(&r) * 2;
    for (size_t i = 0; i < n; i++) bias[i] = moe_random_f32(&r) * 0.1f;
    for (size_t i = 0; i < t * x_stride; i++) x[i] = moe_bf16(moe_random_f32(&r));
    for (size_t i = 0; i < places * h; i++) results[i] = moe_bf16(moe_random_f32(&r));
    uint32_t zero[2] = {0};
    struct moe_dispatch_params p = {
        .logits = written("logits", t * stride * 4, logits),
        .bias = s->bias ? written("bias", n * 4, bias) : NULL,
        .x = written("x", t * x_stride * 2, x),
        .ids = written("ids", t * k * 4, NULL),
        .weights = written("weights", t * k * 4, NULL),
        .position = written("position", t * k * 4, NULL),
        .counts = written("counts", n * 4, NULL),
        .offsets = written("offsets", (n + 1) * 4, NULL),
        .rows = written("rows", places * (size_t)(moe_cuda_row_bytes(s) + 0.5), NULL),
        .scales = s->out ? written("scales", places * (size_t)moe_cuda_row_scales(s) * 4, NULL) : NULL,
        .scale_stride = moe_cuda_row_scales(s),
        .block_base = plan.block_tokens
                          ? written("block_base", plan_grid(&plan.launch[0], s->tokens) * n * 4, NULL)
                          : NULL,
        .barrier = written("barrier", sizeof zero, zero),
        .logits_stride = (int64_t)stride,
        .x_stride = (int64_t)x_stride,
        .tokens = s->tokens,
        .slices = plan.slices};
    for (int i = 0; i < plan.launches; i++) {
        struct simt_report report = launch(&plan.launch[i], d, &p, seed + (uint64_t)i);
        CHECK_SIMT_CLEAN(report);
    }
    if (!test_failures_) {
        CHECK_INT(moe_check_route(s, logits, (int64_t)stride, bias, p.ids, p.weights), 0);
        CHECK_INT(moe_check_places(s, p.ids, p.counts, p.offsets, p.position), 0);
        CHECK_INT(s->out ? moe_check_quantised(s, x, (int64_t)x_stride, p.position, p.rows, p.scales)
                         : moe_check_rows(s, x, (int64_t)x_stride, p.position, p.rows),
                  0);
        CHECK(simt_written(p.ids, NULL) && simt_written(p.weights, NULL));
        struct moe_combine_params c = {.rows = written("results", places * h * 2, results),
                                       .position = p.position,
                                       .weights = p.weights,
                                       .y = written("y", t * x_stride * 2, s->accumulate ? x : NULL),
                                       .y_stride = (int64_t)x_stride,
                                       .tokens = s->tokens,
                                       .slices = slices};
        struct simt_report report = launch(&combine, d, &c, seed);
        CHECK_SIMT_CLEAN(report);
        CHECK_INT(moe_check_combine(s, results, p.position, p.weights, x, (int64_t)x_stride, c.y), 0);
    }
    simt_reset();
    free(logits), free(bias), free(x), free(results);
}

/* Softmax, normalised, as Qwen3: one launch, every block routes. */
TEST(every)
{
    struct device_info d = device_of("sm_90a", 6);
    struct moe_cuda_shape s = {
        .tokens = 3, .experts = 40, .top_k = 3, .hidden = 264, .pad = 8, .normalize = true};
    run(&s, &d, MOE_CUDA_EVERY, 1);
    s.tokens = 1;
    d = device_of("sm_120a", 4);
    s.hidden = 2056;
    run(&s, &d, MOE_CUDA_EVERY, 2);
}

/* At most sixteen: the blocks of a cluster share the routing; one token: every block. */
TEST(few)
{
    struct device_info d = device_of("sm_90a", 40);
    struct moe_cuda_shape s = {.tokens = 1, .experts = 40, .top_k = 3, .hidden = 264, .pad = 8, .normalize = true, .few = 1};
    run(&s, &d, MOE_CUDA_FEW, 1);
    s.tokens = 11, s.pad = 1;
    run(&s, &d, MOE_CUDA_FEW, 2);
    s.score = OP_MOE_SOFTMAX_AFTER, s.pad = 16, s.hidden = 2056;
    d = device_of("sm_120a", 40);
    run(&s, &d, MOE_CUDA_FEW, 3);
    d = device_of("sm_100a", 40);
    s = (struct moe_cuda_shape){.tokens = 5,
                                .experts = 256,
                                .top_k = 8,
                                .hidden = 1000,
                                .pad = 16,
                                .score = OP_MOE_SIGMOID,
                                .bias = true,
                                .normalize = true,
                                .scale = 2.5f,
                                .groups = 8,
                                .top_groups = 4,
                                .few = 1};
    run(&s, &d, MOE_CUDA_FEW, 4);
    s.bias = false, s.tokens = 1, s.pad = 1;
    run(&s, &d, MOE_CUDA_FEW, 5);
    s.experts = 500, s.groups = 0, s.tokens = 3, s.hidden = 16; /* a team a block, fewer vectors than slices */
    run(&s, &d, MOE_CUDA_FEW, 6);
    s = (struct moe_cuda_shape){.tokens = 5, .experts = 40, .top_k = 3, .hidden = 264, .pad = 8, .normalize = true, .cluster = 4}; /* a warp a token */
    run(&s, &d, MOE_CUDA_EVERY, 8);
    s.cluster = 2, s.tokens = 16, s.hidden = 2056, s.pad = 1;
    run(&s, &d, MOE_CUDA_EVERY, 9);
    s = (struct moe_cuda_shape){.tokens = 3, .experts = 500, .top_k = 3, .hidden = 16, .score = OP_MOE_SIGMOID, .few = 1};
    d = device_of("sm_89", 40); /* no clusters: the other form */
    run(&s, &d, MOE_CUDA_EVERY, 7);
}

/* Rows quantised on their way, by each form. */
TEST(quantised)
{
    struct device_info d = device_of("sm_90a", 20);
    struct moe_cuda_shape s = {.tokens = 3, .experts = 24, .top_k = 3, .hidden = 384, .pad = 16, .out = ACT_OUT_E4M3_128};
    run(&s, &d, MOE_CUDA_EVERY, 1);
    s.few = 1;
    run(&s, &d, MOE_CUDA_FEW, 2);
    s.tokens = 18, s.hidden = 128 * 9;
    run(&s, &d, MOE_CUDA_BARRIER, 3);
    s.out = ACT_OUT_MXFP8, s.hidden = 32 * 21, s.tokens = 41;
    run(&s, &d, MOE_CUDA_TWO, 4);
    s.tokens = 7, s.pad = 1;
    run(&s, &d, MOE_CUDA_FEW, 5);
    s.few = 0;
    d = device_of("sm_80", 20);
    run(&s, &d, MOE_CUDA_EVERY, 6);
}

/* Sigmoid, bias, groups, scale, as DeepSeek V3: a grid barrier. */
TEST(barrier)
{
    struct device_info d = device_of("sm_90a", 20);
    struct moe_cuda_shape s = {.tokens = 19,
                               .experts = 64,
                               .top_k = 4,
                               .hidden = 40,
                               .pad = 4,
                               .score = OP_MOE_SIGMOID,
                               .bias = true,
                               .normalize = true,
                               .scale = 2.5f,
                               .groups = 8,
                               .top_groups = 3,
                               .accumulate = true,
                               .alpha = 0.5f};
    run(&s, &d, MOE_CUDA_BARRIER, 3);
    d = device_of("sm_80", 20);
    run(&s, &d, MOE_CUDA_BARRIER, 4);
    /* Groups of whole warps, of one and of two vectors of lanes. */
    d = device_of("sm_90a", 20);
    s.experts = 256, s.hidden = 24;
    run(&s, &d, MOE_CUDA_BARRIER, 7);
    s.groups = 4, s.bias = false;
    run(&s, &d, MOE_CUDA_BARRIER, 8);
}

/* Softmax over the chosen, as gpt-oss: two launches, the last block scans. Two tokens more than two blocks
 * hold. */
TEST(two_launches)
{
    struct device_info d = device_of("sm_100a", 40);
    struct moe_cuda_shape s = {
        .tokens = 258, .experts = 32, .top_k = 4, .hidden = 24, .pad = 16, .score = OP_MOE_SOFTMAX_AFTER};
    run(&s, &d, MOE_CUDA_TWO, 5);
    s = (struct moe_cuda_shape){.tokens = 259, .experts = 33, .top_k = 2, .hidden = 2056};
    run(&s, &d, MOE_CUDA_TWO, 6);
    /* More experts than lanes sort. */
    s = (struct moe_cuda_shape){.tokens = 257, .experts = 290, .top_k = 3, .hidden = 8, .score = OP_MOE_SIGMOID, .bias = true};
    run(&s, &d, MOE_CUDA_TWO, 9);
}

/* A row of NaN chooses nothing, and its places are -1. */
TEST(not_a_number)
{
    struct device_info d = device_of("sm_90a", 4);
    struct moe_cuda_shape s = {.tokens = 2, .experts = 4, .top_k = 2, .hidden = 8, .score = OP_MOE_SIGMOID};
    struct moe_cuda_dispatch plan;
    CHECK_OK(moe_cuda_plan_dispatch(&s, &d, &plan, &err), err);
    float logits[8] = {NAN, NAN, NAN, NAN, 1, NAN, 2, 0};
    uint16_t x[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    uint32_t zero[2] = {0};
    struct moe_dispatch_params p = {.logits = simt_buffer("logits", sizeof logits, logits),
                                    .x = simt_buffer("x", sizeof x, x),
                                    .ids = simt_buffer("ids", 16, NULL),
                                    .weights = simt_buffer("weights", 16, NULL),
                                    .position = simt_buffer("position", 16, NULL),
                                    .counts = simt_buffer("counts", 16, NULL),
                                    .offsets = simt_buffer("offsets", 20, NULL),
                                    .rows = simt_buffer("rows", 64, NULL),
                                    .barrier = simt_buffer("barrier", 8, zero),
                                    .logits_stride = 4,
                                    .x_stride = 8,
                                    .tokens = 2,
                                    .slices = plan.slices};
    struct simt_report r = launch(&plan.launch[0], &d, &p, 1);
    CHECK_SIMT_CLEAN(r);
    const int32_t *ids = p.ids, *position = p.position, *offsets = p.offsets;
    CHECK_INT(ids[0], -1);
    CHECK_INT(position[1], -1);
    CHECK_INT(ids[2], 2);
    CHECK_INT(ids[3], 0);
    CHECK_INT(position[3], 0);
    CHECK_INT(position[2], 1);
    CHECK_INT(offsets[4], 2);
    CHECK(!memcmp((uint16_t *)p.rows + 8, x + 8, 16));
    simt_reset();
}

/* Of equals the lower expert comes first, whichever lane has it. */
TEST(equals)
{
    enum { E = 72, T = 2, K = 4 };
    struct device_info d = device_of("sm_90a", 4);
    struct moe_cuda_shape s = {.tokens = T, .experts = E, .top_k = K, .hidden = 8};
    struct moe_cuda_dispatch plan;
    CHECK_OK(moe_cuda_plan_dispatch(&s, &d, &plan, &err), err);
    float logits[T * E] = {[E + 33] = 1, [E + 65] = 1, [E + 2] = 1, [E + 70] = 2};
    uint16_t x[T * 8] = {1};
    uint32_t zero[2] = {0};
    struct moe_dispatch_params p = {.logits = simt_buffer("logits", sizeof logits, logits),
                                    .x = simt_buffer("x", sizeof x, x),
                                    .ids = simt_buffer("ids", T * K * 4, NULL),
                                    .weights = simt_buffer("weights", T * K * 4, NULL),
                                    .position = simt_buffer("position", T * K * 4, NULL),
                                    .counts = simt_buffer("counts", E * 4, NULL),
                                    .offsets = simt_buffer("offsets", E * 4 + 4, NULL),
                                    .rows = simt_buffer("rows", T * K * 16, NULL),
                                    .barrier = simt_buffer("barrier", 8, zero),
                                    .logits_stride = E,
                                    .x_stride = 8,
                                    .tokens = T,
                                    .slices = plan.slices};
    struct simt_report r = launch(&plan.launch[0], &d, &p, 1);
    CHECK_SIMT_CLEAN(r);
    static const int32_t want[T * K] = {0, 1, 2, 3, 70, 2, 33, 65};
    for (int i = 0; i < T * K; i++) CHECK_INT(((const int32_t *)p.ids)[i], want[i]);
    simt_reset();
}

/* Groups wider than a warp: the two best of group 0 are both lane 0's, and together better than group 1's. */
TEST(two_best_in_a_lane)
{
    enum { E = 128 };
    struct device_info d = device_of("sm_90a", 4);
    struct moe_cuda_shape s = {.tokens = 1,
                               .experts = E,
                               .top_k = 2,
                               .hidden = 8,
                               .score = OP_MOE_SIGMOID,
                               .bias = true,
                               .groups = 2,
                               .top_groups = 1};
    struct moe_cuda_dispatch plan;
    CHECK_OK(moe_cuda_plan_dispatch(&s, &d, &plan, &err), err);
    float logits[E] = {[0] = 3, [32] = 2.9f, [64] = 2.95f, [65] = 2.5f}, bias[E] = {0};
    uint16_t x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint32_t zero[2] = {0};
    struct moe_dispatch_params p = {.logits = simt_buffer("logits", sizeof logits, logits),
                                    .bias = simt_buffer("bias", sizeof bias, bias),
                                    .x = simt_buffer("x", sizeof x, x),
                                    .ids = simt_buffer("ids", 8, NULL),
                                    .weights = simt_buffer("weights", 8, NULL),
                                    .position = simt_buffer("position", 8, NULL),
                                    .counts = simt_buffer("counts", sizeof logits, NULL),
                                    .offsets = simt_buffer("offsets", sizeof logits + 4, NULL),
                                    .rows = simt_buffer("rows", 32, NULL),
                                    .barrier = simt_buffer("barrier", 8, zero),
                                    .logits_stride = E,
                                    .x_stride = 8,
                                    .tokens = 1,
                                    .slices = plan.slices};
    struct simt_report r = launch(&plan.launch[0], &d, &p, 1);
    CHECK_SIMT_CLEAN(r);
    CHECK_INT(((int32_t *)p.ids)[0], 0);
    CHECK_INT(((int32_t *)p.ids)[1], 32);
    simt_reset();
}

/* The experts of one token, as the kernel chooses them. */
static void chooses(const struct moe_cuda_shape *s, const char *arch, const float *logits, const int32_t *want)
{
    struct device_info d = device_of(arch, 4);
    struct moe_cuda_dispatch plan;
    CHECK_OK(moe_cuda_plan_dispatch(s, &d, &plan, &err), err);
    size_t experts = (size_t)s->experts * 4, picks = (size_t)s->top_k * 4;
    uint16_t x[8] = {1};
    uint32_t zero[2] = {0};
    struct moe_dispatch_params p = {.logits = simt_buffer("logits", experts, logits),
                                    .x = simt_buffer("x", sizeof x, x),
                                    .ids = simt_buffer("ids", picks, NULL),
                                    .weights = simt_buffer("weights", picks, NULL),
                                    .position = simt_buffer("position", picks, NULL),
                                    .counts = simt_buffer("counts", experts, NULL),
                                    .offsets = simt_buffer("offsets", experts + 4, NULL),
                                    .rows = simt_buffer("rows", picks * 4, NULL),
                                    .barrier = simt_buffer("barrier", 8, zero),
                                    .logits_stride = s->experts,
                                    .x_stride = 8,
                                    .tokens = 1,
                                    .slices = plan.slices};
    struct simt_report r = launch(&plan.launch[0], &d, &p, 1);
    CHECK_SIMT_CLEAN(r);
    for (int i = 0; i < s->top_k; i++) CHECK_INT(((const int32_t *)p.ids)[i], want[i]);
    simt_reset();
}

/* The groups that are kept have fewer numbers than are asked for: experts that were left out follow, the lowest first. */
TEST(too_few_in_the_groups)
{
    float logits[128];
    for (int i = 0; i < 128; i++) logits[i] = i / 32 == 1 ? NAN : 0;
    logits[50] = 4, logits[40] = 5;
    struct moe_cuda_shape s = {.tokens = 1, .experts = 128, .top_k = 4, .hidden = 8, .score = OP_MOE_SOFTMAX_AFTER, .groups = 4, .top_groups = 1};
    chooses(&s, "sm_90a", logits, (const int32_t[]){40, 50, 0, 1});
    for (int i = 0; i < 64; i++) logits[i] = i / 8 == 2 ? NAN : 0;
    logits[17] = 7, logits[3] = 6;
    s.experts = 64, s.groups = 8, s.top_groups = 2;
    chooses(&s, "sm_80", logits, (const int32_t[]){17, 3, 0, 1});
    s.top_groups = 1;
    chooses(&s, "sm_120a", logits, (const int32_t[]){17, 0, 1, 2});
}

/* The probe whose cost the plans count with: what each block passes on arrives, round by round. */
TEST(grid_barrier)
{
    struct device_info d = device_of("sm_90a", 5);
    uint32_t zero[10] = {0};
    struct grid_barrier_params p = {simt_buffer("words", sizeof zero, zero), simt_buffer("counter", 4, zero)};
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct simt_report r =
            simt_launch(&(struct simt_launch){.kernel = simt_kernel("src/kernels/cuda/grid_barrier.cu",
                                                                    "grid_barrier_probe",
                                                                    "ROSE_ARCH=900 THREADS=64 ROUNDS=6"),
                                              .grid = {(uint32_t)d.units},
                                              .block = {64},
                                              .cooperative = true,
                                              .seed = seed},
                        &p);
        CHECK_SIMT_CLEAN(r);
        for (int i = 0; i < 5; i++) CHECK_INT(((uint32_t *)p.words)[i], 6 * (seed + 1));
    }
    simt_reset();
}

TEST(wrong_shapes)
{
    struct device_info d = device_of("sm_90a", 132);
    struct moe_cuda_dispatch plan;
    struct moe_cuda_shape s = {.tokens = 1, .experts = 2000, .top_k = 8, .hidden = 2048};
    CHECK(moe_cuda_plan_dispatch(&s, &d, &plan, &err) == ROSE_UNSUPPORTED);
    s.experts = 128, s.hidden = 2047;
    CHECK(moe_cuda_plan_dispatch(&s, &d, &plan, &err) == ROSE_UNSUPPORTED);
    s.hidden = 2048, s.tokens = 0;
    CHECK(moe_cuda_plan_dispatch(&s, &d, &plan, &err) == ROSE_INVALID);
    s.tokens = 5, s.groups = 3, s.top_groups = 1;
    CHECK(moe_cuda_plan_dispatch(&s, &d, &plan, &err) == ROSE_UNSUPPORTED);
}

/* Needs NVRTC, no GPU: Qwen3-30B-A3B and DeepSeek V3, few and many tokens. */
TEST(compiles)
{
    static const char *const arches[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    struct jit *jit = NULL;
    CHECK_OK(jit_open(&(struct jit_options){.threads = 2}, &jit, &err), err);
    for (int a = 0; a < 5 && jit; a++)
        for (int i = 0; i < 6; i++) {
            struct device_info d = device_of(arches[a], 132);
            struct moe_cuda_shape s = {.tokens = (int[]){16, 128, 8192}[i % 3],
                                       .experts = 128,
                                       .top_k = 8,
                                       .hidden = 2048,
                                       .pad = 64,
                                       .normalize = true};
            if (i >= 3 && a != 2) continue;
            if (i >= 3)
                s.experts = 256, s.hidden = 7168, s.score = OP_MOE_SIGMOID, s.bias = true, s.groups = 8,
                s.top_groups = 4, s.scale = 2.5f;
            struct moe_cuda_dispatch plan;
            struct plan combine;
            int32_t slices;
            const struct jit_kernel *k;
            CHECK_OK(moe_cuda_plan_dispatch(&s, &d, &plan, &err), err);
            CHECK_OK(moe_cuda_plan_combine(&s, &d, &combine, &slices, &err), err);
            for (int l = 0; l < plan.launches; l++)
                CHECK_OK(plan_request(&plan.launch[l], jit, d.arch, &k, &err), err);
            CHECK_OK(plan_request(&combine, jit, d.arch, &k, &err), err);
        }
    CHECK_OK(jit_compile_all(jit, &err), err);
    struct strbuf table = {0};
    jit_print_kernels(jit, &table);
    CHECK(table.n > 0 && !strstr(table.p, "failed"));
    if (test_failures_) printf("%s", table.p);
    strbuf_free(&table);
    jit_close(jit);
}

TEST_MAIN(CASE(every), CASE(few), CASE(quantised), CASE(barrier), CASE(two_launches), CASE(not_a_number), CASE(equals), CASE(two_best_in_a_lane), CASE(too_few_in_the_groups),
          CASE(grid_barrier), CASE(wrong_shapes), CASE(compiles))
