/* rose_device and rose_engine: the public face of device/, model/ and engine/. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/option.h"
#include "ops/isa.h"


/* --- devices ----------------------------------------------------------------------------------------------------------------------- */

enum rose_status rose_device_open(const struct rose_device_options *o, struct rose_device **out, struct rose_error *err)
{
    const char *kind = o->kind ? o->kind : "auto";
    struct device_options options = {.threads = o->threads, .pin = !o->no_pin, .debug_sync = o->debug_sync};
    if (!strncmp(kind, "cuda", 4) && (!kind[4] || kind[4] == ':')) {
        int64_t index = 0;
        if (kind[4] == ':' && (!str_to_i64(str_of(kind + 5), &index) || index < 0 || index > 1023))
            return status_set(err, ROSE_INVALID, "device \"%s\": write cuda or cuda:0", kind);
        options.kind = DEVICE_CUDA;
        options.index = (int)index;
    } else if (strcmp(kind, "auto") && strcmp(kind, "cpu")) {
        return status_set(err, ROSE_INVALID, "device \"%s\" is none of auto, cpu, cuda, cuda:N", kind);
    }
    ROSE_TRY(op_isa_select(o->isa, err));
    struct rose_device *d = calloc(1, sizeof *d);
    if (!d) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = device_open(&options, &d->device, err);
    if (s != ROSE_OK) {
        free(d);
        return s;
    }
    if (options.kind == DEVICE_CPU) snprintf(d->name, sizeof d->name, "%.90s, %d threads, %s", d->device->info.name, d->device->info.units, op_isa_name());
    else snprintf(d->name, sizeof d->name, "%.90s, %s", d->device->info.name, d->device->info.arch);
    *out = d;
    return ROSE_OK;
}

void rose_device_close(struct rose_device *d)
{
    if (!d) return;
    free(d->device->profile);
    device_close(d->device);
    free(d);
}

enum rose_status rose_device_profile(struct rose_device *d, bool on, struct rose_error *err)
{
    if (d->device->info.kind != DEVICE_CPU) return status_set(err, ROSE_UNSUPPORTED, "only CPU devices have a profile");
    free(d->device->profile);
    d->device->profile = on ? calloc(1, sizeof *d->device->profile) : NULL;
    return on && !d->device->profile ? status_set(err, ROSE_NO_MEMORY, "out of memory") : ROSE_OK;
}

size_t rose_device_profile_read(const struct rose_device *d, struct rose_profile_entry *entries, size_t n)
{
    const struct device_profile *p = d->device->profile;
    size_t count = p ? ROSE_MIN((size_t)p->count, n) : 0;
    for (size_t i = 0; i < count; i++) {
        const struct device_profile_entry *e = &p->entries[i];
        entries[i] = (struct rose_profile_entry){e->name, e->calls, e->seconds, e->bytes, e->ops};
    }
    return count;
}

const char *rose_device_name(const struct rose_device *d) { return d->name; }

/* --- engines ------------------------------------------------------------------------------------------------------------------------- */

struct progress {
    const struct rose_engine_options *options;
};

static void on_progress(void *user, size_t done, size_t total)
{
    const struct rose_engine_options *o = ((struct progress *)user)->options;
    if (o->progress) o->progress(o->progress_user, "loading weights", done, total);
}

