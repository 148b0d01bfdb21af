/* Sampling: what host and device share. The sample program draws one token a sampled row, writes it into the sequence's history
 * (from where the next step's embedding reads it) and reports it with its log-probability. */
#ifndef ROSE_KERNELS_PARAMS_SAMPLE_H
#define ROSE_KERNELS_PARAMS_SAMPLE_H

#include "kernels/params/types.h"

enum { SAMPLE_TOP = 20 };

/* One sampled row, written by the host each step. Order of operations, as Hugging Face's and vLLM's processors have it:
 * mask, bias, bans -> repetition, frequency, presence penalties -> temperature -> top-k -> top-p -> min-p -> draw. */
struct sample_row {
    int64_t history;    /* index of the sequence's first token in the history buffer */
    int32_t length;     /* tokens known to this row: history[0, length); the drawn one goes to history[length] */
    int32_t prompt;     /* of these, the prompt's */
    int32_t given;      /* >= 0: draw nothing, score this token (prompt log-probabilities); history is not written */
    float temperature;  /* 0: the largest logit, the lowest id of equals */
    float top_p, min_p; /* 1 and 0: off */
    int32_t top_k;      /* 0: off */
    float repetition, presence, frequency; /* 1, 0, 0: off */
    uint64_t seed;      /* the draw depends on (seed, length) and the logits only */
    int32_t logprobs;   /* -1: none; else how many alternatives, of log_softmax(logits) before all of the above */
    int32_t mask;       /* row of the token bit mask (u32 [rows, (V + 31) / 32], bit set: allowed); -1: none */
    int32_t bias, bias_count; /* entries [bias, bias + bias_count) of the bias list are added */
    int32_t ban, ban_count;   /* entries of the ban list become impossible (end tokens before min_tokens) */
};

struct sample_bias {
    int32_t id;
    float bias;
};

struct sample_out {
    int32_t token;
    float logprob;
    int32_t top_id[SAMPLE_TOP];
    float top_logprob[SAMPLE_TOP];
};

#endif
