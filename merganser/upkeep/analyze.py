"""ANALYZE: count rows and values, and commit the result as statistics of the table.

The statistics lie in one file, which the snapshot names; later snapshots name it too, until the schema changes. Values
of text are not among them, so that nothing of a row stays that a delete removes.

Format: section "statistics, tags, branches, consumers".
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.commit.committable import Committable
from merganser.commit.table_commit import TableCommit
from merganser.errors import CommitUnknownError, InvalidInputError, MerganserError
from merganser.meta.snapshot import ANALYZE, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean
from merganser.scan.scan import Scan
from merganser.scan.source import State
from merganser.schema import types as t
from merganser.schema.cast_text import to_text
from merganser.schema.lazy_polars import pl
from merganser.storage.env import Env

_EXACT: Final = 65_536
"""Maximum number of distinct values of a column that are counted exactly."""
_KEPT: Final = 8_192
"""Hashes that estimate the number of distinct values above it; the standard error is 1.1 %."""
_WIDTHS: Final = {
    t.Boolean: 1, t.TinyInt: 1, t.SmallInt: 2, t.Int: 4, t.BigInt: 8, t.Float: 4, t.Double: 8, t.Date: 4, t.Time: 4,
    t.Timestamp: 8, t.LocalZonedTimestamp: 8,
}  # fmt: skip
_ORDERED: Final = (*_WIDTHS, t.Decimal)


def columns_to_analyze(table: TableDef, columns: Sequence[str] | None) -> tuple[t.Field, ...]:
    """Return the columns to count values of; None: all.

    Raises:
        InvalidInputError: the table has no such column.
    """
    fields = table.schema.user_fields
    if columns is None:
        return fields
    by_name = {field.name: field for field in fields} | {field.name.lower(): field for field in fields}
    found = []
    for name in columns:
        field = by_name.get(name) or by_name.get(name.lower())
        if field is None:
            names = [field.name for field in fields]
            raise InvalidInputError(
                f"cannot analyze '{table.name}': it has no column '{name}'. {did_you_mean(name, names)}", column=name
            )
        found.append(field)
    return tuple(dict.fromkeys(found))


def analyze(table: TableDef, env: Env, snapshot: Snapshot, fields: Sequence[t.Field]) -> Snapshot:
    """Commit the statistics of a snapshot.

    Args:
        snapshot: the state whose rows are counted.
        fields: the columns to count values of.

    Returns:
        The new snapshot, of kind ANALYZE.

    Raises:
        ConflictError: the table has another schema than `table` says; nothing was changed.
        StorageError: the store failed; there is no such snapshot.
        CommitUnknownError: the store lost the reply.
    """
    counters = [_Counter(field) for field in fields]
    count = 0
    for batch in Scan(table, env, tuple(fields), source=State(snapshot=snapshot)).to_batches():
        count += batch.num_rows
        for counter in counters:
            counter.add(batch.column(counter.field.name))
    live = MetaReader(table.paths, env, table.name).state(snapshot).live
    size = sum(entry.file.size for entry in live)
    physical = sum(entry.file.row_count for entry in live)
    facts = {
        "snapshotId": snapshot.id,
        "schemaId": table.schema.id,
        "mergedRecordCount": count,
        "mergedRecordSize": size * count // physical if physical else 0,
        "colStats": {counter.field.name: counter.facts(count) for counter in counters},
    }
    name = f"stat-{env.new_id()}-0"
    path = table.paths.statistics(name)
    env.storage.create(path, json.dumps(facts).encode())
    try:
        made = TableCommit(table, env).commit(
            Committable([], env.new_id(), kind=ANALYZE, allow_empty=True, statistics=name)
        )
    except CommitUnknownError:
        raise
    except MerganserError:
        with contextlib.suppress(MerganserError):
            env.storage.delete([path])
        raise
    assert made is not None
    return made


class _Counter:
    """Counts the values of one column."""

    def __init__(self, field: t.Field) -> None:
        self.field = field
        self._nulls = 0
        self._bytes = 0
        self._longest = 0
        self._low: Any = None
        self._high: Any = None
        self._seen: pa.Array | None = None
        self._hashes: npt.NDArray[np.uint64] | None = None
        self._type: pa.DataType | None = None

    def add(self, values: pa.Array) -> None:
        """Count some values."""
        self._type = values.type
        self._nulls += values.null_count
        kind = self.field.type
        known = values.drop_null()
        if not len(known):
            return
        if isinstance(kind, t.Char | t.VarChar | t.Binary | t.VarBinary):
            lengths = pc.binary_length(known)
            self._bytes += pc.sum(lengths).as_py()
            self._longest = max(self._longest, pc.max(lengths).as_py())
        if isinstance(kind, _ORDERED):
            ends = pc.min_max(known)
            low, high = ends["min"], ends["max"]
            self._low = low if self._low is None or low.as_py() < self._low.as_py() else self._low
            self._high = high if self._high is None or high.as_py() > self._high.as_py() else self._high
        if not isinstance(kind, t.Array | t.Map | t.Row | t.Multiset | t.Vector | t.Variant | t.Blob):
            self._count_distinct(known)

    def _count_distinct(self, known: pa.Array) -> None:
        if self._hashes is None:
            seen = known if self._seen is None else pa.concat_arrays([self._seen, known.cast(self._seen.type)])
            self._seen = seen.unique()
            if len(self._seen) <= _EXACT:
                return
            known, self._seen, self._hashes = self._seen, None, np.empty(0, np.uint64)
        hashes = pl.Series(pl.from_arrow(known)).hash(seed=7).to_numpy()
        self._hashes = np.unique(np.concatenate([self._hashes, hashes]))[:_KEPT]

    @property
    def _distinct(self) -> int | None:
        if self._hashes is not None:
            return round((len(self._hashes) - 1) / (float(self._hashes[-1]) / 2.0**64))
        return 0 if self._seen is None else len(self._seen)

    def facts(self, count: int) -> dict[str, Any]:
        """Return the statistics of the column, in the form of the format."""
        kind = self.field.type
        nested = isinstance(kind, t.Array | t.Map | t.Row | t.Multiset | t.Vector | t.Variant | t.Blob)
        facts: dict[str, Any] = {"colId": self.field.id}
        if not nested:
            facts["distinctCount"] = self._distinct
        if self._low is not None and self._type is not None:
            texts = to_text(pa.array([self._low.as_py(), self._high.as_py()], self._type), kind)
            facts["min"], facts["max"] = texts.to_pylist()
        facts["nullCount"] = self._nulls
        known = count - self._nulls
        width = _WIDTHS.get(type(kind))
        if isinstance(kind, t.Decimal):
            width = 8 if kind.precision <= 18 else 16
        if width is not None:
            facts["avgLen"] = facts["maxLen"] = width
        elif not nested:
            facts["avgLen"] = -(-self._bytes // known) if known else 0
            facts["maxLen"] = self._longest
        return facts
