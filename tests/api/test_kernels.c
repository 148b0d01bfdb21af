/* rose_kernels: a model's steps from its config alone, with the stand-in compiler and driver of tests/simt/driver. */
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../model/golden.h"
#include "rose.h"

static const char driver[] = SIMT_DRIVER_DIR "/libsimt_fast.so";
static const int batches[] = {1, 3}, chunks[] = {64};

static struct rose_kernels_options options(const char *model)
{
    return (struct rose_kernels_options){.model = model, .nvrtc = driver, .cache_dir = SIMT_DRIVER_DIR "/kernels-cache", .batches = batches, .batches_count = 2, .chunks = chunks,
                                         .chunks_count = 1, .context = 40, .max_sequences = 3, .step_tokens = 64};
}

static const struct json *parse(struct arena *a, const char *text)
{
    const struct json *root = NULL;
    struct rose_error err;
    arena_init(a, 0);
    CHECK_OK(json_parse(a, "kernels", str_of(text), &root, &err), err);
    return root;
}

/* Every launch names a kernel of the list; returns how many launches the first step has beside its norms: which of those are part of a
 * product depends on how many SMs there are. */
static long long check_json(const struct json *root, bool measured)
{
    const struct json *kernels = json_get(root, "kernels"), *steps = json_get(root, "steps");
    long long first = 0;
    CHECK(kernels && kernels->count > 8 && steps && steps->count >= 3);
    for (uint32_t s = 0; steps && s < steps->count; s++) {
        const struct json *launches = json_get(&steps->items[s], "launches");
        long long count = 0;
        for (uint32_t i = 0; i < launches->count; i++) {
            const struct json *l = &launches->items[i];
            struct str name = json_str(json_get(l, "kernel"), "");
            bool found = false;
            for (uint32_t k = 0; k < kernels->count; k++) found |= str_eq(json_str(json_get(&kernels->items[k], "name"), ""), name);
            CHECK(found);
            CHECK(json_int(json_get(l, "grid"), 0) > 0 && json_int(json_get(l, "block"), 0) > 0);
            CHECK(json_num(json_get(l, "limit_us"), -1) >= 0);
            /* The plan's rows are more than this step's after a prompt's last ones: its time is of those that are there. */
            if (str_is(json_str(json_get(l, "op"), ""), "gather"))
                CHECK(fabs(json_num(json_get(l, "limit_us"), 0) - json_num(json_get(l, "bytes"), 0) / (0.875 * json_num(json_get(root, "bandwidth"), 1)) * 1e6) < 1e-6);
            CHECK((json_get(l, "measured_us") != NULL) == measured);
            count += json_int(json_get(l, "count"), 0);
            if (!s && !str_is(json_str(json_get(l, "op"), ""), "norm")) first += json_int(json_get(l, "count"), 0);
        }
        CHECK_INT(count, json_int(json_get(&steps->items[s], "count"), 0));
    }
    for (uint32_t k = 0; kernels && k < kernels->count; k++) {
        const struct json *entries = json_get(&kernels->items[k], "entries");
        CHECK(json_num(json_get(&kernels->items[k], "cubin_bytes"), 0) > 1000 && entries && entries->count == 1);
    }
    return first;
}

static int count_cubins(const char *dir)
{
    char path[900];
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) n += count_cubins(path);
        n += !strcmp(e->d_name, "kernel.cubin");
    }
    if (d) closedir(d);
    return n;
}

static char said[400];
static void on_message(void *user, enum rose_message_level level, const char *line)
{
    (void)user;
    if (level == ROSE_MESSAGE_WARNING) snprintf(said, sizeof said, "%s", line);
}

/* `auto` on a machine with a GPU and without NVRTC: the GPU where there are exported kernels, else the CPU, and a line says why. */
static void check_automatic(const char *cache_dir, bool cuda)
{
    struct rose_error err = {0};
    struct rose_device *device;
    struct rose_device_options d = {.driver = driver, .nvrtc = "/nonexistent/libnvrtc.so", .cache_dir = cache_dir, .threads = 1, .message = on_message};
    said[0] = '\0';
    CHECK_OK(rose_device_open(&d, &device, &err), err);
    CHECK(!device || (strstr(rose_device_name(device), "sm_90a") != NULL) == cuda);
    CHECK(cuda ? !said[0] : strstr(said, "/nonexistent/libnvrtc.so") != NULL);
    rose_device_close(device);
}

