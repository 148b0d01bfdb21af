/* The engine's tests on the CUDA device, with the driver that runs its kernels on the CPU: fetched inputs, a forward a bucket, padded
 * decode graphs, two steps in flight. And what the loop asks of the driver. */
#ifndef ENGINE_GPU /* tests/gpu/gpu_engine.c runs it on a GPU */
#define ENGINE_REQUESTS 5
#endif
#define ENGINE_KV DTYPE_BF16
#define ENGINE_WAIT_MS 120000
static void open_device(int threads);
#include "test_engine.c"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "jit/jit.h"
#ifdef ENGINE_GPU
#define ENGINE_LIBRARY NULL
#define ENGINE_INDEX 0
#else
#include "simt/driver/driver.h"
#define ENGINE_LIBRARY SIMT_DRIVER_DIR "/libsimt_fast.so"
#define ENGINE_INDEX SIMT_DRIVER_SM90
#endif

static struct jit *jit;

static void open_device(int threads)
{
    (void)threads;
    CHECK_OK(device_open(&(struct device_options){.kind = DEVICE_CUDA, .index = ENGINE_INDEX, .driver = ENGINE_LIBRARY}, &device, &err), err);
    if (!jit) CHECK_OK(jit_open(&(struct jit_options){.nvrtc_path = ENGINE_LIBRARY}, &jit, &err), err);
    if (device) device->jit = jit;
}

TEST(the_same_with_two_in_flight)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    uint64_t preemptions;
    struct engine_options o = base();
    o.depth = 2;
    alone(o, want);
    together(o, got, &preemptions);
    same(got, want, "four at once");
}

/* Six pages for answers that grow to three each. */
TEST(the_same_with_few_pages)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    uint64_t preemptions;
    for (int j = 0; j < REQUESTS; j++) {
        jobs[j].prompt_count = 25 + j;
        jobs[j].request.max_tokens = 45;
        jobs[j].request.sampling.ignore_eos = true;
    }
    struct engine_options o = {.context = 190, .max_sequences = 8, .step_tokens = 40, .depth = 2, .kv = ENGINE_KV, .deterministic = true};
    alone(o, want);
    o.kv_bytes = op_cache_page_bytes(ENGINE_KV, &model->config.heads, ENGINE_PAGE_TOKENS, model->config.group_layers) * (size_t)model->config.groups_count * 6;
    together(o, got, &preemptions);
    same(got, want, "few pages");
    CHECK(preemptions > 0);
    make_jobs();
}

/* Weights whose first piece nobody lets arrive before every kernel is compiled: opening does not wait for them until it must, and the graphs it has
 * made meanwhile give the answers of a model that waited. */
struct held {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool compiled, waited, late;
};

static void on_compiled(void *user, const struct jit_progress *p)
{
    struct held *h = user;
    pthread_mutex_lock(&h->lock);
    h->compiled |= p->done == p->total;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
}

static void on_piece(void *user, size_t done, size_t total)
{
    struct held *h = user;
    struct timespec end;
    (void)done, (void)total;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ENGINE_WAIT_MS / 1000;
    pthread_mutex_lock(&h->lock);
    h->waited = true;
    while (!h->compiled && !h->late) h->late = pthread_cond_timedwait(&h->wake, &h->lock, &end) != 0;
    pthread_mutex_unlock(&h->lock);
}

TEST(weights_travel_while_kernels_compile)
{
    static struct answer want[REQUESTS], got[REQUESTS];
    static struct held held = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
    uint64_t preemptions;
    struct engine_options o = base();
    struct model *waited = model;
    struct jit *own = NULL;
    struct weights *w = NULL;
    o.depth = 2;
    together(o, want, &preemptions);
    CHECK_OK(jit_open(&(struct jit_options){.nvrtc_path = ENGINE_LIBRARY, .progress = on_compiled, .user = &held}, &own, &err), err);
    CHECK_OK(weights_open(golden.dir, &w, &err), err);
    device->jit = own;
    CHECK_OK(model_open_as(device, w, &(struct head_wish){.yes = -1, .no = -1, .early = true}, on_piece, &held, &model, &err), err);
    CHECK(model->upload != NULL);
    o.tune = true;
    together(o, got, &preemptions);
    same(got, want, "weights that came late");
    CHECK(held.waited && held.compiled && !held.late);
    CHECK(model->upload == NULL && model->upload_seconds > 0);
    model_close(model);
    /* One that is closed while they travel. */
    held.compiled = true;
    CHECK_OK(weights_open(golden.dir, &w, &err), err);
    CHECK_OK(model_open_as(device, w, &(struct head_wish){.yes = -1, .no = -1, .early = true}, on_piece, &held, &model, &err), err);
    model_close(model);
    model = waited, device->jit = jit;
    jit_close(own);
}

