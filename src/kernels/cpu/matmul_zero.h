/* Activations with a zero point: a block of 32 columns as x = s (q + z), q in int8, z out of 0, 32, 64, 96 (weight.h).
 *
 *     a, b    the larger and the smaller of max x and max -x; s gets the sign of the side of a
 *     z       0 as long as b >= 0.748 a, 32 from 0.396 a, 64 from 0.1623 a, else 96: where the next one's step becomes the smaller
 *     |s|     max(a / (127 + z), b / (127 - z)) by products with the rounded reciprocals
 *     q       x * (1 / s) - z in one rounding, then to nearest even; never -128
 *
 * s = 0, q = 0, z = 0 where a < 2^-100; q = 0, z = 0 and s = a / 127 beyond 2^120, NaN where an x is. A quarter to a half of the rounding
 * error of s = a / 127 where values lie to one side: the outputs of a GELU, and blocks in which one column is far from the others
 * (X. Wei et al., "Outlier Suppression", 2022, describe those of language models). */
#ifndef ROSE_KERNELS_CPU_MATMUL_ZERO_H
#define ROSE_KERNELS_CPU_MATMUL_ZERO_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/matmul.h"

#define MATMUL_ZERO_UPPER {1 / 127.0f, 1 / 159.0f, 1 / 191.0f, 1 / 223.0f}
#define MATMUL_ZERO_LOWER {1 / 127.0f, 1 / 95.0f, 1 / 63.0f, 1 / 31.0f}
#define MATMUL_ZERO_SHARES {0.748f, 0.396f, 0.1623f}

struct matmul_zero {
    float s, inverse;
    int32_t z; /* 0…3, in steps */
    bool live; /* else all codes are 0 */
};

/* high: max x, low: max -x, of a block without NaN. */
static inline struct matmul_zero matmul_zero_choose(float high, float low, bool nan)
{
    static const float upper[] = MATMUL_ZERO_UPPER, lower[] = MATMUL_ZERO_LOWER, share[] = MATMUL_ZERO_SHARES;
    float a = high > low ? high : low, b = high > low ? low : high;
    if (nan) return (struct matmul_zero){.s = NAN};
    if (!(a >= 0x1p-100f)) return (struct matmul_zero){0};
    if (!(a <= 0x1p+120f)) return (struct matmul_zero){.s = a / 127.0f};
    struct matmul_zero out = {.z = (b < share[0] * a) + (b < share[1] * a) + (b < share[2] * a), .live = true};
    float sa = a * upper[out.z], sb = b * lower[out.z], s = sa > sb ? sa : sb;
    out.s = low > high ? -s : s;
    out.inverse = 1.0f / out.s;
    return out;
}

/* What follows the codes of row h in a block. */
static inline void matmul_zero_store(const struct matmul_zero *c, int32_t sum, int height, int h, uint8_t *block)
{
    int32_t start = -128 * sum, at = 64 * c->z;
    memcpy(block + height * MATMUL_ACT_S + 4 * h, &c->s, 4);
    memcpy(block + height * MATMUL_ACT_NSUM + 4 * h, &start, 4);
    memcpy(block + height * (MATMUL_ACT_NSUM + 4) + 4 * h, &at, 4);
}

/* One row of a block in plain C. */
static inline void matmul_zero_row(const float *x, int height, int h, uint8_t *block)
{
    float high = -INFINITY, low = -INFINITY;
    bool nan = false;
    for (int i = 0; i < CPU_BLOCK; i++) {
        high = x[i] > high ? x[i] : high;
        low = -x[i] > low ? -x[i] : low;
        nan = nan || x[i] != x[i];
    }
    struct matmul_zero c = matmul_zero_choose(high, low, nan);
    int8_t q[CPU_BLOCK] = {0};
    int32_t sum = 0;
    if (c.live)
        for (int i = 0; i < CPU_BLOCK; i++) sum += q[i] = (int8_t)lrintf(fmaf(x[i], c.inverse, (float)(-CPU_ZERO_STEP * c.z)));
    memcpy(block + h * CPU_BLOCK, q, CPU_BLOCK);
    matmul_zero_store(&c, sum, height, h, block);
}

#endif
