/* The driver API: devices, memory, modules, launches, graphs. Names, values and layouts as in
 * device/cuda_api.h. */
#define _GNU_SOURCE
#include "driver_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct driver_device driver_devices[SIMT_DRIVER_DEVICES] = {
    [SIMT_DRIVER_SM90] = {"simt sm_90a", "sm_90a", 9, 0, 232448, 233472, 2048, 60, 3201000, 6144, 0, 0, 0},
    [SIMT_DRIVER_SM80] = {"simt sm_80", "sm_80", 8, 0, 166912, 167936, 2048, 40, 1215000, 5120, 0, 0, 0},
    [SIMT_DRIVER_SM89] = {"simt sm_89", "sm_89", 8, 9, 101376, 102400, 1536, 96, 9001000, 384, 0, 0, 0},
    [SIMT_DRIVER_SM100] = {"simt sm_100a", "sm_100a", 10, 0, 232448, 233472, 2048, 126, 3996000, 8192, 0, 0,
                           0},
    [SIMT_DRIVER_SM120] = {"simt sm_120a", "sm_120a", 12, 0, 101376, 102400, 1536, 128, 14001000, 512, 0, 0,
                           0},
    [5] = {"simt sm_90a", "sm_90a", 9, 0, 232448, 233472, 2048, 60, 3201000, 6144, 0, 0, 0},
    [6] = {"simt sm_90a", "sm_90a", 9, 0, 232448, 233472, 2048, 60, 3201000, 6144, 0, 0, 0},
    [7] = {"simt sm_90a", "sm_90a", 9, 0, 232448, 233472, 2048, 60, 3201000, 6144, 0, 0, 0},
};
uint64_t driver_seed = 1;
size_t driver_memory = (size_t)1 << 30;
struct simt_driver_counts driver_counts;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int current = -1;
static struct cu_context_st contexts[SIMT_DRIVER_DEVICES];
static struct cu_module_st *modules;
static struct driver_allocation *allocations;

#define LOCKED(expression)           \
    do {                             \
        pthread_mutex_lock(&lock);   \
        cu_result r_ = (expression); \
        pthread_mutex_unlock(&lock); \
        return r_;                   \
    } while (0)

/* Every call that needs a context: none is current, or what broke it. */
#define ENTER                                                                      \
    do {                                                                           \
        if (current < 0) return CU_ERROR_CONTEXT;                                  \
        if (driver_devices[current].broken) return driver_devices[current].broken; \
    } while (0)

static bool valid(cu_device device)
{
    return device >= 0 && device < SIMT_DRIVER_DEVICES;
}

SIMT_EXPORT void simt_driver_counts(struct simt_driver_counts *out);
void simt_driver_counts(struct simt_driver_counts *out)
{
    *out = driver_counts;
}
SIMT_EXPORT void simt_driver_set(uint64_t seed, size_t memory);
void simt_driver_set(uint64_t seed, size_t memory)
{
    driver_seed = seed;
    driver_memory = memory;
}
SIMT_EXPORT void simt_driver_profile(void);
void simt_driver_profile(void)
{
    for (struct cu_module_st *m = modules; m; m = m->next)
        for (struct cu_function_st *f = m->functions; f; f = f->next)
            fprintf(stderr, "%8.3f s %7llu launches %s\n", f->seconds, (unsigned long long)f->launches,
                    f->kernel->entry_name);
}

/* ---- errors, devices ---- */

API cuInit(unsigned flags);
API cuInit(unsigned flags)
{
    (void)flags;
#ifndef SIMT_DRIVER_CHECKED
    simt_fast = true;
#endif
    simt_lenient = true;
    return CU_SUCCESS;
}

