#include "engine/programs.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda_blas.h"
#include "engine/cascade.h"
#include "engine/engine.h"
#include "ops/fetch.h"
#include "ops/plan.h"
#include "ops/sample.h"
#include "ops/tokens.h"

static bool on_cuda(const struct engine *e) { return e->device->info.kind == DEVICE_CUDA; }

/* --- buckets ---------------------------------------------------------------------------------------------------------------- */

static void add_bucket(struct programs *p, int32_t rows, bool decode, bool shared)
{
    if (p->count == PROGRAMS_MAX) return;
    p->bucket[p->count++] = (struct programs_bucket){.rows = rows, .decode = decode, .shared = shared};
    if (decode) p->decodes = p->count;
    if (shared) p->shareds++;
}

static void list_buckets(struct engine *e)
{
    struct programs *p = &e->programs;
    int32_t most = e->options.max_sequences, step = e->options.step_tokens;
    p->count = p->decodes = p->shareds = 0;
    if (!on_cuda(e)) {
        add_bucket(p, step, false, false);
        p->samples = 1;
        p->sample_rows[0] = e->sched.max_samples;
        return;
    }
    for (int32_t n = 1; n < most; n += n < 16 ? 1 : n < 64 ? 8 : n < 256 ? 32 : n < 512 ? 64 : 256) add_bucket(p, n, true, false);
    add_bucket(p, most, true, false);
    for (int32_t n = CASCADE_LEAST; n < most && cascade_fits(e); n *= 2) add_bucket(p, n, true, true);
    if (most >= CASCADE_LEAST && cascade_fits(e)) add_bucket(p, most, true, true);
    for (int32_t n = 64; n < step; n *= 2) add_bucket(p, n, false, false);
    add_bucket(p, step, false, false);
    p->samples = 0;
    for (int32_t n = 1; n < e->sched.max_samples && p->samples < PROGRAMS_SAMPLES - 1; n *= 16) p->sample_rows[p->samples++] = n;
    p->sample_rows[p->samples++] = e->sched.max_samples;
}

const struct programs_bucket *programs_pick(const struct programs *p, int32_t rows, bool decode)
{
    int begin = decode ? 0 : p->decodes, end = decode ? p->decodes - p->shareds : p->count;
    for (int i = begin; i < end; i++)
        if (p->bucket[i].rows >= rows) return &p->bucket[i];
    return decode ? programs_pick(p, rows, false) : NULL;
}

const struct programs_bucket *programs_pick_shared(const struct programs *p, int32_t rows)
{
    for (int i = p->decodes - p->shareds; i < p->decodes; i++)
        if (p->bucket[i].rows >= rows) return &p->bucket[i];
    return NULL;
}

struct program *programs_sample(const struct programs *p, int place, int32_t samples)
{
    int i = 0;
    while (i < p->samples - 1 && p->sample_rows[i] < samples) i++;
    return p->sample[place][i];
}

/* --- recording --------------------------------------------------------------------------------------------------------------- */

static enum rose_status record_forward(struct engine *e, const struct programs_bucket *bucket, struct program *program, struct rose_error *err)
{
    struct batch b;
    struct forward f = {.cache = e->cache, .deterministic = e->options.deterministic};
    batch_view(&e->layout, e->inputs, &b);
    batch_step(&e->layout, program, e->inputs, &f.step);
    if (bucket->shared) cascade_step(e, program, &b, &f.step);
    if (on_cuda(e)) {
        int32_t n = bucket->rows;
        f.step.max_rows = n;
        f.step.max_seqs = ROSE_MIN(n, e->options.max_sequences);
        f.step.max_samples = ROSE_MIN(n, e->sched.max_samples);
        program->eager = true;
        program->expect = (struct extents){.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = n, [EXTENT_SEQS] = n, [EXTENT_SAMPLES] = n}};
        /* A mixed step has decode rows, too, or none: its output product is planned for many rows, which costs one row little. Planned for a few, it
         * read its weights anew for every few of 128 rows (Llama-3.1-8B: 4.5 ms of a step instead of 0.4). */
        enum { MIXED_SAMPLES = 128 };
        if (!bucket->decode) {
            program->expect.n[EXTENT_SEQS] = ROSE_MAX(1, ROSE_MIN(n / 512, f.step.max_seqs));
            program->expect.n[EXTENT_SAMPLES] = ROSE_MIN(MIXED_SAMPLES, f.step.max_samples);
        }
    }
    program_buffer_id history = program_external(program, "history", e->history, e->history_bytes);
    program_buffer_id row_history = program_external(program, "row_history", b.row_history, (size_t)e->layout.sizes.rows * 8);
    ROSE_TRY(op_tokens(program, &(struct op_tokens){history, row_history, f.step.positions, f.step.tokens}, err));
    f.logits = program_external(program, "logits", e->logits, e->logits_bytes);
    return forward_record(e->model, program, &f, err);
}

