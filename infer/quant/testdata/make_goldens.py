#!/usr/bin/env python3
"""Makes the goldens of package quant from the gguf package on PyPI: pip install gguf==0.19.0 && python make_goldens.py

For every type: NAME.blocks, raw blocks, and NAME.f32, the little-endian float32 values that gguf makes of them. Scales
run over zero, denormals, the extremes of float16 and both signs; quants over all zeros, all ones and random bytes.
"""

import os

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(20260801)

# float16 bits: 0, -0, smallest and largest denormal, smallest normal, ordinary values, 1, largest, and their negatives.
EDGES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x1234, 0x9234, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF]

# type -> byte offsets of the float16 scales in a block
SCALES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def finite_half(n):
    """n random float16 bit patterns that are neither infinite nor NaN"""
    bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    return np.where((bits & 0x7C00) == 0x7C00, bits & 0x83FF, bits).astype(np.uint16)


def blocks(name):
    qtype = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[qtype]
    count = 64 if values == 32 else 32
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)
    data[0], data[1], data[2], data[3] = 0x00, 0xFF, 0x80, 0x7F
    for k, offset in enumerate(SCALES[name]):
        halfs = finite_half(count)
        for i in range(len(EDGES)):
            halfs[i] = EDGES[(i * (1 if k == 0 else 5) + 3 * k) % len(EDGES)]
        # ordinary scales, as in real weights, for the last third
        usual = (rng.standard_normal(count) * 0.02).astype(np.float16).view(np.uint16)
        halfs[2 * count // 3:] = usual[2 * count // 3:]
        data[:, offset:offset + 2] = halfs.view(np.uint8).reshape(count, 2)
    return data.tobytes()


def floats(name):
    if name == "F16":  # every finite value and the infinities
        bits = np.arange(1 << 16, dtype=np.uint16)
        return bits[(bits & 0x7C00 != 0x7C00) | (bits & 0x3FF == 0)][::7].tobytes()
    if name == "BF16":
        bits = np.arange(1 << 16, dtype=np.uint16)
        return bits[(bits & 0x7F80 != 0x7F80) | (bits & 0x7F == 0)][::7].tobytes()
    bits = rng.integers(0, 1 << 32, 517, dtype=np.uint32)
    return np.where(bits & 0x7F800000 == 0x7F800000, bits & 0x807FFFFF, bits).astype(np.uint32).tobytes()


for name in ["F32", "F16", "BF16", *SCALES]:
    raw = blocks(name) if name in SCALES else floats(name)
    qtype = gguf.GGMLQuantizationType[name]
    with np.errstate(all="ignore"):
        out = gguf.quants.dequantize(np.frombuffer(raw, dtype=np.uint8).reshape(1, -1), qtype)
    out = np.asarray(out, dtype=np.float32).reshape(-1)
    assert not np.isnan(out).any(), name
    with open(os.path.join(HERE, name + ".blocks"), "wb") as f:
        f.write(raw)
    with open(os.path.join(HERE, name + ".f32"), "wb") as f:
        f.write(out.astype("<f4").tobytes())
    print(f"{name}: {len(raw)} bytes, {out.size} values")
