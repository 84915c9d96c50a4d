"""Histories of one table that merganser and Java share: who writes, who compacts, and what all must read after it.

A direction says who made the table and whose turn it is. After every turn each client must read what an oracle says;
at the end Java and merganser read some of the earlier snapshots again.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import merganser
from merganser import changes as c
from tests.interop.engine_cases import ADDS, ALL_KINDS, EngineCase, spread_out
from tests.interop.engines import Engine, Fields, MerganserEngine, PeerEngine, TableShape
from tests.interop.layered_oracle import BucketOracles
from tests.interop.random_rows import random_table
from tests.interop.test_both_ways import KeyModel, key_pool
from tests.interop.values import Row, arrow_schema, assert_same_rows, canonical, difference, rows_of
from tests.oracle.drawn_tables import drawn_table

from .java_engine import JavaEngine

WE, THEY, ANYONE = "we write", "Java writes", "somebody writes"
WE_FULL, WE_MINOR = "we compact fully", "we compact"
THEY_FULL, THEY_MINOR = "Java compacts fully", "Java compacts"
DIRECTIONS: Mapping[str, Sequence[str]] = {
    "Java reads ours": (WE, WE, WE_MINOR, WE, WE, WE_MINOR, WE, WE_FULL, WE),
    "we read Java's": (THEY, THEY, THEY_MINOR, THEY, THEY, THEY_MINOR, THEY, THEY_FULL, THEY),
    "Java goes on": (WE, WE, THEY, THEY_FULL, WE, WE, THEY, THEY_MINOR, WE, WE_MINOR, THEY, WE_FULL, THEY),
    "we go on": (THEY, THEY, WE, WE_FULL, THEY, THEY, WE, WE_MINOR, THEY, THEY_MINOR, WE, THEY_FULL, WE),
    "at random": (),
}
"""What is done in turn; the first to write makes the table. At random: see `turns_of`."""
RANDOM_TURNS = 14
_EARLIER_READS = 3
_BYTES = re.compile("(VAR)?BINARY|BYTES")
_BYTES_AND_REALS = re.compile("(VAR)?BINARY|BYTES|FLOAT|DOUBLE")
_MINOR_OPTIONS = {"num-sorted-run.compaction-trigger": "3", "compaction.min.file-num": "2"}
"""So few runs and files are allowed that some are put together and others stay."""


def turns_of(direction: str, random: Random) -> Sequence[str]:
    """The turns of a direction."""
    if direction != "at random":
        return DIRECTIONS[direction]
    pool = (WE, WE, THEY, THEY, ANYONE, ANYONE, WE_FULL, WE_MINOR, WE_MINOR, THEY_FULL, THEY_MINOR, THEY_MINOR)
    return [random.choice((WE, THEY)), *random.choices(pool, k=RANDOM_TURNS)]


@dataclass(frozen=True)
class World:
    """The clients, in one warehouse.

    Attributes:
        others: clients that write and read where a turn is anyone's, by name.
    """

    warehouse: Path
    ours: MerganserEngine
    java: JavaEngine
    others: Mapping[str, PeerEngine]


class SharedTable(ABC):
    """One table, whoever works on it, and what it must hold."""

    def __init__(self, world: World, shape: TableShape, random: Random, others: Sequence[str] = ()) -> None:
        self.world, self.shape, self.random = world, shape, random
        self.others = [world.others[name] for name in others if name in world.others]
        self.log: list[str] = []
        self.seen: dict[int, list[Row]] = {}
        self.shapes: dict[int, TableShape] = {}

    def take(self, turns: Sequence[str]) -> None:
        """Take turns, and compare all clients after each."""
        self.first = turns[0]
        self.create()
        self.log.append(f"{self.creator.name} created, with {dict(self.shape.options)}")
        self.table = self.world.ours.table("db.t")
        self.created()
        for turn in turns:
            self._take(turn)
            self.compare()
        self.finish()

    def finish(self) -> None:
        """Earlier snapshots are as they were, and the table is sound."""
        self._read_again()
        findings = [found for found in self.table.check() if found.is_fault or not self._lacks_checksums(found.path)]
        assert not findings, "\n".join([f"after: {'; '.join(self.log)}, the check finds", *map(str, findings)])

    def _lacks_checksums(self, path: str) -> bool:
        """Whether the check cannot tell of a file: Java's Parquet pages have checksums, those of others have none."""
        return bool(self.others) or path.endswith((".orc", ".avro"))

    @property
    def creator(self) -> Engine:
        """Who makes the table: the first to write."""
        return self.world.ours if self.first == WE else self.world.java

    def _take(self, turn: str) -> None:
        self.log.append(turn)
        match turn:
            case _ if turn == WE:
                self.write(self.world.ours)
            case _ if turn == THEY:
                self.write(self.world.java)
            case _ if turn == ANYONE:
                writer = self.random.choice([self.world.ours, self.world.java, *self.others])
                self.log[-1] += f": {writer.name}"
                self.write(writer)
            case _:
                self.compact(self.world.ours if turn in (WE_FULL, WE_MINOR) else self.world.java, turn)

    def compact(self, engine: Engine, turn: str) -> None:
        """Compact by our client or Java."""
        full = turn in (WE_FULL, THEY_FULL)
        options = {} if full else _MINOR_OPTIONS
        if isinstance(engine, JavaEngine):
            engine.compact("db.t", full=full, options=options)
        else:
            self.table.with_options(options).compact(full=full)

    def create(self) -> None:
        """Make the table."""
        self.creator.create("db.t", self.shape)

    @abstractmethod
    def created(self) -> None:
        """Take note that the table is there."""

    @abstractmethod
    def write(self, writer: Engine) -> None:
        """Let a client make one commit."""

    @abstractmethod
    def expected(self) -> list[Row]:
        """What must be read."""

    def compare(self) -> None:
        """Every client must read what is expected."""
        expected = self.comparable(self.expected())
        snapshot = self.table.latest_snapshot()
        if snapshot is not None:
            self.seen[snapshot.id], self.shapes[snapshot.id] = expected, self.shape
        found = {engine.name: difference(self.comparable(self.read(engine)), expected) for engine in self.readers()}
        wrong = [f"{name} reads {words}" for name, words in found.items() if words is not None]
        assert not wrong, "\n".join([f"after: {'; '.join(self.log)}", *wrong])

    def comparable(self, rows: list[Row]) -> list[Row]:
        """Rows without what has no meaning, such as an order that nobody promises."""
        return rows

    def compare_filtered(self) -> None:
        """Rows with one value of one column: what others say of their files must leave out none."""
        rows = self.table.read().to_arrow()
        plain = [field for field in self.shape.fields if isinstance(field[1], str)]
        # in the released Java bounds of bytes are a known difference, and NaN spoils its bounds in ORC
        avoided = _BYTES_AND_REALS if self.shape.options.get("file.format") == "orc" else _BYTES
        name, kind = self.random.choice([(name, kind) for name, kind in plain if not avoided.match(kind)])
        if not rows.num_rows:
            return
        place = self.random.randrange(rows.num_rows)
        value = rows_of(rows.select([name]).slice(place, 1), [(name, kind)])[0][name]
        if value is None or value == "NaN":
            return
        wanted = [row for row in self.expected() if row[name] == value]
        ours = self.table.read(where=pc.field(name) == rows.column(name)[place]).to_arrow()
        found = {
            "merganser": difference(rows_of(ours, self.shape.fields), wanted),
            "java": difference(self.world.java.read("db.t", where=[("equal", name, [value])]), wanted),
        }
        wrong = [f"{client} reads {name} = {value!r}: {words}" for client, words in found.items() if words is not None]
        assert not wrong, "\n".join([f"after: {'; '.join(self.log)}", *wrong])

    def readers(self) -> list[Engine]:
        """The clients that can read the table as it is."""
        return [self.world.ours, self.world.java, *self.others]

    def read(self, engine: Engine) -> list[Row]:
        """Every row, as one client reads it."""
        return engine.rows("db.t", self.shape)

    def read_at(self, engine: JavaEngine, snapshot: int) -> list[Row]:
        """Every row of an earlier snapshot, as Java reads it."""
        return engine.read("db.t", options={"scan.snapshot-id": str(snapshot)})

    def _read_again(self) -> None:
        for snapshot in self.random.sample(sorted(self.seen), min(_EARLIER_READS, len(self.seen))):
            words = f"snapshot {snapshot}, after: {'; '.join(self.log)}"
            ours = rows_of(self.table.read(snapshot=snapshot).to_arrow(), self.shapes[snapshot].fields)
            assert_same_rows(self.comparable(ours), self.seen[snapshot], f"merganser reads {words}")
            theirs = self.read_at(self.world.java, snapshot)
            assert_same_rows(self.comparable(theirs), self.seen[snapshot], f"java reads {words}")


