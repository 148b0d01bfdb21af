#!/usr/bin/env python3
"""Rose beside llama.cpp on this machine's CPU: every row of the speed and memory table.

    bench/peers/run_cpu.py [--rounds 5] [--models Q4_1,Q8_0] [--rows decode] [--peer-only]

Every round takes all models and rows, each by the peer and by rose in turn, so that a machine that
drifts (they all do) drifts for both; the table shows medians, the ratio, the target, and the
machine's limit for that row with how close rose comes to it. Rows go to
bench/results/<machine>.csv as well.

A machine that others need too is measured in slices: with --state FILE --budget SECONDS a run ends
after so long with exit status 3, and the next one with the same FILE goes on where it stopped.

Needs what build_llama.sh and make_models.sh made, and build/rose. Standard library only.
"""

import argparse
import csv
import dataclasses
import datetime
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
PROMPT = "The capital of France is"
TIMEOUT = 300


# ---- one program run ------------------------------------------------------------------------


def pin(count):
    """Binds the child to the first `count` processors: both sides get the same ones."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen = set(allowed[:count])
    return lambda: os.sched_setaffinity(0, chosen)


@dataclasses.dataclass
class Result:
    out: str
    seconds: float
    rss_mb: float


def run(command, threads, stdin=None):
    """Runs to the end. Raises RuntimeError with the last line of stderr."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source = open(stdin, "rb") if stdin else subprocess.DEVNULL
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=source, stdout=out, stderr=err, preexec_fn=pin(threads))
        signal.alarm(TIMEOUT)
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except TimeoutError:
            child.kill()
            os.wait4(child.pid, 0)
            raise RuntimeError(f"{os.path.basename(command[0])}: more than {TIMEOUT} s") from None
        finally:
            signal.alarm(0)
            if stdin:
                source.close()
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            lines = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise RuntimeError(f"{os.path.basename(command[0])}: exit {child.returncode}: {lines[-1]}")
        return Result(out.read().decode(errors="replace"), seconds, usage.ru_maxrss / 1024)