static enum rose_status record_sample(struct engine *e, int32_t rows, struct sample_output *results, struct program *program, struct rose_error *err)
{
    struct batch b;
    int32_t vocabulary = e->model->config.vocabulary, slots = e->options.max_sequences;
    batch_view(&e->layout, e->inputs, &b);
    if (on_cuda(e)) {
        program->eager = true;
        program->expect = (struct extents){.n = {[EXTENT_ONE] = 1, [EXTENT_SAMPLES] = rows}};
    }
    struct op_sample s = {.logits = {program_external(program, "logits", e->logits, e->logits_bytes), DTYPE_F32, EXTENT_SAMPLES, vocabulary, vocabulary, 0},
                          .rows = program_external(program, "sample_rows", b.sample_row, (size_t)e->layout.sizes.samples * sizeof *b.sample_row),
                          .output = program_external(program, "results", results, e->results_bytes),
                          .edits = program_external(program, "edits", b.edits, (size_t)e->layout.sizes.edits * sizeof *b.edits),
                          .edits_max = e->layout.sizes.edits,
                          .history = program_external(program, "history", e->history, e->history_bytes),
                          .history_length = program_external(program, "history_length", e->history_length, (size_t)slots * 4),
                          .prompt_length = program_external(program, "prompt_length", e->prompt_length, (size_t)slots * 4),
                          .slots = slots, .history_stride = (int32_t)e->history_stride, .max_samples = rows};
    return op_sample(program, &s, err);
}

static enum rose_status record_fetch(struct engine *e, int place, struct program *program, struct rose_error *err)
{
    /* A draft has no memory yet: any address asks for the same kernel. */
    const void *block = program->draft ? (const void *)program : e->steps[place].staging;
    program->eager = true;
    return op_fetch(program, &(struct op_fetch){.segments = program->draft ? block : e->steps[place].segments, .block = block}, err);
}

/* --- drafts -------------------------------------------------------------------------------------------------------------------- */


static enum rose_status begin_draft(struct engine *e, struct program **program, struct rose_error *err)
{
    ROSE_TRY(program_open(e->device, program, err));
    (*program)->draft = true;
    return ROSE_OK;
}

enum rose_status programs_draft(struct engine *e, size_t *work_bytes, struct rose_error *err)
{
    struct programs *p = &e->programs;
    *work_bytes = 0;
    list_buckets(e);
    if (!on_cuda(e)) return ROSE_OK;
    struct program *program = NULL;
    double began = engine_now();
    e->cache.pool = e->cache.pool ? e->cache.pool : (void *)e; /* not read: a draft only needs some address */
    enum rose_status s = ROSE_OK;
    for (int i = 0; i < p->count && s == ROSE_OK; i++) {
        s = begin_draft(e, &program, err);
        if (s == ROSE_OK) s = record_forward(e, &p->bucket[i], program, err);
        if (s == ROSE_OK && program->failed) s = status_set(err, ROSE_NO_MEMORY, "out of memory while recording a program");
        if (s == ROSE_OK) *work_bytes = ROSE_MAX(*work_bytes, program_memory_bytes(program));
        program_close(program);
        program = NULL;
    }
    if (s == ROSE_OK) s = begin_draft(e, &program, err);
    if (s == ROSE_OK) s = record_fetch(e, 0, program, err);
    for (int i = 0; i < p->samples && s == ROSE_OK; i++) s = record_sample(e, p->sample_rows[i], NULL, program, err);
    program_close(program);
    if (e->cache.pool == (void *)e) e->cache.pool = NULL;
    p->draft_s = engine_now() - began;
    return s;
}

/* --- the real ones ------------------------------------------------------------------------------------------------------------- */

static enum rose_status open_forwards(struct engine *e, struct rose_error *err)
{
    struct programs *p = &e->programs;
    size_t bytes = 0;
    for (int i = 0; i < p->count; i++) {
        struct programs_bucket *b = &p->bucket[i];
        ROSE_TRY(program_open(e->device, &b->program, err));
        ROSE_TRY(record_forward(e, b, b->program, err));
        bytes = ROSE_MAX(bytes, program_memory_bytes(b->program));
    }
    if (on_cuda(e)) {
        p->work_bytes = bytes;
        if (bytes && !(p->work = device_alloc(e->device, bytes, DEVICE_MEMORY_LOCAL, err))) return ROSE_NO_MEMORY;
    }
    for (int i = 0; i < p->count; i++) ROSE_TRY(program_finish(p->bucket[i].program, p->work, p->work_bytes, err));
    return ROSE_OK;
}

static enum rose_status open_samples(struct engine *e, struct rose_error *err)
{
    struct programs *p = &e->programs;
    p->places = on_cuda(e) ? e->options.depth : 1;
    for (int k = 0; k < p->places; k++) {
        for (int i = 0; i < p->samples; i++) {
            ROSE_TRY(program_open(e->device, &p->sample[k][i], err));
            ROSE_TRY(record_sample(e, p->sample_rows[i], on_cuda(e) ? e->steps[k].results : e->results, p->sample[k][i], err));
            ROSE_TRY(program_finish(p->sample[k][i], NULL, 0, err));
        }
        if (!e->fetches) continue;
        ROSE_TRY(program_open(e->device, &p->fetch[k], err));
        ROSE_TRY(record_fetch(e, k, p->fetch[k], err));
        ROSE_TRY(program_finish(p->fetch[k], NULL, 0, err));
    }
    return ROSE_OK;
}

