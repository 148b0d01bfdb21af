/* A stand-in for libcuda.so.1 and libnvrtc.so that runs kernels on the CPU.
 *
 *     struct device_options o = {.kind = DEVICE_CUDA, .index = SIMT_DRIVER_SM90, .driver =
 * "…/libsimt_fast.so"}; struct jit_options j = {.nvrtc_path = "…/libsimt_fast.so"};
 *
 * src/device and src/jit load it as they load NVIDIA's. "NVRTC" compiles a kernel for tests/simt with the
 * host's compiler (kept by content below $(BUILD)/simt); a "cubin" carries that shared object; a launch runs
 * it to its end. Streams are queues that run as late as somebody waits (or, at random, at once), so that a
 * host that reads a result or reuses a staging buffer too early is seen. Memory is poisoned, and every
 * allocation ends in front of a page that nobody may touch. A kernel's mistake becomes CUDA's sticky error,
 * with the harness's report as its description.
 *
 * Two builds: libsimt_fast.so (no hooks; whole models in seconds) and libsimt_checked.so (all of
 * docs/simt.md's checks, races among them; some fifty times slower). */
#ifndef ROSE_SIMT_DRIVER_H
#define ROSE_SIMT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* Devices by index. All have SIMT_DRIVER_UNITS SMs (a cooperative grid is run with all blocks at once) and
 * the limits of their architecture otherwise. */
enum {
    SIMT_DRIVER_SM90, /* sm_90a */
    SIMT_DRIVER_SM80,
    SIMT_DRIVER_SM89,
    SIMT_DRIVER_SM100, /* sm_100a */
    SIMT_DRIVER_SM120, /* sm_120a */
    SIMT_DRIVER_PEERS, /* 5, 6, 7: more of sm_90a */
    SIMT_DRIVER_DEVICES = 8,
    SIMT_DRIVER_UNITS = 8
};

/* Found by dlsym in the library. */
struct simt_driver_counts {
    uint64_t compiles, compiled_from_cache; /* of this process, not of the children that jit/ forks */
    uint64_t launches, graph_launches, copies, switches, faults;
    double seconds; /* in launches */
};
typedef void simt_driver_counts_fn(struct simt_driver_counts *out); /* "simt_driver_counts" */
/* Orders of everything; memory of each device (default 1 GiB). Call it while no device is open. */
typedef void simt_driver_set_fn(uint64_t seed, size_t memory); /* "simt_driver_set" */
/* Kernels by time, on standard error. */
typedef void simt_driver_profile_fn(void); /* "simt_driver_profile" */

#endif
