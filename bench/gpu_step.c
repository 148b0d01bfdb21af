/* Where a decode step's time goes: the engine's own graph, and what it takes without each kind of launch, without dependent launch, and
 * each kind alone (all layers of it, so weights come from memory).
 *
 *     gpu_step MODEL_DIR BATCH [PROMPT]      random weights; the state is that of the last step of BATCH sequences behind PROMPT + 32 tokens */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "engine/engine.h"
#include "jit/jit.h"
#include "weights/weights.h"

enum { GEN = 32, KINDS = 24, MOST = 1024, WARM = 3, REPLAYS = 20 };

static struct rose_error err;
static struct device *device;
static struct program *program;
static struct extents extents;

static int fail(const char *what) { return printf("%s: %s\n", what, err.message), 1; }

/* Kind alone (only), all but a kind (without), or all; dependent launches or not. */
static double time_of(const char *only, const char *without, bool dependent, int *count)
{
    static struct program_launch launches[MOST];
    static uint32_t grids[MOST][3];
    double us = 0;
    int n = 0;
    for (int i = 0; i < program->count && n < MOST; i++) {
        const struct program_launch *l = &program->entries[i].launch;
        if (l->host || (only && strcmp(l->name, only)) || (without && !strcmp(l->name, without))) continue;
        uint32_t rows = (uint32_t)extents.n[l->rows_extent];
        if (l->rows_param) memcpy((char *)(uintptr_t)l->params + l->rows_param - 1, &rows, sizeof rows);
        launches[n] = *l;
        launches[n].dependent = l->dependent && dependent;
        cuda_grid(l, &extents, grids[n++]);
    }
    *count = n;
    if (!n) return 0;
    if (cuda_bench_graph_us(device, launches, (const uint32_t(*)[3])grids, n, WARM, REPLAYS, &us, &err)) printf("  %s\n", err.message);
    return us * n;
}

static void report(void)
{
    const char *kinds[KINDS];
    int n = 0, count;
    double all = time_of(NULL, NULL, true, &count), plain = time_of(NULL, NULL, false, &count);
    printf("all %d launches: %.1f us; without dependent launch %.1f us\n", count, all, plain);
    for (int i = 0; i < program->count; i++) {
        const char *name = program->entries[i].launch.name;
        int k = 0;
        while (k < n && strcmp(kinds[k], name)) k++;
        if (k == n && n < KINDS) kinds[n++] = name;
    }
    printf("%-14s %6s %12s %12s %12s\n", "kind", "count", "alone us", "each us", "without: saved");
    for (int k = 0; k < n; k++) {
        /* What a mixture's kernels find in memory must come from the ones before them. */
        bool free_standing = strncmp(kinds[k], "moe", 3) && strcmp(kinds[k], "router");
        int c, rest;
        double alone = free_standing ? time_of(kinds[k], NULL, true, &c) : 0;
        double without = free_standing ? time_of(NULL, kinds[k], true, &rest) : 0;
        if (free_standing) printf("%-14s %6d %12.1f %12.2f %12.1f\n", kinds[k], c, alone, alone / (c ? c : 1), all - without);
    }
}

static int run(struct engine *e, int batch, int prompt, int vocabulary)
{
    struct rose_event events[64];
    int32_t *ids = malloc((size_t)prompt * sizeof *ids);
    uint64_t id, state = 7;
    struct rose_request r = {.max_tokens = GEN, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1, .ignore_eos = true}};
    for (int b = 0; b < batch && ids; b++) {
        for (int i = 0; i < prompt; i++) state = state * 6364136223846793005ull + 1442695040888963407ull, ids[i] = (int32_t)((state >> 33) % (uint64_t)vocabulary);
        if (engine_submit(e, &r, ids, (size_t)prompt, &id, &err)) return fail("submit");
    }
    free(ids);
    for (int finals = 0; finals < batch;) {
        size_t n = events_read(&e->events, events, 64, 20000);
        if (!n) return printf("no event for 20 seconds\n"), 1;
        for (size_t i = 0; i < n; i++) finals += events[i].kind == ROSE_EVENT_FINAL;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int batch = argc > 2 ? atoi(argv[2]) : 1, prompt = argc > 3 ? atoi(argv[3]) : 128;
    struct weights *w;
    struct model *model;
    struct jit *jit;
    struct engine *e;
    struct tokenizer *tokenizer;
    if (argc < 2) return printf("gpu_step MODEL_DIR BATCH [PROMPT]\n"), 2;
    if (device_open(&(struct device_options){.kind = DEVICE_CUDA}, &device, &err) || jit_open(&(struct jit_options){.cache_dir = "/tmp/xdg/rose"}, &jit, &err)) return fail("device");
    device->jit = jit;
    if (weights_open_config(argv[1], &w, &err) || model_open_dummy(device, w, 1, DTYPE_NONE, &model, &err)) return fail("model");
    /* Texts are not looked at: a tokenizer of one token will do. */
    struct str one = STR("x");
    struct tokenizer_vocab v = {.model = STR("gpt2"), .tokens = &one, .count = 1, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .sep = -1, .pad = -1, .cls = -1, .mask = -1,
                                .add_sep = -1, .add_space_prefix = -1, .remove_extra_whitespaces = -1};
    if (tokenizer_from_vocab(&v, &tokenizer, &err)) return fail("tokenizer");
    struct engine_options o = {.context = prompt + GEN + 1, .max_sequences = batch, .depth = 2, .kv = DTYPE_BF16};
    if (engine_open(model, tokenizer, &o, &e, &err)) return fail("engine");
    if (run(e, batch, prompt, model->config.vocabulary)) return 1;
    const struct programs_bucket *b = programs_pick(&e->programs, batch, true);
    program = b->program;
    extents = (struct extents){.n = {1, b->rows, b->rows, b->rows}};
    printf("%s, %d sequences of %d tokens\n", argv[1], batch, prompt + GEN);
    report();
    return 0;
}