def first_byte(command, threads):
    """Seconds from the start of the process to its first visible byte of output; then it is ended."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, preexec_fn=pin(threads))
    signal.alarm(TIMEOUT)
    try:
        byte = b"\n"
        while byte.isspace():
            byte = os.read(child.stdout.fileno(), 1)
        seconds = time.monotonic() - start
    except TimeoutError:
        byte, seconds = b"", TIMEOUT
    finally:
        signal.alarm(0)
        child.kill()
        child.wait()
        child.stdout.close()
    if not byte:
        raise RuntimeError(f"{os.path.basename(command[0])}: ended without output")
    return seconds


def json_line(text, key):
    """The object on a line of its own, or the whole text, that has `key`."""
    for part in [*text.splitlines(), text]:
        try:
            value = json.loads(part)
        except ValueError:
            continue
        if isinstance(value, dict) and key in value:
            return value
    raise RuntimeError(f"no JSON with {key} in: {text.strip()[:200]!r}")


# ---- the two sides --------------------------------------------------------------------------


class Peer:
    name = "llama.cpp"

    def __init__(self, directory):
        self.directory = directory

    def tool(self, name, variant="native"):
        return os.path.join(self.directory, variant, name)

    def bench(self, model, threads, prompt, gen, depth=0, variant="native", repack=True):
        out = run([self.tool("llama-bench", variant), "-m", model, "-t", str(threads), "-p", str(prompt),
                   "-n", str(gen), "-d", str(depth), "-r", "1", "-o", "jsonl", "--repack", str(int(repack))],
                  threads).out
        return json_line(out, "avg_ts")["avg_ts"]

    def batched(self, model, threads, prompt, gen, batch):
        out = run([self.tool("llama-batched-bench"), "-m", model, "-t", str(threads), "-npp", str(prompt),
                   "-ntg", str(gen), "-npl", str(batch), "-c", str(batch * (prompt + gen)), "-b", "2048",
                   "--output-format", "jsonl"], threads).out
        return json_line(out, "speed_tg")["speed_tg"]

    def start(self, model, threads, *extra):
        return first_byte([self.tool("llama-completion"), "-m", model, "-t", str(threads), "-c", "2048", "-p", PROMPT,
                           "-n", "8", "--temp", "0", "-no-cnv", "--no-display-prompt", *extra], threads)

    def memory(self, model, threads, repack):
        return run([self.tool("llama-batched-bench"), "-m", model, "-t", str(threads), "-npp", "512", "-ntg", "32",
                    "-npl", "1", "-c", "2048", "-b", "2048", *([] if repack else ["--no-repack"])], threads).rss_mb

    def tokens(self, model, corpus):
        answer = json.loads(run([self.tool("peer-tokens"), model, corpus, "3"], 1).out)
        return answer["bytes"] / min(answer["seconds"]) / 1e6


class Rose:
    name = "rose"

    def __init__(self, binary):
        self.binary = binary
        self.primed = set()

    def bench(self, model, threads, prompt, gen, key, batch=1, isa="auto", ctx=None):
        return json_line(run([self.binary, "bench", model, "--prompt", str(prompt), "--gen", str(gen), "--batch",
                              str(batch), "--threads", str(threads), "--json",
                              *(["--isa", isa] if isa != "auto" else []), *(["--ctx", str(ctx)] if ctx else [])],
                             threads).out, key)[key]

    def start(self, model, threads, packed="on"):
        """packed: the weights that an earlier start packed are mapped; one run to the end makes sure that they are there."""
        command = [self.binary, "run", model, "--raw", "--quiet", "--threads", str(threads), "--packed-cache", packed]
        if packed == "on" and model not in self.primed:
            run([*command, "--max-tokens", "1", PROMPT], threads)
            self.primed.add(model)
        return first_byte([*command, PROMPT], threads)

    def memory(self, model, threads):
        return run([self.binary, "bench", model, "--prompt", "512", "--gen", "32", "--batch", "1", "--ctx", "2048",
                    "--threads", str(threads), "--json"], threads).rss_mb

    def tokens(self, model, corpus):
        """By the difference of a long and a short text, so that loading does not count."""
        size, seconds = [], []
        for path in (corpus + ".head", corpus):
            size.append(os.path.getsize(path))
            seconds.append(run([self.binary, "tokenize", model, "--json"], 1, stdin=path).seconds)
        return (size[1] - size[0]) / max(seconds[1] - seconds[0], 1e-9) / 1e6


# ---- what the machine and the model allow ---------------------------------------------------


class Gguf:
    """Sizes read from a GGUF header: bytes of all tensors, and operations per token."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        with open(path, "rb") as f:
            self.f = f
            if f.read(4) != b"GGUF":
                raise RuntimeError(f"{path}: not a GGUF file")
            self.number("I")
            tensors, pairs = self.number("Q"), self.number("Q")
            meta = {}
            for _ in range(pairs):
                key = self.string()
                meta[key.decode()] = self.value(self.number("I"))
            matrices, names = 0, set()
            for _ in range(tensors):
                name = self.string().decode()
                shape = [self.number("Q") for _ in range(self.number("I"))]
                kind, _ = self.number("I"), self.number("Q")
                names.add(name)
                if name == "blk.0.ffn_up.weight":
                    self.float = kind in (0, 1, 30)  # F32, F16, BF16
                if len(shape) == 2:
                    matrices += shape[0] * shape[1]
                if name == "token_embd.weight":
                    embedding = shape[0] * shape[1]
            if "output.weight" in names:
                matrices -= embedding
            align = meta.get("general.alignment", 32)
            self.bytes = os.path.getsize(path) - (f.tell() + align - 1) // align * align
        arch = meta["general.architecture"].decode()
        self.layers = meta[f"{arch}.block_count"]
        heads = meta[f"{arch}.attention.head_count"]
        width = meta[f"{arch}.embedding_length"]
        head_dim = meta.get(f"{arch}.attention.key_length", width // heads)
        self.attention_width = heads * head_dim
        self.kv_width = meta.get(f"{arch}.attention.head_count_kv", heads) * head_dim
        self.head_products = embedding
        self.body_products = matrices - embedding

    def number(self, kind):
        size = struct.calcsize("<" + kind)
        return struct.unpack("<" + kind, self.f.read(size))[0]

    def string(self):
        return self.f.read(self.number("Q"))

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, count = self.number("I"), self.number("Q")
            if inner in self.SCALARS:
                self.f.seek(struct.calcsize("<" + self.SCALARS[inner]) * count, 1)
                return None
            return [self.value(inner) for _ in range(count)][:0]
        return self.number(self.SCALARS[kind])

    def operations(self, prompt):
        """Of a whole prompt: products of every row, causal attention, one row of logits."""
        attention = 4 * self.layers * self.attention_width * prompt * (prompt + 1) // 2
        return 2 * self.body_products * prompt + attention + 2 * self.head_products


def measure_limits(threads, limits, binary=None):
    """Raises the figures in `limits`: what the machine did once, it can do. Called once a round."""
    source = os.path.join(HERE, "limits.c")
    with tempfile.TemporaryDirectory() as folder:
        if not binary:
            binary = os.path.join(folder, "limits")
            subprocess.run([os.environ.get("CC", "cc"), "-O3", "-pthread", source, "-o", binary], check=True)
        for n in sorted({1, threads}):
            out = subprocess.run([binary, str(n), "0.2"], check=True, capture_output=True).stdout
            for key, value in json.loads(out).items():
                limits.setdefault(n, {})[key] = max(value, limits.get(n, {}).get(key, 0))


def show_limits(limits):
    for n, values in limits.items():
        print(f"limits, {n} thread(s): " + ", ".join(f"{k} {v}" for k, v in values.items() if k != "threads"))


PEAKS = {  # per --isa, for block formats and for float weights: the instruction that can do the most
    ("amx", False): ("amx_int8_gop_s",),
    ("amx", True): ("amx_bf16_gop_s",),
    ("avx512", False): ("avx512_vnni_gop_s", "avx512_fma_gop_s"),
    ("avx512", True): ("avx512_bf16_gop_s", "avx512_fma_gop_s"),
    ("avx2", False): ("avx2_int8_gop_s", "avx2_fma_gop_s"),
    ("avx2", True): ("avx2_fma_gop_s",),
}


def peak(limits, isa, model):
    """(operations per second, the instruction's name) or (None, "")."""
    found = [(limits[k] * 1e9, k.removesuffix("_gop_s")) for k in PEAKS[isa, model.float] if k in limits]
    return max(found, default=(None, ""))


def cpu_flags():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("flags"):
                return set(line.split())
    return set()


# ---- the rows -------------------------------------------------------------------------------


@dataclasses.dataclass
class Row:
    key: str
    title: str
    unit: str
    threads: int
    peer: object  # function of the model's path -> figure
    rose: object
    target: float  # of rose / peer; None: shown, not asked for
    lower: bool = False
    limit: object = None  # function of the model -> (figure, what it is)
    most: int = 1 << 30  # rounds that it needs


def rows(peer, rose, threads, flags, limits, corpus):
    amx = {"amx_tile", "amx_int8", "amx_bf16"} <= flags
    avx512 = "avx512_vnni" in flags
    best = "amx" if amx else "avx512" if avx512 else "avx2"

    def decode_limit(n, batch=1):
        def f(model):
            memory = limits[n]["read_96m_gb_s"] * 1e9 / model.bytes * batch
            rate, what = peak(limits[n], best, model)
            work = rate / (2 * (model.body_products + model.head_products)) if rate else memory
            return min((memory, "memory"), (work, what))
        return f

    def prefill_limit(n, prompt, isa):
        def f(model):
            rate, what = peak(limits[n], isa, model)
            return rate and rate / model.operations(prompt) * prompt, what
        return f

    out = []
    for n, target in ((1, 1.6), (threads, 1.8)):
        out.append(Row(f"decode_{n}t", f"decode 128, {n} thread{'s' * (n > 1)}", "tok/s", n,
                       lambda m, n=n: peer.bench(m, n, 0, 128, 16),
                       lambda m, n=n: rose.bench(m, n, 16, 128, "decode_tok_s"), target, limit=decode_limit(n)))
    for prompt, target in ((512, 6), (2048, 10)):
        out.append(Row(f"prefill_{prompt}", f"prefill {prompt}, best ({best})", "tok/s", threads,
                       lambda m, p=prompt: peer.bench(m, threads, p, 0),
                       lambda m, p=prompt: rose.bench(m, threads, p, 1, "prefill_tok_s"),
                       target if amx else None, limit=prefill_limit(threads, prompt, best)))
    if avx512:
        out.append(Row("prefill_512_avx512", "prefill 512, AVX-512 VNNI, peer without AMX", "tok/s", threads,
                       lambda m: peer.bench(m, threads, 512, 0, variant="avx512"),
                       lambda m: rose.bench(m, threads, 512, 1, "prefill_tok_s", isa="avx512"), 4,
                       limit=prefill_limit(threads, 512, "avx512")))
        out.append(Row("prefill_512_avx2_x", "prefill 512, AVX2, peer without AMX (keeps AVX-512)", "tok/s", threads,
                       lambda m: peer.bench(m, threads, 512, 0, variant="avx512"),
                       lambda m: rose.bench(m, threads, 512, 1, "prefill_tok_s", isa="avx2"), None,
                       limit=prefill_limit(threads, 512, "avx2")))
    out.append(Row("prefill_512_avx2", "prefill 512, AVX2, peer AVX2 too", "tok/s", threads,
                   lambda m: peer.bench(m, threads, 512, 0, variant="avx2"),
                   lambda m: rose.bench(m, threads, 512, 1, "prefill_tok_s", isa="avx2"), 2,
                   limit=prefill_limit(threads, 512, "avx2")))
    for batch, target in ((8, 4), (32, 8)):
        out.append(Row(f"batch_{batch}", f"batched decode of {batch}", "tok/s", threads,
                       lambda m, b=batch: peer.batched(m, threads, 64, 64, b),
                       lambda m, b=batch: rose.bench(m, threads, 64, 64, "decode_tok_s", batch=b), target,
                       limit=decode_limit(threads, batch)))
    out.append(Row("start", "start to first token, peer without warm-up", "s", threads,
                   lambda m: peer.start(m, threads, "--no-warmup"), lambda m: rose.start(m, threads), 0.25, lower=True))
    out.append(Row("start_warm", "start to first token, peer as it comes", "s", threads,
                   lambda m: peer.start(m, threads), lambda m: rose.start(m, threads), None, lower=True))
    out.append(Row("start_packing", "start to first token, packing anew, peer without warm-up", "s", threads,
                   lambda m: peer.start(m, threads, "--no-warmup"), lambda m: rose.start(m, threads, "off"), None, lower=True))
    out.append(Row("memory", "peak memory, context 2048, peer without repacking", "MiB", threads,
                   lambda m: peer.memory(m, threads, False), lambda m: rose.memory(m, threads), 1.0, lower=True, most=2,
                   limit=lambda model: (model.bytes / 2**20 + 544 * 4 * model.layers * model.kv_width / 2**20, "file + KV")))
    out.append(Row("memory_repack", "peak memory, context 2048, peer as it comes", "MiB", threads,
                   lambda m: peer.memory(m, threads, True), lambda m: rose.memory(m, threads), None, lower=True, most=2))
    out.append(Row("tokenise", "tokenising, 1 thread", "MB/s", 1,
                   lambda m: peer.tokens(m, corpus), lambda m: rose.tokens(m, corpus), 4.0))
    return out


def make_corpus(llama, folder):
    """The peer's own documents and sources, a fixed text of a fixed version: prose, code, and the
    many-script lines of its tokeniser tests. 4 MB, and its first 64 kB as <name>.head."""
    text = b""
    wanted = []
    for base, _, files in os.walk(os.path.join(llama, "src")):
        wanted += [os.path.join(base, n) for n in files if n.endswith((".md", ".inp", ".cpp"))]
    for path in sorted(wanted, key=lambda p: (not p.endswith(".inp"), not p.endswith(".md"), p)):
        with open(path, "rb") as f:
            text += f.read()
        if len(text) > 4_000_000:
            break
    if not text:
        return None
    text = text[:4_000_000].decode(errors="ignore").replace("\0", " ")
    text = re.sub(r"<(?=\||/?[a-z_]+>)", "< ", text).encode()  # no control tokens: they are parsed by one side only
    path = os.path.join(folder, "corpus")
    for name, part in ((path, text), (path + ".head", text[:64_000].decode(errors="ignore").encode())):
        with open(name, "wb") as f:
            f.write(part)
    return path


def check_ids(peer, rose, python, model, corpus):
    """The ids of the corpus: Hugging Face `tokenizers` against both sides, and its own speed.
    transformers ignores the pre-tokeniser that a GGUF file names; `smollm` is digits one by one,
    then GPT-2's pattern."""
    script = (
        "import sys, time, json, os\n"
        "from transformers import AutoTokenizer\n"
        "from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence\n"
        "d, f = os.path.split(sys.argv[1])\n"
        "t = AutoTokenizer.from_pretrained(d, gguf_file=f)\n"
        "text = open(sys.argv[2], encoding='utf-8', newline='').read()\n"
        "b = t.backend_tokenizer\n"
        "b.pre_tokenizer = Sequence([Digits(True), ByteLevel(add_prefix_space=False)])\n"
        "b.encode('warm')\n"
        "s = time.monotonic()\n"
        "ids = b.encode(text, add_special_tokens=False).ids\n"
        "print(json.dumps({'ids': ids, 'seconds': time.monotonic() - s}))\n")
    env = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    out = subprocess.run([python, "-c", script, model, corpus], env=env, capture_output=True, text=True, check=True)
    reference = json.loads(out.stdout.strip().splitlines()[-1])
    size = os.path.getsize(corpus)
    lines = [f"Hugging Face tokenizers: {len(reference['ids'])} ids, {size / reference['seconds'] / 1e6:.2f} MB/s"]
    sides = []
    if peer:
        sides.append((peer.name, [int(x) for x in run([peer.tool("peer-tokens"), model, corpus, "0"], 1).out.split()]))
    if rose:
        text = run([rose.binary, "tokenize", model, "--json", "--no-special"], 1, stdin=corpus).out
        sides.append((rose.name, json.loads(text)["ids"]))
    for name, ids in sides:
        same = next((i for i, (a, b) in enumerate(zip(ids, reference["ids"])) if a != b), None)
        equal = same is None and len(ids) == len(reference["ids"])
        lines.append(f"  {name}: {len(ids)} ids, " + ("the same" if equal else f"differs first at {same}"))
    return "\n".join(lines)


# ---- running and telling --------------------------------------------------------------------


def machine_name(threads):
    model, vendor = "cpu", ""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        fields = dict(line.split(":", 1) for line in f.read().split("\n\n")[0].splitlines() if ":" in line)
    fields = {k.strip(): v.strip() for k, v in fields.items()}
    vendor = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(fields.get("vendor_id"), "cpu")
    model = f"family{fields.get('cpu family', '0')}-model{fields.get('model', '0')}"
    return f"{vendor}-{model}-{threads}c"


def show(value):
    if value is None:
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


class State:
    """What was measured: {(model, row): {"peer": [...], "rose": [...], "turns": n}}, kept in a file from
    run to run if there is one, and the machine's limits."""

    def __init__(self, path):
        self.path, self.figures, self.limits, self.limit_rounds = path, {}, {}, 0
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                kept = json.load(f)
            self.figures = {tuple(k.split("/")): v for k, v in kept["figures"].items()}
            self.limits = {int(n): v for n, v in kept["limits"].items()}
            self.limit_rounds = kept["limit_rounds"]

    def of(self, name, key):
        return self.figures.setdefault((name, key), {"peer": [], "rose": [], "turns": 0})

    def save(self):
        if not self.path:
            return
        with open(self.path + ".part", "w", encoding="utf-8") as f:
            json.dump({"figures": {"/".join(k): v for k, v in self.figures.items()}, "limits": self.limits,
                       "limit_rounds": self.limit_rounds}, f)
        os.replace(self.path + ".part", self.path)


def measure(row, path, peer, rose, figures):
    """One turn: both sides, in the other order than the turn before."""
    sides = [("peer", row.peer if peer else None), ("rose", row.rose if rose else None)]
    for name, f in sides if figures["turns"] % 2 == 0 else sides[::-1]:
        if f is None:
            continue
        try:
            figures[name].append(f(path))
        except (RuntimeError, OSError, ValueError, KeyError) as e:
            print(f"  {row.key}: {name}: {e}", file=sys.stderr)
    figures["turns"] += 1


def measure_all(a, paths, todo, peer, rose, state):
    """All rounds, as far as the budget goes. Is everything measured?"""
    end = time.monotonic() + a.budget if a.budget else float("inf")
    for number in range(1, a.rounds + 1):
        if state.limit_rounds < number:
            measure_limits(a.threads, state.limits, a.limits)
            state.limit_rounds = number
        for path in paths:
            for row in todo:
                if row.key == "tokenise" and path != paths[0]:
                    continue  # the vocabulary is the same in all of them
                figures = state.of(os.path.basename(path).removesuffix(".gguf"), row.key)
                if figures["turns"] >= min(number, row.most):
                    continue
                if time.monotonic() > end:
                    return False
                measure(row, path, peer, rose, figures)
                state.save()
    return True


def tell(a, paths, todo, state, commit):
    """Prints the table and returns its rows for the file."""
    print("\n| model | what | peer | rose | ratio | target | met | limit | rose at |\n|---|---|---|---|---|---|---|---|---|")
    table = []
    for path in paths:
        model, name = Gguf(path), os.path.basename(path).removesuffix(".gguf")
        for row in todo:
            figures = state.figures.get((name, row.key))
            if not figures or not figures["turns"]:
                continue
            theirs, ours = (statistics.median(figures[k]) if figures[k] else None for k in ("peer", "rose"))
            limit, why = row.limit(model) if row.limit else (None, "")
            ratio = ours / theirs if ours and theirs else None
            met = None if ratio is None or row.target is None else \
                ratio <= row.target if row.lower else ratio >= row.target
            near = None if not ours or not limit else limit / ours if row.lower else ours / limit
            print(f"| {name.split('.')[-1]} | {row.title} | {show(theirs)} | {show(ours)} {row.unit} "
                  f"| {show(ratio)} | {'' if row.target is None else ('≤ ' if row.lower else '≥ ') + str(row.target)} "
                  f"| {'' if met is None else 'yes' if met else 'NO'} | {show(limit)} {why} "
                  f"| {'' if near is None else f'{near:.0%}'} |", flush=True)
            for k in ("peer", "rose"):
                if len(figures[k]) > 1 and max(figures[k]) > 1.3 * min(figures[k]):
                    print(f"  {row.key}: {k} from {show(min(figures[k]))} to {show(max(figures[k]))}: noisy",
                          file=sys.stderr)
            table.append({
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
                "commit": commit, "model": name, "row": row.key, "threads": row.threads, "unit": row.unit,
                "peer": theirs and f"{theirs:.4g}", "rose": ours and f"{ours:.4g}",
                "ratio": ratio and f"{ratio:.3g}", "target": row.target,
                "limit": limit and f"{limit:.4g}", "limited_by": why, "rounds": figures["turns"],
                "peer_min": figures["peer"] and f"{min(figures['peer']):.4g}" or "",
                "peer_max": figures["peer"] and f"{max(figures['peer']):.4g}" or "",
                "rose_min": figures["rose"] and f"{min(figures['rose']):.4g}" or "",
                "rose_max": figures["rose"] and f"{max(figures['rose']):.4g}" or "",
            })
    return table


def append(path, table):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    new = not os.path.exists(path)
    with open(path, "a", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, fieldnames=list(table[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(table)
    print(f"{len(table)} rows -> {os.path.relpath(path)}")


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--llama", default=os.path.join(CACHE, "rose-dev", "llama.cpp"), help="what build_llama.sh made")
    p.add_argument("--rose", default=os.path.join(ROOT, "build", "rose"))
    p.add_argument("--models", default="Q4_1,Q8_0,Q4_K_M,BF16", help="types of the small model, or GGUF paths")
    p.add_argument("--rows", default="", help="only rows whose key matches this regular expression; 'list' names them")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    p.add_argument("--peer-only", action="store_true")
    p.add_argument("--rose-only", action="store_true")
    p.add_argument("--check-ids", metavar="PYTHON", help="compare the corpus' ids with Hugging Face tokenizers")
    p.add_argument("--machine", help="name of the results file; default: from the processor")
    p.add_argument("--csv", help="file to append to; 'none': no file")
    p.add_argument("--state", metavar="FILE", help="keep what was measured in FILE, and go on from what it holds")
    p.add_argument("--budget", type=float, metavar="SECONDS", help="end after so long; exit status 3 if rounds are left")
    p.add_argument("--limits", metavar="PROGRAM", help="limits.c, compiled; default: it is compiled here")
    p.add_argument("--commit", help="what the file says was measured; default: git's HEAD")
    return p, p.parse_args()


def main():
    p, a = options()

    def on_alarm(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, on_alarm)
    peer = None if a.rose_only else Peer(a.llama)
    rose = None if a.peer_only else Rose(a.rose)
    if peer and not os.access(peer.tool("llama-bench"), os.X_OK):
        p.error(f"no peer under {a.llama}: run build_llama.sh")
    if rose and not os.access(a.rose, os.X_OK):
        print(f"no {a.rose}: only the peer is measured", file=sys.stderr)
        rose = None
    paths = []
    for name in a.models.split(","):
        path = name if os.path.exists(name) else os.path.join(CACHE, "rose", "models",
                                                              f"SmolLM2-135M-Instruct.{name}.gguf")
        if not os.path.exists(path):
            p.error(f"no {path}: run make_models.sh")
        paths.append(path)

    machine = a.machine or machine_name(a.threads)
    commit = a.commit or subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                                        check=False).stdout.strip()
    state = State(a.state)
    folder = tempfile.mkdtemp(prefix="rose-bench-")
    table, whole = [], False
    try:
        corpus = make_corpus(a.llama, folder)
        todo = rows(peer, rose, a.threads, cpu_flags(), state.limits, corpus)
        if a.rows == "list":
            print("\n".join(r.key for r in todo))
            return 0
        todo = [r for r in todo if re.search(a.rows, r.key) and (corpus or r.key != "tokenise")]
        print(f"machine {machine}, {a.rounds} rounds, load {os.getloadavg()[0]:.1f} at the start")
        if os.getloadavg()[0] > 0.7:
            print("  other programs are running: the peer's spinning threads lose far more by that than one figure "
                  "shows (2 threads can fall below 1); measure again on a quiet machine", file=sys.stderr)
        try:
            whole = measure_all(a, paths, todo, peer, rose, state)
        except KeyboardInterrupt:
            print("stopped; what was measured is kept", file=sys.stderr)
        table = tell(a, paths, todo, state, commit)
        print()
        show_limits(state.limits)
        if rose:
            size = os.path.getsize(a.rose) / 1e6
            print(f"rose itself: {size:.2f} MB on disk (target: under 5)")
        if a.check_ids and corpus:
            print("\n" + check_ids(peer, rose, a.check_ids, paths[0], corpus))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if a.csv != "none" and table and (whole or not a.state):
        append(a.csv or os.path.join(ROOT, "bench", "results", machine + ".csv"), table)
    return 0 if whole else 3


if __name__ == "__main__":
    sys.exit(main())