static const struct {
    cu_result code;
    const char *name, *text;
} errors[] = {
    {CU_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CU_ERROR_INVALID, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CU_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CU_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CU_ERROR_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CU_ERROR_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CU_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CU_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CU_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", driver_message},
    {CU_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", driver_message},
    {CU_ERROR_PEER_ALREADY, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {CU_ERROR_ASSERT, "CUDA_ERROR_ASSERT", driver_message},
    {CU_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", driver_message},
    {CU_ERROR_COOPERATIVE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {CU_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", driver_message},
    {CU_ERROR_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CU_ERROR_GRAPH_UPDATE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed"},
};

API cuGetErrorName(cu_result error, const char **name);
API cuGetErrorName(cu_result error, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error) {
            *name = errors[i].name;
            return CU_SUCCESS;
        }
    *name = NULL;
    return CU_ERROR_INVALID;
}
API cuGetErrorString(cu_result error, const char **text);
API cuGetErrorString(cu_result error, const char **text)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error) {
            *text = errors[i].text;
            return CU_SUCCESS;
        }
    *text = NULL;
    return CU_ERROR_INVALID;
}
API cuDriverGetVersion(int *version);
API cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CU_SUCCESS;
}
API cuDeviceGetCount(int *count);
API cuDeviceGetCount(int *count)
{
    *count = SIMT_DRIVER_DEVICES;
    return CU_SUCCESS;
}
API cuDeviceGet(cu_device *device, int index);
API cuDeviceGet(cu_device *device, int index)
{
    if (!valid(index)) return 101;
    *device = index;
    return CU_SUCCESS;
}
API cuDeviceGetName(char *name, int size, cu_device device);
API cuDeviceGetName(char *name, int size, cu_device device)
{
    if (!valid(device)) return 101;
    snprintf(name, (size_t)size, "%s", driver_devices[device].name);
    return CU_SUCCESS;
}
API cuDeviceGetAttribute(int *value, int attribute, cu_device device);
API cuDeviceGetAttribute(int *value, int attribute, cu_device device)
{
    if (!valid(device)) return 101;
    const struct driver_device *d = &driver_devices[device];
    const int values[][2] = {{CU_ATTR_THREADS_PER_BLOCK, 1024},
                             {CU_ATTR_WARP, 32},
                             {CU_ATTR_UNITS, SIMT_DRIVER_UNITS},
                             {CU_ATTR_MEMORY_CLOCK_KHZ, d->clock_khz},
                             {CU_ATTR_MEMORY_BUS_BITS, d->bus_bits},
                             {CU_ATTR_L2_BYTES, d->l2_mb << 20},
                             {CU_ATTR_THREADS_PER_UNIT, d->threads_unit},
                             {CU_ATTR_UNIFIED_ADDRESSING, 1},
                             {CU_ATTR_MAJOR, d->major},
                             {CU_ATTR_MINOR, d->minor},
                             {CU_ATTR_SHARED_PER_UNIT, d->shared_unit},
                             {CU_ATTR_COOPERATIVE, 1},
                             {CU_ATTR_SHARED_PER_BLOCK_OPTIN, d->shared_block},
                             {CU_ATTR_CLUSTER, d->major >= 9}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][0] == attribute) {
            *value = values[i][1];
            return CU_SUCCESS;
        }
    return CU_ERROR_INVALID;
}
API cuDeviceTotalMem_v2(size_t *bytes, cu_device device);
API cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    (void)device;
    *bytes = driver_memory;
    return CU_SUCCESS;
}

static cu_result retain(cu_context *context, cu_device device)
{
    if (!valid(device)) return 101;
    driver_devices[device].refs++;
    contexts[device].device = device;
    *context = &contexts[device];
    return CU_SUCCESS;
}
API cuDevicePrimaryCtxRetain(cu_context *context, cu_device device);
API cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
    LOCKED(retain(context, device));
}

/* Its pages and what it is known by. */
static void drop(struct driver_allocation *a)
{
    if (a->fd >= 0) close(a->fd);
    simt_unmap(a->p);
    free(a);
}

