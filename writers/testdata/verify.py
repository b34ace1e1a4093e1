#!/usr/bin/env python3
"""Compares a written part with its source, by pyarrow and by DuckDB: verify.py SOURCE PART [CARRIED,...]. With LOOSE set
in the environment the Parquet annotations may differ where the Arrow types do not. Prints what differs, one finding a line, and exits 1 if anything does."""
import os
import sys

import duckdb
import pyarrow.parquet as pq

OURS = {
    "source_file": "string", "row_index": "int64", "custom_id": "string", "sample_index": "int32", "status": "string",
    "completion": "string", "finish_reason": "string", "stop_reason": "string", "error_code": "string",
    "error_message": "string", "prompt_tokens": "int32", "cached_tokens": "int32", "completion_tokens": "int32",
    "total_tokens": "int32", "queue_time_ms": "double", "prefill_time_ms": "double", "ttft_ms": "double",
    "decode_time_ms": "double", "tpot_ms": "double", "e2e_latency_ms": "double", "attempts": "int32", "dedup_of": "int64",
    "seed": "int64", "logprobs": "string", "token_ids": "list<element: int32 not null>", "model": "string",
    "model_digest": "string", "run_id": "string",
}
NULLABLE = {"custom_id", "completion", "finish_reason", "stop_reason", "error_code", "error_message", "queue_time_ms",
            "prefill_time_ms", "ttft_ms", "decode_time_ms", "tpot_ms", "e2e_latency_ms", "dedup_of", "logprobs", "token_ids"}
findings = []


def expect(what, got, want):
    if got != want and repr(got) != repr(want):  # repr: NaN is equal to itself
        findings.append(f"{what}: got {str(got)[:400]}, want {str(want)[:400]}")


def arrow(source, part, carried):
    src, out = pq.ParquetFile(source), pq.ParquetFile(part)
    a, b = src.read(), out.read()
    b.validate(full=True)
    expect("columns", b.column_names, carried + list(OURS))
    for name in carried:
        f, g = a.schema.field(name), b.schema.field(name)
        expect(f"arrow field {name}", (g.type, g.nullable, g.metadata), (f.type, f.nullable, f.metadata))
        expect(f"arrow values {name}", b.column(name).to_pylist(), a.column(name).to_pylist())
    for name, t in OURS.items():
        g = b.schema.field(name)
        got = str(g.type)
        expect(f"our type {name}", "string" if got == "extension<arrow.json>" else got, t)
        expect(f"our nullability {name}", g.nullable, name in NULLABLE)
    expect("row_index", b.column("row_index").to_pylist(), list(range(a.num_rows)))
    kept = {k: v for k, v in (src.metadata.metadata or {}).items() if not k.startswith((b"ARROW:", b"batchmill."))}
    got = out.metadata.metadata
    expect("footer", {k: got.get(k) for k in kept}, kept)
    expect("footer rows", got.get(b"batchmill.rows"), str(a.num_rows).encode())
    sp = {src.schema.column(i).path: src.schema.column(i) for i in range(len(src.schema))}
    for i in range(len(out.schema)):
        g = out.schema.column(i)
        if g.path.split(".")[0] not in carried:
            continue
        f = sp[g.path]
        for what in ("physical_type", "logical_type", "converted_type", "max_definition_level", "max_repetition_level",
                     "length", "precision", "scale"):
            x, y = getattr(g, what), getattr(f, what)
            if not os.environ.get("LOOSE"):
                expect(f"parquet {what} of {g.path}", str(x), str(y))
    for group in range(out.metadata.num_row_groups):
        for i in range(out.metadata.num_columns):
            expect("codec", out.metadata.row_group(group).column(i).compression, "ZSTD")
            if not out.metadata.row_group(group).column(i).has_offset_index:
                findings.append(f"no offset index for column {i}")
    # Filters that use statistics find what is there, in every column that can be compared.
    for name in carried:
        values = [v for v in a.column(name).to_pylist() if v is not None]
        if not values or isinstance(values[0], (list, dict, tuple, bytes)) or not hasattr(values[0], "__lt__"):
            continue
        try:
            want = pq.read_table(source, columns=[name], filters=[(name, "==", values[-1])]).num_rows
        except Exception:
            continue
        expect(f"filter {name}", pq.read_table(part, columns=[name], filters=[(name, "==", values[-1])]).num_rows, want)
    try:
        import pandas
    except ImportError:
        return
    x, y = a.to_pandas(), b.to_pandas()
    if isinstance(x.index, pandas.RangeIndex):
        return
    if all(n in carried for n in x.index.names):
        expect("pandas index", (list(y.index), y.index.names), (list(x.index), x.index.names))


def duck(source, part, carried):
    con = duckdb.connect()
    def types(path):
        return {r[0]: r[1] for r in con.execute(f"describe select * from '{path}'").fetchall()}
    a, b = types(source), types(part)
    expect("duckdb columns", list(b), carried + list(OURS))
    for name in carried:
        expect(f"duckdb type {name}", b.get(name), a.get(name))
        q = f'select "{name}" from \'%s\''
        expect(f"duckdb values {name}", con.execute(q % part).fetchall(), con.execute(q % source).fetchall())
        for v, in con.execute(f'select distinct "{name}" from \'{source}\' where "{name}" is not null limit 5').fetchall():
            if isinstance(v, (list, dict, tuple, float)):
                continue
            q = f'select count(*) from \'%s\' where "{name}" = ?'
            try:
                want = con.execute(q % source, [v]).fetchone()
            except duckdb.Error:
                continue
            expect(f"duckdb filter {name}", con.execute(q % part, [v]).fetchone(), want)


def main():
    source, part = sys.argv[1:3]
    carried = sys.argv[3].split(",") if len(sys.argv) > 3 else pq.read_schema(source).names
    arrow(source, part, carried)
    try:
        duckdb.connect().execute(f"select * from '{source}'").fetchall()
    except duckdb.Error as e:
        print(f"note: DuckDB cannot read the source itself: {str(e)[:200]}", file=sys.stderr)
    else:
        duck(source, part, carried)
    for f in findings:
        print(f)
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
