/* rose_bench_op: an op recorded over shapes and timed. Copies of the op over memory of their own follow each other until they are larger
 * than the caches, so that every one finds its operands in memory. */
#define _GNU_SOURCE
#include "api/bench_op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/kernels.h"
#include "base/json.h"
#include "device/cuda.h"

enum { VALUES = 32, MOST_COPIES = 1024, MOST_RUNS = 4096 };

struct sweep {
    const struct rose_bench_op_options *o;
    const struct bench_kind *kind;
    struct rose_device *device, *own;
    int numbers;
    int32_t value[BENCH_OP_NUMBERS][VALUES];
    int values[BENCH_OP_NUMBERS];
    double bandwidth, tensor; /* bytes/s that a copy reaches; operations/s, 0: unknown */
    void *noise;
    struct strbuf json, refused; /* the results; {...},{...} of the combinations that the op or the machine does not take */
    int cases, done, refusals;
    unsigned given; /* bit i: number i has a shape of its own */
    enum dtype weights;
};

/* ---- what is asked for ---- */

static enum rose_status read_values(struct sweep *s, int number, const char *text, struct rose_error *err)
{
    const struct bench_number *n = &s->kind->number[number];
    s->values[number] = 0;
    for (const char *p = *text ? text : NULL; p;) {
        size_t length = strcspn(p, ",");
        int64_t v;
        bool zero = n->most <= 3 || !strcmp(n->usual, "0"); /* flags and the like */
        if (s->values[number] == VALUES || !str_to_i64((struct str){p, length}, &v) || v < (zero ? 0 : 1) || v > n->most)
            return status_set(err, ROSE_INVALID, "%s=%s: up to %d numbers from %d to %d, with commas", n->name, text, VALUES, zero ? 0 : 1, n->most);
        s->value[number][s->values[number]++] = (int32_t)v;
        p = p[length] ? p + length + 1 : NULL;
    }
    return s->values[number] ? ROSE_OK : status_set(err, ROSE_INVALID, "%s= has no number", n->name);
}

static enum rose_status read_shape(struct sweep *s, const char *shape, struct rose_error *err)
{
    const char *equals = strchr(shape, '=');
    struct strbuf known = {0};
    for (int i = 0; equals && i < s->numbers; i++)
        if (str_is((struct str){shape, (size_t)(equals - shape)}, s->kind->number[i].name)) {
            if (s->given & 1u << i) return status_set(err, ROSE_INVALID, "%s is given twice; its values are one list, with commas", s->kind->number[i].name);
            s->given |= 1u << i;
            return read_values(s, i, equals + 1, err);
        }
    for (int i = 0; i < s->numbers; i++) strbuf_printf(&known, "%s%s=%s", i ? ", " : "", s->kind->number[i].name, s->kind->number[i].usual);
    status_set(err, ROSE_INVALID, "the shape \"%s\" is none of %s: %s", shape, s->kind->name, known.p ? known.p : "?");
    strbuf_free(&known);
    return ROSE_INVALID;
}

/* --weights: bf16 or a block format. */
static enum rose_status read_weights(struct sweep *s, struct rose_error *err)
{
    s->weights = DTYPE_NONE;
    for (int t = DTYPE_NONE + 1; t < DTYPE_COUNT; t++)
        if (!strcasecmp(s->o->weights, dtype_info((enum dtype)t)->name) && (t == DTYPE_BF16 || dtype_info((enum dtype)t)->block > 1)) s->weights = (enum dtype)t;
    if (s->weights == DTYPE_NONE) return status_set(err, ROSE_INVALID, "weights \"%.40s\": bf16 or a block format of GGUF (q4_0, q4_k, q6_k, mxfp4, ...)", s->o->weights);
    if (s->weights != DTYPE_BF16 && strcmp(s->kind->name, "matmul") && strcmp(s->kind->name, "moe"))
        return status_set(err, ROSE_UNSUPPORTED, "%s has no matrix; --weights is for matmul and moe", s->kind->name);
    return ROSE_OK;
}

