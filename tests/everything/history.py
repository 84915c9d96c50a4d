"""One history: a table of a drawn layout, drawn steps on it, and comparisons with the model after each step."""

from __future__ import annotations

import itertools
import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import merganser as mg
from merganser.errors import ConflictError, InvalidInputError
from merganser.schema import types as t
from merganser.storage.env import Env
from tests.everything import looking
from tests.everything.following import Follower, follower_of
from tests.everything.layouts import drawn_layout
from tests.everything.logged import compare_log
from tests.everything.model import Fields, Model, image
from tests.everything.replaying import Replay, replay_of
from tests.everything.replica import Copy, DifferenceError
from tests.everything.values import Row, converter, draw, draw_wider, filters_of
from tests.kit.builders import catalog_over, memory_with
from tests.oracle.drawn_tables import DrawnTable
from tests.oracle.engines import Change

WINDOWS = ("merganser.lsm.section.WINDOW_ROWS", "merganser.lsm.writer.SLICE_ROWS")
_numbers = itertools.count()
Refusal = tuple[type[Exception], str]
"""(class of an error that is expected, pattern of its reason)."""


class SkippedError(Exception):
    """A step means nothing to the table as it is."""


@dataclass
class State:
    """What a snapshot holds, and all that a rollback to it needs."""

    model: Model
    drawn: DrawnTable

    @property
    def fields(self) -> Fields:
        return self.model.fields


@dataclass
class Line:
    """One line of snapshots: the table or a branch.

    Attributes:
        states: by snapshot, of those that were compared.
        tags: by name, with the id of the snapshot.
        old: handles of earlier schemas, with the defaults of their columns by name.
        begins: the snapshot of the table that a branch begins with; 0: none.
    """

    table: mg.Table
    model: Model
    drawn: DrawnTable
    states: dict[int, State] = field(default_factory=dict)
    tags: dict[str, tuple[int, State]] = field(default_factory=dict)
    old: list[tuple[mg.Table, Row]] = field(default_factory=list)
    begins: int = 0

    @property
    def fields(self) -> Fields:
        return self.model.fields


