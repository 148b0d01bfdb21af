#!/usr/bin/env python3
"""Golden data of the model tests: tiny random models, run by transformers in float32 on the CPU.

    python tests/golden/make_models.py [NAME...]        writes tests/golden/models/NAME.json, .logits and .gguf-head

Only configs, recipes of the weights and logits are kept. The weights themselves come from a generator that exists twice,
in golden_values.py and in tests/model/golden.h, so that the C tests write the very same files when they run:

    value[i] = mean + 2^exponent * (sum of four 6-bit pieces of splitmix64(fnv1a64(name) + seed * G + (i + 1) * G) - 126)

with G the golden ratio of 64 bits. Such a value has few bits and is exact in float32, float16 and bfloat16.

A model's JSON holds
    config    what config.json says
    tensors   [name, dtype, exponent, mean, shape, shard] each
    cases     prompt, positions whose logits are kept, the greedy continuation; rows in .logits (float32, row = vocabulary); of FP8 models
              again from row_a8 on, with activations that are quantised too (the same text)
    flips     patches of the config (RFC 7386) with the last row of logits that transformers gives under them (row in .logits;
              -1: transformers cannot load it either and Rose must say an error)
    gguf      recipes of the GGUF form, whose header stands in .gguf-head, and the hash of the whole file
"""
import copy, json, os, sys, tempfile

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from golden_values import fnv1a64, values  # noqa: E402,F401
from models_list import MODELS  # noqa: E402

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_grad_enabled(False)
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
SPREAD = 36.95  # standard deviation of the integers
GENERATE = 16


def to_dtype(x, dtype):
    """float32 values as stored bytes; exact by construction."""
    if dtype == "F32":
        return x
    if dtype == "F16":
        y = x.astype(np.float16)
        assert (y.astype(np.float32) == x).all()
        return y
    y = (x.view(np.uint32) >> 16).astype(np.uint16)
    assert ((y.astype(np.uint32) << 16).view(np.float32) == x).all()
    return y


