/* Sampling of rows of logits (meaning: params/sample.h). Two phases: workers share chunks of all rows to find
 * block maxima and the sum of the softmax; then each row is finished by one worker. Nothing is sorted but
 * what is kept. */
#include "kernels/cpu/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/isa.h"

void sample_philox(uint64_t seed, uint64_t counter, uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}, k0 = (uint32_t)seed,
             k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

static int32_t blocks_of(int32_t vocabulary)
{
    return (vocabulary + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
}
static int32_t chunks_of(int32_t vocabulary)
{
    return (vocabulary + SAMPLE_CHUNK - 1) / SAMPLE_CHUNK;
}

int64_t sample_work(int32_t vocabulary)
{
    return blocks_of(vocabulary) + 2 * (int64_t)chunks_of(vocabulary);
}

/* Scratch: candidates, a copy of the raw logits, a copy of the blocks' maxima or sums. A block's worth of
 * candidates more, because collect writes one past the last it keeps. */
size_t sample_scratch(int32_t vocabulary)
{
    size_t v = (size_t)vocabulary;
    return (v + SAMPLE_BLOCK) * sizeof(struct sample_candidate) + v * sizeof(float) +
           (size_t)blocks_of(vocabulary) * sizeof(float);
}

/* One row under way. */
struct draw {
    const struct sample_kernels *f;
    const struct sample_params *p;
    const struct sample_row *row;
    float *x, *maxima;                   /* logits, [blocks] */
    struct sample_candidate *candidates; /* [vocabulary + 1 block] */
    float *raw, *sums;                   /* scratch: raw logits (raw_kept), [blocks] */
    bool raw_kept;
};

static float raw_of(const struct draw *d, int32_t token)
{
    return d->raw_kept ? d->raw[token] : d->x[token];
}

/* --- order: larger values first, of equals the lower token
 * ------------------------------------------------------- */

static bool before(struct sample_candidate a, struct sample_candidate b)
{
    return a.value > b.value || (a.value == b.value && a.token < b.token);
}

static void swap_at(struct sample_candidate *c, int32_t i, int32_t j)
{
    struct sample_candidate t = c[i];
    c[i] = c[j];
    c[j] = t;
}

static void insertion_sort(struct sample_candidate *c, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        for (int32_t j = i; j > 0 && before(c[j], c[j - 1]); j--) swap_at(c, j, j - 1);
}

/* Partition by a pivot chosen among three fixed places; returns the pivot's final index. Any order of input
 * costs linear time on average; equal keys do not exist because tokens differ. */
static int32_t partition(struct sample_candidate *c, int32_t n)
{
    int32_t a = n / 4, b = n / 2, e = n - 1 - n / 4;
    if (before(c[b], c[a])) swap_at(c, a, b);
    if (before(c[e], c[b])) swap_at(c, b, e);
    if (before(c[b], c[a])) swap_at(c, a, b);
    swap_at(c, b, n - 1);
    int32_t at = 0;
    for (int32_t i = 0; i < n - 1; i++)
        if (before(c[i], c[n - 1])) swap_at(c, i, at++);
    swap_at(c, at, n - 1);
    return at;
}

/* The first k of c[n] become the k that come before all others, in any order. */
static void select_first(struct sample_candidate *c, int32_t n, int32_t k)
{
    while (k > 0 && k < n) {
        if (n <= 32) {
            insertion_sort(c, n);
            return;
        }
        int32_t at = partition(c, n);
        if (at + 1 >= k) { /* pivot is inside or just past the first k */
            if (at <= k) return;
            n = at;
        } else {
            c += at + 1;
            n -= at + 1;
            k -= at + 1;
        }
    }
}

/* How many of c[n], in order, it takes until their values add up to `need`; they become the first ones. At
 * least 1. */
static int32_t select_share(struct sample_candidate *c, int32_t n, double need)
{
    int32_t taken = 0;
    while (n > 32) {
        int32_t at = partition(c + taken, n);
        double mass = 0;
        for (int32_t i = 0; i < at; i++) mass += c[taken + i].value;
        if (at > 0 && mass >= need) {
            n = at;
            continue;
        }
        mass += c[taken + at].value;
        taken += at + 1;
        n -= at + 1;
        need -= mass;
        if (need <= 0) return taken;
    }
    insertion_sort(c + taken, n);
    for (int32_t i = 0; i < n; i++) {
        need -= c[taken + i].value;
        if (need <= 0) return taken + i + 1;
    }
    return taken + n;
}

/* --- searches
 * ----------------------------------------------------------------------------------------------------- */

static int32_t collect(const struct draw *d, float least)
{
    int32_t v = d->p->vocabulary, count = 0;
    for (int32_t b = 0; b < blocks_of(v); b++) {
        if (!(d->maxima[b] >= least)) continue;
        int32_t first = b * SAMPLE_BLOCK;
        count += d->f->collect(d->x + first, ROSE_MIN(v - first, SAMPLE_BLOCK), first, least,
                               d->candidates + count);
    }
    return count;
}

/* The k largest logits become the first candidates; returns how many (fewer when most are banned). The k-th
 * largest block maximum is a bound that at least k logits reach. */
static int32_t top_k(const struct draw *d, int32_t k)
{
    int32_t blocks = blocks_of(d->p->vocabulary);
    float least = -FLT_MAX;
    if (k < blocks) {
        struct sample_candidate *c = d->candidates;
        for (int32_t b = 0; b < blocks; b++) c[b] = (struct sample_candidate){d->maxima[b], b};
        select_first(c, blocks, k);
        float bound = c[0].value;
        for (int32_t i = 1; i < k; i++) bound = c[i].value < bound ? c[i].value : bound;
        least = bound > least ? bound : least;
    }
    int32_t n = collect(d, least);
    select_first(d->candidates, n, k);
    return ROSE_MIN(n, k);
}

static float top_of(const struct draw *d)
{
    float top = -INFINITY;
    for (int32_t b = 0; b < blocks_of(d->p->vocabulary); b++) top = d->maxima[b] > top ? d->maxima[b] : top;
    return top;
}

/* The first token whose logit is `top`. */
static int32_t first_of(const struct draw *d, float top)
{
    int32_t v = d->p->vocabulary;
    for (int32_t b = 0; b < blocks_of(v); b++) {
        if (d->maxima[b] != top) continue;
        for (int32_t i = b * SAMPLE_BLOCK; i < ROSE_MIN(v, (b + 1) * SAMPLE_BLOCK); i++)
            if (d->x[i] == top) return i;
    }
    return -1;
}

/* --- log-probabilities
 * -------------------------------------------------------------------------------------------- */

/* log of the sum of exp of the raw logits, chunks in order. */
static double log_sum(const struct draw *d)
{
    const float *chunk = d->maxima + blocks_of(d->p->vocabulary);
    int32_t n = chunks_of(d->p->vocabulary);
    double top = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) top = chunk[2 * i] > top ? chunk[2 * i] : top;
    if (!isfinite(top)) return top;
    for (int32_t i = 0; i < n; i++)
        if (chunk[2 * i] > -INFINITY) sum += chunk[2 * i + 1] * exp(chunk[2 * i] - top);
    return top + log(sum);
}

