/* Experts in FP8 and block formats: the grouped products that read their codes and the decoder of panels, on the CPU harness against float64, as each
 * architecture's plan has them; and they compile for every architecture without spills. */
#include "../gpu/moe_coded_data.h"
#include "ops/matmul_blocks.h"
#include "ops/matmul_fp8.h"
#include "ops/moe_coded_cuda.h"
#include "simt.h"
#include "test.h"

static struct rose_error err;

static struct device_info device_of(const char *arch, int units)
{
    static const struct { const char *arch; size_t unit, block; } sizes[] = {
        {"sm_80", 164 << 10, 163 << 10}, {"sm_89", 100 << 10, 99 << 10}, {"sm_90a", 228 << 10, 227 << 10}, {"sm_100a", 228 << 10, 227 << 10}, {"sm_120a", 100 << 10, 99 << 10}};
    struct device_info d = {.kind = DEVICE_CUDA, .units = units, .l2_bytes = 50 << 20, .bandwidth = 4.8e12, .max_threads_per_unit = 2048, .cooperative = true};
    snprintf(d.arch, sizeof d.arch, "%s", arch);
    for (size_t i = 0; i < ROSE_COUNT(sizes); i++)
        if (!strcmp(sizes[i].arch, arch)) d.shared_per_unit = sizes[i].unit, d.shared_per_block = sizes[i].block;
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
                                                             .seed = seed},
                                       params);
    CHECK_SIMT_CLEAN(r);
}

struct test {
    const char *arch;
    struct moe_mlp_shape s;
    enum dtype gate, up;
    enum moe_coded_scales scales;
    bool down;
};

/* Experts' matrices as the kernels read them. */
static void *pack(const struct moe_coded *c, const char *name, struct op_weight *first)
{
    size_t stride = moe_coded_stride(c);
    char *bytes = calloc((size_t)c->experts, stride);
    for (int64_t e = 0; e < c->experts; e++) {
        struct tensor_scales scales;
        struct tensor t = moe_coded_expert(c, e, &scales);
        struct op_weight w;
        CHECK_OK(matmul_cuda_weight(&t, false, bytes + (size_t)e * stride, &w, &err), err);
        CHECK(matmul_cuda_weight_rows(&w, &t, 0, c->n, bytes + (size_t)e * stride));
        if (w.scales) matmul_fp8_scales(&t, (float *)(uintptr_t)w.scales);
        if (e == 0) *first = w;
    }
    void *out = simt_constant(name, stride * (size_t)c->experts, bytes);
    if (first->scales) first->scales = (const float *)(const void *)((const char *)out + ((const char *)first->scales - bytes));
    first->data = out;
    free(bytes);
    return out;
}

