/* Memory beyond one device and one kernel's pointers: peers, other processes, TMA descriptors. */
#include "device/cuda_device.h"

enum rose_status cuda_peer_enable(struct device *device, struct device *peer, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device, *p = (struct cuda_device *)peer;
    int possible = 0;
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(
        cuda_check(d, d->api.peer_possible(&possible, d->device, p->device), err, "cuDeviceCanAccessPeer"));
    if (!possible)
        return status_set(err, ROSE_UNSUPPORTED,
                          "GPU %d cannot reach the memory of GPU %d (no NVLink or peer PCIe path)", d->device,
                          p->device);
    cu_result r = d->api.peer_enable(p->context, 0);
    return r == CU_ERROR_PEER_ALREADY
               ? ROSE_OK
               : cuda_check(d, r, err, "cuCtxEnablePeerAccess of GPU %d from GPU %d", p->device, d->device);
}

enum rose_status cuda_ipc_export(struct device *device, void *memory, struct cuda_ipc *out,
                                 struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct cu_ipc_handle handle;
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(
        cuda_check(d, d->api.ipc_export(&handle, (cu_address)(uintptr_t)memory), err, "cuIpcGetMemHandle"));
    memcpy(out->bytes, handle.bytes, sizeof out->bytes);
    return ROSE_OK;
}

enum rose_status cuda_ipc_open(struct device *device, const struct cuda_ipc *in, void **memory,
                               struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct cu_ipc_handle handle;
    cu_address address = 0;
    memcpy(handle.bytes, in->bytes, sizeof handle.bytes);
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(
        cuda_check(d, d->api.ipc_open(&address, handle, CU_IPC_LAZY_PEER_ACCESS), err, "cuIpcOpenMemHandle"));
    *memory = (void *)(uintptr_t)address;
    return ROSE_OK;
}

void cuda_ipc_close(struct device *device, void *memory)
{
    struct cuda_device *d = (struct cuda_device *)device;
    if (memory && cuda_enter(d, NULL) == ROSE_OK) d->api.ipc_close((cu_address)(uintptr_t)memory);
}

enum rose_status cuda_import_open(struct device *device, const struct cuda_ipc *handle, struct cuda_import *out,
                                  struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    cu_address base = 0;
    cu_stream stream = NULL;
    size_t bytes = 0;
    *out = (struct cuda_import){0};
    ROSE_TRY(cuda_ipc_open(device, handle, &out->memory, err));
    enum rose_status s = cuda_check(d, d->api.memory_range(&base, &bytes, (cu_address)(uintptr_t)out->memory), err,
                                    "cuMemGetAddressRange of another process's memory");
    if (s == ROSE_OK) s = cuda_check(d, d->api.stream_create(&stream, CU_STREAM_NON_BLOCKING), err, "cuStreamCreate");
    out->stream = stream;
    out->bytes = bytes - (size_t)((cu_address)(uintptr_t)out->memory - base);
    if (s != ROSE_OK) cuda_import_close(device, out);
    return s;
}

enum rose_status cuda_import_copy(struct device *device, const struct cuda_import *import, void *dst, const void *src,
                                  size_t bytes, struct rose_error *err)
{
    struct cuda_device *d = (struct cuda_device *)device;
    ROSE_TRY(cuda_enter(d, err));
    ROSE_TRY(cuda_check(d,
                        d->api.copy_async((cu_address)(uintptr_t)dst, (cu_address)(uintptr_t)src, bytes, import->stream),
                        err, "cuMemcpyAsync of %zu bytes with another process's memory", bytes));
    return cuda_check(d, d->api.stream_wait(import->stream), err, "cuStreamSynchronize");
}

void cuda_import_close(struct device *device, struct cuda_import *import)
{
    struct cuda_device *d = (struct cuda_device *)device;
    if (import->stream && cuda_enter(d, NULL) == ROSE_OK) d->api.stream_destroy(import->stream);
    cuda_ipc_close(device, import->memory);
    *import = (struct cuda_import){0};
}

int cuda_device_index(const struct device *device)
{
    return ((const struct cuda_device *)device)->device;
}

enum rose_status cuda_tensor_map(struct device *device, const struct layout_tma *box, int elem_bytes,
                                 void *memory, void *map, struct rose_error *err)
{
    /* CUtensorMapDataType of plain bits, CUtensorMapSwizzle, CUtensorMapL2promotion. */
    enum { UINT8 = 0, UINT16 = 1, UINT32 = 2, UINT64 = 4, PROMOTE_256B = 3 };
    struct cuda_device *d = (struct cuda_device *)device;
    uint64_t dim[5], stride[4];
    uint32_t sizes[5], ones[5];
    int type = elem_bytes == 1 ? UINT8 : elem_bytes == 2 ? UINT16 : elem_bytes == 4 ? UINT32 : UINT64;
    int swizzle = box->swizzle_bytes == 32    ? 1
                  : box->swizzle_bytes == 64  ? 2
                  : box->swizzle_bytes == 128 ? 3
                                              : 0;
    if (device->planning) return ROSE_OK;
    ROSE_TRY(cuda_enter(d, err));
    if (!d->api.tensor_map)
        return status_set(err, ROSE_UNSUPPORTED,
                          "the driver has no cuTensorMapEncodeTiled; it is older than 525 (CUDA 12)");
    if (box->rank < 1 || box->rank > 5 || (uintptr_t)memory % 16 || (uintptr_t)map % 64)
        return status_set(err, ROSE_INVALID,
                          "TMA: %d dimensions, memory %p (needs 16-byte alignment), descriptor %p (needs 64)",
                          box->rank, memory, map);
    for (int i = 0; i < box->rank; i++) {
        dim[i] = (uint64_t)box->dim[i];
        sizes[i] = (uint32_t)box->box[i];
        ones[i] = 1;
        if (i) stride[i - 1] = (uint64_t)box->stride_bytes[i];
    }
    return cuda_check(d,
                      d->api.tensor_map(map, type, (uint32_t)box->rank, memory, dim, stride, sizes, ones, 0,
                                        swizzle, PROMOTE_256B, 0),
                      err, "cuTensorMapEncodeTiled");
}
