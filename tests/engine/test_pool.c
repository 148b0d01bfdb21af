/* The pool engine without a reference: turns between groups, priorities, budgets, cancels, deadlines, refusals, bits. */
#define _GNU_SOURCE /* mkdtemp */
#include <pthread.h>

#include "pool_golden.h"

/* --- the queue alone ------------------------------------------------------------------------------------------------------- */

static struct pool_request *item(uintptr_t i) { return (struct pool_request *)(i + 1); }
static uintptr_t number(const struct pool_request *r) { return (uintptr_t)r - 1; }

TEST(queue_keeps_order_within_a_group)
{
    struct pool_queue q = {0};
    for (uintptr_t i = 0; i < 1000; i++) CHECK(pool_queue_add(&q, item(i), 0, 7, 10));
    for (uintptr_t i = 0; i < 1000; i++) CHECK_INT(number(pool_queue_take(&q)), i);
    CHECK(!pool_queue_take(&q) && !pool_queue_first(&q));
    pool_queue_free(&q);
}

/* A group of a thousand and one of ten that arrives behind it: the ten come out among the first twenty-odd. */
TEST(groups_take_turns)
{
    struct pool_queue q = {0};
    for (uintptr_t i = 0; i < 1000; i++) pool_queue_add(&q, item(i), 0, 1, 16);
    for (uintptr_t i = 0; i < 5; i++) CHECK_INT(number(pool_queue_take(&q)), i);
    for (uintptr_t i = 2000; i < 2010; i++) pool_queue_add(&q, item(i), 0, 2, 16);
    pool_queue_add(&q, item(3000), 0, 0, 500); /* a single one is not behind anybody's batch */
    int last = 0, single = 0;
    for (int n = 1; n <= 1006; n++) {
        uintptr_t i = number(pool_queue_take(&q));
        if (i >= 2000 && i < 2010) last = n;
        if (i == 3000) single = n;
    }
    CHECK(last <= 22);
    CHECK(single > 0 && single <= 3);
    CHECK(!pool_queue_take(&q));
    pool_queue_free(&q);
}

/* Long texts cost their group more: after the same time both have had about as many tokens. */
TEST(turns_are_counted_in_tokens)
{
    struct pool_queue q = {0};
    for (uintptr_t i = 0; i < 400; i++) pool_queue_add(&q, item(i), 0, 1, 100);
    for (uintptr_t i = 1000; i < 1400; i++) pool_queue_add(&q, item(i), 0, 2, 10);
    int64_t tokens[2] = {0};
    for (int n = 0; n < 220; n++) {
        uintptr_t i = number(pool_queue_take(&q));
        tokens[i >= 1000] += i >= 1000 ? 10 : 100;
    }
    CHECK(llabs(tokens[0] - tokens[1]) <= 200);
    pool_queue_free(&q);
}

TEST(priorities_go_first)
{
    struct pool_queue q = {0};
    for (uintptr_t i = 0; i < 10; i++) pool_queue_add(&q, item(i), 5, 1, 1);
    for (uintptr_t i = 10; i < 20; i++) pool_queue_add(&q, item(i), -5, 2, 1);
    for (uintptr_t i = 0; i < 10; i++) CHECK_INT(number(pool_queue_take(&q)), i + 10);
    for (uintptr_t i = 0; i < 10; i++) CHECK_INT(number(pool_queue_take(&q)), i);
    pool_queue_free(&q);
}

static bool is_odd(void *arg, struct pool_request *r) { return (void)arg, number(r) % 2; }
static void count(void *arg, struct pool_request *r) { (void)r, ++*(int *)arg; }

TEST(removal_and_many_groups)
{
    struct pool_queue q = {0};
    int removed = 0;
    for (uintptr_t i = 0; i < 5000; i++) CHECK(pool_queue_add(&q, item(i), 0, i % 997 + 1, 3));
    pool_queue_remove(&q, is_odd, &removed, count);
    CHECK_INT(removed, 2500);
    bool seen[5000] = {false};
    for (int i = 0; i < 2500; i++) {
        uintptr_t n = number(pool_queue_take(&q));
        CHECK(n % 2 == 0 && !seen[n]);
        seen[n] = true;
    }
    CHECK_INT(q.count, 0);
    for (uintptr_t i = 0; i < 100000; i++) { /* groups that come and go leave nothing behind */
        pool_queue_add(&q, item(i), 0, i + 1, 1);
        pool_queue_take(&q);
        pool_queue_add(&q, item(i), 0, 0, 1);
        pool_queue_take(&q);
    }
    CHECK(q.groups_capacity <= 1 << 18);
    pool_queue_free(&q);
}

/* --- the engine ---------------------------------------------------------------------------------------------------------------- */

