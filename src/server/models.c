#define _GNU_SOURCE
#include "server/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/status.h"
#include "server/kserve.h"
#include "server/loader.h"
#include "server/model_config.h"

struct slot {
    struct event_sink *sink; /* NULL: free */
    struct model *model;
    int part;
    uint32_t count; /* uses so far, never 0 */
    uint32_t next;
};

const char *model_state_name(enum model_state state)
{
    static const char *const names[] = {"UNAVAILABLE", "LOADING", "READY", "UNLOADING"};
    return names[state];
}

struct model *models_add(struct models *m, const char *name, int version, const char *path, const char *repository, struct rose_error *err)
{
    if (m->count == MODELS_MAX) return status_set(err, ROSE_LIMIT, "at most %d models are served", MODELS_MAX), NULL;
    if (strlen(name) > MODEL_NAME_MAX) return status_set(err, ROSE_INVALID, "the name \"%.60s...\" is longer than %d bytes", name, MODEL_NAME_MAX), NULL;
    struct model *model = &m->models[m->count];
    *model = (struct model){.version = version, .repository = repository, .path = path ? strdup(path) : NULL};
    if (path && !model->path) return status_set(err, ROSE_NO_MEMORY, "out of memory"), NULL;
    snprintf(model->name, sizeof model->name, "%s", name);
    m->count++;
    return model;
}

/* What the engine's facts made. */
static void forget_engine(struct model *model)
{
    null_model_close(model->null);
    kserve_map_free(model->map);
    model->null = NULL;
    model->map = NULL;
    model->engine = NULL;
    model->info = (struct rose_model_info){0};
}

enum rose_status model_attach(struct models *m, struct model *model, struct rose_engine *engine, struct rose_error *err)
{
    rose_engine_info(engine, &model->info);
    model->engine = engine;
    enum rose_status s = kserve_map_build(model, model->config, &model->map, err);
    if (s == ROSE_OK && m->options->null_model && !(model->null = null_model_open(engine))) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s != ROSE_OK) {
        forget_engine(model);
        return s;
    }
    model->reasoning = model->info.chat_template && strstr(model->info.chat_template, "<think>");
    model->created = (int64_t)time(NULL);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = model};
    if (m->epoll_fd >= 0 && epoll_ctl(m->epoll_fd, EPOLL_CTL_ADD, model_event_fd(model), &e)) {
        forget_engine(model);
        return status_set(err, ROSE_IO, "cannot watch the model's events");
    }
    model->reason[0] = '\0';
    model->state = MODEL_READY;
    if (m->draining && !model->null) rose_engine_drain(engine);
    return ROSE_OK;
}

struct rose_engine *model_detach(struct models *m, struct model *model)
{
    struct rose_engine *engine = model->engine;
    if (engine && m->epoll_fd >= 0) epoll_ctl(m->epoll_fd, EPOLL_CTL_DEL, model_event_fd(model), NULL);
    forget_engine(model);
    return engine;
}

static enum rose_status add_opened(struct models *m, const struct server_model *from, struct rose_error *err)
{
    if (models_lookup(m, str_of(from->name), 0)) return status_set(err, ROSE_INVALID, "two models are called \"%s\": name them apart with --alias", from->name);
    struct model *model = models_add(m, from->name, 1, from->path, NULL, err);
    if (!model) return ROSE_LIMIT;
    ROSE_TRY(model_attach(m, model, from->engine, err));
    model->owned = from->owned;
    model->task = from->task;
    return ROSE_OK;
}

enum rose_status models_open(struct models *m, const struct server_options *o, const struct server_model *list, int count, struct rose_error *err)
{
    enum rose_status s = ROSE_OK;
    *m = (struct models){.slots_free = UINT32_MAX, .models = calloc(MODELS_MAX, sizeof *m->models), .options = o, .epoll_fd = -1};
    if (!m->models) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int i = 0; i < count; i++) {
        if (s == ROSE_OK) s = add_opened(m, &list[i], err);
        if (s != ROSE_OK && list[i].owned) rose_engine_close(list[i].engine);
    }
    return s;
}

