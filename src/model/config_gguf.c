/* GGUF metadata to model_config. Keys lie under the architecture's name: "llama.block_count". */
#include <math.h>
#include <stdio.h>

#include "model/arch.h"
#include "model/config_util.h"
#include "weights/gguf.h"

const struct gguf_value *config_gguf_find(struct weights *w, const char *key)
{
    struct str arch = {0};
    char full[192];
    if (gguf_str(w, "general.architecture", &arch, NULL) != ROSE_OK) return NULL;
    snprintf(full, sizeof full, STR_FMT ".%s", STR_ARG(arch), key);
    return gguf_get(w, full);
}

double config_gguf_num(struct weights *w, const char *key, double fallback)
{
    const struct gguf_value *v = config_gguf_find(w, key);
    double n;
    return v && gguf_num(v, 0, &n) ? n : fallback;
}

enum rose_status config_gguf_size(struct weights *w, const char *key, int64_t high, int64_t fallback, int32_t *out, struct rose_error *err)
{
    const struct gguf_value *v = config_gguf_find(w, key);
    const char *file = weights_path(w);
    if (!v) {
        if (fallback < 0) return status_at(err, ROSE_FORMAT, file, -1, "%s: the metadata has no *.%s", file, key);
        *out = (int32_t)fallback;
        return ROSE_OK;
    }
    if (!v->count) return status_at(err, ROSE_FORMAT, file, (int64_t)v->offset, "%s: *.%s is an empty list", file, key);
    for (uint64_t i = 0; i < v->count; i++) {
        int64_t n;
        if (!gguf_int(v, i, &n) || n < 0 || n > high || n > INT32_MAX)
            return status_at(err, ROSE_FORMAT, file, (int64_t)v->offset, "%s: *.%s must be a whole number from 0 to %lld", file, key, (long long)high);
        if (i && n != *out) return status_at(err, ROSE_UNSUPPORTED, file, (int64_t)v->offset, "%s: *.%s differs between layers, which is not supported", file, key);
        *out = (int32_t)n;
    }
    return ROSE_OK;
}

enum rose_status config_gguf_pattern(struct weights *w, struct model_config *c, int32_t window, int32_t period, bool full_first, struct rose_error *err)
{
    const struct gguf_value *v = config_gguf_find(w, "attention.sliding_window_pattern");
    const char *file = weights_path(w);
    bool list = v && v->type == GGUF_ARRAY;
    int64_t n = period;
    ROSE_TRY(config_gguf_size(w, "attention.sliding_window", INT32_MAX, window, &window, err));
    if (v && (list ? v->count < (uint64_t)c->layers : !gguf_int(v, 0, &n) || n < 0 || n > INT32_MAX))
        return status_at(err, ROSE_FORMAT, file, (int64_t)v->offset, "%s: *.attention.sliding_window_pattern must be a number of layers, or a switch for each of the %d", file, c->layers);
    for (int32_t i = 0; i < c->layers; i++) {
        bool local = n == 0 || (full_first ? i % n != 0 : i % n < n - 1);
        if (list) {
            if (!gguf_int(v, (uint64_t)i, &n)) return status_at(err, ROSE_FORMAT, file, (int64_t)v->offset, "%s: *.attention.sliding_window_pattern must be switches", file);
            local = n != 0;
        }
        c->layer[i].window = local ? window : 0;
    }
    return ROSE_OK;
}

enum rose_status config_gguf_local_rope(struct weights *w, struct model_config *c, struct rose_error *err)
{
    c->ropes[1] = (struct rope_config){.scaling = ROPE_DEFAULT, .rotary_dim = c->ropes[0].rotary_dim, .factor = 1, .theta = config_gguf_num(w, "rope.freq_base_swa", 10000)};
    ROSE_TRY(config_rope_check(&c->ropes[1], weights_path(w), err));
    c->ropes_count = 2;
    for (int32_t i = 0; i < c->layers; i++) c->layer[i].rope = c->layer[i].window ? 1 : 0;
    return ROSE_OK;
}

