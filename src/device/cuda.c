/* A CUDA device behind the vtable: opening, properties, memory, copies, events, and what a failure says. */
#include "device/cuda_device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/str.h"

/* ---- errors ---- */

enum rose_status cuda_enter(struct cuda_device *d, struct rose_error *err)
{
    if (d->lost) {
        if (err) *err = d->failure;
        return d->failure_status;
    }
    return cuda_check(d, d->api.context_set(d->context), err, "cuCtxSetCurrent");
}

/* Cut off where it does not fit: this runs inside the token loop, where nothing allocates. */
static void append(char *out, size_t size, const char *before, const char *text)
{
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", before, text);
}

/* The names in flight, each once, oldest first. */
static void name_flight(const struct cuda_device *d, char *out, size_t size)
{
    out[0] = 0;
    const char *seen[8];
    int n = 0;
    uint64_t from = d->launched - d->landed > CUDA_FLIGHT ? d->launched - CUDA_FLIGHT : d->landed;
    for (uint64_t i = from; i < d->launched; i++) {
        const char *name = d->flight[i % CUDA_FLIGHT];
        int k = 0;
        while (k < n && strcmp(seen[k], name)) k++;
        if (k < n) continue;
        if (n == (int)ROSE_COUNT(seen)) {
            append(out, size, "", ", …");
            break;
        }
        seen[n++] = name;
        append(out, size, n > 1 ? ", " : "", name);
    }
    if (n == 0)
        append(out, size, "", "none (a copy or an earlier fault)");
    else if (n > 1)
        append(out, size, "", "; one of these: --debug-sync finds which");
}

enum rose_status cuda_check(struct cuda_device *d, cu_result code, struct rose_error *err, const char *fmt,
                            ...)
{
    char call[512];
    va_list args;
    if (code == CU_SUCCESS) return ROSE_OK;
    va_start(args, fmt);
    vsnprintf(call, sizeof call, fmt, args);
    va_end(args);
    if (!cuda_api_sticky(code) || !d->stream) return cuda_api_error(&d->api, code, err, "%s", call);
    char flight[640];
    name_flight(d, flight, sizeof flight);
    d->failure_status =
        cuda_api_error(&d->api, code, &d->failure, "the device %s is lost; kernel in flight: %s; %s",
                       d->base.info.name, flight, call);
    d->lost = true;
    if (err) *err = d->failure;
    return d->failure_status;
}

enum rose_status cuda_flown(struct cuda_device *d, const char *name, struct rose_error *err)
{
    d->flight[d->launched++ % CUDA_FLIGHT] = name;
    if (!d->debug_sync) return ROSE_OK;
    ROSE_TRY(cuda_check(d, d->api.stream_wait(d->stream), err, "cuStreamSynchronize after %s", name));
    d->landed = d->launched;
    return ROSE_OK;
}

/* ---- memory and order ---- */

static void *cuda_alloc(struct device *device, size_t bytes, enum device_memory kind, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    cu_address address = 0;
    void *host = NULL;
    size_t want = bytes ? bytes : 1, left = 0, total = 0;
    if (cuda_enter(d, err) != ROSE_OK) return NULL;
    cu_result r = kind == DEVICE_MEMORY_HOST ? d->api.host_alloc(&host, want, CU_HOST_PORTABLE_MAPPED)
                                             : d->api.memory_alloc(&address, want);
    if (r == CU_SUCCESS) return kind == DEVICE_MEMORY_HOST ? host : (void *)(uintptr_t)address;
    if (d->api.memory_info(&left, &total) != CU_SUCCESS) left = 0;
    if (kind == DEVICE_MEMORY_HOST)
        cuda_check(d, r, err, "cuMemHostAlloc of %zu bytes of pinned host memory", bytes);
    else
        cuda_check(d, r, err, "cuMemAlloc of %zu bytes on %s (%zu bytes free)", bytes, d->base.info.name,
                   left);
    return NULL;
}

static void cuda_free(struct device *device, void *memory, size_t bytes, enum device_memory kind)
{
    struct cuda_device *d = (struct cuda_device *)device;
    (void)bytes;
    if (cuda_enter(d, NULL) != ROSE_OK)
        return; /* a lost context gives its memory back when the process ends */
    if (kind == DEVICE_MEMORY_HOST)
        d->api.host_free(memory);
    else
        d->api.memory_free((cu_address)(uintptr_t)memory);
}

static size_t cuda_memory_free(struct device *device)
{
    struct cuda_device *d = (struct cuda_device *)device;
    size_t left = 0, total = 0;
    if (cuda_enter(d, NULL) != ROSE_OK || d->api.memory_info(&left, &total) != CU_SUCCESS) return 0;
    return left;
}

