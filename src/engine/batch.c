#include "engine/batch.h"

static size_t take(size_t *at, size_t bytes)
{
    size_t offset = *at;
    *at = size_round_up(offset + bytes, 64);
    return offset;
}

void batch_layout_make(const struct batch_sizes *s, struct batch_layout *l)
{
    size_t at = 0, rows = (size_t)s->rows, seqs = (size_t)s->seqs, samples = (size_t)s->samples;
    *l = (struct batch_layout){.sizes = *s};
    l->row_history = take(&at, rows * sizeof(int64_t));
    for (int32_t g = 0; g < s->groups; g++) l->kv_slot[g] = take(&at, rows * sizeof(int64_t));
    l->sample_row = take(&at, samples * sizeof(struct sample_row));
    l->inv_freq = take(&at, seqs * (size_t)s->rope_half * sizeof(float));
    l->tokens = take(&at, rows * 4);
    l->positions = take(&at, rows * 4);
    l->row_seq = take(&at, rows * 4);
    l->seq_rows = take(&at, (seqs + 1) * 4);
    l->seq_length = take(&at, seqs * 4);
    l->sample_rows = take(&at, samples * 4);
    for (int32_t g = 0; g < s->groups; g++) l->page_table[g] = take(&at, seqs * (size_t)s->table_stride * 4);
    l->cascade_groups = take(&at, (CASCADE_GROUPS + 1) * sizeof(struct cascade_group));
    l->cascade_members = take(&at, seqs * 4);
    l->cascade_seqs = take(&at, seqs * sizeof(struct cascade_seq));
    l->edits = take(&at, (size_t)s->edits * sizeof(struct sample_edit)); /* last: only what is used needs to travel */
    l->bytes = at;
}

void batch_view(const struct batch_layout *l, void *block, struct batch *b)
{
    uintptr_t p = (uintptr_t)block; /* a draft has no memory: its addresses count from zero */
    *b = (struct batch){0};
    b->row_history = (int64_t *)(p + l->row_history);
    for (int32_t g = 0; g < l->sizes.groups; g++) {
        b->kv_slot[g] = (int64_t *)(p + l->kv_slot[g]);
        b->page_table[g] = (int32_t *)(p + l->page_table[g]);
    }
    b->sample_row = (struct sample_row *)(p + l->sample_row);
    b->edits = (struct sample_edit *)(p + l->edits);
    b->inv_freq = (float *)(p + l->inv_freq);
    b->tokens = (int32_t *)(p + l->tokens);
    b->positions = (int32_t *)(p + l->positions);
    b->row_seq = (int32_t *)(p + l->row_seq);
    b->seq_rows = (int32_t *)(p + l->seq_rows);
    b->seq_length = (int32_t *)(p + l->seq_length);
    b->sample_rows = (int32_t *)(p + l->sample_rows);
    b->cascade_groups = (struct cascade_group *)(p + l->cascade_groups);
    b->cascade_members = (int32_t *)(p + l->cascade_members);
    b->cascade_seqs = (struct cascade_seq *)(p + l->cascade_seqs);
}

void batch_step(const struct batch_layout *l, struct program *program, void *block, struct op_step *step)
{
    struct batch b;
    size_t rows = (size_t)l->sizes.rows, seqs = (size_t)l->sizes.seqs;
    batch_view(l, block, &b);
    *step = (struct op_step){.groups = l->sizes.groups, .table_stride = l->sizes.table_stride, .max_rows = l->sizes.rows, .max_seqs = l->sizes.seqs,
                             .max_samples = l->sizes.samples};
    step->tokens = program_external(program, "tokens", b.tokens, rows * 4);
    step->positions = program_external(program, "positions", b.positions, rows * 4);
    step->row_seq = program_external(program, "row_seq", b.row_seq, rows * 4);
    step->seq_rows = program_external(program, "seq_rows", b.seq_rows, (seqs + 1) * 4);
    step->seq_length = program_external(program, "seq_length", b.seq_length, seqs * 4);
    step->sample_rows = program_external(program, "sample_rows", b.sample_rows, (size_t)l->sizes.samples * 4);
    for (int32_t g = 0; g < l->sizes.groups; g++) {
        step->page_table[g] = program_external(program, "page_table", b.page_table[g], seqs * (size_t)l->sizes.table_stride * 4);
        step->kv_slot[g] = program_external(program, "kv_slot", b.kv_slot[g], rows * 8);
    }
    if (l->sizes.rope_half) step->seq_inv_freq = program_external(program, "inv_freq", b.inv_freq, seqs * (size_t)l->sizes.rope_half * 4);
}
