/* The CUDA sampling kernel on the CPU harness, as its plan gives it, against a float64 reference that sorts:
 * every filter and their combinations, edits, penalties, masks, log-probabilities, ties by the thousand,
 * nothing allowed, NaN. Tails are ragged: 9,001 tokens are 17 tiles and a bit. */
#include "../gpu/sample_reference.h"
#include "ops/sample.h"
#include "ops/sample_cuda.h"
#include "simt.h"
#include "test.h"

enum { V = 9001, SLOTS = 3, STRIDE = 40, MASKS = 2, EDITS = 8 };
static struct rose_error err;
static bool alone_; /* one block a row, as a plan for many rows has: several groups of tiles a block */

static uint32_t random_(uint64_t *s)
{
    *s = *s * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*s >> 32);
}
static float normal_(uint64_t *s)
{
    float x = 0;
    for (int i = 0; i < 6; i++) x += (float)(random_(s) >> 8) * 0x1p-24f;
    return (x - 3.0f) * 1.414f;
}
static struct device_info device_of(const char *arch)
{
    struct device_info d = {.kind = DEVICE_CUDA,
                            .units = 8,
                            .l2_bytes = 50 << 20,
                            .bandwidth = 4.8e12,
                            .max_threads_per_unit = 2048};
    snprintf(d.arch, sizeof d.arch, "%s", arch);
    return d;
}
static float rounded(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &u, 4);
    return f;
}

