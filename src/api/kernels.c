/* rose_kernels: an engine is opened on a device that need not exist, and its programs are read. */
#include "api/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { MOST_STEPS = 64 };

struct kernels {
    const struct rose_kernels_options *o;
    struct rose_device *device;  /* the caller's or own */
    struct rose_device *own;
    struct rose_engine_options engine_options; /* for progress */
    struct kernels_source source;
    struct kernels_step step[MOST_STEPS];
    int steps;
    const struct jit_kernel *kernel[KERNELS_DISTINCT]; /* of all programs of the engine */
    int kernels;
};

/* ---- opening ---- */

enum rose_status kernels_open_planned(const char *arch, const char *cache_dir, const char *nvrtc, struct rose_device **out, struct rose_error *err)
{
    struct rose_device *d = calloc(1, sizeof *d);
    if (!d) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    *out = d;
    ROSE_TRY(device_planning_open(arch ? arch : "sm_90a", &d->device, err));
    /* Any model fits: how much memory the card has changes no kernel. */
    d->device->info.memory_total = d->device->info.memory_free = (size_t)1 << 46;
    return device_open_jit(d, &(struct rose_device_options){.cache_dir = cache_dir, .nvrtc = nvrtc}, err);
}

static enum rose_status open_planned(struct kernels *k, struct rose_error *err)
{
    enum rose_status s = kernels_open_planned(k->o->arch, k->o->cache_dir, k->o->nvrtc, &k->own, err);
    k->device = k->own;
    return s;
}

/* From the config alone; what a classifier's head looks like only its weights say. */
static enum rose_status open_directory(struct kernels *k, const char *path, struct weights *config, struct rose_error *err)
{
    struct rose_error other = {0};
    struct weights *w;
    enum rose_status s = model_open_dummy(k->device->device, config, 1, DTYPE_NONE, &k->source.model, err);
    if (s == ROSE_OK || weights_open(path, &w, &other) != ROSE_OK) return s;
    return model_open(k->device->device, w, NULL, NULL, &k->source.model, err);
}

static enum rose_status open_model(struct kernels *k, struct rose_error *err)
{
    struct arena a;
    const char *path;
    struct weights *w;
    arena_init(&a, 0);
    enum rose_status s = hub_resolve(&a, k->o->model, &path, err);
    bool directory = s == ROSE_OK && file_is_dir(path);
    if (s == ROSE_OK) s = directory ? weights_open_config(path, &w, err) : weights_open(path, &w, err);
    if (s == ROSE_OK && directory) s = open_directory(k, path, w, err);
    arena_free(&a);
    ROSE_TRY(s);
    if (directory) return ROSE_OK;
    if (!k->device->device->planning) {
        weights_close(w);
        return status_set(err, ROSE_UNSUPPORTED, "%s: the launches of a file's model are planned, not measured: name an architecture, such as --arch %s", k->o->model,
                          k->device->device->info.arch);
    }
    return model_open(k->device->device, w, NULL, NULL, &k->source.model, err);
}

static enum rose_status open_engine(struct kernels *k, struct rose_error *err)
{
    const struct rose_kernels_options *o = k->o;
    const struct model_config *c = &k->source.model->config;
    int32_t context = k->source.context = o->context > 0 ? o->context : 1024;
    k->source.device = k->device->device;
    if (c->own_rows) { /* it embeds, classifies or scores: whole texts, no cache, nothing drawn */
        struct pool_options pool = {.max_sequences = o->max_sequences, .step_tokens = o->step_tokens, .deterministic = o->deterministic};
        ROSE_TRY(pool_open(k->source.model, &pool, &k->source.pool, err));
        k->source.context = ROSE_MIN(context, pool.context);
        return ROSE_OK;
    }
    /* A prompt step has a sequence for 512 rows (programs.c), so that none is longer than 1023. */
    struct engine_options options = {.context = ROSE_MAX(context + 1, 1088), .max_sequences = o->max_sequences, .step_tokens = o->step_tokens, .deterministic = o->deterministic, .depth = 1};
    ROSE_TRY(kv_dtype(o->kv, DEVICE_CUDA, &options.kv, err));
    return engine_open(k->source.model, NULL, &options, &k->source.engine, err);
}

/* ---- which kernels, which steps ---- */

static void collect(struct kernels *k, const struct program *p)
{
    for (int i = 0; p && i < p->count; i++) {
        const struct planned *planned = p->entries[i].launch.plan;
        int n = 0;
        if (!planned) continue;
        while (n < k->kernels && k->kernel[n] != planned->kernel) n++;
        if (n == k->kernels && n < KERNELS_DISTINCT) k->kernel[k->kernels++] = planned->kernel;
    }
}