void models_close(struct models *m)
{
    loader_close(m);
    for (int i = 0; m->models && i < m->count; i++) {
        struct model *model = &m->models[i];
        bool owned = model->owned;
        struct rose_engine *engine = model_detach(m, model);
        if (owned) rose_engine_close(engine);
        model_config_free(model->config);
        free(model->path);
    }
    free(m->models);
    free(m->slots);
}

struct model *models_find(struct models *m, struct str name, unsigned can)
{
    struct model *best = NULL, *first = NULL;
    for (int i = 0; i < m->count; i++) {
        struct model *c = &m->models[i];
        if (c->state != MODEL_READY) continue;
        if (!name.n) {
            if (models_lookup(m, str_of(c->name), 0) != c) continue; /* an older version answers to none */
            if (!can || c->info.tasks & can) return c;
            if (!first) first = c;
        }
        if (str_is(name, c->name) && (!best || c->version > best->version)) best = c;
    }
    const struct model *known = name.n && !best && m->options->any_model ? models_lookup(m, name, 0) : NULL;
    bool moves = known && (known->state == MODEL_LOADING || known->state == MODEL_UNLOADING); /* it is here all the same, and no other is it */
    if (name.n && !best && m->options->any_model && !moves) return models_find(m, STR(""), can);
    return name.n ? best : first;
}

bool models_missing(struct models *m, struct str name, struct api_error *e)
{
    for (int i = 0; i < m->count; i++) {
        const struct model *c = &m->models[i];
        if ((name.n && !str_is(name, c->name)) || (c->state != MODEL_LOADING && c->state != MODEL_UNLOADING)) continue;
        bool comes = c->state == MODEL_LOADING || c->again;
        return api_error_set(e, 503, "server_error", "model_not_ready", "model", "model \"%s\" is being %s%s", c->name, comes ? "loaded: ask again in a moment" : "unloaded", comes || name.n ? "" : ", and no other is here");
    }
    return api_error_set(e, 404, "not_found_error", "model_not_found", "model", "there is no model \"%.*s\" here; see /v1/models", (int)ROSE_MIN(name.n, 200), name.p);
}

struct model *models_lookup(struct models *m, struct str name, int version)
{
    struct model *best = NULL;
    for (int i = 0; i < m->count; i++) {
        struct model *c = &m->models[i];
        if (!str_is(name, c->name) || (version && c->version != version)) continue;
        bool better = !best || (c->state == MODEL_READY) > (best->state == MODEL_READY) || ((c->state == MODEL_READY) == (best->state == MODEL_READY) && c->version > best->version);
        if (better) best = c;
    }
    return best;
}

const char *models_label(struct models *m, const struct model *model, char *to)
{
    if (models_lookup(m, str_of(model->name), 0) == model) return model->name;
    snprintf(to, MODEL_LABEL_MAX, "%s/versions/%d", model->name, model->version);
    return to;
}

uint64_t models_handle(struct models *m, struct model *model, struct event_sink *sink, int part)
{
    if (m->slots_free == UINT32_MAX) {
        uint32_t more = m->slots_count ? m->slots_count * 2 : 256;
        struct slot *slots = realloc(m->slots, more * sizeof *slots);
        if (!slots) return 0;
        for (uint32_t i = m->slots_count; i < more; i++) slots[i] = (struct slot){.count = 1, .next = i + 1 < more ? i + 1 : UINT32_MAX};
        m->slots_free = m->slots_count;
        m->slots = slots;
        m->slots_count = more;
    }
    uint32_t i = m->slots_free;
    struct slot *s = &m->slots[i];
    m->slots_free = s->next;
    s->sink = sink;
    s->model = model;
    s->part = part;
    model->open++;
    m->handles_open++;
    return (uint64_t)s->count << 32 | i;
}

