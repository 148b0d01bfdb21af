#!/usr/bin/env python3
"""rose serve beside llama-server: the same model, threads, slots, cache type and load generator, in turns in one run.

    bench/peers/run_serve.py [--rose build/rose] [--model FILE] [--out FILE.csv] [--mini | --alone] [--only PART]

Closed loops of 8 and of 64 users (128 tokens in, 64 out, `rose bench --url`), Rose before and behind the peer; the time between tokens while
prompts of 2,000 tokens arrive one after the other; a prefix that comes again, n = 8, the start, and the processor time of an idle server. Prints a
table with what was asked and writes it to bench/results/serve_peer_zen4.csv. About six minutes on two cores (--mini: a look at whether it works);
nothing else may run. --only measures one part (8, 64, long, rest: two minutes each at most; long without the peer) and replaces its rows in that file. Servers rest two seconds
behind their first requests, so that both have the memory of their caches: llama-server takes all of it before it is ready, Rose 512 MiB while it rests. The peer's 64
users go in step, so that one round of them tells; Rose's do not, and have three. Needs what build_llama.sh made, and build/rose. Standard library only.
"""
import argparse
import csv
import datetime
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
PORT = 18231

parser = argparse.ArgumentParser()
parser.add_argument("--rose", default=os.path.join(ROOT, "build", "rose"))
parser.add_argument("--llama", default=os.path.join(CACHE, "rose-dev", "llama.cpp", "native"))
parser.add_argument("--model", default=os.path.join(CACHE, "rose", "models", "SmolLM2-135M-Instruct.Q4_1.gguf"))
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--out", default=os.path.join(ROOT, "bench", "results", "serve_peer_zen4.csv"))
parser.add_argument("--mini", action="store_true", help="tiny counts, nothing is written unless --out says where")
parser.add_argument("--alone", action="store_true", help="only what needs no peer: prefix, n = 8, idle, start; nothing is written")
parser.add_argument("--only", choices=("8", "64", "long", "rest"))
options = parser.parse_args()

rows = []
seed = 100


# ---- servers ----------------------------------------------------------------------------------


