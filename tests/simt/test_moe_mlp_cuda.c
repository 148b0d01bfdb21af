/* A whole mixture of experts as the CUDA plans give it, on the CPU harness, against float64: even and skewed routing,
 * experts without tokens, one set of experts for all, ragged tails, biases, every activation. And: its kernels compile for
 * every architecture without spills. */
#include "../gpu/moe_mlp_reference.h"
#include "simt.h"
#include "simt_tensor_map.h"
#include "test.h"

static struct rose_error err;

static struct device_info device_of(const char *arch, int units)
{
    struct device_info d = {.kind = DEVICE_CUDA, .units = units, .l2_bytes = 50 << 20, .bandwidth = 4.8e12, .max_threads_per_unit = 2048, .cooperative = true};
    snprintf(d.arch, sizeof d.arch, "%s", arch);
    return d;
}

static void launch(const struct plan *p, const struct device_info *d, const void *params, uint64_t seed)
{
    char defines[600], file[100];
    CHECK(plan_defines(p, d, defines, sizeof defines));
    snprintf(file, sizeof file, "src/kernels/cuda/%s.cu", p->kernel);
    struct simt_report r = simt_launch(&(struct simt_launch){.kernel = simt_kernel(file, p->kernel, defines),
                                                             .grid = {plan_grid(p, p->rows)},
                                                             .block = {p->block},
                                                             .shared_bytes = p->shared_bytes,
                                                             .dependent = true,
                                                             .cooperative = p->cooperative,
                                                             .seed = seed},
                                       params);
    CHECK_SIMT_CLEAN(r);
}

struct test {
    const char *arch;
    struct moe_cuda_shape route;
    int32_t ffn, max_tokens;
    enum op_activation act;
    bool gate_bias, down_bias, deterministic;
    enum moe_skew skew;
    enum moe_mlp_kernel kernel;
};

/* The same operands for moe_wgmma. */
static struct moe_wgmma_params wgmma_params(const struct moe_group_params *g, const struct moe_mlp_shape *m, bool down)
{
    struct moe_wgmma_params p = {.x = g->x, .source = g->source, .counts = g->counts, .offsets = g->offsets, .bias = {g->bias[0], g->bias[1]}, .y = g->y,
                                 .x_stride = g->x_stride};
    const uint32_t zero[2] = {0};
    struct layout_tma box;
    p.counter = simt_buffer("counter", 8, zero);
    moe_mlp_cuda_box(m, down, g->weight_stride, &box);
    for (int i = 0; i < (down ? 1 : 2); i++)
        simt_tensor_map(&p.weight[i], &(struct simt_tensor){.base = (void *)(uintptr_t)g->weight[i],
                                                            .rank = 3,
                                                            .element_bytes = 2,
                                                            .dim = {(uint32_t)box.dim[0], (uint32_t)box.dim[1], (uint32_t)box.dim[2]},
                                                            .stride = {(uint64_t)box.stride_bytes[1], (uint64_t)box.stride_bytes[2]},
                                                            .box = {(uint32_t)box.box[0], (uint32_t)box.box[1], 1},
                                                            .swizzle = 128});
    return p;
}

