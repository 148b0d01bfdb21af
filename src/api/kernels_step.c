/* The launches of a step by kind, and their times on a GPU. */
#include "api/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "ops/attention.h"

static double cost(double fixed, const double per[EXTENT_COUNT], const struct extents *e)
{
    for (int i = 0; i < EXTENT_COUNT; i++) fixed += per[i] * e->n[i];
    return fixed;
}

static bool alike(const struct kernels_row *r, const struct program_launch *l)
{
    const struct planned *a = r->planned, *b = l->plan;
    if (strcmp(r->launch->name, l->name) || !a != !b) return false;
    return !a || (a->kernel == b->kernel && a->plan.block == b->plan.block && a->plan.times == b->plan.times && a->plan.per == b->plan.per &&
                  a->plan.rows == b->plan.rows && a->plan.bytes == b->plan.bytes);
}

/* By the data sheets of the cards that planning.c names. */
double kernels_tensor_rate(const char *arch)
{
    static const struct {
        const char *arch;
        double rate;
    } rates[] = {{"sm_80", 312e12}, {"sm_89", 362e12}, {"sm_90a", 989e12}, {"sm_100a", 2250e12}, {"sm_120a", 503e12}};
    for (size_t i = 0; i < ROSE_COUNT(rates); i++)
        if (!strcmp(arch, rates[i].arch)) return rates[i].rate;
    return 0;
}

/* Attention's costs are stated by rows; a decode step reads the keys and values of its sequences too. */
static void add_cache(const struct engine *e, const struct kernels_step *s, int32_t context, double rate, struct kernels_row *r)
{
    const struct model_config *c = &e->model->config;
    const struct program_launch *l = r->launch;
    if (strcmp(s->kind, "decode") || strcmp(l->name, "attention") || l->layer < 0 || l->layer >= c->layers) return;
    int32_t window = c->layer[l->layer].window, seen = window ? ROSE_MIN(window, context) : context;
    double bytes = (double)s->seqs * seen * (double)op_cache_token_bytes(e->cache.dtype, &c->heads);
    r->bytes += bytes;
    if (r->predicted_us > 0) r->predicted_us += bytes / rate * 1e6;
    r->ops += 2.0 * s->seqs * seen * c->heads.heads * (c->heads.head_dim + c->heads.value_dim);
    r->limit_us = 0;
}

enum rose_status kernels_step_read(const struct engine *engine, int32_t context, struct kernels_step *s, struct rose_error *err)
{
    const struct device_info *device = &engine->device->info;
    double rate = 0.875 * (device->bandwidth > 0 ? device->bandwidth : 1e12), tensor = kernels_tensor_rate(device->arch);
    s->row = calloc(KERNELS_ROWS, sizeof *s->row);
    if (!s->row) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int i = 0; i < s->program->count; i++) {
        const struct program_launch *l = &s->program->entries[i].launch;
        int n = 0;
        while (n < s->rows_count && !alike(&s->row[n], l)) n++;
        if (n == KERNELS_ROWS) return status_set(err, ROSE_LIMIT, "a step of more than %d kinds of launches", KERNELS_ROWS);
        struct kernels_row *r = &s->row[n];
        if (n == s->rows_count) {
            s->rows_count++;
            *r = (struct kernels_row){.launch = l, .planned = l->plan, .measured_us = -1};
            r->bytes = cost(l->cost.bytes, l->cost.bytes_per, &s->extents), r->ops = cost(l->cost.ops, l->cost.ops_per, &s->extents);
            if (r->planned) {
                r->predicted_us = r->planned->plan.predicted_us;
                r->limit_us = r->planned->plan.limit_us;
                cuda_grid(l, &s->extents, r->grid);
            }
            add_cache(engine, s, context, rate, r);
            r->limit_us = ROSE_MAX(r->limit_us, r->bytes / rate * 1e6);
            if (tensor > 0) r->limit_us = ROSE_MAX(r->limit_us, r->ops / tensor * 1e6);
        }
        if (r->count < KERNELS_SAME) r->same[r->count] = l;
        r->count++;
    }
    return ROSE_OK;
}

/* ---- measuring ---- */

/* The inputs of a step: `seqs` sequences whose last rows these are, each `context` long where that is more than its rows. */
static void fill(const struct engine *e, const struct kernels_step *s, int32_t context, struct batch *b)
{
    int32_t page = e->cache.page_tokens, per = s->rows / s->seqs, at = 0;
    int64_t pages = e->pages.total;
    b->seq_rows[0] = 0;
    for (int32_t q = 0; q < s->seqs; q++) {
        int32_t rows = q + 1 < s->seqs ? per : s->rows - at, length = ROSE_MAX(rows, strcmp(s->kind, "decode") ? rows : context);
        int32_t blocks = (length + page - 1) / page;
        for (int g = 0; g < e->layout.sizes.groups; g++)
            for (int32_t i = 0; i < blocks && i < e->layout.sizes.table_stride; i++)
                b->page_table[g][(int64_t)q * e->layout.sizes.table_stride + i] = (int32_t)((((int64_t)q * e->layout.sizes.groups + g) * blocks + i) % pages);
        for (int32_t i = 0; i < rows; i++, at++) {
            int32_t p = length - rows + i;
            b->positions[at] = p;
            b->row_seq[at] = q;
            b->row_history[at] = 0;
            for (int g = 0; g < e->layout.sizes.groups; g++)
                b->kv_slot[g][at] = (int64_t)b->page_table[g][(int64_t)q * e->layout.sizes.table_stride + p / page] * page + p % page;
        }
        b->seq_length[q] = length;
        b->seq_rows[q + 1] = at;
        b->sample_rows[q] = at - 1;
    }
}

enum rose_status kernels_step_measure(struct engine *e, int32_t context, struct kernels_step *s, struct rose_error *err)
{
    enum { WARM = 3, REPLAYS = 20 };
    void *block = calloc(1, e->layout.bytes);
    struct batch b;
    if (!block) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    batch_view(&e->layout, block, &b);
    fill(e, s, ROSE_MIN(context, e->options.context), &b);
    enum rose_status status = device_copy(e->device, e->inputs, block, e->layout.bytes, err);
    if (status == ROSE_OK) status = cuda_fill(e->device, e->history, 0, e->history_bytes, err);
    if (status == ROSE_OK) status = device_submit(e->device, s->program, &s->extents, err);
    if (status == ROSE_OK) status = device_wait(e->device, NULL, err);
    free(block);
    for (int i = 0; i < s->rows_count && status == ROSE_OK; i++) {
        struct kernels_row *r = &s->row[i];
        struct program_launch launches[KERNELS_SAME];
        uint32_t grids[KERNELS_SAME][3];
        int n = ROSE_MIN(r->count, KERNELS_SAME);
        for (int k = 0; k < n; k++) {
            launches[k] = *r->same[k];
            cuda_grid(r->same[k], &s->extents, grids[k]);
        }
        status = cuda_bench_graph_us(e->device, launches, (const uint32_t(*)[3])grids, n, WARM, REPLAYS, &r->measured_us, err);
    }
    return status;
}
