"""The GGUF form of a tiny model, as llama.cpp's converter would write it. The header comes from the gguf package; the data are
recipes over the checkpoint's tensors, so that the C test can write the same file: the parts one after another,

    permute h   rows of each of h heads regrouped so that rotary pairs lie side by side (Llama's family)
    add x       x added to every value (Gemma's norms)
    values      literal numbers instead (factors of rotary frequencies)
"""
import math, os, tempfile

import gguf
import numpy as np

ARCH = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen2_moe": "qwen2moe", "qwen3": "qwen3", "qwen3_moe": "qwen3moe",
        "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3", "olmo2": "olmo2", "granite": "granite", "smollm3": "smollm3"}
PAIRS = {"llama", "granite", "smollm3"}
TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "BF16": gguf.GGMLQuantizationType.BF16}


def rope_params(c):
    p = dict(c.get("rope_parameters") or c.get("rope_scaling") or {})
    if "full_attention" in p:
        p = dict(p["full_attention"])
    p.setdefault("rope_type", p.get("type", "default"))
    p["rope_theta"] = p.get("rope_theta") or c.get("rope_theta") or {"mixtral": 1e6, "smollm3": 2e6, "gemma3_text": 1e6}.get(c["model_type"], 1e4)
    p["partial"] = p.get("partial_rotary_factor") or c.get("partial_rotary_factor") or 1.0
    return p


