/* A packed op_weight as the CPU kernels see it. */
#ifndef ROSE_OPS_WEIGHT_VIEW_H
#define ROSE_OPS_WEIGHT_VIEW_H

#include "kernels/cpu/weight.h"
#include "ops/matmul.h"

enum { WEIGHT_LAYOUT_CPU_GROUPS = 1 }; /* op_weight.layout: kernels/cpu/weight.h */

/* false: not a weight that op_weight_pack made for the CPU. */
static inline bool weight_view(const struct op_weight *weight, struct cpu_weight *out)
{
    return weight && weight->layout == WEIGHT_LAYOUT_CPU_GROUPS && weight->data &&
           cpu_weight_init(weight->dtype, weight->n, weight->k, weight->data, out);
}

#endif
