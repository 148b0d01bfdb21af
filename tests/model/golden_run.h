/* Runs a model's forward without an engine: two sequences, pages in shuffled order, pages behind every window
 * given back. */
#ifndef ROSE_TESTS_MODEL_GOLDEN_RUN_H
#define ROSE_TESTS_MODEL_GOLDEN_RUN_H

#include "device/device.h"
#include "golden.h"
#include "model/model.h"
#include "weights/weights.h"

enum { RUN_ROWS = 128, RUN_SEQS = 2, RUN_PAGE = 32, RUN_BLOCKS = 8 };

struct run_seq {
    int32_t tokens[RUN_BLOCKS * RUN_PAGE], known, computed, prompt;
    int32_t pages[OP_MAX_GROUPS][RUN_BLOCKS];
};

struct run {
    struct device *device;
    struct model *model;
    struct program *program;
    int32_t tokens[RUN_ROWS], positions[RUN_ROWS], row_seq[RUN_ROWS], seq_rows[RUN_SEQS + 1],
        seq_length[RUN_SEQS], sample_rows[RUN_ROWS];
    int32_t table[OP_MAX_GROUPS][RUN_SEQS * RUN_BLOCKS];
    int64_t slot[OP_MAX_GROUPS][RUN_ROWS];
    float *inv_freq, *logits; /* the host's */
    char *block; /* CUDA: device copies of tokens … slot, inv_freq, logits, each step's inputs copied and its logits copied back */
    size_t block_bytes, freq_at, freq_bytes, logits_at;
    bool decode; /* CUDA: recorded for one row a sequence */
    bool shared; /* the device is somebody else's */
    bool deterministic;
    void *pool;
    size_t pool_bytes;
    struct run_seq seq[RUN_SEQS];
};