static void run(const struct test *c)
{
    struct moe_cuda_shape s = c->route;
    struct moe_mlp_shape m = {.tokens = s.tokens, .max_tokens = c->max_tokens ? c->max_tokens : s.tokens, .experts = s.experts, .top_k = s.top_k,
                              .hidden = s.hidden, .ffn = c->ffn, .activation = c->act, .gate_bias = c->gate_bias, .down_bias = c->down_bias,
                              .accumulate = s.accumulate, .alpha = s.alpha, .f16 = s.f16, .deterministic = c->deterministic};
    struct device_info d = device_of(c->arch, 6);
    bool chooses = c->kernel == MOE_MLP_FEW;
    if (chooses) m.route = &s;
    struct moe_mlp_data data = moe_mlp_make(&s, c->ffn, c->skew, (uint64_t)s.tokens * 31 + 7);
    size_t t = (size_t)s.tokens, k = (size_t)s.top_k, e = (size_t)s.experts, h = (size_t)s.hidden, places = (size_t)moe_mlp_cuda_places(&m, &d);
    struct moe_mlp_route route;
    struct plan up, down, combine;
    int32_t slices;
    struct moe_mlp_form form = moe_mlp_cuda_form(&m, &d);
    s.pad = form.tile;
    CHECK_INT(form.kernel, c->kernel);
    CHECK_OK(moe_mlp_cuda_plan_route(&s, &d, &route, &err), err);
    CHECK_OK(moe_mlp_cuda_plan(&m, false, &d, &up, &err), err);
    CHECK_OK(moe_mlp_cuda_plan(&m, true, &d, &down, &err), err);
    CHECK_OK(moe_cuda_plan_combine(&s, &d, &combine, &slices, &err), err);
    struct moe_pick_params pick = {.logits = simt_buffer("logits", t * e * 4, data.logits),
                                   .ids = simt_buffer("ids", t * k * 4, NULL),
                                   .weights = simt_buffer("weights", t * k * 4, NULL),
                                   .logits_stride = s.experts,
                                   .tokens = (uint32_t)s.tokens};
    struct moe_place_params place = {.logits = pick.logits,
                                     .ids = pick.ids,
                                     .weights = pick.weights,
                                     .position = simt_buffer("position", t * k * 4, NULL),
                                     .counts = simt_buffer("counts", e * 4, NULL),
                                     .offsets = simt_buffer("offsets", e * 4 + 4, NULL),
                                     .source = simt_buffer("source", places * 4, NULL),
                                     .logits_stride = s.experts,
                                     .tokens = (uint32_t)s.tokens};
    if (chooses) {
        /* neither */
    } else if (route.block_tokens) {
        const uint32_t zero[2] = {0};
        struct moe_dispatch_params r = {.logits = pick.logits, .ids = pick.ids, .weights = pick.weights, .position = simt_buffer("rank", t * k * 4, NULL), .counts = place.counts,
                                        .offsets = place.offsets, .block_base = simt_buffer("block_base", plan_grid(&route.launch[0], s.tokens) * e * 4, NULL),
                                        .barrier = simt_buffer("barrier", 8, zero), .logits_stride = s.experts, .tokens = s.tokens};
        place.block_base = r.block_base, place.rank = r.position;
        launch(&route.launch[0], &d, &r, 1);
    } else if (route.launches == 2) {
        launch(&route.launch[0], &d, &pick, 1);
    }
    if (!test_failures_ && !chooses) launch(&route.launch[route.launches - 1], &d, &place, 2);
    if (!test_failures_ && !chooses) {
        CHECK_INT(moe_check_route(&s, data.logits, s.experts, NULL, place.ids, place.weights), 0);
        CHECK_INT(moe_check_places(&s, place.ids, place.counts, place.offsets, place.position), 0);
        const int32_t *position = place.position, *source = place.source;
        int wrong = 0;
        for (size_t i = 0; i < t * k; i++) wrong += source[position[i]] != (int32_t)i;
        CHECK_INT(wrong, 0);
    }
    struct moe_group_params g = {.x = simt_buffer("x", t * h * 2, data.x), .source = place.source, .counts = place.counts, .offsets = place.offsets,
                                 .y = simt_buffer("inner", places * (size_t)c->ffn * 2, NULL), .x_stride = s.hidden,
                                 .weight_stride = (int64_t)s.hidden * c->ffn};
    for (int i = 0; i < 2; i++) {
        g.weight[i] = simt_constant("gate or up", data.weights * 2, data.weight[i]);
        g.bias[i] = simt_constant("bias", e * (size_t)c->ffn * 4, data.bias[i]);
    }
    void *y = simt_buffer("y", t * h * 2, data.y);
    const void *weight = simt_constant("down", data.weights * 2, data.weight[2]), *bias = simt_constant("down bias", e * h * 4, data.bias[2]);
    if (form.kernel == MOE_MLP_FEW) {
        struct moe_few_params f = {.logits = pick.logits, .logits_stride = s.experts, .ids = pick.ids, .chosen = pick.weights, .x = g.x,
                                   .weight = {g.weight[0], g.weight[1]}, .bias = {g.bias[0], g.bias[1]}, .y = g.y, .x_stride = s.hidden,
                                   .y_stride = c->ffn, .weight_stride = g.weight_stride, .tokens = (uint32_t)s.tokens};
        if (!test_failures_) launch(&up, &d, &f, 3);
        f.x = g.y, f.y = y, f.x_stride = c->ffn, f.y_stride = s.hidden, f.weight[0] = weight, f.bias[0] = bias;
        if (!test_failures_) launch(&down, &d, &f, 4);
        if (!test_failures_ && chooses) CHECK_INT(moe_check_route(&s, data.logits, s.experts, NULL, place.ids, place.weights), 0);
    } else {
        struct moe_group_params b = {.x = g.y, .counts = place.counts, .offsets = place.offsets, .weight = {weight}, .bias = {bias},
                                     .y = simt_buffer("rows", places * h * 2, NULL), .x_stride = c->ffn, .weight_stride = g.weight_stride};
        if (form.kernel == MOE_MLP_GROUP) {
            if (!test_failures_) launch(&up, &d, &g, 3);
            if (!test_failures_) launch(&down, &d, &b, 4);
        } else {
            struct moe_wgmma_params wg = wgmma_params(&g, &m, false), wb = wgmma_params(&b, &m, true);
            if (!test_failures_) launch(&up, &d, &wg, 3);
            if (!test_failures_) launch(&down, &d, &wb, 4);
            for (int i = 0; i < 2; i++) CHECK_INT(((uint32_t *)(i ? wb : wg).counter)[0] + ((uint32_t *)(i ? wb : wg).counter)[1], 0);
        }
        struct moe_combine_params cp = {.rows = b.y, .position = place.position, .weights = place.weights, .y = y, .y_stride = s.hidden, .tokens = s.tokens,
                                        .slices = slices};
        if (!test_failures_) launch(&combine, &d, &cp, 5);
    }
    if (!test_failures_) {
        struct moe_mlp_error error = moe_mlp_check(&data, c->act, c->gate_bias, c->down_bias, place.ids, place.weights, y, s.hidden, s.tokens);
        if (!(error.worst <= 1 && error.rms < (s.f16 ? 0.006 / 8 : 0.006)))
            test_failures_++, fprintf(stderr, "T=%d E=%d h=%d f=%d: worst %.3g of what is allowed, rms %.3g\n", s.tokens, s.experts, s.hidden, c->ffn, error.worst,
                                      error.rms);
    }
    simt_reset();
    moe_mlp_drop(&data);
}