/* The last release ends the context: its memory goes, and with it whatever broke it. */
static cu_result release(cu_device device)
{
    struct driver_device *d = &driver_devices[device];
    if (--d->refs) return CU_SUCCESS;
    driver_run_all(device);
    int left = 0;
    for (struct driver_allocation **at = &allocations; *at;) {
        struct driver_allocation *a = *at;
        if (a->device != device) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        drop(a);
        left++;
    }
    if (left && !d->broken)
        fprintf(stderr,
                "simt driver: %d allocations of device memory were not freed before the device was closed\n",
                left);
    d->used = 0;
    d->broken = 0;
    return CU_SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(cu_device device);
API cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    if (!valid(device) || !driver_devices[device].refs) return CU_ERROR_CONTEXT;
    LOCKED(release(device));
}
API cuCtxSetCurrent(cu_context context);
API cuCtxSetCurrent(cu_context context)
{
    current = context ? context->device : -1;
    return CU_SUCCESS;
}

/* ---- memory ---- */

API cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
API cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER;
    *free_bytes = driver_memory - driver_devices[current].used, *total = driver_memory;
    return CU_SUCCESS;
}

cu_result driver_allocate(void **out, size_t bytes, bool host, bool imported)
{
    ENTER;
    if (!bytes) return CU_ERROR_INVALID;
    if (!host && !imported && bytes > driver_memory - driver_devices[current].used) return CU_ERROR_OUT_OF_MEMORY;
    struct driver_allocation *a = calloc(1, sizeof *a);
    void *p = a ? simt_map(host ? "pinned host memory" : imported ? "another process's memory" : "device memory", bytes, host || imported) : NULL;
    if (!p) {
        free(a);
        return CU_ERROR_OUT_OF_MEMORY;
    }
    *a = (struct driver_allocation){.next = allocations, .p = p, .bytes = bytes, .device = host ? -1 : current, .fd = -1, .imported = imported};
    allocations = a;
    if (!host && !imported) driver_devices[current].used += bytes;
    *out = p;
    return CU_SUCCESS;
}

/* As with CUDA, memory is given back only after all that was queued. */
cu_result driver_give_back(void *p, bool host)
{
    ENTER;
    for (struct driver_allocation **at = &allocations; *at; at = &(*at)->next) {
        struct driver_allocation *a = *at;
        if (a->p != p || (a->device < 0) != host) continue;
        cu_result r = CU_SUCCESS;
        for (int i = 0; i < SIMT_DRIVER_DEVICES; i++)
            if (driver_devices[i].refs) r = r ? r : driver_run_all(i);
        if (!host && !a->imported) driver_devices[a->device].used -= a->bytes;
        *at = a->next;
        drop(a);
        return r;
    }
    return CU_ERROR_INVALID;
}

struct driver_allocation *driver_allocation_of(const void *p)
{
    struct driver_allocation *a = allocations;
    while (a && ((const char *)p < (const char *)a->p || (size_t)((const char *)p - (const char *)a->p) >= a->bytes)) a = a->next;
    return a;
}

int driver_lock(void)
{
    pthread_mutex_lock(&lock);
    return current >= 0 && !driver_devices[current].broken ? current : -1;
}

void driver_unlock(void) { pthread_mutex_unlock(&lock); }

API cuMemAlloc_v2(cu_address *address, size_t bytes);
API cuMemAlloc_v2(cu_address *address, size_t bytes)
{
    void *p = NULL;
    pthread_mutex_lock(&lock);
    cu_result r = driver_allocate(&p, bytes, false, false);
    pthread_mutex_unlock(&lock);
    if (r == CU_SUCCESS) *address = (cu_address)(uintptr_t)p;
    return r;
}
API cuMemFree_v2(cu_address address);
API cuMemFree_v2(cu_address address)
{
    LOCKED(driver_give_back((void *)(uintptr_t)address, false));
}
API cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
API cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    LOCKED(driver_allocate(address, bytes, true, false));
}
API cuMemFreeHost(void *address);
API cuMemFreeHost(void *address)
{
    LOCKED(driver_give_back(address, true));
}

