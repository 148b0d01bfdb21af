/* Which CUDA kernel a matrix product gets: few rows gemv_rows (weights streamed once), more gemm_rows (tiles in shared memory). */
#ifndef ROSE_OPS_MATMUL_PLAN_H
#define ROSE_OPS_MATMUL_PLAN_H

#include "kernels/params/gemm.h"
#include "ops/matmul.h"
#include "ops/plan.h"
#include "tensor/layout.h"

struct matmul_shape {
    int64_t rows; /* to plan for; any number runs */
    int32_t k;
    int parts;
    int32_t n[GEMM_PARTS]; /* out-features of each */
    enum op_activation act;
    bool gated; /* two parts of equal n: one result */
    bool bias, accumulate;
    bool out_f32;       /* y is F32, else as x */
    bool f16;           /* x and weights are F16, else BF16 */
    bool pairs;         /* two neighbours of y may be stored at once: even offsets and strides */
    bool rows16;        /* y's rows are 16-byte aligned */
    bool tma;           /* TMA can load x and the weights; of a gated pair the up matrix lies behind the gate */
    bool deterministic; /* a row's bits must not depend on `rows` */
    bool norm;          /* x is normalised inside the product (RMSNorm): matmul_plan_folds says where that is possible */
    float norm_eps, norm_offset;
    int blocks_format;  /* 1 + BLOCKS_* of kernels/params/matmul_blocks.h: the weights are in that format; 0: as x */
    /* Measured choices; 0: the plan's own. */
    int tile; /* 1 + index into gemm_rows' tiles (weights in blocks too), 11 + into gemm_wgmma's, 21 + into gemv_wgmma's; 41, 42: matmul_blocks_ring of 8, 12 warps, 43:
               * matmul_blocks_few; MATMUL_TILE_BLOCKS_* */
    int warps, depth, blocks, splits, teams; /* gemv_rows: warps a tile, steps in flight a warp, blocks an SM, pieces of k, tiles side by side */
};

enum { MATMUL_PLAN_STREAMS = 10 }; /* in gemv_wgmma's table */
/* matmul_shape.tile, op_matmul.tile: weights in blocks by matmul_blocks_wgmma with the plan's columns; with 32, 64, 128, 192, 256, or with 12 warps 32, 64, in whole
 * tiles (+ 2 i) or equal runs (+ 2 i + 1); by panels (op_matmul's alone). */
enum { MATMUL_TILE_BLOCKS_WGMMA = 44, MATMUL_TILE_BLOCKS_PANELS = 47, MATMUL_TILE_BLOCKS_FORMS = 50, MATMUL_BLOCKS_FORMS = 7 };

struct matmul_plan {
    struct plan plan;
    int32_t columns;         /* of y a tile */
    int32_t tiles;           /* of columns, of all parts */
    int32_t splits, chunks;  /* gemv_rows: pieces of k, of `chunks` steps of 64 */
    int32_t group;           /* gemv_rows: rows of x a group of blocks */
    int32_t box, box_x;      /* kernels with TMA: rows of a box of weights and of x; 0: no tensor maps */
    bool interleaved;        /* a gated pair in one map: 8 rows of each in turn */
    bool x_alone;            /* no maps of the weights */
    size_t work_bytes;       /* a group's sums between blocks; 0: none */
    size_t counter_bytes;    /* a group's counters, zero before the first launch */
};

enum rose_status matmul_plan_make(const struct matmul_shape *shape, const struct device_info *device, struct matmul_plan *out,
                                  struct rose_error *err);
/* Can the product normalise its rows itself, and is that expected to be faster than a launch before it? norm may be set or not. */
bool matmul_plan_folds(const struct matmul_shape *shape, const struct device_info *device);
/* What a tensor map covers: part -1 x with `rows` rows, else weight `part`. Returns where it begins. */
const void *matmul_plan_box(const struct matmul_plan *plan, const struct gemm_params *params, int part, int64_t rows,
                            struct layout_tma *out);
/* Fills everything that follows from the plan; part[].n is there. */
void matmul_plan_params(const struct matmul_plan *plan, struct gemm_params *params);

/* What the plans' files share: the epilogue's constants; tiles of `columns` of all parts; less than half of an SM's shared memory, and
 * what a block asks for so that it has its SM for itself. */
void matmul_plan_epilogue(const struct matmul_shape *shape, struct plan *out);
int32_t matmul_plan_tiles(const struct matmul_shape *shape, int columns);
/* Of tiles of 16x64, 64x64, 64x128 and 128x128 the largest whose blocks fill the SMs; the smaller ones read each operand more often. */
int matmul_plan_tile(const struct matmul_shape *shape, const struct device_info *device);
/* A plan of tiles of bm rows x bn weight rows by wm x wn warps with `stages` steps in flight: what gemm_rows and gemm_fp8 have alike. */
void matmul_plan_in_tiles(const struct matmul_shape *shape, const char *kernel, int bm, int bn, int wm, int wn, int stages, struct matmul_plan *out);
int64_t matmul_plan_shared(const struct device_info *device);
uint32_t matmul_plan_alone(const struct device_info *device, uint32_t bytes);
/* The plan of gemm_rows; its time with weights in blocks is the caller's. */
void matmul_plan_gemm(const struct matmul_shape *shape, const struct device_info *device, struct matmul_plan *out);
/* The plan of gemv_rows and of kernels like it, which take 128 bytes of a weight row a step (k counts units of two bytes), and x_bytes of
 * a row of x. False where it does not fit: x is too wide for the shared memory. */
bool matmul_plan_few(const struct matmul_shape *shape, const struct device_info *device, const char *kernel, int64_t x_bytes, struct matmul_plan *out);

#endif
