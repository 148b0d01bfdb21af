/* The memory plan: what it takes, and that every way out it names works. */
#include "engine/engine.h"
#include "test.h"

static struct rose_error err;

static struct layer_config layers_[64], moe_layers_[64];

static struct model_config model(void)
{
    return (struct model_config){.layers = 32, .layer = layers_, .intermediate = 14336, .hidden = 4096, .vocabulary = 128256, .context = 131072, .heads = {32, 8, 128, 128}, .groups_count = 1, .group_layers = 32};
}
static struct device_info device(enum device_kind kind, double gb)
{
    return (struct device_info){.kind = kind, .memory_total = (size_t)(gb * 1e9), .memory_free = (size_t)(gb * 1e9)};
}

static void advice(enum device_kind kind, double gb, struct engine_options asked, const char *word, size_t *number)
{
    struct model_config c = model();
    struct device_info d = device(kind, gb);
    struct engine_plan plan;
    struct engine_options o = asked;
    CHECK_INT(engine_plan(&c, &d, (size_t)16e9, &o, &plan, &err), ROSE_NO_MEMORY);
    const char *at = strstr(err.message, word);
    CHECK(at != NULL);
    if (!at) printf("%s\n", err.message);
    if (at && number) CHECK_INT(sscanf(at + strlen(word), "%zu", number), 1);
}

TEST(ways_out_work)
{
    struct model_config c = model();
    struct engine_options o = {.context = 60000, .max_sequences = 64};
    struct engine_plan plan;
    size_t n = 0;
    struct device_info gpu = device(DEVICE_CUDA, 22), cpu = device(DEVICE_CPU, 22);
    /* 60,000 tokens of 131,072 bytes are 7.9 GB; 22 GB less 16 leave 5.7. */
    advice(DEVICE_CUDA, 22, o, "--ctx ", &n);
    struct engine_options smaller = o;
    smaller.context = (int32_t)n;
    CHECK_OK(engine_plan(&c, &gpu, (size_t)16e9, &smaller, &plan, &err), err);
    CHECK_INT(plan.context, (int)n);
    advice(DEVICE_CUDA, 22, o, "--kv fp8", NULL);
    struct engine_options narrow = o;
    narrow.kv = DTYPE_F8_E4M3;
    CHECK_OK(engine_plan(&c, &gpu, (size_t)16e9, &narrow, &plan, &err), err);
    advice(DEVICE_CPU, 22, o, "--kv q8_0", NULL);
    narrow.kv = DTYPE_Q8_0;
    narrow.max_sequences = 64;
    CHECK_OK(engine_plan(&c, &cpu, (size_t)16e9, &narrow, &plan, &err), err);
    struct engine_options pool = o;
    pool.kv_bytes = (size_t)1 << 30;
    advice(DEVICE_CUDA, 60, pool, "--kv-bytes ", &n);
    pool.kv_bytes = n;
    struct device_info large = device(DEVICE_CUDA, 60);
    CHECK_OK(engine_plan(&c, &large, (size_t)16e9, &pool, &plan, &err), err);
}

/* A context beyond memory: what fits is advised, and never more than the model was made for. */
TEST(no_more_than_the_model_was_made_for)
{
    struct model_config c = model();
    struct device_info cpu = device(DEVICE_CPU, 60);
    struct engine_plan plan;
    size_t n = 0;
    struct engine_options o = {.context = 1 << 30, .max_sequences = 1};
    advice(DEVICE_CPU, 60, o, "--ctx ", &n); /* 44 GB hold 300,000 tokens */
    CHECK_INT(n, 131072);
    CHECK(strstr(err.message, "which the model was made for"));
    o.context = (int32_t)n;
    CHECK_OK(engine_plan(&c, &cpu, (size_t)16e9, &o, &plan, &err), err);
}

/* 400 sequences keep 400 rows of logits; with fewer the context fits. */
TEST(fewer_sequences_leave_more)
{
    struct model_config c = model();
    struct device_info gpu = device(DEVICE_CUDA, 24.9);
    struct engine_plan plan;
    size_t n = 0;
    struct engine_options o = {.context = 60000, .max_sequences = 400, .reserve_bytes = (size_t)128256 * 12 * 400};
    advice(DEVICE_CUDA, 24.9, o, "--max-sequences ", &n);
    CHECK(n > 0 && n < 400);
    struct engine_options fewer = {.context = 60000, .max_sequences = (int32_t)n, .reserve_bytes = (size_t)128256 * 12 * n};
    CHECK_OK(engine_plan(&c, &gpu, (size_t)16e9, &fewer, &plan, &err), err);
}

TEST(what_is_left)
{
    struct model_config c = model();
    struct device_info gpu = device(DEVICE_CUDA, 140);
    struct engine_options o = {.reserve_bytes = (size_t)2e9};
    struct engine_plan plan;
    CHECK_OK(engine_plan(&c, &gpu, (size_t)16e9, &o, &plan, &err), err);
    CHECK_INT(o.max_sequences, 256);
    CHECK_INT(o.kv, DTYPE_BF16);
    CHECK(plan.pool_bytes > (size_t)110e9 && plan.pool_bytes < (size_t)122e9);
    CHECK_INT(plan.context, 131072);
}

/* Beside decode rows a step of a GPU takes about a tenth of a second: half of it for 8 billion weights, whole where a row meets fewer, though not for 70 billion. */
TEST(rows_beside_decode)
{
    struct model_config dense = model(), mixture = model(), large = model();
    struct device_info gpu = device(DEVICE_CUDA, 200), cpu = device(DEVICE_CPU, 200);
    struct engine_plan plan;
    for (int i = 0; i < 64; i++) moe_layers_[i].moe = true;
    mixture.layers = 48, mixture.layer = moe_layers_, mixture.hidden = 2048;
    mixture.experts = 128, mixture.experts_used = 8, mixture.expert_intermediate = 768, mixture.heads.kv_heads = 4;
    large.layers = 64, large.hidden = 8192, large.intermediate = 28672, large.heads.heads = 64;
    const struct {
        struct model_config *c;
        int32_t step, rows, whole;
    } cases[] = {{&dense, 0, 4096, 8192}, {&mixture, 0, 8192, 16384}, {&mixture, 16384, 11264, 16384}, {&large, 0, 4096, 8192}, {&large, 2048, 1024, 2048}};
    for (size_t i = 0; i < ROSE_COUNT(cases); i++) {
        struct engine_options o = {.context = 2048, .max_sequences = 64, .step_tokens = cases[i].step}, slow = o;
        CHECK_OK(engine_plan(cases[i].c, &gpu, (size_t)16e9, &o, &plan, &err), err);
        CHECK_INT(o.prefill_tokens, cases[i].rows);
        CHECK_INT(o.step_tokens, cases[i].whole);
        slow.step_tokens = 512;
        CHECK_OK(engine_plan(cases[i].c, &cpu, (size_t)16e9, &slow, &plan, &err), err);
        CHECK_INT(slow.prefill_tokens, 128);
    }
    struct engine_options asked = {.context = 2048, .prefill_tokens = 96};
    CHECK_OK(engine_plan(&mixture, &gpu, (size_t)16e9, &asked, &plan, &err), err);
    CHECK_INT(asked.prefill_tokens, 96);
}

TEST_MAIN(CASE(rows_beside_decode), CASE(ways_out_work), CASE(no_more_than_the_model_was_made_for), CASE(fewer_sequences_leave_more), CASE(what_is_left), CASE(no_more_than_the_model_was_made_for))
