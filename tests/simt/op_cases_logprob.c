/* Log-softmax at some tokens, against float64: rows that one block has and rows that several share, a ragged end, ids outside the
 * vocabulary, tokens that cannot be, and a row of nothing else. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "op_cases_internal.h"
#include "ops/logprob_cuda.h"

static const struct logprob_case {
    const char *name;
    struct logprob_shape s;
    int pad;
} cases[] = {
    {"logprob 5x1003 f32, 3 tokens", {5, 1003, 3, false}, 5},
    {"logprob 3x9001 bf16, 1 token", {3, 9001, 1, true}, 7},
    {"logprob 2x20000 f32, 40 tokens", {2, 20000, 40, false}, 0},
    {"logprob 300x264 bf16, 2 tokens", {300, 264, 2, true}, 8},
};

static int check(const struct logprob_case *k, const float *logits, size_t stride, const int32_t *ids, const float *y, const float *log_sum)
{
    int wrong = 0, n = k->s.vocabulary, want = k->s.want;
    for (int64_t r = 0; r < k->s.rows; r++) {
        const float *x = logits + (size_t)r * stride;
        double most = -INFINITY, sum = 0;
        for (int i = 0; i < n; i++) most = fmax(most, (double)x[i]);
        for (int i = 0; i < n && most > -INFINITY; i++) sum += exp((double)x[i] - most);
        for (int i = -1; i < want; i++) {
            int32_t id = i < 0 ? 0 : ids[r * want + i];
            double exact = i < 0 ? most + log(sum) : id < 0 || id >= n ? -INFINITY : (double)x[id] - most - log(sum), got = i < 0 ? (double)log_sum[r] : (double)y[r * want + i];
            bool good = most == -INFINITY ? i < 0 ? got == -INFINITY : isnan(got) : exact == -INFINITY ? got == exact : fabs(got - exact) <= 2e-5 + fabs(exact) * 1e-6;
            if (!good && wrong++ < 5) fprintf(stderr, "%s: row %lld, token %d: %.9g, expected %.9g\n", k->name, (long long)r, id, got, exact);
        }
    }
    return wrong;
}

int op_cases_logprob_run(int i, const struct op_io *io)
{
    struct logprob_case k = cases[i];
    struct plan plan;
    struct rose_error err = {0};
    int32_t blocks;
    if (io->rows) k.s.rows = io->rows;
    if (logprob_cuda_plan(&k.s, io->device, &plan, &blocks, &err)) return fprintf(stderr, "%s: %s\n", k.name, err.message), 1;
    size_t rows = (size_t)k.s.rows, n = (size_t)k.s.vocabulary, stride = n + (size_t)k.pad, want = (size_t)k.s.want;
    float *logits = malloc(rows * stride * 4), *y = malloc(rows * want * 4), *log_sum = malloc(rows * 4);
    uint16_t *narrow = malloc(rows * stride * 2);
    int32_t *ids = malloc(rows * want * 4);
    uint32_t seed = 77, *zero = calloc(rows, 4);
    for (size_t e = 0; e < rows * stride; e++) {
        logits[e] = op_normal(&seed) * (float)(1 + e / stride % 9);
        if (e % 97 == 5 || e / stride == 4) logits[e] = -INFINITY;
        narrow[e] = f32_to_bf16(logits[e]);
        if (k.s.bf16) logits[e] = bf16_to_f32(narrow[e]);
    }
    for (size_t e = 0; e < rows * want; e++) ids[e] = e % 7 == 6 ? (e % 2 ? -1 : (int32_t)n) : (int32_t)(op_random(&seed) % n);
    struct logprob_rows_params p = {.logits_stride = (int64_t)stride, .rows = (uint32_t)rows, .blocks = (uint32_t)blocks};
    p.logits = io->buffer(io->context, "logits", rows * stride * (k.s.bf16 ? 2 : 4), k.s.bf16 ? (void *)narrow : (void *)logits, false);
    p.ids = io->buffer(io->context, "ids", rows * want * 4, ids, false);
    p.y = io->buffer(io->context, "y", rows * want * 4, NULL, false);
    p.log_sum = io->buffer(io->context, "log_sum", rows * 4, NULL, false);
    p.part = io->buffer(io->context, "part", rows * (size_t)blocks * 8, NULL, false);
    p.counters = io->buffer(io->context, "counters", rows * 4, zero, false);
    int wrong = 0;
    for (int twice = 0; twice < 2 && !wrong; twice++) wrong = !io->run(io->context, &plan, &p, sizeof p); /* the counters are as they were */
    io->read(io->context, y, p.y, rows * want * 4), io->read(io->context, log_sum, p.log_sum, rows * 4);
    if (!wrong) wrong = check(&k, logits, stride, ids, y, log_sum);
    io->reset(io->context);
    free(logits), free(y), free(log_sum), free(narrow), free(ids), free(zero);
    return wrong;
}
const char *op_cases_logprob_name(int i)
{
    return i < (int)(sizeof cases / sizeof *cases) ? cases[i].name : NULL;
}
bool op_cases_logprob_plan(int i, const struct device_info *device, int rows, struct plan *out)
{
    struct logprob_shape s = cases[i].s;
    int32_t blocks;
    if (rows) s.rows = rows;
    return logprob_cuda_plan(&s, device, out, &blocks, NULL) == ROSE_OK;
}
