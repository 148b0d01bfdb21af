#define _GNU_SOURCE
#include "server/beside.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "base/stop.h"

struct beside_job {
    struct beside_job *next;
    struct lane *lane;
    int64_t due_us; /* of the monotonic clock */
    struct models *models;
    struct model *model;
    uint64_t handle; /* of the request */
    uint64_t keep;   /* a handle of its own: the model stays loaded while the thread is at it */
    struct arena memory;
    bool submits, chat, ids;
    struct rose_request request;
    struct str text;
    int flags;
    beside_work *work; /* instead of these, on `state` */
    void *state;
    void (*release)(void *state);
    atomic_bool dropped; /* nobody waits */
    atomic_bool stop;    /* the thread need not end it */
    beside_done *done;
    void *user;
    int part;
    /* The thread's until the loop has it back. */
    enum rose_status status;
    struct rose_error err;
    uint64_t id;
    int32_t *tokens;
    size_t count;
};

struct queue {
    struct beside_job *first, **last;
};

/* Long texts have a thread of their own, so that short ones never wait for one that is under way (a megabyte of one endless word takes a second). In a
 * lane the order is that of arrival, moved back by a microsecond a byte: behind six texts of a megabyte one of 20 kB is next, and a long one is passed
 * by short ones only for the second that it may take itself. */
enum { LANES = 2, LONG_BYTES = 128 << 10 };
struct lane {
    struct beside *beside;
    pthread_t thread;
    pthread_cond_t more;
    struct beside_job *waiting; /* by due_us */
    struct beside_job *running;
};

struct beside {
    pthread_mutex_t lock;
    struct lane lanes[LANES];
    int lanes_count; /* started */
    struct queue ended;
    bool stop;
    int fd;
};

static void put_waiting(struct lane *l, struct beside_job *j)
{
    struct beside_job **at = &l->waiting;
    while (*at && (*at)->due_us <= j->due_us) at = &(*at)->next;
    j->next = *at;
    *at = j;
}

static struct beside_job *take_waiting(struct lane *l)
{
    struct beside_job *j = l->waiting;
    if (j) l->waiting = j->next;
    return j;
}

static void put(struct queue *q, struct beside_job *j)
{
    j->next = NULL;
    *q->last = j;
    q->last = &j->next;
}

static struct beside_job *take(struct queue *q)
{
    struct beside_job *j = q->first;
    if (j && !(q->first = j->next)) q->last = &q->first;
    return j;
}

/* --- the thread ------------------------------------------------------------------------------------------------------------------------- */

static void tokenize(struct beside_job *j)
{
    size_t room = j->ids ? j->text.n / 2 + 64 : 0;
    for (;;) {
        free(j->tokens);
        j->tokens = j->ids ? malloc(room * sizeof *j->tokens) : NULL;
        if (j->ids && !j->tokens) {
            j->status = status_set(&j->err, ROSE_NO_MEMORY, "out of memory");
            return;
        }
        const struct rose_engine *e = j->model->engine;
        j->status = j->chat ? rose_tokenize_chat(e, j->text.p, j->text.n, j->tokens, room, &j->count, &j->err) : rose_tokenize(e, j->text.p, j->text.n, j->flags, j->tokens, room, &j->count, &j->err);
        if (j->status != ROSE_OK || !j->ids || j->count <= room) return;
        room = j->count;
    }
}

static void run(struct beside_job *j)
{
    stop_watch(&j->stop);
    if (atomic_load(&j->stop)) j->status = status_set(&j->err, ROSE_CANCELLED, "nobody waits for it");
    else if (j->work) j->status = j->work(j->state, j->model->engine, &j->err);
    else if (j->submits) j->status = rose_submit(j->model->engine, &j->request, &j->id, &j->err);
    else tokenize(j);
    stop_watch(NULL);
}

