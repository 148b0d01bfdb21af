/* The engine: one thread that owns a model's cache and turns requests into events, step by step.
 *
 *     submit -> intake queue -> waiting (ordered) -> running (a slot each) -> ended
 *     step:  plan (scheduler.c) -> fill a batch (step.c) -> submit forward and sample programs -> collect (collect.c) -> events
 *
 * Up to `depth` steps are in flight: with 2 the host plans and fills step N + 1 while N runs and sees tokens one step late;
 * with 1 (the CPU, where host and device are the same cores) it sees them at once. Nothing else differs.
 */
#ifndef ROSE_ENGINE_ENGINE_H
#define ROSE_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/kv_pages.h"
#include "cache/prefix.h"
#include "engine/batch.h"
#include "engine/events.h"
#include "engine/pace.h"
#include "engine/programs.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/staging.h"
#include "model/model.h"

enum { ENGINE_PAGE_TOKENS = 32, ENGINE_NO_STRETCH = 1000 };

struct engine_options {
    int32_t context, max_sequences, max_waiting, step_tokens, prefill_tokens, depth;
    enum dtype kv;
    size_t kv_bytes;
    double memory_share; /* rose_engine_options */
    size_t cache_ready;  /* rose_engine_options */
    double stretch;       /* rose_engine_options.step_stretch */
    size_t reserve_bytes; /* of the device's memory, for intermediates and graphs */
    bool deterministic, no_prefix_cache;
    size_t share_bytes; /* CUDA: keys and values of a layer that reading common pages once must spare (cascade.h); 0: 96 MB */
    bool tune; /* CUDA: measure before the first request (programs_tune.c) */
};

/* Rows of one sequence in a step. */
struct step_entry {
    struct sequence *sequence;
    int32_t rows, first_position;
    int32_t sample, samples; /* its sampled rows in the step's output */
    bool draws;              /* the last sampled row draws a token */
};

struct step {
    struct extents extents;
    struct step_entry *entries; /* [max_sequences] */
    int32_t entries_count, prefill_rows, decode_rows;
    void *staging;              /* inputs, host memory */
    struct fetch_segment *segments; /* CUDA: in staging, and how far it is filled (staging.c) */
    size_t segments_count;
    int32_t admitted, spare, pages;
    bool shares;                /* its sequences' common pages are read once (cascade.h) */
    struct sample_output *results; /* host memory */
    struct device_event done;
    double begun_s;
};

/* Counters that other threads read. */
struct engine_counters {
    pthread_mutex_t lock;
    struct rose_stats stats;
    double last_step_at_s, busy_since_s;
    struct rose_step recent[ROSE_STEPS_KEPT]; /* step i at i % ROSE_STEPS_KEPT */
};

struct engine {
    struct engine_options options;
    struct model *model;
    const struct tokenizer *tokenizer;
    struct device *device;
    struct request_limits limits;
    struct sched_limits sched;
    struct pace pace;
    /* cache */
    struct op_cache cache;
    size_t pool_bytes, touched; /* touched: bytes from its begin on that the system has given */
    struct kv_pages pages;
    struct prefix prefix;
    /* programs and their memory */
    struct programs programs;
    struct batch_layout layout;
    void *inputs;
    float *logits;
    struct sample_output *results;
    int32_t *history, *history_length, *prompt_length; /* [slots, history_stride], [slots], [slots] */
    size_t logits_bytes, results_bytes, history_bytes, staging_bytes;
    int64_t history_stride;
    bool direct; /* CPU, depth 1: the host writes and reads the device's blocks themselves */
    bool fetches; /* CUDA: a kernel fetches inputs, results are written to host memory */
    struct step steps[ENGINE_MAX_DEPTH];
    uint64_t submitted, collected; /* steps */
    uint64_t shared; /* of those submitted: steps that read common pages once */
    /* sequences; owned by the engine thread */
    struct sequence **slots; /* [max_sequences] */
    int32_t running;
    struct sequence *wait_first, *wait_last;
    int32_t waiting;
    struct request *live; /* list of requests with open sequences */
    struct sched_seq *plan; /* [max_sequences * 2] */
    struct sequence **planned;
    int32_t *order;
    int32_t plan_capacity;
    uint64_t arrivals;
    /* the way in */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct request *intake_first, *intake_last;
    uint64_t *cancels; /* ids to cancel, [cancels_count] */
    size_t cancels_count, cancels_capacity;
    int32_t queued; /* accepted and not running: bounded by max_waiting */
    uint64_t next_id;
    bool stop, draining, started, failed;
    struct rose_error failure;
    struct events events;
    struct engine_counters counters;
};

/* Memory plan before anything is taken. */
struct engine_plan {
    int32_t context, pages, page_tokens;
    size_t page_bytes, pool_bytes, work_bytes, history_bytes, inputs_bytes, logits_bytes;
};
enum rose_status engine_plan(const struct model_config *config, const struct device_info *info, size_t weights_bytes, struct engine_options *options,
                             struct engine_plan *out, struct rose_error *err);

/* The model and tokenizer stay the caller's and must outlive the engine. Options are completed in place. */
enum rose_status engine_open(struct model *model, const struct tokenizer *tokenizer, struct engine_options *options, struct engine **out, struct rose_error *err);
void engine_close(struct engine *engine);
enum rose_status engine_submit(struct engine *engine, const struct rose_request *in, const int32_t *tokens, size_t count, uint64_t *id, struct rose_error *err);
void engine_cancel(struct engine *engine, uint64_t id);
void engine_stats(struct engine *engine, struct rose_stats *out);
/* rose_engine_steps. */
size_t engine_steps(struct engine *engine, uint64_t after, struct rose_step *steps, size_t n);
void engine_drain(struct engine *engine);

/* --- between the engine's own files ------------------------------------------------------------------------------------- */

double engine_now(void); /* monotonic seconds */
/* step.c: plan and submit one step; false when there is nothing to compute. */
bool step_submit(struct engine *e);
/* collect.c: wait for the oldest step in flight and hand out its tokens. */
void step_collect(struct engine *e);
/* End a sequence: events, pages, slot. */
void sequence_end(struct engine *e, struct sequence *s, enum rose_finish finish, enum rose_status status, const char *message);
/* paging.c */
/* Nothing is to do: a piece of the pool beyond what was used is taken from the system. False: enough of it is there. */
bool paging_touch(struct engine *e);
bool paging_reserve(struct engine *e, struct sequence *s, int32_t tokens);   /* blocks for so many tokens */
void paging_start(struct engine *e, struct sequence *s);                     /* take what the prefix tree has */
void paging_publish(struct engine *e, struct sequence *s);                   /* full blocks into the tree */
void paging_pass_windows(struct engine *e, struct sequence *s);              /* give up what no query will see again */
void paging_release(struct engine *e, struct sequence *s);                   /* everything */
int32_t paging_probe(struct engine *e, struct sequence *s, int32_t *idle);    /* waiting: blocks the tree would give */
int32_t paging_pages(const struct engine *e, const struct sequence *s);      /* pages that release would free */
/* engine.c */
void sequence_requeue(struct engine *e, struct sequence *s); /* preempted: waits again, all it knows kept */
void engine_wait_queue_insert(struct engine *e, struct sequence *s);
void engine_wait_queue_remove(struct engine *e, struct sequence *s);
void engine_fail(struct engine *e, const struct rose_error *err); /* the device is gone: end everything */

#endif
