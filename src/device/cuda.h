/* CUDA devices beyond the vtable: modules and functions, direct launches, timing, peers, TMA descriptors.
 *
 * Every function takes a device that device_open made with DEVICE_CUDA, and one thread uses a device at a
 * time. After a sticky error (an illegal address, a trap, …) the device is lost: that error, with the kernels
 * that were in flight, is what every later call returns. With debug_sync each launch is waited for, so
 * exactly one kernel is named. */
#ifndef ROSE_DEVICE_CUDA_H
#define ROSE_DEVICE_CUDA_H

#include "device/program.h"
#include "tensor/layout.h"

struct cuda_module;
struct cuda_function; /* what program_launch.kernel points to */

/* Load a cubin. name (copied) stands in errors and identifies the image: a name that is loaded already gives the same module, so it
 * should carry a hash of the contents. The module lives until unloaded or the device is closed. */
enum rose_status cuda_module_load(struct device *device, const char *name, const void *image,
                                  struct cuda_module **out, struct rose_error *err);
void cuda_module_unload(struct cuda_module *module);
/* A __global__ function of it; owned by the module. The same entry gives the same pointer. */
enum rose_status cuda_module_function(struct cuda_module *module, const char *entry,
                                      struct cuda_function **out, struct rose_error *err);

struct cuda_function_info {
    const char *name;
    int registers, max_threads;
    size_t shared_bytes,
        local_bytes; /* static shared memory a block; local memory (stack and spills) a thread */
};
struct cuda_function_info cuda_function_info(const struct cuda_function *function);
/* Blocks of `threads` with `shared` dynamic bytes that fit an SM. */
enum rose_status cuda_function_occupancy(struct cuda_function *function, int threads, size_t shared,
                                         int *blocks, struct rose_error *err);

/* One launch, queued at once; of launch the fields name, params, kernel, block, cluster, shared_bytes,
 * cooperative and dependent are used. A grid with a 0 launches nothing. */
enum rose_status cuda_launch(struct device *device, const struct program_launch *launch,
                             const uint32_t grid[3], struct rose_error *err);
/* The grid of a launch for a step's extents. */
void cuda_grid(const struct program_launch *launch, const struct extents *extents, uint32_t grid[3]);

/* Microseconds a launch by graph replay: launches[i] with grids[i], i < n, make one graph (give the same work
 * over several buffers to keep L2 cold); it is replayed `warm` times, then `replays` times between two
 * events. */
enum rose_status cuda_bench_graph_us(struct device *device, const struct program_launch *launches,
                                     const uint32_t (*grids)[3], int n, int warm, int replays, double *us,
                                     struct rose_error *err);
/* The same for a whole program. */
enum rose_status cuda_bench_program_us(struct device *device, struct program *program,
                                       const struct extents *extents, int warm, int replays, double *us,
                                       struct rose_error *err);

/* Traces: room for so many marks (0: off; device->traced is the caller's), and the spans between them. Nothing may run. */
enum rose_status cuda_trace_start(struct device *device, int marks, struct rose_error *err);
enum rose_status cuda_trace_read(struct device *device, struct device_span *spans, int n, int *count, struct rose_error *err);

/* Fill device memory, queued. */
enum rose_status cuda_fill(struct device *device, void *dst, int byte, size_t bytes, struct rose_error *err);

/* GPUs on this machine; 0 and an error's text when there is no driver. */
int cuda_device_count(const char *driver, struct rose_error *err);

/* Let kernels and copies of one device reach the other's memory. Not both ways: call it for each. */
enum rose_status cuda_peer_enable(struct device *device, struct device *peer, struct rose_error *err);
/* Share memory that device_alloc gave with another process on this machine. */
struct cuda_ipc {
    char bytes[64];
};
enum rose_status cuda_ipc_export(struct device *device, void *memory, struct cuda_ipc *out,
                                 struct rose_error *err);
enum rose_status cuda_ipc_open(struct device *device, const struct cuda_ipc *handle, void **memory,
                               struct rose_error *err);
void cuda_ipc_close(struct device *device, void *memory);

/* Another process's memory for copies beside the device's queue, on a stream of its own. bytes: from memory to the end of its
 * allocation. */
struct cuda_import {
    void *memory, *stream;
    size_t bytes;
};
enum rose_status cuda_import_open(struct device *device, const struct cuda_ipc *handle, struct cuda_import *out,
                                  struct rose_error *err);
/* Between host memory and the import (one of the two addresses lies in it); returns when it is done. */
enum rose_status cuda_import_copy(struct device *device, const struct cuda_import *import, void *dst, const void *src,
                                  size_t bytes, struct rose_error *err);
void cuda_import_close(struct device *device, struct cuda_import *import);
/* Which GPU it is, as the driver counts. */
int cuda_device_index(const struct device *device);

/* Later work of device waits for what is queued on other so far. */
enum rose_status cuda_after(struct device *device, struct device *other, struct rose_error *err);

/* The 128-byte TMA descriptor (64-byte aligned) of a box that layout_tma_box derived, over memory 16-byte
 * aligned. Elements are moved as bits; out of bounds reads as zero. Interleaving none, L2 promotion 256
 * bytes. */
enum rose_status cuda_tensor_map(struct device *device, const struct layout_tma *box, int elem_bytes,
                                 void *memory, void *map, struct rose_error *err);

#endif
