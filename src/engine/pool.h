/* The engine of models that embed, classify and score: whole texts in ragged batches, no cache, one forward an answer.
 *
 *     submit -> intake list -> heap, ordered by (priority, tag, arrival) -> batch under a token budget -> forward -> events
 *
 * Fairness is start-time fair queueing (Goyal, Vin & Cheng 1996): a text's tag is the virtual time at which its group may start it, and a
 * group's next text comes a text's tokens later. A group of a thousand texts so takes turns with those that arrive meanwhile. A batch
 * starts as soon as the device is idle: waiting for company would only delay.
 */
#ifndef ROSE_ENGINE_POOL_H
#define ROSE_ENGINE_POOL_H

#include <pthread.h>

#include "engine/events.h"
#include "engine/pool_memory.h"
#include "engine/pool_queue.h"
#include "model/model.h"

struct pool_options {
    int32_t context;     /* tokens of one text at most; completed to what the model takes */
    int32_t max_waiting; /* texts */
    int32_t step_tokens; /* budget of a batch; a longer text runs alone */
    int32_t max_sequences; /* texts of a batch */
    bool deterministic;
};

struct pool {
    struct pool_options options;
    struct model *model;
    struct device *device;
    struct pool_memory memory; /* programs, inputs, outputs */
    float *scratch;      /* an answer under way: the longest there is */
    int32_t *scratch_ids;
    struct pool_request **batch; /* [max_sequences] */
    int32_t batch_count, batch_rows;
    struct pool_queue queue;     /* the engine thread's own */
    /* the way in */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct pool_request *intake_first, *intake_last;
    uint64_t *cancels;
    size_t cancels_count, cancels_capacity;
    int32_t queued; /* accepted and not started */
    uint64_t next_id;
    bool stop, draining, started, failed;
    struct rose_error failure;
    struct events events;
    /* what others read */
    pthread_mutex_t counters_lock;
    struct rose_stats stats;
    double last_step_at_s, busy_since_s;
    struct rose_step recent[ROSE_STEPS_KEPT];
};

/* What a request wants, with the model's defaults put in. */
struct pool_wish {
    enum rose_task task;
    enum op_pooling pooling;
    bool per_token, sparse, normalize;
    enum head_activation activation;
    int32_t dimensions; /* 0: all */
    int32_t skip;       /* leading tokens that do not count in the pooling */
    int32_t special[4], special_count; /* sparse: the tokenizer's own tokens never count */
};

enum rose_status pool_open(struct model *model, struct pool_options *options, struct pool **out, struct rose_error *err);
void pool_close(struct pool *pool);
/* tokens[count] and types[count] (NULL: all zero) are copied. */
enum rose_status pool_submit(struct pool *pool, const struct rose_request *in, const struct pool_wish *wish, const int32_t *tokens, const uint32_t *types, size_t count,
                             uint64_t *id, struct rose_error *err);
void pool_cancel(struct pool *pool, uint64_t id);
void pool_stats(struct pool *pool, struct rose_stats *out);
size_t pool_steps(struct pool *pool, uint64_t after, struct rose_step *steps, size_t n);
void pool_drain(struct pool *pool);

/* --- between its files ----------------------------------------------------------------------------------------------------- */

double engine_now(void); /* monotonic seconds (engine.c) */
/* pool_step.c: one batch from the queue. */
enum rose_status pool_step_open(struct pool *pool, struct rose_error *err);
void pool_step_close(struct pool *pool);
void pool_step_run(struct pool *pool);
/* The final event of a request, which is freed. */
void pool_end(struct pool *pool, struct pool_request *r, struct rose_event *event);

#endif
