/* F8_E4M3 weights on the CPU against float64: every instruction set, both kinds of scales and odd blocks, rows and columns that fill no group. */
#include <math.h>

#include "ops/isa.h"
#include "ops/matmul.h"
#include "test.h"

enum { MOST_ROWS = 40, MOST_N = 150, MOST_K = 400 };

static uint64_t state = 99;
static uint32_t noise(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(state >> 33);
}

struct fp8 {
    struct device *device;
    struct tensor_scales scales;
    struct tensor tensor;
    struct op_weight weight;
    void *memory;
    uint8_t codes[MOST_N * MOST_K];
    float value[MOST_N * 4], x[MOST_ROWS * MOST_K], y[MOST_ROWS * MOST_N];
};

static void make(struct fp8 *f, int32_t n, int32_t k, int64_t block_rows, int64_t block_cols, int64_t first_row)
{
    struct rose_error err;
    for (int32_t i = 0; i < n * k; i++) do f->codes[i] = (uint8_t)noise(); while ((f->codes[i] & 0x7F) == 0x7F);
    for (size_t i = 0; i < ROSE_COUNT(f->value); i++) f->value[i] = (1 + (float)(noise() % 64)) / 65536;
    for (size_t i = 0; i < ROSE_COUNT(f->x); i++) f->x[i] = (float)((int)(noise() % 4001) - 2000) / 1000;
    f->scales = (struct tensor_scales){f->value, (first_row + n - 1) / block_rows + 1, (k - 1) / block_cols + 1, block_rows, block_cols, "w"};
    f->tensor = (struct tensor){.dtype = DTYPE_F8_E4M3, .ndim = 2, .shape = {n, k}, .data = f->codes, .scales = &f->scales, .scales_row = first_row};
    size_t bytes = op_weight_bytes(f->device, &f->tensor);
    CHECK(bytes >= (size_t)n * (size_t)k && bytes <= (size_t)(n + 15) / 16 * 16 * ((size_t)(k + 31) / 32 * 32 + 64 + (size_t)(k + 127) / 128 * 4)); /* a byte a weight */
    f->memory = device_alloc(f->device, bytes, DEVICE_MEMORY_LOCAL, &err);
    CHECK_OK(op_weight_pack(f->device, &f->tensor, f->memory, &f->weight, &err), err);
}

static double weight_at(const struct fp8 *f, int32_t r, int32_t c)
{
    float code;
    dtype_decode(DTYPE_F8_E4M3, f->codes + r * f->weight.k + c, &code, 1);
    return (double)code * (double)tensor_scale(&f->tensor, r, c);
}

static void product(struct fp8 *f, int32_t rows, bool deterministic)
{
    struct rose_error err;
    struct program *p;
    CHECK_OK(program_open(f->device, &p, &err), err);
    program_buffer_id x = program_external(p, "x", f->x, sizeof f->x), y = program_external(p, "y", f->y, sizeof f->y);
    struct op_matmul op = {.name = "fp8", .x = {x, DTYPE_F32, EXTENT_ROWS, f->weight.k, MOST_K, 0}, .parts_count = 1, .deterministic = deterministic,
                           .parts = {{&f->weight, NULL, {y, DTYPE_F32, EXTENT_ROWS, f->weight.n, MOST_N, 0}}}};
    CHECK_OK(op_matmul(p, &op, &err), err);
    CHECK_OK(program_finish(p, NULL, 0, &err), err);
    CHECK_OK(device_submit(f->device, p, &(struct extents){{1, rows, 1, 2}}, &err), err);
    CHECK_OK(device_wait(f->device, NULL, &err), err);
    program_close(p);
}

static void compare(const struct fp8 *f, int32_t rows, double slack)
{
    for (int32_t r = 0; r < rows; r++)
        for (int32_t c = 0; c < f->weight.n; c++) {
            double sum = 0, size = 0;
            for (int32_t k = 0; k < f->weight.k; k++) {
                double v = (double)f->x[r * MOST_K + k] * weight_at(f, c, k);
                sum += v, size += fabs(v);
            }
            CHECK_NEAR(f->y[r * MOST_N + c], sum, slack * size + 1e-9);
        }
}

