"""Stored keys: where the rows of some keys lie in a data file. Compactions ask this of the files below.

A file that is asked for few of its keys is read at the row groups that may hold one of them. Once half of its rows have
been read this way, the process keeps the keys of the file in memory, among the other things that it knows of immutable
files (`Env.cache`). So the cost of a compaction follows the keys that it asks for, and not the files that it asks.

A process that asks once and ends has read each row group once at most, as it would without the memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import deserialize_columns
from merganser.codec.deletion_vector import Positions
from merganser.expr.to_polars import is_among
from merganser.files.masks import load
from merganser.files.read import DataFileReader
from merganser.lsm.key_image import NOTHING, Asked, Found, HashImage, IntegerImage, equal, image_of, integers_of
from merganser.lsm.levels import dense_ranks
from merganser.lsm.section import SectionReader
from merganser.meta.data_file import DataFile
from merganser.schema import types as t
from merganser.schema.table_schema import POSITION, VALUE_KIND
from merganser.storage.cache import Cache
from merganser.values import dataclass

_READ_ROWS: Final = 1 << 16
_ROW_BYTES: Final = 8
"""What an image takes for a row; beside it lie the keys, if they are no single numbers."""
_SHARE_MAX: Final = 4
"""The keys of one file take a quarter of the memory at most."""


@dataclass(frozen=True)
class _Keys:
    """The keys of a data file.

    Attributes:
        columns: the key columns of all rows; none where the image holds the keys themselves.
        retractions: rising positions of the rows that take a key back.
    """

    image: IntegerImage | HashImage
    columns: tuple[pa.Array, ...]
    retractions: Positions

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        parts = sum(part.nbytes for part in self.image.parts)
        return int(parts + sum(column.nbytes for column in self.columns) + self.retractions.nbytes)

    def find(self, asked: Asked) -> Found:
        """Return which keys are there, and where."""
        if isinstance(self.image, IntegerImage):
            if asked.integers is not None:
                return self.image.find(asked)
            some = np.flatnonzero(pc.is_valid(asked.columns[0]).to_numpy(zero_copy_only=False))
            which, at = self.image.find(asked.take(some))  # keys that are one number are not null
            return some[which], at
        which, at = self.image.find(asked)
        taken = pa.array(at)
        same = equal([column.take(taken) for column in self.columns], asked, which)
        return which[same], at[same]


@dataclass
class _Known:
    """What a process knows of the keys of a file: how many rows it has read of them, and then the keys."""

    rows_read: int = 0
    keys: _Keys | None = None


def find(reader: SectionReader, file: DataFile, asked: Asked, cache: Cache, *, additions: bool = False) -> Found:
    """Return which keys have a row in a file that no vector marks, and where.

    Args:
        reader: of the bucket; what it has in `only` does not count.
        additions: pass over rows that take a key back.

    Raises:
        FormatError: the file is damaged or missing.
    """
    table = reader.table
    reader = replace(reader, only={}) if reader.only else reader
    path = reader.target(file).path
    place = ("keys", path, table.key, table.key_types)
    known: _Known = cache.get(place) or _Known()
    if known.keys is None:
        with contextlib.closing(narrowed(reader, file, asked, kind=additions)) as opened:
            known.rows_read += opened.rows
            wide = 0 if asked.integers is not None else max(len(file.min_key), len(file.max_key))
            bytes_needed = file.row_count * (_ROW_BYTES + wide)
            if 2 * known.rows_read < file.row_count or bytes_needed > cache.weight_max // _SHARE_MAX:
                cache.put(place, known, 1)
                return found_in(opened, reader, asked, additions=additions)
        known = _Known(known.rows_read, _read_keys(reader, file))
        assert known.keys is not None
        cache.put(place, known, known.keys.weight)
    assert known.keys is not None
    which, at = known.keys.find(asked)
    if additions and len(known.keys.retractions):
        which, at = _without(which, at, known.keys.retractions)
    vector = reader.vectors.get(file.name)
    if vector is not None and len(which):
        which, at = _without(which, at, load(reader.storage, vector, file.row_count))
    return which, at


def found_in(opened: DataFileReader, reader: SectionReader, asked: Asked, *, additions: bool = False) -> Found:
    """Return which keys have a row among those that a reader of `narrowed` has left, and where."""
    names = reader.table.key
    which: list[Positions] = []
    at: list[Positions] = []
    while (rows := opened.read(_READ_ROWS)) is not None:
        if additions and not opened.noted_inserts:
            rows = rows.filter(pa.array((rows.column(VALUE_KIND.name).to_numpy() & 1) == 0))
        if not rows.num_rows:
            continue
        columns = [rows.column(name).combine_chunks() for name in names]
        image = image_of(columns, reader.table.key_types)
        keys, places = _Keys(image, tuple(columns), NOTHING[0]).find(asked)
        which.append(keys)
        at.append(rows.column(POSITION.name).to_numpy()[places])
    if not which:
        return NOTHING
    keys, places = np.concatenate(which), np.concatenate(at)
    order = np.argsort(keys, kind="stable")
    return keys[order], places[order]


def reached(
    reader: SectionReader, asked: Asked, files: Sequence[DataFile]
) -> Iterator[tuple[DataFile, int, int]]:  # fmt: skip
    """Yield the files in whose key range some of the keys lie, and the range of these keys among all."""
    if not len(asked) or not files:
        return
    kinds = reader.table.key_types
    low = deserialize_columns([file.min_key for file in files], kinds)
    high = deserialize_columns([file.max_key for file in files], kinds)
    keys, lowest, highest = asked.integers, integers_of(low), integers_of(high)
    if keys is None or lowest is None or highest is None:
        ends = [
            pa.concat_arrays([a.cast(k.type), b.cast(k.type)]) for a, b, k in zip(low, high, asked.columns, strict=True)
        ]
        keys, bounds = dense_ranks(asked.columns, ends)
        lowest, highest = bounds[: len(files)], bounds[len(files) :]
    first, end = np.searchsorted(keys, lowest, side="left"), np.searchsorted(keys, highest, side="right")
    for file, begin, stop in zip(files, first.tolist(), end.tolist(), strict=True):
        if begin < stop:
            yield file, begin, stop


def narrowed(reader: SectionReader, file: DataFile, asked: Asked, *, kind: bool = False) -> DataFileReader:
    """Return the keys and positions of a file, opened at the row groups that may hold one of the keys asked for."""
    names = reader.table.key
    opened = reader.opened(file, [reader.table.schema.field(name) for name in names], positions=True, kind=kind)
    keep_reached(opened, names[0], asked)
    return opened


def rows_of(reader: SectionReader, file: DataFile, asked: Asked, fields: Sequence[t.Field]) -> pa.Table | None:
    """Return the rows of a file that have one of the keys asked for; None: it has to be asked with `find`.

    Polars leaves the others out before it decodes them, where the key is one number or text and no row is deleted.

    Args:
        fields: the columns, the key among them; numbers and kinds of the rows come, too.
    """
    name, column = reader.table.key[0], asked.columns[0]
    field = reader.table.schema.field(name)
    if len(asked.columns) > 1 or file.name in reader.vectors or is_among(name, field.type, column) is None:
        return None
    parts: list[pa.Table] = []
    among = (field, column)
    with contextlib.closing(reader.opened(file, fields, kind=True, sequence=True, among=among)) as opened:
        keep_reached(opened, name, asked)
        while (rows := opened.read(_READ_ROWS)) is not None:
            held = rows.column(name)
            parts.append(rows.filter(pc.is_in(held, column.cast(held.type))))
    return pa.concat_tables(parts) if parts else pa.table({})


def keep_reached(opened: DataFileReader, name: str, asked: Asked) -> None:
    """Leave out row groups that have none of the keys asked for; close the reader if that fails.

    Args:
        name: the first key column.
    """
    column = asked.columns[0]
    try:
        bounds = None if column.null_count else opened.group_bounds(name)  # bounds say nothing of nulls
        if bounds is not None:
            low, high = (bound.cast(column.type) for bound in bounds)
            values, ends = dense_ranks([column], [pa.concat_arrays([low, high])])
            first = np.searchsorted(values, ends[: len(low)], side="left")
            end = np.searchsorted(values, ends[len(low) :], side="right")
            unknown = np.asarray(pc.or_(low.is_null(), high.is_null()))
            opened.keep_groups((first < end) | unknown)
    except BaseException:
        opened.close()
        raise


def _read_keys(reader: SectionReader, file: DataFile) -> _Keys:
    """Read the keys of all rows of a file."""
    names = reader.table.key
    every = replace(reader, vectors={}, only={})
    parts: list[pa.Table] = []
    with contextlib.closing(
        every.opened(file, [reader.table.schema.field(name) for name in names], kind=True)
    ) as opened:
        while (rows := opened.read(_READ_ROWS)) is not None:
            parts.append(rows)
    rows = pa.concat_tables(parts)
    columns = tuple(rows.column(name).combine_chunks() for name in names)
    image = image_of(columns, reader.table.key_types)
    takes_back = np.flatnonzero(rows.column(VALUE_KIND.name).to_numpy() & 1)
    return _Keys(image, () if isinstance(image, IntegerImage) else columns, takes_back)


def _without(which: Positions, at: Positions, left_out: Positions) -> Found:
    """Return the keys found at other rows than these, which are positions that rise."""
    if not len(left_out):
        return which, at
    place = np.minimum(np.searchsorted(left_out, at), len(left_out) - 1)
    stays = left_out[place] != at
    return which[stays], at[stays]
