"""The oracles of merge engines: one key, one version at a time, with lists and dictionaries.

`HistoryOracle` says what a table of merganser holds: a function of the rows in the order of their commits. It knows of
no files: it keeps every row, and folds all rows of a key when it is asked.

In other engines of the format, what a key reads as can depend on how its versions are laid out: a flush folds the rows
of a key before they are stored, a lone stored version is never merged, and what was folded cannot be told apart again.
`EngineOracle` keeps what such an engine keeps: per key, the list of stored records, one per flush.

Both fold with the same row-by-row rules. They are slow on purpose and share no code with the kernels; aggregate
functions are those of `functions_oracle`.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from merganser.schema import types as t
from merganser.values import dataclass
from tests.oracle.functions import NOT_RETRACTING, fold_rows, normal

Row = dict[str, Any]
Key = tuple[Any, ...]
Change = tuple[str, Row]
"""(row kind, row)."""

_NOTHING: Final = object()
"""Accumulator of a function that nothing has reached."""


@dataclass(frozen=True)
class Record:
    """One version of a key.

    Attributes:
        number: orders versions by arrival: (flush, generation within it, place among its rows).
    """

    kind: str
    row: Row
    number: tuple[int, int, int]

    @property
    def adds(self) -> bool:
        return self.kind in ("+I", "+U")


@dataclass(frozen=True)
class SequenceGroup:
    """Ordering columns, the columns they protect, and whether a -D that is in order removes the row."""

    ordering: tuple[str, ...]
    protected: tuple[str, ...]
    removes: bool = False


@dataclass
class EngineOracle:
    """A key table of any merge engine.

    Attributes:
        columns: types of all columns.
        key: primary key columns.
        options: of the table, as texts.
        stored: the records of each key, oldest first.
    """

    columns: Mapping[str, t.DataType]
    key: Sequence[str]
    options: Mapping[str, str]
    stored: dict[Key, list[Record]] = field(default_factory=dict)
    flushes: int = 0

    def __post_init__(self) -> None:
        text = self.options.get
        self.engine = text("merge-engine", "deduplicate")
        self.ignore_delete = text("ignore-delete") == "true"
        self.ignore_update_before = text("ignore-update-before") == "true"
        self.rowkind_field = text("rowkind.field")
        self.sequence_fields = _names(text("sequence.field"))
        self.descending = text("sequence.field.sort-order") == "descending"
        self.adds_last = "row-kind-flag" in _names(text("sequence.auto-padding"))
        self.removes_on_delete = text(f"{self.engine}.remove-record-on-delete") == "true"
        removing = _names(text("partial-update.remove-record-on-sequence-group"))
        self.groups = []
        for option, protected in self.options.items():
            if option.startswith("fields.") and option.endswith(".sequence-group"):
                ordering = _names(option.removeprefix("fields.").removesuffix(".sequence-group"))
                self.groups.append(SequenceGroup(ordering, _names(protected), any(n in removing for n in ordering)))
        self.grouped = {name for group in self.groups for name in (*group.ordering, *group.protected)}
        self.removes = self.removes_on_delete or any(group.removes for group in self.groups)

    # in

    def refused(self, kind: str) -> bool:
        """Return whether rows of this kind cannot be written."""
        if kind in ("+I", "+U") or self._dropped(kind) or self.engine == "deduplicate":
            return False
        if self.engine == "first-row":
            return True
        if self.engine == "partial-update":
            return not self.removes_on_delete and (not self.groups or self._some_function_cannot_retract())
        return not (self.removes_on_delete and kind == "-D") and self._some_function_cannot_retract()

    def flush(self, changes: Iterable[Change]) -> None:
        """Store rows, in order, as one flush: of each key one record, two where a removal lies in between."""
        self.flushes += 1
        groups: dict[Key, list[Record]] = {}
        for place, (given, row) in enumerate(changes):
            kind = given if self.rowkind_field is None else row[self.rowkind_field]
            if not self._dropped(kind):
                k = tuple(row[name] for name in self.key)
                groups.setdefault(k, []).append(Record(kind, dict(row), (self.flushes, 1, place)))
        for k, records in groups.items():
            ordered = self._ordered(records)
            removal = self._removal(ordered)
            kept = self.stored.setdefault(k, [])
            if removal is not None and any(record.adds for record in ordered[removal + 1 :]):
                # One record cannot say both that the row was removed and what came after.
                record = ordered[removal]
                kept.append(self._counted(replace(record, number=(self.flushes, 0, record.number[2]))))
            folded = self._fold([self._counted(record) for record in ordered])
            assert folded is not None
            kept.append(folded)

    def store(self, changes: Iterable[Change]) -> None:
        """Store rows, in order, as merganser does in one flush: they act on older rows as they would one by one."""
        self.flushes += 1
        groups: dict[Key, list[Record]] = {}
        for place, (given, row) in enumerate(changes):
            kind = given if self.rowkind_field is None else row[self.rowkind_field]
            if not self._dropped(kind):
                record = self._normal(self._counted(Record(kind, dict(row), (self.flushes, 1, place))))
                groups.setdefault(tuple(row[name] for name in self.key), []).append(record)
        for k, records in groups.items():
            ordered = self._ordered(records)
            folded = self._fold(ordered) if len({record.adds for record in records}) == 1 else None
            self.stored.setdefault(k, []).extend(records if folded is None else [folded])

    def clear(self, spec: Mapping[str, Any]) -> None:
        """Remove the partitions that have the values of `spec`; {}: all."""
        for k in list(self.stored):
            if all(self.stored[k][0].row[name] == value for name, value in spec.items()):
                del self.stored[k]

    def compact(self, *, keeps: bool = False) -> None:
        """Put all records of each key together. Nothing lies below, so retractions go.

        Args:
            keeps: retractions stay that mean something to later rows, as in compactions of merganser.
        """
        for k, records in list(self.stored.items()):
            merged = self._fold(self._ordered(records))
            if merged is not None and (merged.adds or (keeps and self.lasts)):
                self.stored[k] = [merged]
            else:
                del self.stored[k]

    @property
    def lasts(self) -> bool:
        """Whether a retraction means something to later rows, though nothing older is left."""
        adds_up = any(
            self._function(name) == "sum" and self._of(name).get("ignore-retract") != "true" for name in self.columns
        )
        return not self.ignore_delete and bool(
            (self.engine == "aggregation" and adds_up)
            or self.groups
            or (self.sequence_fields and self.engine != "first-row")
        )

    # out

    def visible(self) -> list[Row]:
        """Return the rows that a batch read gives, in no order."""
        merged = [self._fold(self._ordered(records)) for records in self.stored.values()]
        return [record.row for record in merged if record is not None and record.adds]

    # order

    def _ordered(self, records: Sequence[Record]) -> list[Record]:
        return sorted(records, key=functools.cmp_to_key(self._compared))

    def _compared(self, a: Record, b: Record) -> int:
        for name in self.sequence_fields:
            found = compared(a.row[name], b.row[name], descending=self.descending)
            if found:
                return found
        if self.sequence_fields and self.adds_last and a.adds != b.adds:
            return 1 if a.adds else -1
        return (a.number > b.number) - (a.number < b.number)

    # merge

    def _fold(self, records: list[Record]) -> Record | None:
        """Return what versions in merge order become; None: nothing is left of them."""
        if self.ignore_delete:
            records = [record for record in records if record.adds]
        if len(records) <= 1:
            return records[0] if records else None
        if self.engine == "deduplicate":
            return records[-1]
        if self.engine == "first-row":
            return records[0]
        row, kind = (self._aggregated if self.engine == "aggregation" else self._updated)(records)
        return Record(kind, row | {name: records[-1].row[name] for name in self.key}, records[-1].number)

    def _removal(self, records: list[Record]) -> int | None:
        """Return the place of the last version that removes the row."""
        if self.removes_on_delete:
            return max((i for i, record in enumerate(records) if record.kind == "-D"), default=None)
        last = None
        held: Row = dict.fromkeys(self.columns)
        for i, record in enumerate(records):
            if self._removes(record, held):
                last, held = i, dict.fromkeys(self.columns)
            for group in self.groups:
                if _touches(record, group) and not _late(record, group, held):
                    held |= {name: record.row[name] for name in group.ordering}
        return last

    def _removes(self, record: Record, held: Row) -> bool:
        return record.kind == "-D" and any(
            group.removes and _touches(record, group) and not _late(record, group, held) for group in self.groups
        )

    def _after_removal(self, records: list[Record]) -> list[Record]:
        """Return the versions after the last removal, or that alone where nothing is added after it."""
        removal = self._removal(records)
        if removal is None:
            return records
        after = records[removal + 1 :]
        return after if any(record.adds for record in after) else [records[removal]]

    def _retracted(self) -> str:
        """Return the kind of what only takes back: where a -D removes rows it must not look like one."""
        return "-U" if self.removes else "-D"

    def _aggregated(self, records: list[Record]) -> tuple[Row, str]:
        if self.removes_on_delete:
            records = self._after_removal(records)
        row = {
            name: fold_rows(self._function(name), kind, self._of(name), [(r.kind, r.row[name]) for r in records])
            for name, kind in self.columns.items()
            if name not in self.key
        }
        if len(records) == 1:
            return row, records[0].kind
        return row, "+I" if any(record.adds for record in records) else self._retracted()

    def _updated(self, records: list[Record]) -> tuple[Row, str]:
        if self.removes_on_delete:
            records = self._after_removal(records)
            if any(record.adds for record in records):
                records = [record for record in records if record.adds]
            else:
                return records[-1].row, records[-1].kind
        removal = None if self.removes_on_delete else self._removal(records)
        if removal is not None and not any(record.adds for record in records[removal + 1 :]):
            return records[removal].row, "-D"
        adding = any(record.adds for record in records[0 if removal is None else removal :])
        row: Row = {name: None for name in self.columns if name not in self.key}
        reached: dict[str, Any] = {}
        for i, record in enumerate(records if removal is None else records[removal:]):
            if removal is not None and i == 0:  # the row is empty but for the order that later ones have to reach
                row |= {name: record.row[name] for group in self.groups for name in group.ordering}
                continue
            if record.adds:
                row |= {n: v for n, v in record.row.items() if v is not None and n in row and n not in self.grouped}
            for group in self.groups:
                if _touches(record, group):
                    self._update_group(group, record, row, reached, adding=adding)
        row |= {name: None if value is _NOTHING else value for name, value in reached.items()}
        if not adding:  # a row that takes back; of plain columns only the order counts, and the last has the newest
            row |= {name: value for name, value in records[-1].row.items() if name in row and name not in self.grouped}
            for group in self.groups:
                touching = [record for record in records if _touches(record, group)]
                for name in self._functions(group):
                    values = [(record.kind, record.row[name]) for record in touching]
                    row[name] = (
                        fold_rows(self._function(name), self.columns[name], self._of(name), values) if values else None
                    )
        return row, "+I" if adding else self._retracted()

    def _update_group(self, group: SequenceGroup, record: Record, row: Row, reached: Row, *, adding: bool) -> None:
        late = _late(record, group, row)
        if not late:
            row |= {name: record.row[name] for name in group.ordering}
            for name in group.protected:
                if name not in group.ordering and name not in self._functions(group):
                    row[name] = record.row[name] if record.adds else None
        if adding:
            for name in self._functions(group):
                reached[name] = self._step(name, reached.get(name, _NOTHING), record, late=late)

    def _step(self, name: str, held: Any, record: Record, *, late: bool) -> Any:
        function, value = self._function(name), record.row[name]
        if record.adds and held is _NOTHING:
            return value
        if record.adds:
            pair = [("+I", held), ("+I", value)]
            if late and function != "collect":
                pair.reverse()
        elif self._of(name).get("ignore-retract") == "true":
            return held
        else:
            pair = [("+I", None if held is _NOTHING else held), (record.kind, value)]
        return fold_rows(function, self.columns[name], self._of(name), pair)

    # rows as they come in

    def _normal(self, record: Record) -> Record:
        """Return a row as its functions make it, alone: each element once in a set, no column that nothing orders."""
        if not record.adds or self.engine not in ("aggregation", "partial-update"):
            return record
        row = dict(record.row)
        for group in self.groups:
            if not _touches(record, group):
                row |= dict.fromkeys(group.protected)
        for name in row:
            functions = self.engine == "aggregation" or (name in self.grouped and self._named_function(name))
            if functions and name not in self.key:
                row[name] = normal(self._function(name), self.columns[name], self._of(name), row[name])
        return replace(record, row=row)

    # functions

    def _functions(self, group: SequenceGroup) -> list[str]:
        names = [name for name in group.protected if name not in group.ordering]
        return [name for name in names if self._named_function(name) is not None]

    def _named_function(self, name: str) -> str | None:
        return self.options.get(f"fields.{name}.aggregate-function") or self.options.get(
            "fields.default-aggregate-function"
        )

    def _function(self, name: str) -> str:
        """Return the function that folds stored records: counts are made where rows come in."""
        if self.engine == "aggregation" and name in self.sequence_fields:
            return "primary-key"  # the newest version's, whatever its kind: a row keeps its place in the order
        found = self._named_function(name) or "last_non_null_value"
        return "sum" if found == "count" else found

    def _of(self, name: str) -> dict[str, str]:
        start = f"fields.{name}."
        return {option.removeprefix(start): text for option, text in self.options.items() if option.startswith(start)}

    def _counted(self, record: Record) -> Record:
        """Return a row as it comes in with 1 and 0 in the columns that count."""
        counting = [name for name in self.columns if self._named_function(name) == "count" and name not in self.key]
        if self.engine not in ("aggregation", "partial-update") or not counting:
            return record
        return replace(record, row=record.row | {name: int(record.row[name] is not None) for name in counting})

    def _some_function_cannot_retract(self) -> bool:
        names = [name for name in self.columns if name not in self.key]
        if self.engine == "partial-update":
            names = [name for group in self.groups for name in self._functions(group)]
        return any(
            self._function(name) in NOT_RETRACTING and self._of(name).get("ignore-retract") != "true" for name in names
        )

    def _dropped(self, kind: str) -> bool:
        return (self.ignore_delete and kind in ("-U", "-D")) or (self.ignore_update_before and kind == "-U")


@dataclass
class HistoryOracle(EngineOracle):
    """A key table of any merge engine, as its rows make it in the order of their commits.

    The way of the rows into files has no say: not the flushes, not the compactions, not which versions met first.
    """

    def flush(self, changes: Iterable[Change]) -> None:
        """Take rows, in order."""
        for kind, row in changes:
            self.flushes += 1
            kind = kind if self.rowkind_field is None else row[self.rowkind_field]
            if not self._dropped(kind):
                record = self._normal(self._counted(Record(kind, dict(row), (self.flushes, 0, 0))))
                self.stored.setdefault(tuple(row[name] for name in self.key), []).append(record)

    def compact(self, *, keeps: bool = False) -> None:
        """Change nothing."""

    def _functions(self, group: SequenceGroup) -> list[str]:
        # `last_value` is the value of the newest version of the group. What is late does not reach it, retractions too.
        return [n for n in super()._functions(group) if self._function(n) != "last_value" or self._ignores(n)]

    def _ignores(self, name: str) -> bool:
        return self._of(name).get("ignore-retract") == "true"


@dataclass
class CountingOracle:
    """A table without a key that counts equal rows: what is taken back more often than added is not shown.

    Attributes:
        columns: names, in order.
        counts: how often each row was added, less how often it was taken back.
    """

    columns: Sequence[str]
    counts: Counter[Key] = field(default_factory=Counter)

    def flush(self, changes: Iterable[Change]) -> None:
        """Add rows of kind +I and +U, take back rows of kind -U and -D."""
        for kind, row in changes:
            self.counts[tuple(row[name] for name in self.columns)] += 1 if kind in ("+I", "+U") else -1

    def visible(self) -> list[Row]:
        """Return the rows that a batch read gives, in no order."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.counts.elements()]


def compared(a: Any, b: Any, *, descending: bool = False) -> int:
    """Return -1, 0 or 1: nulls lowest whatever the direction, -0.0 below 0.0, NaN above all, text by bytes."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    low, high = _comparable(a), _comparable(b)
    found = int(low > high) - int(low < high)
    return -found if descending else found


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0, 0.0) if math.isnan(value) else (0, value, math.copysign(1.0, value) if value == 0 else 0.0)
    return value.encode() if isinstance(value, str) else value


def _touches(record: Record, group: SequenceGroup) -> bool:
    return any(record.row[name] is not None for name in group.ordering)


def _late(record: Record, group: SequenceGroup, held: Row) -> bool:
    """Return whether the ordering columns of a version lie below those that are held."""
    for name in group.ordering:
        found = compared(record.row[name], held[name])
        if found:
            return found < 0
    return False


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
