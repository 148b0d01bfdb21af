#include "fake_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_api.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_NODES = 64 };

struct cu_function_st {
    char name[64];
    int dynamic_shared;
};
struct cu_module_st {
    struct cu_function_st functions[8];
    int n;
};
struct cu_graph_st {
    struct cu_function_st *node[MAX_NODES];
    int n;
};
struct cu_graph_exec_st {
    struct cu_graph_st graph;
};

static char log_[65536];
static size_t log_n_;
static char fail_function_[64], break_kernel_[64];
static int fail_nth_, fail_code_, break_code_, pending_, broken_, alive_, attributes_[256];
static struct cu_graph_st *capturing_;
static float elapsed_ms_ = 8;
static size_t object_bytes_[1024];
static void *objects_[1024]; /* what a lost context never gives back is freed by fake_reset */

static void *take(size_t bytes)
{
    for (int i = 0; i < 1024; i++)
        if (!objects_[i]) {
            alive_++;
            object_bytes_[i] = bytes;
            return objects_[i] = calloc(1, bytes);
        }
    abort(); /* a test makes fewer */
}

static void give(void *object)
{
    for (int i = 0; i < 1024; i++)
        if (object && objects_[i] == object) {
            objects_[i] = NULL;
            alive_--;
            free(object);
            return;
        }
    abort(); /* a double free, or no object at all */
}

static void note(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (log_n_ < sizeof log_ - 300) {
        log_n_ += (size_t)vsnprintf(log_ + log_n_, 256, fmt, args);
        log_[log_n_++] = ' ';
        log_[log_n_] = '\0';
    }
    va_end(args);
}

EXPORT const char *fake_log(void)
{
    return log_;
}
EXPORT void fake_log_clear(void)
{
    log_n_ = 0, log_[0] = '\0';
}
EXPORT int fake_alive(void)
{
    return alive_;
}
EXPORT void fake_attribute(int attribute, int value)
{
    attributes_[attribute] = value;
}
EXPORT void fake_fail(const char *function, int nth, int code)
{
    snprintf(fail_function_, sizeof fail_function_, "%s", function);
    fail_nth_ = nth, fail_code_ = code;
}
EXPORT void fake_break(const char *kernel, int code)
{
    snprintf(break_kernel_, sizeof break_kernel_, "%s", kernel);
    break_code_ = code;
}
EXPORT void fake_elapsed(float ms)
{
    elapsed_ms_ = ms;
}
EXPORT void fake_reset(void)
{
    static const int usual[][2] = {{CU_ATTR_THREADS_PER_BLOCK, 1024},
                                   {CU_ATTR_WARP, 32},
                                   {CU_ATTR_UNITS, 132},
                                   {CU_ATTR_MEMORY_CLOCK_KHZ, 3201000},
                                   {CU_ATTR_MEMORY_BUS_BITS, 6144},
                                   {CU_ATTR_L2_BYTES, 60 << 20},
                                   {CU_ATTR_THREADS_PER_UNIT, 2048},
                                   {CU_ATTR_UNIFIED_ADDRESSING, 1},
                                   {CU_ATTR_MAJOR, 9},
                                   {CU_ATTR_MINOR, 0},
                                   {CU_ATTR_SHARED_PER_UNIT, 233472},
                                   {CU_ATTR_COOPERATIVE, 1},
                                   {CU_ATTR_SHARED_PER_BLOCK_OPTIN, 232448},
                                   {CU_ATTR_CLUSTER, 1}};
    fake_log_clear();
    for (int i = 0; i < 1024; i++)
        if (objects_[i]) give(objects_[i]);
    memset(attributes_, 0, sizeof attributes_);
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) attributes_[usual[i][0]] = usual[i][1];
    fail_function_[0] = break_kernel_[0] = '\0';
    fail_nth_ = pending_ = broken_ = 0;
    capturing_ = NULL;
    elapsed_ms_ = 8;
}

/* Every call: the planned failure, or what broke the context. */
static cu_result enter(const char *function)
{
    if (broken_) return broken_;
    if (fail_nth_ && !strcmp(function, fail_function_) && --fail_nth_ == 0) return fail_code_;
    return CU_SUCCESS;
}
#define ENTER                           \
    do {                                \
        cu_result r_ = enter(__func__); \
        if (r_) return r_;              \
    } while (0)

static cu_result settle(void)
{
    if (pending_) broken_ = pending_;
    return broken_;
}

#define API EXPORT cu_result

