/* A request and its sequences: everything a submission owns, allocated when it is submitted and freed after its final event. */
#ifndef ROSE_ENGINE_REQUEST_H
#define ROSE_ENGINE_REQUEST_H

#include "base/arena.h"
#include "engine/stops.h"
#include "engine/thoughts.h"
#include "ops/op.h"
#include "tokenizer/tokenizer.h"

struct request;

enum sequence_state { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_ENDED };

/* One answer under way.
 *
 *     tokens:  [ prompt | generated ............ | in flight | room ]
 *              0        prompt_count       known   length      capacity
 *     cache:   [ computed ............................. )          keys and values written or being written
 */
struct sequence {
    struct request *request;
    struct sequence *older, *newer; /* the waiting queue, by (priority, arrival) */
    enum sequence_state state;
    int choice, slot;               /* slot: -1 while waiting */
    uint64_t arrival;
    int32_t *tokens;                /* [capacity]; known ones only */
    int32_t known, length, computed, capacity;
    int32_t in_flight;              /* steps submitted and not collected that hold rows of it */
    bool ended_in_flight;           /* finished while a later step still computes it */
    int32_t blocks;                 /* page blocks held */
    int32_t *pages[OP_MAX_GROUPS];  /* [max blocks]; -1: behind the window */
    int32_t *nodes;                 /* [max blocks] prefix nodes of the first nodes_count blocks */
    int32_t nodes_count, behind[OP_MAX_GROUPS]; /* behind: blocks of a group already given up */
    int32_t cached;                 /* prompt tokens that came from the prefix tree */
    bool prompt_done;               /* the prompt event is out */
    bool evented;                   /* at least one token was shown: for times */
    struct token_stream stream;
    struct stops stops;
    struct thoughts_state thoughts;
    int32_t generated;              /* known ones */
    double first_token_s, last_token_s;
    float *prompt_logprobs;         /* [prompt_count], when asked for */
    struct rose_logprob *prompt_top; /* [prompt_count * prompt_top_n] */
};

struct request {
    uint64_t id, user;
    struct request *next;           /* intake list, then the list of live ones */
    struct request *previous;
    struct arena arena;
    struct rose_sampling sampling;
    uint64_t seed, salt;
    int32_t *prompt;
    int32_t prompt_count, max_tokens; /* max_tokens: resolved against the context */
    struct str *stop_strings;
    size_t stops_count;
    int32_t *stop_ids;
    size_t stop_ids_count;
    bool include_stop, keep_special;
    struct thoughts thoughts;
    int logprobs, prompt_logprobs, priority;
    double submitted_s, admitted_s, deadline_s; /* monotonic seconds; deadline 0: none */
    struct sequence *sequences;
    int choices, open;              /* sequences in all, and not ended */
    bool cancelled;                 /* set by the engine thread */
    enum rose_finish finish;        /* of the first choice to end, or of what ended all */
    int stop_index;
    int32_t stop_token, completion_tokens;
};

/* What a request must fit. */
struct request_limits {
    int32_t context, vocabulary, groups, page_tokens;
    const struct tokenizer *tokenizer;
};

/* Check and copy. tokens are the prompt's ids (the caller tokenised). Nothing of `in` is kept. */
enum rose_status request_open(const struct rose_request *in, const int32_t *tokens, size_t count, const struct request_limits *limits, struct request **out,
                              struct rose_error *err);
void request_close(struct request *request);

#endif
