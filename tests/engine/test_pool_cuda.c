/* Models that embed, classify and score "on CUDA" without a GPU: the pool engine, the CUDA device, the plans and the kernels, with the driver
 * that runs them on the CPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "pool_golden_cuda.h"

#include "jit/jit.h"
#include "simt/driver/driver.h"

static struct pool_cuda under_test;

static bool open_device(void)
{
    static struct jit *jit;
    struct rose_error err = {0};
    if (under_test.device) return true;
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CUDA, .index = SIMT_DRIVER_SM90, .driver = SIMT_DRIVER_DIR "/libsimt_fast.so"}, &under_test.device, &err), err);
    if (!under_test.device) return false;
    CHECK_OK(jit_open(&(struct jit_options){.nvrtc_path = SIMT_DRIVER_DIR "/libsimt_fast.so"}, &jit, &err), err);
    under_test.device->jit = jit;
    return true;
}

#define DEFINE(name)                                    \
    TEST(name)                                          \
    {                                                   \
        if (open_device()) pool_cuda_model(&under_test, #name, 1); \
    }
POOL_CUDA_MODELS(DEFINE)
/* An encoder and a decoder in f16. */
TEST(f16)
{
    if (!open_device()) return;
    under_test.f16 = true;
    pool_cuda_model(&under_test, "embed_bert", 1);
    pool_cuda_model(&under_test, "class_qwen3", 1);
    under_test.f16 = false;
}
#define ENTRY(name) CASE(name),
TEST_MAIN(POOL_CUDA_MODELS(ENTRY) CASE(f16))
