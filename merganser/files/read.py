"""One data file -> Arrow tables in today's schema, row group by row group.

The one reader of data files: batch reads, merges, compactions and streams share it. Columns are found by the
name they had in the file's own schema; a column added since is null, one whose type changed is converted
(`schema.evolve`). Row groups that the filter cannot match are left out by their statistics, and rows that a deletion
vector names are never returned. Of a filter on rows the columns are read first, and the others only of row groups in
which it keeps a row.

Format: "reading an old file", "pk table file columns".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import stored_to_arrow
from merganser.codec.data_format import FileReader, format_of, open_reader
from merganser.codec.deletion_vector import Positions
from merganser.codec.parquet_many import read_many
from merganser.codec.parquet_pages import Kept
from merganser.codec.stored import Stored
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.expr.predicate import Predicate
from merganser.expr.prune import may_match_many
from merganser.expr.to_polars import is_among, superset
from merganser.files.checksum import AT_ONCE_BYTES, checked_whole
from merganser.files.masks import Vector, load, mask_of
from merganser.meta.data_file import DataFile
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.evolve import Evolution
from merganser.schema.table_schema import POSITION, SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.protocol import Storage
from merganser.values import dataclass

SMALL_BYTES: Final = 64 * 1024
"""A file that takes no more is read with others of its kind at once, since opening it would cost more than its rows."""

SMALL_ROWS: Final = 8 * 1024
"""Most rows of such a file: a dictionary makes many rows of few bytes."""

_AT_ONCE: Final = 512
"""Files whose bytes are in memory at a time, at most."""

STRETCH_ROWS: Final = 1024 * 1024
STRETCH_BYTES: Final = 64 * 1024 * 1024
"""Most rows, and bytes of values, that are sought at once by a filter."""

KEPT_MAX: Final = 0.1
"""Share of rows from which on it is faster to decode all of them."""

WHOLE_BYTES: Final = 4 * 1024 * 1024
"""A row group that takes no more is read whole: parts save little there, since the compressed pages of all columns
wait beside them, and take longer."""

_TRIED_GROUPS: Final = 4
"""Row groups of which the columns of a filter are read first, whatever comes of it."""
_LEFT_OUT_MIN: Final = 0.125
"""Share of row groups in which the filter has to keep no row, so that this goes on: each costs a request more."""


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A data file to read.

    Attributes:
        path: where it lies.
        fields: the columns of the schema that it was written with.
        read_with: id of the schema that it is read with.
        vector: its deletion vector.
        constants: the partition columns, each with its stored value. The files of other writers may lack these columns
            (`migrate`).
    """

    path: str
    file: DataFile
    fields: tuple[t.Field, ...]
    read_with: int
    vector: Vector | None = None
    constants: tuple[tuple[str, Stored], ...] = ()

    @property
    def is_newer(self) -> bool:
        """Whether it was written with a newer schema than it is read with."""
        return self.file.schema_id > self.read_with

    def evolution(self, columns: Sequence[t.Field], stored: Collection[str] | None = None) -> Evolution:
        """Return how its columns become others, by the schema that is read with.

        Args:
            stored: the columns that the file has; None: those of its schema.

        Raises:
            UnsupportedError, ConflictError: as `Evolution.plan`.
        """
        kinds = {field.name: field.type for field in self.fields}
        constants = {
            name: stored_to_arrow([value], kinds[name].with_nullable(True))[0]
            for name, value in self.constants
            if stored is not None and name not in stored
        }
        return Evolution.plan(columns, self.fields, name=self.path, is_newer=self.is_newer, constants=constants)


