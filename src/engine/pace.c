#include "engine/pace.h"

/* A decode step's time is measured again after so many steps. */
enum { OLD_STEPS = 64, WHOLE_ROWS = 32 };
/* The planned part of what a bound leaves: at first, at least (a machine that interrupts steps does so whatever the chunk), at most; what a
 * late step takes of it; and how many steps may be late, half of what a 99th percentile leaves. */
#define PLANNED 0.6
#define PLANNED_LEAST 0.25
#define PLANNED_MOST 0.8
#define PLANNED_STEP 0.05
#define LATE 0.005
/* From this part of the bound on a step counts as late: its readers see it later than the engine does. */
#define LATE_FROM 0.95
/* A row's running mean: weight of a new sample, and how far from the mean it may be. */
#define ROW_WEIGHT 0.125
#define ROW_RANGE 2.0

void pace_open(struct pace *p, double stretch, int32_t most) { *p = (struct pace){.stretch = stretch, .most = most, .planned = PLANNED}; }

static int bucket_of(int32_t decode_rows)
{
    int b = 0;
    while (b < PACE_BUCKETS - 1 && decode_rows > 1 << b) b++;
    return b;
}

/* The largest chunk of at most so many rows that fills up the last tile of the decode rows: never less than half a tile. Large ones fill tiles of
 * twice as many, so that two workers have whole ones. */
static int32_t whole_tiles(double rows, int32_t decode_rows, int32_t most)
{
    int32_t n = rows < most ? (int32_t)rows : most, tile = n >= 4 * PACE_TILE ? 2 * PACE_TILE : PACE_TILE, left = tile - decode_rows % tile;
    if (left < PACE_TILE / 2) left += tile;
    return ROSE_MIN(n > left ? left + (n - left) / tile * tile : left, most);
}

static bool known(const struct pace *p, const struct pace_figure *f, uint64_t samples, uint64_t age) { return f->count >= samples && p->steps - f->at < age; }

static void note(const struct pace *p, struct pace_figure *f, double seconds)
{
    double sorted[PACE_SAMPLES];
    f->last[f->count++ % PACE_SAMPLES] = seconds;
    f->at = p->steps;
    int n = 0;
    for (int have = (int)ROSE_MIN(f->count, PACE_SAMPLES); n < have; n++) {
        int at = n;
        for (; at > 0 && sorted[at - 1] > f->last[n]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = f->last[n];
    }
    f->seconds = sorted[(n - 1) / 2];
}

/* A decode step of any number of rows, from the next one that was measured: each row more costs what a prompt's does, alone or beside others (either
 * has its part of what a step costs whatever its rows). */
static double alone_of(const struct pace *p, int32_t rows)
{
    int b = bucket_of(rows);
    while (b > 0 && !p->alone[b].count) b--;
    while (b < PACE_BUCKETS - 1 && !p->alone[b].count) b++;
    const struct pace_figure *f = &p->alone[b];
    double row = p->row_s > 0 && p->row_s < p->row.seconds ? p->row_s : p->row.seconds, seconds = f->seconds + (rows - f->rows) * row;
    return rows < f->rows ? ROSE_MAX(seconds, f->seconds * rows / f->rows) : seconds;
}

static double within(double value, double least, double most) { return ROSE_MIN(ROSE_MAX(value, least), most); }

/* A step with prompt rows: what each of them took, and whether it was late. */
static void observe_mixed(struct pace *p, int32_t decode_rows, int32_t prefill_rows, double seconds)
{
    if (p->bound_s > 0) p->planned = within(p->planned + PLANNED_STEP * (LATE - (seconds > LATE_FROM * p->bound_s)), PLANNED_LEAST, PLANNED_MOST);
    /* The last piece of a prompt may be of any size, and costs a row more than a whole chunk does. */
    if (2 * prefill_rows < p->granted || !p->alone[bucket_of(decode_rows)].count) return;
    double sample = ROSE_MAX(seconds - alone_of(p, decode_rows), seconds * 0.05) / prefill_rows;
    if (p->row_s <= 0) p->row_s = sample;
    p->row_s += ROW_WEIGHT * (within(sample, p->row_s / ROW_RANGE, p->row_s * ROW_RANGE) - p->row_s);
}

void pace_observe(struct pace *p, int32_t decode_rows, int32_t prefill_rows, double seconds)
{
    p->steps++;
    if (seconds <= 0) return;
    if (!decode_rows) {
        if (prefill_rows >= WHOLE_ROWS) note(p, &p->row, seconds / prefill_rows);
        return;
    }
    if (prefill_rows) {
        observe_mixed(p, decode_rows, prefill_rows, seconds);
        return;
    }
    struct pace_figure *alone = &p->alone[bucket_of(decode_rows)];
    note(p, alone, seconds);
    alone->rows = decode_rows;
}

int32_t pace_rows(struct pace *p, int32_t decode_rows, int32_t requests)
{
    p->bound_s = 0;
    if (p->stretch <= 0 || decode_rows <= 0) return p->granted = p->most;
    if (!known(p, &p->alone[bucket_of(decode_rows)], PACE_SAMPLES / 2 + 1, OLD_STEPS)) return p->granted = 0;
    double mine = alone_of(p, decode_rows), all = ROSE_MAX(alone_of(p, ROSE_MAX(requests, decode_rows)), mine);
    double room = all * (1 + ROSE_MAX(p->stretch - 1, 0) * p->planned) - mine, row = p->row_s > 0 ? p->row_s : 2 * p->row.seconds;
    p->bound_s = ROSE_MAX(p->stretch, 1) * all;
    return p->granted = whole_tiles(row > 0 ? room / row : 0, decode_rows, p->most);
}
