/* op_moe_route and op_moe_mlp against float64: every kind of score, groups, biases, threads, rows alone and
 * together. */
#include <math.h>

#include "ops/moe.h"
#include "../kernels/weights_random.h"
#include "test.h"

enum { E = 12, TOP = 3, K = 64, FFN = 40, N = 50, T = 70 };

static struct rose_error err;

static struct device *open_device(int threads)
{
    struct device *d;
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = threads}, &d, &err), err);
    return d;
}

static void run(struct device *d, struct program *p, int rows)
{
    CHECK_OK(program_finish(p, NULL, 0, &err), err);
    struct extents e = {{1, rows, 1, 1}};
    CHECK_OK(device_submit(d, p, &e, &err), err);
    CHECK_OK(device_wait(d, NULL, &err), err);
}

/* The reference chooses by sorting; returns the chosen experts in order of falling score. */
static void reference_route(const struct op_moe_route *op, const float *logits, int *ids, double *weights)
{
    double score[E], choice[E], sum = 0;
    for (int e = 0; e < E; e++)
        score[e] = op->score == OP_MOE_SIGMOID ? 1 / (1 + exp(-(double)logits[e])) : exp((double)logits[e]);
    if (op->score != OP_MOE_SIGMOID) {
        for (int e = 0; e < E; e++) sum += score[e];
        for (int e = 0; e < E; e++) score[e] /= sum;
    }
    for (int e = 0; e < E; e++)
        choice[e] = score[e] + (op->selection_bias ? (double)op->selection_bias[e] : 0);
    if (op->groups > 1) {
        int size = E / op->groups;
        double value[E];
        for (int g = 0; g < op->groups; g++) {
            double a = -1e9, b = -1e9;
            for (int e = g * size; e < (g + 1) * size; e++)
                if (choice[e] > a)
                    b = a, a = choice[e];
                else if (choice[e] > b)
                    b = choice[e];
            value[g] = op->selection_bias ? a + b : a;
        }
        for (int e = 0; e < E; e++) {
            int better = 0;
            for (int g = 0; g < op->groups; g++) better += value[g] > value[e / size];
            if (better >= op->top_groups) choice[e] = -1e9;
        }
    }
    sum = 0;
    for (int i = 0; i < op->top_k; i++) {
        ids[i] = 0;
        for (int e = 1; e < E; e++)
            if (choice[e] > choice[ids[i]]) ids[i] = e;
        weights[i] = score[ids[i]];
        choice[ids[i]] = -1e10;
        sum += weights[i];
    }
    for (int i = 0; i < op->top_k; i++) {
        if (op->normalize || op->score == OP_MOE_SOFTMAX_AFTER) weights[i] /= sum;
        weights[i] *= op->scale != 0 ? (double)op->scale : 1;
    }
}

TEST(route)
{
    float bias[E], logits[T * (E + 2)];
    for (int i = 0; i < E; i++) bias[i] = random_float() * 0.3f;
    for (int i = 0; i < T * (E + 2); i++) logits[i] = random_float() * 3;
    for (int kind = 0; kind < 24; kind++) {
        struct device *d = open_device(1 + kind % 3);
        struct program *p;
        CHECK_OK(program_open(d, &p, &err), err);
        int32_t ids[T * TOP];
        float weights[T * TOP];
        struct op_moe_route op = {.experts = E,
                                  .top_k = TOP,
                                  .score = (enum op_moe_score)(kind % 3),
                                  .normalize = kind / 3 % 2,
                                  .scale = kind % 2 ? 2.5f : 0};
        if (kind / 6 % 2) op.selection_bias = bias;
        if (kind / 12) op.groups = 4, op.top_groups = 2;
        if (op.score == OP_MOE_SOFTMAX_AFTER) op.selection_bias = NULL;
        op.logits = (struct op_value){
            program_external(p, "logits", logits, sizeof logits), DTYPE_F32, EXTENT_ROWS, E, E + 2, 1};
        op.ids = program_external(p, "ids", ids, sizeof ids);
        op.weights = program_external(p, "weights", weights, sizeof weights);
        CHECK_OK(op_moe_route(p, &op, &err), err);
        run(d, p, T - 1);
        for (int r = 0; r < T - 1; r++) {
            int want_ids[TOP];
            double want[TOP];
            reference_route(&op, logits + r * (E + 2) + 1, want_ids, want);
            for (int i = 0; i < TOP; i++) {
                CHECK_INT(ids[r * TOP + i], want_ids[i]);
                CHECK_NEAR(weights[r * TOP + i], want[i], 1e-6);
            }
        }
        program_close(p);
        device_close(d);
    }
}

