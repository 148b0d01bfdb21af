/* Kernels of the library that no step records, in programs on the stand-in driver: run launch by launch, captured and replayed, with what
 * they leave behind for their next run. What each computes is tests/simt's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "jit/jit.h"
#include "kernels/params/kv_rows.h"
#include "ops/dispatch_cuda.h"
#include "ops/kv_cuda.h"
#include "ops/logprob_cuda.h"
#include "ops/quant_cuda.h"
#include "ops/quantised_cuda.h"
#include "tensor/dtype.h"
#include "test.h"

static const char library[] = SIMT_DRIVER_DIR "/libsimt_fast.so";
static struct rose_error err;
static struct device *dev;
static struct jit *jit;
static struct program *program;
enum { RUNS = 3, BUFFERS = 16 };
static struct lent {
    void *p;
    size_t bytes;
} lent[BUFFERS];
static int lents;

static void begin(int64_t rows)
{
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CUDA, .driver = library}, &dev, &err), err);
    CHECK_OK(jit_open(&(struct jit_options){.nvrtc_path = library}, &jit, &err), err);
    if (dev) dev->jit = jit;
    CHECK_OK(program_open(dev, &program, &err), err);
    if (program) program->expect.n[EXTENT_ROWS] = (int32_t)rows;
}
static void end(void)
{
    program_close(program);
    for (int i = 0; i < lents; i++) device_free(dev, lent[i].p, lent[i].bytes, DEVICE_MEMORY_LOCAL);
    lents = 0;
    jit_close(jit);
    device_close(dev);
}
/* data NULL: as it comes (poison). */
static program_buffer_id lend(const char *name, size_t bytes, const void *data)
{
    void *p = device_alloc(dev, bytes, DEVICE_MEMORY_LOCAL, &err);
    CHECK(p && lents < BUFFERS);
    if (!p) return 0;
    lent[lents++] = (struct lent){p, bytes};
    if (data) CHECK_OK(device_copy(dev, p, data, bytes, &err), err);
    CHECK_OK(device_wait(dev, NULL, &err), err);
    return program_external(program, name, p, bytes);
}
static struct op_value value(const char *name, enum dtype dtype, int32_t rows, int32_t cols, const void *data)
{
    return (struct op_value){.buffer = lend(name, (size_t)rows * (size_t)cols * dtype_info(dtype)->bytes, data), .dtype = dtype, .rows = EXTENT_ROWS, .cols = cols, .stride = cols};
}
static void run(int32_t rows)
{
    struct extents e = {.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = rows, [EXTENT_SEQS] = 1, [EXTENT_SAMPLES] = 1}};
    CHECK_OK(device_submit(dev, program, &e, &err), err);
}
static void read_back(program_buffer_id buffer, void *to, size_t bytes)
{
    CHECK_OK(device_copy(dev, to, program_address(program, buffer), bytes, &err), err);
    CHECK_OK(device_wait(dev, NULL, &err), err);
}
static uint16_t *noise(size_t n)
{
    uint16_t *x = malloc(n * 2);
    uint32_t state = 5;
    for (size_t i = 0; x && i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = f32_to_bf16((float)(state >> 8) * 0x1p-22f - 2.0f);
    }
    return x;
}

/* Weights that add up to one, of copies of a token: combine gives the token back. One form of dispatch for each number of tokens. */
static void round_trip(int32_t tokens)
{
    enum { HIDDEN = 128, EXPERTS = 16, TOP_K = 2 };
    struct moe_cuda_shape s = {.tokens = tokens, .hidden = HIDDEN, .experts = EXPERTS, .top_k = TOP_K, .normalize = true};
    const size_t n = (size_t)tokens * HIDDEN, picks = (size_t)tokens * TOP_K * 4, places = (size_t)moe_cuda_rows(&s);
    uint16_t *x = noise(n), *got = malloc(n * 2);
    float *logits = malloc((size_t)tokens * EXPERTS * 4);
    for (int i = 0; i < tokens * EXPERTS; i++) logits[i] = (float)(i * 7919 % 101) / 20;
    begin(tokens);
    struct dispatch_buffers b = {.logits = value("logits", DTYPE_F32, tokens, EXPERTS, logits), .x = value("x", DTYPE_BF16, tokens, HIDDEN, x),
                                 .ids = lend("ids", picks, NULL), .weights = lend("weights", picks, NULL), .position = lend("position", picks, NULL),
                                 .counts = lend("counts", EXPERTS * 4, NULL), .offsets = lend("offsets", EXPERTS * 4 + 4, NULL), .rows = lend("rows", places * HIDDEN * 2, NULL)};
    struct op_value y = value("y", DTYPE_BF16, tokens, HIDDEN, NULL);
    CHECK_OK(dispatch_cuda(program, &s, &b, &err), err);
    CHECK_OK(dispatch_cuda_combine(program, -1, &s, b.rows, b.position, b.weights, &y, &err), err);
    CHECK_OK(program_finish(program, NULL, 0, &err), err);
    for (int i = 0; i < RUNS; i++) {
        int wrong = 0;
        run(tokens);
        read_back(y.buffer, got, n * 2);
        for (size_t k = 0; k < n; k++) wrong += !(fabsf(bf16_to_f32(got[k]) - bf16_to_f32(x[k])) <= fabsf(bf16_to_f32(x[k])) * 0x1p-7f);
        CHECK_INT(wrong, 0);
        memset(got, 0xff, n * 2);
    }
    end();
    free(x), free(got), free(logits);
}
TEST(dispatch_and_combine)
{
    round_trip(3);   /* every block routes */
    round_trip(260); /* two launches; a grid barrier is for GPUs of more than eight SMs */
}

