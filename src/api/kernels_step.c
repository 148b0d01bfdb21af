/* The launches of a step by kind. */
#include "api/kernels.h"

#include <math.h>
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

/* Attention's plans know rows and not how long the sequences are; what follows from the context is added here. Fitted on an H200:
 *
 *     decoding     the keys and values of all sequences, once; where they are cut to fill the GPU, 1.3 us for the merge
 *     prompts      tiles of 128 rows by 128 tokens, a head each, dealt out to the SMs: 2.5 us a block of rows, 1.9 us a tile of heads of
 *                  128 (1.85 of them at the 600 TFLOP/s that long prompts reach); what serves short files has nothing to do: 1.5 us */
static void add_context(const struct kernels_source *source, const struct kernels_step *s, double rate, double tensor, struct kernels_row *r)
{
    enum { TILE = 128 };
    const struct model_config *c = &source->model->config;
    const struct program_launch *l = r->launch;
    bool decode = !strcmp(s->kind, "decode");
    if ((!decode && strcmp(s->kind, "prompt")) || strcmp(l->name, "attention") || l->layer < 0 || l->layer >= c->layers || s->seqs < 1) return;
    int32_t window = c->layer[l->layer].window, per = decode ? 1 : s->rows / s->seqs, context = decode ? source->context : per, seen = window ? ROSE_MIN(window, context) : context;
    const int32_t units = ROSE_MAX(1, source->device->info.units), width = c->heads.head_dim + c->heads.value_dim;
    r->limit_us = 0;
    if (decode) {
        double bytes = (double)s->seqs * seen * (double)op_cache_token_bytes(source->engine->cache.dtype, &c->heads);
        r->bytes += bytes;
        if (r->predicted_us > 0) r->predicted_us += bytes / rate * 1e6 + ((int64_t)s->seqs * c->heads.kv_heads < units ? 1.3 : 0);
        r->ops += 2.0 * s->seqs * seen * c->heads.heads * width;
        return;
    }
    if (r->planned && !strcmp(r->planned->plan.kernel, "attention_split")) { /* every sequence has more rows than it takes */
        r->bytes = r->ops = 0;
        r->predicted_us = 1.5;
        return;
    }
    /* A row sees those before it, as far as the window goes: first those of a triangle, then of a band. */
    double pairs = seen * (seen + 1.0) / 2 + (double)(per - seen) * seen, tiles = 0;
    int32_t blocks = (per + TILE - 1) / TILE, most = (seen + TILE - 1) / TILE + (seen < per);
    for (int32_t i = 0; i < blocks; i++) tiles += ROSE_MIN(i + 1, most);
    r->ops = 2.0 * s->seqs * pairs * c->heads.heads * width;
    double each = 2.0 * TILE * TILE * width / (0.6 * (tensor > 0 ? tensor : 989e12)) * units * 1e6, all = (double)s->seqs * c->heads.heads;
    if (r->predicted_us > 0) r->predicted_us = 2.0 + ceil(all * blocks / units) * 2.5 + all * tiles / units * each;
}

/* A program that serves up to its plan's rows has fewer in this step (what follows the last row of each prompt, a draw for half of the
 * sequences): of the plan's limit what its bytes or operations are now, and the prediction less by what went. */
static struct plan of_rows(const struct plan *plan, const struct kernels_row *r)
{
    enum { LAUNCH_NS = 900 };
    struct plan p = *plan;
    double share = ROSE_MAX(p.bytes > 0 ? r->bytes / p.bytes : 0, p.ops > 0 ? r->ops / p.ops : 0);
    if (share <= 0 || share >= 1) return p;
    double gone = p.limit_us * (1 - share);
    p.bytes = r->bytes, p.ops = r->ops, p.limit_us -= gone;
    if (p.predicted_us > 0) p.predicted_us = ROSE_MAX(p.predicted_us - gone, ROSE_MIN(p.predicted_us, LAUNCH_NS * 1e-3));
    return p;
}

/* Plans predict a launch by itself, with its bytes from memory. In a step it is made while its predecessor ends (0.3 us less in a chain
 * of small kernels, docs/facts.md), and what one kernel leaves for the next lies in L2 while a step's values fit there. */
static double in_a_step(const struct device_info *device, const struct program_launch *l, const struct plan *p)
{
    double us = p->predicted_us, rate = device->bandwidth > 0 ? device->bandwidth : 1e12;
    if (us <= 0) return us;
    if (p->values && p->bytes >= (double)device->l2_bytes / 8 && p->bytes < (double)device->l2_bytes / 1.5)
        us = ROSE_MIN(us, us - (0.5 + p->bytes / (0.885 * rate) * 1e6) + p->bytes / (1.25 * rate) * 1e6);
    return l->dependent && device->dependent_launch ? ROSE_MAX(us - 0.3, 0.5) : us;
}

enum rose_status kernels_step_read(const struct kernels_source *source, struct kernels_step *s, struct rose_error *err)
{
    const struct device_info *device = &source->device->info;
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
                struct plan plan = of_rows(&r->planned->plan, r);
                r->predicted_us = in_a_step(device, l, &plan);
                r->limit_us = plan.limit_us;
                cuda_grid(l, &s->extents, r->grid);
            }
            add_context(source, s, rate, tensor, r);
            r->limit_us = ROSE_MAX(r->limit_us, r->bytes / rate * 1e6);
            if (tensor > 0) r->limit_us = ROSE_MAX(r->limit_us, r->ops / tensor * 1e6);
        }
        if (r->count < KERNELS_SAME) r->same[r->count] = l;
        r->count++;
    }
    return ROSE_OK;
}
