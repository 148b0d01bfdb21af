#!/usr/bin/env python3
"""Golden data of the models that embed, classify and score: tiny random ones, run by transformers in float32 on the CPU; pooling, dense layers and
normalising are sentence-transformers' own modules.

    python tests/golden/make_embed.py [--llama.cpp DIR] [NAME...]
                                                        writes tests/golden/models/NAME.json, .logits and .gguf-head; DIR holds llama.cpp's sources,
                                                        whose converter writes the GGUF form of most models (embed_convert.py)
    python tests/golden/make_embed.py --bf16 [NAME...]  prints tests/engine/pool_golden_bf16.h: how far transformers itself is off in bfloat16

As make_models.py, whose generator of weights this uses. A model's JSON holds
    config, tensors, seed   as there; tensors of shard s > 0 lie in dense[s - 1].folder
    files     {path: JSON} beside config.json
    dense     folders of dense modules
    cases     {tokens, types, task, pooling, normalize, sparse, raw, ids, rows, cols, at}: what is asked, and where the answer stands in .logits (float32)
    flips, same, gguf   as there; "row" is a case's index in answers
"""
import copy, inspect, json, os, sys, tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.base.modules import Dense, Normalize

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from embed_list import MODELS  # noqa: E402
import jina_reference  # noqa: E402
from make_models import HERE, SPREAD, dump, fnv1a64, merge, values  # noqa: E402

torch.set_grad_enabled(False)
DTYPES = ["F32", "BF16", "F16"]
CONVERTER = None
POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last", "weightedmean": "weighted_mean", "max": "max", "mean_sqrt_len_tokens": "model"}


def scale_of(name, shape):
    """(exponent, mean) as in make_models.py, by what the names of encoders tell."""
    if len(shape) == 1:
        norm = ("norm" in name.lower() or name.endswith("ln.weight")) and name.endswith("weight")
        return (-7, 1.0) if norm else (-8, 0.0)
    if "embedding" in name or "embed_tokens" in name:
        return -7, 0.0
    if "relative_attention_bias" in name:
        return -5, 0.0
    gain = 1.6 if any(n in name for n in ("query", "key", "q_lin", "k_lin", "q_proj", "k_proj", ".q.", ".k.", "qkv")) else 1.3
    return int(np.round(np.log2(gain / np.sqrt(shape[1]) / SPREAD))), 0.0


def shapes_of(spec):
    config = spec.get("reference", spec["config"])
    if spec.get("jina"):
        return jina_reference.shapes(config, spec["jina"] == "code")
    c = transformers.AutoConfig.for_model(**copy.deepcopy(config))
    with torch.device("meta"):
        kind = getattr(transformers, spec["cls"])
        model = kind.from_config(c, add_pooling_layer=False) if spec["cls"] == "AutoModel" and config["model_type"] in ("bert", "roberta", "xlm-roberta", "mpnet") else kind.from_config(c)
    tied = spec["cls"] == "AutoModelForCausalLM" and c.tie_word_embeddings
    return [(n, list(p.shape)) for n, p in model.state_dict().items() if not (tied and n == "lm_head.weight")]


OLDER = [("embeddings.LayerNorm", "emb_ln"), ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2"), ("self_attn.o_proj", "attn.out_proj"),
         ("mlp.up_proj", "mlp.fc11"), ("mlp.gate_proj", "mlp.fc12"), ("mlp.down_proj", "mlp.fc2")]


def older_names(listed):
    """NomicBERT as its authors store it: q, k and v in one tensor."""
    out = []
    for name, shape in listed:
        for new, old in OLDER:
            name = name.replace(new, old)
        name = name.replace("layers.", "encoder.layers.") if name.startswith("layers.") else name
        if "self_attn.q_proj" in name:
            out.append((name.replace("self_attn.q_proj", "attn.Wqkv"), [3 * shape[0], shape[1]]))
        elif "self_attn" not in name:
            out.append((name, shape))
    return out


