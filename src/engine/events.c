#define _GNU_SOURCE
#include "engine/events.h"

#include "base/guard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct record {
    size_t bytes; /* with payload and padding */
    void *large;  /* payload outside the ring, freed when the next read begins */
    struct rose_event event;
};

static size_t values_bytes(const struct rose_event *e) { return e->values ? (size_t)e->rows * (size_t)e->cols * sizeof *e->values : 0; }
static size_t ids_bytes(const struct rose_event *e) { return e->value_ids ? (size_t)e->value_ids_count * sizeof *e->value_ids : 0; }

static size_t payload_bytes(const struct rose_event *e)
{
    size_t tops = (size_t)e->top_count;
    return size_round_up(e->text_bytes + 1, 16) + size_round_up(tops * sizeof *e->top, 16) +
           size_round_up((size_t)e->prompt_count * sizeof *e->prompt_tokens, 16) + size_round_up((size_t)e->prompt_count * sizeof *e->prompt_logprobs, 16) +
           size_round_up(e->message ? strlen(e->message) + 1 : 0, 16) + size_round_up(values_bytes(e), 16) + size_round_up(ids_bytes(e), 16);
}

static const void *put(char **at, const void *from, size_t bytes)
{
    void *place = *at;
    if (bytes) memcpy(place, from, bytes);
    *at += size_round_up(bytes, 16);
    return place;
}

/* Copy everything the event points to behind `at` and let it point there. */
static void pack(struct rose_event *e, char *at)
{
    char *text = at;
    if (e->text_bytes) memcpy(text, e->text, e->text_bytes);
    text[e->text_bytes] = '\0';
    e->text = text;
    at += size_round_up(e->text_bytes + 1, 16);
    e->top = e->top_count ? put(&at, e->top, (size_t)e->top_count * sizeof *e->top) : NULL;
    e->prompt_tokens = e->prompt_count ? put(&at, e->prompt_tokens, (size_t)e->prompt_count * sizeof *e->prompt_tokens) : NULL;
    e->prompt_logprobs = e->prompt_count ? put(&at, e->prompt_logprobs, (size_t)e->prompt_count * sizeof *e->prompt_logprobs) : NULL;
    if (e->message) e->message = put(&at, e->message, strlen(e->message) + 1);
    if (e->values) e->values = put(&at, e->values, values_bytes(e));
    if (e->value_ids) e->value_ids = put(&at, e->value_ids, ids_bytes(e));
}

enum rose_status events_open(struct events *e, size_t capacity, struct rose_error *err)
{
    *e = (struct events){.capacity = capacity, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    e->ring = malloc(capacity);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->readable, &attr);
    pthread_cond_init(&e->writable, NULL);
    pthread_condattr_destroy(&attr);
    if (e->fd < 0 || !e->ring) {
        events_close(e);
        return status_set(err, ROSE_NO_MEMORY, "no memory or descriptors for the event queue");
    }
    return ROSE_OK;
}

void events_shut(struct events *e)
{
    pthread_mutex_lock(&e->lock);
    e->closed = true;
    pthread_cond_broadcast(&e->readable);
    pthread_cond_broadcast(&e->writable);
    pthread_mutex_unlock(&e->lock);
}

/* A record never wraps: where the end of the ring is too short, a filler with bytes = rest and no event is left. */
static struct record *at(struct events *e, size_t position) { return (struct record *)(void *)(e->ring + position % e->capacity); }

static void skip_filler(struct events *e)
{
    size_t rest = e->capacity - e->head % e->capacity;
    if (e->head != e->tail && (rest < sizeof(struct record) || at(e, e->head)->bytes == 0)) e->head += rest;
}

void events_close(struct events *e)
{
    if (e->ring)
        for (skip_filler(e); e->head != e->tail; skip_filler(e)) {
            free(at(e, e->head)->large);
            e->head += at(e, e->head)->bytes;
        }
    free(e->ring);
    free(e->read_buffer);
    if (e->fd >= 0) close(e->fd);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->readable);
    pthread_cond_destroy(&e->writable);
    *e = (struct events){.fd = -1};
}

static void wake_fd(struct events *e)
{
    uint64_t one = 1;
    if (write(e->fd, &one, sizeof one) < 0 && errno != EAGAIN) return; /* the descriptor counts; a full counter is readable too */
}

void events_hold(struct events *e)
{
    e->held = true;
    e->pushed = false;
}

