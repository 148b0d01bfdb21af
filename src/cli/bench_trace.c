/* rose bench --trace: the steps of a round as Chrome's trace events (chrome://tracing, Perfetto). */
#include "cli/bench_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"

static void write_span(FILE *f, const struct rose_span *s, int row, bool *first)
{
    fprintf(f, "%s\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%d}}", *first ? "" : ",", s->name, row, s->begin_s * 1e6,
            s->seconds * 1e6, s->step);
    *first = false;
}

/* Where the device waited between two steps. */
static double write_gaps(FILE *f, const struct rose_span *spans, int n, bool *first)
{
    double idle = 0;
    for (int i = 1; i < n; i++) {
        struct rose_span gap = {"idle", spans[i].step, spans[i - 1].begin_s + spans[i - 1].seconds, 0};
        gap.seconds = spans[i].begin_s - gap.begin_s;
        if (spans[i].step == spans[i - 1].step) continue;
        idle += gap.seconds;
        if (gap.seconds > 1e-7) write_span(f, &gap, 2, first);
    }
    return idle;
}

enum rose_status bench_trace_write(struct rose_device *device, const char *path, int marks, struct rose_error *err)
{
    struct rose_span *spans = calloc((size_t)marks, sizeof *spans);
    int n = 0;
    bool first = true;
    if (!spans) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = rose_device_trace_read(device, spans, marks, &n, err);
    FILE *f = s == ROSE_OK ? fopen(path, "we") : NULL;
    if (s == ROSE_OK && !f) s = status_set(err, ROSE_IO, "cannot write the trace to %s", path);
    if (f) {
        fprintf(f, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
        for (int i = 0; i < n; i++) write_span(f, &spans[i], 1, &first);
        double idle = write_gaps(f, spans, n, &first), all = n ? spans[n - 1].begin_s + spans[n - 1].seconds : 0;
        fprintf(f, "\n]}\n");
        if (fclose(f)) s = status_set(err, ROSE_IO, "cannot write the trace to %s", path);
        if (n) fprintf(stderr, "rose: trace of %d steps in %s: %.3f ms, the device idle between steps for %.2f%%\n", spans[n - 1].step, path, all * 1e3, 100 * idle / all);
    }
    free(spans);
    return s;
}