TEST(planned_measured_shown_and_exported)
{
    struct golden g;
    struct arena a;
    struct rose_error err = {0};
    char *text, dir[160];
    golden_open(&g, "qwen3_moe");
    golden_write_config(&g, NULL); /* nothing but a config.json */
    struct rose_kernels_options o = options(g.dir);
    snprintf(dir, sizeof dir, "%s/exported", g.dir);
    o.export_dir = dir;
    CHECK_OK(rose_kernels(NULL, &o, &text, &err), err);
    const struct json *root = parse(&a, text);
    CHECK(json_bool(json_get(root, "planned"), false) && str_is(json_str(json_get(root, "arch"), ""), "sm_90a"));
    /* tokens, embed, gather, output, and of each of three layers qkv, attention with its qk inside, o, the router and the mixture's two */
    long long planned = check_json(root, false);
    CHECK(planned >= 4 + 3 * 6);
    CHECK_INT(count_cubins(dir), json_int(json_get(root, "exported"), -1));
    CHECK(json_int(json_get(root, "exported"), 0) >= (long long)json_get(root, "kernels")->count);
    arena_free(&a);
    rose_free(text);

    /* Elsewhere there is no compiler, only what was exported. */
    o.export_dir = NULL, o.nvrtc = "/nonexistent/libnvrtc.so", o.cache_dir = g.dir;
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_NOT_FOUND);
    CHECK(strstr(err.message, "/nonexistent/libnvrtc.so") && strstr(err.message, "ROSE_KERNELS=DIR"));
    check_automatic(g.dir, false);
    setenv("ROSE_KERNELS", dir, 1);
    check_automatic(g.dir, true);
    CHECK_OK(rose_kernels(NULL, &o, &text, &err), err);
    if (text) {
        root = parse(&a, text);
        CHECK_INT(check_json(root, false), planned);
        for (uint32_t k = 0; k < json_get(root, "kernels")->count; k++) CHECK(str_is(json_str(json_get(&json_get(root, "kernels")->items[k], "origin"), ""), "bundle"));
        arena_free(&a);
        rose_free(text);
    }
    setenv("ROSE_KERNELS", "/nonexistent/kernels", 1);
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_NOT_FOUND);
    CHECK(strstr(err.message, "ROSE_KERNELS names /nonexistent/kernels"));
    unsetenv("ROSE_KERNELS");

    o = options(g.dir), o.show = ROSE_KERNELS_SOURCE, o.kernel = "norm_rows";
    CHECK_OK(rose_kernels(NULL, &o, &text, &err), err);
    CHECK(text && strstr(text, "KERNEL(norm_rows") && strstr(text, "N=64") && !strstr(text, "KERNEL(qk_rows"));
    rose_free(text);
    /* A source of one's own stands for the one in the binary; its mistakes are told with its line. */
    char sources[160], path[600];
    snprintf(sources, sizeof sources, "%s/src", g.dir);
    snprintf(path, sizeof path, "mkdir -p %s/kernels/cuda && { cat src/kernels/cuda/norm_rows.cu; echo 'DEVICE int wrong(void) { return nothing; }'; } > %s/kernels/cuda/norm_rows.cu", sources, sources);
    CHECK_INT(system(path), 0);
    setenv("ROSE_KERNEL_SOURCES", sources, 1);
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_INVALID);
    CHECK(strstr(err.message, "nothing") && strstr(err.message, sources) && strstr(err.file, "norm_rows.cu") && err.line > 60);
    unsetenv("ROSE_KERNEL_SOURCES");
    o.kernel = "no such kernel";
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_NOT_FOUND);
    CHECK(text == NULL && strstr(err.message, "no such kernel"));
    o.show = ROSE_KERNELS_JSON;
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_NOT_FOUND);
    /* Steps larger than the engine's are no others in their place. */
    static const int four = 4, many = 65;
    o = options(g.dir), o.batches = &four, o.batches_count = 1;
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_INVALID);
    CHECK(text == NULL && strstr(err.message, "4 sequences: this engine takes 3"));
    o = options(g.dir), o.chunks = &many;
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_INVALID);
    CHECK(text == NULL && strstr(err.message, "65 rows: this engine takes 64"));

    /* The same model on a device that runs. */
    struct rose_device *device;
    struct rose_device_options d = {.kind = "cuda", .driver = driver, .nvrtc = driver, .cache_dir = o.cache_dir};
    CHECK_OK(rose_device_open(&d, &device, &err), err);
    o = options(g.dir), o.measure = true;
    CHECK_OK(rose_kernels(device, &o, &text, &err), err);
    root = parse(&a, text);
    CHECK(!json_bool(json_get(root, "planned"), true));
    CHECK(check_json(root, true) == planned);
    arena_free(&a);
    rose_free(text);
    rose_device_close(device);
    golden_close(&g);
}

