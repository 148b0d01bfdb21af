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
};

/* Several threads convert (or copy) pieces of rows into pinned slots while earlier slots travel. Returns when all has arrived. */
enum rose_status upload_weights(struct device *device, const struct upload_piece *pieces, size_t count, model_progress_fn *progress, void *user,
                                struct rose_error *err);

/* Random weights, made there (ops/dummy.h). */
enum rose_status upload_dummy(struct device *device, const struct upload_piece *pieces, size_t count, struct rose_error *err);
/* Every float vector of the model (norm weights, biases, frequencies) moves to the device, its pointer with it. */
enum rose_status upload_vectors(struct model *model, struct model_layer *top, struct rose_error *err);

#endif
