"""Compactions of a table: planned from the newest state, run wherever the caller has cores, made one commit.

Whoever loses a race for files plans anew from the state that won, so a compaction never brings a removed file
back and never loses a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from merganser.codec.binary_row import deserialize, serialize
from merganser.commit.message import CommitMessage
from merganser.commit.publish import Change, Publisher
from merganser.errors import CommitUnknownError, ConflictError, MerganserError
from merganser.lsm.abandoned import remove_files
from merganser.lsm.compact import CompactJob, append_groups
from merganser.lsm.pick import RunSize, pick, pushes_level_0
from merganser.merge.rules import merge_of
from merganser.meta.data_file import DataFile
from merganser.meta.live_files import BucketFiles, BucketId
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import BATCH_IDENTIFIER, COMPACT, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.validate import check_can_write
from merganser.storage.env import Env

RunJobs = Callable[[Sequence[CompactJob]], list[CommitMessage]]
"""Runs jobs side by side and returns what they changed."""

_ATTEMPTS = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wish:
    """What a compaction is to do.

    Attributes:
        full: everything into the highest level; else what the rules pick.
        partitions: only partitions that one of these specs, of stored values, fits; None: all.
        buckets: only these buckets; None: all.
        push_level_0: empty level 0, whatever the other rules say.
    """

    full: bool = False
    partitions: Sequence[Mapping[str, Any]] | None = None
    buckets: Collection[BucketId] | None = None
    push_level_0: bool | None = None


def plan_jobs(table: TableDef, env: Env, state: TableState, wish: Wish) -> list[CompactJob]:
    """Return what there is to compact in a state, the largest first."""
    jobs: list[CompactJob] = []
    schemas: dict[int, Any] = {table.schema.id: table.schema.fields}
    store = SchemaStore(table.paths, env)
    for (partition, bucket), files in state.live.buckets.items():
        if bucket < 0 or (wish.buckets is not None and (partition, bucket) not in wish.buckets):
            continue
        if wish.partitions is not None and not _fits(table, partition, wish.partitions):
            continue
        for picked in _picked(table, env, files, wish):
            for schema_id in {file.schema_id for file in picked.files + picked.below} - set(schemas):
                schemas[schema_id] = store.load(schema_id).fields
            jobs.append(
                CompactJob(
                    table,
                    partition,
                    bucket,
                    files.total_buckets,
                    table.bucket_directory(partition, bucket),
                    picked.files,
                    picked.level,
                    picked.drops,
                    schemas,
                    picked.below,
                )
            )
    return sorted(jobs, key=lambda job: -job.size_bytes)


@dataclass(frozen=True, slots=True)
class _Picked:
    files: tuple[DataFile, ...]
    level: int = 0
    drops: bool = False
    below: tuple[DataFile, ...] = ()


def _picked(table: TableDef, env: Env, bucket: BucketFiles, wish: Wish) -> list[_Picked]:
    files = [entry.file for entry in bucket.entries]
    if not table.keyed:
        return [_Picked(group) for group in append_groups(table, files, full=wish.full)]
    runs = _runs(files)
    sizes = [RunSize(run[0].level, sum(file.size for file in run), len(run)) for run in runs]
    found = pick(sizes, table.options, full=wish.full, push_level_0=wish.push_level_0, now=env.clock())
    if found is None:
        if wish.full and table.options.get(u.FORCE_REWRITE_ALL_FILES) and files:
            return [_Picked(tuple(files), files[0].level, True)]
        return []
    highest = max(file.level for file in files)
    drops = found.output_level != 0 and found.output_level >= highest
    young = [file for run in runs[: found.run_count] for file in run]
    if not drops and any(file.delete_row_count != 0 for file in young) and not merge_of(table).engine.chooses:
        # Merged with what came after it, a retraction would no longer reach the versions that lie below.
        return _picked(table, env, bucket, replace(wish, full=True))
    chosen = {file.name for file in young}
    below = () if table.options.get(w.MERGE_ENGINE) != "first-row" else tuple(f for f in files if f.name not in chosen)
    return [_Picked(tuple(file for file in files if file.name in chosen), found.output_level, drops, below)]


def _runs(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Return the sorted runs of a bucket, newest first."""
    young = sorted((file for file in files if file.level == 0), key=lambda file: -file.max_sequence)
    levels = sorted({file.level for file in files} - {0})
    return [[file] for file in young] + [[file for file in files if file.level == level] for level in levels]