static enum rose_status read_options(struct sweep *s, struct rose_error *err)
{
    struct strbuf known = {0};
    for (size_t i = 0; i < bench_kinds_count; i++) {
        if (!strcmp(s->o->op, bench_kinds[i].name)) s->kind = &bench_kinds[i];
        strbuf_printf(&known, "%s%s", i ? ", " : "", bench_kinds[i].name);
    }
    if (!s->kind) status_set(err, ROSE_NOT_FOUND, "there is no op \"%s\" to measure; there are %s", s->o->op, known.p ? known.p : "?");
    strbuf_free(&known);
    if (!s->kind) return ROSE_NOT_FOUND;
    while (s->numbers < BENCH_OP_NUMBERS && s->kind->number[s->numbers].name) s->numbers++;
    for (int i = 0; i < s->numbers; i++) ROSE_TRY(read_values(s, i, s->kind->number[i].usual, err));
    for (size_t i = 0; i < s->o->shapes_count; i++) ROSE_TRY(read_shape(s, s->o->shapes[i], err));
    s->weights = DTYPE_BF16;
    if (s->o->weights) ROSE_TRY(read_weights(s, err));
    s->cases = 1;
    for (int i = 0; i < s->numbers; i++) {
        s->cases *= s->values[i];
        if (s->cases > 4096) return status_set(err, ROSE_LIMIT, "more than 4096 combinations of shapes");
    }
    return ROSE_OK;
}

/* ---- the machine ---- */

struct stream_params {
    const char *p;
    size_t bytes;
    uint64_t *sums; /* [workers] */
};

/* Reads its share of the memory. */
static void stream_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct stream_params *p = params;
    size_t begin, end;
    uint64_t sum[8] = {0};
    (void)extents;
    worker_range(w, p->bytes, 4096, &begin, &end);
    for (size_t i = begin; i + 64 <= end; i += 64)
        for (int k = 0; k < 8; k++) {
            uint64_t v;
            memcpy(&v, p->p + i + 8 * k, 8);
            sum[k] += v;
        }
    for (int k = 1; k < 8; k++) sum[0] += sum[k];
    p->sums[w->index] = sum[0];
}

/* What all workers together read from memory, the best of a few passes. */
static enum rose_status cpu_bandwidth(struct device *d, double *out, struct rose_error *err)
{
    enum { BYTES = 512 << 20, PASSES = 6 };
    uint64_t *sums = calloc((size_t)d->info.units + 1, sizeof *sums);
    char *p = device_alloc(d, BYTES, DEVICE_MEMORY_LOCAL, err);
    struct program *program = NULL;
    enum rose_status s = p && sums ? program_open(d, &program, err) : status_set(err, ROSE_NO_MEMORY, "no 512 MiB to measure the memory with");
    struct stream_params params = {p, BYTES, sums};
    if (s == ROSE_OK) {
        for (size_t i = 0; i < BYTES; i += 4096) p[i] = (char)i; /* pages of their own, not the zero page */
        program_add(program, &(struct program_launch){.name = "stream", .layer = -1, .params = &params, .params_bytes = sizeof params, .cpu = stream_run});
        s = program_finish(program, NULL, 0, err);
    }
    *out = 0;
    for (int i = 0; i < PASSES && s == ROSE_OK; i++) {
        double from = engine_now();
        s = device_submit(d, program, &(struct extents){.n = {1}}, err);
        if (s == ROSE_OK) s = device_wait(d, NULL, err);
        *out = ROSE_MAX(*out, BYTES / (engine_now() - from));
    }
    program_close(program);
    device_free(d, p, BYTES, DEVICE_MEMORY_LOCAL);
    free(sums);
    return s;
}

