/* op_matmul, op_embed and op_gather through programs: parts, gates, residuals, offsets, refusals. */
#include <math.h>

#include "ops/embed.h"
#include "ops/matmul.h"
#include "../kernels/weights_random.h"
#include "test.h"

enum { K = 96, N = 40, T = 7 };

struct fixture {
    struct device *device;
    struct program *program;
    struct rose_error err;
    float x[T * (K + 8)];
    program_buffer_id xb;
    struct op_value xv;
};

static void fixture_open(struct fixture *f, int threads)
{
    memset(f, 0, sizeof *f);
    struct device_options options = {.kind = DEVICE_CPU, .threads = threads};
    CHECK_OK(device_open(&options, &f->device, &f->err), f->err);
    CHECK_OK(program_open(f->device, &f->program, &f->err), f->err);
    for (size_t i = 0; i < ROSE_COUNT(f->x); i++) f->x[i] = random_float();
    f->xb = program_external(f->program, "x", f->x, sizeof f->x);
    f->xv = (struct op_value){f->xb, DTYPE_F32, EXTENT_ROWS, K, K + 8, 4};
}

static void fixture_run(struct fixture *f, int rows)
{
    CHECK_OK(program_finish(f->program, NULL, 0, &f->err), f->err);
    struct extents e = {{1, rows, 1, 2}};
    CHECK_OK(device_submit(f->device, f->program, &e, &f->err), f->err);
    CHECK_OK(device_wait(f->device, NULL, &f->err), f->err);
}

static void fixture_close(struct fixture *f)
{
    program_close(f->program);
    device_close(f->device);
}

struct matrix {
    struct op_weight weight;
    void *source, *memory;
    float *decoded; /* [n, k] */
};

static struct matrix matrix_make(struct fixture *f, enum dtype dtype, int n, int k)
{
    struct matrix m = {.source = random_weights(dtype, (size_t)n, (size_t)k)};
    struct tensor t = {.dtype = dtype, .ndim = 2, .shape = {n, k}, .data = m.source};
    size_t bytes = op_weight_bytes(f->device, &t);
    CHECK(bytes > 0);
    m.memory = device_alloc(f->device, bytes, DEVICE_MEMORY_LOCAL, &f->err);
    CHECK_OK(op_weight_pack(f->device, &t, m.memory, &m.weight, &f->err), f->err);
    m.decoded = malloc((size_t)n * (size_t)k * sizeof(float));
    for (int r = 0; r < n; r++) op_weight_row(&m.weight, r, m.decoded + (size_t)r * (size_t)k);
    return m;
}

static void matrix_free(struct fixture *f, struct matrix *m)
{
    device_free(f->device, m->memory, m->weight.bytes, DEVICE_MEMORY_LOCAL);
    free(m->source);
    free(m->decoded);
}

static double dot(const struct fixture *f, const struct matrix *m, int row, int out)
{
    double sum = 0;
    for (int i = 0; i < K; i++) sum += (double)f->x[row * (K + 8) + 4 + i] * (double)m->decoded[out * K + i];
    return sum;
}

