/* Seeded random weights: the value of an element, and the parameters of the kernel that writes them (kernels/cuda/dummy.cu). */
#ifndef ROSE_KERNELS_PARAMS_DUMMY_H
#define ROSE_KERNELS_PARAMS_DUMMY_H

#include "kernels/params/types.h"

struct dummy_params {
    void *y;       /* bf16 [n], 16-byte aligned */
    uint64_t n;    /* a multiple of 8 */
    uint64_t seed; /* of this tensor */
    float scale;   /* largest absolute value */
    uint32_t one;  /* 1 */
};

/* A finaliser with full avalanche (the 64-bit one of SplitMix, Steele et al. 2014). Four elements take 16 bits each of one value;
 * an element is (bits - 32768) / 32768 * scale, rounded to bf16. */
#define DUMMY_MIX(z)                                                                                                          \
    do {                                                                                                                      \
        (z) = ((z) ^ ((z) >> 30)) * 0xBF58476D1CE4E5B9ull;                                                                    \
        (z) = ((z) ^ ((z) >> 27)) * 0x94D049BB133111EBull;                                                                    \
        (z) ^= (z) >> 31;                                                                                                     \
    } while (0)
#define DUMMY_START(seed, quad) ((seed) + ((quad) + 1) * 0x9E3779B97F4A7C15ull)
#define DUMMY_VALUE(bits, scale) ((float)((int32_t)(bits) - 32768) * (1.0f / 32768.0f) * (scale))

#endif
