/* The rows. What a row does not say follows the family's habits (config_json.c, config_gguf.c, slots.c). */
#include "model/arch.h"

#include <math.h>
#include <stdio.h>

#include "model/config_util.h"
#include "model/slots.h"
#include "weights/gguf.h"
#include "weights/weights.h"

typedef struct arena arena_t;

/* --- windows ------------------------------------------------------------------------------------------------------------- */

/* Every period-th layer sees everything, the others the window (Gemma 2: 2, Gemma 3: 6), unless layer_types said so already. */
static void windows_by_period(const struct json *j, struct model_config *c, int32_t window, int32_t period)
{
    if (!json_is_null(json_get(j, "layer_types"))) return;
    for (int32_t i = 0; i < c->layers; i++) c->layer[i].window = (i + 1) % period ? window : 0;
}

/* --- rows that read more than the shared reader ------------------------------------------------------------------------------ */

/* The window is off unless asked for. Without layer_types Qwen2 and Qwen3 have it from max_window_layers on, Qwen2-MoE in every
 * other layer before max_window_layers, Qwen3-MoE everywhere. */
static enum rose_status qwen2_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    bool use = json_bool(json_get(j, "use_sliding_window"), false), typed = !json_is_null(json_get(j, "layer_types"));
    bool moe2 = str_is(str_of(c->arch->name), "qwen2_moe"), moe3 = str_is(str_of(c->arch->name), "qwen3_moe");
    int32_t border;
    ROSE_TRY(config_int(j, "max_window_layers", 0, INT32_MAX, 28, &border, err));
    for (int32_t i = 0; i < c->layers; i++) {
        bool has = moe3 || typed || (moe2 ? i % 2 == 0 && i < border : i >= border);
        if (!use || !has) c->layer[i].window = 0;
    }
    if (moe2) c->qkv_bias = json_bool(json_get(j, "qkv_bias"), true);
    return ROSE_OK;
}

static enum rose_status moe_json(const struct json *j, const char *experts, const char *width, struct model_config *c, struct rose_error *err)
{
    ROSE_TRY(config_int(j, experts, 1, 4096, -1, &c->experts, err));
    ROSE_TRY(config_int(j, "num_experts_per_tok", 1, 4096, 2, &c->experts_used, err));
    ROSE_TRY(config_int(j, width, 1, 1 << 22, -1, &c->expert_intermediate, err));
    c->expert_score = OP_MOE_SOFTMAX;
    c->experts_normalize = true;
    for (int32_t i = 0; i < c->layers; i++) c->layer[i].moe = true;
    return ROSE_OK;
}

static enum rose_status qwen_moe_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    ROSE_TRY(qwen2_json(arena, j, c, err));
    ROSE_TRY(moe_json(j, "num_experts", "moe_intermediate_size", c, err));
    c->experts_normalize = json_bool(json_get(j, "norm_topk_prob"), false);
    ROSE_TRY(config_int(j, "shared_expert_intermediate_size", 0, 1 << 22, 0, &c->shared_intermediate, err));
    if (!str_is(str_of(c->arch->name), "qwen2_moe")) c->shared_intermediate = 0;
    c->shared_gate = c->shared_intermediate > 0;
    int32_t step;
    ROSE_TRY(config_int(j, "decoder_sparse_step", 1, 4096, 1, &step, err));
    const struct json *dense = json_get(j, "mlp_only_layers");
    for (int32_t i = 0; i < c->layers; i++) {
        bool moe = (i + 1) % step == 0;
        for (uint32_t k = 0; json_is(dense, JSON_ARRAY) && k < dense->count; k++)
            if (json_int(json_at(dense, k), -1) == i) moe = false;
        c->layer[i].moe = moe;
    }
    return ROSE_OK;
}

static enum rose_status mixtral_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    return moe_json(j, "num_local_experts", "intermediate_size", c, err);
}

