#include "ops/draw_cuda.h"

enum { THREADS = 256 };

enum rose_status draw_cuda_plan(const struct draw_shape *s, const struct device_info *d, struct plan *out,
                                int *slices, struct rose_error *err)
{
    *out = (struct plan){.kernel = "draw_rows", .rows = s->rows, .block = THREADS, .per = 1};
    if (s->vocabulary <= 0) return status_set(err, ROSE_INVALID, "draw: a vocabulary of %d", s->vocabulary);
    /* One block an SM for a single row, four a SM for many; a slice of at least two rounds of loads. */
    int64_t n = s->rows < 1 ? d->units : ((s->rows > 4 ? 4 : 1) * (int64_t)d->units + s->rows - 1) / s->rows;
    int64_t most = s->vocabulary / (THREADS * 4);
    if (n > most) n = most;
    if (n > THREADS) n = THREADS;
    if (s->slices) n = s->slices;
    if (n < 1) n = 1;
    *slices = (int)n;
    int64_t vectors = (s->vocabulary / 4 + n - 1) / n; /* a slice */
    plan_int(out, "THREADS", THREADS);
    plan_int(out, "PER", s->per ? s->per : vectors > 4 * THREADS ? 4 : 2);
    out->times = (int32_t)n;
    out->bytes = (double)s->rows * (4.0 * s->vocabulary + 32.0 * (double)n);
    out->ops = (double)s->rows * s->vocabulary * 10;
    /* Slices' sums meet through memory: about a grid barrier, and the chosen slice is read again. */
    plan_stream(out, d, 2.5);
    return ROSE_OK;
}