/* `bytes` at element `at` of a tensor of the file are replaced. */
static inline void golden_patch(const struct golden *g, const char *name, size_t at, const void *bytes, size_t n)
{
    struct weights *w;
    struct rose_error err;
    CHECK_OK(weights_open(g->dir, &w, &err), err);
    const struct weights_tensor *t = weights_find(w, name);
    CHECK(t != NULL);
    FILE *f = t ? fopen(t->file, "r+b") : NULL;
    CHECK(f && fseek(f, (long)(t->offset + at * n), SEEK_SET) == 0 && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
    weights_close(w);
}

static inline void run_close(struct run *r)
{
    program_close(r->program);
    if (r->device && r->block) device_free(r->device, r->block, r->block_bytes, DEVICE_MEMORY_LOCAL);
    if (r->device && r->pool) device_free(r->device, r->pool, r->pool_bytes, DEVICE_MEMORY_LOCAL);
    model_close(r->model);
    if (!r->shared) device_close(r->device);
    free(r->inv_freq);
    free(r->logits);
    *r = (struct run){0};
}

enum { RUN_INPUTS = offsetof(struct run, tokens), RUN_INPUTS_END = offsetof(struct run, inv_freq) };

/* Where the program finds what lies at p in the struct. */
static inline void *run_at(const struct run *r, void *p)
{
    return r->block ? r->block + ((char *)p - (const char *)r - RUN_INPUTS) : p;
}

static inline enum rose_status run_block(struct run *r, size_t freq, struct rose_error *err)
{
    if (r->device->info.kind == DEVICE_CPU) return ROSE_OK;
    r->freq_at = (RUN_INPUTS_END - RUN_INPUTS + 255) / 256 * 256;
    r->freq_bytes = freq;
    r->logits_at = r->freq_at + (freq + 255) / 256 * 256;
    r->block_bytes = r->logits_at + RUN_ROWS * (size_t)r->model->config.vocabulary * sizeof(float);
    r->block = device_alloc(r->device, r->block_bytes, DEVICE_MEMORY_LOCAL, err);
    return r->block ? ROSE_OK : ROSE_NO_MEMORY;
}

static inline enum rose_status run_record(struct run *r, enum dtype kv, struct rose_error *err)
{
    const struct model_config *c = &r->model->config;
    struct forward f = {.cache = {.dtype = kv, .page_tokens = RUN_PAGE}};
    f.deterministic = r->deterministic;
    f.cache.page_bytes = op_cache_page_bytes(kv, &c->heads, RUN_PAGE, c->group_layers);
    r->pool_bytes = f.cache.page_bytes * (size_t)(RUN_SEQS * RUN_BLOCKS * c->groups_count);
    r->pool = f.cache.pool = device_alloc(r->device, r->pool_bytes, DEVICE_MEMORY_LOCAL, err);
    if (!r->pool) return ROSE_NO_MEMORY;
    ROSE_TRY(program_open(r->device, &r->program, err));
    struct program *p = r->program;
    struct op_step *s = &f.step;
    ROSE_TRY(run_block(r, rope_by_length(&c->ropes[0]) ? RUN_SEQS * (size_t)c->ropes[0].rotary_dim / 2 * sizeof(float) : 0, err));
    p->eager = true;
    p->expect = (struct extents){.n = {1, RUN_ROWS, RUN_SEQS, RUN_ROWS}};
    if (r->decode) p->expect = (struct extents){.n = {1, RUN_SEQS, RUN_SEQS, RUN_SEQS}};
    *s = (struct op_step){.groups = c->groups_count,
                          .table_stride = RUN_BLOCKS,
                          .max_rows = RUN_ROWS,
                          .max_seqs = RUN_SEQS,
                          .max_samples = RUN_ROWS};
    s->tokens = program_external(p, "tokens", run_at(r, r->tokens), sizeof r->tokens);
    s->positions = program_external(p, "positions", run_at(r, r->positions), sizeof r->positions);
    s->row_seq = program_external(p, "row_seq", run_at(r, r->row_seq), sizeof r->row_seq);
    s->seq_rows = program_external(p, "seq_rows", run_at(r, r->seq_rows), sizeof r->seq_rows);
    s->seq_length = program_external(p, "seq_length", run_at(r, r->seq_length), sizeof r->seq_length);
    s->sample_rows = program_external(p, "sample_rows", run_at(r, r->sample_rows), sizeof r->sample_rows);
    for (int g = 0; g < c->groups_count; g++) {
        s->page_table[g] = program_external(p, "table", run_at(r, r->table[g]), sizeof r->table[g]);
        s->kv_slot[g] = program_external(p, "slot", run_at(r, r->slot[g]), sizeof r->slot[g]);
    }
    if (rope_by_length(&c->ropes[0])) {
        size_t bytes = RUN_SEQS * (size_t)c->ropes[0].rotary_dim / 2 * sizeof(float);
        r->inv_freq = calloc(1, bytes);
        s->seq_inv_freq = program_external(p, "inv_freq", r->block ? r->block + r->freq_at : (void *)r->inv_freq, bytes);
    }
    size_t logits = RUN_ROWS * (size_t)c->vocabulary * sizeof(float);
    r->logits = calloc(1, logits);
    f.logits = program_external(p, "logits", r->block ? r->block + r->logits_at : (void *)r->logits, logits);
    ROSE_TRY(forward_record(r->model, p, &f, err));
    return program_finish(p, NULL, 0, err);
}

static inline enum rose_status run_open_as(struct run *r, const char *path, enum dtype kv, bool deterministic, struct rose_error *err)
{
    struct weights *w;
    *r = (struct run){.deterministic = deterministic};
    ROSE_TRY(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = 2}, &r->device, err));
    enum rose_status s = weights_open(path, &w, err);
    if (s == ROSE_OK) s = model_open(r->device, w, NULL, NULL, &r->model, err);
    if (s == ROSE_OK) s = run_record(r, kv, err);
    if (s != ROSE_OK) run_close(r);
    return s;
}

static inline enum rose_status run_open(struct run *r, const char *path, enum dtype kv, struct rose_error *err)
{
    return run_open_as(r, path, kv, false, err);
}

/* The same on a GPU that stays open, with the cache in the model's own type; weights: head_wish.weights; decode: its program is for one row
 * a sequence. */
static inline enum rose_status run_open_on(struct run *r, struct device *device, const char *path, enum dtype weights, bool decode,
                                           struct rose_error *err)
{
    const struct head_wish wish = {.yes = -1, .no = -1, .weights = weights};
    struct weights *w;
    *r = (struct run){.device = device, .shared = true, .decode = decode};
    enum rose_status s = weights_open(path, &w, err);
    if (s == ROSE_OK) s = model_open_as(r->device, w, &wish, NULL, NULL, &r->model, err);
    if (s == ROSE_OK) s = run_record(r, r->model->element, err);
    if (s != ROSE_OK) run_close(r);
    return s;
}

/* Sequence i begins with this prompt. Pages: a fixed shuffle of all there are. */
static inline void run_begin(struct run *r, int i, const int32_t *prompt, int32_t n)
{
    struct run_seq *q = &r->seq[i];
    int32_t total = RUN_SEQS * RUN_BLOCKS * r->model->config.groups_count;
    memcpy(q->tokens, prompt, (size_t)n * sizeof *prompt);
    q->known = q->prompt = n;
    q->computed = 0;
    for (int g = 0; g < r->model->config.groups_count; g++)
        for (int b = 0; b < RUN_BLOCKS; b++)
            q->pages[g][b] =
                (((g * RUN_SEQS + i) * RUN_BLOCKS + b) * 37 + 5) % total; /* 37 and total are coprime */
}

