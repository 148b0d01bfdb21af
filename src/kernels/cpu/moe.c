#include "kernels/cpu/moe.h"

#include <math.h>
#include <string.h>

#include "base/worker.h"
#include "kernels/cpu/matmul_inner.h"
#include "tensor/extent.h"

/* ---- route ---- */

static void scores_of(const struct moe_route_params *p, const float *logits, float *score)
{
    if (p->score == MOE_SOFTMAX_AFTER) {
        memcpy(score, logits, (size_t)p->experts * sizeof *score);
        return;
    }
    if (p->score == MOE_SIGMOID) {
        for (int e = 0; e < p->experts; e++) score[e] = 1.0f / (1.0f + expf(-logits[e]));
        return;
    }
    float most = -INFINITY, sum = 0;
    for (int e = 0; e < p->experts; e++) most = logits[e] > most ? logits[e] : most;
    for (int e = 0; e < p->experts; e++) sum += score[e] = expf(logits[e] - most);
    for (int e = 0; e < p->experts; e++) score[e] /= sum;
}

/* Keep the experts of the best top_groups groups; the others' choice value becomes -inf. A group is as good
 * as its best expert, or as its two best together where a selection bias is in use (DeepSeek-V2 and V3
 * reports). */
static void limit_groups(const struct moe_route_params *p, float *choice)
{
    int size = p->experts / p->groups;
    bool chosen[MOE_MAX_EXPERTS] = {false};
    float value[MOE_MAX_EXPERTS];
    for (int g = 0; g < p->groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            if (choice[e] > first)
                second = first, first = choice[e];
            else if (choice[e] > second)
                second = choice[e];
        }
        value[g] = p->bias && size > 1 ? first + second : first;
    }
    for (int i = 0; i < p->top_groups; i++) {
        int best = -1;
        for (int g = 0; g < p->groups; g++)
            if (!chosen[g] && (best < 0 || value[g] > value[best])) best = g;
        chosen[best] = true;
    }
    for (int e = 0; e < size * p->groups; e++)
        if (!chosen[e / size]) choice[e] = -INFINITY;
}

static void route_row(const struct moe_route_params *p, const float *logits, float *score, float *choice,
                      int32_t *ids, float *weights)
{
    scores_of(p, logits, score);
    for (int e = 0; e < p->experts; e++) choice[e] = p->bias ? score[e] + p->bias[e] : score[e];
    if (p->groups > 1 && p->top_groups < p->groups) limit_groups(p, choice);
    for (int i = 0; i < p->top_k; i++) {
        int best = -1;
        for (int e = 0; e < p->experts; e++)
            if (choice[e] == choice[e] && (best < 0 || choice[e] > choice[best])) best = e;
        ids[i] = best; /* -1: nothing but NaN is left */
        weights[i] = best < 0 ? 0 : score[best];
        if (best >= 0) choice[best] = NAN;
    }
    if (p->score == MOE_SOFTMAX_AFTER) {
        float most = weights[0];
        for (int i = 0; i < p->top_k; i++) weights[i] = ids[i] < 0 ? 0 : expf(weights[i] - most);
    }
    float sum = 0;
    for (int i = 0; i < p->top_k; i++) sum += weights[i];
    float factor = (p->normalize || p->score == MOE_SOFTMAX_AFTER) && sum > 0 ? p->scale / sum : p->scale;
    for (int i = 0; i < p->top_k; i++) weights[i] *= factor;
}

void moe_route_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct moe_route_params *p = params;
    size_t row, end;
    worker_range(w, (size_t)ROSE_MAX(0, ROSE_MIN(extents->n[p->rows_extent], p->max_rows)), 1, &row, &end);
    float *score = p->work + (size_t)w->index * 2 * (size_t)p->experts;
    for (; row < end; row++)
        route_row(p, p->logits + row * (size_t)p->stride, score, score + p->experts,
                  p->ids + row * (size_t)p->top_k, p->weights + row * (size_t)p->top_k);
}

