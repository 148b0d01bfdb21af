/* The forward: the one there is. Layers differ by data (config.h), never by code of their own.
 *
 *     h = embed(tokens)
 *     each layer:  h += attention(norm(h));  h += mlp(norm(h))     (norms before, behind or both; or h = norm(h + attention(h)))
 *     logits = output(norm(h[sample_rows]))                        or what forward_head.c makes of the rows
 */
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/moe.h"
#include "model/forward.h"

struct op_value forward_value(struct recorder *r, const char *name, enum extent rows, int32_t cols)
{
    const struct op_step *step = &r->forward->step;
    int32_t max = rows == EXTENT_SAMPLES ? step->max_samples : rows == EXTENT_SEQS ? step->max_seqs : step->max_rows;
    bool cuda = r->program->device->info.kind == DEVICE_CUDA;
    struct op_value v = {.dtype = cuda ? r->model->element : DTYPE_F32, .rows = rows, .cols = cols, .stride = cols};
    v.buffer = program_buffer(r->program, name, (size_t)max * (size_t)cols * (cuda ? 2 : 4));
    return v;
}

/* Router logits and gates: float32 on every device. */
static struct op_value value_f32(struct recorder *r, const char *name, int32_t cols)
{
    struct op_value v = {.dtype = DTYPE_F32, .rows = EXTENT_ROWS, .cols = cols, .stride = (cols + 3) / 4 * 4};
    if (r->program->device->info.kind == DEVICE_CPU) v.stride = cols;
    v.buffer = program_buffer(r->program, name, (size_t)r->forward->step.max_rows * (size_t)v.stride * 4);
    return v;
}

static enum slot bias_of(enum slot norm)
{
    switch (norm) {
    case SLOT_EMBED_NORM: return SLOT_EMBED_NORM_BIAS;
    case SLOT_FINAL_NORM: return SLOT_FINAL_NORM_BIAS;
    case SLOT_HEAD_NORM: return SLOT_HEAD_NORM_BIAS;
    case SLOT_ATTN_NORM: return SLOT_ATTN_NORM_BIAS;
    case SLOT_POST_ATTN_NORM: return SLOT_POST_ATTN_NORM_BIAS;
    case SLOT_SECOND_NORM: return SLOT_SECOND_NORM_BIAS;
    case SLOT_Q_NORM: return SLOT_Q_NORM_BIAS;
    case SLOT_K_NORM: return SLOT_K_NORM_BIAS;
    case SLOT_FFN_NORM: return SLOT_FFN_NORM_BIAS;
    default: return SLOT_POST_FFN_NORM_BIAS;
    }
}

static struct op_norm norm_of(struct recorder *r, int layer, enum slot slot, struct op_value x, struct op_value y, bool into_residual)
{
    const struct model_config *c = r->config;
    const struct model_layer *l = layer < 0 ? r->model->top : &r->model->layers[layer];
    return (struct op_norm){.layer = layer, .kind = c->norm, .eps = c->norm_eps, .weight_offset = c->norm_offset, .weight = l->vector[slot],
                            .bias = l->vector[bias_of(slot)], .x = x, .y = y, .accumulate = into_residual, .alpha = into_residual ? c->residual_scale : 1};
}
enum rose_status forward_norm(struct recorder *r, int layer, enum slot slot, struct op_value x, struct op_value y, bool into_residual)
{
    struct op_norm norm = norm_of(r, layer, slot, x, y, into_residual);
    return op_norm(r->program, &norm, r->err);
}

/* The input of a sublayer: normalised, or the residual stream itself. The norm is returned for the product that takes it, NULL where
 * there is none. */
static const struct op_norm *before(struct recorder *r, int layer, enum slot slot, struct op_value *x, struct op_norm *norm)
{
    const struct model_config *c = r->config;
    *x = r->h;
    if (c->norms == MODEL_NORM_POST || c->norms == MODEL_NORM_BEHIND || (layer == 0 && slot == SLOT_ATTN_NORM && c->first_norm_absent)) return NULL;
    *x = r->y;
    *norm = norm_of(r, layer, slot, r->h, r->y, false);
    return norm;
}