/* Rows of logits [n, V], checked row by row. */
static void check(const char *arch, bool bf16, bool modify, const float *logits,
                  const struct sample_row *rows, int n, uint64_t seed)
{
    static const struct sample_edit edits[EDITS] = {{5, 3.0f}, {7, -INFINITY}, {5, 0.5f},  {-4, 1.0f},
                                                    {V, 1.0f}, {4097, 30.0f},  {0, -1.0f}, {7, 2.0f}};
    static int32_t history[SLOTS * STRIDE], length[SLOTS] = {0, 33, STRIDE}, prompt[SLOTS] = {0, 10, 3},
                                            feed[16];
    static uint32_t mask[MASKS * ((V + 31) / 32)];
    static uint32_t counters[16];
    uint64_t s = seed;
    for (int i = 0; i < SLOTS * STRIDE; i++)
        history[i] = i % 7 == 0 ? 4097 : (int32_t)(random_(&s) % (V + 20)) - 10;
    for (int i = 0; i < (V + 31) / 32; i++) mask[i] = random_(&s) & random_(&s);
    struct device_info d = device_of(arch);
    struct sample_shape shape = {.rows = n, .vocabulary = V, .bf16 = bf16, .modify = modify};
    struct plan plan;
    int32_t blocks;
    CHECK_OK(sample_cuda_plan(&shape, &d, &plan, &blocks, &err), err);
    CHECK(blocks >= 2);
    if (alone_) plan.times = blocks = 1;
    int64_t stride = (V + 7) / 8 * 8, work = sample_cuda_work(&shape);
    size_t bytes = (size_t)(n * stride) * (bf16 ? 2 : 4);
    float *values = malloc((size_t)n * V * 4);
    char *device = calloc(1, bytes);
    for (int r = 0; r < n; r++)
        for (int t = 0; t < V; t++) {
            float x = logits[(size_t)r * V + (size_t)t];
            values[r * V + t] = x = bf16 && x == x && fabsf(x) < 1e38f ? rounded(x) : x;
            if (bf16) {
                uint32_t u;
                memcpy(&u, &x, 4);
                ((uint16_t *)(void *)device)[r * stride + t] = (uint16_t)(u >> 16);
            } else {
                ((float *)(void *)device)[r * stride + t] = x;
            }
        }
    struct sample_params p = {.logits = simt_buffer("logits", bytes, device),
                              .rows = simt_buffer("rows", (size_t)n * sizeof *rows, rows),
                              .output = simt_buffer("output", (size_t)n * sizeof(struct sample_output), NULL),
                              .feed = simt_buffer("feed", sizeof feed, feed),
                              .work = simt_buffer("work", (size_t)(n * work) * 4, NULL),
                              .counters = simt_buffer("counters", sizeof counters, counters),
                              .logits_stride = stride,
                              .mask_stride = (V + 31) / 32,
                              .history_stride = STRIDE,
                              .work_stride = work,
                              .vocabulary = V,
                              .slots = SLOTS,
                              .edits_max = EDITS,
                              .masks = MASKS,
                              .blocks = blocks};
    if (modify) {
        p.edits = simt_buffer("edits", sizeof edits, edits);
        p.mask = simt_buffer("mask", sizeof mask, mask);
        p.history = simt_buffer("history", sizeof history, history);
        p.history_length = simt_buffer("history_length", sizeof length, length);
        p.prompt_length = simt_buffer("prompt_length", sizeof prompt, prompt);
    }
    char defines[300];
    CHECK(plan_defines(&plan, &d, defines, sizeof defines));
    struct simt_report report = simt_launch(
        &(struct simt_launch){.kernel = simt_kernel("src/kernels/cuda/sample.cu", "sample", defines),
                              .grid = {plan_grid(&plan, n)},
                              .block = {plan.block}, .shared_bytes = plan.shared_bytes,
                              .dependent = plan_arch(&d) >= 900,
                              .seed = seed},
        &p);
    CHECK_SIMT_CLEAN(report);
    for (int r = 0; r < n && report.fault == SIMT_CLEAN; r++) {
        const struct sample_output *o = (const struct sample_output *)p.output + r;
        const struct sample_row *row = &rows[r];
        bool slot = modify && row->slot >= 0 && row->slot < SLOTS;
        struct sample_host h = {.logits = values + r * V,
                                .edits = modify ? edits : NULL,
                                .mask = modify && row->mask_row >= 0 ? mask + row->mask_row * ((V + 31) / 32)
                                                                     : NULL,
                                .history = slot ? history + row->slot * STRIDE : NULL,
                                .vocabulary = V,
                                .edits_max = EDITS,
                                .length = slot ? length[row->slot] : 0,
                                .prompt = slot ? prompt[row->slot] : 0};
        int wrong = sample_check(&h, row, o);
        if (wrong) fprintf(stderr, "row %d of %s: %d wrong, token %d\n", r, arch, wrong, o->token);
        CHECK_INT(wrong, 0);
        if (row->feed >= 0 && row->given < 0 && o->token >= 0)
            CHECK_INT(((int32_t *)p.feed)[row->feed], o->token);
        if (slot && row->append && o->token >= 0) {
            bool room = length[row->slot] < STRIDE;
            CHECK_INT(((int32_t *)p.history_length)[row->slot], length[row->slot] + room);
            if (room) CHECK_INT(((int32_t *)p.history)[row->slot * STRIDE + length[row->slot]], o->token);
        }
        CHECK_INT(((uint32_t *)p.counters)[r], 0);
    }
    simt_reset();
    free(values), free(device);
}

static float *logits_of(int n, float scale, uint64_t seed)
{
    float *x = malloc((size_t)n * V * 4);
    for (int i = 0; i < n * V; i++) x[i] = normal_(&seed) * scale;
    return x;
}