struct experts {
    struct op_weight gate[E], up[E], down[E];
    float gate_bias[E * FFN], up_bias[E * FFN], down_bias[E * N];
    float *decoded[3][E];
    void *memory[3 * E];
};

static void experts_make(struct experts *x, struct device *d, enum dtype dtype, enum dtype down)
{
    for (int e = 0; e < 3 * E; e++) {
        int kind = e / E, n = kind == 2 ? N : FFN, k = kind == 2 ? FFN : K;
        struct op_weight *w = (kind == 0 ? x->gate : kind == 1 ? x->up : x->down) + e % E;
        struct tensor t = {.dtype = kind == 2 ? down : dtype, .ndim = 2, .shape = {n, k}};
        void *source = random_weights(t.dtype, (size_t)n, (size_t)k);
        t.data = source;
        x->memory[e] = malloc(op_weight_bytes(d, &t) + 64);
        CHECK_OK(op_weight_pack(d, &t, x->memory[e], w, &err), err);
        x->decoded[kind][e % E] = malloc((size_t)n * (size_t)k * 4);
        dtype_decode(t.dtype, source, x->decoded[kind][e % E], (size_t)n * (size_t)k);
        free(source);
    }
    for (int i = 0; i < E * FFN; i++) x->gate_bias[i] = random_float(), x->up_bias[i] = random_float();
    for (int i = 0; i < E * N; i++) x->down_bias[i] = random_float();
}

static void experts_free(struct experts *x)
{
    for (int e = 0; e < 3 * E; e++) free(x->memory[e]), free(x->decoded[e / E][e % E]);
}

struct mlp_case {
    float x[T * K], y[T * N];
    int32_t ids[T * TOP];
    float weights[T * TOP];
};

static void mlp_run(const struct experts *x, struct device *d, struct mlp_case *c, int rows, bool bias)
{
    struct program *p;
    CHECK_OK(program_open(d, &p, &err), err);
    struct op_moe_mlp op = {.experts = E,
                            .top_k = TOP,
                            .gate = x->gate,
                            .up = x->up,
                            .down = x->down,
                            .activation = OP_ACT_SILU,
                            .accumulate = bias,
                            .alpha = 0.5f};
    if (bias) op.gate_bias = x->gate_bias, op.up_bias = x->up_bias, op.down_bias = x->down_bias;
    op.ids = program_external(p, "ids", c->ids, sizeof c->ids);
    op.weights = program_external(p, "weights", c->weights, sizeof c->weights);
    op.x = (struct op_value){program_external(p, "x", c->x, sizeof c->x), DTYPE_F32, EXTENT_ROWS, K, K, 0};
    op.y = (struct op_value){program_external(p, "y", c->y, sizeof c->y), DTYPE_F32, EXTENT_ROWS, N, N, 0};
    CHECK_OK(op_moe_mlp(p, &op, &err), err);
    run(d, p, rows);
    program_close(p);
}

