/* FP8 checkpoints whose bytes are not what they should be: an error in words for each, the tensor's name in it. */
#define _GNU_SOURCE /* mkdtemp */
#include "golden_run.h"

static void refused(const char *model, const char *name, size_t at, const void *bytes, size_t n, const char *says)
{
    struct golden g;
    struct run r;
    struct rose_error err = {0};
    golden_open(&g, model);
    golden_write_hf(&g);
    golden_patch(&g, name, at, bytes, n);
    enum rose_status s = run_open(&r, g.dir, DTYPE_F32, &err);
    CHECK_INT(s, ROSE_FORMAT);
    bool named = strstr(err.message, name) && strstr(err.message, says);
    if (!named) printf("%s: %s\n", name, err.message);
    CHECK(named);
    if (s == ROSE_OK) run_close(&r);
    golden_close(&g);
}

TEST(codes)
{
    refused("qwen3_fp8", "model.layers.0.self_attn.q_proj.weight", 0, "\x7f", 1, "not numbers");
    refused("qwen3_fp8", "model.layers.1.mlp.down_proj.weight", 192 * 320 - 1, "\xff", 1, "not numbers");
    refused("llama_fp8_channel", "model.layers.1.self_attn.v_proj.weight", 1001, "\xff", 1, "not numbers");
    refused("qwen3_moe_fp8", "model.layers.0.mlp.experts.7.up_proj.weight", 5, "\x7f", 1, "not numbers");
}

TEST(scales)
{
    const float bad[] = {0, -1, NAN, INFINITY, -0.0f, 3e38f};
    for (size_t i = 0; i < ROSE_COUNT(bad); i++) {
        uint16_t half = f32_to_bf16(bad[i]);
        refused("llama_fp8", "model.layers.0.mlp.up_proj.weight_scale", 0, &bad[i], 4, "positive");
        refused("qwen3_fp8", "model.layers.1.mlp.down_proj.weight_scale_inv", 5, &half, 2, "positive");
    }
}

/* A file that says nothing of how it is quantised, and scales that are missing: all are listed. */
TEST(missing)
{
    struct golden g;
    struct run r;
    struct arena a;
    const struct json *patch_json;
    struct rose_error err = {0};
    arena_init(&a, 0);
    golden_open(&g, "qwen3_fp8");
    golden_write_hf(&g);
    static const struct { const char *patch, *says; enum rose_status status; } list[] = {
        {"{\"quantization_config\":null}", "quantization_config", ROSE_FORMAT},
        {"{\"quantization_config\":{\"weight_block_size\":null}}", "missing: model.layers.0.self_attn.q_proj.weight_scale", ROSE_FORMAT},
        {"{\"quantization_config\":{\"weight_block_size\":[64,128]}}", "q_proj.weight_scale_inv has shape [1, 2], expected [2, 2]", ROSE_FORMAT},
        {"{\"quantization_config\":{\"quant_method\":\"awq\"}}", "awq", ROSE_UNSUPPORTED},
        {"{\"quantization_config\":7}", "must be an object", ROSE_FORMAT},
    };
    for (size_t i = 0; i < ROSE_COUNT(list); i++) {
        CHECK_OK(json_parse(&a, "patch", str_of(list[i].patch), &patch_json, &err), err);
        golden_write_config(&g, patch_json);
        CHECK_INT(run_open(&r, g.dir, DTYPE_F32, &err), list[i].status);
        if (!strstr(err.message, list[i].says)) printf("%s\n", err.message);
        CHECK(strstr(err.message, list[i].says) != NULL);
    }
    golden_close(&g);
    arena_free(&a);
}

TEST_MAIN(CASE(codes), CASE(scales), CASE(missing))