/* Rows into pages and out of them again: the same bits, but where a token has no slot. */
TEST(pages)
{
    enum { ROWS = 5, HEADS = 2, DIM = 64, PAGE = 32, WIDTH = HEADS * DIM };
    struct kv_shape in = {.rows = ROWS, .kv_heads = HEADS, .head_dim = DIM, .page_tokens = PAGE, .from = KV_ROWS, .to = KV_PAGES_BF16}, out = in;
    out.from = KV_PAGES_BF16, out.to = KV_ROWS;
    const int64_t slots[ROWS] = {33, 0, -1, 31, 32}, bytes = kv_cuda_layer_bytes(&in, KV_PAGES_BF16);
    uint16_t *x = noise(ROWS * WIDTH), got[ROWS * WIDTH], before[ROWS * WIDTH];
    memset(before, 0x55, sizeof before);
    begin(ROWS);
    program_buffer_id slot = lend("slots", sizeof slots, slots), k = lend("k", sizeof got, x), back = lend("back", sizeof got, before);
    struct kv_cuda_side rows = {.k = k, .v = k, .k_stride = WIDTH, .v_stride = WIDTH}, pool = {.pool = lend("pool", (size_t)(2 * bytes), NULL), .slot = slot, .page_bytes = bytes},
                        again = {.k = lend("k again", sizeof got, before), .v = back, .k_stride = WIDTH, .v_stride = WIDTH};
    CHECK_OK(kv_cuda(program, EXTENT_ROWS, &in, &rows, &pool, &err), err);
    CHECK_OK(kv_cuda(program, EXTENT_ROWS, &out, &pool, &again, &err), err);
    CHECK_INT(kv_cuda(program, EXTENT_ROWS, &in, &pool, &pool, &err), ROSE_INVALID);
    CHECK_OK(program_finish(program, NULL, 0, &err), err);
    for (int i = 0; i < RUNS; i++) {
        run(ROWS);
        read_back(back, got, sizeof got);
        for (int r = 0; r < ROWS; r++) CHECK(!memcmp(got + r * WIDTH, (slots[r] < 0 ? before : x) + r * WIDTH, WIDTH * 2));
    }
    end();
    free(x);
}

TEST(log_probabilities)
{
    enum { ROWS = 3, VOCABULARY = 1003, STRIDE = 1008, WANT = 2 };
    const int32_t ids[ROWS * WANT] = {0, 1002, 5, -1, 77, 1003};
    uint16_t *x = noise(ROWS * STRIDE);
    float y[ROWS * WANT];
    begin(ROWS);
    struct op_value logits = value("logits", DTYPE_BF16, ROWS, STRIDE, x);
    logits.cols = VOCABULARY;
    program_buffer_id out = lend("y", sizeof y, NULL);
    CHECK_OK(logprob_cuda(program, &logits, WANT, lend("ids", sizeof ids, ids), out, 0, &err), err);
    CHECK_OK(program_finish(program, NULL, 0, &err), err);
    for (int i = 0; i < RUNS; i++) {
        run(ROWS);
        read_back(out, y, sizeof y);
        for (int k = 0; k < ROWS * WANT; k++) {
            double sum = 0;
            for (int c = 0; c < VOCABULARY; c++) sum += exp((double)bf16_to_f32(x[k / WANT * STRIDE + c]));
            if (ids[k] < 0 || ids[k] >= VOCABULARY) CHECK(y[k] == -INFINITY);
            else CHECK_NEAR(y[k], (double)bf16_to_f32(x[k / WANT * STRIDE + ids[k]]) - log(sum), 1e-5);
        }
        memset(y, 0, sizeof y);
    }
    end();
    free(x);
}

/* The rows change from run to run: what an earlier one found is forgotten. Quantised with it, the largest becomes the largest code. */
TEST(scale_of_a_tensor)
{
    enum { ROWS = 40, COLS = 256 };
    uint16_t *x = noise(ROWS * COLS);
    float got;
    uint8_t code;
    x[ROWS * COLS - 1] = f32_to_bf16(-500);
    begin(ROWS);
    struct op_value v = value("x", DTYPE_BF16, ROWS, COLS, x);
    program_buffer_id scale = lend("scale", 4, NULL);
    struct quantised_rows rows_of = {.x = v.buffer, .y = lend("y", ROWS * COLS, NULL), .scale = lend("row scales", ROWS * 4, NULL), .global = lent[1].p};
    CHECK_OK(quant_cuda_tensor(program, SCALE_TENSOR_E4M3, &v, scale, &err), err);
    CHECK_OK(quantised_cuda_act(program, &(struct act_shape){.rows = ROWS, .cols = COLS, .out = ACT_OUT_E4M3_TENSOR}, &rows_of, &err), err);
    CHECK_OK(program_finish(program, NULL, 0, &err), err);
    for (int i = 0; i < 2 * RUNS; i++) {
        const int rows = i % 2 ? ROWS - 1 : ROWS;
        float largest = 0;
        run(rows);
        read_back(scale, &got, 4);
        for (int k = 0; k < rows * COLS; k++) largest = fmaxf(largest, fabsf(bf16_to_f32(x[k])));
        CHECK_NEAR(got, largest / 448, 0);
        CHECK_OK(device_copy(dev, &code, (char *)program_address(program, rows_of.y) + ROWS * COLS - 1, 1, &err), err);
        CHECK_OK(device_wait(dev, NULL, &err), err);
        CHECK_INT(code, 0xfe); /* -448, of the first run with all rows */
    }
    end();
    free(x);
}

TEST_MAIN(CASE(dispatch_and_combine), CASE(pages), CASE(log_probabilities), CASE(scale_of_a_tensor))
