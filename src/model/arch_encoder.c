/* The encoders' rows (BERT: Devlin et al. 2019; RoBERTa: Liu et al. 2019; XLM-RoBERTa: Conneau et al. 2020; DistilBERT: Sanh et al. 2019;
 * MPNet: Song et al. 2020; ModernBERT: Warner et al. 2024; NomicBERT: Nussbaum et al. 2024; JinaBERT v2: Günther et al. 2023). */
#include <math.h>

#include "model/arch.h"
#include "model/config_util.h"
#include "model/slots.h"
#include "weights/gguf.h"
#include "weights/weights.h"

typedef struct arena arena_t;

static void no_rope(struct model_config *c)
{
    for (int32_t i = 0; i < c->layers; i++) c->layer[i].rope = -1;
    c->ropes_count = 0;
}

/* What all rows here share. */
static enum rose_status encoder(const struct json *j, struct model_config *c, struct rose_error *err)
{
    if (json_bool(json_get(j, "is_decoder"), false))
        return status_set(err, ROSE_UNSUPPORTED, "config.json: \"is_decoder\" makes this %s a generator, which is not supported", c->arch->name);
    struct str kind = json_str(json_get(j, "position_embedding_type"), "absolute");
    c->alibi = str_is(kind, "alibi") && c->arch->alibi;
    if (!str_is(kind, "absolute") && !str_is(kind, "rotary") && !str_is(kind, "rope") && !c->alibi)
        return status_set(err, ROSE_UNSUPPORTED, "config.json: position embeddings of type \"" STR_FMT "\" are not supported", STR_ARG(kind));
    c->norm = OP_NORM_LAYER;
    c->norm_bias = c->embed_norm = true;
    c->heads.kv_heads = c->heads.heads;
    c->tied = true; /* there is no output matrix to look for */
    return ROSE_OK;
}

/* Learned positions from row `offset` on. */
static enum rose_status positions(struct model_config *c, int32_t offset, struct rose_error *err)
{
    c->positions = c->context;
    c->position_offset = offset;
    c->context -= offset;
    if (c->context < 1)
        return status_set(err, ROSE_FORMAT, "config.json: %d positions of which the first %d are not used leave none", c->positions, offset);
    return ROSE_OK;
}

static enum rose_status bert_like(const struct json *j, struct model_config *c, int32_t offset, struct rose_error *err)
{
    ROSE_TRY(encoder(j, c, err));
    c->final_norm_absent = c->plain_mlp = true;
    c->qkv_bias = c->o_bias = c->mlp_bias = true;
    no_rope(c);
    return positions(c, offset, err);
}

static enum rose_status bert_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    ROSE_TRY(config_int(j, "type_vocab_size", 1, 1 << 16, 2, &c->types, err));
    return bert_like(j, c, 0, err);
}

/* Positions count from pad_token_id + 1 on, as in fairseq. */
static enum rose_status roberta_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    int32_t pad;
    (void)arena;
    ROSE_TRY(config_int(j, "type_vocab_size", 1, 1 << 16, 2, &c->types, err));
    ROSE_TRY(config_int(j, "pad_token_id", 0, 1 << 24, 1, &pad, err));
    return bert_like(j, c, pad + 1, err);
}

static enum rose_status distilbert_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    return bert_like(j, c, 0, err);
}

static enum rose_status mpnet_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    ROSE_TRY(config_int(j, "relative_attention_num_buckets", 32, 4096, 32, &c->relative_buckets, err));
    return bert_like(j, c, 2, err);
}