static enum rose_status rope_from_gguf(struct weights *w, struct model_config *c, struct rope_config *r, struct rose_error *err)
{
    *r = (struct rope_config){.beta_fast = config_gguf_num(w, "rope.scaling.yarn_beta_fast", 32), .beta_slow = config_gguf_num(w, "rope.scaling.yarn_beta_slow", 1),
                              .low_freq_factor = 1, .high_freq_factor = 4, .truncate = true};
    r->theta = config_gguf_num(w, "rope.freq_base", 10000);
    ROSE_TRY(config_gguf_size(w, "rope.dimension_count", 1 << 14, c->heads.head_dim, &r->rotary_dim, err));
    r->factor = config_gguf_num(w, "rope.scaling.factor", config_gguf_num(w, "rope.scale_linear", 1));
    if (r->factor == 0) r->factor = 1;
    ROSE_TRY(config_gguf_size(w, "rope.scaling.original_context_length", INT32_MAX, 0, &r->original_context, err));
    r->attention_factor = config_gguf_num(w, "rope.scaling.attn_factor", 0);
    const struct gguf_value *type = config_gguf_find(w, "rope.scaling.type");
    struct str name = STR("none");
    if (type && !gguf_text(type, &name)) return status_at(err, ROSE_FORMAT, weights_path(w), (int64_t)type->offset, "rope.scaling.type must be a string");
    if (str_is(name, "linear") || (!type && r->factor != 1)) r->scaling = ROPE_LINEAR;
    else if (str_is(name, "yarn")) r->scaling = ROPE_YARN;
    else if (str_is(name, "longrope")) r->scaling = ROPE_LONGROPE;
    else if (!str_is(name, "none"))
        return status_at(err, ROSE_UNSUPPORTED, weights_path(w), -1, "%s: rope scaling \"" STR_FMT "\" is not known", weights_path(w), STR_ARG(name));
    /* Phi-3 names no type: the two tables of factors tell. */
    if (weights_find(w, "rope_factors_long.weight")) r->scaling = ROPE_LONGROPE;
    if (r->scaling == ROPE_LONGROPE && r->factor == 1 && r->original_context) r->factor = (double)c->context / r->original_context;
    return config_rope_check(r, weights_path(w), err);
}

static enum rose_status read_moe(struct weights *w, struct model_config *c, struct rose_error *err)
{
    ROSE_TRY(config_gguf_size(w, "expert_count", 4096, 0, &c->experts, err));
    if (!c->experts) return ROSE_OK;
    ROSE_TRY(config_gguf_size(w, "expert_used_count", 4096, -1, &c->experts_used, err));
    ROSE_TRY(config_gguf_size(w, "expert_feed_forward_length", 1 << 22, c->intermediate, &c->expert_intermediate, err));
    ROSE_TRY(config_gguf_size(w, "expert_shared_feed_forward_length", 1 << 22, 0, &c->shared_intermediate, err));
    c->experts_normalize = true;
    c->experts_scale = (float)config_gguf_num(w, "expert_weights_scale", 1);
    char name[96];
    for (int32_t i = 0; i < c->layers; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", i);
        c->layer[i].moe = weights_find(w, name) != NULL;
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp_shexp.weight", i);
        if (weights_find(w, name)) c->shared_gate = true;
    }
    return ROSE_OK;
}

/* GGUF does not say which biases and norms there are: the tensors of layer 0 do. */
static void read_features(struct weights *w, struct model_config *c)
{
    c->tied = !weights_find(w, "output.weight");
    c->qkv_bias = weights_find(w, "blk.0.attn_q.bias") || weights_find(w, "blk.0.attn_qkv.bias");
    c->o_bias = weights_find(w, "blk.0.attn_output.bias") != NULL;
    c->mlp_bias = weights_find(w, "blk.0.ffn_down.bias") != NULL;
    c->qk_norm = weights_find(w, "blk.0.attn_q_norm.weight") ? c->arch->qk_norm ? c->arch->qk_norm : MODEL_QK_NORM_HEAD : MODEL_QK_NORM_NONE;
}

static enum rose_status read_tokens(struct weights *w, struct model_config *c, struct rose_error *err)
{
    const struct gguf_value *tokens = gguf_get(w, "tokenizer.ggml.tokens"), *embed_rows = config_gguf_find(w, "vocab_size");
    const struct weights_tensor *embed = weights_find(w, "token_embd.weight");
    int64_t n = embed && embed->ndim == 2 ? embed->shape[0] : tokens ? (int64_t)tokens->count : -1;
    if (n < 0 && embed_rows && !gguf_int(embed_rows, 0, &n)) n = -1;
    if (n < 1 || n > 1 << 24) return status_at(err, ROSE_FORMAT, weights_path(w), -1, "%s: no sensible vocabulary (token_embd.weight, tokenizer.ggml.tokens)", weights_path(w));
    c->vocabulary = (int32_t)n;
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    int64_t id;
    for (size_t i = 0; i < ROSE_COUNT(ends); i++)
        if (gguf_i64(w, ends[i], &id, NULL) == ROSE_OK && id >= 0 && id < n) {
            bool known = false;
            for (int32_t k = 0; k < c->eos_count; k++) known |= c->eos[k] == id;
            if (!known) c->eos[c->eos_count++] = (int32_t)id;
        }
    if (gguf_i64(w, "tokenizer.ggml.bos_token_id", &id, NULL) == ROSE_OK && id >= 0 && id < n) c->bos = (int32_t)id;
    if (gguf_i64(w, "tokenizer.ggml.padding_token_id", &id, NULL) == ROSE_OK && id >= 0 && id < n) c->pad = (int32_t)id;
    return ROSE_OK;
}

