/* op_norm, op_act, op_softcap, op_add, op_gather and the row part of op_qk against float64. */
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/norm.h"
#include "ops_fixture.h"

static const int widths[] = {1, 2, 7, 16, 31, 64, 100, 576, 1537};

/* fn(threads) for every instruction set and number of threads. */
static void everywhere(void (*fn)(int threads))
{
    for (int isa = 0; isa < 4; isa++) {
        if (!fixture_isa(isa)) continue;
        for (int t = 0; t < 4; t++) {
            int before = test_failures_;
            fixture_state = 5;
            fn(fixture_threads[t]);
            if (test_failures_ != before)
                fprintf(stderr, "  … on %s with %d threads\n", fixture_isas[isa], fixture_threads[t]);
        }
    }
    cpu_isa_select("auto", NULL);
}

static void norm_once(int threads, int rows, int cols, int kind, int options)
{
    bool has_weight = options & 1, has_bias = options & 2, has_add = options & 4, accumulate = options & 8,
         in_place = options & 16;
    int stride = cols + 5, offset = 3;
    size_t n = (size_t)rows * (size_t)stride;
    float *x = fixture_reals(n, 3), *y = fixture_reals(n, 1), *add = fixture_reals(n, 1),
          *w = fixture_reals((size_t)cols, 1);
    float *b = fixture_reals((size_t)cols, 1), *x0 = malloc(n * 4), *y0 = malloc(n * 4);
    if (in_place) memcpy(y, x, n * 4);
    memcpy(x0, x, n * 4), memcpy(y0, y, n * 4);
    struct device *d = fixture_device(threads);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    struct op_norm op = {.kind = (enum op_norm_kind)kind,
                         .eps = 1e-5f,
                         .weight_offset = options & 1 ? 1.0f : 0.0f,
                         .weight = has_weight ? w : NULL,
                         .bias = has_bias ? b : NULL,
                         .accumulate = accumulate,
                         .alpha = accumulate ? 0.5f : 0.0f};
    op.x = fixture_value(p, "x", x, rows, cols, stride, offset);
    op.y = in_place ? op.x : fixture_value(p, "y", y, rows, cols, stride, offset);
    if (has_add) op.add = fixture_value(p, "add", add, rows, cols, stride, offset);
    CHECK_OK(op_norm(p, &op, &err), err);
    fixture_run(p, rows, 1, 0);
    float *out = in_place ? x : y;
    double worst = 0;
    for (int r = 0; r < rows; r++) {
        double mean = 0, square = 0, v[2048];
        size_t at = (size_t)r * (size_t)stride + (size_t)offset;
        for (int i = 0; i < cols; i++) {
            v[i] = x0[at + (size_t)i];
            if (has_add) v[i] = (float)(x0[at + (size_t)i] + add[at + (size_t)i]);
            if (kind == OP_NORM_LAYER) mean += v[i] / cols;
        }
        for (int i = 0; i < cols; i++) square += (v[i] - mean) * (v[i] - mean) / cols;
        for (int i = 0; i < cols; i++) {
            double want = (v[i] - mean) / sqrt(square + 1e-5);
            if (has_weight) want *= 1.0 + w[i];
            if (has_bias) want += b[i];
            double base = in_place ? v[i] : y0[at + (size_t)i];
            if (accumulate) want = base + 0.5 * want;
            double e = fabs(want - out[at + (size_t)i]);
            if (!(e <= worst)) worst = e;
            if (has_add && !in_place) CHECK(x[at + (size_t)i] == (float)v[i]);
        }
        for (int i = 0; i < offset; i++)
            CHECK(out[(size_t)r * (size_t)stride + (size_t)i] ==
                  (in_place ? x0 : y0)[(size_t)r * (size_t)stride + (size_t)i]);
    }
    if (!(worst <= 1e-5))
        test_failures_++,
            fprintf(stderr, "norm %d x %d kind %d options %d: error %g\n", rows, cols, kind, options, worst);
    device_close(d);
    free(x), free(y), free(add), free(w), free(b), free(x0), free(y0);
}

static void norms(int threads)
{
    for (size_t i = 0; i < ROSE_COUNT(widths); i++)
        for (int kind = 0; kind < 2; kind++)
            for (int options = 0; options < 32; options += threads == 1 ? 1 : 5)
                norm_once(threads, 1 + (options + (int)i) % 4, widths[i], kind, options);
}
TEST(norm)
{
    everywhere(norms);
}

static double act_reference(int kind, double x)
{
    switch (kind) {
    case OP_ACT_SILU: return x / (1 + exp(-x));
    case OP_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case OP_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case OP_ACT_RELU: return x > 0 ? x : 0;
    case OP_ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x;
    }
}

