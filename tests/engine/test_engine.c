/* The engine on a tiny model: answers under load, chunking, prefix hits, preemption, cancellation and one-step-late collection
 * equal the answers alone, bit for bit; every request ends once; every page comes back. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "engine/engine.h"

#include "model/golden.h"
#include "test.h"
#include "weights/weights.h"

/* test_engine_cuda.c includes this file for a CUDA device: fewer requests, its cache type, its waits. */
#ifndef ENGINE_REQUESTS
#define ENGINE_REQUESTS 14
#define ENGINE_KV DTYPE_F32
#define ENGINE_WAIT_MS 120000
static void open_device(int threads);
#endif
enum { REQUESTS = ENGINE_REQUESTS, VOCABULARY = 160, MOST_TOKENS = 160 };

static struct rose_error err;
static struct golden golden;
static struct device *device;
static struct model *model;
static struct tokenizer *tokenizer;

static uint64_t state;
static uint32_t rnd(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((state >> 33) % below);
}

struct job {
    int32_t prompt[MOST_TOKENS], prompt_count;
    struct rose_request request;
};
struct answer {
    int32_t tokens[MOST_TOKENS];
    float logprobs[MOST_TOKENS];
    int count, finals, cached;
    enum rose_finish finish;
};
static struct job jobs[REQUESTS];

static void open_all(int threads)
{
    static char names[VOCABULARY][8];
    static struct str tokens[VOCABULARY];
    for (int i = 0; i < VOCABULARY; i++) {
        snprintf(names[i], sizeof names[i], "t%dx", i);
        tokens[i] = str_of(names[i]);
    }
    struct tokenizer_vocab v = {.model = STR("gpt2"), .tokens = tokens, .count = VOCABULARY, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .sep = -1, .pad = -1,
                                .cls = -1, .mask = -1, .add_bos = 0, .add_eos = 0, .add_sep = -1, .add_space_prefix = -1, .remove_extra_whitespaces = -1};
    CHECK_OK(tokenizer_from_vocab(&v, &tokenizer, &err), err);
    struct weights *w;
    CHECK_OK(weights_open(golden.dir, &w, &err), err);
    open_device(threads);
    CHECK_OK(model_open(device, w, NULL, NULL, &model, &err), err);
}

static void close_all(void)
{
    model_close(model);
    device_close(device);
    tokenizer_free(tokenizer);
}

/* Prompts of all lengths, half of them with a common beginning; greedy, seeded, with penalties and log-probabilities. */
static void make_jobs(void)
{
    int32_t common[80];
    state = 99;
    for (int i = 0; i < 80; i++) common[i] = 3 + (int32_t)rnd(VOCABULARY - 3);
    for (int j = 0; j < REQUESTS; j++) {
        struct job *job = &jobs[j];
        job->prompt_count = 1 + (int32_t)rnd(110);
        for (int i = 0; i < job->prompt_count; i++) job->prompt[i] = j % 2 && i < 80 ? common[i] : 3 + (int32_t)rnd(VOCABULARY - 3);
        job->request = (struct rose_request){.max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1}};
        job->request.max_tokens = 1 + (int)rnd(40);
        job->request.logprobs = 2;
        job->request.user = (uint64_t)j;
        job->request.sampling.ignore_eos = j % 3 != 0;
        if (j % 4 == 1) job->request.sampling.temperature = 0.8f, job->request.sampling.has_seed = true, job->request.sampling.seed = (uint64_t)j;
        if (j % 4 == 2) job->request.sampling.repetition_penalty = 1.3f, job->request.sampling.presence_penalty = 0.5f;
    }
}

static void take(struct answer *answers, const struct rose_event *e)
{
    struct answer *a = &answers[e->user];
    if (e->kind == ROSE_EVENT_TOKEN && e->token >= 0) {
        a->logprobs[a->count] = e->logprob;
        a->tokens[a->count++] = e->token;
    }
    if (e->kind == ROSE_EVENT_FINAL) {
        a->finals++;
        a->finish = e->finish;
        a->cached = e->cached_tokens;
        CHECK_INT(e->completion_tokens, a->count);
    }
}

static struct engine *start(struct engine_options options)
{
    struct engine *e = NULL;
    CHECK_OK(engine_open(model, tokenizer, &options, &e, &err), err);
    return e;
}

