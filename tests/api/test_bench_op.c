/* rose_bench_op on the CPU, planned, and on the stand-in driver of tests/simt/driver. */
#define _GNU_SOURCE
#include "base/json.h"
#include "rose.h"
#include "test.h"

static const char driver[] = SIMT_DRIVER_DIR "/libsimt_fast.so", cache[] = SIMT_DRIVER_DIR "/kernels-cache";

/* Small shapes of every op. */
static const struct {
    const char *op, *shapes[6];
    int cases;
    const char *weights;
    bool cuda; /* a GPU's alone */
} ops[] = {
    {"norm", {"rows=1,5", "cols=256"}, 2, NULL, false},
    {"qk", {"rows=3", "heads=4", "kv_heads=2", "dim=64", "norm=0,1"}, 2, NULL, false},
    {"qk", {"rows=3", "heads=4", "kv_heads=2", "dim=64", "rope=2", "fp8=1"}, 1, NULL, true},
    {"act", {"rows=3", "cols=128", "gated=0,1"}, 2, NULL, false},
    {"norm", {"rows=3", "cols=256", "out=2,3"}, 2, NULL, true},
    {"act", {"rows=3", "cols=128", "out=4,6,7"}, 3, NULL, true},
    {"quantise", {"rows=130", "cols=256", "out=1,8"}, 2, NULL, true},
    {"value", {"rows=3", "cols=128", "kind=0,1,2,3"}, 4, NULL, false},
    {"dispatch", {"rows=3,260", "hidden=128", "experts=16", "top_k=2", "out=0"}, 2, NULL, true},
    {"dispatch", {"rows=40", "hidden=128", "experts=16", "top_k=2", "out=3"}, 1, NULL, true},
    {"sample", {"rows=2", "vocabulary=1000", "temperature=80", "top_k=0,5"}, 2, NULL, false},
    {"sample", {"rows=2", "vocabulary=1000", "temperature=80", "min_p=5", "changed=1"}, 1, NULL, false},
    {"moe", {"rows=3", "hidden=64", "inner=64", "experts=8", "top_k=2"}, 1, NULL, false},
    {"moe", {"rows=3", "hidden=256", "inner=256", "experts=4,8", "top_k=2"}, 2, "q4_k", false},
    {"pages", {"rows=5", "kv_heads=2", "dim=64", "from=0,2", "to=1,3"}, 4, NULL, true},
    {"logprob", {"rows=3", "vocabulary=1003", "want=2", "bf16=0,1"}, 2, NULL, true},
    {"matmul", {"rows=1,9", "n=128", "k=64"}, 2, NULL, false},
    {"matmul", {"rows=1,80", "n=48", "k=256"}, 2, "q4_k", false},
    {"matmul", {"rows=2", "n=20", "k=96"}, 1, "Q5_1", false},
    {"attention", {"sequences=2", "queries=1,3", "context=40", "heads=4", "kv_heads=2", "dim=64"}, 2, NULL, false},
};

static void check(struct rose_device *device, const char *arch, bool cuda, bool measured)
{
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct rose_error err = {0};
        char *text;
        size_t n = 0;
        while (n < 6 && ops[i].shapes[n]) n++;
        if (ops[i].cuda && !cuda) continue;
        struct rose_bench_op_options o = {.op = ops[i].op, .shapes = ops[i].shapes, .shapes_count = n, .seconds = 0.002, .copies = 3, .weights = ops[i].weights, .arch = arch, .cache_dir = cache, .nvrtc = driver};
        CHECK_OK(rose_bench_op(device, &o, &text, &err), err);
        if (!text) continue;
        struct arena a;
        const struct json *root = NULL;
        arena_init(&a, 0);
        CHECK_OK(json_parse(&a, ops[i].op, str_of(text), &root, &err), err);
        const struct json *results = json_get(root, "results");
        CHECK_INT(results ? (int)results->count : -1, ops[i].cases);
        for (uint32_t r = 0; results && r < results->count; r++) {
            const struct json *j = &results->items[r];
            CHECK(json_num(json_get(j, "bytes"), 0) > 0 && json_num(json_get(j, "ops"), 0) > 0 && json_num(json_get(j, "limit_us"), 0) > 0);
            CHECK((json_num(json_get(j, "us"), 0) > 0) == measured);
            CHECK(json_get(j, "kernels")->count >= 1);
        }
        arena_free(&a);
        rose_free(text);
    }
}

TEST(on_the_cpu)
{
    struct rose_device *d;
    struct rose_error err = {0};
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cpu", .threads = 2}, &d, &err), err);
    check(d, NULL, false, true);
    rose_device_close(d);
}

TEST(planned) { check(NULL, "sm_90a", true, false); }

