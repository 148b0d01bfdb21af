/* Memory and programs of the pool engine, and a batch's way to the device and back.
 *
 * The CPU has one forward for every batch, and the host's memory is the device's. On CUDA a forward is recorded once a bucket of rows (16,
 * 64, 256, ... the budget or the longest text), all over one block of intermediates; a bucket has its own layout of the step's inputs, so that one
 * short copy from pinned memory brings them. Results come back into pinned memory: pooled rows, values of tokens where somebody wants
 * them, and for answers of a row a token that text's rows, a piece at a time.
 */
#ifndef ROSE_ENGINE_POOL_MEMORY_H
#define ROSE_ENGINE_POOL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct pool;
struct program;

enum { POOL_BUCKETS = 12 };

/* A step's inputs where the host writes them. */
struct pool_inputs {
    int32_t *tokens, *positions, *row_seq, *types; /* [rows] */
    int32_t *seq_rows, *seq_length, *kind, *skip;  /* [seqs (+ 1)] */
    float *inv_freq;                               /* [seqs, rotary_dim / 2], frequencies that follow the length; NULL: none do */
};

struct pool_bucket {
    int32_t rows, seqs; /* at most */
    struct program *program;
    size_t bytes;       /* of its inputs */
    struct pool_inputs host;
};

struct pool_memory {
    struct pool_bucket bucket[POOL_BUCKETS]; /* ascending */
    int count;
    int32_t max_rows;
    void *inputs, *staging; /* device; CUDA: pinned */
    void *work;             /* CUDA: intermediates of every bucket */
    size_t inputs_bytes, work_bytes;
    /* the outputs; on the CPU the host's pointers are the device's */
    void *hidden;                                   /* f32 [rows, hidden], CUDA: bf16 */
    float *pooled, *token_values;                   /* f32 [seqs, forward_pooled_cols], [rows, forward_token_cols] */
    float *hidden_host, *pooled_host, *token_host;  /* CUDA: hidden_host [longest text, hidden], pageable; the others pinned */
    void *hidden_piece;                             /* CUDA: pinned */
    size_t hidden_bytes, pooled_bytes, token_bytes, piece_bytes;
};

enum rose_status pool_memory_open(struct pool *pool, struct rose_error *err);
void pool_memory_close(struct pool *pool);
/* Bytes of the device beside the weights. */
size_t pool_memory_bytes(const struct pool *pool);
/* The bucket for so many rows and texts. */
struct pool_bucket *pool_memory_bucket(struct pool *pool, int32_t rows, int32_t seqs);
/* Run a filled bucket and wait; values: the rows' token values come back too. */
enum rose_status pool_memory_run(struct pool *pool, struct pool_bucket *bucket, int32_t rows, int32_t seqs, bool values, struct rose_error *err);
/* A text's last rows as float32 [count, hidden], valid until the next call; may be written. */
enum rose_status pool_memory_hidden(struct pool *pool, int32_t row, int32_t count, float **out, struct rose_error *err);

#endif
