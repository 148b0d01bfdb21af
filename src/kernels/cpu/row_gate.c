/* One multiplication an element: memory-bound in any instruction set, so the compiler's own vectors do. */
#include "kernels/cpu/row_gate.h"

#include <math.h>

#include "kernels/params/elementwise.h"

void cpu_row_gate(const void *params, const struct extents *extents, struct worker *w)
{
    const struct elementwise_params *p = params;
    size_t begin, end;
    worker_range(w, (size_t)extents->n[p->rows_extent], 1, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *gate = (const float *)p->x + (int64_t)r * p->x_stride;
        float *y = (float *)p->y + (int64_t)r * p->y_stride, g = 1 / (1 + expf(-*gate));
        for (int32_t i = 0; i < p->cols; i++) y[i] *= g;
    }
}
