/* op_moe_route and op_moe_mlp recorded on the stand-in driver, with real programs, graphs and tensor maps: each form of the
 * routing and of the products, launch by launch and as a graph, against float64 (tests/gpu/gpu_moe.c does the same on a GPU). */
#include "test.h"

int gpu_moe_main(int argc, char **argv);
#define main gpu_moe_main
#include "../gpu/gpu_moe.c"
#undef main
#include "../simt/driver/driver.h"

static const char library[] = SIMT_DRIVER_DIR "/libsimt_fast.so";

static void begin(int index)
{
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CUDA, .driver = library, .index = index}, &dev_, &err_), err_);
    CHECK_OK(jit_open(&(struct jit_options){.nvrtc_path = library}, &jit_, &err_), err_);
    if (dev_) dev_->jit = jit_;
    passed_ = failed_ = 0;
}
static void end(int cases)
{
    CHECK_INT(failed_, 0);
    CHECK_INT(passed_, cases);
    if (dev_) device_close(dev_);
    jit_close(jit_);
    dev_ = NULL;
}
static struct shape shape(int tokens, int max_tokens)
{
    return (struct shape){.name = "small", .ffn = 72, .act = OP_ACT_SILU, .max_tokens = max_tokens,
                          .route = {.tokens = tokens, .experts = 20, .top_k = 4, .hidden = 136, .normalize = true, .accumulate = true, .alpha = 0.5f}};
}

TEST(few)
{
    begin(SIMT_DRIVER_SM90);
    struct shape a = shape(1, 4), b = shape(19, 0);
    check(&a, MOE_EVEN);
    b.bias = true;
    check(&b, MOE_SKEWED); /* chosen by moe_place */
    end(2);
}
TEST(wgmma)
{
    begin(SIMT_DRIVER_SM90);
    struct shape s = shape(300, 310); /* moe_route, moe_spread */
    check(&s, MOE_SKEWED);
    end(1);
}
TEST(tiles)
{
    begin(SIMT_DRIVER_SM80);
    struct shape a = shape(100, 0), b = shape(5, 0);
    check(&a, MOE_SKEWED); /* moe_pick, moe_place */
    b.deterministic = true;
    check(&b, MOE_ONE);
    end(2);
}

/* y of `rows` tokens of d from `first` on. */
static void run_rows(struct stack *k, const struct shape *s, const struct moe_mlp_data *d, size_t first, uint16_t *y)
{
    struct extents extents = {{0}};
    size_t t = (size_t)s->route.tokens, h = (size_t)s->route.hidden, e = (size_t)s->route.experts;
    extents.n[EXTENT_ONE] = 1, extents.n[EXTENT_ROWS] = s->route.tokens;
    if (!stack_open(k, s)) return;
    copy(k->x, d->x + first * h, t * h * 2), copy(k->y, d->y + first * h, t * h * 2), copy(k->layer[0].logits, d->logits + first * e, t * e * 4);
    ok(device_submit(dev_, k->program, &extents, &err_)), ok(device_wait(dev_, NULL, &err_));
    copy(y, k->y, t * h * 2);
    stack_close(k);
}

/* A row's bits are the same alone (narrow tiles of 16 places) and among others (tiles of 64). */
TEST(deterministic)
{
    enum { H = 136, F = 72, E = 20, T = 150 };
    begin(SIMT_DRIVER_SM90);
    struct shape many = shape(T, 0), one = shape(1, 0);
    struct stack k = {0};
    many.deterministic = one.deterministic = true;
    struct moe_mlp_data d = moe_mlp_make(&many.route, F, MOE_SKEWED, 3);
    static uint16_t all[T * H], alone[H];
    stack_weights(&k, 1, E, H, F);
    for (int w = 0; w < 3; w++) copy(k.layer[0].weight[w], d.weight[w], k.weights * 2);
    run_rows(&k, &many, &d, 0, all);
    for (size_t row = 0; row < T; row += 149) {
        run_rows(&k, &one, &d, row, alone);
        CHECK(!memcmp(alone, all + row * H, sizeof alone));
    }
    stack_drop_weights(&k, E, H, F);
    moe_mlp_drop(&d);
    end(0);
}

/* Weights at uneven distances, and a product without its route, are refused in words. */
TEST(refused)
{
    begin(SIMT_DRIVER_SM80);
    struct shape s = shape(2, 0);
    struct stack k = {0};
    stack_weights(&k, 1, 20, 136, 72);
    k.layer[0].experts[1][7].data = (char *)k.layer[0].experts[1][7].data + 256;
    CHECK(!stack_open(&k, &s));
    CHECK(strstr(err_.message, "constant distance") != NULL);
    struct op_moe_mlp mlp = {.experts = 20, .top_k = 4, .gate = k.layer[0].experts[0], .up = k.layer[0].experts[1], .down = k.layer[0].experts[2],
                             .ids = program_buffer(k.program, "ids", 32), .weights = program_buffer(k.program, "weights", 32),
                             .x = {program_buffer(k.program, "x", 544), DTYPE_BF16, EXTENT_ROWS, 136, 136, 0}};
    mlp.y = mlp.x, mlp.y.buffer = program_buffer(k.program, "y", 544);
    CHECK(op_moe_mlp(k.program, &mlp, &err_) == ROSE_INTERNAL);
    CHECK(strstr(err_.message, "no op_moe_route") != NULL);
    stack_close(&k);
    stack_drop_weights(&k, 20, 136, 72);
    failed_ = 0; /* what was refused */
    end(0);
}