/* A sublayer's last product goes straight into the residual stream, or aside to be normalised first. */
static bool straight(const struct recorder *r) { return r->config->norms == MODEL_NORM_PRE || r->config->norms == MODEL_NORM_BEHIND; }

static struct op_value target(struct recorder *r, const char *name)
{
    return straight(r) ? r->h : forward_value(r, name, EXTENT_ROWS, r->config->hidden);
}

static enum rose_status after(struct recorder *r, int layer, enum slot slot, struct op_value out)
{
    if (r->config->norms == MODEL_NORM_PRE) return ROSE_OK;
    return forward_norm(r, layer, slot, out, r->h, r->config->norms != MODEL_NORM_BEHIND);
}

/* A sublayer's last product; residual: it is added to what is there. */
static enum rose_status project(struct recorder *r, const char *name, int layer, const struct op_weight *w, const float *bias, struct op_value x, struct op_value out,
                                bool residual)
{
    struct op_matmul m = {.name = name, .layer = layer, .x = x, .parts_count = 1, .parts = {{w, bias, out}}, .accumulate = residual,
                          .alpha = residual ? r->config->residual_scale : 1, .deterministic = r->forward->deterministic};
    return op_matmul(r->program, &m, r->err);
}

/* JinaBERT for code norms twice behind attention: h = norm(h + norm(h + out)). */
static enum rose_status norm_twice(struct recorder *r, int i, struct op_value out)
{
    struct op_norm norm = norm_of(r, i, SLOT_POST_ATTN_NORM, out, out, false);
    norm.add = r->h;
    ROSE_TRY(op_norm(r->program, &norm, r->err));
    norm = norm_of(r, i, SLOT_SECOND_NORM, out, r->h, false);
    norm.add = r->h;
    return op_norm(r->program, &norm, r->err);
}

static bool is_packed(const struct op_weight *w) { return dtype_info(w->dtype)->block > 1; }

