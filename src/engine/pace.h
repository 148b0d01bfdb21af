/* Pace: how many rows of prompts a step may take beside decode rows, so that the time between two tokens of a running request stays within a
 * stated multiple of what it is when all requests that are there decode and no prompt is read.
 *
 * Learnt from the engine's own steps: what a step of so many decode rows takes alone (by powers of two of their number), and what chunks of
 * prompts add, by tiles of rows (a product's cost goes up with every tile begun, so that a chunk fills up the last tile of the decode rows).
 *
 *     alone(d)  |████████|
 *     mixed     |████████|▒▒▒▒▒▒▒▒▒|   ▒ = added(tiles); the whole within stretch * alone(all), less a margin for steps that take longer than most
 *     alone(all)|██████████|
 *
 * That all requests count, not only those that decode already, keeps a queue of prompts from being read at the pace of the first few answers.
 * What is unknown or old is tried: alone(d) by a step without prompt rows, a larger chunk when the smaller one's time says that it should fit.
 */
#ifndef ROSE_ENGINE_PACE_H
#define ROSE_ENGINE_PACE_H

#include "base/status.h"

enum { PACE_TILE = 4, PACE_TILES = 64, PACE_BUCKETS = 13, PACE_SAMPLES = 5 }; /* buckets: 1, 2, 3..4, 5..8, ... 2049..4096 decode rows */

struct pace_figure {
    double last[PACE_SAMPLES]; /* seconds, a ring */
    double seconds;            /* their median: a step that the system interrupted does not count */
    uint64_t count, at;        /* how many there were; the step that measured it last */
    int32_t rows;              /* alone: decode rows then */
};

struct pace {
    double stretch;                       /* 0: no bound in time, `most` rows always */
    int32_t most;                         /* rows */
    struct pace_figure alone[PACE_BUCKETS];
    struct pace_figure added[PACE_TILES];   /* by tiles - 1 */
    struct pace_figure row;                 /* a row of a step of prompts alone */
    uint64_t steps;
};

void pace_open(struct pace *pace, double stretch, int32_t most);
/* A step has ended. */
void pace_observe(struct pace *pace, int32_t decode_rows, int32_t prefill_rows, double seconds);
/* Rows of prompts that the next step may take beside so many decode rows, when so many requests (these among them) run or wait: never less
 * than what fills a tile, else prompts would starve. 0: it shall decode alone, to be measured. */
int32_t pace_rows(const struct pace *pace, int32_t decode_rows, int32_t requests);

#endif