/* Plans of shapes that no machine here has the memory for: nothing is filled. On the CPU the one of 8 TB is refused before anything is. */
TEST(planned_large)
{
    static const struct {
        const char *op, *shape[3];
    } cases[] = {{"sample", {"rows=4096", "vocabulary=524288", "top_k=0"}}, {"attention", {"sequences=4096", "queries=131072", "context=1048576"}}, {"norm", {"rows=262144", "cols=65536", "layer=0"}}};
    struct rose_device *d;
    struct rose_error err = {0};
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cpu", .threads = 1}, &d, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rose_bench_op_options o = {.op = cases[i].op, .shapes = cases[i].shape, .shapes_count = 3, .arch = "sm_90a", .nvrtc = driver, .cache_dir = cache};
        char *text;
        CHECK_OK(rose_bench_op(NULL, &o, &text, &err), err);
        CHECK(text && strstr(text, "\"predicted_us\":"));
        rose_free(text);
        if (strcmp(cases[i].op, "attention")) continue;
        CHECK_INT(rose_bench_op(d, &o, &text, &err), ROSE_NO_MEMORY);
        CHECK(strstr(err.message, "memory") && strstr(err.message, cases[i].shape[0]));
    }
    rose_device_close(d);
}

TEST(on_cuda)
{
    struct rose_device *d;
    struct rose_error err = {0};
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cuda", .driver = driver, .nvrtc = driver, .cache_dir = cache}, &d, &err), err);
    check(d, NULL, true, true);
    rose_device_close(d);
}

TEST(what_cannot_be)
{
    static const struct {
        const char *op, *shape;
        enum rose_status want;
        const char *says, *weights;
    } cases[] = {{"nothing", "rows=1", ROSE_NOT_FOUND, "norm, qk, act", NULL}, {"norm", "lines=1", ROSE_INVALID, "cols=4096", NULL}, {"norm", "rows=0", ROSE_INVALID, "from 1 to", NULL},
                 {"norm", "rows=1,x", ROSE_INVALID, "rows=1,x", NULL},         {"norm", "rows=", ROSE_INVALID, "no number", NULL}, {"norm", "rows=1,", ROSE_INVALID, "rows=1,:", NULL},   {"norm", "out=8", ROSE_INVALID, "from 0 to 7", NULL}, {"moe", "top_k=99", ROSE_INVALID, "from 1 to 32", NULL},
                 {"matmul", "k=96", ROSE_INVALID, "whole blocks of Q4_K", "q4_k"}, {"matmul", "k=96", ROSE_INVALID, "a block format of GGUF", "q9"},
                 {"norm", "rows=1", ROSE_UNSUPPORTED, "--weights is for matmul", "q8_0"}, {"pages", "to=0", ROSE_INVALID, "from form 0 to form 0", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rose_error err = {0};
        char *text;
        struct rose_bench_op_options o = {.op = cases[i].op, .shapes = &cases[i].shape, .shapes_count = 1, .weights = cases[i].weights, .arch = "sm_90a", .cache_dir = cache, .nvrtc = driver};
        CHECK_INT(rose_bench_op(NULL, &o, &text, &err), cases[i].want);
        CHECK(!text && strstr(err.message, cases[i].says) != NULL);
    }
    static const char *const twice[] = {"rows=1", "cols=64", "rows=2"};
    struct rose_error err = {0};
    char *text;
    struct rose_bench_op_options o = {.op = "norm", .shapes = twice, .shapes_count = 3, .arch = "sm_90a", .cache_dir = cache, .nvrtc = driver};
    CHECK_INT(rose_bench_op(NULL, &o, &text, &err), ROSE_INVALID);
    CHECK(!text && strstr(err.message, "rows is given twice") != NULL);
}

/* A combination that is refused does not end the sweep: the others are there, and it is told with its reason. */
TEST(goes_on_past_what_is_refused)
{
    const char *shapes[] = {"rows=1,5", "cols=12,256"};
    struct rose_bench_op_options o = {.op = "norm", .shapes = shapes, .shapes_count = 2, .arch = "sm_90a", .cache_dir = cache, .nvrtc = driver};
    struct rose_error err = {0};
    char *text;
    CHECK_OK(rose_bench_op(NULL, &o, &text, &err), err);
    struct arena a;
    const struct json *root = NULL;
    arena_init(&a, 0);
    CHECK_OK(json_parse(&a, "norm", str_of(text), &root, &err), err);
    const struct json *results = json_get(root, "results"), *refused = json_get(root, "refused");
    CHECK_INT(results ? (int)results->count : -1, 2);
    CHECK_INT(refused ? (int)refused->count : -1, 2);
    for (uint32_t i = 0; results && i < results->count; i++) CHECK_INT(json_int(json_get(json_at(results, i), "cols"), 0), 256);
    for (uint32_t i = 0; refused && i < refused->count; i++) {
        const struct json *j = json_at(refused, i);
        CHECK_INT(json_int(json_get(j, "cols"), 0), 12);
        CHECK_INT(json_int(json_get(j, "rows"), 0), i ? 5 : 1);
        CHECK(strstr(json_str(json_get(j, "why"), "").p, "rows of 12 columns") != NULL);
    }
    arena_free(&a);
    rose_free(text);
}

TEST_MAIN(CASE(on_the_cpu), CASE(planned), CASE(planned_large), CASE(on_cuda), CASE(what_cannot_be), CASE(goes_on_past_what_is_refused))