/* The cache is in the type of the model's step, or e4m3. */
TEST(a_cache_of_another_type)
{
    struct engine *e = NULL;
    struct engine_options o = base();
    o.kv = DTYPE_F16;
    CHECK_INT(engine_open(model, tokenizer, &o, &e, &err), ROSE_UNSUPPORTED);
    CHECK(!e && !!strstr(err.message, "a cache of F16: this model computes in BF16 on the GPU"));
}

/* Requests with two long beginnings among them, whose common pages are read once or by each: log-probabilities differ by rounding, and tokens only
 * where two of them are as likely. */
TEST(common_pages_are_read_once)
{
    enum { COMMON = 100, TOKENS = 14 };
    static struct answer want[REQUESTS + 1], got[REQUESTS + 1];
    static struct job job[REQUESTS];
    struct engine_options o = {.context = 190, .max_sequences = REQUESTS, .step_tokens = 128, .depth = 2, .kv = ENGINE_KV, .share_bytes = SIZE_MAX};
    int compared = 0;
    state = 5;
    for (int j = 0; j < REQUESTS; j++) {
        job[j].prompt_count = COMMON + 1 + j;
        for (int i = 0; i < job[j].prompt_count; i++)
            job[j].prompt[i] = i < COMMON && j >= 2 ? job[j - 2].prompt[i] : 3 + (int32_t)rnd(VOCABULARY - 3);
        job[j].request = (struct rose_request){.max_tokens = TOKENS, .logprobs = 1, .prompt_logprobs = -1, .choices = 1, .user = (uint64_t)j,
                                               .sampling = {.top_p = 1, .repetition_penalty = 1, .ignore_eos = true}};
    }
    for (int run = 0; run < 2; run++) {
        struct answer *a = run ? got : want;
        struct engine *e = start(o);
        uint64_t id;
        for (int j = 0; j < REQUESTS; j++) CHECK_OK(engine_submit(e, &job[j].request, job[j].prompt, (size_t)job[j].prompt_count, &id, &err), err);
        wait_for(e, a, REQUESTS);
        check_pages(e);
        CHECK(run ? e->shared > 0 : e->shared == 0);
        engine_close(e);
        o.share_bytes = 1;
    }
    for (int j = 0; j < REQUESTS; j++) {
        CHECK_INT(got[j].count, TOKENS);
        for (int i = 0; i < TOKENS; i++, compared++) {
            CHECK(fabsf(got[j].logprobs[i] - want[j].logprobs[i]) < 0.05f);
            if (got[j].tokens[i] != want[j].tokens[i]) break;
        }
    }
    CHECK(compared > REQUESTS * TOKENS / 2);
}

#ifndef ENGINE_GPU
static struct simt_driver_counts counts_of(void)
{
    struct simt_driver_counts c = {0};
    void *library = dlopen(SIMT_DRIVER_DIR "/libsimt_fast.so", RTLD_NOW | RTLD_NOLOAD);
    simt_driver_counts_fn *count = NULL;
    if (library) *(void **)&count = dlsym(library, "simt_driver_counts");
    CHECK(count != NULL);
    if (count) count(&c);
    if (library) dlclose(library);
    return c;
}