/* One product after the other for few tokens: tails in k and n, k in pieces, one expert for all. */
TEST(few)
{
    run(&(struct test){.arch = "sm_90a", .route = {.tokens = 3, .experts = 10, .top_k = 3, .hidden = 72, .normalize = true, .accumulate = true}, .ffn = 104, .act = OP_ACT_SILU});
    run(&(struct test){.arch = "sm_90a", .route = {.tokens = 1, .experts = 40, .top_k = 8, .hidden = 1160, .score = OP_MOE_SIGMOID, .scale = 2.5f}, .ffn = 328, .act = OP_ACT_RELU2,
                       .gate_bias = true, .down_bias = true});
    run(&(struct test){.arch = "sm_120a", .route = {.tokens = 7, .experts = 5, .top_k = 1, .hidden = 2056, .accumulate = true, .alpha = 0.5f}, .ffn = 72, .act = OP_ACT_GELU_ERF,
                       .max_tokens = 8, .skew = MOE_ONE, .down_bias = true});
    run(&(struct test){.arch = "sm_100a", .route = {.tokens = 8, .experts = 24, .top_k = 5, .hidden = 64, .score = OP_MOE_SOFTMAX_AFTER}, .ffn = 40, .act = OP_ACT_GELU_TANH,
                       .skew = MOE_SKEWED});
}
/* Tiles of 16 places. */
TEST(tiles)
{
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_90a", .deterministic = true, .route = {.tokens = 3, .experts = 10, .top_k = 3, .hidden = 72, .normalize = true, .accumulate = true}, .ffn = 104,
                       .act = OP_ACT_SILU});
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_80", .deterministic = true, .route = {.tokens = 1, .experts = 40, .top_k = 8, .hidden = 136, .score = OP_MOE_SIGMOID, .scale = 2.5f}, .ffn = 40,
                       .act = OP_ACT_RELU2, .gate_bias = true, .down_bias = true});
}
/* One expert has more tokens than a tile, others none. */
TEST(skewed)
{
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_90a", .route = {.tokens = 40, .experts = 24, .top_k = 2, .hidden = 64, .score = OP_MOE_SOFTMAX_AFTER, .accumulate = true, .alpha = 0.25f},
                       .ffn = 136, .act = OP_ACT_GELU_TANH, .skew = MOE_SKEWED, .max_tokens = 70});
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_80", .deterministic = true, .route = {.tokens = 37, .experts = 16, .top_k = 2, .hidden = 72, .normalize = true}, .ffn = 64,
                       .act = OP_ACT_GELU_ERF, .skew = MOE_ONE, .gate_bias = true});
}
/* Tiles of 32, 64 and 128 places. */
TEST(many)
{
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_90a", .deterministic = true, .route = {.tokens = 50, .experts = 6, .top_k = 2, .hidden = 72, .normalize = true}, .ffn = 72, .act = OP_ACT_SILU});
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_80", .route = {.tokens = 90, .experts = 5, .top_k = 2, .hidden = 64, .normalize = true}, .ffn = 64, .act = OP_ACT_SILU, .skew = MOE_SKEWED});
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_120a", .route = {.tokens = 140, .experts = 4, .top_k = 2, .hidden = 200, .normalize = true}, .ffn = 72, .act = OP_ACT_RELU, .skew = MOE_SKEWED});
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_80", .route = {.tokens = 140, .experts = 2, .top_k = 1, .hidden = 64}, .ffn = 136, .act = OP_ACT_NONE, .down_bias = true});
}

