"""The lookups of `lookups.py` by a table of DuckDB with a primary key."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from . import asked
from .data import load

warm_up = lambda: None  # noqa: E731 - the store opens at once


def make(table: str, base: str) -> Callable[[], int]:
    """Write the base into a table with a primary key."""
    rows = load(base)
    Path(table).parent.mkdir(parents=True, exist_ok=True)

    def action() -> int:
        with duckdb.connect(table) as store:
            store.execute("CREATE TABLE t AS SELECT * FROM rows LIMIT 0")
            store.execute("ALTER TABLE t ADD PRIMARY KEY (k)")
            store.execute("INSERT INTO t SELECT * FROM rows")
        np.save(str(Path(table).with_suffix(".keys.npy")), rows["k"].to_numpy())
        return int(rows.num_rows)

    return action


def lookups(table: str, copies: str, key_space: int) -> Callable[[], dict[str, Any]]:
    """Look keys up."""
    keys = np.load(str(Path(table).with_suffix(".keys.npy")))

    def action() -> dict[str, Any]:
        start = time.perf_counter()
        store = duckdb.connect(table, read_only=True)
        store.execute("SELECT * FROM t WHERE k = 0").fetchall()
        prepared = time.perf_counter() - start

        def many(some: np.ndarray) -> int:
            asked_keys = pa.table({"k": some})  # noqa: F841 - the statement names it
            return int(store.execute("SELECT t.* FROM asked_keys JOIN t USING (k)").fetch_arrow_table().num_rows)

        def one(key: int) -> object:
            return store.execute("SELECT * FROM t WHERE k = ?", [key]).fetchall()

        return {**asked.measures(keys, one, many), "prepare_seconds": prepared}

    return action
