/* Codes of the matrix instructions' narrow formats for small whole numbers, which every sum of products of holds exactly. */
#ifndef ROSE_SIMT_CODES_H
#define ROSE_SIMT_CODES_H

#include <stdint.h>
#include <stdlib.h>

enum simt_kind { BF16, F16, S8, E4M3, E5M2, E2M1 };

static inline int simt_code_bits(enum simt_kind k) { return k == BF16 || k == F16 ? 16 : k == E2M1 ? 4 : 8; }

static inline uint32_t simt_draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33) % n;
}

/* v from -4 to 4 as a code of k, and its value (of e2m1, whose codes count in halves, another one than v). */
static inline uint32_t simt_code(enum simt_kind k, int v, double *value)
{
    static const double e2m1[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
    const uint32_t sign = v < 0, m = (uint32_t)abs(v), e = m >= 4 ? 2 : m >= 2 ? 1 : 0;
    *value = k == E2M1 ? e2m1[m] * (sign ? -1 : 1) : v;
    switch (k) {
    case BF16: return m ? sign << 15 | (127 + e) << 7 | (m << (7 - e) & 0x7f) : 0;
    case F16: return m ? sign << 15 | (15 + e) << 10 | (m << (10 - e) & 0x3ff) : 0;
    case E4M3: return m ? sign << 7 | (7 + e) << 3 | (m << (3 - e) & 7) : 0;
    case E5M2: return m ? sign << 7 | (15 + e) << 2 | (m << (2 - e) & 3) : 0;
    case S8: return (uint32_t)v & 0xff;
    case E2M1: return sign << 3 | m;
    }
    return 0;
}

#endif
