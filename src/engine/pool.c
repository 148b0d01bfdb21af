/* The pool engine's life: open, the loop of its thread, the way in, close. */
#include "engine/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/histogram.h"
#include "engine/pool_request.h"

enum { EVENT_RING_BYTES = 8 << 20, DEFAULT_WAITING = 1 << 16, DEFAULT_STEP = 1024, DEFAULT_SEQUENCES = 256, CUDA_STEP = 8192, CUDA_SEQUENCES = 1024, LONGEST = 32768 };

/* --- the way in ---------------------------------------------------------------------------------------------------------------- */

static enum rose_status check(const struct pool *p, const struct pool_wish *wish, const int32_t *tokens, size_t count, struct rose_error *err)
{
    if (!count) return status_set(err, ROSE_INVALID, "the text is empty: it must have at least one token");
    if (count > (size_t)p->options.context)
        return status_set(err, ROSE_LIMIT, "the text has %zu tokens and the model takes %d at most; shorten it or ask for truncation", count, p->options.context);
    int32_t vocabulary = p->model->config.vocabulary;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return status_set(err, ROSE_INVALID, "token %zu is %d; the vocabulary has 0 to %d", i, tokens[i], vocabulary - 1);
    if ((unsigned)wish->pooling >= OP_POOL_COUNT) return status_set(err, ROSE_INVALID, "unknown pooling %d", (int)wish->pooling);
    return ROSE_OK;
}

static struct pool_request *make(const struct pool *p, const struct rose_request *in, const struct pool_wish *wish, const int32_t *tokens, const uint32_t *types,
                                 size_t count)
{
    struct pool_request *r = malloc(sizeof *r + count * (types ? 2 : 1) * sizeof *tokens);
    if (!r) return NULL;
    *r = (struct pool_request){.user = in->user, .group = in->group, .priority = in->priority, .count = (int32_t)count, .wish = *wish, .submitted_s = engine_now()};
    r->deadline_s = in->deadline_ms > 0 ? r->submitted_s + (double)in->deadline_ms * 1e-3 : 0;
    memcpy(r->tokens, tokens, count * sizeof *tokens);
    if (!types) return r;
    r->types = r->tokens + count;
    for (size_t i = 0; i < count; i++) r->types[i] = (int32_t)ROSE_MIN(types[i], (uint32_t)ROSE_MAX(p->model->config.types - 1, 0));
    return r;
}

enum rose_status pool_submit(struct pool *p, const struct rose_request *in, const struct pool_wish *wish, const int32_t *tokens, const uint32_t *types, size_t count,
                             uint64_t *id, struct rose_error *err)
{
    ROSE_TRY(check(p, wish, tokens, count, err));
    struct pool_request *r = make(p, in, wish, tokens, p->model->config.types ? types : NULL, count);
    if (!r) return status_set(err, ROSE_NO_MEMORY, "no memory for a text of %zu tokens", count);
    enum rose_status s = ROSE_OK;
    pthread_mutex_lock(&p->lock);
    if (p->failed) s = status_set(err, ROSE_DEVICE, "the engine has failed and takes no requests: %s", p->failure.message);
    else if (p->stop || p->draining) s = status_set(err, ROSE_BUSY, "the engine is shutting down and takes no new requests");
    else if (p->queued >= p->options.max_waiting) s = status_set(err, ROSE_BUSY, "%d texts wait already, which is the limit; try again later", p->queued);
    if (s != ROSE_OK) {
        pthread_mutex_unlock(&p->lock);
        free(r);
        return s;
    }
    r->id = *id = p->next_id++;
    p->queued++;
    if (p->intake_last) p->intake_last->next = r;
    else p->intake_first = r;
    p->intake_last = r;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    return ROSE_OK;
}

