/* Slots of the Llama family: the names most decoders share, in both formats. A row of arch.c overrides single slots. */
#include "model/slots.h"

const struct slot_row family_slots[] = {
    {SLOT_EMBED, "model.embed_tokens.weight", "token_embd.weight", DIM_VOCAB, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, false},
    {SLOT_FINAL_NORM, "model.norm.weight", "output_norm.weight", DIM_HIDDEN, DIM_NONE, NEED_ALWAYS, SHARD_NONE, false},
    {SLOT_OUTPUT, "lm_head.weight", "output.weight", DIM_VOCAB, DIM_HIDDEN, NEED_UNTIED, SHARD_OUT, false},
    {SLOT_HEAD_OUT, "score.weight", "cls.output.weight", DIM_LABELS, DIM_INNER_OUT, NEED_HEAD_OUT, SHARD_NONE, false},
    {SLOT_HEAD_OUT_BIAS, "score.bias", "cls.output.bias", DIM_LABELS, DIM_NONE, NEED_HEAD_OUT_OPTIONAL, SHARD_NONE, false},
    {SLOT_ROPE_FREQS, NULL, "rope_freqs.weight", DIM_ROPE, DIM_NONE, NEED_OPTIONAL, SHARD_NONE, false},
    {SLOT_ROPE_SHORT, NULL, "rope_factors_short.weight", DIM_ROPE, DIM_NONE, NEED_OPTIONAL, SHARD_NONE, false},
    {SLOT_ROPE_LONG, NULL, "rope_factors_long.weight", DIM_ROPE, DIM_NONE, NEED_OPTIONAL, SHARD_NONE, false},
    {SLOT_ATTN_NORM, "model.layers.%d.input_layernorm.weight", "blk.%d.attn_norm.weight", DIM_HIDDEN, DIM_NONE, NEED_PRE_NORM, SHARD_NONE, true},
    {SLOT_Q, "model.layers.%d.self_attn.q_proj.weight", "blk.%d.attn_q.weight", DIM_Q, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, true},
    {SLOT_K, "model.layers.%d.self_attn.k_proj.weight", "blk.%d.attn_k.weight", DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, true},
    {SLOT_V, "model.layers.%d.self_attn.v_proj.weight", "blk.%d.attn_v.weight", DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, true},
    {SLOT_QKV, "model.layers.%d.self_attn.qkv_proj.weight", "blk.%d.attn_qkv.weight", DIM_QKV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, true},
    {SLOT_Q_BIAS, "model.layers.%d.self_attn.q_proj.bias", "blk.%d.attn_q.bias", DIM_Q, DIM_NONE, NEED_QKV_BIAS, SHARD_OUT, true},
    {SLOT_K_BIAS, "model.layers.%d.self_attn.k_proj.bias", "blk.%d.attn_k.bias", DIM_KV, DIM_NONE, NEED_QKV_BIAS, SHARD_OUT, true},
    {SLOT_V_BIAS, "model.layers.%d.self_attn.v_proj.bias", "blk.%d.attn_v.bias", DIM_KV, DIM_NONE, NEED_QKV_BIAS, SHARD_OUT, true},
    {SLOT_QKV_BIAS, "model.layers.%d.self_attn.qkv_proj.bias", "blk.%d.attn_qkv.bias", DIM_QKV, DIM_NONE, NEED_QKV_BIAS, SHARD_OUT, true},
    {SLOT_Q_NORM, "model.layers.%d.self_attn.q_norm.weight", "blk.%d.attn_q_norm.weight", DIM_Q_NORM, DIM_NONE, NEED_QK_NORM, SHARD_NONE, true},
    {SLOT_K_NORM, "model.layers.%d.self_attn.k_norm.weight", "blk.%d.attn_k_norm.weight", DIM_K_NORM, DIM_NONE, NEED_QK_NORM, SHARD_NONE, true},
    {SLOT_O, "model.layers.%d.self_attn.o_proj.weight", "blk.%d.attn_output.weight", DIM_HIDDEN, DIM_ATTN_OUT, NEED_ALWAYS, SHARD_IN, true},
    {SLOT_O_BIAS, "model.layers.%d.self_attn.o_proj.bias", "blk.%d.attn_output.bias", DIM_HIDDEN, DIM_NONE, NEED_O_BIAS, SHARD_NONE, true},
    {SLOT_POST_ATTN_NORM, "model.layers.%d.post_attention_layernorm.weight", "blk.%d.post_attention_norm.weight", DIM_HIDDEN, DIM_NONE, NEED_POST_NORM, SHARD_NONE, true},
    {SLOT_FFN_NORM, "model.layers.%d.post_attention_layernorm.weight", "blk.%d.ffn_norm.weight", DIM_HIDDEN, DIM_NONE, NEED_PRE_NORM, SHARD_NONE, true},
    {SLOT_GATE, "model.layers.%d.mlp.gate_proj.weight", "blk.%d.ffn_gate.weight", DIM_FFN, DIM_HIDDEN, NEED_DENSE, SHARD_OUT, true},
    {SLOT_UP, "model.layers.%d.mlp.up_proj.weight", "blk.%d.ffn_up.weight", DIM_FFN, DIM_HIDDEN, NEED_DENSE, SHARD_OUT, true},
    {SLOT_GATE_UP, "model.layers.%d.mlp.gate_up_proj.weight", "blk.%d.ffn_up.weight", DIM_FFN2, DIM_HIDDEN, NEED_DENSE, SHARD_OUT, true},
    {SLOT_DOWN, "model.layers.%d.mlp.down_proj.weight", "blk.%d.ffn_down.weight", DIM_HIDDEN, DIM_FFN, NEED_DENSE, SHARD_IN, true},
    {SLOT_GATE_BIAS, "model.layers.%d.mlp.gate_proj.bias", "blk.%d.ffn_gate.bias", DIM_FFN, DIM_NONE, NEED_MLP_BIAS, SHARD_OUT, true},
    {SLOT_UP_BIAS, "model.layers.%d.mlp.up_proj.bias", "blk.%d.ffn_up.bias", DIM_FFN, DIM_NONE, NEED_MLP_BIAS, SHARD_OUT, true},
    {SLOT_DOWN_BIAS, "model.layers.%d.mlp.down_proj.bias", "blk.%d.ffn_down.bias", DIM_HIDDEN, DIM_NONE, NEED_MLP_BIAS, SHARD_NONE, true},
    {SLOT_POST_FFN_NORM, "model.layers.%d.post_feedforward_layernorm.weight", "blk.%d.post_ffw_norm.weight", DIM_HIDDEN, DIM_NONE, NEED_POST_NORM, SHARD_NONE, true},
    {SLOT_ROUTER, "model.layers.%d.mlp.gate.weight", "blk.%d.ffn_gate_inp.weight", DIM_EXPERTS, DIM_HIDDEN, NEED_MOE, SHARD_NONE, true},
    {SLOT_EXPERT_GATE, "model.layers.%d.mlp.experts.%d.gate_proj.weight", "blk.%d.ffn_gate_exps.weight", DIM_EXPERT_FFN, DIM_HIDDEN, NEED_MOE, SHARD_OUT, true},
    {SLOT_EXPERT_UP, "model.layers.%d.mlp.experts.%d.up_proj.weight", "blk.%d.ffn_up_exps.weight", DIM_EXPERT_FFN, DIM_HIDDEN, NEED_MOE, SHARD_OUT, true},
    {SLOT_EXPERT_DOWN, "model.layers.%d.mlp.experts.%d.down_proj.weight", "blk.%d.ffn_down_exps.weight", DIM_HIDDEN, DIM_EXPERT_FFN, NEED_MOE, SHARD_IN, true},
    {SLOT_SHARED_GATE, "model.layers.%d.mlp.shared_expert.gate_proj.weight", "blk.%d.ffn_gate_shexp.weight", DIM_SHARED_FFN, DIM_HIDDEN, NEED_SHARED, SHARD_OUT, true},
    {SLOT_SHARED_UP, "model.layers.%d.mlp.shared_expert.up_proj.weight", "blk.%d.ffn_up_shexp.weight", DIM_SHARED_FFN, DIM_HIDDEN, NEED_SHARED, SHARD_OUT, true},
    {SLOT_SHARED_DOWN, "model.layers.%d.mlp.shared_expert.down_proj.weight", "blk.%d.ffn_down_shexp.weight", DIM_HIDDEN, DIM_SHARED_FFN, NEED_SHARED, SHARD_IN, true},
    {SLOT_SHARED_ROUTER, "model.layers.%d.mlp.shared_expert_gate.weight", "blk.%d.ffn_gate_inp_shexp.weight", DIM_ONE, DIM_HIDDEN, NEED_SHARED_GATE, SHARD_NONE, true},
    {SLOT_COUNT, NULL, NULL, DIM_NONE, DIM_NONE, NEED_ALWAYS, SHARD_NONE, false},
};

