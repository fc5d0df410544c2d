"""A Parquet file and the same rows as JSON lines, for parquet_test.cpp.

    python parquet.py FOLDER

Writes FOLDER/rows.parquet (groups of 7 rows), FOLDER/rows.jsonl, and files that cannot be read: bytes.parquet, cut.parquet, foreign.parquet.
"""

import datetime
import decimal
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

folder = pathlib.Path(sys.argv[1])
rows = [
    {
        "text": f"row {i} ä",
        "none": None if i % 3 else f"some {i}",
        "i8": i - 50,
        "u64": 2**64 - 1 - i,
        "i64": -(2**62) + i,
        "f32": i / 8,
        "f64": i / 3,
        "flag": i % 2 == 0,
        "numbers": [j / 4 for j in range(i % 5)],
        "words": [f"w{j}" for j in range(i % 4)],
        "nested": {"a": i, "b": [{"c": f"{i}"}, {"c": None}]},
        "kind": ("red", "green")[i % 2],
    }
    for i in range(100)
]
schema = pa.schema(
    {
        "text": pa.string(), "none": pa.large_string(), "i8": pa.int8(), "u64": pa.uint64(), "i64": pa.int64(), "f32": pa.float32(),
        "f64": pa.float64(), "flag": pa.bool_(), "numbers": pa.list_(pa.float64()), "words": pa.large_list(pa.string()),
        "nested": pa.struct({"a": pa.int32(), "b": pa.list_(pa.struct({"c": pa.string()}))}),
        "kind": pa.dictionary(pa.int32(), pa.string()),
    }
)
table = pa.Table.from_pylist(rows, schema)
extra = {"day": [datetime.date(2024, 2, 29)] * 100, "price": [decimal.Decimal("12.50")] * 100}
for name, values in extra.items():
    table = table.append_column(name, pa.array(values))
pq.write_table(table, folder / "rows.parquet", row_group_size=7, compression="zstd")
with open(folder / "rows.jsonl", "w") as file:
    for row in rows:
        print(json.dumps(row | {"day": "2024-02-29", "price": "12.50"}), file=file)
pq.write_table(pa.table({"image": [b"\x00\xff"]}), folder / "bytes.parquet")
whole = (folder / "rows.parquet").read_bytes()
(folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
(folder / "foreign.parquet").write_text("text\nno parquet\n")
