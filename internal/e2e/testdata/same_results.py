"""Compare two Parquet outputs. usage: same_results.py FOLDER_A FOLDER_B

Every column must be equal but the measurements (times, attempts, cache hits, dedup, run_id, error_message) and the place
that the input came from.
"""

import sys

import pyarrow.parquet as pq

MEASURED = {
    "source_file", "cached_tokens", "queue_time_ms", "prefill_time_ms", "ttft_ms", "decode_time_ms", "tpot_ms", "e2e_latency_ms",
    "attempts", "dedup_of", "run_id", "error_message",
}

a, b = (pq.read_table(folder) for folder in sys.argv[1:3])
if a.column_names != b.column_names or a.num_rows != b.num_rows:
    sys.exit(f"shapes differ: {a.num_rows} {a.column_names} against {b.num_rows} {b.column_names}")
for name in a.column_names:
    if name not in MEASURED and not a.column(name).combine_chunks().equals(b.column(name).combine_chunks()):
        sys.exit(f"{name} differs:\n{a.column(name)}\n{b.column(name)}")
print(a.num_rows)
