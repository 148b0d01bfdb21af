/* Models that embed, classify and score on a CUDA device: bf16 (or f16) weights and activations against the float32 answers of transformers and
 * sentence-transformers, every case alone and all in one ragged batch.
 *
 * Embeddings (a row a text or a row a token) are compared by 1 - cosine, which is what they are for; the answer of a classifier or ranker by
 * its differences over its root mean square or 1. What bfloat16 does to these models, whose random weights make some of them sharp, is what
 * transformers itself is off by in it (pool_golden_bf16.h): an answer's worst row or value and its mean stay within one and a half of that, or
 * within a floor. Which lexical weights (BGE-M3's sparse answers) are above zero is a matter of
 * rounding: a weight that only one side has must be small, and the others are compared by cosine. */
#ifndef ROSE_TESTS_ENGINE_POOL_GOLDEN_CUDA_H
#define ROSE_TESTS_ENGINE_POOL_GOLDEN_CUDA_H

#include "pool_golden.h"
#include "pool_golden_bf16.h"

struct pool_cuda {
    struct device *device;
    bool f16;                             /* compute in f16, whose steps, and so the bounds, are an eighth of bf16's */
    double worst_bound[2], mean_bound[2]; /* of embeddings, of values */
    /* seen since pool_cuda_model began */
    double worst, mean;
    int answers, over;
};

static inline void pool_cuda_bounds(struct pool_cuda *t, const char *name)
{
    static const double least[2][2] = {{1e-3, 3e-4}, {0.03, 0.02}};
    for (size_t i = 0; i < sizeof pool_golden_bf16 / sizeof *pool_golden_bf16; i++) {
        if (strcmp(pool_golden_bf16[i].name, name)) continue;
        for (int k = 0; k < 2; k++) {
            t->worst_bound[k] = fmax(least[k][0], 1.5 * pool_golden_bf16[i].worst) / (t->f16 ? 8 : 1);
            t->mean_bound[k] = fmax(least[k][1], 1.5 * pool_golden_bf16[i].mean) / (t->f16 ? 8 : 1);
        }
        return;
    }
    printf("%s is not in pool_golden_bf16.h\n", name);
    CHECK(false);
}

#define POOL_CUDA_MODELS(X)                                                                                                                               \
    X(embed_bert) X(embed_bert_dense) X(embed_roberta) X(embed_xlm_roberta) X(embed_distilbert) X(embed_mpnet) X(embed_modernbert) X(embed_modernbert_bias) \
    X(embed_nomic) X(embed_nomic_older) X(embed_jina) X(embed_jina_code) X(embed_qwen3) X(embed_llama) X(embed_mistral_window) X(embed_gemma) X(class_bert) X(class_bert_score)             \
    X(class_roberta) X(class_xlm_roberta) X(class_distilbert) X(class_mpnet) X(class_modernbert) X(class_nomic) X(class_llama) X(class_qwen3)              \
    X(token_bert) X(token_roberta) X(token_modernbert) X(token_qwen2) X(score_qwen3) X(score_qwen2_untied)

static inline double pool_cuda_cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ab += (double)a[i] * (double)b[i], aa += (double)a[i] * (double)a[i], bb += (double)b[i] * (double)b[i];
    return aa > 0 && bb > 0 ? 1 - ab / sqrt(aa * bb) : aa == bb ? 0 : 1;
}

/* Weights of tokens over the vocabulary. */
static inline double pool_cuda_sparse(const struct rose_event *e, const float *want, const struct json *ids, int32_t vocabulary)
{
    float *a = calloc((size_t)vocabulary * 2, sizeof *a), *b = a + vocabulary;
    for (int i = 0; i < e->value_ids_count; i++) a[e->value_ids[i]] = e->values[i];
    for (uint32_t i = 0; i < ids->count; i++) b[json_int(&ids->items[i], 0)] = want[i];
    double c = pool_cuda_cosine(a, b, vocabulary);
    free(a);
    return c;
}

/* Rows of embeddings: 1 - cosine; values: difference over the root mean square of all, or 1. */
static inline void pool_cuda_errors(const float *got, const float *want, int64_t rows, int64_t cols, bool values, double *worst, double *mean)
{
    double square = 0, sum = 0;
    for (int64_t i = 0; values && i < rows * cols; i++) square += (double)want[i] * (double)want[i];
    double scale = fmax(1, sqrt(square / (double)(rows * cols)));
    for (int64_t r = 0; r < rows; r++) {
        if (!values) {
            double c = pool_cuda_cosine(got + r * cols, want + r * cols, cols);
            *worst = fmax(*worst, c), sum += c;
            continue;
        }
        for (int64_t i = 0; i < cols; i++) {
            double d = fabs((double)got[r * cols + i] - (double)want[r * cols + i]) / scale;
            *worst = fmax(*worst, isnan(d) ? INFINITY : d), sum += d * d;
        }
    }
    if (values && rows * cols < 8) return; /* few: the worst says it all */
    *mean = values ? sqrt(sum / (double)(rows * cols)) : sum / (double)rows;
}

