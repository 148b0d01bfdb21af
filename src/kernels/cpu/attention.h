/* CPU attention over pages: the driver (attention_driver.c) walks tiles of TILE tokens and calls the kernels
 * of one instruction set for the arithmetic.
 *
 * One order for every row, whatever the batch, the chunking of the prefill, the number of threads and the
 * page size: keys are taken in tiles of 64 tokens at absolute positions; within a chunk of CHUNK tokens at
 * absolute positions the online softmax runs over the tiles in order; chunks are merged in order. A masked
 * score adds exactly zero. So a row's bits are the same alone and in any batch, and deterministic costs
 * nothing in float32. Only the bfloat16 kernels (chosen for tiles of many rows over F16, BF16 and Q8_0
 * caches, and over own rows that are said to be no more exact; never with `deterministic`) round differently: there a row's bits depend on the chunking, but
 * neither on the threads nor on the batch.
 */
#ifndef ROSE_KERNELS_CPU_ATTENTION_H
#define ROSE_KERNELS_CPU_ATTENTION_H

#include "base/worker.h"
#include "kernels/cpu/kv.h"
#include "kernels/params/attention.h"
#include "tensor/extent.h"

enum {
    ATTENTION_TILE = 64,   /* tokens */
    ATTENTION_CHUNK = 512, /* tokens; a multiple of the tile */
    ATTENTION_ROWS = 64,   /* query rows times heads of a group, at most, in an item */
    ATTENTION_LANES = 16,  /* partial sums of a row's weights, added up at the end of a chunk */
    /* the same in bfloat16, where packing keys must be shared by more rows, times the larger of head_dim and
     * value_dim: what a core's second cache holds besides the packed keys */
    ATTENTION_HALF_WORK = 49152,
    ATTENTION_HALF_SUB = 32,     /* rows that take their way over the packed keys together */
    ATTENTION_HALF_CHUNK = 2048, /* as ATTENTION_CHUNK, in bfloat16 for sequences of more than ATTENTION_ROWS rows times heads of an item */
    ATTENTION_PANEL = 512,       /* tokens packed at a time; a multiple of the tile */
    ATTENTION_DIRECT_ROWS = 12,  /* up to so many rows are computed straight from the cache */
    ATTENTION_HALF_LEAST = 24,   /* sequences of fewer rows times heads of an item are computed in float32 */
    ATTENTION_HALF_ROWS = 4,     /* and so are fewer than this many rows; these of a file of more than a chunk, a piece of a */
    ATTENTION_HALF_PIECE_LEAST = 12, /* prompt, pay for packing sooner */
    ATTENTION_HALF_OWN_LEAST = 8, /* the same over own rows, which either way must be turned over first */
};

#define ATTENTION_SLACK 8.0f /* see attention_softmax_body.h */

/* One tile's softmax. Row r sees columns [lo[r], hi[r]). Scores are in units of log 2 (queries come scaled by
 * scale log2 e, or with a soft cap by scale / cap), so that weights are powers of two. */
struct attention_softmax {
    float *scores;  /* [rows, ATTENTION_TILE]: scores in, 2^(score - maximum) out */
    float *acc;     /* [rows, acc_ld]: scaled when a row's maximum grows */
    float *maximum; /* [rows]: running, within the slack of attention_softmax_body.h */
    float *sum;     /* [rows, ATTENTION_LANES]: of the weights */
    const int32_t *lo, *hi;
    const float *slopes;     /* alibi times log2 e, [rows] or NULL: score -= slope * |token - position| */
    const float *const *relative; /* [rows] or NULL: score += relative[r][column] */
    const int32_t *position; /* [rows] minus the tile's first token */
    float softcap;           /* times log2 e; 0: none */
    int32_t rows, acc_ld, value_dim;
    int32_t columns;         /* no row sees columns from here on: they are neither read nor written */
};