/* While requests run: no copy at all, and a decode step is one graph and two launches (its inputs, its draws). */
TEST(what_the_loop_asks_of_the_driver)
{
    struct answer a[REQUESTS] = {0};
    struct rose_stats stats;
    uint64_t id;
    struct engine_options o = base();
    o.depth = 2;
    struct engine *e = start(o);
    struct rose_request r = {.max_tokens = 24, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1, .ignore_eos = true}};
    struct simt_driver_counts from = counts_of();
    for (int i = 0; i < 3; i++) {
        r.user = (uint64_t)i;
        CHECK_OK(engine_submit(e, &r, jobs[i].prompt, 4, &id, &err), err);
    }
    wait_for(e, a, 3);
    engine_stats(e, &stats);
    struct simt_driver_counts to = counts_of();
    uint64_t graphs = to.graph_launches - from.graph_launches;
    CHECK_INT(to.copies - from.copies, 0);
    CHECK(graphs >= 23 && graphs < stats.steps);
    CHECK(to.faults == from.faults);
    engine_close(e);
}

#endif

/* A kernel touches what it must not: every request ends with an error that names it, later ones are refused, nothing hangs. */
TEST(a_lost_device)
{
    struct rose_stats stats;
    struct rose_event events[8];
    uint64_t id;
    int finals = 0, taken = 0;
    struct engine_options o = base();
    o.depth = 2;
    struct engine *e = start(o);
    struct rose_request r = {.max_tokens = 24, .logprobs = -1, .prompt_logprobs = -1, .choices = 1, .sampling = {.top_p = 1, .repetition_penalty = 1, .ignore_eos = true}};
    for (int k = 0; k < 2; k++) {
        struct fetch_params *p = (struct fetch_params *)(uintptr_t)e->programs.fetch[k]->entries[0].launch.params;
        if (k == 1) p->segments = (const void *)(uintptr_t)0x1000;
    }
    for (int i = 0; i < 3; i++) {
        enum rose_status s = engine_submit(e, &r, jobs[i].prompt, 4, &id, &err); /* the first one's step may be over already */
        CHECK(s == ROSE_OK || (i > 0 && s == ROSE_DEVICE));
        taken += s == ROSE_OK;
    }
    while (finals < taken) {
        size_t n = events_read(&e->events, events, 8, ENGINE_WAIT_MS);
        CHECK(n > 0);
        if (!n) break;
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind != ROSE_EVENT_FINAL) continue;
            finals++;
            CHECK_INT(events[i].finish, ROSE_FINISH_ERROR);
            CHECK_INT(events[i].status, ROSE_DEVICE);
            CHECK(strstr(events[i].message, "fetch") != NULL);
        }
    }
    CHECK_INT(engine_submit(e, &r, jobs[0].prompt, 4, &id, &err), ROSE_DEVICE);
    engine_stats(e, &stats);
    CHECK(stats.lost);
    engine_close(e);
    close_all();
#ifdef ENGINE_GPU /* a GPU's driver gives a process no second context: a new process serves again */
    CHECK_INT(device_open(&(struct device_options){.kind = DEVICE_CUDA}, &device, &err), ROSE_DEVICE);
    char *again[] = {"gpu_engine", "the_same_with_two_in_flight", NULL};
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (!child) execv("/proc/self/exe", again), _exit(127);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
    device = NULL, model = NULL, tokenizer = NULL;
#else
    struct answer a[REQUESTS] = {0};
    open_all(1); /* a new device serves again */
    e = start(o);
    CHECK_OK(engine_submit(e, &r, jobs[0].prompt, 4, &id, &err), err);
    wait_for(e, a, 1);
    CHECK_INT(a[0].count, 24);
    engine_close(e);
#endif
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {CASE(the_same_with_two_in_flight), CASE(the_same_with_few_pages), CASE(weights_travel_while_kernels_compile), CASE(a_cache_of_another_type), CASE(common_pages_are_read_once),
#ifndef ENGINE_GPU
                                             CASE(what_the_loop_asks_of_the_driver),
#endif
                                             CASE(choices_share_their_prompt), CASE(prompt_log_probabilities), CASE(a_lost_device)};
    golden_open(&golden, "llama");
    golden_write_hf(&golden);
    open_all(1);
    make_jobs();
    int status = test_run_all(cases, ROSE_COUNT(cases), argc, argv);
    close_all();
    jit_close(jit);
    golden_close(&golden);
    return status;
}
