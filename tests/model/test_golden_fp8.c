/* FP8 checkpoints "on CUDA" without a GPU: few rows by weights alone, many rows with activations that are quantised too (golden_cuda.h). */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_simt.h"

static struct cuda_golden under_test;

CUDA_GOLDEN(qwen3_fp8)
CUDA_GOLDEN(qwen3_moe_fp8)
CUDA_GOLDEN(qwen3_moe_fp8_channel)
CUDA_GOLDEN(qwen3_moe_fp8_block)
CUDA_GOLDEN(llama_fp8)
CUDA_GOLDEN(llama_fp8_block)
CUDA_GOLDEN(llama_fp8_channel)

/* A code that is no number is found on its way to the device, experts too. */
TEST(not_a_number)
{
    static const struct { const char *model, *name; } list[] = {{"llama_fp8", "model.layers.1.mlp.down_proj.weight"}, {"qwen3_moe_fp8", "model.layers.1.mlp.experts.3.up_proj.weight"}};
    for (size_t i = 0; cuda_golden_simt(&under_test) && i < ROSE_COUNT(list); i++) {
        struct golden g;
        struct weights *w = NULL;
        struct model *m = NULL;
        struct rose_error err = {0};
        golden_open(&g, list[i].model);
        golden_write_hf(&g);
        golden_patch(&g, list[i].name, 777, "\xff", 1);
        CHECK_OK(weights_open(g.dir, &w, &err), err);
        CHECK_INT(model_open(under_test.device, w, NULL, NULL, &m, &err), ROSE_FORMAT);
        CHECK(strstr(err.message, list[i].name) != NULL);
        golden_close(&g);
    }
}

TEST_MAIN(CASE(qwen3_fp8), CASE(qwen3_moe_fp8), CASE(qwen3_moe_fp8_channel), CASE(qwen3_moe_fp8_block), CASE(llama_fp8), CASE(llama_fp8_block), CASE(llama_fp8_channel), CASE(not_a_number))
