"""What a table holds: rows in a dictionary, one row at a time, of every merge engine, under any columns."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from merganser.schema import types as t
from tests.everything.values import Row, convert, converter, plain
from tests.oracle.engines import Change, CountingOracle, HistoryOracle

Fields = tuple[t.Field, ...]
Holds = Callable[[Row], bool]
ADDS = ("+I", "+U")


@dataclass
class Model:
    """A table as a list of rows or of versions.

    Attributes:
        engine: merge engine; `append` and `counting` have no key.
        fields: the columns.
        key: primary key columns.
        partition: partition columns.
        options: of the table, as the oracle of the engine reads them.
        moves: whether a key has one row in the whole table, and a row may bring it to another partition.
        defaults: of columns, by their ids.
        oracle: versions by key, of a table with a key.
        counts: of a counting table.
        rows: of a table of appended rows.
    """

    engine: str
    fields: Fields
    key: Sequence[str]
    partition: Sequence[str]
    options: Mapping[str, str]
    moves: bool = False
    defaults: dict[int, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        types = {f.name: f.type for f in self.fields}
        self.oracle = self._oracle(types) if self.key else None
        self.counts = CountingOracle(list(types))

    def _oracle(self, types: Mapping[str, t.DataType]) -> HistoryOracle:
        options = {name: text for name, text in self.options.items() if name != "rowkind.field"}
        return HistoryOracle(types, self.key, options)  # kinds are given, see `flush`

    def copy(self) -> Model:
        """Return a table that goes its own way."""
        found = copy.copy(self)
        found.rows, found.defaults = list(self.rows), dict(self.defaults)
        if self.oracle is not None:
            found.oracle = copy.copy(self.oracle)
            found.oracle.stored = {key: list(records) for key, records in self.oracle.stored.items()}
        found.counts = CountingOracle(self.counts.columns, Counter(self.counts.counts))
        return found

    # what it says

    def visible(self) -> list[Row]:
        """Return the rows that a read gives, in no order."""
        if self.oracle is not None:
            return self.oracle.visible()
        return self.counts.visible() if self.engine == "counting" else list(self.rows)

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def partition_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.partition)

    def by_key(self) -> dict[tuple[Any, ...], Row]:
        return {self.key_of(row): row for row in self.visible()}

    def filled(self, row: Row) -> Row:
        """Return a row as it is stored: nulls become the defaults of their columns."""
        if not self.defaults:
            return dict(row)
        return {f.name: self.defaults.get(f.id) if row[f.name] is None else row[f.name] for f in self.fields}

    def refuses(self, kind: str) -> bool:
        """Return whether rows of this kind cannot be written."""
        if self.oracle is not None:
            return self.oracle.refused(kind)
        return self.engine == "append" and kind not in ADDS and not self._dropped(kind)

    # what is done to it

    def flush(self, changes: Iterable[Change], *, given: bool = False) -> None:
        """Take rows of (kind, row), in order.

        Args:
            given: rows are as they are stored, and kinds are those that are given, also if a column holds kinds.
        """
        named = [
            (kind, dict(row)) if given else (row[self.rowkind] if self.rowkind else kind, self.filled(row))
            for kind, row in changes
        ]
        if self.oracle is not None:
            for change in named:
                self.oracle.flush([self._placed(change)])
            return
        taken = [(kind, row) for kind, row in named if not self._dropped(kind)]
        if self.engine == "counting":
            self.counts.flush(taken)
        else:
            self.rows += [row for _, row in taken]

    def clear(self, gone: Holds) -> None:
        """Take all that is stored out of some partitions."""
        if self.oracle is not None:
            stored = self.oracle.stored
            self.oracle.stored = {k: records for k, records in stored.items() if not gone(records[-1].row)}
        self.rows = [row for row in self.rows if not gone(row)]
        for row in list(self.counts.counts):
            if gone(dict(zip(self.counts.columns, row, strict=True))):
                del self.counts.counts[row]

    def forget(self, holds: Holds) -> None:
        """Take the rows out of the table, as if their keys had never been written."""
        if self.oracle is not None:
            for row in self.visible():
                if holds(row):
                    del self.oracle.stored[self.key_of(row)]
        self.rows = [row for row in self.rows if not holds(row)]

    def become(self, fields: Fields, options: Mapping[str, str], names: Mapping[str, str]) -> None:
        """Take other columns and options.

        Args:
            names: new names of key and partition columns by their old ones.
        """
        old = self.copy()
        turn = converter(self.fields, fields)
        types = {f.id: f.type for f in self.fields}
        self.defaults = {
            f.id: convert(self.defaults[f.id], types[f.id], f.type) for f in fields if f.id in self.defaults
        }
        self.fields, self.options = fields, options
        self.key = [names.get(name, name) for name in self.key]
        self.partition = [names.get(name, name) for name in self.partition]
        self._begin()
        if self.oracle is not None and old.oracle is not None:
            self.oracle.flushes = old.oracle.flushes
            for records in old.oracle.stored.values():
                turned = [replace(record, row=turn(record.row)) for record in records]
                self.oracle.stored[self.key_of(turned[0].row)] = turned
        self.rows = [turn(row) for row in old.rows]
        for values, count in old.counts.counts.items():
            row = turn(dict(zip(old.counts.columns, values, strict=True)))
            self.counts.counts[tuple(row[name] for name in self.counts.columns)] += count

    def becomes(self, old: Row, change: Change) -> Row | None:
        """Return the row that the key of a visible row has after a change; None: it has none."""
        assert self.oracle is not None
        key = self.key_of(old)
        alone = copy.copy(self.oracle)
        alone.stored = {key: list(self.oracle.stored[key])}
        alone.flush([change])
        rows = alone.visible()
        return rows[0] if rows else None

    def same(self, one: Row | None, other: Row | None) -> bool:
        if one is None or other is None:
            return one is other
        return image(one, self.fields, self.unordered()) == image(other, self.fields, self.unordered())

    def drops(self, kind: str, row: Row) -> bool:
        """Return whether a row does nothing by its kind."""
        return self._dropped(row[self.rowkind] if self.rowkind else kind)

    @property
    def rowkind(self) -> str | None:
        return self.options.get("rowkind.field")

    def _placed(self, change: Change) -> Change:
        """Return a row where its key lies, if another partition that it names has no say."""
        return change

    def _dropped(self, kind: str) -> bool:
        if self.options.get("ignore-delete") == "true":
            return kind in ("-U", "-D")
        return self.options.get("ignore-update-before") == "true" and kind == "-U"

    # rows of a table as they are compared

    def unordered(self) -> frozenset[str]:
        """Return the columns whose lists have no order."""
        return frozenset(f.name for f in self.fields if f"fields.{f.name}.aggregate-function" in self.options)


def image(row: Row, fields: Fields, unordered: frozenset[str] = frozenset()) -> str:
    """Return a row as it is compared."""
    return repr([plain(row[f.name], unordered=f.name in unordered) for f in fields])
