/* rose_engine: the public face of model/ and engine/. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/file.h"

/* --- engines ------------------------------------------------------------------------------------------------------------------------- */

static void on_progress(void *user, size_t done, size_t total) { device_progress(user, "loading weights", done, total); }

static const struct { const char *name; enum dtype dtype; } kv_types[] = {{"f16", DTYPE_F16}, {"f32", DTYPE_F32}, {"bf16", DTYPE_BF16}, {"q8_0", DTYPE_Q8_0}, {"fp8", DTYPE_F8_E4M3}};

enum rose_status kv_dtype(const char *name, enum device_kind kind, enum dtype *out, struct rose_error *err)
{
    *out = kind == DEVICE_CUDA ? DTYPE_NONE : DTYPE_F16; /* NONE: as the model computes */
    if (!name || !strcmp(name, "auto")) return ROSE_OK;
    for (size_t i = 0; i < ROSE_COUNT(kv_types); i++)
        if (!strcmp(name, kv_types[i].name)) return *out = kv_types[i].dtype, ROSE_OK;
    return status_set(err, ROSE_INVALID, "cache type \"%s\" is none of auto, f16, f32, bf16, q8_0, fp8", name);
}

const char *kv_name(enum dtype dtype)
{
    for (size_t i = 0; i < ROSE_COUNT(kv_types); i++)
        if (kv_types[i].dtype == dtype) return kv_types[i].name;
    return dtype_info(dtype)->name;
}

static void fill_info(struct rose_engine *e, const struct weights *w, const struct rose_engine_options *o)
{
    struct weights_summary summary;
    weights_summary(w, &summary);
    uint64_t most = 0;
    snprintf(e->weights_type, sizeof e->weights_type, "none");
    for (int i = 0; i < summary.types; i++)
        if (summary.type[i].parameters > most) {
            most = summary.type[i].parameters;
            snprintf(e->weights_type, sizeof e->weights_type, "%s", summary.type[i].type);
        }
    if (e->model && e->model->dummy) snprintf(e->weights_type, sizeof e->weights_type, "random %s", e->model->element == DTYPE_F16 ? "f16" : "bf16");
    const char *path = weights_path(w), *base = strrchr(path, '/');
    snprintf(e->name, sizeof e->name, "%s", e->model && e->model->config.name[0] ? e->model->config.name : base && base[1] ? base + 1 : path);
    struct rose_model_info *i = &e->info;
    *i = (struct rose_model_info){.name = e->name, .architecture = "", .format = weights_kind(w) == WEIGHTS_GGUF ? "gguf" : "safetensors",
                                  .weights_type = e->weights_type, .parameters = (int64_t)summary.parameters, .chat_template = e->text.chat_template_text,
                                  .bos = (int)tokenizer_facts(e->text.tokenizer)->bos, .kv_type = e->engine ? kv_name(e->engine->options.kv) : o->kv ? o->kv : "auto",
                                  .vocabulary = (int)tokenizer_facts(e->text.tokenizer)->vocab_size};
    if (!e->model) return;
    const struct model_config *c = &e->model->config;
    i->architecture = c->arch->name;
    i->parameters = e->model->parameters;
    i->upload_seconds = e->model->upload_seconds;
    if (e->pool) {
        task_info(e, i);
        return;
    }
    i->tasks = ROSE_CAN_GENERATE;
    i->longest_input = e->engine->options.context;
    i->context = e->engine->options.context;
    i->model_context = c->context;
    i->vocabulary = c->vocabulary;
    i->layers = c->layers;
    i->hidden = c->hidden;
    i->weights_bytes = e->model->memory_bytes;
    i->kv_bytes = e->engine->pool_bytes;
    i->work_bytes = programs_bytes(&e->engine->programs) + e->engine->logits_bytes + e->engine->history_bytes;
    i->kv_pages = e->engine->pages.total;
    i->page_tokens = e->engine->cache.page_tokens;
    i->max_sequences = e->engine->options.max_sequences;
    i->step_tokens = e->engine->options.step_tokens;
    i->graph_bytes = e->engine->programs.graph_bytes;
}

