#include "ops/tokens.h"

#include "kernels/cpu/tokens.h"
#include "kernels/params/tokens.h"
#include "ops/plan.h"

enum rose_status op_tokens(struct program *program, const struct op_tokens *op, struct rose_error *err)
{
    if (!op->history || !op->row_history || !op->positions || !op->tokens) return status_set(err, ROSE_INTERNAL, "op_tokens: a buffer is missing");
    struct tokens_params params = {0};
    struct program_launch l = {.name = "tokens", .layer = -1, .params = &params, .params_bytes = sizeof params, .cpu = cpu_tokens};
    if (program->device->info.kind == DEVICE_CUDA) {
        enum { THREADS = 128 };
        struct plan plan = {.kernel = "tokens", .rows = plan_rows(program, EXTENT_ROWS), .times = 1, .per = THREADS, .block = THREADS};
        plan_int(&plan, "THREADS", THREADS);
        plan.bytes = 20.0 * (double)plan.rows;
        plan_stream(&plan, &program->device->info, 0.3); /* history behind row_history and positions */
        ROSE_TRY(plan_record(&plan, program, EXTENT_ROWS, offsetof(struct tokens_params, rows), &l, err));
    }
    program_use(&l, op->history, PROGRAM_READ, offsetof(struct tokens_params, history));
    program_use(&l, op->row_history, PROGRAM_READ, offsetof(struct tokens_params, row_history));
    program_use(&l, op->positions, PROGRAM_READ, offsetof(struct tokens_params, positions));
    program_use(&l, op->tokens, PROGRAM_WRITE, offsetof(struct tokens_params, tokens));
    l.cost.bytes_per[EXTENT_ROWS] = 4 + 8 + 4 + 4;
    program_add(program, &l);
    return ROSE_OK;
}