def get(path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    c.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    answer = c.getresponse()
    data = answer.read()
    c.close()
    return answer.status, data


class Server:
    """One at a time on PORT; .ready_s: from its start to the first 200 of /health."""

    def __init__(self, command, env=None):
        self.log = tempfile.TemporaryFile("w+")
        began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        while True:
            try:
                if get("/health")[0] == 200:
                    break
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() - began > 60:
                self.log.seek(0)
                sys.exit(f"{command[0]} did not start:\n{self.log.read()[-2000:]}")
            time.sleep(0.002)
        self.ready_s = time.monotonic() - began
        self.began = began

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ticks(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))


    def thread_ticks(self):
        """Of the thread that has the sockets, which is the process's first, and of all."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/stat"
        with open(path) as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])), self.ticks()


def rose(slots, *more):
    return Server([options.rose, "serve", options.model, *more, "--port", str(PORT), "--threads", str(options.threads), "--kv", "f16", "--max-sequences", str(slots), "--no-access-log"])


def llama(slots, context):
    """Each slot has its own context; its log and page are off, flash attention and batching as it has them by default."""
    return Server([os.path.join(options.llama, "llama-server"), "-m", options.model, "--host", "127.0.0.1", "--port", str(PORT), "-t", str(options.threads), "-tb", str(options.threads),
                   "-np", str(slots), "-c", str(slots * context), "-ctk", "f16", "-ctv", "f16", "--no-webui", "--log-disable"], {"LD_LIBRARY_PATH": options.llama})


# ---- loads --------------------------------------------------------------------------------------


def bench_command(users, requests, prompt, new):
    global seed
    seed += 1
    return [options.rose, "bench", "--url", f"http://127.0.0.1:{PORT}", "--json", "-c", str(users), "-n", str(requests), "-p", str(prompt), "-g", str(new), "--seed", str(seed)]


def load(users, requests, long_prompts=False):
    """What rose bench says of a closed loop of 128 in and 64 out; beside it, one user whose prompts have 2,000 tokens."""
    beside = None
    if long_prompts:
        beside = subprocess.Popen(bench_command(1, 10000, 2000, 1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
    done = subprocess.run(bench_command(users, requests, 128, 8 if options.mini else 64), capture_output=True, text=True)
    if beside:
        beside.kill()
        beside.wait()
    if done.returncode:
        sys.exit(done.stderr)
    r = json.loads(done.stdout)
    if r["failed"]:
        sys.exit(f"{r['failed']} requests failed: {done.stderr}")
    print(f"  {'long ' if long_prompts else ''}{users} users: {r['output_tokens_per_s']:.0f} tok/s, first token p50 {1e3 * r['ttft_s']['p50']:.0f} p99 {1e3 * r['ttft_s']['p99']:.0f}, between p50 "
          f"{1e3 * r['itl_s']['p50']:.1f} p90 {1e3 * r['itl_s']['p90']:.1f} p99 {1e3 * r['itl_s']['p99']:.1f} ms", file=sys.stderr)
    return r


def warm():
    subprocess.run(bench_command(4, 8, 32, 8), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.1 if options.mini else 2)


def mean(runs, *keys):
    def one(r):
        for k in keys:
            r = r[k]
        return r
    return sum(map(one, runs)) / len(runs)


def row(what, unit, ours, peer=None, asked="", met=None):
    rows.append({"what": what, "unit": unit, "rose": ours, "llama-server": peer, "asked": asked, "met": met})


def compare(users, ours, peer, times, share):
    us, them = mean(ours, "output_tokens_per_s"), mean(peer, "output_tokens_per_s")
    row(f"{users} streams: output", "tok/s", us, them, f"{times}x: {us / them:.2f}x", us >= times * them)
    us, them = 1e3 * mean(ours, "ttft_s", "p99"), 1e3 * mean(peer, "ttft_s", "p99")
    row(f"{users} streams: first token p99", "ms", us, them, f"{share} of it: {us / them:.2f}", us <= share * them)
    for name, key, p in (("first token p50", "ttft_s", "p50"), ("between tokens p50", "itl_s", "p50"), ("between tokens p99", "itl_s", "p99")):
        row(f"{users} streams: {name}", "ms", 1e3 * mean(ours, key, p), 1e3 * mean(peer, key, p))


def beside_long(users, without, beside, peer=None):
    p50 = 1e3 * mean(without, "itl_s", "p50")
    for p, asked in (("p50", None), ("p90", None), ("p99", 2)):
        us = 1e3 * mean([beside], "itl_s", p)
        row(f"{users} streams beside 2,000-token prompts: between tokens {p}", "ms", us, 1e3 * mean([peer], "itl_s", p) if peer else None,
            f"2x of p50 without ({p50:.1f}): {us / p50:.2f}x" if asked else f"{us / p50:.2f}x of p50 without", us <= 2 * p50 if asked else None)
    row(f"{users} streams beside 2,000-token prompts: output", "tok/s", beside["output_tokens_per_s"], peer["output_tokens_per_s"] if peer else None)


# ---- single requests ------------------------------------------------------------------------------


def counter(name):
    return float(re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", get("/metrics")[1].decode(), re.M)[1])


def first_token(prompt, **more):
    """Seconds to the first token, and prompt tokens that the engine read for it."""
    before = counter("rose_prefix_lookup_tokens_total") - counter("rose_prefix_hit_tokens_total")
    began = time.monotonic()
    status, data = get("/v1/completions", {"prompt": prompt, "max_tokens": 1, "temperature": 1, "seed": 1, "ignore_eos": True, **more})
    took = time.monotonic() - began
    if status != 200:
        sys.exit(data.decode())
    return took, counter("rose_prefix_lookup_tokens_total") - counter("rose_prefix_hit_tokens_total") - before


def singles(server):
    cold, warm_, many = [], [], []
    for i in range(2 if options.mini else 8):
        prompt = [(i * 7919 + k * 104729) % 48000 + 1000 for k in range(1000)]
        cold.append(first_token(prompt)[0])
        warm_.append(first_token(prompt)[0])
        other = [(i * 7919 + k * 15485863 + 5) % 48000 + 1000 for k in range(1000)]
        many.append(first_token(other, n=8))
    middle = lambda list_: sorted(list_)[len(list_) // 2]
    row("1,000-token prompt, cold: first token p50", "ms", 1e3 * middle(cold))
    row("the same again: first token p50", "ms", 1e3 * middle(warm_), None, f"15 % of it: {100 * middle(warm_) / middle(cold):.1f} %", middle(warm_) <= 0.15 * middle(cold))
    row("n = 8 of 1,000 tokens: prompt tokens read", "", middle([m[1] for m in many]), None, "the prompt once (1,000)", max(m[1] for m in many) <= 1000)
    row("n = 8 of 1,000 tokens: eight first tokens", "ms", 1e3 * middle([m[0] for m in many]), None, f"{middle([m[0] for m in many]) / middle(cold):.2f} of one's")
    time.sleep(0 if options.mini else 3)  # the engine takes memory for its cache before it rests
    before, seconds = server.ticks(), 2 if options.mini else 5
    time.sleep(seconds)
    used = server.ticks() - before
    row(f"idle for {seconds} s: processor time", "ms", 10 * used, None, "none", used == 0)


def starts():
    ready, first = [], []
    for _ in range(2 if options.mini else 5):
        with rose(64) as s:
            ready.append(s.ready_s)
            status, data = get("/v1/completions", {"prompt": "The", "max_tokens": 1})
            if status != 200:
                sys.exit(data.decode())
            first.append(time.monotonic() - s.began)
    row("start to ready, worst", "s", max(ready), None, "1 s", max(ready) <= 1)
    row("start to first token, worst", "s", max(first), None, "1 s", max(first) <= 1)


def null_model():
    for users, requests in ((8, 64), (64, 128)):
        with Server([options.rose, "serve", options.model, "--port", str(PORT), "--null-model", "--no-access-log"]):
            done = subprocess.run(bench_command(users, requests // 8 if options.mini else requests, 16, 1000), capture_output=True, text=True)
        r = json.loads(done.stdout)
        row(f"null model, {users} streams: output", "tok/s", r["output_tokens_per_s"], None, "60,000", r["output_tokens_per_s"] >= 60000)


# ---- the run ---------------------------------------------------------------------------------------


def measured(server, *loads):
    with server:
        warm()
        before = server.thread_ticks()
        results = [load(*l) for l in loads]
        after = server.thread_ticks()
    for r in results:
        r["share"] = (after[0] - before[0]) / max(after[1] - before[1], 1)
    return results


def show():
    print(f"{'':72} {'Rose':>9} {'llama':>9}        asked")
    for r in rows:
        peer = "" if r["llama-server"] is None else f"{r['llama-server']:.4g}"
        mark = "" if r["met"] is None else "ok  " if r["met"] else "MISS"
        print(f"{r['what']:72} {r['rose']:>9.4g} {peer:>9} {r['unit']:6} {mark:4} {r['asked']}")


def write(path):
    before = kept()
    with open(path, "w", newline="") as f:
        f.write(f"# rose serve beside llama-server (llama-cpp-python 0.3.36), {os.path.basename(options.model)}, {options.threads} threads, F16 cache, closed loops of 128 in and 64 out; "
                f"{datetime.date.today()}\n")
        out = csv.DictWriter(f, list(rows[0]))
        out.writeheader()
        for r in before + rows:
            out.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()})
    print(f"written: {path}")


def part_8():
    ours, peer, few = [], [], 8 if options.mini else 48
    for _ in range(1 if options.mini else 2):
        ours += measured(rose(64), (8, few))
        peer += measured(llama(8, 512), (8, few))
    compare(8, ours, peer, 4, 0.25)


def part_64():
    ours, many = measured(rose(64), (64, 64 if options.mini else 192)), 64 if options.mini else 192
    peer = measured(llama(64, 512), (64, 64))
    ours += measured(rose(64), (64, many))
    compare(64, ours, peer, 6, 0.25)
    share = 100 * mean(ours, "share")
    row("64 streams: the server's thread, of the process's time", "%", share, None, "3 %", share <= 3)


def part_long():
    few, many, ready = (8, 64, "8M") if options.mini else (48, 128, "2G")
    without8, beside8 = measured(rose(64, "--cache-ready", ready), (8, few), (8, few, True))
    without64, beside64 = measured(rose(64, "--cache-ready", ready), (64, many), (64, many, True))
    beside_long(8, [without8], beside8, None if options.mini or options.only else measured(llama(9, 2560), (8, 8, True))[0])
    beside_long(64, [without64], beside64)


def part_rest():
    with rose(64) as s:
        warm()
        singles(s)
    starts()
    for users, requests in ((8, 8 if options.mini else 48), (64, 64 if options.mini else 128)):
        plain = measured(rose(64), (users, requests))[0]["output_tokens_per_s"]
        exact = measured(rose(64, "--deterministic"), (users, requests))[0]["output_tokens_per_s"]
        row(f"{users} streams with --deterministic: output", "tok/s", exact, None, f"stated: {100 * exact / plain:.0f} % of without")
    null_model()


def kept():
    """Rows of the file that this run has not measured."""
    if not options.only or not os.path.exists(options.out):
        return []
    with open(options.out, newline="") as f:
        f.readline()
        now = {r["what"] for r in rows}
        return [r for r in csv.DictReader(f) if r["what"] not in now]


def main():
    if options.alone:
        with rose(64) as s:
            warm()
            singles(s)
        starts()
        show()
        return
    began = time.monotonic()
    for name, part in (("8", part_8), ("64", part_64), ("long", part_long), ("rest", part_rest)):
        if options.only in (None, name):
            part()
    show()
    print(f"{time.monotonic() - began:.0f} s")
    if not options.mini or options.out != parser.get_default("out"):
        write(options.out)


main()
