"""Random histories of tables whose schemas change between writes, edits, compactions, expiry and reads.

The oracle keeps values by the id of their column, at any depth, so a rename or a move is nothing to it. Types climb
ladders whose every step keeps each value, so what a value becomes does not depend on the schema that it was stored
with, nor on what was rewritten when.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser import changes as c
from merganser.errors import InvalidInputError
from merganser.schema import types as t

LADDERS: tuple[tuple[str, ...], ...] = (
    ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(20, 0)", "STRING"),
    ("FLOAT", "DOUBLE"),
    ("DATE", "TIMESTAMP(3)", "TIMESTAMP(6)"),
    ("VARCHAR(6)", "VARCHAR(20)", "STRING"),
    ("DECIMAL(6, 2)", "DECIMAL(12, 4)"),
    ("BINARY(4)", "VARBINARY(9)"),
)
NESTED = ("ROW<x INT, y VARCHAR(6)>", "ARRAY<ROW<u SMALLINT, v DATE>>", "MAP<STRING, ROW<w INT>>", "ARRAY<INT>")
ENGINES = ("deduplicate", "deduplicate", "partial-update", "aggregation", "append")
Row = dict[int, Any]


def ladder_of(kind: str, first: str) -> tuple[str, ...]:
    """Return the steps above a type, given the type that its column began with."""
    ladder = next(one for one in LADDERS if first in one)
    return ladder[ladder.index(kind) + 1 :]


def drawn(kind: t.DataType, origin: dict[int, str], own: int, rng: random.Random, nulls: float = 0.2) -> Any:
    """Return a value of a type, the members of rows by their ids."""
    if rng.random() < nulls and kind.nullable:
        return None
    match kind:
        case t.Row(fields=fields):
            return {f.id: drawn(f.type, origin, f.id, rng) for f in fields}
        case t.Array(element=element):
            return [drawn(element, origin, own, rng) for _ in range(rng.randrange(3))]
        case t.Map(value=value):
            return {key: drawn(value, origin, own, rng) for key in rng.sample("abc", rng.randrange(3))}
    first = origin[own]
    if first in LADDERS[0]:
        return rng.randrange(-9, 10)
    if first in LADDERS[1]:
        return rng.choice([-1.5, 0.25, 3.0])
    if first in LADDERS[2]:
        return date(2024, 1, 1) + timedelta(days=rng.randrange(-20000, 5))
    if first in LADDERS[4]:
        return Decimal(rng.randrange(-999, 999)).scaleb(-2)
    if first in LADDERS[5]:
        return rng.randbytes(4)
    return "".join(rng.choices("abż", k=rng.randrange(5)))


def shown(value: Any, kind: t.DataType) -> Any:
    """Return a value as a table with this type gives and takes it."""
    if value is None:
        return None
    match kind:
        case t.Row(fields=fields):
            return {f.name: shown(value.get(f.id), f.type) for f in fields}
        case t.Array(element=element):
            return [shown(one, element) for one in value]
        case t.Map(value=inner):
            return [(key, shown(one, inner)) for key, one in sorted(value.items())]
        case t.VarChar():
            return str(value)
        case t.Decimal(scale=scale):
            return Decimal(value).quantize(Decimal(1).scaleb(-scale))
        case t.Timestamp():
            return datetime.combine(value, time())
    return value


def plain(value: Any, kind: t.DataType) -> Any:
    """Return a value that was read, maps in the order of their keys."""
    match kind:
        case t.Row(fields=fields) if value is not None:
            return {f.name: plain(value[f.name], f.type) for f in fields}
        case t.Array(element=element) if value is not None:
            return [plain(one, element) for one in value]
        case t.Map(value=inner) if value is not None:
            return [(key, plain(one, inner)) for key, one in sorted(value)]
    return value


@dataclass
class Oracle:
    """The rows of a table after its commits.

    Attributes:
        key: ids of the key columns.
        origin: the type that each column, at any depth, began with.
        sums: ids of the columns that are added up; others keep their newest value, or their newest that is not null.
    """

    engine: str
    key: tuple[int, ...]
    origin: dict[int, str] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    log: list[tuple[str, Row]] = field(default_factory=list)

    def note(self, fields: tuple[t.Field, ...]) -> None:
        """Remember the types that new columns begin with."""
        for top in fields:
            for one in (top, *t.nested_fields(top.type)):
                self.origin.setdefault(one.id, str(_leaf(one.type).with_nullable(True)))

    def write(self, rows: list[tuple[str, Row]]) -> None:
        self.log += rows
        if self.engine == "append":
            self.rows += [row for _, row in rows]
            return
        there = {self._key(row): row for row in self.rows}
        for kind, row in rows:
            old = there.get(self._key(row))
            if kind == "-D":
                there.pop(self._key(row), None)
            elif old is None or self.engine == "deduplicate":
                there[self._key(row)] = row
            else:
                there[self._key(row)] = {i: self._merged(i, old.get(i), row.get(i)) for i in {**old, **row}}
        self.rows = list(there.values())

    def _merged(self, column: int, old: Any, new: Any) -> Any:
        if new is None or old is None:
            return old if new is None else new
        return old + new if column in self.sums else new

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[i] for i in self.key)


def _leaf(kind: t.DataType) -> t.DataType:
    match kind:
        case t.Array(element=element):
            return _leaf(element)
        case t.Map(value=value):
            return _leaf(value)
    return kind


def _paths(fields: tuple[t.Field, ...], before: str = "") -> Iterator[tuple[str, t.Field]]:
    """Yield every column and field of a row inside one, with its path."""
    for one in fields:
        yield before + one.name, one
        inner = _leaf(one.type)
        if isinstance(inner, t.Row):
            yield from _paths(inner.fields, f"{before}{one.name}.")


class History:
    """One table, its oracle, and handles of older schemas."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.engine = rng.choice(ENGINES)
        self.names = iter(f"{a}{b}" for a in string.ascii_lowercase for b in string.digits)
        kinds = [rng.choice(one) for one in rng.sample(LADDERS, 2)] + rng.sample(NESTED, 1)
        columns = {"k": rng.choice(["INT", "STRING", "DATE"]), "p": "STRING", "s": "INT"}
        columns |= {next(self.names): kind for kind in kinds}
        keyed = self.engine != "append"
        partition = ["p"] if rng.random() < 0.4 else []
        options = {
            "bucket": rng.choice(["1", "2", "-1"]) if keyed else "-1",
            "file.format": rng.choice(["parquet", "parquet", "orc", "avro"]),
            "write-buffer-size": rng.choice(["1 kb", "256 mb"]),
            "target-file-row-num": str(rng.choice([5, 100_000])),
            "num-sorted-run.compaction-trigger": rng.choice(["2", "5"]),
            "data-file.thin-mode": rng.choice(["true", "false"]),
            "file-index.bloom-filter.columns": rng.choice(["s", "k,s"]),
            "snapshot.num-retained.max": "1000",
        }
        if keyed:
            options["changelog-producer"] = rng.choice(["none", "input"])
            options["merge-engine"] = self.engine
        if self.engine == "aggregation":
            options["fields.s.aggregate-function"] = "sum"
        if self.engine == "deduplicate" and rng.random() < 0.3 and options["changelog-producer"] == "none":
            options["deletion-vectors.enabled"] = "true"
        catalog = mg.catalog(str(path), options={"local.sync": "false"})
        catalog.create_database("db")
        self.table = catalog.create_table(
            "db.t", columns, primary_key=[*partition, "k"] if keyed else [], partition_by=partition, options=options
        )
        schema = self.table.schema
        self.oracle = Oracle(self.engine, tuple(schema.field(name).id for name in schema.primary_keys))
        self.oracle.note(schema.fields)
        self.summed = schema.field("s").id
        if self.engine == "aggregation":
            self.oracle.sums.add(self.summed)
        self.old = [self.table]
        self.states: dict[int, tuple[tuple[t.Field, ...], list[Row]]] = {}
        self.conditions = random.Random(f"{seed} conditions")  # of its own: the rest of a history stays what it was

    def run(self) -> None:
        for _ in range(self.rng.randrange(6, 12)):
            match self.rng.random():
                case x if x < 0.5:
                    self._write()
                case x if x < 0.85:
                    self._alter()
                case _:
                    self.table.compact(full=self.rng.random() < 0.7)
            if self.conditions.random() < 0.2:
                self._change_rows()
            if self.engine == "append" and self.conditions.random() < 0.15:
                self._get_key()
            if self.conditions.random() < 0.15 and self.table.options.get("changelog-producer") != "input":
                self._expire()
            self._same(self.table.read(), self.table.schema.fields, self.oracle.rows)
            self._filtered()
        for snapshot, (fields, rows) in list(self.states.items())[:: max(1, len(self.states) // 3)]:
            self._same(self.table.read(snapshot=snapshot), fields, rows)
        self._changes()
        self._looked_up()
        assert self.table.check() == ()
        self.table.compact(full=True)
        self.table.expire(retain_max=1, retain_min=1, older_than=datetime(2200, 1, 1).astimezone())
        self._same(self.table.read(), self.table.schema.fields, self.oracle.rows)
        assert self.table.check() == ()

    def _write(self) -> None:
        rng = self.rng
        handle = self.table if rng.random() < 0.7 else rng.choice(self.old)
        fields = handle.schema.fields
        must = {*handle.primary_key, *handle.partition_by}
        rows = []
        for _ in range(rng.choice([1, 3, 25])):
            row = {}
            for one in fields:
                nulls = 0.0 if one.name in must else 0.2
                value = rng.choice("ab") if one.name == "p" else drawn(one.type, self.oracle.origin, one.id, rng, nulls)
                row[one.id] = value
            kind = "-D" if self.engine == "deduplicate" and rng.random() < 0.2 else "+I"
            rows.append((kind, row))
        given = [{one.name: shown(row[one.id], one.type) for one in fields} for _, row in rows]
        snapshot = handle.write(given, [kind for kind, _ in rows])
        for _, row in rows:
            for one in fields:
                if row[one.id] is None and one.default is not None:
                    row[one.id] = int(one.default)
        self.oracle.write(rows)
        assert snapshot is not None
        if "deletion-vectors.enabled" in self.table.options:  # rows are seen once they are compacted
            snapshot = self.table.snapshots()[-1]
        self.states[snapshot.id] = (self.table.schema.fields, list(self.oracle.rows))

    def _change_rows(self) -> None:
        """Delete or update the rows with some value of the column that began as `s`."""
        if self.engine not in ("deduplicate", "append"):
            return
        one = next(field for field in self.table.schema.fields if field.id == self.summed)
        value = self.conditions.choice([row.get(one.id) for row in self.oracle.rows] or [None])
        if value is None or self.table.options.get("changelog-producer") == "input":
            return
        text = f"'{value}'" if isinstance(one.type, t.VarChar) else str(value)
        where = f"{one.name} = {text}"
        chosen = [row for row in self.oracle.rows if row.get(one.id) == value]
        others = [row for row in self.oracle.rows if row.get(one.id) != value]
        source = [{"x": shown(value, one.type), "y": shown(11, one.type)}]
        merge = self.table.merge(source, on=f"target.{one.name} = source.x")
        goes = self.conditions.random() < 0.5
        merges = self.conditions.random() < 0.4
        if goes:
            snapshot = merge.when_matched_delete().execute() if merges else self.table.delete(where)
            self.oracle.rows = others
        else:
            merge = merge.when_matched_update({one.name: "source.y"})
            snapshot = merge.execute() if merges else self.table.update(where, {one.name: "11"})
            self.oracle.rows = [*others, *({**row, one.id: 11} for row in chosen)]
        if snapshot is not None:  # None: they were so already
            self.states[self.table.snapshots()[-1].id] = (self.table.schema.fields, list(self.oracle.rows))

    def _expire(self) -> None:
        """Let some snapshots expire; the others stay as they are."""
        kept = self.conditions.randrange(1, 6)
        self.table.expire(retain_max=kept, retain_min=1, older_than=datetime(2200, 1, 1).astimezone())
        first = self.table.snapshots()[0].id if self.table.snapshots() else 0
        assert len(self.table.snapshots()) <= kept
        self.states = {snapshot: state for snapshot, state in self.states.items() if snapshot >= first}

    def _get_key(self) -> None:
        """Give a table of appended rows a primary key; of the rows of a key any may stay, since they have no order."""
        ids = {field.name: field.id for field in self.table.schema.fields}
        if 0 not in ids.values():
            return  # the column was dropped
        names = [*self.table.partition_by, next(name for name, number in ids.items() if number == 0)]
        of_key = [ids[name] for name in names]
        if any(row[i] is None for row in self.oracle.rows for i in of_key):
            with pytest.raises(InvalidInputError, match=r"ha(ve|s) null in the primary key"):
                self.table.alter([c.set_primary_key(names)])
            self.table.delete(" OR ".join(f"{name} IS NULL" for name in names))
            self.oracle.rows = [row for row in self.oracle.rows if all(row[i] is not None for i in of_key)]
        by_key: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.oracle.rows:
            by_key.setdefault(tuple(row[i] for i in of_key), []).append(row)
        changes = [c.set_primary_key(names), c.set_option("bucket", self.conditions.choice([-1, 2]))]
        if any(len(rows) > 1 for rows in by_key.values()):
            with pytest.raises(InvalidInputError, match="of the primary key"):
                self.table.alter(changes)
            changes.append(c.set_option("merge-engine", "deduplicate"))
        self.table = self.table.alter(changes)
        self.old, self.engine = [self.table], "deduplicate"
        fields = self.table.schema.fields
        left = {repr([plain(row[f.name], f.type) for f in fields]) for row in self.table.read().to_pylist()}
        self.oracle.engine, self.oracle.key = self.engine, tuple(of_key)
        self.oracle.rows = [
            next(row for row in rows if repr([shown(row.get(f.id), f.type) for f in fields]) in left)
            for rows in by_key.values()
        ]

    def _alter(self) -> None:
        changes = [found for _ in range(self.rng.choice([1, 1, 2, 4])) if (found := self._change()) is not None]
        touched: set[str] = set()
        chosen = []
        for change in changes:  # each of another column, since paths are those of before
            place = change.place.after if isinstance(change, c.AddColumn) else None
            tops = {path.split(".")[0] for path in (change.name, place) if path}
            if tops.isdisjoint(touched):
                chosen.append(change)
                touched |= tops
        if not chosen:
            return
        self.old.append(self.table)
        self.table = self.table.alter(chosen)
        self.oracle.note(self.table.schema.fields)

    def _change(self) -> Any:
        rng, fields = self.rng, self.table.schema.fields
        must = {*self.table.primary_key, *self.table.partition_by}
        path, one = rng.choice(list(_paths(fields)))
        nested = "." in path
        match rng.choice(["add", "add", "drop", "rename", "rename", "retype", "retype", "retype", "move", "default"]):
            case "add":
                kind = rng.choice([*(step for ladder in LADDERS for step in ladder), *NESTED])
                row = isinstance(_leaf(one.type), t.Row)
                parent = path + "." if row else path[: -len(one.name)]
                after = None if row or rng.random() < 0.5 else path
                return c.add_column(parent + next(self.names), kind, after=after)
            case "drop" if path not in must and path not in ("s", "p") and not self._is_indexed(path):
                siblings = [p for p, _ in _paths(fields) if p.rpartition(".")[0] == path.rpartition(".")[0]]
                return c.drop_column(path) if len(siblings) > 1 else None
            case "rename" if path not in self.table.partition_by and path != "p":
                return c.rename_column(path, next(self.names))
            case "retype" if path not in must and path != "p" and not t.is_nested(one.type):
                first, kind = self.oracle.origin[one.id], str(one.type.with_nullable(True))
                steps = ladder_of(kind, first)
                if one.id in self.oracle.sums or self._is_indexed(path):
                    steps = tuple(step for step in steps if step in ("INT", "BIGINT"))
                return c.retype_column(path, rng.choice(steps)) if steps else None
            case "move" if not nested:
                return c.move_column(path, first=True)
            case "default" if not nested and path not in must and isinstance(one.type, t.Int | t.BigInt):
                return c.set_default(path, rng.choice([None, 7]))
        return None

    def _is_indexed(self, path: str) -> bool:
        return path in self.table.options.get("file-index.bloom-filter.columns", "").split(",")

    def _filtered(self) -> None:
        fields = self.table.schema.fields
        whole = [f for f in fields if isinstance(f.type, t.TinyInt | t.SmallInt | t.Int | t.BigInt | t.VarChar)]
        one = self.rng.choice(whole)
        values = [row.get(one.id) for row in self.oracle.rows if row.get(one.id) is not None]
        value = self.rng.choice(values) if values and self.rng.random() < 0.8 else 4
        text = f"'{shown(value, one.type)}'" if isinstance(one.type, t.VarChar) else str(value)
        wanted = [row for row in self.oracle.rows if row.get(one.id) is not None and row[one.id] == value]
        self._same(self.table.read(where=f"{one.name} = {text}"), fields, wanted)

    def _changes(self) -> None:
        if self.table.options.get("changelog-producer") != "input" or not self.states:
            return
        fields = self.table.schema.fields
        found = self.table.changes(min(self.states), max(self.states)).to_pylist()
        got = sorted(repr((row["_row_kind"], [plain(row[f.name], f.type) for f in fields])) for row in found)
        wanted = [(kind, [shown(row.get(f.id), f.type) for f in fields]) for kind, row in self.oracle.log]
        assert got == sorted(map(repr, wanted))

    def _looked_up(self) -> None:
        if not self.oracle.rows or self.engine == "append":
            return
        fields = self.table.schema.fields
        row = self.rng.choice(self.oracle.rows)
        key = {f.name: shown(row[f.id], f.type) for f in fields if f.name in self.table.primary_key}
        found = self.table.lookup([key]).to_pylist()
        assert [plain(found[0][f.name], f.type) for f in fields] == [shown(row.get(f.id), f.type) for f in fields]

    def _same(self, scan: Any, fields: tuple[t.Field, ...], rows: list[Row]) -> None:
        found = sorted(repr([plain(row[f.name], f.type) for f in fields]) for row in scan.to_pylist())
        wanted = sorted(repr([shown(row.get(f.id), f.type) for f in fields]) for row in rows)
        assert found == wanted, f"{self.table.schema}, {self.engine}, {dict(self.table.options)}"
