/* Experts whose weights stay as their file has them on CUDA: GGUF's block formats and FP8 (kernels/cuda/moe_coded.cu), and panels of blocks decoded to
 * bf16 for many rows (moe_panel.cu). What op_moe_mlp records for them; its other products are moe_mlp_cuda.c's. */
#ifndef ROSE_OPS_MOE_CODED_CUDA_H
#define ROSE_OPS_MOE_CODED_CUDA_H

#include "kernels/params/moe_coded.h"
#include "ops/moe_mlp_cuda.h"

/* moe_mlp_shape's up_format and down_format of these weights: 0: bf16, 1 + FORMAT, or MOE_MIXED where gate and up differ. */
enum { MOE_MIXED = -1 };
int moe_coded_format(const struct op_weight *weight);

/* The products of a shape with such formats: which kernel the bf16 ones have, and the rows of all tiles. */
struct moe_mlp_form moe_coded_form(const struct moe_mlp_shape *shape, const struct device_info *device);
/* moe_coded's plan of a product. */
enum rose_status moe_coded_plan(const struct moe_mlp_shape *shape, bool down, const struct device_info *device, struct plan *out, struct rose_error *err);

/* Bytes of 16 rows of a chunk: 256 of k of blocks, 128 codes of FP8. */
int moe_coded_chunk_bytes(int format);
/* Fills bytes and operations of such a product, and the time its bytes take. */
void moe_coded_cost(const struct moe_mlp_shape *shape, bool down, const struct device_info *device, struct plan *out);

struct moe_panel_shape {
    int format;           /* BLOCKS_* */
    int32_t n, k, experts; /* of the panel */
    bool f16;              /* what rows become, else bf16 */
};
enum rose_status moe_panel_plan(const struct moe_panel_shape *shape, const struct device_info *device, struct plan *out, struct rose_error *err);

/* Record the product in the formats of op's weights. x, y, at: as moe_mlp_cuda.c's record functions. */
enum rose_status moe_coded_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *shape, bool down, const struct moe_mlp_places *at,
                                  program_buffer_id x, program_buffer_id y, struct rose_error *err);
/* Decode panels of experts, and each panel's product by the kernels of bf16. */
enum rose_status moe_panel_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *shape, bool down, const struct moe_mlp_places *at,
                                  program_buffer_id x, program_buffer_id y, struct rose_error *err);

/* Blocks with many tokens on Hopper: decoded within the product, where panels of all experts would cost more than they spare. */
bool moe_blocks_wgmma_fits(const struct moe_mlp_shape *shape, bool down, const struct device_info *device);
enum rose_status moe_blocks_wgmma_plan(const struct moe_mlp_shape *shape, bool down, const struct device_info *device, struct plan *out, struct rose_error *err);
enum rose_status moe_blocks_wgmma_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *shape, bool down, const struct moe_mlp_places *at,
                                         program_buffer_id x, program_buffer_id y, struct rose_error *err);

/* FP8 with many tokens on Hopper (moe_fp8_cuda.c): activations are quantised, and both products multiply codes. */
bool moe_fp8_fits(const struct moe_mlp_shape *shape, const struct device_info *device);
/* shape->tile: 64, 128. */
enum rose_status moe_fp8_plan(const struct moe_mlp_shape *shape, bool down, const struct device_info *device, struct plan *out, struct rose_error *err);
void moe_fp8_box(const struct moe_mlp_shape *shape, bool down, int64_t stride, struct layout_tma *out); /* stride: bytes between experts */
/* rows: bf16 [places, hidden], the experts' results. */
enum rose_status moe_fp8_record(struct program *program, const struct op_moe_mlp *op, const struct moe_mlp_shape *shape, const struct moe_mlp_places *at, program_buffer_id rows,
                                struct rose_error *err);

#endif
