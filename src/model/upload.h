/* Weights onto a device with memory of its own: from a mapped file through a pinned ring, or made there. */
#ifndef ROSE_MODEL_UPLOAD_H
#define ROSE_MODEL_UPLOAD_H

#include "model/model.h"

/* A matrix, and the weight that it becomes, in device memory. */
struct upload_piece {
    struct tensor source; /* data NULL: none (dummy weights) */
    const struct op_weight *weight;
    void *memory;
    uint64_t seed;
    const struct weights *file; /* the file whose pages of `release` go back when all has arrived; NULL: none */
    const struct weights_tensor *release;
};

/* Several threads convert (or copy) pieces of rows into pinned slots while earlier slots travel, on a queue of their own: the caller may use the
 * device meanwhile, compile, record and capture. The pieces are copied; progress is called from another thread. */
struct upload;
enum rose_status upload_begin(struct device *device, const struct upload_piece *pieces, size_t count, model_progress_fn *progress, void *user, struct upload **out,
                              struct rose_error *err);
/* Returns when all has arrived, with the seconds that it took, and frees. NULL: nothing was begun. stop: what has not begun is left out. */
enum rose_status upload_end(struct upload *upload, bool stop, double *seconds, struct rose_error *err);

/* Random weights, made there (ops/dummy.h). */
enum rose_status upload_dummy(struct device *device, const struct upload_piece *pieces, size_t count, struct rose_error *err);
/* Every float vector of the model (norm weights, biases, frequencies) moves to the device, its pointer with it. */
enum rose_status upload_vectors(struct model *model, struct model_layer *top, struct rose_error *err);

#endif