static cu_result queue(cu_stream stream, struct driver_op *op)
{
    ENTER;
    if (!stream) return CU_ERROR_INVALID; /* the default stream is never used */
    if (stream->device != current) return CU_ERROR_CONTEXT;
    return driver_add(stream, op);
}
API cuMemcpyAsync(cu_address dst, cu_address src, size_t bytes, cu_stream stream);
API cuMemcpyAsync(cu_address dst, cu_address src, size_t bytes, cu_stream stream)
{
    struct driver_op op = {.kind = DRIVER_COPY,
                           .dst = (unsigned char *)(uintptr_t)dst,
                           .src = (const unsigned char *)(uintptr_t)src,
                           .bytes = bytes};
    LOCKED(queue(stream, &op));
}
API cuMemsetD8Async(cu_address dst, unsigned char value, size_t bytes, cu_stream stream);
API cuMemsetD8Async(cu_address dst, unsigned char value, size_t bytes, cu_stream stream)
{
    struct driver_op op = {.kind = DRIVER_FILL,
                           .dst = (unsigned char *)(uintptr_t)dst,
                           .bytes = bytes,
                           .byte = value,
                           .width = 1};
    LOCKED(queue(stream, &op));
}
API cuMemsetD32Async(cu_address dst, unsigned value, size_t n, cu_stream stream);
API cuMemsetD32Async(cu_address dst, unsigned value, size_t n, cu_stream stream)
{
    struct driver_op op = {.kind = DRIVER_FILL,
                           .dst = (unsigned char *)(uintptr_t)dst,
                           .bytes = 4 * n,
                           .byte = (int)value,
                           .width = 4};
    LOCKED(queue(stream, &op));
}
API cuLaunchHostFunc(cu_stream stream, void (*host)(void *), void *user);
API cuLaunchHostFunc(cu_stream stream, void (*host)(void *), void *user)
{
    struct driver_op op = {.kind = DRIVER_HOST, .host = host, .user = user};
    LOCKED(queue(stream, &op));
}

/* ---- streams and events ---- */

API cuStreamCreate(cu_stream *stream, unsigned flags);
API cuStreamCreate(cu_stream *stream, unsigned flags)
{
    (void)flags;
    ENTER;
    LOCKED(driver_stream_new(current, stream));
}
static cu_result stream_destroy(cu_stream stream)
{
    driver_stream_gone(stream);
    return CU_SUCCESS;
}
API cuStreamDestroy_v2(cu_stream stream);
API cuStreamDestroy_v2(cu_stream stream)
{
    LOCKED(stream_destroy(stream));
}
static cu_result stream_wait(cu_stream stream)
{
    ENTER;
    if (stream->capture) return CU_ERROR_CAPTURE;
    cu_result r = driver_run_stream(stream);
    simt_settled();
    return r;
}
API cuStreamSynchronize(cu_stream stream);
API cuStreamSynchronize(cu_stream stream)
{
    LOCKED(stream_wait(stream));
}
static cu_result stream_after(cu_stream stream, cu_event event)
{
    ENTER;
    if (event->capture) return driver_capture_after(stream, event);
    if (!event->stream || event->done >= event->recorded) return CU_SUCCESS;
    event->refs++;
    return driver_add(stream,
                      &(struct driver_op){.kind = DRIVER_AFTER, .event = event, .ticket = event->recorded});
}
API cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags);
API cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags)
{
    (void)flags;
    LOCKED(stream_after(stream, event));
}
API cuEventCreate(cu_event *event, unsigned flags);
API cuEventCreate(cu_event *event, unsigned flags)
{
    (void)flags;
    ENTER;
    *event = calloc(1, sizeof **event);
    if (!*event) return CU_ERROR_OUT_OF_MEMORY;
    (*event)->refs = 1;
    return CU_SUCCESS;
}
static cu_result event_destroy(cu_event event)
{
    driver_event_drop(event);
    return CU_SUCCESS;
}
API cuEventDestroy_v2(cu_event event);
API cuEventDestroy_v2(cu_event event)
{
    LOCKED(event_destroy(event));
}
static cu_result event_record(cu_event event, cu_stream stream)
{
    ENTER;
    event->capture = stream->capture, event->captured_by = stream;
    if (stream->capture) return CU_SUCCESS; /* it marks a place in the graph, and nothing is recorded when that runs */
    event->refs++;
    event->stream = stream;
    return driver_add(
        stream, &(struct driver_op){.kind = DRIVER_RECORD, .event = event, .ticket = ++event->recorded});
}
API cuEventRecord(cu_event event, cu_stream stream);
API cuEventRecord(cu_event event, cu_stream stream)
{
    LOCKED(event_record(event, stream));
}
static cu_result event_wait(cu_event event)
{
    ENTER;
    cu_result r = driver_run_event(event);
    simt_settled();
    return r;
}
API cuEventSynchronize(cu_event event);
API cuEventSynchronize(cu_event event)
{
    LOCKED(event_wait(event));
}
API cuEventElapsedTime(float *ms, cu_event from, cu_event to);
API cuEventElapsedTime(float *ms, cu_event from, cu_event to)
{
    if (!from->done || !to->done) return CU_ERROR_NOT_READY;
    *ms = (float)((to->time - from->time) * 1e3);
    return CU_SUCCESS;
}

