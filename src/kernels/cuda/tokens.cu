// arch: sm_80 sm_89 sm_90a sm_100a sm_120a
/* A step's input tokens out of the sequences' histories; rows of no sequence (row_history < 0) get token 0.
 *
 * Constants: THREADS. */
#include "kernels/cuda/common/rose.cuh"
#include "kernels/params/tokens.h"

KERNEL(tokens, struct tokens_params, p, THREADS, 1)
{
    uint32_t t = block_x() * THREADS + thread_x();
    grid_dependency_wait();
    int32_t token = 0;
    if (t < p.rows) {
        int64_t from = ((const int64_t *)p.row_history)[t];
        if (from >= 0) token = ((const int32_t *)p.history)[from + ((const int32_t *)p.positions)[t]];
    }
    grid_dependency_launch();
    if (t < p.rows) ((int32_t *)p.tokens)[t] = token;
}