/* q, k, v into columns of one buffer, with biases, and a residual with alpha. */
TEST(parts_bias_residual)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct fixture f;
        fixture_open(&f, threads);
        static const int widths[3] = {N, 16, 5};
        struct matrix m[3];
        float bias[N], y[T * 70], before[T * 70];
        for (int i = 0; i < 3; i++) m[i] = matrix_make(&f, DTYPE_F32, widths[i], K);
        for (int i = 0; i < N; i++) bias[i] = random_float();
        for (int i = 0; i < T * 70; i++) y[i] = before[i] = random_float();
        program_buffer_id yb = program_external(f.program, "y", y, sizeof y);
        struct op_value all = {yb, DTYPE_F32, EXTENT_ROWS, 61, 70, 3};
        struct op_matmul op = {.name = "qkv", .x = f.xv, .parts_count = 3, .accumulate = true, .alpha = 0.5f};
        for (int i = 0, at = 0; i < 3; at += widths[i++])
            op.parts[i] =
                (struct op_matmul_part){&m[i].weight, i == 1 ? NULL : bias, op_slice(all, at, widths[i])};
        CHECK_OK(op_matmul(f.program, &op, &f.err), f.err);
        fixture_run(&f, T - 1);
        for (int r = 0; r < T; r++)
            for (int c = 0, part = 0, at = 0; c < 61; c++) {
                if (c - at == widths[part]) at += widths[part++];
                double want = (double)before[r * 70 + 3 + c];
                if (r < T - 1)
                    want += 0.5 * (dot(&f, &m[part], r, c - at) + (part == 1 ? 0 : (double)bias[c - at]));
                CHECK_NEAR(y[r * 70 + 3 + c], want, 2e-5);
            }
        for (int r = 0; r < T; r++)
            CHECK(y[r * 70 + 2] == before[r * 70 + 2] && y[r * 70 + 64] == before[r * 70 + 64]);
        for (int i = 0; i < 3; i++) matrix_free(&f, &m[i]);
        fixture_close(&f);
    }
}

static double activate(enum op_activation a, double x)
{
    switch (a) {
    case OP_ACT_SILU: return x / (1 + exp(-x));
    case OP_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case OP_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    case OP_ACT_RELU: return x > 0 ? x : 0;
    case OP_ACT_RELU2: return x > 0 ? x * x : 0;
    default: return x;
    }
}

TEST(gates)
{
    for (int a = OP_ACT_NONE; a <= OP_ACT_RELU2; a++)
        for (int gated = 0; gated < 2; gated++) {
            struct fixture f;
            fixture_open(&f, 2);
            struct matrix gate = matrix_make(&f, DTYPE_F32, N, K), up = matrix_make(&f, DTYPE_BF16, N, K);
            float bias[2][N], y[T * N];
            for (int i = 0; i < N; i++) bias[0][i] = random_float(), bias[1][i] = random_float();
            bias[0][5] = NAN; /* hidden in no activation */
            program_buffer_id yb = program_external(f.program, "y", y, sizeof y);
            struct op_value yv = {yb, DTYPE_F32, EXTENT_ROWS, N, N, 0};
            struct op_matmul op = {.name = "mlp",
                                   .x = f.xv,
                                   .parts_count = gated ? 2 : 1,
                                   .gated = gated,
                                   .activation = (enum op_activation)a};
            op.parts[0] = (struct op_matmul_part){&gate.weight, bias[0], yv};
            op.parts[1] = (struct op_matmul_part){&up.weight, bias[1], {0}};
            CHECK_OK(op_matmul(f.program, &op, &f.err), f.err);
            fixture_run(&f, T);
            for (int r = 0; r < T; r++)
                for (int c = 0; c < N; c++) {
                    if (c == 5) {
                        CHECK(isnan(y[r * N + c]));
                        continue;
                    }
                    double want = activate((enum op_activation)a, dot(&f, &gate, r, c) + (double)bias[0][c]);
                    double factor = gated ? dot(&f, &up, r, c) + (double)bias[1][c] : 1;
                    CHECK_NEAR(y[r * N + c], want * factor, 3e-5 * (1 + fabs(want)) * (1 + fabs(factor)));
                }
            matrix_free(&f, &gate);
            matrix_free(&f, &up);
            fixture_close(&f);
        }
}