static enum rose_status open_machine(struct sweep *s, struct rose_error *err)
{
    if (!s->device) {
        enum rose_status status = kernels_open_planned(s->o->arch, s->o->cache_dir, s->o->nvrtc, &s->own, err);
        s->device = s->own;
        ROSE_TRY(status);
    }
    struct device *d = s->device->device;
    if (d->info.kind == DEVICE_CPU) ROSE_TRY(cpu_bandwidth(d, &s->bandwidth, err));
    else s->bandwidth = 0.875 * (d->info.bandwidth > 0 ? d->info.bandwidth : 1e12), s->tensor = kernels_tensor_rate(d->info.arch);
    if (!(s->noise = malloc(BENCH_NOISE))) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    uint32_t state = 1;
    for (size_t i = 0; i < BENCH_NOISE / 4; i++) {
        state = state * 1664525u + 1013904223u;
        float f = (float)(state >> 8) * 0x1p-23f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        /* bf16 pairs where activations are bf16: the upper half of two floats */
        if (d->info.kind == DEVICE_CUDA) bits = (bits & 0xffff0000u) | bits >> 16, bits = (bits & 0xffff0000u) | (bits >> 16);
        memcpy((char *)s->noise + 4 * i, &bits, 4);
    }
    return ROSE_OK;
}

/* ---- a case ---- */

static double cost(double fixed, const double per[EXTENT_COUNT], const struct extents *e)
{
    for (int i = 0; i < EXTENT_COUNT; i++) fixed += per[i] * e->n[i];
    return fixed;
}

static void close_case(struct bench_case *c)
{
    program_close(c->program);
    for (int i = 0; i < c->memories; i++) device_free(c->device, c->memory[i].p, c->memory[i].bytes, DEVICE_MEMORY_LOCAL);
    c->program = NULL;
    c->memories = 0;
}

static enum rose_status open_case(struct sweep *s, struct bench_case *c, int copies, struct rose_error *err)
{
    c->more_bytes = c->more_ops = 0;
    s->kind->extents(c);
    ROSE_TRY(program_open(c->device, &c->program, err));
    c->program->expect = c->extents;
    c->program->eager = true;
    for (int i = 0; i < copies; i++) ROSE_TRY(s->kind->record(c, err));
    return program_finish(c->program, NULL, 0, err);
}

/* Microseconds of one copy: the median of runs for `seconds`. */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum rose_status time_cpu(struct bench_case *c, double seconds, double *us, struct rose_error *err)
{
    static double times[MOST_RUNS];
    int n = 0;
    double began = engine_now();
    for (int warm = 1; n < MOST_RUNS && (n < 3 || engine_now() - began < seconds); warm = 0) {
        double from = engine_now();
        ROSE_TRY(device_submit(c->device, c->program, &c->extents, err));
        ROSE_TRY(device_wait(c->device, NULL, err));
        if (!warm) times[n++] = (engine_now() - from) * 1e6;
    }
    qsort(times, (size_t)n, sizeof *times, by_value);
    *us = times[n / 2];
    return ROSE_OK;
}

static enum rose_status time_cuda(struct bench_case *c, double seconds, double *us, struct rose_error *err)
{
    ROSE_TRY(cuda_bench_program_us(c->device, c->program, &c->extents, 1, 1, us, err));
    int replays = *us > 0 ? (int)ROSE_MAX(3, ROSE_MIN(1000, seconds * 1e6 / *us)) : 3;
    return cuda_bench_program_us(c->device, c->program, &c->extents, 2, replays, us, err);
}

static void add_number(struct strbuf *b, const char *name, double v)
{
    strbuf_printf(b, ",\"%s\":", name);
    json_add_num(b, v);
}

