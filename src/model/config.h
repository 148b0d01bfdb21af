/* What a model is, as data: everything the one forward needs to know, whatever the checkpoint's format and architecture. */
#ifndef ROSE_MODEL_CONFIG_H
#define ROSE_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/json.h"
#include "model/head.h"
#include "model/quant.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/moe.h"
#include "ops/norm.h"

struct weights;
struct arch;

enum rope_scaling { ROPE_DEFAULT, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE };

/* Rotary position embedding (Su et al. 2021) and its extensions; names follow Hugging Face's rope_parameters. */
struct rope_config {
    enum rope_scaling scaling;
    int32_t rotary_dim;
    double theta, factor;
    int32_t original_context;                  /* original_max_position_embeddings; 0: the model's context */
    double low_freq_factor, high_freq_factor;  /* llama3 */
    double beta_fast, beta_slow;               /* yarn */
    double mscale, mscale_all_dim;             /* yarn, 0: absent */
    double attention_factor;                   /* yarn, longrope; 0: derived */
    bool truncate;                             /* yarn: whole correction range */
    const float *short_factor, *long_factor;   /* longrope, [rotary_dim / 2] */
    const float *freq_factors;                 /* GGUF rope_freqs: inv_freq divided by these; NULL */
};

/* Does the table depend on a sequence's length? Then each sequence carries its own (op_step.seq_inv_freq). */
bool rope_by_length(const struct rope_config *rope);
/* inv_freq [rotary_dim / 2] for a sequence whose prompt has `length` tokens, and the factor on cos and sin. */
void rope_inv_freq(const struct rope_config *rope, int32_t context, int32_t length, float *inv_freq, float *scale);

enum model_norms {
    MODEL_NORM_PRE,      /* h += f(norm(h)): Llama */
    MODEL_NORM_POST,     /* h += norm(f(h)): OLMo 2 */
    MODEL_NORM_SANDWICH, /* h += norm(f(norm(h))): Gemma 2 and 3 */
    MODEL_NORM_BEHIND,   /* h = norm(h + f(h)): BERT */
};

enum model_qk_norm {
    MODEL_QK_NORM_NONE,
    MODEL_QK_NORM_HEAD,  /* RMSNorm of each head */
    MODEL_QK_NORM_FULL,  /* RMSNorm of all heads together: OLMo 2 */
    MODEL_QK_NORM_LAYER, /* LayerNorm of all heads together: JinaBERT for code */
};

enum { MODEL_MAX_ROPES = 2 };

struct layer_config {
    int32_t window;      /* 0: sees everything before it */
    int8_t rope;         /* index into ropes, -1: none (NoPE) */
    bool moe;
    int16_t group, group_layer; /* cache group and place in it, set by config_finish */
};

struct model_config {
    const struct arch *arch;
    char name[128];       /* general.name or _name_or_path, for people */
    int32_t layers, hidden, vocabulary, context;
    struct op_heads heads;
    int32_t intermediate;
    enum op_activation activation;
    enum op_norm_kind norm;
    enum model_norms norms;
    float norm_eps, norm_offset;
    enum model_qk_norm qk_norm;
    bool qkv_bias, o_bias, mlp_bias;
    bool tied;            /* the token table is the output matrix */
    /* Encoders, and decoders that embed or classify: attention over the step's own rows, no cache. */
    bool own_rows, causal; /* causal: each row sees those before it */
    bool bidirectional;    /* what the config says of a decoder: it cannot generate */
    bool plain_mlp;        /* down(activation(up(x))), no gate */
    bool norm_bias;        /* norms have biases */
    bool embed_norm;       /* a norm behind the embeddings */
    bool first_norm_absent, final_norm_absent; /* layer 0's attention norm; the norm behind the last layer */
    int32_t positions, position_offset; /* rows of the learned position table, 0: none; the first position's row */
    int32_t types;         /* rows of the token type table, 0: none */
    bool alibi;            /* scores fall by a head's slope times the distance (Press et al. 2022), to both sides */
    int32_t relative_buckets; /* buckets of T5's relative attention bias (Raffel et al. 2020), shared by the layers; 0: none */
    struct model_head head;
    enum op_rope_kind rope_pairs;
    int32_t ropes_count;
    struct rope_config ropes[MODEL_MAX_ROPES];
    float attention_scale, attention_softcap, logits_softcap;
    float embedding_scale, residual_scale, logits_scale; /* 1: none */
    /* MoE */
    int32_t experts, experts_used, expert_intermediate, shared_intermediate;
    enum op_moe_score expert_score;
    bool experts_normalize, shared_gate;
    float experts_scale;
    struct model_quant quant;   /* how the file's weights are quantised */
    struct layer_config *layer; /* [layers] */
    /* tokens */
    int32_t bos, pad;           /* -1: none */
    int32_t eos[8], eos_count;
    /* cache groups: layers of equal window share page tables */
    int32_t groups_count, group_layers; /* layers a group holds (its last may hold fewer) */
    struct { int32_t window, layers; } groups[OP_MAX_GROUPS];
};

/* Fill from a checkpoint's config.json or GGUF metadata; checks every number. The arena owns arrays. */
enum rose_status config_read(struct arena *arena, struct weights *weights, struct model_config *out, struct rose_error *err);
enum rose_status config_from_json(struct arena *arena, const char *file, const struct json *config, struct model_config *out, struct rose_error *err);
enum rose_status config_from_gguf(struct arena *arena, struct weights *weights, struct model_config *out, struct rose_error *err);
/* Derive what follows (head sizes, scale, cache groups) and refuse what cannot be. */
enum rose_status config_finish(struct model_config *config, const char *file, struct rose_error *err);

#endif