class EngineTable(SharedTable):
    """A table of a merge engine; what was folded is told by the files of its buckets."""

    def __init__(
        self,
        world: World,
        case: EngineCase,
        random: Random,
        others: Sequence[str] = (),
        *,
        spread: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is made yet.

        Args:
            world: the clients.
            case: what kind of table.
            random: what is drawn from.
            others: clients beside Java and merganser that work on such a table.
            spread: the table has partitions and several buckets.
            options: beside those of the case.
        """
        shape = spread_out(case.shape) if spread else case.shape
        super().__init__(world, replace(shape, options={**shape.options, **(options or {})}), random, others)
        self.case, self.spread = case, spread

    @property
    def creator(self) -> Engine:
        """Who makes the table: only we have a name of our own for an engine of the format."""
        return self.world.ours if self.case.options.get("merge-engine") == "versioned" else super().creator

    def created(self) -> None:
        """Begin the oracles."""
        self.oracles = BucketOracles(self.table)

    def write(self, writer: Engine) -> None:
        """Let a client write what the case draws."""
        kinds = self.case.kinds if writer.deletes else ("+I",)
        blanks = not any(engine.name in self.case.blanks_differ for engine in (self.world.java, *self.others))
        there = {row["k"] for row in self.oracles.visible()}
        rows, row_kinds = self.case.changes(self.random, kinds, there, blanks=blanks, spread=self.spread)
        if isinstance(writer, JavaEngine) and self.case.options.get("sequence.field.sort-order") == "descending":
            # the released Java sorts what it buffers in ascending order whatever the option says; so no key comes twice
            places = {row["k"]: place for place, row in enumerate(rows)}.values()
            rows, row_kinds = [rows[place] for place in places], [row_kinds[place] for place in places]
        arrow = pa.Table.from_pylist(rows, arrow_schema(self.shape.fields))
        writer.write("db.t", arrow, kinds=row_kinds if writer.deletes else None)
        self.log[-1] += f" ({' '.join(row_kinds)})"
        self.oracles.flush(arrow, list(zip(row_kinds, arrow.to_pylist(), strict=True)), ours=writer is self.world.ours)

    def compact(self, engine: Engine, turn: str) -> None:
        """Compact, and see what was put together."""
        super().compact(engine, turn)
        self.oracles.compacted(ours=engine is self.world.ours)

    def expected(self) -> list[Row]:
        """What the oracles fold."""
        rows = pa.Table.from_pylist(self.oracles.visible(), arrow_schema(self.shape.fields))
        return rows_of(rows, self.shape.fields)

    def readers(self) -> list[Engine]:
        """All clients, but those that refuse retractions while some are stored."""
        if self.oracles.holds_retractions:
            return [engine for engine in super().readers() if engine.name not in self.case.refused_merges]
        return super().readers()


class KeyTable(SharedTable):
    """A table that keeps the newest row of each key, of any key, types, partitions and file format."""

    def created(self) -> None:
        """Draw the keys."""
        types = dict(self.shape.fields)
        drawn = key_pool(self.random, [types[name] for name in self.shape.primary_key])
        self.pool = [key for key in drawn if not any(map(_unordered, key))]
        self.model = KeyModel(self.shape.primary_key)

    def write(self, writer: Engine) -> None:
        """Upsert keys that come again, or delete some."""
        keys = self.random.choices(self.pool, k=self.random.randint(1, 25))
        kinds = None
        if writer.deletes and self.random.random() < 0.3:
            keys = list(dict.fromkeys(keys))
            kinds = ["-D"] * len(keys)
        rows = random_table(self.random, self.shape.fields, self.shape.primary_key, keys)
        writer.write("db.t", rows, kinds=kinds)
        self.model.apply(rows_of(rows, self.shape.fields), delete=kinds is not None)

    def expected(self) -> list[Row]:
        """The newest rows."""
        return self.model.rows()

    def compare(self) -> None:
        """All rows, and some."""
        super().compare()
        self.compare_filtered()


class RescaledTable(KeyTable):
    """A table whose number of buckets we change again and again; Java writes on with the new number."""

    def write(self, writer: Engine) -> None:
        """Rescale now and then, then write."""
        if self.random.random() < 0.4:
            buckets = self.random.choice([1, 2, 3, 4, 6])
            self.table.rescale(buckets)
            self.log[-1] += f" (after merganser rescaled to {buckets})"
        super().write(writer)


class EvolvedTable(KeyTable):
    """A table whose columns come, go, and get other names and types; we alter it, and Java does."""

    TYPES = ("INT", "STRING", "DECIMAL(10, 2)", "DATE")
    WIDER: Mapping[str, str] = {"INT": "BIGINT", "DECIMAL(10, 2)": "DECIMAL(14, 2)"}

    def write(self, writer: Engine) -> None:
        """Alter the table now and then, then write."""
        if self.random.random() < 0.5:
            self.alter(writer)
        super().write(writer)

    def alter(self, engine: Engine) -> None:
        """Let a client change one column."""
        keys = self.shape.primary_key
        values = [name for name, _ in self.shape.fields if name not in keys]
        wide = [name for name, kind in self.shape.fields if name in values and str(kind) in self.WIDER]
        kinds = ["add", "rename", *(["drop"] if len(values) > 2 else []), *(["retype"] if wide else [])]
        kind, new = self.random.choice(kinds), f"c{len(self.log)}"
        fields, rows = list(self.shape.fields), self.model.by_key
        if kind == "add":
            change = [kind, new, self.random.choice(self.TYPES)]
            fields.append((new, change[2]))
            rows = {key: {**row, new: None} for key, row in rows.items()}
        else:
            name = self.random.choice(wide if kind == "retype" else values)
            place = [field[0] for field in fields].index(name)
            if kind == "drop":
                change = [kind, name]
                del fields[place]
                rows = {key: {each: row[each] for each, _ in fields} for key, row in rows.items()}
            elif kind == "rename":
                change = [kind, name, new]
                fields[place] = (new, fields[place][1])
                rows = {key: {new if each == name else each: row[each] for each in row} for key, row in rows.items()}
            else:
                change = [kind, name, self.WIDER[str(fields[place][1])]]
                fields[place] = (name, change[2])
        self.log[-1] += f" (after {engine.name}: {' '.join(change)})"
        if isinstance(engine, JavaEngine):
            engine.ask("alter_table", "db.t", changes=[change])
        else:
            made = {"add": c.add_column, "drop": c.drop_column, "rename": c.rename_column, "retype": c.retype_column}
            self.table.alter([made[kind](*change[1:])])
        self.table = self.world.ours.table("db.t")
        self.shape, self.model.by_key = replace(self.shape, fields=tuple(fields)), rows


class KeyedLaterTable(KeyTable):
    """A table without a key, which gets one from us once it has rows."""

    def created(self) -> None:
        """It has no key yet."""
        self.wanted, self.rows = ("k",), list[Row]()
        self.at = self.random.randint(1, 4)
        self.model = KeyModel(self.wanted)
        self.pool = [(k,) for k in self.random.sample(range(-500, 500), 40)]

    def write(self, writer: Engine) -> None:
        """Append rows; with a key, upsert them."""
        if self.shape.primary_key:
            super().write(writer)
            return
        keys = self.random.choices(self.pool, k=self.random.randint(1, 25))
        rows = random_table(self.random, self.shape.fields, ("k",), keys)
        writer.write("db.t", rows)
        self.rows = self.rows + rows_of(rows, self.shape.fields)
        self.at -= 1
        if not self.at:
            self.compare()
            self.table.alter([c.set_primary_key(self.wanted), c.set_option("merge-engine", "deduplicate")])
            self.log[-1] += " (then merganser gave it a key)"
            self.table = self.world.ours.table("db.t")
            self.shape = replace(self.shape, primary_key=self.wanted)
            self.model.apply(self.rows, delete=False)

    def expected(self) -> list[Row]:
        """All rows; with a key, the newest of each."""
        return self.model.rows() if self.shape.primary_key else self.rows


class MigratedTable(KeyTable):
    """A table that we make of a folder of files."""

    FIELDS: Fields = (("k", "INT"), ("a", "STRING"), ("b", "BIGINT"), ("c", "DECIMAL(10, 2)"), ("p", "STRING"))

    def __init__(self, world: World, random: Random, how: str, others: Sequence[str] = (), *, keyed: bool) -> None:
        """Nothing is made yet.

        Args:
            how: the files become files of the table: "link", "keep" or "copy".
            keyed: it gets a key.
        """
        key = ("p", "k") if keyed else ()
        fields = [(name, f"{kind} NOT NULL") if name in key else (name, kind) for name, kind in self.FIELDS]
        super().__init__(world, TableShape(tuple(fields), key, ("p",), {"bucket": "-1"}), random, others)
        self.how = how

    def _lacks_checksums(self, path: str) -> bool:
        return True  # the files of the folder have none

    @property
    def creator(self) -> Engine:
        """We do."""
        return self.world.ours

    def create(self) -> None:
        """Write the folder, and make a table of it."""
        folder, given = self.world.warehouse / "folder", list[Row]()
        for number in range(self.random.randint(1, 5)):
            place = self.random.choice("xyz")
            path = folder / f"p={place}" / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            keys = [(k,) for k in range(number * 20, number * 20 + self.random.randint(1, 15))]
            rows = random_table(self.random, self.FIELDS[:-1], ("k",), keys)
            pq.write_table(rows, path, compression="zstd", store_decimal_as_integer=True)  # others Java cannot filter
            given += [{**row, "p": place} for row in rows_of(rows, self.FIELDS[:-1])]
        self.world.ours.database("db").migrate(
            folder, "db.t", how=self.how, primary_key=self.shape.primary_key, types=dict(self.FIELDS)
        )
        self.first_rows = given

    def created(self) -> None:
        """The rows of the folder are there."""
        self.pool = [(self.random.choice("xyz"), k) for k in range(0, 100, 3)]
        self.model, self.held = KeyModel(self.shape.primary_key), self.first_rows
        if self.shape.primary_key:
            self.model.apply(self.held, delete=False)

    def write(self, writer: Engine) -> None:
        """Upsert rows; without a key, append them."""
        if self.shape.primary_key:
            super().write(writer)
            return
        rows = random_table(self.random, self.FIELDS, ("p",), [(p,) for p, _ in self.random.choices(self.pool, k=9)])
        writer.write("db.t", rows)
        self.held = self.held + rows_of(rows, self.shape.fields)

    def expected(self) -> list[Row]:
        """All rows, or the newest of each key."""
        return self.model.rows() if self.shape.primary_key else self.held


class WaitingTable(KeyTable):
    """A table that postpones buckets: rows that Java leaves waiting get theirs from us."""

    def write(self, writer: Engine) -> None:
        """Write, and give rows that wait their buckets."""
        super().write(writer)
        self.table.compact(full=self.random.random() < 0.3)

    def compact(self, engine: Engine, turn: str) -> None:
        """Compact with merganser: the core of Java alone gives no buckets."""
        super().compact(self.world.ours, turn)


class RowKindTable(KeyTable):
    """A table whose column `kind` says what each row is."""

    def write(self, writer: Engine) -> None:
        """Upsert and delete in one commit, without saying so beside the rows."""
        keys = self.random.choices(self.pool, k=self.random.randint(1, 25))
        rows = random_table(self.random, self.shape.fields, self.shape.primary_key, keys)
        kinds = [self.random.choice(ALL_KINDS) for _ in keys]
        rows = rows.set_column(rows.schema.get_field_index("kind"), rows.schema.field("kind"), pa.array(kinds))
        writer.write("db.t", rows)
        for row, kind in zip(rows_of(rows, self.shape.fields), kinds, strict=True):
            self.model.apply([row], delete=kind not in ADDS)


class AppendTable(SharedTable):
    """A table without a key: rows add up, until one who overwrites replaces all of them."""

    def created(self) -> None:
        """Nothing is held."""
        self.held: list[Row] = []

    def write(self, writer: Engine) -> None:
        """Append, or overwrite."""
        rows = random_table(self.random, self.shape.fields, (), [()] * self.random.randint(1, 25))
        overwrite = bool(self.held) and not self.shape.partition_by and self.random.random() < 0.1
        writer.write("db.t", rows, overwrite=overwrite)
        self.held = ([] if overwrite else self.held) + rows_of(rows, self.shape.fields)

    def compact(self, engine: Engine, turn: str) -> None:
        """Compact; of Java's two ways to do it in buckets the one that does not meet itself in one commit."""
        in_buckets = isinstance(engine, JavaEngine) and "bucket-key" in self.shape.options
        super().compact(engine, THEY_FULL if in_buckets else turn)

    def expected(self) -> list[Row]:
        """All rows."""
        return self.held

    def compare(self) -> None:
        """All rows, and some."""
        super().compare()
        self.compare_filtered()


class CountingTable(SharedTable):
    """A counting table: to Java it is the aggregation table that it is, with the column that counts."""

    FIELDS: Fields = (("a", "INT"), ("b", "STRING"), ("d", "DATE"))

    def __init__(self, world: World, random: Random) -> None:
        """Nothing is made yet."""
        super().__init__(world, TableShape(self.FIELDS, options={"write-mode": "change-log", "bucket": "1"}), random)

    @property
    def creator(self) -> Engine:
        """We do: to others it is a table like others."""
        return self.world.ours

    def created(self) -> None:
        """Nothing is counted; Java sees the counts."""
        self.counts: Counter[str] = Counter()
        self.stored = TableShape((*self.FIELDS, ("_VALUE_COUNT", "BIGINT NOT NULL")))
        self.case = EngineCase("counted rows", self.FIELDS[1:], {})

    def write(self, writer: Engine) -> None:
        """Add and take back rows; Java adds numbers."""
        count = self.random.randrange(1, 20)
        rows = [self.case.row(self.random, 0) | {"a": self.random.choice([None, 1, 2])} for _ in range(count)]
        arrow = pa.Table.from_pylist([{name: row[name] for name, _ in self.FIELDS} for row in rows], self._arrow)
        if isinstance(writer, JavaEngine):
            numbers = [self.random.choice([-2, -1, 0, 1, 3]) for _ in rows]
            writer.write("db.t", arrow.append_column("_VALUE_COUNT", pa.array(numbers, pa.int64())))
        else:
            kinds = [self.random.choice(["+I", "+U", "-U", "-D"]) for _ in rows]
            numbers = [1 if kind in ADDS else -1 for kind in kinds]
            writer.write("db.t", arrow, kinds=kinds)
        for row, number in zip(rows_of(arrow, self.FIELDS), numbers, strict=True):
            self.counts[canonical(row)] += number

    @property
    def _arrow(self) -> pa.Schema:
        return arrow_schema(self.FIELDS)

    def expected(self) -> list[Row]:
        """Rows as often as they are there."""
        return [json.loads(text) for text in self.counts.elements()]

    def read(self, engine: Engine) -> list[Row]:
        """Rows; those of Java as often as it says that they are there."""
        if not isinstance(engine, JavaEngine):
            return super().read(engine)
        return self._repeated(engine.rows("db.t", self.stored))

    def read_at(self, engine: JavaEngine, snapshot: int) -> list[Row]:
        """The same of an earlier snapshot."""
        return self._repeated(super().read_at(engine, snapshot))

    def _repeated(self, counted: Sequence[Row]) -> list[Row]:
        times = Counter[str]()
        for row in counted:
            times[canonical({name: row[name] for name, _ in self.FIELDS})] += int(str(row["_VALUE_COUNT"]))
        return [json.loads(text) for text in times.elements()]


class DrawnEngineTable(SharedTable):
    """A table of an engine with random columns, functions and options."""

    def __init__(self, world: World, engine: str, random: Random) -> None:
        """Draw the table; we make one like it first, for the types of the format."""
        self.drawn = drawn_table(engine, random)
        del self.drawn.options["write-buffer-size"]  # one byte is too little for Java
        for option, text in list(self.drawn.options.items()):  # the released Java has neither count nor this option
            if option.endswith(".aggregate-function") and text == "count":
                self.drawn.options[option] = "sum"
            elif option.endswith(".nested-sequence-field"):
                del self.drawn.options[option]
            elif engine == "partial-update" and option.endswith(".aggregate-function") and text == "last_value":
                del self.drawn.options[
                    option
                ]  # what a late retraction does to it differs: docs/differences-from-paimon.md
        self.drawn.options.pop("sequence.auto-padding", None)  # Java has no longer what it may order by
        if int(self.drawn.options["bucket"]) < 0:  # the oracle follows buckets that the hash of the key decides
            for option in list(self.drawn.options):
                if option.startswith(("dynamic-bucket.", "postpone.")):
                    del self.drawn.options[option]
            self.drawn.options["bucket"] = "2"
        if engine == "aggregation" or any(option.endswith(".sequence-group") for option in self.drawn.options):
            for option in ("sequence.field", "sequence.field.sort-order"):
                self.drawn.options.pop(option, None)  # what a retraction does differs: docs/interop.md
        key = [*self.drawn.partition, *self.drawn.key]
        self._scratch(world, key)
        table = world.ours.table("db.scratch")
        fields = tuple((field["name"], field["type"]) for field in _schema_file(world)["fields"])
        self.arrow = table.read().schema
        super().__init__(world, TableShape(fields, tuple(key), tuple(self.drawn.partition), self.drawn.options), random)

    def _scratch(self, world: World, key: Sequence[str]) -> None:
        catalog = merganser.catalog(str(world.warehouse))
        catalog.create_database("db", if_not_exists=True)
        catalog.create_table(
            "db.scratch",
            schema=self.drawn.columns,
            primary_key=list(key),
            partition_by=self.drawn.partition,
            options=self.drawn.options,
        )

    def created(self) -> None:
        """Begin the oracles."""
        self.oracles = BucketOracles(self.table)
        self.kinds = [kind for kind in ALL_KINDS if not self.oracles.rules.refused(kind)]

    def write(self, writer: Engine) -> None:
        """Add rows; take back from rows that are there, in a commit that has each key once."""
        there = {self._key(row) for row in self.oracles.visible()}
        drawn = [self._mild(self.drawn.row(self.random)) for _ in range(self.random.randint(1, 12))]
        rows = {self._key(row): row for row in drawn}
        changes = [(self.random.choice(self.kinds if key in there else ADDS), row) for key, row in rows.items()]
        if self.oracles.rules.removes:  # in the released Java values of a delete shine through what comes later
            changes = [(kind, self._emptied(row) if kind == "-D" else row) for kind, row in changes]
        if "rk" in self.drawn.columns:
            changes = [(kind, row | {"rk": kind}) for kind, row in changes]
        arrow = pa.table(
            [pa.array([row[part.name] for _, row in changes], part.type) for part in self.arrow], schema=self.arrow
        )
        kinds = [kind for kind, _ in changes]
        self.log[-1] += f" ({' '.join(kinds)})"
        writer.write("db.t", arrow, kinds=None if "rk" in self.drawn.columns else kinds)
        self.oracles.flush(arrow, changes, ours=writer is self.world.ours)

    def _mild(self, row: Row) -> Row:
        """The row without what the released Java is known to answer differently."""
        for name, value in row.items():
            function = self.shape.options.get(f"fields.{name}.aggregate-function")
            if _unordered(value):
                row[name] = 1.0
            elif function == "listagg" and isinstance(value, str) and not value.strip():
                row[name] = "c"
            elif function == "first_non_null_value" and value is None:
                row[name] = 2
            elif function == "collect" and isinstance(value, list):
                if self.shape.options.get(f"fields.{name}.distinct") == "true":
                    row[name] = list(dict.fromkeys(value))
            elif function in ("nested_update", "nested_partial_update") and isinstance(value, list):
                row[name] = [element for element in value if element is not None]
                if f"fields.{name}.nested-key" in self.shape.options:
                    row[name] = list({element["id"]: element for element in row[name]}.values())
        return row

    def comparable(self, rows: list[Row]) -> list[Row]:
        """Nested tables and sets have no order; nor have elements that Java puts elsewhere (docs/interop.md)."""
        of = {name: _options_of(name, self.shape.options) for name in self.drawn.columns}
        collected = {name for name in of if of[name].get("aggregate-function") == "collect"}
        sets = {name for name in collected if "true" in (of[name].get("distinct"), of[name].get("ignore-retract"))}
        unordered = [name for name in of if name in sets or "nested-key" in of[name]]
        return [row | {name: _in_order(row[name]) for name in unordered} for row in rows]

    def _emptied(self, row: Row) -> Row:
        """The row with its keys and what orders it alone."""
        ordering = {name for group in self.oracles.rules.groups for name in group.ordering}
        kept = {*self.shape.primary_key, *self.oracles.rules.sequence_fields, *ordering}
        return {name: value if name in kept else None for name, value in row.items()}

    def _key(self, row: Mapping[str, object]) -> str:
        return repr([row[name] for name in self.shape.primary_key])

    def compact(self, engine: Engine, turn: str) -> None:
        """Compact, and see what was put together."""
        super().compact(engine, turn)
        self.oracles.compacted(ours=engine is self.world.ours)

    def expected(self) -> list[Row]:
        """What the oracles fold."""
        visible = self.oracles.visible()
        columns = [pa.array([row[part.name] for row in visible], part.type) for part in self.arrow]
        return rows_of(pa.table(columns, schema=self.arrow), self.shape.fields)


def _unordered(value: object) -> bool:
    """Whether Java's generated comparators do not order a value as its own sort does: they take NaN for any number."""
    return isinstance(value, float) and (math.isnan(value) or (value == 0 and math.copysign(1, value) < 0))


def _options_of(column: str, options: Mapping[str, str]) -> dict[str, str]:
    start = f"fields.{column}."
    return {option.removeprefix(start): text for option, text in options.items() if option.startswith(start)}


def _schema_file(world: World) -> dict[str, Any]:
    content = (world.warehouse / "db.db" / "scratch" / "schema" / "schema-0").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(content)
    return found


def _in_order(value: Any) -> Any:
    return value if value is None else sorted(value, key=canonical)