/* ---- the experts' MLPs ---- */

/* Pairs (row, choice) stand sorted by expert; a place is a position in that order. An expert's tiles begin at
 * a slot, its first place rounded up so that all experts have whole tiles of 16. Work memory:
 *
 *     begin, slot i32[experts + 1] | row i32[places] | weight f32[places] | activations of x, of h [slots]
 *     h f32[places][ffn] | of each worker: scales, output tiles, gathered rows (or AMX panels)
 */
struct layout {
    struct matmul_acts x, h;
    size_t places, slots;
    size_t begin, slot, row, weight, x_acts, h_acts, hidden; /* offsets */
    size_t scales, own_at, own;
};

static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at += size_round_up(bytes, MATMUL_ALIGN);
    return here;
}

static struct layout layout_of(const struct moe_mlp_params *p)
{
    struct layout l = {.places = (size_t)p->max_rows * (size_t)p->top_k};
    size_t amx = 0;
    l.slots = l.places + (MATMUL_TILE - 1) * ROSE_MIN(l.places, (size_t)p->experts);
    for (int e = 0; e < p->experts; e++) {
        matmul_acts_need(&l.x, &p->gate[e]);
        matmul_acts_need(&l.x, &p->up[e]);
        matmul_acts_need(&l.h, &p->down[e]);
        l.scales = ROSE_MAX(l.scales, matmul_scale_bytes(&p->gate[e]));
        l.scales = ROSE_MAX(l.scales, matmul_scale_bytes(&p->up[e]));
        l.scales = ROSE_MAX(l.scales, matmul_scale_bytes(&p->down[e]));
    }
    if (p->amx) amx = ROSE_MAX(matmul_amx_scratch(&p->gate[0]), matmul_amx_scratch(&p->down[0]));
    size_t at = 0;
    l.begin = take(&at, ((size_t)p->experts + 1) * sizeof(int32_t));
    l.slot = take(&at, ((size_t)p->experts + 1) * sizeof(int32_t));
    l.row = take(&at, l.places * sizeof(int32_t));
    l.weight = take(&at, l.places * sizeof(float));
    l.x_acts = take(&at, l.slots * matmul_acts_row(&l.x));
    l.h_acts = take(&at, l.slots * matmul_acts_row(&l.h));
    l.hidden = take(&at, l.places * (size_t)p->gate[0].n * sizeof(float));
    l.own_at = at;
    /* scales and output tiles of two weights, and 16 gathered rows */
    l.own = size_round_up(2 * (l.scales + MATMUL_OUT_FLOATS * sizeof(float)) +
                              MATMUL_TILE * (size_t)p->gate[0].k * sizeof(float),
                          MATMUL_ALIGN);
    l.own = ROSE_MAX(l.own, size_round_up(amx, MATMUL_ALIGN));
    return l;
}

size_t moe_mlp_plan(struct moe_mlp_params *p, int workers)
{
    p->amx = cpu_isa() == CPU_ISA_AMX && !p->deterministic;
    for (int e = 0; e < p->experts; e++)
        p->amx = p->amx && matmul_amx_takes(&p->gate[e]) && matmul_amx_takes(&p->up[e]) &&
                 matmul_amx_takes(&p->down[e]);
    struct layout l = layout_of(p);
    return l.own_at + (size_t)workers * l.own + MATMUL_ALIGN;
}

struct run {
    const struct moe_mlp_params *p;
    const struct matmul_kernels *kernels;
    struct worker *w;
    size_t rows;
    struct matmul_acts x, h;
    int32_t *begin, *slot, *row;
    void *scratch; /* this worker's, for AMX: all of its memory */
    float *weight, *hidden;
    float *scales[2], *out[2], *gathered;
};