API cuInit(unsigned flags);
API cuInit(unsigned flags)
{
    (void)flags;
    ENTER;
    return CU_SUCCESS;
}
API cuGetErrorName(cu_result error, const char **name);
API cuGetErrorName(cu_result error, const char **name)
{
    *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == 1 ? "CUDA_ERROR_INVALID_VALUE"
                         : NULL;
    return *name ? CU_SUCCESS : 1;
}
API cuGetErrorString(cu_result error, const char **text);
API cuGetErrorString(cu_result error, const char **text)
{
    *text = error == 700 ? "an illegal memory access was encountered"
            : error == 2 ? "out of memory"
            : error == 1 ? "invalid argument"
                         : NULL;
    return *text ? CU_SUCCESS : 1;
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
    ENTER;
    *count = 2;
    return CU_SUCCESS;
}
API cuDeviceGet(cu_device *device, int index);
API cuDeviceGet(cu_device *device, int index)
{
    ENTER;
    *device = index;
    return CU_SUCCESS;
}
API cuDeviceGetName(char *name, int size, cu_device device);
API cuDeviceGetName(char *name, int size, cu_device device)
{
    snprintf(name, (size_t)size, "Fake %d", device);
    return CU_SUCCESS;
}
API cuDeviceGetAttribute(int *value, int attribute, cu_device device);
API cuDeviceGetAttribute(int *value, int attribute, cu_device device)
{
    (void)device;
    ENTER;
    *value = attributes_[attribute];
    return CU_SUCCESS;
}
API cuDeviceTotalMem_v2(size_t *bytes, cu_device device);
API cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    (void)device;
    *bytes = (size_t)1 << 36;
    return CU_SUCCESS;
}
API cuDevicePrimaryCtxRetain(cu_context *context, cu_device device);
API cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
    ENTER;
    alive_++;
    *context = (cu_context)(uintptr_t)(1000 + device);
    return CU_SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(cu_device device);
API cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    (void)device;
    alive_--;
    return broken_;
}
API cuCtxSetCurrent(cu_context context);
API cuCtxSetCurrent(cu_context context)
{
    ENTER;
    return context ? CU_SUCCESS : 1;
}
API cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
API cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER;
    *free_bytes = (size_t)1 << 35, *total = (size_t)1 << 36;
    return CU_SUCCESS;
}
API cuMemAlloc_v2(cu_address *address, size_t bytes);
API cuMemAlloc_v2(cu_address *address, size_t bytes)
{
    ENTER;
    if (bytes > (size_t)1 << 30) return CU_ERROR_OUT_OF_MEMORY;
    *address = (cu_address)(uintptr_t)take(bytes);
    note("alloc");
    return CU_SUCCESS;
}
API cuMemFree_v2(cu_address address);
API cuMemFree_v2(cu_address address)
{
    ENTER;
    give((void *)(uintptr_t)address);
    note("free");
    return CU_SUCCESS;
}
API cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
API cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    ENTER;
    *address = take(bytes);
    note("host_alloc:%u", flags);
    return CU_SUCCESS;
}
API cuMemFreeHost(void *address);
API cuMemFreeHost(void *address)
{
    ENTER;
    give(address);
    note("host_free");
    return CU_SUCCESS;
}
API cuMemcpyAsync(cu_address dst, cu_address src, size_t bytes, cu_stream stream);
API cuMemcpyAsync(cu_address dst, cu_address src, size_t bytes, cu_stream stream)
{
    (void)stream;
    ENTER;
    memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
    note("copy:%zu", bytes);
    return CU_SUCCESS;
}
API cuMemsetD8Async(cu_address dst, unsigned char value, size_t bytes, cu_stream stream);
API cuMemsetD8Async(cu_address dst, unsigned char value, size_t bytes, cu_stream stream)
{
    (void)stream;
    ENTER;
    memset((void *)(uintptr_t)dst, value, bytes);
    note("fill:%zu", bytes);
    return CU_SUCCESS;
}
API cuStreamCreate(cu_stream *stream, unsigned flags);
API cuStreamCreate(cu_stream *stream, unsigned flags)
{
    (void)flags;
    ENTER;
    *stream = take(1);
    return CU_SUCCESS;
}
API cuStreamDestroy_v2(cu_stream stream);
API cuStreamDestroy_v2(cu_stream stream)
{
    give(stream);
    return broken_;
}
API cuStreamSynchronize(cu_stream stream);
API cuStreamSynchronize(cu_stream stream)
{
    (void)stream;
    ENTER;
    note("sync");
    return settle();
}
API cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags);
API cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    ENTER;
    note("after");
    return CU_SUCCESS;
}
API cuEventCreate(cu_event *event, unsigned flags);
API cuEventCreate(cu_event *event, unsigned flags)
{
    (void)flags;
    ENTER;
    *event = take(1);
    return CU_SUCCESS;
}
API cuEventDestroy_v2(cu_event event);
API cuEventDestroy_v2(cu_event event)
{
    give(event);
    return CU_SUCCESS;
}
API cuEventRecord(cu_event event, cu_stream stream);
API cuEventRecord(cu_event event, cu_stream stream)
{
    (void)event, (void)stream;
    ENTER;
    note("record");
    return CU_SUCCESS;
}
API cuEventSynchronize(cu_event event);
API cuEventSynchronize(cu_event event)
{
    (void)event;
    ENTER;
    note("event_sync");
    return settle();
}
API cuEventElapsedTime(float *ms, cu_event from, cu_event to);
API cuEventElapsedTime(float *ms, cu_event from, cu_event to)
{
    (void)from, (void)to;
    *ms = elapsed_ms_;
    return CU_SUCCESS;
}
API cuModuleLoadData(cu_module *module, const void *image);
API cuModuleLoadData(cu_module *module, const void *image)
{
    ENTER;
    if (strcmp(image, "cubin")) return CU_ERROR_NO_BINARY;
    *module = take(sizeof **module);
    note("module");
    return CU_SUCCESS;
}
API cuModuleUnload(cu_module module);
API cuModuleUnload(cu_module module)
{
    ENTER;
    give(module);
    return CU_SUCCESS;
}
API cuModuleGetFunction(cu_function *function, cu_module module, const char *name);
API cuModuleGetFunction(cu_function *function, cu_module module, const char *name)
{
    ENTER;
    if (!strcmp(name, "none") || module->n == 8) return 500;
    *function = &module->functions[module->n++];
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    return CU_SUCCESS;
}
API cuFuncGetAttribute(int *value, int attribute, cu_function function);
API cuFuncGetAttribute(int *value, int attribute, cu_function function)
{
    (void)function;
    ENTER;
    *value = attribute == CU_FUNC_MAX_THREADS    ? 512
             : attribute == CU_FUNC_SHARED_BYTES ? 1024
             : attribute == CU_FUNC_REGISTERS    ? 40
                                                 : 0;
    return CU_SUCCESS;
}
API cuFuncSetAttribute(cu_function function, int attribute, int value);
API cuFuncSetAttribute(cu_function function, int attribute, int value)
{
    ENTER;
    if (attribute == CU_FUNC_MAX_DYNAMIC_SHARED) function->dynamic_shared = value;
    note("set:%d=%d", attribute, value);
    return CU_SUCCESS;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function, int threads,
                                                size_t shared);
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, cu_function function, int threads, size_t shared)
{
    (void)function, (void)shared;
    *blocks = 2048 / threads;
    return CU_SUCCESS;
}
API cuLaunchKernelEx(const struct cu_launch_config *c, cu_function function, void **params, void **extra);
API cuLaunchKernelEx(const struct cu_launch_config *c, cu_function function, void **params, void **extra)
{
    (void)extra;
    ENTER;
    if (c->shared_bytes + 1024 > 48 << 10 && (int)c->shared_bytes > function->dynamic_shared) return 1;
    char attributes[64] = "";
    for (uint32_t i = 0; i < c->attribute_count; i++) {
        const struct cu_launch_attribute *a = &c->attributes[i];
        size_t n = strlen(attributes);
        if (a->id == CU_LAUNCH_COOPERATIVE && a->value == 1)
            snprintf(attributes + n, sizeof attributes - n, ":coop");
        if (a->id == CU_LAUNCH_CLUSTER)
            snprintf(attributes + n, sizeof attributes - n, ":cluster%u", a->dim[0]);
        if (a->id == CU_LAUNCH_DEPENDENT && a->value == 1)
            snprintf(attributes + n, sizeof attributes - n, ":pdl");
    }
    note("%s:%s[%u,%u,%u]x[%u,%u,%u]+%u=%d%s", capturing_ ? "node" : "launch", function->name, c->grid[0],
         c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared_bytes,
         params ? *(const int *)params[0] : -1, attributes);
    if (capturing_) {
        if (capturing_->n < MAX_NODES) capturing_->node[capturing_->n++] = function;
    } else if (!strcmp(function->name, break_kernel_)) {
        pending_ = break_code_;
    }
    return CU_SUCCESS;
}
API cuStreamBeginCapture_v2(cu_stream stream, int mode);
API cuStreamBeginCapture_v2(cu_stream stream, int mode)
{
    (void)stream, (void)mode;
    ENTER;
    capturing_ = take(sizeof *capturing_);
    return CU_SUCCESS;
}
API cuStreamEndCapture(cu_stream stream, cu_graph *graph);
API cuStreamEndCapture(cu_stream stream, cu_graph *graph)
{
    (void)stream;
    *graph = capturing_;
    capturing_ = NULL;
    ENTER;
    return CU_SUCCESS;
}
API cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags);
API cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags)
{
    (void)flags;
    ENTER;
    *exec = take(sizeof **exec);
    (*exec)->graph = *graph;
    note("instantiate:%d", graph->n);
    return CU_SUCCESS;
}
API cuGraphExecUpdate_v2(cu_graph_exec exec, cu_graph graph, struct cu_graph_update_result *result);
API cuGraphExecUpdate_v2(cu_graph_exec exec, cu_graph graph, struct cu_graph_update_result *result)
{
    ENTER;
    result->result = exec->graph.n != graph->n;
    if (exec->graph.n != graph->n) return 910;
    exec->graph = *graph;
    note("update:%d", graph->n);
    return CU_SUCCESS;
}
API cuGraphUpload(cu_graph_exec exec, cu_stream stream);
API cuGraphUpload(cu_graph_exec exec, cu_stream stream)
{
    (void)exec, (void)stream;
    ENTER;
    return CU_SUCCESS;
}
API cuGraphLaunch(cu_graph_exec exec, cu_stream stream);
API cuGraphLaunch(cu_graph_exec exec, cu_stream stream)
{
    (void)stream;
    ENTER;
    note("graph:%d", exec->graph.n);
    for (int i = 0; i < exec->graph.n; i++)
        if (!strcmp(exec->graph.node[i]->name, break_kernel_)) pending_ = break_code_;
    return CU_SUCCESS;
}
API cuGraphDestroy(cu_graph graph);
API cuGraphDestroy(cu_graph graph)
{
    give(graph);
    return CU_SUCCESS;
}
API cuGraphExecDestroy(cu_graph_exec exec);
API cuGraphExecDestroy(cu_graph_exec exec)
{
    give(exec);
    note("exec_destroy");
    return CU_SUCCESS;
}
API cuDeviceCanAccessPeer(int *possible, cu_device device, cu_device peer);
API cuDeviceCanAccessPeer(int *possible, cu_device device, cu_device peer)
{
    *possible = device != peer;
    return CU_SUCCESS;
}
API cuCtxEnablePeerAccess(cu_context peer, unsigned flags);
API cuCtxEnablePeerAccess(cu_context peer, unsigned flags)
{
    (void)flags;
    ENTER;
    note("peer:%d", (int)(uintptr_t)peer);
    return CU_SUCCESS;
}
API cuIpcGetMemHandle(struct cu_ipc_handle *handle, cu_address address);
API cuIpcGetMemHandle(struct cu_ipc_handle *handle, cu_address address)
{
    ENTER;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &address, sizeof address);
    return CU_SUCCESS;
}
API cuIpcOpenMemHandle_v2(cu_address *address, struct cu_ipc_handle handle, unsigned flags);
API cuIpcOpenMemHandle_v2(cu_address *address, struct cu_ipc_handle handle, unsigned flags)
{
    (void)flags;
    ENTER;
    memcpy(address, &handle, sizeof *address);
    return CU_SUCCESS;
}
API cuIpcCloseMemHandle(cu_address address);
API cuIpcCloseMemHandle(cu_address address)
{
    (void)address;
    return CU_SUCCESS;
}
API cuMemGetAddressRange_v2(cu_address *base, size_t *bytes, cu_address address);
API cuMemGetAddressRange_v2(cu_address *base, size_t *bytes, cu_address address)
{
    ENTER;
    for (int i = 0; i < 1024; i++)
        if (objects_[i] && address - (cu_address)(uintptr_t)objects_[i] < object_bytes_[i]) {
            *base = (cu_address)(uintptr_t)objects_[i];
            *bytes = object_bytes_[i];
            return CU_SUCCESS;
        }
    return 1; /* CUDA_ERROR_INVALID_VALUE */
}
API cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                           const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
                           int interleave, int swizzle, int promotion, int oob);
API cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dim,
                           const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
                           int interleave, int swizzle, int promotion, int oob)
{
    (void)address, (void)interleave, (void)promotion, (void)oob, (void)element_stride;
    ENTER;
    memset(map, 0, 128);
    note("map:%d:%u:%llu,%llu:%llu:%u,%u:%d", type, rank, (unsigned long long)dim[0],
         (unsigned long long)dim[1], (unsigned long long)stride[0], box[0], box[1], swizzle);
    return CU_SUCCESS;
}
