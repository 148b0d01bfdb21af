#include "model/fp8.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

static enum rose_status read_values(struct loader *l, const char *name, const struct tensor *t, const float **out)
{
    size_t n = (size_t)tensor_count(t);
    float *v = ARENA_ARRAY(&l->m->arena, float, n);
    if (!v) return loader_no_memory(l);
    dtype_decode(t->dtype, t->data, v, n);
    for (size_t i = 0; i < n; i++) {
        if (v[i] > 0 && v[i] <= FLT_MAX / 448) continue;
        return status_set(l->err, ROSE_FORMAT, "%s: scale %zu is %g; scales of FP8 weights must be positive numbers below %g", name, i, (double)v[i], (double)(FLT_MAX / 448));
    }
    *out = v;
    return ROSE_OK;
}

enum rose_status fp8_scales(struct loader *l, const char *name, struct tensor *t)
{
    const struct model_quant *q = &l->m->config.quant;
    struct str weight = str_of(name);
    int64_t n = tensor_rows(t), k = tensor_cols(t), shape[2] = {1, 1};
    char scale[320];
    struct tensor found;
    if (t->dtype != DTYPE_F8_E4M3 || l->dummy) return ROSE_OK;
    struct tensor_scales *s = ARENA_NEW(&l->m->arena, struct tensor_scales);
    char *kept = arena_strndup(&l->m->arena, weight.p, weight.n);
    if (!s || !kept) return loader_no_memory(l);
    *s = (struct tensor_scales){.rows = 1, .cols = 1, .block_rows = n, .block_cols = k, .name = kept};
    if (q->kind == QUANT_FP8_CHANNEL) s->rows = n, s->block_rows = 1;
    if (q->kind == QUANT_FP8_BLOCK) {
        s->block_rows = q->block_rows, s->block_cols = q->block_cols;
        s->rows = blocks_of(n, s->block_rows), s->cols = blocks_of(k, s->block_cols);
    }
    if (str_ends(weight, STR(".weight"))) weight.n -= strlen(".weight");
    snprintf(scale, sizeof scale, STR_FMT "%s", STR_ARG(weight), q->scale);
    shape[0] = s->rows, shape[1] = s->cols;
    /* One column may be left out: [rows] stands for [rows, 1]. */
    const struct weights_tensor *file = weights_find(l->m->weights, scale);
    int ndim = q->kind == QUANT_FP8_BLOCK || (file && file->ndim == 2) ? 2 : 1;
    if (!bind_want(l->bind, scale, ndim, shape, BIND_PLAIN, &found)) return ROSE_OK;
    if (!l->check) ROSE_TRY(read_values(l, scale, &found, &s->value));
    t->scales = s;
    return ROSE_OK;
}

void fp8_ignore(struct loader *l)
{
    static const char *const unused[] = {"*.input_scale", "*.input_scale_ub", "*.output_scale"}, *const cache[] = {"*.k_scale", "*.v_scale", "*.kv_scale", "*.q_scale"};
    if (l->m->config.quant.kind == QUANT_NONE) return;
    for (size_t i = 0; i < ROSE_COUNT(unused); i++) bind_ignore(l->bind, unused[i]);
    size_t before = bind_unused(l->bind);
    for (size_t i = 0; i < ROSE_COUNT(cache); i++) bind_ignore(l->bind, cache[i]);
    if (bind_unused(l->bind) < before) loader_notice(l, "scales of the key-value cache are in the files and not used");
}
