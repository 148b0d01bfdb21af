#include "ops/fetch.h"

#include <stddef.h>

#include "ops/plan.h"

enum { THREADS = 256, BLOCKS = FETCH_WARPS / (THREADS / 32) };

enum rose_status op_fetch(struct program *program, const struct op_fetch *op, struct rose_error *err)
{
    if (program->device->info.kind != DEVICE_CUDA) return status_set(err, ROSE_UNSUPPORTED, "fetch: only CUDA devices fetch their inputs");
    if (!op->segments || !op->block) return status_set(err, ROSE_INTERNAL, "fetch: no segments or no block");
    struct fetch_params p = {.segments = op->segments, .block = op->block, .one = 1};
    struct program_launch l = {.name = "fetch", .layer = -1, .params = &p, .params_bytes = sizeof p};
    struct plan plan = {.kernel = "fetch", .rows = 1, .times = BLOCKS, .per = 1, .block = THREADS};
    plan_int(&plan, "THREADS", THREADS);
    plan_stream(&plan, &program->device->info, 3.0); /* the list, then its pieces: each a turn over the bus to the host's memory */
    ROSE_TRY(plan_record(&plan, program, EXTENT_ONE, offsetof(struct fetch_params, one), &l, err));
    program_add(program, &l);
    return ROSE_OK;
}