/* Gemma 2 and 3: norms before and behind; what others call post-attention is pre_feedforward here. */
const struct slot_row gemma_slots[] = {
    {SLOT_FFN_NORM, "model.layers.%d.pre_feedforward_layernorm.weight", "blk.%d.ffn_norm.weight", DIM_HIDDEN, DIM_NONE, NEED_PRE_NORM, SHARD_NONE, true},
    {SLOT_COUNT, NULL, NULL, DIM_NONE, DIM_NONE, NEED_ALWAYS, SHARD_NONE, false},
};

const struct slot_row mixtral_slots[] = {
    {SLOT_ROUTER, "model.layers.%d.block_sparse_moe.gate.weight", "blk.%d.ffn_gate_inp.weight", DIM_EXPERTS, DIM_HIDDEN, NEED_MOE, SHARD_NONE, true},
    {SLOT_EXPERT_GATE, "model.layers.%d.block_sparse_moe.experts.%d.w1.weight", "blk.%d.ffn_gate_exps.weight", DIM_EXPERT_FFN, DIM_HIDDEN, NEED_MOE, SHARD_OUT, true},
    {SLOT_EXPERT_UP, "model.layers.%d.block_sparse_moe.experts.%d.w3.weight", "blk.%d.ffn_up_exps.weight", DIM_EXPERT_FFN, DIM_HIDDEN, NEED_MOE, SHARD_OUT, true},
    {SLOT_EXPERT_DOWN, "model.layers.%d.block_sparse_moe.experts.%d.w2.weight", "blk.%d.ffn_down_exps.weight", DIM_HIDDEN, DIM_EXPERT_FFN, NEED_MOE, SHARD_IN, true},
    {SLOT_COUNT, NULL, NULL, DIM_NONE, DIM_NONE, NEED_ALWAYS, SHARD_NONE, false},
};