TEST(other_architectures)
{
    static const char *const arches[] = {"sm_80", "sm_120a"};
    struct golden g;
    struct arena a;
    struct rose_error err = {0};
    char *text;
    golden_open(&g, "gemma3");
    golden_write_config(&g, NULL);
    for (size_t i = 0; i < sizeof arches / sizeof *arches; i++) {
        struct rose_kernels_options o = options(g.dir);
        o.arch = arches[i], o.batches_count = 1;
        CHECK_OK(rose_kernels(NULL, &o, &text, &err), err);
        if (!text) continue;
        check_json(parse(&a, text), false);
        arena_free(&a);
        rose_free(text);
    }
    golden_close(&g);
}

/* Models that embed, classify and score: whole texts, no cache, nothing is drawn. */
TEST(pools)
{
    static const char *const models[] = {"embed_bert", "class_modernbert"}; /* of classifiers the config says how many labels there are */
    struct golden g;
    struct arena a;
    struct rose_error err = {0};
    char *text;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        golden_open(&g, models[i]);
        golden_write_config(&g, NULL);
        struct rose_kernels_options o = options(g.dir);
        CHECK_OK(rose_kernels(NULL, &o, &text, &err), err);
        if (text) {
            const struct json *root = parse(&a, text), *steps = json_get(root, "steps");
            check_json(root, false);
            for (uint32_t s = 0; s < steps->count; s++) CHECK(str_is(json_str(json_get(&steps->items[s], "kind"), ""), "texts"));
            CHECK(json_get(root, "kv") == NULL);
            arena_free(&a);
            rose_free(text);
        }
        if (i == 0) { /* on a device that runs: one short batch */
            static const int texts[] = {1};
            struct rose_device *device;
            struct rose_device_options d = {.kind = "cuda", .driver = driver, .nvrtc = driver, .cache_dir = o.cache_dir};
            CHECK_OK(rose_device_open(&d, &device, &err), err);
            o.measure = true, o.context = 7, o.batches = texts, o.batches_count = 1, o.chunks_count = 0;
            CHECK_OK(rose_kernels(device, &o, &text, &err), err);
            const struct json *steps = text ? json_get(parse(&a, text), "steps") : NULL;
            CHECK(steps && steps->count == 1 && json_num(json_get(&steps->items[0], "measured_us"), 0) > 0);
            if (text) arena_free(&a);
            rose_free(text);
            rose_device_close(device);
        }
        golden_close(&g);
    }
}

TEST(what_cannot_be)
{
    struct rose_error err = {0};
    char *text;
    struct rose_kernels_options o = options("/nonexistent/model");
    CHECK(rose_kernels(NULL, &o, &text, &err) != ROSE_OK && strstr(err.message, "/nonexistent/model"));
    o.arch = "sm_70";
    CHECK_INT(rose_kernels(NULL, &o, &text, &err), ROSE_INVALID);
    CHECK(strstr(err.message, "sm_70") && strstr(err.message, "sm_90a"));
    struct rose_device *cpu;
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cpu", .threads = 1}, &cpu, &err), err);
    CHECK_INT(rose_kernels(cpu, &o, &text, &err), ROSE_INVALID);
    rose_device_close(cpu);
}

TEST_MAIN(CASE(planned_measured_shown_and_exported), CASE(other_architectures), CASE(pools), CASE(what_cannot_be))
