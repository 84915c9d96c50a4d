"""Compactions of a table: plan them from the newest state, run them on the caller's cores, and make one commit.

If another commit replaced some files meanwhile, the compaction loses only the work on those files: it commits the jobs
that still fit the newest state, and plans the others anew from that state. So a compaction never brings a removed file
back and never loses a new file. After a lost round a compaction that takes little time waits for its turn and keeps it
until its commit, so it makes progress beside any number of writers. Where the store has no locks, it may lose every
round; it has done its part if others have compacted every file that it began with.

In some tables, readers see the rows of a commit once a compaction has emptied level 0 (`hides_level_0`). There a
compaction shows whole commits: it takes all files of level 0 of the table, and commits either all of them or none.

A writer compacts after each of its commits (`follow`): it applies the rules to the buckets that it wrote, by metadata
that is in memory, and compacts at once what the rules pick (docs/decisions/0012).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Final

from merganser.commit.committable import Committable
from merganser.commit.conflict import check_index, check_levels, check_none_waits, check_removals
from merganser.commit.message import CommitMessage, Committed
from merganser.commit.table_commit import TableCommit
from merganser.commit.turns import Turn, no_turn, take_turn
from merganser.errors import CommitUnknownError, ConflictError, MerganserError
from merganser.lsm.abandoned import remove_uncommitted
from merganser.lsm.compact import CompactJob
from merganser.lsm.job import BucketJob
from merganser.lsm.pick import full_compaction_commits
from merganser.meta.data_file import DELETE
from merganser.meta.followed import look, newest
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.snapshot import BATCH_IDENTIFIER, COMPACT, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.rules.compacting import empties_level_0, hides_level_0, keeps_order_of_merges
from merganser.rules.gaps import check_can_write
from merganser.storage.env import Env
from merganser.storage.retries import RACE
from merganser.upkeep.plan_compaction import CompactionRequest, check_partitions, plan_jobs
from merganser.values import dataclass

RunJobs = Callable[[Sequence[BucketJob]], list[CommitMessage]]
"""Runs jobs side by side and returns what they changed."""

_RACES: Final = 3
"""Maximum number of commits that lost every race for the next snapshot id: each took `commit.max-retry-wait`."""

_TURN_S: Final = 0.5
"""A compaction whose last round took no longer keeps the turn for the next one. Writers wait for it twice as long."""

_LOCKS_MAX: Final = 64
"""So many buckets a writer locks while it compacts them; of more it locks none."""

_FILES_MAX: Final = 32
"""So many files of a bucket are compacted even if another writer seems to be at it."""

_log = logging.getLogger(__name__)


def compact(
    table: TableDef,
    env: Env,
    request: CompactionRequest,
    *,
    run: RunJobs | None = None,
    commit_user: str | None = None,
    identifier: int = BATCH_IDENTIFIER,
) -> Snapshot | None:
    """Compact in one commit, or in several if other commits changed some of the files meanwhile.

    Args:
        run: runs the jobs; None: on the threads of this process.
        commit_user, identifier: those of the write before this compaction.

    Returns:
        The last snapshot, or None when there was nothing to do, or when others did it meanwhile.

    Raises:
        NotFoundError: the request names a partition that the table does not have; nothing was changed.
        ConflictError: other commits changed the same files again and again, and left some that were there at first;
            nothing is lost, readers see no difference.
        FormatError: a file is damaged or missing; the table is as it was.
    """
    check_can_write(replace(table.schema, options=table.options), name=table.name)
    caller = _Caller(run or on_threads(env), commit_user or env.new_id(), identifier)
    left = _Left(request)
    while not left.is_done:
        with _turn(table, env, left) as turn:
            left = _round(table, env, left, caller, turn)
        _log.debug("round of a compaction of '%s': %s", table.name, left.outcome.value)
    return left.made


@dataclass(frozen=True, slots=True)
class _Caller:
    """For whom a compaction commits, and where its jobs run."""

    run: RunJobs
    user: str
    identifier: int


class _Outcome(Enum):
    """How a round of a compaction ended."""

    OVERTAKEN = "others changed files meanwhile, and some are left for the next round"
    COMMITTED = "all that was left is committed"
    NOTHING_DUE = "nothing is due"
    NOTHING_MADE = "the jobs changed nothing"
    BY_OTHERS = "others have replaced all the files"


@dataclass(frozen=True, slots=True)
class _Left:
    """What the rounds so far leave to the next one.

    Attributes:
        request: what is still asked for.
        made: the last snapshot; None: none was committed.
        kept: results that fit, and that may be committed only with those of other buckets.
        tries: number of rounds in a row without a commit; a round that runs counts itself.
        took_s: how long the last of them took.
        first: the files that the first of them was to show.
        sought: the files that the compaction began with, and their buckets; None: there was no round yet.
        silent: the buckets that had jobs, and whether these leave out changes.
        outcome: of the last round; another one follows if that was overtaken.
    """

    request: CompactionRequest
    made: Snapshot | None = None
    kept: tuple[CommitMessage, ...] = ()
    tries: int = 0
    took_s: float = 0.0
    first: frozenset[str] = frozenset()
    sought: Mapping[str, BucketId] | None = None
    silent: Mapping[BucketId, bool] = field(default_factory=dict)
    outcome: _Outcome = _Outcome.OVERTAKEN

    @property
    def was_last(self) -> bool:
        """Whether no round may follow if this one, too, commits nothing."""
        return self.tries == RACE.attempts

    @property
    def is_done(self) -> bool:
        """Whether there is no next round."""
        return self.outcome is not _Outcome.OVERTAKEN

    def ended(self, outcome: _Outcome) -> _Left:
        """Return it with nothing left to do."""
        return replace(self, kept=(), outcome=outcome)


@dataclass(frozen=True, slots=True)
class _Round:
    """One round: the newest state, and what is to be done with it.

    Attributes:
        left: what is left if it commits nothing.
        waiting: files that have to become visible together, and their buckets.
        jobs: none: the results of earlier rounds are enough.
    """

    left: _Left
    commits: TableCommit
    state: TableState
    waiting: Mapping[str, BucketId]
    jobs: Sequence[CompactJob]
    began: float

    def after(self) -> _Left:
        """Return what is left now that it has committed nothing."""
        return replace(self.left, took_s=self.commits.env.seconds() - self.began)


@contextlib.contextmanager
def _turn(table: TableDef, env: Env, left: _Left) -> Iterator[Turn]:
    """Give the turn to commit to a short round after a lost one.

    Other rounds commit without it at first, so that no writer waits for a compaction.
    """
    turn = take_turn(table, env) if left.tries and left.took_s <= _TURN_S else no_turn()
    try:
        yield turn
    finally:
        turn.end()


def _round(table: TableDef, env: Env, left: _Left, caller: _Caller, turn: Turn) -> _Left:
    """Plan what is left by the newest state, do it and commit it, and return what is left then."""
    try:
        plan = _planned(table, env, left)
        if plan is None:
            remove_uncommitted(table, env, left.kept)
            return left.ended(_Outcome.NOTHING_DUE)
        left = plan.left
        begun = env.seconds()
        made = _made(plan, caller)
        if isinstance(made, _Left):
            remove_uncommitted(table, env, left.kept if made.is_done else ())
            return made
    except BaseException:
        remove_uncommitted(table, env, left.kept)
        raise
    messages = [*left.kept, *made]  # from here on a snapshot may name them
    if not messages:
        return left.ended(_Outcome.NOTHING_MADE)
    change = Committable(
        messages=messages,
        commit_user=caller.user,
        identifier=caller.identifier,
        kind=COMPACT,
        seconds={"compact": env.seconds() - begun},
        untracked=frozenset(bucket[0] for bucket, left_out in left.silent.items() if left_out).intersection,
    )
    left = plan.after()
    try:
        snapshot, stale, kept = _committed(plan.commits, change, plan.waiting, turn=turn, give_up=left.was_last)
    except ConflictError:
        if _are_gone(left.sought or {}, plan.commits.latest().live):
            return left.ended(_Outcome.BY_OTHERS)
        raise
    if snapshot is not None:
        left = replace(left, made=snapshot, tries=0)
    if not stale and not kept:
        return left.ended(_Outcome.COMMITTED)
    request = left.request if kept else replace(left.request, buckets=stale)
    return replace(left, request=request, kept=tuple(kept))


def _planned(table: TableDef, env: Env, left: _Left) -> _Round | None:
    """Return the next round; None: nothing is due any more.

    Raises:
        NotFoundError: the request names a partition that the table does not have.
    """
    began = env.seconds()
    seen = look(table, env)
    state = TableCommit(table, env).latest() if seen.known is None else seen.known.state
    table = newest(table, env, None if seen.known is None else seen)
    commits = TableCommit(table, env)
    if not left.tries and left.made is None:
        check_partitions(table, state.live, left.request)
    waiting = _waiting(table, state.live, left.request)
    if _shown_by_others(left, waiting):
        return None
    kept = _still_of_use(left.kept, commits, state, waiting)
    jobs = _jobs(table, env, state, left.request, waiting, kept)
    if not jobs and not kept:
        return None
    left = replace(
        left,
        kept=tuple(kept),
        tries=left.tries + 1,
        first=left.first if left.tries else frozenset(waiting),
        sought=_sought(jobs) if left.sought is None else left.sought,
        silent={**left.silent, **{(job.partition, job.bucket): _is_silent(job) for job in jobs}},
    )
    return _Round(left, commits, state, waiting, jobs, began)


def _made(plan: _Round, caller: _Caller) -> list[CommitMessage] | _Left:
    """Return what the jobs of a round made, or what is left if others replaced their files while they ran.

    Raises:
        MerganserError: a job failed, and no other commit was the reason. What can be committed without it is.
    """
    if not plan.jobs:
        return []
    try:
        return caller.run(plan.jobs)
    except MerganserError:
        # Files that others replaced meanwhile may be gone from the store, too.
        state = plan.commits.latest()
        index = plan.commits.reader.index(state.snapshot)
        if all(_is_live(job, state.live, index) for job in plan.jobs):
            if plan.waiting:
                _without_the_failing(plan.commits, plan.jobs, caller)
            raise
        if not plan.left.was_last:
            return plan.after()
        if _are_gone(plan.left.sought or {}, state.live):
            return plan.left.ended(_Outcome.BY_OTHERS)
        raise


def _is_silent(job: CompactJob) -> bool:
    """Return whether a job leaves out changes of its bucket."""
    return any(each.is_silent for each in (job, *job.others))


def _sought(jobs: Sequence[CompactJob]) -> Mapping[str, BucketId]:
    """Return the files that jobs are to compact, and their buckets."""
    every = [each for job in jobs for each in (job, *job.others)]
    return {file.name: (job.partition, job.bucket) for job in every for file in job.files}


def _are_gone(files: Mapping[str, BucketId], live: LiveFiles) -> bool:
    """Return whether a state has none of some files, given with their buckets."""
    held = ((name, live.buckets.get(bucket)) for name, bucket in files.items())
    return not any(there is not None and any(name in some for some in there.names) for name, there in held)


def _without_the_failing(commits: TableCommit, jobs: Sequence[CompactJob], caller: _Caller) -> None:
    """Commit the jobs that do not fail, so that one bucket that cannot be merged does not hide the rows of all others.

    Commits that wrote to the failing bucket, too, are then visible in part.
    """
    messages: list[CommitMessage] = []
    for job in jobs:
        try:
            messages += caller.run([job])
        except MerganserError as error:
            _log.warning("bucket %d of '%s' cannot be compacted: %s", job.bucket, commits.table.name, error)
    if messages:
        untracked = frozenset(job.partition for job in jobs if _is_silent(job)).intersection
        change = Committable(messages, caller.user, caller.identifier, COMPACT, untracked=untracked)
        _committed(commits, change, {}, give_up=True)


def _shown_by_others(left: _Left, waiting: Mapping[str, BucketId]) -> bool:
    """Return whether other compactions have shown all that the first round was to show, and nothing else is due.

    A full compaction is due even so: readers of the fully compacted states wait for it.
    """
    request = left.request
    return bool(request.inline and not request.full and left.tries and left.first and left.first.isdisjoint(waiting))


def _waiting(table: TableDef, live: LiveFiles, request: CompactionRequest) -> Mapping[str, BucketId]:
    """Return the files that are not visible before a compaction and have to become so together, and their buckets.

    A request for some partitions shows the rows of these partitions alone.
    """
    chosen = request.partitions is not None or request.where is not None
    if chosen or not table.keyed or not hides_level_0(table.options):
        return {}
    return {
        entry.file.name: bucket
        for bucket, files in live.buckets.items()
        if bucket[1] >= 0
        for entry in files.entries
        if entry.file.level == 0
    }


def _jobs(
    table: TableDef,
    env: Env,
    state: TableState,
    request: CompactionRequest,
    waiting: Mapping[str, BucketId],
    kept: Sequence[CommitMessage],
) -> list[CompactJob]:
    """Return what the request picks and, if that shows rows, what the other rows of the same commits need."""
    done = {(message.partition, message.bucket) for message in kept}
    jobs = [job for job in plan_jobs(table, env, state, request) if (job.partition, job.bucket) not in done]
    if not waiting or not (jobs or kept):
        return jobs
    done |= {(job.partition, job.bucket) for job in jobs}
    others = frozenset(waiting.values()) - done
    if not others:
        return jobs
    rest = CompactionRequest(buckets=others, push_level_0=True, inline=True)
    return jobs + plan_jobs(table, env, state, rest)


def _still_of_use(
    kept: Sequence[CommitMessage], commits: TableCommit, state: TableState, waiting: Mapping[str, BucketId]
) -> list[CommitMessage]:
    """Return the results of earlier rounds that still fit and empty level 0 of their buckets; remove the others."""
    if not kept:
        return []
    index, removed = commits.reader.index(state.snapshot), _removed(kept)
    missed = {bucket for name, bucket in waiting.items() if name not in removed}
    of_use = [
        message
        for message in kept
        if (message.partition, message.bucket) not in missed and _follows(message, state, index, commits.table)
    ]
    remove_uncommitted(commits.table, commits.env, [message for message in kept if message not in of_use])
    return of_use


def _shows_whole_commits(messages: Sequence[CommitMessage], live: LiveFiles, waiting: Mapping[str, BucketId]) -> bool:
    """Return whether the results show whole commits.

    `waiting` were whole commits, and so are the files of level 0 that came later. Other compactions took whole commits
    away. So the results show whole commits if they take all that is left of `waiting`, or nothing.
    """
    removed = _removed(messages)
    if removed.isdisjoint(waiting):
        return True
    return _are_gone({name: bucket for name, bucket in waiting.items() if name not in removed}, live)


def _removed(messages: Sequence[CommitMessage]) -> set[str]:
    return {entry.file.name for message in messages for entry in message.entries() if entry.kind == DELETE}


def _committed(
    commits: TableCommit,
    change: Committable,
    waiting: Mapping[str, BucketId],
    *,
    turn: Turn | None = None,
    give_up: bool,
) -> tuple[Snapshot | None, frozenset[BucketId], list[CommitMessage]]:
    """Commit what fits the newest state, and remove the files of the rest.

    Args:
        waiting: files that have to become visible together.
        turn: that of the first attempt; see `TableCommit.commit`.
        give_up: raise an error if nothing was committed.

    Returns:
        The snapshot, None if nothing was committed; the buckets of the jobs that did not fit; and the results that fit
        and must not be committed without those buckets.

    Raises:
        ConflictError: the commit failed; the new files are removed.
        CommitUnknownError: the outcome of the commit is unknown; all files were kept.
    """
    table, env = commits.table, commits.env
    stale: set[BucketId] = set()
    races = 0
    for attempt in RACE.each():
        try:
            return commits.commit(change, turn=turn), frozenset(stale), []
        except CommitUnknownError:
            raise
        except ConflictError:
            try:
                state = commits.latest()
                index = commits.reader.index(state.snapshot)
            except MerganserError:
                remove_uncommitted(table, env, change.messages)
                raise
            fitting = [message for message in change.messages if _follows(message, state, index, table)]
            lost = [message for message in change.messages if message not in fitting]
            whole = _shows_whole_commits(fitting, state.live, waiting)
            races += not lost
            last = attempt.is_last or races == _RACES or (give_up and not (fitting and whole))
            remove_uncommitted(table, env, change.messages if last else lost)
            if last:
                raise
            stale |= {(message.partition, message.bucket) for message in lost}
            change, turn = replace(change, messages=fitting), None
            if not fitting or not whole:
                return None, frozenset(stale), fitting
        except MerganserError:
            remove_uncommitted(table, env, change.messages)
            raise
    raise AssertionError("the last attempt returns or raises")


def _follows(message: CommitMessage, state: TableState, index: Sequence[IndexEntry], table: TableDef) -> bool:
    """Return whether the result of a job may follow a state."""
    snapshot = state.next_id - 1
    try:
        check_removals(message.entries(), state.live, table=table.name, snapshot=snapshot)
        check_levels(message.entries(), state.live, table.key_types, table=table.name, snapshot=snapshot)
        if keeps_order_of_merges(replace(table.schema, options=table.options)):
            check_none_waits(message.entries(), state.live, table=table.name, snapshot=snapshot)
        check_index(
            message.entries(),
            message.index_removed,
            message.index_added,
            index,
            state.live,
            one_per_bucket=table.bucketed,
            table=table.name,
            snapshot=snapshot,
        )
    except ConflictError:
        return False
    return True


def _is_live(job: CompactJob, live: LiveFiles, index: Sequence[IndexEntry]) -> bool:
    """Return whether a state has every file that a job reads."""
    found = live.buckets.get((job.partition, job.bucket))
    names = set() if found is None else {entry.file.name for entry in found.entries}
    return names.issuperset(file.name for file in job.reads) and all(entry in index for entry in job.vectors.entries)


def compact_after(table: TableDef, env: Env, committed: Committed, *, run: RunJobs | None = None) -> None:
    """Compact what a commit made due, unless the table is `write-only`.

    The compaction has the commit's user and identifier. If it fails, the error is logged, and the next compaction
    catches up: the rows of the write are committed, so the write itself succeeds.

    Args:
        run: where jobs run; None: on the threads of this process.
    """
    if not committed.messages or table.options.get(w.WRITE_ONLY):
        return
    user, identifier = committed.commit_user, committed.identifier
    full = _full_is_due(table, identifier)
    buckets = frozenset((message.partition, message.bucket) for message in committed.messages)
    # Commits of a job that goes on leave buckets behind that the one that is due did not write.
    whole = full and identifier != BATCH_IDENTIFIER
    request = CompactionRequest(full=full, buckets=None if whole else buckets, inline=True)
    try:
        reader = MetaReader(table.paths, env, table.name)
        state = reader.latest() if committed.snapshot is None else reader.state(committed.snapshot)
        jobs = plan_jobs(table, env, state, request)
        if not jobs:  # most commits end here, and have read nothing
            return
        with contextlib.ExitStack() as locks:
            if not whole and len(jobs) <= _LOCKS_MAX and not (table.keyed and empties_level_0(table.options)):
                request = replace(request, buckets=_left_to_us(env, jobs, locks))
            if request.buckets is None or request.buckets:
                compact(table, env, request, run=run, commit_user=user, identifier=identifier)
    except Exception as error:  # any error: the rows are committed, and a caller that saw it would repeat the write
        _not_compacted(table, error)


def _left_to_us(env: Env, jobs: Sequence[CompactJob], locks: contextlib.ExitStack) -> frozenset[BucketId]:
    """Return the buckets that no other writer compacts now, and some that have waited for long.

    Of two compactions of the same files only one can be committed. Where rows are visible without a compaction, the
    second writer leaves it to the first, unless that one seems to have stopped.

    Args:
        locks: takes the locks of these buckets.
    """
    ours: set[BucketId] = set()
    for job in jobs:
        release = env.storage.try_lock(job.directory)
        if release is not None:
            locks.callback(release)
        if release is not None or len(job.files) >= _FILES_MAX:
            ours.add((job.partition, job.bucket))
    return frozenset(ours)


def _full_is_due(table: TableDef, identifier: int) -> bool:
    """Return whether `full-compaction.delta-commits` asks for a full compaction after a commit, by the format's rule.

    Readers of the fully compacted states of a table find those states by the same rule.
    """
    every = full_compaction_commits(table.options)
    return every is not None and (identifier == BATCH_IDENTIFIER or identifier % every == 0)


def catch_up(table: TableDef, env: Env, identifier: int, *, run: RunJobs | None = None) -> None:
    """Do the compactions that make earlier commits visible or publish them, and whose writers were stopped before.

    Args:
        identifier: of the commit that was repeated.
    """
    options, full = table.options, _full_is_due(table, identifier)
    if not table.keyed or options.get(w.WRITE_ONLY) or not (full or empties_level_0(options)):
        return
    try:
        live = TableCommit(table, env).latest().live
        buckets = frozenset(
            bucket for bucket, files in live.buckets.items() if any(entry.file.level == 0 for entry in files.entries)
        )
        if buckets:
            # Without the user and identifier of the earlier commit: that user may have committed since, and the newest
            # identifier must stay the newest.
            compact(table, env, CompactionRequest(full=full, buckets=buckets, inline=True), run=run)
    except Exception as error:  # any error: the rows are committed, and a caller that saw it would repeat the write
        _not_compacted(table, error)


def _not_compacted(table: TableDef, error: Exception) -> None:
    hidden = table.keyed and empties_level_0(table.options)
    what = "rows of '%s' are committed and not visible before its next compaction: %s"
    what = what if hidden else "'%s' is committed, and was not compacted after it: %s"
    _log.warning(what, table.name, error, exc_info=not isinstance(error, MerganserError))


def on_threads(env: Env) -> RunJobs:
    def run(jobs: Sequence[BucketJob]) -> list[CommitMessage]:
        done: list[CommitMessage] = []

        title, size = f"compacting {jobs[0].table.name}", sum(job.size_bytes for job in jobs)

        try:
            with env.progress.work(title, size_bytes=size, steps=len(jobs)) as work:

                def one(job: BucketJob) -> tuple[CommitMessage, ...]:
                    shown = 0

                    def advance(size_bytes: int) -> None:
                        nonlocal shown
                        size_bytes = min(size_bytes, job.size_bytes - shown)
                        shown += size_bytes
                        work.advance(size_bytes, steps=0)

                    messages = job.run(env, advance)
                    done.extend(messages)
                    work.advance(job.size_bytes - shown)
                    return messages

                return [message for messages in env.map(one, jobs) for message in messages]
        except BaseException:
            remove_uncommitted(jobs[0].table, env, done)
            raise

    return run
