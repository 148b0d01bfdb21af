/* Shares of a team of workers: every item of an open share is done exactly once, by its owner or by a helper, in every phase. */
#include "base/worker.h"

#include <sched.h>
#include <stdatomic.h>

#include "test.h"

enum { WORKERS = 5, ITEMS = 300, PHASES = 400 };

static struct {
    atomic_int done[WORKERS][ITEMS];
    atomic_long helped;
    atomic_int wrong;
    int phases;
} job;

static size_t items_of(int phase, int worker) { return (size_t)(phase * 37 + worker * 91) % (ITEMS + 1); }
static size_t grain_of(int phase) { return 1 + (size_t)phase % 7; }
static bool opens(int phase, int worker) { return (phase + worker) % 6 != 0; }

static void run(void *arg, struct worker *w)
{
    (void)arg;
    for (int phase = 0; phase < job.phases; phase++) {
        if (opens(phase, w->index)) worker_open(w);
        for (int i = 0; i < w->count; i++) {
            int of = (w->index + i) % w->count;
            size_t begin, end, total = items_of(phase, of);
            while (worker_take(w, of, total, grain_of(phase), &begin, &end)) {
                if (begin >= end || end > total || !opens(phase, of)) atomic_fetch_add(&job.wrong, 1);
                for (size_t k = begin; k < end; k++) atomic_fetch_add(&job.done[of][k], 1);
                if (of != w->index) atomic_fetch_add(&job.helped, (long)(end - begin));
            }
        }
        worker_barrier(w);
        for (size_t k = 0; k < ITEMS; k++) {
            int want = opens(phase, w->index) && k < items_of(phase, w->index);
            if (atomic_exchange(&job.done[w->index][k], 0) != want) atomic_fetch_add(&job.wrong, 1);
        }
        worker_barrier(w);
    }
}

TEST(shares_are_done_once)
{
    struct rose_error err = {0};
    for (int count = 1; count <= WORKERS; count++) {
        struct workers *team = NULL;
        CHECK_OK(workers_open(count, 0, false, &team, &err), err);
        job.phases = PHASES / count;
        for (int again = 0; again < 3; again++) workers_run(team, run, NULL);
        CHECK_INT(atomic_load(&job.wrong), 0);
        workers_close(team);
    }
}

/* One worker does nothing but open: what it has is done by the others. */
static void idle_owner(void *arg, struct worker *w)
{
    (void)arg;
    size_t begin, end;
    if (w->index == 0) worker_open(w);
    worker_barrier(w); /* closes the share again */
    if (worker_take(w, 0, ITEMS, 4, &begin, &end)) atomic_fetch_add(&job.wrong, 1);
    worker_barrier(w);
    if (w->index == 0) {
        worker_open(w);
        while (atomic_load(&job.helped) < ITEMS - 8) sched_yield();
    } else
        while (atomic_load(&job.helped) < ITEMS - 8)
            if (worker_take(w, 0, ITEMS, 4, &begin, &end)) atomic_fetch_add(&job.helped, (long)(end - begin));
}

/* Hundreds of threads on a few cores: whoever waits sleeps, and nobody passes a barrier before all have come. */
static void count_arrivals(void *arg, struct worker *w)
{
    atomic_int *arrived = arg;
    for (int phase = 1; phase <= job.phases; phase++) {
        atomic_fetch_add(arrived, 1);
        worker_barrier(w);
        if (atomic_load(arrived) != phase * w->count) atomic_fetch_add(&job.wrong, 1);
        worker_barrier(w);
    }
}

TEST(more_threads_than_cores_take_turns)
{
    struct rose_error err = {0};
    struct workers *team = NULL;
    atomic_int arrived = 0;
    CHECK_OK(workers_open(300, 0, false, &team, &err), err);
    job.phases = 40;
    workers_run(team, count_arrivals, &arrived);
    CHECK_INT(atomic_load(&arrived), 40 * 300);
    CHECK_INT(atomic_load(&job.wrong), 0);
    workers_close(team);
}

TEST(helpers_do_what_the_owner_does_not)
{
    struct rose_error err = {0};
    struct workers *team = NULL;
    CHECK_OK(workers_open(3, 0, false, &team, &err), err);
    atomic_store(&job.helped, 0);
    workers_run(team, idle_owner, NULL);
    CHECK(atomic_load(&job.helped) >= ITEMS - 8 && atomic_load(&job.helped) <= ITEMS);
    CHECK_INT(atomic_load(&job.wrong), 0);
    workers_close(team);
}

TEST_MAIN(CASE(shares_are_done_once), CASE(more_threads_than_cores_take_turns), CASE(helpers_do_what_the_owner_does_not))
