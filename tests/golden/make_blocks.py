#!/usr/bin/env python3
"""Golden GGUF models whose matrices are in block formats: tiny ones of random blocks, run by transformers in float32 with what the gguf
package says the blocks mean.

    python tests/golden/make_blocks.py [NAME...]        writes tests/golden/models/blocks_NAME.json, .logits and .gguf-head

Blocks are bits of the generator of make_models.py (value i of a tensor gives bytes 8 i .. 8 i + 7), but for their scales: a half at a
place of "halves" [[place, base]...] becomes base + its low nine bits, with its own sign where base has none; a byte at a place of
"bytes" base + its lowest bit. tests/model/golden.h writes the same files.
"""
import json, os, sys, tempfile

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_models import GOLDEN, HERE, fnv1a64, values  # noqa: E402
from models_gguf import add_metadata  # noqa: E402
from models_list import sizes  # noqa: E402

torch.set_grad_enabled(False)
TYPE = gguf.GGMLQuantizationType
POSITIONS, GENERATE = [0, 3, 9, 15], 4
# Standard deviation of the codes, places of d and of the minimum, and what it is times d.
SPREAD = {"Q4_0": (4.6, [0], 0), "Q4_1": (4.6, [0, 2], -7.5), "Q5_0": (9.2, [0], 0), "Q8_0": (74, [0], 0), "Q4_K": (4.6 * 36, [0, 2], 7.5),
          "Q5_K": (9.2 * 36, [0, 2], 15.5), "Q6_K": (18.5 * 74, [208], 0), "MXFP4": (2.9, [], 0)}
MODELS = {f.lower(): {"": f} for f in ("Q4_0", "Q4_1", "Q8_0", "MXFP4", "Q4_K", "Q5_K", "Q6_K")}
# Mixtures of experts, whose router is F32.
MODELS["moe_q4_k"] = {"": "Q4_K", "ffn_down_exps": "Q6_K"}
MODELS["moe_q5_k"] = {"": "Q5_K", "ffn_gate_exps": "Q4_K"}
MODELS["moe_q8_0"] = {"": "Q8_0", "ffn_down_exps": "Q4_1"}
MODELS["moe_q4_0"] = {"": "Q4_0", "ffn_down_exps": "MXFP4"}
MODELS["moe_q5_0"] = {"": "Q8_0", "ffn_gate_exps": "Q5_0"}
MODELS["mixed"] = {"": "Q4_K", "attn_k": "Q5_0", "attn_v": "Q6_K", "ffn_up": "Q5_K", "ffn_down": "Q6_K", "token_embd": "Q8_0", "output.": "Q6_K"}


def half(x):
    return int(np.float16(x).view(np.uint16))