static struct slot *find_slot(struct models *m, uint64_t handle)
{
    uint32_t i = (uint32_t)handle;
    if (!handle || i >= m->slots_count || m->slots[i].count != handle >> 32 || !m->slots[i].sink) return NULL;
    return &m->slots[i];
}

void models_release(struct models *m, uint64_t handle)
{
    struct slot *s = find_slot(m, handle);
    if (!s) return;
    s->sink = NULL;
    struct model *model = s->model;
    model->open--;
    if (++s->count == 0) s->count = 1;
    s->next = m->slots_free;
    m->slots_free = (uint32_t)handle;
    m->handles_open--;
    if (!model->open && model->state == MODEL_UNLOADING) loader_wake(m);
}

void models_redirect(struct models *m, uint64_t handle, struct event_sink *sink)
{
    struct slot *s = find_slot(m, handle);
    if (s) s->sink = sink;
}

enum rose_status model_submit(struct model *m, const struct rose_request *r, uint64_t *id, struct rose_error *err)
{
    if (m->state == MODEL_UNLOADING) return status_set(err, ROSE_CANCELLED, "model \"%s\" is being unloaded", m->name);
    return m->null ? null_model_submit(m->null, r, id, err) : rose_submit(m->engine, r, id, err);
}

void model_cancel(struct model *m, uint64_t id)
{
    if (m->null) null_model_cancel(m->null, id);
    else rose_cancel(m->engine, id);
}

size_t model_text_limit(const struct model *m) { return ROSE_MAX((size_t)1 << 20, (size_t)m->info.context * 16); }

int model_event_fd(struct model *m) { return m->null ? null_model_fd(m->null) : rose_event_fd(m->engine); }

void model_stats(const struct model *m, struct rose_stats *out)
{
    if (m->null) null_model_stats(m->null, out);
    else rose_engine_stats(m->engine, out);
}

/* The null model is as fast as its reader, not faster. */
static bool reader_is_behind(void *user, uint64_t handle)
{
    struct slot *s = find_slot(user, handle);
    return s && s->sink->is_full && s->sink->is_full(s->sink);
}

static uint64_t ns(double seconds) { return seconds > 0 ? (uint64_t)(seconds * 1e9) : 0; }

void model_count(struct model *m, bool ok, double queued_s, double computed_s)
{
    struct model_counts *c = &m->counts;
    if (!ok) {
        c->fail++;
        c->fail_ns += ns(queued_s + computed_s);
        return;
    }
    c->success++;
    c->success_ns += ns(queued_s) + ns(computed_s);
    c->queue_ns += ns(queued_s);
    c->compute_ns += ns(computed_s);
}

static void count(struct model *model, const struct rose_event *e)
{
    struct timespec t;
    bool ok = e->finish != ROSE_FINISH_ERROR && e->finish != ROSE_FINISH_CANCELLED;
    clock_gettime(CLOCK_REALTIME, &t);
    model->counts.last_ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    model->counts.inferences += ok;
    if (model->info.tasks & ROSE_CAN_GENERATE) model_count(model, ok, e->queued_s, e->prefill_s + e->decode_s);
}

bool models_pump(struct models *m, struct model *model)
{
    static struct rose_event events[512];
    if (!model_is_up(model)) return false;
    size_t n = model->null ? null_model_events(model->null, events, ROSE_COUNT(events), reader_is_behind, m) : rose_events(model->engine, events, ROSE_COUNT(events), 0);
    for (size_t i = 0; i < n; i++) {
        struct slot *s = find_slot(m, events[i].user);
        if (events[i].kind == ROSE_EVENT_FINAL) count(model, &events[i]);
        if (s) s->sink->take(s->sink, s->part, &events[i]);
        if (!model_is_up(model)) return false; /* its last request has ended while it was being unloaded */
    }
    return n == ROSE_COUNT(events);
}

void models_drain(struct models *m)
{
    m->draining = true;
    for (int i = 0; i < m->count; i++)
        if (m->models[i].engine && !m->models[i].null) rose_engine_drain(m->models[i].engine);
}
