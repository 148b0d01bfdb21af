/* op_weight_pack and op_matmul on a GPU, through programs: every way a product can be recorded (merged neighbours, gated, residual,
 * float32 results, with and without cuBLASLt), weights of several formats, planned for one number of rows and run with others,
 * against float64 sums of what the weights mean.
 *
 *     gpu_matmul [directory of a Python environment that has cuBLAS]      last line "N passed, N failed"
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "device/cuda_blas.h"
#include "jit/jit.h"
#include "ops/matmul.h"
#include "ops/matmul_blocks.h"
#include "ops/matmul_cuda.h"
#include "tensor/dtype.h"

#ifndef GPU_MATMUL_SMALL /* tests/ops/test_matmul_cuda.c: the same on the CPU */
enum { MOST_ROWS = 300, K = 768, N0 = 512, N1 = 128, N2 = 136 };
#define GPU_MATMUL_EXPECT {1, 40, 200}
#endif
enum { WIDTH = N0 + N1 + N2 };
static const char *driver_, *compiler_; /* NULL: the machine's own */
static struct rose_error err_;
static struct device *device_;
static int passed_, failed_;

static bool ok(enum rose_status s)
{
    if (s != ROSE_OK) printf("%s\n", err_.message);
    return s == ROSE_OK;
}
static float normal(uint32_t *state)
{
    float s = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * 1664525u + 1013904223u;
        s += (float)(*state >> 8) * 0x1p-23f - 1.0f;
    }
    return s * 0.87f;
}
static void *upload(const void *data, size_t bytes)
{
    void *p = device_alloc(device_, bytes, DEVICE_MEMORY_LOCAL, &err_);
    if (!p || !ok(data ? device_copy(device_, p, data, bytes, &err_) : cuda_fill(device_, p, 0xff, bytes, &err_)) || !ok(device_wait(device_, NULL, &err_))) exit(1);
    return p;
}

/* Three weights in one block of memory, one behind the other where `close`. */
struct weights {
    char *memory;
    struct op_weight w[3];
    float *value[3]; /* what the format means, as bf16 rounds it where it becomes bf16 */
    float *bias[3];
    void *device_bias[3];
};
static bool make_weights(struct weights *out, enum dtype dtype, bool close)
{
    static const int n[3] = {N0, N1, N2};
    size_t at = 0;
    uint32_t seed = (uint32_t)dtype * 77 + close;
    out->memory = upload(NULL, (size_t)WIDTH * K * 2 + 4096);
    for (int i = 0; i < 3; i++) {
        size_t count = (size_t)n[i] * K;
        float *f = malloc(count * 4);
        for (size_t e = 0; e < count; e++) f[e] = normal(&seed) * 0.05f;
        void *data = malloc(dtype_row_bytes(dtype, count));
        if (!ok(dtype_encode(dtype, f, data, count, &err_))) return false;
        struct tensor t = {.dtype = dtype, .ndim = 2, .shape = {n[i], K}, .data = data};
        bool blocks = matmul_blocks_format(dtype) >= 0; /* stay as they are, rows filled up */
        size_t bytes = blocks ? (size_t)(n[i] + 15) / 16 * 16 * dtype_row_bytes(dtype, K) : count * 2;
        if (op_weight_bytes(device_, &t) != bytes || !ok(op_weight_pack(device_, &t, out->memory + at, &out->w[i], &err_))) return false;
        at += (count * 2 + 255) / 256 * 256 + (close ? 0 : 256);
        dtype_decode(dtype, data, f, count);
        for (size_t e = 0; e < count && !blocks; e++) f[e] = bf16_to_f32(f32_to_bf16(f[e]));
        out->value[i] = f;
        out->bias[i] = malloc((size_t)n[i] * 4);
        for (int e = 0; e < n[i]; e++) out->bias[i][e] = normal(&seed);
        out->device_bias[i] = upload(out->bias[i], (size_t)n[i] * 4);
        free(data);
    }
    return true;
}
static void free_weights(struct weights *w)
{
    device_free(device_, w->memory, (size_t)WIDTH * K * 2 + 4096, DEVICE_MEMORY_LOCAL);
    for (int i = 0; i < 3; i++) free(w->value[i]), free(w->bias[i]), device_free(device_, w->device_bias[i], 4, DEVICE_MEMORY_LOCAL);
}