/* Two tables of rotary frequencies: of layers that see everything, and of those that see local_attention / 2 to each side. */
static enum rose_status modernbert_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    static const struct json none = {.type = JSON_OBJECT};
    ROSE_TRY(encoder(j, c, err));
    c->norm_bias = json_bool(json_get(j, "norm_bias"), false);
    c->first_norm_absent = true;
    int32_t window, period;
    ROSE_TRY(config_int(j, "local_attention", 1, INT32_MAX, 128, &window, err));
    ROSE_TRY(config_int(j, "global_attn_every_n_layers", 1, 4096, 3, &period, err));
    const struct json *types = json_get(j, "layer_types"), *both = json_get(j, "rope_parameters"), *old = json_get(j, "rope_scaling");
    if (!json_is_null(types) && (!json_is(types, JSON_ARRAY) || (int32_t)types->count < c->layers))
        return status_set(err, ROSE_FORMAT, "config.json: \"layer_types\" must name all %d layers", c->layers);
    for (int32_t i = 0; i < c->layers; i++) {
        struct str type = json_is_null(types) ? (i % period ? STR("sliding_attention") : STR("full_attention")) : json_str(json_at(types, i), "");
        bool local = str_is(type, "sliding_attention");
        if (!local && !str_is(type, "full_attention"))
            return status_set(err, ROSE_UNSUPPORTED, "config.json: layer %d has attention of type \"" STR_FMT "\", which is not supported", i, STR_ARG(type));
        c->layer[i].window = local ? window : 0;
        c->layer[i].rope = local;
    }
    const struct json *full = json_get(both, "full_attention"), *sliding = json_get(both, "sliding_attention");
    ROSE_TRY(config_rope(arena, &none, json_is_null(full) ? old : full, json_num(json_get(j, "global_rope_theta"), 160000), c, &c->ropes[0], err));
    ROSE_TRY(config_rope(arena, &none, json_is_null(sliding) ? old : sliding, json_num(json_get(j, "local_rope_theta"), 10000), c, &c->ropes[1], err));
    if (rope_by_length(&c->ropes[1])) return status_set(err, ROSE_UNSUPPORTED, "config.json: local layers must not have frequencies that depend on the length");
    c->ropes_count = 2;
    return ROSE_OK;
}

/* Switches of the authors' own files that other values than these would make another model. */
static enum rose_status nomic_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    ROSE_TRY(encoder(j, c, err));
    static const char *const off[] = {"prenorm", "causal", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "use_rms_norm", "rotary_emb_interleaved",
                                      "scale_attn_by_inverse_layer_idx", "parallel_block"};
    for (size_t i = 0; i < ROSE_COUNT(off); i++)
        if (json_bool(json_get(j, off[i]), false)) return status_set(err, ROSE_UNSUPPORTED, "config.json: NomicBERT with \"%s\" is not supported", off[i]);
    if (json_int(json_get(j, "num_experts"), 0) > 0 || json_int(json_get(j, "moe_every_n_layers"), 0) > 0)
        return status_set(err, ROSE_UNSUPPORTED, "config.json: NomicBERT with experts is not supported");
    struct str act = json_str(json_get(j, "activation_function"), "swiglu");
    if (str_is(act, "geglu")) c->activation = OP_ACT_GELU_ERF;
    else if (!str_is(act, "swiglu")) return status_set(err, ROSE_UNSUPPORTED, "config.json: NomicBERT's activation \"" STR_FMT "\" is not supported", STR_ARG(act));
    double fraction = json_num(json_get(j, "rotary_emb_fraction"), 1);
    if (fraction != 1) return status_set(err, ROSE_UNSUPPORTED, "config.json: NomicBERT with \"rotary_emb_fraction\" %g is not supported", fraction);
    ROSE_TRY(config_int(j, "type_vocab_size", 0, 1 << 16, 2, &c->types, err));
    c->final_norm_absent = true;
    return ROSE_OK;
}

/* Gated, without positions. The files' GLU is named by a key of its own, not by hidden_act. */
static enum rose_status jina_json(arena_t *arena, const struct json *j, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    ROSE_TRY(encoder(j, c, err));
    ROSE_TRY(config_int(j, "type_vocab_size", 1, 1 << 16, 2, &c->types, err));
    struct str kind = json_str(json_get(j, "feed_forward_type"), "original");
    if (!str_is(kind, "geglu") && !str_is(kind, "reglu"))
        return status_set(err, ROSE_UNSUPPORTED, "config.json: JinaBERT's feed_forward_type \"" STR_FMT "\" is not supported; geglu and reglu are", STR_ARG(kind));
    if (!c->alibi) return status_set(err, ROSE_UNSUPPORTED, "config.json: JinaBERT without \"position_embedding_type\": \"alibi\" is not supported");
    c->activation = str_is(kind, "reglu") ? OP_ACT_RELU : OP_ACT_GELU_ERF;
    c->qkv_bias = c->o_bias = c->final_norm_absent = true;
    no_rope(c);
    return ROSE_OK;
}

