"""A copy of a table that follows its changes, and the error that says that they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tests.everything.model import Model, image
from tests.everything.values import Row


class DifferenceError(AssertionError):
    """The table and the model differ.

    Attributes:
        what: which comparison, so that a shrunk history fails by the same one.
    """

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(f"{what}: {detail}")
        self.what = what


class Copy:
    """A copy of the rows of a table that follows its changes."""

    def __init__(self, model: Model, rows: Sequence[Row]) -> None:
        self.model = model
        self.keyed = bool(model.key)
        self.by_key = {model.key_of(row): row for row in rows} if self.keyed else {}
        self.bag = Counter() if self.keyed else Counter(self._image(row) for row in rows)
        self.samples = {} if self.keyed else {self._image(row): row for row in rows}

    def _image(self, row: Row) -> str:
        return image(row, self.model.fields, self.model.unordered())

    def rows(self) -> list[Row]:
        """Return the rows."""
        return list(self.by_key.values()) if self.keyed else [self.samples[one] for one in self.bag.elements()]

    def apply(self, what: str, changes: Sequence[Row], *, strict: bool) -> None:
        """Apply changes in their order.

        Args:
            strict: a removed row has to be there as it is, and an inserted one not.
        """
        for change in changes:
            row = {name: value for name, value in change.items() if name != "_row_kind"}
            kind = change["_row_kind"]
            if not self.keyed:
                one = self._image(row)
                self.samples[one] = row
                self.bag[one] += 1 if kind in ("+I", "+U") else -1
                if self.bag[one] < 0:
                    raise DifferenceError(what, f"{kind} of a row that is not there: {one}")
                continue
            key = self.model.key_of(row)
            old = self.by_key.get(key)
            if kind in ("-U", "-D"):
                if strict and (old is None or self._image(old) != self._image(row)):
                    raise DifferenceError(what, f"{kind} {self._image(row)}, but the copy has {old}")
                self.by_key.pop(key, None)
            else:
                if strict and old is not None:
                    raise DifferenceError(what, f"{kind} {self._image(row)}, but the copy has {old}")
                self.by_key[key] = row
        if not self.keyed:
            self.bag = +self.bag

    def replace(self, partitions: Sequence[Mapping[str, Any]], changes: Sequence[Row], *, strict: bool) -> None:
        """Take other rows for those of some partitions; none of them: for all."""

        def stays(row: Row) -> bool:
            return bool(partitions) and all(
                any(row[name] != value for name, value in each.items()) for each in partitions
            )

        self.by_key = {key: row for key, row in self.by_key.items() if stays(row)}
        self.bag = Counter({one: count for one, count in self.bag.items() if stays(self.samples[one])})
        self.apply("gap", changes, strict=strict)

    def apply_records(self, records: Sequence[Row]) -> None:
        """Apply records of shards: puts, whole rows of updates, and deletes."""
        names = {f.name for f in self.model.fields}
        for record in records:
            row = {name: value for name, value in record.items() if name in names}
            action = record["_action"]
            if self.keyed:
                key = self.model.key_of(row)
                if action != "PUT" and key not in self.by_key:
                    raise DifferenceError("shards", f"{action} of a key that is not there: {row}")
                if action == "DELETE":
                    del self.by_key[key]
                else:
                    self.by_key[key] = row
            else:
                kind = "+I" if action == "PUT" else "-D"
                self.apply("shards", [{**row, "_row_kind": kind}], strict=True)
