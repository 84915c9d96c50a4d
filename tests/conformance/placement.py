"""Where rows lie: which bucket a key is in, and how many buckets there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.conformance.outcome import Failure, Skip
from tests.conformance.values import expected, rows_of, shown
from tests.conformance.world import World


def same_bucket_difference(world: World) -> str | None:
    """Return which keys that must share a bucket do not, or None."""
    buckets = _buckets_of_keys(world)
    kinds = dict(world.columns())
    names = world.table().primary_key
    for group in world.case["same_bucket"]:
        keys = [shown([expected(v, kinds[n]) for v, n in zip(key, names, strict=True)]) for key in group]
        lacking = [key for key in keys if key not in buckets]
        if lacking:
            return f"key {lacking[0]} is in no data file"
        if len({frozenset(buckets[key]) for key in keys}) != 1:
            return "keys of one group are in several buckets: " + ", ".join(
                f"{key} in {sorted(buckets[key])}" for key in keys
            )
    return None


def bucket_count_difference(world: World) -> str | None:
    """Return how the number of buckets differs from what was expected, or None."""
    table = world.table()
    wanted = world.case["bucket_count"]
    stated = int(table.options.get("bucket", "-1"))
    used = set(table.files().column("bucket").to_pylist())
    count = stated if stated > 0 else len(used)
    if count != wanted:
        return f"{wanted} buckets were expected, the table has {count}"
    return None if all(bucket < wanted for bucket in used) else f"files lie in the buckets {sorted(used)}"


def _buckets_of_keys(world: World) -> dict[str, set[int]]:
    """Return the buckets of every key, from the data files themselves: the public surface has no need to say."""
    table = world.table()
    names = list(table.primary_key)
    found: dict[str, set[int]] = {}
    for file in table.files().to_pylist():
        if file["file_format"] != "parquet":
            raise Skip(f"buckets of keys are read from parquet files only, not from {file['file_format']}")
        for key in _keys_of(_path_of(table.path, file["file_path"]), names, world):
            found.setdefault(key, set()).add(file["bucket"])
    return found


def _keys_of(path: Path, names: Sequence[str], world: World) -> list[str]:
    rows: Any = pq.ParquetFile(path).read(columns=names)
    return [shown(row) for row in rows_of(rows, world.columns(names))]


def _path_of(table: str, path: str) -> Path:
    plain = path.removeprefix("file:")
    for found in (Path(plain), Path(table.removeprefix("file:")) / plain):
        if found.is_file():
            return found
    inside = next(Path(table.removeprefix("file:")).rglob(Path(plain).name), None)
    if inside is None:
        raise Failure(f"the data file '{path}' is not there")
    return inside