/* Routing by many blocks. */
TEST(route_many)
{
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_80", .route = {.tokens = 270, .experts = 40, .top_k = 2, .hidden = 40, .normalize = true, .accumulate = true}, .ffn = 24,
                       .act = OP_ACT_SILU, .max_tokens = 280});
}
/* Hopper: one and two consumers of 64 places, an idle one, more tiles than blocks. */
TEST(wgmma)
{
    run(&(struct test){.kernel = MOE_MLP_WGMMA, .arch = "sm_90a", .route = {.tokens = 70, .experts = 4, .top_k = 2, .hidden = 72, .normalize = true, .accumulate = true},
                       .ffn = 136, .act = OP_ACT_SILU});
    run(&(struct test){.kernel = MOE_MLP_WGMMA, .arch = "sm_90a", .route = {.tokens = 230, .experts = 8, .top_k = 2, .hidden = 264, .normalize = true}, .ffn = 136, .act = OP_ACT_SILU,
                       .skew = MOE_SKEWED, .gate_bias = true, .down_bias = true, .max_tokens = 300});
}

/* Every product and the sums over experts in f16. */
TEST(f16)
{
    run(&(struct test){.arch = "sm_90a", .route = {.tokens = 3, .experts = 10, .top_k = 3, .hidden = 72, .normalize = true, .accumulate = true, .f16 = true}, .ffn = 104, .act = OP_ACT_SILU});
    run(&(struct test){.kernel = MOE_MLP_GROUP, .arch = "sm_80", .route = {.tokens = 90, .experts = 5, .top_k = 2, .hidden = 64, .normalize = true, .f16 = true}, .ffn = 64, .act = OP_ACT_SILU, .skew = MOE_SKEWED});
    run(&(struct test){.kernel = MOE_MLP_WGMMA, .arch = "sm_90a", .route = {.tokens = 70, .experts = 4, .top_k = 2, .hidden = 72, .normalize = true, .accumulate = true, .f16 = true},
                       .ffn = 136, .act = OP_ACT_SILU});
}

