/* The memory plan: what it takes, and that every way out it names works. */
#include "engine/engine.h"
#include "test.h"

static struct rose_error err;

static struct model_config model(void)
{
    return (struct model_config){.layers = 32, .hidden = 4096, .vocabulary = 128256, .context = 131072, .heads = {32, 8, 128, 128}, .groups_count = 1, .group_layers = 32};
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

TEST_MAIN(CASE(ways_out_work), CASE(fewer_sequences_leave_more), CASE(what_is_left))
