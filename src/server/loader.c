#define _GNU_SOURCE
#include "server/loader.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.h"
#include "server/beside.h"
#include "server/internal.h"
#include "server/model_config.h"

struct job {
    struct loader *loader;
    struct model *model;
    bool loads; /* else it closes `engine` */
    pthread_t thread;
    char *path;
    struct rose_engine_options options;
    struct rose_engine *engine;
    enum rose_status status;
    struct rose_error err;
    struct job *next;
};

struct loader {
    struct rose_device *device;
    int fd, running; /* threads not joined */
    pthread_mutex_t lock;
    struct job *finished;
};

enum rose_status loader_open(struct models *m, struct rose_error *err)
{
    struct loader *l = calloc(1, sizeof *l);
    if (!l) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->fd < 0) {
        free(l);
        return status_set(err, ROSE_IO, "no descriptors: %s", strerror(errno));
    }
    pthread_mutex_init(&l->lock, NULL);
    l->device = m->options->rose_device;
    m->loader = l;
    return ROSE_OK;
}

int loader_fd(const struct models *m) { return m->loader->fd; }

static void wake(struct loader *l)
{
    uint64_t one = 1;
    if (write(l->fd, &one, sizeof one) < 0) return; /* full: it is readable already */
}

void loader_wake(struct models *m)
{
    if (m->loader) wake(m->loader);
}

static void *thread_main(void *arg)
{
    struct job *j = arg;
    struct loader *l = j->loader;
    if (j->loads) j->status = rose_engine_open(l->device, &j->options, &j->engine, &j->err);
    else rose_engine_close(j->engine);
    pthread_mutex_lock(&l->lock);
    j->next = l->finished;
    l->finished = j;
    pthread_mutex_unlock(&l->lock);
    wake(l);
    return NULL;
}