static void acts(int threads)
{
    for (int kind = 0; kind <= OP_ACT_RELU2; kind++)
        for (int up = 0; up < 2; up++) {
            int cols = up ? 4100 : 77, rows = 3;
            size_t n = (size_t)(rows * cols);
            float *x = fixture_reals(n, 12), *u = fixture_reals(n, 1), *y = fixture_reals(n, 1);
            for (int i = 0; i < 40; i++) x[i] = (float)(i - 20) * 0.05f;
            x[40] = 200, x[41] = -200, x[42] = 0, x[43] = 1e30f, x[44] = -1e30f;
            if (kind == OP_ACT_RELU2) x[43] = 0;
            x[45] = NAN; /* hidden in no activation */
            struct device *d = fixture_device(threads);
            struct program *p = fixture_program(d);
            struct rose_error err = {0};
            struct op_act op = {.activation = (enum op_activation)kind};
            op.gate = fixture_value(p, "gate", x, rows, cols, cols, 0);
            if (up) op.up = fixture_value(p, "up", u, rows, cols, cols, 0);
            op.y = fixture_value(p, "y", y, rows, cols, cols, 0);
            CHECK_OK(op_act(p, &op, &err), err);
            fixture_run(p, rows, 1, 0);
            double worst = 0;
            CHECK(isnan(y[45]));
            for (size_t i = 0; i < n; i++) {
                if (i == 45) continue;
                double want = act_reference(kind, x[i]) * (up ? u[i] : 1),
                       e = fabs(want - y[i]) / (1 + fabs(want));
                if (!(e <= worst)) worst = e;
            }
            if (!(worst <= 1e-6)) test_failures_++, fprintf(stderr, "activation %d: error %g\n", kind, worst);
            device_close(d);
            free(x), free(u), free(y);
        }
}
TEST(act)
{
    everywhere(acts);
}

static void small_ops(int threads)
{
    enum { ROWS = 5, COLS = 5003 };
    size_t n = ROWS * COLS;
    float *x = fixture_reals(n, 90), *y = fixture_reals(n, 1), *z = fixture_reals(n, 1), *y0 = malloc(n * 4),
          *g = malloc(n * 4);
    memcpy(y0, y, n * 4);
    x[7] = NAN;
    int32_t index[ROWS] = {4, 0, 0, 2, 3};
    struct device *d = fixture_device(threads);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    struct op_value vx = fixture_value(p, "x", x, ROWS, COLS, COLS, 0),
                    vy = fixture_value(p, "y", y, ROWS, COLS, COLS, 0);
    struct op_value vz = fixture_value(p, "z", z, ROWS, COLS, COLS, 0),
                    vg = fixture_value(p, "g", g, ROWS, COLS, COLS, 0);
    CHECK_OK(op_softcap(p, &(struct op_softcap){vx, vz, 0.5f, 30.0f}, &err), err);
    CHECK_OK(op_add(p, &(struct op_add){.x = vx, .y = vy, .alpha = -0.25f}, &err), err);
    vg.rows = EXTENT_SAMPLES;
    CHECK_OK(
        op_gather(p, &(struct op_gather){program_external(p, "index", index, sizeof index), vx, vg}, &err),
        err);
    fixture_run(p, ROWS, 1, ROWS);
    CHECK(isnan(z[7]) && isnan(y[7]));
    for (size_t i = 0; i < n; i++) {
        if (i == 7) continue;
        CHECK_NEAR(z[i], 30 * tanh(0.5 * x[i] / 30), 5e-6);
        CHECK_NEAR(y[i], y0[i] - 0.25 * x[i], 2e-6);
    }
    for (int r = 0; r < ROWS; r++) CHECK(!memcmp(g + r * COLS, x + index[r] * COLS, COLS * 4));
    device_close(d);
    free(x), free(y), free(z), free(y0), free(g);
}
TEST(softcap_add_gather)
{
    everywhere(small_ops);
}

/* One head through norm and rotary embedding, in float64 with the angle rounded to float32 as transformers
 * does. */
static void qk_reference(double *x, int d, const float *w, bool after, int rope, int rot, const float *freq,
                         int position, double scale)
{
    for (int step = 0; step < 2; step++) {
        if ((step == 0) == !after) {
            double s = 0;
            for (int i = 0; i < d; i++) s += x[i] * x[i] / d;
            for (int i = 0; w && i < d; i++) x[i] *= (1.0 + w[i]) / sqrt(s + 1e-6);
        } else if (rope) {
            for (int i = 0; i < rot / 2; i++) {
                float angle = (float)position * freq[i];
                int a = rope == OP_ROPE_PAIRS ? 2 * i : i,
                    b = rope == OP_ROPE_PAIRS ? 2 * i + 1 : i + rot / 2;
                double c = cos((double)angle) * scale, s = sin((double)angle) * scale, u = x[a], v = x[b];
                x[a] = u * c - v * s;
                x[b] = v * c + u * s;
            }
        }
    }
}

