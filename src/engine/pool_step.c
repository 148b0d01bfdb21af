/* One batch: whole texts side by side, a forward, an answer each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "engine/histogram.h"
#include "engine/pool_request.h"

/* --- memory and program ---------------------------------------------------------------------------------------------------------- */

static size_t carve(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += size_round_up(bytes, 64);
    return here;
}

struct layout {
    size_t tokens, positions, row_seq, types, seq_rows, seq_length, kind, skip, inv_freq, bytes;
    size_t rows_bytes, seqs_bytes, freq_bytes;
};

static struct layout layout_of(const struct pool *p)
{
    const struct model_config *c = &p->model->config;
    size_t rows = (size_t)p->max_rows * 4, seqs = ((size_t)p->options.max_sequences + 1) * 4, at = 0;
    size_t freq = rope_by_length(&c->ropes[0]) ? seqs * (size_t)c->ropes[0].rotary_dim / 2 : 0;
    struct layout l = {.rows_bytes = rows, .seqs_bytes = seqs, .freq_bytes = freq};
    l.tokens = carve(&at, rows), l.positions = carve(&at, rows), l.row_seq = carve(&at, rows), l.types = carve(&at, rows);
    l.seq_rows = carve(&at, seqs), l.seq_length = carve(&at, seqs), l.kind = carve(&at, seqs), l.skip = carve(&at, seqs);
    l.inv_freq = carve(&at, freq);
    l.bytes = at;
    return l;
}

static enum rose_status record(struct pool *p, const struct layout *l, struct rose_error *err)
{
    const struct model_config *c = &p->model->config;
    ROSE_TRY(program_open(p->device, &p->program, err));
    struct program *g = p->program;
    char *in = p->inputs;
    struct forward f = {.deterministic = p->options.deterministic};
    f.step = (struct op_step){.max_rows = p->max_rows, .max_seqs = p->options.max_sequences, .max_samples = p->options.max_sequences};
    f.step.tokens = program_external(g, "tokens", in + l->tokens, l->rows_bytes);
    f.step.positions = program_external(g, "positions", in + l->positions, l->rows_bytes);
    f.step.row_seq = program_external(g, "row_seq", in + l->row_seq, l->rows_bytes);
    f.step.seq_rows = program_external(g, "seq_rows", in + l->seq_rows, l->seqs_bytes);
    f.step.seq_length = program_external(g, "seq_length", in + l->seq_length, l->seqs_bytes);
    if (l->freq_bytes) f.step.seq_inv_freq = program_external(g, "seq_inv_freq", in + l->inv_freq, l->freq_bytes);
    f.types = program_external(g, "types", in + l->types, l->rows_bytes);
    f.pool_kind = program_external(g, "pool_kind", in + l->kind, l->seqs_bytes);
    f.pool_skip = program_external(g, "pool_skip", in + l->skip, l->seqs_bytes);
    f.hidden = program_external(g, "hidden", p->hidden, p->hidden_bytes);
    if (forward_pooled_cols(c)) f.pooled = program_external(g, "pooled", p->pooled, p->pooled_bytes);
    if (forward_token_cols(c)) f.token_values = program_external(g, "token values", p->token_values, p->token_bytes);
    ROSE_TRY(forward_record(p->model, g, &f, err));
    return program_finish(g, NULL, 0, err);
}

static void *take(struct pool *p, size_t bytes, struct rose_error *err) { return device_alloc(p->device, bytes, DEVICE_MEMORY_LOCAL, err); }

