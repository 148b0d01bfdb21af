/* Pace: how many rows of prompts a step may take beside decode rows, so that the time between two tokens of a running request stays within a
 * stated multiple of what it is when all requests that are there decode and no prompt is read.
 *
 * Learnt from the engine's own steps: what a step of so many decode rows takes alone (by powers of two of their number), and what a row of a
 * prompt adds to it, a running mean of what chunks of about the present size added:
 *
 *     alone(d)  |████████|
 *     mixed     |████████|▒▒▒▒▒▒▒▒▒|         ▒ = rows * row_s
 *     alone(all)|██████████|
 *     room               |~~~~~~~~~|......|  ~ = the planned part of what the bound, stretch * alone(all), leaves
 *
 * Steps differ from their mean, so that not all of what the bound leaves is planned: the part shrinks with every step beyond the bound and
 * grows with the others, so that LATE of them are beyond it. A mean that follows large and small samples alike, each held to twice and half of
 * it, forgets a step that the system interrupted; a table of chunk sizes did not, and held 3 rows for a thousand steps (docs/facts.md).
 *
 * That all requests count, not only those that decode already, keeps a queue of prompts from being read at the pace of the first few answers.
 * What alone(d) is, is tried again now and then by a step without prompt rows.
 */
#ifndef ROSE_ENGINE_PACE_H
#define ROSE_ENGINE_PACE_H

#include "base/status.h"

enum { PACE_TILE = 4, PACE_BUCKETS = 13, PACE_SAMPLES = 5 }; /* buckets: 1, 2, 3..4, 5..8, ... 2049..4096 decode rows */

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
    struct pace_figure row;                 /* a row of a step of prompts alone */
    double row_s;                           /* a row of a chunk beside decode rows; 0: not known yet */
    double planned;                         /* of the time that the bound leaves */
    double bound_s;                         /* of the step that was planned last; 0: it had none */
    int32_t granted;                        /* rows of that step */
    uint64_t steps;
};

void pace_open(struct pace *pace, double stretch, int32_t most);
/* A step has ended. */
void pace_observe(struct pace *pace, int32_t decode_rows, int32_t prefill_rows, double seconds);
/* Rows of prompts that the next step may take beside so many decode rows, when so many requests (these among them) run or wait: never less
 * than what fills a tile, else prompts would starve. 0: it shall decode alone, to be measured. */
int32_t pace_rows(struct pace *pace, int32_t decode_rows, int32_t requests);

#endif