void events_release(struct events *e)
{
    e->held = false;
    if (!e->pushed) return;
    pthread_mutex_lock(&e->lock);
    pthread_cond_signal(&e->readable);
    if (e->head != e->tail) wake_fd(e); /* under the lock: a reader that empties the ring now must empty the counter too */
    pthread_mutex_unlock(&e->lock);
}

void events_push(struct events *e, const struct rose_event *event)
{
    size_t payload = payload_bytes(event);
    struct rose_event copy = *event;
    void *large = NULL;
    if (payload > e->capacity / 8) {
        guard_leave(); /* the one exception: an event as large as a long prompt's scores */
        large = malloc(payload);
        guard_enter();
        if (!large) { /* the event goes out without what does not fit */
            copy.prompt_count = copy.top_count = 0;
            if (copy.values) { /* an answer that is nothing but values has failed */
                copy.finish = ROSE_FINISH_ERROR, copy.status = ROSE_NO_MEMORY;
                copy.rows = copy.cols = copy.value_ids_count = 0;
                copy.values = NULL, copy.value_ids = NULL;
            }
            copy.text_bytes = 0;
            payload = payload_bytes(&copy);
        } else {
            pack(&copy, large);
        }
    }
    size_t bytes = size_round_up(sizeof(struct record), 16) + (large ? 0 : payload);
    pthread_mutex_lock(&e->lock);
    for (;;) {
        size_t rest = e->capacity - e->tail % e->capacity, need = bytes <= rest ? bytes : rest + bytes;
        if (e->closed || e->capacity - (e->tail - e->head) >= need) break;
        if (e->held && e->pushed) {
            pthread_cond_signal(&e->readable);
            wake_fd(e);
        }
        pthread_cond_wait(&e->writable, &e->lock);
    }
    if (e->closed) {
        pthread_mutex_unlock(&e->lock);
        free(large);
        return;
    }
    size_t rest = e->capacity - e->tail % e->capacity;
    if (bytes > rest) {
        if (rest >= sizeof(struct record)) at(e, e->tail)->bytes = 0;
        e->tail += rest;
    }
    struct record *r = at(e, e->tail);
    r->bytes = bytes;
    r->large = large;
    if (!large) pack(&copy, (char *)r + size_round_up(sizeof *r, 16));
    r->event = copy;
    bool was_empty = e->head == e->tail;
    e->tail += bytes;
    e->pushed = true;
    if (!e->held) pthread_cond_signal(&e->readable);
    if (!e->held && was_empty) wake_fd(e);
    pthread_mutex_unlock(&e->lock);
}

static bool wait_readable(struct events *e, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_ms > 0) {
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += timeout_ms % 1000 * 1000000L;
        if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    }
    while (e->head == e->tail && !e->closed) {
        if (timeout_ms == 0) return false;
        if (timeout_ms < 0) pthread_cond_wait(&e->readable, &e->lock);
        else if (pthread_cond_timedwait(&e->readable, &e->lock, &until) == ETIMEDOUT) break;
    }
    return e->head != e->tail;
}

/* Take records off the ring: first how many fit, then one copy of their bytes, so that the writer goes on at once. */
size_t events_read(struct events *e, struct rose_event *out, size_t n, int timeout_ms)
{
    size_t count = 0, bytes = 0;
    pthread_mutex_lock(&e->lock);
    if (!wait_readable(e, timeout_ms)) {
        pthread_mutex_unlock(&e->lock);
        return 0;
    }
    /* Payloads move to the read buffer; its size is found first. Larger payloads are kept on a list at its front. */
    size_t saved_head = e->head;
    for (skip_filler(e); count < n && e->head != e->tail; skip_filler(e)) {
        struct record *r = at(e, e->head);
        bytes += payload_bytes(&r->event);
        e->head += r->bytes;
        count++;
    }
    e->head = saved_head;
    if (bytes > e->read_capacity) {
        char *more = realloc(e->read_buffer, bytes * 2);
        if (!more) {
            pthread_mutex_unlock(&e->lock);
            return 0;
        }
        e->read_buffer = more;
        e->read_capacity = bytes * 2;
    }
    char *place = e->read_buffer;
    size_t i = 0;
    for (skip_filler(e); i < count; skip_filler(e)) {
        struct record *r = at(e, e->head);
        out[i] = r->event;
        pack(&out[i], place);
        place += payload_bytes(&r->event);
        free(r->large);
        e->head += r->bytes;
        i++;
    }
    uint64_t drained;
    if (e->head == e->tail && read(e->fd, &drained, sizeof drained) < 0 && errno != EAGAIN) count = i;
    pthread_cond_broadcast(&e->writable);
    pthread_mutex_unlock(&e->lock);
    return count;
}