struct config {
    const char *name;
    bool gated, bias, accumulate, f32, deterministic;
    enum op_activation act;
    float alpha;
    int parts;
};
static const struct config configs[] = {
    {"three side by side", .parts = 3},
    {"three side by side, bias", .parts = 3, .bias = true},
    {"residual", .parts = 1, .accumulate = true, .alpha = 0.5f},
    {"gelu", .parts = 1, .act = OP_ACT_GELU_TANH},
    {"float32", .parts = 1, .f32 = true, .alpha = 2},
    {"float32 residual, deterministic", .parts = 1, .f32 = true, .accumulate = true, .deterministic = true},
    {"gated", .parts = 2, .gated = true, .act = OP_ACT_SILU},
    {"gated, bias", .parts = 2, .gated = true, .act = OP_ACT_SILU, .bias = true},
};

static double act(enum op_activation a, double x)
{
    return a == OP_ACT_SILU ? x / (1 + exp(-x)) : a == OP_ACT_GELU_TANH ? 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))) : x;
}

struct buffers {
    uint16_t *x;
    char *old, *got; /* [MOST_ROWS][WIDTH] of y's type */
    void *device_x, *device_y;
};

static double dot(const struct weights *w, const struct buffers *b, const struct config *c, int part, int row, int col, double *size)
{
    bool next = c->gated && part == 1 && !c->bias && w->w[0].dtype == DTYPE_BF16; /* the up matrix is the next rows of weight 0 */
    const float *v = next ? w->value[0] + (size_t)(N1 + col) * K : w->value[part] + (size_t)col * K;
    double sum = c->bias ? (double)w->bias[part][col] : 0;
    *size = 0;
    for (int i = 0; i < K; i++) {
        double p = (double)v[i] * (double)bf16_to_f32(b->x[row * K + i]);
        sum += p, *size += fabs(p);
    }
    return sum;
}

/* Some rows, all columns; the library's gated pair is rounded to bf16 once more. */
static int check(const struct weights *w, const struct buffers *b, const struct config *c, int rows, int n0, bool twice, bool rounded)
{
    static const int n[3] = {N0, N1, N2};
    int wrong = 0, at = 0;
    for (int p = 0; p < (c->gated ? 1 : c->parts); p++) {
        int columns = c->gated ? n0 : n[p];
        for (int row = 0; row < rows; row += rows > 8 ? 7 : 1)
            for (int col = 0; col < columns; col++) {
                double size, up_size = 0, v = act(c->act, dot(w, b, c, p, row, col, &size)), one = rounded ? 0x1p-9 + 1e-5 : 1e-5, slack = size * one + 1e-5;
                if (c->gated) {
                    double up = dot(w, b, c, 1, row, col, &up_size);
                    slack += one * (size * fabs(up) + up_size * fabs(v)) + (twice ? 0x1.8p-7 * (fabs(v * up) + 1e-3 * fabs(up)) : 0);
                    v *= up;
                } else if (twice && c->act)
                    slack += 0x1.8p-7 * (fabs(v) + 0.01);
                v *= c->alpha != 0 ? (double)c->alpha : 1;
                size_t i = (size_t)row * WIDTH + (size_t)(at + col);
                double got, old;
                if (c->f32) {
                    float g, o;
                    memcpy(&g, b->got + i * 4, 4), memcpy(&o, b->old + i * 4, 4);
                    got = (double)g, old = (double)o;
                } else {
                    uint16_t g, o;
                    memcpy(&g, b->got + i * 2, 2), memcpy(&o, b->old + i * 2, 2);
                    got = (double)bf16_to_f32(g), old = (double)bf16_to_f32(o);
                }
                if (c->accumulate) slack += twice ? (fabs(v) + fabs(v + old)) * 0x1p-8 : 0, v += old; /* the library rounds the product, then adds */
                if (!c->f32) slack += fabs(v) * 0x1.02p-8;
                if (!(fabs(got - v) <= slack) && wrong++ < 4) printf("  row %d column %d is %.7g, expected %.7g within %.2g\n", row, at + col, got, v, slack);
            }
        at += columns;
    }
    return wrong;
}

