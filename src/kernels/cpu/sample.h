/* CPU kernel of op_sample. sample.c is the logic, sample_body.h the sweeps over a vocabulary, once an
 * instruction set. */
#ifndef ROSE_KERNELS_CPU_SAMPLE_H
#define ROSE_KERNELS_CPU_SAMPLE_H

#include "base/worker.h"
#include "kernels/params/sample.h"
#include "tensor/extent.h"

enum {
    SAMPLE_BLOCK = 64,   /* logits that share a maximum: a search skips blocks that cannot matter */
    SAMPLE_CHUNK = 4096, /* logits a worker takes at a time */
};

/* A candidate: its logit or weight, and its token. */
struct sample_candidate {
    float value;
    int32_t token;
};

struct sample_kernels {
    /* Maximum of each block of x[n] (NaN counts as minus infinity). */
    void (*maxima)(const float *x, int32_t n, float *out);
    /* Sum of exp(x - top) in blocks' order. */
    float (*sum_exp)(const float *x, int32_t n, float top);
    /* Sum of exp((x - top) * inverse_temperature) of each block. */
    void (*block_sums)(const float *x, int32_t n, float top, float inverse_temperature, float *out);
    /* value = exp((value - top) * inverse_temperature) */
    void (*weights)(struct sample_candidate *c, int32_t n, float top, float inverse_temperature);
    /* Appends the tokens of one block of n logits with x >= least; first is the block's first token. Returns
     * how many. */
    int32_t (*collect)(const float *x, int32_t n, int32_t first, float least, struct sample_candidate *out);
};

void sample_cpu(const void *params, const struct extents *extents, struct worker *w);
size_t sample_scratch(int32_t vocabulary);
/* Floats of `work` a row needs: maxima of the blocks, then (top, sum) of the chunks. */
int64_t sample_work(int32_t vocabulary);

/* Ten rounds of Philox 4x32: four words from key (seed) and counter. */
void sample_philox(uint64_t seed, uint64_t counter, uint32_t out[4]);

extern const struct sample_kernels sample_kernels_portable;
#if defined(__x86_64__)
extern const struct sample_kernels sample_kernels_avx2, sample_kernels_avx512;
#endif

#endif
