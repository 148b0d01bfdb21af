#include "engine/scheduler.h"

static bool before(const struct sched_seq *a, const struct sched_seq *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* Heap sort of indexes: n can be thousands of waiting requests, and nothing may be allocated. */
static void sift(const struct sched_seq *s, int32_t *o, int32_t i, int32_t n)
{
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&s[o[child]], &s[o[child + 1]])) child++;
        if (!before(&s[o[i]], &s[o[child]])) return;
        int32_t t = o[i];
        o[i] = o[child], o[child] = t;
    }
}

static void sort(const struct sched_seq *s, int32_t *o, int32_t n)
{
    for (int32_t i = 0; i < n; i++) o[i] = i;
    for (int32_t i = n / 2; i-- > 0;) sift(s, o, i, n);
    for (int32_t end = n - 1; end > 0; end--) {
        int32_t t = o[0];
        o[0] = o[end], o[end] = t;
        sift(s, o, 0, end);
    }
}

struct plan {
    const struct sched_limits *l;
    struct sched_seq *seqs;
    const int32_t *order;
    int32_t n, free_pages, budget, prefill_budget, samples, running;
    struct sched_result r;
};

static int32_t blocks_for(const struct sched_limits *l, int32_t tokens) { return (tokens + l->page_tokens - 1) / l->page_tokens; }

static int32_t pages_of(const struct sched_limits *l, int32_t blocks)
{
    int32_t pages = 0;
    for (int32_t g = 0; g < l->groups; g++) pages += l->group_blocks[g] ? ROSE_MIN(blocks, l->group_blocks[g]) : blocks;
    return pages;
}

/* New pages to come from `held` blocks to room for `tokens`. */
static int32_t fresh_pages(const struct sched_limits *l, int32_t held, int32_t tokens)
{
    int32_t blocks = blocks_for(l, tokens);
    return blocks > held ? pages_of(l, blocks) - pages_of(l, held) : 0;
}

int32_t sched_pages(const struct sched_limits *l, int32_t length) { return pages_of(l, blocks_for(l, length)); }

bool sched_crowd(const struct sched_limits *l, const struct sched_seq *seqs, int32_t n)
{
    int64_t rows = 0;
    bool first = true;
    int32_t urgent = INT32_MAX; /* the priority of the most urgent answer under way */
    for (int32_t i = 0; i < n; i++)
        if (seqs[i].running && seqs[i].length - seqs[i].computed == 1) urgent = ROSE_MIN(urgent, seqs[i].priority);
    for (int32_t i = 0; i < n; i++) {
        if (seqs[i].running || seqs[i].hold || seqs[i].priority > urgent) continue;
        if (!first) rows += seqs[i].length - seqs[i].reusable * l->page_tokens;
        first = false;
    }
    return rows >= l->step_tokens;
}

/* The last running sequence of the order behind position `after` gives everything back. */
static bool preempt_one(struct plan *p, int32_t after)
{
    for (int32_t i = p->n - 1; i > after; i--) {
        struct sched_seq *v = &p->seqs[p->order[i]];
        if (!v->running || v->preempted || v->blocks == 0) continue;
        p->free_pages += v->pages;
        if (v->rows) {
            /* It had been given rows already: take them back. */
            int32_t fresh = fresh_pages(p->l, v->blocks, v->computed + v->rows);
            p->free_pages += fresh;
            p->r.pages_taken -= fresh;
            p->budget += v->rows;
            p->r.rows -= v->rows;
            p->samples -= v->sample_all ? v->rows : v->computed + v->rows == v->length;
            if (v->length - v->computed == 1) p->r.decode_rows -= v->rows;
            else p->r.prefill_rows -= v->rows, p->prefill_budget += v->rows;
            v->rows = 0;
        }
        v->preempted = true;
        p->running--;
        p->r.preempted++;
        return true;
    }
    return false;
}

