"""Random folders against pyarrow's own reading of them: the same rows, whole and filtered, by every way."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.schema.arrow import arrow_schema
from tests.seeds import seeds

Row = dict[str, Any]
Draw = Callable[[random.Random], Any]

WORDS = ("", "a", "ä", "long text that is cut in statistics", "z" * 20, "\U0001f986")
EPOCH = dt.datetime(1970, 1, 1)
KINDS: dict[str, tuple[tuple[pa.DataType, ...], Draw]] = {
    "n": ((pa.int8(), pa.int16(), pa.int32(), pa.int64()), lambda r: r.randint(-100, 100)),
    "f": ((pa.float32(), pa.float64()), lambda r: r.choice([0.5, -0.0, 0.0, 2.25, float("inf"), -1e10])),
    "d": (
        (pa.decimal128(5, 1), pa.decimal128(9, 2), pa.decimal128(25, 2)),
        lambda r: Decimal(r.randint(-999, 999)) / 10,
    ),
    "s": ((pa.string(), pa.large_string()), lambda r: r.choice(WORDS)),
    "b": ((pa.binary(),), lambda r: r.randbytes(r.randint(0, 20))),
    "o": ((pa.bool_(),), lambda r: r.random() < 0.5),
    "day": ((pa.date32(),), lambda r: dt.date(2000, 1, 1) + dt.timedelta(r.randint(-40_000, 40_000))),
    "at": (
        (pa.timestamp("ms"), pa.timestamp("us")),
        lambda r: EPOCH + dt.timedelta(seconds=r.randint(-(10**9), 10**9)),
    ),
    "l": (
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        lambda r: [r.choice([None, 1, 2]) for _ in range(r.randint(0, 3))],
    ),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "p": (1, 2, 30),
    "q": ("a/b", "c d", "ü=%", "01", None),
    "r": (dt.date(2024, 2, 29), dt.date(1999, 12, 31), None),
}


def drawn_folder(r: random.Random, folder: Path) -> None:
    """Write the files of a folder."""
    names = [name for name in KINDS if r.random() < 0.7] or ["n"]
    partitions = r.sample(sorted(VALUES), r.randint(0, 2))
    for i in range(r.randint(1, 6)):
        parts = []
        for name in partitions:
            value = r.choice(VALUES[name])
            parts.append(f"{name}={'__HIVE_DEFAULT_PARTITION__' if value is None else quote(str(value), safe=' ')}")
        own = [name for name in names if r.random() < 0.8] or names[:1]
        r.shuffle(own)
        count = r.choice([0, 1, 5, 40])
        columns = {}
        for name in own:
            kinds, draw = KINDS[name]
            nulls = r.choice([0.0, 0.3, 1.0])
            columns[name] = pa.array([None if r.random() < nulls else draw(r) for _ in range(count)], r.choice(kinds))
        path = folder.joinpath(*parts, *(["sub"] if r.random() < 0.2 else []), f"part-{r.choice([0, i])}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        compression = r.choice(["none", "snappy", "zstd"])
        pq.write_table(pa.table(columns), path, row_group_size=r.choice([7, 1000]), compression=compression)


def read_by_arrow(folder: Path, table: mg.Table) -> list[Row]:
    """Return the rows of a folder as pyarrow reads it, in the columns of the table."""
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(table.schema.fields)])
    partitioning = ds.partitioning(pa.schema([schema.field(name) for name in table.partition_by]), flavor="hive")
    found: list[Row] = ds.dataset(folder, schema=schema, partitioning=partitioning).to_table().to_pylist()
    return found


def conditions(r: random.Random, rows: list[Row]) -> list[tuple[str, Callable[[Row], bool]]]:
    """Return filters, as text and as a function of a row."""
    found: list[tuple[str, Callable[[Row], bool]]] = []
    for name in sorted(set().union(*rows) & {"n", "s", "d", "p", "q", "day", "at"}):
        value = r.choice(rows)[name]
        found.append((f"{name} is null", lambda row, name=name: row[name] is None))
        if value is None:
            continue
        text = str(value).replace("'", "''")
        kind = {"s": "", "q": "", "day": "DATE ", "at": "TIMESTAMP "}.get(name)
        shown = text if kind is None else f"{kind}'{text}'"
        found.append((f"{name} >= {shown}", lambda row, n=name, v=value: row[n] is not None and row[n] >= v))
        found.append((f"{name} = {shown}", lambda row, n=name, v=value: row[n] == v))
    return found


def check(seed: int, home: Path) -> None:
    r = random.Random(seed)
    folder, catalog = home / "folder", mg.catalog(str(home / "w"), options={"local.sync": "false"})
    catalog.create_database("db")
    drawn_folder(r, folder)
    for how in ("link", "keep", "copy"):
        table = catalog.migrate(folder, f"db.{how}", how=how)
        expected = read_by_arrow(folder, table)
        assert sorted(map(repr, table.read().to_pylist())) == sorted(map(repr, expected)), how
        for text, keeps in conditions(r, expected) if expected else ():
            wanted = sorted(repr(row) for row in expected if keeps(row))
            assert sorted(map(repr, table.read(where=text).to_pylist())) == wanted, (how, text)
        assert {found.code for found in table.check()} <= {"unsure"}
        if r.random() < 0.5:
            table.compact(full=True)
            assert sorted(map(repr, table.read().to_pylist())) == sorted(map(repr, expected)), how
            assert {found.code for found in table.check()} <= {"unsure"}


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", seeds(12))
def test_a_random_folder_has_the_rows_that_arrow_reads(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)
