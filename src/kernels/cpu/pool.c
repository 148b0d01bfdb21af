/* One pass over the rows, memory-bound: the compiler's own vectors do. A sequence's columns are cut among workers; every column sums
 * over its rows in order, so that no bit depends on the number of threads. */
#include "kernels/cpu/pool.h"

#include <math.h>
#include <string.h>

#include "base/str.h"

enum { COLUMNS = 64 }; /* of a piece */

/* Rows [0, n) of x, `first` of them left out of the sums; y has `cols` <= COLUMNS columns. Weights of the weighted mean are the
 * positions, counted from 1, also behind a skipped prompt. */
static void pool_columns(int32_t kind, const float *x, int64_t stride, int32_t n, int32_t first, int32_t cols, float *y)
{
    if (kind == POOL_CLS || kind == POOL_LAST) {
        memcpy(y, x + (int64_t)(kind == POOL_CLS ? first : n - 1) * stride, (size_t)cols * sizeof *y);
        return;
    }
    float acc[COLUMNS];
    double weight = 0;
    for (int32_t c = 0; c < cols; c++) acc[c] = kind == POOL_MAX ? -INFINITY : 0;
    for (int32_t r = first; r < n; r++) {
        const float *row = x + (int64_t)r * stride;
        if (kind == POOL_MAX) {
            for (int32_t c = 0; c < cols; c++) acc[c] = row[c] > acc[c] ? row[c] : acc[c];
            continue;
        }
        float f = kind == POOL_WEIGHTED_MEAN ? (float)(r + 1) : 1;
        weight += f;
        for (int32_t c = 0; c < cols; c++) acc[c] += f * row[c];
    }
    float scale = kind == POOL_MAX ? 1 : (float)(1 / (kind == POOL_MEAN_SQRT ? sqrt(weight) : weight));
    for (int32_t c = 0; c < cols; c++) y[c] = acc[c] * scale;
}

void cpu_pool(const void *params, const struct extents *extents, struct worker *w)
{
    const struct pool_params *p = params;
    const int32_t *rows = p->seq_rows, *kind = p->kind, *skip = p->skip;
    size_t pieces = ((size_t)p->cols + COLUMNS - 1) / COLUMNS, begin, end;
    worker_range(w, (size_t)extents->n[EXTENT_SEQS] * pieces, 1, &begin, &end);
    for (size_t u = begin; u < end; u++) {
        size_t s = u / pieces;
        int32_t col = (int32_t)(u % pieces) * COLUMNS, n = rows[s + 1] - rows[s];
        if (n <= 0) continue;
        int32_t first = skip[s] < n ? skip[s] : n - 1; /* a text that is all prompt: its last row */
        pool_columns(kind[s], (const float *)p->x + (int64_t)rows[s] * p->x_stride + col, p->x_stride, n, first, ROSE_MIN(COLUMNS, p->cols - col),
                     (float *)p->y + (int64_t)s * p->y_stride + col);
    }
}
