/* Weights as the CPU products want them: 16 out-features side by side, so that a vector lane is an
 * out-feature.
 *
 * A weight [n, k] is ceil(n / 16) groups of 16 rows (missing rows are zero), each group one contiguous run of
 * memory:
 *
 *     group    | scales of all blocks, padded to 64 | codes of block 0 | codes of block 1 | …
 *
 * A block is 16 rows x 32 columns of codes, small unsigned integers. A quad is columns 4j…4j+3 of the block
 * (j < 8); a 64-byte vector holds one quad a row (byte 4r + b: row r, column 4j + b), what vpdpbusd
 * multiplies with a broadcast quad of activations. Stored bits (v, j vectors and quads; every vector is 64
 * bytes with the quads' byte order):
 *
 *     8 bits   vector j: quad j
 *     4 bits   vector j < 4: low nibble quad j, high nibble quad j + 4
 *     5 bits   as 4 bits, then one vector: bit j is the fifth bit of quad j
 *     6 bits   as 4 bits, then vector v < 2: bits 2t, 2t+1 are the upper two of quad 4v + t
 *     2 bits   vector v < 2: bits 2t, 2t+1 are quad 4v + t
 *     3 bits   as 2 bits, then one vector: bit j is the third bit of quad j
 *
 * The value is scale * (code - offset) + min, with scale and min per row and 32 or 16 columns. Scales stand
 * in the format's own precision, a record of 16 rows at a time (enum cpu_scales). Float formats have no
 * scales:
 *
 *     F32, F16   [k][16]        BF16   [k / 2][16][2]        k padded to 32 with zeros
 */
#ifndef ROSE_KERNELS_CPU_WEIGHT_H
#define ROSE_KERNELS_CPU_WEIGHT_H

#include "tensor/dtype.h"

enum { CPU_GROUP = 16, CPU_BLOCK = 32 };

/* What the inner products tell apart: bits a code, M: there are mins. */
enum cpu_kernel {
    CPU_K4,  /* offset 8 */
    CPU_K4M, /* no offset */
    CPU_K5,  /* offset 16 */
    CPU_K5M,
    CPU_K8,  /* offset 128 */
    CPU_KT,  /* four bits that index a table of 16 values + 128, offset 128 */
    CPU_K2M, /* groups of 16 */
    CPU_K3,  /* groups of 16, offset 4 */
    CPU_K6,  /* groups of 16, offset 32 */
    CPU_K8Z, /* K8 times activations with zero points (matmul.h); weights are packed as K8 */
    CPU_KERNELS,
    CPU_F32 = CPU_KERNELS,
    CPU_F16,
    CPU_BF16,
    CPU_E4M3, /* weight_fp8.h */
};

/* Records of scales; [16] runs over the rows of the group. */
enum cpu_scales {
    CPU_SCALES_NONE,
    CPU_SCALES_D,     /* a block: d f16[16] */
    CPU_SCALES_DM,    /* a block: d f16[16], m f16[16] */
    CPU_SCALES_E8M0,  /* a block: u8[16], half of 2^(e - 127) */
    CPU_SCALES_K_SM,  /* 8 blocks: d f16[16], dmin f16[16], then a block: scale u8[16], min u8[16] */
    CPU_SCALES_K_NIB, /* 8 blocks: d f16[16], dmin f16[16], then 16 columns: scale | min << 4 u8[16] */
    CPU_SCALES_K_S16, /* 8 blocks: d f16[16], then 16 columns: scale s8[16] */
    CPU_SCALES_K_S32, /* 8 blocks: d f16[16], then a block: scale s8[16] */
    CPU_SCALES_F32,   /* 4 blocks: f32[16] */
};

struct cpu_format {
    enum cpu_kernel kernel;
    enum cpu_scales scales;
    int blocks;       /* 32-column blocks a record of scales covers: 1, 4 or 8 */
    int scale_bytes;  /* of a record */
    int code_bytes;   /* of a block, 16 rows x 32 columns */
    int offset_shift; /* offset = 1 << offset_shift; -1: none */
    int group;        /* columns that share a scale: 32 or 16 */
    bool min;
    const uint8_t *table; /* u8[16], CPU_KT */
};

/* NULL: not a format that products read. */
const struct cpu_format *cpu_format(enum dtype dtype);
/* What weights of kernel CPU_K8 are to activations with zero points. */
extern const struct cpu_format cpu_format_k8z;

/* A weight in this layout. */
struct cpu_weight {
    const struct cpu_format *format;
    const uint8_t *data;
    int32_t n, k;
    size_t group_bytes, codes_at; /* a group's bytes, and where its codes begin */
};
/* Fill *out; false when the format cannot hold [n, k] or its size overflows. data may be NULL. */
bool cpu_weight_init(enum dtype dtype, int64_t n, int64_t k, const void *data, struct cpu_weight *out);
static inline size_t cpu_weight_groups(const struct cpu_weight *w)
{
    return ((size_t)w->n + CPU_GROUP - 1) / CPU_GROUP;
}
static inline int cpu_weight_blocks(const struct cpu_weight *w)
{
    return (w->k + CPU_BLOCK - 1) / CPU_BLOCK;
}
/* false on overflow of 63 bits; cannot happen after a successful init. */
static inline size_t cpu_weight_bytes(const struct cpu_weight *w)
{
    return cpu_weight_groups(w) * w->group_bytes;
}

/* Pack groups [begin, end) from rows as in the file (source: [n, k] of dtype, not of F8_E4M3: weight_fp8_pack) to data (the whole weight's
 * memory). */
void cpu_weight_pack(const struct cpu_weight *w, enum dtype dtype, const void *source, void *data,
                     size_t begin, size_t end);
/* Row r as float32 [k], bit-equal to dtype_decode of the file's row. */
void cpu_weight_row(const struct cpu_weight *w, int32_t row, float *out);

/* Zero points that activations choose from, in steps: 0, 32, 64, 96. */
enum { CPU_ZERO_POINTS = 4, CPU_ZERO_STEP = 32 };
/* Floats that cpu_weight_expand_scales writes a block: 16 scales and mins per group of columns. */
static inline int cpu_format_scale_floats(const struct cpu_format *f)
{
    if (f->kernel == CPU_K8Z) return 16 * (1 + CPU_ZERO_POINTS); /* 32-bit numbers: S f32[16], then sums */
    return 16 * (CPU_BLOCK / f->group) * (f->min ? 2 : 1);
}
/* A group's scales as float32, exact. A block has S[16] (M[16]) with groups of 32 columns, S0[16] S1[16]
 * (M0[16] M1[16]) with 16: value = S * (code - offset) + M. src: the group's first record. */
void cpu_weight_expand_scales(const struct cpu_format *f, const uint8_t *src, int blocks, float *dst);
/* CPU_K8Z: a block has S[16] and, for each zero point z, the integers z * sum of (code - offset) [16]; src: the group. */
void cpu_weight_expand_zero(const uint8_t *src, int blocks, float *dst);
/* Where a group's codes begin, of a format with a record of 16 halves a block. */
static inline size_t cpu_weight_k8_codes(int blocks)
{
    return ((size_t)blocks * 32 + 63) / 64 * 64;
}

#endif
