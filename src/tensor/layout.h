/* Layout algebra: functions from coordinates to offsets, written shape:stride with nested tuples.
 *
 *     (8,16):(16,1)             coordinate (i,j) -> 16 i + j, an 8 x 16 row-major matrix
 *     ((2,4),8):((1,16),2)      the rows are a nested pair: row r = r0 + 2 r1
 *
 * A coordinate may also be one number: the leftmost mode runs fastest (colexicographic order), so a layout is
 * a function from 0…size-1 to offsets. Past its size it goes on in its last mode of more than one element.
 * The algebra (coalesce, composition, complement, inverses, divide, product, swizzle) is the one of CuTe:
 * "CuTe Layout Representation and Algebra" (C. Cecka, 2025) and the CUTLASS 3 documentation, written anew
 * from its definitions.
 *
 * Layouts are plain values of bounded size: no memory is allocated, and every function that makes one refuses
 * what would exceed LAYOUT_MAX_NODES, LAYOUT_MAX_DEPTH or 63 bits. out may be one of the arguments. Shapes
 * are >= 1, strides >= 0.
 */
#ifndef ROSE_TENSOR_LAYOUT_H
#define ROSE_TENSOR_LAYOUT_H

#include "base/status.h"
#include "base/str.h"

enum { LAYOUT_MAX_NODES = 64, LAYOUT_MAX_DEPTH = 8, LAYOUT_MAX_MODES = 16 };

/* The tree in preorder: a tuple is followed by its children, each with its own subtree. */
struct layout_node {
    int64_t shape, stride; /* of a leaf */
    uint8_t children;      /* 0: a leaf */
    uint8_t span;          /* nodes of this subtree, itself included */
};
struct layout {
    int n; /* nodes in use; node[0] is the root */
    struct layout_node node[LAYOUT_MAX_NODES];
};

/* ---- making and showing (layout.c) ---- */

/* One mode shape:stride. */
enum rose_status layout_leaf(int64_t shape, int64_t stride, struct layout *out, struct rose_error *err);
/* A tuple of n leaves; strides NULL: compact, leftmost mode fastest. */
enum rose_status layout_flat(const int64_t *shapes, const int64_t *strides, int n, struct layout *out,
                             struct rose_error *err);
/* The tuple (modes[0], …, modes[n-1]), 1 <= n <= LAYOUT_MAX_MODES. */
enum rose_status layout_tuple(const struct layout *modes, int n, struct layout *out, struct rose_error *err);
/* "(8,16):(16,1)"; a shape alone, "(8,16)", gets compact strides, leftmost mode fastest. */
enum rose_status layout_parse(struct str text, struct layout *out, struct rose_error *err);
/* Several layouts "8:1, (2,4):(1,8)" between optional < >: a tiler. *n is their number, at most
 * LAYOUT_MAX_MODES. */
enum rose_status layout_parse_tiler(struct str text, struct layout *out, int *n, struct rose_error *err);
void layout_print(const struct layout *a, struct strbuf *out);
bool layout_equal(const struct layout *a, const struct layout *b);

/* Top-level modes; a leaf counts as one. */
int layout_rank(const struct layout *a);
int layout_depth(const struct layout *a);
/* Mode i of the top level (i < rank) as a layout of its own. */
struct layout layout_mode(const struct layout *a, int i);
int64_t layout_size(const struct layout *a);
/* 1 + the largest offset of coordinates within size. */
int64_t layout_cosize(const struct layout *a);
/* Offset of a coordinate >= 0. Offsets past the size may exceed 63 bits; they then wrap. */
int64_t layout_index(const struct layout *a, int64_t coordinate);
/* Offset of one coordinate per top-level mode; n is the rank. */
int64_t layout_index_at(const struct layout *a, const int64_t *coordinates, int n);
/* Leaves from left to right; returns their number. */
int layout_leaves(const struct layout *a, int64_t shapes[LAYOUT_MAX_NODES],
                  int64_t strides[LAYOUT_MAX_NODES]);

/* ---- the algebra (layout_algebra.c) ---- */

