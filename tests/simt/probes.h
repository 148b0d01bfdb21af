/* The probes: small kernels (kernels/cuda/probe_*.cu) on fixed inputs, run by test_simt_probes on the CPU and
 * by tests/gpu/gpu_common on a GPU and the CPU, where every buffer must come out equal. */
#ifndef ROSE_SIMT_PROBES_H
#define ROSE_SIMT_PROBES_H

#include "simt_tensor_map.h"

/* Who provides memory: the harness or a device. buffer: `bytes` initialised from data. */
struct probe_io {
    void *(*buffer)(void *context, const char *name, size_t bytes, const void *data);
    void (*map)(void *context, struct tensor_map *out, const struct simt_tensor *tensor);
    void *context;
};

enum { PROBE_PARAMS_MAX = 512 };
struct probe {
    char name[64];
    const char *kernel;  /* probe_mma: kernels/cuda/probe_mma.cu, entry probe_mma */
    char constants[160]; /* "OP=0 N=40", without ROSE_ARCH */
    uint32_t arch;       /* the one architecture it is for, or 0: any from sm_90 */
    uint32_t grid, block, cluster;
    bool cooperative;
    size_t shared_bytes;
    size_t params_bytes;
    double tolerance; /* relative, of float outputs; 0: bits must agree */
};

int probes_count(void);
/* Probe i; with io, also makes its buffers and fills params (PROBE_PARAMS_MAX bytes, 64-byte aligned). The
 * same i gives the same contents every time. */
struct probe probes_get(int i, const struct probe_io *io, void *params);

#endif
