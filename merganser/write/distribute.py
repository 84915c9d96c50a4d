"""Rows that wait for their buckets get them: the second half of a write to a table that postpones buckets.

A write that goes on, such as a stream, leaves its rows in files without a bucket, in the order of their arrival. They
are not part of the table yet. A compaction reads them in that order, writes them as new rows of level 0 into their
buckets, and removes the files, in one commit of the kind COMPACT. So a row is visible once, and a crash leaves it
waiting.

Each partition has a number of buckets of its own: that of its rows, or one chosen by what waits when it has none.

Format: section "bucket -2".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, MerganserError
from merganser.lsm.section import SectionReader
from merganser.meta.data_file import DataFile
from merganser.meta.followed import columns_of, newest
from merganser.meta.layout import Layout, bucket_numbers
from merganser.meta.live_files import LiveFiles
from merganser.meta.snapshot import COMPACT, Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.facts import POSTPONE
from merganser.schema import types as t
from merganser.schema.table_schema import VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.retries import RACE
from merganser.upkeep.compact_table import RunJobs, compact, on_threads
from merganser.upkeep.plan_compaction import CompactionRequest, check_partitions, partitions_chosen
from merganser.upkeep.rescale import check_rescale, rescale
from merganser.values import dataclass
from merganser.write.start import Start
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction
from merganser.write.writer import KeyTableWriter

_SHARE_BYTES = 64 * 1024 * 1024
"""About so many bytes of one partition are one job; each job reads all files of the partition and writes its keys."""
_NUMBERED = re.compile(r"^(?P<writer>.*-w-.*)-(?P<number>\d+)\.[a-z.]+$")


@dataclass(frozen=True)
class DistributeJob:
    """Rows of one partition that wait, or a share of its buckets. Pickles; runs wherever there is a core.

    Attributes:
        files: all that wait in the partition, in the order of their rows.
        schemas: columns of every schema that a file was written with.
        start: what the rows come after.
        share, shares: the job writes the buckets whose number is `share` modulo `shares`.
    """

    target: WriteTarget
    partition: bytes
    files: tuple[DataFile, ...]
    schemas: Mapping[int, tuple[t.Field, ...]]
    start: Start
    share: int
    shares: int

    @property
    def table(self) -> TableDef:
        """The table."""
        return self.target.table

    @property
    def size_bytes(self) -> int:
        """Bytes of its share of the files."""
        return sum(file.size for file in self.files) // self.shares

    def run(self, env: Env, advance: Callable[[int], None] = lambda _: None) -> tuple[CommitMessage, ...]:
        """Write the rows into their buckets; the first share removes the files.

        Raises:
            FormatError: a file is damaged or missing; what was written is removed.
        """
        table = self.table
        count = max(1, sum(file.row_count for file in self.files))
        writer = KeyTableWriter(
            table, env, self.start, parallel=False, publishes=self.target.publishes, marks=self.target.mark
        )
        try:
            for rows in self._rows(env):
                writer.write(rows.select(table.schema.names), rows.column(VALUE_KIND.name).combine_chunks())
                advance(self.size_bytes * rows.num_rows // count)
            made = writer.finish()
        except BaseException:
            writer.abort()
            raise
        if not self.share:
            made.append(CommitMessage(self.partition, POSTPONE, POSTPONE, (), self.files))
        return tuple(made)

    def _rows(self, env: Env) -> Iterator[pa.Table]:
        table = self.table
        total = self.start.layout.of(self.partition) if self.start.layout is not None else 1
        directory = table.bucket_directory(self.partition, POSTPONE)
        reader = SectionReader(table, directory, self.partition, self.schemas, env.storage)
        for file in self.files:
            for rows in reader.plain(file, table.schema.fields):
                if self.shares > 1:
                    buckets = bucket_numbers(table, rows, total)
                    rows = rows.take(pa.array(np.flatnonzero(buckets % self.shares == self.share)))
                if rows.num_rows:
                    yield rows


def compact_all(
    table: TableDef, env: Env, request: CompactionRequest, *, run: RunJobs | None = None
) -> Snapshot | None:
    """Give rows that wait their buckets, then compact; see `upkeep.compact_table.compact`."""
    waited = distribute(table, env, request, run=run) if table.postpones else None
    return compact(table, env, request, run=run) or waited


def rescale_all(
    table: TableDef,
    env: Env,
    buckets: int,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    *,
    run: RunJobs | None = None,
) -> Snapshot | None:
    """Give rows that wait their buckets, so many in partitions that have none yet, then rescale the others.

    See `upkeep.rescale.rescale`.
    """
    waited = None
    if table.postpones:
        check_rescale(table, env, buckets, partitions)
        numbered = table.options.merged({w.POSTPONE_DEFAULT_BUCKET_NUM.key: str(buckets)})
        waited = distribute(replace(table, options=numbered), env, CompactionRequest(partitions=partitions), run=run)
    return rescale(table, env, buckets, partitions, run=run) or waited


def distribute(
    table: TableDef, env: Env, request: CompactionRequest | None = None, *, run: RunJobs | None = None
) -> Snapshot | None:
    """Give the rows that wait their buckets, in one commit.

    Args:
        request: says which partitions; None: all.
        run: runs the jobs; None: on the threads of this process.

    Returns:
        The snapshot; None: no row waits.

    Raises:
        NotFoundError: the request names a partition that the table does not have; nothing was changed.
        ConflictError: others gave the same rows their buckets, or moved the partition, again and again.
        FormatError: a file is damaged or missing; the table is as it was.
    """
    request = request or CompactionRequest()
    if request.partitions is not None:
        check_partitions(table, TableCommit(table, env).latest().live, request)
    for attempt in RACE.each():
        table = newest(table, env)
        target = WriteTarget(table, action=f"cannot compact '{table.name}'")
        transaction = Transaction(target, env, env.new_id(), run=run, kind=COMPACT)
        start = transaction.start()
        live = TableCommit(table, env).latest().live
        jobs = _jobs(target, env, start, live, request)
        if not jobs:
            return None
        try:
            messages = (run or on_threads(env))(jobs)
        except MerganserError:
            # Another compaction may have given the rows their buckets, and their files may be gone from the store.
            if attempt.is_last or _wait_still(jobs, TableCommit(table, env).latest().live):
                raise
            continue
        try:
            return transaction.finish(messages)
        except ConflictError:
            if attempt.is_last:
                raise
    raise AssertionError("the last attempt returns or raises")


def waiting(live: LiveFiles) -> dict[bytes, tuple[DataFile, ...]]:
    """Return the files whose rows wait for their buckets, by partition, in the order of their rows."""
    found: dict[bytes, tuple[DataFile, ...]] = {}
    for (partition, bucket), files in live.buckets.items():
        if bucket == POSTPONE and files.entries:
            found[partition] = tuple(sorted((entry.file for entry in files.entries), key=_place))
    return found


def _wait_still(jobs: Sequence[DistributeJob], live: LiveFiles) -> bool:
    """Return whether a state has every file that jobs read."""
    there = {file.name for files in waiting(live).values() for file in files}
    return all(file.name in there for job in jobs for file in job.files)


def _place(file: DataFile) -> tuple[int, str, int]:
    """Return what orders files: the time they were made, and for files of one writer their number."""
    named = _NUMBERED.match(file.name)
    return file.creation_time_ms or 0, named["writer"] if named else file.name, int(named["number"]) if named else 0


def _jobs(
    target: WriteTarget, env: Env, start: Start, live: LiveFiles, request: CompactionRequest
) -> list[DistributeJob]:
    table = target.table
    known = Layout.among(table, live)
    jobs: list[DistributeJob] = []
    files_of = waiting(live)
    chosen = partitions_chosen(table, list(files_of), request)
    for partition in chosen:
        files = files_of[partition]
        schemas = columns_of(table, env, (file.schema_id for file in files))
        total = known.known.get(partition) or _number_for(table, files)
        shares = max(1, min(total, sum(file.size for file in files) // _SHARE_BYTES))
        of_partition = replace(start, layout=Layout({partition: total}))
        jobs += [
            DistributeJob(target, partition, files, schemas, of_partition, share, shares) for share in range(shares)
        ]
    return sorted(jobs, key=lambda job: -job.size_bytes)


def _number_for(table: TableDef, files: Sequence[DataFile]) -> int:
    """Return the number of buckets of a partition that has none yet, by what waits there."""
    options = table.options
    if (given := options.get(w.POSTPONE_DEFAULT_BUCKET_NUM)) is not None:
        return int(given)
    rows, size = sum(file.row_count for file in files), sum(file.size for file in files)
    per_bucket: Any = options.get(w.POSTPONE_TARGET_ROW_NUM)
    if per_bucket is not None:
        return max(1, -(-rows // int(per_bucket)))
    return max(1, -(-size // int(options.get(w.POSTPONE_TARGET_SIZE))))