/* One level, as few modes as possible, the same function (also past the size). */
void layout_coalesce(const struct layout *a, struct layout *out);
/* Each top-level mode coalesced by itself: the rank stays. */
void layout_coalesce_modes(const struct layout *a, struct layout *out);
void layout_flatten(const struct layout *a, struct layout *out);
/* out(c) = a(b(c)), with b's shape (a leaf of b may become a tuple). Refused when a o b is no layout: the
 * leaves of b must divide, or stay within, the modes of a that they cross, and must not carry from one of
 * those into the next together. */
enum rose_status layout_compose(const struct layout *a, const struct layout *b, struct layout *out,
                                struct rose_error *err);
/* a's top-level mode i composed with tiler[i]; modes past n stay. */
enum rose_status layout_compose_modes(const struct layout *a, const struct layout *tiler, int n,
                                      struct layout *out, struct rose_error *err);
/* The increasing layout of the offsets that a leaves out: (a, out) reaches 0…max(total, cosize a)-1 without
 * meeting twice. */
enum rose_status layout_complement(const struct layout *a, int64_t total, struct layout *out,
                                   struct rose_error *err);
/* The largest out with a(out(i)) == i for all i < size of out. */
void layout_right_inverse(const struct layout *a, struct layout *out);
/* out(a(i)) == i for all i < size of a; refused when a is not injective with a complement. */
enum rose_status layout_left_inverse(const struct layout *a, struct layout *out, struct rose_error *err);
/* a o (b, complement of b in a's size): mode 0 is the tile that b picks, mode 1 runs over the tiles. */
enum rose_status layout_logical_divide(const struct layout *a, const struct layout *b, struct layout *out,
                                       struct rose_error *err);
/* Each top-level mode divided by tiler[i], tiles gathered: ((tile_0,…,tile_n-1),(rest_0,…,rest_n-1,
 * mode_n,…)). */
enum rose_status layout_zipped_divide(const struct layout *a, const struct layout *tiler, int n,
                                      struct layout *out, struct rose_error *err);
/* The same with the rests as modes of their own: ((tile_0,…),rest_0,rest_1,…). */
enum rose_status layout_tiled_divide(const struct layout *a, const struct layout *tiler, int n,
                                     struct layout *out, struct rose_error *err);
/* (a, a* o b): mode 0 is a, mode 1 repeats it in the order b. */
enum rose_status layout_logical_product(const struct layout *a, const struct layout *b, struct layout *out,
                                        struct rose_error *err);
/* The product with modes paired by rank: ((a_0,b_0),(a_1,b_1)) keeps tiles together… */
enum rose_status layout_blocked_product(const struct layout *a, const struct layout *b, struct layout *out,
                                        struct rose_error *err);
/* …and ((b_0,a_0),(b_1,a_1)) interleaves them. */
enum rose_status layout_raked_product(const struct layout *a, const struct layout *b, struct layout *out,
                                      struct rose_error *err);

/* ---- swizzles and what the hardware makes of a layout (layout_map.c) ---- */

/* Swizzle<bits,base,shift>: bits [base+shift, base+shift+bits) of an offset are XORed onto bits [base,
 * base+bits); shift < 0 exchanges the two fields. |shift| >= bits, so that it is its own inverse.
 *
 *     offset   … Y Y Y . . Z Z Z b b b b     Z ^= Y       here bits 3, base 4, shift 5
 */
struct layout_swizzle {
    uint8_t bits, base;
    int8_t shift;
};
enum rose_status layout_swizzle_check(struct layout_swizzle s, struct rose_error *err);
int64_t layout_swizzle_apply(struct layout_swizzle s, int64_t offset);
/* "<3,4,3>". */
enum rose_status layout_swizzle_parse(struct str text, struct layout_swizzle *out, struct rose_error *err);

/* swizzle o (offset + layout). */
struct layout_swizzled {
    struct layout_swizzle swizzle;
    int64_t offset;
    struct layout layout;
};
int64_t layout_swizzled_index(const struct layout_swizzled *a, int64_t coordinate);
/* (swizzle o offset o layout) o b. */
enum rose_status layout_swizzled_compose(const struct layout_swizzled *a, const struct layout *b,
                                         struct layout_swizzled *out, struct rose_error *err);

