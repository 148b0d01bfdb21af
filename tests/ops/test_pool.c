/* op_pool against float64: every kind in one ragged batch, prompts skipped, any number of threads the same bits. */
#include "ops/pool.h"

#include "ops_fixture.h"

enum { SEQS = 7, COLS = 200 };
static const int32_t rows_of[SEQS] = {1, 5, 33, 0, 129, 2, 7}, skips[SEQS] = {0, 2, 0, 0, 100, 2, 9};

static double reference(int kind, const float *x, int n, int skip, int c)
{
    int first = skip < n ? skip : n - 1;
    double sum = 0, weight = 0, top = -INFINITY;
    for (int r = first; r < n; r++) {
        double v = (double)x[r * COLS + c], f = kind == OP_POOL_WEIGHTED_MEAN ? r + 1 : 1;
        sum += f * v, weight += f;
        if (v > top) top = v;
    }
    switch (kind) {
    case OP_POOL_CLS: return (double)x[first * COLS + c];
    case OP_POOL_LAST: return (double)x[(n - 1) * COLS + c];
    case OP_POOL_MAX: return top;
    case OP_POOL_MEAN_SQRT: return sum / sqrt(weight);
    default: return sum / weight;
    }
}

static void run(int threads, int shift, const float *x, int total, float *y)
{
    struct device *d = fixture_device(threads);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    int32_t seq_rows[SEQS + 1] = {0}, kind[SEQS], skip[SEQS];
    for (int s = 0; s < SEQS; s++) seq_rows[s + 1] = seq_rows[s] + rows_of[s], kind[s] = (s + shift) % OP_POOL_COUNT, skip[s] = skips[s];
    struct op_pool op = {.seq_rows = program_external(p, "seq_rows", seq_rows, sizeof seq_rows),
                         .kind = program_external(p, "kind", kind, sizeof kind),
                         .skip = program_external(p, "skip", skip, sizeof skip)};
    op.x = fixture_value(p, "x", (float *)(uintptr_t)x, total, COLS, COLS, 0);
    op.y = fixture_value(p, "y", y, SEQS, COLS, COLS + 3, 0);
    op.y.rows = EXTENT_SEQS;
    CHECK_OK(op_pool(p, &op, &err), err);
    fixture_run(p, total, SEQS, 0);
    device_close(d);
}

TEST(every_kind)
{
    int total = 0;
    for (int s = 0; s < SEQS; s++) total += rows_of[s];
    float *x = fixture_reals((size_t)total * COLS, 3.0f), first[SEQS * (COLS + 3)], y[SEQS * (COLS + 3)];
    for (int shift = 0; shift < OP_POOL_COUNT; shift++)
        for (size_t t = 0; t < sizeof fixture_threads / sizeof *fixture_threads; t++) {
            memset(y, 0, sizeof y);
            run(fixture_threads[t], shift, x, total, y);
            if (t == 0) memcpy(first, y, sizeof y);
            CHECK(!memcmp(first, y, sizeof y));
            for (int s = 0, at = 0; s < SEQS; at += rows_of[s++])
                for (int c = 0; rows_of[s] && c < COLS; c++) {
                    double want = reference((s + shift) % OP_POOL_COUNT, x + at * COLS, rows_of[s], skips[s], c);
                    if (!(fabs((double)y[s * (COLS + 3) + c] - want) <= 2e-6)) CHECK_NEAR(y[s * (COLS + 3) + c], want, 2e-6);
                }
        }
    free(x);
}

TEST(refusals)
{
    struct device *d = fixture_device(1);
    struct program *p = fixture_program(d);
    struct rose_error err = {0};
    float x[8] = {0};
    struct op_pool op = {.x = fixture_value(p, "x", x, 2, 4, 4, 0)};
    op.y = op.x, op.y.rows = EXTENT_SEQS;
    CHECK_INT(op_pool(p, &op, &err), ROSE_INVALID);
    op.y.rows = EXTENT_ROWS;
    CHECK_INT(op_pool(p, &op, &err), ROSE_INVALID);
    program_close(p);
    device_close(d);
}

TEST_MAIN(CASE(every_kind), CASE(refusals))
