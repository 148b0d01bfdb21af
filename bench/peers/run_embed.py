#!/usr/bin/env python3
"""MiniLM-L6 beside sentence-transformers, onnxruntime and llama.cpp on the same texts, two threads, in one run: texts a second, tokenising included.

    python bench/peers/run_embed.py MODEL_DIR ROSE [--peers st-bf16,st-fp32,onnx,llama-f32,llama-q8_0] [--rounds 3] [--csv FILE --machine TEXT]

Texts are random words of the model's own vocabulary: 512 of 16 tokens, 256 of 128, 64 of 256, and 256 of 8 to 256 shuffled and sorted. Peers and Rose take
turns; the best of the rounds counts. Prints a table after every round, of the rounds so far, and writes it to --csv.

llama-TYPE is llama.cpp's embedding example (build_llama.sh) with the model as its own converter writes it in TYPE. It has no figure of its own for texts a
second: a run of one text, which loads as long, is taken off a run of all.

A machine that others need too is measured in slices: with --state FILE --budget SECONDS a run ends after so long with exit status 3, and the next one with the
same FILE goes on where it stopped.
"""
import argparse, csv, json, os, random, subprocess, sys, tempfile, time

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


LLAMA = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "rose-dev", "llama.cpp")


class Llama:
    """The example in batches of 2,048 tokens; it prints a few values of each embedding."""

    def __init__(self, model, dtype):
        self.gguf = os.path.join(LLAMA, os.path.basename(os.path.normpath(model)) + "-" + dtype + ".gguf")
        if not os.path.exists(self.gguf):
            subprocess.run([sys.executable, os.path.join(LLAMA, "src", "convert_hf_to_gguf.py"), model, "--outtype", dtype, "--outfile", self.gguf], check=True,
                           capture_output=True, env={**os.environ, "PYTHONPATH": os.path.join(LLAMA, "src", "gguf-py")})

    def took(self, path):
        begin = time.perf_counter()
        subprocess.run([os.path.join(LLAMA, "native", "llama-embedding"), "-m", self.gguf, "-f", path, "-t", "2", "-tb", "2", "-b", "2048", "-ub", "2048"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - begin

    def rate(self, folder, name, lines):
        paths = [os.path.join(folder, name.replace(" ", "") + end) for end in (".llama", ".llama1")]
        for path, some in zip(paths, (lines, lines[:1])):
            with open(path, "w") as f:
                f.write("\n".join(some))
        return (len(lines) - 1) / (self.took(paths[0]) - self.took(paths[1]))


class Rose:
    def __init__(self, rose, model, options):
        self.command = [rose, "bench", model, "--json", "--repeat", "1", "--threads", "2"] + options

    def rate(self, folder, name, lines):
        path = os.path.join(folder, name.replace(" ", "") + ".txt")
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        return json.loads(subprocess.run(self.command + ["--texts", path], check=True, capture_output=True, text=True).stdout)["texts_s"]


def timed(runner, lines):
    begin = time.perf_counter()
    runner.run(lines)
    return len(lines) / (time.perf_counter() - begin)


def opened(peer, model, folder):
    if peer == "onnx":
        return Onnx(model, folder)
    if peer.startswith("llama-"):
        return Llama(model, peer[6:])
    return SentenceTransformers(model, "bfloat16" if peer == "st-bf16" else "float32")


def show(o, best, names, sets, rounds):
    print(f"texts/s {rounds}/{o.rounds}".ljust(14) + "".join(n.rjust(12) for n in sets))
    for p in names:
        print(p.ljust(14) + "".join(f"{best[p, n]:12.1f}" if (p, n) in best else " " * 12 for n in sets), flush=True)
    if not o.csv:
        return
    with open(o.csv, "w", newline="") as f:
        f.write(f"# {o.machine}; texts a second, two threads, best of {rounds} rounds in turns (bench/peers/run_embed.py)\n")
        w = csv.writer(f, lineterminator="\n")
        w.writerow(["what"] + list(sets))
        for p in names:
            w.writerow([p] + [f"{best[p, n]:.1f}" if (p, n) in best else "" for n in sets])


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model"), a.add_argument("rose")
    a.add_argument("--peers", default="st-bf16,st-fp32,onnx,llama-f32,llama-q8_0"), a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--rose", dest="forms", default="rose:,rose-bf16:--weights bf16,rose-q8:--weights q8_0")
    a.add_argument("--sets", default="512 x 16,256 x 128,64 x 256,mixed,sorted")
    a.add_argument("--csv"), a.add_argument("--machine", default="")
    a.add_argument("--state"), a.add_argument("--budget", type=float)
    o = a.parse_args()
    sets, best, done, begin = {k: v for k, v in texts(o.model).items() if k in o.sets.split(",")}, {}, 0, time.monotonic()
    if o.state and os.path.exists(o.state):
        with open(o.state) as f:
            kept = json.load(f)
        done, best = kept["done"], {tuple(k.split("|")): v for k, v in kept["best"].items()}
    peers, forms = [x for x in o.peers.split(",") if x], [f.split(":") for f in o.forms.split(",") if f]
    names, i = peers + [f[0] for f in forms], 0
    with tempfile.TemporaryDirectory() as folder:
        runners = {p: opened(p, o.model, folder) for p in peers}
        for r in runners.values():
            if hasattr(r, "run"):
                r.run(sets[list(sets)[0]][:64])
        runners.update({name: Rose(o.rose, o.model, options.split()) for name, options in forms})
        for i, (turn, name, p) in enumerate((t, n, p) for t in range(o.rounds) for n in sets for p in names):
            if i < done:
                continue
            if o.budget and time.monotonic() - begin > o.budget:
                sys.exit(3)
            r = runners[p]
            best[p, name] = max(best.get((p, name), 0), timed(r, sets[name]) if hasattr(r, "run") else r.rate(folder, name, sets[name]))
            if o.state:
                with open(o.state, "w") as f:
                    json.dump({"done": i + 1, "best": {"|".join(k): v for k, v in best.items()}}, f)
            if (name, p) == (list(sets)[-1], names[-1]):
                show(o, best, names, sets, turn + 1)


if __name__ == "__main__":
    main()