static void run_case(struct weights *w, const struct config *c, int expect, const char *what)
{
    static const int runs[] = {1, 5, 16, 17, 64, 100, MOST_ROWS, 5};
    struct program *p = NULL;
    struct buffers b = {.x = malloc(MOST_ROWS * K * 2), .old = malloc(MOST_ROWS * WIDTH * 4), .got = malloc(MOST_ROWS * WIDTH * 4)};
    size_t y_bytes = (size_t)MOST_ROWS * WIDTH * (c->f32 ? 4 : 2);
    uint32_t seed = 3;
    for (int i = 0; i < MOST_ROWS * K; i++) b.x[i] = f32_to_bf16(normal(&seed));
    for (int i = 0; i < MOST_ROWS * WIDTH; i++) {
        float v = normal(&seed);
        if (c->f32)
            memcpy(b.old + (size_t)i * 4, &v, 4);
        else
            memcpy(b.old + (size_t)i * 2, &(uint16_t){f32_to_bf16(v)}, 2);
    }
    b.device_x = upload(b.x, MOST_ROWS * K * 2), b.device_y = upload(b.old, y_bytes);
    int wrong = 0;
    if (!ok(program_open(device_, &p, &err_))) exit(1);
    p->expect.n[EXTENT_ROWS] = expect;
    struct op_value x = {program_external(p, "x", b.device_x, MOST_ROWS * K * 2), DTYPE_BF16, EXTENT_ROWS, K, K, 0};
    struct op_value y = {program_external(p, "y", b.device_y, y_bytes), c->f32 ? DTYPE_F32 : DTYPE_BF16, EXTENT_ROWS, WIDTH, WIDTH, 0};
    struct op_weight gate = w->w[0], up = w->w[0];
    struct op_matmul op = {.name = "product", .layer = -1, .x = x, .parts_count = c->parts, .activation = c->act, .gated = c->gated,
                           .accumulate = c->accumulate, .alpha = c->alpha, .deterministic = c->deterministic};
    int at = 0, n0 = N0;
    for (int i = 0; i < c->parts; i++) {
        op.parts[i] = (struct op_matmul_part){&w->w[i], c->bias ? w->device_bias[i] : NULL, op_slice(y, at, w->w[i].n)};
        at += w->w[i].n;
    }
    if (c->gated) { /* gate: the first N1 rows of weight 0; up: the next N1, or weight 1 */
        gate.n = up.n = n0 = N1;
        gate.bytes = up.bytes = (size_t)N1 * K * 2;
        up.data = (const char *)up.data + gate.bytes;
        op.parts[0] = (struct op_matmul_part){&gate, op.parts[0].bias, op_slice(y, 0, N1)};
        op.parts[1] = (struct op_matmul_part){c->bias || up.dtype != DTYPE_BF16 ? &w->w[1] : &up, op.parts[1].bias, op_slice(y, 0, N1)};
    }
    /* Weights in blocks and many rows: every other case by panels, the others decoded inside the product. */
    const bool blocks = matmul_blocks_format(w->w[0].dtype) >= 0, many = blocks && expect > 64 && !c->deterministic;
    const bool inside = many && (c - configs) % 2 && !strcmp(device_->info.arch, "sm_90a");
    if (many) op.tile = inside ? MATMUL_TILE_BLOCKS_WGMMA : MATMUL_TILE_BLOCKS_PANELS;
    if (!ok(op_matmul(p, &op, &err_)) || !ok(program_finish(p, NULL, 0, &err_))) wrong = 1;
    bool decoded = false, twice = false; /* weights in blocks became bf16 first; the library rounds a product before anything is done with it */
    for (int i = 0; i < p->count; i++) decoded |= !strcmp(p->entries[i].launch.name, "decode"), twice |= p->entries[i].launch.host != NULL;
    bool either = expect > 16 && expect <= 64 && !c->deterministic; /* in between as the plan predicts for the device */
    if (blocks && !either && decoded != (many && !inside))
        printf("%s, %s, planned for %d rows: %s\n", c->name, what, expect, decoded ? "decoded" : "not decoded"), wrong = 1;
    for (size_t i = 0; i < sizeof runs / sizeof *runs && !wrong; i++) {
        if (runs[i] > MOST_ROWS) continue;
        struct extents e = {.n = {1, runs[i], 1, 1}};
        for (int again = 0; again < 2 && !wrong; again++) { /* eager, then as a graph where it is one */
            if (!ok(device_copy(device_, b.device_y, b.old, y_bytes, &err_)) || !ok(device_submit(device_, p, &e, &err_)) ||
                !ok(device_copy(device_, b.got, b.device_y, y_bytes, &err_)) || !ok(device_wait(device_, NULL, &err_)))
                wrong++;
            else
                wrong += check(w, &b, c, runs[i], n0, twice, decoded || inside || (blocks && either));
            if (!wrong && memcmp(b.got + (size_t)runs[i] * WIDTH * (c->f32 ? 4 : 2), b.old + (size_t)runs[i] * WIDTH * (c->f32 ? 4 : 2),
                                 (size_t)(MOST_ROWS - runs[i]) * WIDTH * (c->f32 ? 4 : 2)))
                printf("  rows beyond the last were written\n"), wrong++;
        }
        if (wrong) printf("FAIL %s, %s, planned for %d rows, run with %d: %d wrong\n", c->name, what, expect, runs[i], wrong);
    }
    if (wrong) failed_++;
    else passed_++;
    program_close(p);
    device_free(device_, b.device_x, 0, DEVICE_MEMORY_LOCAL), device_free(device_, b.device_y, 0, DEVICE_MEMORY_LOCAL);
    free(b.x), free(b.old), free(b.got);
}