static enum rose_status attention(struct recorder *r, int i)
{
    const struct model_config *c = r->config;
    const struct model_layer *l = &r->model->layers[i];
    const struct layer_config *lc = &c->layer[i];
    const struct op_heads *heads = &c->heads;
    int32_t nq = heads->heads * heads->head_dim, nk = heads->kv_heads * heads->head_dim, nv = heads->kv_heads * heads->value_dim;
    struct op_value x, qkv = forward_value(r, "qkv", EXTENT_ROWS, nq + nk + nv);
    struct op_value q = op_slice(qkv, 0, nq), k = op_slice(qkv, nq, nk), v = op_slice(qkv, nq + nk, nv);
    struct op_norm norm;
    const struct op_norm *first = before(r, i, SLOT_ATTN_NORM, &x, &norm);
    struct op_matmul m = {.name = "qkv", .layer = i, .x = x, .norm = first, .parts_count = 3, .deterministic = r->forward->deterministic,
                          .parts = {{&l->weight[SLOT_Q], l->vector[SLOT_Q_BIAS], q}, {&l->weight[SLOT_K], l->vector[SLOT_K_BIAS], k},
                                    {&l->weight[SLOT_V], l->vector[SLOT_V_BIAS], v}}};
    ROSE_TRY(op_matmul(r->program, &m, r->err));
    bool layer_norm = c->qk_norm == MODEL_QK_NORM_LAYER;
    if (layer_norm) {
        ROSE_TRY(forward_norm(r, i, SLOT_Q_NORM, q, q, false));
        ROSE_TRY(forward_norm(r, i, SLOT_K_NORM, k, k, false));
    }
    struct op_qk qk = {.layer = i, .heads = *heads, .q = q, .k = k, .v = v, .q_norm = layer_norm ? NULL : l->vector[SLOT_Q_NORM],
                       .k_norm = layer_norm ? NULL : l->vector[SLOT_K_NORM],
                       .norm_eps = c->norm_eps, .norm_offset = c->norm_offset, .norm_full = c->qk_norm == MODEL_QK_NORM_FULL,
                       .group = lc->group, .group_layer = lc->group_layer, .group_layers = c->group_layers, .write = !c->own_rows};
    if (lc->rope >= 0) {
        const struct rope_config *rope = &c->ropes[lc->rope];
        qk.rope = c->rope_pairs;
        qk.rotary_dim = rope->rotary_dim;
        qk.inv_freq = r->model->inv_freq[lc->rope];
        qk.seq_freq = rope_by_length(rope);
        qk.rope_scale = r->model->rope_scale[lc->rope];
    }
    struct op_value a = forward_value(r, "attention", EXTENT_ROWS, heads->heads * heads->value_dim);
    struct op_attention at = {.layer = i, .heads = *heads, .q = q, .y = a, .qk = !c->own_rows || lc->rope >= 0 || qk.q_norm ? &qk : NULL, .scale = c->attention_scale, .softcap = c->attention_softcap, .window = lc->window,
                              .group = lc->group, .group_layer = lc->group_layer, .group_layers = c->group_layers, .deterministic = r->forward->deterministic,
                              .bidirectional = c->own_rows, .causal = c->causal, .k = k, .v = v, .relative = r->model->relative, .relative_reach = c->context,
                              .alibi_slopes = r->model->alibi,
                              .half = c->own_rows && (r->model->rough || (is_packed(&l->weight[SLOT_Q]) && is_packed(&l->weight[SLOT_O])))};
    ROSE_TRY(op_attention(r->program, &r->forward->step, &r->forward->cache, &at, r->err));
    bool twice = l->vector[SLOT_SECOND_NORM] != NULL;
    struct op_value out = twice ? forward_value(r, "attention_out", EXTENT_ROWS, c->hidden) : target(r, "attention_out");
    ROSE_TRY(project(r, "o", i, &l->weight[SLOT_O], l->vector[SLOT_O_BIAS], a, out, straight(r) && !twice));
    return twice ? norm_twice(r, i, out) : after(r, i, SLOT_POST_ATTN_NORM, out);
}

static enum rose_status gated(struct recorder *r, const char *name, int i, const struct op_weight *gate, const struct op_weight *up, const float *gate_bias,
                              const float *up_bias, struct op_value x, const struct op_norm *norm, struct op_value *out)
{
    *out = forward_value(r, name, EXTENT_ROWS, gate->n);
    struct op_matmul m = {.name = name, .layer = i, .x = x, .norm = norm, .parts_count = 2, .parts = {{gate, gate_bias, *out}, {up, up_bias, *out}}, .gated = true,
                          .activation = r->config->activation, .deterministic = r->forward->deterministic};
    return op_matmul(r->program, &m, r->err);
}

static enum rose_status dense_mlp(struct recorder *r, int i)
{
    const struct model_layer *l = &r->model->layers[i];
    struct op_value x, inner, out = target(r, "mlp_out");
    struct op_norm norm;
    const struct op_norm *first = before(r, i, SLOT_FFN_NORM, &x, &norm);
    if (r->config->plain_mlp) {
        inner = forward_value(r, "up", EXTENT_ROWS, r->config->intermediate);
        struct op_matmul m = {.name = "up", .layer = i, .x = x, .norm = first, .parts_count = 1, .parts = {{&l->weight[SLOT_UP], l->vector[SLOT_UP_BIAS], inner}},
                              .activation = r->config->activation, .deterministic = r->forward->deterministic};
        ROSE_TRY(op_matmul(r->program, &m, r->err));
    } else ROSE_TRY(gated(r, "gate_up", i, &l->weight[SLOT_GATE], &l->weight[SLOT_UP], l->vector[SLOT_GATE_BIAS], l->vector[SLOT_UP_BIAS], x, first, &inner));
    ROSE_TRY(project(r, "down", i, &l->weight[SLOT_DOWN], l->vector[SLOT_DOWN_BIAS], inner, out, straight(r)));
    return after(r, i, SLOT_POST_FFN_NORM, out);
}

