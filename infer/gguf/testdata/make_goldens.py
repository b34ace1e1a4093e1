#!/usr/bin/env python3
"""Makes the goldens of package gguf with the gguf package on PyPI: pip install gguf==0.19.0 && python make_goldens.py

kinds.gguf has a key of every kind, an alignment of its own and tensors of several types; split-*.gguf are the three
parts of a split file. goldens.json says what they hold.
"""

import glob
import hashlib
import json
import os

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)
Q = gguf.GGMLQuantizationType


def tensors():
    yield "token_embd.weight", rng.standard_normal((6, 64)).astype(np.float32), Q.F32
    yield "blk.0.attn_q.weight", rng.standard_normal((4, 64)).astype(np.float16), Q.F16
    yield "blk.0.attn_norm.weight", rng.standard_normal(64).astype(np.float32), Q.F32
    yield "blk.0.ffn_up.weight", rng.integers(0, 255, (3, 2 * 34), dtype=np.uint8), Q.Q8_0
    yield "blk.0.ffn_gate_exps.weight", rng.integers(0, 255, (2, 3, 144), dtype=np.uint8), Q.Q4_K
    yield "blk.0.ffn_down.weight", rng.integers(0, 255, (5, 20), dtype=np.uint8), Q.Q4_1


def add_all(writer, golden):
    for name, data, qtype in tensors():
        writer.add_tensor(name, data, raw_dtype=qtype)
        shape = list(data.shape)
        if data.dtype == np.uint8:
            values, size = gguf.GGML_QUANT_SIZES[qtype]
            shape[-1] = shape[-1] // size * values
        golden.append({"name": name, "type": qtype.name, "shape": shape, "bytes": data.nbytes,
                       "sha256": hashlib.sha256(data.tobytes()).hexdigest()})


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


goldens = {}

w = gguf.GGUFWriter(os.path.join(HERE, "kinds.gguf"), "llama")
w.add_custom_alignment(64)
w.add_uint8("t.u8", 200)
w.add_int8("t.i8", -100)
w.add_uint16("t.u16", 60000)
w.add_int16("t.i16", -30000)
w.add_uint32("t.u32", 4000000000)
w.add_int32("t.i32", -2000000000)
w.add_uint64("t.u64", 1 << 63)
w.add_int64("t.i64", -(1 << 63))
w.add_float32("t.f32", 0.5)
w.add_float64("t.f64", 1e300)
w.add_bool("t.yes", True)
w.add_bool("t.no", False)
w.add_string("t.text", "h\u00e9llo \u2581 \U0001f600")
w.add_array("t.strings", ["a", "", "b c", "\u0120x"])
w.add_array("t.ints", [1, -2, 3])
w.add_array("t.floats", [0.5, -1.5])
w.add_array("t.bools", [True, False, True])
tensors_out = []
add_all(w, tensors_out)
finish(w)
goldens["kinds.gguf"] = {"tensors": tensors_out}

for old in glob.glob(os.path.join(HERE, "split-*.gguf")):
    os.remove(old)
rng = np.random.default_rng(8)
w = gguf.GGUFWriter(os.path.join(HERE, "split.gguf"), "llama", split_max_tensors=2)
w.add_string("t.text", "first part only")
tensors_out = []
add_all(w, tensors_out)
finish(w)
goldens["split-00001-of-00003.gguf"] = {"tensors": tensors_out}

with open(os.path.join(HERE, "goldens.json"), "w") as f:
    json.dump(goldens, f, indent=1)
    f.write("\n")