int main(int argc, char **argv)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_1, DTYPE_Q4_0, DTYPE_MXFP4, DTYPE_F8_E5M2};
    struct device_options options = {.kind = DEVICE_CUDA, .driver = driver_};
    struct jit *jit = NULL;
    struct cuda_blas *blas = NULL;
    if (!ok(device_open(&options, &device_, &err_)) || !ok(jit_open(&(struct jit_options){.nvrtc_path = compiler_}, &jit, &err_))) return 1;
    device_->jit = jit;
    if (!driver_ && ok(cuda_blas_open(device_, &(struct cuda_blas_places){.venv = argc > 1 ? argv[1] : NULL}, &blas, &err_))) {
        struct strbuf line = {0};
        cuda_blas_print(blas, &line), printf("%s\n", line.p), strbuf_free(&line);
    }
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        struct weights w;
        if (!make_weights(&w, dtypes[d], d != 1)) return failed_++, 1;
        for (size_t i = 0; i < (d && d != 3 && d != 4 ? 1 : sizeof configs / sizeof *configs); i++)
            for (int library = 0; library <= (blas != NULL); library++) {
                device_->blas = library ? blas : NULL;
                static const int expect[] = GPU_MATMUL_EXPECT;
                for (size_t e = 0; e < sizeof expect / sizeof *expect; e++)
                    run_case(&w, &configs[i], expect[e], library ? "cuBLASLt" : dtype_info(dtypes[d])->name);
            }
        free_weights(&w);
    }
    printf("%d passed, %d failed\n", passed_, failed_);
    device_->blas = NULL;
    cuda_blas_close(blas);
    jit_close(jit);
    device_close(device_);
    return failed_ || !passed_;
}