/* Values of a wrong type, which config_gguf_num would read as if they were not there. */
static enum rose_status check_types(struct weights *w, struct rose_error *err)
{
    static const char *const numbers[] = {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "rope.freq_base", "rope.freq_base_swa", "rope.scaling.factor", "rope.scale_linear",
                                          "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "attn_logit_softcapping", "final_logit_softcapping",
                                          "embedding_scale", "residual_scale", "attention.scale", "logit_scale", "expert_weights_scale"};
    for (size_t i = 0; i < ROSE_COUNT(numbers); i++) {
        const struct gguf_value *v = config_gguf_find(w, numbers[i]);
        double n;
        if (v && !gguf_num(v, 0, &n)) return status_at(err, ROSE_FORMAT, weights_path(w), (int64_t)v->offset, "%s: *.%s must be a number", weights_path(w), numbers[i]);
    }
    return ROSE_OK;
}

enum rose_status config_from_gguf(struct arena *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    *c = (struct model_config){.embedding_scale = 1, .residual_scale = 1, .logits_scale = 1, .experts_scale = 1, .bos = -1, .pad = -1};
    const char *file = weights_path(w);
    struct str name = {0};
    if (gguf_str(w, "general.architecture", &name, NULL) != ROSE_OK) return status_at(err, ROSE_FORMAT, file, -1, "%s: the metadata has no general.architecture", file);
    c->arch = arch_find_gguf(name);
    if (!c->arch) {
        char list[512];
        arch_list(list, sizeof list);
        return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: architecture \"" STR_FMT "\" is not supported; these are: %s", file, STR_ARG(name), list);
    }
    if (gguf_str(w, "general.name", &name, NULL) == ROSE_OK) snprintf(c->name, sizeof c->name, STR_FMT, STR_ARG(name));
    ROSE_TRY(check_types(w, err));
    ROSE_TRY(config_gguf_size(w, "block_count", 4096, -1, &c->layers, err));
    ROSE_TRY(config_gguf_size(w, "embedding_length", 1 << 20, -1, &c->hidden, err));
    ROSE_TRY(config_gguf_size(w, "feed_forward_length", 1 << 22, -1, &c->intermediate, err));
    ROSE_TRY(config_gguf_size(w, "context_length", INT32_MAX, 2048, &c->context, err));
    ROSE_TRY(config_gguf_size(w, "attention.head_count", 1 << 14, -1, &c->heads.heads, err));
    if (c->layers < 1 || c->hidden < 1 || c->heads.heads < 1) return status_at(err, ROSE_FORMAT, file, -1, "%s: a model of %d layers, width %d, %d heads makes no sense", file, c->layers, c->hidden, c->heads.heads);
    ROSE_TRY(config_gguf_size(w, "attention.head_count_kv", 1 << 14, c->heads.heads, &c->heads.kv_heads, err));
    if (c->heads.kv_heads < 1) return status_at(err, ROSE_UNSUPPORTED, file, -1, "%s: layers without key-value heads are not supported", file);
    if (!config_gguf_find(w, "attention.key_length") && c->hidden % c->heads.heads)
        return status_at(err, ROSE_FORMAT, file, -1, "%s: a width of %d is no multiple of its %d heads, and *.attention.key_length does not say their size", file, c->hidden, c->heads.heads);
    ROSE_TRY(config_gguf_size(w, "attention.key_length", 1 << 14, ROSE_MAX(c->hidden / c->heads.heads, 1), &c->heads.head_dim, err));
    ROSE_TRY(config_gguf_size(w, "attention.value_length", 1 << 14, c->heads.head_dim, &c->heads.value_dim, err));
    c->layer = ARENA_ARRAY(arena, struct layer_config, (size_t)c->layers);
    if (!c->layer) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    c->norm_eps = (float)config_gguf_num(w, "attention.layer_norm_rms_epsilon", config_gguf_num(w, "attention.layer_norm_epsilon", 1e-5));
    c->norms = c->arch->norms;
    c->activation = c->arch->activation ? c->arch->activation : OP_ACT_SILU;
    c->rope_pairs = c->arch->gguf_pairs ? OP_ROPE_PAIRS : OP_ROPE_HALF;
    int32_t window;
    ROSE_TRY(config_gguf_size(w, "attention.sliding_window", INT32_MAX, 0, &window, err));
    for (int32_t i = 0; i < c->layers; i++) c->layer[i].window = window;
    ROSE_TRY(read_tokens(w, c, err));
    read_features(w, c);
    ROSE_TRY(read_moe(w, c, err));
    c->ropes_count = 1;
    ROSE_TRY(rope_from_gguf(w, c, &c->ropes[0], err));
    if (c->arch->from_gguf) ROSE_TRY(c->arch->from_gguf(arena, w, c, err));
    return config_finish(c, file, err);
}
