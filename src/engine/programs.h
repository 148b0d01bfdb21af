/* The programs of an engine. The CPU has one forward for every step. On CUDA a forward is recorded once a bucket of rows:
 *
 *     decode   exactly one row a sequence: 1, 2, … 16, then in steps of 8, 32, …; steps are padded to their bucket with rows that do
 *              nothing, and the whole program is one graph, captured before the engine is ready
 *     shared   the same for steps whose sequences begin with the same pages (engine/cascade.h): attention reads those once. Few buckets
 *     mixed    prompts in chunks beside decode rows, any lengths up to the bucket: launches with dependent launch, never padded
 *
 * All of them share one block of intermediate memory: the device runs one at a time. */
#ifndef ROSE_ENGINE_PROGRAMS_H
#define ROSE_ENGINE_PROGRAMS_H

#include "device/program.h"

struct engine;

enum { ENGINE_MAX_DEPTH = 2, PROGRAMS_MAX = 96, PROGRAMS_SAMPLES = 4 };

struct programs_bucket {
    int32_t rows;
    bool decode, shared;
    struct program *program;
};

struct programs {
    struct programs_bucket bucket[PROGRAMS_MAX]; /* decode buckets ascending, shared ones ascending, then mixed ones ascending */
    int count, decodes, shareds;                 /* decodes: all that are graphs, the shared ones of them */
    struct program *fetch[ENGINE_MAX_DEPTH]; /* CUDA: a step's inputs, by its place in the pipeline */
    struct program *sample[ENGINE_MAX_DEPTH][PROGRAMS_SAMPLES]; /* by place (the results' address) and number of rows */
    int32_t sample_rows[PROGRAMS_SAMPLES];
    int samples, places;
    void *work; /* CUDA: intermediates of every forward */
    size_t work_bytes, graph_bytes;
    double draft_s, compile_s, record_s, wait_s, tune_s, graph_s; /* how long the parts of opening took; wait_s: for weights, when all else had been done */
    char tuned[600]; /* what measuring chose, for people */
    char products[160]; /* the same of cuBLASLt's algorithms */
};

/* The list of buckets and, on CUDA, drafts of all programs: every kernel is requested, *work_bytes is what they will share. Needs
 * options, limits and layout, no memory. */
enum rose_status programs_draft(struct engine *e, size_t *work_bytes, struct rose_error *err);
/* Record, share memory, capture graphs. */
enum rose_status programs_open(struct engine *e, struct rose_error *err);
/* programs_tune.c: which launches of the decode programs are dependent ones, by measuring; *changed: others than those recorded so. */
enum rose_status programs_tune(struct engine *e, bool *changed, struct rose_error *err);
void programs_close(struct engine *e);
/* The forward for a step of so many rows; decode: one row a sequence. programs_pick_shared: NULL where none is so large. */
const struct programs_bucket *programs_pick(const struct programs *p, int32_t rows, bool decode);
const struct programs_bucket *programs_pick_shared(const struct programs *p, int32_t rows);
struct program *programs_sample(const struct programs *p, int place, int32_t samples);
/* Bytes of all intermediates. */
size_t programs_bytes(const struct programs *p);

#endif
