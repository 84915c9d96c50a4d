"""The actions of `tpch.py`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import merganser as mg

from .tpch_data import KEYS, QUERIES

_BATCH = 65_536


def warm_up() -> None:
    """Nothing: each action runs all queries once before it measures."""


def build(data: str) -> Callable[[], int]:
    """Make the tables of both databases from the files of the generator."""

    def action() -> int:
        made = Path(data) / "making-warehouse"
        catalog = mg.catalog(str(made))
        rng, rows = np.random.default_rng(7), 0
        for database in ("append", "keyed"):
            catalog.create_database(database)
        for name, key in KEYS.items():
            file = pq.ParquetFile(Path(data) / "files" / f"{name}.parquet")
            schema = pa.schema(
                field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field
                for field in file.schema_arrow
            )
            catalog.create_table(f"append.{name}", schema).write(file.iter_batches(_BATCH))
            options = {"bucket": "2", "write-only": "true"}
            keyed = catalog.create_table(f"keyed.{name}", schema, primary_key=key, options=options)
            keyed.write(file.iter_batches(_BATCH))
            every = file.read().cast(schema)
            chosen = np.sort(rng.choice(every.num_rows, max(1, every.num_rows // 10), replace=False))
            keyed.write(every.take(chosen))
            rows += every.num_rows
        made.rename(Path(data) / "warehouse")
        return rows

    return action


def plain(data: str, rounds: int) -> Callable[[], dict[str, Any]]:
    """Run the queries by DuckDB on the files."""
    connection = duckdb.connect()
    for name in KEYS:
        connection.execute(f"CREATE VIEW {name} AS FROM '{Path(data) / 'files' / name}.parquet'")
    return _measured(lambda text: connection.sql(text).to_arrow_table(), rounds)


def tables(data: str, rounds: int, database: str) -> Callable[[], dict[str, Any]]:
    """Run the queries by merganser on the tables of a database."""
    session = mg.catalog(str(Path(data) / "warehouse")).session()
    session.sql(f"USE {database}")
    return _measured(session.sql, rounds)


def _measured(run: Callable[[str], pa.Table], rounds: int) -> Callable[[], dict[str, Any]]:
    results = [repr(_comparable(run(text))) for text in QUERIES.values()]

    def action() -> dict[str, Any]:
        seconds = {}
        for number, text in QUERIES.items():
            taken = []
            for _ in range(rounds):
                start = time.perf_counter()
                run(text)
                taken.append(time.perf_counter() - start)
            seconds[f"q{number}"] = statistics.median(taken)
        return {**seconds, "seconds": sum(seconds.values()), "results": results}

    return action


def _comparable(rows: pa.Table) -> list[list[Any]]:
    """Return the values of rows; numbers with four digits, since engines divide decimals into other types."""
    return [
        [f"{float(value):.4g}" if isinstance(value, int | float | Decimal) else value for value in row.values()]
        for row in rows.to_pylist()
    ]
