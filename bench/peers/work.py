"""Writes the workloads that every engine gets: the same token ids, and the same texts.

usage: work.py OUT_DIR

    W1  64 rows of 128 tokens, 64 tokens out
    W2  32 rows of 512 tokens, 1 token out
    W3  200 rows of 500 tokens, of which the first 400 are common, 16 tokens out
    job 500 texts of 20 to 2,000 words-and-a-bit (about as many tokens), up to 128 tokens out

Ids come from Python's random numbers with a fixed seed, so that figures can be set beside earlier ones. For each workload
there is NAME.json (a list of {"prompt": ids or text}, one JSON value) and NAME.jsonl (one row a line, for batchmill).
"""
import json
import os
import random
import sys

WORDS = """the a river of stone and light moves under old trees while people walk to market with bread cheese paper letters
from distant towns where rain falls on red roofs every morning someone opens small windows counts birds writes numbers in books
about weather prices music trains harbours ships engines metal glass water salt sugar wood fire winter summer""".split()


def tokens(name):
    """-> prompts as lists of ids, tokens out"""
    r = random.Random(7)

    def ids(n):
        return [r.randrange(1000, 48000) for _ in range(n)]

    if name == "W1":
        return [ids(128) for _ in range(64)], 64
    if name == "W2":
        return [ids(512) for _ in range(32)], 1
    common = ids(400)
    return [common + ids(100) for _ in range(200)], 16


def texts():
    """-> prompts of mixed lengths, spread evenly by the logarithm, in no order"""
    r = random.Random(11)
    lengths = [round(20 * 97 ** (i / 499)) for i in range(500)]
    r.shuffle(lengths)
    return [" ".join(r.choice(WORDS) for _ in range(n)) for n in lengths]


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for name in ("W1", "W2", "W3"):
        prompts, n = tokens(name)
        write(out, name, [{"ids": p} for p in prompts], n)
    write(out, "job", [{"prompt": p} for p in texts()], 128)


def write(out, name, rows, n):
    with open(f"{out}/{name}.json", "w") as f:
        json.dump({"name": name, "output_tokens": n, "rows": rows}, f)
    with open(f"{out}/{name}.jsonl", "w") as f:
        for i, row in enumerate(rows):
            f.write(json.dumps({"id": f"{name}-{i}", **row}) + "\n")


if __name__ == "__main__":
    main()