class History:
    """One table, its model, and what is done to both."""

    def __init__(self, seed: str, path: Path, spark: Any = None) -> None:
        self.seed, self.path, self.spark = seed, path, spark
        self.layout = layout = drawn_layout(seed, spark=spark is not None)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.clock = 0
        self.names = iter(f"n{i}" for i in range(10_000))
        self.log: list[str] = []
        self.compared: Counter[str] = Counter()
        self.says_sql, self.zone = False, "UTC"
        in_memory = spark is None and random.Random(f"{seed} storage").random() < 0.8
        self.storage = memory_with({}, f"everything-{next(_numbers)}") if in_memory else None
        self.catalog = self._catalog()
        self.catalog.create_database("db")
        table = self.catalog.create_table(
            "db.t",
            layout.drawn.columns,
            primary_key=layout.primary_key,
            partition_by=layout.drawn.partition,
            options=layout.options,
        )
        rng = random.Random(f"{seed} handle")
        self.write_only = rng.random() < 0.4 and layout.engine != "first-row" and not layout.vectors
        layout.drawn.options = dict(table.options)
        model = Model(
            layout.engine,
            table.schema.fields,
            layout.primary_key,
            layout.drawn.partition,
            dict(table.options),
            layout.moves,
        )
        self.line = self.main = Line(self.opened(table), model, layout.drawn)
        self.branches: dict[str, Line] = {}
        self.before_key: tuple[Model, DrawnTable] | None = None
        self.consumers: dict[str, int] = {}
        self.lookups: Any = None
        self.letters: mg.Table | None = None
        self.looked_at: Any = None
        self.is_published, self.is_complete = True, False
        options = layout.options
        self.leaves_out = "change-tracking.off-partitions" in options or "streaming-read-overwrite" in options
        """Whether a commit may have left its changes out."""
        self.follower: Follower | None = self.drawn_follower(rng) if rng.random() < 0.8 else None
        self.replay: Replay | None = replay_of(self)
        self.logged = 0  # the last snapshot whose rows in a log were compared

    def _catalog(self) -> mg.Catalog:
        if self.storage is not None:
            return catalog_over(self.storage, clock=lambda: self.now)
        options = {"local.sync": "false"}
        if random.Random(f"{self.seed} catalog").random() < 0.15:
            self.path.mkdir(parents=True, exist_ok=True)
            options |= {"warehouse": str(self.path), "lock.enabled": "true"}
            catalog = mg.catalog(f"jdbc:sqlite:{self.path}/names.sqlite", options=options, clock=lambda: self.now)
        else:
            catalog = mg.catalog(str(self.path), options=options, clock=lambda: self.now)
        catalog.env.threads = 1  # ids are drawn in one order
        return catalog

    def opened(self, table: mg.Table) -> mg.Table:
        return table.with_options({"write-only": "true"}) if self.write_only else table

    def take_over(self, line: Line, renamed: Mapping[str, str]) -> None:
        """Let the model of a line have the columns and options that its table has.

        Args:
            renamed: new names of columns by their old ones.
        """
        drawn, fields, options = line.drawn, line.table.schema.fields, dict(line.table.options)
        before = {f.id: f for f in line.fields}
        draws = {}
        for f in fields:
            old = before.get(f.id)
            if old is not None and old.type == f.type:
                draws[f.name] = drawn.draws[old.name]
            else:
                by = draw if old is None else draw_wider
                draws[f.name] = lambda rng, kind=f.type, by=by: by(kind, rng, far=self.layout.far)
        line.drawn = replace(
            drawn,
            columns={f.name: str(f.type.with_nullable(True)) for f in fields},
            draws=draws,
            key=[renamed.get(name, name) for name in drawn.key],
            options=options,
            rising=[tuple(renamed.get(name, name) for name in order) for order in drawn.rising],
        )
        was = line.fields
        line.model.become(fields, options, renamed)
        if line is self.main:
            self.layout = self.layout.with_drawn(line.drawn, moves=line.model.moves)
            if self.follower is not None:
                self.follower.become(was)

    @property
    def merges_schema(self) -> bool:
        """Whether a name that the table does not have is that of a new column, also if it was one's before."""
        return self.model.options.get("write.merge-schema") == "true"

    def fits_avro(self) -> bool:
        """Return whether Avro holds the columns."""
        columns = self.drawn.columns
        words = all(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) for name in columns)
        return words and not any("TIMESTAMP(9)" in kind for kind in columns.values())

    @property
    def table(self) -> mg.Table:
        return self.line.table

    @table.setter
    def table(self, table: mg.Table) -> None:
        self.line.table = table

    @property
    def model(self) -> Model:
        return self.line.model

    @property
    def drawn(self) -> DrawnTable:
        return self.line.drawn

    # what steps share

    def reopen(self) -> None:
        """Open the catalog and the table again."""
        self.catalog = self._catalog()
        table = self.catalog.table("db.t")
        assert isinstance(table, mg.Table)
        self.table = self.opened(table)

    def latest(self) -> int:
        """Return the id of the newest snapshot; 0: there is none."""
        found = self.table.latest_snapshot()
        return 0 if found is None else found.id

    def tick(self, rng: random.Random) -> None:
        self.now += timedelta(seconds=rng.choice([0, 1, 60, 3600]))

    def changes(self, rng: random.Random, count: int) -> list[Change]:
        """Return rows to write, in order, with their kinds."""
        found = []
        kinds = [kind for kind in ("+I", "+I", "+I", "+U", "-U", "-D", "-D") if not self.model.refuses(kind)]
        if self.layout.adds_only:
            kinds = ["+I", "+U"]
        for _ in range(count):
            row = self.drawn.row(rng)
            kind = rng.choice(kinds)
            if self.model.rowkind:
                row[self.model.rowkind] = kind
                kind = rng.choice(["+I", "-D"])  # has no meaning
            self.clock += rng.choice([0, 1, 2]) if self.drawn.may_tie else 1
            self.drawn.rise(row, self.clock)
            found.append((kind, row))
        return self.stored(found)

    def stored(self, changes: Sequence[Change]) -> list[Change]:
        """Return changes with their values as Arrow gives them back."""
        rows = self.arrow(changes).drop_columns(["op"]).to_pylist()
        return [(kind, row) for (kind, _), row in zip(changes, rows, strict=True)]

    def arrow(self, changes: Sequence[Change], table: mg.Table | None = None) -> pa.Table:
        """Return changes as a table whose column `op` has their kinds."""
        schema = (table or self.table).read().schema
        columns: dict[str, Any] = {
            one.name: pa.array([row[one.name] for _, row in changes], one.type) for one in schema
        }
        return pa.table({**columns, "op": pa.array([kind for kind, _ in changes], pa.string())})

    def refused(self, call: Callable[[], object], *refusals: Refusal) -> None:
        """Make a call that must be refused, for one of some reasons, with nothing changed."""
        before = self.table.latest_snapshot()
        try:
            call()
        except Exception as error:
            if not any(isinstance(error, kind) and re.search(reason, str(error)) for kind, reason in refusals):
                raise
            if self.table.latest_snapshot() != before:
                raise DifferenceError("refusal", f"a refused call has committed: {error}") from error
            self.compared["refusals"] += 1
            return
        raise DifferenceError("refusal", f"a call was taken that should have been refused: {refusals}")

    def maybe_refused(self, call: Callable[[], Any], *refusals: Refusal) -> tuple[bool, Any]:
        """Make a call that may be refused; return whether it was, and what it returned."""
        before = self.table.latest_snapshot()
        try:
            return False, call()
        except Exception as error:
            if not any(isinstance(error, kind) and re.search(reason, str(error)) for kind, reason in refusals):
                raise
            if self.table.latest_snapshot() != before:
                raise DifferenceError("refusal", f"a refused call has committed: {error}") from error
            return True, None

    # the same call, embedded or with Spark

    def write(self, rng: random.Random, changes: Sequence[Change], how: Any = None, *, tracked: bool = True) -> None:
        """Write rows with their kinds as one commit.

        Args:
            how: the overwrite; None: none.
            tracked: False: readers of changes are not to see it.
        """
        self.table.write(self.arrow(changes), kinds="op", overwrite=how, changes=tracked)

    def compact(self, rng: random.Random, *, full: bool, partitions: Any = None) -> None:
        self.table.compact(full=full, partitions=partitions)

    def rescale(self, rng: random.Random, buckets: int) -> None:
        self.table.rescale(buckets)

    def delete(self, rng: random.Random, where: str) -> Any:
        return self.table.delete(where)

    def erase(self, rng: random.Random, where: str, *, everywhere: bool) -> Any:
        return self.table.erase(where, everywhere)

    def update(self, rng: random.Random, where: str, sets: dict[str, str]) -> Any:
        return self.table.update(where, sets)

    def merge(
        self,
        rng: random.Random,
        source: Sequence[Row],
        on: str,
        clauses: Any,
        done: Callable[[Callable[[], Any]], None],
    ) -> None:
        from tests.everything import by_sql

        rows = self.arrow([("+I", row) for row in source]).drop_columns(["op"])

        def call() -> Any:
            text = by_sql.merging(self, rows, "rows.given", on, clauses) if self.says_sql else None
            if text is None:
                return clauses.of(self.table.merge(rows, on, alias=clauses.alias)).execute()
            self.compared["merges in SQL"] += 1
            self.catalog.create_database("rows", if_not_exists=True)
            self.catalog.create_table("rows.given", rows.schema).write(rows)
            try:
                return by_sql.executed(self, self.catalog.session(), text)
            finally:
                self.catalog.drop_table("rows.given")

        done(call)

    def querying(self, rng: random.Random) -> tuple[Any, Callable[[t.Field], bool]]:
        """Return a session for queries, and whether it gives the values of a column as they are."""
        return self.catalog.session(), lambda field: True

    def write_changes(
        self, rng: random.Random, texts: Any, form: str, keys: Any, options: dict[str, Any], times: int = 1
    ) -> None:
        """Write change records.

        Args:
            times: how often the same call is made.
        """
        for _ in range(times):
            self.table.write_changes(texts, form, keys=keys, **options)

    def load(self, rng: random.Random, files: str, kinds: str | None) -> None:
        self.table.load(files, kinds=kinds)

    def unpublished(self) -> None:
        """Take note that the step replaced rows: readers are told if the table publishes its changes."""
        self.is_published = self.layout.producer != "none"

    def begin_again(self) -> None:
        """Let the copy begin with the table as it is: snapshots that it followed are gone."""
        if self.follower is not None:
            self.follower.stood.clear()
            self.follower.begin()
        if self.replay is not None:
            self.replay.begin_again()
        self.is_published = True

    def went_back(self, number: int) -> None:
        """Let the copy undo what it read behind the snapshot that the table was rolled back to."""
        if self.follower is not None:
            self.follower.go_back(number)
        if self.replay is not None:
            self.replay.go_back(number)
        self.is_published = True

    def take_key(self, model: Model, drawn: DrawnTable) -> None:
        """Let the table have another key, or none any more."""
        line = self.main
        self.compared["keys"] += 1
        if line.model.key:
            self.lookups = None
        else:
            self.before_key = line.model.copy(), line.drawn
        line.model, line.drawn = model, drawn
        line.old.clear()
        self.layout = self.layout.with_drawn(drawn, moves=model.moves)
        before, rng = self.follower, random.Random(f"{self.seed} {len(line.states)}")
        self.follower = self.drawn_follower(rng, before) if before is not None else None
        self.replay = replay_of(self)
        if self.replay is not None:
            self.replay.begin_again()

    def drawn_follower(self, rng: random.Random, before: Follower | None = None) -> Follower | None:
        """Return what follows the table; see `follower_of`."""
        return follower_of(self, rng, before)

    def replayed(self, rng: random.Random, start: int, end: int, rows: Sequence[Row]) -> None:
        """Read changes with other engines, without those of gaps."""

    # what must hold

    def settle(self) -> None:
        """Let rows that wait become visible, where reads do not see them before a compaction."""
        if self.layout.postpones:
            self.table.compact()

    def compare(self, rng: random.Random, last: bool) -> None:
        """Compare what can be read with the model: all rows, and some other reads; after the last step all.

        Raises:
            DifferenceError: they differ.
        """
        line = self.line
        latest = line.table.latest_snapshot()
        self._forget_expired()
        if latest is not None:
            line.states.setdefault(latest.id, State(line.model.copy(), replace(line.drawn)))
        visible = line.model.visible()
        self.same("rows", line.table.read(), visible)
        if (count := line.table.read().count()) != len(visible):
            raise DifferenceError("count", f"{count}, expected {len(visible)}")
        if self.follower is not None and line is self.main:
            self.follower.step(published=self.is_published, complete=self.is_complete)
            if last:
                self.follower.finish()
            if (after := line.table.latest_snapshot()) is not None:
                line.states.setdefault(after.id, State(line.model.copy(), replace(line.drawn)))
        if self.replay is not None and line is self.main:
            draws = random.Random(f"{self.seed} kept {self.now}")
            self.replay.step(draws, published=self.is_published, complete=self.is_complete, last=last)
            self._forget_expired()
        if line is self.main:
            newest = line.table.latest_snapshot()
            known = self.logged if newest is not None and newest.id >= self.logged else 0
            self.logged = compare_log(self, known)
        self.is_published, self.is_complete = True, False
        self._kept()
        for look in (self._filtered, self._looked_up, self._older, self._diff, self._prefixed):
            if last or rng.random() < 0.6:
                look(rng)
        draws = random.Random(f"{self.seed} looked at {self.now}")
        if last or draws.random() < 0.3:
            looking.look(self, draws)
        if last or rng.random() < 0.1:
            self.check()

    def _forget_expired(self) -> None:
        kept = {snapshot.id for snapshot in self.line.table.snapshots()}
        self.line.states = {number: state for number, state in self.line.states.items() if number in kept}

    def _kept(self) -> None:
        """What consumers have not read is there."""
        found = {consumer.id: consumer.next_snapshot for consumer in self.main.table.consumers.list()}
        for name, number in self.consumers.items():
            if found.get(name) != number:
                raise DifferenceError("consumer", f"{name} is at {found.get(name)}, expected {number}")
        latest = self.main.table.latest_snapshot()
        ids = [snapshot.id for snapshot in self.main.table.snapshots()]
        if latest is None or not found or min(found.values()) > latest.id or ids[0] <= min(found.values()):
            return
        if self.main.model.options.get("consumer.changelog-only") == "true":
            self.main.table.changes(min(found.values()), gaps="skip").to_arrow()
        else:
            raise DifferenceError("consumer", f"snapshots {ids} are left, and consumers are at {found}")

    def check(self) -> None:
        """The table finds no fault in itself."""
        if findings := self.line.table.check():
            raise DifferenceError("check", "; ".join(map(str, findings)))

    def same(
        self, what: str, scan: Any, rows: Sequence[Row], fields: Fields | None = None, columns: Sequence[str] = ()
    ) -> None:
        """Compare what a scan returns with rows."""
        found = scan if isinstance(scan, pa.Table) else scan.to_arrow()
        fields = self.line.fields if fields is None else fields
        if columns:
            by_name = {f.name: f for f in fields}
            fields = tuple(by_name[name] for name in columns)
        if found.column_names != [f.name for f in fields]:
            raise DifferenceError(what, f"columns {found.column_names}, expected {[f.name for f in fields]}")
        self.same_rows(what, found.to_pylist(), rows, fields)

    def same_rows(self, what: str, found: Sequence[Row], rows: Sequence[Row], fields: Fields) -> None:
        unordered = self.model.unordered()
        got = Counter(image(row, fields, unordered) for row in found)
        wanted = Counter(image(row, fields, unordered) for row in rows)
        self.compared["reads"] += 1
        self.compared["rows"] += wanted.total()
        if got != wanted:
            raise DifferenceError(
                what,
                f"{[f.name for f in fields]}\n  too many: {sorted((got - wanted).elements())[:6]}\n"
                f"  missing:  {sorted((wanted - got).elements())[:6]}",
            )

    def _filtered(self, rng: random.Random) -> None:
        text, holds, _ = self.drawn_filter(rng)
        wanted = [row for row in self.model.visible() if holds(row)]
        names = [f.name for f in self.line.fields]
        columns = rng.sample(names, rng.randrange(1, len(names) + 1))
        self.same(f"columns where {text}", self.table.read(columns=columns, where=text), wanted, columns=columns)
        count = self.table.read(where=text).count()
        if count != len(wanted):
            raise DifferenceError("count", f"where {text}: {count}, expected {len(wanted)}")
        limit, every = rng.choice([0, 1, 5]), len(self.model.visible())
        if (count := self.table.read(limit=limit).to_arrow().num_rows) != min(limit, every):
            raise DifferenceError("limit", f"{count} rows of {every}, and the limit is {limit}")
        if (count := sum(batch.num_rows for batch in self.table.read().to_batches())) != every:
            raise DifferenceError("batches", f"{count} rows, expected {every}")

    def drawn_filter(
        self, rng: random.Random, names: Sequence[str] | None = None
    ) -> tuple[str, Callable[[Row], bool], set[str]]:
        """Return a filter: its text, what it means, and the columns that it looks at.

        Args:
            names: the columns that it may look at; None: all.
        """
        fields = [f for f in self.line.fields if names is None or f.name in names]
        found = [(f.name, test) for f in fields for test in filters_of(f.name, f.type)]
        (name, (one, first)), (named, (other, second)) = rng.choice(found), rng.choice(found)
        match rng.choice(["one", "one", "and", "or"]):
            case "and":
                return f"{one} AND {other}", lambda row: first(row) and second(row), {name, named}
            case "or":
                return f"{one} OR {other}", lambda row: first(row) or second(row), {name, named}
        return one, first, {name}

    def _looked_up(self, rng: random.Random) -> None:
        model, visible = self.model, self.model.visible()
        if not model.key:
            return
        names = [*dict.fromkeys([*model.key, *model.partition])]
        rows = rng.sample(visible, min(3, len(visible)))
        keys = [{name: row[name] for name in names} for row in rows]
        absent = {name: self.drawn.draws[name](rng) for name in names}
        known = {model.key_of(row) for row in visible}
        if tuple(absent[name] for name in model.key) not in known:
            keys.append(absent)
        if keys:
            given = pa.table(
                {name: pa.array([k[name] for k in keys], self.table.read().schema.field(name).type) for name in names}
            )
            self.same("lookup", self.table.lookup(given), rows)

    def _prefixed(self, rng: random.Random) -> None:
        """Look up all rows with the beginning of a key, if they lie in one bucket."""
        model, visible = self.model, self.model.visible()
        prefix = self.drawn_prefix(rng, visible)
        if prefix is not None:
            self.same("lookup prefix", self.table.lookup_prefix(prefix), begins_with(visible, prefix))
        elif rng.random() < 0.1:
            reasons = "has no beginning|may lie in any bucket|has no primary key"
            self.refused(lambda: self.table.lookup_prefix(dict.fromkeys(model.key[:1])), (InvalidInputError, reasons))

    def drawn_prefix(self, rng: random.Random, rows: Sequence[Row]) -> Row | None:
        """Return the beginning of a key, most often of a row; None: the rows of no beginning lie in one bucket."""
        model, bucketed = self.model, self.model.options.get("bucket-key", "").split(",")
        if not model.key or int(self.table.options["bucket"]) < 1 or not 0 < len(bucketed) < len(self.drawn.key):
            return None
        if not set(bucketed) < set(self.drawn.key):
            return None
        names = [*model.partition, *bucketed]
        row = rng.choice(rows) if rows and rng.random() < 0.8 else {name: self.drawn.draws[name](rng) for name in names}
        return {name: row[name] for name in names}

    def _older(self, rng: random.Random) -> None:
        """Read snapshots and tags that are still kept."""
        line = self.line
        if line.states:
            number = rng.choice(sorted(line.states))
            state = line.states[number]
            self.same(f"snapshot {number}", line.table.read(snapshot=number), state.model.visible(), state.fields)
        if line.tags:
            name = rng.choice(sorted(line.tags))
            number, state = line.tags[name]
            self.same(f"tag {name}", line.table.read(tag=name), state.model.visible(), state.fields)

    def _diff(self, rng: random.Random) -> None:
        """Apply what two snapshots differ in, in order, to the older."""
        line = self.line
        if len(line.states) < 2:
            return
        start, end = sorted(rng.sample(sorted(line.states), 2))
        states = line.states[start], line.states[end]
        keyed = [bool(each.model.key) for each in states]
        changes = line.table.changes(start + 1, end, mode="diff")
        if keyed[0] != keyed[1]:
            self.refused(changes.to_arrow, (ConflictError, "cannot compare two states"))
            return
        model = line.model if keyed[1] == bool(line.model.key) else states[1].model
        older, newer = (self.rows_of(each, model.fields) for each in states)
        copy = Copy(model, older)
        copy.apply("diff", changes.to_pylist(), strict=True)
        self.same_rows(f"diff of {start} and {end}", copy.rows(), newer, model.fields)

    def now_of(self, state: State) -> list[Row]:
        """Return the rows of a state with the columns of now."""
        return self.rows_of(state, self.line.fields)

    def rows_of(self, state: State, fields: Fields) -> list[Row]:
        """Return the rows of a state with other columns."""
        turn = converter(state.fields, fields)
        return [turn(row) for row in state.model.visible()]


def begins_with(rows: Sequence[Row], prefix: Row) -> list[Row]:
    """Return the rows whose key begins with some values."""
    return [row for row in rows if all(repr(row[name]) == repr(value) for name, value in prefix.items())]


@contextmanager
def repeatable(seed: str) -> Iterator[None]:
    """Draw ids, and the sizes of windows, from the seed."""
    rng, sizes = random.Random(f"{seed} ids"), random.Random(f"{seed} windows")
    rows = sizes.choice([1, 2, 7, 200_000])

    def new_id(_: Env) -> str:
        return str(uuid.UUID(int=rng.getrandbits(128), version=4))

    with ExitStack() as stack:
        for name in WINDOWS:
            stack.enter_context(patch(name, rows))
        stack.enter_context(patch.object(Env, "new_id", new_id))
        yield
