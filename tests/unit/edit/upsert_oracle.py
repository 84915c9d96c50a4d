"""The oracle of upserts: a dictionary, and the rows of a call one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass
class UpsertOracle:
    """A deduplicate table.

    Attributes:
        columns: all columns.
        key: the primary key.
        defaults: of the columns that have one.
        order: the column that orders the rows of a key; None: they count in the order of arrival.
    """

    columns: Sequence[str]
    key: Sequence[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    order: str | None = None
    rows: dict[Key, Row] = field(default_factory=dict)

    def upsert(
        self, data: Sequence[Row], kinds: Sequence[str], columns: Sequence[str] | None, if_exists: str
    ) -> tuple[dict[Key, Row], list[tuple[str, Row]]]:
        """Apply rows; return the rows of their keys after it, and the changes, in the order of keys."""
        before = dict(self.rows)
        is_partial = columns is not None and set(columns) != set(self.columns)
        if is_partial:  # the row after an update says it all
            data = [row for row, kind in zip(data, kinds, strict=True) if kind != "-U"]
            kinds = [kind for kind in kinds if kind != "-U"]
        keys = list(dict.fromkeys(self._key(row) for row in data))
        for row, kind in zip(data, kinds, strict=True):
            if if_exists == "keep" and self._key(row) in self.rows:
                continue
            (self._part if is_partial else self._whole)(row, kind)
        changes: list[tuple[str, Row]] = []
        for key in keys:
            old, new = before.get(key), self.rows.get(key)
            if old is None and new is not None:
                changes.append(("+I", new))
            elif new is None and old is not None:
                changes.append(("-D", old))
            elif old is not None and new is not None and repr(old) != repr(new):
                changes += [("-U", old), ("+U", new)]
        return {key: self.rows[key] for key in keys if key in self.rows}, changes

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def _whole(self, row: Row, kind: str) -> None:
        if kind in ("-U", "-D"):
            self.rows.pop(self._key(row), None)
            return
        whole = {name: self.defaults.get(name) if row[name] is None else row[name] for name in self.columns}
        self._put({name: whole[name] for name in self.columns})

    def _part(self, row: Row, kind: str) -> None:
        key = self._key(row)
        old = self.rows.get(key)
        if kind == "-D":
            if old is None:
                return
            new = {name: None if name in row and name not in self.key else old[name] for name in self.columns}
            if all(new[name] is None for name in self.columns if name not in self.key):
                del self.rows[key]
            else:
                self._put(new)
            return
        base = old if old is not None else {name: self.defaults.get(name) for name in self.columns}
        self._put({name: row.get(name) if name in row else base[name] for name in self.columns})

    def _put(self, row: Row) -> None:
        old = self.rows.get(self._key(row))
        if self.order is not None and old is not None:
            new_rank, old_rank = row[self.order], old[self.order]
            if old_rank is not None and (new_rank is None or new_rank < old_rank):
                return
        self.rows[self._key(row)] = row