class DataFileReader:
    """Reads one data file in stretches of row groups.

    Args:
        columns: columns of today's schema to return, in this order.
        system: also return `_SEQUENCE_NUMBER` and `_VALUE_KIND`, where asked.
        groups_filter: rows of row groups that this cannot match are not returned. Must be a filter that may
            drop rows before a merge: one on key columns, or any when the file needs no merge.
        rows_filter: only rows that this keeps are returned. It looks at some of `columns`, cannot fail for any row, and
            may be asked of rows that a merge would replace.
        among: a column, and the values of it that are wanted; rows with others may be left out.
        notes: believe what the footer notes of kinds, instead of reading them.
        positions: also return the column `POSITION`, where each row is in the file, the first being 0.
        only: rising positions of the rows to return; None: all that are not deleted.
        part_bytes: row groups that take more memory than this, decoded, and are not small, come in parts of about so
            much, where the format allows it; None: whole.
        every_byte: verify the checksum of the file whatever is read of it.

    Attributes:
        noted_inserts: whether the footer notes that every row of the file is an insert.
    """

    def __init__(
        self,
        storage: Storage,
        target: FileToRead,
        *,
        columns: Sequence[t.Field],
        sequence: bool = False,
        kind: bool = False,
        groups_filter: Predicate | None = None,
        rows_filter: Predicate | None = None,
        among: tuple[t.Field, pa.Array] | None = None,
        notes: bool = True,
        positions: bool = False,
        only: Positions | None = None,
        part_bytes: int | None = None,
        every_byte: bool = False,
    ) -> None:
        self._target = target
        self._evolution = target.evolution(columns)
        # If all rows of all columns are read anyway, one more look at the bytes is cheap; and a compaction, which gives
        # its output a new checksum, believes no damaged input.
        every = groups_filter is None and rows_filter is None and only is None
        whole = every and len(self._evolution.stored) == len(target.fields)
        self._reader = open_file(storage, target, whole=whole, every_byte=every_byte)
        held = None
        if target.constants and not {name for name, _ in target.constants} <= {*self._reader.column_names}:
            held = self._reader.column_names
            self._evolution = target.evolution(columns, held)
        self._wanted = list(self._evolution.stored)
        self._sequence = sequence
        self._kind = kind
        # Never from the manifest: one known writer says there that there are no retractions, whatever it wrote.
        self.noted_inserts = self._reader.all_zero(VALUE_KIND.name)
        self._made_kinds = kind and notes and self.noted_inserts
        if sequence:
            self._wanted.append(SEQUENCE_NUMBER)
        if kind and not self._made_kinds:
            self._wanted.append(VALUE_KIND)
        self._rows_filter = rows_filter
        tested = [] if rows_filter is None else [field for field in columns if field.name in rows_filter.columns]
        self._tested = target.evolution(tested, held)
        apart = {field.name for field in self._tested.stored}
        self._untested = [field for field in self._wanted if field.name not in apart]
        self._tried_groups = self._left_out = 0
        groups = range(len(self._reader.group_rows))
        self._groups = [g for g in groups if self._reader.group_rows[g]]
        self._starts = np.cumsum([0, *self._reader.group_rows])
        self._positions = positions
        self._only = only
        self._deleted = None
        try:
            if target.vector is not None and only is None:
                self._deleted = load(storage, target.vector, target.file.row_count)
            if only is not None:
                self._groups = [g for g in self._groups if np.ptp(np.searchsorted(only, self._starts[g : g + 2]))]
            if (
                groups_filter is not None and len(self._groups) > 1
            ):  # the manifest has said what holds of the whole file
                self._groups = self._matching(groups_filter)
        except BaseException:
            self._reader.close()
            raise
        self._at = 0
        self._part_bytes = part_bytes
        self._parts: Iterator[pa.Table] = iter(())
        self._part_start = 0
        self._superset = None
        if rows_filter is not None and only is None and self._deleted is None and not positions:
            self._superset = superset(rows_filter, self._evolution.comparable())
        if among is not None and self._deleted is None and among[0].name in self._evolution.unchanged:
            self._superset = is_among(self._evolution.unchanged[among[0].name].name, among[0].type, among[1])
        self._growth = 1.0  # bytes in memory for each byte that the footer says; dictionaries of text make it grow

    @property
    def column_names(self) -> tuple[str, ...]:
        """All columns that the file has, as it names them."""
        return self._reader.column_names

    def is_verified(self) -> bool:
        """Return whether checksums cover the rows, so that none of them is another than was written."""
        return self._target.file.checksum is not None or self._reader.sums_pages()

    @property
    def rows(self) -> int:
        """Rows in the row groups that remain after pruning."""
        return sum(self._reader.group_rows[g] for g in self._groups)

    def group_bounds(self, name: str) -> tuple[pa.Array, pa.Array] | None:
        """Return the smallest and the largest value of a column in each row group that remains, null where not known.

        None when the file says nothing of the column, or has it in another type.
        """
        old = self._evolution.unchanged.get(name)
        found = None if old is None else self._reader.group_bounds(old)
        if old is None or found is None:
            return None
        low, high = (stored_to_arrow(values, old.type.with_nullable(True)) for values in found[:2])
        at = pa.array(self._groups, pa.int64())
        return low.take(at), high.take(at)

    def keep_groups(self, keep: np.ndarray) -> None:
        """Leave out row groups, before the first read.

        Args:
            keep: bool, one per row group that remains.
        """
        self._groups = [group for group, kept in zip(self._groups, keep.tolist(), strict=True) if kept]

    def read(self, rows: int) -> pa.Table | None:
        """Return the rows of the next row groups, about `rows` of them and at least one group; None at the end.

        Of a group that comes in parts, one part.
        """
        part = next(self._parts, None)
        if part is not None:
            self._part_start += part.num_rows
            return self._rows(part, [(self._part_start - part.num_rows, part.num_rows)])
        if self._superset is not None and (found := self._sought(self._superset)) is not None:
            return found
        start, held = self._at, 0
        while self._at < len(self._groups):
            group = self._groups[self._at]
            if held and held + self._reader.group_rows[group] > rows:
                break
            if (part_rows := self._part_rows(group)) is not None:
                if held:
                    break
                self._at += 1
                if self._is_tested_first and not self._kept_apart([group])[1].any():
                    return self._rows(arrow_schema(self._wanted).empty_table(), [])
                self._part_start = int(self._starts[group])
                self._parts = self._reader.parts(group, self._wanted, part_rows)
                return self.read(rows)
            held += self._reader.group_rows[group]
            self._at += 1
        if start == self._at:
            self._reader.close()
            return None
        return self._whole(self._groups[start : self._at])

    def _sought(self, kept: Kept) -> pa.Table | None:
        """Return what a condition keeps of the next row groups; None at the end, or where they are to be read as usual.

        Where it keeps many rows, so is the rest of the file: that is faster then.
        """
        end, rows, size = self._at, 0, 0
        while end < len(self._groups) and self._groups[end] == self._groups[self._at] + end - self._at:
            more = self._group_bytes(self._groups[end], self._wanted)
            count = self._reader.group_rows[self._groups[end]]
            if rows + count > STRETCH_ROWS or size + more > STRETCH_BYTES:
                break
            end, rows, size = end + 1, rows + count, size + more
        if end == self._at:
            return None
        groups = range(self._groups[self._at], self._groups[end - 1] + 1)
        table = self._reader.read_where(groups, self._wanted, kept)
        if table is None or table.num_rows > KEPT_MAX * rows:
            self._superset = None
        if table is None:
            return None
        self._at = end
        return self._rows(table, ())

    def close(self) -> None:
        """Release the file. Reading to the end does it too."""
        self._reader.close()

    @property
    def _is_tested_first(self) -> bool:
        """Whether the columns of the filter are read before the others."""
        if not self._tested.stored or not self._untested:
            return False
        return self._tried_groups < _TRIED_GROUPS or self._left_out >= _LEFT_OUT_MIN * self._tried_groups

    def _whole(self, groups: Sequence[int]) -> pa.Table:
        """Return the rows of some row groups."""
        if self._is_tested_first:
            return self._kept(groups)
        return self._rows(self._read(groups, self._wanted), self._spans(groups))

    def _read(self, groups: Sequence[int], columns: Sequence[t.Field]) -> pa.Table:
        table = self._reader.read(None if len(groups) == len(self._reader.group_rows) else groups, columns)
        if self._part_bytes is not None:
            self._growth = table.nbytes / max(1, sum(self._group_bytes(group, columns) for group in groups))
        return table

    def _kept(self, groups: Sequence[int]) -> pa.Table:
        """Return the same, where the columns of the filter tell which groups to read the others of."""
        tested, keep = self._kept_apart(groups)
        ends = np.cumsum([0, *(self._reader.group_rows[group] for group in groups)])
        hit = [i for i in range(len(groups)) if keep[ends[i] : ends[i + 1]].any()]
        if not hit:
            return self._rows(arrow_schema(self._wanted).empty_table(), [])
        if len(hit) < len(groups):
            tested = pa.concat_tables([tested.slice(ends[i], ends[i + 1] - ends[i]) for i in hit])
            keep = np.concatenate([keep[ends[i] : ends[i + 1]] for i in hit])
        found = [groups[i] for i in hit]
        rest = self._read(found, self._untested)
        held = {name: table.column(name) for table in (tested, rest) for name in table.column_names}
        table = pa.table({field.name: held[field.name] for field in self._wanted})
        return self._rows(table, self._spans(found), keep)

    def _kept_apart(self, groups: Sequence[int]) -> tuple[pa.Table, np.ndarray]:
        """Return the stored columns of the filter in some row groups, and which rows it keeps."""
        tested = self._reader.read(groups, self._tested.stored)
        keep = self._passing(self._tested.apply(tested, tested.num_rows))
        self._tried_groups += len(groups)
        ends = np.cumsum([self._reader.group_rows[group] for group in groups])
        self._left_out += sum(not part.any() for part in np.split(keep, ends[:-1]))
        return tested, keep

    def _passing(self, rows: pa.Table) -> np.ndarray:
        assert self._rows_filter is not None
        return np.asarray(self._rows_filter.mask(rows).fill_null(False))

    def _spans(self, groups: Sequence[int]) -> list[tuple[int, int]]:
        return [(int(self._starts[group]), self._reader.group_rows[group]) for group in groups]

    def _part_rows(self, group: int) -> int | None:
        """Return how many rows of a group are read at once; None: all, for they take little memory."""
        rows = self._reader.group_rows[group]
        if self._part_bytes is None or rows == 1:
            return None
        size = self._group_bytes(group, self._wanted) * max(1.0, self._growth)
        return None if size <= max(self._part_bytes, WHOLE_BYTES) else max(1, int(rows * self._part_bytes / size))

    def _group_bytes(self, group: int, columns: Sequence[t.Field]) -> int:
        size = self._reader.group_bytes(group, columns)
        if size is not None:
            return size
        return self._target.file.size * self._reader.group_rows[group] // max(1, self._reader.row_count)

    def _rows(self, table: pa.Table, spans: Sequence[tuple[int, int]], keep: np.ndarray | None = None) -> pa.Table:
        """Return rows of the file as the caller wants them.

        Args:
            table: the stored columns of all rows of the spans.
            spans: first position and number of rows of each stretch of the file.
            keep: bool, one per row: what the filter on rows says, where it was asked before.
        """
        stored = len(self._evolution.stored)
        out = self._evolution.apply(table.select(range(stored)), table.num_rows)
        if self._sequence:
            out = out.append_column(SEQUENCE_NUMBER.name, table.column(stored))
        if self._kind:
            kinds = row_kind.inserts(table.num_rows) if self._made_kinds else table.column(len(self._wanted) - 1)
            out = out.append_column(VALUE_KIND.name, kinds)
        if self._positions:
            at = np.concatenate([np.arange(0), *(np.arange(start, start + rows) for start, rows in spans)])
            placed = pa.table({POSITION.name: at})  # alone, it says how many rows there are
            out = out.append_column(POSITION.name, placed.column(0)) if out.num_columns else placed
        if keep is None and self._rows_filter is not None:
            keep = self._passing(out)
        mask = self._mask(spans)
        if keep is not None and not keep.all():
            mask = keep if mask is None else mask & keep
        return out if mask is None else out.take(pa.array(np.flatnonzero(mask)))

    def _mask(self, spans: Sequence[tuple[int, int]]) -> np.ndarray | None:
        """Return which rows of some stretches are there, deleted or not asked for; None: all."""
        if self._only is not None:
            return mask_of(self._only, spans, listed=True)
        if self._deleted is None:
            return None
        mask = mask_of(self._deleted, spans, listed=False)
        return None if mask.all() else mask

    def _matching(self, groups_filter: Predicate) -> list[int]:
        """Return the groups that may hold rows of the filter, by the statistics of the columns it looks at."""
        low, high, nulls = {}, {}, {}
        for name, old in self._evolution.unchanged.items():
            found = self._reader.group_bounds(old) if name in groups_filter.columns else None
            if found is not None:
                low[name], high[name] = (stored_to_arrow(values, old.type.with_nullable(True)) for values in found[:2])
                nulls[name] = np.array([-1 if count is None else count for count in found[2]], np.int64)
        if not low:
            return self._groups
        rows = np.array(self._reader.group_rows, np.int64)
        keep = may_match_many(groups_filter, low, high, nulls, rows)
        return [g for g in self._groups if keep[g]]


