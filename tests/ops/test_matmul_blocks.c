/* Weights in block formats for CUDA: sizes, packing in pieces, and shapes that are refused. The kernels are tested in tests/simt. */
#include <stdlib.h>
#include <string.h>

#include "kernels/params/matmul_blocks.h"
#include "ops/matmul_blocks.h"
#include "ops/matmul_cuda.h"
#include "ops/weight_view.h"
#include "test.h"

static const enum dtype types[BLOCKS_FORMATS] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};

TEST(as_many_bytes_as_the_file)
{
    for (int f = 0; f < BLOCKS_FORMATS; f++) {
        struct tensor t = {.dtype = types[f], .ndim = 2, .shape = {48, 768}};
        size_t row = dtype_row_bytes(types[f], 768);
        CHECK_INT(matmul_blocks_format(types[f]), f);
        CHECK_INT(matmul_blocks_bytes(&t), 48 * row);
        CHECK_INT(16 * row, 3 * BLOCKS_CHUNK_BYTES(f));
        CHECK_INT(BLOCKS_UNIT_BYTES(f) * 8 % 16, 0);
        t.shape[0] = 49; /* the last tile is filled up */
        CHECK_INT(matmul_blocks_bytes(&t), 64 * row);
        t.shape[0] = 48;
        CHECK_INT(matmul_cuda_weight_bytes(&t, false), 48 * row);
        CHECK_INT(matmul_cuda_weight_bytes(&t, true), 48 * 768 * 2);
    }
    CHECK_INT(matmul_blocks_format(DTYPE_Q5_0), -1);
    CHECK_INT(matmul_blocks_format(DTYPE_BF16), -1);
}

/* Every bit of the file has its place: as many ones before as after, wherever a single one stands. */
TEST(no_bit_is_lost)
{
    for (int f = 0; f < BLOCKS_FORMATS; f++) {
        int64_t k = BLOCKS_SUPER(f) ? 512 : 352, n = 19;
        size_t bytes = (size_t)n * dtype_row_bytes(types[f], (size_t)k);
        uint8_t *blocks = calloc(1, bytes);
        struct tensor t = {.dtype = types[f], .ndim = 2, .shape = {n, k}, .data = blocks};
        size_t packed_bytes = matmul_blocks_bytes(&t);
        uint8_t *packed = malloc(packed_bytes), *all = calloc(1, packed_bytes);
        int wrong = 0;
        for (size_t bit = 0; bit < bytes * 8; bit += 1 + bit % 3 * 2) { /* not all: they are many */
            int ones = 0;
            blocks[bit / 8] = (uint8_t)(1u << bit % 8);
            matmul_blocks_rows(&t, 0, n, packed);
            for (size_t i = 0; i < packed_bytes; i++) {
                ones += __builtin_popcount(packed[i]);
                wrong += (packed[i] & all[i]) != 0; /* two bits of the file at one place */
                all[i] |= packed[i];
            }
            wrong += ones != 1;
            blocks[bit / 8] = 0;
            if (bit > 16000) break;
        }
        CHECK_INT(wrong, 0);
        free(blocks), free(packed), free(all);
    }
}

TEST(in_pieces)
{
    for (int f = 0; f < BLOCKS_FORMATS; f++) {
        int64_t k = 512, n = 53;
        size_t bytes = (size_t)n * dtype_row_bytes(types[f], (size_t)k);
        uint8_t *blocks = malloc(bytes);
        for (size_t i = 0; i < bytes; i++) blocks[i] = (uint8_t)(i * 37 + i / 251);
        struct tensor t = {.dtype = types[f], .ndim = 2, .shape = {n, k}, .data = blocks};
        struct op_weight w;
        struct rose_error err = {0};
        uint8_t *whole = malloc(matmul_blocks_bytes(&t)), *parts = malloc(matmul_blocks_bytes(&t));
        CHECK_OK(matmul_cuda_weight(&t, false, whole, &w, &err), err);
        CHECK_INT(w.layout, WEIGHT_LAYOUT_CUDA_BLOCKS);
        matmul_cuda_weight_rows(&w, &t, 0, n, whole);
        for (int64_t row = 0; row < n; row += 32) {
            int64_t rows = n - row < 32 ? n - row : 32;
            matmul_cuda_weight_rows(&w, &t, row, rows, parts + matmul_cuda_weight_rows_bytes(&w, row));
        }
        CHECK_INT(matmul_cuda_weight_rows_bytes(&w, n), matmul_blocks_bytes(&t));
        CHECK(!memcmp(whole, parts, matmul_blocks_bytes(&t)));
        free(blocks), free(whole), free(parts);
    }
}