static enum rose_status start(struct models *m, struct model *model, struct rose_engine *engine, struct rose_error *err)
{
    struct loader *l = m->loader;
    struct job *j = calloc(1, sizeof *j);
    if (!j || (!engine && !(j->path = strdup(model->path)))) {
        free(j);
        return status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    j->loader = l;
    j->model = model;
    j->engine = engine;
    j->loads = !engine;
    if (j->loads) {
        j->options = *m->options->engine;
        j->options.model = j->path;
        j->options.task = model->task;
        j->options.progress = NULL;
        j->options.memory_share = 0.5; /* another one may come */
    }
    int failed = pthread_create(&j->thread, NULL, thread_main, j);
    if (failed) {
        free(j->path);
        free(j);
        return status_set(err, ROSE_IO, "cannot start a thread: %s", strerror(failed));
    }
    l->running++;
    return ROSE_OK;
}

static void tell(struct model *model, enum rose_status status, const struct rose_error *err)
{
    struct model_wait *w = model->waits;
    model->waits = NULL;
    for (struct model_wait *next; w; w = next) {
        next = w->next;
        w->done(w, model, status, err);
    }
}

void loader_forget(struct model *model, struct model_wait *wait)
{
    for (struct model_wait **p = &model->waits; *p; p = &(*p)->next)
        if (*p == wait) {
            *p = wait->next;
            return;
        }
}

static void say_failed(struct model *model, const struct rose_error *err)
{
    model->state = MODEL_UNAVAILABLE;
    snprintf(model->reason, sizeof model->reason, "%.*s", (int)sizeof model->reason - 1, err->message);
}

/* Older versions leave when a newer one is ready. */
void loader_retire(struct models *m, const struct model *model)
{
    for (int i = 0; i < m->count; i++) {
        struct model *other = &m->models[i];
        if (other != model && other->state == MODEL_READY && !strcmp(other->name, model->name) && !versions_wanted(m, other)) loader_unload(m, other, NULL);
    }
}

/* Its config.pbtxt as it is now; one that is up keeps that of its loading. */
static enum rose_status read_config(struct model *model, struct rose_error *err)
{
    struct model_config *config = NULL;
    if (!model->repository) return ROSE_OK;
    ROSE_TRY(model_config_open(model->repository, model->name, &config, err));
    bool idle = model->state == MODEL_UNAVAILABLE;
    model_config_free(idle ? model->config : config);
    if (idle) model->config = config;
    return ROSE_OK;
}

static void say_config(const struct models *m, const struct model *model)
{
    struct strbuf b = {0};
    model_config_describe(model->config, model->map, &b);
    if (b.n) log_line(m->options, "info", "%s: %s", model->config->file, b.p);
    strbuf_free(&b);
}

static enum rose_status may_load(const struct models *m, struct model *model, struct rose_error *err)
{
    if (m->draining) return status_set(err, ROSE_CANCELLED, "the server is shutting down and loads no models");
    if (!m->options->engine || !model->path) return status_set(err, ROSE_UNSUPPORTED, "model \"%s\" cannot be loaded again: nothing says where it lies", model->name);
    return read_config(model, err);
}

/* Its engine is closed. */
static void unloaded(struct models *m, struct model *model)
{
    struct rose_error err = {0};
    bool again = model->again;
    model->again = false;
    model->state = MODEL_UNAVAILABLE;
    snprintf(model->reason, sizeof model->reason, "unloaded");
    if (!again) return;
    enum rose_status s = may_load(m, model, &err);
    if (s == ROSE_OK) s = start(m, model, NULL, &err);
    if (s == ROSE_OK) model->state = MODEL_LOADING;
    else tell(model, s, &err);
}

static void take(struct models *m, struct job *j)
{
    struct model *model = j->model;
    if (!j->loads) {
        unloaded(m, model);
        return;
    }
    if (j->status == ROSE_OK) {
        j->status = model_attach(m, model, j->engine, &j->err);
        model->owned = j->status == ROSE_OK;
        if (j->status != ROSE_OK) rose_engine_close(j->engine);
    }
    if (j->status == ROSE_OK) {
        say_config(m, model);
        loader_retire(m, model);
    } else {
        say_failed(model, &j->err);
    }
    tell(model, j->status, &j->err);
}

/* Models whose last request has ended. */
static void close_idle(struct models *m)
{
    for (int i = 0; i < m->count; i++) {
        struct model *model = &m->models[i];
        struct rose_error err;
        if (model->state != MODEL_UNLOADING || model->open || !model->engine) continue;
        bool owned = model->owned;
        struct rose_engine *engine = model_detach(m, model);
        if (owned && start(m, model, engine, &err) == ROSE_OK) continue; /* UNLOADING until it is closed */
        if (owned) rose_engine_close(engine);
        unloaded(m, model);
    }
}

void loader_run(struct models *m)
{
    struct loader *l = m->loader;
    uint64_t n;
    if (!l || read(l->fd, &n, sizeof n) != sizeof n) return;
    pthread_mutex_lock(&l->lock);
    struct job *j = l->finished;
    l->finished = NULL;
    pthread_mutex_unlock(&l->lock);
    for (struct job *next; j; j = next) {
        next = j->next;
        pthread_join(j->thread, NULL);
        l->running--;
        take(m, j);
        free(j->path);
        free(j);
    }
    close_idle(m);
}

void loader_close(struct models *m)
{
    struct loader *l = m->loader;
    if (!l) return;
    while (l->running) {
        loader_run(m);
        if (l->running) usleep(2000);
    }
    close(l->fd);
    pthread_mutex_destroy(&l->lock);
    free(l);
    m->loader = NULL;
}

enum rose_status loader_load(struct models *m, struct model *model, struct model_wait *wait, struct rose_error *err)
{
    ROSE_TRY(may_load(m, model, err));
    if (model->state == MODEL_UNAVAILABLE) {
        ROSE_TRY(start(m, model, NULL, err));
        model->state = MODEL_LOADING;
    }
    if (model->state == MODEL_UNLOADING) model->again = true; /* its requests under way end first */
    if (!wait) return ROSE_OK;
    if (model->state == MODEL_READY) {
        wait->done(wait, model, ROSE_OK, NULL);
        return ROSE_OK;
    }
    wait->next = model->waits;
    model->waits = wait;
    return ROSE_OK;
}

enum rose_status loader_load_now(struct models *m, struct model *model, double share, struct rose_error *err)
{
    struct rose_engine *engine;
    struct rose_engine_options o = *m->options->engine;
    o.model = model->path;
    o.task = model->task;
    o.memory_share = share;
    enum rose_status s = may_load(m, model, err);
    if (s == ROSE_OK) s = rose_engine_open(m->options->rose_device, &o, &engine, err);
    if (s == ROSE_OK && (s = model_attach(m, model, engine, err)) != ROSE_OK) rose_engine_close(engine);
    if (s != ROSE_OK) {
        say_failed(model, err);
        return s;
    }
    model->owned = true;
    say_config(m, model);
    return s;
}

enum rose_status loader_unload(struct models *m, struct model *model, struct rose_error *err)
{
    if (!m->loader) return status_set(err, ROSE_UNSUPPORTED, "models cannot be unloaded here");
    if (model->state == MODEL_LOADING || model->again) return status_set(err, ROSE_BUSY, "model \"%s\" is being loaded: unload it when that is done", model->name);
    if (model->state != MODEL_READY) return ROSE_OK;
    model->state = MODEL_UNLOADING;
    if (!model->null) rose_engine_drain(model->engine);
    beside_leave(m->beside, model);
    wake(m->loader); /* it may be idle: the loop looks */
    return ROSE_OK;
}
