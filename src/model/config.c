#include "model/config.h"

#include <math.h>

#include "model/arch.h"
#include "model/config_util.h"
#include "weights/weights.h"

enum rose_status config_rope_check(const struct rope_config *r, const char *file, struct rose_error *err)
{
    if (r->rotary_dim < 2 || r->rotary_dim % 2)
        return status_at(err, ROSE_FORMAT, file, -1, "%s: the rotary dimension must be even and at least 2, found %d", file, r->rotary_dim);
    if (!(r->theta > 0) || isinf(r->theta)) return status_at(err, ROSE_FORMAT, file, -1, "%s: rope theta must be a positive number", file);
    if (!(r->factor > 0) || isinf(r->factor)) return status_at(err, ROSE_FORMAT, file, -1, "%s: the rope factor must be a positive number", file);
    if (r->scaling == ROPE_LLAMA3 && (!(r->low_freq_factor > 0) || !(r->high_freq_factor > r->low_freq_factor)))
        return status_at(err, ROSE_FORMAT, file, -1, "%s: llama3 rope wants 0 < low_freq_factor < high_freq_factor", file);
    if (r->scaling == ROPE_YARN && (!(r->beta_slow > 0) || !(r->beta_fast > 0) || r->theta == 1))
        return status_at(err, ROSE_FORMAT, file, -1, "%s: yarn rope wants positive beta_fast and beta_slow and a theta other than 1", file);
    if (!(r->attention_factor >= 0) || r->attention_factor > 1e6 || !(fabs(r->mscale) <= 1e6) || !(fabs(r->mscale_all_dim) <= 1e6))
        return status_at(err, ROSE_FORMAT, file, -1, "%s: the rope attention factor %g (mscale %g, mscale_all_dim %g) makes no sense", file, r->attention_factor, r->mscale,
                         r->mscale_all_dim);
    if (r->scaling == ROPE_LONGROPE && r->original_context == 1)
        return status_at(err, ROSE_FORMAT, file, -1, "%s: longrope wants an original context above 1", file);
    if (r->scaling == ROPE_DYNAMIC && r->rotary_dim == 2)
        return status_at(err, ROSE_FORMAT, file, -1, "%s: dynamic rope wants a rotary dimension above 2", file);
    return ROSE_OK;
}

/* Layers of equal window form groups of equal size (all pages have one byte size): the size is the smallest count of layers any
 * window has, so that few layers of one kind do not waste pages of another. More groups than OP_MAX_GROUPS: larger, padded ones. */
static enum rose_status plan_groups(struct model_config *c, const char *file, struct rose_error *err)
{
    int32_t windows[OP_MAX_GROUPS], counts[OP_MAX_GROUPS] = {0}, kinds = 0;
    for (int32_t i = 0; i < c->layers; i++) {
        int32_t k = 0;
        while (k < kinds && windows[k] != c->layer[i].window) k++;
        if (k == OP_MAX_GROUPS) return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: more than %d different sliding windows", file, OP_MAX_GROUPS);
        if (k == kinds) windows[kinds] = c->layer[i].window, counts[kinds] = 0, kinds++;
        counts[k]++;
    }
    int32_t size = counts[0];
    for (int32_t k = 1; k < kinds; k++) size = ROSE_MIN(size, counts[k]);
    for (;; size++) {
        int32_t groups = 0;
        for (int32_t k = 0; k < kinds; k++) groups += (counts[k] + size - 1) / size;
        if (groups <= OP_MAX_GROUPS) break;
    }
    c->group_layers = size;
    c->groups_count = 0;
    for (int32_t k = 0; k < kinds; k++) {
        int32_t seen = 0;
        for (int32_t i = 0; i < c->layers; i++) {
            if (c->layer[i].window != windows[k]) continue;
            if (seen % size == 0) {
                c->groups[c->groups_count].window = windows[k];
                c->groups[c->groups_count++].layers = 0;
            }
            c->layer[i].group = (int16_t)(c->groups_count - 1);
            c->layer[i].group_layer = (int16_t)(seen++ % size);
            c->groups[c->groups_count - 1].layers++;
        }
    }
    return ROSE_OK;
}

enum rose_status config_finish(struct model_config *c, const char *file, struct rose_error *err)
{
    struct op_heads *h = &c->heads;
    if (!h->value_dim) h->value_dim = h->head_dim;
    if (h->heads % h->kv_heads)
        return status_at(err, ROSE_FORMAT, file, -1, "%s: %d query heads cannot share %d key-value heads evenly", file, h->heads, h->kv_heads);
    if (h->head_dim < 2 || h->head_dim % 2 || h->head_dim > 512)
        return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: head size %d (even sizes up to 512 are supported)", file, h->head_dim);
    if (h->value_dim != h->head_dim)
        return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: values of size %d beside keys of size %d are not supported", file, h->value_dim, h->head_dim);
    if (c->context < 1) return status_at(err, ROSE_FORMAT, file, -1, "%s: a context of %d tokens makes no sense", file, c->context);
    if ((int64_t)h->heads * h->head_dim > 1 << 24 || (int64_t)c->hidden * c->vocabulary > (int64_t)1 << 40)
        return status_at(err, ROSE_FORMAT, file, -1, "%s: the sizes are absurd (heads %d x %d, hidden %d, vocabulary %d)", file, h->heads, h->head_dim, c->hidden,
                         c->vocabulary);
    if (!(c->norm_eps >= 0) || c->norm_eps > 1) return status_at(err, ROSE_FORMAT, file, -1, "%s: the norm's epsilon must lie in [0, 1]", file);
    if (c->attention_scale == 0) c->attention_scale = 1 / sqrtf((float)h->head_dim);
    if (!(c->attention_scale > 0)) return status_at(err, ROSE_FORMAT, file, -1, "%s: the scale of attention scores must be positive", file);
    if (!isfinite(c->attention_scale) || !isfinite(c->embedding_scale) || !isfinite(c->residual_scale) || !isfinite(c->logits_scale) || c->logits_scale == 0)
        return status_at(err, ROSE_FORMAT, file, -1, "%s: a multiplier is not a finite number", file);
    if (!(c->attention_softcap >= 0) || !(c->logits_softcap >= 0) || isinf(c->attention_softcap) || isinf(c->logits_softcap))
        return status_at(err, ROSE_FORMAT, file, -1, "%s: a soft cap is negative or infinite", file);
    for (int32_t i = 0; i < c->ropes_count; i++)
        if (c->ropes[i].rotary_dim > h->head_dim)
            return status_at(err, ROSE_FORMAT, file, -1, "%s: the rotary dimension %d exceeds the head size %d", file, c->ropes[i].rotary_dim, h->head_dim);
    if (c->experts && (c->experts_used < 1 || c->experts_used > c->experts || c->experts > 4096 || c->expert_intermediate < 1))
        return status_at(err, ROSE_FORMAT, file, -1, "%s: %d experts of which %d are used, each %d wide, make no sense", file, c->experts, c->experts_used,
                         c->expert_intermediate);
    return plan_groups(c, file, err);
}

enum rose_status config_read(struct arena *arena, struct weights *weights, struct model_config *out, struct rose_error *err)
{
    if (weights_kind(weights) == WEIGHTS_GGUF) return config_from_gguf(arena, weights, out, err);
    const struct json *config = weights_config(weights);
    if (!config) return status_at(err, ROSE_NOT_FOUND, weights_path(weights), -1, "%s has no config.json: give the model's directory", weights_path(weights));
    ROSE_TRY(config_from_json(arena, "config.json", config, out, err));
    return config_eos(weights_generation_config(weights), out, err); /* generation_config may name more ends */
}
