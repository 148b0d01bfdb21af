/* Small element-wise ops: gated activation, logits soft cap and scale, residual add. */
#ifndef ROSE_OPS_ELEMENTWISE_H
#define ROSE_OPS_ELEMENTWISE_H

#include "ops/matmul.h"

/* y = activation(gate) * up (up absent: y = activation(gate)); y may be gate. */
struct op_act {
    int layer;
    enum op_activation activation;
    struct op_value gate, up, y;
};
enum rose_status op_act(struct program *program, const struct op_act *op, struct rose_error *err);

/* y = cap * tanh(scale * x / cap), cap 0: y = scale * x; scale 0 means 1. In place allowed. */
struct op_softcap {
    struct op_value x, y;
    float scale, cap;
};
enum rose_status op_softcap(struct program *program, const struct op_softcap *op, struct rose_error *err);

/* y += alpha * x; alpha 0 means 1. */
struct op_add {
    int layer;
    struct op_value x, y;
    float alpha;
};
enum rose_status op_add(struct program *program, const struct op_add *op, struct rose_error *err);

/* y *= sigmoid(gate), gate [rows, 1]: the shared expert's own gate. */
struct op_row_gate {
    int layer;
    struct op_value gate, y;
};
enum rose_status op_row_gate(struct program *program, const struct op_row_gate *op, struct rose_error *err);

#endif