/* Qwen2-MoE weighs its shared expert with sigmoid(gate . x): the gate is a product with one output. */
static enum rose_status shared_inner(struct recorder *r, int i, struct op_value x, struct op_value *inner)
{
    const struct model_config *c = r->config;
    const struct model_layer *l = &r->model->layers[i];
    struct op_value gate = {0};
    if (c->shared_gate) {
        gate = value_f32(r, "shared_gate", 1);
        struct op_matmul m = {.name = "shared_gate", .layer = i, .x = x, .parts_count = 1, .parts = {{&l->weight[SLOT_SHARED_ROUTER], NULL, gate}},
                              .deterministic = r->forward->deterministic};
        ROSE_TRY(op_matmul(r->program, &m, r->err));
    }
    ROSE_TRY(gated(r, "shared_gate_up", i, &l->weight[SLOT_SHARED_GATE], &l->weight[SLOT_SHARED_UP], NULL, NULL, x, NULL, inner));
    if (c->shared_gate) ROSE_TRY(op_row_gate(r->program, &(struct op_row_gate){.layer = i, .gate = gate, .y = *inner}, r->err));
    return ROSE_OK;
}

static enum rose_status shared_down(struct recorder *r, int i, struct op_value inner, struct op_value out)
{
    const struct model_config *c = r->config;
    const struct model_layer *l = &r->model->layers[i];
    struct op_matmul m = {.name = "shared_down", .layer = i, .x = inner, .parts_count = 1, .parts = {{&l->weight[SLOT_SHARED_DOWN], NULL, out}},
                          .accumulate = true, .alpha = straight(r) ? c->residual_scale : 1, .deterministic = r->forward->deterministic};
    return op_matmul(r->program, &m, r->err);
}

static enum rose_status moe_mlp(struct recorder *r, int i)
{
    const struct model_config *c = r->config;
    const struct model_layer *l = &r->model->layers[i];
    bool residual = straight(r);
    struct op_value x, out = target(r, "mlp_out"), logits = value_f32(r, "router", c->experts);
    size_t choices = (size_t)r->forward->step.max_rows * (size_t)c->experts_used;
    program_buffer_id ids = program_buffer(r->program, "expert_ids", choices * 4), weights = program_buffer(r->program, "expert_weights", choices * 4);
    struct op_norm norm;
    if (before(r, i, SLOT_FFN_NORM, &x, &norm)) ROSE_TRY(op_norm(r->program, &norm, r->err)); /* the experts want the rows too */
    /* In a decoding step on a GPU the shared expert runs beside the routed ones, up to where its result joins theirs. */
    enum { SIDE_ROWS = 256 };
    bool aside = c->shared_intermediate && r->program->device->info.kind == DEVICE_CUDA && r->forward->step.max_rows <= SIDE_ROWS;
    struct op_value inner;
    if (aside) {
        program_side(r->program, true);
        ROSE_TRY(shared_inner(r, i, x, &inner));
        program_side(r->program, false);
    }
    struct op_matmul m = {.name = "router", .layer = i, .x = x, .parts_count = 1, .parts = {{&l->weight[SLOT_ROUTER], NULL, logits}},
                          .deterministic = r->forward->deterministic};
    ROSE_TRY(op_matmul(r->program, &m, r->err));
    struct op_moe_route route = {.layer = i, .experts = c->experts, .top_k = c->experts_used, .score = c->expert_score, .normalize = c->experts_normalize,
                                 .scale = c->experts_scale, .logits = logits, .ids = ids, .weights = weights, .deterministic = r->forward->deterministic};
    struct op_moe_mlp mlp = {.layer = i, .route = &route, .experts = c->experts, .top_k = c->experts_used, .gate = l->experts[0], .up = l->experts[1], .down = l->experts[2],
                             .activation = c->activation, .ids = ids, .weights = weights, .x = x, .y = out, .accumulate = residual,
                             .alpha = residual ? c->residual_scale : 1, .deterministic = r->forward->deterministic};
    ROSE_TRY(op_moe_mlp(r->program, &mlp, r->err));
    if (c->shared_intermediate && !aside) ROSE_TRY(shared_inner(r, i, x, &inner));
    if (aside) program_join(r->program);
    if (c->shared_intermediate) ROSE_TRY(shared_down(r, i, inner, out));
    return after(r, i, SLOT_POST_FFN_NORM, out);
}

