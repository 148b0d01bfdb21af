/* Work beside the loop: what goes first, what is stopped, what is told. The work itself is a thread that waits for the test. */
#define _GNU_SOURCE
#include <poll.h>
#include <time.h>

#include "base/stop.h"
#include "server/beside.h"
#include "test.h"

static struct model model = {.name = "m"}, other = {.name = "o"};
static struct server_options options;
static struct models models;

/* A piece of work that lasts until it is let go or stopped. */
struct piece {
    atomic_bool began, go, stopped;
    int order, released, told;
    enum rose_status status;
    char message[200];
};
static atomic_int turns;

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

static enum rose_status work(void *state, const struct rose_engine *engine, struct rose_error *err)
{
    struct piece *p = state;
    (void)engine;
    p->order = atomic_fetch_add(&turns, 1);
    atomic_store(&p->began, true);
    while (!atomic_load(&p->go) && !stop_asked()) nap();
    atomic_store(&p->stopped, stop_asked());
    return stop_asked() ? status_set(err, ROSE_CANCELLED, "stopped") : ROSE_OK;
}

static void release(void *state) { ((struct piece *)state)->released++; }

static void done(void *user, int part, const struct beside_result *result)
{
    struct piece *p = user;
    CHECK_INT(part, 0);
    CHECK_INT(p->released, 0);
    p->told++;
    p->status = result->status;
    snprintf(p->message, sizeof p->message, "%.199s", result->err->message);
}

static struct beside_job *begin(struct model *m, size_t bytes, struct piece *p)
{
    struct beside_job *j = beside_do(&models, m, bytes, work, p, release, done, p);
    CHECK(j != NULL);
    return j;
}

static void until(const atomic_bool *flag)
{
    while (!atomic_load(flag)) nap();
}

static void until_released(const struct piece *p)
{
    while (!p->released) {
        poll(&(struct pollfd){beside_fd(models.beside), POLLIN, 0}, 1, 1000);
        beside_run(models.beside);
    }
}

static void open_one(void)
{
    struct rose_error err = {0};
    models = (struct models){.models = &model, .count = 1, .slots_free = UINT32_MAX, .options = &options, .epoll_fd = -1};
    model.state = other.state = MODEL_READY;
    CHECK_OK(beside_open(&models.beside, &err), err);
}

static void close_all(void)
{
    beside_close(models.beside);
    CHECK_INT(models.handles_open, 0);
    free(models.slots);
}

TEST(short_ones_do_not_wait)
{
    struct piece longest = {0}, longer = {0}, middle = {0}, small = {0};
    open_one();
    begin(&model, (size_t)1 << 30, &longest);
    until(&longest.began);
    begin(&model, (size_t)1 << 31, &longer);
    begin(&model, (size_t)1 << 20, &middle); /* came later, is a thousandth */
    begin(&other, 20000, &small);
    atomic_store(&small.go, true);
    until_released(&small);
    CHECK(small.told == 1 && small.status == ROSE_OK && !longest.told);
    atomic_store(&middle.go, true);
    atomic_store(&longer.go, true);
    atomic_store(&longest.go, true);
    until_released(&longer);
    CHECK(middle.released == 1 && middle.order < longer.order);
    close_all();
}

TEST(nobody_waits)
{
    struct piece running = {0}, waiting = {0}, next = {0};
    open_one();
    struct beside_job *first = begin(&model, 20000, &running), *second = begin(&model, 20000, &waiting);
    until(&running.began);
    beside_drop(second);
    beside_drop(first);
    begin(&model, 20000, &next);
    atomic_store(&next.go, true);
    until_released(&next);
    CHECK(running.stopped && running.released == 1 && !running.told);
    CHECK(!waiting.began && waiting.released == 1 && !waiting.told);
    CHECK_INT(next.status, ROSE_OK);
    close_all();
}

TEST(a_model_leaves)
{
    struct piece running = {0}, waiting = {0}, others = {0};
    open_one();
    begin(&model, 20000, &running);
    begin(&model, 20000, &waiting);
    begin(&other, 20000, &others);
    until(&running.began);
    model.state = MODEL_UNLOADING;
    beside_leave(models.beside, &model);
    atomic_store(&others.go, true);
    until_released(&others);
    CHECK(running.told == 1 && running.status == ROSE_CANCELLED && strstr(running.message, "\"m\" is being unloaded"));
    CHECK(waiting.told == 1 && waiting.status == ROSE_CANCELLED && !waiting.began && strstr(waiting.message, "\"m\" is being unloaded"));
    CHECK_INT(others.status, ROSE_OK);
    close_all();
}

TEST(closing_stops_what_runs)
{
    struct piece running = {0}, waiting = {0}, longest = {0};
    open_one();
    begin(&model, 20000, &running);
    begin(&model, 20000, &waiting);
    begin(&model, 1 << 20, &longest);
    until(&running.began);
    until(&longest.began);
    close_all();
    CHECK(running.stopped && longest.stopped && !waiting.began);
    CHECK(running.released + waiting.released + longest.released == 3 && !running.told && !waiting.told && !longest.told);
}

TEST_MAIN(CASE(short_ones_do_not_wait), CASE(nobody_waits), CASE(a_model_leaves), CASE(closing_stops_what_runs))
