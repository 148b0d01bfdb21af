/* The scheduler on 100,000 random traces: simulated sequences arrive, are computed, preempted and end. Checked at every step:
 * budgets, page conservation, order of admission, progress of the first; at the end: each sequence has ended exactly once. */
#include "engine/scheduler.h"
#include "test.h"

enum { MOST = 12 };

struct sim {
    struct sched_limits limits;
    struct sched_seq seq[MOST];
    int32_t target[MOST];  /* tokens it ends with */
    int32_t blocks[MOST];
    int ended[MOST], arrived[MOST];
    int32_t n, total, free_pages;
    int preemptions;
};

static uint64_t state;
static uint32_t rnd(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % below);
}

static int32_t blocks_for(const struct sim *s, int32_t tokens) { return (tokens + s->limits.page_tokens - 1) / s->limits.page_tokens; }

static void begin(struct sim *s)
{
    *s = (struct sim){.limits = {.step_tokens = 1 + (int32_t)rnd(40), .max_running = 1 + (int32_t)rnd(6), .page_tokens = 1 + (int32_t)rnd(8), .groups = 1 + (int32_t)rnd(3)}};
    s->limits.step_tokens = ROSE_MAX(s->limits.step_tokens, s->limits.max_running);
    s->limits.prefill_tokens = 1 + (int32_t)rnd((uint32_t)s->limits.step_tokens);
    s->limits.max_samples = ROSE_MAX(s->limits.max_running, 1 + (int32_t)rnd(8));
    s->n = 1 + (int32_t)rnd(MOST);
    int32_t longest = 0;
    for (int32_t i = 0; i < s->n; i++) {
        int32_t prompt = 1 + (int32_t)rnd(60);
        s->target[i] = prompt + (int32_t)rnd(30) + 1;
        s->seq[i] = (struct sched_seq){.priority = (int32_t)rnd(2), .arrival = (uint64_t)i, .length = prompt, .capacity = s->target[i], .sample_all = rnd(8) == 0};
        longest = ROSE_MAX(longest, s->target[i]);
    }
    /* Any one fits alone; more than that is luck. */
    s->total = s->free_pages = blocks_for(s, longest) * s->limits.groups + (int32_t)rnd(40);
}

static void check_step(const struct sim *s, const struct sched_seq *p, const int32_t *who, int32_t n, const struct sched_result *r)
{
    int32_t rows = 0, samples = 0, prefill = 0, running = 0;
    bool decoding = false;
    for (int32_t i = 0; i < n; i++) {
        rows += p[i].rows;
        decoding |= p[i].running && p[i].length - p[i].computed == 1;
        running += (p[i].running && !p[i].preempted) || p[i].rows;
        samples += p[i].sample_all ? p[i].rows : p[i].rows && p[i].computed + p[i].rows == p[i].length;
        if (p[i].rows && !(p[i].running && p[i].length - p[i].computed == 1)) prefill += p[i].rows;
        CHECK(p[i].rows >= 0 && p[i].rows <= p[i].length - p[i].computed);
        CHECK(!(p[i].preempted && p[i].rows));
        CHECK(!p[i].preempted || p[i].running);
    }
    CHECK(rows <= s->limits.step_tokens);
    CHECK(samples <= s->limits.max_samples);
    CHECK(running <= s->limits.max_running);
    CHECK_INT(rows, r->rows);
    CHECK_INT(prefill, r->prefill_rows);
    if (decoding) CHECK(prefill <= s->limits.prefill_tokens);
    /* Nobody waiting is overtaken by a later one of the same or lesser rank. */
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n; k++)
            if (!p[i].running && !p[i].rows && !p[k].running && p[k].rows)
                CHECK(p[k].priority < p[i].priority || (p[k].priority == p[i].priority && p[k].arrival < p[i].arrival));
    (void)who;
}

/* Do what the plan says. Returns rows computed. */
static int32_t apply(struct sim *s, const struct sched_seq *p, const int32_t *who, int32_t n)
{
    int32_t done = 0;
    for (int32_t i = 0; i < n; i++) {
        struct sched_seq *q = &s->seq[who[i]];
        if (!p[i].preempted) continue;
        s->free_pages += s->blocks[who[i]] * s->limits.groups;
        s->blocks[who[i]] = 0;
        q->running = false;
        q->computed = 0;
        s->preemptions++;
    }
    for (int32_t i = 0; i < n; i++) {
        struct sched_seq *q = &s->seq[who[i]];
        if (!p[i].rows) continue;
        q->running = true;
        int32_t need = blocks_for(s, q->computed + p[i].rows) - s->blocks[who[i]];
        if (need > 0) s->free_pages -= need * s->limits.groups, s->blocks[who[i]] += need;
        CHECK(s->free_pages >= 0);
        q->computed += p[i].rows;
        done += p[i].rows;
        if (q->computed < q->length) continue;
        q->sample_all = false;
        if (q->length < s->target[who[i]]) q->length++;
        if (q->length < s->target[who[i]]) continue;
        s->ended[who[i]]++;
        s->free_pages += s->blocks[who[i]] * s->limits.groups;
        s->blocks[who[i]] = 0;
        q->running = false;
    }
    return done;
}