def tensor_list(spec):
    listed = [(n, s, 0) for n, s in (older_names(shapes_of(spec)) if spec.get("older") else shapes_of(spec))]
    for i, d in enumerate(spec.get("dense", [])):
        listed.append(("linear.weight", [d["out"], d["in"]], i + 1))
        if d["bias"]:
            listed.append(("linear.bias", [d["out"]], i + 1))
    if spec.get("sparse"):
        n = len(spec.get("dense", [])) + 1
        listed += [("weight", [1, spec["config"]["hidden_size"]], n), ("bias", [1], n)]
    return [[n, DTYPES[i % 3], *scale_of(n, s), s, shard] for i, (n, s, shard) in enumerate(listed)]


def tensors_of(seed, tensors, shard):
    return {n: values(seed, n, e, m, int(np.prod(s))).reshape(s) for n, _, e, m, s, k in tensors if k == shard}


def load(spec, config, seed, tensors):
    """A float32 model, or None when transformers cannot."""
    if spec.get("jina"):
        return jina_reference.Jina(config, tensors_of(seed, tensors, 0), spec["jina"] == "code")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        save_file(tensors_of(seed, tensors, 0), os.path.join(folder, "model.safetensors"), {"format": "pt"})
        more = {"add_pooling_layer": False} if spec["cls"] == "AutoModel" and config["model_type"] in ("bert", "roberta", "xlm-roberta", "mpnet") else {}
        model, info = getattr(transformers, spec["cls"]).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **more)
        bad = {k: v for k, v in info.items() if v and k in ("missing_keys", "unexpected_keys", "mismatched_keys")}
        assert not bad, bad
        return model.eval()


def forward(spec, model, tokens, types):
    if spec.get("jina"):
        return model(tokens, types).float().numpy()
    kwargs = {"input_ids": torch.tensor([tokens])}
    if types and "token_type_ids" in inspect.signature(model.forward).parameters:
        kwargs["token_type_ids"] = torch.tensor([types])
    if spec["cls"] in ("AutoModelForCausalLM", "AutoModelForTokenClassification", "AutoModelForSequenceClassification"):
        return model(**kwargs).logits[0].numpy()
    return model(**kwargs).last_hidden_state[0].numpy()


def pooled(spec, hidden, mode, seed, tensors, normalize):
    f = {"token_embeddings": torch.tensor(hidden)[None], "attention_mask": torch.ones(1, len(hidden), dtype=torch.int64)}
    f = Pooling(hidden.shape[1], mode)(f)
    for i, d in enumerate(spec.get("dense", [])):
        w = tensors_of(seed, tensors, i + 1)
        act = eval("torch.nn." + d["activation"].rsplit(".", 1)[1])()
        f = Dense(d["in"], d["out"], d["bias"], act, torch.tensor(w["linear.weight"]), torch.tensor(w["linear.bias"]) if d["bias"] else None)(f)
    if normalize:
        f = Normalize()(f)
    return f["sentence_embedding"][0].numpy()


class Store:
    def __init__(self):
        self.data, self.at = [], 0

    def add(self, x):
        x = np.atleast_2d(np.asarray(x, np.float32))
        entry = {"rows": x.shape[0], "cols": x.shape[1], "at": self.at}
        self.data.append(x.ravel())
        self.at += x.size
        return entry