static void collect_all(struct kernels *k)
{
    if (k->source.pool) {
        for (int i = 0; i < k->source.pool->memory.count; i++) collect(k, k->source.pool->memory.bucket[i].program);
        return;
    }
    const struct programs *p = &k->source.engine->programs;
    for (int i = 0; i < p->count; i++) collect(k, p->bucket[i].program);
    for (int i = 0; i < p->samples; i++) collect(k, p->sample[0][i]);
    collect(k, p->fetch[0]);
}

/* One that is there already comes once. */
static void add_program(struct kernels *k, struct kernels_step step)
{
    for (int i = 0; i < k->steps; i++)
        if (k->step[i].program == step.program && k->step[i].rows == step.rows) return;
    if (k->steps < MOST_STEPS) k->step[k->steps++] = step;
}

static void add_step(struct kernels *k, int32_t rows, bool decode)
{
    const struct programs *p = &k->source.engine->programs;
    const struct programs_bucket *b = programs_pick(p, rows, decode);
    if (!b) b = &p->bucket[p->count - 1];
    int32_t seqs = b->decode ? b->rows : (int32_t)b->program->expect.n[EXTENT_SEQS];
    add_program(k, (struct kernels_step){.kind = b->decode ? "decode" : "prompt", .rows = b->rows, .seqs = seqs, .program = b->program,
                                         .extents = {.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = b->rows, [EXTENT_SEQS] = seqs, [EXTENT_SAMPLES] = seqs}}});
}

/* What comes after a step of so many sequences, and before one. */
static void add_around(struct kernels *k, int32_t rows)
{
    const struct programs *p = &k->source.engine->programs;
    rows = ROSE_MIN(rows, k->source.engine->options.max_sequences);
    add_program(k, (struct kernels_step){.kind = "sample", .rows = rows, .seqs = rows, .program = programs_sample(p, 0, rows),
                                         .extents = {.n = {[EXTENT_ONE] = 1, [EXTENT_SAMPLES] = rows}}});
    if (p->fetch[0]) add_program(k, (struct kernels_step){.kind = "fetch", .rows = rows, .seqs = rows, .program = p->fetch[0], .extents = {.n = {[EXTENT_ONE] = 1}}});
}

static void add_texts(struct kernels *k, int64_t rows)
{
    struct pool *p = k->source.pool;
    int32_t n = (int32_t)ROSE_MIN(rows, (int64_t)p->memory.max_rows), texts = ROSE_MAX(1, ROSE_MIN(n / k->source.context, p->options.max_sequences));
    add_program(k, (struct kernels_step){.kind = "texts", .rows = n, .seqs = texts, .program = pool_memory_bucket(p, n, texts)->program,
                                         .extents = {.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = n, [EXTENT_SEQS] = texts, [EXTENT_SAMPLES] = texts}}});
}

/* A step larger than the engine's largest would be shown as another one. What is usual is cut to what there is. */
static enum rose_status check_asked(const struct kernels *k, struct rose_error *err)
{
    const struct rose_kernels_options *o = k->o;
    if (k->source.pool) return ROSE_OK; /* its batches are cut into steps */
    const struct programs *p = &k->source.engine->programs;
    const int32_t sequences = k->source.engine->options.max_sequences, rows = p->bucket[p->count - 1].rows;
    for (size_t i = 0; i < o->batches_count; i++)
        if (o->batches[i] > sequences) return status_set(err, ROSE_INVALID, "a decode step of %d sequences: this engine takes %d (--max-sequences)", o->batches[i], sequences);
    for (size_t i = 0; i < o->chunks_count; i++)
        if (o->chunks[i] > rows) return status_set(err, ROSE_INVALID, "a prompt's step of %d rows: this engine takes %d (--step-tokens)", o->chunks[i], rows);
    return ROSE_OK;
}

static enum rose_status read_steps(struct kernels *k, struct rose_error *err)
{
    ROSE_TRY(check_asked(k, err));
    static const int batches[] = {1, 16, 128}, chunks[] = {2048};
    const struct rose_kernels_options *o = k->o;
    const int *b = o->batches_count ? o->batches : batches, *c = o->chunks_count ? o->chunks : chunks;
    size_t bn = o->batches_count ? o->batches_count : ROSE_COUNT(batches), cn = o->chunks_count ? o->chunks_count : o->batches_count ? 0 : ROSE_COUNT(chunks);
    bool pool = k->source.pool != NULL;
    if (o->chunks_count && !o->batches_count) bn = 0;
    for (size_t i = 0; i < bn; i++) {
        if (pool) add_texts(k, (int64_t)b[i] * k->source.context);
        else add_step(k, b[i], true);
    }
    for (size_t i = 0; i < cn; i++) {
        if (pool) add_texts(k, c[i]);
        else add_step(k, c[i], false);
    }
    for (size_t i = 0; i < bn && !pool; i++) add_around(k, b[i]);
    for (int i = 0; i < k->steps; i++) {
        ROSE_TRY(kernels_step_read(&k->source, &k->step[i], err));
        if (o->measure && !k->device->device->planning) ROSE_TRY(kernels_step_measure(&k->source, &k->step[i], err));
    }
    return ROSE_OK;
}