def checkpoint_tensors(config):
    """Names and shapes as published checkpoints have them: experts one by one."""
    from transformers import AutoConfig
    c = AutoConfig.for_model(**copy.deepcopy(config))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(c)
    out = []
    tied = model.config.tie_word_embeddings
    for name, p in model.state_dict().items():
        shape = list(p.shape)
        if name == "lm_head.weight" and tied:
            continue
        if config["model_type"] == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith("experts.gate_up_proj"):
            base, names = name[: -len("gate_up_proj")], ("w1", "w3") if config["model_type"] == "mixtral" else ("gate_proj", "up_proj")
            for e in range(shape[0]):
                out += [(f"{base}{e}.{n}.weight", [shape[1] // 2, shape[2]]) for n in names]
        elif name.endswith("experts.down_proj"):
            n = "w2" if config["model_type"] == "mixtral" else "down_proj"
            out += [(f"{name[:-len('down_proj')]}{e}.{n}.weight", shape[1:]) for e in range(shape[0])]
        else:
            out.append((name, shape))
    return out, tied


def scale_of(name, shape, config, tied):
    """(exponent, mean): every sublayer changes the residual stream about as much as there is."""
    if len(shape) == 1:
        if "norm" in name:
            return -7, 0.0 if config["model_type"].startswith("gemma") else 1.0
        return (-6, 0.0) if "_proj.bias" in name else (-8, 0.0)
    if "embed_tokens" in name:
        if config["model_type"].startswith("gemma"):
            return -8, 0.0
        return (-7, 0.0) if tied or "embedding_multiplier" in config else (-5, 0.0)
    if "lm_head" in name:
        return -7, 0.0
    gain = 1.0
    if any(n in name for n in ("q_proj", "k_proj", "qkv_proj")):
        gain = 1.6
    elif "mlp.gate.weight" in name or "moe.gate.weight" in name or "expert_gate" in name:
        gain = 2.0
    elif any(n in name for n in ("down_proj", "w2")):
        gain = 1.6
    elif any(n in name for n in ("gate_proj", "up_proj", "w1", "w3")):
        gain = 1.3
    return int(np.round(np.log2(gain / np.sqrt(shape[1]) / SPREAD))), 0.0


DTYPES = ["F32", "F32", "BF16", "F16"]


def tensor_list(spec):
    listed, tied = checkpoint_tensors(spec["config"])
    shards, kinds = spec.get("shards", 1), spec.get("dtypes", DTYPES)
    out = []
    for i, (name, shape) in enumerate(listed):
        exponent, mean = scale_of(name, shape, spec["config"], tied)
        if "fp8" in spec and name.endswith("_proj.weight"):
            out += fp8_tensors(spec["fp8"], name, exponent, shape)
            continue
        out.append([name, kinds[i % len(kinds)], exponent, mean, shape, i * shards // len(listed)])
    return out


def fp8_tensors(fp8, name, exponent, shape):
    """Codes are the generator's integers rounded to e4m3; scales lie around the matrix's own size, a value for each place."""
    scales = {"tensor": [], "channel": [shape[0], 1], "block": [-(-shape[0] // 128), -(-shape[1] // 128)]}[fp8["kind"]]
    suffix = fp8.get("scale", "weight_scale_inv" if fp8["kind"] == "block" else "weight_scale")
    base = name[: -len("weight")]
    out = [[name, "F8_E4M3", 0, 0.0, shape, 0], [base + suffix, fp8["dtype"], exponent - 7, 2.0**exponent, scales, 0]]
    out += [[base + n, "F32", -8, 1.0, [1], 0] for n in fp8.get("unused", []) if n == "input_scale" or base.endswith(n[:2] + "proj.")]
    return out


def dequantised(seed, tensors):
    """What a float model has in a FP8 checkpoint's place: code times scale, in float32."""
    made = {n: values(seed, n, e, m, int(np.prod(s))).reshape(s) for n, _, e, m, s, _ in tensors}
    out = {}
    for name, dtype, *_ in tensors:
        if name.endswith("_scale") or name.endswith("_scale_inv"):
            continue
        out[name] = made[name]
        if dtype != "F8_E4M3":
            continue
        code = torch.from_numpy(made[name]).to(torch.float8_e4m3fn).float().numpy()
        scale = made.get(name + "_scale", made.get(name + "_scale_inv"))
        if scale.ndim == 2 and scale.shape[0] < code.shape[0]:
            scale = np.repeat(np.repeat(scale, 128, 0), 128, 1)[: code.shape[0], : code.shape[1]]
        out[name] = code * scale
    return out


def write_checkpoint(folder, config, seed, tensors):
    """Weights as F32: the values are the same whatever a tensor's type in the C test's files."""
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({k: v for k, v in config.items() if k != "quantization_config"}, f)
    path = os.path.join(folder, "model.safetensors")
    if not os.path.exists(path):
        save_file(dequantised(seed, tensors), path, {"format": "pt"})


def load(folder):
    """A float32 model, or None when transformers finds tensors missing, left over or misshapen."""
    try:
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
                                                           ignore_mismatched_sizes=False)
    except Exception as e:
        if os.environ.get("VERBOSE"):
            print("   ", type(e).__name__, str(e)[:200])
        return None
    bad = {k: v for k, v in info.items() if v and k in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if bad:
        if os.environ.get("VERBOSE"):
            print("   ", {k: sorted(v)[:3] for k, v in bad.items()})
        return None
    return model.eval()


def freeze_rope(model):
    """Our rule: a sequence's table is that of its prompt's length. After the prompt, the table stays."""
    r = model.model.rotary_emb
    if isinstance(r.rope_type, str):
        r.rope_type = "default"


def run_case(model, prompt):
    ids = torch.tensor([prompt])
    logits = model(ids, use_cache=False).logits[0].numpy()
    freeze_rope(model)
    out = model(ids, use_cache=True)
    cache = out.cache
    rows, text, last = [], [], logits[-1]
    for _ in range(GENERATE):
        text.append(int(last.argmax()))
        two = np.sort(last)[-2:]
        if two[1] - two[0] < 5e-3:
            return None
        if len(text) == GENERATE:
            break
        out = model(torch.tensor([text[-1:]]), cache=cache, use_cache=True)
        last = out.logits[0, -1].numpy()
        rows.append(last)
    whole = model(torch.tensor([prompt + text[:-1]]), use_cache=False).logits[0].numpy()
    assert np.abs(whole[len(prompt):] - np.stack(rows)).max() < 5e-5, "cache and whole disagree"
    return logits, text, rows


def quantise_activations(model, kind):
    """What FP8 products of many rows do on a GPU: activations of bf16 become e4m3, a scale for 128 of a row (kind "block", and experts of any
    kind, where rows are whole blocks) or for the row. Between experts' two products transformers has no place for that."""
    def hook(module, args):
        x = args[0]
        block = kind == "block" or not isinstance(module, torch.nn.Linear)
        if block and x.shape[-1] % 128:
            return args
        groups = x.to(torch.bfloat16).float().reshape(*x.shape[:-1], -1, 128 if block else x.shape[-1])
        scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 448
        return ((groups * (1 / scale)).to(torch.float8_e4m3fn).float() * scale).reshape(x.shape), *args[1:]
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.endswith("_proj") or name.endswith(".experts"):
            module.register_forward_pre_hook(hook)


def some_positions(n):
    return sorted({p for p in (0, 1, 2, 15, 16, 17, 30, 31, 32, 33, n - 3, n - 2, n - 1) if 0 <= p < n})


def make(name, spec):
    config, seed = spec["config"], fnv1a64(name.encode()) & 0xFFFF
    tensors = tensor_list(spec)
    stored, cases, flips = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(folder, config, seed, tensors)
        for length in spec.get("prompts", [75]):
            for attempt in range(200):
                rng = np.random.default_rng(seed * 1000 + attempt)
                prompt = [int(t) for t in rng.integers(0, config["vocab_size"], length)]
                model = load(folder)
                assert model is not None, f"{name}: transformers does not load it"
                got = run_case(model, prompt)
                if got:
                    break
            logits, text, rows = got
            positions = some_positions(length)
            cases.append({"prompt": prompt, "positions": positions, "text": text, "row": len(stored)})
            stored += [logits[p] for p in positions] + rows
            if "fp8" in spec:
                cases[-1]["row_a8"] = len(stored)
                quantise_activations(model, spec["fp8"]["kind"])
                whole = model(torch.tensor([prompt + text[:-1]]), use_cache=False).logits[0].numpy()
                stored += [whole[p] for p in positions] + list(whole[length:])
        prompt = cases[-1]["prompt"]
        base = stored[cases[-1]["row"] + len(cases[-1]["positions"]) - 1]
        for patch in spec.get("flips", []):
            write_checkpoint(folder, merge(config, patch), seed, tensors)
            model = load(folder)
            if model is None:
                flips.append({"patch": patch, "row": -1})
                continue
            try:
                row = model(torch.tensor([prompt]), use_cache=False).logits[0, -1].numpy()
            except (RuntimeError, ValueError, IndexError, KeyError):
                flips.append({"patch": patch, "row": -1})
                continue
            moved = np.abs(row - base).max()
            assert moved > 1e-2, f"{name}: {patch} moves logits by only {moved:.2g}"
            flips.append({"patch": patch, "row": len(stored)})
            stored.append(row)
        # What Rose must refuse; transformers is not asked.
        flips += [{"patch": patch, "row": -1} for patch in spec.get("refused", [])]
        # Configs that mean the same in other words.
        same = list(spec.get("also", []))
        for patch in spec.get("same", []):
            write_checkpoint(folder, merge(config, patch), seed, tensors)
            model = load(folder)
            assert model is not None, f"{name}: {patch} does not load"
            row = model(torch.tensor([prompt]), use_cache=False).logits[0, -1].numpy()
            assert np.abs(row - base).max() < 1e-5, f"{name}: {patch} is not the same"
            same.append(patch)
    out = {"config": config, "seed": seed, "vocabulary": config["vocab_size"], "tensors": tensors, "cases": cases, "flips": flips, "same": same}
    head = None
    if "gguf" in spec:
        from models_gguf import gguf_form
        out["gguf"], head = gguf_form(spec, seed, tensors, values)
    all_logits = np.stack(stored).astype("<f4")
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        f.write(dump(out))
    all_logits.tofile(os.path.join(HERE, name + ".logits"))
    if head:
        with open(os.path.join(HERE, name + ".gguf-head"), "wb") as f:
            f.write(head)
    spread = all_logits[: len(all_logits) - len(flips)].std()
    print(f"{name}: {len(tensors)} tensors, {sum(int(np.prod(t[4])) for t in tensors)} parameters, logits std {spread:.2f}, "
          f"{len(flips)} flips ({sum(f['row'] < 0 for f in flips)} errors), text {cases[-1]['text']}")


def merge(config, patch):
    out = dict(config)
    for k, v in patch.items():
        if isinstance(v, dict) and isinstance(out.get(k), dict):
            out[k] = merge(out[k], v)
        elif v == "__absent__":
            out.pop(k, None)
        else:
            out[k] = v
    return out


def dump(out):
    """JSON with one tensor, case or flip a line."""
    lines = []
    for k, v in out.items():
        if isinstance(v, list) and v and k != "config":
            lines.append(json.dumps(k) + ": [\n  " + ",\n  ".join(json.dumps(x) for x in v) + "\n ]")
        else:
            lines.append(json.dumps(k) + ": " + json.dumps(v))
    return "{\n " + ",\n ".join(lines) + "\n}\n"


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    for name, spec in MODELS.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            make(name, spec)
