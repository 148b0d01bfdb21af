/* The registry of architectures: one row each. A row says how a config maps to model_config where it differs from the
 * family's habits, and how tensor names map to slots. See docs/add_a_model.md. */
#ifndef ROSE_MODEL_ARCH_H
#define ROSE_MODEL_ARCH_H

#include "model/config.h"

/* Places for weights. Matrices become op_weights, vectors float32 arrays. */
enum slot {
    /* of the model */
    SLOT_EMBED,
    SLOT_FINAL_NORM,
    SLOT_OUTPUT,
    SLOT_ROPE_FREQS,
    SLOT_ROPE_SHORT,
    SLOT_ROPE_LONG,
    SLOT_POSITIONS,
    SLOT_TYPES,
    SLOT_EMBED_NORM,
    SLOT_EMBED_NORM_BIAS,
    SLOT_FINAL_NORM_BIAS,
    SLOT_RELATIVE,
    SLOT_HEAD_DENSE,
    SLOT_HEAD_DENSE_BIAS,
    SLOT_HEAD_NORM,
    SLOT_HEAD_NORM_BIAS,
    SLOT_HEAD_OUT,
    SLOT_HEAD_OUT_BIAS,
    /* of a layer */
    SLOT_ATTN_NORM,
    SLOT_ATTN_NORM_BIAS,
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_QKV,
    SLOT_Q_BIAS,
    SLOT_K_BIAS,
    SLOT_V_BIAS,
    SLOT_QKV_BIAS,
    SLOT_Q_NORM,
    SLOT_Q_NORM_BIAS,
    SLOT_K_NORM,
    SLOT_K_NORM_BIAS,
    SLOT_O,
    SLOT_O_BIAS,
    SLOT_POST_ATTN_NORM,
    SLOT_POST_ATTN_NORM_BIAS,
    SLOT_SECOND_NORM, /* JinaBERT for code: norm(h + post_attn_norm(h + attention(h))) */
    SLOT_SECOND_NORM_BIAS,
    SLOT_FFN_NORM,
    SLOT_FFN_NORM_BIAS,
    SLOT_GATE,
    SLOT_UP,
    SLOT_GATE_UP,
    SLOT_DOWN,
    SLOT_GATE_BIAS,
    SLOT_UP_BIAS,
    SLOT_GATE_UP_BIAS,
    SLOT_DOWN_BIAS,
    SLOT_POST_FFN_NORM,
    SLOT_POST_FFN_NORM_BIAS,
    SLOT_ROUTER,
    SLOT_EXPERT_GATE,
    SLOT_EXPERT_UP,
    SLOT_EXPERT_DOWN,
    SLOT_SHARED_GATE,
    SLOT_SHARED_UP,
    SLOT_SHARED_DOWN,
    SLOT_SHARED_ROUTER,
    SLOT_COUNT
};

/* Dimensions of a slot, resolved against a config. */
enum dim {
    DIM_NONE,
    DIM_HIDDEN,
    DIM_VOCAB,
    DIM_Q,   /* heads * head_dim */
    DIM_KV,  /* kv_heads * head_dim */
    DIM_QKV, /* q, k and v rows stacked */
    DIM_HEAD,
    DIM_ATTN_OUT, /* heads * value_dim */
    DIM_Q_NORM,   /* head_dim or the whole row, by qk_norm */
    DIM_K_NORM,
    DIM_FFN,
    DIM_FFN2, /* gate and up stacked */
    DIM_EXPERTS,
    DIM_EXPERT_FFN,
    DIM_SHARED_FFN,
    DIM_ROPE, /* rotary_dim / 2 */
    DIM_ONE,
    DIM_POSITIONS,
    DIM_TYPES,
    DIM_BUCKETS,
    DIM_HEADS,
    DIM_LABELS,
    DIM_INNER, /* rows of the layer before a classifier's output */
    DIM_INNER_OUT, /* columns of that output: DIM_INNER, or the hidden size without one */
};

/* How a tensor-parallel rank takes its part. */
enum shard { SHARD_NONE, SHARD_OUT, SHARD_IN };

/* When a slot is part of a model (or layer). */
enum need {
    NEED_ALWAYS,
    NEED_UNTIED,
    NEED_PRE_NORM,
    NEED_POST_NORM,
    NEED_QKV_BIAS,
    NEED_O_BIAS,
    NEED_MLP_BIAS,
    NEED_QK_NORM,
    NEED_DENSE,
    NEED_MOE,
    NEED_SHARED,
    NEED_SHARED_GATE,
    NEED_OPTIONAL, /* taken when the file has it */
    NEED_POSITIONS,
    NEED_TYPES,
    NEED_NORM_BIAS,
    NEED_INNER_NORM, /* pre-norm, but not of a first layer that has none */
    NEED_INNER_NORM_BIAS,
    NEED_GATED,
    NEED_HEAD_OUT,
    NEED_HEAD_OUT_OPTIONAL,
    NEED_HEAD_DENSE_OPTIONAL,
    NEED_HEAD_DENSE,
    NEED_HEAD_NORM,
    NEED_HEAD_NORM_BIAS,
};