TEST(what_is_refused)
{
    static const struct {
        int64_t n, k;
    } shapes[] = {{0, 256}, {-1, 256}, {16, 0}, {16, 100}, {INT64_C(1) << 31, 256}, {16, INT64_C(1) << 40}};
    char memory[32] = {0};
    struct op_weight w;
    struct rose_error err = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int f = 0; f < BLOCKS_FORMATS; f++) {
            struct tensor t = {.dtype = types[f], .ndim = 2, .shape = {shapes[i].n, shapes[i].k}};
            CHECK_INT(matmul_blocks_bytes(&t), 0);
        }
    struct tensor t = {.dtype = DTYPE_Q4_K, .ndim = 2, .shape = {16, 288}}; /* no whole blocks */
    CHECK_INT(matmul_blocks_bytes(&t), 0);
    CHECK_INT(matmul_cuda_weight(&t, false, memory, &w, &err), ROSE_UNSUPPORTED);
    t.shape[1] = 256;
    CHECK_INT(matmul_cuda_weight(&t, false, NULL, &w, &err), ROSE_INTERNAL);
    struct device *d = NULL;
    CHECK_OK(device_planning_open("sm_90a", &d, &err), err);
    if (!d) return;
    struct matmul_plan m;
    struct plan p;
    struct matmul_shape s = {.rows = 1, .k = 288, .parts = 1, .n = {16}, .blocks_format = 1 + BLOCKS_Q4_K};
    CHECK_INT(matmul_plan_make(&s, &d->info, &m, &err), ROSE_INVALID);
    s.k = 1 << 30; /* its rows fit no shared memory */
    CHECK_INT(matmul_plan_make(&s, &d->info, &m, &err), ROSE_UNSUPPORTED);
    s.k = 256, s.blocks_format = 99;
    CHECK_INT(matmul_plan_make(&s, &d->info, &m, &err), ROSE_INTERNAL);
    struct matmul_blocks_rows_shape r = {.rows = 1, .k = 288, .format = BLOCKS_Q6_K};
    CHECK_INT(matmul_blocks_rows_plan(&r, &d->info, &p, &err), ROSE_INVALID);
    r.format = -1, r.k = 256;
    CHECK_INT(matmul_blocks_rows_plan(&r, &d->info, &p, &err), ROSE_INVALID);
    device_close(d);
}

/* One order of sums for every number of rows. */
TEST(deterministic_plans)
{
    static const char *const arches[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    static const int32_t ks[] = {256, 576, 4096, 14336, 28672};
    static const int rows[] = {1, 2, 7, 16, 64, 100, 4096};
    for (size_t a = 0; a < 5; a++) {
        struct device *d = NULL;
        struct rose_error err = {0};
        CHECK_OK(device_planning_open(arches[a], &d, &err), err);
        for (size_t k = 0; d && k < sizeof ks / sizeof *ks; k++)
            for (int f = 0; f < BLOCKS_FORMATS; f++) {
                int64_t warps = 0;
                int32_t splits = 0;
                if (BLOCKS_SUPER(f) && ks[k] % 256) continue;
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                    struct matmul_shape s = {.rows = rows[r], .k = ks[k], .parts = 1, .n = {4096}, .blocks_format = 1 + f, .deterministic = true};
                    struct matmul_plan m;
                    CHECK_OK(matmul_plan_make(&s, &d->info, &m, &err), err);
                    if (r == 0) warps = plan_get(&m.plan, "WARPS"), splits = m.splits;
                    CHECK_INT(plan_get(&m.plan, "WARPS"), warps);
                    CHECK_INT(m.splits, splits);
                    CHECK(m.group >= 1 && m.plan.shared_bytes <= 227 << 10);
                }
            }
        device_close(d);
    }
}

/* Many rows on Hopper: every form fits the shared memory with its rings, and the plan takes the product of many rows where it is due. */
TEST(many_rows_plans)
{
    struct device *d = NULL;
    struct rose_error err = {0};
    struct matmul_plan m;
    CHECK_OK(device_planning_open("sm_90a", &d, &err), err);
    for (int f = 0; d && f < BLOCKS_FORMATS; f++) {
        struct matmul_shape s = {.rows = 300, .k = 4096, .parts = 2, .n = {14336, 14336}, .gated = true, .tma = true, .blocks_format = 1 + f};
        for (s.tile = MATMUL_TILE_BLOCKS_FORMS; s.tile < MATMUL_TILE_BLOCKS_FORMS + 2 * MATMUL_BLOCKS_FORMS; s.tile++) {
            CHECK_OK(matmul_plan_make(&s, &d->info, &m, &err), err);
            CHECK_STR(m.plan.kernel, "matmul_blocks_wgmma");
            CHECK(m.plan.shared_bytes <= 227 << 10 && plan_get(&m.plan, "STAGES") >= 4 && plan_get(&m.plan, "W_STAGES") >= 2);
            CHECK_INT(m.work_bytes > 0, s.tile % 2);
            CHECK_INT(plan_get(&m.plan, "CLUSTER"), s.tile % 2 == 0);
        }
        CHECK_INT(matmul_plan_make(&s, &d->info, &m, &err), ROSE_UNSUPPORTED);
        s.tile = 0, s.rows = 16;
        CHECK_OK(matmul_plan_make(&s, &d->info, &m, &err), err);
        CHECK_STR(m.plan.kernel, "matmul_blocks_ring");
        s.rows = 128;
        CHECK_OK(matmul_plan_make(&s, &d->info, &m, &err), err);
        CHECK_STR(m.plan.kernel, "matmul_blocks_wgmma"); /* 40 to 48 us of 75 to 83 (docs/facts.md) */
        s.tile = 0;
        s.deterministic = true;
        CHECK_OK(matmul_plan_make(&s, &d->info, &m, &err), err);
        CHECK_STR(m.plan.kernel, "matmul_blocks_few");
    }
    device_close(d);
    CHECK_OK(device_planning_open("sm_80", &d, &err), err);
    struct matmul_shape s = {.rows = 128, .k = 4096, .parts = 1, .n = {14336}, .tma = true, .blocks_format = 1 + BLOCKS_Q4_K};
    CHECK_OK(matmul_plan_make(&s, &d->info, &m, &err), err);
    CHECK_STR(m.plan.kernel, "gemm_rows");
    s.tile = MATMUL_TILE_BLOCKS_WGMMA;
    CHECK_INT(matmul_plan_make(&s, &d->info, &m, &err), ROSE_UNSUPPORTED);
    CHECK(strstr(err.message, "need Hopper"));
    device_close(d);
}

TEST_MAIN(CASE(as_many_bytes_as_the_file), CASE(no_bit_is_lost), CASE(in_pieces), CASE(what_is_refused), CASE(deterministic_plans), CASE(many_rows_plans))
