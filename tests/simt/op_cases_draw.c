/* Drawing tokens, against the exact cumulative distribution at the same u. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/sample.h"
#include "kernels/params/draw_rows.h"
#include "op_cases_internal.h"
#include "ops/draw_cuda.h"

struct draw_case {
    const char *name;
    struct draw_shape s;
    bool mask;
};
static const struct draw_case cases[] = {
    {"draw 6 rows of 37", {.rows = 6, .vocabulary = 37}, false},
    {"draw 7 rows of 5003, three slices", {.rows = 7, .vocabulary = 5003, .slices = 3}, false},
    {"draw 5 rows of 9000, masked", {.rows = 5, .vocabulary = 9000}, true},
};

const char *op_cases_draw_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}
bool op_cases_draw_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct draw_shape s = cases[i].s;
    int slices;
    if (rows) s.rows = rows;
    return draw_cuda_plan(&s, device, out, &slices, NULL) == ROSE_OK;
}

static bool allowed(const uint32_t *mask, int t)
{
    return !mask || (mask[t / 32] >> (t % 32) & 1);
}

/* 0 when `got` is right for the row. */
static int check(const char *name, const struct sample_row *r, const float *x, int n, const uint32_t *mask,
                 const struct sample_output *got)
{
    double top = -INFINITY, raw_top = -INFINITY, sum = 0, raw = 0, below = 0,
           temperature = (double)r->temperature;
    int best = -1, t = got->token;
    for (int i = 0; i < n; i++) {
        if (x[i] != x[i]) continue;
        raw_top = fmax(raw_top, (double)x[i]);
        if (allowed(mask, i) && (double)x[i] > top) top = (double)x[i], best = i;
    }
    for (int i = 0; i < n; i++) {
        if (x[i] != x[i]) continue;
        double w = allowed(mask, i) && temperature >= 1e-5 ? exp(((double)x[i] - top) / temperature) : 0;
        raw += exp((double)x[i] - raw_top), sum += w, below += i < t ? w : 0;
    }
    if (best < 0) return t != -1;
    if (t < 0 || t >= n || !allowed(mask, t) || x[t] != x[t])
        return fprintf(stderr, "%s: token %d cannot be drawn\n", name, t), 1;
    double logprob = r->top_n >= 0 ? (double)x[t] - raw_top - log(raw) : 0;
    if (!(fabs((double)got->logprob - logprob) <= 2e-5 + 1e-6 * fabs(logprob)))
        return fprintf(stderr, "%s: log-probability %.7g, expected %.7g\n", name, (double)got->logprob,
                       logprob),
               1;
    if (temperature < 1e-5)
        return t != best ? fprintf(stderr, "%s: greedy %d, expected %d\n", name, t, best), 1 : 0;
    uint32_t w[4];
    sample_philox(r->seed, r->step, w);
    double u = ((double)(w[0] >> 5) * 67108864.0 + (double)(w[1] >> 6)) / 9007199254740992.0;
    double low = below / sum, high = (below + exp(((double)x[t] - top) / temperature)) / sum;
    if (u >= low - 2e-6 && u <= high + 2e-6) return 0;
    return fprintf(stderr, "%s: drew %d, whose share is %.8f to %.8f, at %.8f\n", name, t, low, high, u), 1;
}

int op_cases_draw_run(int i, const struct op_io *io)
{
    const struct draw_case *k = &cases[i];
    struct draw_shape s = k->s;
    struct plan plan;
    struct rose_error err = {0};
    int slices;
    if (io->rows) s.rows = io->rows;
    if (draw_cuda_plan(&s, io->device, &plan, &slices, &err))
        return fprintf(stderr, "%s: %s\n", k->name, err.message), 1;
    size_t n = (size_t)s.vocabulary, stride = (n + 3) / 4 * 4, rows = (size_t)s.rows, words = (n + 31) / 32;
    float *x = malloc(rows * stride * 4);
    uint32_t *mask = malloc(2 * words * 4), *zeros = calloc(rows, 4), seed = 41;
    struct sample_row *ask = calloc(rows, sizeof *ask);
    struct sample_output *got = calloc(rows, sizeof *got);
    for (size_t e = 0; e < rows * stride; e++) x[e] = op_normal(&seed) * 3;
    for (size_t e = 0; e < 2 * words; e++)
        mask[e] = e < words ? op_random(&seed) & op_random(&seed) & op_random(&seed) : 0;
    for (size_t r = 0; r < rows; r++) {
        ask[r] = (struct sample_row){.seed = 1000 + r,
                                     .step = r * r,
                                     .temperature = r % 3 == 0   ? 0
                                                    : r % 3 == 1 ? 1
                                                                 : 0.6f,
                                     .top_p = 1,
                                     .repetition = 1,
                                     .given = -1,
                                     .top_n = r % 2 ? 0 : -1,
                                     .slot = -1,
                                     .mask_row = k->mask && r % 5 ? r == 4 : -1,
                                     .feed = -1};
        float *row = x + r * stride;
        if (r % 4 == 1) row[n - 1] = 30; /* nearly all of the weight on the last token */
        if (r % 4 == 2) row[3] = NAN, row[n / 2] = -INFINITY;
        if (r % 4 == 3) row[n / 3] = row[n / 3 + 2] = 14; /* equals */
    }
    struct draw_rows_params p = {.logits_stride = (int64_t)stride,
                                 .mask_stride = (int64_t)words,
                                 .vocabulary = s.vocabulary,
                                 .slices = (uint32_t)slices,
                                 .count = (uint32_t)rows};
    p.logits = io->buffer(io->context, "logits", rows * stride * 4, x, false);
    p.rows = io->buffer(io->context, "rows", rows * sizeof *ask, ask, false);
    if (k->mask) p.mask = io->buffer(io->context, "mask", 2 * words * 4, mask, false);
    p.output = io->buffer(io->context, "output", rows * sizeof *got, NULL, false);
    p.partial =
        io->buffer(io->context, "partial", rows * (size_t)slices * sizeof(struct draw_partial), NULL, false);
    p.counter = io->buffer(io->context, "counter", rows * 4, zeros, false);
    int wrong = !io->run(io->context, &plan, &p, sizeof p);
    io->read(io->context, got, p.output, rows * sizeof *got);
    for (size_t r = 0; r < rows && !wrong; r++)
        wrong += check(k->name, &ask[r], x + r * stride, s.vocabulary,
                       ask[r].mask_row < 0 ? NULL : mask + (size_t)ask[r].mask_row * words, &got[r]);
    io->read(io->context, zeros, p.counter, rows * 4);
    for (size_t r = 0; r < rows; r++) wrong += zeros[r] != 0;
    io->reset(io->context);
    free(x), free(mask), free(zeros), free(ask), free(got);
    return wrong;
}