/* --- GGUF ------------------------------------------------------------------------------------------------------------------ */

static int32_t rows_of(struct weights *w, const char *name)
{
    const struct weights_tensor *t = weights_find(w, name);
    return t && t->ndim == 2 && t->shape[0] < 1 << 24 ? (int32_t)t->shape[0] : 0;
}

static enum rose_status bert_gguf(arena_t *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    bool nomic = c->arch->fused_qkv;
    c->norm = OP_NORM_LAYER;
    c->norm_eps = (float)config_gguf_num(w, "attention.layer_norm_epsilon", 1e-12);
    c->norm_bias = c->embed_norm = c->final_norm_absent = true;
    c->plain_mlp = !nomic;
    c->tied = true;
    c->types = rows_of(w, "token_types.weight");
    if (nomic) return ROSE_OK;
    c->activation = OP_ACT_GELU_ERF;
    no_rope(c);
    c->positions = rows_of(w, "position_embd.weight");
    if (c->positions < 1) return status_at(err, ROSE_FORMAT, weights_path(w), -1, "%s: position_embd.weight is missing", weights_path(w));
    c->context = ROSE_MIN(c->context, c->positions);
    return ROSE_OK;
}

/* One name for both kinds; the second norm tells them apart. */
static enum rose_status jina_gguf(arena_t *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    (void)arena, (void)err;
    if (weights_find(w, "blk.0.attn_norm_2.weight")) c->arch = c->arch->older;
    c->qk_norm = c->arch->qk_norm;
    c->norm = OP_NORM_LAYER;
    c->norm_eps = (float)config_gguf_num(w, "attention.layer_norm_epsilon", 1e-12);
    c->norm_bias = c->embed_norm = c->final_norm_absent = c->tied = c->alibi = true;
    c->qkv_bias = c->o_bias = true;
    c->mlp_bias = false; /* down's is always there */
    c->types = rows_of(w, "token_types.weight");
    c->activation = OP_ACT_GELU_ERF;
    no_rope(c);
    return ROSE_OK;
}

/* The same rule as in config.json, by llama.cpp's keys: sliding_window_pattern n, or a switch a layer. */
static enum rose_status modernbert_gguf(arena_t *arena, struct weights *w, struct model_config *c, struct rose_error *err)
{
    (void)arena;
    c->norm = OP_NORM_LAYER;
    c->norm_eps = (float)config_gguf_num(w, "attention.layer_norm_epsilon", 1e-5);
    c->embed_norm = c->tied = true;
    c->first_norm_absent = !weights_find(w, "blk.0.attn_norm.weight");
    ROSE_TRY(config_gguf_pattern(w, c, 0, 3, true, err));
    ROSE_TRY(config_gguf_local_rope(w, c, err));
    const struct gguf_value *act = config_gguf_find(w, "hidden_activation");
    struct str name = {0};
    if (act && (!gguf_text(act, &name) || !config_activation(name, &c->activation)))
        return status_at(err, ROSE_UNSUPPORTED, weights_path(w), (int64_t)act->offset, "%s: the activation \"" STR_FMT "\" is not supported", weights_path(w), STR_ARG(name));
    return ROSE_OK;
}

static const char *const distilbert_aliases[][2] = {{"hidden_size", "dim"}, {"num_hidden_layers", "n_layers"}, {"num_attention_heads", "n_heads"},
                                                    {"intermediate_size", "hidden_dim"}, {"hidden_act", "activation"}, {NULL, NULL}};
static const char *const modernbert_aliases[][2] = {{"layer_norm_eps", "norm_eps"}, {NULL, NULL}};
static const char *const nomic_aliases[][2] = {{"hidden_size", "n_embd"}, {"num_hidden_layers", "n_layer"}, {"num_attention_heads", "n_head"},
                                               {"intermediate_size", "n_inner"}, {"max_position_embeddings", "n_positions"}, {"layer_norm_eps", "layer_norm_epsilon"},
                                               {"rope_theta", "rotary_emb_base"}, {NULL, NULL}};

#define BERT_NORMS .norms = MODEL_NORM_BEHIND, .eps = 1e-12, .encoder = true, .activation = OP_ACT_GELU_ERF