static struct golden g;
static struct pool_run run;

static void open_bert(int threads, struct pool_options o)
{
    struct rose_error err = {0};
    golden_open(&g, "embed_bert");
    pool_golden_write(&g);
    CHECK_OK(pool_run_open(&run, g.dir, threads, &o, &err), err);
    if (!run.pool) exit(1);
}

static void close_bert(void)
{
    pool_run_close(&run);
    golden_close(&g);
}

static enum rose_status submit(int n, uint64_t user, uint64_t group, int priority, int64_t deadline_ms, uint64_t *id, struct rose_error *err)
{
    int32_t tokens[100];
    for (int i = 0; i < n && i < 100; i++) tokens[i] = 3 + (int32_t)(user + (uint64_t)i * 7) % 110;
    struct rose_request r = {.user = user, .group = group, .priority = priority, .deadline_ms = deadline_ms};
    struct pool_wish w = {.pooling = OP_POOL_MEAN, .normalize = true};
    return pool_submit(run.pool, &r, &w, tokens, NULL, (size_t)n, id, err);
}

TEST(batches_keep_their_budget)
{
    struct rose_error err = {0};
    struct rose_event e[16];
    struct rose_step steps[256];
    struct rose_stats stats;
    uint64_t id;
    open_bert(2, (struct pool_options){.step_tokens = 64, .max_sequences = 8});
    for (uint64_t i = 0; i < 300; i++) CHECK_OK(submit(1 + (int)(i % 90), i, 1, 0, 0, &id, &err), err);
    size_t got = 0;
    while (got < 300) {
        size_t n = events_read(&run.pool->events, e, 16, -1);
        for (size_t i = 0; i < n; i++) CHECK_INT(e[i].finish, ROSE_FINISH_STOP);
        got += n;
    }
    size_t n = pool_steps(run.pool, 0, steps, 256);
    CHECK(n > 10);
    for (size_t i = 0; i < n; i++) CHECK(steps[i].prefill_rows <= 90); /* a longer one than the budget is alone */
    pool_stats(run.pool, &stats);
    CHECK_INT(stats.requests, 300);
    CHECK_INT(stats.finished, 300);
    CHECK_INT(stats.waiting + stats.running, 0);
    CHECK_INT(stats.end_to_end.total, 300);
    close_bert();
}

TEST(refusals)
{
    struct rose_error err = {0};
    struct rose_request r = {0};
    struct pool_wish w = {.pooling = OP_POOL_MEAN};
    uint64_t id;
    int32_t bad[2] = {5, 120}, many[101] = {0};
    open_bert(1, (struct pool_options){.max_waiting = 3});
    CHECK_INT(pool_submit(run.pool, &r, &w, bad, NULL, 0, &id, &err), ROSE_INVALID);
    CHECK_INT(pool_submit(run.pool, &r, &w, bad, NULL, 2, &id, &err), ROSE_INVALID);
    CHECK(strstr(err.message, "120") && strstr(err.message, "119"));
    bad[1] = -1;
    CHECK_INT(pool_submit(run.pool, &r, &w, bad, NULL, 2, &id, &err), ROSE_INVALID);
    CHECK_INT(pool_submit(run.pool, &r, &w, many, NULL, 101, &id, &err), ROSE_LIMIT);
    CHECK(strstr(err.message, "101") && strstr(err.message, "100"));
    w.pooling = (enum op_pooling)99;
    CHECK_INT(pool_submit(run.pool, &r, &w, many, NULL, 10, &id, &err), ROSE_INVALID);
    int busy = 0, taken = 0;
    for (int i = 0; i < 2000 && !busy; i++) {
        enum rose_status s = submit(90, (uint64_t)i, 0, 0, 0, &id, &err);
        busy += s == ROSE_BUSY, taken += s == ROSE_OK;
    }
    CHECK(busy && strstr(err.message, "3 texts"));
    pool_drain(run.pool);
    CHECK_INT(submit(5, 0, 0, 0, 0, &id, &err), ROSE_BUSY);
    struct rose_event e;
    for (int i = 0; i < taken; i++) CHECK_INT(events_read(&run.pool->events, &e, 1, -1), 1);
    struct pool *other;
    struct pool_options o = {.context = 101};
    CHECK_INT(pool_open(run.model, &o, &other, &err), ROSE_LIMIT);
    o = (struct pool_options){.step_tokens = -1};
    CHECK_INT(pool_open(run.model, &o, &other, &err), ROSE_INVALID);
    close_bert();
}