/* Counting sort of the pairs by expert; within an expert, rows rise. Begins with counts in begin[e + 1]. */
static void sort_pairs(const struct run *r)
{
    const struct moe_mlp_params *p = r->p;
    size_t pairs = r->rows * (size_t)p->top_k;
    memset(r->begin, 0, ((size_t)p->experts + 1) * sizeof *r->begin);
    for (size_t i = 0; i < pairs; i++)
        if (p->ids[i] >= 0 && p->ids[i] < p->experts) r->begin[p->ids[i] + 1]++;
    for (int e = 0; e < p->experts; e++) r->begin[e + 1] += r->begin[e];
    for (size_t i = 0; i < pairs; i++) { /* begin[e] runs ahead to begin[e + 1]… */
        int32_t e = p->ids[i];
        if (e < 0 || e >= p->experts) continue;
        int32_t place = r->begin[e]++;
        r->row[place] = (int32_t)(i / (size_t)p->top_k);
        r->weight[place] = p->weights[i] * p->alpha;
    }
    for (int e = p->experts; e > 0; e--) r->begin[e] = r->begin[e - 1]; /* …and is moved back */
    r->begin[0] = 0;
    r->slot[0] = 0;
    for (int e = 0; e < p->experts; e++)
        r->slot[e + 1] =
            r->slot[e] + (r->begin[e + 1] - r->begin[e] + MATMUL_TILE - 1) / MATMUL_TILE * MATMUL_TILE;
}

/* Does the expert run on AMX? Both products of its MLP do, or none. */
static bool on_amx(const struct run *r, int e)
{
    int32_t rows = r->begin[e + 1] - r->begin[e];
    return r->p->amx && matmul_amx_pays(&r->p->gate[e], rows) && matmul_amx_pays(&r->p->down[e], rows);
}

/* Where an AMX expert's tiles begin: in the memory that its slots have in the other paths. */
static inline uint8_t *amx_acts(const struct run *r, int e, const struct matmul_acts *acts)
{
    return acts->ints +
           (size_t)r->slot[e] * (acts->int_row ? (acts->fine ? 2 : 1) * acts->int_row : acts->float_row);
}

/* One tile of an expert's activations, rows of x at stride, for the path that the expert takes. */
static void prepare_tile(const struct run *r, int e, const struct matmul_acts *acts, const float *x,
                         size_t stride, int32_t place, int height, int32_t k)
{
    size_t at = (size_t)(place - r->begin[e]);
#if defined(__x86_64__)
    if (on_amx(r, e)) {
        matmul_amx_acts(x, stride, height, k,
                        amx_acts(r, e, acts) +
                            at * (size_t)((k + CPU_BLOCK - 1) / CPU_BLOCK) * MATMUL_AMX_ROW_BYTES);
        return;
    }
#endif
    matmul_acts_tile(acts, r->kernels, x, stride, (size_t)r->slot[e] + at, height, k);
}

/* Every tile of every expert, dealt out to the workers in turn: activations of x (gathered) or of the hidden
 * rows. */
static void prepare(const struct run *r, bool hidden)
{
    const struct moe_mlp_params *p = r->p;
    size_t k = (size_t)p->gate[0].k, ffn = (size_t)p->gate[0].n;
    int turn = 0;
    for (int e = 0; e < p->experts; e++)
        for (int32_t place = r->begin[e]; place < r->begin[e + 1];) {
            int32_t left = r->begin[e + 1] - place;
            int height =
                on_amx(r, e) ? ROSE_MIN(MATMUL_TILE, left) : matmul_acts_height(hidden ? &r->h : &r->x, left);
            if (turn == r->w->index) {
                if (hidden)
                    prepare_tile(r, e, &r->h, r->hidden + (size_t)place * ffn, ffn, place, height,
                                 (int32_t)ffn);
                else {
                    for (int i = 0; i < height; i++)
                        memcpy(r->gathered + (size_t)i * k,
                               p->x + (size_t)r->row[place + i] * (size_t)p->x_stride, k * sizeof(float));
                    prepare_tile(r, e, &r->x, r->gathered, k, place, height, (int32_t)k);
                }
            }
            turn = turn + 1 == r->w->count ? 0 : turn + 1;
            place += height;
        }
}