/* Workers share the weights of few rows and the rows of many: the same bits whatever their number. */
TEST(threads_and_rows)
{
    enum { MOST = 70 };
    static const enum dtype types[] = {DTYPE_Q4_1, DTYPE_Q8_0, DTYPE_BF16};
    static float x[MOST * K], want[MOST * N], y[MOST * N];
    for (size_t i = 0; i < ROSE_COUNT(x); i++) x[i] = random_float();
    for (size_t t = 0; t < ROSE_COUNT(types); t++) {
        bool bf16 = types[t] == DTYPE_BF16; /* of its many rows bfloat16 is taken: x that has no more bits is multiplied exactly whatever is done with it */
        for (size_t i = 0; bf16 && i < ROSE_COUNT(x); i++) x[i] = rintf(x[i] * 128) / 128;
        for (int rows = 15; rows <= MOST; rows += rows < 20 ? 1 : 10) {
            struct matrix m = {0};
            uint64_t state = random_state;
            for (int threads = 1; threads <= 5; threads++) {
                struct fixture f;
                fixture_open(&f, threads);
                random_state = state; /* the same weights for every number of threads */
                m = matrix_make(&f, types[t], N, K);
                memset(y, 0x7F, sizeof y);
                program_buffer_id xb = program_external(f.program, "rows", x, sizeof x), yb = program_external(f.program, "y", y, sizeof y);
                struct op_matmul op = {.name = "many", .x = {xb, DTYPE_F32, EXTENT_ROWS, K, K, 0}, .parts_count = 1,
                                       .parts = {{&m.weight, NULL, {yb, DTYPE_F32, EXTENT_ROWS, N, N, 0}}}};
                CHECK_OK(op_matmul(f.program, &op, &f.err), f.err);
                fixture_run(&f, rows);
                if (threads == 1) memcpy(want, y, sizeof want);
                for (int r = 0; threads == 1 && r < rows; r++)
                    for (int c = 0; c < N; c++) { /* activations of blocks may be rounded to 8 bits */
                        double sum = 0, size = 0;
                        for (int i = 0; i < K; i++) {
                            double v = (double)x[r * K + i] * (double)m.decoded[c * K + i];
                            sum += v, size += v * v;
                        }
                        CHECK_NEAR(y[r * N + c], sum, 1e-5 + (bf16 ? 0 : 0.02 * sqrt(size)));
                    }
                CHECK(!memcmp(want, y, sizeof want));
                matrix_free(&f, &m);
                fixture_close(&f);
            }
        }
    }
}

/* Memory that holds what was packed is taken as it is, anything else is noticed. */
TEST(adopted)
{
    static const enum dtype types[] = {DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_F16};
    for (size_t t = 0; t < ROSE_COUNT(types); t++) {
        struct fixture f;
        fixture_open(&f, 1);
        int k = types[t] == DTYPE_Q6_K ? 256 : K, groups = (N + 15) / 16;
        struct matrix m = matrix_make(&f, types[t], N, k);
        struct tensor source = {.dtype = types[t], .ndim = 2, .shape = {N, k}, .data = m.source};
        struct op_weight again;
        for (size_t sample = 0; sample < 7; sample++) {
            memset(&again, 0, sizeof again);
            CHECK(op_weight_adopt(f.device, &source, m.memory, sample, &again));
            CHECK(again.dtype == m.weight.dtype && again.n == m.weight.n && again.k == m.weight.k && again.data == m.weight.data &&
                  again.layout == m.weight.layout && again.bytes == m.weight.bytes && again.bytes_read == m.weight.bytes_read);
        }
        for (int g = 0; g < groups; g++) { /* a changed byte is found by its group's sample and by no other */
            uint8_t *byte = (uint8_t *)m.memory + m.weight.bytes / (size_t)groups * (size_t)g + 70;
            *byte ^= 1;
            for (int sample = 0; sample < groups; sample++) CHECK_INT(op_weight_adopt(f.device, &source, m.memory, (size_t)sample, &again), sample != g);
            *byte ^= 1;
        }
        matrix_free(&f, &m);
        fixture_close(&f);
    }
}