const struct slot_row *slot_find(const struct slot_row *rows, enum slot slot)
{
    for (; rows && rows->slot != SLOT_COUNT; rows++)
        if (rows->slot == slot) return rows;
    return NULL;
}

const struct slot_row *arch_slot(const struct arch *arch, enum slot slot)
{
    const struct slot_row *own = slot_find(arch->extra, slot);
    return own ? own : slot_find(arch->family ? arch->family : family_slots, slot);
}

int64_t arch_dim(const struct model_config *c, enum dim dim)
{
    const struct op_heads *h = &c->heads;
    int64_t q = (int64_t)h->heads * h->head_dim, kv = (int64_t)h->kv_heads * h->head_dim;
    bool full = c->qk_norm == MODEL_QK_NORM_FULL || c->qk_norm == MODEL_QK_NORM_LAYER;
    switch (dim) {
    case DIM_NONE: return 0;
    case DIM_ONE: return 1;
    case DIM_HIDDEN: return c->hidden;
    case DIM_VOCAB: return c->vocabulary;
    case DIM_Q: return q;
    case DIM_KV: return kv;
    case DIM_QKV: return q + 2 * kv;
    case DIM_HEAD: return h->head_dim;
    case DIM_ATTN_OUT: return (int64_t)h->heads * h->value_dim;
    case DIM_Q_NORM: return full ? q : h->head_dim;
    case DIM_K_NORM: return full ? kv : h->head_dim;
    case DIM_FFN: return c->intermediate;
    case DIM_FFN2: return (int64_t)c->intermediate * 2;
    case DIM_EXPERTS: return c->experts;
    case DIM_EXPERT_FFN: return c->expert_intermediate;
    case DIM_SHARED_FFN: return c->shared_intermediate;
    case DIM_ROPE: return c->ropes[0].rotary_dim / 2;
    case DIM_POSITIONS: return c->positions;
    case DIM_TYPES: return c->types;
    case DIM_BUCKETS: return c->relative_buckets;
    case DIM_HEADS: return h->heads;
    case DIM_LABELS: return c->head.labels;
    case DIM_INNER: return c->head.inner.out;
    case DIM_INNER_OUT: return c->head.inner.out ? c->head.inner.out : c->hidden;
    }
    return 0;
}