/* The CPU's op keeps the same contract: what it draws passes the same reference. */
static void check_cpu(const float *logits, const struct sample_row *rows, int n)
{
    static struct sample_output out[16];
    static int32_t feed[16];
    float *x = malloc((size_t)n * V * 4);
    struct device *d = NULL;
    struct program *p = NULL;
    memcpy(x, logits, (size_t)n * V * 4);
    CHECK_OK(
        device_open(
            &(struct device_options){.kind = DEVICE_CPU, .threads = 1, .scratch_bytes = op_sample_scratch(V)},
            &d, &err),
        err);
    CHECK_OK(program_open(d, &p, &err), err);
    struct op_sample op = {.logits = {.buffer = program_external(p, "logits", x, (size_t)n * V * 4),
                                      .dtype = DTYPE_F32,
                                      .rows = EXTENT_SAMPLES,
                                      .cols = V,
                                      .stride = V},
                           .rows =
                               program_external(p, "rows", (void *)(uintptr_t)rows, (size_t)n * sizeof *rows),
                           .output = program_external(p, "output", out, sizeof out),
                           .feed = program_external(p, "feed", feed, sizeof feed),
                           .max_samples = n};
    CHECK_OK(op_sample(p, &op, &err), err);
    CHECK_OK(program_finish(p, NULL, 0, &err), err);
    struct extents e = {.n = {1, n, 1, n}};
    CHECK_OK(device_submit(d, p, &e, &err), err);
    CHECK_OK(device_wait(d, NULL, &err), err);
    for (int r = 0; r < n; r++) {
        struct sample_host h = {.logits = logits + r * V, .vocabulary = V};
        CHECK_INT(sample_check(&h, &rows[r], &out[r]), 0);
    }
    program_close(p);
    device_close(d);
    free(x);
}

/* Peaked rows: everything by candidates. */
TEST(filters)
{
    struct sample_row rows[] = {
        SAMPLE_ROW_GREEDY,
        {.temperature = 1, .top_p = 1, .repetition = 1, .given = -1, .top_n = -1, .slot = -1, .mask_row = -1, .feed = 3, .seed = 1, .step = 9},
        {.temperature = 0.7f, .top_p = 1, .top_k = 50, .repetition = 1, .given = -1, .top_n = 5, .slot = -1, .mask_row = -1, .feed = -1, .seed = 2},
        {SAMPLE_ALONE, .temperature = 1.3f, .top_p = 0.9f, .repetition = 1, .seed = 3, .step = 1},
        {.temperature = 1, .top_p = 0.8f, .top_k = 30, .min_p = 0.02f, .repetition = 1, .given = -1, .top_n = 20, .slot = -1, .mask_row = -1, .feed = -1, .seed = 4},
        {.temperature = 0.9f, .top_p = 1, .min_p = 0.05f, .repetition = 1, .given = -1, .top_n = 0, .slot = -1, .mask_row = -1, .feed = -1, .seed = 5},
        {SAMPLE_ALONE, .temperature = 1, .top_p = 1, .top_k = 1, .repetition = 1, .seed = 6},
        {.top_p = 1, .repetition = 1, .given = 4321, .top_n = 3, .slot = -1, .mask_row = -1, .feed = -1},
    };
    float *x = logits_of(8, 4, 11);
    check("sm_90a", false, false, x, rows, 8, 1);
    check_cpu(x, rows, 8);
    check("sm_80", true, false, x, rows, 8, 2);
    for (int i = 0; i < 8; i++) rows[i].seed += 100, rows[i].step += 1ull << 40;
    check("sm_120a", true, false, x, rows, 8, 3);
    free(x);
}

/* Flat rows: more survive than the pool holds. */
TEST(flat)
{
    struct sample_row rows[] = {
        {SAMPLE_ALONE, .temperature = 1, .top_p = 0.9f, .repetition = 1, .seed = 21},
        {SAMPLE_ALONE, .temperature = 2, .top_p = 1, .top_k = 6000, .repetition = 1, .seed = 22},
        {SAMPLE_ALONE, .temperature = 1, .top_p = 0.7f, .top_k = 5000, .min_p = 0.01f, .repetition = 1, .seed = 23},
        {SAMPLE_ALONE, .temperature = 3, .top_p = 1, .min_p = 0.01f, .repetition = 1, .seed = 24},
        {.temperature = 1, .top_p = 0.5f, .repetition = 1, .given = -1, .top_n = 4, .slot = -1, .mask_row = -1, .feed = -1, .seed = 25}, /* all equal */
        {SAMPLE_ALONE, .temperature = 1, .top_p = 1, .top_k = 8000, .repetition = 1, .seed = 26}, /* two values */
    };
    float *x = logits_of(6, 0.5f, 12);
    for (int t = 0; t < V; t++) {
        x[4 * V + t] = 2.5f;
        x[5 * V + t] = t % 3 ? 1.0f : -0.0f;
        x[2 * V + t] *= 0.001f; /* nearly equal: one distance bin, refined by keys */
    }
    check("sm_100a", false, false, x, rows, 6, 4);
    check_cpu(x, rows, 6);
    check("sm_90a", true, false, x, rows, 6, 5);
    free(x);
}

