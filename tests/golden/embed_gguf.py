"""The GGUF form of BERT and NomicBERT, as llama.cpp's converter would write it; recipes as in models_gguf.py."""
import os, tempfile

import gguf
import numpy as np

TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "BF16": gguf.GGMLQuantizationType.BF16}
NAMES = [("embeddings.word_embeddings", "token_embd"), ("embeddings.position_embeddings", "position_embd"), ("embeddings.token_type_embeddings", "token_types"),
         ("embeddings.LayerNorm", "token_embd_norm"), ("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"), ("attention.self.value", "attn_v"),
         ("attention.output.dense", "attn_output"), ("attention.output.LayerNorm", "attn_output_norm"), ("intermediate.dense", "ffn_up"), ("output.dense", "ffn_down"),
         ("output.LayerNorm", "layer_output_norm"), ("self_attn.o_proj", "attn_output"), ("post_attention_layernorm", "attn_output_norm"), ("mlp.gate_proj", "ffn_gate"),
         ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"), ("post_mlp_layernorm", "layer_output_norm"), ("encoder.layer.", "blk."), ("layers.", "blk.")]


def rename(name):
    for a, b in NAMES:
        name = name.replace(a, b)
    return name


def plan(tensors):
    """[(gguf name, dtype, shape, recipe)]; q, k and v of NomicBERT become one tensor."""
    out = []
    for name, dtype, _, _, shape, shard in tensors:
        if shard:
            continue
        if "self_attn." in name and "o_proj" not in name:
            if "q_proj" in name:
                parts = [name.replace("q_proj", p + "_proj") for p in "qkv"]
                out.append((rename(name.split("self_attn")[0]) + "attn_qkv.weight", "F32", [3 * shape[0], shape[1]], {"parts": parts}))
            continue
        out.append((rename(name), "F32" if len(shape) == 1 else dtype, shape, {"parts": [name]}))
    return out


def gguf_form(config, seed, tensors, values, pooling):
    from make_models import fnv1a64, to_dtype
    nomic = config["model_type"] == "nomic_bert"
    arch = "nomic-bert" if nomic else "bert"
    by_name = {t[0]: t for t in tensors if not t[5]}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.gguf")
        w = gguf.GGUFWriter(path, arch)
        w.add_name("tiny " + arch)
        w.add_block_count(config["num_hidden_layers"])
        w.add_context_length(config["max_position_embeddings"])
        w.add_embedding_length(config["hidden_size"])
        w.add_feed_forward_length(config["intermediate_size"])
        w.add_head_count(config["num_attention_heads"])
        w.add_layer_norm_eps(config["layer_norm_eps"])
        w.add_causal_attention(False)
        w.add_pooling_type({"mean": gguf.PoolingType.MEAN, "cls": gguf.PoolingType.CLS}[pooling])
        if nomic:
            w.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
        w.add_file_type(0)
        recipes = []
        for name, dtype, shape, recipe in plan(tensors):
            data = np.concatenate([values(seed, p, by_name[p][2], by_name[p][3], int(np.prod(by_name[p][4]))) for p in recipe["parts"]])
            stored = to_dtype(data, dtype)
            w.add_tensor(name, stored.view(np.uint8).reshape(shape[:-1] + [shape[-1] * stored.itemsize]) if dtype == "BF16" else stored.reshape(shape),
                         raw_dtype=TYPES[dtype] if dtype == "BF16" else None)
            recipes.append(dict(recipe, dtype=dtype, count=int(np.prod(shape))))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        with open(path, "rb") as f:
            data = f.read()
    total = sum((r["count"] * {"F32": 4, "F16": 2, "BF16": 2}[r["dtype"]] + 31) // 32 * 32 for r in recipes)
    return {"tensors": recipes, "hash": f"{fnv1a64(data):016x}"}, data[: len(data) - total]
