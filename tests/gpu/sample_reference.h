/* Float64 reference of sampling, by sorting everything; used by tests/simt/test_sample_cuda.c and
 * gpu_moe_sample.c. */
#ifndef ROSE_TESTS_SAMPLE_REFERENCE_H
#define ROSE_TESTS_SAMPLE_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/params/sample.h"

/* The part of a struct sample_row that most tests leave alone: it draws, without history, mask or log-probabilities. */
#define SAMPLE_ALONE .given = -1, .top_n = -1, .slot = -1, .mask_row = -1, .feed = -1

/* Host copies of what the kernel read; history as it was before. */
struct sample_host {
    const float *logits; /* one row, as floats */
    const struct sample_edit *edits;
    const uint32_t *mask;   /* its row of the mask */
    const int32_t *history; /* its slot */
    int32_t vocabulary, edits_max, length, prompt;
};
struct sample_ranked {
    float value;
    int32_t token;
};

static int sample_falling(const void *a, const void *b)
{
    const struct sample_ranked *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? 1 : -1) : x->token - y->token;
}

/* Philox 4x32-10, written from the paper: rounds on (c0, c1, c2, c3) with keys raised by the Weyl constants.
 */
static double sample_uniform(uint64_t seed, uint64_t step)
{
    uint32_t c[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0},
             k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int i = 0; i < 10; i++) {
        uint64_t p = 0xD2511F53ull * c[0], q = 0xCD9E8D57ull * c[2];
        uint32_t n0 = (uint32_t)(q >> 32) ^ c[1] ^ k[0], n2 = (uint32_t)(p >> 32) ^ c[3] ^ k[1];
        c[0] = n0, c[1] = (uint32_t)q, c[2] = n2, c[3] = (uint32_t)p;
        k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
    }
    return (double)(((uint64_t)(c[0] >> 5) << 26) | (c[1] >> 6)) / 9007199254740992.0;
}

/* The logits a row draws from. */
static float *sample_changed(const struct sample_host *h, const struct sample_row *r)
{
    size_t v = (size_t)h->vocabulary;
    float *x = malloc(v * sizeof *x);
    memcpy(x, h->logits, v * sizeof *x);
    for (int32_t i = 0; h->edits && i < r->edits_count; i++) {
        int64_t at = (int64_t)r->edits_begin + i;
        if (at < h->edits_max && h->edits[at].token >= 0 && h->edits[at].token < h->vocabulary)
            x[h->edits[at].token] += h->edits[at].bias;
    }
    if (h->history) {
        uint32_t *any = calloc(v * 2, sizeof *any), *answer = any + v;
        for (int32_t i = 0; i < h->length; i++) {
            int32_t t = h->history[i];
            if (t < 0 || t >= h->vocabulary) continue;
            any[t] = 1;
            answer[t] += i >= h->prompt;
        }
        for (size_t t = 0; t < v; t++) {
            if (any[t]) x[t] = x[t] > 0 ? x[t] / r->repetition : x[t] * r->repetition;
            if (answer[t]) x[t] -= r->presence + r->frequency * (float)answer[t];
        }
        free(any);
    }
    for (size_t t = 0; h->mask && t < v; t++)
        if (!(h->mask[t / 32] >> (t % 32) & 1)) x[t] = -INFINITY;
    return x;
}

/* Whether `token` may be what the row draws, when top_p is a little off by `slack` and sums by 2e-6. */
static bool sample_possible(const struct sample_ranked *c, int32_t n, const struct sample_row *r, int32_t v,
                            int32_t token, double slack)
{
    double top = c[0].value, inverse = 1.0 / r->temperature, all = 0, kept = 0, cum = 0;
    bool some = r->top_k > 0 && r->top_k < v, share = r->top_p < 1.0f,
         filtered = some || share || r->min_p > 0;
    if (some && r->top_k < n) n = r->top_k;
    for (int32_t i = 0; i < n; i++) all += exp((c[i].value - top) * inverse);
    if (share) {
        double need = all * ((double)r->top_p + slack);
        int32_t m = 0;
        for (double sum = 0; m < n && sum < need; m++) sum += exp((c[m].value - top) * inverse);
        n = m > 0 ? m : 1;
    }
    if (r->min_p > 0)
        while (n > 1 && exp((c[n - 1].value - top) * inverse) < (double)r->min_p * (1 + slack)) n--;
    for (int32_t i = 0; i < n; i++) kept += exp((c[i].value - top) * inverse);
    double place = sample_uniform(r->seed, r->step) * kept, near = 2e-6 * kept;
    if (filtered) {
        for (int32_t i = 0; i < n; i++) {
            double w = exp((c[i].value - top) * inverse);
            if (c[i].token == token) return place >= cum - near && place <= cum + w + near;
            cum += w;
        }
        return false;
    }
    double w = -1; /* in the order of ids */
    for (int32_t i = 0; i < n; i++) {
        if (c[i].token < token) cum += exp((c[i].value - top) * inverse);
        if (c[i].token == token) w = exp((c[i].value - top) * inverse);
    }
    return w >= 0 && place >= cum - near && place <= cum + w + near;
}

/* Returns how many of a row's outputs are wrong. */
static int sample_check(const struct sample_host *h, const struct sample_row *r,
                        const struct sample_output *o)
{
    int wrong = 0;
    int32_t v = h->vocabulary, n = 0, able = 0;
    struct sample_ranked *c = malloc((size_t)v * 2 * sizeof *c), *raw = c + v;
    float *x = r->given >= 0 ? NULL : sample_changed(h, r);
    double top = -INFINITY, sum = 0;
    for (int32_t t = 0; t < v; t++) {
        if (h->logits[t] > -INFINITY) raw[n++] = (struct sample_ranked){h->logits[t], t}; /* NaN: no */
        if (x && x[t] > -INFINITY) c[able++] = (struct sample_ranked){x[t], t};
    }
    if (r->top_n >= 0) {
        qsort(raw, (size_t)n, sizeof *raw, sample_falling);
        top = n ? raw[0].value : 0;
        for (int32_t i = 0; i < n; i++) sum += exp(raw[i].value - top);
        double lse = top + log(sum);
        int32_t want = r->top_n < SAMPLE_TOP ? r->top_n : SAMPLE_TOP;
        want = want < n ? want : n;
        wrong += o->top_count != want;
        for (int32_t i = 0; i < want && i < o->top_count; i++)
            wrong += o->top_ids[i] != raw[i].token ||
                     !(fabs(o->top_logprobs[i] - (raw[i].value - lse)) <= 4e-6 * (1 + fabs(raw[i].value)));
        if (o->token >= 0 && isfinite(lse))
            wrong += !(fabs(o->logprob - (h->logits[o->token] - lse)) <= 4e-6 * (1 + fabs(lse)));
    } else {
        wrong += o->logprob != 0 || o->top_count != 0;
    }
    if (r->given >= 0) {
        wrong += o->token != (r->given < v ? r->given : -1);
    } else if (!able) {
        wrong += o->token != -1;
    } else if (!(r->temperature >= 1e-5f)) {
        int32_t best = 0;
        for (int32_t i = 1; i < able; i++)
            if (c[i].value > c[best].value) best = i;
        wrong += o->token != c[best].token;
    } else {
        qsort(c, (size_t)able, sizeof *c, sample_falling);
        wrong += !sample_possible(c, able, r, v, o->token, 0) &&
                 !sample_possible(c, able, r, v, o->token, 2e-6) &&
                 !sample_possible(c, able, r, v, o->token, -2e-6);
    }
    free(c), free(x);
    return wrong;
}

#endif