/* The memory plan and what became of the weights, for the log. */
static void say_plan(const struct rose_engine *e)
{
    const struct rose_model_info *i = &e->info;
    char line[512];
    if (e->model->notice[0]) device_say(e->device, ROSE_MESSAGE_INFO, e->model->notice);
    if (e->pool) return;
    snprintf(line, sizeof line, "memory: weights %.2f GB, key-value cache %.2f GB (%d pages of %d tokens, %s), work %.2f GB (graphs %.2f GB)", (double)i->weights_bytes / 1e9,
             (double)i->kv_bytes / 1e9, i->kv_pages, i->page_tokens, i->kv_type, (double)i->work_bytes / 1e9, (double)i->graph_bytes / 1e9);
    device_say(e->device, ROSE_MESSAGE_INFO, line);
    const struct programs *p = &e->engine->programs;
    if (e->device->jit) {
        snprintf(line, sizeof line, "opened: weights %.2f s (%.2f s waited for), plans %.2f s, kernels %.2f s, %d programs %.2f s, measuring %.2f s, %d graphs %.2f s", i->upload_seconds, p->wait_s,
                 p->draft_s, p->compile_s, p->count, p->record_s, p->tune_s, p->decodes, p->graph_s);
        device_say(e->device, ROSE_MESSAGE_INFO, line);
        if (p->tuned[0]) device_say(e->device, ROSE_MESSAGE_INFO, p->tuned);
        if (p->products[0]) device_say(e->device, ROSE_MESSAGE_INFO, p->products);
    }
    if (i->upload_seconds <= 0 || e->model->dummy) return;
    snprintf(line, sizeof line, "weights to the GPU: %.2f s, %.1f GB/s", i->upload_seconds, (double)i->weights_bytes / i->upload_seconds / 1e9);
    device_say(e->device, ROSE_MESSAGE_INFO, line);
}

static bool has_tokenizer(const struct weights *w)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/tokenizer.json", weights_path(w)) < (int)sizeof path && file_exists(path);
}

static enum rose_status open_model(struct rose_engine *e, const struct rose_engine_options *o, struct engine_options *options, struct rose_error *err)
{
    struct weights *w = e->weights;
    e->weights = NULL; /* the model owns them from here */
    if (o->dummy_weights) {
        enum { SEED = 1 };
        enum dtype type;
        enum rose_status s = task_weights(e, o->weights, &type, err);
        if (s != ROSE_OK) weights_close(w);
        if (s == ROSE_OK) s = model_open_dummy(e->device->device, w, SEED, type, &e->model, err);
        if (s != ROSE_OK) return s;
        if (!e->text.tokenizer) {
            ROSE_TRY(text_open_ids(e->model->config.vocabulary, &e->text, err));
            device_say(e->device, ROSE_MESSAGE_INFO, "no tokenizer.json: texts are token ids, \"[12][345]\"");
        }
    } else {
        struct head_wish wish;
        enum rose_status s = task_wish(e, o->task, o->weights, &wish, err);
        if (s != ROSE_OK) weights_close(w);
        wish.early = true; /* the engine waits for them, when it has compiled and recorded */
        if (s == ROSE_OK) s = model_open_as(e->device->device, w, &wish, on_progress, (void *)(uintptr_t)o, &e->model, err);
        if (s != ROSE_OK) return s;
    }
    if (e->model->config.own_rows) {
        /* One --ctx is for all models of a server: those that have fewer positions take what they have. */
        struct pool_options p = {.context = ROSE_MIN(o->context, e->model->config.context), .max_waiting = o->max_waiting, .step_tokens = o->step_tokens, .max_sequences = o->max_sequences,
                                 .deterministic = o->deterministic};
        return pool_open(e->model, &p, &e->pool, err);
    }
    return engine_open(e->model, e->text.tokenizer, options, &e->engine, err);
}

static enum rose_status open_all(struct rose_engine *e, const struct rose_engine_options *o, struct rose_error *err)
{
    double began = engine_now();
    const char *path;
    struct arena a;
    struct engine_options options = {.context = o->context, .max_sequences = o->max_sequences, .max_waiting = o->max_waiting, .step_tokens = o->step_tokens,
                                     .kv_bytes = o->kv_bytes, .memory_share = o->memory_share, .cache_ready = o->cache_ready, .deterministic = o->deterministic, .no_prefix_cache = o->no_prefix_cache,
                                     .stretch = o->step_stretch,
                                     .depth = e->device->device->info.kind == DEVICE_CPU ? 1 : 2,
                                     .tune = e->device->device->info.kind == DEVICE_CUDA};
    ROSE_TRY(kv_dtype(o->kv, e->device->device->info.kind, &options.kv, err));
    if (o->dummy_weights && o->tokenizer_only) return status_set(err, ROSE_INVALID, "dummy weights and no weights at once");
    arena_init(&a, 0);
    enum rose_status s = hub_resolve(&a, o->model, &path, err);
    if (s == ROSE_OK) s = o->dummy_weights ? weights_open_config(path, &e->weights, err) : weights_open(path, &e->weights, err);
    arena_free(&a);
    if (s != ROSE_OK) return s;
    if (!o->dummy_weights || has_tokenizer(e->weights)) ROSE_TRY(text_open(e->weights, o->chat_template, &e->text, err));
    if (!o->tokenizer_only) ROSE_TRY(open_model(e, o, &options, err));
    fill_info(e, e->model ? e->model->weights : e->weights, o);
    e->info.load_seconds = engine_now() - began;
    if (e->model) say_plan(e);
    return ROSE_OK;
}

