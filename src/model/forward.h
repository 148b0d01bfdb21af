/* The forward while it is recorded: what its files (forward.c, forward_head.c) share. */
#ifndef ROSE_MODEL_FORWARD_H
#define ROSE_MODEL_FORWARD_H

#include "model/model.h"

struct recorder {
    const struct model *model;
    const struct model_config *config;
    struct program *program;
    const struct forward *forward;
    struct op_value h, y; /* residual stream and scratch of the same shape, [T, hidden] */
    struct rose_error *err;
};

/* An intermediate [rows, cols] of the device's own type. */
struct op_value forward_value(struct recorder *r, const char *name, enum extent rows, int32_t cols);
/* The norm of a slot (layer -1: of the model), with its bias where it has one. */
enum rose_status forward_norm(struct recorder *r, int layer, enum slot slot, struct op_value x, struct op_value y, bool into_residual);
/* forward_head.c: pooling, dense layers, classifiers over the last rows. */
enum rose_status forward_head(struct recorder *r);

#endif
