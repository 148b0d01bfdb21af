/* Cases of CUDA ops against float64 references. The same cases run on the CPU harness (tests/simt/test_ops.c)
 * and on a GPU (tests/gpu/gpu_ops.c): what differs is behind struct op_io. */
#ifndef ROSE_TESTS_OP_CASES_H
#define ROSE_TESTS_OP_CASES_H

#include "kernels/params/types.h"
#include "ops/plan.h"
#include "tensor/layout.h"

struct op_io {
    const struct device_info *device; /* to plan for */
    /* Device memory; data NULL: nobody wrote it (0xff). constant: no kernel writes it. */
    void *(*buffer)(void *context, const char *name, size_t bytes, const void *data, bool constant);
    /* Launch and wait; false after printing what went wrong. */
    bool (*run)(void *context, const struct plan *plan, const void *params, size_t bytes);
    void (*read)(void *context, void *dst, const void *src, size_t bytes);
    void (*reset)(void *context); /* frees all buffers */
    void *context;
    int rows; /* 0: as the case says, else more of them */
    /* A TMA descriptor of bf16; NULL: none are made. */
    void (*map)(void *context, struct tensor_map *out, const void *base, const struct layout_tma *box);
};

/* What plans are made for where there is no device: sm_80, sm_89, sm_90a, sm_100a, sm_120a. */
enum { OP_DEVICES = 5 };
extern const struct device_info op_devices[OP_DEVICES];

/* "norm 5x96 rms ..."; NULL past the last. */
const char *op_cases_name(int i);
/* Wrong elements (the first few are printed), or a failure: not 0. */
int op_cases_run(int i, const struct op_io *io);
/* Is there such a kernel for this device? Products that normalise their rows are Hopper's: others must refuse the plan. */
bool op_cases_there(int i, const struct device_info *device);
/* The case's plan alone, for `rows` (0: the case's own); false where this device has none. */
bool op_cases_plan(int i, const struct device_info *device, int rows, struct plan *out);

#endif