static inline void pool_cuda_answer(struct pool_cuda *t, const struct golden *g, const struct rose_event *e, const struct json *k, const char *how)
{
    const float *want = g->logits + json_int(json_get(k, "at"), 0);
    int64_t rows = json_int(json_get(k, "rows"), -1), cols = json_int(json_get(k, "cols"), -1);
    const struct json *ids = json_get(k, "ids");
    double worst = 0, mean = 0;
    bool values = !str_is(json_str(json_get(k, "task"), ""), "embed");
    CHECK_INT(e->finish, ROSE_FINISH_STOP);
    if (e->finish != ROSE_FINISH_STOP) {
        printf("%s, %s: %s\n", g->name, how, e->message ? e->message : "no answer");
        return;
    }
    if (json_is(ids, JSON_ARRAY)) worst = pool_cuda_sparse(e, want, ids, g->vocabulary);
    else {
        CHECK_INT(e->rows, rows);
        CHECK_INT(e->cols, cols);
        if (e->rows != rows || e->cols != cols) return;
        pool_cuda_errors(e->values, want, rows, cols, values, &worst, &mean);
    }
    t->answers++;
    t->worst = fmax(t->worst, worst);
    t->mean = fmax(t->mean, mean);
    if (worst <= t->worst_bound[values] && mean <= t->mean_bound[values]) return;
    t->over++;
    printf("%s, %s, %d rows: off by %.2g at worst (%.2g), %.2g on average (%.2g)\n", g->name, how, e->rows, worst, t->worst_bound[values], mean, t->mean_bound[values]);
}

static inline void pool_cuda_file(struct pool_cuda *t, const struct golden *g, const char *path, uint32_t cases)
{
    struct weights *w;
    struct model *model = NULL;
    struct pool *pool = NULL;
    struct rose_error err = {0};
    struct rose_event e;
    struct pool_options o = {.step_tokens = 300, .max_sequences = 64};
    struct head_wish wish = {.yes = -1, .no = -1, .weights = t->f16 ? DTYPE_F16 : DTYPE_NONE};
    uint64_t id;
    enum rose_status s = weights_open(path, &w, &err);
    if (s == ROSE_OK) s = model_open_as(t->device, w, &wish, NULL, NULL, &model, &err);
    if (s == ROSE_OK) s = pool_open(model, &o, &pool, &err);
    CHECK_OK(s, err);
    if (pool && path == g->file) pool_golden_gguf(g, model);
    if (cases > g->cases->count) cases = g->cases->count;
    for (uint32_t i = 0; pool && i < cases; i++) {
        const struct json *k = &g->cases->items[i];
        if (pool_golden_skips(g, model, k)) continue;
        CHECK_OK(pool_golden_submit(pool, k, k, i, &id, &err), err);
        CHECK_INT(events_read(&pool->events, &e, 1, -1), 1);
        pool_cuda_answer(t, g, &e, k, "alone");
    }
    int asked = 0;
    for (uint32_t i = 0; pool && i < g->cases->count; i++) {
        if (pool_golden_skips(g, model, &g->cases->items[i])) continue;
        CHECK_OK(pool_golden_submit(pool, &g->cases->items[i], &g->cases->items[i], i, &id, &err), err);
        asked++;
    }
    for (int i = 0; i < asked; i++) {
        CHECK_INT(events_read(&pool->events, &e, 1, -1), 1);
        pool_cuda_answer(t, g, &e, &g->cases->items[e.user], "in a batch");
    }
    pool_close(pool);
    model_close(model);
}

/* cases: how many of them alone, before all come at once. */
static inline void pool_cuda_model(struct pool_cuda *t, const char *name, uint32_t cases)
{
    struct golden g;
    t->worst = t->mean = 0;
    t->answers = t->over = 0;
    pool_cuda_bounds(t, name);
    golden_open(&g, name);
    pool_golden_write(&g);
    pool_cuda_file(t, &g, g.dir, cases);
    if (g.gguf) {
        CHECK(golden_write_gguf(&g));
        pool_cuda_file(t, &g, g.file, 0);
    }
    printf("  %-22s %3d answers, off by %.2g at worst, %.2g on average, %d above the bounds\n", name, t->answers, t->worst, t->mean, t->over);
    CHECK(t->answers > 0);
    CHECK_INT(t->over, 0);
    golden_close(&g);
}

#endif