/* Rows of the experts' places against float64: y = act(gate x) up x, or weight x. */
static void run(const struct test *c)
{
    struct moe_mlp_shape s = c->s;
    struct device_info d = device_of(c->arch, 6);
    int32_t n = c->down ? s.hidden : s.ffn, k = c->down ? s.ffn : s.hidden;
    int matrices = c->down ? 1 : 2;
    struct moe_coded data[2];
    struct op_weight w[2];
    struct plan plan;
    uint64_t r = (uint64_t)s.tokens + 5;
    for (int i = 0; i < matrices; i++) data[i] = moe_coded_make(i ? c->up : c->gate, c->scales, s.experts, n, k, (uint64_t)i + 3);
    struct moe_coded_params p = {.weight_stride = (int64_t)moe_coded_stride(&data[0])};
    for (int i = 0; i < matrices; i++) p.weight[i] = pack(&data[i], i ? "up" : "gate", &w[i]), p.scale[i] = w[i].scales;
    s.up_format = s.down_format = moe_coded_format(&w[0]), s.up_scales = s.down_scales = w[0].scales_kind;
    int32_t tile = moe_coded_form(&s, &d).tile, picks = s.tokens * s.top_k;
    CHECK_OK(moe_coded_plan(&s, c->down, &d, &plan, &err), err);
    /* Picks go to the experts in turn, but for the last expert, which has none. */
    size_t places = (size_t)moe_mlp_cuda_places(&s, &d);
    int32_t *counts = calloc((size_t)s.experts, 4), *offsets = calloc((size_t)s.experts + 1, 4), *source = calloc(places, 4);
    for (int32_t i = 0; i < picks; i++) counts[i % (s.experts - 1)]++;
    for (int32_t e = 0; e < s.experts; e++) {
        offsets[e + 1] = offsets[e] + (counts[e] + tile - 1) / tile * tile;
        for (int32_t i = 0; i < counts[e]; i++) source[offsets[e] + i] = e + i * (s.experts - 1);
    }
    size_t x_rows = c->down ? places : (size_t)s.tokens, stride = (size_t)k + (c->down ? 0 : 8);
    uint16_t *x = malloc(x_rows * stride * 2);
    float *bias = malloc((size_t)(s.experts * n) * 4);
    moe_mlp_fill(x, x_rows * stride, 1, &r);
    for (int32_t i = 0; i < s.experts * n; i++) bias[i] = moe_random_f32(&r);
    p.x = simt_buffer("x", x_rows * stride * 2, x), p.x_stride = (int64_t)stride;
    p.source = simt_buffer("source", places * 4, source), p.counts = simt_buffer("counts", (size_t)s.experts * 4, counts);
    p.offsets = simt_buffer("offsets", (size_t)s.experts * 4 + 4, offsets);
    for (int i = 0; i < matrices; i++) p.bias[i] = simt_constant("bias", (size_t)(s.experts * n) * 4, bias);
    p.y = simt_buffer("y", places * (size_t)n * 2, NULL);
    launch(&plan, &d, &p, 7);
    float *row = malloc((size_t)k * 4);
    const uint16_t *y = p.y;
    int wrong = 0;
    for (int32_t e = 0; e < s.experts && !test_failures_; e++)
        for (int32_t i = 0; i < counts[e]; i += 1 + counts[e] / 5)
            for (int32_t at = 0; at < n; at += 1 + n / 37) {
                double v[2] = {0, 0}, size = 0;
                const uint16_t *of = x + (size_t)(c->down ? offsets[e] + i : source[offsets[e] + i] / s.top_k) * stride;
                for (int m = 0; m < matrices; m++) {
                    struct tensor_scales scales;
                    struct tensor t = moe_coded_expert(&data[m], e, &scales);
                    dtype_decode(t.dtype, (const char *)t.data + (size_t)at * dtype_row_bytes(t.dtype, (size_t)k), row, (size_t)k);
                    for (int32_t j = 0; j < k; j++) v[m] += (double)row[j] * (double)tensor_scale(&t, at, j) * moe_f32(of[j]), size += fabs((double)row[j] * (double)tensor_scale(&t, at, j));
                    if (c->down ? s.down_bias : s.gate_bias) v[m] += (double)bias[e * n + at];
                }
                double want = c->down ? v[0] : moe_mlp_activation(s.activation, v[0]) * v[1], got = moe_f32(y[(size_t)(offsets[e] + i) * (size_t)n + (size_t)at]);
                if (!(fabs(got - want) <= fabs(want) * 0x1p-8 + 2e-5 * size * (c->down ? 1 : fabs(v[0]) + fabs(v[1]) + 1)) && wrong++ < 5)
                    fprintf(stderr, "%s expert %d place %d column %d: %g, expected %g\n", c->arch, e, i, at, got, want);
            }
    CHECK_INT(wrong, 0);
    simt_reset();
    for (int i = 0; i < matrices; i++) moe_coded_drop(&data[i]);
    free(counts), free(offsets), free(source), free(x), free(bias), free(row);
}

