/* The engine's life: open, the loop of its thread, the way in, close. */
#define _GNU_SOURCE
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/guard.h"
#include "ops/sample.h"

enum { EVENT_RING_BYTES = 4 << 20, MAX_EDITS_A_ROW = 1024 + 8 + 64 };

double engine_now(void) { return clock_seconds(); }

/* --- the waiting queue: by (priority, arrival) ---------------------------------------------------------------------------------- */

void engine_wait_queue_insert(struct engine *e, struct sequence *s)
{
    struct sequence *after = e->wait_last;
    while (after && (after->request->priority > s->request->priority ||
                     (after->request->priority == s->request->priority && after->arrival > s->arrival)))
        after = after->older;
    s->older = after;
    s->newer = after ? after->newer : e->wait_first;
    if (s->newer) s->newer->older = s;
    else e->wait_last = s;
    if (after) after->newer = s;
    else e->wait_first = s;
    e->waiting++;
}

void engine_wait_queue_remove(struct engine *e, struct sequence *s)
{
    if (s->older) s->older->newer = s->newer;
    else e->wait_first = s->newer;
    if (s->newer) s->newer->older = s->older;
    else e->wait_last = s->older;
    s->older = s->newer = NULL;
    e->waiting--;
}

/* --- the way in -------------------------------------------------------------------------------------------------------------------- */

enum rose_status engine_submit(struct engine *e, const struct rose_request *in, const int32_t *tokens, size_t count, uint64_t *id, struct rose_error *err)
{
    struct request *r;
    ROSE_TRY(request_open(in, tokens, count, &e->limits, &r, err));
    int32_t most = r->prompt_count + r->max_tokens;
    r->submitted_s = engine_now();
    r->deadline_s = in->deadline_ms > 0 ? r->submitted_s + (double)in->deadline_ms * 1e-3 : 0;
    enum rose_status s = ROSE_OK;
    pthread_mutex_lock(&e->lock);
    if (e->failed) s = status_set(err, ROSE_DEVICE, "the engine has failed and takes no requests: %s", e->failure.message);
    else if (e->stop || e->draining) s = status_set(err, ROSE_BUSY, "the engine is shutting down and takes no new requests");
    else if (e->queued >= e->options.max_waiting) s = status_set(err, ROSE_BUSY, "%d requests wait already, which is the limit; try again later", e->queued);
    else if (sched_pages(&e->sched, most) > e->pages.total)
        s = status_set(err, ROSE_LIMIT, "%d tokens can never fit the key-value cache of %d pages", most, e->pages.total);
    if (s != ROSE_OK) {
        pthread_mutex_unlock(&e->lock);
        request_close(r);
        return s;
    }
    r->id = *id = e->next_id++;
    e->queued++;
    if (e->intake_last) e->intake_last->next = r;
    else e->intake_first = r;
    e->intake_last = r;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return ROSE_OK;
}