static void wait_for(struct engine *e, struct answer *answers, int finals)
{
    struct rose_event events[8];
    while (finals > 0) {
        size_t n = events_read(&e->events, events, ROSE_COUNT(events), ENGINE_WAIT_MS);
        CHECK(n > 0);
        if (!n) return;
        for (size_t i = 0; i < n; i++) {
            take(answers, &events[i]);
            finals -= events[i].kind == ROSE_EVENT_FINAL;
        }
    }
}

static void check_pages(struct engine *e)
{
    struct rose_stats s;
    for (int i = 0; i < 6000; i++) { /* the thread may still be tidying up behind the last event */
        engine_stats(e, &s);
        if (s.pages_free + s.pages_cached == s.pages_total && !s.running) return;
        usleep(10000);
    }
    CHECK_INT(s.pages_free + s.pages_cached, s.pages_total);
}

static void same(const struct answer *got, const struct answer *want, const char *what)
{
    for (int j = 0; j < REQUESTS; j++) {
        CHECK_INT(got[j].finals, 1);
        CHECK_INT(got[j].count, want[j].count);
        CHECK_INT(got[j].finish, want[j].finish);
        bool equal = got[j].count == want[j].count && !memcmp(got[j].tokens, want[j].tokens, (size_t)want[j].count * sizeof(int32_t)) &&
                     !memcmp(got[j].logprobs, want[j].logprobs, (size_t)want[j].count * sizeof(float));
        if (!equal) fprintf(stderr, "%s: answer %d differs\n", what, j);
        CHECK(equal);
    }
}

static void alone(struct engine_options options, struct answer *answers)
{
    memset(answers, 0, REQUESTS * sizeof *answers);
    for (int j = 0; j < REQUESTS; j++) {
        struct engine *e = start(options);
        uint64_t id;
        CHECK_OK(engine_submit(e, &jobs[j].request, jobs[j].prompt, (size_t)jobs[j].prompt_count, &id, &err), err);
        wait_for(e, answers, 1);
        engine_close(e);
    }
}

static void together(struct engine_options options, struct answer *answers, uint64_t *preemptions)
{
    memset(answers, 0, REQUESTS * sizeof *answers);
    struct engine *e = start(options);
    uint64_t id, doomed[REQUESTS];
    for (int j = 0; j < REQUESTS; j++) {
        CHECK_OK(engine_submit(e, &jobs[j].request, jobs[j].prompt, (size_t)jobs[j].prompt_count, &id, &err), err);
        /* Another one that is cancelled at some point. */
        struct rose_request r = jobs[j].request;
        r.user = REQUESTS;
        CHECK_OK(engine_submit(e, &r, jobs[j].prompt, (size_t)jobs[j].prompt_count, &doomed[j], &err), err);
        if (j % 3 == 0) engine_cancel(e, doomed[j / 2]);
    }
    struct answer all[REQUESTS + 1] = {0};
    struct rose_event events[8];
    for (int finals = 0, round = 0; finals < 2 * REQUESTS; round++) {
        size_t n = events_read(&e->events, events, ROSE_COUNT(events), ENGINE_WAIT_MS);
        CHECK(n > 0);
        if (!n) break;
        for (size_t i = 0; i < n; i++) {
            finals += events[i].kind == ROSE_EVENT_FINAL;
            if (events[i].user < REQUESTS) take(all, &events[i]);
        }
        if (round % 5 == 0) engine_cancel(e, doomed[(round / 5) % REQUESTS]);
    }
    memcpy(answers, all, REQUESTS * sizeof *answers);
    struct rose_stats s;
    engine_stats(e, &s);
    *preemptions = s.preemptions;
    CHECK_INT(s.finished, 2 * REQUESTS);
    check_pages(e);
    engine_close(e);
}

static struct engine_options base(void)
{
    return (struct engine_options){.context = 190, .max_sequences = 4, .step_tokens = 32, .kv = ENGINE_KV, .deterministic = true};
}

#if ENGINE_REQUESTS == 14
TEST(the_same_alone_and_under_load)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    uint64_t preemptions;
    alone(base(), want);
    const struct { const char *name; struct engine_options o; } loads[] = {
        {"four at once", {.context = 190, .max_sequences = 4, .step_tokens = 32}},
        {"eight, small steps", {.context = 190, .max_sequences = 8, .step_tokens = 9}},
        {"one step late", {.context = 190, .max_sequences = 5, .step_tokens = 24, .depth = 2}},
        {"no prefix cache", {.context = 190, .max_sequences = 4, .step_tokens = 32, .no_prefix_cache = true}}};
    for (size_t i = 0; i < ROSE_COUNT(loads); i++) {
        struct engine_options o = loads[i].o;
        o.kv = ENGINE_KV;
        o.deterministic = true;
        together(o, got, &preemptions);
        same(got, want, loads[i].name);
    }
}