struct attention_kernels {
    const struct kv_kernels *kv;
    /* c[rows, n] = or += a[rows, k] b[k, n]; n a multiple of 16. Every element sums over k in order. */
    void (*product)(const float *a, int32_t lda, const float *b, int32_t ldb, float *c, int32_t ldc,
                    int32_t rows, int32_t k, int32_t n, bool accumulate);
    void (*softmax)(const struct attention_softmax *s);
    /* l[rows] = sums of lanes[rows, ATTENTION_LANES]; out[n] = scale * x[n] */
    void (*sums)(const float *lanes, int32_t rows, float *l);
    void (*scale)(const float *x, float scale, int32_t n, float *out);
    /* (m, l, acc) joined with (m2, l2, acc2): one softmax over both. */
    void (*merge)(float *m, float *l, float *acc, float m2, float l2, const float *acc2, int32_t n);
    /* y = acc / (l + the sink's part). */
    void (*finish)(float *y, float m, float l, const float *acc, int32_t n, const float *sink);
    /* kt[d, ld], columns 0..n-1 = rows of k[n, stride] */
    void (*transpose)(const float *k, int64_t stride, int32_t n, int32_t d, float *kt, int32_t ld);
    /* product for few rows, straight from the cache: scores of token blocks [b0, b1), whose keys lie at
     * blocks[b]; acc += weights of tokens [begin, end) times their values. value_dim in whole 16s. NULL: not
     * there, convert tiles first. */
    void (*direct_scores)(enum dtype dtype, const float *q, int32_t rows, const uint8_t *const *blocks,
                          int32_t b0, int32_t b1, int32_t d, float *scores);
    void (*direct_values)(enum dtype dtype, const float *weights, int32_t rows, const uint8_t *const *blocks,
                          int32_t begin, int32_t end, int32_t e, float *acc, int32_t ld);
};

/* In bfloat16 with float32 accumulators: up to ATTENTION_HALF_SUB rows over tiles [tile0, tile1) of a panel.
 * Columns count from the panel's first token. d32: head_dim in whole 32s. Buffers have room for whole
 * ATTENTION_HALF_SUB rows and whole tiles: what lies in rows past `rows` and in keys that nobody sees does
 * not matter, values that nobody sees are zero. */
struct attention_pass {
    const uint16_t *q, *k, *v;         /* [rows, d32]; per 16 tokens [d32/2][16][2]; per 2 tokens [ld][2] */
    float *scores;                     /* work: [2, ATTENTION_HALF_SUB, ATTENTION_TILE] */
    uint16_t *weights;                 /* the same */
    float *acc, *maximum, *sum;        /* as in attention_softmax; maxima are whole numbers */
    const int32_t *lo, *hi, *position; /* [rows], columns */
    const float *slopes;
    const uint64_t *present; /* [tiles]: columns whose page is there */
    float softcap;
    int32_t rows, d32, ld, tile0, tile1;
    int32_t plain0, plain1; /* tiles that all rows see whole, without soft cap and alibi */
};

struct attention_half_kernels {
    void (*query)(const float *q, float scale, int32_t d, int32_t d32, uint16_t *out); /* one row */
    void (*load_k)(enum dtype dtype, const uint8_t *block_k, int32_t d, int32_t d32, uint16_t *out);
    void (*load_v)(enum dtype dtype, const uint8_t *block_v, int32_t e, int32_t lo, int32_t hi, uint16_t *out,
                   int32_t ld);
    /* the same from rows of float32, [n, stride], n up to 16 */
    void (*own_k)(const float *k, int64_t stride, int32_t n, int32_t d, int32_t d32, uint16_t *out);
    void (*own_v)(const float *v, int64_t stride, int32_t e, int32_t lo, int32_t hi, uint16_t *out, int32_t ld);
    void (*pass)(const struct attention_pass *p);
    void (*begin)(void), (*end)(void); /* around an item */
};

typedef void attention_kernel(const void *params, const struct extents *extents, struct worker *w);
/* The kernel for the instruction set in use (isa.h). */
attention_kernel *attention_cpu(void);
/* Bytes of scratch a worker needs. */
size_t attention_scratch(const struct attention_params *p);
/* Rows of `partial` worth having for this longest length. */
int32_t attention_partial_rows(const struct attention_params *p, int64_t max_length);

void attention_driver_run(const struct attention_kernels *kernels, const struct attention_params *p,
                          const struct extents *extents, struct worker *w);

attention_kernel attention_portable;
extern const struct attention_kernels attention_kernels_portable;
#if defined(__x86_64__)
attention_kernel attention_avx2, attention_avx512;
extern const struct attention_kernels attention_kernels_avx2, attention_kernels_avx512;
extern const struct attention_half_kernels attention_half_bf16, attention_half_amx;
#endif

#endif
