#include "engine/staging.h"

#include <string.h>

#include "engine/engine.h"

static size_t admitted_at(const struct engine *e) { return size_round_up(e->layout.bytes, 64); }
static size_t spare_at(const struct engine *e) { return admitted_at(e) + size_round_up((size_t)e->options.max_sequences * 8, 64); }

size_t staging_bytes(const struct engine *e, size_t *segments_at)
{
    const struct batch_sizes *s = &e->layout.sizes;
    size_t at = size_round_up(spare_at(e) + (size_t)e->history_stride * 4, 64);
    size_t pieces = at / 4 / FETCH_MOST_WORDS; /* of long arrays */
    size_t each = (size_t)s->groups + 5;       /* of a sequence: its tables, its tokens, its lengths, spared tokens */
    *segments_at = at;
    return at + (pieces + (size_t)s->seqs * each + 32 + FETCH_WARPS) * sizeof(struct fetch_segment);
}

/* Words from byte `from` of the block to device memory. */
static void piece(struct step *step, void *to, size_t from, size_t words)
{
    while (words) {
        size_t n = ROSE_MIN(words, (size_t)FETCH_MOST_WORDS);
        step->segments[step->segments_count++] = (struct fetch_segment){(uint64_t)(uintptr_t)to, (uint32_t)(from / 4), (uint32_t)n};
        to = (char *)to + n * 4;
        from += n * 4;
        words -= n;
    }
}

static size_t at(const struct step *step, const void *p) { return (size_t)((const char *)p - (const char *)step->staging); }

void staging_begin(struct engine *e, struct step *step)
{
    (void)e;
    step->segments_count = 0;
    step->admitted = 0;
    step->spare = step->pages = 0;
}

enum rose_status staging_admit(struct engine *e, struct step *step, const struct sequence *s, struct rose_error *err)
{
    int32_t *lengths = (int32_t *)(void *)((char *)step->staging + admitted_at(e)) + 2 * step->admitted++;
    const struct rose_sampling *p = &s->request->sampling;
    lengths[0] = s->known;
    lengths[1] = s->request->prompt_count;
    piece(step, e->history_length + s->slot, at(step, lengths), 1);
    piece(step, e->prompt_length + s->slot, at(step, lengths + 1), 1);
    bool penalties = (p->repetition_penalty > 0 && p->repetition_penalty != 1) || p->presence_penalty != 0 || p->frequency_penalty != 0;
    if (!penalties || !s->computed) return ROSE_OK;
    int32_t *to = e->history + (int64_t)s->slot * e->history_stride;
    if ((int64_t)step->spare + s->computed > e->history_stride) return device_copy(e->device, to, s->tokens, (size_t)s->computed * 4, err);
    char *spare = (char *)step->staging + spare_at(e) + (size_t)step->spare * 4;
    memcpy(spare, s->tokens, (size_t)s->computed * 4);
    piece(step, to, at(step, spare), (size_t)s->computed);
    step->spare += s->computed;
    return ROSE_OK;
}

void staging_entry(struct engine *e, struct step *step, struct batch *b, const struct sequence *s, int32_t seq, int32_t first, int32_t rows)
{
    struct batch device;
    size_t stride = (size_t)e->layout.sizes.table_stride;
    batch_view(&e->layout, e->inputs, &device);
    for (int32_t g = 0; g < e->layout.sizes.groups; g++) {
        int32_t *table = b->page_table[g] + step->pages;
        memcpy(table, s->pages[g], (size_t)s->blocks * 4);
        piece(step, device.page_table[g] + (size_t)seq * stride, at(step, table), (size_t)s->blocks);
    }
    step->pages += s->blocks;
    int32_t known = ROSE_MIN(rows, s->known - s->computed); /* the others are drawn by steps in flight */
    if (known <= 0) return;
    memcpy(b->tokens + first, s->tokens + s->computed, (size_t)known * 4);
    piece(step, e->history + (int64_t)s->slot * e->history_stride + s->computed, at(step, b->tokens + first), (size_t)known);
}

void staging_pad(struct engine *e, struct step *step, struct batch *b, int32_t rows)
{
    for (int32_t i = step->extents.n[EXTENT_ROWS]; i < rows; i++) {
        b->row_history[i] = -1;
        b->positions[i] = 0;
        b->row_seq[i] = i;
        b->seq_rows[i + 1] = i + 1;
        b->seq_length[i] = 0;
        for (int32_t g = 0; g < e->layout.sizes.groups; g++) b->kv_slot[g][i] = -1;
    }
    for (int32_t i = step->extents.n[EXTENT_SAMPLES]; i < rows; i++) b->sample_rows[i] = 0;
}

void staging_end(struct engine *e, struct step *step, struct batch *b, const struct extents *run)
{
    struct batch d;
    batch_view(&e->layout, e->inputs, &d);
    size_t rows = (size_t)run->n[EXTENT_ROWS], seqs = (size_t)run->n[EXTENT_SEQS], samples = (size_t)run->n[EXTENT_SAMPLES];
    piece(step, d.row_history, at(step, b->row_history), rows * 2);
    piece(step, d.positions, at(step, b->positions), rows);
    piece(step, d.row_seq, at(step, b->row_seq), rows);
    for (int32_t g = 0; g < e->layout.sizes.groups; g++) piece(step, d.kv_slot[g], at(step, b->kv_slot[g]), rows * 2);
    piece(step, d.seq_rows, at(step, b->seq_rows), seqs + 1);
    piece(step, d.seq_length, at(step, b->seq_length), seqs);
    piece(step, d.sample_rows, at(step, b->sample_rows), samples);
    piece(step, d.sample_row, at(step, b->sample_row), (size_t)step->extents.n[EXTENT_SAMPLES] * sizeof *b->sample_row / 4);
    piece(step, d.edits, at(step, b->edits), (size_t)b->edits_count * sizeof *b->edits / 4);
    if (step->shares) {
        piece(step, d.cascade_groups, at(step, b->cascade_groups), (CASCADE_GROUPS + 1) * sizeof *b->cascade_groups / 4);
        piece(step, d.cascade_members, at(step, b->cascade_members), (size_t)step->extents.n[EXTENT_SEQS]);
        piece(step, d.cascade_seqs, at(step, b->cascade_seqs), seqs * sizeof *b->cascade_seqs / 4);
    }
    piece(step, d.inv_freq, at(step, b->inv_freq), (size_t)step->extents.n[EXTENT_SEQS] * (size_t)e->layout.sizes.rope_half);
    memset(step->segments + step->segments_count, 0, FETCH_WARPS * sizeof *step->segments);
}
