"""Runs token workloads on OpenVINO GenAI and prints a JSON line for each.

usage: run.py MODEL_DIR WORKLOADS.json THREADS MAX_BATCHED_TOKENS [KEY=VALUE ...]

WORKLOADS.json is a list of {"name", "prompts": [[ids]], "output_tokens", "share", "ahead"}. With share the pipeline caches
prefixes; with ahead the first row is completed before the others are submitted, so that its prefix is in the cache by then.
KEY=VALUE are properties of OpenVINO. Loading and one small warm-up are not in the time.
"""
import json
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai

CACHE_GB = 3  # room for every workload at once
MAX_SEQS = 256


def main():
    folder, file, threads, batched = sys.argv[1:5]
    with open(file) as f:
        workloads = json.load(f)
    props = {"INFERENCE_NUM_THREADS": int(threads)}
    for pair in sys.argv[5:]:
        key, value = pair.split("=", 1)
        props[key] = int(value) if value.lstrip("-").isdigit() else value
    for share in sorted({w["share"] for w in workloads}):
        config = genai.SchedulerConfig()
        config.max_num_batched_tokens, config.max_num_seqs, config.cache_size = int(batched), MAX_SEQS, CACHE_GB
        config.enable_prefix_caching, config.dynamic_split_fuse = share, True
        began = time.perf_counter()
        pipe = genai.ContinuousBatchingPipeline(folder, config, "CPU", props)
        load = time.perf_counter() - began
        run(pipe, {"prompts": [[1000 + i] * 64 for i in range(4)], "output_tokens": 4, "ahead": False})
        for w in workloads:
            if w["share"] == share:
                wall, done = run(pipe, w)
                print(json.dumps({"name": w["name"], "wall_s": wall, "load_s": load, "output_tokens": done}), flush=True)


def run(pipe, w):
    """-> seconds, completion tokens"""
    c = genai.GenerationConfig(
        max_new_tokens=w["output_tokens"], min_new_tokens=w["output_tokens"], ignore_eos=True, do_sample=False
    )
    rows = [ov.Tensor(np.array([p], dtype=np.int64)) for p in w["prompts"]]
    began = time.perf_counter()
    first = 1 if w["ahead"] else 0
    results = pipe.generate(rows[:first], [c] * first) if first else []
    results += pipe.generate(rows[first:], [c] * (len(rows) - first))
    wall = time.perf_counter() - began
    return wall, sum(len(r.m_generation_ids[0]) for r in results)


if __name__ == "__main__":
    main()