def read_small(
    storage: Storage, targets: Sequence[FileToRead], *, columns: Sequence[t.Field], sequence: bool
) -> pa.Table | None:
    """Return all rows of small files as one table, as `DataFileReader` gives them with their kinds, in order.

    None where some file has to be read by itself: it is not small, or has deleted rows, values of another type than
    today's, another form than our own files, or damage, of which `DataFileReader` then tells.

    Args:
        storage: where the files lie.
        targets: the files.
        columns: columns of today's schema to return, in this order.
        sequence: also return `_SEQUENCE_NUMBER`.
    """
    if any(target.vector is not None or not is_small(target.file) for target in targets):
        return None
    system = (SEQUENCE_NUMBER, VALUE_KIND) if sequence else (VALUE_KIND,)
    parts = []
    for _, group in groupby(targets, key=lambda target: (target.fields, target.is_newer)):
        alike = list(group)
        evolution = alike[0].evolution(columns)
        if len(evolution.unchanged) < len(evolution.stored):
            return None
        for start in range(0, len(alike), _AT_ONCE):
            chosen = alike[start : start + _AT_ONCE]
            table = _read_alike(storage, chosen, (*evolution.stored, *system))
            if table is None:
                return None
            stored = len(evolution.stored)
            part = evolution.apply(table.select(range(stored)), table.num_rows)
            for i, field in enumerate(system, start=stored):
                part = part.append_column(field.name, table.column(i))
            parts.append(part)
    return pa.concat_tables(parts) if len(parts) > 1 else parts[0]