/* Elements that the coordinate order visits one after the other in memory, from coordinate 0. */
int64_t layout_contiguous(const struct layout *a);
/* Largest v with a(r(i)) == i == b(r(i)) for all i < v, for r the right inverse of b: what one vector copy
 * from a to b may carry. A lower bound where a and the inverse do not compose. */
int64_t layout_common_vector(const struct layout *a, const struct layout *b);
/* Widest access in elements, a power of two: contiguous in a, all its vectors aligned when the base is
 * aligned to base_bytes, and at most max_bytes. elem_bits may be 4. At least 1. */
int layout_vector_width(const struct layout *a, int elem_bits, int base_bytes, int max_bytes);

/* One warp access to shared memory: lane -> offset in elements of elem_bytes, each lane `vector` elements
 * wide. */
struct layout_access {
    struct layout lanes; /* size 1…32 */
    int elem_bytes, vector;
};
/* 32 banks of 4 bytes. Lanes are served in groups of 128 bytes (4-byte accesses: 32 lanes, 8: 16, 16: 8); a
 * group takes as many cycles as one bank has different words to give; equal words are broadcast. bytes is 1,
 * 2, 4, 8 or 16. Returns the cycles. */
int layout_bank_cycles(const int64_t *byte_offset, int lanes, int bytes);
/* Cycles of an access under a byte swizzle, and the least possible. */
enum rose_status layout_access_cycles(const struct layout_access *access, struct layout_swizzle s,
                                      int *cycles, int *ideal, struct rose_error *err);
/* The smallest swizzle of byte offsets (fewest bits, then least shift) for which the accesses to one buffer
 * take the fewest cycles. conflicts: cycles over the ideal that remain, 0 when it is conflict-free. */
enum rose_status layout_swizzle_find(const struct layout_access *accesses, int n, struct layout_swizzle *out,
                                     int *conflicts, struct rose_error *err);

/* A TMA tensor map and its box. Dimension 0 is contiguous (its stride, elem_bytes, is implied). */
struct layout_tma {
    int rank;
    int64_t dim[5];          /* elements of the tensor */
    int64_t stride_bytes[5]; /* multiples of 16, [0] is elem_bytes */
    int box[5];              /* elements of one copy, each <= 256 */
    int64_t copies[5];       /* boxes that make the tile, per dimension */
    int swizzle_bytes;       /* 0, 32, 64 or 128: how the hardware permutes 16-byte chunks of box rows */
};
/* Box for tiles of tile[i] elements of each top-level mode of a tensor. swizzle_bytes 0, 32, 64 or 128: boxes
 * are then at most so wide in dimension 0. Refused with the reason when TMA cannot do it (CUDA driver API,
 * cuTensorMapEncodeTiled). */
enum rose_status layout_tma_box(const struct layout *tensor, int elem_bytes, const int64_t *tile, int modes,
                                int swizzle_bytes, struct layout_tma *out, struct rose_error *err);

/* ---- on the terminal (layout_draw.c) ---- */

struct layout_draw {
    bool color;                    /* ANSI: one colour a vector of `vector` offsets */
    int vector;                    /* 0: 8 */
    struct layout_swizzle swizzle; /* applied to the offsets; bits 0: none */
};
/* Size, cosize, coalesced form, complement, inverses, vector, one a line. */
void layout_draw_facts(const struct layout *a, struct strbuf *out);
/* A table of offsets: mode 0 downwards, mode 1 across, further modes one table each; lines where nested modes
 * wrap. At most 64 x 64 cells and 16 tables are drawn, and what was left out is said. */
void layout_draw_table(const struct layout *a, const struct layout_draw *options, struct strbuf *out);
/* The body of `rose kernels layout TEXT [--draw]`: "LAYOUT" or "<b,m,s> LAYOUT" (swizzled). */
enum rose_status layout_draw_command(struct str text, bool draw, bool color, struct strbuf *out,
                                     struct rose_error *err);

#endif