static void write_top(const struct draw *d, double lse, struct sample_output *out)
{
    int32_t n = ROSE_MIN(ROSE_MIN(d->row->top_n, SAMPLE_TOP), d->p->vocabulary);
    out->top_count = n > 0 ? top_k(d, n) : 0;
    insertion_sort(d->candidates, out->top_count);
    for (int32_t i = 0; i < out->top_count; i++) {
        out->top_ids[i] = d->candidates[i].token;
        out->top_logprobs[i] = (float)(d->candidates[i].value - lse);
    }
}

/* --- edits, penalties, mask
 * ----------------------------------------------------------------------------------------- */

static void set_logit(const struct draw *d, int32_t token, float value)
{
    int32_t b = token / SAMPLE_BLOCK, first = b * SAMPLE_BLOCK;
    d->x[token] = value;
    d->f->maxima(d->x + first, ROSE_MIN(d->p->vocabulary - first, SAMPLE_BLOCK), d->maxima + b);
}

static void apply_edits(const struct draw *d)
{
    const struct sample_edit *edits = d->p->edits;
    int32_t begin = ROSE_MAX(d->row->edits_begin, 0),
            end = ROSE_MIN((int64_t)begin + d->row->edits_count, d->p->edits_max);
    for (int32_t i = begin; edits && i < end; i++) {
        int32_t t = edits[i].token;
        if (t >= 0 && t < d->p->vocabulary) set_logit(d, t, d->x[t] + edits[i].bias);
    }
}

