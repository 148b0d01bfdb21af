"""A checkpoint to measure loading with: the tensors of a Llama or Qwen3 config, filled with one block of random bfloat16 values,
and a tokenizer of a few words.

    python3 random_model.py bench/models/Llama-3.1-8B OUT [layers]
"""
import json
import os
import struct
import sys

import numpy


def tensors(c):
    h, d = c["hidden_size"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, kv, f = c["num_attention_heads"] * d, c["num_key_value_heads"] * d, c["intermediate_size"]
    yield "model.embed_tokens.weight", [c["vocab_size"], h]
    yield "model.norm.weight", [h]
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [c["vocab_size"], h]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [h]
        yield p + "post_attention_layernorm.weight", [h]
        for name, rows, cols in (("self_attn.q_proj", q, h), ("self_attn.k_proj", kv, h), ("self_attn.v_proj", kv, h), ("self_attn.o_proj", h, q),
                                 ("mlp.gate_proj", f, h), ("mlp.up_proj", f, h), ("mlp.down_proj", h, f)):
            yield p + name + ".weight", [rows, cols]
        if c["model_type"] == "qwen3":
            yield p + "self_attn.q_norm.weight", [d]
            yield p + "self_attn.k_norm.weight", [d]


def main():
    source, out = sys.argv[1:3]
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    if len(sys.argv) > 3:
        config["num_hidden_layers"] = int(sys.argv[3])
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f)
    words = {f"w{i}": i for i in range(config["vocab_size"])}
    with open(os.path.join(out, "tokenizer.json"), "w") as f:
        json.dump({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}, f)
    rng = numpy.random.default_rng(1)
    block = (rng.standard_normal(16 << 20, dtype=numpy.float32) * 0.02).view(numpy.uint32) >> 16
    block = block.astype(numpy.uint16).tobytes()
    header, at = {}, 0
    for name, shape in tensors(config):
        n = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        left = at
        while left:
            f.write(block[: min(left, len(block))])
            left -= min(left, len(block))


main()
