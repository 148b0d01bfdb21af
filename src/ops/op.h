/* Ops: the host side of kernels. Each op_* call checks its arguments, plans, and records one or a few launches into a
 * program; nothing runs. One file an op. What is common to them stands here.
 *
 * Step inputs: every forward reads the same arrays, written by the host before a step (layouts below, T = rows, S =
 * sequences, R = sample rows). Sequence s owns query rows [seq_rows[s], seq_rows[s+1]); its keys and values are tokens
 * [0, seq_length[s]) of its pages, this step's rows included (they are its last ones).
 */
#ifndef ROSE_OPS_OP_H
#define ROSE_OPS_OP_H

#include "device/program.h"
#include "kernels/params/cascade.h"
#include "tensor/tensor.h"

/* Activations: [rows, cols] inside a program buffer, row r at column offset + r * stride. */
struct op_value {
    program_buffer_id buffer; /* 0: absent */
    enum dtype dtype;         /* float32 on the CPU; on CUDA bfloat16, or float16 in all of a program, unless said otherwise */
    enum extent rows;
    int32_t cols, stride, offset; /* elements */
};

/* Columns [begin, begin + cols) of a value. */
static inline struct op_value op_slice(struct op_value v, int32_t begin, int32_t cols)
{
    v.offset += begin;
    v.cols = cols;
    return v;
}

enum { OP_MAX_GROUPS = 8 };

/* Buffers of the step inputs in this program; the memory behind them belongs to the engine. */
struct op_step {
    program_buffer_id tokens;      /* i32 [T] */
    program_buffer_id positions;   /* i32 [T], absolute */
    program_buffer_id row_seq;     /* i32 [T], which sequence of the step a row belongs to */
    program_buffer_id seq_rows;    /* i32 [S + 1] */
    program_buffer_id seq_length;  /* i32 [S], tokens in the cache after this step */
    program_buffer_id sample_rows; /* i32 [R], row indexes whose logits are wanted */
    /* Per cache group g: pages of each sequence, and where each row's key and value go. */
    int groups;
    program_buffer_id page_table[OP_MAX_GROUPS]; /* i32 [S, table_stride]: page of block b; -1: freed (behind the window) */
    program_buffer_id kv_slot[OP_MAX_GROUPS];    /* i64 [T]: page * page_tokens + offset in the page; -1: do not write */
    int32_t table_stride;
    /* CUDA, decoding steps whose sequences share files: kernels/params/cascade.h; 0: each reads its own. */
    program_buffer_id cascade_groups, cascade_members, cascade_seqs;
    /* Per-sequence rotary frequencies, only for models whose frequencies depend on the length (dynamic NTK, longrope). */
    program_buffer_id seq_inv_freq; /* f32 [S, rot / 2]; 0: the model's own table serves all */
    int32_t max_rows, max_seqs, max_samples; /* what the buffers hold */
};

/* Where keys and values live: one pool of pages of one byte size. A page of a group holds page_tokens tokens of
 * `layers` layers, keys and values; the order inside a (page, layer) is the device's own (kernels/cpu/kv_layout.h, kernels/params/kv_layout.h). */
struct op_cache {
    void *pool;
    size_t page_bytes;
    enum dtype dtype; /* F32, F16, BF16, Q8_0 (later F8_E4M3) */
    int32_t page_tokens;
};

#endif
