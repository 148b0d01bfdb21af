/* Models of real shapes with random weights: what a GPU says beside what the CPU says in float32, from the same weights.
 *
 * The GPU answers greedily, alone and in batches, with the log-probability of each of its tokens. The CPU then reads prompt and answer
 * as one prompt and says what it thinks of each token: its log-probability must be near, and no token of the CPU's may have been
 * clearly better. Mixtures of experts flip where two scores meet: one token in twelve may be off there.
 *
 *     gpu_large [part of a name]      from the repository's root; last line "N passed, N failed"
 *     gpu_large NAME LAYERS           another config of bench/models */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/option.h"
#include "engine/engine.h"
#include "jit/jit.h"
#include "weights/weights.h"

enum { MOST = 48, GEN = 16, LONGEST = 700 };
static const double bound = 0.12;
static struct rose_error err;

struct answer {
    int32_t tokens[LONGEST + GEN];
    int prompt, count;
    float logprobs[GEN], cpu[GEN], best[GEN];
};

struct side {
    struct device *device;
    struct jit *jit;
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
};

static void close_side(struct side *s)
{
    engine_close(s->engine);
    model_close(s->model);
    tokenizer_free(s->tokenizer);
    device_close(s->device);
    jit_close(s->jit);
    *s = (struct side){0};
}

static enum rose_status open_side(struct side *s, enum device_kind kind, const char *dir, int sequences)
{
    struct weights *w;
    struct str one = STR("x");
    struct tokenizer_vocab v = {.model = STR("gpt2"), .tokens = &one, .count = 1, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .sep = -1, .pad = -1, .cls = -1, .mask = -1,
                                .add_sep = -1, .add_space_prefix = -1, .remove_extra_whitespaces = -1};
    struct engine_options o = {.context = LONGEST + GEN + 1, .max_sequences = sequences, .depth = kind == DEVICE_CUDA ? 2 : 1, .no_prefix_cache = true,
                               .step_tokens = kind == DEVICE_CUDA ? 2048 : 512, .kv = kind == DEVICE_CUDA ? DTYPE_BF16 : DTYPE_F32};
    ROSE_TRY(device_open(&(struct device_options){.kind = kind, .driver = option_env("ROSE_CUDA_DRIVER")}, &s->device, &err));
    if (kind == DEVICE_CUDA) {
        ROSE_TRY(jit_open(&(struct jit_options){.cache_dir = "/tmp/xdg/rose", .nvrtc_path = option_env("ROSE_NVRTC")}, &s->jit, &err));
        s->device->jit = s->jit;
    }
    ROSE_TRY(weights_open_config(dir, &w, &err));
    ROSE_TRY(model_open_dummy(s->device, w, 1, DTYPE_NONE, &s->model, &err));
    ROSE_TRY(tokenizer_from_vocab(&v, &s->tokenizer, &err));
    return engine_open(s->model, s->tokenizer, &o, &s->engine, &err);
}

/* The GPU's answers to `n` prompts at once. */
static enum rose_status ask(struct side *s, struct answer *a, int n)
{
    struct rose_event events[64];
    uint64_t id;
    for (int i = 0; i < n; i++) {
        struct rose_request r = {.max_tokens = GEN, .logprobs = 0, .prompt_logprobs = -1, .choices = 1, .user = (uint64_t)i,
                                 .sampling = {.top_p = 1, .repetition_penalty = 1, .ignore_eos = true}};
        ROSE_TRY(engine_submit(s->engine, &r, a[i].tokens, (size_t)a[i].prompt, &id, &err));
    }
    for (int finals = 0; finals < n;) {
        size_t got = events_read(&s->engine->events, events, 64, 30000);
        if (!got) return status_set(&err, ROSE_DEVICE, "no event for 30 seconds");
        for (size_t i = 0; i < got; i++) {
            struct answer *to = &a[events[i].user];
            if (events[i].kind == ROSE_EVENT_TOKEN && events[i].token >= 0 && to->count < GEN) {
                to->logprobs[to->count] = events[i].logprob;
                to->tokens[to->prompt + to->count++] = events[i].token;
            }
            if (events[i].kind != ROSE_EVENT_FINAL) continue;
            finals++;
            if (events[i].finish == ROSE_FINISH_ERROR) return status_set(&err, events[i].status, "%s", events[i].message);
        }
    }
    return ROSE_OK;
}

