/* From GGUF's blocks to the order in which the CUDA kernels read them (kernels/params/matmul_blocks.h): bits move, none is added. */
#include <string.h>

#include "kernels/params/matmul_blocks.h"
#include "ops/matmul_blocks.h"

int matmul_blocks_format(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_Q4_0: return BLOCKS_Q4_0;
    case DTYPE_Q4_1: return BLOCKS_Q4_1;
    case DTYPE_Q8_0: return BLOCKS_Q8_0;
    case DTYPE_MXFP4: return BLOCKS_MXFP4;
    case DTYPE_Q4_K: return BLOCKS_Q4_K;
    case DTYPE_Q5_K: return BLOCKS_Q5_K;
    case DTYPE_Q6_K: return BLOCKS_Q6_K;
    default: return -1;
    }
}

size_t matmul_blocks_tile_bytes(const struct tensor *source)
{
    return BLOCKS_TILE * dtype_row_bytes(source->dtype, (size_t)tensor_cols(source));
}

size_t matmul_blocks_bytes(const struct tensor *source)
{
    int64_t n = tensor_rows(source), k = tensor_cols(source);
    if (matmul_blocks_format(source->dtype) < 0 || n <= 0 || k <= 0 || n > INT32_MAX - BLOCKS_TILE || k > INT32_MAX) return 0;
    size_t tile = matmul_blocks_tile_bytes(source), tiles = ((size_t)n + BLOCKS_TILE - 1) / BLOCKS_TILE;
    return tile > SIZE_MAX / tiles ? 0 : tile * tiles;
}

/* ---- codes ---- */

/* Nibbles of 32 elements in GGUF's order: 0 .. 15 are the low ones of 16 bytes. */
static void nibbles(const uint8_t *qs, uint8_t code[32])
{
    for (int i = 0; i < 16; i++) code[i] = qs[i] & 15, code[i + 16] = qs[i] >> 4;
}

/* The codes of unit `unit` of a block; in Q8_0 the signed bytes. */
static void unit_codes(int format, const uint8_t *b, int unit, uint8_t code[32])
{
    switch (format) {
    case BLOCKS_Q4_0: nibbles(b + 2, code); return;
    case BLOCKS_Q4_1: nibbles(b + 4, code); return;
    case BLOCKS_MXFP4: nibbles(b + 1, code); return;
    case BLOCKS_Q8_0: memcpy(code, b + 2, 32); return;
    case BLOCKS_Q6_K:
        for (int i = 0; i < 32; i++) {
            int e = unit * 32 + i;
            code[i] = (uint8_t)((b[e / 128 * 64 + e % 64] >> (e & 64 ? 4 : 0) & 15) | (b[128 + e / 128 * 32 + e % 32] >> (e / 32 % 4 * 2) & 3) << 4);
        }
        return;
    default: /* Q4_K, Q5_K */
        for (int i = 0; i < 32; i++) {
            code[i] = b[(format == BLOCKS_Q5_K ? 48 : 16) + unit / 2 * 32 + i] >> (unit & 1 ? 4 : 0) & 15;
            if (format == BLOCKS_Q5_K) code[i] |= (uint8_t)((b[16 + i] >> unit & 1) << 4);
        }
    }
}

/* Element e of lane c of a unit. */
static int element(int c, int e) { return (e < 4 ? 0 : 16) + 4 * c + e % 4; }

static void or32(uint8_t *at, uint32_t bits)
{
    uint32_t v;
    memcpy(&v, at, 4);
    v |= bits;
    memcpy(at, &v, 4);
}

