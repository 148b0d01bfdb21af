/* GGUF models in every block format that CUDA kernels read as it is, against transformers in float32 (tests/golden/make_blocks.py), with
 * the driver that runs kernels on the CPU. */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_simt.h"

static struct cuda_golden under_test;

/* A GGUF file of block formats: what stays as it is in memory, and the line about what does not. */
static void check_blocks(const char *name, const char *notice)
{
    struct golden g;
    struct weights *w = NULL;
    struct model *m = NULL;
    struct rose_error err = {0};
    if (!cuda_golden_simt(&under_test)) return;
    golden_open(&g, name);
    CHECK(golden_write_gguf(&g)); /* the file is the one the gguf package wrote */
    CHECK_OK(weights_open(g.file, &w, &err), err);
    CHECK_OK(model_open(under_test.device, w, NULL, NULL, &m, &err), err);
    if (m) {
        size_t file = 0; /* what its matrices take there */
        for (size_t i = 0; i < weights_count(m->weights); i++)
            if (weights_tensor(m->weights, i)->ndim > 1) file += size_round_up(weights_tensor(m->weights, i)->bytes, 256);
        CHECK_STR(m->notice, notice);
        if (!*notice) CHECK_INT(m->memory_bytes, file);
    }
    model_close(m);
    golden_close(&g);
    cuda_golden_model(&under_test, name, CUDA_GOLDEN_WHOLE | CUDA_GOLDEN_DECODE, 1);
}

/* Planned for a memory so slow that nobody writes panels: tiles of the whole prompt are decoded on their way into the product. The models below take panels. */
#define BLOCKS(name)                                     \
    TEST(blocks_##name)                                  \
    {                                                    \
        if (!cuda_golden_simt(&under_test)) return;      \
        double bandwidth = under_test.device->info.bandwidth; \
        under_test.device->info.bandwidth = 1e9;         \
        check_blocks("blocks_" #name, "");               \
        under_test.device->info.bandwidth = bandwidth;   \
    }
BLOCKS(q4_0)
BLOCKS(q4_1)
BLOCKS(q8_0)
BLOCKS(mxfp4)
BLOCKS(q4_k)
BLOCKS(q5_k)
BLOCKS(q6_k)
/* Experts, whose router is F32: codes are read by decode, chunks and whole prompts; unlike gate and up become BF16. */
TEST(blocks_moe_q4_k) { check_blocks("blocks_moe_q4_k", "weights in F32 become BF16 in device memory"); }
TEST(blocks_moe_q5_k) { check_blocks("blocks_moe_q5_k", "weights in F32 become BF16 in device memory"); }
TEST(blocks_moe_q8_0) { check_blocks("blocks_moe_q8_0", "weights in F32 become BF16 in device memory"); }
TEST(blocks_moe_q4_0) { check_blocks("blocks_moe_q4_0", "weights in F32 become BF16 in device memory"); }
TEST(blocks_moe_q5_0) { check_blocks("blocks_moe_q5_0", "weights in F32, Q5_0, Q8_0 (tables, unlike experts) become BF16 in device memory"); }
TEST(blocks_mixed) { check_blocks("blocks_mixed", "weights in Q5_0 become BF16 in device memory"); }


TEST_MAIN(CASE(blocks_q4_0), CASE(blocks_q4_1), CASE(blocks_q8_0), CASE(blocks_mxfp4), CASE(blocks_q4_k), CASE(blocks_q5_k), CASE(blocks_q6_k), CASE(blocks_mixed), CASE(blocks_moe_q4_k),
          CASE(blocks_moe_q5_k), CASE(blocks_moe_q8_0), CASE(blocks_moe_q4_0), CASE(blocks_moe_q5_0))