/* What the CPU thinks of an answer: log-probability of each token, and of the one it likes best. */
static enum rose_status judge(struct side *s, struct answer *a)
{
    struct rose_event events[8];
    uint64_t id;
    struct rose_request r = {.max_tokens = 0, .logprobs = -1, .prompt_logprobs = 1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1}};
    ROSE_TRY(engine_submit(s->engine, &r, a->tokens, (size_t)(a->prompt + a->count), &id, &err));
    for (bool done = false; !done;) {
        size_t n = events_read(&s->engine->events, events, 8, 60000);
        if (!n) return status_set(&err, ROSE_DEVICE, "no event for 60 seconds");
        for (size_t i = 0; i < n; i++) {
            done |= events[i].kind == ROSE_EVENT_FINAL;
            if (events[i].kind != ROSE_EVENT_PROMPT) continue;
            for (int k = 0; k < a->count; k++) {
                a->cpu[k] = events[i].prompt_logprobs[a->prompt + k];
                a->best[k] = events[i].top[a->prompt + k].logprob;
            }
        }
    }
    return ROSE_OK;
}

/* A copy of the config with fewer layers. */
static bool shorten(const char *name, int layers, char dir[64])
{
    char from[256], to[128], text[8192];
    snprintf(from, sizeof from, "bench/models/%s/config.json", name);
    snprintf(dir, 64, "/tmp/rose-large-XXXXXX");
    FILE *f = fopen(from, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    char *at = strstr(text, "\"num_hidden_layers\":");
    if (!at || !mkdtemp(dir)) return false;
    at += strlen("\"num_hidden_layers\":");
    char *rest = at + strcspn(at, ",");
    snprintf(to, sizeof to, "%s/config.json", dir);
    if (!(f = fopen(to, "w"))) return false;
    fprintf(f, "%.*s %d%s", (int)(at - text), text, layers, rest);
    return fclose(f) == 0;
}

static int compare(const char *what, const struct answer *a, int n, bool moe)
{
    double worst = 0, sum = 0, behind = 0;
    int tokens = 0, over = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < a[i].count; k++) {
            double off = fabs((double)a[i].logprobs[k] - (double)a[i].cpu[k]), lost = (double)a[i].best[k] - (double)a[i].cpu[k];
            if (!(off <= worst)) worst = off;
            behind = fmax(behind, lost);
            sum += off;
            tokens++;
            over += !(off <= bound) || !(lost <= 2 * bound);
        }
    printf("  %-44s %4d tokens: log-probability off by %.4f mean, %.4f worst; the CPU's best is ahead by %.4f at most; %d above %.2f\n", what, tokens, tokens ? sum / tokens : 0,
           worst, behind, over, bound);
    return tokens != n * GEN || over > (moe ? tokens / 12 : 0);
}

static int run(const char *name, int layers, bool moe)
{
    static struct answer answers[3][MOST];
    static const int batches[3] = {1, 8, 40};
    struct side gpu = {0}, cpu = {0};
    char dir[64], what[128];
    int failed = 0;
    uint64_t state = 11;
    if (!shorten(name, layers, dir)) return printf("%s: no config\n", name), 1;
    memset(answers, 0, sizeof answers);
    enum rose_status s = open_side(&gpu, DEVICE_CUDA, dir, MOST);
    for (int b = 0; b < 3 && s == ROSE_OK; b++) {
        for (int i = 0; i < batches[b]; i++) {
            struct answer *a = &answers[b][i];
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            a->prompt = b == 2 ? 8 + (int)((state >> 33) % 60) : i ? 20 + (int)((state >> 33) % 200) : LONGEST - 100;
            for (int k = 0; k < a->prompt; k++)
                state = state * 6364136223846793005ull + 1442695040888963407ull, a->tokens[k] = (int32_t)((state >> 33) % (uint64_t)gpu.model->config.vocabulary);
        }
        s = ask(&gpu, answers[b], batches[b]);
    }
    close_side(&gpu);
    if (s == ROSE_OK) s = open_side(&cpu, DEVICE_CPU, dir, 1);
    for (int b = 0; b < 3 && s == ROSE_OK; b++) {
        int judged = batches[b] > 12 ? 12 : batches[b]; /* the CPU reads a dozen of a batch */
        for (int i = 0; i < judged && s == ROSE_OK; i++) s = judge(&cpu, &answers[b][i]);
        snprintf(what, sizeof what, "%s, %d layers, batch %d", name, layers, batches[b]);
        if (s == ROSE_OK) failed |= compare(what, answers[b], judged, moe);
    }
    close_side(&cpu);
    if (s != ROSE_OK) failed = 1, printf("%s: %s\n", name, err.message);
    snprintf(what, sizeof what, "%s/config.json", dir);
    unlink(what);
    rmdir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int layers;
        bool moe;
    } models[] = {{"Qwen3-0.6B", 28, false}, {"Llama-3.1-8B", 3, false}, {"Qwen3-30B-A3B", 2, true}};
    int passed = 0, failed = 0;
    if (argc > 2) return run(argv[1], atoi(argv[2]), false);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (argc > 1 && !strstr(models[i].name, argv[1])) continue;
        if (run(models[i].name, models[i].layers, models[i].moe)) failed++, printf("FAIL %s\n", models[i].name);
        else passed++;
        fflush(stdout);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
