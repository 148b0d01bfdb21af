/* Golden models "on CUDA" without a GPU: the CUDA device, the plans and the kernels, with the driver that runs them on the CPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_simt.h"

static struct cuda_golden under_test;

CUDA_GOLDEN(llama3)
CUDA_GOLDEN(qwen3)
CUDA_GOLDEN(gemma2)
CUDA_GOLDEN(qwen2_moe)
CUDA_GOLDEN(qwen3_moe)
CUDA_GOLDEN(phi3_longrope)
CUDA_GOLDEN(llama_heads80) /* heads of no power of two */

TEST_MAIN(CASE(llama3), CASE(qwen3), CASE(gemma2), CASE(qwen2_moe), CASE(qwen3_moe), CASE(phi3_longrope), CASE(llama_heads80))
