#include "engine/pace.h"

/* A decode step's time is measured again after so many steps; a chunk that was too large is tried again after so many, rarely enough to be no
 * part of what a 99th percentile sees. */
enum { OLD_STEPS = 64, TRY_STEPS = 1024, WHOLE_ROWS = 32 };
/* Of the time a bound leaves for prompts, the part that is planned: steps differ from their mean, and the bound is meant for nearly all of them. */
#define PLANNED 0.6

void pace_open(struct pace *p, double stretch, int32_t most) { *p = (struct pace){.stretch = stretch, .most = most}; }

static int bucket_of(int32_t decode_rows)
{
    int b = 0;
    while (b < PACE_BUCKETS - 1 && decode_rows > 1 << b) b++;
    return b;
}

/* Rows of a chunk of so many tiles: the first one is what the decode rows leave of theirs, if that is half a tile or more. */
static int32_t rows_of(int32_t tiles, int32_t decode_rows)
{
    int32_t left = PACE_TILE - decode_rows % PACE_TILE;
    return left >= PACE_TILE / 2 ? left + (tiles - 1) * PACE_TILE : left + tiles * PACE_TILE;
}

static int32_t tiles_of(int32_t rows, int32_t decode_rows)
{
    int32_t tiles = 1;
    while (tiles < PACE_TILES && rows_of(tiles, decode_rows) < rows) tiles++;
    return tiles;
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

/* A decode step of any number of rows, from the next one that was measured: each row more costs what a prompt's does. */
static double alone_of(const struct pace *p, int32_t rows)
{
    int b = bucket_of(rows);
    while (b > 0 && !p->alone[b].count) b--;
    while (b < PACE_BUCKETS - 1 && !p->alone[b].count) b++;
    const struct pace_figure *f = &p->alone[b];
    double seconds = f->seconds + (rows - f->rows) * p->row.seconds;
    return rows < f->rows ? ROSE_MAX(seconds, f->seconds * rows / f->rows) : seconds;
}

void pace_observe(struct pace *p, int32_t decode_rows, int32_t prefill_rows, double seconds)
{
    p->steps++;
    if (seconds <= 0) return;
    if (!decode_rows) {
        if (prefill_rows >= WHOLE_ROWS) note(p, &p->row, seconds / prefill_rows);
        return;
    }
    struct pace_figure *alone = &p->alone[bucket_of(decode_rows)];
    if (!prefill_rows) {
        note(p, alone, seconds);
        alone->rows = decode_rows;
        return;
    }
    /* The last piece of a prompt may be of any size: only whole chunks tell what one costs. */
    int32_t tiles = tiles_of(prefill_rows, decode_rows);
    if (alone->count && rows_of(tiles, decode_rows) == prefill_rows) note(p, &p->added[tiles - 1], ROSE_MAX(seconds - alone_of(p, decode_rows), seconds * 0.05));
}

int32_t pace_rows(const struct pace *p, int32_t decode_rows, int32_t requests)
{
    if (p->stretch <= 0 || decode_rows <= 0) return p->most;
    const struct pace_figure *alone = &p->alone[bucket_of(decode_rows)];
    if (!known(p, alone, PACE_SAMPLES / 2 + 1, OLD_STEPS)) return 0;
    double mine = alone_of(p, decode_rows), all = ROSE_MAX(alone_of(p, ROSE_MAX(requests, decode_rows)), mine), tile_s = 0;
    double room = all * (1 + ROSE_MAX(p->stretch - 1, 0) * PLANNED) - mine;
    int32_t tiles = 1;
    /* From small to large; where nothing is sure, tiles cost what they did in the largest chunk that is. */
    for (int32_t t = 1; t <= PACE_TILES && rows_of(t, decode_rows) <= p->most; t++) {
        const struct pace_figure *f = &p->added[t - 1];
        bool sure = known(p, f, PACE_SAMPLES / 2 + 1, TRY_STEPS); /* a late step must not rule a chunk out */
        if (sure) tile_s = f->seconds / t;
        if (tile_s <= 0 || tile_s * t > room) continue;
        tiles = t;
        if (!sure) break; /* one step further at a time */
    }
    return ROSE_MIN(rows_of(tiles, decode_rows), p->most);
}
