"""Rescale: the rows of partitions move to another number of buckets, in one commit of the kind COMPACT.

No row changes, so streams and changelogs go on; what a full compaction would publish first, the rescale publishes.

    plan      every partition with another number of buckets, by its live files
    rewrite   jobs that share no bucket, on the caller's cores (`lsm.rescale`)
    commit    if others added files meanwhile, these are split as they are, and the commit is tried again; if others
              replaced files, their partitions are done anew. After two lost rounds writers wait for the commit.
    option    a new schema with the number of buckets, so that later writers use it. Rows that came to new partitions
              meanwhile move first

Of several rescales at a time, the one that commits last decides: the others set no option, and move nothing back.

Until the commit, writers go on with the old number. A writer that comes to its commit later is told that its rows were
hashed over another number. Killed before the commit, a rescale leaves files that no snapshot names; killed between the
commit and the option, it is finished by the next writer (`upkeep.bucket_option`), or by the same call again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import count
from math import gcd
from typing import Any

from merganser.commit.committable import Committable
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.commit.turns import no_turn, take_turn
from merganser.errors import CommitUnknownError, ConflictError, InvalidInputError, MerganserError
from merganser.files.masks import NO_VECTORS, BucketVectors, vectors_by_bucket
from merganser.lsm.abandoned import remove_uncommitted
from merganser.lsm.compact import CompactJob
from merganser.lsm.rescale import RescaleJob
from merganser.meta.data_file import DataFile
from merganser.meta.followed import newest
from merganser.meta.lineage import last_rescale
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.snapshot import BATCH_IDENTIFIER, COMPACT, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.rules.facts import BUCKETS_MAX, POSTPONE
from merganser.rules.gaps import check_can_write
from merganser.storage.env import Env
from merganser.storage.retries import RACE
from merganser.upkeep.bucket_option import set_buckets
from merganser.upkeep.compact_table import RunJobs, on_threads
from merganser.upkeep.plan_compaction import CompactionRequest, Planner, check_partitions, fits
from merganser.values import dataclass


def rescale(
    table: TableDef,
    env: Env,
    buckets: int,
    partitions: Sequence[Mapping[str, Any]] | None = None,
    *,
    run: RunJobs | None = None,
) -> Snapshot | None:
    """Move the rows of partitions to another number of buckets, and let later writers use it.

    Args:
        buckets: the number after.
        partitions: only partitions that one of these specs, of stored values, fits; None: all.
        run: runs the jobs; None: on the threads of this process.

    Returns:
        The last snapshot; None: all rows lie in so many buckets already.

    Raises:
        InvalidInputError: the number or the table does not allow it; nothing was changed.
        NotFoundError: the table has no such partition; nothing was changed.
        ConflictError: others replaced the files again and again; nothing was changed.
    """
    check_rescale(table, env, buckets, partitions)
    request = CompactionRequest(full=True, partitions=partitions)
    made = None
    for rounds in count(1):
        made = _moved(table, env, buckets, request, run or on_threads(env), made) or made
        if table.bucket == POSTPONE:
            return made
        with take_turn(table, env):  # who commits to a new partition looks at the option in the same turn
            state = TableCommit(table, env).latest()
            # Rows of new partitions may have come with the old number. They move before the option says another one,
            # or writers that begin then would be refused; unless others write new partitions again and again.
            waits = not _is_overruled(made, state) and _wanted(table, state.live, buckets, request)
            if waits and rounds < RACE.attempts:
                continue
            was_set = set_buckets(table, env, buckets, rescale=0 if made is None else made.id)
        if not was_set:
            return made
    raise AssertionError("the loop ends with a return")


def check_rescale(
    table: TableDef, env: Env, buckets: int, partitions: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """Refuse a rescale that a table does not allow; see `rescale`.

    Raises:
        InvalidInputError, NotFoundError: nothing was changed.
    """
    _check_number(table, buckets)
    check_can_write(replace(table.schema, options=table.options), name=table.name)
    request = CompactionRequest(full=True, partitions=partitions)
    check_partitions(table, TableCommit(table, env).latest().live, request, what="rescale")


def _check_number(table: TableDef, buckets: int) -> None:
    """Refuse a number of buckets that a table cannot have."""
    action = f"cannot rescale '{table.name}'"
    if not isinstance(buckets, int) or isinstance(buckets, bool) or not 1 <= buckets <= BUCKETS_MAX:
        raise InvalidInputError(
            f"{action}: buckets is {buckets!r:.50}. Nothing was changed. Give a whole number from 1 to {BUCKETS_MAX}.",
            table=table.name,
        )
    if table.bucket > 0 or table.bucket == POSTPONE:
        return
    why = (
        "it adds buckets as keys arrive. Nothing was changed. 'dynamic-bucket.target-row-num' says how large they get."
        if table.keyed
        else "it has neither a key nor 'bucket-key', so its rows lie in no buckets. Nothing was changed."
    )
    raise InvalidInputError(f"{action} to {buckets} buckets: {why}", table=table.name)


@dataclass
class _Part:
    """What is done of one partition.

    Attributes:
        covered: names and levels of the live files whose rows are in `messages`.
        vectors: the deletion vectors of its buckets as they were read.
        rows: how many rows `messages` hold, at most.
    """

    messages: list[CommitMessage] = field(default_factory=list)
    covered: set[tuple[str, int]] = field(default_factory=set)
    vectors: dict[BucketId, BucketVectors] = field(default_factory=dict)
    rows: int = 0


def _moved(
    table: TableDef, env: Env, buckets: int, request: CompactionRequest, run: RunJobs, made: Snapshot | None
) -> Snapshot | None:
    """Move what has another number of buckets in one commit; None: nothing has.

    Args:
        made: what this rescale has committed so far. If another rescale came after it, its number stays.
    """
    parts: dict[bytes, _Part] = {}
    turn = no_turn()
    try:
        for attempt in RACE.each():
            turn.end()
            if attempt.number > 1:
                turn = take_turn(table, env)
            state = TableCommit(table, env).latest()
            if _is_overruled(made, state):
                remove_uncommitted(table, env, [message for part in parts.values() for message in part.messages])
                return None
            table = newest(table, env)
            commits = TableCommit(table, env)
            jobs = _planned(commits, state, buckets, request, parts)
            try:
                done = run(jobs) if jobs else []
            except MerganserError:
                # Files that others replaced meanwhile may be gone from the store, too.
                if attempt.is_last or _are_live(jobs, commits.latest().live):
                    raise
                for partition in {job.partition for job in jobs}:
                    remove_uncommitted(table, env, parts.pop(partition).messages)
                continue
            for message in done:
                parts[message.partition].messages.append(message)
            messages = [message for part in parts.values() for message in part.messages]
            if not messages:
                return None
            # What goes comes first: a file of the same bucket and another number of buckets is added after it.
            messages.sort(key=lambda message: not message.removed)
            change = Committable(messages, env.new_id(), BATCH_IDENTIFIER, COMPACT, rescales=True)
            prepared, parts = parts, {}  # from here on a snapshot may name the files
            try:
                # Its schema is the newest: by those that come later, writers tell whether the option was set.
                return TableCommit(newest(table, env), env).commit(change, turn=turn)
            except CommitUnknownError:
                raise
            except MerganserError as error:  # nothing is visible
                parts = prepared
                if not isinstance(error, ConflictError) or attempt.is_last:
                    raise
        raise AssertionError("the last attempt returns or raises")
    except BaseException:
        remove_uncommitted(table, env, [message for part in parts.values() for message in part.messages])
        raise
    finally:
        turn.end()


def _is_overruled(made: Snapshot | None, state: TableState) -> bool:
    """Return whether another rescale committed after a snapshot of this one; None: it made none."""
    return made is not None and state.snapshot is not None and last_rescale(state.snapshot) > made.id


def _planned(
    commits: TableCommit, state: TableState, buckets: int, request: CompactionRequest, parts: dict[bytes, _Part]
) -> list[RescaleJob]:
    """Return what is still to be done, and note in `parts` what it covers."""
    table, env = commits.table, commits.env
    index = vectors_by_bucket(table, commits.reader.index(state.snapshot))
    wanted = _wanted(table, state.live, buckets, request)
    for partition, part in list(parts.items()):
        there = [(partition, bucket) for bucket in wanted.get(partition, [])]
        if not _stands(part, there, state.live, index):
            remove_uncommitted(table, env, parts.pop(partition).messages)
    planner = Planner(table, env)
    jobs: list[RescaleJob] = []
    for partition, numbers in wanted.items():
        late = partition in parts
        part = parts.setdefault(partition, _Part())
        groups: dict[int, list[CompactJob]] = {}
        for bucket in sorted(numbers):
            held = state.live.buckets[partition, bucket]
            files = [entry.file for entry in held.entries if _place(entry.file) not in part.covered]
            if not files:
                continue
            part.covered |= {_place(file) for file in files}
            vectors = part.vectors[partition, bucket] = index.get((partition, bucket), NO_VECTORS)
            whole = planner.whole(partition, bucket, held.total_buckets, files, vectors)
            shared = bucket % gcd(held.total_buckets, buckets)
            groups.setdefault(shared, []).extend(_each_file(whole) if late else [whole])
        for of_class in groups.values():
            jobs.append(RescaleJob(table, partition, buckets, tuple(of_class), late, part.rows if late else 0))
        part.rows += sum(file.row_count for group in groups.values() for job in group for file in job.files)
    return sorted(jobs, key=lambda job: -job.size_bytes)


def _each_file(job: CompactJob) -> list[CompactJob]:
    """Return one job for each file of a job, in the order of their rows."""
    files = sorted(job.files, key=lambda file: file.min_sequence)
    return [replace(job, files=(file,), output_level=0, expiry=None, vectors=NO_VECTORS) for file in files]


def _wanted(table: TableDef, live: LiveFiles, buckets: int, request: CompactionRequest) -> dict[bytes, list[int]]:
    """Return the buckets of the partitions that have another number of buckets."""
    found: dict[bytes, list[int]] = {}
    for (partition, bucket), files in live.buckets.items():
        if bucket >= 0 and files.entries and files.total_buckets != buckets:
            found.setdefault(partition, []).append(bucket)
    specs = request.partitions
    return {one: numbers for one, numbers in found.items() if specs is None or fits(table, one, specs)}


def _stands(part: _Part, there: Sequence[BucketId], live: LiveFiles, index: Mapping[BucketId, BucketVectors]) -> bool:
    """Return whether what is done of a partition is still part of what there is to do."""
    places: set[tuple[str, int]] = set()
    for bucket in there:
        places |= {_place(entry.file) for entry in live.buckets[bucket].entries}
        if index.get(bucket, NO_VECTORS).entries != part.vectors.get(bucket, NO_VECTORS).entries:
            return False
    # What compactions made of other files has been published: as rows of level 0 it would be once more.
    return part.covered <= places and all(level == 0 for _, level in places - part.covered)


def _place(file: DataFile) -> tuple[str, int]:
    return file.name, file.level


def _are_live(jobs: Sequence[RescaleJob], live: LiveFiles) -> bool:
    """Return whether a state has every file that jobs read."""
    for one in (one for job in jobs for one in job.jobs):
        found = live.buckets.get((one.partition, one.bucket))
        if found is None or not {file.name for file in one.files} <= {entry.file.name for entry in found.entries}:
            return False
    return True
