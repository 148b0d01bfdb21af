/* The golden models on a GPU: every architecture in bf16, and what may in f16 (f16_NAME), against transformers' float32 logits, from safetensors and GGUF, whole
 * prompts, chunks, two sequences at once and token by token through the decode program; and the models that embed, classify and score, every
 * answer alone and all in one batch.
 *
 *     gpu_golden [part of a name]      from the repository's root; last line "N passed, N failed" */
#define _GNU_SOURCE /* mkdtemp */
#include "engine/pool_golden_cuda.h"
#include "model/golden_cuda.h"

#include "jit/jit.h"

static const char *const models[] = {"llama",   "llama3", "llama_linear", "llama_dynamic", "llama_yarn", "mistral",   "ministral",       "mixtral", "qwen2", "qwen2_moe",
                                     "qwen2_moe_mixed", "qwen3",  "qwen3_moe",    "gemma2",        "gemma3",     "phi3",      "phi3_longrope",   "olmo2",   "granite", "smollm3", "llama_heads80", "phi3_heads96", "qwen3_heads192",
                                     "blocks_q4_0", "blocks_q4_1", "blocks_q8_0", "blocks_mxfp4", "blocks_q4_k", "blocks_q5_k", "blocks_q6_k", "blocks_mixed", "blocks_moe_q4_k", "blocks_moe_q5_k", "blocks_moe_q8_0", "blocks_moe_q4_0", "blocks_moe_q5_0",
                                     "qwen3_fp8", "qwen3_moe_fp8", "qwen3_moe_fp8_channel", "qwen3_moe_fp8_block", "llama_fp8", "llama_fp8_block", "llama_fp8_channel"};

/* In f16, with an eighth of the bound: of files of F16 matrices, and of blocks. */
static const char *const halves[] = {"f16_llama3", "f16_mistral", "f16_qwen2_moe", "f16_qwen3", "f16_qwen3_moe", "f16_phi3_longrope", "f16_olmo2", "f16_granite", "f16_blocks_q4_0",
                                     "f16_blocks_q4_1", "f16_blocks_q8_0", "f16_blocks_mxfp4", "f16_blocks_q5_k", "f16_blocks_q6_k", "f16_blocks_moe_q4_k"};

#define NAME(name) #name,
static const char *const pooled[] = {POOL_CUDA_MODELS(NAME)};

int main(int argc, char **argv)
{
    struct pool_cuda pool = {0};
    struct cuda_golden t = {.bound = 0.15};
    struct rose_error err = {0};
    struct jit *jit = NULL;
    int passed = 0, failed = 0;
    if (device_open(&(struct device_options){.kind = DEVICE_CUDA}, &t.device, &err) || jit_open(&(struct jit_options){.cache_dir = "/tmp/rose-golden-jit"}, &jit, &err))
        return printf("%s\n", err.message), 1;
    t.device->jit = jit;
    /* "NAME inside": plans for a memory so slow that weights in blocks are decoded inside products of many rows. */
    if (argc > 2 && !strcmp(argv[2], "inside")) t.device->info.bandwidth = 1e9;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (argc > 1 && !strstr(models[i], argv[1])) continue;
        test_failures_ = 0;
        cuda_golden_model(&t, models[i], CUDA_GOLDEN_ALL, 100);
        if (test_failures_) failed++, printf("FAIL %s\n", models[i]);
        else passed++;
        fflush(stdout);
    }
    t.bound /= 8, t.types = GOLDEN_F16, t.weights = DTYPE_F16;
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        if (argc > 1 && !strstr(halves[i], argv[1])) continue;
        test_failures_ = 0;
        cuda_golden_model(&t, halves[i] + 4, CUDA_GOLDEN_ALL, 100);
        if (test_failures_) failed++, printf("FAIL %s\n", halves[i]);
        else passed++;
        fflush(stdout);
    }
    pool.device = t.device;
    for (size_t i = 0; i < sizeof pooled / sizeof *pooled; i++) {
        if (argc > 1 && !strstr(pooled[i], argv[1])) continue;
        test_failures_ = 0;
        pool_cuda_model(&pool, pooled[i], 100);
        if (test_failures_) failed++, printf("FAIL %s\n", pooled[i]);
        else passed++;
        fflush(stdout);
    }
    device_close(t.device);
    jit_close(jit);
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