/* cuBLASLt's fastest algorithm for each product, once a machine. */
static enum rose_status tune_products(struct engine *e, struct cuda_blas_tuned *t, struct rose_error *err)
{
    struct programs *p = &e->programs;
    struct program *forwards[PROGRAMS_MAX];
    for (int i = 0; i < p->count; i++) forwards[i] = p->bucket[i].program;
    ROSE_TRY(cuda_blas_tune(e->device, forwards, p->count, CUDA_BLAS_TUNE_S, t, err));
    if (t->shapes)
        snprintf(p->products, sizeof p->products, "cuBLASLt: %d shapes, %d measured now in %.2f s; %d take another than its first choice", t->shapes, t->measured, t->seconds, t->changed);
    return ROSE_OK;
}

static enum rose_status capture(struct engine *e, struct rose_error *err)
{
    const struct programs *p = &e->programs;
    for (int i = 0; i < p->decodes; i++) {
        int32_t n = p->bucket[i].rows;
        struct extents x = {.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = n, [EXTENT_SEQS] = n, [EXTENT_SAMPLES] = n}};
        ROSE_TRY(status_wrap(err, device_prepare(e->device, p->bucket[i].program, &x, err), "the graph of %d sequences", n));
    }
    return ROSE_OK;
}

/* Weights travel beside all of this until something is measured. Graphs made meanwhile hold unless measuring changes what is in them. */
static enum rose_status load_and_capture(struct engine *e, struct rose_error *err)
{
    struct programs *p = &e->programs;
    double began = engine_now();
    bool early = e->model->upload != NULL, launches = false;
    if (early) ROSE_TRY(capture(e, err));
    double captured = engine_now();
    ROSE_TRY(status_wrap(err, model_loaded(e->model, err), "loading weights"));
    double loaded = engine_now();
    struct cuda_blas_tuned products = {0};
    if (e->options.tune) ROSE_TRY(status_wrap(err, tune_products(e, &products, err), "measuring"));
    if (e->options.tune) ROSE_TRY(status_wrap(err, programs_tune(e, &launches, err), "measuring"));
    double tuned = engine_now();
    for (int i = 0; i < p->decodes && early && (launches || products.measured); i++) ROSE_TRY(device_unprepare(e->device, p->bucket[i].program, err));
    ROSE_TRY(capture(e, err));
    ROSE_TRY(device_wait(e->device, NULL, err));
    p->wait_s = loaded - captured;
    p->tune_s = tuned - loaded;
    p->graph_s = engine_now() - tuned + captured - began;
    return ROSE_OK;
}

enum rose_status programs_open(struct engine *e, struct rose_error *err)
{
    struct programs *p = &e->programs;
    double began = engine_now(), compiled, recorded;
    if (on_cuda(e)) ROSE_TRY(plan_compile(e->device, err));
    compiled = engine_now();
    ROSE_TRY(open_forwards(e, err));
    ROSE_TRY(open_samples(e, err));
    if (!on_cuda(e)) return ROSE_OK;
    ROSE_TRY(device_wait(e->device, NULL, err)); /* counters are zero before anything is captured */
    recorded = engine_now();
    p->compile_s = compiled - began;
    p->record_s = recorded - compiled;
    size_t before = device_memory_free(e->device);
    ROSE_TRY(load_and_capture(e, err));
    size_t after = device_memory_free(e->device);
    p->graph_bytes = before > after ? before - after : 0;
    return ROSE_OK;
}

void programs_close(struct engine *e)
{
    struct programs *p = &e->programs;
    for (int i = 0; i < p->count; i++) program_close(p->bucket[i].program);
    for (int k = 0; k < ENGINE_MAX_DEPTH; k++) {
        program_close(p->fetch[k]);
        for (int i = 0; i < PROGRAMS_SAMPLES; i++) program_close(p->sample[k][i]);
    }
    device_free(e->device, p->work, p->work_bytes, DEVICE_MEMORY_LOCAL);
    *p = (struct programs){0};
}

size_t programs_bytes(const struct programs *p)
{
    size_t bytes = p->work_bytes + p->graph_bytes;
    for (int i = 0; i < p->count; i++)
        if (p->bucket[i].program && !p->bucket[i].program->shared_memory) bytes += p->bucket[i].program->memory_bytes;
    for (int k = 0; k < ENGINE_MAX_DEPTH; k++)
        for (int i = 0; i < PROGRAMS_SAMPLES; i++) bytes += p->sample[k][i] ? p->sample[k][i]->memory_bytes : 0;
    return bytes;
}
