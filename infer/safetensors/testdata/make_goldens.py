#!/usr/bin/env python3
"""Makes the goldens of package safetensors with the package of that name on PyPI:
pip install safetensors==0.8.0 numpy && python make_goldens.py

single.safetensors holds tensors of each type, a scalar and an empty one; model-*.safetensors with its index are two
shards. goldens.json says what they hold.
"""

import hashlib
import json
import os

import numpy as np
import safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(11)
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}
NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def tensor(dtype, *shape):
    n = SIZES[dtype] * int(np.prod(shape))
    return {"dtype": dtype, "shape": list(shape), "data": rng.integers(0, 256, n, dtype=np.uint8).tobytes()}


def write(name, tensors, metadata=None):
    arrays = {k: np.frombuffer(t["data"] or b"\0", dtype=np.uint8) for k, t in tensors.items()}
    specs = {k: safetensors.TensorSpec(dtype=t["dtype"], shape=t["shape"], data_ptr=arrays[k].ctypes.data,
                                       data_len=len(t["data"])) for k, t in tensors.items()}
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(safetensors.serialize(specs, metadata=metadata))
    return [{"name": k, "type": NAMES[t["dtype"]], "shape": t["shape"], "bytes": len(t["data"]),
             "sha256": hashlib.sha256(t["data"]).hexdigest()} for k, t in tensors.items()]


goldens = {}
goldens["single.safetensors"] = write("single.safetensors", {
    "model.embed_tokens.weight": tensor("float32", 7, 8),
    "model.norm.weight": tensor("bfloat16", 8),
    "model.layers.0.mlp.up_proj.weight": tensor("float16", 3, 2, 5),
    "scalar": tensor("float32"),
    "nothing": tensor("float16", 0, 4),
}, {"format": "pt"})
shards = {
    "model-00001-of-00002.safetensors": {"a": tensor("float32", 3, 3), "b": tensor("bfloat16", 5)},
    "model-00002-of-00002.safetensors": {"c": tensor("float16", 2, 2)},
}
goldens["model.safetensors.index.json"] = [e for name, tensors in shards.items() for e in write(name, tensors)]
with open(os.path.join(HERE, "model.safetensors.index.json"), "w") as f:
    json.dump({"metadata": {"total_size": 54}, "weight_map": {k: n for n, ts in shards.items() for k in ts}}, f, indent=1)
    f.write("\n")
with open(os.path.join(HERE, "goldens.json"), "w") as f:
    json.dump(goldens, f, indent=1)
    f.write("\n")