void pool_cancel(struct pool *p, uint64_t id)
{
    pthread_mutex_lock(&p->lock);
    if (p->cancels_count == p->cancels_capacity) {
        size_t cap = p->cancels_capacity ? p->cancels_capacity * 2 : 64;
        uint64_t *more = realloc(p->cancels, cap * sizeof *more);
        if (more) p->cancels = more, p->cancels_capacity = cap;
    }
    if (p->cancels_count < p->cancels_capacity) p->cancels[p->cancels_count++] = id;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

/* --- ends ------------------------------------------------------------------------------------------------------------------------ */

void pool_end(struct pool *p, struct pool_request *r, struct rose_event *e)
{
    double now = engine_now(), started = r->started_s ? r->started_s : now;
    e->kind = ROSE_EVENT_FINAL;
    e->id = r->id;
    e->user = r->user;
    e->token = e->stop_token = e->stop_index = -1;
    e->prompt_tokens_count = r->count;
    e->queued_s = started - r->submitted_s;
    e->prefill_s = now - started;
    pthread_mutex_lock(&p->counters_lock);
    struct rose_stats *s = &p->stats;
    s->finished++;
    s->running -= r->started_s > 0;
    s->cancelled += e->finish == ROSE_FINISH_CANCELLED || e->finish == ROSE_FINISH_DEADLINE;
    s->failed += e->finish == ROSE_FINISH_ERROR;
    histogram_observe(&s->end_to_end, now - r->submitted_s);
    histogram_observe(&s->queue_time, e->queued_s);
    pthread_mutex_unlock(&p->counters_lock);
    if (!r->started_s) {
        pthread_mutex_lock(&p->lock);
        p->queued--;
        pthread_mutex_unlock(&p->lock);
    }
    events_push(&p->events, e);
    free(r);
}

struct sweep {
    struct pool *pool;
    const uint64_t *ids; /* sorted */
    size_t count;
    double now;
};

static bool is_cancelled(void *arg, struct pool_request *r)
{
    const struct sweep *s = arg;
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->ids[middle] < r->id) low = middle + 1;
        else high = middle;
    }
    return low < s->count && s->ids[low] == r->id;
}

static bool is_late(void *arg, struct pool_request *r) { return r->deadline_s && r->deadline_s <= ((struct sweep *)arg)->now; }
static bool is_any(void *arg, struct pool_request *r) { return (void)arg, (void)r, true; }

static void end_cancelled(void *arg, struct pool_request *r) { pool_end(((struct sweep *)arg)->pool, r, &(struct rose_event){.finish = ROSE_FINISH_CANCELLED}); }
static void end_late(void *arg, struct pool_request *r) { pool_end(((struct sweep *)arg)->pool, r, &(struct rose_event){.finish = ROSE_FINISH_DEADLINE}); }
static void end_failed(void *arg, struct pool_request *r)
{
    struct pool *p = ((struct sweep *)arg)->pool;
    pool_end(p, r, &(struct rose_event){.finish = ROSE_FINISH_ERROR, .status = ROSE_DEVICE, .message = p->failure.message});
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* --- the loop -------------------------------------------------------------------------------------------------------------------- */

static void take_in(struct pool *p, struct pool_request *r)
{
    for (struct pool_request *next; r; r = next) {
        next = r->next;
        pthread_mutex_lock(&p->counters_lock);
        p->stats.requests++;
        pthread_mutex_unlock(&p->counters_lock);
        if (!pool_queue_add(&p->queue, r, r->priority, r->group, r->count))
            pool_end(p, r, &(struct rose_event){.finish = ROSE_FINISH_ERROR, .status = ROSE_NO_MEMORY, .message = "no memory for the queue"});
    }
}

/* Take what came in; sleep while there is nothing to do. False: stop. */
static bool intake(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->stop && !p->intake_first && !p->cancels_count && !p->queue.count) pthread_cond_wait(&p->wake, &p->lock);
    struct pool_request *r = p->intake_first;
    p->intake_first = p->intake_last = NULL;
    uint64_t *cancels = p->cancels;
    size_t cancels_count = p->cancels_count;
    p->cancels = NULL;
    p->cancels_count = p->cancels_capacity = 0;
    bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    take_in(p, r); /* cancels name requests that came in before them */
    struct sweep sweep = {.pool = p, .ids = cancels, .count = cancels_count, .now = engine_now()};
    if (cancels_count) {
        qsort(cancels, cancels_count, sizeof *cancels, by_id);
        pool_queue_remove(&p->queue, is_cancelled, &sweep, end_cancelled);
    }
    free(cancels);
    pool_queue_remove(&p->queue, is_late, &sweep, end_late);
    return !stop;
}

static void show_state(struct pool *p, bool busy)
{
    pthread_mutex_lock(&p->counters_lock);
    if (!busy) p->busy_since_s = 0;
    else if (!p->busy_since_s) p->busy_since_s = engine_now();
    p->stats.running = p->batch_count;
    p->stats.waiting = (int)p->queue.count;
    pthread_mutex_unlock(&p->counters_lock);
}

static void *thread_main(void *arg)
{
    struct pool *p = arg;
    while (intake(p)) {
        show_state(p, p->queue.count > 0);
        if (p->queue.count && !p->failed) pool_step_run(p);
        if (p->failed) pool_queue_remove(&p->queue, is_any, &(struct sweep){.pool = p}, end_failed);
        show_state(p, p->queue.count > 0);
    }
    pool_queue_remove(&p->queue, is_any, &(struct sweep){.pool = p}, end_cancelled);
    return NULL;
}

