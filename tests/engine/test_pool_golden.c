/* Models that embed, classify and score against transformers and sentence-transformers (tests/golden/make_embed.py): every case alone and all in
 * one batch, every flip, GGUF where there is one; with determinism, in default mode with F32 weights, and in default mode with BF16 weights, whose
 * products may round their activations, each checked by itself (exact_products.h). Values are those of float32 models of width 48; errors are measured against the length of the answer. */
#define _GNU_SOURCE /* mkdtemp */
#include "../model/exact_products.h"
#include "pool_golden.h"

#include "ops/isa.h"

static double worst_seen;

/* Largest difference, over the answer's root mean square or 1. */
static double off_by(const struct rose_event *e, const float *want, const struct json *k)
{
    int64_t rows = json_int(json_get(k, "rows"), -1), cols = json_int(json_get(k, "cols"), -1);
    if (e->finish != ROSE_FINISH_STOP || e->rows != rows || e->cols != cols) {
        printf("finish %s, %d x %d instead of %d x %d: %s\n", e->finish == ROSE_FINISH_ERROR ? "error" : "other", e->rows, e->cols, (int)rows, (int)cols, e->message ? e->message : "");
        return INFINITY;
    }
    double sum = 0;
    for (int64_t i = 0; i < rows * cols; i++) sum += (double)want[i] * (double)want[i];
    return golden_distance(e->values, want, (int32_t)(rows * cols)) / fmax(1, sqrt(sum / (double)(rows * cols)));
}

static double cosine_error(const float *a, const float *b, int n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) ab += (double)a[i] * (double)b[i], aa += (double)a[i] * (double)a[i], bb += (double)b[i] * (double)b[i];
    return 1 - ab / sqrt(aa * bb);
}

static void check_ids(const struct rose_event *e, const struct json *k)
{
    const struct json *ids = json_get(k, "ids"), *tokens = json_get(k, "tokens");
    if (json_is(ids, JSON_ARRAY)) {
        CHECK_INT(e->value_ids_count, ids->count);
        for (uint32_t i = 0; i < ids->count && (int)i < e->value_ids_count; i++) CHECK_INT(e->value_ids[i], json_int(&ids->items[i], -1));
    } else if (e->rows > 1) {
        CHECK_INT(e->value_ids_count, tokens->count);
        for (uint32_t i = 0; i < tokens->count && (int)i < e->value_ids_count; i++) CHECK_INT(e->value_ids[i], json_int(&tokens->items[i], -1));
    }
}

static void check_event(const struct golden *g, const struct rose_event *e, const struct json *k, const char *how)
{
    const float *want = g->logits + json_int(json_get(k, "at"), 0);
    double off = off_by(e, want, k), limit = str_is(json_str(json_get(k, "task"), ""), "embed") && e->rows == 1 ? 2e-5 : 1e-4; /* the reference rounds too: a row of ModernBERT to 3e-5 */
    worst_seen = fmax(worst_seen, off);
    if (!(off <= limit)) {
        printf("%s, %s: off by %g\n", g->name, how, off);
        CHECK(off <= limit);
    } else if (e->rows == 1 && e->cols > 1 && str_is(json_str(json_get(k, "task"), ""), "embed")) {
        double c = cosine_error(e->values, want, e->cols);
        CHECK_NEAR(c, 0, 1e-5);
    }
    check_ids(e, k);
}

enum mode {
    DETERMINISTIC,
    DEFAULT,
    DEFAULT_EXACT, /* default mode, each product checked by itself and then made exact */
};

/* Cases one by one, then all at once: the ragged batch. */
static void check_path(const struct golden *g, const char *path, int threads, enum mode mode)
{
    struct pool_run r;
    struct rose_error err = {0};
    struct rose_event e;
    struct pool_options o = {.step_tokens = 300, .deterministic = mode == DETERMINISTIC};
    uint64_t id;
    CHECK_OK(pool_run_open(&r, path, threads, &o, &err), err);
    if (r.pool && path == g->file) pool_golden_gguf(g, r.model);
    exact_products_begin();
    if (r.pool && mode == DEFAULT_EXACT) exact_products(r.pool->memory.bucket[0].program);
    for (uint32_t i = 0; r.pool && i < g->cases->count; i++) {
        const struct json *k = &g->cases->items[i];
        if (pool_golden_skips(g, r.model, k)) continue;
        CHECK_OK(pool_golden_submit(r.pool, k, k, i, &id, &err), err);
        CHECK_INT(events_read(&r.pool->events, &e, 1, -1), 1);
        CHECK_INT(e.id, id);
        check_event(g, &e, k, "alone");
    }
    int asked = 0;
    for (uint32_t i = 0; r.pool && i < g->cases->count; i++) {
        if (pool_golden_skips(g, r.model, &g->cases->items[i])) continue;
        CHECK_OK(pool_golden_submit(r.pool, &g->cases->items[i], &g->cases->items[i], i, &id, &err), err);
        asked++;
    }
    for (int i = 0; i < asked; i++) {
        CHECK_INT(events_read(&r.pool->events, &e, 1, -1), 1);
        check_event(g, &e, &g->cases->items[e.user], "in a batch");
    }
    if (mode == DEFAULT_EXACT) exact_products_check(g->name);
    pool_run_close(&r);
}