bool arch_needs(const struct model_config *c, const struct slot_row *row, int layer, bool fused_qkv, bool fused_gate_up)
{
    switch (row->slot) {
    case SLOT_Q: case SLOT_K: case SLOT_V: case SLOT_Q_BIAS: case SLOT_K_BIAS: case SLOT_V_BIAS:
        if (fused_qkv) return false;
        break;
    case SLOT_QKV: case SLOT_QKV_BIAS:
        if (!fused_qkv) return false;
        break;
    case SLOT_GATE: case SLOT_UP: case SLOT_GATE_BIAS: case SLOT_UP_BIAS:
        if (fused_gate_up) return false;
        break;
    case SLOT_GATE_UP: case SLOT_GATE_UP_BIAS:
        if (!fused_gate_up) return false;
        break;
    default: break;
    }
    bool moe = layer >= 0 && c->layer[layer].moe, classifies = c->head.task == MODEL_CLASSIFY || c->head.task == MODEL_CLASSIFY_TOKENS;
    switch (row->need) {
    case NEED_POSITIONS: return c->positions > 0;
    case NEED_TYPES: return c->types > 0;
    case NEED_NORM_BIAS: return c->norm_bias;
    case NEED_INNER_NORM: return layer > 0 || !c->first_norm_absent;
    case NEED_INNER_NORM_BIAS: return c->norm_bias && (layer > 0 || !c->first_norm_absent);
    case NEED_GATED: return !moe && !c->plain_mlp;
    case NEED_HEAD_OUT:
    case NEED_HEAD_OUT_OPTIONAL: return classifies;
    case NEED_HEAD_DENSE:
    case NEED_HEAD_DENSE_OPTIONAL: return classifies && c->head.inner.out > 0;
    case NEED_HEAD_NORM: return classifies && c->head.inner_norm;
    case NEED_HEAD_NORM_BIAS: return classifies && c->head.inner_norm && c->norm_bias;
    case NEED_ALWAYS:
    case NEED_OPTIONAL: return true;
    case NEED_UNTIED: return !c->tied;
    case NEED_PRE_NORM: return c->norms != MODEL_NORM_POST;
    case NEED_POST_NORM: return c->norms != MODEL_NORM_PRE;
    case NEED_QKV_BIAS: return c->qkv_bias;
    case NEED_O_BIAS: return c->o_bias;
    case NEED_MLP_BIAS: return c->mlp_bias && !moe;
    case NEED_QK_NORM: return c->qk_norm != MODEL_QK_NORM_NONE;
    case NEED_DENSE: return !moe;
    case NEED_MOE: return moe;
    case NEED_SHARED: return moe && c->shared_intermediate > 0;
    case NEED_SHARED_GATE: return moe && c->shared_intermediate > 0 && c->shared_gate;
    }
    return false;
}
