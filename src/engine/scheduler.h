/* Scheduler: which rows the next step computes. A pure function of what runs, what waits, free pages and the budget.
 *
 * Order: running sequences with one token to compute (decode) first, then running prefills, then waiting sequences, each in the
 * order (priority, arrival). A sequence that finds no page takes them from the last running one of that order (preemption by
 * recompute), so that the first one always advances and nobody starves within a priority.
 */
#ifndef ROSE_ENGINE_SCHEDULER_H
#define ROSE_ENGINE_SCHEDULER_H

#include "base/status.h"

struct sched_limits {
    int32_t step_tokens;    /* rows of a step at most */
    int32_t prefill_tokens; /* of these for prefill while others decode: bounds their inter-token time */
    int32_t max_running;
    int32_t max_samples;    /* sampled rows of a step at most */
    int32_t page_tokens, groups;
    int32_t group_blocks[8]; /* blocks of a group a sequence holds at most (its window and a step); 0: no bound */
};

/* One sequence as the scheduler sees it. `length` tokens are known; the KV of the first `computed` of them is written. */
struct sched_seq {
    int32_t priority;   /* smaller first */
    uint64_t arrival;   /* smaller first; unique */
    int32_t length, computed;
    int32_t capacity;   /* tokens it can ever have */
    int32_t blocks;     /* page blocks begun (each is one page a group that has not passed it) */
    int32_t pages;      /* pages that giving everything back would free */
    int32_t reusable;   /* waiting: blocks a prefix hit gives without new pages */
    int32_t reused_idle; /* of their pages, those counted in free_pages because nobody uses them now */
    bool running;
    bool hold;          /* leave it alone this time (another computes its prefix right now) */
    bool sample_all;    /* every row is sampled (prompt log-probabilities) */
    /* out */
    int32_t rows;       /* to compute now; for a waiting one > 0 means admitted */
    bool preempted;     /* gives its pages back and waits again */
};

struct sched_result {
    int32_t rows, prefill_rows, decode_rows, preempted, admitted;
    int32_t pages_taken; /* pages new blocks need beyond those freed by preemption */
};

/* Plan one step over n sequences in any order; `order` is scratch [n]. free_pages counts what eviction could free too.
 * Fills rows and preempted of every sequence. */
struct sched_result sched_plan(const struct sched_limits *limits, struct sched_seq *seqs, int32_t n, int32_t free_pages, int32_t *order);

/* Do prompts wait, beside the first of them, that would fill a whole step? Then everybody is late already, and what counts is what a row costs: on a
 * GPU least in whole steps, decode rows or not. (256 requests of 1,024 tokens at once, 128 new ones each, output of Llama-3.1-8B on an H200: 3,956 tok/s with
 * half steps beside decode rows, 4,149 with whole ones.) Prompts less urgent than an answer under way do not count: they may wait. Requests in the
 * queue's order. */
bool sched_crowd(const struct sched_limits *limits, const struct sched_seq *seqs, int32_t n);

/* Pages a sequence of `length` tokens holds in all groups. */
int32_t sched_pages(const struct sched_limits *limits, int32_t length);

#endif