static void finish_hidden(const struct run *r, int e, size_t group, int32_t place, int rows, const float *out,
                          const float *up)
{
    const struct moe_mlp_params *p = r->p;
    size_t ffn = (size_t)p->gate[0].n, first = group * CPU_GROUP, bias = (size_t)e * ffn + first;
    struct matmul_finish finish = {p->gate_bias ? p->gate_bias + bias : NULL,
                                   p->up_bias ? p->up_bias + bias : NULL, p->activation, false, 1.0f};
    r->kernels->finish(&finish, out, up, rows, (int)ROSE_MIN((size_t)CPU_GROUP, ffn - first),
                       r->hidden + (size_t)place * ffn + first, ffn);
}

/* Rows go to different places, each with its own weight. */
static void finish_down(const struct run *r, int e, size_t group, int32_t place, int rows, const float *out)
{
    const struct moe_mlp_params *p = r->p;
    size_t n = (size_t)p->down[0].n, first = group * CPU_GROUP;
    int cols = (int)ROSE_MIN((size_t)CPU_GROUP, n - first);
    struct matmul_finish finish = {p->down_bias ? p->down_bias + (size_t)e * n + first : NULL, NULL,
                                   MATMUL_LINEAR, true, 1.0f};
    for (int i = 0; i < rows; i++) {
        finish.alpha = r->weight[place + i];
        r->kernels->finish(&finish, out + i * CPU_GROUP, NULL, 1, cols,
                           p->y + (size_t)r->row[place + i] * (size_t)p->y_stride + first, 0);
    }
}

#if defined(__x86_64__)
struct amx_expert {
    const struct run *r;
    int expert;
};

static void amx_hidden(void *context, size_t group, int32_t row, int rows, const float *out, const float *up)
{
    const struct amx_expert *a = context;
    finish_hidden(a->r, a->expert, group, a->r->begin[a->expert] + row, rows, out, up);
}

static void amx_down(void *context, size_t group, int32_t row, int rows, const float *out, const float *up)
{
    (void)up;
    const struct amx_expert *a = context;
    finish_down(a->r, a->expert, group, a->r->begin[a->expert] + row, rows, out);
}

static void run_amx(const struct run *r, int e, const struct matmul_acts *acts,
                    const struct cpu_weight *weight, const struct cpu_weight *up, size_t from, size_t to)
{
    struct amx_expert context = {r, e};
    matmul_amx_run(&(struct matmul_amx_job){weight, up, from, to, amx_acts(r, e, acts),
                                            r->begin[e + 1] - r->begin[e], r->scratch,
                                            up ? amx_hidden : amx_down, &context, NULL, 0});
}
#endif

/* hidden = activation(gate x) * up x for this worker's groups of features, of all experts in use. */
static void gate_up(const struct run *r)
{
    const struct moe_mlp_params *p = r->p;
    size_t from, to;
    worker_range(r->w, cpu_weight_groups(&p->gate[0]), 1, &from, &to);
    for (int e = 0; e < p->experts && from < to; e++) {
        if (r->begin[e] == r->begin[e + 1]) continue;
#if defined(__x86_64__)
        if (on_amx(r, e)) {
            run_amx(r, e, &r->x, &p->gate[e], &p->up[e], from, to);
            continue;
        }
#endif
        for (size_t g = from; g < to; g++) {
            const void *gate = matmul_scales(r->kernels, &p->gate[e], g, r->begin[e + 1] - r->begin[e], r->scales[0]),
                       *up = matmul_scales(r->kernels, &p->up[e], g, r->begin[e + 1] - r->begin[e], r->scales[1]);
            for (int32_t place = r->begin[e]; place < r->begin[e + 1];) {
                int height = matmul_acts_height(&r->x, r->begin[e + 1] - place);
                size_t slot = (size_t)(r->slot[e] + place - r->begin[e]);
                matmul_products(&r->x, r->kernels, &p->gate[e], g, gate, slot, height, r->out[0]);
                matmul_products(&r->x, r->kernels, &p->up[e], g, up, slot, height, r->out[1]);
                finish_hidden(r, e, g, place, height, r->out[0], r->out[1]);
                place += height;
            }
        }
    }
}