/* Every id ends exactly once, whether it was answered, cancelled or too late. */
TEST(cancels_and_deadlines)
{
    enum { N = 400 };
    struct rose_error err = {0};
    struct rose_event e;
    uint64_t ids[N];
    int cancelled = 0, late = 0;
    open_bert(1, (struct pool_options){.step_tokens = 128});
    /* The pool may have been faster than all cancels, or than all deadlines: then again. */
    for (int round = 0; round < 50 && !(cancelled && late); round++) {
        int ends[N] = {0}, kinds[8] = {0};
        for (uint64_t i = 0; i < N; i++) CHECK_OK(submit(90, i, 0, 0, i % 3 == 1 ? 1 : 0, &ids[i], &err), err);
        for (uint64_t i = N; i-- > 0;)
            if (i % 3 == 0) pool_cancel(run.pool, ids[i]);
        pool_cancel(run.pool, 123456789);
        for (int i = 0; i < N; i++) {
            CHECK_INT(events_read(&run.pool->events, &e, 1, 120000), 1);
            ends[e.user]++;
            kinds[e.finish]++;
            CHECK(e.finish == ROSE_FINISH_STOP ? e.rows == 1 && e.cols == 48 : !e.values);
            if (e.finish == ROSE_FINISH_CANCELLED) CHECK_INT(e.user % 3, 0);
            if (e.finish == ROSE_FINISH_DEADLINE) CHECK_INT(e.user % 3, 1);
        }
        for (int i = 0; i < N; i++) CHECK_INT(ends[i], 1);
        CHECK(kinds[ROSE_FINISH_STOP] >= N / 3);
        CHECK_INT(kinds[ROSE_FINISH_ERROR], 0);
        CHECK_INT(events_read(&run.pool->events, &e, 1, 20), 0);
        cancelled += kinds[ROSE_FINISH_CANCELLED], late += kinds[ROSE_FINISH_DEADLINE];
    }
    CHECK(cancelled > 0 && late > 0);
    close_bert();
}

/* Closing in the middle of much work neither hangs nor leaks. */
TEST(close_with_work)
{
    struct rose_error err = {0};
    uint64_t id;
    open_bert(2, (struct pool_options){0});
    for (uint64_t i = 0; i < 2000; i++) CHECK_OK(submit(50, i, i % 5, 0, 0, &id, &err), err);
    close_bert();
}

static void *submit_many(void *arg)
{
    struct rose_error err = {0};
    uint64_t id, from = *(uint64_t *)arg;
    for (uint64_t i = 0; i < 200; i++)
        if (submit(1 + (int)(i % 60), from + i, from, 0, 0, &id, &err) != ROSE_OK) return arg;
        else if (i % 7 == 3) pool_cancel(run.pool, id);
    return NULL;
}

TEST(many_threads_submit)
{
    pthread_t threads[4];
    uint64_t from[4] = {1000, 2000, 3000, 4000};
    struct rose_event e[32];
    open_bert(2, (struct pool_options){0});
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, submit_many, &from[i]);
    for (size_t got = 0; got < 800;) {
        size_t n = events_read(&run.pool->events, e, 32, 120000);
        CHECK(n > 0);
        if (!n) break;
        got += n;
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
    close_bert();
}

/* The bits of a text: the same for any number of threads; with `deterministic` also in any company. */
TEST(bits)
{
    enum { N = 60 };
    static float first[N][48];
    struct rose_error err = {0};
    struct rose_event e;
    uint64_t id;
    for (int pass = 0; pass < 5; pass++) {
        static const int threads[] = {1, 2, 3, 1, 1}, budget[] = {300, 300, 300, 40, 1000};
        bool deterministic = pass >= 3 || pass == 0;
        open_bert(threads[pass], (struct pool_options){.step_tokens = pass < 3 ? 1 : budget[pass], .deterministic = deterministic});
        for (uint64_t i = 0; i < N; i++) CHECK_OK(submit(1 + (int)(i * 13 % 90), i, 1, 0, 0, &id, &err), err);
        for (int i = 0; i < N; i++) {
            CHECK_INT(events_read(&run.pool->events, &e, 1, -1), 1);
            CHECK_INT(e.cols, 48);
            if (pass == 0) memcpy(first[e.user], e.values, sizeof first[0]);
            else if (deterministic) CHECK(!memcmp(first[e.user], e.values, sizeof first[0]));
            else CHECK_NEAR(golden_distance(first[e.user], e.values, 48), 0, 1e-2); /* bfloat16 products of many rows */
        }
        close_bert();
    }
}

TEST_MAIN(CASE(queue_keeps_order_within_a_group), CASE(groups_take_turns), CASE(turns_are_counted_in_tokens), CASE(priorities_go_first), CASE(removal_and_many_groups),
          CASE(batches_keep_their_budget), CASE(refusals), CASE(cancels_and_deadlines), CASE(close_with_work), CASE(many_threads_submit), CASE(bits))