def add_metadata(w, c, options, arch, heads, kv, head_dim):
    w.add_name("tiny " + c["model_type"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    if arch != "phi3":
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    p = rope_params(c)
    w.add_rope_freq_base(p["rope_theta"])
    if arch not in ("gemma2", "gemma3"):
        w.add_rope_dimension_count(int(head_dim * p["partial"]))
    if p["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(p["factor"])
    elif p["rope_type"] == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(p["factor"])
        w.add_rope_scaling_orig_ctx_len(p["original_max_position_embeddings"])
    elif p["rope_type"] in ("longrope", "su"):
        original = c["original_max_position_embeddings"]
        scale = c["max_position_embeddings"] / original
        w.add_rope_scaling_orig_ctx_len(original)
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
    if c.get("sliding_window") and (options.get("sliding_window") or arch in ("gemma2", "gemma3", "phi3")):
        w.add_sliding_window(c["sliding_window"])
    if arch in ("gemma2", "gemma3"):
        if c.get("attn_logit_softcapping"):
            w.add_attn_logit_softcapping(c["attn_logit_softcapping"])
        if c.get("final_logit_softcapping"):
            w.add_final_logit_softcapping(c["final_logit_softcapping"])
    if arch == "granite":
        w.add_attention_scale(c["attention_multiplier"])
        w.add_embedding_scale(c["embedding_multiplier"])
        w.add_residual_scale(c["residual_multiplier"])
        w.add_logit_scale(c["logits_scaling"])
    experts = c.get("num_local_experts") or c.get("num_experts")
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(c["num_experts_per_tok"])
        if c.get("moe_intermediate_size"):
            w.add_expert_feed_forward_length(c["moe_intermediate_size"])
        if c.get("shared_expert_intermediate_size"):
            w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    w.add_file_type(0)


def llama3_factors(c, p, head_dim):
    """What the inverse frequencies are divided by (Llama 3.1)."""
    out, dim = [], head_dim
    original = p["original_max_position_embeddings"]
    low, high = original / p["low_freq_factor"], original / p["high_freq_factor"]
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * p["rope_theta"] ** (i / dim)
        if wavelength < high:
            out.append(1.0)
        elif wavelength > low:
            out.append(p["factor"])
        else:
            smooth = (original / wavelength - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
            out.append(1 / ((1 - smooth) / p["factor"] + smooth))
    return [float(np.float32(x)) for x in out]


def plan(c, arch, tensors, heads, kv, head_dim):
    """[(gguf name, dtype, shape, recipe)], experts stacked, in the checkpoint's order."""
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], c["num_hidden_layers"])
    out, stacked = [], {}
    for name, dtype, exponent, mean, shape, _ in tensors:
        flat = name
        recipe = {"parts": [name]}
        if ".experts." in name:
            head, rest = name.split(".experts.")
            flat = head + ".experts." + rest.split(".", 1)[1]
        mapped = names.get_name(flat, try_suffixes=(".weight", ".bias"))
        assert mapped, (arch, flat)
        if ".experts." in name:
            if mapped in stacked:
                stacked[mapped][3]["parts"].append(name)
                stacked[mapped][2][0] += 1
                continue
            entry = stacked[mapped] = [mapped, dtype, [1] + shape, recipe]
            out.append(entry)
            continue
        if arch in PAIRS and "q_proj" in name:
            recipe["permute"] = heads
        elif arch in PAIRS and "k_proj" in name:
            recipe["permute"] = kv
        if arch in ("gemma2", "gemma3") and name.endswith("norm.weight"):
            recipe["add"] = 1.0
        if len(shape) == 1 or "gate_inp" in mapped:
            dtype = "F32"  # as the converter does
        out.append([mapped, dtype, list(shape), recipe])
    p = rope_params(c)
    if p["rope_type"] == "llama3":
        out.append(["rope_freqs.weight", "F32", [head_dim // 2], {"values": llama3_factors(c, p, head_dim)}])
    if p["rope_type"] in ("longrope", "su"):
        for kind in ("long", "short"):
            f = [float(np.float32(x)) for x in p[kind + "_factor"]]
            out.append([f"rope_factors_{kind}.weight", "F32", [len(f)], {"values": f}])
    return out


def cook(recipe, sources, shape):
    if "values" in recipe:
        return np.array(recipe["values"], np.float32).reshape(shape)
    x = np.concatenate([sources(n).reshape(-1) for n in recipe["parts"]]).reshape(shape)
    if "permute" in recipe:
        h = recipe["permute"]
        x = x.reshape(h, 2, shape[0] // h // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    if "add" in recipe:
        x = x + np.float32(recipe["add"])
    return np.ascontiguousarray(x.astype(np.float32))


def gguf_form(spec, seed, tensors, values):
    from make_models import fnv1a64, to_dtype
    c, arch = spec["config"], ARCH[spec["config"]["model_type"]]
    heads = c["num_attention_heads"]
    kv = c.get("num_key_value_heads") or heads
    head_dim = c.get("head_dim") or c["hidden_size"] // heads
    by_name = {t[0]: t for t in tensors}

    def sources(name):
        _, _, exponent, mean, shape, _ = by_name[name]
        return values(seed, name, exponent, mean, int(np.prod(shape))).reshape(shape)

    path = os.path.join(tempfile.mkdtemp(), "m.gguf")
    w = gguf.GGUFWriter(path, arch)
    add_metadata(w, c, spec["gguf"], arch, heads, kv, head_dim)
    listed = plan(c, arch, tensors, heads, kv, head_dim)
    for name, dtype, shape, recipe in listed:
        data = to_dtype(cook(recipe, sources, shape), dtype)
        if dtype == "BF16":
            w.add_tensor(name, data.view(np.uint8).reshape(*shape[:-1], shape[-1] * 2), raw_dtype=TYPES[dtype])
        else:
            w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    whole = open(path, "rb").read()
    begin = gguf.GGUFReader(path).data_offset
    recipes = [{"name": n, "dtype": d, "count": int(np.prod(s)), "rows": s[0], **r} for n, d, s, r in listed]
    return {"tensors": recipes, "bytes": len(whole), "hash": f"{fnv1a64(whole):016x}"}, whole[:begin]


def fuzz_seeds(folder):
    """Metadata of every architecture with a token table of four rows, for tests/fuzz/fuzz_config.c."""
    from models_list import MODELS
    for name, spec in MODELS.items():
        if "gguf" not in spec:
            continue
        c, arch = spec["config"], ARCH[spec["config"]["model_type"]]
        heads = c["num_attention_heads"]
        w = gguf.GGUFWriter(os.path.join(folder, name + ".gguf"), arch)
        add_metadata(w, c, spec["gguf"], arch, heads, c.get("num_key_value_heads") or heads, c.get("head_dim") or c["hidden_size"] // heads)
        w.add_tensor("token_embd.weight", np.zeros((4, c["hidden_size"]), np.float16))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()


if __name__ == "__main__":
    fuzz_seeds(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../fuzz/corpus/config"))
