/* The part of the CUDA driver API that Rose uses, declared here so that building needs no CUDA and starting
 * needs no driver: the functions are looked up in libcuda.so.1 when a CUDA device is opened. Names, values
 * and layouts are those of the driver API reference (stable ABI; a _v2 suffix is part of a symbol's name).
 * Private to src/device. */
#ifndef ROSE_DEVICE_CUDA_API_H
#define ROSE_DEVICE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef int cu_result; /* CUresult, 0 is success */
typedef int cu_device;
typedef uint64_t cu_address; /* CUdeviceptr */
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;
typedef struct cu_graph_st *cu_graph;
typedef struct cu_graph_exec_st *cu_graph_exec;

struct cu_ipc_handle {
    char bytes[64];
};
/* CUlaunchAttribute: an id, padding to 8, a 64-byte union. */
struct cu_launch_attribute {
    int id;
    int pad;
    union {
        int value;
        uint32_t dim[3];
        char bytes[64];
    };
};
struct cu_launch_config {
    uint32_t grid[3], block[3], shared_bytes;
    cu_stream stream;
    struct cu_launch_attribute *attributes;
    uint32_t attribute_count;
};
struct cu_graph_update_result {
    int result;
    void *error_node, *error_from_node;
};

enum {
    CU_SUCCESS = 0,
    CU_ERROR_OUT_OF_MEMORY = 2,
    CU_ERROR_NO_DEVICE = 100,
    CU_ERROR_NO_BINARY = 209,
    CU_ERROR_ECC = 214,
    CU_ERROR_NOT_READY = 600,
    CU_ERROR_ILLEGAL_ADDRESS = 700,
    CU_ERROR_LAUNCH_TIMEOUT = 702,
    CU_ERROR_PEER_ALREADY = 704,
    CU_ERROR_ASSERT = 710,
    CU_ERROR_HARDWARE_STACK = 714,
    CU_ERROR_LAUNCH_FAILED = 719,
    CU_ERROR_TENSOR_MEMORY_LEAK = 721,
    CU_ERROR_UNKNOWN = 999,
};
enum {
    CU_ATTR_THREADS_PER_BLOCK = 1,
    CU_ATTR_WARP = 10,
    CU_ATTR_UNITS = 16,
    CU_ATTR_MEMORY_CLOCK_KHZ = 36,
    CU_ATTR_MEMORY_BUS_BITS = 37,
    CU_ATTR_L2_BYTES = 38,
    CU_ATTR_THREADS_PER_UNIT = 39,
    CU_ATTR_UNIFIED_ADDRESSING = 41,
    CU_ATTR_MAJOR = 75,
    CU_ATTR_MINOR = 76,
    CU_ATTR_SHARED_PER_UNIT = 81,
    CU_ATTR_COOPERATIVE = 95,
    CU_ATTR_SHARED_PER_BLOCK_OPTIN = 97,
    CU_ATTR_CLUSTER = 120,
};
enum {
    CU_FUNC_MAX_THREADS = 0,
    CU_FUNC_SHARED_BYTES = 1,
    CU_FUNC_LOCAL_BYTES = 3,
    CU_FUNC_REGISTERS = 4,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    CU_FUNC_SHARED_CARVEOUT = 9, /* percent */
    CU_FUNC_NON_PORTABLE_CLUSTER = 14,
};
enum {
    CU_LAUNCH_COOPERATIVE = 2,
    CU_LAUNCH_CLUSTER = 4,
    CU_LAUNCH_DEPENDENT = 6, /* programmatic stream serialisation */
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_HOST_PORTABLE_MAPPED = 3,
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_IPC_LAZY_PEER_ACCESS = 1,
};

