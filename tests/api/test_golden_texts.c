/* Texts through the public interface, as sentence-transformers answers them (tests/golden/embed_convert.py): tokens, prompts, Matryoshka, pairs, and
 * Qwen3-Reranker as its card asks it; from the directory, and from the GGUF file that llama.cpp's converter made of it. */
#define _GNU_SOURCE /* mkdtemp */
#include "engine/pool_golden.h"
#include "rose.h"

static void check_tokens(const struct rose_engine *engine, const struct json *k)
{
    struct rose_error err = {0};
    const struct json *want = json_get(k, "tokens");
    struct str text = json_str(json_get(k, "text"), "");
    int32_t ids[256];
    size_t n = 0;
    if (!json_is(want, JSON_ARRAY)) return;
    CHECK_OK(rose_tokenize(engine, text.p, text.n, 0, ids, 256, &n, &err), err);
    CHECK_INT(n, want->count);
    for (size_t i = 0; i < n && i < want->count; i++) CHECK_INT(ids[i], json_int(&want->items[i], -1));
}

/* A string of the case, NUL-terminated; NULL: it is not there. */
static const char *text_of(struct golden *g, const struct json *k, const char *key)
{
    const struct json *v = json_get(k, key);
    return json_is(v, JSON_STRING) ? arena_strndup(&g->arena, v->string.p, v->string.n) : NULL;
}

static double distance_of(const struct golden *g, const struct rose_event *e, const struct json *k)
{
    int64_t n = json_int(json_get(k, "cols"), -1);
    const float *want = g->logits + json_int(json_get(k, "at"), 0);
    CHECK_INT(e->finish, ROSE_FINISH_STOP);
    CHECK_INT(e->rows, 1);
    CHECK_INT(e->cols, n);
    if (e->finish != ROSE_FINISH_STOP || e->cols != n) {
        printf("%s\n", e->message ? e->message : "no answer");
        return INFINITY;
    }
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += (double)want[i] * (double)want[i];
    return golden_distance(e->values, want, (int32_t)n) / fmax(1, sqrt(square / (double)n));
}

static void ask(struct golden *g, struct rose_engine *engine, const struct json *k, bool gguf)
{
    struct rose_request r;
    struct rose_event e;
    struct rose_error err = {0};
    struct str task = json_str(json_get(k, "task"), "");
    uint64_t id;
    rose_request_init(&r);
    r.kind = ROSE_REQUEST_TEXT;
    r.task = str_is(task, "score") ? ROSE_TASK_SCORE : str_is(task, "classify") ? ROSE_TASK_CLASSIFY : ROSE_TASK_EMBED;
    r.prompt = text_of(g, k, "text");
    r.prompt_bytes = strlen(r.prompt);
    r.pair = text_of(g, k, "pair");
    r.pair_bytes = r.pair ? strlen(r.pair) : 0;
    r.prompt_name = text_of(g, k, "prompt_name");
    r.instruction = text_of(g, k, "instruction");
    r.dimensions = (int)json_int(json_get(k, "dimensions"), 0);
    r.activation = json_bool(json_get(k, "raw"), false) ? ROSE_OFF : ROSE_DEFAULT;
    if (gguf && r.task == ROSE_TASK_EMBED && !json_bool(json_get(g->gguf, "normalize"), true)) r.normalize = ROSE_OFF;
    CHECK_OK(rose_submit(engine, &r, &id, &err), err);
    if (test_failures_) return;
    CHECK_INT(rose_events(engine, &e, 1, 20000), 1);
    double off = distance_of(g, &e, k);
    if (!(off <= 2e-5)) printf("%s%s, \"%s\"%s%s: off by %g\n", g->name, gguf ? " (GGUF)" : "", r.prompt, r.pair ? ", " : "", r.pair ? r.pair : "", off);
    CHECK(off <= 2e-5);
}

/* Classifiers' labels have the names of config.json, in GGUF too. */
static void check_labels(const struct golden *g, const struct rose_engine *engine)
{
    struct rose_model_info info;
    const struct json *names = json_get(g->config, "id2label");
    rose_engine_info(engine, &info);
    if (json_is(names, JSON_OBJECT)) CHECK_INT(info.labels_count, names->count);
    for (int i = 0; i < info.labels_count && names; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        CHECK(str_is(json_str(json_get(names, key), ""), info.labels[i]));
    }
}

static void check_file(struct golden *g, struct rose_device *device, const char *path, bool gguf)
{
    struct rose_engine *engine = NULL;
    struct rose_error err = {0};
    const struct json *texts = json_get(g->root, "texts");
    CHECK(texts->count > 0);
    CHECK_OK(rose_engine_open(device, &(struct rose_engine_options){.model = path}, &engine, &err), err);
    if (engine) check_labels(g, engine);
    for (uint32_t i = 0; engine && i < texts->count; i++) {
        check_tokens(engine, &texts->items[i]);
        ask(g, engine, &texts->items[i], gguf);
    }
    rose_engine_close(engine);
}

static void check_model(const char *name)
{
    struct golden g;
    struct rose_device *device = NULL;
    struct rose_error err = {0};
    golden_open(&g, name);
    g.types = GOLDEN_F32;
    const struct json *files = json_get(g.root, "text_files");
    CHECK_OK(rose_device_open(&(struct rose_device_options){.kind = "cpu", .threads = 2, .no_pin = true, .no_packed_cache = true}, &device, &err), err);
    if (device && files->count) { /* else the tokenizer is one that only GGUF carries */
        pool_golden_write(&g);
        for (uint32_t i = 0; i < files->count; i++) pool_golden_file(&g, arena_strndup(&g.arena, files->members[i].key.p, files->members[i].key.n), &files->members[i].value);
        check_file(&g, device, g.dir, false);
    }
    if (device && json_get(g.gguf, "normalize")) { /* with a tokenizer */
        CHECK(golden_write_gguf(&g));
        check_file(&g, device, g.file, true);
    }
    rose_device_close(device);
    golden_close(&g);
}

#define MODELS(X)                                                                                                                                 \
    X(text_bert) X(text_lower) X(text_reranker) X(embed_distilbert) X(embed_roberta) X(embed_xlm_roberta) X(embed_modernbert) X(embed_jina) X(embed_jina_code) \
    X(embed_mpnet) X(embed_nomic) X(embed_llama) X(embed_mistral_window) X(embed_qwen3) X(embed_gemma) X(class_roberta) X(class_xlm_roberta) X(class_modernbert)
#define DEFINE(name) TEST(name) { check_model(#name); }
MODELS(DEFINE)
#define ENTRY(name) CASE(name),
TEST_MAIN(MODELS(ENTRY))
