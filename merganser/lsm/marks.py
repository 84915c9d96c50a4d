"""Marks: the rows of older files that a compaction marks as deleted, since newer files replace them.

In a table with deletion vectors each key has one row above level 0 that no vector marks, so a read needs no merge. A
compaction that takes level 0 preserves this::

    level 0    k2 k5 k9    picked: goes up
    level 4    k1 k5 k7    stays: k5 is looked up by its key and marked
    level 5    k2 k3 k4    stays: k2 likewise

The compaction needs only the keys of the older files (`lsm.stored_keys`). If the newer row does not always win, the
compaction merges the found rows with it, as one more run per level.

Format: sections "deletion vectors", "lookup compaction".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from merganser.codec.deletion_vector import Positions
from merganser.files.masks import united
from merganser.lsm.key_image import Asked
from merganser.lsm.runs import open_runs
from merganser.lsm.section import SectionReader
from merganser.lsm.stored_keys import find, reached
from merganser.merge.deduplicate import Deduplicate
from merganser.merge.rules import Merge
from merganser.merge.sort_merge import WINDOW_ROWS, windows
from merganser.meta.data_file import DataFile
from merganser.storage.cache import Cache

LOOKUP_KEYS: Final = 1_000_000
"""Approximate number of keys to look up at a time."""

Columns = list[pa.Array]


def replaced(
    reader: SectionReader, young: Sequence[DataFile], older: Sequence[DataFile], cache: Cache
) -> dict[str, Positions]:
    """Return, by file, the rows of older files whose keys a younger file also holds.

    Args:
        reader: the reader of the bucket; it skips rows that its vectors mark already.
        young: the younger files, each a sorted run.
        older: files above level 0, in any order.
        cache: where the keys of older files are kept; see `lsm.stored_keys`.

    Returns:
        Rising positions; only files that have such rows.
    """
    found: dict[str, list[Positions]] = {}
    if young and older:
        for keys in _chunks(_distinct_keys(reader, young)):
            asked = Asked(tuple(keys), reader.table.key_types)
            for file, first, end in reached(reader, asked, older):
                _, at = find(reader, file, asked.slice(first, end), cache)
                if len(at):
                    found.setdefault(file.name, []).append(at)
    return {name: united(parts) for name, parts in found.items()}


def wins_unseen(merge: Merge, young: Sequence[DataFile], older: Sequence[DataFile]) -> bool:
    """Return whether a row of a younger file always replaces an older row, whatever values the older row holds."""
    if not isinstance(merge.engine, Deduplicate) or merge.order is not None or merge.ignore_delete:
        return False
    # Of two concurrent writers, the one that committed first may have used the larger sequence numbers.
    return not young or not older or min(f.min_sequence for f in young) > max(f.max_sequence for f in older)


def _distinct_keys(reader: SectionReader, files: Sequence[DataFile]) -> Iterator[Columns]:
    """Yield the keys of sorted runs, each key once and in key order, some at a time."""
    names = reader.table.key
    fields = [reader.table.schema.field(name) for name in names]
    with open_runs(reader.storage, [[file] for file in files], lambda file: reader.opened(file, fields)) as runs:
        for window in windows(runs, key=names, window_rows=WINDOW_ROWS):
            at = pa.array(window.positions[window.is_last])
            yield [window.rows.column(name).take(at).combine_chunks() for name in names]


def _chunks(parts: Iterator[Columns]) -> Iterator[Columns]:
    """Yield stretches of keys put together to about `LOOKUP_KEYS`."""
    held: list[Columns] = []
    for part in parts:
        held.append(part)
        if sum(len(columns[0]) for columns in held) >= LOOKUP_KEYS:
            yield [pa.concat_arrays(columns) for columns in zip(*held, strict=True)]
            held = []
    if held:
        yield [pa.concat_arrays(columns) for columns in zip(*held, strict=True)]