static const struct { int32_t n, k; int64_t block_rows, block_cols, first; } shapes[] = {
    {37, 100, 1, 100, 0}, {16, 256, 128, 128, 0}, {150, 328, 128, 128, 0}, {130, 400, 150, 400, 0}, {5, 8, 1, 8, 0}, {33, 272, 64, 256, 0}, {40, 200, 32, 128, 17}};

static void run_all(void)
{
    static struct fp8 f;
    struct rose_error err;
    for (int threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < ROSE_COUNT(shapes); i++) {
            CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = threads}, &f.device, &err), err);
            make(&f, shapes[i].n, shapes[i].k, shapes[i].block_rows, shapes[i].block_cols, shapes[i].first);
            for (int32_t rows = 1; rows <= MOST_ROWS; rows = rows * 2 + 1) {
                product(&f, rows, true);
                compare(&f, rows, 4e-7 * sqrt((double)f.weight.k)); /* float32 sums */
                product(&f, rows, false);
                compare(&f, rows, 0x1p-8); /* activations may be rounded to bfloat16 */
            }
            device_free(f.device, f.memory, f.weight.bytes, DEVICE_MEMORY_LOCAL);
            device_close(f.device);
        }
}

TEST(products)
{
    static const char *const sets[] = {"portable", "avx2", "avx512", "amx"};
    struct rose_error err;
    int ran = 0;
    for (size_t i = 0; i < ROSE_COUNT(sets); i++)
        if (op_isa_select(sets[i], &err) == ROSE_OK) run_all(), ran++;
    CHECK(ran > 0);
    CHECK_OK(op_isa_select("auto", &err), err);
}

/* Rows come back as code times scale; memory is taken again only for the same codes and scales. */
TEST(rows_and_adopting)
{
    static struct fp8 f;
    struct rose_error err;
    struct op_weight again;
    float row[MOST_K];
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = 1}, &f.device, &err), err);
    make(&f, 37, 200, 128, 128, 0);
    for (int32_t r = 0; r < 37; r++) {
        op_weight_row(&f.weight, r, row);
        for (int32_t c = 0; c < 200; c++) CHECK(row[c] == (float)weight_at(&f, r, c));
    }
    CHECK(op_weight_adopt(f.device, &f.tensor, f.memory, 2, &again) && again.data == f.memory);
    f.codes[36 * 200 + 5] ^= 1;
    CHECK(!op_weight_adopt(f.device, &f.tensor, f.memory, 2, &again));
    f.codes[36 * 200 + 5] ^= 1;
    f.value[1] *= 2;
    CHECK(!op_weight_adopt(f.device, &f.tensor, f.memory, 2, &again));
    device_free(f.device, f.memory, f.weight.bytes, DEVICE_MEMORY_LOCAL);
    device_close(f.device);
}

TEST(refused)
{
    static struct fp8 f;
    struct rose_error err = {0};
    struct op_weight w;
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = 1}, &f.device, &err), err);
    make(&f, 20, 256, 128, 128, 0);
    struct tensor bad = f.tensor;
    bad.scales = NULL;
    CHECK_INT(op_weight_pack(f.device, &bad, f.memory, &w, &err), ROSE_UNSUPPORTED);
    struct tensor_scales few = f.scales;
    bad = f.tensor, bad.scales = &few;
    few.cols = 1;
    CHECK_INT(op_weight_pack(f.device, &bad, f.memory, &w, &err), ROSE_INTERNAL);
    few = f.scales, few.block_cols = 100, few.cols = 3;
    CHECK_INT(op_weight_pack(f.device, &bad, f.memory, &w, &err), ROSE_INTERNAL);
    bad = f.tensor, bad.scales_row = 120; /* the last rows have no scales */
    CHECK_INT(op_weight_pack(f.device, &bad, f.memory, &w, &err), ROSE_INTERNAL);
    for (int i = 0; i < 2; i++) {
        size_t at = i ? 20 * 256 - 1 : 3;
        uint8_t kept = f.codes[at];
        f.codes[at] = i ? 0xFF : 0x7F;
        CHECK_INT(op_weight_pack(f.device, &f.tensor, f.memory, &w, &err), ROSE_FORMAT);
        f.codes[at] = kept;
    }
    device_free(f.device, f.memory, f.weight.bytes, DEVICE_MEMORY_LOCAL);
    device_close(f.device);
}

TEST_MAIN(CASE(products), CASE(rows_and_adopting), CASE(refused))