/* Experts in the formats of their files: products that read codes (1 to 64 places a tile, k divided or not), and panels of bf16. */
TEST(coded)
{
    static const enum dtype types[][3] = {{DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F8_E4M3}, {DTYPE_Q4_0, DTYPE_Q4_0, DTYPE_Q8_0}, {DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K},
                                          {DTYPE_Q5_K, DTYPE_Q4_K, DTYPE_Q5_K}, {DTYPE_MXFP4, DTYPE_MXFP4, DTYPE_NONE}, {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q4_1}};
    static const int tokens[] = {1, 8, 40, 90, 200};
    for (int sm = 0; sm < 2; sm++) {
        begin(sm ? SIMT_DRIVER_SM90 : SIMT_DRIVER_SM80);
        int cases = 0;
        for (size_t i = 0; i < ROSE_COUNT(types); i++)
            for (size_t j = 0; j < ROSE_COUNT(tokens); j++) {
                if ((i + j) % 2 != (size_t)sm || (j > 2 && i % 3 != j % 3)) continue; /* many tokens: each form once for codes, blocks, larger blocks */
                struct shape s = shape(tokens[j], j % 2 ? 0 : tokens[j] + 3);
                bool super = i == 2 || i == 3;
                s.route.experts = 12, s.route.hidden = super ? 256 : 160, s.ffn = super ? 256 : i == 4 ? 32 : 192;
                if (i == 0) s.route.hidden = 144, s.ffn = 272, s.scales = (enum moe_coded_scales)(j % 3);
                s.bias = j % 2, s.deterministic = i == 1 && j == 2;
                memcpy(s.types, types[i], sizeof s.types);
                check(&s, (enum moe_skew)(j % 3));
                cases++;
            }
        end(cases);
    }
}

/* Hopper decodes blocks within the products of 24 to 160 rows an expert: tiles of 64 and 128 places, whole chunks of k and tails. */
TEST(decoded)
{
    static const enum dtype types[][3] = {{DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K}, {DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_MXFP4}, {DTYPE_Q5_K, DTYPE_Q5_K, DTYPE_Q4_0}};
    begin(SIMT_DRIVER_SM90);
    for (int i = 0; i < 3; i++) { /* the last one's gate and up become panels */
        struct shape s = shape(i ? 150 : 80, 0);
        s.route.experts = 12, s.route.hidden = i == 1 ? 160 : 256, s.ffn = i == 1 ? 192 : 256, s.bias = i != 1;
        memcpy(s.types, types[i], sizeof s.types);
        check(&s, (enum moe_skew)i);
    }
    end(3);
}

/* Few tokens choose the experts within the products (FP8 one, MXFP4 four at most): all formats, pieces of k, tails. */
TEST(coded_few)
{
    begin(SIMT_DRIVER_SM90);
    for (int i = 0; i < 9; i++) {
        static const enum dtype types[] = {DTYPE_F8_E4M3, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_F8_E4M3};
        struct shape s = shape((int[]){1, 3, 8}[i % 3], i % 2 ? 0 : 8);
        bool super = i >= 5 && i < 8;
        s.route.experts = 12, s.route.hidden = super ? 768 : 288 + i * 32, s.ffn = super ? 256 : i == 4 ? 1056 : i % 4 == 0 ? 272 : 96;
        s.bias = i % 2, s.scales = i ? MOE_CODED_CHANNELS : MOE_CODED_BLOCKS;
        if (i == 3) s.route.tokens = 1, s.max_tokens = 1, s.route.hidden = 6144, s.ffn = 24 * 32;
        if (i == 4) s.max_tokens = 4;
        if (i == 8) s.route.tokens = s.max_tokens = 1;
        for (int w = 0; w < 3; w++) s.types[w] = types[i];
        check(&s, (enum moe_skew)(i % 3));
    }
    end(9);
}

/* Quantised activations on Hopper: scales of blocks and channels, waves with and without places, more tiles than blocks. */
TEST(coded_wgmma)
{
    begin(SIMT_DRIVER_SM90);
    for (int i = 0; i < 3; i++) {
        struct shape s = shape((int[]){60, 150, 100}[i], i ? 0 : 70);
        s.route.experts = (int[]){8, 9, 6}[i], s.route.hidden = i ? 256 : 384, s.ffn = i == 1 ? 384 : 128, s.bias = i == 1, s.scales = (enum moe_coded_scales)i, s.route.accumulate = i == 1;
        for (int w = 0; w < 3; w++) s.types[w] = DTYPE_F8_E4M3;
        check(&s, i == 2 ? MOE_ONE : i ? MOE_SKEWED : MOE_EVEN);
    }
    end(3);
}

TEST_MAIN(CASE(few), CASE(wgmma), CASE(tiles), CASE(deterministic), CASE(refused), CASE(coded), CASE(decoded), CASE(coded_few), CASE(coded_wgmma))
