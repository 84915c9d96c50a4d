"""Scan: a lazy read of one table. Nothing is planned or read before a result is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from merganser.errors import ExpiredError, FormatError, InvalidInputError, NotFoundError
from merganser.expr.predicate import Predicate
from merganser.html.tables import COLUMNS_MAX
from merganser.meta.erased import erasure_of
from merganser.meta.followed import check_key
from merganser.meta.kept import has_expired
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.options.registry import did_you_mean
from merganser.rules.gaps import check_can_read
from merganser.scan.first import first_rows
from merganser.scan.forms import WHOLE_CHANGES, in_batches, kind_column, shows_rows_of_pairs, single_rows
from merganser.scan.plan import Plan, plan, unseen_files
from merganser.scan.plan_changes import explained, plan_changes, unless_gone
from merganser.scan.read import read_split
from merganser.scan.rows import BATCH_ROWS, First, Rows, counted, joined, waiting, with_schema, without_columns
from merganser.scan.source import Increment, Source, State, is_compacted
from merganser.scan.split import AnySplit, ReadJob, Split, What
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.storage.env import Env
from merganser.values import dataclass

R = TypeVar("R")


@dataclass(frozen=True)
class Scan(Rows):
    """Rows of a source: some columns, those that a filter lets through, at most `limit`.

    Attributes:
        table: the table, with the schema that is read with.
        columns: columns to return, in order.
        where: rows to return; None: all.
        source: which stored files are looked at; or changes, of which the rows that were added are returned.
        limit: most rows to return; which ones is not defined.
        what: which rows are made of the versions of a key.
    """

    table: TableDef
    env: Env
    columns: tuple[t.Field, ...]
    where: Predicate | None = None
    source: Source | Increment = State()
    limit: int | None = None
    what: What = What.MERGED

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot; None: the newest whenever a result is asked for."""
        return self.source.snapshot

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return arrow_schema(self.columns)

    def plan(self) -> Plan:
        """Return what will be read: one snapshot, fixed now.

        Raises:
            NotFoundError: the table is gone since it was opened.
            UnsupportedError: the table needs something this version cannot read rightly.
            FormatError: metadata is damaged or missing.
        """
        if isinstance(self.source, Increment):
            return plan_changes(
                self.table, self.env, self.source, columns=self.columns, where=self.where, what=self.what
            )
        at_once = self.table.options.get(r.SCAN_MANIFEST_PARALLELISM)
        reader = MetaReader(self.table.paths, self.env, self.table.name, at_once)
        with self.unless_expired(self.snapshot):
            if self.snapshot is not None:
                state = reader.state(self.snapshot)
            else:
                state = reader.latest(meanwhile=self._check_key)
        check_is_there(self.table, self.env, state.snapshot, f"cannot read '{self.table.name}'")
        if state.snapshot is not None:
            self._check_key(state.snapshot)
        asked = ReadJob(self.table, self.columns, self.where, {}, self.what)
        job = single_rows(asked, Split) if self.what in WHOLE_CHANGES else asked
        found = plan(
            self.table,
            self.env,
            self.source.narrowed(state, reader),
            columns=job.columns,
            where=job.where,
            compacted_only=is_compacted(self.source),
            what=job.what,
        )
        found = replace(found, job=replace(found.job, columns=self.columns, where=self.where, what=self.what))
        schema = replace(self.table.schema, options=self.table.options)
        merges = any(isinstance(split, Split) and not split.raw for split in found.splits)
        check_can_read(schema, name=self.table.name, merge=merges)
        return found

    def _check_key(self, snapshot: Snapshot) -> None:
        check_key(self.table, self.env, (snapshot,), f"cannot read '{self.table.name}'")

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most 65,536 rows, as they are ready; memory stays bounded.

        Rows of changes come in their order, and the two rows of an update in one batch, if the columns show kinds.
        """
        yield from self.batches_of(self.plan)

    def batches_of(self, planned: Callable[[], Plan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a plan of this scan, or of a part of one, as `to_batches` does."""
        tables = self._limited(self._tables(planned))
        if self._shows_changes:
            yield from in_batches(self.what, tables)
            return
        for table in tables:
            yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table. The order of rows is not defined."""
        if self.limit is not None:
            tables = list(self._limited(self._tables(self.plan)))
        else:
            parts = self._of_splits(self.plan(), list)
            tables = [table for part in parts for table in part]
        schema = self.schema
        if not tables:
            return schema.empty_table()
        if not len(schema):
            return without_columns(sum(table.num_rows for table in tables))
        return joined([with_schema(table, schema) for table in tables])

    def count(self) -> int:
        """Return the number of rows; from metadata alone where that is exact."""
        found = replace(self, columns=self._counted_columns()).plan()
        known, rest = 0, []
        for split in found.splits:
            told = self.where is None and not self.table.counting and self.what is What.MERGED
            rows = _rows_told(split, keyed=self.table.keyed) if told else None
            if rows is not None:
                known += rows
            else:
                rest.append(split)
        read = self._of_splits(replace(found, splits=tuple(rest)), lambda tables: sum(t.num_rows for t in tables))
        total: int = known + sum(read)
        return total if self.limit is None else min(total, self.limit)

    def explain(self) -> str:
        """Return what the scan would read, and what was left out at each step."""
        found = self.plan()
        if isinstance(self.source, Increment):
            return explained(self.table.name, found)
        splits = [split for split in found.splits if isinstance(split, Split)]
        lines = [
            f"table      {self.table.name}",
            f"snapshot   {found.snapshot.id if found.snapshot else 'none: the table is empty'}",
            f"columns    {', '.join(f.name for f in self.columns)}",
            f"filter     {self.where if self.where is not None else 'none'}",
            *(
                f"{'files' if i == 0 else '':<11}{count:>8,} {step}"
                for i, (step, count) in enumerate(found.counts.items())
            ),
            f"read       {sum(s.size_bytes for s in splits):,} bytes in "
            f"{counted(sum(len(s.files) for s in splits), 'file')}, {counted(sum(s.rows for s in splits), 'row')} "
            "stored",
            f"splits     {len(splits):,}: {sum(1 for s in splits if s.raw):,} read as they stand, "
            f"{sum(1 for s in splits if not s.raw):,} merged",
        ]
        if masked := [vector for s in splits for vector in s.vectors.values()]:
            deleted = [split.deleted for split in splits]
            rows = "an unknown number of rows" if None in deleted else counted(sum(d or 0 for d in deleted), "row")
            lines.append(f"deleted    {rows} by {counted(len(masked), 'deletion vector')}")
        if found.snapshot is not None and not is_compacted(self.source):
            live = MetaReader(self.table.paths, self.env, self.table.name).state(found.snapshot).live
            if unseen := unseen_files(self.table, self.env, live):
                lines.append(f"unseen     {waiting(unseen, postponed=self.table.postpones)}")
        if widest := max((len(section) for s in splits if not s.raw for section in s.sections), default=0):
            lines.append(f"merge      at most {counted(widest, 'file')} in one section")
        return "\n".join(lines)

    def __repr__(self) -> str:
        chosen = {
            "columns": list(self.schema.names) if self.columns != self.table.schema.fields else None,
            "where": None if self.where is None else str(self.where),
            "snapshot": None if self.snapshot is None else self.snapshot.id,
            "limit": self.limit,
        }
        given = "".join(f", {name}={value!r}" for name, value in chosen.items() if value is not None)
        return f"Scan({self.table.name!r}{given})"

    def _first(self) -> First:
        narrow = replace(self, columns=self.columns[:COLUMNS_MAX])
        found = narrow.plan()
        at = "no snapshot" if found.snapshot is None else f"snapshot {found.snapshot.id}"
        caption = ", ".join(
            [
                self.table.name,
                "changes" if isinstance(self.source, Increment) else at,
                *([] if self.where is None else [f"where {self.where}"]),
                *([] if self.limit is None else [f"limit {self.limit:,}"]),
            ]
        )

        def read(split: AnySplit) -> Iterator[pa.Table]:
            with self.unless_expired(found.snapshot):
                yield from read_split(found.job, split, self.env.storage)

        return first_rows(caption, found, read, narrow.schema, limit=self.limit, columns=len(self.columns))

    @property
    def _shows_changes(self) -> bool:
        return isinstance(self.source, Increment) and shows_rows_of_pairs(self.what, self.columns)

    def _counted_columns(self) -> tuple[t.Field, ...]:
        """Return the fewest columns whose rows can be counted."""
        kind = kind_column(self.what)
        if kind is not None:
            return (kind,)
        name = self.table.key[0] if self.table.keyed else None
        cheap = (
            [f for f in self.table.schema.fields if f.name == name]
            if name
            else [
                f
                for f in self.table.schema.fields
                if isinstance(f.type, t.TinyInt | t.SmallInt | t.Int | t.BigInt | t.Date | t.Boolean)
            ]
        )
        return tuple(cheap[:1]) or self.table.schema.fields[:1]

    def _of_splits(self, found: Plan, result: Callable[[Iterator[pa.Table]], R]) -> list[R]:
        """Return a result of the rows of every split, read side by side."""
        title, size = f"reading {self.table.name}", sum(split.size_bytes for split in found.splits)
        with self.env.progress.work(title, size_bytes=size, steps=len(found.splits)) as work:

            def read(split: AnySplit) -> R:
                with self.unless_expired(found.snapshot):
                    value = result(read_split(found.job, split, self.env.storage))
                work.advance(split.size_bytes)
                return value

            return self.env.map(read, found.splits)

    def _tables(self, planned: Callable[[], Plan]) -> Iterator[pa.Table]:
        found = planned()
        schema = self.schema
        ordered = self._shows_changes or self.table.options.get(r.SCAN_PLAN_SORT_PARTITION)
        gather = self.env.gather if not ordered else _in_turn
        with self.unless_expired(found.snapshot):
            for table in gather(lambda split: read_split(found.job, split, self.env.storage), found.splits):
                yield with_schema(table, schema)

    @contextlib.contextmanager
    def unless_expired(self, snapshot: Snapshot | None) -> Iterator[None]:
        """Say that a snapshot has expired, where that is why one of its files is missing.

        Raises:
            ExpiredError: it was removed while it was read.
        """
        if isinstance(self.source, Increment):
            where = None if self.what in WHOLE_CHANGES else self.where
            with unless_gone(self.table, self.env, self.source, where, snapshot):
                yield
            return
        try:
            yield
        except FormatError as error:
            if snapshot is None or not has_expired(self.table, self.env, snapshot, error):
                raise
            erasure = erasure_of(self.table.paths, self.env, snapshot.id)
            why, longer = f"{erasure} ended it while it was read", ""
            if erasure is None:
                why = "it expired while it was read"
                longer = (
                    ", or raise 'snapshot.time-retained' or 'snapshot.num-retained.min', so that snapshots are kept "
                    "for as long as reads take"
                )
            raise ExpiredError(
                f"cannot read snapshot {snapshot.id} of '{self.table.name}': {why}. Read the newest{longer}.",
                table=self.table.name,
                snapshot=snapshot.id,
            ) from error

    def _limited(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        if self.limit is None:
            yield from tables
            return
        left = self.limit
        if left <= 0:
            return
        for table in tables:
            yield table.slice(0, left)
            left -= table.num_rows
            if left <= 0:
                break


def _in_turn(read: Callable[[AnySplit], Iterator[pa.Table]], splits: Sequence[AnySplit]) -> Iterator[pa.Table]:
    for split in splits:
        yield from read(split)


def check_is_there(table: TableDef, env: Env, snapshot: Snapshot | None, action: str) -> None:
    """Refuse a table that is gone since it was opened.

    Args:
        snapshot: its newest one.
        action: what is being done, as messages begin.

    Raises:
        NotFoundError: nothing is there any more.
    """
    if snapshot is None and not SchemaStore(table.paths, env).ids():
        raise NotFoundError(
            f"{action}: nothing is at '{table.path}' any more, so the table was dropped or renamed since it was opened."
            " Open it again.",
            table=table.name,
        )


def chosen_columns(
    table: TableDef, names: Sequence[str] | None, among: Sequence[t.Field] | None = None
) -> tuple[t.Field, ...]:
    """Return the columns of names, in their order; None: all.

    Args:
        table: the table.
        names: what is wanted.
        among: columns there are; None: those of the table.

    Raises:
        InvalidInputError: a name that is not a column, or named twice.
    """
    fields = tuple(table.schema.user_fields if among is None else among)
    if names is None:
        return fields
    if isinstance(names, str):
        raise InvalidInputError(f"columns must be a list of names, not the text '{names}'. Write columns=['{names}'].")
    if not isinstance(names, Iterable):
        raise InvalidInputError(f"columns must be a list of names, not {names!r:.100}. Write columns=['id'].")
    names = tuple(names)
    by_name = {field.name: field for field in fields}
    for i, name in enumerate(names):
        if name not in by_name:
            hint = did_you_mean(str(name), list(by_name))
            raise InvalidInputError(
                f"cannot read '{table.name}': it has no column '{name}'.{' ' + hint if hint else ''}", column=name
            )
        if name in list(names)[:i]:
            raise InvalidInputError(f"cannot read '{table.name}': column '{name}' is named twice.", column=name)
    return tuple(by_name[name] for name in names)


def _rows_told(split: AnySplit, *, keyed: bool) -> int | None:
    """Return the number of rows of a split, as metadata tells it; None: it does not.

    In a table with a key, the count of retractions is believed above level 0. A deletion vector may mark retractions,
    too, so that it cannot be told how many rows are left.
    """
    if not isinstance(split, Split) or split.deleted is None:
        return None
    if not keyed:
        return split.rows - split.deleted if split.raw else None
    rows = 0
    for section in split.sections:
        (file, *others) = section
        if others or not file.level or file.delete_row_count is None:
            return None
        if file.delete_row_count and file.name in split.vectors:
            return None
        rows += file.row_count - file.delete_row_count
    return rows - split.deleted