static const struct arch nomic_older = {.name = "nomic_bert", .gguf = "nomic-bert", .hf_class = "NomicBertModel", .norms = MODEL_NORM_BEHIND, .eps = 1e-12,
                                        .encoder = true, .activation = OP_ACT_SILU, .family = bert_slots, .extra = nomic_older_slots, .prefix = "bert.",
                                        .fused_qkv = true, .theta = 1000, .aliases = nomic_aliases, .inner = ARCH_INNER_TANH, .from_json = nomic_json,
                                        .from_gguf = bert_gguf};

static const struct arch jina_code = {.name = "jina_bert", .gguf = "jina-bert-v2", .hf_class = "JinaBertModel", BERT_NORMS, .family = bert_slots,
                                      .extra = jina_code_slots, .prefix = "bert.", .inner = ARCH_INNER_TANH, .fused_gate_up = true, .up_first = true, .alibi = true,
                                      .qk_norm = MODEL_QK_NORM_LAYER, .from_json = jina_json, .from_gguf = jina_gguf};

const struct arch arch_encoders[] = {
    {.name = "bert", .gguf = "bert", .hf_class = "BertModel", BERT_NORMS, .family = bert_slots, .prefix = "bert.", .inner = ARCH_INNER_TANH,
     .from_json = bert_json, .from_gguf = bert_gguf},
    {.name = "roberta", .hf_class = "RobertaModel", BERT_NORMS, .family = bert_slots, .extra = roberta_slots, .token_head = token_head_slots, .prefix = "roberta.",
     .inner = ARCH_INNER_TANH, .from_json = roberta_json},
    {.name = "xlm-roberta", .hf_class = "XLMRobertaModel", BERT_NORMS, .family = bert_slots, .extra = roberta_slots, .token_head = token_head_slots,
     .prefix = "roberta.", .inner = ARCH_INNER_TANH, .from_json = roberta_json},
    {.name = "camembert", .hf_class = "CamembertModel", BERT_NORMS, .family = bert_slots, .extra = roberta_slots, .token_head = token_head_slots,
     .prefix = "roberta.", .inner = ARCH_INNER_TANH, .from_json = roberta_json},
    {.name = "distilbert", .hf_class = "DistilBertModel", BERT_NORMS, .family = distilbert_slots, .prefix = "distilbert.", .inner = ARCH_INNER_RELU,
     .aliases = distilbert_aliases, .from_json = distilbert_json},
    {.name = "mpnet", .hf_class = "MPNetModel", BERT_NORMS, .family = bert_slots, .extra = mpnet_slots, .token_head = token_head_slots, .prefix = "mpnet.",
     .inner = ARCH_INNER_TANH, .from_json = mpnet_json},
    {.name = "modernbert", .hf_class = "ModernBertModel", .encoder = true, .activation = OP_ACT_GELU_ERF, .family = modernbert_slots, .eps = 1e-5,
     .fused_qkv = true, .fused_gate_up = true, .reads_attention_bias = true, .reads_mlp_bias = true, .inner = ARCH_INNER_GELU_NORM, .token_inner = true,
     .gguf = "modern-bert", .aliases = modernbert_aliases, .from_json = modernbert_json, .from_gguf = modernbert_gguf},
    {.name = "nomic_bert", .hf_class = "NomicBertModel", .norms = MODEL_NORM_BEHIND, .eps = 1e-12, .encoder = true, .activation = OP_ACT_SILU,
     .family = bert_slots, .extra = nomic_slots, .prefix = "nomic_bert.", .theta = 1000, .aliases = nomic_aliases, .inner = ARCH_INNER_TANH, .older = &nomic_older,
     .older_tensor = "emb_ln.weight", .from_json = nomic_json},
    {.name = "jina_bert", .gguf = "jina-bert-v2", .hf_class = "JinaBertModel", BERT_NORMS, .family = bert_slots, .extra = jina_slots, .prefix = "bert.",
     .inner = ARCH_INNER_TANH, .fused_gate_up = true, .alibi = true, .older = &jina_code, .older_tensor = "encoder.layer.0.attention.self.layer_norm_q.weight",
     .from_json = jina_json, .from_gguf = jina_gguf},
    {.name = NULL},
};
