"""torch on the same GPU, by the same method as bench/gpu_ops: CUDA-graph replay over rotating buffers.

usage: gpu_torch.py [seconds at most, default 60] [csv file]
"""
import sys
import time

import torch
import torch.nn.functional as F

LIMIT = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
CSV = open(sys.argv[2], "w") if len(sys.argv) > 2 else None
START = time.time()
L2 = torch.cuda.get_device_properties(0).L2_cache_size


def graph_us(fn, sets, moved):
    """us of fn(*set) in a graph of whole rounds over the sets, the median of five."""
    want = 64 if moved < 8e6 else 16
    nodes = len(sets) * max(1, want // len(sets))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for s in sets:
            fn(*s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    keep = []
    with torch.cuda.graph(graph):
        for i in range(nodes):
            keep.append(fn(*sets[i % len(sets)]))
            if len(keep) > len(sets):
                keep.pop(0)
    replays = int(4000 / (moved / 4e6 + 2) / nodes) + 2
    times = []
    for _ in range(6):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        for _ in range(replays):
            graph.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1e3 / replays / nodes)
    return sorted(times[1:])[2]


def sets_of(make, moved):
    n = 8 if moved < 8e6 else min(16, max(2, int(3 * L2 // (moved // 2)) + 2))
    return [make() for _ in range(n)]


def report(what, shape, us, moved):
    print(f"{what:28} {shape:18} {us:9.2f} us {moved / us * 1e-6:6.2f} TB/s", flush=True)
    if CSV:
        print(f"{what},{shape},{us:.3f},{moved}", file=CSV, flush=True)


def bf16(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def rms(x, w):
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(x.dtype)


def qk(qkv, wq, wk):
    q, k = qkv[:, :32], qkv[:, 32:]
    return rms(q, wq), rms(k, wk)


def rope(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def qk_rope(qkv, wq, wk, freq, pos):
    angle = pos[:, None, None] * freq
    q, k = qk(qkv, wq, wk)
    return rope(q, angle.cos(), angle.sin()), rope(k, angle.cos(), angle.sin())


def measure(what, shape, fn, make, moved):
    if time.time() - START > LIMIT:
        return print("out of time before", what, shape)
    try:
        report(what, shape, graph_us(fn, sets_of(make, moved), moved), moved)
    except Exception as e:  # one peer that fails must not hide the others
        print(what, shape, "failed:", str(e).split("\n")[0])


for T in (1, 16, 4096, 32768):
    w = bf16(128)
    moved = T * 36 * 128 * 4
    compiled = torch.compile(qk, dynamic=False)
    measure("torch.compile QK-norm", f"{T}x(32+4)x128", compiled, lambda: (bf16(T, 36, 128), w, w), moved)
for T in (1, 4096):
    w = bf16(128)
    freq, pos = torch.rand(64, device="cuda"), torch.arange(T, device="cuda").float()
    compiled = torch.compile(qk_rope, dynamic=False)
    measure("torch.compile QK-norm + RoPE", f"{T}x(32+4)x128", compiled, lambda: (bf16(T, 36, 128), w, w, freq, pos), T * 36 * 128 * 4)
for T, N in ((1, 4096), (16, 4096), (4096, 4096), (32768, 4096), (4096, 8192)):
    w = bf16(N)
    compiled = torch.compile(rms, dynamic=False)
    measure("torch.compile RMSNorm", f"{T}x{N}", compiled, lambda: (bf16(T, N), w), T * N * 4)
    measure("F.rms_norm", f"{T}x{N}", lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6), lambda: (bf16(T, N), w), T * N * 4)
for T, N in ((1, 4096), (4096, 4096)):
    measure("clone", f"{T}x{N}", lambda x: x.clone(), lambda: (bf16(T, N),), T * N * 4)
