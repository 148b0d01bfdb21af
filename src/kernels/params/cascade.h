/* Sequences of a decoding step that begin with the same pages (cascade; Juravsky et al. 2024, "Hydragen"; Ye et al. 2024, "Cascade Inference"): what
 * they share is read once for all of them (attention_tile with CASCADE), what is their own by each (attention_split), which also joins both.
 *
 *     groups    struct cascade_group [..], ended by one of no sequences
 *     members   i32 [..]: sequences, group by group
 *     seqs      struct cascade_seq [S]
 *     cascade   f32 [entries][heads][hd] sums of weighted values, then f32 [entries][heads][2]: maxima (in units of log 2) and sums of weights
 *
 * A group's tokens are cut into `splits` parts of whole tiles; part i of its m-th member leaves entry + i * count + m. */
#ifndef ROSE_KERNELS_PARAMS_CASCADE_H
#define ROSE_KERNELS_PARAMS_CASCADE_H

#include "kernels/params/types.h"

enum { CASCADE_GROUPS = 64, CASCADE_SPLITS = 16, CASCADE_ROWS = 128 }; /* most of a step, of a group; packed rows a tile */

struct cascade_group {
    int32_t first, count; /* members [first, first + count) */
    int32_t tokens;       /* that they share: whole pages */
    int32_t splits, entry;
    int32_t unused[3];
};
struct cascade_seq {
    int32_t tokens; /* 0: shares nothing */
    int32_t entry, step, splits; /* its parts: entry, entry + step, ... */
};

#endif
