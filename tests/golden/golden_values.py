"""The generator of the golden models' weights, with numpy alone: seeded by a tensor's name, so that every side makes the same (tests/model/golden.h)."""
import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def fnv1a64(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & MASK
    return h


def values(seed, name, exponent, mean, count):
    start = (fnv1a64(name.encode()) + seed * GOLDEN) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(start) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    n = sum(((z >> np.uint64(6 * k)) & np.uint64(63)).astype(np.int64) for k in range(4)) - 126
    return (np.float64(mean) + n * 2.0**exponent).astype(np.float32)
