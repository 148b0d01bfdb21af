/* The way out: a bounded ring of events between the engine thread and the reader, with the bytes they carry. */
#ifndef ROSE_ENGINE_EVENTS_H
#define ROSE_ENGINE_EVENTS_H

#include <pthread.h>

#include "base/status.h"

/* An event in the ring: the public struct, whose pointers are resolved when it is read; the payload follows it:
 *
 *     [record | text | top | prompt tokens | prompt logprobs]   rounded up to 16 bytes
 */
struct events {
    pthread_mutex_t lock;
    pthread_cond_t readable, writable;
    char *ring;
    size_t capacity, head, tail; /* byte positions, ever growing; tail - head bytes are in use */
    char *read_buffer;           /* payloads of the last read */
    size_t read_capacity;
    int fd;                      /* eventfd: readable while events wait */
    bool closed;
    bool held, pushed; /* the writer's: see events_hold */
};

enum rose_status events_open(struct events *e, size_t capacity, struct rose_error *err);
void events_close(struct events *e);
/* Copy the event with all it points to into the ring; waits for room. Allocates only for an event larger than the ring can hold
 * beside others (prompt log-probabilities of a long prompt), never for tokens. */
void events_push(struct events *e, const struct rose_event *event);
/* Between these two readers are not woken, so that a step's events wake them once and not once each: with 32 sequences the reader
 * otherwise takes the core of a worker 32 times a step. A full ring wakes them all the same. Called by the writer. */
void events_hold(struct events *e);
void events_release(struct events *e);
/* rose_events. */
size_t events_read(struct events *e, struct rose_event *out, size_t n, int timeout_ms);
/* No more waiting: readers return, writers drop. */
void events_shut(struct events *e);

#endif
