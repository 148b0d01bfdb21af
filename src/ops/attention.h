/* op_qk: QK-norm, rotary embedding and the write of keys and values into their pages, in one launch.
 * op_attention: softmax(scale q k^T) v over pages, causal or not, online softmax (Milakov & Gimelshein 2018;
 * Dao 2022). */
#ifndef ROSE_OPS_ATTENTION_H
#define ROSE_OPS_ATTENTION_H

#include "ops/norm.h"
#include "ops/op.h"

struct op_heads {
    int32_t heads, kv_heads, head_dim;
    int32_t value_dim; /* = head_dim but for latent attention */
};

enum op_rope_kind {
    OP_ROPE_NONE,
    OP_ROPE_HALF /* pairs (i, i + rot/2), NeoX */,
    OP_ROPE_PAIRS /* (2i, 2i + 1), GPT-J, GGUF llama */
};

struct op_qk {
    int layer;
    struct op_heads heads;
    struct op_value q, k, v; /* [T, heads * head_dim]; q is updated in place, k and v go to the pages */
    /* QK-norm: per head over head_dim, or over the whole row (OLMo 2: norm_full). */
    const float *q_norm, *k_norm; /* f32 [head_dim] or [heads * head_dim] when norm_full; NULL: none */
    float norm_eps, norm_offset;  /* as op_norm */
    bool norm_full;
    bool norm_after_rope;
    enum op_rope_kind rope;
    int32_t rotary_dim; /* first rotary_dim of head_dim turn */
    const float
        *inv_freq; /* f32 [rotary_dim / 2]; the step's seq_inv_freq overrides it where seq_freq is set */
    bool seq_freq;
    float rope_scale; /* multiplies cos and sin (yarn, longrope attention factor); 0 means 1 */
    /* where the layer's keys and values go */
    int group, group_layer, group_layers; /* cache group, index of this layer in it, layers it holds */
    bool write; /* false: encoders attend to this step's rows only, k is updated in place */
};
enum rose_status op_qk(struct program *program, const struct op_step *step, const struct op_cache *cache,
                       const struct op_qk *op, struct rose_error *err);

/* Floats a head: distances and room for a kernel's last tile. */
#define OP_RELATIVE_STRIDE(reach) (2 * (reach) + 1 + 64)

struct op_attention {
    int layer;
    struct op_heads heads;
    struct op_value q, y; /* [T, heads * head_dim], [T, heads * value_dim] */
    float scale;          /* of the scores; required */
    float softcap;        /* cap * tanh(score / cap); 0: none */
    int32_t window;       /* a query at p sees (p - window, p]; 0: all */
    const float *sinks;   /* f32 [heads]: a logit without a value in each softmax (gpt-oss); NULL: none */
    int group, group_layer, group_layers;
    /* Encoders: bidirectional, over this step's own k and v rows instead of pages. window then reaches
     * window/2 to each side. */
    bool bidirectional;
    bool causal; /* with bidirectional: over this step's own rows, but a row sees (p - window, p] (decoders that embed) */
    struct op_value k, v;
    /* Added to the scaled score of the key at p + d by the query at p: relative[head][reach + d], |d| <= reach (MPNet, T5 buckets spread
     * out). Sequences must have at most reach + 1 rows. f32 [heads, OP_RELATIVE_STRIDE(reach)] or NULL; only with bidirectional. */
    const float *relative;
    int32_t relative_reach;
    const float *alibi_slopes; /* f32 [heads] or NULL */
    bool deterministic;
    /* NULL: none. Else recorded here, as a launch before attention or, over pages, inside it: q is its q, positions are the tokens'
     * places in their sequences. */
    const struct op_qk *qk;
    bool half; /* with bidirectional: products in bfloat16 will do (CPU), as where the weights are no more exact */
};
enum rose_status op_attention(struct program *program, const struct op_step *step,
                              const struct op_cache *cache, const struct op_attention *op,
                              struct rose_error *err);

/* Bytes of one token of one layer (keys and values) in the cache, and of a page. */
size_t op_cache_token_bytes(enum dtype dtype, const struct op_heads *heads);
size_t op_cache_page_bytes(enum dtype dtype, const struct op_heads *heads, int32_t page_tokens,
                           int32_t layers);

#endif