static bool has_penalty(const struct draw *d)
{
    const struct sample_row *r = d->row;
    return d->p->history && r->slot >= 0 && r->slot < d->p->slots &&
           (r->repetition != 1.0f || r->presence != 0 || r->frequency != 0);
}

/* counts[t]: bit 0: t occurs in prompt or answer; the rest: how often in the answer. */
static void apply_penalties(const struct draw *d)
{
    const struct sample_row *r = d->row;
    const int32_t *history = (const int32_t *)d->p->history + (int64_t)r->slot * d->p->history_stride;
    int32_t n = ((const int32_t *)d->p->history_length)[r->slot],
            prompt = ((const int32_t *)d->p->prompt_length)[r->slot];
    int32_t v = d->p->vocabulary;
    uint32_t *counts = (uint32_t *)(void *)d->candidates;
    n = (int32_t)ROSE_MIN((int64_t)n, d->p->history_stride);
    memset(counts, 0, (size_t)v * sizeof *counts);
    for (int32_t i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < v)
            counts[history[i]] = (counts[history[i]] + (i >= prompt ? 2 : 0)) | 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t t = history[i];
        if (t < 0 || t >= v || !counts[t]) continue;
        uint32_t answer = counts[t] >> 1;
        counts[t] = 0;
        float x = d->x[t];
        x = x > 0 ? x / r->repetition : x * r->repetition;
        if (answer) x -= r->presence + r->frequency * (float)answer;
        set_logit(d, t, x);
    }
}

static void apply_mask(const struct draw *d)
{
    if (!d->p->mask || d->row->mask_row < 0 || d->row->mask_row >= d->p->masks) return;
    const uint32_t *mask = (const uint32_t *)d->p->mask + (int64_t)d->row->mask_row * d->p->mask_stride;
    int32_t v = d->p->vocabulary;
    for (int32_t first = 0; first < v; first += SAMPLE_BLOCK) {
        int32_t n = ROSE_MIN(v - first, SAMPLE_BLOCK);
        uint64_t bits = mask[first / 32];
        if (n > 32) bits |= (uint64_t)mask[first / 32 + 1] << 32;
        uint64_t all = n == 64 ? ~0ull : (1ull << n) - 1;
        if ((bits & all) == all) continue;
        for (int32_t i = 0; i < n; i++)
            if (!(bits >> i & 1)) d->x[first + i] = -INFINITY;
        d->f->maxima(d->x + first, n, d->maxima + first / SAMPLE_BLOCK);
    }
}

/* --- the draw
 * ------------------------------------------------------------------------------------------------------- */

static double uniform(const struct sample_row *r)
{
    uint32_t w[4];
    sample_philox(r->seed, r->step, w);
    return ((double)(w[0] >> 5) * 67108864.0 + (double)(w[1] >> 6)) * (1.0 / 9007199254740992.0);
}

