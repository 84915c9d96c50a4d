"""Clustering: sort rows by columns, so that files and row groups cover small ranges and filters skip most of them.

There are three curves. `order` sorts by the first column, then the second; it suits filters on the first. `zorder` and
`hilbert` treat all columns alike. Each value becomes the share of rows at or below it, as a number of some bits. The
place on the curve combines the bits of all columns, so rows near each other on the curve are near in every column. The
shares come from a sample, so they are even for any values: skewed, few, or text with a common beginning.

Values have the order of keys: nulls first, NaN last, text by its bytes. Rows of the same place keep their order.

If there are more rows than the budget allows, the sort writes them to the local disk in parts that follow each other
on the curve, and sorts each part by itself. The bounds of the parts come from a sample, too. The sort cuts a part
again if it is still too large, unless all its sampled rows are equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.row_groups import ROW_GROUP_ROWS
from merganser.errors import InvalidInputError
from merganser.lsm.levels import dense_ranks
from merganser.merge.keys import sorted_positions
from merganser.merge.sort_merge import WINDOW_BYTES
from merganser.meta.table_def import TableDef
from merganser.options.registry import did_you_mean
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.values import dataclass

CURVES: Final = ("order", "zorder", "hilbert")
COLUMNS_MAX: Final = 63
"""Most columns of a curve: each has one bit of a place at least."""

SAMPLE_ROWS: Final = 65_536
_BITS_MAX: Final = 16
"""Bits of a column's share; a sample tells no more."""
_PARTS_MAX: Final = 64

Source = Callable[[Sequence[str] | None], Generator[pa.Table, None, None]]
"""Gives the rows, any number of times, always in one order: of some columns, or all."""
Place = Callable[[pa.Table], list[pa.ChunkedArray]]
"""Rows -> columns that order them."""
Cells = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Order:
    """By which columns rows are sorted, and along which curve."""

    columns: tuple[str, ...]
    curve: str = "order"


def checked_order(table: TableDef, order_by: Any, curve: Any) -> Order | None:
    """Return the order that a compaction is asked for, or None when it is asked for none.

    Raises:
        InvalidInputError: a table whose rows have an order of their own; or columns or a curve that are none.
    """
    what = f"cannot compact '{table.name}'"
    if curve not in CURVES:
        hint = did_you_mean(str(curve), CURVES)
        raise InvalidInputError(f"{what}: there is no curve '{curve}'. {hint or 'Choose ' + ', '.join(CURVES) + '.'}")
    if order_by is None:
        if curve != "order":
            raise InvalidInputError(f"{what}: curve '{curve}' goes through columns, and order_by names none.")
        return None
    if table.keyed:
        raise InvalidInputError(
            f"{what}: order_by is for tables without a key. Files of this one are sorted by "
            f"{'their columns' if table.counting else ', '.join(table.key)}, or a merge could not find equal keys."
        )
    if table.bucket != -1:
        raise InvalidInputError(
            f"{what}: order_by is for tables with 'bucket' = '-1'. This one has 'bucket' = '{table.bucket}', and "
            "keeps the rows of a bucket in the order in which they were written."
        )
    if isinstance(order_by, str) or not isinstance(order_by, Sequence) or not order_by:
        raise InvalidInputError(
            f"{what}: order_by is {order_by!r:.60}. Give a list of columns, such as ['city', 'at']."
        )
    fields = {field.name: field for field in table.schema.fields}
    for i, name in enumerate(order_by):
        if not isinstance(name, str) or name not in fields:
            raise InvalidInputError(
                f"{what}: order_by names '{name}', which is no column. {did_you_mean(str(name), list(fields))}",
                column=str(name),
            )
        if t.is_nested(fields[name].type):
            raise InvalidInputError(
                f"{what}: order_by names '{name}', a {fields[name].type}, and values of that type have no order.",
                column=name,
            )
        if name in order_by[:i]:
            raise InvalidInputError(f"{what}: order_by names '{name}' twice.", column=name)
    if len(order_by) > COLUMNS_MAX:
        raise InvalidInputError(f"{what}: order_by names {len(order_by)} columns, and {COLUMNS_MAX} are the most.")
    return Order(tuple(order_by), curve)