/* ---- JSON ---- */

static void key(struct strbuf *b, const char *name) { strbuf_printf(b, "%s\"%s\":", b->n && (b->p[b->n - 1] == '{' || b->p[b->n - 1] == '[') ? "" : ",", name); }
static void text(struct strbuf *b, const char *name, const char *value)
{
    key(b, name);
    json_add_str(b, str_of(value));
}
static void whole(struct strbuf *b, const char *name, long long value)
{
    key(b, name);
    strbuf_printf(b, "%lld", value);
}
static void number(struct strbuf *b, const char *name, double value)
{
    key(b, name);
    json_add_num(b, value);
}

static void add_kernel(struct strbuf *b, const struct jit_kernel *kernel)
{
    static const char *const origins[] = {"not ready", "compiled", "cache", "bundle", "failed"};
    struct jit_info i = jit_info(kernel);
    strbuf_addc(b, '{');
    text(b, "name", i.name), text(b, "kernel", i.kernel), text(b, "origin", origins[i.origin]), text(b, "compiler", i.compiler ? i.compiler : "");
    key(b, "constants");
    strbuf_addc(b, '[');
    for (int n = 0; n < i.constants_count; n++) {
        if (n) strbuf_addc(b, ',');
        json_add_str(b, str_of(i.constants[n]));
    }
    strbuf_addc(b, ']');
    whole(b, "cubin_bytes", (long long)i.cubin_bytes), number(b, "compile_ms", i.compile_ms), number(b, "ready_ms", i.ready_ms);
    key(b, "entries");
    strbuf_addc(b, '[');
    for (int n = 0; n < i.entries_count; n++) {
        const struct jit_entry *e = &i.entries[n];
        strbuf_adds(b, n ? ",{" : "{");
        text(b, "name", e->name), whole(b, "registers", e->registers), whole(b, "shared", e->shared_bytes), whole(b, "stack", e->stack_bytes);
        whole(b, "spill_stores", e->spill_stores), whole(b, "spill_loads", e->spill_loads);
        strbuf_addc(b, '}');
    }
    strbuf_adds(b, "]}");
}

static void add_row(struct strbuf *b, const struct kernels_row *r)
{
    strbuf_addc(b, '{');
    text(b, "op", r->launch->name);
    if (r->planned) text(b, "kernel", jit_info(r->planned->kernel).name);
    whole(b, "count", r->count);
    if (r->planned) {
        whole(b, "grid", r->grid[0]), whole(b, "block", r->launch->block[0]), whole(b, "cluster", r->launch->cluster), whole(b, "shared", r->launch->shared_bytes);
        key(b, "cooperative");
        strbuf_adds(b, r->launch->cooperative ? "true" : "false");
    } else text(b, "library", "cublasLt");
    number(b, "bytes", r->bytes), number(b, "ops", r->ops), number(b, "limit_us", r->limit_us);
    if (r->planned) number(b, "predicted_us", r->predicted_us);
    if (r->measured_us >= 0) number(b, "measured_us", r->measured_us);
    strbuf_addc(b, '}');
}

static void add_step_json(struct strbuf *b, const struct kernels_step *s)
{
    double limit = 0, predicted = 0, measured = 0;
    int launches = 0;
    bool all_measured = true;
    strbuf_addc(b, '{');
    text(b, "kind", s->kind), whole(b, "rows", s->rows), whole(b, "sequences", s->seqs);
    key(b, "launches");
    strbuf_addc(b, '[');
    for (int i = 0; i < s->rows_count; i++) {
        const struct kernels_row *r = &s->row[i];
        if (i) strbuf_addc(b, ',');
        add_row(b, r);
        launches += r->count;
        limit += r->limit_us * r->count, predicted += r->predicted_us * r->count, measured += r->measured_us * r->count;
        all_measured = all_measured && r->measured_us >= 0;
    }
    strbuf_addc(b, ']');
    whole(b, "count", launches), number(b, "limit_us", limit), number(b, "predicted_us", predicted);
    if (all_measured && s->rows_count) number(b, "measured_us", measured);
    strbuf_addc(b, '}');
}