def sparse_answer(spec, hidden, tokens, seed, tensors):
    w = tensors_of(seed, tensors, len(spec.get("dense", [])) + 1)
    weights = np.maximum(hidden @ w["weight"][0] + w["bias"][0], 0)
    best = {}
    for t, x in zip(tokens, weights):
        if t not in (0, 1, 2) and x > 0:
            best[t] = max(best.get(t, 0), float(x))
    ids = sorted(best)
    return ids, [best[i] for i in ids]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def answers(spec, model, tokens, types, seed, tensors, store):
    """Every case of one sequence."""
    base = {"tokens": tokens, "types": types}
    out = forward(spec, model, tokens, types)
    if spec["cls"] == "AutoModel":
        mode, norm = spec.get("pooling", "mean"), spec.get("normalize", False)
        cases = [dict(base, task="embed", pooling="model", **store.add(pooled(spec, out, mode, seed, tensors, norm)))]
        for p in spec.get("poolings", []):
            cases.append(dict(base, task="embed", pooling=POOLINGS[p], normalize=False, **store.add(pooled(spec, out, p, seed, tensors, False))))
        if spec.get("tokens"):
            cases.append(dict(base, task="embed", pooling="none", normalize=False, **store.add(out)))
        if spec.get("sparse"):
            ids, weights = sparse_answer(spec, out, tokens, seed, tensors)
            cases.append(dict(base, task="embed", sparse=True, ids=ids, **store.add(weights)))
        return cases
    if spec["cls"] == "AutoModelForCausalLM":
        if spec["yes"] is None:
            return []
        x = out[-1, spec["yes"]] - out[-1, spec["no"]]
        return [dict(base, task="score", raw=True, **store.add([x])), dict(base, task="score", **store.add([sigmoid(x)]))]
    if spec["cls"] == "AutoModelForTokenClassification":
        return [dict(base, task="classify", raw=True, **store.add(out)), dict(base, task="classify", **store.add(softmax(out)))]
    problem, n = spec["config"].get("problem_type"), out.shape[-1]
    act = {"multi_label_classification": sigmoid, "regression": lambda x: x, None: softmax if n > 1 else sigmoid}[problem]
    cases = [dict(base, task="classify", raw=True, **store.add(out)), dict(base, task="classify", **store.add(act(out)))]
    if n == 1:
        identity = "Identity" in str(spec["config"].get("sentence_transformers"))
        cases.append(dict(base, task="score", **store.add(out if identity else sigmoid(out))))
    return cases