/* Bytes of [p, p + n) that the system has given. */
static size_t resident(const void *p, size_t n)
{
    enum { PAGE = 4096, MOST = 4096 };
    static unsigned char there[MOST];
    uintptr_t from = (uintptr_t)p / PAGE * PAGE;
    size_t pages = ((uintptr_t)p + n - from + PAGE - 1) / PAGE, count = 0;
    CHECK(pages <= MOST);
    if (pages > MOST || mincore((void *)from, pages * PAGE, there)) return 0;
    for (size_t i = 0; i < pages; i++) count += there[i] & 1;
    return ROSE_MIN(count * PAGE, n);
}

TEST(a_resting_engine_has_memory_ready)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    alone(base(), want);
    struct engine_options o = base();
    o.cache_ready = 64 << 10;
    struct engine *e = start(o);
    CHECK(e->pool_bytes > 2 * o.cache_ready);
    for (int round = 0; round < 3; round++) { /* it may take bytes beside those in use, and must not touch those */
        for (int i = 0; i < 6000 && resident(e->cache.pool, o.cache_ready) < o.cache_ready; i++) usleep(10000);
        CHECK_INT(resident(e->cache.pool, o.cache_ready), o.cache_ready);
        memset(got, 0, sizeof got);
        uint64_t id;
        for (int j = 0; j < REQUESTS; j++) CHECK_OK(engine_submit(e, &jobs[j].request, jobs[j].prompt, (size_t)jobs[j].prompt_count, &id, &err), err);
        wait_for(e, got, REQUESTS);
        same(got, want, "memory ready");
        check_pages(e);
    }
    engine_close(e);
}

TEST(the_same_with_few_pages)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    alone(base(), want);
    for (int depth = 1; depth <= 2; depth++) {
        struct engine_options o = {.context = 190, .max_sequences = 8, .step_tokens = 40, .depth = depth, .kv = ENGINE_KV, .deterministic = true};
        size_t token = op_cache_token_bytes(ENGINE_KV, &model->config.heads) * (size_t)model->config.group_layers;
        o.kv_bytes = token * ENGINE_PAGE_TOKENS * (size_t)model->config.groups_count * 8;
        /* Without preemption this tests nothing: the engine may have been faster than the requests came. Then again. */
        uint64_t preemptions = 0;
        for (int round = 0; round < 50 && !preemptions; round++) {
            together(o, got, &preemptions);
            same(got, want, depth == 1 ? "few pages" : "few pages, one step late");
        }
        CHECK(preemptions > 0);
    }
}

TEST(the_same_on_any_number_of_threads)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    struct engine_options o = base();
    o.deterministic = false;
    alone(o, want);
    for (int threads = 1; threads <= 3; threads += 2) {
        close_all();
        open_all(threads);
        alone(o, got);
        same(got, want, "threads");
    }
}

#endif

TEST(choices_share_their_prompt)
{
    struct engine *e = start(base());
    struct rose_request r;
    r = (struct rose_request){.max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1}};
    r.choices = 4;
    r.max_tokens = 6;
    r.sampling.temperature = 1;
    r.sampling.has_seed = true;
    r.sampling.ignore_eos = true;
    uint64_t id;
    int32_t prompt[100];
    for (int i = 0; i < 100; i++) prompt[i] = 3 + i;
    CHECK_OK(engine_submit(e, &r, prompt, 100, &id, &err), err);
    int counts[4] = {0}, ended = 0, prompts = 0, finals = 0;
    struct rose_event events[8];
    while (!finals) {
        size_t n = events_read(&e->events, events, 8, ENGINE_WAIT_MS);
        CHECK(n);
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == ROSE_EVENT_TOKEN && events[i].token >= 0) counts[events[i].choice]++;
            ended += events[i].kind == ROSE_EVENT_CHOICE;
            prompts += events[i].kind == ROSE_EVENT_PROMPT;
            if (events[i].kind != ROSE_EVENT_FINAL) continue;
            finals++;
            CHECK_INT(events[i].completion_tokens, 24);
        }
        if (!n) break;
    }
    for (int i = 0; i < 4; i++) CHECK_INT(counts[i], 6);
    CHECK_INT(ended, 4);
    CHECK_INT(prompts, 1);
    struct rose_stats s;
    engine_stats(e, &s);
    CHECK(s.steps < 4 * 4 + 6); /* the prompt's four chunks were computed once */
    check_pages(e);
    engine_close(e);
}

