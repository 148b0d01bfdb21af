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

/* Keep the experts of the best top_groups groups; the others' choice value becomes -inf. A group is as good as its best
 * expert, or as its two best together where a selection bias is in use (DeepSeek-V2 and V3 reports). */
static void limit_groups(const struct moe_route_params *p, float *choice)
{
    int size = p->experts / p->groups;
    bool chosen[MOE_MAX_EXPERTS] = {false};
    float value[MOE_MAX_EXPERTS];
    for (int g = 0; g < p->groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            if (choice[e] > first) second = first, first = choice[e];
            else if (choice[e] > second) second = choice[e];
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

static void route_row(const struct moe_route_params *p, const float *logits, float *score, float *choice, int32_t *ids, float *weights)
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
        route_row(p, p->logits + row * (size_t)p->stride, score, score + p->experts, p->ids + row * (size_t)p->top_k,
                  p->weights + row * (size_t)p->top_k);
}

/* ---- the experts' MLPs ---- */

/* Pairs (row, choice) stand sorted by expert; a place is a position in that order. Work memory:
 *
 *     begin i32[experts + 1] | row i32[places] | weight f32[places] | x acts | h acts | h f32[places][ffn] | a worker: …
 */
struct layout {
    struct matmul_acts x, h;
    size_t places, begin, row, weight, x_acts, h_acts, hidden; /* offsets, but places */
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
    for (int e = 0; e < p->experts; e++) {
        matmul_acts_need(&l.x, &p->gate[e]);
        matmul_acts_need(&l.x, &p->up[e]);
        matmul_acts_need(&l.h, &p->down[e]);
        l.scales = ROSE_MAX(l.scales, matmul_scale_bytes(&p->gate[e]));
        l.scales = ROSE_MAX(l.scales, matmul_scale_bytes(&p->up[e]));
        l.scales = ROSE_MAX(l.scales, matmul_scale_bytes(&p->down[e]));
    }
    size_t at = 0;
    l.begin = take(&at, ((size_t)p->experts + 1) * sizeof(int32_t));
    l.row = take(&at, l.places * sizeof(int32_t));
    l.weight = take(&at, l.places * sizeof(float));
    l.x_acts = take(&at, l.places * matmul_acts_row(&l.x));
    l.h_acts = take(&at, l.places * matmul_acts_row(&l.h));
    l.hidden = take(&at, l.places * (size_t)p->gate[0].n * sizeof(float));
    l.own_at = at;
    /* scales and output tiles of two weights, and 16 gathered rows */
    l.own = size_round_up(2 * (l.scales + MATMUL_OUT_FLOATS * sizeof(float)) + MATMUL_TILE * (size_t)p->gate[0].k * sizeof(float), MATMUL_ALIGN);
    return l;
}

size_t moe_mlp_work_bytes(const struct moe_mlp_params *p, int workers)
{
    struct layout l = layout_of(p);
    return l.own_at + (size_t)workers * l.own + MATMUL_ALIGN;
}

struct run {
    const struct moe_mlp_params *p;
    const struct matmul_kernels *kernels;
    struct worker *w;
    size_t rows;
    struct matmul_acts x, h;
    int32_t *begin, *row;
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
}

/* Every tile of every expert, dealt out to the workers in turn: activations of x (gathered) or of the hidden rows. */
static void prepare(const struct run *r, bool hidden)
{
    const struct moe_mlp_params *p = r->p;
    size_t k = (size_t)p->gate[0].k, ffn = (size_t)p->gate[0].n;
    int turn = 0;
    for (int e = 0; e < p->experts; e++)
        for (int32_t place = r->begin[e]; place < r->begin[e + 1];) {
            int height = matmul_tile_height(r->begin[e + 1] - place);
            if (turn == r->w->index) {
                if (hidden) matmul_acts_tile(&r->h, r->kernels, r->hidden + (size_t)place * ffn, ffn, (size_t)place, height, (int32_t)ffn);
                else {
                    for (int i = 0; i < height; i++)
                        memcpy(r->gathered + (size_t)i * k, p->x + (size_t)r->row[place + i] * (size_t)p->x_stride, k * sizeof(float));
                    matmul_acts_tile(&r->x, r->kernels, r->gathered, k, (size_t)place, height, (int32_t)k);
                }
            }
            turn = turn + 1 == r->w->count ? 0 : turn + 1;
            place += height;
        }
}

/* hidden = activation(gate x) * up x for this worker's groups of features, of all experts in use. */
static void gate_up(const struct run *r)
{
    const struct moe_mlp_params *p = r->p;
    size_t ffn = (size_t)p->gate[0].n, from, to;
    worker_range(r->w, cpu_weight_groups(&p->gate[0]), 1, &from, &to);
    for (int e = 0; e < p->experts; e++) {
        if (r->begin[e] == r->begin[e + 1]) continue;
        for (size_t g = from; g < to; g++) {
            size_t first = g * CPU_GROUP, bias = (size_t)e * ffn + first;
            int cols = (int)ROSE_MIN((size_t)CPU_GROUP, ffn - first);
            struct matmul_finish finish = {p->gate_bias ? p->gate_bias + bias : NULL, p->up_bias ? p->up_bias + bias : NULL, p->activation, false, 1.0f};
            matmul_expand(r->kernels, &p->gate[e], g, r->scales[0]);
            matmul_expand(r->kernels, &p->up[e], g, r->scales[1]);
            for (int32_t place = r->begin[e]; place < r->begin[e + 1];) {
                int height = matmul_tile_height(r->begin[e + 1] - place);
                matmul_products(&r->x, r->kernels, &p->gate[e], g, r->scales[0], (size_t)place, height, r->out[0]);
                matmul_products(&r->x, r->kernels, &p->up[e], g, r->scales[1], (size_t)place, height, r->out[1]);
                r->kernels->finish(&finish, r->out[0], r->out[1], height, cols, r->hidden + (size_t)place * ffn + first, ffn);
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
        for (size_t row = 0; row < r->rows; row++) memset(p->y + row * (size_t)p->y_stride + col, 0, (end - col) * sizeof(float));
    for (int e = 0; e < p->experts; e++) {
        if (r->begin[e] == r->begin[e + 1]) continue;
        for (size_t g = from; g < to; g++) {
            size_t first = g * CPU_GROUP;
            int cols = (int)ROSE_MIN((size_t)CPU_GROUP, n - first);
            struct matmul_finish finish = {p->down_bias ? p->down_bias + (size_t)e * n + first : NULL, NULL, MATMUL_LINEAR, true, 1.0f};
            matmul_expand(r->kernels, &p->down[e], g, r->scales[0]);
            for (int32_t place = r->begin[e]; place < r->begin[e + 1];) {
                int height = matmul_tile_height(r->begin[e + 1] - place);
                matmul_products(&r->h, r->kernels, &p->down[e], g, r->scales[0], (size_t)place, height, r->out[0]);
                for (int i = 0; i < height; i++) { /* rows go to different places, each with its own weight */
                    finish.alpha = r->weight[place + i];
                    r->kernels->finish(&finish, r->out[0] + i * CPU_GROUP, NULL, 1, cols,
                                       p->y + (size_t)r->row[place + i] * (size_t)p->y_stride + first, 0);
                }
                place += height;
            }
        }
    }
}

void moe_mlp_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct moe_mlp_params *p = params;
    struct layout l = layout_of(p);
    struct run r = {.p = p, .kernels = matmul_kernels(), .w = w, .rows = (size_t)ROSE_MAX(0, ROSE_MIN(extents->n[p->rows_extent], p->max_rows)), .x = l.x, .h = l.h};
    if (!r.rows) return;
    uint8_t *work = (uint8_t *)(((uintptr_t)p->work + MATMUL_ALIGN - 1) / MATMUL_ALIGN * MATMUL_ALIGN);
    r.begin = (int32_t *)(void *)(work + l.begin);
    r.row = (int32_t *)(void *)(work + l.row);
    r.weight = (float *)(void *)(work + l.weight);
    r.hidden = (float *)(void *)(work + l.hidden);
    matmul_acts_place(&r.x, work + l.x_acts, l.places);
    matmul_acts_place(&r.h, work + l.h_acts, l.places);
    uint8_t *own = work + l.own_at + (size_t)w->index * l.own;
    for (int i = 0; i < 2; i++) {
        r.scales[i] = (float *)(void *)(own + (size_t)i * l.scales);
        r.out[i] = (float *)(void *)(own + 2 * l.scales) + i * MATMUL_OUT_FLOATS;
    }
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
