/* CUDA: what a step's host block holds beside the batch, and the list of pieces by which it reaches the device (ops/fetch.h).
 *
 *     block = batch (batch_layout) | admitted: history_length, prompt_length of each sequence | spare tokens | segments
 *
 * Page tables lie in it one behind the other, without the unused ends they have on the device. */
#ifndef ROSE_ENGINE_STAGING_H
#define ROSE_ENGINE_STAGING_H

#include "engine/batch.h"
#include "ops/fetch.h"

struct engine;
struct step;
struct sequence;

/* Bytes of the block; *segments_at: where its list begins. */
size_t staging_bytes(const struct engine *e, size_t *segments_at);
void staging_begin(struct engine *e, struct step *step);
/* A sequence got a slot: its lengths, and the tokens a prefix hit spares it to compute (penalties count them). */
enum rose_status staging_admit(struct engine *e, struct step *step, const struct sequence *s, struct rose_error *err);
/* Rows [first, first + rows) of the step are the sequence's next ones: its pages, and the tokens that the host knows. */
void staging_entry(struct engine *e, struct step *step, struct batch *b, const struct sequence *s, int32_t seq, int32_t first, int32_t rows);
/* Pad to `rows` rows and sequences of one row each that do nothing. */
void staging_pad(struct engine *e, struct step *step, struct batch *b, int32_t rows);
/* The arrays themselves, and the end of the list. */
void staging_end(struct engine *e, struct step *step, struct batch *b, const struct extents *run);

#endif
