"""The actions of `log_records.py`: rows written as records of a log, and read from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pyarrow as pa

from merganser.log import records
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import parse_type

_COLUMNS = {
    "id": "BIGINT NOT NULL", "name": "STRING", "qty": "INT", "price": "DOUBLE", "amount": "DECIMAL(12, 2)",
    "ok": "BOOLEAN", "day": "DATE", "at": "TIMESTAMP(6)", "seen": "TIMESTAMP(3) WITH LOCAL TIME ZONE", "note": "STRING",
}  # fmt: skip
_SCHEMA = TableSchema(
    0, tuple(t.Field(i, name, parse_type(kind)) for i, (name, kind) in enumerate(_COLUMNS.items())), 10,
    primary_keys=("id",),
)  # fmt: skip
_SECONDS = 2_000_000_000


def warm_up() -> None:
    """Write and read twenty records in each way."""
    for action in (encode, decode, encode_by_polars, decode_by_polars):
        action(20, 1)()


def encode(rows: int, seed: int) -> Callable[[], int]:
    """Write rows as records."""
    table = _rows(rows, seed)
    return lambda: len(records.encode(table, None, _SCHEMA, "upsert").values)


def decode(rows: int, seed: int) -> Callable[[], int]:
    """Read rows from records."""
    written = records.encode(_rows(rows, seed), None, _SCHEMA, "upsert")
    return lambda: len(records.decode(written.keys, written.values, _SCHEMA)[0])


def encode_by_polars(rows: int, seed: int) -> Callable[[], int]:
    """Write rows as JSON: the floor."""
    frame = pl.DataFrame(_rows(rows, seed))
    return lambda: len(frame.to_struct().struct.json_encode())


def decode_by_polars(rows: int, seed: int) -> Callable[[], int]:
    """Decode the same texts with a fixed schema: the floor."""
    texts = pl.Series(records.encode(_rows(rows, seed), None, _SCHEMA, "all").values).cast(pl.String)
    plain = {"id": pl.Int64, "qty": pl.Int32, "price": pl.Float64, "ok": pl.Boolean}
    row = pl.Struct({name: plain.get(name, pl.String) for name in _COLUMNS if name != "amount"})
    kind = pl.Struct({"after": row, "op": pl.String})
    return lambda: len(texts.str.json_decode(kind))


def _rows(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = [
        pa.array(np.arange(rows)),
        pa.array([f"name {i % 5_000}" for i in range(rows)]),
        pa.array(rng.integers(0, 1_000, rows), pa.int32()),
        pa.array(rng.random(rows) * 1_000),
        pa.array(rng.integers(0, 10**9, rows)).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        pa.array(rng.random(rows) < 0.5),
        pa.array(rng.integers(0, 20_000, rows), pa.int32()).view(pa.date32()),
        pa.array(rng.integers(0, _SECONDS * 1_000_000, rows)).view(pa.timestamp("us")),
        pa.array(rng.integers(0, _SECONDS * 1_000, rows)).view(pa.timestamp("ms", "UTC")),
        pa.array([None if i % 7 == 0 else f"a longer text of row number {i}" for i in range(rows)]),
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema(_SCHEMA.fields))