TEST(wrong_shapes)
{
    struct device_info d = device_of("sm_90a", 132);
    struct plan p;
    struct moe_mlp_shape s = {.tokens = 1, .max_tokens = 1, .experts = 128, .top_k = 8, .hidden = 2047, .ffn = 768};
    CHECK(moe_mlp_cuda_plan(&s, false, &d, &p, &err) == ROSE_UNSUPPORTED);
    s.hidden = 2048, s.experts = 1025;
    CHECK(moe_mlp_cuda_plan(&s, false, &d, &p, &err) == ROSE_UNSUPPORTED);
    s.experts = 128, s.tokens = 2;
    CHECK(moe_mlp_cuda_plan(&s, false, &d, &p, &err) == ROSE_UNSUPPORTED);
    s.max_tokens = INT32_MAX;
    CHECK(moe_mlp_cuda_plan(&s, false, &d, &p, &err) == ROSE_UNSUPPORTED);
}

/* Needs NVRTC, no GPU: Qwen3-30B-A3B and gpt-oss-20b, few and many tokens. */
TEST(compiles)
{
    static const char *const arches[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    static const size_t per_unit[] = {164 << 10, 100 << 10, 228 << 10, 228 << 10, 100 << 10}, per_block[] = {163 << 10, 99 << 10, 227 << 10, 227 << 10, 99 << 10};
    enum { MOST = 100 };
    const struct jit_kernel *kernels[MOST];
    struct jit *jit = NULL;
    int n = 0;
    CHECK_OK(jit_open(&(struct jit_options){.cache_dir = NVRTC_CACHE, .threads = 2}, &jit, &err), err);
    for (int a = 0; a < 5 && jit; a++)
        for (int i = 0; i < 7; i++) {
            struct device_info d = device_of(arches[a], 132);
            d.shared_per_block = per_block[a], d.shared_per_unit = per_unit[a];
            int tokens = (int[]){1, 8, 64, 128, 256, 640, 8192}[i];
            if (a != 2 && i != (int[]){0, 2, 0, 1, 1}[a] && i != 6 - a) continue;
            struct moe_cuda_shape r = {.tokens = tokens, .experts = 128, .top_k = 8, .hidden = 2048, .normalize = true, .accumulate = true};
            struct moe_mlp_shape m = {.tokens = tokens, .max_tokens = tokens, .experts = 128, .top_k = 8, .hidden = 2048, .ffn = 768, .activation = OP_ACT_SILU};
            if (i >= 3 && a != 2) r.experts = m.experts = 32, r.top_k = m.top_k = 4, r.hidden = m.hidden = m.ffn = 2880, m.gate_bias = m.down_bias = true;
            struct moe_mlp_route route;
            struct plan up, down;
            if (tokens <= 8) m.route = &r;
            r.pad = moe_mlp_cuda_form(&m, &d).tile;
            CHECK_OK(moe_mlp_cuda_plan_route(&r, &d, &route, &err), err);
            CHECK_OK(moe_mlp_cuda_plan(&m, false, &d, &up, &err), err);
            CHECK_OK(moe_mlp_cuda_plan(&m, true, &d, &down, &err), err);
            for (int l = 0; l < route.launches; l++) CHECK_OK(plan_request(&route.launch[l], jit, d.arch, &kernels[n++], &err), err);
            CHECK_OK(plan_request(&up, jit, d.arch, &kernels[n++], &err), err);
            CHECK_OK(plan_request(&down, jit, d.arch, &kernels[n++], &err), err);
        }
    CHECK_OK(jit_compile_all(jit, &err), err);
    for (int i = 0; i < n && !test_failures_; i++) {
        struct jit_info info = jit_info(kernels[i]);
        const struct jit_entry *e = &info.entries[0];
        CHECK_INT(info.entries_count, 1);
        if (e->stack_bytes > 0 || e->spill_stores > 0 || e->spill_loads > 0)
            test_failures_++, fprintf(stderr, "%s %s: stack %d, spills %d + %d\n", info.name, info.arch, (int)e->stack_bytes, (int)e->spill_stores, (int)e->spill_loads);
    }
    struct strbuf table = {0};
    jit_print_kernels(jit, &table);
    CHECK(table.n > 0 && !strstr(table.p, "failed"));
    if (test_failures_ || test_verbose_) printf("%s", table.p);
    strbuf_free(&table);
    jit_close(jit);
}

TEST_MAIN(CASE(few), CASE(tiles), CASE(skewed), CASE(many), CASE(route_many), CASE(wgmma), CASE(f16), CASE(wrong_shapes), CASE(compiles))