void engine_cancel(struct engine *e, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    if (e->cancels_count == e->cancels_capacity) {
        size_t cap = e->cancels_capacity ? e->cancels_capacity * 2 : 64;
        uint64_t *more = realloc(e->cancels, cap * sizeof *more);
        if (more) e->cancels = more, e->cancels_capacity = cap;
    }
    if (e->cancels_count < e->cancels_capacity) e->cancels[e->cancels_count++] = id;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

static void end_request(struct engine *e, struct request *r, enum rose_finish finish, enum rose_status status, const char *message)
{
    /* The last sequence's end may free the request: count down on a copy. */
    for (int i = 0, n = r->choices, open = r->open; i < n && open > 0; i++)
        if (r->sequences[i].state != SEQUENCE_ENDED) {
            open--;
            sequence_end(e, &r->sequences[i], finish, status, message);
        }
}

static void take_in(struct engine *e, struct request *r)
{
    r->previous = NULL;
    r->next = e->live;
    if (e->live) e->live->previous = r;
    e->live = r;
    for (int i = 0; i < r->choices; i++) {
        r->sequences[i].arrival = e->arrivals++;
        engine_wait_queue_insert(e, &r->sequences[i]);
    }
    pthread_mutex_lock(&e->counters.lock);
    e->counters.stats.requests++;
    pthread_mutex_unlock(&e->counters.lock);
}

static struct request *find(struct engine *e, uint64_t id)
{
    for (struct request *r = e->live; r; r = r->next)
        if (r->id == id && r->open) return r;
    return NULL;
}

static double earliest_deadline(const struct engine *e)
{
    double first = 0;
    for (const struct request *r = e->live; r; r = r->next)
        if (r->open && r->deadline_s && (!first || r->deadline_s < first)) first = r->deadline_s;
    return first;
}

static void expire(struct engine *e)
{
    double now = engine_now();
    for (struct request *r = e->live, *next; r; r = next) {
        next = r->next;
        if (r->open && r->deadline_s && r->deadline_s <= now) end_request(e, r, ROSE_FINISH_DEADLINE, ROSE_OK, NULL);
    }
}

/* Take what came in; sleep while there is nothing at all to do. False: stop. */
static bool intake(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->stop && !e->intake_first && !e->cancels_count && !e->wait_first && !e->running && e->submitted == e->collected) {
        pthread_mutex_unlock(&e->lock);
        bool more = paging_touch(e);
        pthread_mutex_lock(&e->lock);
        if (!more && !e->stop && !e->intake_first && !e->cancels_count) pthread_cond_wait(&e->wake, &e->lock);
    }
    struct request *r = e->intake_first;
    e->intake_first = e->intake_last = NULL;
    bool stop = e->stop;
    for (struct request *next; r; r = next) {
        next = r->next;
        take_in(e, r);
    }
    /* Cancels name requests that came in before them. Ending one takes the lock for its counters: copy the list's end out first. */
    while (e->cancels_count) {
        uint64_t id = e->cancels[--e->cancels_count];
        pthread_mutex_unlock(&e->lock);
        struct request *c = find(e, id);
        if (c) end_request(e, c, ROSE_FINISH_CANCELLED, ROSE_OK, NULL);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    if (earliest_deadline(e) > 0) expire(e);
    return !stop;
}

void engine_fail(struct engine *e, const struct rose_error *err)
{
    pthread_mutex_lock(&e->lock);
    e->failed = true;
    e->failure = *err;
    pthread_mutex_unlock(&e->lock);
    e->collected = e->submitted; /* nothing will come back */
    for (int32_t i = 0; i < e->options.max_sequences; i++)
        if (e->slots[i]) {
            e->slots[i]->in_flight = 0;
            if (e->slots[i]->ended_in_flight) e->slots[i] = NULL, e->running--;
        }
    for (struct request *r = e->live, *next; r; r = next) {
        next = r->next;
        end_request(e, r, ROSE_FINISH_ERROR, ROSE_DEVICE, err->message);
    }
}

static void *thread_main(void *arg)
{
    struct engine *e = arg;
    while (intake(e)) {
        pthread_mutex_lock(&e->counters.lock);
        if (!e->counters.busy_since_s) e->counters.busy_since_s = engine_now();
        e->counters.stats.running = e->running;
        e->counters.stats.waiting = e->waiting;
        e->counters.stats.pages_free = e->pages.free_count;
        e->counters.stats.pages_cached = e->prefix.idle_pages;
        pthread_mutex_unlock(&e->counters.lock);
        guard_enter();
        bool more = e->submitted - e->collected < (uint64_t)e->options.depth && step_submit(e);
        if (e->submitted > e->collected && (!more || e->submitted - e->collected == (uint64_t)e->options.depth)) step_collect(e);
        guard_leave();
        pthread_mutex_lock(&e->counters.lock);
        if (!e->running && !e->wait_first) e->counters.busy_since_s = 0;
        e->counters.stats.running = e->running;
        e->counters.stats.waiting = e->waiting;
        e->counters.stats.pages_free = e->pages.free_count;
        e->counters.stats.pages_cached = e->prefix.idle_pages;
        pthread_mutex_unlock(&e->counters.lock);
    }
    while (e->submitted > e->collected && !e->failed) step_collect(e);
    for (struct request *r = e->live, *next; r; r = next) {
        next = r->next;
        end_request(e, r, ROSE_FINISH_CANCELLED, ROSE_OK, NULL);
    }
    return NULL;
}

/* --- open and close ------------------------------------------------------------------------------------------------------------------ */

static void *take(struct engine *e, size_t bytes, struct rose_error *err) { return device_alloc(e->device, bytes, DEVICE_MEMORY_LOCAL, err); }

static void make_layout(struct engine *e, const struct engine_plan *plan)
{
    const struct engine_options *o = &e->options;
    const struct model_config *c = &e->model->config;
    struct batch_sizes sizes = {.rows = o->step_tokens, .seqs = o->max_sequences, .samples = e->sched.max_samples, .groups = c->groups_count,
                                .table_stride = (plan->context + plan->page_tokens - 1) / plan->page_tokens + 1,
                                .edits = MAX_EDITS_A_ROW * o->max_sequences,
                                .rope_half = rope_by_length(&c->ropes[0]) ? c->ropes[0].rotary_dim / 2 : 0};
    batch_layout_make(&sizes, &e->layout);
    e->pool_bytes = plan->pool_bytes;
    e->logits_bytes = (size_t)e->sched.max_samples * (size_t)c->vocabulary * sizeof(float);
    e->results_bytes = (size_t)e->sched.max_samples * sizeof(struct sample_output);
    e->history_stride = plan->context + 1;
    e->history_bytes = plan->history_bytes;
    e->cache = (struct op_cache){.page_bytes = plan->page_bytes, .dtype = o->kv, .page_tokens = plan->page_tokens};
}

/* Device memory that nobody wrote reads as zero: rows that pad a step look at it. */
static enum rose_status clear(struct engine *e, void *memory, size_t bytes, struct rose_error *err)
{
    if (e->device->info.kind == DEVICE_CPU) return ROSE_OK;
    void *zeros = calloc(1, bytes);
    if (!zeros) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = device_copy(e->device, memory, zeros, bytes, err);
    if (s == ROSE_OK) s = device_wait(e->device, NULL, err);
    free(zeros);
    return s;
}

static enum rose_status take_steps(struct engine *e, struct rose_error *err)
{
    size_t segments_at = 0;
    e->staging_bytes = e->layout.bytes;
    e->direct = e->device->info.kind == DEVICE_CPU && e->options.depth == 1;
    e->fetches = e->device->info.kind == DEVICE_CUDA;
    if (e->fetches) e->staging_bytes = staging_bytes(e, &segments_at);
    for (int i = 0; i < e->options.depth; i++) {
        struct step *step = &e->steps[i];
        step->staging = e->direct ? e->inputs : device_alloc(e->device, e->staging_bytes, DEVICE_MEMORY_HOST, err);
        step->results = e->direct ? e->results : device_alloc(e->device, e->results_bytes, DEVICE_MEMORY_HOST, err);
        step->entries = calloc((size_t)e->options.max_sequences, sizeof *step->entries);
        if (!step->staging || !step->results) return ROSE_NO_MEMORY;
        if (!step->entries) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        if (e->fetches) step->segments = (struct fetch_segment *)(void *)((char *)step->staging + segments_at);
        ROSE_TRY(device_record(e->device, &step->done, err)); /* makes the event before the loop */
    }
    return ROSE_OK;
}

static enum rose_status take_memory(struct engine *e, struct rose_error *err)
{
    const struct engine_options *o = &e->options;
    if (!(e->cache.pool = take(e, e->pool_bytes, err)) || !(e->logits = take(e, e->logits_bytes, err)) || !(e->results = take(e, e->results_bytes, err)) ||
        !(e->history = take(e, e->history_bytes, err)) || !(e->history_length = take(e, (size_t)o->max_sequences * 8, err)) || !(e->inputs = take(e, e->layout.bytes, err)))
        return ROSE_NO_MEMORY;
    e->prompt_length = e->history_length + o->max_sequences;
    ROSE_TRY(clear(e, e->inputs, e->layout.bytes, err));
    ROSE_TRY(clear(e, e->history_length, (size_t)o->max_sequences * 8, err));
    ROSE_TRY(take_steps(e, err));
    e->plan_capacity = o->max_sequences * 2;
    e->slots = calloc((size_t)o->max_sequences, sizeof *e->slots);
    e->plan = calloc((size_t)e->plan_capacity, sizeof *e->plan);
    e->planned = calloc((size_t)e->plan_capacity, sizeof *e->planned);
    e->order = calloc((size_t)e->plan_capacity, sizeof *e->order);
    return e->slots && e->plan && e->planned && e->order ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
}

static enum rose_status open_cache(struct engine *e, const struct engine_plan *plan, struct rose_error *err)
{
    const struct model_config *c = &e->model->config;
    int32_t windows[OP_MAX_GROUPS];
    for (int32_t g = 0; g < c->groups_count; g++) windows[g] = c->groups[g].window;
    ROSE_TRY(kv_pages_open(&e->pages, plan->pages, err));
    return prefix_open(&e->prefix, &e->pages, plan->page_tokens, c->groups_count, windows, plan->pages / c->groups_count, err);
}

static void set_limits(struct engine *e, const struct engine_plan *plan)
{
    const struct engine_options *o = &e->options;
    const struct model_config *c = &e->model->config;
    e->sched = (struct sched_limits){.step_tokens = o->step_tokens, .prefill_tokens = o->prefill_tokens, .max_running = o->max_sequences,
                                     .max_samples = ROSE_MAX(o->max_sequences, 16), .page_tokens = plan->page_tokens, .groups = c->groups_count};
    for (int32_t g = 0; g < c->groups_count; g++)
        if (c->groups[g].window) e->sched.group_blocks[g] = (c->groups[g].window + o->step_tokens) / plan->page_tokens + 2;
    pace_open(&e->pace, o->stretch, o->prefill_tokens);
    e->limits = (struct request_limits){.context = plan->context, .vocabulary = c->vocabulary, .groups = c->groups_count, .page_tokens = plan->page_tokens,
                                        .tokenizer = e->tokenizer};
}

static void apply_plan(struct engine *e, const struct engine_plan *plan, const struct engine_options *options)
{
    e->options = *options;
    set_limits(e, plan);
    make_layout(e, plan);
}

/* The cache is in the type of the model's step unless something else was asked for. */
static enum rose_status choose_kv(const struct model *m, struct engine_options *o, struct rose_error *err)
{
    if (m->device->info.kind != DEVICE_CUDA) return ROSE_OK;
    if (!o->kv) o->kv = m->element;
    if (o->kv == m->element || o->kv == DTYPE_F8_E4M3) return ROSE_OK;
    return status_set(err, ROSE_UNSUPPORTED, "a cache of %s: this model computes in %s on the GPU and its cache is of that type or of fp8 (--weights bf16 or f16 chooses the model's)",
                      dtype_info(o->kv)->name, dtype_info(m->element)->name);
}

/* On CUDA the drafts of the programs tell what they need, and the pool gets what is left of the memory there is now. */
static enum rose_status plan_memory(struct engine *e, struct engine_options *options, struct engine_plan *plan, struct rose_error *err)
{
    ROSE_TRY(choose_kv(e->model, options, err));
    struct engine_options asked = *options;
    struct device_info info = e->device->info;
    size_t weights = e->model->memory_bytes, work;
    /* What others on the device took is gone; these weights are there already (mapped ones were not taken: never more than there was). */
    size_t left = device_memory_free(e->device) + weights;
    info.memory_free = info.kind == DEVICE_CUDA ? left : ROSE_MIN(info.memory_free, left);
    ROSE_TRY(engine_plan(&e->model->config, &info, weights, options, plan, err));
    apply_plan(e, plan, options);
    ROSE_TRY(programs_draft(e, &work, err));
    if (info.kind != DEVICE_CUDA) return ROSE_OK;
    /* Sampling keeps a changed copy of each row of logits, a set of programs each; a graph of a thousand nodes takes some megabytes. */
    size_t sampling = e->logits_bytes * (size_t)(1 + options->depth) + e->logits_bytes / 8, graphs = (size_t)e->programs.decodes * (16 << 20);
    *options = asked;
    options->reserve_bytes = work + sampling + graphs + e->layout.bytes + ((size_t)64 << 20);
    ROSE_TRY(engine_plan(&e->model->config, &info, weights, options, plan, err));
    apply_plan(e, plan, options);
    return ROSE_OK;
}

static enum rose_status start(struct engine *e, struct engine_options *options, struct rose_error *err)
{
    struct engine_plan plan;
    ROSE_TRY(plan_memory(e, options, &plan, err));
    ROSE_TRY(take_memory(e, err));
    ROSE_TRY(open_cache(e, &plan, err));
    ROSE_TRY(programs_open(e, err));
    ROSE_TRY(events_open(&e->events, EVENT_RING_BYTES, err));
    e->counters.stats.pages_total = e->counters.stats.pages_free = e->pages.total;
    int failed = pthread_create(&e->thread, NULL, thread_main, e);
    if (failed) return status_set(err, ROSE_IO, "cannot start the engine's thread: %s", strerror(failed));
    e->started = true;
    return ROSE_OK;
}

enum rose_status engine_open(struct model *model, const struct tokenizer *tokenizer, struct engine_options *options, struct engine **out, struct rose_error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    e->model = model;
    e->tokenizer = tokenizer;
    e->device = model->device;
    e->next_id = 1;
    e->events.fd = -1;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    pthread_mutex_init(&e->counters.lock, NULL);
    enum rose_status s = start(e, options, err);
    if (s != ROSE_OK) {
        engine_close(e);
        return s;
    }
    *out = e;
    return ROSE_OK;
}

void engine_close(struct engine *e)
{
    if (!e) return;
    if (e->started) {
        pthread_mutex_lock(&e->lock);
        e->stop = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        events_shut(&e->events);
        pthread_join(e->thread, NULL);
    }
    while (e->intake_first) {
        struct request *next = e->intake_first->next;
        request_close(e->intake_first);
        e->intake_first = next;
    }
    if (e->events.ring) events_close(&e->events);
    programs_close(e);
    device_free(e->device, e->cache.pool, e->pool_bytes, DEVICE_MEMORY_LOCAL);
    device_free(e->device, e->logits, e->logits_bytes, DEVICE_MEMORY_LOCAL);
    device_free(e->device, e->results, e->results_bytes, DEVICE_MEMORY_LOCAL);
    device_free(e->device, e->history, e->history_bytes, DEVICE_MEMORY_LOCAL);
    device_free(e->device, e->history_length, (size_t)e->options.max_sequences * 8, DEVICE_MEMORY_LOCAL);
    device_free(e->device, e->inputs, e->layout.bytes, DEVICE_MEMORY_LOCAL);
    for (int i = 0; i < ENGINE_MAX_DEPTH; i++) {
        if (!e->direct) device_free(e->device, e->steps[i].staging, e->staging_bytes, DEVICE_MEMORY_HOST);
        if (!e->direct) device_free(e->device, e->steps[i].results, e->results_bytes, DEVICE_MEMORY_HOST);
        free(e->steps[i].entries);
    }
    prefix_close(&e->prefix);
    kv_pages_close(&e->pages);
    free(e->slots);
    free(e->plan);
    free(e->planned);
    free(e->order);
    free(e->cancels);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->counters.lock);
    free(e);
}

