#!/usr/bin/env python3
"""Golden data of tests/tensor/test_dtype.c: random blocks and what the packages gguf and torch decode and encode them to.

    make_dtype.py [OUT]        default tests/golden/dtype/codec.bin

The file is a sequence of records, little-endian:

    char kind ('D' decode, 'E' encode), char name[15] (NUL-padded), u32 bytes, u32 floats, bytes, float32 numbers
"""
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

rng = np.random.default_rng(20240611)
out = bytearray()


def record(kind, name, raw, floats):
    floats = np.ascontiguousarray(floats, dtype=np.float32).ravel()
    raw = np.ascontiguousarray(raw).view(np.uint8).ravel()
    out.extend(struct.pack("<c15sII", kind, name.encode(), raw.size, floats.size))
    out.extend(raw.tobytes() + floats.tobytes())


# Where the float16 scales of each block format lie; random bits there would mostly be absurd numbers.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
for name, offsets in HALVES.items():
    block, size = GGML_QUANT_SIZES[T[name]]
    count = 1024 // block
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in offsets:
        half = rng.normal(0, 0.1, count).astype(np.float16)
        half[0] = np.float16(65504)  # the largest,
        half[1] = np.float16(-6e-8)  # the smallest,
        half[2] = np.float16(0)      # and none
        raw[:, at:at + 2] = half.view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        raw[:4, 0] = [0, 1, 2, 255]
        raw[4:, 0] = rng.integers(110, 140, count - 4)
    record(b"D", name, raw, dequantize(raw, T[name]))

for name, dtype in {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}.items():
    raw = torch.arange(256, dtype=torch.uint8)
    record(b"D", name, raw.numpy(), raw.view(dtype).float().numpy())
    limit = torch.finfo(dtype).max
    x = torch.from_numpy(np.concatenate([
        rng.normal(0, 1, 1000), rng.normal(0, 100, 500), rng.normal(0, 1e-3, 500), rng.normal(0, 1e-5, 200),
        np.arange(-64, 65) / 512 / 8, [0.0, -0.0, float("nan"), limit, -limit]]).astype(np.float32)).clamp(-limit, limit)
    record(b"E", name, x.to(dtype).view(torch.uint8).numpy(), x.numpy())

for name in ["Q8_0", "Q4_0", "Q4_1", "MXFP4"]:
    x = rng.normal(0, 1, (48, 32)) * np.exp2(rng.integers(-12, 8, (48, 1)).astype(np.float64))
    x = x.astype(np.float32)
    x[0] = 0
    x[1] = x[1, 0]           # a constant block
    x[2] = np.abs(x[2])      # no sign
    x[3, 5], x[3, 9] = 3.0, -3.0  # two extremes of one size: the first counts
    x[4] *= np.float32(1e-30)     # the scale becomes zero in float16
    record(b"E", name, quantize(x, T[name]), x)

path = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "dtype" / "codec.bin")
path.parent.mkdir(parents=True, exist_ok=True)
path.write_bytes(out)
print(path, len(out))