static void qk_once(int threads, int d, int rot, int rope, bool after, bool norm, bool seq_freq, bool full)
{
    enum { ROWS = 7, HEADS = 4, KV = 2 };
    int qw = HEADS * d, kw = KV * d;
    float *q = fixture_reals((size_t)(ROWS * qw), 2), *k = fixture_reals((size_t)(ROWS * kw), 2),
          *q0 = malloc((size_t)(ROWS * qw) * 4);
    float *k0 = malloc((size_t)(ROWS * kw) * 4), *w = fixture_reals((size_t)qw, 1),
          *freq = malloc((size_t)(rot + 2) * 4);
    memcpy(q0, q, (size_t)(ROWS * qw) * 4), memcpy(k0, k, (size_t)(ROWS * kw) * 4);
    for (int i = 0; i < rot; i++)
        freq[i] = (float)pow(10000.0, -2.0 * (i % (rot / 2)) / rot) * (i < rot / 2 ? 1.0f : 0.5f);
    int32_t positions[ROWS] = {0, 1, 2, 1000, 8191, 131071, 1000000}, seq[ROWS] = {0, 0, 0, 1, 1, 1, 1};
    struct device *dev = fixture_device(threads);
    struct program *p = fixture_program(dev);
    struct rose_error err = {0};
    struct op_step step = {.groups = 0};
    step.positions = program_external(p, "positions", positions, sizeof positions);
    step.row_seq = program_external(p, "row_seq", seq, sizeof seq);
    step.seq_inv_freq = program_external(p, "freq", freq, 4);
    struct op_qk op = {.heads = {HEADS, KV, d, d},
                       .q_norm = norm ? w : NULL,
                       .k_norm = norm ? w : NULL,
                       .norm_eps = 1e-6f,
                       .norm_offset = 1,
                       .norm_full = full,
                       .norm_after_rope = after,
                       .rope = (enum op_rope_kind)rope,
                       .rotary_dim = rot,
                       .inv_freq = freq,
                       .seq_freq = seq_freq,
                       .rope_scale = 1.25f};
    op.q = fixture_value(p, "q", q, ROWS, qw, qw, 0);
    op.k = fixture_value(p, "k", k, ROWS, kw, kw, 0);
    CHECK_OK(op_qk(p, &step, NULL, &op, &err), err);
    fixture_run(p, ROWS, 2, 0);
    double worst = 0;
    for (int r = 0; r < ROWS; r++)
        for (int side = 0; side < 2; side++) {
            int heads = side ? KV : HEADS, width = heads * d;
            double x[4 * 512], square = 0;
            for (int i = 0; i < width; i++)
                x[i] = (side ? k0 : q0)[r * width + i], square += x[i] * x[i] / width;
            for (int i = 0; full && norm && i < width; i++) x[i] *= (1.0 + w[i]) / sqrt(square + 1e-6);
            for (int h = 0; h < heads; h++)
                qk_reference(x + h * d, d, norm && !full ? w : NULL, after, rope, rot,
                             freq + (seq_freq && seq[r] ? rot / 2 : 0), positions[r], 1.25);
            for (int i = 0; i < width; i++) {
                double e = fabs(x[i] - (side ? k : q)[r * width + i]);
                if (!(e <= worst)) worst = e;
            }
        }
    if (!(worst <= 4e-6))
        test_failures_++, fprintf(stderr, "qk d %d rot %d rope %d: error %g\n", d, rot, rope, worst);
    device_close(dev);
    free(q), free(k), free(q0), free(k0), free(w), free(freq);
}

static void qk_all(int threads)
{
    static const int dims[][2] = {{64, 64}, {80, 32}, {128, 96}, {96, 96}, {6, 4}, {512, 128}};
    for (size_t i = 0; i < ROSE_COUNT(dims); i++)
        for (int rope = 0; rope < 3; rope++)
            for (int o = 0; o < 8; o++)
                qk_once(threads, dims[i][0], dims[i][1], rope, (o & 1) && !(o == 7), o & 2, o & 4, o == 7);
}
TEST(qk_norm_and_rope)
{
    everywhere(qk_all);
}

TEST(wrong_values_are_sentences)
{
    struct device *d = fixture_device(1);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    float x[64];
    struct op_value v = fixture_value(p, "x", x, 1, 64, 64, 0);
    struct op_norm op = {.x = v, .y = v, .eps = 1e-5f};
    CHECK_INT(op_norm(p, &op, &err), ROSE_OK);
    op.y.cols = 32;
    CHECK_INT(op_norm(p, &op, &err), ROSE_INVALID);
    op.y = v, op.y.dtype = DTYPE_BF16;
    CHECK_INT(op_norm(p, &op, &err), ROSE_UNSUPPORTED);
    CHECK(strstr(err.message, "BF16") != NULL);
    op.y = (struct op_value){0};
    CHECK_INT(op_norm(p, &op, &err), ROSE_INVALID);
    program_close(p);
    device_close(d);
}

TEST_MAIN(CASE(norm), CASE(act), CASE(softcap_add_gather), CASE(qk_norm_and_rope),
          CASE(wrong_values_are_sentences))
