/* op_sample: from logits to tokens. The meaning of every field stands in kernels/params/sample.h.
 *
 * The draw: Philox 4x32-10 (Salmon et al. 2011) with key seed and counter step gives one uniform number,
 * which picks from the kept tokens by their cumulative weights: in falling order of the logits (of equals the
 * lower id first), or, when neither top-k nor top-p nor min-p is asked for, in the order of ids. Nothing else
 * enters, so a seed gives the same text on any number of threads and in any batch, and on the CPU and a GPU
 * wherever the number is not within rounding of a token's edge (about 1e-6 of the mass). */
#ifndef ROSE_OPS_SAMPLE_H
#define ROSE_OPS_SAMPLE_H

#include "kernels/params/sample.h"
#include "ops/op.h"

struct op_sample {
    struct op_value logits;   /* [R, vocabulary]; destroyed */
    program_buffer_id rows;   /* struct sample_row [R] */
    program_buffer_id output; /* struct sample_output [R] */
    program_buffer_id edits;  /* struct sample_edit [edits_max]; 0: none */
    int32_t edits_max;
    program_buffer_id mask; /* u32 [masks, ceil(vocabulary / 32)]; 0: none */
    int32_t masks;
    /* i32 [slots, history_stride], [slots], [slots]; 0: no penalties. The kernel appends to history and
     * history_length. */
    program_buffer_id history, history_length, prompt_length;
    int32_t slots, history_stride;
    program_buffer_id feed; /* i32: the next step's tokens; 0: none */
    int32_t max_samples;
};
enum rose_status op_sample(struct program *program, const struct op_sample *op, struct rose_error *err);

/* Bytes of scratch a CPU worker needs for this vocabulary: 12.25 a token. */
size_t op_sample_scratch(int32_t vocabulary);

#endif
