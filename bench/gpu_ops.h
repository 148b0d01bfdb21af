/* What bench/gpu_ops.c measures: entries that a table of ops makes. */
#ifndef ROSE_BENCH_GPU_OPS_H
#define ROSE_BENCH_GPU_OPS_H

#include "ops/plan.h"

enum { BENCH_PARAMS = 256 };

/* Takes device memory of one set of buffers, piece by piece. */
struct bench_memory {
    char *at, *end;
    bool full;
};
static inline void *bench_take(struct bench_memory *m, size_t bytes)
{
    char *p = m->at;
    m->at += (bytes + 255) & ~(size_t)255;
    m->full |= m->at > m->end;
    return p;
}

struct bench_tables { /* small device arrays all sets share, random where floats */
    void *weights;    /* f32 or bf16 about 1 */
    void *inv_freq;   /* f32 */
    void *positions;  /* i32 [1 << 18]: 0, 1, 2, … */
    void *slots;      /* i64 [1 << 18]: the same */
    void *counters;   /* u32 [1 << 18], zero; every kernel leaves them so */
};

struct bench_entry {
    const char *op;
    char shape[64];
    struct plan plan;
    size_t set_bytes; /* device memory of one set */
    double bound_us;  /* what the issue asks for; 0: relative to the clone only */
    bool sweep;       /* a variant, only to compare with others of the same op and shape */
    /* Fills params (at most BENCH_PARAMS bytes, returns how many) for one set of buffers. */
    size_t (*fill)(const struct bench_entry *e, const struct bench_tables *t, struct bench_memory *m,
                   void *params);
    int64_t rows;
    int32_t n[6]; /* the op's own numbers */
};

/* Adds entries through `add`; bench/gpu_ops_table.c. */
typedef void bench_add(void *context, const struct bench_entry *e);
void bench_table(const struct device_info *device, bool sweep, bench_add *add, void *context);

#endif