def make(name, spec):
    config, seed = spec["config"], fnv1a64(name.encode()) & 0xFFFF
    tensors, store, flips, same = tensor_list(spec), Store(), [], []
    rng = np.random.default_rng(seed)
    model = load(spec, spec.get("reference", config), seed, tensors)
    cases = []
    for n in spec.get("lengths", [1, 6, 37, 90]):
        tokens = [int(t) for t in rng.integers(3, config["vocab_size"], n)]
        types = [int(i >= n // 2) for i in range(n)] if spec.get("typed") else None
        cases += answers(spec, model, tokens, types, seed, tensors, store)
    if cases:
        last = cases[-len(cases) // len(spec.get("lengths", [1, 6, 37, 90])):][0]
        base = np.concatenate(store.data)[last["at"]:last["at"] + last["rows"] * last["cols"]]
    for kind, patches in (("flip", spec.get("flips", [])), ("same", spec.get("same", []))):
        for patch in patches:
            m = load(spec, merge(config, patch), seed, tensors)
            probe = Store()
            got = answers(spec, m, last["tokens"], last["types"], seed, tensors, probe)[0]
            x = np.concatenate(probe.data)[:got["rows"] * got["cols"]]
            moved = np.abs(x - base).max()
            if kind == "flip":
                assert moved > 1e-3, f"{name}: {patch} moves the answer by only {moved:.2g}"
                flips.append(dict({k: v for k, v in got.items() if k != "tokens" and k != "types"}, patch=patch, at=store.add(x)["at"]))
            else:
                assert moved < 1e-6, f"{name}: {patch} is not the same"
                same.append(patch)
    out = {"config": config, "seed": seed, "vocabulary": config["vocab_size"], "tensors": tensors, "files": spec.get("files", {}), "cases": cases, "flips": flips, "same": same,
           "dense": [d["folder"] for d in spec.get("dense", [])], "sparse": bool(spec.get("sparse"))}
    for d in spec.get("dense", []):
        out["files"] = dict(out["files"], **{d["folder"] + "/config.json": {"in_features": d["in"], "out_features": d["out"], "bias": d["bias"], "activation_function": d["activation"]}})
    head = None
    if spec.get("gguf") == "own":
        from embed_gguf import gguf_form
        out["gguf"], head = gguf_form(config, seed, tensors, values, spec.get("pooling", "mean"))
    if spec.get("texts"):
        from embed_convert import asked

        def reference(ids):
            return pooled(spec, forward(spec, model, ids, None), spec.get("pooling", "mean"), seed, tensors, spec.get("normalize", False))

        out["texts"], out["text_files"], *form = asked(name, spec, seed, tensors, values, reference, store, CONVERTER)
        if form[0]:
            out["gguf"], head = form
    data = np.concatenate(store.data).astype("<f4")
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        f.write(dump(out))
    data.tofile(os.path.join(HERE, name + ".logits"))
    if head:
        with open(os.path.join(HERE, name + ".gguf-head"), "wb") as f:
            f.write(head)
    print(f"{name}: {len(tensors)} tensors, {len(cases)} cases, {len(flips)} flips, {data.nbytes} bytes, std {data.std():.2f}")


def raw(spec, model, tokens, types):
    if spec.get("jina"):
        return forward(spec, model, tokens, types)
    return np.atleast_2d(forward(spec, model, tokens, types) if next(model.parameters()).dtype == torch.float32 else forward(spec, FloatAnswers(model), tokens, types))


class FloatAnswers:
    """A model whose outputs are turned into float32."""

    def __init__(self, model):
        self.model, self.forward = model, model.forward

    def __call__(self, **kwargs):
        out = self.model(**kwargs)
        for key in ("logits", "last_hidden_state"):
            if key in out:
                out[key] = out[key].float()
        return out


def rounded(name, spec):
    """Hidden rows (1 - cosine) or logits (over their root mean square or 1) of bfloat16 against float32: the worst, and the mean (root mean square)
    of the text where that is largest."""
    seed = fnv1a64(name.encode()) & 0xFFFF
    tensors, rng, worst, mean = tensor_list(spec), np.random.default_rng(seed), 0, 0
    model = load(spec, spec.get("reference", spec["config"]), seed, tensors)
    half = copy.deepcopy(model).to(torch.bfloat16)
    for n in spec.get("lengths", [1, 6, 37, 90]):
        tokens = [int(t) for t in rng.integers(3, spec["config"]["vocab_size"], n)]
        types = [int(i >= n // 2) for i in range(n)] if spec.get("typed") else None
        a, b = raw(spec, model, tokens, types).astype(np.float64), raw(spec, half, tokens, types).astype(np.float64)
        if spec["cls"] == "AutoModel":
            error = 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            worst, mean = max(worst, error.max()), max(mean, error.mean())
        else:
            error = np.abs(a - b) / max(1, np.sqrt((a * a).mean()))
            worst, mean = max(worst, error.max()), max(mean, np.sqrt((error * error).mean()))
    print(f'    {{"{name}", {worst:.2g}, {mean:.2g}}},')


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if sys.argv[1:2] == ["--llama.cpp"]:
        CONVERTER = sys.argv[2]
        del sys.argv[1:3]
    if sys.argv[1:2] == ["--bf16"]:
        print("/* Printed by tests/golden/make_embed.py --bf16: how far transformers in bfloat16 is off from float32 on the golden models, worst and mean. */")
        print("static const struct { const char *name; double worst, mean; } pool_golden_bf16[] = {")
        for name, spec in MODELS.items():
            if len(sys.argv) < 3 or name in sys.argv[2:]:
                rounded(name, spec)
        print("};")
        sys.exit()
    for name, spec in MODELS.items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            make(name, spec)
