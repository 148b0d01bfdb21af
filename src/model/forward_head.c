/* What stands on the rows of models that embed, classify and score.
 *
 *     h = final norm(h)                                       [T, hidden], kept for answers of a row a token
 *     embed:     pooled = dense(... dense(pool(h)))           [S, embedding]
 *     classify:  pooled = W (norm)(activation(dense(pool(h)))) + b   [S, labels]
 *     yes or no: pooled = output[yes, no] pool(h)             [S, 2], before a soft cap
 *     tokens:    token_values = W h + b                       [T, labels]
 */
#include "model/forward.h"
#include "ops/elementwise.h"

int32_t forward_pooled_cols(const struct model_config *c)
{
    switch (c->head.task) {
    case MODEL_EMBED: return c->head.embedding;
    case MODEL_CLASSIFY: return c->head.labels;
    case MODEL_YES_NO: return c->head.no >= 0 ? 2 : 1;
    default: return 0;
    }
}

int32_t forward_token_cols(const struct model_config *c)
{
    if (c->head.task == MODEL_CLASSIFY_TOKENS) return c->head.labels;
    return c->head.task == MODEL_EMBED && c->head.sparse ? 1 : 0;
}

static struct op_value out_value(program_buffer_id buffer, enum extent rows, int32_t cols)
{
    return (struct op_value){buffer, DTYPE_F32, rows, cols, cols, 0};
}

static enum rose_status product(struct recorder *r, const char *name, const struct op_weight *w, const float *bias, enum op_activation act, struct op_value x,
                                struct op_value y)
{
    struct op_matmul m = {.name = name, .layer = -1, .x = x, .parts_count = 1, .parts = {{w, bias, y}}, .activation = act, .deterministic = r->forward->deterministic};
    return op_matmul(r->program, &m, r->err);
}

/* y = activation(x W^T + b), tanh included. */
static enum rose_status dense(struct recorder *r, const char *name, const struct head_dense *d, const struct op_weight *w, const float *bias, struct op_value x, struct op_value y)
{
    ROSE_TRY(product(r, name, w, bias, d->activation, x, y));
    return d->tanh ? op_softcap(r->program, &(struct op_softcap){.x = y, .y = y, .scale = 1, .cap = 1}, r->err) : ROSE_OK;
}

static enum rose_status pool(struct recorder *r, struct op_value y)
{
    const struct forward *f = r->forward;
    return op_pool(r->program, &(struct op_pool){.seq_rows = f->step.seq_rows, .kind = f->pool_kind, .skip = f->pool_skip, .x = r->h, .y = y}, r->err);
}

static enum rose_status embed_head(struct recorder *r)
{
    static const char *const names[HEAD_MAX_DENSE] = {"dense 0", "dense 1", "dense 2", "dense 3"};
    const struct model_head *h = &r->config->head;
    struct op_value x, pooled = out_value(r->forward->pooled, EXTENT_SEQS, h->embedding);
    if (h->sparse)
        ROSE_TRY(product(r, "sparse", &r->model->sparse, r->model->sparse_bias, OP_ACT_RELU, r->h, out_value(r->forward->token_values, EXTENT_ROWS, 1)));
    if (!h->dense_count) return pool(r, pooled);
    x = forward_value(r, "pooled", EXTENT_SEQS, r->config->hidden);
    ROSE_TRY(pool(r, x));
    for (int32_t i = 0; i < h->dense_count; i++) {
        const struct head_dense *d = &h->dense[i];
        struct op_value y = i + 1 == h->dense_count ? pooled : forward_value(r, names[i], EXTENT_SEQS, d->out);
        ROSE_TRY(dense(r, names[i], d, &d->weight, d->bias, x, y));
        x = y;
    }
    return ROSE_OK;
}

/* The classifier over x, rows counted by its extent. */
static enum rose_status classify(struct recorder *r, struct op_value x, struct op_value out)
{
    const struct model_head *h = &r->config->head;
    const struct model_layer *top = r->model->top;
    if (h->inner.out) {
        struct op_value y = forward_value(r, "classifier.dense", x.rows, h->inner.out);
        ROSE_TRY(dense(r, "classifier.dense", &h->inner, &top->weight[SLOT_HEAD_DENSE], top->vector[SLOT_HEAD_DENSE_BIAS], x, y));
        if (h->inner_norm) ROSE_TRY(forward_norm(r, -1, SLOT_HEAD_NORM, y, y, false));
        x = y;
    }
    return product(r, "classifier", &top->weight[SLOT_HEAD_OUT], top->vector[SLOT_HEAD_OUT_BIAS], OP_ACT_NONE, x, out);
}

static enum rose_status answers(struct recorder *r, struct op_value x)
{
    int32_t cols = forward_pooled_cols(r->config);
    struct op_value out = out_value(r->forward->pooled, EXTENT_SEQS, cols);
    struct op_matmul m = {.name = "answers", .layer = -1, .x = x, .parts_count = cols, .alpha = r->config->logits_scale, .deterministic = r->forward->deterministic};
    for (int32_t i = 0; i < cols; i++) m.parts[i] = (struct op_matmul_part){&r->model->answer[i], NULL, op_slice(out, i, 1)};
    return op_matmul(r->program, &m, r->err);
}

enum rose_status forward_head(struct recorder *r)
{
    const struct model_config *c = r->config;
    if (!c->final_norm_absent) ROSE_TRY(forward_norm(r, -1, SLOT_FINAL_NORM, r->h, r->h, false));
    if (c->head.task == MODEL_EMBED) return embed_head(r);
    if (c->head.task == MODEL_CLASSIFY_TOKENS) return classify(r, r->h, out_value(r->forward->token_values, EXTENT_ROWS, c->head.labels));
    struct op_value x = forward_value(r, "pooled", EXTENT_SEQS, c->hidden);
    ROSE_TRY(pool(r, x));
    return c->head.task == MODEL_YES_NO ? answers(r, x) : classify(r, x, out_value(r->forward->pooled, EXTENT_SEQS, c->head.labels));
}
