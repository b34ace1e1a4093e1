#!/usr/bin/env python3
"""Compares lines of JSON with the rows of the Parquet file that they were written from: verify_json.py SOURCE LINES."""
import base64
import datetime as dt
import decimal
import json
import math
import struct
import sys

import pyarrow as pa
import pyarrow.parquet as pq


def seconds(t):
    text = t.isoformat()
    return text.rstrip("0") if "." in text else text


def plain(v, t):
    """What DESIGN's rules make of a Python value of an Arrow type."""
    if isinstance(t, pa.BaseExtensionType):
        t = t.storage_type if not isinstance(t, pa.UuidType) else t
    if v is None:
        return None
    if pa.types.is_floating(t):
        v = float(v)
        return v if math.isfinite(v) else None
    if pa.types.is_decimal(t):
        return format(v, "f")
    if pa.types.is_timestamp(t):
        if t.tz:
            return seconds(v.astimezone(dt.timezone.utc).replace(tzinfo=None)) + "Z"
        return seconds(v)
    if pa.types.is_date(t):
        return v.isoformat()
    if pa.types.is_time(t):
        return seconds(v)
    if pa.types.is_duration(t):
        return int(v / dt.timedelta(microseconds=1))
    if isinstance(t, pa.UuidType):
        return str(v)
    if pa.types.is_map(t):
        return {k if isinstance(k, str) else json.dumps(k): plain(x, t.item_type) for k, x in v}
    if pa.types.is_struct(t):
        return {f.name: plain(v[f.name], f.type) for f in t}
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t):
        return [plain(x, t.value_type) for x in v]
    if isinstance(v, bytes):
        return base64.b64encode(v).decode()
    return v


def single(t):
    return pa.types.is_float32(t) or pa.types.is_float16(t)


def main():
    table = pq.read_table(sys.argv[1])
    lines = [json.loads(line, parse_float=decimal.Decimal) for line in open(sys.argv[2], newline="\n", encoding="utf-8")]
    bad = 0
    for i, got in enumerate(lines):
        for f in table.schema:
            value = table.column(f.name)[i].as_py()
            want = plain(value, f.type)
            if isinstance(f.type, pa.JsonType if hasattr(pa, "JsonType") else ()) or f.name == "js":
                want = json.loads(want, parse_float=decimal.Decimal)
            have = got[f.name]
            if single(f.type) and have is not None:
                have = struct.unpack("f", struct.pack("f", float(have)))[0]
            if isinstance(want, float):
                have = float(have)
            if have != want:
                print(f"row {i} column {f.name} ({f.type}): got {have!r}, want {want!r}")
                bad = 1
    sys.exit(bad)


if __name__ == "__main__":
    main()