/* One tensor: %d in a name is the layer, a second %d the expert. NULL: this format does not have it. "model." at the start of a Hugging
 * Face name stands for the prefix that arch.prefix names, which files of the bare model (BertModel, Qwen3Model) leave out. */
struct slot_row {
    enum slot slot;
    const char *hf, *gguf;
    enum dim out, in; /* in DIM_NONE: a vector */
    enum need need;
    enum shard shard;
    bool per_layer;
};

/* Which layers have a sliding window in config.json. */
enum arch_windows {
    ARCH_WINDOWS_NONE,  /* the key is not read */
    ARCH_WINDOWS_ALL,   /* "sliding_window" holds for every layer */
    ARCH_WINDOWS_TYPES, /* layer_types names them, without it the row's own rule */
};

enum arch_inner { ARCH_INNER_NONE, ARCH_INNER_TANH, ARCH_INNER_RELU, ARCH_INNER_GELU_NORM };

struct arch {
    const char *name;               /* Hugging Face model_type */
    const char *gguf;               /* general.architecture, NULL: not in GGUF */
    const char *gguf_embeds;        /* the same of files that embed, where it is another; NULL: it is not */
    const char *hf_class;           /* for people */
    const struct slot_row *extra;   /* rows that replace (same slot) or add to the family's, ended by slot == SLOT_COUNT */
    const struct slot_row *family;  /* the rows beneath extra; NULL: the Llama family's */
    const char *prefix;             /* "bert.": what "model." in names stands for; NULL: "model." */
    const struct arch *older;       /* the same architecture as earlier files name its tensors, taken where the file has older_tensor */
    const char *older_tensor;
    const char *const (*aliases)[2]; /* {key as the shared reader calls it, key in this config.json}, ended by NULL */
    bool encoder;                   /* bidirectional, never generates */
    bool alibi;                     /* may have position_embedding_type "alibi" */
    enum arch_inner inner;          /* what stands before the output of a sequence classifier */
    bool token_inner;               /* of a token classifier too */
    bool fused_qkv, fused_gate_up;  /* one tensor in the file (GGUF: as the file has them) */
    bool up_first;                  /* of fused_gate_up: the rows of up stand before those of gate */
    bool gguf_pairs;                /* GGUF conversion permuted q and k: rotary pairs lie side by side */
    enum model_norms norms;
    enum model_qk_norm qk_norm;
    float norm_offset;              /* of Hugging Face files; GGUF files have it added in */
    bool qkv_bias;                  /* always there */
    bool reads_attention_bias, reads_mlp_bias; /* the keys mean something; other classes ignore them */
    enum arch_windows windows;
    enum op_activation activation;  /* when the config names none */
    /* What absent keys mean; 0: rope_theta 10000, rms_norm_eps 1e-6, head_dim hidden / heads, as many key-value heads as heads, no window. */
    double theta, eps;
    int32_t head_dim, kv_heads, window, original_context;
    bool tied;
    bool beyond_half;               /* activations are known to leave the range of float16: F16 files run in BF16 on a GPU */
    const char *ignore;             /* tensor name prefix that may be present and unused, NULL */
    const struct slot_row *token_head; /* encoders: rows of a token classifier's output where they differ from the sequence classifier's */
    /* What the config says in this architecture's own words. NULL: nothing more. */
    enum rose_status (*from_json)(struct arena *arena, const struct json *config, struct model_config *out, struct rose_error *err);
    enum rose_status (*from_gguf)(struct arena *arena, struct weights *weights, struct model_config *out, struct rose_error *err);
};

/* Rows of arch_encoder.c, ended by a NULL name. */
extern const struct arch arch_encoders[];
const struct arch *arch_find(struct str model_type);
const struct arch *arch_find_gguf(struct str architecture);
/* The i-th row, NULL behind the last. */
const struct arch *arch_at(int i);
/* "llama, mistral, ...": for messages. */
void arch_list(char *out, size_t bytes);

/* The slot's row for this architecture: its own or the family's; NULL when neither has it in this format. */
const struct slot_row *arch_slot(const struct arch *arch, enum slot slot);
/* A dimension in numbers. */
int64_t arch_dim(const struct model_config *config, enum dim dim);
bool arch_needs(const struct model_config *config, const struct slot_row *row, int layer, bool fused_qkv, bool fused_gate_up);

#endif