static enum rose_status gemma_scales(const struct json *j, struct model_config *c, struct rose_error *err)
{
    double scalar = json_num(json_get(j, "query_pre_attn_scalar"), 256);
    if (!(scalar > 0)) return status_set(err, ROSE_FORMAT, "config.json: \"query_pre_attn_scalar\" must be positive");
    c->attention_scale = (float)(1 / sqrt(scalar));
    c->embedding_scale = sqrtf((float)c->hidden);
    struct str act = json_str(json_get(j, "hidden_activation"), ""); /* "hidden_act" of old files means nothing */
    if (!act.n) c->activation = c->arch->activation;
    c->bidirectional = json_bool(json_get(j, "use_bidirectional_attention"), false); /* EmbeddingGemma */
    bool gemma2 = str_is(str_of(c->arch->name), "gemma2");
    /* Absent means the class's default, null means none. */
    const struct json *attention = json_get(j, "attn_logit_softcapping"), *final = json_get(j, "final_logit_softcapping");
    c->attention_softcap = gemma2 ? (float)json_num(attention, attention ? 0 : 50) : 0; /* Gemma 3 keeps the key and caps nothing */
    c->logits_softcap = (float)json_num(final, final || !gemma2 ? 0 : 30);
    return ROSE_OK;
}

static enum rose_status gemma2_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    int32_t window;
    ROSE_TRY(config_window(j, c, &window, err));
    windows_by_period(j, c, window, 2);
    return gemma_scales(j, c, err);
}

static enum rose_status gemma3_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    int32_t window, period;
    ROSE_TRY(config_window(j, c, &window, err));
    ROSE_TRY(config_int(j, "sliding_window_pattern", 1, 4096, 6, &period, err));
    windows_by_period(j, c, window, period);
    ROSE_TRY(gemma_scales(j, c, err));
    /* Old files: rope_theta and rope_scaling for the layers that see everything, rope_local_base_freq for the others. */
    const struct json *both = json_get(j, "rope_parameters"), *scaling = json_get(j, "rope_scaling"), *sliding = json_get(both, "sliding_attention");
    static const struct json none = {.type = JSON_OBJECT};
    ROSE_TRY(config_rope(arena, j, json_is_null(scaling) ? json_get(both, "full_attention") : scaling, 1e6, c, &c->ropes[0], err));
    ROSE_TRY(config_rope(arena, &none, sliding, json_num(json_get(j, "rope_local_base_freq"), 10000), c, &c->ropes[1], err));
    if (rope_by_length(&c->ropes[1]))
        return status_set(err, ROSE_UNSUPPORTED, "config.json: layers with a window must not have frequencies that depend on the length");
    c->ropes_count = 2;
    for (int32_t i = 0; i < c->layers; i++) c->layer[i].rope = c->layer[i].window ? 1 : 0;
    return ROSE_OK;
}

static enum rose_status granite_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    c->embedding_scale = (float)json_num(json_get(j, "embedding_multiplier"), 1);
    c->residual_scale = (float)json_num(json_get(j, "residual_multiplier"), 1);
    c->attention_scale = (float)json_num(json_get(j, "attention_multiplier"), 1);
    c->logits_scale = (float)(1 / json_num(json_get(j, "logits_scaling"), 1));
    if (!(c->attention_scale > 0)) return status_set(err, ROSE_FORMAT, "config.json: \"attention_multiplier\" must be positive");
    return ROSE_OK;
}

/* no_rope_layers holds 1 where rope is used; without it every no_rope_layer_interval-th layer goes without. */
static enum rose_status smollm3_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    int32_t interval;
    ROSE_TRY(config_int(j, "no_rope_layer_interval", 1, 4096, 4, &interval, err));
    const struct json *list = json_get(j, "no_rope_layers");
    if (!json_is_null(list) && (!json_is(list, JSON_ARRAY) || (int32_t)list->count < c->layers))
        return status_set(err, ROSE_FORMAT, "config.json: \"no_rope_layers\" must hold a number for each of the %d layers", c->layers);
    bool use = json_bool(json_get(j, "use_sliding_window"), false);
    for (int32_t i = 0; i < c->layers; i++) {
        bool rope = json_is_null(list) ? (i + 1) % interval != 0 : json_int(json_at(list, i), 1) != 0;
        c->layer[i].rope = rope ? 0 : -1;
        /* Without layer_types, the window is for the layers without rope. */
        if (!use || (json_is_null(json_get(j, "layer_types")) && rope)) c->layer[i].window = 0;
    }
    return ROSE_OK;
}

/* --- the same from GGUF ---------------------------------------------------------------------------------------------------- */

