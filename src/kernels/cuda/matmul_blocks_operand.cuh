/* Weights in a block format as the A operand of a matrix instruction whose B has k in natural order, 16-bit, rounded once as matmul_blocks_rows.cu rounds them
 * (matmul_blocks_wgmma.cu).
 *
 * kernels/params/matmul_blocks.h has a lane's k in an order for 8-byte loads of x. In natural order lane c wants pairs c and 4 + c of sixteen elements; they lie in
 * the words of lanes c / 2 and 2 + c / 2, as pair c % 2. So a lane reads two lanes' words and of each half the nibbles: those of bytes' lower or upper halves.
 *
 * A code becomes float32 as the third byte (Q8_0: second) of a number that has its exponent, an offset + the code (Q4: 16, Q5_K: 32, Q6_K: 64, Q8_0: 32768 + 128),
 * and the weight by one multiplication and addition, exactly but for the minimum's rounding. A nibble is turned to its place and what it is not masked away; Q5_K's
 * and Q6_K's high bits are turned to theirs. MXFP4: see blocks_pair; of bf16, whose range its scales have, the scale is multiplied in pairs. */
#ifndef ROSE_CUDA_MATMUL_BLOCKS_OPERAND_CUH
#define ROSE_CUDA_MATMUL_BLOCKS_OPERAND_CUH

#include "kernels/cuda/matmul_blocks.cuh"

#define OPERAND_HIGH (FORMAT == BLOCKS_Q5_K || FORMAT == BLOCKS_Q6_K)
/* Where a byte's nibble has its place, what it then keeps, and what it gets; the number's first byte. */
#define OPERAND_PLACE (FORMAT == BLOCKS_Q6_K ? 1 : FORMAT == BLOCKS_Q5_K ? 2 : 3)
#define OPERAND_KEEPS ((0xfu << OPERAND_PLACE) * 0x01010101u)
#define OPERAND_GETS (FORMAT == BLOCKS_Q5_K ? 0u : 0x80808080u)
#define OPERAND_TOP (FORMAT == BLOCKS_Q8_0 ? 0x47000000u : OPERAND_HIGH ? 0x42000000u : 0x41000000u)
/* What the number has beside the code's value; formats with minima have CODE_OFFSET in what is added. */
#define OPERAND_OFFSET (FORMAT == BLOCKS_Q8_0 ? 32896.0f : FORMAT == BLOCKS_Q6_K ? 96.0f : 24.0f)

/* Byte `byte` of t as a number. */
DEVICE float operand_f32(uint32_t t, uint32_t byte)
{
    return f32_from_bits(byte_permute(t, OPERAND_TOP, FORMAT == BLOCKS_Q8_0 ? 0x7404u + (byte << 4) : 0x7044u + (byte << 8)));
}

/* Which pairs this lane wants. */
struct operand {
    uint32_t place; /* turns a word so that the wanted nibbles have their places; Q8_0: 0 or 1, which bytes; MXFP4: what it shifts by */
    uint32_t high;  /* turns the high bits of row q of an even unit */
    uint32_t mask;  /* BLOCKS_MASK */
};
/* lower: row q stands for row q + 8. mask: blocks_mask. */
DEVICE struct operand operand_begin(bool lower, uint32_t mask)
{
    const uint32_t odd = lane_id() % 2;
    struct operand o;
    o.place = FORMAT == BLOCKS_Q8_0 ? odd : FORMAT == BLOCKS_MXFP4 ? odd * 4 : OPERAND_PLACE - odd * 4;
    o.high = FORMAT == BLOCKS_Q5_K ? 6 - odd - (lower ? 4 : 0) : 5 - odd * 2 - (lower ? 8 : 0);
    o.mask = mask;
    return o;
}

/* One row's pair of both halves of a unit. w: the row's words of the lane that has them, high: its high bits; row: q or q + 8; scale, added: of each half. */
DEVICE void operand_pairs(const struct operand *o, const uint32_t *w, uint32_t high, uint32_t unit, uint32_t row, const float scale[2], const float added[2], uint32_t out[2])
{
    uint32_t t[2], byte = 0;
    if (FORMAT == BLOCKS_MXFP4) {
        UNROLL for (uint32_t half = 0; half < 2; half++)
        {
            const uint32_t code = blocks_pair(w[0] >> o->place, 0, unit, 0, (int)half * 2, o->mask);
            out[half] = ACT_F16 ? blocks_scaled(code, scale[half], 0.0f) : element2_mul(as_element2(code), f32_to_element2(scale[half], scale[half])).bits;
        }
        return;
    }
    if (FORMAT == BLOCKS_Q8_0) {
        t[0] = w[0] ^ 0x80808080u, t[1] = w[BLOCKS_WORDS - 1] ^ 0x80808080u, byte = o->place;
    } else {
        t[0] = (rotate_left(w[0], o->place) & OPERAND_KEEPS) | OPERAND_GETS;
        if (FORMAT == BLOCKS_Q5_K) {
            const uint32_t by = o->high - row * 4 - unit % 2 * 8;
            t[0] |= (rotate_left(high, by) & 0x00400040u) | (rotate_left(high, by + 6) & 0x40004000u);
        }
        if (FORMAT == BLOCKS_Q6_K) {
            const uint32_t by = o->high - row * 8;
            t[0] |= (rotate_left(high, by) & 0x00600060u) | (rotate_left(high, by + 4) & 0x60006000u);
        }
        t[1] = t[0];
    }
    UNROLL for (uint32_t half = 0; half < 2; half++)
    {
        const uint32_t at = FORMAT == BLOCKS_Q8_0 ? byte : half;
        out[half] = f32_to_element2(fma_f32(scale[half], operand_f32(t[half], at), added[half]), fma_f32(scale[half], operand_f32(t[half], at + 2), added[half])).bits;
    }
}

#endif
