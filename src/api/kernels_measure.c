/* The launches of a step, run on a GPU: its inputs first, then each kind of launch by replays of a graph. */
#include "api/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"

/* ---- an engine's steps ---- */

/* The inputs of a step: `seqs` sequences whose last rows these are, each `context` long where that is more than its rows. Every
 * sequence samples, with a temperature and from the 50 likeliest. */
static void fill(const struct engine *e, const struct kernels_step *s, int32_t context, struct batch *b)
{
    bool forward = s->rows > 0 && strcmp(s->kind, "sample");
    int32_t page = e->cache.page_tokens, per = s->rows / s->seqs, at = 0;
    int64_t pages = e->pages.total;
    b->seq_rows[0] = 0;
    for (int32_t q = 0; q < s->seqs; q++) {
        b->sample_row[q] = (struct sample_row)SAMPLE_ROW_GREEDY;
        b->sample_row[q].temperature = 0.8f, b->sample_row[q].top_k = 50, b->sample_row[q].seed = (uint64_t)q;
        if (!forward) continue;
        int32_t rows = q + 1 < s->seqs ? per : s->rows - at, length = ROSE_MAX(rows, strcmp(s->kind, "prompt") ? context : rows);
        int32_t blocks = (length + page - 1) / page;
        for (int g = 0; g < e->layout.sizes.groups; g++)
            for (int32_t i = 0; i < blocks && i < e->layout.sizes.table_stride; i++)
                b->page_table[g][(int64_t)q * e->layout.sizes.table_stride + i] = (int32_t)((((int64_t)q * e->layout.sizes.groups + g) * blocks + i) % pages);
        for (int32_t i = 0; i < rows; i++, at++) {
            int32_t p = length - rows + i;
            b->positions[at] = p;
            b->row_seq[at] = q;
            b->row_history[at] = (int64_t)q * e->history_stride;
            for (int g = 0; g < e->layout.sizes.groups; g++)
                b->kv_slot[g][at] = (int64_t)b->page_table[g][(int64_t)q * e->layout.sizes.table_stride + p / page] * page + p % page;
        }
        b->seq_length[q] = length;
        b->seq_rows[q + 1] = at;
        b->sample_rows[q] = at - 1;
    }
}

/* What a step fetches: the used part of an array, in pieces. */
static void piece(struct engine *e, const void *array, const void *block, size_t bytes, int *count)
{
    size_t from = (size_t)((const char *)array - (const char *)block);
    for (size_t words = bytes / 4, n; words; words -= n, from += n * 4) {
        n = ROSE_MIN(words, (size_t)FETCH_MOST_WORDS);
        e->steps[0].segments[(*count)++] = (struct fetch_segment){(uint64_t)(uintptr_t)((char *)e->inputs + from), (uint32_t)(from / 4), (uint32_t)n};
    }
}

static void fill_segments(struct engine *e, const struct kernels_step *s, int32_t context)
{
    void *block = e->steps[0].staging;
    const struct batch_sizes *size = &e->layout.sizes;
    size_t rows = (size_t)s->rows, seqs = (size_t)s->seqs;
    struct batch b;
    int n = 0;
    batch_view(&e->layout, block, &b);
    fill(e, s, context, &b);
    piece(e, b.tokens, block, rows * 4, &n), piece(e, b.positions, block, rows * 4, &n), piece(e, b.row_seq, block, rows * 4, &n);
    piece(e, b.row_history, block, rows * 8, &n), piece(e, b.seq_rows, block, (seqs + 1) * 4, &n), piece(e, b.seq_length, block, seqs * 4, &n);
    piece(e, b.sample_rows, block, seqs * 4, &n), piece(e, b.sample_row, block, seqs * sizeof *b.sample_row, &n);
    for (int g = 0; g < size->groups; g++) {
        size_t blocks = (size_t)ROSE_MIN((context + e->cache.page_tokens - 1) / e->cache.page_tokens, size->table_stride);
        piece(e, b.kv_slot[g], block, rows * 8, &n);
        for (size_t q = 0; q < seqs; q++) piece(e, b.page_table[g] + q * (size_t)size->table_stride, block, blocks * 4, &n);
    }
    for (int i = 0; i < FETCH_WARPS; i++) e->steps[0].segments[n + i] = (struct fetch_segment){0};
}