static void report(struct sweep *s, const struct bench_case *c, double bytes, double ops, double predicted, int copies, double us)
{
    struct strbuf *b = &s->json;
    double limit = bytes / s->bandwidth * 1e6;
    if (s->tensor > 0) limit = ROSE_MAX(limit, ops / s->tensor * 1e6);
    strbuf_adds(b, s->done++ ? ",{" : "{");
    for (int i = 0; i < s->numbers; i++) strbuf_printf(b, "%s\"%s\":%d", i ? "," : "", s->kind->number[i].name, c->value[i]);
    add_number(b, "bytes", bytes), add_number(b, "ops", ops), add_number(b, "limit_us", limit);
    if (predicted > 0) add_number(b, "predicted_us", predicted);
    if (us > 0) add_number(b, "us", us), add_number(b, "bytes_per_s", bytes / us * 1e6), add_number(b, "ops_per_s", ops / us * 1e6), add_number(b, "share", limit / us);
    strbuf_printf(b, ",\"copies\":%d,\"kernels\":[", copies);
    int per = c->program->count / copies;
    for (int i = 0; i < per; i++) {
        const struct program_launch *l = &c->program->entries[i].launch;
        const struct planned *p = l->plan;
        if (i) strbuf_addc(b, ',');
        json_add_str(b, str_of(p ? jit_info(p->kernel).name : l->name));
    }
    strbuf_adds(b, "]}");
}

static enum rose_status run_case(struct sweep *s, struct bench_case *c, struct rose_error *err)
{
    double seconds = s->o->seconds > 0 ? s->o->seconds : 0.3, us = 0, bytes = 0, ops = 0, predicted = 0;
    bool planning = c->device->planning;
    ROSE_TRY(open_case(s, c, 1, err));
    for (int i = 0; i < c->program->count; i++) {
        const struct program_launch *l = &c->program->entries[i].launch;
        const struct planned *p = l->plan;
        bytes += cost(l->cost.bytes, l->cost.bytes_per, &c->extents), ops += cost(l->cost.ops, l->cost.ops_per, &c->extents);
        if (p) predicted += p->plan.predicted_us;
    }
    bytes += c->more_bytes, ops += c->more_ops;
    if (predicted > 0) predicted += c->more_bytes / s->bandwidth * 1e6; /* plans know rows, not contexts */
    /* Three times the last cache of a GPU. A CPU names the one of a core; few have a last one of more than 128 MiB. */
    const bool gpu = c->device->info.kind == DEVICE_CUDA;
    double caches = gpu && c->device->info.l2_bytes ? 3.0 * (double)c->device->info.l2_bytes : 256e6, room = !gpu ? (double)c->device->info.memory_total / 4 : (double)device_memory_free(c->device) / 2;
    int copies = (int)ROSE_MAX(1, ROSE_MIN(MOST_COPIES, ROSE_MIN(caches, room) / bytes));
    copies = ROSE_MAX(1, ROSE_MIN(copies, BENCH_OP_MEMORY / ROSE_MAX(1, c->memories)));
    if (s->o->copies > 0) copies = ROSE_MIN(copies, s->o->copies);
    if (planning) copies = 1;
    if (copies > 1) {
        close_case(c);
        ROSE_TRY(open_case(s, c, copies, err));
    }
    if (!planning) ROSE_TRY(c->device->info.kind == DEVICE_CPU ? time_cpu(c, seconds, &us, err) : time_cuda(c, seconds, &us, err));
    report(s, c, bytes, ops, predicted, copies, us / copies);
    return ROSE_OK;
}

/* What says that this combination cannot be, and nothing about the next one. */
static bool is_refusal(enum rose_status s) { return s == ROSE_UNSUPPORTED || s == ROSE_INVALID || s == ROSE_LIMIT || s == ROSE_NO_MEMORY; }

static void add_refusal(struct sweep *s, const struct bench_case *c, const struct rose_error *why)
{
    strbuf_adds(&s->refused, s->refusals++ ? ",{" : "{");
    for (int i = 0; i < s->numbers; i++) strbuf_printf(&s->refused, "\"%s\":%d,", s->kind->number[i].name, c->value[i]);
    strbuf_adds(&s->refused, "\"why\":");
    json_add_str(&s->refused, str_of(why->message));
    strbuf_addc(&s->refused, '}');
}

