/* Golden models in f16 "on CUDA" without a GPU (as test_golden_cuda.c, which has bf16): a file of F16 matrices computes in f16, whose steps are
 * an eighth of bf16's, and so is the bound of the error. */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_simt.h"

static struct cuda_golden under_test;

/* types: of the Hugging Face files; weights: what they, or the GGUF file, are opened as. */
static void run(const char *name, enum golden_types types, enum dtype weights)
{
    if (!cuda_golden_simt(&under_test)) return;
    under_test.bound = 0.15 / 8, under_test.types = types, under_test.weights = weights;
    cuda_golden_model(&under_test, name, CUDA_GOLDEN_WHOLE | CUDA_GOLDEN_DECODE, 1);
}

TEST(llama3) { run("llama3", GOLDEN_F16, DTYPE_NONE); }
TEST(qwen3_moe) { run("qwen3_moe", GOLDEN_F16, DTYPE_NONE); }
TEST(bf16_as_f16) { run("qwen3", GOLDEN_BF16, DTYPE_F16); }
TEST(blocks) { run("blocks_q5_k", GOLDEN_AS_LISTED, DTYPE_F16); }

/* What a model of these files computes in, and what people are told. */
static void check_element(const char *name, enum golden_types types, enum dtype wish, enum dtype want, const char *notice)
{
    struct golden g;
    struct weights *w = NULL;
    struct model *m = NULL;
    struct rose_error err = {0};
    if (!cuda_golden_simt(&under_test)) return;
    golden_open(&g, name);
    g.types = types;
    golden_write_hf(&g);
    CHECK_OK(weights_open(g.dir, &w, &err), err);
    enum rose_status s = model_open_as(under_test.device, w, &(struct head_wish){.yes = -1, .no = -1, .weights = wish}, NULL, NULL, &m, &err);
    CHECK_INT(s, want ? ROSE_OK : ROSE_UNSUPPORTED);
    if (m) {
        CHECK_INT(m->element, want);
        CHECK_STR(m->notice, notice);
    } else {
        CHECK_STR(err.message, notice);
    }
    model_close(m);
    golden_close(&g);
}

TEST(choices)
{
    check_element("llama3", GOLDEN_F16, DTYPE_NONE, DTYPE_F16, "");
    check_element("llama3", GOLDEN_F16, DTYPE_BF16, DTYPE_BF16, "weights in F16 become BF16 in device memory");
    check_element("llama3", GOLDEN_BF16, DTYPE_NONE, DTYPE_BF16, "");
    check_element("llama3", GOLDEN_BF16, DTYPE_F16, DTYPE_F16, "weights in BF16 become F16 in device memory");
    check_element("llama3", GOLDEN_F32, DTYPE_NONE, DTYPE_BF16, "weights in F32 become BF16 in device memory");
    check_element("gemma2", GOLDEN_F16, DTYPE_NONE, DTYPE_BF16,
                  "F16 weights become BF16: activations of gemma2 leave the range of half (--weights f16 insists); weights in F16 become BF16 in device memory");
    check_element("gemma2", GOLDEN_F16, DTYPE_F16, DTYPE_F16, "");
    check_element("llama3", GOLDEN_F16, DTYPE_Q8_0, DTYPE_NONE, "weights as Q8_0 are for the CPU; a GPU computes in bf16 or f16");
}

TEST_MAIN(CASE(llama3), CASE(qwen3_moe), CASE(bf16_as_f16), CASE(blocks), CASE(choices))
