"""Look at a job's Parquet output with pyarrow and DuckDB. usage: check_parquet.py INPUT.parquet OUTPUT_FOLDER

The input's columns must be there unchanged, first and in order, with their Arrow types; ours must have the documented
types, and figures that agree with each other. Prints the number of rows.
"""

import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

source, folder = sys.argv[1], sys.argv[2]

OURS = {
    "source_file": pa.string(), "row_index": pa.int64(), "custom_id": pa.string(), "sample_index": pa.int32(),
    "status": pa.string(), "completion": pa.string(), "finish_reason": pa.string(), "stop_reason": pa.string(),
    "error_code": pa.string(), "error_message": pa.string(),
    "prompt_tokens": pa.int32(), "cached_tokens": pa.int32(), "completion_tokens": pa.int32(), "total_tokens": pa.int32(),
    "queue_time_ms": pa.float64(), "prefill_time_ms": pa.float64(), "ttft_ms": pa.float64(), "decode_time_ms": pa.float64(),
    "tpot_ms": pa.float64(), "e2e_latency_ms": pa.float64(),
    "attempts": pa.int32(), "dedup_of": pa.int64(), "seed": pa.int64(),
    "model": pa.string(), "model_digest": pa.string(), "run_id": pa.string(),
}


def check(ok: bool, *what) -> None:
    if not ok:
        sys.exit(" ".join(str(w) for w in what))


want = pq.read_table(source)
got = pq.read_table(folder)  # the folder as it is: pyarrow leaves out what begins with _

check(got.num_rows == want.num_rows, "rows:", got.num_rows, "want", want.num_rows)
check(got.column_names[: want.num_columns] == want.column_names, "carried columns:", got.column_names)
check(got.column_names[want.num_columns :] == list(OURS), "our columns:", got.column_names[want.num_columns :], "want", list(OURS))
for field in want.schema:
    check(got.schema.field(field.name).type.equals(field.type), field.name, "type:", got.schema.field(field.name).type, "want", field.type)
    check(got.column(field.name).combine_chunks().equals(want.column(field.name).combine_chunks()), field.name, "values differ")
for key, value in (want.schema.metadata or {}).items():
    check((got.schema.metadata or {}).get(key) == value, "metadata", key, "is lost")
for name, kind in OURS.items():
    check(got.schema.field(name).type.equals(kind), name, "type:", got.schema.field(name).type, "want", kind)

rows = got.select(list(OURS)).to_pylist()
for i, r in enumerate(rows):
    check(r["row_index"] == i and r["sample_index"] == 0, "identity of row", i, r)
    check(r["source_file"].endswith(source.rsplit("/", 1)[-1]), "source_file", r["source_file"])
    check(r["status"] == "ok" and r["error_code"] is None and r["error_message"] is None, "row", i, r)
    check(r["completion"] and r["finish_reason"] in ("stop", "length"), "completion of row", i, r)
    check(r["total_tokens"] == r["prompt_tokens"] + r["completion_tokens"], "tokens of row", i, r)
    check(0 < r["completion_tokens"] <= 32 and 0 <= r["cached_tokens"] < r["prompt_tokens"], "token counts of row", i, r)
    if r["dedup_of"] is None:
        check(r["attempts"] >= 1, "attempts of row", i, r)
        check(abs(r["ttft_ms"] - r["queue_time_ms"] - r["prefill_time_ms"]) < 1e-6, "ttft of row", i, r)
        check(abs(r["e2e_latency_ms"] - r["ttft_ms"] - r["decode_time_ms"]) < 1e-6, "e2e of row", i, r)
        check((r["tpot_ms"] is None) == (r["completion_tokens"] < 2), "tpot of row", i, r)
        if r["tpot_ms"] is not None:
            check(abs(r["tpot_ms"] * (r["completion_tokens"] - 1) - r["decode_time_ms"]) < 1e-3, "tpot of row", i, r)
check(len({r["run_id"] for r in rows}) == 1 and len({r["model_digest"] for r in rows}) == 1, "one run, one model")

# DuckDB: the same rows by a plain glob, and the carried columns equal to the input in both directions.
names = ", ".join(f'"{n}"' for n in want.column_names)
glob = folder.rstrip("/") + "/*.parquet"
db = duckdb.connect()
for a, b in ((glob, source), (source, glob)):
    (n,) = db.execute(f"select count(*) from (select {names} from '{a}' except all select {names} from '{b}')").fetchone()
    check(n == 0, "DuckDB finds", n, "rows of", a, "that are not in", b)
(n, tokens) = db.execute(f"select count(*), sum(completion_tokens) from '{glob}' where status = 'ok'").fetchone()
check(n == len(rows) and tokens == sum(r["completion_tokens"] for r in rows), "DuckDB counts", n, tokens)
print(n)