/* ---- modules, launches ---- */

static cu_result module_load(cu_module *out, const void *image)
{
    char hash[40], path[700];
    const unsigned char *so;
    size_t n;
    uint32_t arch;
    ENTER;
    if (!driver_cubin_read(image, &arch, hash, &so, &n)) return CU_ERROR_NO_BINARY;
    const struct driver_device *d = &driver_devices[current];
    /* "a" targets run on their architecture alone; others from their minor version up. */
    uint32_t mine = (uint32_t)(d->major * 100 + d->minor * 10);
    if (arch != mine && !(arch < 900 && arch / 100 == mine / 100 && arch <= mine)) return CU_ERROR_NO_BINARY;
    driver_cache_path(hash, path, sizeof path);
    if (!driver_cache_write(path, so, n)) return CU_ERROR_NO_BINARY;
    struct cu_module_st *m = calloc(1, sizeof *m);
    if (!m) return CU_ERROR_OUT_OF_MEMORY;
    m->so = strdup(path);
    m->arch = arch;
    m->next = modules;
    modules = m;
    *out = m;
    return CU_SUCCESS;
}
API cuModuleLoadData(cu_module *module, const void *image);
API cuModuleLoadData(cu_module *module, const void *image)
{
    LOCKED(module_load(module, image));
}
static cu_result module_unload(cu_module module)
{
    struct cu_module_st **at = &modules;
    driver_run_all(current < 0 ? 0 : current);
    while (*at && *at != module) at = &(*at)->next;
    if (!*at) return CU_ERROR_INVALID;
    *at = module->next;
    while (module->functions) {
        struct cu_function_st *f = module->functions;
        module->functions = f->next;
        free((char *)(uintptr_t)f->kernel->entry_name);
        free((struct simt_kernel *)(uintptr_t)f->kernel);
        free(f);
    }
    free(module->so);
    free(module);
    return CU_SUCCESS;
}
API cuModuleUnload(cu_module module);
API cuModuleUnload(cu_module module)
{
    LOCKED(module_unload(module));
}
static cu_result module_function(cu_function *out, cu_module module, const char *name)
{
    ENTER;
    const struct simt_kernel *k = simt_kernel_open(module->so, name, module->arch);
    struct cu_function_st *f = k ? calloc(1, sizeof *f) : NULL;
    if (!k) return CU_ERROR_NOT_FOUND;
    if (!f) return CU_ERROR_OUT_OF_MEMORY;
    f->kernel = k;
    f->next = module->functions;
    module->functions = f;
    *out = f;
    return CU_SUCCESS;
}
API cuModuleGetFunction(cu_function *function, cu_module module, const char *name);
API cuModuleGetFunction(cu_function *function, cu_module module, const char *name)
{
    LOCKED(module_function(function, module, name));
}
/* Registers, static shared and local memory are the GPU compiler's affair: 0. */
API cuFuncGetAttribute(int *value, int attribute, cu_function function);
API cuFuncGetAttribute(int *value, int attribute, cu_function function)
{
    *value = attribute == CU_FUNC_MAX_THREADS ? (int)function->kernel->info->threads : 0;
    return CU_SUCCESS;
}
API cuFuncSetAttribute(cu_function function, int attribute, int value);
API cuFuncSetAttribute(cu_function function, int attribute, int value)
{
    ENTER;
    if (attribute == CU_FUNC_MAX_DYNAMIC_SHARED) {
        if (value > driver_devices[current].shared_block) return CU_ERROR_INVALID;
        function->dynamic_shared = value;
    }
    return CU_SUCCESS;
}
static int occupancy(uint32_t threads, size_t shared)
{
    const struct driver_device *d = &driver_devices[current];
    int by_threads = threads ? d->threads_unit / (int)((threads + 31) / 32 * 32) : 0;
    int by_shared = (int)((size_t)d->shared_unit / (shared + 1024));
    int n = by_threads < by_shared ? by_threads : by_shared;
    return n < 32 ? n : 32;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function, int threads,
                                                size_t shared);
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function, int threads, size_t shared)
{
    (void)function;
    ENTER;
    *blocks = occupancy((uint32_t)threads, shared);
    return CU_SUCCESS;
}

