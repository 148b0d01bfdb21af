/* One batch: whole texts side by side, a forward, an answer each. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "engine/histogram.h"
#include "engine/pool_request.h"

enum rose_status pool_step_open(struct pool *p, struct rose_error *err)
{
    const struct model_config *c = &p->model->config;
    size_t widest = ROSE_MAX((size_t)p->options.context * (size_t)ROSE_MAX(forward_token_cols(c), 1), (size_t)ROSE_MAX(forward_pooled_cols(c), 1));
    p->scratch = malloc(widest * sizeof *p->scratch);
    p->scratch_ids = malloc((size_t)p->options.context * sizeof *p->scratch_ids);
    p->batch = calloc((size_t)p->options.max_sequences, sizeof *p->batch);
    if (!p->scratch || !p->scratch_ids || !p->batch) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    return pool_memory_open(p, err);
}

void pool_step_close(struct pool *p)
{
    pool_memory_close(p);
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

static void fill(struct pool *p, struct pool_inputs *in)
{
    const struct model_config *c = &p->model->config;
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

static void fail(struct pool *p, const struct rose_error *err)
{
    pthread_mutex_lock(&p->lock);
    p->failed = true;
    p->failure = *err;
    pthread_mutex_unlock(&p->lock);
}

static void embed_answer(struct pool *p, const struct pool_request *r, int32_t s, int32_t row, struct rose_event *e)
{
    const struct model_config *c = &p->model->config;
    const struct pool_wish *w = &r->wish;
    int32_t cols = w->per_token ? c->hidden : c->head.embedding, keep = w->dimensions ? ROSE_MIN(w->dimensions, cols) : cols;
    if (w->sparse) {
        sparse_answer(p, r, p->memory.token_host + row, e);
        return;
    }
    if (!w->per_token) {
        float *v = p->memory.pooled_host + (size_t)s * (size_t)cols;
        if (w->normalize) normalize(v, keep);
        e->values = v, e->rows = 1, e->cols = keep;
        return;
    }
    float *v;
    struct rose_error err = {0};
    enum rose_status status = pool_memory_hidden(p, row, r->count, &v, &err);
    if (status != ROSE_OK) {
        fail(p, &err);
        *e = (struct rose_event){.finish = ROSE_FINISH_ERROR, .status = ROSE_DEVICE, .message = p->failure.message};
        return;
    }
    /* rows move together where dimensions are cut */
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
        float *v = p->memory.token_host + (size_t)row * (size_t)c->head.labels;
        for (int32_t i = 0; i < r->count; i++) activate(r->wish.activation, v + (size_t)i * (size_t)c->head.labels, c->head.labels);
        e.values = v, e.rows = r->count, e.cols = c->head.labels, e.value_ids = r->tokens, e.value_ids_count = r->count;
    } else {
        float *v = p->memory.pooled_host + (size_t)s * (size_t)cols;
        for (int32_t i = 0; c->head.task == MODEL_YES_NO && c->logits_softcap > 0 && i < cols; i++) v[i] = c->logits_softcap * tanhf(v[i] / c->logits_softcap);
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

/* Does anybody want what every token got? */
static bool wants_tokens(const struct pool *p)
{
    if (p->model->config.head.task == MODEL_CLASSIFY_TOKENS) return true;
    for (int32_t i = 0; i < p->batch_count; i++)
        if (p->batch[i]->wish.sparse) return true;
    return false;
}

void pool_step_run(struct pool *p)
{
    struct rose_error err = {0};
    double begun = engine_now();
    choose(p);
    struct pool_bucket *b = pool_memory_bucket(p, p->batch_rows, p->batch_count);
    fill(p, &b->host);
    guard_enter();
    enum rose_status s = pool_memory_run(p, b, p->batch_rows, p->batch_count, wants_tokens(p), &err);
    guard_leave();
    if (s != ROSE_OK) fail(p, &err);
    else count_step(p, engine_now() - begun);
    for (int32_t i = 0, row = 0; i < p->batch_count; i++) {
        struct pool_request *r = p->batch[i];
        int32_t count = r->count;
        if (s == ROSE_OK) answer(p, r, i, row);
        else pool_end(p, r, &(struct rose_event){.finish = ROSE_FINISH_ERROR, .status = ROSE_DEVICE, .message = err.message});
        row += count;
    }
    p->batch_count = p->batch_rows = 0;
}