TEST(prompt_log_probabilities)
{
    struct engine *e = start(base());
    struct rose_request r;
    struct rose_event events[8];
    uint64_t id;
    r = (struct rose_request){.max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1}};
    r.max_tokens = 0;
    r.prompt_logprobs = 3;
    CHECK_OK(engine_submit(e, &r, jobs[3].prompt, (size_t)jobs[3].prompt_count, &id, &err), err);
    for (bool done = false; !done;) {
        size_t n = events_read(&e->events, events, 8, ENGINE_WAIT_MS);
        CHECK(n);
        if (!n) break;
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == ROSE_EVENT_PROMPT) {
                CHECK_INT(events[i].prompt_count, jobs[3].prompt_count);
                CHECK(isnan(events[i].prompt_logprobs[0]));
                for (int k = 1; k < events[i].prompt_count; k++) {
                    CHECK(events[i].prompt_logprobs[k] <= events[i].top[k * 3].logprob + 1e-6f);
                    CHECK_INT(events[i].prompt_tokens[k], jobs[3].prompt[k]);
                }
            }
            CHECK(events[i].kind != ROSE_EVENT_TOKEN);
            if (events[i].kind != ROSE_EVENT_FINAL) continue;
            done = true;
            CHECK_INT(events[i].finish, ROSE_FINISH_LENGTH);
        }
    }
    check_pages(e);
    engine_close(e);
}

#if ENGINE_REQUESTS == 14
TEST(refusals)
{
    struct engine *e = start(base());
    struct rose_request r;
    uint64_t id;
    int32_t prompt[400] = {5, 6, 7};
    r = (struct rose_request){.max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1}};
    CHECK_INT(engine_submit(e, &r, prompt, 0, &id, &err), ROSE_INVALID);
    CHECK_INT(engine_submit(e, &r, prompt, 191, &id, &err), ROSE_LIMIT);
    CHECK(strstr(err.message, "190"));
    r.max_tokens = 190;
    CHECK_INT(engine_submit(e, &r, prompt, 3, &id, &err), ROSE_LIMIT);
    r.max_tokens = 1;
    prompt[1] = VOCABULARY;
    CHECK_INT(engine_submit(e, &r, prompt, 3, &id, &err), ROSE_INVALID);
    prompt[1] = 6;
    struct rose_logit_bias bias = {VOCABULARY, 1};
    r.sampling.logit_bias = &bias;
    r.sampling.logit_bias_count = 1;
    CHECK_INT(engine_submit(e, &r, prompt, 3, &id, &err), ROSE_INVALID);
    r.sampling.logit_bias_count = 0;
    const char *empty = "";
    r.stops = &empty;
    r.stops_count = 1;
    CHECK_INT(engine_submit(e, &r, prompt, 3, &id, &err), ROSE_INVALID);
    r.stops_count = 0;
    r.sampling.temperature = NAN;
    CHECK_INT(engine_submit(e, &r, prompt, 3, &id, &err), ROSE_INVALID);
    engine_close(e);
}

TEST(deadlines)
{
    struct engine *e = start(base());
    struct rose_request r;
    struct answer a[1] = {0};
    uint64_t id;
    r = (struct rose_request){.max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1}};
    r.sampling.ignore_eos = true;
    r.max_tokens = 150;
    r.deadline_ms = 1;
    CHECK_OK(engine_submit(e, &r, jobs[0].prompt, 3, &id, &err), err);
    wait_for(e, a, 1);
    CHECK_INT(a[0].finish, ROSE_FINISH_DEADLINE);
    check_pages(e);
    engine_close(e);
}

static void open_device(int threads)
{
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CPU, .threads = threads}, &device, &err), err);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {CASE(the_same_alone_and_under_load), CASE(a_resting_engine_has_memory_ready), CASE(the_same_with_few_pages), CASE(choices_share_their_prompt),
                                             CASE(refusals), CASE(prompt_log_probabilities), CASE(deadlines), CASE(the_same_on_any_number_of_threads)};
    golden_open(&golden, "llama");
    golden_write_hf(&golden);
    open_all(2);
    make_jobs();
    int status = test_run_all(cases, ROSE_COUNT(cases), argc, argv);
    close_all();
    golden_close(&golden);
    return status;
}
#endif
