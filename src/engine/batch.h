/* The batch: a step's inputs and outputs, one block of memory each, in the layouts that ops/op.h and params/sample.h state.
 *
 * The host fills a staging block while earlier steps run; a copy brings it to the device's block, whose addresses programs know.
 */
#ifndef ROSE_ENGINE_BATCH_H
#define ROSE_ENGINE_BATCH_H

#include "ops/sample.h"

struct batch_sizes {
    int32_t rows, seqs, samples, groups, table_stride, edits, rope_half; /* maxima; rope_half: rotary_dim / 2, 0 without per-sequence tables */
};

/* Offsets of each array in the block. */
struct batch_layout {
    struct batch_sizes sizes;
    size_t row_history, kv_slot[OP_MAX_GROUPS], sample_row, edits, inv_freq, tokens, positions, row_seq, seq_rows, seq_length, sample_rows,
        page_table[OP_MAX_GROUPS], cascade_groups, cascade_members, cascade_seqs, bytes;
};
void batch_layout_make(const struct batch_sizes *sizes, struct batch_layout *out);

/* Views into one block. */
struct batch {
    int64_t *row_history, *kv_slot[OP_MAX_GROUPS];
    struct sample_row *sample_row;
    struct sample_edit *edits;
    float *inv_freq; /* [seqs, rope_half] */
    struct cascade_group *cascade_groups; /* [CASCADE_GROUPS + 1]; cascade.h */
    struct cascade_seq *cascade_seqs;     /* [seqs] */
    int32_t *cascade_members;             /* [seqs] */
    int32_t *tokens, *positions, *row_seq, *seq_rows, *seq_length, *sample_rows, *page_table[OP_MAX_GROUPS];
    int32_t edits_count;
};
void batch_view(const struct batch_layout *layout, void *block, struct batch *out);
/* The same block as buffers of a program. */
void batch_step(const struct batch_layout *layout, struct program *program, void *block, struct op_step *step);

#endif
