/* The golden models on a CUDA device: bf16 or f16 weights, activations and cache against transformers' float32 logits.
 *
 * A row's error is the largest difference of a logit over the standard deviation of the row's reference logits. It must stay within
 * `bound`, and where the reference's best token leads by more than twice that, the device must choose it. The text that is fed is the
 * reference's, so errors do not pile up. Mixtures of experts are not continuous: where two experts' scores nearly meet, bf16 may
 * choose the other one, and the row changes. There one row in twelve may pass the bound.
 *
 * Products of FP8 weights quantise the activations of many rows to e4m3, and so does their reference. Rounding to steps of 2^-4 is not
 * continuous either: where bf16's error d moves a value over a border between two steps, with probability d / 2^-4, it changes by a whole
 * step. The variance grows from d^2 to d 2^-4, with d = 2^-8 to 2^-9 the error to the 4- to 5.7-fold: these rows have four times the bound. */
#ifndef ROSE_TESTS_MODEL_GOLDEN_CUDA_H
#define ROSE_TESTS_MODEL_GOLDEN_CUDA_H

#include "golden_run.h"

struct cuda_golden {
    struct device *device;
    double bound;            /* of a row's error */
    enum golden_types types; /* of the checkpoint's tensors */
    enum dtype weights;      /* what it is opened as; DTYPE_NONE: as the file says */
    bool many, quantised;    /* the program at hand is for many rows; the model's products then quantise their activations */
    double worst, sum;       /* seen since cuda_golden_model began */
    int rows, over, decided, wrong; /* rows compared; above the bound; with a clear best token; of these, chosen otherwise */
};

static inline void cuda_golden_row(struct cuda_golden *t, const float *got, const float *want, int32_t n)
{
    double mean = 0, var = 0, first = -INFINITY, second = -INFINITY;
    int32_t best = 0, chosen = 0;
    for (int32_t i = 0; i < n; i++) {
        mean += (double)want[i] / n;
        if ((double)want[i] > first) second = first, first = (double)want[i], best = i;
        else if ((double)want[i] > second) second = (double)want[i];
        if (got[i] > got[chosen]) chosen = i;
    }
    for (int32_t i = 0; i < n; i++) var += ((double)want[i] - mean) * ((double)want[i] - mean) / n;
    double error = golden_distance(got, want, n) / sqrt(var);
    t->worst = fmax(t->worst, error);
    t->sum += error;
    t->rows++;
    double bound = t->bound * (t->quantised ? 4 : 1);
    t->over += !(error <= bound);
    if (first - second <= 2 * bound * sqrt(var)) return;
    t->decided++;
    t->wrong += chosen != best;
}

struct cuda_golden_case {
    struct cuda_golden *t;
    const struct golden *g;
    const struct json *c;
};

static inline void cuda_golden_rows(void *arg, const struct run_text *text, const float *logits, int32_t first, int32_t rows)
{
    const struct cuda_golden_case *at = arg;
    struct cuda_golden *t = at->t;
    const struct golden *g = at->g;
    const struct json *c = at->c, *positions = json_get(c, "positions");
    /* Many rows of FP8 products quantise activations, few do not: a reference for each. */
    t->quantised = t->many && json_get(c, "row_a8");
    int64_t row = json_int(json_get(c, t->quantised ? "row_a8" : "row"), 0);
    for (uint32_t i = 0; i < positions->count; i++) {
        int64_t p = json_int(&positions->items[i], -1) - first;
        if (p >= 0 && p < rows) cuda_golden_row(t, logits + p * g->vocabulary, g->logits + (row + i) * g->vocabulary, g->vocabulary);
    }
    if (first >= text->prompt_n) cuda_golden_row(t, logits, g->logits + (row + positions->count + first - text->prompt_n) * g->vocabulary, g->vocabulary);
}

/* Whole prompts, chunks, and token by token through the decode program; `ways` bits choose. */
enum { CUDA_GOLDEN_WHOLE = 1, CUDA_GOLDEN_CHUNKS = 2, CUDA_GOLDEN_BESIDE = 4, CUDA_GOLDEN_DECODE = 8, CUDA_GOLDEN_ALL = 15 };

static inline void cuda_golden_file(struct cuda_golden *t, const struct golden *g, const char *path, int ways, int cases)
{
    struct rose_error err = {0};
    static const struct { int way; int32_t chunk; bool beside, decode; } list[] = {
        {CUDA_GOLDEN_WHOLE, RUN_ROWS, false, false}, {CUDA_GOLDEN_CHUNKS, 7, false, false}, {CUDA_GOLDEN_BESIDE, 33, true, false}, {CUDA_GOLDEN_DECODE, 1, true, true}};
    for (int decode = 0; decode < 2; decode++) {
        struct run r;
        if (!(ways & (decode ? CUDA_GOLDEN_DECODE : 7))) continue;
        enum rose_status s = run_open_on(&r, t->device, path, t->weights, decode, &err);
        CHECK_OK(s, err);
        if (s != ROSE_OK) return;
        t->many = !decode;
        for (uint32_t i = 0; i < g->cases->count && (int)i < cases; i++)
            for (size_t k = 0; k < sizeof list / sizeof *list; k++)
                if ((ways & list[k].way) && list[k].decode == decode)
                    run_case_text(&r, &g->cases->items[i], list[k].chunk, list[k].beside, cuda_golden_rows, &(struct cuda_golden_case){t, g, &g->cases->items[i]});
        run_close(&r);
    }
}

static inline void cuda_golden_begin(struct cuda_golden *t)
{
    t->worst = t->sum = 0;
    t->rows = t->over = t->decided = t->wrong = 0;
}

/* What has been seen since then must be within the bounds. */
static inline void cuda_golden_end(const struct cuda_golden *t, const char *name)
{
    printf("  %-16s %4d rows, error %.4f mean %.4f worst, %d above %.2f; %d of %d clear tokens differ\n", name, t->rows, t->rows ? t->sum / t->rows : 0, t->worst, t->over,
           t->bound, t->wrong, t->decided);
    bool moe = !!strstr(name, "moe") || !strcmp(name, "mixtral");
    CHECK(t->rows > 0);
    CHECK(t->over <= (moe ? t->rows / 12 : 0));
    CHECK_INT(t->wrong, 0);
}

static inline void cuda_golden_model(struct cuda_golden *t, const char *name, int ways, int cases)
{
    struct golden g;
    cuda_golden_begin(t);
    golden_open(&g, name);
    g.types = t->types;
    bool only_gguf = !g.tensors->count; /* block formats */
    if (!only_gguf) {
        golden_write_hf(&g);
        cuda_golden_file(t, &g, g.dir, ways, cases);
    }
    if (g.gguf && (only_gguf || ways == CUDA_GOLDEN_ALL)) {
        CHECK(golden_write_gguf(&g));
        cuda_golden_file(t, &g, g.file, only_gguf ? ways : CUDA_GOLDEN_WHOLE, cases);
    }
    cuda_golden_end(t, name);
    golden_close(&g);
}

#endif