static enum rose_status output(struct recorder *r)
{
    const struct model_config *c = r->config;
    const struct op_step *step = &r->forward->step;
    struct op_value last = forward_value(r, "last", EXTENT_SAMPLES, c->hidden);
    struct op_value logits = {r->forward->logits, DTYPE_F32, EXTENT_SAMPLES, c->vocabulary, c->vocabulary, 0};
    ROSE_TRY(op_gather(r->program, &(struct op_gather){step->sample_rows, r->h, last}, r->err));
    struct op_norm norm = norm_of(r, -1, SLOT_FINAL_NORM, last, last, false);
    struct op_matmul m = {.name = "output", .layer = -1, .x = last, .norm = &norm, .parts_count = 1, .parts = {{&r->model->output, NULL, logits}}, .alpha = c->logits_scale,
                          .deterministic = r->forward->deterministic};
    ROSE_TRY(op_matmul(r->program, &m, r->err));
    if (c->logits_softcap > 0)
        ROSE_TRY(op_softcap(r->program, &(struct op_softcap){.x = logits, .y = logits, .scale = 1, .cap = c->logits_softcap}, r->err));
    return ROSE_OK;
}

/* Word, position and token type, and the norm behind their sum. */
static enum rose_status embed(struct recorder *r)
{
    const struct model_config *c = r->config;
    const struct op_step *step = &r->forward->step;
    ROSE_TRY(op_embed(r->program, &(struct op_embed){.table = &r->model->embed, .index = step->tokens, .y = r->h, .scale = c->embedding_scale}, r->err));
    const struct op_weight *tables = r->model->top->weight;
    if (c->positions)
        ROSE_TRY(op_embed(r->program, &(struct op_embed){.table = &tables[SLOT_POSITIONS], .index = step->positions, .y = r->h, .accumulate = true,
                                                         .index_offset = c->position_offset}, r->err));
    if (c->types)
        ROSE_TRY(op_embed(r->program, &(struct op_embed){.table = &tables[SLOT_TYPES], .index = r->forward->types, .y = r->h, .accumulate = true}, r->err));
    return c->embed_norm ? forward_norm(r, -1, SLOT_EMBED_NORM, r->h, r->h, false) : ROSE_OK;
}

enum rose_status forward_record(const struct model *model, struct program *program, const struct forward *forward, struct rose_error *err)
{
    const struct model_config *c = &model->config;
    struct recorder r = {.model = model, .config = c, .program = program, .forward = forward, .err = err};
    r.h = forward_value(&r, "h", EXTENT_ROWS, c->hidden);
    if (forward->hidden) r.h.buffer = forward->hidden;
    r.y = forward_value(&r, "norm", EXTENT_ROWS, c->hidden);
    ROSE_TRY(embed(&r));
    for (int i = 0; i < c->layers; i++) {
        ROSE_TRY(attention(&r, i));
        ROSE_TRY(c->layer[i].moe ? moe_mlp(&r, i) : dense_mlp(&r, i));
    }
    return c->own_rows ? forward_head(&r) : output(&r);
}
