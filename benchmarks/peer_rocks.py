"""The lookups of `lookups.py` by RocksDB: the key as eight bytes, the row as JSON, which a lookup parses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import Options, Rdict, SstFileWriter

from . import asked
from .data import load

warm_up = lambda: None  # noqa: E731 - the store opens at once
_PIECE = 100_000


def make(table: str, base: str) -> Callable[[], int]:
    """Write the base as one sorted file of the store."""
    rows = load(base).sort_by("k")
    Path(table).parent.mkdir(parents=True, exist_ok=True)

    def action() -> int:
        file = str(Path(table).with_suffix(".sst"))
        writer = SstFileWriter(options=Options(raw_mode=True))
        writer.open(file)
        for at in range(0, rows.num_rows, _PIECE):
            for row in rows.slice(at, _PIECE).to_pylist():
                writer[int(row["k"]).to_bytes(8, "big")] = json.dumps(row, default=str).encode()
        writer.finish()
        store = Rdict(table, options=Options(raw_mode=True))
        store.ingest_external_file([file])
        store.close()
        np.save(str(Path(table).with_suffix(".keys.npy")), rows["k"].to_numpy())
        return int(rows.num_rows)

    return action


def lookups(table: str, copies: str, key_space: int) -> Callable[[], dict[str, Any]]:
    """Look keys up."""
    keys = np.load(str(Path(table).with_suffix(".keys.npy")))

    def action() -> dict[str, Any]:
        start = time.perf_counter()
        store = Rdict(table, options=Options(raw_mode=True))
        prepared = time.perf_counter() - start

        def one(key: int) -> object:
            found = store.get(key.to_bytes(8, "big"))
            return None if found is None else json.loads(found)

        def many(some: np.ndarray) -> int:
            found = store.get([key.to_bytes(8, "big") for key in some.tolist()])
            return len([json.loads(row) for row in found if row is not None])

        return {**asked.measures(keys, one, many), "prepare_seconds": prepared}

    return action
