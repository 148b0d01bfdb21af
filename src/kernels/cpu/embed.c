#include "kernels/cpu/embed.h"

#include <string.h>

#include "base/worker.h"
#include "tensor/extent.h"

/* Vectors of 16 bytes, which every target has; rows lie anywhere. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

static void add_row(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) *(quad *)(y + i) += *(const quad *)(x + i);
    for (; i < n; i++) y[i] += x[i];
}

void embed_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct embed_params *p = params;
    size_t k = (size_t)p->table.k, begin, end;
    worker_range(w, (size_t)ROSE_MAX(0, ROSE_MIN(extents->n[p->rows_extent], p->max_rows)), 1, &begin, &end);
    float *row = p->accumulate ? (float *)p->work + (size_t)w->index * k : NULL; /* no work memory without accumulation */
    for (size_t r = begin; r < end; r++) {
        float *y = p->y + r * (size_t)p->y_stride;
        int64_t index = (int64_t)p->index[r] + p->index_offset;
        float *to = p->accumulate ? row : y;
        const bool inside = index >= 0 && index < p->table.n;
        const uint8_t *from = inside && p->row_bytes ? p->table.data + (size_t)index * p->row_bytes : NULL;
        if (from && p->dtype == DTYPE_F32 && p->accumulate && p->scale == 1.0f) {
            add_row(y, (const float *)(const void *)from, k);
            continue;
        }
        if (from)
            dtype_decode(p->dtype, from, to, k);
        else if (inside)
            cpu_weight_row(&p->table, (int32_t)index, to);
        else
            memset(to, 0, k * sizeof *to);
        if (p->scale != 1.0f)
            for (size_t i = 0; i < k; i++) to[i] *= p->scale;
        if (p->accumulate)
            add_row(y, to, k);
    }
}
