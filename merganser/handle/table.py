"""Table: the handle. Each method composes what the layers below decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.expr.text import to_predicate
from merganser.handle.branches import Branches
from merganser.handle.consumers import Consumers
from merganser.handle.tags import Tags
from merganser.ingest.rows import RowKinds, batches_of
from merganser.lsm.check import Finding
from merganser.lsm.clustering import checked_order
from merganser.meta.refs import MAIN, BranchStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.options import write as w
from merganser.options.option import Options
from merganser.options.registry import IMMUTABLE_KEYS, did_you_mean, find_option, normalize_options
from merganser.options.secrets import shown
from merganser.rules.checks import FILE_OPTIONS, check_file_options, check_type
from merganser.rules.gaps import check_can_start, unsupported_for_writing
from merganser.rules.merging import check_merge_rules
from merganser.rules.starts import check_scan_options
from merganser.scan.plan import unseen_files
from merganser.scan.rows import Rows, StoredRows, counted, waiting
from merganser.scan.scan import Scan, chosen_columns
from merganser.scan.source import Source, State
from merganser.scan.system_tables import check_system_name, system_table
from merganser.scan.time_travel import epoch_ms, resolve, source_of
from merganser.scan.views import VIEWS, view
from merganser.schema.arrow import fields_from_arrow
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import DROPPED, TablePaths
from merganser.upkeep.check import check_table
from merganser.upkeep.compact_table import compact
from merganser.upkeep.expire import expire
from merganser.upkeep.expire_partitions import expire_partitions as expired_partitions
from merganser.upkeep.orphans import DAY_MS, remove_orphans
from merganser.upkeep.plan_compaction import CompactionRequest
from merganser.upkeep.retention import snapshot_retention
from merganser.upkeep.rollback import roll_back
from merganser.write.dropping import drop_partitions, expire_partitions
from merganser.write.session import WriteSession
from merganser.write.target import WriteTarget

Overwrite = Mapping[str, Any] | str | None


@dataclass(frozen=True)
class Table:
    """One table: read it, write it, look at it. Cheap to make; holds no open file.

    Get one from `Catalog.table`, `Catalog.create_table` or `merganser.table`.
    """

    definition: TableDef
    env: Env

    # what it is

    @property
    def name(self) -> str:
        """`database.table`, or the path when it was opened by path."""
        return self.definition.name

    @property
    def path(self) -> str:
        """The table's directory."""
        return self.definition.path

    @property
    def schema(self) -> TableSchema:
        """Columns, keys and stored options, as they were when the handle was made."""
        return self.definition.schema.shown

    @property
    def options(self) -> Options:
        """Options, dynamic ones included; of secrets the keys only."""
        return shown(self.definition.options)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Columns that identify a row; empty for append tables."""
        return self.schema.primary_keys

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns."""
        return self.schema.partition_keys

    def with_options(self, options: Mapping[str, Any]) -> Table:
        """Return the same table with dynamic options on top of its own.

        Raises:
            InvalidInputError: an option that is misspelt or whose value has no meaning, or one that decides
                how stored data lies and so can only be set on the table itself.
        """
        texts = normalize_options(options, columns=self.schema.names)
        own = self.definition.options
        merged = own.merged(texts)
        for key in texts:
            if key in _READ_ARGUMENTS:
                raise InvalidInputError(
                    f"unknown table option '{key}'. Give it to read, as read({key}=...), or set "
                    f"'{_READ_ARGUMENTS[key].key}'.",
                    option=key,
                )
            option = find_option(key)
            if option is None or (option.key not in IMMUTABLE_KEYS and option not in _LAYOUT):
                continue
            if merged.get(option) != self.schema.options.get(option):
                stored = self.schema.options.get(option.key)
                has = "does not set it" if stored is None else f"has '{stored}'"
                raise InvalidInputError(
                    f"cannot open '{self.name}' with '{key}' = '{texts[key]}': it says how stored data lies, and the "
                    f"table {has}. Only the table itself can change it.",
                    option=key,
                    table=self.name,
                )
        for option in (w.IGNORE_DELETE, w.IGNORE_UPDATE_BEFORE):
            if self.schema.options.get(option) and not merged.get(option):
                raise InvalidInputError(
                    f"cannot open '{self.name}' with '{option.key}' = 'false': the table drops such rows, and one of "
                    "its writers cannot keep them. Open it without the option.",
                    option=option.key,
                    table=self.name,
                )
        check_scan_options(merged, what=f"cannot read '{self.name}'")
        branch = merged.get(r.BRANCH)
        if r.BRANCH.key in texts and branch != self.definition.branch:
            return self.branch(branch).with_options({key: text for key, text in texts.items() if key != r.BRANCH.key})
        changed = {key for key, text in merged.items() if own.get(key) != text}
        if any(find_option(key) in FILE_OPTIONS for key in changed):
            check_file_options(merged, what=f"cannot open '{self.name}'")
        if any(key.startswith("fields.") or key == w.SEQUENCE_FIELD.key for key in changed):
            check_merge_rules(replace(self.definition.schema, options=merged), what=f"cannot open '{self.name}'")
        return replace(self, definition=replace(self.definition, options=merged))

    # reading

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Return a lazy scan of the table.

        Args:
            columns: names, in the order wanted; None: all.
            where: SQL text, a `pyarrow.compute` expression or a predicate; applied exactly.
            snapshot, tag, timestamp: read the table as of then; at most one of them. None: the newest. A time is an
                aware datetime or ISO text, without a zone UTC; a snapshot of that very time counts.
            limit: most rows to return; which ones is not defined.

        Raises:
            InvalidInputError: a column, filter or time that has no meaning.
            NotFoundError, ExpiredError: no such snapshot or tag, or no longer.
        """
        definition = self.definition
        if snapshot is None and tag is None and timestamp is None:
            check_can_start(replace(definition.schema, options=definition.options), name=self.name)
            source: Source = source_of(definition.options, self._snapshots)
        else:
            source = State(resolve(self._snapshots, snapshot=snapshot, tag=tag, timestamp=timestamp))
        if source.snapshot is not None and source.snapshot.schema_id != definition.schema.id:
            definition = definition.with_schema(SchemaStore(definition.paths, self.env).load(source.snapshot.schema_id))
        _check_limit(limit, self.name)
        return Scan(
            definition,
            self.env,
            chosen_columns(definition, columns),
            to_predicate(where, definition.schema.user_fields),
            source,
            limit,
        )

    def system(
        self, name: str, *, columns: Sequence[str] | None = None, where: Any = None, limit: int | None = None
    ) -> Rows:
        """Return the rows of a system table, such as `snapshots`, `files` or `schemas`.

        `ro` and `audit_log` are the table read in another way; see `scan.views`.

        Raises:
            NotFoundError: there is no system table of this name.
        """
        plain = str(name).removeprefix("$")
        if plain in VIEWS:
            return view(plain, self.read(limit=limit), columns, where)
        check_system_name(self.definition, plain)
        _check_limit(limit, self.name)
        if isinstance(columns, str):
            raise InvalidInputError(
                f"columns must be a list of names, not the text '{columns}'. Write columns=['{columns}']."
            )
        if columns is not None and not isinstance(columns, Iterable):
            raise InvalidInputError(f"columns must be a list of names, not {columns!r:.100}. Write columns=['id'].")

        def rows() -> pa.Table:
            found = system_table(self.definition, self.env, plain)
            if where is not None:
                fields = tuple(replace(f, id=i) for i, f in enumerate(fields_from_arrow(found.schema)))
                predicate = to_predicate(where, fields)
                found = found if predicate is None else predicate.apply(found)
            for column in columns or ():
                if column not in found.column_names:
                    hint = did_you_mean(str(column), found.column_names)
                    raise InvalidInputError(f"'{self.name}${plain}' has no column '{column}'. {hint}", column=column)
            if columns is not None:
                found = found.select(list(columns))
            return found if limit is None else found.slice(0, limit)

        return StoredRows(rows, f"{self.name}${plain}")

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots that are kept, oldest first."""
        store = self._snapshots
        return tuple(found for found in (store.get(i) for i in store.ids()) if found is not None)

    def latest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot, or None of a table that was never written."""
        return self._snapshots.latest()

    def files(self) -> pa.Table:
        """Return the live data files of the newest snapshot, one row each, with the columns of `$files`."""
        return self.system("files").to_arrow()

    def describe(self) -> str:
        """Return what the table is, as text for a person: columns, keys, options, size."""
        schema = self.schema
        latest = self.latest_snapshot()
        width = max(len(n) for n in schema.names)
        lines = [f"table      {self.name}"]
        if self.name != self.path:
            lines.append(f"path       {self.path}")
        if schema.comment:
            lines.append(f"comment    {schema.comment}")
        lines.append("columns")
        lines += [
            f"  {f.name:<{width}}  {f.type}{'  -- ' + f.description if f.description else ''}" for f in schema.fields
        ]
        unkeyed = "none: equal rows are counted" if self.definition.counting else "none: rows are appended"
        lines.append(f"key        {', '.join(schema.primary_keys) or unkeyed}")
        lines.append(f"partitions {', '.join(schema.partition_keys) or 'none'}")
        lines.append("options" if self.options else "options    none")
        lines += [f"  {key} = {value}" for key, value in sorted(self.options.items())]
        if latest is None:
            lines.append("snapshot   none: nothing was written yet")
        else:
            state = MetaReader(self.definition.paths, self.env, self.name).state(latest)
            size = sum(e.file.size for e in state.live)
            lines.append(f"snapshot   {latest.id}, {latest.commit_kind} at {latest.commit_time:%Y-%m-%d %H:%M:%S} UTC")
            lines.append(
                f"stored     {counted(latest.total_record_count or 0, 'row')}"
                f"{', before merging' if self.definition.keyed else ''}; {size:,} bytes in "
                f"{counted(len(state.live), 'file')}, {counted(len(state.live.buckets), 'bucket')}"
            )
            if unseen := unseen_files(self.definition, self.env, state.live):
                lines.append(f"note       {waiting(unseen)}")
        lines += [
            f"note       this version does not write it: {gap.feature}"
            for gap in unsupported_for_writing(self.definition.schema)
        ]
        return "\n".join(lines)

    # writing

    def write(
        self,
        data: Any,
        kinds: Any = None,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
    ) -> Snapshot | None:
        """Write rows as one commit.

        Args:
            data: Arrow table, batches or reader, pandas or Polars frame, a list or an iterator of dictionaries.
            kinds: what rows do: the name of a column of `data` (not stored), or one of "+I" "-U" "+U" "-D" per
                row, in the order of the rows, across batches; None: all are inserts. An insert of a key that is
                there replaces its row.
            columns: only these columns are supplied, the others take their default, else null; None: all are.
            overwrite: {"dt": "2026-01-01"}: replace that partition, {}: the table, "dynamic": the partitions
                that occur in the data; None: add to what is there.
            commit_user, identifier: who commits and which of their commits it is. Identifiers of one user
                rise; one at or below the user's last is applied already, and nothing is written.

        Returns:
            The snapshot, or None when there was nothing to commit.

        Raises:
            InvalidInputError: the rows do not fit the table; nothing was written.
            UnsupportedError: the table asks for something this version does not write.
            ConflictError: lost a race for good; nothing of it is visible.
            CommitUnknownError: the store lost the reply; repeat with the same user and identifier.
        """
        with self.writer(columns=columns, overwrite=overwrite, commit_user=commit_user) as writer:
            if identifier is not None:
                done, snapshot = writer.session.applied(identifier)
                if done:
                    return snapshot
            writer.write(data, kinds)
            return writer.commit(identifier)

    def writer(
        self, columns: Sequence[str] | None = None, overwrite: Overwrite = None, commit_user: str | None = None
    ) -> Writer:
        """Return a writer for many batches and commits. Leaving it without a commit drops the rest."""
        return Writer(
            WriteSession(self.definition, self.env, commit_user=commit_user, columns=columns, overwrite=overwrite)
        )

    def load(
        self,
        files: str,
        kinds: Any = None,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Snapshot | None:
        """Write the rows of files as one commit, by column name, in the order of their paths; memory is bounded.

        Args:
            files: a pattern such as "in/*.parquet" or "s3://bucket/in/*.csv"; the extension says the format:
                parquet, csv, json (an object per line) or arrow. Text is read as the table's types.
            kinds, columns, overwrite, commit_user, identifier: see `write`.
            options: how CSV files are laid out, such as {"csv.delimiter": ";", "csv.null": ",NA"}, and options of
                the store of the files, where it is not that of the table. See `docs/files.md`.

        Raises:
            NotFoundError: no file matches.
            InvalidInputError: the rows do not fit the table; nothing was written.
            FormatError: a file is damaged, or not what its name says.
        """
        from merganser.ingest.files import rows_of_files  # noqa: PLC0415 - CSV and JSON readers, wanted by few

        with self.writer(columns=columns, overwrite=overwrite, commit_user=commit_user) as writer:
            if identifier is not None:
                done, snapshot = writer.session.applied(identifier)
                if done:
                    return snapshot
            found, rows = rows_of_files(files, self.definition, self.env.storage, kinds, columns, options)
            title = f"loading {self.name}"
            with self.env.progress.work(title, size_bytes=sum(found.sizes), steps=len(found.paths)) as work:

                def parts() -> Iterator[Iterator[pa.Table]]:
                    for path, size in zip(found.paths, found.sizes, strict=True):
                        yield rows.tables(rows.whole(path))
                        work.advance(size)

                writer.write_each(parts(), kinds)
            return writer.commit(identifier)

    def truncate(self) -> Snapshot | None:
        """Remove all rows as one commit."""
        return self.write(pa.schema([]).empty_table(), overwrite={})

    def drop_partitions(self, partitions: Iterable[Mapping[str, Any]]) -> Snapshot | None:
        """Remove all rows of partitions as one commit; a spec may name some partition columns only."""
        if isinstance(partitions, Iterable) and not isinstance(partitions, str | Mapping):
            partitions = list(partitions)
        return drop_partitions(self.definition, self.env, partitions)  # type: ignore[arg-type]

    # upkeep

    def compact(
        self,
        full: bool = False,
        partitions: Iterable[Mapping[str, Any]] | None = None,
        where: str | Any | None = None,
        order_by: Sequence[str] | None = None,
        curve: str = "order",
    ) -> Snapshot | None:
        """Put files together, so that reads merge less; what a read returns stays the same.

        Args:
            full: everything into the highest level. Otherwise what the rules of universal compaction pick, which
                is nothing while a bucket has few sorted runs.
            partitions: only these, such as [{"dt": "2026-01-01"}]; a spec may name some partition columns only.
            where: only partitions that this filter on partition columns lets through.
            order_by: columns to sort by, so that filters on them read few files: all rows of each partition are
                rewritten. For tables without a key and with `bucket` = -1.
            curve: `order`: by the first column, then the next; `zorder` or `hilbert`: for filters on any of them.

        Returns:
            The snapshot, or None when there was nothing to do.

        Raises:
            InvalidInputError: partitions, columns or a filter that have no meaning here; nothing was changed.
            NotFoundError: the table has no such partition; nothing was changed.
            ConflictError: others changed the same files again and again; nothing is lost.
            FormatError: a file is damaged or missing; the table is as it was.
        """
        request = self.compaction_request(full, partitions, where, order_by, curve)
        return compact(self.definition, self.env, request)

    def check(self, quick: bool = False) -> tuple[Finding, ...]:
        """Derive every invariant of the table anew from its files; branches and tags included. Nothing is written.

        Args:
            quick: metadata only, and whether the files that it names are there; else all rows are read too.

        Returns:
            What is wrong, each with the file, the reason and what to do; empty when the table is sound. A damaged
            file is a finding and hides no other.
        """
        return check_table(self.definition, self.env, quick=quick)

    def expire(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: datetime | str | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
    ) -> tuple[Snapshot, ...]:
        """Remove old snapshots, and the files that nothing else needs. What tags and branches keep stays readable.

        Args:
            retain_max, retain_min: most and least snapshots to keep; None: 'snapshot.num-retained.max' and '.min'.
            older_than: a datetime or ISO text, without a zone UTC: of the rest those go whose successor is older;
                None: 'snapshot.time-retained' ago.
            max_deletes: most snapshots to remove; None: 'snapshot.expire.limit'.
            dry_run: change nothing.

        Returns:
            The snapshots that were, or would be, removed, oldest first. None that a consumer still wants to read.

        Raises:
            InvalidInputError: numbers or a time that have no meaning; nothing was removed.
            FormatError: what says which files are needed is damaged; nothing was removed.
            StorageError: the store failed; snapshots that are there are whole.
        """
        retention = snapshot_retention(
            self.definition.options,
            self.env.now_ms(),
            table=self.name,
            retain_max=retain_max,
            retain_min=retain_min,
            older_than_ms=None if older_than is None else epoch_ms(older_than),
            max_deletes=max_deletes,
        )
        return expire(self.definition, self.env, retention, dry_run=dry_run)

    def expire_partitions(self, dry_run: bool = False) -> tuple[Mapping[str, Any], ...]:
        """Drop the partitions that are older than 'partition.expiration-time'; see the options that begin so.

        Returns:
            The values of the partitions that were, or with `dry_run` would be, dropped.

        Raises:
            InvalidInputError: the table has no partitions, or does not say when they expire.
            UnsupportedError: its strategy is a class of another engine.
            ConflictError: others committed again and again; some partitions may have been dropped.
        """
        if dry_run:
            return expired_partitions(self.definition, self.env, None)
        return expire_partitions(self.definition, self.env)

    def remove_orphans(self, older_than: datetime | str | None = None, dry_run: bool = True) -> tuple[str, ...]:
        """Remove files that no snapshot, tag, branch or changelog names. By default only say which.

        Args:
            older_than: a datetime or ISO text, without a zone UTC: files written since then stay, for whoever has not
                committed them yet; None: a day ago.
            dry_run: change nothing.

        Returns:
            The paths that were, or would be, removed.

        Raises:
            FormatError: metadata is damaged, so it is not known what it names; nothing was removed.
            StorageError: the store failed; what was removed until then were orphans.
        """
        limit_ms = self.env.now_ms() - DAY_MS if older_than is None else epoch_ms(older_than)
        return remove_orphans(self.definition, self.env, older_than_ms=limit_ms, dry_run=dry_run)

    def compaction_request(
        self,
        full: bool = False,
        partitions: Iterable[Mapping[str, Any]] | None = None,
        where: str | Any | None = None,
        order_by: Sequence[str] | None = None,
        curve: str = "order",
    ) -> CompactionRequest:
        """Return what `compact` is asked to do, checked."""
        through = to_predicate(where, self.definition.schema.user_fields)
        if through is not None and not through.columns <= set(self.partition_by):
            other = sorted(through.columns - set(self.partition_by))[0]
            raise InvalidInputError(
                f"cannot compact '{self.name}': where looks at '{other}', which is not a partition column. A "
                "compaction rewrites whole partitions, so where can only choose among those.",
                column=other,
            )
        request = CompactionRequest(full=full, where=through, order=checked_order(self.definition, order_by, curve))
        if partitions is None:
            return request
        target = WriteTarget(self.definition, action=f"cannot compact '{self.name}'")
        if isinstance(partitions, str | Mapping) or not isinstance(partitions, Iterable):
            raise InvalidInputError(
                f"cannot compact '{self.name}': {partitions!r:.60} is not a list of partitions. Write "
                "[{'dt': '2026-01-01'}]."
            )
        return replace(request, partitions=[target.stored_spec(spec) for spec in partitions])

    @property
    def tags(self) -> Tags:
        """Its tags: snapshots that are kept by name."""
        return Tags(self.definition, self.env)

    @property
    def branches(self) -> Branches:
        """Its branches: lines of snapshots beside its own."""
        return Branches(self.definition, self.env)

    @property
    def consumers(self) -> Consumers:
        """Its consumers: named readers, and how far each has come."""
        return Consumers(self.definition, self.env)

    def branch(self, name: str) -> Table:
        """Return a branch as a table of its own: read it, write it, tag it. "main" is the table itself.

        Raises:
            NotFoundError: there is no such branch.
        """
        plain = self.name.removesuffix(f"$branch_{self.definition.branch}")
        paths = self.definition.paths.of_branch(MAIN)
        if name != MAIN:
            paths = BranchStore(paths, self.env, plain).load(name)
        schema = SchemaStore(paths, self.env).latest()
        if schema is None:  # dropped since it was found
            raise NotFoundError(f"there is no table '{plain}' any more: it was dropped or renamed.", table=plain)
        stored = self.definition.schema.options
        dynamic = {key: text for key, text in self.definition.options.items() if stored.get(key) != text}
        dynamic.pop(r.BRANCH.key, None)
        return table_of(
            schema,
            self.path,
            self.env,
            name=plain if name == MAIN else f"{plain}$branch_{name}",
            options=dynamic,
            branch=name,
        )

    def rollback(self, snapshot: int | None = None, tag: str | None = None) -> Snapshot:
        """Make the table what it was at a snapshot or tag. Later snapshots, and their tags, go for good.

        Stop streams that follow the table first, and its writers if you can: what they commit meanwhile goes as well.
        Ids of snapshots are used again. A consumer beyond the snapshot goes back to the one after it.

        Returns:
            The snapshot that is the newest now.

        Raises:
            NotFoundError, ExpiredError: no such snapshot or tag, or no longer; nothing was changed.
            ConflictError: writers went on and on. Stop them, and repeat.
            StorageError: the table is at one of its own states, not before the one asked for. Repeat.
        """
        return roll_back(self.definition, self.env, snapshot=snapshot, tag=tag)

    @property
    def _snapshots(self) -> SnapshotStore:
        return MetaReader(self.definition.paths, self.env, self.name).snapshots

    def __repr__(self) -> str:
        return f"Table({self.path!r})" if self.name == self.path else f"Table({self.name!r}, {self.path!r})"


class Writer:
    """Writes batches and commits them. Use as a context: leaving without a commit drops what was not committed."""

    def __init__(self, session: WriteSession) -> None:
        self.session = session

    def write(self, data: Any, kinds: Any = None) -> None:
        """Take rows; see `Table.write`. After an error that came halfway the writer has to be aborted."""
        self.write_each((data,), kinds)

    def write_each(self, parts: Iterable[Any], kinds: Any = None) -> None:
        """Take the rows of several `data` one after the other; kinds that are given row by row are those of all."""
        taken = False
        try:
            with self.session.env.progress.work(f"writing {self.session.table.name}") as work:
                of_rows = RowKinds(kinds, table=self.session.table.name)
                for data in parts:
                    for batch, held in batches_of(data, self.session.table.schema.fields):
                        rows, row_kinds = of_rows.split(batch, last=held)
                        self.session.write(rows, row_kinds, held=held)
                        taken = True
                        work.advance(rows.nbytes)
                of_rows.finish()
        except BaseException:
            if taken:
                self.session.give_up()
            raise

    def commit(self, identifier: int | None = None) -> Snapshot | None:
        """Make the rows written since the last commit one snapshot; None when there were none."""
        return self.session.commit(identifier)

    def abort(self) -> None:
        """Drop what was not committed."""
        self.session.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close(error)


_LAYOUT = (w.BUCKET, w.PARTITION_DEFAULT_NAME, w.PARTITION_LEGACY_NAME, w.DELETION_VECTORS)
"""Options that may change on a table, but not for one reader or writer of it: its files lie by them."""
_READ_ARGUMENTS = {"snapshot": r.SCAN_SNAPSHOT_ID, "tag": r.SCAN_TAG_NAME, "timestamp": r.SCAN_TIMESTAMP}
"""What `read` is told, and no option of the format: as one it would be kept, and the newest rows read."""


def _check_limit(limit: int | None, table: str) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidInputError(f"cannot read '{table}': limit must be a number of rows, 0 or more, not {limit!r}.")


def open_table(
    path: str, env: Env, *, name: str, options: Mapping[str, Any] | None = None, branch: str = "main"
) -> Table:
    """Return the table at a path.

    Raises:
        NotFoundError: there is no table; says how to make one.
        FormatError: there are snapshots, and no schema.
    """
    paths = TablePaths(path, branch=branch)
    schema = SchemaStore(paths, env).latest()
    if schema is None:
        if branch == MAIN:
            _check_not_lost(paths, env, name)
        raise NotFoundError(
            f"there is no table at '{path}': it has no schema file. Make one with catalog.create_table(...), or "
            "check the path.",
            path=path,
        )
    return table_of(schema, path, env, name=name, options=options, branch=branch)


def _check_not_lost(paths: TablePaths, env: Env, name: str) -> None:
    """Tell a table whose schemas were lost from one that is not there, or that is being dropped or moved.

    Raises:
        FormatError: there are snapshots, and nobody who took the schemas away has left a mark.
    """
    snapshots = SnapshotStore(paths, env, name).ids()
    if not snapshots or SchemaStore(paths, env).is_marked():
        return
    names = {entry.name for entry in env.storage.list(paths.root)}
    if any(found.startswith(DROPPED) for found in names) or not SnapshotStore(paths, env, name).ids():
        return
    if SchemaStore(paths, env).exists():
        return  # made anew meanwhile
    raise FormatError(
        f"cannot open '{name}': its schema files are missing ('{paths.schema(0)}' and those after it), though it has "
        f"snapshots up to {snapshots[-1]}. Restore them from a backup: without them no row can be read.",
        path=paths.schema(0),
        table=name,
    )


def table_of(
    schema: TableSchema,
    path: str,
    env: Env,
    *,
    name: str,
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
) -> Table:
    """Return the table of a schema that lies at a path.

    Raises:
        InvalidInputError: dynamic options that do not fit the table.
        UnsupportedError: the table is of a kind that does not keep its rows in this format.
    """
    check_type(schema.options, what=f"cannot open '{name}'", table=name)
    made = Table(TableDef(name=name, path=path, schema=schema, options=schema.options, branch=branch), env)
    return made.with_options(options) if options else made