static cu_result launch(const struct cu_launch_config *c, cu_function f, void **params)
{
    ENTER;
    const struct simt_kernel_info *info = f->kernel->info;
    uint64_t threads = (uint64_t)c->block[0] * c->block[1] * c->block[2];
    uint64_t blocks = (uint64_t)c->grid[0] * c->grid[1] * c->grid[2];
    if (!c->stream || c->stream->device != current || !threads || threads > info->threads || !blocks ||
        c->grid[1] > 65535 || c->grid[2] > 65535 || (info->params_bytes && (!params || !params[0])) ||
        (c->shared_bytes > 48u << 10 && (int)c->shared_bytes > f->dynamic_shared))
        return CU_ERROR_INVALID;
    struct driver_op op = {.kind = DRIVER_LAUNCH, .function = f};
    memcpy(op.launch.grid, c->grid, sizeof c->grid);
    memcpy(op.launch.block, c->block, sizeof c->block);
    op.launch.shared_bytes = c->shared_bytes;
    for (uint32_t i = 0; i < c->attribute_count; i++) {
        const struct cu_launch_attribute *a = &c->attributes[i];
        if (a->id == CU_LAUNCH_COOPERATIVE) op.launch.cooperative = a->value;
        if (a->id == CU_LAUNCH_CLUSTER) op.launch.cluster = a->dim[0];
        if (a->id == CU_LAUNCH_DEPENDENT) op.launch.dependent = a->value;
    }
    if (op.launch.cluster > 1 && c->grid[0] % op.launch.cluster) return CU_ERROR_INVALID;
    if (op.launch.cooperative &&
        blocks > (uint64_t)occupancy((uint32_t)threads, c->shared_bytes) * SIMT_DRIVER_UNITS)
        return CU_ERROR_COOPERATIVE;
    op.params = aligned_alloc(64, (info->params_bytes + 127) & ~(size_t)63);
    if (!op.params) return CU_ERROR_OUT_OF_MEMORY;
    if (info->params_bytes) memcpy(op.params, params[0], info->params_bytes);
    return driver_add(c->stream, &op);
}
API cuLaunchKernelEx(const struct cu_launch_config *c, cu_function function, void **params, void **extra);
API cuLaunchKernelEx(const struct cu_launch_config *c, cu_function function, void **params, void **extra)
{
    (void)extra;
    LOCKED(launch(c, function, params));
}

/* ---- graphs ---- */

