"""torch's scaled_dot_product_attention on the shapes of tests/gpu/gpu_attention: causal prefill, and decode over contiguous keys and values.

usage: gpu_attention_torch.py [seconds at most, default 40] [csv file]
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LIMIT = float(sys.argv[1]) if len(sys.argv) > 1 else 40.0
CSV = open(sys.argv[2], "w") if len(sys.argv) > 2 else None
START = time.time()


def event_us(fn, n):
    for _ in range(2):
        fn()
    times = []
    for _ in range(5):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        for _ in range(n):
            fn()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / n)
    return sorted(times)[2]


def rand(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


SHAPES = [  # name, batch, rows, length, heads, kv heads, dim
    ("prefill Llama 8B, 8 x 2048", 8, 2048, 2048, 32, 8, 128),
    ("prefill Llama 8B, 2 x 8192", 2, 8192, 8192, 32, 8, 128),
    ("prefill Llama 8B, 1 x 16384", 1, 16384, 16384, 32, 8, 128),
    ("prefill 16/16 of 128, 8 x 2048", 8, 2048, 2048, 16, 16, 128),
    ("prefill 16/16 of 128, 1 x 16384", 1, 16384, 16384, 16, 16, 128),
    ("prefill 32/8 of 64, 8 x 2048", 8, 2048, 2048, 32, 8, 64),
    ("prefill 8/4 of 256, 4 x 2048", 4, 2048, 2048, 8, 4, 256),
    ("decode Llama 8B, 64 x 4096", 64, 1, 4096, 32, 8, 128),
]
for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
    for name, batch, rows, length, heads, kv, dim in SHAPES:
        if time.time() - START > LIMIT:
            break
        q, k, v = rand(batch, heads, rows, dim), rand(batch, kv, length, dim), rand(batch, kv, length, dim)
        ops = 4 * batch * heads * dim * (rows * length - rows * (rows - 1) / 2)
        try:
            with sdpa_kernel(backend):
                us = event_us(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=rows > 1, enable_gqa=heads != kv), 5)
        except RuntimeError as e:
            print(f"{backend.name} {name}: {str(e).splitlines()[0]}")
            continue
        moved = 2 * (2 * k.numel() + 2 * q.numel())
        print(f"{backend.name:18} {name:36} {us:9.1f} us {moved / us * 1e-6:6.2f} TB/s {ops / us * 1e-6:7.1f} TFLOP/s", flush=True)
        if CSV:
            print(f"{backend.name} {name},{us:.3f},{moved},{ops:.0f}", file=CSV, flush=True)
