#!/usr/bin/env python3
"""MiniLM-L6 beside sentence-transformers and onnxruntime on the same texts, two threads, in one run: texts a second, tokenising included.

    python bench/peers/run_embed.py MODEL_DIR ROSE [--peers st-bf16,st-fp32,onnx] [--rounds 3]

Texts are random words of the model's own vocabulary: 512 of 16 tokens, 256 of 128, 64 of 256, and 256 of 8 to 256 shuffled and sorted. Peers and Rose take
turns; the best of the rounds counts. Prints a table after every round, of the rounds so far, and writes nothing else.
"""
import argparse, json, os, random, subprocess, sys, tempfile, time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "2")


def texts(model):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    words = sorted(w for w in t.get_vocab() if w.isalpha() and len(w) > 2)
    r = random.Random(1)

    def text(n):
        return " ".join(r.choice(words) for _ in range(n - 2))
    sets = {"512 x 16": [text(16) for _ in range(512)], "256 x 128": [text(128) for _ in range(256)], "64 x 256": [text(256) for _ in range(64)]}
    sets["mixed"] = [text(r.randint(8, 256)) for _ in range(256)]
    sets["sorted"] = sorted(sets["mixed"], key=len)
    return sets


class SentenceTransformers:
    def __init__(self, model, dtype):
        import torch
        from sentence_transformers import SentenceTransformer
        torch.set_num_threads(2)
        self.m = SentenceTransformer(model, device="cpu", model_kwargs={"dtype": getattr(torch, dtype)})

    def run(self, lines):
        self.m.encode(lines, batch_size=32, show_progress_bar=False)


class Onnx:
    """The same graph in onnxruntime: batches of 32 in the order of length, mean pooling in NumPy."""

    def __init__(self, model, folder):
        import onnxruntime, torch
        from tokenizers import Tokenizer
        from transformers import AutoModel
        path = os.path.join(folder, "model.onnx")
        m = AutoModel.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).eval()

        class Plain(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.m = m

            def forward(self, ids, mask, types):
                return self.m(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        ids = torch.ones(2, 8, dtype=torch.int64)
        axes = {0: "batch", 1: "tokens"}
        torch.onnx.export(Plain().eval(), (ids, ids, ids), path, input_names=["input_ids", "attention_mask", "token_type_ids"], output_names=["y"],
                          dynamic_axes={"input_ids": axes, "attention_mask": axes, "token_type_ids": axes, "y": axes}, dynamo=False, opset_version=17)
        o = onnxruntime.SessionOptions()
        o.intra_op_num_threads = 2
        self.s = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])
        self.t = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
        self.t.no_truncation()
        self.t.enable_padding()

    def run(self, lines):
        import numpy as np
        lines = sorted(lines, key=len)
        for i in range(0, len(lines), 32):
            e = self.t.encode_batch(lines[i:i + 32])
            ids, mask = np.array([x.ids for x in e]), np.array([x.attention_mask for x in e])
            y = self.s.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})[0]
            v = (y * mask[..., None]).sum(1) / mask.sum(1)[:, None]
            v /= np.linalg.norm(v, axis=1, keepdims=True)


class Rose:
    def __init__(self, rose, model, folder, options):
        self.command, self.folder = [rose, "bench", model, "--json", "--repeat", "1", "--threads", "2"] + options, folder

    def rate(self, name, lines):
        path = os.path.join(self.folder, name.replace(" ", "") + ".txt")
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        return json.loads(subprocess.run(self.command + ["--texts", path], check=True, capture_output=True, text=True).stdout)["texts_s"]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model"), a.add_argument("rose")
    a.add_argument("--peers", default="st-bf16,st-fp32,onnx"), a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--rose", dest="forms", default="rose:,rose-bf16:--weights bf16,rose-q8:--weights q8_0")
    a.add_argument("--sets", default="512 x 16,256 x 128,64 x 256,mixed,sorted")
    o = a.parse_args()
    sets, best = {k: v for k, v in texts(o.model).items() if k in o.sets.split(",")}, {}
    with tempfile.TemporaryDirectory() as folder:
        runners = {}
        for p in [x for x in o.peers.split(",") if x]:
            runners[p] = Onnx(o.model, folder) if p == "onnx" else SentenceTransformers(o.model, "bfloat16" if p == "st-bf16" else "float32")
            runners[p].run(sets["512 x 16"][:64])
        forms = {f.split(":")[0]: Rose(o.rose, o.model, folder, f.split(":")[1].split()) for f in o.forms.split(",") if f}
        for i in range(o.rounds):
            for name, lines in sets.items():
                for p, r in runners.items():
                    begin = time.perf_counter()
                    r.run(lines)
                    best[p, name] = max(best.get((p, name), 0), len(lines) / (time.perf_counter() - begin))
                for p, r in forms.items():
                    best[p, name] = max(best.get((p, name), 0), r.rate(name, lines))
            print(f"texts/s {i + 1}/{o.rounds}".ljust(14) + "".join(n.rjust(12) for n in sets))
            for p in list(runners) + list(forms):
                print(p.ljust(14) + "".join(f"{best[p, n]:12.1f}" for n in sets), flush=True)


if __name__ == "__main__":
    main()