def is_small(file: DataFile) -> bool:
    """Return whether a file is worth being read together with others."""
    return file.size <= SMALL_BYTES and file.row_count <= SMALL_ROWS and format_of(file.name) == "parquet"


def _read_alike(storage: Storage, targets: Sequence[FileToRead], columns: Sequence[t.Field]) -> pa.Table | None:
    try:
        files = Env(storage).fetch(lambda target: storage.read(target.path), targets)
    except NotFoundError:
        return None
    if any(len(data) != target.file.size for data, target in zip(files, targets, strict=True)):
        return None
    rows, checksums = zip(*((target.file.row_count, target.file.footer_checksum) for target in targets), strict=True)
    return read_many(files, rows, columns, path=targets[0].path, checksums=checksums)


def open_file(storage: Storage, target: FileToRead, *, whole: bool = False, every_byte: bool = False) -> FileReader:
    """Return the reader of a file, whose checksum is verified where that is cheap: not of large ORC files read in part.

    Args:
        whole: all of the file will be read.
        every_byte: verify the bytes that no read looks at, too.
    """
    try:
        file = storage.open(target.path)
    except NotFoundError as error:
        raise FormatError(
            f"cannot read the data file '{target.path}': metadata names it, but it is missing. Other files of the "
            "table stay "
            "readable. Restore it, or roll back to a snapshot that does not need it.",
            path=target.path,
        ) from error
    reader = None
    try:
        if (size := file.size()) != target.file.size:
            raise _differs(target, f"has {size:,} bytes", f"{target.file.size:,}")
        format, checksum = format_of(target.file.name), target.file.checksum
        # Of Parquet, every read verifies the footer and the pages that it needs.
        cheap = target.file.footer_checksum is None and (whole or size <= AT_ONCE_BYTES or format == "avro")
        if checksum is not None and (every_byte or cheap):
            file = checked_whole(file, checksum, target.path)
        reader = open_reader(file, format, target.path, size, footer_checksum=target.file.footer_checksum)
        if reader.row_count != target.file.row_count:
            raise _differs(target, f"has {reader.row_count:,} rows", f"{target.file.row_count:,}")
        return reader
    except InvalidInputError as error:  # a name without an extension
        file.close()
        raise FormatError(f"cannot read the data file '{target.path}': {error}", path=target.path) from error
    except BaseException:
        (reader or file).close()
        raise


def _differs(target: FileToRead, found: str, said: str) -> FormatError:
    return FormatError(
        f"cannot read the data file '{target.path}': it {found}, and its manifest says {said}. Other files of the "
        "table stay "
        "readable. Restore it, or roll back to a snapshot that does not need it.",
        path=target.path,
    )