/* Edits, penalties, masks; and what they append. */
TEST(changed)
{
    struct sample_row rows[] = {
        {.top_p = 1, .repetition = 1.3f, .presence = 0.5f, .frequency = 0.25f, .given = -1, .top_n = 2, .slot = 1, .append = 1, .mask_row = -1, .feed = 0},
        {.temperature = 1, .top_p = 0.9f, .repetition = 1.1f, .given = -1, .top_n = -1, .slot = 2, .append = 1, .mask_row = 0, .feed = 1, .seed = 31, .edits_begin = 0, .edits_count = EDITS},
        {.temperature = 0.8f, .top_p = 1, .top_k = 40, .repetition = 1, .given = -1, .top_n = 20, .slot = -1, .mask_row = 0, .feed = 2, .seed = 32},
        {.temperature = 1, .top_p = 1, .repetition = 1, .given = -1, .top_n = 0, .slot = 0, .append = 1, .mask_row = 1, .feed = 5, .seed = 33}, /* mask 1 allows nothing */
        {SAMPLE_ALONE, .temperature = 1, .top_p = 1, .repetition = 1, .seed = 34, .edits_begin = 2, .edits_count = 1000},
        {.temperature = 1, .top_p = 1, .repetition = 1, .given = V + 3, .top_n = 1, .slot = 1, .mask_row = 0, .feed = -1},
    };
    float *x = logits_of(6, 3, 13);
    check("sm_90a", true, true, x, rows, 6, 6);
    check("sm_80", false, true, x, rows, 6, 7);
    alone_ = true;
    check("sm_90a", false, true, x, rows, 6, 8);
    check("sm_120a", true, true, x, rows, 6, 9);
    alone_ = false;
    free(x);
}

TEST(strange_logits)
{
    struct sample_row rows[] = {SAMPLE_ROW_GREEDY, SAMPLE_ROW_GREEDY, SAMPLE_ROW_GREEDY, SAMPLE_ROW_GREEDY};
    float *x = logits_of(4, 1, 14);
    for (int t = 0; t < V; t++) {
        x[t] = NAN;
        if (t % 2) x[V + t] = NAN;
        x[2 * V + t] = t == 8999 || t == 7000 ? 5.0f : -1.0f;
        x[3 * V + t] = t % 1000 == 999 ? INFINITY : 0;
    }
    rows[1].temperature = 1, rows[1].top_p = 0.9f;
    rows[3].temperature = 1;
    check("sm_90a", false, false, x, rows, 3, 8);
    free(x);
}

/* Needs NVRTC, no GPU. */
TEST(compiles)
{
    static const char *const arches[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    const struct jit_kernel *k;
    struct jit *jit = NULL;
    CHECK_OK(jit_open(&(struct jit_options){.cache_dir = NVRTC_CACHE, .threads = 2}, &jit, &err), err);
    for (int a = 0; a < 5 && jit; a++) {
        struct device_info d = device_of(arches[a]);
        struct sample_shape shape = {.rows = 1, .vocabulary = 151936, .bf16 = a % 2 == 0, .modify = true};
        struct plan plan;
        int32_t blocks;
        CHECK_OK(sample_cuda_plan(&shape, &d, &plan, &blocks, &err), err);
        CHECK_OK(plan_request(&plan, jit, arches[a], &k, &err), err);
    }
    CHECK_OK(jit_compile_all(jit, &err), err);
    jit_close(jit);
}

TEST_MAIN(CASE(filters), CASE(flat), CASE(changed), CASE(strange_logits), CASE(compiles))
