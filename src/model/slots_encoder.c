/* Slots of the encoders. Old BERT files call a norm's weight gamma and its bias beta; the loader knows that. */
#include "model/slots.h"

#define LAYER true
#define MODEL false
#define END {SLOT_COUNT, NULL, NULL, DIM_NONE, DIM_NONE, NEED_ALWAYS, SHARD_NONE, false}
/* A vector of one bias or norm. */
#define VECTOR(slot, hf, gguf, dim, need, layer) {slot, hf, gguf, dim, DIM_NONE, need, SHARD_NONE, layer}

/* BERT, RoBERTa, XLM-RoBERTa. */
const struct slot_row bert_slots[] = {
    {SLOT_EMBED, "model.embeddings.word_embeddings.weight", "token_embd.weight", DIM_VOCAB, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, MODEL},
    {SLOT_POSITIONS, "model.embeddings.position_embeddings.weight", "position_embd.weight", DIM_POSITIONS, DIM_HIDDEN, NEED_POSITIONS, SHARD_NONE, MODEL},
    {SLOT_TYPES, "model.embeddings.token_type_embeddings.weight", "token_types.weight", DIM_TYPES, DIM_HIDDEN, NEED_TYPES, SHARD_NONE, MODEL},
    VECTOR(SLOT_EMBED_NORM, "model.embeddings.LayerNorm.weight", "token_embd_norm.weight", DIM_HIDDEN, NEED_ALWAYS, MODEL),
    VECTOR(SLOT_EMBED_NORM_BIAS, "model.embeddings.LayerNorm.bias", "token_embd_norm.bias", DIM_HIDDEN, NEED_ALWAYS, MODEL),
    {SLOT_HEAD_DENSE, "model.pooler.dense.weight", "cls.weight", DIM_INNER, DIM_HIDDEN, NEED_HEAD_DENSE, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_DENSE_BIAS, "model.pooler.dense.bias", "cls.bias", DIM_INNER, NEED_HEAD_DENSE, MODEL),
    {SLOT_HEAD_OUT, "classifier.weight", "cls.output.weight", DIM_LABELS, DIM_INNER_OUT, NEED_HEAD_OUT, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_OUT_BIAS, "classifier.bias", "cls.output.bias", DIM_LABELS, NEED_HEAD_OUT, MODEL),
    {SLOT_Q, "model.encoder.layer.%d.attention.self.query.weight", "blk.%d.attn_q.weight", DIM_Q, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_K, "model.encoder.layer.%d.attention.self.key.weight", "blk.%d.attn_k.weight", DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_V, "model.encoder.layer.%d.attention.self.value.weight", "blk.%d.attn_v.weight", DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_QKV, NULL, "blk.%d.attn_qkv.weight", DIM_QKV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    VECTOR(SLOT_Q_BIAS, "model.encoder.layer.%d.attention.self.query.bias", "blk.%d.attn_q.bias", DIM_Q, NEED_QKV_BIAS, LAYER),
    VECTOR(SLOT_K_BIAS, "model.encoder.layer.%d.attention.self.key.bias", "blk.%d.attn_k.bias", DIM_KV, NEED_QKV_BIAS, LAYER),
    VECTOR(SLOT_V_BIAS, "model.encoder.layer.%d.attention.self.value.bias", "blk.%d.attn_v.bias", DIM_KV, NEED_QKV_BIAS, LAYER),
    VECTOR(SLOT_QKV_BIAS, NULL, "blk.%d.attn_qkv.bias", DIM_QKV, NEED_QKV_BIAS, LAYER),
    {SLOT_O, "model.encoder.layer.%d.attention.output.dense.weight", "blk.%d.attn_output.weight", DIM_HIDDEN, DIM_ATTN_OUT, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_O_BIAS, "model.encoder.layer.%d.attention.output.dense.bias", "blk.%d.attn_output.bias", DIM_HIDDEN, NEED_O_BIAS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM, "model.encoder.layer.%d.attention.output.LayerNorm.weight", "blk.%d.attn_output_norm.weight", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM_BIAS, "model.encoder.layer.%d.attention.output.LayerNorm.bias", "blk.%d.attn_output_norm.bias", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    {SLOT_UP, "model.encoder.layer.%d.intermediate.dense.weight", "blk.%d.ffn_up.weight", DIM_FFN, DIM_HIDDEN, NEED_DENSE, SHARD_OUT, LAYER},
    {SLOT_GATE, NULL, "blk.%d.ffn_gate.weight", DIM_FFN, DIM_HIDDEN, NEED_GATED, SHARD_OUT, LAYER},
    VECTOR(SLOT_UP_BIAS, "model.encoder.layer.%d.intermediate.dense.bias", "blk.%d.ffn_up.bias", DIM_FFN, NEED_MLP_BIAS, LAYER),
    {SLOT_DOWN, "model.encoder.layer.%d.output.dense.weight", "blk.%d.ffn_down.weight", DIM_HIDDEN, DIM_FFN, NEED_DENSE, SHARD_IN, LAYER},
    VECTOR(SLOT_DOWN_BIAS, "model.encoder.layer.%d.output.dense.bias", "blk.%d.ffn_down.bias", DIM_HIDDEN, NEED_MLP_BIAS, LAYER),
    VECTOR(SLOT_POST_FFN_NORM, "model.encoder.layer.%d.output.LayerNorm.weight", "blk.%d.layer_output_norm.weight", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_FFN_NORM_BIAS, "model.encoder.layer.%d.output.LayerNorm.bias", "blk.%d.layer_output_norm.bias", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    END,
};

/* RoBERTa's classifier of sequences has its own layer before the output; that of tokens has BERT's. */
const struct slot_row roberta_slots[] = {
    {SLOT_HEAD_DENSE, "classifier.dense.weight", NULL, DIM_INNER, DIM_HIDDEN, NEED_HEAD_DENSE, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_DENSE_BIAS, "classifier.dense.bias", NULL, DIM_INNER, NEED_HEAD_DENSE, MODEL),
    {SLOT_HEAD_OUT, "classifier.out_proj.weight", NULL, DIM_LABELS, DIM_INNER_OUT, NEED_HEAD_OUT, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_OUT_BIAS, "classifier.out_proj.bias", NULL, DIM_LABELS, NEED_HEAD_OUT, MODEL),
    END,
};
const struct slot_row token_head_slots[] = {
    {SLOT_HEAD_OUT, "classifier.weight", NULL, DIM_LABELS, DIM_INNER_OUT, NEED_HEAD_OUT, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_OUT_BIAS, "classifier.bias", NULL, DIM_LABELS, NEED_HEAD_OUT, MODEL),
    END,
};

const struct slot_row distilbert_slots[] = {
    {SLOT_EMBED, "model.embeddings.word_embeddings.weight", NULL, DIM_VOCAB, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, MODEL},
    {SLOT_POSITIONS, "model.embeddings.position_embeddings.weight", NULL, DIM_POSITIONS, DIM_HIDDEN, NEED_POSITIONS, SHARD_NONE, MODEL},
    VECTOR(SLOT_EMBED_NORM, "model.embeddings.LayerNorm.weight", NULL, DIM_HIDDEN, NEED_ALWAYS, MODEL),
    VECTOR(SLOT_EMBED_NORM_BIAS, "model.embeddings.LayerNorm.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, MODEL),
    {SLOT_HEAD_DENSE, "pre_classifier.weight", NULL, DIM_INNER, DIM_HIDDEN, NEED_HEAD_DENSE, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_DENSE_BIAS, "pre_classifier.bias", NULL, DIM_INNER, NEED_HEAD_DENSE, MODEL),
    {SLOT_HEAD_OUT, "classifier.weight", NULL, DIM_LABELS, DIM_INNER_OUT, NEED_HEAD_OUT, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_OUT_BIAS, "classifier.bias", NULL, DIM_LABELS, NEED_HEAD_OUT, MODEL),
    {SLOT_Q, "model.transformer.layer.%d.attention.q_lin.weight", NULL, DIM_Q, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_K, "model.transformer.layer.%d.attention.k_lin.weight", NULL, DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_V, "model.transformer.layer.%d.attention.v_lin.weight", NULL, DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    VECTOR(SLOT_Q_BIAS, "model.transformer.layer.%d.attention.q_lin.bias", NULL, DIM_Q, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_K_BIAS, "model.transformer.layer.%d.attention.k_lin.bias", NULL, DIM_KV, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_V_BIAS, "model.transformer.layer.%d.attention.v_lin.bias", NULL, DIM_KV, NEED_ALWAYS, LAYER),
    {SLOT_O, "model.transformer.layer.%d.attention.out_lin.weight", NULL, DIM_HIDDEN, DIM_ATTN_OUT, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_O_BIAS, "model.transformer.layer.%d.attention.out_lin.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM, "model.transformer.layer.%d.sa_layer_norm.weight", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM_BIAS, "model.transformer.layer.%d.sa_layer_norm.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    {SLOT_UP, "model.transformer.layer.%d.ffn.lin1.weight", NULL, DIM_FFN, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    VECTOR(SLOT_UP_BIAS, "model.transformer.layer.%d.ffn.lin1.bias", NULL, DIM_FFN, NEED_ALWAYS, LAYER),
    {SLOT_DOWN, "model.transformer.layer.%d.ffn.lin2.weight", NULL, DIM_HIDDEN, DIM_FFN, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_DOWN_BIAS, "model.transformer.layer.%d.ffn.lin2.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_FFN_NORM, "model.transformer.layer.%d.output_layer_norm.weight", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_FFN_NORM_BIAS, "model.transformer.layer.%d.output_layer_norm.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    END,
};

/* MPNet's differences from BERT. */
const struct slot_row mpnet_slots[] = {
    {SLOT_RELATIVE, "model.encoder.relative_attention_bias.weight", NULL, DIM_BUCKETS, DIM_HEADS, NEED_ALWAYS, SHARD_NONE, MODEL},
    {SLOT_HEAD_DENSE, "classifier.dense.weight", NULL, DIM_INNER, DIM_HIDDEN, NEED_HEAD_DENSE, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_DENSE_BIAS, "classifier.dense.bias", NULL, DIM_INNER, NEED_HEAD_DENSE, MODEL),
    {SLOT_HEAD_OUT, "classifier.out_proj.weight", NULL, DIM_LABELS, DIM_INNER_OUT, NEED_HEAD_OUT, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_OUT_BIAS, "classifier.out_proj.bias", NULL, DIM_LABELS, NEED_HEAD_OUT, MODEL),
    {SLOT_Q, "model.encoder.layer.%d.attention.attn.q.weight", NULL, DIM_Q, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_K, "model.encoder.layer.%d.attention.attn.k.weight", NULL, DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_V, "model.encoder.layer.%d.attention.attn.v.weight", NULL, DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    VECTOR(SLOT_Q_BIAS, "model.encoder.layer.%d.attention.attn.q.bias", NULL, DIM_Q, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_K_BIAS, "model.encoder.layer.%d.attention.attn.k.bias", NULL, DIM_KV, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_V_BIAS, "model.encoder.layer.%d.attention.attn.v.bias", NULL, DIM_KV, NEED_ALWAYS, LAYER),
    {SLOT_O, "model.encoder.layer.%d.attention.attn.o.weight", NULL, DIM_HIDDEN, DIM_ATTN_OUT, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_O_BIAS, "model.encoder.layer.%d.attention.attn.o.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM, "model.encoder.layer.%d.attention.LayerNorm.weight", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM_BIAS, "model.encoder.layer.%d.attention.LayerNorm.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    END,
};

const struct slot_row modernbert_slots[] = {
    {SLOT_EMBED, "model.embeddings.tok_embeddings.weight", "token_embd.weight", DIM_VOCAB, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, MODEL},
    VECTOR(SLOT_EMBED_NORM, "model.embeddings.norm.weight", "token_embd_norm.weight", DIM_HIDDEN, NEED_ALWAYS, MODEL),
    VECTOR(SLOT_EMBED_NORM_BIAS, "model.embeddings.norm.bias", NULL, DIM_HIDDEN, NEED_NORM_BIAS, MODEL),
    VECTOR(SLOT_FINAL_NORM, "model.final_norm.weight", "output_norm.weight", DIM_HIDDEN, NEED_ALWAYS, MODEL),
    VECTOR(SLOT_FINAL_NORM_BIAS, "model.final_norm.bias", NULL, DIM_HIDDEN, NEED_NORM_BIAS, MODEL),
    {SLOT_HEAD_DENSE, "head.dense.weight", "cls.weight", DIM_INNER, DIM_HIDDEN, NEED_HEAD_DENSE, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_DENSE_BIAS, "head.dense.bias", NULL, DIM_INNER, NEED_HEAD_DENSE_OPTIONAL, MODEL),
    VECTOR(SLOT_HEAD_NORM, "head.norm.weight", "cls.norm.weight", DIM_INNER, NEED_HEAD_NORM, MODEL),
    VECTOR(SLOT_HEAD_NORM_BIAS, "head.norm.bias", NULL, DIM_INNER, NEED_HEAD_NORM_BIAS, MODEL),
    {SLOT_HEAD_OUT, "classifier.weight", "cls.output.weight", DIM_LABELS, DIM_INNER_OUT, NEED_HEAD_OUT, SHARD_NONE, MODEL},
    VECTOR(SLOT_HEAD_OUT_BIAS, "classifier.bias", "cls.output.bias", DIM_LABELS, NEED_HEAD_OUT, MODEL),
    VECTOR(SLOT_ATTN_NORM, "model.layers.%d.attn_norm.weight", "blk.%d.attn_norm.weight", DIM_HIDDEN, NEED_INNER_NORM, LAYER),
    VECTOR(SLOT_ATTN_NORM_BIAS, "model.layers.%d.attn_norm.bias", NULL, DIM_HIDDEN, NEED_INNER_NORM_BIAS, LAYER),
    {SLOT_QKV, "model.layers.%d.attn.Wqkv.weight", "blk.%d.attn_qkv.weight", DIM_QKV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    VECTOR(SLOT_QKV_BIAS, "model.layers.%d.attn.Wqkv.bias", NULL, DIM_QKV, NEED_QKV_BIAS, LAYER),
    {SLOT_O, "model.layers.%d.attn.Wo.weight", "blk.%d.attn_output.weight", DIM_HIDDEN, DIM_ATTN_OUT, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_O_BIAS, "model.layers.%d.attn.Wo.bias", NULL, DIM_HIDDEN, NEED_O_BIAS, LAYER),
    VECTOR(SLOT_FFN_NORM, "model.layers.%d.mlp_norm.weight", "blk.%d.ffn_norm.weight", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_FFN_NORM_BIAS, "model.layers.%d.mlp_norm.bias", NULL, DIM_HIDDEN, NEED_NORM_BIAS, LAYER),
    {SLOT_GATE_UP, "model.layers.%d.mlp.Wi.weight", "blk.%d.ffn_up.weight", DIM_FFN2, DIM_HIDDEN, NEED_DENSE, SHARD_OUT, LAYER},
    VECTOR(SLOT_GATE_UP_BIAS, "model.layers.%d.mlp.Wi.bias", NULL, DIM_FFN2, NEED_MLP_BIAS, LAYER),
    {SLOT_DOWN, "model.layers.%d.mlp.Wo.weight", "blk.%d.ffn_down.weight", DIM_HIDDEN, DIM_FFN, NEED_DENSE, SHARD_IN, LAYER},
    VECTOR(SLOT_DOWN_BIAS, "model.layers.%d.mlp.Wo.bias", NULL, DIM_HIDDEN, NEED_MLP_BIAS, LAYER),
    END,
};

/* NomicBERT as transformers saves it: differences from BERT. */
const struct slot_row nomic_slots[] = {
    {SLOT_Q, "model.layers.%d.self_attn.q_proj.weight", NULL, DIM_Q, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_K, "model.layers.%d.self_attn.k_proj.weight", NULL, DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_V, "model.layers.%d.self_attn.v_proj.weight", NULL, DIM_KV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_O, "model.layers.%d.self_attn.o_proj.weight", NULL, DIM_HIDDEN, DIM_ATTN_OUT, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_POST_ATTN_NORM, "model.layers.%d.post_attention_layernorm.weight", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM_BIAS, "model.layers.%d.post_attention_layernorm.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    {SLOT_GATE, "model.layers.%d.mlp.gate_proj.weight", NULL, DIM_FFN, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_UP, "model.layers.%d.mlp.up_proj.weight", NULL, DIM_FFN, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_DOWN, "model.layers.%d.mlp.down_proj.weight", NULL, DIM_HIDDEN, DIM_FFN, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_POST_FFN_NORM, "model.layers.%d.post_mlp_layernorm.weight", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_FFN_NORM_BIAS, "model.layers.%d.post_mlp_layernorm.bias", NULL, DIM_HIDDEN, NEED_ALWAYS, LAYER),
    END,
};

/* The same in the files of its authors: the gate is fc12. */
const struct slot_row nomic_older_slots[] = {
    VECTOR(SLOT_EMBED_NORM, "model.emb_ln.weight", "token_embd_norm.weight", DIM_HIDDEN, NEED_ALWAYS, MODEL),
    VECTOR(SLOT_EMBED_NORM_BIAS, "model.emb_ln.bias", "token_embd_norm.bias", DIM_HIDDEN, NEED_ALWAYS, MODEL),
    {SLOT_QKV, "model.encoder.layers.%d.attn.Wqkv.weight", "blk.%d.attn_qkv.weight", DIM_QKV, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_O, "model.encoder.layers.%d.attn.out_proj.weight", "blk.%d.attn_output.weight", DIM_HIDDEN, DIM_ATTN_OUT, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_POST_ATTN_NORM, "model.encoder.layers.%d.norm1.weight", "blk.%d.attn_output_norm.weight", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_ATTN_NORM_BIAS, "model.encoder.layers.%d.norm1.bias", "blk.%d.attn_output_norm.bias", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    {SLOT_GATE, "model.encoder.layers.%d.mlp.fc12.weight", "blk.%d.ffn_gate.weight", DIM_FFN, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_UP, "model.encoder.layers.%d.mlp.fc11.weight", "blk.%d.ffn_up.weight", DIM_FFN, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},
    {SLOT_DOWN, "model.encoder.layers.%d.mlp.fc2.weight", "blk.%d.ffn_down.weight", DIM_HIDDEN, DIM_FFN, NEED_ALWAYS, SHARD_IN, LAYER},
    VECTOR(SLOT_POST_FFN_NORM, "model.encoder.layers.%d.norm2.weight", "blk.%d.layer_output_norm.weight", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_POST_FFN_NORM_BIAS, "model.encoder.layers.%d.norm2.bias", "blk.%d.layer_output_norm.bias", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    END,
};

/* JinaBERT v2: differences from BERT. Gate and up are one matrix without a bias. */
#define JINA_SLOTS(glu, down, norm)                                                                                                                    \
    {SLOT_UP, NULL, "blk.%d.ffn_up.weight", DIM_FFN, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},                                                        \
    {SLOT_GATE_UP, "model.encoder.layer.%d.mlp." glu ".weight", "blk.%d.ffn_up.weight", DIM_FFN2, DIM_HIDDEN, NEED_ALWAYS, SHARD_OUT, LAYER},            \
    {SLOT_DOWN, "model.encoder.layer.%d.mlp." down ".weight", "blk.%d.ffn_down.weight", DIM_HIDDEN, DIM_FFN, NEED_ALWAYS, SHARD_IN, LAYER},              \
    VECTOR(SLOT_DOWN_BIAS, "model.encoder.layer.%d.mlp." down ".bias", "blk.%d.ffn_down.bias", DIM_HIDDEN, NEED_ALWAYS, LAYER),                          \
    VECTOR(SLOT_POST_FFN_NORM, "model.encoder.layer.%d." norm ".weight", "blk.%d.layer_output_norm.weight", DIM_HIDDEN, NEED_ALWAYS, LAYER),             \
    VECTOR(SLOT_POST_FFN_NORM_BIAS, "model.encoder.layer.%d." norm ".bias", "blk.%d.layer_output_norm.bias", DIM_HIDDEN, NEED_ALWAYS, LAYER)

const struct slot_row jina_slots[] = {
    JINA_SLOTS("gated_layers", "wo", "mlp.layernorm"),
    END,
};

/* The one for code: norms of q and k, a second norm behind attention. */
const struct slot_row jina_code_slots[] = {
    JINA_SLOTS("up_gated_layer", "down_layer", "layer_norm_2"),
    VECTOR(SLOT_Q_NORM, "model.encoder.layer.%d.attention.self.layer_norm_q.weight", "blk.%d.attn_q_norm.weight", DIM_Q_NORM, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_Q_NORM_BIAS, "model.encoder.layer.%d.attention.self.layer_norm_q.bias", "blk.%d.attn_q_norm.bias", DIM_Q_NORM, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_K_NORM, "model.encoder.layer.%d.attention.self.layer_norm_k.weight", "blk.%d.attn_k_norm.weight", DIM_K_NORM, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_K_NORM_BIAS, "model.encoder.layer.%d.attention.self.layer_norm_k.bias", "blk.%d.attn_k_norm.bias", DIM_K_NORM, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_SECOND_NORM, "model.encoder.layer.%d.layer_norm_1.weight", "blk.%d.attn_norm_2.weight", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    VECTOR(SLOT_SECOND_NORM_BIAS, "model.encoder.layer.%d.layer_norm_1.bias", "blk.%d.attn_norm_2.bias", DIM_HIDDEN, NEED_ALWAYS, LAYER),
    END,
};
