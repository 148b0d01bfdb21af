/* A CUDA device for golden models without a GPU: the stand-in driver (tests/simt/driver). */
#ifndef ROSE_TESTS_MODEL_GOLDEN_SIMT_H
#define ROSE_TESTS_MODEL_GOLDEN_SIMT_H

#include "golden_cuda.h"
#include "jit/jit.h"
#include "simt/driver/driver.h"

/* Opens it the first time, and stays. */
static inline bool cuda_golden_simt(struct cuda_golden *t)
{
    static struct jit *jit;
    struct rose_error err = {0};
    if (!t->device) {
        CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CUDA, .index = SIMT_DRIVER_SM90, .driver = SIMT_DRIVER_DIR "/libsimt_fast.so"}, &t->device, &err), err);
        if (!t->device) return false;
        CHECK_OK(jit_open(&(struct jit_options){.nvrtc_path = SIMT_DRIVER_DIR "/libsimt_fast.so"}, &jit, &err), err);
        t->device->jit = jit;
        t->bound = 0.15;
    }
    return true;
}

/* The test of one golden model, whole and by decode steps; `under_test` is the file's. */
#define CUDA_GOLDEN(name)                                                                                                              \
    TEST(name)                                                                                                                         \
    {                                                                                                                                  \
        if (cuda_golden_simt(&under_test)) cuda_golden_model(&under_test, #name, CUDA_GOLDEN_WHOLE | CUDA_GOLDEN_DECODE, 1); \
    }

#endif