/* "gemma-embedding" is Gemma 3 that sees to both sides. */
static enum rose_status gemma_gguf(arena_t *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    c->embedding_scale = sqrtf((float)c->hidden);
    bool gemma3 = str_is(str_of(c->arch->name), "gemma3_text");
    struct str name = {0};
    ROSE_TRY(gguf_str(w, "general.architecture", &name, err));
    c->bidirectional = c->arch->gguf_embeds && str_is(name, c->arch->gguf_embeds);
    ROSE_TRY(config_gguf_pattern(w, c, gemma3 ? 1024 : 4096, gemma3 ? 6 : 2, false, err));
    c->attention_softcap = (float)config_gguf_num(w, "attn_logit_softcapping", gemma3 ? 0 : 50);
    c->logits_softcap = (float)config_gguf_num(w, "final_logit_softcapping", gemma3 ? 0 : 30);
    /* The file does not carry query_pre_attn_scalar; only the 27B models differ from the head size: hidden / heads. */
    bool gemma27 = gemma3 ? c->layers == 62 : c->layers == 46;
    c->attention_scale = 1 / sqrtf((float)(gemma27 ? c->hidden / c->heads.heads : c->heads.head_dim));
    return gemma3 ? config_gguf_local_rope(w, c, err) : ROSE_OK;
}

static enum rose_status granite_gguf(arena_t *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    (void)arena, (void)err;
    c->embedding_scale = (float)config_gguf_num(w, "embedding_scale", 1);
    c->residual_scale = (float)config_gguf_num(w, "residual_scale", 1);
    c->attention_scale = (float)config_gguf_num(w, "attention.scale", 0);
    double logits = config_gguf_num(w, "logit_scale", 1);
    c->logits_scale = (float)(1 / (logits ? logits : 1));
    return ROSE_OK;
}

static enum rose_status smollm3_gguf(arena_t *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    (void)arena, (void)w, (void)err;
    for (int32_t i = 0; i < c->layers; i++) c->layer[i].rope = (i + 1) % 4 ? 0 : -1;
    return ROSE_OK;
}

/* Qwen3 MoE normalises its top-k, Qwen2 MoE does not; neither says so in the file. */
static enum rose_status qwen_moe_gguf(arena_t *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    (void)arena, (void)w, (void)err;
    c->experts_normalize = str_is(str_of(c->arch->name), "qwen3_moe");
    return ROSE_OK;
}