/* Tokens of all sorts, so that a mixture's rows take different experts. */
static enum rose_status give_history(struct engine *e, struct rose_error *err)
{
    size_t n = ROSE_MIN(e->history_bytes / 4, (size_t)1 << 20);
    int32_t *tokens = malloc(n * 4);
    if (!tokens) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) tokens[i] = (int32_t)((i * 2654435761u >> 8) % (size_t)e->model->config.vocabulary);
    enum rose_status status = ROSE_OK;
    for (size_t at = 0; at < e->history_bytes && status == ROSE_OK; at += n * 4)
        status = device_copy(e->device, (char *)e->history + at, tokens, ROSE_MIN(n * 4, e->history_bytes - at), err);
    if (status == ROSE_OK) status = device_wait(e->device, NULL, err);
    free(tokens);
    return status;
}

static enum rose_status give_engine(struct engine *e, int32_t context, const struct kernels_step *s, struct rose_error *err)
{
    struct batch b;
    context = ROSE_MIN(context, e->options.context);
    ROSE_TRY(give_history(e, err));
    if (!strcmp(s->kind, "fetch")) return fill_segments(e, s, context), ROSE_OK;
    void *block = calloc(1, e->layout.bytes);
    if (!block) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    batch_view(&e->layout, block, &b);
    fill(e, s, context, &b);
    enum rose_status status = device_copy(e->device, e->inputs, block, e->layout.bytes, err);
    if (status == ROSE_OK) status = device_wait(e->device, NULL, err);
    free(block);
    return status;
}

/* ---- a pool's ---- */

static enum rose_status give_pool(struct pool *p, const struct kernels_step *s, struct rose_error *err)
{
    struct pool_bucket *bucket = pool_memory_bucket(p, s->rows, s->seqs);
    const struct model_config *c = &p->model->config;
    struct pool_inputs *in = &bucket->host;
    memset(p->memory.staging, 0, bucket->bytes);
    for (int32_t q = 0, row = 0; q < s->seqs; q++) {
        int32_t end = (int32_t)((int64_t)s->rows * (q + 1) / s->seqs), count = end - row;
        float scale;
        if (in->inv_freq) rope_inv_freq(&c->ropes[0], c->context, count, in->inv_freq + (size_t)q * (size_t)(c->ropes[0].rotary_dim / 2), &scale);
        in->seq_length[q] = count, in->kind[q] = (int32_t)OP_POOL_MEAN;
        for (int32_t i = 0; row < end; i++, row++) in->tokens[row] = row % c->vocabulary, in->positions[row] = i, in->row_seq[row] = q;
        in->seq_rows[q + 1] = row;
    }
    ROSE_TRY(device_copy(p->device, p->memory.inputs, p->memory.staging, bucket->bytes, err));
    return device_wait(p->device, NULL, err);
}

/* ---- both ---- */

enum rose_status kernels_step_measure(const struct kernels_source *source, struct kernels_step *s, struct rose_error *err)
{
    enum { WARM = 3, REPLAYS = 20, SHORT = 16 };
    if (source->engine) ROSE_TRY(give_engine(source->engine, source->context, s, err));
    else ROSE_TRY(give_pool(source->pool, s, err));
    ROSE_TRY(device_submit(source->device, s->program, &s->extents, err));
    ROSE_TRY(device_wait(source->device, NULL, err));
    for (int i = 0; i < s->rows_count; i++) {
        struct kernels_row *r = &s->row[i];
        struct program_launch launches[KERNELS_SAME];
        uint32_t grids[KERNELS_SAME][3];
        /* In a graph of at least SHORT launches: a graph's own launch takes as long as one of the small kernels. */
        int n = ROSE_MIN(r->count, KERNELS_SAME), times = n < SHORT ? (SHORT + n - 1) / n : 1;
        for (int k = 0; k < n * times; k++) {
            launches[k] = *r->same[k % n];
            cuda_grid(r->same[k % n], &s->extents, grids[k]);
        }
        n *= times;
        ROSE_TRY(cuda_bench_graph_us(source->device, launches, (const uint32_t(*)[3])grids, n, times > 1 ? 1 : WARM, ROSE_MAX(3, REPLAYS / times), &r->measured_us, err));
    }
    return ROSE_OK;
}