static void reference_mlp(const struct experts *x, const struct mlp_case *c, int r, bool bias, double *y)
{
    for (int j = 0; j < TOP; j++) {
        int e = c->ids[r * TOP + j];
        if (e < 0 || e >= E) continue;
        double h[FFN];
        for (int f = 0; f < FFN; f++) {
            double g = bias ? (double)x->gate_bias[e * FFN + f] : 0,
                   u = bias ? (double)x->up_bias[e * FFN + f] : 0;
            for (int i = 0; i < K; i++) {
                g += (double)c->x[r * K + i] * (double)x->decoded[0][e][f * K + i];
                u += (double)c->x[r * K + i] * (double)x->decoded[1][e][f * K + i];
            }
            h[f] = g / (1 + exp(-g)) * u;
        }
        for (int o = 0; o < N; o++) {
            double v = bias ? (double)x->down_bias[e * N + o] : 0;
            for (int f = 0; f < FFN; f++) v += h[f] * (double)x->decoded[2][e][o * FFN + f];
            y[o] += 0.5 * (double)c->weights[r * TOP + j] * v;
        }
    }
}

TEST(mlp)
{
    static struct experts x;
    static struct mlp_case c, before;
    for (int kind = 0; kind < 4; kind++) { /* FFN = 40 is no whole block: down stays a float format */
        struct device *d = open_device(1 + kind);
        bool bias = kind % 2;
        experts_make(&x, d, kind < 2 ? DTYPE_F32 : DTYPE_BF16, kind < 2 ? DTYPE_F32 : DTYPE_F16);
        for (int i = 0; i < T * K; i++) c.x[i] = random_float() * 0.3f;
        for (int i = 0; i < T * N; i++) c.y[i] = random_float();
        for (int i = 0; i < T * TOP; i++)
            c.ids[i] = (int32_t)(random_u32() % (E - 1)),
            c.weights[i] = random_float(); /* the last expert idles */
        c.ids[4] = -1, c.ids[5] = E;       /* skipped */
        before = c;
        mlp_run(&x, d, &c, T - 1, bias);
        for (int r = 0; r < T; r++) {
            double want[N] = {0};
            if (bias || r == T - 1)
                for (int o = 0; o < N; o++) want[o] = (double)before.y[r * N + o];
            if (r < T - 1) reference_mlp(&x, &before, r, bias, want);
            for (int o = 0; o < N; o++) CHECK_NEAR(c.y[r * N + o], want[o], 2e-5 * (1 + fabs(want[o])));
        }
        experts_free(&x);
        device_close(d);
    }
}

/* Experts of many rows may take the bf16 path (AMX): near the float result, whatever the threads. */
static void many_rows(enum dtype dtype, enum dtype down)
{
    enum { ROWS = 300 };
    static struct experts x;
    static float xs[ROWS * K], y[2][ROWS * N], weights[ROWS * TOP];
    static int32_t ids[ROWS * TOP];
    struct device *devices[2] = {open_device(1), open_device(3)};
    experts_make(&x, devices[0], dtype, down);
    for (int i = 0; i < ROWS * K; i++) xs[i] = random_float() * 0.3f;
    for (int i = 0; i < ROWS * TOP; i++)
        ids[i] = (int32_t)(i % 3    ? random_u32() % 3 * 3 + 1
                           : i % 97 ? random_u32() % 3 * 3
                                    : random_u32() % 3 * 3 + 2) /* a third of the experts has few rows */,
        weights[i] = random_float();
    for (int t = 0; t < 2; t++) {
        struct program *p;
        CHECK_OK(program_open(devices[t], &p, &err), err);
        struct op_moe_mlp op = {.experts = E,
                                .top_k = TOP,
                                .gate = x.gate,
                                .up = x.up,
                                .down = x.down,
                                .activation = OP_ACT_SILU,
                                .gate_bias = x.gate_bias,
                                .up_bias = x.up_bias,
                                .down_bias = x.down_bias};
        op.ids = program_external(p, "ids", ids, sizeof ids);
        op.weights = program_external(p, "weights", weights, sizeof weights);
        op.x = (struct op_value){program_external(p, "x", xs, sizeof xs), DTYPE_F32, EXTENT_ROWS, K, K, 0};
        op.y =
            (struct op_value){program_external(p, "y", y[t], sizeof y[t]), DTYPE_F32, EXTENT_ROWS, N, N, 0};
        CHECK_OK(op_moe_mlp(p, &op, &err), err);
        run(devices[t], p, ROWS);
        program_close(p);
    }
    CHECK(!memcmp(y[0], y[1], sizeof y[0]));
    static struct mlp_case c;
    for (int r = 0; r < ROWS; r += 7) {
        double want[N] = {0}, size = 0, error = 0;
        memcpy(c.x, xs + r * K, K * 4), memcpy(c.ids, ids + r * TOP, TOP * 4),
            memcpy(c.weights, weights + r * TOP, TOP * 4);
        reference_mlp(&x, &c, 0, true, want);
        for (int o = 0; o < N; o++)
            size += 4 * want[o] * want[o],
                error += pow((double)y[0][r * N + o] - 2 * want[o], 2); /* the reference has alpha 0.5 */
        CHECK_NEAR(error / size, 0, 1e-3);
    }
    experts_free(&x);
    device_close(devices[0]);
    device_close(devices[1]);
}

