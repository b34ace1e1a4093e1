#!/usr/bin/env python3
"""Writes the Parquet fixtures of package writers beside this file: every type that Arrow can put into Parquet, as pyarrow
and DuckDB write it. Needs pyarrow and duckdb. The values are fixed; another version of the writers may change the bytes,
never the values."""
import datetime as dt
import decimal
import os

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
N = 60
ST = pa.struct([pa.field("b", pa.int32()), pa.field("a", pa.string())])


def column(make, nulls=True):
    return [None if nulls and i % 7 == 3 else make(i) for i in range(N)]


def types():
    d = decimal.Decimal
    utc = dt.timezone.utc
    base = dt.datetime(2023, 11, 14, 22, 13, 20)
    cols = {
        "zid": (pa.field("zid", pa.string(), nullable=False), column(lambda i: f"id{i}", nulls=False)),
        "prompt": (pa.string(), column(lambda i: f"s{i} \u00e9\u2028\"<&>\\")),
        "bool": (pa.bool_(), column(lambda i: i % 2 == 0)),
        "i8": (pa.int8(), column(lambda i: -i)),
        "u8": (pa.uint8(), column(lambda i: 255 - i)),
        "i16": (pa.int16(), column(lambda i: -300 * i)),
        "u16": (pa.uint16(), column(lambda i: 65535 - i)),
        "i32": (pa.int32(), column(lambda i: -(2**31) + i)),
        "u32": (pa.uint32(), column(lambda i: 2**32 - 1 - i)),
        "i64": (pa.int64(), column(lambda i: 2**62 + i)),
        "u64": (pa.uint64(), column(lambda i: 2**64 - 1 - i)),
        "f16": (pa.float16(), column(lambda i: i + 0.5)),
        "f32": (pa.float32(), column(lambda i: i / 3)),
        "f64": (pa.float64(), column(lambda i: float("nan") if i == 5 else float("-inf") if i == 6 else i / 3)),
        "bin": (pa.binary(), column(lambda i: bytes([i, 255, 0]))),
        "lbin": (pa.large_binary(), column(lambda i: bytes([255, i]))),
        "lstr": (pa.large_string(), column(lambda i: f"L{i}")),
        "fsb": (pa.binary(16), column(lambda i: b"%016d" % i)),
        "d32": (pa.date32(), column(lambda i: dt.date(1960, 1, 1) + dt.timedelta(days=i * 1000))),
        "d64": (pa.date64(), column(lambda i: dt.date(1969, 12, 1) + dt.timedelta(days=i))),
        "t32s": (pa.time32("s"), column(lambda i: dt.time(i % 24, i, 1))),
        "t32ms": (pa.time32("ms"), column(lambda i: dt.time(i % 24, i, 1, 500000))),
        "t64us": (pa.time64("us"), column(lambda i: dt.time(i % 24, i, 1, 7))),
        "t64ns": (pa.time64("ns"), column(lambda i: dt.time(i % 24, i, 1, 7))),
        "ts_s": (pa.timestamp("s", "UTC"), column(lambda i: base.replace(tzinfo=utc) + dt.timedelta(days=i))),
        "ts_ms_utc": (pa.timestamp("ms", "UTC"), column(lambda i: base.replace(tzinfo=utc) - dt.timedelta(days=i * 1000))),
        "ts_us_local": (pa.timestamp("us"), column(lambda i: base + dt.timedelta(microseconds=i))),
        "ts_ns_tokyo": (pa.timestamp("ns", "Asia/Tokyo"), column(lambda i: base.replace(tzinfo=utc) + dt.timedelta(hours=i))),
        "dur": (pa.duration("us"), column(lambda i: dt.timedelta(microseconds=i * 10**9))),
        "dec9": (pa.decimal128(9, 2), column(lambda i: d(i * 100 - 700).scaleb(-2))),
        "dec18": (pa.decimal128(18, 4), column(lambda i: d(i * 100 - 7).scaleb(-4))),
        "dec38": (pa.decimal128(38, 10), column(lambda i: d(i * 100 - 700).scaleb(-10))),
        "dec76": (pa.decimal256(76, 10), column(lambda i: d(i * 100 - 700).scaleb(-10))),
        "list": (pa.list_(pa.string()), column(lambda i: [None if (i + k) % 5 == 0 else f"e{k}" for k in range(i % 4)])),
        "nlist": (pa.list_(pa.field("item", pa.int64(), nullable=False)), column(lambda i: list(range(i % 3)))),
        "llist": (pa.list_(pa.list_(pa.int64())), column(lambda i: [[k] * k if k != 2 else None for k in range(i % 4)])),
        "biglist": (pa.large_list(pa.int32()), column(lambda i: list(range(i % 3)))),
        "fsl": (pa.list_(pa.float32(), 3), column(lambda i: [float(i), 0.5, -1.0], nulls=False)),
        "map": (pa.map_(pa.string(), pa.int64()), column(lambda i: [(f"k{k}", k if k else None) for k in range(i % 3)])),
        "imap": (pa.map_(pa.int32(), pa.list_(pa.string())), column(lambda i: [(k, [f"v{k}"]) for k in range(i % 3)])),
        "struct": (ST, column(lambda i: {"b": i if i % 2 else None, "a": f"a{i}"})),
        "lstruct": (pa.list_(ST), column(lambda i: [{"b": k, "a": None} if k else None for k in range(i % 3)])),
        "deep": (pa.struct([pa.field("x", pa.list_(pa.struct([pa.field("y", pa.map_(pa.string(), ST))])))]),
                 column(lambda i: {"x": [{"y": [("q", {"b": i, "a": "z"})]} for _ in range(i % 3)]})),
        "dict": (pa.dictionary(pa.int32(), pa.string()), column(lambda i: "xy"[i % 2])),
        "null": (pa.null(), [None] * N),
    }
    fields, arrays = [], []
    for name, (t, values) in cols.items():
        f = t if isinstance(t, pa.Field) else pa.field(name, t, metadata={"note": "kept"} if name == "i64" else None)
        fields.append(f)
        arrays.append(pa.array(values, f.type))
    return pa.table(arrays, schema=pa.schema(fields, metadata={"owner": "fixtures", "b": "2", "a": "1"}))


