/* op_tokens: tokens[t] = history[row_history[t] + positions[t]]: a token that the step before has drawn needs no way through the host. */
#ifndef ROSE_OPS_TOKENS_H
#define ROSE_OPS_TOKENS_H

#include "ops/op.h"

struct op_tokens {
    program_buffer_id history;     /* i32, all slots */
    program_buffer_id row_history; /* i64 [T] */
    program_buffer_id positions;   /* i32 [T] */
    program_buffer_id tokens;      /* out, i32 [T] */
};
enum rose_status op_tokens(struct program *program, const struct op_tokens *op, struct rose_error *err);

#endif
