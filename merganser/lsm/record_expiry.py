"""Record-level expiry: rows that compactions drop because the time in one of their columns is too long ago.

A row stays while now <= its time + `record-level.expire-time`, in whole seconds; a row without a time stays. A
compaction drops rows when it reads them, before it merges the versions of a key, and only if nothing older lies below
the output: otherwise an older version of the key would become visible. It stores no retraction for a dropped row. If it
publishes what it changes, it publishes a -D for a row that was shown and is gone.

Format: section "record expire".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import stored_to_arrow
from merganser.codec.stats import decode_stats
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.schema import types as t
from merganser.values import dataclass

_MILLISECONDS_FROM: Final = 10**12
"""A BIGINT as large as this is milliseconds, a smaller one seconds."""
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """Which rows are too old.

    Attributes:
        field: the column with the time of a row, as the table has it today.
        oldest_s: the oldest time that is kept, in epoch seconds.
    """

    field: t.Field
    oldest_s: int

    @classmethod
    def of(cls, table: TableDef, now_ms: int) -> RecordExpiry | None:
        """Return what expires in a table at a time, or None when nothing does."""
        keep, name = table.options.get(u.RECORD_LEVEL_EXPIRE_TIME), table.options.get(u.RECORD_LEVEL_TIME_FIELD)
        if keep is None or name is None or not table.keyed:
            return None
        return cls(table.schema.field(name), now_ms // 1000 - int(keep.total_seconds()))

    def kept(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are not too old."""
        keep = self.stays(rows)
        return rows if keep.all() else rows.filter(pa.array(keep))

    def stays(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return bool[n], which rows are not too old."""
        times = rows.column(self.field.name)
        keep = pc.fill_null(pc.greater_equal(_seconds(times), pa.scalar(self.oldest_s, pa.int64())), True)
        return np.asarray(keep)

    def reaches(self, file: DataFile, schemas: Mapping[int, tuple[t.Field, ...]]) -> bool:
        """Return whether a file holds a row that is too old, by its statistics; False where they do not say.

        Args:
            file: a data file of a key table.
            schemas: columns of the schema that it was written with, by schema id.
        """
        fields: Sequence[t.Field] = schemas[file.schema_id]
        if file.value_stats_columns is not None:
            by_name = {field.name: field for field in fields}
            fields = [by_name[name] for name in file.value_stats_columns]
        place = next((i for i, field in enumerate(fields) if field.id == self.field.id), None)
        if place is None or _is_number(fields[place].type) != _is_number(self.field.type):
            return False
        low = decode_stats(file.value_stats, [field.type for field in fields])[place].min
        if low is None:
            return False
        oldest = _seconds(stored_to_arrow([low], fields[place].type.with_nullable(True)))[0].as_py()
        return bool(oldest < self.oldest_s)


class RowSource(Protocol):
    """What is read stretch by stretch."""

    @property
    def rows(self) -> int:
        """How many rows are left at most."""
        ...

    def read(self, rows: int) -> pa.Table | None:
        """Return about so many rows; None at the end."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


class Unexpired:
    """The rows of a file that are not too old."""

    def __init__(self, reader: RowSource, expiry: RecordExpiry) -> None:
        self._reader = reader
        self._expiry = expiry

    @property
    def rows(self) -> int:
        """How many rows there are at most."""
        return self._reader.rows

    def read(self, rows: int) -> pa.Table | None:
        """Return the rows kept of the next stretch that has any; None at the end."""
        while (table := self._reader.read(rows)) is not None:
            kept = self._expiry.kept(table)
            if kept.num_rows:
                return kept
        return None

    def close(self) -> None:
        """Release the file."""
        self._reader.close()


def _is_number(kind: t.DataType) -> bool | None:
    """Return whether a column tells times as whole numbers, or as timestamps; None: as neither.

    Columns that became one of the other kind are converted row by row, and their old statistics tell no time.
    """
    if isinstance(kind, t.TinyInt | t.SmallInt | t.Int | t.BigInt):
        return True
    return False if isinstance(kind, t.Timestamp | t.LocalZonedTimestamp) else None


def _seconds(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return times as int64 epoch seconds.

    Args:
        times: int32 seconds, int64 seconds or milliseconds, or timestamps.
    """
    if pa.types.is_timestamp(times.type):
        return pc.divide(times.cast(pa.int64()), _PER_SECOND[times.type.unit])
    whole = times.cast(pa.int64())
    in_ms = pc.greater_equal(whole, pa.scalar(_MILLISECONDS_FROM, pa.int64()))
    return pc.if_else(in_ms, pc.divide(whole, 1000), whole)
