/* Where the device's time goes, step by step: an event behind every part of a step that the engine names, read when all is done. */
#include "device/cuda_device.h"

#include <stdlib.h>

struct cuda_trace {
    cu_event *events;  /* [capacity], with times */
    const char **names; /* what ended there; NULL: a step begins */
    int count, capacity;
};

static void trace_free(struct cuda_device *d)
{
    struct cuda_trace *t = d->trace;
    if (!t) return;
    for (int i = 0; i < t->capacity; i++)
        if (t->events && t->events[i]) d->api.event_destroy(t->events[i]);
    free(t->events);
    free(t->names);
    free(t);
    d->trace = NULL;
}

void cuda_trace_close(struct cuda_device *d) { trace_free(d); }

enum rose_status cuda_trace_start(struct device *device, int marks, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    trace_free(d);
    if (marks <= 0) return ROSE_OK;
    struct cuda_trace *t = d->trace = calloc(1, sizeof *t);
    if (t) t->events = calloc((size_t)marks, sizeof(cu_event)), t->names = calloc((size_t)marks, sizeof(char *));
    if (!t || !t->events || !t->names) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (; t->capacity < marks; t->capacity++) ROSE_TRY(cuda_check(d, d->api.event_create(&t->events[t->capacity], 0), err, "cuEventCreate"));
    return ROSE_OK;
}

enum rose_status cuda_trace_mark(struct device *device, const char *name, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct cuda_trace *t = d->trace;
    if (!t || t->count == t->capacity) return ROSE_OK;
    t->names[t->count] = name;
    return cuda_check(d, d->api.event_record(t->events[t->count++], d->stream), err, "cuEventRecord");
}

enum rose_status cuda_trace_read(struct device *device, struct device_span *spans, int n, int *count, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct cuda_trace *t = d->trace;
    double before = 0;
    int step = 0;
    *count = 0;
    if (!t || !t->count) return ROSE_OK;
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(cuda_check(d, d->api.stream_wait(d->stream), err, "cuStreamSynchronize"));
    for (int i = 0; i < t->count; i++) {
        float ms = 0;
        if (i) ROSE_TRY(cuda_check(d, d->api.event_elapsed(&ms, t->events[0], t->events[i]), err, "cuEventElapsedTime"));
        double at = ms * 1e-3;
        step += !t->names[i];
        if (t->names[i] && *count < n) spans[(*count)++] = (struct device_span){t->names[i], step, before, at - before};
        before = at;
    }
    return ROSE_OK;
}