#define SHAPE(t, e, k, h, f, ...) {.tokens = t, .max_tokens = t, .experts = e, .top_k = k, .hidden = h, .ffn = f, __VA_ARGS__}
/* Scales of blocks, rows and matrices; k and n with tails; k divided among warps; 8 to 64 places. */
TEST(fp8)
{
    run(&(struct test){.arch = "sm_90a", .s = SHAPE(1, 9, 2, 1040, 136, .activation = OP_ACT_SILU), .gate = DTYPE_F8_E4M3, .up = DTYPE_F8_E4M3});
    run(&(struct test){.arch = "sm_80", .s = SHAPE(30, 6, 2, 272, 40, .activation = OP_ACT_GELU_TANH, .gate_bias = true), .gate = DTYPE_F8_E4M3, .up = DTYPE_F8_E4M3, .scales = MOE_CODED_CHANNELS});
    run(&(struct test){.arch = "sm_120a", .s = SHAPE(70, 4, 2, 264, 144, .down_bias = true), .gate = DTYPE_F8_E4M3, .down = true, .scales = MOE_CODED_TENSOR});
    run(&(struct test){.arch = "sm_89", .s = SHAPE(9, 5, 2, 200, 528), .gate = DTYPE_F8_E4M3, .down = true});
    run(&(struct test){.arch = "sm_100a", .s = SHAPE(21, 3, 1, 144, 4304, .deterministic = true), .gate = DTYPE_F8_E4M3, .down = true});
}
TEST(blocks)
{
    run(&(struct test){.arch = "sm_90a", .s = SHAPE(1, 9, 2, 1056, 136, .activation = OP_ACT_SILU), .gate = DTYPE_Q4_0, .up = DTYPE_Q4_0});
    run(&(struct test){.arch = "sm_80", .s = SHAPE(30, 6, 2, 288, 40, .activation = OP_ACT_RELU2, .gate_bias = true), .gate = DTYPE_Q8_0, .up = DTYPE_Q8_0});
    run(&(struct test){.arch = "sm_120a", .s = SHAPE(40, 4, 2, 72, 256, .down_bias = true), .gate = DTYPE_Q6_K, .down = true});
    run(&(struct test){.arch = "sm_89", .s = SHAPE(9, 5, 2, 512, 72, .activation = OP_ACT_SILU), .gate = DTYPE_Q5_K, .up = DTYPE_Q5_K});
    run(&(struct test){.arch = "sm_100a", .s = SHAPE(2, 12, 3, 264, 1280), .gate = DTYPE_Q4_K, .down = true});
    run(&(struct test){.arch = "sm_90a", .s = SHAPE(70, 4, 1, 168, 96, .deterministic = true), .gate = DTYPE_MXFP4, .down = true});
    run(&(struct test){.arch = "sm_80", .s = SHAPE(5, 4, 2, 160, 24, .activation = OP_ACT_SILU), .gate = DTYPE_Q4_1, .up = DTYPE_Q4_1});
}

/* Panels have the very bits that a float32 decoder and one rounding give; matrices of experts without tokens are left out. */
TEST(panels)
{
    static const struct { const char *arch; enum dtype dtype; int32_t n, k; } list[] = {
        {"sm_80", DTYPE_Q4_0, 40, 96}, {"sm_89", DTYPE_Q4_1, 24, 320}, {"sm_90a", DTYPE_Q8_0, 16, 288}, {"sm_100a", DTYPE_MXFP4, 8, 64}, {"sm_120a", DTYPE_Q4_K, 72, 256},
        {"sm_90a", DTYPE_Q5_K, 24, 512}, {"sm_90a", DTYPE_Q6_K, 56, 256}};
    enum { EXPERTS = 3 };
    for (size_t i = 0; i < ROSE_COUNT(list); i++) {
        struct device_info d = device_of(list[i].arch, 6);
        struct moe_coded c = moe_coded_make(list[i].dtype, 0, EXPERTS, list[i].n, list[i].k, i + 1);
        struct op_weight w;
        struct plan plan;
        const int32_t counts[EXPERTS] = {4, 0, 1};
        size_t elements = (size_t)list[i].n * (size_t)list[i].k, stride = elements + 128;
        uint16_t *want = malloc(EXPERTS * elements * 2);
        struct moe_panel_params p = {.weight = pack(&c, "blocks", &w), .weight_stride = (int64_t)moe_coded_stride(&c), .y_stride = (int64_t)stride * 2, .experts = EXPERTS};
        CHECK_OK(moe_panel_plan(&(struct moe_panel_shape){.format = matmul_blocks_format(list[i].dtype), .n = list[i].n, .k = list[i].k, .experts = EXPERTS}, &d, &plan, &err), err);
        p.counts = simt_buffer("counts", sizeof counts, counts), p.y = simt_buffer("y", EXPERTS * stride * 2, NULL);
        launch(&plan, &d, &p, 3);
        moe_coded_values(&c, want);
        for (int e = 0; e < EXPERTS && !test_failures_; e++) {
            int wrong = 0;
            for (size_t at = 0; at < stride; at++) {
                uint16_t got = ((uint16_t *)p.y)[(size_t)e * stride + at], expected = at < elements && counts[e] ? want[(size_t)e * elements + at] : 0xffff;
                wrong += got != expected && (got | expected) != 0x8000;
            }
            CHECK_INT(wrong, 0);
        }
        simt_reset();
        moe_coded_drop(&c);
        free(want);
    }
}

