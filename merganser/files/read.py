"""One data file -> Arrow tables in today's schema, row group by row group.

The one reader of data files: batch reads, merges, compactions and streams share it. Columns are found by the
name they had in the file's own schema; a column added since is null, one whose type changed is converted
(`schema.evolve`). Row groups that the filter cannot match are left out by their statistics.

Format: "reading an old file", "pk table file columns".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from merganser.codec.binary_row import stored_to_arrow
from merganser.codec.data_format import FileReader, format_of, open_reader
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.meta.data_file import DataFile
from merganser.schema import types as t
from merganser.schema.evolve import Evolution
from merganser.schema.predicate import Predicate
from merganser.schema.prune import may_match_many
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.protocol import Storage


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A data file, where it lies, and the columns of the schema it was written with."""

    path: str
    file: DataFile
    fields: tuple[t.Field, ...]


class DataFileReader:
    """Reads one data file in stretches of row groups.

    Args:
        columns: columns of today's schema to return, in this order.
        system: also return `_SEQUENCE_NUMBER` and `_VALUE_KIND`, where asked.
        groups_filter: rows of row groups that this cannot match are not returned. Must be a filter that may
            drop rows before a merge: one on key columns, or any when the file needs no merge.
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
    ) -> None:
        self._target = target
        self._evolution = Evolution.plan(columns, target.fields, name=target.path)
        self._reader = _open(storage, target)
        self._wanted = list(self._evolution.stored)
        self._sequence = sequence
        # Always from the file: one known writer says in its metadata that there are no retractions, whatever it wrote.
        self._kind = kind
        if sequence:
            self._wanted.append(SEQUENCE_NUMBER)
        if self._kind:
            self._wanted.append(VALUE_KIND)
        groups = range(len(self._reader.group_rows))
        self._groups = [g for g in groups if self._reader.group_rows[g]]
        if groups_filter is not None and len(self._groups) > 1:  # the manifest has said what the file holds as a whole
            self._groups = self._matching(groups_filter)
        self._at = 0

    @property
    def rows(self) -> int:
        """Rows in the row groups that remain after pruning."""
        return sum(self._reader.group_rows[g] for g in self._groups)

    def read(self, rows: int) -> pa.Table | None:
        """Return the rows of the next row groups, about `rows` of them and at least one group; None at the end."""
        start, held = self._at, 0
        while self._at < len(self._groups) and (
            held == 0 or held + self._reader.group_rows[self._groups[self._at]] <= rows
        ):
            held += self._reader.group_rows[self._groups[self._at]]
            self._at += 1
        if start == self._at:
            self._reader.close()
            return None
        return self._rows(self._groups[start : self._at])

    def close(self) -> None:
        """Release the file. Reading to the end does it too."""
        self._reader.close()

    def _rows(self, groups: list[int]) -> pa.Table:
        table = self._reader.read(None if len(groups) == len(self._reader.group_rows) else groups, self._wanted)
        stored = len(self._evolution.stored)
        out = self._evolution.apply(table.select(range(stored)), sum(self._reader.group_rows[g] for g in groups))
        if self._sequence:
            out = out.append_column(SEQUENCE_NUMBER.name, table.column(stored))
        if self._kind:
            out = out.append_column(VALUE_KIND.name, table.column(len(self._wanted) - 1))
        return out

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


def _open(storage: Storage, target: FileToRead) -> FileReader:
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
        reader = open_reader(file, format_of(target.file.name), target.path, target.file.size)
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
