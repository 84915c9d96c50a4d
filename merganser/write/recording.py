"""Recording: what each row of a commit changed, found out against the snapshot that the commit follows.

A row changes what the row before it left, and another writer may commit between. So each attempt to commit compares,
bucket by bucket, the files of the newest snapshot with those that the changelog was made from. If they differ, the job
of the bucket runs again (`lsm.record_log`). It needs the rows as they came: they lie in files until the commit stands.
The newest schema says what columns the changelog has: rows that are there may have columns that the writer never knew.
Few rows are compared in this process, which may remember their keys; many where compactions run.

Docs: decision 0038.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from merganser.commit.message import CommitMessage
from merganser.files.masks import NO_VECTORS, vectors_by_bucket
from merganser.lsm.record_log import RecordLogJob
from merganser.meta.data_file import DataFile
from merganser.meta.followed import columns_of, newest
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.rules.compacting import keeps_order_of_merges
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs

_HERE_ROWS: Final = 200_000
"""Up to so many rows are compared in this process, whose memory of keys and copies lasts."""


class Recording:
    """The changelog of one commit, over all of its attempts.

    Args:
        made: takes the files that are written here, as soon as they are durable.
        run: where jobs of many rows run; None: on the threads of this process.
    """

    def __init__(self, table: TableDef, env: Env, made: list[CommitMessage], run: RunJobs | None) -> None:
        self._table = table
        self._env = env
        self._made = made
        self._run = run
        self._seen: dict[BucketId, tuple[object, tuple[IndexEntry, ...], int]] = {}
        self._logs: dict[BucketId, tuple[DataFile, ...]] = {}
        self._given: Sequence[CommitMessage] = ()
        self._recorded: Sequence[CommitMessage] = ()

    def __call__(self, state: TableState, messages: Sequence[CommitMessage]) -> Sequence[CommitMessage]:
        """Return messages with what their rows changed in a state, in place of the rows as they came.

        The same object is returned as before if nothing differs.

        Raises:
            InvalidInputError: rows cannot be merged with those that are there.
            StorageError, FormatError: files could not be read or written.
        """
        jobs = self._due(state, messages)
        if not jobs and messages is self._given:
            return self._recorded
        for made in self._done(jobs):
            self._made.append(made)
            self._logs[made.partition, made.bucket] = made.changelog
        self._given, left = messages, dict(self._logs)
        self._recorded = [
            replace(message, changelog=left.pop((message.partition, message.bucket), ())) for message in messages
        ]
        return self._recorded

    def _due(self, state: TableState, messages: Sequence[CommitMessage]) -> list[RecordLogJob]:
        """Return the jobs of the buckets whose rows or files are others than at the last call."""
        table = newest(self._table, self._env)
        sensitive = keeps_order_of_merges(replace(table.schema, options=table.options))
        received: dict[BucketId, list[CommitMessage]] = {}
        for message in messages:
            if message.changelog:
                received.setdefault((message.partition, message.bucket), []).append(message)
        vectors = vectors_by_bucket(table, MetaReader(table.paths, self._env, table.name).index(state.snapshot))
        jobs: list[RecordLogJob] = []
        for bucket, parts in received.items():
            there = state.live.buckets.get(bucket)
            marked = vectors.get(bucket, NO_VECTORS)
            seen = (there, marked.entries, table.schema.id)  # equal states share what they know of a bucket
            before = self._seen.get(bucket)
            if before is not None and before[0] is there and before[1:] == seen[1:]:
                continue
            self._seen[bucket] = seen
            files = () if there is None else tuple(entry.file for entry in there.entries)
            rows = tuple(file for part in parts for file in part.changelog)
            made = tuple(file for part in parts for file in part.added) if sensitive else ()
            schemas = columns_of(table, self._env, (file.schema_id for file in (*files, *rows, *made)))
            directory = table.bucket_directory(*bucket)
            total = parts[0].total_buckets
            jobs.append(RecordLogJob(table, *bucket, total, directory, rows, files, schemas, marked, made))
        return jobs

    def _done(self, jobs: Sequence[RecordLogJob]) -> list[CommitMessage]:
        if self._run is not None and sum(job.row_count for job in jobs) > _HERE_ROWS:
            return self._run(jobs)
        done = self._env.map(lambda job: job.run(self._env), sorted(jobs, key=lambda job: -job.row_count))
        return [message for messages in done for message in messages]