/* From all tokens: by the sums of blocks, then inside one block. */
static int32_t draw_all(const struct draw *d, float top, float inverse)
{
    int32_t v = d->p->vocabulary, blocks = blocks_of(v), last = -1;
    double total = 0;
    d->f->block_sums(d->x, v, top, inverse, d->sums);
    for (int32_t b = 0; b < blocks; b++) total += d->sums[b];
    double left = uniform(d->row) * total;
    int32_t at = -1;
    for (int32_t b = 0; b < blocks; b++) {
        if (!(d->sums[b] > 0)) continue;
        at = b;
        if (left < d->sums[b]) break;
        left -= d->sums[b];
    }
    int32_t first = at * SAMPLE_BLOCK, n = ROSE_MIN(v - first, SAMPLE_BLOCK);
    for (int32_t i = 0; i < n; i++) d->candidates[i] = (struct sample_candidate){d->x[first + i], first + i};
    d->f->weights(d->candidates, n, top, inverse);
    for (int32_t i = 0; i < n; i++) {
        if (!(d->candidates[i].value > 0)) continue;
        last = first + i;
        if (left < d->candidates[i].value) break;
        left -= d->candidates[i].value;
    }
    return last;
}

/* By cumulative weight in falling order, of equals the lower token first, which is the order of the CUDA
 * kernel too: the same seed gives the same token on both. */
static int32_t draw_candidates(const struct draw *d, int32_t n)
{
    double total = 0;
    float most = 0;
    int32_t likeliest = d->candidates[0].token;
    for (int32_t i = 0; i < n; i++) {
        total += d->candidates[i].value;
        if (d->candidates[i].value > most) most = d->candidates[i].value, likeliest = d->candidates[i].token;
    }
    struct sample_candidate c = d->candidates[select_share(d->candidates, n, uniform(d->row) * total) - 1];
    return c.value > 0 ? c.token : likeliest; /* a weight of zero: the sums' rounding went past the end */
}

/* Candidates whose weights make up top_p of all: the threshold falls until they do. */
static int32_t candidates_of_share(const struct draw *d, float top, float inverse)
{
    int32_t v = d->p->vocabulary, blocks = blocks_of(v);
    double total = 0, need, mass = 0;
    d->f->block_sums(d->x, v, top, inverse, d->sums);
    for (int32_t b = 0; b < blocks; b++) total += d->sums[b];
    need = total * d->row->top_p;
    for (float reach = 2.0f;; reach *= 2) {
        float least = top - reach / inverse;
        if (!(least > -FLT_MAX) || reach > 128) least = -FLT_MAX;
        int32_t n = collect(d, least);
        d->f->weights(d->candidates, n, top, inverse);
        mass = 0;
        for (int32_t i = 0; i < n; i++) mass += d->candidates[i].value;
        if (mass >= need * (1 + 1e-6) || least == -FLT_MAX) return select_share(d->candidates, n, need);
    }
}

static int32_t draw_token(const struct draw *d)
{
    const struct sample_row *r = d->row;
    float top = top_of(d);
    if (top == -INFINITY) return -1;
    if (!(r->temperature >= 1e-5f) || top == INFINITY) return first_of(d, top);
    float inverse = 1.0f / r->temperature;
    int32_t v = d->p->vocabulary, n;
    bool share = r->top_p<1.0f, least = r->min_p> 0;
    if (r->top_k > 0 && r->top_k < v) {
        n = top_k(d, r->top_k);
        d->f->weights(d->candidates, n, top, inverse);
        double total = 0;
        for (int32_t i = 0; i < n; i++) total += d->candidates[i].value;
        if (share) n = select_share(d->candidates, n, total * r->top_p);
    } else if (share) {
        n = candidates_of_share(d, top, inverse);
    } else if (least) {
        float bound = top + logf(r->min_p) / inverse;
        n = collect(d,
                    (bound < top ? bound : top) - 1e-3f / inverse); /* a little more than needed, cut below */
        d->f->weights(d->candidates, n, top, inverse);
    } else {
        return draw_all(d, top, inverse);
    }
    if (least) {
        int32_t kept = 0;
        for (int32_t i = 0; i < n; i++)
            if (d->candidates[i].value >= r->min_p || d->candidates[i].value == 1.0f)
                d->candidates[kept++] = d->candidates[i];
        n = kept;
    }
    return draw_candidates(d, n);
}

