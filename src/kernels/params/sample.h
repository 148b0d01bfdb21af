/* Sampling: what each row asks for, what it gets, and the kernel's parameters. Written by the host before a
 * sample program runs (rows, edits, masks) and read after it (outputs). */
#ifndef ROSE_KERNELS_PARAMS_SAMPLE_H
#define ROSE_KERNELS_PARAMS_SAMPLE_H

#include "kernels/params/types.h"

enum { SAMPLE_TOP = 20 /* most alternatives a row may ask for */ };
/* Dynamic shared memory of a block: 4096 candidates, sums, and a list of maxima of 64 logits each. */
#define SAMPLE_SHARED(vocabulary, threads) (4096 * 8 + 2 * ((threads) / 32) * 8 + 4 * 8 + 8 * 4 + ((vocabulary) + 511) / 512 * 8 * 2)

/* One row. All zero but repetition = 1, top_p = 1, given = slot = mask_row = feed = top_n = -1 is plain
 * greedy (SAMPLE_ROW_GREEDY). Order of work, as in vLLM and Hugging Face: edits, repetition, presence and
 * frequency, mask, temperature, top-k, top-p, min-p. */
struct sample_row {
    uint64_t seed; /* of the request */
    uint64_t
        step; /* tokens drawn before with this seed: a draw depends on (seed, step) and the logits only */
    float temperature; /* below 1e-5: the largest logit, the lowest id of equals */
    float top_p;      /* keep the smallest set of likeliest tokens whose share is at least top_p; >= 1: all */
    float min_p;      /* drop tokens less likely than min_p times the likeliest; 0: none */
    float repetition; /* tokens of prompt or answer: logit / r when positive, * r when negative; 1: none */
    float presence, frequency; /* tokens of the answer: logit -= presence + frequency * count */
    int32_t top_k;             /* keep the k largest logits (lower ids of equals); 0: all */
    int32_t given;  /* >= 0: nothing is drawn, this token is looked up (log-probabilities of a prompt); -1 */
    int32_t top_n;  /* -1: no log-probabilities; else of the token and of the top_n <= SAMPLE_TOP likeliest */
    int32_t slot;   /* history slot for the penalties and append; -1: none */
    int32_t append; /* add the drawn token to the slot's history; at most one row a slot and step */
    int32_t edits_begin, edits_count; /* in `edits` */
    int32_t mask_row;                 /* row of `mask`; -1: none */
    int32_t feed;                     /* where in `feed` the drawn token goes; -1: nowhere */
};
#define SAMPLE_ROW_GREEDY                                                                             \
    {                                                                                                 \
        .top_p = 1, .repetition = 1, .given = -1, .top_n = -1, .slot = -1, .mask_row = -1, .feed = -1 \
    }

/* logit[token] += bias; minus infinity bans (stop tokens before min_tokens). Tokens outside the vocabulary do
 * nothing. */
struct sample_edit {
    int32_t token;
    float bias;
};

/* Log-probabilities are the model's own: log-softmax of the logits before edits, penalties, mask and
 * temperature. */
struct sample_output {
    int32_t token; /* -1: every token is banned or not a number */
    int32_t top_count;
    float logprob; /* of token; 0 when top_n was -1 */
    int32_t top_ids[SAMPLE_TOP];
    float top_logprobs[SAMPLE_TOP]; /* falling */
};

struct sample_params {
    void *logits;              /* f32 [R, vocabulary]; scratch afterwards */
    const void *rows;          /* struct sample_row [R] */
    const void *edits;         /* struct sample_edit [] or NULL */
    const void *mask;          /* u32 [masks, mask_stride]: bit t of a row: token t is allowed; or NULL */
    void *history;             /* i32 [slots, history_stride]: prompt, then answer; or NULL */
    void *history_length;      /* i32 [slots] */
    const void *prompt_length; /* i32 [slots] */
    void *output;              /* struct sample_output [R] */
    void *feed;                /* i32 [] or NULL: the next step's tokens */
    void *work;                /* f32 [R, work_stride] */
    void *counters;            /* CUDA: u32 [R], zero before the first launch; NULL on the CPU */
    int64_t logits_stride, mask_stride, history_stride, work_stride; /* elements */
    int32_t vocabulary, slots, edits_max, masks;
    int32_t blocks;      /* CUDA: blocks a row; grid.x = R * blocks */
    uint32_t rows_count; /* CUDA: R, written at each launch; the kernel goes by its grid */
};

#endif