static const struct arch rows[] = {
    {.name = "llama", .gguf = "llama", .hf_class = "LlamaForCausalLM", .gguf_pairs = true, .reads_attention_bias = true, .reads_mlp_bias = true,
     .ignore = "rotary_emb.inv_freq"},
    {.name = "mistral", .hf_class = "MistralForCausalLM", .gguf_pairs = true, .windows = ARCH_WINDOWS_ALL, .window = 4096, .kv_heads = 8},
    {.name = "ministral", .hf_class = "MinistralForCausalLM", .gguf_pairs = true, .windows = ARCH_WINDOWS_TYPES, .window = 4096, .kv_heads = 8},
    {.name = "mixtral", .hf_class = "MixtralForCausalLM", .gguf_pairs = true, .extra = mixtral_slots, .windows = ARCH_WINDOWS_ALL, .kv_heads = 8, .theta = 1e6,
     .eps = 1e-5, .from_json = mixtral_json},
    {.name = "qwen2", .gguf = "qwen2", .hf_class = "Qwen2ForCausalLM", .qkv_bias = true, .windows = ARCH_WINDOWS_TYPES, .window = 4096, .kv_heads = 32,
     .from_json = qwen2_json},
    {.name = "qwen2_moe", .gguf = "qwen2moe", .hf_class = "Qwen2MoeForCausalLM", .qkv_bias = true, .windows = ARCH_WINDOWS_TYPES, .window = 4096, .kv_heads = 16,
     .from_json = qwen_moe_json, .from_gguf = qwen_moe_gguf},
    {.name = "qwen3", .gguf = "qwen3", .hf_class = "Qwen3ForCausalLM", .qk_norm = MODEL_QK_NORM_HEAD, .reads_attention_bias = true, .windows = ARCH_WINDOWS_TYPES,
     .window = 4096, .kv_heads = 32, .head_dim = 128, .from_json = qwen2_json},
    {.name = "qwen3_moe", .gguf = "qwen3moe", .hf_class = "Qwen3MoeForCausalLM", .qk_norm = MODEL_QK_NORM_HEAD, .reads_attention_bias = true,
     .windows = ARCH_WINDOWS_ALL, .window = 4096, .kv_heads = 4, .from_json = qwen_moe_json, .from_gguf = qwen_moe_gguf},
    {.name = "gemma2", .gguf = "gemma2", .hf_class = "Gemma2ForCausalLM", .extra = gemma_slots, .norms = MODEL_NORM_SANDWICH, .norm_offset = 1,
     .activation = OP_ACT_GELU_TANH, .reads_attention_bias = true, .windows = ARCH_WINDOWS_TYPES, .window = 4096, .kv_heads = 4, .head_dim = 256, .tied = true, .beyond_half = true,
     .from_json = gemma2_json, .from_gguf = gemma_gguf},
    {.name = "gemma3_text", .gguf = "gemma3", .gguf_embeds = "gemma-embedding", .hf_class = "Gemma3ForCausalLM", .extra = gemma_slots, .norms = MODEL_NORM_SANDWICH, .norm_offset = 1,
     .activation = OP_ACT_GELU_TANH, .reads_attention_bias = true, .windows = ARCH_WINDOWS_TYPES, .window = 4096, .kv_heads = 4, .head_dim = 256, .tied = true, .beyond_half = true,
     .qk_norm = MODEL_QK_NORM_HEAD, .from_json = gemma3_json, .from_gguf = gemma_gguf},
    {.name = "phi3", .gguf = "phi3", .hf_class = "Phi3ForCausalLM", .fused_qkv = true, .fused_gate_up = true, .windows = ARCH_WINDOWS_ALL, .eps = 1e-5,
     .original_context = 4096},
    {.name = "olmo2", .gguf = "olmo2", .hf_class = "Olmo2ForCausalLM", .norms = MODEL_NORM_POST, .qk_norm = MODEL_QK_NORM_FULL, .reads_attention_bias = true,
     .eps = 1e-5},
    {.name = "granite", .gguf = "granite", .hf_class = "GraniteForCausalLM", .gguf_pairs = true, .reads_attention_bias = true, .reads_mlp_bias = true,
     .from_json = granite_json, .from_gguf = granite_gguf},
    {.name = "smollm3", .gguf = "smollm3", .hf_class = "SmolLM3ForCausalLM", .gguf_pairs = true, .reads_attention_bias = true, .reads_mlp_bias = true,
     .windows = ARCH_WINDOWS_TYPES, .kv_heads = 4, .theta = 2e6, .tied = true, .from_json = smollm3_json, .from_gguf = smollm3_gguf},
};

const struct arch *arch_at(int i)
{
    int encoders = 0;
    while (arch_encoders[encoders].name) encoders++;
    if (i < 0 || i >= (int)ROSE_COUNT(rows) + encoders) return NULL;
    return i < (int)ROSE_COUNT(rows) ? &rows[i] : &arch_encoders[i - (int)ROSE_COUNT(rows)];
}

const struct arch *arch_find(struct str model_type)
{
    const struct arch *a;
    for (int i = 0; (a = arch_at(i)); i++)
        if (str_is(model_type, a->name)) return a;
    return NULL;
}

/* Mistral and Mixtral call themselves llama in GGUF: their tensors bind alike. */
const struct arch *arch_find_gguf(struct str architecture)
{
    const struct arch *a;
    for (int i = 0; (a = arch_at(i)); i++) {
        if ((a->gguf && str_is(architecture, a->gguf)) || (a->gguf_embeds && str_is(architecture, a->gguf_embeds))) return a;
        if (a->older && a->older->gguf && str_is(architecture, a->older->gguf)) return a->older;
    }
    return NULL;
}

void arch_list(char *out, size_t bytes)
{
    size_t n = 0;
    out[0] = '\0';
    const struct arch *a;
    for (int i = 0; (a = arch_at(i)) && n < bytes; i++) {
        int put = snprintf(out + n, bytes - n, "%s%s", i ? ", " : "", a->name);
        if (put < 0) return;
        n += (size_t)put;
    }
}
