"""Matrix products of torch (cuBLAS) in a CUDA graph over rotating weights, as bench/gpu_matmul.c measures ours.

    python3 bench/peers/gpu_matmul_torch.py [seconds]
"""
import sys
import time

import torch

LIMIT = time.time() + float(sys.argv[1]) if len(sys.argv) > 1 else 1e12
SHAPES = [(4096, 4096), (28672, 4096), (4096, 14336), (6144, 4096), (128256, 4096), (2048, 4096), (1024, 2048)]
ROWS = [1, 4, 16, 32, 64, 128, 256, 1024, 4096]
torch.manual_seed(1)


def time_us(n, k, m):
    size = n * k * 2
    sets = max(1, min(24, 200_000_000 // size + 2))
    w = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    for i in range(3):
        torch.nn.functional.linear(x, w[0])
    torch.cuda.synchronize()
    nodes = sets * max(1, 24 // sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(nodes):
            torch.nn.functional.linear(x, w[i % sets])
    times = []
    for r in range(5):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(3):
            graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / 3 / nodes)
    return sorted(times)[2]


for n, k in SHAPES:
    for m in ROWS:
        if time.time() > LIMIT or n * m > 128256 * 1024:
            continue
        us = time_us(n, k, m)
        total = n * k * 2 + m * (n + k) * 2
        print(f"torch {n}x{k} M {m:<5} {us:9.2f} us {100 * total / us / 4.58e6:5.1f}% of 4.58 TB/s {2e-6 * n * k * m / us:7.1f} TFLOP/s", flush=True)