/* --- rows
 * ---------------------------------------------------------------------------------------------------------
 */

static void append(const struct sample_params *p, const struct sample_row *r, int32_t token)
{
    if (r->feed >= 0 && p->feed) ((int32_t *)p->feed)[r->feed] = token;
    if (!r->append || !p->history || r->slot < 0 || r->slot >= p->slots) return;
    int32_t *length = (int32_t *)p->history_length + r->slot;
    if (*length >= 0 && *length < p->history_stride)
        ((int32_t *)p->history)[(int64_t)r->slot * p->history_stride + (*length)++] = token;
}

static void finish_row(const struct sample_kernels *f, const struct sample_params *p, int64_t r,
                       char *scratch)
{
    int32_t v = p->vocabulary;
    struct draw d = {.f = f, .p = p, .row = (const struct sample_row *)p->rows + r};
    struct sample_output *out = (struct sample_output *)p->output + r;
    d.x = (float *)p->logits + r * p->logits_stride;
    d.maxima = (float *)p->work + r * p->work_stride;
    d.candidates = (struct sample_candidate *)(void *)scratch;
    d.raw = (float *)(void *)(d.candidates + v + SAMPLE_BLOCK);
    d.sums = d.raw + v;
    bool wants = d.row->top_n >= 0, edits = d.row->edits_count > 0 || has_penalty(&d);
    double lse = wants ? log_sum(&d) : 0;
    out->top_count = 0;
    if (wants) write_top(&d, lse, out);
    if (d.row->given >= 0) {
        out->token = d.row->given < v ? d.row->given : -1;
    } else {
        if (wants && edits) memcpy(d.raw, d.x, (size_t)v * sizeof(float)), d.raw_kept = true;
        apply_edits(&d);
        if (has_penalty(&d)) apply_penalties(&d);
        apply_mask(&d);
        out->token = draw_token(&d);
        if (out->token >= 0) append(p, d.row, out->token);
    }
    out->logprob = wants && out->token >= 0 ? (float)(raw_of(&d, out->token) - lse) : 0.0f;
}

static const struct sample_kernels *kernels(void)
{
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_ISA_AVX512) return &sample_kernels_avx512;
    if (cpu_isa() >= CPU_ISA_AVX2) return &sample_kernels_avx2;
#endif
    return &sample_kernels_portable;
}

void sample_cpu(const void *params, const struct extents *extents, struct worker *w)
{
    const struct sample_params *p = params;
    const struct sample_kernels *f = kernels();
    size_t rows = (size_t)extents->n[EXTENT_SAMPLES], chunks = (size_t)chunks_of(p->vocabulary), begin, end;
    while (worker_next(w, rows * chunks, 1, &begin, &end)) {
        int64_t r = (int64_t)(begin / chunks);
        int32_t c = (int32_t)(begin % chunks), first = c * SAMPLE_CHUNK,
                n = ROSE_MIN(p->vocabulary - first, SAMPLE_CHUNK);
        const float *x = (const float *)p->logits + r * p->logits_stride + first;
        float *maxima = (float *)p->work + r * p->work_stride, *mine = maxima + first / SAMPLE_BLOCK;
        f->maxima(x, n, mine);
        if (((const struct sample_row *)p->rows)[r].top_n < 0) continue;
        float top = -INFINITY, *sum = maxima + blocks_of(p->vocabulary) + 2 * c;
        for (int32_t b = 0; b < blocks_of(n); b++) top = mine[b] > top ? mine[b] : top;
        sum[0] = top;
        sum[1] = top > -INFINITY && top < INFINITY ? f->sum_exp(x, n, top) : 1.0f;
    }
    worker_barrier(w);
    while (worker_next(w, rows, 1, &begin, &end)) finish_row(f, p, (int64_t)begin, w->scratch);
}
