/* Plans of CUDA kernels: pure functions of (shape, dtype, device) to a printable struct.
 *
 * Constants are the key: they and the architecture decide the code. Geometry (grid, blocks) follows the
 * number of rows and is in no key. Every plan states the bytes it must move, the operations it must do and
 * the time it expects. */
#ifndef ROSE_OPS_PLAN_H
#define ROSE_OPS_PLAN_H

#include "base/str.h"
#include "device/device.h"
#include "device/program.h"
#include "jit/jit.h"

enum { PLAN_MAX_CONSTANTS = 32 };

struct plan_constant {
    const char *name; /* static */
    int64_t value;
    char text[24]; /* not empty: what stands for the value (floats) */
};

struct plan {
    const char *kernel; /* kernels/cuda/<kernel>.cu, and its entry */
    struct plan_constant constants[PLAN_MAX_CONSTANTS];
    int count;
    /* Geometry: grid.x = ceil(rows * times / per), block threads. */
    uint32_t block, shared_bytes, cluster;
    int64_t rows;
    int32_t times, per;
    bool cooperative;
    bool values; /* moves what other kernels of a step leave and take, not weights nor a cache */
    bool tiles; /* grid.x = times * ceil(rows / per): whole tiles of rows */
    /* What it must do, and how long that should take. */
    double bytes, ops, limit_us, predicted_us;
};

void plan_int(struct plan *plan, const char *name, int64_t value);
void plan_f32(struct plan *plan, const char *name,
              float value); /* as a float literal that reads back the same bits */
/* ACT_F16, for kernels whose activations and weights are f16; bf16 has no such constant (kernels/cuda/common/element.cuh). */
void plan_element(struct plan *plan, bool f16);
int64_t plan_get(const struct plan *plan, const char *name); /* 0 when absent */

uint32_t plan_grid(const struct plan *plan, int64_t rows);

/* Vector bytes: 32 where one instruction moves them (sm_100 and later) and `bytes` is a multiple, 16 where it
 * is one of 16, else 0. */
int plan_vector(const struct device_info *device, int64_t bytes);
/* The architecture as kernels know it: 900 for "sm_90a". */
int plan_arch(const struct device_info *device);
/* Fills limit_us and predicted_us of a kernel that streams plan->bytes once; extra_us: what its reductions
 * and dependent loads add to one pass. Fitted to clones in graphs on an H200: a node takes 0.9 us; from
 * memory bytes move at 0.885 of its rate behind a ramp of 0.5 us; what stays in L2 at 1.25 of it. */
void plan_stream(struct plan *plan, const struct device_info *device, double extra_us);
/* Rows of `cols` elements in `pieces` of threads x per vectors of `vec` bytes, a group of threads a piece: the constants N VEC_BYTES TPR RPB PER PIECES and
 * the geometry. A warp a block while there are fewer warps than SMs, then larger ones. */
void plan_pieces(struct plan *plan, const struct device_info *device, int64_t rows, int32_t cols, int vec, int threads, int per, int pieces);
/* STREAM (kernels/cuda/common/vec.cuh) of a kernel with vectors of `vec` bytes that reads and writes plan->bytes once: both leave L2
 * first where they are more than three quarters of it. On an H200 32768 rows of 4096 columns: RMSNorm +1.5 % over a clone instead of +5.9, with a
 * residual +2.4 instead of +6.6. choice: measured, 1 to 3: those bits, -1: none; 0: the plan's own. */
void plan_once(struct plan *plan, const struct device_info *device, int vec, int choice);
/* What `cells` elements take beside their bytes, for plan_stream's extra_us, in kernels that issue more than the memory hides: `ps`
 * picoseconds each on an H200's 132 SMs. */
double plan_issue_us(const struct device_info *device, double cells, double ps);

/* "norm ADD=0 ... | grid 132 block 128 | 8.4 MB, 2.0 us of 1.9" */
void plan_print(const struct plan *plan, struct strbuf *out);
/* "ROSE_ARCH=900 N=4096 ...": for tests/simt. False when it does not fit. */
bool plan_defines(const struct plan *plan, const struct device_info *device, char *out, size_t size);
/* Ask jit for the kernel (compiled by the next jit_compile_all). */
enum rose_status plan_request(const struct plan *plan, struct jit *jit, const char *arch,
                              const struct jit_kernel **out, struct rose_error *err);
/* A launch of it: kernel, geometry and cost, rows counted by `rows`. The caller adds params and uses. */
enum rose_status plan_launch(const struct plan *plan, struct jit *jit, struct device *device,
                             enum extent rows, struct program_launch *out, struct rose_error *err);

/* The same for a launch that goes into a program, with the device's own jit; rows_param: offset of the u32
 * that takes the rows. */
enum rose_status plan_record(const struct plan *plan, struct program *program, enum extent rows,
                             size_t rows_param, struct program_launch *out, struct rose_error *err);
/* What program_launch.plan points to where the device keeps plans; lives as long as the program. */
struct planned {
    struct plan plan;
    const struct jit_kernel *kernel;
};
/* Compile what drafts (program.draft) requested, in parallel. */
enum rose_status plan_compile(struct device *device, struct rose_error *err);
/* Rows that a program's plans are made for. */
int64_t plan_rows(const struct program *program, enum extent rows);

#endif
