/* The golden models of make_embed.py as files, and answers of a pool engine over them. */
#ifndef ROSE_TESTS_ENGINE_POOL_GOLDEN_H
#define ROSE_TESTS_ENGINE_POOL_GOLDEN_H

#include "../model/golden.h"
#include "engine/pool.h"
#include "weights/weights.h"

static inline void pool_golden_file(const struct golden *g, const char *name, const struct json *value)
{
    struct strbuf b = {0};
    char path[400], *slash;
    snprintf(path, sizeof path, "%s/%s", g->dir, name);
    if ((slash = strrchr(path, '/')) && slash > path + strlen(g->dir)) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    json_add_value(&b, value);
    golden_write(path, &b);
    strbuf_free(&b);
}

/* The directory: config.json, the model, sentence-transformers' files, dense modules, the lexical head. */
static inline void pool_golden_write(const struct golden *g)
{
    char path[400];
    const struct json *files = json_get(g->root, "files"), *dense = json_get(g->root, "dense");
    golden_write_config(g, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", g->dir);
    golden_write_shard(g, 0, path);
    for (uint32_t i = 0; i < files->count; i++) {
        char name[200];
        snprintf(name, sizeof name, STR_FMT, STR_ARG(files->members[i].key));
        pool_golden_file(g, name, &files->members[i].value);
    }
    for (uint32_t i = 0; i < dense->count; i++) {
        snprintf(path, sizeof path, "%s/" STR_FMT "/model.safetensors", g->dir, STR_ARG(dense->items[i].string));
        golden_write_shard(g, (int)i + 1, path);
    }
    snprintf(path, sizeof path, "%s/sparse_linear.safetensors", g->dir);
    if (json_bool(json_get(g->root, "sparse"), false)) golden_write_shard(g, (int)dense->count + 1, path);
}

struct pool_run {
    struct device *device;
    struct model *model;
    struct pool *pool;
};

static inline enum rose_status pool_run_open(struct pool_run *r, const char *path, int threads, struct pool_options *options, struct rose_error *err)
{
    struct weights *w;
    struct head_wish wish = {.yes = -1, .no = -1};
    *r = (struct pool_run){0};
    ROSE_TRY(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = threads}, &r->device, err));
    enum rose_status s = weights_open(path, &w, err);
    if (s == ROSE_OK) s = model_open_as(r->device, w, &wish, NULL, NULL, &r->model, err);
    if (s == ROSE_OK) s = pool_open(r->model, options, &r->pool, err);
    return s;
}

/* GGUF does not say whether embeddings are normalised: they are, unless the golden model's own modules say otherwise. It has no lexical head and
 * no problem_type. */
static inline void pool_golden_gguf(const struct golden *g, struct model *m)
{
    CHECK(m->config.head.normalize);
    m->config.head.normalize = json_bool(json_get(g->gguf, "normalize"), true);
}
static inline bool pool_golden_skips(const struct golden *g, const struct model *m, const struct json *k)
{
    if (!g->gguf || weights_kind(m->weights) != WEIGHTS_GGUF) return false;
    bool typed = json_get(g->config, "problem_type") && str_is(json_str(json_get(k, "task"), ""), "classify") && !json_bool(json_get(k, "raw"), false);
    return typed || json_bool(json_get(k, "sparse"), false);
}

static inline void pool_run_close(struct pool_run *r)
{
    pool_close(r->pool);
    model_close(r->model);
    device_close(r->device);
}

/* What a case of the golden data asks for, with the model's own defaults as the interface puts them in. */
static inline struct pool_wish pool_golden_wish(const struct model_config *c, const struct json *k)
{
    static const char *const names[] = {"cls", "mean", "last", "weighted_mean", "max"};
    const struct model_head *h = &c->head;
    struct str pooling = json_str(json_get(k, "pooling"), "model"), task = json_str(json_get(k, "task"), "embed");
    struct pool_wish w = {.pooling = h->pooling};
    for (int i = 0; i < 5; i++)
        if (str_is(pooling, names[i])) w.pooling = (enum op_pooling)i;
    w.per_token = str_is(pooling, "none");
    w.normalize = json_bool(json_get(k, "normalize"), h->normalize);
    w.sparse = json_bool(json_get(k, "sparse"), false);
    w.task = str_is(task, "score") ? ROSE_TASK_SCORE : str_is(task, "classify") ? ROSE_TASK_CLASSIFY : ROSE_TASK_EMBED;
    w.activation = json_bool(json_get(k, "raw"), false) ? HEAD_IDENTITY : w.task == ROSE_TASK_SCORE ? h->score_activation : h->activation;
    return w;
}

static inline enum rose_status pool_golden_submit(struct pool *p, const struct json *k, const struct json *from, uint64_t user, uint64_t *id, struct rose_error *err)
{
    struct pool_wish w = pool_golden_wish(&p->model->config, k);
    struct rose_request r = {.user = user};
    int32_t n, types_n = 0, *tokens = golden_ids(json_get(from, "tokens"), &n);
    const struct json *typed = json_get(from, "types");
    int32_t *types = json_is(typed, JSON_ARRAY) ? golden_ids(typed, &types_n) : NULL;
    enum rose_status s = pool_submit(p, &r, &w, tokens, (const uint32_t *)types, (size_t)n, id, err);
    free(tokens), free(types);
    return s;
}

#endif
