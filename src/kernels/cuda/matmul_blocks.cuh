/* Reading weights in block formats (kernels/params/matmul_blocks.h has the layout). Constant: FORMAT.
 *
 * A weight is scale * code (- minimum). For a matrix instruction the codes become elements (bf16 or f16), which hold them exactly, and scales and minima
 * are applied to the sums of a unit in float32: no weight is rounded. A code is put into the mantissa of an element whose exponent makes
 * its place the units (Q4_1, Q4_K: 16 + code, Q5_K: 32 + code, others 128 + code, of f16 1024 + code); with minima the constant joins the
 * minimum, without it is subtracted from the pair. */
#ifndef ROSE_CUDA_MATMUL_BLOCKS_CUH
#define ROSE_CUDA_MATMUL_BLOCKS_CUH

#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/matmul_blocks.h"

#define MINIMA (FORMAT == BLOCKS_Q4_1 || FORMAT == BLOCKS_Q4_K || FORMAT == BLOCKS_Q5_K)
#define HALVES (FORMAT == BLOCKS_Q6_K) /* a scale for each 16 elements */
#define UNIT_BYTES BLOCKS_UNIT_BYTES(FORMAT)
#define CHUNK_BYTES BLOCKS_CHUNK_BYTES(FORMAT)
/* What is added to the codes with minima. */
#define CODE_OFFSET (FORMAT == BLOCKS_Q5_K ? 32.0f : 16.0f)

/* Planes of a chunk of `units` units. */
DEVICE const unsigned char *blocks_high(const unsigned char *chunk, uint32_t units)
{
    return chunk + units * BLOCKS_LOW_BYTES(FORMAT);
}
DEVICE const unsigned char *blocks_scales(const unsigned char *chunk, uint32_t units)
{
    return blocks_high(chunk, units) + units * BLOCKS_HIGH_BYTES(FORMAT);
}
/* Where chunk `chunk` of tile `tile` begins in a matrix with `units` units a row. */
DEVICE const unsigned char *blocks_chunk(const void *w, uint32_t units, uint32_t tile, uint32_t chunk)
{
    return (const unsigned char *)w + (size_t)tile * units * UNIT_BYTES + (size_t)chunk * CHUNK_BYTES;
}

/* Pairs of 16, 32, 128 (f16: 1024) and one, and at which bit the first two have their units. */
#define PAIR_16 (ACT_F16 ? 0x4c004c00u : 0x41804180u)
#define PAIR_32 (ACT_F16 ? 0x50005000u : 0x42004200u)
#define PAIR_UNITS (ACT_F16 ? 0x64006400u : 0x43004300u)
#define PAIR_ONE (ACT_F16 ? 0x3c003c00u : 0x3f803f80u)
#define PLACE_16 (ACT_F16 ? 6 : 3)
#define PLACE_32 (ACT_F16 ? 5 : 2)

/* The bits that a code's first field has. A LOP3 takes one constant: with this one in a register that the compiler cannot see through (blocks_mask) a pair
 * takes an instruction less. */
#define BLOCKS_MASK \
    (FORMAT == BLOCKS_Q8_0 ? 0x007f007fu : FORMAT == BLOCKS_MXFP4 ? 0x00070007u : FORMAT == BLOCKS_Q5_K ? 0x000f000fu << PLACE_32 : MINIMA ? 0x000f000fu << PLACE_16 : 0x000f000fu)
/* rows: any number of rows that is no constant, below 2^31. */
DEVICE uint32_t blocks_mask(uint32_t rows)
{
    return BLOCKS_MASK | rows >> 31;
}

/* v << by, by may be negative. */
DEVICE uint32_t blocks_shift(uint32_t v, int by)
{
    return by >= 0 ? v << (by & 31) : v >> (-by & 31);
}

/* ---- codes as the A operands of a unit: a[half][4] of pairs ----------------------------------------------------------------- */