def _fits(table: TableDef, partition: bytes, specs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a partition has the values of one of the specs, compared as bytes, as partitions differ."""
    names, kinds = table.schema.partition_keys, table.partition_types
    values = dict(zip(names, zip(deserialize(partition, kinds), kinds, strict=True), strict=True))

    def same(name: str, value: Any) -> bool:
        stored, kind = values[name]
        return serialize((stored,), (kind,)) == serialize((value,), (kind,))

    return any(all(same(name, value) for name, value in spec.items()) for spec in specs)


def compact(
    table: TableDef,
    env: Env,
    wish: Wish,
    *,
    run: RunJobs | None = None,
    commit_user: str | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Compact, as one commit.

    Args:
        run: where jobs run; None: on the threads of this process.
        commit_user, identifier: of the write that this follows.

    Returns:
        The snapshot, or None when there was nothing to do.

    Raises:
        ConflictError: others changed the same files again and again; nothing is lost, readers saw no difference.
        FormatError: a file is damaged or missing; the table is as it was.
    """
    check_can_write(replace(table.schema, options=table.options), name=table.name)
    publisher = Publisher(table, env)
    user = commit_user or env.new_id()
    for attempt in range(_ATTEMPTS):
        state = publisher.latest()
        table = _renewed(table, env)
        publisher = Publisher(table, env)
        jobs = plan_jobs(table, env, state, wish)
        if not jobs:
            return None
        messages = (run or _on_threads(env))(jobs)
        if not messages:
            return None
        change = Change(messages=messages, commit_user=user, identifier=identifier, kind=COMPACT)
        try:
            return publisher.commit(change)
        except CommitUnknownError:
            raise
        except ConflictError:
            remove_files(table, env, messages)
            if attempt + 1 == _ATTEMPTS:
                raise
        except MerganserError:
            remove_files(table, env, messages)
            raise
    return None


def _renewed(table: TableDef, env: Env) -> TableDef:
    """Return the table with its newest schema, read after the state: files are rewritten with it.

    With an older one, columns that were added since would be lost.
    """
    newest = SchemaStore(table.paths, env).latest()
    return table if newest is None or newest.id <= table.schema.id else table.with_schema(newest)


def follow(
    table: TableDef,
    env: Env,
    messages: Sequence[CommitMessage],
    *,
    commit_user: str,
    identifier: int,
    run: RunJobs | None = None,
) -> None:
    """Do the compaction that makes a commit visible, where the table needs one and its writers compact.

    A failure is no failure of the write, whose rows are committed: it is logged, and the next compaction catches up.
    """
    if messages and _compacts_after_writes(table):
        buckets = frozenset((message.partition, message.bucket) for message in messages)
        _make_visible(table, env, buckets, run, commit_user, identifier)


def catch_up(table: TableDef, env: Env, *, run: RunJobs | None = None) -> None:
    """Do the compactions that earlier commits needed and whose writers were stopped before; see `follow`."""
    if not _compacts_after_writes(table):
        return
    try:
        live = Publisher(table, env).latest().live
    except MerganserError as error:
        _log.warning("cannot look for rows of '%s' that are not visible yet: %s", table.name, error)
        return
    buckets = frozenset(
        bucket for bucket, files in live.buckets.items() if any(entry.file.level == 0 for entry in files.entries)
    )
    if buckets:
        # Not as the commit that is made up for: others of its user may have come since, and theirs must stay newest.
        _make_visible(table, env, buckets, run, None, BATCH_IDENTIFIER)


def _compacts_after_writes(table: TableDef) -> bool:
    """Return whether rows need a compaction to be visible, and writers do it."""
    options = table.options
    return table.keyed and not options.get(w.WRITE_ONLY) and pushes_level_0(options) and options.get(u.LOOKUP_WAIT)


def _make_visible(
    table: TableDef,
    env: Env,
    buckets: Collection[BucketId],
    run: RunJobs | None,
    commit_user: str | None,
    identifier: int,
) -> None:
    wish = Wish(buckets=buckets, push_level_0=True)
    try:
        compact(table, env, wish, run=run, commit_user=commit_user, identifier=identifier)
    except MerganserError as error:
        _log.warning("rows of '%s' are committed and not visible before its next compaction: %s", table.name, error)


def _on_threads(env: Env) -> RunJobs:
    def run(jobs: Sequence[CompactJob]) -> list[CommitMessage]:
        done: list[CommitMessage] = []

        def one(job: CompactJob) -> None:
            message = job.run(env)
            if message is not None:
                done.append(message)

        try:
            env.map(one, jobs)
        except BaseException:
            remove_files(jobs[0].table, env, done)
            raise
        return done

    return run