enum rose_status pool_step_open(struct pool *p, struct rose_error *err)
{
    const struct model_config *c = &p->model->config;
    if (p->device->info.kind != DEVICE_CPU) return status_set(err, ROSE_UNSUPPORTED, "models that embed, classify or score do not run on CUDA devices yet: use --device cpu");
    p->max_rows = ROSE_MAX(p->options.step_tokens, p->options.context);
    struct layout l = layout_of(p);
    p->inputs_bytes = l.bytes;
    p->hidden_bytes = (size_t)p->max_rows * (size_t)c->hidden * 4;
    p->pooled_bytes = (size_t)p->options.max_sequences * (size_t)ROSE_MAX(forward_pooled_cols(c), 1) * 4;
    p->token_bytes = (size_t)p->max_rows * (size_t)ROSE_MAX(forward_token_cols(c), 1) * 4;
    if (!(p->inputs = take(p, p->inputs_bytes, err)) || !(p->hidden = take(p, p->hidden_bytes, err)) || !(p->pooled = take(p, p->pooled_bytes, err)) ||
        !(p->token_values = take(p, p->token_bytes, err)))
        return ROSE_NO_MEMORY;
    char *in = p->inputs;
    p->host = (struct pool_inputs){(void *)(in + l.tokens), (void *)(in + l.positions), (void *)(in + l.row_seq), (void *)(in + l.types), (void *)(in + l.seq_rows),
                                   (void *)(in + l.seq_length), (void *)(in + l.kind), (void *)(in + l.skip), l.freq_bytes ? (void *)(in + l.inv_freq) : NULL};
    p->hidden_host = p->hidden, p->pooled_host = p->pooled, p->token_host = p->token_values;
    size_t widest = ROSE_MAX((size_t)p->options.context * (size_t)ROSE_MAX(forward_token_cols(c), 1), (size_t)ROSE_MAX(forward_pooled_cols(c), 1));
    p->scratch = malloc(widest * sizeof *p->scratch);
    p->scratch_ids = malloc((size_t)p->options.context * sizeof *p->scratch_ids);
    p->batch = calloc((size_t)p->options.max_sequences, sizeof *p->batch);
    if (!p->scratch || !p->scratch_ids || !p->batch) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    return record(p, &l, err);
}

void pool_step_close(struct pool *p)
{
    program_close(p->program);
    device_free(p->device, p->inputs, p->inputs_bytes, DEVICE_MEMORY_LOCAL);
    device_free(p->device, p->hidden, p->hidden_bytes, DEVICE_MEMORY_LOCAL);
    device_free(p->device, p->pooled, p->pooled_bytes, DEVICE_MEMORY_LOCAL);
    device_free(p->device, p->token_values, p->token_bytes, DEVICE_MEMORY_LOCAL);
    free(p->scratch);
    free(p->scratch_ids);
    free(p->batch);
}

/* --- a batch ------------------------------------------------------------------------------------------------------------------------ */

/* In the queue's order until the budget is spent; a text that is longer than it goes alone. */
static void choose(struct pool *p)
{
    double now = engine_now();
    p->batch_count = p->batch_rows = 0;
    for (struct pool_request *r; (r = pool_queue_first(&p->queue)) && p->batch_count < p->options.max_sequences;) {
        if (p->batch_count && p->batch_rows + r->count > p->options.step_tokens) break;
        pool_queue_take(&p->queue);
        r->started_s = now;
        p->batch[p->batch_count++] = r;
        p->batch_rows += r->count;
    }
    pthread_mutex_lock(&p->lock);
    p->queued -= p->batch_count;
    pthread_mutex_unlock(&p->lock);
}

static void fill(struct pool *p)
{
    const struct model_config *c = &p->model->config;
    struct pool_inputs *in = &p->host;
    int32_t row = 0;
    for (int32_t s = 0; s < p->batch_count; s++) {
        const struct pool_request *r = p->batch[s];
        in->seq_rows[s] = row;
        in->seq_length[s] = r->count;
        in->kind[s] = (int32_t)r->wish.pooling;
        in->skip[s] = r->wish.skip;
        memcpy(in->tokens + row, r->tokens, (size_t)r->count * 4);
        if (r->types) memcpy(in->types + row, r->types, (size_t)r->count * 4);
        else memset(in->types + row, 0, (size_t)r->count * 4);
        for (int32_t i = 0; i < r->count; i++) in->positions[row + i] = i, in->row_seq[row + i] = s;
        float scale;
        if (in->inv_freq) rope_inv_freq(&c->ropes[0], c->context, r->count, in->inv_freq + (size_t)s * (size_t)(c->ropes[0].rotary_dim / 2), &scale);
        row += r->count;
    }
    in->seq_rows[p->batch_count] = row;
}

