/* The 16-bit type that a step's activations, weights as rows and cache pages are in on CUDA. */
#include "model/loader.h"
#include "weights/weights.h"

/* Are most of the file's parameters of this type? */
static bool mostly(const struct weights *w, enum dtype dtype)
{
    uint64_t of_type = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_tensor *t = weights_tensor(w, i);
        if (t->tensor.dtype == dtype) of_type += (uint64_t)tensor_count(&t->tensor);
    }
    struct weights_summary all;
    weights_summary(w, &all);
    return of_type > all.parameters / 2;
}

enum rose_status element_choose(struct loader *l)
{
    struct model *m = l->m;
    m->element = DTYPE_NONE;
    if (m->device->info.kind != DEVICE_CUDA) return ROSE_OK;
    m->element = DTYPE_BF16;
    if (l->wish.weights == DTYPE_BF16 || (!l->wish.weights && (l->dummy || !mostly(m->weights, DTYPE_F16)))) return ROSE_OK;
    if (l->wish.weights && l->wish.weights != DTYPE_F16)
        return status_set(l->err, ROSE_UNSUPPORTED, "weights as %s are for the CPU; a GPU computes in bf16 or f16", dtype_info(l->wish.weights)->name);
    if (m->config.quant.kind != QUANT_NONE && !l->dummy) {
        if (!l->wish.weights) return ROSE_OK;
        return status_set(l->err, ROSE_UNSUPPORTED, "an FP8 checkpoint in f16: FP8 weights multiply bf16 activations on a GPU; leave --weights out");
    }
    if (!l->wish.weights && m->config.arch->beyond_half) {
        loader_notice(l, "F16 weights become BF16: activations of %s leave the range of half (--weights f16 insists)", m->config.arch->name);
        return ROSE_OK;
    }
    m->element = DTYPE_F16;
    return ROSE_OK;
}