/* y for this worker's groups of out-features: one writer a column, experts in rising order. */
static void down(const struct run *r)
{
    const struct moe_mlp_params *p = r->p;
    size_t n = (size_t)p->down[0].n, from, to;
    worker_range(r->w, cpu_weight_groups(&p->down[0]), 1, &from, &to);
    size_t col = from * CPU_GROUP, end = ROSE_MIN(to * CPU_GROUP, n);
    if (!p->accumulate && col < end)
        for (size_t row = 0; row < r->rows; row++)
            memset(p->y + row * (size_t)p->y_stride + col, 0, (end - col) * sizeof(float));
    for (int e = 0; e < p->experts && from < to; e++) {
        if (r->begin[e] == r->begin[e + 1]) continue;
#if defined(__x86_64__)
        if (on_amx(r, e)) {
            run_amx(r, e, &r->h, &p->down[e], NULL, from, to);
            continue;
        }
#endif
        for (size_t g = from; g < to; g++) {
            const void *scales = matmul_scales(r->kernels, &p->down[e], g, r->begin[e + 1] - r->begin[e], r->scales[0]);
            for (int32_t place = r->begin[e]; place < r->begin[e + 1];) {
                int height = matmul_acts_height(&r->h, r->begin[e + 1] - place);
                matmul_products(&r->h, r->kernels, &p->down[e], g, scales,
                                (size_t)(r->slot[e] + place - r->begin[e]), height, r->out[0]);
                finish_down(r, e, g, place, height, r->out[0]);
                place += height;
            }
        }
    }
}

void moe_mlp_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct moe_mlp_params *p = params;
    struct layout l = layout_of(p);
    struct run r = {.p = p,
                    .kernels = matmul_kernels(),
                    .w = w,
                    .rows = (size_t)ROSE_MAX(0, ROSE_MIN(extents->n[p->rows_extent], p->max_rows)),
                    .x = l.x,
                    .h = l.h};
    if (!r.rows) return;
    uint8_t *work = (uint8_t *)(((uintptr_t)p->work + MATMUL_ALIGN - 1) / MATMUL_ALIGN * MATMUL_ALIGN);
    r.begin = (int32_t *)(void *)(work + l.begin);
    r.slot = (int32_t *)(void *)(work + l.slot);
    r.row = (int32_t *)(void *)(work + l.row);
    r.weight = (float *)(void *)(work + l.weight);
    r.hidden = (float *)(void *)(work + l.hidden);
    r.x.fine = r.h.fine = matmul_fine(p->deterministic, (int32_t)r.rows, extents->n[EXTENT_SEQS]);
    matmul_acts_place(&r.x, work + l.x_acts, l.slots);
    matmul_acts_place(&r.h, work + l.h_acts, l.slots);
    uint8_t *own = work + l.own_at + (size_t)w->index * l.own;
    for (int i = 0; i < 2; i++) {
        r.scales[i] = (float *)(void *)(own + (size_t)i * l.scales);
        r.out[i] = (float *)(void *)(own + 2 * l.scales) + i * MATMUL_OUT_FLOATS;
    }
    r.scratch = own;
    r.gathered = (float *)(void *)(own + 2 * l.scales) + 2 * MATMUL_OUT_FLOATS;

    if (w->index == 0) sort_pairs(&r);
    worker_barrier(w);
    prepare(&r, false);
    worker_barrier(w);
    gate_up(&r);
    worker_barrier(w);
    prepare(&r, true);
    worker_barrier(w);
    down(&r);
}
