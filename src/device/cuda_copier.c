#include "device/cuda_copier.h"

#include <stdlib.h>

#include "device/cuda_device.h"

struct cuda_copier {
    struct cuda_device *device;
    cu_stream stream;
    int events;
    cu_event event[];
};

static enum rose_status check(struct cuda_copier *c, cu_result code, const char *what, struct rose_error *err)
{
    return code == CU_SUCCESS ? ROSE_OK : cuda_api_error(&c->device->api, code, err, "%s while copying to %s", what, c->device->base.info.name);
}

/* A thread has a current context of its own. */
static enum rose_status enter(struct cuda_copier *c, struct rose_error *err)
{
    return check(c, c->device->api.context_set(c->device->context), "cuCtxSetCurrent", err);
}

enum rose_status cuda_copier_open(struct device *device, int events, struct cuda_copier **out, struct rose_error *err)
{
    struct cuda_copier *c = calloc(1, sizeof *c + (size_t)events * sizeof *c->event);
    if (!c) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    c->device = (struct cuda_device *)device;
    enum rose_status s = enter(c, err);
    if (s == ROSE_OK) s = check(c, c->device->api.stream_create(&c->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", err);
    for (; s == ROSE_OK && c->events < events; c->events++)
        if ((s = check(c, c->device->api.event_create(&c->event[c->events], CU_EVENT_DISABLE_TIMING), "cuEventCreate", err)) != ROSE_OK) break;
    if (s == ROSE_OK)
        *out = c;
    else
        cuda_copier_close(c);
    return s;
}

enum rose_status cuda_copier_copy(struct cuda_copier *c, void *dst, const void *src, size_t bytes, struct rose_error *err)
{
    ROSE_TRY(enter(c, err));
    return check(c, c->device->api.copy_async((cu_address)(uintptr_t)dst, (cu_address)(uintptr_t)src, bytes, c->stream), "cuMemcpyAsync", err);
}

enum rose_status cuda_copier_mark(struct cuda_copier *c, int event, struct rose_error *err)
{
    ROSE_TRY(enter(c, err));
    return check(c, c->device->api.event_record(c->event[event], c->stream), "cuEventRecord", err);
}

enum rose_status cuda_copier_wait(struct cuda_copier *c, int event, struct rose_error *err)
{
    ROSE_TRY(enter(c, err));
    return check(c, c->device->api.event_wait(c->event[event]), "cuEventSynchronize", err);
}

void cuda_copier_close(struct cuda_copier *c)
{
    if (!c) return;
    if (enter(c, NULL) == ROSE_OK) {
        if (c->stream) c->device->api.stream_wait(c->stream);
        for (int i = 0; i < c->events; i++) c->device->api.event_destroy(c->event[i]);
        if (c->stream) c->device->api.stream_destroy(c->stream);
    }
    free(c);
}