static cu_result capture_begin(cu_stream stream)
{
    ENTER;
    if (stream->capture) return CU_ERROR_CAPTURE;
    stream->capture = driver_graph_new();
    return stream->capture ? CU_SUCCESS : CU_ERROR_OUT_OF_MEMORY;
}
API cuStreamBeginCapture_v2(cu_stream stream, int mode);
API cuStreamBeginCapture_v2(cu_stream stream, int mode)
{
    (void)mode;
    LOCKED(capture_begin(stream));
}
API cuStreamEndCapture(cu_stream stream, cu_graph *graph);
API cuStreamEndCapture(cu_stream stream, cu_graph *graph)
{
    if (!stream->capture || stream->side) return CU_ERROR_CAPTURE;
    *graph = stream->capture;
    stream->capture = NULL;
    return (*graph)->side ? CU_ERROR_UNJOINED : CU_SUCCESS;
}
static cu_result instantiate(cu_graph_exec *exec, cu_graph graph)
{
    ENTER;
    *exec = calloc(1, sizeof **exec);
    if (!*exec) return CU_ERROR_OUT_OF_MEMORY;
    (*exec)->graph = graph;
    graph->refs++;
    return CU_SUCCESS;
}
API cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags);
API cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags)
{
    (void)flags;
    LOCKED(instantiate(exec, graph));
}
/* The same kinds of nodes in the same order. What is queued keeps the graph it was queued with. */
static cu_result update(cu_graph_exec exec, cu_graph graph, struct cu_graph_update_result *result)
{
    ENTER;
    struct driver_op *a = exec->graph->first, *b = graph->first;
    while (a && b && a->kind == b->kind) a = a->next, b = b->next;
    result->result = a || b;
    if (a || b) return CU_ERROR_GRAPH_UPDATE;
    graph->refs++;
    driver_graph_drop(exec->graph);
    exec->graph = graph;
    return CU_SUCCESS;
}
API cuGraphExecUpdate_v2(cu_graph_exec exec, cu_graph graph, struct cu_graph_update_result *result);
API cuGraphExecUpdate_v2(cu_graph_exec exec, cu_graph graph, struct cu_graph_update_result *result)
{
    LOCKED(update(exec, graph, result));
}
API cuGraphUpload(cu_graph_exec exec, cu_stream stream);
API cuGraphUpload(cu_graph_exec exec, cu_stream stream)
{
    (void)exec, (void)stream;
    ENTER;
    return CU_SUCCESS;
}
static cu_result graph_launch(cu_graph_exec exec, cu_stream stream)
{
    ENTER;
    exec->graph->refs++;
    return driver_add(stream, &(struct driver_op){.kind = DRIVER_GRAPH, .graph = exec->graph});
}
API cuGraphLaunch(cu_graph_exec exec, cu_stream stream);
API cuGraphLaunch(cu_graph_exec exec, cu_stream stream)
{
    LOCKED(graph_launch(exec, stream));
}
static cu_result graph_destroy(cu_graph graph)
{
    driver_graph_drop(graph);
    return CU_SUCCESS;
}
API cuGraphDestroy(cu_graph graph);
API cuGraphDestroy(cu_graph graph)
{
    LOCKED(graph_destroy(graph));
}
static cu_result exec_destroy(cu_graph_exec exec)
{
    driver_graph_drop(exec->graph);
    free(exec);
    return CU_SUCCESS;
}
API cuGraphExecDestroy(cu_graph_exec exec);
API cuGraphExecDestroy(cu_graph_exec exec)
{
    LOCKED(exec_destroy(exec));
}

/* ---- peers, tensor maps ---- */

API cuDeviceCanAccessPeer(int *possible, cu_device device, cu_device peer);
API cuDeviceCanAccessPeer(int *possible, cu_device device, cu_device peer)
{
    if (!valid(device) || !valid(peer)) return 101;
    *possible = device != peer && !strcmp(driver_devices[device].arch, driver_devices[peer].arch);
    return CU_SUCCESS;
}
/* All memory is this process's: it is reachable anyway. */
API cuCtxEnablePeerAccess(cu_context peer, unsigned flags);
API cuCtxEnablePeerAccess(cu_context peer, unsigned flags)
{
    (void)flags;
    ENTER;
    return peer ? CU_SUCCESS : CU_ERROR_CONTEXT;
}
API cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                           const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
                           int interleave, int swizzle, int promotion, int oob);
API cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                           const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
                           int interleave, int swizzle, int promotion, int oob)
{
    (void)element_stride, (void)promotion; /* always 1; a hint */
    if (oob) return CU_ERROR_INVALID;      /* NaN fill is of no use to whole numbers of bits */
    return driver_tensor_map(map, type, rank, address, dim, stride, box, interleave, swizzle);
}