void engine_stats(struct engine *e, struct rose_stats *out)
{
    pthread_mutex_lock(&e->counters.lock);
    *out = e->counters.stats;
    double since = ROSE_MAX(e->counters.last_step_at_s, e->counters.busy_since_s);
    out->seconds_since_step = e->counters.busy_since_s ? engine_now() - since : 0;
    pthread_mutex_unlock(&e->counters.lock);
    pthread_mutex_lock(&e->lock);
    /* A thread that does not even take what has come is stuck too. */
    if (e->intake_first) out->seconds_since_step = ROSE_MAX(out->seconds_since_step, engine_now() - e->intake_first->submitted_s);
    out->waiting = ROSE_MAX(out->waiting, e->queued);
    out->lost = e->failed;
    pthread_mutex_unlock(&e->lock);
}

void engine_drain(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    pthread_mutex_unlock(&e->lock);
}

size_t engine_steps(struct engine *e, uint64_t after, struct rose_step *steps, size_t n)
{
    size_t count = 0;
    pthread_mutex_lock(&e->counters.lock);
    uint64_t last = e->counters.stats.steps, first = last > ROSE_STEPS_KEPT ? last - ROSE_STEPS_KEPT : 0;
    first = ROSE_MAX(first, after);
    if (last > n) first = ROSE_MAX(first, last - n);
    for (uint64_t i = first + 1; i <= last; i++) steps[count++] = e->counters.recent[i % ROSE_STEPS_KEPT];
    pthread_mutex_unlock(&e->counters.lock);
    return count;
}