def write(name, table, **kw):
    pq.write_table(table, os.path.join(HERE, name), row_group_size=25, **kw)


def main():
    t = types()
    write("types.parquet", t)
    # Booleans are left out: pages of version 2 encode them as RLE, which readers refuse by name.
    write("types_v2.parquet", t.drop_columns(["bool"]), data_page_version="2.0", version="2.6", compression="zstd")
    write("types_plain.parquet", t, use_dictionary=False, compression="none", store_schema=False)
    pick = t.select(["zid", "i32", "i64", "f32", "f64", "prompt", "fsb"])
    write("encodings.parquet", pick, use_dictionary=False, compression="gzip", column_encoding={
        "zid": "DELTA_BYTE_ARRAY", "i32": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "f32": "BYTE_STREAM_SPLIT",
        "f64": "BYTE_STREAM_SPLIT", "prompt": "DELTA_LENGTH_BYTE_ARRAY", "fsb": "PLAIN"})
    ids = pa.schema([
        pa.field("zid", pa.string(), nullable=False, metadata={"PARQUET:field_id": "7"}),
        pa.field("struct", pa.struct([pa.field("b", pa.int32(), metadata={"PARQUET:field_id": "12"}),
                                      pa.field("a", pa.string(), metadata={"PARQUET:field_id": "13"})]),
                 metadata={"PARQUET:field_id": "11"})])
    write("field_ids.parquet", t.select(["zid", "struct"]).cast(ids))
    write("int96.parquet", t.select(["zid", "ts_us_local"]), use_deprecated_int96_timestamps=True)
    write("empty.parquet", t.slice(0, 0))
    # Types that came to Arrow later than the Go library that decodes the schema.
    d = decimal.Decimal
    narrow = pa.array([d(i - 7).scaleb(-2) for i in range(N)], pa.decimal32(5, 2))
    write("newer.parquet", pa.table({
        "zid": t.column("lstr"), "d128": t.column("dec18"), "d32": narrow,
        "s": pa.StructArray.from_arrays([narrow.cast(pa.decimal128(9, 2)), narrow.cast(pa.decimal64(12, 3))], ["a", "b"]),
        "view": pa.array([f"v{i}" for i in range(N)], pa.string_view()),
        "lv": pa.array([list(range(i % 3)) for i in range(N)], pa.list_view(pa.int64())),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"%016d" % i for i in range(N)], pa.binary(16))),
        "json": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a":%d}' % i for i in range(N)])),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([i % 2 for i in range(N)], pa.int8())),
    }))
    pandas = t.select(["zid", "i64", "dict"]).to_pandas().set_index("zid")
    pq.write_table(pa.Table.from_pandas(pandas), os.path.join(HERE, "pandas.parquet"))
    con = duckdb.connect()
    con.execute(f"""copy (select 'id' || i as zid, cast(i as utinyint) u8, cast(i as hugeint) huge,
        cast(i * 1.5 as decimal(20, 3)) as dec20, cast(-i as decimal(4, 1)) as dec4,
        cast(lpad(cast(i as varchar), 8, '0') || '-0000-4000-8000-000000000001' as uuid) as uuid,
        interval (i) month as iv, [i, null, i + 1] as l, {{'x': i, 'y': {{'z': 'w'}}}} as s,
        map(['a', 'b'], [i, null]) as m, cast('{{"k": [1, 2.50]}}' as json) as js,
        cast('2024-02-29 12:00:00+00' as timestamptz) as tz, cast('12:00:01.5' as time) as tm,
        cast(case when i % 2 = 0 then 'sad' else 'ok' end as enum('sad', 'ok')) as en,
        cast('\\xAA\\x00' as blob) as bl
        from range({N}) r(i)) to '{HERE}/duckdb.parquet' (format parquet, row_group_size 2048)""")


if __name__ == "__main__":
    main()
