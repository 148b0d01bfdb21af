/* Decoding steps whose sequences begin with the same pages (a system prompt, a document asked about many times, choices of one request): attention
 * reads what they share once for all of them (kernels/params/cascade.h). Sequences found their pages in the prefix tree, so that equal page numbers
 * are all there is to compare. Not with --deterministic: a row's bits then depend on who else is there. */
#ifndef ROSE_ENGINE_CASCADE_H
#define ROSE_ENGINE_CASCADE_H

#include "engine/batch.h"
#include "engine/programs.h"

struct step;

enum { CASCADE_LEAST = 4 }; /* sequences of a step for which it is tried */

/* Does this engine share at all? */
bool cascade_fits(const struct engine *e);
/* The arrays of a program of such steps. */
void cascade_step(const struct engine *e, struct program *program, const struct batch *b, struct op_step *step);
/* Fills b's cascade arrays for `rows` sequences, the step's and inert ones. False where sharing would not pay: the step then has none. */
bool cascade_make(const struct engine *e, const struct step *step, struct batch *b, int32_t rows);

#endif
