/* FP8 checkpoints: the scales beside a matrix. Layouts: docs/architecture.md, "FP8 checkpoints". */
#ifndef ROSE_MODEL_FP8_H
#define ROSE_MODEL_FP8_H

#include "model/loader.h"

/* t was bound under `name` and is F8_E4M3: binds its scales (problems are noted by the bind) and hangs them to t. Does nothing for other
 * types. */
enum rose_status fp8_scales(struct loader *l, const char *name, struct tensor *t);
/* Scales of activations and of the cache are not read: they are no unexpected tensors. */
void fp8_ignore(struct loader *l);

#endif