static void name_case(const struct sweep *s, const struct bench_case *c, enum rose_status status, struct rose_error *err)
{
    struct strbuf what = {0};
    for (int i = 0; i < s->numbers; i++) strbuf_printf(&what, " %s=%d", s->kind->number[i].name, c->value[i]);
    status_wrap(err, status, "%s%s", s->kind->name, what.p ? what.p : "");
    strbuf_free(&what);
}

/* Combinations that are refused are told beside the results of the others; where all are, the first of them is the error. */
static enum rose_status run_all(struct sweep *s, struct rose_error *err)
{
    struct bench_case *c = calloc(1, sizeof *c);
    enum rose_status status = c ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory"), first = ROSE_OK;
    for (int n = 0; n < s->cases && status == ROSE_OK; n++) {
        struct rose_error why = {0};
        *c = (struct bench_case){.device = s->device->device, .weights = s->weights, .noise = s->noise};
        int rest = n; /* the last number changes fastest, but the first is the one to read down: it comes last here */
        for (int i = 0; i < s->numbers; i++) c->value[i] = s->value[i][rest % s->values[i]], rest /= s->values[i];
        status = run_case(s, c, &why);
        if (status != ROSE_OK) {
            bool refused = is_refusal(status);
            if (refused) add_refusal(s, c, &why);
            name_case(s, c, status, &why);
            if (err && (!refused || s->refusals == 1)) *err = why;
            if (refused && s->refusals == 1) first = status;
            if (refused) status = ROSE_OK;
        }
        close_case(c);
        if (s->o->progress) s->o->progress(s->o->progress_user, "measuring", (size_t)n + 1, (size_t)s->cases);
    }
    free(c);
    return status == ROSE_OK && !s->done ? first : status;
}

static enum rose_status make(struct sweep *s, struct rose_error *err)
{
    struct strbuf *b = &s->json;
    ROSE_TRY(read_options(s, err));
    ROSE_TRY(open_machine(s, err));
    struct device *d = s->device->device;
    bool keeps = d->keeps_plans;
    d->keeps_plans = d->info.kind == DEVICE_CUDA;
    strbuf_printf(b, "{\"op\":\"%s\",\"device\":", s->kind->name);
    json_add_str(b, str_of(d->info.name));
    strbuf_adds(b, ",\"arch\":");
    json_add_str(b, str_of(d->info.arch));
    strbuf_printf(b, ",\"planned\":%s,\"units\":%d,\"weights\":\"%s\"", d->planning ? "true" : "false", d->info.units, dtype_info(s->weights)->name);
    add_number(b, "bandwidth", s->bandwidth), add_number(b, "tensor_rate", s->tensor);
    strbuf_adds(b, ",\"numbers\":[");
    for (int i = 0; i < s->numbers; i++) strbuf_printf(b, "%s\"%s\"", i ? "," : "", s->kind->number[i].name);
    strbuf_adds(b, "],\"results\":[");
    enum rose_status status = run_all(s, err);
    strbuf_printf(b, "],\"refused\":[%s]}", s->refused.p ? s->refused.p : "");
    b->failed |= s->refused.failed;
    d->keeps_plans = keeps;
    return status;
}

const char *rose_bench_op_name(size_t i) { return i < bench_kinds_count ? bench_kinds[i].name : NULL; }

enum rose_status rose_bench_op(struct rose_device *device, const struct rose_bench_op_options *o, char **out, struct rose_error *err)
{
    struct sweep *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    s->o = o;
    s->device = device;
    enum rose_status status = make(s, err);
    if (s->own) {
        device_close_parts(s->own);
        free(s->own);
    }
    if (status == ROSE_OK && s->json.failed) status = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (status == ROSE_OK) *out = s->json.p;
    else strbuf_free(&s->json);
    strbuf_free(&s->refused);
    free(s->noise);
    free(s);
    return status;
}
