/* Memory shared with other processes. An exported allocation's pages become a memfd's, in place; its handle says which process and
 * descriptor; another process maps the same pages. As with CUDA, a process cannot open its own handle, the whole allocation is shared, and
 * memory that its owner frees stays with whoever has opened it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver_internal.h"

enum { PAGE = 4096 };

struct ipc_handle {
    char magic[16];
    uint64_t bytes;
    int32_t pid, fd, device;
    uint32_t check; /* of what stands before: a client's noise is no handle */
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(struct cu_ipc_handle), "fits");
static const char magic[16] = "simt driver ipc";

static uint32_t check_of(const struct ipc_handle *h)
{
    uint32_t c = 2166136261u;
    for (size_t i = 0; i < offsetof(struct ipc_handle, check); i++) c = (c ^ ((const unsigned char *)h)[i]) * 16777619u;
    return c;
}

/* Whole pages around memory that simt_map gave: it ends with its last page. */
static unsigned char *first_page(const void *p) { return (unsigned char *)((uintptr_t)p & ~(uintptr_t)(PAGE - 1)); }
static size_t pages_bytes(const void *p, size_t bytes)
{
    return ((uintptr_t)p + bytes - (uintptr_t)first_page(p) + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static cu_result share(struct cu_ipc_handle *out, void *p)
{
    struct driver_allocation *a = driver_allocation_of(p);
    struct ipc_handle h = {.pid = (int32_t)getpid()};
    if (!a || a->p != p || a->device < 0 || a->imported) return CU_ERROR_INVALID;
    size_t all = pages_bytes(p, a->bytes);
    if (a->fd < 0) {
        cu_result r = driver_run_all(a->device);
        if (r) return r;
        int fd = memfd_create("simt device memory", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)all) || pwrite(fd, first_page(p), all, 0) != (ssize_t)all ||
            mmap(first_page(p), all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            if (fd >= 0) close(fd);
            return CU_ERROR_OUT_OF_MEMORY;
        }
        a->fd = fd;
    }
    memcpy(h.magic, magic, sizeof magic);
    h.bytes = a->bytes, h.fd = a->fd, h.device = a->device;
    h.check = check_of(&h);
    memset(out, 0, sizeof *out);
    memcpy(out, &h, sizeof h);
    return CU_SUCCESS;
}

static cu_result import(void **out, const struct cu_ipc_handle *handle, int device)
{
    struct ipc_handle h;
    struct stat st;
    char path[64];
    memcpy(&h, handle, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) || h.check != check_of(&h)) return CU_ERROR_INVALID;
    if (h.pid == (int32_t)getpid()) return CU_ERROR_CONTEXT; /* cudaIpcOpenMemHandle: not in the exporting process */
    if (h.device != device) return CU_ERROR_INVALID;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return 304; /* CUDA_ERROR_OPERATING_SYSTEM: its owner has ended or freed it */
    void *p = NULL;
    cu_result r = driver_allocate(&p, h.bytes, false, true);
    bool same = r == CU_SUCCESS && !fstat(fd, &st) && (uint64_t)st.st_size == pages_bytes(p, h.bytes);
    if (same && mmap(first_page(p), pages_bytes(p, h.bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) same = false;
    close(fd);
    if (r == CU_SUCCESS && !same) driver_give_back(p, false);
    if (same) *out = p;
    return r ? r : same ? CU_SUCCESS : CU_ERROR_INVALID;
}

API cuIpcGetMemHandle(struct cu_ipc_handle *handle, cu_address address);
API cuIpcGetMemHandle(struct cu_ipc_handle *handle, cu_address address)
{
    int device = driver_lock();
    cu_result r = device < 0 ? CU_ERROR_CONTEXT : share(handle, (void *)(uintptr_t)address);
    driver_unlock();
    return r;
}
API cuIpcOpenMemHandle_v2(cu_address *address, struct cu_ipc_handle handle, unsigned flags);
API cuIpcOpenMemHandle_v2(cu_address *address, struct cu_ipc_handle handle, unsigned flags)
{
    void *p = NULL;
    int device = driver_lock();
    cu_result r = device < 0 ? CU_ERROR_CONTEXT : flags != CU_IPC_LAZY_PEER_ACCESS ? CU_ERROR_INVALID : import(&p, &handle, device);
    driver_unlock();
    *address = (cu_address)(uintptr_t)p;
    return r;
}
API cuIpcCloseMemHandle(cu_address address);
API cuIpcCloseMemHandle(cu_address address)
{
    int device = driver_lock();
    struct driver_allocation *a = driver_allocation_of((void *)(uintptr_t)address);
    cu_result r = device < 0 ? CU_ERROR_CONTEXT : a && a->imported ? driver_give_back(a->p, false) : CU_ERROR_INVALID;
    driver_unlock();
    return r;
}
API cuMemGetAddressRange_v2(cu_address *base, size_t *bytes, cu_address address);
API cuMemGetAddressRange_v2(cu_address *base, size_t *bytes, cu_address address)
{
    int device = driver_lock();
    struct driver_allocation *a = driver_allocation_of((void *)(uintptr_t)address);
    if (a) *base = (cu_address)(uintptr_t)a->p, *bytes = a->bytes;
    driver_unlock();
    return device < 0 ? CU_ERROR_CONTEXT : a ? CU_SUCCESS : CU_ERROR_INVALID;
}