enum rose_status rose_engine_open(struct rose_device *device, const struct rose_engine_options *o, struct rose_engine **out, struct rose_error *err)
{
    struct rose_engine *e = calloc(1, sizeof *e);
    if (!e) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    e->device = device;
    device->opening = o;
    enum rose_status s = open_all(e, o, err);
    device->opening = NULL;
    if (s != ROSE_OK) {
        rose_engine_close(e);
        return s;
    }
    *out = e;
    return ROSE_OK;
}

void rose_engine_close(struct rose_engine *e)
{
    if (!e) return;
    engine_close(e->engine);
    pool_close(e->pool);
    text_close(&e->text);
    model_close(e->model);
    weights_close(e->weights);
    free(e);
}

void rose_engine_info(const struct rose_engine *e, struct rose_model_info *out) { *out = e->info; }

/* --- requests --------------------------------------------------------------------------------------------------------------------------- */

void rose_request_init(struct rose_request *r)
{
    *r = (struct rose_request){.max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1, .choices = 1,
                               .sampling = {.top_p = 1, .repetition_penalty = 1}};
}

enum rose_status rose_submit(struct rose_engine *e, const struct rose_request *r, uint64_t *id, struct rose_error *err)
{
    if (e->pool) return task_submit(e, r, id, err);
    if (!e->engine) return status_set(err, ROSE_UNSUPPORTED, "the engine was opened for tokenising only");
    if (r->task != ROSE_TASK_GENERATE) return status_set(err, ROSE_UNSUPPORTED, "this model generates text: it neither embeds, classifies nor scores");
    struct token_ids ids = {0};
    enum rose_status s = ROSE_OK;
    /* A prompt far beyond the context need not be tokenised to its end to be refused. */
    size_t limit = (size_t)e->engine->options.context * 2 + 1024;
    switch (r->kind) {
    case ROSE_REQUEST_TOKENS: return engine_submit(e->engine, r, r->tokens, r->tokens_count, id, err);
    case ROSE_REQUEST_TEXT: {
        unsigned flags = (r->tokenize_flags & ROSE_TOKENIZE_NO_SPECIAL ? 0 : TOKENIZER_ADD_SPECIAL | TOKENIZER_ONE_BOS) |
                         (r->tokenize_flags & ROSE_TOKENIZE_PARSE_SPECIAL ? TOKENIZER_PARSE_SPECIAL : 0);
        ids.limit = limit;
        s = tokenizer_encode(e->text.tokenizer, (struct str){r->prompt, r->prompt_bytes}, flags, &ids, err);
        break;
    }
    case ROSE_REQUEST_CHAT: s = text_encode_chat(&e->text, (struct str){r->prompt, r->prompt_bytes}, limit, &ids, err); break;
    default: s = status_set(err, ROSE_INVALID, "unknown kind of request");
    }
    if (s == ROSE_LIMIT && ids.n > (size_t)e->engine->options.context)
        s = status_set(err, ROSE_LIMIT, "the prompt has more than %zu tokens and the context holds %d; shorten it or start with a larger --ctx", ids.n, e->engine->options.context);
    if (s == ROSE_OK) s = engine_submit(e->engine, r, (const int32_t *)ids.p, ids.n, id, err);
    token_ids_free(&ids);
    return s;
}

void rose_cancel(struct rose_engine *e, uint64_t id)
{
    if (e->engine) engine_cancel(e->engine, id);
    if (e->pool) pool_cancel(e->pool, id);
}

size_t rose_events(struct rose_engine *e, struct rose_event *events, size_t n, int timeout_ms)
{
    struct events *from = e->engine ? &e->engine->events : e->pool ? &e->pool->events : NULL;
    return from ? events_read(from, events, n, timeout_ms) : 0;
}

int rose_event_fd(struct rose_engine *e) { return e->engine ? e->engine->events.fd : e->pool ? e->pool->events.fd : -1; }

const char *rose_finish_name(enum rose_finish finish)
{
    static const char *const names[] = {"none", "stop", "length", "cancelled", "deadline", "error"};
    return (unsigned)finish < ROSE_COUNT(names) ? names[finish] : "unknown";
}

void rose_engine_stats(const struct rose_engine *e, struct rose_stats *out)
{
    *out = (struct rose_stats){0};
    if (e->engine) engine_stats(e->engine, out);
    if (e->pool) pool_stats(e->pool, out);
}

size_t rose_engine_steps(const struct rose_engine *e, uint64_t after, struct rose_step *steps, size_t n) 
{
    return e->engine ? engine_steps(e->engine, after, steps, n) : e->pool ? pool_steps(e->pool, after, steps, n) : 0;
}

void rose_engine_drain(struct rose_engine *e)
{
    if (e->engine) engine_drain(e->engine);
    if (e->pool) pool_drain(e->pool);
}

void rose_free(void *memory) { free(memory); }
