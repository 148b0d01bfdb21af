#!/usr/bin/env python3
"""A model's GGUF file without its weights, and weights of the same types for it again.

    bench/peers/fill_gguf.py cut MODEL.gguf SKELETON.xz      header, metadata and tensor table, compressed
    bench/peers/fill_gguf.py fill SKELETON.xz MODEL.gguf     the file with seeded random tensors [--seed N]

For speed on a machine that no model can be carried to: a product takes as long with other values.
Matrices are random blocks whose values have a standard deviation of about 0.02 (scales are drawn from
a narrow range, codes are uniform), vectors (norms) lie near one. Needs numpy.
"""

import argparse
import lzma
import math
import os
import struct
import sys

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
DEVIATION = 0.02

# GGML type -> (elements of a block, bytes of a block, [(offset of a float16, its size against
# DEVIATION)]). The other bytes are codes; uniform codes of n bits deviate by 2^n / sqrt(12), and a
# minimum takes half of their range off.
BLOCKS = {
    2: (32, 18, [(0, 1 / 4.6)]),  # Q4_0: scale
    3: (32, 20, [(0, 1 / 4.6), (2, -7.5 / 4.6)]),  # Q4_1: scale, minimum (added)
    6: (32, 22, [(0, 1 / 9.2)]),  # Q5_0: scale, high bits
    7: (32, 24, [(0, 1 / 9.2), (2, -15.5 / 9.2)]),  # Q5_1
    8: (32, 34, [(0, 1 / 74)]),  # Q8_0
    12: (256, 144, [(0, 1 / 4.6 / 31), (2, 7.5 / 4.6 / 31)]),  # Q4_K: scales and minima of 6 bits follow
    13: (256, 176, [(0, 1 / 9.2 / 31), (2, 15.5 / 9.2 / 31)]),  # Q5_K
    14: (256, 210, [(208, 1 / 18.5 / 74)]),  # Q6_K: scale of signed scales, at the end
}
FLOATS = {0: 4, 1: 2, 30: 2}  # F32, F16, BF16: bytes an element


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize("<" + kind)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind != 9:
            return self.number(SCALARS[kind])
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            self.at += struct.calcsize("<" + SCALARS[inner]) * count
        else:
            for _ in range(count):
                self.value(inner)
        return None


def parse(data):
    """(where the tensors start, [(name, shape, type, offset)])"""
    r = Reader(data)
    if data[:4] != b"GGUF":
        raise SystemExit("not a GGUF file")
    r.at = 8
    count, pairs = r.number("Q"), r.number("Q")
    meta = {}
    for _ in range(pairs):
        key = r.string()
        meta[key] = r.value(r.number("I"))
    tensors = []
    for _ in range(count):
        name = r.string().decode()
        shape = [r.number("Q") for _ in range(r.number("I"))]
        kind, offset = r.number("I"), r.number("Q")
        tensors.append((name, shape, kind, offset))
    align = meta.get(b"general.alignment", 32)
    return (r.at + align - 1) // align * align, tensors


def values(name, shape, kind, random):
    """The tensor's bytes."""
    elements = math.prod(shape)
    if kind in FLOATS:
        x = random.standard_normal(elements, dtype=np.float32)
        x = 1 + 0.1 * x if len(shape) == 1 and name.endswith("norm.weight") else DEVIATION * x
        if kind == 1:
            return x.astype("<f2").tobytes()
        return (x.view("<u4") >> 16).astype("<u2").tobytes() if kind == 30 else x.astype("<f4").tobytes()
    if kind not in BLOCKS:
        raise SystemExit(f"{name}: GGML type {kind} has no random blocks here")
    size, stride, scales = BLOCKS[kind]
    blocks = random.integers(0, 256, (elements // size, stride), dtype=np.uint8)
    wobble = random.uniform(0.8, 1.2, elements // size)  # scale and minimum move together
    for offset, factor in scales:
        half = (DEVIATION * factor * wobble).astype("<f2")
        blocks[:, offset:offset + 2] = half.view(np.uint8).reshape(-1, 2)
    return blocks.tobytes()


def cut(source, target):
    with open(source, "rb") as f:
        data = f.read()
    start, _ = parse(data)
    with open(target, "wb") as f:
        f.write(lzma.compress(data[:start], preset=9 | lzma.PRESET_EXTREME))
    print(f"{os.path.getsize(target)} bytes")


def fill(source, target, seed):
    with open(source, "rb") as f:
        header = lzma.decompress(f.read())
    start, tensors = parse(header)
    random = np.random.default_rng(seed)
    with open(target + ".part", "wb") as f:
        f.write(header[:start])
        for name, shape, kind, offset in tensors:
            f.seek(start + offset)
            f.write(values(name, shape, kind, random))
        f.truncate((f.tell() + 31) // 32 * 32)
    os.replace(target + ".part", target)
    print(f"{target}: {os.path.getsize(target)} bytes")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=("cut", "fill"))
    p.add_argument("source")
    p.add_argument("target")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if a.what == "cut":
        cut(a.source, a.target)
    else:
        fill(a.source, a.target, a.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
