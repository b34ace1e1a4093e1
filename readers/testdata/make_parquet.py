"""Writes the Parquet files that the tests read, and beside them what must come out, as JSON lines.

    python -m venv v && v/bin/pip install pyarrow duckdb && v/bin/python make_parquet.py
"""
import datetime as dt
import decimal as dc
import json
import os

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))
N = 40
D = dc.Decimal
dc.getcontext().prec = 80


def fraction(s, digits):
    return (s + "." + digits).rstrip("0").rstrip(".") if digits.strip("0") else s


def stamp(ticks, per_second, utc):
    whole, part = divmod(ticks, per_second)
    base = (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=whole)).strftime("%Y-%m-%dT%H:%M:%S")
    if base[0] != "1" and base[0] != "2":
        base = base.rjust(19, "0")
    return fraction(base, str(part).zfill(len(str(per_second)) - 1)) + ("Z" if utc else "")


def clock(ticks, per_second):
    whole, part = divmod(ticks, per_second)
    return fraction("%02d:%02d:%02d" % (whole // 3600, whole // 60 % 60, whole % 60), str(part).zfill(len(str(per_second)) - 1))


def hexed(b):
    return {"$bytes": b.hex()}


def every(f):
    """A column's values: null in every seventh row, at another place per column."""
    global shift
    shift += 1
    return [None if (i + shift) % 7 == 3 else f(i) for i in range(N)]


shift = 0
same = lambda v: v
struct = pa.struct([("z", pa.int32()), ("a", pa.string())])
cols = []


def add(name, typ, values, shown=same):
    cols.append((name, typ, values, [None if v is None else shown(v) for v in values]))


add("zid", pa.string(), ["id%d" % i for i in range(N)])
add("prompt", pa.string(), every(lambda i: "prompt %d \u00e9\u2028" % i * (i % 3)))
add("bool", pa.bool_(), every(lambda i: i % 3 == 0))
add("runs", pa.bool_(), [i > 25 for i in range(N)])
add("i8", pa.int8(), every(lambda i: -i))
add("u8", pa.uint8(), every(lambda i: 255 - i))
add("i32", pa.int32(), every(lambda i: (-1) ** i * (2**31 - 1 - i)))
add("u32", pa.uint32(), every(lambda i: 2**32 - 1 - i))
add("u64", pa.uint64(), every(lambda i: 2**64 - 1 - i))
add("i64", pa.int64(), every(lambda i: 2**62 - i * 2**i))
add("req", pa.int64(), [i * i for i in range(N)])
add("f16", pa.float16(), every(lambda i: i - 0.5))
add("f32", pa.float32(), every(lambda i: i / 4))
add("f64", pa.float64(), every(lambda i: i / 1024 - 3))
add("bin", pa.binary(), every(lambda i: bytes([i, 255, 0])), hexed)
add("lstr", pa.large_string(), every(lambda i: "L%d" % (i // 5)))
add("fsb", pa.binary(6), every(lambda i: b"%06d" % i), hexed)
add("date", pa.date32(), every(lambda i: dt.date(1969, 12, 1) + dt.timedelta(days=40 * i)), lambda d: d.isoformat())
add("t_ms", pa.time32("ms"), every(lambda i: i * 1234567 % 86400000), lambda v: clock(v, 1000))
add("t_us", pa.time64("us"), every(lambda i: i * 1234567891 % 86400000000), lambda v: clock(v, 10**6))
add("t_ns", pa.time64("ns"), every(lambda i: i * 1000 + 7), lambda v: clock(v, 10**9))
add("ts_ms", pa.timestamp("ms", "UTC"), every(lambda i: 1700000000000 - i**8), lambda v: stamp(v, 1000, True))
add("ts_us", pa.timestamp("us"), every(lambda i: 1700000000000000 + i), lambda v: stamp(v, 10**6, False))
add("ts_ns", pa.timestamp("ns", "Asia/Tokyo"), every(lambda i: -1700000000000000000 + i), lambda v: stamp(v, 10**9, True))
add("d9", pa.decimal128(9, 2), every(lambda i: D(i * 100 - 7) / 100), lambda v: format(v, ".2f"))
add("d18", pa.decimal128(18, 4), every(lambda i: D(-i).scaleb(-4)), lambda v: format(v, ".4f"))
add("d38", pa.decimal128(38, 0), every(lambda i: D(-(10**30)) + i), lambda v: format(v, ".0f"))
add("d76", pa.decimal256(76, 10), every(lambda i: D(3 * i).scaleb(-10)), lambda v: format(v, ".10f"))
add("list", pa.list_(pa.string()), every(lambda i: [None if k == 1 else "e%d" % (i + k) for k in range(i % 4)]))
add("llist", pa.list_(pa.list_(pa.int64())), every(lambda i: [None if k == 2 else list(range(k)) for k in range(i % 5)]))
add("fsl", pa.list_(pa.float32(), 3), [[i, i + 0.5, i - 0.25] for i in range(N)], lambda v: [float(x) for x in v])
add("map", pa.map_(pa.string(), pa.int64()), every(lambda i: [("k%d" % k, None if k == 1 else k) for k in range(i % 3)]), dict)
add("imap", pa.map_(pa.int32(), pa.string()), every(lambda i: [(k, "v") for k in range(i % 3)]), lambda v: [{"key": k, "value": x} for k, x in v])
add("struct", struct, every(lambda i: {"z": i, "a": None if i % 2 else "s"}))
add("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
    every(lambda i: [{"role": "user", "content": "hi %d" % i}, {"role": "assistant", "content": None}][: i % 3]))
add("deep", pa.struct([("l", pa.list_(pa.struct([("m", pa.list_(pa.int32())), ("s", struct)])))]),
    every(lambda i: {"l": None if i % 4 == 0 else [{"m": None if k else list(range(i % 3)), "s": None if i % 2 else {"z": k, "a": "x"}} for k in range(i % 4)]}))
add("dict", pa.dictionary(pa.int32(), pa.string()), every(lambda i: "xy"[i % 2]))
add("null", pa.null(), [None] * N)

fields = [pa.field(n, t, nullable=n not in ("zid", "runs", "req")) for n, t, _, _ in cols]
arrays = [pa.array(v, type=t) if not pa.types.is_dictionary(t) else pa.array(v).dictionary_encode().cast(t) for _, t, v, _ in cols]
table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata={"who": "make_parquet.py"}))


def expect(path, names):
    with open(path, "w") as f:
        for i in range(N):
            f.write(json.dumps({n: s[i] for n, _, _, s in cols if n in names}, ensure_ascii=False, separators=(",", ":")) + "\n")


expect("types.jsonl", [c[0] for c in cols])
write = lambda name, **o: pq.write_table(table, name + ".parquet", **{"row_group_size": 16, "write_statistics": False, **o})
write("v1_snappy", write_statistics=True)
write("v2_zstd", data_page_version="2.0", compression="zstd", data_page_size=64, write_batch_size=4, write_page_checksum=True)
write("v1_gzip_plain", compression="gzip", use_dictionary=False, data_page_size=64, write_batch_size=4)
write("v2_none_plain", data_page_version="2.0", compression="none", use_dictionary=False)
write("v1_brotli", compression="brotli", row_group_size=40)
write("v1_lz4raw", compression="lz4", row_group_size=40)
write("v2_lz4raw", data_page_version="2.0", compression="lz4", row_group_size=7)

# every encoding that a writer can be told to use
enc = {"req": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "i32": "DELTA_BINARY_PACKED", "f32": "BYTE_STREAM_SPLIT",
       "f64": "BYTE_STREAM_SPLIT", "fsb": "BYTE_STREAM_SPLIT", "prompt": "DELTA_BYTE_ARRAY", "bin": "DELTA_LENGTH_BYTE_ARRAY",
       "zid": "DELTA_BYTE_ARRAY", "lstr": "DELTA_LENGTH_BYTE_ARRAY", "u64": "BYTE_STREAM_SPLIT", "runs": "RLE", "bool": "RLE", "u32": "DELTA_BINARY_PACKED"}
for v in "1.0", "2.0":
    pq.write_table(table.select(list(enc)), "encodings_v%s.parquet" % v[0], use_dictionary=False, column_encoding=enc, data_page_version=v, row_group_size=25)

# the deprecated 96-bit timestamps of Impala and Spark
pq.write_table(table.select(["zid", "ts_ns", "ts_us"]), "int96.parquet", use_deprecated_int96_timestamps=True)

# no rows, and an empty row group between others
pq.write_table(table.slice(0, 0), "empty.parquet")
with pq.ParquetWriter("emptygroup.parquet", table.select(["zid", "list"]).schema) as w:
    for a, b in (0, 5), (5, 0), (5, 35):
        w.write_table(table.select(["zid", "list"]).slice(a, b))

# long runs of booleans, delta-packed numbers of every width, and strings over many pages
M = 3000
long = pa.table({"b": [i // 700 % 2 == 1 or i % 1000 == 5 for i in range(M)], "n": [(i * i * 7919) % (1 << (1 + i // 50)) for i in range(M)],
                 "s": ["%d" % (i // 9) * (i % 5) for i in range(M)], "l": [list(range(i % 4)) for i in range(M)]})
pq.write_table(long, "long.parquet", data_page_version="2.0", use_dictionary=["s"], data_page_size=512, write_batch_size=32,
               column_encoding={"b": "RLE", "n": "DELTA_BINARY_PACKED", "l.list.element": "DELTA_BINARY_PACKED"})

# what DuckDB writes
duck = table.select(["zid", "prompt", "bool", "i8", "u8", "i32", "u32", "u64", "i64", "f32", "f64", "date", "d9", "d18", "list", "llist", "map", "struct", "messages", "deep"])
duckdb.sql("copy duck to 'duckdb.parquet' (format parquet, row_group_size 16)")
duckdb.sql("copy duck to 'duckdb_v2.parquet' (format parquet, parquet_version v2, compression zstd)")

written = pq.read_metadata("v1_snappy.parquet").created_by
print("written by", written, "and duckdb", duckdb.__version__)