/* Codes of row q + 8 row of unit `unit` into the planes of a chunk of `units`. */
static void put_codes(int format, uint8_t *chunk, int units, int unit, int q, int row, const uint8_t code[32])
{
    uint8_t *high = chunk + units * BLOCKS_LOW_BYTES(format);
    for (int c = 0; c < 4; c++) {
        int lane = q * 4 + c;
        if (format == BLOCKS_Q8_0) {
            uint8_t *to = chunk + unit * 512 + lane * 16 + row * 8;
            for (int e = 0; e < 8; e++) to[e / 4 * 4 + e % 2 * 2 + e / 2 % 2] = code[element(c, e)];
            continue;
        }
        uint32_t low = 0, upper = 0;
        for (int e = 0; e < 8; e++) {
            uint32_t v = code[element(c, e)];
            low |= (v & 15) << (e / 2 * 4 + e % 2 * 16);
            if (format == BLOCKS_Q5_K) upper |= v >> 4 << (unit % 2 * 8 + row * 4 + e / 2 + e % 2 * 16);
            if (format == BLOCKS_Q6_K) upper |= v >> 4 << (row * 8 + e / 2 * 2 + e % 2 * 16);
        }
        memcpy(chunk + unit * 256 + lane * 8 + row * 4, &low, 4);
        if (format == BLOCKS_Q5_K) or32(high + unit / 2 * 128 + lane * 4, upper);
        if (format == BLOCKS_Q6_K) or32(high + unit * 128 + lane * 4, upper);
    }
}

/* ---- scales ---- */

/* Scale and minimum j of Q4_K's 12 bytes: see tensor/dtype.c. */
static void k_scale_min(const uint8_t *s, int j, uint32_t *scale, uint32_t *min)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/* The scales of a block (one unit, or a chunk's eight) of row q + 8 row. */
static void put_scales(int format, uint8_t *chunk, int units, int unit, int q, int row, const uint8_t *b)
{
    uint8_t *s = chunk + units * (BLOCKS_LOW_BYTES(format) + BLOCKS_HIGH_BYTES(format));
    uint32_t w[3] = {0, 0, 0};
    switch (format) {
    case BLOCKS_Q4_0:
    case BLOCKS_Q8_0: memcpy(s + unit * 32 + q * 4 + row * 2, b, 2); return;
    case BLOCKS_Q4_1: memcpy(s + unit * 64 + q * 8 + row * 4, b, 4); return;
    case BLOCKS_MXFP4: s[unit * 16 + q * 2 + row] = b[0]; return;
    case BLOCKS_Q6_K:
        memcpy(s + q * 32 + row * 16, b + 192, 16);
        memcpy(s + 256 + q * 4 + row * 2, b + 208, 2);
        return;
    default:
        for (int j = 0; j < 8; j++) {
            uint32_t scale, min;
            k_scale_min(b + 4, j, &scale, &min);
            w[j / 4] |= (scale & 15) << (j % 4 * 4) | (min & 15) << (j % 4 * 4 + 16);
            w[2] |= scale >> 4 << (j * 2) | min >> 4 << (j * 2 + 16);
        }
        memcpy(s + q * 32 + row * 16, b, 4);
        memcpy(s + q * 32 + row * 16 + 4, w, 12);
    }
}

void matmul_blocks_rows(const struct tensor *source, int64_t row, int64_t rows, void *out)
{
    int format = matmul_blocks_format(source->dtype), per = BLOCKS_SUPER(format) ? BLOCKS_CHUNK : 1; /* units a block */
    size_t tile = matmul_blocks_tile_bytes(source), row_bytes = tile / BLOCKS_TILE, block_bytes = dtype_info(source->dtype)->bytes;
    int64_t all = tensor_cols(source) / BLOCKS_UNIT;
    memset(out, 0, tile * (size_t)((rows + BLOCKS_TILE - 1) / BLOCKS_TILE));
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *block = (const uint8_t *)source->data + (size_t)(row + r) * row_bytes;
        uint8_t *chunk = (uint8_t *)out + (size_t)(r / BLOCKS_TILE) * tile;
        int q = (int)(r % 8), upper = (int)(r / 8 % 2);
        for (int64_t u = 0; u < all; u++) {
            int unit = (int)(u % BLOCKS_CHUNK), units = (int)ROSE_MIN(all - (u - unit), (int64_t)BLOCKS_CHUNK);
            uint8_t code[32];
            unit_codes(format, block, unit % per, code);
            put_codes(format, chunk, units, unit, q, upper, code);
            if (unit % per == 0) put_scales(format, chunk, units, unit, q, upper, block);
            if (unit % per == per - 1) block += block_bytes;
            if (unit == BLOCKS_CHUNK - 1) chunk += BLOCKS_CHUNK_BYTES(format);
        }
    }
}