/* --- answers ------------------------------------------------------------------------------------------------------------------------ */

static void normalize(float *v, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    float scale = (float)(1 / ROSE_MAX(sqrt(sum), 1e-12));
    for (int32_t i = 0; i < n; i++) v[i] *= scale;
}

static void activate(enum head_activation activation, float *v, int32_t n)
{
    if (activation == HEAD_SIGMOID)
        for (int32_t i = 0; i < n; i++) v[i] = (float)(1 / (1 + exp(-(double)v[i])));
    if (activation != HEAD_SOFTMAX) return;
    float top = v[0];
    double sum = 0;
    for (int32_t i = 1; i < n; i++) top = ROSE_MAX(top, v[i]);
    for (int32_t i = 0; i < n; i++) sum += exp((double)(v[i] - top));
    for (int32_t i = 0; i < n; i++) v[i] = (float)(exp((double)(v[i] - top)) / sum);
}

struct weighted {
    int32_t id;
    float weight;
};

static int by_token(const void *a, const void *b)
{
    const struct weighted *x = a, *y = b;
    return x->id != y->id ? (x->id < y->id ? -1 : 1) : x->weight < y->weight ? 1 : x->weight > y->weight ? -1 : 0;
}

/* A token's weight is the largest of its rows; zero weights and the model's own special tokens do not show. scratch has room for both arrays. */
static void sparse_answer(struct pool *p, const struct pool_request *r, const float *weights, struct rose_event *e)
{
    const struct model_config *c = &p->model->config;
    struct weighted *all = malloc((size_t)r->count * sizeof *all);
    int32_t n = 0, out = 0;
    if (!all) {
        *e = (struct rose_event){.finish = ROSE_FINISH_ERROR, .status = ROSE_NO_MEMORY, .message = "no memory for the weights of a text's tokens"};
        return;
    }
    for (int32_t i = 0; i < r->count; i++) {
        bool special = r->tokens[i] == c->bos || r->tokens[i] == c->pad;
        for (int32_t k = 0; k < r->wish.special_count; k++) special |= r->tokens[i] == r->wish.special[k];
        for (int32_t k = 0; k < c->eos_count; k++) special |= r->tokens[i] == c->eos[k];
        if (!special && weights[i] > 0) all[n++] = (struct weighted){r->tokens[i], weights[i]};
    }
    qsort(all, (size_t)n, sizeof *all, by_token);
    for (int32_t i = 0; i < n; i++)
        if (!out || p->scratch_ids[out - 1] != all[i].id) p->scratch_ids[out] = all[i].id, p->scratch[out++] = all[i].weight;
    free(all);
    e->values = p->scratch, e->rows = 1, e->cols = out, e->value_ids = p->scratch_ids, e->value_ids_count = out;
}

static void embed_answer(struct pool *p, const struct pool_request *r, int32_t s, int32_t row, struct rose_event *e)
{
    const struct model_config *c = &p->model->config;
    const struct pool_wish *w = &r->wish;
    int32_t cols = w->per_token ? c->hidden : c->head.embedding, keep = w->dimensions ? ROSE_MIN(w->dimensions, cols) : cols;
    if (w->sparse) {
        sparse_answer(p, r, p->token_host + row, e);
        return;
    }
    if (!w->per_token) {
        float *v = p->pooled_host + (size_t)s * (size_t)cols;
        if (w->normalize) normalize(v, keep);
        e->values = v, e->rows = 1, e->cols = keep;
        return;
    }
    float *v = p->hidden_host + (size_t)row * (size_t)cols; /* rows move together where dimensions are cut */
    for (int32_t i = 0; i < r->count; i++) {
        float *to = v + (size_t)i * (size_t)keep;
        memmove(to, v + (size_t)i * (size_t)cols, (size_t)keep * sizeof *v);
        if (w->normalize) normalize(to, keep);
    }
    e->values = v, e->rows = r->count, e->cols = keep, e->value_ids = r->tokens, e->value_ids_count = r->count;
}