static bool trace(void)
{
    struct sim s;
    int open, before = test_failures_;
    begin(&s);
    open = s.n;
    for (int step = 0; open && step < 20000; step++) {
        struct sched_seq p[MOST];
        int32_t who[MOST], order[MOST], n = 0;
        for (int32_t i = 0; i < s.n; i++) {
            if (!s.arrived[i] && (rnd(4) == 0 || step > 100)) s.arrived[i] = 1;
            if (!s.arrived[i] || s.ended[i]) continue;
            s.seq[i].blocks = s.blocks[i];
            s.seq[i].pages = s.blocks[i] * s.limits.groups;
            who[n] = i;
            p[n++] = s.seq[i];
        }
        if (!n) continue;
        struct sched_result r = sched_plan(&s.limits, p, n, s.free_pages, order);
        check_step(&s, p, who, n, &r);
        int32_t done = apply(&s, p, who, n), held = 0;
        CHECK(done > 0); /* somebody always advances */
        open = 0;
        for (int32_t i = 0; i < s.n; i++) held += s.blocks[i] * s.limits.groups, open += !s.ended[i];
        CHECK_INT(held + s.free_pages, s.total);
        if (test_failures_ != before) return false;
    }
    for (int32_t i = 0; i < s.n; i++) CHECK_INT(s.ended[i], 1);
    return test_failures_ == before;
}

TEST(random_traces)
{
    for (int i = 0; i < 100000; i++) {
        state = (uint64_t)i * 0x9E3779B97F4A7C15ull + 1;
        if (!trace()) {
            fprintf(stderr, "trace %d failed\n", i);
            return;
        }
    }
}

TEST(decode_before_prefill)
{
    struct sched_limits l = {.step_tokens = 16, .prefill_tokens = 8, .max_running = 4, .max_samples = 4, .page_tokens = 4, .groups = 1};
    struct sched_seq s[3] = {{.arrival = 0, .length = 40, .computed = 10, .capacity = 50, .blocks = 3, .pages = 3, .running = true},
                             {.arrival = 1, .length = 9, .computed = 8, .capacity = 50, .blocks = 2, .pages = 2, .running = true},
                             {.arrival = 2, .length = 5, .capacity = 50}};
    int32_t order[3];
    struct sched_result r = sched_plan(&l, s, 3, 100, order);
    CHECK_INT(s[1].rows, 1);
    CHECK_INT(s[0].rows, 8); /* bounded while another decodes */
    CHECK_INT(s[2].rows, 0);
    CHECK_INT(r.decode_rows, 1);
}

TEST(preempts_the_last)
{
    struct sched_limits l = {.step_tokens = 16, .prefill_tokens = 8, .max_running = 4, .max_samples = 4, .page_tokens = 4, .groups = 1};
    struct sched_seq s[2] = {{.arrival = 7, .length = 9, .computed = 8, .capacity = 50, .blocks = 2, .pages = 2, .running = true},
                             {.arrival = 3, .length = 9, .computed = 8, .capacity = 50, .blocks = 2, .pages = 2, .running = true}};
    int32_t order[2];
    struct sched_result r = sched_plan(&l, s, 2, 0, order);
    CHECK(s[0].preempted && !s[1].preempted);
    CHECK_INT(s[1].rows, 1);
    CHECK_INT(r.preempted, 1);
}

/* What waits beside the first prompt fills a step or not; what runs, what is held and what the cache has do not count. */
TEST(a_crowd_of_prompts)
{
    struct sched_limits l = {.step_tokens = 16, .page_tokens = 4};
    struct sched_seq s[4] = {{.length = 900, .computed = 100, .running = true}, {.length = 900}, {.length = 9}, {.length = 7}};
    CHECK(sched_crowd(&l, s, 4));
    CHECK(!sched_crowd(&l, s, 2)); /* one long prompt is no crowd */
    CHECK(!sched_crowd(&l, s, 3));
    s[3].reusable = 1;
    CHECK(!sched_crowd(&l, s, 4));
    s[3].reusable = 0, s[2].hold = true;
    CHECK(!sched_crowd(&l, s, 4));
    /* Nor does what is less urgent than an answer under way. */
    s[2].hold = false, s[0].computed = 899;
    CHECK(sched_crowd(&l, s, 4));
    s[3].priority = 1;
    CHECK(!sched_crowd(&l, s, 4));
    s[0].priority = 1;
    CHECK(sched_crowd(&l, s, 4));
}

TEST_MAIN(CASE(random_traces), CASE(decode_before_prefill), CASE(preempts_the_last), CASE(a_crowd_of_prompts))
