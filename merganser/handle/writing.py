"""The verbs that write rows, as part of `Table`, and the writer of many commits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from merganser.handle.base import TableBase
from merganser.meta.snapshot import Snapshot
from merganser.options import write as w
from merganser.options.registry import arguments_of
from merganser.schema import row_kind
from merganser.values import dataclass

if TYPE_CHECKING:
    from merganser.cdc.records import Parsed
    from merganser.commit.conflict import Reads
    from merganser.edit.images import Upserted
    from merganser.edit.keeping import Kept
    from merganser.write.session import WriteSession
    from merganser.write.transaction import Transaction

Overwrite = Mapping[str, Any] | str | None


@dataclass(frozen=True, slots=True)
class ChangesWritten:
    """What `write_changes` did.

    Attributes:
        snapshot: the commit; None if there were no rows, or if it is expired and was made by an earlier call.
        rows: rows written, old and new rows of updates apart.
        rejected: bad records, which are in the table of dead letters.
        skipped: records that say nothing about rows, by why.
    """

    snapshot: Snapshot | None
    rows: int
    rejected: int
    skipped: Mapping[str, int]


class WriteVerbs(TableBase):
    """Writes, upserts and loads."""

    def write(
        self,
        data: Any,
        kinds: Any = None,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
        watermark: int | datetime | None = None,
        changes: bool = True,
    ) -> Snapshot | None:
        """Write rows as one commit.

        Args:
            data: an Arrow table, batches or reader, a pandas or Polars frame, or a list or iterator of dictionaries.
            kinds: the kinds of the rows: the name of a column of `data`, which is not stored, or one of "+I", "-U",
                "+U", "-D" per row, in the order of the rows across all batches. None: all rows are inserts. An
                insert replaces an existing row with the same key.
            columns: the columns that `data` has; the others get their default or null. In a deduplicate table with the
                changelog producer per-record, they keep their values, as with `upsert`. None: all columns.
            overwrite: {"dt": "2026-01-01"} replaces this partition, {} the whole table, and "dynamic" the partitions
                that occur in `data`. Text stands for a value of any type, as in the names of directories: "2026-01-01"
                for a DATE. None: replace nothing.
            commit_user, identifier: the name of the committer and the number of this commit. Use a larger identifier
                for each new commit. If it is not larger than the last one of this user, the commit was already
                applied, and nothing is written.
            watermark: the time up to which all rows by event time are there, as an aware datetime or epoch
                milliseconds. The watermark of a table never falls. A higher one is committed without rows, too. None:
                it stays as it is.
            changes: False: the commit publishes no changes, and readers of changes are told so. A compaction publishes
                them still if it cannot tell them from those of other commits.

        Returns:
            The snapshot, or None if there was nothing to commit.

        Raises:
            InvalidInputError: the rows do not fit the table; nothing was written.
            UnsupportedError: the table needs a feature that this version does not have; nothing was written.
            ConflictError: another commit changed the same files; nothing of this write is visible.
            CommitUnknownError: the store lost the reply; repeat with the same user and identifier.
        """
        from merganser.commit.turns import in_rounds
        from merganser.ingest.rows import held_rows
        from merganser.write.merge_schema import fields_for
        from merganser.write.transaction import checked_watermark

        if columns is not None and overwrite is None and self._looks_up_other_columns(columns):
            return self.upsert(
                data,
                kinds,
                columns,
                commit_user=commit_user,
                identifier=identifier,
                watermark=watermark,
                changes=changes,
            ).snapshot
        watermark = checked_watermark(watermark, f"cannot write to '{self.name}'")
        rows = held_rows(data, fields_for(self.definition, self.env, data))

        def written(_: bool) -> Snapshot | None:
            with Writer(self._session(columns, overwrite, commit_user, changes)) as writer:
                if identifier is not None:
                    done, snapshot = writer.session.applied(identifier)
                    if done:
                        return snapshot
                writer.write(data if rows is None else rows, kinds)
                return writer.commit(identifier, watermark)

        if rows is None:
            return written(True)
        # Others may give new keys of these rows other buckets, or rescale: rows that are held are written again, then.
        return in_rounds(self.definition, self.env, written, lambda: None)

    def upsert(
        self,
        data: Any,
        kinds: Any = None,
        columns: Sequence[str] | None = None,
        if_exists: str = "update",
        commit_user: str | None = None,
        identifier: int | None = None,
        watermark: int | datetime | None = None,
        changes: bool = True,
    ) -> Upserted:
        """Write rows by key as one commit, and return what became of them.

        `write` does not look at the rows that are there. `upsert` looks them up, and writes only what changes. If
        another commit changes one of the buckets meanwhile, `upsert` looks up again. So no change of others is lost,
        and the result is exact. All rows of the call are held in memory, together with the rows that they replace.

        Args:
            data: the rows; see `write`. Of several rows of one key the last one counts, after a delete too.
            kinds: the kinds of the rows; see `write`. A "-D" removes the row of its key. With `columns` it sets these
                columns to null, and removes the row if all its other columns are null.
            columns: the columns that `data` has: the whole key, the partition columns, and the columns to change. The
                other columns of a row keep their values; in a new row they get their default or null. Only for merge
                engine deduplicate. None: all columns.
            if_exists: "update" replaces the row of a key. "keep" leaves it as it is, so only new keys are written; of
                several rows of a new key the first one counts.
            commit_user, identifier: see `write`. A repeated call writes nothing and returns the result of the first.
            watermark, changes: see `write`.

        Returns:
            The snapshot, the numbers of keys inserted, updated, deleted and unchanged, the rows after the commit, and
            the changes with `_row_kind`. If no row changes, there is no commit. In a table with `sequence.field` or
            another merge engine, rows that change nothing may be written. Rows that wait for their compaction count
            as part of the table.

        Raises:
            InvalidInputError: the table has no key; the rows do not fit the table; a new row lacks a NOT NULL column.
                Nothing was written.
            UnsupportedError: the table needs a feature that this version does not have; nothing was written.
            ConflictError: other commits changed the rows again and again until `commit.max-retries` or
                `commit.timeout`; or a column that the call names is another one since the handle was opened. Nothing of
                this call is visible.
            CommitUnknownError: the store lost the reply; repeat with the same user and identifier.
        """
        from merganser.edit.upsert import Upsert

        call = Upsert(
            self.definition, self.env, columns=columns, if_exists=if_exists, commit_user=commit_user, changes=changes
        )
        return call.run(data, kinds, identifier, watermark)

    def write_changes(
        self,
        records: Any,
        format: str,
        /,
        *,
        keys: Any = None,
        dead_letters: WriteVerbs | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
        **options: Any,
    ) -> ChangesWritten:
        """Write the rows that change records stand for as one commit.

        Args:
            records, format, keys, options: see `merganser.cdc.parse`. With `write.merge-schema`, the table first gets
                the columns that it lacks and whose types the records tell.
            dead_letters: a table with the columns of `merganser.cdc.DEAD_LETTERS` that bad records are written to
                first, in a commit of its own. None: one bad record makes the call fail.
            commit_user, identifier: see `write`. A repeated call writes no bad record twice: `commit_user` and the name
                of this table are the user of that commit.

        Returns:
            The snapshot, and how many records and rows there were.

        Raises:
            InvalidInputError: an option has no meaning; or a record is bad and there is no table for it; or the rows
                do not fit the table. Nothing was written, except maybe to `dead_letters`.
            UnsupportedError: the table has a column of a type that change records do not hold; nothing was written.
            ConflictError, CommitUnknownError: see `write`.
        """
        from merganser.cdc.options import check_names
        from merganser.handle.new_columns import with_columns_told

        check_names(options, arguments_of(self.write_changes))
        chosen = options if dead_letters is not None else {**options, "bad": "fail"}
        table = with_columns_told(
            self.definition,
            self.env,
            records,
            format,
            chosen,
            lambda made: replace(self, definition=made)._parsed(records, format, keys, chosen),
            keeps_bad=dead_letters is not None,
        )
        return replace(self, definition=table)._write_changes(
            records, format, keys, chosen, dead_letters, commit_user, identifier
        )

    def _parsed(self, records: Any, format: str, keys: Any, chosen: Mapping[str, Any]) -> Parsed:
        from merganser.cdc.records import Placing, parse_records

        placing = Placing.of(self.schema, self.definition.options)
        return parse_records(records, format, self.schema.fields, self.primary_key, chosen, keys, placing)

    def _write_changes(
        self,
        records: Any,
        format: str,
        keys: Any,
        chosen: Mapping[str, Any],
        dead_letters: WriteVerbs | None,
        commit_user: str | None,
        identifier: int | None,
    ) -> ChangesWritten:
        from merganser.cdc.records import rejected_at
        from merganser.edit.keeping import Keeping, Kept, apart, check_can_keep
        from merganser.handle.dead_letters import DeadLetters
        from merganser.write.begin import begin

        found = self._parsed(records, format, keys, chosen)
        buried = None if chosen.get("bad") == "fail" else dead_letters
        letters = DeadLetters(buried, self.name, self.env.clock(), commit_user, identifier)
        if found.unavailable is None:
            letters.bury(found.rejected)
            kinds = row_kind.symbols(found.kinds)
            snapshot = self.write(found.rows, kinds, commit_user=commit_user, identifier=identifier)
            return ChangesWritten(snapshot, found.rows.num_rows, letters.count, dict(found.skipped))

        def begun() -> Transaction:
            return begin(self.definition, self.env, commit_user=commit_user, identifier=identifier)

        transaction = begun()
        check_can_keep(transaction.target)
        given = Kept.of(found.rows, found.kinds, found.unavailable, pa.table({"record": found.record}))
        parts = apart(transaction.table, given)

        def rejected(rows: Kept, reasons: pa.Array) -> pa.Table:
            return rejected_at(records, keys, rows.letters.column("record"), reasons)

        letters.bury(pa.concat_tables([found.rejected, rejected(parts.refused, parts.reasons)]).sort_by("record"))
        keeping = Keeping(
            transaction.table,
            self.env,
            parts.waiting,
            lambda rows, reasons: letters.bury(rejected(rows, reasons), of=" (stored rows)"),
            transaction.target.action,
        )
        snapshot = keeping.commit(lambda is_first: transaction if is_first else begun(), others=parts.whole)
        return ChangesWritten(snapshot, keeping.rows, letters.count, dict(found.skipped))

    def writer(
        self,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        changes: bool = True,
    ) -> Writer:
        """Return a writer for many batches and commits. It drops rows that are not committed when it is closed.

        If `bucket` is -2, its rows wait for their buckets until a compaction, as those of a stream.
        """
        return Writer(self._session(columns, overwrite, commit_user, changes, streams=True))

    def _session(
        self,
        columns: Sequence[str] | None,
        overwrite: Overwrite,
        commit_user: str | None,
        changes: bool,
        streams: bool = False,
    ) -> WriteSession:
        from merganser.write.session import WriteSession

        return WriteSession(
            self.definition,
            self.env,
            commit_user=commit_user,
            columns=columns,
            overwrite=overwrite,
            changes=changes,
            streams=streams,
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
        watermark: int | datetime | None = None,
        changes: bool = True,
        time_zone: str | None = None,
        time_unit: str | Mapping[str, str] | None = None,
        partitions: bool = True,
    ) -> Snapshot | None:
        """Write the rows of files as one commit, by column name, in the order of the paths; memory is bounded.

        Args:
            files: a pattern such as "in/*.parquet", "in/day=*" or "s3://bucket/in/**/*.csv", or a directory, with all
                directories below. What directories such as `day=1` say becomes columns. The extension gives the format:
                parquet, orc, avro, csv, json (one object per line) or arrow. Text is converted to the types of the
                table.
            kinds, columns, overwrite, commit_user, identifier: see `write`.
            options: the format of all files if their names do not say it, such as {"format": "orc"}; the layout of
                CSV files, such as {"csv.delimiter": ";", "csv.null": ",NA"}; options of the store of the files if it is
                not the store of the table. See `docs/files.md`.
            watermark, changes: see `write`.
            time_zone: the zone of clock times in CSV and JSON files that become instants, and the other way round,
                such as "Europe/Berlin". None: UTC.
            time_unit: what integers in CSV and JSON files count in TIME and TIMESTAMP columns: "s", "ms", "us" or
                "ns", or a dictionary of these by column. None: integers are refused there.
            partitions: False: directories say no columns.

        Raises:
            NotFoundError: no file matches.
            InvalidInputError: the rows do not fit the table; nothing was written.
            FormatError: a file is damaged, or its extension is wrong.
        """
        from merganser.ingest.files import rows_of_files
        from merganser.write.merge_schema import fields_for
        from merganser.write.transaction import checked_watermark

        watermark = checked_watermark(watermark, f"cannot write to '{self.name}'")
        with Writer(self._session(columns, overwrite, commit_user, changes)) as writer:
            if identifier is not None:
                done, snapshot = writer.session.applied(identifier)
                if done:
                    return snapshot
            found, rows = rows_of_files(
                files,
                self.definition,
                self.env.storage,
                kinds,
                columns,
                options,
                time_zone,
                time_unit,
                partitions=partitions,
            )
            if self.definition.options.get(w.MERGE_SCHEMA):  # columns of files without a heading stay those of then
                rows = replace(rows, fields=fields_for(self.definition, self.env, files))
            rows.check_directories(found.paths)
            title = f"loading {self.name}"
            with self.env.progress.work(title, size_bytes=sum(found.sizes), steps=len(found.paths)) as work:

                def parts() -> Iterator[Iterator[pa.Table]]:
                    for path, size in zip(found.paths, found.sizes, strict=True):
                        yield rows.tables(rows.whole(path))
                        work.advance(size)

                writer.write_each(parts(), kinds)
            return writer.commit(identifier, watermark)

    def truncate(self) -> Snapshot | None:
        """Remove all rows as one commit."""
        return self.write(pa.schema([]).empty_table(), overwrite={})

    def drop_partitions(self, partitions: Iterable[Mapping[str, Any]]) -> Snapshot | None:
        """Remove all rows of some partitions as one commit.

        Args:
            partitions: specs such as {"dt": "2026-01-01"}, which may name only some of the partition columns. Text
                stands for a value of any type, as in the names of directories: "2026-01-01" for a DATE.
        """
        from merganser.write.dropping import drop_partitions

        if isinstance(partitions, Iterable) and not isinstance(partitions, str | Mapping):
            partitions = list(partitions)
        return drop_partitions(self.definition, self.env, partitions)  # type: ignore[arg-type]

    def _looks_up_other_columns(self, columns: Sequence[str]) -> bool:
        from merganser.rules.dialects import keeps_other_columns

        options = self.definition.options
        own = {field.name for field in self.definition.schema.user_fields}
        engine = options.get(w.MERGE_ENGINE)
        return engine == "deduplicate" and keeps_other_columns(options) and not own.issubset(columns)


def write_computed(
    table: WriteVerbs,
    rows: pa.Table | Iterator[pa.RecordBatch],
    computed_from: Callable[[], Reads | None],
    columns: Sequence[str] | None = None,
    overwrite: Overwrite = None,
) -> Snapshot | None:
    """Write rows that a query gives as `Table.write` does, if what it read of the table is as it was.

    Args:
        computed_from: what the query has read of the table; asked when it has given all rows. None: nothing.

    Raises:
        ConflictError: it has changed; `overtaken` is QUERY, and the query has to run again.
    """
    from merganser.edit.upsert import Upsert

    if columns is not None and overwrite is None and table._looks_up_other_columns(columns):
        held = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)
        call = Upsert(
            table.definition,
            table.env,
            columns=columns,
            if_exists="update",
            commit_user=None,
            computed_from=computed_from(),
        )
        return call.run(held, None, None).snapshot
    with Writer(table._session(columns, overwrite, None, True)) as writer:
        writer.write(rows)
        writer.session.computed_from = computed_from()
        return writer.commit()


class Writer:
    """Writes batches and commits them. Use it in a `with` block, which drops rows that were not committed."""

    def __init__(self, session: WriteSession) -> None:
        self.session = session

    def write(self, data: Any, kinds: Any = None) -> None:
        """Take rows; see `Table.write`. Call `abort` after an error."""
        self.write_each((data,), kinds)

    def write_each(self, parts: Iterable[Any], kinds: Any = None) -> None:
        """Take the rows of several `data`, one after the other. A list of kinds covers the rows of all of them."""
        from merganser.ingest.rows import RowKinds, batches_of
        from merganser.write.merge_schema import fields_for

        taken = False
        try:
            with self.session.env.progress.work(f"writing {self.session.table.name}") as work:
                of_rows = RowKinds(kinds, table=self.session.table.name)
                for data in parts:
                    fields = fields_for(self.session.table, self.session.env, data)
                    for batch, held in batches_of(data, fields):
                        rows, row_kinds = of_rows.split(batch, last=held)
                        self.session.write(rows, row_kinds, held=held)
                        taken = True
                        work.advance(rows.nbytes)
                of_rows.finish()
        except BaseException:
            if taken:
                self.session.give_up()
            raise

    def flush(self) -> None:
        """Wait until streams can see the rows written so far, before their commit.

        For tables with `log.consistency` = `eventual`. `write` sends the rows, and streams usually have them some
        milliseconds later; after `flush` they can. Rows that are not committed then are taken back.

        Raises:
            InvalidInputError: streams of this table see rows after their commit.
            StorageError: the log did not take the rows. They are kept for the commit, which brings them.
        """
        self.session.flush()

    def commit(self, identifier: int | None = None, watermark: int | datetime | None = None) -> Snapshot | None:
        """Commit the rows since the last commit as one snapshot. Return None if there was nothing to commit.

        Args:
            identifier, watermark: see `Table.write`.
        """
        return self.session.commit(identifier, watermark=watermark)

    def abort(self) -> None:
        """Drop the rows that were not committed."""
        self.session.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close()
