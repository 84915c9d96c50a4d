"""Positions of stored rows that do not count: a deletion vector marks them, or a newer file has their keys.

DuckDB finds the rows that two files share by joining their key columns. The positions are kept in the cache of the
table, as a compressed bitmap for each two files, since files never change. A commit adds files, so that only the pairs
with these are joined again.

Memory: of rows that are hidden, at most 2 bytes each and a byte per row of one file; DuckDB spills the join.

Docs: decision 0076.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from merganser.files.masks import load
from merganser.files.plain import FILE_INDEX, FILE_ROW, PlainFile
from merganser.scan.plain import FileGroup, PlainScan
from merganser.sql.query.kinds import quoted, string
from merganser.storage.env import Env

_BATCH: Final = 1 << 20
_HEAD: Final = 256
"""Bytes of an empty bitmap, and its place in the cache."""


def hidden_masks(
    connect: Callable[[], duckdb.DuckDBPyConnection], found: PlainScan, group: FileGroup
) -> Iterator[npt.NDArray[np.bool_] | None]:
    """Yield, for each file of a group, which of its rows do not count. None if all rows count.

    Args:
        connect: returns a connection to DuckDB. It is called if the process does not know the positions yet.
    """
    env = found.scan.env
    by_keys = _by_keys(connect, env, found.key, group) if group.newer else {}
    for file in group.files:
        parts: list[npt.NDArray[np.integer]] = [
            np.frombuffer(rows.to_array(), np.uint32) for rows in by_keys.get(file.path, ()) if rows
        ]
        if file.vector is not None:
            parts.append(load(env.storage, file.vector, file.rows))
        if not any(map(len, parts)):
            yield None
            continue
        mask = np.zeros(file.rows, np.bool_)
        for part in parts:
            mask[part] = True
        yield mask


def files_text(files: Sequence[PlainFile], *, rows: bool = False) -> str:
    """Return the call by which DuckDB reads files.

    Args:
        rows: also number the rows of each file.
    """
    # Statistics of Parquet leave NaN out, so without `can_have_nan` DuckDB would skip it, and find a smaller maximum.
    paths = ", ".join(string(file.path) for file in files)
    more = f", {FILE_ROW} = true" if rows else ""
    return f"read_parquet([{paths}], hive_partitioning = false, union_by_name = false, can_have_nan = true{more})"


def _by_keys(
    connect: Callable[[], duckdb.DuckDBPyConnection], env: Env, key: Sequence[str], group: FileGroup
) -> dict[str, list[BitMap]]:
    """Return by file the rows that newer files hide: for each of these the positions."""
    held: dict[tuple[str, str], BitMap | None] = {
        (file.path, newer.path): env.cache.get(_cached(file, newer))
        for file in group.files
        for newer in group.newer.get(file.path, ())
    }
    missing = {pair for pair, rows in held.items() if rows is None}
    if missing:
        older = [file for file in group.files if any((file.path, n.path) in missing for n in group.newer[file.path])]
        above = {n.path: n for file in older for n in group.newer[file.path] if (file.path, n.path) in missing}
        made = _joined(connect(), key, older, list(above.values()))
        for file in older:
            for newer in group.newer[file.path]:
                pair = file.path, newer.path
                if pair in missing:
                    rows = made.get(pair, BitMap())
                    held[pair] = rows
                    env.cache.put(_cached(file, newer), rows, _HEAD + len(rows.serialize()))
    out: dict[str, list[BitMap]] = {}
    for (path, _), positions in held.items():
        assert positions is not None
        out.setdefault(path, []).append(positions)
    return out


def _cached(file: PlainFile, newer: PlainFile) -> tuple[str, str, str]:
    return "hidden", file.path, newer.path


def _joined(
    connection: duckdb.DuckDBPyConnection, key: Sequence[str], files: Sequence[PlainFile], newer: Sequence[PlainFile]
) -> dict[tuple[str, str], BitMap]:
    """Return, by file and newer file, the rows of the first whose keys the second has."""
    keys = ", ".join(map(quoted, key))
    on = " AND ".join(f"f.{quoted(name)} IS NOT DISTINCT FROM n.{quoted(name)}" for name in key)
    rows = connection.sql(
        f"SELECT f.{FILE_INDEX} AS file, n.newer AS newer, f.{FILE_ROW} AS row FROM {files_text(files, rows=True)} f "
        f"JOIN (SELECT {keys}, {FILE_INDEX} AS newer FROM {files_text(newer)}) n ON {on}"
    ).to_arrow_reader(_BATCH)
    found: dict[tuple[str, str], BitMap] = {}
    for batch in rows:
        file, other, row = (batch.column(i).to_numpy().astype(np.int64) for i in range(3))
        pair = file * len(newer) + other
        order = np.argsort(pair, kind="stable")
        pair, row = pair[order], row[order].astype(np.uint32)
        cuts = np.flatnonzero(np.diff(pair, prepend=-1))
        for i, positions in zip(pair[cuts].tolist(), np.split(row, cuts[1:]), strict=True):
            a, b = divmod(i, len(newer))
            path = files[a].path, newer[b].path
            buffer: Any = positions  # pyroaring takes a buffer whole, and anything else number by number
            found[path] = found.get(path, BitMap()) | BitMap(memoryview(buffer))
    return found
