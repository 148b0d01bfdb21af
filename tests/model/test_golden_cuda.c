/* Golden models "on CUDA" without a GPU: the CUDA device, the plans and the kernels, with the driver that runs them on the CPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_cuda.h"

#include "jit/jit.h"
#include "simt/driver/driver.h"

static struct cuda_golden under_test;

static void check(const char *name)
{
    static struct jit *jit;
    struct rose_error err = {0};
    if (!under_test.device) {
        CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CUDA, .index = SIMT_DRIVER_SM90, .driver = SIMT_DRIVER_DIR "/libsimt_fast.so"}, &under_test.device, &err), err);
        if (!under_test.device) return;
        CHECK_OK(jit_open(&(struct jit_options){.nvrtc_path = SIMT_DRIVER_DIR "/libsimt_fast.so"}, &jit, &err), err);
        under_test.device->jit = jit;
        under_test.bound = 0.15;
    }
    cuda_golden_model(&under_test, name, CUDA_GOLDEN_WHOLE | CUDA_GOLDEN_DECODE, 1);
}

#define MODEL(name)  \
    TEST(name)       \
    {                \
        check(#name); \
    }
MODEL(llama3)
MODEL(qwen3)
MODEL(gemma2)
MODEL(qwen2_moe)
MODEL(qwen3_moe)

TEST_MAIN(CASE(llama3), CASE(qwen3), CASE(gemma2), CASE(qwen2_moe), CASE(qwen3_moe))
