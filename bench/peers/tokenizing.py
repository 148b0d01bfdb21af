#!/usr/bin/env python3
"""Tokenising, one thread: Rose beside Hugging Face `tokenizers`, the same tokenizer and text, interleaved, best of the rounds.

    tokenizing.py BENCH_TOKENIZE TOKENIZER_JSON FILE [ROUNDS]

BENCH_TOKENIZE is the built tests/tokenizer/bench_tokenize.c. The ids must be equal, or it says so and fails. One JSON object."""
import json
import os
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        h = ((h ^ i) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


bench, model, path = sys.argv[1:4]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
start = time.perf_counter()
peer = Tokenizer.from_file(model)
peer_load = time.perf_counter() - start
peer.no_truncation()
raw, pieces, at = open(path, "rb").read(), [], 0
while at < len(raw):  # the same pieces as bench_tokenize: to the first line end behind 8 KiB
    end = raw.find(b"\n", at + 8192) + 1 if len(raw) - at > 8192 else 0
    pieces.append(raw[at:end or len(raw)].decode("utf-8", "replace"))
    at = end or len(raw)
ours, theirs, loads = 1e9, 1e9, 1e9
for _ in range(rounds):
    got = json.loads(subprocess.run([bench, model, path, "3"], check=True, capture_output=True).stdout)
    ours, loads = min(ours, got["encode_s"]), min(loads, got["load_s"])
    for call in ("encode_fast", "encode"):  # without offsets, where this version has it
        if hasattr(peer, call):
            start = time.perf_counter()
            found = [getattr(peer, call)(p, add_special_tokens=False) for p in pieces]
            theirs = min(theirs, time.perf_counter() - start)
            ids = [i for f in found for i in f.ids]
equal = len(ids) == got["tokens"] and fnv(ids) == got["hash"]
mb = got["bytes"] / 1e6
print(json.dumps(dict(bytes=got["bytes"], tokens=got["tokens"], same_ids=equal, rose_mb_s=round(mb / ours, 1), tokenizers_mb_s=round(mb / theirs, 2),
                      ratio=round(theirs / ours, 1), rose_load_ms=round(1000 * loads, 1), tokenizers_load_ms=round(1000 * peer_load, 1))))
sys.exit(0 if equal else 1)
