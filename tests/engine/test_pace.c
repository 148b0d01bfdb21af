/* The pace of prompts beside answers, on simulated machines: a step costs what its rows cost, by tiles, and now and then the system interrupts. */
#include "engine/pace.h"

#include <stdlib.h>

#include "test.h"

struct machine {
    double fixed_s, row_s, tile_s; /* a step, each row, each tile of 8 rows begun */
    double interrupted;            /* share of steps that take three times as long */
};

static uint64_t state;
static double uniform(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(state >> 11) * 0x1p-53;
}

static double step(const struct machine *m, int rows)
{
    double s = m->fixed_s + m->row_s * rows + m->tile_s * ((rows + 7) / 8);
    s *= 0.95 + 0.1 * uniform();
    return uniform() < m->interrupted ? 3 * s : s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct outcome {
    double p99_s, rows_a_step; /* of steps that were to have prompt rows */
    int alone, longest_alone;  /* steps without */
};

/* `steps` steps with `decoding` answers under way and prompts waiting without end. */
static struct outcome run(struct pace *p, const struct machine *m, int decoding, int requests, int steps)
{
    struct outcome o = {0};
    double *took = calloc((size_t)steps, sizeof *took), rows = 0;
    int row = 0;
    CHECK(took != NULL);
    for (int i = 0; took && i < steps; i++) {
        int n = pace_rows(p, decoding, requests);
        took[i] = step(m, decoding + n);
        pace_observe(p, decoding, n, took[i]);
        rows += n;
        row = n ? 0 : row + 1;
        o.alone += !n;
        o.longest_alone = ROSE_MAX(o.longest_alone, row);
    }
    qsort(took, (size_t)steps, sizeof *took, by_value);
    o.p99_s = took[steps * 99 / 100];
    o.rows_a_step = rows / steps;
    free(took);
    return o;
}

static double alone(const struct machine *m, int rows) { return m->fixed_s + m->row_s * rows + m->tile_s * ((rows + 7) / 8); }

static const struct machine cpu = {.fixed_s = 3e-3, .row_s = 0.2e-3, .tile_s = 1.5e-3};

TEST(steps_stay_within_the_bound)
{
    for (int decoding = 1; decoding <= 64; decoding *= 2)
        for (double stretch = 1.5; stretch <= 4; stretch *= 1.6) {
            struct pace p;
            state = (uint64_t)decoding;
            pace_open(&p, stretch, 128);
            for (int i = 0; i < 4; i++) pace_observe(&p, 0, 128, step(&cpu, 128));
            struct outcome o = run(&p, &cpu, decoding, decoding + 1, 2000);
            /* The least chunk may cost more than the bound leaves: prompts must not starve. */
            double least = alone(&cpu, decoding + PACE_TILE + PACE_TILE / 2) * 1.05;

            CHECK(o.p99_s <= ROSE_MAX(stretch * alone(&cpu, decoding + 1), least));
            CHECK(o.rows_a_step >= PACE_TILE / 2);
            CHECK(o.longest_alone <= PACE_SAMPLES);
            CHECK(o.alone < 2000 / 32);
        }
}

TEST(late_steps_do_not_mislead)
{
    struct machine noisy = cpu;
    struct pace p;
    noisy.interrupted = 0.08;
    state = 5;
    pace_open(&p, 2, 128);
    struct outcome o = run(&p, &noisy, 8, 9, 4000);
    /* What is not interrupted itself stays within: planned for the plain machine. */
    int n = 0;
    for (int i = 0; i < 200; i++) {
        int rows = pace_rows(&p, 8, 9);
        n += rows && alone(&cpu, 8 + rows) <= 2 * alone(&cpu, 9);
        pace_observe(&p, 8, rows, step(&noisy, 8 + rows));
    }
    CHECK(n >= 180);
    CHECK(o.rows_a_step >= PACE_TILE / 2);
}

TEST(follows_a_machine_that_changes)
{
    struct machine slow = {.fixed_s = 6e-3, .row_s = 1.2e-3, .tile_s = 9e-3};
    struct pace p;
    state = 9;
    pace_open(&p, 3, 128);
    struct outcome before = run(&p, &cpu, 16, 17, 1000);
    run(&p, &slow, 16, 17, 500); /* rows cost six times as much, steps twice: fewer of them */
    struct outcome after = run(&p, &slow, 16, 17, 1000);
    CHECK(after.rows_a_step < before.rows_a_step);
    CHECK(after.p99_s <= 3 * alone(&slow, 17));
    run(&p, &cpu, 16, 17, 3000);
    struct outcome again = run(&p, &cpu, 16, 17, 1000);
    CHECK(again.rows_a_step > after.rows_a_step);
}

/* Chunks that were late when they were first tried are tried again soon. */
TEST(bad_luck_is_forgotten)
{
    struct machine unlucky = cpu;
    struct pace p, lucky;
    unlucky.interrupted = 1;
    state = 7;
    pace_open(&lucky, 2, 128);
    pace_open(&p, 2, 128);
    for (int i = 0; i < PACE_SAMPLES; i++) pace_observe(&lucky, 8, 0, step(&cpu, 8)), pace_observe(&p, 8, 0, step(&cpu, 8));
    run(&p, &unlucky, 8, 9, 20);
    run(&p, &cpu, 8, 9, 60);
    struct outcome a = run(&lucky, &cpu, 8, 9, 300), b = run(&p, &cpu, 8, 9, 300);
    CHECK(2 * b.rows_a_step >= a.rows_a_step);
}

/* Few answers and many prompts: the bound is that of all of them, else the queue would be read at the pace of the first few answers. */
TEST(a_queue_is_read_fast)
{
    struct pace few, many;
    state = 3;
    pace_open(&few, 2, 128);
    pace_open(&many, 2, 128);
    for (int i = 0; i < 4; i++) pace_observe(&few, 0, 128, step(&cpu, 128)), pace_observe(&many, 0, 128, step(&cpu, 128));
    struct outcome a = run(&few, &cpu, 4, 5, 1000), b = run(&many, &cpu, 4, 64, 1000);
    CHECK(b.rows_a_step > 4 * a.rows_a_step);
    CHECK(b.p99_s <= 2 * alone(&cpu, 64));
}

TEST(without_a_bound)
{
    struct pace p;
    pace_open(&p, 0, 100);
    CHECK_INT(pace_rows(&p, 8, 9), 100);
    pace_open(&p, 2, 3); /* no more than there may be, however few */
    for (int i = 0; i < PACE_SAMPLES; i++) pace_observe(&p, 8, 0, 0.01);
    CHECK_INT(pace_rows(&p, 8, 9), 3);
    CHECK_INT(pace_rows(&p, 0, 9), 3);
    CHECK_INT(pace_rows(&p, 1, 1), 0); /* not known yet */
    for (int i = 0; i < 1000; i++) pace_observe(&p, i % 5000, (i * 7) % 600, i % 3 ? 0.01 : 0); /* any figures, also none */
    CHECK(pace_rows(&p, 4096, 4096) >= 0 && pace_rows(&p, 1, 1 << 20) >= 0);
}

TEST_MAIN(CASE(steps_stay_within_the_bound), CASE(late_steps_do_not_mislead), CASE(follows_a_machine_that_changes), CASE(bad_luck_is_forgotten), CASE(a_queue_is_read_fast), CASE(without_a_bound))