/* Pages for `rows` more tokens of the sequence at position `at`; preempts those behind it when they are short. */
static bool take_pages(struct plan *p, int32_t at, int32_t held, int32_t tokens, bool may_preempt)
{
    int32_t fresh = fresh_pages(p->l, held, tokens);
    while (p->free_pages < fresh)
        if (!may_preempt || !preempt_one(p, at)) return false;
    p->free_pages -= fresh;
    p->r.pages_taken += fresh;
    return true;
}

static int32_t sampled_rows(const struct sched_seq *s, int32_t computed, int32_t rows)
{
    return s->sample_all ? rows : computed + rows == s->length;
}

/* Give a sequence the rows that budget and samples allow. */
static void give_rows(struct plan *p, int32_t at, struct sched_seq *s, int32_t computed, int32_t held, bool decode, bool may_preempt)
{
    int32_t rows = ROSE_MIN(s->length - computed, p->budget);
    if (!decode) rows = ROSE_MIN(rows, p->prefill_budget);
    int32_t room = p->l->max_samples - p->samples;
    if (s->sample_all) rows = ROSE_MIN(rows, room);
    else if (rows == s->length - computed && room == 0) rows--;
    if (rows <= 0 || !take_pages(p, at, held, computed + rows, may_preempt)) return;
    s->rows = rows;
    p->budget -= rows;
    p->r.rows += rows;
    p->samples += sampled_rows(s, computed, rows);
    if (decode) p->r.decode_rows += rows;
    else p->r.prefill_rows += rows, p->prefill_budget -= rows;
}

struct sched_result sched_plan(const struct sched_limits *limits, struct sched_seq *seqs, int32_t n, int32_t free_pages, int32_t *order)
{
    struct plan p = {.l = limits, .seqs = seqs, .order = order, .n = n, .free_pages = free_pages, .budget = limits->step_tokens};
    bool decoding = false;
    for (int32_t i = 0; i < n; i++) {
        seqs[i].rows = 0;
        seqs[i].preempted = false;
        p.running += seqs[i].running;
        decoding |= seqs[i].running && seqs[i].length - seqs[i].computed == 1;
    }
    p.prefill_budget = decoding ? limits->prefill_tokens : limits->step_tokens;
    sort(seqs, order, n);
    for (int pass = 0; pass < 2; pass++) /* decode, then running prefills */
        for (int32_t i = 0; i < n; i++) {
            struct sched_seq *s = &seqs[order[i]];
            bool decode = s->length - s->computed == 1;
            if (s->running && !s->preempted && !s->hold && decode == (pass == 0)) give_rows(&p, i, s, s->computed, s->blocks, decode, true);
        }
    /* What running prefills still need is spoken for. */
    for (int32_t i = 0; i < n; i++) {
        const struct sched_seq *s = &seqs[i];
        if (!s->running || s->preempted) continue;
        p.free_pages -= fresh_pages(limits, ROSE_MAX(blocks_for(limits, s->computed + s->rows), s->blocks), ROSE_MIN(s->length + 1, s->capacity));
    }
    /* Waiting ones in order; the first that does not fit stops the queue, so that large requests are not overtaken for ever. No
     * admission in a step that had to preempt. */
    for (int32_t i = 0; i < n && p.r.preempted == 0 && p.running < limits->max_running; i++) {
        struct sched_seq *s = &seqs[order[i]];
        if (s->running || s->hold) continue;
        int32_t computed = s->reusable * limits->page_tokens;
        /* Admit only when the whole prompt has room (plus the next token), lest it be preempted at once. */
        if (fresh_pages(limits, s->reusable, ROSE_MIN(s->length + 1, s->capacity)) > p.free_pages - s->reused_idle) break;
        p.free_pages -= s->reused_idle;
        give_rows(&p, i, s, computed, s->reusable, false, false);
        if (s->rows == 0) break;
        /* Its remaining chunks have a claim on these pages. */
        p.free_pages -= fresh_pages(limits, ROSE_MAX(blocks_for(limits, computed + s->rows), s->reusable), ROSE_MIN(s->length + 1, s->capacity));
        p.running++;
        p.r.admitted++;
    }
    return p.r;
}
