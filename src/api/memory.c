/* GPU memory of other processes. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "device/cuda.h"

struct rose_memory {
    struct device *device;
    struct cuda_import import;
    size_t bytes;
};

_Static_assert(sizeof(struct cuda_ipc) == ROSE_MEMORY_HANDLE, "one handle");

enum rose_status rose_memory_open(struct rose_device *device, const void *handle, size_t handle_bytes, int64_t gpu, size_t bytes, struct rose_memory **out,
                                  struct rose_error *err)
{
    struct cuda_ipc ipc;
    *out = NULL;
    if (!device || device->device->info.kind != DEVICE_CUDA || device->device->planning) return status_set(err, ROSE_UNSUPPORTED, "memory of GPUs is taken on a GPU only");
    if (handle_bytes != ROSE_MEMORY_HANDLE)
        return status_set(err, ROSE_INVALID, "the handle has %zu bytes, and a cudaIpcMemHandle_t has %d", handle_bytes, ROSE_MEMORY_HANDLE);
    if (!bytes) return status_set(err, ROSE_INVALID, "a size of 0 bytes");
    if (gpu != cuda_device_index(device->device))
        return status_set(err, ROSE_INVALID, "the memory is said to be of GPU %lld, and models run on GPU %d", (long long)gpu, cuda_device_index(device->device));
    struct rose_memory *m = calloc(1, sizeof *m);
    if (!m) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    m->device = device->device;
    m->bytes = bytes;
    memcpy(ipc.bytes, handle, sizeof ipc.bytes);
    enum rose_status s = cuda_import_open(m->device, &ipc, &m->import, err);
    if (s == ROSE_OK && bytes > m->import.bytes)
        s = status_set(err, ROSE_INVALID, "%zu bytes are more than the %zu that the allocation has", bytes, m->import.bytes);
    if (s != ROSE_OK) {
        rose_memory_close(m);
        return s;
    }
    *out = m;
    return ROSE_OK;
}

static enum rose_status check(const struct rose_memory *m, size_t offset, size_t bytes, struct rose_error *err)
{
    if (offset <= m->bytes && bytes <= m->bytes - offset) return ROSE_OK;
    return status_set(err, ROSE_INVALID, "%zu bytes from %zu are outside of the %zu of the memory", bytes, offset, m->bytes);
}

enum rose_status rose_memory_read(struct rose_memory *m, size_t offset, void *to, size_t bytes, struct rose_error *err)
{
    ROSE_TRY(check(m, offset, bytes, err));
    return bytes ? cuda_import_copy(m->device, &m->import, to, (const char *)m->import.memory + offset, bytes, err) : ROSE_OK;
}

enum rose_status rose_memory_write(struct rose_memory *m, size_t offset, const void *from, size_t bytes, struct rose_error *err)
{
    ROSE_TRY(check(m, offset, bytes, err));
    return bytes ? cuda_import_copy(m->device, &m->import, (char *)m->import.memory + offset, from, bytes, err) : ROSE_OK;
}

void rose_memory_close(struct rose_memory *m)
{
    if (!m) return;
    if (m->import.memory) cuda_import_close(m->device, &m->import);
    free(m);
}
