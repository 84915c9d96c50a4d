"""A table with rows gets a primary key: all rows are written anew, as those of a table with that key, in one commit.

    check     the key columns of all live files: nulls, and keys that more than one row has, are refused with examples
    copy      the rows go through the writer of the new table, in their order; nothing of it is visible
    schema    the schema with the key is made; from here on writers without it are told (`meta.key_change`)
    commit    removes the old files and adds the new ones; a second one merges the manifests

Others commit meanwhile until the schema is there. If they have only added files, these are checked and copied, too, and
schema and commit are tried again; else the copy begins anew. Killed before the commit, the table is the one of before:
its schema is in force until the rows are there.

Order: if a merge engine makes one row of the rows with one key, they count in the order in which they were written to
their bucket. Tables without buckets keep no such order, and neither do rows of several buckets or partitions: those in
the file that was made later, perhaps by a compaction, are newer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.changes import Change, SetOption, SetPrimaryKey
from merganser.codec.hashing import buckets
from merganser.commit.committable import Committable
from merganser.commit.conflict import Reads, check_reads
from merganser.commit.message import CommitMessage, Committed
from merganser.commit.table_commit import TableCommit
from merganser.commit.turns import in_rounds, take_turn
from merganser.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    ExpiredError,
    FormatError,
    InvalidInputError,
    MerganserError,
    Overtaken,
)
from merganser.files.index import check_filters
from merganser.files.layout import check_formats
from merganser.files.masks import NO_VECTORS, BucketVectors, vectors_by_bucket
from merganser.lsm.abandoned import remove_uncommitted
from merganser.merge.keys import sorted_positions
from merganser.meta.data_file import DELETE, DataFile
from merganser.meta.followed import columns_of
from merganser.meta.kept import has_expired
from merganser.meta.key_change import marked
from merganser.meta.layout import Layout
from merganser.meta.live_files import EMPTY, BucketId
from merganser.meta.next_schema import restore_schema
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import BATCH_IDENTIFIER, COMPACT, OVERWRITE
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.rules.alter import altered, checked_changes
from merganser.rules.compacting import hides_level_0, publishes_by_compaction
from merganser.rules.gaps import check_can_keep, check_can_write
from merganser.scan.read import read_split
from merganser.scan.rows import counted, with_schema
from merganser.scan.split import ReadJob, Split
from merganser.schema.arrow import arrow_schema, nullable_schema
from merganser.schema.table_schema import CURRENT_VERSION, TableSchema
from merganser.storage.env import Env
from merganser.upkeep.after_commit import after_commit
from merganser.upkeep.compact_table import on_threads
from merganser.upkeep.plan_compaction import Planner
from merganser.values import dataclass
from merganser.write import overwrite as ow
from merganser.write.incoming import accepted
from merganser.write.start import RowsState, Start
from merganser.write.writer import TableWriter, table_writer

_KEYS_AT_ONCE: Final = 1 << 23
"""So many keys are compared in memory at a time; of more rows the key columns are read once for each such part."""

_SHOWN_MAX: Final = 3


def is_rekeying(table: TableDef, env: Env, changes: Iterable[Change]) -> bool:
    """Return whether changes give a key to a table without one that has rows, or had some."""
    sets_key = any(isinstance(change, SetPrimaryKey) for change in changes)
    return sets_key and MetaReader(table.paths, env, table.name).snapshots.latest() is not None


def set_primary_key(table: TableDef, env: Env, changes: Iterable[Change]) -> TableDef:
    """Make changes of a schema, one of which gives a primary key to a table with rows; return the table with it.

    Raises:
        InvalidInputError: a change that the table may not have; keys that are null, or that several rows have, unless
            the changes set the merge engine. Nothing was changed.
        ConflictError: others changed the table again and again; nothing was changed.
        UnsupportedError: this version could not write or read the table then; nothing was changed.
        CommitUnknownError: the store lost the reply; the table is as before, or has the key.
    """
    what = f"cannot alter '{table.name}'"
    rekeying = _Rekeying(table, env, checked_changes(changes, what), what)
    try:
        return in_rounds(table, env, lambda _: rekeying.round(), lambda: None)
    except ConflictError as error:
        if error.overtaken is not Overtaken.ROWS:
            raise
        raise ConflictError(
            f"{what}: others changed the table again and again while its rows were written anew, the last time as "
            f"follows: {error.message.partition(': ')[2].partition(' Nothing was')[0]} Nothing was changed. Pause the "
            "writers of the table until the call returns, and call it again.",
            overtaken=error.overtaken,
            **error.context,
        ) from error
    finally:
        rekeying.drop()


@dataclass
class _Copy:
    """What is copied already.

    Attributes:
        now: the table as it is.
        made: the table as it will be, with its schema.
        writer: writes the rows.
        messages: what it wrote; not committed.
        covered: the files whose rows are copied, by bucket.
        vectors: the deletion vectors that they had.
    """

    now: TableDef
    made: TableDef
    writer: TableWriter
    messages: list[CommitMessage] = field(default_factory=list)
    covered: dict[BucketId, set[str]] = field(default_factory=dict)
    vectors: dict[BucketId, BucketVectors] = field(default_factory=dict)

    def has(self, file: _File) -> bool:
        """Return whether the rows of a file are copied."""
        return file.file.name in self.covered.get(file.id, ())

    def stands(self, state: TableState, vectors: dict[BucketId, BucketVectors]) -> bool:
        """Return whether all that was copied is still part of the table, and no row of it was marked since."""
        for bucket, names in self.covered.items():
            there = state.live.buckets.get(bucket)
            if there is None or not names <= {entry.file.name for entry in there.entries}:
                return False
            if self.vectors.get(bucket, NO_VECTORS).entries != vectors.get(bucket, NO_VECTORS).entries:
                return False
        return True


class _Rekeying:
    """One call: rounds of copying, each followed by an attempt to commit."""

    def __init__(self, table: TableDef, env: Env, changes: Sequence[Change], what: str) -> None:
        self._table = table
        self._env = env
        self._changes = changes
        self._what = what
        self._folds = any(isinstance(c, SetOption) and c.key.strip() == w.MERGE_ENGINE.key for c in changes)
        self._copy: _Copy | None = None

    def round(self) -> TableDef:
        """Copy what is not copied yet, and commit; return the table with its key."""
        env = self._env
        now = restore_schema(self._table, env)
        reader = MetaReader(now.paths, env, now.name)
        state = reader.latest(to_commit=True)
        assert state.snapshot is not None
        made = self._made(now)
        if made is None:
            return now
        vectors = vectors_by_bucket(now, reader.index(state.snapshot))
        copy = self._copy
        if copy is not None and (copy.made.schema != made.schema or not copy.stands(state, vectors)):
            self.drop()
            copy = None
        if copy is None:
            copy = self._copy = _Copy(now, made, table_writer(made, env, _start(made), publishes=lambda _: False))
        source = _Rows(now, made, env, state, vectors)
        try:
            self._check(source, copy)
            self._take(source, copy)
        except FormatError as error:
            if has_expired(now, env, state.snapshot, error):
                raise ExpiredError(
                    f"{self._what}: snapshot {state.snapshot.id} expired while its rows were read. Nothing was "
                    "changed. Try again.",
                    table=now.name,
                    snapshot=state.snapshot.id,
                ) from error
            raise
        self._commit(copy, state)
        return made

    def drop(self) -> None:
        """Remove what was copied and is not committed."""
        if self._copy is not None:
            self._copy.writer.abort()
            remove_uncommitted(self._copy.made, self._env, self._copy.messages)
            self._copy = None

    def _made(self, now: TableDef) -> TableDef | None:
        """Return the table with the schema after the changes; None: they change nothing."""
        what = self._what
        made = altered(now.schema, self._changes, written=True, rewritten=True, what=what)
        if made is now.schema:
            return None
        if made.primary_keys == now.schema.primary_keys:
            raise InvalidInputError(
                f"{what}: it has the primary key ({', '.join(made.primary_keys)}) already. Nothing was changed. Leave "
                "merganser.changes.set_primary_key out.",
                table=now.name,
            )
        if made.options.get(w.STREAM_ENABLED):
            raise InvalidInputError(
                f"{what}: its shard stream would begin together with its key. Nothing was changed. Set "
                f"'{w.STREAM_ENABLED.key}' in another call, after this one.",
                table=now.name,
                option=w.STREAM_ENABLED.key,
            )
        check_can_keep(made, now.schema, what=what)
        check_formats(made, what=what)
        check_filters(made, what=what)
        known = self._copy.made.schema.time_millis if self._copy is not None else self._env.now_ms()
        made = replace(marked(made, made.id), version=CURRENT_VERSION, time_millis=known)
        check_can_write(made, name=now.name)
        return now.with_schema(made)

    # the key

    def _check(self, source: _Rows, copy: _Copy) -> None:
        """Refuse null keys, and keys that more than one row has.

        Raises:
            InvalidInputError: says how many, with examples.
        """
        if not copy.made.options.get(w.PRIMARY_KEY_NULLABLE):
            self._check_nulls(source, copy)
        if self._folds:
            return
        keys = copy.made.schema.primary_keys
        empty = nullable_schema([field for name in keys for field in source.fields if field.name == name]).empty_table()
        repeated = rows = 0
        shown: list[str] = []
        for group in _apart(copy.made, source.files):
            parts = max(1, -(-sum(one.file.row_count for one in group) // _KEYS_AT_ONCE))
            for part in range(parts):
                tables = (_part(rows, copy.made.schema, part, parts) for rows in source.tables(group, keys))
                found = pa.concat_tables([*tables, empty])
                positions, is_last = sorted_positions(found.columns)
                ends = np.flatnonzero(is_last)
                sizes = np.diff(ends, prepend=-1)
                twice = np.flatnonzero(sizes > 1)
                repeated, rows = repeated + len(twice), rows + int(sizes[twice].sum())
                few = twice[: _SHOWN_MAX - len(shown)]
                examples = found.take(pa.array(positions[ends[few]])).to_pylist()
                shown += [f"{_named(row)} ({size} rows)" for row, size in zip(examples, sizes[few], strict=True)]
        if repeated:
            raise InvalidInputError(
                f"{self._what}: {rows:,} rows share {counted(repeated, 'value')} of the primary key "
                f"({', '.join(keys)}): {'; '.join(shown)}. Nothing was changed. Delete all rows but one of each, or "
                "set 'merge-engine' in the same call, which makes one row of them.",
                table=self._table.name,
            )

    def _check_nulls(self, source: _Rows, copy: _Copy) -> None:
        keys = copy.made.schema.primary_keys
        nullable = [field.name for field in source.fields if field.name in keys and field.type.nullable]
        nulls = 0
        shown: list[str] = []
        for file in (file for file in source.files if nullable and not copy.has(file)):
            found = sum(_with_null(rows).num_rows for rows in source.tables([file], nullable))
            nulls += found
            if found and not shown:
                whole = (_with_null(rows, nullable) for rows in source.tables([file], copy.made.schema.names))
                shown = [_named(row) for rows in whole for row in rows.slice(0, _SHOWN_MAX).to_pylist()][:_SHOWN_MAX]
        if nulls:
            raise InvalidInputError(
                f"{self._what}: {counted(nulls, 'row')} of the table {'has' if nulls == 1 else 'have'} null in the "
                f"primary key ({', '.join(keys)}): "
                f"{'; '.join(shown)}. Nothing was changed. Update or delete these rows first, or set "
                "'primary-key.nullable' in the same call.",
                table=self._table.name,
            )

    # the rows

    def _take(self, source: _Rows, copy: _Copy) -> None:
        """Copy the rows of files that are not copied yet. New files are durable."""
        env, made = self._env, copy.made
        todo = [file for file in source.files if not copy.has(file)]
        target = arrow_schema(made.schema.fields)
        with env.progress.work(f"rewriting {made.name}", size_bytes=sum(file.file.size for file in todo)) as work:
            for file in todo:
                with closing(env.ahead(source.tables([file], made.schema.names))) as parts:
                    for rows in parts:
                        taken, kinds, _ = accepted(made, with_schema(rows, target), None, None, action=self._what)
                        copy.writer.write(taken, kinds)
                work.advance(file.file.size)
        copy.messages += copy.writer.finish()
        for file in todo:
            copy.covered.setdefault(file.id, set()).add(file.file.name)
            copy.vectors[file.id] = source.vectors.get(file.id, NO_VECTORS)

    def _commit(self, copy: _Copy, state: TableState) -> None:
        """Make the schema and the commit that brings its rows.

        Raises:
            ConflictError: others came between; the table is as they left it.
        """
        env, made = self._env, copy.made
        messages, compacted = self._final(copy)
        turn = take_turn(made, env)
        change = Committable(
            messages=messages,
            commit_user=env.new_id(),
            identifier=BATCH_IDENTIFIER,
            kind=OVERWRITE,
            overwrites=lambda live: [replace(entry, kind=DELETE) for entry in live],
            allow_empty=True,
            reads=Reads(state.snapshot, covers=lambda _: True, marks=True),
            rekeys=True,
        )
        try:
            self._check_reads(change, made)  # others who came first cost no schema, and what was copied stays of use
            self._make_schema(made, state)
            self._copy = None  # from here on a snapshot may name the files
            try:
                snapshot = TableCommit(made, env).commit(change, turn=turn)
            except CommitUnknownError:
                raise
            except MerganserError:  # nothing is visible
                self._copy = copy
                with suppress(MerganserError):  # else the next writer does it
                    restore_schema(copy.now, env)
                raise
        except MerganserError:
            if self._copy is not None:
                remove_uncommitted(made, env, compacted)
            raise
        finally:
            turn.end()
        named = {file.name for message in messages for file in message.added}
        remove_uncommitted(made, env, [_without(message, named) for message in copy.messages])
        with suppress(Exception):  # rows and key are there; a later merge of manifests does it, too
            self._leave_old_entries_out(made)
        after_commit(made, env, Committed(messages, snapshot, change.commit_user, BATCH_IDENTIFIER))

    def _leave_old_entries_out(self, made: TableDef) -> None:
        """Make a snapshot whose manifests name no file without a key: other clients decode a key of each entry."""
        merging = replace(made, options=made.options.merged({w.MANIFEST_FULL_COMPACTION_SIZE.key: "0 b"}))
        TableCommit(merging, self._env).commit(Committable((), self._env.new_id(), kind=COMPACT, allow_empty=True))

    def _check_reads(self, change: Committable, made: TableDef) -> None:
        reader = MetaReader(made.paths, self._env, made.name)
        newest_first = reader.snapshots.from_newest(reader.snapshots.latest(to_commit=True))
        assert change.reads is not None
        check_reads(change.reads, newest_first, reader.delta, table=made.name)

    def _make_schema(self, made: TableDef, state: TableState) -> None:
        assert state.snapshot is not None
        try:
            SchemaStore(made.paths, self._env).create(made.schema)
        except AlreadyExistsError as error:
            raise ConflictError(
                f"{self._what}: it was altered by others at the same time. Nothing was changed. Look at the table "
                "again, and repeat what is still wanted.",
                overtaken=Overtaken.ROWS,
                table=made.name,
                read=state.snapshot.id,
            ) from error

    def _final(self, copy: _Copy) -> tuple[list[CommitMessage], list[CommitMessage]]:
        """Return the messages to commit, and those of compactions that were run for them.

        Where reads see rows, or changelogs count them as published, once they lie above level 0, all rows go there.
        """
        made = copy.made
        messages = ow.upgraded(made, _current_indexes(copy.messages))
        if not (hides_level_0(made.options) or publishes_by_compaction(made.options)):
            return messages, []
        planner = Planner(made, self._env)
        by_bucket: dict[BucketId, list[CommitMessage]] = {}
        for message in messages:
            by_bucket.setdefault((message.partition, message.bucket), []).append(message)
        jobs = []
        done: list[CommitMessage] = []
        for (partition, bucket), parts in by_bucket.items():
            files = [file for part in parts for file in part.added]
            if all(file.level for file in files):
                done += parts
                continue
            job = planner.whole(partition, bucket, parts[0].total_buckets, files, NO_VECTORS)
            jobs.append(replace(job, expiry=None, publishes=False))
            done += [replace(part, added=()) for part in parts if part.index_added]
        compacted = on_threads(self._env)(jobs) if jobs else []
        return [*done, *(replace(message, removed=()) for message in compacted)], compacted


@dataclass(frozen=True)
class _File:
    """A live file without a key."""

    partition: bytes
    bucket: int
    file: DataFile

    @property
    def id(self) -> BucketId:
        return self.partition, self.bucket


class _Rows:
    """The rows of a state of a table without a key, in the columns of the table as it will be.

    Attributes:
        fields: the columns; those of the key are as nullable as they were.
        files: the live files, in the order of their rows.
        vectors: deletion vectors, by bucket.
    """

    def __init__(
        self, now: TableDef, made: TableDef, env: Env, state: TableState, vectors: dict[BucketId, BucketVectors]
    ) -> None:
        were = {field.id: field.type.nullable for field in now.schema.fields}
        self.fields = tuple(
            replace(field, type=field.type.with_nullable(were.get(field.id, True))) for field in made.schema.fields
        )
        self.files = _in_order(state)
        self.vectors = vectors
        self._env = env
        self._schemas = columns_of(now, env, (one.file.schema_id for one in self.files))
        schema = replace(made.schema, fields=self.fields, primary_keys=(), options=now.schema.options)
        self._table = replace(now, schema=schema)

    def tables(self, files: Sequence[_File], names: Sequence[str]) -> Generator[pa.Table, None, None]:
        """Yield some columns of the rows of files, in their order."""
        by_name = {field.name: field for field in self.fields}
        job = ReadJob(self._table, tuple(by_name[name] for name in names), None, self._schemas)
        for one in files:
            vectors = self.vectors.get(one.id, NO_VECTORS).of([one.file.name])
            directory = self._table.bucket_directory(*one.id)
            split = Split(directory, one.partition, one.bucket, ((one.file,),), True, vectors)
            yield from read_split(job, split, self._env.storage)


def _start(made: TableDef) -> Start:
    """Return the start of rows that replace all others: their numbers begin anew, and no key has a place yet."""
    return Start(
        lambda _: 0,
        rows=RowsState(None) if made.moves_keys else None,
        layout=Layout.among(made, EMPTY) if made.postpones else None,
    )


def _in_order(state: TableState) -> list[_File]:
    """Return the live files in the order of their rows; see the top of this module."""
    placed: list[tuple[int, bytes, int, int, _File]] = []
    for (partition, bucket), held in state.live.buckets.items():
        latest = 0
        for i, entry in enumerate(sorted(held.entries, key=lambda entry: entry.file.min_sequence)):
            latest = max(latest, entry.file.creation_time_ms or 0)
            placed.append((latest, partition, bucket, i, _File(partition, bucket, entry.file)))
    return [one[-1] for one in sorted(placed, key=lambda one: one[:-1])]


def _apart(made: TableDef, files: Sequence[_File]) -> Iterator[list[_File]]:
    """Yield groups of files that share no key: partitions, if the key has their columns."""
    if not set(made.schema.partition_keys) <= set(made.schema.primary_keys):
        yield list(files)
        return
    groups: dict[bytes, list[_File]] = {}
    for one in files:
        groups.setdefault(one.partition, []).append(one)
    yield from groups.values()


def _part(rows: pa.Table, schema: TableSchema, part: int, parts: int) -> pa.Table:
    """Return the rows whose keys belong to one of several parts."""
    if parts == 1:
        return rows
    kinds = [schema.field(name).type for name in rows.column_names]
    return rows.filter(pa.array(buckets(rows.columns, kinds, parts) == part))


def _with_null(rows: pa.Table, names: Sequence[str] | None = None) -> pa.Table:
    """Return the rows that have null in one of some columns; None: of all."""
    lacking = pa.scalar(False)
    for name in names or rows.column_names:
        lacking = pc.or_(lacking, pc.is_null(rows.column(name)))
    return rows.filter(lacking)


def _named(row: dict[str, object]) -> str:
    return ", ".join(f"{name} = {value!r:.40}" for name, value in row.items())


def _current_indexes(messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """Return messages of several rounds of one writer with the index files that no later one replaces."""
    gone = {entry.identity for message in messages for entry in message.index_removed}
    return [
        replace(
            message,
            index_added=tuple(entry for entry in message.index_added if entry.identity not in gone),
            index_removed=(),
            keys=None,
            after=None,
        )
        for message in messages
    ]


def _without(message: CommitMessage, named: set[str]) -> CommitMessage:
    """Return a message without the files that a commit names, and without index files."""
    return replace(message, added=tuple(file for file in message.added if file.name not in named), index_added=())
