"""Changes: a lazy read of what snapshots published, in their order, or changed together, each row with its kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr.predicate import Predicate
from merganser.html.tables import COLUMNS_MAX
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options import write as w
from merganser.scan.first import first_rows
from merganser.scan.forms import (
    LOG_OFFSET,
    WHOLE_CHANGES,
    WITH_OFFSETS,
    columns_of,
    in_batches,
    kind_column,
    shows_rows_of_pairs,
)
from merganser.scan.gaps import Gap, named
from merganser.scan.plan import Plan
from merganser.scan.plan_changes import explained, gaps_in, plan_changes, unless_gone
from merganser.scan.read import read_split
from merganser.scan.rows import BATCH_ROWS, First, Rows, joined, with_schema
from merganser.scan.scan import Scan
from merganser.scan.source import (
    Above,
    Compacted,
    Exchanged,
    Increment,
    MadeSince,
    OfPartitions,
    Published,
    Source,
    State,
)
from merganser.scan.split import AnySplit, What
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field, arrow_schema
from merganser.schema.table_schema import CHANGE_KIND
from merganser.storage.env import Env
from merganser.values import dataclass

MODES: Final = ("auto", "delta", "changelog", "diff")


@dataclass(frozen=True)
class Changes(Rows):
    """What snapshots published or changed.

    Attributes:
        source: the snapshots.
        columns: columns to return, in this order, that of the kinds among them.
        where: rows to return; None: all. It may look at the kinds.
        what: the form of the changes.
    """

    table: TableDef
    env: Env
    source: Increment
    columns: tuple[t.Field, ...]
    where: Predicate | None = None
    what: What = What.CHANGED

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return arrow_schema(self.columns)

    def plan(self) -> Plan:
        """Return what will be read, in order: the range of snapshots is fixed now.

        Raises:
            ExpiredError: a snapshot of the range is not kept any more, and neither is its changelog.
            NotFoundError: there is no such snapshot yet.
            InvalidInputError: changelog files are asked for, and the table has none.
            FormatError: metadata is damaged or missing.
        """
        return plan_changes(self.table, self.env, self.source, columns=self.columns, where=self.where, what=self.what)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most 65,536 rows, in order; memory stays bounded.

        The row before an update and the row after it lie in one batch, if the columns show kinds.
        """
        plan = self.plan()
        tables = (rows for split in plan.splits for rows in self._read(plan, split))
        if shows_rows_of_pairs(self.what, self.columns):
            yield from in_batches(self.what, tables)
            return
        for rows in tables:
            yield from rows.to_batches(max_chunksize=BATCH_ROWS)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table, in order."""
        plan = self.plan()
        found = self.env.map(lambda split: list(self._read(plan, split)), plan.splits)
        tables = [rows for tables in found for rows in tables]
        return joined(tables) if tables else self.schema.empty_table()

    def gaps(self) -> tuple[Gap, ...]:
        """Return the commits of the range that published no changes, since change tracking was off; see `Gap`.

        Raises:
            ExpiredError, NotFoundError, FormatError: as for a read.
        """
        where = None if self.what in WHOLE_CHANGES else self.where
        store = SnapshotStore(self.table.paths, self.env, self.table.name)
        changelogs = ChangelogStore(self.table.paths, self.env)
        return tuple(
            gap(self.table, self.env, found, partitions, self.columns, self.where, self.what)
            for number, partitions in gaps_in(self.table, self.env, self.source, where).items()
            if (found := store.get(number) or changelogs.get(number)) is not None
        )

    @contextmanager
    def unless_expired(self, snapshot: Snapshot | None) -> Iterator[None]:
        """Say that snapshots have expired, where that is why one of their files is missing.

        Args:
            snapshot: that of the plan.

        Raises:
            ExpiredError: they were removed while they were read.
        """
        where = None if self.what in WHOLE_CHANGES else self.where
        with unless_gone(self.table, self.env, self.source, where, snapshot):
            yield

    def explain(self) -> str:
        """Return what would be read."""
        return explained(self.table.name, self.plan())

    def _first(self) -> First:
        narrow = replace(self, columns=self.columns[:COLUMNS_MAX])
        found = narrow.plan()
        where = "" if self.where is None else f", where {self.where}"
        caption = f"changes of {self.table.name}{_range(self.source)}{where}"
        read = partial(narrow._read, found)
        return first_rows(caption, found, read, narrow.schema, limit=None, columns=len(self.columns))

    def __repr__(self) -> str:
        return f"Changes({self.table.name!r}, {self.source!r})"

    def _read(self, plan: Plan, split: AnySplit) -> Iterator[pa.Table]:
        with self.unless_expired(plan.snapshot):
            for rows in read_split(plan.job, split, self.env.storage):
                yield with_schema(rows, self.schema)


def _range(source: Increment) -> str:
    """Return which snapshots a source has, for people."""
    if isinstance(source, Published):
        end = "the newest" if source.last is None else f"{source.last:,}"
        return f", snapshots {source.first:,} to {end}" + (f", {source.mode}" if source.mode != "auto" else "")
    ends = ("nothing" if one is None else f"snapshot {one.id:,}" for one in (source.before, source.after))
    return " from {} to {}".format(*ends)


def gap(
    table: TableDef,
    env: Env,
    snapshot: Snapshot,
    partitions: frozenset[bytes] | None,
    columns: tuple[t.Field, ...],
    where: Predicate | None,
    what: What,
) -> Gap:
    """Return the gap that a snapshot left; arguments are those of the reader, and `gap_of` gives the partitions."""

    def rows() -> pa.Table:
        if what in WITH_OFFSETS:
            raise InvalidInputError(
                f"cannot read the rows behind a gap of '{table.name}' with '{LOG_OFFSET.name}': rows of a state have "
                f"none. Nothing was read. Read the table itself with snapshot={snapshot.id}."
            )
        source = visible(table, State(SnapshotStore(table.paths, env, table.name).load(snapshot.id)))
        return rows_as(table, env, OfPartitions(source, partitions), columns, where, what, "+I")

    return Gap(snapshot.id, named(table, partitions), rows)


def visible(table: TableDef, state: State | MadeSince | Exchanged) -> State | MadeSince | Exchanged | Above | Compacted:
    """Return the rows of a state that the changes after it go on from: what its producer has published so far."""
    producer = table.options.get(w.CHANGELOG_PRODUCER)
    if producer == "lookup":
        return Above(state)
    return Compacted(state) if producer == "full-compaction" else state


@dataclass(frozen=True, slots=True)
class AsChanges:
    """How rows of a source are shown in a form of changes, all of one kind, which the filter looks at as theirs.

    Attributes:
        columns: of the form, in their order.
        where: rows to return, by columns of the form; None: all.
        what: the form; MERGED: the rows without kinds.
        kind: that of the rows.
    """

    columns: tuple[t.Field, ...]
    where: Predicate | None
    what: What
    kind: str

    def scan(self, table: TableDef, env: Env, source: Source) -> Scan:
        """Return the scan of the rows."""
        kinds = kind_column(self.what)
        options = table.options
        if options.get(w.DELETION_VECTORS) and options.get(w.CHANGELOG_PRODUCER) != "lookup":
            # The commit has published the rows of level 0, though reads do not show them yet.
            table = replace(table, options=options.merged({r.DELETION_VECTORS_MERGE_ON_READ.key: "true"}))
        if kinds is None:
            return Scan(table, env, self.columns, self.where, source)
        wanted = {field.name: field for field in self.columns}
        if self.where is not None:
            wanted |= {field.name: field for field in columns_of(self.what, table) if field.name in self.where.columns}
        wanted.pop(kinds.name, None)
        stored = What.MERGED if self.what is What.CHANGED else self.what
        asked = (*wanted.values(), *(() if stored is What.MERGED else (kinds,)))
        return Scan(table, env, asked, None if self._tests_kind else self.where, source, what=stored)

    def shown(self, rows: pa.Table) -> pa.Table:
        """Return rows that the scan gave as the form has them."""
        kinds = kind_column(self.what)
        if kinds is None:
            return rows
        if self.what is not What.CHANGED:  # retractions that are stored are no rows of the table
            rows = rows.filter(pc.is_in(rows.column(kinds.name), pa.array(["+I", "+U"]))).drop_columns([kinds.name])
        rows = rows.append_column(arrow_field(kinds), pa.repeat(pa.scalar(self.kind), rows.num_rows))
        if self.where is not None and self._tests_kind:
            rows = rows.filter(self.where.mask(rows).fill_null(False))
        return rows.select([field.name for field in self.columns])

    @property
    def _tests_kind(self) -> bool:
        kinds = kind_column(self.what)
        return self.where is not None and kinds is not None and kinds.name in self.where.columns


def rows_as(
    table: TableDef,
    env: Env,
    source: Source,
    columns: tuple[t.Field, ...],
    where: Predicate | None,
    what: What,
    kind: str,
) -> pa.Table:
    """Return the rows of a source in a form of changes; see `AsChanges`."""
    form = AsChanges(columns, where, what, kind)
    return form.shown(form.scan(table, env, source).to_arrow())


def published(name: str, start: int, end: int | None, mode: str) -> Published:
    """Return a range of snapshots of a table of this name.

    Raises:
        InvalidInputError: an id is no number, or there is no such mode.
    """
    for what, number in (("start", start), ("end", end)):
        if (number is not None or what == "start") and (
            not isinstance(number, int) or isinstance(number, bool) or number < (1 if what == "start" else 0)
        ):
            raise InvalidInputError(
                f"cannot read the changes of '{name}': {what} is {number!r:.50}. Give the id of a snapshot, a "
                "whole number from 1 on."
            )
    if mode not in MODES:
        raise InvalidInputError(
            f"cannot read the changes of '{name}': mode is {mode!r:.50}. It is one of {', '.join(MODES)}."
        )
    return Published(start, end, mode)


def changes_of(
    table: TableDef, env: Env, source: Increment, columns: tuple[t.Field, ...], where: Predicate | None
) -> Changes:
    """Return the changes of a source; see `Table.changes`.

    Raises:
        InvalidInputError: the table has a column of the name of the kinds.
    """
    if any(field.name == CHANGE_KIND.name for field in table.schema.fields):
        raise InvalidInputError(
            f"cannot read the changes of '{table.name}': it has a column '{CHANGE_KIND.name}', the name of the "
            "column of kinds. Rename that column.",
            column=CHANGE_KIND.name,
        )
    return Changes(table, env, source, (CHANGE_KIND, *columns), where)