def ordered(source: Source, order: Order, env: Env, *, size_bytes: int, budget_bytes: int) -> Iterator[pa.Table]:
    """Yield the rows of a source in an order, in tables of some thousand rows.

    Args:
        source: the rows; read once more than they fit into memory.
        size_bytes: what they take in memory, at a guess.
        budget_bytes: what they may take; as much again is needed to sort them.

    Raises:
        StorageError: the local disk has no room for rows that do not fit into memory.
    """
    place: Place = partial(_columns, order.columns)
    if order.curve != "order" and len(order.columns) > 1:
        place = _Curve.through(_sample(source(order.columns)), order)
    yield from _sorted(source, order.columns, place, env, size_bytes, budget_bytes)


def _sorted(
    source: Source, columns: Sequence[str], place: Place, env: Env, size_bytes: int, budget_bytes: int
) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    size = 0
    with contextlib.closing(source(None)) as tables:
        for table in tables:
            held.append(table)
            size += table.nbytes
            if size > budget_bytes:
                break
        else:
            yield from _slices(held, place)
            return
    held.clear()
    parts = min(_PARTS_MAX, max(2, 2 * size_bytes // budget_bytes))
    bounds = _bounds(place(_sample(source(columns))), parts)
    if bounds is None:
        yield from source(None)
        return
    count = len(bounds[0]) + 1
    with env.spill() as spill:
        for table in source(None):
            numbers = _parts_of(place(table), bounds)
            moved = np.argsort(numbers, kind="stable")
            rows = table.take(pa.array(moved))
            ends = np.searchsorted(numbers[moved], np.arange(count), side="right")
            for part, (start, end) in enumerate(zip((0, *ends[:-1].tolist()), ends.tolist(), strict=True)):
                if start < end:
                    spill.add(part, rows.slice(start, end - start))
        for part in range(count):
            yield from _sorted(partial(spill.tables, part), columns, place, env, spill.size_bytes(part), budget_bytes)
            spill.drop(part)


def _slices(held: list[pa.Table], place: Place) -> Iterator[pa.Table]:
    """Yield rows sorted; empties the list, so that they are in memory once."""
    if not any(table.num_rows for table in held):  # without rows there was no sample to lay a curve through
        return
    rows = pa.concat_tables(held).combine_chunks()
    held.clear()
    positions, _ = sorted_positions(place(rows))
    step = max(1, min(ROW_GROUP_ROWS, WINDOW_BYTES * rows.num_rows // max(1, rows.nbytes)))  # files end between them
    for start in range(0, rows.num_rows, step):
        yield rows.take(pa.array(positions[start : start + step]))


def _columns(names: Sequence[str], rows: pa.Table) -> list[pa.ChunkedArray]:
    return [rows.column(name) for name in names]


def _sample(tables: Iterator[pa.Table]) -> pa.Table:
    """Return up to `SAMPLE_ROWS` rows, each as likely as any other, and always the same of the same rows."""
    chance = np.random.default_rng(0)
    held: list[pa.Table] = []
    count, share = 0, 1.0
    for table in tables:
        drawn = table if share == 1.0 else table.filter(pa.array(chance.random(table.num_rows) < share))
        held.append(drawn)
        count += drawn.num_rows
        while count > SAMPLE_ROWS:
            share /= 2
            rows = pa.concat_tables(held)
            held = [rows.filter(pa.array(chance.random(rows.num_rows) < 0.5))]
            count = held[0].num_rows
    return pa.concat_tables(held) if held else pa.table({})


def _bounds(columns: list[pa.ChunkedArray], parts: int) -> list[pa.Array] | None:
    """Return the first rows of the second to last part, sorted and all different; None when all rows are alike."""
    positions, is_last = sorted_positions(columns)
    firsts = np.concatenate([[0], np.flatnonzero(is_last)[:-1] + 1])  # the first of each set of equal rows
    wanted = np.arange(1, parts) * len(positions) // parts
    chosen = np.unique(firsts[np.searchsorted(firsts, wanted, side="right") - 1])
    chosen = chosen[chosen > 0]
    if not len(chosen):
        if len(firsts) == 1:
            return None
        chosen = firsts[1:2]
    return [column.combine_chunks().take(pa.array(positions[chosen])) for column in columns]


def _parts_of(columns: list[pa.ChunkedArray], bounds: list[pa.Array]) -> Cells:
    """Return int64[n], the part that each row belongs to."""
    edges, asked = dense_ranks(bounds, [column.combine_chunks() for column in columns])
    return np.searchsorted(edges, asked, side="right")


@dataclass(frozen=True, slots=True)
class _Curve:
    """A curve through the space of some columns.

    Attributes:
        columns: their names.
        marks: for each column sampled values, sorted.
        bits: of each column in a place on the curve.
        turns: whether it is Hilbert's, whose neighbours are always neighbours in space.
    """

    columns: tuple[str, ...]
    marks: tuple[pa.Array, ...]
    bits: int
    turns: bool

    @classmethod
    def through(cls, sample: pa.Table, order: Order) -> _Curve:
        """Return the curve for rows like those of a sample."""
        marks = []
        for name in order.columns if sample.num_rows else ():
            column = sample.column(name)
            marks.append(column.combine_chunks().take(pa.array(sorted_positions([column])[0])))
        return cls(order.columns, tuple(marks), min(_BITS_MAX, 63 // len(order.columns)), order.curve == "hilbert")

    def __call__(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        cells = [self._cells(rows.column(name), marks) for name, marks in zip(self.columns, self.marks, strict=True)]
        place = interleaved(turned(cells, self.bits) if self.turns else cells, self.bits)
        return [pa.chunked_array([pa.array(place)])]

    def _cells(self, column: pa.ChunkedArray, marks: pa.Array) -> Cells:
        """Return int64[n], the share of rows at or below each value, from 0 to 2^bits - 1."""
        edges, asked = dense_ranks([marks], [column.combine_chunks()])
        return np.searchsorted(edges, asked, side="right") * ((1 << self.bits) - 1) // len(marks)


def interleaved(cells: Sequence[Cells], bits: int) -> Cells:
    """Return int64[n] of the bits of k coordinates in turn, the highest first: Morton's curve.

    Args:
        cells: k times int64[n], from 0 to 2^bits - 1; k * bits is at most 63.
    """
    place = np.zeros(len(cells[0]), np.int64)
    for bit in range(bits - 1, -1, -1):
        for cell in cells:
            place = (place << 1) | ((cell >> bit) & 1)
    return place


def turned(cells: Sequence[Cells], bits: int) -> list[Cells]:
    """Return coordinates whose interleaved bits are the place on Hilbert's curve.

    Arguments as those of `interleaved`. Method: J. Skilling, "Programming the Hilbert curve", 2004.
    """
    axes = [cell.copy() for cell in cells]
    first, last = axes[0], axes[-1]
    for bit in range(bits - 1, 0, -1):
        lower = (1 << bit) - 1
        for axis in axes:
            is_set = (axis >> bit) & 1 == 1
            exchanged = np.where(is_set, 0, (first ^ axis) & lower)
            first ^= np.where(is_set, lower, exchanged)
            axis ^= exchanged
    for before, axis in pairwise(axes):
        axis ^= before
    flips = np.zeros(len(first), np.int64)
    for bit in range(bits - 1, 0, -1):
        flips ^= np.where((last >> bit) & 1 == 1, (1 << bit) - 1, 0)
    for axis in axes:
        axis ^= flips
    return axes