/* Compute rows[i] more tokens of sequence i. Logits of all rows follow each other, in order of sequences. */
static inline enum rose_status run_step(struct run *r, const int32_t rows[RUN_SEQS], struct rose_error *err)
{
    const struct model_config *c = &r->model->config;
    struct extents e = {.n = {[EXTENT_ONE] = 1}};
    int32_t at = 0, seqs = 0;
    r->seq_rows[0] = 0;
    for (int i = 0; i < RUN_SEQS; i++) {
        struct run_seq *q = &r->seq[i];
        if (!rows[i]) continue;
        for (int32_t k = 0; k < rows[i]; k++, at++) {
            int32_t p = q->computed + k;
            r->tokens[at] = q->tokens[p];
            r->positions[at] = p;
            r->row_seq[at] = seqs;
            r->sample_rows[at] = at;
            for (int g = 0; g < c->groups_count; g++)
                r->slot[g][at] = (int64_t)q->pages[g][p / RUN_PAGE] * RUN_PAGE + p % RUN_PAGE;
        }
        for (int g = 0; g < c->groups_count; g++)
            for (int b = 0; b < RUN_BLOCKS; b++) {
                bool passed =
                    c->groups[g].window && (b + 1) * RUN_PAGE <= q->computed - c->groups[g].window + 1;
                r->table[g][seqs * RUN_BLOCKS + b] = passed ? -1 : q->pages[g][b];
            }
        q->computed += rows[i];
        r->seq_length[seqs] = q->computed;
        float scale;
        if (r->inv_freq)
            rope_inv_freq(&c->ropes[0], c->context, q->prompt,
                          r->inv_freq + seqs * c->ropes[0].rotary_dim / 2, &scale);
        r->seq_rows[++seqs] = at;
    }
    e.n[EXTENT_ROWS] = e.n[EXTENT_SAMPLES] = at;
    e.n[EXTENT_SEQS] = seqs;
    if (r->block) ROSE_TRY(device_copy(r->device, r->block, (char *)r + RUN_INPUTS, RUN_INPUTS_END - RUN_INPUTS, err));
    if (r->freq_bytes) ROSE_TRY(device_copy(r->device, r->block + r->freq_at, r->inv_freq, r->freq_bytes, err));
    ROSE_TRY(device_submit(r->device, r->program, &e, err));
    if (r->block)
        ROSE_TRY(device_copy(r->device, r->logits, r->block + r->logits_at, (size_t)at * (size_t)c->vocabulary * sizeof(float), err));
    return device_wait(r->device, NULL, err);
}

/* A golden case's prompt and the answer that follows it. */
struct run_text {
    int32_t *prompt, *text, prompt_n, text_n;
};
/* The logits of the rows at positions first, first + 1, … of one sequence. */
typedef void run_seen(void *arg, const struct run_text *text, const float *logits, int32_t first, int32_t rows);

/* Computes a case in chunks of so many rows, its answer given token by token. `beside`: the same runs as a second sequence too, some
 * tokens behind. */
static inline void run_case_text(struct run *r, const struct json *c, int32_t chunk, bool beside, run_seen *seen, void *arg)
{
    struct rose_error err = {0};
    struct run_text t;
    t.prompt = golden_ids(json_get(c, "prompt"), &t.prompt_n), t.text = golden_ids(json_get(c, "text"), &t.text_n);
    int32_t end = t.prompt_n + t.text_n - 1;
    for (int i = 0; i < RUN_SEQS; i++) run_begin(r, i, t.prompt, t.prompt_n);
    for (int step = 0; r->seq[0].computed < end || (beside && r->seq[1].computed < end); step++) {
        int32_t rows[RUN_SEQS] = {0}, at = 0;
        for (int i = 0; i < (beside ? 2 : 1); i++) {
            struct run_seq *q = &r->seq[i];
            if ((i && step < 2) || q->computed == end) continue;
            rows[i] = q->known - q->computed < chunk ? q->known - q->computed : chunk;
        }
        enum rose_status s = run_step(r, rows, &err);
        CHECK_OK(s, err);
        if (s != ROSE_OK) break;
        for (int i = 0; i < RUN_SEQS; at += rows[i++]) {
            struct run_seq *q = &r->seq[i];
            if (!rows[i]) continue;
            seen(arg, &t, r->logits + (size_t)at * (size_t)r->model->config.vocabulary, q->computed - rows[i], rows[i]);
            if (q->computed >= t.prompt_n && q->known < end) q->tokens[q->known] = t.text[q->known - t.prompt_n], q->known++;
        }
    }
    free(t.prompt), free(t.text);
}

#endif
