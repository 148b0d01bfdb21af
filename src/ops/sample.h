/* op_tokens: a step's input tokens out of the sequences' histories. op_sample: the sample program's one launch. */
#ifndef ROSE_OPS_SAMPLE_H
#define ROSE_OPS_SAMPLE_H

#include "kernels/params/sample.h"
#include "ops/op.h"

/* tokens[t] = history[row_history[t] + positions[t]]: so a token drawn by the step before needs no way through the host. */
struct op_tokens {
    program_buffer_id history;     /* i32, all slots */
    program_buffer_id row_history; /* i64 [T], index of each row's sequence in history */
    program_buffer_id positions;   /* i32 [T] */
    program_buffer_id tokens;      /* out, i32 [T] */
};
enum rose_status op_tokens(struct program *program, const struct op_tokens *op, struct rose_error *err);

struct op_sample {
    struct op_value logits;     /* f32 [R, V]; kept unchanged */
    program_buffer_id rows;     /* struct sample_row [R] */
    program_buffer_id history;  /* i32, read and written */
    program_buffer_id bias;     /* struct sample_bias [], 0: no row has any */
    program_buffer_id bans;     /* i32 [], 0: none */
    program_buffer_id masks;    /* u32 [rows, (V + 31) / 32], 0: none */
    program_buffer_id out;      /* struct sample_out [R] */
};
enum rose_status op_sample(struct program *program, const struct op_sample *op, struct rose_error *err);

#endif