/* X(required, name of the field, symbol, arguments) */
#define CUDA_API_FUNCTIONS(X)                                                                                \
    X(1, init, cuInit, (unsigned flags))                                                                     \
    X(1, error_name, cuGetErrorName, (cu_result error, const char **name))                                   \
    X(1, error_string, cuGetErrorString, (cu_result error, const char **text))                               \
    X(1, driver_version, cuDriverGetVersion, (int *version))                                                 \
    X(1, device_count, cuDeviceGetCount, (int *count))                                                       \
    X(1, device_get, cuDeviceGet, (cu_device * device, int index))                                           \
    X(1, device_name, cuDeviceGetName, (char *name, int size, cu_device device))                             \
    X(1, device_attribute, cuDeviceGetAttribute, (int *value, int attribute, cu_device device))              \
    X(1, device_memory, cuDeviceTotalMem_v2, (size_t * bytes, cu_device device))                             \
    X(1, context_retain, cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))                 \
    X(1, context_release, cuDevicePrimaryCtxRelease_v2, (cu_device device))                                  \
    X(1, context_set, cuCtxSetCurrent, (cu_context context))                                                 \
    X(1, memory_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total))                                \
    X(1, memory_alloc, cuMemAlloc_v2, (cu_address * address, size_t bytes))                                  \
    X(1, memory_free, cuMemFree_v2, (cu_address address))                                                    \
    X(1, host_alloc, cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))                         \
    X(1, host_free, cuMemFreeHost, (void *address))                                                          \
    X(1, copy_async, cuMemcpyAsync, (cu_address dst, cu_address src, size_t bytes, cu_stream stream))        \
    X(1, fill_async, cuMemsetD8Async, (cu_address dst, unsigned char value, size_t bytes, cu_stream stream)) \
    X(1, stream_create, cuStreamCreate, (cu_stream * stream, unsigned flags))                                \
    X(1, stream_destroy, cuStreamDestroy_v2, (cu_stream stream))                                             \
    X(1, stream_wait, cuStreamSynchronize, (cu_stream stream))                                               \
    X(1, stream_after, cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned flags))                \
    X(1, event_create, cuEventCreate, (cu_event * event, unsigned flags))                                    \
    X(1, event_destroy, cuEventDestroy_v2, (cu_event event))                                                 \
    X(1, event_record, cuEventRecord, (cu_event event, cu_stream stream))                                    \
    X(1, event_wait, cuEventSynchronize, (cu_event event))                                                   \
    X(1, event_elapsed, cuEventElapsedTime, (float *ms, cu_event from, cu_event to))                         \
    X(1, module_load, cuModuleLoadData, (cu_module * module, const void *image))                             \
    X(1, module_unload, cuModuleUnload, (cu_module module))                                                  \
    X(1, module_function, cuModuleGetFunction, (cu_function * function, cu_module module, const char *name)) \
    X(1, function_attribute, cuFuncGetAttribute, (int *value, int attribute, cu_function function))          \
    X(1, function_set, cuFuncSetAttribute, (cu_function function, int attribute, int value))                 \
    X(1, occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                             \
      (int *blocks, cu_function function, int threads, size_t shared))                                       \
    X(1, launch, cuLaunchKernelEx,                                                                           \
      (const struct cu_launch_config *config, cu_function function, void **params, void **extra))            \
    X(1, capture_begin, cuStreamBeginCapture_v2, (cu_stream stream, int mode))                               \
    X(1, capture_end, cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                              \
    X(1, graph_instantiate, cuGraphInstantiateWithFlags,                                                     \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                                      \
    X(1, graph_update, cuGraphExecUpdate_v2,                                                                 \
      (cu_graph_exec exec, cu_graph graph, struct cu_graph_update_result * result))                          \
    X(1, graph_launch, cuGraphLaunch, (cu_graph_exec exec, cu_stream stream))                                \
    X(1, graph_upload, cuGraphUpload, (cu_graph_exec exec, cu_stream stream))                                \
    X(1, graph_destroy, cuGraphDestroy, (cu_graph graph))                                                    \
    X(1, graph_exec_destroy, cuGraphExecDestroy, (cu_graph_exec exec))                                       \
    X(1, peer_possible, cuDeviceCanAccessPeer, (int *possible, cu_device device, cu_device peer))            \
    X(1, peer_enable, cuCtxEnablePeerAccess, (cu_context peer, unsigned flags))                              \
    X(1, ipc_export, cuIpcGetMemHandle, (struct cu_ipc_handle * handle, cu_address address))                 \
    X(1, ipc_open, cuIpcOpenMemHandle_v2,                                                                    \
      (cu_address * address, struct cu_ipc_handle handle, unsigned flags))                                   \
    X(1, ipc_close, cuIpcCloseMemHandle, (cu_address address))                                               \
    X(1, memory_range, cuMemGetAddressRange_v2, (cu_address * base, size_t * bytes, cu_address address))     \
    X(0, tensor_map, cuTensorMapEncodeTiled,                                                                 \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *dim, const uint64_t *stride,       \
       const uint32_t *box, const uint32_t *element_stride, int interleave, int swizzle, int promotion,      \
       int oob))

struct cuda_api {
    void *library;
#define CUDA_API_FIELD(required, field, symbol, arguments) cu_result(*field) arguments;
    CUDA_API_FUNCTIONS(CUDA_API_FIELD)
#undef CUDA_API_FIELD
};

/* path: a libcuda to use, NULL: libcuda.so.1 where the loader finds it, then where container runtimes and WSL
 * put it. The error names every place and what was wrong there. */
enum rose_status cuda_api_load(const char *path, struct cuda_api *api, struct rose_error *err);
void cuda_api_unload(struct cuda_api *api);

/* "cuMemAlloc (64 MiB): CUDA_ERROR_OUT_OF_MEMORY, out of memory" as a status; context says what was tried, in
 * printf form. */
enum rose_status cuda_api_error(const struct cuda_api *api, cu_result code, struct rose_error *err,
                                const char *fmt, ...) ROSE_PRINTF(4, 5);
/* After such an error the context is lost: every later call fails with it. */
bool cuda_api_sticky(cu_result code);

#endif
