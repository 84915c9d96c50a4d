"""Changes: a lazy read of what snapshots published, in their order, each row with its kind.

| the table has | a snapshot published |
|---|---|
| a changelog producer | the rows of its changelog files; an overwrite publishes none |
| none | the rows of the files that its commit added; compactions and overwrites publish none |

Nothing is merged: a key may come several times, once for each commit, and with old values only if a producer gives
them. Rows of a snapshot come bucket by bucket, and those of a bucket in the order of its files.

Format: sections "changelog files", "changelog lifecycle". Semantics: "incremental", scan modes delta and changelog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.errors import ExpiredError, FormatError, InvalidInputError, NotFoundError
from merganser.expr.compute import can_fail
from merganser.expr.predicate import Predicate
from merganser.files.read import DataFileReader, FileToRead, is_small, read_small
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import APPEND, OVERWRITE, Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import write as w
from merganser.rules.gaps import check_can_read
from merganser.scan.plan import by_stats, partition_filter, partitions_through
from merganser.scan.rows import BATCH_ROWS, Rows, counted
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.table_schema import CHANGE_KIND, VALUE_COUNT, VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.paths import join

_SYMBOLS: Final = pa.array(row_kind.SYMBOLS)
_READ_ROWS: Final = 1 << 18
_TOGETHER: Final = 512
"""So many small files are read at once."""


@dataclass(frozen=True)
class Changes(Rows):
    """What snapshots published.

    Attributes:
        start: the first snapshot.
        end: the last snapshot; None: the newest whenever a result is asked for.
        columns: columns to return after `_row_kind`, in this order.
        where: rows to return; None: all. It may look at `_row_kind`.
    """

    table: TableDef
    env: Env
    start: int
    end: int | None
    columns: tuple[t.Field, ...]
    where: Predicate | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return arrow_schema((CHANGE_KIND, *self.columns))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most 65,536 rows, in order; memory stays bounded."""
        plan = self._plan()
        for part in plan.parts:
            for rows in plan.read(part):
                yield from rows.to_batches(max_chunksize=BATCH_ROWS)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table, in order."""
        plan = self._plan()
        found = self.env.map(lambda part: list(plan.read(part)), plan.parts)
        tables = [rows for tables in found for rows in tables]
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def explain(self) -> str:
        """Return what would be read."""
        plan = self._plan()
        files = [target.file for part in plan.parts for target in part]
        return "\n".join(
            [
                f"table      {self.table.name}",
                f"snapshots  {self.start} to {plan.end}, {counted(plan.published, 'snapshot')} with changes",
                f"from       {'changelog files' if self._has_producer else 'the files that commits added'}",
                f"filter     {self.where if self.where is not None else 'none'}",
                f"read       {sum(file.size for file in files):,} bytes in {counted(len(files), 'file')}, "
                f"{counted(sum(file.row_count for file in files), 'row')} stored",
            ]
        )

    def __repr__(self) -> str:
        return f"Changes({self.table.name!r}, start={self.start}, end={self.end})"

    @property
    def _has_producer(self) -> bool:
        return self.table.options.get(w.CHANGELOG_PRODUCER) != "none"

    def _plan(self) -> _Plan:
        """Return which files to read.

        Raises:
            ExpiredError: a snapshot of the range is not kept any more, and neither is its changelog.
            NotFoundError: there is no such snapshot yet.
        """
        try:
            return self._planned()
        except FormatError as error:
            if isinstance(error.__cause__, NotFoundError):
                self._snapshots()  # says that they have expired, if they have
            raise

    def _planned(self) -> _Plan:
        check_can_read(replace(self.table.schema, options=self.table.options), name=self.table.name, merge=False)
        snapshots, end = self._snapshots()
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        if self._has_producer:
            chosen = [one for one in snapshots if one.commit_kind != OVERWRITE and one.changelog_manifest_list]
            lists = reader.changelog_lists(chosen)
        else:
            chosen = [one for one in snapshots if one.commit_kind == APPEND]
            lists = reader.delta_lists(chosen)
        entries = iter(reader.entries_of_each([manifest for manifests in lists for manifest in manifests]))
        targets: list[FileToRead] = []
        published = 0
        schemas = {self.table.schema.id: self.table.schema.fields}
        for manifests in lists:
            added = [entry for _ in manifests for entry in next(entries) if entry.kind == ADD]
            published += bool(added)
            targets += self._targets(added, schemas)
        return _Plan(self, end, published, _parted(targets, keyed=self.table.keyed))

    def _snapshots(self) -> tuple[list[Snapshot], int]:
        """Return the snapshots of the range, and its end."""
        name = self.table.name
        store = SnapshotStore(self.table.paths, self.env, name)
        latest = store.latest()
        newest = 0 if latest is None else latest.id
        end = newest if self.end is None else self.end
        if end > newest:
            raise NotFoundError(
                f"cannot read the changes of '{name}': snapshot {end} is not there yet, the newest is {newest}. "
                "Nothing was read. Leave end out to read up to the newest.",
                table=name,
                snapshot=end,
            )
        if self.start > end + 1:
            raise NotFoundError(
                f"cannot read the changes of '{name}': they would start with snapshot {self.start} and end with "
                f"{end}. Nothing was read. Wait until more is committed, or start earlier.",
                table=name,
                snapshot=self.start,
            )
        ids = range(self.start, end + 1)
        changelogs = ChangelogStore(self.table.paths, self.env)
        found: list[Snapshot] = []
        for number, one in zip(ids, self.env.fetch(store.get, ids), strict=True):
            kept = one if one is not None else changelogs.get(number)
            if kept is None:
                raise self._expired(number, end, store, changelogs)
            found.append(kept)
        return found, end

    def _expired(self, number: int, end: int, store: SnapshotStore, changelogs: ChangelogStore) -> ExpiredError:
        earliest = min((i for i in (store.earliest_id(), *changelogs.ids()[:1]) if i is not None), default=end)
        return ExpiredError(
            f"cannot read the changes of '{self.table.name}': snapshot {number} has expired. The table keeps the "
            f"changes from snapshot {earliest} on. Nothing was read. Start there after a read of that snapshot, and "
            "raise 'changelog.time-retained' or 'snapshot.time-retained' to keep changes for longer.",
            table=self.table.name,
            snapshot=number,
            earliest=earliest,
        )

    def _targets(
        self, entries: Sequence[ManifestEntry], schemas: dict[int, tuple[t.Field, ...]]
    ) -> list[FileToRead]:  # fmt: skip
        """Return the files of a snapshot that may hold rows of the filter."""
        table, where = self.table, self.where
        through = partitions_through(table, {entry.partition for entry in entries}, partition_filter(table, where))
        entries = [entry for entry in entries if entry.partition in through]
        if where is not None and CHANGE_KIND.name not in where.columns:
            entries = by_stats(table, list(entries), where)
        store = SchemaStore(table.paths, self.env)
        targets = []
        for (partition, bucket), group in groupby(entries, key=lambda entry: (entry.partition, entry.bucket)):
            directory = table.bucket_directory(partition, bucket)
            for entry in group:
                file = entry.file
                if file.schema_id not in schemas:
                    schemas[file.schema_id] = store.load(file.schema_id).fields
                path = file.external_path or join(directory, file.name)
                targets.append(FileToRead(path, file, schemas[file.schema_id], table.schema.id))
        return targets


@dataclass(frozen=True)
class _Plan:
    """The files to read, in parts that are read one after the other or side by side.

    Attributes:
        end: the last snapshot.
        published: how many snapshots have changes.
        parts: files in order.
    """

    changes: Changes
    end: int
    published: int
    parts: list[list[FileToRead]]

    def read(self, part: Sequence[FileToRead]) -> Iterator[pa.Table]:
        """Yield the rows of some files.

        Raises:
            FormatError: a file is damaged or missing.
            ExpiredError: it is missing since its snapshot has expired meanwhile.
        """
        changes = self.changes
        try:
            for rows in self._stored(part):
                made = self._made(rows)
                if made.num_rows:
                    yield made
        except FormatError as error:
            if isinstance(error.__cause__, NotFoundError):
                changes._snapshots()  # says that they have expired, if they have
            raise

    def _stored(self, part: Sequence[FileToRead]) -> Iterator[pa.Table]:
        table, where = self.changes.table, self._where_stored
        wanted = self._wanted
        storage = self.changes.env.storage
        if len(part) > 1:
            rows = read_small(storage, part, columns=wanted, sequence=False)
            if rows is not None:
                yield rows
                return
        for target in part:
            reader = DataFileReader(
                storage,
                target,
                columns=wanted,
                kind=table.keyed,
                groups_filter=where,
                rows_filter=None if where is None or can_fail(where.expression) else where,
            )
            try:
                while (rows := reader.read(_READ_ROWS)) is not None:
                    yield rows
            finally:
                reader.close()

    @property
    def _where_stored(self) -> Predicate | None:
        """The filter, if it looks at stored columns alone."""
        where = self.changes.where
        return None if where is None or CHANGE_KIND.name in where.columns else where

    @property
    def _wanted(self) -> list[t.Field]:
        """The stored columns to read."""
        changes = self.changes
        schema = changes.table.schema
        wanted = {field.name: field for field in changes.columns}
        if changes.where is not None:
            wanted |= {field.name: field for field in schema.fields if field.name in changes.where.columns}
        if changes.table.counting:
            wanted[VALUE_COUNT.name] = schema.field(VALUE_COUNT.name)
        if not wanted:
            name = changes.table.key[0] if changes.table.keyed else schema.names[0]
            wanted[name] = schema.field(name)
        return list(wanted.values())

    def _made(self, rows: pa.Table) -> pa.Table:
        """Return stored rows as changes: with their kinds, filtered, and of a counting table as often as they count."""
        changes = self.changes
        if changes.table.counting:
            counts = rows.column(VALUE_COUNT.name).to_numpy()
            kinds = np.where(counts < 0, row_kind.DELETE, row_kind.INSERT).astype(np.int8)
            at = np.repeat(np.arange(rows.num_rows), np.abs(counts))
            rows, kinds = rows.take(pa.array(at)), kinds[at]
        elif changes.table.keyed:
            kinds = rows.column(VALUE_KIND.name).to_numpy()
        else:
            kinds = row_kind.inserts(rows.num_rows).to_numpy()
        rows = rows.append_column(CHANGE_KIND.name, pa.chunked_array([_SYMBOLS.take(pa.array(kinds))]))
        if changes.where is not None:
            rows = rows.filter(changes.where.mask(rows).fill_null(False))
        schema = changes.schema
        columns = [rows.column(name) for name in schema.names]
        fields = [
            field if field.nullable or not column.null_count else field.with_nullable(True)
            for field, column in zip(schema, columns, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _parted(targets: Sequence[FileToRead], *, keyed: bool) -> list[list[FileToRead]]:
    """Return files in parts: large ones by themselves, small ones together."""
    parts: list[list[FileToRead]] = []
    open_part = False
    for target in targets:
        small = keyed and is_small(target.file)
        if small and open_part and len(parts[-1]) < _TOGETHER:
            parts[-1].append(target)
        else:
            parts.append([target])
        open_part = small
    return parts


def changes_of(
    table: TableDef, env: Env, start: int, end: int | None, columns: tuple[t.Field, ...], where: Predicate | None
) -> Changes:
    """Return what snapshots published; see `Table.changes`.

    Raises:
        InvalidInputError: an id is no number, or the table has a column of the name of the kinds.
    """
    for what, number in (("start", start), ("end", end)):
        if (number is not None or what == "start") and (
            not isinstance(number, int) or isinstance(number, bool) or number < (1 if what == "start" else 0)
        ):
            raise InvalidInputError(
                f"cannot read the changes of '{table.name}': {what} is {number!r:.50}. Give the id of a snapshot, a "
                "whole number from 1 on."
            )
    if any(field.name == CHANGE_KIND.name for field in table.schema.fields):
        raise InvalidInputError(
            f"cannot read the changes of '{table.name}': it has a column '{CHANGE_KIND.name}', the name of the "
            "column of kinds. Rename that column.",
            column=CHANGE_KIND.name,
        )
    return Changes(table, env, start, end, columns, where)