static void write_json(struct kernels *k, int exported, struct strbuf *b)
{
    const struct device_info *d = &k->device->device->info;
    struct strbuf compiler = {0};
    jit_print_compiler(k->device->jit, &compiler);
    strbuf_addc(b, '{');
    text(b, "model", k->o->model), text(b, "architecture", k->source.model->config.arch->name), text(b, "device", d->name), text(b, "arch", d->arch);
    key(b, "planned");
    strbuf_adds(b, k->device->device->planning ? "true" : "false");
    text(b, "compiler", compiler.p ? compiler.p : ""), number(b, "bandwidth", d->bandwidth);
    if (k->source.engine) {
        const struct engine_options *o = &k->source.engine->options;
        text(b, "kv", kv_name(o->kv)), whole(b, "context", o->context), whole(b, "max_sequences", o->max_sequences), whole(b, "step_tokens", o->step_tokens);
    } else {
        const struct pool_options *o = &k->source.pool->options;
        whole(b, "context", o->context), whole(b, "max_sequences", o->max_sequences), whole(b, "step_tokens", o->step_tokens);
    }
    if (exported >= 0) whole(b, "exported", exported);
    key(b, "kernels");
    strbuf_addc(b, '[');
    bool first = true;
    for (int i = 0; i < k->kernels; i++) {
        if (k->o->kernel && !strstr(jit_info(k->kernel[i]).name, k->o->kernel)) continue;
        if (!first) strbuf_addc(b, ',');
        first = false;
        add_kernel(b, k->kernel[i]);
    }
    strbuf_addc(b, ']');
    key(b, "steps");
    strbuf_addc(b, '[');
    for (int i = 0; i < k->steps; i++) {
        if (i) strbuf_addc(b, ',');
        add_step_json(b, &k->step[i]);
    }
    strbuf_adds(b, "]}");
    strbuf_free(&compiler);
}

/* ---- the call ---- */

static enum rose_status check_name(const struct kernels *k, struct rose_error *err)
{
    for (int i = 0; i < k->kernels; i++)
        if (!k->o->kernel || strstr(jit_info(k->kernel[i]).name, k->o->kernel)) return ROSE_OK;
    return status_set(err, ROSE_NOT_FOUND, "none of the model's %d kernels has \"%s\" in its name; without --kernel they are listed", k->kernels, k->o->kernel ? k->o->kernel : "");
}

static enum rose_status show_all(struct kernels *k, struct strbuf *b, struct rose_error *err)
{
    for (int i = 0; i < k->kernels; i++) {
        if (k->o->kernel && !strstr(jit_info(k->kernel[i]).name, k->o->kernel)) continue;
        ROSE_TRY(kernels_show(k->device->jit, k->kernel[i], k->o->show, b, err));
    }
    return ROSE_OK;
}

static enum rose_status make(struct kernels *k, struct strbuf *b, struct rose_error *err)
{
    int exported = -1;
    if (!k->device) ROSE_TRY(open_planned(k, err));
    if (k->device->device->info.kind != DEVICE_CUDA)
        return status_set(err, ROSE_INVALID, "kernels are a GPU's: name an architecture, such as --arch sm_90a, where there is none");
    k->device->device->keeps_plans = true;
    k->engine_options = (struct rose_engine_options){.progress = k->o->progress, .progress_user = k->o->progress_user};
    k->device->opening = &k->engine_options;
    enum rose_status s = open_model(k, err);
    if (s == ROSE_OK) s = open_engine(k, err);
    k->device->opening = NULL;
    ROSE_TRY(s);
    collect_all(k);
    ROSE_TRY(check_name(k, err));
    if (k->o->export_dir) ROSE_TRY(jit_export(k->device->jit, k->o->export_dir, &exported, err));
    if (k->o->show != ROSE_KERNELS_JSON) return show_all(k, b, err);
    ROSE_TRY(read_steps(k, err));
    write_json(k, exported, b);
    return ROSE_OK;
}

enum rose_status rose_kernels(struct rose_device *device, const struct rose_kernels_options *o, char **out, struct rose_error *err)
{
    struct strbuf b = {.limit = 256 << 20};
    struct kernels *k = calloc(1, sizeof *k);
    *out = NULL;
    if (!k) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    k->o = o;
    k->device = device;
    enum rose_status s = make(k, &b, err);
    for (int i = 0; i < k->steps; i++) free(k->step[i].row);
    engine_close(k->source.engine);
    pool_close(k->source.pool);
    model_close(k->source.model);
    if (device) device->device->keeps_plans = false;
    if (k->own) {
        device_close_parts(k->own);
        free(k->own);
    }
    free(k);
    if (s == ROSE_OK && (b.failed || !strbuf_add(&b, "", 0))) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK) *out = b.p;
    else strbuf_free(&b);
    return s;
}