TEST(wrong_shapes)
{
    struct device_info d = device_of("sm_90a", 132);
    struct plan p;
    struct moe_mlp_shape s = SHAPE(1, 8, 2, 100, 64, .up_format = 1 + BLOCKS_Q4_0);
    CHECK(moe_coded_plan(&s, false, &d, &p, &err) == ROSE_UNSUPPORTED);
    s.hidden = 264, s.up_format = 1 + MOE_FP8;
    CHECK(moe_coded_plan(&s, false, &d, &p, &err) == ROSE_UNSUPPORTED);
    s.up_format = 2 + MOE_FP8;
    CHECK(moe_coded_plan(&s, false, &d, &p, &err) == ROSE_INTERNAL);
    CHECK(moe_panel_plan(&(struct moe_panel_shape){.format = BLOCKS_Q4_K, .n = 8, .k = 128, .experts = 2}, &d, &p, &err) == ROSE_INVALID);
    CHECK(moe_panel_plan(&(struct moe_panel_shape){.format = BLOCKS_Q4_K, .n = 1 << 20, .k = 1 << 20, .experts = 200}, &d, &p, &err) == ROSE_UNSUPPORTED);
}

/* Needs NVRTC, no GPU: Qwen3-30B-A3B. */
TEST(compiles)
{
    static const char *const arches[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    enum { MOST = 200 };
    const struct jit_kernel *kernels[MOST];
    struct jit *jit = NULL;
    int n = 0;
    CHECK_OK(jit_open(&(struct jit_options){.cache_dir = NVRTC_CACHE, .threads = 2}, &jit, &err), err);
    for (int a = 0; a < 5 && jit; a++) {
        struct device_info d = device_of(arches[a], 132);
        for (int f = 0; f <= MOE_FP8; f++)
            for (int i = 0; i < 4; i++) {
                static const int tokens[] = {1, 32, 256, 600};
                struct moe_mlp_shape s = SHAPE(tokens[i], 128, 8, 2048, 768, .activation = OP_ACT_SILU, .up_format = 1 + f, .down_format = 1 + f, .up_scales = i % 2);
                struct moe_cuda_shape route = {.tokens = tokens[i], .experts = 128, .top_k = 8, .hidden = 2048, .normalize = true};
                struct plan plan;
                if (i < 2 && (a == 2 || (a > 2 && i == (a + f) % 2))) { /* one and eight tokens, which choose the experts too */
                    struct moe_mlp_shape few = s;
                    few.tokens = few.max_tokens = !i || f == MOE_FP8 ? 1 : f == BLOCKS_MXFP4 ? 4 : 8, few.route = &route;
                    for (int product = 0; product < 2; product++) {
                        if (f != MOE_FP8 && (product + f + i) % 2) continue;
                        CHECK_OK(moe_mlp_cuda_plan(&few, product, &d, &plan, &err), err);
                        CHECK_STR(plan.kernel, "moe_few_coded");
                        CHECK_OK(plan_request(&plan, jit, d.arch, &kernels[n++], &err), err);
                    }
                }
                if (a != 2 && i != (a + f) % 4) continue;
                if (f != MOE_FP8 && a == 2 && i != 0 && i != 3) continue; /* seconds each */
                bool down = a == 2 ? (i + f) % 2 : f % 2;
                CHECK_OK(moe_coded_plan(&s, down, &d, &plan, &err), err);
                CHECK_OK(plan_request(&plan, jit, d.arch, &kernels[n++], &err), err);
                if (f == MOE_FP8 && a == 2 && i >= 2) {
                    s.tile = i == 2 ? 64 : 128, s.gate_bias = i == 2;
                    for (int product = 0; product < 2; product++) {
                        CHECK_OK(moe_fp8_plan(&s, product, &d, &plan, &err), err);
                        CHECK_OK(plan_request(&plan, jit, d.arch, &kernels[n++], &err), err);
                    }
                }
                if (a == 2 && i == 3 && (f == BLOCKS_Q4_K || f == BLOCKS_Q6_K || f == BLOCKS_Q8_0)) {
                    s.tile = f == BLOCKS_Q6_K ? 64 : 128;
                    CHECK_OK(moe_blocks_wgmma_plan(&s, f == BLOCKS_Q8_0, &d, &plan, &err), err);
                    CHECK_OK(plan_request(&plan, jit, d.arch, &kernels[n++], &err), err);
                }
                if (f == MOE_FP8 || i) continue;
                CHECK_OK(moe_panel_plan(&(struct moe_panel_shape){.format = f, .n = 768, .k = 2048, .experts = 32}, &d, &plan, &err), err);
                CHECK_OK(plan_request(&plan, jit, d.arch, &kernels[n++], &err), err);
            }
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

TEST_MAIN(CASE(fp8), CASE(blocks), CASE(panels), CASE(wrong_shapes), CASE(compiles))