static void answer(struct pool *p, struct pool_request *r, int32_t s, int32_t row)
{
    const struct model_config *c = &p->model->config;
    struct rose_event e = {.finish = ROSE_FINISH_STOP};
    int32_t cols = forward_pooled_cols(c);
    if (c->head.task == MODEL_EMBED) {
        embed_answer(p, r, s, row, &e);
    } else if (c->head.task == MODEL_CLASSIFY_TOKENS) {
        float *v = p->token_host + (size_t)row * (size_t)c->head.labels;
        for (int32_t i = 0; i < r->count; i++) activate(r->wish.activation, v + (size_t)i * (size_t)c->head.labels, c->head.labels);
        e.values = v, e.rows = r->count, e.cols = c->head.labels, e.value_ids = r->tokens, e.value_ids_count = r->count;
    } else {
        float *v = p->pooled_host + (size_t)s * (size_t)cols;
        if (c->head.task == MODEL_YES_NO && cols == 2) v[0] -= v[1], cols = 1; /* the log odds of yes */
        activate(r->wish.activation, v, cols);
        e.values = v, e.rows = 1, e.cols = cols;
    }
    for (int64_t i = 0, n = (int64_t)e.rows * e.cols; i < n; i++)
        if (!isfinite(e.values[i])) {
            e = (struct rose_event){.finish = ROSE_FINISH_ERROR, .status = ROSE_DEVICE, .message = "the model's answer is not a finite number: its weights or the text overflow"};
            break;
        }
    pool_end(p, r, &e);
}

static void count_step(struct pool *p, double seconds)
{
    double now = engine_now();
    pthread_mutex_lock(&p->counters_lock);
    struct rose_stats *s = &p->stats;
    s->steps++;
    s->tokens_in += (uint64_t)p->batch_rows;
    s->last_prefill_rows = p->batch_rows;
    s->last_decode_rows = 0;
    s->last_step_s = seconds;
    s->running = p->batch_count;
    s->waiting = (int)p->queue.count;
    histogram_observe(&s->step_time, seconds);
    p->recent[s->steps % ROSE_STEPS_KEPT] = (struct rose_step){.index = s->steps, .prefill_rows = p->batch_rows, .seconds = (float)seconds};
    p->last_step_at_s = now;
    pthread_mutex_unlock(&p->counters_lock);
}

void pool_step_run(struct pool *p)
{
    struct rose_error err = {0};
    struct device_event done = {0};
    double begun = engine_now();
    choose(p);
    fill(p);
    struct extents extents = {{1, p->batch_rows, p->batch_count, p->batch_count}};
    guard_enter();
    enum rose_status s = device_submit(p->device, p->program, &extents, &err);
    if (s == ROSE_OK) s = device_record(p->device, &done, &err);
    if (s == ROSE_OK) s = device_wait(p->device, &done, &err);
    guard_leave();
    if (s != ROSE_OK) {
        pthread_mutex_lock(&p->lock);
        p->failed = true;
        p->failure = err;
        pthread_mutex_unlock(&p->lock);
    } else {
        count_step(p, engine_now() - begun);
    }
    for (int32_t i = 0, row = 0; i < p->batch_count; i++) {
        struct pool_request *r = p->batch[i];
        int32_t count = r->count;
        if (s == ROSE_OK) answer(p, r, i, row);
        else pool_end(p, r, &(struct rose_event){.finish = ROSE_FINISH_ERROR, .status = ROSE_DEVICE, .message = err.message});
        row += count;
    }
    p->batch_count = p->batch_rows = 0;
}
