/* Golden models "on CUDA" without a GPU: the CUDA device, the plans and the kernels, with the driver that runs them on the CPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_simt.h"

static struct cuda_golden under_test;

static void check(const char *name)
{
    if (cuda_golden_simt(&under_test)) cuda_golden_model(&under_test, name, CUDA_GOLDEN_WHOLE | CUDA_GOLDEN_DECODE, 1);
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
MODEL(phi3_longrope)

TEST_MAIN(CASE(llama3), CASE(qwen3), CASE(gemma2), CASE(qwen2_moe), CASE(qwen3_moe), CASE(phi3_longrope))