TEST(embedding)
{
    struct fixture f;
    fixture_open(&f, 3);
    struct matrix table = matrix_make(&f, DTYPE_Q8_0, 50, K), types = matrix_make(&f, DTYPE_F16, 3, K);
    int32_t tokens[T] = {0, 49, 17, 17, -1, 50, 31}, kinds[T] = {0, 1, 0, 1, 0, 0, 1}, chosen[2] = {3, 1};
    float y[T * K], z[2 * K];
    program_buffer_id tb = program_external(f.program, "tokens", tokens, sizeof tokens),
                      kb = program_external(f.program, "kinds", kinds, sizeof kinds);
    program_buffer_id yb = program_external(f.program, "y", y, sizeof y),
                      zb = program_external(f.program, "z", z, sizeof z);
    program_buffer_id cb = program_external(f.program, "chosen", chosen, sizeof chosen);
    struct op_value yv = {yb, DTYPE_F32, EXTENT_ROWS, K, K, 0}, zv = {zb, DTYPE_F32, EXTENT_SAMPLES, K, K, 0};
    CHECK_OK(op_embed(f.program, &(struct op_embed){.table = &table.weight, .index = tb, .y = yv, .scale = 3},
                      &f.err),
             f.err);
    CHECK_OK(
        op_embed(f.program,
                 &(struct op_embed){
                     .table = &types.weight, .index = kb, .y = yv, .accumulate = true, .index_offset = 1},
                 &f.err),
        f.err);
    CHECK_OK(op_gather(f.program, &(struct op_gather){.index = cb, .x = yv, .y = zv}, &f.err), f.err);
    fixture_run(&f, T);
    for (int r = 0; r < T; r++)
        for (int c = 0; c < K; c++) {
            bool inside = tokens[r] >= 0 && tokens[r] < 50;
            float want = inside ? table.decoded[tokens[r] * K + c] * 3 : 0;
            CHECK_NEAR(y[r * K + c], want + types.decoded[(kinds[r] + 1) * K + c], 1e-6);
        }
    CHECK(!memcmp(z, y + 3 * K, K * 4) && !memcmp(z + K, y + 1 * K, K * 4));
    matrix_free(&f, &table);
    matrix_free(&f, &types);
    fixture_close(&f);
}

/* Tables in the file's order, of every type that has rows: the rows of packed ones; adopted only where they are what the file holds. */
TEST(tables_of_rows)
{
    enum { V = 50 };
    for (int d = 0; d < WEIGHT_DTYPES; d++) {
        enum dtype type = weight_dtypes[d];
        int k = dtype_info(type)->block == 256 ? 512 : K;
        struct fixture f;
        fixture_open(&f, 3);
        struct matrix packed = matrix_make(&f, type, V, k);
        struct tensor t = {.dtype = type, .ndim = 2, .shape = {V, k}, .data = packed.source};
        struct op_weight table, again;
        size_t bytes = op_table_bytes(f.device, &t);
        CHECK_INT(bytes, V * dtype_row_bytes(type, (size_t)k));
        char *memory = malloc(bytes);
        CHECK_OK(op_table_pack(f.device, &t, memory, &table, &f.err), f.err);
        CHECK_INT(table.bytes, bytes);
        CHECK(op_table_adopt(f.device, &t, memory, 7, &again) && again.data == memory && again.layout == table.layout && again.n == V && again.k == k);
        memory[bytes / V * 7 + 3] ^= 1;
        CHECK(!op_table_adopt(f.device, &t, memory, 7 + V, &again) && op_table_adopt(f.device, &t, memory, 8, &again));
        memory[bytes / V * 7 + 3] ^= 1;
        int32_t tokens[T] = {0, V - 1, 17, 17, -1, V, 31};
        float *y[2], *z[2];
        for (int which = 0; which < 2; which++) {
            y[which] = malloc(sizeof(float) * T * 512), z[which] = malloc(sizeof(float) * T * 512);
            for (int i = 0; i < T * 512; i++) z[which][i] = (float)i;
        }
        program_buffer_id tb = program_external(f.program, "tokens", tokens, sizeof tokens);
        for (int which = 0; which < 2; which++) {
            const struct op_weight *w = which ? &table : &packed.weight;
            program_buffer_id yb = program_external(f.program, "y", y[which], sizeof(float) * T * 512), zb = program_external(f.program, "z", z[which], sizeof(float) * T * 512);
            struct op_value yv = {yb, DTYPE_F32, EXTENT_ROWS, k, 512, 0}, zv = {zb, DTYPE_F32, EXTENT_ROWS, k, 512, 0};
            CHECK_OK(op_embed(f.program, &(struct op_embed){.table = w, .index = tb, .y = yv, .scale = 3}, &f.err), f.err);
            CHECK_OK(op_embed(f.program, &(struct op_embed){.table = w, .index = tb, .y = zv, .accumulate = true}, &f.err), f.err);
        }
        fixture_run(&f, T);
        for (int r = 0; r < T; r++)
            for (int c = 0; c < k; c++) {
                float row = tokens[r] >= 0 && tokens[r] < V ? packed.decoded[tokens[r] * k + c] : 0;
                CHECK(y[0][r * 512 + c] == 3 * row && y[1][r * 512 + c] == 3 * row);
                CHECK(z[0][r * 512 + c] == (float)(r * 512 + c) + row && z[1][r * 512 + c] == z[0][r * 512 + c]);
            }
        struct op_matmul product = {.name = "product", .x = op_slice(f.xv, 0, K), .parts_count = 1, .parts = {{&table, NULL, {1, DTYPE_F32, EXTENT_ROWS, V, V, 0}}}};
        CHECK(op_matmul(f.program, &product, &f.err) != ROSE_OK); /* nothing multiplies it */
        for (int which = 0; which < 2; which++) free(y[which]), free(z[which]);
        free(memory);
        matrix_free(&f, &packed);
        fixture_close(&f);
    }
    struct fixture f;
    fixture_open(&f, 1);
    struct tensor t = {.dtype = DTYPE_F8_E4M3, .ndim = 2, .shape = {V, 128}, .data = f.x};
    struct op_weight w;
    CHECK_INT(op_table_bytes(f.device, &t), 0);
    CHECK(op_table_pack(f.device, &t, f.x, &w, &f.err) != ROSE_OK && !op_table_adopt(f.device, &t, f.x, 0, &w));
    fixture_close(&f);
}