static enum rose_status cuda_copy(struct device *device, void *dst, const void *src, size_t bytes,
                                  struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    if (bytes == 0) return ROSE_OK;
    cu_result r = d->api.copy_async((cu_address)(uintptr_t)dst, (cu_address)(uintptr_t)src, bytes, d->stream);
    return cuda_check(d, r, err, "cuMemcpyAsync of %zu bytes", bytes);
}

enum rose_status cuda_fill(struct device *device, void *dst, int byte, size_t bytes, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    if (bytes == 0) return ROSE_OK;
    return cuda_check(d, d->api.fill_async((cu_address)(uintptr_t)dst, (unsigned char)byte, bytes, d->stream),
                      err, "cuMemsetD8Async of %zu bytes", bytes);
}

static enum rose_status event_new(struct cuda_device *d, cu_event *out, struct rose_error *err)
{
    struct cuda_event_node *node = calloc(1, sizeof *node);
    if (!node) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s =
        cuda_check(d, d->api.event_create(&node->event, CU_EVENT_DISABLE_TIMING), err, "cuEventCreate");
    if (s != ROSE_OK) {
        free(node);
        return s;
    }
    node->next = d->events;
    d->events = node;
    *out = node->event;
    return ROSE_OK;
}

static enum rose_status cuda_record(struct device *device, struct device_event *event, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    cu_event handle = event->handle;
    ROSE_TRY(cuda_enter(d, err));
    if (!handle) ROSE_TRY(event_new(d, &handle, err));
    event->handle = handle;
    ROSE_TRY(cuda_check(d, d->api.event_record(handle, d->stream), err, "cuEventRecord"));
    event->ticket = d->launched;
    return ROSE_OK;
}

static enum rose_status cuda_wait(struct device *device, struct device_event *event, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    if (event && !event->handle) return ROSE_OK; /* never recorded: nothing lies before it */
    uint64_t ticket = event ? event->ticket : d->launched;
    if (event)
        ROSE_TRY(cuda_check(d, d->api.event_wait(event->handle), err, "cuEventSynchronize"));
    else
        ROSE_TRY(cuda_check(d, d->api.stream_wait(d->stream), err, "cuStreamSynchronize"));
    d->landed = ROSE_MAX(d->landed, ticket);
    return ROSE_OK;
}

enum rose_status cuda_after(struct device *device, struct device *other, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device, *o = (struct cuda_device *)other;
    struct device_event event = {0};
    ROSE_TRY(cuda_record(other, &event, err));
    ROSE_TRY(cuda_enter(d, err));
    enum rose_status s =
        cuda_check(d, d->api.stream_after(d->stream, event.handle, 0), err, "cuStreamWaitEvent");
    /* The driver keeps a destroyed event until its work is done; it was the newest of o's list. */
    struct cuda_event_node *node = o->events;
    o->events = node->next;
    o->api.event_destroy(node->event);
    free(node);
    return s;
}

/* ---- opening ---- */

/* The target that jit/ compiles for: cubins run on the same major version from their minor version up, except
 * "a" targets, which run on exactly one (CUDA C programming guide, "Binary compatibility"). */
static void arch_name(int major, int minor, char out[16])
{
    if (major == 8 && minor < 9)
        snprintf(out, 16, "sm_80");
    else
        snprintf(out, 16, "sm_%d%s", major * 10 + minor, major >= 9 ? "a" : "");
}

static enum rose_status read_info(struct cuda_device *d, struct rose_error *err)
{
    struct device_info *info = &d->base.info;
    int major = 0, minor = 0, clock_khz = 0, bus_bits = 0, l2 = 0, block = 0, unit = 0, coop = 0, cluster = 0,
        unified = 0;
    const struct {
        int attribute, *value;
        bool optional;
    } wanted[] = {
        {CU_ATTR_MAJOR, &major, false},
        {CU_ATTR_MINOR, &minor, false},
        {CU_ATTR_UNITS, &info->units, false},
        {CU_ATTR_WARP, &info->warp, false},
        {CU_ATTR_THREADS_PER_UNIT, &info->max_threads_per_unit, false},
        {CU_ATTR_THREADS_PER_BLOCK, &info->max_threads_per_block, false},
        {CU_ATTR_SHARED_PER_BLOCK_OPTIN, &block, false},
        {CU_ATTR_SHARED_PER_UNIT, &unit, false},
        {CU_ATTR_L2_BYTES, &l2, false},
        {CU_ATTR_UNIFIED_ADDRESSING, &unified, false},
        {CU_ATTR_COOPERATIVE, &coop, true},
        {CU_ATTR_CLUSTER, &cluster, true},
        {CU_ATTR_MEMORY_CLOCK_KHZ, &clock_khz, true},
        {CU_ATTR_MEMORY_BUS_BITS, &bus_bits, true},
    };
    ROSE_TRY(
        cuda_check(d, d->api.device_name(info->name, sizeof info->name, d->device), err, "cuDeviceGetName"));
    for (size_t i = 0; i < ROSE_COUNT(wanted); i++) {
        cu_result r = d->api.device_attribute(wanted[i].value, wanted[i].attribute, d->device);
        if (r != CU_SUCCESS && !wanted[i].optional)
            return cuda_check(d, r, err, "cuDeviceGetAttribute %d", wanted[i].attribute);
    }
    info->kind = DEVICE_CUDA;
    arch_name(major, minor, info->arch);
    info->l2_bytes = (size_t)l2, info->shared_per_block = (size_t)block, info->shared_per_unit = (size_t)unit;
    info->cooperative = coop, info->clusters = cluster, info->dependent_launch = major >= 9;
    info->bandwidth = 2.0 * clock_khz * 1e3 * bus_bits / 8; /* two transfers a clock */
    if (major < 8)
        return status_set(err, ROSE_UNSUPPORTED, "%s has compute capability %d.%d; Rose needs 8.0 or newer",
                          info->name, major, minor);
    if (!unified) return status_set(err, ROSE_UNSUPPORTED, "%s has no unified addressing", info->name);
    return ROSE_OK;
}