TEST(mlp_many_rows)
{
    many_rows(DTYPE_Q4_0, DTYPE_BF16);
    many_rows(DTYPE_BF16, DTYPE_BF16);
}

/* Block formats: bits depend on neither threads nor the company of other rows; the result is near the float
 * one. */
TEST(mlp_blocks)
{
    static struct experts x;
    static struct mlp_case c, all;
    struct device *d = open_device(1), *d3 = open_device(3);
    experts_make(&x, d, DTYPE_Q4_1, DTYPE_F32);
    for (int i = 0; i < T * K; i++) c.x[i] = random_float() * 0.3f;
    for (int i = 0; i < T * TOP; i++) c.ids[i] = (int32_t)(random_u32() % E), c.weights[i] = random_float();
    all = c;
    mlp_run(&x, d, &all, T, false);
    for (int rows = 1; rows <= T; rows += 11) {
        mlp_run(&x, d3, &c, rows, false);
        CHECK(!memcmp(all.y, c.y, (size_t)rows * N * 4));
    }
    for (int r = 0; r < T; r += 9) {
        double want[N] = {0}, size = 0, error = 0;
        reference_mlp(&x, &c, r, false, want);
        for (int o = 0; o < N; o++)
            size += want[o] * want[o], error += pow((double)all.y[r * N + o] - want[o], 2);
        CHECK_NEAR(error / size, 0, 1e-3); /* 8-bit activations: 3% */
    }
    experts_free(&x);
    device_close(d);
    device_close(d3);
}

TEST(refused)
{
    struct device *d = open_device(1);
    struct program *p;
    CHECK_OK(program_open(d, &p, &err), err);
    float memory[64];
    program_buffer_id b = program_external(p, "b", memory, sizeof memory);
    struct op_moe_route good = {.experts = 8,
                                .top_k = 2,
                                .logits = {b, DTYPE_F32, EXTENT_ROWS, 8, 8, 0},
                                .ids = b,
                                .weights = b},
                        bad;
#define REFUSED(change)                                \
    do {                                               \
        bad = good;                                    \
        change;                                        \
        err.message[0] = 0;                            \
        CHECK(op_moe_route(p, &bad, &err) != ROSE_OK); \
        CHECK(err.message[0] != 0);                    \
    } while (0)
    REFUSED(bad.top_k = 9);
    REFUSED(bad.top_k = 0);
    REFUSED(bad.experts = 1 << 20);
    REFUSED(bad.ids = 0);
    REFUSED((bad.groups = 3, bad.top_groups = 1));
    REFUSED((bad.groups = 8, bad.top_groups = 1));
    REFUSED(bad.logits.cols = 7);
    struct op_moe_mlp mlp = {.experts = 8,
                             .top_k = 2,
                             .ids = b,
                             .weights = b,
                             .x = {b, DTYPE_F32, EXTENT_ROWS, 8, 8, 0},
                             .y = {b, DTYPE_F32, EXTENT_ROWS, 8, 8, 0}};
    CHECK(op_moe_mlp(p, &mlp, &err) != ROSE_OK);
    program_close(p);
    device_close(d);
}

TEST_MAIN(CASE(route), CASE(mlp), CASE(mlp_many_rows), CASE(mlp_blocks), CASE(refused))