static void check_directory(struct golden *g, enum golden_types types, int threads, enum mode mode)
{
    g->types = types;
    pool_golden_write(g);
    check_path(g, g->dir, threads, mode);
}

static void check_flips(const struct golden *g)
{
    const struct json *last = &g->cases->items[g->cases->count - 1];
    for (uint32_t i = 0; i < g->flips->count + g->same->count; i++) {
        bool flip = i < g->flips->count;
        const struct json *entry = flip ? &g->flips->items[i] : NULL, *patch = flip ? json_get(entry, "patch") : &g->same->items[i - g->flips->count], *k = entry;
        /* the answer asked for is the first of the last sequence's */
        for (uint32_t c = 0; !flip && c < g->cases->count; c++)
            if (!k && json_get(&g->cases->items[c], "tokens")->count == json_get(last, "tokens")->count) k = &g->cases->items[c];
        struct pool_run r;
        struct rose_error err = {0};
        struct rose_event e;
        uint64_t id;
        golden_write_config(g, patch);
        CHECK_OK(pool_run_open(&r, g->dir, 1, &(struct pool_options){0}, &err), err);
        if (r.pool) {
            CHECK_OK(pool_golden_submit(r.pool, k, last, 0, &id, &err), err);
            CHECK_INT(events_read(&r.pool->events, &e, 1, -1), 1);
            struct strbuf b = {0};
            json_add_value(&b, patch);
            check_event(g, &e, k, b.p);
            strbuf_free(&b);
        }
        pool_run_close(&r);
    }
    golden_write_config(g, NULL);
}

static void check_model(const char *name)
{
    struct golden g;
    golden_open(&g, name);
    worst_seen = 0;
    check_directory(&g, GOLDEN_AS_LISTED, 1, DETERMINISTIC);
    check_directory(&g, GOLDEN_BF16, 2, DEFAULT_EXACT);
    check_directory(&g, GOLDEN_F32, 2, DEFAULT);
    check_flips(&g);
    if (g.gguf) {
        CHECK(golden_write_gguf(&g));
        check_path(&g, g.file, 1, DETERMINISTIC);
        check_path(&g, g.file, 1, DEFAULT_EXACT);
    }
    if (test_verbose_) printf("%s: within %.2g\n", name, worst_seen);
    golden_close(&g);
}

TEST(instruction_sets)
{
    static const char *const sets[] = {"portable", "avx2", "avx512", "amx"}, *const names[] = {"embed_bert", "embed_mpnet", "embed_modernbert", "class_qwen3"};
    struct rose_error err;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct golden g;
        golden_open(&g, names[k]);
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
            if (op_isa_select(sets[i], &err) == ROSE_OK) {
                check_directory(&g, GOLDEN_AS_LISTED, 2, DEFAULT_EXACT);
                check_directory(&g, GOLDEN_F32, 2, DEFAULT);
            }
        golden_close(&g);
    }
    CHECK_OK(op_isa_select("auto", &err), err);
}

#define MODELS(X)                                                                                                                                        \
    X(embed_bert) X(embed_bert_dense) X(embed_roberta) X(embed_xlm_roberta) X(embed_distilbert) X(embed_mpnet) X(embed_modernbert) X(embed_modernbert_bias) \
    X(embed_nomic) X(embed_nomic_older) X(embed_jina) X(embed_jina_code) X(embed_qwen3) X(embed_llama) X(embed_mistral_window) X(embed_gemma) X(class_bert) X(class_bert_score) X(class_roberta) \
    X(class_xlm_roberta) X(class_distilbert) X(class_mpnet) X(class_modernbert) X(class_nomic) X(class_llama) X(class_qwen3) X(token_bert) X(token_roberta) \
    X(token_modernbert) X(token_qwen2) X(score_qwen3) X(score_qwen2_untied)
#define DEFINE(name) TEST(name) { check_model(#name); }
MODELS(DEFINE)
#define ENTRY(name) CASE(name),
TEST_MAIN(MODELS(ENTRY) CASE(instruction_sets))