/* Pair i of row `row` of nibbles. high: the unit's word of the high plane; unit: in the chunk; mask: BLOCKS_MASK. */
DEVICE uint32_t blocks_pair(uint32_t word, uint32_t high, uint32_t unit, int row, int i, uint32_t mask)
{
    if (FORMAT == BLOCKS_Q4_1 || FORMAT == BLOCKS_Q4_K) return (blocks_shift(word, PLACE_16 - 4 * i) & mask) | PAIR_16;
    if (FORMAT == BLOCKS_Q5_K) {
        const int at = (int)(unit % 2) * 8 + row * 4 + i;
        return (blocks_shift(word, PLACE_32 - 4 * i) & mask) | PAIR_32 | (blocks_shift(high, PLACE_32 + 4 - at) & (0x00100010u << PLACE_32));
    }
    const uint32_t nibble = word >> (4 * i);
    if (FORMAT == BLOCKS_MXFP4) { /* e2m1's fields at the top of an element's, then twice the value: times 2^127, of f16 2^15 */
        const uint32_t t = (nibble & 0x00080008u) << 12 | (nibble & mask) << (ACT_F16 ? 9 : 6);
        return element2_mul(as_element2(t), as_element2(ACT_F16 ? 0x78007800u : 0x7f007f00u)).bits;
    }
    uint32_t v = (nibble & mask) | PAIR_UNITS;
    if (FORMAT == BLOCKS_Q6_K) v |= blocks_shift(high, 4 - row * 8 - 2 * i) & 0x00300030u;
    return element2_add(as_element2(v), as_element2((PAIR_UNITS | 0x80008000u) + (FORMAT == BLOCKS_Q6_K ? 0x00200020u : 0x00080008u))).bits; /* - 160, - 136 */
}
/* Two signed bytes at bits 0 and 16: 128 + low seven bits, then - 128 or, with the sign, - 256, which differ in that bit (f16: 1024 and
 * 1152). */
DEVICE uint32_t blocks_bytes(uint32_t t, uint32_t mask)
{
    return element2_add(as_element2((t & mask) | PAIR_UNITS), as_element2((t & 0x00800080u) | PAIR_UNITS | 0x80008000u)).bits;
}

/* What a lane reads of a unit. */
#define BLOCKS_WORDS (FORMAT == BLOCKS_Q8_0 ? 2 : 1) /* of a row */
struct blocks_raw {
    uint32_t w[2 * BLOCKS_WORDS], high;
};
DEVICE struct blocks_raw blocks_raw_load(const unsigned char *chunk, uint32_t units, uint32_t unit, uint32_t lane)
{
    struct blocks_raw r;
    r.high = 0;
#if FORMAT == BLOCKS_Q8_0
    const u32x4 w = ld16(chunk + unit * 512 + lane * 16);
    UNROLL for (int i = 0; i < 4; i++) r.w[i] = w.v[i];
#else
    const u32x2 w = ld8(chunk + unit * 256 + lane * 8);
    UNROLL for (int i = 0; i < 2; i++) r.w[i] = w.v[i];
    if (FORMAT == BLOCKS_Q5_K) r.high = ld4(blocks_high(chunk, units) + unit / 2 * 128 + lane * 4);
    if (FORMAT == BLOCKS_Q6_K) r.high = ld4(blocks_high(chunk, units) + unit * 128 + lane * 4);
#endif
    return r;
}
/* Pair i of a row. */
DEVICE uint32_t blocks_raw_pair(const struct blocks_raw *r, uint32_t unit, uint32_t row, uint32_t i, uint32_t mask)
{
    if (FORMAT == BLOCKS_Q8_0) return blocks_bytes(r->w[row * BLOCKS_WORDS + i / 2 % BLOCKS_WORDS] >> i % 2 * 8, mask);
    return blocks_pair(r->w[row * BLOCKS_WORDS], r->high, unit, (int)row, (int)i, mask);
}
DEVICE void blocks_raw_fragment(const struct blocks_raw *r, uint32_t unit, uint32_t mask, uint32_t a[2][4])
{
    UNROLL for (uint32_t row = 0; row < 2; row++)
        UNROLL for (uint32_t i = 0; i < 4; i++) a[i / 2][i % 2 * 2 + row] = blocks_raw_pair(r, unit, row, i, mask);
}
DEVICE void blocks_fragment(const unsigned char *chunk, uint32_t units, uint32_t unit, uint32_t lane, uint32_t mask, uint32_t a[2][4])
{
    const struct blocks_raw r = blocks_raw_load(chunk, units, unit, lane);
    blocks_raw_fragment(&r, unit, mask, a);
}

/* ---- scales ------------------------------------------------------------------------------------------------------------------------ */