static void *thread_main(void *arg)
{
    struct lane *l = arg;
    struct beside *b = l->beside;
    pthread_mutex_lock(&b->lock);
    while (!b->stop) {
        struct beside_job *j = l->running = take_waiting(l);
        if (!j) {
            pthread_cond_wait(&l->more, &b->lock);
            continue;
        }
        pthread_mutex_unlock(&b->lock);
        run(j);
        pthread_mutex_lock(&b->lock);
        l->running = NULL;
        put(&b->ended, j);
        uint64_t one = 1;
        if (write(b->fd, &one, sizeof one) < 0) continue; /* full: it is readable already */
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* --- the loop --------------------------------------------------------------------------------------------------------------------------- */

enum rose_status beside_open(struct beside **out, struct rose_error *err)
{
    struct beside *b = calloc(1, sizeof *b);
    if (!b) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->ended.last = &b->ended.first;
    pthread_mutex_init(&b->lock, NULL);
    int failed = b->fd < 0 ? errno : 0;
    for (int i = 0; i < LANES; i++) {
        b->lanes[i].beside = b;
        pthread_cond_init(&b->lanes[i].more, NULL);
        if (!failed && !(failed = pthread_create(&b->lanes[i].thread, NULL, thread_main, &b->lanes[i]))) b->lanes_count++;
    }
    if (failed) {
        beside_close(b);
        return status_set(err, ROSE_IO, "cannot start a thread: %s", strerror(failed));
    }
    *out = b;
    return ROSE_OK;
}

int beside_fd(const struct beside *b) { return b->fd; }

static void end(struct beside_job *j)
{
    bool dropped = atomic_load(&j->dropped);
    if (j->submits && dropped && j->status == ROSE_OK) model_cancel(j->model, j->id);
    if (dropped) models_release(j->models, j->handle);
    models_release(j->models, j->keep);
    if (j->status == ROSE_BUSY || j->status == ROSE_CANCELLED) { /* not the engine's word for it, which knows of no others */
        if (j->model->state == MODEL_UNLOADING) j->status = status_set(&j->err, ROSE_CANCELLED, "model \"%s\" is being unloaded", j->model->name);
        else if (j->models->draining) j->status = status_set(&j->err, ROSE_CANCELLED, "the server is shutting down");
    }
    if (!dropped) j->done(j->user, j->part, &(struct beside_result){j->status, &j->err, j->id, j->tokens, j->count});
    if (j->release) j->release(j->state);
    arena_free(&j->memory);
    free(j->tokens);
    free(j);
}

void beside_run(struct beside *b)
{
    uint64_t n;
    if (read(b->fd, &n, sizeof n) != sizeof n) return;
    for (;;) {
        pthread_mutex_lock(&b->lock);
        struct beside_job *j = take(&b->ended);
        pthread_mutex_unlock(&b->lock);
        if (!j) return;
        end(j);
    }
}

void beside_close(struct beside *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    for (int i = 0; i < LANES; i++) {
        if (b->lanes[i].running) atomic_store(&b->lanes[i].running->stop, true);
        pthread_cond_signal(&b->lanes[i].more);
    }
    pthread_mutex_unlock(&b->lock);
    for (int i = 0; i < b->lanes_count; i++) pthread_join(b->lanes[i].thread, NULL);
    for (int i = 0; i < LANES; i++) { /* no thread puts into `ended` any more */
        struct lane *l = &b->lanes[i];
        for (struct beside_job *j; (j = take_waiting(l)) != NULL; put(&b->ended, j)) j->status = ROSE_CANCELLED;
        pthread_cond_destroy(&l->more);
    }
    for (struct beside_job *j; (j = take(&b->ended)) != NULL; end(j)) atomic_store(&j->dropped, true);
    if (b->fd >= 0) close(b->fd);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void beside_leave(struct beside *b, const struct model *model)
{
    if (!b) return;
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &b->lanes[i];
        if (l->running && l->running->model == model) atomic_store(&l->running->stop, true);
        for (struct beside_job *j = l->waiting, *next, **at = &l->waiting; j; j = next) {
            next = j->next;
            if (j->model != model) {
                at = &j->next;
                continue;
            }
            *at = next;
            j->status = ROSE_CANCELLED;
            put(&b->ended, j);
        }
    }
    uint64_t one = 1;
    if (write(b->fd, &one, sizeof one) < 0) errno = 0; /* full: it is readable already */
    pthread_mutex_unlock(&b->lock);
}

static const void *copy(struct arena *a, const void *from, size_t bytes, bool *failed)
{
    if (!from) return NULL;
    void *to = arena_alloc(a, bytes + 1);
    if (!to) return *failed = true, NULL;
    memcpy(to, from, bytes);
    ((char *)to)[bytes] = '\0';
    return to;
}

static const char *copy_text(struct arena *a, const char *text, bool *failed) { return copy(a, text, text ? strlen(text) : 0, failed); }

/* The caller may be gone before the thread has read it. */
static bool copy_request(struct beside_job *j, const struct rose_request *from)
{
    struct rose_request *r = &j->request;
    struct arena *a = &j->memory;
    bool failed = false;
    *r = *from;
    r->prompt = copy(a, r->prompt, r->prompt_bytes, &failed);
    r->tokens = copy(a, r->tokens, r->tokens_count * sizeof *r->tokens, &failed);
    r->token_types = copy(a, r->token_types, r->tokens_count * sizeof *r->token_types, &failed);
    r->stop_ids = copy(a, r->stop_ids, r->stop_ids_count * sizeof *r->stop_ids, &failed);
    r->sampling.logit_bias = copy(a, r->sampling.logit_bias, r->sampling.logit_bias_count * sizeof *r->sampling.logit_bias, &failed);
    r->pair = copy(a, r->pair, r->pair_bytes, &failed);
    r->thought_open = copy_text(a, r->thought_open, &failed);
    r->thought_close = copy_text(a, r->thought_close, &failed);
    r->cache_salt = copy_text(a, r->cache_salt, &failed);
    r->prompt_name = copy_text(a, r->prompt_name, &failed);
    r->instruction = copy_text(a, r->instruction, &failed);
    const char **stops = r->stops_count ? ARENA_ARRAY(a, const char *, r->stops_count) : NULL;
    for (size_t i = 0; stops && i < r->stops_count; i++) stops[i] = copy_text(a, r->stops[i], &failed);
    failed |= r->stops_count && !stops;
    r->stops = stops;
    return !failed;
}

static struct beside_job *new_job(struct models *m, struct model *model, beside_done *done, void *user, int part)
{
    struct beside_job *j = m->beside && !model->null ? calloc(1, sizeof *j) : NULL;
    if (!j) return NULL;
    j->models = m;
    j->model = model;
    j->done = done;
    j->user = user;
    j->part = part;
    arena_init(&j->memory, 0);
    return j;
}

static void ignore(struct event_sink *sink, int part, const struct rose_event *event) { (void)sink, (void)part, (void)event; }
static struct event_sink nobody = {ignore, NULL};

static struct beside_job *start(struct beside_job *j, size_t bytes, bool failed)
{
    struct beside *b = j->models->beside;
    struct timespec now;
    j->keep = failed ? 0 : models_handle(j->models, j->model, &nobody, 0);
    if (!j->keep) {
        arena_free(&j->memory);
        free(j);
        return NULL;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    j->due_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + (int64_t)bytes;
    j->lane = &b->lanes[bytes >= LONG_BYTES];
    pthread_mutex_lock(&b->lock);
    put_waiting(j->lane, j);
    pthread_cond_signal(&j->lane->more);
    pthread_mutex_unlock(&b->lock);
    return j;
}

struct beside_job *beside_submit(struct models *m, struct model *model, const struct rose_request *r, beside_done *done, void *user, int part)
{
    struct beside_job *j = new_job(m, model, done, user, part);
    if (!j) return NULL;
    j->submits = true;
    j->handle = r->user;
    return start(j, r->prompt_bytes + r->pair_bytes, !copy_request(j, r));
}

struct beside_job *beside_tokenize(struct models *m, struct model *model, struct str text, bool chat, int flags, bool ids, beside_done *done, void *user)
{
    struct beside_job *j = new_job(m, model, done, user, 0);
    bool failed = false;
    if (!j) return NULL;
    j->chat = chat;
    j->flags = flags;
    j->ids = ids;
    j->text = (struct str){copy(&j->memory, text.p, text.n, &failed), text.n};
    return start(j, text.n, failed);
}

struct beside_job *beside_do(struct models *m, struct model *model, size_t bytes, beside_work *work, void *state, void (*release)(void *state), beside_done *done, void *user)
{
    struct beside_job *j = new_job(m, model, done, user, 0);
    if (!j) return NULL;
    j->work = work;
    j->state = state;
    if ((j = start(j, bytes, false)) != NULL) j->release = release;
    return j;
}

void beside_drop(struct beside_job *j)
{
    if (!j) return;
    atomic_store(&j->dropped, true);
    atomic_store(&j->stop, true);
    models_redirect(j->models, j->handle, &nobody);
}