enum rose_status kv_dtype(const char *name, enum dtype *out, struct rose_error *err)
{
    static const struct { const char *name; enum dtype dtype; } known[] = {{"f16", DTYPE_F16}, {"f32", DTYPE_F32}, {"bf16", DTYPE_BF16}, {"q8_0", DTYPE_Q8_0}};
    *out = DTYPE_F16;
    if (!name) return ROSE_OK;
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (!strcmp(name, known[i].name)) return *out = known[i].dtype, ROSE_OK;
    return status_set(err, ROSE_INVALID, "cache type \"%s\" is none of f16, f32, bf16, q8_0", name);
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
    const char *path = weights_path(w), *base = strrchr(path, '/');
    snprintf(e->name, sizeof e->name, "%s", e->model && e->model->config.name[0] ? e->model->config.name : base && base[1] ? base + 1 : path);
    struct rose_model_info *i = &e->info;
    *i = (struct rose_model_info){.name = e->name, .architecture = "", .format = weights_kind(w) == WEIGHTS_GGUF ? "gguf" : "safetensors",
                                  .weights_type = e->weights_type, .parameters = (int64_t)summary.parameters, .chat_template = e->text.chat_template_text,
                                  .bos = (int)tokenizer_facts(e->text.tokenizer)->bos, .kv_type = o->kv ? o->kv : "f16",
                                  .vocabulary = (int)tokenizer_facts(e->text.tokenizer)->vocab_size};
    if (!e->model) return;
    const struct model_config *c = &e->model->config;
    i->architecture = c->arch->name;
    i->parameters = e->model->parameters;
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
}

static enum rose_status open_all(struct rose_engine *e, const struct rose_engine_options *o, struct rose_error *err)
{
    double began = engine_now();
    const char *path;
    struct arena a;
    struct engine_options options = {.context = o->context, .max_sequences = o->max_sequences, .max_waiting = o->max_waiting, .step_tokens = o->step_tokens,
                                     .kv_bytes = o->kv_bytes, .deterministic = o->deterministic, .no_prefix_cache = o->no_prefix_cache,
                                     .depth = e->device->device->info.kind == DEVICE_CPU ? 1 : 2};
    ROSE_TRY(kv_dtype(o->kv, &options.kv, err));
    arena_init(&a, 0);
    enum rose_status s = hub_resolve(&a, o->model, &path, err);
    if (s == ROSE_OK) s = weights_open(path, &e->weights, err);
    arena_free(&a);
    if (s != ROSE_OK) return s;
    ROSE_TRY(text_open(e->weights, o->chat_template, &e->text, err));
    if (!o->tokenizer_only) {
        struct progress progress = {o};
        struct weights *w = e->weights;
        e->weights = NULL; /* model_open owns them from here */
        ROSE_TRY(model_open(e->device->device, w, on_progress, &progress, &e->model, err));
        ROSE_TRY(engine_open(e->model, e->text.tokenizer, &options, &e->engine, err));
    }
    fill_info(e, e->model ? e->model->weights : e->weights, o);
    e->info.load_seconds = engine_now() - began;
    return ROSE_OK;
}

enum rose_status rose_engine_open(struct rose_device *device, const struct rose_engine_options *o, struct rose_engine **out, struct rose_error *err)
{
    struct rose_engine *e = calloc(1, sizeof *e);
    if (!e) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    e->device = device;
    enum rose_status s = open_all(e, o, err);
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
}

size_t rose_events(struct rose_engine *e, struct rose_event *events, size_t n, int timeout_ms)
{
    return e->engine ? events_read(&e->engine->events, events, n, timeout_ms) : 0;
}

int rose_event_fd(struct rose_engine *e) { return e->engine ? e->engine->events.fd : -1; }

const char *rose_finish_name(enum rose_finish finish)
{
    static const char *const names[] = {"none", "stop", "length", "cancelled", "deadline", "error"};
    return (unsigned)finish < ROSE_COUNT(names) ? names[finish] : "unknown";
}

void rose_engine_stats(const struct rose_engine *e, struct rose_stats *out)
{
    *out = (struct rose_stats){0};
    if (e->engine) engine_stats(e->engine, out);
}

size_t rose_engine_steps(const struct rose_engine *e, uint64_t after, struct rose_step *steps, size_t n) { return e->engine ? engine_steps(e->engine, after, steps, n) : 0; }

void rose_engine_drain(struct rose_engine *e)
{
    if (e->engine) engine_drain(e->engine);
}

void rose_free(void *memory) { free(memory); }