TEST(refused)
{
    struct fixture f;
    fixture_open(&f, 1);
    struct matrix m = matrix_make(&f, DTYPE_Q4_1, N, K), other = matrix_make(&f, DTYPE_Q4_1, N + 16, K);
    float y[T * N];
    program_buffer_id yb = program_external(f.program, "y", y, sizeof y);
    struct op_value yv = {yb, DTYPE_F32, EXTENT_ROWS, N, N, 0};
    struct op_matmul good = {.name = "good", .x = f.xv, .parts_count = 1, .parts = {{&m.weight, NULL, yv}}},
                     bad;
#define REFUSED(change)                                       \
    do {                                                      \
        bad = good;                                           \
        change;                                               \
        f.err.message[0] = 0;                                 \
        CHECK(op_matmul(f.program, &bad, &f.err) != ROSE_OK); \
        CHECK(f.err.message[0] != 0);                         \
    } while (0)
    REFUSED(bad.parts_count = 0);
    REFUSED(bad.parts_count = 5);
    REFUSED(bad.gated = true);
    REFUSED(bad.x.cols = K - 32);
    REFUSED(bad.x.dtype = DTYPE_BF16);
    REFUSED(bad.x.buffer = 0);
    REFUSED(bad.parts[0].y.cols = N - 1);
    REFUSED(bad.parts[0].y.rows = EXTENT_SAMPLES);
    REFUSED(bad.parts[0].y.buffer = f.xb);
    REFUSED(bad.parts[0].weight = NULL);
    struct op_weight unpacked = m.weight;
    unpacked.layout = 0;
    REFUSED(bad.parts[0].weight = &unpacked);
    REFUSED((bad.parts_count = 2, bad.gated = true, bad.parts[1].weight = &other.weight));
    struct tensor t = {.dtype = DTYPE_I32, .ndim = 2, .shape = {4, 4}, .data = y};
    struct op_weight out;
    CHECK_INT(op_weight_bytes(f.device, &t), 0);
    CHECK_INT(op_weight_pack(f.device, &t, y, &out, &f.err), ROSE_UNSUPPORTED);
    CHECK(strstr(f.err.message, "I32") != NULL);
    matrix_free(&f, &m);
    matrix_free(&f, &other);
    fixture_close(&f);
}

TEST_MAIN(CASE(parts_bias_residual), CASE(gates), CASE(threads_and_rows), CASE(adopted), CASE(embedding), CASE(tables_of_rows), CASE(refused))
