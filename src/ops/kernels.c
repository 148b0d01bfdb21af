#include "ops/kernels.h"

static bool same(const struct plan *a, const struct plan *b)
{
    if (strcmp(a->kernel, b->kernel) || a->count != b->count || a->block != b->block) return false;
    for (int i = 0; i < a->count; i++)
        if (a->constants[i].value != b->constants[i].value ||
            strcmp(a->constants[i].text, b->constants[i].text))
            return false;
    return true;
}

struct list {
    struct kernels_entry *out;
    int room, count;
};

static enum rose_status add(struct list *l, const char *op, const struct plan *plan, struct rose_error *err)
{
    for (int i = 0; i < l->count; i++)
        if (same(&l->out[i].plan, plan)) return ROSE_OK;
    if (l->count == l->room) return status_set(err, ROSE_LIMIT, "a model with more than %d kernels", l->room);
    l->out[l->count++] = (struct kernels_entry){op, *plan};
    return ROSE_OK;
}

static enum rose_status add_rows(struct list *l, const struct kernels_model *m, const struct device_info *d,
                                 int64_t rows, struct rose_error *err)
{
    struct plan plan;
    struct norm_shape norm = {.rows = rows,
                              .cols = m->hidden,
                              .kind = m->norm,
                              .weight = 4,
                              .bias = m->norm_bias ? 4 : 0,
                              .eps = m->norm_eps,
                              .offset = m->norm_offset};
    ROSE_TRY(norm_cuda_plan(&norm, d, &plan, err));
    ROSE_TRY(add(l, "norm", &plan, err));
    norm.add = !m->post_norm, norm.accumulate = m->post_norm;
    ROSE_TRY(norm_cuda_plan(&norm, d, &plan, err));
    ROSE_TRY(add(l, m->post_norm ? "post-norm" : "norm + residual", &plan, err));
    struct qk_shape qk = {.rows = rows,
                          .heads = m->heads.heads,
                          .kv_heads = m->heads.kv_heads,
                          .head_dim = m->heads.head_dim,
                          .norm = m->qk_norm ? 4 : 0,
                          .norm_after_rope = m->norm_after_rope,
                          .eps = m->norm_eps,
                          .offset = m->norm_offset,
                          .rope = m->rope,
                          .rotary_dim = m->rotary_dim,
                          .rope_scale = m->rope_scale,
                          .seq_freq = m->seq_freq,
                          .write = true,
                          .page_tokens = m->page_tokens};
    ROSE_TRY(qk_cuda_plan(&qk, d, &plan, err));
    ROSE_TRY(add(l, "qk", &plan, err));
    struct act_shape act = {.rows = rows, .cols = m->intermediate, .act = m->activation, .gated = m->gated};
    ROSE_TRY(act_cuda_plan(&act, d, &plan, err));
    return add(l, "act", &plan, err);
}

enum rose_status kernels_of_model(const struct kernels_model *model, const struct device_info *device,
                                  const int64_t *rows, int n, struct kernels_entry *out, int room, int *count,
                                  struct rose_error *err)
{
    struct list l = {out, room, 0};
    for (int i = 0; i < n; i++) ROSE_TRY(add_rows(&l, model, device, rows[i], err));
    *count = l.count;
    return ROSE_OK;
}

enum rose_status kernels_compile(const struct kernels_entry *entries, int count, struct jit *jit,
                                 const char *arch, struct rose_error *err)
{
    const struct jit_kernel *k;
    for (int i = 0; i < count; i++) ROSE_TRY(plan_request(&entries[i].plan, jit, arch, &k, err));
    return jit_compile_all(jit, err);
}