def raw_bytes(seed, name, count):
    start = (fnv1a64(name.encode()) + seed * GOLDEN) & (2**64 - 1)
    with np.errstate(over="ignore"):
        z = np.uint64(start) + (np.arange((count + 7) // 8, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z.view(np.uint8)[:count].copy()


def blocks(seed, name, kind, shape, gain):
    """(recipe, bytes [rows, row bytes], float32)"""
    size, bytes_ = gguf.GGML_QUANT_SIZES[TYPE[kind]]
    spread, places, minimum = SPREAD[kind]
    d = gain / np.sqrt(shape[1]) / spread / 1.25
    recipe = {"dtype": kind, "halves": [[p, half(d if i == 0 else abs(minimum) * d) | (0x8000 if i and minimum < 0 else 0)] for i, p in enumerate(places)]}
    if minimum:
        recipe["halves"][0][1] |= 1 << 16  # a positive scale, so that the minimum centres the values
        recipe["halves"][1][1] |= 1 << 16
    if kind == "MXFP4":
        recipe["bytes"] = [[0, int(127 + np.floor(np.log2(d)))]]
    raw = raw_bytes(seed, name, shape[0] * shape[1] // size * bytes_).reshape(-1, bytes_)
    for place, base in recipe["halves"]:
        old = raw[:, place].astype(np.uint32) | raw[:, place + 1].astype(np.uint32) << 8
        new = (base & 0xFFFF) + (old & 0x1FF) | (0 if base >> 16 else old & 0x8000)
        raw[:, place], raw[:, place + 1] = new & 255, new >> 8
    for place, base in recipe.get("bytes", []):
        raw[:, place] = base + (raw[:, place] & 1)
    raw = raw.reshape(shape[0], -1)
    return recipe, raw, gguf.quants.dequantize(raw, TYPE[kind]).astype(np.float32).reshape(shape)


def kind_of(spec, name):
    best = max((k for k in spec if name.startswith(k) or "." + k in name), key=len)
    return spec[best]


def experts(hf, p):
    """[(GGUF name, matrix [experts, n, k])] of a fused tensor of transformers."""
    head = hf.split(".mlp.")[0].replace("model.layers", "blk")
    if hf.endswith("gate_up_proj"):
        return [(head + ".ffn_gate_exps.weight", p.shape[1] // 2, p.shape), (head + ".ffn_up_exps.weight", p.shape[1] // 2, p.shape)]
    return [(head + ".ffn_down_exps.weight", p.shape[1], p.shape)]


def make(name, spec):
    seed, tied = fnv1a64(("blocks_" + name).encode()) & 0xFFFF, "output." not in spec
    plain = not any(k.endswith("_K") for k in spec.values())
    arch, more = "qwen3", {}
    if name.startswith("moe"):
        arch, more = "qwen3_moe", dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=160 if plain else 256, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    config = sizes(arch, hidden_size=256, intermediate_size=416 if plain else 512, num_hidden_layers=2, head_dim=64, tie_word_embeddings=tied, **more)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), attn_implementation="eager").float().eval()
    state, recipes = {}, []
    path = os.path.join(tempfile.mkdtemp(), "m.gguf")
    w = gguf.GGUFWriter(path, arch.replace("_", ""))
    add_metadata(w, config, {}, arch.replace("_", ""), 4, 2, 64)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3MOE if more else gguf.MODEL_ARCH.QWEN3, 2)
    for hf, p in model.state_dict().items():
        if ".experts." in hf:
            made = []
            for stored, n, shape in experts(hf, p):
                recipe, raw, v = blocks(seed, stored, kind_of(spec, stored), [shape[0] * n, shape[2]], 1.6)
                recipes.append({"name": stored, "count": int(shape[0] * n * shape[2]), **recipe})
                w.add_tensor(stored, raw.reshape(shape[0], n, -1), raw_dtype=TYPE[recipe["dtype"]])
                made.append(torch.from_numpy(v).reshape(shape[0], n, shape[2]))
            state[hf] = torch.cat(made, 1)
            continue
        shape, stored = list(p.shape), names.get_name(hf, try_suffixes=(".weight",))
        if hf == "lm_head.weight" and tied:
            continue
        if len(shape) == 1:
            v = values(seed, stored, -7, 1.0, shape[0])
            recipes.append({"name": stored, "dtype": "F32", "count": shape[0], "exponent": -7, "mean": 1.0})
            w.add_tensor(stored, v)
        elif hf.endswith("mlp.gate.weight"):
            v = values(seed, stored, -7, 0.0, shape[0] * shape[1]).reshape(shape)
            recipes.append({"name": stored, "dtype": "F32", "count": shape[0] * shape[1], "exponent": -7, "mean": 0.0})
            w.add_tensor(stored, v)
        else:
            gain = 1.0 if "embed" in hf or "lm_head" in hf else 1.6
            recipe, raw, v = blocks(seed, stored, kind_of(spec, stored), shape, gain)
            recipes.append({"name": stored, "count": shape[0] * shape[1], **recipe})
            w.add_tensor(stored, raw, raw_dtype=TYPE[recipe["dtype"]])
        state[hf] = torch.from_numpy(v)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    model.load_state_dict(state, strict=not tied)
    model.tie_weights()
    prompt = [int(t) for t in np.random.default_rng(seed).integers(0, config["vocab_size"], 16)]
    text = []
    for _ in range(GENERATE):
        text.append(int(model(torch.tensor([prompt + text]), use_cache=False).logits[0, -1].argmax()))
    whole = model(torch.tensor([prompt + text[:-1]]), use_cache=False).logits[0].numpy()
    rows = np.stack([whole[p] for p in POSITIONS] + list(whole[len(prompt):])).astype("<f4")
    file = open(path, "rb").read()
    out = {"config": config, "seed": seed, "vocabulary": config["vocab_size"], "tensors": [],
           "cases": [{"prompt": prompt, "positions": POSITIONS, "text": text, "row": 0}],
           "gguf": {"tensors": recipes, "bytes": len(file), "hash": f"{fnv1a64(file):016x}"}}
    base = os.path.join(HERE, "blocks_" + name)
    json.dump(out, open(base + ".json", "w"), separators=(",", ":"))
    open(base + ".logits", "wb").write(rows.tobytes())
    open(base + ".gguf-head", "wb").write(file[: gguf.GGUFReader(path).data_offset])
    print(f"{name}: {len(file)} bytes, logits {rows.std():.2f}, margins {np.sort(rows)[:, -1] - np.sort(rows)[:, -2]}")


if __name__ == "__main__":
    for n in sys.argv[1:] or MODELS:
        make(n, MODELS[n])