/* --- open and close ---------------------------------------------------------------------------------------------------------------- */

static enum rose_status complete(const struct model_config *c, bool cuda, struct pool_options *o, struct rose_error *err)
{
    if (o->context < 0 || o->max_waiting < 0 || o->step_tokens < 0 || o->step_tokens > 1 << 20 || o->max_sequences < 0 || o->max_sequences > 4096)
        return status_set(err, ROSE_INVALID, "an engine limit is out of range: context %d, texts of a batch %d (at most 4096), tokens of a batch %d (at most %d)", o->context,
                          o->max_sequences, o->step_tokens, 1 << 20);
    int32_t most = c->head.longest ? ROSE_MIN(c->head.longest, c->context) : c->context;
    if (o->context > c->context)
        return status_set(err, ROSE_LIMIT, "a context of %d tokens is more than the %d that the model has positions for", o->context, c->context);
    if (!o->context) o->context = ROSE_MIN(most, LONGEST);
    if (!o->max_waiting) o->max_waiting = DEFAULT_WAITING;
    if (!o->step_tokens) o->step_tokens = cuda ? CUDA_STEP : DEFAULT_STEP;
    if (!o->max_sequences) o->max_sequences = cuda ? CUDA_SEQUENCES : DEFAULT_SEQUENCES;
    return ROSE_OK;
}

static enum rose_status start(struct pool *p, struct pool_options *options, struct rose_error *err)
{
    if (!p->model->config.own_rows) return status_set(err, ROSE_UNSUPPORTED, "this model generates text: it neither embeds, classifies nor scores");
    ROSE_TRY(complete(&p->model->config, p->device->info.kind == DEVICE_CUDA, options, err));
    p->options = *options;
    ROSE_TRY(pool_step_open(p, err));
    ROSE_TRY(events_open(&p->events, EVENT_RING_BYTES, err));
    int failed = pthread_create(&p->thread, NULL, thread_main, p);
    if (failed) return status_set(err, ROSE_IO, "cannot start the engine's thread: %s", strerror(failed));
    p->started = true;
    return ROSE_OK;
}

enum rose_status pool_open(struct model *model, struct pool_options *options, struct pool **out, struct rose_error *err)
{
    struct pool *p = calloc(1, sizeof *p);
    if (!p) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    p->model = model;
    p->device = model->device;
    p->next_id = 1;
    p->events.fd = -1;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_mutex_init(&p->counters_lock, NULL);
    enum rose_status s = start(p, options, err);
    if (s != ROSE_OK) {
        pool_close(p);
        return s;
    }
    *out = p;
    return ROSE_OK;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    if (p->started) {
        pthread_mutex_lock(&p->lock);
        p->stop = true;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
        events_shut(&p->events);
        pthread_join(p->thread, NULL);
    }
    for (struct pool_request *r = p->intake_first, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    if (p->events.ring) events_close(&p->events);
    pool_step_close(p);
    pool_queue_free(&p->queue);
    free(p->cancels);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->counters_lock);
    free(p);
}

void pool_stats(struct pool *p, struct rose_stats *out)
{
    pthread_mutex_lock(&p->counters_lock);
    *out = p->stats;
    double since = ROSE_MAX(p->last_step_at_s, p->busy_since_s);
    out->seconds_since_step = p->busy_since_s ? engine_now() - since : 0;
    pthread_mutex_unlock(&p->counters_lock);
    pthread_mutex_lock(&p->lock);
    if (p->intake_first) out->seconds_since_step = ROSE_MAX(out->seconds_since_step, engine_now() - p->intake_first->submitted_s);
    out->waiting = ROSE_MAX(out->waiting, p->queued);
    pthread_mutex_unlock(&p->lock);
}

size_t pool_steps(struct pool *p, uint64_t after, struct rose_step *steps, size_t n)
{
    size_t count = 0;
    pthread_mutex_lock(&p->counters_lock);
    uint64_t last = p->stats.steps, first = last > ROSE_STEPS_KEPT ? last - ROSE_STEPS_KEPT : 0;
    first = ROSE_MAX(first, after);
    if (last > n) first = ROSE_MAX(first, last - n);
    for (uint64_t i = first + 1; i <= last; i++) steps[count++] = p->recent[i % ROSE_STEPS_KEPT];
    pthread_mutex_unlock(&p->counters_lock);
    return count;
}

void pool_drain(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->draining = true;
    pthread_mutex_unlock(&p->lock);
}