static enum rose_status open_device(struct cuda_device *d, const struct device_options *options,
                                    struct rose_error *err)
{
    int count = 0;
    ROSE_TRY(cuda_api_load(options->driver, &d->api, err));
    ROSE_TRY(cuda_check(d, d->api.init(0), err, "cuInit"));
    ROSE_TRY(cuda_check(d, d->api.device_count(&count), err, "cuDeviceGetCount"));
    if (options->index < 0 || options->index >= count)
        return status_set(err, ROSE_NOT_FOUND, "there is no GPU %d: the driver sees %d", options->index,
                          count);
    ROSE_TRY(
        cuda_check(d, d->api.device_get(&d->device, options->index), err, "cuDeviceGet %d", options->index));
    ROSE_TRY(read_info(d, err));
    ROSE_TRY(cuda_check(d, d->api.context_retain(&d->context, d->device), err,
                        "cuDevicePrimaryCtxRetain on %s", d->base.info.name));
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(cuda_check(d, d->api.memory_info(&d->base.info.memory_free, &d->base.info.memory_total), err,
                        "cuMemGetInfo"));
    return cuda_check(d, d->api.stream_create(&d->stream, CU_STREAM_NON_BLOCKING), err, "cuStreamCreate");
}

static void cuda_close(struct device *device)
{
    struct cuda_device *d = (struct cuda_device *)device;
    /* A lost device's objects are given back too: where the driver refuses, the context's end takes them. */
    bool alive = d->context && d->api.context_set(d->context) == CU_SUCCESS;
    if (alive && d->stream) d->api.stream_wait(d->stream);
    while (d->modules) cuda_module_unload(d->modules);
    while (d->events) {
        struct cuda_event_node *node = d->events;
        d->events = node->next;
        if (alive) d->api.event_destroy(node->event);
        free(node);
    }
    if (alive) cuda_trace_close(d);
    for (int i = 0; i < d->timers_count && alive; i++) d->api.event_destroy(d->timers[i]);
    free(d->timers);
    if (alive && d->fork) d->api.event_destroy(d->fork);
    if (alive && d->join) d->api.event_destroy(d->join);
    if (alive && d->side) d->api.stream_destroy(d->side);
    if (alive && d->stream) d->api.stream_destroy(d->stream);
    if (d->context) d->api.context_release(d->device);
    cuda_api_unload(&d->api);
    free(d);
}

enum rose_status device_cuda_open(const struct device_options *options, struct device **out,
                                  struct rose_error *err)
{
    static const struct device_vtable vtable = {
        .close = cuda_close,
        .alloc = cuda_alloc,
        .free = cuda_free,
        .copy = cuda_copy,
        .submit = cuda_launch_submit,
        .record = cuda_record,
        .wait = cuda_wait,
        .program_ready = cuda_launch_program_ready,
        .program_gone = cuda_launch_program_gone,
        .prepare = cuda_launch_prepare,
        .memory_free = cuda_memory_free,
    };
    struct cuda_device *d = calloc(1, sizeof *d);
    if (!d) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    d->base.vtable = &vtable;
    d->debug_sync = options->debug_sync;
    enum rose_status s = open_device(d, options, err);
    if (s == ROSE_OK)
        *out = &d->base;
    else
        cuda_close(&d->base);
    return s;
}

int cuda_device_count(const char *driver, struct rose_error *err)
{
    struct cuda_api api;
    int count = 0;
    if (cuda_api_load(driver, &api, err) != ROSE_OK) return 0;
    cu_result r = api.init(0);
    if (r == CU_SUCCESS) r = api.device_count(&count);
    if (r != CU_SUCCESS) cuda_api_error(&api, r, err, "cuInit"), count = 0;
    cuda_api_unload(&api);
    return count;
}