/* Half of 2^(e - 127), for codes that are twice the value; the two smallest are subnormal (GGUF gives e = 255 no meaning of its own). */
DEVICE float blocks_e8m0(uint32_t e)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}
/* Unit `unit` of rows q and q + 8: {scale, scale', minimum, minimum'}, or with HALVES {scale, scale' of the first half, of the second}.
 * The value is scale * code - minimum with the codes as the file means them. */
DEVICE f32x4 blocks_scale(const unsigned char *chunk, uint32_t units, uint32_t unit, uint32_t q)
{
    const unsigned char *s = blocks_scales(chunk, units);
    f32x4 r = {{0, 0, 0, 0}};
    if (FORMAT == BLOCKS_Q4_0 || FORMAT == BLOCKS_Q8_0) {
        f16x2 d;
        d.bits = ld4(s + unit * 32 + q * 4);
        r.v[0] = f16x2_lo_f32(d), r.v[1] = f16x2_hi_f32(d);
    } else if (FORMAT == BLOCKS_MXFP4) {
        r.v[0] = blocks_e8m0(s[unit * 16 + q * 2]), r.v[1] = blocks_e8m0(s[unit * 16 + q * 2 + 1]);
    } else if (FORMAT == BLOCKS_Q4_1) {
        const u32x2 w = ld8(s + unit * 64 + q * 8);
        UNROLL for (int row = 0; row < 2; row++)
        {
            f16x2 d;
            d.bits = w.v[row];
            r.v[row] = f16x2_lo_f32(d), r.v[2 + row] = -f16x2_hi_f32(d);
        }
    } else if (FORMAT == BLOCKS_Q6_K) {
        f16x2 d;
        d.bits = ld4(s + 256 + q * 4);
        UNROLL for (int row = 0; row < 2; row++)
        {
            const signed char *two = (const signed char *)s + q * 32 + row * 16 + unit * 2;
            const float f = row ? f16x2_hi_f32(d) : f16x2_lo_f32(d);
            r.v[row] = f * (float)two[0], r.v[2 + row] = f * (float)two[1];
        }
    } else {
        UNROLL for (int row = 0; row < 2; row++)
        {
            const u32x4 w = ld16(s + q * 32 + row * 16);
            const uint32_t low = (unit < 4 ? w.v[1] : w.v[2]) >> unit % 4 * 4, both = (low & 0x000f000fu) | (w.v[3] >> unit * 2 & 0x00030003u) << 4;
            f16x2 d;
            d.bits = w.v[0];
            r.v[row] = f16x2_lo_f32(d) * (float)(both & 0xffffu), r.v[2 + row] = f16x2_hi_f32(d) * (float)(both >> 16);
        }
    }
    return r;
}

/* A pair of codes as weights, rounded once; added: - (minimum + CODE_OFFSET * scale). */
DEVICE uint32_t blocks_scaled(uint32_t pair, float scale, float added)
{
    const float lo = element2_lo_f32(as_element2(pair)), hi = element2_hi_f32(as_element2(pair));
    return (MINIMA ? f32_to_element2(fma_f32(scale, lo, added), fma_f32(scale, hi, added)) : f32_to_element2(scale * lo, scale * hi)).bits;
}

/* ---- values, rounded as a float32 decoder rounds them --------------------------------------------------------------------------------- */

/* Elements 0 .. 7 of lane `lane` of row q + 8 row of a unit. */
DEVICE void blocks_values(const unsigned char *chunk, uint32_t units, uint32_t unit, uint32_t lane, uint32_t row, float v[8])
{
    uint32_t a[2][4];
    const f32x4 s = blocks_scale(chunk, units, unit, lane / 4);
    blocks_fragment(chunk, units, unit, lane, BLOCKS_MASK, a);
    UNROLL for (int e = 0; e < 8; e++)
    {
        const int half = e / 4, pair = e / 2 % 2 * 2;
        const element2 both = as_element2(row ? a[half][pair + 1] : a[half][pair]);
        float code = e % 2 ? element2_hi_f32(both) : element2_lo_f32(both);
        if (MINIMA) code -= CODE_OFFSET;
        const float scale = row ? HALVES && half ? s.v[3] : s.v[1] : HALVES && half ? s.v[2] : s.v[0];
        v[e] = scale * code;
        if (MINIMA) v[e] -= row ? s.v[3] : s.v[2];
    }
}

#endif
