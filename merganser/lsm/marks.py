"""Marks: the rows of older files that a compaction marks as deleted, since newer files replace them.

In a table with deletion vectors each key has one row above level 0 that no vector marks, so a read needs no merge. A
compaction that takes level 0 preserves this::

    level 0    k2 k5 k9    picked: goes up
    level 4    k1 k5 k7    stays: k5 is looked up by its key and marked
    level 5    k2 k3 k4    stays: k2 likewise

The compaction reads only the key columns of the older files, and only of row groups that may hold one of the keys. If
the newer row does not always win, the compaction merges the found rows with it, as one more run per level.

Format: sections "deletion vectors", "lookup compaction".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import deserialize_columns
from merganser.codec.deletion_vector import Positions
from merganser.commit.message import CommitMessage
from merganser.files.masks import BucketVectors, changed, united
from merganser.files.read import DataFileReader
from merganser.lsm.levels import dense_ranks
from merganser.lsm.section import SectionReader
from merganser.merge.deduplicate import Deduplicate
from merganser.merge.keys import integer_image
from merganser.merge.rules import Merge
from merganser.merge.sort_merge import WINDOW_ROWS, windows
from merganser.meta.data_file import DataFile
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.table_def import TableDef
from merganser.schema.table_schema import POSITION
from merganser.storage.env import Env

LOOKUP_KEYS: Final = 1_000_000
"""Approximate number of keys to look up at a time."""

Columns = list[pa.Array]


def replaced(reader: SectionReader, young: Sequence[DataFile], older: Sequence[DataFile]) -> dict[str, Positions]:
    """Return, by file, the rows of older files whose keys a younger file also holds.

    Args:
        reader: the reader of the bucket; it skips rows that its vectors mark already.
        young: the younger files, each a sorted run.
        older: files above level 0, in any order.

    Returns:
        Rising positions; only files that have such rows.
    """
    found: dict[str, list[Positions]] = {}
    if young and older:
        for keys in _chunks(_distinct_keys(reader, young)):
            for file, asked in _reached(reader, keys, older):
                with contextlib.closing(narrowed(reader, file, asked)) as opened:
                    while (rows := opened.read(WINDOW_ROWS)) is not None:
                        at = _matches(rows, reader.table.key, asked)
                        if len(at):
                            found.setdefault(file.name, []).append(rows.column(POSITION.name).to_numpy()[at])
    return {name: united(parts) for name, parts in found.items()}


def wins_unseen(merge: Merge, young: Sequence[DataFile], older: Sequence[DataFile]) -> bool:
    """Return whether a row of a younger file always replaces an older row, whatever values the older row holds."""
    if not isinstance(merge.engine, Deduplicate) or merge.order is not None or merge.ignore_delete:
        return False
    # Of two concurrent writers, the one that committed first may have used the larger sequence numbers.
    return not young or not older or min(f.min_sequence for f in young) > max(f.max_sequence for f in older)


def deletion_messages(
    table: TableDef,
    env: Env,
    live: LiveFiles,
    vectors: Mapping[BucketId, BucketVectors],
    deleted: Mapping[BucketId, Mapping[str, Positions]],
) -> list[CommitMessage]:
    """Write the deletion vectors that hide rows of a table without a key, and return what to commit.

    Args:
        live, vectors: those of the state in which the rows were found. The commit is refused if these data files have
            changed since.
        deleted: rising positions of rows, by bucket and data file.

    Returns:
        A message per bucket; its index files are durable.

    Raises:
        FormatError: the vectors there are damaged; nothing was changed.
    """
    messages: list[CommitMessage] = []
    for bucket, marked in deleted.items():
        change = changed(table, env, bucket, vectors.get(bucket, BucketVectors()), marked=marked)
        if change.added:
            total = live.buckets[bucket].total_buckets
            messages.append(CommitMessage(*bucket, total, (), (), change.added, change.removed))
    return messages


def _distinct_keys(reader: SectionReader, files: Sequence[DataFile]) -> Iterator[Columns]:
    """Yield the keys of sorted runs, each key once and in key order, some at a time."""
    names = reader.table.key
    fields = [reader.table.schema.field(name) for name in names]
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(contextlib.closing(reader.opened(file, fields))) for file in files]
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


def _reached(
    reader: SectionReader, keys: Columns, files: Sequence[DataFile]
) -> Iterator[tuple[DataFile, Columns]]:  # fmt: skip
    """Yield the files in whose key range some of the keys lie, with those keys."""
    types = reader.table.key_types
    low = deserialize_columns([file.min_key for file in files], types)
    high = deserialize_columns([file.max_key for file in files], types)
    ends = [pa.concat_arrays([a.cast(k.type), b.cast(k.type)]) for a, b, k in zip(low, high, keys, strict=True)]
    asked, bounds = dense_ranks(keys, ends)
    for i, file in enumerate(files):
        first = int(np.searchsorted(asked, bounds[i], side="left"))
        end = int(np.searchsorted(asked, bounds[len(files) + i], side="right"))
        if first < end:
            yield file, [column.slice(first, end - first) for column in keys]


def narrowed(reader: SectionReader, file: DataFile, asked: Columns) -> DataFileReader:
    """Return the keys and positions of a file, opened at the row groups that may hold one of the keys asked for."""
    names = reader.table.key
    opened = reader.opened(file, [reader.table.schema.field(name) for name in names], positions=True)
    try:
        bounds = None if asked[0].null_count else opened.group_bounds(names[0])  # bounds say nothing of nulls
        if bounds is not None:
            low, high = (bound.cast(asked[0].type) for bound in bounds)
            values, ends = dense_ranks([asked[0]], [pa.concat_arrays([low, high])])
            first = np.searchsorted(values, ends[: len(low)], side="left")
            end = np.searchsorted(values, ends[len(low) :], side="right")
            unknown = np.asarray(pc.or_(low.is_null(), high.is_null()))
            opened.keep_groups((first < end) | unknown)
    except BaseException:
        opened.close()
        raise
    return opened


def _matches(rows: pa.Table, names: Sequence[str], asked: Columns) -> Positions:
    """Return which rows have one of the keys.

    Args:
        rows: with the key columns `names`, in key order.
        asked: key columns, in key order.
    """
    columns = [rows.column(name) for name in names]
    if not rows.num_rows:
        return np.empty(0, np.int64)
    if len(columns) == 1:
        held, wanted = integer_image(columns[0]), integer_image(pa.chunked_array([asked[0]]))
        if held is not None and wanted is not None:
            at = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
            found: Positions = at[held[at] == wanted]
            return found
    maybe = np.ones(rows.num_rows, np.bool_)
    for column, values in zip(columns, asked, strict=True):  # a hash of each column alone leaves few to compare
        maybe &= np.asarray(pc.is_in(column, value_set=values.unique()).combine_chunks())
    at = np.flatnonzero(maybe)
    if not len(at):
        return at
    taken = pa.array(at)
    held, wanted = dense_ranks([column.take(taken).combine_chunks() for column in columns], asked)
    return at[np.isin(held, wanted)]
